"""Numbers from the papers, exactly as printed. One JSON file per paper holds its tables with source, units, remarks and rows."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jaxroute.core import checks

__all__ = [
    "C2MABV_CHATGLM2", "C2MABV_FIGURE_4", "C2MABV_FIGURE_8", "C2MABV_SETTINGS", "C2MABV_TABLE_1", "C2MABV_TABLE_3", "C2MABV_TABLE_4",
    "MESSPLUS_BENCHMARKS", "MESSPLUS_DROPOUT", "MESSPLUS_FIGURE_2", "MESSPLUS_MODELS", "MESSPLUS_TABLES_6_7", "MESSPLUS_TABLE_2",
    "MESSPLUS_TABLE_2_DIFFERS", "MESSPLUS_TABLE_3", "MESSPLUS_TABLE_5", "MESSPLUS_WEIGHT_DECAY", "SPROUT_PRICES", "STAGEROUTE_TABLE_1",
    "STAGEROUTE_TABLE_2", "STANDIN_MODELS", "Benchmark", "Entry", "ModelTable", "Overhead", "PriceTable", "RunTimes", "divide_by_max", "min_max",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class ModelTable:
    """Table of a paper: printed names of `N` models in the order of release, their scores and costs, `[N]` float64, the units of both, and source."""

    names: tuple[str, ...]
    scores: np.ndarray
    costs: np.ndarray
    score_unit: str
    cost_unit: str
    source: str

    def __post_init__(self) -> None:
        _set_columns(self, "name", scores=len(self.names), costs=len(self.names))


@dataclass(frozen=True, eq=False)
class PriceTable:
    """Table of a paper with the printed names of `K` models, and their list prices in `unit`, `[K]` finite float64."""

    names: tuple[str, ...]
    prices: np.ndarray
    unit: str
    source: str

    def __post_init__(self) -> None:
        _set_columns(self, "name", prices=len(self.names))


@dataclass(frozen=True)
class RunTimes:
    """Run times of C2MAB-V, with relaxation and without, on one random problem with `num_models` models: seconds for 10,000 rounds."""

    num_models: int
    size: int  #: Number of models of a set.
    budget: float  #: Cost per round.
    relaxed_s: float  #: Seconds with relaxation and rounding.
    direct_s: float  #: Seconds if each problem is solved directly.


@dataclass(frozen=True, eq=False)
class Benchmark:
    """One benchmark of MESS+: outcomes of its requests, energy of each model, and settings.

    The outcome of a request is one of 8 cells, numbered `4 s_L1B + 2 s_L8B + s_L70B`, where `s = 1` for a model that satisfies the request.
    `messplus.json` has the source of each column, and how it agrees with the paper's Table 2.

    Source: Woisetschläger et al., "Dynamically Learned Test-Time Model Routing in Language Model Zoos with Service Level
    Guarantees" (MESS+); outcomes and settings from the public repository laminair/mess-plus.

    Raises:
      ValueError: a column has the wrong shape or an impossible value.
    """

    name: str
    title: str  #: Short name for figures.
    num_requests: int  #: Number of requests of one recorded pass.
    cells: np.ndarray  #: `[8]` float64, number of requests of each outcome; they sum to `num_requests`.
    energy_mean: np.ndarray  #: `[M]` float64, mean energy of each model in J per request.
    energy_sd: np.ndarray  #: `[M]` float64, its standard deviation over requests.
    alphas: tuple[float, float, float]  #: The three SLA levels used in the figures, ascending.
    alpha: float  #: The main SLA level.
    learning_rate: float  #: Learning rate of the predictor's SGD.
    momentum: float  #: Momentum of the predictor's SGD.
    max_length: int  #: Longest request in tokens.
    passes: int  #: Passes over the explored sample per exploration, in the authors' code; the paper's algorithm makes one.
    routellm_offset: float  #: `a` of a score `sigmoid(a + xi / 2)`, `xi` standard normal, with RouteLLM's calls of L70B.
    routellm_threshold: dict[float, float]  #: RouteLLM's threshold for each of `alphas`.
    V_range: tuple[float, float, float]  #: The `V` of the benchmark's panels in Figs. 2, C.2 and C.3, in 1/J, descending.

    def __post_init__(self) -> None:
        num_cells, num_models = _LABELS.shape
        _set_columns(self, "outcome", 0, cells=num_cells)
        _set_columns(self, "model", 0, energy_mean=num_models, energy_sd=num_models)
        if self.cells.sum() != self.num_requests:
            raise ValueError(f"cells sums to {self.cells.sum():g}; expected num_requests, {self.num_requests}")

    @property
    def labels(self) -> np.ndarray:
        """`[8, M]` float64: for each of 8 outcomes, 1 for those of the `M` models that satisfy the request, else 0."""
        return _LABELS

    @property
    def accuracy(self) -> np.ndarray:
        """`[M]` float64: fraction of the requests that each of the `M` models satisfies."""
        return self.cells @ _LABELS / self.num_requests


@dataclass(frozen=True)
class Entry:
    """Result of a method on one benchmark, as printed in MESS+, Tables 2, 6 and 7, except that `ratio` has the models in reverse order."""

    cost_mj: float  #: Energy of one pass over the benchmark in MJ.
    cost_pm: float  #: Number after its "±", no standard error.
    satisfaction: float  #: Satisfied requests in percent.
    satisfaction_pm: float  #: Number after its "±", no standard error.
    ratio: tuple[int, int, int]  #: Percent of requests answered by L1B, L8B and L70B, in this order; printed in reverse.


@dataclass(frozen=True)
class Overhead:
    """Energy that the predictor of MESS+ costs on one benchmark, from the paper's Table 3. Fields `_pm` are the numbers printed after "±"."""

    predictor: float  #: Energy of the predictor, training and inference, in J per request.
    predictor_pm: float
    call: float  #: "Average LLM call cost" in J per request; how it was averaged is unknown.
    call_pm: float
    overhead: float  #: Predictor over call in percent, a mean of ratios.
    overhead_pm: float


