"""Logistic regression for scores in [0, 1], of all models at once."""

from dataclasses import dataclass

import numpy as np

from .design import Design, design
from .sample import Sample

PENALTIES = (0.3, 3.0, 30.0)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Returns `1 / (1 + exp(-x))` without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def logit(p: np.ndarray) -> np.ndarray:
    """Returns the inverse of `sigmoid`, of probabilities clipped to [0.001, 0.999]."""
    p = np.clip(p, 1e-3, 1 - 1e-3)
    return np.log(p / (1 - p))


def cross_entropy(predicted: np.ndarray, scores: np.ndarray) -> float:
    """Returns the mean of `-s log p - (1 - s) log(1 - p)`."""
    p = np.clip(predicted, 1e-6, 1 - 1e-6)
    return float(-(scores * np.log(p) + (1 - scores) * np.log(1 - p)).mean())


def fit_weights(columns: np.ndarray, scores: np.ndarray, penalties: np.ndarray, steps: int = 60) -> np.ndarray:
    """Returns `[A, 1 + d, M]` intercepts and weights of the least cross-entropy plus `penalty / 2 * |weights|^2`, for every penalty.

    A score of 0.3 counts like 3 right and 7 wrong answers of weight 0.1. The Hessian is at most `X'X / 4 + penalty`
    (Boehning and Lindsay, 1988), which is one eigendecomposition for all; steps along it never rise, and are accelerated
    (Nesterov).

    Args:
      columns: `[Q, d]`, shared by the outputs.
      scores: `[Q, M]` in [0, 1], one column per output.
      penalties: `[A]`, greater than 0; intercepts have none.
      steps: number of steps.
    """
    middle = columns.mean(0)
    centred = columns - middle  # Orthogonal to the intercept, so the bound falls apart into the two.
    values, vectors = np.linalg.eigh(centred.T @ centred)
    turned = np.concatenate([np.ones((len(columns), 1)), centred @ vectors], axis=1)
    num_penalties, num_outputs = len(penalties), scores.shape[1]
    # [1 + d, A * M]: each penalty has its block of columns.
    penalty = np.tile(np.repeat(penalties, num_outputs), (turned.shape[1], 1))
    penalty[0] = 0.0
    curvature = np.append(len(columns), np.maximum(values, 0.0))[:, None] / 4 + penalty
    target = turned.T @ np.tile(scores, num_penalties)
    weights = np.zeros_like(curvature)
    weights[0] = np.tile(_intercepts(scores), num_penalties)
    ahead, pace = weights, 1.0
    for _ in range(steps):
        gradient = turned.T @ sigmoid(turned @ ahead) - target + penalty * ahead
        following = ahead - gradient / curvature
        # Momentum is dropped in the columns where it points uphill (O'Donoghue and Candes, 2015).
        uphill = (gradient * (following - weights)).sum(0) > 0
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        ahead = following + np.where(uphill, 0.0, (pace - 1) / faster) * (following - weights)
        pace = np.where(uphill, 1.0, faster)
        weights = following
    weights = weights.reshape(-1, num_penalties, num_outputs).transpose(1, 0, 2)
    slopes = vectors @ weights[:, 1:]
    intercepts = weights[:, :1] - np.einsum("d,adm->am", middle, slopes)[:, None]
    return np.concatenate([intercepts, slopes], axis=1)


def _intercepts(scores: np.ndarray) -> np.ndarray:
    """`[M]` intercepts that fit scores `[Q, M]` without columns."""
    least = 1 / (2 * len(scores))
    return logit(np.clip(scores.mean(0), least, 1 - least))


def fit_each(columns: np.ndarray, scores: np.ndarray, penalty: float = 1.0, steps: int = 12) -> np.ndarray:
    """Returns the same, `[M, 1 + d]`, with few columns `[d, Q, M]`, other ones for each output, by Newton's method.

    A step that would increase the loss is replaced by one along the bound.
    """
    middle = columns.mean(1)
    x = np.concatenate([np.ones((1, *scores.shape)), columns - middle[:, None]]).transpose(2, 0, 1)  # [M, 1 + d, Q]
    y = scores.T
    ridge = np.diag(np.append(0.0, np.full(len(columns), penalty)))
    bound = x @ x.transpose(0, 2, 1) / 4 + ridge
    weights = np.zeros(x.shape[:2])
    weights[:, 0] = _intercepts(scores)

    def loss(w: np.ndarray) -> np.ndarray:
        z = (w[:, None] @ x)[:, 0]
        return (np.logaddexp(0.0, z) - y * z).sum(1) + ((w @ ridge) * w).sum(1) / 2

    least = loss(weights)
    for _ in range(steps):
        p = sigmoid((weights[:, None] @ x)[:, 0])
        gradient = (x @ (p - y)[:, :, None]) + (weights @ ridge)[:, :, None]
        curvature = (x * np.maximum(p * (1 - p), 1e-6)[:, None]) @ x.transpose(0, 2, 1) + ridge
        quick, sure = (weights - np.linalg.solve(h, gradient)[:, :, 0] for h in (curvature, bound))
        falls = loss(quick) <= least
        weights = np.where(falls[:, None], quick, sure)
        least = loss(weights)
    weights[:, 0] -= (weights[:, 1:] * middle.T).sum(1)
    return weights


@dataclass(frozen=True, eq=False)
class Logistic:
    """Predicts the score of each model from features and categories of a query."""

    design: Design  # Columns of numbers.
    weights: np.ndarray  # `[1 + r, N]`.
    penalty: float  # Of squared weights, as chosen.

    def predict(self, sample: Sample) -> np.ndarray:
        """Returns `[Q, N]` predicted scores."""
        return sigmoid(self.weights[0] + self.design.columns(sample) @ self.weights[1:])


def fit_logistic(sample: Sample, folds: np.ndarray) -> tuple[Logistic, np.ndarray]:
    """Returns the predictor of all folds, its penalty chosen by cross-validation, and `[Q, N]` predictions from the other folds."""
    penalties = np.array(PENALTIES)
    predicted = np.empty((len(penalties), *sample.scores.shape))
    for fold in np.unique(folds):
        outside, inside = sample.take(folds != fold), sample.take(folds == fold)
        made = design(outside)
        weights = fit_weights(made.columns(outside), outside.scores, penalties)
        predicted[:, folds == fold] = sigmoid(weights[:, :1] + made.columns(inside) @ weights[:, 1:])
    best = int(np.argmin([cross_entropy(predicted[i], sample.scores) for i in range(len(penalties))]))
    made = design(sample)
    weights = fit_weights(made.columns(sample), sample.scores, penalties[best : best + 1])[0]
    return Logistic(made, weights, float(penalties[best])), predicted[best]
