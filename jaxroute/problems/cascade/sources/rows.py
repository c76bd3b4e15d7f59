"""Reads recorded queries with the scores and costs of all models, and splits them into a half to fit policies and a half to evaluate them."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxroute.core import checks
from jaxroute.data import RoutingTable, load_columns, main_directions, standin
from jaxroute.data.logs.log import read_experiment_log

# Name of a column for each model.
Columns = Mapping[str, str]
# Starts of k-means.
_RESTARTS = 10
# Models of the stand-in on the Pareto frontier of mean cost and mean score, and the most expensive one.
_STAND_IN = (
    "mistralai/mistral-7b-chat",
    "WizardLM/WizardLM-13B-V1.2",
    "mistralai/mixtral-8x7b-chat",
    "claude-instant-v1",
    "gpt-4-1106-preview",
)


@dataclass(frozen=True)
class RecordedRows:
    """Scores and costs of all models on each query (row) of a file, from which `replay_cascade` and `query_cascade` build environments.

    Attributes:
      scores: `[N, K]` score of each model on each query, in [0, 1].
      costs: `[N, K]` cost of each model on each query, in `unit`.
      groups: `[N]` int, group of each query, numbered from 0.
      names: names of the models.
      unit: unit of the costs.
      features: `[N, K, d]` features of outputs, None where scores are seen.
      contexts: `[N, m]` features of queries, a constant 1 and principal components of the features in the file; None unless requested.
    """

    scores: np.ndarray
    costs: np.ndarray
    groups: np.ndarray
    names: tuple[str, ...]
    unit: str
    features: np.ndarray | None = None
    contexts: np.ndarray | None = None

    @property
    def highest_cost(self) -> float:
        """Returns the mean cost per query of the most expensive model, in `unit`."""
        return float(self.costs.mean(axis=0).max())

    def take(self, chosen: np.ndarray) -> "RecordedRows":
        """Returns the rows with indices `chosen` `[n]`. If `[n, K]`, row `i` takes model `k`'s output from row `chosen[i, k]`, all of one group."""
        at = (chosen,) if chosen.ndim == 1 else (chosen, np.arange(len(self.names)))
        return replace(
            self,
            scores=self.scores[at],
            costs=self.costs[at],
            groups=self.groups[chosen if chosen.ndim == 1 else chosen[:, 0]],
            features=None if self.features is None else self.features[at],
            contexts=None if self.contexts is None or chosen.ndim > 1 else self.contexts[chosen],
        )

    def halves(self) -> tuple["RecordedRows", "RecordedRows"]:
        """Splits the rows of each group at random, the same in every call, into a half to fit rules and a half to evaluate them."""
        sizes = np.bincount(self.groups)
        if sizes.min() < 2:
            raise ValueError("groups must have two rows at least, one to fit rules to and one to judge: take fewer groups")
        shuffled = np.random.default_rng(0).permutation(len(self.groups))
        shuffled = shuffled[np.argsort(self.groups[shuffled], kind="stable")]
        place = np.concatenate([np.arange(size) for size in sizes])
        return self.take(shuffled[place % 2 == 1]), self.take(shuffled[place % 2 == 0])

    def unpaired(self, copies: int = 4) -> "RecordedRows":
        """Builds `copies` new rows for each row; each takes the output of every model from a separately drawn row of the same group."""
        rng, number = np.random.default_rng(1), len(self.names)
        members = [np.flatnonzero(self.groups == g) for g in range(self.groups.max() + 1)]
        return self.take(np.concatenate([rng.choice(members[g], (copies, number)) for g in self.groups]))


def recorded_rows(
    data: str,
    *,
    by: str | None = None,
    groups: int = 6,
    models: Sequence[str] | None = None,
    costs: Mapping[str, float] | None = None,
    scores: Columns | None = None,
    sizes: Columns | None = None,
    confidence: Columns | None = None,
    directions: int | None = None,
) -> RecordedRows:
    """Reads the rows of a file that have a score and a cost of each model: a log or, if `scores` is given, any file with columns.

    Args:
      data: path of a log that `jaxroute.data.read_log` reads, or "standin" for a generated stand-in of RouterBench; or a file with columns.
      by: how queries are grouped; policies see only the group. For a log "features" (k-means; default if a log has an embedding) or "groups" (the
        log's categories); for a file with columns the name of a column, None for one group.
      groups: for a log, number of groups of k-means.
      models: for a log, models to select, None for all.
      costs: for a log without costs, cost per query by model; for a file with columns, cost per unit of `sizes`, by model.
      scores: for a file with columns, names of the columns of scores in [0, 1], by model.
      sizes: for a file with columns, names of the columns of paid quantities (such as tokens), by model; 1 for a model without a column.
      confidence: for a file with columns, names of the columns of an output's confidence, by model, to learn scores from; None if scores are seen.
      directions: for a log, number of principal components of the features that contexts show, None for no contexts.
    """
    count = checks.count("groups", groups)
    for name, value in (("costs", costs), ("scores", scores), ("sizes", sizes), ("confidence", confidence)):
        if value is not None and not (isinstance(value, Mapping) and value):
            raise ValueError(f"{name} must map names of models to values, got {checks.show(value)}")
    if scores is not None:
        rows = _from_columns(data, by, costs or {}, scores, sizes or {}, confidence or {})
    elif sizes is not None or confidence is not None:
        raise ValueError("scores must name the columns of scores where sizes or confidence name columns, got None")
    else:
        table = _table(data, costs, by is None and directions is None)
        table = table if models is None else table.subset(models=models)
        contexts = None
        if directions is not None:
            if table.features is None:
                raise ValueError(f"data must have features of queries, got {data} without")
            contexts = main_directions(table.features, directions)
        scored = np.asarray(table.scores, float), np.asarray(table.costs, float), query_groups(table, by, count)
        rows = RecordedRows(*scored, table.models, table.currency, contexts=contexts)
    if not rows.highest_cost > 0:
        raise ValueError(f"costs must not all be zero, got {data} where they are")
    return rows


