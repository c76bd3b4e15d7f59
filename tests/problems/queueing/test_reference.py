"""The queueing problem (CQB-MNL, ACQB) against the plain float64 loops of `reference/queueing.py`, round by round on shared draws.

Section numbers are those of `spec/acqb.md`.
"""

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_means_agree, in_double, x64
from mnl_cases import BFGS, EXACT, TRACKED
from queueing_reference_cases import KEY, RIDGE01, assert_same_run, instance, learner_noise, noise_of, play, pool
from reference import queueing as ref

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.engine.compiling import trace_count
from jaxroute.engine.rounds import draws_key, run_streams
from jaxroute.estimators.gaussian import ByCholesky
from jaxroute.problems import queueing as rq

slow = pytest.mark.slow


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
    "K1, small ridge": Case(1, d=2, solver=TRACKED, seed=3),
    "K2, small ridge": Case(2, d=2, seed=4),
    "K2, joint": Case(2, d=2, T=150, options={"joint": True} | FEW, plain={"mle": "joint"}),
    "K2, joint, small ridge": Case(2, d=2, options={"joint": True}, plain={"mle": "joint"}),
    "K3, joint": Case(3, N=5, d=2, options={"joint": True} | FEW, plain={"mle": "joint"}),
    "K2, second answer": Case(2, d=2, options={"second_answer": np.float32(0.3)} | FEW, plain={"p_k2": float(np.float32(0.3))}),
    "K1, fifo": Case(1, d=2, options={"fifo": True}, plain={"fifo": True}),
    "K2, fifo": Case(2, d=2, options={"fifo": True}, plain={"fifo": True}),
    "K1, compact": Case(1, limit=150),
    "K2, compact": Case(2, d=2, limit=60),
    "K1, pairs": Case(1, pair=True, arrival_rate=0.5),
    "K2, pairs": Case(2, N=4, pair=True, arrival_rate=0.6, options=FEW),
    "K3, pairs": Case(3, N=5, d=4, pair=True, arrival_rate=0.7, limit=200),
    "K1, pairs, small ridge": Case(1, pair=True, arrival_rate=0.5, solver=TRACKED),
    "K2, pairs, BFGS": Case(2, N=4, d=2, T=150, pair=True, arrival_rate=0.6, solver=BFGS),
    "K2, BFGS": Case(2, N=4, d=2, T=150, solver=BFGS),
    "K1, N5": Case(1, N=5, d=5, seed=1),
    "K2, N10": Case(2, N=10, d=5, seed=2),
    "CQB-eps, K1": Case(1, d=2, phase=True),
    "CQB-eps, K2": Case(2, d=2, phase=True),
    "CQB-eps, K1, pairs": Case(1, pair=True, arrival_rate=0.5, phase=True),
}  # fmt: skip


GREEDY, USUAL = (0.0, 1.0, 1.0), (0.3, 1.0, 1.0)


QUICK = {
    "K1": [GREEDY, USUAL, (0.3, 5.0, 4.0)],
    "K2": [GREEDY, USUAL, (0.3, 1.0, 0.0)],
    "K3": [GREEDY],
    "K2, pairs": [USUAL],
}
SLOW = {name: [GREEDY, USUAL, (0.0, 5.0, 4.0), (0.3, 5.0, 0.0)] for name in CASES if "small ridge" not in name}
SLOW |= {name: [(0.0, RIDGE01, 1.0), (0.3, RIDGE01, 1.0), (0.3, RIDGE01, 4.0)] for name in CASES if "small ridge" in name}
RUNS = [(name, setting, ()) for name, settings in QUICK.items() for setting in settings]


RUNS += [(n, s, slow) for n, settings in SLOW.items() for s in settings if s not in QUICK.get(n, ())]


def parameters(case):
    return 1 if case.pair else case.N


