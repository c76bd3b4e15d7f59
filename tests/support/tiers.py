"""Chooses the tests that run only in the slow tier from their measured times. `tests/long.txt` lists them.

    python -m pytest -vv --durations=0 > times.txt
    python tests/support/tiers.py times.txt --seconds 1200

The longest go first, until the others take no more than so many CPU seconds; of each test that stays, with several cases, the quickest case
stays, and so does what is too quick to count. What the file has already and the run did not measure stays in the file.
"""

import argparse
import collections
import re
from pathlib import Path

LIST = Path(__file__).resolve().parents[1] / "long.txt"
# Tests of one case, or all cases of a test, that take longer than this wait too: their quicker neighbours see most of it.
_ALONE_S = 6.0
# Those that are quicker bring little, however many they are.
_COUNTS_S = 0.7
# What stays, however long it takes: how modules import each other, what is traced of every policy and environment, the
# bits of one device on eight, ACQB against its reference, and a test of a fault that hung all others.
_STAY = (
    "engine/test_simulate.py::test_eight_devices_give_the_bits_of_one",
    "problems/queueing/test_reference.py::test_acqb_equals_the_reference_round_by_round[K1: kappa 0.3, ridge 1, c1 1]",
    "test_layers.py",
    "testing/test_structure.py",
    "kernels/test_rollout.py::test_prompts_of_a_pool_are_read_row_by_row",
)


def listed() -> set[str]:
    """Returns the tests that `tests/long.txt` lists, as paths below `tests`."""
    return set(LIST.read_text().splitlines())


def measured(report: str) -> dict[str, float]:
    """Reads the seconds of each test, its fixtures included, from what `--durations=0` prints."""
    seconds: dict[str, float] = collections.defaultdict(float)
    for taken, test in re.findall(r"^(\d+\.\d+)s (?:setup|call|teardown) +tests/(.*)$", report, re.MULTILINE):
        seconds[test] += float(taken)
    return seconds


def long_ones(seconds: dict[str, float], budget: float) -> set[str]:
    """Chooses the tests for the slow tier so that the other tests take no more than the budget, if possible."""
    cases = collections.defaultdict(list)
    for test in seconds:
        cases[test.partition("[")[0]].append(test)
    quickest = {min(of_one, key=seconds.__getitem__) for of_one in cases.values()}
    total, found = sum(seconds.values()), set()
    for test in sorted(seconds, key=seconds.__getitem__, reverse=True):
        if total <= budget or seconds[test] < _COUNTS_S:
            break
        if not test.startswith(_STAY) and (test not in quickest or seconds[test] > _ALONE_S):
            found.add(test)
            total -= seconds[test]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="what a run with --durations=0 printed")
    parser.add_argument("--seconds", type=float, required=True, help="that the default tests may take, on one core")
    options = parser.parse_args()
    seconds = measured(options.report.read_text(errors="replace"))
    found = long_ones(seconds, options.seconds)
    left = sum(taken for test, taken in seconds.items() if test not in found)
    LIST.write_text("\n".join(sorted(listed() | found)) + "\n")
    print(f"{len(found)} of {len(seconds)} tests go to the slow tier, {left:.0f} of {sum(seconds.values()):.0f} s stay")


if __name__ == "__main__":
    main()
