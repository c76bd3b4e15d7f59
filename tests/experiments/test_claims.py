"""Every experiment is traced, and every claim is evaluated: on made-up results that confirm it, and on others that do not.

Nothing is compiled: see `dry`. A claim that no made-up result confirms, or none refutes, stands below with the reason.
"""

import warnings

import pytest
from dry import dry_results
from fillings import agreeing, filled

from jaxroute.experiments import EXPERIMENTS
from jaxroute.experiments.measure import Number

# Made-up results that are tried for each claim.
_MOST = 40
ONE_SIDED: dict[str, str] = {}


def numbers_of(claim):
    """The numbers of others with which a claim compares, if that is what it does."""
    cells = [cell.cell_contents for cell in claim.measure.__closure__ or ()]
    return next((c for c in cells if isinstance(c, (list, tuple)) and c and isinstance(c[0], Number)), ())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_case_is_traced_and_every_claim_can_hold_and_fail(name):
    experiment = EXPERIMENTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = dry_results(name)
    assert set(results) == {case.name for case in experiment.cases}
    verdicts = {claim.id: set() for claim in experiment.claims}
    open_claims = [c for c in experiment.claims if f"{name}: {c.id}" not in ONE_SIDED]
    for filling in range(_MOST):
        ask = [c for c in (experiment.claims if filling < 2 else open_claims) if len(verdicts[c.id]) < 2]
        data = filled(results, filling) if ask else {}
        for claim in ask:
            made = agreeing(results, numbers_of(claim)) if numbers_of(claim) and filling == 0 else data
            text, holds = claim.measure(made)
            assert isinstance(text, str) and text
            verdicts[claim.id].add(bool(holds))
    for claim in experiment.claims:
        both = len(verdicts[claim.id]) == 2
        listed = f"{name}: {claim.id}" in ONE_SIDED
        assert both != listed, f"the claim {claim.id!r} came out as {verdicts[claim.id]} only: {claim.text}"