def acqb_of(case, kappa, ridge, c1):
    """(the simulator's policy, a function that makes the reference's) of a case."""
    settings = {"curvature": kappa, "ridge": ridge, "solver": case.solver} | case.options
    M = case.options.get("num_samples") or ref.num_samples(case.K)
    coin, z, size = learner_noise(case.T, parameters(case), case.d, M)
    z = z[:, 0] if case.pair else z
    plain = dict(case.plain, size=size) if "p_k2" in case.plain else case.plain
    if case.phase:
        trigger = rq.PhaseThenCoin.for_horizon(case.T)
        ours = rq.CQBEpsilon(trigger=trigger, **settings)
        of = functools.partial(ref.cqb_eps, tau=case.T // 10, T=case.T, coin=coin, z=z, **plain)
    else:
        ours = rq.ACQB(trigger=rq.DecayingExploration(c1), **settings)
        of = functools.partial(ref.acqb, c1=c1, coin=coin, z=z, **plain)
    return ours, lambda contexts: of(contexts, case.N, case.K, kappa, float(ridge))


def compare(case, setting):
    inst = instance(case.seed, case.T, case.N, case.d, case.K, case.pair, case.arrival_rate)
    ours, theirs = acqb_of(case, *setting)
    seen = play(inst.env(case.K, case.limit, mixed="second_answer" in case.options), ours)
    policy = theirs(inst.contexts)
    want = ref.simulate(inst.A, inst.U, inst.utility, case.K, policy)
    return inst, seen, want, policy


@pytest.mark.parametrize(
    "name, setting",
    [pytest.param(n, s, marks=m, id=f"{n}: kappa {s[0]:g}, ridge {s[1]:.2g}, c1 {s[2]:g}") for n, s, m in RUNS],
)
def test_acqb_equals_the_reference_round_by_round(name, setting):
    """Also 10, item 32: with kappa = 0 the trajectory depends on the given arrays alone."""
    case = CASES[name]
    inst, seen, want, policy = compare(case, setting)
    assert_same_run(seen, inst, case.K, want)
    shape = (case.T, parameters(case), case.d)
    assert seen["theta"].dtype == np.float64
    # The reference stops at a gradient of 1e-10, so its own error is up to 1e-10 / ridge; [M] measured 2e-9 at most.
    np.testing.assert_allclose(seen["theta"], want["theta"].reshape(shape), atol=1e-8 if setting[1] >= 1 else 1e-7)
    np.testing.assert_allclose(seen["state"].spread.total, policy.V.reshape(*shape[1:], case.d), atol=1e-11)
    np.testing.assert_array_equal(seen["state"].pulls, policy.pulls)
    np.testing.assert_array_equal(seen["state"].next_offer, policy.order[policy.pointer])
    # The count in the radius is a float32 number.
    np.testing.assert_allclose(
        seen["radius"], np.broadcast_to(want["radius"].reshape(case.T, -1), (case.T, case.N)), rtol=2e-7
    )
    explored = want["explored"].sum()
    assert explored == 0 if setting[2] == 0 and not case.phase else explored > 10
    assert 0 < want["idle"].sum() < case.T / 2 and want["retrial"].sum() > 10


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
    inst = instance(10 + K, 300, 4, 3, K, pair, 0.6 if pair else 0.7)
    env = inst.env(K, limit=200 if "fifo" in name or K == 3 else None)  # A slot per round, or a compact buffer.
    if name == "Random":
        ours = rq.Random()
        uniform, _ = noise_of(KEY, 300, children=2)
        theirs = ref.Random(K, uniform[:, 0, 0], uniform[:, 1, :4])
    else:
        ours, theirs = rq.Optimal.of(env, fifo="fifo" in name), ref.Optimal(inst.utility, K, fifo="fifo" in name)
    seen = play(env, ours)
    want = ref.simulate(inst.A, inst.U, inst.utility, K, theirs)
    assert_same_run(seen, inst, K, want)
    if name == "Optimal":
        assert not seen["gauges"]["queue_regret"].any() and np.abs(seen["flows"]["joint_regret"]).max() < 1e-15


@functools.partial(jax.jit, static_argnames=("horizon", "N"))
def _beta_noise(key, horizon, N):
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
    inst = instance(20 + N, T, N, 3, 1)
    beta = None
    if name == "Q-ThS":
        x, u = (np.asarray(v, float) for v in _beta_noise(KEY, T, N))

        def beta(t, a, b):
            wins, losses = (gamma(x[t, i], u[t, i], np.asarray(c, float)) for i, c in enumerate((a, b)))
            return wins / (wins + losses)

    uniform, _ = noise_of(KEY, T)
    theirs = ref.QueueBandit(N, uniform[:, 0, 0], uniform[:, 1, 0], beta)
    seen = play(inst.env(1, limit=500 if N == 3 else None), rq.QThS() if beta else rq.QUCB())
    want = ref.simulate(inst.A, inst.U, inst.utility, 1, theirs)
    assert_same_run(seen, inst, 1, want)
    np.testing.assert_array_equal(seen["state"].pulls, theirs.pulls)
    np.testing.assert_array_equal(seen["state"].wins, theirs.wins)
    assert 100 < want["explored"].sum() < T - 100 - want["idle"].sum()  # The index decides often enough.


CONVERGED = {"solver": BFGS, "sampler": ByCholesky()}
POOLS = {
    "K1, counts": (1, rq.ACQB(**CONVERGED), {}, ()),
    "K2, counts": (2, rq.ACQB(**CONVERGED, num_samples=3), {}, slow),
    "K3, rows": (3, rq.ACQB(solver=EXACT, num_samples=3), {}, slow),
    "K3, rows, joint": (3, rq.ACQB(solver=EXACT, num_samples=3, joint=True), {"mle": "joint"}, slow),
    "K1, other features": (1, rq.ACQB(**CONVERGED), {"other": True}, slow),
    "K1, fifo": (1, rq.ACQB(**CONVERGED, fifo=True), {"fifo": True}, slow),
    "K2, second answer": (2, rq.ACQB(**CONVERGED, num_samples=3, second_answer=np.float32(0.3)), {"p_k2": float(np.float32(0.3))}, slow),
    "K2, ridge 5": (2, rq.ACQB(**CONVERGED, ridge=5.0, num_samples=3), {}, slow),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, marks=c[3]) for n, c in POOLS.items()])
