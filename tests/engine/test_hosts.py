"""Several processes: together they give the bits of one, and what one of them leaves undone the next run does."""

import json
import re
import signal
import time

import engine_child
import jax
import numpy as np
import pytest
from helpers import SUPPORT
from jax.sharding import Mesh
from processes import free_port, start, together

import jaxroute as jr
from jaxroute import cli
from jaxroute.engine import hosts


@pytest.fixture(scope="module")
def alone():
    return engine_child.play("bandit", seeds=100, block=16)


def check_equal(alone, out, number):
    for i in range(number):
        with np.load(out / f"{i}.npz") as arrays:
            for name in alone:
                np.testing.assert_array_equal(arrays[name], alone[name].values, err_msg=f"process {i}, {name}")
    assert engine_child.differences(alone, jr.load(out)) == []


@pytest.mark.parametrize("number", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_give_the_bits_of_one(tmp_path, alone, number):
    found = together(number, tmp_path)
    assert [status for status, *_ in found] == [0] * number, found
    reports = [report for _, report, _ in found]
    assert [r["devices"] for r in reports] == [number] * number
    sizes = [len(r["played"]) for r in reports]
    assert sum(sizes) == 14 and max(sizes) - min(sizes) <= 1  # Two policies, seven blocks; nobody plays another's.
    attributes = reports[0]["attributes"]
    assert all(r["attributes"] == attributes for r in reports)
    assert (attributes["processes"], attributes["decisions"]) == (number, 2 * 100 * 100)
    assert jr.load(tmp_path).attrs["decisions"] == attributes["decisions"]
    check_equal(alone, tmp_path, number)


def test_a_process_that_is_killed_leaves_its_blocks_to_the_next_run(tmp_path, alone):
    """Two processes, of which one dies in its second block, perhaps before its first is written; the other finishes its own, and one continues."""
    kill_one_of_two(tmp_path)
    with pytest.raises(ValueError, match="unfinished: [67] blocks are missing"):
        jr.load(tmp_path)
    finished = np.isfinite(jr.load(tmp_path, partial=True)["regret"].isel(time=-1)).values
    assert finished.sum() in (7 * 16 - 12, 7 * 16, 8 * 16 - 12, 8 * 16)  # The last block of a policy has four seeds.
    continued = engine_child.play("bandit", seeds=100, out=tmp_path)
    assert engine_child.differences(alone, continued) == []
    assert continued.attrs["processes"] == 1


def kill_one_of_two(out):
    (status, report, _), (killed, _, _) = together(2, out, "killed")
    assert killed == -signal.SIGKILL
    assert status == 0 and len(report["played"]) == 7
    assert re.search("HostsError: process 1 died: [67] blocks are missing, the first that of policy ", report["error"])
    assert "the same command continues from here" in report["error"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_any_number_of_processes_continues_what_two_have_begun(tmp_path, alone, number):
    kill_one_of_two(tmp_path)
    found = together(number, tmp_path)
    assert [status for status, *_ in found] == [0] * number, found
    sizes = [len(report["played"]) for _, report, _ in found]
    assert sum(sizes) in (6, 7) and max(sizes) - min(sizes) <= 1
    check_equal(alone, tmp_path, number)


@pytest.mark.slow
def test_whichever_process_is_killed_and_whenever(tmp_path, alone):
    """Also process 0, which takes the others with it; the store stays sound, and one process ends what many have begun."""
    rng = np.random.default_rng(0)

    def written():
        return len(list(tmp_path.glob("result.zarr/_done/c/*/*")))

    for attempt in range(3):
        port, before = free_port(), written()
        children = [start(SUPPORT / "hosts_child.py", port, 2, i, tmp_path, "slow") for i in range(2)]
        deadline = time.monotonic() + 60
        while written() == before and time.monotonic() < deadline:  # Until both have joined and play.
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 0.5))
        children[attempt % 2].kill()
        try:
            for child in children:
                child.communicate(timeout=60)
        finally:
            for child in children:
                child.kill()
        assert children[attempt % 2].returncode == -signal.SIGKILL
        partial = jr.load(tmp_path, partial=True)
        sound = np.isfinite(partial["regret"].isel(time=-1).values)
        for name in partial:
            np.testing.assert_array_equal(partial[name].values[sound], alone[name].values[sound])
    assert 0 < written() < 14
    assert engine_child.differences(alone, engine_child.play("bandit", seeds=100, out=tmp_path)) == []


