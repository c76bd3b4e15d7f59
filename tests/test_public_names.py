"""Packages show their public names, all of them and no others."""

import importlib
import sys

import pytest

import jaxroute
from jaxroute.problems import problems

PACKAGES = ("comparison", "data", "experiments", "metrics", "plot", "solvers", "testing", "tune")


@pytest.mark.fast
@pytest.mark.parametrize("name", PACKAGES)
def test_packages_show_their_public_names(name):
    package = importlib.import_module(f"jaxroute.{name}")
    assert dir(package) == sorted(package.__all__)
    assert all(hasattr(package, public) for public in package.__all__)


@pytest.mark.fast
@pytest.mark.parametrize("name", [name for name, module in problems().items() if module.__name__.startswith("jaxroute.")])
def test_problems_show_their_constructors_and_no_modules_of_their_own(name):
    package = problems()[name]
    names = set(dir(package))
    assert {made.__name__ for made in (*package.POLICIES, *package.ENVIRONMENTS)} <= names
    assert not {public for public in names if public[0] == "_" or f"{package.__name__}.{public}" in sys.modules}


@pytest.mark.fast
def test_the_package_shows_its_public_names():
    assert dir(jaxroute) == sorted([*jaxroute.__all__, "__version__"])
