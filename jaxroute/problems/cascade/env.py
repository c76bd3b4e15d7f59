"""Environment of the cascade: models are boxes that cost something to open; one opened output is deployed and earns its score."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics, xla
from jaxroute.core.protocols import Transition
from jaxroute.core.types import Leaf, PyTree
from jaxroute.estimators.links import IDENTITY, LOGISTIC, Link
from jaxroute.problems.cascade.parts.search import best_opened, opened_in_order, seen_outputs
from jaxroute.problems.cascade.sources.boxes import Boxes, check_feature
from jaxroute.problems.cascade.sources.contexts import Contexts, RecordedContexts
from jaxroute.problems.cascade.sources.features import OutputFeatures, reward_of
from jaxroute.problems.cascade.types import (
    ZERO_FLOWS,
    CascadeSpec,
    Feedback,
    Observation,
    Outputs,
    Search,
    SearchResult,
    metrics_in,
)

# Regret below this is zero up to the rounding of float32.
_ROUNDING = 1e-5


@struct.dataclass
class Period:
    """Random draws of one period: a request, and the output and cost of each of `K` models (boxes) if it were called.

    Attributes:
      psi: `[m]` features of the request.
      index: `[K]` true reservation indices.
      mean_cost: `[K]` mean costs, in units of utility.
      score: `[K]` true scores.
      cost: `[K]` costs, in units of utility.
      features: `[K, d]` features of the outputs, None if scores are seen.
      coin: `[]` uniform number on [0, 1) that decides the reward of the deployed output.
    """

    psi: Array
    index: Array
    mean_cost: Array
    score: Array
    cost: Array
    features: Array | None
    coin: Array


@struct.dataclass
class CascadeEnv:
    """Environment of `K` models, the boxes: for each request a policy opens some in turn, sees their costs afterwards, and deploys one output.

    In a period the features of the request are seen, the policy's search opens boxes one by one and stops, one of the opened outputs is deployed, and
    its noisy reward is seen. Nothing is learned about unopened boxes, nor about the reward of outputs that were not deployed. In the first
    period all boxes are opened, and no output is deployed; it only prepares the policy, and its metrics are not part of the results.

    Regret is the utility of the oracle minus that of the policy, measured in three ways with the same mean. For `regret` each cost is replaced by the
    excess `(score - index)^+`, which has the same mean; this regret is never negative, and zero for the oracle. `realised_regret` and
    `mean_cost_regret` compare with the oracle's search on the same outputs, by costs and by mean costs. Source: Belloni, Chen and Wei (2026),
    sections 2 and 3, eqs. (2) and (3).

    Attributes:
      contexts: distribution of requests.
      boxes: distribution of scores and costs.
      index: `[K, m]` coefficients of the base index (the reservation index at cost weight 1), eq. (5).
      evaluator: distribution of the outputs' features, from which scores must be learned, such as `ScoredFeatures`; None if scores are seen.
      cost_weight: `[]` utility of a unit of cost.
      bend: `[]` factor of a nonlinear term `bend cos(3 x_1 + a)` in the base index of box `a`, with the request's feature `x_1`; None for 0.
      index_link: link function, which maps the linear function of the features to the base index (static).
      shows_all: whether unopened outputs are shown after the period (static).
      names: names of the models (static).
      cost_unit: unit of cost, for tables and axes (static).
      context_bound, feature_bound: largest norms of a request's and of an output's features; constructors of cascades compute them (static).
    """

    contexts: Contexts
    boxes: Boxes
    index: Leaf
    evaluator: OutputFeatures | None = None
    cost_weight: Leaf = 1.0
    bend: Leaf | None = None
    index_link: Link = struct.field(pytree_node=False, default=IDENTITY)
    shows_all: bool = struct.field(pytree_node=False, default=False)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())
    cost_unit: str = struct.field(pytree_node=False, default="")
    context_bound: float = struct.field(pytree_node=False, default=1.0)
    feature_bound: float = struct.field(pytree_node=False, default=1.0)

    @property
    def spec(self) -> CascadeSpec:
        evaluator = self.evaluator
        return CascadeSpec(
            num_models=np.shape(self.index)[-2],
            model_names=self.names,
            free_rounds=1,
            metrics=metrics_in(self.cost_unit, joint=getattr(self.boxes, "joint", False)),
            zero_flows=ZERO_FLOWS,
            context_dim=np.shape(self.index)[-1],
            feature_dim=0 if evaluator is None else evaluator.dim,
            index_link=self.index_link,
            score_link=LOGISTIC if evaluator is None else evaluator.link,
            context_bound=self.context_bound,
            feature_bound=self.feature_bound,
            shows_all=self.shows_all,
        )

    def check(self) -> None:
        checks.part("contexts", self.contexts, "draw", "UniformContexts(...)")
        checks.part("boxes", self.boxes, "draw", "UniformBoxes(...)")
        if self.evaluator is not None:
            checks.part("evaluator", self.evaluator, "draw", "ScoredFeatures(...)")
        number, dim = self.boxes.num_boxes, self.contexts.dim
        checks.numbers("index", self.index, (number, dim))
        checks.positive("cost_weight", self.cost_weight, ())
        if self.bend is not None:
            checks.numbers("bend", self.bend, ())
        checks.instance("index_link", self.index_link, Link)
        listed = isinstance(self.names, Sequence) and not isinstance(self.names, str)
        if not listed or not all(isinstance(name, str) for name in self.names):
            raise ValueError(f"names must be a list of names, got {checks.show(self.names)}")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"names must differ from each other, got {checks.show(self.names)}")
        if len(self.names) not in (0, number):
            raise ValueError(f"names must have one name per model ({number}), got {len(self.names)}")
        check_feature("bend", self.bend, dim)
        boxes: Any = self.boxes
        if hasattr(boxes, "check_spec"):
            boxes.check_spec(dim)
        if hasattr(self.evaluator, "check_spec"):
            self.evaluator.check_spec(boxes, dim)  # type: ignore[union-attr]
        if hasattr(boxes, "check_index"):
            boxes.check_index(self.contexts.mean, self.base_index(self.contexts.mean))

    def init(self, key: Array) -> PyTree:
        return self.contexts.init(key)

    def base_index(self, psi: Array) -> Array:
        """Returns the reservation indices `[K]` of the models for a request `psi` `[m]` if `cost_weight` were 1."""
        base = self.index_link.value(numerics.combine(psi, jnp.swapaxes(jnp.asarray(self.index, jnp.float32), 0, 1)))
        if self.bend is not None:
            base = base + jnp.asarray(self.bend) * jnp.cos(3.0 * psi[1] + jnp.arange(base.shape[0], dtype=psi.dtype))
        return base

    def true_index(self, psi: Array) -> Array:
        """Returns the reservation indices `[K]` of the models for a request `psi` `[m]` with the environment's `cost_weight`."""
        return self.boxes.index(psi, self.base_index(psi), jnp.asarray(self.cost_weight, jnp.float32))

    def single_value(self, psi: Array) -> Array:
        """Returns for each model, `[K]`, its expected score minus `cost_weight` times its expected cost for a request with features `psi` `[m]`."""
        base = self.base_index(psi)
        weight = jnp.asarray(self.cost_weight, jnp.float32)
        return self.boxes.mean_score(psi, base) - self.boxes.mean_cost(psi, base) * weight

    def draw(self, key: Array, state: PyTree, t: Array) -> Period:
        _, k_score, k_cost, k_rare, k_features, k_coin = draws.split(key, 6)
        psi = self.contexts.draw(draws.fold_in(key, 0), state, t)
        base = self.base_index(psi)
        weight = jnp.asarray(self.cost_weight, jnp.float32)
        recorded = self.contexts.row(state, t) if isinstance(self.contexts, RecordedContexts) else None
        score, cost, row = self.boxes.draw((k_score, k_cost, k_rare), psi, base, recorded)
        # All comparisons of the period read the same array of scores.
        score, cost, index = xla.barrier((score, cost * weight, self.boxes.index(psi, base, weight)))
        features = None
        if self.evaluator is not None:
            features = xla.compute_once(self.evaluator.draw(k_features, score, psi, row))
        mean_cost = self.boxes.mean_cost(psi, base) * weight
        return Period(psi, index, mean_cost, score, cost, features, draws.uniform(k_coin))

    def observe(self, key: Array, state: PyTree, t: Array) -> Observation:
        return Observation(context=self.contexts.draw(draws.fold_in(key, 0), state, t))

    def step(self, key: Array, state: PyTree, action: Search, t: Array) -> Transition[PyTree, Feedback]:
        period = self.draw(key, state, t)
        score = period.score
        free = t < self.spec.free_rounds
        outputs = Outputs(score=score if self.evaluator is None else None, features=period.features, cost=period.cost)
        result = action.run(outputs)
        result = result.replace(opened=result.opened | free, deployed=result.deployed & ~free)
        reward = reward_of(self.spec.score_link, numerics.pick(result.deployed, score), period.coin)
        seen = jnp.ones_like(result.opened) if self.shows_all else result.opened
        shown, reward = vars(seen_outputs(outputs, seen)), jnp.where(free, 0.0, reward)
        feedback = Feedback(opened=result.opened, seen=seen, deployed=result.deployed, reward=reward, **shown)
        flows = _flows(period, result, self.cost_weight)
        return state, feedback, flows | _optimism(period, action, result, flows["regret"], free)


