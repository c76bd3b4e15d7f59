"""Policies for means that change. They learn from the latest rounds only, or weigh past rounds less the older they are."""

import math
from typing import Self

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, Spec
from jaxroute.estimators.running import WindowSums
from jaxroute.problems.stochastic.policies.base import BetaPrior, RangeBound
from jaxroute.problems.stochastic.types import ArmStatistics, Choice


class WindowPolicy:
    """Base class of policies whose state is the number of uses and the total reward of each model in the latest `window` rounds."""

    window: int  # The last field of each policy.

    def check(self) -> None:
        checks.count("window", self.window)

    def init(self, key: Array, spec: Spec) -> WindowSums:
        return WindowSums.empty(key, spec.num_models, self.window)

    def update(self, key: Array, state: WindowSums, obs: tuple[()], action: Array, feedback: Array, t: Array) -> WindowSums:
        del key, obs
        return state.add(action, feedback, t)


@struct.dataclass
class SlidingWindowUCB(RangeBound, WindowPolicy):
    """UCB of the latest `W` rounds. Its bound is `mean + b sqrt(xi log(min(t, W)) / pulls)`, with the mean and the number of pulls in these rounds.

    For means that change abruptly. A model that was not used in the window comes first.

    Source: Garivier and Moulines (2011), SW-UCB; `t` is 1 in the first round.

    Attributes:
      xi: `[]` factor of the logarithm; the theory requires more than 1/2.
      upper: `[]` largest reward `b`: rewards lie in `[0, b]`.
      window: number of rounds `W` (static); the default is that of `tuned(10_000)`.
    """

    window: int = struct.field(pytree_node=False, default=607)

    @classmethod
    def tuned(cls, horizon: int, changes: int = 1, upper: float = 1.0, **options: Leaf) -> Self:
        """Returns the policy with the window of the theory, `2 b sqrt(T log(T) / changes)`.

        `horizon` is `T`, `changes` the number of changes of the means, `upper` the largest reward `b`; `options` are the other attributes.
        """
        rounds, times = checks.count("horizon", horizon, 2), checks.count("changes", changes)
        top = float(checks.positive("upper", upper, ()))
        return cls(window=math.ceil(2.0 * top * math.sqrt(rounds * math.log(rounds) / times)), upper=upper, **options)

    def act(self, key: Array, state: WindowSums, obs: tuple[()], t: Array) -> Choice:
        del key, obs
        share = 1.0 / jnp.maximum(state.pulls, 1).astype(jnp.float32)
        log_t = jnp.log(jnp.minimum(jnp.asarray(t, share.dtype) + 1.0, float(self.window)))
        bound = state.reward_sum * share + self.upper * jnp.sqrt(self.xi * log_t * share)
        bound = jnp.where(state.pulls > 0, bound, jnp.inf)
        return numerics.argmax(bound, order=state.order), {"bound": bound}


@struct.dataclass
class SlidingWindowThompson(BetaPrior, WindowPolicy):
    """Thompson sampling with the posterior `Beta(successes + wins, failures + losses)`, wins and losses being those of the latest `W` rounds.

    Source: Trovo, Paladino, Restelli and Gatti (2020), SW-TS. Rewards in (0, 1) are fractions of a success. Beta draws are slow: see `BetaThompson`.

    Attributes:
      successes, failures: `[]` prior successes and failures, each at least 1.
      window: number of rounds `W` (static); the default is that of `SlidingWindowUCB`.
    """

    window: int = struct.field(pytree_node=False, default=607)

    def act(self, key: Array, state: WindowSums, obs: tuple[()], t: Array) -> Choice:
        del obs, t
        wins = self.successes + state.reward_sum
        losses = self.failures + (state.pulls.astype(jnp.float32) - state.reward_sum)
        # Sums of fractional rewards have rounding errors.
        sample = draws.beta(key, jnp.maximum(wins, 1.0), jnp.maximum(losses, 1.0))
        return numerics.argmax(sample), {"sample": sample}


