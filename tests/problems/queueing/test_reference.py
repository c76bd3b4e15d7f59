"""The queueing problem (CQB-MNL, ACQB) against the plain float64 loops of `reference/queueing.py`, round by round on shared draws.

Section numbers are those of `spec/acqb.md`. The simulator runs in double precision here (`conftest.in_double`), so that decisions
can be compared exactly; its draws keep their float32 bits, and are handed to the reference as float64 numbers.
"""

import functools
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_means_agree, in_double, x64
from reference import queueing as ref
from scipy.special import expit

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.engine.programs import trace_count
from jaxroute.engine.rollout import draws_key, run_streams
from jaxroute.estimators import gaussian, mnl
from jaxroute.estimators.confidence import mnl_radius
from jaxroute.problems import queueing as rq
from jaxroute.problems.queueing.acqb import next_combination
from jaxroute.problems.queueing.backlog import best_place, place_of_rank
from jaxroute.problems.queueing.choice import choose, departure_rate
from jaxroute.solvers import assortment

slow = pytest.mark.slow
FLOWS = {
    "routing_regret": "routing_gap",
    "joint_regret": "joint_gap",
    "departures": "departure",
    "retrials": "retrial",
    "idle": "idle",
    "explored": "explored",
    "sojourn": "sojourn",
}
KEY = draws.key(7)
RIDGE01 = np.float32(0.1)  # The number that both sides take for a ridge of 0.1.

# --- Shared draws ------------------------------------------------------------------------------------------------------------


# Compiling takes most of the time here: less care saves a quarter of it.
@functools.partial(jax.jit, static_argnames="horizon", compiler_options={"xla_backend_optimization_level": 0})
def _play(env, policy, key, horizon):
    def one(carry, t):
        env_state, policy_state = carry
        k_round = draws.fold_in(key, t)
        obs = env.observe(k_round, env_state, t)
        action, info = policy.act(k_round, policy_state, obs, t)
        env_state, feedback, flows = env.step(k_round, env_state, action, t)
        policy_state = policy.update(k_round, policy_state, obs, action, feedback, t)
        place = action.query if obs.arrival is None else obs.arrival[jnp.minimum(action.query, obs.arrival.shape[0] - 1)]
        seen = {"query": place, "offered": action.offered, "chosen": feedback.chosen, "queue": obs.queue_length}
        seen |= {"flows": flows, "gauges": env.gauges(env_state)}
        if hasattr(policy_state, "theta"):
            seen |= {"theta": policy_state.theta, "radius": info["radius"]}
        return (env_state, policy_state), seen

    start = env.init(key), policy.init(key, env.spec)
    (_, policy_state), seen = jax.lax.scan(one, start, jnp.arange(horizon, dtype=jnp.int32))
    return seen | {"state": policy_state}


def play(env, policy, double=True):
    """What happened in each round, and the policy's last state. In round t the policy's key is child t of `KEY`."""
    if not double:
        return jax.tree.map(np.asarray, _play(env, policy, KEY, env.spec.rounds))
    with x64():
        return jax.tree.map(np.asarray, _play(in_double(env), in_double(policy), KEY, env.spec.rounds))


@functools.partial(jax.jit, static_argnames=("horizon", "children", "size"))
def _uniforms_and_normals(key, horizon, children, size):
    def at(t):
        keys = draws.split(draws.fold_in(key, t), children)
        return [jnp.stack([draws.uniform(k, (size,)) for k in keys]), jnp.stack([draws.normal(k, (size,)) for k in keys])]

    return jax.vmap(at)(jnp.arange(horizon))


def luck_of(key, horizon, children=3, size=64):
    """Uniforms and normals `[T, children, size]` that a policy may draw from the children of its key in each round, as float64.

    A draw of fewer elements holds the first ones of a draw of more, so that one compiled function serves all shapes.
    """
    return [np.asarray(x, float) for x in _uniforms_and_normals(key, horizon, children, size)]