def _utility(score: Array, cost: Array, opened: Array, deployed: Array) -> Array:
    return numerics.pick(deployed, score) - jnp.sum(jnp.where(opened, cost, 0.0))


def _flows(period: Period, result: SearchResult, cost_weight: Leaf) -> dict[str, Array]:
    opened, deployed = result.opened, result.deployed
    score, cost, index = period.score, period.cost, period.index
    # Proposition 3.1: the search by the true indices, on the same outputs.
    best = opened_in_order(index, index, score)
    # Eq. (3) less the utility, with the excess `(M - index)^+` instead of each cost: never negative.
    excess = jnp.maximum(score - index, 0.0)
    regret = jnp.max(jnp.minimum(score, index)) - _utility(score, excess, opened, deployed)
    best_deployed = best_opened(best, score)

    def difference(costs: Array) -> Array:
        return _utility(score, costs, best, best_deployed) - _utility(score, costs, opened, deployed)

    paid = jnp.sum(jnp.where(opened, cost, 0.0))
    reward = numerics.pick(deployed, score)
    return {
        "regret": regret,
        "mean_cost_regret": difference(period.mean_cost),
        "realised_regret": difference(cost),
        "utility": reward - paid,
        "reward": reward,
        "cost": paid / jnp.asarray(cost_weight, jnp.float32),
        "queries": jnp.sum(opened.astype(jnp.float32)),
        "opened": opened.astype(jnp.float32),
        "deployed": deployed.astype(jnp.float32),
    }


