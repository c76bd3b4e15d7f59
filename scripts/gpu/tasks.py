"""Tasks of a first run on a GPU in their order, and the lock by which they take turns on the device; does not import jax."""

import contextlib
import fcntl
import itertools
import os
import tempfile
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIGHT = ("UCB1", "GaussianThompson", "BetaThompson", "MESS+", "COSMOS streaming")
HEAVY = ("StageRoute", "C2MABV", "COSMOS", "ACQB")
# Kernels with medium arrays, for the limit above which the scan is used.
MIDDLE = ("BootstrapCOSMOS", "Direct", "QThS", "Random queues", "SlidingWindowUCB")
# Cases with large arrays, each in a separate process: the driver reserves memory for a kernel's stacks until the process ends.
LARGE = ("COSMOS", "ACQB")
# Rounds of a timed run: for most policies, and for those with long rounds.
HORIZONS = {**dict.fromkeys(LIGHT, 2000), **dict.fromkeys((*HEAVY, *MIDDLE), 500)}
# Graphs that XLA makes of a scan's launches, and arithmetic of a kernel: see `measures`.
GRAPHS = ("with loops", "without loops", "none")
ARITHMETIC = ("usual", "IEEE division", "uncorrected division", "IEEE root", "multiply-add", "no multiply-add")
# Kernels with many registers, and ways to compile them with fewer.
REGISTERS = dict.fromkeys(
    ("StageRoute", "C2MABV", "COSMOS", "MESS+", "BetaThompson"), ("usual", "168 registers", "128 registers", "bounds 64, 8")
)
# Environment variable with a folder that the processes share.
FOLDER = "FIRST_RUN_FOLDER"
# Files with tests for a GPU.
TESTS = ("tests/engine/test_gpu.py", "tests/kernels/test_rollout.py")
# Cases whose round is a row of bench_results/resources.json: problem and name of the policy.
ROWS = {
    "UCB1": ("stochastic", "UCB1"),
    "GaussianThompson": ("stochastic", "GaussianThompson"),
    "BetaThompson": ("stochastic", "BetaThompson"),
    "MESS+": ("service", "MessPlus"),
    "StageRoute": ("staged", "StageRoute"),
    "C2MABV": ("combinatorial", "C2MABV"),
    "COSMOS": ("cascade", "COSMOS"),
    "ACQB": ("queueing", "ACQB"),
}


