"""Sources of requests: finite types, cells of a joint distribution, a probit model, or a table of recorded requests.

A source draws requests, returns the probability that each model satisfies one, and puts requests into one group if a policy cannot tell them apart.
From these groups, called contexts, `optimum` computes the cheapest policy. Costs are in J, models in ascending order of cost.
"""

import functools
import hashlib
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jax.scipy.special import ndtr
from numpy.typing import ArrayLike

from jaxroute.core import checks, draws, numerics
from jaxroute.core.quick import quick_jit
from jaxroute.core.types import Leaf, classes_of
from jaxroute.problems.service.types import Request
from jaxroute.sources.rows import random_order, row_in_order

NO_PROBABILITIES = "a table of recorded requests has no true probabilities; use a predictor that learns, or labels"
# Number of sampled requests for an optimum without a closed form.
_SAMPLE = 1 << 16
# Largest number of independent models whose sets of satisfying models are listed, and of models in a user's joint distribution.
MOST_LISTED, MOST_CELLS = 12, 20
# Largest size of a source in bytes for a fingerprint.
_MOST_BYTES = 1 << 20


class Contexts(NamedTuple):
    """Groups of requests, called contexts, that a policy can tell apart by its information, in float64 on the host.

    Attributes:
      weight: `[W]` share of the requests with each of `W` contexts.
      success: `[W, M]` probability that each of `M` models satisfies.
      cost: `[W, M]` costs, J.
    """

    weight: np.ndarray
    success: np.ndarray
    cost: np.ndarray

    def mean(self) -> "Contexts":
        """Returns a single context with the mean probabilities and costs of all, for a policy that cannot distinguish requests."""
        return Contexts(np.ones(1), *((self.weight @ x)[None] for x in (self.success, self.cost)))

    def at_cost(self, cost: ArrayLike) -> "Contexts":
        """Returns the contexts, all with the same costs `cost` `[M]` of the models, for policies that do not observe costs."""
        return self._replace(cost=np.broadcast_to(np.asarray(cost, np.float64), self.cost.shape))


def fingerprint(requests: Any) -> str:
    """Returns a digest of the class and numbers of the source `requests`, by which an oracle checks that it runs in the environment it was built for.

    It is an empty string, which disables that check, if the numbers are traced (under `jit`) or larger than 1 MiB.
    """
    leaves, kind = jax.tree.flatten(requests)
    known = all(isinstance(leaf, (Array, np.ndarray, np.generic, float, int)) for leaf in leaves)
    if not known or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return ""
    arrays = [np.asarray(leaf) for leaf in leaves]
    if sum(array.nbytes for array in arrays) > _MOST_BYTES:
        return ""
    digest = hashlib.sha256(str(kind).encode())
    for array in arrays:
        digest.update(array.astype(np.float32).tobytes())
    return digest.hexdigest()[:16]


class RequestSource(Protocol):
    """Base class of sources of requests with `d` features for `M` models. Subclasses define `num_features`, `draw` and `success`."""

    @property
    def num_features(self) -> int:
        """Returns the number of features, `d`."""
        ...

    def check(self) -> None:
        """Raises `ValueError` if a field is out of range."""

    def init(self, key: Array) -> Any:
        """Returns the state of the source before the first round of a run; by default an empty tuple."""
        del key
        return ()

    def draw(self, key: Array, state: Any, t: Array) -> Request:
        """Draws the request of round `t`; `state` is the source's state from `init`."""
        ...

    def success(self, features: Array) -> Array:
        """Returns the probabilities `[M]` that each model satisfies a request with the given features `[d]`."""
        ...

    def average(self) -> Contexts:
        """Returns a single context, the group of all requests, with their mean probabilities and costs `[1, M]`."""
        return self.label_contexts().mean()

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns one context per set of features, and of costs if `knows_cost` is True; by default one per request of a sample."""
        sample = sampled(self)
        contexts = equally_weighted(sample.success, sample.cost)
        return contexts if knows_cost else contexts.at_cost(self.cost_mean)

    def label_contexts(self) -> Contexts:
        """Returns a context per set of satisfying models, at mean costs; by default one per request of a sample, at the costs of this request."""
        return labelled(self)

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns contexts as `label_contexts` does, but at the costs of each request if `knows_cost` is True, otherwise at mean costs."""
        return self.label_contexts() if knows_cost else self.label_contexts().at_cost(self.average().cost[0])