def min_max(scores: np.ndarray) -> np.ndarray:
    """Rescales `[N]` scores so that the worst model has 0 and the best 1: `(s - min s) / (max s - min s)`, float64. Two scores must differ.

    Source: StageRoute, section 6.1, "normalized to lie within the [0,1] interval"; this reading uses the whole interval.
    """
    scores = checks.numbers("scores", scores)
    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    if low >= high:
        raise ValueError(f"scores is {scores.tolist()}; min_max needs at least two different finite values")
    return (scores - low) / (high - low)


def divide_by_max(scores: np.ndarray) -> np.ndarray:
    """Divides `[N]` scores, at least 0 in any unit, by the largest, which is positive (float64): another normalisation to [0, 1] than `min_max`."""
    scores = checks.numbers("scores", scores)
    if not (scores.min(initial=np.inf) >= 0 and scores.max(initial=0.0) > 0):
        raise ValueError(f"scores is {scores.tolist()}; divide_by_max needs values >= 0 and a positive largest one")
    return scores / scores.max()


def _set_columns(table: Any, what: str, least: float = -np.inf, **sizes: int) -> None:
    """Makes fields read-only float64 of lengths `sizes`. `ValueError` for another length (one per `what`), or a value not finite or below `least`."""
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


def _rows(paper: str, table: str) -> tuple[Any, ...]:
    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return tuples(_read(paper)[table]["rows"])


def _table(kind: Callable[..., Any], paper: str, table: str) -> Any:
    """Builds an object of class `kind`, such as `PriceTable`, from the columns, units and source of a paper's table."""
    _, *units = _read(paper)[table]["columns"].values()
    return kind(*zip(*_rows(paper, table)), *units, _read(paper)[table]["source"])


def _groups(paper: str, table: str) -> dict[Any, list[Any]]:
    """Groups the rows of a paper's table: a dict from each first value to the list of its rows, without that value."""
    groups = {}
    for key, *row in _rows(paper, table):
        groups.setdefault(key, []).append(row)
    return groups


def _entries(table: str) -> dict[Any, dict[str, Entry]]:
    """Reads a table of MESS+ as `Entry` objects by the first value of a row (a method or `V`), then by benchmark."""
    groups = _groups("messplus", table).items()
    return {key: {name: Entry(*row[:4], ratio=tuple(row[:3:-1])) for name, *row in rows} for key, rows in groups}


def _benchmark(name: str, **fields: Any) -> Benchmark:
    threshold = {alpha: threshold for threshold, alpha in sorted(MESSPLUS_TABLE_5[name], key=lambda pair: pair[1])}
    low, middle, high = threshold
    return Benchmark(name, alphas=(low, middle, high), routellm_threshold=threshold, **fields)


