"""Bounds against the reference."""

import pytest
from reference import service as ref

from jaxroute.problems import service as sv


def test_expected_explorations_of_section_4_9():
    for c, printed in ((0.1, (23.64, 133.3, 749.7)), (1.0, (236.4, 1332.6, 7497.1))):
        for horizon, value in zip((1_000, 10_000, 100_000), printed, strict=True):
            got = sv.expected_explorations(c, horizon, explores_first=False)
            assert got == pytest.approx(value, abs=0.0501) and got == pytest.approx(ref.expected_explorations(horizon, c))
            forced = ref.expected_explorations(horizon, c, force_first=True)
            assert sv.expected_explorations(c, horizon) == pytest.approx(forced)


def test_safety_margin_is_that_of_the_reference():
    for V, cost_range, slack, horizon in ((1e-3, 1450.0, 0.05, 1000), (1e-2, 900.0, 0.1, 5000)):
        expected = ref.safety_margin(0.7, V, cost_range, slack, horizon) - 0.7
        assert sv.safety_margin(V, cost_range, slack, horizon) == pytest.approx(expected)
        gamma = ref.queue_floor(0.7, 30.0, V, cost_range, slack)
        queue, mean = ref.theorem1(horizon, gamma, 0.9, 0.7)
        assert sv.bound_queue(V, cost_range, slack, horizon, 30.0, 0.7) == pytest.approx(queue)
        assert sv.bound_mean_queue(V, cost_range, slack, 0.9 - 0.7, 30.0, 0.7) == pytest.approx(mean)
        assert sv.bound_violation(V, cost_range, slack, horizon, 30.0, 0.7) == pytest.approx(ref.corollary1(horizon, gamma))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sv.safety_margin(0.0, 1.0, 0.1, 10), "V must be above 0"),
        (lambda: sv.safety_margin(1.0, 1.0, 0.0, 10), "slack must be above 0"),
        (lambda: sv.bound_mean_queue(1.0, 1.0, 0.1, 0.0), "excess must be above 0"),
        (lambda: sv.bound_queue(1.0, 1.0, 0.1, 0), "horizon must be at least 1"),
        (lambda: sv.expected_explorations(-1.0, 10), "c must be at least 0"),
        (lambda: sv.bound_queue(1.0, 1.0, 0.0, 10), "slack must be above 0"),
    ],
)  # fmt: skip
def test_bad_input_of_theory(make, message):
    with pytest.raises(ValueError, match=message):
        make()
