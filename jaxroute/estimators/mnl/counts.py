"""Counts of trials and acceptances by query of a table, which replace the list of observations and need not grow with the rounds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax
from jax.typing import DTypeLike

from jaxroute.core import numerics, xla
from jaxroute.estimators.mnl.likelihood import Derivatives, Sums


def whole_type(most: int) -> DTypeLike:
    """Returns the smallest integer type, int16 or int32, for counts and indices up to `most`."""
    return jnp.int16 if most <= np.iinfo(np.int16).max else jnp.int32


@struct.dataclass
class Counts:
    """Counts of each item's trials and acceptances by query, for rounds that show one of `N` items on one of `P` fixed queries.

    They are sufficient statistics. Each item also has a list of its up to `C` queries, so that sums over them do not visit the whole table.

    Attributes:
      tried: `[N, P]` int16 or int32 number of trials.
      accepted: `[N, P]` int16 or int32 number of acceptances.
      queries: `[N, C]` int16 or int32 indices of the queries on which each item was shown, in the order of their first trial.
      listed: `[N]` int32 number of entries of `queries` that are used.
    """

    tried: Array
    accepted: Array
    queries: Array
    listed: Array

    @classmethod
    def empty(cls, num_items: int, num_queries: int, rounds: int) -> "Counts":
        """Returns counts without observations, for `num_items` items (`N`), `num_queries` fixed queries (`P`) and at most `rounds` rounds."""
        zeros = jnp.zeros((num_items, num_queries), whole_type(rounds))
        return cls(
            tried=zeros,
            accepted=zeros,
            queries=jnp.zeros((num_items, xla.chunked_size(min(num_queries, rounds))), whole_type(num_queries)),
            listed=jnp.zeros((num_items,), jnp.int32),
        )

    def add(self, query: Array, items: Array, accepted: Array | int, valid: Array | bool) -> "Counts":
        """Returns the counts with one more observation, if it is `valid`.

        Args:
          query: `[]` index of the query among all fixed queries.
          items: `[1]` shown item, -1 for none.
          accepted: `[]` 0 if it was accepted, else 1.
          valid: `[]` bool, whether there is an observation.
        """
        item, counts = jnp.maximum(items[0], 0), valid & (items[0] >= 0)
        before, listed = xla.barrier((numerics.at(self.tried, (item, query)), numerics.at(self.listed, (item,))))
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

    def sums(self, table: Array, chosen: Array) -> Derivatives:
        """Returns a function of `theta` `[N, d]` that computes the gradient in the parameter of the item `chosen` `[1]`, without second derivatives.

        The gradient is that of eq. (4) without the ridge: `sum_q (tried_q p(x_q) - accepted_q) x_q` over the queries `q`, with the probability `p`
        of acceptance. The `table` `[d, P]` holds the features of all queries; all runs share it.
        """
        place, by_query = (jnp.maximum(chosen[0], 0),), table.T
        tried, accepted = _of_item((self.tried, self.accepted), chosen[0])
        listed, queries = xla.barrier((numerics.at(self.listed, place), numerics.at(self.queries, place)))

        def sums(theta: Array, *, hessian: bool = True) -> Sums:
            del hessian
            parameter = numerics.at(theta, place)

            def step(gradient: Array, queries: Array, first: Array) -> Array:
                query = queries.astype(jnp.int32)
                x = xla.compute_once(jnp.take(by_query, query, axis=0, mode="clip"))
                missed = jnp.take(tried, query) * jax.nn.sigmoid(numerics.project(x, parameter)) - jnp.take(accepted, query)
                here = first + lax.iota(jnp.int32, query.shape[0]) < listed
                return gradient + numerics.project(jnp.where(here, missed, 0.0), x)

            in_use = xla.largest_over_runs(listed)
            return Sums(xla.chunked_fold(queries, in_use, jnp.zeros_like(parameter), step)[None], None)

        return sums


@struct.dataclass
class PairCounts:
    """Counts of trials and acceptances by query and other item, as `Counts`, for rounds that show one or two of `N` items.

    Each item has a list of up to `C` combinations of a query (of `P`) and the other shown item, which is the item itself if it was shown alone.

    Attributes:
      places: `[N, N, P]` int16 or int32 position, from 1, in the first item's list of the entry for the other item and a query; 0 if missing.
      queries: `[N, C]` int16 or int32 query of each entry, in the order of the first trial.
      others: `[N, C]` int16 or int32 other item of each entry.
      tried: `[N, C]` int16 or int32 number of trials of each entry.
      accepted: `[N, C]` int16 or int32 number of acceptances of the list's item in these trials.
      listed: `[N]` int32 number of entries of each item's list.
    """

    places: Array
    queries: Array
    others: Array
    tried: Array
    accepted: Array
    listed: Array

    @classmethod
    def empty(cls, num_items: int, num_queries: int, rounds: int) -> "PairCounts":
        """Returns counts without observations, for `num_items` items, `num_queries` fixed queries and at most `rounds` rounds."""
        most = min(num_items * num_queries, rounds)
        shape = (num_items, xla.chunked_size(most))
        counts = jnp.zeros(shape, whole_type(rounds))
        return cls(
            places=jnp.zeros((num_items, num_items, num_queries), whole_type(most)),
            queries=jnp.zeros(shape, whole_type(num_queries)),
            others=jnp.zeros(shape, whole_type(num_items)),
            tried=counts,
            accepted=counts,
            listed=jnp.zeros((num_items,), jnp.int32),
        )

    def add(self, query: Array, items: Array, accepted: Array | int, valid: Array | bool) -> "PairCounts":
        """Returns the counts with one more observation, see `Counts.add`. `items` `[2]` were shown; `accepted` is the index of one, or 2 for none."""
        first, second = items[0], jnp.where(items[1] >= 0, items[1], items[0])
        valid &= first >= 0
        once = self._with(query, first, second, jnp.asarray(accepted == 0), valid)
        return once._with(query, second, first, jnp.asarray(accepted == 1), valid & (first != second))

    def _with(self, query: Array, item: Array, other: Array, won: Array, counts: Array) -> "PairCounts":
        """Returns the counts with one more trial in the list of `item`, if `counts` is True, and one more acceptance if also `won`."""
        item, other = jnp.maximum(item, 0), jnp.maximum(other, 0)
        cell, row = (item, other, query), (item,)
        # Computed once, the tables too: two writes in one loop would visit all entries.
        place, places, listed = xla.barrier((numerics.at(self.places, cell), self.places, numerics.at(self.listed, row)))
        new = counts & (place == 0)
        slot = (item, jnp.where(new, listed, jnp.maximum(place.astype(jnp.int32) - 1, 0)))

        def put(table: Array, value: Array) -> Array:
            now, table = xla.barrier((numerics.at(table, slot), table))
            return numerics.put(table, slot, jnp.where(new, value.astype(table.dtype), now))

        return PairCounts(
            places=numerics.put(places, cell, jnp.where(new, (listed + 1).astype(places.dtype), place)),
            queries=put(self.queries, query),
            others=put(self.others, other),
            tried=_one_more(self.tried, slot, counts),
            accepted=_one_more(self.accepted, slot, counts & won),
            listed=numerics.put(self.listed, row, listed + new.astype(jnp.int32)),
        )

    def sums(self, table: Array, chosen: Array) -> Derivatives:
        """Returns a function of `theta` that computes the gradient for the items `chosen` `[2]` (-1: none). `table` `[d, P]` has all features."""
        by_query = table.T
        places = [(jnp.maximum(chosen[a], 0),) for a in range(chosen.shape[0])]
        lists = [
            xla.barrier(tuple(numerics.at(x, place) for x in (self.queries, self.others, self.tried, self.accepted)))
            for place in places
        ]
        listed = [numerics.at(self.listed, place) for place in places]
        in_use = [xla.largest_over_runs(number) for number in listed]
        of_others: list[Array] = []  # Computed in the first call, because the parameters of other items do not change.

        def features(queries: Array) -> Array:
            return xla.compute_once(jnp.take(by_query, queries.astype(jnp.int32), axis=0, mode="clip"))

        def utilities_of_others(theta: Array, a: int) -> Array:
            """Returns the utility of the other shown item for each entry in the list of the item `chosen[a]`, `[C]`."""
            queries, others = lists[a][:2]

            def step(part: tuple[Array, ...], first: Array) -> tuple[Array, ...]:
                del first
                _, queries, others = part
                theirs = xla.compute_once(jnp.take(theta, others.astype(jnp.int32), axis=0, mode="clip"))
                return jnp.sum(features(queries) * theirs, axis=1), queries, others

            empty = jnp.zeros(queries.shape, theta.dtype)
            return xla.chunked_map_inplace((empty, queries, others), in_use[a], step)[0]

        def sums(theta: Array, *, hessian: bool = True) -> Sums:
            del hessian
            if not of_others:
                of_others.extend(utilities_of_others(theta, a) for a in range(len(lists)))
            parameters = [numerics.at(theta, place) for place in places]
            gradients = []
            for a, b in ((0, 1), (1, 0)):

                def step(gradient: Array, part: tuple[Array, ...], first: Array, a: int = a, b: int = b) -> Any:
                    queries, others, tried, accepted, utility = part
                    x = features(queries)
                    own = xla.compute_once(numerics.project(x, parameters[a]))
                    rival = jnp.where(others == chosen[b], numerics.project(x, parameters[b]), utility) - own
                    rival = jnp.where(others == chosen[a], 0.0, jnp.exp(rival))
                    missed = tried / (1.0 + jnp.exp(-own) + rival) - accepted
                    here = first + lax.iota(jnp.int32, queries.shape[0]) < listed[a]
                    return gradient + numerics.project(jnp.where(here, missed, 0.0), x)

                found = xla.chunked_fold((*lists[a], of_others[a]), in_use[a], jnp.zeros_like(parameters[a]), step)
                gradients.append(jnp.where(chosen[a] >= 0, found, 0.0))
            return Sums(jnp.stack(gradients), None)

        return sums


def _one_more(table: Array, cell: tuple[Array, ...], counts: Array) -> Array:
    """Adds one to the element of the array `table` at the index `cell`, if `counts` is True."""
    # Computed once, the table too: two writes in one loop would visit all of it.
    now, table = xla.barrier((numerics.at(table, cell), table))
    return numerics.put(table, cell, now + counts.astype(table.dtype))


def _of_item(tables: tuple[Array, ...], item: Array) -> list[Array]:
    return [xla.barrier(numerics.at(x, (jnp.maximum(item, 0),)).astype(jnp.float32)) for x in tables]
