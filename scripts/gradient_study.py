"""How good gradients of a simulated objective are, and whether a better one finds better leaves.

    python scripts/gradient_study.py slopes [--task c2mabv|stageroute] [--reference 4096]
    python scripts/gradient_study.py ascent [--task c2mabv|stageroute] [--repeats 8] [--runs 768]
    python scripts/gradient_study.py cost

`slopes` compares estimators of the derivative of the expected score at the end of a run with central differences over many common seeds that no
estimator sees: bias, and the error of one run, at three points of the box of `search_study.py`. Derivatives are per unit of the box. `ascent` gives
each estimator to Adam, with the runs and the judgement of `search_study.py`. `cost` times forward and reverse differentiation over the number
of leaves. All are kept in `scripts/bench_results/gradients.json`.
"""

import argparse
import functools
import itertools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import laws
import numpy as np
import optax
import search_study
from flax import struct
from search_study import HELD_OUT, HELD_OUT_KEY, PRICE, Task, played

from jaxroute import tune
from jaxroute.analysis.tune.playing import Makers, Players
from jaxroute.analysis.tune.ranking import Goal
from jaxroute.analysis.tune.space import Space
from jaxroute.core import draws, numerics
from jaxroute.core.types import Metric, planned_state
from jaxroute.core.wrapper import Wrapper
from jaxroute.engine.compiling import compile_lanes
from jaxroute.engine.rollout import rollout
from jaxroute.engine.rounds import Record, run_streams
from jaxroute.problems import combinatorial

RESULTS = Path(__file__).parent / "bench_results" / "gradients.json"
REFERENCE_KEY, STUDY_KEY = 2**30, 2**29
# Distance of the reference's ends from the point, in units of the box.
REFERENCE_STEP = {"c2mabv": 0.02, "stageroute": 0.05}
# So many runs in one call of a search.
FEW = 32
POINTS = {
    "c2mabv": {
        "centre": None,
        "good": {"reward_width": 0.3, "cost_width": 0.01, "budget_share": 0.8},
        "poor": {"reward_width": 1.0, "cost_width": 1.0, "budget_share": 1.0},
    },
    "stageroute": {
        "centre": None,
        "good": {"gamma": 0.01, "radius_multiplier": 0.5},
        "poor": {"gamma": 1.0, "radius_multiplier": 2.0},
    },
}


# What a round gives besides the flows of the environment: the relaxed counterparts of what is scored, and the chance of what was drawn.


def of_cloud(env: Any, action: Any, flows: Mapping[str, Any], t: jax.Array) -> dict[str, Any]:
    """The relaxed counterparts of the sum-up score, and the logarithm of the chance of the set."""
    segment = env.outcomes.segment(t)
    mean, cost = (jnp.asarray(x)[segment] for x in (env.outcomes.outcome_mean, env.outcomes.cost_mean))
    z = action.relaxed
    return {
        "relaxed reward": env.reward.relaxed(z, mean),
        "relaxed violation": env._above(env._per_budget(cost * z)),
        "law": laws.pairwise(z, action.selected),
    }


def of_market(env: Any, action: Any, flows: Mapping[str, Any], t: jax.Array) -> dict[str, Any]:
    """The means over the routing draw, and the logarithm of the chance of the model."""
    return {
        "relaxed regret": flows["conditional_regret"],
        "relaxed cost_ratio": (flows["expected_cost"] + flows["fee"]) / env.budget,
        "law": laws.categorical(action.probabilities, action.model),
    }


BESIDES = {"c2mabv": of_cloud, "stageroute": of_market}
# Metrics whose mean over the draw of a round, given its law, is their relaxed counterpart.
EXACT = {"c2mabv": ("reward",), "stageroute": ("regret", "cost_ratio")}


def net_regret(values: Mapping[str, Any]) -> Any:
    """Regret (less is better) with a price on what is spent above the budget, with a derivative."""
    return -values["regret"] - 100.0 * jnp.maximum(values["cost_ratio"] - 1.0, 0.0)


