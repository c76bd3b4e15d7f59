"""What is installed beside jaxroute, whether it fits together, and how what is missing gets there.

Needs the standard library alone, so that it works before jax is there, and where jax cannot be imported: `jaxroute doctor` asks `findings`, and
the first cell of a notebook calls `prepare`.
"""

import contextlib
import dataclasses
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jaxroute

_GENERATIONS = ("cuda12", "cuda13")
_PARTS = ("plugin", "pjrt")  # Of a plugin: what registers it, and what it calls.
_LEVELS = ("broken", "slow", "note")
_CUDA_13_DRIVER = (580,)  # The oldest driver that plays CUDA 13.


class GPU(NamedTuple):
    """An NVIDIA GPU as `nvidia-smi` sees it.

    name: what it is called.
    driver: version of the driver.
    """

    name: str
    driver: str


@dataclasses.dataclass(frozen=True)
class Finding:
    """What does not fit in an installation.

    what: a sentence that says it.
    command: the command that mends it.
    level: "broken" where jaxroute cannot play at all, "slow" where a GPU stays unused, "note" where nothing is wrong.
    """

    what: str
    command: str
    level: str = "broken"


class _Need(NamedTuple):
    """A requirement: `name`, and the oldest version that will do, "" if any will."""

    name: str
    least: str

    def __str__(self) -> str:
        return f"{self.name}>={self.least}" if self.least else self.name


def gpus() -> list[GPU]:
    """The NVIDIA GPUs of this machine, by `nvidia-smi`; none where that is not to be had, or cannot talk to a driver."""
    try:
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if asked.returncode != 0:
        return []
    rows = (line.rpartition(",") for line in asked.stdout.splitlines() if "," in line)
    return [GPU(name.strip(), driver.strip()) for name, _, driver in rows]


def requirements(*extras: str) -> list[_Need]:
    """What jaxroute needs, and what the named extras need, from `pyproject.toml` in a clone and else from what was installed."""
    file = Path(__file__).resolve().parents[1] / "pyproject.toml"
    if file.is_file():
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        texts = list(project["dependencies"])
        for extra in extras:
            texts += project["optional-dependencies"][extra]
    else:
        texts = []
        for text in importlib.metadata.requires("jaxroute") or ():
            needed, _, marker = text.partition(";")
            of = re.search(r"extra\s*==\s*['\"]([\w-]+)", marker)
            if of is None or of.group(1) in extras:
                texts.append(needed)
    return [_need(text) for text in texts]


def findings(
    path: Sequence[str] | None = None, found_gpus: Callable[[], Sequence[GPU]] | None = None, extras: Sequence[str] = ()
) -> list[Finding]:
    """What does not fit together of jax, jaxlib, their CUDA plugins, the GPU, and what jaxroute needs; the worst first.

    Args:
      path: folders with installed distributions; those of this interpreter if None.
      found_gpus: gives the GPUs of the machine; `gpus` if None.
      extras: extras of jaxroute whose requirements are looked at, too.
    """
    have = _installed(path)
    needs = {need.name: need for need in requirements(*extras)}
    cards = (found_gpus or gpus)()
    jax, jaxlib = _version(have, "jax"), _version(have, "jaxlib")
    least = needs["jax"].least
    if jax is None or _numbers(jax) < _numbers(least):
        what = (
            "jax is not installed"
            if jax is None
            else f"jax {jax} is older than {least}, the oldest that jaxroute works with"
        )
        found = [Finding(what, _install(_jax(f">={least}", have, cards)))]
    else:
        found = _of_jax(have, jax, jaxlib, cards)
    lacking = [needs[name] for name in needs if name not in ("jax", "jaxlib") and _lacks(have, needs[name])]
    if lacking:
        which = ", ".join(f"{need.name} ({_version(have, need.name) or 'missing'})" for need in lacking)
        # With the jax that is there, which no other package may replace.
        pins = [] if jax is None or found else [f"jax=={jax}", f"jaxlib=={jaxlib}"]
        found.append(Finding(f"missing or too old: {which}", _install(*map(str, lacking), *pins)))
    return sorted(found, key=lambda one: _LEVELS.index(one.level))


