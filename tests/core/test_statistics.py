"""Statistics that can be merged, against NumPy: moments of any cut of a sample, histograms in any order, quantiles in their accuracy."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxroute.core import statistics
from jaxroute.core.statistics import RELATIVE_ACCURACY, Histogram, Moments

SMALLEST = Fraction(float(np.finfo(float).smallest_subnormal))  # What no square can be told apart by.
FLOATS = st.floats(-1e100, 1e100, allow_subnormal=True)
SAMPLES = hnp.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 40)), elements=FLOATS)
ANYTHING = hnp.arrays(np.float64, st.tuples(st.just(2), st.integers(0, 30)), elements=st.floats())


def merged(values, cuts, kind=Moments):
    """The statistics of the pieces of a sample `[rows, R]`, merged one after the other."""
    pieces = np.split(values, sorted(cuts), axis=1)
    total = kind.of(pieces[0])
    for piece in pieces[1:]:
        total = total.merged(kind.of(piece))
    return total


def exact_variance(sample):
    """As a fraction: NumPy's own is off by the square of the rounding of its mean."""
    exactly = [Fraction(float(x)) for x in sample]
    mean = sum(exactly) / len(exactly)
    return sum((x - mean) ** 2 for x in exactly) / (len(exactly) - 1)


def check(found, values, tolerance=1e-12):
    """Against NumPy; means in units of the spread, as a mean near zero has no relative accuracy."""
    statistics = found.statistics()
    number = (~np.isnan(values)).sum(axis=1)
    np.testing.assert_array_equal(statistics["count"], number)
    for row, n in enumerate(number):
        sample = values[row][~np.isnan(values[row])]
        mean, variance = (statistics[s][row] for s in ("mean", "variance"))
        if n == 0:
            assert all(np.isnan(statistics[s][row]) for s in ("mean", "variance", "minimum", "maximum"))
            continue
        assert (statistics["minimum"][row], statistics["maximum"][row]) == (sample.min(), sample.max())
        assert abs(mean - sample.mean()) <= tolerance * np.abs(sample).max()
        if n == 1:
            assert mean == sample[0] and np.isnan(variance)
        else:
            exact = exact_variance(sample)
            assert abs(Fraction(float(variance)) - exact) <= Fraction(tolerance) * exact + n * SMALLEST


@given(SAMPLES, st.lists(st.integers(0, 40), max_size=5))
@example(np.array([[0.0] + [2.05827553e-159] * 6]), [2])  # Squares have five digits there.
@example(np.full((1, 1000), 0.1), range(100, 1000, 100))  # A constant has no variance.
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_cut_gives_the_moments_of_the_whole(values, cuts):
    check(merged(values, cuts), values)


def test_moments_leave_out_nan():
    values = np.random.default_rng(0).normal(3.0, 2.0, (5, 200))
    values[0] = np.nan
    values[1, 1:] = np.nan
    values[2, ::3] = np.nan
    check(Moments.of(values), values)
    check(merged(values, [1, 7, 7, 150]), values)


def test_a_large_mean_with_a_tiny_variance():
    """The textbook formula, mean of squares minus square of the mean, has no digit left here."""
    rng = np.random.default_rng(1)
    noise = rng.integers(-3, 4, (2, 4096)) * 2.0**-20
    values = 2.0**30 + noise  # Exact in float64.
    naive = (values**2).mean(axis=1) - values.mean(axis=1) ** 2
    assert (np.abs(naive / noise.var(axis=1) - 1.0) > 0.5).all()
    found = merged(values, range(64, 4096, 64)).statistics()
    np.testing.assert_allclose(found["variance"], noise.var(axis=1, ddof=1), rtol=1e-7)
    np.testing.assert_array_equal(found["minimum"], values.min(axis=1))


def test_infinite_values_stay_infinite():
    values = np.array([[1.0, np.inf, 2.0, 3.0], [np.inf, np.inf, np.inf, np.inf], [-np.inf, 1.0, np.inf, 0.0]])
    for cuts in ([], [1], [2], [1, 2, 3]):
        found = merged(values, cuts).statistics()
        np.testing.assert_array_equal(found["mean"], [np.inf, np.inf, np.nan])
        assert np.isnan(found["variance"]).all()
        np.testing.assert_array_equal(found["minimum"], values.min(axis=1))
        np.testing.assert_array_equal(found["maximum"], values.max(axis=1))


