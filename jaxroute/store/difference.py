"""What is different between the settings of a store and those of a run, in words; and whether the run only asks for more."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxroute.core.checks import show

# Settings in which a run may ask for more than a store holds; all others must be the same.
_GROWING = ("seeds", "horizon", "policies", "environment", "record", "until_stderr")
# Another version is no other setting: whether its code does the same is compared by itself, and `made_with` says who made what.
_TOLD = ("jaxroute",)
# What is only said where it is not the usual.
_USUAL = {"backend": "scan", "keep": "runs", "until_stderr": None, "keep_states": False}
# Seeds are said one by one up to this number, then by spans of consecutive ones, up to so many of them.
_FEW_SEEDS = 32
_MOST_SPANS = 1000
# Seeds of a block, below which it is not cut finer.
_FEWEST_SEEDS = 128


@dataclasses.dataclass
class Difference:
    """How the settings of a run differ from those of a store.

    refused: the first difference that is no growth, in words; empty if there is none.
    grown: in what the run asks for more, in words; empty if it does not.
    anew: policies that are played again although the store has them, as they are asked for more metrics.
    added: positions of the values that are new, by axis, `seed` among them.
    """

    refused: str = ""
    grown: list[str] = dataclasses.field(default_factory=list)
    anew: list[str] = dataclasses.field(default_factory=list)
    added: dict[str, list[int]] = dataclasses.field(default_factory=dict)


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> Difference:
    """How the settings of a run (plain JSON) differ from those of a store."""
    there, here = _USUAL | dict(there), _USUAL | dict(here)
    found = Difference(refused=first_difference(_without(there), _without(here)))
    if not found.refused and there["horizon"] != here["horizon"]:
        _horizon(there, here, found)
    comparisons = {
        "seeds": _seeds,
        "environment": lambda a, b, f: _grid(a, b, "environment", f),
        "policies": _policies,
        "record": _records,
        "until_stderr": _goals,
    }
    for name, compare in comparisons.items():
        if not found.refused and not _same(there[name], here[name]):
            compare(there[name], here[name], found)
    if not found.refused and not found.grown and list(there["policies"]) != list(here["policies"]):
        found.grown.append("another order of policies")
    if not found.refused and here["keep"] == "moments":
        _moments(there, here, found)
    if not found.refused and found.anew and set(found.anew) == set(there["policies"]):
        found.refused = f"{', '.join(found.grown)}: it does not hold them, and all of it would have to be played again"
    return found


def _without(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in (*_GROWING, *_TOLD)}


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def first_difference(stored: Any, wanted: Any, where: str = "") -> str:
    """The first difference of two JSON values, in words; empty if there is none."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in [*stored, *(k for k in wanted if k not in stored)]:
            place = f"{where}.{key}" if where else key
            if key not in stored or key not in wanted:
                return f"{place} is only in {'the store' if key in stored else 'this run'}"
            found = first_difference(stored[key], wanted[key], place)
            if found:
                return found
        return ""
    if isinstance(stored, list) and isinstance(wanted, list) and len(stored) == len(wanted):
        return next(
            (
                d
                for i, (a, b) in enumerate(zip(stored, wanted, strict=True))
                if (d := first_difference(a, b, f"{where}[{i}]"))
            ),
            "",
        )
    return "" if json.dumps(stored) == json.dumps(wanted) else f"{where} is {show(stored)} there and {show(wanted)} here"


