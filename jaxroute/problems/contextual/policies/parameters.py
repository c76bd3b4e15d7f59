"""Parameter vectors of the models, a separate one for each (disjoint) or the same for all (shared), and base classes of policies that learn them."""

from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import Ridge
from jaxroute.problems.contextual.types import ContextualSpec


@struct.dataclass
class DisjointParameters:
    """Separate parameter vector for each model, learned from its rewards alone. Source: Li, Chu, Langford and Schapire (2010), section 3.1."""

    def check_spec(self, spec: ContextualSpec) -> None:
        del spec

    def sizes(self, spec: ContextualSpec) -> tuple[int, int]:
        """Returns the dimension `d` and the number `G` of the parameter vectors, one for each model."""
        return spec.dim, spec.num_models

    def columns(self, features: Array) -> Array:
        """Returns the features of each model as a column, `[d, K]` (`[d, 1]` if all have the same), from the contexts `[rows, d]` of a round."""
        return features.T

    def of_chosen(self, x: Array, action: Array, number: int) -> tuple[Array, Array]:
        """Returns what a reward of the model `action` updates: features (here all of `x`) and a bool mask `[number]` of vectors (here its own)."""
        return x, numerics.one_hot(action, number)

    def errors(self, key: Array, x: Array, distribution: Any) -> Array:
        """Draws the deviation of each model's prediction from its mean, `[K]`, by the posterior `distribution`; features `x` are from `columns`."""
        # Parameters are independent: a normal number per model has the same distribution as a vector per model.
        deviation = jnp.sqrt(distribution.square_deviation(x))
        return deviation * draws.normal(key, deviation.shape)


@struct.dataclass
class SharedParameters:
    """Single parameter vector for all models, learned from all rewards.

    If the environment has one context `[d]` for all models, `descriptors` must distinguish the models: the `d m` features of a model are all products
    of an entry of the context and an entry of its descriptor. Unit vectors as descriptors are equivalent to `DisjointParameters`. Source: Chu, Li,
    Reyzin and Schapire (2011); Li et al. (2010), for products as features.

    Attributes:
      descriptors: `[K, m]` properties of each model, for example price or size; None if each model has a separate context.
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

    def columns(self, features: Array) -> Array:
        if self.descriptors is None:
            return features.T
        products = jnp.asarray(self.descriptors).T[:, None, :] * features.T[None, :, :]
        return products.reshape(-1, products.shape[-1])

    def of_chosen(self, x: Array, action: Array, number: int) -> tuple[Array, Array]:
        """Returns the features of the model `action` alone, `[d, 1]`, and the mask of the single vector, which every reward updates."""
        chosen = numerics.one_hot(action, x.shape[-1])
        return numerics.pick(chosen, x)[:, None], jnp.ones((number,), bool)

    def errors(self, key: Array, x: Array, distribution: Any) -> Array:
        return numerics.combine(distribution.sample(draws.normal(key, (x.shape[0],))), x)


Parameters = DisjointParameters | SharedParameters


@struct.dataclass
class ParameterPolicy:
    """Base class of policies that learn parameter vectors: one for each model (`DisjointParameters()`) or one for all (`SharedParameters()`)."""

    parameters: Parameters = struct.field(default_factory=DisjointParameters, kw_only=True)

    def check(self) -> None:
        checks.part("parameters", self.parameters, "of_chosen", "DisjointParameters()")

    def check_spec(self, spec: ContextualSpec) -> None:
        self.parameters.check_spec(spec)


@struct.dataclass
class RidgePolicy(ParameterPolicy):
    """Base class of policies that predict rewards by ridge regression on features; `ridge` is the weight of the squared norm in it."""

    ridge: Leaf = struct.field(default=1.0, kw_only=True)

    def check(self) -> None:
        checks.positive("ridge", self.ridge, ())
        super().check()

    def init(self, key: Array, spec: ContextualSpec) -> Any:
        del key
        return Ridge.start(self.ridge, *self.parameters.sizes(spec))

    def update(self, key: Array, state: Any, obs: Array, action: Array, feedback: Array, t: Array) -> Any:
        del key, t
        x, seen = self.parameters.of_chosen(self.parameters.columns(obs), action, state.theta.shape[-1])
        return state.add(x, feedback, seen)
