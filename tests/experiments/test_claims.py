"""Every experiment is traced, every claim is evaluated, on made-up results that confirm it and on others that do not, every figure drawn.

Nothing is compiled: see `dry`. Claims that general results do not decide have results of their own in `outcomes`.
"""

import functools
import warnings

import numpy as np
import pytest
from dry import cheap_training, dry_results
from every_experiment import EXPERIMENTS
from fillings import even, made_up, ordered, zeros
from outcomes import OUTCOMES, RUNS

from jaxroute import simulate
from jaxroute.data import MESSPLUS_BENCHMARKS, MESSPLUS_TABLE_2
from jaxroute.experiments.verdicts import judge


def outcome(claim, results):
    """What a claim says of results, and its verdict."""
    named = {name: data.assign_coords(case=name) for name, data in results.items()}  # As `summarise` does.
    with cheap_training():
        text, stated = claim.measure(named)
    judged = judge(stated)
    assert isinstance(text, str) and text
    return f"{text}; {judged.text}", judged.verdict


def repeated(results, runs):
    """The results with each run as often as it takes for so many."""
    return {
        name: data.isel(seed=np.resize(np.arange(data.sizes["seed"]), runs)).assign_coords(seed=np.arange(runs))
        for name, data in results.items()
    }


def test_outcomes_by_hand_belong_to_claims():
    for name, outcomes in OUTCOMES.items():
        assert set(outcomes) <= {claim.id for claim in EXPERIMENTS[name].claims}, name


@pytest.fixture(scope="module", params=EXPERIMENTS)
def name(request):
    """Of an experiment; what was traced is used by all tests of it, one after the other."""
    return request.param


def test_every_case_is_traced_and_every_claim_can_hold_and_fail(name):
    experiment = EXPERIMENTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = dry_results(name)
    assert set(results) == {case.name for case in experiment.cases}
    by_hand = functools.cache(functools.partial(made_up, even(results)))
    in_order = functools.cache(functools.partial(ordered, results))
    nothing = zeros(results)
    for claim in experiment.claims:
        outcome(claim, nothing)  # It says something.
        if claim.id in OUTCOMES.get(name, {}):
            confirms, refutes = OUTCOMES[name][claim.id]
            runs = RUNS.get((name, claim.id))
            made = by_hand(confirms)
            text, verdict = outcome(claim, repeated(made, runs) if runs else made)
            assert verdict in ("holds", "vacuous"), f"the claim {claim.id!r} does not hold where it should: {text}"
            text, verdict = outcome(claim, by_hand(refutes))
            assert verdict in ("refuted", "not decided"), f"the claim {claim.id!r} holds where it should not: {text}"
        else:
            found = {outcome(claim, in_order(sign))[1] for sign in (1, -1)}
            assert len(found) == 2, f"the claim {claim.id!r} came out as {found} only: {claim.text}"


@pytest.mark.slow
def test_no_rival_agrees_with_the_number_of_another():
    """Uniform sampling in place of Track-and-Stop, whose numbers Garivier and Kaufmann print."""
    experiment = EXPERIMENTS["stochastic/best-arm"]
    (claim,) = (claim for claim in experiment.claims if claim.id == "table-1")
    results = {}
    for case in experiment.cases:
        options = {"horizon": case.horizon, "record": case.record, "probes": case.probes}
        data = simulate(case.environment, {"uniform": case.policies["uniform"]}, seeds=48, progress=False, **options)
        results[case.name] = data.assign_coords(policy=["Track-and-Stop"])
    text, verdict = outcome(claim, results)
    assert verdict == "refuted", text


def test_no_method_is_within_the_margins_of_another_in_the_paper_s_table():
    """What `service/table-2` allows between a printed number and a measured one, between the printed numbers of two methods."""

    def close(a, b):
        return abs(a.cost_mj - b.cost_mj) <= 0.15 * b.cost_mj and abs(a.satisfaction - b.satisfaction) <= 1.5

    for method, cells in MESSPLUS_TABLE_2.items():
        for other in MESSPLUS_TABLE_2:
            if other != method:
                assert not all(close(MESSPLUS_TABLE_2[other][name], cells[name]) for name in MESSPLUS_BENCHMARKS), other


def test_every_figure_is_without_faults(name):
    pytest.importorskip("matplotlib").use("Agg")
    from drawn import faults_by_figure

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert faults_by_figure(name, ordered(dry_results(name), 1)) == {}
