"""Evidence in a file against the roles of its columns: labels, points of a maximum, means of other models, running sums."""

from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from ..files import join_names, option
from .answers import Answers
from .cells import first_cells, number_of
from .files import FILE_COLUMNS
from .names import NOT_MODELS, PER_MODEL, WORDS, match_level, plain_name, words

_CHEAPEST, _MOST_EXPENSIVE = 1e-7, 10.0  # USD per query; mean costs outside are doubted.
_MOST_EQUAL = 20  # More scores that are the same for all models are not judgements.
_LOWER_IS_BETTER = {"higherisbetter": 0.0, "lowerisbetter": 1.0}  # Plain names, and the values that mean it.
_METRICS = ("metric", "metricname", "measure")
_FEWEST_ROWS = 12  # Rising costs of fewer rows are not a running sum.
_STATISTICS: tuple[Callable[..., np.ndarray], ...] = (
    *(np.mean, np.max, np.min, np.sum, np.median, np.std, np.ptp),
    partial(np.std, ddof=1),
)


def check_scores(answers: Answers, has_scale: bool) -> None:
    """Refuses scores that another column shows to be labels, points or errors; `has_scale`: whether their name has a scale."""
    if "score" in answers.given or answers.preset.name:
        return
    roles, file = answers.roles, answers.sheet.name
    columns, remedy, alike, level = _describe_scores(answers)
    own = set(words(roles.families["score"].pattern if roles.models else str(roles.column("score"))))
    rest = {name: set(words(name)) - WORDS["truths"] for name in alike}
    beside = [name for name in alike if rest[name] and rest[name] <= own]  # As `gold_score` beside `score`.
    if beside or (alike and level <= 1):
        raise _label_error(file, columns, remedy, beside or alike)
    free = _free_columns(answers)
    for name in free:
        is_metric = plain_name(name) in _METRICS and level <= 1
        values = _different_values(answers, name) if is_metric or plain_name(name) in _LOWER_IS_BETTER else set()
        if _LOWER_IS_BETTER.get(plain_name(name)) in values:
            lower = f"column {name!r} says that some scores are better the lower they are"
            raise ValueError(f"{file}: {lower}: write all so that higher is better, as 1 - score")
        metric = next((value for value in map(str, values) if is_metric and not _is_score(value)), "")
        if metric:
            other = f"some scores ({columns}) are of the metric {metric!r} (column {name!r}), which is not a score"
            raise ValueError(f"{file}: {other}: keep those that are (--where {name}=METRIC)")
        if match_level("score", name) > 0 and _is_opposite(answers, name):
            contrary = f"column {name!r} contradicts the scores ({columns}) in every row"
            raise ValueError(f"{file}: {contrary}: say which it is (--column score={name}), or {remedy}")
    if not has_scale:
        _refuse_points(answers, free, columns, remedy)


def _describe_scores(answers: Answers) -> tuple[str, str, list[str], float]:
    """Columns of scores and the way to accept them, in words; columns of labels with the same values; the match level."""
    roles = answers.roles
    if roles.models:
        family = roles.families["score"]
        columns, level = [*family.columns.values()], family.level
        shown, (head, _, tail) = f"columns {family.shown()}", family.pattern.partition("{}")
        pattern = f"{columns[0][: len(head)]}*{columns[0][len(columns[0]) - len(tail) :]}"
    else:
        pattern = str(roles.column("score"))
        columns, shown, level = [pattern], f"column {pattern!r}", match_level("score", pattern)
    give = option("--models", ",".join(answers.models)) if pattern == "*" else option("--column", f"score={pattern}")
    names = dict.fromkeys([*_free_columns(answers), *roles.candidates.get("response", ())])
    truths = [name for name in names if WORDS["truths"] & set(words(name)) and name not in columns]
    values = {value for column in columns for value in _different_values(answers, column)} if truths else set()
    numbers = level <= 1 and all(isinstance(value, float) for value in values)
    alike = []
    for name in truths:
        labels = _different_values(answers, name)
        if (labels == values and 1 < len(labels) <= 20) or (numbers and labels == {0.0, 1.0}):
            alike.append(name)
    return shown, f"say that they are judgements ({give})", alike, level


def _free_columns(answers: Answers) -> list[str]:
    taken = {"", *answers.roles.used, *FILE_COLUMNS}
    return [name for name in answers.sheet.single(answers.sheet.names) if name not in taken]


def _different_values(answers: Answers, column: str) -> set[float | str]:
    """Different values of a column; words such as yes are numbers."""
    cells = answers.sheet.cells(column)
    cells = np.unique(cells) if cells.dtype.kind in "biuf" else cells
    texts = {str(cell).strip().lower() for cell in first_cells(cells, len(cells))}
    numbers = {text: number_of(text) for text in texts}
    return {text if np.isnan(number) else number for text, number in numbers.items()}


def _label_error(file: str, columns: str, remedy: str, alike: list[str]) -> ValueError:
    labels = f"are the scores ({columns}) judgements, or labels or predictions as {join_names(map(repr, alike), 3)}?"
    return ValueError(f"{file}: {labels} add a column that says whether each answer is right, or {remedy}")


def _is_score(metric: str) -> bool:
    """Whether the name of a metric is not one of errors, costs, latencies or numbers of tokens."""
    others = (role for role in PER_MODEL if role not in ("score", "response"))
    return not WORDS["lower"] & set(words(metric)) and not any(match_level(role, metric) > 0 for role in others)


def _is_opposite(answers: Answers, name: str) -> bool:
    """Whether a column has the opposite verdict in every row."""
    scores = answers.values["score"]
    verdicts = np.array([number_of(cell) for cell in answers.sheet.cells(name)])[answers.row]
    return bool(np.isin(scores, (0, 1)).all() and np.ptp(scores) == 1 and (verdicts == 1 - scores).all())