SCORES = {"c2mabv": search_study.net_reward, "stageroute": net_regret}


def task_of(name: str) -> Task:
    """A task of `search_study.py`, with one number that is to be as large as possible."""
    task = search_study.TASKS[{"c2mabv": "C2MAB-V, sum up", "stageroute": "StageRoute"}[name]]()
    return task._replace(goal=Goal(SCORES[name], True, {}, {}, 1.0))


@struct.dataclass
class Watched(Wrapper):
    """An environment with further flows."""

    besides: Callable[..., Any] = struct.field(pytree_node=False)

    def step(self, key, state, action, t):
        after, feedback, flows = self.env.step(key, state, action, t)
        return after, feedback, {**flows, **self.besides(self.env, action, flows, t)}


class Setting(NamedTuple):
    """A task, as the study plays it.

    name: of the task. task: the setting. space: its box. players: of candidates, by the engine.
    """

    name: str
    task: Task
    space: Space
    players: Players

    @staticmethod
    def of(name: str) -> "Setting":
        """The task of that name."""
        task = task_of(name)
        space = Space.of(task.leaves)
        ends = [space.values(0, point) for point in ([0.0] * len(task.leaves), [1.0] * len(task.leaves))]
        return Setting(name, task, space, Players(Makers(task.env, task.policy, list(task.leaves)), ends))

    def point(self, values: Mapping[str, float] | None) -> np.ndarray:
        """Where values lie in the box; its centre for None."""
        return np.full(len(self.space.leaves), 0.5) if values is None else self.space.place("point", values)[1]

    def values(self, point: Any) -> dict[str, Any]:
        """Values at a point `[L]`, differentiable; all scales are logarithmic."""
        return {n: s.low * (s.high / s.low) ** point[i] for i, (n, s) in enumerate(self.space.numbers.items())}

    def scores(self, points: np.ndarray, seeds: range, key: int) -> np.ndarray:
        """What points `[C, L]` score on seeds `[C, S]`: by the engine, or by one compiled call where they are few, and a search asks often."""
        if len(points) * len(seeds) <= FEW:
            play = compiled(self.name, len(points), len(seeds))
            found = play(jnp.asarray(points, jnp.float32), words(key), np.arange(seeds.start, seeds.stop, dtype=np.uint32))
            return np.asarray(found, np.float64)
        candidates = [self.space.values(0, np.clip(point, 0.0, 1.0)) for point in points]
        values, valid = self.players.together(candidates, seeds, horizon=self.task.horizon, key=key, record=self.task.record)
        if not valid.all():
            raise ArithmeticError(f"{(~valid).sum()} runs are not valid")
        return np.asarray(SCORES[self.name](values), np.float64)


def words(key: int) -> jax.Array:
    """The words of a root key."""
    return jax.random.key_data(draws.key(key))


@functools.cache
def compiled(name: str, candidates: int, seeds: int) -> Callable[[Any, Any, Any], Any]:
    """Function of points `[C, L]`, the words of a key and seeds `[S]`: their scores `[C, S]`, without the engine's checks."""
    setting = Setting.of(name)
    task = setting.task
    flows = tuple(m for m in task.env.spec.metrics if m.name in task.record)
    record = Record(every=task.horizon, flows=flows)

    def play(points: Any, root: Any, seeds: Any) -> jax.Array:
        def one(point: Any) -> Any:
            policy = tune.replace(task.policy, setting.values(jnp.clip(point, 0.0, 1.0)))
            played = rollout(task.env, policy, run_streams(root, seeds), task.horizon, record)
            return SCORES[name]({m.name: played[m.name][0] / (1 if m.kind == "total" else task.horizon) for m in flows})

        return jax.vmap(one)(points)

    example = jnp.zeros((candidates, len(task.leaves)), jnp.float32), words(0), np.zeros(seeds, np.uint32)
    return compile_lanes(jax.jit(play).lower(*example), jax.default_backend())


