"""Statistics of results, by hand on small data and by coverage on random data."""

import json

import numpy as np
import pandas
import pytest
import xarray as xr

from jaxroute import metrics
from jaxroute.core import statistics

TIMES = (10, 20, 30, 40)


def result(regret, policies=("A", "B"), axes=None, times=TIMES, **more):
    """A result with the variable `regret` `[policy, settings..., seed, time]`, and `more` of the same shape as averages."""
    regret = np.asarray(regret, np.float64)
    dims = ("policy", *(axes or {}), "seed", "time")
    coords = {"policy": list(policies), **(axes or {}), "seed": np.arange(regret.shape[-2]), "time": list(times)}
    variables = {"regret": (dims, regret, {"long_name": "cumulative regret", "units": "reward", "kind": "total"})}
    for name, values in more.items():
        about = {"long_name": f"mean {name}", "units": f"{name} per round", "kind": "average"}
        variables[name] = (dims, np.asarray(values, np.float64), about)
    valid = np.ones(regret.shape[:-1], bool)
    variables["valid"] = (dims[:-1], valid, {"long_name": "run is valid", "units": "", "kind": "flag"})
    return xr.Dataset(variables, coords, {"device": "1 x cpu"})


def small():
    """Two policies, three seeds; at time 40 the regrets are 1, 2, 6 (mean 3) and 2, 4, 9 (mean 5)."""
    last = np.array([[1.0, 2.0, 6.0], [2.0, 4.0, 9.0]])
    curve = np.array([0.25, 0.5, 0.75, 1.0])
    return result(last[..., None] * curve, reward=np.broadcast_to(curve, (2, 3, 4)))


def statistics_of(data):
    """The statistics that a result of moments has of "regret"."""
    runs = metrics.pick(data, "regret").transpose(..., "seed")
    dims, values = runs.dims[:-1], np.ascontiguousarray(runs.values)
    variables = {f"regret_{name}": (dims, v) for name, v in statistics.Moments.of(values).statistics().items()}
    histogram = statistics.Histogram.of(values.reshape(-1, values.shape[-1]))
    counts = histogram.dense(values[..., 0].size, bins := histogram.bins()).reshape(*values.shape[:-1], -1)
    coords = {d: runs[d] for d in dims} | {"regret_bin": statistics.middles(bins)}
    found = xr.Dataset({**variables, "regret_histogram": ((*dims, "regret_bin"), counts)}, coords)
    found["regret_mean"].attrs = data["regret"].attrs
    return found


def with_vector(data):
    shape = (*data["regret"].shape, 2)
    data["deployed"] = ((*data["regret"].dims, "model"), np.ones(shape), {"long_name": "live", "units": "", "kind": "gauge"})
    return data


# Over seeds.


def test_mean_and_standard_error_by_hand():
    data = small()
    mean, error = metrics.mean(data, "regret"), metrics.stderr(data, "regret")
    assert mean.dims == error.dims == ("policy", "time")
    assert mean.sel(policy="A", time=40) == pytest.approx(3.0)
    # Deviations -2, -1, 3: variance 14 / 2 = 7, standard error sqrt(7 / 3).
    assert error.sel(policy="A", time=40) == pytest.approx(np.sqrt(7 / 3))
    assert mean.attrs == {"long_name": "cumulative regret", "units": "reward", "kind": "total"}
    assert error.attrs["long_name"] == "standard error of cumulative regret"
    assert metrics.mean(data["regret"]).identical(mean)


def test_the_standard_error_is_that_of_the_labelled_arrays_also_where_values_are_missing_or_infinite():
    values = np.random.default_rng(0).normal(size=(2, 5, 4))
    values[0, 1, 2], values[0, :4, 3], values[1, 2, 0], values[1, :, 1] = np.nan, np.nan, np.inf, np.nan
    data = result(values)
    array = data["regret"]
    number = array.count("seed").where(array.count("seed") > 1)
    squares = ((array - array.mean("seed")) ** 2).sum("seed")
    np.testing.assert_allclose(metrics.stderr(data, "regret"), (squares / (number - 1) / number) ** 0.5, rtol=1e-14)
    both = metrics.final(data, "regret", time=20)["regret"]
    assert both.dims == ("policy", "statistic") and list(both["statistic"].values) == ["mean", "stderr"]
    np.testing.assert_array_equal(both.sel(statistic="stderr"), metrics.stderr(data, "regret").sel(time=20))


