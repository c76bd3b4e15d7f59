"""Distributions of scores and costs given the request, for which the reservation index is known exactly.

A distribution is built around a *base index* `[K]`, the index at cost weight 1, which the environment computes from the request. The mean cost is
then defined as `E[(M - index)^+]`, so that the base index solves eq. (2) of the paper. The distributions are ours: Belloni, Chen and Wei (2026) has
no experiment.
"""

from typing import ClassVar, Protocol

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.solvers.reservation import index_by_bisection, two_point_index, uniform_index

# Random keys of the scores, the costs and the rare events of a period.
Keys = tuple[Array, Array, Array]
# Scores and costs, `[K]`, and the rows `[K]` of a table of real queries, None for other distributions.
Draw = tuple[Array, Array, Array | None]


class Boxes(Protocol):
    """Distribution of scores and costs of `num_boxes` boxes (models), for a request with features `psi` `[m]` and base indices `base` `[K]`.

    Optional methods: `excess(psi, base, level)` and `above(psi, base, level)` return `E[(M - level)^+]` and `P(M > level)`, `[K]`, for scores `M`;
    recorded boxes lack them. `check_index(psi, base)` raises `ValueError` on an index that no such box can have, `check_spec(dim)` if requests have
    too few features. The attribute `joint` is True if the models' outputs in a period depend on each other.
    """

    @property
    def num_boxes(self) -> int: ...

    def check(self) -> None: ...

    def mean_cost(self, psi: Array, base: Array) -> Array: ...

    def mean_score(self, psi: Array, base: Array) -> Array: ...

    def index(self, psi: Array, base: Array, weight: Array) -> Array:
        """Returns the reservation indices `[K]` for a request `psi` if costs are multiplied by `weight`; `base` `[K]` are those at weight 1."""
        ...

    def draw(self, keys: Keys, psi: Array, base: Array, row: Array | None = None) -> Draw:
        """Draws scores, costs and rows, `[K]` each, for a request with features `psi` `[m]`. The rows are None if outputs are not recorded.

        `base` `[K]` are the reservation indices at cost weight 1. `row` is the row of a recorded request, None for other requests.
        """
        ...


def check_feature(name: str, value: Leaf | None, dim: int) -> None:
    """Raises `ValueError` if the parameter `name` has a `value` that is not None, but `dim` is 1: it acts on a request's second feature `x_1`."""
    if value is not None and dim < 2:
        raise ValueError(f"{name} must be None where requests have one feature: there is no x_1, got {value!s}")


