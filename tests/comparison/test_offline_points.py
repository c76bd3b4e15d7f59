"""The points of a table: which there are, what they say, and what must not change them."""

import dataclasses
import types

import numpy as np
import pytest
from offline_cases import by_name, world

from jaxroute.comparison.offline import (
    fit_cascade,
    fit_cascade_routing,
    fit_mixture,
    fit_router,
    measure,
    offline,
    sample_of,
)
from jaxroute.comparison.offline.crossfit import OfflineStrategy
from jaxroute.comparison.offline.sample import cheapest_right, single_call
from jaxroute.data import RoutingTable

TARGETS = (0.5, 0.6, 0.7, 0.75)
SECONDS = np.random.default_rng(5).random((120, 3))


@pytest.fixture(scope="module")
def table():
    return world(0, 120)


@pytest.fixture(scope="module")
def points(table):
    return offline(table, TARGETS, latency=SECONDS)


def test_what_there_is(points, table):
    names = {k: [p.strategy for p in points if p.kind == k] for k in ("single", "bound", "offline")}
    assert names["single"] == list(table.models)
    assert set(names["bound"]) == {"Best model of each query", "Cheapest right model of each query"}
    cascades = {f"FrugalGPT cascade{judge}" for judge in ("", ", perfect judge")} | {"Cascade routing, perfect judge"}
    assert set(names["offline"]) == {"Best mixture", "Nearest neighbours", "Logistic regression"} | cascades
    for point in points:
        assert point.late is None and point.learning is None
        assert (point.setting == "") == (point.kind == "single" or point.strategy == "Best model of each query")


def test_models_are_their_means(points, table):
    for i, point in enumerate(p for p in points if p.kind == "single"):
        assert point.judged == point.chosen_by
        scores = table.scores[:, i].astype(float)
        assert point.judged.quality.value == pytest.approx(scores.mean())
        assert point.judged.quality.error == pytest.approx(scores.std(ddof=1) / np.sqrt(120))
        assert point.judged.cost.value == pytest.approx(table.costs[:, i].mean(dtype=float))
        assert point.judged.latency.value == pytest.approx(SECONDS[:, i].mean())
        assert point.judged.calls.value == 1


def test_the_line_that_goes_on_makes_the_rule_of_the_setting(points, table):
    for point in points:
        if point.kind == "offline":
            names = {"log": types.SimpleNamespace(table=table)}
            exec(point.further, names)
            assert point.setting.endswith(f": {names['rule']}")


def test_the_bound_is_below_everything(points, table):
    """Whatever a rule did, an all-knowing one has its quality for no more."""
    sample = sample_of(table)
    assert len([p for p in points if p.kind != "bound"]) > 20
    best = next(p for p in points if p.strategy == "Best model of each query")
    for point in points:
        for measures in (point.judged, point.chosen_by):
            assert measures.quality.value <= best.judged.quality.value + 1e-12
            assert cheapest_right(sample, measures.quality.value).cost.mean() <= measures.cost.value + 1e-9


def test_no_two_points_are_the_same(points):
    kinds = [(p.strategy, p.setting.split(": ", 1)[-1], p.judged, p.chosen_by) for p in points]
    assert len(set(kinds)) == len(kinds)
    # The expensive model has about 0.86: above that, all targets have the same best rule.
    high = offline(world(0, 120), (0.97, 0.98, 0.99))
    assert len([p for p in high if p.strategy == "Best mixture"]) == 1
    assert len([p for p in high if p.strategy == "Cheapest right model of each query"]) >= 1


def test_targets_share_a_point_if_both_the_rule_and_its_results_are_the_same(table, monkeypatch):
    class Rule(types.SimpleNamespace):
        def __str__(self):
            return self.text

        def evaluate(self, sample):
            return single_call(sample, np.full(sample.num_queries, self.model))

    rules = {0.1: ("a", 0), 0.2: ("a", 0), 0.3: ("a", 1), 0.4: ("b", 1), 0.5: ("b", 1)}
    fitted = types.SimpleNamespace(tuned=lambda target: Rule(text=rules[target][0], model=rules[target][1]))
    made = OfflineStrategy("Made up", "fit_mixture(log.table, {target})", (), lambda part: fitted)
    monkeypatch.setattr(measure, "strategies", lambda sample: [made])
    settings = [p.setting for p in offline(table, tuple(rules)) if p.kind == "offline"]
    assert settings == ["tuned for 10 %: a", "tuned for 30 %: a", "tuned for 40 %: b"]


