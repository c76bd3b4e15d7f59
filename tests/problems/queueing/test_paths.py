"""Runs in single precision, as shipped, on recorded noise: every decision is that of the float64 reference with the exact estimate."""

import numpy as np
import pytest
from queueing_reference_cases import Instance, learner_noise, play
from reference import queueing as ref

from jaxroute.estimators.gaussian import ByCholesky
from jaxroute.problems import queueing as rq

ROUNDS = 200
# Answers, models, features, spread of contexts, ridge, and what is special; near-ties of 1e-6 and less have not occurred in these.
PATHS = {
    "as in figure 2": (1, 5, 5, 1.0, 1.0, ""),
    "long features": (1, 5, 5, 3.0, 1.0, ""),
    "small ridge": (1, 4, 8, 1.0, 0.01, ""),
    "rather small ridge": (1, 4, 4, 2.0, 0.1, ""),
    "long features, small ridge": (1, 5, 5, 3.0, 0.01, ""),
    "two, small ridge": (2, 5, 5, 1.0, 0.05, ""),
    "two": (2, 5, 5, 1.0, 1.0, ""),
    "two, long features": (2, 4, 4, 2.0, 0.1, ""),
    "three": (3, 5, 3, 1.0, 0.1, ""),
    "joint": (2, 4, 3, 1.0, 0.1, "joint"),
    "pairs": (1, 5, 5, 1.0, 0.1, "pairs"),
    "ten models": (1, 10, 5, 1.0, 1.0, ""),
    "twelve features": (1, 5, 12, 1.0, 0.1, ""),
}
QUICK = ("long features, small ridge",)


def recorded(seed, K, N, d, spread, pairs):
    """Parameters, contexts, arrivals and uniform numbers, all of them float32 numbers."""
    rng = np.random.default_rng(seed)
    if pairs:
        theta, contexts, rate = rng.uniform(-2, 2, d), rng.uniform(-1, 1, (ROUNDS, N, d)) * spread / np.sqrt(d), 0.4
    else:
        theta, drawn, rate = rng.uniform(-1, 1, (N, d)), rng.uniform(-spread, spread, (20_000, d)), 0.7
        contexts = drawn[ref.slack(drawn @ theta.T, K, rate, 0.03)][:ROUNDS]
    numbers = (np.float32(x).astype(float) for x in (theta, contexts, rng.random(ROUNDS)))
    theta, contexts, uniform = numbers
    return Instance(theta, contexts, rng.random(ROUNDS) < rate, uniform)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in PATHS])
def test_every_decision_is_that_of_the_exact_estimate(name):
    K, N, d, spread, ridge, special = PATHS[name]
    inst = recorded(list(PATHS).index(name), K, N, d, spread, special == "pairs")
    sampler = ByCholesky() if d > 8 else None  # Other square roots have other samples of the same noise.
    ours = rq.ACQB(ridge=np.float32(ridge), joint=special == "joint", sampler=sampler)
    seen = play(inst.env(K), ours, double=False)
    parameters = 1 if special == "pairs" else N
    coin, z, _ = learner_noise(ROUNDS, parameters, d, ref.num_samples(K))
    plain = {"mle": "joint"} if special == "joint" else {}
    z = z[:, 0] if special == "pairs" else z
    theirs = ref.acqb(inst.contexts, N, K, float(np.float32(0.3)), float(np.float32(ridge)), 1.0, coin, z, **plain)
    want = ref.simulate(inst.A, inst.U, inst.utility, K, theirs)
    busy = ~want["idle"]
    np.testing.assert_array_equal(seen["queue"], want["queue"])
    np.testing.assert_array_equal(seen["query"][busy], want["query"][busy])
    np.testing.assert_array_equal(seen["offered"][busy], want["offered"][busy])
    error = np.abs(np.einsum("tnd,sd->tns", seen["theta"] - want["theta"].reshape(ROUNDS, parameters, d), _requests(inst)))
    assert error.max() < 1e-3 and busy.sum() > ROUNDS / 2


def _requests(inst):
    return inst.contexts.reshape(-1, inst.contexts.shape[-1])
