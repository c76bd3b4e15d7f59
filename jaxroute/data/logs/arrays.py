"""Arrays of queries and models, of an npz file or a `RoutingTable`, as named columns."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.files import some
from jaxroute.data.logs.files import Sheet
from jaxroute.data.logs.names import PER_MODEL, level

# Numbers of categories, and their names.
_INDEXED = (("groups", "group_names"), ("eval_name_idx", "eval_names"), ("task_idx", "tasks"))
_KEPT = ("cost_unit", "rows", "num_rows", "prompts")


def sheet_of_arrays(name: str, arrays: Mapping[str, np.ndarray], about: str) -> tuple[Sheet, dict[str, Any]]:
    """Returns named columns, and the arrays `cost_unit`, `rows`, `num_rows` and `prompts` if they are there.

    Args:
      name: name of the file.
      arrays: arrays by name: `[Q, N]` numbers of each answer, `[Q]` of each query, `[N]` of each model, `models` `[N]`, features `[Q, d]`, or one
        array `[Q]` for each model and role as in `read_log`.
      about: kind of the file, in words.

    Raises:
      ValueError: shapes do not fit together.
    """
    models = next(
        (np.atleast_1d(arrays[key]).astype(str).tolist() for key in ("models", "model_names", "names") if key in arrays), []
    )
    twice = next((model for model in models if models.count(model) > 1), None)
    if twice is not None:
        raise ValueError(f"{name} has the model {twice!r} twice in the array models: rename or remove one")
    scores = {key: array for key, array in arrays.items() if array.ndim == 2 and level("score", key)}
    if scores and not models:
        raise ValueError(f"{name} has no array models; it has {some(arrays)}")
    size = next((len(array) for array in scores.values()), 0) or max((len(a) for a in arrays.values() if a.ndim), default=0)
    if models and not scores and not any(array.shape == (size,) and level("score", key) for key, array in arrays.items()):
        raise ValueError(
            f"{name} has no array scores [Q, {len(models)}] (or score, perf, correct, ...); expected also models [N] and costs [Q, N], or one array [Q] "
            f"for each model and role, as score_a and cost_a; it has {some(arrays)}"
        )
    columns: dict[str, np.ndarray] = {}
    given: dict[str, str] = {}
    used = {"models", "model_names", "names", *_KEPT}
    for key, array in arrays.items():
        role = max(PER_MODEL, key=lambda role: level(role, key))
        if key in used or not level(role, key):
            continue
        if array.shape in ((size, len(models)), (len(models),)) and models and not level("embedding", key):
            if array.dtype.kind not in "biuf":
                raise ValueError(f"{name}: the array {key!r} has dtype {array.dtype}; expected numbers")
            if array.ndim == 1 and size == len(models):
                raise ValueError(
                    f"{name}: the array {key!r} has {size} numbers, as there are queries and models: write it as [Q, N]"
                )
            if role in given:
                raise ValueError(
                    f"{name}: the arrays {given[role][:-2]!r} and {key!r} could both be the {role}: leave one out"
                )
            used.add(key)
            given[role] = f"{key}.*"
            wide = np.broadcast_to(array, (size, len(models)))
            columns |= {f"{key}.{model}": wide[:, place] for place, model in enumerate(models)}
        elif array.ndim == 2 and role == "score":
            raise ValueError(
                f"{name}: the array {key!r} has shape {array.shape}; expected [Q, {len(models)}] numbers, a column for each of models"
            )
    for index, names in _INDEXED:
        if index in arrays and names in arrays and "category" not in given:
            numbers, labels = arrays[index], arrays[names].astype(str)
            if (
                numbers.shape != (size,)
                or numbers.dtype.kind not in "iu"
                or numbers.min() < 0
                or numbers.max() >= len(labels)
            ):
                raise ValueError(
                    f"{name}: {index} must be [{size}] integers from 0 to {len(labels) - 1}, got {checks.show(numbers)}"
                )
            columns[index], given["category"] = labels[numbers].astype(object), index
            used |= {index, names}
    for key, array in arrays.items():
        if key in used:
            continue
        if array.ndim == 1 and len(array) == size:
            columns[key] = array.astype(object) if array.dtype.kind in "US" else array
        elif array.ndim == 2 and len(array) == size and level("embedding", key):
            if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
                raise ValueError(f"{name}, array {key!r} must be finite numbers, got {checks.show(array)}")
            columns[key] = np.empty(size, object)
            columns[key][:] = list(array)
    sheet = Sheet(name, list(columns), columns.__getitem__, about)
    sheet.given = given
    left = [key for key in arrays if key not in used and key not in columns]
    if left:
        sheet.notes.append(f"not used: the arrays {some(left)}")
    return sheet, {key: arrays[key] for key in _KEPT if key in arrays}