def learner_luck(horizon, parameters, d, M, key=KEY):
    """(coin `[T]`, normals `[T, parameters, d, M]`, size `[T]`) that `ACQB.act` draws."""
    number = parameters * d * M
    uniform, normal = luck_of(key, horizon, size=64 * -(-number // 64))
    return uniform[:, 0, 0], normal[:, 1, :number].reshape(horizon, parameters, d, M), uniform[:, 2, 0]


@dataclass(frozen=True)
class Luck:
    """An instance: theta `[N, d]` or `[d]`, contexts `[T, d]` or `[T, N, d]`, arrivals `[T]`, uniforms `[T]`."""

    theta: np.ndarray
    contexts: np.ndarray
    A: np.ndarray
    U: np.ndarray

    @property
    def utility(self):
        of = ref.shared_utilities if self.theta.ndim == 1 else ref.disjoint_utilities
        return of(self.theta, self.contexts)

    def env(self, K, limit=None, mixed=False):
        with x64():
            return rq.recorded_queue(self.theta, self.A, self.contexts, self.U, num_offered=K, limit=limit, mixed=mixed)


def instance(seed, T, N, d, K, pair=False, arrival_rate=0.7):
    rng = np.random.default_rng(seed)
    if pair:
        theta, contexts = rng.uniform(-1, 1, d), rng.uniform(-1, 1, (T, N, d))
    else:
        theta, contexts = ref.draw_instance(rng, T, N, d, K, arrival_rate, 0.03)
    return Luck(theta, contexts, rng.random(T) < arrival_rate, rng.random(T))


def assert_same_run(seen, luck, K, want, prompt=None, utility=None):
    """Equal decisions, choices, queues, flows and gauges in every round, and no flow that must be zero."""
    utility = luck.utility if utility is None else utility
    optimal = ref.simulate(luck.A, luck.U, utility, K, ref.Optimal(utility, K), prompt)
    busy = ~want["idle"]

    def equal(ours, theirs, what, rounds=slice(None)):
        different = np.flatnonzero((ours != theirs)[rounds].reshape(len(ours[rounds]), -1).any(axis=1))
        assert not different.size, f"{what} differs in {different.size} rounds, the first is {different[0]}"

    equal(seen["queue"], want["queue"], "queue length")
    queries = want["query"] if prompt is None else prompt[want["query"]]
    equal(seen["query"], queries, "query", busy)
    equal(seen["offered"], want["offered"], "assortment", busy)
    chosen = np.where(seen["chosen"].any(1), seen["chosen"].argmax(1), -1)
    equal(chosen, want["chosen"], "choice")
    for ours, theirs in FLOWS.items():
        expected = want[theirs].astype(float)
        np.testing.assert_allclose(seen["flows"][ours], expected, atol=1e-12 if "regret" in ours else 0, err_msg=ours)
    for name in ("dropped", "unslack", "illegal"):
        assert not seen["flows"][name].any(), name
    equal(seen["flows"]["mean_queue"], want["queue"], "mean_queue")
    equal(seen["flows"]["mean_queue_regret"], want["queue"] - optimal["queue"], "mean_queue_regret")
    equal(seen["flows"]["arrivals"], luck.A, "arrivals")
    np.testing.assert_array_equal(seen["flows"]["offered_share"], want["offered"])
    # Gauges are read after the round.
    equal(seen["gauges"]["queue_length"], want["queue_after"], "queue_length")
    equal(seen["gauges"]["peak"], np.maximum.accumulate(want["queue_after"]), "peak")
    equal(seen["gauges"]["queue_regret"], want["queue_after"] - optimal["queue_after"], "queue regret")
    assert (want["joint_gap"] >= want["routing_gap"] - 1e-15).all()


def no_news(A, d):
    return mnl.New(jnp.zeros((A, d)), jnp.zeros((A, d)), jnp.zeros((A,)), jnp.zeros((A, d, d)))


@dataclass(frozen=True)
class ManySteps(mnl.Majorise):
    """`Majorise`, one step at a time in a loop: as many steps written out take minutes to compile."""

    steps: int = 200

    def fit(self, inverse, sums, theta, chosen, ridge, new):
        one, nothing = mnl.Majorise(steps=1), jax.tree.map(jnp.zeros_like, new)
        theta, inverse = one.fit(inverse, sums, theta, chosen, ridge, new)

        def step(_, theta):
            return one.fit(inverse, sums, theta, chosen, ridge, nothing)[0]

        return jax.lax.fori_loop(1, self.steps, step, theta), inverse


# --- ACQB --------------------------------------------------------------------------------------------------------------------


EXACT = mnl.Newton(passes=6)
SEARCH = mnl.Newton(passes=8, search=True)


@dataclass(frozen=True)
class Case:
    """Sizes and static choices of a comparison; leaf settings are (kappa, ridge, c1)."""

    K: int
    N: int = 3
    d: int = 3
    T: int = 300
    pair: bool = False
    arrival_rate: float = 0.7
    seed: int = 0
    limit: int | None = None
    solver: Any = EXACT
    options: dict = field(default_factory=dict, hash=False)  # of ACQB
    plain: dict = field(default_factory=dict, hash=False)  # of the reference
    phase: bool = False  # CQB-eps


FEW = {"num_samples": 3}  # Fewer samples than the paper's 9 and 14 compile faster.
CASES = {
    "K1": Case(1),
    "K2": Case(2, N=4, d=2),
    "K3": Case(3, N=4, d=2, options=FEW),
    "K3, all samples": Case(3, N=5, d=3, seed=8),
    "K1, search": Case(1, d=2, solver=SEARCH, seed=3),
    "K2, search": Case(2, d=2, solver=SEARCH, seed=4),
    "K2, joint": Case(2, d=2, T=150, options={"joint": True} | FEW, plain={"mle": "joint"}),
    "K2, joint, search": Case(2, d=2, solver=SEARCH, options={"joint": True}, plain={"mle": "joint"}),
    "K3, joint": Case(3, N=5, d=2, options={"joint": True} | FEW, plain={"mle": "joint"}),
    "K2, second answer": Case(
        2,
        d=2,
        options={"second_answer": np.float32(0.3)} | FEW,
        plain={"p_k2": float(np.float32(0.3)), "explore_size": "full"},
    ),
    "K1, fifo": Case(1, d=2, options={"fifo": True}, plain={"fifo": True}),
    "K2, fifo": Case(2, d=2, options={"fifo": True}, plain={"fifo": True}),
    "K1, compact": Case(1, limit=150),
    "K2, compact": Case(2, d=2, limit=60),
    "K1, three samples": Case(1, d=2, options=FEW),
    "K1, pairs": Case(1, pair=True, arrival_rate=0.5),
    "K2, pairs": Case(2, N=4, pair=True, arrival_rate=0.6, options=FEW),
    "K3, pairs": Case(3, N=5, d=4, pair=True, arrival_rate=0.7, limit=200),
    "K1, pairs, search": Case(1, pair=True, arrival_rate=0.5, solver=SEARCH),
    "K2, pairs, many steps": Case(2, N=4, d=2, T=150, pair=True, arrival_rate=0.6, solver=ManySteps(300)),
    "K2, many steps": Case(2, N=4, d=2, T=150, solver=ManySteps(300)),
    "K1, N5": Case(1, N=5, d=5, seed=1),
    "K1, N10": Case(1, N=10, d=5, seed=1),
    "K2, N5": Case(2, N=5, d=5, seed=2),
    "K2, N10": Case(2, N=10, d=5, seed=2),
    "K3, N10": Case(3, N=10, d=3, seed=2),
    "CQB-eps, K1": Case(1, d=2, phase=True),
    "CQB-eps, K2": Case(2, d=2, phase=True),
    "CQB-eps, K1, pairs": Case(1, pair=True, arrival_rate=0.5, phase=True),
}
GREEDY, USUAL = (0.0, 1.0, 1.0), (0.3, 1.0, 1.0)
QUICK = {
    "K1": [GREEDY, USUAL, (0.3, 5.0, 4.0)],
    "K2": [GREEDY, USUAL, (0.3, 1.0, 0.0)],
    "K3": [GREEDY],
    "K2, pairs": [USUAL],
}
SLOW = {name: [GREEDY, USUAL, (0.0, 5.0, 4.0), (0.3, 5.0, 0.0)] for name in CASES if "search" not in name}
SLOW |= {name: [(0.0, RIDGE01, 1.0), (0.3, RIDGE01, 1.0), (0.3, RIDGE01, 4.0)] for name in CASES if "search" in name}
RUNS = [(name, setting, ()) for name, settings in QUICK.items() for setting in settings]
RUNS += [(n, s, slow) for n, settings in SLOW.items() for s in settings if s not in QUICK.get(n, ())]


def parameters(case):
    return 1 if case.pair else case.N


def acqb_of(case, kappa, ridge, c1):
    """(the simulator's policy, a function that makes the reference's) of a case."""
    settings = {"curvature": kappa, "ridge": ridge, "solver": case.solver} | case.options
    M = case.options.get("num_samples") or ref.num_samples(case.K)
    coin, z, size = learner_luck(case.T, parameters(case), case.d, M)
    z = z[:, 0] if case.pair else z
    plain = dict(case.plain, size=size) if "p_k2" in case.plain else case.plain
    if case.phase:
        trigger = rq.PhaseThenCoin.for_horizon(case.T)
        ours = rq.CQBEpsilon(trigger=trigger, **settings)
        of = functools.partial(ref.cqb_eps, tau=case.T // 10, T=case.T, coin=coin, z=z, **plain)
    else:
        ours = rq.ACQB(trigger=rq.Decaying(c1), **settings)
        of = functools.partial(ref.acqb, c1=c1, coin=coin, z=z, **plain)
    return ours, lambda contexts: of(contexts, case.N, case.K, kappa, float(ridge))


def compare(case, setting):
    luck = instance(case.seed, case.T, case.N, case.d, case.K, case.pair, case.arrival_rate)
    ours, theirs = acqb_of(case, *setting)
    seen = play(luck.env(case.K, case.limit, mixed="second_answer" in case.options), ours)
    policy = theirs(luck.contexts)
    want = ref.simulate(luck.A, luck.U, luck.utility, case.K, policy)
    return luck, seen, want, policy


@pytest.mark.parametrize(
    "name, setting",
    [pytest.param(n, s, marks=m, id=f"{n}: kappa {s[0]:g}, ridge {s[1]:.2g}, c1 {s[2]:g}") for n, s, m in RUNS],
)
def test_acqb_equals_the_reference_round_by_round(name, setting):
    """Also 10, item 32: with kappa = 0 the trajectory depends on the given arrays alone."""
    case = CASES[name]
    luck, seen, want, policy = compare(case, setting)
    assert_same_run(seen, luck, case.K, want)
    shape = (case.T, parameters(case), case.d)
    assert seen["theta"].dtype == np.float64
    # The reference stops at a gradient of 1e-10, so its own error is up to 1e-10 / ridge; [M] measured 2e-9 at most.
    np.testing.assert_allclose(seen["theta"], want["theta"].reshape(shape), atol=1e-8 if setting[1] >= 1 else 1e-7)
    np.testing.assert_allclose(seen["state"].spread, policy.V.reshape(*shape[1:], case.d), atol=1e-11)
    np.testing.assert_array_equal(seen["state"].pulls, policy.pulls)
    np.testing.assert_array_equal(seen["state"].next_offer, policy.order[policy.pointer])
    # The count in the radius is a float32 number.
    np.testing.assert_allclose(
        seen["radius"], np.broadcast_to(want["radius"].reshape(case.T, -1), (case.T, case.N)), rtol=2e-7
    )
    explored = want["explored"].sum()
    assert explored == 0 if setting[2] == 0 and not case.phase else explored > 10
    assert 0 < want["idle"].sum() < case.T / 2 and want["retrial"].sum() > 10


CONTAINERS = {
    "ACQB, K1": (1, lambda env: rq.ACQB(solver=mnl.Newton(passes=6))),
    "Optimal": (1, rq.Optimal.of),
    "Optimal, fifo": (2, lambda env: rq.Optimal.of(env, fifo=True)),
    "Q-UCB": (1, lambda env: rq.QUCB()),
    "Q-ThS": (1, lambda env: rq.QThS()),
    "ACQB, K2": (2, lambda env: rq.ACQB()),
    "ACQB, fifo": (1, lambda env: rq.ACQB(fifo=True)),
    "CQB-eps": (2, rq.CQBEpsilon.of),
}


@slow
@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_agree_path_by_path(name):
    """4.5: a slot per round and a compact buffer, with the same decisions."""
    K, build = CONTAINERS[name]
    luck = instance(0, 300, 3, 3, K)
    runs = []
    for limit in (None, 60):  # Slots by round, a buffer of two chunks.
        env = luck.env(K, limit)
        runs.append(play(env, build(env)))
    for other in runs[1:]:
        busy = other["queue"] > 0
        for what in ("query", "offered", "chosen", "queue"):
            np.testing.assert_array_equal(other[what][busy], runs[0][what][busy], err_msg=what)
        for what, values in runs[0]["flows"].items():
            np.testing.assert_allclose(other["flows"][what], values, atol=1e-6, err_msg=what)
        for what, values in runs[0]["gauges"].items():
            np.testing.assert_array_equal(other["gauges"][what], values, err_msg=what)
    assert not any(run["flows"]["dropped"].any() for run in runs)


# --- Baselines ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, K, pair",
    [
        ("Optimal", 2, True),
        ("Random", 2, False),
        pytest.param("Optimal, fifo", 2, False, marks=slow),
        pytest.param("Random", 1, False, marks=slow),
        pytest.param("Random", 3, False, marks=slow),
        *[
            pytest.param("Optimal", K, pair, marks=slow)
            for K, pair in ((1, False), (1, True), (2, False), (3, False), (3, True))
        ],
        *[pytest.param("Optimal, fifo", K, True, marks=slow) for K in (1, 2, 3)],
    ],
)
def test_policies_without_memory(name, K, pair):
    luck = instance(10 + K, 300, 4, 3, K, pair, 0.6 if pair else 0.7)
    env = luck.env(K)
    if name == "Random":
        ours = rq.Random()
        uniform, _ = luck_of(KEY, 300, children=2)
        theirs = ref.Random(K, uniform[:, 0, 0], uniform[:, 1, :4])
    else:
        ours, theirs = rq.Optimal.of(env, fifo="fifo" in name), ref.Optimal(luck.utility, K, fifo="fifo" in name)
    seen = play(env, ours)
    want = ref.simulate(luck.A, luck.U, luck.utility, K, theirs)
    assert_same_run(seen, luck, K, want)
    if name == "Optimal":
        assert not seen["gauges"]["queue_regret"].any() and np.abs(seen["flows"]["joint_regret"]).max() < 1e-15


@functools.partial(jax.jit, static_argnames=("horizon", "N"))
def _beta_luck(key, horizon, N):
    """Normals and uniforms `[T, 2, 6, N]` of the six tries of the two gamma draws."""

    def at(t):
        pairs = [draws.split(k) for k in draws.split(draws.split(draws.fold_in(key, t), 3)[2])]
        return [jnp.stack([draw(p[i], (6, N)) for p in pairs]) for i, draw in enumerate((draws.normal, draws.uniform))]

    return jax.vmap(at)(jnp.arange(horizon))


def gamma(x, u, a):
    """Marsaglia and Tsang (2000): the first accepted of the tries `x`, `u` `[6, N]`."""
    d = a - 1 / 3
    v = (1 + x / np.sqrt(9 * d)) ** 3
    inside = v > 0
    logarithm = np.log(np.where(inside, v, 1.0))
    accepted = inside & (np.log(np.maximum(u, 1e-37)) < 0.5 * x**2 + d - d * v + d * logarithm)
    assert accepted.any(axis=0).all()
    return d * np.take_along_axis(v, accepted.argmax(axis=0)[None], axis=0)[0]


@pytest.mark.parametrize(
    "name, N",
    [
        ("Q-UCB", 2),
        pytest.param("Q-ThS", 2, marks=slow),
        pytest.param("Q-UCB", 3, marks=slow),
        pytest.param("Q-ThS", 3, marks=slow),
    ],
)
def test_queue_bandits(name, N):
    T = 1000
    luck = instance(20 + N, T, N, 3, 1)
    beta = None
    if name == "Q-ThS":
        x, u = (np.asarray(v, float) for v in _beta_luck(KEY, T, N))

        def beta(t, a, b):
            wins, losses = (gamma(x[t, i], u[t, i], np.asarray(c, float)) for i, c in enumerate((a, b)))
            return wins / (wins + losses)

    uniform, _ = luck_of(KEY, T)
    theirs = ref.QueueBandit(N, uniform[:, 0, 0], uniform[:, 1, 0], beta)
    seen = play(luck.env(1), rq.QThS() if beta else rq.QUCB())
    want = ref.simulate(luck.A, luck.U, luck.utility, 1, theirs)
    assert_same_run(seen, luck, 1, want)
    np.testing.assert_array_equal(seen["state"].pulls, theirs.pulls)
    np.testing.assert_array_equal(seen["state"].wins, theirs.wins)
    assert 100 < want["explored"].sum() < T - 100 - want["idle"].sum()  # The index decides often enough.


# --- Pools of prompts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """features `[P, d]`, log odds `[P, N]`, prompts `[T]`, arrivals `[T]`, uniforms `[T]`."""

    features: np.ndarray
    log_odds: np.ndarray
    prompt: np.ndarray
    A: np.ndarray
    U: np.ndarray

    @property
    def utility(self):
        return self.log_odds[self.prompt]

    def env(self, K):
        env = rq.pool_queue(
            self.features, expit(self.log_odds), arrival_rate=0.7, num_offered=K, recorded=(self.A, self.prompt, self.U)
        )
        # The constructor rounds to float32; the reference and the double run shall see the same numbers.
        top = np.exp(np.sort(self.log_odds, axis=1)[:, -K:]).sum(axis=1)
        numbers = {"features": self.features.T, "log_odds": self.log_odds.T, "best_rate": top / (1 + top)}
        return env.replace(contexts=env.contexts.replace(uniforms=self.U, **{k: np.array(v) for k, v in numbers.items()}))


def pool(seed, T, P, N, d, arrival_rate=0.7):
    rng = np.random.default_rng(seed)
    features, odds = rng.uniform(-1, 1, (P, d)), rng.normal(size=(P, N))
    return Pool(features, odds, rng.integers(P, size=T), rng.random(T) < arrival_rate, rng.random(T))


def run_pool(given, K, policy):
    """`ref.run_pool(clear_oldest_copy=True)` on log odds."""
    return ref.simulate(given.A, given.U, given.utility, K, policy, given.prompt)


CONVERGED = {"solver": ManySteps(), "sampler": rq.ByCholesky()}
POOLS = {
    "K1, counts": (1, rq.ACQB(**CONVERGED), {}, ()),
    "K2, counts": (2, rq.ACQB(**CONVERGED, num_samples=3), {}, slow),
    "K3, rows": (3, rq.ACQB(solver=mnl.Newton(passes=6), num_samples=3), {}, slow),
    "K3, rows, joint": (3, rq.ACQB(solver=mnl.Newton(passes=6), num_samples=3, joint=True), {"mle": "joint"}, slow),
    "K1, other features": (1, rq.ACQB(**CONVERGED), {"other": True}, slow),
    "K1, fifo": (1, rq.ACQB(**CONVERGED, fifo=True), {"fifo": True}, slow),
    "K2, second answer": (
        2,
        rq.ACQB(**CONVERGED, num_samples=3, second_answer=np.float32(0.3)),
        {"p_k2": float(np.float32(0.3)), "explore_size": "full"},
        slow,
    ),
    "K2, ridge 5": (2, rq.ACQB(**CONVERGED, ridge=5.0, num_samples=3), {}, slow),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=c[3]) for n, c in POOLS.items()])
