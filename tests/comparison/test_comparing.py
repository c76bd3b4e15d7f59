"""The whole comparison: its refusals, its result on a log with a known best rule, and resuming."""

import json
import sys

import numpy as np
import pytest

import jaxroute as jr
from jaxroute import cli
from jaxroute.comparison import choice, comparing, drawing, learning
from jaxroute.comparison.page import pictures, strategies
from jaxroute.comparison.page.write import as_csv, rendered
from jaxroute.comparison.points import JUDGE, RARE, RETRIES, Estimate, Measures, Point, meets
from jaxroute.data import Log, RoutingTable


def known_log(queries=400, seed=0, noise=0.02):
    """Half of the queries are easy: the small model answers them as well as the large one, and no others.

    A router with the features sends each query to the cheapest model that answers it, for (1 + 10) / 2 = 5.5 on average, and is right as often
    as the large model, which costs 10.
    """
    rng = np.random.default_rng(seed)
    easy = np.arange(queries) % 2 == 0
    right = np.stack([easy, np.zeros(queries, bool), np.ones(queries, bool)], axis=1)
    right ^= rng.random(right.shape) < noise
    costs = np.array([1.0, 2.0, 10.0]) * rng.uniform(0.9, 1.1, right.shape)
    features = np.stack([easy, ~easy], axis=1) + 0.05 * rng.normal(size=(queries, 2))
    return RoutingTable(right.astype(float), costs, ("small", "odd", "large"), features=features)


@pytest.fixture
def only(monkeypatch):
    """Restricts the online policies to some."""

    def keep(*names):
        monkeypatch.setattr(learning.strategies, "STRATEGIES", {name: learning.STRATEGIES[name] for name in names})

    return keep


def measures(quality, cost, error):
    return Measures(Estimate(quality, error), Estimate(cost, 0.1 * cost), Estimate(1.0, 0.0))


def made_up(seed):
    """Strategies with random qualities and needs; `judged` of single models is `chosen_by`."""
    rng = np.random.default_rng(seed)
    target, error = rng.choice([0.6, 0.7, 0.75, 0.9]), rng.choice([0.0, 0.01, 0.04, np.nan])

    def drawn(cost):
        return measures(rng.integers(58, 88) / 100, cost, error)

    singles = (("small", 6.0), ("odd", 8.0), ("large", 10.0))
    points = [Point(name, "single", "", one, one) for name, one in ((name, drawn(cost)) for name, cost in singles)]
    fitted = ["Best mixture", "Nearest neighbours", "Logistic regression", "FrugalGPT cascade"]
    for i in range(rng.integers(1, 8)):
        kind = rng.choice(["offline", "online"])
        need = [(), (), ("a score of each answer",), (JUDGE,), (RETRIES,)][rng.integers(5)]
        name = f"strategy-{i}" if kind == "online" or need or not fitted else fitted.pop(0)  # A rule that can be saved.
        for k in range(rng.integers(1, 4)):
            ends = [drawn(float(rng.integers(1, 15))) for _ in range(2)]
            points.append(Point(name, str(kind), f"setting-{i}-{k}", *ends, needs=need))
    bound = measures(0.95, 0.5, error)
    points.append(Point("Best model of each query", "bound", "", bound, bound))
    return comparing.Comparison(Log(known_log(40)), "log.csv", float(target), tuple(points), 8, (0.6, float(target), 0.9))


def sections(text):
    """Text below each title of a table."""
    titles = [strategies.MEETS, strategies.MISSES, *(f"not deployable without {rare}" for rare in RARE.values())]
    starts = {text.index(title): title for title in titles if title in text}
    ends = [*sorted(starts)[1:], len(text)]
    return {starts[start]: text[start:end] for start, end in zip(sorted(starts), ends, strict=True)}


