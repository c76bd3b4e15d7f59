"""Every policy on every distribution of rewards: it is warned of, or right."""

import warnings

import numpy as np
import pytest

import jaxroute as jr
from jaxroute.core.rewards import UNIT, Assumptions, AssumptionWarning, Rewards, assumptions_of
from jaxroute.estimators import families
from jaxroute.problems import contextual, default_policies, stochastic

HORIZON, SEEDS = 1000, 32
_THETA = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
ENVIRONMENTS = {
    "stochastic": {
        "bernoulli": lambda: stochastic.bernoulli([0.2, 0.8]),
        "beta": lambda: stochastic.beta([0.3, 0.7]),
        "normal, in [0, 1]": lambda: stochastic.gaussian([0.3, 0.7], 0.05),
        "normal, standard": lambda: stochastic.gaussian([0.0, 1.0]),
        "normal, 2 and 3": lambda: stochastic.gaussian([2.0, 3.0]),
        "normal, 5 and 6": lambda: stochastic.gaussian([5.0, 6.0], 0.5),
        "normal, -2 and -1": lambda: stochastic.gaussian([-2.0, -1.0], 0.5),
        "normal, wide": lambda: stochastic.gaussian([0.0, 40.0], 20.0),
        "poisson": lambda: stochastic.poisson([0.5, 2.0]),
        "exponential": lambda: stochastic.exponential([0.5, 2.0]),
        "changing": lambda: stochastic.piecewise([[0.2, 0.8], [0.1, 0.9]], [0, 300]),
    },
    "contextual": {
        "linear": lambda: contextual.linear(_THETA),
        "linear, ten times": lambda: contextual.linear(10.0 * _THETA, 1.0),
        "logistic": lambda: contextual.logistic(5.0 * _THETA),
    },
}
CASES = [(problem, name) for problem, several in ENVIRONMENTS.items() for name in several]


MODULES = {"stochastic": stochastic, "contextual": contextual}


