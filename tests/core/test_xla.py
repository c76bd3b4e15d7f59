"""What is computed together on a CPU and on a GPU: the same numbers by other operations, and fewer kernels where each is launched."""

import importlib
import importlib.util
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT, assert_measured
from jax import lax
from lowering import count, lowers

from jaxroute.core import draws, numerics, xla
from jaxroute.core.batching.lanes import lanes

counts = importlib.import_module("kernels")

RNG = np.random.default_rng(0)
SCORES = {
    "floats": RNG.standard_normal((4, 7)).astype(np.float32),
    "ties": RNG.integers(0, 3, (4, 7)).astype(np.float32),
    "whole numbers": RNG.integers(-3, 3, (4, 7)).astype(np.int32),
    "infinite": np.full((4, 7), -np.inf, np.float32),
    "NaN": np.where(RNG.random((4, 7)) < 0.2, np.nan, RNG.random((4, 7))).astype(np.float32),
}


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Loops and sums as a GPU has them."""
    monkeypatch.setattr(xla, "GPUS", ("cpu",))


@pytest.mark.parametrize("allowed", [None, "some", "none"])
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_best_is_the_same_by_comparison_and_by_pairs(name, allowed, axis):
    scores = SCORES[name]
    given = () if allowed is None else (np.zeros((4, 7), bool) if allowed == "none" else RNG.random((4, 7)) < 0.5,)
    one, other = (f(jnp.asarray(scores), *given, axis=axis) for f in (xla.by_comparison, xla._by_pairs))
    np.testing.assert_array_equal(one, other)
    assert one.dtype == other.dtype == jnp.int32
    rows = np.moveaxis(scores, axis, -1)
    masks = np.moveaxis(given[0], axis, -1) if given else np.ones_like(rows, bool)
    for row, mask, index in zip(rows, masks, np.asarray(one), strict=True):
        inside = row[mask]
        best = row.size if not mask.any() or np.isnan(inside).any() else np.flatnonzero(mask & (row == inside.max()))[0]
        assert index == best


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("size", [1, 3, 4, 7])
def test_ties_go_by_an_order(size, allowed):
    """Of the equal ones that with the least number, whose last bits are its place; none with NaN or where nothing is allowed. All three ways."""
    rng = np.random.default_rng(size)
    scores = rng.integers(0, 2, (200, size)).astype(np.float32)
    scores[0, 0], scores[1] = np.nan, -np.inf
    masks = rng.random((200, size)) < 0.6 if allowed else np.ones((200, size), bool)
    orders = np.stack([np.asarray(draws.order(draws.key(i), size)) for i in range(200)])
    given = (masks, orders) if allowed else (orders,)
    ways = [jax.jit(jax.vmap(lambda s, *g: xla.first_best(s, *([] if allowed else [None]), *g)))(scores, *given)]
    ways += [f(jnp.asarray(scores), *given, axis=1, ordered=True) for f in (xla.by_comparison, xla._by_pairs)]
    for i, (row, mask, order) in enumerate(zip(scores, masks, orders, strict=True)):
        inside = row[mask]
        tied = [] if not mask.any() or np.isnan(inside).any() else np.flatnonzero(mask & (row == inside.max()))
        expected = min(tied, key=lambda k: order[k]) if len(tied) else size
        assert [int(way[i]) for way in ways] == [expected] * 3


def test_orders_are_random():
    """All 24 orders of four models alike: 24,000 of them, each 1,000 times, within five errors of a count, 31."""
    orders = np.asarray(jax.vmap(lambda i: draws.order(draws.fold_in(draws.key(0), i), 4))(jnp.arange(24_000)))
    assert orders.dtype == np.int32 and (orders >= 0).all() and (orders % 8 == np.arange(4)).all()
    _, counts = np.unique(np.argsort(orders, axis=1), axis=0, return_counts=True)
    assert len(counts) == 24 and abs(counts - 1000).max() < 5 * 31


def test_a_choice_has_no_derivative_and_a_value_that_is_kept_has_its_own():
    x = jnp.asarray([0.3, 2.0, 1.0])
    slope = jax.grad(lambda x: jnp.sum(xla.compute_once(x) ** 2) + 0.0 * xla.largest_over_runs(xla.first_best(x)))(x)
    np.testing.assert_allclose(slope, 2 * x)
    assert xla.compute_once(()) == ()


def sum_up_to(number, x):
    """The sum of the first `number` elements, by a loop as long as the longest of all runs, and that length."""
    length = xla.largest_over_runs(number)
    return lax.fori_loop(0, length, lambda i, total: total + jnp.where(i < number, x[i], 0.0), jnp.float32(0.0)), length


def test_the_largest_over_runs_bounds_a_loop_of_all():
    numbers, x = jnp.asarray([3, 0, 5, 1]), jnp.asarray(RNG.random((6, 4)), jnp.float32)
    alone = [sum_up_to(numbers[r], x[:, r]) for r in range(4)]
    assert [int(length) for _, length in alone] == [3, 0, 5, 1]
    for played in (lanes(sum_up_to, 4), jax.vmap(sum_up_to, in_axes=(0, 1))):
        sums, lengths = jax.jit(played)(numbers, x)
        np.testing.assert_array_equal(sums, [total for total, _ in alone])
        assert np.unique(lengths).tolist() == [5]
    # A setting more: still one loop for all, since nothing in its bound depends on the run.
    settings = jnp.stack([numbers, numbers + 1])
    sums, lengths = jax.jit(jax.vmap(lanes(sum_up_to, 4), in_axes=(0, None)))(settings, x)
    np.testing.assert_array_equal(sums[0], [total for total, _ in alone])
    assert np.unique(lengths).tolist() == [6]
    program = jax.make_jaxpr(jax.vmap(lanes(sum_up_to, 4), in_axes=(0, None)))(settings, x)
    (loop,) = (eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "while")
    assert loop.params["cond_jaxpr"].out_avals[0].shape == ()


@pytest.mark.parametrize("count", [0, 1, 5, 8, 30])
def test_a_loop_written_out_is_the_loop(count, as_on_a_gpu):
    def grow(i, carry):
        return carry[0] * 1.01 + i, carry[1] + carry[0]

    start = jnp.float32(0.3), jnp.float32(0.0)
    want = lax.fori_loop(0, count, grow, start)
    for got in (xla.repeat(count, grow, start), jax.jit(lambda: xla.repeat(count, grow, start))()):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    mapped = jax.jit(lanes(lambda x: xla.repeat(count, grow, (x, start[1])), 3))(jnp.full((3,), start[0]))
    np.testing.assert_allclose(mapped, np.repeat(np.asarray(want)[:, None], 3, 1), rtol=1e-6)


def test_sums_together_are_the_sums(as_on_a_gpu):
    values = [jnp.asarray(SCORES["floats"][0]), jnp.arange(7.0)]
    np.testing.assert_allclose(xla.sums(values), [v.sum() for v in values], rtol=1e-6)


def test_only_a_cpu_keeps_draws_and_writes_loops_as_loops():
    def play(key):
        u = draws.uniform(key, (5,))
        return numerics.argmax(u * u), xla.repeat(6, lambda i, x: x * u[0] + i, u[1])

    gpu = lowers(play, draws.key(0))
    cpu = jax.jit(play).lower(draws.key(0)).as_text()
    for operation in ("optimization_barrier", "stablehlo.while"):
        assert operation in cpu and operation not in gpu


# What parts a round into kernels, in the program that is lowered for a GPU: values that must be kept, and loops.
PARTS = {
    ("stochastic", "UCB1"): (0, 2),
    ("stochastic", "BetaThompson"): (0, 2),
    ("staged", "StageRoute"): (26, 3),
    ("combinatorial", "C2MABV"): (12, 2),
    ("service", "MessPlus"): (0, 2),
    ("cascade", "COSMOS"): (6, 4),
    ("cascade", "DistributionLearner"): (6, 6),
}
SLOW = ("MessPlus", "COSMOS", "DistributionLearner")


def rows(pairs):
    return [pytest.param(pair, id="/".join(pair), marks=[pytest.mark.slow] * (pair[1] in SLOW)) for pair in pairs]


@pytest.mark.parametrize("pair", rows(PARTS))
def test_no_more_parts_a_round_than_was_recorded(pair):
    """A barrier more, or a loop that was written out, is a kernel more in every round."""
    ((_, _, env, policy),) = counts.pairs([pair[0]], [pair[1]])
    _, programs = counts.programs(env, policy, 64)
    function, shapes = programs["rounds"]
    text = lowers(function, *shapes)
    found = count(text, "stablehlo.optimization_barrier"), count(text, "stablehlo.while")
    assert all(n <= most for n, most in zip(found, PARTS[pair], strict=True)), found


def test_what_is_called_counts_once_per_call():
    text = """
