"""Arithmetic that is off as a GPU's may be: no NaN, and no decision but those that exact ties allow. No GPU is needed."""

import jax.numpy as jnp
import numpy as np
import pytest
from conformance_cases import OPTIONS, POLICIES, at_horizon
from flax import struct
from perturbed import Kernel, compare

from jaxroute.estimators.families import Bernoulli, Exponential
from jaxroute.kernels import host
from jaxroute.problems import default_policies, stochastic

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="there is no C compiler")

CASES = {**POLICIES, **OPTIONS}
FAST = ("service/MessPlus", "combinatorial/C2MABV", "staged/StageRoute")
FAST_AT_TIES = ("KLUCB", "UCBV", "IMED")
# Rounds, where a queue or a market ends before 150, or an exact evaluator has no more capacity.
ROUNDS = {"queueing": 40, "staged": 40, "cascade/exact evaluator": 25}
# Means at both ends, at which n / n counts; all models equal, so that all decisions are ties; and rewards between 0 and 1.
TIES = {
    "ends": stochastic.bernoulli([1.0, 0.5, 0.0]),
    "equal": stochastic.bernoulli([0.5, 0.5, 0.5]),
    "all 1": stochastic.bernoulli([1.0, 1.0, 1.0]),
    "between": stochastic.beta([0.6, 0.5, 0.5]),
}
# The largest error of the state of a run, as a share of its leaf's largest number, before a decision that is another.
MOST_DRIFT = 2e-3


def some(names, fast):
    return [n if n in fast else pytest.param(n, marks=pytest.mark.slow) for n in names]


def assert_only_ties(name, kernel, rounds, seeds=64):
    """Prints the shares of runs with another decision, up, down and mixed, and the largest drift before one."""
    found = compare(kernel, rounds)
    shares = [f"{len(one.apart) / seeds:.1%}" for one in found.values()]
    print(f"| {name} | {' | '.join(shares)} | {max(one.drift for one in found.values()):.0e} |")
    for way, one in found.items():
        assert not one.nan and not one.unexplained and one.drift < MOST_DRIFT, (way, one)


@pytest.mark.parametrize("name", some(CASES, FAST))
def test_decisions_differ_at_ties_only(name):
    policy, env = CASES[name].policy, CASES[name].env()
    rounds = ROUNDS.get(name) or ROUNDS.get(name.split("/")[0], 150)
    assert_only_ties(name, Kernel(env, policy, rounds, 64), rounds)


@pytest.mark.parametrize("means", TIES)
@pytest.mark.parametrize("name", some(default_policies(stochastic), FAST_AT_TIES))
def test_instances_that_are_made_of_ties(name, means):
    policy = at_horizon(default_policies(stochastic)[name], 1000)
    assert_only_ties(f"{name}, {means}", Kernel(TIES[means], policy, 1000, 64), 1000)


@pytest.mark.parametrize("name", ["UCB1", "KLUCB", "MOSS"])
def test_larger_errors_are_found(name):
    """Decisions that errors of 1e-4 to 1e-3 change are no ties."""
    kernel = Kernel(TIES["between"], default_policies(stochastic)[name], 300, 64, more=1024)
    assert all(len(one.unexplained) >= 6 for one in compare(kernel, 300).values())


@struct.dataclass
class Unclipped(Bernoulli):
    """The divergence as its formula has it."""

    def divergence(self, mean, other):
        pairs = (mean, other - mean), (1.0 - mean, mean - other)
        terms = [-m * jnp.log1p(change / jnp.maximum(m, 1e-30)) for m, change in pairs]
        return jnp.where(mean > 0, terms[0], 0.0) + jnp.where(mean < 1, terms[1], 0.0)


@pytest.mark.parametrize(
    ("family", "corrected", "invalid"),
    [(Unclipped(), False, 64), (Unclipped(), True, 0), (Bernoulli(), False, 0), (Exponential(), False, 0)],
    ids=["neither", "division corrected", "means clipped", "waiting times"],
)
def test_the_least_divergence_is_no_nan(family, corrected, invalid):
    """A mean of 1 that is one unit larger would have a NaN as its divergence; the division or the family prevents that."""
    kernel = Kernel(TIES["ends"], stochastic.IMED(family=family), 100, 64, corrected=corrected)
    assert [len(one.nan) for one in compare(kernel, 100, ways=("up",)).values()] == [invalid]


def test_means_beyond_their_ends_count_as_the_ends():
    family, means = Bernoulli(), np.float32([-1e-6, -1e-30, 0.0, 0.5, 1.0, np.nextafter(1, 2, dtype=np.float32), 1.001])
    legal, level = np.clip(means, 0, 1), np.float32(0.3)
    for function in (family.variance, lambda x: family.upper(x, level), lambda x: family.divergence(x[:, None], x[None])):
        np.testing.assert_array_equal(function(jnp.asarray(means)), function(jnp.asarray(legal)))
        assert not np.isnan(function(jnp.asarray(means))).any()