def test_acqb_on_a_pool(name):
    K, ours, plain, _ = POOLS[name]
    T, P, N, d = 300, 20, 4, 3
    given = pool(30 + K, T, P, N, d)
    features, plain = given.features, dict(plain)
    if plain.pop("other", False):  # ACQB-CL: the policy looks at other features than the environment's.
        features = np.random.default_rng(1).normal(size=(P, d - 1)) / 2
        ours = ours.replace(features=features.T)
    coin, z, size = learner_noise(T, N, features.shape[1], ours.num_samples or ref.num_samples(K))
    plain |= {"size": size} if "p_k2" in plain else {}
    theirs = ref.acqb(features[given.prompt], N, K, 0.3, float(ours.ridge), 1.0, coin, z, **plain)
    want = ref.simulate(given.A, given.U, given.utility, K, theirs)
    seen = play(given.env(K).replace(mixed="p_k2" in plain), ours)
    copies = [len(s) - len({given.prompt[q] for q in s}) for s in want["states"]]
    assert max(copies) > 1  # Several copies of one prompt wait at times.
    assert_same_run(seen, given, K, want)
    np.testing.assert_allclose(seen["theta"], want["theta"], atol=1e-8)
    np.testing.assert_allclose(seen["state"].spread.total, theirs.V, atol=1e-11)
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
    """Two answers."""
    K, fifo = 2, "fifo" in name
    given = pool(40, 300, P, 4, 3, arrival_rate=0.75)
    env = given.env(K)
    want = ref.simulate(given.A, given.U, given.utility, K, ref.Optimal(given.utility, K, fifo))
    assert_same_run(play(env, rq.Optimal.of(env, fifo)), given, K, want)


@pytest.mark.parametrize("K", [1, pytest.param(2, marks=slow)])
def test_root_of_the_design_matrix_after_a_run(K):
    given = pool(50, 300, 40, 3, 10)
    seen = play(given.env(K), rq.ACQB(), double=False)  # d = 10: by a root, and first-order steps.
    busy = seen["queue"] > 0
    root = seen["state"].spread.total.astype(float)
    for j in range(3):
        x = given.features[given.prompt[seen["query"][busy & seen["offered"][:, j]]]]
        V = np.eye(10) + x.T @ x
        np.testing.assert_allclose(np.linalg.inv(root[j] @ root[j].T), V, rtol=1e-4, atol=1e-4)
    assert np.isfinite(seen["theta"]).all()


@slow
@pytest.mark.parametrize("K", [1, 2])
def test_policy_switching_queues(K):
    T, d = 80, 2
    number, seed, N, arrival_rate = (63, 5, 3, 0.7) if K == 1 else (68, 1, 4, 0.8)  # Both signs of psi occur.
    inst = instance(number, T, N, d, K, arrival_rate=arrival_rate)
    with x64():
        env = in_double(inst.env(K))
        first = in_double(rq.ACQB(solver=EXACT))

        def switch(at):
            return in_double(rq.PolicySwitch(first=first, second=rq.Optimal.of(env), at=at))

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
    assert traces == 1 and data["queue_length"].dims == ("at", "time")
    # The learner's keys are those of the engine.
    words = run_streams(jax.random.key_data(draws.key(0)), np.array([seed], np.uint32))["act"][:, 0]
    coin, z, _ = learner_noise(T, N, d, ref.num_samples(K), draws_key(words))
    Q, D, _ = ref.switching_queues(inst.A, inst.U, inst.utility, K, ref.acqb(inst.contexts, N, K, 0.3, 1.0, 1.0, coin, z))
    ours = np.concatenate([np.zeros((T + 1, 1), int), data["queue_length"].values.astype(int)], axis=1)
    left = np.diff(data["departures"].values, axis=1, prepend=0).round().astype(int)
    np.testing.assert_array_equal(ours, Q)
    np.testing.assert_array_equal(left, D)
    psi = ref.switching_effects(ours)
    assert set(np.unique(psi)) == {-1, 0, 1} and not ref.sign_rule_violations(ours, left)
    np.testing.assert_array_equal(psi.sum(axis=0), ours[-1] - ours[0])  # The learner's queue less the optimal one.
    np.testing.assert_array_equal(psi.sum(axis=0)[1:], data["queue_regret"].values[-1])
    assert not data["queue_regret"].values[0].any()