# Estimators from runs as they are.


def by_axes(setting: Setting, point: np.ndarray, step: float, seeds: range, key: int) -> np.ndarray:
    """Central differences along each axis on common seeds, `[S, L]`; `2 L` runs a seed."""
    axes = step * np.eye(len(point))
    up, down = np.split(setting.scores(np.concatenate([point + axes, point - axes]), seeds, key), 2)
    return (up - down).T / (2 * step)


def by_smoothing(
    setting: Setting, point: np.ndarray, step: float, pairs: int, seeds: range, key: int, rng: Any
) -> np.ndarray:
    """Antithetic Gaussian perturbations of all leaves at once on common seeds, `[pairs, S, L]`; two runs a pair and seed."""
    ways = rng.standard_normal((pairs, len(point)))
    up, down = np.split(setting.scores(np.concatenate([point + step * ways, point - step * ways]), seeds, key), 2)
    return ((up - down) / (2 * step))[:, :, None] * ways[:, None, :]


# Estimators that differentiate.


def recorder(setting: Setting) -> Callable[[Any, Any, Any], dict[str, jax.Array]]:
    """Function of a point, the words of a key and seeds `[R]`: what each round gives, `[T, R]` by name."""
    task = setting.task
    names = [*task.record, *(f"relaxed {n}" for n in task.record), "law"]
    record = Record(every=1, flows=tuple(Metric(n, n, "", "average") for n in names))
    watched = Watched(task.env, BESIDES[setting.name])

    def play(point: Any, root: Any, seeds: Any) -> dict[str, jax.Array]:
        policy = tune.replace(task.policy, setting.values(point))
        played = rollout(watched, policy, run_streams(root, seeds), task.horizon, record)
        return {name: played[name] for name in names}

    return play


def surrogate(setting: Setting, kind: str) -> Callable[[Any, Any, Any], jax.Array]:
    """Function of a point, the words of a key and seeds `[R]` whose derivative is the estimate of each run, `[R]`.

    pathwise: the score of the relaxed counterparts.
    score: the logarithm of the chance of each draw, times what the run scores more than one with the same past and the others' mean future.
    mixed: the same for what follows a draw; for the round itself the derivative of the relaxed counterparts, where they are its mean.
    explored: the derivative of the relaxed counterparts, and the chances times what these gain.
    """
    play, task, score = recorder(setting), setting.task, SCORES[setting.name]
    exact = EXACT[setting.name] if kind == "mixed" else ()
    moving = {"mixed": exact, "explored": tuple(task.record)}.get(kind, ())
    total = {m.name: m.kind == "total" for m in task.env.spec.metrics}

    def ends(values: Mapping[str, Any]) -> Any:
        return score({n: v if total[n] else v / task.horizon for n, v in values.items()})

    def of_others(values: jax.Array) -> jax.Array:
        return (values.sum(1, keepdims=True) - values) / (values.shape[1] - 1)

    def run(point: Any, root: Any, seeds: Any) -> jax.Array:
        rounds = play(point, root, seeds)
        relaxed = {n: rounds[f"relaxed {n}"] for n in task.record}
        if kind == "pathwise":
            return ends({n: v.sum(0) for n, v in relaxed.items()})
        true = jax.lax.stop_gradient(relaxed if kind == "explored" else {n: rounds[n] for n in task.record})
        end = {n: v.sum(0) for n, v in true.items()}
        past = {n: jnp.cumsum(v, 0) - v for n, v in true.items()}
        usual = ends({n: past[n] + of_others(end[n] - past[n]) for n in true})
        # What is exact of this round is differentiated, and not scored.
        gain = ends({n: end[n] + (of_others(v) - v if n in exact else jnp.zeros_like(v)) for n, v in true.items()}) - usual
        sums = {n: relaxed[n].sum(0) for n in moving}
        moved = {n: v + (sums[n] - jax.lax.stop_gradient(sums[n]) if n in moving else 0.0) for n, v in end.items()}
        return ends(moved) + jnp.sum(jax.lax.stop_gradient(gain) * rounds["law"], 0)

    return run


