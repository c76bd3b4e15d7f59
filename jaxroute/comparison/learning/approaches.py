"""Which policies are compared, over which settings, and what each of them asks for in production."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxroute.comparison.points import JUDGE, RETRIES
from jaxroute.core import checks
from jaxroute.problems import cascade, combinatorial, queueing, service, staged
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.parts.radii import PracticalRadius
from jaxroute.problems.cascade.parts.streaming import StreamingNewton
from jaxroute.problems.combinatorial import AnyWin

from . import metered
from .metered import Metered, Reading
from .traffic import Traffic

# Slots of StageRoute, models that C2MAB-V asks for one query, prompts of ACQB's pool and its rounds.
_SLOTS, _ASKED, POOL, _QUEUE_ROUNDS = 6, 3, 1000, 2000
# Directions of queries that an evaluator of answers sees, and models that it tells apart, at most: its rounds take long.
_OUTPUT_DIRECTIONS, _MOST_SIGNALLED = 4, 4
# Rounds that bring a query of ACQB.
_LOAD = 0.5
_SCORE_SERVED = "the score of the answer that is served"
_SCORE_ALL = "the scores of all models on the few queries that are explored"
_COSTS = "the cost of each call"
_FEATURES = "features of a query before it is served"


@dataclass(frozen=True)
class Approach:
    """A policy that learns, over a grid of its settings.

    Attributes:
      name: of the approach.
      environment: makes the queries to be served, of the setting `axis` alone.
      axis: name of that setting.
      values: of that setting, those of a first look.
      policy: makes the policy, of the settings in `options`.
      options: further settings with their values.
      words: a setting in words, of all settings by name.
      needs: what it asks for in production.
      rounds: to be played: each query once.
      rising: whether larger values of `axis` go with higher quality.
      given: what `setting_of` must be given besides, as a person writes it.
    """

    name: str
    environment: Callable[..., Metered]
    axis: str
    values: tuple[float, ...]
    policy: Callable[..., Any]
    options: Mapping[str, tuple[float, ...]]
    words: Callable[..., str]
    needs: tuple[str, ...]
    rounds: int
    rising: bool
    given: str = ""


@dataclass(frozen=True)
class _AtOnce(AnyWin):
    """Any win, all models of the set asked at once."""

    cascade = False


def _amount(value: float, traffic: Traffic) -> str:
    """A cost in mean calls of the dearest model, in the table's unit."""
    return f"{value * float(traffic.table.mean_costs().max()):.3g} {traffic.table.cost_unit}"


def _metered(traffic: Traffic, env: Any, reading: Reading, order: Sequence[str] = ()) -> Metered:
    """An environment with the tables it is measured by, its models in another order perhaps."""
    table = traffic.table
    places = [table.models.index(name) for name in order] if order else list(range(table.num_models))
    latency = None if traffic.latency is None else np.asarray(traffic.latency, np.float32)[:, places]
    names = tuple(table.models[place] for place in places)
    return Metered(env, table.scores[:, places], table.costs[:, places], latency, reading, names)


def _budgets(traffic: Traffic, targets: Sequence[float]) -> tuple[float, ...]:
    """What the best mixture that does not look at queries costs at each quality."""
    least = float(traffic.unit.mean_costs().min())
    return tuple(sorted({max(traffic.blind_cost(target), least * 1.001) for target in targets}))


