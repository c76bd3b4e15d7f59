"""How a store grows: a run that asks for more seeds, rounds, policies, values of settings or metrics, or for a smaller standard error, takes
over what is there, and plays the rest.

Nothing is changed in place. A store of the new settings is made beside the old one; every block of it whose runs are all in sound blocks of
the old one is copied, with a mark that stands for the session that played it; then it takes the old one's place. Blocks are found by what
they are of (policy, values of settings, seeds), not by where they lie: values may be put in between, and policies in another order. A longer
horizon is played from the states that were kept at the end of the shorter one.
"""

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import zarr

from jaxroute.store import integrity, moments, runs, states
from jaxroute.store.description import (
    DONE,
    Contents,
    exists,
    fingerprint,
    now,
    own_attributes,
    place_of,
    sealed,
    with_code,
)
from jaxroute.store.difference import Difference, difference
from jaxroute.store.places import Place

# What a larger store says of the smaller one that it was.
_KEPT = ("made_with", "accepted_code", "grown", "compile_s", "run_s", "decisions", "played_again")
_PART = ("created", "commit", "device", "versions", "decisions", "run_s")


def grow(path: Any, contents: Contents) -> None:
    """Makes an existing store one of the settings of a run that asks for more; nothing if it does not.

    Args:
      path: as the user gave it; its lock is held.
      contents: what the run will hold.
    """
    store = place_of(path)
    begun = own_attributes(store, repair=True) if exists(store) else None
    if not begun:
        return
    settings = json.loads(json.dumps(fingerprint(contents.settings)))
    found = difference(begun["settings"], settings)
    if not found.grown:
        return
    part: dict[str, Any] = {"until": now(), "more": found.grown, **{name: begun[name] for name in _PART if name in begun}}
    grown = [*begun.get("grown", []), part]
    there, here = (json.dumps({**one, "until_stderr": None}) for one in (begun["settings"], settings))  # In their order.
    if there == here:  # No block is another one.
        group = zarr.open_group(store.as_zarr(), mode="a")
        group.attrs.put(sealed({**begun, "settings": settings, "grown": grown}))
        (store / "zarr.json").flush()
        return
    said = {
        **{name: begun[name] for name in _KEPT if name in begun},
        "settings": settings,
        "layout": dataclasses.asdict(contents.layout),
        "code": contents.code,
        **with_code(begun, contents.code, grown=True),
        "grown": grown,
    }
    aside = store.aside()
    zarr.create_group(aside.as_zarr(), attributes=sealed(said))
    carry = _carry_moments if settings.get("keep") == "moments" else _carry_runs
    carry(str(path), store, begun, aside, contents, found)
    store.replace()


def _carry_runs(
    path: str, store: Place, begun: Mapping[str, Any], aside: Place, contents: Contents, found: Difference
) -> None:
    """Copies blocks of single runs."""
    sink = runs.RunSink(aside, contents)
    if "variables" not in begun:  # It died before it had described itself.
        return
    try:
        old = runs.opened(path, store, begun)
    except ValueError as error:
        raise ValueError(f"{error}, with the settings that it has, before it grows") from None
    values, _, _ = integrity.read(old.arrays, old.done, old.belonging)
    made = sessions_of(old, values)
    rounds = begun["settings"]["horizon"]
    if rounds == contents.settings["horizon"]:
        shared = {name: at for name, at in old.coords.items() if name in (*old.axes, "policy", "seed")}
        made_by = by_run(made, begun["layout"], shared)
        carry_blocks(contents, set(found.anew), shared, values, made_by, sink)
    if contents.settings.get("keep_states"):
        _carry_states(store, begun, contents, found, old, values, made, sink)


def carry_blocks(
    contents: Contents,
    anew: Collection[str],
    coords: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    made: np.ndarray,
    sink: runs.RunSink,
    several: int = -1,
) -> None:
    """Copies every block whose runs are all sound.

    Args:
      contents: what the new store will hold.
      anew: policies of which nothing is copied.
      coords: policies, settings by axis and seeds of `values`, in order.
      values: arrays `[policies, settings..., seeds, ...]` by name.
      made: `[policies, settings..., seeds]`, number of the session that made each run, -1 where there is nothing sound.
      sink: of the new store.
      several: number of the session that stands for several; -1 if blocks that several have made are not copied.
    """
    places = {name: {value: i for i, value in enumerate(at.tolist())} for name, at in coords.items()}
    lead = [name for name in coords if name != "policy"]
    for cell in np.ndindex(*sink.arrays[DONE].shape):
        policy, *spans = sink.spans(cell)
        if policy not in places["policy"] or policy in anew:
            continue
        own = {*contents.policy_axes[policy], "seed"}
        taken = {
            name: [places[name].get(value, -1) if name in own else 0 for value in span]
            for name, span in zip((*contents.axes, "seed"), spans, strict=True)
            if name in lead
        }
        if any(-1 in taken[name] for name in lead):
            continue
        row, where = places["policy"][policy], np.ix_(*(taken[name] for name in lead))
        by = set(made[row][where].ravel().tolist())
        session = by.pop() if len(by) == 1 else several if -1 not in by else -1
        if session < 0:
            continue
        parts = {
            name: _turned(array[row][where], lead, contents.axes, list(map(len, spans)))[None]
            for name, array in values.items()
            if name in sink.about
        }
        sink.take(cell, parts, session)


