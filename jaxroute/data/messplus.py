"""The tables of the MESS+ paper as data, and its eight benchmarks as joint outcomes to simulate with.

Three language models, from small to large, answer the requests of eight benchmarks; an answer satisfies or does not.

What is printed in the paper: Tables 2, 3, 5, 6 and 7 and the steps of Fig. 2 (the constants below), and the SLA levels
(main ones in Table 2), learning rate, momentum and sequence length (Table 4) inside `MESSPLUS_BENCHMARKS`.

What is not: the numbers of requests, the joint outcome counts and the energies per request. They are recorded outcomes of
the authors' later public code, aggregated; they agree with Table 2 (see `Benchmark`). The passes over the explored sample
and the ranges of V of Figs. 2, C.2 and C.3 are settings of that code. The offset of the RouteLLM surrogate is derived from
Table 2.

Source: Woisetschläger et al., "Dynamically Learned Test-Time Model Routing in Language Model Zoos with Service Level
Guarantees" (MESS+); outcomes and settings from the public repository laminair/mess-plus.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

MESSPLUS_MODELS = ("Llama-3.2-1B", "Llama-3.1-8B", "Llama-3.3-70B")
"""The zoo from small to large, called L1B, L8B and L70B in the paper; the two larger ones are quantised to 4 bits."""

MESSPLUS_WEIGHT_DECAY = 0.01
"""Weight decay of the predictor's SGD, the same on every benchmark. Source: Table 4."""

MESSPLUS_DROPOUT = 0.1
"""Dropout probability of the predictor, the same on every benchmark. Source: Table 4."""

_NAMES = ("arc_challenge", "arc_easy", "boolq", "logiqa", "piqa", "sciq", "socialiqa", "winogrande")  # The paper's order.


@dataclass(frozen=True, eq=False)
class Benchmark:
    """One benchmark of the paper: which models satisfy which requests, what they cost, and the settings used on it.

    The outcome of a request is one of `2^M = 8` cells, `4 s_L1B + 2 s_L8B + s_L70B` with `s = 1` where the model satisfies
    it. Counts, `num_requests` and energies are recorded outcomes of the authors' later public code, aggregated. The
    accuracies that follow from the counts are Table 2's to all printed digits, and `num_requests * energy_mean` is Table
    2's cost of a single model, except for L70B on ARC-E (see `MESSPLUS_TABLE_2_DIFFERS`).

    name: identifier.
    title: short name for figures.
    num_requests: requests of one recorded pass, `N`.
    cells: `[8]` float64, requests of each outcome; they sum to `num_requests`.
    energy_mean: `[M]` float64, mean energy of each model in J per request.
    energy_sd: `[M]` float64, its standard deviation over requests in J.
    alphas: the three SLA levels used in the figures, ascending (Table 5, second members; see `MESSPLUS_TABLE_5`).
    alpha: the main one (Table 2).
    learning_rate: of the predictor's SGD (Table 4); weight decay and dropout are the same everywhere.
    momentum: likewise (Table 4).
    max_length: longest request in tokens (Table 4).
    passes: passes over the explored sample per exploration, in the authors' code; the paper's algorithm makes one.
    routellm_offset: `a` such that a score `sigmoid(a + xi / 2)`, `xi` standard normal, exceeds the threshold of `alpha` as
      often as RouteLLM calls L70B in Table 2 (a share of 100 % is read as 99.5 %). Derived.
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
        num_models = len(MESSPLUS_MODELS)
        for column, size in (("cells", 2**num_models), ("energy_mean", num_models), ("energy_sd", num_models)):
            values = _read_only(getattr(self, column))
            if values.shape != (size,):
                raise ValueError(f"{column} has shape {values.shape}; expected ({size},)")
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise ValueError(f"{column} is {values.tolist()}; every value must be finite and at least 0")
            object.__setattr__(self, column, values)
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
    """One method on one benchmark, as printed in Tables 2, 6 and 7 except for the order of `ratio`.

    What follows a "±" is `cost_pm` and `satisfaction_pm`. It is no standard error over seeds: for a single model that of
    the satisfaction is a ninth of the sample standard deviation of its outcomes, about `sqrt(p (1 - p)) / 9`.

    cost_mj: energy of one pass over the benchmark in MJ.
    cost_pm: in MJ.
    satisfaction: satisfied requests in percent.
    satisfaction_pm: in percent points.
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
    """One benchmark of Table 3; what follows a "±" is in the fields that end in `_pm`.

    predictor: energy of the predictor, training and inference, in J per request.
    predictor_pm: likewise.
    call: "average LLM call cost" in J per request. How it was averaged is unknown: it is neither the mean of the three
      single models nor the cost of MESS+ per request.
    call_pm: likewise.
    overhead: predictor over call in percent. A mean of ratios, hence not the ratio of the two columns.
    overhead_pm: in percent.
    """

    predictor: float
    predictor_pm: float
    call: float
    call_pm: float
    overhead: float
    overhead_pm: float


