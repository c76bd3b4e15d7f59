"""Finds the scale of scores, and evidence in a file that scores, costs or models are not what their names say: costs may be running sums, say."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np

from jaxroute.core import checks

from ..files import join_names, option
from .answers import Answers
from .cells import first_cells, number_of
from .names import NOT_MODELS, PER_MODEL, WORDS, match_level, plain_name, scale_in_name, words
from .opening import FILE_COLUMNS

_CHEAPEST, _MOST_EXPENSIVE = 1e-7, 10.0  # USD per query; the user is warned of mean costs outside.
_MOST_EQUAL = 20  # If more scores are the same for all models, they are no judgements.
_LOWER_IS_BETTER = {"higherisbetter": 0.0, "lowerisbetter": 1.0}  # Column, and its value for "low is good".
_METRICS = ("metric", "metricname", "measure")
_FEWEST_ROWS = 12  # Rising costs of fewer rows are not a running sum.
_GRADED = ("judge", "rating", "grade", "stars", "likert")  # Parts of names of grades.
_STATISTICS = (np.mean, np.max, np.min, np.sum, np.median, np.std, np.ptp, partial(np.std, ddof=1))
# Under "model" and "category": the index of each answer's model or category, `[A]`, and their names.
Groups = Mapping[str, tuple[np.ndarray, Sequence[str]]]


def to_unit_interval(answers: Answers, scale: tuple[float, float] | None, name: str, groups: Groups) -> np.ndarray:
    """Returns the score of each answer in [0, 1], and notes the conversion for the user. Raises `ValueError` for scores on an unclear or mixed scale.

    `scale` is the lowest and the highest possible score; None to take them from the `name` of the score column, as "Score (0-10)", or to infer them.
    All models and categories must have the same scale; `groups` has the model and the category of each answer.
    """
    scores, percent, notes = answers.values["score"], answers.percent, answers.notes
    if scale is None and (scale := scale_in_name(name)) is not None:
        notes.append(f"score: from {scale[0]:g} to {scale[1]:g}, as in its name (--scale decides)")

    def refuse(wrong: np.ndarray, why: str) -> None:
        if wrong.any():
            answer = int(np.argmax(wrong))
            raise ValueError(f"{answers.place(answer)} is {scores[answer]:g}{why}")

    present = np.isfinite(scores)
    give = "specify the scale (scale=(LOW, HIGH), on the command line --scale LOW:HIGH)"
    if scale is not None:
        try:
            low, high = map(float, scale)
        except (TypeError, ValueError):
            raise ValueError(f"scale must be two numbers (LOW, HIGH), got {checks.show(scale)}") from None
        if not -np.inf < low < high < np.inf:
            raise ValueError(f"scale must be (LOW, HIGH) with LOW below HIGH, got {checks.show(scale)}")
        if percent is not None and high > 1:  # A % sign was read as a hundredth.
            scores = np.where(percent, scores * 100.0, scores)
        refuse((scores < low) | (scores > high), f", outside the scale {low:g}:{high:g} that was given, or is in the name")
        notes += [] if (low, high) == (0, 1) else [f"score: scale {low:g}:{high:g} mapped to 0:1, as given"]
        return (scores - low) / (high - low)
    if answers.named_percent:
        signs = np.zeros(len(scores), bool) if percent is None else percent
        bare = scores[present & ~signs]
        if bare.size and bare.max() <= 1 and len(np.unique(bare)) > 1:
            numbers = f"numbers from {bare.min():g} to {bare.max():g}"
            hint = "specify the scale (--scale 0:1 or --scale 0:100)"
            raise ValueError(f"the column {name!r} has percent in its name, and {numbers}: {hint}")
        scores, percent = np.where(signs, scores, scores / 100.0), present
    if percent is not None:
        refuse(percent & ((scores < 0) | (scores > 1)), ", outside 0 % to 100 %")
        bare = present & ~percent & ~np.isin(scores, (0.0, 1.0))
        refuse(bare, " without a % sign, but others have one: write all in the same way")
        notes.append("score: percentages divided by 100")
        return scores
    finite = scores[present]
    outside = (finite < 0) | (finite > 1)
    if not outside.any():
        return scores
    low, high = finite.min(), finite.max()
    if outside.mean() < 0.01 and low >= -0.05 and high <= 1.05:
        most = max(-low, high - 1.0)
        notes.append(f"score: {outside.sum()} of {finite.size:,} outside [0, 1] by at most {most:.2g}: cut off at the end")
        return np.clip(scores, 0.0, 1.0)
    refuse((scores < 0) | (scores > 100), f"; scores must lie in [0, 1] or [0, 100]: correct it, or {give}")
    _refuse_mixed(scores, groups, answers.place)
    halves, between = (finite % 0.5 == 0).all(), ((finite > 0) & (finite < 1)).any()
    if halves and high in (5.0, 10.0) and (any(part in name.lower() for part in _GRADED) or len(np.unique(finite)) > 2):
        low = 0.0 if low < 1 else 1.0
        notes.append(f"score: taken for a scale of {low:g} to {high:g} and mapped to 0 to 1; --scale decides")
        return (scores - low) / (high - low)
    if between or high <= 50 or (finite[finite > 0] > 1).mean() <= 0.5:
        doubt = f"scores go from {low:g} to {high:g}: are they fractions, percent or grades?"
        refuse(scores > 1, f", and {doubt} correct the value, or {give}, for example 0:10")
    notes.append("score: taken for percent, and divided by 100; --scale decides")
    return scores / 100.0


def _refuse_mixed(scores: np.ndarray, groups: Groups, place: Callable[[int], str]) -> None:
    """Raises `ValueError` if one model, or category, in `groups` has fractions up to 1 and another scores over 1; `place(i)` locates answer `i`."""
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
        problem = f"{'; '.join(found)} ({place(first)} is {scores[first]:g})"
        hint = "correct the value, bring all to one scale, keep one part (--where COLUMN=VALUE or --models A,B)"
        raise ValueError(f"scores have different scales: {problem}; {hint}, or give the scale of all (--scale 0:100)")


def check_scores(answers: Answers, has_scale: bool) -> None:
    """Raises `ValueError` if other columns show that scores are labels, errors (less is better) or, unless `has_scale`, points out of a maximum."""
    if "score" in answers.given or answers.sheet.preset.name:
        return
    roles, file = answers.roles, answers.sheet.name
    columns, remedy, alike, level = _describe_scores(answers)
    own = set(words(roles.families["score"].pattern if roles.models else str(roles.column("score"))))
    rest = {name: set(words(name)) - WORDS["truths"] for name in alike}
    beside = [name for name in alike if rest[name] and rest[name] <= own]  # As `gold_score` beside `score`.
    if beside or (alike and level <= 1):
        raise _labels_error(answers, columns, beside or alike, remedy)
    free = _free_columns(answers)
    for name in free:
        is_metric = plain_name(name) in _METRICS and level <= 1
        values = _different_values(answers, name) if is_metric or plain_name(name) in _LOWER_IS_BETTER else set()
        if _LOWER_IS_BETTER.get(plain_name(name)) in values:
            problem = f"by column {name!r}, some scores are better the lower they are"
            raise ValueError(f"{file}: {problem}: write all so that higher is better, as 1 - score")
        for metric in map(str, values) if is_metric else ():
            others = any(match_level(role, metric) > 0 for role in PER_MODEL if role not in ("score", "response"))
            if others or WORDS["lower"] & set(words(metric)):
                problem = f"some scores ({columns}) are of the metric {metric!r} (column {name!r}), which is not a score"
                raise ValueError(f"{file}: {problem}: keep those that are ({option('--where', name)}=METRIC)")
        if match_level("score", name) > 0:
            scores = answers.values["score"]
            verdicts = np.array([number_of(cell) for cell in answers.sheet.cells(name)])[answers.row]
            if np.isin(scores, (0, 1)).all() and np.ptp(scores) == 1 and (verdicts == 1 - scores).all():
                problem = f"column {name!r} contradicts the scores ({columns}) in every row"
                hint = option("--column", f"score={name}")
                raise ValueError(f"{file}: {problem}: specify the right one ({hint}), or {remedy}")
    present = np.isfinite(answers.values["score"])
    points = answers.values["score"][present]
    if has_scale or answers.percent is not None or (points % 1).any():
        return
    # Whole scores beside a column of the largest possible number of points.
    names = [n for n in free if WORDS["largest"] & set(words(n)) and set(words(n)) <= WORDS["largest"] | WORDS["points"]]
    if np.isin(points, (0, 1)).all():  # A bare `n` or `total` may count queries or samples.
        names = [name for name in names if {"score", "points", "marks", "mark", "point"} & set(words(name))]
    for name in names:
        most = np.array([number_of(cell) for cell in answers.sheet.cells(name)])[answers.row][present]
        if np.isfinite(most).all() and (most % 1 == 0).all() and (most >= points).all() and 1 < most.max(initial=0) <= 1000:
            how = "add a column of their ratio" if np.ptp(most) else f"give the scale (--scale 0:{most[0]:g})"
            doubt = f"are the scores ({columns}) points of which {name!r} is the largest number?"
            raise ValueError(f"{file}: {doubt} then {how}; if not, {remedy}")


def _labels_error(answers: Answers, columns: str, alike: list[str], remedy: str) -> ValueError:
    doubt = f"are the scores ({columns}) judgements, or labels or predictions as {join_names(map(repr, alike), 3)}?"
    return ValueError(f"{answers.sheet.name}: {doubt} add a column with the correctness of each answer, or {remedy}")


def _describe_scores(answers: Answers) -> tuple[str, str, list[str], float]:
    """Returns a text that names the score columns, how to confirm them, columns like "gold" with equal values, and the name's `match_level`."""
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
    same = [values] if 1 < len(values) <= 20 else []
    same += [{0.0, 1.0}] if numbers else []
    alike = [name for name in truths if _different_values(answers, name) in same]
    return shown, f"confirm that they are judgements ({give})", alike, level