def query_groups(table: RoutingTable, by: str | None = None, number: int = 6) -> np.ndarray:
    """Returns the group of each of the `Q` queries of `table`, `[Q]` int, numbered from 0.

    Args:
      by: "features" for k-means (the best of ten fixed random starts), "groups" for the table's categories; None for features if the table has
        them, else for categories, else for one group.
      number: largest number of groups of k-means.
    """
    if by is not None and getattr(table, checks.one_of("by", by, ("features", "groups"))) is None:
        raise ValueError(f"by must not be {by!r} where the file has no {by}")
    if table.features is not None and by != "groups":
        return _numbered(_clusters(np.asarray(table.features, np.float64), number))
    return np.zeros(table.num_queries, int) if table.groups is None else _numbered(table.groups)


def _numbered(labels: np.ndarray) -> np.ndarray:
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def _clusters(features: np.ndarray, number: int) -> np.ndarray:
    from scipy.cluster.vq import kmeans2

    points, rng = np.unique(features, axis=0), np.random.default_rng(0)
    best, least = np.zeros(len(features), int), np.inf
    for _ in range(_RESTARTS):
        start = points[rng.choice(len(points), min(number, len(points)), replace=False)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A cluster that ends up empty: there are fewer groups then.
            centres, label = kmeans2(features, start, minit="matrix", iter=50, missing="warn")
        spread = float(np.square(features - centres[label]).sum())
        if spread < least:
            best, least = label, spread
    return best


def _table(data: str, costs: Mapping[str, float] | None, categories_first: bool) -> RoutingTable:
    """Reads the log `data` or generates "standin". `costs` by model are for logs without. If `categories_first`, categories replace text features."""
    if data == "standin":
        return standin("routerbench", scores="binary", queries=2000)[0].subset(models=_STAND_IN)
    try:
        log = read_experiment_log(data, costs)
    except ValueError as error:
        if "--" not in str(error):
            raise
        raise ValueError(
            f"{error}. Columns of other names are given by three settings that name all models, with prices of 1 where the columns are costs "
            'already: --set environment.scores=\'{"a": "score_a"}\' --set environment.sizes=\'{"a": "cost_a"}\' '
            "--set environment.costs='{\"a\": 1}'"
        ) from None
    from_text = log.features.startswith("text ")
    return log.table.with_features(None) if categories_first and from_text and log.table.groups is not None else log.table


def _from_columns(
    data: str, by: str | None, price: Mapping[str, float], score_of: Columns, size_of: Columns, trust_of: Columns
) -> RecordedRows:
    names = tuple(score_of)
    for name, given in (("costs", price), ("sizes", size_of), ("confidence", trust_of)):
        for model in given:
            checks.one_of(name, model, names)
    if set(price) != set(names):
        raise ValueError(f"costs must have a number for each model of scores ({', '.join(names)}), got {checks.show(price)}")
    numbers = [*score_of.values(), *size_of.values(), *trust_of.values()]
    read = load_columns(data, numbers, [by] if by else [])

    def matrix(columns: Columns, otherwise: float) -> np.ndarray:
        rows = len(read[numbers[0]])
        return np.stack([read[columns[n]] if n in columns else np.full(rows, otherwise) for n in names], axis=1)

    score, trust = matrix(score_of, 0.0), matrix(trust_of, 0.0)
    cost = matrix(size_of, 1.0) * np.array([float(price[n]) for n in names])
    whole = np.isfinite(score + cost + trust).all(axis=1)
    if not whole.any():
        raise ValueError(f"{data} has no row with a number in each of {', '.join(numbers)}")
    groups = _numbered(read[by][whole]) if by else np.zeros(int(whole.sum()), int)
    features = None
    if trust_of:  # Indicators of group and model, and the confidence of the models that have it.
        group = np.repeat(np.eye(groups.max() + 1)[groups][:, None], len(names), axis=1)
        model = np.tile(np.eye(len(names)), (len(groups), 1, 1))
        sure = model[..., [n in trust_of for n in names]] * trust[whole][:, :, None]
        features = np.concatenate([group, model[..., 1:], sure], axis=-1)
    return RecordedRows(score[whole], cost[whole], groups, names, "units of costs", features)
