"""A file is read in the same way by `read_log`, `load_table`, `jaxroute data`, and all experiments on the user's table."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxroute import cli
from jaxroute.data import RoutingTable, load_table, read_log
from jaxroute.data.logs import log as log_module
from jaxroute.experiments import EXPERIMENTS
from jaxroute.problems import cascade, queueing

MODELS = ("small", "medium", "large")
TOPICS = ("law", "maths", "poems")
QUERIES = 60


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Writes 60 queries x 3 models with dollars, percent, categories and prompts in random order; also returns the expected table."""
    rng = np.random.default_rng(5)
    scores = np.round(rng.random((QUERIES, 3)) * np.array([0.6, 0.8, 1.0]), 2)
    costs = np.round(rng.random((QUERIES, 3)) * np.array([1e-4, 4e-4, 2e-3]) + 1e-5, 7)
    groups = rng.integers(0, 3, QUERIES)
    rows = [
        f'{q},"question {q}, about {TOPICS[groups[q]]} {q % 7}",{model},{100 * scores[q, m]:.0f}%,${costs[q, m]:.7f},{TOPICS[groups[q]]}'
        for q in range(QUERIES)
        for m, model in enumerate(MODELS)
    ]
    rows = [rows[i] for i in rng.permutation(len(rows))]
    path = tmp_path_factory.mktemp("log") / "traffic.csv"
    path.write_text("\n".join(("query_id,prompt,model,score,cost,category", *rows)) + "\n")
    return str(path), RoutingTable(scores, costs, MODELS, None, groups, TOPICS)


def assert_is(table, expected, rows=None):
    """Compares scores, costs and categories of all or some queries; the models may be in any order."""
    at = np.arange(QUERIES) if rows is None else np.asarray(rows)
    assert table.num_queries == len(at) and sorted(table.models) == sorted(MODELS)
    for m, model in enumerate(table.models):
        known = expected.models.index(model)
        np.testing.assert_allclose(table.scores[:, m], expected.scores[at, known], rtol=1e-6, err_msg=model)
        np.testing.assert_allclose(table.costs[:, m], expected.costs[at, known], rtol=1e-6, err_msg=model)
    assert [table.group_names[g] for g in table.groups] == [TOPICS[g] for g in expected.groups[at]]


def test_the_readers_agree(file, tmp_path, capsys):
    path, expected = file
    log = read_log(path)
    assert_is(log.table, expected)
    assert_is(load_table(path), expected)
    log.table.save(tmp_path / "table.npz")
    for load in (load_table, lambda file: read_log(file).table, RoutingTable.load):
        again = load(tmp_path / "table.npz")
        assert again.models == log.table.models and again.group_names == log.table.group_names
        for name in ("scores", "costs", "groups", "features"):
            np.testing.assert_array_equal(getattr(again, name), getattr(log.table, name), err_msg=name)
    assert cli.main(["data", path, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["queries"], len(said["models"])) == (QUERIES, 3)
    means = {model["name"]: (model["quality"], model["cost"]) for model in said["models"]}
    for m, model in enumerate(MODELS):
        assert means[model] == pytest.approx((expected.mean_scores()[m], expected.mean_costs()[m]), rel=1e-4)


@pytest.fixture
def read(monkeypatch):
    """Records the logs that experiments read, in order, with the arguments."""
    found, reader = [], log_module.read_log

    def spy(*given, **options):
        found.append((reader(*given, **options), given, options))
        return found[-1][0]

    monkeypatch.setattr(log_module, "read_log", spy)
    return found


def as_table(env):
    """Returns the models, scores and costs of an environment that replays rows, in the order of the log."""
    of = {"MarketEnv": "outcomes", "CloudEnv": "outcomes", "ServiceEnv": "requests"}.get(type(env).__name__)
    held = env if of is None else getattr(env, of)
    scores = next(getattr(held, name) for name in ("scores", "outcomes", "labels") if hasattr(held, name))
    costs = next(getattr(held, name) for name in ("costs", "cost_table") if hasattr(held, name))
    return env.names, np.asarray(scores), np.asarray(costs)


TABLES = ("staged", "service", "combinatorial", "queueing", "contextual")
PLAYED = [*(f"{name}/table" for name in TABLES), "cascade/replay", "cascade/queries"]


def test_every_experiment_that_plays_a_table_is_here():
    assert {name for name, experiment in EXPERIMENTS.items() if "--data FILE" in experiment.title} == set(PLAYED)


@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_experiment_plays_what_is_read(name, file, read, monkeypatch):
    path, expected = file
    pools, make = [], queueing.table_queue
    monkeypatch.setattr(queueing, "table_queue", lambda table, **options: pools.append(table) or make(table, **options))
    for case in EXPERIMENTS[name].cases:
        env = case.build(200, {"data": path})
        log, given, options = read[-1]
        assert given == (path,) and set(options.values()) <= {None, "none"}  # Only the file.
        assert_is(log.table, expected)
        if name == "queueing/table":  # A part of the rows; the others are what heads are trained on.
            assert_is(pools[-1], expected, rows=pools[-1].rows)
        elif not name.startswith("cascade"):
            models, scores, costs = as_table(env)
            at = [log.table.models.index(model) for model in models]
            np.testing.assert_allclose(costs, log.table.costs[:, at] * case.settings.get("cost_scale", 1.0), rtol=1e-6)
            wanted = log.table.scores[:, at]
            np.testing.assert_allclose(scores, wanted >= 0.5 if name == "service/table" else wanted, rtol=1e-6)


def test_a_cascade_groups_by_category_where_there_is_no_embedding(file, recwarn):
    path, expected = file
    table, rows = read_log(path).table, cascade.recorded_rows(path)
    np.testing.assert_allclose(rows.scores, table.scores, rtol=1e-6)
    np.testing.assert_allclose(rows.costs, table.costs, rtol=1e-6)
    np.testing.assert_array_equal(rows.groups, expected.groups)
    assert rows.names == table.models and rows.unit == "USD"
    assert len(set(cascade.recorded_rows(path, by="features", groups=4).groups)) == 4


@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_costs_are_a_setting_where_the_file_has_none(name, file, read, tmp_path):
    text = Path(file[0]).read_text().replace(",cost,", ",beauty,").replace("$", "")
    (tmp_path / "free.csv").write_text(text)
    changes, costs = {"data": str(tmp_path / "free.csv")}, {"small": 1e-5, "medium": 2e-5, "large": 4e-5}
    for case in EXPERIMENTS[name].cases[:1]:
        with pytest.raises(ValueError, match=r"free.csv has no costs: give .*An experiment .*--set environment.costs="):
            case.build(200, changes)
        case.build(200, changes | {"costs": costs})
        table = read[-1][0].table
        assert dict(zip(table.models, table.mean_costs().tolist())) == pytest.approx(costs)
