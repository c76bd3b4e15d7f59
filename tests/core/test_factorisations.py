"""Factorisations in basic operations: by what they promise, in float64, beside the results of the primitives that they stand for."""

import functools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import x64
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from jax import lax

from jaxroute.core.batching.lanes import lanes
from jaxroute.core.factorisations import FACTORISATIONS

EPS = 2.0**-23
# fmt: off
OPERATIONS = {
    "abs", "add", "and", "bitcast_convert_type", "broadcast_in_dim", "computed_once", "concatenate", "convert_element_type", "div",
    "dynamic_slice", "eq", "first_best", "ge", "gt", "iota", "jit", "largest_over_runs", "le", "lt", "mul", "neg", "or", "pad", "reduce_and",
    "reduce_max", "reduce_or", "reduce_sum", "reshape", "scan", "select_n", "slice", "sqrt", "squeeze", "sub", "transpose", "while",
}
# fmt: on
KINDS = ("random", "ill-conditioned", "graded", "repeated", "singular", "whole numbers", "large", "small", "zero")


# Programs that lead to each primitive: a function, and the shapes of its arguments for `m` and `n`.
def tall(m, n):
    return (max(m, n), min(m, n))


def solving(side, **options):
    def shapes(m, n):
        return ((n, n), (n, m)) if side else ((n, n), (m, n))

    return lambda a, b: lax.linalg.triangular_solve(a, b, left_side=side, **options), shapes


EIGH = functools.partial(lax.linalg.eigh, symmetrize_input=False)
PROGRAMS = {
    "cholesky": (lambda x: lax.linalg.cholesky(x, symmetrize_input=False), lambda m, n: ((n, n),)),
    "lu": (lax.linalg.lu, lambda m, n: ((m, n),)),
    "lu of a tall matrix": (lax.linalg.lu, lambda m, n: (tall(m, n + 2),)),
    "eigh": (EIGH, lambda m, n: ((n, n),)),
    "eigh of the upper triangle": (functools.partial(EIGH, lower=False), lambda m, n: ((n, n),)),
    "svd": (lambda x: lax.linalg.svd(x, compute_uv=False), lambda m, n: ((m, n),)),
    "svd with vectors": (lambda x: lax.linalg.svd(x, full_matrices=False), lambda m, n: ((m, n),)),
    "svd with all vectors": (lax.linalg.svd, lambda m, n: ((m + 2, n),)),
    "geqrf": (lambda x: jnp.linalg.qr(x, mode="raw"), lambda m, n: ((m, n),)),
    "householder_product": (lax.linalg.householder_product, lambda m, n: (tall(m, n), (min(m, n),))),
    "qr": (lambda x: lax.linalg.qr(x, full_matrices=False), lambda m, n: ((m, n),)),
    "qr with all of Q": (lax.linalg.qr, lambda m, n: (tall(m, n),)),
    "qr with pivots": (lambda x: lax.linalg.qr(x, pivoting=True, full_matrices=False), lambda m, n: ((m, n),)),
    "triangular_solve": solving(True, lower=True),
    "triangular_solve, upper": solving(True),
    "triangular_solve, transposed": solving(True, lower=True, transpose_a=True),
    "triangular_solve, on the right": solving(False, lower=True, unit_diagonal=True),
    "triangular_solve, on the right, transposed": solving(False, lower=True, transpose_a=True),
}


