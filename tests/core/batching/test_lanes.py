"""`lanes(fn, R)` computes what `jax.vmap(fn, in_axes=-1, out_axes=-1)` computes, whatever `fn` is made of."""

import flax.linen as nn
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import lane_cases
import numpy as np
import optax
import pytest
from helpers import x64
from hypothesis import HealthCheck, given, settings
from jax import lax
from lane_cases import CASES, DIFFERENTIABLE, KEY, LINEAR_ALGEBRA, R, assert_same, floats, integers, keys

from jaxroute.core import draws, numerics
from jaxroute.core.batching.lanes import lanes
from jaxroute.problems import stochastic


def both(fn, *args):
    """Results of `lanes` and of `vmap`, compiled in one go."""
    run = jax.jit(lambda *a: (lanes(fn, R)(*a), jax.vmap(fn, in_axes=-1, out_axes=-1, axis_size=R)(*a)))
    return run(*args)


def check(fn, *args, **tolerance):
    ours, theirs = both(fn, *args)
    assert_same(ours, theirs, **tolerance)
    return ours


@pytest.mark.parametrize("name", CASES)
def test_equals_vmap(name):
    fn, *args = CASES[name]
    check(fn, *args, **({"rtol": 2e-4, "atol": 1e-5} if name in LINEAR_ALGEBRA or "solve" in name else {}))


def test_arguments_that_all_runs_share_are_not_mapped_and_a_function_is_traced_once():
    traced = []

    def fn(x, t, table):
        traced.append(t)
        return jnp.sum(x) * t + table[0], jnp.where(t > 3, x, 0.0)

    mapped = lanes(fn, R, fixed=2)
    x, table = floats(3), jnp.arange(R, dtype=jnp.float32)  # As long as there are runs.

    jax.lax.fori_loop(0, 5, lambda t, x: mapped(x, t, table)[1] + 1.0, mapped(x, 4, table)[1])
    assert len(traced) == 1
    total, chosen = mapped(x, jnp.int32(2), table)
    assert_same((total, chosen), (2 * jnp.sum(x, axis=0) + table[0], jnp.zeros_like(x)))
    assert [(s.shape, s.dtype) for s in mapped.shapes(x, 2, table)] == [((R,), np.float32), ((3, R), np.float32)]


def test_closed_over_values_are_not_mapped():
    """Also tracers of an outer `jit`, whose last axis happens to have length R."""
    x, table = floats(3), jnp.arange(3.0 * R).reshape(3, R)

    def outer(x, table):
        def inner(x):
            return x[:, None] * table + jnp.sum(table)

        return lanes(inner, R)(x), jax.vmap(inner, in_axes=-1, out_axes=-1)(x)

    assert_same(*jax.jit(outer)(x, table))
    assert_same(*outer(x, table))