def all_labels(num_models: int) -> np.ndarray:
    """Returns all sets of models that may satisfy a request, as rows of 0 and 1, `[2 ** M, M]`; the first model is the highest bit of the index."""
    checks.count("num_models", num_models, minimum=0, maximum=MOST_CELLS)
    cells = np.arange(2**num_models)
    return ((cells[:, None] >> np.arange(num_models)[::-1]) & 1).astype(np.float32)


@functools.partial(quick_jit, static_argnums=2)
def draw_requests(source: RequestSource, key: Array, number: int) -> Request:
    """Draws `number` requests from `source`, as arrays `[number, ...]`, to train a policy or to estimate an optimum."""
    k_init, k_draw = draws.split(key)
    state = source.init(k_init)
    return jax.vmap(lambda i: source.draw(draws.fold_in(k_draw, i), state, i))(jnp.arange(number, dtype=jnp.int32))


# The last sample and its source, since several optima of a source are computed in succession.
_last: list[tuple[Any, Request]] = []


def sampled(source: RequestSource) -> Request:
    """Returns 65,536 random requests from `source`, the same in each call, for an optimum without a closed form; in float64 on the host."""
    leaves, structure = jax.tree.flatten(source)
    arrays = [np.asarray(leaf) for leaf in leaves]
    numbers = [(a.shape, a.dtype, a.tobytes()) for a in arrays]
    what = (structure, classes_of(source), numbers, jax.config.read("jax_enable_x64"))
    if not (_last and _last[0][0] == what):
        drawn = jax.tree.map(lambda x: np.asarray(x, np.float64), draw_requests(source, draws.key(0), _SAMPLE))
        _last[:] = [(what, drawn)]
    return _last[0][1]


def labelled(source: RequestSource) -> Contexts:
    """Returns a context for each request of `sampled(source)`, with its costs; a model's probability is 1 if it satisfies, otherwise 0."""
    sample = sampled(source)
    return equally_weighted(sample.satisfied, sample.cost)


def equally_weighted(success: ArrayLike, cost: ArrayLike) -> Contexts:
    """Returns `W` contexts of equal weight with the given probabilities of satisfaction and costs, `[W, M]`."""
    success, cost = np.asarray(success), np.asarray(cost)
    return Contexts(np.full(len(cost), 1.0 / len(cost)), success, cost)


