"""Stored observations, from which the derivatives of the multinomial-logit loss are computed.

`Rows` and `PairRows` have a row for each round. `Counts` and `PairCounts` count rounds with the same query and need not grow with the rounds.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax
from jax.typing import DTypeLike

from jaxroute.core import numerics, xla
from jaxroute.estimators.mnl.likelihood import Derivatives, Sums, probabilities

# Entry of the matrix of second derivatives: parameters `a` and `b`, coordinates `i` and `j`.
_Entry = tuple[int, int, int, int]


def _written(table: Array, new: Array, t: Array) -> Array:
    return lax.dynamic_update_index_in_dim(table, new.astype(table.dtype), t, table.ndim - 1)


@struct.dataclass
class Rows:
    """Table of observations, for a model with a parameter vector per item. A row, along the last axis, is one of up to `H` rounds.

    Attributes:
      features: `[d, H]` features of the query.
      items: `[K, H]` up to `K` shown items in ascending order; -1 for none.
      accepted: `[H]` int8 index of the accepted item among the shown ones, `K` for none.
    """

    features: Array
    items: Array
    accepted: Array

    @classmethod
    def empty(cls, rounds: int, num_items: int, num_shown: int, dim: int) -> "Rows":
        """Returns an empty table for `rounds` rounds with at most `num_shown` (`K`) of `num_items` items and features of dimension `dim` (`d`).

        Sums take 32 rows at a time; therefore a number of rows above 32 is rounded up to a multiple of 32.
        """
        rounds, smallest = xla.chunked_size(rounds), jnp.int8 if num_items <= np.iinfo(np.int8).max else jnp.int16
        return cls(
            features=jnp.zeros((dim, rounds), jnp.float32),
            items=jnp.full((num_shown, rounds), -1, smallest),
            accepted=jnp.full((rounds,), num_shown, jnp.int8),
        )

    def write(self, t: Array, x: Array, items: Array, accepted: Array, valid: Array | bool) -> "Rows":
        """Returns the table with row `t` set to features `x` `[d]`, shown `items` `[K]` and the index `accepted`.

        `accepted` is the position in `items` of the accepted item, `K` for none. If `valid` is False, the row shows no items: all are -1.
        """
        items = jnp.where(valid, items, -1)
        return Rows(
            features=_written(self.features, x, t),
            items=_written(self.items, items, t),
            accepted=_written(self.accepted, accepted, t),
        )

    def sums(self, theta: Array, chosen: Array, in_use: Array | int, *, hessian: bool = True) -> Sums:
        """Returns the gradient of the negative log-likelihood without ridge (the sum in ACQB, eq. (4)) and, if `hessian`, the second derivatives.

        For chosen items `a` and `b` they are sums over the rows that show `a`, with `y_a` 1 if `a` was accepted, else 0:

            gradient in `theta_a`: `(p_a - y_a) x`,
            hessian: block (a, a) `p_a (1 - p_a) x x'`, block (a, b) `-p_a p_b x x'`.

        Args:
          theta: `[N, d]` parameters.
          chosen: `[A]` items in whose parameters derivatives are taken; -1 for none.
          in_use: `[]` int32 number of used rows.
          hessian: whether to return second derivatives.
        """
        dim, shown, number = theta.shape[1], self.items.shape[0], chosen.shape[0]
        masks = [numerics.one_hot(chosen[a], theta.shape[0]) for a in range(number)]
        parameters = [jnp.sum(jnp.where(mask[:, None], theta, 0.0), axis=0) for mask in masks]
        pairs = [(a, b) for a in range(number) for b in range(a, number)]
        entries = [(a, b, i, j) for a, b in pairs for i in range(dim) for j in range(i if a == b else 0, dim)]

        def step(carry: Array, part: tuple[Array, Array, Array], first: Array) -> Array:
            del first
            x, items, accepted = part
            # Whether item `chosen[a]` is at place k of a row.
            mine = [[items[k] == chosen[a].astype(items.dtype) for k in range(shown)] for a in range(number)]
            if shown == 1:
                probability, took = _of_one_shown(parameters, x, accepted, [m[0] for m in mine])
            else:
                probability, took = _of_several_shown(theta, x, items, accepted)
            # p_a in the rows that show item `chosen[a]`, 0 in the others; then p_a - y_a.
            share = [
                xla.compute_once(sum(jnp.where(mine[a][k], probability[k], 0.0) for k in range(shown)))
                for a in range(number)
            ]
            missed = [
                xla.compute_once(share[a] - sum(jnp.where(mine[a][k] & took[k], 1.0, 0.0) for k in range(shown)))
                for a in range(number)
            ]
            terms = [missed[a] * x[i] for a in range(number) for i in range(dim)]  # eq. (4)
            if hessian:
                terms += _second_derivatives(entries, share, x)
            return carry + xla.sums(terms)

        size = number * dim
        start = jnp.zeros((size + (len(entries) if hessian else 0),))
        total = xla.chunked_fold((self.features, self.items, self.accepted), in_use, start, step)
        blocks = dict(zip(entries, total[size:], strict=True)) if hessian else {}
        return Sums(total[:size].reshape(number, dim), _assemble(blocks, number, dim) if hessian else None)


# Probabilities of the shown items `[K, C]`, and whether each was accepted `[K, C]`.
_Choice = tuple[Array, Array]


def _of_one_shown(parameters: list[Array], x: Array, accepted: Array, mine: list[Array]) -> _Choice:
    """Returns the probability that the single item shown in each of `C` rows is accepted, `[1, C]`, and whether it was accepted, `[1, C]` bool.

    `parameters` has the vector `[d]` of each chosen item, `mine` the mask `[C]` of rows that show it. `x` `[d, C]` are features; `accepted` `[C]` is
    0 if the item was accepted, else 1. Rows that show no chosen item get meaningless probabilities, which the caller masks.
    """
    each = [numerics.combine(parameter, x) for parameter in parameters]
    logit = sum((jnp.where(m, v, 0.0) for m, v in zip(mine[1:], each[1:], strict=True)), each[0])
    if len(parameters) > 1:
        logit = jnp.where(mine[0], each[0], logit - each[0])
    return jax.nn.sigmoid(logit)[None], (accepted == 0)[None]


def _of_several_shown(theta: Array, x: Array, items: Array, accepted: Array) -> _Choice:
    """Returns the probability that each shown item of `C` rows is accepted, and whether it was, both `[K, C]`.

    `x` `[d, C]` are features, `items` `[K, C]` and `accepted` `[C]` as in `Rows`, and `theta` `[N, d]` the parameters of all items.
    """
    shown, width = items.shape[0], x.shape[-1]
    of_all = [numerics.combine(theta[j], x) for j in range(theta.shape[0])]
    at_place = [
        sum((jnp.where(items[k] == j, v, 0.0) for j, v in enumerate(of_all)), jnp.zeros((width,))) for k in range(shown)
    ]
    logits = xla.compute_once(jnp.stack(at_place))
    took = jnp.stack([(accepted == k) & (items[k] >= 0) for k in range(shown)])
    return probabilities(logits, items >= 0), took


def _second_derivatives(entries: list[_Entry], share: list[Array], x: Array) -> list[Array]:
    """Returns for each of `entries`, `(a, b, i, j)`, the terms `[C]` that `C` rows add to that entry of the second derivatives.

    An entry is for coordinate `i` of the `a`-th chosen item and coordinate `j` of the `b`-th. Its terms are `p_a (1 - p_a) x_i x_j` if `a = b`, else
    `-p_a p_b x_i x_j`. `share` has each chosen item's probability `p_a` `[C]` (0 if it was not shown), `x` the features `[d, C]`.
    """
    scaled: dict[tuple[int, int, int], Array] = {}
    terms = []
    for a, b, i, j in entries:
        if (a, b, i) not in scaled:
            weight = share[a] * (1.0 - share[a]) if a == b else -share[a] * share[b]
            scaled[a, b, i] = xla.compute_once(weight * x[i])
        terms.append(scaled[a, b, i] * x[j])
    return terms


def _assemble(blocks: dict[_Entry, Array], number: int, dim: int) -> Array:
    def entry(a: int, i: int, b: int, j: int) -> Array:
        if (a, b, i, j) in blocks:
            return blocks[a, b, i, j]
        return blocks[b, a, j, i]

    places = [(a, i) for a in range(number) for i in range(dim)]
    return jnp.stack([jnp.stack([entry(*p, *q) for q in places]) for p in places])


@struct.dataclass
class PairRows:
    """Table of observations of `H` rounds, for a model whose items share one parameter `[d]`; each pair of query and item has features.

    Attributes:
      features: `[K, d, H]` features of the shown items, up to `K` in a round; zero in places without an item.
      shown: `[K, H]` bool, whether a place shows an item; a round without any is not an observation.
      accepted: `[H]` int8 place of the accepted item, `K` for none.
    """

    features: Array
    shown: Array
    accepted: Array

    @classmethod
    def empty(cls, rounds: int, num_shown: int, dim: int) -> "PairRows":
        """Returns an empty table with a row for each of `rounds` rounds, which show up to `num_shown` items with features of dimension `dim`."""
        rounds = xla.chunked_size(rounds)
        return cls(
            features=jnp.zeros((num_shown, dim, rounds), jnp.float32),
            shown=jnp.zeros((num_shown, rounds), bool),
            accepted=jnp.full((rounds,), num_shown, jnp.int8),
        )

    def write(self, t: Array, x: Array, shown: Array, accepted: Array, valid: Array | bool) -> "PairRows":
        """Returns the table with row `t` set to features `x` `[K, d]`, the mask `shown` `[K]`, and `accepted`, the accepted item's index (`K`: none).

        If `valid` is False, the row shows no items: its mask is False.
        """
        return PairRows(
            features=_written(self.features, x, t),
            shown=_written(self.shown, shown & valid, t),
            accepted=_written(self.accepted, accepted, t),
        )

    def sums(self, theta: Array, chosen: Array, in_use: Array | int, *, hessian: bool = True) -> Sums:
        """Returns the derivatives of the negative log-likelihood, without its ridge term, in the single parameter: the only row of `theta` `[1, d]`.

        They are sums over the first `in_use` rows; `j` runs over the shown items of a row, and `y_j` is 1 if item `j` was accepted, else 0:

            gradient: `sum_j (p_j - y_j) x_j`,
            hessian (None if `hessian` is False): `sum_j p_j x_j x_j' - m m'` with the mean `m = sum_j p_j x_j`.

        `chosen` is not used; it makes the signature that of `Rows.sums`.
        """
        del chosen
        shown, dim = self.shown.shape[0], theta.shape[1]
        zero = jnp.zeros(())
        pairs = [(i, j) for i in range(dim) for j in range(i, dim)]

        def step(carry: dict[str, Any], part: tuple[Array, Array, Array], first: Array) -> dict[str, Any]:
            del first
            x, present, accepted = part
            logits = xla.compute_once(jnp.stack([numerics.combine(theta[0], x[k]) for k in range(shown)]))
            probability = probabilities(logits, present)
            took = jnp.stack([present[k] & (accepted == k) for k in range(shown)])
            missed = xla.compute_once(probability - took)
            total: dict[str, Any] = {
                "gradient": [sum((jnp.sum(missed[k] * x[k, i]) for k in range(shown)), zero) for i in range(dim)]
            }
            if hessian:
                mean = xla.compute_once(jnp.stack([sum(probability[k] * x[k, i] for k in range(shown)) for i in range(dim)]))
                total["hessian"] = {
                    (0, 0, i, j): sum(
                        (jnp.sum(probability[k] * x[k, i] * x[k, j]) for k in range(shown)), -jnp.sum(mean[i] * mean[j])
                    )
                    for i, j in pairs
                }
            return jax.tree.map(jnp.add, carry, total)

        start: dict[str, Any] = {"gradient": [zero] * dim}
        if hessian:
            start["hessian"] = {(0, 0, i, j): zero for i, j in pairs}
        total = xla.chunked_fold((self.features, self.shown, self.accepted), in_use, start, step)
        gradient = jnp.stack(total["gradient"])[None]
        return Sums(gradient, _assemble(total["hessian"], 1, dim) if hessian else None)


def whole_type(most: int) -> DTypeLike:
    """Returns the smallest integer type, int16 or int32, for counts and indices up to `most`."""
    return jnp.int16 if most <= np.iinfo(np.int16).max else jnp.int32


@struct.dataclass
class Counts:
    """Counts of each item's trials and acceptances by query, for rounds that show one of `N` items on one of `P` fixed queries.

    They are sufficient statistics. Each item also has a list of its queries, so that sums do not visit all `P`. Its length `C` is the smaller of `P`
    and the number of rounds, rounded up as in `Rows`.

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
          accepted: `[]` index in `items` of the accepted item, as in `Rows`: 0 if the shown item was accepted, 1 if not.
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

        It is the gradient without the ridge term, `sum_q (tried_q p(x_q) - accepted_q) x_q` over the queries `q`: `tried_q` and `accepted_q` are the
        item's counts for a query, `p(x_q)` is its probability of acceptance. The `table` `[d, P]` holds the features of all queries; all runs of a
        batch (`vmap`) share it.
        """
        place, by_query = (jnp.maximum(chosen[0], 0),), table.T
        item = chosen[0]
        tried, accepted = [
            xla.barrier(numerics.at(x, (jnp.maximum(item, 0),)).astype(jnp.float32)) for x in (self.tried, self.accepted)
        ]
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
    """Counts of trials and acceptances for rounds that show one or two of `N` items on one of `P` fixed queries.

    Each item has a list of up to `C` entries: combinations of a query and the other shown item, which is the item itself if it was shown alone.

    Attributes:
      places: `[N, N, P]` int16 or int32; `[i, j, q]` is 1 + the index in item `i`'s list of the entry of query `q` and other item `j`; 0 if none.
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
        """Returns the counts with one more observation, if it is `valid`: the items `items` `[2]` were shown for the query with index `query`.

        `accepted` is the index in `items` of the accepted one, or 2 for none; an item of -1 is missing.
        """
        first, second = items[0], jnp.where(items[1] >= 0, items[1], items[0])
        valid &= first >= 0
        once = self._with(query, first, second, jnp.asarray(accepted == 0), valid)
        return once._with(query, second, first, jnp.asarray(accepted == 1), valid & (first != second))

    def _with(self, query: Array, item: Array, other: Array, won: Array, counts: Array) -> "PairCounts":
        """Adds to the list of `item` a trial with `other` for `query`, in which `item` was accepted if `won`. If not `counts`, nothing changes."""
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
        """Returns a function of `theta` `[N, d]` that computes the loss's gradient in the parameters of the items `chosen` `[2]` (-1: none).

        The gradient lacks the ridge term. The `table` `[d, P]` holds the features of all `P` queries of a pool.
        """
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
    # Computed once, the table too: two writes in one loop would visit all of it.
    now, table = xla.barrier((numerics.at(table, cell), table))
    return numerics.put(table, cell, now + counts.astype(table.dtype))