def test_invalid_runs_are_left_out():
    data = small()
    data["valid"][0, 2] = False
    assert metrics.mean(data, "regret").sel(policy="A", time=40) == pytest.approx(1.5)
    assert metrics.stderr(data, "regret").sel(policy="A", time=40) == pytest.approx(0.5)
    assert metrics.count(data, "regret").sel(time=40).values.tolist() == [2, 3]
    # Seed by seed, 1 and 2: differences 1 and 2.
    paired = metrics.paired(data, "regret", "A").sel(policy="B", time=40)
    assert paired["mean"] == pytest.approx(1.5)
    assert paired["stderr"] == pytest.approx(0.5)
    assert "invalid and left out: 1 of 6 runs" in metrics.table(data)
    assert metrics.quantiles(data, "regret", 0.5).sel(policy="A", time=40).item() == pytest.approx(1.5)


def test_one_seed_has_no_standard_error():
    data = small().isel(seed=[0])
    assert metrics.stderr(data, "regret").isnull().all()
    assert metrics.mean(data, "regret").sel(policy="B", time=40) == 2
    assert metrics.mean(small().sel(seed=0), "regret").sel(policy="B", time=40) == 2
    json.dumps(metrics.summary(data), allow_nan=False)
    assert metrics.summary(data)["B"]["regret"] == {"mean": 2.0, "stderr": None}


@pytest.mark.filterwarnings("error")
def test_a_metric_that_a_policy_does_not_have_is_nan_for_it():
    data = small()
    data["regret"][1] = np.nan
    for statistic in (metrics.mean, metrics.stderr, metrics.quantiles):
        values = statistic(data, "regret")
        assert values.sel(policy="B").isnull().all()
        assert values.sel(policy="A").notnull().all()
    assert metrics.summary(data)["B"]["regret"] == {"mean": None, "stderr": None}
    assert metrics.table(data, "regret").splitlines()[4].split() == ["B", "-"]


def test_quantiles():
    assert metrics.mean(with_vector(small()), "deployed").dims == ("policy", "time", "model")
    values = np.arange(101.0)[None, :, None] * np.ones((1, 101, 4))
    data = result(values, ["A"])
    found = metrics.quantiles(data, "regret")
    assert found.dims == ("quantile", "policy", "time")
    assert found.isel(policy=0, time=-1).values.tolist() == pytest.approx([5, 25, 50, 75, 95])


def test_quantiles_lie_in_their_intervals_as_often_as_promised():
    rng, inside, levels = np.random.default_rng(0), [], [0.05, 0.5, 0.9]
    for _ in range(400):
        found = metrics.quantile_intervals(result(rng.exponential(size=(2, 120, 4))), "regret", levels, confidence=0.9)
        exact = xr.DataArray(-np.log1p(-np.asarray(levels)), dims="quantile")
        inside.append(((found["low"] <= exact) & (exact <= found["high"])).isel(time=0).values)
    share = np.mean(inside, axis=(0, 2))
    assert (share > 0.9 - 3 * np.sqrt(0.09 / 800)).all() and (share < 0.96).all()


def test_intervals_of_quantiles_by_hand():
    """Of ten runs, between the second and the ninth: 1 - 2 (1 + 10) / 1024 = 97.9 %; the third and the eighth have 89 %."""
    data = result(np.arange(10.0)[None, :, None] * np.ones((1, 10, 4)), ["A"])
    found = metrics.quantile_intervals(data, "regret", [0.5, 0.05, 0.99]).isel(policy=0, time=-1)
    assert found["low"].values.tolist() == [1.0, -np.inf, 8.0] and found["high"].values.tolist() == [8.0, 2.0, np.inf]
    assert found["value"].equals(metrics.quantiles(data, "regret", [0.5, 0.05, 0.99]).isel(policy=0, time=-1))
    assert found.attrs["confidence"] == 0.95 and "0.95 confidence of" in found["low"].attrs["long_name"]


def skewed():
    """Runs of which some are negative, zero, infinite, large, not valid, or missing for a policy."""
    values = np.random.default_rng(0).lognormal(2, 2, size=(3, 500, 4)) - 1
    values[0, :50], values[1, 3, 2], values[2, :, 1] = 0.0, np.inf, np.nan
    data = result(values, ["A", "B", "C"])
    data["valid"][0, 7] = False
    return data