@struct.dataclass
class TypeRequests(RequestSource):
    """Requests of `K` types; each model satisfies requests of a type with a given probability.

    Attributes:
      weight: `[K]` shares of the types.
      probability: `[K, M]` probability that a model satisfies.
      cost_mean: `[K, M]` mean cost.
      cost_noise: `[]` standard deviation of the logarithm of a cost; it does not change the mean.
      vectors: `[K, d]` features of a type.
      comonotone: whether one uniform number per request decides for all models; otherwise models satisfy independently (static).
    """

    weight: Leaf
    probability: Leaf
    cost_mean: Leaf
    cost_noise: Leaf
    vectors: Leaf
    comonotone: bool = struct.field(pytree_node=False, default=False)

    @property
    def num_features(self) -> int:
        return self.vectors.shape[-1]

    def check(self) -> None:
        shape = np.shape(checks.probability("success", self.probability))
        if len(shape) != 2:
            raise ValueError(f"success must have shape [types, models], got {shape}")
        checks.non_negative("cost", self.cost_mean, shape)
        weight = checks.non_negative("weight", self.weight, shape[:1])
        if abs(weight.sum() - 1.0) > 1e-5:
            raise ValueError(f"weight must sum to 1, got {weight.sum():g}")
        checks.non_negative("cost_noise", self.cost_noise, ())
        vectors = checks.numbers("features", self.vectors)
        if vectors.ndim != 2 or len(vectors) != shape[0] or len(np.unique(vectors, axis=0)) < shape[0]:
            raise ValueError(f"features must be {shape[0]} different rows, one for each type, got shape {vectors.shape}")

    def draw(self, key: Array, state: tuple[()], t: Array) -> Request:
        del state, t
        k_type, k_label, k_cost = draws.split(key, 3)
        which = numerics.inverse_cdf(jnp.asarray(self.weight, jnp.float32), draws.uniform(k_type))
        probability, cost, vector = (
            _row(numerics.one_hot(which, np.shape(self.weight)[0]), x)
            for x in (self.probability, self.cost_mean, self.vectors)
        )
        u = draws.uniform(k_label, () if self.comonotone else probability.shape)
        sigma = jnp.asarray(self.cost_noise, jnp.float32)
        noise = jnp.exp(sigma * draws.normal(k_cost, cost.shape) - sigma * sigma / 2)
        return Request(features=vector, satisfied=u < probability, cost=cost * noise, success=probability)

    def success(self, features: Array) -> Array:
        """Returns the probabilities `[M]` that each model satisfies a request of the type whose features are closest."""
        distance = jnp.sum(jnp.square(jnp.asarray(self.vectors) - features), axis=-1)
        return _row(numerics.one_hot(numerics.argmin(distance), distance.shape[0]), self.probability)

    def average(self) -> Contexts:
        return self.contexts(knows_cost=False).mean()

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns one context (group of requests) per type; if costs are noisy and `knows_cost` is True, one per request of a sample."""
        weight, probability, cost = (np.asarray(x, np.float64) for x in (self.weight, self.probability, self.cost_mean))
        if not (self.cost_noise and knows_cost):
            return Contexts(weight / weight.sum(), probability, cost)
        sample = sampled(self)
        return equally_weighted(sample.success, sample.cost)

    def label_contexts(self) -> Contexts:
        """Returns a context per type and set of satisfying models. For more than 12 independent models: a context per request of a sample."""
        weight, probability, cost = (np.asarray(x, np.float64) for x in (self.weight, self.probability, self.cost_mean))
        if (
            self.comonotone
        ):  # Models above a uniform satisfy: between two neighbouring probabilities the labels are constant.
            edges = np.sort(np.pad(probability, ((0, 0), (1, 1)), constant_values=((0.0, 0.0), (0.0, 1.0))))
            distribution = np.diff(edges)
            success = ((edges[:, :-1, None] + edges[:, 1:, None]) / 2 < probability[:, None, :]).astype(np.float64)
        elif probability.shape[1] > MOST_LISTED:
            return labelled(self.replace(cost_noise=np.float32(0.0)))
        else:
            labels = all_labels(probability.shape[1]).astype(np.float64)
            success = np.broadcast_to(labels, (len(probability), *labels.shape))
            distribution = np.prod(np.where(labels > 0, probability[:, None], 1.0 - probability[:, None]), axis=-1)
        full = weight[:, None] / weight.sum() * distribution
        costs = np.broadcast_to(cost[:, None], success.shape)
        return Contexts(full.ravel(), success.reshape(-1, probability.shape[1]), costs.reshape(-1, probability.shape[1]))

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        return labelled(self) if self.cost_noise and knows_cost else self.label_contexts()


def _row(mask: Array, table: Leaf) -> Array:
    table = jnp.asarray(table, jnp.float32)
    return jnp.sum(jnp.where(mask[:, None], table, 0.0), axis=0)


@struct.dataclass
class CellRequests(RequestSource):
    """Requests with a tabulated joint distribution of satisfaction, and features with a chosen amount of information.

    A cell is a set of satisfying models; `s_m` is 1 for a model `m` in the set, else 0. The features are `signal * (2 s_m - 1)` plus standard normal
    noise for each model, then `num_noise` coordinates of noise, and a constant 1. A feature predicts its `s_m` with the area `Phi(sqrt(2) * signal)`
    under the ROC curve: .58 for a signal of .15, .80 for .6.

    Attributes:
      weight: `[2 ** M]` share of each cell, in the order of `all_labels`.
      cost_mean, cost_spread: `[M]` mean and standard deviation of each model's normally distributed cost; a cost is at least 5 % of the mean.
      signal: `[]` strength with which a feature predicts the satisfaction of its model, 0 for none.
      num_noise: number of uninformative features (static).
    """

    weight: Leaf
    cost_mean: Leaf
    cost_spread: Leaf
    signal: Leaf
    num_noise: int = struct.field(pytree_node=False, default=4)

    @property
    def num_features(self) -> int:
        return self.cost_mean.shape[-1] + self.num_noise + 1

    def check(self) -> None:
        shape = np.shape(checks.non_negative("cost", self.cost_mean))
        if len(shape) != 1:
            raise ValueError(f"cost must have shape [models], got {shape}")
        checks.non_negative("cost_spread", self.cost_spread, shape)
        weight = checks.non_negative("cells", self.weight, (2 ** shape[0],))
        if abs(weight.sum() - 1.0) > 1e-5:
            raise ValueError(f"cells must sum to 1, got {weight.sum():g}")
        checks.numbers("signal", self.signal, ())
        checks.count("num_noise", self.num_noise, minimum=0)

    def draw(self, key: Array, state: tuple[()], t: Array) -> Request:
        del state, t
        k_cell, k_feature, k_cost = draws.split(key, 3)
        models = np.shape(self.cost_mean)[0]
        cell = numerics.inverse_cdf(jnp.asarray(self.weight, jnp.float32), draws.uniform(k_cell))
        bits = (cell >> np.arange(models)[::-1]) & 1
        noise = draws.normal(k_feature, (models + self.num_noise,))
        lean = jnp.asarray(self.signal, jnp.float32) * (2 * bits - 1).astype(jnp.float32)
        features = jnp.concatenate([noise[:models] + lean, noise[models:], jnp.ones(1, jnp.float32)])
        mean, spread = jnp.asarray(self.cost_mean, jnp.float32), jnp.asarray(self.cost_spread, jnp.float32)
        cost = jnp.maximum(0.05 * mean, mean + spread * draws.normal(k_cost, (models,)))
        return Request(features=features, satisfied=bits == 1, cost=cost, success=self.success(features))

    def success(self, features: Array) -> Array:
        """Returns the probability `[M]` that each model satisfies given features `[d]`, by Bayes' rule over all sets of satisfying models."""
        labels = all_labels(np.shape(self.cost_mean)[0])
        lean = self.signal * jnp.sum((2.0 * labels - 1.0) * features[: labels.shape[1]], axis=-1)
        mass = jnp.asarray(self.weight, jnp.float32) * jnp.exp(lean - jnp.max(lean))
        return jnp.sum(mass[:, None] * labels, axis=0) / jnp.sum(mass)

    def label_contexts(self) -> Contexts:
        labels = all_labels(np.shape(self.cost_mean)[0]).astype(np.float64)
        weight = np.asarray(self.weight, np.float64)
        return Contexts(weight / weight.sum(), labels, np.broadcast_to(np.asarray(self.cost_mean, np.float64), labels.shape))

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        return labelled(self) if knows_cost else self.label_contexts()


