"""Kernels play what the scan plays; the replay behind them computes what `jax.vmap` computes."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import lane_cases
import numpy as np
import pytest
from flax import struct
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from lane_cases import R, assert_same, floats, integers, keys
from lowering import lowers
from toys import Clock, Cycle, Planner, small_market

import jaxroute as jr
from jaxroute.core import draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.engine.grid import canonical
from jaxroute.engine.pallas import kernel, scalarise
from jaxroute.engine.pallas.scalarise import Replay, Unsupported, is_key
from jaxroute.engine.rounds import Record, run_streams
from jaxroute.problems import cascade, combinatorial, service, staged, stochastic

HALVES = np.linspace(-3, 3, 13 * R, dtype=np.float32).reshape(13, R).round(1)
HALVES[:, 0] = np.arange(-6, 7) / 2
WITH_NAN = np.where(floats(5) > 0.6, np.float32(np.nan), floats(5))


def replayed(fn, *args):
    """`fn` of `R` runs, the last axis of the arguments and results, by the replay of single numbers."""
    leaves, treedef = jax.tree.flatten(args)
    shapes = [jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype) for leaf in leaves]
    closed, out = jax.make_jaxpr(lambda *a: fn(*jax.tree.unflatten(treedef, a)), return_shape=True)(*shapes)

    def run(*leaves):
        replay = Replay(R, barriers=True)

        def enter(leaf):
            words = jnp.moveaxis(jax.random.key_data(leaf), -2, -1) if is_key(leaf) else leaf
            flat = words.reshape(-1, R)
            return np.asarray([replay.add(flat[i]) for i in range(flat.shape[0])], np.int64).reshape(words.shape[:-1])

        def leave(value, shape):
            value = replay.whole(value)
            numbers = [replay.own(int(p)) for p in value.ravel()]
            dtype = jnp.uint32 if is_key(shape) else shape.dtype
            array = jnp.stack(numbers).reshape(*value.shape, R) if numbers else jnp.zeros((*value.shape, R), dtype)
            return jax.random.wrap_key_data(jnp.moveaxis(array, -2, -1)) if is_key(shape) else array

        values = replay.call(closed, [enter(leaf) for leaf in leaves])
        return [leave(v, s) for v, s in zip(values, jax.tree.leaves(out), strict=True)]

    return jax.tree.unflatten(jax.tree.structure(out), jax.jit(run)(*leaves))


# Cases of `test_lanes` that no kernel can have, and the primitive that is named.
REFUSED = {
    "rounding": "reduce_precision",
    "bitcast to bytes": "bitcast_convert_type",
    "cumulative": "cumlogsumexp",
    "sort": "top_k",
    "convolution": "conv_general_dilated",
    "window": "reduce_window_max",
    "searchsorted": "le_to",
    "apply a function": "scatter that applies a function",
    "cholesky": "cholesky",
    "solve": "lu",
    "triangular": "triangular_solve",
    "cho_solve": "cholesky",
    "eigenvalues": "eigh",
    "determinant": "lu",
    "scan of solves": "lu",
    "gradient of a solve": "lu",
    "rejection": "random_gamma",
    "equality": "eq of random keys",
}
TAKEN = {
    name: case for name, case in (lane_cases.CASES | lane_cases.DIFFERENTIABLE).items() if name not in REFUSED and name != "solve"
} | {
    "rounding, whole numbers": (lambda x: (jnp.floor(x), jnp.round(9 * x), jnp.sign(x), x % 0.7), floats(4)),
    "halves": (lambda x: (jnp.round(x), lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)), HALVES),
    "cumulative sums": (lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, 0), lax.cummin(x, 1, True)), floats(4, 3)),
    "sorting": (lambda x: (jnp.sort(x), jnp.argsort(x[:, 0]), lax.sort((x[:, 0], x[:, 1]), num_keys=1)), floats(4, 3)),
    "sorting with ties": (lambda i: (jnp.argsort(i), lax.sort((i % 2, i // 2, i), num_keys=2)), integers(4, 7)),
    "NaN": (lambda x: (jnp.max(x), jnp.min(x), jnp.maximum(x, 0), jnp.argmax(x), jnp.argmin(x), jnp.sort(x)), WITH_NAN),
    "scatter without places": (lambda x, i: (x.at[i + 3].add(1.0), x.at[i].min(0.0, mode="clip")), floats(4, 3), integers(4, 2)),
    "keys without draws": (lambda k: (jax.random.bits(k, (3,)), jax.random.uniform(k), jax.random.bernoulli(k, 0.3)), keys()),
}  # fmt: skip
QUICK = (
    *(
        "arithmetic",
        "integers",
        "unsigned",
        "booleans",
        "conversions",
        "select by a scalar",
        "scalars",
        "reductions",
        "argmax",
    ),
    *("reshape", "transpose", "concatenate", "pad", "roll and repeat", "zero size", "halves", "sorting with ties", "NaN"),
    *("dynamic slice per run", "dynamic update per run", "gather", "scatter", "scatter without places", "a cell written"),
    *("products", "scan", "scan, carry mapped late", "scan, reverse and unrolled", "cond per run"),
    *("switch", "while, end per run", "fori, bound per run", "nested", "fold_in and split", "keys without draws"),
    *("key in a carry", "choice between keys", "key from a seed", "relu at zero", "custom_vjp"),
)


def quick(names, fast):
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", quick(TAKEN, QUICK))
def test_the_replay_equals_vmap(name):
    fn, *args = TAKEN[name]
    theirs = jax.jit(jax.vmap(fn, in_axes=-1, out_axes=-1, axis_size=R))(*args)
    # Sums are taken in another order.
    assert_same(replayed(fn, *args), theirs)


@pytest.mark.parametrize("name", quick(REFUSED, ("cholesky", "sort", "equality")))
def test_what_a_kernel_cannot_have_is_named(name):
    fn, *args = lane_cases.CASES[name]
    with pytest.raises(Unsupported, match=REFUSED[name]):
        replayed(fn, *args)


LOOPS = (
    "scan",
    "scan, unmapped carry",
    "scan, carry mapped late",
    "scan, reverse and unrolled",
    "scan, consts and xs unmapped",
    "nested",
)


@pytest.mark.parametrize("name", quick(LOOPS, ("scan, reverse and unrolled", "scan, carry mapped late")))
def test_loops_that_are_not_written_out(name, monkeypatch):
    monkeypatch.setattr(scalarise, "_WRITTEN_OUT", 0)
    monkeypatch.setattr(scalarise, "_WRITTEN_OUT_SLICES", 0)
    fn, *args = lane_cases.CASES[name]
    assert_same(replayed(fn, *args), jax.jit(jax.vmap(fn, in_axes=-1, out_axes=-1, axis_size=R))(*args))


# Every primitive that a kernel may have must be one that Triton lowers: the same cases, a few at a time.
LOWERED = {
    "arithmetic": (
        "arithmetic",
        "rounding, whole numbers",
        "comparisons",
        "integers",
        "unsigned",
        "booleans",
        "clamp",
        "nextafter",
    ),
    "functions": ("functions", "halves", "NaN", "conversions", "softmax", "relu"),
    "places": (
        "argmax",
        "sorting",
        "gather",
        "scatter",
        "dynamic slice per run",
        "dynamic update per run",
        "cumulative sums",
    ),
    "loops": ("scan, carry mapped late", "fori", "fori, bound per run", "while, common end", "while, end per run", "nested"),
    "branches": ("cond", "cond per run", "switch per run", "key in a carry"),
    "keys": ("draws", "jax.random", "keys without draws", "while with a key"),
}


@pytest.mark.parametrize("group", LOWERED)
def test_what_a_kernel_may_have_lowers_for_cuda(group):
    """With whole warps: thirty-two runs."""
    for name in LOWERED[group]:
        fn, *args = TAKEN[name]
        leaves, treedef = jax.tree.flatten(args)
        closed = jax.make_jaxpr(lambda *a, f=fn, d=treedef: f(*jax.tree.unflatten(d, a)))(
            *(jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype) for leaf in leaves)
        )
        words = [jnp.moveaxis(jax.random.key_data(x), -1, -2) if is_key(x) else jnp.asarray(x) for x in leaves]
        packing = kernel._Packing([jax.ShapeDtypeStruct(x.shape[:-1], x.dtype) for x in words])

        def body(*refs, closed=closed, packing=packing):
            replay = Replay(32, barriers=False)
            values = [
                np.asarray([replay.add(n) for n in numbers], np.int64).reshape(shape.shape)
                for numbers, shape in zip(packing.load(refs[:-1], 32), packing.shapes, strict=True)
            ]
            for value in replay.call(closed, values):
                for place in value.ravel():
                    refs[-1][0, :] = kernel._packed(replay.own(int(place))).astype(jnp.int32)

        shape = jax.ShapeDtypeStruct((1, 32), jnp.int32)
        packed = [jnp.tile(p[:, :1], (1, 32)) for p in packing.pack(words)]
        call = pl.pallas_call(body, out_shape=shape, compiler_params=plgpu.CompilerParams(num_warps=1))
        assert "triton" in lowers(call, *packed)


def small_bandit():
    return stochastic.bernoulli([0.9, 0.5, 0.2])


def small_service():
    return service.benchmark_service("winogrande", signal=0.15)


def small_cloud(reward):
    success, cost = [0.2, 0.5, 0.4, 0.9, 0.6], [0.1, 0.4, 0.3, 1.0, 0.2]
    return combinatorial.law_cloud(success, cost, reward=reward, budget=0.7, size=2)


def oracle_predictor(env):
    return service.MessPlus(predictor=service.TrueChances(env.requests))


# Environment and policy; the slow ones differ little from their neighbours, or take long to compile for a CPU.
PAIRS = {
    "UCB1": (small_bandit, stochastic.UCB1()),
    "GaussianThompson": (small_bandit, stochastic.GaussianThompson()),
    "EpsilonGreedy": (lambda: stochastic.gaussian([0.1, 0.5, 0.3]), stochastic.EpsilonGreedy()),
    "BetaThompson": (small_bandit, stochastic.BetaThompson()),
    "StageRoute": (lambda: small_market(max_deployed=2, horizon=157), staged.StageRoute()),
    "Greedy": (lambda: small_market(horizon=157), staged.Greedy()),
    "C2MABV, sum up": (lambda: small_cloud("suc"), combinatorial.C2MABV()),
    "C2MABV, all in": (lambda: small_cloud("aic"), combinatorial.C2MABV()),
    "C2MABV, any win": (lambda: small_cloud("awc"), combinatorial.C2MABV()),
    "MESS+, logistic predictor": (small_service, service.MessPlus(c=0.5)),
    "MESS+, oracle predictor": (small_service, oracle_predictor),
    "Frugal": (cascade.uniform_cascade, cascade.Frugal()),
}
FAST = ("UCB1", "GaussianThompson", "StageRoute")
# A shadow price is not unique where a vertex of the program meets the budget: rounding decides between slopes.
LOOSE = ("multiplier",)


def both_backends(env, policy, **options):
    """The same runs by the kernel, which must have played them, and by the scan."""
    options = {"horizon": 157, "record_every": 25, "seeds": 21, "progress": False} | options
    ours, theirs = (jr.simulate(env, policy, backend=b, **options) for b in ("pallas", "scan"))
    assert ours.attrs["backend"] == "pallas" and not ours.attrs["fell_back"]
    return ours, theirs


def assert_equal_play(ours, theirs):
    """Counts and choices are equal, other numbers to rounding; all of them are there."""
    assert set(ours.data_vars) == set(theirs.data_vars)
    for name, values in theirs.data_vars.items():
        mine, values = ours[name].values, values.values
        assert (mine.shape, mine.dtype) == (values.shape, values.dtype), name
        if name in LOOSE:
            continue
        # Whole numbers: counts of pulls, of explorations, of deployments.
        if np.array_equal(values, np.round(values), equal_nan=True):
            np.testing.assert_array_equal(mine, values, err_msg=name)
        largest = np.max(np.abs(values), initial=1.0, where=np.isfinite(values))
        np.testing.assert_allclose(mine, values, rtol=1e-6, atol=1e-6 * largest, err_msg=name)


def everything(env, policy):
    """Names of all metrics."""
    example = policy if hasattr(policy, "act") else policy(env)
    return [m.name for m in (*env.spec.metrics, *getattr(example, "metrics", ()))]


@pytest.mark.parametrize("name", quick(PAIRS, FAST))
def test_the_kernel_plays_what_the_scan_plays(name):
    """Seven intervals of which the last is shorter, seeds that fill no warp, stages that cut through the intervals."""
    make, policy = PAIRS[name]
    env = make()
    ours, theirs = both_backends(env, {name: policy}, record=everything(env, policy))
    assert_equal_play(ours, theirs)
    counts = [n for n in ("pulls", "served_share", "queries") if n in ours]
    assert counts
    for count in counts:  # Every decision of every run.
        np.testing.assert_array_equal(ours[count].values, theirs[count].values)


def player_of(env, policy, horizon=1000, every=100):
    """The kernel's rollout as a function of the leaves of environment and policy and of the seeds."""
    made = policy if hasattr(policy, "act") else policy(env)
    flows = tuple(m for m in env.spec.metrics if m.kind != "gauge")
    record = Record(every=every, flows=flows, zero_flows=env.spec.zero_flows)
    leaves, treedef = jax.tree.flatten(canonical((env, made)))
    root = np.asarray(jax.random.key_data(draws.key(0)))

    def play(leaves, seeds):
        env, policy = jax.tree.unflatten(treedef, leaves)
        return kernel.kernel_rollout(env, policy, run_streams(root, seeds), horizon, record, interpret=False)

    return play, leaves


