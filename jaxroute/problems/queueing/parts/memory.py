"""What a learner remembers, and which parameters it has: a kind for each way to describe queries and to count them.

`SharedRows` is Algorithm 1 of ACQB, one parameter for all models; the others are Algorithm 2, one for each. All have the
methods of `Memory`. Each is made from the sizes of an environment, and is not part of the state: the data are.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics
from jaxroute.estimators import mnl
from jaxroute.problems.queueing.types import QueueSpec


@struct.dataclass
class RoundData:
    """What a round taught.

    Attributes:
      x: `[K, d]`, features phi(x_t) for each model that was shown.
      items: `[K]` int32, the models, rising; -1 for none.
      accepted: `[]`, place of the accepted one, `K` for none.
      parameters: `[K]` int32, whose parameter each row of `x` is about; -1 for none.
      refit: `[A]` int32, parameters that are estimated again; -1 for none.
      new: what the observation adds to the derivatives of the likelihood.
    """

    x: jax.Array
    items: jax.Array
    accepted: jax.Array
    parameters: jax.Array
    refit: jax.Array
    new: mnl.NewestObservation


class Memory(Protocol):
    """A way to remember.

    Attributes:
      has_hessian: whether the derivatives have second ones, which `Newton` needs.
    """

    has_hessian: ClassVar[bool]

    @property
    def num_parameters(self) -> int:
        """Parameters, each `[d]`."""
        ...

    def init(self) -> Any:
        """No data."""
        ...

    def rounds_learned(self, pulls: jax.Array, t: jax.Array) -> jax.Array:
        """Rounds from which each parameter was learned, as the confidence radius counts them.

        Args:
          pulls: `[N]` int32, rounds served with each model.
          t: `[]`, rounds so far.
        """
        ...

    def lesson(self, theta: jax.Array, x: jax.Array, items: jax.Array, accepted: jax.Array) -> RoundData:
        """What the round taught.

        Args:
          theta: the last estimate.
          x: `[d]`, with pair features `[N, d]`, features of the query that was served.
          items: `[K]` int32, models that were shown, -1 for none.
          accepted: `[]`, place of the accepted one.
        """
        ...

    def write(self, data: Any, t: jax.Array, prompt: jax.Array | None, lesson: RoundData, valid: jax.Array) -> Any:
        """The data with a round.

        Args:
          data: from `init` or the last `write`.
          t: `[]`, the round.
          prompt: `[]`, that was served, None without a pool.
          lesson: of the round.
          valid: `[]` bool; if False nobody was served.
        """
        ...

    def derivatives(self, data: Any, refit: jax.Array, features: jax.Array, t: jax.Array) -> mnl.Derivatives:
        """Of the negative log-likelihood of the data.

        Args:
          data: after the round.
          refit: `[A]`, in which parameters.
          features: of all places, or prompts, see `Queries.features`.
          t: `[]`, the round.
        """
        ...


@dataclass(frozen=True)
class SharedRows:
    """One parameter for all models and features of pairs, from a row per round: Algorithm 1.

    Attributes:
      spec: sizes.
      dim: `d`.
    """

    spec: QueueSpec
    dim: int

    has_hessian: ClassVar[bool] = True

    @property
    def num_parameters(self) -> int:
        return 1

    def init(self) -> mnl.PairRows:
        return mnl.PairRows.empty(self.spec.rounds, self.spec.num_offered, self.dim)

    def rounds_learned(self, pulls: jax.Array, t: jax.Array) -> jax.Array:
        del pulls
        return t[None]

    def lesson(self, theta: jax.Array, x: jax.Array, items: jax.Array, accepted: jax.Array) -> RoundData:
        present = items >= 0
        of_models = [numerics.one_hot(items[k], self.spec.num_models) for k in range(self.spec.num_offered)]
        shown = jnp.stack([numerics.pick(mask, x.T) for mask in of_models])
        return RoundData(
            x=shown,
            items=items,
            accepted=accepted,
            parameters=jnp.where(present, 0, -1),
            refit=jnp.zeros((1,), jnp.int32),
            new=mnl.new_pair(theta[0], shown, present, accepted),
        )

    def write(
        self, data: mnl.PairRows, t: jax.Array, prompt: jax.Array | None, lesson: RoundData, valid: jax.Array
    ) -> mnl.PairRows:
        del prompt
        return data.write(t, lesson.x, lesson.items >= 0, lesson.accepted, valid)

    def derivatives(self, data: mnl.PairRows, refit: jax.Array, features: jax.Array, t: jax.Array) -> mnl.Derivatives:
        del features
        return _of_rows(data, refit, t)


@dataclass(frozen=True)
class ModelRows:
    """One parameter per model, from a row per round: Algorithm 2.

    Attributes:
      spec: sizes.
      dim: `d`.
      joint: the parameters of all models are estimated again in every round, not only those of the models shown.
    """

    spec: QueueSpec
    dim: int
    joint: bool

    has_hessian: ClassVar[bool] = True

    @property
    def num_parameters(self) -> int:
        return self.spec.num_models

    def init(self) -> mnl.Rows:
        return mnl.Rows.empty(self.spec.rounds, self.spec.num_models, self.spec.num_offered, self.dim)

    def rounds_learned(self, pulls: jax.Array, t: jax.Array) -> jax.Array:
        del t
        return pulls

    def lesson(self, theta: jax.Array, x: jax.Array, items: jax.Array, accepted: jax.Array) -> RoundData:
        everyone = jnp.arange(self.spec.num_models, dtype=jnp.int32)
        return _lesson_per_model(theta, x, items, accepted, everyone if self.joint else items)

    def write(self, data: mnl.Rows, t: jax.Array, prompt: jax.Array | None, lesson: RoundData, valid: jax.Array) -> mnl.Rows:
        del prompt
        return data.write(t, lesson.x[0], lesson.items, lesson.accepted, valid)

    def derivatives(self, data: mnl.Rows, refit: jax.Array, features: jax.Array, t: jax.Array) -> mnl.Derivatives:
        del features
        return _of_rows(data, refit, t)


@dataclass(frozen=True)
class PromptCounts:
    """One parameter per model, from counts of the prompts of a pool, for one or two answers: Algorithm 2.

    Attributes:
      spec: sizes.
    """

    spec: QueueSpec

    has_hessian: ClassVar[bool] = False

    @property
    def num_parameters(self) -> int:
        return self.spec.num_models

    def init(self) -> mnl.Counts | mnl.PairCounts:
        kind = mnl.Counts if self.spec.num_offered == 1 else mnl.PairCounts
        return kind.empty(self.spec.num_models, self.spec.prompts, self.spec.rounds)

    def rounds_learned(self, pulls: jax.Array, t: jax.Array) -> jax.Array:
        del t
        return pulls

    def lesson(self, theta: jax.Array, x: jax.Array, items: jax.Array, accepted: jax.Array) -> RoundData:
        return _lesson_per_model(theta, x, items, accepted, items)

    def write(
        self, data: mnl.Counts | mnl.PairCounts, t: jax.Array, prompt: jax.Array | None, lesson: RoundData, valid: jax.Array
    ) -> mnl.Counts | mnl.PairCounts:
        del t
        assert prompt is not None
        return data.add(prompt, lesson.items, lesson.accepted, valid)

    def derivatives(
        self, data: mnl.Counts | mnl.PairCounts, refit: jax.Array, features: jax.Array, t: jax.Array
    ) -> mnl.Derivatives:
        del t
        return data.sums(features, refit)


def memory_for(spec: QueueSpec, dim: int, joint: bool) -> SharedRows | ModelRows | PromptCounts:
    """The kind for an environment.

    Args:
      spec: of the environment.
      dim: of the features that the policy sees.
      joint: see `ModelRows`.
    """
    if spec.prompts and spec.num_offered <= 2:
        return PromptCounts(spec)
    return SharedRows(spec, dim) if spec.pair_features else ModelRows(spec, dim, joint)


def _lesson_per_model(theta: jax.Array, x: jax.Array, items: jax.Array, accepted: jax.Array, refit: jax.Array) -> RoundData:
    logits = jnp.stack([numerics.combine(theta[j], x[:, None])[0] for j in range(theta.shape[0])])
    new = mnl.new_row(logits, x, items, accepted, refit)
    of_each = jnp.broadcast_to(x, (items.shape[0], *x.shape))
    return RoundData(x=of_each, items=items, accepted=accepted, parameters=items, refit=refit, new=new)


def _of_rows(data: mnl.Rows | mnl.PairRows, refit: jax.Array, t: jax.Array) -> mnl.Derivatives:
    def sums(theta: jax.Array, *, hessian: bool = True) -> mnl.Sums:
        return data.sums(theta, refit, t + 1, hessian=hessian)

    return sums
