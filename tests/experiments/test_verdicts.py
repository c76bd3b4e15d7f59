"""Verdicts on claims: by hand, and on simulated experiments of known truth, of which few may be decided wrongly."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from jaxroute.experiments.claims import slope_within
from jaxroute.experiments.measure import mean_of, product, quantile_of, share_of
from jaxroute.experiments.verdicts import CONFIDENCE, Measured, Verdict, at_least, judge

RUNS = (2, 4, 8, 64, 512)


def runs_of(values):
    return xr.DataArray(np.asarray(values, float), dims="seed")


def verdict(what):
    return judge(what).verdict


# Simulated experiments. Each kind makes a claim about samples of `n` runs whose truth is `far` standard errors on the right side of a
# boundary (on the wrong side if negative). `draw(*shape)` has mean 0 and deviation 1.


def bound(draw, n, far):
    return mean_of(runs_of(draw(n))).below(far / math.sqrt(n))


def paired(draw, n, far):
    luck = 3.0 * draw(n)
    a, b = mean_of(runs_of(luck + draw(n))), mean_of(runs_of(luck + draw(n) + far * math.sqrt(2.0 / n)))
    return a.at_most(b)


def welch(draw, n, far):
    """Three times as many runs with a third of the deviation, of other seeds."""
    other = pd.Series(draw(3 * n) / 3.0, [f"other {i}" for i in range(3 * n)])
    return mean_of(runs_of(draw(n))).above(Measured.of_runs(other).minus(far * math.sqrt(1 / n + 1 / (27 * n))))


def band(draw, n, far):
    """Ten errors wide, so that inside of it nothing is farther from a boundary than five."""
    error = 1.0 / math.sqrt(n)
    return mean_of(runs_of(draw(n))).within(-far * error, (10.0 - far) * error)


def equivalence(draw, n, far):
    error = math.sqrt(2.0 / n)
    a, b = mean_of(runs_of(draw(n))), mean_of(runs_of(draw(n) + (5.0 - far) * error))
    return a.near(b, margin=5.0 * error)


def order(draw, n, far):
    """Four means, of which each two neighbours are equally far apart."""
    means = [mean_of(runs_of(draw(n) + i * far * math.sqrt(2.0 / n))) for i in range(4)]
    return [a.below(b) for a, b in itertools.pairwise(means)]


def most(draw, n, far):
    """Two of three at least."""
    return at_least(2, [bound(draw, n, far) for _ in range(3)])


def some(draw, n, far):
    return at_least(1, [bound(draw, n, far) for _ in range(3)])


def printed(draw, n, far):
    """A number of 20 other runs, with its error."""
    error = 1 / math.sqrt(20)
    other = Measured(float(draw(20).mean()), float(draw(20).std(ddof=1)) * error, dof=19, floor=error)
    return mean_of(runs_of(draw(n))).below(other.plus(Measured(far * math.sqrt(1 / n + 1 / 20))))


def slope(draw, n, far):
    """The power .5 of five sizes; runs differ by a factor, and at each size by another."""
    size = 2.0 ** np.arange(5)
    values = size[:, None] ** 0.5 * (1.0 + 0.1 * draw(n) + 0.1 * draw(5, n))
    error = 0.1 / math.sqrt(n * 10) / math.log(2.0)  # The common factor moves no slope.
    return slope_within(xr.DataArray(values, {"size": size}, ("size", "seed")), "size", 0.5 - far * error, 9.0)[1]


def ratio(draw, n, far):
    """The quotient of two sums with a common factor, against that of two others, which is 1."""
    (a, b), (c, d) = ([mean_of(runs_of(1.0 + 0.3 * draw(n))) for _ in range(2)] for _ in range(2))
    return product(a, d).above(product(b, c).times(1.0 - far * 0.6 / math.sqrt(n)))


KINDS = (bound, paired, welch, band, equivalence, order, most, some, printed, slope, ratio)


def median(draw, n, far):
    """Of exponential numbers, at log 2 with the density 1 / 2."""
    return quantile_of(runs_of(draw(n) + 1.0), 0.5).below(math.log(2.0) + far / math.sqrt(n))


def tail(draw, n, far):
    """The 90 % quantile of exponential numbers, with the density 1 / 10."""
    return quantile_of(runs_of(draw(n) + 1.0), 0.9).above(math.log(10.0) - far * 3.0 / math.sqrt(n))


def two_tails(draw, n, far):
    """The 90 % quantiles of two samples."""
    a, b = (quantile_of(runs_of(draw(n) + 1.0), 0.9) for _ in range(2))
    return a.above(b.minus(far * 3.0 * math.sqrt(2.0 / n)))


def share(draw, n, far):
    """In a fifth of the runs."""
    flags = runs_of(draw(n) > math.log(5.0) - 1.0)
    return share_of(flags).below(0.2 + far * math.sqrt(0.2 * 0.8 / n))


EXPONENTIAL_KINDS = (bound, welch, band, median, tail, two_tails, share)


def shares(kind, distribution, n, far, experiments):
    """Shares of experiments that hold and that are refuted."""
    rng = np.random.default_rng([n, abs(hash(far)) % 1000, experiments])
    draws = {
        "normal": lambda *shape: rng.normal(size=shape),
        "exponential": lambda *shape: rng.exponential(size=shape) - 1.0,
    }
    found = [verdict(kind(draws[distribution], n, far)) for _ in range(experiments)]
    return found.count(Verdict.HOLDS) / experiments, found.count(Verdict.REFUTED) / experiments


def check(kind, distribution, experiments, sizes=RUNS, decided_from=64, noise=3.0):
    """At most two in a hundred verdicts are wrong, on the boundary too, where every decision is wrong; far from it nearly all is decided."""
    for n in sizes:
        for far in (0.0, 5.0, -5.0):
            holds, refuted = shares(kind, distribution, n, far, experiments)
            wrong = holds + refuted if far == 0.0 else refuted if far > 0.0 else holds
            assert wrong <= 0.02 + 3.0 * math.sqrt(0.02 * 0.98 / experiments), (kind.__name__, n, far, wrong)
            if far and n >= decided_from:
                assert holds + refuted >= 0.9 - noise * math.sqrt(0.09 / experiments), (
                    kind.__name__,
                    n,
                    far,
                    holds,
                    refuted,
                )


@pytest.mark.parametrize("kind", KINDS)
def test_few_verdicts_are_wrong(kind):
    check(kind, "normal", 40, (4, 64))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fewer_than_two_in_a_hundred_verdicts_are_wrong(kind):
    """10,000 experiments of each kind."""
    check(kind, "normal", 10_000 // 15)


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXPONENTIAL_KINDS)
def test_fewer_than_two_in_a_hundred_verdicts_on_skewed_numbers_are_wrong(kind):
    """What is decided depends on the density, and is not looked at with few runs; of means of 3 to 6 some 2.3 to 3 in a hundred are wrong."""
    check(kind, "exponential", 10_000 // 15, decided_from=512, noise=0.0)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("n", [16, 64, 256, 1024])
def test_intervals_of_quantiles_cover(level, n):
    """Order statistics cover at least as often as they say, and are infinite where their ranks leave the sample."""
    rng, truth = np.random.default_rng(n), -math.log(1.0 - level)
    ends = np.array([quantile_of(runs_of(rng.exponential(size=n)), level).interval() for _ in range(300)])
    assert ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean() >= 0.99 - 3.0 * math.sqrt(0.01 * 0.99 / 300)
    assert np.isfinite(ends[:, 1]).all() == (level**n < 0.005) and np.isfinite(ends[:, 0]).all()


def test_an_extreme_quantile_of_few_runs_is_not_decided():
    found = quantile_of(runs_of(np.arange(32.0)), 0.99)
    assert found.mean == 31.0 and found.error == math.inf
    judged = judge(found.above(50.0))
    assert judged.verdict == "not decided" and judged.text.endswith("some 700 seeds would decide") and found.least == 528


# By hand.


def test_intervals_are_students_and_wider_for_skewed_runs():
    values = np.array([4.0, 0.0, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0])
    low, high = stats.t.interval(0.99, 7, values.mean(), stats.sem(values))
    found = mean_of(runs_of(values))
    known = Measured(values.mean(), stats.sem(values), dof=7)
    assert known.interval() == pytest.approx((low, high)) and (found.dof, found.number) == (7, 8)
    even = stats.t.interval(0.99, 7, 3.5, stats.sem(np.arange(8.0)))
    assert mean_of(runs_of(np.arange(8.0))).interval() == pytest.approx(even)
    # At the upper end Hall's polynomial in (mean - truth) / deviation is at the quantile; the lower one is Student's.
    assert found.interval()[0] == pytest.approx(low) and found.interval()[1] > high
    high, skewness = found.interval()[1], stats.skew(values, bias=False)
    away = (values.mean() - high) / values.std(ddof=1)
    polynomial = away + skewness * away**2 / 3 + skewness**2 * away**3 / 27 + skewness / (6 * 8)
    assert math.sqrt(8) * polynomial == pytest.approx(-stats.t.ppf(0.995, 7))
    assert found.times(-2.0).interval() == pytest.approx((-2.0 * high, -2.0 * low))
    assert mean_of(runs_of([3.0])).interval() == (-math.inf, math.inf), "one run has no error"
    assert judge(found.below(high + 1e-6)).verdict == "holds" and judge(found.below(high)).verdict == "not decided"
    assert judge(found.below(low)).verdict == "refuted" and judge(found.at_most(low - 1e-6)).verdict == "refuted"


def test_seeds_are_paired_and_others_are_not():
    a, b = np.array([1.0, 2.0, 3.0, 5.0]), np.array([2.0, 3.0, 4.0, 6.0])
    assert mean_of(runs_of(a)).minus(mean_of(runs_of(b))) == (-1.0, 0.0)
    later = xr.DataArray(b, {"seed": [2, 3, 4, 5]}, "seed")
    common = mean_of(runs_of(a)).minus(mean_of(later))
    assert common.number == 2 and common.mean == pytest.approx(((3 - 2) + (5 - 3)) / 2), "seeds 2 and 3"
    apart = mean_of(runs_of(a)).minus(mean_of(runs_of(b), "training"))
    assert apart.error == pytest.approx(math.hypot(stats.sem(a), stats.sem(b))) and apart.dof == pytest.approx(3.0)
    assert apart.floor == pytest.approx(stats.sem(b)), "more seeds train no more"


@pytest.mark.parametrize("values", [[2.0] * 8, np.arange(8.0)])
def test_two_equal_samples(values):
    """None is worse; neither is better, which is refuted."""
    a, b = mean_of(runs_of(values)), mean_of(runs_of(values))
    for stated in (a.at_most(b), a.at_least(b), a.near(b, 0.0), a.at_most(b, margin=0.1)):
        assert verdict(stated) == "holds"
    for stated in (a.below(b), a.above(b)):
        assert verdict(stated) == "refuted"


def test_shares_have_the_exact_interval():
    found = share_of(runs_of(np.arange(512) < 0))
    assert found.mean == 0.0 and found.interval()[1] == pytest.approx(1.0 - 0.005 ** (1 / 512))
    assert verdict(found.at_most(0.02)) == "holds" and verdict(found.at_most(0.001)) == "not decided"
    assert verdict(found.times(100.0).at_most(2.0)) == "holds" and verdict(found.times(-1.0).at_least(-0.02)) == "holds"


def test_several_statements():
    """That all hold needs each at its full risk; that one is false, a share of it."""
    value = mean_of(runs_of(np.arange(8.0)))
    true, false = value.above(-9.0), value.above(99.0)
    low, _ = value.interval(CONFIDENCE)
    edge = value.above(low - 1e-6)
    assert verdict([true, edge]) == "holds" and verdict([true, false]) == "refuted" and verdict([]) == "not decided"
    nearly = value.above(value.interval(CONFIDENCE)[1] + 1e-6)
    assert verdict(nearly) == "refuted" and verdict([nearly, true]) == "not decided"
    assert verdict(at_least(1, [true, false])) == "holds" and verdict(at_least(1, [false, false])) == "refuted"
    assert verdict(at_least(1, [edge, false])) == "not decided" and verdict(at_least(2, [true, True, False])) == "holds"
    assert verdict([true, [True, [edge]]]) == "holds"
    with pytest.raises(TypeError, match="has no truth value"):
        assert true and false


def test_a_power_that_is_close_is_not_the_power():
    """Inside the band and without .75: in the band, and not .75. An interval that is wider than the band shows nothing."""
    for mean, error, band, exactly in (
        (0.731, 0.004, "holds", "refuted"),
        (0.745, 0.004, "holds", "holds"),
        (0.745, 0.02, "not decided", "not decided"),
        (0.70, 0.004, "refuted", "refuted"),
    ):
        value = Measured(mean, error, dof=63)
        assert (verdict(value.within(0.72, 0.78)), verdict(value.within(0.72, 0.78, 0.75))) == (band, exactly)


def test_a_bound_that_others_keep_is_vacuous():
    value, uniform = mean_of(runs_of(np.arange(8.0))), Measured(1320.0)
    for bound_, expected in ((21910.0, "vacuous"), (1000.0, "holds"), (-5.0, "refuted"), (3.0, "not decided")):
        judged = judge(value.at_most(bound_).unless("uniform choice", uniform.at_most(bound_)))
        assert judged.verdict == expected
        assert ("uniform choice satisfies it as well, 1,320" in judged.text) == (expected == "vacuous")


def test_the_printed_rule_is_the_judged_one():
    value = mean_of(runs_of(np.arange(8.0)))
    for stated, rule in (
        (value.below(5.0), "to be below 5"),
        (value.at_least(2.0, margin=0.5), "to be at least 1.5"),
        (value.within(0.5, 9.0), "to be from 0.5 to 9"),
        (value.above(value.times(0.5)), "to be above 0"),
    ):
        judged, ends = judge(stated), [x if math.isfinite(x) else None for x in (stated.low, stated.high)]
        assert rule in judged.text and judged.numbers["boundaries"] == ends
    assert judge(value.above(value.times(0.5))).text.startswith("difference 1.75 (0.43), 99 % interval 0.23 to 3.27")


def test_the_seeds_that_would_decide_mostly_do():
    """Samples whose truth is what was estimated are decided by so many seeds in nine of ten cases, at least eight."""
    rng = np.random.default_rng(0)
    first = mean_of(runs_of(rng.permutation(np.linspace(-2.0, 2.0, 16) + 0.3)))
    judged = judge(first.above(0.0))
    number = judged.numbers["seeds_to_decide"]
    assert judged.verdict == "not decided" and 16 < number < 1000
    deviation = first.error * 4.0
    decided = [verdict(mean_of(runs_of(rng.normal(0.3, deviation, number))).above(0.0)) == "holds" for _ in range(200)]
    assert 0.8 <= np.mean(decided) < 1.0
    at_boundary = mean_of(runs_of([-1.0, 1.0])).above(0.0)
    assert judge(at_boundary).text.endswith("no number of seeds would decide")
