"""Policies of the plain bandit: settings and decisions by hand, limits, errors, and posteriors."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_means_agree
from scipy import stats
from stochastic_cases import bandit

from jaxroute import simulate
from jaxroute.core import draws
from jaxroute.core.types import Spec
from jaxroute.estimators import families
from jaxroute.problems import stochastic
from jaxroute.problems import stochastic as st
from jaxroute.problems.stochastic.policies.track_and_stop import IdentificationState
from jaxroute.problems.stochastic.types import ArmStatistics
from jaxroute.sources import distributions

KEY = draws.key(0)
TWO = Spec(num_models=2)


def arms(pulls, sums):
    return ArmStatistics.of(pulls=jnp.array(pulls, jnp.int32), reward_sum=jnp.array(sums, jnp.float32))


def acted(policy, state, t):
    """Action and the only entry of the info."""
    action, info = policy.act(KEY, state, (), jnp.int32(t))
    return int(action), np.asarray(next(iter(info.values())))


def updated(policy, state, history):
    """The state after `(action, reward)` in rounds 0, 1, ..."""
    for t, (action, reward) in enumerate(history):
        state = policy.update(KEY, state, (), jnp.int32(action), jnp.float32(reward), jnp.int32(t))
    return state


# By hand.


def test_the_share_of_exp3_by_hand():
    """The paper's for T = 1,000: sqrt(2 log 2 / (1.71828 * 1000)) = .0284041."""
    np.testing.assert_allclose(st.Exp3(horizon=1000).init(KEY, TWO).gamma, 0.0284041, rtol=1e-5)
    assert st.Exp3().init(KEY, Spec(2, horizon=1)).gamma == pytest.approx(0.898207, abs=1e-5)
    assert st.Exp3().init(KEY, Spec(10, horizon=2)).gamma == 1.0


def test_tuned_windows_and_discounts():
    """2 sqrt(10,000 log 10,000) = 606.97, a quarter with 16 changes; 1 - sqrt(1 / 10,000) / 4."""
    assert st.SlidingWindowUCB.tuned(10_000).window == st.SlidingWindowUCB().window == 607
    assert st.SlidingWindowUCB.tuned(10_000, 16, xi=0.5) == st.SlidingWindowUCB(window=152, xi=0.5)
    assert st.DiscountedUCB.tuned(10_000).discount == st.DiscountedUCB().discount == 0.9975
    assert st.DiscountedUCB.tuned(10_000, changes=16).discount == 0.99


def test_the_decision_by_hand():
    """Four successes of four and no success of four: 8 log 2 = 5.545, above log(2 * 8 / .1) = 5.075 and below log(2 * 8 / .05) = 5.768."""
    before = IdentificationState(arms([4, 3], [4, 0]), jnp.zeros((), bool))
    for delta, decided in ((0.1, True), (0.05, False)):
        for policy in (st.TrackAndStop(delta=delta), st.UniformAndStop(delta=delta)):
            state = policy.update(KEY, before, (), jnp.int32(1), jnp.float32(0.0), jnp.int32(7))
            assert bool(state.decided) == decided
            assert {name: float(x) for name, x in policy.gauges(state).items()} == {"decided": decided, "samples": 8}
            assert policy.recommendation(state) == 0
            # After the decision the state is constant, and the recommended model is used.
            later = policy.update(KEY, state, (), jnp.int32(0), jnp.float32(0.0), jnp.int32(8))
            np.testing.assert_array_equal(later.arms.pulls, [4, 4] if decided else [5, 4])
            assert not decided or acted(policy, later, 9)[0] == 0
    assert st.practical_threshold(jnp.float32(8.0), 2, 0.1) == pytest.approx(math.log((math.log(8) + 1) / 0.1))


def test_tracking_by_hand():
    """Two normal models have equal shares; a third that was used less than sqrt(100) - 3 / 2 times comes first."""
    policy = st.TrackAndStop(family=families.Gaussian())
    open_ = jnp.zeros((), bool)
    assert acted(policy, IdentificationState(arms([52, 48], [50, 10]), open_), 100)[0] == 1
    assert acted(policy, IdentificationState(arms([46, 46, 8], [46, 20, 0]), open_), 100)[0] == 2
    # Of the shares (.5, .25, .25) sqrt(2) / (1 + sqrt(2)), 1 / 2: (.414214, .292893, .292893) for two equal others.
    assert acted(policy, IdentificationState(arms([41, 30, 29], [41, 15, 14.5]), open_), 100)[0] == 0


# Limits.


def test_without_forgetting_policies_equal_the_plain_ones():
    """With a window of all rounds, or a discount of 1, sums and draws are those of UCB and of Thompson sampling."""
    history = [(0, 1.0), (1, 0.0), (1, 1.0), (0, 1.0), (1, 1.0)]
    plain = updated(st.UCB1(), st.UCB1().init(KEY, TWO), history)
    sampled = acted(st.BetaThompson(), plain, 5)
    for policy in (st.SlidingWindowThompson(window=5), st.DiscountedThompson(discount=1.0)):
        state = updated(policy, policy.init(KEY, TWO), history)
        np.testing.assert_array_equal(state.pulls, plain.pulls)
        np.testing.assert_array_equal(acted(policy, state, 5)[1], sampled[1])
    window, discounted = st.SlidingWindowUCB(window=6, xi=2.0), st.DiscountedUCB(discount=1.0, xi=0.5)
    state = updated(window, window.init(KEY, TWO), history)
    np.testing.assert_allclose(acted(window, state, 5)[1], acted(st.UCB1(), plain, 4)[1], rtol=1e-6)
    state = updated(discounted, discounted.init(KEY, TWO), history)
    np.testing.assert_allclose(acted(discounted, state, 5)[1], acted(st.UCB1(), plain, 3)[1], rtol=1e-6)


