"""The disk as scripts see it: no change of a store is missed, and what a power cut may leave is what POSIX allows."""

import errno
import importlib
import os

import numpy as np
import pytest

from jaxroute.store import places

chaos = importlib.import_module("chaos")


def after(changes, beginning=None):
    """The disk after some changes."""
    disk = chaos.Disk(beginning or {})
    for change in changes:
        disk.do(change)
    return disk


def test_whatever_a_store_does_to_its_folder_is_seen_and_can_be_played_again(tmp_path):
    folder = places.Folder(tmp_path / "out" / "store")
    with chaos.watch(tmp_path) as changes:
        folder.write("one.pack", [b"12", b"3"])
        folder.write("two.pack", [b"4"])
        folder.write("a.claim", [b"."], False)
        folder.delete("one.pack")
        os.replace(tmp_path / "out" / "store" / "two.pack", tmp_path / "out" / "store" / "three.pack")
    folder.write("later.pack", [b"after the watch"])
    tree = {"out": None, "out/store": None, "out/store/three.pack": b"4", "out/store/a.claim": b"."}
    assert after(changes).files() == tree
    assert chaos.read_files(tmp_path) == tree | {"out/store/later.pack": b"after the watch"}
    assert [change.path for change in changes if change.kind == "kept"] == ["out/store/one.pack", "out/store/two.pack"]
    assert chaos.read_files(chaos.write_files(tmp_path / "again", tree)) == tree


def test_a_change_can_fail_and_is_then_not_done(tmp_path):
    def full(done, change):
        if change.kind == "write" and "two" in change.path:
            raise OSError(errno.ENOSPC, "full")

    folder = places.Folder(tmp_path)
    with chaos.watch(tmp_path, full) as changes:
        folder.write("one", [b"1234"])
        with pytest.raises(OSError, match="full"):
            folder.write("two", [b"1234"])
    assert after(changes).files() == chaos.read_files(tmp_path) == {"one": b"1234"}


@pytest.mark.parametrize("durable", [False, True])
def test_a_power_cut_leaves_the_file_before_or_the_new_one_if_it_was_flushed(tmp_path, durable):
    before = {"file": b"before"}
    with chaos.watch(chaos.write_files(tmp_path / "a", before)) as changes:
        places.Folder(tmp_path / "a").write("file", [b"afterwards"], durable)
    disk, rng = after(changes, before), np.random.default_rng(0)
    ends = dict(disk.left(None, rng))
    assert ends["killed"] == {"file": b"afterwards"}
    assert ends["flushed"] == ({"file": b"afterwards"} if durable else before)
    assert ends["names"]["file"] == (b"afterwards" if durable else b"")
    assert ends["zeros"]["file"] == (b"afterwards" if durable else bytes(10))
    found = {dict(disk.left(None, rng))["some"].get("file") for _ in range(200)}
    parts = {b"before", b"afterwards", b"", b"after", b"after" + bytes(5), bytes(10)}
    assert found == ({b"afterwards"} if durable else parts)


def test_what_was_flushed_without_its_folder_may_be_gone(tmp_path):
    with chaos.watch(tmp_path) as changes:
        places.Folder(tmp_path / "folder").write("file", [b"content"])

    def flushed(number):
        return dict(after(changes[:number]).left(None, np.random.default_rng(0)))["flushed"]

    places_of_names = [i for i, change in enumerate(changes) if change.kind == "fsync" and change.path == "folder"]
    assert flushed(len(changes)) == {"folder": None, "folder/file": b"content"}
    assert flushed(places_of_names[-1]) == {"folder": None}
    assert flushed(1) == {}  # The folder itself had no place yet.