@struct.dataclass
class DiscountedSums(ArmStatistics):
    """Number of uses and total reward of each model, `[K]` float32, where uses and rewards of `n` rounds ago are multiplied by `discount^n`."""

    @classmethod
    def empty(cls, key: Array, num_models: int) -> Self:
        """Returns the sums before the first round; `key` draws the order in which ties are broken."""
        zeros = jnp.zeros((num_models,), jnp.float32)
        errors = numerics.no_errors(pulls=zeros, reward_sum=zeros)
        return cls(zeros, zeros, errors, draws.order(key, num_models))


@struct.dataclass
class DiscountedPolicy:
    """Base class of policies whose state is `DiscountedSums`; each round multiplies the weight of former rounds by `discount`, in (0, 1]."""

    discount: Leaf = 0.9975

    def check(self) -> None:
        checks.share("discount", self.discount, ())

    def init(self, key: Array, spec: Spec) -> DiscountedSums:
        return DiscountedSums.empty(key, spec.num_models)

    def update(
        self, key: Array, state: DiscountedSums, obs: tuple[()], action: Array, feedback: Array, t: Array
    ) -> DiscountedSums:
        del key, obs, t
        chosen = numerics.one_hot(action, state.pulls.shape[-1])
        lost = (
            1.0 - self.discount
        )  # Subtracting the small lost part retains digits that a product with the discount would lose.
        return numerics.accumulate(
            state,
            pulls=chosen.astype(jnp.float32) - lost * state.pulls,
            reward_sum=jnp.where(chosen, feedback, 0.0) - lost * state.reward_sum,
        )


@struct.dataclass
class DiscountedUCB(RangeBound, DiscountedPolicy):
    """UCB of discounted sums. Its bound is `mean + 2 b sqrt(xi log(n) / pulls)`, with discounted `mean` and `pulls`; `n` is the sum of `pulls`.

    For means that change. A model that was never used comes first. Source: Garivier and Moulines (2011), D-UCB.

    Attributes:
      discount: `[]` factor by which each round reduces the weight of former rounds, in (0, 1]; the default is that of `tuned(10_000)`.
      xi: `[]` factor of the logarithm; the theory requires more than 1/2.
      upper: `[]` largest reward `b`: rewards lie in `[0, b]`.
    """

    @classmethod
    def tuned(cls, horizon: int, changes: int = 1, upper: float = 1.0, **options: Leaf) -> Self:
        """Returns the policy with the discount of the theory, `1 - sqrt(changes / T) / (4 b)`.

        `horizon` is `T`, `changes` the number of changes of the means, `upper` the largest reward `b`; `options` are the other attributes.
        """
        rounds, times = checks.count("horizon", horizon), checks.count("changes", changes)
        top = float(checks.positive("upper", upper, ()))
        return cls(discount=1.0 - math.sqrt(times / rounds) / (4.0 * top), upper=upper, **options)

    def act(self, key: Array, state: DiscountedSums, obs: tuple[()], t: Array) -> Choice:
        del key, obs, t
        used = state.pulls > 0
        share = 1.0 / jnp.where(used, state.pulls, 1.0)
        log_n = jnp.log(jnp.maximum(jnp.sum(state.pulls, axis=-1), 1.0))
        bound = state.reward_sum * share + 2.0 * self.upper * jnp.sqrt(self.xi * log_n * share)
        bound = jnp.where(used, bound, jnp.inf)
        return numerics.argmax(bound, order=state.order), {"bound": bound}


@struct.dataclass
class DiscountedThompson(BetaPrior, DiscountedPolicy):
    """Thompson sampling with the posterior `Beta(successes + wins, failures + losses)`, with discounted numbers of wins and losses.

    Source: Raj and Kalyani (2017), dTS. A reward in (0, 1) counts as that fraction of a success. Beta draws are slow: see `BetaThompson`.

    Attributes:
      discount: `[]` factor by which each round reduces the weight of former rounds, in (0, 1]; the default is that of `DiscountedUCB`.
      successes, failures: `[]` prior successes and failures, each at least 1.
    """

    def act(self, key: Array, state: DiscountedSums, obs: tuple[()], t: Array) -> Choice:
        del obs, t
        more = state.errors["pulls"] - state.errors["reward_sum"]
        losses = jnp.maximum((state.pulls - state.reward_sum) + more, 0.0)
        sample = draws.beta(key, self.successes + state.reward_sum, self.failures + losses)
        return numerics.argmax(sample), {"sample": sample}