def _free_columns(answers: Answers) -> list[str]:
    taken = {"", *answers.roles.used, *FILE_COLUMNS}
    return [name for name in answers.sheet.single(answers.sheet.names) if name not in taken]


def _different_values(answers: Answers, column: str) -> set[float | str]:
    """Returns the different values of a column: numbers, also for texts such as "0.5" and "yes" (1), and other texts in lower case."""
    cells = answers.sheet.cells(column)
    cells = np.unique(cells) if cells.dtype.kind in "biuf" else cells
    texts = {str(cell).strip().lower() for cell in first_cells(cells, len(cells))}
    numbers = {text: number_of(text) for text in texts}
    return {text if np.isnan(number) else number for text, number in numbers.items()}


def check_same_scores(answers: Answers, scores: np.ndarray) -> None:
    """Raises `ValueError` if models have equal `scores` `[Q, N]` on each query. For few scores, or verdicts in a column "score", only adds a note."""
    if "score" in answers.given or answers.sheet.preset.name or not (scores == scores[:, :1]).all() or np.ptp(scores) == 0:
        return
    columns, remedy, alike, level = _describe_scores(answers)
    if alike:
        raise _labels_error(answers, columns, alike, remedy)
    are_verdicts = np.isin(scores * 4, range(5)).all()
    if not (are_verdicts and level >= 2) and (scores[:, 1:].size >= _MOST_EQUAL or len(np.unique(scores)) > 2):
        doubt = f"all models have the same score on every query ({columns}): is it a property of the queries?"
        raise ValueError(f"{answers.sheet.name}: {doubt} name the column of judgements (--column score=NAME), or {remedy}")
    doubt = "the same for all models on every query"
    answers.notes.append(f"score: {doubt}; if it is a property of the queries, name another column (--column score=NAME)")


