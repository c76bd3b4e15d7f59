"""Runs the slow tests in parts, which should take at most forty minutes each on two cores; split one that takes longer.

    python scripts/slow.py --list
    python scripts/slow.py --part 3
    python scripts/slow.py            # all parts, one after the other
    python scripts/slow.py --part 3 -- -x --durations=10

A part is a list of files or folders of tests; new files belong to the part `rest`.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PARTS = {
    "core": ["tests/core"],
    "engine": ["tests/engine", "tests/store", "tests/metrics", "tests/plot", "tests/tune", "tests/estimators",
        "tests/solvers", "tests/sources"],
    "conformance": ["tests/testing", "tests/documentation"],
    "staged": ["tests/problems/staged", "tests/problems/stochastic", "tests/problems/contextual", "tests/data"],
    "combinatorial and service": ["tests/problems/combinatorial", "tests/problems/service", "tests/reference"],
    "queueing": ["tests/problems/queueing"],
    "cascade": ["tests/problems/cascade"],
    "experiments": ["tests/experiments", "tests/notebooks", "tests/scripts", "tests/test_cli.py", "tests/test_release.py"],
}  # fmt: skip


def leftovers() -> list[str]:
    """Returns the test files that belong to no part."""
    listed = [ROOT / place for places in PARTS.values() for place in places]
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(f.relative_to(ROOT)) for f in files if not any(f == p or p in f.parents for p in listed)]


def main() -> int:
    parts = {**PARTS, "rest": leftovers()}
    parser = argparse.ArgumentParser(description="The slow tests, part by part.")
    parser.add_argument("--list", action="store_true", help="the parts, and what belongs to them")
    numbers = range(1, len(parts) + 1)
    parser.add_argument("--part", type=int, choices=numbers, action="append", help="of a part; may be given several times")
    parser.add_argument("more", nargs="*", help="more arguments for pytest, after --")
    options = parser.parse_args()
    status = 0
    for number, (name, places) in enumerate(parts.items(), 1):
        if options.list:
            print(f"{number} {name}: {', '.join(places) or 'nothing'}")
        elif places and (not options.part or number in options.part):
            start = time.monotonic()
            command = [sys.executable, "-m", "pytest", "-m", "slow and not gpu", *options.more, *places]
            code = subprocess.run(command, cwd=ROOT).returncode
            minutes = (time.monotonic() - start) / 60
            print(f"part {number} ({name}): {f'status {code}' if code else 'passed'}, {minutes:.1f} minutes")
            status = status or (code if code != 5 else 0)  # 5: no slow test in this part.
    return status


if __name__ == "__main__":
    sys.exit(main())