@struct.dataclass
class ProbitRequests(RequestSource):
    """Requests with normal features, for any number of models, whose satisfaction depends on features, a shared difficulty and noise.

    Model `m` satisfies if `threshold_m + r_f w_m . x + r_c g + sqrt(1 - r_f^2 - r_c^2) e_m > 0`, with standard normal features `x` `[d]`, shared
    difficulty `g` and noise `e_m`. Over all requests its probability is `Phi(threshold_m)`.

    Attributes:
      threshold: `[M]` thresholds.
      direction: `[M, d]` unit vectors `w_m` along which features predict satisfaction.
      from_features: `[]` weight `r_f` of the features.
      shared: `[]` weight `r_c` of the shared difficulty `g`.
      cost_mean: `[M]` mean costs.
      length_spread: `[]` standard deviation of the logarithm of a request's length, which is a factor of all costs.
    """

    threshold: Leaf
    direction: Leaf
    from_features: Leaf
    shared: Leaf
    cost_mean: Leaf
    length_spread: Leaf

    @property
    def num_features(self) -> int:
        return self.direction.shape[-1]

    def check(self) -> None:
        shape = np.shape(checks.numbers("threshold", self.threshold))
        rows = checks.numbers("direction", self.direction)
        if rows.ndim != 2 or rows.shape[:1] != shape or np.any(np.abs(np.sum(rows**2, axis=1) - 1.0) > 1e-4):
            raise ValueError(f"direction must be {shape[0]} rows of length 1, got shape {rows.shape}")
        checks.non_negative("cost", self.cost_mean, shape)
        checks.non_negative("length_spread", self.length_spread, ())
        parts = [checks.numbers(name, getattr(self, name), ()) for name in ("from_features", "shared")]
        if sum(p**2 for p in parts) > 1.0 + 1e-6:
            raise ValueError(f"from_features^2 + shared^2 must be at most 1, got {sum(p**2 for p in parts):g}")

    def draw(self, key: Array, state: tuple[()], t: Array) -> Request:
        del state, t
        k_x, k_shared, k_noise, k_length = draws.split(key, 4)
        models, size = np.shape(self.direction)
        x = draws.normal(k_x, (size,))
        lean = self.threshold + self.from_features * jnp.sum(self.direction * x, axis=-1)
        noise = jnp.sqrt(jnp.maximum(0.0, 1.0 - jnp.square(self.from_features) - jnp.square(self.shared)))
        latent = lean + self.shared * draws.normal(k_shared) + noise * draws.normal(k_noise, (models,))
        spread = jnp.asarray(self.length_spread, jnp.float32)
        length = jnp.exp(spread * draws.normal(k_length) - spread * spread / 2)
        cost = jnp.asarray(self.cost_mean, jnp.float32) * length
        return Request(features=x, satisfied=latent > 0, cost=cost, success=self._given(lean))

    def _given(self, lean: Array) -> Array:
        """Returns each model's probability of satisfaction, `[M]`, given `lean = threshold + r_f w . x`, `[M]`."""
        return ndtr(lean / jnp.sqrt(jnp.maximum(1e-12, 1.0 - jnp.square(self.from_features))))

    def success(self, features: Array) -> Array:
        return self._given(self.threshold + self.from_features * jnp.sum(self.direction * features, axis=-1))

    def average(self) -> Contexts:
        return Contexts(np.ones(1), *(np.asarray(x, np.float64)[None] for x in (ndtr(self.threshold), self.cost_mean)))


