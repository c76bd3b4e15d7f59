"""Stores at URLs: the same results, repairs, growth and shared work as in folders; on a local S3 server that the tests start."""

import contextlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import store_cases
import xarray as xr
from store_cases import BOTH, KEEPS, assert_same, interrupted

import jaxroute as jr
from jaxroute import cli, experiments
from jaxroute.engine import schedule
from jaxroute.store import packs, places, results

obstore = pytest.importorskip("obstore", reason='needs obstore: pip install "jaxroute[objects]"')

# Five blocks of each policy; of statistics a full granule and a part of one.
SEEDS, BLOCK = {"runs": 70, "moments": 300}, {"runs": 16, "moments": 64}


def run(keep="runs", share=None, **options):
    """Runs or statistics of two policies."""
    execution = jr.Execution(block=BLOCK[keep], share=share)
    return store_cases.run(keep=keep, execution=execution, **{"seeds": SEEDS[keep]} | options)


@pytest.fixture(scope="module")
def undisturbed():
    return {keep: run(keep) for keep in BOTH}


def client(bucket):
    return obstore.store.from_url(bucket)


def keys(bucket):
    return sorted(one["path"] for batch in obstore.list(client(bucket)) for one in batch)


# The same results.


@KEEPS
@pytest.mark.parametrize("folder", ["", "a folder/of runs/", "memory"])
def test_a_result_at_a_url_is_the_local_one(bucket, tmp_path, undisturbed, count_blocks, keep, folder):
    out = f"memory://{time.monotonic_ns()}" if folder == "memory" else f"{bucket}/{folder}"
    stored = run(keep, out=jr.Store(out, description={"experiment": "a test"}))
    run(keep, out=tmp_path)
    assert jr.load(out).attrs["experiment"] == "a test"
    there = keys(bucket)
    assert all(key.startswith(f"{folder}store/") and key.endswith(".pack") for key in there)
    del count_blocks[:]
    for data in (stored, jr.load(out), jr.load(tmp_path), run(keep, out=out)):
        assert_same(undisturbed[keep], data)
    assert count_blocks == [] and keys(bucket) == there and len(there) == (folder != "memory")
    with pytest.raises(ValueError, match="no file ends in '.pack'"):
        jr.load(out + "/elsewhere")


def test_the_command_merges_and_exports_stores_of_several_places(bucket, tmp_path, undisturbed, capsys):
    one, two, merged = (f"{bucket}/{name}" for name in ("one", "two", "merged"))
    for out, seeds in ((one, range(30)), (two, range(30, 50)), (tmp_path, range(50, 70))):
        run(out=out, seeds=seeds)
    assert cli.main(["store", merged, "--merge", one, two, str(tmp_path)]) == 0
    assert f"{merged}:" in (printed := capsys.readouterr().out) and "70 seeds" in printed
    assert cli.main(["store", merged, "--export", str(tmp_path / "a.nc")]) == 0
    for data in (xr.load_dataset(tmp_path / "a.nc"), jr.load(merged)):
        assert_same(data, undisturbed["runs"])


@KEEPS
def test_a_run_takes_few_requests(bucket, server, keep):
    """A list, a trial, and a pack that is listed and read; more blocks take no more."""
    for seeds in (SEEDS[keep], 4 * SEEDS[keep]):
        del server.requests[:]
        run(keep, out=f"{bucket}/{seeds}", seeds=seeds)
        assert len(server.requests) <= 10, server.requests


# What is cut short, damaged, or refused.


