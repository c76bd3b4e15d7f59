"""Packs: what is written is read, damage is noticed and never silent, and joining packs loses nothing, whoever writes or reads beside it."""

import contextlib
import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from store_cases import flip

from jaxroute.store import packs
from jaxroute.store.packs import ADDRESS, ENDING, PackStore, digest_of
from jaxroute.store.places import Folder

NAMES = st.text(max_size=8)
ARRAYS = hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=5))
CELLS = st.lists(st.dictionaries(NAMES, ARRAYS, max_size=3), max_size=6)


def address(number):
    """An address like no other."""
    return b"".join(digest_of(f"{number}/{i}".encode()) for i in range(ADDRESS // 16))


def cell(number, size=40):
    """A cell like no other, of which no byte can be spared."""
    rng = np.random.default_rng(number)
    return {"curve": rng.random((size, 3)), "valid": rng.integers(0, 2, size, bool)}


@contextlib.contextmanager
def opened(path, **constants):
    """Opens a store with other values of constants of the module."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in constants.items():
            patch.setattr(packs, name, value)
        with contextlib.closing(PackStore(Folder(path))) as store:
            yield store


def put(path, cells, note=None):
    """Writes a pack of these cells."""
    with opened(path) as store:
        if note is not None:
            store.add_note(note)
        for one, arrays in cells.items():
            store.put(one, arrays)


def some(*numbers):
    return {address(n): cell(n) for n in numbers}


def as_bytes(arrays):
    return {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in arrays.items()}


def bad(store):
    """Addresses of the cells that were not what was written."""
    return {store.packs[name].rows["address"][row].tobytes() for name, row in store.bad}


def same(found, expected):
    return {one: as_bytes(arrays) for one, arrays in found.items()} == {one: as_bytes(a) for one, a in expected.items()}


def packs_in(path):
    return sorted(path.glob(f"*{ENDING}"))


@given(CELLS, st.sampled_from([1, 100, 1 << 18]), st.sampled_from([100, 1 << 16]))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_what_is_written_is_read(tmp_path_factory, cells, frame, tail):
    path = tmp_path_factory.mktemp("store")
    expected = {address(n): one for n, one in enumerate(cells)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "_FRAME", frame)
        patch.setattr(packs, "_TAIL", tail)
        put(path, expected, {"note": "ü", "of": [1, None]})
        with opened(path) as store:
            assert same(store.get([*expected, address("none")]), expected)
            assert all(same(store.get([one]), {one: expected[one]}) for one in expected)
            assert list(store.notes.values()) == [{"note": "ü", "of": [1, None]}]
            assert not store.damaged and not store.bad
    assert len(packs_in(path)) == 1


def test_a_pack_may_hold_notes_alone(tmp_path):
    put(tmp_path, {}, {"note": "request"})
    with opened(tmp_path) as store:
        assert not store.where and list(store.notes.values()) == [{"note": "request"}]
        store.compact()
        assert list(store.notes.values()) == [{"note": "request"}]


# Damage.


def with_bytes(change):
    """Damage to the first of two packs, by a function of the bytes of both."""
    return lambda first, second: first.write_bytes(change(first.read_bytes(), second.read_bytes()))


def swapped(first, second):
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other), second.write_bytes(one)


DAMAGE = {
    "cut": (with_bytes(lambda one, other: one[:-1]), "it is cut, or was never a pack"),
    "halved": (with_bytes(lambda one, other: one[: len(one) // 2]), "it is cut, or was never a pack"),
    "emptied": (with_bytes(lambda one, other: b""), "it is cut, or was never a pack"),
    "longer": (with_bytes(lambda one, other: b"x" + one), "it is cut, or longer than it was"),
    "renamed": (lambda first, _: first.rename(first.with_name("0" * 32 + ENDING)), "its content is that of another pack"),
    "swapped": (swapped, "its content is that of another pack"),
    "mixed": (with_bytes(lambda one, other: other[:1500] + one[1500:]), ""),  # Cells of the same sizes.
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_noticed_and_what_is_missing_can_be_written_again(name, tmp_path, monkeypatch):
    damage, reason = DAMAGE[name]
    monkeypatch.setattr(packs, "_FRAME", 1000)
    first, second = some(1, 2, 3, 4), some(5, 6, 7, 8)
    put(tmp_path, first), put(tmp_path, second)
    files = packs_in(tmp_path)
    with opened(tmp_path) as store:
        if store.where[address(1)][0] != files[0].name:
            files.reverse()
    damage(*files)
    with opened(tmp_path) as store:
        found = store.get([*first, *second])
        assert set(found) < {*first, *second}
        assert same(found, {one: (first | second)[one] for one in found})
        if reason:
            assert {why for _, why in store.damaged.values()} == {reason} and not store.bad
        else:
            assert bad(store) == {*first} - {*found} and not store.damaged
            assert bad(store).isdisjoint(store.where)  # From now on they are missing.
        for one in {*first, *second} - found.keys():
            store.put(one, (first | second)[one])
        store.flush()
        assert same(store.get([*first, *second]), first | second)
        store.compact()
        assert same(store.get([*first, *second]), first | second)
        store.clean(age=-1.0)
    with opened(tmp_path) as store:
        assert same(store.get([*first, *second]), first | second)
        assert not store.damaged and not store.bad


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound")
    cells = some(1, 2) | {address(n): {"flat": np.full((n, 20), 0.5)} for n in range(3, 9)}
    put(path, cells, {"note": "a note"})
    return path, cells, packs_in(path)[0].read_bytes()


@given(st.integers(0, 10**9), st.integers(1, 255))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_changed_byte_is_never_silent(sound, place, change):
    path, cells, content = sound
    changed = bytearray(content)
    changed[place % len(content)] ^= change
    packs_in(path)[0].write_bytes(changed)
    with opened(path) as store:
        found = store.get(cells)
        assert same(found, {one: cells[one] for one in found})
        assert len(found) == len(cells) or store.damaged or bad(store) == cells.keys() - found.keys()
        assert list(store.notes.values()) == [{"note": "a note"}] or store.damaged


# Several writers.


def test_all_readers_take_the_same_of_two_contents(tmp_path):
    for value in (1.0, 2.0):
        put(tmp_path / "a", {address(1): {"x": np.array(value)}})
    for value in (2.0, 1.0):
        put(tmp_path / "b", {address(1): {"x": np.array(value)}})
    found = []
    for folder in ("a", "b", "a"):
        with opened(tmp_path / folder) as store:
            assert len(store.packs) == 2 and store.conflicts == 1
            found.append(float(store.get([address(1)])[address(1)]["x"]))
            store.compact()
            assert len(store.packs) == 2 or store.conflicts == 0
            found.append(float(store.get([address(1)])[address(1)]["x"]))
            put(tmp_path / folder, {address(1): {"x": np.array(3.0 - found[0])}})
    assert len(set(found)) == 1


def test_a_copy_takes_the_place_of_a_damaged_cell(tmp_path):
    put(tmp_path, some(1, 2)), put(tmp_path, some(1, 3))
    with opened(tmp_path) as store:
        file = tmp_path / store.where[address(1)][0]
    flip(file, 300)
    with opened(tmp_path) as store:
        assert same(store.get([address(1)]), some(1)) and bad(store) == {address(1)}


def test_packs_are_joined(tmp_path):
    for n in range(8):
        put(tmp_path, some(n, n + 1), {"note": n})
    with opened(tmp_path) as reader, opened(tmp_path) as store:
        begun = reader.read(some(*range(9)))
        first = dict([next(begun)])
        store.compact()
        assert len(packs_in(tmp_path)) == 1
        assert same(store.get(some(*range(9))), some(*range(9)))
        assert sorted(note["note"] for note in store.notes.values()) == list(range(8))
        rest = first | dict(begun)  # A reader that had opened the old ones.
        assert same(rest, some(*range(9)))


def test_a_pack_that_holds_all_stays_and_the_others_go(tmp_path):
    for n in range(20):  # What a pack is called depends on what it holds.
        for some_of_all in (range(n, n + 9), (n + 3, n), (n + 5,)):
            put(tmp_path / str(n), some(*some_of_all))
        with opened(tmp_path / str(n)) as store:
            whole = max(store.packs, key=lambda name: len(store.packs[name].rows))
            store.compact()
            assert list(store.packs) == [whole] and same(store.get(store.where), some(*range(n, n + 9)))


def test_writers_readers_and_those_that_join_packs_do_not_disturb_each_other(tmp_path):
    """Four writers, each of which joins packs after each of its own; two readers see all that was there before."""
    over, known = threading.Event(), set(range(4))
    put(tmp_path, some(*known))

    def write(number):
        with opened(tmp_path) as store:
            for n in range(number, 80, 4):
                store.put(address(n), cell(n))
                store.flush()
                known.add(n)
                store.compact()

    def read():
        while not over.is_set():
            there = some(*list(known))
            with opened(tmp_path) as store:
                assert same(store.get(there), there)
                assert same(store.get(there), there)

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        writers = [pool.submit(write, number) for number in range(4)]
        wait(writers)
        over.set()
    for one in (*writers, *readers):
        one.result()
    with opened(tmp_path) as store:
        store.compact()
        assert same(store.get(some(*range(80))), some(*range(80))) and len(store.where) == 80
        assert len(store.packs) == 1


# In the background.


def test_cells_are_written_after_some_seconds_or_bytes(tmp_path):
    with opened(tmp_path, _WAIT_S=0.05) as store:
        store.put(address(1), cell(1))
        until = time.monotonic() + 20
        while not packs_in(tmp_path) and time.monotonic() < until:
            time.sleep(0.01)
        assert len(packs_in(tmp_path)) == 1
    with opened(tmp_path, _PACK_BYTES=5000, _WAIT_S=1000.0) as store:
        for n in range(20):
            store.put(address(n), cell(n))
        store.flush()
        assert len(store.packs) > 4 and same(store.get(some(*range(20))), some(*range(20)))


@pytest.mark.parametrize("then", ["put", "flush", "a slow disk"])
def test_what_goes_wrong_in_the_background_is_raised(then, tmp_path, monkeypatch):
    write, calls = Folder.write, []

    def full(*args):
        calls.append(args)
        if len(calls) == 1:
            time.sleep(0.2 if then == "a slow disk" else 0.0)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*args)

    monkeypatch.setattr(Folder, "write", full)
    with opened(tmp_path, _WAIT_S=0.01, _THREADS=1) as store:
        store.put(address(1), cell(1))
        time.sleep(0.1)
        if then == "a slow disk":  # The next pack waits for the one that cannot be written.
            store.put(address(2), cell(2))
        time.sleep(0.3)
        with pytest.raises(OSError, match="No space left"):
            store.put(address(2), cell(2)) if then == "put" else store.flush()
        store.put(address(3), cell(3))
    with opened(tmp_path) as store:
        assert same(store.get(some(3)), some(3)) and address(1) not in store.where


def test_a_pack_of_another_version_is_left_alone(tmp_path):
    put(tmp_path, some(1))
    (file,) = tmp_path.iterdir()
    content = file.read_bytes().replace(b"jaxroute pack 2\n", b"jaxroute pack 3\n")
    file.write_bytes(content)
    with opened(tmp_path) as store:
        assert [why for _, why in store.damaged.values()] == ["it was written by another version of jaxroute"]
        store.clean(age=-1.0)
    assert file.read_bytes() == content


@pytest.mark.parametrize("place", ["index", "cell"])
def test_what_could_not_be_read_once_is_read_again_before_anything_is_removed(place, tmp_path):
    put(tmp_path, some(1))
    (file,) = tmp_path.iterdir()
    os.utime(file, (1e9, 1e9))

    class Flaky(Folder):
        reads = 0

        def read(self, name, start, stop):
            content = bytearray(super().read(name, start, stop))
            Flaky.reads += 1
            if Flaky.reads == (1 if place == "index" else 2):
                content[-4 if place == "index" else 20] ^= 1
            return bytes(content)

    store = PackStore(Flaky(tmp_path))
    assert len(store.get(some(1))) == 0
    store.tidy()
    store.close()
    with opened(tmp_path) as store:
        assert same(store.get(some(1)), some(1))
