"""Trains a network whose features are similar for prompts that suit the same models (contrastive learning)."""

import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import struct
from jax import Array, lax
from numpy.typing import ArrayLike

from jaxroute.core import checks, draws
from jaxroute.core.quick import quick_jit
from jaxroute.core.types import Leaf

CONTRASTIVE_PRESETS: dict[str, dict[str, Any]] = {
    "sprout": {"per_model": 5, "epochs": 10, "positive_above": 0.6, "negative_below": 0.3},
    "embedllm": {"per_model": 10, "epochs": 50, "positive_above": 0.4, "negative_below": 0.1, "batch": 30},
    "routerbench": {"per_model": 5, "epochs": 10, "positive_above": 0.5, "negative_below": 0.3},
}
"""Arguments of `fit_projection` for each data set. Source: ACQB (Bae et al.), appendix B.2.

Differs from the paper: RouterBench's numbers of prompts and epochs, which it does not give, are SPROUT's. "30 prompts per epoch" for EmbedLLM is
read as a random batch of 30.
"""

# Relative size below which a centred utility vector is only rounding error.
_ROUNDING = 1e-12
_DECIMALS = 9
_ADAM = optax.adam(1e-3)  # One object, so that fits share their compiled code.


class Pairs(NamedTuple):
    """Pairs of prompts for contrastive training: for each of `n` anchors a prompt of similar utilities (positive) and up to `m` of dissimilar ones.

    Attributes:
      positive: `[n]` int32 row of the positive of each anchor, the prompt with the largest cosine; without meaning where `valid` is False.
      negatives: `[n, m]` int32 rows of prompts with cosines below `negative_below`, the least similar first.
      is_negative: `[n, m]` bool, whether an entry of `negatives` is used; the others are padding.
      valid: `[n]` bool, whether the anchor has a positive and a negative.
    """

    positive: Array
    negatives: Array
    is_negative: Array
    valid: Array


def balanced_rows(utility: ArrayLike, per_model: int, seed: int = 0) -> np.ndarray:
    """Draws at most `per_model` of the prompts on which each model is best. Returns the row numbers of all drawn prompts in ascending order.

    `utility` `[n, N]` has a row for each of `n` prompts and a column for each of `N` models. On ties the first model is best; `seed` fixes the draw.

    Source: ACQB (Bae et al.), appendix B.2, "model-balanced sampling".
    """
    values = _utility(utility)
    per_model = checks.count("per_model", per_model)
    rng = np.random.default_rng(checks.count("seed", seed, minimum=0))
    best = values.argmax(axis=1)
    groups = [np.flatnonzero(best == model) for model in range(values.shape[1])]
    return np.sort(np.concatenate([rng.permutation(group)[:per_model] for group in groups]))


def utility_cosine(utility: ArrayLike) -> np.ndarray:
    """Returns the cosines `[n, n]` between the rows of `utility` `[n, N]` (`n` prompts, `N` models), after the mean of each row is subtracted.

    A constant row has the cosine 0 with every row. Replacing each row by an increasing linear function of it, such as ACQB's departure probabilities,
    leaves the cosines unchanged. Cosines are computed in float64, rounded to 9 decimals and returned in float32, so that rounding errors do not
    decide between equal ones.

    Source: ACQB (Bae et al.), Algorithm 3, lines 2 and 3.
    """
    values = _utility(utility)
    centred = values - values.mean(axis=1, keepdims=True)
    constant = np.abs(centred).max(axis=1) <= _ROUNDING * np.abs(values).max(axis=1)
    scale = np.where(constant, 1.0, np.abs(centred).max(axis=1))
    centred = np.where(constant[:, None], 0.0, centred / scale[:, None])  # scaled first, against underflow of squares
    unit = centred / np.where(constant, 1.0, np.linalg.norm(centred, axis=1))[:, None]
    return (np.clip(unit @ unit.T, -1.0, 1.0).round(_DECIMALS) + 0.0).astype(np.float32)  # no -0, which sorts below 0