def warned(env, policies):
    """Lines of the only warning of a short run; none without one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jr.simulate(env, policies, horizon=2, seeds=1, progress=False, execution=jr.Execution("scan"))
    texts = [str(w.message) for w in caught if w.category is AssumptionWarning]
    assert len(texts) <= 1
    assert all(w.filename == __file__ for w in caught if w.category is AssumptionWarning)
    return [line for text in texts for line in text.split("\n")]


def missed(env, policies):
    """What each policy misses, by name, without a run."""
    assumed = {name: assumptions_of(one).violations(env.rewards()) for name, one in policies.items()}
    return {name: text for name, text in assumed.items() if text}


@pytest.mark.fast
def test_rewards_of_5_and_6():
    """In [0, 1] a policy clips them, a prior around 0 never looks at the second; UCB1 and MOSS depend on differences alone."""
    found = missed(stochastic.gaussian([5.0, 6.0], 0.5), default_policies(stochastic))
    unit = {"BetaThompson", "BayesUCB", "Exp3", "Exp3PlusPlus", "SlidingWindowThompson", "DiscountedThompson"}
    family = {"KLUCB", "IMED", "TrackAndStop", "UniformAndStop"}
    assert set(found) == unit | family | {"GaussianThompson", "UCBV"}
    assert all("give the family" in found[name] for name in family)
    assert all("scale the rewards to [0, 1]" in found[name] for name in unit)


def test_one_warning_for_all_policies():
    policies = {"a": stochastic.GaussianThompson(), "b": stochastic.UCB1(), "c": stochastic.IMED()}
    first, second = warned(stochastic.gaussian([5.0, 6.0], 0.5), policies)
    assert first == (
        "policy 'a' assumes means of at most 2, the environment gives normal rewards in [3.5, 7.5] with means up to 6: "
        "give scale, the standard deviation of a reward, and prior_mean, near the means"
    )
    assert second.startswith("policy 'c' assumes rewards in [0, 1], ")


@pytest.mark.fast
def test_nothing_is_missed_where_rewards_are_as_assumed():
    for env in (stochastic.bernoulli([0.2, 0.8]), stochastic.beta([0.3, 0.7]), stochastic.drifting([0.2, 0.8])):
        assert not missed(env, default_policies(stochastic))
    assert not missed(contextual.logistic(_THETA), default_policies(contextual))
    # What the remedies say.
    normal, remedied = stochastic.gaussian([5.0, 6.0], 0.5), families.Gaussian(0.5)
    policies = {
        "KL-UCB": stochastic.KLUCB(family=remedied),
        "IMED": stochastic.IMED(family=remedied),
        "Thompson": stochastic.GaussianThompson(scale=0.5, prior_mean=5.5),
        "UCB-V": stochastic.UCBV(upper=3.0),
        "stop": stochastic.TrackAndStop(family=remedied),
    }
    assert not missed(normal, policies)
    assert not missed(stochastic.gaussian([0.0, 40.0], 20.0), {"a": stochastic.UCB1(width=20.0 * 2.0**0.5)})
    assert not missed(stochastic.poisson([0.5, 2.0]), {"a": stochastic.KLUCB(family=families.Poisson())})
    assert not missed(stochastic.exponential([0.5, 2.0]), {"a": stochastic.IMED(family=families.Exponential())})
    assert not missed(contextual.linear(_THETA), {"a": contextual.LogisticThompson(low=-2.0, high=2.0)})
    # A narrow radius is a choice, not a mistake.
    assert not missed(stochastic.bernoulli([0.2, 0.8]), {"a": stochastic.UCB1(width=0.1)})


def test_settings_are_looked_at_one_by_one():
    grid = jr.grid(stochastic.gaussian, mean=[[0.1, 0.2], [3.0, 4.0]], scale=0.1)
    (line,) = warned(grid, {"a": jr.grid(stochastic.GaussianThompson, scale=[0.5, 3.0]), "b": stochastic.UCB1()})
    assert line.startswith("policy 'a' assumes means of at most 1,")
    (line,) = warned(lambda key: stochastic.poisson([1.0, 2.0]), {"a": stochastic.BetaThompson()})
    assert line.startswith("policy 'a' assumes rewards in [0, 1], the environment gives Poisson rewards in [0, inf]")
    own = stochastic.BanditEnv(np.ones(2), np.float32(0), distribution=lambda key, mean, scale: 7.0 * mean)
    assert not warned(own, stochastic.BetaThompson())


@pytest.mark.fast
def test_what_is_missed():
    """Three standard deviations of .1 around .3 and .7 are [0, 1]; a wider interval, more noise, a larger mean and another distribution are told apart."""
    given = Rewards.normal(0.3, 0.7, 0.1)
    assert (given.low, given.high, given.width) == pytest.approx((0.0, 1.0, 0.6))
    assert not UNIT.violations(given)
    assert UNIT.violations(Rewards.normal(0.3, 0.71, 0.1)).startswith(
        "assumes rewards in [0, 1], the environment gives normal rewards in ["
    )
    assert "constant of at most 0.09" in Assumptions(noise=0.09).violations(given)
    assert "length 0.5" in Assumptions(width=0.5).violations(given)
    assert "means of at most 0.6" in Assumptions(largest_mean=0.6).violations(given)
    assert "assumes Poisson or beta rewards" in Assumptions(distributions=("Poisson", "beta")).violations(given)
    assert "[0, 1] and means of at most 3," in Assumptions(0.0, 1.0, largest_mean=3.0).violations(
        Rewards("Poisson", 0.0, np.inf, np.inf, np.inf, 4.0)
    )
    assert not Assumptions().violations(Rewards("Poisson", 0.0, np.inf, np.inf, np.inf, 4.0))


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "name"), CASES)
def test_a_policy_is_warned_of_or_right(problem, name):
    """Without a warning: regret below .8 of a uniform choice's, by three of its errors, and no invalid run."""
    env, policies = ENVIRONMENTS[problem][name](), default_policies(MODULES[problem])
    for knows in ("Oracle", "BestSingle"):
        policies.pop(knows, None)
    policies = {k: v for k, v in policies.items() if not assumptions_of(v).violations(env.rewards())}
    policies |= {"Uniform": stochastic.EpsilonGreedy(epsilon=1.0)} if problem == "stochastic" else {}
    if name in ("poisson", "exponential"):
        family = families.Poisson() if name == "poisson" else families.Exponential()
        policies |= {"KLUCB": stochastic.KLUCB(family=family), "IMED": stochastic.IMED(family=family)}
    if name == "normal, wide":
        policies |= {"UCB1": stochastic.UCB1(width=20.0 * 2.0**0.5)}
    assert len(policies) >= 3
    options = {"record": ["regret"], "record_every": HORIZON, "horizon": HORIZON, "seeds": SEEDS, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        data = jr.simulate(env, policies, **options)
    assert data["valid"].all()
    regret = data["regret"].isel(time=-1)
    most = 0.8 * float(regret.sel(policy="Uniform").mean())
    end = {
        p: r.mean() + 3.0 * r.std(ddof=1) / SEEDS**0.5 for p, r in zip(regret["policy"].values, regret.values, strict=True)
    }
    assert not {p: float(x) for p, x in end.items() if p != "Uniform" and x >= most}
