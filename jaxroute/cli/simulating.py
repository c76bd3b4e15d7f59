"""Functions that several commands share: options, experiments by name or from a user's file, and the folder of compiled programs."""

import argparse
import contextlib
import importlib.util
import json
import runpy
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxroute.cli.completion import completed, experiments
from jaxroute.cli.parsing import folder, pairs, root_seed


def add_experiment(parser: argparse.ArgumentParser) -> None:
    text = "name from `jaxroute list`, or your FILE.py that defines `experiment`, or FILE.py:NAME"
    completed(parser.add_argument("experiment", metavar="EXPERIMENT", help=text), experiments)


def add_root_seed(group: Any) -> None:
    text = "seed from which all random draws derive (default: %(default)s)"
    group.add_argument("--root-seed", type=root_seed, default=0, metavar="SEED", help=text)


def add_out(group: Any, what: str, default: str) -> None:
    text = f"folder for {what} (default: {default} for staged/figure-2)"
    group.add_argument("-o", "--out", type=folder, metavar="FOLDER", help=text)


def folder_of(options: argparse.Namespace, experiment: Any, before: str = "", after: str = "") -> Path:
    """Returns the option --out, or else `results/{before}{name}{after}` for an experiment, such as results/tune-NAME or results/NAME-smoke."""
    name = Path(experiment.name).stem if ".py" in options.experiment else experiment.name
    return options.out or Path("results") / f"{before}{name.replace('/', '-')}{after}"


def can_draw(requested: bool) -> bool:
    """Whether figures can be drawn; prints a message if they are requested but matplotlib is missing."""
    if requested and importlib.util.find_spec("matplotlib") is None:
        print('jaxroute: no figures are drawn: they need matplotlib, pip install "jaxroute[plot]"', file=sys.stderr)
        return False
    return requested


def changes_of(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Converts texts of the option --set, such as `["StageRoute.gamma=0.5"]`, to a dict such as `{"StageRoute": {"gamma": 0.5}}`."""
    form, changes = "POLICY.NAME=VALUE", dict[str, dict[str, Any]]()
    for target, value in pairs("--set", form, texts, value_of).items():
        owner, _, name = target.rpartition(".")
        if not (owner and name):
            raise ValueError(f"--set must have the form {form}, got {next(t for t in texts if t.startswith(target))!r}")
        changes.setdefault(owner, {})[name] = value
    return changes


def value_of(text: str) -> Any:
    """Converts a text to a value if it is JSON or a number; otherwise returns the text unchanged."""
    for read in (json.loads, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return text


def experiment_of(name: str) -> Any:
    """Returns an experiment by name, or from a user's Python file; FILE.py:NAME chooses one of several in the file.

    Raises `ValueError` if there is none of this name, the file cannot be executed, or its experiment cannot be simulated.
    """
    from jaxroute.catalogue import catalogue
    from jaxroute.core import checks
    from jaxroute.experiments import EXPERIMENTS, Experiment

    stem, is_file, chosen = f"{name}:".partition(".py:")
    if not is_file:
        try:
            return EXPERIMENTS[checks.one_of("experiment", name, catalogue()["experiments"])]
        except ValueError as error:
            hint = (
                "a file of your own must end in .py"
                if Path(name).exists()
                else "`jaxroute list` shows all; studies are in the sources: scripts/studies/PROBLEM.py:NAME"
            )
            raise ValueError(f"{error} ({hint})") from None
    file, chosen = f"{stem}.py", chosen.removesuffix(":")
    if not Path(file).is_file():
        raise ValueError(f"experiment must be a name or an existing file, got {name!r}")
    defined = _executed(file)
    found = defined.get("EXPERIMENTS", [defined.get("experiment")])
    if wrong := [one for one in found if not isinstance(one, Experiment)]:
        form = "`experiment = jaxroute.experiments.Experiment(...)`, or a list `EXPERIMENTS` of them"
        raise ValueError(f"{file} must define {form}, got {checks.show(wrong[0])}")
    by_name = {one.name.rpartition("/")[2]: one for one in found}
    if not chosen and len(by_name) > 1:
        raise ValueError(f"{file} has several experiments: choose one by {file}:NAME, NAME being {', '.join(by_name)}")
    one = by_name[checks.one_of(f"experiment of {file}", chosen, by_name)] if chosen else found[0]
    try:
        _check(one)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    return one


def _executed(file: str) -> dict[str, Any]:
    """Executes a user's Python file and returns its variables by name. An error names the line in the file."""
    sys.path.insert(0, str(Path(file).resolve().parent))
    try:
        return runpy.run_path(file)
    except SyntaxError as error:
        raise ValueError(f"{error.filename or file}, line {error.lineno or 1}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        place = f"{file}, line {lines[-1]}" if lines else file
        raise ValueError(f"{place}: {type(error).__name__}: {error}") from error


def _check(experiment: Any) -> None:
    """Raises `ValueError` if an experiment cannot be simulated, or names of its cases or figures are not distinct file names without folders."""
    from jaxroute.core import checks
    from jaxroute.experiments import Case

    cases = experiment.cases
    if not isinstance(cases, (tuple, list)) or not cases or not all(isinstance(case, Case) for case in cases):
        raise ValueError(f"cases must be a tuple of at least one Case, got {checks.show(cases)}")
    for case in cases:
        where, env, policies = f"case {case.name!r}: ", case.environment, case.policies
        if not callable(policies) and not isinstance(policies, Mapping):
            raise ValueError(f"{where}policies must be a dict of name to policy, or a function, got {checks.show(policies)}")
        if not (callable(env) or hasattr(env, "init") or hasattr(env, "axes")):
            raise ValueError(f"{where}environment must be an environment, a grid or a function, got {checks.show(env)}")
        checks.count(f"{where}horizon", case.horizon)
    for what, names in (("cases", [case.name for case in cases]), ("figures", list(experiment.figures))):
        if any(one in ("", ".", "..") or Path(one).name != one for one in names) or len(set(names)) < len(names):
            shown = ", ".join(map(repr, names))
            raise ValueError(f"{what} must have different names of files without folders, got {shown}")


def store_programs() -> str | None:
    """Lets JAX store compiled programs on disk. Returns the folder: the user's JAX cache, if set, or a default; None if disabled or not writable."""
    import jax

    if not jax.config.jax_enable_compilation_cache:
        return None
    if jax.config.jax_compilation_cache_dir is None:
        from jaxroute import kernels

        folder = kernels.cache_folder().with_name("compiled")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            return None
        jax.config.update("jax_compilation_cache_dir", str(folder))
        # All programs, because a command has dozens that take 20 ms each.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return jax.config.jax_compilation_cache_dir
