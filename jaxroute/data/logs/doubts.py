"""Evidence in the rest of a file against what its columns were taken for: labels, points of a maximum, means of other models, running sums."""

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from jaxroute.data.files import option, some
from jaxroute.data.logs.answers import Answers
from jaxroute.data.logs.cells import number_of, some_cells
from jaxroute.data.logs.files import FILE_COLUMNS
from jaxroute.data.logs.names import LARGEST, LOWER, NOT_MODELS, PER_MODEL, POINTS, TRUTHS, level, plain, words

_CHEAPEST, _MOST_EXPENSIVE = 1e-7, 10.0  # USD per query; mean costs outside are doubted.
_ENOUGH = 20  # Scores that no other model changes, from which on they are no judgements.
_LOWER_IS_BETTER = {"higherisbetter": 0.0, "lowerisbetter": 1.0}  # Plain names, and the values that say so.
_METRICS = ("metric", "metricname", "measure")
_ROWS = 12  # Costs of a model that rise from row to row, from which on they may be running sums.
_MADE_OF_OTHERS: tuple[Callable[..., np.ndarray], ...] = (
    np.mean,
    np.max,
    np.min,
    np.sum,
    np.median,
    np.std,
    np.ptp,
    partial(np.std, ddof=1),
)


def check_scores(answers: Answers, scaled: bool) -> None:
    """Refuses scores that another column shows to be labels, points or errors.

    Args:
      answers: from `collect`, with the numbers of the file.
      scaled: whether the name of the scores says their scale.

    Raises:
      ValueError: another column has predictions or labels of the same values, the largest number of points, or says that lower is better.
    """
    if "score" in answers.asked or answers.preset.name:
        return
    said, remedy, alike, strength = _score(answers)
    roles = answers.roles
    own = set(words(roles.families["score"].shape if roles.models else str(roles.column("score"))))
    rest = {name: set(words(name)) - TRUTHS for name in alike}
    beside = [name for name in alike if rest[name] and rest[name] <= own]  # As `gold_score` beside `score`.
    if beside or (alike and strength <= 1):
        raise _label(answers, said, remedy, beside or alike)
    name_of_file, free = answers.sheet.name, _free(answers)
    for name in free:
        of_metric = plain(name) in _METRICS and strength <= 1
        classes = _classes(answers, name) if of_metric or plain(name) in _LOWER_IS_BETTER else set()
        if _LOWER_IS_BETTER.get(plain(name)) in classes:
            raise ValueError(
                f"{name_of_file}: column {name!r} says that some scores are better the lower they are: write all so that higher is better, as 1 - score"
            )
        metric = next((of for of in map(str, classes) if of_metric and not _is_score(of)), "")
        if metric:
            raise ValueError(
                f"{name_of_file}: some scores ({said}) are of the metric {metric!r} (column {name!r}), which is no score: keep those that are "
                f"(--where {name}=METRIC)"
            )
        if level("score", name) > 0 and _turned(answers, name):
            raise ValueError(
                f"{name_of_file}: column {name!r} contradicts the scores ({said}) in every row: say which it is (--column score={name}), or {remedy}"
            )
    if not scaled:
        _refuse_points(answers, free, said, remedy)


def _turned(answers: Answers, name: str) -> bool:
    """Whether a column has the verdict against the score in every row."""
    scores = answers.values["score"]
    verdicts = np.array([number_of(cell) for cell in answers.sheet.cells(name)])[answers.row]
    return bool(np.isin(scores, (0, 1)).all() and np.ptp(scores) == 1 and (verdicts == 1 - scores).all())


def _is_score(metric: str) -> bool:
    """Whether the name of a metric says no error, cost, latency or number of tokens."""
    others = (role for role in PER_MODEL if role not in ("score", "response"))
    return not LOWER & set(words(metric)) and not any(level(role, metric) > 0 for role in others)