@pytest.mark.parametrize("name", ["arithmetic", "sort", "gather", "scatter", "scan, carry mapped late", "cond", "while, end per run", "draws", "solve"])  # fmt: skip
def test_inside_an_outer_vmap(name):
    """As for a swept setting: one leading axis, over which some arguments vary and others do not."""
    fn, *args = CASES[name]
    scale = jnp.arange(1.0, 4.0)

    def setting(scale, batched):
        def one(*args):
            first = args[0] * scale if args[0].dtype == jnp.float32 else args[0]
            return fn(first, *args[1:]), scale

        return batched(one)(*args)

    def settings_of(batched):
        return jax.vmap(lambda s: setting(s, batched))(scale)

    ways = (lambda f: lanes(f, R)), (lambda f: jax.vmap(f, in_axes=-1, out_axes=-1))
    assert_same(*jax.jit(lambda: tuple(map(settings_of, ways)))(), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_through_lanes(name):
    fn, x = DIFFERENTIABLE[name]

    def total(batched):
        return lambda x: sum(jnp.sum(out) for out in jax.tree.leaves(batched(fn)(x)))

    ours = jax.jit(jax.grad(total(lambda f: lanes(f, R))))(x)
    theirs = jax.jit(jax.grad(total(lambda f: jax.vmap(f, in_axes=-1, out_axes=-1))))(x)
    assert_same(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["arithmetic", "integers", "unmapped operands", "gather", "dynamic slice", "dynamic slice per run", "cumulative", "scan", "fori", "solve", "draws"],
)  # fmt: skip
def test_in_double_precision(name):
    fn, *args = CASES[name]
    doubled = {np.dtype(np.float32): np.float64, np.dtype(np.int32): np.int64}
    with x64():
        wide = [a.astype(doubled[a.dtype]) if a.dtype in doubled else a for a in args]
        check(fn, *wide, rtol=1e-12, atol=1e-12) if name != "draws" else check(fn, *wide)


@pytest.mark.parametrize("size", [1, 16])
def test_any_number_of_runs(size):
    x = np.arange(3.0 * size, dtype=np.float32).reshape(3, size)
    for fn in (lambda x: (jnp.sort(x), x @ x, x[jnp.argmax(x)]), lambda x: jnp.zeros(())):
        assert_same(lanes(fn, size)(x), jax.vmap(fn, in_axes=-1, out_axes=-1)(x))


def test_trees_in_and_out():
    tree = {"a": (floats(2), integers(4)), "k": keys(), "none": None, "empty": ()}

    def fn(tree):
        return {**tree, "sum": tree["a"][0].sum() + tree["a"][1], "drawn": draws.uniform(tree["k"])}

    check(fn, tree)


def test_a_step_of_a_policy_moves_no_axis():
    """What `lanes` is for: with `vmap` the same step has transpositions or gathers, here the run axis stays last throughout."""
    policy = stochastic.UCB1()
    state = policy.init(jax.random.key(0), stochastic.bernoulli([0.2, 0.5, 0.7]).spec)
    states = jax.tree.map(lambda s: jnp.zeros((*s.shape, R), s.dtype), state)

    def step(state, reward, words):
        key = jax.random.wrap_key_data(words, impl=draws.KEY_IMPL)
        action, info = policy.act(key, state, (), 3)
        noisy = reward + draws.normal(key, (3,)) + numerics.rank(info["bound"])
        return policy.update(key, state, (), action, jnp.sum(jnp.where(numerics.one_hot(action, 3), noisy, 0.0)), 3)

    args = states, floats(3), np.zeros((2, R), np.uint32)
    text, compiled = str(jax.make_jaxpr(lanes(step, R))(*args)), jax.jit(lanes(step, R)).lower(*args).as_text()
    # The draws end up as integer arithmetic, in no loop or call to a library.
    assert "threefry2x32" not in text and "shift_left" in compiled
    assert not any(word in compiled for word in ("threefry_2x32", "while", "custom_call"))
    for one in (text, compiled):
        assert "transpose" not in one and "gather" not in one
    check(step, states, floats(3), np.ones((2, R), np.uint32))


# Learned predictors: modules and optimisers inside a step function.


class Network(nn.Module):
    """A small predictor."""

    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm()(nn.relu(nn.Dense(8, kernel_init=nn.initializers.uniform(1.0))(x)))
        return nn.Dense(1, kernel_init=nn.initializers.uniform(1.0))(x)[..., 0]


@pytest.mark.parametrize(
    ("optimiser", "shared"), [("adam", False), ("sgd", True)], ids=["adam, parameters per run", "sgd, shared start"]
)
def test_training_a_network_in_every_run(optimiser, shared):
    network = Network()
    transform = getattr(optax, optimiser)(0.05)
    xs, ys = floats(4, 3), floats(4)
    fixed = network.init(KEY, jnp.zeros((4, 3)))

    def train(key, xs, ys):
        params = fixed if shared else network.init(key, xs)

        def loss(params):
            return jnp.mean((network.apply(params, xs) - ys) ** 2)

        def step(carry, _):
            params, state = carry
            value, gradient = jax.value_and_grad(loss)(params)
            update, state = transform.update(gradient, state, params)
            return (optax.apply_updates(params, update), state), value

        (params, _), losses = lax.scan(step, (params, transform.init(params)), length=3)
        return params, losses, network.apply(params, xs)

    _, losses, _ = check(train, keys(), xs, ys, rtol=1e-3, atol=1e-4)
    assert (losses[-1] < losses[0]).all()  # It did train.


# Random programs.

STEPS = {
    "add": (2, lambda a, b: a + b),
    "subtract scaled": (2, lambda a, b: a - 0.5 * b),
    "multiply": (2, lambda a, b: jnp.tanh(a) * b),
    "maximum": (2, jnp.maximum),
    "where": (2, lambda a, b: jnp.where(a > b, a, -b)),
    "sum": (1, lambda a: jnp.sum(a)),
    "max of an axis": (1, lambda a: a.max(axis=0) if a.ndim else a),
    "cumsum": (1, lambda a: jnp.cumsum(a, axis=-1) if a.ndim else a),
    "sort": (1, lambda a: jnp.sort(a, axis=0) if a.ndim else a),
    "reverse": (1, lambda a: a[::-1] if a.ndim else a),
    "transpose": (1, lambda a: a.T),
    "ravel": (1, lambda a: a.ravel()),
    "new axis": (1, lambda a: a[None] if a.ndim < 3 else a),
    "half": (1, lambda a: a[: (a.shape[0] + 1) // 2] if a.ndim else a),
    "concatenate": (1, lambda a: jnp.concatenate([a, 2 * a]) if a.ndim and a.shape[0] < 8 else a),
    "pad": (1, lambda a: jnp.pad(a, [(1, 0)] * a.ndim)[1:] if a.ndim else a),
    "pick the best": (1, lambda a: a[jnp.argmax(a, axis=0)] if a.ndim == 1 else a),
    "one-hot": (1, lambda a: jnp.where(numerics.one_hot(numerics.argmax(a), a.shape[0]), a, 0.0) if a.ndim == 1 else a),
    "rank": (1, lambda a: numerics.rank(a).astype(jnp.float32) if a.ndim == 1 else a),
    "set the first": (2, lambda a, b: a.at[0].set(jnp.tanh(b.sum())) if a.ndim else a),
    "outer": (2, lambda a, b: a[:, None] * jnp.tanh(b) if a.ndim == 1 and b.ndim == 1 else a),
    "product": (2, lambda a, b: a @ jnp.tanh(b) if a.ndim == b.ndim == 1 and a.shape == b.shape else a),
    "integers": (1, lambda a: (jnp.clip(a, -9, 9).astype(jnp.int32) % 3).astype(jnp.float32)),
    "scan": (1, lambda a: lax.scan(lambda c, x: (0.5 * c + x, c), jnp.zeros(a.shape[1:]), a)[1] if a.ndim else a),
    "loop": (1, lambda a: lax.fori_loop(0, 3, lambda i, c: 0.5 * c + i, a)),
    "loop per run": (1, lambda a: lax.while_loop(lambda c: jnp.abs(c).max() > 1, lambda c: 0.5 * c, a) if a.size else a),
    "cond per run": (1, lambda a: lax.cond(a.sum() > 0, jnp.sin, lambda a: a + 1, a)),
    "constant": (1, lambda a: jnp.broadcast_to(jnp.arange(a.shape[-1], dtype=jnp.float32), a.shape) if a.ndim else a),
    "draw": (1, lambda a: a + draws.uniform(draws.fold_in(KEY, jnp.clip(a.sum(), 0, 9).astype(jnp.int32)), a.shape)),
}


def run_program(program, values):
    """Each step takes operands by index from all values so far; operands that do not broadcast leave the first one."""
    values = list(values)
    for name, first, second in program:
        arity, step = STEPS[name]
        a, b = values[first % len(values)], values[second % len(values)]
        if arity == 1:
            values.append(step(a))
        else:
            try:
                np.broadcast_shapes(a.shape, b.shape)
            except ValueError:
                b = b.sum()
            values.append(step(a, b))
    return values[2:]


programs = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7)


def check_program(program):
    ours, theirs = both(lambda *v: run_program(program, v), floats(3), floats(2, 3))
    assert_same(ours, theirs, rtol=1e-4, atol=1e-5)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs)
def test_random_programs(program):
    check_program(program)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs)
