"""The service: when the target is met, and bounds against the reference."""

import warnings

import numpy as np
import pytest
from reference import service as ref
from service_cases import table

import jaxroute as jr
from jaxroute.problems import service as sv

RECORD = ["satisfaction", "complied", "first_compliance"]


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


def test_a_target_out_of_reach_is_said():
    with pytest.warns(
        UserWarning, match="alpha is 0.95, but no policy, even if it knew the probabilities, satisfies more than 0.79"
    ):
        sv.benchmark_service(alpha=0.95)
    with pytest.warns(
        UserWarning, match=r"alpha is 0.99, but no mixture of the models satisfies more than 0\.\d+: the virtual queue"
    ):
        table(alpha=0.99)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sv.benchmark_service(alpha=0.79)
        sv.benchmark_service(alpha=0.85, signal=1.0)  # Out of reach of the best model, not of who tells requests apart.


def test_expected_explorations_of_section_4_9():
    for c, printed in ((0.1, (23.64, 133.3, 749.7)), (1.0, (236.4, 1332.6, 7497.1))):
        for horizon, value in zip((1_000, 10_000, 100_000), printed, strict=True):
            got = sv.expected_explorations(c, horizon, explores_first=False)
            assert got == pytest.approx(value, abs=0.0501) and got == pytest.approx(ref.expected_explorations(horizon, c))
            forced = ref.expected_explorations(horizon, c, force_first=True)
            assert sv.expected_explorations(c, horizon) == pytest.approx(forced)


def test_bounds_of_section_7_by_hand():
    """V Delta / beta = 1e-3 * 1450 / .05 = 29, above alpha psi = 4 for psi = 5 and below 40 for psi = 50."""
    assert sv.bound_queue(1e-3, 1450.0, 0.05, 100, 5.0, 0.8) == pytest.approx(29 + 10)
    assert sv.bound_queue(1e-3, 1450.0, 0.05, 100, 50.0, 0.8) == pytest.approx(40 + 10)
    assert sv.bound_mean_queue(1e-3, 1450.0, 0.05, 0.906 - 0.8, 5.0, 0.8) == pytest.approx(29 + 1 / 0.212)
    assert sv.bound_violation(1e-3, 1450.0, 0.05, 10_000, 5.0, 0.8) == pytest.approx(0.0029 + 0.01)
    assert sv.safety_margin(1e-3, 1450.0, 0.05, 10_000) == pytest.approx(0.0029 + 0.01)
