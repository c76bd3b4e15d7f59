"""Online strategies of a comparison: their policies, grids of settings, requirements in production, and the metrics that they share.

The metrics are quality, cost, calls and latency of every served query, read from the recorded table.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.comparison.points import JUDGE, RETRIES
from jaxroute.core import checks
from jaxroute.core.protocols import Transition, Wrapper
from jaxroute.core.types import Leaf, Metric
from jaxroute.problems import cascade, combinatorial, queueing, service, staged
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.parts.indices import StreamingNewton
from jaxroute.problems.cascade.parts.radii import PracticalRadius
from jaxroute.problems.combinatorial import AnyWin

from .traffic import Traffic

# Largest numbers of models that StageRoute deploys, of calls by C2MAB-V per query, of queries in ACQB's pool, and of ACQB's rounds.
_SLOTS, _CALLS, _POOL, _QUEUE_ROUNDS = 6, 3, 1000, 2000
# Largest numbers of principal directions of query features, and of models, for a learned evaluator, whose rounds are slow.
_OUTPUT_DIRECTIONS, _MOST_SIGNALLED = 4, 4
_LOAD = 0.5  # Share of ACQB's rounds in which a query arrives.
_SCORE_SERVED = "the score of the answer that is served"
_SCORE_ALL = "the scores of all models on the few queries that are explored"
_COSTS = "the cost of each call"
_FEATURES = "features of a query before it is served"

_UNITS = {"quality": ("score of the answer", "score"), "spent": ("cost of all calls", "cost")}
_UNITS |= {"calls": ("models called", "calls"), "latency": ("time until the answer", "s")}
_TOTALS = [Metric(name, description, unit, "total") for name, (description, unit) in _UNITS.items()]
METRICS = (
    *(m for total in _TOTALS for m in (total, Metric(f"{total.name}_square", f"square of {total.name}", "", "total"))),
    Metric("answered", "answered queries", "queries", "total"),
    Metric("sent", "queries for which each model is called", "queries", "total", ("model",)),
)


@dataclass(frozen=True)
class Reading:
    """Names of an environment's metrics (also called flows) that tell, for each round, which models were called and which answer was served.

    Attributes:
      called: name of the flow that marks the called models, `[N]`.
      served: name of the flow that marks the served model, `[N]`; None if the best answer of the called models is served.
      in_turn: whether models are called one after the other rather than at the same time.
      row: function `(env, state, feedback, t)` that returns the index, `[]`, of the recorded query of round `t`, where `state` is the state before
        the round; None if the queries follow the random order in `state.source`.
      accepted: name of the flow that is 1 if the served answer is accepted and 0 if it does not count; None if every answer counts.
    """

    called: str
    served: str | None
    in_turn: bool
    row: Callable[..., jax.Array] | None = None
    accepted: str | None = None

    def quality(self, flows: dict[str, jax.Array], called: jax.Array, scores: jax.Array) -> jax.Array:
        """Returns the score `[]` of the served answer, given a round's metrics `flows`, the mask of `called` models and all scores, `[N]` each."""
        if self.served is not None:
            return jnp.sum(jnp.where(flows[self.served] > 0.5, scores, 0.0))
        if self.accepted is None:
            return jnp.max(jnp.where(called, scores, 0.0))
        return jnp.where(flows[self.accepted] > 0.5, jnp.max(jnp.where(called, scores, 0.0)), 0.0)


