"""Measures the differentiable linear program next to other solvers, in one job: accuracy, microseconds an instance, forward and gradient.

    python scripts/bench.py --only solvers

Maximises `w . z - tau / 2 |z|^2` over `{0 <= z <= 1, sum z = N, cost . z <= budget}` with `tau = .1`, `N = K // 2` and a budget that
binds; HiGHS solves the linear program without the square. Errors are against ours in float64, whose optimality conditions are checked.
The gradient is that of `side . z` in the weights. Every tool has the same instances at once and, size by size, a process of its own. Every
time is the median of several repeats after a warm-up (a repeat that took long ends them); a solver that is not installed, fails, or takes
too long for a size says so.
"""

import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.solvers import select

TEMPERATURE = 0.1
# Models -> instances at once.
SIZES = {9: 512, 25: 512, 100: 16, 1000: 4}
# Of all processes: on two cores the threads of XLA's pool may wait for each other for ever where a batch of matrices is factorised, as qpax
# does from K = 25 on; with eight they did not.
_THREADS = {"NPROC": "8"}
# Seconds after which no repeat is begun, and after which a tool is given up.
_PATIENCE, _LIMIT = 12.0, 300.0

Problem = dict[str, np.ndarray]
# `(forward, gradient)`, each from a problem to arrays `[batch, K]`; the gradient may be missing.
Tool = tuple[Callable[[Problem], Any], Callable[[Problem], Any] | None]


def problems(num_models: int, batch: int, seed: int = 0) -> Problem:
    """Random instances whose budget is between the cheapest selection's cost and that of the best without a budget."""
    rng = np.random.default_rng(seed)
    w, cost, side = rng.random((3, batch, num_models))
    size = num_models // 2
    least = np.sort(cost, axis=1)[:, :size].sum(1)
    best = np.take_along_axis(cost, np.argsort(-w, axis=1)[:, :size], axis=1).sum(1)
    budget = least + rng.uniform(0.2, 0.8, batch) * (best - least)
    return {"w": w, "cost": cost, "budget": budget, "side": side}


def _batched(solve: Callable[..., jax.Array], dtype: Any) -> Tool:
    """Forward and gradient of a JAX function `(w, cost, budget) -> z`."""

    def loss(w: jax.Array, cost: jax.Array, budget: jax.Array, side: jax.Array) -> jax.Array:
        return jnp.sum(side * solve(w, cost, budget))

    forward, slope = jax.jit(jax.vmap(solve)), jax.jit(jax.vmap(jax.grad(loss)))

    def cast(problem: Problem, *names: str) -> list[jax.Array]:
        return [jnp.asarray(problem[name], dtype) for name in names]

    return (
        lambda p: forward(*cast(p, "w", "cost", "budget")).block_until_ready(),
        lambda p: slope(*cast(p, "w", "cost", "budget", "side")).block_until_ready(),
    )