module @jit_play {
  func.func public @main(%arg0: tensor<f32>) -> tensor<f32> {
    %0 = call @twice(%arg0) : (tensor<f32>) -> tensor<f32>
    %1 = stablehlo.sine %0 : tensor<f32>
    %2 = func.call @"once.1"(%1) : (tensor<f32>) -> tensor<f32>
  }
  func.func private @twice(%arg0: tensor<f32>) -> tensor<f32> {
    %0 = call @"once.1"(%arg0) : (tensor<f32>) -> tensor<f32>
    %1 = call @"once.1"(%0) : (tensor<f32>) -> tensor<f32>
  }
  func.func private @"once.1"(%arg0: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.sine %arg0 : tensor<f32>
  }
}
"""
    assert (count(text, "stablehlo.sine"), count(text, "stablehlo.while")) == (4, 0)


MODULE = """HloModule jit_rounds, is_scheduled=true

%more (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %value = f32[8]{0} get-tuple-element(%p), index=1
  %fusion.1 = f32[8]{0} fusion(%value), kind=kLoop, calls=%fused
  %sort = (f32[8]{0}, s32[8]{0}) sort(%fusion.1, %iota), dimensions={0}, to_apply=%less
  ROOT %tuple = (s32[], f32[8]{0}) tuple(%value, %fusion.1)
}

