"""Distributions of requests, outputs and their features: the index meets its moment, costs, noise, recorded outcomes."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import DISTRIBUTIONS, FEW, NOISES, NUMBER, drawn, f32, play, rows, slow, table
from scipy import stats

from jaxroute.core import draws
from jaxroute.estimators import links
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.sources.contexts import RecordedContexts, TwoTimesContexts, UniformContexts
from jaxroute.problems.cascade.sources.features import RadialNoise, ScoredFeatures
from jaxroute.solvers.reservation import discrete_index, linear_index


@pytest.mark.parametrize("name", [name if name in FEW else slow(name) for name in DISTRIBUTIONS])
def test_the_index_meets_its_moment(name):
    """`E[c - (M - index)^+] = 0`, and costs and scores have the means that are said, within four standard errors."""
    env = DISTRIBUTIONS[name]()
    period = drawn(env)
    score, index, cost, mean_cost = (
        np.asarray(x, float) for x in (period.score, period.index, period.cost, period.mean_cost)
    )
    expected = np.asarray(jax.vmap(lambda psi: env.boxes.mean_score(psi, env.base_index(psi)))(period.psi), float)
    for what in (cost - np.maximum(score - index, 0), cost - mean_cost, score - expected):
        error = what.std(axis=0, ddof=1) / math.sqrt(len(what))
        assert (np.abs(what.mean(axis=0)) <= 4 * error + 1e-6).all(), name
    assert ((cost > 0) & (score >= 0) & (score <= 1)).all()
    assert name.startswith("expensive") or (cost < 1).all()


@pytest.mark.parametrize("name", ["LOC", "SPIKE", "PASSFAIL"])
def test_excess_and_probabilities_of_a_distribution_belong_together(name):
    """The slope of `E(M - u)^+` is `-P(M > u)`; the moment has one root, with at least the slope that the theory asks for."""
    env = DISTRIBUTIONS[name]()
    psi = f32([1.0, 0.4, -0.6])
    base = env.base_index(psi)
    grid = np.linspace(-0.6, 1.0, 321)
    excess, above = (
        np.asarray(jax.vmap(lambda u, f=f: f(psi, base, u))(f32(grid)), float) for f in (env.boxes.excess, env.boxes.above)
    )
    slope = np.diff(excess, axis=0) / np.diff(grid)[:, None]
    assert (slope <= -above[1:] + 1e-3).all() and (slope >= -above[:-1] - 1e-3).all()
    np.testing.assert_allclose(env.boxes.mean_score(psi, base), excess[0] + grid[0], atol=1e-5)
    index, cost = np.asarray(base, float), np.asarray(env.boxes.mean_cost(psi, base), float)
    for a in range(3):  # Lemma 8.1 with the least probability on the way from the index.
        far = np.abs(grid - index[a]) > 0.02
        least = np.array([above[(grid >= min(u, index[a])) & (grid <= max(u, index[a])), a].min() for u in grid[far]])
        product = (grid[far] - index[a]) * (cost[a] - excess[far, a])
        assert (product >= least * (grid[far] - index[a]) ** 2 - 1e-5).all()
    if name == "SPIKE":
        assert above[grid < 0.97].min() >= 0.01 - 1e-6


def test_contexts_of_two_times_and_recorded_ones():
    draw = functools.partial(jax.vmap, in_axes=0)
    first, second = UniformContexts(2, 0.5, 1.0), UniformContexts(2, -1.0, -0.5)
    t = jnp.arange(20)
    for in_turns, later in ((False, t >= 5), (True, (t // 5) % 2 == 1)):
        contexts = TwoTimesContexts(first, second, length=5, in_turns=in_turns)
        psi = draw(lambda i, c=contexts: c.draw(draws.fold_in(draws.key(0), i), (), i))(t)
        np.testing.assert_array_equal(psi[:, 1] < 0, later)
        assert (contexts.dim, contexts.bound) == (2, pytest.approx(math.sqrt(2)))
    rows = np.array([[1.0, 0.2], [1.0, -3.0], [0.5, 0.1]], np.float32)
    contexts = RecordedContexts(rows)
    np.testing.assert_array_equal(draw(lambda i: contexts.draw(draws.key(0), (), i))(t), rows[np.arange(20) % 3])
    np.testing.assert_allclose(contexts.mean, rows.mean(axis=0), rtol=1e-6)
    assert ca.uniform_cascade(3, 2, contexts=contexts).context_bound == pytest.approx(math.sqrt(10))


def queries(number=30, **options):
    """Made-up queries: scores, costs, contexts, and the cascade of them."""
    rng = np.random.default_rng(3)
    psi = np.column_stack([np.ones(number), rng.uniform(-0.5, 0.5, (number, 2))])
    score = np.clip(psi @ rng.uniform(0.0, 0.6, (3, 4)) + 0.3 * rng.random((number, 4)), 0.0, 1.0)
    cost = rng.uniform(0.01, 0.3, (number, 4))
    return score, cost, psi, ca.query_cascade(score, cost, psi, cost_weight=0.7, **options)


@pytest.mark.parametrize("shuffled", [False, True])
def test_queries_are_played_once_a_pass_each_with_its_own_row(shuffled):
    score, cost, psi, env = queries(shuffled=shuffled)
    state = env.init(draws.key(5))
    order = np.asarray(state) if shuffled else np.arange(30)
    assert sorted(order) == list(range(30)) and shuffled == (list(order) != sorted(order))
    period = jax.vmap(lambda t: env.draw(draws.fold_in(draws.key(1), t), state, t))(jnp.arange(75))
    rows = order[np.arange(75) % 30]
    np.testing.assert_array_equal(period.psi, psi.astype(np.float32)[rows])
    np.testing.assert_array_equal(period.score, score.astype(np.float32)[rows])
    np.testing.assert_allclose(period.cost, 0.7 * cost[rows], rtol=1e-6)
    np.testing.assert_allclose(period.mean_cost, 0.7 * (psi @ np.linalg.lstsq(psi, cost)[0])[rows], rtol=1e-4)
    assert env.spec.metrics == ca.replay_cascade(score, cost, np.zeros(30), joint=True).spec.metrics


def test_a_search_of_queries_is_the_one_of_a_plain_loop():
    """Weitzman's rule and one call on the rows, by hand in float64: utility of each query of a shuffled pass."""
    score, cost, psi, env = queries()
    index = np.stack([linear_index(psi, score[:, a], 0.7 * cost[:, a]) for a in range(4)])
    value = psi @ np.linalg.lstsq(psi, score - 0.7 * cost)[0]
    found = play(
        env, {"search": ca.TrueIndexSearch.of, "one": ca.ContextSingle.of}, 29, 8, record_every=1, record=("utility",)
    )
    for policy in ("search", "one"):
        expected = []
        for row in range(30):
            best, opened, priority = -np.inf, [], psi[row] @ index.T
            for a in np.argsort(-priority):
                if best >= priority[a]:
                    break
                opened.append(a)
                best = max(best, score[row, a])
            opened = opened if policy == "search" else [value[row].argmax()]
            expected.append(score[row, opened].max() - 0.7 * cost[row, opened].sum())
        utility = np.diff(found["utility"].sel(policy=policy).values * np.arange(1, 30), prepend=0.0, axis=-1)
        # A run plays all rows but that of its free period: they are the same values in another order.
        for run in utility:
            left = sorted(expected)
            for got in run:
                left.pop(int(np.abs(np.asarray(left) - got).argmin()))
            assert len(left) == 1
        everything = np.sort(np.asarray(expected))
        gaps = np.abs(utility[..., None] - everything).min(axis=-1)
        assert gaps.max() < 5e-5