def cosine_pairs(
    cosine: Array | np.ndarray, positive_above: Leaf = 0.6, negative_below: Leaf = 0.3, num_negatives: int = 64
) -> Pairs:
    """Selects for each prompt (anchor) one prompt with the most similar utilities (positive) and several with the least similar ones (negatives).

    The positive has the largest cosine above `positive_above`, the negatives have the smallest cosines below `negative_below`; ties go to the lowest
    row. A prompt is never paired with itself. The function works under `jit`, and under `vmap` over the cosines and both thresholds.

    Source: ACQB (Bae et al.), Algorithm 3, lines 2 to 7.

    Args:
      cosine: `[n, n]` cosines between `n` prompts, from `utility_cosine`.
      positive_above: `[]` threshold in [-1, 1].
      negative_below: `[]` threshold in [-1, 1], at most `positive_above`.
      num_negatives: largest number of negatives of a prompt, `m = min(num_negatives, n)` (static).
    """
    cosine = jnp.asarray(cosine)
    size = cosine.shape[0]
    other = ~jnp.eye(size, dtype=bool)
    above = jnp.where(other & (cosine > positive_above), cosine, -jnp.inf)
    below, negatives = lax.top_k(jnp.where(other & (cosine < negative_below), -cosine, -jnp.inf), min(num_negatives, size))
    is_negative = below > -jnp.inf
    return Pairs(
        positive=jnp.argmax(above, axis=1).astype(jnp.int32),  # ties go to the lowest index
        negatives=negatives.astype(jnp.int32),
        is_negative=is_negative,
        valid=jnp.any(above > -jnp.inf, axis=1) & jnp.any(is_negative, axis=1),
    )


_pairs_at_once = quick_jit(cosine_pairs, static_argnums=3)  # One program instead of one per operation.


def info_nce(z: Array, pairs: Pairs, temperature: Leaf = 0.07) -> Array:
    """Returns the InfoNCE loss, a scalar sum over anchors (prompts): small if they are near their positives and far from their negatives.

    The representations `z` `[n, e]` and the `pairs` belong to the same `n` prompts; the temperature is above 0. A `valid` anchor `i` adds
    `log(e^{s_p} + sum_n e^{s_n}) - s_p` with its positive `p`, its negatives `n` and `s_j = z_i . z_j / temperature`.

    Source: ACQB (Bae et al.), eq. (5) and Algorithm 3, line 10; van den Oord et al. (2018).
    """
    similarity = jnp.matmul(z, z.T, precision=lax.Precision.HIGHEST) / temperature
    positive = jnp.take_along_axis(similarity, pairs.positive[:, None], axis=1)
    negative = jnp.where(pairs.is_negative, jnp.take_along_axis(similarity, pairs.negatives, axis=1), -jnp.inf)
    each = jax.nn.logsumexp(jnp.concatenate([positive, negative], axis=1), axis=1) - positive[:, 0]
    return jnp.sum(jnp.where(pairs.valid, each, 0.0))


class ProjectionHead(nn.Module):
    """Network that maps features `[..., d]` to representations `[..., e]`: a linear layer, ReLU, a linear layer and, by default, scaling to norm 1.

    Source: ACQB (Bae et al.), appendix B.2: "two-layer MLP" with 384 outputs.

    Differs from the paper: it specifies neither hidden width nor activation nor normalisation. Representations of norm 1 are in the unit ball, as the
    regret bound of ACQB requires of its features. They also make `z_i . z_j` a cosine; without that, training at a temperature of 0.07 is unstable.

    Attributes:
      width: number of hidden units.
      out: number of outputs, `e`.
      normalize: whether representations are scaled to norm 1.
    """

    width: int = 384
    out: int = 384
    normalize: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        z = nn.Dense(self.out, name="output")(nn.relu(nn.Dense(self.width, name="hidden")(x)))
        if self.normalize:  # The floor makes the derivative finite if all hidden units are zero.
            z = z * lax.rsqrt(jnp.maximum(jnp.sum(jnp.square(z), axis=-1, keepdims=True), 1e-12))
        return z


