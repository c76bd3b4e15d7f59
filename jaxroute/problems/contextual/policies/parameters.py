"""How the models' parameters belong together: each its own (disjoint), or one for all (shared)."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.contextual.types import ContextualSpec


class Spread(Protocol):
    """A normal distribution of the errors of `G` parameters, around 0."""

    def square_deviation(self, x: jax.Array) -> jax.Array:
        """Variance `[K]` of the error of a prediction at each column of `x` `[d, K]` (or `[d, 1]`)."""
        ...

    def sample(self, noise: jax.Array) -> jax.Array:
        """An error `[d]` of the only parameter, made of standard normal noise `[d]`."""
        ...


class Parameters(Protocol):
    """What a linear policy learns: `G` parameters of dimension `d`, and which of them a round tells something about."""

    def check_spec(self, spec: ContextualSpec) -> None:
        """Raises `ValueError` where it does not suit an environment."""
        ...

    def sizes(self, spec: ContextualSpec) -> tuple[int, int]:
        """`d` and `G`."""
        ...

    def columns(self, features: jax.Array) -> jax.Array:
        """Features `[d, K]` (or `[d, 1]`, the same for all models) of the contexts `[rows, d]`."""
        ...

    def of_chosen(self, x: jax.Array, action: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
        """Features `[d, G]` (or `[d, 1]`) and a mask `[G]`: what the chosen model's reward is an observation of.

        Args:
          x: from `columns`.
          action: `[]`, the model.
          number: `G`.
        """
        ...

    def errors(self, key: jax.Array, x: jax.Array, spread: Spread) -> jax.Array:
        """Errors `[K]` of the models' predictions, where the errors of the parameters are drawn once from their distribution.

        Args:
          key: typed, `[]`.
          x: from `columns`.
          spread: the distribution.
        """
        ...


@struct.dataclass
class Disjoint:
    """Each model has a parameter of its own, which only its own rewards tell something about.

    Source: Li, Chu, Langford and Schapire (2010), section 3.1.
    """

    def check_spec(self, spec: ContextualSpec) -> None:
        del spec

    def sizes(self, spec: ContextualSpec) -> tuple[int, int]:
        return spec.dim, spec.num_models

    def columns(self, features: jax.Array) -> jax.Array:
        return features.T

    def of_chosen(self, x: jax.Array, action: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
        return x, numerics.one_hot(action, number)

    def errors(self, key: jax.Array, x: jax.Array, spread: Spread) -> jax.Array:
        # Parameters are independent, so that a normal number for each model is as good as a vector.
        deviation = jnp.sqrt(spread.square_deviation(x))
        return deviation * draws.normal(key, deviation.shape)


@struct.dataclass
class Shared:
    """All models have the same parameter: what one model's reward tells is used for all.

    Where the environment shows one context for all models, descriptors tell the models apart: the features of a model are all products
    of a number of the context and a number of its descriptor. With unit vectors for descriptors that is `Disjoint`.

    Source: Chu, Li, Reyzin and Schapire (2011); Li et al. (2010), for products as features.

    Attributes:
      descriptors: `[K, m]` what is known of each model, its price or size for example; None where each model has a context of its own.
    """

    descriptors: Leaf | None = None

    def check(self) -> None:
        if self.descriptors is not None and checks.numbers("descriptors", self.descriptors).ndim != 2:
            raise ValueError(f"descriptors must have shape [K, m], got {checks.show(self.descriptors)}")

    def check_spec(self, spec: ContextualSpec) -> None:
        if self.descriptors is None and spec.rows < spec.num_models:
            raise ValueError("descriptors of the models must be given where all models see the same context, got None")
        if self.descriptors is not None and self.descriptors.shape[0] != spec.num_models:
            raise ValueError(f"descriptors must have {spec.num_models} rows, one per model, got {self.descriptors.shape[0]}")

    def sizes(self, spec: ContextualSpec) -> tuple[int, int]:
        return spec.dim * (1 if self.descriptors is None else self.descriptors.shape[1]), 1

    def columns(self, features: jax.Array) -> jax.Array:
        if self.descriptors is None:
            return features.T
        products = jnp.asarray(self.descriptors).T[:, None, :] * features.T[None, :, :]
        return products.reshape(-1, products.shape[-1])

    def of_chosen(self, x: jax.Array, action: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
        chosen = numerics.one_hot(action, x.shape[-1])
        return numerics.pick(chosen, x)[:, None], jnp.ones((number,), bool)

    def errors(self, key: jax.Array, x: jax.Array, spread: Spread) -> jax.Array:
        return numerics.combine(spread.sample(draws.normal(key, (x.shape[0],))), x)