def test_the_linear_index_solves_its_moment_and_is_exact_in_groups():
    rng = np.random.default_rng(11)
    for _ in range(300):
        number, dim = int(rng.integers(5, 60)), int(rng.integers(1, 5))
        score, cost = rng.random(number), rng.uniform(0.0, 0.4, number) + 1e-3
        group = np.concatenate([np.arange(dim), rng.integers(0, dim, number - dim)])
        exact = [discrete_index(score[group == g], np.ones((group == g).sum()), cost[group == g].mean()) for g in range(dim)]
        np.testing.assert_allclose(linear_index(np.eye(dim)[group], score, cost, ridge=0.0), exact, atol=1e-6)
        psi = np.column_stack([np.ones(number), rng.normal(size=(number, dim))])
        rho = linear_index(psi, score, cost, ridge=0.0)
        moment = psi.T @ (cost - np.maximum(score - psi @ rho, 0.0)) / number
        assert np.abs(moment).max() < 1e-6


def test_lengths_of_radial_noise_follow_their_distribution():
    d, longest, freedom = 5, 3.0, 4.0
    square = longest**2 / d

    def normal(r):
        return stats.chi(d).cdf(r) / stats.chi(d).cdf(longest)

    def student(r):
        return stats.f(d, freedom).cdf(np.square(r) / d) / stats.f(d, freedom).cdf(square)

    draw = jax.jit(lambda noise, key: noise.draw(key, (20_000, d)))
    for number, (noise, distribution) in enumerate(
        [(RadialNoise.normal(d, longest), normal), (RadialNoise.student(d, freedom, longest), student)]
    ):
        z = np.asarray(draw(noise, draws.key(number)), float)
        length = np.linalg.norm(z, axis=1)
        assert length.max() <= noise.bound(d) + 1e-6 <= longest + 1e-3
        assert stats.kstest(length, distribution).pvalue > 1e-3
        direction = z / length[:, None]
        assert np.abs(direction.mean(axis=0)).max() < 4 / math.sqrt(20_000 * d)
        assert np.abs(direction.T @ direction / 20_000 - np.eye(d) / d).max() < 0.01
        with pytest.raises(AssertionError):  # The test can fail: another distribution is told apart.
            assert stats.kstest(length, stats.chi(d, scale=1.1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("joint", [False, True])
def test_replayed_outcomes_are_those_of_their_group(joint):
    score, cost, group, features = table()
    env = rows(joint=joint, features=True, cost_weight=2.0)
    period = drawn(env)
    which = np.asarray(period.psi).argmax(axis=1)
    share = np.bincount(group) / len(group)
    assert (np.abs(np.bincount(which) / NUMBER - share) < 4 * np.sqrt(share / NUMBER)).all()
    by_output = {}  # Rows by what a box gave: score, weighted cost and features are of one row.
    for n in range(len(score)):
        for a in range(3):
            by_output.setdefault((a, *np.float32([score[n, a], *features[n, a]]).round(5).tolist()), []).append(n)
    same = 0
    for t in range(300):
        found = []
        for a in range(3):
            key = (a, *np.float32([period.score[t, a], *period.features[t, a]]).round(5).tolist())
            (n,) = by_output[key]
            assert group[n] == which[t] and float(period.cost[t, a]) == pytest.approx(2.0 * cost[n, a], rel=1e-5)
            found.append(n)
        same += len(set(found)) == 1
    assert same == 300 if joint else same < 60
    for g in range(3):
        rows_of_group = group == g
        index = [
            discrete_index(score[rows_of_group, a], np.ones(rows_of_group.sum()), 2 * cost[rows_of_group, a].mean())
            for a in range(3)
        ]
        np.testing.assert_allclose(env.true_index(f32(np.eye(3)[g])), index, atol=1e-6)
        np.testing.assert_allclose(env.boxes.mean_cost(f32(np.eye(3)[g]), None), cost[rows_of_group].mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize("weight", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("make", [ca.spike_cascade, ca.pass_fail_cascade, ca.group_cascade])
def test_index_with_a_cost_weight_of_other_distributions(make, weight):
    """`E(M - index)^+` is the weighted mean cost."""
    env = make(cost_weight=weight)
    for psi in np.eye(env.spec.context_dim)[:3] if make is ca.group_cascade else ([1, 0.5, -0.5], [1, -0.9, 0.8]):
        psi = f32(psi)
        base = env.base_index(psi)
        worth = env.boxes.excess(psi, base, env.true_index(psi))
        np.testing.assert_allclose(worth, weight * env.boxes.mean_cost(psi, base), atol=1e-5)


@pytest.mark.parametrize("longest", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("dim", [1, 2, 5, 16])
def test_any_length_may_be_the_longest(dim, longest):
    """Also where the probability of it rounds to 1, or its quantile to infinity (F distribution with d = 5, 3 degrees of freedom, length
    3).
    """
    for noise in (RadialNoise.normal(dim, longest), RadialNoise.student(dim, longest=longest)):
        noise.check()
        assert noise.bound(dim) == pytest.approx(longest, rel=1e-3)


@pytest.mark.parametrize("name", NOISES)
def test_features_with_noise_of_any_distribution(name):
    """They hold the score, are no longer than said, and are spread in every direction (assumption 5.2)."""
    features = ScoredFeatures(ca.uniform_cascade(evaluator=5).evaluator.theta, noise=NOISES[name])
    env = ca.uniform_cascade(evaluator=features)
    period = drawn(env)
    phi = np.asarray(period.features, float)
    theta = np.asarray(features.theta, float)
    np.testing.assert_allclose(links.LOGISTIC.value(f32(phi @ theta)), period.score, atol=5e-6)
    assert np.linalg.norm(phi, axis=-1).max() <= env.feature_bound
    directions = np.vstack([theta, np.eye(5), np.random.default_rng(0).normal(size=(50, 5))])
    for v in directions / np.linalg.norm(directions, axis=1, keepdims=True):
        share = (np.abs(phi @ v) <= 0.05).mean(axis=0)
        assert (share < 5 * 0.05).all() and (share > 0).any()
