"""The first run on a GPU without one: every kind of task at a tiny size, and the tasks that fail."""

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import fake_gpu
import pytest

first_run = importlib.import_module("gpu.first_run")
measures = importlib.import_module("gpu.measures")
tasks = importlib.import_module("gpu.tasks")
workers = importlib.import_module("gpu.workers")

SCRIPT = Path(first_run.__file__)


def played(folder, *options, failing=()):
    """Results of a call in small, of which no other task than these may have failed."""
    command = [sys.executable, str(SCRIPT), "--smoke", "--out", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads((folder / "results.json").read_text())["results"]
    assert {name for name, r in results.items() if r["state"] not in ("done", "skipped")} == set(failing), done.stdout
    return results


def test_a_kernel_is_timed_and_has_the_bits_of_the_scan(tmp_path):
    results = played(tmp_path, "--only", "probe|time UCB1 kernel")
    assert [r["kind"] for r in results.values()] == ["info", "probe", "time"]
    alike = results["probe"]["kernel_against_cpu"]
    assert alike["runs_equal"] == [1.0] * 20 and set(alike["bit_equal"].values()) == {1.0}
    assert len(results["time UCB1 kernel runs=32 horizon=40"]["seconds"]) == 6


@pytest.mark.slow
def test_every_kind_of_task_is_played(tmp_path):
    results = played(tmp_path)
    assert {r["kind"] for r in results.values()} == {task.kind for stage in tasks.stages() for task in stage.tasks}
    for name, entry in results.items():
        assert entry["kind"] != "correct" or (entry["scan_twice_equal"] and entry["half_alone_equal"]), name
    assert results["quotients"]["corrected_not_1"] == 0 < results["quotients"]["reciprocal_not_1"]
    skipped = {r["kind"] for r in results.values() if r["state"] == "skipped"}
    assert {"width", "options"} <= skipped <= {"width", "options", "ncu"}


@pytest.mark.slow
@pytest.mark.skipif(bool(fake_gpu.missing()), reason=fake_gpu.missing())
def test_every_kind_of_task_runs_on_the_fake_gpu(tmp_path, monkeypatch):
    """Kernels compute there, XLA's own ones do nothing: states are not initialised, which `probe` must find. It has no counters for profiles."""
    for name, value in fake_gpu.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    results = played(tmp_path, "--only", "^(?!pytest|profile)", failing=["probe"])
    assert results["probe"]["error"].startswith("RuntimeError: all kernels are off: bits: ")
    assert results["quotients"]["reciprocal_not_1"] > 0 and results["info"]["platform"] == "gpu"
    kernels = [r for r in results.values() if r["kind"] in ("width", "options") or r["given"].get("backend") == "kernel"]
    done = [r for r in kernels if r["state"] == "done"]
    assert all(r["registers"] == 64 and len(r["free_bytes"]) == 2 for r in done) and len(kernels) > 10
    assert {r["kind"] for r in results.values() if r["state"] == "skipped"} <= {"ncu"}


@pytest.mark.parametrize("stages", [tasks.stages, tasks.smoke])
def test_tasks_are_what_is_measured(stages):
    """Also those that only a GPU plays, of which each has a name of its own and arguments that are known."""
    todo = [task for stage in stages() for task in stage.tasks]
    assert len({task.name for task in todo}) == len(todo)
    for task in todo:
        if task.kind != "pytest":
            measure = measures.KINDS["time" if task.kind == "ncu" else task.kind]
            given = inspect.signature(measure).bind(**task.given).arguments
            assert given.get("case", "UCB1") in measures.CASES, task
            assert given.get("graphs", "none") in measures.GRAPHS, task
            assert given.get("how", "usual") in measures.HOW, task


MEASURES = """
import os, time

def fine():
    yield {"first": 1}
    yield {"second": 2}

def dies():
    yield {"first": 1}
    print("its last words", flush=True)
    os._exit(3)

def hangs():
    yield {"first": 1}
    time.sleep(600)

def fails():
    yield {"first": 1}
    raise ValueError("wrong")

KINDS = {f.__name__: f for f in (fine, dies, hangs, fails)}
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """One whose tasks are those above."""
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "measures.py").write_text(MEASURES)
    monkeypatch.syspath_prepend(tmp_path)
    made = workers.Worker(tmp_path / "log", {}, os.sched_getaffinity(0))
    yield made
    made.stop()


@pytest.mark.parametrize(
    "kind, error", [("dies", "its process ended with 3"), ("hangs", "took more than 5 s"), ("fails", "ValueError: wrong")]
)
def test_what_was_told_before_an_error_is_kept_and_the_next_task_is_done(worker, kind, error):
    def told(kind):
        return {name: value for piece in worker.do(tasks.Task(kind, 5), 5.0) for name, value in piece.items()}

    first = told(kind)
    assert first["first"] == 1 and first["error"] == error
    assert "its last words" in first.get("log", "") or kind != "dies"
    after = told("fine")
    assert (after["first"], after["second"]) == (1, 2) and "error" not in after


def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path):
    words = ["sh", "-c", "echo begun; sleep 600 & wait"]
    rc, text = workers.run_command(words, 1.0, {}, tmp_path, tmp_path / "log")
    assert rc != 0 and text.startswith("begun") and "took more than 1 s" in text
    assert "begun" in (tmp_path / "log").read_text()


def test_what_is_done_is_not_done_again(tmp_path):
    todo = [task for stage in tasks.smoke() for task in stage.tasks]
    info, probe, other = todo[:3]
    states = {info.name: "done", probe.name: "done", other.name: "failed", "old": "done"}
    earlier = {name: {"state": state} for name, state in states.items()}
    left = [task for stage in first_run.chosen(tasks.smoke(), "", earlier) for task in stage.tasks]
    assert left == [info, other, *todo[3:]]
    first_run.Report(tmp_path / "results.json", left, earlier)
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert results["old"] == results[probe.name] == {"state": "done"} and results[other.name]["state"] == "not reached"


def test_shares_of_the_ceiling_are_those_of_a_kernel_on_this_device(tmp_path, monkeypatch):
    resources = tmp_path / "resources.json"
    rows = [
        {"problem": "stochastic", "policy": "UCB1", "round_instructions": 560, "round_cycles": 660},
        {"problem": "staged", "policy": "StageRoute", "reason": "none"},
    ]
    resources.write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr(first_run, "RESOURCES", resources)
    given = {"case": "UCB1", "backend": "kernel", "runs": 64, "horizon": 40}
    kernel, scan, other = (tasks.Task("time", 1, given | new) for new in ({}, {"backend": "scan"}, {"case": "StageRoute"}))
    info = {"kind": "info", "state": "done", "processors": 100, "smi": {"clocks.max.sm": "1980"}}
    report = first_run.Report(tmp_path / "results.json", [kernel, scan, other], {"info": info})
    made = {"trace_s": 0.1, "kernel_s": 0.2, "compile_s": 0.3, "us_per_round": 4.0, "decisions_per_s": 9.6e9}
    for task in (kernel, scan, other):
        report.add(task, made)
        report.end(task)
    assert report.results[kernel.name]["ceiling"] == pytest.approx(100 * 128 * 1.98e9 / 660)
    assert report.results[kernel.name]["share_of_ceiling"] == pytest.approx(0.25)
    assert "ceiling" not in report.results[scan.name] and "ceiling" not in report.results[other.name]
    assert "9.6e+09       0.25" in first_run.table(report.results)


def test_the_headline_comes_first_and_the_tests_by_a_separate_call():
    """Limits of tasks are for those that hang: the headline's take a few seconds each on a GPU."""
    todo = [task for stage in first_run.chosen(tasks.stages(), "", {}) for task in stage.tasks]
    head = ["info", "probe", "time", "time", "simulate", "quotients", "correct"]
    assert [task.kind for task in todo[:7]] == head and all(task.kind != "pytest" for task in todo)
    asked = [task.kind for stage in first_run.chosen(tasks.stages(), "pytest", {}) for task in stage.tasks]
    assert asked == ["info", "pytest"]
    assert {task.given["case"] for task in todo if task.large} == {"ACQB", "COSMOS"}


@pytest.mark.parametrize("step", ["launch", "bits"])
def test_the_step_that_fails_is_named_and_the_scan_is_looked_at(monkeypatch, step):
    """The scan of the CPU, the kernel and the scan are simulated and compared in this order."""
    values, compared = measures.Simulation.values, measures.compared
    refused, apart = iter([False, step == "launch", False]), iter([step == "bits", False, False])

    def simulated(play):
        if next(refused):
            raise ValueError("refused")
        return values(play)

    monkeypatch.setattr(measures.Simulation, "values", simulated)
    monkeypatch.setattr(measures, "compared", lambda *both: {"z": {"regret": 9.0}} if next(apart) else compared(*both))
    pieces = {}
    with pytest.raises(RuntimeError, match=f"^all kernels are off: {step}: ValueError: "):
        for piece in measures.probe():
            pieces |= piece
    assert pieces["scan_against_cpu"]["runs_equal"] == [1.0] * 20


def test_counters_are_read_from_what_ncu_prints():
    text = (
        '==PROF== Connected\n{"trace_s": 1}\n"ID","Kernel Name","dram__bytes.sum"\n"","","Mbyte"\n"0","rounds","1,234.5"\n'
    )
    assert first_run.counters(text) == {"dram__bytes.sum": "1,234.5 Mbyte"}
    assert first_run.counters("==ERROR== ERR_NVGPUCTRPERM\n") == {}
