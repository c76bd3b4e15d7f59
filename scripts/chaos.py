"""Damages stores at random and looks what happens: wrong values without a word, sound stores refused, and messages that do not help.

    python scripts/chaos.py --faults 1000 --seed 0

Of every kind of fault it counts how often `load` gave right values, gave them from the second copy, or refused; and whether the same call of
`simulate` then gave the right values. Exit status 1 if anything was wrong, refused without need, or said badly.
"""

import argparse
import collections
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import jaxroute as jr
from jaxroute.problems import stochastic
from jaxroute.store.description import DONE, STORE_NAME

Fault = Callable[[Path, np.random.Generator], str]
HORIZON, SEEDS, BLOCK = 60, 40, 8


def play(out: Path | None, keep: str, key: int = 0) -> xr.Dataset:
    """The run whose store is damaged: a grid of two settings, and a policy without."""
    policies = {"ucb": jr.grid(stochastic.UCB1, width=[0.5, 1.0]), "thompson": stochastic.GaussianThompson()}
    options: dict[str, Any] = {"record": ["regret", "pulls"], "record_every": 20, "block": BLOCK, "progress": False}
    env = stochastic.bernoulli([0.6, 0.4, 0.5])
    return jr.simulate(env, policies, horizon=HORIZON, seeds=SEEDS, out=out, keep=keep, key=key, **options)


def descriptions(store: Path) -> list[Path]:
    """Both descriptions of a store."""
    return [store / "zarr.json", store / DONE / "zarr.json"]


def data(store: Path) -> list[Path]:
    """What is no description: chunks, marks, statistics, coordinates."""
    return sorted(p for p in store.rglob("*") if p.is_file() and p.name != "zarr.json")


def flip(file: Path, rng: np.random.Generator) -> str:
    """One bit of a file."""
    content = bytearray(file.read_bytes())
    if not content:
        return ""
    place = int(rng.integers(len(content)))
    content[place] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)
    return f"bit of byte {place} of {file.parent.name}/{file.name}"


def digit(file: Path, rng: np.random.Generator) -> str:
    """One digit of a file of text."""
    text = file.read_text()
    places = [m.start() for m in re.finditer(r"\d", text)]
    place = places[int(rng.integers(len(places)))]
    other = str((int(text[place]) + int(rng.integers(1, 10))) % 10)
    file.write_text(text[:place] + other + text[place + 1 :])
    return f"digit {place} of {file.parent.name}/{file.name}"


def cut(file: Path, rng: np.random.Generator) -> str:
    """The end of a file."""
    content = file.read_bytes()
    file.write_bytes(content[: int(rng.integers(len(content))) if content else 0])
    return f"end of {file.parent.name}/{file.name}"


def gone(file: Path, rng: np.random.Generator) -> str:
    """A file."""
    del rng
    file.unlink()
    return f"{file.parent.name}/{file.name}"


def of(files: Callable[[Path], list[Path]], how: Callable[[Path, np.random.Generator], str]) -> Fault:
    """A fault of one of some files."""

    def fault(store: Path, rng: np.random.Generator) -> str:
        some = files(store)
        return how(some[int(rng.integers(len(some)))], rng)

    return fault


def both(how: Callable[[Path, np.random.Generator], str]) -> Fault:
    """The same kind of fault of both descriptions."""
    return lambda store, rng: " and ".join(how(file, rng) for file in descriptions(store))


def arrays(store: Path) -> list[Path]:
    """Descriptions of arrays."""
    return sorted(p for p in store.glob("*/zarr.json") if p.parent.name != DONE)


def marks(store: Path) -> list[Path]:
    """Marks of blocks, or files of statistics."""
    return sorted(p for p in (store / DONE).rglob("*") if p.is_file() and p.name != "zarr.json")


def elsewhere(other: Path) -> Fault:
    """A whole cell with its mark, or a file of statistics, from a store of another key."""

    def fault(store: Path, rng: np.random.Generator) -> str:
        mark = marks(store)[int(rng.integers(len(marks(store))))]
        cell = mark.relative_to(store / DONE)
        copied = 0
        for array in (p.parent for p in other.glob("*/zarr.json")):
            for file in array.rglob("*"):
                place = file.relative_to(array)
                if file.is_file() and file.name != "zarr.json" and place.parts[: len(cell.parts)] == cell.parts:
                    (store / array.name / place).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, store / array.name / place)
                    copied += 1
        return f"{copied} files of {cell} from another key"

    return fault


