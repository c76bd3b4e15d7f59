"""Writes the table of the page on performance from the stored benchmark results.

    python scripts/performance.py            # rewrites the table of notebooks/site/performance.md
    python scripts/performance.py --all      # prints the tables of all policies

Of each device, problem, policy, horizon and number of runs the latest figure is taken; ratios are those to comparators of the same job. A
result that says that its machine was noisy gives no speeds. Processor time of first calls is taken from it all the same: others hardly
change it. The page has the policies that were compared, and the first of each problem.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "scripts" / "bench_results"
PAGE = ROOT / "notebooks" / "site" / "performance.md"
START, END = "<!-- performance -->", "<!-- /performance -->"


def latest(reports: Iterable[dict[str, Any]]) -> dict[tuple, dict[str, Any]]:
    """Rows of jaxroute by device, problem, policy, horizon and runs, each with its `ratios`, and whether it is its problem's `first`.

    `first_call_cpu_s` is the latest of all results, None if none has it.
    """
    found: dict[tuple, dict[str, Any]] = {}
    calls: dict[tuple, float] = {}
    for report in sorted(reports, key=lambda r: r["created"]):
        for problem, parts in report["problems"].items():
            for place, row in enumerate(parts["rows"]):
                if row["tool"] != "jaxroute":
                    continue
                key = (report["device"], problem, row["policy"], row["horizon"], row["runs"])
                name = row["policy"].partition(",")[0] if row["policy"].endswith(" settings") else row["policy"]  # of a grid
                if "first_call_cpu_s" in row:
                    calls[key] = row["first_call_cpu_s"]
                if report.get("noise", {}).get("verdict") != "noisy":
                    found[key] = {**row, "first": place == 0, "ratios": parts["ratios"].get(name, {})}
    return {key: {**row, "first_call_cpu_s": calls.get(key)} for key, row in found.items()}


def section(folder: Path = RESULTS, every: bool = False) -> str:
    """The section's tables in Markdown, one per device; with `every` of all policies."""
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
            sizes, first = f"{horizon:,} x {runs:,}", row["first_call_cpu_s"]
            call = "" if first is None else f"{first:.1f} CPU s"
            cells = (problem, policy, sizes, _speed(row["decisions_per_s"]), call, f"{row['compile_s']:.1f} s")
            lines.append(f"| {' | '.join(cells)} | {ratios} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}"


def _speed(number: float) -> str:
    return f"{number / 1e6:.3g} M" if number >= 1e6 else f"{number / 1e3:.3g} k"


def written(page: str, text: str) -> str:
    """The page with this section.

    Raises:
      ValueError: it has no place for it.
    """
    if page.count(START) != 1 or page.count(END) != 1:
        raise ValueError(f"{PAGE.name} must have one {START} and one {END}")
    before, rest = page.split(START)
    return f"{before}{START}\n\n{text}\n{END}{rest.split(END)[1]}"


def main(arguments: list[str] | None = None) -> int:
    """Rewrites the section, or prints all there is; returns 0."""
    parser = argparse.ArgumentParser(
        prog="performance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="print the tables of all policies, change nothing")
    if parser.parse_args(arguments).all:
        print(section(every=True))
    else:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), section()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
