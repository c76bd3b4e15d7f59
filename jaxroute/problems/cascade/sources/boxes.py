"""What the boxes hold: distributions of scores and costs given the request, made so that the reservation index is known exactly.

A distribution is built around a *base index* `[K]`, the index at cost weight 1, that the environment computes from the request. The
mean cost is then defined as `E[(M - index)^+]`, so that the base index solves eq. (2) of the paper.

Source: none of them is in Belloni, Chen and Wei (2026), which has no experiment; they fulfil or break its assumptions as
they say.
"""

from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.solvers.reservation import index_by_bisection, two_point_index, uniform_index

# Keys of what drives scores, costs and rare events.
Keys = tuple[jax.Array, jax.Array, jax.Array]
# Scores and costs, `[K]`, and the rows `[K]` of a table of real queries, None for other distributions.
Draw = tuple[jax.Array, jax.Array, jax.Array | None]


class Boxes(Protocol):
    """A distribution of scores and costs; its methods work elementwise over boxes, for a request `psi` `[m]` and its base index
    `[K]`.

    Optional: `excess(psi, base, level)`, `E[(M - level)^+]`, and `above(psi, base, level)`, `P(M > level)`, which recorded
    boxes do not have; `check_index(psi, base)`, which raises `ValueError` on an index that no such box can have;
    `check_spec(dim)`, which raises `ValueError` where requests have too few features; `joint`, True if the outputs of a
    period depend on each other.

    Attributes:
      num_boxes: `K`.
    """

    @property
    def num_boxes(self) -> int: ...

    def check(self) -> None:
        """Raises `ValueError` on values out of range."""
        ...

    def mean_cost(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        """`[K]`."""
        ...

    def mean_score(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        """`[K]`."""
        ...

    def index(self, psi: jax.Array, base: jax.Array, weight: jax.Array) -> jax.Array:
        """Reservation index `[K]`, when costs count `weight` times."""
        ...

    def play(self, keys: Keys, psi: jax.Array, base: jax.Array, row: jax.Array | None = None) -> Draw:
        """Draws of a period; `row` `[]` is that of the request in a table of recorded ones, None where there is no table."""
        ...


def check_feature(name: str, value: Leaf | None, dim: int) -> None:
    """That an effect of `x_1` is None where requests have one feature."""
    if value is not None and dim < 2:
        raise ValueError(f"{name} must be None where requests have one feature: there is no x_1, got {value!s}")


def _slope_of(psi: jax.Array, tilt: Leaf | None) -> jax.Array | float:
    """`1 + tilt x_1`, of contexts `psi` `[m]`."""
    return 1.0 if tilt is None else 1.0 + jnp.asarray(tilt) * psi[1]


def _times(cost: jax.Array, spread: Leaf, noise: jax.Array) -> jax.Array:
    """Costs around their mean: `cost (1 + spread noise)`."""
    return cost * (1.0 + jnp.asarray(spread) * noise)


@struct.dataclass
class UniformBoxes:
    """Scores are uniform on an interval around the index: `M = index + width (U - quantile)`, with `width = 2 cost / (1 -
    quantile)^2`.

    Costs are `mean (1 + spread l)` with `l = (2 U - 1) / 2 + L / 2`, `L` uniform on [-1, 1]: they go with quality, as
    lengths do. Cheap boxes with a large quantile are wide and rarely above their index, dear ones with a small quantile
    reliable.

    Attributes:
      base_cost: `[K]` mean cost at `x = 0`.
      quantile: `[K]` probability to stay below the index.
      spread: `[]` of costs.
      tilt: `[]`, mean costs are `base_cost (1 + tilt x_1)`, None for 0.
    """

    base_cost: Leaf
    quantile: Leaf
    spread: Leaf = 0.5
    tilt: Leaf | None = None

    def check(self) -> None:
        shape = np.shape(checks.positive("base_cost", self.base_cost))
        if len(shape) != 1:
            raise ValueError(f"base_cost must have shape [K], got {shape}")
        quantile = checks.probability("quantile", self.quantile, shape)
        if (quantile >= 1).any():
            raise ValueError(f"quantile must be below 1, got {quantile.max():g}")
        checks.probability("spread", self.spread, ())
        if self.tilt is not None and abs(float(checks.numbers("tilt", self.tilt, ()))) >= 1:
            raise ValueError(f"tilt must be between -1 and 1, got {float(self.tilt):g}")

    def check_spec(self, dim: int) -> None:
        check_feature("tilt", self.tilt, dim)

    @property
    def num_boxes(self) -> int:
        return np.shape(self.base_cost)[-1]

    def mean_cost(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        del base
        return jnp.asarray(self.base_cost) * _slope_of(psi, self.tilt)

    def width(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        return 2.0 * self.mean_cost(psi, base) / jnp.square(1.0 - jnp.asarray(self.quantile))

    def _low(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        return base - self.width(psi, base) * jnp.asarray(self.quantile)

    def mean_score(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        return self._low(psi, base) + 0.5 * self.width(psi, base)

    def index(self, psi: jax.Array, base: jax.Array, weight: jax.Array) -> jax.Array:
        return uniform_index(self._low(psi, base), self.width(psi, base), weight * self.mean_cost(psi, base))

    def play(self, keys: Keys, psi: jax.Array, base: jax.Array, row: jax.Array | None = None) -> Draw:
        del row
        k_score, k_cost, _ = keys
        u = draws.uniform(k_score, base.shape)
        length = 2.0 * draws.uniform(k_cost, base.shape) - 1.0
        score = base + self.width(psi, base) * (u - jnp.asarray(self.quantile))
        return score, _times(self.mean_cost(psi, base), self.spread, 0.5 * (2.0 * u - 1.0) + 0.5 * length), None

    def excess(self, psi: jax.Array, base: jax.Array, level: jax.Array) -> jax.Array:
        low, width = self._low(psi, base), self.width(psi, base)
        inside = jnp.clip(low + width - level, 0.0, width)
        return 0.5 * jnp.square(inside) / width + jnp.maximum(low - level, 0.0)

    def above(self, psi: jax.Array, base: jax.Array, level: jax.Array) -> jax.Array:
        width = self.width(psi, base)
        return jnp.clip((self._low(psi, base) + width - level) / width, 0.0, 1.0)


@struct.dataclass
class SpikeBoxes(UniformBoxes):
    """`UniformBoxes` that score `top` with a small probability, whatever the request: the mass that assumption 4.1 wants at every
    level.

    Attributes:
      jackpot: `[]` that probability.
      top: `[]`.
    """

    jackpot: Leaf = 0.01
    top: Leaf = 0.97

    def check(self) -> None:
        super().check()
        if float(checks.probability("jackpot", self.jackpot, ())) >= 1:
            raise ValueError(f"jackpot must be below 1, got {float(self.jackpot):g}")
        checks.share("top", self.top, ())

    def check_index(self, psi: jax.Array, base: jax.Array) -> None:
        if (np.asarray(base) >= self.top).any():
            raise ValueError(
                f"top must be above the indices, got {float(self.top):g} with indices {np.asarray(base).tolist()}"
            )
        if (np.asarray(self.width(psi, base)) <= 0).any():
            least = np.asarray(self.jackpot * (self.top - base))
            raise ValueError(
                f"jackpot must leave widths above 0: with {float(self.jackpot):g} mean costs must be above {least.tolist()}, got "
                f"{np.asarray(self.mean_cost(psi, base)).tolist()}"
            )

    def width(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        regular = self.mean_cost(psi, base) - self.jackpot * (self.top - base)  # Cost that the uniform part accounts for.
        return 2.0 * regular / ((1.0 - self.jackpot) * jnp.square(1.0 - jnp.asarray(self.quantile)))

    def mean_score(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        return self.jackpot * self.top + (1.0 - self.jackpot) * super().mean_score(psi, base)

    def index(self, psi: jax.Array, base: jax.Array, weight: jax.Array) -> jax.Array:
        cost = weight * self.mean_cost(psi, base)
        low = self.mean_score(psi, base) - cost  # E[(M - s)^+] >= E[M] - s.
        return index_by_bisection(lambda level: self.excess(psi, base, level), cost, low=low)

    def play(self, keys: Keys, psi: jax.Array, base: jax.Array, row: jax.Array | None = None) -> Draw:
        score, cost, _ = super().play(keys, psi, base, row)
        return jnp.where(draws.uniform(keys[2], base.shape) < self.jackpot, self.top, score), cost, None

    def excess(self, psi: jax.Array, base: jax.Array, level: jax.Array) -> jax.Array:
        regular = super().excess(psi, base, level)
        return self.jackpot * jnp.maximum(self.top - level, 0.0) + (1.0 - self.jackpot) * regular

    def above(self, psi: jax.Array, base: jax.Array, level: jax.Array) -> jax.Array:
        regular = super().above(psi, base, level)
        return self.jackpot * (level < self.top) + (1.0 - self.jackpot) * regular


@struct.dataclass
class PassFailBoxes:
    """Scores are `high` with probability `base_probability + slope x_1`, otherwise `low`; mean costs are `probability (high - index)`.

    Attributes:
      base_probability: `[K]`.
      slope: `[]`, None for 0.
      low: `[]`.
      high: `[]`.
      spread: `[]` of costs, `mean (1 + spread L / 2)`.
    """

    base_probability: Leaf
    slope: Leaf | None = 0.1
    low: Leaf = 0.1
    high: Leaf = 0.95
    spread: Leaf = 0.5

    def check(self) -> None:
        probability = checks.share("base_probability", self.base_probability)
        if probability.ndim != 1:
            raise ValueError(f"base_probability must have shape [K], got {probability.shape}")
        low, high = (float(checks.probability(name, x, ())) for name, x in (("low", self.low), ("high", self.high)))
        if not low < high:
            raise ValueError(f"low must be below high, got {low:g} and {high:g}")
        checks.probability("spread", self.spread, ())
        if self.slope is not None:
            slope = abs(float(checks.numbers("slope", self.slope, ())))
            if (probability - slope <= 0).any() or (probability + slope > 1).any():
                raise ValueError(
                    f"slope must leave probabilities in (0, 1], got {slope:g} with probabilities {probability.tolist()}"
                )

    def check_spec(self, dim: int) -> None:
        check_feature("slope", self.slope, dim)

    def check_index(self, psi: jax.Array, base: jax.Array) -> None:
        del psi
        if (np.asarray(base) > self.high).any():
            raise ValueError(
                f"high must be at least the indices, got {float(self.high):g} with indices {np.asarray(base).tolist()}"
            )

    @property
    def num_boxes(self) -> int:
        return np.shape(self.base_probability)[-1]

    def probability(self, psi: jax.Array) -> jax.Array:
        return jnp.asarray(self.base_probability) + (0.0 if self.slope is None else jnp.asarray(self.slope) * psi[1])

    def mean_cost(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        return self.probability(psi) * (self.high - base)

    def mean_score(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        del base
        return self.low + self.probability(psi) * (self.high - self.low)

    def index(self, psi: jax.Array, base: jax.Array, weight: jax.Array) -> jax.Array:
        return two_point_index(self.low, self.high, self.probability(psi), weight * self.mean_cost(psi, base))

    def play(self, keys: Keys, psi: jax.Array, base: jax.Array, row: jax.Array | None = None) -> Draw:
        del row
        k_score, k_cost, _ = keys
        passed = draws.uniform(k_score, base.shape) < self.probability(psi)
        length = 2.0 * draws.uniform(k_cost, base.shape) - 1.0
        return jnp.where(passed, self.high, self.low), _times(self.mean_cost(psi, base), self.spread, 0.5 * length), None

    def excess(self, psi: jax.Array, base: jax.Array, level: jax.Array) -> jax.Array:
        del base
        probability = self.probability(psi)
        return probability * jnp.maximum(self.high - level, 0.0) + (1.0 - probability) * jnp.maximum(self.low - level, 0.0)

    def above(self, psi: jax.Array, base: jax.Array, level: jax.Array) -> jax.Array:
        del base
        probability = self.probability(psi)
        return probability * (level < self.high) + (1.0 - probability) * (level < self.low)


@struct.dataclass
class RecordedBoxes:
    """Outcomes of real queries, sorted by group; contexts are unit vectors of groups.

    A request is a row of its group. Boxes draw rows independently of each other, as the theory wants, or share one
    (`joint`): then outputs are dependent, and no rule that looks at indices alone is optimal.

    Attributes:
      score: `[N, K]`.
      cost: `[N, K]`.
      first: `[G]` int32, first row of each group.
      count: `[G]` int32, rows of each group.
      group_score: `[G, K]`, mean scores.
      group_cost: `[G, K]`, mean costs.
      joint: boxes share a row (static).
    """

    score: Leaf
    cost: Leaf
    first: Leaf
    count: Leaf
    group_score: Leaf
    group_cost: Leaf
    joint: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        shape = np.shape(checks.probability("scores", self.score))
        checks.non_negative("costs", self.cost, shape)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"scores must have shape [N, K], got {shape}")
        first, count = checks.non_negative("first", self.first), checks.positive("count", self.count)
        if first.ndim != 1 or first.shape != count.shape or (first + count > shape[0]).any():
            raise ValueError(f"first and count must be rows of {shape[0]} queries for each group, got {first} and {count}")
        for name in ("group_score", "group_cost"):
            checks.non_negative(name, getattr(self, name), (len(first), shape[1]))

    @property
    def num_boxes(self) -> int:
        return np.shape(self.score)[-1]

    def _of_group(self, psi: jax.Array, table: Leaf) -> jax.Array:
        return numerics.combine(psi, jnp.asarray(table, jnp.float32))

    def mean_cost(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        del base
        return self._of_group(psi, self.group_cost)

    def mean_score(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        del base
        return self._of_group(psi, self.group_score)

    def index(self, psi: jax.Array, base: jax.Array, weight: jax.Array) -> jax.Array:
        del psi, weight
        return base  # Solved on the host, for the weight that the environment was made with.

    def rows(self, keys: Keys, psi: jax.Array, base: jax.Array) -> jax.Array:
        """Row `[K]` that each box draws."""
        u = draws.uniform(keys[0], () if self.joint else base.shape)
        size = self._of_group(psi, self.count)
        place = jnp.minimum((u * size).astype(jnp.int32), size.astype(jnp.int32) - 1)
        return jnp.broadcast_to(self._of_group(psi, self.first).astype(jnp.int32) + place, base.shape)

    def play(self, keys: Keys, psi: jax.Array, base: jax.Array, row: jax.Array | None = None) -> Draw:
        del row
        rows = self.rows(keys, psi, base)
        return *_cells(self.score, self.cost, rows), rows


def _cells(score: Leaf, cost: Leaf, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Score and cost `[K]` of each box in its row `[K]`."""
    table = jnp.stack([jnp.asarray(score, jnp.float32), jnp.asarray(cost, jnp.float32)], axis=-1)
    cells = jnp.stack([numerics.at(table, (rows[a], a)) for a in range(rows.shape[0])])
    return cells[:, 0], cells[:, 1]


@struct.dataclass
class QueryBoxes:
    """Outcomes of real queries, row by row: all models answer the query whose features the request shows.

    Given the features of a query nothing but its own outcome is recorded. What environments of a known distribution have exactly, mean score, mean
    cost and index given the request, are here the linear functions of the features that fit the rows best, in hindsight.

    Attributes:
      score: `[P, K]`.
      cost: `[P, K]`.
      score_fit: `[m, K]`, mean scores are `psi . score_fit`.
      cost_fit: `[m, K]`, mean costs likewise.
    """

    score: Leaf
    cost: Leaf
    score_fit: Leaf
    cost_fit: Leaf

    joint: ClassVar[bool] = True

    def check(self) -> None:
        shape = np.shape(checks.probability("scores", self.score))
        checks.non_negative("costs", self.cost, shape)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"scores must have shape [P, K], got {shape}")
        checks.numbers("cost_fit", self.cost_fit, checks.numbers("score_fit", self.score_fit).shape)

    def check_spec(self, dim: int) -> None:
        if np.shape(self.score_fit) != (dim, self.num_boxes):
            raise ValueError(f"score_fit must have shape [{dim}, {self.num_boxes}], got {np.shape(self.score_fit)}")

    @property
    def num_boxes(self) -> int:
        return np.shape(self.score)[-1]

    def mean_cost(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        del base
        return numerics.combine(psi, jnp.asarray(self.cost_fit, jnp.float32))

    def mean_score(self, psi: jax.Array, base: jax.Array) -> jax.Array:
        del base
        return numerics.combine(psi, jnp.asarray(self.score_fit, jnp.float32))

    def index(self, psi: jax.Array, base: jax.Array, weight: jax.Array) -> jax.Array:
        del psi, weight
        return base  # Fitted on the host, for the weight that the environment was made with.

    def play(self, keys: Keys, psi: jax.Array, base: jax.Array, row: jax.Array | None = None) -> Draw:
        del keys, psi
        if row is None:
            raise ValueError(
                "contexts must be recorded ones, RecordedContexts or ShuffledContexts, where boxes are QueryBoxes"
            )
        rows = jnp.broadcast_to(row, base.shape)
        return *_cells(self.score, self.cost, rows), rows
