"""Arrays of queries and models, of an npz file or a `RoutingTable`, as a sheet."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxroute.core import checks

from ..files import join_names
from .names import PER_MODEL, match_level
from .sheet import Sheet

_MODELS = ("models", "model_names", "names")
# Arrays with numbers of categories, and with their names.
_CATEGORIES = (("groups", "group_names"), ("eval_name_idx", "eval_names"), ("task_idx", "tasks"))
_UNCHANGED = ("cost_unit", "rows", "num_rows", "prompts")


def sheet_of_arrays(name: str, arrays: Mapping[str, np.ndarray], about: str) -> tuple[Sheet, dict[str, Any]]:
    """Returns a sheet, and the arrays `cost_unit`, `rows`, `num_rows` and `prompts` if they are there.

    The arrays are `[Q, N]` numbers of each answer, `[Q]` of each query or `[N]` of each model, `models` `[N]`, features
    `[Q, d]`, or one `[Q]` for each model and role; shapes that do not fit together are refused.
    """
    models: list[str] = next((np.atleast_1d(arrays[key]).astype(str).tolist() for key in _MODELS if key in arrays), [])
    for model in models:
        if models.count(model) > 1:
            raise ValueError(f"{name} has the model {model!r} twice in the array models: rename or remove one")
    scores = [array for key, array in arrays.items() if match_level("score", key)]
    size = next((len(array) for array in scores if array.ndim == 2), 0)
    if size and not models:
        raise ValueError(f"{name} has no array models; it has {join_names(arrays)}")
    size = size or max((len(array) for array in arrays.values() if array.ndim), default=0)
    if models and not any(array.ndim == 2 or array.shape == (size,) for array in scores):
        lacks = f"no array scores [Q, {len(models)}] (or score, perf, correct, ...)"
        expected = "models [N] and costs [Q, N], or one array [Q] for each model and role, as score_a and cost_a"
        raise ValueError(f"{name} has {lacks}; expected also {expected}; it has {join_names(arrays)}")
    columns, given, used = _columns_of_models(name, arrays, models, size)
    for index, names in _CATEGORIES:
        if index in arrays and names in arrays and "category" not in given:
            numbers, labels = arrays[index], arrays[names].astype(str)
            is_index = numbers.shape == (size,) and numbers.dtype.kind in "iu"
            if not is_index or numbers.min() < 0 or numbers.max() >= len(labels):
                expected = f"[{size}] integers from 0 to {len(labels) - 1}"
                raise ValueError(f"{name}: {index} must be {expected}, got {checks.show(numbers)}")
            columns[index], given["category"] = labels[numbers].astype(object), index
            used |= {index, names}
    rest = {key: array for key, array in arrays.items() if key not in used}
    for key, array in rest.items():
        if array.shape == (size,):
            columns[key] = array.astype(object) if array.dtype.kind in "US" else array
        elif array.ndim == 2 and len(array) == size and match_level("embedding", key):
            if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
                raise ValueError(f"{name}, array {key!r} must be finite numbers, got {checks.show(array)}")
            columns[key] = np.empty(size, object)
            columns[key][:] = list(array)
    unused = [key for key in rest if key not in columns]
    notes = [f"not used: the arrays {join_names(unused)}"] if unused else []
    sheet = Sheet(name, list(columns), columns.__getitem__, about, notes=notes, given=given)
    return sheet, {key: arrays[key] for key in _UNCHANGED if key in arrays}


def _columns_of_models(
    name: str, arrays: Mapping[str, np.ndarray], models: list[str], size: int
) -> tuple[dict[str, np.ndarray], dict[str, str], set[str]]:
    """Columns of each model, the pattern of their names by role, and the arrays that were used."""
    columns: dict[str, np.ndarray] = {}
    given: dict[str, str] = {}
    used = {*_MODELS, *_UNCHANGED}
    for key, array in arrays.items():
        role = max(PER_MODEL, key=lambda role: match_level(role, key))
        fits = bool(models) and array.shape in ((size, len(models)), (len(models),)) and not match_level("embedding", key)
        if key in used or not match_level(role, key) or not (fits or (array.ndim == 2 and role == "score")):
            continue
        wrong = ""
        if not fits:
            wrong = f"has shape {array.shape}; expected [Q, {len(models)}] numbers, a column for each of models"
        elif array.dtype.kind not in "biuf":
            wrong = f"has dtype {array.dtype}; expected numbers"
        elif array.ndim == 1 and size == len(models):
            wrong = f"has {size} numbers, as there are queries and models: write it as [Q, N]"
        elif role in given:
            wrong = f"could be the {role}, as {given[role][:-2]!r} could: leave one out"
        if wrong:
            raise ValueError(f"{name}: the array {key!r} {wrong}")
        used.add(key)
        given[role] = f"{key}.*"
        wide = np.broadcast_to(array, (size, len(models)))
        columns |= {f"{key}.{model}": wide[:, place] for place, model in enumerate(models)}
    return columns, given, used
