"""What experiments measure and what claims are made of, on small results made by hand: each is confirmed and refuted."""

import math

import numpy as np
import pytest
import xarray as xr

from jaxroute.experiments.claims import all_hold, slope_within
from jaxroute.experiments.measure import (
    Measured,
    average,
    end,
    ends,
    ends_along,
    late_slope,
    listed,
    mean_of,
    paired_gap,
    power,
    product,
    published,
)
from jaxroute.experiments.verdicts import judge

# Deviations of three seeds from their mean; its standard error is .1.
NOISE = 0.1 * math.sqrt(3.0) * np.array([-1.0, 0.0, 1.0])
TIMES = np.array([10, 20, 40, 80])


def result(curves, **coordinates):
    """Regret of policies at `TIMES`, from the mean of each; all seeds are off by the same in every policy and at every time."""
    values = np.stack([np.asarray(curve, float) + NOISE[:, None] for curve in curves.values()])
    arrays = {
        "regret": (("policy", "seed", "time"), values, {"kind": "total"}),
        "valid": (("policy", "seed"), np.ones((len(curves), 3), bool)),
    }
    data = xr.Dataset(arrays, {"policy": list(curves), "seed": np.arange(3), "time": TIMES})
    data.attrs["case_coordinates"] = coordinates
    return data


def test_products_and_quotients_have_the_delta_methods_error():
    a, b = (mean_of(xr.DataArray(level + spread * NOISE, dims="seed")) for level, spread in ((6.0, 6.0), (3.0, 0.0)))
    assert product(a, over=b) == pytest.approx((2.0, 0.2)) and product(a, b) == pytest.approx((18.0, 1.8))
    assert product(a, over=Measured(0.0)).mean == math.inf
    c = mean_of(xr.DataArray(3.0 + 3.0 * NOISE, dims="seed"))
    assert product(a, over=c) == pytest.approx((2.0, 0.0)), "both rise by the same factor in the same run"
    assert average([a, c]) == pytest.approx((4.5, 0.45))
    assert a.times(-0.5) == pytest.approx((-3.0, 0.3))


@pytest.mark.parametrize(
    ("value", "runs", "share", "expected"),
    [(5.0, 300, 0.1, "holds"), (9.0, 300, 0.1, "refuted"), (5.0, 3, 0.1, "not decided"), (5.0, 300, 0.001, "not decided")],
)
def test_published_means(value, runs, share, expected):
    """With the errors of both; with three published runs, or a narrow margin, no number of seeds would help."""
    here = mean_of(xr.DataArray(5.0 + 0.6 * np.linspace(-1.0, 1.0, 64), dims="seed"))
    other = published(value, runs, here)
    assert other == pytest.approx((value, here.error * math.sqrt(64 / runs)))
    judged = judge(here.near(other, share * value))
    assert judged.verdict == expected and ("no number of seeds" in judged.text) == (expected == "not decided")


def test_values_at_the_horizon():
    data = result({"first": [1, 2, 3, 4], "second": [1, 1, 1, 1]})
    assert end(data, "regret", "first") == pytest.approx((4.0, 0.1))
    assert end(data, "regret", "first", time=20) == pytest.approx((2.0, 0.1))
    assert mean_of(data["regret"].sel(policy="first", time=20)) == pytest.approx((2.0, 0.1))
    values = ends(data, "regret", ["first", "second"])
    assert list(values) == ["first", "second"]
    assert listed(values) == "first 4.00 (0.10), second 1.00 (0.10)"
    gap = paired_gap(data, "regret", "first", minus="second")
    assert gap == pytest.approx((3.0, 0.0)), "the seeds share their luck"
    assert paired_gap(data, "regret", "first", minus="second", place=1).mean == pytest.approx(1.0)


def test_values_along_a_setting():
    data = xr.concat([result({"one": [0, 0, 0, v]}) for v in (5, 7)], xr.IndexVariable("b", [0.1, 0.2]))
    data = data.transpose("policy", "b", "seed", "time")
    values = ends_along(data, "regret", "one", "b")
    assert [v.mean for v in values.values()] == pytest.approx([5.0, 7.0])
    assert listed(values, "b = {:g}:", "; ") == "b = 0.1: 5.00 (0.10); b = 0.2: 7.00 (0.10)"
    assert list(ends_along(data, "regret", "one", "b", [0.2])) == [0.2]


def test_slopes_of_a_curve():
    data = result({"root": 100 * TIMES**0.5, "none": 0 * TIMES})
    for every_time in (False, True):
        assert late_slope(data, "regret", "root", 10, every_time).mean == pytest.approx(0.5, abs=1e-3)
        slope = late_slope(data, "regret", "none", 10, every_time)
        assert math.isnan(slope.mean) and "not positive" in str(slope)


def test_a_slope_is_judged_by_its_interval():
    root, zero = (xr.DataArray(v[:, None] + NOISE, {"size": TIMES}, ("size", "seed")) for v in (50 * TIMES**0.5, 0 * TIMES))
    slope = power(root, "size")
    low, _ = slope.interval()
    assert low < slope.mean == pytest.approx(0.5, abs=1e-3) and slope.dof == 2
    for band, verdict in (
        ((0.4, 0.6), "holds"),
        ((0.6, 0.7), "refuted"),
        ((0.3, 0.4), "refuted"),
        (((slope.mean + low) / 2, 0.6), "not decided"),  # The slope is inside, its interval is not.
        ((0.5, 0.5), "not decided"),
    ):
        text, stated = slope_within(root, "size", *band)
        assert judge(stated).verdict == verdict and text.startswith("slope 0.5"), band
    for without in (zero, root.isel(size=[0])):
        text, stated = slope_within(without, "size", -9.0, 9.0)
        assert text == "slope none, since a mean is not positive"
        assert judge(stated).verdict == "not decided" and judge(stated).text.endswith("there is no number to judge")


def test_nothing_to_judge_is_not_decided():
    text, stated = all_hold("regret ")(lambda results: iter(()))({})
    assert text == "nothing to judge" and judge(stated).verdict == "not decided"