@struct.dataclass
class Metered(Wrapper):
    """Wraps an environment that serves recorded queries, and adds metrics of quality, cost, calls and latency from the table of these queries.

    Attributes:
      env: the environment.
      scores: `[Q, N]` scores, models in the order of `env`.
      costs: `[Q, N]` costs in the unit of the log, such as USD per query.
      latency: `[Q, N]` latencies in seconds; None counts as 0.
      reading: names of the metrics of `env` that show called models and the served answer (static).
    """

    scores: Leaf
    costs: Leaf
    latency: Leaf | None
    reading: Reading = struct.field(pytree_node=False)

    @property
    def spec(self) -> Any:
        return replace(self.env.spec, metrics=METRICS, overflow_flow=None)

    def step(self, key: jax.Array, state: Any, action: Any, t: jax.Array) -> Transition[Any, Any]:
        after, feedback, flows = self.env.step(key, state, action, t)
        reading = self.reading
        row = state.source[t % self.scores.shape[0]] if reading.row is None else reading.row(self.env, state, feedback, t)
        scores, costs = (jnp.asarray(table, jnp.float32)[row] for table in (self.scores, self.costs))
        called = flows[reading.called] > 0.5
        answered = 1.0 if reading.accepted is None else flows[reading.accepted]
        totals = {"quality": reading.quality(flows, called, scores), "spent": jnp.sum(jnp.where(called, costs, 0.0))}
        latency = jnp.zeros(())
        if self.latency is not None:
            seconds = jnp.where(called, jnp.asarray(self.latency, jnp.float32)[row], 0.0)
            latency = jnp.sum(seconds) if reading.in_turn else jnp.max(seconds)
        totals |= {"calls": jnp.sum(called.astype(jnp.float32)), "latency": latency}
        squares = {f"{name}_square": jnp.square(value) for name, value in totals.items()}
        counts = {"answered": jnp.asarray(answered, jnp.float32), "sent": called.astype(jnp.float32)}
        return after, feedback, totals | squares | counts | {name: flows[name] for name in self.env.spec.zero_flows}


ROUTED = Reading("pulls", "pulls", in_turn=True)
EXPLORED = Reading("called_share", "served_share", in_turn=False)
AT_ONCE = Reading("pulls", None, in_turn=False)
IN_TURN = Reading("pulls", None, in_turn=True)
OPENED = Reading("opened", "deployed", in_turn=True, row=lambda env, state, feedback, t: env.contexts.row(state, t))
# Only accepted answers count, and all answers are paid.
RETRIED = Reading("offered_share", None, True, lambda env, state, feedback, t: feedback.prompt, "departures")


