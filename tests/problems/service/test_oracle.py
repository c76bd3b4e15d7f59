"""Oracles reach the target at the cost of the optimum."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close
from service_cases import cells, end, first_observation, probit, run, table

from jaxroute import simulate
from jaxroute.core import draws
from jaxroute.problems import service as sv
from jaxroute.problems.service.sources import draw_requests


@pytest.mark.parametrize(
    ("oracle", "value"),
    [
        pytest.param(sv.OracleBlind.of, 181.4839, marks=pytest.mark.slow),
        (sv.OracleInformed.of, 138.25),
        (sv.OracleClairvoyant.of, 76.39),
    ],
)
def test_oracles_hit_the_target_at_their_cost(oracle, value):
    env = sv.typed_service(reveals_labels=True)
    record = ["cost", "satisfaction", "gap"]
    data = simulate(env, oracle, horizon=2000, seeds=64, record_every=2000, record=record, progress=False).isel(policy=0)
    assert data["valid"].all()
    assert_mean_close(end(data, "cost"), value, what="cost")
    assert_mean_close(end(data, "satisfaction"), 0.75, what="satisfaction")
    assert_mean_close(end(data, "gap"), value - 138.25, what="gap")


@pytest.mark.parametrize("twice", [False, True])
def test_a_type_that_is_split_in_two_changes_nothing(twice):
    """One step in half of the requests: from .4 to .8 at 2.5 J per unit, for a target of .6."""
    kinds = 2 if twice else 1
    env = sv.typed_service([[0.4, 0.8]] * kinds, [[1.0, 2.0]] * kinds, alpha=0.6)
    oracle = sv.OracleInformed.of(env)
    keys = jax.vmap(lambda i: draws.fold_in(draws.key(8), i))(jnp.arange(4000))
    serve = jax.jit(jax.vmap(lambda key: oracle.act(key, (), first_observation(env), jnp.int32(0))[0].serve))(keys)
    assert float(env.best.cost) == pytest.approx(1.5, rel=1e-6)
    share = float(np.mean(serve == 1))
    assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(4000)


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda **o: cells(signal=1.0, **o), lambda **o: probit(from_features=0.7, **o)])
def test_oracles_of_sampled_optima(make):
    """The optimum is that of a sample of 65,536 requests, whose standard error joins that of the runs."""
    env = make(reveals_labels=True)
    policies = {"informed": sv.OracleInformed.of, "clairvoyant": sv.OracleClairvoyant.of}
    data = simulate(
        env, policies, horizon=4000, seeds=64, record_every=4000, record=["cost", "satisfaction"], progress=False
    )
    sample = draw_requests(env.requests, draws.key(0), 1 << 16)
    for name, price in (("informed", env.best), ("clairvoyant", env.clairvoyant)):
        probability = np.asarray(sample.success if name == "informed" else sample.satisfied, float)
        cost = np.asarray(sample.cost, float)
        choice = np.argmin(cost - float(price.price) * probability, axis=1)
        spread = {"cost": np.take_along_axis(cost, choice[:, None], 1).std(), "satisfaction": 0.5}
        for metric, expected in (("cost", float(price.cost)), ("satisfaction", float(env.alpha))):
            values = end(data.sel(policy=name), metric)
            error = math.hypot(values.std(ddof=1) / 8, spread[metric] / 256)
            if metric == "cost":  # A sample that satisfies less often pays its price for the others.
                error += float(price.price) * 0.5 / 256
            assert abs(values.mean() - expected) < 5 * error, (name, metric, values.mean(), expected, error)


def test_an_oracle_of_models_that_cost_the_same_takes_the_better_one():
    env = sv.typed_service([[0.5, 0.9]], [[100.0, 100.0]], alpha=0.8)
    oracle = sv.OracleInformed.of(env)
    action, _ = oracle.act(draws.key(0), (), first_observation(env), jnp.int32(0))
    assert int(action.serve) == 1 and float(env.best.cost) == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: run(sv.OracleClairvoyant.of), "Labels needs an environment with reveals_labels=True"),
        (lambda: run(sv.OracleInformed.of, table()), "a table of recorded requests has no true probabilities"),
    ],
)  # fmt: skip
def test_bad_input_of_oracle(make, message):
    with pytest.raises(ValueError, match=message):
        make()