def test_intervals_of_quantiles_from_statistics_hold_those_of_the_runs():
    data, levels = skewed(), [0.05, 0.5, 0.95]
    exact, found = (metrics.quantile_intervals(one, "regret", levels) for one in (data, statistics_of(data)))
    assert exact["low"].dims == found["low"].dims == ("quantile", "policy", "time")
    for name, side in (("low", -1), ("high", 1)):
        own, other = exact[name].values, found[name].values
        np.testing.assert_array_equal(np.isnan(own), np.isnan(other))
        some = np.isfinite(own)
        gap = side * (other - own)[some]
        assert (gap >= -1e-12).all() and (gap <= 3 * statistics.RELATIVE_ACCURACY * np.abs(own[some]) + 1e-12).all()
    for end in ("low", "high"):  # No run is finite.
        assert np.isnan(found[end].sel(policy="C", time=20)).all()


@pytest.mark.parametrize(
    ("metric", "words", "better"),
    [("regret", "", "min"), ("pulls", "", None), ("x", "mean accuracy", "max"), ("x", "Latency of a query", "min")],
)
def test_words_tell_whether_more_of_a_metric_is_better(metric, words, better):
    assert metrics.direction(metric, {"long_name": words}) == better


def test_tail_by_hand():
    """At time 40 the regrets are 1, 2, 6 and 2, 4, 9."""
    found = metrics.tail(small(), "regret", above=2)
    last = found.sel(time=40)
    assert last["probability"].values.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert last["stderr"].values.tolist() == pytest.approx([1 / 3, 1 / 3])  # sqrt(1/3 * 2/3 / 2)
    assert found["lower"].equals(found["probability"]) and found["upper"].equals(found["probability"])
    assert found["count"].values.tolist() == [[3] * 4] * 2 and found["probability"].dims == ("policy", "time")
    assert found["probability"].attrs["long_name"] == "probability of cumulative regret above 2"
    assert found.attrs == {"metric": "regret", "above": 2.0}
    data = small()
    data["valid"][0, 2] = False
    assert metrics.tail(data, "regret", above=1.5)["probability"].sel(policy="A", time=40) == 0.5
    xr.testing.assert_identical(metrics.tail(small()["regret"], above=2)["probability"], found["probability"])
    one = metrics.tail(small().isel(seed=[0]), "regret", above=0)
    assert (one["probability"] == 1).all() and one["stderr"].isnull().all()


def test_the_tail_from_statistics_holds_that_of_the_runs():
    data = skewed()
    stored = statistics_of(data)
    runs = metrics.pick(data, "regret")
    for above in (-1.0, -0.5, 0.0, 1e-30, 0.5, 1.0, 7.3, 100.0, 1e6):
        exact, found = (metrics.tail(one, "regret", above=above) for one in (data, stored))
        rest = {name: found[name] for name in ("lower", "probability", "upper", "count", "stderr")}
        assert all(v.dims == ("policy", "time") and v.attrs == exact[name].attrs for name, v in rest.items())
        np.testing.assert_array_equal(np.isnan(exact["probability"]), np.isnan(found["probability"]))
        some = exact["count"] > 0
        assert (((found["lower"] <= exact["probability"]) & (exact["probability"] <= found["upper"])) | ~some).all()
        near = (np.abs(runs - above) <= 2**-6 * abs(above)).sum("seed") / exact["count"]
        assert (((found["upper"] - found["lower"]) <= near + 1e-12) | ~some).all()
        assert (np.abs(found["probability"] - (found["lower"] + found["upper"]) / 2).fillna(0) < 1e-15).all()
        assert found["count"].equals(exact["count"])
    assert metrics.tail(stored, "regret", above=0.0)["upper"].equals(metrics.tail(data, "regret", above=0.0)["probability"])
    assert (metrics.tail(stored, "regret", above=float(runs.isel(time=0).max()))["upper"].isel(time=0) == 0).all()


