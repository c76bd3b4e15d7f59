"""Stores at URLs: the same results, the same repairs, one writer; on a local S3 server that the tests start."""

import json
import logging
import os
import sys
import threading
import time
import urllib.request
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import xarray as xr

import jaxroute as jr
from jaxroute import cli, experiments
from jaxroute.engine import programs
from jaxroute.problems import stochastic
from jaxroute.store import description, locks, moments, runs

obstore = pytest.importorskip("obstore", reason='needs obstore: pip install "jaxroute[objects]"')

ENV = stochastic.bernoulli([0.2, 0.7, 0.5])
KEEP = ("runs", "moments")
SLOW = pytest.mark.slow
SINKS = {"runs": runs.RunSink, "moments": moments.MomentSink}


def play(**options):
    """Five blocks of two policies, unless said otherwise."""
    policies = {"ucb": stochastic.UCB1(), "narrow": stochastic.UCB1(width=0.3)}
    settings = {"horizon": 40, "seeds": 70, "record_every": 10, "block": 16, "progress": False} | options
    return jr.simulate(ENV, policies, **settings)


@pytest.fixture(scope="module")
def undisturbed():
    return {keep: play(keep=keep) for keep in KEEP}


def same(one, other):
    """Fails unless two results have the same values, bit for bit, coordinates and labels."""
    xr.testing.assert_identical(one.drop_attrs(deep=False), other.drop_attrs(deep=False))
    for name in one:
        assert one[name].dtype == other[name].dtype
        assert one[name].values.tobytes() == other[name].values.tobytes()


class Server:
    """A local S3 server.

    requests: method and path of each request. refused: part of the paths of requests that are answered with "Access Denied".
    """

    def __init__(self, moto):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.requests, self.refused = [], None
        self._server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        self.url = "http://127.0.0.1:{1}".format(*self._server.get_host_and_port())
        self._answer, self._server._server.app = self._server._server.app, self

    def __call__(self, environ, start):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        if self.refused is None or method == "GET" or self.refused not in path:
            return self._answer(environ, start)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]

    def stop(self):
        self._server.stop()


@pytest.fixture(scope="module")
def server():
    moto = pytest.importorskip("moto.server", reason='needs a local S3 server: pip install "moto[s3]" flask flask-cors')
    found = Server(moto)
    yield found
    found.stop()


@pytest.fixture
def bucket(server, monkeypatch, request):
    """URL of an empty bucket, and what the environment says of its server."""
    said = {
        "ENDPOINT_URL": server.url,
        "ALLOW_HTTP": "true",
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
        "REGION": "us-east-1",
    }
    for name, value in said.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    name = f"bucket-{time.monotonic_ns()}"
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/{name}", method="PUT"))
    del server.requests[:]
    server.refused = None
    return f"s3://{name}"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(locks, "_BEAT_S", 0.05)
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.5)


def client(bucket):
    return obstore.store.from_url(bucket)


def keys(bucket):
    return sorted(one["path"] for batch in obstore.list(client(bucket)) for one in batch)


def content(bucket, key):
    return obstore.get(client(bucket), key).bytes().to_bytes()


