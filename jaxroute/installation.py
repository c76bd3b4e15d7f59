"""Checks whether the installed packages fit together, and installs missing ones: for `jaxroute doctor` and the first cell of a notebook.

Needs only the standard library, because it also works where jax is missing or cannot be imported.
"""

import contextlib
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jaxroute

_CUDA_13_DRIVER = (580,)  # The oldest driver for CUDA 13.
_LEVELS = ("broken", "slow", "note")


class GPU(NamedTuple):
    """An NVIDIA GPU: its name and the version of its driver."""

    name: str
    driver: str


class Finding(NamedTuple):
    """Fault of an installation with its repair, or a note.

    Attributes:
      problem: a sentence that describes the fault.
      command: the command that repairs it; for a note, one that may help.
      level: "broken" if jaxroute cannot work, "slow" if a GPU stays unused, "note" if nothing is wrong.
      needs: arguments of `pip install` that repair it; empty if pip cannot.
    """

    problem: str
    command: str
    level: str
    needs: tuple[str, ...] = ()


def gpus() -> list[GPU]:
    """Returns the NVIDIA GPUs of this machine, as `nvidia-smi` lists them; an empty list if that command is missing or fails."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.rpartition(",") for line in shown.splitlines() if "," in line)
    return [GPU(name.strip(), driver.strip()) for name, _, driver in rows]


def requirements(*extras: str) -> dict[str, str]:
    """Returns a dict from package name to the oldest version that jaxroute and the given extras need; "" if any version will do."""
    file = Path(__file__).resolve().parents[1] / "pyproject.toml"
    if file.is_file():
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        texts = [*project["dependencies"], *(text for one in extras for text in project["optional-dependencies"][one])]
    else:
        parts = [text.partition(";") for text in importlib.metadata.requires("jaxroute") or ()]
        marked = [(text, re.search(r"extra\s*==\s*['\"]([\w-]+)", marker)) for text, _, marker in parts]
        texts = [text for text, extra in marked if extra is None or extra[1] in extras]
    found = [re.match(r"\s*([\w.-]+)(?:\[[^]]*\])?\s*(?:>=\s*([\d.]+))?", text) for text in texts]
    return {_canonical(one[1]): one[2] or "" for one in found if one}


def findings(extras: Sequence[str] = ()) -> list[Finding]:
    """Checks jax, jaxlib, their CUDA plugins, the GPU and the other requirements, and returns the faults, the worst first.

    `extras` are extras of jaxroute that are also needed, such as "plot".
    """
    installed, least, cards = _installed(), requirements(*extras), gpus()
    have = {name: one.version for name, one in installed.items()}
    needs = {name: f"{name}>={version}".removesuffix(">=") for name, version in least.items() if name != "jaxlib"}
    lacking = [name for name in needs if name not in have or _numbers(have[name]) < _numbers(least[name])]
    jax = have.get("jax")
    if "jax" in lacking:
        lacking.remove("jax")
        # Packages that were made for the older jax may not work with the newer one.
        old = [needs[name] for name in needs if name in have and _bounds(installed[name], "jax")]
        too_old = f"jax {jax} is older than {least['jax']}, the oldest that jaxroute works with"
        need = _jax(f">={least['jax']}", have, cards)
        found = [_repair(too_old if jax else "jax is not installed", "--upgrade", need, *old)]
    else:
        found = _check_jax(have, _bounds(installed["jax"], "jaxlib"), cards)
    if lacking:
        shown = ", ".join(f"{name} ({have.get(name, 'missing')})" for name in lacking)
        # Pins the present jax, which no other package may replace.
        pins = [f"jax=={jax}", f"jaxlib=={have['jaxlib']}"] if jax and not found else []
        found.append(_repair(f"missing or too old: {shown}", *(needs[name] for name in lacking), *pins))
    return sorted(found, key=lambda one: _LEVELS.index(one.level))


def prepare(*extras: str, install: bool = False) -> None:
    """Prepares this interpreter for jaxroute in the first cell of a notebook, and prints one line about what was done.

    With `install`, missing packages are installed by one call of pip. A jax that is recent enough stays as it is; an older one is replaced together
    with its CUDA plugin. A plugin whose version differs from jax's is replaced by the plugin of jax's version.

    Args:
      extras: extras of jaxroute that are needed, such as "plot".
      install: whether packages may be installed; without it, an error names the command.

    Raises:
      ImportError: a package is missing and may not be installed, or packages do not fit together.
      RuntimeError: pip failed, or replaced a package that this process has already loaded; the process must then be restarted.
    """
    found, done = findings(extras=extras), "nothing had to be installed"
    if install and (needs := list(dict.fromkeys(need for one in found for need in one.needs))):
        done = _install(needs)
        found = findings(extras=extras)
    if broken := [f"{one.problem}: {one.command}" for one in found if one.level == "broken"]:
        raise ImportError("; ".join(broken))
    have = {name: one.version for name, one in _installed().items()}
    plugins = "".join(f", jax-{cuda}-plugin {have.get(f'jax-{cuda}-plugin')}" for cuda in _plugins(have))
    print(f"jaxroute {jaxroute.__version__}, jax {have['jax']}{plugins}: {done}.")
    print(*(f"{one.problem}: {one.command}\n" for one in found if one.level == "slow"), sep="", end="")
    if "google.colab" in sys.modules and not gpus():
        print("There is no GPU here. For one: Runtime > Change runtime type, choose a GPU, then Runtime > Run all.")


def _install(needs: Sequence[str]) -> str:
    """Installs packages by pip and returns a text that lists the versions that changed."""
    before = {name: one.version for name, one in _installed().items()}
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needs], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"pip could not install {' '.join(needs)}:\n{done.stderr.strip() or done.stdout.strip()}")
    importlib.invalidate_caches()
    after = {name: one.version for name, one in _installed().items()}
    replaced = sorted(name for name in before.keys() & after.keys() if after[name] != before[name])
    words = [f"{name} {before[name]} became {after[name]}" for name in replaced]
    packages = importlib.metadata.packages_distributions()
    loaded = {_canonical(name) for module in packages.keys() & sys.modules.keys() for name in packages[module]}
    if loaded.intersection(replaced):
        again = "Runtime > Restart session" if "google.colab" in sys.modules else "restart the kernel"
        raise RuntimeError(f"{', '.join(words)}, some of it while in use: {again}, then run all cells from the first one")
    added = len(after.keys() - before.keys())
    return ", ".join([*words, *([f"{added} package{'s' * (added != 1)} installed"] if added else [])])


def _check_jax(have: Mapping[str, str], bounds: Sequence[tuple[str, str]], cards: Sequence[GPU]) -> list[Finding]:
    """Returns faults of jaxlib and CUDA plugins. `have`: versions by package; `bounds`: what jax demands of jaxlib, such as `(">=", "0.7.0")`."""
    jax, jaxlib, plugins = have["jax"], have.get("jaxlib"), _plugins(have)
    need = _jax(f"=={jax}", have, cards)
    if jaxlib is None:
        return [_repair("jaxlib is not installed", need)]
    for relation, bound in bounds:
        low, high = sorted([_numbers(jaxlib), _numbers(bound)])
        if low != high and (low == _numbers(jaxlib)) == (relation == ">="):
            return [_repair(f"jaxlib {jaxlib} does not fit jax {jax}, which needs jaxlib {relation} {bound}", need)]
    surplus = (plugins[0] if len(plugins) == 1 or _has_cuda_13(cards) else plugins[1]) if plugins else ""
    remove = f"python -m pip uninstall -y jax-{surplus}-plugin jax-{surplus}-pjrt"
    if len(plugins) > 1:
        return [Finding("there are plugins for CUDA 12 and for CUDA 13, but jax can use only one", remove, "slow")]
    found = []
    for name in (f"jax-{cuda}-{part}" for cuda in plugins for part in ("plugin", "pjrt")):
        if name not in have:
            found.append(_repair(f"{name} is missing, without which jax cannot use a GPU", need, level="slow"))
        elif _numbers(have[name]) != _numbers(jaxlib):  # jax itself demands equal versions.
            problem = f"{name} {have[name]} does not fit jaxlib {jaxlib}, so that jax ignores the GPU"
            found.append(_repair(problem, need, level="slow"))
    if cards and not plugins and _is_gpu_allowed():
        found.append(_repair(f"{cards[0].name} stays unused, as jax has no CUDA plugin", need, level="slow"))
    if plugins and not cards and not found:
        problem = f"jax-{surplus}-plugin is installed, but nvidia-smi finds no GPU: check the driver, or remove the plugin"
        found.append(Finding(problem, remove, "note"))
    return found


def _jax(version: str, have: Mapping[str, str], cards: Sequence[GPU]) -> str:
    """Returns pip's argument for jax: `jax[cuda12]==0.7.0` for `version` "==0.7.0". The extra fits the plugin in `have` or, without one, the GPUs."""
    extra = ""
    for cuda in _plugins(have):  # If no package contains CUDA's libraries, those of the machine stay in use.
        extra = cuda if f"nvidia-cudnn-{cuda.replace('da', '')}" in have else f"{cuda}-local"
    if not extra and cards and _is_gpu_allowed():
        extra = "cuda13" if _has_cuda_13(cards) else "cuda12"
    return f"jax[{extra}]{version}" if extra else f"jax{version}"