def _read_only(values: ArrayLike) -> np.ndarray:
    values = np.array(values, dtype=np.float64)
    values.flags.writeable = False
    return values


def _entries(*rows: tuple[float, float, float, float, tuple[int, int, int]]) -> dict[str, Entry]:
    """Entries by benchmark and, last, "average"; the shares in the rows are in the printed order L70B, L8B, L1B."""
    return {
        name: Entry(cost, cost_pm, satisfaction, satisfaction_pm, (small, middle, large))
        for name, (cost, cost_pm, satisfaction, satisfaction_pm, (large, middle, small)) in zip(
            (*_NAMES, "average"), rows, strict=True
        )
    }


def _benchmark(name: str, title: str, **fields: Any) -> Benchmark:
    threshold = {alpha: threshold for threshold, alpha in sorted(MESSPLUS_TABLE_5[name], key=lambda pair: pair[1])}
    low, middle, high = threshold
    return Benchmark(name, title, alphas=(low, middle, high), routellm_threshold=threshold, **fields)


def _by_name(benchmarks: Sequence[Benchmark]) -> dict[str, Benchmark]:
    return {benchmark.name: benchmark for benchmark in benchmarks}


_LABELS = _read_only([[cell >> 2 & 1, cell >> 1 & 1, cell & 1] for cell in range(8)])

MESSPLUS_TABLE_5: dict[str, tuple[tuple[float, float], ...]] = {
    "arc_challenge": ((0.7, 0.5), (0.6, 0.6), (0.7, 0.4)),
    "arc_easy": ((0.6, 0.8), (0.7, 0.65), (0.6, 0.75)),
    "boolq": ((0.5, 0.8), (0.5, 0.85), (0.6, 0.7)),
    "logiqa": ((0.7, 0.3), (0.5, 0.45), (0.5, 0.4)),
    "piqa": ((0.6, 0.75), (0.5, 0.81), (0.6, 0.78)),
    "sciq": ((0.5, 0.97), (0.6, 0.95), (0.5, 0.96)),
    "socialiqa": ((0.7, 0.44), (0.7, 0.46), (0.7, 0.42)),
    "winogrande": ((0.5, 0.75), (0.6, 0.65), (0.5, 0.7)),
}
"""Three pairs per benchmark as printed, under the headings (alpha, threshold) of RouteLLM.

The headings are swapped: the first number is the threshold, which was swept in steps of 0.1, and the second the SLA level,
for all main levels of Table 2 are among the second numbers. `Benchmark.routellm_threshold` has them right. Source: Table 5.
"""

