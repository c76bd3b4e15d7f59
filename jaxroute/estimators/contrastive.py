"""Features that tell prompts apart by which models suit them: a network trained on pairs of alike and unlike prompts."""

import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import struct
from jax import lax
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

Differs from the paper: the numbers of prompts and epochs for RouterBench, which it does not give, are SPROUT's. "30 prompts
per epoch" for EmbedLLM is read as a random batch of 30.
"""

# A centred utility vector below this share of its entries has only rounding errors left.
_ROUNDING = 1e-12
_DECIMALS = 9


class Pairs(NamedTuple):
    """Which prompts `n` anchors are compared with.

    Attributes:
      positive: `[n]` int32, the most similar prompt above the upper threshold; meaningless where not valid.
      negatives: `[n, m]` int32, the least similar prompts below the lower threshold, the least similar first.
      is_negative: `[n, m]` bool, which of them there are.
      valid: `[n]` bool, has a positive and a negative.
    """

    positive: jax.Array
    negatives: jax.Array
    is_negative: jax.Array
    valid: jax.Array


def balanced_rows(utility: ArrayLike, per_model: int, seed: int = 0) -> np.ndarray:
    """Rows of a balanced set, int64, ascending: at most `per_model` random prompts of those on which each model is best.

    Source: ACQB (Bae et al.), appendix B.2, "model-balanced sampling".

    Args:
      utility: `[n, N]`; of equally good models the first counts as best.
      per_model: prompts of each group; of groups with fewer, all.
      seed: of the choice.
    """
    values = _utility(utility)
    per_model = checks.count("per_model", per_model)
    rng = np.random.default_rng(checks.count("seed", seed, minimum=0))
    best = values.argmax(axis=1)
    groups = [np.flatnonzero(best == model) for model in range(values.shape[1])]
    return np.sort(np.concatenate([rng.permutation(group)[:per_model] for group in groups]))


def utility_cosine(utility: ArrayLike) -> np.ndarray:
    """Cosines `[n, n]` between utility vectors `[n, N]` less their means over the models; 0 where a vector is constant.

    Unchanged by an increasing affine map of any row, so that utilities and departure probabilities give the same. Computed in
    float64, rounded to 9 decimals and returned in float32: what differs by rounding errors only becomes equal, as ties and
    thresholds require.

    Source: ACQB (Bae et al.), Algorithm 3, lines 2 and 3.
    """
    values = _utility(utility)
    centred = values - values.mean(axis=1, keepdims=True)
    constant = np.abs(centred).max(axis=1) <= _ROUNDING * np.abs(values).max(axis=1)
    scale = np.where(constant, 1.0, np.abs(centred).max(axis=1))
    centred = np.where(constant[:, None], 0.0, centred / scale[:, None])  # scaled first: squares must not underflow
    unit = centred / np.where(constant, 1.0, np.linalg.norm(centred, axis=1))[:, None]
    return (np.clip(unit @ unit.T, -1.0, 1.0).round(_DECIMALS) + 0.0).astype(np.float32)  # no -0, which sorts below 0


def cosine_pairs(
    cosine: jax.Array | np.ndarray, positive_above: Leaf = 0.6, negative_below: Leaf = 0.3, num_negatives: int = 64
) -> Pairs:
    """The prompt whose utilities are most like those of each prompt, and the prompts whose utilities are least like them.

    The positive has the largest cosine above `positive_above`, the negatives have the smallest ones below `negative_below`;
    of equals the lowest row. Prompts in between are left out. May be compiled and mapped.

    Source: ACQB (Bae et al.), Algorithm 3, lines 2 to 7.

    Args:
      cosine: `[n, n]` from `utility_cosine`.
      positive_above: `[]`, threshold in [-1, 1].
      negative_below: `[]`, threshold in [-1, 1], at most `positive_above`.
      num_negatives: most negatives of an anchor, `m = min(num_negatives, n)` (static).
    """
    cosine = jnp.asarray(cosine)
    size = cosine.shape[0]
    other = ~jnp.eye(size, dtype=bool)
    above = jnp.where(other & (cosine > positive_above), cosine, -jnp.inf)
    below, negatives = lax.top_k(jnp.where(other & (cosine < negative_below), -cosine, -jnp.inf), min(num_negatives, size))
    is_negative = below > -jnp.inf
    return Pairs(
        positive=jnp.argmax(above, axis=1).astype(jnp.int32),  # both take the lowest index among equals
        negatives=negatives.astype(jnp.int32),
        is_negative=is_negative,
        valid=jnp.any(above > -jnp.inf, axis=1) & jnp.any(is_negative, axis=1),
    )


_pairs_at_once = quick_jit(cosine_pairs, static_argnums=3)  # In one program: each operation on its own would be one.


def info_nce(z: jax.Array, pairs: Pairs, temperature: Leaf = 0.07) -> jax.Array:
    """Loss that draws each anchor to its positive and away from its negatives, summed over the valid anchors; `[]`.

    `log(e^{s_p} + sum_n e^{s_n}) - s_p` with `s_j = z_i . z_j / temperature`.

    Source: ACQB (Bae et al.), eq. (5) and Algorithm 3, line 10; van den Oord et al. (2018).

    Args:
      z: `[n, e]` representations.
      pairs: of the `n` prompts.
      temperature: `[]`, above 0.
    """
    similarity = jnp.matmul(z, z.T, precision=lax.Precision.HIGHEST) / temperature
    positive = jnp.take_along_axis(similarity, pairs.positive[:, None], axis=1)
    negative = jnp.where(pairs.is_negative, jnp.take_along_axis(similarity, pairs.negatives, axis=1), -jnp.inf)
    each = jax.nn.logsumexp(jnp.concatenate([positive, negative], axis=1), axis=1) - positive[:, 0]
    return jnp.sum(jnp.where(pairs.valid, each, 0.0))


class ProjectionHead(nn.Module):
    """Linear, ReLU, linear, and rows of length 1.

    Source: ACQB (Bae et al.), appendix B.2: "two-layer MLP" with 384 outputs.

    Differs from the paper: it gives neither hidden width nor activation, and does not say that the rows are normalised. Unit
    rows keep the contexts in the unit ball, as its theory asks, and make `z_i . z_j` a cosine, without which a temperature
    of 0.07 is unstable.

    Attributes:
      width: hidden units.
      out: `e`.
      normalize: False leaves the rows as they are.
    """

    width: int = 384
    out: int = 384
    normalize: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        z = nn.Dense(self.out, name="output")(nn.relu(nn.Dense(self.width, name="hidden")(x)))
        if self.normalize:  # The floor keeps the derivative finite where all hidden units are off.
            z = z * lax.rsqrt(jnp.maximum(jnp.sum(jnp.square(z), axis=-1, keepdims=True), 1e-12))
        return z


@struct.dataclass
class Projection:
    """A trained head: features `[..., d]` in, representations `[..., e]` out.

    Attributes:
      params: of the module.
      losses: `[epochs]` loss before the step of each epoch; in batches, of the batch.
      module: `ProjectionHead` (static).
    """

    params: Any
    losses: Leaf
    module: ProjectionHead = struct.field(pytree_node=False)

    def __call__(self, features: jax.Array | np.ndarray) -> Any:
        return _represented(self.params, jnp.asarray(features, jnp.float32), self.module)


@functools.partial(quick_jit, static_argnums=2)
def _represented(params: Any, features: jax.Array, module: ProjectionHead) -> Any:
    """In one program: each operation on its own would be one."""
    return module.apply({"params": params}, features)


@functools.partial(jax.jit, static_argnames=("module", "optimiser", "epochs", "batch", "num_negatives"))
def train_projection(
    key: jax.Array,
    features: jax.Array | np.ndarray,
    cosine: jax.Array | np.ndarray,
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
    """Algorithm 3 on a chosen set, without its checks; may be mapped over `key`, thresholds and temperature.

    Args:
      key: typed, `[]`; of the first parameters and the batches.
      features: `[n, d]`.
      cosine: `[n, n]` from `utility_cosine`.
      module: the head that is trained.
      optimiser: of the steps.
      epochs: gradient steps.
      batch: prompts of each, drawn without replacement, default all.
      positive_above, negative_below, num_negatives: see `cosine_pairs`.
      temperature: see `info_nce`.
    """
    k_init, k_batches = draws.split(key)
    of_each, cosines = jnp.asarray(features, jnp.float32), jnp.asarray(cosine)
    size = of_each.shape[0]
    params = module.init(k_init, of_each[:1])["params"]
    of_all = cosine_pairs(cosines, positive_above, negative_below, num_negatives)

    def step(carry: tuple[Any, Any], epoch: jax.Array) -> tuple[tuple[Any, Any], jax.Array]:
        params, state = carry
        x, pairs = of_each, of_all
        if batch is not None and batch < size:
            rows = jnp.argsort(draws.uniform(draws.fold_in(k_batches, epoch), (size,)))[:batch]
            rows = jnp.sort(rows)  # so that ties go to the lowest row of all
            x = of_each[rows]
            pairs = cosine_pairs(cosines[rows][:, rows], positive_above, negative_below, num_negatives)

        def loss(params: Any) -> jax.Array:
            return info_nce(cast(jax.Array, module.apply({"params": params}, x)), pairs, temperature)

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
    """Trains a head that brings prompts with like utilities together, on prompts that are not those to be routed.

    One gradient step of `info_nce` per epoch on a balanced choice of the prompts.

    Source: ACQB (Bae et al.), Algorithm 3 and appendix B.2; its settings are in `CONTRASTIVE_PRESETS`, the defaults are
    SPROUT's.

    Differs from the paper: learning rate and optimiser are not given; `optax.adam(1e-3)` by default, `optax.sgd(rate)` is
    the algorithm as written. For what else is open see `ProjectionHead`.

    Args:
      features: `[n, d]` of the offline prompts.
      utility: `[n, N]`, utilities or departure probabilities, which give the same.
      per_model: prompts per best model, see `balanced_rows`; None trains on all prompts.
      epochs: gradient steps.
      positive_above, negative_below, num_negatives: see `cosine_pairs`.
      temperature: see `info_nce`.
      batch: prompts of each step, whose pairs are those within the batch; default all chosen ones.
      optimiser: compiled once for each object that is passed.
      width, out, normalize: see `ProjectionHead`.
      seed: of the choice of prompts, the first parameters and the batches. To map over heads use `train_projection`.

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
    _check_thresholds(positive_above, negative_below)
    if optimiser is None:
        optimiser = _default_optimiser()
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
    return train_projection(
        draws.fold_in(draws.key(0), seed),
        table[rows].astype(np.float32),
        cosine,
        module=ProjectionHead(width=width, out=out, normalize=bool(normalize)),
        optimiser=optimiser,
        epochs=epochs,
        batch=batch,
        positive_above=positive_above,
        negative_below=negative_below,
        temperature=temperature,
        num_negatives=num_negatives,
    )


@functools.cache
def _default_optimiser() -> optax.GradientTransformation:
    """One object, so that fits share their compiled code."""
    return optax.adam(1e-3)


def _utility(value: ArrayLike) -> np.ndarray:
    utility = checks.numbers("utility", value)
    if utility.ndim != 2 or 0 in utility.shape:
        raise ValueError(f"utility must have shape [n, N] with at least one prompt and one model, got {utility.shape}")
    return utility


def _check_thresholds(positive_above: Leaf, negative_below: Leaf) -> None:
    above = checks.numbers("positive_above", positive_above, ())
    below = checks.numbers("negative_below", negative_below, ())
    if not -1 <= below <= above <= 1:
        raise ValueError(
            "the thresholds must satisfy -1 <= negative_below <= positive_above <= 1, got "
            f"negative_below={below:g} and positive_above={above:g}"
        )
