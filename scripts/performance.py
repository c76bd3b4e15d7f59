"""Writes the table of notebooks/site/performance.md from the stored results of `bench.py`.

    python scripts/performance.py            # rewrites the table of the page
    python scripts/performance.py --all      # prints the tables of all policies

A row is the latest result for a device, problem, policy, horizon and number of runs, with ratios to comparators of the same job. A result
from a noisy machine contributes no speeds, only the CPU time of first calls, which noise hardly changes. The page shows the policies that
have a comparator, and the first policy of each problem.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from comparators import COMPARATORS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "scripts" / "bench_results"
PAGE = ROOT / "notebooks" / "site" / "performance.md"
START, END = "<!-- performance -->", "<!-- /performance -->"
# Tool, problem and policy of today's comparisons; older results have more. The first is of a grid.
COMPARED = {("one setting at a time", "service, grid", "MessPlus"), *COMPARATORS}


def latest(reports: Iterable[dict[str, Any]]) -> dict[tuple, dict[str, Any]]:
    """Returns the latest row of jaxroute for each device, problem, policy, horizon and number of runs.

    A row has `ratios` to comparators and `first`, whether its policy is the problem's first; `first_call_cpu_s` is from the latest result or None.
    """
    found: dict[tuple, dict[str, Any]] = {}
    calls: dict[tuple, float] = {}
    for report in sorted(reports, key=lambda r: r["created"]):
        for problem, parts in report["problems"].items():
            for place, row in enumerate(parts["rows"]):
                if row["tool"] != "jaxroute":
                    continue
                key = (report["device"], problem, row["policy"], row["horizon"], row["runs"])
                is_grid = row["policy"].endswith(" settings")
                name = row["policy"].partition(",")[0] if is_grid else row["policy"]
                ratios = {t: x for t, x in parts["ratios"].get(name, {}).items() if (t, problem, name) in COMPARED}
                if "first_call_cpu_s" in row:
                    calls[key] = row["first_call_cpu_s"]
                if report.get("noise", {}).get("verdict") != "noisy":
                    found[key] = {**row, "first": place == 0, "ratios": ratios}
    return {key: {**row, "first_call_cpu_s": calls.get(key)} for key, row in found.items()}


def section(folder: Path = RESULTS, every: bool = False) -> str:
    """Formats a Markdown table per device from the results in `folder`; `every` includes policies that the page omits."""
    stored = (json.loads(file.read_text()) for file in sorted(folder.glob("*.json")))
    rows = latest(report for report in stored if "problems" in report)
    if not rows:
        raise ValueError(f"folder must hold the JSON files of scripts/bench.py, got {str(folder)!r}")
    parts = []
    for device in sorted({key[0] for key in rows}):
        lines = [f"{device}:", "", "| problem | policy | rounds x runs | decisions/s | first call | compile | in the same job |", "| --- | --- | --- | ---: | ---: | ---: | --- |"]  # fmt: skip
        for key, row in sorted(rows.items(), key=lambda item: item[0]):
            if key[0] != device or not (every or row["first"] or row["ratios"]):
                continue
            _, problem, policy, horizon, runs = key
            ratios = ", ".join(f"{_short(ratio)} x {tool}" for tool, ratio in row["ratios"].items())
            call = "" if row["first_call_cpu_s"] is None else f"{row['first_call_cpu_s']:.1f} CPU s"
            compiling = f"{row['first_call_s'] if 'first_call_s' in row else row['compile_s']:.1f} s"
            cells = (problem, policy, f"{horizon:,} x {runs:,}", _speed(row["decisions_per_s"]), call, compiling, ratios)
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}"


def _speed(number: float) -> str:
    return f"{number / 1e6:.3g} M" if number >= 1e6 else f"{number / 1e3:.3g} k"


def written(page: str, text: str) -> str:
    """Returns the text of the page with `text` between the marks of its section.

    Raises:
      ValueError: the page does not have each mark exactly once.
    """
    if page.count(START) != 1 or page.count(END) != 1:
        raise ValueError(f"{PAGE.name} must have one {START} and one {END}")
    before, rest = page.split(START)
    return f"{before}{START}\n\n{text}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="print the tables of all policies, change nothing")
    if parser.parse_args().all:
        print(section(every=True))
    else:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), section()), encoding="utf-8")