def test_paired_differences_by_hand():
    paired = metrics.paired(small(), "regret", "A")
    assert paired["policy"].values.tolist() == ["B"]
    last = paired.sel(policy="B", time=40)
    # Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3).
    assert last["mean"] == pytest.approx(2.0)
    assert last["stderr"] == pytest.approx(1 / np.sqrt(3))
    assert last["z"] == pytest.approx(2 * np.sqrt(3))
    assert paired["mean"].attrs["long_name"] == "cumulative regret minus that of A"
    assert paired["z"].attrs["units"] == "standard errors"
    swapped = metrics.paired(small()["regret"], None, "B").sel(policy="A", time=40)
    assert swapped["mean"] == pytest.approx(-2.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.paired(small(), "regret", "a"), r"baseline must be one of 'A', 'B', got 'a'"),
        (lambda: metrics.mean(small(), "regrets"), r"metric must be one of .* got 'regrets'; did you mean 'regret'\?"),
        (lambda: metrics.mean(small()), "metric must be one of 'regret', 'reward', got None"),
        (lambda: metrics.mean(small()["regret"], "regret"), "metric must be None when data is a single variable, got 'regret'"),
        (lambda: metrics.mean({}, "regret"), r"data must be an xarray\.Dataset or DataArray, got dict"),
        (lambda: metrics.mean(small()["regret"].mean("seed")), "data must have the dimension 'seed'"),
        (lambda: metrics.final(with_vector(small()), time=15), r"time must be a recorded time \(10, 20, 30, 40\), got 15"),
        (lambda: metrics.final(with_vector(small()), ["cost"]), "metrics must be one of 'regret', 'reward', 'deployed', got 'cost'"),
        (lambda: metrics.window_mean(with_vector(small()), "deployed", 10), "metric must be of kind 'total' or 'average', got 'deployed' of kind 'gauge'"),
        (lambda: metrics.curve_slope(small(), "regret", 35), r"start must leave at least two recorded times \(10, 20, 30, 40\), got 35"),
        (lambda: metrics.curve_slope(-small()["regret"], None, 10), "metric must have a positive mean at every time from round 10 on, but 'regret' does not"),
        (lambda: metrics.curve_slope(small().isel(seed=[0]), "regret", 10), "data must have at least two seeds"),
        (lambda: metrics.table(with_vector(small()), "deployed"), "metrics must be a single number per run, got 'deployed' with one per model"),
        (lambda: metrics.quantiles(small(), "regret", (5, 95)), r"q must be in \[0, 1\], got 5"),
        (lambda: metrics.quantile_intervals(small(), "regret", confidence=1), r"confidence must be in \(0, 1\), got 1"),
        (lambda: metrics.tail(small(), "regret", above=np.nan), "above must be finite, got nan"),
        *((lambda w=w: metrics.window_mean(small(), "regret", w), rf"window must be a multiple of the record interval \(10\), at most 40 .* got {w}") for w in (15, 50, 5)),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# At one time.


def test_final_is_labelled():
    data = with_vector(small())
    table = metrics.final(data)
    assert list(table.data_vars) == ["regret", "reward"]
    assert table["regret"].dims == ("policy", "statistic")
    assert table["regret"].sel(policy="B", statistic="mean") == pytest.approx(5.0)
    assert table["regret"].attrs["units"] == "reward"
    assert metrics.final(data, "regret", time=20)["regret"].sel(policy="B", statistic="mean") == pytest.approx(2.5)
    assert metrics.final(data, ["deployed"])["deployed"].dims == ("policy", "model", "statistic")


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (36.04, 1.58, "36.0 (1.6)"),
        (1234567.0, np.nan, "1.235e+06"),
        (2.5e6, 1.2e4, "2,500,000 (12,000)"),
        (9.876, 0.0996, "9.88 (0.10)"),
        (-0.03, 1.2, "0.0 (1.2)"),
        (0.5, 0.0, "0.5 (0)"),
        (0.0, 0.0, "0"),
        (np.nan, np.nan, "-"),
        (3.3e-7, 1.2e-9, "3.300e-07 (1.2e-09)"),
        (0.0, 1.2e-9, "0.0e+00 (1.2e-09)"),
        (5.0, 25.0, "5 (25)"),
        (0.6879885101318360, 7.7e-18, "0.688 (0)"),
    ],
)
def test_numbers_have_two_digits_of_their_error(mean, error, text):
    assert metrics.rounded(mean, error) == text


def test_table_without_settings():
    assert metrics.table(with_vector(small())).splitlines() == [
        "policy     regret            reward",
        "           reward  reward per round",
        "-----------------------------------",
        "A       3.0 (1.5)             1 (0)",
        "B       5.0 (2.1)             1 (0)",
        "-----------------------------------",
        "mean (standard error) of 3 seeds after 40 rounds",
    ]


