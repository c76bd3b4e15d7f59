"""The benchmark's bookkeeping: its plan, a row, tables of stored results, and the page's table that is made from them."""

import importlib
import json
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parents[2]
bench = importlib.import_module("bench")


def report(speed, created="2026-01-01", device="1 x cpu", tool="jaxroute", noise=None, first=None, **ratios):
    row = {"tool": tool, "policy": "UCB1", "horizon": 1000, "runs": 64, "decisions_per_s": speed, "compile_s": 0.5}
    row |= {} if first is None else {"first_call_cpu_s": first}
    about = {} if noise is None else {"noise": {"verdict": noise, "line": f"machine: {noise}"}}
    return about | {
        "created": created,
        "device": device,
        "commit": "abc",
        "versions": {"jax": "0.10"},
        "problems": {"stochastic": {"rows": [row], "ratios": {"UCB1": ratios}}},
    }


def stored(folder, *reports):
    files = []
    for i, one in enumerate(reports):
        files.append(folder / f"{i}.json")
        files[-1].write_text(json.dumps(one))
    return [str(f) for f in files]


def test_two_results_are_compared(tmp_path, capsys):
    files = stored(tmp_path, report(2e6), report(3e6, device="1 x H200", noise="noisy"))
    assert bench.main(["--compare", *files]) == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("1.50", "The devices differ.", "1,000 x 64", "B: machine: noisy"))


NO_RESULT = "--compare must be given two JSON files of this benchmark, got {!r}"