def _refuse_points(answers: Answers, free: list[str], columns: str, remedy: str) -> None:
    """Refuses whole scores beside a column of the largest possible number of points."""
    present = np.isfinite(answers.values["score"])
    points = answers.values["score"][present]
    if answers.percent is not None or (points % 1).any():
        return
    names = [n for n in free if WORDS["largest"] & set(words(n)) and set(words(n)) <= WORDS["largest"] | WORDS["points"]]
    if np.isin(points, (0, 1)).all():  # A bare `n` or `total` may count queries or samples.
        names = [name for name in names if {"score", "points", "marks", "mark", "point"} & set(words(name))]
    for name in names:
        most = np.array([number_of(cell) for cell in answers.sheet.cells(name)])[answers.row][present]
        if np.isfinite(most).all() and (most % 1 == 0).all() and (most >= points).all() and 1 < most.max(initial=0) <= 1000:
            how = "add a column of their ratio"
            if np.ptp(most) == 0:
                how = f"give the scale (scale=(0, {most[0]:g}), {option('--scale', f'0:{most[0]:g}')})"
            points_of = f"are the scores ({columns}) points of which {name!r} is the largest number?"
            raise ValueError(f"{answers.sheet.name}: {points_of} then {how}; if not, {remedy}")


def check_same_scores(answers: Answers, scores: np.ndarray) -> list[str]:
    """Refuses scores `[Q, N]` that differ only from query to query; of verdicts under a clear name, returns a line about it."""
    if "score" in answers.given or answers.preset.name or not (scores == scores[:, :1]).all() or np.ptp(scores) == 0:
        return []
    columns, remedy, alike, level = _describe_scores(answers)
    if alike:
        raise _label_error(answers.sheet.name, columns, remedy, alike)
    are_verdicts = np.isin(scores * 4, range(5)).all()
    if (are_verdicts and level >= 2) or (scores[:, 1:].size < _MOST_EQUAL and len(np.unique(scores)) < 3):
        other = "if it is a property of the queries, name another column (--column score=NAME)"
        return [f"score: the same for all models on every query; {other}"]
    same = f"all models have the same score on every query ({columns})"
    doubt = "is it a property of the queries, and not a judgement of the answers?"
    raise ValueError(
        f"{answers.sheet.name}: {same}: {doubt} name the column of judgements (--column score=NAME), or {remedy}"
    )


def check_models(answers: Answers, scores: np.ndarray, costs: np.ndarray, named: Collection[str]) -> None:
    """Refuses models that are a statistic of the others, or called like the right answer, unless the caller named them."""
    models, parts = answers.models, np.stack([scores, costs])
    for number, model in enumerate(models):
        others = np.arange(len(models)) != number
        why = ""
        if answers.roles.models and plain_name(model) in WORDS["truths"] and not answers.preset.name:
            why = "it is called like the right answer"
        elif NOT_MODELS & set(words(model)) and len(models) > 2 and len(scores) > 1:
            made = [any(_are_close(part[:, number], by(part[:, others], axis=1)) for by in _STATISTICS) for part in parts]
            copied = (parts[:, :, [number]] == parts[:, :, others]).all(axis=0).any(axis=1)
            if all(made) or copied.all():
                why = "on every query its score and cost are a mean, sum, spread or extreme of the others', or those of one of them"
        if why and model not in named:
            left = [other for other in models if other != model]
            only = f"keep the others ({option('--models', ','.join(left))}), or " if len(left) > 1 else ""
            give = f"{only}name all (models={models}, {option('--models', ','.join(models))})"
            raise ValueError(f"{answers.sheet.name}: is {model!r} a model? {why}: {give}")


def _are_close(a: np.ndarray, b: np.ndarray) -> bool:
    return np.allclose(a, b, rtol=0.01, atol=0.006 * np.abs(b).max(initial=0.0))


def doubtful_costs(answers: Answers, costs: np.ndarray, unit: str, stated: bool) -> list[str]:
    """Returns lines about implausible costs `[Q, N]`: means in USD, and, if `stated`, those of each row of the file."""
    models, lines = answers.models, []
    means = zip(models, costs.mean(axis=0) if unit.startswith("USD per query") else [])
    implausible = [f"{model} {mean:.3g}" for model, mean in means if 0 < mean < _CHEAPEST or mean > _MOST_EXPENSIVE]
    if implausible:
        other = "is the unit another (--unit cost=cents; --price counts USD per million tokens)?"
        lines.append(f"cost: implausible means in USD per query: {', '.join(implausible[:4])}; {other}")
    if not stated:
        return lines
    if len(costs) > 2 and (costs == costs[:, :1]).all() and np.ptp(costs) > 0:
        lines.append("cost: doubtful, as all models have the same on each query: is it that of the whole query, or a price?")
    free = [model for model, column in zip(models, costs.T, strict=True) if not column.any() and costs.any()]
    if np.isin(costs, (0, 1)).all() and np.ptp(costs) == 1:
        lines.append("cost: doubtful, as it is 0 or 1: is it a score?")
    if free and np.allclose(costs * 100, np.round(costs * 100), atol=1e-6):
        lines.append(f"cost: 0 for {join_names(free, 4)}: are small costs rounded to 0?")
    values = answers.values["cost"]
    of_models = [values[answers.model == number] for number in range(len(models))]
    is_sorted = (np.diff(values) >= 0).all()  # The file is sorted by costs.
    if not is_sorted and all(len(rows) >= _FEWEST_ROWS and (np.diff(rows) > 0).all() for rows in of_models):
        lines.append("cost: doubtful, as that of every model rises from row to row: is it a running sum?")
    return lines