def jaxroute_tool(num_models: int, dtype: Any) -> Tool:
    """`select`, for a sum of wins."""
    return _batched(lambda w, c, b: select("sum", w, c, b, num_models // 2, temperature=TEMPERATURE).z, dtype)


def _matrices(num_models: int) -> tuple[jax.Array, ...]:
    eye = jnp.eye(num_models)
    return TEMPERATURE * eye, jnp.ones((1, num_models)), jnp.full((1,), num_models // 2, eye.dtype), eye


def _rows(cost: jax.Array, budget: jax.Array, eye: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All inequalities: the box and the budget."""
    count = eye.shape[0]
    return jnp.concatenate([eye, -eye, cost[None]]), jnp.concatenate([jnp.ones(count), jnp.zeros(count), budget[None]])


def qpax_tool(num_models: int) -> Tool:
    """qpax in float64 with a tolerance of 1e-8, its derivative at a relaxation of 1e-8."""
    import qpax  # pyright: ignore[reportMissingImports]

    square, ones, size, eye = _matrices(num_models)

    def solve(w: jax.Array, cost: jax.Array, budget: jax.Array) -> jax.Array:
        rows, limits = _rows(cost, budget, eye)
        return qpax.solve_qp_primal(square, -w, ones, size, rows, limits, solver_tol=1e-8, target_kappa=1e-8)

    return _batched(solve, jnp.float64)


def jaxopt_tool(num_models: int) -> Tool:
    """OSQP of jaxopt in float64, with a tolerance of 1e-5 and its implicit derivative."""
    import jaxopt  # pyright: ignore[reportMissingImports]

    square, ones, size, eye = _matrices(num_models)
    solver = jaxopt.OSQP(tol=1e-5, maxiter=4000)

    def solve(w: jax.Array, cost: jax.Array, budget: jax.Array) -> jax.Array:
        rows, limits = _rows(cost, budget, eye)
        found = solver.run(params_obj=(square, -w), params_eq=(ones, size), params_ineq=(rows, limits))
        return found.params.primal

    return _batched(solve, jnp.float64)


def mpax_tool(num_models: int) -> Tool:
    """The quadratic solver of MPAX in float64, with tolerances of 1e-6; no derivative."""
    import mpax  # pyright: ignore[reportMissingImports]

    square, ones, size, _ = _matrices(num_models)
    solver = mpax.raPDHG(eps_abs=1e-6, eps_rel=1e-6)

    def solve(w: jax.Array, cost: jax.Array, budget: jax.Array) -> jax.Array:
        rows = (ones, size, -cost[None], -budget[None])
        with jax.ensure_compile_time_eval():  # It looks whether the square is zero.
            problem = mpax.create_qp(square, -w, *rows, jnp.zeros(num_models), jnp.ones(num_models), use_sparse_matrix=False)
        return solver.optimize(problem).primal_solution

    return _batched(solve, jnp.float64)[0], None


def cvxpylayers_tool(num_models: int) -> Tool:
    """cvxpylayers with its default solver."""
    import cvxpy as cp  # pyright: ignore[reportMissingImports]
    from cvxpylayers.jax import CvxpyLayer  # pyright: ignore[reportMissingImports]

    z, w, cost, budget = cp.Variable(num_models), cp.Parameter(num_models), cp.Parameter(num_models), cp.Parameter()
    gain = w @ z - TEMPERATURE / 2 * cp.sum_squares(z)
    program = cp.Problem(cp.Maximize(gain), [z >= 0, z <= 1, cp.sum(z) == num_models // 2, cost @ z <= budget])
    layer = CvxpyLayer(program, parameters=[w, cost, budget], variables=[z])

    def forward(p: Problem) -> Any:
        return np.asarray(layer(*(jnp.asarray(p[n]) for n in ("w", "cost", "budget")))[0])

    def loss(w: jax.Array, cost: jax.Array, budget: jax.Array, side: jax.Array) -> jax.Array:
        return jnp.sum(side * layer(w, cost, budget)[0])

    return forward, lambda p: np.asarray(jax.grad(loss)(*(jnp.asarray(p[n]) for n in ("w", "cost", "budget", "side"))))


def highs_tool(num_models: int) -> Tool:
    """HiGHS by SciPy, instance by instance: the linear program."""
    from scipy.optimize import linprog

    def forward(p: Problem) -> Any:
        ones = np.ones((1, num_models))
        rows = zip(p["w"], p["cost"], p["budget"], strict=True)
        return np.stack([linprog(-w, c[None], [b], ones, [num_models // 2], (0, 1)).x for w, c, b in rows])

    return forward, None


# Name -> the module that it needs, and the tool; the first two are ours.
TOOLS: dict[str, tuple[str, Callable[[int], Tool]]] = {
    "jaxroute": ("jaxroute", lambda k: jaxroute_tool(k, jnp.float32)),
    "jaxroute, float64": ("jaxroute", lambda k: jaxroute_tool(k, jnp.float64)),
    "qpax": ("qpax", qpax_tool),
    "jaxopt": ("jaxopt", jaxopt_tool),
    "cvxpylayers": ("cvxpylayers", cvxpylayers_tool),
    "mpax": ("mpax", mpax_tool),
    "scipy": ("scipy", highs_tool),
}


def timed(work: Callable[[], Any], repeats: int) -> tuple[Any, float, float]:
    """The answer, median seconds, and the seconds of the first call beyond that."""
    begin = time.perf_counter()
    answer = work()
    first, seconds = time.perf_counter() - begin, []
    while not seconds or (len(seconds) < repeats and time.perf_counter() - begin < _PATIENCE):
        start = time.perf_counter()
        answer = work()
        seconds.append(time.perf_counter() - start)
    middle = statistics.median(seconds)
    return np.asarray(answer, np.float64), middle, max(first - middle, 0.0)


def measured(name: str, num_models: int, repeats: int) -> dict[str, Any]:
    """Times and errors of one tool on one size."""
    problem = problems(num_models, SIZES[num_models])
    row: dict[str, Any] = {"batch": SIZES[num_models]}
    exact = {} if name == "scipy" else _reference(num_models, problem)
    for part, work in zip(("forward", "gradient"), TOOLS[name][1](num_models), strict=True):
        if work is None:
            continue
        answer, seconds, compiling = timed(lambda work=work: work(problem), repeats)
        row[f"{part}_us"], row[f"{part}_compile_s"] = 1e6 * seconds / row["batch"], compiling
        if exact:
            wrong = np.abs(answer - exact[part]).max(axis=1)
            row[f"{part}_error"], row[f"{part}_median_error"] = float(wrong.max()), float(np.median(wrong))
    return row


def _reference(num_models: int, problem: Problem) -> dict[str, np.ndarray]:
    tool = jaxroute_tool(num_models, jnp.float64)
    found = jax.jit(jax.vmap(lambda w, c, b: select("sum", w, c, b, num_models // 2, temperature=TEMPERATURE)))
    certificate = found(problem["w"], problem["cost"], problem["budget"])
    if not np.all(certificate.converged):
        raise RuntimeError(
            f"the reference must meet the optimality conditions, got a residual of {certificate.residual.max()}"
        )
    assert tool[1] is not None
    return {"forward": np.asarray(tool[0](problem)), "gradient": np.asarray(tool[1](problem))}


def rows(repeats: int) -> Iterator[dict[str, Any]]:
    """One row per tool and size, each from a process of its own."""
    for num_models in SIZES:
        for name, (module, _) in TOOLS.items():
            row: dict[str, Any] = {"tool": name, "models": num_models}
            if importlib.util.find_spec(module) is None:
                yield {**row, "unavailable": "not installed"}
                continue
            command = [sys.executable, __file__, name, str(num_models), str(repeats)]
            try:
                child = subprocess.run(
                    command, capture_output=True, text=True, timeout=_LIMIT, check=False, env={**os.environ, **_THREADS}
                )
            except subprocess.TimeoutExpired:
                row["unavailable"] = f"not done after {_LIMIT:.0f} s"
            else:
                lines = (child.stderr if child.returncode else child.stdout).strip().splitlines() or ["no word"]
                if child.returncode and module == "jaxroute":
                    raise RuntimeError(child.stderr)
                row |= {"unavailable": lines[-1][:200]} if child.returncode else json.loads(lines[-1])
            yield row


def show(row: dict[str, Any]) -> str:
    """A line of the table."""
    name = f"  {row['models']:>5} {row['tool']:<18}"
    if "unavailable" in row:
        return f"{name} unavailable: {row['unavailable']}"
    parts = [
        f"{row.get(f'{what}_us', float('nan')):11.1f} {row.get(f'{what}_error', float('nan')):9.1e}"
        for what in ("forward", "gradient")
    ]
    return f"{name} {parts[0]} {parts[1]}  x {row['batch']}"


def main(repeats: int, file: Path, about: dict[str, Any]) -> None:
    """Prints a table and writes it to `file` after each row.

    Args:
      repeats: of which the median is taken.
      file: of the result, JSON.
      about: machine, versions, commit.
    """
    tools = {module for module, _ in TOOLS.values() if importlib.util.find_spec(module)}
    about = {**about, "tools": {name: importlib.metadata.version(name) for name in sorted(tools)}, "rows": []}
    print(f"\nsolvers\n  {'K':>5} {'tool':<18} {'forward us':>11} {'error':>9} {'gradient us':>11} {'error':>9}")
    for row in rows(repeats):
        about["rows"].append(row)
        print(show(row), flush=True)
        file.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    with jax.enable_x64(True):
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
