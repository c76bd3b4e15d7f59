"""The cascade problem (COSMOS) against the plain float64 loops of `reference/cascade.py`, round by round on shared draws.

The simulator runs in double precision here (`double`), so that decisions can be compared exactly and numbers to many digits;
its uniform draws keep their float32 bits, and are handed to the reference as float64 numbers.
"""

import contextlib
import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import to_minimum
from helpers import doubles, x64
from reference import cascade as ref

from jaxroute.core import draws
from jaxroute.core.types import classes_of
from jaxroute.engine.rounds import spec_for
from jaxroute.estimators import gaussian, glm, links
from jaxroute.estimators.glm import ExactGLM, FrozenGLM
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.optimum import cost_order, single_values
from jaxroute.problems.cascade.parts import indices as index_loss
from jaxroute.problems.cascade.parts import search
from jaxroute.problems.cascade.parts.exploration import DecayingExploration, WarmUp
from jaxroute.problems.cascade.parts.indices import StreamingNewton
from jaxroute.problems.cascade.parts.radii import BootstrapRadius, PracticalRadius, TheoreticalRadius
from jaxroute.problems.cascade.parts.window import MomentEquations, Window
from jaxroute.problems.cascade.sources.features import ScoredFeatures
from jaxroute.problems.cascade.theory import potential_bound, ridge_rule
from jaxroute.problems.cascade.types import CascadeSpec, Observation
from jaxroute.solvers import reservation

slow = pytest.mark.slow


def some(names, quick):
    """Names as parameters of a test; those that are not `quick` are slow."""
    return [name if name in quick else pytest.param(name, marks=slow) for name in names]


KEY = draws.key(7)
HORIZON = 120

# --- Double precision --------------------------------------------------------------------------------------------------------

MODULES = [gaussian, glm, links, reservation]
MODULES += [module for name, module in sys.modules.items() if name.startswith("jaxroute.problems.cascade.")]


class _Wide:
    """Stands for `jax.numpy`; its float32 means float64."""

    float32 = jnp.float64

    def __getattr__(self, name):
        return getattr(jnp, name)


def wide_exponential(key, shape=()):
    return -jnp.log1p(-draws.uniform(key, shape).astype(jnp.float64))


def wide_normal(key, shape=()):
    low = float(np.nextafter(np.float32(-1), np.float32(0)))
    return math.sqrt(2) * jax.lax.erf_inv(jnp.maximum(low, draws.uniform(key, shape).astype(jnp.float64) * (1 - low) + low))


@contextlib.contextmanager
def double():
    """The code under test in double precision, also where it names float32; uniform draws keep their float32 bits.

    What is made of them by a logarithm or an inverse error function is made in double precision: a float32 logarithm has
    another last digit in another compiled program. (With jax 0.12 that was 38 of 2,460 weights of a bootstrap, by 6e-8 each,
    and one of 120 bonuses was 1.2e-9 off.)
    """
    with x64(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "exponential", wide_exponential)
        patch.setattr(draws, "normal", wide_normal)
        for module in MODULES:
            if hasattr(module, "jnp"):
                patch.setattr(module, "jnp", _Wide())
        yield


# Compiling takes most of the time here: less care saves a quarter of it.
_quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

# --- Shared draws ------------------------------------------------------------------------------------------------------------


@functools.partial(_quick_jit, static_argnames=("horizon", "classes"))
def _play(env, policy, key, horizon, classes):
    del classes  # Of policies that differ in nothing else JAX would now and then take what it has traced for the other.
    k_env, k_act, k_update, k_env_init, k_policy_init = draws.split(key, 5)

    def one(carry, t):
        env_state, state = carry
        k_now = draws.fold_in(k_env, t)
        obs = env.observe(k_now, env_state, t)
        action, info = policy.act(draws.fold_in(k_act, t), state, obs, t)
        seen = {"psi": obs.context, "priority": action.priority, "threshold": action.threshold, "info": info}
        if action.scoring is not None:
            seen |= {"beta": action.scoring.width, "theta": action.scoring.theta}
        if hasattr(state, "rho"):
            seen |= {"rho": state.rho.T, "n": state.number}
        env_state, feedback, flows = env.step(k_now, env_state, action, t)
        state = policy.update(draws.fold_in(k_update, t), state, obs, action, feedback, t)
        return (env_state, state), seen | {"feedback": feedback, "flows": flows}

    start = env.init(k_env_init), policy.init(k_policy_init, spec_for(env, horizon))
    (_, state), seen = jax.lax.scan(one, start, jnp.arange(horizon + 1, dtype=jnp.int32))
    kept = ("rho", "design", "opened", "potential", "score_potential", "evaluation")
    return seen | {"last": {name: getattr(state, name) for name in kept if getattr(state, name, None) is not None}}


def play(env, policy, horizon, key=KEY):
    """Plays a run in double precision. Returns what happened in each round, free ones too, and the policy's last state."""
    with double():
        env, policy = doubles(env), doubles(policy)
        return jax.tree.map(np.asarray, _play(env, policy, key, horizon, classes_of((env, policy))))


@functools.partial(_quick_jit, static_argnames=("horizon", "size"))
def _noise(key, horizon, size):
    k_env, k_act, k_update, k_env_init, k_policy_init = draws.split(key, 5)

    def each(draw, keys):
        return jnp.stack([draw(k, (size,)) for k in keys])

    def at(t):
        k_now = draws.fold_in(k_act, t)
        return {
            "env": each(draws.uniform, draws.split(draws.fold_in(k_env, t), 6)),
            "act": draws.uniform(k_now, (size,)),
            "normal": each(draws.normal, draws.split(k_now, 2)),
            "coin": draws.uniform(draws.split(k_now, 3)[2]),
            "exponential": draws.exponential(draws.fold_in(k_update, t), (size,)),
            "block": draws.uniform(draws.fold_in(k_policy_init, t)),
        }

    return jax.vmap(at)(jnp.arange(horizon + 1, dtype=jnp.int32)) | {"frozen": draws.uniform(k_env_init)}


@functools.cache
def _raw_noise(horizon, size=256):
    with double():
        return jax.tree.map(lambda x: np.asarray(x, float), _noise(KEY, horizon, size))


@functools.cache
def _ties(horizon, number):
    """Returns the orders of equal boxes: that of COSMOS and its relatives, and that of LinUCB."""
    act = draws.split(KEY, 5)[1]
    keys = jax.vmap(lambda t: draws.fold_in(act, t))(jnp.arange(horizon + 1, dtype=jnp.int32))
    with double():
        own = jax.vmap(lambda key: draws.order(draws.fold_in(key, 3), number))(keys)
        return {"ties": np.asarray(own), "ties_linucb": np.asarray(jax.vmap(lambda key: draws.order(key, number))(keys))}


