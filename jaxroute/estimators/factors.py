"""Square roots of inverse design matrices `V^-1` as products of rank-one factors, for many large models with few observations each."""

import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from jaxroute.core import numerics, xla
from jaxroute.core.types import Leaf

# Number of observations in a page.
_PAGE = 16


@struct.dataclass
class Factors:
    """Square roots `W` of inverse design matrices, `V^-1 = W W'`, one for each of `N` parameters, stored in pages of up to 16 observations.

    `W = ridge^-1/2 Q_1 Q_2 ...` has a factor `Q = I - A' T A` for each page of the parameter. The `G` pages of all parameters are stored in the
    order of their creation, so that memory is proportional to the number of observations. The last page is always empty and means "no page".

    Attributes:
      rows: `[G, 16, d]` matrices `A`, with a row `a = W' x` for each observation `x`, where `W` is the root before it; zero if unused.
      mix: `[G, 16, 16]` upper triangular matrices `T`, which make `Q` the product of `I - c a a'` over the rows `a` (see `grown_root`).
      owner: `[G]` int32 index of the parameter of each page.
      after: `[G]` int32 index of the next page of the same parameter.
      first: `[N]` int32 index of the first page of each parameter.
      last: `[N]` int32 index of the last page of each parameter.
      pages: `[N]` int32 number of pages of each parameter.
      filled: `[N]` int32 number of observations in the last page.
      in_use: `[]` int32 number of used pages.
      scale: `[]` `ridge^-1/2`.
    """

    rows: Array
    mix: Array
    owner: Array
    after: Array
    first: Array
    last: Array
    pages: Array
    filled: Array
    in_use: Array
    scale: Array


def _times(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _page(spread: Factors, page: Array) -> tuple[Array, Array]:
    """Returns the matrices `A` and `T` of the page with index `page` (see `Factors`)."""
    return xla.compute_once((numerics.at(spread.rows, (page,)), numerics.at(spread.mix, (page,))))


@struct.dataclass
class ByFactors:
    """Samples `N(0, V^-1)` by square roots of `V^-1` in product form (`Factors`); time and memory grow with the observations, not with `N d^2`.

    A sample multiplies the noise of each parameter by its pages, which takes about `2 d` multiplications per observation; `ByRoot` takes `N d^2`.
    Both have the same square root, and so the same samples up to rounding.

    Source: the rank-one update of `grown_root`; Schreiber and Van Loan (1989) for products of factors by blocks.
    """

    def init(self, num: int, dim: int, ridge: Leaf, observations: int) -> Factors:
        # Every page except the last one of a parameter is full.
        number = min(num, observations) + observations // _PAGE + 1
        none = jnp.full((num,), number - 1, jnp.int32)
        zeros = jnp.zeros((num,), jnp.int32)
        return Factors(
            rows=jnp.zeros((number, _PAGE, dim), jnp.float32),
            mix=jnp.zeros((number, _PAGE, _PAGE), jnp.float32),
            owner=jnp.zeros((number,), jnp.int32),
            after=jnp.full((number,), number - 1, jnp.int32),
            first=none,
            last=none,
            pages=zeros,
            filled=zeros,
            in_use=jnp.int32(0),
            scale=1.0 / jnp.sqrt(jnp.asarray(ridge, jnp.float32)),
        )

    def add(self, spread: Factors, chosen: Array, x: Array) -> Factors:
        for k in range(chosen.shape[0]):
            spread = self._add(spread, chosen[k], x[k])
        return spread

    def _add(self, spread: Factors, parameter: Array, x: Array) -> Factors:
        counts, none = parameter >= 0, spread.owner.shape[0] - 1
        place = (jnp.maximum(parameter, 0),)
        first, last, pages, filled = (
            numerics.at(table, place) for table in (spread.first, spread.last, spread.pages, spread.filled)
        )
        pages = jnp.where(counts, pages, 0)

        def through(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            """Multiplies the vector by `Q'` of a page and moves to the next page; after the last one follows the empty page, where `Q = I`."""
            page, a = carry
            rows, mix = _page(spread, page)
            return numerics.at(spread.after, (page,)), a - _times(_times(_times(rows, a), mix), rows)

        start = (jnp.where(counts, first, none), spread.scale * x)
        a = lax.fori_loop(0, xla.largest_over_runs(pages), through, start)[1]

        new = counts & ((pages == 0) | (filled == _PAGE))
        page = jnp.where(counts, jnp.where(new, spread.in_use, last), none)
        row = jnp.where(new | ~counts, 0, filled)
        norm = jnp.sum(a * a)
        s = jnp.sqrt(1.0 + norm)
        factor = jnp.where(counts, 1.0 / (s * (1.0 + s)), 0.0)  # As in `grown_root`.
        rows, mix = _page(spread, page)
        here = numerics.one_hot(row, _PAGE)
        column = jnp.where(here, factor, -factor * _times(mix, _times(rows, a)))
        mix = jnp.where(here[None, :], column[:, None], mix)
        # Whole pages are written: the written values must depend on all reads, or the tables would be copied in every round.
        rows, mix = xla.barrier((jnp.where(here[:, None], jnp.where(counts, a, 0.0), rows), mix))

        def put(table: Array, place: Array, value: Array) -> Array:
            return numerics.put(table, (place,), jnp.where(counts, value, numerics.at(table, (place,))))

        return spread.replace(
            rows=numerics.put(spread.rows, (page,), rows),
            mix=numerics.put(spread.mix, (page,), mix),
            owner=put(spread.owner, page, *place),
            # Links the previous page to the new one; the empty page stays its own successor.
            after=put(spread.after, last, jnp.where(new & (last < none), page, numerics.at(spread.after, (last,)))),
            first=put(spread.first, *place, jnp.where(pages == 0, page, first)),
            last=put(spread.last, *place, page),
            pages=put(spread.pages, *place, pages + new.astype(jnp.int32)),
            filled=put(spread.filled, *place, row + 1),
            in_use=spread.in_use + new.astype(jnp.int32),
        )

    def sample(self, spread: Factors, noise: Array) -> Array:
        number = xla.largest_over_runs(spread.in_use)

        def through(step: Array, samples: Array) -> Array:
            """Multiplies the samples of one parameter by `Q` of one of its pages; the pages come from the last to the first."""
            page = number - 1 - step
            rows, mix = _page(spread, page)
            owner = (numerics.at(spread.owner, (page,)),)
            now = xla.barrier(numerics.at(samples, owner))
            return numerics.put(samples, owner, now - _times(_times(_times(now, rows.T), mix.T), rows))

        return spread.scale * lax.fori_loop(0, number, through, noise)

    def min_eigenvalue(self, spread: Factors) -> Array:
        num, dim = spread.first.shape[0], spread.rows.shape[-1]
        eye = jnp.broadcast_to(jnp.eye(dim, dtype=jnp.float32), (num, dim, dim))
        return 1.0 / jnp.square(jnp.linalg.norm(self.sample(spread, eye), ord=2, axis=(-2, -1)))
