"""Kernels as XLA's plugin for CUDA calls them, on a driver whose device is the host."""

import json
import re
import signal
import time

import fake_gpu
import pytest

from jaxroute.problems import default_policies, problems

pytestmark = pytest.mark.skipif(bool(fake_gpu.missing()), reason=fake_gpu.missing())

FEW = ["stochastic/UCB1", "staged/StageRoute", "service/MessPlus", "cascade/LinUCB"]
ALL = {problem: [f"{problem}/{name}" for name in default_policies(module)] for problem, module in problems().items()}
BUILTINS = "nvrtc: error: failed to open libnvrtc-builtins.so.13.0."


def ended(process):
    """Waits for a process: its exit status, what it found if it ended well, and its errors."""
    with process:
        try:
            shown, errors = process.communicate(timeout=600)
        finally:
            process.kill()
    return process.returncode, None if process.returncode else json.loads(shown.splitlines()[-1]), errors


def found(folder, *call, **settings):
    """What a function of the process finds, which must end well, and the rounds of each launch."""
    code, result, errors = ended(fake_gpu.start(folder, *call, **settings))
    assert code == 0, errors[-3000:]
    return result, rounds_of(folder)


def rounds_of(folder):
    """Rounds of each launch of a kernel that the driver accepted."""
    launches = (re.match(r"launch .* blocks of 64, ([1-9]\d*) rounds, device \d$", line) for line in fake_gpu.log(folder))
    return [int(launch[1]) for launch in launches if launch]


@pytest.mark.parametrize(
    "names", [FEW, *(pytest.param(some, marks=pytest.mark.slow) for some in ALL.values())], ids=["few", *ALL]
)
def test_policies_have_the_bits_of_the_host(names, tmp_path):
    """By one launch, and by a launch for each round; two blocks of threads, of which the second is not full."""
    unequal, launches = found(tmp_path, "policies", *names)
    assert unequal == {name: [] for name in names}
    for _ in names:
        whole = launches.pop(0)
        assert whole >= 23 and [launches.pop(0) for _ in range(whole)] == [1] * whole
    assert not launches


def test_runs_that_are_cut_have_the_bits_of_those_that_are_not(tmp_path):
    unequal, launches = found(tmp_path, "cut")
    assert unequal == {"long": [], "stages": []}
    assert launches.count(1) >= 5047


def test_runs_continue_others(tmp_path):
    unequal, launches = found(tmp_path, "continued")
    assert unequal == {"UCB1": [], "StageRoute": []}
    assert launches == [20, 27] * 2


def test_settings_and_devices(tmp_path):
    """Settings are the second axis of a launch's blocks; two devices have a setting each."""
    unequal, launches = found(tmp_path, "grids", FAKE_GPU_DEVICES="2")
    assert unequal["settings"] == unequal["devices"] == [] and len(unequal["two settings"]) >= 4
    log = "\n".join(fake_gpu.log(tmp_path))
    assert "launch 2 x 3 blocks" in log and "device 1" in log and len(launches) == 3


def test_threads_call_kernels_at_the_same_time(tmp_path):
    assert found(tmp_path, "threads")[0] == [[]] * 12


def refused(words, marks=(), **settings):
    name = " ".join(f"{name}={value[:24]}" for name, value in settings.items())
    return pytest.param(settings, words, marks=marks, id=name)


@pytest.mark.parametrize(
    "settings, words",
    [
        refused(BUILTINS, FAKE_NVRTC_LOG=BUILTINS),
        refused("cuLaunchKernel: an error of a test (701)", FAKE_GPU_LAUNCH="701@3"),
        refused("its local arrays need 0.541 GB of the device, and 0.3 GB are", FAKE_GPU_LOCAL="2000", FAKE_GPU_FREE="3e8"),
        refused("/no/such/library: cannot open shared object file", pytest.mark.slow, JAXROUTE_NVRTC="/no/such/library"),
        refused("NVRTC does not compile it: no words", pytest.mark.slow, FAKE_NVRTC_KERNELS="no words"),
        refused("(NVRTC 14.0) is newer than the driver", pytest.mark.slow, FAKE_NVRTC_VERSION="14.0"),
        refused("(NVRTC 13.0) is newer than the driver", pytest.mark.slow, FAKE_GPU_DRIVER="12080"),
        refused("cuModuleLoadData: no kernel image is available (209)", pytest.mark.slow, FAKE_GPU_LOAD="209"),
        refused("cuModuleLoadData: no kernel image is available (209)", pytest.mark.slow, FAKE_GPU_LOAD="209@2"),
        refused("cuLaunchKernel: out of memory (2)", pytest.mark.slow, FAKE_GPU_LAUNCH="2@1"),
        refused("cuLaunchKernel: out of memory (2)", pytest.mark.slow, FAKE_GPU_LAUNCH="2@2"),
        refused("after 2 blocks of kernels: cuLaunchKernel: an error", pytest.mark.slow, FAKE_GPU_LAUNCH="700@5"),
    ],
)
def test_the_scan_takes_over_from_what_is_refused(settings, words, tmp_path):
    """The first load and launch are those of a trial, the others of UCB1, whose first block has two launches and each other block one."""
    result, _ = found(tmp_path, "simulate", **settings)
    assert result["backend"] == "scan" and words in result["fell_back"]
    assert len(result["warnings"]) == 1 and result["fell_back"] in result["warnings"][0]


def test_the_scan_plays_runs_with_large_arrays_without_a_warning(tmp_path):
    result, launches = found(tmp_path, "simulate", json.dumps({"most_stack": -1}))
    assert result["backend"] == "scan" and "the scan is faster on a GPU" in result["fell_back"]
    assert not result["warnings"] and not launches


def test_a_device_that_fails_for_the_scan_too_ends_the_run(tmp_path):
    """The fifth launch is in the third block; a process on a sound device simulates what is left."""
    options = json.dumps({"out": str(tmp_path / "store")})
    code, _, errors = ended(fake_gpu.start(tmp_path, "simulate", options, FAKE_GPU_FAULT="719@5"))
    words = r"RuntimeError: the GPU failed \(.*\(719\)\), and fails with the scan too .*a new process continues it"
    aborted = code == -signal.SIGABRT and "Check failed: event.status() is OK" in errors  # By XLA of jax 0.9.
    assert aborted or (code == 1 and re.search(words, errors))
    (tmp_path / "log.txt").unlink()
    result, launches = found(tmp_path, "simulate", options)
    assert result["backend"] == "kernel" and sum(launches) == 2 * 200


def test_ctrl_c_ends_a_long_launch(tmp_path):
    """A block takes five seconds; the interrupt comes in the second of four. Progress moves within blocks, and the first one is stored."""
    options = json.dumps({"out": str(tmp_path / "store"), "horizon": 500, "progress": True})
    process = fake_gpu.start(tmp_path, "simulate", options, FAKE_GPU_ROUND_S="0.01")
    while sum(rounds_of(tmp_path)) <= 600 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    launched = len(rounds_of(tmp_path))
    code, _, errors = ended(process)
    assert len(rounds_of(tmp_path)) <= launched + 1  # A launch takes about a second.
    assert code != 0 and "KeyboardInterrupt" in errors
    assert any(0.1 < float(share) < 0.9 for share in re.findall(r"(\d+\.\d+)/4", errors))
    (tmp_path / "log.txt").unlink()
    assert sum(found(tmp_path, "simulate", options)[1]) == 3 * 500