MESSPLUS_BENCHMARKS: dict[str, Benchmark] = _by_name(
    (
        _benchmark(
            "arc_challenge",
            "ARC-C",
            num_requests=1172,
            cells=(362, 118, 50, 198, 30, 24, 17, 373),
            energy_mean=(79.866, 393.662, 2002.591),
            energy_sd=(18.63, 10.29, 63.09),
            alpha=0.50,
            learning_rate=0.0606,
            momentum=0.90,
            max_length=256,
            passes=1,
            routellm_offset=0.847,
            V_range=(1e-3, 1e-4, 1e-5),
        ),
        _benchmark(
            "arc_easy",
            "ARC-E",
            num_requests=2500,  # 2000 distinct requests, 500 of them recorded twice.
            cells=(287, 154, 64, 426, 28, 38, 43, 1460),
            energy_mean=(81.833, 389.570, 2021.236),
            energy_sd=(18.73, 15.73, 71.23),
            alpha=0.75,
            learning_rate=0.0826,
            momentum=0.90,
            max_length=256,
            passes=1,
            routellm_offset=1.693,
            V_range=(1e-2, 1e-3, 1e-4),
        ),
        _benchmark(
            "boolq",
            "BoolQ",
            num_requests=3270,
            cells=(186, 159, 70, 593, 61, 112, 50, 2039),
            energy_mean=(43.565, 130.736, 1040.777),
            energy_sd=(17.70, 8.61, 30.02),
            alpha=0.80,
            learning_rate=0.0767,
            momentum=0.95,
            max_length=128,
            passes=3,
            routellm_offset=0.563,
            V_range=(1e-2, 1e-3, 1e-4),
        ),
        _benchmark(
            "logiqa",
            "LogiQA",
            num_requests=1953,  # 651 distinct requests, recorded three times each.
            cells=(642, 456, 132, 192, 144, 144, 72, 171),
            energy_mean=(87.738, 414.385, 2103.261),
            energy_sd=(20.41, 11.52, 172.36),
            alpha=0.40,
            learning_rate=0.0272,
            momentum=0.90,
            max_length=256,
            passes=5,
            routellm_offset=1.027,
            V_range=(1e-3, 1e-4, 1e-5),
        ),
        _benchmark(
            "piqa",
            "PiQA",
            num_requests=1838,
            cells=(248, 65, 19, 145, 25, 42, 26, 1268),
            energy_mean=(38.624, 198.286, 1000.306),
            energy_sd=(17.01, 9.29, 58.53),
            alpha=0.78,
            learning_rate=0.0367,
            momentum=0.90,
            max_length=64,
            passes=3,
            routellm_offset=0.612,
            V_range=(1e-2, 1e-3, 1e-4),
        ),
        _benchmark(
            "sciq",
            "SciQ",
            num_requests=1000,
            cells=(18, 4, 5, 35, 1, 7, 5, 925),
            energy_mean=(97.461, 444.055, 2230.167),
            energy_sd=(15.46, 21.03, 152.44),
            alpha=0.96,
            learning_rate=0.0596,
            momentum=0.95,
            max_length=64,
            passes=3,
            routellm_offset=0.822,
            V_range=(1e-4, 1e-5, 1e-6),
        ),
        _benchmark(
            "socialiqa",
            "SocialIQA",
            num_requests=1954,
            cells=(825, 100, 82, 132, 46, 39, 50, 680),
            energy_mean=(67.690, 301.792, 1534.331),
            energy_sd=(11.09, 9.37, 15.58),
            alpha=0.44,
            learning_rate=0.0542,
            momentum=0.95,
            max_length=64,
            passes=5,
            routellm_offset=1.040,
            V_range=(1e-3, 1e-4, 1e-5),
        ),
        _benchmark(
            "winogrande",
            "Winogrande",
            num_requests=1267,
            cells=(119, 108, 53, 231, 44, 63, 49, 600),
            energy_mean=(48.976, 200.450, 1018.423),
            energy_sd=(11.95, 7.62, 22.44),
            alpha=0.70,
            learning_rate=0.0660,
            momentum=0.90,
            max_length=64,
            passes=1,
            routellm_offset=0.940,
            V_range=(1e-2, 1e-3, 1e-4),
        ),
    )
)
"""The eight benchmarks in the order of Table 2. Table 4 lives here: `learning_rate`, `momentum` and `max_length`.

Sources: see `Benchmark` and the head of this file.
"""