def test_many_random_programs(program):
    check_program(program)


# Branches that some runs take are computed for those runs alone.


def rare(taken, x, words, shared):
    """A branch of several operands: carried arrays, a key as words, and an operand that all runs share."""

    def costly(x):
        key = jax.random.wrap_key_data(words)
        return jnp.tanh(x) + shared * draws.uniform(key, x.shape), jnp.sum(x > 0)

    return lax.cond(taken, costly, lambda x: (x, jnp.int32(-1)), x)


@pytest.mark.parametrize("size", [16, 32, 33, 80])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 1.0])
def test_a_branch_that_some_runs_take(size, share):
    rng = np.random.default_rng(size)
    taken = jnp.asarray(rng.random(size) < share)
    x = jnp.asarray(rng.standard_normal((3, size)), jnp.float32)
    words = jnp.asarray(rng.integers(0, 2**32, (2, size)), jnp.uint32)
    shared = jnp.asarray(rng.standard_normal(3), jnp.float32)

    def one(taken, x, words):
        return rare(taken, x, words, shared)

    ours = jax.jit(lanes(one, size))(taken, x, words)
    theirs = jax.jit(jax.vmap(one, in_axes=-1, out_axes=-1))(taken, x, words)
    assert_same(ours, theirs)
    assert int((ours[1] >= 0).sum()) == int(taken.sum())


