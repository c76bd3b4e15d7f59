"""Random instances of the two searches: markets for DeployOPT and sets of models for any win, of ten kinds each, many of them degenerate."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

SIZES = (8, 15, 25, 40)
NUMBERS = (2, 4, 8, 19)
Problem = tuple[Any, ...]  # Arrays with one element per model, then the budget and the number of places.


def markets(rng: np.random.Generator, size: int, most: int, kind: int) -> Problem:
    """Values, costs, capacities, budget and slots of one of ten kinds."""
    value, cost = rng.uniform(0.05, 1, size), 10.0 ** rng.uniform(-1, 1.2, size)
    capacity = np.minimum(rng.uniform(0.5, 2.2, size) / most, 1.0)
    budget = float(cost.min() * 10.0 ** rng.uniform(-0.05, 1.0))
    if kind in (1, 3):  # A price-quality frontier, also with equal capacities that are just enough.
        value = np.clip((cost / 16) ** 0.4 + 0.05 * rng.normal(size=size), 0.01, 1)
        capacity = np.full(size, 1 / (most - 0.5)) if kind == 3 else capacity
    elif kind == 2:  # Bounds in eighths.
        value, cost, capacity = np.round(value * 8) / 8, np.ceil(cost), np.ceil(capacity * 8) / 8
        budget = float(rng.integers(1, 9))
    elif kind == 4:  # Prices near values.
        cost = rng.uniform(0.5, 1, size)
        value, capacity, budget = cost + 0.1 * rng.uniform(size=size), np.full(size, 1 / most), float(rng.uniform(0.55, 0.9))
    elif kind == 5:  # Some are free, some have no capacity, some are worth nothing.
        cost, capacity, value = (np.where(rng.random(size) < 0.2, 0.0, x) for x in (cost, capacity, value))
        budget = float(rng.uniform(0, 2))
    elif kind == 6:  # Few different models, many of each.
        which = rng.integers(0, max(2, size // 5), size)
        value, cost, capacity = value[which], cost[which], capacity[which]
    elif kind == 7:  # Prices that differ by a thousandth.
        cost = 1 + 1e-3 * rng.random(size)
        capacity, budget = np.full(size, 1.5 / most), float(1 + 1e-3 * rng.uniform(0.1, 0.9))
    elif kind == 8:  # Prices from a thousandth to a thousand.
        cost = 10.0 ** rng.uniform(-3, 3, size)
        budget = float(np.sort(cost)[: max(2, most)].mean() * rng.uniform(0.5, 20))
    elif kind == 9:  # A budget that some mix meets exactly; values are upper bounds at 1.
        value, capacity = np.minimum(value * 1.5, 1.0), np.full(size, 1 / most)
        budget = float(np.mean(rng.permutation(np.sort(cost)[: most + 3])[:most]))
    return value, cost, capacity, np.float64(budget), np.int64(most)


def chances(rng: np.random.Generator, size: int, places: int, kind: int) -> Problem:
    """Chances, costs, budget and places of one of ten kinds."""
    w, cost = rng.random((2, size))
    budget = float(rng.random() * rng.choice([0.3, 1, 3]))
    if kind == 1:
        w = np.clip(cost + 0.05 * rng.normal(size=size), 0.01, 0.99)
    elif kind == 2:
        w, cost = np.round(w * 8) / 9, np.round(cost * 4) / 4
    elif kind == 3:
        w = w * 0.2
    elif kind == 4:  # Bounds at the cap, and nothing known of the price.
        w, cost = np.minimum(w * 1.5, 0.999), np.where(rng.random(size) < 0.3, 0.0, cost)
    elif kind == 5:
        which = rng.integers(0, max(2, size // 5), size)
        w, cost = w[which], cost[which]
    elif kind == 6:
        cost, budget = 1 + 1e-3 * rng.random(size), float(rng.uniform(0.5, places))
    elif kind == 7:
        cost = 10.0 ** rng.uniform(-3, 3, size)
        budget = float(np.sort(cost)[:places].sum() * rng.uniform(0.2, 20))
    elif kind == 8:  # A budget that some set meets exactly.
        budget = float(rng.permutation(np.sort(cost)[: places + 3])[:places].sum())
    elif kind == 9:
        cost = rng.uniform(0.5, 1, size)
        w, budget = -np.expm1(-0.3 * cost - 0.03 * rng.random(size)), float(rng.uniform(0.4, 0.7) * places)
    return w, cost, np.float64(budget), np.int64(places)


def problems(make: Callable[..., Problem], seed: int, count: int) -> Iterator[Problem]:
    """Kinds in turn, sizes at random."""
    rng = np.random.default_rng(seed)
    for row in range(count):
        size = int(rng.choice(SIZES))
        yield make(rng, size, int(rng.choice([n for n in NUMBERS if n <= max(2, size // 2)])), row % 10)