def by_run(made: np.ndarray, layout: Mapping[str, Any], coords: Mapping[str, np.ndarray]) -> np.ndarray:
    """What is known of blocks `[policies, tiles..., blocks]`, for each of their runs `[policies, settings..., seeds]`."""
    for axis, (name, at) in enumerate(coords.items()):
        size = {"policy": 1, "seed": layout["block"]}.get(name) or layout["tile"][name]
        made = np.repeat(made, size, axis=axis).take(range(len(at)), axis=axis)
    return made


def _carry_states(
    store: Place,
    begun: Mapping[str, Any],
    contents: Contents,
    found: Difference,
    old: runs.Stored,
    values: Mapping[str, np.ndarray],
    made: np.ndarray,
    sink: runs.RunSink,
) -> None:
    """Copies what blocks are continued from, of blocks that are cut alike in both; with their curves where the horizon has grown."""
    longer = begun["settings"]["horizon"] < contents.settings["horizon"]
    policies, coords = old.coords["policy"].tolist(), [old.coords[name].tolist() for name in (*old.axes, "seed")]
    sizes = [*(begun["layout"]["tile"][name] for name in old.axes), begun["layout"]["block"]]
    there: dict[Any, integrity.Cell] = {}
    for cell in map(tuple, np.argwhere(made >= 0)):
        policy = policies[cell[0]]
        spans = (v[i * n : (i + 1) * n] for i, n, v in zip(cell[1:], sizes, coords, strict=True))
        there.setdefault(_runs_of(contents, policy, dict(zip((*old.axes, "seed"), spans, strict=True))), cell)
    for cell in np.ndindex(*sink.arrays[DONE].shape):
        policy, *spans = sink.spans(cell)
        place = there.get(_runs_of(contents, policy, dict(zip((*contents.axes, "seed"), spans, strict=True))))
        lacking = [i for i, a in enumerate(contents.axes, 1) if a not in contents.policy_axes[policy]]
        if place is None or policy in (*found.anew, *contents.from_start) or any(cell[i] for i in lacking):
            continue
        kept = states.read(states.file_of(store, states.FINISHED, place), old.belonging.place(place))
        if kept is None:
            continue
        if not longer:
            sink.keep(states.FINISHED, cell, kept)
            continue
        drop = tuple(
            0 if i and a not in contents.policy_axes[policy] else slice(None) for i, a in enumerate(("", *old.axes))
        )
        curves = {name: values[name][integrity.region(array, place)][drop][0] for name, array in old.arrays.items()}
        sink.keep(states.BEGUN, cell, dataclasses.replace(kept, curves=curves))


def _runs_of(contents: Contents, policy: str, spans: Mapping[str, Sequence[Any]]) -> Any:
    """What tells the runs of a block from others: policy, values along the policy's own axes, seeds."""
    own = {axis: spans[axis] for axis in contents.policy_axes.get(policy, ())}
    return policy, *((axis, tuple(span)) for axis, span in sorted(own.items())), tuple(spans["seed"])


def sessions_of(old: runs.Stored, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Number of the session that made each cell, -1 where there is nothing sound."""
    marks = integrity.marks_of(old.done)
    made = np.full(marks.shape, -1)
    for cell in map(tuple, np.argwhere(marks)):
        parts = {name: values[name][integrity.region(array, cell)] for name, array in old.arrays.items()}
        session = old.belonging.session(cell, parts, int(marks[cell]))
        made[cell] = -1 if session is None else session
    return made


def _turned(values: np.ndarray, lead: Sequence[str], axes: Mapping[str, Any], sizes: Sequence[int]) -> np.ndarray:
    """Values of some axes in their order, as those of all `axes` and the seeds, in another."""
    order = [lead.index(name) for name in (*axes, "seed") if name in lead]
    values = values.transpose(*order, *range(len(lead), values.ndim))
    values = np.expand_dims(values, [i for i, name in enumerate(axes) if name not in lead])
    return np.broadcast_to(values, (*sizes, *values.shape[len(sizes) :]))


def _carry_moments(
    path: str, store: Place, begun: Mapping[str, Any], aside: Place, contents: Contents, found: Difference
) -> None:
    """Copies the statistics of tiles whose settings are the same."""
    del path, found
    sink = moments.MomentSink(aside, contents)
    if "frame" not in begun:
        return
    old, belongs = moments.Frame.made_of(begun["frame"]), moments.belonging(begun)
    tiles = {values: number for number, values in enumerate(old.tile_values())}
    for number, values in enumerate(sink.frame.tile_values()):
        if values not in tiles:
            continue
        try:
            parts = moments.read_parts(store / DONE, tiles[values], belongs)
            moments.Known.of(list(parts.values()))
        except ValueError:
            continue  # Damaged; it is played again.
        for owner, part in parts.items():
            if old.seeds < sink.frame.seeds:
                part.tail = None  # A block of fewer seeds than the others, which grows.
            sink.take(number, owner, part)