def awkward():
    """The small result with names that LaTeX and Markdown would read otherwise, a rounded zero and a policy over its budget."""
    data = small().assign_coords(policy=["A_b & 50%", "B|c"])
    data["info.x_y"] = data["reward"].assign_attrs(units="$ per query", limit=0.5, violation="over budget")
    data["reward"] = data["reward"] * xr.DataArray([1.0, 1e-8], dims="policy")
    data["reward"].attrs = small()["reward"].attrs
    return data


def test_table_in_latex():
    assert metrics.table(awkward(), format="latex").splitlines() == [
        r"% needs \usepackage{booktabs}",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"policy & regret & reward & info.x y \\",
        r" & (reward) & (reward per round) & (\$ per query) \\",
        r"\midrule",
        r"A\_b \& 50\% & $3.0 \pm 1.5$ & $1 \pm 0$ & $1 \pm 0$ \\",
        r"B\textbar{}c & $5.0 \pm 2.1$ & $0$ & $1 \pm 0$ \\",
        r"\bottomrule",
        r"\multicolumn{4}{l}{\footnotesize mean $\pm$ standard error of 3 seeds after 40 rounds} \\",
        r"\multicolumn{4}{l}{\footnotesize A\_b \& 50\%: over budget, info.x\_y 1 (0), at most 0.5} \\",
        r"\multicolumn{4}{l}{\footnotesize B\textbar{}c: over budget, info.x\_y 1 (0), at most 0.5} \\",
        r"\end{tabular}",
    ]


def test_large_and_small_numbers_in_latex():
    mathtext = pytest.importorskip("matplotlib.mathtext")
    data = small()
    data["reward"] = (data["regret"] * 1e-9).assign_attrs(data["reward"].attrs)
    row = metrics.table(data, ["reward"], format="latex").splitlines()[6]
    assert row == r"A & $3.0 \times 10^{-9} \pm 1.5 \times 10^{-9}$ \\"
    mathtext.MathTextParser("path").parse(row.split(" & ")[1].removesuffix(r" \\"))
    data["regret"] *= 1e6
    assert metrics.table(data, ["regret"], format="latex").splitlines()[6] == r"A & $3{,}000{,}000 \pm 1{,}500{,}000$ \\"


def test_table_in_markdown():
    table, *notes = metrics.table(awkward(), ["regret", "reward"], format="markdown").split("\n\n")
    head = ["| policy | regret (reward) | reward (reward per round) |", "| :-- | --: | --: |"]
    assert table.splitlines() == [*head, "| A_b & 50% | 3.0 ± 1.5 | 1 ± 0 |", r"| B\|c | 5.0 ± 2.1 | 0 |"]
    over = [f"{name}: over budget, info.x_y 1 (0), at most 0.5" for name in ("A_b & 50%", "B|c")]
    assert notes == ["mean ± standard error of 3 seeds after 40 rounds", *over]


def test_table_as_a_data_frame():
    frame = metrics.table(small(), format="frame")
    assert frame.columns.tolist() == [(m, s) for m in ("regret", "reward") for s in ("mean", "stderr")]
    assert frame.loc["A", ("regret", "mean")] == 3.0
    assert frame.loc["B", ("regret", "stderr")] == pytest.approx(metrics.stderr(small(), "regret").sel(policy="B", time=40))
    assert frame.attrs["notes"] == ["mean (standard error) of 3 seeds after 40 rounds"]
    values = np.random.default_rng(0).normal(size=(2, 3, 5, 4))
    values[1] = values[1, :1]  # B does not have the axis.
    frame = metrics.table(result(values, axes={"gamma": [0.1, 1.0, 10.0]}), format="frame", max_rows=1)
    assert frame.index.names == ["policy", "gamma"]
    assert frame.index.tolist() == [("A", 0.1), ("A", 1.0), ("A", 10.0), ("B", "any")]


def test_columns_that_do_not_fit_stand_below_the_others():
    first, second = metrics.table(small(), width=30).split("\n\n")
    assert first.splitlines()[3:5] == ["A       3.0 (1.5)", "B       5.0 (2.1)"]
    assert second.splitlines()[1:4] == ["        reward per round", "-" * 24, "A                  1 (0)"]
    assert second.splitlines()[-2:] == ["mean (standard error) of 3", "seeds after 40 rounds"]
    assert metrics.table(small(), width=36).splitlines()[0] == "policy     regret            reward"
    assert metrics.table(small(), width=5).count("policy") == 2  # No narrower than one column.


