"""Statistics that are computed where a block was played are those that the host computes."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.engine import simulate as engine
from jaxroute.problems import combinatorial, service, staged, stochastic


def sometimes(key):
    """A bandit that is none for about a third of the seeds."""
    uniform = draws.uniform(key, (3,))
    return stochastic.BanditEnv(mean=jnp.where(uniform[0] < 0.3, jnp.nan, uniform), scale=jnp.float32(0.0))


MEANS = np.linspace(0.9, 0.1, 5)
GREEDY = {"greedy": stochastic.EpsilonGreedy()}
CASES = {
    "policies of one environment": lambda: (stochastic.bernoulli(MEANS), {"UCB1": stochastic.UCB1()} | GREEDY),
    "settings of both": lambda: (
        jr.grid(stochastic.gaussian, mean=[(0.1, 0.3), (0.4, 0.2)], scale=0.5),
        {"UCB1": jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0]), "greedy": stochastic.EpsilonGreedy()},
    ),
    "stages and gauges": lambda: (
        staged.arena_market(max_deployed=3, stage_length=20, horizon=60),
        {"Cheapest": staged.CheapestModels()},
    ),
    "flows that must be zero": lambda: (combinatorial.sciq_cloud(reward="awc"), {"Random": combinatorial.RandomSet()}),
    "runs that are not valid": lambda: (sometimes, {"UCB1": stochastic.UCB1()}),
    "averages": lambda: (service.benchmark_service("winogrande", signal=0.15), {"Single": service.Single(0)}),
}


@pytest.fixture
def stays(monkeypatch):
    """Counts the blocks that are summed up where they were played."""
    seen = []
    reduced, make_block = jr.core.statistics._on_device, engine.Block

    def noted(*arguments):
        seen.append(arguments)
        return reduced(*arguments)

    def on_device(*arguments):
        block = make_block(*arguments)
        block.on_device = True
        return block

    def play(*arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr(engine, "Block", on_device)
            patch.setattr(jr.core.statistics, "_on_device", noted)
            return jr.simulate(*arguments, **options), len(seen)

    return play


@pytest.mark.parametrize("name", CASES)
def test_the_device_and_the_host_agree(name, stays, tmp_path):
    """Counts, extremes and histograms to the bit; means and variances to the order of their sums.

    A compiler may multiply by an inverse where an average divides by the number of rounds, so that a number at the edge of a bin falls into the
    next one.
    """
    env, policies = CASES[name]()
    options = {"horizon": 60, "record_every": 20, "seeds": 600, "progress": False, "keep": "moments"}
    options |= {"execution": jr.Execution(block=256)}
    ours, blocks = stays(env, policies, out=tmp_path, **options)
    theirs = jr.simulate(env, policies, **options)
    assert blocks >= 2 and (ours["runs"] == 600).all()
    assert jr.load(tmp_path).drop_attrs(deep=False).identical(ours.drop_attrs(deep=False))
    assert set(ours.data_vars) == set(theirs.data_vars)
    for metric in theirs.data_vars:
        mine, values = ours[metric].values, theirs[metric].values
        assert (mine.shape, mine.dtype) == (values.shape, values.dtype), metric
        mean = theirs.get(f"{metric.rpartition('_')[0].removesuffix('_difference')}_mean")
        average = mean is not None and mean.attrs["kind"] == "average"
        if average and metric.endswith("histogram"):
            np.testing.assert_array_equal(mine.sum(axis=-1), values.sum(axis=-1), err_msg=metric)
        elif average or metric.endswith(("_mean", "_variance")):
            np.testing.assert_allclose(mine, values, rtol=1e-11, atol=1e-13, err_msg=metric)
        else:
            np.testing.assert_array_equal(mine, values, err_msg=metric)