def _optimism(period: Period, action: Any, result: SearchResult, regret: Array, free: Array) -> dict[str, Array]:
    """Returns five metrics of a period by name, each 1 if its condition holds, else 0, from the search `action` and its `result`.

    `optimistic`: no index of the search was below the true one. `optimistic_score`: no score was. Both are 0 if the search has no indices.
    `empty`: no box was opened, or not exactly one opened box was deployed. `violations`: `regret` was negative or, where theorem 3.3 applies, above
    its bound. `outside`: a true score was outside [0, 1], or a cost negative. In the first period (`free`), `empty` and `violations` are 0.
    """
    score, index, opened, deployed = period.score, period.index, result.opened, result.deployed
    wrong = regret < -_ROUNDING
    all_indices = all_scores = jnp.zeros((), bool)
    if getattr(action, "index", None) is not None:
        all_indices = jnp.all(action.index >= index - _ROUNDING)
        all_scores = jnp.all(result.score >= score - _ROUNDING)
        # An index that is too low within rounding counts as equal: it does not compensate for other excesses.
        above, over = jnp.maximum(action.index - index, 0.0), jnp.maximum(result.score - score, 0.0)
        allowed = numerics.pick(deployed, over) + jnp.sum(jnp.where(opened, above, 0.0))
        ruled = all_indices & all_scores & (action.bounded is None or action.bounded)
        wrong |= ruled & (regret > allowed + _ROUNDING)
    complete = jnp.any(opened) & (jnp.sum(deployed.astype(jnp.int32)) == 1) & ~jnp.any(deployed & ~opened)
    return {
        "optimistic": all_indices.astype(jnp.float32),
        "optimistic_score": all_scores.astype(jnp.float32),
        "empty": jnp.where(free, 0.0, (~complete).astype(jnp.float32)),
        "violations": jnp.where(free, 0.0, wrong.astype(jnp.float32)),
        "outside": jnp.any((score < 0.0) | (score > 1.0) | (period.cost < 0.0)).astype(jnp.float32),
    }
