"""Memories: forms in which a learner stores its parameters and observations, one class for each kind of query features.

`SharedRows` is for Algorithm 1 of ACQB, with one parameter vector for all models; the others are for Algorithm 2, with one per model. A memory is
built from the sizes of an environment and has no data itself; the data are part of the policy's state.
"""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import numerics
from jaxroute.estimators import mnl
from jaxroute.problems.queueing.types import QueueSpec


@struct.dataclass
class RoundData:
    """Observation of one round in the form that the estimator of `ACQB` needs: `K` models shown, `d` features.

    Attributes:
      x: `[K, d]` features phi(x_t) for each model shown.
      items: `[K]` int32, indices of the models shown, rising; -1 for none.
      accepted: `[]` position of the accepted model in `items`, `K` if none was accepted.
      parameters: `[K]` int32, index of the parameter vector for each row of `x`; -1 for none.
      refit: `[A]` int32, indices of up to `A` parameter vectors that are estimated again after the round; -1 for none.
      new: terms that the observation adds to the gradient and Hessian of the negative log-likelihood, see `mnl.NewestObservation`.
    """

    x: Array
    items: Array
    accepted: Array
    parameters: Array
    refit: Array
    new: mnl.NewestObservation


@dataclass(frozen=True)
class Memory(abc.ABC):
    """Base class of the ways to store parameters and observations. By default there is one parameter vector per model and one row of data per round.

    Attributes:
      spec: sizes of the environment.
      dim: number of features, `d`.
      joint: whether the parameters of all models are estimated again in every round, not only those of the models shown.
      has_hessian: whether second derivatives are available, which `Newton` needs.
    """

    spec: QueueSpec
    dim: int
    joint: bool = False

    has_hessian: ClassVar[bool] = True

    @property
    def num_parameters(self) -> int:
        """Returns the number of parameter vectors, each `[d]`."""
        return self.spec.num_models

    @abc.abstractmethod
    def init(self) -> Any:
        """Returns the data of the policy's state before the first observation."""

    def rounds_learned(self, pulls: Array, t: Array) -> Array:
        """Returns for each parameter vector how many rounds have been used to estimate it; its confidence radius depends on this number.

        `pulls` `[N]` int32 counts the rounds in which each model was shown, `t` the rounds so far.
        """
        del t
        return pulls

    def round_data(self, theta: Array, x: Array, items: Array, accepted: Array) -> RoundData:
        """Returns the observation of a round for `write` and for the solver, with the derivatives of its likelihood at `theta`.

        Args:
          theta: `[N, d]` estimate before the round.
          x: `[d]` features of the served query, or `[N, d]` of its pairs with the models.
          items: `[K]` int32, indices of the models shown, -1 for none.
          accepted: `[]` position of the accepted model in `items`, `K` for none.
        """
        refit = jnp.arange(self.spec.num_models, dtype=jnp.int32) if self.joint else items
        logits = jnp.stack([numerics.combine(theta[j], x[:, None])[0] for j in range(theta.shape[0])])
        new = mnl.new_row(logits, x, items, accepted, refit)
        rows = jnp.broadcast_to(x, (items.shape[0], *x.shape))
        return RoundData(x=rows, items=items, accepted=accepted, parameters=items, refit=refit, new=new)

    @abc.abstractmethod
    def write(self, data: Any, t: Array, prompt: Array | None, new: RoundData, valid: Array) -> Any:
        """Returns `data` after round `t`, whose observation `new` is added only if `valid`; `prompt` is the query's index in a pool, or None."""

    def derivatives(self, data: Any, refit: Array, features: Array, t: Array) -> mnl.Derivatives:
        """Returns a function of `theta` that computes the gradient and the Hessian of the data's negative log-likelihood.

        `data` are from rounds up to `t`. The derivatives are with respect to the parameter vectors with indices `refit` `[A]`. `features` `[d, P]`
        are those of a pool's prompts, whose data are counts; without a pool they are not used.
        """
        del features

        def sums(theta: Array, *, hessian: bool = True) -> mnl.Sums:
            return data.sums(theta, refit, t + 1, hessian=hessian)

        return sums


class SharedRows(Memory):
    """Memory for features of query-model pairs, with one parameter vector for all models and a row of data per round: ACQB, Algorithm 1."""

    @property
    def num_parameters(self) -> int:
        return 1

    def init(self) -> mnl.PairRows:
        return mnl.PairRows.empty(self.spec.rounds, self.spec.num_offered, self.dim)

    def rounds_learned(self, pulls: Array, t: Array) -> Array:
        del pulls
        return t[None]

    def round_data(self, theta: Array, x: Array, items: Array, accepted: Array) -> RoundData:
        present = items >= 0
        masks = [numerics.one_hot(items[k], self.spec.num_models) for k in range(self.spec.num_offered)]
        shown = jnp.stack([numerics.pick(mask, x.T) for mask in masks])
        return RoundData(
            x=shown,
            items=items,
            accepted=accepted,
            parameters=jnp.where(present, 0, -1),
            refit=jnp.zeros((1,), jnp.int32),
            new=mnl.new_pair(theta[0], shown, present, accepted),
        )

    def write(self, data: mnl.PairRows, t: Array, prompt: Array | None, new: RoundData, valid: Array) -> mnl.PairRows:
        del prompt
        return data.write(t, new.x, new.items >= 0, new.accepted, valid)


class ModelRows(Memory):
    """Memory with one parameter vector per model and a row of data per round: ACQB, Algorithm 2."""

    def init(self) -> mnl.Rows:
        return mnl.Rows.empty(self.spec.rounds, self.spec.num_models, self.spec.num_offered, self.dim)

    def write(self, data: mnl.Rows, t: Array, prompt: Array | None, new: RoundData, valid: Array) -> mnl.Rows:
        del prompt
        return data.write(t, new.x[0], new.items, new.accepted, valid)


class PromptCounts(Memory):
    """Memory for a pool of prompts and one or two answers per round, with one parameter vector per model: ACQB, Algorithm 2.

    For each prompt and each model (or pair of models shown together) it counts the rounds and the accepted answers.
    """

    has_hessian: ClassVar[bool] = False

    def init(self) -> mnl.Counts | mnl.PairCounts:
        kind = mnl.Counts if self.spec.num_offered == 1 else mnl.PairCounts
        return kind.empty(self.spec.num_models, self.spec.prompts, self.spec.rounds)

    def write(
        self, data: mnl.Counts | mnl.PairCounts, t: Array, prompt: Array | None, new: RoundData, valid: Array
    ) -> mnl.Counts | mnl.PairCounts:
        del t
        assert prompt is not None
        return data.add(prompt, new.items, new.accepted, valid)

    def derivatives(self, data: mnl.Counts | mnl.PairCounts, refit: Array, features: Array, t: Array) -> mnl.Derivatives:
        del t
        return data.sums(features, refit)
