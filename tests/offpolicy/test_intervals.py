"""Standard errors, degrees of freedom and intervals of means over queries."""

import math

import numpy as np
import pytest
from reference import offpolicy as reference
from scipy import stats

from jaxroute.offpolicy import intervals


def test_errors_equal_the_reference():
    rng = np.random.default_rng(0)
    contributions, clusters = rng.normal(size=50), rng.integers(7, size=50)
    assert intervals.standard_error(contributions) == pytest.approx(contributions.std(ddof=1) / math.sqrt(50), rel=1e-12)
    assert intervals.standard_error(contributions, clusters) == pytest.approx(
        reference.cluster_error(contributions, clusters), rel=1e-12
    )


def test_copies_of_queries_do_not_narrow_an_interval():
    contributions = np.random.default_rng(1).normal(size=40)
    copies = np.tile(contributions, 3)
    clustered = intervals.standard_error(copies, np.tile(np.arange(40), 3))
    assert clustered == pytest.approx(intervals.standard_error(contributions), rel=1e-12)
    assert clustered > 1.7 * intervals.standard_error(copies)


@pytest.mark.parametrize(("value", "error", "z"), [(0.3, 0.05, 1.96), (0.98, 0.01, 2.3), (0.5, 0.2, 1.0)])
def test_scores_have_wilson_intervals(value, error, z):
    found = intervals.score_interval(value, error, z, 100)
    assert (found.low, found.high) == pytest.approx(reference.wilson(value, error, z), rel=1e-12)
    number = value * (1 - value) / error**2
    if abs(number - round(number)) < 1e-9 and abs(number * value - round(number * value)) < 1e-9:
        exact = stats.binomtest(round(number * value), round(number)).proportion_ci(2 * stats.norm.cdf(z) - 1, "wilson")
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high), rel=1e-9)


def test_limits():
    assert intervals.score_interval(1.0, 0.0, 2.0, 96.0).low == pytest.approx(96 / 100)  # n / (n + z^2)
    assert intervals.score_interval(0.4, 0.1, math.inf, 0.0) == intervals.Interval(0.0, 1.0)
    assert intervals.positive_interval(2.0, 0.2, 2.0).low == pytest.approx(2 * math.exp(-0.2))
    assert intervals.positive_interval(0.0, 0.1, 2.0) == intervals.Interval(0.0, math.inf)
    assert intervals.quantile(0.0) == math.inf and intervals.quantile(math.inf) == pytest.approx(1.959964, rel=1e-6)
    normal = intervals.degrees_of_freedom(np.random.default_rng(0).normal(size=20_000))
    assert normal == pytest.approx(20_000, rel=0.1)
    assert intervals.degrees_of_freedom(np.eye(1, 100)[0]) < 3  # One query determines the error.
    assert intervals.degrees_of_freedom(np.ones(5)) == math.inf
    assert intervals.degrees_of_freedom(np.random.default_rng(0).normal(size=3000), np.arange(3000) % 3) <= 2


def test_simultaneous_multiples():
    """One estimate, equal estimates, and independent ones, whose multiple is that of Sidak."""
    assert intervals.simultaneous_quantile(np.eye(1)) == pytest.approx(1.96, abs=0.03)
    assert intervals.simultaneous_quantile(np.ones((5, 5))) == pytest.approx(1.96, abs=0.03)
    independent = float(stats.norm.isf((1 - 0.95 ** (1 / 10)) / 2))
    assert intervals.simultaneous_quantile(np.eye(10)) == pytest.approx(independent, abs=0.04)