def noise_of(inst, horizon):
    """Returns the draws of a run for the reference.

    A draw of fewer elements holds the first ones of a draw of more, so that one compiled function serves all shapes.
    """
    (K, m), d, raw = inst.rho.shape, inst.theta.size, _raw_noise(horizon)
    request, score, cost, rare, noise, coin = np.moveaxis(raw["env"], 1, 0)
    psi = {
        "GROUP": lambda: ref.group_context(request[:, 0]),
        "FROZEN_X": lambda: ref.frozen_context(raw["frozen"], horizon),
    }.get(inst.distribution, lambda: ref.context(2 * request[:, : m - 1] - 1))()
    block = ref.ceil_power(horizon, 1 / 6)
    return {
        "psi": psi,
        "U": score[:, :K],
        "L": 2 * cost[:, :K] - 1,
        "z": 2 * noise[:, : K * d].reshape(horizon + 1, K, d) - 1,
        "coin": coin[:, 0],
        "jackpot": rare[:, :K],
        "eps": raw["coin"],
        "priority": raw["act"][:, :K],
        "explore": np.floor(raw["block"] * block),
        "boot": raw["exponential"][:, : K * 20].reshape(-1, K, 20),
        "normal": raw["normal"][:, 0, :K],
        "normal_theta": raw["normal"][:, 1, :d],
    } | _ties(horizon, K)


# --- Instances ---------------------------------------------------------------------------------------------------------------


def _same(ours, theirs, what):
    """Returns the reference's number after checking that the simulator's is its float32."""
    theirs = np.broadcast_to(np.asarray(theirs, float), np.shape(ours))
    np.testing.assert_allclose(ours, theirs, rtol=2e-7, atol=1e-7, err_msg=what)
    return theirs


def env_of(inst, shows_all=False):
    """The simulator's environment of an instance of the reference, with its numbers in double precision."""
    (K, m), evaluator = inst.rho.shape, None
    if inst.theta.size and inst.distribution != "FROZEN_X":
        shift = inst.shift if inst.shift.any() else None
        evaluator = ScoredFeatures(
            ca.instances.default_theta(inst.theta.size), shift, link=links.SCORE_LINKS[inst.reward_link]
        )
    uniform = functools.partial(ca.uniform_cascade, K, m, link=inst.link, evaluator=evaluator, shows_all=shows_all)
    made = {
        "LOC": uniform,
        "TANH": uniform,
        "HET": lambda: uniform(tilt=inst.amplitude),
        "MISSPEC": lambda: uniform(bend=0.05),
        "SPIKE": lambda: ca.spike_cascade(K, m, evaluator=evaluator),
        "PASSFAIL": lambda: ca.pass_fail_cascade(K, m, evaluator=evaluator),
        "GROUP": lambda: ca.group_cascade(evaluator=evaluator),
        "SAFE_RISKY": lambda: ca.safe_and_risky(inst.rho[0, 0] - inst.rho[1, 0], evaluator=evaluator),
        "TWOBOX": ca.two_boxes,
        "FROZEN_X": ca.frozen_cascade,
    }[inst.distribution]()
    boxes = {"base_cost": inst.mean_cost, "quantile": inst.quantile, "spread": inst.spread}
    if inst.distribution == "HET":
        boxes["tilt"] = inst.amplitude
    if inst.distribution == "PASSFAIL":
        boxes = {"base_probability": 0.25 + 0.5 * np.arange(K) / (K - 1), "slope": 0.1, "low": ref.LOW, "high": ref.HIGH}
    if inst.distribution == "TWOBOX":
        boxes = {"base_probability": [1.0, 0.1], "low": 0.0, "high": 1.0, "spread": 0.0}
    if inst.distribution == "SPIKE":
        boxes |= {"top": ref.JACKPOT, "jackpot": ref.JACKPOT_CHANCE}
    exact = {"index": inst.rho, "boxes": boxes}
    if inst.distribution == "GROUP":
        exact["contexts"] = {"probabilities": ref.GROUP_PROBABILITY}
    if inst.distribution == "MISSPEC":
        exact["bend"] = 0.05
    if evaluator is not None:
        exact["evaluator"] = {"theta": inst.theta}

    def sharpened(ours, numbers):
        parts = {}
        for name, value in numbers.items():
            own = getattr(ours, name)
            parts[name] = sharpened(own, value) if isinstance(value, dict) else _same(own, value, name)
        return ours.replace(**parts)

    return sharpened(made, exact).replace(cost_weight=inst.weight)


def instance(distribution="LOC", **options):
    """An instance of the reference, whose flat link bends where the simulator's does, and the bounds the simulator knows."""
    options = {"gap": 0.1} | ({"iota0": 0.9} if options.get("link") == "flat" else {}) | options
    inst = ref.instance(distribution, **options)
    own = env_of(inst)
    return inst._replace(C_psi=own.context_bound, C_phi2=own.feature_bound**2)


DISTRIBUTIONS = ("LOC", "HET", "SPIKE", "PASSFAIL", "TANH", "GROUP", "SAFE_RISKY", "MISSPEC", "TWOBOX", "FROZEN_X")


@_quick_jit
def _worlds(env, key):
    k_env, _, _, k_env_init, _ = draws.split(key, 5)

    def at(t):
        return env.draw(draws.fold_in(k_env, t), env.init(k_env_init), t)

    return jax.vmap(at)(jnp.arange(401, dtype=jnp.int32))


WORLDS = {distribution: {"distribution": distribution} for distribution in DISTRIBUTIONS if distribution != "FROZEN_X"}
WORLDS |= {
    f"{distribution}, unknown": {"distribution": distribution, "d": 4}
    for distribution in DISTRIBUTIONS
    if distribution != "TWOBOX"
}
WORLDS |= {
    "probit": {"d": 3, "reward_link": "probit"},
    "rewards around the score": {"d": 3, "reward_link": "identity"},
    "shift": {"d": 2, "shift": np.arange(6.0).reshape(3, 2) / 6},
    "K10": {"K": 10, "m": 5, "d": 8},
    "HET, K10": {"distribution": "HET", "K": 10, "m": 2},
    "SPIKE, K5": {"distribution": "SPIKE", "K": 5, "m": 5},
    "PASSFAIL, K5": {"distribution": "PASSFAIL", "K": 5, "m": 4},
    "flat": {"link": "flat"},
    **{f"{distribution}, weight": {"distribution": distribution, "weight": 2.5} for distribution in DISTRIBUTIONS},
    **{f"{distribution}, small weight": {"distribution": distribution, "weight": 0.3} for distribution in DISTRIBUTIONS},
}
KNOWN_QUICK, UNKNOWN_QUICK = ("HET", "MISSPEC", "TWOBOX, weight"), ("SPIKE", "PASSFAIL", "GROUP", "FROZEN_X")