@pytest.mark.parametrize("name", PAIRS)
def test_the_kernel_lowers_for_cuda(name):
    make, policy = PAIRS[name]
    play, leaves = player_of(make(), policy)
    text = lowers(play, leaves, np.arange(64, dtype=np.uint32))
    assert text.count("stablehlo.custom_call @triton_kernel_call") + text.count("__gpu$xla.gpu.triton") == 1
    assert "stablehlo.while" not in text or hasattr(policy, "plan")  # No loop over rounds besides the kernel's.


@pytest.mark.parametrize(
    "stage_length, free_rounds, every",
    [(4, 3, 6), *(pytest.param(*c, marks=pytest.mark.slow) for c in ((None, 0, 25), (None, 3, 1), (10, 0, 3), (6, 2, 50)))],
)
def test_intervals_stages_and_free_rounds(stage_length, free_rounds, every):
    """All flows and gauges of a clock that can be worked out by hand; the scan has tests of its own against the hand."""
    env = Clock(stage_length=stage_length, free_rounds=free_rounds)
    policy = Planner() if stage_length else Cycle()
    record = [*everything(env, policy), "info.twice", "info.both"]
    ours, theirs = both_backends(env, policy, horizon=47, record_every=every, record=record)
    for name in theirs.data_vars:
        np.testing.assert_array_equal(ours[name].values, theirs[name].values, err_msg=name)


