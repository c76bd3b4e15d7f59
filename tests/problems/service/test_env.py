"""The service: what is charged, and when the target is met."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.problems import service as sv

RECORD = ["satisfaction", "complied", "first_compliance"]


def test_decision_energy_is_charged():
    env = sv.typed_service()
    key, t = draws.key(1), jnp.int32(0)
    state = env.init(key)
    free, dear = (env.step(key, state, sv.baselines.serve_with(1, energy), t)[2] for energy in (0.0, 7.0))
    assert float(dear["cost"]) == pytest.approx(float(free["cost"]) + 7.0)
    assert float(dear["decision_cost"]) == 7.0 and float(dear["served_cost"]) == float(free["served_cost"])


def test_violation_is_signed_as_the_pages_say():
    """The target less the satisfaction, below 0 where more than the target is met: no maximum with 0."""
    env = jr.grid(sv.typed_service, alpha=[0.3, 0.9])  # The small model satisfies .64.
    data = jr.simulate(env, sv.Single(0), horizon=400, seeds=16, progress=False, record=["violation", "satisfaction"])
    last = data.isel(time=-1, policy=0)
    np.testing.assert_allclose(last["violation"], last["alpha"] - last["satisfaction"], atol=1e-6)
    assert (last["violation"].sel(alpha=0.3) < 0).all() and (last["violation"].sel(alpha=0.9) > 0).all()


def test_a_target_that_is_never_met_has_no_first_request():
    env = jr.grid(sv.typed_service, alpha=[0.66, 0.9])  # The small model satisfies .64.
    data = jr.simulate(env, sv.Single(0), horizon=300, seeds=64, record_every=100, progress=False, record=RECORD)
    assert data["valid"].all()
    one = data.sel(policy="Single")
    easy, hard = (one.sel(alpha=alpha) for alpha in (0.66, 0.9))
    first, complied = easy["first_compliance"], easy["complied"]
    np.testing.assert_array_equal(np.isnan(first), complied == 0.0)
    assert set(np.unique(complied)) == {0.0, 1.0} and (complied.diff("time") >= 0).all(), "who has met it has met it"
    assert ((first >= 50) & (first <= first["time"])).where(complied == 1.0, True).all()
    assert (hard["complied"] == 0.0).all() and hard["first_compliance"].isnull().all()
    share = float(complied.isel(time=-1).mean())
    median = float(first.isel(time=-1).median())
    rows = jr.metrics.table(data, ["complied", "first_compliance"]).splitlines()[3:5]
    assert rows[0].endswith(f"{median:.4g} in {100 * share:.0f} %") and rows[1].split()[-1] == "-"
