"""Compilers, loaders and folders of the host: all compilers give the same bits, and whatever fails leads to another folder or to a reason."""

import json
import os
import shutil
import subprocess
import sys

import jax
import pytest
from c_functions import source_of_function
from helpers import ROOT
from lane_cases import keys

from jaxroute import draws
from jaxroute.kernels import host
from jaxroute.kernels.ir import Unsupported
from jaxroute.problems import problems

pytestmark = pytest.mark.skipif(host.compiler(wide=True) is None, reason="there is no C++ compiler")

RESULTS = """
import hashlib, sys, warnings
sys.path.insert(0, "scripts")
import kernels, jaxroute as jr
from jaxroute.core.attributes import decoded
warnings.simplefilter("ignore")
compile, only = sys.argv[1], sys.argv[2:]
for problem, name, env, policy in kernels.pairs():
    if {problem, f"{problem}/{name}"} & set(only):
        result = jr.simulate(env, {name: policy}, horizon=250, seeds=20, execution=jr.Execution("kernel", compile=compile), progress=False)
        bits = hashlib.sha256(b"".join(result[one].values.tobytes() for one in sorted(result.data_vars)))
        print(problem, name, sorted(result.data_vars), bits.hexdigest(), decoded(result.attrs)["fell_back"])
"""
SOME = ["stochastic/Exp3", "stochastic/BetaThompson", "contextual/LinUCB", "service/MessPlus", "queueing/QThS"]


def results(compilers, cache, compile, only):
    env = os.environ | {"CXX": compilers[0], "CC": compilers[1], "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-c", RESULTS, compile, *only]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif(not (shutil.which("clang++") and shutil.which("g++")), reason="needs clang++ and g++")
@pytest.mark.parametrize(
    "compile, only",
    [
        ("full", SOME),
        pytest.param("quick", SOME, marks=pytest.mark.slow),
        *(pytest.param("full", [problem], marks=pytest.mark.slow, id=problem) for problem in problems()),
    ],
)
def test_clang_gives_the_bits_of_gcc(compile, only, tmp_path):
    clang, gcc = (results(names, tmp_path, compile, only) for names in (("clang++", "clang"), ("g++", "gcc")))
    assert clang == gcc and len(gcc) >= 5 and all(line.endswith("{}") for line in gcc)


