"""Computes the probability that a user accepts an answer from scores and costs of recorded prompts, in float64 on the host."""

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jaxroute.core import checks

# Raw utilities of a prompt whose difference is at most this are equal up to rounding.
_EQUAL = 1e-12
# Largest number of assortments that are enumerated, and sample size beyond it.
_MOST_SUBSETS = 10_000
_SAMPLED_SUBSETS = 2_000


def divide_costs(costs: ArrayLike) -> np.ndarray:
    """Divides costs `[P, N]` of `N` models on `P` prompts by the largest; all zeros stay zeros. ACQB scales costs to [0, 1] without saying how."""
    given = checks.non_negative("costs", costs)
    largest = given.max(initial=0.0)
    return given / largest if largest > 0 else np.zeros_like(given)


def departure_probability(
    scores: ArrayLike, costs: ArrayLike, *, cost_weight: float = 0.1, low: float = 0.1, high: float = 0.99
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the probability `[P, N]` that each model's answer to each prompt is accepted, and which prompts have equally good models, `[P]` bool.

    The utility `raw_j = score_j - cost_weight cost_j` is scaled to [0, 1] over the models of each prompt, then to [low, high]:

        u_j = low + (high - low) (raw_j - min_k raw_k) / (max_k raw_k - min_k raw_k).

    The best model of every prompt thus has probability `high`, the worst `low`, even if their utilities are close. Source: ACQB (Bae et al.),
    appendix B.4, which does not give the weight of the costs.

    Differs from the paper: a prompt whose raw utilities are all equal (to 1e-12), for which the formula is 0 / 0, gets `high` for every model, and is
    marked True in the second array.

    Args:
      scores: `[P, N]` scores in [0, 1].
      costs: `[P, N]` costs in [0, 1], see `divide_costs`.
      cost_weight: weight of the costs in the utility (rho in the paper), at least 0.
      low, high: smallest and largest probability, `0 < low < high < 1`.
    """
    performance = checks.probability("scores", scores, ("P", "N"))
    try:
        shares = checks.probability("costs", costs, performance.shape)
    except ValueError as error:
        raise ValueError(f"{error}; divide_costs normalises") from None
    weight = float(checks.non_negative("cost_weight", cost_weight, ()))
    low, high = float(checks.numbers("low", low, ())), float(checks.numbers("high", high, ()))
    if not 0 < low < high < 1:
        raise ValueError(f"low and high must satisfy 0 < low < high < 1, got low={low:g} and high={high:g}")

    raw = performance - weight * shares
    least = raw.min(axis=1, keepdims=True)
    spread = raw.max(axis=1, keepdims=True) - least
    degenerate = spread <= _EQUAL
    norm = np.where(degenerate, 1.0, (raw - least) / np.where(degenerate, 1.0, spread))
    return np.clip(low + (high - low) * norm, low, high), degenerate[:, 0]


def describe_probabilities(probability: ArrayLike, *, size: int = 1) -> dict[str, Any]:
    """Computes the mean probability that simple routers satisfy a query of a pool, to assess an arrival rate before a run.

    An assortment `S` satisfies with probability `Z / (1 + Z)`, `Z = sum_{j in S} u_j / (1 - u_j)`. If the arrival rate exceeds the result "random",
    the queue of the random router grows without end; if it exceeds "best_fixed", the queue of every router that ignores the prompts grows without
    end. Source: ACQB, appendix B.4 and section 2.

    Args:
      probability: `[P, N]` probabilities `u` that an answer shown alone is accepted, at least 0 and below 1.
      size: number of models in an assortment, `K`.

    Returns:
      Mean probabilities over the prompts. "random": of a random assortment. "best_fixed": of the single assortment that is best for all prompts
      together; "best_fixed_models": its models. "oracle": of the best assortment for each prompt. "exact": False if there are more than 10,000
      assortments: then "random" is the mean over 2,000 random ones, with a fixed seed, and the assortment of "best_fixed" is built greedily, model by
      model, so that a better one may exist.
    """
    given = checks.bounded("probability", probability, ("P", "N"), "at least 0 and below 1", lambda p: (p >= 0) & (p < 1))
    num_models = given.shape[1]
    size = checks.count("size", size, maximum=num_models)
    odds = given / (1 - given)

    def mean_rates(subsets: np.ndarray) -> np.ndarray:
        """Returns, for each assortment (a row of `subsets` `[s, K]`), the mean probability over the prompts that it satisfies the user."""
        parts = [part for part in np.array_split(subsets, len(subsets) // 256 + 1) if len(part)]
        totals = (sum(odds.T[column] for column in part.T) for part in parts)
        return np.concatenate([(total / (1 + total)).mean(axis=1) for total in totals])

    exact = math.comb(num_models, size) <= _MOST_SUBSETS
    if exact:
        subsets = np.array(list(itertools.combinations(range(num_models), size)))
        rates = mean_rates(subsets)
        random, best, best_rate = rates.mean(), subsets[rates.argmax()], rates.max()
    else:
        rng = np.random.default_rng(0)
        random = mean_rates(np.argsort(rng.random((_SAMPLED_SUBSETS, num_models)), axis=1)[:, :size]).mean()
        best, best_rate = np.empty(0, int), 0.0
        for _ in range(size):
            others = np.setdiff1d(np.arange(num_models), best)
            rates = mean_rates(np.column_stack([np.broadcast_to(best, (others.size, best.size)), others]))
            best, best_rate = np.append(best, others[rates.argmax()]), rates.max()
    top = np.sort(odds, axis=1)[:, num_models - size :].sum(axis=1)
    return {
        "random": float(random),
        "best_fixed": float(best_rate),
        "best_fixed_models": tuple(sorted(int(j) for j in best)),
        "oracle": float((top / (1 + top)).mean()),
        "exact": exact,
    }
