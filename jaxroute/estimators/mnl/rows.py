"""Tables with a row for each observed round, and the derivatives of the multinomial-logit loss as sums over the rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jax.typing import DTypeLike

from jaxroute.core import numerics, xla
from jaxroute.estimators.mnl.likelihood import Sums, probabilities

# Entry of the matrix of second derivatives: parameters `a` and `b`, coordinates `i` and `j`.
_Entry = tuple[int, int, int, int]


def item_type(num_items: int) -> DTypeLike:
    """Returns the smallest integer type, int8 or int16, for the indices of items and -1."""
    return jnp.int8 if num_items <= np.iinfo(np.int8).max else jnp.int16


def _written(table: Array, new: Array, t: Array) -> Array:
    """Returns a `table` `[..., H]` with `new` `[...]` at index `t` of the last axis."""
    return jax.lax.dynamic_update_index_in_dim(table, new.astype(table.dtype), t, table.ndim - 1)


@struct.dataclass
class Rows:
    """Table of observations, for a model with a parameter per item; the last axis has a place for each of `H` rounds.

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
        """Returns an empty table with a row for each of `rounds` rounds (rounded up to `H` by `xla.chunked_size`).

        A round shows at most `num_shown` (`K`) of `num_items` (`N`) items, with features of dimension `dim` (`d`).
        """
        rounds = xla.chunked_size(rounds)
        return cls(
            features=jnp.zeros((dim, rounds), jnp.float32),
            items=jnp.full((num_shown, rounds), -1, item_type(num_items)),
            accepted=jnp.full((rounds,), num_shown, jnp.int8),
        )

    def write(self, t: Array, x: Array, items: Array, accepted: Array, valid: Array | bool) -> "Rows":
        """Returns the table with the features, items and accepted index (see `Rows`) of round `t`; if not `valid`, the row shows no items."""
        items = jnp.where(valid, items, -1)
        return Rows(
            features=_written(self.features, x, t),
            items=_written(self.items, items, t),
            accepted=_written(self.accepted, accepted, t),
        )

    def sums(self, theta: Array, chosen: Array, in_use: Array | int, *, hessian: bool = True) -> Sums:
        """Returns the derivatives of the negative log-likelihood without the ridge: the sum in eq. (4), and second derivatives if `hessian`.

        In `theta_a` of a chosen item `a` they are sums over the rows that show the item, with `y_a` 1 if it was accepted, else 0:

            gradient: `(p_a - y_a) x`,
            hessian: `p_a (1 - p_a) x x'` with itself, `-p_a p_b x x'` with another chosen item `b`.

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
            """Adds derivatives of `C` rows to `carry`. `part` has features `[d, C]`, shown items `[K, C]` and places of accepted items `[C]`."""
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
    """Returns for rows that show one item each the probability that it is accepted, `[1, C]`, and whether it was, from `parameters` of chosen items.

    `mine` has a mask `[C]` of the rows that show each chosen item. Results in rows of other items are wrong, and the caller masks them. The sum that
    selects the utility starts with that of the first chosen item and subtracts it where another item was shown.
    """
    each = [numerics.combine(parameter, x) for parameter in parameters]
    logit = sum((jnp.where(m, v, 0.0) for m, v in zip(mine[1:], each[1:], strict=True)), each[0])
    if len(parameters) > 1:
        logit = jnp.where(mine[0], each[0], logit - each[0])
    return jax.nn.sigmoid(logit)[None], (accepted == 0)[None]


def _of_several_shown(theta: Array, x: Array, items: Array, accepted: Array) -> _Choice:
    """Returns for rows that show several items the probability that each is accepted, `[K, C]`, and whether it was; from all parameters `theta`."""
    shown, width = items.shape[0], x.shape[-1]
    of_all = [numerics.combine(theta[j], x) for j in range(theta.shape[0])]
    at_place = [
        sum((jnp.where(items[k] == j, v, 0.0) for j, v in enumerate(of_all)), jnp.zeros((width,))) for k in range(shown)
    ]
    logits = xla.compute_once(jnp.stack(at_place))
    took = jnp.stack([(accepted == k) & (items[k] >= 0) for k in range(shown)])
    return probabilities(logits, items >= 0), took


def _second_derivatives(entries: list[_Entry], share: list[Array], x: Array) -> list[Array]:
    """Returns the terms `[C]` of each second derivative `(a, b, i, j)` in `C` rows: `p_a (1 - p_a) x_i x_j` if `a = b`, else `-p_a p_b x_i x_j`.

    `share` has the `p_a` `[C]` of each chosen item (0 if it was not shown), `x` the features `[d, C]`.
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
    """Assembles the symmetric matrix `[A d, A d]` of second derivatives for `number` (`A`) items; `blocks` has one entry of each symmetric pair."""

    def entry(a: int, i: int, b: int, j: int) -> Array:
        if (a, b, i, j) in blocks:
            return blocks[a, b, i, j]
        return blocks[b, a, j, i]

    places = [(a, i) for a in range(number) for i in range(dim)]
    return jnp.stack([jnp.stack([entry(*p, *q) for q in places]) for p in places])


@struct.dataclass
class PairRows:
    """Table of observations, for a model with one parameter for all items and features of pairs of a query and an item, in `H` rounds.

    Attributes:
      features: `[K, d, H]` features of the shown items; zero in places without an item.
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
        """Returns the table with the features, mask and accepted place (see `PairRows`) of round `t`; if not `valid`, the row shows no items."""
        return PairRows(
            features=_written(self.features, x, t),
            shown=_written(self.shown, shown & valid, t),
            accepted=_written(self.accepted, accepted, t),
        )

    def sums(self, theta: Array, chosen: Array, in_use: Array | int, *, hessian: bool = True) -> Sums:
        """Returns the derivatives of the sum in eq. (1), without the ridge, in the single parameter: the only row of `theta` `[1, d]`.

        They are sums over the rows, where `j` runs over the shown items of a row and `y_j` is 1 if item `j` was accepted, else 0:

            gradient: `sum_j (p_j - y_j) x_j`,
            hessian: `sum_j p_j x_j x_j' - m m'` with the mean `m = sum_j p_j x_j`.

        `chosen` is not used; the other arguments are those of `Rows.sums`.
        """
        del chosen
        shown, dim = self.shown.shape[0], theta.shape[1]
        zero = jnp.zeros(())
        pairs = [(i, j) for i in range(dim) for j in range(i, dim)]

        def step(carry: dict[str, Any], part: tuple[Array, Array, Array], first: Array) -> dict[str, Any]:
            """Adds derivatives of `C` rows to `carry`. `part` has features `[K, d, C]`, a mask of shown items `[K, C]` and accepted places `[C]`."""
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
