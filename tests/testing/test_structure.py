"""Every policy and every environment keeps the protocol: seen by tracing alone, in milliseconds each."""

import contextlib
import gc

import conformance_cases as cases
import jax
import pytest

from jaxroute.problems import default_policies, problems
from jaxroute.testing import check_structure

# What cannot be traced under strict promotion of types: an optimiser of another library, and picks among truth values.
PROMOTES_TYPES = {"service/RouterDC", "combinatorial/groups", "combinatorial/groups with budgets"}
# Policies that never combine arrays of different rank, in environments that do not either; those of services and queues do.
SAME_RANKS = """
cascade: QueryAll Frugal RandomCascade Oracle ContextSingle StaticIndex BestSingle
combinatorial: C2MABV CUCB EpsilonGreedy RandomSet Everything OracleRelaxed OracleInteger
staged: Greedy CheapestModels RandomDeploy Uniform
stochastic: UCB1 GaussianThompson EpsilonGreedy Oracle KLUCB UCBV MOSS AnytimeMOSS IMED Exp3 SlidingWindowUCB DiscountedUCB
"""
SAME_RANKS = {f"{p}/{n}" for p, _, names in (s.partition(": ") for s in SAME_RANKS.split("\n")) for n in names.split()}


@contextlib.contextmanager
def strictest(name):
    """The strictest rules of promotion under which this policy or environment can be traced."""
    with contextlib.ExitStack() as rules:
        if name not in PROMOTES_TYPES:
            rules.enter_context(jax.numpy_dtype_promotion("strict"))
        if name in SAME_RANKS:
            rules.enter_context(jax.numpy_rank_promotion("raise"))
        yield


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """Looking for leaked tracers collects garbage; what was there before the tests need not be looked at each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_every_policy_has_a_row():
    expected = {f"{problem}/{name}" for problem, module in problems().items() for name in default_policies(module)}
    assert set(cases.POLICIES) == expected
    assert expected == {f"{n}/{made.__name__}" for n, module in problems().items() for made in module.POLICIES}


def test_every_environment_has_a_row():
    expected = {f"{problem}/{made.__name__}" for problem, module in problems().items() for made in module.ENVIRONMENTS}
    assert set(cases.ENVIRONMENTS) == expected, "tests/support/conformance_cases.py has an example of each constructor"


def check(pairs, name):
    env = pairs[name].env()
    with strictest(name):
        check_structure(pairs[name].policy, env)


@pytest.mark.parametrize("name", [*cases.POLICIES, *cases.OPTIONS])
def test_policies_have_the_structure_of_the_protocol(name):
    check(cases.POLICIES | cases.OPTIONS, name)


@pytest.mark.parametrize("name", [*cases.ENVIRONMENTS, *cases.VARIANTS])
def test_environments_have_the_structure_of_the_protocol(name):
    check(cases.ENVIRONMENTS | cases.VARIANTS, name)