def check_models(answers: Answers, scores: np.ndarray, costs: np.ndarray, named: Collection[str]) -> None:
    """Raises `ValueError` if a model seems to be the right answer ("gold") or a statistic of the other models. Models in `named` are accepted."""
    models, parts = answers.models, np.stack([scores, costs])

    def is_close(a: np.ndarray, b: np.ndarray) -> bool:
        return np.allclose(a, b, rtol=0.01, atol=0.006 * np.abs(b).max(initial=0.0))

    for number, model in enumerate(models):
        others = np.arange(len(models)) != number
        why = ""
        if answers.roles.models and plain_name(model) in WORDS["truths"] and not answers.sheet.preset.name:
            why = "it is called like the right answer"
        elif NOT_MODELS & set(words(model)) and len(models) > 2 and len(scores) > 1:
            made = [any(is_close(part[:, number], by(part[:, others], axis=1)) for by in _STATISTICS) for part in parts]
            copied = (parts[:, :, [number]] == parts[:, :, others]).all(axis=0).any(axis=1)
            if all(made) or copied.all():
                why = "on every query its score and cost are a mean, sum, spread or extreme of the others', or those of one of them"
        if why and model not in named:
            left = [other for other in models if other != model]
            only = f"keep the others ({option('--models', ','.join(left))}), or " if len(left) > 1 else ""
            names = option("--models", ",".join(models))
            raise ValueError(f"{answers.sheet.name}: is {model!r} a model? {why}: {only}name all ({names})")


