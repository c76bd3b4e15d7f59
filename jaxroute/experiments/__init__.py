"""Experiments that reproduce figures, tables and theorems of the papers: simulations to run, and claims that are tested on their results."""

import functools
import importlib
from collections.abc import Iterator, Mapping

from jaxroute.core import plugins
from jaxroute.core.exports import public_names
from jaxroute.experiments.base import Case, Claim, Experiment, finish, run

_PROBLEMS = ("stochastic", "contextual", "staged", "combinatorial", "service", "queueing", "cascade")


@functools.cache
def _of(problem: str) -> dict[str, Experiment]:
    """Imports the experiments of a problem, such as "cascade", and returns them by name."""
    return {e.name: e for e in importlib.import_module(f"{__name__}.{problem}").EXPERIMENTS}


class _Experiments(Mapping[str, Experiment]):
    """Maps names of experiments to experiments; those of installed plugins come last. A problem's module is imported when its first experiment is needed."""

    def __getitem__(self, name: str) -> Experiment:
        problem = name.partition("/")[0]
        if problem in _PROBLEMS and name in _of(problem):
            return _of(problem)[name]
        if (point := name.replace("/", ".")) not in plugins.plugins("experiments"):
            raise KeyError(name)
        if not isinstance(found := plugins.load("experiments", point), Experiment):
            raise ValueError(f"entry point {point!r} in jaxroute.experiments must be an Experiment, got {found!r}")
        return found

    def __iter__(self) -> Iterator[str]:
        own = [name for problem in _PROBLEMS for name in _of(problem)]
        others = (name.replace(".", "/", 1) for name in plugins.plugins("experiments"))
        return iter(dict.fromkeys([*own, *others]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


EXPERIMENTS: Mapping[str, Experiment] = _Experiments()

__all__ = ["EXPERIMENTS", "Case", "Claim", "Experiment", "finish", "run"]
__dir__ = public_names(__name__)