@pytest.mark.parametrize("seed", range(60))
def test_the_reported_cheapest_strategy_meets_the_target_without_a_judge(seed, monkeypatch):
    found = made_up(seed)
    best, summary = found.answer.best, found.summary
    chosen = {p.strategy: p for p in choice.answers(found.points, found.target)}
    fits = [p for p in chosen.values() if p.available and p.meets(found.target)]
    # The answer and the headline.
    first, rare = found.sentences[0], [p.strategy for p in found.points if p.without]
    assert not [name for name in rare if name in first or name in found.to_route()[0]]
    assert found.exported is None or found.exported in fits
    if best is None:
        assert not fits and first.startswith("No strategy") and "points short" in first
    else:
        assert best in fits and best.judged.cost.value == pytest.approx(min(p.judged.cost.value for p in fits))
        assert choice.named(best) in first or not found.answer.saves
    # The rings of the picture, the legend, the page and the table.
    picture = pictures.quality_cost(summary, pictures.looks_of(summary))
    monkeypatch.setattr(pictures, "quality_cost", lambda *arguments: picture)
    monkeypatch.setattr(pictures, "other_targets", lambda *arguments: picture)
    monkeypatch.setattr(picture.figure, "savefig", lambda stream, **options: stream.write("<svg/>"))  # Takes a second.
    monkeypatch.setattr(pictures, "files", lambda picture: {})
    shown = rendered(summary)["index.html"].decode()
    (ax,) = picture.figure.axes
    drawn = {line.get_label(): [x[0] for x in line.get_data()] for line in ax.get_lines()}
    rings = {name: drawn[name] for name in ("best", "single") if name in drawn}
    singles = [p for p in found.points if p.kind == "single" and p.meets(found.target)]
    alone = min(singles, key=lambda p: p.judged.cost.value, default=None)
    for name, point in (("best", best), ("single", alone)):
        place = None if point is None else [point.judged.cost.value, 100 * point.judged.quality.value]
        assert rings.get(name) == place
    legend = [text.get_text() for legend in picture.figure.legends for text in legend.get_texts()]
    assert (strategies.CHEAPEST in legend) == ('class="badge">cheapest choice' in shown) == (best is not None)
    assert ("cheapest single model that" in shown) == bool(singles)
    for text in (found.table(), found.table(80), found._repr_html_()):
        parts = sections(text)
        for name, point in chosen.items():
            title = f"not deployable without {point.without}" if point.without else strategies.MEETS
            title = title if point.without or point.meets(found.target) else strategies.MISSES
            assert [one for one, part in parts.items() if name in part] == [title]
    # Other targets, and the files.
    for row in summary["sensitivity"]:
        assert row["strategy"] is None or meets(Estimate(row["quality"][0], row["quality"][1] or 0.0), row["target"])
        assert row["strategy"] not in rare
    flags = [(p["meets"], p["without"]) for p in summary["points"]]
    assert flags == [(p.meets(found.target), p.without) for p in found.points]
    columns = zip(*(found.dataset[name].values for name in ("meets", "without")), strict=True)
    assert list(columns) == [(meeting, without or "") for meeting, without in flags]
    assert as_csv(summary).count("a perfect judge,") == [without for _, without in flags].count("a perfect judge")


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["traffic.csv"], "report-traffic"),
        (["logs/traffic.jsonl.gz"], "report-traffic"),
        (["sprout/"], "report-sprout"),
        (["traffic.csv", "--out", "mine"], "mine"),
    ],
)
def test_the_folder_of_the_report_is_named_after_the_log(arguments, folder, monkeypatch, capsys):
    def stop(log, *, out, **options):
        raise ValueError(f"the folder is {out}.")

    monkeypatch.setattr("jaxroute.data.read_recorded", lambda *arguments, **options: Log(known_log(40)))
    monkeypatch.setattr("jaxroute.comparison.compare", stop)
    assert cli.main(["compare", *arguments, "--target-quality", "0.7"]) == 2
    assert f"the folder is {folder}." in capsys.readouterr().err