@KEEPS
@pytest.mark.parametrize("how", ["changed", "changed index", "cut", "empty", "gone"])
@pytest.mark.filterwarnings("ignore:1 files (in|of the result in) ")
def test_a_damaged_object_is_noticed_and_simulated_again(bucket, undisturbed, keep, how):
    run(keep, out=bucket)
    (key,) = keys(bucket)
    whole = bytearray(obstore.get(client(bucket), key).bytes())
    whole[-150 if how == "changed index" else 0] ^= 1
    obstore.put(client(bucket), key, bytes(whole[: {"cut": len(whole) // 2, "empty": 0}.get(how)]))
    if how == "gone":
        obstore.delete(client(bucket), key)
    with pytest.raises(ValueError, match="no file ends in" if how == "gone" else "damaged|is cut, or was never"):
        jr.load(bucket)
    for data in (run(keep, out=bucket), jr.load(bucket)):
        assert_same(undisturbed[keep], data)


@KEEPS
def test_a_server_that_fails_at_random_is_asked_again(bucket, server, undisturbed, keep):
    before, server.unsound = server.failed, 0.4
    run(keep, out=bucket, seeds=SEEDS[keep] // 2)
    for data in (run(keep, out=bucket), jr.load(bucket)):
        assert_same(undisturbed[keep], data)
    assert server.failed > before


@KEEPS
def test_what_may_not_be_written_ends_the_run_and_loses_nothing(bucket, server, undisturbed, count_blocks, keep):
    server.refused = "/store/"
    with pytest.raises(PermissionError, match=f"'{bucket}/store/.*' cannot be written: Access Denied"):
        run(keep, out=bucket)
    assert count_blocks == []
    server.refused = None
    run(keep, out=bucket, seeds=SEEDS[keep] // 2)
    server.refused = ".pack"
    with pytest.raises(PermissionError, match=f"'{bucket}/store/.*[.]pack' cannot be written: Access Denied"):
        run(keep, out=bucket)
    server.refused = None
    del count_blocks[:]
    assert_same(undisturbed[keep], run(keep, out=bucket))
    assert 0 < len(count_blocks) < 10


def test_a_bucket_that_is_missing_or_goes_away(bucket, server, count_blocks):
    out = "s3://nobody-has-made-this/out"
    for call in (lambda: run(out=out), lambda: jr.load(out)):
        with pytest.raises(OSError, match=f"'{out}/store' cannot be read: The specified bucket does not exist"):
            call()
    assert count_blocks == []
    with pytest.raises(OSError, match="cannot be written: The specified bucket does not exist"):
        run(out=bucket, seeds=16, callback=lambda done: done.done == 1 and server.bucket("DELETE", bucket[5:]))


def test_a_server_that_is_away_or_has_no_tls(bucket, monkeypatch):
    away = f"'{bucket}/store' cannot be read: .*127.0.0.1:9.*error sending request"
    for name, value, message in (("ENDPOINT_URL", "http://127.0.0.1:9", away), ("ALLOW_HTTP", "false", "has no TLS")):
        monkeypatch.setenv(f"AWS_{name}", value)
        with pytest.raises(OSError, match=message):
            run(out=bucket)


def test_large_objects_are_written_and_read_in_parts(bucket, server):
    content, place = np.random.default_rng(0).bytes(2 * places._PART + 3), places.Bucket(bucket)
    place.write("large.pack", [content[:100], content[100:]])
    assert place.names(".pack")["large.pack"].size == len(content)
    for start, stop in ((0, len(content)), (7, places._PART + 9), (5, 5)):
        assert place.read("large.pack", start, stop) == content[start:stop]
    assert sum(method == "PUT" for method, _ in server.requests) == 3


# Many packs, and several processes.


def test_what_killed_processes_left_is_removed_by_the_clock_of_the_server(bucket, clock):
    run(out=bucket)
    sound = keys(bucket)
    clock[0] = -1e8
    for name in ("x.claim", "damaged.pack"):
        obstore.put(client(bucket), f"store/{name}", b"left")
    for seconds, left in ((3500, 2), (3700, 0)):
        clock[0] = -1e8 + seconds
        with contextlib.closing(packs.PackStore(places.place_of(bucket))) as store:
            store.clean()
        assert len(keys(bucket)) == len(sound) + left


def test_what_another_process_claims_is_left_to_it_until_it_is_dead_by_the_clock_of_the_server(
    bucket, clock, monkeypatch, undisturbed
):
    monkeypatch.setattr(schedule, "EXPIRES_S", 1.0)
    run(out=(alone := f"memory://{time.monotonic_ns()}"))
    with contextlib.closing(packs.PackStore(places.place_of(alone))) as store:
        families = set(results.CallLog(store).last(store, alone)[0].families("curves", "narrow"))
        claimed = [group for group in store.groups if group[:24] in families]
    clock[0], order, own = 1000.0, [], []
    obstore.put(client(bucket), "store/0.claim", b"".join(claimed) + b".")
    clock[0] = 0.0

    def tell(done):
        order.append(done.policy)
        clock[0] = 1010.0 if len(order) == 5 else clock[0]

    def wait(seconds):
        names = [key for key in keys(bucket) if key.endswith(".claim") and key != "store/0.claim"]
        own.extend(bytes(obstore.get(client(bucket), name).bytes()) for name in names)
        time.sleep(seconds)

    monkeypatch.setattr(schedule, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
    assert_same(undisturbed["runs"], run(out=bucket, share="join", callback=tell))
    assert order == ["ucb"] * 5 + ["narrow"] * 5
    assert own and set(own) == {b"."}  # Otherwise two that wait, wait for each other.


@KEEPS
def test_processes_that_join_end_with_the_same_result_and_claim_nothing_then(bucket, monkeypatch, undisturbed, keep):
    monkeypatch.setattr(schedule, "EXPIRES_S", 2.0)
    with interrupted(5):
        run(keep, out=bucket, share="join")
    assert all(key.endswith(".pack") for key in keys(bucket))
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: run(keep, out=bucket, share="join"), range(2)))
    for one in (*found, jr.load(bucket)):
        assert_same(undisturbed[keep], one)
    assert all(key.endswith(".pack") for key in keys(bucket))


# What is said.


def test_urls_that_are_none_and_a_library_that_is_missing(monkeypatch):
    said = {
        "foo://here/out": "must be a folder or the URL of an object store, .* got 'foo://here/out': Unable to recogni.e",
        "s3://": "must be a folder or the URL of an object store.*got 's3://': it names no bucket",
        "memory:///": "got 'memory:///': it names no bucket",
        "s3://bucket/out?region=here": "must be a URL without . and #.*environment, got 's3://bucket/out.region=here'",
        "file:///tmp/out": "out must be the path of a folder without file://, got 'file:///tmp/out'",
        "s3://bucket/out": r"^out='s3://bucket/out' needs obstore: pip install \"jaxroute\[objects\]\"$",
    }
    for out, message in said.items():
        if out == "s3://bucket/out":
            monkeypatch.setitem(sys.modules, "obstore", None)
        for call in (lambda out=out: run(out=out), lambda out=out: jr.load(out)):
            with pytest.raises((ValueError, ImportError), match=message):
                call()


@pytest.mark.parametrize("path", ["C:\\results", "my:folder", "C://results", "a/b://c", "://x", "s3:/bucket"])
def test_what_is_no_url_is_a_path(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(out=path, seeds=3)
    assert len(list((tmp_path / path / "store").glob("*.pack"))) == 1


def test_experiments_keep_runs_at_a_url_and_figures_in_a_folder(bucket, tmp_path, capsys):
    one, said = experiments.EXPERIMENTS["stochastic/regret"], "must be a folder on disk, where figures and summary.json go"
    with pytest.raises(ValueError, match=said):
        experiments.run(one, bucket)
    for command in (["run", one.name, "--out", bucket], ["plot", bucket]):
        with pytest.raises(SystemExit):
            cli.main(command)
        assert said in capsys.readouterr().err
    options = {"seeds": 3, "horizon": 40, "figures": False, "progress": False}
    assert experiments.run(one, tmp_path, store=bucket, **options)["store"] == bucket
    assert {path.name for path in tmp_path.iterdir()} == {"summary.json"} and keys(bucket)