def _refuse_points(answers: Answers, free: list[str], said: str, remedy: str) -> None:
    """Refuses whole scores beside a column of the largest number of points there can be."""
    there = np.isfinite(answers.values["score"])
    points = answers.values["score"][there]
    if answers.percent is not None or (points % 1).any():
        return
    names = [name for name in free if set(words(name)) & LARGEST and set(words(name)) <= LARGEST | POINTS]
    if np.isin(points, (0, 1)).all():  # A bare `n` or `total` may count queries or samples.
        names = [name for name in names if {"score", "points", "marks", "mark", "point"} & set(words(name))]
    for name in names:
        most = np.array([number_of(cell) for cell in answers.sheet.cells(name)])[answers.row][there]
        if np.isfinite(most).all() and (most % 1 == 0).all() and (most >= points).all() and 1 < most.max(initial=0) <= 1000:
            how = "add a column of their ratio"
            if np.ptp(most) == 0:
                how = f"give the scale (scale=(0, {most[0]:g}), {option('--scale', f'0:{most[0]:g}')})"
            raise ValueError(
                f"{answers.sheet.name}: are the scores ({said}) points of which {name!r} is the largest number? then {how}; if not, {remedy}"
            )


def check_same_scores(answers: Answers, scores: np.ndarray) -> list[str]:
    """Refuses scores `[Q, N]` that differ from query to query, but never from model to model; of verdicts under a clear name, returns a line about it."""
    asked = "score" in answers.asked or answers.preset.name
    if asked or not (scores == scores[:, :1]).all() or np.ptp(scores) == 0:
        return []
    said, remedy, alike, strength = _score(answers)
    if alike:
        raise _label(answers, said, remedy, alike)
    verdicts = np.isin(scores * 4, range(5)).all()
    if (verdicts and strength >= 2) or (scores[:, 1:].size < _ENOUGH and len(np.unique(scores)) < 3):
        return [
            "score: the same for all models on every query; if it is a property of the queries, name another column (--column score=NAME)"
        ]
    raise ValueError(
        f"{answers.sheet.name}: all models have the same score on every query ({said}): is it a property of the queries, and no judgement of the "
        f"answers? name the column of judgements (--column score=NAME), or {remedy}"
    )


def _free(answers: Answers) -> list[str]:
    """The columns that were not used."""
    often, taken = Counter(answers.sheet.names), {"", *answers.roles.used, *FILE_COLUMNS}
    return [name for name in often if often[name] == 1 and name not in taken]


def _score(answers: Answers) -> tuple[str, str, list[str], float]:
    """The columns of scores and what accepts them, in words; columns of labels and predictions with the same values; how strongly the name says a score."""
    roles = answers.roles
    if roles.models:
        family = roles.families["score"]
        columns, strength = [*family.columns.values()], family.level
        said, (head, _, tail) = f"columns {family.shape.replace('{}', '<model>')}", family.shape.partition("{}")
        pattern = f"{columns[0][: len(head)]}*{columns[0][len(columns[0]) - len(tail) :]}"
    else:
        pattern = str(roles.column("score"))
        columns, said, strength = [pattern], f"column {pattern!r}", level("score", pattern)
    bare = pattern == "*"
    remedy = f"say that they are judgements ({option('--models', ','.join(answers.models)) if bare else option('--column', f'score={pattern}')})"
    truths = [
        name for name in dict.fromkeys([*_free(answers), *roles.candidates.get("response", ())]) if TRUTHS & set(words(name))
    ]
    truths = [name for name in truths if name not in columns]
    classes = {value for column in columns for value in _classes(answers, column)} if truths else set()
    numbers = strength <= 1 and all(isinstance(value, float) for value in classes)
    of_truths = {name: _classes(answers, name) for name in truths}
    alike = [
        name for name, of in of_truths.items() if (of == classes and 1 < len(of) <= 20) or (numbers and of == {0.0, 1.0})
    ]
    return said, remedy, alike, strength


