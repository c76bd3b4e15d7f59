"""Studies: experiments that no theorem, lemma, figure or table of a paper contains; a file for each problem.

jaxroute run scripts/studies/cascade.py:bonus --smoke
"""

import importlib

from jaxroute.experiments import Experiment

PROBLEMS = ("stochastic", "contextual", "staged", "combinatorial", "service", "queueing", "cascade")


def studies() -> dict[str, Experiment]:
    """Returns all studies by name, such as "cascade/bonus"."""
    files = (importlib.import_module(f"studies.{problem}") for problem in PROBLEMS)
    return {one.name: one for file in files for one in file.EXPERIMENTS}


def argument(name: str) -> str:
    """Converts a study's name, such as "cascade/bonus", to the argument of `jaxroute run`, such as "scripts/studies/cascade.py:bonus"."""
    problem, _, own = name.partition("/")
    return f"scripts/studies/{problem}.py:{own}"