MESSPLUS_TABLE_2: dict[str, dict[str, Entry]] = {
    "Llama-3.2-1B": _entries(
        (0.09, 0.00, 37.88, 5.39, (0, 0, 100)),
        (0.20, 0.00, 62.76, 5.37, (0, 0, 100)),
        (0.14, 0.00, 69.17, 5.13, (0, 0, 100)),
        (0.17, 0.00, 27.19, 4.94, (0, 0, 100)),
        (0.07, 0.00, 74.05, 4.87, (0, 0, 100)),
        (0.10, 0.00, 93.80, 2.68, (0, 0, 100)),
        (0.13, 0.00, 41.71, 5.48, (0, 0, 100)),
        (0.06, 0.00, 59.67, 5.45, (0, 0, 100)),
        (0.12, 0.00, 58.28, 4.92, (0, 0, 100)),
    ),
    "Llama-3.1-8B": _entries(
        (0.46, 0.00, 54.44, 5.54, (0, 100, 0)),
        (0.97, 0.00, 79.72, 4.47, (0, 100, 0)),
        (0.43, 0.00, 84.16, 4.06, (0, 100, 0)),
        (0.81, 0.00, 29.03, 5.04, (0, 100, 0)),
        (0.36, 0.00, 79.33, 4.50, (0, 100, 0)),
        (0.44, 0.00, 97.00, 1.90, (0, 100, 0)),
        (0.59, 0.00, 48.31, 5.55, (0, 100, 0)),
        (0.25, 0.00, 73.64, 4.90, (0, 100, 0)),
        (0.54, 0.00, 68.20, 4.49, (0, 100, 0)),
    ),
    "Llama-3.3-70B": _entries(
        (2.35, 0.01, 60.84, 5.43, (100, 0, 0)),
        (4.05, 0.01, 83.12, 4.16, (100, 0, 0)),
        (3.40, 0.00, 88.78, 3.51, (100, 0, 0)),
        (4.11, 0.02, 49.31, 5.56, (100, 0, 0)),
        (1.84, 0.01, 82.70, 4.20, (100, 0, 0)),
        (2.23, 0.02, 97.10, 1.87, (100, 0, 0)),
        (3.00, 0.00, 48.67, 5.56, (100, 0, 0)),
        (1.29, 0.00, 79.08, 4.52, (100, 0, 0)),
        (2.91, 0.01, 73.70, 4.35, (100, 0, 0)),
    ),
    "Educated guessing": _entries(
        (1.00, 0.09, 51.65, 2.98, (35, 31, 34)),
        (2.00, 0.08, 74.00, 4.39, (31, 32, 36)),
        (1.31, 0.04, 80.47, 1.08, (33, 34, 33)),
        (2.51, 0.09, 39.88, 4.57, (56, 21, 22)),
        (0.76, 0.04, 78.89, 1.52, (34, 32, 34)),
        (0.92, 0.09, 96.51, 1.49, (31, 36, 32)),
        (1.22, 0.06, 47.71, 2.50, (33, 32, 35)),
        (0.54, 0.04, 70.67, 3.35, (35, 30, 35)),
        (1.28, 0.07, 67.47, 2.73, (36, 31, 33)),
    ),
    "RouteLLM": _entries(
        (1.24, 0.10, 51.17, 2.93, (50, 0, 50)),
        (4.05, 0.01, 82.54, 2.12, (100, 0, 0)),
        (2.96, 0.04, 86.83, 1.27, (87, 0, 13)),
        (3.97, 0.04, 47.71, 3.38, (98, 0, 2)),
        (1.25, 0.05, 78.35, 1.42, (66, 0, 34)),
        (2.16, 0.04, 97.76, 0.73, (95, 0, 5)),
        (2.02, 0.07, 44.32, 2.40, (65, 0, 35)),
        (1.27, 0.02, 80.82, 2.53, (97, 0, 3)),
        (2.04, 0.05, 71.19, 2.10, (82, 0, 18)),
    ),
    "RouterDC": _entries(
        (2.09, 0.06, 60.94, 2.92, (88, 12, 0)),
        (3.61, 0.06, 82.30, 2.60, (85, 15, 0)),
        (2.14, 0.05, 87.06, 2.70, (58, 42, 0)),
        (2.67, 0.08, 47.13, 3.08, (70, 29, 2)),
        (1.85, 0.01, 82.34, 1.33, (100, 0, 0)),
        (1.90, 0.07, 97.95, 0.81, (82, 18, 0)),
        (2.89, 0.03, 46.76, 2.62, (95, 5, 0)),
        (1.30, 0.00, 80.86, 2.49, (100, 0, 0)),
        (2.11, 0.04, 73.17, 2.32, (85, 15, 0)),
    ),
    "MESS+": _entries(
        (0.83, 0.07, 53.64, 3.13, (41, 41, 18)),
        (1.74, 0.06, 77.06, 1.76, (22, 61, 18)),
        (0.90, 0.04, 82.16, 1.68, (31, 45, 24)),
        (2.50, 0.09, 41.02, 3.59, (59, 17, 23)),
        (0.67, 0.04, 79.20, 2.58, (35, 45, 19)),
        (0.83, 0.04, 96.01, 2.05, (27, 39, 34)),
        (0.67, 0.04, 45.88, 3.14, (22, 38, 41)),
        (0.52, 0.04, 73.57, 3.14, (43, 40, 17)),
        (1.08, 0.05, 68.44, 2.63, (34, 40, 26)),
    ),
}
"""Method, then benchmark or "average": the main results, at V = 1e-3 and the main SLA levels. Source: Table 2.

Values are the printed ones, also where Tables 6 and 7 differ (`MESSPLUS_TABLE_2_DIFFERS`). The costs of LogiQA are those of
three passes over its 651 requests. The average costs of L70B, RouteLLM and RouterDC follow from the values of Tables 6 and
7, not from these. MESS+'s average satisfaction is 0.13 points below, and its average share of L1B 1.75 points above, the
mean of the eight columns.
"""