@pytest.mark.parametrize("name", some(WORLDS, (*KNOWN_QUICK, *(f"{name}, unknown" for name in UNKNOWN_QUICK))))
def test_worlds(name):
    """Requests, indices, scores, costs, mean costs and features of 401 periods."""
    inst = instance(**WORLDS[name])
    with double():
        ours = jax.tree.map(np.asarray, _worlds(doubles(env_of(inst)), KEY))
    noise = noise_of(inst, 400)
    d = inst.theta.size
    world = ref.outcomes(inst, noise["psi"], noise["U"], noise["L"], noise["z"] if d else None, noise["jackpot"])
    assert ours.score.dtype == np.float64
    np.testing.assert_array_equal(ours.psi, noise["psi"])
    np.testing.assert_array_equal(ours.coin, noise["coin"])
    # With jackpots the index is found by halving the interval [-8, 1] forty times.
    atol = 2e-11 if inst.distribution == "SPIKE" else 1e-13
    np.testing.assert_allclose(ours.index, world.sigma, atol=atol)
    np.testing.assert_allclose(ours.score, world.score, atol=1e-13)
    np.testing.assert_allclose(ours.cost, inst.weight * world.cost, atol=1e-14)
    np.testing.assert_allclose(ours.mean_cost, inst.weight * world.mean_cost, atol=1e-14)
    if d:
        np.testing.assert_allclose(ours.features, world.phi, atol=1e-11)
        np.testing.assert_allclose(
            ref.REWARD_LINKS[inst.reward_link].value(ours.features @ inst.theta), ours.score, atol=1e-12
        )


# --- Runs --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A comparison: options of the instance, `policy(env, horizon)`, and the reference's options."""

    world: dict
    policy: Callable
    plain: dict
    horizon: int = HORIZON
    tolerance: float | None = None
    quick: bool = False


STREAM = {"estimator": "stream"}
ONLINE = {"evaluator": "stream"}
ZERO = {"b": 0.0, "c_p": 0.0, "c_r": 0.0}


def fit(case_fit, **options):
    """A policy with an index estimator."""
    return lambda env, T: ca.COSMOS(fit=case_fit(T) if callable(case_fit) else case_fit, **options)


def of(build, *options, **more):
    """A policy that depends on the environment, or on nothing."""
    return lambda env, T: build.of(env, *options, **more) if hasattr(build, "of") else build(*options, **more)


def exact_glm(iterations, fit=StreamingNewton()):
    """COSMOS with the exact evaluator."""
    return lambda env, T: ca.COSMOS(fit=fit(T) if callable(fit) else fit, evaluator=ExactGLM(T, iterations=iterations))


OFFLINE = ref.evaluator_coefficients(4) + 0.2 * np.cos(np.arange(4))  # What a fit on some pairs may have found.


def all_samples(T):
    return to_minimum(size=T + 1)


