"""Searches: actions of a policy that open boxes (call models) one after another, stop, and choose the opened output to deploy.

The environment calls the pure method `run(outputs)` of a search. Outputs of unopened boxes cannot influence it: tests fill them with NaN.
"""

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from jaxroute.core import numerics, xla
from jaxroute.estimators.links import Link
from jaxroute.problems.cascade.types import Outputs, SearchResult


def opened_in_order(priority: Array, threshold: Array, score: Array, order: Array | None = None) -> Array:
    """Returns which boxes are opened, `[K]` bool: in the order of falling priority, until the best score so far reaches the next box's threshold.

    The first box is always opened. Weitzman's rule has the index as priority and threshold; in general a later box may have a higher threshold.
    Source: Weitzman (1979); Belloni, Chen and Wei (2026), Algorithm 1, lines 5 to 12.

    Args:
      priority, threshold: `[K]` priority and threshold of each box.
      score: `[K]` scores of all boxes; the score of an unopened box does not matter.
      order: `[K]` int32, rank by which ties of priority are broken; None for the lower box first.
    """
    size = priority.shape[0]

    def every(conditions: Iterable[Array]) -> Array:
        return functools.reduce(operator.and_, conditions, jnp.ones((), bool))

    # Line 5: the order of the boxes.
    ahead = [[jnp.zeros((), bool)] * size for _ in range(size)]
    for a in range(size):
        for b in range(a):  # One comparison per pair: two could be rounded differently, and disagree.
            ahead[b][a] = _before(priority, b, a, order)
            ahead[a][b] = ~ahead[b][a]
    # Line 11: `M_t`, the best score among the boxes ahead, is below the threshold.
    willing = [every(~ahead[b][a] | (score[b] < threshold[a]) for b in range(size) if b != a) for a in range(size)]
    # Lines 7 and 8: a box is opened if no box ahead ended the search.
    return jnp.stack([willing[a] & every(~ahead[b][a] | willing[b] for b in range(size) if b != a) for a in range(size)])


def best_opened(opened: Array, score: Array, order: Array | None = None) -> Array:
    """Returns the opened box with the largest score, one-hot `[K]` bool (Algorithm 1, line 13). Ties go to the least `order`, or the lower box."""
    size = score.shape[0]
    best = [opened[a] for a in range(size)]
    for a in range(size):
        for b in range(a):
            first = opened[b] & (~opened[a] | _before(score, b, a, order))
            best[a] &= ~first
            best[b] &= first | ~opened[a]
    return jnp.stack(best)


def _before(value: Array, b: int, a: int, order: Array | None) -> Array:
    """Returns a bool scalar, whether box `b` precedes box `a > b` by falling `value` `[K]`. Ties go to the lower `order` `[K]` (None: to `b`)."""
    first = value[b] >= value[a]
    return first if order is None else (value[b] > value[a]) | (first & (order[b] < order[a]))


@struct.dataclass
class Scoring:
    """Rule that scores an output with features `phi` by `G(theta . phi + width |phi|)`, with the norm in the inverse design matrix.

    Source: Belloni, Chen and Wei (2026), eq. (21); Algorithm 2, line 9.

    Attributes:
      theta: `[d]` estimated coefficients.
      inverse: `[d, d]` inverse of the design matrix, eq. (20).
      width: `[]` factor of the bonus, the paper's `beta_t`.
      deploy_width: `[]` the same factor for the choice of the output to deploy.
      link: link `G` (static).
    """

    theta: Array
    inverse: Array
    width: Array
    deploy_width: Array
    link: Link = struct.field(pytree_node=False)

    def predictors(self, features: Array) -> tuple[Array, Array]:
        """Returns two predictions `[K]` before the link for `features` `[K, d]`: one decides when to stop, the other which output is deployed."""
        columns = jnp.swapaxes(features, 0, 1)
        middle = numerics.combine(self.theta, columns)
        image = jnp.stack([numerics.combine(self.inverse[i], columns) for i in range(columns.shape[0])])
        spread = jnp.sqrt(jnp.maximum(numerics.combine(columns, image), 0.0))
        both = xla.barrier((middle + self.width * spread, middle + self.deploy_width * spread))
        return both[0], both[1]


@struct.dataclass
class IndexSearch:
    """Search that opens boxes by falling priority while the best score so far is below the next threshold, and deploys the output of largest score.

    Attributes:
      priority, threshold: `[K]` priority and threshold of each box.
      scoring: rule that estimates the scores of outputs, None if scores are seen.
      index: `[K]` optimistic indices that are compared with the true ones, None if the rule has no indices.
      bounded: `[]` bool, whether theorem 3.3 bounds the regret: it does if `index` is priority and threshold, and the output of largest score is
        deployed. None for True.
      forced: `[]` bool, whether thresholds are infinite, so that all boxes are opened, for exploration.
      order: `[K]` int32, rank by which ties are broken; None for the lower box first.
    """

    priority: Array
    threshold: Array
    scoring: Scoring | None = None
    index: Array | None = None
    bounded: Array | None = None
    forced: Array | None = None
    order: Array | None = None

    def run(self, outputs: Outputs) -> SearchResult:
        if self.scoring is None:
            assert outputs.score is not None
            score = final = xla.barrier(outputs.score)
        else:
            assert outputs.features is not None
            predictor, final = self.scoring.predictors(outputs.features)
            score = xla.barrier(self.scoring.link.value(predictor))
        priority, threshold = xla.barrier((self.priority, self.threshold))
        opened = opened_in_order(priority, threshold, score, self.order)
        return SearchResult(opened=opened, deployed=best_opened(opened, final, self.order), score=score)


# Result of a policy's `act`: the search of the period, and values that can be recorded.
Decision = tuple[IndexSearch, dict[str, Array]]


@struct.dataclass
class LoopSearch:
    """Search by two functions of the user: `next_box` opens boxes, `pick` chooses the one to deploy. They see zeros for outputs of unopened boxes.

    Attributes:
      memory: any data for the functions, constant during a search.
      next_box: function of `memory`, the mask `opened` `[K]` and outputs; returns a box (index) to open, and whether to stop instead. The
        search cannot stop before the first box (static).
      pick: function of the same arguments; returns the index of the box to deploy (static).
    """

    memory: Any
    next_box: Callable = struct.field(pytree_node=False)
    pick: Callable = struct.field(pytree_node=False)

    def run(self, outputs: Outputs) -> SearchResult:
        size = outputs.cost.shape[0]

        def one(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            opened, stopped = carry
            box, stop = self.next_box(self.memory, opened, seen_outputs(outputs, opened))
            stopped |= jnp.asarray(stop) & jnp.any(opened)
            return (opened | (numerics.one_hot(box, size) & ~stopped), stopped), None

        (opened, _), _ = lax.scan(one, (jnp.zeros((size,), bool), jnp.zeros((), bool)), length=size)
        seen = seen_outputs(outputs, opened)
        deployed = numerics.one_hot(self.pick(self.memory, opened, seen), size) & opened
        return SearchResult(opened=opened, deployed=deployed, score=jnp.zeros((size,)) if seen.score is None else seen.score)


def seen_outputs(outputs: Outputs, seen: Array) -> Outputs:
    """Returns the outputs with zeros for every box that the mask `seen`, `[K]` bool, does not mark."""
    return jax.tree.map(lambda x: jnp.where(seen.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.zeros_like(x)), outputs)
