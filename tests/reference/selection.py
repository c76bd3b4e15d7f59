"""Best selections of a few models by trying every vertex, and nearest ones by trying every face: NumPy, float64, for batches of instances.

The set is `{0 <= z <= upper, sum z = size (or <=), cost . z <= budget}`.
"""

import itertools

import numpy as np

# What counts as inside: the points are computed in float64 from equations of the order of one.
_ROUNDING = 1e-9


def least_cost(cost, size, upper, at_most):
    """Cost `[B]` of the cheapest point, without regard to the budget and to whether there is room for `size`."""
    if at_most:
        return np.zeros(len(cost))
    order = np.argsort(cost, axis=1)
    upper, cost = np.take_along_axis(upper, order, 1), np.take_along_axis(cost, order, 1)
    ahead = np.cumsum(upper, axis=1) - upper
    return np.sum(cost * np.clip(size[:, None] - ahead, 0.0, upper), axis=1)


def _inside(z, cost, budget, size, upper, at_most):
    with np.errstate(invalid="ignore"):
        ok = np.isfinite(z).all(1) & (z >= -_ROUNDING).all(1) & (z <= upper * (1 + _ROUNDING)).all(1)
        missed = z.sum(1) - size
        ok &= (missed if at_most else np.abs(missed)) <= _ROUNDING * np.maximum(size, 1.0)
        return ok & ((cost * z).sum(1) <= budget * (1 + _ROUNDING))


def _best(points, cost, budget, size, upper, at_most, value):
    best = np.full(len(cost), -np.inf)
    for z in points:
        ok = _inside(z, cost, budget, size, upper, at_most)
        best = np.maximum(best, np.where(ok, value(np.where(ok[:, None], z, 0.0)), -np.inf))
    return best


def best_vertex(cost, budget, size, upper, at_most, value):
    """The largest `value` `[B]` over the vertices, -inf if there are none.

    Args:
      cost: `[B, K]`.
      budget: `[B]`.
      size: `[B]`.
      upper: `[B, K]`.
      at_most: the sum may be smaller.
      value: function of points `[B, K]`, convex (or -inf where a point does not count).
    """

    def points():
        for state in itertools.product((0, 1, 2), repeat=cost.shape[1]):
            free = [k for k, s in enumerate(state) if s == 2]
            if len(free) > 2:
                continue
            held = upper * (np.array(state) == 1)
            left, spare = size - held.sum(1), budget - (cost * held).sum(1)
            ends = []
            with np.errstate(all="ignore"):
                if not free:
                    ends = [()]
                elif len(free) == 1:
                    ends = [(left,), (spare / cost[:, free[0]],)]
                else:
                    c, d = cost[:, free[0]], cost[:, free[1]]
                    ends = [((spare - d * left) / (c - d), (c * left - spare) / (c - d))]
            for end in ends:
                z = held.copy()
                for k, x in zip(free, end, strict=True):
                    z[:, k] = x
                yield z

    return _best(points(), cost, budget, size, upper, at_most, value)


def nearest_face(y, cost, budget, size, upper, at_most):
    """The least half squared distance `[B]` of a point of the set to `y` `[B, K]`, inf if there is none."""

    def points():
        ones = np.ones_like(cost)
        for state in itertools.product((0, 1, 2), repeat=cost.shape[1]):
            free = (np.array(state) == 2).astype(float)
            held = upper * (np.array(state) == 1)
            for rows in itertools.product((False, True), repeat=2):
                active = [(a, e) for a, e, on in ((ones, size, rows[0]), (cost, budget, rows[1])) if on]
                if active and not free.any():
                    continue
                moved = free * y + held
                with np.errstate(all="ignore"):
                    if len(active) == 1:
                        a, end = active[0]
                        a_free = a * free
                        moved = moved - a_free * (((a * moved).sum(1) - end) / (a_free**2).sum(1))[:, None]
                    elif active:
                        mean = (cost * free).sum(1) / free.sum()
                        centred = (cost - mean[:, None]) * free
                        moved = moved - free * ((moved.sum(1) - size) / free.sum())[:, None]
                        moved = moved - centred * (((cost * moved).sum(1) - budget) / (centred**2).sum(1))[:, None]
                yield moved

    return -_best(points(), cost, budget, size, upper, at_most, lambda z: -0.5 * ((z - y) ** 2).sum(1))
