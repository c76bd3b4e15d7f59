"""Logs of served queries, as production has them: for each query usually one answer, of a model that some rule chose."""

from dataclasses import dataclass, replace

import numpy as np

from jaxroute.core import checks

from .features import Reader
from .predictors import Sample
from .table import RoutingTable

UNIFORM = "all models equally likely"  # Source of propensities of a uniform choice.


@dataclass(frozen=True, eq=False, repr=False)
class ServedLog:
    """Log of `A` answers to `Q` queries, in which a rule chose the model of each answer. Usually a query has one answer, and then `A = Q`.

    The arrays are copied, checked and made read-only.

    Attributes:
      models: names of the `N` models.
      query: `[A]` index of each answer's query.
      model: `[A]` index of each answer's model.
      scores: `[A]` float64 in [0, 1].
      costs: `[A]` float64, at least 0, in `cost_unit`.
      num_queries: `Q`, number of queries.
      propensity: `[A]` float64 in (0, 1], probability with which the log's rule let this model answer this query; None if unknown.
      latency: `[A]` float64 seconds, or None.
      features: `[Q, d]` float32 numbers that describe each query, or None.
      groups: `[Q]` index of each query's category in `group_names`, or None.
      group_names: names of the categories.
      users: `[Q]` index of the user who asked each query; queries of a user may be dependent. None if all are independent.
      dates: `[Q]` datetime64[s] of the queries, or None. The logging rule may have changed with time.
      prompts: `[Q]` index of each query's prompt, equal for copies, or None.
      cost_unit: unit of a cost.
      unscored: `[N]` number of answers of each model that have no score, which are not among the `A` answers; None if all have one.
      source: source of the propensities, in words.
      described: source of the features, in words.
      read: lines about roles, conversions and omissions.
      opened: line of Python that reads the file again; empty for data in memory.
      reader: object that computes features of new queries; None if there is no conversion.

    Raises:
      ValueError: an argument has the wrong shape or an impossible value; the message names the argument and the value.
    """

    models: tuple[str, ...]
    query: np.ndarray
    model: np.ndarray
    scores: np.ndarray
    costs: np.ndarray
    num_queries: int
    propensity: np.ndarray | None = None
    latency: np.ndarray | None = None
    features: np.ndarray | None = None
    groups: np.ndarray | None = None
    group_names: tuple[str, ...] = ()
    users: np.ndarray | None = None
    dates: np.ndarray | None = None
    prompts: np.ndarray | None = None
    cost_unit: str = "USD per query"
    unscored: np.ndarray | None = None
    source: str = "unknown"
    described: str = "none"
    read: tuple[str, ...] = ()
    opened: str = ""
    reader: Reader = None

    def __post_init__(self) -> None:
        models, number = tuple(map(str, self.models)), checks.count("num_queries", self.num_queries)
        if not models or len(set(models)) < len(models):
            raise ValueError(f"models must be different names, got {checks.show(self.models)}")
        values: dict[str, np.ndarray | None] = {
            "query": _indices("query", self.query, number, None),
            "scores": checks.probability("scores", self.scores, ("A",)),
        }
        size = (len(self.scores),)
        values |= {
            "query": _indices("query", self.query, number, size),
            "model": _indices("model", self.model, len(models), size),
            "costs": checks.non_negative("costs", self.costs, size),
        }
        if self.propensity is not None:
            values["propensity"] = checks.share("propensity", self.propensity, size)
        if self.latency is not None:
            values["latency"] = checks.non_negative("latency", self.latency, size)
        if self.features is not None:
            values["features"] = checks.numbers("features", self.features, (number, "d")).astype(np.float32)
        if self.groups is not None:
            values["groups"] = _indices("groups", self.groups, len(self.group_names), (number,))
        if self.unscored is not None:
            values["unscored"] = checks.non_negative("unscored", self.unscored, (len(models),))
        for name in ("users", "prompts"):
            if getattr(self, name) is not None:
                values[name] = _indices(name, getattr(self, name), 2**31, (number,))
        if self.dates is not None and (np.shape(self.dates) != (number,) or np.isnat(self.dates).any()):
            raise ValueError(f"dates must be [{number}] dates without gaps, got {checks.show(self.dates)}")
        for name, array in values.items():
            if array is not None:
                array = array.copy()
                array.setflags(write=False)
                vars(self)[name] = array  # The fields of a frozen dataclass cannot be assigned.
        vars(self).update(models=models, num_queries=number, group_names=tuple(map(str, self.group_names)))

    @property
    def num_models(self) -> int:
        """Number `N` of models."""
        return len(self.models)

    @property
    def num_answers(self) -> int:
        """Number `A` of answers."""
        return len(self.scores)

    @property
    def currency(self) -> str:
        """Currency of costs: `cost_unit` without "per query"."""
        return self.cost_unit.split(" per ")[0]

    @property
    def clusters(self) -> np.ndarray | None:
        """Index `[Q]` of the cluster of each query: that of its user, else that of its prompt; None if all queries are independent."""
        found = self.prompts if self.users is None else self.users
        return None if found is None else np.unique(found, return_inverse=True)[1]

    @property
    def sample(self) -> Sample:
        """The queries without their answers, for predictors that use features and categories."""
        none = np.zeros((self.num_queries, self.num_models))
        features = None if self.features is None else self.features.astype(np.float64)
        return Sample(self.models, none, none, None, features, self.groups, self.clusters)

    def take(self, queries: np.ndarray) -> "ServedLog":
        """Returns the log restricted to some queries: `queries` is a mask `[Q]`, or different indices in any order."""
        rows = np.arange(self.num_queries)[queries]
        place = np.full(self.num_queries, -1)
        place[rows] = np.arange(len(rows))
        kept = place[self.query] >= 0
        parts = {name: value[kept] for name in _OF_ANSWERS if (value := getattr(self, name)) is not None}
        parts |= {name: value[rows] for name in _OF_QUERIES if (value := getattr(self, name)) is not None}
        return replace(self, **parts | {"query": place[self.query[kept]], "num_queries": len(rows)})

    def __repr__(self) -> str:
        about = f"{self.num_answers:,} answers to {self.num_queries:,} queries, {self.num_models} models, costs in {self.cost_unit}"
        return "\n  ".join((f"ServedLog: {about}; propensities: {self.source}", *self.read))