def with_spend(values, axes=None):
    """Spend of two policies over the budget, three seeds."""
    values = np.asarray(values, np.float64)[..., None] * np.ones(len(TIMES))
    data = result(np.ones(values.shape), axes=axes, spend=values)
    data["spend"].attrs |= {"limit": 1.0, "violation": "over budget"}
    return data


def test_policies_above_a_limit_are_named():
    data = with_spend([[2.9, 3.0, 3.1], [0.9, 1.0, 1.2]])  # B: 1.03, not three standard errors above 1.
    (found,) = metrics.violations(data)
    assert (found.policy, found.metric, found.limit, found.words, found.where) == ("A", "spend", 1.0, "over budget", {})
    assert found.value == pytest.approx(3.0)
    assert str(found) == "A: over budget, spend 3.000 (0.058), at most 1"
    assert metrics.table(data).splitlines()[-1] == str(found)
    assert metrics.violations(with_spend([[0.9, 1.0, 1.0], [1.0, 1.0, 1.0]])) == []


def test_settings_above_a_limit_are_counted():
    values = [[[2.9, 3.0, 3.1], [1.9, 2.0, 2.1]], [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]]
    data = with_spend(values, axes={"gamma": [0.1, 0.2]})
    assert [(b.policy, b.where) for b in metrics.violations(data)] == [("A", {"gamma": 0.1}), ("A", {"gamma": 0.2})]
    line = "A, gamma 0.1: over budget, spend 3.000 (0.058), at most 1 (the worst of 2)"
    assert metrics.table(data).splitlines()[-1] == line
    assert metrics.table(data, "regret").splitlines()[-1] == line  # Whatever is asked for.


def test_table_with_settings_and_a_policy_without_the_axis():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 3, 5, 4))
    values[1] = values[1, :1]  # B does not have the axis.
    data = result(values, axes={"gamma": [0.1, 1.0, 10.0]})
    rows = [line.split()[:2] for line in metrics.table(data).splitlines()[3:-2]]
    assert rows == [["A", "0.1"], ["A", "1"], ["A", "10"], ["B", "any"]]
    short = metrics.table(data, max_rows=3).splitlines()
    assert short[-1] == "1 more rows are not shown; select settings, or raise max_rows"


def test_settings_may_be_texts_of_pandas():
    parts = [small(), small()]
    parts[1]["regret"] *= 2.0
    data = xr.concat(parts, pandas.Index(["1 USD", "1 cent"], name="unit")).transpose("policy", "unit", "seed", "time")
    rows = [line.split()[1:3] for line in metrics.table(data, "regret").splitlines()[3:7]]
    assert rows == 2 * [["1", "USD"], ["1", "cent"]]


def test_a_number_that_only_some_runs_have_shows_its_median_and_their_share():
    data = small()
    data["first"] = data["regret"].where(data["regret"].values[:, :, -1:] < 3)
    data["first"].attrs = {"long_name": "first", "units": "rounds", "kind": "gauge"}
    rows = [line.split("  ")[-1].strip() for line in metrics.table(data, ["regret", "first"]).splitlines()[3:5]]
    assert rows == ["1.5 in 67 %", "2 in 33 %"]
    data["first"] = data["first"].fillna(1.0)
    assert metrics.table(data, ["first"]).splitlines()[3].split() == ["A", "1.33", "(0.33)"]


def test_summary_with_settings():
    values = np.arange(2 * 2 * 3 * 4.0).reshape(2, 2, 1, 3, 4)
    answer = metrics.summary(result(values, axes={"gamma": [0.1, 0.2], "pool": ["small"]}))
    json.dumps(answer, allow_nan=False)
    assert [entry["coordinates"] for entry in answer["B"]] == [{"gamma": g, "pool": "small"} for g in (0.1, 0.2)]
    assert answer["B"][1]["regret"]["mean"] == pytest.approx(values[1, 1, 0, :, -1].mean())