@functools.cache
def differentiated(name: str, kind: str, runs: int) -> Callable[[Any, Any, Any], Any]:
    """Function of a point, the words of a key and seeds `[runs]`: the estimates of the runs `[runs, L]`, compiled."""
    setting = Setting.of(name)
    slopes = branched(setting) if kind == "branches" else jax.jacfwd(surrogate(setting, kind))
    point = jnp.zeros(len(setting.space.leaves), jnp.float32)
    lowered = jax.jit(slopes).lower(point, words(0), np.zeros(runs, np.uint32))
    return compile_lanes(lowered, jax.default_backend())


def by_derivative(setting: Setting, kind: str, point: np.ndarray, seeds: range, key: int, group: int) -> np.ndarray:
    """Estimates of the runs `[S, L]`; groups of runs are each other's baseline."""
    play = differentiated(setting.name, kind, group)
    point, root = jnp.asarray(point, jnp.float32), words(key)
    parts = [play(point, root, np.arange(at, at + group, dtype=np.uint32)) for at in range(seeds.start, seeds.stop, group)]
    return np.concatenate([np.asarray(part, np.float64) for part in parts])


# Branches: what is drawn in one round is replaced by an alternative of either side of the derivative of its law.


@struct.dataclass
class Branching:
    """A policy whose draw in one round, drawn itself at the start, comes from the rising or the falling part of the derivative of its law.

    The policy at a point has the law `p` over alternatives; `dp`, its derivative along `way`, is `mass` times a difference of two laws. Runs of
    both sides that share their luck differ by what the round's decision leads to; the sum over the rounds of that difference times the mass is
    the derivative of the expectation. Source: Arya et al. (2022), "Automatic differentiation of programs with discrete randomness", with one
    alternative that is kept, chosen evenly.

    point: `[L]`. way: `[L]`. side: `[]` 1 or -1. made: function of a point that returns the policy. law: function of an action that returns
    `p [A]`. swapped: function of an action and a number of an alternative.
    """

    point: Any
    way: Any
    side: Any
    made: Callable[..., Any] = struct.field(pytree_node=False)
    law: Callable[..., Any] = struct.field(pytree_node=False)
    swapped: Callable[..., Any] = struct.field(pytree_node=False)

    def init(self, key, spec):
        return self.made(self.point).init(key, spec), draws.randint(draws.fold_in(key, 7), spec.horizon)

    def act(self, key, state, obs, t):
        inner, at = state

        def drawn(point):
            action, _ = self.made(point).act(key, inner, obs, t)
            return self.law(action), action

        _, change, action = jax.jvp(drawn, (self.point,), (self.way,), has_aux=True)
        part = jnp.maximum(self.side * change, 0.0)
        mass = jnp.sum(part)
        part = jnp.where(mass > 0, part / jnp.where(mass > 0, mass, 1.0), 1.0 / part.shape[-1])
        other = self.swapped(action, numerics.inverse_cdf(part, draws.uniform(draws.fold_in(key, 7))))
        here = (t == at) & (mass > 0)
        action = jax.tree.map(lambda a, b: jnp.where(here, b, a), action, other)
        return action, {"mass": jnp.where(here, mass, 0.0)}

    def update(self, key, state, obs, action, feedback, t):
        return self.made(self.point).update(key, state[0], obs, action, feedback, t), state[1]


@struct.dataclass
class BranchingInStages(Branching):
    """The same of a policy that plans."""

    def init(self, key, spec):
        inner, at = Branching.init(self, key, spec)
        return planned_state(inner), at

    def plan(self, key, state, obs, t):
        return self.made(self.point).plan(key, state[0], obs, t), state[1]