def test_acqb_on_a_pool(name):
    K, ours, plain, _ = POOLS[name]
    T, P, N, d = 300, 20, 4, 3
    given = pool(30 + K, T, P, N, d)
    features, plain = given.features, dict(plain)
    if plain.pop("other", False):  # ACQB-CL: the policy looks at other features than the environment's.
        features = np.random.default_rng(1).normal(size=(P, d - 1)) / 2
        ours = ours.replace(features=features.T)
    coin, z, size = learner_luck(T, N, features.shape[1], ours.num_samples or ref.num_samples(K))
    plain |= {"size": size} if "p_k2" in plain else {}
    theirs = ref.acqb(features[given.prompt], N, K, 0.3, float(ours.ridge), 1.0, coin, z, **plain)
    want = run_pool(given, K, theirs)
    seen = play(given.env(K).replace(mixed="p_k2" in plain), ours)
    copies = [len(s) - len({given.prompt[q] for q in s}) for s in want["states"]]
    assert max(copies) > 1  # Several copies of one prompt wait at times.
    assert_same_run(seen, given, K, want, given.prompt, given.utility)
    np.testing.assert_allclose(seen["theta"], want["theta"], atol=1e-8)
    np.testing.assert_allclose(seen["state"].spread, theirs.V, atol=1e-11)
    if K == 1:
        asked = given.prompt[want["query"]]
        tried, accepted = (
            [np.bincount(asked[which(j)], minlength=P) for j in range(N)]
            for which in (lambda j: want["offered"][:, j], lambda j: want["chosen"] == j)
        )
        np.testing.assert_array_equal(seen["state"].data.tried, tried)
        np.testing.assert_array_equal(seen["state"].data.accepted, accepted)