def test_another_comparison_in_the_folder_is_refused_before_anything_is_fitted(only, tmp_path, monkeypatch):
    only("LinUCB")
    held = {"target_quality": 0.95, "out": tmp_path / "report", "orders": 4, "progress": False}
    table = known_log(60)
    jr.compare(table, name="traffic.csv", **held)
    before = {f: f.read_bytes() for f in (tmp_path / "report").iterdir() if f.is_file()}
    monkeypatch.setattr(comparing.offline, "offline", None)  # A later failure is a different one.
    others = {
        "at target_quality=0.95, and this one is at 0.9": {"target_quality": 0.9},
        "at warm=0, and this one is at 0.5": {"warm": 0.5},
        r"\(60 queries, 3 models\), and this is another log: b.csv \(50 q": {"data": known_log(50), "name": "b.csv"},
        ".* another log: traffic.csv": {"data": known_log(60, seed=1), "name": "traffic.csv"},
    }
    for message, other in others.items():
        with pytest.raises(ValueError, match=f"report holds the comparison of traffic.csv {message}"):
            jr.compare(**({"data": table} | held | other))
    assert before == {f: f.read_bytes() for f in (tmp_path / "report").iterdir() if f.is_file()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_quality": 75}, "target_quality must be above 0 and below 1, got 75; for 75 % give 0.75"),
        ({"target_quality": 0.0}, "target_quality must be above 0 and below 1, got 0"),
        ({"minutes": -1}, "minutes"),
        ({"orders": 3}, "orders"),
        ({"warm": 0.9}, "warm must be a share of at most .5"),
        ({"data": known_log(30)}, "at least 40 queries that all models answered, got 30"),
        ({"data": RoutingTable(np.eye(60, 2), np.zeros((60, 2)), ("a", "b"))}, "costs must be above 0 for some model"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        jr.compare(**{"data": known_log(), "target_quality": 0.9, "progress": False} | arguments)


def test_the_result_on_a_log_with_a_known_best_rule(only, tmp_path):
    only("LinUCB")
    found = jr.compare(known_log(), target_quality=0.95, out=tmp_path / "report", orders=8, progress=False)
    assert found.answer.single.strategy == "large"
    best = found.answer.best
    assert JUDGE not in best.needs
    # Routers know the best rule; an online policy has to learn it from 400 queries.
    assert best.judged.cost.value == pytest.approx(5.5, rel=0.1)
    assert meets(best.judged.quality, 0.95)
    mixtures = [p for p in found.points if p.strategy == "Best mixture" and meets(p.judged.quality, 0.95)]
    assert min(p.judged.cost.value for p in mixtures) > 1.5 * best.judged.cost.value
    # No deployable strategy beats the bound that sees every score.
    bound = min(p.judged.cost.value for p in found.points if p.kind == "bound" and meets(p.judged.quality, 0.95))
    for point in found.points:
        if point.kind in ("offline", "online") and meets(point.judged.quality, 0.95):
            assert point.judged.cost.value > bound - 3 * point.judged.cost.error
    assert "large" in found.sentence and "less than" in found.sentence

    summary, page = (tmp_path / "report" / file for file in ("summary.json", "index.html"))
    summary, page = json.loads(summary.read_text()), page.read_text()
    assert [summary["sentence"], *summary["besides"]] == found.sentences
    assert summary["points"][summary["best"]]["strategy"] == best.strategy
    assert {p["strategy"] for p in summary["points"]} == {p.strategy for p in found.points}
    assert all(text in page for text in (found.sentence[:20], "Where queries go", "To route a new query"))
    data = found.dataset
    assert data.sizes["point"] == len(found.points)
    assert float(data["quality"][0]) == found.points[0].judged.quality.value
    assert data.attrs["sentence"] == found.sentence
    assert found.sentence in repr(found) and "strategy" in found.table()
    check_drawings(found)
    # Shares add up to all calls.
    for point in found.points:
        assert sum(point.shares.values()) == pytest.approx(point.judged.calls.value, abs=0.01), point.strategy
        assert set(point.shares) <= set(found.log.table.models)
    # Half of the queries are easy, and go to the small model.
    assert best.shares["small"] == pytest.approx(0.5, abs=0.1) and best.shares["large"] == pytest.approx(0.5, abs=0.1)
    (line,) = (text for text in found.shares().splitlines() if text.startswith(f"{best.strategy}: "))
    assert "small " in line and "large " in line
    assert max(map(len, found.shares(60).splitlines())) <= 60
    assert summary["points"][summary["best"]]["shares"] == pytest.approx(dict(best.shares))
    # The code of the report runs, and routes a new query correctly.
    words, code = found.to_route(str(tmp_path / "report" / "choice.npz"))
    assert found.exported.strategy in words
    easy, names = np.array([1.0, 0.0]), {}
    if found.exported.strategy == "FrugalGPT cascade":
        exec(code, names := {"numbers": easy, "call": lambda model: ("", 1.0)})
        assert list(names["asked"]) == ["small"]
    else:
        exec(code, names := {"numbers": easy})
        assert names["model"] == "small"
    assert names["strategy"].model(features=1 - easy, asked=names.get("asked")) in ("small", "large", "odd", None)


def check_drawings(found):
    """Each figure is drawn by one call, from the points of the comparison."""
    plt = pytest.importorskip("matplotlib.pyplot")
    ax = drawing.frontier(found)
    names = ax.get_legend_handles_labels()[1]
    assert {"target", "small", "large"} <= set(names)
    assert not {p.strategy for p in found.points if p.kind == "bound"} & set(names)
    assert ax.get_xscale() == "log" and ax.get_xlabel() == found.log.table.cost_unit
    left, right = drawing.learning(found)
    (policy,) = (p for p, answer in zip(found.points, found.dataset["answer"].values) if answer and p.learning is not None)
    line = next(one for one in left.get_lines() if one.get_label() == policy.strategy)
    np.testing.assert_array_equal(line.get_ydata(), policy.learning.quality)
    assert f"mean of {found.orders} orders" in right.get_xlabel()
    ax = drawing.other_targets(found)
    best, singles = (bars.lines[0].get_xydata() for bars in ax.containers)
    rows = [row for row in found.summary["sensitivity"] if row["cost"]]
    np.testing.assert_allclose(best, [(row["target"], row["cost"][0]) for row in rows])
    models = {model["name"]: model["cost"][0] for model in found.summary["data"]["models"]}
    rows = [row for row in found.summary["sensitivity"] if row["single"]]
    np.testing.assert_allclose(singles, [(row["target"], models[row["single"]]) for row in rows])
    plt.close("all")


def test_the_code_to_continue_with_a_point_runs(only):
    only("LinUCB")
    found = jr.compare(known_log(60), target_quality=0.95, orders=4, progress=False)
    point = next(p for p in found.points if p.kind == "online")
    names = {"jaxroute": jr, "log": found.log}
    first, _ = point.further.split("\n")
    exec(first, names)
    assert names["rounds"] == 59
    assert names["env"].spec.num_models == 3 and hasattr(names["policy"], "act")
    with pytest.raises(ValueError, match="setting must give weight, width of LinUCB, got weight"):
        jr.comparison.setting_of(found.log.table, "LinUCB", weight=1.0)
    with pytest.raises(ValueError, match="name must be one of"):
        jr.comparison.setting_of(found.log.table, "LinUBC", weight=1.0)


def test_a_second_call_resumes(only, tmp_path, monkeypatch):
    only("LinUCB")
    first = jr.compare(known_log(120), target_quality=0.95, out=tmp_path, orders=4, progress=False)
    seeds = []
    simulate = jr.simulate
    monkeypatch.setattr(jr, "simulate", lambda *a, **k: (r := simulate(*a, **k), seeds.append(r.attrs.get("run_s", 0.0)))[0])
    again = jr.compare(known_log(120), target_quality=0.95, out=tmp_path, orders=4, progress=False)
    assert again.points == first.points
    more = jr.compare(known_log(120), target_quality=0.95, out=tmp_path, orders=8, progress=False)
    assert more.orders == 8
    # `chosen_by` now has more orders and a smaller error.
    settings = [[p.setting for p in one.points if p.kind == "offline"] for one in (first, more)]
    assert settings[0] == settings[1]


def test_more_orders_within_the_time_limit_may_change_the_finer_grid(only, tmp_path, monkeypatch):
    only("LinUCB")
    near, fits = iter([(3.0, 4.0), (5.0, 6.0)]), iter([True, False])
    monkeypatch.setattr(sys.modules["jaxroute.comparison.learning.simulate"], "values_between", lambda *_: next(near))
    monkeypatch.setattr(comparing, "_fits", lambda *_: next(fits))
    found = jr.compare(known_log(60), target_quality=0.95, out=tmp_path, orders=4, minutes=1, progress=False)
    settings = " ".join(point.setting for point in found.points if point.kind == "online")
    assert found.orders == 8
    assert "counts 5 of" in settings and "counts 3 of" not in settings


def test_every_step_is_reported_and_counted(only):
    only("LinUCB", "StageRoute")
    begun, told = [], []
    options = {"on_start": begun.append, "callback": told.append, "progress": False}
    found = jr.compare(known_log(60), target_quality=0.95, orders=4, **options)
    (lines,) = begun
    number = len({p.strategy for p in found.points if p.kind in ("offline", "online")})
    assert lines[0].startswith(f"{number} routing strategies between 3 models") and "95 %" in lines[0]
    assert strategies.number_of_strategies(found.summary) == number  # The page shows the same number.
    assert lines[-1].startswith(f"At most {13 + 4 + 1} steps.")
    numbers = [int(line.split()[1]) for line in told]
    assert numbers == sorted(set(numbers)) and numbers[0] == 1 and numbers[-1] <= 18
    assert told[0] == "step 1 of 18: fitted rules: part 1 of 12"
    assert {"step 14 of 18: LinUCB", "step 16 of 18: StageRoute"} <= set(told)  # Also if LinUCB needs no finer grid.
    assert found.opened == ""


def test_a_warm_start_does_not_count_the_first_part(only):
    only("LinUCB")
    options = {"target_quality": 0.95, "orders": 4, "progress": False}
    cold, warm = (jr.compare(known_log(400), warm=share, **options) for share in (0.0, 0.5))
    of = {(p.strategy, p.setting): p for p in warm.points}
    pairs = [(p, of[p.strategy, p.setting]) for p in cold.points if p.kind == "online" and (p.strategy, p.setting) in of]
    assert np.mean([w.judged.quality.value - p.judged.quality.value for p, w in pairs]) > 0
    assert "first 50 %" in " ".join(warm.summary["assumptions"])


def test_other_targets_distinguish_strategies():
    table = known_log()
    assert comparing._targets(table, 0.95) == pytest.approx((0.85, 0.9, 0.925, 0.95, 0.975))
    assert 0.3 in comparing._targets(table, 0.3)  # The requested target is always among them.


@pytest.mark.slow
def test_all_policies_on_the_log_with_a_known_best_rule():
    found = jr.compare(known_log(1000), target_quality=0.95, progress=False)
    names = {p.strategy for p in found.points if p.kind == "online"}
    assert names == set(learning.STRATEGIES) - {"COSMOS, learned evaluator"}
    points = [p for p in found.points if p.strategy == "LinUCB" and meets(p.judged.quality, 0.95)]
    assert min(p.judged.cost.value for p in points) < 7.5
    late = min(p.late.cost.value for p in found.points if p.strategy == "LinUCB" and meets(p.late.quality, 0.95))
    assert late < 6.5
    assert "saves" in found.sentence or "less than" in found.sentence
