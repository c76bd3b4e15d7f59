"""Figures: their lines, points and texts, and their files."""

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from jaxroute import metrics, plot  # noqa: E402
from jaxroute.plot import style  # noqa: E402
from jaxroute.plot.axes import marker_places, scale_of  # noqa: E402
from jaxroute.testing.figures import faults  # noqa: E402

POLICIES = ("StageRoute", "Greedy", "Oracle")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def fake(axes=None, policies=POLICIES, seeds=50, points=20, models=0):
    """Random walks around `t**0.6`, in each policy and setting another multiple."""
    rng, times, axes = np.random.default_rng(0), np.arange(1, points + 1) * 500, axes or {}
    shape = (len(policies), *map(len, axes.values()), seeds, points)
    size = 1 + np.arange(np.prod(shape[:-2])).reshape(shape[:-2])[..., None, None]
    regret = size * times**0.6 + np.cumsum(rng.normal(size=shape), -1) * 5
    dims = ("policy", *axes, "seed", "time")
    total = {"long_name": "cumulative regret", "units": "reward", "kind": "total"}
    average = {"long_name": "mean reward", "units": "reward per round", "kind": "average"}
    values = {"regret": (dims, regret, total), "reward": (dims, 1 - regret / times, average)}
    values["valid"] = dims[:-1], np.ones(shape[:-1], bool), {"kind": "flag"}
    data = xr.Dataset(values, {"policy": list(policies), **axes, "seed": np.arange(seeds), "time": times})
    if models:
        live = (np.arange(models) == (np.arange(points) * models // points)[:, None]).astype(np.float64)
        live = np.broadcast_to(live, (*shape, models)).copy()
        live[..., : seeds // 2, 0, :] = 0.0
        data["deployed"] = ((*dims, "model"), live, {"long_name": "model is live", "units": "", "kind": "gauge"})
        data["model"] = [f"model-{chr(97 + i)}" for i in range(models)]
    return data


def labels(texts):
    return [text.get_text() for text in texts]


def written(ax, tmp_path):
    """Saves the figure and returns all of its texts."""
    path = plot.save(ax, tmp_path / "figures" / "figure.png")
    pixels = plt.imread(path)[..., :3]
    assert pixels.shape[0] > 200
    assert pixels.std() > 0.05
    figure = ax.figure
    parts = [a.get_xlabel() + "\n" + a.get_ylabel() + "\n" + a.get_title(loc="left") for a in figure.axes]
    legends = [a.get_legend() for a in figure.axes if a.get_legend()]
    parts += [t.get_text() for legend in legends for t in (*legend.get_texts(), legend.get_title())]
    return "\n".join([*parts, *(t.get_text() for a in figure.axes for t in a.texts)])


# Curves.


def test_curves(tmp_path):
    data = fake()
    ax = plot.curves(data, reference={"bound": (data["time"], 3 * data["time"] ** 0.5)})
    text = written(ax, tmp_path)
    for words in ("cumulative regret (reward)", "mean ± 2 s.e. of 50 seeds", "round", *POLICIES, "bound"):
        assert words in text
    np.testing.assert_allclose(ax.lines[1].get_ydata(), metrics.mean(data, "regret").sel(policy="Greedy"))
    band = ax.collections[0].get_paths()[0].vertices
    last = data["regret"].sel(policy="StageRoute").isel(time=-1)
    assert band[:, 1].max() == pytest.approx(float(last.mean() + 2 * last.std(ddof=1) / np.sqrt(50)))


def test_policies_differ_in_colour_dash_and_marker_and_keep_their_style():
    many = fake(policies=tuple("ABCDEFGHIJ"))
    lines = plot.curves(many).lines
    styles = [(line.get_color(), str(line._unscaled_dash_pattern), line.get_marker()) for line in lines]
    assert len(set(styles)) == 10
    assert len({s[1:] for s in styles}) == 10
    assert len({s[0] for s in styles}) == 10, "there are twelve colours of rivals"
    chosen = plot.curves(many, policies=["H", "C"]).lines
    assert [(line.get_color(), line.get_marker()) for line in chosen] == [(styles[i][0], styles[i][2]) for i in (7, 2)]


def test_invalid_runs_and_missing_metrics_are_left_out(tmp_path):
    data = fake()
    data["valid"][0, :2] = False
    data["regret"][2] = np.nan
    ax = plot.curves(data)
    assert [line.get_label() for line in ax.lines] == ["StageRoute", "Greedy"]
    assert "48 to 50 seeds" in written(ax, tmp_path)
    expected = data["regret"][0, 2:].mean("seed")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), expected)


def test_curves_with_quantiles_logarithms_and_a_title(tmp_path):
    ax = plot.curves(fake(), "reward", band="quantile", log=True, title="Figure 2")
    text = written(ax, tmp_path)
    assert "mean and 5–95 % range of 50 seeds" in text
    assert "mean reward (reward per round)" in text
    assert "Figure 2" in text
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert plot.curves(fake(), log="x").get_yscale() == "linear"
    curve = fake()["reward"].sel(policy="Greedy")
    ax = plot.curves(fake(policies=POLICIES), "reward", band="deviation", policies=["Greedy"])
    assert "mean ± 1 s.d. of 50 seeds" in ax.get_xlabel()
    high = ax.collections[0].get_paths()[0].vertices[:, 1].max()
    assert np.isclose(high, (curve.mean("seed") + curve.std("seed", ddof=1)).max(), rtol=1e-5)
    bare = plot.curves(fake(), band=None)
    assert not bare.collections
    assert "mean of 50 seeds" in bare.get_xlabel()


def test_curves_with_settings(tmp_path):
    assert "1 seed" in written(plot.curves(fake().sel(policy="Greedy").isel(seed=[0])), tmp_path)
    assert "1 seed" in plot.curves(fake().sel(seed=3)).get_xlabel()
    data = fake({"gamma": [0.1, 0.2], "pool": ["small", "large"]})
    data["regret"][2] = data["regret"][2, 0, 0].values  # The oracle has neither axis.
    ax = plot.curves(data)
    labels = [line.get_label() for line in ax.lines]
    assert labels[:2] == ["StageRoute, gamma=0.1, pool=small", "StageRoute, gamma=0.1, pool=large"]
    assert labels[-1] == "Oracle"
    assert len(labels) == 9
    assert len({str(line.get_color()) for line in ax.lines}) == 9
    written(ax, tmp_path)


def test_systems_of_the_problems_are_the_strongest_lines():
    many = fake(policies=("Greedy", "StageRoute", "Random", "Oracle", "StageRoute, b = 0.1", "mine"))
    greedy, subject, weak, oracle, variant, mine = plot.curves(many).lines
    widths = [line.get_linewidth() for line in (subject, variant, greedy, weak)]
    assert widths == sorted(widths, reverse=True) and len(set(widths)) == 4
    heights = [line.get_zorder() for line in (oracle, subject, variant, greedy, weak)]
    assert heights == sorted(heights, reverse=True) and len(set(heights)) == 5
    assert (subject.get_color(), subject.get_linestyle()) == ("#D55E00", "-")
    assert (oracle.get_color(), oracle.get_linestyle()) == ("#000000", "--")
    assert greedy.get_color() != mine.get_color()
    assert greedy.get_color() == plot.curves(fake(policies=("other", "Greedy"))).lines[1].get_color(), "in every figure"


def test_a_line_below_another_is_visible():
    data = fake(policies=("StageRoute", "RandomTie", "Greedy", "other"))
    data["regret"][1] = data["regret"][0] * 1.0001
    subject, below, apart, _ = plot.curves(data).lines
    assert below.get_zorder() > subject.get_zorder() > apart.get_zorder()
    assert below.get_linewidth() < subject.get_linewidth()
    assert below.get_linestyle() == "--" and subject.get_linestyle() == "-"
    assert not set(below.get_markevery()) & set(subject.get_markevery())
    data["regret"][1, :, 10:] *= 1.1
    assert plot.curves(data).lines[1].get_zorder() == apart.get_zorder(), "it is partly visible"


def test_points_below_others_are_larger():
    series = {"a": [(1.0, 2.0), (2.0, 3.0)], "b": [(1.0, 2.0), (2.0, 3.0)], "c": [(1.0, 2.0), (2.0, 3.5)]}
    ax = plot.points(series, x="cost", y="score")
    assert [c[0].get_markersize() for c in ax.containers] == [8, 5, 5]
    data = fake({"gamma": [0.5, 1.0]}, policies=("COSMOS", "frugal"))
    data["regret"][1] = data["regret"][0]
    subject, other = (c[0] for c in plot.sweep(data).containers)
    assert subject.get_zorder() > other.get_zorder()
    assert other.get_markersize() > subject.get_markersize()


def test_few_settings_keep_the_colour_of_their_policy():
    def hue(colour):
        return matplotlib.colors.rgb_to_hsv(matplotlib.colors.to_rgb(colour))[0]

    lines = plot.curves(fake({"K": [1, 2]}, policies=("ACQB", "CQB-eps"))).lines
    for place, name in enumerate(("ACQB", "CQB-eps")):
        own = hue(style.LineStyles().style(name)["color"])
        assert [hue(line.get_color()) for line in lines[2 * place : 2 * place + 2]] == pytest.approx([own, own])
    assert len({line.get_color() for line in lines}) == 4


def test_roles_follow_names():
    roles = {"ACQB": "subject", "ACQB-CL": "variant", "MESS+ with a margin": "variant", "COSMOSES": "rival"}
    roles |= {"RandomTie": "rival", "RandomSet": "weak", "always gpt": "weak", "CUCB, union": "rival"}
    roles |= {"OracleBlind": "oracle", "best single": "oracle"}
    assert {name: style.role_of(name) for name in roles} == roles


def test_panels_share_looks_and_one_legend(tmp_path):
    figure, (left, right, last) = plot.panels(3)
    plot.curves(fake(policies=("ACQB", "Q-UCB", "CQB-eps")), ax=left, title="first", reference={"bound": 1000.0})
    plot.curves(fake(policies=("CQB-eps", "Random", "ACQB")), ax=right, reference={"bound": 2000.0})
    plot.sweep(fake({"gamma": [1, 2]}, policies=("new", "ACQB")), ax=last)
    colours = {}
    for ax in (left, right, last):
        assert ax.get_legend() is None
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            colours.setdefault(label, set()).add(str(getattr(handle, "lines", [handle])[0].get_color()))
    assert all(len(found) == 1 for found in colours.values()), colours
    (legend,) = figure.legends
    assert labels(legend.get_texts()) == ["ACQB", "Q-UCB", "CQB-eps", "new", "Random", "bound"]
    assert left.get_title(loc="left") == "first"
    plot.save(figure, tmp_path / "a.png")
    assert legend.get_window_extent().y1 < min(a.get_tightbbox().y0 for a in figure.axes), "below the panels"
    assert all(ax.get_position().height > 0.5 for ax in (left, right, last))


def test_levels_and_own_lines_are_named_in_the_legend_of_the_panels():
    figure, (ax,) = plot.panels(1)
    ax.plot([1, 2], [1, 2], label="Greedy", **plot.line_style(ax, "Greedy"))
    plot.share_legend(figure)
    plot.share_legend(figure)
    assert [labels(legend.get_texts()) for legend in figure.legends] == [["Greedy"]]
    figure, (left, right) = plot.panels(2)
    for ax in (left, right):
        plot.curves(fake(), ax=ax)
        plot.level(ax, "target", 900.0)
    plot.level(right, "arrival", 4000.0, along="x")
    assert labels(figure.legends[0].get_texts()) == [*POLICIES, "target", "arrival"]
    assert left.lines[-1].get_color() == right.lines[-2].get_color()
    with pytest.raises(ValueError, match="along must be one of 'x', 'y', got 'z'"):
        plot.level(left, "target", 1.0, along="z")  # type: ignore[arg-type]


def test_long_titles_and_labels_are_broken_into_lines():
    data = fake()
    data["regret"].attrs["long_name"] = "regret against the best routing that is feasible at any time"
    ax = plot.curves(data, ax=plot.panels(2)[1][0], title="every model that was ever seen, with as many words as this has")
    assert max(map(len, ax.get_title(loc="left").splitlines())) <= 50 < len(ax.get_title(loc="left"))
    assert max(map(len, ax.get_ylabel().splitlines())) <= 34


def test_a_band_ends_at_zero_if_no_run_is_below():
    data = fake()
    data["regret"][:] = 0.0
    data["regret"][..., 0, :] = 50.0
    assert _lowest(plot.curves(data, band="deviation")) == 0.0
    data["regret"][..., 1, :] = -1.0
    assert _lowest(plot.curves(data, band="deviation")) < -1.0


def _lowest(ax):
    return min(path.vertices[:, 1].min() for band in ax.collections for path in band.get_paths())


def test_logarithmic_axes():
    ax = plot.curves(fake())
    plot.log_axis(ax, "y", linear=10.0)
    assert ax.get_yscale() == "symlog"
    plot.log_axis(ax, "x")
    assert ax.get_xscale() == "log"
    times = np.arange(1, 2001)
    gaps = np.diff(np.log(times[marker_places(times, True, 0)]))
    assert gaps.max() < 1.5 * np.median(gaps)
    assert marker_places(times, False, 1) != marker_places(times, False, 0)
    assert marker_places(times[:3], True, 2) == [0, 1, 2]


def test_difference(tmp_path):
    data = fake()
    ax = plot.difference(data, minus="Oracle", log=True)
    text = written(ax, tmp_path)
    assert "cumulative regret\nminus that of Oracle (reward)" in text
    assert "mean of paired differences ± 2 s.e. of 50 seeds" in text
    zero, first, second = ax.lines
    assert (zero.get_label(), list(zero.get_ydata())) == ("Oracle", [0.0, 0.0])
    paired = metrics.paired(data, "regret", "Oracle")
    np.testing.assert_allclose(first.get_ydata(), paired["mean"].sel(policy="StageRoute"))
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(float((paired["mean"] + 2 * paired["stderr"]).sel(policy="StageRoute").max()))
    assert second.get_label() == "Greedy"
    lines = plot.difference(data, minus="Greedy", policies="Oracle").lines
    assert [line.get_label() for line in lines] == ["Greedy", "Oracle"]


@pytest.mark.parametrize("policies", [None, ["Greedy"]])
def test_curves_of_paired_differences_are_those_of_difference(policies, tmp_path):
    data = fake()
    one = plot.difference(data, "regret", minus="Oracle", policies=policies)
    for metric in ("mean", "regret"):
        other = plot.curves(metrics.paired(data, "regret", "Oracle"), metric, policies=policies)
        assert (other.get_xlabel(), other.get_ylabel()) == (one.get_xlabel(), one.get_ylabel())
        assert [line.get_label() for line in other.lines] == [line.get_label() for line in one.lines]
        for mine, theirs in zip(other.lines, one.lines, strict=True):
            np.testing.assert_array_equal(mine.get_ydata(), theirs.get_ydata())


# At the horizon.


def test_sweep_without_settings(tmp_path):
    data = fake()
    ax = plot.sweep(data)
    text = written(ax, tmp_path)
    assert "cumulative regret (reward)\nmean ± 2 s.e. of 50 seeds at round 10,000" in text
    values = metrics.final(data)["regret"].sel(policy="Greedy")
    assert metrics.rounded(*values.values) in text
    assert labels(ax.get_yticklabels()) == list(POLICIES)
    places = [float(c.lines[0].get_xdata()[0]) for c in ax.containers]
    assert places == pytest.approx(metrics.mean(data, "regret").isel(time=-1).values)


def test_sweep_on_a_logarithmic_axis():
    data = fake()
    data["regret"][2] /= 1000
    ax = plot.sweep(data, log=True)
    assert ax.get_xscale() == "log"
    assert 2 <= sum(ax.get_xlim()[0] <= v <= ax.get_xlim()[1] for v in ax.get_xticks()) <= 6
    assert plot.sweep(fake({"gamma": [1, 2]}), log=True).get_yscale() == "log"


def test_many_rows_make_panels_higher():
    figure, (left, right) = plot.panels(2)
    before = figure.get_figheight()
    plot.sweep(fake(), ax=left)
    assert figure.get_figheight() == before
    plot.sweep(fake(policies=[f"policy {i}" for i in range(20)], seeds=4, points=2), ax=right)
    assert figure.get_figheight() == pytest.approx(5.0)
    assert faults(figure) == []


def test_sweep_against_a_setting(tmp_path):
    data = fake({"gamma": [5.0, 0.05, 0.5]})
    ax = plot.sweep(data, "regret", x="gamma")
    text = written(ax, tmp_path)
    assert "gamma\nmean ± 2 s.e. of 50 seeds at round 10,000" in text
    assert ax.get_xscale() == "log"
    line = ax.containers[0].lines[0]
    assert line.get_xdata().tolist() == [0.05, 0.5, 5.0]
    assert line.get_ydata() == pytest.approx(metrics.mean(data, "regret").isel(time=-1, policy=0, gamma=[1, 2, 0]).values)
    assert labels(ax.get_xticklabels()) == ["5", "0.05", "0.5"]
    assert plot.sweep(fake({"gamma": range(9)})).get_xscale() == "linear"
    names = plot.sweep(fake({"pool": ["small", "large"]}), "reward")
    assert names.containers[0].lines[0].get_linestyle() == "None"  # Names are not joined by lines.
    written(names, tmp_path)


def test_zero_stands_before_a_logarithmic_axis(tmp_path):
    values = [0.3, 0.0, 0.05, 1.0, 5.0]
    assert scale_of(values) == "log and 0"
    ax = plot.sweep(fake({"kappa": values}), x="kappa")
    assert labels(ax.get_xticklabels()) == ["0.3", "0", "0.05", "1", "5"]
    places = dict(zip(labels(ax.get_xticklabels()), ax.get_xticks(), strict=True))
    assert places["5"] - places["0.05"] == pytest.approx(2.0)
    assert places["0"] < places["0.05"] - 0.3
    (line,) = [line for line in ax.lines if line.get_linestyle() == ":" or len(line.get_xdata()) == 2]
    assert places["0"] < line.get_xdata()[0] < places["0.05"]
    written(ax, tmp_path)
    ring = plot.heat(fake({"kappa": values, "c": [1, 2]}), policy="Greedy", x="kappa", y="c")
    assert not ring.lines[-1].get_clip_on()
    assert ring.lines[-1].get_xdata()[0] == pytest.approx(places["0.3"])


def test_points(tmp_path):
    series = {"MESS+": [((1.0, 0.1), (0.7, 0.01)), ((2.0, 0.1), (0.8, 0.02))], "OracleBlind": [(1.5, 0.9)], "none": []}
    ax = plot.points(series, x="cost (J)\nmean ± 2 s.e. of 64 seeds", y="satisfaction")
    assert "mean ± 2 s.e. of 64 seeds" in written(ax, tmp_path)
    line, _, bars = ax.containers[0]
    assert line.get_xydata().tolist() == [[1.0, 0.7], [2.0, 0.8]]
    ends = [bar.get_segments()[0] for bar in bars]
    np.testing.assert_allclose(ends, [[[0.8, 0.7], [1.2, 0.7]], [[1.0, 0.68], [1.0, 0.72]]])
    assert not ax.containers[1][2], "without an error no bar"
    assert plot.points(series, x="", y="", join=False).containers[0][0].get_linestyle() == "None"


# Heat maps.


def test_quantiles_without_settings(tmp_path):
    data = fake()
    ax = plot.quantiles(data, log=True, policies=["Oracle", "StageRoute"])
    assert "5, 25, 50, 75, 95 % and mean (tick)\nof 50 seeds at round 10,000" in written(ax, tmp_path)
    assert ax.get_xscale() == "log"
    assert labels(ax.get_yticklabels()) == ["Oracle", "StageRoute"]
    ends = [c.get_segments()[0][:, 0] for c in ax.collections]
    levels = metrics.quantiles(data, "regret").sel(policy="Oracle").isel(time=-1).values
    assert ends[0] == pytest.approx(levels[[0, 4]])
    assert ends[1] == pytest.approx(levels[[1, 3]])


def test_quantiles_against_a_setting(tmp_path):
    data = fake({"b": [0.0, 0.1]}, policies=("A", "B"))
    data["regret"][0, 0, :10] = -1.0
    ax = plot.quantiles(data, log=True, title="by bonus")
    text = written(ax, tmp_path)
    assert "b\n5, 25" in text and "by bonus" in text
    assert labels(ax.get_xticklabels()) == ["0", "0.1"]
    lowest = min(c.get_segments()[0][0, 1] for c in ax.collections)
    assert lowest > 0, "values that are not positive are at the lower end"
    assert len(ax.get_legend().get_texts()) == 2


def test_heat(tmp_path):
    data = fake({"gamma": np.geomspace(0.01, 1, 5), "budget": [3, 1, 2]})
    data["regret"][1, 2, 0] = 1.0
    ax = plot.heat(data, policy="Greedy", x="gamma", y="budget")
    text = written(ax, tmp_path)
    assert "cumulative regret (reward)\nmean of 50 seeds at round 10,000" in text
    assert "gamma\nring: lowest, 1 (0)" in text and "Greedy" in text
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    (ring,) = {(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in ax.lines}
    assert ring == pytest.approx((0.1, 3))
    shown = metrics.mean(data, "regret").isel(time=-1, policy=1).transpose("budget", "gamma").sortby("budget")
    np.testing.assert_allclose(ax.collections[0].get_array().reshape(3, 5), shown)


def test_heat_marks_the_best_by_the_kind_of_metric(tmp_path):
    data = fake({"gamma": [0.1, 0.2], "pool": ["small", "large"]})
    assert "ring: highest" in written(plot.heat(data, "reward", policy="Oracle", x="pool", y="gamma"), tmp_path)
    unmarked = plot.heat(data, "reward", policy="Oracle", x="pool", y="gamma", best=None, title="Figure 8")
    assert not unmarked.lines
    assert unmarked.get_title(loc="left") == "Figure 8"


def test_heat_of_two_signs_is_white_at_zero_and_missing_cells_are_empty(tmp_path):
    data = fake({"gamma": [0.1, 0.2], "budget": [1, 2]})
    data["valid"][0, 0, 0] = False
    ax = plot.heat(data, policy="StageRoute", x="gamma", y="budget")
    assert ax.collections[0].get_array().mask.sum() == 1
    written(ax, tmp_path)
    plain = plot.heat(data, policy="Greedy", x="gamma", y="budget").collections[0]
    assert plain.get_cmap().name == "viridis"
    data["regret"] -= float(metrics.mean(data, "regret").sel(policy="Greedy").isel(time=-1).mean())
    mesh = plot.heat(data, policy="Greedy", x="gamma", y="budget").collections[0]
    assert mesh.get_cmap().name == "RdBu_r"
    assert mesh.norm.vmin == -mesh.norm.vmax
    ratio = plot.heat(data, policy="Greedy", x="gamma", y="budget", centre=1.0, limits=(0.5, 3.0)).collections[0]
    assert (ratio.norm.vmin, ratio.norm.vmax) == (-1.0, 3.0)


# Deployment.


def test_deployment(tmp_path):
    data = fake(models=4)
    ax = plot.deployment(data, policy="StageRoute")
    text = written(ax, tmp_path)
    assert "live, share of 50 seeds" in text
    assert "StageRoute" in text
    assert labels(ax.get_yticklabels()) == [f"model-{c}" for c in "abcd"]
    cells = ax.collections[0].get_array().reshape(4, 20)
    np.testing.assert_allclose(cells[:, 0], [0.5, 0, 0, 0])
    np.testing.assert_allclose(cells[:, -1], [0, 0, 0, 1])
    assert ax.get_xlim() == (0, 10_000)
    assert ax.yaxis_inverted()
    ax = plot.deployment(fake(models=2).drop_vars("model"), policy="Greedy", title="Figure 5")
    assert labels(ax.get_yticklabels()) == ["model 0", "model 1"]
    assert ax.get_title(loc="left") == "Figure 5"


def test_panels_of_deployments_share_a_colour_bar(tmp_path):
    data = fake(models=4)
    figure, axes = plot.panels(3)
    for ax, policy in zip(axes, POLICIES, strict=True):
        plot.deployment(data, policy=policy, ax=ax)
    assert len(figure.axes) == 4
    plot.save(figure, tmp_path / "a.png")
    assert len({round(ax.get_position().width, 3) for ax in axes}) == 1


def test_negative_numbers_have_no_logarithm():
    data = fake()
    data["regret"][1] *= -1
    with pytest.raises(ValueError, match="log must be False or 'x' where a curve is nowhere positive, got 'y' for 'Greedy'"):
        plot.curves(data, log="y")
    with pytest.raises(ValueError, match="log must be False where a mean is not positive, got True for 'regret' of Greedy"):
        plot.sweep(data, log=True)
    with pytest.raises(ValueError, match="log must be False where nothing is positive"):
        plot.quantiles(data.sel(policy=["Greedy"]), log=True)


# Wrong arguments.

ONE, TWO = {"gamma": [1, 2]}, {"gamma": [0.1, 0.2], "budget": [1, 2]}
THREE, GRID = TWO | {"pool": ["a", "b"]}, {"policy": "Greedy", "x": "gamma", "y": "budget"}


@pytest.mark.parametrize(
    ("draw", "axes", "options", "message"),
    [
        ("curves", {"gamma": range(9)}, {}, r"at most 8 settings for curves, got 9 \(gamma: 9\): select .* plot.sweep or plot.heat"),
        ("curves", {}, {"metric": "regrets"}, r"metric must be one of .* got 'regrets'; did you mean 'regret'\?"),
        ("curves", {}, {"metric": "deployed"}, "metric must be a single number per run, got 'deployed' with one per model"),
        ("curves", {}, {"policies": ["greedy"]}, r"policies must be one of .*; did you mean 'Greedy'\?"),
        ("curves", {}, {"band": "sd"}, "band must be one of 'stderr', 'deviation', 'quantile', got 'sd'"),
        ("curves", {}, {"log": "z"}, "log must be True, False, 'x' or 'y', got 'z'"),
        ("curves", {}, {"reference": {"bound": ([1, 2], [1])}}, r"reference\['bound'\] must be \(times, values\) of equal length"),
        ("difference", {}, {"minus": "greedy"}, "minus must be one of .* did you mean 'Greedy'"),
        ("sweep", TWO, {"x": "gamma"}, r"most one setting axis, got gamma, budget: select with data.sel\(budget=...\)"),
        ("sweep", TWO, {"x": "gama"}, r"x must be one of 'gamma', 'budget', got 'gama'; did you mean 'gamma'\?"),
        ("sweep", {}, {"x": "gamma"}, "x must be None when the data has no setting axis, got 'gamma'"),
        ("heat", THREE, GRID, r"two setting axes, gamma and budget, got gamma, budget, pool: .*data.sel\(pool=...\)"),
        ("heat", THREE, GRID | {"y": "buget"}, r"y must be one of 'gamma', 'budget', 'pool', got 'buget'; did you mean 'budget'"),
        ("heat", THREE, GRID | {"y": "gamma"}, "y must differ from x, got 'gamma' for both"),
        ("heat", THREE, GRID | {"policy": "UCB"}, r"policy must be one of .* got 'UCB'"),
        ("heat", {}, GRID, r"data must have two setting axes for a heat map, got none: draw it with plot.sweep"),
        ("heat", TWO, GRID | {"best": "low"}, "best must be 'auto', 'min', 'max' or None, got 'low'"),
        ("deployment", ONE, {"policy": "Greedy"}, r"no setting axis here, got gamma: select with data.sel\(gamma=...\)"),
        ("deployment", {}, {"policy": "Greedy", "variable": "regret"}, "the dimensions time and model, got 'regret'"),
        ("deployment", {}, {"policy": "greedy"}, r"policy must be one of .*; did you mean 'Greedy'\?"),
    ],
)  # fmt: skip
def test_bad_input(draw, axes, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(plot, draw)(fake(axes, seeds=2, models=3), **options)
    with pytest.raises(ValueError, match=r"data must be the xarray\.Dataset of a simulation, got DataArray"):
        getattr(plot, draw)(fake(axes, seeds=2)["regret"], **options)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"center": 1.0}, TypeError, r"^heat\(\) got an unexpected keyword argument 'center'; did you mean 'centre'\?$"),
        ({"polcy": "Greedy"}, TypeError, "'polcy'; did you mean 'policy'"),
        ({"zzz": 1}, TypeError, "'zzz'; it has data, metric, policy, x, y, best, centre, limits, ax, title$"),
        ({"centre": "a"}, ValueError, "centre must be a number or an array of numbers, got 'a'"),
        ({"limits": 3}, ValueError, r"limits must be two finite numbers, the smaller first, such as \(0.0, 1.0\), got 3"),
        ({"limits": (1.0, 1.0)}, ValueError, r"limits must be .*, got \(1.0, 1.0\)"),
        ({"ax": 3}, ValueError, "ax must be the axes of one panel, or None for a new figure, got 3"),
        ({"title": 3}, ValueError, "title must be a text or None, got 3"),
    ],
)
def test_heat_refuses_bad_arguments_before_it_draws(arguments, error, message):
    data, figures = fake({"gamma": [0.1, 0.2], "budget": [1, 2]}, seeds=2), plt.get_fignums()
    with pytest.raises(error, match=message):
        plot.heat(data, **{"policy": "Greedy", "x": "gamma", "y": "budget", **arguments})
    assert plt.get_fignums() == figures