STAGEROUTE_TABLE_1: ModelTable = _table(ModelTable, "stageroute", "table_1")
STAGEROUTE_TABLE_2: ModelTable = _table(ModelTable, "stageroute", "table_2")
C2MABV_TABLE_1: PriceTable = _table(PriceTable, "c2mabv", "table_1")
C2MABV_TABLE_3: PriceTable = _table(PriceTable, "c2mabv", "table_3")
# C2MAB-V, section 6: multipliers of the radii of rewards and of costs.
C2MABV_SETTINGS: dict[str, tuple[float, float]] = {name: tuple(widths) for name, *widths in _rows("c2mabv", "settings")}
# C2MAB-V, Fig. 4: factor by which setting (c) at least exceeds a rival in the ratio of reward to violation.
C2MABV_FIGURE_4: dict[str, float] = dict(_rows("c2mabv", "figure_4"))
# C2MAB-V, section 6: by task, an upper bound on the rewards of ChatGLM2, which has no violation.
C2MABV_CHATGLM2: dict[str, float] = dict(_rows("c2mabv", "chatglm2"))
# C2MAB-V, Fig. 8: factor by which setting (d) at least exceeds a rival in this ratio, at every budget.
C2MABV_FIGURE_8: dict[str, float] = dict(_rows("c2mabv", "figure_8"))
# C2MAB-V, Table 4: by task, run times on one random instance.
C2MABV_TABLE_4: dict[str, RunTimes] = {task: RunTimes(*row) for task, *row in _rows("c2mabv", "table_4")}

# The zoo of MESS+ from small to large, called L1B, L8B and L70B in the paper; the two larger ones are quantised to 4 bits.
MESSPLUS_MODELS: tuple[str, ...] = tuple(name for name, _ in _rows("messplus", "models"))
_TRAINING = dict(_rows("messplus", "training"))
# MESS+, Table 4: weight decay of the predictor's SGD, the same on every benchmark.
MESSPLUS_WEIGHT_DECAY: float = _TRAINING["weight_decay"]
# MESS+, Table 4: dropout probability of the predictor, the same on every benchmark.
MESSPLUS_DROPOUT: float = _TRAINING["dropout"]
# MESS+, Table 5: by benchmark, three pairs of a RouteLLM threshold and an SLA level; the printed headings are swapped.
MESSPLUS_TABLE_5: dict[str, tuple[tuple[float, float], ...]] = dict(_rows("messplus", "table_5"))
_LABELS = np.array([[cell >> 2 & 1, cell >> 1 & 1, cell & 1] for cell in range(2 ** len(MESSPLUS_MODELS))], np.float64)
_LABELS.flags.writeable = False
# MESS+: the eight benchmarks in the order of Table 2, with Table 4 (`learning_rate`, `momentum` and `max_length`).
MESSPLUS_BENCHMARKS: dict[str, Benchmark] = {
    row[0]: _benchmark(**dict(zip(_read("messplus")["benchmarks"]["columns"], row, strict=True)))
    for row in _rows("messplus", "benchmarks")
}
# MESS+, Table 2: by method, then benchmark or "average", the main results as printed; see the remarks in messplus.json.
MESSPLUS_TABLE_2: dict[str, dict[str, Entry]] = _entries("table_2")
# By (method, benchmark), the cost in MJ that Tables 6 and 7 of MESS+ print instead of Table 2's, and our reading of why.
MESSPLUS_TABLE_2_DIFFERS: dict[tuple[str, str], tuple[float, str]] = {
    (method, name): (cost, reading) for method, name, cost, reading in _rows("messplus", "table_2_differs")
}
# MESS+, Tables 6 (V = 1e-4) and 7 (V = 1e-5): by V in 1/J, then benchmark or "average", the row of MESS+.
MESSPLUS_TABLES_6_7: dict[float, dict[str, Entry]] = _entries("tables_6_7")
# MESS+, Table 3: by benchmark or "average", the cost that the predictor adds to a request.
MESSPLUS_TABLE_3: dict[str, Overhead] = {name: Overhead(*row) for name, *row in _rows("messplus", "table_3")}
# MESS+, Fig. 2 and App. C.2: by SLA level, the first request at which MESS+ with the highest V satisfies it on Winogrande.
MESSPLUS_FIGURE_2: dict[float, int] = dict(_rows("messplus", "figure_2"))
# By c, then benchmark, MJ of a pass of MESS+ with V = 1e-3 over the recorded outcomes themselves: our own runs.
MESSPLUS_REPLAY: dict[float, dict[str, float]] = {c: dict(rows) for c, rows in _groups("messplus", "replay").items()}
# USD per 1M input and output tokens of SPROUT's models. Source: somerstep/CARROT, carrot/constants.py.
SPROUT_PRICES: dict[str, tuple[float, float]] = {name: tuple(prices) for name, *prices in _rows("sprout", "prices")}
# By data set, "routerbench" or "sprout", the name, accuracy and price of its models; units and sources are in standin.json.
STANDIN_MODELS: dict[str, tuple[tuple[str, float, float], ...]] = {n: _rows("standin", n) for n in ("routerbench", "sprout")}