def layout_beside(stored: Mapping[str, Any], added: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The layout of a store, cut finer where values are added, so that few known runs are played together with new ones."""
    tile = stored["tile"] | {axis: size_beside(stored["tile"][axis], at) for axis, at in added.items() if axis != "seed"}
    return {**stored, "tile": tile, "block": size_beside(stored["block"], added.get("seed", ()), _FEWEST_SEEDS)}


def size_beside(stored: int, added: Sequence[int], least: int = 1) -> int:
    """Settings of a call along an axis, or seeds of one, so that as few known ones as possible are played together with those that are new.

    Args:
      stored: number in a call in the store.
      added: positions of those that are new.
      least: number that may not be gone below.
    """
    sizes = [stored]
    while sizes[-1] % 2 == 0 and sizes[-1] // 2 >= least:
        sizes.append(sizes[-1] // 2)
    return min(sizes, key=lambda size: size * len({place // size for place in added}))


def describe_seeds(seeds: np.ndarray) -> Any:
    """Seeds as plain JSON: the list, spans of consecutive ones `[first, number]`, or a digest if there are too many spans."""
    if len(seeds) <= _FEW_SEEDS:
        return seeds.tolist()
    breaks = np.flatnonzero(np.diff(seeds.astype(np.int64)) != 1) + 1
    if len(breaks) < _MOST_SPANS:
        parts = np.split(seeds, breaks)
        return {"spans": [[int(part[0]), len(part)] for part in parts]}
    return {"number": len(seeds), "sha256": hashlib.sha256(np.ascontiguousarray(seeds).tobytes()).hexdigest()[:16]}


def described_seeds(said: Any) -> np.ndarray | None:
    """The seeds that `describe_seeds` wrote, None if only their digest is known."""
    if isinstance(said, list):
        return np.asarray(said, np.int64)
    if "spans" not in said:
        return None
    return np.concatenate([first + np.arange(number, dtype=np.int64) for first, number in said["spans"]])


def _seeds(there: Any, here: Any, found: Difference) -> None:
    old, new = described_seeds(there), described_seeds(here)
    if old is None or new is None:
        found.refused = "seeds are others, or too scattered to tell which are new"
        return
    only = old[~np.isin(old, new)]
    if len(only):
        found.refused = f"seeds {_some(only.tolist())} {'is' if len(only) == 1 else 'are'} only in the store"
    elif len(new) > len(old):
        found.grown.append(f"{len(new) - len(old)} seeds")
        found.added["seed"] = np.flatnonzero(~np.isin(new, old)).tolist()
    else:
        found.grown.append("another order of seeds")


def _horizon(there: Mapping[str, Any], here: Mapping[str, Any], found: Difference) -> None:
    different = f"horizon is {there['horizon']} there and {here['horizon']} here"
    if here["horizon"] < there["horizon"]:
        found.refused = different
    elif not there["keep_states"]:
        found.refused = f"{different}, and the states at the end were not kept (keep_states=True)"
    elif there["horizon"] % there["record_every"]:
        found.refused = (
            f"{different}, and the last record interval there is not a whole one of {there['record_every']} rounds"
        )
    elif there["until_stderr"] or here["until_stderr"]:
        found.refused = f"{different}, and how many seeds until_stderr asks for depends on it"
    else:
        found.grown.append(f"{here['horizon'] - there['horizon']} rounds")


def _policies(there: Mapping[str, Any], here: Mapping[str, Any], found: Difference) -> None:
    for name in there:
        if name not in here:
            found.refused = f"policies.{name} is only in the store"
            return
        if not _same(there[name], here[name]):
            _grid(there[name], here[name], f"policies.{name}", found)
        if found.refused:
            return
    new = [repr(name) for name in here if name not in there]
    if new:
        found.grown.append(f"{'policy' if len(new) == 1 else 'policies'} {', '.join(new)}")


def axes_of(said: Any) -> dict[str, list[Any]]:
    """Coordinates of a described environment or policy by axis; none if it is a single one."""
    return dict(said["grid"]) if isinstance(said, dict) and "grid" in said else {}


def _grid(there: Any, here: Any, where: str, found: Difference) -> None:
    """A grid may have more values along its axes; settings that both have must be the same."""
    old, new = axes_of(there), axes_of(here)
    if not old or list(old) != list(new) or ("each" in there) != ("each" in here):
        found.refused = first_difference(there, here, where)
        return
    for axis in old:
        if len({*map(str, new[axis])}) < len(new[axis]):
            found.refused = (
                f"{where}.{axis} is {show(old[axis])} there and {show(new[axis])} here, where a value stands twice"
            )
            return
        only = [value for value in old[axis] if value not in new[axis]]
        if only:
            found.refused = f"{where}.{axis} {_some(only)} is only in the store"
            return
    if "each" in there:
        found.refused = first_difference(there["each"], here["each"], where)
    else:
        shapes = [tuple(map(len, axes.values())) for axes in (old, new)]
        settings = [
            np.asarray(_digests(said), object).reshape(shape) for said, shape in zip((there, here), shapes, strict=True)
        ]
        same = settings[1][np.ix_(*([new[axis].index(value) for value in old[axis]] for axis in old))] == settings[0]
        if not same.all():
            place = np.argwhere(~same)[0]
            at = ", ".join(f"{axis}={old[axis][i]}" for axis, i in zip(old, place, strict=True))
            found.refused = f"{where} at {at} is something else there than here"
    if not found.refused:
        for axis in old:
            more = [value for value in new[axis] if value not in old[axis]]
            if more:
                found.grown.append(f"{axis} {_some(more)}")
                found.added[axis] = [place for place, value in enumerate(new[axis]) if value in more]
        if all(len(old[axis]) == len(new[axis]) for axis in old):
            found.grown.append("another order of settings")


def _digests(said: Mapping[str, Any]) -> list[str]:
    """A digest of each setting of a grid."""
    return said["digests"] if "digests" in said else [digest_of_setting(one) for one in said["settings"]]


def digest_of_setting(said: Any) -> str:
    """Digest of the description of an environment or policy."""
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _records(there: Mapping[str, Any], here: Mapping[str, Any], found: Difference) -> None:
    for policy in there:
        old, new = there[policy], here[policy]
        if _same(old, new):
            continue
        more = []
        for name, entries in old.items():
            if not isinstance(entries, list) or any(entry not in new[name] for entry in entries):
                if not _same(entries, new[name]):
                    found.refused = first_difference(entries, new[name], f"record.{policy}.{name}")
                    return
                continue
            more += [_name(entry) for entry in new[name] if entry not in entries]
        found.anew.append(policy)
        found.grown.append(f"{', '.join(map(repr, more)) or 'another order of metrics'} of policy {policy!r}")


def _name(entry: Any) -> str:
    """Of a metric, a probe or a flow."""
    return entry["name"] if isinstance(entry, dict) else entry[0] if isinstance(entry, list) else str(entry)


def _goals(there: Any, here: Any, found: Difference) -> None:
    if there is None or (here is not None and any(name not in here or here[name] > goal for name, goal in there.items())):
        found.refused = first_difference(there, here, "until_stderr")
    else:
        found.grown.append("smaller standard errors" if here else "all seeds")


def _moments(there: Mapping[str, Any], here: Mapping[str, Any], found: Difference) -> None:
    """Statistics are merged in the order of seeds, and those of differences need all policies at the same time."""
    if found.anew or set(there["policies"]) != set(here["policies"]):
        found.refused = f"{', '.join(found.grown)}: statistics of differences need all policies to be played together"
    elif list(there["policies"]) != list(here["policies"]):
        found.refused = f"policies are {', '.join(there['policies'])} there and {', '.join(here['policies'])} here"
    old, new = (described_seeds(one["seeds"]) for one in (there, here))
    if old is not None and new is not None and not np.array_equal(new[: len(old)], old):
        found.refused = "seeds do not begin with those of the store, and statistics are merged in their order"


def _some(values: Sequence[Any]) -> str:
    """Some values in words."""
    texts = [str(value) for value in values]
    return ", ".join(texts) if len(texts) < 5 else f"{texts[0]} to {texts[-1]}"
