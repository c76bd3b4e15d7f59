"""Numbers of the papers as data, exactly as printed.

They are in the JSON files beside this module, one per paper. Each table there has a source, its columns with their units,
remarks, and one row per line.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jaxroute.core import checks

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class ModelTable:
    """One score and one cost per model, in the order the models were released.

    Attributes:
      names: the `N` model names, as printed in the paper.
      scores: `[N]` float64, in `score_unit`.
      costs: `[N]` float64, in `cost_unit`.
      score_unit: unit of the scores.
      cost_unit: unit of the costs.
      source: the paper and its table.

    Raises:
      ValueError: the columns differ in length or hold a value that is not finite.
    """

    names: tuple[str, ...]
    scores: np.ndarray
    costs: np.ndarray
    score_unit: str
    cost_unit: str
    source: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        _set_columns(self, "name", scores=len(self.names), costs=len(self.names))


@dataclass(frozen=True, eq=False)
class PriceTable:
    """One list price per model.

    Attributes:
      names: the `K` model names, as printed in the paper.
      prices: `[K]` float64, in `unit`.
      unit: unit of the prices.
      source: the paper and its table.

    Raises:
      ValueError: the columns differ in length or hold a value that is not finite.
    """

    names: tuple[str, ...]
    prices: np.ndarray
    unit: str
    source: str

    def __post_init__(self) -> None:
        _set_columns(self, "name", prices=len(self.names))


@dataclass(frozen=True)
class RunTimes:
    """Run times on one random instance.

    Attributes:
      num_models: number of models, `K`.
      size: number of models of a set, `N`.
      budget: cost per round.
      relaxed_s: seconds for 10,000 rounds of one run, with relaxation and rounding.
      direct_s: seconds for 10,000 rounds of one run, solved directly.
    """

    num_models: int
    size: int
    budget: float
    relaxed_s: float
    direct_s: float


@dataclass(frozen=True, eq=False)
class Benchmark:
    """One benchmark of MESS+: which models satisfy which requests, what they cost, and the settings used on it.

    The outcome of a request is one of `2^M = 8` cells, `4 s_L1B + 2 s_L8B + s_L70B` with `s = 1` where the model satisfies
    it. Counts, `num_requests` and energies are recorded outcomes of the authors' later public code, aggregated. The
    accuracies that follow from the counts are Table 2's to all printed digits, and `num_requests * energy_mean` is Table
    2's cost of a single model, except for L70B on ARC-E (see `MESSPLUS_TABLE_2_DIFFERS`).

    Source: Woisetschläger et al., "Dynamically Learned Test-Time Model Routing in Language Model Zoos with Service Level
    Guarantees" (MESS+); outcomes and settings from the public repository laminair/mess-plus.

    Attributes:
      name: identifier.
      title: short name for figures.
      num_requests: number of requests of one recorded pass, `N`.
      cells: `[8]` float64, number of requests of each outcome; they sum to `num_requests`.
      energy_mean: `[M]` float64, mean energy of each model in J per request.
      energy_sd: `[M]` float64, standard deviation of the energy over requests in J.
      alphas: the three SLA levels used in the figures, ascending (Table 5, second members; see `MESSPLUS_TABLE_5`).
      alpha: the main SLA level (Table 2).
      learning_rate: learning rate of the predictor's SGD (Table 4); weight decay and dropout are the same everywhere.
      momentum: momentum of the predictor's SGD (Table 4).
      max_length: longest request in tokens (Table 4).
      passes: passes over the explored sample per exploration, in the authors' code; the paper's algorithm makes one.
      routellm_offset: number `a` such that a score `sigmoid(a + xi / 2)`, `xi` standard normal, exceeds the threshold of
        `alpha` as often as RouteLLM calls L70B in Table 2 (a share of 100 % is read as 99.5 %). Derived.
      routellm_threshold: RouteLLM's threshold for each of `alphas` (Table 5 with its columns put right).
      V_range: the three `V` of the benchmark's panels in Figs. 2, C.2 and C.3, in 1/J, descending; from the authors' code.

    Raises:
      ValueError: a column has the wrong shape or an impossible value.
    """

    name: str
    title: str
    num_requests: int
    cells: np.ndarray
    energy_mean: np.ndarray
    energy_sd: np.ndarray
    alphas: tuple[float, float, float]
    alpha: float
    learning_rate: float
    momentum: float
    max_length: int
    passes: int
    routellm_offset: float
    routellm_threshold: dict[float, float]
    V_range: tuple[float, float, float]

    def __post_init__(self) -> None:
        num_cells, num_models = _LABELS.shape
        _set_columns(self, "outcome", 0, cells=num_cells)
        _set_columns(self, "model", 0, energy_mean=num_models, energy_sd=num_models)
        if self.cells.sum() != self.num_requests:
            raise ValueError(f"cells sums to {self.cells.sum():g}; expected num_requests, {self.num_requests}")

    @property
    def labels(self) -> np.ndarray:
        """`[8, M]` float64 in {0, 1}: which models satisfy a request of each cell."""
        return _LABELS

    @property
    def accuracy(self) -> np.ndarray:
        """`[M]` float64: share of the requests that each model satisfies."""
        return self.cells @ _LABELS / self.num_requests


@dataclass(frozen=True)
class Entry:
    """One method on one benchmark, as printed in Tables 2, 6 and 7 of MESS+ except for the order of `ratio`.

    A number after a "±" is no standard error over seeds: for a single model that of the satisfaction is a ninth of the
    sample standard deviation of its outcomes, about `sqrt(p (1 - p)) / 9`.

    Attributes:
      cost_mj: energy of one pass over the benchmark in MJ.
      cost_pm: number after the "±" of the cost, in MJ.
      satisfaction: satisfied requests in percent.
      satisfaction_pm: number after the "±" of the satisfaction, in percent points.
      ratio: share of the requests answered by L1B, L8B and L70B in percent, from small to large; the paper prints them
        from large to small. Rounded, so that a sum can be 99 or 101.
    """

    cost_mj: float
    cost_pm: float
    satisfaction: float
    satisfaction_pm: float
    ratio: tuple[int, int, int]


@dataclass(frozen=True)
class Overhead:
    """One benchmark of Table 3 of MESS+.

    Attributes:
      predictor: energy of the predictor, training and inference, in J per request.
      predictor_pm: number after its "±", in J per request.
      call: "average LLM call cost" in J per request. How it was averaged is unknown: it is neither the mean of the three
        single models nor the cost of MESS+ per request.
      call_pm: number after its "±", in J per request.
      overhead: predictor over call in percent. A mean of ratios, hence not the ratio of the two columns.
      overhead_pm: number after its "±", in percent.
    """

    predictor: float
    predictor_pm: float
    call: float
    call_pm: float
    overhead: float
    overhead_pm: float


def min_max(scores: np.ndarray) -> np.ndarray:
    """Scores on a scale where the worst model is 0 and the best is 1: `(s - min s) / (max s - min s)`.

    Source: StageRoute, section 6.1, says only that scores are "normalized to lie within the [0,1] interval";
    this reading spreads the pool over the whole interval.

    Args:
      scores: `[N]` scores in any unit, at least two of them different.

    Returns:
      `[N]` float64 in `[0, 1]`.

    Raises:
      ValueError: all scores are equal.
    """
    scores = checks.numbers("scores", scores)
    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    if not low < high:
        raise ValueError(f"scores is {scores.tolist()}; min_max needs at least two different finite values")
    return (scores - low) / (high - low)


def divide_by_max(scores: np.ndarray) -> np.ndarray:
    """Scores as a share of the best model's: `s / max s`.

    Source: StageRoute, section 6.1, the other reading (see `min_max`); it keeps the ratios between models.

    Args:
      scores: `[N]` scores in any unit, none negative, the largest positive.

    Returns:
      `[N]` float64 in `[0, 1]`.

    Raises:
      ValueError: a score is negative or none is positive.
    """
    scores = checks.numbers("scores", scores)
    if not (scores.min(initial=np.inf) >= 0 and scores.max(initial=0.0) > 0):
        raise ValueError(f"scores is {scores.tolist()}; divide_by_max needs values >= 0 and a positive largest one")
    return scores / scores.max()


def _set_columns(table: Any, what: str, least: float = -np.inf, **sizes: int) -> None:
    """Makes columns read-only float64; `ValueError` if one has another size or a value that is not finite or below `least`."""
    for column, size in sizes.items():
        values = np.array(getattr(table, column), dtype=np.float64)
        if values.shape != (size,):
            raise ValueError(f"{column} has shape {values.shape}; expected ({size},), one per {what}")
        if not (np.isfinite(values) & (values >= least)).all():
            bound = f" and at least {least:g}" if np.isfinite(least) else ""
            raise ValueError(f"{column} is {values.tolist()}; every value must be finite{bound}")
        values.flags.writeable = False
        object.__setattr__(table, column, values)


@cache
def _read(paper: str) -> dict[str, Any]:
    return json.loads(Path(__file__).with_name(f"{paper}.json").read_text(encoding="utf-8"))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _rows(paper: str, table: str) -> tuple[Any, ...]:
    """Rows of a table, tuples with a value for each of its columns; `ValueError` if a row has more or fewer."""
    columns, rows = _read(paper)[table]["columns"], _tuples(_read(paper)[table]["rows"])
    if wrong := [row for row in rows if len(row) != len(columns)]:
        raise ValueError(f"{paper}.json, {table}: {wrong[0]} must have {len(columns)} values: {', '.join(columns)}")
    return rows


def _table(kind: Callable[..., _T], paper: str, table: str) -> _T:
    """Names and columns of a table, the units of the columns and its source."""
    _, *units = _read(paper)[table]["columns"].values()
    return kind(*zip(*_rows(paper, table)), *units, _read(paper)[table]["source"])


def _groups(paper: str, table: str) -> dict[Any, list[Any]]:
    """Rows of a table by their first value, without it."""
    groups = {}
    for key, *row in _rows(paper, table):
        groups.setdefault(key, []).append(row)
    return groups


def _by_benchmark(kind: Callable[..., _T], rows: Iterable[Any]) -> dict[str, _T]:
    """Rows of MESS+ by benchmark and, last, "average"; `ValueError` if one is missing, repeated or out of order."""
    names, found = (*MESSPLUS_BENCHMARKS, "average"), [(name, kind(*values)) for name, *values in rows]
    if names != tuple(name for name, _ in found):
        raise ValueError(f"rows are {', '.join(name for name, _ in found)}; expected {', '.join(names)}")
    return dict(found)


def _entry(cost: float, cost_pm: float, satisfaction: float, satisfaction_pm: float, *ratio: int) -> Entry:
    large, middle, small = ratio
    return Entry(cost, cost_pm, satisfaction, satisfaction_pm, (small, middle, large))


def _benchmark(name: str, **fields: Any) -> Benchmark:
    threshold = {alpha: threshold for threshold, alpha in sorted(MESSPLUS_TABLE_5[name], key=lambda pair: pair[1])}
    low, middle, high = threshold
    return Benchmark(name, alphas=(low, middle, high), routellm_threshold=threshold, **fields)


STAGEROUTE_TABLE_1 = _table(ModelTable, "stageroute", "table_1")
STAGEROUTE_TABLE_2 = _table(ModelTable, "stageroute", "table_2")
C2MABV_TABLE_1 = _table(PriceTable, "c2mabv", "table_1")
C2MABV_TABLE_3 = _table(PriceTable, "c2mabv", "table_3")

# What C2MAB-V (Dai et al.) prints of its experiments; tasks are "awc" (any win), "suc" (sum up) and "aic" (all in).

# Section 6: multipliers of the radii of rewards and of costs.
C2MABV_SETTINGS: dict[str, tuple[float, float]] = {name: tuple(widths) for name, *widths in _rows("c2mabv", "settings")}
# Section 6, Fig. 4: the ratio of reward to violation of setting (c) is at least so many times that of a rival.
C2MABV_FIGURE_4: dict[str, float] = dict(_rows("c2mabv", "figure_4"))
# Section 6: the rewards of ChatGLM2, without violation, are below these.
C2MABV_CHATGLM2: dict[str, float] = dict(_rows("c2mabv", "chatglm2"))
# Appendix E.3, Fig. 8: the ratio of setting (d) is at least so many times that of a rival, at every budget.
C2MABV_FIGURE_8: dict[str, float] = dict(_rows("c2mabv", "figure_8"))
# Appendix E.3, Table 4.
C2MABV_TABLE_4: dict[str, RunTimes] = {task: RunTimes(*row) for task, *row in _rows("c2mabv", "table_4")}

MESSPLUS_MODELS: tuple[str, ...] = tuple(name for name, _ in _rows("messplus", "models"))
"""The zoo from small to large, called L1B, L8B and L70B in the paper; the two larger ones are quantised to 4 bits."""

_TRAINING = dict(_rows("messplus", "training"))
MESSPLUS_WEIGHT_DECAY: float = _TRAINING["weight_decay"]
"""Weight decay of the predictor's SGD, the same on every benchmark. Source: Table 4."""

