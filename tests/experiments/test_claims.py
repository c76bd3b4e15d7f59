"""Every experiment is traced, and every claim is evaluated: on made-up results that confirm it, and on others that do not.

Nothing is compiled: see `dry`. Claims that ask for results of a special form, which the fillings do not make, stand in `ONE_SIDED`: they are
evaluated, but only one outcome is seen here.
"""

import warnings

import pytest
from dry import dry_results
from fillings import agreeing, filled, zeros

from jaxroute.experiments import EXPERIMENTS
from jaxroute.experiments.claims import Number

# Made-up results that are tried for each claim.
_MOST = 80
# Experiment and claims of which only one outcome is reached, with what they would need.
ONE_SIDED = {
    "staged/figure-5": {"alternates": "sets of models that change from stage to stage"},
    "staged/lower-bound": {"above": "regret above a bound in every case"},
    "combinatorial/figure-4a": {"small": "a violation of zero and a small reward of one policy"},
    "combinatorial/figure-4b": {"small": "a violation of zero and a small reward of one policy"},
    "combinatorial/figure-4c": {"small": "a violation of zero and a small reward of one policy"},
    "combinatorial/figure-14": {"small": "equal values at several batch sizes, other ones at the largest"},
    "queueing/figure-2": {"linear": "slopes of 1 of three policies and no other shape"},
    "queueing/figure-4": {"linear": "slopes of 1 of three policies and no other shape"},
    "queueing/figure-5": {"linear": "slopes of 1 of three policies and no other shape"},
    "service/figure-2": {"first": "times at which a share first reaches its target"},
    "service/figure-3": {"counts": "explorations of a given number at each setting"},
    "service/figure-C1": {"counts": "explorations of a given number at each setting"},
    "service/table-3": {"small": "differences below a given number"},
    "cascade/S0": {"linear": "a slope of 1 in one case only", "optimism": "several orders at once"},
    "cascade/S1": {"mixture": "several orders at once"},
    "cascade/S3": {
        "flat": "a ratio that stays from case to case",
        "table": "regret near given numbers in several cases at once",
    },
    "cascade/S4": {"u-shape": "a minimum inside the axis of bonuses", "cliff": "a step on the axis of bonuses"},
    "cascade/S5": {"m": "growth between two powers from case to case", "K": "growth between two powers from case to case"},
    "cascade/S7": {"optimism": "several orders at once"},
    "cascade/S8": {"crossing": "curves that cross between two sizes", "slope": "slopes that depend on a size"},
    "cascade/S9": {"laws": "several orders at once", "misfit": "several orders at once"},
    "cascade/S10": {"order": "several orders at once"},
    "cascade/S11": {"same": "two policies with equal regret", "coverage": "a share that is nearly 1"},
}
# Experiments whose claims were not searched for both outcomes: each claim is evaluated twice, and all policies are traced.
NOT_SEARCHED = (
    *(f"combinatorial/{name}" for name in ("figure-4a", "figure-4b", "figure-4c")),
    *(f"service/{name}" for name in ("table-2", "theory")),
    *(f"queueing/{name}" for name in ("figure-6", "figure-7", "kappa-sensitivity", "theory", "table")),
    *(f"cascade/{name}" for name in ("S8", "S9", "S10", "S11", "S12", "S13", "S14", "S15", "replay")),
)


def numbers_of(claim):
    """The numbers of others with which a claim compares, if that is what it does."""
    cells = [cell.cell_contents for cell in getattr(claim.measure, "__closure__", None) or ()]
    return next((c for c in cells if isinstance(c, (list, tuple)) and c and isinstance(c[0], Number)), ())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_case_is_traced_and_every_claim_can_hold_and_fail(name):
    experiment = EXPERIMENTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = dry_results(name)
    assert set(results) == {case.name for case in experiment.cases}
    for claim in experiment.claims:
        text, _ = claim.measure(zeros(results))
        assert text, f"of curves of zeros the claim {claim.id!r} says nothing"
    verdicts = {claim.id: set() for claim in experiment.claims}
    one_sided = set(verdicts) if name in NOT_SEARCHED else set(ONE_SIDED.get(name, {}))
    assert one_sided <= set(verdicts)
    for filling in range(_MOST):
        ask = [c for c in experiment.claims if len(verdicts[c.id]) < 2 and (filling < 2 or c.id not in one_sided)]
        data = filled(results, filling) if ask else {}
        for claim in ask:
            made = agreeing(results, numbers_of(claim)) if numbers_of(claim) and filling == 0 else data
            text, holds = claim.measure(made)
            assert isinstance(text, str) and text
            verdicts[claim.id].add(bool(holds))
    for claim in experiment.claims:
        if claim.id not in one_sided:
            assert len(verdicts[claim.id]) == 2, (
                f"the claim {claim.id!r} came out as {verdicts[claim.id]} only: {claim.text}"
            )
