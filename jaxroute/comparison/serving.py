"""Routing strategies that were fitted to a log, ready for new queries: they name the model to call first and, after each answer, the next, if any."""

import dataclasses
import io
import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data import Log
from jaxroute.data.features import Directions, Reader, Standardisation, Words
from jaxroute.data.predictors import Design, Logistic, Neighbours
from jaxroute.offpolicy.crossfit import Linear

from .offline.cascade import LEARNED, Cascade
from .offline.measure import fit_rule
from .offline.part import CachedPredictor, Constant, Judge
from .offline.router import BEST_MIXTURE, LOGISTIC, NEIGHBOURS, Mixture, RandomRouter, Router
from .offline.sample import Sample
from .page.write import put, write
from .points import Point, Summary

FILE = "choice.npz"  # Name of the saved strategy in the folder of a report.
_FORMAT = 1  # Version of the format of a saved file.
# Strategies whose rules can be saved, by name.
_FITTED = {strategy.name: strategy for strategy in (BEST_MIXTURE, NEIGHBOURS, LOGISTIC, LEARNED)}


@dataclass(frozen=True, eq=False)
class Strategy:
    """Routing strategy that was fitted to a whole log and routes single queries.

    Attributes:
      name: name of the strategy.
      setting: description of the fitted rule in words.
      rule: fitted rule.
      reader: object whose method `of` converts texts or long embeddings to features; None if numbers are used as given, or not at all.
      width: number of features of a query; 0 if the rule uses none.
      categories: names of the categories of queries in the log.
      unit: unit of the costs of answers.
    """

    name: str
    setting: str
    rule: Mixture | Router | RandomRouter | Cascade
    reader: Reader = None
    width: int = 0
    categories: tuple[str, ...] = ()
    unit: str = "USD per query"

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, from the cheapest to the most expensive."""
        return self.rule.models

    def predict(self, queries: Any, *, categories: Sequence[str | None] | None = None) -> list[str]:
        """Returns the name of the model to call first for each query; a random strategy draws at every call.

        Args:
          queries: `Q` texts if the log's features were made of texts, or `[Q, d]` features; any list of length `Q` if the rule uses no features.
          categories: `[Q]` categories of the queries, if the log has categories; None otherwise. An unknown category counts as none.

        Raises:
          ValueError: an input of the rule is missing, or has another form than in the log: no text, or another number of features.
        """
        if isinstance(queries, str) or not hasattr(queries, "__len__"):
            got = f"{checks.show(queries)}; for one give [query]"
            raise ValueError(f"queries must be a list of texts or rows of numbers, got {got}")
        number = len(queries)
        groups = self._groups([None] * number if categories is None else list(categories))
        if groups is not None and len(groups) != number:
            raise ValueError(f"categories must be a list of {number}, one for each query, got {checks.show(categories)}")
        if not number:
            return []
        none = np.zeros((number, len(self.models)))
        sample = Sample(self.models, none, none, None, self._features(queries), groups)
        first_models = (self.rule.next_model(sample.take(np.array([q])), (), random.random()) for q in range(number))
        # A rule always calls a model before the first answer.
        return [self.models[first] for first in first_models if first is not None]

    def model(
        self,
        text: str | None = None,
        *,
        features: Any = None,
        category: str | None = None,
        asked: Mapping[str, float] | None = None,
        draw: float | None = None,
    ) -> str | None:
        """Returns the name of the model to call for a query; None if the last answer is to be served.

        Args:
          text: text of the query, if the log's features were made of texts.
          features: `[d]` features of the query, if the log had features.
          category: category of the query, if the log has categories; an unknown category counts as none.
          asked: costs, in `unit`, of the answers to this query so far, by model in the order of the calls; None before the first call.
          draw: number in [0, 1) instead of a random one, for a strategy that chooses at random.

        Raises:
          ValueError: an input of the rule is missing or has another form than in the log, or `asked` contradicts the rule.
        """
        paid = {} if asked is None else asked
        numbers = [self.models.index(checks.one_of("a model in asked", name, self.models)) for name in paid]
        costs = np.zeros((1, len(self.models)))
        for number, (name, cost) in zip(numbers, paid.items(), strict=True):
            costs[0, number] = float(checks.non_negative(f"asked[{name!r}]", cost, ()))
        values = self._features([text] if isinstance(self.reader, Words) else None if features is None else [features])
        sample = Sample(self.models, np.zeros_like(costs), costs, None, values, self._groups([category]))
        chosen = self.rule.next_model(sample, numbers, random.random() if draw is None else draw)
        return None if chosen is None else self.models[chosen]

    def _features(self, queries: Any) -> np.ndarray | None:
        """Converts `Q` texts or rows of numbers to features `[Q, d]`. Returns None if the rule uses no features."""
        if not self.width:
            return None
        if isinstance(self.reader, Words):
            for text in queries:
                if not isinstance(text, str):
                    raise ValueError(f"text must be that of the query, which {self.name} uses, got {checks.show(text)}")
            return self.reader.of(queries).astype(np.float64)
        length = self.reader.components.shape[1] if isinstance(self.reader, Directions) else self.width
        if queries is None:
            raise ValueError(f"features must be {length} numbers of the query, as in the log, got None")
        numbers = checks.numbers("features", queries, (len(queries), length))
        return numbers if self.reader is None else self.reader.of(numbers).astype(np.float64)

    def _groups(self, categories: Sequence[str | None]) -> np.ndarray | None:
        if not self.categories:
            return None
        if None in categories and not self.width:
            raise ValueError(f"category must be that of the query, which {self.name} uses, got None")
        return np.array([self.categories.index(c) if c in self.categories else -1 for c in categories], int)

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Writes the strategy to a file for `load_strategy`, completely or not at all."""
        arrays: list[np.ndarray] = []
        content = json.dumps({"format": _FORMAT, "strategy": _packed(self, arrays)})
        stream = io.BytesIO()
        named: dict[str, Any] = {f"a{i}": array for i, array in enumerate(arrays)}
        np.savez_compressed(stream, strategy=np.array(content), **named)
        return put(Path(file), stream.getvalue())

    def __repr__(self) -> str:
        return f"Strategy({self.name}: {self.setting})"