def _plugins(have: Mapping[str, str]) -> list[str]:
    """Returns those of "cuda12" and "cuda13" for which `have` contains at least one of the two packages of jax's plugin."""
    return [cuda for cuda in ("cuda12", "cuda13") if {f"jax-{cuda}-plugin", f"jax-{cuda}-pjrt"} & have.keys()]


def _has_cuda_13(cards: Sequence[GPU]) -> bool:
    return all(_numbers(card.driver) >= _CUDA_13_DRIVER for card in cards)


def _is_gpu_allowed() -> bool:
    """Whether jax has CUDA plugins for this operating system, and `JAX_PLATFORMS` does not exclude GPUs."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    return sys.platform == "linux" and (not platforms or "cuda" in platforms or "gpu" in platforms)


def _installed() -> dict[str, importlib.metadata.Distribution]:
    """Returns the installed distributions by canonical name. If several have the same name, the first is returned, because Python imports it."""
    found: dict[str, importlib.metadata.Distribution] = {}
    for one in importlib.metadata.distributions():
        # A package that was removed incompletely has no metadata.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError, FileNotFoundError):
            if one.metadata["Name"] and one.version:
                found.setdefault(_canonical(one.metadata["Name"]), one)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the leading numbers of a version as integers, such as `(0, 7, 1)` for "0.7.1rc2"; jax compares versions in this way."""
    begin = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in begin[0].split(".")) if begin else ()


def _bounds(one: importlib.metadata.Distribution, name: str) -> list[tuple[str, str]]:
    """Returns the bounds that a distribution sets on the version of the package `name`, as pairs like `(">=", "0.7.0")`."""
    texts = (text for text in one.requires or () if ";" not in text and re.match(rf"{name}\b", text))
    return re.findall(r"(<=|>=)\s*([\d.]+)", next(texts, ""))


def _repair(problem: str, *needs: str, level: str = "broken") -> Finding:
    shown = " ".join(need if need.startswith("--") else f'"{need}"' for need in needs)
    return Finding(problem, f"python -m pip install {shown}", level, needs)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