def doubt_means(answers: Answers, means: np.ndarray, unit: str) -> None:
    """Notes implausible mean costs of the models, `[N]`, if `unit` is USD per query."""
    pairs = zip(answers.models, means if unit.startswith("USD per query") else [])
    if implausible := [f"{model} {mean:.3g}" for model, mean in pairs if 0 < mean < _CHEAPEST or mean > _MOST_EXPENSIVE]:
        doubt = f"implausible means in USD per query: {', '.join(implausible[:4])}"
        answers.notes.append(
            f"cost: {doubt}; is the unit another (--unit cost=cents; --price counts USD per million tokens)?"
        )


def doubt_costs(answers: Answers, costs: np.ndarray, unit: str, stated: bool) -> None:
    """Notes doubtful costs `[Q, N]`: implausible means if `unit` is USD per query; if a file `stated` costs, also running sums or scores."""
    models, notes = answers.models, answers.notes
    doubt_means(answers, costs.mean(axis=0), unit)
    if not stated:
        return
    if len(costs) > 2 and (costs == costs[:, :1]).all() and np.ptp(costs) > 0:
        notes.append("cost: doubtful, as all models have the same on each query: is it that of the whole query, or a price?")
    free = [model for model, column in zip(models, costs.T, strict=True) if not column.any() and costs.any()]
    if np.isin(costs, (0, 1)).all() and np.ptp(costs) == 1:
        notes.append("cost: doubtful, as it is 0 or 1: is it a score?")
    if free and np.allclose(costs * 100, np.round(costs * 100), atol=1e-6):
        notes.append(f"cost: 0 for {join_names(free, 4)}: are small costs rounded to 0?")
    values = answers.values["cost"]
    of_models = [values[answers.model == number] for number in range(len(models))]
    is_sorted = (np.diff(values) >= 0).all()  # The file is sorted by costs.
    if not is_sorted and all(len(rows) >= _FEWEST_ROWS and (np.diff(rows) > 0).all() for rows in of_models):
        notes.append("cost: doubtful, as that of every model rises from row to row: is it a running sum?")
