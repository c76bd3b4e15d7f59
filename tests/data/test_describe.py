"""What is said about a log before anything is routed."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from jaxroute.comparison.offline import sample_of
from jaxroute.data import Description, Log, RoutingTable, describe
from jaxroute.data.predictors import _auc, fit_logistic, fit_neighbours, random_folds

SCORES = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], float)
COSTS = np.array([[3, 1, 2], [3, 1, 2], [5, 1, 2], [5, 1, 2]], float)


def two_kinds(num_queries=400, noise=0.1, seed=0):
    """Queries of two kinds, of which model a answers one and model b, as dear, the other; features tell the kind."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, num_queries)
    right = rng.uniform(size=(num_queries, 2)) < np.where(np.arange(2) == kind[:, None], 1 - noise, noise)
    features = kind[:, None] + 0.1 * rng.standard_normal((num_queries, 3))
    return RoutingTable(right, np.full((num_queries, 2), 0.5), ("a", "b"), features, kind, ("x", "y"))


def test_by_hand():
    about = describe(Log(RoutingTable(SCORES, COSTS, ("a", "b", "c")), latency=np.float32(COSTS)))
    a, b, c = about.models
    assert (about.queries, about.best, about.cheapest) == (4, "a", "b")
    assert (a.quality, b.quality, c.quality) == (0.5, 0.25, 0.25)
    assert a.stderr == pytest.approx(np.std([1, 1, 0, 0], ddof=1) / 2)
    assert (a.cost, b.cost, c.cost) == (4, 1, 2) and (a.latency, b.latency, c.latency) == (4, 1, 2)
    # The best score at the lowest cost: b on query 0 (1), a on 1 (3), c on 2 (2), and b on 3, where all are wrong (1).
    assert about.bound == (0.75, 7 / 4)
    assert (about.all_right, about.none_right) == (0, 0.25)
    assert (a.alone, b.alone, c.alone) == (0.25, 0, 0.25) and (a.best, b.best, c.best) == (0.75, 0.5, 0.5)
    assert about.correlation[0][1] == pytest.approx(np.corrcoef(SCORES.T)[0, 1])
    assert about.predictions == () and "4 queries are too few" in about.left_out[0]


@pytest.mark.parametrize("installed", [True, False])
def test_what_can_be_predicted_is_and_gains(installed, monkeypatch):
    if not installed:
        monkeypatch.setitem(sys.modules, "sklearn", None)
    about = describe(two_kinds())
    assert [p.how for p in about.predictions] == ["categories", "nearest neighbours", "logistic regression"]
    assert about.left_out == ()
    for found in about.predictions:
        assert found.measure == "AUC" and min(found.models) > 0.8
        assert found.gain > 0.3 and found.gain > 5 * found.stderr and found.cost == pytest.approx(0.5)


def test_what_cannot_be_predicted_is_not():
    rng = np.random.default_rng(1)
    table = RoutingTable(rng.integers(0, 2, (500, 2)), rng.uniform(size=(500, 2)), ("a", "b"), rng.standard_normal((500, 4)))
    for found in describe(table).predictions:
        assert all(0.4 < auc < 0.6 for auc in found.models)
        assert abs(found.gain) < 4 * found.stderr + 1e-9


def test_fractional_scores_are_explained_and_constant_ones_left_open():
    x = np.linspace(0, 1, 200)
    scores = np.stack([(1 + x) / 2, np.full(200, 0.5)], 1)
    table = RoutingTable(scores, np.ones((200, 2)), ("a", "b"), np.stack([x, x**2], 1))
    about = describe(table)
    assert [p.measure for p in about.predictions] == ["R2", "R2"] and about.predictions[1].models[0] > 0.99
    assert np.isnan(about.predictions[0].models[1]) and np.isnan(about.correlation[0][1])
    plain = json.loads(json.dumps(about.as_dict(), allow_nan=False))
    assert plain["correlation"][0][1] is None and plain["best"] == "a"
    assert any(line.split()[:1] == ["b"] and line.split()[-1] == "-" for line in about.lines())


def features_of_all_sizes(num_queries=600, seed=0):
    """A time in seconds since 1970 and a length beside the feature that decides whether the small model is right, with probability 0.9 or 0.1."""
    rng = np.random.default_rng(seed)
    code = np.arange(num_queries) % 2
    right = rng.random((num_queries, 2)) < np.stack([np.full(num_queries, 0.9), np.where(code, 0.1, 0.9)], axis=1)
    features = np.stack([1.7e9 + rng.integers(0, 10**7, num_queries), rng.integers(20, 20_000, num_queries), code], axis=1)
    return RoutingTable(right, np.tile([0.01, 0.001], (num_queries, 1)), ("big", "small"), features)


def test_features_of_all_sizes_predict_in_both_commands():
    """The AUC that the probabilities 0.9 and 0.1 allow is 0.9."""
    table = features_of_all_sizes()
    for found in describe(table).predictions:
        assert found.models[1] > 0.85, found.how
    sample = sample_of(table)  # The small model comes first, as the cheaper one.
    fitted, judged = sample.take(np.arange(300)), sample.take(np.arange(300, 600))
    for predictor in (fit_neighbours(fitted)[0], fit_logistic(fitted, random_folds(fitted, 4, 0))[0]):
        assert _auc(predictor.predict(judged)[:, 0], judged.scores[:, 0]) > 0.85


def test_copies_of_a_prompt_predict_nothing():
    """300 prompts, each there twice with the same scores, which are coins: where a copy is in another fold, AUCs reach 0.66."""
    rng = np.random.default_rng(0)
    copies = np.tile(np.arange(300), 2)
    scores, features = rng.integers(0, 2, (300, 2))[copies], rng.standard_normal((300, 8))[copies]
    table = RoutingTable(scores, np.tile([0.001, 0.0011], (600, 1)), ("a", "b"), features, prompts=copies)
    assert max(describe(replace(table, prompts=None)).predictions[0].models) > 0.6
    for found in describe(table).predictions:
        assert all(0.4 < auc < 0.6 for auc in found.models), found.how
    about = describe(table.subset(rows=np.flatnonzero(copies < 15)))
    assert about.predictions == () and "15 queries are too few" in about.left_out[0]


@pytest.mark.parametrize("width", [60, 80, 130])
def test_lines_fit_the_terminal(width):
    log = Log(two_kinds(), latency=np.ones((400, 2), np.float32), read=("file: " + "words " * 40,))
    lines = describe(log).lines(width)
    assert max(map(len, lines)) <= width
    parts = "How it was read;400 queries x 2 models;p50 s;What there is to gain;upper bound;correlation"
    assert all(part in "\n".join(lines) for part in parts.split(";"))


def test_only_logs_are_described():
    with pytest.raises(ValueError, match="log must be a Log from read_log, or a RoutingTable, got 'x.csv'"):
        describe("x.csv")
    assert Description.__module__ == "jaxroute.data.describe"