def branched(setting: Setting) -> Callable[[Any, Any, Any], jax.Array]:
    """Function of a point, the words of a key and seeds `[R]`: estimates `[R, L]`; `2 L` runs a seed."""
    task, score, number = setting.task, SCORES[setting.name], len(setting.space.leaves)
    flows = tuple(m for m in task.env.spec.metrics if m.name in task.record)
    record = Record(every=task.horizon, flows=flows, info=(Metric("info.mass", "mass", "", "total"),))
    size = task.env.spec.num_models
    if setting.name == "c2mabv":
        all_sets = np.array(list(itertools.product([False, True], repeat=size)))
        sets = jnp.asarray(all_sets[all_sets.sum(1) == int(task.env.size)])
        law = lambda action: jax.vmap(lambda s: laws.chance_of_set(action.relaxed, s))(sets)  # noqa: E731
        swapped = lambda action, i: action.replace(selected=sets[i], held=sets[i])  # noqa: E731
    else:
        law = lambda action: action.probabilities  # noqa: E731
        swapped = lambda action, i: action.replace(model=i.astype(action.model.dtype))  # noqa: E731
    kind = BranchingInStages if hasattr(task.policy, "plan") else Branching

    def run(point: Any, root: Any, seeds: Any) -> jax.Array:
        streams = run_streams(root, seeds)

        def side(way: Any, sign: Any) -> tuple[jax.Array, jax.Array]:
            policy = kind(point, way, sign, lambda p: tune.replace(task.policy, setting.values(p)), law, swapped)
            played = rollout(task.env, policy, streams, task.horizon, record)
            end = {m.name: played[m.name][0] / (1 if m.kind == "total" else task.horizon) for m in flows}
            return score(end), played["info.mass"][0]

        ways = jnp.repeat(jnp.eye(number), 2, axis=0)
        ends, mass = jax.vmap(side)(ways, jnp.tile(jnp.array([1.0, -1.0]), number))
        return (task.horizon * mass[::2] * (ends[::2] - ends[1::2])).T

    return run


# The table of slopes.


# Estimates `[units, L]` and the standard errors `[L]` of their mean.
Estimates = tuple[np.ndarray, np.ndarray]


def with_errors(units: np.ndarray) -> Estimates:
    """Independent estimates with the errors of their mean."""
    return units, units.std(0, ddof=1) / np.sqrt(len(units))