LOC, UNKNOWN = {}, {"d": 4}
# Rounding by 2.2e-16 in each of at most 200 rounds, magnified by the condition number of a streaming estimator's curvature, about
# 1 + T |psi|^2 / start = 1 + 200 * 3 / .1 = 6,001 at most: 2.7e-10.
ROUNDING = 1e-9
# Where few samples leave the ridge of 1e-4 to decide, differences of the loss of 1e-16 leave 1e-6 of the estimate open.
FLAT = 1e-6
CASES = {
    # Index estimators, known evaluator.
    "streaming": Case(LOC, fit(StreamingNewton()), STREAM),
    "window": Case(LOC, fit(to_minimum(size=8)), {"W": 8}, quick=True),
    "all samples": Case(LOC, fit(all_samples), {"W": 1000}),
    "exact": Case(LOC, fit(all_samples), {"estimator": "exact"}, tolerance=FLAT),
    "window, every 7": Case(LOC, fit(to_minimum(size=8, every=7)), {"W": 8, "refit_every": 7}),
    "window, options": Case(LOC, fit(to_minimum(size=5, ridge=1e-2, bound=0.6)), {"W": 5, "ridge": 1e-2, "R_B": 0.6}),
    "streaming, options": Case(LOC, fit(StreamingNewton(floor=0.3, start=1.0, bound=0.6)), STREAM | {"floor": 0.3, "A0": 1.0, "R_B": 0.6}),
    # Index links.
    "tanh": Case({"distribution": "TANH"}, fit(to_minimum(size=8)), {"W": 8}),
    "flat": Case({"link": "flat"}, fit(to_minimum(size=8)), {"W": 8}),
    "tanh, streaming": Case({"distribution": "TANH"}, fit(StreamingNewton()), STREAM),
    "flat, streaming": Case({"link": "flat"}, fit(StreamingNewton()), STREAM),
    "tanh, exact": Case({"distribution": "TANH"}, fit(all_samples), {"estimator": "exact"}, tolerance=FLAT),
    # Sizes.
    "K10, unknown": Case({"K": 10, "m": 2, "d": 3}, fit(StreamingNewton()), STREAM | ONLINE),
    # Distributions, with a cheap estimator.
    **{
        f"{distribution}": Case({"distribution": distribution}, fit(StreamingNewton()), STREAM)
        for distribution in DISTRIBUTIONS
        if distribution not in ("LOC", "TANH", "FROZEN_X")
    },
    **{
        f"{distribution}, unknown": Case({"distribution": distribution, "d": 4}, fit(StreamingNewton()), STREAM | ONLINE)
        for distribution in DISTRIBUTIONS
        if distribution not in ("LOC", "TWOBOX")
    },
    "TWOBOX, large bonus": Case({"distribution": "TWOBOX"}, fit(to_minimum(size=8), radius=PracticalRadius(index=5.0)), {"W": 8, "b": 5.0}),
    # Unknown evaluator.
    "unknown": Case(UNKNOWN, fit(to_minimum(size=8)), ONLINE | {"W": 8}, quick=True),
    "unknown, streaming": Case(UNKNOWN, fit(StreamingNewton()), STREAM | ONLINE),
    "unknown, tanh": Case({"distribution": "TANH", "d": 4}, fit(to_minimum(size=8)), ONLINE | {"W": 8}),
    "unknown, flat": Case({"link": "flat", "d": 4}, fit(to_minimum(size=8)), ONLINE | {"W": 8}),
    "unknown, both exact": Case(UNKNOWN, exact_glm(8, all_samples), {"estimator": "exact", "evaluator": "exact"}, 80, tolerance=FLAT),
    "unknown, exact evaluator": Case(UNKNOWN, exact_glm(6), STREAM | {"evaluator": "exact"}, quick=True),
    "unknown, probit": Case({"d": 4, "reward_link": "probit"}, fit(to_minimum(size=8)), ONLINE | {"W": 8}),
    "unknown, probit, exact evaluator": Case({"d": 4, "reward_link": "probit"}, exact_glm(8), STREAM | {"evaluator": "exact"}),
    "unknown, identity": Case({"d": 4, "reward_link": "identity"}, fit(to_minimum(size=8)), ONLINE | {"W": 8}),
    "unknown, identity, exact evaluator": Case({"d": 4, "reward_link": "identity"}, exact_glm(2), STREAM | {"evaluator": "exact"}),
    "unknown, shift": Case({"d": 4, "shift": 0.3 * np.cos(np.arange(12.0)).reshape(3, 4)}, fit(StreamingNewton()), STREAM | ONLINE),
    "unknown, ridges and bounds": Case(UNKNOWN, fit(StreamingNewton(), eta1=2.0, eta0=0.3, evaluator_bound=0.5), STREAM | ONLINE | {"eta1": 2.0, "eta0": 0.3, "R_theta": 0.5}),
    "unknown, own horizon": Case(UNKNOWN, fit(StreamingNewton(), horizon=5000.0), STREAM | ONLINE | {"horizon": 5000}),
    "frozen evaluator": Case(UNKNOWN, fit(to_minimum(size=8), evaluator=FrozenGLM(OFFLINE)), {"W": 8, "evaluator": "offline", "theta_offline": OFFLINE}),
    "deployment by the estimate": Case(UNKNOWN, fit(StreamingNewton(), deploy_optimism=0.0), STREAM | ONLINE | {"deploy_optimism": False}),
    # Cost weight, full information.
    "weight": Case({"weight": 2.0}, fit(StreamingNewton()), STREAM),
    "weight, unknown": Case({"weight": 0.5, "d": 4}, fit(StreamingNewton()), STREAM | ONLINE),
    "full information": Case(LOC, fit(StreamingNewton()), STREAM | {"full_information": True}),
    "full information, unknown": Case(UNKNOWN, fit(to_minimum(size=8)), ONLINE | {"W": 8, "full_information": True}),
    # Radii.
    "radii of the proofs": Case(LOC, fit(StreamingNewton(), radius=TheoreticalRadius()), STREAM | {"radius": "theory"}),
    "radii of the proofs, unknown": Case({"d": 4, "reward_link": "identity"}, fit(StreamingNewton(), radius=TheoreticalRadius()), STREAM | ONLINE | {"radius": "theory"}, quick=True),
    "radii of the proofs, own constants": Case(
        UNKNOWN, fit(StreamingNewton(), radius=TheoreticalRadius(0.9, 0.8, 0.2, 0.9, 1.2, 1.1), eta1=0.5, eta0=2.0, evaluator_bound=0.7),
        STREAM | ONLINE | {"radius": "theory", "eta1": 0.5, "eta0": 2.0, "R_theta": 0.7, "constants": ref.Constants(0.9, 0.8, 0.2, 4.0, 1.1, 0.9, 1.2, 0.7)},
    ),
    "own radii": Case(UNKNOWN, fit(StreamingNewton(), radius=PracticalRadius(0.03, 0.1, 0.6)), STREAM | ONLINE | {"b": 0.03, "c_p": 0.1, "c_r": 0.6}),
    "Thompson": Case(LOC, of(ca.ThompsonSampling), STREAM | {"radius": "thompson"}),
    "Thompson, unknown": Case(UNKNOWN, of(ca.ThompsonSampling), STREAM | ONLINE | {"radius": "thompson"}),
    "bootstrap": Case(LOC, of(ca.BootstrapCOSMOS), STREAM | {"radius": "bootstrap", "warm": 10}, 60),
    "bootstrap, floor, unknown": Case(
        UNKNOWN, of(ca.BootstrapCOSMOS, radius=BootstrapRadius(floor=PracticalRadius(index=0.06)), exploration=WarmUp(0)),
        STREAM | ONLINE | {"radius": "bootstrap", "boot_floor": 0.06}, 40, quick=True,
    ),
    # Exploration.
    "greedy, warm": Case(LOC, of(ca.Greedy, fit=StreamingNewton(), exploration=WarmUp(10)), STREAM | ZERO | {"warm": 10}),
    "greedy, unknown": Case(UNKNOWN, of(ca.Greedy, fit=StreamingNewton()), STREAM | ONLINE | ZERO),
    "epsilon": Case(LOC, of(ca.EpsilonGreedy, fit=to_minimum(size=8)), ZERO | {"W": 8, "explore": "eps"}),
    "epsilon, unknown": Case(UNKNOWN, of(ca.EpsilonGreedy, fit=StreamingNewton(), exploration=DecayingExploration(0.7)), STREAM | ONLINE | ZERO | {"explore": "eps", "eps0": 0.7}),
    "then commit": Case(LOC, of(ca.ExploreThenCommit, fit=StreamingNewton()), STREAM | ZERO | {"explore": "etc"}),
    "then commit, unknown": Case(UNKNOWN, of(ca.ExploreThenCommit, fit=to_minimum(size=8)), ONLINE | ZERO | {"W": 8, "explore": "etc"}),
    "online gradient": Case(LOC, of(ca.OnlineGradient), {"kind": "ogd_explore"}, quick=True),
    "online gradient, unknown": Case(UNKNOWN, of(ca.OnlineGradient), ONLINE | {"kind": "ogd_explore"}),
    "online gradient, tanh": Case({"distribution": "TANH"}, of(ca.OnlineGradient), {"kind": "ogd_explore"}),
    "location family": Case(LOC, of(ca.DistributionLearner), {"kind": "location_family"}, 200),
    "location family, unknown": Case(UNKNOWN, of(ca.DistributionLearner), ONLINE | {"kind": "location_family"}),
    # Baselines.
    **{
        name + more: Case(world, of(build, *args), plain | (ONLINE if world else {}))
        for more, world in (("", LOC), (", unknown", UNKNOWN))
        for name, build, args, plain in (
            ("oracle", ca.Oracle, (), {"kind": "oracle"}),
            ("static index", ca.StaticIndex, (), {"kind": "static_index"}),
            ("best single", ca.BestSingle, (), {"kind": "best_single"}),
            ("context single", ca.ContextSingle, (), {"kind": "ctx_single_oracle"}),
            ("all", ca.QueryAll, (), {"kind": "query_all"}),
            ("LinUCB", ca.LinUCB, (), {"kind": "linucb"}),
            ("random", ca.RandomCascade, (), {"kind": "random_cascade"}),
        )
    },
    "LinUCB, options": Case(LOC, of(ca.LinUCB, 0.1, 3.0), {"kind": "linucb", "alpha": 0.1, "lam": 3.0}),
    "frugal": Case(LOC, of(functools.partial(ca.Frugal)), {"kind": "frugal"}),
    "frugal, unknown": Case(UNKNOWN, of(functools.partial(ca.Frugal)), ONLINE | {"kind": "frugal"}),
    "frugal, stages": Case({"K": 4}, of(functools.partial(ca.Frugal, np.array([9.0, 0.45, 0.65, 0.55]))), {"kind": "frugal", "tau": [0.45, 0.65, 0.55]}, quick=True),
    "frugal, stages, unknown": Case({"distribution": "SAFE_RISKY", "d": 3}, of(functools.partial(ca.Frugal, np.array([0.1, 0.4]))), ONLINE | {"kind": "frugal", "tau": [0.4]}),
    "frugal, order": Case({"distribution": "TWOBOX"}, lambda env, T: ca.Frugal(np.array([0.7, 0.0]), cost_order(env)), {"kind": "frugal", "tau": [0.7]}),
}  # fmt: skip