def test_names_and_their_order_do_not_matter(points, table):
    order = [2, 0, 1]
    turned = table.subset(models=[table.models[i] for i in order])
    other = by_name(offline(turned, TARGETS, latency=SECONDS[:, order]))
    assert other.keys() == by_name(points).keys()
    for key, point in by_name(points).items():
        assert dataclasses.replace(point) == other[key], key


def test_the_unit_of_costs_does_not_matter(points, table):
    expensive = dataclasses.replace(table, costs=table.costs * 1024)  # A power of two: float32 is exact.
    for key, point in by_name(offline(expensive, TARGETS)).items():
        first = by_name(points)[key].judged
        assert point.judged.quality.value == pytest.approx(first.quality.value, abs=1e-9), key
        assert point.judged.cost.value == pytest.approx(1024 * first.cost.value), key
        assert point.judged.latency is None


def test_a_table_without_features_or_groups(table):
    plain = RoutingTable(table.scores, table.costs, table.models)
    names = {p.strategy for p in offline(plain, (0.7,)) if p.kind == "offline"}
    assert names == {"Best mixture", "FrugalGPT cascade, perfect judge", "Cascade routing, perfect judge"}
    for call in (lambda: fit_router(plain, 0.7), lambda: fit_cascade(plain, 0.7)):
        with pytest.raises(ValueError, match="neither features nor groups"):
            call()


def test_a_table_with_groups_alone(table):
    grouped = table.with_features(None)
    names = {p.strategy for p in offline(grouped, (0.7,)) if p.kind == "offline"}
    assert {"Logistic regression", "FrugalGPT cascade"} <= names and "Nearest neighbours" not in names
    with pytest.raises(ValueError, match="needs features"):
        fit_router(grouped, 0.7, by="neighbours")


def test_odd_tables():
    rng = np.random.default_rng(0)
    one = RoutingTable(rng.random((9, 1)), rng.random((9, 1)), ("only",), features=np.ones((9, 2)))
    assert all(p.judged.quality.value == pytest.approx(one.scores.mean(dtype=float)) for p in offline(one, (0.2, 0.9)))
    free = RoutingTable(rng.random((20, 3)), np.zeros((20, 3)), ("a", "b", "c"), features=rng.random((20, 2)))
    assert all(p.judged.cost.value == 0 for p in offline(free, (0.5,)))
    same = RoutingTable(np.ones((8, 2)), np.ones((8, 2)), ("a", "b"), groups=np.zeros(8, int), group_names=("g",))
    assert all(p.judged.quality.value == 1 for p in offline(same, (0.5, 1.0)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda table: offline(table.subset(rows=slice(7)), (0.7,)), "table has 7 queries"),
        (lambda table: offline(table, (70,)), r"targets must be in \[0, 1\], got 70"),
        (lambda table: offline(table, (0.7,), latency=np.ones(3)), "latency has shape"),
        (lambda table: offline(table, (0.7,), latency=np.full((120, 3), np.nan)), "latency must be finite"),
        (lambda table: fit_mixture(table, 1.5), r"target must be in \[0, 1\], got 1.5"),
        (lambda table: fit_cascade_routing(np.ones((3, 3)), 0.5), "table must be a RoutingTable"),
        (lambda table: fit_router(table, 0.5, by="knn"), "by must be one of 'logistic', 'neighbours', got 'knn'"),
        (lambda table: fit_cascade(table, 0.5, judge="me"), "judge must be one of 'learned', 'perfect', got 'me'"),
    ],
)
def test_what_is_refused(table, call, message):
    with pytest.raises(ValueError, match=message):
        call(table)