@dataclass(frozen=True)
class OnlineStrategy:
    """Online policy with its environment and a grid of settings, for a comparison.

    A setting consists of one parameter of the environment, such as its budget, and any number of parameters of the policy.

    Attributes:
      name: name of the strategy.
      environment: function that makes the environment from the parameter named `axis`.
      axis: name of the environment's parameter.
      values: values of this parameter in the first grid.
      policy: function that makes the policy from the parameters in `options`.
      options: values of each parameter of the policy.
      words: function of all parameters, by name, that describes the setting.
      needs: requirements in production as texts, for example "the cost of each call".
      rounds: number of rounds of a run; usually the number of queries.
      rising: whether quality increases with the environment's parameter; a finer grid then lies below the value that meets the target, else above it.
      pool: size of the pool from which the queries of a run are drawn with replacement; None if each run serves every query once. With a pool
        there is no finer grid, because a simulation takes long.
      given: Python code of further arguments that `setting_of` needs for this strategy, such as ", signals=log.signals".
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
    rising: bool = False
    pool: int | None = None
    given: str = ""

    @property
    def num_grids(self) -> int:
        """Largest number of grids of settings to simulate: 2 (the second is finer, near the target quality), or 1 if there is a pool of queries."""
        return 1 if self.pool else 2


@dataclass(frozen=True)
class _ParallelWin(AnyWin):
    """Reward `AnyWin` for models that are all called at the same time: the best answer is served, and all are paid even if the first one succeeds."""

    cascade = False


def _metered(traffic: Traffic, env: Any, reading: Reading) -> Metered:
    """Wraps `env` to add metrics of quality, cost, calls and latency from the table of `traffic`; `reading` names the metrics of `env` for them."""
    table = traffic.table
    places = [table.models.index(name) for name in env.spec.model_names]
    latency = None if traffic.latency is None else np.asarray(traffic.latency, np.float32)[:, places]
    return Metered(env, table.scores[:, places], table.costs[:, places], latency, reading)


def _budgets(traffic: Traffic, targets: Sequence[float]) -> tuple[float, ...]:
    """Returns ascending budgets, in mean calls of the most expensive model: the least cost at which a random mixture reaches each target."""
    least = float(traffic.unit.mean_costs().min())
    return tuple(sorted({max(traffic.blind_cost(target), least * 1.001) for target in targets}))


def _stageroute(traffic: Traffic, targets: Sequence[float]) -> OnlineStrategy:
    number, rounds = traffic.unit.num_models, traffic.num_queries
    slots = min(_SLOTS, max(2, number - 1), number)
    sizes = {"max_deployed": slots, "stage_length": max(10, rounds // 20), "horizon": rounds}
    market = functools.partial(staged.table_market, traffic.unit, one_pass=True, **sizes)
    words, budgets = f"{slots} of {number} models deployed", _budgets(traffic, targets)
    return _with_budget(traffic, "StageRoute", market, ROUTED, budgets, staged.StageRoute(), words, _SCORE_SERVED)


def _with_budget(
    traffic: Traffic, name: str, env: Any, reading: Reading, budgets: Sequence[float], policy: Any, words: str, score: str
) -> OnlineStrategy:
    most_expensive = float(traffic.table.mean_costs().max())  # The unit of budgets.

    def described(budget: float) -> str:
        return ", ".join(filter(None, (f"budget {budget * most_expensive:.3g} {traffic.table.cost_unit}", words)))

    def environment(budget: float) -> Metered:
        return _metered(traffic, env(budget=budget), reading)

    needs, rounds = (score, _COSTS), traffic.num_queries
    return OnlineStrategy(name, environment, "budget", tuple(budgets), lambda: policy, {}, described, needs, rounds, True)


def _messplus(traffic: Traffic, targets: Sequence[float]) -> OnlineStrategy:
    rounds = traffic.num_queries
    # With V = v0 sqrt(T), the paper's bounds on excess cost and on violation both vanish.
    weights = tuple(float(v0 * np.sqrt(rounds / 100.0)) for v0 in (0.1, 0.3, 1.0, 3.0))
    return OnlineStrategy(
        "MESS+",
        lambda alpha: _metered(traffic, service.table_service(traffic.unit, alpha=alpha), EXPLORED),
        "alpha",
        tuple(sorted({float(np.clip(target, 0.01, 0.999)) for target in targets})),
        # The cost of a call is unknown in advance, so the policy uses the mean of past calls.
        lambda V, c: service.MessPlus(V=V, c=c, costs=service.RunningMeanCost()),
        {"V": weights, "c": (0.1, 0.4)},
        lambda alpha, V, c: f"alpha = {alpha:.3g}, V = {V:.3g} per mean call of the most expensive model, c = {c:.3g}",
        (_FEATURES, _SCORE_ALL, _SCORE_SERVED, _COSTS),
        rounds,
        True,
    )


def _c2mabv(
    traffic: Traffic, name: str, reward: Any, size: int, budgets: Sequence[float], reading: Reading
) -> OnlineStrategy:
    """Makes a strategy in which C2MAB-V, rewarded by `reward`, calls at most `size` models per query. It has a setting for each budget."""
    cloud = functools.partial(combinatorial.table_cloud, traffic.unit, reward=reward, size=size)
    words, score = (f"at most {size} models a query", JUDGE) if size > 1 else ("", _SCORE_SERVED)
    policy = combinatorial.C2MABV(delta=1.0 / traffic.num_queries)
    return _with_budget(traffic, name, cloud, reading, budgets, policy, words, score)


def _several(traffic: Traffic, name: str, reward: AnyWin, reading: Reading) -> OnlineStrategy:
    costs = np.sort(traffic.unit.mean_costs())
    size = min(_CALLS, len(costs))
    budgets = np.geomspace(1.001 * costs[0], costs[-size:].sum(), 7).tolist()
    return _c2mabv(traffic, name, reward, size, budgets, reading)


def _cascade(
    traffic: Traffic, name: str, policy: Any, options: Mapping[str, tuple[float, ...]], words: Any, needs: Any, **more: Any
) -> OnlineStrategy:
    # `[Q, N, d]` features of the answers, from which scores are learned; all else in `more` are fields of `OnlineStrategy`.
    unit, features = traffic.unit, more.pop("features", None)
    about: dict[str, Any] = {"names": unit.models} | ({} if features is None else {"features": features})

    def environment(weight: float) -> Metered:
        env = cascade.query_cascade(unit.scores, unit.costs, traffic.contexts, cost_weight=weight, **about)
        return _metered(traffic, env, OPENED)

    def described(weight: float, **setting: float) -> str:
        return f"a mean call of the most expensive model counts {weight:.3g} of a score, {words(**setting)}"

    # At the largest weight the cheapest call counts as much as half a score; at the smallest, even the most expensive counts almost nothing.
    largest = float(np.clip(0.5 / unit.mean_costs().min(), 1.0, 100.0))
    weights = tuple(np.geomspace(largest, 0.01, 9).tolist())
    rounds = traffic.num_queries - 1
    return OnlineStrategy(name, environment, "weight", weights, policy, options, described, needs, rounds, **more)


def _cosmos(traffic: Traffic, _: Sequence[float]) -> OnlineStrategy:
    def policy(bonus: float) -> cascade.COSMOS:
        # With a small exploration bonus, the better model may never be found unless all models answer some queries first.
        warm = WarmUp(10 if bonus < 0.1 else 0)
        return cascade.COSMOS(fit=StreamingNewton(), radius=PracticalRadius(bonus, 0.0, 0.0), exploration=warm)

    def words(bonus: float) -> str:
        return f"b = {bonus:.3g}{', 10 queries to all models first' if bonus < 0.1 else ''}"

    needs = (JUDGE, _COSTS) if traffic.contexts.shape[1] == 1 else (JUDGE, _COSTS, _FEATURES)
    return _cascade(traffic, "COSMOS", policy, {"bonus": (0.03, 0.1)}, words, needs)


def _cosmos_by_signals(traffic: Traffic, _: Sequence[float]) -> OnlineStrategy | None:
    unit, signals = traffic.unit, traffic.signals
    if signals is None or unit.num_models > _MOST_SIGNALLED:
        return None  # Without signals of its quality, an answer carries no more information than its query.
    number = unit.num_models
    model = np.broadcast_to(np.eye(number), (traffic.num_queries, number, number))
    directions = traffic.contexts[:, None, 1 : 1 + _OUTPUT_DIRECTIONS]
    of_query = np.broadcast_to(directions, (traffic.num_queries, number, directions.shape[2]))
    # The signal of a model is a feature of that model alone.
    outputs = np.concatenate([model, model * signals[:, :, None], of_query], axis=-1)
    outputs = outputs[..., np.ptp(outputs.reshape(-1, outputs.shape[-1]), axis=0) > 0]

    def policy(bonus: float) -> cascade.COSMOS:
        return cascade.COSMOS(radius=PracticalRadius(bonus, 0.03, 0.3))

    needs = (_SCORE_SERVED, "self-reported quality of answers (confidence)", _COSTS)
    more = {"features": outputs, "given": ", signals=log.signals"}
    name = "COSMOS, learned evaluator"
    return _cascade(traffic, name, policy, {"bonus": (0.1,)}, lambda bonus: f"b = {bonus:.3g}", needs, **more)


def _linucb(traffic: Traffic, _: Sequence[float]) -> OnlineStrategy:
    needs = (_SCORE_SERVED, _COSTS) if traffic.contexts.shape[1] == 1 else (_SCORE_SERVED, _COSTS, _FEATURES)
    values, words = {"width": (0.1, 0.5)}, lambda width: f"width {width:.3g}"
    return _cascade(traffic, "LinUCB", lambda width: cascade.LinUCB(alpha=width), values, words, needs)


def _acqb(traffic: Traffic, _: Sequence[float]) -> OnlineStrategy | None:
    if traffic.contexts.shape[1] == 1:
        return None  # ACQB can learn only from features of queries.
    rows = np.random.default_rng(0).permutation(traffic.num_queries)[:_POOL]
    contexts, latency = traffic.contexts[rows], None if traffic.latency is None else traffic.latency[rows]
    unit = traffic.unit.subset(rows=rows).with_features(contexts)
    pool = Traffic(traffic.table.subset(rows=rows), unit, contexts, latency)
    rounds = min(_QUEUE_ROUNDS, int(2 * traffic.num_queries))
    queue = functools.partial(queueing.table_queue, pool.unit, arrival_rate=_LOAD, horizon=rounds)
    return OnlineStrategy(
        "ACQB, with retries",
        lambda weight: _metered(pool, queue(cost_weight=weight), RETRIED),
        "weight",
        (3.0, 1.0, 0.3, 0.1, 0.0),
        lambda: queueing.ACQB(curvature=0.05, ridge=0.1, c1=2.0),
        {},
        lambda weight: f"rho = {weight:.3g}, a query in {100 * _LOAD:g} % of the rounds",
        (RETRIES, _FEATURES),
        rounds,
        pool=len(rows),
    )


STRATEGIES: dict[str, Callable[[Traffic, Sequence[float]], OnlineStrategy | None]]
STRATEGIES = {"StageRoute": _stageroute, "MESS+": _messplus}
STRATEGIES |= {
    "C2MAB-V, one answer": lambda t, targets: _c2mabv(t, "C2MAB-V, one answer", "suc", 1, _budgets(t, targets), AT_ONCE),
    "C2MAB-V, best of several": lambda t, _: _several(t, "C2MAB-V, best of several", _ParallelWin(), AT_ONCE),
    # A cascade for any win stops at the first success, which fractional scores do not define.
    "C2MAB-V, asked in turn": lambda t, _: _several(t, "C2MAB-V, asked in turn", AnyWin(), IN_TURN) if t.binary else None,
}
STRATEGIES |= {"COSMOS": _cosmos, "COSMOS, learned evaluator": _cosmos_by_signals}
STRATEGIES |= {"LinUCB": _linucb, "ACQB, with retries": _acqb}


def strategies_for(traffic: Traffic, targets: Sequence[float]) -> list[OnlineStrategy]:
    """Returns the strategies that can run on the queries of `traffic`, with grids of settings for the given target qualities."""
    made = (make(traffic, targets) for make in STRATEGIES.values())
    return [strategy for strategy in made if strategy is not None]


def setting_of(
    table: Any, name: str, *, latency: np.ndarray | None = None, signals: np.ndarray | None = None, **setting: float
) -> tuple[Metered, Any, int]:
    """Returns environment, policy and number of rounds of an online strategy at one setting, ready for `jaxroute.simulate`.

    Args:
      table: a `RoutingTable`, as in `jaxroute.data.read_log(file).table`.
      name: name of the strategy, one of `STRATEGIES`.
      latency: `[Q, N]` seconds, or None.
      signals: `[Q, N]` self-reported quality of answers as in the log, such as confidence, or None.
      setting: value of each parameter of the environment and of the policy, by name; `Point.further` has code with such a call.

    Raises:
      ValueError: the name is unknown, the strategy does not suit the table, or the parameters are not those of the strategy.
    """
    traffic = Traffic.of(table, latency, signals)
    strategy = STRATEGIES[checks.one_of("name", name, STRATEGIES)](traffic, (0.5,))
    if strategy is None:
        raise ValueError(f"name must be a strategy that suits the table, got {name!r}")
    expected = {strategy.axis, *strategy.options}
    if set(setting) != expected:
        given = ", ".join(sorted(setting)) or "none"
        raise ValueError(f"setting must give {', '.join(sorted(expected))} of {name}, got {given}")
    options = {key: setting[key] for key in inspect.signature(strategy.policy).parameters}
    return strategy.environment(setting[strategy.axis]), strategy.policy(**options), strategy.rounds
