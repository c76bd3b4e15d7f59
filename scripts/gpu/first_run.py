"""Measures jaxroute on a GPU by one command of at most nine minutes: whether it works, is right, and how fast it is.

    python scripts/gpu/first_run.py                        # on a machine with a GPU; results in $OUT/results.json
    python scripts/gpu/first_run.py --resume results.json  # continues with what an earlier call has not finished
    python scripts/gpu/first_run.py --only pytest          # the tests for a GPU, by a separate call
    python scripts/gpu/first_run.py --smoke                # every kind of task at a tiny size, on a CPU or on what JAX_PLATFORMS names
    python scripts/gpu/first_run.py --list --only UCB1

Every result is written at once. Separate processes (`workers.py`) do the tasks, so that one that hangs or crashes affects no other.
`tasks.py` lists the tasks in their order, `measures.py` has the measurements.
"""

import argparse
import csv
import functools
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from gpu import tasks, workers
from gpu.tasks import Stage, Task

ROOT = Path(__file__).resolve().parents[2]
RESOURCES = ROOT / "scripts" / "bench_results" / "resources.json"
# Fewest remaining seconds in which a task is started.
LEAST_S = 20
# State of a finished task by a key of its results; any other is "done".
ENDS = {"error": "failed", "skipped": "skipped"}
# Numbers of a result in the output.
SHOWN = (
    *("trace_s", "kernel_s", "compile_s", "us_per_round", "decisions_per_s", "share_of_ceiling", "watched_us_per_round"),
    *("registers", "local_bytes", "corrected_not_1", "reciprocal_not_1", "rc"),
)
# What ncu counts of a kernel.
COUNTERS = (
    *("gpu__time_duration.sum", "smsp__inst_executed.sum", "smsp__cycles_active.avg", "dram__bytes.sum"),
    *("smsp__issue_active.avg.pct_of_peak_sustained_active", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    *("launch__registers_per_thread", "launch__occupancy_limit_registers", "launch__waves_per_multiprocessor"),
    *(f"sm__inst_executed_pipe_{pipe}.avg.pct_of_peak_sustained_active" for pipe in ("alu", "fma", "xu")),
    *("l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum"),
    *("smsp__thread_inst_executed_per_inst_executed.ratio", "l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct"),
    *(f"smsp__average_warps_issue_stalled_{why}_per_issue_active.ratio"
        for why in ("wait", "math_pipe_throttle", "no_instruction", "branch_resolve", "long_scoreboard", "lg_throttle")),
)  # fmt: skip


class Report:
    """Results by name of task, in a file that is updated with each of them.

    Args:
      file: JSON file.
      todo: tasks of this call.
      earlier: results of another call, which stay unless their task is repeated.
    """

    def __init__(self, file: Path, todo: Sequence[Task], earlier: Mapping[str, Any]):
        self._file, self._lock, self._begun = file, threading.Lock(), time.monotonic()
        fresh = {task.name: {"kind": task.kind, "given": task.given, "state": "not reached"} for task in todo}
        self.results: dict[str, dict[str, Any]] = {**earlier, **fresh}
        self._write()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    def add(self, task: Task, piece: Mapping[str, Any]) -> None:
        """Adds partial results of a task."""
        with self._lock:
            entry = self.results[task.name]
            entry.setdefault("at_s", round(self.elapsed_s, 1))
            entry.update(piece, state="begun")
            most = ceiling(task, self.results.get("info", {})) if "decisions_per_s" in piece else None
            if most is not None:
                entry |= {"ceiling": most, "share_of_ceiling": piece["decisions_per_s"] / most}
            self._write()

    def end(self, task: Task) -> None:
        """Marks a task as finished."""
        with self._lock:
            entry = self.results[task.name]
            entry["state"] = next((state for key, state in ENDS.items() if key in entry), "done")
            self._write()
            print(f"{self.elapsed_s:6.1f} s  {task.name}: {in_line(entry)}", flush=True)

    def _write(self) -> None:
        partial = self._file.with_suffix(".part")
        content = {"elapsed_s": round(self.elapsed_s, 1), "results": self.results}
        partial.write_text(json.dumps(content, indent=1, default=str) + "\n")
        partial.replace(self._file)


def ceiling(task: Task, device: Mapping[str, Any]) -> float | None:
    """Returns the decisions per second of a kernel if only the cycles of `scripts/resources.py` took time.

    Args:
      task: task with a case.
      device: results of the task "info".
    """
    cycles = _cycles(RESOURCES).get(tasks.ROWS.get(task.given["case"], ("", "")))
    is_scan = "graphs" in task.given or task.given.get("backend") == "scan"
    if is_scan or cycles is None or not device.get("processors") or "smi" not in device:
        return None
    return device["processors"] * 4 * 32 * 1e6 * float(device["smi"]["clocks.max.sm"]) / cycles


@functools.cache
def _cycles(file: Path) -> dict[tuple[str, str], int]:
    """Reads the cycles of a round by problem and policy from the results of `scripts/resources.py`."""
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    return {(row["problem"], row["policy"]): row["round_cycles"] for row in rows if "round_cycles" in row}


class Call:
    """Executes tasks by several processes until a deadline.

    Args:
      report: the results.
      folder: temporary folder of logs and compiled programs.
      env: environment variables of all processes.
      deadline: seconds until everything is stopped.
    """

    def __init__(self, report: Report, folder: Path, env: Mapping[str, str], deadline: float):
        self._report, self._folder, self._env, self._deadline = report, folder, env, deadline

    def execute(self, stage: Stage, number: int) -> None:
        """Executes the tasks of a stage by `number` processes."""
        todo, cores = deque(stage.tasks), sorted(os.sched_getaffinity(0))
        number = 1 if stage.alone else min(number, len(cores), len(todo))

        def work(place: int) -> None:
            own = set(cores[len(cores) * place // number : len(cores) * (place + 1) // number])
            worker = workers.Worker(self._folder / f"worker-{place}.log", self._env, own)
            while (left := self._deadline - self._report.elapsed_s) > LEAST_S:
                try:
                    task = todo.popleft()
                except IndexError:
                    break
                self._do(task, worker, min(task.limit, left))
                if task.large:
                    worker.stop()
            worker.stop()

        threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def logs(self) -> str:
        """Returns the output of the processes."""
        files = sorted(self._folder.glob("*.log"))
        return "\n".join(f"===== {file.name}\n{file.read_text(errors='replace')[-200_000:]}" for file in files)

    def _do(self, task: Task, worker: workers.Worker, limit: float) -> None:
        commands = {"ncu": self._ncu, "pytest": self._pytest}
        try:
            for piece in commands[task.kind](task, limit) if task.kind in commands else worker.do(task, limit):
                self._report.add(task, piece)
        except Exception as error:  # An error of one task must not prevent the next.
            self._report.add(task, {"error": f"{type(error).__name__}: {error}"})
        self._report.end(task)

    def _ncu(self, task: Task, limit: float) -> Iterator[dict[str, Any]]:
        """Yields the counters of the second launch of a kernel, since the first is short."""
        if not shutil.which("ncu"):
            yield {"skipped": "there is no ncu"}
            return
        how = ["--clock-control", "none", "--csv", "--page", "raw", "--kernel-name", "regex:rounds"]
        how += ["--launch-skip", "1", "--launch-count", "1"]
        inner = (sys.executable, __file__, "--one", json.dumps(["time", task.given]))
        rc, text = self._command(["ncu", *how, "--metrics", ",".join(COUNTERS), *inner], limit)
        found = counters(text)
        yield {"rc": rc, "counters": found}
        if rc or not found:
            yield {"error": text[-1500:]}

    def _pytest(self, task: Task, limit: float) -> Iterator[dict[str, Any]]:
        how = ("-p", "no:cacheprovider", "-rfE", "--durations=8", *task.given["arguments"].split())
        rc, text = self._command([sys.executable, "-m", "pytest", *how], limit)
        yield {"rc": rc, "tail": text[-6000:]}
        if rc:
            yield {"error": text[-1500:]}

    def _command(self, words: Sequence[str], limit: float) -> tuple[int, str]:
        return workers.run_command(words, limit, self._env, ROOT, self._folder / "commands.log")


def counters(text: str) -> dict[str, str]:
    """Reads values with units from ncu's CSV: a line of names, one of units, one for each launch."""
    lines = text.splitlines()
    begin = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.reader(lines[begin : begin + 3]))
    if len(rows) < 3:
        return {}
    return {name: f"{value} {unit}".strip() for name, unit, value in zip(*rows, strict=False) if name in COUNTERS}


def in_line(entry: Mapping[str, Any]) -> str:
    """Formats the state and the main results of a task in one line."""
    if "error" in entry or "skipped" in entry:
        return f"{entry['state']}: {entry.get('error') or entry['skipped']}"[:300].replace("\n", " ")
    parts = []
    for name, value in entry.items():
        if name in SHOWN and value is not None:
            parts.append(f"{name} {value:.4g}")
        elif isinstance(value, bool):
            parts.append(f"{name} {value}")
        elif isinstance(value, dict) and "runs_equal" in value:
            z = max(map(abs, value["z"].values()), default=0.0)
            parts.append(f"{name}: {value['runs_equal'][0]:.3f} to {value['runs_equal'][-1]:.3f} equal, z {z:.1f}")
        elif isinstance(value, dict) and "wall_s" in value:
            parts.append(f"{name} {value['wall_s']:.2f} s by the {value['backend']}")
    return ": ".join(filter(None, [entry["state"], ", ".join(parts)]))


def table(results: Mapping[str, Any]) -> str:
    """Formats the device and versions; the tasks that were timed, row by row; then a line for each other task."""
    info = results.get("info", {})
    versions = {"driver": info.get("smi", {}).get("driver_version"), "NVRTC": results.get("probe", {}).get("nvrtc_version")}
    versions |= {name: version for name, version in info.get("packages", {}).items() if name.startswith(("jax", "nvidia"))}
    about = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    size = f"{info.get('processors')} processors, {info.get('smi', {}).get('clocks.max.sm')} MHz"
    head = f"{info.get('device')}, {size}; {about}"
    rows = [f"{'':<58}{'us/round':>10}{'decisions/s':>13}{'of ceiling':>11}{'trace s':>9}{'kernel s':>9}{'XLA s':>7}"]
    lines = []
    for name, entry in results.items():
        if "us_per_round" in entry and entry["state"] == "done":
            share = f"{entry['share_of_ceiling']:11.2f}" if "share_of_ceiling" in entry else " " * 11
            made = f"{entry['trace_s']:9.1f}{entry['kernel_s']:9.1f}{entry['compile_s']:7.1f}"
            rows.append(f"{name:<58}{entry['us_per_round']:10.2f}{entry['decisions_per_s']:13.3g}{share}{made}")
        else:
            lines.append(f"{name}: {in_line(entry)}")
    return "\n".join([head, *rows, "", *lines, *(entry["tail"][-700:] for entry in results.values() if "tail" in entry)])


def environment(folder: Path, smoke: bool) -> dict[str, str]:
    """Returns the environment variables of all processes: no cached programs, shared device memory, and no autotuning beside another measurement."""
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "XDG_CACHE_HOME": str(folder),
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "1",
        tasks.FOLDER: str(folder),
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0".strip(),
        **({"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS") or "cpu"} if smoke else {}),
    }


