"""Observations as counts of the queries of a table: their size does not depend on the number of rounds."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax
from jax.typing import DTypeLike

from jaxroute.core import numerics
from jaxroute.estimators.mnl.types import Derivatives, Sums


def whole_type(most: int) -> DTypeLike:
    """The smallest integer that can count so many rounds, or number so many queries."""
    return jnp.int16 if most <= np.iinfo(np.int16).max else jnp.int32


@struct.dataclass
class Counts:
    """How often each item was shown alone to each query of a table, and accepted: all there is to know when `K = 1`.

    The queries that an item was shown to are listed, so that a sum over them does not go through all of the table.

    Attributes:
      tried: `[N, P]`, int16 or int32.
      accepted: `[N, P]`, likewise.
      queries: `[N, P']`, int16 or int32, numbers of the queries that an item was shown to, in the order of the first time.
      listed: `[N]` int32, how many those are.
    """

    tried: jax.Array
    accepted: jax.Array
    queries: jax.Array
    listed: jax.Array

    @classmethod
    def empty(cls, num_items: int, num_queries: int, rounds: int) -> "Counts":
        """Nothing was shown yet.

        Args:
          num_items: `N`.
          num_queries: `P`.
          rounds: most rounds that there will be.
        """
        zeros = jnp.zeros((num_items, num_queries), whole_type(rounds))
        return cls(
            tried=zeros,
            accepted=zeros,
            queries=jnp.zeros((num_items, numerics.padded(min(num_queries, rounds))), whole_type(num_queries)),
            listed=jnp.zeros((num_items,), jnp.int32),
        )

    def add(self, query: jax.Array, items: jax.Array, accepted: jax.Array | int, valid: jax.Array | bool) -> "Counts":
        """With one observation.

        Args:
          query: `[]`, number of the query.
          items: `[1]`, the item that was shown, -1 for none.
          accepted: `[]`, place of the accepted one, 1 for none.
          valid: `[]` bool; if False nothing was observed.
        """
        item, counts = jnp.maximum(items[0], 0), valid & (items[0] >= 0)
        before, listed = numerics.materialised((numerics.at(self.tried, (item, query)), numerics.at(self.listed, (item,))))
        new = counts & (before == 0)
        end = (item, listed)
        return Counts(
            tried=_one_more(self.tried, (item, query), counts),
            accepted=_one_more(self.accepted, (item, query), counts & (accepted == 0)),
            queries=numerics.put(
                self.queries, end, jnp.where(new, query.astype(self.queries.dtype), numerics.at(self.queries, end))
            ),
            listed=numerics.put(self.listed, (item,), listed + new.astype(jnp.int32)),
        )

    def sums(self, table: jax.Array, chosen: jax.Array) -> Derivatives:
        """The gradient, eq. (4) without the ridge: `sum_p (tried_p p(x_p) - accepted_p) x_p` of the chosen item.

        Args:
          table: `[d, P]`, features that all runs share.
          chosen: `[1]`, the item.
        """
        place, by_query = (jnp.maximum(chosen[0], 0),), table.T
        tried, accepted = _of_item((self.tried, self.accepted), chosen[0])
        listed, queries = numerics.materialised((numerics.at(self.listed, place), numerics.at(self.queries, place)))

        def sums(theta: jax.Array, *, loss: bool = False, hessian: bool = True, everyone: bool = False) -> Sums:
            del loss, hessian, everyone
            parameter = numerics.at(theta, place)

            def step(gradient: jax.Array, queries: jax.Array, first: jax.Array) -> jax.Array:
                query = queries.astype(jnp.int32)
                x = numerics.kept(jnp.take(by_query, query, axis=0, mode="clip"))
                missed = jnp.take(tried, query) * jax.nn.sigmoid(numerics.project(x, parameter)) - jnp.take(accepted, query)
                here = first + lax.iota(jnp.int32, query.shape[0]) < listed
                return gradient + numerics.project(jnp.where(here, missed, 0.0), x)

            in_use = numerics.largest_over_runs(listed)
            return Sums(jnp.zeros(()), numerics.fold(queries, in_use, jnp.zeros_like(parameter), step)[None], None)

        return sums


@struct.dataclass
class PairCounts:
    """How often two items were shown together to each query of a table, and one of them accepted: `Counts` for `K = 2`.

    Attributes:
      tried: `[N, N, P]`, int16 or int32, symmetric; an item that was shown alone counts as a pair with itself.
      accepted: `[N, N, P]`, times that the first item of the pair was accepted.
    """

    tried: jax.Array
    accepted: jax.Array

    @classmethod
    def empty(cls, num_items: int, num_queries: int, rounds: int) -> "PairCounts":
        """Nothing was shown yet; see `Counts.empty`."""
        zeros = jnp.zeros((num_items, num_items, num_queries), whole_type(rounds))
        return cls(tried=zeros, accepted=zeros)

    def add(self, query: jax.Array, items: jax.Array, accepted: jax.Array | int, valid: jax.Array | bool) -> "PairCounts":
        """With one observation.

        Args:
          query: `[]`, number of the query.
          items: `[2]`, -1 for none.
          accepted: `[]`, place of the accepted one, 2 for none.
          valid: `[]` bool; if False nothing was observed.
        """
        first, second = items[0], jnp.where(items[1] >= 0, items[1], items[0])
        valid &= first >= 0
        tried = _one_more(self.tried, (first, second, query), valid)
        tried = _one_more(tried, (second, first, query), valid & (first != second))
        won = _one_more(self.accepted, (first, second, query), valid & (accepted == 0))
        return PairCounts(tried, _one_more(won, (second, first, query), valid & (accepted == 1)))

    def sums(self, table: jax.Array, chosen: jax.Array) -> Derivatives:
        """The gradient, eq. (4) without the ridge; see `Counts.sums`. In `p_j` there is one other item.

        Args:
          table: `[d, P]`.
          chosen: `[2]`, the items.
        """
        rows = [_of_item((self.tried, self.accepted), chosen[a]) for a in range(chosen.shape[0])]
        places = [(jnp.maximum(chosen[a], 0),) for a in range(chosen.shape[0])]
        of_others: list[jax.Array] = []  # From the first call: other parameters stay.

        def sums(theta: jax.Array, *, loss: bool = False, hessian: bool = True, everyone: bool = False) -> Sums:
            del loss, hessian, everyone
            if not of_others:
                of_others.append(numerics.kept(numerics.project(theta, table)))
            own = [numerics.project(numerics.at(theta, place), table) for place in places]
            logits = of_others[0]
            for place, logit in zip(places, own, strict=True):
                logits = numerics.put(logits, place, logit)
            logits = numerics.kept(logits)
            gradients = []
            for a, (tried, accepted) in enumerate(rows):
                logit = numerics.materialised(own[a])
                itself = numerics.one_hot(chosen[a], logits.shape[0])[:, None]
                others = jnp.where(itself, 0.0, jnp.exp(logits - logit))
                missed = jnp.sum(tried / (1.0 + jnp.exp(-logit) + others) - accepted, axis=0)
                gradients.append(jnp.where(chosen[a] >= 0, numerics.project(missed, table.T), 0.0))
            return Sums(jnp.zeros(()), jnp.stack(gradients), None)

        return sums


def _one_more(table: jax.Array, cell: tuple[jax.Array, ...], counts: jax.Array) -> jax.Array:
    """`table` with one added at a `cell`, if it `counts`."""
    # Materialised, the table too: two writes in one loop would go through all of it.
    now, table = numerics.materialised((numerics.at(table, cell), table))
    return numerics.put(table, cell, now + counts.astype(table.dtype))


def _of_item(tables: tuple[jax.Array, ...], item: jax.Array) -> list[jax.Array]:
    """The rows of an item in tables of counts, as numbers to compute with."""
    return [numerics.materialised(numerics.at(x, (jnp.maximum(item, 0),)).astype(jnp.float32)) for x in tables]
