"""The scale of scores: fractions, percent or grades, the same for all models and categories."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jaxroute.core import checks

_GIVE = "say which scale it is (scale=(LOW, HIGH), on the command line --scale LOW:HIGH)"
_GRADED = ("judge", "rating", "grade", "stars", "likert")  # Parts of names of grades.
Groups = Mapping[str, tuple[np.ndarray, Sequence[str]]]


def to_unit_interval(
    scores: np.ndarray,
    percent: np.ndarray | None,
    named_percent: bool,
    scale: tuple[float, float] | None,
    name: str,
    place: Callable[[int], str],
    groups: Groups,
) -> tuple[np.ndarray, str]:
    """Returns scores in [0, 1], and the conversion in words, empty without one; refuses an unclear scale, or several.

    Args:
      scores: `[A]`, NaN for gaps; a percentage is a fraction already.
      percent: `[A]` whether the cell had a % sign, or None.
      named_percent: whether the name of the column says percent.
      scale: lowest and highest possible score; None to find it.
      place: function that returns the place of an answer.
      groups: numbers `[A]` and names of models and of categories, whose scales must be the same.
    """

    def refuse(wrong: np.ndarray, why: str) -> None:
        if wrong.any():
            answer = int(np.argmax(wrong))
            raise ValueError(f"{place(answer)} is {scores[answer]:g}{why}")

    present = np.isfinite(scores)
    if scale is not None:
        low, high = _check_scale(scale)
        if percent is not None and high > 1:  # A % sign was read as a hundredth.
            scores = np.where(percent, scores * 100.0, scores)
        refuse((scores < low) | (scores > high), f", outside the scale {low:g}:{high:g} that was given, or is in the name")
        note = "" if (low, high) == (0, 1) else f"scale {low:g}:{high:g} mapped to 0:1, as given"
        return (scores - low) / (high - low), note
    if named_percent:
        signs = np.zeros(len(scores), bool) if percent is None else percent
        bare = scores[present & ~signs]
        if bare.size and bare.max() <= 1 and len(np.unique(bare)) > 1:
            has = f"the column {name!r} has percent in its name, and numbers from {bare.min():g} to {bare.max():g}"
            give = "(scale=(0, 1) or (0, 100), on the command line --scale 0:1 or --scale 0:100)"
            raise ValueError(f"{has}: say which scale it is {give}")
        scores, percent = np.where(signs, scores, scores / 100.0), present
    if percent is not None:
        refuse(percent & ((scores < 0) | (scores > 1)), ", outside 0 % to 100 %")
        bare = present & ~percent & ~np.isin(scores, (0.0, 1.0))
        refuse(bare, " without a % sign, but others have one: write all in the same way")
        return scores, "percentages divided by 100"
    finite = scores[present]
    outside = (finite < 0) | (finite > 1)
    if not outside.any():
        return scores, ""
    low, high = finite.min(), finite.max()
    if outside.mean() < 0.01 and low >= -0.05 and high <= 1.05:
        far = f"{outside.sum()} of {finite.size:,} outside [0, 1] by at most {max(-low, high - 1.0):.2g}"
        return np.clip(scores, 0.0, 1.0), f"{far}: cut off at the end"
    refuse((scores < 0) | (scores > 100), f"; scores must lie in [0, 1] or [0, 100]: correct it, or {_GIVE}")
    _refuse_mixed(scores, groups, place)
    halves, between = (finite % 0.5 == 0).all(), ((finite > 0) & (finite < 1)).any()
    if halves and high in (5.0, 10.0) and (any(part in name.lower() for part in _GRADED) or len(np.unique(finite)) > 2):
        low = 0.0 if low < 1 else 1.0
        note = f"taken for a scale of {low:g} to {high:g} and mapped to 0 to 1; --scale decides"
        return (scores - low) / (high - low), note
    if between or high <= 50 or (finite[finite > 0] > 1).mean() <= 0.5:
        unclear = f"scores go from {low:g} to {high:g}: are they fractions, percent or grades?"
        refuse(scores > 1, f", and {unclear} correct the value, or {_GIVE}, for example 0:10")
    return scores / 100.0, "taken for percent, and divided by 100; --scale decides"


def _check_scale(scale: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = map(float, scale)
    except (TypeError, ValueError):
        raise ValueError(f"scale must be two numbers (LOW, HIGH), got {checks.show(scale)}") from None
    if not -np.inf < low < high < np.inf:
        raise ValueError(f"scale must be (LOW, HIGH) with LOW below HIGH, got {checks.show(scale)}")
    return low, high


def _refuse_mixed(scores: np.ndarray, groups: Groups, place: Callable[[int], str]) -> None:
    """Refuses scores if one model or category has fractions and another does not."""
    found, present = [], np.isfinite(scores)
    for kind, (codes, names) in groups.items():
        high, low = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        np.maximum.at(high, codes[present], scores[present])
        np.minimum.at(low, codes[present], scores[present])
        small, large = np.flatnonzero((high <= 1) & (low < high)), np.flatnonzero(high > 1)
        if small.size and large.size:
            ranges = (f"{kind} {names[i]!r} from {low[i]:g} to {high[i]:g}" for i in (small[0], large[0]))
            found.append(" but ".join(ranges))
    if found:
        first = int(np.argmax(np.nan_to_num(scores) > 1))
        mixed = f"scores have different scales: {'; '.join(found)} ({place(first)} is {scores[first]:g})"
        keep = "keep one part (where={'COLUMN': 'VALUE'}, on the command line --where COLUMN=VALUE, or --models A,B)"
        give = "if they are on one scale, give it (--scale 0:100)"
        raise ValueError(f"{mixed}; correct the value, bring all to one scale, or {keep}; {give}")