MESSPLUS_DROPOUT: float = _TRAINING["dropout"]
"""Dropout probability of the predictor, the same on every benchmark. Source: Table 4."""

MESSPLUS_TABLE_5: dict[str, tuple[tuple[float, float], ...]] = dict(_rows("messplus", "table_5"))
"""Three pairs per benchmark as printed, under the headings (alpha, threshold) of RouteLLM.

The headings are swapped: the first number is the threshold, which was swept in steps of 0.1, and the second the SLA level,
for all main levels of Table 2 are among the second numbers. `Benchmark.routellm_threshold` has them right. Source: Table 5.
"""

_LABELS = np.array([[cell >> 2 & 1, cell >> 1 & 1, cell & 1] for cell in range(2 ** len(MESSPLUS_MODELS))], np.float64)
_LABELS.flags.writeable = False
MESSPLUS_BENCHMARKS: dict[str, Benchmark] = {
    row[0]: _benchmark(**dict(zip(_read("messplus")["benchmarks"]["columns"], row, strict=True)))
    for row in _rows("messplus", "benchmarks")
}
"""The eight benchmarks in the order of Table 2. Table 4 lives here: `learning_rate`, `momentum` and `max_length`.

Sources: see `Benchmark`, and `messplus.json` for each column.
"""

MESSPLUS_TABLE_2: dict[str, dict[str, Entry]] = {
    method: _by_benchmark(_entry, rows) for method, rows in _groups("messplus", "table_2").items()
}
"""Method, then benchmark or "average": the main results, at V = 1e-3 and the main SLA levels. Source: Table 2.

Values are the printed ones, also where Tables 6 and 7 differ (`MESSPLUS_TABLE_2_DIFFERS`). The costs of LogiQA are those of
three passes over its 651 requests. The average costs of L70B, RouteLLM and RouterDC follow from the values of Tables 6 and
7, not from these. MESS+'s average satisfaction is 0.13 points below, and its average share of L1B 1.75 points above, the
mean of the eight columns.
"""