@pytest.mark.parametrize("P", [pytest.param(20, marks=slow), 300])
@pytest.mark.parametrize("name", ["Optimal", pytest.param("Optimal, fifo", marks=slow)])
def test_optimal_on_a_pool(name, P):
    """Two answers. With 300 prompts a table is longer than a chunk of `numerics.fold`, and no multiple of it."""
    K, fifo = 2, "fifo" in name
    given = pool(40, 300, P, 4, 3, arrival_rate=0.75)
    env = given.env(K)
    want = run_pool(given, K, ref.Optimal(given.utility, K, fifo))
    assert_same_run(play(env, rq.Optimal.of(env, fifo)), given, K, want, given.prompt, given.utility)


def test_places_of_long_tables():
    """The best place and the place of a rank do not depend on how long a table is."""
    rng = np.random.default_rng(0)
    for size in (128, 200, 1000):
        find = jax.jit(lambda s, w, r: (*best_place(lambda v: v, s, w, None, s.size), place_of_rank(w, r, s.size)))
        for _ in range(20):
            score, count = rng.integers(0, 50, size).astype(np.float32), rng.integers(0, 3, size)
            rank = rng.integers(count.sum())
            place, best, ranked = find(score, count, rank)
            waiting = np.flatnonzero(count)
            assert (place, best) == (waiting[score[waiting].argmax()], score[waiting].max())
            assert ranked == np.repeat(np.arange(size), count)[rank]


@pytest.mark.parametrize("K", [1, pytest.param(2, marks=slow)])
def test_root_of_the_design_matrix_after_a_run(K):
    given = pool(50, 300, 40, 3, 10)
    seen = play(given.env(K), rq.ACQB(), double=False)  # d = 10: by a root, and first-order steps.
    busy = seen["queue"] > 0
    root = seen["state"].spread.astype(float)
    for j in range(3):
        x = given.features[seen["query"][busy & seen["offered"][:, j]]]
        V = np.eye(10) + x.T @ x
        np.testing.assert_allclose(np.linalg.inv(root[j] @ root[j].T), V, rtol=1e-4, atol=1e-4)
    assert np.isfinite(seen["theta"]).all()


# --- Policy-switching queues (2.4) -------------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize("K", [1, 2])
def test_policy_switching_queues(K):
    T, d = 80, 2
    number, seed, N, arrival_rate = (63, 5, 3, 0.7) if K == 1 else (68, 1, 4, 0.8)  # Both signs of psi occur.
    luck = instance(number, T, N, d, K, arrival_rate=arrival_rate)
    with x64():
        env = in_double(luck.env(K))
        first = in_double(rq.ACQB(solver=mnl.Newton(passes=6)))

        def switch(at):
            return in_double(rq.SwitchAt(first=first, second=rq.Optimal.of(env), at=at))

        before = trace_count()
        data = jr.simulate(
            env,
            {"switch": jr.grid(switch, at=range(T + 1))},
            horizon=T,
            seeds=[seed],
            record_every=1,
            record=["queue_length", "queue_regret", "departures"],
            progress=False,
        ).isel(policy=0, seed=0)
        traces = trace_count() - before
        built = rq.SwitchAt.to_optimal(first, at=3)(env)
        assert jax.tree.structure(built) == jax.tree.structure(rq.SwitchAt(first, rq.Optimal.of(env), 3)) and built.at == 3
    assert traces == 1 and data["queue_length"].dims == ("at", "time")
    # The learner's keys are those of the engine.
    words = run_streams(jax.random.key_data(draws.key(0)), np.array([seed], np.uint32))["act"][:, 0]
    coin, z, _ = learner_luck(T, N, d, ref.num_samples(K), draws_key(words))
    Q, D, _ = ref.switching_queues(luck.A, luck.U, luck.utility, K, ref.acqb(luck.contexts, N, K, 0.3, 1.0, 1.0, coin, z))
    ours = np.concatenate([np.zeros((T + 1, 1), int), data["queue_length"].values.astype(int)], axis=1)
    left = np.diff(data["departures"].values, axis=1, prepend=0).round().astype(int)
    np.testing.assert_array_equal(ours, Q)
    np.testing.assert_array_equal(left, D)
    psi = ref.switching_effects(ours)
    assert set(np.unique(psi)) == {-1, 0, 1} and not ref.sign_rule_violations(ours, left)
    np.testing.assert_array_equal(psi.sum(axis=0), ours[-1] - ours[0])  # The learner's queue less the optimal one.
    np.testing.assert_array_equal(psi.sum(axis=0)[1:], data["queue_regret"].values[-1])
    assert not data["queue_regret"].values[0].any()


# --- Estimates (4.2) ---------------------------------------------------------------------------------------------------------


def observations(rng, H, N, K, d, missing=0.0):
    """(X `[H, d]`, F `[H, N, d]`, items `[H, K]` rising then -1, accepted place `[H]`, offered `[H, N]`, chosen arm `[H]`)."""
    items, accepted = np.full((H, K), -1), np.full(H, K)
    offered, chosen = np.zeros((H, N), bool), np.full(H, -1)
    for h in range(H):
        k = K if rng.random() >= missing else int(rng.integers(0, K))
        items[h, :k] = np.sort(rng.choice(N, k, replace=False))
        offered[h, items[h, :k]] = True
        place = int(rng.integers(0, k + 1))
        if place < k:
            accepted[h], chosen[h] = place, items[h, place]
    return rng.uniform(-1, 1, (H, d)), rng.uniform(-1, 1, (H, N, d)), items, accepted, offered, chosen


def rows_of(X, items, accepted, N):
    H, K = items.shape
    rows = mnl.Rows.empty(H, N, K, X.shape[1])
    wide = rows.accepted.shape[0] - H
    return mnl.Rows(
        features=jnp.asarray(np.pad(X.T, ((0, 0), (0, wide)))),
        items=jnp.asarray(np.pad(items.T, ((0, 0), (0, wide)), constant_values=-1), rows.items.dtype),
        accepted=jnp.asarray(np.pad(accepted, (0, wide), constant_values=K), rows.accepted.dtype),
    )


def pair_rows_of(F, items, accepted):
    H, K = items.shape
    wide = mnl.PairRows.empty(H, K, F.shape[2]).accepted.shape[0] - H
    shown = items >= 0
    x = np.where(shown[..., None], F[np.arange(H)[:, None], items], 0.0)
    return mnl.PairRows(
        features=jnp.asarray(np.pad(np.moveaxis(x, 0, -1), ((0, 0), (0, 0), (0, wide)))),
        shown=jnp.asarray(np.pad(shown.T, ((0, 0), (0, wide)))),
        accepted=jnp.asarray(np.pad(accepted, (0, wide), constant_values=K), jnp.int8),
    )


def differences(loss, w, step=1e-6):
    """Central differences of `loss(w)`, `w` `[...]`."""
    gradient = np.zeros(w.size)
    for i in range(w.size):
        shift = np.zeros(w.size)
        shift[i] = step
        shift = shift.reshape(w.shape)
        gradient[i] = (loss(w + shift) - loss(w - shift)) / (2 * step)
    return gradient


