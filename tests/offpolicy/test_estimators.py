"""Estimators from served logs: by hand, against a reference written from the papers, and against values of two other packages."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import offpolicy as reference

from jaxroute.offpolicy import estimators
from jaxroute.offpolicy.estimators import ESTIMATORS, Evidence, effective_size

CASES = json.loads((Path(__file__).parents[1] / "support" / "offpolicy_packages.json").read_text())["cases"]


def evidence(seed, queries=40, models=3, answers=None):
    """Random evidence; with `answers`, queries have none, one or several."""
    rng = np.random.default_rng(seed)
    number = queries if answers is None else answers
    query = np.arange(queries) if answers is None else np.sort(rng.integers(queries, size=number))
    target = rng.dirichlet(np.ones(models), queries)
    place = (query, rng.integers(models, size=number))
    propensity, outcome = rng.uniform(0.05, 1.0, number), rng.uniform(size=number)
    return Evidence(target, *place, propensity, outcome, rng.uniform(size=(queries, models)))


def arguments(seen, predicted=True):
    found = (seen.target, seen.query, seen.model, seen.outcome, seen.propensity)
    return (*found, seen.predicted) if predicted else found


def test_two_queries_by_hand():
    # Query 0 got model 0 with probability .5 and scored 1, query 1 got model 1 with probability .25 and scored 0. The rule always uses model 0 on
    # query 0, and model 1 with probability .5 on query 1: weights 2 and 2.
    target, predicted = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.6, 0.2], [0.4, 0.8]])
    seen = Evidence(target, np.array([0, 1]), np.array([0, 1]), np.array([0.5, 0.25]), np.array([1.0, 0.0]), predicted)
    assert seen.weights.tolist() == [2.0, 2.0]
    assert estimators.direct_method(seen) == pytest.approx([0.6, 0.6])
    assert estimators.inverse_propensity(seen) == pytest.approx([2.0, 0.0])
    assert estimators.self_normalised(seen).mean() == pytest.approx(0.5)
    assert estimators.doubly_robust(seen) == pytest.approx([0.6 + 2 * 0.4, 0.6 - 2 * 0.8])
    assert estimators.clipped(seen, 1.5) == pytest.approx([1.5, 0.0])
    assert estimators.switch(seen, 1.0) == pytest.approx([0.6, 0.6])
    assert estimators.shrunk(seen, 4.0) == pytest.approx([0.6 + 0.4, 0.6 - 0.8])  # 4 * 2 / (4 + 4) = 1.
    assert effective_size(seen.weights) == 2.0


@pytest.mark.parametrize("answers", [None, 70], ids=["one answer", "none to several answers"])
@pytest.mark.parametrize("seed", range(3))
def test_estimators_equal_the_reference(seed, answers):
    seen = evidence(seed, answers=answers)
    expected = {
        "direct method": reference.direct_method(seen.target, seen.predicted),
        "inverse propensity": reference.inverse_propensity(*arguments(seen, False)),
        "clipped": reference.clipped(*arguments(seen, False)),
        "doubly robust": reference.doubly_robust(*arguments(seen)),
    }
    for name, contributions in expected.items():
        np.testing.assert_allclose(ESTIMATORS[name](seen), contributions, rtol=1e-12, atol=1e-12)
    value = reference.self_normalised(*arguments(seen, False))
    assert ESTIMATORS["self-normalised"](seen).mean() == pytest.approx(value, rel=1e-12)
    limits = estimators._thresholds(seen.weights)
    for name, method, candidates in (("switch", "switch_dr", limits), ("shrunk", "dr_shrinkage", limits**2)):
        best = reference.choose_by_mse(method, candidates, *arguments(seen), delta=0.05)
        contributions = reference.contributions(method, best, *arguments(seen))
        np.testing.assert_allclose(ESTIMATORS[name](seen), contributions, rtol=1e-12, atol=1e-12)
    weights = reference.weights(seen.target, seen.query, seen.model, seen.propensity)
    assert effective_size(seen.weights) == pytest.approx(reference.effective_sample_size(weights), rel=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_values_equal_those_of_vw_estimators_and_open_bandit_pipeline(case):
    given, obp = case["input"], case["obp"]
    arrays = {name: np.array(given[name]) for name in ("target", "query", "model", "propensity", "outcome", "predicted")}
    seen = Evidence(**arrays)
    pairs = [("inverse_propensity", estimators.inverse_propensity), ("self_normalised", estimators.self_normalised)]
    for name, estimator in pairs:
        assert estimator(seen).mean() == pytest.approx(case["vw_estimators"][name], rel=1e-6)
    others = [("direct_method", estimators.direct_method), ("doubly_robust", estimators.doubly_robust)]
    for name, estimator in [*pairs, *others, ("clipped_sqrt", estimators.clipped)]:
        assert estimator(seen).mean() == pytest.approx(obp[name], rel=1e-6)
    for name, estimator, settings in (
        ("clipped", estimators.clipped, "thresholds"),
        ("switch_dr", estimators.switch, "thresholds"),
        ("dr_shrinkage", estimators.shrunk, "lams"),
    ):
        for setting, value in zip(map(float, given[settings]), obp[name]["value"], strict=True):
            if np.isfinite(setting) and setting > 0:
                assert estimator(seen, setting).mean() == pytest.approx(value, rel=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_invariances(seed, models):
    seen = evidence(seed, 12, models)
    order = np.random.default_rng(seed).permutation(models)
    swapped = replace(
        seen, target=seen.target[:, order], predicted=seen.predicted[:, order], model=np.argsort(order)[seen.model]
    )
    for name, estimator in ESTIMATORS.items():
        np.testing.assert_allclose(
            estimator(swapped), estimator(seen), atol=1e-12, err_msg=name
        )  # Names of models do not matter.
    # Predictions that are exact, or weights that are all 1, leave only one possible value.
    exact = replace(seen, predicted=np.tile(seen.outcome[:, None], models))
    for name in ("direct method", "doubly robust", "switch", "shrunk"):
        np.testing.assert_allclose(ESTIMATORS[name](exact), seen.outcome, atol=1e-12, err_msg=name)
    own = np.zeros_like(seen.target)
    own[seen.query, seen.model] = 1.0
    same = replace(seen, target=own, propensity=np.ones(12))
    for name in ("inverse propensity", "clipped", "self-normalised", "doubly robust"):
        assert ESTIMATORS[name](same).mean() == pytest.approx(seen.outcome.mean())


def test_inverse_propensity_and_doubly_robust_are_unbiased():
    """The expectation over all choices of the logging rule, by enumeration, is the value."""
    rng = np.random.default_rng(5)
    logging, target, outcome, predicted = (
        rng.dirichlet(np.ones(3)),
        rng.dirichlet(np.ones(3)),
        rng.uniform(size=3),
        rng.uniform(size=3),
    )
    for estimator in (estimators.inverse_propensity, estimators.doubly_robust):
        expected = 0.0
        for model in range(3):
            place = (np.array([0]), np.array([model]), logging[[model]], outcome[[model]])
            expected += logging[model] * estimator(Evidence(target[None], *place, predicted[None])).mean()
        assert expected == pytest.approx(target @ outcome, rel=1e-12)


def test_what_an_estimator_lacks_is_named():
    seen = replace(evidence(0), predicted=None)
    with pytest.raises(ValueError, match=r"predicted must be \[Q, N\] predicted outcomes"):
        estimators.doubly_robust(seen)
    with pytest.raises(ValueError, match="limit must be above 0, got -1"):
        estimators.clipped(seen, -1.0)
    assert np.isnan(estimators.self_normalised(replace(seen, target=np.zeros_like(seen.target)))).all()
    assert effective_size(np.zeros(3)) == 0.0