MESSPLUS_TABLE_2_DIFFERS: dict[tuple[str, str], tuple[float, str]] = {
    (method, name): (cost, reading) for method, name, cost, reading in _rows("messplus", "table_2_differs")
}
"""(Method, benchmark): the cost in MJ that Tables 6 and 7 print instead of Table 2's, and our reading of why.

All other cells of single models and baselines are the same in the three tables.
"""

MESSPLUS_TABLES_6_7: dict[float, dict[str, Entry]] = {
    V: _by_benchmark(_entry, rows) for V, rows in _groups("messplus", "tables_6_7").items()
}
"""V in 1/J, then benchmark or "average": the row of MESS+ at a smaller V. Source: Table 6 (1e-4) and Table 7 (1e-5).

The average satisfactions are 0.13 points below the means of the eight columns, as in Table 2.
"""

MESSPLUS_TABLE_3: dict[str, Overhead] = _by_benchmark(Overhead, _rows("messplus", "table_3"))
"""Benchmark or "average": what the predictor adds to a request. Source: Table 3."""

MESSPLUS_FIGURE_2: dict[float, int] = dict(_rows("messplus", "figure_2"))
"""SLA level: first request at which MESS+ with the highest V satisfies it on Winogrande. Source: Fig. 2 and App. C.2.

Single readings; the first such request varies widely from run to run.
"""

MESSPLUS_REPLAY: dict[float, dict[str, float]] = {c: dict(rows) for c, rows in _groups("messplus", "replay").items()}
"""c, then benchmark: MJ of a pass of MESS+ with V = 1e-3 over the recorded outcomes themselves, with uninformative features.

Ours, 4 to 6 runs with a head of width 128 (c = 0.1), or of width 64 and with costs as last measured (c = 1); not in the paper.
"""

SPROUT_PRICES: dict[str, tuple[float, float]] = {name: tuple(prices) for name, *prices in _rows("sprout", "prices")}
"""USD per 1M input and output tokens of SPROUT's models. Source: somerstep/CARROT, carrot/constants.py."""

STANDIN_MODELS: dict[str, tuple[tuple[str, float, float], ...]] = {
    name: _rows("standin", name) for name in ("routerbench", "sprout")
}
"""Name, accuracy and price of the models of two data sets.

RouterBench: mean score in the 0-shot file, and the cost of one short query in 1e-5 USD. Source: arXiv 2403.12031.
SPROUT: accuracy on the test subset (o3-mini's is assumed), and USD per 1M output tokens. Source: arXiv 2502.03261 and the
prices of somerstep/CARROT; see `SPROUT_PRICES`.
"""
