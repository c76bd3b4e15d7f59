"""Policies that learn, on recorded queries: the meter by hand, means against plain NumPy loops, and what points are made of."""

import dataclasses
import math

import numpy as np
import pytest
from reference import replay
from replay_cases import case, decisions, means, read, scripted, totals

from jaxroute.comparison.learning import STRATEGIES, Traffic, setting_of
from jaxroute.comparison.learning.simulate import _measures, simulate, values_between
from jaxroute.comparison.points import Estimate, Measures, Point
from jaxroute.data import RoutingTable

slow = pytest.mark.slow
ORDERS = 64

# Strategy, its loop in the reference, setting.
SETTINGS = {
    "LinUCB": (replay.linucb, {"weight": 0.3, "width": 0.5}),
    "LinUCB, narrow": (replay.linucb, {"weight": 0.05, "width": 0.1}),
    "COSMOS": (replay.cosmos, {"weight": 0.1, "bonus": 0.1}),
    "COSMOS, warm": (replay.cosmos, {"weight": 0.3, "bonus": 0.03}),
    "MESS+": (replay.messplus, {"alpha": 0.65, "V": 0.5, "c": 0.4}),
    "C2MAB-V, one answer": (replay.one_answer, {"budget": 0.3}),
    "C2MAB-V, best of several": (replay.best_of_several, {"budget": 0.5}),
    "C2MAB-V, asked in turn": (replay.asked_in_turn, {"budget": 0.5}),
    "StageRoute": (replay.stageroute, {"budget": 0.3}),
    "ACQB, with retries": (replay.acqb, {"weight": 0.3}),
}
# What random actions are made of.
SCRIPTS = {
    "COSMOS": lambda rng, T, N: {"priority": rng.random((T, N)), "threshold": 1.2 * rng.random((T, N))},
    "MESS+": lambda rng, T, N: {"explore": rng.random(T) < 0.3, "serve": rng.integers(N, size=T)},
    "C2MAB-V, one answer": lambda rng, T, N: {"selected": np.arange(N) == rng.integers(N, size=(T, 1))},
    "C2MAB-V, best of several": lambda rng, T, N: {"selected": _some(rng, T, N)},
    "C2MAB-V, asked in turn": lambda rng, T, N: {"selected": _some(rng, T, N), "order": rng.random((T, N))},
    "StageRoute": lambda rng, T, N: {"model": rng.integers(N, size=T), "deployed": np.ones((T, N), bool)},
}
METERED = ("quality", "spent", "calls", "latency")


def _some(rng, rounds, number):
    """`[T, N]` sets of one model or more."""
    return (rng.random((rounds, number)) < 0.4) | (np.arange(number) == rng.integers(number, size=(rounds, 1)))


def _strategy(name):
    return name.removesuffix(", narrow").removesuffix(", warm")


def _assert_metered(of, name, env, data, setting):
    """Each round's flows, from decisions by hand; the rows that were served."""
    found, plain = read(of, name, env, data, setting), of.plain
    scores, costs, latency = (table[found.rows] for table in (plain.scores, plain.costs, plain.latency))
    answered = found.answer >= 0
    quality = np.where(answered, np.take_along_axis(scores, np.maximum(found.answer, 0)[:, None], 1)[:, 0], 0.0)
    seconds = np.where(found.called, latency, 0.0)
    expected = {
        "quality": quality,
        "spent": np.where(found.called, costs, 0.0).sum(axis=1),
        "calls": found.called.sum(axis=1),
        "latency": seconds.sum(axis=1) if found.in_turn else seconds.max(axis=1),
        "answered": answered,
    }
    expected |= {f"{key}_square": expected[key] ** 2.0 for key in METERED}
    for key, value in expected.items():
        np.testing.assert_allclose(data["flows"][key], value, rtol=1e-5, atol=1e-5, err_msg=key)
    return found.rows


