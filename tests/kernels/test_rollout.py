"""Kernels play what the scan plays."""

import subprocess
from concurrent.futures import Future
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from c_functions import statements_of
from conformance_cases import OPTIONS, POLICIES
from flax import struct
from helpers import backends
from jax import lax
from toys import Clock, Cycle, Planner

import jaxroute as jr
from jaxroute.core import draws, numerics
from jaxroute.core.attributes import decoded
from jaxroute.core.types import Leaf, Metric
from jaxroute.engine import programs
from jaxroute.engine.rounds import SimulationError
from jaxroute.kernels import calls, cuda, host, ir, source
from jaxroute.problems import queueing, stochastic

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="there is no C compiler")

FAST = (
    *("stochastic/UCB1", "stochastic/GaussianThompson", "stochastic/BetaThompson", "staged/StageRoute", "service/MessPlus"),
    *("combinatorial/C2MABV", "cascade/LinUCB", "queueing/Random"),
)


def everything(env, policy):
    """Names of all metrics."""
    example = policy if hasattr(policy, "act") else policy(env)
    return [m.name for m in (*env.spec.metrics, *getattr(example, "metrics", ()))]


def both_backends(env, policy, **options):
    """The same runs by the kernel, which must have played them, and by the scan."""
    options = {"horizon": 47, "record_every": 10, "seeds": 21, "progress": False} | options
    ours, theirs = (jr.simulate(env, policy, execution=jr.Execution(b), **options) for b in ("kernel", "scan"))
    assert backends(ours) == {"kernel"} and not decoded(ours.attrs)["fell_back"]
    return ours, theirs


def assert_equal_play(ours, theirs):
    """All numbers are equal, and all of them are there."""
    assert set(ours.data_vars) == set(theirs.data_vars)
    for name, values in theirs.data_vars.items():
        assert (ours[name].shape, ours[name].dtype) == (values.shape, values.dtype), name
        np.testing.assert_array_equal(ours[name].values, values.values, err_msg=name)


CASES = {**POLICIES, **OPTIONS}


@pytest.fixture
def written(monkeypatch):
    """Statements of the kernels that a test writes."""
    kernels, printed = [], source.source_from

    def write(emitter, *args):
        kernels.append(statements_of(emitter.block))
        return printed(emitter, *args)

    monkeypatch.setattr(source, "source_from", write)
    return kernels


def calls_of(statements, name):
    """Sizes of the calls of a name."""
    return [one.size for one in statements if isinstance(one, ir.Call) and one.name == name]


def arrays_of(statements):
    """Type, size and place of each array."""
    declared = [one.storage for one in statements if isinstance(one, ir.Declare)]
    return [(one.dtype.name, one.size, one.per_run) for one in declared]


# Rounds for which there is room, where that is less than 47.
SHORTER = {"cascade/exact evaluator": 25}


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_the_kernel_plays_what_the_scan_plays(name):
    """Five intervals of which the last is shorter, stages that cut through the intervals, everything recorded."""
    policy, env = CASES[name].policy, CASES[name].env()
    horizon = SHORTER.get(name, 47)
    assert_equal_play(*both_backends(env, {"policy": policy}, record=everything(env, policy), horizon=horizon))


@pytest.mark.parametrize(
    "stage_length, free_rounds, every", [(4, 3, 6), (None, 0, 25), (None, 3, 1), (10, 0, 3), (6, 2, 50)]
)
def test_intervals_stages_and_free_rounds(stage_length, free_rounds, every):
    """All flows and gauges of a clock that can be worked out by hand; the scan has tests of its own against the hand."""
    env = Clock(stage_length=stage_length, free_rounds=free_rounds)
    policy = Planner() if stage_length else Cycle()
    record = [*everything(env, policy), "info.twice", "info.both"]
    assert_equal_play(*both_backends(env, policy, horizon=47, record_every=every, record=record))