FLOWS = {"regret": "regret", "mean_cost_regret": "regret_mean_cost", "realised_regret": "regret_realised"}
FLOWS |= {"reward": "reward", "cost": "cost", "queries": "queries"}


def close(ours, theirs, what, atol):
    np.testing.assert_allclose(ours, theirs, atol=atol, rtol=atol, err_msg=what)


def equal(ours, theirs, what):
    different = np.flatnonzero((ours != theirs).reshape(len(ours), -1).any(axis=1))
    assert not different.size, f"{what} differs in {different.size} rounds, the first is {different[0]}"


def assert_same_run(seen, want, inst, tolerance):
    """Equal decisions in every round; regrets, indices, bonuses and estimates to so many digits."""
    feedback, flows, options = seen["feedback"], seen["flows"], want["options"]
    equal(feedback.opened, want["opened"], "opened")
    equal(feedback.seen, want["seen"], "seen")
    equal(np.where(feedback.deployed.any(1), feedback.deployed.argmax(1), -1), want["deployed"], "deployed")
    assert (feedback.deployed.sum(1) == (np.arange(len(want["opened"])) > 0)).all()
    equal(flows["opened"], want["opened"].astype(float), "opened")
    for ours, theirs in FLOWS.items():  # From the first charged period on.
        assert flows[ours].dtype == np.float64
        close(flows[ours][1:], want[theirs][1:], ours, 2e-11 if inst.distribution == "SPIKE" else 1e-12)
    close(flows["utility"][1:], (want["reward"] - inst.weight * want["cost"])[1:], "utility", 1e-12)
    for name in ("empty", "violations"):
        assert not flows[name].any(), name
    assert not want["violation"].any()
    if inst.theta.size:
        close(feedback.reward, want["noisy_reward"], "reward", 1e-12)
    close(seen["priority"][1:], want["priority"][1:], "priority", tolerance)
    # The threshold of the first box of a fixed order does not matter: infinite in the reference.
    first = np.isinf(want["threshold"]) & (options["kind"] == "frugal")
    close(np.where(first, np.inf, seen["threshold"])[1:], want["threshold"][1:], "threshold", tolerance)
    if "rho" in seen:
        assert_same_indices(seen, want, tolerance)
    if "evaluation" in seen["last"] and options["evaluator"] != "offline":
        last = seen["last"]["evaluation"]
        if options["radius"] != "thompson":  # There it is a draw that scores.
            close(seen["theta"], want["theta_hat"], "theta", tolerance)
            close(seen["beta"][1:], want["beta"][1:], "beta", 1e-11)
        close(last.state.theta, want["state"]["theta"], "last theta", tolerance)
        close(last.inverse, np.linalg.inv(want["state"]["Phi"]), "Phi", 1e-11)


def assert_same_indices(seen, want, tolerance):
    """Estimates, bonuses, optimism and designs of a policy that learns indices."""
    last, state, options = seen["last"], want["state"], want["options"]
    equal(seen["n"], want["n"], "samples")
    norm = want["B"] * want["norm"]
    if options["kind"] != "location_family":
        close(seen["rho"], want["rho_hat"], "rho", tolerance)
        close(last["rho"].T, state["rho"], "last rho", tolerance)
        bonus = want["u"] - np.einsum("tkm,tm->tk", want["rho_hat"], seen["psi"])
        close(seen["info"]["bonus"][1:], bonus[1:], "bonus", tolerance)
    if options["kind"] == "location_family" or options["radius"] in ("practical", "theory"):
        close(seen["info"]["bonus"][1:], norm[1:], "bonus by its radius", 1e-11)
    close(seen["info"]["index"][1:], want["sigma_opt"][1:], "index", tolerance)
    for name in ("optimistic", "optimistic_score"):
        equal(seen["flows"][name][1:], want[name][1:].astype(float), name)
    close(np.moveaxis(last["design"], -1, 0), np.linalg.inv(state["V"]), "V", 1e-11)
    close(last["potential"], want["potential"].sum(0), "potential", 1e-11)
    if "trace" in seen["info"]:
        close(seen["info"]["trace"], want["trace"], "trace", 1e-10)
        close(np.moveaxis(last["opened"], -1, 0), state["Psi"], "Psi", 1e-10)
        close(last["score_potential"], want["reward_potential"].sum(), "score potential", 1e-10)


def compare(case):
    inst = instance(**case.world)
    own = env_of(inst, shows_all=case.plain.get("full_information", False))
    seen = play(own, case.policy(own, case.horizon), case.horizon)
    return inst, seen, ref.run(inst, case.plain, noise_of(inst, case.horizon))