def test_a_rare_branch_is_loop_free_elsewhere_and_survives_a_map_over_settings():
    """Predicates may differ between settings too; on other devices than a CPU both branches are computed."""
    size, settings = 48, 3
    rng = np.random.default_rng(0)
    probability = jnp.asarray([0.0, 0.1, 0.9])
    u, x = jnp.asarray(rng.random(size), jnp.float32), jnp.asarray(rng.standard_normal((2, size)), jnp.float32)

    def many(probability):
        return lanes(lambda u, x: lax.cond(u < probability, jnp.sin, lambda x: x, x), size)(u, x)

    found = jax.jit(jax.vmap(many))(probability)
    for s in range(settings):
        expected = np.where(np.asarray(u) < np.asarray(probability[s]), np.sin(np.asarray(x)), np.asarray(x))
        np.testing.assert_allclose(found[s], expected, rtol=1e-5)
    traced = jax.jit(many).trace(probability[1])
    loops = ["stablehlo.while" in traced.lower(lowering_platforms=(one,)).as_text() for one in ("cpu", "cuda")]
    assert loops == [True, False]


def test_barriers_keep_what_runs_share_apart():
    """One operand that depends on the run and one that does not, carried through a scan and through a branch."""

    def body(carry, _):
        a, b = lax.optimization_barrier((carry[0] + 1.0, carry[1] * 2.0))
        return (a, b), b

    def scanned(x):
        return lax.scan(body, (x, jnp.float32(1.0)), None, length=3)

    def branched(x):
        behind = lambda x: tuple(lax.optimization_barrier((x, jnp.float32(2.0))))  # noqa: E731
        return lax.cond(lane_cases.TRUE, behind, lambda x: (x, jnp.float32(1.0)), x)

    for fn in (scanned, branched):
        check(fn, floats())


def test_a_key_inside_a_loop_with_a_branch():
    """What passes through a branch on a key beside it is mapped, whatever it is."""

    def fn(x):
        def body(carry, i):
            a, n = carry
            key = draws.fold_in(KEY, i)
            a, n = lax.cond(i > 0, lambda k, a, n: (a + draws.uniform(k), n + 1), lambda k, a, n: (a, n), key, a, n)
            return (a, n), a

        return lax.scan(body, (x, jnp.int32(0)), jnp.arange(3))

    check(fn, floats())