def test_a_grid_is_a_map_over_the_kernel():
    """Settings of both, of which each array knows only its own."""
    env = jr.grid(stochastic.gaussian, mean=[(0.1, 0.3, 0.2), (0.4, 0.1, 0.2)], scale=0.5)
    policy = jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0])
    assert_equal_play(*both_backends(env, {"UCB1": policy}, horizon=40))


def test_random_instances():
    """A sampler gives every run an instance of its own."""

    def sampler(key):
        return stochastic.BanditEnv(mean=draws.uniform(key, (3,)), scale=jnp.float32(0.0))

    assert_equal_play(*both_backends(sampler, stochastic.UCB1(), horizon=40, seeds=[3, 5, 8]))


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
    assert_equal_play(*both_backends(env, stochastic.UCB1(), horizon=40, record=everything(env, stochastic.UCB1())))


def test_a_longer_horizon_goes_on_from_kept_states(tmp_path):
    options = {"seeds": 12, "record_every": 10, "progress": False, "execution": jr.Execution("kernel")}
    env, policy = CASES["stochastic/UCB1"].env(), CASES["stochastic/UCB1"].policy
    jr.simulate(env, policy, horizon=40, out=jr.Store(tmp_path, keep_states=True), **options)
    grown = jr.simulate(env, policy, horizon=60, out=jr.Store(tmp_path, keep_states=True), **options)
    at_once = jr.simulate(env, policy, horizon=60, **options)
    assert decoded(grown.attrs)["last_call"]["decisions"] == 12 * 20
    for name in at_once.data_vars:
        np.testing.assert_array_equal(grown[name].values, at_once[name].values)


@struct.dataclass
class Blurred(stochastic.EpsilonGreedy):
    """Has an operation that has no C, without effect."""

    def update(self, key, state, obs, action, feedback, t):
        state = super().update(key, state, obs, action, feedback, t)
        blurred = jnp.convolve(state.reward_sum, jnp.ones(2))
        return state.replace(reward_sum=jnp.where(jnp.isnan(blurred[0]), 0.0, state.reward_sum))


def test_what_has_no_c_is_played_by_the_scan_with_a_warning():
    options = {"horizon": 30, "seeds": 5, "progress": False}
    env, policies = stochastic.bernoulli([0.9, 0.5, 0.2]), {"odd": Blurred()}
    words = r"policy 'odd' on BanditEnv is run by the scan, which is slower than a kernel: .*jax.numpy.convolve"
    with pytest.warns(UserWarning, match=words):
        ours = jr.simulate(env, policies, execution=jr.Execution("kernel"), **options)
    ((name, reason),) = decoded(ours.attrs)["fell_back"].items()
    assert name == "odd" and "jax.numpy.convolve" in reason
    assert_equal_play(ours, jr.simulate(env, policies, **options))
    with pytest.warns(UserWarning, match="jax.numpy.convolve"):  # Also when it is known already.
        jr.simulate(env, policies, execution=jr.Execution("kernel"), **options)


@struct.dataclass
class ByRound(stochastic.EpsilonGreedy):
    """Adds a row of a table to its sums of rewards: that of the round, the same in all runs, and one of each run's own."""

    table: np.ndarray | None = None

    def update(self, key, state, obs, action, feedback, t):
        state, table = super().update(key, state, obs, action, feedback, t), jnp.asarray(self.table)
        places = t % 5, jnp.argmax(state.reward_sum)
        rows = [jnp.take(table, place[None], axis=0, mode="clip")[0] for place in places]
        return state.replace(reward_sum=state.reward_sum + 1e-3 * (rows[0] + rows[1])[:3])


def test_rows_of_a_shared_table_are_copied_whether_runs_want_the_same_or_their_own(written):
    policy = ByRound(table=np.random.default_rng(0).normal(size=(5, 9)).astype(np.float32))
    env = stochastic.bernoulli([0.9, 0.5, 0.2])
    with mock.patch.dict(programs.PROGRAMS, clear=True):
        assert_equal_play(*both_backends(env, {"policy": policy}, record=everything(env, policy)))
    assert calls_of(written[0], "rows_of") == [9, 9]


