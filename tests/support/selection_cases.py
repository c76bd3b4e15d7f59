"""Instances of the relaxed selection that several test files solve."""

import numpy as np

MU = np.array([0.024, 0.326, 0.366, 0.294, 0.170, 0.210, 0.282, 0.336, 0.398], np.float32)
COST = (np.array([0.005, 0.02, 0.08, 0.015, 0.005, 0.008, 0.05, 0.05, 0.12]) / 0.12).astype(np.float32)
TIED = {"w": np.array([0.9, 0.5, 0.8, 0.3, 0.6], np.float32), "c": np.array([0.7, 0.2, 0.6, 0.1, 0.4], np.float32)}


def instances(kind, count, num_models, size, seed):
    """Weights, costs and budgets of feasible random instances, float32."""
    rng = np.random.default_rng(seed)
    w, c = rng.random((2, count, num_models))
    if kind == "duplicated":
        w, c = (np.repeat(x[:, : (num_models + 2) // 3], 3, axis=1)[:, :num_models] for x in (w, c))
    elif kind == "half free":
        c = c * (rng.random(c.shape) < 0.5)
    elif kind == "tiny costs":
        c = 1e-4 * c
    elif kind == "logarithms":
        w = np.log(np.clip(w, 1e-6, 0.999))
    ordered = np.sort(c, axis=1)
    least, most = ordered[:, :size].sum(1), ordered[:, -size:].sum(1)
    budget = least + (most - least) * rng.uniform(0.0, 1.1, count)
    return w.astype(np.float32), c.astype(np.float32), np.nextafter(budget, np.inf).astype(np.float32)