def estimators(setting: Setting, size: int) -> dict[str, tuple[int, Callable[[np.ndarray], Estimates]]]:
    """By name: runs of a unit, and a function of a point that returns the estimates of units.

    Args:
      setting: the task.
      size: runs of each, about.
    """
    number = len(setting.space.leaves)

    def axes(step: float) -> Callable[[np.ndarray], Estimates]:
        return lambda point: with_errors(by_axes(setting, point, step, range(size // (2 * number)), STUDY_KEY))

    def smoothed(step: float, pairs: int = 16) -> Callable[[np.ndarray], Estimates]:
        def play(point: np.ndarray) -> Estimates:
            """Pairs share seeds and seeds share pairs: the error is that of both, and a little too large."""
            rng, seeds = np.random.default_rng(0), 16
            blocks = size // (2 * pairs * seeds)
            parts = [
                by_smoothing(setting, point, step, pairs, range(b * seeds, (b + 1) * seeds), STUDY_KEY, rng)
                for b in range(blocks)
            ]
            cells = np.stack(parts)
            means = [cells.mean(axis).reshape(-1, number) for axis in (1, 2)]
            return cells.reshape(-1, number), np.hypot(*(with_errors(mean)[1] for mean in means))

        return play

    def derived(kind: str, group: int, runs: int = 1) -> Callable[[np.ndarray], Estimates]:
        return lambda point: with_errors(by_derivative(setting, kind, point, range(size // runs), STUDY_KEY, group))

    return {
        "pathwise": (1, derived("pathwise", 64)),
        "score, baseline of 63": (1, derived("score", 64)),
        "mixed, baseline of 63": (1, derived("mixed", 64)),
        "explored, baseline of 63": (1, derived("explored", 64)),
        "branches": (2 * number, derived("branches", 64, 2 * number)),
        **{f"differences, step {step:g}": (2 * number, axes(step)) for step in (0.02, 0.05, 0.1)},
        **{f"smoothing, sd {step:g}": (2, smoothed(step)) for step in (0.02, 0.05, 0.1)},
    }


def seconds(play: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and its CPU seconds; it was called before, so that nothing is compiled."""
    began = time.process_time()
    return play(), time.process_time() - began


def reference(setting: Setting, point: np.ndarray, seeds: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Central differences `[L]` and their standard errors, on seeds that no estimator plays."""
    slopes = by_axes(setting, point, step, range(seeds), REFERENCE_KEY)
    return slopes.mean(0), slopes.std(0, ddof=1) / np.sqrt(seeds)


def row(found: np.ndarray, error: float, runs: int, cpu: float, truth: tuple[float, float]) -> dict[str, float | None]:
    """What is said of an estimator and a leaf.

    Args:
      found: `[units]` estimates.
      error: of their mean.
      runs: of a unit.
      cpu: seconds of all.
      truth: reference and its standard error.
    """
    mean = found.mean()
    bias, per_run = mean - truth[0], found.std(ddof=1) * np.sqrt(runs)
    bias_error = float(np.hypot(error, truth[1]))
    needed = (per_run / (0.1 * truth[0])) ** 2
    # No number of runs helps where the bias is more than a tenth, by three of its errors: of so many rows one passes two by luck.
    reaches = abs(bias) <= 0.1 * abs(truth[0]) + 3.0 * bias_error
    return {
        "estimate": mean,
        "error": error,
        "bias": bias,
        "bias_error": bias_error,
        "bias_share": bias / abs(truth[0]),
        "sd_per_run": per_run,
        "cpu_ms_per_run": 1e3 * cpu / (len(found) * runs),
        "runs_for_10_percent": needed if reaches else None,
        "cpu_s_for_10_percent": needed * cpu / (len(found) * runs) if reaches else None,
    }


def slopes(name: str, reference_seeds: int, size: int) -> None:
    """Prints and keeps the table of a task."""
    setting = Setting.of(name)
    step = REFERENCE_STEP[name]
    for where, values in POINTS[name].items():
        point = setting.point(values)
        truths = {s: reference(setting, point, reference_seeds, s) for s in (step, 2 * step)}
        truth = truths[step]
        print(f"\n{name}, {where}: {setting.space.values(0, point)}; {reference_seeds} seeds of reference", flush=True)
        for i, leaf in enumerate(setting.space.leaves):
            both = ", ".join(f"{v[i]:.4f} ({e[i]:.4f}) at step {s:g}" for s, (v, e) in truths.items())
            print(f"  d/d {leaf}: {both}", flush=True)
        rows: dict[str, Any] = {}
        for estimator, (runs, play) in estimators(setting, size).items():
            play(point)
            (each, errors), cpu = seconds(functools.partial(play, point))
            rows[estimator] = {
                leaf: row(each[:, i], errors[i], runs, cpu, (truth[0][i], truth[1][i]))
                for i, leaf in enumerate(setting.space.leaves)
            }
            show(estimator, rows[estimator])
        found = {
            "values": setting.space.values(0, point),
            "reference": {
                leaf: {f"step {s:g}": [v[i], e[i]] for s, (v, e) in truths.items()}
                for i, leaf in enumerate(setting.space.leaves)
            },
            "reference_seeds": reference_seeds,
            "estimators": rows,
        }
        keep(f"slopes/{name}", where, found)


def show(estimator: str, leaves: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints the rows of an estimator."""
    for leaf, r in leaves.items():
        runs = r["runs_for_10_percent"]
        needed = "biased" if runs is None else f"{runs:.0f} runs, {r['cpu_s_for_10_percent']:.1f} CPU s"
        print(
            f"  {estimator:<24} {leaf:<18} {r['estimate']:9.4f} ({r['error']:.4f})  bias {r['bias']:8.4f} ({r['bias_error']:.4f})"
            f" = {100 * r['bias_share']:6.0f} %  sd/run {r['sd_per_run']:8.3f}  {r['cpu_ms_per_run']:.2f} ms/run  for 10 %: {needed}",
            flush=True,
        )


# The ascent.


def adam(
    setting: Setting, slope: Callable[[np.ndarray, int], np.ndarray], start: np.ndarray, steps: int, rate: float = 0.1
) -> Mapping[str, Any]:
    """Adam in the box, whose rate falls to zero along half a cosine."""
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, steps))
    point: Any = np.asarray(start, np.float32)
    state = optimizer.init(point)
    for number in range(steps):
        change, state = optimizer.update(-np.asarray(slope(np.asarray(point), number), np.float32), state, point)
        point = np.clip(point + np.asarray(change), 0.0, 1.0)
    return setting.space.values(0, point)


def ascending(kind: str, option: float, seeds: int) -> Callable[..., Mapping[str, Any]]:
    """A search by Adam on an estimator.

    Args:
      kind: of the estimator. option: its step. seeds: of a step.
    """

    def find(setting: Setting, start: np.ndarray, runs: int, key: int) -> Mapping[str, Any]:
        number, rng = len(setting.space.leaves), np.random.default_rng(key)

        def slope(point: np.ndarray, at: int) -> np.ndarray:
            span = range(at * seeds, (at + 1) * seeds)
            # The ends stay in the box.
            inside = np.clip(point, option, 1 - option)
            if kind == "differences":
                return by_axes(setting, inside, option, span, key).mean(0)
            if kind == "smoothing":
                return by_smoothing(setting, inside, option, number, span, key, rng).mean((0, 1))
            return by_derivative(setting, kind, point, span, key, seeds).mean(0)

        a_step = seeds * (2 * number if kind in ("differences", "smoothing") else 1)
        return adam(setting, slope, start, runs // a_step)

    return find


def by_improve(setting: Setting, start: np.ndarray, runs: int, key: int) -> Mapping[str, Any]:
    """`tune.improve` as in `search_study.py`, from a start of ours."""
    policy = tune.replace(setting.task.policy, {n: np.float32(v) for n, v in setting.space.values(0, start).items()})
    return search_study.by_gradient(setting.task._replace(policy=policy), runs, key)


def by_cmaes(setting: Setting, start: np.ndarray, runs: int, key: int) -> Mapping[str, Any]:
    """CMA-ES, whose start is the centre."""
    return search_study.by_search(strategy=tune.CMAES(size=8), seeds=4)(setting.task, runs, key)


ASCENTS = {
    "Adam, differences .1": ascending("differences", 0.1, 2),
    "CMA-ES, 8 x 4 seeds": by_cmaes,
    "Adam, pathwise": ascending("pathwise", 0.0, 16),
    "Adam, score": ascending("score", 0.0, 16),
    "Adam, differences .05": ascending("differences", 0.05, 2),
    "Adam, smoothing .1": ascending("smoothing", 0.1, 2),
    "Adam, explored": ascending("explored", 0.0, 16),
    "improve": by_improve,
}


def ascent(name: str, repeats: int, runs: int, only: str, first_key: int) -> None:
    """Prints what each search finds, from the centre of the box and from the policy as it is, and keeps it unless other keys are tried."""
    setting = Setting.of(name)
    policy = setting.task.policy
    starts = {
        "centre": setting.point(None),
        "poor": setting.point({n: float(getattr(policy, n)) for n in setting.task.leaves}),
    }
    for search, find in ASCENTS.items():
        if not search.startswith(only) or (find is by_improve and name != "c2mabv"):
            continue
        for start, point in starts.items():
            if find is by_cmaes and start != "centre":
                continue
            began = time.process_time()
            ends = [find(setting, point, runs, key) for key in range(first_key, first_key + repeats)]
            cpu = (time.process_time() - began) / repeats
            scores = np.asarray(SCORES[name](played(setting.task, ends, HELD_OUT, HELD_OUT_KEY)), np.float64).mean(axis=1)
            error = scores.std(ddof=1) / np.sqrt(repeats) if repeats > 1 else np.nan
            if not first_key:
                one = {"scores": scores.tolist(), "ends": [dict(e) for e in ends], "cpu_s": cpu, "runs": runs}
                keep(f"ascent/{name}", f"{search}, from the {start}", one)
            last = ", ".join(f"{leaf} {value:.3g}" for leaf, value in ends[-1].items())
            print(
                f"{search:<24} from {start:<7} {scores.mean():9.4f} ({error:.4f})  worst {scores.min():9.4f}  {cpu:5.1f} CPU s"
                f"   last: {last}",
                flush=True,
            )


# Forward or reverse.


def cost(numbers: tuple[int, ...] = (1, 4, 16), horizon: int = 200, runs: int = 64) -> None:
    """Prints and keeps CPU seconds and memory of a value and its derivative in some leaves, forward and reverse."""
    task = task_of("c2mabv")
    objective = combinatorial.relaxed_objective(PRICE)
    size = task.env.spec.num_models

    def value(x: jax.Array) -> jax.Array:
        """In leaves of one entry per model, as many as there are."""
        flat = 0.5 + jnp.concatenate([x, jnp.zeros(2 * size - x.size)])
        policy = task.policy.replace(prior_pulls=4, prior_outcome=flat[:size], prior_cost=flat[size:])
        return tune.objective_of(task.env, policy, objective, horizon=horizon, seeds=runs)({})

    def timed(function: Callable[..., Any], number: int) -> tuple[float, float]:
        compiled = compile_lanes(jax.jit(function).lower(jnp.zeros(number)), jax.default_backend())
        jax.block_until_ready(compiled(jnp.zeros(number)))
        cpu = min(seconds(lambda: jax.block_until_ready(compiled(jnp.zeros(number))))[1] for _ in range(3))
        return cpu, compiled.memory_analysis().temp_size_in_bytes / 2**20

    for number in numbers:
        functions = {"value": value, "forward": jax.jacfwd(value), "reverse": jax.grad(value)}
        found = {way: timed(function, number) for way, function in functions.items()}
        ways = "  ".join(f"{way} {cpu:6.3f} CPU s, {memory:8.2f} MiB" for way, (cpu, memory) in found.items())
        print(f"{number:3d} leaves  {ways}", flush=True)
        keep("cost", f"{number} leaves", found | {"horizon": horizon, "runs": runs})


def keep(part: str, name: str, value: Any) -> None:
    """Writes a row of a part of the results beside the others."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"jax": jax.__version__}
    found[part] = found.get(part, {}) | {name: value}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    """Prints what is asked for, and keeps it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["slopes", "ascent", "cost"])
    parser.add_argument("--task", choices=SCORES, default="c2mabv")
    parser.add_argument("--reference", type=int, default=4096, help="seeds of the reference")
    parser.add_argument("--size", type=int, default=3072, help="runs of an estimator")
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--runs", type=int, default=768)
    parser.add_argument("--first-key", type=int, default=0)
    parser.add_argument("--only", default="", help="ascents whose name begins so")
    options = parser.parse_args()
    if options.part == "cost":
        cost()
    elif options.part == "slopes":
        slopes(options.task, options.reference, options.size)
    else:
        ascent(options.task, options.repeats, options.runs, options.only, options.first_key)


if __name__ == "__main__":
    main()