@pytest.mark.parametrize("name", some(CASES, [name for name, case in CASES.items() if case.quick]))
def test_policies_equal_the_reference_round_by_round(name):
    inst, seen, want = compare(CASES[name])
    # Where few samples leave the ridge to decide, rounding is magnified.
    newton = want["options"]["estimator"] == "window"
    assert_same_run(seen, want, inst, CASES[name].tolerance or (1e-7 if newton else ROUNDING))


PATHS = {
    "window": (LOC, Window(), {}),
    "window of 8": (LOC, Window(size=8), {"W": 8}),
    "all samples": (LOC, Window.exact(200), {"W": 201}),
    "five boxes": ({"K": 5, "m": 5}, Window(), {}),
    "spikes": ({"distribution": "SPIKE"}, Window(), {}),
    "tanh": ({"distribution": "TANH"}, Window(), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", some(PATHS, ["window"]))
def test_every_decision_in_single_precision_is_that_of_the_exact_index(name):
    """As shipped, 200 rounds."""
    world, window, plain = PATHS[name]
    inst, T = instance(**world), 200
    policy, own = ca.COSMOS(fit=window), env_of(inst)
    own, policy = (jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), part) for part in (own, policy))
    seen = jax.tree.map(np.asarray, _play(own, policy, KEY, T, classes_of((own, policy))))
    want = ref.run(inst, plain, noise_of(inst, T))
    assert seen["rho"].dtype == np.float32
    equal(seen["feedback"].opened, want["opened"], "opened")
    equal(seen["feedback"].deployed[1:].argmax(1), want["deployed"][1:], "deployed")
    # The least curvature is the ridge of 1e-4: what seven digits leave of an estimate before there are many samples.
    assert np.abs(np.einsum("tkm,tm->tk", seen["rho"] - want["rho_hat"], seen["psi"]))[1:].max() < 1e-3


@slow
@pytest.mark.parametrize("world", [LOC, UNKNOWN, {"distribution": "TANH"}], ids=["known", "unknown", "tanh"])
def test_moment_equations(world):
    """Once there are enough samples, every way to the root of the moments ends there, and decides alike."""
    inst, T, warm = instance(**world), 100, 30
    plain = {"estimator": "gmm", "warm": warm} | (ONLINE if world == UNKNOWN else {})
    policy = ca.COSMOS(fit=MomentEquations(size=T + 1, tolerance=1e-11, iterations=60, ridge=0.0), exploration=WarmUp(warm))
    seen, want = play(env_of(inst), policy, T), ref.run(inst, plain, noise_of(inst, T))
    close(seen["rho"][warm:], want["rho_hat"][warm:], "rho", 1e-7)
    equal(seen["feedback"].opened, want["opened"], "opened")
    equal(seen["feedback"].deployed[1:].argmax(1), want["deployed"][1:], "deployed")


def test_saturated_scores_are_told_apart():
    """The widths of the proofs bring all scores to 1; the largest linear predictor is deployed, of which 1 keeps nothing."""
    inst = instance(d=4)
    own = env_of(inst)
    T = 40
    seen = play(own, ca.COSMOS(fit=StreamingNewton(), radius=TheoreticalRadius()), T)
    noise, Phi = noise_of(inst, T), np.eye(4)
    phi = ref.outcomes(inst, noise["psi"], noise["U"], noise["L"], noise["z"]).phi
    for t in range(1, T + 1):
        norm = np.sqrt(np.einsum("kd,de,ke->k", phi[t], np.linalg.inv(Phi), phi[t]))
        predictor = phi[t] @ seen["theta"][t] + seen["beta"][t] * norm
        assert seen["feedback"].opened[t].all() and seen["feedback"].deployed[t].argmax() == predictor.argmax()
        Phi += np.outer(phi[t, predictor.argmax()], phi[t, predictor.argmax()])
        if t < 5:
            assert (ref.expit(predictor) == 1).all()


# --- Parts, on thousands of random instances ---------------------------------------------------------------------------------


INDEX_LINKS = {"identity": links.IDENTITY, "tanh": links.TANH, "flat": links.FLAT}
SCORE_LINKS = {"logistic": links.LOGISTIC, "probit": links.PROBIT, "identity": links.IDENTITY}


@pytest.mark.parametrize("name", INDEX_LINKS)
def test_loss_moment_and_curvature(name):
    """Also the quadrature of eq. (8), from 0 to `u`."""
    rng, n = np.random.default_rng(0), 4000
    link, plain = INDEX_LINKS[name], ref.index_link(name, 0.9)
    u, score, cost = rng.uniform(-2.5, 2.5, n), rng.uniform(0, 0.999, n), rng.uniform(0, 1, n)
    with double():
        ours = [np.asarray(f(link, *map(jnp.asarray, (u, score, cost)))) for f in (index_loss.loss, index_loss.moment)]
        zero = np.asarray(index_loss.loss(link, jnp.zeros(n), jnp.asarray(score), jnp.asarray(cost)))
        bend = np.asarray(index_loss.curvature(link, jnp.asarray(u), jnp.asarray(score), 0.2))
    losses = ref.index_losses(np.ones(1), u[:, None], score, cost, plain)
    close(ours[0] - zero, losses, "loss", 2e-9)  # One constant of the simulator's links is a float32.
    few, middles = slice(500), (np.arange(4000) + 0.5) / 4000
    inside = score[few, None] - plain.value(u[few, None] * middles)
    integral = u[few] * (cost[few] - np.maximum(inside, 0).mean(axis=1))
    close((ours[0] - zero)[few], integral, "quadrature", 1e-6)
    close(ours[1], cost - np.maximum(score - plain.value(u), 0), "moment", 1e-14)
    close(bend, np.maximum(plain.value(u) < score, 0.2) * plain.slope(u), "curvature", 1e-13)


def moment_steps(box, rho, theta, link, G, damping=0.01, ridge=1e-4, floor=0.1):
    """rho after five damped Gauss-Newton steps on the summed moments, as `MomentEquations` takes them: 4.3.6 leaves the
    damping open.
    """
    psi, _, c, _ = (np.array(part) for part in zip(*box["window"], strict=True))
    M = np.array([sample[1] if G is None else G.value(theta @ sample[3]) for sample in box["window"]])
    linear = box["g0"] - (box["C0"] @ theta if G is not None else 0)
    weight = np.linalg.inv(psi.T @ psi + damping * np.eye(len(rho)))
    for _ in range(5):
        moments = ref.index_gradient(rho, psi, M, c, link) + box["H0"] @ rho + linear + ridge * rho
        J = ref.index_curvature(rho, psi, M, link, floor) + box["H0"] + ridge * np.eye(len(rho))
        rho = rho - np.linalg.solve(J @ weight @ J + damping * np.eye(len(rho)), J @ weight @ moments)
    return ref.shorten(rho, 2.0)


