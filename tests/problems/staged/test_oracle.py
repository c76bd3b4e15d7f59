"""The oracle of the staged problem."""

import numpy as np
import pytest
from helpers import assert_mean_close
from staged_cases import arena, end, four_models

from jaxroute import instances, simulate
from jaxroute.problems import staged


@pytest.mark.parametrize(
    ("slots", "stage", "ratio"), [pytest.param(3, 500, 0.5011, marks=pytest.mark.slow), (6, 250, 0.8395)]
)
def test_oracle_has_no_regret(slots, stage, ratio):
    data = arena(slots, stage, "Oracle")
    assert np.abs(end(data, "conditional_regret")).max() < 1e-2
    assert np.abs(end(data, "conditional_regret").mean()) < 2e-3
    assert_mean_close(end(data, "regret"), 0.0, 4, "pseudo-regret")
    assert_mean_close(end(data, "realised_regret"), 0.0, 4, "realised regret")
    # In expectation the cost ratio is exact, so it has no error bar; the observed one has.
    np.testing.assert_allclose(end(data, "expected_cost") / 2.0, ratio, atol=1e-4)
    assert_mean_close(end(data, "cost_ratio"), end(data, "expected_cost").mean() / 2.0, what="cost ratio")
    assert end(data, "infeasible_share").max() == 0.0
    assert end(data, "capacity_excess").max() < 1e-2


@pytest.mark.slow
def test_relabelling_models_relabels_the_run():
    """With other labels for the models the oracle deploys the same models, and uses them as often."""
    order = np.array([2, 0, 3, 1])
    market = four_models(max_deployed=2, capacity=0.9)
    means = {name: getattr(market.outcomes, name)[order] for name in ("reward_mean", "cost_mean")}
    moved = market.replace(outcomes=market.outcomes.replace(**means))
    data = simulate(
        instances([market, moved]), staged.Oracle.of, horizon=400, seeds=40, record=["pulls", "deployed"], progress=False
    )
    first, second = (data.isel(policy=0, instance=i, time=-1) for i in (0, 1))
    np.testing.assert_array_equal(first["deployed"].values[:, order], second["deployed"].values)
    assert (first["deployed"].values.sum(-1) == 2).all()
    difference = first["pulls"].values[:, order] - second["pulls"].values
    used = second["deployed"].values[0] > 0.5
    assert (difference[:, ~used] == 0).all()
    error = difference[:, used].std(0, ddof=1) / np.sqrt(40)
    assert (np.abs(difference[:, used].mean(0)) <= 5 * error).all()
