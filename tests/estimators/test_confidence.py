"""The confidence radius of multinomial-logit estimates."""

import numpy as np
from reference import queueing as ref

from jaxroute.estimators.confidence import mnl_radius


def test_radius(double_precision):
    counts = np.array([0, 1, 2, 10, 100, 1000])
    for d, K, kappa, lam0 in ((5, 1, 1.0, 1.0), (5, 2, 0.5, 1.0), (384, 1, 0.1, 0.5), (3, 3, 0.0, 5.0)):
        ours = mnl_radius(counts, d, K, np.float64(kappa), np.float64(lam0))
        np.testing.assert_allclose(ours, ref.alpha_disjoint(counts, d, K, kappa, lam0), rtol=2e-7)
    worked = [
        mnl_radius(l, d, K, k, r)
        for l, d, K, k, r in ((0, 5, 1, 1, 1), (10, 5, 1, 1, 1), (100, 5, 2, 0.5, 1), (1000, 384, 1, 0.1, 0.5))
    ]
    np.testing.assert_allclose(worked, [1, 2.91725, 2.02046, 1.42050], atol=6e-6)