def faults(other: Path) -> dict[str, tuple[float, Fault]]:
    """Kinds of faults, and how often each is tried."""
    return {
        "a bit of a description": (0.2, of(descriptions, flip)),
        "a digit of a description": (0.2, of(descriptions, digit)),
        "a description is cut": (0.04, of(descriptions, cut)),
        "a description is gone": (0.02, of(descriptions, gone)),
        "a bit of both descriptions": (0.04, both(flip)),
        "both descriptions are cut": (0.02, both(cut)),
        "a bit of a mark": (0.08, of(marks, flip)),
        "a mark is cut": (0.04, of(marks, cut)),
        "a mark is gone": (0.02, of(marks, gone)),
        "a bit of an array's description": (0.06, of(arrays, flip)),
        "a digit of an array's description": (0.04, of(arrays, digit)),
        "a bit of the data": (0.1, of(data, flip)),
        "data are cut": (0.05, of(data, cut)),
        "data are gone": (0.04, of(data, gone)),
        "a cell from another key": (0.05, elsewhere(other)),
    }


def same(one: xr.Dataset, other: xr.Dataset) -> bool:
    """Whether two results are equal in every bit of values, coordinates and labels."""
    try:
        xr.testing.assert_identical(one.drop_attrs(deep=False), other.drop_attrs(deep=False))
    except AssertionError:
        return False
    return True


def helps(error: BaseException, out: Path) -> bool:
    """Whether a message names the store and says what to do."""
    text = str(error)
    return (
        isinstance(error, (ValueError, OSError))
        and str(out) in text
        and bool(re.search("run it again|same command|choose", text, re.IGNORECASE))
    )


def chaos(number: int, seed: int, keep: str, folder: Path) -> tuple[collections.Counter[tuple[str, str]], list[str]]:
    """Outcomes by kind of fault, and what must not happen, in words."""
    whole, other, out = folder / f"whole-{keep}", folder / f"other-{keep}", folder / f"out-{keep}"
    right = play(whole, keep)
    play(other, keep, key=1)
    kinds = faults(other / STORE_NAME)
    chance = np.array([weight for weight, _ in kinds.values()])
    rng = np.random.default_rng(seed)
    outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
    wrong: list[str] = []
    for _ in range(number):
        kind = list(kinds)[int(rng.choice(len(kinds), p=chance / chance.sum()))]
        if not (arrays(whole / STORE_NAME) or "array" not in kind):
            continue
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(whole, out)
        what = f"{keep}: {kind}: {kinds[kind][1](out / STORE_NAME, rng)}"
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = jr.load(out)
                outcome = "read" if not said else "read, with a warning"
                if not same(found, right):
                    outcome, wrong = "WRONG", [*wrong, f"wrong values were loaded: {what}"]
            except Exception as error:
                outcome = "refused"
                if not helps(error, out):
                    wrong.append(f"load says {type(error).__name__}: {error}: {what}")
            try:
                again = play(out, keep)
                outcome += ", mended"
                if not same(again, right) or not same(jr.load(out), right):
                    outcome, wrong = "WRONG", [*wrong, f"wrong values after playing again: {what}"]
            except Exception as error:
                outcome += ", NOT MENDED"
                wrong.append(f"the same run says {type(error).__name__}: {error}: {what}")
        outcomes[kind, outcome] += 1
    return outcomes, wrong


def main() -> int:
    """Prints a table of faults and outcomes, and what must not happen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=1000, help="number, half of them of each kind of store (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the faults (default 0)")
    options = parser.parse_args()
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for keep in ("runs", "moments"):
            outcomes, wrong = chaos(options.faults // 2, options.seed, keep, Path(name))
            bad += wrong
            print(f'\nkeep="{keep}", {sum(outcomes.values())} faults')
            for (kind, outcome), times in sorted(outcomes.items()):
                print(f"  {times:5d}  {kind}: {outcome}")
    print(f"\n{len(bad)} that must not happen", *bad, sep="\n  ")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