@pytest.mark.parametrize("free_rounds", [0, 4])
@pytest.mark.parametrize("stage_length", [None, 7, 10, 25, 60])
@pytest.mark.parametrize("every", [1, 5, 20, 50])
def test_the_schedule_covers_every_round_once(free_rounds, stage_length, every):
    game = SimpleNamespace(free_rounds=free_rounds, stage_length=stage_length)
    when = kernel._Schedule(game, 53, every)
    rounds = {}
    for span in range(when.spans):
        begin, stop = span * when.span, min((span + 1) * when.span, 53 + free_rounds)
        first = when.interval(begin)
        for slot in range(when.interval(stop - 1) - first + 1):
            here = max(begin, int(when.stop(first + slot - 1)))
            rounds.setdefault(first + slot, []).append((here, min(stop, int(when.stop(first + slot))), span, slot))
            assert slot < when.slots
    covered = [t for i in sorted(rounds) for here, there, *_ in rounds[i] for t in range(here, there)]
    assert covered == list(range(53 + free_rounds))
    counted = [rounds[i] for i in sorted(rounds) if not (free_rounds and i == 0)]
    assert [parts[-1][1] - free_rounds for parts in counted] == [*range(every, 53, every), 53]
    np.testing.assert_array_equal(when.places, np.asarray([parts[-1][2:] for parts in counted]).T)