def test_counters_of_forbidden_events_are_no_metrics_and_a_policy_and_time_may_be_selected():
    data = small().sel(policy="B").isel(time=-1)
    assert "5.0 (2.1)" in metrics.table(data) and metrics.summary(data)["B"]["regret"]["mean"] == 5.0
    data = small()
    data["regret"][0] *= 1000
    lines = metrics.table(data, "regret").splitlines()[3:5]
    assert lines[0].index("(") == lines[1].index("(")
    data["overfull"] = (("policy", "seed"), np.zeros((2, 3)), {"long_name": "overfull", "units": "rounds", "kind": "total"})
    assert metrics.metric_names(data) == ["regret", "reward"]


# Over time.


def test_window_mean_of_a_total_and_of_an_average_agree():
    rng = np.random.default_rng(1)
    flow = rng.normal(size=(2, 5, 40))
    total = np.cumsum(flow, -1)
    at = np.array(TIMES) - 1
    data = result(total[..., at], reward=total[..., at] / TIMES)
    expected = np.stack([flow[..., t - 20 : t].mean(-1) for t in (20, 30, 40)], -1)
    for metric in ("regret", "reward"):
        moving = metrics.window_mean(data, metric, 20)
        assert moving["time"].values.tolist() == [20, 30, 40]
        np.testing.assert_allclose(moving, expected)
    assert metrics.window_mean(data, "regret", 20).attrs["units"] == "reward per round"
    assert metrics.window_mean(data, "reward", 20).attrs["units"] == "reward per round"
    assert metrics.window_mean(data, "reward", 20).attrs["long_name"] == "mean reward, last 20 rounds"
    np.testing.assert_allclose(metrics.cumulative(data, "reward"), total[..., at])
    np.testing.assert_allclose(metrics.cumulative(data, "regret"), total[..., at])
    assert metrics.cumulative(data, "reward").attrs == {"long_name": "cumulative reward", "units": "reward", "kind": "total"}


def test_window_mean_leaves_out_a_short_last_interval():
    data = result(np.ones((1, 1, 4)), ["A"], times=(10, 20, 30, 35))
    assert metrics.window_mean(data, "regret", 10)["time"].values.tolist() == [10, 20, 30]


# Slopes.


def test_slope_of_an_exact_power_law():
    x = np.array([100, 1000, 4000])
    for y, yerr in ((3 * x**0.6, np.zeros(3)), (np.tile(3 * x**0.6, (5, 1)).T, None)):
        found = metrics.slope(x, y, yerr)
        assert found.slope == pytest.approx(0.6)
        assert np.exp(found.intercept) == pytest.approx(3)
        assert found.low == pytest.approx(0.6)
        assert found.stderr == pytest.approx(0, abs=1e-12)


def test_slope_of_two_means_by_hand():
    # log10 slope (log 4 - log 2) / (log 100 - log 10), each mean with a relative error of 10 %.
    found = metrics.slope([10, 100], [2, 4], [0.2, 0.4])
    assert found.slope == pytest.approx(np.log10(2))
    assert found.stderr == pytest.approx(np.sqrt(2) * 0.1 / np.log(10))
    assert found.high - found.slope == pytest.approx(1.959964 * found.stderr)


def test_slope_of_one_axis_by_seeds_equals_the_labelled_one():
    rng = np.random.default_rng(2)
    y = rng.gamma(2.0, size=(4, 30)) * np.array([1, 2, 3, 4.0])[:, None]
    labelled = xr.DataArray(y.T, dims=("seed", "horizon"))
    assert metrics.slope(TIMES, labelled) == metrics.slope(TIMES, y)
    spoilt = np.concatenate([y, np.full((4, 1), np.nan)], axis=1)
    assert metrics.slope(TIMES, spoilt) == metrics.slope(TIMES, y)


def shared_noise(rng, x, seeds):
    """Exponential noise with a part shared by the points of a seed."""
    return x[:, None] ** 0.5 * rng.exponential(size=(1, seeds)) * rng.exponential(size=(len(x), seeds))


def random_walk(rng, x, seeds):
    """A curve: increments of the mean's own size, so that neighbouring points are strongly correlated."""
    return np.cumsum(np.diff(np.append(0, x**0.5))[:, None] * rng.exponential(size=(len(x), seeds)), axis=0)


