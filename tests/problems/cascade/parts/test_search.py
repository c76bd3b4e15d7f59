"""Searches: worked cases, the literal loop, optimality."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import f32, play

from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.parts.indices import StreamingNewton
from jaxroute.problems.cascade.parts.search import IndexSearch, LoopSearch, best_opened, opened_in_order
from jaxroute.problems.cascade.types import Outputs
from jaxroute.solvers.reservation import discrete_index


def test_a_search_of_ones_own_sees_opened_boxes_only():
    def greedy(memory, opened, seen):
        del memory
        return jnp.argmin(opened), jnp.max(seen.score) > 0.5

    def last(memory, opened, seen):
        del memory, opened
        return jnp.argmax(seen.score)

    search = LoopSearch((), greedy, last)
    for rubbish in (0.9, np.nan, np.inf):
        found = search.run(Outputs(f32([0.2, 0.6, rubbish]), None, f32([0.1, 0.1, rubbish])))
        assert found.opened.tolist() == [True, True, False] and found.deployed.tolist() == [False, True, False]
        assert found.score.tolist() == pytest.approx([0.2, 0.6, 0.0])
    stops = LoopSearch((), lambda *a: (jnp.int32(2), True), lambda *a: jnp.int32(0))
    found = stops.run(Outputs(f32([0.2, 0.6, 0.9]), None, f32([0.1, 0.1, 0.1])))
    assert found.opened.tolist() == [False, False, True]  # The first box cannot be refused,
    assert not found.deployed.any()  # and only an opened one can be deployed: the environment counts such a period as empty.


def tie_rich(K, n, seed=0):
    """Priorities, thresholds and scores `[n, K]` of a few levels, infinite ones among them."""
    rng = np.random.default_rng(seed + K)
    levels = np.array([0.0, 0.25, 0.5, 0.75, 1.0], np.float32)
    ends = np.array([-np.inf, 0.0, 0.25, 0.5, 0.75, 1.0, np.inf], np.float32)
    return rng.choice(levels, (n, K)), rng.choice(ends, (n, K)), rng.choice(levels, (n, K))


@jax.jit
@jax.vmap
def by_pairs(priority, threshold, score):
    opened = opened_in_order(priority, threshold, score)
    return opened, best_opened(opened, score)


def weitzman_loop(size):
    """A user's search that follows given priorities and thresholds, as a `LoopSearch`."""

    def next_box(memory, opened, seen):
        priority, threshold = memory
        left = jnp.where(opened, -jnp.inf, priority)
        box = jnp.argmax((left == jnp.max(left)) & ~opened)
        return box, jnp.max(jnp.where(opened, seen.score, -jnp.inf)) >= threshold[box]

    def pick(memory, opened, seen):
        del memory
        return jnp.argmax(jnp.where(opened, seen.score, -jnp.inf))

    return functools.partial(LoopSearch, next_box=next_box, pick=pick)


@pytest.mark.parametrize(("K", "n"), [(3, 60_000), (5, 60_000)])
def test_loop_search_equals_index_search(K, n):
    loop = weitzman_loop(K)

    @jax.jit
    @jax.vmap
    def both(priority, threshold, score):
        outputs = Outputs(score=score, features=None, cost=score)
        return IndexSearch(priority, threshold).run(outputs), loop((priority, threshold)).run(outputs)

    one, other = both(*tie_rich(K, n, seed=100))
    np.testing.assert_array_equal(one.opened, other.opened)
    np.testing.assert_array_equal(one.deployed, other.deployed)


def best_value(boxes, closed=None, best=None):
    """Value of the best plan that opens boxes one by one, by backward induction over all of them."""
    closed = tuple(range(len(boxes))) if closed is None else closed
    options = [] if best is None else [best]
    for a in closed:
        cost, values, probabilities = boxes[a]
        rest = tuple(b for b in closed if b != a)
        after = [best_value(boxes, rest, v if best is None else max(best, v)) for v in values]
        options.append(float(np.dot(probabilities, after)) - cost)
    return max(options)


def by_outcomes(boxes):
    """All joint outcomes of the boxes: probabilities `[n]` and scores `[n, K]`."""
    scores = np.array(list(itertools.product(*(values for _, values, _ in boxes))))
    return np.array([math.prod(c) for c in itertools.product(*(probabilities for _, _, probabilities in boxes))]), scores


def search_value(boxes, index):
    """Value of Weitzman's search, summed over all joint outcomes, and `E max min(M, index)`."""
    probability, score = by_outcomes(boxes)
    many = np.broadcast_to(index, score.shape).astype(np.float32)
    opened, deployed = (np.asarray(x) for x in by_pairs(many, np.minimum(many, 1), score.astype(np.float32)))
    earned = np.where(deployed, score, 0).sum(axis=1) - opened @ np.array([cost for cost, _, _ in boxes])
    return probability @ earned, probability @ np.minimum(score, index).max(axis=1)


def test_weitzmans_search_is_optimal_on_random_boxes():
    """Proposition 3.1, with its value `E max min(M, index)`."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        boxes = [(rng.uniform(0.01, 0.2), rng.random(3).tolist(), rng.dirichlet(np.ones(3)).tolist()) for _ in range(3)]
        index = [discrete_index(v, p, c) for c, v, p in boxes]
        np.testing.assert_allclose(search_value(boxes, index), best_value(boxes), atol=1e-9)


def test_no_search_is_empty_where_two_indices_are_compared_all_the_time():
    """With K = 2 and m = 1 a comparison that is made twice was rounded differently, and some periods opened nothing."""
    env = ca.custom_cascade([[0.5], [0.53]], [0.05, 0.025], [0.0, 0.7])
    data = play(env, ca.COSMOS(fit=StreamingNewton()), horizon=4000, seeds=64, record_every=4000).isel(policy=0, time=-1)
    assert data["valid"].all() and not data["empty"].any() and not data["violations"].any()
