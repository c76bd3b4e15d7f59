"""Regularised maximum likelihood of the multinomial-logit model, with one parameter vector per item or one for all.

In each round a set of items is shown and one of them, or none, is accepted: item `j` with chance `exp(v_j) / (1 + sum_k exp(v_k))`.
With an own parameter per item `v_j = x' theta_j` (`Rows`), else `v_j = x_j' theta` (`PairRows`); a table of features with counts of
single items is `Counts`.

After a new observation the fit starts at the previous solution, so that a few steps are enough. All of them have a fixed number of
operations: `Newton` for small dimensions, `Majorise` for large ones, `Online` (one step on the new observation alone) as an
approximation.

Source: ACQB, eqs. (1) and (4).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.estimators.gaussian import sherman_morrison, solve


def item_type(num_items: int):
    """The smallest integer that can number the items and -1."""
    return jnp.int8 if num_items <= np.iinfo(np.int8).max else jnp.int16


def count_type(rounds: int):
    """The smallest integer that can count so many rounds."""
    return jnp.int16 if rounds <= np.iinfo(np.int16).max else jnp.int32


@struct.dataclass
class Sums:
    """Derivatives of the loss of some items, the others held fixed.

    loss: `[]`. gradient: `[A, d]`. hessian: `[A d, A d]`, None if it was not asked for.
    """

    loss: jax.Array
    gradient: jax.Array
    hessian: jax.Array | None


def _chances(logits, present):
    """Chances `[K, C]` of the items of each row, and of none `[C]`; `[K, C]` logits, `present` says which items there are."""
    top = jnp.maximum(jnp.max(jnp.where(present, logits, -jnp.inf), axis=0), 0.0)
    weight = jnp.where(present, jnp.exp(logits - top), 0.0)
    none = jnp.exp(-top)
    total = numerics.kept(none + jnp.sum(weight, axis=0))
    return weight / total, top + jnp.log(total)


@struct.dataclass
class New:
    """What the last observation adds to the derivatives in the parameters of some items, at the last fit.

    x: `[A, d]`, its features, zero for an item that was not shown; with one parameter for all items `[K, d]`, of those shown.
    gradient: `[A, d]`. weight: `[A]` or `[K]` as `x`, chance times its complement. curvature: `[A, d, d]`.
    """

    x: jax.Array
    gradient: jax.Array
    weight: jax.Array
    curvature: jax.Array


def new_row(logits, x, items, accepted, chosen) -> New:
    """The observation of features `x` `[d]` with `items` `[K]` shown, for the items `chosen` `[A]`. logits: `[N]`, of all items."""
    number = logits.shape[0]
    shown = jnp.stack([numerics.pick(numerics.one_hot(items[k], number), logits) for k in range(items.shape[0])])
    chance, _ = _chances(shown[:, None], (items >= 0)[:, None])
    chance = numerics.kept(chance[:, 0])
    took = jnp.arange(items.shape[0]) == accepted
    mine = (items == chosen[:, None]) & (items >= 0)
    share = jnp.sum(jnp.where(mine, chance, 0.0), axis=1)
    missed = share - jnp.sum(jnp.where(mine & took, 1.0, 0.0), axis=1)
    own = jnp.where(jnp.any(mine, axis=1)[:, None], x, 0.0)
    weight = share * (1.0 - share)
    return New(own, missed[:, None] * own, weight, weight[:, None, None] * own[:, :, None] * own[:, None, :])


def new_pair(theta, x, present, accepted) -> New:
    """The observation of pair features `x` `[K, d]`, for the one parameter `theta` `[d]`."""
    x = jnp.where(present[:, None], x, 0.0)
    chance, _ = _chances(jnp.sum(x * theta, axis=1)[:, None], present[:, None])
    chance = numerics.kept(chance[:, 0])
    took = present & (jnp.arange(x.shape[0]) == accepted)
    mean = jnp.sum(chance[:, None] * x, axis=0)
    second = jnp.sum(chance[:, None, None] * x[:, :, None] * x[:, None, :], axis=0)
    gradient = jnp.sum((chance - took)[:, None] * x, axis=0)
    return New(x, gradient[None], chance * (1.0 - chance), (second - mean[:, None] * mean)[None])


def _rows_of(new: New, a: int, number: int) -> list[int]:
    """The rows of `new.x` that bear on parameter `a` of `number`: its own, or all of them if it is the only one."""
    return list(range(new.x.shape[0])) if number == 1 else [a]


@struct.dataclass
class Rows:
    """Observations with an own parameter per item.

    features: `[d, H]`. items: `[K, H]`, rising; -1 stands for no item. accepted: `[H]` int8, place of the accepted item, `K` for none.
    """

    features: jax.Array
    items: jax.Array
    accepted: jax.Array

    @classmethod
    def empty(cls, rounds: int, num_items: int, num_shown: int, dim: int) -> "Rows":
        """Room for one observation per round."""
        rounds = numerics.padded(rounds)
        return cls(
            features=jnp.zeros((dim, rounds), jnp.float32),
            items=jnp.full((num_shown, rounds), -1, item_type(num_items)),
            accepted=jnp.full((rounds,), num_shown, jnp.int8),
        )

    def write(self, t, x, items, accepted, valid) -> "Rows":
        """With the observation of round `t`: features `[d]`, items `[K]`, the place of the accepted one `[]`; left out if not `valid`."""
        items = jnp.where(valid, items, -1)

        def put(table, new):
            return jax.lax.dynamic_update_index_in_dim(table, new.astype(table.dtype), t, table.ndim - 1)

        return Rows(put(self.features, x), put(self.items, items), put(self.accepted, accepted))

    def sums(self, theta, chosen, in_use, *, loss: bool = False, hessian: bool = True) -> Sums:
        """Derivatives in the parameters of the items `chosen` `[A]`, of the rows up to `in_use`, without the ridge.

        theta: `[N, d]`, of which the rows `chosen` are where derivatives are taken; an item of -1 is no item.
        """
        size, shown, dim = theta.shape[0], self.items.shape[0], theta.shape[1]
        items_of = [numerics.one_hot(chosen[a], size) for a in range(chosen.shape[0])]
        own = [jnp.sum(jnp.where(mask[:, None], theta, 0.0), axis=0) for mask in items_of]
        zero = jnp.zeros(())

        def step(carry, part, first):
            del first
            x, items, accepted = part
            width = x.shape[-1]
            mine = [[items[k] == chosen[a].astype(items.dtype) for k in range(shown)] for a in range(len(own))]
            if shown == 1:
                logits = [numerics.combine(o, x) for o in own]
                logit = sum((jnp.where(m[0], v, 0.0) for m, v in zip(mine[1:], logits[1:], strict=True)), logits[0])
                if len(own) > 1:
                    logit = jnp.where(mine[0][0], logits[0], logit - logits[0])
                logits, chance, took = logit[None], jax.nn.sigmoid(logit)[None], (accepted == 0)[None]
                normaliser = jax.nn.softplus(logit) if loss else zero
            else:
                all_logits = [numerics.combine(theta[j], x) for j in range(size)]
                logits = numerics.kept(
                    jnp.stack(
                        [
                            sum((jnp.where(items[k] == j, v, 0.0) for j, v in enumerate(all_logits)), jnp.zeros((width,)))
                            for k in range(shown)
                        ]
                    )
                )
                chance, normaliser = _chances(logits, items >= 0)
                took = jnp.stack([(accepted == k) & (items[k] >= 0) for k in range(shown)])
            barrier = numerics.kept
            share = [barrier(sum(jnp.where(mine[a][k], chance[k], 0.0) for k in range(shown))) for a in range(len(own))]
            missed = [
                barrier(share[a] - sum(jnp.where(mine[a][k] & took[k], 1.0, 0.0) for k in range(shown)))
                for a in range(len(own))
            ]
            terms = [missed[a] * x[i] for a in range(len(own)) for i in range(dim)]
            if loss:
                any_mine = jnp.any(jnp.stack([jnp.stack(m) for m in mine]), axis=(0, 1))
                taken = jnp.sum(jnp.where(took, logits, 0.0), axis=0)
                terms.append(jnp.where(any_mine, normaliser - taken, 0.0))
            if hessian:
                scaled = {}
                for a, b, i, j in entries:
                    if (a, b, i) not in scaled:
                        weight = share[a] * (1.0 - share[a]) if a == b else -share[a] * share[b]
                        scaled[a, b, i] = barrier(weight * x[i])
                    terms.append(scaled[a, b, i] * x[j])
            return carry + numerics.sums(terms)

        pairs = [(a, b) for a in range(len(own)) for b in range(a, len(own))]
        entries = [(a, b, i, j) for a, b in pairs for i in range(dim) for j in range(i if a == b else 0, dim)]
        number = len(own) * dim
        start = jnp.zeros((number + loss + (len(entries) if hessian else 0),))
        total = numerics.fold((self.features, self.items, self.accepted), in_use, start, step)
        blocks = dict(zip(entries, total[number + loss :], strict=True)) if hessian else {}
        return Sums(
            total[number] if loss else jnp.zeros(()),
            total[:number].reshape(len(own), dim),
            _assemble(blocks, len(own), dim) if hessian else None,
        )


def _assemble(blocks: dict, number: int, dim: int) -> jax.Array:
    """The symmetric matrix `[A d, A d]` from its entries by item, item, row and column."""

    def entry(a, i, b, j):
        if (a, b, i, j) in blocks:
            return blocks[a, b, i, j]
        return blocks[b, a, j, i]

    places = [(a, i) for a in range(number) for i in range(dim)]
    return jnp.stack([jnp.stack([entry(*p, *q) for q in places]) for p in places])


@struct.dataclass
class PairRows:
    """Observations with one parameter for all items and features of pairs.

    features: `[K, d, H]`, of the items shown; zero stands for no item. shown: `[K, H]` bool. accepted: `[H]` int8, place of the
    accepted item, `K` for none; a row in which nothing is shown is no observation.
    """

    features: jax.Array
    shown: jax.Array
    accepted: jax.Array

    @classmethod
    def empty(cls, rounds: int, num_shown: int, dim: int) -> "PairRows":
        """Room for one observation per round."""
        rounds = numerics.padded(rounds)
        return cls(
            features=jnp.zeros((num_shown, dim, rounds), jnp.float32),
            shown=jnp.zeros((num_shown, rounds), bool),
            accepted=jnp.full((rounds,), num_shown, jnp.int8),
        )

    def write(self, t, x, shown, accepted, valid) -> "PairRows":
        """With the observation of round `t`: features `[K, d]`, which of the `K` places are taken, the accepted place `[]`."""

        def put(table, new):
            return jax.lax.dynamic_update_index_in_dim(table, new.astype(table.dtype), t, table.ndim - 1)

        return PairRows(put(self.features, x), put(self.shown, shown & valid), put(self.accepted, accepted))

    def sums(self, theta, chosen, in_use, *, loss: bool = False, hessian: bool = True) -> Sums:
        """Derivatives in the one parameter, the row of `theta` `[1, d]`; see `Rows.sums`. chosen: not used."""
        del chosen
        shown, dim = self.shown.shape[0], theta.shape[1]
        zero, barrier = jnp.zeros(()), numerics.kept
        pairs = [(i, j) for i in range(dim) for j in range(i, dim)]

        def step(carry, part, first):
            del first
            x, present, accepted = part
            logits = barrier(jnp.stack([numerics.combine(theta[0], x[k]) for k in range(shown)]))
            chance, normaliser = _chances(logits, present)
            took = jnp.stack([present[k] & (accepted == k) for k in range(shown)])
            missed = barrier(chance - took)
            total: dict[str, Any] = {
                "gradient": [sum((jnp.sum(missed[k] * x[k, i]) for k in range(shown)), zero) for i in range(dim)]
            }
            if loss:
                total["loss"] = jnp.sum(normaliser - jnp.sum(jnp.where(took, logits, 0.0), axis=0))
            if hessian:
                mean = barrier(jnp.stack([sum(chance[k] * x[k, i] for k in range(shown)) for i in range(dim)]))
                total["hessian"] = {
                    (0, 0, i, j): sum(
                        (jnp.sum(chance[k] * x[k, i] * x[k, j]) for k in range(shown)), -jnp.sum(mean[i] * mean[j])
                    )
                    for i, j in pairs
                }
            return jax.tree.map(jnp.add, carry, total)

        start: dict[str, Any] = {"gradient": [zero] * dim}
        if loss:
            start["loss"] = zero
        if hessian:
            start["hessian"] = {(0, 0, i, j): zero for i, j in pairs}
        total = numerics.fold((self.features, self.shown, self.accepted), in_use, start, step)
        gradient = jnp.stack(total["gradient"])[None]
        return Sums(total.get("loss", zero), gradient, _assemble(total["hessian"], 1, dim) if hessian else None)


@struct.dataclass
class Counts:
    """How often each item was shown alone to each query of a table, and accepted: all there is to know when `K = 1`.

    The size does not depend on the number of rounds.

    tried, accepted: `[N, P]`, int16 or int32.
    """

    tried: jax.Array
    accepted: jax.Array

    @classmethod
    def empty(cls, num_items: int, num_queries: int, rounds: int) -> "Counts":
        """Nothing was shown yet, of so many rounds."""
        zeros = jnp.zeros((num_items, num_queries), count_type(rounds))
        return cls(tried=zeros, accepted=zeros)

    def add(self, query, items, accepted, valid) -> "Counts":
        """With one observation: numbers of query `[]` and items `[1]` (-1 for none), the place of the accepted one `[]`."""
        cell, valid = (items[0], query), valid & (items[0] >= 0)
        return Counts(_one_more(self.tried, cell, valid), _one_more(self.accepted, cell, valid & (accepted == 0)))

    def sums(self, table, chosen):
        """A function `theta [N, d] -> Sums` (gradient alone) in the items `chosen` `[1]`; table: `[d, P]`, that all runs share."""
        tried, accepted = _of_item((self.tried, self.accepted), chosen[0])

        def sums(theta, **wanted) -> Sums:
            del wanted
            own = numerics.at(theta, (jnp.maximum(chosen[0], 0),))
            missed = tried * jax.nn.sigmoid(numerics.project(own, table)) - accepted
            return Sums(jnp.zeros(()), numerics.project(missed, table.T)[None], None)

        return sums


@struct.dataclass
class PairCounts:
    """How often two items were shown together to each query of a table, and one of them accepted: `Counts` for `K = 2`.

    tried: `[N, N, P]`, int16 or int32, symmetric; an item that was shown alone counts as a pair with itself. accepted: `[N, N, P]`, times
    that the first item of the pair was accepted.
    """

    tried: jax.Array
    accepted: jax.Array

    @classmethod
    def empty(cls, num_items: int, num_queries: int, rounds: int) -> "PairCounts":
        """Nothing was shown yet, of so many rounds."""
        zeros = jnp.zeros((num_items, num_items, num_queries), count_type(rounds))
        return cls(tried=zeros, accepted=zeros)

    def add(self, query, items, accepted, valid) -> "PairCounts":
        """With one observation: numbers of query `[]` and items `[2]` (-1 for none), the place of the accepted one `[]`."""
        first, second = items[0], jnp.where(items[1] >= 0, items[1], items[0])
        valid &= first >= 0
        tried = _one_more(self.tried, (first, second, query), valid)
        tried = _one_more(tried, (second, first, query), valid & (first != second))
        won = _one_more(self.accepted, (first, second, query), valid & (accepted == 0))
        return PairCounts(tried, _one_more(won, (second, first, query), valid & (accepted == 1)))

    def sums(self, table, chosen):
        """See `Counts.sums`; chosen: `[2]`."""
        rows = [_of_item((self.tried, self.accepted), chosen[a]) for a in range(chosen.shape[0])]

        def sums(theta, **wanted) -> Sums:
            del wanted
            logits = numerics.kept(numerics.project(theta, table))
            gradients = []
            for a, (tried, accepted) in enumerate(rows):
                own = numerics.materialised(numerics.at(logits, (jnp.maximum(chosen[a], 0),)))
                itself = numerics.one_hot(chosen[a], logits.shape[0])[:, None]
                others = jnp.where(itself, 0.0, jnp.exp(logits - own))
                missed = jnp.sum(tried / (1.0 + jnp.exp(-own) + others) - accepted, axis=0)
                gradients.append(jnp.where(chosen[a] >= 0, numerics.project(missed, table.T), 0.0))
            return Sums(jnp.zeros(()), jnp.stack(gradients), None)

        return sums


def _one_more(table, cell, counts) -> jax.Array:
    """`table` with one added at a `cell`, if it `counts`."""
    now = numerics.materialised(numerics.at(table, cell))
    return numerics.put(table, cell, now + counts.astype(table.dtype))


def _of_item(tables, item):
    """The rows of an item in tables of counts, as numbers to compute with."""
    return [numerics.materialised(numerics.at(x, (jnp.maximum(item, 0),)).astype(jnp.float32)) for x in tables]


# A full Newton step lowers the loss if no logit moves further than this: exp(z) - z - 1 < z^2.
_SAFE_MOVE = 1.79


@struct.dataclass
class NewtonState:
    """curvature: of the observations of each item `[N, d, d]`, at the last fit. longest: `[]`, norm of the longest features so far."""

    curvature: jax.Array
    longest: jax.Array


@struct.dataclass
class Newton:
    """A step on the new observation with the stored curvature, Newton steps, then steps with the last curvature; for small dimensions.

    The first step needs no pass over the data: the gradient of the old ones is zero where the last fit ended. A step that may move a
    logit by more than 1.79 is shortened to the length at which every step lowers the loss, whatever the features and the ridge.

    Source: Sun and Tran-Dinh (2019), "Generalized self-concordant functions", for the length of steps.

    passes: Newton steps, each a pass over the data; polish: steps that compute the gradient alone; search: a Newton step that raises
    the loss all the same, by rounding, is cut to a quarter; with several passes for a ridge far below 1 (all static).
    """

    passes: int = struct.field(pytree_node=False, default=2)
    polish: int = struct.field(pytree_node=False, default=0)
    search: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        checks.count("passes", self.passes)
        checks.count("polish", self.polish, minimum=0)

    def init(self, num: int, dim: int, ridge) -> NewtonState:
        """Nothing observed."""
        del ridge
        return NewtonState(jnp.zeros((num, dim, dim), jnp.float32), jnp.zeros((), jnp.float32))

    def fit(self, state, sums, theta, chosen, ridge, new) -> tuple[jax.Array, NewtonState]:
        """New parameters and state.

        Args:
          state: from `init` or the last fit. sums: `(theta, loss=, hessian=) -> Sums`, in the items `chosen` `[A]`.
          theta: `[N, d]`, the last fit. ridge: `[]`.
          new: the last observation.
        """
        dim, num = theta.shape[1], chosen.shape[0]
        curvature, spread = state.curvature, 1.0 if new.x.shape[0] == 1 else 2.0
        longest = jnp.maximum(state.longest, jnp.sqrt(jnp.max(jnp.sum(jnp.square(new.x), axis=1))))
        masks = [numerics.one_hot(chosen[a], theta.shape[0]) for a in range(num)]
        eye = jnp.eye(dim, dtype=jnp.float32)

        def cut(move):
            """A step of a length that is safe."""
            # With several items the third derivative is bounded by the range of the logits' moves.
            reach = spread * longest * jnp.sqrt(jnp.max(jnp.sum(jnp.square(move.reshape(-1, dim)), axis=1)))
            return move * jnp.where(reach > _SAFE_MOVE, jnp.log1p(reach) / jnp.maximum(reach, 1.0), 1.0)

        def put(theta, values):
            for mask, value in zip(masks, values, strict=True):
                theta = jnp.where(mask[:, None], value, theta)
            return numerics.kept(theta)

        def own(theta):
            return jnp.stack([jnp.sum(jnp.where(mask[:, None], theta, 0.0), axis=0) for mask in masks])

        start = own(theta)
        known = jnp.stack([jnp.sum(jnp.where(mask[:, None, None], curvature, 0.0), axis=0) for mask in masks])
        trial = start - cut(solve(known + new.curvature + ridge * eye, new.gradient))
        ridges = ridge * jnp.eye(num * dim, dtype=jnp.float32)

        def newton(_, carry):
            trial, best, best_loss, move, hessian = carry
            found = sums(put(theta, list(trial)), loss=self.search)
            gradient = (found.gradient + ridge * trial).reshape(-1)
            # An item of -1 has no data, and keeps its place.
            towards = -cut(solve(found.hessian + ridges, gradient))
            if self.search:
                value = found.loss + 0.5 * ridge * jnp.sum(trial * trial)
                better = value <= best_loss + 1e-6 * (1.0 + jnp.abs(best_loss))
                best, best_loss = jnp.where(better, trial, best), jnp.where(better, value, best_loss)
                move = jnp.where(better, towards, 0.25 * move)
                hessian = jnp.where(better, found.hessian, hessian)
            else:
                best, move, hessian = trial, towards, found.hessian
            return best + move.reshape(num, dim), best, best_loss, move, hessian

        nothing = jnp.zeros((num * dim,), trial.dtype), jnp.zeros((num * dim, num * dim), trial.dtype)
        carry = numerics.repeat(self.passes, newton, (trial, start, jnp.full((), jnp.inf, trial.dtype), *nothing))
        trial, _, _, _, hessian = carry
        for _ in range(self.polish):
            gradient = (sums(put(theta, list(trial)), hessian=False).gradient + ridge * trial).reshape(-1)
            trial = trial - cut(solve(hessian + ridges, gradient)).reshape(num, dim)
        blocks = jnp.stack([hessian[a * dim : (a + 1) * dim, a * dim : (a + 1) * dim] for a in range(num)])
        for mask, block in zip(masks, blocks, strict=True):
            curvature = jnp.where(mask[:, None, None], block, curvature)
        return put(theta, list(trial)), NewtonState(curvature, longest)


@struct.dataclass
class Majorise:
    """Steps `theta_j <- theta_j - B_j^-1 gradient` with `B_j = ridge I + b sum x x'`, a bound of the curvature; for large dimensions.

    Every step lowers the loss. `B_j^-1` is kept by rank-one updates. `b = 1/4` if one item is shown, else `1/2`.

    Source: Boehning (1992); Boehning and Lindsay (1988).

    steps: number of steps per observation (static).
    """

    steps: int = struct.field(pytree_node=False, default=5)

    def check(self) -> None:
        checks.count("steps", self.steps)

    def init(self, num: int, dim: int, ridge) -> jax.Array:
        """`B_j^-1` `[N, d, d]`."""
        return jnp.broadcast_to(jnp.eye(dim, dtype=jnp.float32) / ridge, (num, dim, dim))

    def fit(self, inverse, sums, theta, chosen, ridge, new) -> tuple[jax.Array, jax.Array]:
        """See `Newton.fit`."""
        bound = 0.25 if new.x.shape[0] == 1 else 0.5
        masks = [numerics.one_hot(chosen[a], theta.shape[0]) for a in range(chosen.shape[0])]
        mine = []
        for a in range(len(masks)):
            # An item of -1 has no features: nothing changes where it is written.
            place = (jnp.maximum(chosen[a], 0),)
            own = numerics.at(inverse, place)
            for k in _rows_of(new, a, len(masks)):
                own = sherman_morrison(own, new.x[k], bound)
            mine.append(numerics.kept(own))
            inverse = numerics.put(inverse, place, mine[a])
        for _ in range(self.steps):
            gradient = sums(theta, hessian=False).gradient
            for a, mask in enumerate(masks):
                now = jnp.sum(jnp.where(mask[:, None], theta, 0.0), axis=0)
                moved = now - numerics.combine(gradient[a] + ridge * now, mine[a])
                theta = jnp.where(mask[:, None], moved, theta)
            theta = numerics.kept(theta)
        return theta, inverse


@struct.dataclass
class Online:
    """One step on the new observation alone: `theta_j <- theta_j - B_j^-1 (p_j - y_j) x`, which forgets the rest of the data.

    An approximation for horizons at which passes over all data are too dear; not the maximum-likelihood estimate.

    Source: the online Newton step; Zhang and Sugiyama (2023) for the multinomial-logit model. Not in ACQB.
    """

    def check(self) -> None:
        pass

    def init(self, num: int, dim: int, ridge) -> jax.Array:
        """`B_j^-1` `[N, d, d]`."""
        return jnp.broadcast_to(jnp.eye(dim, dtype=jnp.float32) / ridge, (num, dim, dim))

    def fit(self, inverse, sums, theta, chosen, ridge, new) -> tuple[jax.Array, jax.Array]:
        """See `Newton.fit`."""
        del sums, ridge
        for a in range(chosen.shape[0]):
            place, mask = (jnp.maximum(chosen[a], 0),), numerics.one_hot(chosen[a], theta.shape[0])
            own = numerics.at(inverse, place)
            for k in _rows_of(new, a, chosen.shape[0]):
                own = sherman_morrison(own, new.x[k], new.weight[k])
            own = numerics.kept(own)
            now = jnp.sum(jnp.where(mask[:, None], theta, 0.0), axis=0)
            theta = jnp.where(mask[:, None], now - numerics.combine(new.gradient[a], own), theta)
            inverse = numerics.put(inverse, place, own)
        return theta, inverse