# Files and defaults.


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_equal_figures_are_equal_files(tmp_path, kind):
    first, second = (plot.save(plot.curves(fake()), tmp_path / str(i) / f"figure.{kind}") for i in range(2))
    assert first.read_bytes() == second.read_bytes()
    assert b"atplotlib" not in first.read_bytes() or kind == "svg"


def test_save_takes_figures_and_axes_and_known_formats(tmp_path):
    figure, axes = plt.subplots(1, 2, layout="constrained", figsize=(7, 3))
    assert plot.curves(fake(), ax=axes[0]) is axes[0]
    plot.sweep(fake(), ax=axes[1])
    assert figure.get_size_inches().tolist() == [7, 3]
    assert plt.imread(plot.save(figure, tmp_path / "a.png")).shape[:2] == (480, 1120)
    assert plot.save(axes[0], tmp_path / "b.png").read_bytes() == (tmp_path / "a.png").read_bytes()
    with pytest.raises(ValueError, match=r"path must be one of '.png', '.pdf', '.svg', got '.bmp'"):
        plot.save(figure, tmp_path / "a.bmp")


def test_the_user_s_defaults_do_not_change_and_misspelt_arguments_are_named():
    with pytest.raises(TypeError, match=r"curves\(\) got an unexpected keyword argument 'polices'; did you mean 'policies'"):
        plot.curves(fake(), polices=["Greedy"])
    before = dict(matplotlib.rcParams)
    plot.curves(fake())
    assert dict(matplotlib.rcParams) == before


