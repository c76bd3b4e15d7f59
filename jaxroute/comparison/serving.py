"""A way of routing that was fitted to a log, for queries that are new: whom to ask, and whom to ask next."""

import dataclasses
import io
import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jaxroute.core import checks
from jaxroute.data import Log
from jaxroute.data.features import Standardisation
from jaxroute.data.logs.features import Directions, Reader, Words
from jaxroute.data.predictors import Design, Logistic, Neighbours

from .offline import fit_cascade, fit_mixture, fit_router
from .offline.cascade import LEARNED, Cascade
from .offline.mixture import BestMixture, Mixture
from .offline.part import Constant, Judge, Remembering
from .offline.router import LOGISTIC, NEIGHBOURS, Router
from .offline.sample import Sample
from .page.write import put
from .points import Point

FILE = "choice.npz"
# The form of a saved file.
_FORM = 1
# How the rule of an approach is fitted to a table, tuned to a quality.
_FITTED = {
    BestMixture.name: fit_mixture,
    NEIGHBOURS.name: lambda table, target: fit_router(table, target, by="neighbours"),
    LOGISTIC.name: lambda table, target: fit_router(table, target, by="logistic"),
    LEARNED.name: lambda table, target: fit_cascade(table, target, judge="learned"),
}


class Rule(Protocol):
    """A fitted rule that decides on one query. `str` says it in words."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names."""
        ...

    def following(self, sample: Sample, asked: Sequence[int], draw: float) -> int | None:
        """The model to ask next for the one query of a sample, None where the last answer is served.

        Args:
          sample: one query; costs are those of the answers that are there, scores are not looked at.
          asked: numbers of the models that have answered, in order.
          draw: a number drawn in [0, 1).
        """
        ...


@dataclass(frozen=True, eq=False)
class Way:
    """A way of routing, fitted to a whole log, that decides on queries one by one.

    Attributes:
      approach: its name.
      setting: its rule in words.
      rule: what decides.
      reader: makes features of texts or of long embeddings; None where numbers are taken as they are, or nothing is looked at.
      width: numbers that describe a query to the rule; 0 for none.
      categories: names of categories that the rule tells apart.
      unit: of the costs of answers.
    """

    approach: str
    setting: str
    rule: Rule
    reader: Reader = None
    width: int = 0
    categories: tuple[str, ...] = ()
    unit: str = "USD per query"

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, from the cheapest on."""
        return self.rule.models

    def predict(self, queries: Any, *, categories: Sequence[str | None] | None = None) -> list[str]:
        """The names of the models to ask first, one for each query.

        Args:
          queries: texts, where the log's features were made of texts; else `[Q, d]` features. A way that looks at neither counts them.
          categories: `[Q]` of the queries, where the log has categories.

        Raises:
          ValueError: something is lacking that the rule looks at, or is not what it was fitted to.
        """
        if isinstance(queries, str) or not hasattr(queries, "__len__"):
            raise ValueError(
                f"queries must be a list of texts or rows of numbers, got {checks.show(queries)}; for one give [query]"
            )
        number = len(queries)
        groups = self._groups([None] * number if categories is None else list(categories))
        if groups is not None and len(groups) != number:
            raise ValueError(f"categories must be a list of {number}, one for each query, got {checks.show(categories)}")
        if not number:
            return []
        none = np.zeros((number, len(self.models)))
        sample = Sample(self.models, none, none, None, self._described(queries), groups)
        asked = (self.rule.following(sample.take(np.array([q])), (), random.random()) for q in range(number))
        return [self.models[first] for first in asked if first is not None]  # Before any answer there is a model to ask.

    def model(
        self,
        text: str | None = None,
        *,
        features: Any = None,
        category: str | None = None,
        asked: Mapping[str, float] | None = None,
        draw: float | None = None,
    ) -> str | None:
        """The name of the model to ask for a query.

        Args:
          text: of the query, where the log's features were made of texts.
          features: `[d]` numbers of the query, where they were the log's own.
          category: of the query, where the log has categories; one that it has not is like none.
          asked: what the answers to this query cost that are already there, by model, in the order in which the models were asked.
          draw: in [0, 1), in place of a draw, for a way that leaves something to probability.

        Returns:
          The model; None if the last answer is to be served.

        Raises:
          ValueError: something is lacking that the rule looks at, or is not what it was fitted to.
        """
        there = {} if asked is None else asked
        numbers = [self.models.index(checks.one_of("a model in asked", name, self.models)) for name in there]
        costs = np.zeros((1, len(self.models)))
        for number, (name, cost) in zip(numbers, there.items(), strict=True):
            costs[0, number] = float(checks.non_negative(f"asked[{name!r}]", cost, ()))
        described = self._described([text] if isinstance(self.reader, Words) else None if features is None else [features])
        sample = Sample(self.models, np.zeros_like(costs), costs, None, described, self._groups([category]))
        chosen = self.rule.following(sample, numbers, random.random() if draw is None else draw)
        return None if chosen is None else self.models[chosen]

    def _described(self, queries: Any) -> np.ndarray | None:
        """`[Q, d]` what the rule sees of texts or numbers, or None."""
        if not self.width:
            return None
        if isinstance(self.reader, Words):
            for text in queries:
                if not isinstance(text, str):
                    raise ValueError(
                        f"text must be that of the query, which {self.approach} looks at, got {checks.show(text)}"
                    )
            return self.reader.of(queries).astype(np.float64)
        length = self.reader.components.shape[1] if isinstance(self.reader, Directions) else self.width
        if queries is None:
            raise ValueError(f"features must be {length} numbers of the query, as the log had, got None")
        numbers = checks.numbers("features", queries, (len(queries), length))
        return numbers if self.reader is None else self.reader.of(numbers).astype(np.float64)

    def _groups(self, categories: Sequence[str | None]) -> np.ndarray | None:
        if not self.categories:
            return None
        if None in categories and not self.width:
            raise ValueError(f"category must be that of the query, which {self.approach} looks at, got None")
        return np.array([self.categories.index(c) if c in self.categories else -1 for c in categories], int)

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Writes it into a file, whole or not at all; `load_way` reads it."""
        arrays: list[np.ndarray] = []
        said = json.dumps({"form": _FORM, "way": _packed(self, arrays)})
        stream = io.BytesIO()
        named: dict[str, Any] = {f"a{i}": array for i, array in enumerate(arrays)}
        np.savez_compressed(stream, way=np.array(said), **named)
        return put(Path(file), stream.getvalue())

    def __repr__(self) -> str:
        return f"Way({self.approach}: {self.setting})"