@pytest.mark.parametrize("K", [1, pytest.param(2, marks=slow), 3])
def test_derivatives_of_own_parameters(K, double_precision):
    rng, N, d, H = np.random.default_rng(K), 4, 2, 150
    X, _, items, accepted, offered, chosen = observations(rng, H, N, K, d, missing=0.2)
    rows, theta = rows_of(X, items, accepted, N), rng.normal(size=(N, d))
    sums = jax.jit(lambda theta, arms: rows.sums(theta, arms, H, loss=True))
    for arms in (np.arange(N), np.arange(K), np.array([3, *[-1] * (K - 1)])):
        real = arms[arms >= 0]
        found = sums(theta, jnp.asarray(arms, jnp.int32))
        loss, gradient, hessian = ref.disjoint_loss(theta, X, offered, chosen, 0.0, real)
        ours = np.asarray(found.gradient)
        np.testing.assert_allclose(ours[: len(real)].ravel(), gradient, atol=1e-11)
        assert not ours[len(real) :].any()
        inside = len(real) * d
        np.testing.assert_allclose(found.hessian[:inside, :inside], hessian, atol=1e-11)
        assert not np.asarray(found.hessian)[inside:].any()
        if len(arms) == N:
            assert found.loss == pytest.approx(loss, abs=1e-10)

        def value(w, arms=arms, real=real):
            return float(sums(np.where(np.isin(np.arange(N), real)[:, None], w, theta), jnp.asarray(arms, jnp.int32)).loss)

        slope = differences(value, theta).reshape(N, d)
        np.testing.assert_allclose(slope[real], ours[: len(real)], atol=1e-6)


@pytest.mark.parametrize("K", [1, pytest.param(2, marks=slow), 3])
def test_derivatives_of_one_parameter(K, double_precision):
    rng, N, d, H = np.random.default_rng(K), 4, 3, 150
    _, F, items, accepted, offered, chosen = observations(rng, H, N, K, d, missing=0.2)
    rows, theta = pair_rows_of(F, items, accepted), rng.normal(size=d)
    sums = jax.jit(lambda theta: rows.sums(theta[None], jnp.zeros((1,), jnp.int32), H, loss=True))
    found = sums(theta)
    loss, gradient, hessian = ref.shared_loss(theta, F, offered, chosen, 0.0)
    assert found.loss == pytest.approx(loss, abs=1e-10)
    np.testing.assert_allclose(found.gradient[0], gradient, atol=1e-11)
    np.testing.assert_allclose(found.hessian, hessian, atol=1e-11)
    np.testing.assert_allclose(differences(lambda w: float(sums(w).loss), theta), gradient, atol=1e-6)
    slopes = [differences(lambda w, i=i: float(sums(w).gradient[0, i]), theta) for i in range(d)]
    np.testing.assert_allclose(slopes, hessian, atol=1e-6)


@pytest.mark.parametrize("K", [1, 2])
def test_counts_are_rows(K, double_precision):
    rng, N, d, P, H = np.random.default_rng(0), 4, 4, 6, 250
    table, query = rng.normal(size=(P, d)), rng.integers(P, size=H)
    _, _, items, accepted, offered, chosen = observations(rng, H, N, K, d, missing=0.3)
    counts = (mnl.Counts if K == 1 else mnl.PairCounts).empty(N, P, 100)

    def add(counts, h):
        counts = counts.add(jnp.asarray(query)[h], jnp.asarray(items)[h], jnp.asarray(accepted)[h], True)
        return counts.add(jnp.asarray(query)[h], jnp.asarray(items)[h], 0, False), None  # Left out.

    counts, _ = jax.jit(lambda counts: jax.lax.scan(add, counts, jnp.arange(H)))(counts)
    assert counts.tried.sum() == offered.sum() and counts.accepted.sum() == (chosen >= 0).sum()
    theta = rng.normal(size=(N, d))
    gradient = jax.jit(lambda arms: counts.sums(jnp.asarray(table.T), arms)(jnp.asarray(theta), hessian=False).gradient)
    for S in ref.combos(N, K):
        expected = ref.disjoint_loss(theta, table[query], offered, chosen, 0.0, S)[1]
        np.testing.assert_allclose(gradient(jnp.asarray(S, jnp.int32)).ravel(), expected, atol=1e-11)


@pytest.mark.parametrize("K", [pytest.param(1, marks=slow), pytest.param(2, marks=slow), 3])
def test_the_new_observation(K, double_precision):
    """`new_row` and `new_pair` are what one row adds to the sums."""
    rng, N, d, H = np.random.default_rng(K), 4, 2, 60
    X, F, items, accepted, _, _ = observations(rng, H, N, K, d, missing=0.3)
    theta, w = rng.normal(size=(N, d)), rng.normal(size=d)

    def of_row(row, arms):
        new = mnl.new_row(theta @ row.features[:, 0], row.features[:, 0], row.items[:, 0], row.accepted[0], arms)
        one = row.sums(jnp.asarray(theta), arms, 1)
        number = jnp.arange(len(arms))
        blocks = one.hessian.reshape(len(arms), d, len(arms), d)[number, :, number]
        outer = jnp.einsum("a,ai,aj->aij", new.weight, new.x, new.x)
        return (new.gradient, new.curvature, outer), (one.gradient, blocks, blocks)

    def of_pair(pair):
        new = mnl.new_pair(jnp.asarray(w), pair.features[..., 0], pair.shown[:, 0], pair.accepted[0])
        one = pair.sums(jnp.asarray(w)[None], jnp.zeros((1,), jnp.int32), 1)
        return (new.gradient, new.curvature[0]), (one.gradient, one.hessian)

    rows = mnl.Rows(X[:, :, None], items[:, :, None], accepted[:, None])
    x = np.where((items >= 0)[..., None], F[np.arange(H)[:, None], items], 0.0)
    pairs = mnl.PairRows(x[..., None], (items >= 0)[..., None], accepted[:, None])
    everything = jnp.broadcast_to(jnp.arange(N), (H, N))
    last = jnp.broadcast_to(jnp.array([N - 1, 0][:K]), (H, min(K, 2)))
    for ours, theirs in jax.jit(
        lambda: [jax.vmap(of_row)(rows, everything), jax.vmap(of_row)(rows, last), jax.vmap(of_pair)(pairs)]
    )():
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-14)


X1, ACCEPTED1 = np.array([[1.0], [1.0], [-1.0]]), np.array([1, 0, 0])
X2, ACCEPTED2 = np.array([[1, 0], [0, 1], [0.6, -0.8], [0.6, 0.8]]), np.array([1, 0, 1, 0])


def logistic(X, taken):
    """Rows of one item that is always shown."""
    return rows_of(np.asarray(X, float), np.zeros((len(X), 1), int), np.where(taken, 0, 1), 1)


def test_estimates_by_hand(double_precision):
    """4.2, examples (i) and (ii) with the iterates of both solvers from zero."""
    arm = jnp.zeros((1,), jnp.int32)
    for X, taken, expected in ((X1, ACCEPTED1, [0.2865477]), (X2, ACCEPTED2, [0.3551224, -0.8433650])):
        rows, d = logistic(X, taken), X.shape[1]
        unknown = mnl.NewtonState(jnp.zeros((1, d, d)), jnp.zeros(()))  # No features so far: no step is shortened.

        def sums(theta, rows=rows, X=X, **wanted):
            return rows.sums(theta, arm, len(X), **wanted)

        def fit(solver, start, d=d, sums=sums):
            return jax.jit(lambda: solver.fit(start, sums, jnp.zeros((1, d)), arm, 1.0, no_news(1, d)))()

        for passes in (1, 2, 3) if d == 2 else (4,):
            theta, _ = fit(mnl.Newton(passes=passes), unknown)
            np.testing.assert_allclose(theta[0], ref.newton_iterates(X, taken, 1.0, passes)[-1], atol=1e-12)
        np.testing.assert_allclose(theta[0], expected, atol=5e-8)
        loss = jax.jit(lambda theta, sums=sums: sums(theta, loss=True).loss + 0.5 * (theta**2).sum())
        if d == 2:  # With the steps of the first-order method.
            best, _ = fit(mnl.Newton(passes=6), unknown)
            assert float(loss(best)) == pytest.approx(2.1412593, abs=5e-8)
            inverse = jnp.asarray(np.linalg.inv(np.eye(d) + 0.25 * X.T @ X)[None])
            for steps in (1, 2, 3):
                theta, after = fit(mnl.Majorise(steps=steps), inverse)
                np.testing.assert_allclose(theta[0], ref.majorise_iterates(X, taken, 1.0, steps)[-1], atol=1e-12)
            np.testing.assert_array_equal(after, inverse)
            np.testing.assert_allclose(theta[0], [0.3551093, -0.8433251], atol=5e-8)