def _assert_each_once(name, rows, queries):
    """Each query is served once; the free first period of a cascade takes one away."""
    assert len(rows) == len(set(rows)) == queries - (name in ("COSMOS", "LinUCB"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_meter_of_random_actions(name):
    of = case("fractional" if name != "C2MAB-V, asked in turn" else "binary", queries=60)
    setting = SETTINGS[name][1]
    env, policy, rounds = setting_of(of.table, name, latency=of.latency, **setting)
    data = scripted(env, policy, rounds, SCRIPTS[name])
    _assert_each_once(name, _assert_metered(of, name, env, data, setting), 60)


# ACQB has no random actions: a query that it may serve is known only once it plays. The scores of MESS+ are sums of two products, which XLA
# rounds in one way where it finds their maximum, and in another where it compares them with it.
@pytest.mark.parametrize("name", ["ACQB, with retries", "MESS+"])
def test_the_meter_of_what_policies_do(name):
    of, (_, setting) = case("binary", queries=60), SETTINGS[name]
    env, policy, rounds = setting_of(of.table, name, latency=of.latency, **setting)
    data = decisions(env, policy, rounds)
    rows = _assert_metered(of, name, env, data, setting)
    if name == "MESS+":  # Explored: the most expensive model answers.
        _assert_each_once(name, rows, 60)
        largest = env.env.names[-1]
        assert largest == of.table.models[int(of.plain.costs.mean(axis=0).argmax())]
        explored = np.asarray(data["action"].explore, bool)
        assert explored[0] and (data["action"].serve[explored] == len(env.env.names) - 1).all()


def _assert_agree(of, name, number, most=4.0):
    """Means over orders are within `most` combined standard errors of the plain loop's."""
    loop, setting = SETTINGS[name]
    simulated = means(of, _strategy(name), number, **setting)
    more = {"rounds": 2 * of.table.num_queries} if name.startswith("ACQB") else {}
    plain = replay.runs(loop, of.plain, number, seed=1, **setting, **more)
    error = np.sqrt((simulated.var(axis=0, ddof=1) + plain.var(axis=0, ddof=1)) / number)
    gap = simulated.mean(axis=0) - plain.mean(axis=0)
    for measure, difference, scale in zip(replay.MEASURES, gap, error, strict=True):
        off = f"{measure} off by {difference / max(scale, 1e-12):.1f} standard errors"
        assert abs(difference) < most * scale + 1e-5, off


@pytest.mark.parametrize("name", [*(pytest.param(n, marks=() if n == "MESS+" else slow) for n in SETTINGS)])
def test_means_are_those_of_plain_loops(name):
    _assert_agree(case("binary"), name, ORDERS)


@slow
@pytest.mark.parametrize("features", ["groups", "none"])
@pytest.mark.parametrize("name", [n for n in SETTINGS if n != "C2MAB-V, asked in turn"])
def test_means_of_fractional_scores(name, features):
    if features == "none" and name.startswith("ACQB"):
        pytest.skip("ACQB needs features")
    _assert_agree(case("fractional", features=features), name, ORDERS)


def test_contexts_are_the_main_directions():
    for features in ("vectors", "groups"):
        of = case(features=features)
        found, expected = Traffic.of(of.table).contexts, of.plain.contexts
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=2e-4 if features == "vectors" else 1e-3)
    np.testing.assert_array_equal(Traffic.of(case(features="none").table).contexts, np.ones((300, 1)))


def test_of_many_models_the_cheapest_and_the_best_are_kept():
    score, cost = np.linspace(0.1, 0.9, 112), np.geomspace(0.1, 5.0, 112)
    names = tuple(f"m{k}" for k in range(112))
    table = RoutingTable(np.tile(score, (40, 1)), np.tile(cost, (40, 1)), names)
    available = Traffic.of(table).table
    assert available.num_models == 16 and (available.models[0], available.models[-1]) == ("m0", "m111")
    # A dominated model is not available before one that is not dominated.
    score[20:] = 0.2
    available = Traffic.of(RoutingTable(np.tile(score, (40, 1)), np.tile(cost, (40, 1)), names)).table
    assert available.num_models == 16 and available.models[0] == "m0" and "m19" in available.models


# --- Points ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated():
    """LinUCB alone over a small grid: points by `simulate`, and curves of the same runs by setting."""
    of, orders = case(queries=60), 6
    traffic = Traffic.of(of.table, of.latency)
    few = dataclasses.replace(STRATEGIES["LinUCB"](traffic, (0.6,)), values=(1.0, 0.1), options={"width": (0.5,)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(simulate.__globals__, "strategies_for", lambda traffic, targets: [few])
        (points,) = simulate(traffic, 0.99, (0.99,), orders=orders)
    every = (of.table.num_queries - 1) // 20
    curves = [totals(of, "LinUCB", orders, record_every=every, weight=w, width=0.5)[0] for w in few.values]
    return points, curves


def _curve(data, name):
    """`[seed, time]`."""
    return np.asarray(data[name], float).reshape(data.sizes["seed"], -1)


def _at_end(data, name, first, begin=None):
    """`[seed]` mean per query of every other order, from a recorded time on."""
    values, answered = (_curve(data, key)[first::2] for key in (name, "answered"))
    if begin is None:
        return values[:, -1] / answered[:, -1]
    return (values[:, -1] - values[:, begin]) / (answered[:, -1] - answered[:, begin])


def test_the_free_first_period_of_a_cascade_is_not_counted(simulated):
    for data in simulated[1]:
        time = np.asarray(data["time"], float)
        assert time[-1] == 59
        np.testing.assert_array_equal(_curve(data, "answered"), np.tile(time, (6, 1)))
        np.testing.assert_array_equal(_curve(data, "calls"), _curve(data, "answered"))


def test_points_choose_by_even_orders_and_judge_by_odd_ones(simulated):
    points, curves = simulated
    assert len(points) == len(curves) == 2
    for point, data in zip(points, curves, strict=True):
        for measures, first in ((point.chosen_by, 0), (point.judged, 1)):
            for name, key in (("quality", "quality"), ("cost", "spent"), ("calls", "calls"), ("latency", "latency")):
                assert getattr(measures, name).value == pytest.approx(_at_end(data, key, first).mean(), rel=1e-5), name


def test_late_is_the_second_half_of_judged_orders(simulated):
    points, curves = simulated
    for point, data in zip(points, curves, strict=True):
        times = np.asarray(data["time"])
        half = int(np.flatnonzero(times >= times[-1] / 2)[0])
        assert abs(times[half] - times[-1] / 2) <= times[0]
        for name, key in (("quality", "quality"), ("cost", "spent")):
            assert getattr(point.late, name).value == pytest.approx(_at_end(data, key, 1, half).mean(), rel=1e-4)


def test_pieces_of_learning_add_up_to_the_whole(simulated):
    points, curves = simulated
    for point, data in zip(points, curves, strict=True):
        ends = np.array(point.learning.queries)
        sizes = np.diff(ends, prepend=0)
        assert ends[-1] == 59
        for pieces, key in ((point.learning.quality, "quality"), (point.learning.cost, "spent")):
            assert sizes @ pieces == pytest.approx(_curve(data, key)[:, -1].mean(), rel=1e-5)


def _judged(kind, queries, orders, rng):
    """Measures of a synthetic policy on a new table of a population of mean quality 0.5, cost 1, calls 1.5 and latency 2.

    kind: "fixed": an order changes nothing. "orders": noise in learning moves all scores of an order. "draws": a coin for each query of
    each order decides between two answers of a query, half of whose variance is the query's.
    """
    of_query = rng.random(queries)
    if kind == "fixed":
        quality = np.tile((of_query < 0.5) * 1.0, (orders, 1))
    elif kind == "orders":
        quality = of_query[None] * 0.6 + 0.2 + 0.03 * rng.normal(size=(orders, 1))
    else:
        both = (rng.random((2, queries)) < of_query) * 1.0
        quality = np.where(rng.random((orders, queries)) < 0.5, *both)
    cost = np.tile(rng.gamma(2.0, 0.5, queries), (orders, 1))
    calls = np.tile(rng.choice([1.0, 2.0], queries), (orders, 1))
    flows = {"quality": quality, "spent": cost, "calls": calls, "latency": 2.0 * cost}
    flows |= {f"{name}_square": flow**2 for name, flow in flows.items()} | {"answered": np.ones_like(quality)}
    curves = {name: flow.cumsum(axis=1)[:, [queries // 2, -1]] for name, flow in flows.items()}
    traffic = Traffic(None, None, None, np.zeros(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Traffic, "num_queries", queries)
        return _measures(curves, traffic)


@pytest.mark.parametrize("orders", [4, 16])
@pytest.mark.parametrize("kind", ["fixed", "orders", "draws"])
def test_standard_errors_cover_the_population(kind, orders):
    rng = np.random.default_rng(5)
    found = [_judged(kind, 200, orders, rng) for _ in range(400)]
    # Errors of few orders are themselves uncertain.
    for name, truth in {"quality": 0.5, "cost": 1.0, "calls": 1.5, "latency": 2.0}.items():
        z = np.array([(getattr(m, name).value - truth) / getattr(m, name).error for m in found])
        assert abs(z.mean()) < 0.25
        assert 0.8 < z.std(ddof=1) < 1.3, f"{name}: {z.std(ddof=1):.2f}"


# --- Between two settings --------------------------------------------------------------------------------------------


def _points_of(qualities, costs, values, option=0.5):
    return {
        (value, option): Point("LinUCB", "online", "", Measures(Estimate(q, 0.0), Estimate(c), Estimate(1.0)), None)
        for q, c, value in zip(qualities, costs, values, strict=True)
    }


@pytest.fixture(scope="module")
def falling():
    """An strategy whose quality falls along its axis: weights 4, 2, 1, 0.5."""
    strategy = STRATEGIES["LinUCB"](Traffic.of(case(queries=60).table), (0.6,))
    return dataclasses.replace(strategy, values=(4.0, 2.0, 1.0, 0.5))


@pytest.mark.parametrize("qualities", [(0.7, 0.8, 0.9, 0.95), (0.1, 0.2, 0.3, 0.4)])
def test_nothing_between_where_all_reach_the_target_or_none_does(falling, qualities):
    assert values_between(falling, _points_of(qualities, (1, 2, 3, 4), falling.values), 0.65) == ()


def test_values_between_the_cheapest_that_reaches_and_its_neighbour_that_does_not(falling):
    found = values_between(falling, _points_of((0.5, 0.6, 0.7, 0.8), (1, 2, 3, 4), falling.values), 0.65)
    assert len(found) == 3 and all(1.0 < v < 2.0 for v in found)
    np.testing.assert_allclose(np.abs(np.diff(np.log(found))), math.log(2) / 4)
    rising = dataclasses.replace(falling, rising=True, values=(0.5, 1.0, 2.0, 4.0))
    found = values_between(rising, _points_of((0.5, 0.6, 0.7, 0.8), (1, 2, 3, 4), rising.values), 0.65)
    assert len(found) == 3 and all(1.0 < v < 2.0 for v in found)
    # To the value zero there is no constant ratio.
    rising = dataclasses.replace(rising, values=(0.0, 1.0))
    found = values_between(rising, _points_of((0.5, 0.7), (1, 2), rising.values), 0.65)
    np.testing.assert_allclose(found, [0.25, 0.5, 0.75])


def test_what_is_between_looks_at_the_chosen_runs_alone(falling):
    """`judged` is None in all of these points: looking at it would raise."""
    points = _points_of((0.5, 0.7, 0.7, 0.8), (1, 3, 2, 4), falling.values)
    assert values_between(falling, points, 0.65) == ()  # The cheapest is 1, whose neighbour reaches it too.
