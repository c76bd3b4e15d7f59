"""Verdicts on claims: by hand, and on simulated experiments of known truth, of which few may be decided wrongly."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from jaxroute.experiments.claims import slope_within
from jaxroute.experiments.measure import bootstrapped, mean_of, product, quantile_of, share_of
from jaxroute.experiments.verdicts import Measured, Verdict, at_least, judge

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


def resampled(draw, n, far):
    """A ratio by the bootstrap."""
    a, b = 2.0 + 0.5 * draw(n), 2.0 + 0.5 * draw(n)
    return bootstrapped(lambda i: a[i].mean() / b[i].mean(), n).below(1.0 + far * 0.25 * math.sqrt(2.0 / n))


EXPONENTIAL_KINDS = (median, tail, two_tails, share, resampled)


def shares(kind, law, n, far, experiments):
    """Shares of experiments that hold and that are refuted."""
    rng = np.random.default_rng([n, abs(hash(far)) % 1000, experiments])
    draws = {
        "normal": lambda *shape: rng.normal(size=shape),
        "exponential": lambda *shape: rng.exponential(size=shape) - 1.0,
    }
    found = [verdict(kind(draws[law], n, far)) for _ in range(experiments)]
    return found.count(Verdict.HOLDS) / experiments, found.count(Verdict.REFUTED) / experiments


def check(kind, law, experiments, limit, sizes=RUNS):
    """Wrong verdicts are rare, on the boundary too, where every decision is wrong; far from it nearly all is decided, and rightly."""
    for n in sizes:
        for far in (0.0, 5.0, -5.0):
            holds, refuted = shares(kind, law, n, far, experiments)
            wrong = holds + refuted if far == 0.0 else refuted if far > 0.0 else holds
            noise = 3.0 * math.sqrt(limit * (1.0 - limit) / experiments)
            assert wrong <= limit + noise, (kind.__name__, n, far, wrong)
            if far and n >= 64:
                assert holds + refuted >= 0.9 - 3.0 * math.sqrt(0.09 / experiments), (kind.__name__, n, far, holds, refuted)


@pytest.mark.parametrize("kind", KINDS)
def test_few_verdicts_are_wrong(kind):
    check(kind, "normal", 60, 0.02, (2, 8, 64))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fewer_than_two_in_a_hundred_verdicts_are_wrong(kind):
    """10,000 experiments of each kind."""
    check(kind, "normal", 10_000 // 15, 0.02)