def chosen(stages: Sequence[Stage], pattern: str, earlier: Mapping[str, Any]) -> list[Stage]:
    """Selects the unfinished tasks that match a pattern, and always `info`."""
    finished = {name for name, entry in earlier.items() if entry["state"] in ("done", "skipped")}

    def wanted(task: Task, asked: bool) -> bool:
        found = re.search(pattern, task.name) if pattern or not asked else None
        return task.kind == "info" or bool(found and task.name not in finished)

    return [Stage([task for task in stage.tasks if wanted(task, stage.asked)], stage.alone) for stage in stages]


def execute(todo: Sequence[Stage], report: Report, out: Path, number: int, deadline: float, smoke: bool) -> int:
    """Executes all stages; returns 0, or 1 if a GPU is needed and missing."""
    with tempfile.TemporaryDirectory(prefix="first-run-") as folder:
        call = Call(report, Path(folder), environment(Path(folder), smoke), deadline)
        try:
            for stage in todo:
                call.execute(stage, number)
                if not smoke and report.results["info"].get("platform") == "cpu":
                    print("there is no GPU; --smoke tries everything without one", file=sys.stderr)
                    return 1
        finally:
            (out / "log.txt").write_text(call.logs())
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Executes the tasks and prints a table; returns 0, or 1 if there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on a CPU or on what JAX_PLATFORMS names")
    parser.add_argument("--only", default="", metavar="REGEX", help="only tasks whose names match")
    parser.add_argument("--list", action="store_true", help="only print the names of the tasks")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="results of an earlier call, which stay")
    parser.add_argument("--deadline", type=float, default=525.0, help="seconds until everything is ended (default 525)")
    parser.add_argument("--workers", type=int, help="processes at the same time (default 4, and 1 for --smoke)")
    parser.add_argument("--out", type=Path, default=os.environ.get("OUT", "results/first_run"), help="folder (default $OUT)")
    parser.add_argument("--one", type=json.loads, metavar="JSON", help="kind and arguments of a task, done by this process")
    options = parser.parse_args(arguments)
    if options.one:
        kind, given = options.one
        print(*map(json.dumps, workers.pieces(Task(kind, 0.0, given))), sep="\n")
        return 0
    earlier = json.loads(options.resume.read_text())["results"] if options.resume else {}
    todo = chosen(tasks.smoke() if options.smoke else tasks.stages(), options.only, earlier)
    every = [task for stage in todo for task in stage.tasks]
    if options.list:
        print(*(task.name for task in every), sep="\n")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    report = Report(options.out / "results.json", every, earlier)
    number = options.workers or (1 if options.smoke else 4)
    failed = execute(todo, report, options.out, number, options.deadline, options.smoke)
    print(f"\n{table(report.results)}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
