"""Addresses of cells: masks of seeds, ranges of granules, and the request that names them."""

import dataclasses
import json
import os

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxroute.core.types import Metric
from jaxroute.store import cells
from jaxroute.store.cells import ALL, GRANULE, Claims, Request, Seeds
from jaxroute.store.moments import SummaryTree
from jaxroute.store.packs import GROUP
from jaxroute.store.places import Folder

SEEDS = st.lists(st.integers(0, 3 * GRANULE) | st.integers(0, 2**32 - 1), unique=True, max_size=60)
GRANULES = st.sets(st.integers(0, 40), max_size=30)
quickly = settings(max_examples=150, deadline=None, derandomize=True)


@given(st.sets(st.integers(0, GRANULE - 1)), st.integers(0, 2**40))
@quickly
def test_masks_and_extents_are_read_back(places, granule):
    mask = cells.mask_of(np.asarray(sorted(places), int))
    assert mask == sum(1 << place for place in places) and cells.bits(mask).tolist() == sorted(places)
    address = cells.address(b"f" * 24, granule, mask)
    assert cells.extent_of(address) == mask and len(address) == 64
    assert address.startswith(cells.group(b"f" * 24, granule))


@given(SEEDS, st.data())
@quickly
def test_seeds_in_any_order_are_cut_into_granules_and_found_again(values, data):
    seeds = Seeds(np.asarray(values, np.uint32))
    some = np.asarray(data.draw(st.permutations(range(len(values))))[: data.draw(st.integers(0, len(values)))], int)
    masks, found = {}, []
    for granule, mask, part in seeds.cut(some):
        own = seeds.values[some[part]]
        assert (own // GRANULE == granule).all() and (np.diff(own) > 0).all()
        assert cells.bits(mask).tolist() == (own % GRANULE).tolist()
        masks[granule] = mask
        found += some[part].tolist()
    assert sorted(found) == sorted(some.tolist()) == seeds.of(masks).tolist()
    assert seeds.of(seeds.masks).tolist() == list(range(len(values)))
    assert seeds.full == [] or len(values) >= GRANULE


def test_full_granules():
    seeds = Seeds(np.asarray([*range(900, 200, -1), 5], np.uint32))
    assert sorted(seeds.full) == [1, 2] and seeds.masks[1] == ALL and sorted(seeds.granules) == [0, 1, 2, 3]
    assert seeds.values[seeds.granules[1]].tolist() == list(range(256, 512))


def test_a_cell_that_two_processes_claim_is_left_to_the_one_whose_file_sorts_first(tmp_path):
    first, second = sorted((Claims(Folder(tmp_path)) for _ in range(2)), key=lambda claims: claims.name)
    one, two, three = (bytes([n]) * GROUP for n in range(3))
    with first, second:
        assert first.keep([], [one, two]) == set()
        assert second.keep([], [two, three]) == {two}
        assert first.others() == {three} and second.others() == {one, two}
        (tmp_path / second.name).unlink()  # Another process took this one for dead.
        assert second.others() == {one, two} and first.others() == set()
        os.utime(tmp_path / first.name, (0, 0))
        assert second.keep([], [two]) == set()


class Joined(tuple):
    """In place of statistics: the order in which they were merged."""

    def merged(self, other):
        return Joined((self, other))


def inserted(granules):
    part = SummaryTree((0,), {}, {}, [b""], [{}])
    for granule in granules:
        part.insert(0, (granule, 1), Joined((granule,)))
    return part.nodes[0]


@given(GRANULES, st.data())
@quickly
def test_any_order_of_insertion_gives_the_same_ranges_and_the_same_merges(granules, data):
    nodes = inserted(data.draw(st.permutations(sorted(granules))))
    assert sorted(nodes) == cells.ranges(granules) and nodes == inserted(sorted(granules))
    assert [g for first, size in cells.ranges(granules) for g in range(first, first + size)] == sorted(granules)
    assert all(size & (size - 1) == 0 and first % size == 0 for first, size in cells.ranges(granules))


def test_ranges_of_the_first_granules_stay():
    """So that a look at the first 256, 512, ... seeds can be repeated whatever follows."""
    for number in (1, 2, 4, 16):
        assert set(cells.ranges(range(number))) <= set(cells.ranges(range(2 * number)))
    assert cells.ranges(range(8)) == [(0, 1), (1, 1), (2, 2), (4, 4)]


@given(st.sets(st.tuples(st.integers(0, 15), st.integers(0, 4)), max_size=20), st.integers(0, 4))
@quickly
def test_a_range_is_covered_by_the_largest_parts_that_there_are(held, power):
    ranges = [(first - first % 2**k, 2**k) for first, k in held]
    found, missing = cells.cover(ranges.__contains__, (0, 2**power))
    covered = [g for first, size in [*found, *missing] for g in range(first, first + size)]
    assert sorted(covered) == list(range(2**power)) and set(found) <= set(ranges)
    held = {g for first, size in ranges if first + size <= 2**power for g in range(first, first + size)}
    assert set(missing) == {(g, 1) for g in set(range(2**power)) - held}


@given(SEEDS | st.builds(lambda a, n: list(range(a, a + n)), st.integers(0, 2**31), st.integers(0, 500)))
@quickly
def test_seeds_are_described_and_read_back(values):
    said = json.loads(json.dumps(cells.describe_seeds(np.asarray(values, np.uint32))))
    assert cells.seeds_from_plain(said).tolist() == values


def request(**changes):
    fields = {
        "policies": ["a", "b"],
        "axes": {"width": np.array([0.1, np.inf]), "name": np.array(["x", "longer"]), "instance": np.arange(2)},
        "policy_axes": {"a": ["width", "instance"], "b": []},
        "seeds": np.arange(300, dtype=np.uint32)[::-1],
        "times": np.array([10, 20, 25]),
        "variables": {
            "pulls": (Metric("pulls", "times used", "rounds", "total", ("model",), default=False), (3,)),
            "regret": (Metric("regret", "regret", "reward", "total"), ()),
        },
        "recorded": {"a": ["pulls", "regret"], "b": ["regret"]},
        "model_names": ["x", "y", "z"],
        "zero_flows": ["bad"],
        "keep": "runs",
        "settings": {"horizon": 25, "seeds": [1], "deep": {"list": [None, 1.5, "text"]}},
        "identities": {"a": [f"{n:032x}{'1' * 16}" for n in range(4)], "b": ["f" * 32 + "2" * 16]},
        "code": {d * 16: {"python": "3.11", "digests": {name: d}} for d, name in (("1", "f"), ("2", "g"))},
    }
    return Request(**fields | changes)


def test_a_request_is_written_and_read_back():
    one = request()
    other = Request.from_plain(json.loads(json.dumps(one.plain())))
    assert other.plain() == one.plain()
    for field in dataclasses.fields(Request):
        expected, found = getattr(one, field.name), getattr(other, field.name)
        if field.name == "axes":
            assert all(found[n].dtype == v.dtype and (found[n] == v).all() for n, v in expected.items())
        elif isinstance(expected, np.ndarray):
            assert found.dtype == expected.dtype and found.tolist() == expected.tolist()
        else:
            assert found == expected
    assert other.families("curves", "a") == one.families("curves", "a") and other.horizon == 25


def test_families_differ_by_all_that_numbers_depend_on():
    changed = ("e" * 32 + "2" * 16, "f" * 32 + "3" * 16)
    asked = (("curves", "a"), ("states", "a"), ("curves", "a", 20), ("curves", "b"))
    some = [family for one in asked for family in request().families(*one)]
    some += [request(identities={"b": [value]}).families("curves", "b")[0] for value in changed]
    assert len(set(some)) == len(some) == 15
    assert request(seeds=np.arange(3), keep="moments", settings={}).families("curves", "a") == some[:4]
    assert {family[16:] for family in some[:4]} == {bytes.fromhex("1" * 16)}
