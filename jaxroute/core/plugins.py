"""Policies, problems and experiments of other installed packages, which are found by their entry points.

A package declares them in its `pyproject.toml`:

    [project.entry-points."jaxroute.policies"]
    "staged.MyPolicy" = "my_package:MyPolicy"       # problem.Name = a policy's class, or a function `environment -> policy`

    [project.entry-points."jaxroute.problems"]
    my_problem = "my_package.my_problem"            # a module with tuples ENVIRONMENTS and POLICIES

    [project.entry-points."jaxroute.experiments"]
    "my_problem.figure-1" = "my_package:FIGURE_1"   # problem.name = an Experiment, called my_problem/figure-1
"""

import functools
import warnings
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal


@functools.cache
def plugins(group: Literal["policies", "problems", "experiments"]) -> dict[str, EntryPoint]:
    """Returns the entry points of this group in all installed packages, by name. Warns if two packages use one name, and takes the first."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"jaxroute.{group}"):
        if point.name in found and point.value != found[point.name].value:
            warnings.warn(
                f"two packages have an entry point {point.name!r} in jaxroute.{group}: {found[point.name].value} is used, not {point.value}",
                stacklevel=2,
            )
        found.setdefault(point.name, point)
    return found


def load(group: Literal["policies", "problems", "experiments"], name: str) -> Any:
    """Imports the policy, problem or experiment (`group`) of this name from the package that declares it; `ValueError` if that fails."""
    point = plugins(group)[name]
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist else "a package"
        place = f"entry point {name!r} of {package} in jaxroute.{group}"
        raise ValueError(f"{place}: {point.value} cannot be imported: {error}") from error