@struct.dataclass
class Projection:
    """Trained contrastive network, as returned by `fit_projection`; a call maps features `[..., d]` to representations `[..., e]`.

    Attributes:
      params: parameters of the network.
      losses: `[epochs]` loss (the sum `info_nce` over the batch of prompts) before each gradient step.
      module: network, a `ProjectionHead` (static).
    """

    params: Any
    losses: Leaf
    module: ProjectionHead = struct.field(pytree_node=False)

    def __call__(self, features: Array | np.ndarray) -> Any:
        return _represented(self.params, jnp.asarray(features, jnp.float32), self.module)


_represented = quick_jit(lambda params, x, module: module.apply({"params": params}, x), static_argnums=2)


@functools.partial(jax.jit, static_argnames=("module", "optimiser", "epochs", "batch", "num_negatives"))
def train_projection(
    key: Array,
    features: Array | np.ndarray,
    cosine: Array | np.ndarray,
    *,
    module: ProjectionHead,
    optimiser: optax.GradientTransformation,
    epochs: int,
    batch: int | None = None,
    positive_above: Leaf = 0.6,
    negative_below: Leaf = 0.3,
    temperature: Leaf = 0.07,
    num_negatives: int = 64,
) -> Projection:
    """Trains the network as `fit_projection` does, but on all prompts and without checks; `vmap` can map it over `key`, thresholds, temperature.

    Args:
      key: typed key `[]` of the initial parameters and the batches.
      features: `[n, d]` features of `n` prompts.
      cosine: `[n, n]` cosines from `utility_cosine`; if no prompt has a positive and a negative, nothing is learned.
      module: network to train.
      optimiser: optax optimiser of the parameters.
      epochs: number of gradient steps.
      batch: number of prompts of a step, drawn without replacement, with pairs within the batch; None means all.
      positive_above, negative_below, num_negatives: thresholds of cosines and largest number of negatives, by which `cosine_pairs` selects pairs.
      temperature: positive number by which similarities are divided in the loss `info_nce`.
    """
    k_init, k_batches = draws.split(key)
    of_each, cosines = jnp.asarray(features, jnp.float32), jnp.asarray(cosine)
    size = of_each.shape[0]
    params = module.init(k_init, of_each[:1])["params"]
    of_all = cosine_pairs(cosines, positive_above, negative_below, num_negatives)

    def step(carry: tuple[Any, Any], epoch: Array) -> tuple[tuple[Any, Any], Array]:
        params, state = carry
        x, pairs = of_each, of_all
        if batch is not None and batch < size:
            rows = jnp.argsort(draws.uniform(draws.fold_in(k_batches, epoch), (size,)))[:batch]
            rows = jnp.sort(rows)  # ties go to the lowest row of the whole set
            x = of_each[rows]
            pairs = cosine_pairs(cosines[rows][:, rows], positive_above, negative_below, num_negatives)

        def loss(params: Any) -> Array:
            return info_nce(cast(Array, module.apply({"params": params}, x)), pairs, temperature)

        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimiser.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    (params, _), losses = lax.scan(step, (params, optimiser.init(params)), jnp.arange(epochs, dtype=jnp.int32))
    return Projection(params=params, losses=losses, module=module)


