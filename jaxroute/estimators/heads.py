"""Small classifiers trained online, one example at a time: several binary outputs from one feature vector.

A head (see `Head`) maps the features of a query to a logit for each output; the policies train its parameters by stochastic gradient descent
with PyTorch's conventions (`SGD`).
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import struct
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jaxroute.core import checks, draws, numerics, xla
from jaxroute.core.types import Leaf


class Head(Protocol):
    """Classifier that maps features `[d]` to `M` logits, one for each binary output."""

    def check(self) -> None:
        """Raises `ValueError` if a field is out of range."""

    def init(self, key: Array, num_features: int, num_outputs: int) -> Any:
        """Returns the initial parameters, a pytree, for `num_features` features (`d`) and `num_outputs` outputs (`M`)."""
        ...

    def logits(self, params: Any, x: Array) -> Array:
        """Returns the logits `[M]` for predictions, without dropout."""
        ...

    def training_logits(self, key: Array, params: Any, x: Array) -> Array:
        """Returns the logits `[M]` for training. `key` draws which units dropout removes; heads without dropout (`Logistic`) do not use it."""
        del key
        return self.logits(params, x)


def binary_cross_entropy(logits: Array, labels: Array) -> Array:
    """Returns the mean over `M` outputs of `-s log p - (1 - s) log(1 - p)` with `p = sigmoid(logits)` and labels `s`, stable for large logits."""
    # A formula with |logits| would have a wrong derivative at 0, where training begins.
    return jnp.mean(jax.nn.softplus(logits) - logits * labels)


def squared_norm(tree: Any) -> Array:
    """Returns the sum of squares of all arrays in a pytree."""
    return sum((jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)), start=jnp.zeros((), jnp.float32))


@struct.dataclass
class Logistic(Head):
    """Logistic regression: `logits = x W + b`, with parameters `{"w": [d, M], "b": [M]}`.

    Attributes:
      init_spread: `[]` standard deviation of the initial weights and biases; 0 starts with all probabilities at one half.
    """

    init_spread: Leaf = 0.0

    def check(self) -> None:
        checks.non_negative("init_spread", self.init_spread, ())

    def init(self, key: Array, num_features: int, num_outputs: int) -> dict[str, Array]:
        k_w, k_b = draws.split(key)
        spread = jnp.asarray(self.init_spread, jnp.float32)
        return {
            "w": spread * draws.normal(k_w, (num_features, num_outputs)),
            "b": spread * draws.normal(k_b, (num_outputs,)),
        }

    def logits(self, params: dict[str, Array], x: Array) -> Array:
        return numerics.combine(x, params["w"]) + params["b"]


def _uniform_init(fan_in: int) -> Callable[..., Array]:
    """Returns an initialiser that draws uniformly from `[-1, 1] / sqrt(fan_in)`, as PyTorch does for a linear layer with `fan_in` inputs."""

    def init(key: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -1.0, 1.0) / np.sqrt(fan_in).astype(np.float32)

    return init


def _vector_matrix(
    x: Array, kernel: Array, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None
) -> Array:
    """Returns the product of `x` `[d]` and `kernel` `[d, h]`. It replaces `lax.dot_general` in `nn.Dense`, whose other arguments are ignored."""
    del dimension_numbers, precision, preferred_element_type
    return xla.compute_once(numerics.combine(xla.compute_once(x), kernel))  # The layer norm reads it three times.


class _Mlp(nn.Module):
    """Network of `Mlp`. A call takes features, and factors of inputs and of hidden units: from `Mlp.keep` in training, 1 for predictions.

    Attributes:
      width: number of hidden units.
      outputs: number of logits.
    """

    width: int
    outputs: int

    @nn.compact
    def __call__(self, x: Array, keep_input: ArrayLike, keep_hidden: ArrayLike) -> Array:
        def dense(size: int, fan_in: int, name: str) -> nn.Dense:
            init = _uniform_init(fan_in)
            return nn.Dense(size, kernel_init=init, bias_init=init, dot_general=_vector_matrix, name=name)

        x = dense(self.width, x.shape[-1], "hidden")(x * keep_input)
        x = nn.relu(nn.LayerNorm(epsilon=1e-5, name="norm")(x))
        return dense(self.outputs, self.width, "output")(x * keep_hidden)


@struct.dataclass
class Mlp(Head):
    """Network with one hidden layer (dropout, linear, layer norm, ReLU, dropout, linear) and PyTorch's initial weights.

    Source: MESS+, section 4.1 and appendix B: the head on the output `x` of a frozen encoder.

    Attributes:
      dropout: `[]` probability that an input or hidden unit is dropped in training.
      width: number of hidden units (static; default: the number of features, at most 768).
    """

    dropout: Leaf = 0.1
    width: int | None = struct.field(pytree_node=False, default=None)

    def check(self) -> None:
        if checks.non_negative("dropout", self.dropout, ()) >= 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout:g}")
        if self.width is not None:
            checks.count("width", self.width)

    def _module(self, num_features: int, num_outputs: int) -> _Mlp:
        return _Mlp(width=min(num_features, 768) if self.width is None else self.width, outputs=num_outputs)

    def init(self, key: Array, num_features: int, num_outputs: int) -> Any:
        module = self._module(num_features, num_outputs)
        return module.init(key, jnp.zeros(num_features), 1.0, 1.0)["params"]

    def _apply(self, params: Any, x: Array, keep_input: ArrayLike, keep_hidden: ArrayLike) -> Any:
        module = self._module(x.shape[-1], params["output"]["bias"].shape[-1])
        return module.apply({"params": params}, x, keep_input, keep_hidden)

    def logits(self, params: Any, x: Array) -> Array:
        return self._apply(params, x, 1.0, 1.0)

    def keep(self, key: Array, num_features: int, width: int) -> tuple[Array, Array]:
        """Draws the dropout factors of `num_features` inputs and of `width` hidden units, as two arrays: each factor is 0 or 1 / (1 - dropout)."""
        k_input, k_hidden = draws.split(key)
        kept = 1.0 - jnp.asarray(self.dropout, jnp.float32)
        keep_input = jnp.where(draws.uniform(k_input, (num_features,)) < kept, 1.0 / kept, 0.0)
        return keep_input, jnp.where(draws.uniform(k_hidden, (width,)) < kept, 1.0 / kept, 0.0)

    def training_logits(self, key: Array, params: Any, x: Array) -> Array:
        return self._apply(params, x, *self.keep(key, x.shape[-1], params["norm"]["bias"].shape[-1]))


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
    """Adds the rounding errors `state` of the last update to `updates`, so that small steps are not lost. Returns the sum and the new errors."""
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
            getattr(self.learning_rate, "check", lambda: None)()
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