@contextlib.contextmanager
def alone_on_device() -> Generator[None]:
    """Context in which no other worker uses the device; a killed process releases it."""
    with open(Path(os.environ.get(FOLDER, tempfile.gettempdir())) / "device.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Task:
    """A measurement or command.

    Attributes:
      kind: "ncu" and "pytest" are commands, every other kind is a function of `measures`.
      limit: seconds after which it is stopped.
      given: its arguments.
    """

    kind: str
    limit: float
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Kind and arguments, the key of the results."""
        words = (f"{key}={value}" if isinstance(value, int) else str(value) for key, value in self.given.items())
        return " ".join([self.kind, *words])

    @property
    def large(self) -> bool:
        """Whether the task needs a separate process."""
        return self.given.get("case") in LARGE and self.given.get("backend") != "scan"


@dataclass(frozen=True)
class Stage:
    """Tasks that finish before the next stage begins.

    Attributes:
      tasks: the tasks.
      alone: whether they run one after the other with all processors; otherwise several processes compile at the same time, and take turns
        on the device.
      asked: whether they run only if `--only` matches them.
    """

    tasks: list[Task]
    alone: bool = False
    asked: bool = False


def _each(kind: str, limit: float, cases: Iterable[str], sizes: dict[str, Any], **more: Any) -> list[Task]:
    """Makes a task for each case and each combination of further arguments, which are listed by name."""
    values = [dict(zip(more, chosen)) for chosen in itertools.product(*more.values())]
    return [Task(kind, limit, {"case": case, **one, **sizes}) for case in cases for one in values]


def _timed(case: str, backend: str, runs: int) -> Task:
    return Task("time", 120, {"case": case, "backend": backend, "runs": runs, "horizon": HORIZONS[case]})


def _simulate(runs: int, horizon: int, keep: str) -> Task:
    return Task("simulate", 120, {"case": "UCB1", "backend": "auto", "runs": runs, "horizon": horizon, "keep": keep})


def _changed(scanned: int, launched: int, horizon: int) -> list[Task]:
    """Makes tasks with other options: graphs of the scan, threads of a block, arithmetic and registers of the kernel."""
    scan, kernel = ({"runs": runs, "horizon": horizon} for runs in (scanned, launched))
    arithmetic = _each("options", 90, ("UCB1", "GaussianThompson"), kernel, how=ARITHMETIC)
    registers = [task for case, ways in REGISTERS.items() for task in _each("options", 90, [case], kernel, how=ways)]
    graphs = _each("variant", 90, ("UCB1", "StageRoute"), scan, graphs=GRAPHS)
    return [*graphs, *_each("width", 90, ["UCB1"], kernel, threads=(32, 64, 128, 256)), *arithmetic, *registers]


def _profiled(scanned: int, launched: int, horizon: int, cases: tuple[str, ...]) -> list[Task]:
    """Makes tasks with a profiler: the time of each kernel of the scan, the counters of the kernel."""
    counted = []
    for case in (*cases, "BetaThompson", *LARGE):
        sizes = {"runs": launched, "horizon": horizon // (10 if case in LARGE else 1)}
        counted.append(Task("ncu", 120, {"case": case, "backend": "kernel", **sizes}))
    return [*_each("profile", 90, cases, {"runs": scanned, "horizon": horizon}), *counted]


def stages() -> list[Stage]:
    """Returns all tasks, the most important ones first; less common sizes come last and are omitted if time runs out."""
    cases, both = (*LIGHT, *HEAVY), ("kernel", "scan")
    groups = itertools.product((LIGHT, HEAVY), (1 << 20, 10_000, 1000))
    others = [_timed(case, backend, runs) for group, runs in groups for case in group for backend in both]
    middle = [_timed(case, backend, runs) for case in MIDDLE for runs in (100_000, 10_000) for backend in both]
    large = [_timed(case, backend, 100_000) for case in cases for backend in both]
    waves = [_timed("GaussianThompson", "kernel", runs) for runs in (1 << 17, 1 << 18)]
    return [
        Stage([Task("info", 60), Task("probe", 90), *large[:2], _simulate(1_000_000, 10_000, "moments")], alone=True),
        Stage([Task("quotients", 60)], alone=True),
        Stage(_each("correct", 160, cases, {"runs": 512, "horizon": 500})),
        Stage([*large[2:], *waves, *_changed(10_000, 1 << 17, 1000)]),
        Stage([_simulate(100_000, 2000, "runs")], alone=True),
        Stage([*_profiled(10_000, 1 << 15, 500, ("UCB1", "StageRoute")), *middle, *others]),
        Stage([Task("pytest", 400, {"arguments": f"-m gpu -n 4 {' '.join(TESTS)}"})], alone=True, asked=True),
    ]


def smoke() -> list[Stage]:
    """Returns every kind of task at a tiny size, for a machine without a GPU."""
    few = {"runs": 32, "horizon": 40}
    small = [
        *_each("correct", 160, ("UCB1", "MESS+"), few),
        *_each("time", 120, (*LIGHT, *HEAVY), few, backend=["kernel"]),
        *_each("time", 120, ["UCB1"], few, backend=["scan"]),
        *_each("variant", 90, ["UCB1"], few, graphs=GRAPHS),
        *_each("width", 90, ["UCB1"], few, threads=[32]),
        *_each("options", 90, ["UCB1"], few, how=("IEEE division", "bounds 64, 8")),
    ]
    return [
        Stage([Task("info", 60), Task("probe", 120), Task("quotients", 60)], alone=True),
        Stage(small),
        Stage([_simulate(32, 40, "moments"), _simulate(32, 40, "runs")], alone=True),
        Stage(_profiled(32, 32, 40, ("UCB1",))),
        Stage([Task("pytest", 120, {"arguments": f"-m gpu -n 0 {TESTS[0]}"})], alone=True),
    ]
