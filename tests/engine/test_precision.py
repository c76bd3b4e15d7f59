"""Numbers of 64 bits: the same program, from the same random bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conformance_cases import OPTIONS, POLICIES
from flax import struct
from helpers import x64
from jax import lax

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.core.attributes import decoded
from jaxroute.core.types import Leaf
from jaxroute.engine.precision import widened
from jaxroute.engine.rollout import rollout
from jaxroute.engine.rounds import Record, run_streams
from jaxroute.problems import stochastic

ROOT = np.asarray(jax.random.key_data(draws.key(0)))


def _loop(x):
    def step(carry, row):
        total, number = carry
        return (total + row / jnp.float32(3.0), number + 1), total

    (total, number), rows = lax.scan(step, (jnp.float32(0.0), jnp.int32(0)), x)
    return lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + c[1] / 7, c[1]), (total, jnp.float32(0.9)))[0], rows, number


def _branches(x):
    return lax.cond(x[0] > 0, lambda v: v.astype(jnp.float32) / 3, lambda v: jnp.zeros(v.shape, jnp.float32), x)


def _solved(x):
    matrix = jnp.outer(x, x) + jnp.eye(len(x), dtype=jnp.float32)
    return jnp.linalg.solve(matrix, x), jnp.linalg.cholesky(matrix), jnp.linalg.inv(matrix)


def _written(x):
    table = jnp.zeros((4, 3), jnp.float32).at[jnp.int32(1), :].set(x)
    return table.at[jnp.array([1, 1, 2])].add(x / 3).at[0, 0].max(x[0])


FUNCTIONS = {
    "sums and roots": lambda x: (jnp.sqrt(x) / 3 + 0.1, x.mean(), jnp.exp(x).sum(dtype=jnp.float32), x.astype(jnp.int32)),
    "loops": _loop,
    "branches": _branches,
    "systems": _solved,
    "tables": _written,
    "derivatives": lambda x: jax.grad(lambda v: jax.nn.softplus(v).sum() + jax.nn.relu(v).sum())(x),
    "constants": lambda x: x * np.float32([0.1, 0.2, 0.3]) + jnp.arange(3, dtype=jnp.float32),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number_has_64_bits_and_is_more_exact(name):
    """Against the same function in 32 bits; and the results are not those of 32 bits with zeros behind them."""
    function, x = FUNCTIONS[name], np.float64([1.1, 2.3, 0.7])
    assert widened(function) is function
    rough = jax.tree.leaves(function(jnp.float32(x)))
    with x64():
        fine = jax.tree.leaves(widened(function)(x))
    assert [f.shape for f in fine] == [r.shape for r in rough]
    new = 0
    for f, r in zip(fine, rough, strict=True):
        assert f.dtype == {"float32": np.float64}.get(r.dtype.name, r.dtype)
        np.testing.assert_allclose(f, r, rtol=2e-5, atol=1e-6)
        new += int((np.asarray(f) != np.float32(f)).sum()) if f.dtype == np.float64 else 0
    assert new


def test_random_bits_are_those_of_32():
    """A uniform number has the same 23 bits, and a normal one is what the inverse makes of them."""

    def draw(key):
        return jax.random.uniform(key, (1000,), jnp.float32), jax.random.normal(key, (1000,), jnp.float32)

    rough = draw(draws.key(3))
    with x64():
        fine = widened(draw)(draws.key(3))
    np.testing.assert_array_equal(fine[0], np.float64(rough[0]))
    np.testing.assert_allclose(fine[1], rough[1], rtol=1e-5, atol=1e-6)


QUICK = ("stochastic/UCB1", "staged/Greedy", "service/MessPlus", "combinatorial/Direct", "cascade/LinUCB", "queueing/Random")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in (*POLICIES, *OPTIONS)]
)
def test_every_policy_is_traced(name):
    case = {**POLICIES, **OPTIONS}[name]
    env = case.env()
    with x64():
        shapes = jax.eval_shape(
            lambda seeds: rollout(env, case.policy, run_streams(ROOT, seeds), 40, Record(every=10), keep_states=True),
            jax.ShapeDtypeStruct((16,), np.uint32),
        )
    assert not [name for name, shape in shapes.items() if shape.dtype == np.float32]


PLAYED = ("cascade/LinUCB", "stochastic/BetaThompson", "staged/StageRoute", "combinatorial/C2MABV", "queueing/ACQB")


@pytest.mark.parametrize("name", [PLAYED[0], *(pytest.param(name, marks=pytest.mark.slow) for name in PLAYED[1:])])
def test_runs_differ_by_rounding_only_and_the_referee_agrees(name):
    """Decisions hardly ever hang on the 24th bit: over 40 runs of 40 rounds no run differs by more than rounding."""
    policy, env = POLICIES[name].policy, POLICIES[name].env()
    options = {"horizon": 40, "record_every": 10, "seeds": 40, "progress": False}
    rough = jr.simulate(env, {"policy": policy}, **options)
    with x64():
        fine = jr.simulate(env, {"policy": policy}, **options)
        referee = jr.simulate(env, {"policy": policy}, execution=jr.Execution("reference"), **options)
    assert decoded(fine.attrs)["settings"]["x64"] and not decoded(rough.attrs)["settings"]["x64"]
    differ = 0
    for metric in rough.data_vars:
        a, b = rough[metric].values, fine[metric].values
        np.testing.assert_allclose(referee[metric].values, b, rtol=1e-12, atol=1e-12, err_msg=metric)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(b).max()), err_msg=metric)
        differ += int((a != b).sum())
    assert differ  # Or they would be the same numbers.


@struct.dataclass
class Trained(stochastic.UCB1):
    """A policy that is made for its environment, in numbers that it names."""

    scale: Leaf = 1.0

    @staticmethod
    def of(env):
        return Trained(scale=lax.fori_loop(0, 3, lambda i, x: (x + env.mean.max()).astype(jnp.float32), jnp.float32(0.0)))


def test_functions_of_the_environment_and_samplers():
    def sampler(key):
        return stochastic.BanditEnv(mean=draws.uniform(key, (3,)).astype(jnp.float32), scale=jnp.float32(0.0))

    with x64():
        data = jr.simulate(sampler, {"made": Trained.of}, horizon=30, seeds=8, progress=False)
    assert bool(data["valid"].all())


def test_kernels_leave_64_bits_to_the_scan():
    env, options = stochastic.bernoulli([0.1, 0.9]), {"horizon": 30, "seeds": 8, "progress": False}
    with x64(), pytest.warns(UserWarning, match="numbers of 64 bits"):
        data = jr.simulate(env, stochastic.UCB1(), execution=jr.Execution("kernel"), **options)
    assert decoded(data.attrs)["fell_back"]