@struct.dataclass
class Tables:
    """A state with tables of which each run reads and writes rows of its own."""

    own: Any
    numbers: jax.Array  # [3, 50]
    counts: jax.Array  # [3, 40], int16


@struct.dataclass
class KeepsRows(stochastic.EpsilonGreedy):
    """Changes a row of the model that was pulled, and in some runs and rounds of another one."""

    odd: float = 0.0  # Written into a row of the first model in the 30th round.

    def init(self, key, spec):
        numbers = jnp.arange(150, dtype=jnp.float32).reshape(3, 50) / 150
        return Tables(own=super().init(key, spec), numbers=numbers, counts=jnp.zeros((3, 40), jnp.int16))

    def act(self, key, state, obs, t):
        return super().act(key, state.own, obs, t)

    def update(self, key, state, obs, action, feedback, t):
        own = super().update(key, state.own, obs, action, feedback, t)
        place = jnp.argmax(own.reward_sum)
        row = numerics.at(state.numbers, (place,))
        new = 0.9 * row + jnp.sum(feedback) * row[::-1] + jnp.where(t == 30, self.odd, 0)
        numbers = numerics.put(state.numbers, (place,), new)

        def other(tables):
            numbers, counts = tables
            least = jnp.argmin(own.reward_sum)
            row = numerics.at(counts, (least,)) + jnp.arange(40, dtype=jnp.int16)
            return numerics.put(numbers, (least,), numerics.at(numbers, (place,)) - 0.5), numerics.put(counts, (least,), row)

        first, second, _ = own.reward_sum
        numbers, counts = lax.cond(first > second, other, lambda tables: tables, (numbers, state.counts))
        counts = numerics.put(counts, (place, t % 40), numerics.at(counts, (place, 7)) + jnp.int16(2))
        return Tables(own=own, numbers=numbers, counts=counts)

    def gauges(self, state):
        return {"numbers": jnp.sum(state.numbers, axis=0), "counts": state.counts.astype(jnp.float32)}

    metrics = (
        Metric("numbers", "sums over models", "", "gauge", ("number",)),
        Metric("counts", "all counts", "", "gauge", ("model", "place")),
    )


@pytest.mark.parametrize("odd", [0.0, np.nan])
def test_rows_of_a_run_stand_side_by_side(odd, written):
    """What is read and written by rows at places of the runs' own is laid out run by run; no result shows it."""
    env, policy = stochastic.bernoulli([0.9, 0.5, 0.2]), KeepsRows(odd=odd)
    with mock.patch.dict(programs.PROGRAMS, clear=True):
        ours, theirs = both_backends(env, {"policy": policy}, record=everything(env, policy))
    assert_equal_play(ours, theirs)
    assert {("float32", 150, True), ("int16", 120, True)} <= set(arrays_of(written[0]))
    assert calls_of(written[0], "write_rows").count(50) == 2 and calls_of(written[0], "read_rows").count(50) >= 2
    np.testing.assert_array_equal(ours["valid"].values, theirs["valid"].values)
    assert bool(ours["valid"].all()) == (odd == 0)


def _no_compiler(monkeypatch):
    monkeypatch.setattr(host, "compiler", lambda wide=False: None)
    return "there is no C\\+\\+ compiler"


def _refused(monkeypatch):
    monkeypatch.setattr(host, "FLAGS", (*host.FLAGS, "--no-such-flag"))
    return "does not compile it"


def _too_long(monkeypatch):
    def late(*_, **options):
        raise subprocess.TimeoutExpired("cc", options["timeout"])

    host._version(host.compiler(), host.own_flags())
    monkeypatch.setattr(host.subprocess, "run", late)
    return "takes more than 120 s"


def _never_ready(monkeypatch):
    monkeypatch.setattr(calls, "MOST_S", 0.1)
    monkeypatch.setattr(calls.pool, "submit", lambda *_: Future())
    return "compiling it takes more than 0.1 s"


