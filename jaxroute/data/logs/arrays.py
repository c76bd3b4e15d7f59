"""An npz file of arrays as answers of models to queries."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.files import ArrayFile, named, open_arrays, some
from jaxroute.data.logs.answers import CALLED, Answers
from jaxroute.data.logs.columns import candidates
from jaxroute.data.public import array_groups

_SCORES = ("scores", "score", "perf", "correct", "quality", "labels", "label")
_COSTS = ("costs", "cost", "total_cost")


def array_answers(path: Path) -> Answers:
    """What an npz file says.

    Raises:
      ValueError: it lacks scores or models, or shapes do not fit; the message names the file and the array.
    """
    with named(path), open_arrays(path) as file:
        return _answers(path, file)


def _answers(path: Path, file: ArrayFile) -> Answers:
    used: set[str] = set()

    def first(*names: str) -> tuple[str, Any]:
        name = next((name for name in names if name in file), None)
        if name is None:
            return "", None
        used.add(name)
        return name, file[name]

    score_name, scores = first(*_SCORES)
    models = first("models", "model_names", "names")[1]
    for value, names in ((scores, _SCORES[:4]), (models, ("models",))):
        if value is None:
            raise ValueError(f"{path} has no array {' or '.join(names)}; it has {some(file.names)}")
    models = np.atleast_1d(models).astype(str).tolist()
    scores = _numbers(path, score_name, scores, (None, len(models)))
    num_queries = len(scores)
    if len(models) < 2:
        raise ValueError(f"{path} has one model, {models[0]!r}: there is nothing to choose; add the scores of another")
    twice = next((model for model in models if models.count(model) > 1), None)
    if twice is not None:
        raise ValueError(f"{path} has the model {twice!r} twice in the array models: rename or remove one")

    def place(query: int, model: int) -> str:
        return f"{path}, array {score_name!r}, row {query} (from 0), model {models[model]!r}"

    answers = Answers(str(path), models, scores, place, score_name, used=used)
    said = answers.said = ["layout: arrays of queries and models", f"score: array {score_name!r}"]
    shapes = {"tokens": (num_queries, len(models)), "price": (len(models),), "query": (num_queries,)}

    cost_name, costs = first(*_COSTS)
    if costs is not None:
        answers.costs = _numbers(path, cost_name, costs, shapes["tokens"])
        wrong = np.isinf(answers.costs) | (answers.costs < 0)
        if wrong.any():
            q, m = map(int, np.argwhere(wrong)[0])
            raise ValueError(
                f"{path}, array {cost_name!r} is {answers.costs[q, m]:g} at row {q} (from 0), model {models[m]!r}; a cost must be finite and at least 0"
            )
        said.append(f"cost: array {cost_name!r}")
    if "cost_unit" in file:
        answers.unit = str(first("cost_unit")[1])
    for role, kind in (
        *(("tokens_in", "tokens"), ("tokens_out", "tokens"), ("response_chars", "tokens"), ("prompt_chars", "query")),
        *(("price_in", "price"), ("price_out", "price"), ("latency", "tokens")),
    ):
        name = next(iter(candidates(role, file.names)), None)
        if name is None:
            continue
        array = file[name]
        if array.shape != shapes[kind]:
            continue
        used.add(name)
        array = _numbers(path, name, array, shapes[kind])
        said.append(f"{CALLED.get(role, role)}: array {name!r}")
        if kind == "price":
            answers.prices[role] = np.tile(array, (num_queries, 1))
        elif role == "latency":
            answers.latency = array / 1000.0 if name.lower().endswith("ms") else array
        else:
            array = np.where(array < 0, np.nan, array)  # -1 where it is not known.
            answers.tokens[role] = array[:, None] if kind == "query" else array
    groups = array_groups(file)
    if groups:
        used |= {
            name
            for name in ("groups", "group_names", "eval_name_idx", "eval_names", "task_idx", "tasks", "eval_name")
            if name in file
        }
        index, names = np.asarray(groups["groups"]), np.asarray(groups["group_names"]).astype(str)
        if index.shape != (num_queries,) or index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= len(names):
            raise ValueError(
                f"{path}: the group numbers must be [{num_queries}] integers from 0 to {len(names) - 1}, got {checks.show(index)}"
            )
        answers.labels = names[index].astype(object)
        said.append(f"category: {len(np.unique(index))} different")
    feature_name, numbers = first("features", "feat", "embeddings", "embedding")
    if numbers is not None:
        answers.numbers = _numbers(path, feature_name, numbers, (num_queries, None))
        wrong = ~np.isfinite(answers.numbers)
        if wrong.any():
            q, k = map(int, np.argwhere(wrong)[0])
            raise ValueError(
                f"{path}, array {feature_name!r} is {answers.numbers[q, k]} at [{q}, {k}]; features must be finite"
            )
        answers.numbers_from = f"array {feature_name!r}"
    text_name, text = first("prompt", "prompts", "text", "texts", "question")
    if text is not None and text.shape == (num_queries,) and text.dtype.kind in "UO":
        answers.text, answers.text_from = text.astype(object), str(text_name)
        said.append(f"text: array {text_name!r}")
    date_name, dates = first("dates", "date", "timestamp")
    if dates is not None and dates.shape == (num_queries,) and dates.dtype.kind == "M":
        answers.dates = dates.astype("datetime64[s]")
        said.append(f"date: array {date_name!r}")
    rows, total = first("rows")[1], first("num_rows")[1]
    answers.num_rows = num_queries if total is None or rows is None else int(total)
    answers.rows = np.arange(num_queries) if rows is None or total is None else np.asarray(rows)
    query_name, _ = first("query_id", "prompt_id", "sample_id", "global_index", "question_id")
    if query_name:
        said.append(f"query: array {query_name!r}, one query per row")
    left = [name for name in file.names if name not in used]
    if left:
        said.append(f"not used: {some(left)}")
    return answers


def _numbers(path: Path, name: str, array: np.ndarray, shape: tuple[int | None, ...]) -> np.ndarray:
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if array.dtype.kind not in "biuf" or not fits or 0 in array.shape:
        wanted = ", ".join("Q" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{path}: the array {name!r} has shape {array.shape} and dtype {array.dtype}; expected [{wanted}] numbers"
        )
    return array.astype(np.float64)