def test_a_grid_is_a_map_over_the_kernel():
    env = jr.grid(stochastic.gaussian, mean=[(0.1, 0.3, 0.2), (0.4, 0.1, 0.2)], scale=0.5)
    ours, theirs = both_backends(env, {"UCB1": jr.grid(stochastic.UCB1, width=[0.5, 1.0])}, horizon=40)
    assert_equal_play(ours, theirs)


def test_random_instances():
    """A sampler gives every run an instance of its own."""

    def sampler(key):
        return stochastic.BanditEnv(mean=draws.uniform(key, (3,)), scale=jnp.float32(0.0))

    ours, theirs = both_backends(sampler, stochastic.UCB1(), horizon=40, seeds=[3, 5, 8])
    assert_equal_play(ours, theirs)


@struct.dataclass
class Lookup(stochastic.BanditEnv):
    """A bandit whose rewards come from a long table, by a row that every run draws for itself."""

    table: Leaf = None

    def step(self, key, state, action, t):
        row = draws.randint(key, self.table.shape[0])
        reward = numerics.pick(numerics.one_hot(action, 3), numerics.at(self.table, (row,)))
        state, _, flows = super().step(key, state, action, t)
        return state, reward, {**flows, "reward": reward + self.table[t % 7, 1]}


def test_long_tables_stay_in_memory():
    table = np.random.default_rng(0).random((300, 3)).astype(np.float32)
    env = Lookup(mean=np.float32([0.3, 0.5, 0.4]), scale=np.float32(0), table=table)
    ours, theirs = both_backends(env, stochastic.UCB1(), horizon=40, record=everything(env, stochastic.UCB1()))
    assert_equal_play(ours, theirs)
    play, leaves = player_of(env, stochastic.UCB1())
    assert "triton" in lowers(play, leaves, np.arange(64, dtype=np.uint32))