@struct.dataclass
class UniformBoxes:
    """Boxes (models) with scores `base index + width (U - quantile)`, for `width = 2 mean_cost / (1 - quantile)^2` and `U` uniform on [0, 1].

    Costs are `mean_cost (1 + spread (2 U - 1 + L) / 2)`, with the `U` of the score and `L` uniform on [-1, 1]: better outputs cost more. A box with
    a large quantile has a wide range of scores, rarely above its index. A box with a small quantile scores reliably.

    Attributes:
      base_cost: `[K]` mean cost for requests whose feature `x_1`, the first after the intercept, is 0.
      quantile: `[K]` probability of a score below the index.
      spread: `[]` largest relative deviation of a cost from its mean.
      tilt: `[]` slope of the mean costs `base_cost (1 + tilt x_1)`, None for 0.
    """

    base_cost: Leaf
    quantile: Leaf
    spread: Leaf = 0.5
    tilt: Leaf | None = None

    def check(self) -> None:
        shape = checks.positive("base_cost", self.base_cost, ("K",)).shape
        checks.bounded("quantile", self.quantile, shape, "at least 0 and below 1", lambda q: (q >= 0) & (q < 1))
        checks.probability("spread", self.spread, ())
        if self.tilt is not None:
            checks.bounded("tilt", self.tilt, (), "between -1 and 1", lambda tilt: abs(tilt) < 1)

    def check_spec(self, dim: int) -> None:
        check_feature("tilt", self.tilt, dim)

    @property
    def num_boxes(self) -> int:
        return np.shape(self.base_cost)[-1]

    def mean_cost(self, psi: Array, base: Array) -> Array:
        del base
        return jnp.asarray(self.base_cost) * (1.0 if self.tilt is None else 1.0 + jnp.asarray(self.tilt) * psi[1])

    def width(self, psi: Array, base: Array) -> Array:
        return 2.0 * self.mean_cost(psi, base) / jnp.square(1.0 - jnp.asarray(self.quantile))

    def _low(self, psi: Array, base: Array) -> Array:
        return base - self.width(psi, base) * jnp.asarray(self.quantile)

    def mean_score(self, psi: Array, base: Array) -> Array:
        return self._low(psi, base) + 0.5 * self.width(psi, base)

    def index(self, psi: Array, base: Array, weight: Array) -> Array:
        return uniform_index(self._low(psi, base), self.width(psi, base), weight * self.mean_cost(psi, base))

    def draw(self, keys: Keys, psi: Array, base: Array, row: Array | None = None) -> Draw:
        del row
        k_score, k_cost, _ = keys
        u = draws.uniform(k_score, base.shape)
        length = 2.0 * draws.uniform(k_cost, base.shape) - 1.0
        score = base + self.width(psi, base) * (u - jnp.asarray(self.quantile))
        noise = 0.5 * (2.0 * u - 1.0) + 0.5 * length
        return score, self.mean_cost(psi, base) * (1.0 + jnp.asarray(self.spread) * noise), None

    def excess(self, psi: Array, base: Array, level: Array) -> Array:
        low, width = self._low(psi, base), self.width(psi, base)
        inside = jnp.clip(low + width - level, 0.0, width)
        return 0.5 * jnp.square(inside) / width + jnp.maximum(low - level, 0.0)

    def above(self, psi: Array, base: Array, level: Array) -> Array:
        width = self.width(psi, base)
        return jnp.clip((self._low(psi, base) + width - level) / width, 0.0, 1.0)


@struct.dataclass
class SpikeBoxes(UniformBoxes):
    """`UniformBoxes` whose score is replaced by `top` with probability `jackpot`: every score below `top` can be exceeded (assumption 4.1)."""

    jackpot: Leaf = 0.01
    top: Leaf = 0.97

    def check(self) -> None:
        super().check()
        checks.bounded("jackpot", self.jackpot, (), "at least 0 and below 1", lambda p: (p >= 0) & (p < 1))
        checks.share("top", self.top, ())

    def check_index(self, psi: Array, base: Array) -> None:
        if (np.asarray(base) >= self.top).any():
            raise ValueError(f"top must be above the indices {np.asarray(base).tolist()}, got {float(self.top):g}")
        if (np.asarray(self.width(psi, base)) <= 0).any():
            least, given = (np.asarray(x).tolist() for x in (self.jackpot * (self.top - base), self.mean_cost(psi, base)))
            raise ValueError(f"jackpot {float(self.jackpot):g} must leave mean costs above {least}, got {given}")

    def width(self, psi: Array, base: Array) -> Array:
        regular = self.mean_cost(psi, base) - self.jackpot * (self.top - base)  # Cost that the uniform part accounts for.
        return 2.0 * regular / ((1.0 - self.jackpot) * jnp.square(1.0 - jnp.asarray(self.quantile)))

    def mean_score(self, psi: Array, base: Array) -> Array:
        return self.jackpot * self.top + (1.0 - self.jackpot) * super().mean_score(psi, base)

    def index(self, psi: Array, base: Array, weight: Array) -> Array:
        cost = weight * self.mean_cost(psi, base)
        low = self.mean_score(psi, base) - cost  # E[(M - s)^+] >= E[M] - s.
        return index_by_bisection(lambda level: self.excess(psi, base, level), cost, low=low)

    def draw(self, keys: Keys, psi: Array, base: Array, row: Array | None = None) -> Draw:
        score, cost, _ = super().draw(keys, psi, base, row)
        return jnp.where(draws.uniform(keys[2], base.shape) < self.jackpot, self.top, score), cost, None

    def excess(self, psi: Array, base: Array, level: Array) -> Array:
        regular = super().excess(psi, base, level)
        return self.jackpot * jnp.maximum(self.top - level, 0.0) + (1.0 - self.jackpot) * regular

    def above(self, psi: Array, base: Array, level: Array) -> Array:
        regular = super().above(psi, base, level)
        return self.jackpot * (level < self.top) + (1.0 - self.jackpot) * regular