def load_strategy(file: str | os.PathLike[str]) -> Strategy:
    """Reads a saved routing strategy. No code in the file is executed.

    Raises:
      ValueError: the file holds no strategy, or has another format.
      OSError: the file cannot be read.
    """
    try:
        with np.load(file, allow_pickle=False) as arrays:
            content = json.loads(str(arrays["strategy"]))
            if content["format"] != _FORMAT:
                raise ValueError(f"its format is {content['format']}, and this jaxroute reads {_FORMAT}: compare again")
            strategy = _unpacked(content["strategy"], arrays)
            if not isinstance(strategy, Strategy):
                raise ValueError(f"it holds a {type(strategy).__name__}")
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{file} must be a routing strategy that `jaxroute compare` saved: {error}") from None
    return strategy


# Classes that may occur in a saved strategy: rules, predictors, and parts of predictors.
_RULES, _PREDICTORS = (Strategy, Router, RandomRouter, Cascade, Mixture), (Constant, Judge, Linear, Logistic, Neighbours)
_PARTS = (Design, Words, Directions, Standardisation)
_CLASSES: dict[str, type] = {part.__name__: part for part in (*_RULES, *_PREDICTORS, *_PARTS)}


def _packed(value: Any, arrays: list[np.ndarray]) -> Any:
    """Converts a value to JSON-compatible objects. Its arrays are appended to `arrays`, and the JSON refers to them by index."""
    if isinstance(value, CachedPredictor):
        return _packed(value.predictor, arrays)
    if type(value).__name__ in _CLASSES:
        fields = {field.name: _packed(getattr(value, field.name), arrays) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": fields}
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, tuple):
        return [_packed(part, arrays) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(value: Any, arrays: Any) -> Any:
    if isinstance(value, list):
        return tuple(_unpacked(part, arrays) for part in value)
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[f"a{value['array']}"]
    return _CLASSES[value["class"]](**{name: _unpacked(part, arrays) for name, part in value["fields"].items()})


def write_report(summary: Summary, strategy: Strategy | None, folder: Path) -> list[Path]:
    """Writes the page of a comparison, its numbers and pictures, and a strategy for new queries (None: none) to a folder. Returns the paths."""
    files = write(summary, folder)
    if strategy is None:
        (folder / FILE).unlink(missing_ok=True)  # An earlier comparison may have saved it.
        return files
    return [*files, strategy.save(folder / FILE)]


def can_be_saved(point: Point) -> bool:
    """Whether a point's strategy can be saved as a `Strategy` for new queries: a single model, or a rule fitted to a log without a perfect judge."""
    return point.kind == "single" or (point.kind == "offline" and point.strategy in _FITTED)


def strategy_of(log: Log, point: Point) -> Strategy:
    """Returns the routing strategy of a point, fitted to the whole log. Raises `ValueError` unless the point `can_be_saved`."""
    table = log.table
    if not can_be_saved(point):
        rules = ", ".join(_FITTED)
        raise ValueError(f"point must be a single model or one of {rules}, which are fitted to a log, got {point.strategy}")
    if point.kind == "single":
        models = table.order_by_cost().models
        index = models.index(point.strategy)
        return Strategy(point.strategy, "for every query", Mixture(models, index, index, 0.0), unit=table.cost_unit)
    assert point.tuned is not None
    rule = fit_rule(_FITTED[point.strategy], table, point.tuned)
    if isinstance(rule, Mixture):
        return Strategy(point.strategy, str(rule), rule, unit=table.cost_unit)
    width = 0 if table.features is None else table.features.shape[1]
    names = () if table.groups is None else tuple(map(str, table.group_names))
    return Strategy(point.strategy, str(rule), rule, log.reader, width, names, table.cost_unit)


def snippet(log: Log, point: Point, file: str) -> str:
    """Returns Python code that routes a new query with the strategy of `point`, which is saved in `file`."""
    is_blind = point.kind == "single" or point.strategy == BEST_MIXTURE.name
    inputs = [] if is_blind else inputs_of(log.reader, log.table.features is not None, log.table.groups is not None)
    return code_for(inputs, file, is_cascade=point.strategy == LEARNED.name)


def inputs_of(reader: Reader, has_features: bool, has_categories: bool) -> list[str]:
    """Returns the arguments of `Strategy.model` for a new query, as Python code."""
    features = "text" if isinstance(reader, Words) else "features=numbers"
    return [*([features] if has_features else []), *(["category=category"] if has_categories else [])]


def code_for(inputs: Sequence[str], file: str, is_cascade: bool = False) -> str:
    """Returns Python code that routes a new query with the strategy in `file`, given the arguments `inputs` of `Strategy.model` as code."""
    given = ", ".join(inputs)
    lines = ["import jaxroute", "", f"strategy = jaxroute.comparison.load_strategy({file!r})"]
    if not is_cascade:
        return "\n".join([*lines, f"model = strategy.model({given})  # the name of the model to call for a query"])
    also = ", ".join([*inputs, "asked=asked"])
    loop = (
        f"asked, model = {{}}, strategy.model({given})  # the model to call first for a query",
        "while model is not None:",
        "    answer, cost = call(model)  # your function: calls a model and returns the cost of the answer",
        "    asked[model] = cost",
        f"    model = strategy.model({also})  # the model to call next; None: serve the last answer",
    )
    return "\n".join([*lines, *loop])
