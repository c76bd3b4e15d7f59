"""Bounds on the regret of OFUL and SquareCB, float64 in units of reward."""

import numpy as np
from numpy.typing import ArrayLike

from jaxroute.core import checks


def oful_bound(
    rounds: ArrayLike,
    dim: int,
    *,
    noise: float,
    norm: float = 1.0,
    delta: float = 0.01,
    ridge: float = 1.0,
    length: float = 1.0,
    number: int = 1,
) -> np.ndarray:
    """Returns OFUL's regret bound, which holds in all rounds at once with probability `1 - delta`, for expected rewards in [-1, 1].

    It is `4 sqrt(T d log(lambda + T L^2 / d)) (sqrt(lambda) S + R sqrt(2 log(1 / delta) + d log(1 + T L^2 / (lambda d))))`.

    Source: Abbasi-Yadkori, Pal and Szepesvari (2011), Theorem 3, which has `L` instead of `L^2`, and whose proof needs `lambda >= max(1, L^2)`.

    Differs from the paper: each of `number` disjoint parameter vectors has such a bound, with `delta / number`, for the rounds in which it is used.
    The result is the sum of these bounds if all vectors are used equally often, when the sum is largest.

    Args:
      rounds: numbers of rounds `T`, an array of any shape, at least 1.
      dim: dimension `d` of the features.
      noise: sub-Gaussian constant `R` of the rewards.
      norm: largest norm `S` of a parameter vector.
      delta: probability that the bound fails, of all parameter vectors together.
      ridge: weight `lambda` of the squared norm.
      length: largest norm `L` of the features.
      number: number of parameter vectors, 1 for `SharedParameters()`, `K` for `DisjointParameters()`.
    """
    dim, number = checks.count("dim", dim), checks.count("number", number)
    each = np.asarray(rounds, np.float64) / number
    grown = each * length**2 / dim
    radius = np.sqrt(ridge) * norm + noise * np.sqrt(2.0 * np.log(number / delta) + dim * np.log1p(grown / ridge))
    return number * 4.0 * np.sqrt(each * dim * np.log(ridge + grown)) * radius


def squarecb_bound(rounds: ArrayLike, num_models: int, square_regret: ArrayLike, *, delta: float = 0.01) -> np.ndarray:
    """Returns a bound of SquareCB's regret after `T` rounds: `4 sqrt(K T square_regret) + 8 sqrt(K T log(2 / delta))`.

    It holds with probability `1 - delta`, for rewards in [0, 1], if `T` is the policy's `horizon`. Source: Foster and Rakhlin (2020), Theorem 1.

    Args:
      rounds: numbers of rounds `T`, an array of any shape, at least 1.
      num_models: number of models `K`.
      square_regret: regret of the predictions in square loss after `T` rounds, see `square_regret`.
      delta: probability that the bound fails.
    """
    total = checks.count("num_models", num_models) * np.asarray(rounds, np.float64)
    return 4.0 * np.sqrt(total * np.asarray(square_regret)) + 8.0 * np.sqrt(total * np.log(2.0 / delta))
