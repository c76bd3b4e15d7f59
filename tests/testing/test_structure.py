"""Every policy and every environment keeps the protocol: seen by tracing alone, in milliseconds each."""

import gc

import conformance_cases as cases
import pytest

from jaxroute.problems import default_policies, problems
from jaxroute.testing import check_structure


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """Looking for leaked tracers collects garbage; what was there before the tests need not be looked at each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_every_policy_has_a_row():
    expected = {f"{problem}/{name}" for problem, module in problems().items() for name in default_policies(module)}
    assert set(cases.POLICIES) == expected
    assert expected == {f"{n}/{made.__name__}" for n, module in problems().items() for made in module.POLICIES}


def test_every_environment_has_a_row():
    expected = {f"{problem}/{made.__name__}" for problem, module in problems().items() for made in module.ENVIRONMENTS}
    assert set(cases.ENVIRONMENTS) == expected


@pytest.mark.parametrize("name", [*cases.POLICIES, *cases.OPTIONS])
def test_policies_have_the_structure_of_the_protocol(name):
    pair = (cases.POLICIES | cases.OPTIONS)[name]
    check_structure(pair.policy, pair.env())


@pytest.mark.parametrize("name", [*cases.ENVIRONMENTS, *cases.VARIANTS])
def test_environments_have_the_structure_of_the_protocol(name):
    pair = (cases.ENVIRONMENTS | cases.VARIANTS)[name]
    check_structure(pair.policy, pair.env())
