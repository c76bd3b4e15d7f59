"""Checks of installed packages, and the commands that repair them; the distributions are made up, in temporary folders."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from jaxroute import cli, installation
from jaxroute.cli import doctor
from jaxroute.installation import GPU

pytestmark = pytest.mark.fast

RTX = [GPU("NVIDIA RTX", "550.54.15")]  # A driver for CUDA 12.
H100 = [GPU("NVIDIA H100", "580.95.05")]  # A driver for CUDA 13.
REST = dict.fromkeys(
    ("flax", "optax", "chex", "numpy", "pandas", "xarray", "tqdm", "scipy", "zstandard", "rich", "jinja2"), "9999"
)


DISTRIBUTIONS = importlib.metadata.distributions


def put(folder, **versions):
    """Writes distributions of these versions; jax requires the jaxlib of its own version."""
    for name, version in versions.items():
        name = name.replace("_", "-")
        at = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        at.mkdir(parents=True)
        needs = f"Requires-Dist: jaxlib<={version},>={version}\nRequires-Dist: jaxlib==0.1; extra == 'ci'\n"
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (at / "METADATA").write_text(text + needs * (name == "jax"))
    return [str(folder)]


def seen(monkeypatch, folders, gpus=(), extras=()):
    """Gives this interpreter the distributions in some folders, on a machine with some GPUs; returns the findings."""
    monkeypatch.setattr(installation.importlib.metadata, "distributions", lambda: DISTRIBUTIONS(path=folders))
    monkeypatch.setattr(installation, "gpus", lambda: list(gpus))
    return installation.findings(extras=extras)


def plugin(cuda, version, pjrt=None):
    return {f"jax_{cuda}_plugin": version, f"jax_{cuda}_pjrt": pjrt or version}


FIT = {
    "a CPU": ({}, []),
    "CUDA 12": (plugin("cuda12", "0.10.2"), RTX),
    "CUDA 13": (plugin("cuda13", "0.10.2"), H100),
    "a build of its own": (plugin("cuda12", "0.10.2+local.7"), RTX),  # jax compares what a version begins with.
}


@pytest.mark.parametrize("case", FIT)
def test_nothing_is_found_where_all_fits(tmp_path, case, monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    versions, gpus = FIT[case]
    assert seen(monkeypatch, put(tmp_path, **REST, **NEW, **versions), gpus) == []


OLD = {"jax": "0.7.2", "jaxlib": "0.7.2"}
NEW = {"jax": "0.10.2", "jaxlib": "0.10.2"}
# Distributions, GPUs, level of the finding, words of the problem, and of the command.
WRONG = {
    "no jax": ({}, [], "broken", "jax is not installed", '"jax>=0.9"'),
    "no jax, a GPU": ({}, H100, "broken", "jax is not installed", '"jax[cuda13]>=0.9"'),
    "old jax": (OLD, [], "broken", "jax 0.7.2 is older than 0.9", '"jax>=0.9"'),
    "old jax with its plugin": (OLD | plugin("cuda12", "0.7.2"), RTX, "broken", "older than 0.9", '"jax[cuda12-local]>=0.9"'),
    "old jax with its plugin and CUDA": (OLD | plugin("cuda12", "0.7.2") | {"nvidia_cudnn_cu12": "9.8"}, RTX, "broken", "older than 0.9", '"jax[cuda12]>=0.9"'),
    "no jaxlib": ({"jax": "0.10.2"}, [], "broken", "jaxlib is not installed", '"jax==0.10.2"'),
    "jaxlib too old": (NEW | {"jaxlib": "0.7.2"}, [], "broken", "needs jaxlib >= 0.10.2", '"jax==0.10.2"'),
    "jaxlib too new": (NEW | {"jaxlib": "0.11"}, [], "broken", "needs jaxlib <= 0.10.2", '"jax==0.10.2"'),
    "older plugin": (NEW | plugin("cuda12", "0.7.2"), RTX, "slow", "jax-cuda12-plugin 0.7.2 does not fit jaxlib 0.10.2", '"jax[cuda12-local]==0.10.2"'),
    "older plugin, without GPU": (NEW | plugin("cuda13", "0.7.2") | {"nvidia_cudnn_cu13": "9.8"}, [], "slow", "jax-cuda13-plugin 0.7.2 does not fit", '"jax[cuda13]==0.10.2"'),
    "older pjrt": (NEW | plugin("cuda12", "0.10.2", "0.7.2"), RTX, "slow", "jax-cuda12-pjrt 0.7.2 does not fit", '"jax[cuda12-local]==0.10.2"'),
    "half a plugin": (NEW | {"jax_cuda12_plugin": "0.10.2"}, RTX, "slow", "jax-cuda12-pjrt is missing", '"jax[cuda12-local]==0.10.2"'),
    "two plugins": (NEW | plugin("cuda12", "0.10.2") | plugin("cuda13", "0.10.2"), RTX, "slow", "can use only one", "uninstall -y jax-cuda13-plugin jax-cuda13-pjrt"),
    "two plugins, new driver": (NEW | plugin("cuda12", "0.10.2") | plugin("cuda13", "0.10.2"), H100, "slow", "can use only one", "uninstall -y jax-cuda12-plugin jax-cuda12-pjrt"),
    "a GPU, no plugin": (NEW, RTX, "slow", "NVIDIA RTX stays unused", '"jax[cuda12]==0.10.2"'),
    "a new GPU, no plugin": (NEW, H100, "slow", "NVIDIA H100 stays unused", '"jax[cuda13]==0.10.2"'),
    "a plugin, no GPU": (NEW | plugin("cuda12", "0.10.2"), [], "note", "no GPU", "uninstall -y jax-cuda12-plugin"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_found_with_a_command_that_repairs_it(tmp_path, case, monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    versions, gpus, level, words, command = WRONG[case]
    first = seen(monkeypatch, put(tmp_path, **REST, **versions), gpus)[0]
    assert first.level == level
    assert words in first.problem
    assert command in first.command


def test_a_gpu_that_is_not_wanted_is_no_fault(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert seen(monkeypatch, put(tmp_path, **REST, **NEW), H100) == []


def test_a_missing_package_is_installed_without_another_jax(tmp_path, monkeypatch):
    path = put(tmp_path, **(REST | {"flax": "0.9", "jax": "0.9.1", "jaxlib": "0.9.1"}))
    (one,) = seen(monkeypatch, path, extras=["plot"])
    assert one.problem == "missing or too old: flax (0.9), matplotlib (missing)"
    assert one.command == 'python -m pip install "flax>=0.10" "matplotlib>=3.8" "jax==0.9.1" "jaxlib==0.9.1"'


def test_the_first_of_two_distributions_counts_and_remains_of_one_do_not(tmp_path, monkeypatch):
    first, second = put(tmp_path / "a", **REST, **NEW), put(tmp_path / "b", **OLD)
    (tmp_path / "a" / "jax_cuda12_plugin-0.7.2.dist-info").mkdir()  # Without metadata, as a broken removal leaves it.
    assert seen(monkeypatch, [*first, *second]) == []


def test_requirements_of_a_clone_are_those_of_its_project():
    here = installation.requirements("plot", "tune")
    assert list(here)[:2] == ["jax", "jaxlib"] and {"matplotlib", "cmaes"} <= set(here)


def test_requirements_of_a_wheel_are_read_by_their_extras(monkeypatch, tmp_path):
    texts = ["jax>=0.9", "matplotlib>=3.8; extra == 'plot'", 'cmaes>=0.12; extra == "tune"']
    monkeypatch.setattr(installation, "__file__", str(tmp_path / "installation.py"))
    monkeypatch.setattr(installation.importlib.metadata, "requires", lambda name: texts)
    assert installation.requirements("tune") == {"jax": "0.9", "cmaes": "0.12"}


@pytest.mark.skipif(os.name != "posix", reason="a script stands in for nvidia-smi")
def test_gpus_are_those_of_nvidia_smi(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installation.gpus() == []
    tool.write_text('#!/bin/sh\necho "NVIDIA H100 80GB HBM3, 580.95.05"\n')
    tool.chmod(0o755)
    assert installation.gpus() == [GPU("NVIDIA H100 80GB HBM3", "580.95.05")]
    tool.write_text('#!/bin/sh\necho "NVIDIA-SMI has failed because it could not communicate with the driver"\nexit 9\n')
    assert installation.gpus() == []


def test_the_module_needs_the_standard_library_alone():
    """It is imported where nothing else of what jaxroute needs is installed yet."""
    source = "import sys\nimport jaxroute.installation\nprint(sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout
    assert not any(f"'{name}'" in loaded for name in (*REST, "jax", "jaxlib", "packaging"))


def pretend(monkeypatch, folder, gpus=(), **versions):
    """Gives this interpreter these distributions; returns the calls of pip, which change nothing."""
    calls = []
    seen(monkeypatch, put(folder, **REST, matplotlib="9999", **versions), gpus)

    def run(command, **options):
        calls.append(command[2:])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(installation.subprocess, "run", run)
    return calls


def test_what_is_missing_stops_a_notebook_that_may_not_install(tmp_path, monkeypatch):
    calls = pretend(monkeypatch, tmp_path, **NEW)
    problem = r'cmaes \(missing\): python -m pip install "cmaes>=0.12" "jax==0.10.2" "jaxlib==0.10.2"'
    with pytest.raises(ImportError, match=problem):
        installation.prepare("plot", "tune")
    assert calls == []


def test_an_unused_gpu_is_named_and_does_not_stop_a_notebook(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    pretend(monkeypatch, tmp_path, RTX, **NEW, **plugin("cuda12", "0.7.2"))
    installation.prepare("plot")
    shown = capsys.readouterr().out
    assert "jax 0.10.2, jax-cuda12-plugin 0.7.2: nothing had to be installed." in shown
    assert 'python -m pip install "jax[cuda12-local]==0.10.2"' in shown


def test_an_old_jax_goes_together_with_its_plugin_and_what_was_written_for_it(tmp_path, monkeypatch):
    calls = pretend(monkeypatch, tmp_path, RTX, **OLD, **plugin("cuda12", "0.7.2"))
    with (tmp_path / "flax-9999.dist-info" / "METADATA").open("a") as file:
        file.write("Requires-Dist: jax>=0.6\n")
    with pytest.raises(ImportError, match="older than 0.9"):  # This pip changes nothing, which is seen.
        installation.prepare("plot", install=True)
    assert calls == [["pip", "install", "-q", "--upgrade", "jax[cuda12-local]>=0.9", "flax>=0.10"]]


def test_a_plugin_of_another_version_gets_that_of_jax(tmp_path, monkeypatch):
    calls = pretend(monkeypatch, tmp_path, RTX, **NEW, **plugin("cuda12", "0.7.2"))
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    installation.prepare("plot", install=True)
    assert calls == [["pip", "install", "-q", "jax[cuda12-local]==0.10.2"]]


def test_a_package_that_was_replaced_while_in_use_asks_for_a_restart(tmp_path, monkeypatch):
    calls = pretend(monkeypatch, tmp_path, **(OLD | {"cmaes": "0.1"}))

    def run(command, **options):
        calls.append(command[2:])
        for one in tmp_path.glob("cmaes-*"):
            one.rename(tmp_path / "cmaes-0.12.dist-info")
        (tmp_path / "cmaes-0.12.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: cmaes\nVersion: 0.12\n")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(installation.subprocess, "run", run)
    monkeypatch.setattr(installation.importlib.metadata, "packages_distributions", lambda: {"cmaes": ["cmaes"]})
    monkeypatch.setitem(sys.modules, "cmaes", sys)
    with pytest.raises(RuntimeError, match=r"cmaes 0.1 became 0.12, some of it while in use: restart the kernel"):
        installation.prepare("plot", "tune", install=True)


def test_a_failure_of_pip_is_reported(tmp_path, monkeypatch):
    pretend(monkeypatch, tmp_path, **OLD)
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found for jax>=0.9")
    monkeypatch.setattr(installation.subprocess, "run", lambda *a, **k: failed)
    with pytest.raises(RuntimeError, match=r"pip could not install --upgrade jax>=0.9:\nERROR: No matching distribution"):
        installation.prepare("plot", install=True)


def test_a_recent_jax_is_left_alone_and_a_gpu_on_colab_is_explained(tmp_path, monkeypatch, capsys):
    calls = pretend(monkeypatch, tmp_path, jax="0.9.1", jaxlib="0.9.1")
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    installation.prepare("plot", install=True)
    shown = capsys.readouterr().out
    assert calls == [] and "jax 0.9.1: nothing had to be installed." in shown and "Runtime > Change runtime type" in shown


@pytest.mark.parametrize("level", ["broken", "slow", "note"])
def test_doctor_reports_what_does_not_fit(level, monkeypatch, capsys):
    found = installation.Finding("the plugin does not fit", "python -m pip install it", level)
    monkeypatch.setattr(installation, "findings", lambda: [found])
    monkeypatch.setattr(doctor, "check_kernels", lambda: iter([]))
    monkeypatch.setattr(doctor, "check_simulation", lambda: iter([]))
    assert cli.main(["doctor"]) == (level != "note")
    shown = capsys.readouterr().out
    assert "the plugin does not fit: python -m pip install it" in shown
    assert ("precision" in shown) == (level != "broken")  # Then jax is not even imported.