@pytest.mark.parametrize("distribution", [shared_noise, random_walk])
def test_the_interval_of_a_slope_has_its_coverage(distribution):
    rng, x, number = np.random.default_rng(3), np.geomspace(100, 10_000, 6), 1500
    found = [metrics.slope(x, distribution(rng, x, 40)) for _ in range(number)]
    covered = np.mean([f.low <= 0.5 <= f.high for f in found])
    assert 0.93 < covered < 0.965  # Nominally 0.95, with a standard error of 0.006.
    spread = np.std([f.slope for f in found])
    assert np.sqrt(np.mean([f.stderr**2 for f in found])) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1, -79], [1, 1]), "y must have positive means for a log-log slope, got -79 at x = 2"),
        (([1, 2], [[1, 1], [3, -1]]), "y must have positive means without any one seed .* got -1 at x = 2"),
        (([1, 2], [1, 2]), "yerr must be given"),
        (([1, 2], [[1, 1], [3, 1]], [1, 1]), "yerr must be None"),
        (([1, 2], [1, 2, 3], [1, 1, 1]), r"y must have shape \(2,\) or \(2, seeds\)"),
        (([1, 1], [1, 2], [1, 1]), "x must be a list of at least two different numbers"),
        (([0, 1], [1, 2], [1, 1]), "x must be above 0, got 0"),
        (([1, 2], [[1], [3]]), "y must have at least two seeds .* got 1"),
        (([1, 2], [1, 2], [1, 1], 95), r"confidence must be in \(0, 1\], got 95"),
        (([1, 2], [1, 2], [1, 1], 1), r"confidence must be in \(0, 1\), got 1"),
    ],
)
def test_slope_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        metrics.slope(*arguments)


def test_curve_slope_has_its_coverage_and_leaves_out_what_has_none():
    rng, times = np.random.default_rng(5), np.arange(100, 2001, 100)
    growth = np.diff(np.append(0, times**0.6))
    covered = []
    for _ in range(300):
        curve = np.cumsum(growth * rng.exponential(size=(2, 30, len(times))), -1)
        curve[1] -= curve[1].mean(0) + 1  # Regret below zero, as an oracle's can be.
        found = metrics.curve_slope(result(curve, times=times), "regret", start=200)
        covered.append(bool(found["low"][0] <= 0.6 <= found["high"][0]))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.05)
    assert list(found.data_vars) == ["slope", "low", "high", "stderr", "intercept"]
    assert found["slope"].dims == ("policy",)
    assert found.sel(policy="B").to_dataarray().isnull().all()
    assert found["slope"].attrs["long_name"] == "slope (log-log) of cumulative regret from round 200 on"


def test_curve_slope_keeps_settings_and_uses_the_times_from_start():
    times = np.array([10, 100, 1000, 10_000])
    distribution = np.array([[0.5, 0.7]])[..., None, None]
    values = np.where(times < 100, 123.0, times**distribution) * np.linspace(0.5, 1.5, 5)[:, None]
    found = metrics.curve_slope(result(values, ["A"], {"gamma": [1, 2]}, times), "regret", 100)
    np.testing.assert_allclose(found["slope"], [[0.5, 0.7]])
    np.testing.assert_allclose(found["stderr"], 0, atol=1e-12)
    assert found["gamma"].values.tolist() == [1, 2]


def test_ratio_of_means_has_the_delta_methods_error():
    """One value per run whose mean is the ratio of means, and whose standard error that of many repeated ratios."""
    rng = np.random.default_rng(0)

    def result(repeats):
        top = rng.normal(2.0, 0.5, (repeats, 1, 400, 1))
        bottom = 0.5 + 0.2 * (top - 2.0) + rng.normal(0, 0.1, top.shape)
        return top, bottom

    def dataset(top, bottom):
        dims = ("policy", "seed", "time")
        coords = {"policy": ["p"], "seed": np.arange(400), "time": [10]}
        values = {"top": (dims, top), "bottom": (dims, bottom), "valid": (dims[:2], np.ones((1, 400), bool))}
        return xr.Dataset(values, coords)

    top, bottom = result(500)
    one = metrics.ratio_of_means(dataset(top[0], bottom[0]), "top", "bottom")
    assert float(metrics.mean(one).squeeze()) == pytest.approx(top[0].mean() / bottom[0].mean(), rel=1e-12)
    spread = (top.mean((1, 2, 3)) / bottom.mean((1, 2, 3))).std(ddof=1)
    assert float(metrics.stderr(one).squeeze()) == pytest.approx(spread, rel=0.15)
    zero = metrics.ratio_of_means(dataset(top[0], 0 * bottom[0]), "top", "bottom")
    assert not np.isfinite(zero.values).any()