FOLDERS = """
import ctypes, json, os, sys, tempfile
from jaxroute.kernels import host
loaded, real = [], ctypes.CDLL
def load(name):
    library = real(name)
    loaded.append(name)
    return library
ctypes.CDLL = load
for home, temporary in json.loads(sys.argv[1]):
    os.environ["HOME"], os.environ["TMPDIR"], tempfile.tempdir = home, temporary, None
    print(json.dumps([host.trial(), loaded[-1:]]))
    loaded.clear()
"""
KINDS = {"good": "size=16m", "noexec": "size=16m,noexec", "ro": "ro", "full": "size=8k"}
ENOUGH = [(kind, "good") for kind in KINDS] + [("good", kind) for kind in KINDS]
NEITHER = [("noexec", "noexec"), ("full", "full"), ("ro", "noexec")]


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Folders, reason and loaded libraries of a trial, by the kinds of HOME and TMPDIR."""
    top, script, folders = tmp_path_factory.mktemp("mounts"), "set -e\n", []
    for number, kinds in enumerate([*ENOUGH, *NEITHER]):
        folders.append([str(top / f"{number}{name}") for name in ("home", "tmp")])
        for folder, kind in zip(folders[-1], kinds, strict=True):
            script += f"mkdir {folder}\nmount -t tmpfs -o {KINDS[kind]} tmpfs {folder}\n"
    shell = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*shell, "mount -t tmpfs tmpfs /mnt"], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    env = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    command = [*shell, f'{script}exec "$@"', "sh", sys.executable, "-c", FOLDERS, json.dumps(folders)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return dict(zip([*ENOUGH, *NEITHER], zip(folders, map(json.loads, done.stdout.splitlines()), strict=True), strict=True))


@pytest.mark.parametrize("kinds", ENOUGH, ids="-".join)
def test_one_folder_of_two_is_enough(kinds, trials):
    (home, temporary), (reason, (loaded,)) = trials[kinds]
    assert reason is None and loaded.startswith(home if kinds[0] == "good" else temporary)


@pytest.mark.parametrize("kinds", NEITHER, ids="-".join)
def test_no_folder_at_all_is_a_reason_with_a_remedy(kinds, trials):
    _, (reason, loaded) = trials[kinds]
    assert "set XDG_CACHE_HOME to a folder" in reason and "\n" not in reason and not loaded


def wrapped(folder, line):
    """Path of a compiler that does something else first."""
    script = folder / "c++"
    script.write_text(f'#!/bin/sh\n{line}\nexec {host.compiler(wide=True)} "$@"\n')
    script.chmod(0o755)
    return str(script)


BROKEN = {
    "crashes": ('case "$*" in *rounds.cpp*) kill -SEGV $$;; esac', "does not compile it: it ends with status -11; set CXX"),
    "refuses": ("echo 'lanes.h:1: error: no vectors' >&2; exit 1", "does not compile it: lanes.h:1: error: no vectors; set CXX"),
    "says nothing and writes nothing": ("exit 0", "can be loaded neither from"),
    "makes something else": ('for last; do :; done; case "$*" in *rounds.cpp*) set -- -Drounds=others "$@";; esac', "`rounds` is missing"),
    "is no program": ("#", "cannot be started"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_compiler_is_a_reason(fault, monkeypatch, tmp_path):
    line, reason = BROKEN[fault]
    path = wrapped(tmp_path, line)
    if fault == "is no program":
        os.remove(path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(host, "compiler", lambda wide=False: path)
    assert reason in host.trial()
    assert "\n" not in host.trial()


def test_a_compiler_that_does_not_know_this_processor_is_used(monkeypatch, tmp_path):
    path = wrapped(tmp_path, 'case "$*" in *native*) echo "error: unsupported" >&2; exit 1;; esac')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(host, "compiler", lambda wide=False: path)
    assert host.trial() is None


def test_a_compiler_whose_numbers_are_wrong_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(host, "TRIVIAL", host.TRIVIAL.replace("1.0f", "1.5f"))
    assert "gives wrong numbers" in host.trial()


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.9])
def test_a_library_that_was_cut_off_is_compiled_again(share, monkeypatch, tmp_path):
    """Without a look at its length the loader would kill this process."""
    text = f"double rounds(void) {{ return {share}; }}"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "sound"))
    host.compiled(text)
    (sound,) = host.cache_folder().glob("*.so")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "damaged"))
    damaged, whole = host.cache_folder() / sound.name, sound.read_bytes()
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(whole[: int(share * len(whole))])
    host.compiled(text)
    assert len(damaged.read_bytes()) == len(whole)


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(host.Path, "home", homeless)
    assert host.trial() is None


CALLS = {
    "beta": lambda k: jax.random.beta(k, 2.0, 3.0),
    "gamma": lambda k: jax.random.gamma(k, 2.0),
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3),
    "categorical": lambda k: jax.random.categorical(k, jax.numpy.zeros(4)),
    "fold_in": lambda k: jax.random.bits(jax.random.fold_in(k, 3)),
    "key": lambda k: jax.random.bits(jax.random.clone(jax.random.key(jax.random.bits(k)))),
    "randint": lambda k: jax.random.randint(k, (), 0, 5),
    "split": lambda k: jax.random.bits(jax.random.split(k)[1]),
    **{name: getattr(jax.random, name) for name in ("bits", "exponential", "gumbel", "normal", "uniform")},
}
COMMON = [n for n in dir(jax.random) if getattr(getattr(draws, n, None), "__module__", "") == "jaxroute.core.draws"]


@pytest.mark.parametrize("name", COMMON)
def test_a_function_of_jax_random_has_a_kernel_or_names_the_draw_that_has(name):
    try:
        source_of_function(CALLS[name], keys(), wide=True)
    except Unsupported as error:
        named = {"beta", "gamma"} if name == "beta" else {name}  # `beta` calls `gamma`, which jax 0.9 shows.
        assert str(error) in {f"jax.random.{one}; draws.{one} has a kernel" for one in named}
        counterpart = {"beta": lambda k: draws.beta(k, 2.0, 3.0), "gamma": lambda k: draws.gamma(k, 2.0)}[name]
        source_of_function(counterpart, keys(), wide=True)


def test_functions_of_jax_without_counterpart_are_named():
    with pytest.raises(Unsupported, match=r"^jax\.random\.dirichlet$"):
        source_of_function(lambda k: jax.random.dirichlet(k, jax.numpy.ones(3)), keys())
    with pytest.raises(Unsupported, match=r"^jax\.numpy\.fft\.fft: numbers of type complex64"):
        source_of_function(lambda k: jax.numpy.fft.fft(jax.random.normal(k, (4,))).real, keys())
