"""The paper's baselines and the ablations of MESS+."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close
from reference import service as ref
from service_cases import assert_columns_close, cells, decision, first_observation, observed

from jaxroute import simulate
from jaxroute.core import draws
from jaxroute.data import MESSPLUS_BENCHMARKS
from jaxroute.problems import service as sv
from jaxroute.problems.service.sources import draw_requests


def test_ablations_by_hand():
    obs = observed((10, 40, 200), (0.5, 0.7, 0.8), 0.65)
    # Price 100: 10 - 50, 40 - 70, 200 - 80; the second is better from (40 - 10) / .2 = 150 on, the third from 160 / .1 = 1600 on.
    np.testing.assert_allclose(decision(sv.ShadowPrice(price=100.0), obs)[1], (-40, -30, 120), rtol=1e-5)
    assert [decision(sv.ShadowPrice(price=p), obs)[0] for p in (0.0, 149.0, 151.0, 1599.0, 1601.0)] == [0, 0, 1, 1, 2]
    assert decision(sv.MostSatisfying(), obs, 5.0)[0] == 2
    assert [
        decision(sv.CheapestAbove(), observed((10, 40, 200), (0.5, 0.7, 0.8), a))[0] for a in (0.4, 0.65, 0.75, 0.9)
    ] == [0, 1, 2, 2]
    assert decision(sv.CheapestAbove(margin=0.2), observed((10, 40, 200), (0.5, 0.7, 0.8), 0.4))[0] == 1
    assert decision(sv.CheapestAbove(), observed((30, 20, 10), (0.9, 0.8, 0.1), 0.5))[0] == 1


def guessed(accuracy, alpha):
    """The listing in float64."""
    with jax.enable_x64(True):
        return np.asarray(sv.educated_guess(jnp.asarray(accuracy, jnp.float64), jnp.float64(alpha)))


def test_educated_guessing_of_section_4_3():
    np.testing.assert_allclose(guessed([0.4, 0.6, 0.7], 0.55), np.full(3, 1 / 3), rtol=1e-12)
    np.testing.assert_allclose(guessed([0.4, 0.6, 0.7], 0.62), (0.15953, 0.32127, 0.51920), atol=5.01e-6)
    np.testing.assert_allclose(guessed([0.5, 0.5, 0.5], 0.5), np.full(3, 1 / 3), rtol=1e-12)
    for accuracy, alpha in (((0.4, 0.6, 0.7), 0.7), ((0.7, 0.2, 0.65), 0.6), ((0.3, 0.8, 0.1, 0.75), 0.72)):
        expected, sweeps = ref.educated_guessing(accuracy, alpha)
        assert sweeps < 5000
        np.testing.assert_allclose(guessed(accuracy, alpha), expected, rtol=1e-9)


def test_educated_guessing_has_no_answer_above_the_best_accuracy():
    """The listing raises; where the target is traced its fallback is returned, finite also if all accuracies are equal."""
    with pytest.warns(
        UserWarning, match=r"alpha is 0.9, but no .* satisfies more than 0.5: the virtual queue grows without end"
    ):
        env = sv.typed_service([[0.5, 0.5]], [[1.0, 2.0]], alpha=0.9)
    for guess in (sv.EducatedGuessing.of, lambda env: sv.educated_guess(env.accuracy, env.alpha)):
        with pytest.raises(ValueError, match=r"alpha must be at most the accuracy of the best model, 0.5, got 0.9"):
            guess(env)
    equal = jax.jit(lambda env: sv.EducatedGuessing.of(env).probabilities)(env)
    assert np.isfinite(equal).all() and np.sum(equal) == pytest.approx(1.0)


def test_educated_guessing_is_uniform_on_six_of_eight_benchmarks():
    uniform = []
    for name in MESSPLUS_BENCHMARKS:
        env = sv.benchmark_service(name)
        probabilities = guessed(env.accuracy, float(env.alpha))
        traced = np.asarray(sv.EducatedGuessing.of(env).probabilities)
        np.testing.assert_allclose(traced, probabilities, rtol=2.5e-2, err_msg=name)  # Up to one sweep of 1 %.
        assert traced @ np.asarray(env.accuracy) >= float(env.alpha) - 1e-5
        if np.allclose(probabilities, 1 / 3, rtol=1e-9):
            uniform.append(name)
    assert set(MESSPLUS_BENCHMARKS) - set(uniform) == {"logiqa", "sciq"}
    env = sv.benchmark_service("logiqa")
    np.testing.assert_allclose(guessed(env.accuracy, 0.40)[::-1], (0.56, 0.22, 0.22), atol=5e-3)


def test_router_threshold_of_section_4_7():
    for threshold in (0.1, 0.5, 0.6, 0.9):
        for offset, spread in ((0.94, 0.5), (-0.3, 1.2)):
            expected = ref.routellm_strong_share(threshold, offset, spread)
            assert float(sv.strong_share(threshold, offset, spread)) == pytest.approx(expected, rel=1e-5)
    for name, data in MESSPLUS_BENCHMARKS.items():
        env = sv.benchmark_service(name)
        accuracy = np.asarray(env.accuracy, float)

        def satisfaction(threshold, offset=data.routellm_offset, accuracy=accuracy):
            strong = ref.routellm_strong_share(threshold, offset, 0.5)
            return strong * accuracy[-1] + (1 - strong) * accuracy[0]

        expected = ref.routellm_threshold(satisfaction, float(env.alpha))
        router = sv.RouteLLM.of(env, offset=data.routellm_offset)
        assert float(router.threshold) == pytest.approx(expected, abs=1e-6)


def test_routed_share_and_its_energy():
    keys = jax.vmap(lambda i: draws.fold_in(draws.key(4), i))(jnp.arange(20_000))
    obs = observed((10, 40, 200), (0, 0, 0), 0.5)
    for threshold in (0.0, 0.6, 0.75):
        router = sv.RouteLLM(threshold=threshold, energy=7.0)
        actions, _ = jax.jit(jax.vmap(lambda key, router=router: router.act(key, (), obs, jnp.int32(0))))(keys)
        assert set(np.unique(actions.serve)) <= {0, 2} and (np.asarray(actions.energy) == 7.0).all()
        if threshold:
            expected = float(sv.strong_share(threshold, 0.94, 0.5))
            assert_mean_close(np.asarray(actions.serve) == 2, expected, what=f"threshold {threshold}")
        else:
            assert (np.asarray(actions.serve) == 2).all()


def test_fixed_policies_serve_with_their_shares():
    obs = observed((10, 40, 200), (0, 0, 0), 0.5)
    keys = jax.vmap(lambda i: draws.fold_in(draws.key(6), i))(jnp.arange(20_000))
    for policy, model in ((sv.Single(), 2), (sv.Single(1), 1), (sv.Single(0), 0)):
        action, _ = policy.act(draws.key(0), (), obs, jnp.int32(0))
        assert int(action.serve) == model and not bool(action.explore)
    mixtures = ((sv.RandomMix(), (1 / 3,) * 3), (sv.RandomMix(np.array([3.0, 0.0, 1.0])), (0.75, 0, 0.25)))
    for policy, share in mixtures:
        serve = jax.jit(jax.vmap(lambda key, policy=policy: policy.act(key, (), obs, jnp.int32(0))[0].serve))(keys)
        assert_columns_close(np.asarray(serve)[:, None] == np.arange(3), share, "shares")
    np.testing.assert_array_equal(sv.OracleBlind.of(sv.typed_service()).probabilities, sv.typed_service().blind_choice)


@pytest.mark.slow
def test_routerdc_learns_who_satisfies():
    env = cells(signal=1.0)
    router = sv.fit_routerdc(env, num_requests=400, steps=200, batch=32, width=8, cluster_weight=0.0)
    requests = draw_requests(env.requests, draws.key(29), 4000)
    logits = np.asarray(jax.vmap(router.logits)(requests.features), float)
    assert (np.abs(logits) <= 1 + 1e-5).all()
    codes = np.asarray(requests.features[:20] @ router.encoder, float)
    np.testing.assert_allclose(logits[:20], ref.cosines(codes, np.asarray(router.experts, float)), atol=1e-5)
    satisfied = np.asarray(requests.satisfied, float)
    routed = np.take_along_axis(satisfied, logits.argmax(1)[:, None], 1)[:, 0]
    gain = routed - satisfied.mean(1)  # Against a random model on the same request.
    assert gain.mean() > 5 * gain.std() / math.sqrt(len(gain))
    gain = routed - satisfied[:, 2]  # And against always the largest.
    assert gain.mean() > 3 * gain.std() / math.sqrt(len(gain))
    action, _ = router.act(draws.key(0), (), first_observation(env), jnp.int32(0))
    assert 0 <= int(action.serve) < 3 and not bool(action.explore)


@pytest.mark.slow
def test_a_router_that_knows_keeps_its_share_and_gains():
    env = cells(signal=1.0)
    policies = {"blind": sv.RouteLLM(threshold=0.7), "knows": sv.RouteLLM.knowing(env, 0.5, threshold=0.7)}
    data = simulate(
        env, policies, horizon=1000, seeds=64, record_every=1000, record=["served_share", "satisfaction"], progress=False
    )
    satisfied = data["satisfaction"].isel(time=-1)
    gain = (satisfied.sel(policy="knows") - satisfied.sel(policy="blind")).values
    assert gain.mean() > 5 * gain.std(ddof=1) / 8
    # z + h has variance 1.25 in place of 1 in units of the spread: both shares are near those of a normal distribution.
    share = data["served_share"].isel(time=-1, model=-1).mean("seed").values
    assert abs(share[1] - share[0]) < 0.1
    with pytest.raises(ValueError, match="tell requests apart"):
        sv.RouteLLM.knowing(sv.cell_service([1, 1, 1, 1], [1.0, 2.0], [0.0, 0.0], alpha=0.5), 0.5)
