"""Every figure and table of the papers, as data."""

import importlib
from collections.abc import Iterator, Mapping

from jaxroute.experiments.base import Case, Claim, Experiment, finish, run

_PROBLEMS = ("stochastic", "contextual", "staged", "combinatorial", "service", "queueing", "cascade")


class _Catalogue(Mapping[str, Experiment]):
    """The experiments by name. Those of a problem are imported when one of them is asked for: that makes environments, which takes time."""

    def __init__(self):
        self._known: dict[str, dict[str, Experiment]] = {}

    def _of(self, problem: str) -> dict[str, Experiment]:
        if problem not in self._known:
            experiments = importlib.import_module(f"{__name__}.{problem}").EXPERIMENTS
            self._known[problem] = {e.name: e for e in experiments}
        return self._known[problem]

    def __getitem__(self, name: str) -> Experiment:
        problem = name.partition("/")[0]
        if problem not in _PROBLEMS:
            raise KeyError(name)
        return self._of(problem)[name]

    def __iter__(self) -> Iterator[str]:
        for problem in _PROBLEMS:
            yield from self._of(problem)

    def __len__(self) -> int:
        return sum(len(self._of(problem)) for problem in _PROBLEMS)


EXPERIMENTS: Mapping[str, Experiment] = _Catalogue()

__all__ = ["EXPERIMENTS", "Case", "Claim", "Experiment", "finish", "run"]