def double(state):
    return jax.tree.map(lambda x: x.astype(float), state)


def follow(solver, X, items, accepted, N, ridge, joint=False, F=None):
    """Estimates after the observations, added one by one as in a run: `[N, d]`, with pair features `F` `[H, N, d]` `[1, d]`."""
    H, K = items.shape
    d = X.shape[1] if F is None else F.shape[2]
    num = N if F is None else 1
    theta, fit = jnp.zeros((num, d)), double(solver.init(num, d, ridge))
    empty = mnl.Rows.empty(H, N, K, d) if F is None else mnl.PairRows.empty(H, K, d)
    data = empty.replace(features=empty.features.astype(float))

    def add(carry, h):
        theta, fit, data = carry
        shown = items[h]
        if F is None:
            block = jnp.arange(N, dtype=jnp.int32) if joint else shown
            new = mnl.new_row(theta @ X[h], X[h], shown, accepted[h], block)
            data = data.write(h, X[h], shown, accepted[h], True)
        else:
            block, x = jnp.zeros((1,), jnp.int32), F[h][shown]
            new = mnl.new_pair(theta[0], x, shown >= 0, accepted[h])
            data = data.write(h, jnp.where((shown >= 0)[:, None], x, 0.0), shown >= 0, accepted[h], True)

        def sums(theta, **wanted):
            return data.sums(theta, block, h + 1, **wanted)

        theta, fit = solver.fit(fit, sums, theta, block, ridge, new)
        return (theta, fit, data), theta

    return jax.lax.scan(add, (theta, fit, data), jnp.arange(H, dtype=jnp.int32))[1]


def test_block_and_joint_estimates_by_hand(double_precision):
    """4.2, example (iii)."""
    X, items, accepted = (
        jnp.array([[1.0], [0.5], [-1.0]]),
        jnp.array([[0, 1], [1, 2], [0, 2]], jnp.int32),
        jnp.array([0, 1, 2]),
    )
    solvers = mnl.Newton(passes=5), ManySteps(150)
    fits = {
        joint: jax.jit(lambda joint=joint: [follow(s, X, items, accepted, 3, 1.0, joint)[-1] for s in solvers])()
        for joint in (True, False)
    }
    for joint, expected in ((True, (0.7009860, -0.3266978, 0.5661644)), (False, (0.6993909, -0.3484076, 0.5656008))):
        for theta in fits[joint]:
            np.testing.assert_allclose(theta[:, 0], expected, atol=1e-7)
    rows = rows_of(np.asarray(X), np.asarray(items), np.asarray(accepted), 3)
    loss = jax.jit(lambda theta: rows.sums(theta, jnp.arange(3), 3, loss=True).loss + 0.5 * (theta**2).sum())
    assert float(loss(fits[True][0])) == pytest.approx(2.6738826, abs=6e-8)


@pytest.mark.parametrize(
    "name", ["K2, pairs", *[pytest.param(n, marks=slow) for n in ("K1", "K2", "K2, joint", "K3", "K1, pairs", "K3, pairs")]]
)
def test_majorise_lowers_the_loss_with_every_step(name, double_precision):
    """From arbitrary points, with the bound that a run has gathered, of the items shown last (or all)."""
    K, N, d, H, steps = int(name[1]), 4, 3, 60, 40
    pairs = "pairs" in name
    rng = np.random.default_rng(K)
    X, F, items, accepted, _, _ = observations(rng, H, N, K, d)
    F = 2 * F
    rows = pair_rows_of(F, items, accepted) if pairs else rows_of(X, items, accepted, N)
    num = 1 if pairs else N
    arms = jnp.zeros((1,), jnp.int32) if pairs else jnp.arange(N) if "joint" in name else jnp.asarray(items[-1])
    solver = mnl.Majorise(steps=1)

    @jax.jit
    def losses(start, ridge):
        def gather(inverse, h):
            """The bound with one more observation; with no gradient the estimate stays."""
            if pairs:
                block, new = arms, mnl.new_pair(jnp.zeros(d), jnp.asarray(F)[h][jnp.asarray(items)[h]], jnp.ones(K, bool), K)
            else:
                shown = jnp.asarray(items)[h]
                block = arms if "joint" in name else shown
                new = mnl.new_row(jnp.zeros(N), jnp.asarray(X)[h], shown, K, block)
            empty = mnl.Sums(jnp.zeros(()), jnp.zeros((len(block), d)), None)
            theta, inverse = solver.fit(inverse, lambda *_, **__: empty, jnp.zeros((num, d)), block, ridge, new)
            return inverse, jnp.abs(theta).max()

        inverse, moved = jax.lax.scan(gather, double(solver.init(num, d, ridge)), jnp.arange(H))

        def sums(theta, **wanted):
            return rows.sums(theta, arms, H, **wanted)

        def step(theta, _):
            after, _ = solver.fit(inverse, sums, theta, arms, ridge, no_news(1 if pairs else len(arms), d))
            return after, sums(theta, loss=True, hessian=False).loss + 0.5 * ridge * (theta**2).sum()

        return jax.lax.scan(step, start, length=steps)[1], moved, inverse

    for ridge, start in itertools.product((0.1, 1.0), rng.normal(size=(5, num, d)) * 4):
        path, moved, inverse = losses(start, ridge)
        assert not np.any(moved)
        for j in range(num):
            x = F[np.arange(H)[:, None], items].reshape(-1, d) if pairs else X[(items == j).any(axis=1)]
            bound = ridge * np.eye(d) + (0.25 if K == 1 else 0.5) * x.T @ x
            np.testing.assert_allclose(inverse[j], np.linalg.inv(bound), atol=1e-12)
        assert (np.diff(path) <= 1e-12 * path[0]).all() and path[-1] < path[0]


FITS = {
    # problems, rows, K, N, ridge, solver, slow or not
    "K1": (500, 30, 1, 2, 1.0, mnl.Newton(), ()),
    "K1, ridge 0.1": (300, 30, 1, 2, 0.1, SEARCH, ()),
    "K2, pairs": (200, 30, 2, 3, 1.0, mnl.Newton(), ()),
    "K1, ridge 5": (200, 60, 1, 3, 5.0, mnl.Newton(), slow),
    "K1, many rows, ridge 0.1": (300, 150, 1, 3, 0.1, SEARCH, slow),
    "K1, first-order": (200, 60, 1, 3, 1.0, ManySteps(60), slow),
    "K2, joint": (200, 60, 2, 3, 1.0, mnl.Newton(passes=3), slow),
    "K2, joint, ridge 0.1": (200, 60, 2, 3, 0.1, SEARCH, slow),
    "K3, joint": (200, 60, 3, 4, 1.0, mnl.Newton(passes=3), slow),
    "K2, pairs, ridge 0.1": (300, 60, 2, 3, 0.1, SEARCH, slow),
    "K2, pairs, first-order": (200, 60, 2, 3, 1.0, ManySteps(300), slow),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=f[-1]) for n, f in FITS.items()])
def test_fits_row_by_row_equal_a_plain_optimiser(name, double_precision):
    """1,000 fits, with the slow ones 2,800, each after observations that came one by one."""
    problems, H, K, N, ridge, solver, _ = FITS[name]
    d = 2
    rng = np.random.default_rng(0)
    given = [observations(rng, H, N, K, d) for _ in range(problems)]
    X, F, items, accepted = (np.stack([g[i] for g in given]) for i in range(4))
    F = 2 * F if "pairs" in name else None
    run = jax.jit(jax.vmap(lambda X, i, a, F: follow(solver, X, i, a, N, ridge, "joint" in name, F)[-1]))
    ours = np.asarray(run(X, jnp.asarray(items, jnp.int32), accepted, F))
    worst = 0.0
    for p, (x, f, _, _, offered, chosen) in enumerate(given):
        theirs = (
            ref.fit_disjoint(x, offered, chosen, ridge) if F is None else ref.fit_shared(2 * f, offered, chosen, ridge)[None]
        )
        worst = max(worst, np.abs(ours[p] - theirs).max())
    assert worst < 1e-6, worst