@pytest.mark.slow
def test_a_process_that_fails_is_named_by_the_others(tmp_path, alone):
    """A full disk on one machine: the other finishes its blocks and says who failed, and why."""
    (first, report, errors), (second, failed, _) = together(2, tmp_path, "full")
    assert (first, second) == (0, 0), errors
    assert "OSError: could not write the block of policy" in failed["error"] or "No space left" in failed["error"]
    assert "process 1 stopped: OSError: " in report["error"] and "No space left on device" in report["error"]
    assert len(report["played"]) == 7
    assert engine_child.differences(alone, engine_child.play("bandit", seeds=100, out=tmp_path)) == []


@pytest.mark.slow
def test_processes_that_call_with_other_settings_are_refused(tmp_path):
    for status, report, errors in together(2, tmp_path, "refused"):
        assert status == 0, errors
        assert "other settings" in report["error"], report


# The command.

EXPERIMENT = """
from jaxroute.experiments import Case, Experiment
from jaxroute.problems import stochastic

experiment = Experiment(
    name="mine/small",
    title="a small experiment",
    cases=(Case(environment=stochastic.bernoulli([0.8, 0.2]), policies={"UCB1": stochastic.UCB1()}, horizon=300),),
)
"""


def test_the_command_shares_the_work_and_reports_once(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(EXPERIMENT)
    port = free_port()
    common = ["-m", "jaxroute", "run", file, "--seeds", 64, "--distributed", "--coordinator", f"127.0.0.1:{port}"]
    children = [start(*common, "--processes", 2, "--process-id", i, "--out", tmp_path / "two") for i in range(2)]
    shown = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0, 0], shown
    assert "mine/small" in shown[0][0] and "summary.json" in shown[0][0]
    assert shown[1][0] == ""
    summary = json.loads((tmp_path / "two" / "summary.json").read_text())
    assert summary["device"].startswith("2 x ")
    assert cli.main(["run", str(file), "--seeds", "64", "--out", str(tmp_path / "one")]) == 0
    one, two = jr.load(tmp_path / "one"), jr.load(tmp_path / "two")
    assert engine_child.differences(one, two) == []
    alone = json.loads((tmp_path / "one" / "summary.json").read_text())
    assert summary["policies"] == alone["policies"]
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == ["result.zarr", "summary.json"]


# A mesh of one process, and what is refused.


def test_a_mesh_of_one_process_is_its_devices(alone):
    data = engine_child.play("bandit", seeds=100, block=16, mesh=Mesh(np.asarray(jax.local_devices()), ("any",)))
    assert engine_child.differences(alone, data) == []
    assert data.attrs["processes"] == 1


def test_wrong_meshes_are_refused():
    devices = np.asarray(jax.local_devices()[:1])
    play = engine_child.play
    with pytest.raises(ValueError, match=r"mesh must be a jax.sharding.Mesh with one axis, got \[1\]"):
        play("bandit", mesh=[1])
    with pytest.raises(ValueError, match="mesh must be a jax.sharding.Mesh with one axis"):
        play("bandit", mesh=Mesh(devices[None], ("a", "b")))
    with pytest.raises(ValueError, match="mesh takes the place of devices; give one of them"):
        play("bandit", mesh=Mesh(devices, ("seed",)), devices=list(devices))


class Elsewhere:
    """A device of another process."""

    platform, process_index = "cpu", 1


class Spanning(Mesh):
    """A mesh of this process and another one."""

    devices = np.asarray([*jax.local_devices()[:1], Elsewhere()])

    def __new__(cls):
        return object.__new__(cls)


def test_a_mesh_of_several_processes_needs_a_store():
    with pytest.raises(ValueError, match="out must be given if mesh spans 2 processes"):
        hosts.Processes(Spanning(), [], None)
    with pytest.raises(ValueError, match="devices must belong to this process"):
        hosts.Processes(None, [*jax.local_devices()[:1], Elsewhere()], None)
    with pytest.raises(ValueError, match="got none of process 0"):
        hosts.Processes(None, [Elsewhere()], None)


@pytest.mark.parametrize(
    ("three", "message"),
    [
        (("here:1", None, None), "belong together, got no processes and no process_id"),
        ((None, 2, 0), "belong together, got no coordinator"),
        (("here", 2, 0), "coordinator must have the form HOST:PORT, got 'here'"),
        (("here:1", 0, 0), "processes must be at least 1, got 0"),
        (("here:1", 2, 2), "process_id must be from 0 to 1, got 2"),
    ],
)
def test_wrong_addresses_are_refused(three, message):
    with pytest.raises(ValueError, match=message):
        hosts.initialize(*three)


def test_the_command_says_what_belongs_together(capsys):
    assert cli.main(["run", "stochastic/regret", "--processes", "2"]) == 2
    assert "need --distributed" in capsys.readouterr().err
    assert cli.main(["run", "stochastic/regret", "--distributed", "--processes", "2"]) == 2
    assert "belong together" in capsys.readouterr().err
