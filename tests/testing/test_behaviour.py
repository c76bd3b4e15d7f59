"""Policies and environments that are played: compiled, in batches, in grids. Most rows compile for long and are left to the slow run."""

import conformance_cases as cases
import pytest

from jaxroute import testing
from jaxroute.problems import queueing, stochastic

# What the default run plays: one policy without stages, one with them.
QUICK = ("stochastic/UCB1", "staged/StageRoute")
HORIZONS = {"stochastic": 40}


@pytest.mark.filterwarnings("ignore:.*horizon")
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in (*cases.POLICIES, *cases.OPTIONS)]
)
def test_policies_behave(name):
    pair = (cases.POLICIES | cases.OPTIONS)[name]
    testing.check_policy(pair.policy, pair.env(), horizon=HORIZONS.get(name.split("/")[0], 24))


# A sampler, which draws an environment per run, and those whose tables are slow to compile are checked by structure alone.
PLAYED = [
    n for n in (*cases.ENVIRONMENTS, *cases.VARIANTS) if n not in ("queueing/RandomQueues", "staged/lower_bound_market")
]


OF_OPTIONS = [n for n in cases.OPTIONS if n.startswith(("service/options", "combinatorial/groups"))]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*horizon")
@pytest.mark.parametrize("name", [*PLAYED, *OF_OPTIONS])
def test_environments_behave(name):
    pair = (cases.ENVIRONMENTS | cases.VARIANTS | cases.OPTIONS)[name]
    testing.check_environment(pair.env(), pair.policy, horizon=20)


@pytest.mark.parametrize(
    ("env", "policy"),
    [(stochastic.gaussian([0.3, 0.1], scale=0.5), stochastic.UCB1()), (cases.small_queue(), queueing.QUCB())],
)
def test_quick_environments_behave(env, policy):
    testing.check_environment(env, policy, horizon=20)