_OF_ANSWERS = ("query", "model", "scores", "costs", "propensity", "latency")
_OF_QUERIES = ("features", "groups", "users", "dates", "prompts")


def _indices(name: str, values: np.ndarray, number: int, size: tuple[int, ...] | None) -> np.ndarray:
    """Returns int64 indices below `number`, of shape `size` (None: any vector). Raises `ValueError` for others."""
    array = np.asarray(values)
    if array.ndim != 1 or (size is not None and array.shape != size) or array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be {list(size or ('A',))} whole numbers, got {checks.show(values)}")
    if array.size and not 0 <= array.min() <= array.max() < number:
        raise ValueError(f"{name} must be from 0 to {number - 1}, got {array.min()} to {array.max()}")
    return array.astype(np.int64)


def serve(
    table: RoutingTable, probabilities: np.ndarray, seed: int | tuple[int, ...] = 0, rows: np.ndarray | None = None
) -> ServedLog:
    """Simulates a served log on a table: for each query, a model is drawn with known probabilities, and its answer is recorded.

    Args:
      table: scores and costs of all models.
      probabilities: `[R, N]` probability of each model for each served query; rows sum to 1.
      seed: seed of the random choices.
      rows: `[R]` index of each served query in the table, with repeats if drawn with replacement; None for all queries in order.
    """
    rows = np.arange(table.num_queries) if rows is None else _indices("rows", rows, table.num_queries, None)
    number = len(rows)
    chances = checks.probability("probabilities", probabilities, (number, table.num_models))
    if not np.allclose(chances.sum(1), 1.0, atol=1e-6):
        raise ValueError(
            f"probabilities must sum to 1 in each row, got sums from {chances.sum(1).min():g} to {chances.sum(1).max():g}"
        )
    total = chances.cumsum(1)
    model = (total > np.random.default_rng(seed).random((number, 1)) * total[:, -1:]).argmax(1)
    place = (rows, model)
    parts = {name: None if (value := getattr(table, name)) is None else value[rows] for name in ("features", "groups")}
    about = {"group_names": table.group_names, "cost_unit": table.cost_unit, "source": "known"}
    scores, costs = table.scores.astype(np.float64)[place], table.costs.astype(np.float64)[place]
    return ServedLog(
        table.models, np.arange(number), model, scores, costs, number, chances[np.arange(number), model], **parts, **about
    )
