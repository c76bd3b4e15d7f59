"""The paper's numbers and bounds against the reference's.

Section numbers are those of `spec/acqb.md`.
"""

import pytest
from reference import queueing as ref

from jaxroute.problems import queueing as rq
from jaxroute.problems.queueing.theory import explore_probability


def test_constants():
    assert [rq.num_samples(K) for K in range(1, 6)] == [1, 9, 14, 17, 19]
    assert all(rq.num_samples(K) == ref.num_samples(K) for K in range(1, 60))
    for c1 in (0.0, 0.5, 1.0, 3.0):
        assert [explore_probability(t, c1) for t in range(40)] == [ref.eta(t, c1) for t in range(40)]
    for args in ((1000, 0.7, 1.0), (5000, 0.7, 1.0), (1000, 0.7, 2.0), (5000, 0.9, 10.0)):
        assert rq.expected_explorations(*args) == pytest.approx(ref.expected_explorations(*args), rel=1e-12)
    for c1 in (0.5, 1.0, 1.3, 3.0, 10.0):
        assert float(rq.PhaseThenCoin.for_data(1000, c1).phase) == ref.real_data_tau(c1)
    given = rq.PhaseThenCoin.for_horizon(1000)
    assert (float(given.phase), float(given.coin)) == (100, pytest.approx(1000**-0.5))


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("kappa, ridge, c1", [(5.09, 1.0, 1.0), (0.3, 0.5, 2.0), (0.0, 3.0, 0.5)])
def test_bounds(K, kappa, ridge, c1):
    shared = {"c0": 1.3, "c1": c1, "c2": 0.7}
    ours = rq.Theory(dim=5, num_offered=K, arrival_rate=0.7, slack=0.03, curvature=kappa, ridge=ridge, spread=0.25, **shared)
    p = ref.Theory(d=5, K=K, lam=0.7, eps=0.03, kappa=kappa, lam0=ridge, sigma2=0.25, **shared)

    def close(a, b):
        assert a == pytest.approx(b, rel=1e-9)

    for count in (0, 1, 10, 1000, 10**6):
        close(ours.radius(count), ref.alpha_shared(count, 5, K, kappa, ridge))
        for t in (2, 100, 10**6):
            close(ours.sample_radius(count, t), ref.beta_radius(count, t, p))
        close(ours.least_eigenvalue(count)[0], ref.min_eig_bound(count, p)[0])
        close(ours.least_eigenvalue(count)[1], max(0.0, ref.min_eig_bound(count, p)[1]))
        if count:
            close(ours.inverse_eigenvalue(count), ref.nu(count, p))
            close(ours.elliptic_bound(count), ref.elliptic_bound(count, 5, K, ridge))
    pole = (2 * c1 / 0.03) ** 2
    for t in (10, 10**4, 10**8):
        close(ours.reach(t), ref.gap_scale(t, p))
        close(ours.routing_regret(t), ref.routing_regret_bound(t, p))
        for u in (2 * pole, 100 * pole):
            close(ours.warm_up(t, u), ref.explorations_needed(u, t, p))
        assert ours.bad_rounds(t) == pytest.approx(
            ref.bad_rounds(t, p), rel=1e-9, abs=1
        )  # The reference's is a whole number.
        assert ours.burn_in(t) == pytest.approx(ref.omega(t, p), rel=1e-9, abs=4 / 0.03)
        assert ours.holds(t) == ref.condition_20(t, p)
        for i in (1, t // 3, t - 1):
            close(ours.gap(i, t), ref.gap_bound(i, t, p))
            for omega in (0.0, t / 4, None):
                close(ours.survival(i, t, omega), ref.survival_bound(i, t, ref.omega(t, p) if omega is None else omega, p))
    close(ours.queue_regret(300, 20.0), ref.queue_regret_bound(300, p, 20.0))
    close(ours.queue_regret(50), ref.queue_regret_bound(50, p))
    far = next(10.0**e for e in range(4, 200) if ref.condition_20(10.0**e, p))
    assert ours.holds(far) and not ours.holds(far / 1e3)