def test_long_numbers_have_commas():
    ax = plot.curves(fake(points=30))
    ax.figure.canvas.draw()
    assert labels(ax.get_xticklabels())[:2] == ["0", "2,000"]
    assert "1,000" in labels(plot.curves(fake(points=2)).get_xticklabels())


def test_matplotlib_is_imported_when_something_is_drawn(monkeypatch):
    check = "import sys, jaxroute.plot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "jaxroute\[plot\]"'):
        plot.curves(fake())


SPEND = {"long_name": "spend / budget", "units": "", "kind": "average", "limit": 1.0, "violation": "over budget"}


def test_policies_above_a_limit_are_named_below(tmp_path):
    data = fake()
    data["spend"] = data["reward"] * 0.0 + xr.DataArray([3.0, 0.5, 0.5], {"policy": list(POLICIES)}, "policy")
    data["spend"].attrs = SPEND
    assert "over budget: StageRoute" in written(plot.curves(data), tmp_path)
    assert "over budget: StageRoute" in written(plot.difference(data, minus="Oracle"), tmp_path)
    assert "over budget" not in written(plot.curves(data, policies=["Greedy"]), tmp_path)


def test_a_name_below_a_figure_is_not_broken():
    data = fake()
    names = ["a policy of many words", "another one of many words", "a third one of many words"]
    data = data.assign_coords(policy=names)
    data["spend"] = data["reward"] * 0.0 + 3.0
    data["spend"].attrs = SPEND
    lines = plot.curves(data).get_xlabel().splitlines()
    assert all(any(name in line for line in lines) for name in names), lines