@pytest.mark.parametrize(
    "second, message",
    [
        ("{}", NO_RESULT),
        ("not JSON", NO_RESULT),
        (None, NO_RESULT),
        (json.dumps(report(2e6, tool="loop")), "must have a row in common"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, capsys, second, message):
    other = tmp_path / "other"
    if second is not None:
        other.write_text(second)
    with pytest.raises(SystemExit, match="2"):
        bench.main(["--compare", *stored(tmp_path, report(2e6)), str(other)])
    assert message.format(str(other)) in capsys.readouterr().err


def test_the_latest_of_each_row_is_shown(tmp_path):
    stored(tmp_path, report(3e6, "2026-02-01", loop=250.0), report(2e6, "2026-01-01"), report(5e7, device="1 x H200"))
    text = bench.section(tmp_path)
    assert "| stochastic | UCB1 | 1,000 x 64 | 3 M |  | 0.5 s | 250 x loop |" in text
    assert text.index("1 x H200:") < text.index("1 x cpu:") and "50 M" in text
    with pytest.raises(ValueError, match="folder must hold the JSON files"):
        bench.section(tmp_path / "nothing")


def test_a_noisy_machine_gives_first_calls_and_no_speeds(tmp_path):
    noisy = report(1e6, "2026-03-01", noise="noisy", first=1.25, loop=9.0)
    stored(tmp_path, report(3e6, "2026-02-01", loop=250.0), noisy)
    assert "| 1,000 x 64 | 3 M | 1.2 CPU s | 0.5 s | 250 x loop |" in bench.section(tmp_path)
    stored(tmp_path, report(4e6, "2026-04-01", noise="quiet", first=1.5), noisy)
    assert "| 1,000 x 64 | 4 M | 1.5 CPU s | 0.5 s |  |" in bench.section(tmp_path)


def test_spread_other_processes_and_load_decide_whether_a_machine_is_quiet():
    assert bench.spread([1.0]) is None
    assert bench.spread([1.0, 1.1, 0.9]) == pytest.approx(0.2)
    steady = [bench.spread(s) for s in ([1.0, 1.02, 1.05], [2.0, 2.0, 2.9], [0.1, 0.1, 0.101], [1.0])]
    calm = bench.quietness(steady, others=0.01, load=3.0, cores=2)  # The load may be that of an earlier command.
    assert calm["verdict"] == "quiet" and calm["spread"] == pytest.approx(0.05 / 1.02)
    assert calm["line"] == (
        "machine: quiet (median spread of 3 rows 5%, other processes used 1% of 2 cores, load average 3.00 at the start)"
    )
    for spreads, others, load in ((steady, 0.2, 0.0), ([0.3, 0.2, 0.01], 0.0, 0.0), (steady, None, 1.0)):
        found = bench.quietness(spreads, others, load, cores=2)
        assert found["verdict"] == "noisy" and found["line"].endswith("measure again before quoting a speed")
    assert bench.quietness(steady, None, 0.3, cores=2)["verdict"] == "quiet"
    assert bench.quietness([None], 0.0, 0.0, cores=2)["verdict"] == "unknown"


def test_the_plan_is_the_readmes_rows_and_takes_five_minutes():
    short, full = bench.plan(), bench.plan(full=True)
    assert list(full) == list(bench.PROBLEMS) and set(full) - set(short) == set(bench.LONG)
    everything = sum(len(problem.policies) for problem in bench.PROBLEMS.values())
    assert [sum(map(len, rows.values())) for rows in (short, full)] == [14, everything]
    assert bench.plan(only=["staged"])["staged"] == list(bench.PROBLEMS["staged"].policies)
    assert bench.plan(policies=["QUCB"]) == {"queueing": ["QUCB"]}

    # As stored: the latest row of each tool from a machine that is not said to have been noisy.
    known = {}
    for file in sorted(bench.RESULTS.glob("cpu-*.json")):
        stored = json.loads(file.read_text())
        for problem, parts in stored["problems"].items() if stored.get("noise", {}).get("verdict") != "noisy" else ():
            for row in parts["rows"]:
                known[problem, row["policy"].removesuffix(", 512 settings"), row["tool"]] = row
    jaxroutes = {(problem, policy) for problem, policy, tool in known if tool == "jaxroute"}
    assert {(problem, policy) for problem, names in short.items() for policy in names} <= jaxroutes
    total = 0.0
    for (problem, policy, tool), row in known.items():
        ours = tool == "jaxroute" or (tool, problem, policy) in bench.COMPARED
        if policy in short.get(problem, ()) and "seconds" in row and ours:
            seconds = row.get("wall_seconds", row["seconds"])
            repeats = 1 if tool in bench.SLOW else max(2, min(5, 1 + int(bench.PATIENCE / seconds)))
            total += row.get("compile_s", 0.0) + (repeats + ("compile_s" in row)) * seconds
    assert 60 < total < 300 - 10  # Numba compiles for 10 s.


def test_repeats_end_when_patience_does():
    calls = []
    counted = bench.measured(lambda: calls.append(1) or {"decisions": 7}, 5, patience=0.0)
    assert counted["repeats"] == len(calls) == len(counted["seconds_all"]) == 2
    assert bench.measured(lambda: {"decisions": 7}, 5)["repeats"] == 5
    assert bench.measured(lambda: {"decisions": 7}, 1)["spread"] is None


def test_a_bench_keeps_the_first_call_and_says_whether_the_machine_was_quiet(tmp_path, capsys, monkeypatch):
    enabled, kept = jax.config.jax_enable_compilation_cache, []
    traces, clear = bench.PROGRAMS.traces, bench.PROGRAMS.clear
    monkeypatch.setattr(bench.PROGRAMS, "clear", lambda: (kept.append(jax.config.jax_enable_compilation_cache), clear()))
    sizes = ("--horizon", "50", "--seeds", "8", "--repeats", "2", "--no-comparators", "--out", str(tmp_path))
    assert bench.main(["--only", "stochastic", "--policies", "UCB1", *sizes]) == 0
    assert kept == [False] and jax.config.jax_enable_compilation_cache == enabled
    assert bench.PROGRAMS.traces == traces + 1  # By the first call, which plays nothing; the others take its program.
    (file,) = tmp_path.iterdir()
    made = json.loads(file.read_text())
    (row,) = made["problems"]["stochastic"]["rows"]
    assert row["first_call_s"] > 0 and row["first_call_cpu_s"] > 0
    assert row["spread"] is not None
    shown = capsys.readouterr().out
    assert "first call" in shown and shown.rstrip().endswith(made["noise"]["line"])
    assert made["noise"]["verdict"] in ("quiet", "noisy") and f"{row['first_call_s']:.1f} s" in shown


def test_the_page_is_made_from_what_is_stored():
    page = bench.PAGE.read_text(encoding="utf-8")
    assert bench.written(page, bench.section()) == page, "run scripts/bench.py --page"
    with pytest.raises(ValueError, match=r"performance.md must have one"):
        bench.written("no section", "text")