@struct.dataclass
class PassFailBoxes:
    """Boxes (models) that score `high` with probability `p = base_probability + slope x_1`, otherwise `low`.

    The mean cost is `p (high - index)`, which makes `index` the reservation index.

    Attributes:
      base_probability: `[K]` probability of `high` for requests whose feature `x_1`, the first after the intercept, is 0.
      slope: `[]` slope of the probability in `x_1`, None for 0.
      low, high: `[]` the two possible scores.
      spread: `[]` relative spread of the costs `mean (1 + spread L / 2)`, with `L` uniform on [-1, 1].
    """

    base_probability: Leaf
    slope: Leaf | None = 0.1
    low: Leaf = 0.1
    high: Leaf = 0.95
    spread: Leaf = 0.5

    def check(self) -> None:
        probability = checks.share("base_probability", self.base_probability, ("K",))
        low, high = (float(checks.probability(name, x, ())) for name, x in (("low", self.low), ("high", self.high)))
        if not low < high:
            raise ValueError(f"low must be below high, got {low:g} and {high:g}")
        checks.probability("spread", self.spread, ())
        if self.slope is not None:
            slope = abs(float(checks.numbers("slope", self.slope, ())))
            if (probability - slope <= 0).any() or (probability + slope > 1).any():
                raise ValueError(f"slope must leave the probabilities {probability.tolist()} in (0, 1], got {slope:g}")

    def check_spec(self, dim: int) -> None:
        check_feature("slope", self.slope, dim)

    def check_index(self, psi: Array, base: Array) -> None:
        del psi
        if (np.asarray(base) > self.high).any():
            raise ValueError(f"high must be at least the indices {np.asarray(base).tolist()}, got {float(self.high):g}")

    @property
    def num_boxes(self) -> int:
        return np.shape(self.base_probability)[-1]

    def probability(self, psi: Array) -> Array:
        return jnp.asarray(self.base_probability) + (0.0 if self.slope is None else jnp.asarray(self.slope) * psi[1])

    def mean_cost(self, psi: Array, base: Array) -> Array:
        return self.probability(psi) * (self.high - base)

    def mean_score(self, psi: Array, base: Array) -> Array:
        del base
        return self.low + self.probability(psi) * (self.high - self.low)

    def index(self, psi: Array, base: Array, weight: Array) -> Array:
        return two_point_index(self.low, self.high, self.probability(psi), weight * self.mean_cost(psi, base))

    def draw(self, keys: Keys, psi: Array, base: Array, row: Array | None = None) -> Draw:
        del row
        k_score, k_cost, _ = keys
        passed = draws.uniform(k_score, base.shape) < self.probability(psi)
        length = 2.0 * draws.uniform(k_cost, base.shape) - 1.0
        cost = self.mean_cost(psi, base) * (1.0 + jnp.asarray(self.spread) * (0.5 * length))
        return jnp.where(passed, self.high, self.low), cost, None

    def excess(self, psi: Array, base: Array, level: Array) -> Array:
        del base
        probability = self.probability(psi)
        return probability * jnp.maximum(self.high - level, 0.0) + (1.0 - probability) * jnp.maximum(self.low - level, 0.0)

    def above(self, psi: Array, base: Array, level: Array) -> Array:
        del base
        probability = self.probability(psi)
        return probability * (level < self.high) + (1.0 - probability) * (level < self.low)