def load_way(file: str | os.PathLike[str]) -> Way:
    """A way of routing that was saved; nothing in the file is executed.

    Raises:
      ValueError: the file is none of a way, or of another form.
      OSError: it cannot be read.
    """
    try:
        with np.load(file, allow_pickle=False) as arrays:
            said = json.loads(str(arrays["way"]))
            if said["form"] != _FORM:
                raise ValueError(f"its form is {said['form']}, and this jaxroute reads {_FORM}: compare again")
            way = _unpacked(said["way"], arrays)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{file} must be a way of routing that `jaxroute compare` saved: {error}") from None
    if not isinstance(way, Way):
        raise ValueError(f"{file} must be a way of routing that `jaxroute compare` saved")
    return way


# What a saved way may be made of.
_PARTS = {
    part.__name__: part
    for part in (
        Way,
        Router,
        Cascade,
        Mixture,
        Constant,
        Judge,
        Logistic,
        Neighbours,
        Design,
        Words,
        Directions,
        Standardisation,
    )
}


def _packed(value: Any, arrays: list[np.ndarray]) -> Any:
    """A value as JSON, its arrays put into a list."""
    if isinstance(value, Remembering):
        return _packed(value.predictor, arrays)
    if type(value).__name__ in _PARTS:
        fields = {field.name: _packed(getattr(value, field.name), arrays) for field in dataclasses.fields(value)}
        return {"is": type(value).__name__, "of": fields}
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, tuple):
        return [_packed(part, arrays) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(said: Any, arrays: Any) -> Any:
    if isinstance(said, list):
        return tuple(_unpacked(part, arrays) for part in said)
    if not isinstance(said, dict):
        return said
    if "array" in said:
        return arrays[f"a{said['array']}"]
    return _PARTS[said["is"]](**{name: _unpacked(part, arrays) for name, part in said["of"].items()})


def can_be_saved(point: Point) -> bool:
    """Whether a way is a rule that can be taken along: a single model, or one fitted to the log that needs no perfect judge."""
    return point.kind == "single" or (point.kind == "offline" and point.approach in _FITTED)


def way_of(log: Log, point: Point) -> Way:
    """The rule of a point, fitted to the whole log.

    Raises:
      ValueError: the point learns while it serves, needs a perfect judge, or is a bound.
    """
    table = log.table
    if not can_be_saved(point):
        raise ValueError(
            f"point must be a single model or one of {', '.join(_FITTED)}, which are fitted to a log, got {point.approach}"
        )
    if point.kind == "single":
        models = tuple(table.models[k] for k in np.argsort(table.mean_costs(), kind="stable"))
        alone = models.index(point.approach)
        return Way(point.approach, "for every query", Mixture(models, alone, alone, 0.0), unit=table.cost_unit)
    assert point.tuned is not None
    rule = _FITTED[point.approach](table, point.tuned)
    if isinstance(rule, Mixture):
        return Way(point.approach, str(rule), rule, unit=table.cost_unit)
    width = 0 if table.features is None else table.features.shape[1]
    names = () if table.groups is None else tuple(map(str, table.group_names))
    return Way(point.approach, str(rule), rule, log.reader, width, names, table.cost_unit)


def snippet(log: Log, point: Point, file: str) -> str:
    """Python that asks a saved way about a query."""
    table = log.table
    words = []
    if point.kind != "single" and point.approach != BestMixture.name:
        if table.features is not None:
            words.append("text" if isinstance(log.reader, Words) else "features=numbers")
        if table.groups is not None:
            words.append("category=category")
    given = ", ".join(words)
    lines = ["import jaxroute", "", f"way = jaxroute.comparison.load_way({file!r})"]
    if point.approach != LEARNED.name:
        return "\n".join([*lines, f"model = way.model({given})  # the name of the model to ask for a query"])
    also = f"{given}, asked=asked" if given else "asked=asked"
    loop = (
        "asked, model = {}, way.model(" + given + ")  # whom to ask first for a query",
        "while model is not None:",
        "    answer, cost = call(model)  # yours: asks a model, and says what the answer cost",
        "    asked[model] = cost",
        f"    model = way.model({also})  # whom to ask next; None: serve the answer that is there",
    )
    return "\n".join([*lines, *loop])
