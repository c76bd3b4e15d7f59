"""What every source of requests has in common: protocol, contexts, samples."""

import functools
import hashlib
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxroute.core import checks, draws
from jaxroute.core.quick import quick_jit
from jaxroute.core.trees import classes_of
from jaxroute.problems.service.types import Request

# Requests drawn for an optimum that has no closed form.
_SAMPLE = 1 << 16
# Models up to which all sets of those that satisfy are listed: 4,096 sets. Joint distributions given by the user may have more cells.
MOST_LISTED, MOST_CELLS = 12, 20
# Numbers of a source that are looked at to tell it from another.
_MOST_BYTES = 1 << 20


class Contexts(NamedTuple):
    """Weighted kinds of requests on the host, float64.

    weight: `[W]` shares.
    success: `[W, M]` probability that each model satisfies.
    cost: `[W, M]`, J.
    """

    weight: np.ndarray
    success: np.ndarray
    cost: np.ndarray

    def mean(self) -> "Contexts":
        """All requests as one context: marginal probabilities and mean costs."""
        return Contexts(np.ones(1), *((self.weight @ x)[None] for x in (self.success, self.cost)))

    def at_cost(self, cost: ArrayLike) -> "Contexts":
        """The same with mean costs `[M]`, for one who does not see what a request would cost."""
        return self._replace(cost=np.broadcast_to(np.asarray(cost, np.float64), self.cost.shape))


def fingerprint(requests: Any) -> str:
    """Digest of a source's kind and numbers; empty if they are traced, or more than a mebibyte."""
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
    """Where requests come from."""

    @property
    def num_features(self) -> int:
        """`d`."""
        ...

    def check(self) -> None:
        """Raises `ValueError` on values out of range."""
        ...

    def init(self, key: jax.Array) -> Any:
        """What the source remembers in a run."""
        ...

    def draw(self, key: jax.Array, state: Any, t: jax.Array) -> Request:
        """The request of round `t`."""
        ...

    def success(self, features: jax.Array) -> jax.Array:
        """The probabilities `[M]` that each model satisfies, given features `[d]`."""
        ...

    def average(self) -> Contexts:
        """All requests as one context."""
        ...

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """What a policy tells apart by features, and by costs if it sees these."""
        ...

    def label_contexts(self) -> Contexts:
        """What a policy tells apart that sees who satisfies, at mean costs where these have a closed form."""
        ...

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """What a policy tells apart that sees who satisfies, and costs if it sees these."""
        ...


def all_labels(num_models: int) -> np.ndarray:
    """Satisfaction in each of the `2 ** M` cells, float32 `[2 ** M, M]`, of at most 20 models; the first one is the highest bit."""
    checks.count("num_models", num_models, minimum=0, maximum=MOST_CELLS)
    cells = np.arange(2**num_models)
    return ((cells[:, None] >> np.arange(num_models)[::-1]) & 1).astype(np.float32)


@functools.partial(quick_jit, static_argnums=2)
def draw_requests(source: RequestSource, key: jax.Array, number: int) -> Request:
    """The first `number` requests of a separate run, leaves `[number, ...]`."""
    k_init, k_draw = draws.split(key)
    state = source.init(k_init)
    return jax.vmap(lambda i: source.draw(draws.fold_in(k_draw, i), state, i))(jnp.arange(number, dtype=jnp.int32))


_last: list[tuple[Any, Request]] = []  # The last sample, and of what: several optima of a source are found in a row.


def sampled(source: RequestSource) -> Request:
    """Requests for an optimum that has no closed form, float64 on the host; always the same ones."""
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
    """A sample of requests, told apart by who satisfies and by cost."""
    sample = sampled(source)
    return equally_weighted(sample.satisfied, sample.cost)


def equally_weighted(success: ArrayLike, cost: ArrayLike) -> Contexts:
    """Contexts of equal weight."""
    success, cost = np.asarray(success), np.asarray(cost)
    return Contexts(np.full(len(cost), 1.0 / len(cost)), success, cost)