MESSPLUS_TABLE_2_DIFFERS: dict[tuple[str, str], tuple[float, str]] = {
    ("Llama-3.3-70B", "arc_easy"): (5.05, "2500 recorded requests; Table 2 counts the 2000 distinct ones"),
    ("RouteLLM", "logiqa"): (1.33, "one pass over the 651 requests; Table 2 counts three"),
    ("RouterDC", "logiqa"): (1.09, "about one pass (1.04 by its shares); Table 2's 2.67 fits neither that nor three (3.11)"),
}
"""(Method, benchmark): the cost in MJ that Tables 6 and 7 print in place of Table 2's, and our reading of why.

All other cells of single models and baselines are the same in the three tables.
"""

MESSPLUS_TABLES_6_7: dict[float, dict[str, Entry]] = {
    1e-4: _entries(
        (1.51, 0.09, 54.58, 3.15, (70, 9, 21)),
        (4.87, 0.09, 78.20, 1.70, (54, 28, 19)),
        (1.38, 0.05, 81.12, 4.99, (38, 30, 32)),
        (2.97, 0.09, 43.89, 4.52, (73, 3, 24)),
        (0.84, 0.04, 79.23, 2.84, (45, 35, 21)),
        (0.41, 0.05, 96.12, 2.33, (22, 33, 45)),
        (1.46, 0.07, 46.21, 2.88, (43, 24, 33)),
        (0.90, 0.04, 74.93, 2.52, (73, 8, 19)),
        (1.79, 0.06, 69.16, 3.12, (52, 21, 27)),
    ),
    1e-5: _entries(
        (1.61, 0.09, 54.31, 2.87, (68, 11, 21)),
        (5.39, 0.09, 78.28, 1.63, (65, 16, 19)),
        (1.38, 0.05, 82.25, 3.11, (40, 33, 27)),
        (2.86, 0.09, 43.89, 4.55, (72, 2, 26)),
        (1.01, 0.04, 79.94, 2.62, (51, 38, 12)),
        (0.56, 0.07, 96.17, 2.12, (20, 37, 43)),
        (1.34, 0.06, 46.75, 2.64, (45, 35, 20)),
        (0.87, 0.04, 74.69, 2.55, (71, 10, 18)),
        (1.88, 0.07, 69.41, 2.76, (54, 23, 23)),
    ),
}
"""V in 1/J, then benchmark or "average": the row of MESS+ at a smaller V. Source: Table 6 (1e-4) and Table 7 (1e-5).

The average satisfactions are 0.13 points below the means of the eight columns, as in Table 2.
"""

MESSPLUS_TABLE_3: dict[str, Overhead] = {
    "arc_challenge": Overhead(5.75, 0.96, 589.97, 100.18, 1.01, 0.28),
    "arc_easy": Overhead(5.69, 0.56, 516.07, 95.29, 1.15, 0.28),
    "boolq": Overhead(16.80, 0.62, 236.17, 39.93, 7.35, 1.56),
    "logiqa": Overhead(41.13, 0.88, 833.21, 144.34, 5.12, 1.19),
    "piqa": Overhead(15.38, 0.70, 273.44, 44.30, 5.82, 1.67),
    "sciq": Overhead(15.12, 0.85, 263.64, 48.86, 5.95, 1.26),
    "socialiqa": Overhead(26.67, 0.60, 304.45, 53.03, 9.08, 1.96),
    "winogrande": Overhead(4.89, 0.72, 300.56, 55.07, 1.69, 0.47),
    "average": Overhead(16.43, 0.74, 414.69, 72.63, 4.65, 1.08),
}
"""Benchmark or "average": what the predictor adds to a request. Source: Table 3."""

MESSPLUS_FIGURE_2 = {0.65: 740, 0.70: 803, 0.75: 994}
"""SLA level: first request at which MESS+ with the highest V satisfies it on Winogrande. Source: Fig. 2 and App. C.2.

Single readings; the first such request varies widely from run to run.
"""

_REPLAY = {0.1: (0.60, 1.11, 0.75, 2.06, 0.30, 0.18, 0.54, 0.30), 1.0: (0.90, 1.75, 1.04, 2.59, 0.70, 0.75, 1.00, 0.53)}
MESSPLUS_REPLAY: dict[float, dict[str, float]] = {c: dict(zip(_NAMES, costs, strict=True)) for c, costs in _REPLAY.items()}
"""c, then benchmark: MJ of a pass of MESS+ with V = 1e-3 over the recorded outcomes themselves, with features that tell nothing.

Ours, 4 to 6 runs with a head of width 128 (c = 0.1), or of width 64 and with costs as last measured (c = 1); not in the paper.
"""
