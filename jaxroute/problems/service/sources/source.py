"""Common parts of the sources of requests: protocol, contexts, samples."""

import functools
import hashlib
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxroute.core import checks, draws
from jaxroute.core.quick import quick_jit
from jaxroute.core.types import classes_of
from jaxroute.problems.service.types import Request

# Number of requests drawn for an optimum without a closed form.
_SAMPLE = 1 << 16
# Largest number of models for which all sets of satisfying models are listed (4,096 sets). Users' joint distributions may have more cells.
MOST_LISTED, MOST_CELLS = 12, 20
# Largest size of a source in bytes for a fingerprint.
_MOST_BYTES = 1 << 20


class Contexts(NamedTuple):
    """Weighted contexts on the host, float64.

    Attributes:
      weight: `[W]` shares.
      success: `[W, M]` probability that each model satisfies.
      cost: `[W, M]` costs, J.
    """

    weight: np.ndarray
    success: np.ndarray
    cost: np.ndarray

    def mean(self) -> "Contexts":
        """Returns one context with the marginal probabilities and mean costs."""
        return Contexts(np.ones(1), *((self.weight @ x)[None] for x in (self.success, self.cost)))

    def at_cost(self, cost: ArrayLike) -> "Contexts":
        """Returns the contexts with mean costs `[M]`, for policies that do not observe costs."""
        return self._replace(cost=np.broadcast_to(np.asarray(cost, np.float64), self.cost.shape))


def fingerprint(requests: Any) -> str:
    """Returns a digest of a source's class and numbers; empty if they are traced, or more than a mebibyte."""
    leaves, kind = jax.tree.flatten(requests)
    known = all(isinstance(leaf, (jax.Array, np.ndarray, np.generic, float, int)) for leaf in leaves)
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
    """Source of requests."""

    @property
    def num_features(self) -> int:
        """Number of features, `d`."""
        ...

    def check(self) -> None:
        """Raises `ValueError` on values out of range."""
        ...

    def init(self, key: jax.Array) -> Any:
        """Returns the initial state of the source in a run."""
        ...

    def draw(self, key: jax.Array, state: Any, t: jax.Array) -> Request:
        """Returns the request of round `t`."""
        ...

    def success(self, features: jax.Array) -> jax.Array:
        """Returns the probabilities `[M]` that each model satisfies, given features `[d]`."""
        ...

    def average(self) -> Contexts:
        """Returns all requests as one context."""
        ...

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns the contexts of a policy that observes features, and optionally costs."""
        ...

    def label_contexts(self) -> Contexts:
        """Returns the contexts of a policy that observes satisfaction, at mean costs where these have a closed form."""
        ...

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns the contexts of a policy that observes satisfaction, and optionally costs."""
        ...


def all_labels(num_models: int) -> np.ndarray:
    """Returns the satisfaction in each of the `2 ** M` cells, float32 `[2 ** M, M]`, for at most 20 models; the first one is the highest bit."""
    checks.count("num_models", num_models, minimum=0, maximum=MOST_CELLS)
    cells = np.arange(2**num_models)
    return ((cells[:, None] >> np.arange(num_models)[::-1]) & 1).astype(np.float32)


@functools.partial(quick_jit, static_argnums=2)
def draw_requests(source: RequestSource, key: jax.Array, number: int) -> Request:
    """Draws the first `number` requests of a separate run, arrays `[number, ...]`."""
    k_init, k_draw = draws.split(key)
    state = source.init(k_init)
    return jax.vmap(lambda i: source.draw(draws.fold_in(k_draw, i), state, i))(jnp.arange(number, dtype=jnp.int32))


_last: list[
    tuple[Any, Request]
] = []  # The last sample and its source: several optima of a source are computed in succession.


def sampled(source: RequestSource) -> Request:
    """Returns a fixed sample of requests for an optimum without a closed form, float64 on the host."""
    leaves, structure = jax.tree.flatten(source)
    arrays = [np.asarray(leaf) for leaf in leaves]
    what = (
        structure,
        classes_of(source),
        [(a.shape, a.dtype, a.tobytes()) for a in arrays],
        jax.config.read("jax_enable_x64"),
    )
    if not (_last and _last[0][0] == what):
        drawn = jax.tree.map(lambda x: np.asarray(x, np.float64), draw_requests(source, draws.key(0), _SAMPLE))
        _last[:] = [(what, drawn)]
    return _last[0][1]


def labelled(source: RequestSource) -> Contexts:
    """Returns a sample of requests by satisfaction and cost."""
    sample = sampled(source)
    return equally_weighted(sample.satisfied, sample.cost)


def equally_weighted(success: ArrayLike, cost: ArrayLike) -> Contexts:
    """Returns contexts of equal weight."""
    success, cost = np.asarray(success), np.asarray(cost)
    return Contexts(np.full(len(cost), 1.0 / len(cost)), success, cost)