@struct.dataclass
class Factorising(stochastic.EpsilonGreedy):
    """Has an operation that no kernel has, without effect."""

    def update(self, key, state, obs, action, feedback, t):
        state = super().update(key, state, obs, action, feedback, t)
        one = jnp.linalg.cholesky(jnp.eye(3) * (1.0 + state.reward_sum.sum() ** 2))[0, 0]
        return state.replace(reward_sum=state.reward_sum + jnp.where(one > 0, 0.0, 1.0))


def test_what_does_not_fit_is_played_by_the_scan_with_a_warning():
    options = {"horizon": 30, "seeds": 5, "progress": False}
    policies = {"odd": Factorising()}
    with pytest.warns(UserWarning, match=r"policy 'odd' on BanditEnv does not fit into a kernel.*cholesky"):
        ours = jr.simulate(small_bandit(), policies, backend="pallas", **options)
    theirs = jr.simulate(small_bandit(), policies, **options)
    assert list(ours.attrs["fell_back"]) == ["odd"] and "cholesky" in ours.attrs["fell_back"]["odd"]
    for name in theirs.data_vars:
        np.testing.assert_array_equal(ours[name].values, theirs[name].values)
    with pytest.warns(UserWarning, match="cholesky"):  # Also when it is known already.
        jr.simulate(small_bandit(), policies, backend="pallas", **options)


def test_a_state_that_is_too_large_is_refused_by_its_size():
    mean = np.linspace(0.1, 0.9, 1500).astype(np.float32)
    with pytest.warns(UserWarning, match="state of 3,0.. numbers"):
        jr.simulate(stochastic.bernoulli(mean), stochastic.UCB1(), horizon=3, seeds=3, progress=False, backend="pallas")


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="backend must be one of 'scan', 'pallas', 'reference', got 'cuda'"):
        jr.simulate(small_bandit(), stochastic.UCB1(), horizon=3, seeds=3, backend="cuda")


def test_a_store_belongs_to_its_backend(tmp_path):
    options = {"horizon": 20, "seeds": 3, "progress": False, "out": tmp_path / "store"}
    jr.simulate(small_bandit(), stochastic.UCB1(), **options)
    with pytest.raises(ValueError, match="backend"):
        jr.simulate(small_bandit(), stochastic.UCB1(), backend="pallas", **options)


def test_blocks_of_threads_grow_with_the_number_of_runs():
    assert [kernel.block_width(n) for n in (1, 1000, 10**5, 10**6)] == [32, 32, 64, 128]


@pytest.mark.gpu
@pytest.mark.parametrize("name", PAIRS)
def test_both_backends_agree_on_a_gpu(name):
    """The draws are the same bits, so most runs are equal; rounding may part a few, which are no better or worse."""
    make, policy = PAIRS[name]
    env = make()
    ours, theirs = both_backends(env, {name: policy}, horizon=1000, seeds=2048, record_every=100)
    for metric in theirs.data_vars:
        if metric in LOOSE or "time" not in theirs[metric].dims:
            continue
        mine, values = (d[metric].isel(time=-1).values.astype(np.float64) for d in (ours, theirs))
        assert np.mean(np.isfinite(mine) == np.isfinite(values)) > 0.9, metric
        finite = np.isfinite(mine) & np.isfinite(values)
        if finite.sum() < 2:  # A ratio to a violation that never was.
            continue
        mine, values = mine[finite], values[finite]
        difference, scale = mine - values, np.max(np.abs(values), initial=1e-9)
        assert np.mean(np.abs(difference) < 1e-4 * scale) > 0.9, metric
        spread = difference.std(ddof=1) / np.sqrt(difference.size)
        assert abs(difference.mean()) < 5 * spread + 1e-5 * scale, metric