def _label(answers: Answers, said: str, remedy: str, alike: list[str]) -> ValueError:
    return ValueError(
        f"{answers.sheet.name}: are the scores ({said}) judgements, or labels or predictions as {some(map(repr, alike), 3)}? add a column that says whether "
        f"each answer is right, or {remedy}"
    )


def _classes(answers: Answers, column: str) -> set[float | str]:
    """The different values of a column; words such as yes are numbers."""
    cells = answers.sheet.cells(column)
    cells = np.unique(cells) if cells.dtype.kind in "biuf" else cells
    different = {str(cell).strip().lower() for cell in some_cells(cells, len(cells))}
    numbers = {text: number_of(text) for text in different}
    return {text if np.isnan(number) else number for text, number in numbers.items()}


def check_models(answers: Answers, scores: np.ndarray, costs: np.ndarray, named: Collection[str]) -> None:
    """Refuses models that are a statistic of the others, by name and numbers `[Q, N]`, or called like the right answer, unless the caller named them."""
    models = answers.models
    for number, model in enumerate(models):
        others = np.arange(len(models)) != number
        why = ""
        if answers.roles.models and plain(model) in TRUTHS and not answers.preset.name:
            why = "it is called like the right answer"
        elif NOT_MODELS & set(words(model)) and len(models) > 2 and len(scores) > 1:
            parts = np.stack([scores, costs])
            made = [any(_close(of[:, number], by(of[:, others], axis=1)) for by in _MADE_OF_OTHERS) for of in parts]
            copied = (parts[:, :, [number]] == parts[:, :, others]).all(axis=0).any(axis=1)
            if all(made) or copied.all():
                why = "on every query its score and cost are a mean, sum, spread or extreme of the others', or those of one of them"
        if why and model not in named:
            left = [other for other in models if other != model]
            only = f"keep the others ({option('--models', ','.join(left))}), or " if len(left) > 1 else ""
            raise ValueError(
                f"{answers.sheet.name}: is {model!r} a model? {why}: {only}name all (models={models}, {option('--models', ','.join(models))})"
            )


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return np.allclose(a, b, rtol=0.01, atol=0.006 * np.abs(b).max(initial=0.0))


def doubtful_costs(answers: Answers, costs: np.ndarray, unit: str, stated: bool) -> list[str]:
    """Lines about costs `[Q, N]` that are hardly those of an answer: means in USD, and what the file states (`stated`) of each row."""
    models, lines = answers.models, []
    means = zip(models, costs.mean(axis=0) if unit.startswith("USD per query") else [])
    odd = [f"{model} {mean:.3g}" for model, mean in means if 0 < mean < _CHEAPEST or mean > _MOST_EXPENSIVE]
    if odd:
        lines.append(
            f"cost: implausible means in USD per query: {', '.join(odd[:4])}; is the unit another (--unit cost=cents; --price counts USD per million tokens)?"
        )
    if stated and len(costs) > 2 and (costs == costs[:, :1]).all() and np.ptp(costs) > 0:
        lines.append("cost: doubtful, as all models have the same on each query: is it that of the whole query, or a price?")
    free = [model for model, of in zip(models, costs.T, strict=True) if stated and not of.any() and costs.any()]
    if stated and np.isin(costs, (0, 1)).all() and np.ptp(costs) == 1:
        lines.append("cost: doubtful, as it is 0 or 1: is it a score?")
    rounded = stated and np.allclose(costs * 100, np.round(costs * 100), atol=1e-6)
    lines += [f"cost: nothing for {some(free, 4)}: are small costs rounded to 0?"] if free and rounded else []
    of_models = [answers.values["cost"][answers.model == number] for number in range(len(models))] if stated else []
    ordered = stated and (np.diff(answers.values["cost"]) >= 0).all()  # The file is sorted by it.
    if of_models and not ordered and all(len(of) >= _ROWS and (np.diff(of) > 0).all() for of in of_models):
        lines.append("cost: doubtful, as that of every model rises from row to row: is it a running sum?")
    return lines