%again (p: (s32[], f32[8])) -> pred[] {
  %p = (s32[], f32[8]{0}) parameter(0)
  ROOT %compare = pred[] fusion(%p), kind=kLoop, calls=%fused
}

%round (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %copy.1 = f32[8]{0} copy(%p)
  %while.1 = (s32[], /*index=1*/f32[8]{0}) while(%p), condition=%again, body=%more, backend_config={"known_trip_count":{"n":"3"}}
  %while.2 = (s32[], f32[8]{0}) while(%p), condition=%again, body=%more
  %call = f32[8]{0} call(%p), to_apply=%graph
  %cond = f32[8]{0} conditional(%i, %p, %p), branch_computations={%graph, %more}
  ROOT %tuple = (s32[], f32[8]{0}) tuple(%p, %copy.1)
}

%graph (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %bitcast = f32[8]{0} bitcast(%custom)
  %custom = f32[8]{0} custom-call(%p), custom_call_target="__cublas$gemm"
}

ENTRY %main (p: f32[8]) -> (s32[], f32[8]) {
  %p = f32[8]{0} parameter(0)
  %broadcast = f32[8]{0} fusion(), kind=kLoop, calls=%fused
  ROOT %while = (s32[], f32[8]{0}) while(%p), condition=%again, body=%round, backend_config={"known_trip_count":{"n":"997"}}
}
"""


def test_launches_of_a_module_worked_out_by_hand():
    """A copy, three trips of two, a call of one, the longer branch of two; and a loop of unknown length with its condition."""
    module = counts.Module(MODULE)
    (body,) = module.loops(997)
    assert (body, module.loops(4)) == ("round", [])
    found = module.count(body)
    assert (found.kernels, found.loops) == (1 + 3 * 2 + 1 + 2, [3])
    whole = module.count()
    assert (whole.kernels, whole.loops) == (1 + 997 * 10, [3] * 997)


def stored():
    found = json.loads((ROOT / "scripts" / "bench_results" / "kernels.json").read_text())["rows"]
    return {(row["problem"], row["policy"]): row for row in found}


def test_every_default_pair_has_been_counted_and_launches_no_more_than_at_first():
    known = stored()
    assert_measured(
        set(known), "pip install jaxroute[cuda12], then python scripts/kernels.py --policies NAME; no GPU is needed"
    )
    for pair, row in known.items():
        first, now = row["first"], row["now"]
        assert now["per_round"] <= first["per_round"] and sum(now["loops"]) <= sum(first["loops"]), pair
        assert row["state_bytes"] >= 0


@pytest.mark.skipif(
    not any(importlib.util.find_spec(f"jax_cuda{n}_plugin") for n in (12, 13)), reason="no compiler for CUDA here"
)
def test_the_counts_are_those_of_the_compiler(tmp_path):
    """Where jax's packages for CUDA are installed; no device is needed. In a process of its own, which has not looked for one."""
    script, out = ROOT / "scripts" / "kernels.py", tmp_path / "kernels.json"
    choice = ["--only", "stochastic", "--policies", "UCB1", "--out", out]
    done = subprocess.run([sys.executable, script, *choice], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(out.read_text())["rows"]
    assert row["first"] == row["now"] and row["graph"]
    assert row["now"]["per_round"] <= stored()["stochastic", "UCB1"]["now"]["per_round"]


def test_what_is_missing_is_named(monkeypatch):
    def refuse(**options):
        raise NotImplementedError("topology not implemented for cuda")

    monkeypatch.setattr(counts.topologies, "get_topology_desc", refuse)
    with pytest.raises(SystemExit, match=r"the GPU compiler is missing.*pip install 'jaxroute\[cuda12\]'"):
        counts.target()
