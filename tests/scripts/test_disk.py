"""The disk as scripts see it: nothing is missed, and what a power cut may leave is what POSIX allows."""

import errno
import importlib
import os
import shutil

import numpy as np
import pytest

disk = importlib.import_module("disk")


def replace(file, content, flush=False):
    """A file in the place of another, in one step."""
    partial = file.with_name(file.name + ".partial")
    with partial.open("wb") as opened:
        opened.write(content)
        if flush:
            opened.flush()
            os.fsync(opened)
    partial.replace(file)


def sync(folder):
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def test_whatever_python_does_to_files_is_seen_and_can_be_played_again(tmp_path):
    with disk.Watch(tmp_path) as watch:
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a" / "text").write_text("one\ntwo")
        with open(tmp_path / "a" / "text", "a") as file:
            file.write("three")
        with open(tmp_path / "a" / "text", "r+b") as file:
            file.seek(2)
            file.write(b"-")
            file.truncate(9)
        replace(tmp_path / "a" / "text", b"four")
        os.link(tmp_path / "a" / "text", tmp_path / "a" / "b" / "gone")
        handle = os.open(tmp_path / "a" / "low", os.O_RDWR | os.O_CREAT)
        os.write(handle, b"12345")
        os.lseek(handle, 1, os.SEEK_SET)
        os.write(handle, b"x")
        os.ftruncate(handle, 3)
        os.close(handle)
        shutil.rmtree(tmp_path / "a" / "b")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "a" / "text").read_bytes()
        (tmp_path / "a" / "low").rename(tmp_path / "a" / "high")
    (tmp_path / "later").write_text("after the watch")
    assert watch.missed == []
    tree = disk.Journal({}, watch.changes).after(len(watch.changes)).tree()
    assert tree == {"a": None, "a/text": b"four", "a/high": b"1x3", "elsewhere": None}
    (tmp_path / "later").unlink()
    assert tree == disk.read_tree(tmp_path)
    disk.write_tree(tmp_path / "again", tree)
    assert disk.read_tree(tmp_path / "again") == tree


def test_what_goes_another_way_is_missed(tmp_path):
    (tmp_path / "file").write_text("here")
    truncate = os.truncate
    with disk.Watch(tmp_path) as watch:
        truncate(tmp_path / "file", 1)
    assert watch.missed == ["os.truncate file"]


def test_a_change_can_fail_and_is_then_not_done(tmp_path):
    def full(done, change):
        if done >= 3:
            raise OSError(errno.ENOSPC, "full")

    with disk.Watch(tmp_path, full) as watch:
        (tmp_path / "one").write_text("1")
        with pytest.raises(OSError, match="full"):
            (tmp_path / "two").write_text("2")
    assert [c.kind for c in watch.changes] == ["make", "write", "make"]
    assert (tmp_path / "two").read_bytes() == b""


@pytest.mark.parametrize("flush", [False, True])
def test_a_power_cut_leaves_the_file_before_or_the_new_one_if_it_was_flushed(tmp_path, flush):
    (tmp_path / "file").write_bytes(b"before")
    beginning = disk.read_tree(tmp_path)
    with disk.Watch(tmp_path) as watch:
        replace(tmp_path / "file", b"afterwards", flush)
    files = disk.Journal(beginning, watch.changes).after(len(watch.changes))
    assert files.tree() == {"file": b"afterwards"}
    assert files.lost() == {"file": b"before"}  # The folder was not flushed.
    assert files.empty() == {"file": b"afterwards" if flush else b""}
    assert files.zeros() == {"file": b"afterwards" if flush else bytes(10)}
    rng = np.random.default_rng(0)
    found = {files.some(rng).get("file") for _ in range(200)}
    assert found == (
        {b"before", b"afterwards"} if flush else {b"before", b"afterwards", b"", b"after", b"after" + bytes(5), bytes(10)}
    )


def test_what_was_flushed_with_its_folder_stays(tmp_path):
    with disk.Watch(tmp_path) as watch:
        (tmp_path / "folder").mkdir()
        replace(tmp_path / "folder" / "file", b"content", flush=True)
        sync(tmp_path / "folder")
        sync(tmp_path)
        (tmp_path / "folder" / "other").write_bytes(b"late")
    files = disk.Journal({}, watch.changes).after(len(watch.changes))
    assert files.lost() == {"folder": None, "folder/file": b"content"}
    before = disk.Journal({}, watch.changes).after(len(watch.changes) - 3)
    assert before.lost() == {}  # The folder itself had no place yet.
    half = disk.Journal({}, watch.changes).after(len(watch.changes) - 1, 0.5)
    assert half.tree()["folder/other"] == b"la"