KINDS = [("identity", None, False), ("tanh", "logistic", False), ("flat", "identity", False)]
MORE_KINDS = [
    ("tanh", None, False),
    ("flat", None, False),
    ("identity", "probit", False),
    ("identity", None, True),
    ("tanh", "logistic", True),
]


@pytest.mark.parametrize(("index", "scores", "moments"), [*KINDS, *(pytest.param(*kind, marks=slow) for kind in MORE_KINDS)])
def test_windows_of_many_boxes(index, scores, moments):
    """Two hundred boxes of their own samples, with windows that overflow, and an evaluator that moves."""
    rng, K, m, d, T, W = np.random.default_rng(1), 200, 3, 2, 14, 5
    fit = MomentEquations(size=W, iterations=5, tolerance=0.0) if moments else to_minimum(size=W)
    link = INDEX_LINKS[index]
    plain = ref.index_link(index, 0.9)
    steps = moment_steps if moments else ref.window_fit
    G = None if scores is None else ref.REWARD_LINKS[scores]
    psi, seen = ref.context(rng.uniform(-1, 1, (T, m - 1))), rng.random((T, K)) < 0.7
    score, cost = rng.uniform(0, 0.98, (T, K)), rng.uniform(0, 0.3, (T, K))
    phi, theta = rng.normal(size=(T, K, d)), rng.normal(size=(T, d))

    def one(carry, now):
        t, psi, seen, score, cost, phi, theta = now
        evaluator = None if G is None else index_loss.Evaluator(theta, SCORE_LINKS[scores])
        state, rho = fit.update(*carry, index_loss.Sample(t, psi, seen, cost, score, phi), evaluator, link)
        return (state, rho), rho

    @_quick_jit
    def fitted(*rows):
        start = fit.init(index_loss.Sizes(K, m, 0 if G is None else d)), jnp.zeros((m, K))
        return jax.lax.scan(one, start, rows)[1]

    with double():
        ours = np.asarray(fitted(*map(jnp.asarray, (np.arange(T), psi, seen, score, cost, phi, theta))))
    for a in range(K):
        box, rho = ref.empty_box(m, d), np.zeros(m)
        for t in range(T):
            if seen[t, a]:
                ref.window_add(box, (psi[t], score[t, a], cost[t, a], phi[t, a]), rho, theta[t], W, plain, G)
            if box["window"] and (seen[t, a] or G is not None):
                rho = steps(box, rho, theta[t], plain, G)
            close(ours[t, :, a], rho, f"box {a}, round {t}", 1e-7)


@pytest.mark.parametrize("index", some(INDEX_LINKS, ["identity"]))
def test_streams_of_many_boxes(index):
    """With weights, on a thousand boxes."""
    rng, K, m, T = np.random.default_rng(2), 1000, 3, 12
    fit, link, plain = StreamingNewton(bound=1.5), INDEX_LINKS[index], ref.index_link(index, 0.9)
    psi, weight = ref.context(rng.uniform(-1, 1, (T, m - 1))), rng.exponential(size=(T, K)) * (rng.random((T, K)) < 0.7)
    score, cost = rng.uniform(0, 0.98, (T, K)), rng.uniform(0, 0.3, (T, K))

    @_quick_jit
    def fitted(*rows):
        def one(carry, row):
            psi, score, cost, weight = row
            carry = fit.weighted(*carry, index_loss.Sample(None, psi, None, cost, score, None), weight, link)
            return carry, carry[1]

        return jax.lax.scan(one, (fit.init(index_loss.Sizes(K, m, 0)), jnp.zeros((m, K))), rows)[1]

    with double():
        ours = np.asarray(fitted(*map(jnp.asarray, (psi, score, cost, weight))))
    for a in range(K):
        A, rho = 0.1 * np.eye(m), np.zeros(m)
        for t in np.flatnonzero(weight[:, a]):
            A, rho = ref.stream_update(A, rho, psi[t], score[t, a], cost[t, a], plain, 0.1, 1.5, weight[t, a])
            close(ours[t, :, a], rho, f"box {a}, round {t}", 1e-10)


@pytest.mark.parametrize("name", some(SCORE_LINKS, ["probit"]))
def test_penalised_estimates(name):
    """The exact and the online estimate of three hundred data sets, in a large and a small ball, some pairs of which are not seen."""
    rng, N, n, d, eta0 = np.random.default_rng(3), 300, 25, 4, 0.7
    link, G = SCORE_LINKS[name], ref.REWARD_LINKS[name]
    phi, r, seen = rng.normal(size=(N, n, d)), rng.integers(0, 2, (N, n)).astype(float), rng.random((N, n)) < 0.9

    @_quick_jit
    def fitted(*pairs):
        def final(model, bound):
            def add(state, pair):
                return model.add(state, *pair, eta0, link, bound), None

            return jax.lax.scan(add, model.init(d, eta0), pairs)[0].theta

        exact = ExactGLM(n, iterations=15)
        return final(exact, 2.0), final(exact, 0.5), final(glm.OnlineGLM(), 0.9)

    with double():
        exact, short, stream = (np.asarray(x) for x in jax.vmap(fitted)(*map(jnp.asarray, (phi, r, seen))))
    for i in range(N):
        theta = ref.fit_glm(phi[i, seen[i]], r[i, seen[i]], eta0, G)
        for ours, radius in ((exact, 2.0), (short, 0.5)):
            close(ours[i], ref.shorten(theta, radius), f"data set {i} in a ball of {radius}", 1e-10)
        H, z, theta = eta0 * np.eye(d), np.zeros(d), np.zeros(d)
        for row, reward in zip(phi[i, seen[i]], r[i, seen[i]], strict=True):
            H, z, theta = ref.irls_update(H, z, theta, row, reward, G, 0.9)
        close(stream[i], theta, f"stream {i}", 1e-9)
    theta = ref.fit_glm(phi[0, seen[0]], r[0, seen[0]], eta0, G)
    close(glm.fit_glm(phi[0, seen[0]], r[0, seen[0]], link, eta0), theta, "float32", 2e-6)


