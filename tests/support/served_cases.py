"""Served logs as data frames: a small table of three models, from which a rule chose one answer per query."""

import numpy as np
import pandas as pd

MODELS = ("small", "middle", "large")


def full_table(queries, seed=0):
    """Scores and costs of all models; "middle" is nearly as good as "large" and costs a third."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(3, size=queries)
    level = np.array([0.45, 0.78, 0.80]) + 0.1 * (groups[:, None] == 0)
    return (
        groups,
        (rng.random((queries, 3)) < level).astype(float),
        np.array([1.0, 3.0, 9.0]) * rng.lognormal(0, 0.2, (queries, 1)) / 1e4,
    )


def served(queries=4000, seed=0, probability=(0.25, 0.25, 0.5), **columns):
    """A row per query: the model that a rule with these probabilities, `[N]` or `[Q, N]`, chose; further columns by name, None for none."""
    rng = np.random.default_rng((seed, 1))
    groups, scores, costs = full_table(queries, seed)
    chance = np.broadcast_to(probability, (queries, 3)) if np.ndim(probability) < 2 else probability
    model = (chance.cumsum(1) > rng.random((queries, 1))).argmax(1)
    place = (np.arange(queries), model)
    frame = {
        "request_id": [f"r{i}" for i in range(queries)],
        "model": np.array(MODELS)[model],
        "score": scores[place],
        "cost_usd": costs[place],
        "category": np.array(["law", "code", "chat"])[groups],
        "propensity": chance[place],
    }
    return pd.DataFrame({name: values for name, values in {**frame, **columns}.items() if values is not None})