def equations(jaxpr):
    """All equations of a jaxpr and of those within."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


@functools.cache
def pair(name, shapes, dtype=np.float32):
    """The definition and the primitive of a program, with the parameters that it has there."""
    program, _ = PROGRAMS[name]
    closed = jax.make_jaxpr(program)(*(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))
    (eqn,) = (eqn for eqn in equations(closed.jaxpr) if eqn.primitive.name in FACTORISATIONS)
    assert eqn.primitive.name == name.split(",")[0].split(" ")[0]
    params = eqn.params
    definition, primitive = FACTORISATIONS[eqn.primitive.name], eqn.primitive.bind
    return *(jax.jit(lambda *args, f=f: f(*args, **params)) for f in (definition, primitive)), params


def matrices(m, n, copies=3):
    """Float64 `[kinds of matrices, m, n]`."""
    rng, size = np.random.default_rng(m * 100 + n), min(m, n)

    def one(kind):
        g = rng.normal(size=(m, n))
        u, _, v = np.linalg.svd(g, full_matrices=False)
        low = max(1, size // 2)
        return {
            "random": g,
            "ill-conditioned": (u * np.logspace(0, -6, size)) @ v,
            "graded": g * np.logspace(0, -6, m)[:, None] * np.logspace(0, -6, n),
            "repeated": (u * np.where(np.arange(size) < low, 2.0, -1.0)) @ v,
            "singular": g[:, :low] @ rng.normal(size=(low, n)),
            "whole numbers": rng.integers(-2, 3, size=(m, n)).astype(float),
            "large": g * 1e36,
            "small": g * 1e-28,
            "zero": 0.0 * g,
        }[kind]

    return np.stack([one(kind) for kind in KINDS for _ in range(copies)])


def inputs(name, shapes):
    """Float32 arguments of a program, in a stack."""
    x = matrices(*shapes[0])
    if name.startswith("triangular"):
        size = shapes[0][0]
        a = np.tril(x / np.maximum(np.abs(x).max((1, 2), keepdims=True), 1e-37), -1) + np.diag(1.0 + np.arange(size) % 3)
        b = np.random.default_rng(0).normal(size=(len(x), *shapes[1]))
        return [np.float32(a if "upper" not in name else a.swapaxes(1, 2)), np.float32(b)]
    if name == "householder_product":
        a, taus = pair("geqrf", (shapes[0],))[0](np.float32(x))
        return [np.asarray(a), np.asarray(taus)]
    if name == "cholesky":
        scale = np.maximum(np.abs(x).max((1, 2), keepdims=True), 1e-15)
        x = np.where(scale > 1e18, x / scale, x)
        diagonal = np.maximum((x**2).sum(2), 1e-4 * (x**2).sum((1, 2))[:, None] + 1e-30)
        x = x @ x.swapaxes(1, 2) + 1e-3 * diagonal[:, None] * np.eye(x.shape[1])
    if name.startswith("eigh"):
        q = np.linalg.qr(np.random.default_rng(1).normal(size=x.shape))[0]
        repeated = (q * np.where(np.arange(x.shape[1]) % 2, 2.0, -1.0)[:, None]) @ q.swapaxes(1, 2)
        kinds = np.repeat(KINDS, 3)[:, None, None]
        x = np.where(kinds == "repeated", repeated, (x + x.swapaxes(1, 2)) / 2)
    x = np.float32(x)
    return [np.tril(x) + np.tril(x, -1).swapaxes(1, 2) if name.startswith(("eigh", "cholesky")) else x]


def norm(x):
    x = np.asarray(x, np.float64)
    return np.sqrt((x**2).sum((-2, -1)))


def orthogonality(q):
    return norm(q.swapaxes(-1, -2) @ q - np.eye(q.shape[-1])) / EPS


def errors(name, args, outs, params):
    """Errors of each factorisation of a stack in units of the last place; raises where the form is wrong."""
    x, *others = [np.asarray(a, np.float64) for a in args]
    outs = [np.asarray(out, np.float64) for out in jax.tree.leaves(outs)]
    kind, size = name.split(",")[0].split(" ")[0], np.maximum(norm(x), 1e-30)
    m, n = x.shape[-2:]
    if kind == "cholesky":
        factor = np.tril(outs[0])
        return [norm(factor @ factor.swapaxes(-1, -2) - x) / size / EPS]
    if kind == "triangular_solve":
        a = np.tril(x) if params["lower"] else np.triu(x)
        a = a - a * np.eye(n) + np.eye(n) if params["unit_diagonal"] else a
        a = a.swapaxes(-1, -2) if params["transpose_a"] else a
        product = a @ outs[0] if params["left_side"] else outs[0] @ a
        return [norm(product - others[0]) / size / np.maximum(norm(outs[0]), 1e-30) / EPS]
    if kind == "lu":
        factors, pivots, order = outs[0], *(out.astype(int) for out in outs[1:])
        k = min(m, n)
        lower = np.tril(factors[..., :k], -1) + np.eye(m, k)
        assert np.abs(lower).max() <= 1 and (np.sort(order) == np.arange(m)).all()
        swapped = np.tile(np.arange(m), (len(x), 1))
        for row, own in zip(swapped, pivots, strict=True):
            for place, other in enumerate(own):
                row[[place, other]] = row[[other, place]]
        np.testing.assert_array_equal(order, swapped)
        return [norm(lower @ np.triu(factors[..., :k, :]) - np.take_along_axis(x, order[..., None], -2)) / size / EPS]
    if kind == "eigh":
        vectors, values = outs
        assert (np.diff(values) >= 0).all()
        exact = np.linalg.eigvalsh(x)
        product = (vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2)
        return [norm(product - x) / size / EPS, orthogonality(vectors), np.abs(values - exact).max(-1) / size / EPS / 2]
    if kind == "svd":
        values, *vectors = outs
        assert (np.diff(values) <= 0).all() and (values >= 0).all()
        result = [np.abs(values - np.linalg.svd(x, compute_uv=False)).max(-1) / size / EPS]
        if vectors:
            u, v = vectors[0], vectors[1].swapaxes(-1, -2)
            k = min(m, n)
            result += [norm((u[..., :k] * values[..., None, :]) @ v[..., :k].swapaxes(-1, -2) - x) / size / EPS]
            result += [orthogonality(u), orthogonality(v)]
        return result
    if kind == "householder_product":
        return [orthogonality(outs[0])]
    if kind == "geqrf":  # Of the factors and the vectors the reflections, in float64.
        product = np.triu(outs[0])
        for k in reversed(range(outs[1].shape[-1])):
            vector = np.where(np.arange(m) == k, 1.0, np.where(np.arange(m) > k, outs[0][..., k], 0.0))[..., None]
            product = product - vector @ (outs[1][..., k, None, None] * (vector.swapaxes(-1, -2) @ product))
        return [norm(product - x) / size / EPS]
    q, r, *order = outs
    assert (r == np.triu(r)).all()
    if order:
        x = np.take_along_axis(x, order[0].astype(int)[..., None, :], -1)
        diagonal = np.abs(np.diagonal(r, axis1=-2, axis2=-1))
        assert (np.diff(diagonal) <= 8 * EPS * diagonal[..., :1]).all()
    return [norm(q @ r - x) / size / EPS, orthogonality(q)]


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 4), (3, 8)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_outputs_have_the_shapes_and_types_of_the_primitives(name, shape):
    for lead in ((), (2, 3)):
        shapes = tuple((*lead, *own) for own in PROGRAMS[name][1](*shape))
        ours, theirs, _ = pair(name, shapes)
        args = [jax.ShapeDtypeStruct(own, jnp.float32) for own in shapes]
        outs = (jax.tree.leaves(jax.eval_shape(f, *args)) for f in (ours, theirs))
        one, other = ([(x.shape, x.dtype, x.weak_type) for x in leaves] for leaves in outs)
        assert one == other


@pytest.mark.parametrize("size", [1, 3, 17, 32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_is_as_accurate_as_lapack(name, size):
    shapes = PROGRAMS[name][1](size, size)
    ours, theirs, params = pair(name, shapes)
    args = inputs(name, shapes)
    for own, other in zip(errors(name, args, ours(*args), params), errors(name, args, theirs(*args), params), strict=True):
        assert own.max() < 3 * other.max() + 3


entries = st.floats(-100, 100, width=32, allow_subnormal=False)


@pytest.mark.parametrize("name", PROGRAMS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_matrix(name, data):
    m, n = data.draw(st.sampled_from([(1, 1), (2, 4), (5, 3)]))
    shapes = PROGRAMS[name][1](m, n)
    args = [data.draw(arrays(np.float32, (1, *shape), elements=entries)) for shape in shapes]
    if name == "cholesky":
        args = [args[0] @ args[0].swapaxes(1, 2) + 1e-2 * (1 + np.square(norm(args[0]))) * np.eye(n)]
    elif name.startswith("eigh"):
        args = [args[0] + args[0].swapaxes(1, 2)]
    elif name == "householder_product":
        args = [np.asarray(x) for x in pair("geqrf", shapes[:1])[0](args[0])]
    elif name.startswith("triangular"):
        args[0] = args[0] / 100 + 2 * np.eye(n)
    args = [np.float32(x) for x in args]
    ours, _, params = pair(name, shapes)
    assert max(own.max() for own in errors(name, args, ours(*args), params)) < 8 * max(m, n)


def call(name, x, *others, **params):
    return jax.tree.map(np.asarray, FACTORISATIONS[name](jnp.asarray(x, jnp.float32), *others, **params))


SVD, QR = {"full_matrices": True, "compute_uv": True}, {"full_matrices": False, "pivoting": False}


def test_only_the_named_triangle_is_read():
    x = np.random.default_rng(0).normal(size=(4, 4))
    x = x @ x.T + np.eye(4)
    lower = np.where(np.tri(4) > 0, x, np.nan)
    assert (call("cholesky", lower) == call("cholesky", x)).all()
    assert (call("cholesky", lower) == np.tril(call("cholesky", x))).all()
    for triangle, flag in ((lower, True), (lower.T, False)):
        for own, other in zip(call("eigh", triangle, lower=flag), call("eigh", x, lower=True), strict=True):
            np.testing.assert_array_equal(own, other)
    options = {"left_side": True, "lower": True, "transpose_a": False, "unit_diagonal": False}
    solved = call("triangular_solve", lower, jnp.ones((4, 1)), **options)
    np.testing.assert_allclose(np.tril(x) @ solved, 1, rtol=1e-5)
    np.fill_diagonal(lower, np.nan)
    assert np.isfinite(call("triangular_solve", lower, jnp.ones((4, 1)), **options | {"unit_diagonal": True})).all()


def test_a_matrix_that_is_not_positive_definite_has_no_cholesky_factor():
    indefinite = [np.ones((3, 3)), np.zeros((3, 3)), *map(np.diag, ([1, -1, 1], [1, np.nan, 1], [1, 1, 0]))]
    assert np.isnan(call("cholesky", indefinite)).all()
    assert np.isfinite(call("cholesky", np.eye(3))).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_nan_and_ends(bad):
    x = np.eye(3)
    x[2, 1] = bad
    for out in (*call("eigh", x, lower=True), *call("svd", x, **SVD)):
        assert np.isnan(out).all()
    assert np.isfinite(call("eigh", x, lower=False)[1]).all()
    factors, _, order = call("lu", x)
    assert not np.isfinite(factors).all() and sorted(order) == [0, 1, 2]
    assert not np.isfinite(call("qr", x, **QR)[1]).all()


def test_known_factorisations():
    np.testing.assert_array_equal(call("cholesky", [[4.0, 2.0], [2.0, 10.0]]), [[2.0, 0.0], [1.0, 3.0]])
    factors, pivots, order = call("lu", [[1.0, 2.0], [4.0, 4.0]])
    np.testing.assert_array_equal(factors, [[4.0, 4.0], [0.25, 1.0]])
    assert list(pivots) == [1, 1] and list(order) == [1, 0]
    np.testing.assert_array_equal(call("eigh", np.diag([3.0, -1.0, 2.0]), lower=True)[1], [-1.0, 2.0, 3.0])
    np.testing.assert_array_equal(call("svd", np.diag([3.0, -4.0]), full_matrices=False, compute_uv=False)[0], [4.0, 3.0])
    # A reflection in front of the first column, of norm 5: its sign is the opposite of the entry's.
    np.testing.assert_allclose(call("qr", [[3.0], [4.0]], **QR)[1], [[-5.0]])
    np.testing.assert_array_equal(call("lu_pivots_to_permutation", [], permutation_size=2), [0, 1])


def test_pivots_are_the_first_of_the_largest_and_a_zero_is_no_pivot():
    np.testing.assert_array_equal(call("lu", [[1.0, 2.0], [-1.0, 3.0]])[1], [0, 1])
    factors, pivots, _ = call("lu", [[0.0, 2.0], [0.0, -0.0]])
    np.testing.assert_array_equal(factors, [[0.0, 2.0], [0.0, 0.0]])
    assert list(pivots) == [0, 1] and np.signbit(factors[1, 1])


@pytest.mark.parametrize("size", [3, 6])
def test_pivots_give_the_permutation(size):
    later = np.random.default_rng(size).integers(0, size, size=(7, 4))
    pivots = np.minimum(np.arange(4) + later, size - 1)[:, :size].astype(np.int32)
    expected = lax.linalg.lu_pivots_to_permutation(pivots, size)
    ours = FACTORISATIONS["lu_pivots_to_permutation"](jnp.asarray(pivots), permutation_size=size)
    np.testing.assert_array_equal(ours, expected)
    assert ours.dtype == expected.dtype


def test_the_least_eigenvalue_of_a_scaled_matrix_is_relatively_accurate():
    """As of Jacobi's rotations, and not of LAPACK's."""
    g = np.random.default_rng(0).normal(size=(4, 9))
    scale = np.logspace(0, -12, 4)
    x = np.float32((g @ g.T) * scale[:, None] * scale)
    inverse = np.linalg.inv(x / scale[:, None] / scale) / scale[:, None] / scale
    np.testing.assert_allclose(call("eigh", x, lower=True)[1][0], 1 / np.linalg.eigvalsh(inverse)[-1], rtol=1e-5)


def test_eigenvalues_of_a_graded_matrix_are_within_two_units_of_its_norm():
    x = inputs("eigh", ((32, 32),))[0][np.repeat([kind == "graded" for kind in KINDS], 3)]
    values = call("eigh", x, lower=True)[1]
    assert (np.abs(values - np.linalg.eigvalsh(np.float64(x))).max(1) < 4 * EPS * norm(x)).all()


def test_double_precision():
    with x64():
        x = matrices(5, 5)
        for name in ("lu", "svd with vectors", "qr with pivots"):
            ours, _, params = pair(name, ((5, 5),), np.float64)
            outs = ours(jnp.asarray(x))
            assert jax.tree.leaves(outs)[0].dtype == np.float64
            assert max(own.max() for own in errors(name, [x], outs, params)) < 40 * EPS**1.2


@pytest.mark.parametrize("name", PROGRAMS)
def test_operations_are_basic_and_as_many_for_any_size(name):
    counts = []
    for size in (7, 9):
        shapes = PROGRAMS[name][1](size, size)
        ours, _, _ = pair(name, shapes)
        found = list(equations(jax.make_jaxpr(ours)(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)).jaxpr))
        assert {eqn.primitive.name for eqn in found} <= OPERATIONS
        sums = [eqn for eqn in found if eqn.primitive.name == "reduce_sum"]
        assert all(jnp.issubdtype(eqn.invars[0].aval.dtype, jnp.integer) for eqn in sums)
        counts.append(len(found))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_in_lanes_is_that_run_alone_and_ignores_its_neighbours(name, size):
    shapes = PROGRAMS[name][1](size, size)
    ours, _, _ = pair(name, shapes)
    args = [np.moveaxis(arg, 0, -1) for arg in inputs(name, shapes)]
    runs = args[0].shape[-1]
    together = jax.jit(lanes(ours, runs))
    outs = jax.tree.leaves(together(*args))
    alone = [jax.tree.leaves(ours(*(arg[..., run] for arg in args))) for run in range(runs)]
    for out, own in zip(outs, zip(*alone, strict=True), strict=True):
        own = np.stack(own, -1)
        # The random ones: all is well determined.
        np.testing.assert_allclose(out[..., :3], own[..., :3], rtol=1e-3, atol=1e-5)
    stays = np.arange(runs) % 2 == 0
    others = jax.tree.leaves(together(*(np.where(stays, arg, arg[..., ::-1] / 2) for arg in args)))
    for out, other in zip(outs, others, strict=True):
        np.testing.assert_array_equal(np.asarray(out)[..., stays], np.asarray(other)[..., stays])