@pytest.mark.parametrize(("K", "n"), [(1, 100), (2, 20_000), (3, 20_000), (4, 40_000), (6, 20_000)])
def test_searches_equal_the_literal_loop(K, n):
    """A hundred thousand cases full of ties, with thresholds in any order, infinite ones, and boxes that are not there."""
    rng = np.random.default_rng(K)
    priority, threshold, score, final = (rng.integers(0, 5, (n, K)) / 4 for _ in range(4))
    for table, share in ((threshold, 0.1), (priority, 0.1)):
        table[rng.random((n, K)) < share] = np.inf
    threshold[rng.random((n, K)) < 0.1] = -np.inf
    weitzman = rng.random(n) < 0.4
    threshold[weitzman] = priority[weitzman]
    masked = (rng.random((n, K)) < 0.1) & (np.arange(K) > 0)
    priority[masked] = threshold[masked] = -np.inf
    final[::2] = score[::2]

    @jax.jit
    @jax.vmap
    def found(priority, threshold, score, final):
        opened = search.opened_in_order(priority, threshold, score)
        return opened, search.best_opened(opened, final)

    opened, deployed = (
        np.asarray(x) for x in found(*(jnp.asarray(x, jnp.float32) for x in (priority, threshold, score, final)))
    )
    assert (deployed.sum(1) == 1).all()
    rows = [x.tolist() for x in (priority, threshold, score, final)]
    for i, (of_row, choice) in enumerate(zip(opened, deployed.argmax(1), strict=True)):
        mask, best, _ = ref.search(*(x[i] for x in rows))
        assert (of_row == mask).all() and choice == best, i


def test_reservation_indices():
    """Closed forms, discrete distributions and halving against each other on thousands of boxes."""
    rng, n = np.random.default_rng(5), 5000
    low, width, cost, p = rng.random(n), rng.uniform(0.01, 1, n), rng.uniform(0.001, 1, n), rng.uniform(0.01, 1, n)
    with double():
        uniform = np.asarray(reservation.uniform_index(low, width, cost))
        two = np.asarray(reservation.two_point_index(low, low + width, p, cost))
        halved = np.asarray(
            reservation.index_by_bisection(
                lambda s: (1 - p) * jnp.maximum(low - s, 0) + p * jnp.maximum(low + width - s, 0), cost, high=2.0
            )
        )
    close(uniform, ref.index_uniform(low, width, cost), "uniform", 1e-13)
    close(two, ref.index_two_point(low, low + width, p, cost), "two points", 1e-12)
    close(halved, two, "halving", 1e-11)
    pieces = [(1 - p, low, np.zeros(n)), (p, low, width)]
    close(ref.distribution_excess(pieces, ref.index_bisection(pieces, cost, 60, -3.0, 3.0)), cost, "reference", 1e-11)
    for _ in range(2000):
        size = rng.integers(1, 7)
        values, probability, price = rng.integers(0, 9, size) / 8, rng.dirichlet(np.ones(size)), rng.random()
        close(
            reservation.discrete_index(values, probability, price),
            ref.index_discrete(values, probability, price),
            "discrete",
            1e-12,
        )


def test_bounds_and_ridges():
    """Formulas of the theory, which the simulator evaluates in float32."""
    rng = np.random.default_rng(6)
    for _ in range(15):
        K, m, d, T = rng.integers(2, 11), rng.integers(1, 21), rng.integers(1, 17), int(10 ** rng.uniform(1, 6))
        longest, output, eta1, eta0, growth = np.float32(rng.uniform(0.5, 4, 5)).tolist()
        constants = dict(
            zip(("mass", "slope", "reach", "score_slope", "reward_bound", "lipschitz"), rng.uniform(0.1, 1.2, 6))
        )
        constants["mass"] = min(constants["mass"], 1.0)
        kappa, mu1, iota, mu_low, gamma0, L = constants.values()
        k = ref.Constants(kappa, mu1, iota, 3.0, L, mu_low, gamma0, 2.5)
        radius = TheoreticalRadius(**constants)
        options = {"index_bound": 1.5, "evaluator_bound": 2.5}
        sizes = {"num_models": int(K), "context_dim": int(m), "context_bound": longest}
        known = ca.regret_bound(CascadeSpec(**sizes), T, radius, eta1=eta1, **options)
        close(known, ref.regret_bound_known(T, m, K, longest, eta1, k), "(58)", 1e-5)
        spec = CascadeSpec(**sizes, feature_dim=int(d), feature_bound=output)
        ours = ca.regret_bound(spec, T, radius, eta1=eta1, eta0=eta0, growth=growth, **options)
        bound = ref.regret_bound_unknown(T, m, K, d, longest, output**2, eta1, eta0, growth, k)
        close(ours, bound, "(86)", 1e-5)
        close(potential_bound(T, int(m), longest, eta1), ref.potential_bound(T, m, longest**2, eta1), "potential", 1e-12)
        for corrected in (False, True):
            close(ridge_rule(int(K), int(m), int(d), corrected=corrected), ref.eta_rule(d, m, K, corrected), "ridges", 1e-12)


@pytest.mark.parametrize("distribution", some(DISTRIBUTIONS, ("LOC", "TWOBOX")))
def test_values_of_a_request(distribution):
    """By the simulator's integration in float32 and by the reference's exact one."""
    inst = instance(distribution, weight=1.5)
    for psi in noise_of(inst, 2)["psi"][1:]:
        close(ca.oracle_value(env_of(inst), psi), ref.oracle_value(inst, psi), "oracle", 2e-5)


@pytest.mark.parametrize("distribution", some(DISTRIBUTIONS, ("MISSPEC", "FROZEN_X")))
def test_what_policies_know(distribution):
    """The best single model, values of single calls, indices that ignore the request, the order of costs."""
    inst = instance(distribution)
    own = env_of(inst)
    grid, weights = ref.context_grid(inst)
    means = weights @ ref.single_values(inst, grid)
    # Averages over 20,000 requests.
    error = np.sqrt(weights @ (ref.single_values(inst, grid) - means) ** 2 / 20_000)
    assert (np.abs(single_values(own) - means) < 5 * error + 1e-6).all()
    assert int(ca.BestSingle.of(own).model) == ref.best_single(inst) == means.argmax()
    np.testing.assert_array_equal(cost_order(own), ref.cost_rank(inst))
    with double():
        index = np.asarray(ca.StaticIndex.of(doubles(own)).act(None, (), Observation(None), 0)[0].priority)
        value = jax.vmap(doubles(own).single_value)(jnp.asarray(grid))
    close(index, ref.static_index(inst), "static index", 2e-11)
    close(value, ref.single_values(inst, grid), "single values of a request", 1e-13)