def fit_projection(
    features: ArrayLike,
    utility: ArrayLike,
    *,
    per_model: int | None = 5,
    epochs: int = 10,
    positive_above: float = 0.6,
    negative_below: float = 0.3,
    temperature: float = 0.07,
    num_negatives: int = 64,
    batch: int | None = None,
    optimiser: optax.GradientTransformation | None = None,
    width: int = 384,
    out: int = 384,
    normalize: bool = True,
    seed: int = 0,
) -> Projection:
    """Trains a network that maps prompts with similar utilities to similar representations, on offline prompts.

    Each epoch takes one gradient step of `info_nce` on a balanced set of prompts, which is drawn once.

    Source: ACQB (Bae et al.), Algorithm 3 and appendix B.2; its settings are in `CONTRASTIVE_PRESETS`, the defaults are those for the data set
    SPROUT.

    Differs from the paper: it specifies neither learning rate nor optimiser. The default is `optax.adam(1e-3)`; `optax.sgd(rate)` is the algorithm as
    written. See also `ProjectionHead`.

    Args:
      features: `[n, d]` features of the `n` offline prompts.
      utility: `[n, N]` utility of each prompt and each of `N` models, or an increasing linear function of it, which gives equal results.
      per_model: largest number of prompts on which each model is best, drawn by `balanced_rows`; None trains on all prompts.
      epochs: number of gradient steps.
      positive_above, negative_below, num_negatives: thresholds of cosines and largest number of negatives, by which `cosine_pairs` selects pairs.
      temperature: positive number by which similarities are divided in the loss `info_nce`.
      batch: number of prompts of a step, with pairs within the batch; None means all prompts of the set.
      optimiser: optax optimiser; None means `optax.adam(1e-3)`. Reuse one object: the training is compiled again for each new one.
      width, out, normalize: hidden units and outputs of the network, and whether outputs are scaled to norm 1 (`ProjectionHead`).
      seed: seed of the set of prompts, the initial parameters and the batches.

    Raises:
      ValueError: an argument is out of range, or no chosen prompt has both a positive and a negative.
    """
    values = _utility(utility)
    table = checks.numbers("features", features)
    if table.ndim != 2 or table.shape[0] != values.shape[0] or not table.shape[1]:
        raise ValueError(f"features must have shape [{values.shape[0]}, d], a row per row of utility, got {table.shape}")
    for name, value in {"epochs": epochs, "num_negatives": num_negatives, "width": width, "out": out}.items():
        checks.count(name, value)
    checks.positive("temperature", temperature, ())
    above = checks.numbers("positive_above", positive_above, ())
    below = checks.numbers("negative_below", negative_below, ())
    if not -1 <= below <= above <= 1:
        raise ValueError(
            f"-1 <= negative_below <= positive_above <= 1 must hold, got negative_below={below:g} and positive_above={above:g}"
        )
    if optimiser is None:
        optimiser = _ADAM
    elif not isinstance(optimiser, optax.GradientTransformation):
        raise ValueError(f"optimiser must be an optax.GradientTransformation, got {checks.show(optimiser)}")

    seed = checks.count("seed", seed, minimum=0)
    rows = np.arange(len(values)) if per_model is None else balanced_rows(values, per_model, seed)
    if batch is not None:
        checks.count("batch", batch, minimum=2, maximum=rows.size)
    cosine = utility_cosine(values[rows])
    if not np.any(_pairs_at_once(cosine, positive_above, negative_below, num_negatives).valid):
        raise ValueError(
            f"utility must give at least one of the {rows.size} chosen prompts a positive (cosine above {positive_above:g}) "
            f"and a negative (cosine below {negative_below:g}); choose more prompts or other thresholds"
        )
    thresholds = {"positive_above": positive_above, "negative_below": negative_below, "num_negatives": num_negatives}
    module, key = ProjectionHead(width=width, out=out, normalize=bool(normalize)), draws.fold_in(draws.key(0), seed)
    options = {"module": module, "optimiser": optimiser, "epochs": epochs, "batch": batch, "temperature": temperature}
    return train_projection(key, table[rows].astype(np.float32), cosine, **options, **thresholds)


def _utility(value: ArrayLike) -> np.ndarray:
    utility = checks.numbers("utility", value)
    if utility.ndim != 2 or 0 in utility.shape:
        raise ValueError(f"utility must have shape [n, N] with at least one prompt and one model, got {utility.shape}")
    return utility
