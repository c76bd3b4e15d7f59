"""The engine plays what a plain `vmap` of a scan over rounds plays."""

import jax
import numpy as np
import pytest
from helpers import backends
from toys import Clock, Cycle, Planner, small_market

import jaxroute as jr
from jaxroute.core import rounding
from jaxroute.core.attributes import decoded
from jaxroute.engine import programs
from jaxroute.problems import cascade, combinatorial, contextual, problems, queueing, service, staged, stochastic

# One policy of every problem, with an environment of a few models.
PAIRS = {
    "stochastic": (lambda: stochastic.bernoulli([0.2, 0.6, 0.5]), stochastic.GaussianThompson()),
    "contextual": (lambda: contextual.linear([[0.5, -0.5], [0.1, 0.3]], 0.2), contextual.LinUCB()),
    "staged": (small_market, staged.StageRoute()),
    "combinatorial": (lambda: combinatorial.sciq_cloud(reward="suc"), combinatorial.CUCB()),
    "service": (lambda: service.benchmark_service("winogrande", signal=0.15), service.MessPlus()),
    "queueing": (lambda: queueing.RandomQueues(), queueing.QUCB()),
    "cascade": (cascade.uniform_cascade, cascade.OnlineGradient()),
}
# Those that compile for long: the slow run has them.
LONG = ("staged", "queueing")


def assert_same_runs(env, policies, **options):
    """All numbers are equal."""
    options = {"horizon": 40, "seeds": 16, "record_every": 15, "progress": False, **options}
    ours, theirs = (
        jr.simulate(env, policies, execution=jr.Execution(backend), **options) for backend in ("scan", "reference")
    )
    assert backends(theirs) == {"reference"} and not decoded(theirs.attrs)["fell_back"]
    assert set(ours) == set(theirs)
    assert bool(theirs["valid"].all())
    for name in ours:
        one, other = ours[name].values, theirs[name].values
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(one, other, err_msg=name)
    return theirs


def test_every_problem_has_its_row():
    assert set(PAIRS) == set(problems())


@pytest.mark.parametrize("problem", [pytest.param(p, marks=pytest.mark.slow) if p in LONG else p for p in PAIRS])
def test_a_policy_of_every_problem(problem):
    make, policy = PAIRS[problem]
    assert_same_runs(make(), policy)


@pytest.mark.parametrize("problem", [pytest.param(p, marks=pytest.mark.slow) if p in LONG else p for p in PAIRS])
def test_xlas_own_functions_play_the_same_on_average(problem, monkeypatch):
    """Differences of the same runs with XLA's functions, its order of sums and contracted products: rounding, and now and then a decision."""
    make, policy = PAIRS[problem]
    options = {"horizon": 100, "seeds": 256, "record_every": 50, "progress": False}
    ours = jr.simulate(make(), policy, execution=jr.Execution("scan"), **options)
    monkeypatch.setattr(rounding, "protected", lambda words: rounding.compilers_own())
    programs.PROGRAMS.clear()
    theirs = jr.simulate(make(), policy, execution=jr.Execution("reference"), **options)
    programs.PROGRAMS.clear()
    curves = [name for name in ours.data_vars if ours[name].dims == ("policy", "seed", "time")]
    assert curves
    for name in curves:
        difference = (theirs[name] - ours[name]).isel(policy=0, time=-1).values
        difference = difference[~np.isnan(difference)]  # "The first round in which ..." is NaN in runs without one.
        error = difference.std(ddof=1) / np.sqrt(difference.size)
        largest = np.nanmax(abs(ours[name]))
        assert abs(difference.mean()) <= 4 * error + 1e-5 * largest, name
        assert (abs(difference) > 1e-3 * largest).mean() <= 0.05, name


@pytest.mark.parametrize("every", [1, 7, 12, 40])
def test_stages_and_rounds_that_are_not_counted(every):
    """Stages of several lengths against records of several lengths, and a last interval that is shorter."""
    env = Clock(stage_length=6, free_rounds=9)
    data = assert_same_runs(env, {"Planner": Planner(), "Cycle": Cycle()}, record_every=every)
    assert data["misplanned"].sel(policy="Planner").values.max() == 0


def test_info_gauges_and_probes():
    def probe(env, policy, env_state, policy_state, t):
        return {"pulls": policy_state.pulls, "time": t}

    env = stochastic.bernoulli([0.2, 0.6, 0.5])
    record = ["regret", "pulls", "info.explored"]
    data = assert_same_runs(env, stochastic.EpsilonGreedy(), record=record, probes={"p": probe})
    np.testing.assert_array_equal(data["p.pulls"].isel(policy=0).sum(axis=-1), data["p.time"].isel(policy=0))


def test_settings_samplers_and_functions_of_the_environment():
    widths = jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0])
    sampler = lambda key: stochastic.BanditEnv(mean=jax.random.uniform(key, (3,)), scale=None)  # noqa: E731
    assert_same_runs(sampler, {"UCB1": widths, "Oracle": stochastic.Oracle.of})
    assert_same_runs(sampler, {"UCB1": widths, "Oracle": stochastic.Oracle.of}, num_instances=2)