@struct.dataclass
class _ScoreTable:
    """Base class of boxes (models) with recorded outputs. Mean scores and costs are linear in the request; constructors compute the base indices.

    Attributes:
      score, cost: `[N, K]` recorded scores and costs of `K` boxes on `N` queries.
      score_fit, cost_fit: `[m, K]` coefficients of the mean scores and costs, `psi . fit`.
    """

    score: Leaf
    cost: Leaf
    score_fit: Leaf
    cost_fit: Leaf

    def check(self) -> None:
        checks.non_negative("costs", self.cost, checks.probability("scores", self.score, ("N", "K")).shape)
        checks.numbers("cost_fit", self.cost_fit, checks.numbers("score_fit", self.score_fit).shape)

    def check_spec(self, dim: int) -> None:
        checks.numbers("score_fit", self.score_fit, (dim, self.num_boxes))

    @property
    def num_boxes(self) -> int:
        return np.shape(self.score)[-1]

    def mean_cost(self, psi: Array, base: Array) -> Array:
        del base
        return numerics.combine(psi, jnp.asarray(self.cost_fit, jnp.float32))

    def mean_score(self, psi: Array, base: Array) -> Array:
        del base
        return numerics.combine(psi, jnp.asarray(self.score_fit, jnp.float32))

    def index(self, psi: Array, base: Array, weight: Array) -> Array:
        del psi, weight  # The base index is solved for the cost weight of the environment.
        return base

    def _outputs(self, rows: Array) -> Draw:
        """Returns scores `[K]`, costs `[K]` and `rows` `[K]`; the score and cost of box `a` are those recorded for the query with index `rows[a]`."""
        table = jnp.stack([jnp.asarray(self.score, jnp.float32), jnp.asarray(self.cost, jnp.float32)], axis=-1)
        cells = jnp.stack([numerics.at(table, (rows[a], a)) for a in range(rows.shape[0])])
        return cells[:, 0], cells[:, 1], rows


@struct.dataclass
class RecordedBoxes(_ScoreTable):
    """Recorded outputs of boxes (models) on real queries, in rows sorted by group; a request shows its query's group as a unit vector.

    Each box draws a query of this group independently, as the theory assumes; or all boxes answer the same query (`joint`), so that outputs are
    dependent and no rule based on indices alone is optimal. `score_fit` and `cost_fit` `[G, K]` are the mean scores and costs in `G` groups.

    Attributes:
      first, count: `[G]` int32, index of each group's first row, and its number of rows.
      joint: whether all boxes answer the same query (static).
    """

    first: Leaf
    count: Leaf
    joint: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        super().check()
        number, models = np.shape(self.score)
        first, count = checks.non_negative("first", self.first), checks.positive("count", self.count)
        if first.ndim != 1 or first.shape != count.shape or (first + count > number).any():
            raise ValueError(f"first and count must be rows of {number} queries for each group, got {first} and {count}")
        for name in ("score_fit", "cost_fit"):
            checks.non_negative(name, getattr(self, name), (len(first), models))

    def draw(self, keys: Keys, psi: Array, base: Array, row: Array | None = None) -> Draw:
        del row
        first, size = (numerics.combine(psi, jnp.asarray(x, jnp.float32)) for x in (self.first, self.count))
        u = draws.uniform(keys[0], () if self.joint else base.shape)
        place = jnp.minimum((u * size).astype(jnp.int32), size.astype(jnp.int32) - 1)
        return self._outputs(jnp.broadcast_to(first.astype(jnp.int32) + place, base.shape))


@struct.dataclass
class QueryBoxes(_ScoreTable):
    """Recorded outputs of boxes (models) on real queries, row by row: all boxes answer the query whose features the request shows.

    Mean score, mean cost and index of a request are unknown, since only one output per model and query is recorded. They are replaced by the linear
    functions of the features with the best fit to all rows, in hindsight.
    """

    joint: ClassVar[bool] = True

    def draw(self, keys: Keys, psi: Array, base: Array, row: Array | None = None) -> Draw:
        del keys, psi
        if row is None:
            raise ValueError("contexts must be RecordedContexts or ShuffledContexts where boxes are QueryBoxes")
        return self._outputs(jnp.broadcast_to(row, base.shape))