def test_one_model_leaves_nothing_to_choose():
    one = Spec(num_models=1, horizon=10)
    policies = (st.UCB1(), st.KLUCB(), st.MOSS(), st.IMED(), st.BetaThompson(), st.BayesUCB(), st.Exp3(), st.Exp3PlusPlus())
    for policy in (*policies, st.TrackAndStop()):
        state = updated(policy, policy.init(KEY, one), [(0, 1.0), (0, 0.0)])
        action, seen = acted(policy, state, 2)
        assert action == 0 and np.isfinite(seen).all()


# Errors.


@pytest.mark.fast
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (st.KLUCB(loglog=-1.0), "loglog must be at least 0, got -1"),
        (st.KLUCB(family=families.Gaussian), "family must be an object such as families.Bernoulli()"),
        (st.KLUCB(family=families.Gaussian(scale=0.0)), "scale must be above 0, got 0"),
        (st.IMED(family="bernoulli"), "family must be an object such as"),
        (st.IMED(family=distributions.Bernoulli()), "family must be an object such as"),
        (st.UCBV(upper=0.0), "upper must be above 0, got 0"),
        (st.MOSS(horizon=0), "horizon must be above 0, got 0"),
        (st.AnytimeMOSS(alpha=-0.5), "alpha must be at least 0, got -0.5"),
        (st.BayesUCB(failures=0.5), "failures must be at least 1, got 0.5"),
        (st.Exp3(gamma=0.0), r"gamma must be in \(0, 1\], got 0"),
        (st.Exp3(horizon=-3), "horizon must be above 0, got -3"),
        (st.Exp3PlusPlus(alpha=0.0), "alpha must be above 0, got 0"),
        (st.SlidingWindowUCB(window=0), "window must be at least 1, got 0"),
        (st.SlidingWindowUCB(window=2.5), "window must be a whole number at least 1, got 2.5"),
        (st.SlidingWindowThompson(successes=0.0), "successes must be at least 1, got 0"),
        (st.DiscountedUCB(discount=1.1), r"discount must be in \(0, 1\], got 1.1"),
        (st.DiscountedThompson(discount=0.0), r"discount must be in \(0, 1\], got 0"),
        (st.TrackAndStop(delta=0.0), r"delta must be in \(0, 1\], got 0"),
        (st.TrackAndStop(threshold=lambda t: t), "threshold must take"),
    ],
)
def test_errors_name_the_bad_value(policy, message):
    with pytest.raises(ValueError, match=message):
        policy.check()


def test_a_policy_without_a_horizon_is_refused():
    for policy in (st.MOSS(), st.Exp3()):
        with pytest.raises(ValueError, match="horizon must be given where no run gives it"):
            policy.init(KEY, TWO)
    assert st.MOSS(horizon=100).init(KEY, TWO).rounds == 100


# Regret.


def test_the_oracle_has_no_regret():
    for env in (bandit("bernoulli"), bandit("gaussian")):
        data = simulate(env, st.Oracle.of, horizon=500, seeds=8, record=["regret", "pulls"], progress=False)
        assert np.abs(data["regret"].values).max() == 0.0
        assert (data["pulls"].isel(policy=0, time=-1).values == np.array([0, 500, 0, 0, 0])).all()


@pytest.mark.parametrize(
    "name",
    ["BetaThompson", *(pytest.param(n, marks=pytest.mark.slow) for n in ("SlidingWindowThompson", "DiscountedThompson"))],
)
def test_beta_posteriors_against_numpy(name):
    """The same distribution of regret, and mean pulls, as a NumPy loop with NumPy's beta draws, over independent runs."""
    horizon, number = 400, 700
    window, discount = 60 if name == "SlidingWindowThompson" else horizon, 0.97 if name == "DiscountedThompson" else 1.0
    means, runs = np.array(bandit("bernoulli").mean, np.float64), np.arange(number)
    rng, rounds = np.random.default_rng(0), []
    wins, losses, pulls = np.zeros((3, number, 5))
    for t in range(horizon):
        arm = rng.beta(1 + wins, 1 + losses).argmax(1)
        success = rng.random(number) < means[arm]
        wins, losses = discount * wins, discount * losses
        for sums, gain in ((wins, success), (losses, ~success), (pulls, 1)):
            sums[runs, arm] += gain
        rounds.append((arm, success))
        if t >= window:
            arm, success = rounds[t - window]
            wins[runs, arm] -= success
            losses[runs, arm] -= ~success
    regret = (means.max() - means) @ pulls.T
    options = {"SlidingWindowThompson": {"window": window}, "DiscountedThompson": {"discount": discount}}.get(name, {})
    policy = getattr(st, name)(**options)
    data = simulate(bandit("bernoulli"), policy, horizon=horizon, seeds=number, record=["regret", "pulls"], progress=False)
    data = data.isel(policy=0, time=-1)
    assert_means_agree(data["regret"].values, regret)
    assert stats.ks_2samp(data["regret"].values, regret).pvalue > 1e-4
    for m in range(len(means)):
        assert_means_agree(data["pulls"].values[:, m], pulls[:, m])


@pytest.mark.fast
def test_the_parameters_of_a_posterior_by_hand():
    policy = stochastic.BetaThompson(successes=2.0, failures=3.0)
    state = ArmStatistics.empty(jax.random.key(0), 2).add(1, 1.0).add(1, 0.25)
    wins, losses = policy.posterior(state)
    assert wins.tolist() == [2.0, 3.25] and losses.tolist() == [3.0, 3.75]