@slow
def test_online_estimates_are_close_but_approximate(double_precision):
    rng, N, d, H, problems = np.random.default_rng(1), 3, 2, 120, 60
    theta = rng.uniform(-1, 1, (problems, N, d))
    given = [observations(rng, H, N, 1, d) for _ in range(problems)]
    X, _, items, _ = (np.stack([g[i] for g in given]) for i in range(4))
    odds = np.take_along_axis(np.einsum("phd,pnd->phn", X, theta), items, axis=2)[..., 0]
    accepted = np.where(rng.random(odds.shape) < expit(odds), 0, 1)
    run = {s: jax.jit(jax.vmap(lambda X, i, a, s=s: follow(s, X, i, a, N, 1.0)[-1])) for s in (mnl.Newton(), mnl.Online())}
    exact, online = (np.asarray(f(X, jnp.asarray(items, jnp.int32), accepted)) for f in run.values())
    off = np.abs(exact - online)
    assert 1e-3 < off.mean() < 0.1
    # It learns about as well: errors against the truth.
    errors = [np.sqrt(((estimate - theta) ** 2).mean()) for estimate in (exact, online)]
    assert errors[1] < 1.25 * errors[0] and errors[0] < 0.6 * np.sqrt((theta**2).mean()) * 1.5


# --- Normal posteriors (4.3) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [5, 17, *[pytest.param(d, marks=slow) for d in (1, 2, 3, 8, 16, 30)]])
def test_written_out_factorisations(d, double_precision):
    rng = np.random.default_rng(d)
    V = np.einsum("bij,bkj->bik", *[rng.normal(size=(4, d, d + 2))] * 2) + 0.1 * np.eye(d)
    b = rng.normal(size=(4, d))
    L = np.linalg.cholesky(V)
    np.testing.assert_allclose(gaussian.cholesky(jnp.asarray(V)), L, rtol=1e-10, atol=1e-12)
    for ours, matrix in ((gaussian.solve_lower, L), (gaussian.solve_upper, np.swapaxes(L, 1, 2))):
        np.testing.assert_allclose(
            ours(jnp.asarray(L), jnp.asarray(b)), np.linalg.solve(matrix, b[..., None])[..., 0], rtol=1e-7
        )
    np.testing.assert_allclose(
        gaussian.solve(jnp.asarray(V), jnp.asarray(b)), np.linalg.solve(V, b[..., None])[..., 0], rtol=1e-7
    )
    theirs = ref.thompson_sample(np.zeros(d), 1.0, V[0], b[0][:, None])[:, 0]
    np.testing.assert_allclose(gaussian.sample_by_cholesky(jnp.asarray(V[0]), jnp.asarray(b[0])), theirs, rtol=1e-7)


@pytest.mark.parametrize("d", [5, *[pytest.param(d, marks=slow) for d in (64, 80)]])
def test_rank_one_updates_do_not_drift(d, double_precision):
    rng = np.random.default_rng(d)
    x, weight = rng.normal(size=(500, d)) / math.sqrt(d), rng.uniform(0, 2, 500)

    def add(carry, row):
        inverse, root = carry
        return (gaussian.sherman_morrison(inverse, row[0], row[1]), gaussian.grown_root(root, row[0])), None

    start = jnp.eye(d) / 0.5, jnp.eye(d) / jnp.sqrt(0.5)
    (inverse, root), _ = jax.jit(lambda: jax.lax.scan(add, start, (jnp.asarray(x), jnp.asarray(weight))))()
    weighted, plain = (0.5 * np.eye(d) + x.T @ (w[:, None] * x) for w in (weight, np.ones(500)))
    np.testing.assert_allclose(inverse, np.linalg.inv(weighted), atol=1e-11)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(plain), atol=1e-11)
    # And in float32, as in a run.
    with x64(False):
        start32 = jnp.eye(d) / 0.5, jnp.eye(d) / jnp.sqrt(0.5)
        rows = jnp.asarray(x, jnp.float32), jnp.asarray(weight, jnp.float32)
        (inverse, root), _ = jax.jit(lambda: jax.lax.scan(add, start32, rows))()
    np.testing.assert_allclose(np.asarray(inverse, float) @ weighted, np.eye(d), atol=1e-4)
    np.testing.assert_allclose(np.asarray(root @ root.T, float) @ plain, np.eye(d), atol=1e-4)


def test_three_samplers_have_the_same_covariance(double_precision):
    """And that of the reference's two samplers, all within 4 standard errors."""
    rng, d, P, n, ridge = np.random.default_rng(0), 3, 6, 60_000, 0.7
    features, counts = rng.normal(size=(d, P)), rng.integers(0, 5, P)
    V = ridge * np.eye(d) + (features * counts) @ features.T
    inverse = np.linalg.inv(V)
    root = np.eye(d) / math.sqrt(ridge)
    for x in np.repeat(features.T, counts, axis=0):
        root = np.asarray(gaussian.grown_root(jnp.asarray(root), jnp.asarray(x)))
    z, g = rng.standard_normal((n, d)), rng.standard_normal((n, P))
    samples = {
        "cholesky": jax.vmap(lambda z: gaussian.sample_by_cholesky(jnp.asarray(V), z))(z),
        "root": jax.vmap(lambda z: gaussian.sample_by_root(jnp.asarray(root), z))(z),
        "perturbation": jax.vmap(
            lambda z, g: gaussian.sample_by_perturbation(
                jnp.asarray(inverse), z, ridge, jnp.asarray(features), jnp.asarray(counts), g
            )
        )(z, g),
    }
    theirs = ref.perturbed_sample(np.zeros(d), 1.0, V, ridge, counts, features.T, z[0], g[0])
    np.testing.assert_allclose(samples["perturbation"][0], theirs, atol=1e-12)
    for name, sample in samples.items():
        sample = np.asarray(sample)
        assert (np.abs(sample.mean(0)) < 4 * np.sqrt(np.diag(inverse) / n)).all(), name
        products = sample[:, :, None] * sample[:, None, :]
        error = products.std(axis=0, ddof=1) / math.sqrt(n)
        assert (np.abs(products.mean(0) - inverse) < 4 * error).all(), name
    batch = rq.ByCholesky().sample(jnp.asarray(V)[None], jnp.asarray(z[:5].T)[None])
    np.testing.assert_allclose(batch[0].T, samples["cholesky"][:5], atol=1e-12)
    batch = rq.ByRoot().sample(jnp.asarray(root)[None], jnp.asarray(z[:5].T)[None])
    np.testing.assert_allclose(batch[0].T, samples["root"][:5], atol=1e-12)
    for sampler, spread in ((rq.ByCholesky(), V), (rq.ByRoot(), root)):
        np.testing.assert_allclose(sampler.min_eigenvalue(jnp.asarray(spread)[None]), np.linalg.eigvalsh(V)[:1], rtol=1e-10)


# --- Scheduling and assortments (4.1) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "K, query, models, rate", [(1, 1, (0,), 0.8175745), (2, 1, (0, 1), 0.8481826), (3, 0, (0, 2, 3), 0.8733458)]
)
def test_best_pair_by_hand(K, query, models, rate):
    u = jnp.array([[0.3, -0.2, 1.2, 0.8], [1.5, 0.1, -0.4, 0], [0.7, 0.7, 0.6, 0.65]])
    found, mask = jax.jit(assortment.best_pair, static_argnums=1)(u, K)
    assert int(found) == query and tuple(np.flatnonzero(mask)) == models
    weight = assortment.log_weight_of_best([u[query, j] for j in range(4)], K)
    assert float(departure_rate(weight)) == pytest.approx(rate, abs=2e-7)


@pytest.mark.parametrize("K", [pytest.param(1, marks=slow), 2, pytest.param(3, marks=slow), 4])
def test_best_pair_equals_brute_force(K, double_precision):
    """1,500 instances for each K, half of them integers with many ties; also with some queries away."""
    rng, B, N, n = np.random.default_rng(K), 4, 5, 1500
    u = rng.normal(size=(n, B, N)) * 2
    u[::2] = rng.integers(-1, 3, size=u[::2].shape)
    waiting = rng.random((n, B)) < 0.7
    waiting[::3] = True
    query, mask = jax.jit(jax.vmap(lambda u, w: assortment.best_pair(u, K, w)))(u, waiting)
    ties = 0
    for i in range(n):
        here = np.flatnonzero(waiting[i])
        if not here.size:
            assert query[i] == B
            continue
        row, models = ref.schedule(u[i, here], K)
        assert query[i] == here[row] and tuple(np.flatnonzero(mask[i])) == models, i
        scores = [ref.best_assortment(v, K)[0] for v in u[i, here]]
        ties += scores.count(max(scores)) > 1
    assert ties > 50
    alone, _ = jax.jit(jax.vmap(lambda u: assortment.best_pair(u, K)))(u[::3])
    np.testing.assert_array_equal(alone, query[::3])