@contextmanager
def stopped_after(blocks):
    """A run inside is interrupted when it has played so many blocks."""
    play_block, played = programs.Block.play, []

    def interrupted(self, *args):
        if len(played) == blocks:
            raise KeyboardInterrupt
        played.append(args)
        return play_block(self, *args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(programs.Block, "play", interrupted)
        yield


# Round trip.


@pytest.mark.parametrize("keep", KEEP)
@pytest.mark.parametrize(
    "folder", ["", "a folder/of runs/", *(pytest.param(f, marks=SLOW) for f in ("a.zarr/", "named.zarr"))]
)
def test_a_result_on_s3_is_the_local_one(bucket, undisturbed, keep, folder):
    out = f"{bucket}/{folder}"
    stored = play(keep=keep, out=out, description={"experiment": "a test"})
    same(undisturbed[keep], stored)
    loaded = jr.load(out)
    xr.testing.assert_identical(loaded, stored)
    assert {name: v.dtype for name, v in loaded.items()} == {name: v.dtype for name, v in stored.items()}
    assert loaded.attrs["experiment"] == "a test"
    below = folder if folder.rstrip("/").endswith(".zarr") else f"{folder}result.zarr"
    assert {key[: len(below.rstrip("/")) + 1] for key in keys(bucket)} == {below.rstrip("/") + "/"}  # The marker has gone.


@pytest.mark.parametrize("keep", KEEP)
def test_the_files_are_those_of_a_local_store(bucket, tmp_path, keep):
    play(keep=keep, out=bucket)
    play(keep=keep, out=tmp_path)
    local = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert keys(bucket) == sorted(local)
    assert all(
        content(bucket, key) == local[key] for key in local if not key.endswith("zarr.json")
    )  # Those say how long it took.


@pytest.mark.parametrize("keep", KEEP)
def test_memory_is_an_object_store_too(undisturbed, keep):
    out = f"memory://{time.monotonic_ns()}"
    play(keep=keep, out=out)
    same(undisturbed[keep], jr.load(out))
    with pytest.raises(ValueError, match="which has no result.zarr"):
        jr.load(out + "/elsewhere")


def test_a_finished_run_is_not_played_again(bucket, count_blocks):
    first = play(out=bucket)
    again = play(out=bucket)
    assert len(count_blocks) == 10
    same(first, again)
    with pytest.raises(
        jr.StoreMismatchError, match=f"'{bucket}' holds the result of other settings: horizon is 40 there and 50"
    ):
        play(out=bucket, horizon=50)


@pytest.mark.parametrize("keep", KEEP)
def test_a_block_takes_few_requests(bucket, server, monkeypatch, keep):
    """Of runs: one for each variable (with `illegal`), its mark, and the place; of statistics: their file, and the place."""
    write, counts = SINKS[keep].write, []

    def counted(self, *args):
        before = len(server.requests)
        write(self, *args)
        counts.append(len(server.requests) - before)

    monkeypatch.setattr(SINKS[keep], "write", counted)
    play(keep=keep, out=bucket)
    whole = len(server.requests)
    print(f"{keep}: {counts} requests per block, {whole} in all")
    assert set(counts) <= ({6} if keep == "runs" else {0, 2})
    assert whole - sum(counts) < 150


# Runs that are cut short, and what is damaged.


@pytest.mark.parametrize("keep", KEEP)
def test_an_interrupted_run_continues(bucket, undisturbed, count_blocks, keep):
    with stopped_after(4):
        play(keep=keep, out=bucket)
    assert "result.zarr.lock" not in keys(bucket)
    with pytest.raises(ValueError, match=f"the result in '{bucket}.*is unfinished: .* blocks are missing"):
        jr.load(bucket)
    partial = jr.load(bucket, partial=True)
    if keep == "runs":
        sound = partial["valid"].values
        assert sound.sum() == 4 * 16
        for name in partial:
            np.testing.assert_array_equal(partial[name].values[sound], undisturbed[keep][name].values[sound])
    else:
        assert set(partial["runs"].values) == {2 * 16}
    del count_blocks[:]
    same(undisturbed[keep], play(keep=keep, out=bucket))
    assert len(count_blocks) == 6


@pytest.mark.parametrize("keep, key", [("runs", "regret/c/1/2/0"), ("runs", "_done/c/1/2"), ("moments", "_done/0-0.part")])
@pytest.mark.parametrize("how", ["changed", *(pytest.param(how, marks=SLOW) for how in ("cut", "gone"))])
def test_a_damaged_object_is_noticed_and_played_again(bucket, undisturbed, count_blocks, keep, key, how):
    play(keep=keep, out=bucket)
    whole = content(bucket, f"result.zarr/{key}")
    other = {"cut": whole[: len(whole) // 2], "changed": whole[:-1] + bytes([whole[-1] ^ 1])}
    if how == "gone":
        obstore.delete(client(bucket), f"result.zarr/{key}")
    else:
        obstore.put(client(bucket), f"result.zarr/{key}", other[how])
    with pytest.raises(ValueError, match="is damaged|is unfinished"):
        jr.load(bucket)
    jr.load(bucket, partial=True)
    del count_blocks[:]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* played again")
        same(undisturbed[keep], play(keep=keep, out=bucket))
    assert len(count_blocks) == (1 if keep == "runs" else 10)
    same(undisturbed[keep], jr.load(bucket))


@pytest.mark.parametrize("keep", KEEP)
def test_the_description_is_kept_twice(bucket, undisturbed, count_blocks, keep):
    play(keep=keep, out=bucket)
    files = ["result.zarr/zarr.json", "result.zarr/_done/zarr.json"]
    said = [json.loads(content(bucket, file))["attributes"] for file in files]
    assert said[0] == said[1]["copy"] and description.is_sound(said[0])
    obstore.put(client(bucket), files[0], b'{"zarr_format": 3')
    with pytest.warns(UserWarning, match=f"'{bucket}/result.zarr/zarr.json' is damaged .*its second copy is read"):
        same(undisturbed[keep], jr.load(bucket))
    with pytest.warns(UserWarning, match="was damaged and is made again"):
        play(keep=keep, out=bucket)
    same(undisturbed[keep], jr.load(bucket))
    for file in files:
        obstore.put(client(bucket), file, b"")
    with pytest.raises(ValueError, match="is damaged .*and so is its second copy"):
        jr.load(bucket)
    with pytest.warns(UserWarning, match="both descriptions of .* are damaged|is made again"):
        play(keep=keep, out=bucket)
    same(undisturbed[keep], jr.load(bucket))
    assert len(count_blocks) == 10


@pytest.mark.parametrize("keep, key", [("runs", "regret/c/1/1"), ("runs", "_done/c/0/3"), ("moments", "_done/0-0.part")])
def test_what_cannot_be_written_ends_the_run_and_loses_nothing(bucket, server, undisturbed, keep, key):
    server.refused = key
    with pytest.raises(
        OSError, match=f"could not write to '{bucket}/result.zarr': .*Access Denied; finished blocks are kept"
    ):
        play(keep=keep, out=bucket)
    server.refused = None
    assert "result.zarr.lock" not in keys(bucket)
    same(undisturbed[keep], play(keep=keep, out=bucket))


def test_a_store_that_is_removed_in_the_middle_is_not_made_again(bucket):
    write = runs.RunSink.write

    def removed(self, *args):
        obstore.delete(client(bucket), [key for key in keys(bucket) if not key.endswith(".lock")])
        write(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs.RunSink, "write", removed)
        with pytest.raises(OSError, match="it was moved or removed while the run was writing to it"):
            play(out=bucket)
    assert keys(bucket) == []


# One writer.


@pytest.mark.parametrize("where", ["s3", "memory"])
def test_a_second_run_is_refused_and_the_first_goes_on(request, impatient, undisturbed, monkeypatch, where):
    out = request.getfixturevalue("bucket") if where == "s3" else f"memory://{time.monotonic_ns()}"
    started, go_on, found = threading.Event(), threading.Event(), []
    write = runs.RunSink.write

    def waits(self, *args):
        started.set()
        assert go_on.wait(60)
        write(self, *args)

    monkeypatch.setattr(runs.RunSink, "write", waits)
    first = threading.Thread(target=lambda: found.append(play(out=out)))
    first.start()
    assert started.wait(60)
    monkeypatch.setattr(runs.RunSink, "write", write)
    try:
        with pytest.raises(
            jr.StoreInUseError, match=f"is being written to by process {os.getpid()} on .*choose another folder"
        ):
            play(out=out)
    finally:
        go_on.set()
        first.join()
    same(undisturbed["runs"], found[0])
    same(undisturbed["runs"], play(out=out))


@pytest.mark.parametrize("said", ['{"host": "far", "pid": 7, "id": "x", "beat": 3}', "", '{"host"'])
def test_the_marker_of_a_dead_process_is_taken_over(bucket, impatient, undisturbed, said):
    obstore.put(client(bucket), "result.zarr.lock", said.encode())
    start = time.monotonic()
    with description.place_of(bucket).lock():
        assert time.monotonic() - start > 0.5
        assert json.loads(content(bucket, "result.zarr.lock"))["pid"] == os.getpid()
    assert keys(bucket) == []
    same(undisturbed["runs"], play(out=bucket))


def test_a_marker_that_goes_away_is_not_waited_for(bucket, monkeypatch):
    monkeypatch.setattr(locks, "_BEAT_S", 0.2)
    obstore.put(client(bucket), "result.zarr.lock", b'{"host": "far", "pid": 7, "id": "x"}')
    threading.Timer(0.3, lambda: obstore.delete(client(bucket), "result.zarr.lock")).start()
    start = time.monotonic()
    with description.place_of(bucket).lock():
        assert time.monotonic() - start < 10


def test_of_several_that_take_over_one_gets_in(bucket, impatient):
    obstore.put(client(bucket), "result.zarr.lock", b'{"host": "far", "pid": 7, "id": "x"}')
    outcomes, over = [], threading.Event()

    def enter():
        try:
            with description.place_of(bucket).lock():
                outcomes.append("in")
                over.wait(30)
        except jr.StoreInUseError:
            outcomes.append("refused")

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 30
    while len(outcomes) < len(threads) and time.monotonic() < end:
        time.sleep(0.05)
    over.set()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["in", "refused", "refused", "refused"]
    assert keys(bucket) == []


def test_the_marker_beats(bucket, impatient):
    with description.place_of(bucket).lock():
        end, beats = time.monotonic() + 30, set()
        while len(beats) < 4 and time.monotonic() < end:
            beats.add(json.loads(content(bucket, "result.zarr.lock"))["beat"])
            time.sleep(0.02)
    assert len(beats) == 4


def test_a_marker_that_another_one_has_taken_over_is_left_alone(bucket, impatient):
    said = "another run may have written to .*marker beside it is no longer this run's"
    with pytest.warns(UserWarning, match=said), description.place_of(bucket).lock():
        obstore.put(client(bucket), "result.zarr.lock", b'{"host": "far", "pid": 7, "id": "x"}')
        time.sleep(0.3)
        assert json.loads(content(bucket, "result.zarr.lock"))["id"] == "x"
    assert json.loads(content(bucket, "result.zarr.lock"))["id"] == "x"


def test_a_marker_is_deleted_after_an_error(bucket, monkeypatch):
    def fails(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(programs.Block, "play", fails)
    with pytest.raises(RuntimeError, match="no"):
        play(out=bucket)
    assert "result.zarr.lock" not in keys(bucket)


def test_a_marker_whose_thread_cannot_start_is_deleted(bucket, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            description.place_of(f"memory://{bucket[5:]}").lock().__enter__()
    with description.place_of(f"memory://{bucket[5:]}").lock():
        pass


# What is said.


@pytest.mark.parametrize(
    "out, message",
    [
        (
            "foo://somewhere/out",
            "out must be a folder or the URL of an object store.*got 'foo://somewhere/out': Unable to recogni.e",
        ),
        ("s3://", "out must be a folder or the URL of an object store.*got 's3://': it names no bucket"),
        ("memory:///", "got 'memory:///': it names no bucket"),
        ("s3://bucket/out?region=here", "out must be a URL without . and #.*environment, got 's3://bucket/out.region=here'"),
        ("file:///tmp/out", "out must be the path of a folder without file://, got 'file:///tmp/out'"),
    ],
)
def test_urls_that_are_none(out, message, count_blocks):
    for call in (lambda: play(out=out), lambda: jr.load(out)):
        with pytest.raises(ValueError, match=message):
            call()
    assert count_blocks == []


def test_a_bucket_that_is_missing(bucket, count_blocks):
    traces, out = jr.trace_count(), "s3://nobody-has-made-this/out"
    with pytest.raises(
        OSError, match=f"out must be an object store that can be written to, got '{out}': The specified bucket does not"
    ):
        play(out=out)
    with pytest.raises(OSError, match=f"'{out}/result.zarr' cannot be reached: The specified bucket does not exist"):
        jr.load(out)
    assert count_blocks == [] and jr.trace_count() == traces


def test_no_access_and_no_result(bucket, server, monkeypatch):
    with pytest.raises(
        ValueError, match=f"path must be a folder with a stored result, got '{bucket}/x', which has no result.zarr"
    ):
        jr.load(f"{bucket}/x")
    server.refused = ".lock"
    with pytest.raises(
        PermissionError, match=f"out must be an object store that can be written to, got '{bucket}': Access Denied"
    ):
        play(out=bucket)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(OSError, match="its endpoint has no TLS, which must be allowed .for S3 by AWS_ALLOW_HTTP=true"):
        play(out=bucket)


def test_a_server_that_is_away(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(
        OSError, match=f"out must be an object store that can be written to, got '{bucket}': .*127.0.0.1:9.*error"
    ):
        play(out=bucket)


def test_a_library_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "jaxroute.store.objects", raising=False)
    for call in (lambda: play(out="s3://bucket/out"), lambda: jr.load("s3://bucket/out")):
        with pytest.raises(ImportError, match=r"^out='s3://bucket/out' needs obstore: pip install \"jaxroute\[objects\]\"$"):
            call()


@pytest.mark.parametrize("path", ["C:\\results", "my:folder", "C://results", "a/b://c", "://x", "s3:/bucket"])
def test_what_is_no_url_is_a_path(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not description.is_url(path)
    play(out=path, seeds=3)
    assert (tmp_path / path / "result.zarr" / "zarr.json").is_file()


def test_experiments_are_kept_on_disk(capsys):
    one = experiments.EXPERIMENTS["stochastic/regret"]
    for call in (experiments.run, experiments.redraw):
        with pytest.raises(
            ValueError, match="out must be a folder on disk, where figures and summary.json go, got 's3://bucket/out'"
        ):
            call(one, "s3://bucket/out")
    for command in (["run", "stochastic/regret", "--out", "s3://bucket/out"], ["plot", "s3://bucket/out"]):
        with pytest.raises(SystemExit):
            cli.main(command)
        assert (
            "must be a folder on disk, where figures and summary.json go, got 's3://bucket/out'" in capsys.readouterr().err
        )


def test_a_store_at_a_url_does_not_grow(bucket, undisturbed):
    play(out=bucket)
    with pytest.raises(ValueError, match="does not grow, .* load it, or play what is more in a folder"):
        play(out=bucket, seeds=100)
    same(jr.load(bucket), undisturbed["runs"])
