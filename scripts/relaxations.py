"""What smoothing a selection costs and gives: how often a derivative is zero, what the objective loses, and the noise of the derivative.

    python scripts/relaxations.py [--instances 256] [--models 9 25 100] [--reward sum any all]

Random instances of K models, K // 2 or at most 6 of them to be selected, with uniform costs, weights scaled to at most one and a budget that
binds. `select` at several temperatures, and `perturbed` around the exact solver at several deviations and numbers of samples (pairs), are
asked for the derivative of `side . z` in the weights, with random sides.

- zero: the share of instances whose derivative is exactly zero (in all weights).
- lost: what the solution gets of the true objective less than the optimum, as a share of it; for the logarithm of "all" the difference. The
  true "any" is `1 - prod(1 - w z)`, by `exact_any_win`.
- noise: the standard deviation of a perturbed derivative over keys, over the length of the mean: root mean squares over the instances.
- us: microseconds of a derivative, of an instance of a batch.

Kept in `scripts/bench_results/relaxations.json`.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.solvers import exact_any_win, linear_selection, perturbed, select

RESULTS = Path(__file__).resolve().parent / "bench_results" / "relaxations.json"
TEMPERATURES = (0.01, 0.03, 0.1, 0.3, 1.0)
DEVIATIONS = (0.03, 0.1, 0.3)
SAMPLES = (8, 32)
KEYS = 8
Arrays = tuple[np.ndarray, ...]
# `(weight, cost, budget, key) -> z`.
Solve = Callable[..., jax.Array]


def places(num_models: int) -> int:
    """How many models are selected."""
    return min(num_models // 2, 6)


def problems(num_models: int, count: int, seed: int = 0) -> Arrays:
    """Weights, costs, budgets and sides; a budget is between the cheapest selection's cost and that of the best without a budget."""
    rng, size = np.random.default_rng(seed), places(num_models)
    w, cost, side = rng.random((3, count, num_models))
    w = 0.98 * w / w.max(axis=1, keepdims=True) + 0.01
    least = np.sort(cost, axis=1)[:, :size].sum(1)
    best = np.take_along_axis(cost, np.argsort(-w, axis=1)[:, :size], axis=1).sum(1)
    return w, cost, least + rng.uniform(0.2, 0.8, count) * (best - least), side


def value(reward: str, w: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The true objective."""
    if reward == "any":
        return 1.0 - (1.0 - w * z).prod(-1)
    return ((np.log(w) if reward == "all" else w) * z).sum(-1)


def exact(reward: str, size: int) -> Callable[..., jax.Array]:
    """Solution of the problem without smoothing."""
    if reward == "any":
        return lambda w, c, b: exact_any_win(jnp.clip(w, 0.0, 1.0), c, b, size).z
    if reward == "all":
        return lambda w, c, b: linear_selection(jnp.log(jnp.clip(w, 1e-3, 1.0)), c, b, size).z
    return lambda w, c, b: linear_selection(w, c, b, size).z


def timed(work: Callable[[], Any]) -> tuple[np.ndarray, float]:
    """The answer, and seconds of the best of three calls after the first."""
    answer, seconds = np.asarray(work()), []
    for _ in range(3):
        start = time.perf_counter()
        work().block_until_ready()
        seconds.append(time.perf_counter() - start)
    return answer, min(seconds)


def row(solve: Solve, given: Arrays, reward: str, best: np.ndarray, keys: jax.Array) -> dict[str, float]:
    """Of a solver; one key if there is no luck in it."""
    w, cost, budget, side = (jnp.asarray(x) for x in given)

    def slope(w: jax.Array, c: jax.Array, b: jax.Array, side: jax.Array, key: jax.Array) -> jax.Array:
        return jax.grad(lambda w: solve(w, c, b, key) @ side)(w)

    found = np.asarray(jax.jit(jax.vmap(solve, in_axes=(0, 0, 0, None)))(w, cost, budget, keys[0]))
    every = jax.jit(jax.vmap(jax.vmap(slope, in_axes=(0, 0, 0, 0, None)), in_axes=(None, None, None, None, 0)))
    slopes, seconds = timed(lambda: every(w, cost, budget, side, keys))
    shortfall = best - value(reward, given[0], found)
    lost = shortfall if reward == "all" else shortfall / best
    result = {
        "zero": float((slopes == 0).all(axis=-1).mean()),
        "lost": float(lost.mean()),
        "lost_error": float(lost.std(ddof=1) / np.sqrt(len(lost))),
        "us": 1e6 * seconds / slopes[..., 0].size,
    }
    if len(keys) > 1:
        variance = slopes.var(axis=0, ddof=1)
        signal = np.maximum((slopes.mean(axis=0) ** 2 - variance / len(keys)).sum(-1).mean(), 0.0)
        result["noise"] = float(np.sqrt(variance.sum(-1).mean() / signal)) if signal > 0 else float("inf")
    return result


def smoothed(reward: Any, size: int, temperature: float) -> Solve:
    """`select` at a temperature."""
    return lambda w, c, b, key: select(reward, w, c, b, size, temperature=temperature).z


def noisy(reward: str, size: int, sigma: float, samples: int) -> Solve:
    """`perturbed` around the exact solver."""
    best = exact(reward, size)
    return lambda w, c, b, key: perturbed(lambda w: best(w, c, b), samples, sigma)(w, key)


def solvers(reward: str, num_models: int) -> Iterator[tuple[str, Solve, int]]:
    """Names, solvers, and keys that they need."""
    size = places(num_models)
    for temperature in TEMPERATURES:
        yield f"temperature {temperature:g}", smoothed(reward, size, temperature), 1
    if num_models > (9 if reward == "any" else 25):
        return  # Exact solutions of many models, for every sample.
    for sigma in DEVIATIONS:
        for samples in SAMPLES:
            yield f"deviation {sigma:g}, {samples} samples", noisy(reward, size, sigma, samples), KEYS


def show(name: str, found: dict[str, float]) -> None:
    """A line of the table."""
    noise = f"  noise {found['noise']:6.2f}" if "noise" in found else ""
    print(
        f"  {name:<28} zero {100 * found['zero']:5.1f} %  lost {100 * found['lost']:8.4f} ({100 * found['lost_error']:.2g}) %"
        f"  {found['us']:8.1f} us{noise}",
        flush=True,
    )


def main() -> None:
    """Prints the tables, and keeps them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=256)
    parser.add_argument("--models", type=int, nargs="+", default=[9, 25, 100])
    parser.add_argument("--reward", nargs="+", choices=["sum", "any", "all"], default=["sum", "any", "all"])
    options = parser.parse_args()
    keys = jax.random.split(jax.random.key(1), KEYS)
    for reward in options.reward:
        for num_models in options.models:
            given, size = problems(num_models, options.instances), places(num_models)
            best = value(reward, given[0], np.asarray(jax.jit(jax.vmap(exact(reward, size)))(*given[:3])))
            print(f"{reward}, {size} of {num_models} models, {options.instances} instances", flush=True)
            rows: dict[str, Any] = {}
            for name, solve, needed in solvers(reward, num_models):
                rows[name] = row(solve, given, reward, best, keys[:needed])
                show(name, rows[name])
            kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            kept[f"{reward}, {size} of {num_models}"] = {
                "instances": options.instances,
                "jax": jax.__version__,
                "rows": rows,
            }
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
