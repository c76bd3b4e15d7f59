"""What a first run on a GPU does, and in which order. Nothing here needs jax."""

import itertools
from dataclasses import dataclass, field
from typing import Any

LIGHT = ("UCB1", "GaussianThompson", "BetaThompson", "MESS+", "COSMOS streaming")
HEAVY = ("StageRoute", "C2MABV", "ACQB")
# Sizes of what is timed: for most policies, and for those whose rounds take long.
HORIZONS = {**dict.fromkeys(LIGHT, 2000), **dict.fromkeys(HEAVY, 500)}
# Graphs that XLA makes of a scan's launches, and arithmetic of a kernel: see `measures`.
GRAPHS = ("with loops", "without loops", "none")
ARITHMETIC = ("usual", "IEEE division", "multiply-add")
# Files with tests for a GPU.
TESTS = ("tests/engine/test_gpu.py", "tests/engine/kernels/test_rollout.py")
# Cases whose round is a row of bench_results/resources.json: problem and name of the policy.
ROWS = {
    "UCB1": ("stochastic", "UCB1"),
    "GaussianThompson": ("stochastic", "GaussianThompson"),
    "BetaThompson": ("stochastic", "BetaThompson"),
    "MESS+": ("service", "MessPlus"),
    "StageRoute": ("staged", "StageRoute"),
    "C2MABV": ("combinatorial", "C2MABV"),
}


@dataclass(frozen=True)
class Task:
    """One thing to do.

    kind: "ncu" and "pytest" are commands of their own, every other kind is a function of `measures`.
    limit: seconds after which it is ended.
    given: its arguments.
    """

    kind: str
    limit: float
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Kind and arguments, as results are named and `--only` finds them."""
        words = (f"{key}={value}" if isinstance(value, int) else str(value) for key, value in self.given.items())
        return " ".join([self.kind, *words])


@dataclass(frozen=True)
class Stage:
    """Tasks that are done before the next stage begins.

    alone: one after the other, with all processors; otherwise several processes compile at the same time, and take turns on the device.
    """

    tasks: list[Task]
    alone: bool = False


def stages() -> list[Stage]:
    """All tasks, the most wanted first: the less common sizes come last, and a run that takes longer does without them."""
    cases, both = (*LIGHT, *HEAVY), ("kernel", "scan")
    large = [_timed(case, backend, 100_000) for case in cases for backend in both]
    others = [
        _timed(case, backend, runs)
        for group, runs in itertools.product((LIGHT, HEAVY), (1 << 20, 10_000, 1000))
        for case in group
        for backend in both
    ]
    return [
        Stage([Task("info", 60), Task("probe", 90)], alone=True),
        Stage([*(_correct(case, 512, 500) for case in cases), *large, *_changed(10_000, 1 << 17, 1000)]),
        Stage([_simulate(1_000_000, 10_000, "moments"), _simulate(100_000, 2000, "runs")], alone=True),
        Stage([*_watched(10_000, 1 << 17, 500, ("UCB1", "StageRoute")), *others]),
        Stage([Task("pytest", 170, {"arguments": f"-m gpu -n 4 {' '.join(TESTS)}"})], alone=True),
    ]


def smoke() -> list[Stage]:
    """Every kind of task at a tiny size, for a machine without a GPU."""
    few = {"runs": 32, "horizon": 40}
    return [
        Stage([Task("info", 60), Task("probe", 120)], alone=True),
        Stage(
            [
                *(_correct(case, **few) for case in ("UCB1", "MESS+")),
                *(Task("time", 120, {"case": case, "backend": "kernel", **few}) for case in (*LIGHT, *HEAVY)),
                Task("time", 120, {"case": "UCB1", "backend": "scan", **few}),
                *(Task("variant", 90, {"case": "UCB1", "graphs": graphs, **few}) for graphs in GRAPHS),
                Task("width", 90, {"case": "UCB1", "threads": 32, **few}),
                Task("options", 90, {"case": "UCB1", "arithmetic": "IEEE division", **few}),
            ]
        ),
        Stage([_simulate(32, 40, "moments"), _simulate(32, 40, "runs")], alone=True),
        Stage(_watched(32, 32, 40, ("UCB1",))),
        Stage([Task("pytest", 120, {"arguments": f"-m gpu -n 0 {TESTS[0]}"})], alone=True),
    ]


def _timed(case: str, backend: str, runs: int) -> Task:
    return Task("time", 120, {"case": case, "backend": backend, "runs": runs, "horizon": HORIZONS[case]})


def _correct(case: str, runs: int, horizon: int) -> Task:
    return Task("correct", 160, {"case": case, "runs": runs, "horizon": horizon})


def _simulate(runs: int, horizon: int, keep: str) -> Task:
    return Task("simulate", 120, {"case": "UCB1", "backend": "auto", "runs": runs, "horizon": horizon, "keep": keep})


def _changed(scanned: int, played: int, horizon: int) -> list[Task]:
    """What is compiled or launched in another way: how XLA compiles the scan, threads of a block, and arithmetic of the kernel."""
    scan, kernel = ({"runs": runs, "horizon": horizon} for runs in (scanned, played))
    return [
        *(
            Task("variant", 90, {"case": case, "graphs": graphs, **scan})
            for case in ("UCB1", "StageRoute")
            for graphs in GRAPHS
        ),
        *(Task("width", 90, {"case": "UCB1", "threads": threads, **kernel}) for threads in (32, 64, 128, 256)),
        *(
            Task("options", 90, {"case": case, "arithmetic": arithmetic, **kernel})
            for case in ("UCB1", "GaussianThompson")
            for arithmetic in ARITHMETIC
        ),
    ]


def _watched(scanned: int, played: int, horizon: int, cases: tuple[str, ...]) -> list[Task]:
    """What profilers see: of the scan each kernel, of the kernel its counters."""
    return [
        *(Task("profile", 90, {"case": case, "runs": scanned, "horizon": horizon}) for case in cases),
        Task("ncu", 120, {"case": "UCB1", "backend": "kernel", "runs": played, "horizon": horizon}),
    ]
