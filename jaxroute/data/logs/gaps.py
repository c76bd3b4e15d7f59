"""Queries that some model has not answered."""

import numpy as np

from jaxroute.data.logs.answers import Answers


def close(
    answers: Answers, scores: np.ndarray, costs: np.ndarray, gaps: np.ndarray, missing: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which queries are kept, `[Q]`, and scores and costs `[Q, N]` without gaps; tells `answers.said`.

    Args:
      answers: what the file says.
      scores: `[Q, N]` in [0, 1], NaN for gaps.
      costs: `[Q, N]`, NaN for gaps.
      gaps: `[Q, N]` where either is missing.
      missing: "drop" or "zero".

    Raises:
      ValueError: no query is complete; the message proposes models to keep.
    """
    said, names, total = answers.said, answers.models, len(gaps)
    lacking = gaps.sum(axis=0)
    order = [int(i) for i in np.argsort(-lacking, kind="stable") if lacking[i]]
    most = ", ".join(f"{names[i]} {lacking[i]:,}" for i in order[:5]) + (
        f" and {len(order) - 5} more models" if len(order) > 5 else ""
    )
    first = answers.place(*map(int, np.argwhere(gaps)[0]))
    if missing == "zero":
        said.append(f"missing: {int(gaps.sum()):,} answers count as score 0 and cost 0 (of {most}; first: {first})")
        return np.ones(total, bool), np.where(gaps, 0.0, scores), np.where(gaps, 0.0, costs)
    keep = np.logical_not(gaps.any(axis=1))
    fewer = _proposal(answers, gaps)
    if not keep.any():
        if (np.isfinite(scores).sum(axis=1) <= 1).all():
            raise ValueError(
                f"{answers.name}: every query has the answer of one model alone: a log of what a router chose does not tell what the others would have "
                "answered; have every model answer the same queries"
            )
        raise ValueError(
            f"{answers.name}: no query has an answer and a cost of every model ({most} missing of {total:,}; first: {first}); {fewer}, or count them as 0 "
            '(missing="zero", --missing zero)'
        )
    said.append(
        f"left out: {int((~keep).sum()):,} of {total:,} queries that lack an answer or a cost (of {most}; first: {first})"
    )
    if keep.mean() < 0.5:
        said.append(f"fewer than half of the queries are left: {fewer}")
    return keep, scores, costs


def _proposal(answers: Answers, gaps: np.ndarray) -> str:
    """Models to keep, so that at least half of the queries stay."""
    left = list(range(gaps.shape[1]))
    while len(left) > 2 and (~gaps[:, left].any(axis=1)).mean() < 0.5:
        left.remove(max(left, key=lambda i: gaps[:, i].sum()))
    whole = int((~gaps[:, left].any(axis=1)).sum())
    names = [answers.models[i] for i in left]
    return f"with models={names!r} (--models {','.join(names)}) {whole:,} queries are complete"