def _stageroute(traffic: Traffic, targets: Sequence[float]) -> Approach:
    number, rounds = traffic.unit.num_models, traffic.num_queries
    slots = min(_SLOTS, max(2, number - 1), number)

    def environment(budget: float) -> Metered:
        market = staged.table_market(
            traffic.unit,
            max_deployed=slots,
            stage_length=max(10, rounds // 20),
            horizon=rounds,
            budget=budget,
            one_pass=True,
        )
        return _metered(traffic, market, metered.ROUTED)

    return Approach(
        "StageRoute",
        environment,
        "budget",
        _budgets(traffic, targets),
        lambda: staged.StageRoute(),
        {},
        lambda budget: f"budget {_amount(budget, traffic)}, {slots} of {number} models deployed",
        (_SCORE_SERVED, _COSTS),
        rounds,
        True,
    )


def _messplus(traffic: Traffic, targets: Sequence[float]) -> Approach:
    rounds = traffic.num_queries
    # V = v0 sqrt(T) lets both gaps of the theory vanish.
    weights = tuple(float(v0 * np.sqrt(rounds / 100.0)) for v0 in (0.1, 0.3, 1.0, 3.0))

    def environment(alpha: float) -> Metered:
        env = service.table_service(traffic.unit, alpha=alpha)
        return _metered(traffic, env, metered.EXPLORED, env.names)

    return Approach(
        "MESS+",
        environment,
        "alpha",
        tuple(sorted({float(np.clip(target, 0.01, 0.999)) for target in targets})),
        # What a call will cost is not known before it is made: the means of those made stand in for it.
        lambda V, c: service.MessPlus(V=V, c=c, costs=service.RunningMeanCost()),
        {"V": weights, "c": (0.1, 0.4)},
        lambda alpha, V, c: f"alpha = {alpha:.3g}, V = {V:.3g} per mean call of the dearest model, c = {c:.3g}",
        (_FEATURES, _SCORE_ALL, _SCORE_SERVED, _COSTS),
        rounds,
        True,
    )


def _c2mabv(traffic: Traffic, name: str, reward: Any, size: int, budgets: Sequence[float], reading: Reading) -> Approach:
    judged = (JUDGE,) if size > 1 else ()

    def environment(budget: float) -> Metered:
        env = combinatorial.table_cloud(traffic.unit, reward=reward, budget=budget, size=size)
        return _metered(traffic, env, reading)

    return Approach(
        name,
        environment,
        "budget",
        tuple(budgets),
        lambda: combinatorial.C2MABV(delta=1.0 / traffic.num_queries),
        {},
        lambda budget: f"budget {_amount(budget, traffic)}" + (f", at most {size} models a query" if size > 1 else ""),
        (*judged, *(() if judged else (_SCORE_SERVED,)), _COSTS),
        traffic.num_queries,
        True,
    )


def _one_answer(traffic: Traffic, targets: Sequence[float]) -> Approach:
    return _c2mabv(traffic, "C2MAB-V, one answer", "suc", 1, _budgets(traffic, targets), metered.AT_ONCE)


def _of_several(traffic: Traffic) -> tuple[int, np.ndarray]:
    """Models of a set, and budgets from the cheapest model to the dearest such set."""
    costs = np.sort(traffic.unit.mean_costs())
    size = min(_ASKED, len(costs))
    return size, np.geomspace(1.001 * costs[0], costs[-size:].sum(), 7)


def _best_of_several(traffic: Traffic, targets: Sequence[float]) -> Approach:
    del targets
    size, budgets = _of_several(traffic)
    return _c2mabv(traffic, "C2MAB-V, best of several", _AtOnce(), size, budgets.tolist(), metered.AT_ONCE)


def _asked_in_turn(traffic: Traffic, targets: Sequence[float]) -> Approach | None:
    del targets
    if not traffic.binary:
        return None  # A cascade for any win stops at the first success: scores in between are none.
    size, budgets = _of_several(traffic)
    return _c2mabv(traffic, "C2MAB-V, asked in turn", AnyWin(), size, budgets.tolist(), metered.IN_TURN)


def _weights(traffic: Traffic) -> tuple[float, ...]:
    """Weights of costs from where a call of the cheapest model counts half of a score to where the dearest counts next to nothing."""
    most = float(np.clip(0.5 / traffic.unit.mean_costs().min(), 1.0, 100.0))
    return tuple(np.geomspace(most, 0.01, 9).tolist())


def _opened(traffic: Traffic) -> Callable[[float], Metered]:
    def environment(weight: float) -> Metered:
        unit = traffic.unit
        env = cascade.query_cascade(unit.scores, unit.costs, traffic.contexts, cost_weight=weight, names=unit.models)
        return _metered(traffic, env, metered.OPENED)

    return environment


def _cosmos(traffic: Traffic, targets: Sequence[float]) -> Approach:
    del targets

    def policy(bonus: float) -> cascade.COSMOS:
        # A small bonus may never find the better model: it begins with queries that all models answer.
        warm = WarmUp(10 if bonus < 0.1 else 0)
        return cascade.COSMOS(fit=StreamingNewton(), radius=PracticalRadius(bonus, 0.0, 0.0), exploration=warm)

    return Approach(
        "COSMOS",
        _opened(traffic),
        "weight",
        _weights(traffic),
        policy,
        {"bonus": (0.03, 0.1)},
        lambda weight, bonus: (
            f"a mean call of the dearest model counts {weight:.3g} of a score, b = {bonus:.3g}{', 10 queries asked of all first' if bonus < 0.1 else ''}"
        ),
        (JUDGE, _COSTS) if traffic.contexts.shape[1] == 1 else (JUDGE, _COSTS, _FEATURES),
        traffic.num_queries - 1,
        False,
    )


def _cosmos_by_signals(traffic: Traffic, targets: Sequence[float]) -> Approach | None:
    del targets
    unit, signals = traffic.unit, traffic.signals
    if signals is None or unit.num_models > _MOST_SIGNALLED:
        return None  # Without a sign of its quality an answer tells the evaluator nothing that the query did not.
    number = unit.num_models
    model = np.broadcast_to(np.eye(number), (traffic.num_queries, number, number))
    directions = traffic.contexts[:, None, 1 : 1 + _OUTPUT_DIRECTIONS]
    of_query = np.broadcast_to(directions, (traffic.num_queries, number, directions.shape[2]))
    # What a model says of its answer counts for that model alone.
    outputs = np.concatenate([model, model * signals[:, :, None], of_query], axis=-1)
    outputs = outputs[..., np.ptp(outputs.reshape(-1, outputs.shape[-1]), axis=0) > 0]

    def environment(weight: float) -> Metered:
        options = {"cost_weight": weight, "features": outputs, "names": unit.models}
        return _metered(traffic, cascade.query_cascade(unit.scores, unit.costs, traffic.contexts, **options), metered.OPENED)

    return Approach(
        "COSMOS, learned evaluator",
        environment,
        "weight",
        _weights(traffic),
        lambda bonus: cascade.COSMOS(radius=PracticalRadius(bonus, 0.03, 0.3)),
        {"bonus": (0.1,)},
        lambda weight, bonus: f"a mean call of the dearest model counts {weight:.3g} of a score, b = {bonus:.3g}",
        (_SCORE_SERVED, "what models say of their own answers (confidence)", _COSTS),
        traffic.num_queries - 1,
        False,
        ", signals=log.signals",
    )


def _linucb(traffic: Traffic, targets: Sequence[float]) -> Approach:
    del targets
    return Approach(
        "LinUCB",
        _opened(traffic),
        "weight",
        _weights(traffic),
        lambda width: cascade.LinUCB(alpha=width),
        {"width": (0.1, 0.5)},
        lambda weight, width: f"a mean call of the dearest model counts {weight:.3g} of a score, width {width:.3g}",
        (_SCORE_SERVED, _COSTS) if traffic.contexts.shape[1] == 1 else (_SCORE_SERVED, _COSTS, _FEATURES),
        traffic.num_queries - 1,
        False,
    )


def _acqb(traffic: Traffic, targets: Sequence[float]) -> Approach | None:
    del targets
    if traffic.contexts.shape[1] == 1:
        return None  # Without features of queries there is nothing that it could learn.
    rows = np.random.default_rng(0).permutation(traffic.num_queries)[:POOL]
    pool = Traffic(
        traffic.table.subset(rows=rows),
        traffic.unit.subset(rows=rows).with_features(traffic.contexts[rows]),
        traffic.contexts[rows],
        None if traffic.latency is None else traffic.latency[rows],
    )
    rounds = min(_QUEUE_ROUNDS, int(2 * traffic.num_queries))

    def environment(weight: float) -> Metered:
        env = queueing.table_queue(pool.unit, arrival_rate=_LOAD, horizon=rounds, cost_weight=weight)
        return _metered(pool, env, metered.RETRIED)

    return Approach(
        "ACQB, with retries",
        environment,
        "weight",
        (3.0, 1.0, 0.3, 0.1, 0.0),
        lambda: queueing.ACQB(curvature=0.05, ridge=0.1, c1=2.0),
        {},
        lambda weight: f"rho = {weight:.3g}, a query in {100 * _LOAD:g} % of the rounds",
        (RETRIES, _FEATURES),
        rounds,
        False,
    )


APPROACHES: dict[str, Callable[[Traffic, Sequence[float]], Approach | None]] = {
    "StageRoute": _stageroute,
    "MESS+": _messplus,
    "C2MAB-V, one answer": _one_answer,
    "C2MAB-V, best of several": _best_of_several,
    "C2MAB-V, asked in turn": _asked_in_turn,
    "COSMOS": _cosmos,
    "COSMOS, learned evaluator": _cosmos_by_signals,
    "LinUCB": _linucb,
    "ACQB, with retries": _acqb,
}


def approaches_for(traffic: Traffic, targets: Sequence[float]) -> list[Approach]:
    """Those that suit the queries, for some targets of quality."""
    made = (make(traffic, targets) for make in APPROACHES.values())
    return [approach for approach in made if approach is not None]


def setting_of(
    table: Any, name: str, *, latency: np.ndarray | None = None, signals: np.ndarray | None = None, **setting: float
) -> tuple[Metered, Any, int]:
    """An approach at one setting, to be played further with `jaxroute.simulate`.

    Args:
      table: a `RoutingTable`, as in `jaxroute.data.read_log(file).table`.
      name: of the approach, one of `APPROACHES`.
      latency: `[Q, N]` seconds, or None.
      signals: `[Q, N]` what models say of their answers, or None.
      setting: its settings by name, as the report prints them.

    Returns:
      Environment, policy, and rounds in which each query is served once.

    Raises:
      ValueError: the name is unknown, the approach does not suit the table, or the settings are not its own.
    """
    traffic = Traffic.of(table, latency, signals)
    approach = APPROACHES[checks.one_of("name", name, APPROACHES)](traffic, (0.5,))
    if approach is None:
        raise ValueError(f"name must be an approach that suits the table, got {name!r}")
    expected = {approach.axis, *approach.options}
    if set(setting) != expected:
        raise ValueError(
            f"setting must give {', '.join(sorted(expected))} of {name}, got {', '.join(sorted(setting)) or 'none'}"
        )
    options = {key: setting[key] for key in inspect.signature(approach.policy).parameters}
    return approach.environment(setting[approach.axis]), approach.policy(**options), approach.rounds