def prepare(*extras: str, install: bool = False) -> None:
    """Makes this interpreter ready for jaxroute and says in a line what was done: the first cell of a notebook.

    With `install`, what is missing is installed by one call of pip. A jax that is recent enough stays as it is; one that is too old is
    replaced together with the CUDA plugin that is there; a plugin of another version than jax gets that of jax.

    Args:
      extras: extras of jaxroute that are needed, such as "plot".
      install: whether packages may be installed here; without it, an error names the command.

    Raises:
      ImportError: something is missing that may not be installed, or does not fit.
      RuntimeError: pip failed, or replaced a package that this process has loaded, so that it has to begin anew.
    """
    wrong = findings(extras=extras)
    done = "nothing had to be installed"
    if install and any(one.level != "note" for one in wrong):
        done = _changes(extras)
        wrong = findings(extras=extras)
    if broken := [f"{one.what}: {one.command}" for one in wrong if one.level == "broken"]:
        raise ImportError("; ".join(broken))
    have = _installed()
    plugins = [f", jax-{generation}-plugin {_version(have, f'jax-{generation}-plugin')}" for generation in _plugins(have)]
    print(f"jaxroute {jaxroute.__version__}, jax {_version(have, 'jax')}{''.join(plugins)}: {done}.")
    for one in wrong:
        if one.level == "slow":
            print(f"{one.what}: {one.command}")
    if _on_colab() and not gpus():
        print("There is no GPU here. For one: Runtime > Change runtime type, choose a GPU, then Runtime > Run all.")


