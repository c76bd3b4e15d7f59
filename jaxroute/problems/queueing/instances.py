"""Functions that build ready-made queues: with random or given parameters, recorded arrivals, or tables of real queries."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from flax import struct
from jax import Array
from numpy.typing import ArrayLike

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf
from jaxroute.data import RoutingTable
from jaxroute.data import standin as standin_tables
from jaxroute.problems.queueing.env import QueueEnv
from jaxroute.problems.queueing.parts.backlog import Backlog
from jaxroute.problems.queueing.sources.arrivals import Arrivals
from jaxroute.problems.queueing.sources.contexts import PoolContexts, RandomContexts, RecordedContexts, RecordedPrompts
from jaxroute.problems.queueing.sources.utility import departure_probability, divide_costs

# Initial number of places for waiting queries if the horizon has more rounds.
_PLACES = 1024
# `fixed_queue` warns if the expected share of valid runs is below this.
_MOSTLY_VALID = 0.99


def backlog_for(horizon: int, limit: int | None = None) -> Backlog:
    """Returns the buffer of waiting queries for a horizon, with `limit` places, by default one for every round but at most 1,024.

    `simulate` repeats a run with twice as many places if it needs more.
    """
    horizon = checks.count("horizon", horizon)
    return Backlog(horizon, min(horizon, _PLACES) if limit is None else checks.count("limit", limit))


@struct.dataclass
class RandomQueues:
    """Sampler of random queues: each run draws its parameters, and then a context in each round, uniformly on `[-spread, spread]^d`.

    It is a function `key -> QueueEnv`; its fields that are numbers can be swept. The defaults are from the paper's figure 2.

    Source: ACQB, section 6.1, which does not specify that every run draws parameters.

    Attributes:
      arrival_rate: `[]` probability lambda of an arrival in a round.
      slack: `[]` epsilon: the best assortment for a query must have a departure rate of at least `arrival_rate + slack`.
      spread: `[]` largest absolute entry of contexts and parameters. With pair features these are also divided by `sqrt(d)`, for norms up to one
        (assumption 1); departure rates are then at most `sigmoid(1)` for one answer, and an `arrival_rate` of about .4 suits. The paper's figures
        have no division.
      num_models, num_offered: number of models, `N`, and number of answers shown in a round, `K` (static).
      dim, horizon: number of features, `d`, and number of rounds, `T` (static).
      limit: initial number of places for waiting queries; None for one per round, at most 1,024 (static).
      pair_features: whether features describe pairs of query and model, with one parameter vector for all models (static).
      mixed: whether assortments may be smaller than `K` (static).
      candidates: largest number of contexts that a round tries, until some assortment's departure rate is at least `arrival_rate + slack` (static).
      arrivals: process of arrivals, `Rates`, `Bursts` or `Slots`; None for independent arrivals with probability `arrival_rate`.
    """

    arrival_rate: Leaf = 0.7
    slack: Leaf = 0.03
    spread: Leaf = 1.0
    num_models: int = struct.field(pytree_node=False, default=5)
    num_offered: int = struct.field(pytree_node=False, default=1)
    dim: int = struct.field(pytree_node=False, default=5)
    horizon: int = struct.field(pytree_node=False, default=1000)
    limit: int | None = struct.field(pytree_node=False, default=None)
    pair_features: bool = struct.field(pytree_node=False, default=False)
    mixed: bool = struct.field(pytree_node=False, default=False)
    candidates: int = struct.field(pytree_node=False, default=64)
    arrivals: Arrivals | None = None

    def check(self) -> None:
        checks.count("dim", self.dim)
        checks.count("num_models", self.num_models)
        checks.count("num_offered", self.num_offered, maximum=self.num_models)
        spread = float(checks.positive("spread", self.spread, ()))
        rate = float(checks.probability("arrival_rate", self.arrival_rate, ()))
        slack = float(checks.non_negative("slack", self.slack, ()))
        if self.pair_features:
            weight = self.num_offered * math.exp(spread**2)
            needed, most = rate + slack, weight / (1.0 + weight)
            if needed >= most:
                raise ValueError(f"arrival_rate + slack must be below {most:.3f} with pair features, got {needed:g}")
        self.of(np.zeros((self.dim,) if self.pair_features else (self.num_models, self.dim), np.float32)).check()

    def of(self, theta: Leaf) -> QueueEnv:
        """Returns the queue with given parameters `theta` of the utilities, `[N, d]`, or `[d]` with `pair_features`."""
        shape = (self.dim,) if self.pair_features else (self.num_models, self.dim)
        if np.shape(theta) != shape:
            raise ValueError(f"theta must have shape {shape}, got {np.shape(theta)}")
        scale = self.spread * (self.dim**-0.5 if self.pair_features else 1.0)
        contexts = RandomContexts(
            theta=theta, arrival_rate=self.arrival_rate, slack=self.slack, scale=scale, candidates=self.candidates
        )
        return QueueEnv(
            contexts=contexts,
            backlog=backlog_for(self.horizon, self.limit),
            num_models=self.num_models,
            num_offered=self.num_offered,
            dim=self.dim,
            pair_features=self.pair_features,
            mixed=self.mixed,
            arrivals=self.arrivals,
        )

    def __call__(self, key: Array) -> QueueEnv:
        scale = self.spread * (self.dim**-0.5 if self.pair_features else 1.0)
        shape = (self.dim,) if self.pair_features else (self.num_models, self.dim)
        return self.of(scale * (2.0 * draws.uniform(key, shape) - 1.0))


def fixed_queue(theta: ArrayLike, *, num_offered: int = 1, horizon: int = 1000, **settings: Any) -> QueueEnv:
    """Builds a queue with random contexts and given parameters of the users' utilities, the same in all runs.

    Warns if many runs are likely to be invalid. A run is invalid if no drawn context of some arrival has a large enough departure rate.

    Args:
      theta: `[N, d]` parameters: the utility of the answer of model `j` to a query with features `x` is `theta_j' x`.
      num_offered, horizon: number of answers shown in a round, `K`, and number of rounds, `T`.
      settings: other fields of `RandomQueues`, except sizes and `pair_features`; for one parameter vector for all models use
        `RandomQueues(pair_features=True, ...).of(theta)`.
    """
    for name in settings:
        checks.one_of("setting", name, ("arrival_rate", "slack", "spread", "limit", "mixed", "candidates", "arrivals"))
    values = checks.numbers("theta", theta, ("N", "d")).astype(np.float32)
    shape = {"num_models": values.shape[0], "dim": values.shape[1]}
    env = RandomQueues(num_offered=num_offered, horizon=horizon, **shape, **settings).of(values)
    env.check()
    found = describe_contexts(env)
    if found["valid"] < _MOSTLY_VALID:
        warnings.warn(
            f"theta serves {100 * found['accepted']:.3g} % of the contexts well enough (departure rates of at least arrival_rate + slack): "
            f"some {100 * (1 - found['valid']):.3g} % of runs of {horizon:,} rounds will have an arrival without a context among the "
            "candidates, and be invalid; lower arrival_rate or slack, or raise candidates",
            stacklevel=2,
        )
    return env


def describe_contexts(queues: RandomQueues | QueueEnv, *, instances: int = 256, contexts: int = 4096) -> dict[str, float]:
    """Computes the share of random contexts that some assortment (set of models shown) serves well enough, to assess a queue before a run.

    A context is accepted if an answer of some assortment satisfies the user with probability at least `arrival_rate + slack`. An arrival tries up to
    `candidates` contexts. If a share `p` is accepted, it finds none with probability `(1 - p)^candidates`; a single such arrival makes its run
    invalid. Source: ACQB, assumption 4 and section 6.1, which does not specify how often contexts are redrawn.

    Args:
      queues: `RandomQueues`, or a queue with given parameters.
      instances: number of random queues (draws of the parameters) if `queues` is a `RandomQueues`.
      contexts: number of contexts for each draw of the parameters.

    Returns:
      "accepted": mean, over these queues, of the share of accepted contexts. "least": smallest such share. "valid": expected share of runs, each over
      the queue's horizon, in which every arrival finds a context.
    """
    if isinstance(queues, RandomQueues):
        envs = [queues(draws.fold_in(draws.key(0), i)) for i in range(checks.count("instances", instances))]
    else:
        envs = [queues]
    number, rng = checks.count("contexts", contexts), np.random.default_rng(0)
    accepted, valid = [], []
    for env in envs:
        source = getattr(env, "contexts", None)
        if not isinstance(source, RandomContexts):
            raise ValueError(f"queues must be RandomQueues or a queue with random contexts, got {checks.show(env)}")
        theta, rate = np.asarray(source.theta, np.float64), float(source.arrival_rate)
        x = float(source.scale) * rng.uniform(-1.0, 1.0, (number, *(env.num_models,) * env.pair_features, env.dim))
        weight = np.sort(np.exp(x @ theta.T), axis=1)[:, env.num_models - env.num_offered :].sum(axis=1)
        share = float((weight / (1.0 + weight) >= rate + float(source.slack)).mean())
        accepted.append(share)
        valid.append((1.0 - rate * (1.0 - share) ** source.candidates) ** env.horizon)
    return {"accepted": float(np.mean(accepted)), "least": min(accepted), "valid": float(np.mean(valid))}


def recorded_queue(
    theta: ArrayLike,
    arrivals: ArrayLike,
    contexts: ArrayLike,
    uniforms: ArrayLike,
    *,
    num_offered: int = 1,
    limit: int | None = None,
    mixed: bool = False,
) -> QueueEnv:
    """Builds a queue with given arrivals, contexts and random numbers of the choices, for replays and comparisons.

    Args:
      theta: `[N, d]` parameters of the utilities `x' theta_j`, or `[d]` for features `x_j` of query-model pairs, `x_j' theta`.
      arrivals: `[T]` bool, whether a query arrives in each round.
      contexts: `[T, d]` features of the arriving queries, or `[T, N, d]` of query-model pairs.
      uniforms: `[T]` numbers on [0, 1) that decide the users' choices.
      num_offered: number of answers shown in a round, `K`.
      limit: initial number of places for waiting queries; None for one per round, at most 1,024.
      mixed: whether assortments may be smaller than `K`.
    """
    values = checks.numbers("theta", theta)
    pair = values.ndim == 1
    if values.ndim not in (1, 2):
        raise ValueError(f"theta must have shape [N, d], or [d] for pair features, got {values.shape}")
    table = checks.numbers("contexts", contexts, ("T", *("N",) * pair, values.shape[-1]))
    horizon, number = table.shape[0], table.shape[1] if pair else values.shape[0]
    uniform_numbers = checks.probability("uniforms", uniforms, (horizon,))
    env = QueueEnv(
        contexts=RecordedContexts(
            theta=values,
            arrivals=checks.booleans("arrivals", arrivals, (horizon,)),
            contexts=np.ascontiguousarray(np.moveaxis(table, 0, -1)),
            uniforms=uniform_numbers,
        ),
        backlog=backlog_for(horizon, limit),
        num_models=number,
        num_offered=num_offered,
        dim=values.shape[-1],
        pair_features=pair,
        mixed=mixed,
    )
    env.check()
    return env


def pool_queue(
    features: ArrayLike,
    probability: ArrayLike,
    *,
    arrival_rate: float,
    num_offered: int = 1,
    horizon: int = 5000,
    names: Sequence[str] = (),
    recorded: tuple[Any, Any, Any] | None = None,
    arrivals: Arrivals | None = None,
) -> QueueEnv:
    """Builds a queue whose queries are prompts from a pool, with given probabilities that a model's answer is accepted.

    Args:
      features: `[P, d]` features of the `P` prompts.
      probability: `[P, N]` probability, in (0, 1), that each model's answer to each prompt is accepted if it is shown alone.
      arrival_rate: probability lambda of an arrival in a round, unless `recorded` or `arrivals` decides.
      num_offered, horizon: number of answers shown in a round, `K`, and number of rounds, `T`.
      names: names of the models.
      recorded: arrivals, prompts and uniform numbers of the choices, three arrays `[T]` that replace random draws; `T` replaces `horizon`.
      arrivals: process of arrivals, `Rates`, `Bursts` or `Slots`; None for those of `recorded`, or independent ones with probability `arrival_rate`.
    """
    table = checks.numbers("features", features, ("P", "d"))
    shape, allowed = (len(table), "N"), "above 0 and below 1"
    accept = checks.bounded("probability", probability, shape, allowed, lambda p: (p > 0) & (p < 1))
    number = accept.shape[1]
    if isinstance(names, str):
        raise ValueError(f"names must be a list of names, got {names!r}")
    checks.count("num_offered", num_offered, maximum=number)
    odds = np.log(accept) - np.log1p(-accept)
    best = np.sort(np.exp(odds), axis=1)[:, -num_offered:].sum(axis=1)
    shared: dict[str, Any] = {
        "features": np.ascontiguousarray(table, np.float32),
        "log_odds": np.ascontiguousarray(odds.T, np.float32),
        "best_rate": (best / (1.0 + best)).astype(np.float32),
        "arrival_rate": np.float32(checks.probability("arrival_rate", arrival_rate, ())),
    }
    if recorded is None:
        contexts: PoolContexts = PoolContexts(**shared)
    else:
        if not isinstance(recorded, Sequence) or len(recorded) != 3:
            raise ValueError(f"recorded must be three arrays: arrivals, prompts and uniforms, got {checks.show(recorded)}")
        came, drawn, uniform_numbers = (
            checks.numbers(name, x) for name, x in zip(("arrivals", "prompts", "uniforms"), recorded, strict=True)
        )
        contexts = RecordedPrompts(**shared, arrivals=came, prompts=drawn, uniforms=uniform_numbers)
        contexts.check()
        contexts = contexts.replace(arrivals=came > 0, prompts=drawn.astype(np.int32))
        horizon = len(uniform_numbers)
    env = QueueEnv(
        contexts=contexts,
        backlog=backlog_for(horizon, horizon),
        num_models=number,
        num_offered=num_offered,
        dim=table.shape[1],
        names=tuple(names),
        arrivals=arrivals,
    )
    env.check()
    return env


def table_queue(
    table: RoutingTable,
    *,
    arrival_rate: float = 0.8,
    cost_weight: float = 0.1,
    low: float = 0.1,
    high: float = 0.99,
    **settings: Any,
) -> QueueEnv:
    """Builds a queue of the queries of a table; scores less weighted costs are converted to probabilities that an answer is accepted.

    Source: ACQB, section 6.2 and appendix B.4.

    Args:
      table: scores, costs and features.
      cost_weight: weight rho of the costs, which are divided by the largest cost.
      low, high: acceptance probability of the worst model's answer to a query, and of the best model's; the same for all queries.
      arrival_rate, settings: probability that a round brings a query, and other arguments of `pool_queue` except `names`.
    """
    checks.instance("table", table, RoutingTable)
    if table.features is None:
        raise ValueError("table must have features: give it some with table.with_features(...)")
    probability, _ = departure_probability(
        table.scores, divide_costs(table.costs), cost_weight=cost_weight, low=low, high=high
    )
    return pool_queue(table.features, probability, arrival_rate=arrival_rate, names=table.models, **settings)


def standin_queue(
    models: Any = "sprout",
    *,
    preset: Literal["clean", "semantic-noise"] = "clean",
    scores: Literal["soft", "binary"] = "soft",
    queries: int = 1000,
    dim: int = 64,
    seed: int = 0,
    **settings: Any,
) -> QueueEnv:
    """Builds a queue of generated queries (`jaxroute.data.standin`), which replace a public data set.

    Args:
      models: pool of models, "routerbench", "sprout" or "embedllm", or two arrays `[N]`, accuracies in (0, 1) and prices.
      preset, scores: "semantic-noise" makes features less informative; "binary" scores are 0 or 1, "soft" ones in [0, 1].
      queries, dim, seed: number of prompts, number of features, and seed of all random draws.
      settings: arguments of `table_queue`, such as `arrival_rate` and `cost_weight`.
    """
    pool, _ = standin_tables(models, preset=preset, scores=scores, queries=queries, offline=1, dim=dim, seed=seed)
    return table_queue(pool, **settings)