@pytest.mark.parametrize("fault", [_no_compiler, _refused, _too_long, _never_ready])
def test_what_cannot_be_compiled_is_played_by_the_scan(fault, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    reason = fault(monkeypatch)
    mean = np.float32([0.1, 0.2, 0.3]) + len(reason) / 1000  # A program of its own.
    options = {"horizon": 30 + len(reason), "seeds": 5, "progress": False}
    for _ in range(2):
        with pytest.warns(UserWarning, match=reason):
            ours = jr.simulate(stochastic.bernoulli(mean), stochastic.UCB1(), execution=jr.Execution("kernel"), **options)
    theirs = jr.simulate(stochastic.bernoulli(mean), stochastic.UCB1(), **options)
    np.testing.assert_array_equal(ours["regret"].values, theirs["regret"].values)


@struct.dataclass
class Growing(stochastic.UCB1):
    """Its state has another shape after the first round."""

    def init(self, key, spec):
        return {"sum": 0.0}

    def act(self, key, state, obs, t):
        return jnp.int32(0), {}

    def update(self, key, state, obs, action, feedback, t):
        return {"sum": state["sum"] + jnp.ones(3)}


@struct.dataclass
class Typed(Growing):
    """Its state is of another type then."""

    def update(self, key, state, obs, action, feedback, t):
        return {"sum": jnp.int32(1)}


@struct.dataclass
class Planned(Growing):
    """A plan changes the shape of its state."""

    stage_length: int = struct.field(pytree_node=False, default=5)

    def plan(self, key, state, obs, t):
        return {"sum": jnp.zeros(2)}

    def update(self, key, state, obs, action, feedback, t):
        return state


@pytest.mark.parametrize("execution", [{}, {"backend": "kernel"}, {"compile": "quick"}, {"backend": "scan"}], ids=str)
@pytest.mark.parametrize("policy", [Growing(), Typed(), Planned()], ids=["shape", "type", "plan"])
@pytest.mark.filterwarnings("ignore:.*which is slower than a kernel")
def test_a_state_that_changes_its_shape_is_refused(policy, execution):
    """A kernel would write over its neighbours."""
    with pytest.raises(SimulationError, match="must have equal"):
        jr.simulate(
            stochastic.bernoulli([0.9, 0.5]),
            policy,
            horizon=20,
            seeds=8,
            execution=jr.Execution(**execution),
            progress=False,
        )


@pytest.mark.parametrize("backend", ["auto", "kernel", "the store's"])
def test_where_no_kernel_can_be_used_the_scan_runs_with_one_warning(backend, monkeypatch, tmp_path):
    env, policies = stochastic.bernoulli([0.5, 0.2]), {"UCB1": stochastic.UCB1(), "MOSS": stochastic.MOSS()}
    options = {"horizon": 20, "seeds": 3, "progress": False}
    if backend == "the store's":
        options |= {"out": tmp_path / "store"}
        jr.simulate(env, policies, execution=jr.Execution("kernel"), **options)
        options |= {"seeds": 5}
    monkeypatch.setattr(host, "trial", lambda: "there is no C++ compiler")
    with pytest.warns(UserWarning, match="no kernel can be used here.*there is no C.. compiler") as told:
        data = jr.simulate(env, policies, execution=jr.Execution("kernel" if backend == "kernel" else "auto"), **options)
    assert len(told) == 1 and backends(data) == {"scan"}
    assert decoded(data.attrs)["fell_back"] == dict.fromkeys(policies, "there is no C++ compiler")


def test_what_has_no_c_is_played_by_the_scan_in_silence_if_nobody_asked_for_a_kernel(recwarn):
    env = stochastic.bernoulli([0.9, 0.5, 0.2])
    data = jr.simulate(env, {"odd": Blurred()}, horizon=31, seeds=5, progress=False)
    assert "jax.numpy.convolve" in decoded(data.attrs)["fell_back"]["odd"] and not recwarn.list


def test_prompts_of_a_pool_are_read_row_by_row(written):
    """A table that runs share, turned twice on the way, is not copied; what the scan plays is equal."""
    env, policy = queueing.standin_queue("routerbench", arrival_rate=0.8, horizon=47, queries=70), queueing.ACQB()
    with mock.patch.dict(programs.PROGRAMS, clear=True):
        assert_equal_play(*both_backends(env, {"policy": policy}, record=everything(env, policy)))
    (statements,) = written
    # 70 prompts of 64 features.
    assert 64 in calls_of(statements, "rows_of") and 4480 not in [size for _, size, _ in arrays_of(statements)]
    assert backends(jr.simulate(env, policy, horizon=47, seeds=2, progress=False)) == {"kernel"}


def test_pairs_of_answers_to_the_prompts_of_a_pool(written):
    """What a model was shown with is read and written by rows."""
    env = queueing.standin_queue("routerbench", arrival_rate=0.8, horizon=47, queries=70, num_offered=2)
    policy = queueing.ACQB()
    with mock.patch.dict(programs.PROGRAMS, clear=True):
        assert_equal_play(*both_backends(env, {"policy": policy}, record=everything(env, policy)))
    assert {"float32", "int16"} <= {dtype for dtype, _, per_run in arrays_of(written[0]) if per_run}
    assert backends(jr.simulate(env, policy, horizon=47, seeds=2, progress=False)) == {"kernel"}


@pytest.mark.parametrize("seeds", [1, 15, 16, 17, 48])
def test_a_run_is_the_same_beside_any_number_of_others(seeds):
    """Runs are played in groups of as many as a vector has numbers, of which the last may be short."""
    env, policy = CASES["combinatorial/C2MABV"].env(), CASES["combinatorial/C2MABV"].policy
    options = {"horizon": 60, "progress": False, "execution": jr.Execution("kernel", block=64)}
    some, more = (jr.simulate(env, policy, seeds=n, **options) for n in (seeds, 64))
    for name in some.data_vars:
        np.testing.assert_array_equal(some[name].values, more[name].isel(seed=slice(seeds)).values, err_msg=name)


@pytest.mark.parametrize("name", FAST)
def test_one_run_after_the_other_is_what_several_at_once_are(name, monkeypatch):
    """The text that a GPU gets, on the host."""
    policy, env = CASES[name].policy, CASES[name].env()
    with mock.patch.dict(programs.PROGRAMS, clear=True):
        monkeypatch.setattr(programs, "WIDE", False)
        assert_equal_play(*both_backends(env, {"policy": policy}, record=everything(env, policy)))


@pytest.mark.gpu
@pytest.mark.parametrize("name", FAST)
def test_the_exact_arithmetic_of_a_gpu_has_the_bits_of_a_cpu(name, monkeypatch):
    monkeypatch.setattr(cuda, "MOST_STACK", 1 << 20)  # Kernels with large arrays, too.
    monkeypatch.setattr(cuda, "MOST_SCRATCH", 1 << 20)
    policy, env = CASES[name].policy, CASES[name].env()
    options = {"horizon": 200, "seeds": 256, "record_every": 20, "record": everything(env, policy), "progress": False}
    execution = [jr.Execution(devices=jax.devices(where), arithmetic="exact") for where in ("gpu", "cpu")]
    assert_equal_play(*(jr.simulate(env, {name: policy}, execution=one, **options) for one in execution))


@pytest.mark.gpu
@pytest.mark.parametrize("name", FAST)
def test_both_backends_agree_on_a_gpu(name, monkeypatch):
    """The draws are the same bits, so most runs are equal; rounding may part a few, which are no better or worse."""
    monkeypatch.setattr(cuda, "MOST_STACK", 1 << 20)  # Kernels with large arrays, too.
    monkeypatch.setattr(cuda, "MOST_SCRATCH", 1 << 20)
    policy, env = CASES[name].policy, CASES[name].env()
    ours, theirs = both_backends(env, {name: policy}, horizon=1000, seeds=2048, record_every=100)
    for metric in theirs.data_vars:
        if "time" not in theirs[metric].dims:
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