def test_weights_do_not_overflow():
    """In float32 e^88 is the largest power, and a large kappa goes beyond."""
    u = jnp.array([[300.0, 299.9, -300.0], [300.5, -1.0, 0.0]])
    for K, best, models in ((1, 1, [True, False, False]), (2, 0, [True, True, False])):  # 300 + ln(1 + e^-.1) = 300.644.
        query, mask = jax.jit(assortment.best_pair, static_argnums=1)(u, K)
        assert int(query) == best and mask.tolist() == models
    assert float(assortment.log_weight_of_best(list(u[0]), 2)) == pytest.approx(300.644, abs=1e-3)


def test_round_robin_is_lexicographic():
    following = jax.jit(next_combination)
    for N, K in ((1, 1), (3, 1), (5, 2), (6, 3), (4, 4)):
        items = jnp.arange(K, dtype=jnp.int32)
        for S in [*ref.combos(N, K), tuple(range(K))]:
            assert tuple(int(j) for j in items) == S
            items = following(items, N)


# --- The choice (2.3, 4.4) ---------------------------------------------------------------------------------------------------


def test_coupled_choice_by_hand(double_precision):
    utility, both = jnp.array([0.2, -0.5]), jnp.array([True, True])
    for u, expected in (
        (0.0, [1, 0]),
        (0.30, [1, 0]),
        (0.431906, [1, 0]),
        (0.431907, [0, 1]),
        (0.50, [0, 1]),
        (0.70, [0, 0]),
    ):
        chosen, rate = jax.jit(choose)(utility, both, u)
        assert chosen.tolist() == [bool(x) for x in expected]
        assert float(rate) == pytest.approx(0.6463849, abs=5e-8)
    # Only what is offered can be chosen, in the order of the models.
    chosen, rate = jax.jit(choose)(jnp.array([9.0, 0.2, 9.0, -0.5]), jnp.array([False, True, False, True]), 0.5)
    assert chosen.tolist() == [False, False, False, True] and float(rate) == pytest.approx(0.6463849, abs=5e-8)


def test_choices_equal_the_reference_and_are_coupled(double_precision):
    """A larger rate departs whenever a smaller one does; with utilities beyond the range of exp as well."""
    rng, N, n = np.random.default_rng(0), 5, 4000
    v = rng.normal(size=(n, 2, N)) * rng.choice([1.0, 3.0, 400.0], size=(n, 1, 1))
    offered = rng.random((n, 2, N)) < 0.5
    offered[..., 0] |= ~offered.any(-1)
    u = rng.random(n)
    chosen, rate = jax.jit(jax.vmap(jax.vmap(choose, (0, 0, None))))(v, offered, u)
    chosen, rate = np.asarray(chosen), np.asarray(rate)
    for i in range(n):
        for side in range(2):
            S = np.flatnonzero(offered[i, side])
            place = ref.coupled_choice(v[i, side], S, u[i])
            assert np.flatnonzero(chosen[i, side]).tolist() == S[place : place + 1].tolist()
            assert rate[i, side] == pytest.approx(ref.departure_rate(v[i, side], S), abs=1e-14)
    left = chosen.any(-1)
    np.testing.assert_array_equal(left, u[:, None] <= rate)
    first, second = np.argsort(rate, axis=1).T
    rows = np.arange(n)
    assert (left[rows, first] <= left[rows, second]).all() and (left[:, 0] != left[:, 1]).any()


def test_choice_frequencies():
    utility, offered, n = jnp.array([0.2, 1.0, -0.5, 0.7]), jnp.array([True, False, True, True]), 200_000
    uniforms = draws.uniform(draws.key(3), (n,))
    chosen = np.asarray(jax.jit(jax.vmap(lambda u: choose(utility, offered, u)[0]))(uniforms))
    p = np.zeros(4)
    p[[0, 2, 3]] = ref.choice_probabilities(np.asarray(utility), (0, 2, 3))
    assert (np.abs(chosen.mean(0) - p) <= 4 * np.sqrt(p * (1 - p) / n)).all() and (chosen.sum(1) <= 1).all()
    assert 1 - p.sum() == pytest.approx((~chosen.any(1)).mean(), abs=4 * math.sqrt(0.25 / n))


# --- Theory (3.1, 7) ---------------------------------------------------------------------------------------------------------


def test_constants():
    assert [rq.num_samples(K) for K in range(1, 6)] == [1, 9, 14, 17, 19]
    assert all(rq.num_samples(K) == ref.num_samples(K) for K in range(1, 60))
    for c1 in (0.0, 0.5, 1.0, 3.0):
        assert [rq.explore_chance(t, c1) for t in range(40)] == [ref.eta(t, c1) for t in range(40)]
    for args in ((1000, 0.7, 1.0), (5000, 0.7, 1.0), (1000, 0.7, 2.0), (5000, 0.9, 10.0)):
        assert rq.expected_explorations(*args) == pytest.approx(ref.expected_explorations(*args), rel=1e-12)
    for c1 in (0.5, 1.0, 1.3, 3.0, 10.0):
        assert float(rq.PhaseThenCoin.for_data(1000, c1).phase) == ref.real_data_tau(c1)
    given = rq.PhaseThenCoin.for_horizon(1000)
    assert (float(given.phase), float(given.coin)) == (100, pytest.approx(1000**-0.5))


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


@pytest.mark.parametrize("c1", [0.5, 1.0, 3.0])
def test_triggers_fire_as_the_reference_does(c1):
    t = np.repeat(np.arange(400), 3)
    chance = np.array([ref.eta(s, c1) for s in t])
    coin = (chance * np.tile([1 - 1e-5, 1 + 1e-5, 0.72], 400)).astype(np.float32)  # On both sides of eta.
    for ours, theirs in (
        (rq.Decaying(c1), ref.decaying(c1)),
        (rq.PhaseThenCoin.for_horizon(400), ref.phase_then_coin(40, 400)),
    ):
        fires = jax.vmap(lambda t, u: ours.fires(t, u))(jnp.asarray(t), jnp.asarray(coin))  # noqa: B023
        np.testing.assert_array_equal(fires, [theirs(s, float(u)) for s, u in zip(t, coin)])


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


def test_survival_of_an_extra_query():
    for queue, rounds, slack in itertools.product((0, 3, 20), (0, 1, 10, 1000, 10**5), (0.01, 0.03, 0.3)):
        assert rq.extra_query_survives(queue, rounds, slack) == pytest.approx(
            ref.extra_job_bound(queue, rounds, slack), rel=1e-12
        )


# --- Runs with their own randomness ------------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize("K", [1, 2])
def test_whole_runs_have_the_same_law(K):
    """Random instances of figure 2, 300 rounds: queue and regrets within 4 standard errors of the reference's own runs."""
    T, runs = 300, 100
    env = rq.RandomQueues(num_offered=K, horizon=T)
    record = ["queue_length", "routing_regret", "joint_regret", "mean_queue", "explored"]
    data = jr.simulate(env, rq.ACQB(), horizon=T, seeds=256, record_every=100, record=record, progress=False).isel(policy=0)
    assert bool(data["valid"].all())
    rng = np.random.default_rng(0)
    theirs = [ref.acqb_loop(rng, T, 5, 5, K, 0.7, 0.03, 0.3, 1.0, 1.0) for _ in range(runs)]
    for k, t in enumerate((100, 200, 300)):
        expected = {
            "queue_length": [run["queue"][t] if t < T else run["final_queue"] for run in theirs],
            "routing_regret": [run["routing_gap"][:t].sum() for run in theirs],
            "joint_regret": [run["joint_gap"][:t].sum() for run in theirs],
            "mean_queue": [run["queue"][:t].mean() for run in theirs],
            "explored": [run["explored"][:t].sum() for run in theirs],
        }
        assert data["time"].values[k] == t
        for name, values in expected.items():
            assert_means_agree(data[name].values[:, k], values, num_sigma=4.0, what=f"{name} at {t}")
