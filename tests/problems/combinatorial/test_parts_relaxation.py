"""Solvers of the relaxed problem inside a policy."""

import jax.numpy as jnp
import numpy as np
import pytest
from combinatorial_cases import SUBJECTS, end, play
from selection_cases import COST, MU

from jaxroute.problems import combinatorial as cb
from jaxroute.problems.combinatorial.parts import relaxation
from jaxroute.problems.combinatorial.parts.rewards import REWARDS
from jaxroute.problems.combinatorial.types import CombinatorialSpec, Observation


@pytest.mark.parametrize(
    ("task", "solver"),
    [
        ("suc", cb.Smoothed()),
        pytest.param("aic", cb.ProjectedGradient(), marks=pytest.mark.slow),
        *(
            pytest.param("awc", solver, marks=pytest.mark.slow)
            for solver in (cb.Smoothed(), cb.ProjectedGradient(), cb.BestOf(), cb.Linear())
        ),
    ],
)
def test_every_solver_plays_its_tasks(task, solver):
    exact = play(cb.sciq_cloud(reward=task), cb.C2MABV(), horizon=400, seeds=16)
    other = play(cb.sciq_cloud(reward=task), cb.C2MABV(solver=solver), horizon=400, seeds=16)
    assert other["valid"].all()
    assert end(other, "reward").mean() == pytest.approx(end(exact, "reward").mean(), rel=0.15)
    assert abs(end(other, "cost").mean() - end(exact, "cost").mean()) < 0.1


def test_per_group_budgets_need_no_common_solver():
    env = cb.sciq_cloud(reward="suc", budget=[0.3, 0.15, 0.6], **SUBJECTS)
    data = play(env, cb.C2MABV(solver=cb.Smoothed()), horizon=200, seeds=8)
    assert data["valid"].all()
    common = cb.sciq_cloud(reward="suc", budget=0.9, **SUBJECTS)
    with pytest.raises(ValueError, match="each must have its own budget"):
        play(common, cb.C2MABV(solver=cb.Smoothed()), horizon=5, seeds=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "log", "smoothed", "sum", "all in"])
def test_shadow_prices_against_differences(name, double_precision):
    """The multiplier is the derivative of the solver's objective in the budget."""
    w, c = MU.astype(float), COST.astype(float)
    task = {"sum": "suc", "smoothed": "suc", "all in": "aic"}.get(name, "awc")
    reward, budget = REWARDS[task], 0.3 if name == "all in" else 0.45
    spec = CombinatorialSpec(num_models=9, reward=reward, min_size=4, max_size=4)
    solver = {"exact": relaxation.Vertices(), "smoothed": relaxation.Smoothed(1e-4)}.get(name, relaxation.Linear())

    def solve(budget):
        obs = Observation(c, jnp.ones(9, bool), jnp.asarray(budget), jnp.asarray(4.0))
        return solver.solve(spec, jnp.asarray(w), jnp.asarray(c), obs, obs.available)

    def objective(z):
        return -np.log1p(-reward.relaxed(z, w, np)) if name == "exact" else reward.weight(w, np) @ np.asarray(z)

    ends = [objective(solve(budget + d).z) for d in (-1e-4, 1e-4)]
    assert float(solve(budget).multiplier) == pytest.approx((ends[1] - ends[0]) / 2e-4, rel=1e-3)
    if name == "all in":
        assert float(solve(budget).multiplier) == pytest.approx(20.870748, rel=1e-5)
    if name == "sum":
        assert float(solve(0.5).multiplier) == pytest.approx(0.4426667, rel=1e-5)
