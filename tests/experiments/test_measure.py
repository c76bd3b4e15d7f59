"""What experiments measure and what claims are made of, on small results made by hand: each is confirmed and refuted."""

import math

import numpy as np
import pytest
import xarray as xr

from jaxroute.experiments.claims import all_hold, grows_as, slope_within
from jaxroute.experiments.measure import (
    Measured,
    end,
    ends,
    ends_along,
    highest,
    late_slope,
    listed,
    lowest,
    mean_of,
    paired_gap,
    power,
    quotient,
    show,
    show_slope,
    with_coordinates,
)
from jaxroute.experiments.pictures import one_case, panel_per_case

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
    data.attrs["coordinates"] = coordinates
    return data


def test_numbers_are_compared_by_joint_standard_errors():
    a, b = Measured(1.0, 0.3), Measured(2.0, 0.4)  # The joint standard error is .5.
    assert a.below(b, by=1.9) and not a.below(b, by=2.1)
    assert b.above(a, by=1.9) and not b.above(a, by=2.1)
    assert b.below(a, by=-2.1) and not b.below(a, by=-1.9)
    assert a.near(b, by=2.1) and not a.near(b, by=1.9) and a.near(b, by=1.9, slack=0.1)
    assert a.below(1.5, by=1.0) and not a.below(1.5, by=2.0), "a plain number has no error"
    assert not a.below(a, by=0.0) and not a.above(a, by=0.0) and not a.near(a, by=0.0)


def test_nothing_holds_of_what_is_not_a_number():
    unknown = Measured(math.nan, math.nan)
    for comparison in (unknown.below, unknown.above, unknown.near):
        assert not comparison(1.0, by=1.0)
        assert not comparison(Measured(1.0, 0.1), by=-1.0)


def test_quotients():
    assert quotient(Measured(6.0, 0.6), Measured(3.0, 0.0)) == pytest.approx((2.0, 0.2))
    assert quotient(Measured(0.0, 0.6), Measured(3.0, 0.3)) == pytest.approx((0.0, 0.2))
    assert quotient(Measured(1.0, 0.1), Measured(0.0, 0.0)) == (math.inf, 0.0)
    assert Measured(6.0, 0.6).times(0.5) == (3.0, 0.3)


def test_values_at_the_horizon():
    data = result({"first": [1, 2, 3, 4], "second": [1, 1, 1, 1]})
    assert end(data, "regret", "first") == pytest.approx((4.0, 0.1))
    assert end(data, "regret", "first", time=20) == pytest.approx((2.0, 0.1))
    assert mean_of(data["regret"].sel(policy="first", time=20)) == pytest.approx((2.0, 0.1))
    values = ends(data, "regret", ["first", "second"])
    assert list(values) == ["first", "second"] and (lowest(values), highest(values)) == ("second", "first")
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
        assert math.isnan(slope.mean) and "not positive" in show_slope(slope)
    assert show_slope(Measured(0.5, 0.1)) == show(Measured(0.5, 0.1))


def test_a_slope_in_a_band():
    root, zero = (xr.DataArray(v[:, None] + NOISE, {"size": TIMES}, ("size", "seed")) for v in (50 * TIMES**0.5, 0 * TIMES))
    assert power(root, "size").mean == pytest.approx(0.5, abs=1e-3)
    text, holds = slope_within(root, "size", 0.4, 0.6)
    assert holds and text.startswith("slope 0.5")
    assert not slope_within(root, "size", 0.6, 0.7)[1] and not slope_within(root, "size", 0.3, 0.4)[1]
    assert slope_within(zero, "size", -9.0, 9.0) == ("no slope: too few times, or a mean that is not positive", False)
    assert not slope_within(root.isel(size=[0]), "size", -9.0, 9.0)[1]


def test_growth_over_the_horizons_of_cases():
    """Case a{T} ends at sqrt(T), case b{T} at T; `horizon` is that of the coordinates."""
    results = {
        f"{rule}{horizon}": result({"one": [1, 1, 1, 100 * horizon**power]}, rule=rule, horizon=horizon)
        for rule, power in (("a", 0.5), ("b", 1.0))
        for horizon in (400, 100, 900)
    }
    assert list(with_coordinates(results, rule="a", horizon=100)) == ["a100"]
    assert grows_as("regret", "one", 0.4, 0.6, {"rule": "a"})(results)[1]
    assert not grows_as("regret", "one", 0.4, 0.6, {"rule": "b"})(results)[1]
    nothing = {name: data * 0.0 for name, data in results.items()}
    for name, data in results.items():
        nothing[name].attrs = data.attrs
    assert grows_as("regret", "one", -9.0, 9.0, {"rule": "b"})(nothing) == (
        "no slope: too few times, or a mean that is not positive",
        False,
    )


@all_hold("regret ", between=" and ")
def _below_five(results):
    """Whether all are below 5."""
    for name, data in results.items():
        value = end(data, "regret", "one")
        yield f"{name} {value.mean:.0f}", value.below(5.0, by=3.0)


def test_all_must_hold():
    small, large = (result({"one": [0, 0, 0, v]}) for v in (1, 6))
    assert _below_five({"x": small, "y": small}) == ("regret x 1 and y 1", True)
    assert _below_five({"x": small, "y": large}) == ("regret x 1 and y 6", False)
    assert _below_five({"x": large, "y": small}) == ("regret x 6 and y 1", False)
    assert _below_five.__name__ == "_below_five"


def test_nothing_to_judge_does_not_hold():
    assert all_hold("regret ")(lambda results: iter(()))({}) == ("nothing to judge", False)


def test_pictures_of_cases():
    seen = []
    picture = one_case(lambda data, metric, **options: seen.append((data, metric, options)), "regret", "long", log=True)
    picture({"long": "results", "short": None})
    assert seen == [("results", "regret", {"log": True})]
    pytest.importorskip("matplotlib")
    figure = panel_per_case(lambda data, ax, name: ax.set_title(f"{name} {data}"))({"x": 1, "y": 2})
    assert [ax.get_title() for ax in figure.axes] == ["x 1", "y 2"]
