"""Sources of the outcomes and costs of all models: parametric distributions, or the rows of a table.

Means may drift: every mean is `[G, K]`, with one row for each of `G` segments of rounds. A model has two results in a
round: an outcome in [0, 1], which is its reward, and a success (a bool), which ends a cascade.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jax.scipy.special import ndtr

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf
from jaxroute.sources.rows import random_order, row_in_order


@struct.dataclass
class BernoulliOutcomes:
    """Bernoulli outcomes, independent over models and rounds, with success probabilities `mean` `[G, K]` of `K` models in `G` segments of rounds."""

    mean: Leaf

    def check(self) -> None:
        checks.probability("success", self.mean)

    def draw(self, key: Array, segment: Array) -> tuple[Array, Array]:
        """Draws outcomes `[K]` in [0, 1] and successes `[K]` bool of a round in the segment with index `segment`."""
        success = draws.uniform(key, self.mean.shape[-1:]) < jnp.asarray(self.mean)[segment]
        return success.astype(jnp.float32), success


@struct.dataclass
class GradedOutcomes:
    """Outcomes on four levels: 0.5 correct and well formatted (a success), 0.3 well formatted, 0.1 empty, 0 wrong.

    `AnyWin` computes its expected reward from mean outcomes as if these were success probabilities; the mean of the simulated rewards differs.

    Source: C2MAB-V, appendix E.1.

    Attributes:
      correct: `[G, K]` probability of level 0.5 of each model in each of `G` segments of rounds.
      formatted, empty: `[G, K]` probabilities of the levels 0.3 and 0.1, likewise.
    """

    correct: Leaf
    formatted: Leaf
    empty: Leaf

    @property
    def mean(self) -> Leaf:
        return 0.5 * self.correct + 0.3 * self.formatted + 0.1 * self.empty

    def check(self) -> None:
        levels = {"correct": self.correct, "formatted": self.formatted, "empty": self.empty}
        shape = np.shape(self.correct)
        total = sum(checks.probability(name, value, shape) for name, value in levels.items())
        if np.max(total) > 1.0 + 1e-6:
            raise ValueError(f"correct + formatted + empty must be at most 1, got {np.max(total):g}")

    def draw(self, key: Array, segment: Array) -> tuple[Array, Array]:
        u = draws.uniform(key, self.correct.shape[-1:])
        first = jnp.asarray(self.correct)[segment]
        second = first + jnp.asarray(self.formatted)[segment]
        third = second + jnp.asarray(self.empty)[segment]
        outcome = jnp.where(u < first, 0.5, jnp.where(u < second, 0.3, jnp.where(u < third, 0.1, 0.0)))
        return outcome, u < first


@struct.dataclass
class CopulaOutcomes:
    """Successes correlated by a difficulty that all models share in a round, so that their joint probability is not a product. Not in the paper.

    Attributes:
      mean: `[G, K]` mean outcome of each model in each of `G` segments of rounds.
      correlation: `[]` weight of the shared difficulty, in [0, 1).
    """

    mean: Leaf
    correlation: Leaf

    def check(self) -> None:
        checks.probability("success", self.mean)
        if float(checks.non_negative("correlation", self.correlation, ())) >= 1.0:
            raise ValueError(f"correlation must be in [0, 1), got {float(self.correlation):g}")

    def draw(self, key: Array, segment: Array) -> tuple[Array, Array]:
        z = draws.normal(key, (1 + self.mean.shape[-1],))
        level = jnp.sqrt(self.correlation) * z[0] + jnp.sqrt(1.0 - self.correlation) * z[1:]
        success = ndtr(level) < jnp.asarray(self.mean)[segment]
        return success.astype(jnp.float32), success


Successes = BernoulliOutcomes | GradedOutcomes | CopulaOutcomes


@struct.dataclass
class FixedCosts:
    """Costs that always equal their means, as in a price list. Source: C2MAB-V, section 6."""

    def draw(self, key: Array, mean: Array) -> Array:
        """Returns the costs `[K]` of all models in a round, given their means `mean` `[K]`; here they equal the means, and `key` is not used."""
        del key
        return mean


@struct.dataclass
class ScaledCosts:
    """Costs that are their means times a factor, uniform on `[1 - spread, 1 + spread]`, independent over models and rounds; `spread` is in [0, 1]."""

    spread: Leaf = 0.5

    def check(self) -> None:
        checks.probability("spread", self.spread, ())

    def draw(self, key: Array, mean: Array) -> Array:
        return mean * (1.0 + self.spread * (2.0 * draws.uniform(key, mean.shape) - 1.0))


@struct.dataclass
class TokenCosts:
    """Costs proportional to tokens: the input tokens of a random type of query, the same for all models, plus the output tokens of each model.

    Output lengths are log-normal with mean `output_mean` and coefficient of variation `output_spread`, clipped to `[output_least, output_most]`.
    Input and output tokens cost the same, and each model's costs are scaled to its given mean. Source: the cost model of C2MAB-V, section 3; the
    length distributions are ours.

    Attributes:
      query_tokens: `[Q]` input tokens of each type of query; types are equally likely.
      output_mean: `[]` mean number of output tokens, before clipping.
      output_spread: `[]` coefficient of variation of the output tokens, before clipping.
      output_least, output_most: smallest and largest number of output tokens (static).
    """

    query_tokens: Leaf = (60.0, 90.0, 120.0, 160.0, 220.0)
    output_mean: Leaf = 180.0
    output_spread: Leaf = 0.5
    output_least: float = struct.field(pytree_node=False, default=10.0)
    output_most: float = struct.field(pytree_node=False, default=600.0)

    def check(self) -> None:
        checks.positive("query_tokens", self.query_tokens)
        checks.positive("output_mean", self.output_mean, ())
        checks.positive("output_spread", self.output_spread, ())

    def draw(self, key: Array, mean: Array) -> Array:
        k_query, k_output = draws.split(key)
        tokens = jnp.asarray(self.query_tokens, jnp.float32)
        kind = draws.randint(k_query, tokens.shape[0])
        tokens_in = jnp.sum(jnp.where(jnp.arange(tokens.shape[0]) == kind, tokens, 0.0))
        variance = jnp.log1p(jnp.square(self.output_spread))
        sigma, shift = jnp.sqrt(variance), jnp.log(self.output_mean) - variance / 2
        tokens_out = jnp.exp(shift + sigma * draws.normal(k_output, mean.shape))
        tokens_out = jnp.clip(tokens_out, self.output_least, self.output_most)
        low, high = ((math.log(edge) - shift) / sigma for edge in (self.output_least, self.output_most))
        inside = self.output_mean * (ndtr(high - sigma) - ndtr(low - sigma))
        mean_out = inside + self.output_least * ndtr(low) + self.output_most * (1.0 - ndtr(high))
        return mean * (tokens_in + tokens_out) / (jnp.mean(tokens) + mean_out)


Costs = FixedCosts | ScaledCosts | TokenCosts


@struct.dataclass
class ParametricOutcomes:
    """Source that draws outcomes and costs from distributions, whose means may drift.

    Attributes:
      successes: distribution of outcomes, `BernoulliOutcomes`, `GradedOutcomes` or `CopulaOutcomes`.
      costs: distribution of costs around their means, `FixedCosts`, `ScaledCosts` or `TokenCosts`.
      cost_mean: `[G, K]` mean cost of each model in each of `G` segments of rounds.
      switch: `[G]` int32, first round (from 0) of each segment; the first is 0.
    """

    successes: Successes
    costs: Costs
    cost_mean: Leaf
    switch: Leaf

    @property
    def outcome_mean(self) -> Leaf:
        """Returns the mean outcome of each model in each segment, `[G, K]`."""
        return self.successes.mean

    def check(self) -> None:
        self.successes.check()
        checks.part("costs", self.costs, "draw", "ScaledCosts()")
        shape = np.shape(self.outcome_mean)
        if len(shape) != 2:
            raise ValueError(f"success must have shape [segments, models], got {shape}")
        checks.non_negative("cost", self.cost_mean, shape)
        switch = np.asarray(self.switch)
        if switch.shape != shape[:1] or switch[0] != 0 or np.any(np.diff(switch) <= 0):
            raise ValueError(f"switch must be {shape[0]} rising rounds that begin with 0, got {switch.tolist()}")

    def init(self, key: Array) -> tuple[()]:
        del key
        return ()

    def segment(self, t: Array) -> Array:
        """Returns the index of the segment (span of rounds with constant means) to which round `t` belongs, a scalar."""
        return jnp.sum((jnp.asarray(self.switch) <= t).astype(jnp.int32)) - 1

    def draw(self, key: Array, state: Any, t: Array) -> tuple[Array, Array, Array]:
        """Draws outcomes `[K]` in [0, 1], successes `[K]` bool and costs `[K]` of all models in round `t`; `state` is empty."""
        del state
        k_outcome, k_cost = draws.split(key)
        segment = self.segment(t)
        outcome, success = self.successes.draw(k_outcome, segment)
        return outcome, success, self.costs.draw(k_cost, jnp.asarray(self.cost_mean)[segment])

    def copies(self, model: int, number: int) -> "ParametricOutcomes":
        """Returns a source of `number` independent copies of the model with index `model`."""

        def repeat(means: Leaf) -> Leaf:
            return np.repeat(np.asarray(means)[:, [model]], number, axis=1) if np.ndim(means) == 2 else means

        return self.replace(successes=jax.tree.map(repeat, self.successes), cost_mean=repeat(self.cost_mean))


@struct.dataclass
class TableOutcomes:
    """Source that replays recorded queries, one row per round, in a random order, each once before any is repeated.

    Attributes:
      outcomes: `[Q, K]` outcomes of `K` models on `Q` queries, in [0, 1].
      cost_table: `[Q, K]` costs.
      outcome_mean, cost_mean: `[1, K]` column means of the outcomes and of the costs.
      threshold: smallest outcome that counts as a success (static).
    """

    outcomes: Leaf
    cost_table: Leaf
    outcome_mean: Leaf
    cost_mean: Leaf
    threshold: float = struct.field(pytree_node=False, default=0.5)

    @property
    def switch(self) -> np.ndarray:
        return np.zeros(1, np.int32)

    def check(self) -> None:
        checks.probability("outcomes", self.outcomes)
        checks.non_negative("costs", self.cost_table, np.shape(self.outcomes))

    def init(self, key: Array) -> Array:
        return random_order(key, self.outcomes.shape[0])

    def segment(self, t: Array) -> int:
        del t
        return 0

    def draw(self, key: Array, state: Array, t: Array) -> tuple[Array, Array, Array]:
        del key
        row = row_in_order(state, t)
        outcome = jnp.asarray(self.outcomes)[row]
        return outcome, outcome >= self.threshold, jnp.asarray(self.cost_table)[row]

    def copies(self, model: int, number: int) -> "TableOutcomes":
        raise ValueError("env must draw its outcomes from distributions: a table has no independent copies of a model")


Source = ParametricOutcomes | TableOutcomes