def _changes(extras: Sequence[str]) -> str:
    """Has pip install what is missing, and says what it did."""
    before = {name: dist.version for name, dist in _installed().items()}
    arguments = _arguments(extras)
    ran = subprocess.run([sys.executable, "-m", "pip", "install", "-q", *arguments], capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError(f"pip could not install {' '.join(arguments)}:\n{ran.stderr.strip() or ran.stdout.strip()}")
    importlib.invalidate_caches()
    after = {name: dist.version for name, dist in _installed().items()}
    replaced = [name for name in after if name in before and after[name] != before[name]]
    words = [f"{name} {before[name]} became {after[name]}" for name in sorted(replaced)]
    modules = importlib.metadata.packages_distributions()
    in_use = {_canonical(name) for module in modules.keys() & sys.modules.keys() for name in modules[module]}
    if in_use & set(replaced):
        again = "Runtime > Restart session" if _on_colab() else "restart the kernel"
        raise RuntimeError(
            f"{', '.join(words)}, some of it while it was in use: {again}, then run all cells from the first one"
        )
    if added := len(after.keys() - before.keys()):
        words.append(f"{added} package{'s' * (added != 1)} installed")
    return ", ".join(words)


def _of_jax(have: dict, jax: str, jaxlib: str | None, cards: Sequence[GPU]) -> list[Finding]:
    """What does not fit to the jax that is there, which is recent enough."""
    mend = _install(_jax(f"=={jax}", have, cards))
    if jaxlib is None:
        return [Finding("jaxlib is not installed", mend)]
    for relation, bound in _bounds(have["jax"], "jaxlib"):
        if (relation == ">=" and _numbers(jaxlib) < _numbers(bound)) or (
            relation == "<=" and _numbers(jaxlib) > _numbers(bound)
        ):
            return [Finding(f"jaxlib {jaxlib} does not fit jax {jax}, which needs jaxlib {relation} {bound}", mend)]
    found = []
    there = _plugins(have)
    if len(there) > 1:
        less = there[0] if _can_cuda_13(cards) else there[1]
        return [
            Finding("there are plugins for CUDA 12 and for CUDA 13, of which jax can take one", _uninstall(less), "slow")
        ]
    for generation in there:
        names = {part: f"jax-{generation}-{part}" for part in _PARTS}
        for name in names.values():
            version = _version(have, name)
            if version is None:
                found.append(Finding(f"{name} is missing, without which jax has no GPU", mend, "slow"))
            elif _numbers(version) != _numbers(jaxlib):  # jax's own rule.
                what = f"{name} {version} does not fit jaxlib {jaxlib}, so that jax leaves the GPU unused"
                found.append(Finding(what, mend, "slow"))
    if cards and not there and _may_play_on_gpu():
        found.append(Finding(f"{cards[0].name} stays unused, for jax has no CUDA plugin", mend, "slow"))
    if there and not cards and not found:
        what = f"jax-{there[0]}-plugin is installed, but nvidia-smi finds no GPU: look at the driver if there is one, else the plugin may go"
        found.append(Finding(what, _uninstall(there[0]), "note"))
    return found


def _arguments(extras: Sequence[str]) -> list[str]:
    """What `prepare` has pip install: what is missing, with jax as it has to be."""
    have, cards = _installed(), gpus()
    needs = {need.name: need for need in requirements(*extras)}
    jax, jaxlib = _version(have, "jax"), _version(have, "jaxlib")
    least = needs.pop("jax").least
    needs.pop("jaxlib")
    lacking = [str(need) for need in needs.values() if _lacks(have, need)]
    if jax is None or _numbers(jax) < _numbers(least):
        # What was written for the older jax may not work with the newer one.
        old = [str(need) for name, need in needs.items() if name in have and _bounds(have[name], "jax")]
        return ["--upgrade", _jax(f">={least}", have, cards), *old, *lacking]
    if jaxlib is None or any(one.level != "note" for one in _of_jax(have, jax, jaxlib, cards)):
        return [_jax(f"=={jax}", have, cards), *lacking]
    return [f"jax=={jax}", f"jaxlib=={jaxlib}", *lacking]


def _jax(version: str, have: dict, cards: Sequence[GPU]) -> str:
    """jax for pip, with the extra that brings the plugin along that is there, or that the GPU needs."""
    extra = ""
    for generation in _plugins(have):  # Where no package brings CUDA's libraries, those of the machine stay in use.
        extra = generation if f"nvidia-cudnn-{generation.replace('da', '')}" in have else f"{generation}-local"
    if not extra and cards and _may_play_on_gpu():
        extra = "cuda13" if _can_cuda_13(cards) else "cuda12"
    return f"jax[{extra}]{version}" if extra else f"jax{version}"


def _plugins(have: dict) -> list[str]:
    """Generations of CUDA for which there is a plugin, or a part of one."""
    return [generation for generation in _GENERATIONS if any(f"jax-{generation}-{part}" in have for part in _PARTS)]


def _can_cuda_13(cards: Sequence[GPU]) -> bool:
    return all(_numbers(card.driver) >= _CUDA_13_DRIVER for card in cards)


def _may_play_on_gpu() -> bool:
    """Whether jax has not been told to stay off the GPU, and there are plugins for this system."""
    asked = os.environ.get("JAX_PLATFORMS", "")
    return sys.platform == "linux" and (not asked or "cuda" in asked or "gpu" in asked)


def _on_colab() -> bool:
    return "google.colab" in sys.modules


def _installed(path: Sequence[str] | None = None) -> dict[str, importlib.metadata.Distribution]:
    """Distributions by name, as pip writes it; of several, the first one, which is imported."""
    found: dict[str, importlib.metadata.Distribution] = {}
    for one in importlib.metadata.distributions(path=list(sys.path if path is None else path)):
        with contextlib.suppress(
            importlib.metadata.PackageNotFoundError, FileNotFoundError
        ):  # What is left of a removal has no metadata.
            name = one.metadata["Name"]
            if name and one.version:
                found.setdefault(_canonical(name), one)
    return found


def _version(have: dict, name: str) -> str | None:
    return have[name].version if name in have else None


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with, as jax compares them."""
    begins = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in begins.group().split(".")) if begins else ()


def _need(text: str) -> _Need:
    read = re.fullmatch(r"\s*([\w.-]+)(?:\[[^]]*\])?\s*(?:>=\s*([\d.]+))?\s*", text)
    if read is None:
        raise ValueError(f"requirements of jaxroute must be a name and the oldest version, got {text!r}")
    return _Need(_canonical(read.group(1)), read.group(2) or "")


def _lacks(have: dict, need: _Need) -> bool:
    version = _version(have, need.name)
    return version is None or bool(need.least and _numbers(version) < _numbers(need.least))


def _bounds(dist: importlib.metadata.Distribution, name: str) -> list[tuple[str, str]]:
    """The bounds that a distribution puts on the versions of another."""
    for text in dist.requires or ():
        if ";" not in text and re.match(rf"{name}\b", text):
            return re.findall(r"(<=|>=)\s*([\d.]+)", text)
    return []


def _install(*needs: str) -> str:
    return "python -m pip install " + " ".join(f'"{need}"' for need in needs)


def _uninstall(generation: str) -> str:
    return "python -m pip uninstall -y " + " ".join(f"jax-{generation}-{part}" for part in _PARTS)


def _canonical(name: str) -> str:
    """The name of a distribution as pip writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()