def test_nothing_merges_into_nothing_and_leaves_the_rest_as_it_is():
    some, none = Moments.of(np.array([[0.1, 0.7]])), Moments.of(np.full((1, 3), np.nan))
    for both in (some.merged(none), none.merged(some)):
        np.testing.assert_array_equal(both.packed(), some.packed())
    assert none.merged(none).statistics()["count"] == 0


def test_the_negated_sample():
    values = np.random.default_rng(2).normal(size=(3, 50))
    np.testing.assert_allclose(Moments.of(values).reversed().packed(), Moments.of(-values).packed(), rtol=1e-15)


# Histograms.


def equal(one, other):
    return np.array_equal(one.keys, other.keys) and np.array_equal(one.counts, other.counts)


@given(ANYTHING, ANYTHING, ANYTHING)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_merging_histograms_is_associative_commutative_and_exact(a, b, c):
    one, two, three = (Histogram.of(x) for x in (a, b, c))
    whole = Histogram.of(np.concatenate([a, b, c], axis=1))
    assert equal(one.merged(two).merged(three), whole)
    assert equal(one.merged(two.merged(three)), whole)
    assert equal(three.merged(one).merged(two), whole)
    assert whole.counts.sum() == (~np.isnan(np.concatenate([a, b, c], axis=1))).sum()
    assert (np.diff(whole.keys) > 0).all()


@given(hnp.arrays(np.float64, 50, elements=st.floats(-1e300, 1e300)))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_bins_are_in_order_and_their_middles_within_the_accuracy(values):
    bins = statistics.bins_of(values)
    assert (np.diff(bins[np.argsort(values, kind="stable")]) >= 0).all()
    middle = statistics.middles(bins)
    assert (np.abs(middle - values) <= RELATIVE_ACCURACY * np.abs(values) + 2.0**-64).all()
    np.testing.assert_array_equal(statistics.middles(statistics.bins_of(-values)), -middle)


def test_the_ends_of_the_line_have_bins():
    values = np.array([-np.inf, -1.7e308, -1.0, -1e-300, -0.0, 0.0, 5e-324, 1.0, 1.7e308, np.inf])
    bins = statistics.bins_of(values)
    assert (np.diff(bins) >= 0).all() and list(bins[3:7]) == [0, 0, 0, 0]
    np.testing.assert_array_equal(statistics.middles(bins[[0, 4, -1]]), [-np.inf, 0.0, np.inf])
    assert Histogram.of(values[None]).counts.sum() == 10
    assert Histogram.of(np.full((2, 3), np.nan)).keys.size == 0


LAWS = {
    "normal": lambda rng: rng.normal(100.0, 15.0, (3, 5000)),
    "around zero": lambda rng: rng.normal(0.0, 1.0, (3, 5000)),
    "lognormal": lambda rng: rng.lognormal(0.0, 3.0, (3, 5000)),
    "whole numbers": lambda rng: rng.integers(0, 12, (3, 5000)).astype(float),
    "two values": lambda rng: np.where(rng.random((3, 5000)) < 0.3, -7.0, 1e6),
    "one run": lambda rng: rng.normal(3.0, 1.0, (3, 1)),
    "two runs": lambda rng: rng.normal(3.0, 1.0, (3, 2)),
}


@pytest.mark.parametrize("distribution", LAWS)
def test_quantiles_are_within_the_stated_accuracy(distribution):
    values = LAWS[distribution](np.random.default_rng(3))
    histogram = Histogram.of(values)
    bins = histogram.bins()
    levels = [0.0, 0.001, 0.05, 0.25, 0.5, 0.75, 0.9, 0.999, 1.0]
    ends = values.min(axis=1), values.max(axis=1)
    found = statistics.quantiles(statistics.middles(bins), histogram.dense(3, bins), *ends, levels)
    expected = np.quantile(values, levels, axis=1)
    # Between two order statistics of different sizes the larger one counts.
    size = np.maximum(*(np.abs(np.quantile(values, levels, axis=1, method=m)) for m in ("lower", "higher")))
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= RELATIVE_ACCURACY * size * (1 + 1e-12)).all()
    np.testing.assert_array_equal(found[[0, -1]], expected[[0, -1]])


def test_quantiles_of_nothing_are_nan():
    found = statistics.quantiles(np.zeros(0), np.zeros((2, 0), np.uint32), *np.full((2, 2), np.nan), [0.5])
    assert found.shape == (1, 2) and np.isnan(found).all()


def test_rows_of_a_histogram_are_the_histograms_of_the_rows():
    values = np.random.default_rng(4).normal(size=(6, 30))
    whole = Histogram.of(values)
    assert equal(whole.rows(2, 5), Histogram.of(values[2:5]))
