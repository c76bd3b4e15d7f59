"""Stochastic gradient descent with PyTorch's conventions, composed of optax transformations."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array

from jaxroute.core import checks
from jaxroute.core.types import Leaf


@struct.dataclass
class TheorySteps:
    """Schedule of step sizes: `min(2 / (mu (k + 1)), 1 / L)` for step `k = 1, 2, ...`.

    Source: MESS+, Lemma A.1.

    Attributes:
      mu: `[]` constant of the Polyak-Lojasiewicz inequality (the weight of the squared norm in the loss).
      smoothness: `[]` Lipschitz constant `L` of the gradient.
    """

    mu: Leaf
    smoothness: Leaf

    def __call__(self, steps_done: Array) -> Array:
        return jnp.minimum(2.0 / (self.mu * (jnp.asarray(steps_done, float) + 2.0)), 1.0 / self.smoothness)

    def check(self) -> None:
        checks.positive("mu", self.mu, ())
        checks.positive("smoothness", self.smoothness, ())


def _compensated(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
    """Adds the rounding error of the last parameter update (`state`) to the next step; otherwise rounding would remove small steps."""
    given = jax.tree.map(jnp.add, updates, state)
    return given, jax.tree.map(lambda value, step: step - ((value + step) - value), params, given)


_COMPENSATED = optax.GradientTransformation(lambda params: jax.tree.map(jnp.zeros_like, params), _compensated)


@struct.dataclass
class SGD:
    """Optimiser `v <- momentum v + g + weight_decay z`, `z <- z - learning_rate v`, for parameters `z` with gradient `g` and velocity `v`.

    Source: torch.optim.SGD without dampening and Nesterov; optax's `clip_by_global_norm`, `add_decayed_weights`, `trace`.

    Attributes:
      learning_rate: `[]` step size, or a schedule such as `TheorySteps`.
      momentum: `[]` factor of the last velocity, in [0, 1).
      weight_decay: `[]` weight of half the squared norm in the loss.
      clip: `[]` largest norm of a gradient, to which longer ones are scaled down; None means no limit.
    """

    learning_rate: Leaf = 0.06
    momentum: Leaf = 0.9
    weight_decay: Leaf = 0.01
    clip: Leaf | None = None

    def check(self) -> None:
        if callable(self.learning_rate):
            if jax.tree_util.all_leaves([self.learning_rate]):
                raise ValueError("learning_rate must be a number or a struct such as TheorySteps(...), got a plain function")
            check = getattr(self.learning_rate, "check", None)
            if check is not None:
                check()
        else:
            checks.non_negative("learning_rate", self.learning_rate, ())
        if checks.non_negative("momentum", self.momentum, ()) >= 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {float(self.momentum):g}")
        checks.non_negative("weight_decay", self.weight_decay, ())
        if self.clip is not None:
            checks.positive("clip", self.clip, ())

    def transform(self) -> optax.GradientTransformation:
        """Returns the optax transformation, with `init(params)` and `update(gradients, state, params)`."""
        parts = [
            optax.add_decayed_weights(self.weight_decay),
            optax.trace(decay=self.momentum),
            optax.scale_by_learning_rate(self.learning_rate),
        ]
        if callable(self.learning_rate):
            parts.append(_COMPENSATED)
        if self.clip is not None:
            parts.insert(0, optax.clip_by_global_norm(self.clip))
        return optax.chain(*parts)