@struct.dataclass
class TableRequests(RequestSource):
    """`N` recorded requests, replayed in a random order for each run, each once before any is repeated.

    Attributes:
      labels: `[N, M]` float32, 1 if the model satisfies the request, otherwise 0.
      cost_table: `[N, M]` costs, J.
      vectors: `[N, d]` features.
    """

    labels: Leaf
    cost_table: Leaf
    vectors: Leaf

    @property
    def num_features(self) -> int:
        return self.vectors.shape[-1]

    def check(self) -> None:
        shape = np.shape(checks.probability("labels", self.labels))
        checks.non_negative("costs", self.cost_table, shape)
        vectors = checks.numbers("features", self.vectors)
        if vectors.ndim != 2 or len(vectors) != shape[0]:
            raise ValueError(f"features must be {shape[0]} rows, one for each request, got shape {vectors.shape}")

    def init(self, key: Array) -> Array:
        return random_order(key, self.labels.shape[0])

    def draw(self, key: Array, state: Array, t: Array) -> Request:
        del key
        row = row_in_order(state, t)
        labels, cost, vector = (jnp.asarray(x)[row] for x in (self.labels, self.cost_table, self.vectors))
        return Request(features=vector, satisfied=labels > 0.5, cost=cost, success=labels)

    def success(self, features: Array) -> Array:
        raise ValueError(NO_PROBABILITIES)

    def contexts(self, knows_cost: bool = True) -> Contexts:
        del knows_cost
        return self.average()  # There is no model of the features that could distinguish requests.

    def label_contexts(self) -> Contexts:
        return equally_weighted(*(np.asarray(x, np.float64) for x in (self.labels, self.cost_table)))
