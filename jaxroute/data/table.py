"""Tables of recorded queries, with the score and the cost of each model on each query."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .files import errors_name, file_path, join_names, read_arrays


@dataclass(frozen=True, eq=False, repr=False)
class RoutingTable:
    """Complete scores and costs of `N` models on `Q` queries, on which any router can be replayed.

    The arrays are copied, checked and made read-only.

    Attributes:
      scores: `[Q, N]` float32 in `[0, 1]`.
      costs: `[Q, N]` float32, at least 0, in `cost_unit`.
      models: the `N` model names, all different.
      features: `[Q, d]` float32 numbers that describe each query, or None.
      groups: `[Q]` int32 index into `group_names`, for example of the benchmark a query comes from, or None.
      group_names: names of the groups; empty without `groups`.
      cost_unit: unit of a cost.
      rows: `[Q]` int64 row of each query in the file or arrays. If each answer has its own row there, queries are numbered as they appear.
      num_rows: number of rows of the file, or of its queries if each answer has its own row.
      prompts: `[Q]` int32 index of each query's prompt, equal for copies of one prompt; None if prompts are unknown, so that
        each query counts as different. Copies stay together wherever queries are split.

    Raises:
      ValueError: an argument has the wrong shape or an impossible value; the message names the argument and the place.
    """

    scores: np.ndarray
    costs: np.ndarray
    models: tuple[str, ...]
    features: np.ndarray | None = None
    groups: np.ndarray | None = None
    group_names: tuple[str, ...] = ()
    cost_unit: str = "USD per query"
    rows: Any = None
    num_rows: Any = None
    prompts: np.ndarray | None = None

    def __post_init__(self) -> None:
        models = _names("models", self.models)
        scores = _floats("scores", self.scores)
        if scores.ndim != 2 or 0 in scores.shape:
            raise ValueError(f"scores has shape {scores.shape}; expected [Q, N] with at least one query and one model")
        num_queries, num_models = scores.shape
        if len(models) != num_models:
            raise ValueError(f"models has {len(models)} names; expected {num_models}, one per column of scores")
        costs = _floats("costs", self.costs)
        if costs.shape != scores.shape:
            hint = ", for example numpy.tile(costs, (Q, 1))" if costs.shape == (num_models,) else ""
            raise ValueError(f"costs has shape {costs.shape}; expected {scores.shape}, the shape of scores{hint}")

        _refuse("scores", scores, ~np.isfinite(scores), "must be finite", models)
        _refuse("costs", costs, ~np.isfinite(costs), "must be finite", models)
        are_percent = scores.min() >= 0 and scores.mean() > 1 and scores.max() <= 100
        hint = "; are they percent? divide them by 100" if are_percent else ""
        _refuse("scores", scores, (scores < 0) | (scores > 1), f"must lie in [0, 1]{hint}", models)
        _refuse("costs", costs, costs < 0, "must be at least 0", models)

        features, groups, prompts = self.features, self.groups, self.prompts
        if features is not None:
            features = _floats("features", features)
            if features.ndim != 2 or features.shape[0] != num_queries:
                raise ValueError(f"features has shape {features.shape}; expected [{num_queries}, d], one row per query")
            _refuse("features", features, ~np.isfinite(features), "must be finite")

        group_names = _names("group_names", self.group_names)
        if groups is None and group_names:
            raise ValueError(f"group_names has {len(group_names)} names but groups is None; give both or neither")
        if groups is not None:
            rule = f"must index group_names, 0 to {len(group_names) - 1}"
            groups = _integers("groups", groups, num_queries, len(group_names), rule)
        if prompts is not None:
            prompts = _integers("prompts", prompts, num_queries, 2**31, "must be numbers of prompts, 0 to 2^31 - 1")

        rows = np.arange(num_queries) if self.rows is None else np.array(self.rows)
        num_rows = num_queries if self.num_rows is None else int(self.num_rows)
        if rows.shape != (num_queries,) or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= num_rows:
            raise ValueError(f"rows must be [{num_queries}] integers from 0 to num_rows - 1 = {num_rows - 1}, got {rows}")

        # The fields of a frozen dataclass cannot be assigned.
        vars(self).update(scores=scores, costs=costs, models=models, features=features, prompts=prompts, num_rows=num_rows)
        vars(self).update(groups=groups, group_names=group_names, cost_unit=str(self.cost_unit))
        vars(self)["rows"] = _frozen(rows.astype(np.int64))

    @property
    def currency(self) -> str:
        """Currency of costs: `cost_unit` without "per query"."""
        return self.cost_unit.split(" per ")[0]

    @property
    def num_queries(self) -> int:
        """Number `Q` of queries."""
        return self.scores.shape[0]

    @property
    def num_models(self) -> int:
        """Number `N` of models."""
        return self.scores.shape[1]

    def subset(
        self, models: Sequence[str] | None = None, rows: slice | Sequence[int] | np.ndarray | None = None
    ) -> "RoutingTable":
        """Returns a table with only some models, some queries, or both; `group_names` stays complete.

        Args:
          models: names in the new order; None keeps all.
          rows: a slice, indices of queries (repeats allowed) or a `[Q]` boolean mask; None keeps all.

        Raises:
          ValueError: a model is not in the table, or nothing would be left.
          IndexError: `rows` points outside the table.
        """
        names = self.models if models is None else _names("models", models)
        if unknown := [name for name in names if name not in self.models]:
            raise ValueError(f"models has {unknown[0]!r}, which the table lacks; it has {', '.join(self.models)}")
        columns = [self.models.index(name) for name in names]
        if rows is None:
            rows = slice(None)
        elif not isinstance(rows, slice):
            rows = np.atleast_1d(rows)
            rows = rows if rows.size else rows.astype(np.intp)  # NumPy takes an empty list for floats.
        try:
            index = np.arange(self.num_queries)[rows]
        except IndexError as error:
            raise IndexError(f"rows does not fit a table of {self.num_queries} queries: {error}") from error
        parts = {"scores": self.scores[index][:, columns], "costs": self.costs[index][:, columns], "models": names}
        fields_of_queries = {name: getattr(self, name) for name in ("features", "groups", "rows", "prompts")}
        parts |= {name: value[index] for name, value in fields_of_queries.items() if value is not None}
        return replace(self, **parts)

    def with_features(self, features: np.ndarray | None) -> "RoutingTable":
        """Returns the same table with other features; None removes them.

        The `features` are `[Q, d]` in the order of the table's queries, or `[num_rows, d]` in the order of the file's rows.
        Raises `ValueError` if they have another number of rows, or a value is not finite.
        """
        if features is not None and self.num_rows != self.num_queries:
            found = len(features) if np.ndim(features) else 0
            if found == self.num_rows:
                features = np.asarray(features)[self.rows]
            elif found != self.num_queries:
                expected = f"{self.num_queries}, one per query, or {self.num_rows}, one per row of the file"
                raise ValueError(f"features has {found} rows; expected {expected}")
        return replace(self, features=features)

    def mean_scores(self) -> np.ndarray:
        """Returns the `[N]` float64 mean score of each model."""
        return self.scores.mean(axis=0, dtype=np.float64)

    def mean_costs(self) -> np.ndarray:
        """Returns the `[N]` float64 mean cost of each model, in `cost_unit`."""
        return self.costs.mean(axis=0, dtype=np.float64)

    def order_by_cost(self) -> "RoutingTable":
        """Returns the same table with its models sorted by mean cost, the cheapest first; models of equal cost keep their order."""
        return self.subset(models=[self.models[i] for i in np.argsort(self.mean_costs(), kind="stable")])

    def to_frame(self) -> pd.DataFrame:
        """Returns a data frame with a row per query and model: `query` (an index), `model`, `score`, `cost` and, with groups, `group` (a name)."""
        query = np.repeat(np.arange(self.num_queries), self.num_models)
        model = np.tile(np.array(self.models, object), self.num_queries)
        frame = pd.DataFrame({"query": query, "model": model, "score": self.scores.ravel(), "cost": self.costs.ravel()})
        if self.groups is not None:
            frame["group"] = np.array(self.group_names, object)[self.groups[query]]
        return frame

    def save(self, path: str | os.PathLike) -> None:
        """Writes the table to `path` as a compressed npz file whose arrays have the names of the fields."""
        file_path(path)
        arrays = {name: value for name, value in vars(self).items() if value is not None}
        if self.groups is None:
            del arrays["group_names"]
        if np.array_equal(self.rows, np.arange(self.num_rows)):
            del arrays["rows"], arrays["num_rows"]
        with open(path, "wb") as file:  # An open file keeps its name; a path would get ".npz" appended.
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "RoutingTable":
        """Reads a table that `save` has written; for other files see `jaxroute.data.read_log`.

        Raises `ValueError` if an array is missing, or has a wrong shape or an impossible value.
        """
        with errors_name(path):
            file = read_arrays(path)
            if missing := [name for name in ("scores", "costs", "models", "cost_unit") if name not in file]:
                raise ValueError(f"{path} lacks {', '.join(missing)}; it has {join_names(file)}")
            arrays: dict[str, Any] = {field.name: file[field.name] for field in fields(cls) if field.name in file}
            arrays |= {name: arrays[name].ravel().tolist() for name in ("models", "group_names") if name in arrays}
            return cls(**arrays)

    def __repr__(self) -> str:
        features = "" if self.features is None else f", {self.features.shape[1]} features"
        groups = "" if self.groups is None else f", {len(self.group_names)} groups"
        size = f"{self.num_queries} queries x {self.num_models} models"
        return f"RoutingTable({size}, cost in {self.cost_unit}{features}{groups})"


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _floats(argument: str, values: ArrayLike) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):  # An overflow becomes inf, which is refused by name.
            return _frozen(np.array(values, dtype=np.float32))
    except (TypeError, ValueError) as error:
        reason = "rows of different lengths" if "inhomogeneous" in str(error) else error
        raise ValueError(f"{argument} must be an array of numbers: {reason}") from error


def _integers(argument: str, numbers: ArrayLike, num_queries: int, end: int, rule: str) -> np.ndarray:
    """Returns `numbers` as read-only int32. There must be one for each query, from 0 to `end - 1`; errors name `argument` and end with `rule`."""
    numbers = np.asarray(numbers)
    if numbers.shape != (num_queries,) or numbers.dtype.kind not in "iu":
        found = f"shape {numbers.shape} and dtype {numbers.dtype}"
        raise ValueError(f"{argument} has {found}; expected [{num_queries}] integers")
    _refuse(argument, numbers, (numbers < 0) | (numbers >= end), rule)
    return _frozen(numbers.astype(np.int32))


def _names(argument: str, names: str | Iterable[object]) -> tuple[str, ...]:
    """Converts names to a tuple of texts; raises an error about `argument` if a name is repeated."""
    if not isinstance(names, Iterable):
        raise ValueError(f"{argument} must be names, got {names!r}")
    names = (names,) if isinstance(names, str) else tuple(str(name) for name in names)
    if repeated := sorted(name for name, number in Counter(names).items() if number > 1):
        raise ValueError(f"{argument} has {repeated[0]!r} more than once; names must differ")
    return names


def _refuse(argument: str, values: np.ndarray, wrong: np.ndarray, rule: str, models: Sequence[str] = ()) -> None:
    """Raises an error if the mask `wrong` is True anywhere: it names `argument`, the first such value, its row and model (or indices), and `rule`."""
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        where = f"row {place[0]}, model {models[place[1]]!r}" if models else f"[{', '.join(map(str, place))}]"
        raise ValueError(f"{argument} is {values[place]} at {where}; {argument} {rule}")