@slow
@pytest.mark.parametrize("K", [1, 2])
def test_whole_runs_have_the_same_distribution(K):
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


# --- The reference itself, by hand ---------------------------------------------------------------------------------


def test_estimates_by_hand():
    """Worked examples of 4.2: one arm, three steps of Newton's method; pairs of three arms, joint and block by block."""
    X, taken = np.array([[1, 0], [0, 1], [0.6, -0.8], [0.6, 0.8]]), np.array([1, 0, 1, 0])
    one = ref.fit_disjoint(X, np.ones((4, 1), bool), np.where(taken, 0, -1), 1.0)[0]
    np.testing.assert_allclose(one, [0.3551224, -0.8433650], atol=5e-8)
    newton = [[0.3496503, -0.8280255], [0.3551183, -0.8433518], [0.3551224, -0.8433650]]
    np.testing.assert_allclose(ref.newton_iterates(X, taken, 1.0, 3), newton, atol=6e-8)
    X, chosen, offered = (
        np.array([[1.0], [0.5], [-1.0]]),
        np.array([0, 2, -1]),
        np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool),
    )
    np.testing.assert_allclose(
        ref.fit_disjoint(X, offered, chosen, 1.0)[:, 0], [0.7009860, -0.3266978, 0.5661644], atol=5e-8
    )
    block = np.zeros((3, 1))
    for h in range(1, 4):
        block = ref.fit_disjoint(X[:h], offered[:h], chosen[:h], 1.0, block, np.flatnonzero(offered[h - 1]))
    np.testing.assert_allclose(block[:, 0], [0.6993909, -0.3484076, 0.5656008], atol=5e-8)


def test_an_empty_queue_does_not_swallow_an_arrival():
    """2.5: with U = 0 a dummy would depart; the set recursion keeps the arrival."""
    A, U, utility = np.array([1, 1, 0, 0, 1, 0], bool), np.zeros(6), np.zeros((6, 2))
    run = ref.simulate(A, U, utility, 1, ref.Optimal(utility, 1))
    assert run["queue"].tolist() == [0, 1, 1, 0, 0, 1] and run["idle"].tolist() == [True, False, False, True, True, False]
    assert run["sojourn"].tolist() == [0, 1, 1, 0, 0, 1] and run["query"].tolist() == [-1, 0, 1, -1, -1, 4]


def test_the_check_of_the_sign_rule_finds_violations():
    Q, D = np.zeros((3, 3), int), np.zeros((3, 2), int)
    assert ref.sign_rule_violations(Q, D) == []
    Q[1, 2] = 1  # psi(1, 3) = 1 although both failed in round 1; psi(2, 3) = -1 is allowed.
    assert ref.sign_rule_violations(Q, D) == [(1, 2, 1)]
    D[0, 0] = 1
    assert ref.sign_rule_violations(Q, D) == []
    D[0, 0], D[1, 0] = 0, 1
    assert (1, 0, "departure") in ref.sign_rule_violations(Q, D)


@pytest.mark.parametrize("K, N, lam0", [(1, 5, 1.0), (2, 4, 0.1)])
def test_the_fast_loop_is_the_slow_one(K, N, lam0):
    """The comparator of speed, whose averages the runs above are compared with."""
    Theta, contexts, A, U, coin, z = ref.draw_fig2(np.random.default_rng(70 + K), 150, N, 5, K, 0.7, 0.03)
    fast = ref.acqb_fast(Theta, contexts, A, U, coin, z, K, 0.3, lam0, 1.0)
    slow = ref.simulate(A, U, ref.disjoint_utilities(Theta, contexts), K, ref.acqb(contexts, N, K, 0.3, lam0, 1.0, coin, z))
    for name in ("queue", "departure", "explored", "query"):
        np.testing.assert_array_equal(fast[name], slow[name], err_msg=name)
    for name in ("routing_gap", "joint_gap"):
        np.testing.assert_allclose(fast[name], slow[name], atol=1e-10)
    np.testing.assert_allclose(fast["theta"], slow["theta"][-1], atol=1e-6)
