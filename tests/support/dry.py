"""The engine without compiling and playing: what a simulation would record, from the abstract trace of one round.

Everything before and after the compiled call is the engine's own: the arguments are checked, settings and records are made, the result has
the names, dimensions, coordinates and attributes of a real one. Its numbers are made up.
"""

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from every_experiment import EXPERIMENTS
from studies import cascade as cascade_study

from jaxroute.core.attributes import encoded
from jaxroute.core.protocols import build_policy, is_environment, metrics_of
from jaxroute.core.types import Metric
from jaxroute.data import RoutingTable
from jaxroute.engine import programs, recording, simulate
from jaxroute.engine.grid import Grid
from jaxroute.engine.layout import Layout
from jaxroute.engine.request import Setup
from jaxroute.engine.rounds import Record, draws_key, one_run, run_streams
from jaxroute.experiments import queueing
from jaxroute.problems import cascade, service
from jaxroute.problems.cascade.sources import rows
from jaxroute.problems.combinatorial import instances
from jaxroute.problems.service import sources as service_sources

# Experiments that play a user's own table.
NEEDS_TABLE = ("staged/table", "combinatorial/table", "service/table", "queueing/table")

# Settings that make an experiment quicker to trace and change nothing that its claims look at: fewer features of prompts.
SMALLER = {f"queueing/{name}": {"dim": 16} for name in ("figure-3", "figure-6", "figure-7", "contrastive")}

# Shapes by structure of what was traced, and whether it is a metric.
_traced: dict[Any, dict[str, tuple[Any, bool]]] = {}


def trace_round(env: Grid, policy: Grid, record: Record, horizon: int) -> dict[str, Any]:
    """Traces one round as the engine plays it (start, plan, round, reading). Returns the shapes of what a run records of it.

    Everything that environment and policy declare is read, whether it is recorded or not.

    Args:
      env: settings of an environment, or a sampler.
      policy: settings of a policy, or a function `env -> policy`.
      record: what is recorded.
      horizon: counted rounds of the run.

    Returns:
      Shapes by name, as `rollout` records them of one run.
    """
    leaves = tuple(
        [jax.ShapeDtypeStruct(leaf.shape[len(varies) :], leaf.dtype) for leaf, varies in zip(grid.leaves, grid.leaf_axes)]
        for grid in (env, policy)
    )
    types = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(leaves))
    key = (env.structure, policy.structure, types, record.probes, horizon)
    if key not in _traced:
        declared: dict[str, Metric] = {}

        def play(leaves, root, seeds, t):
            one_env, one_policy = env.build(leaves[0]), policy.build(leaves[1])
            everything = _everything_declared(one_env, one_policy, record)
            declared.update({m.name: m for m in everything.metrics})
            rounds = one_run(one_env, one_policy, run_streams(root, seeds), horizon, everything)
            one, words = jax.tree.map(lambda x: x[..., 0], (rounds.instance, rounds.words))
            states = begun = rounds.start(one, words)
            if rounds.stage_length:
                states = rounds.plan(one, words, states, t)
            states, sums = rounds.round(one, words, states, t)
            assert jax.tree.map(jnp.shape, states) == jax.tree.map(jnp.shape, begun)
            return {**sums, **rounds.read(one, words, states, t)}

        words, seeds, t = (jax.ShapeDtypeStruct(s, d) for s, d in (((2,), "uint32"), ((1,), "uint32"), ((), "int32")))
        shapes = jax.eval_shape(play, leaves, words, seeds, t)
        for name, metric in declared.items():
            assert len(shapes[name].shape) == len(metric.dims), f"{name} has the shape {shapes[name].shape}"
        _traced[key] = {name: (shape, name in declared) for name, shape in shapes.items()}
    recorded = {metric.name for metric in record.metrics}
    return {name: shape for name, (shape, metric) in _traced[key].items() if not metric or name in recorded}


def _everything_declared(env: Any, policy: Any, record: Record) -> Record:
    """Extends the record to all metrics that the policy and the environment (or what a sampler draws) declare."""

    def players(words: jax.Array) -> tuple[Any, Any]:
        drawn = env(draws_key(words))
        return drawn, build_policy(policy, drawn)

    if is_environment(env):
        policy = build_policy(policy, env)
    else:
        env, policy = jax.eval_shape(players, jax.ShapeDtypeStruct((2,), "uint32"))
    of_env, of_policy = _by_kind(env.spec.metrics), _by_kind(metrics_of(policy))
    return record._replace(flows=of_env[0], env_gauges=of_env[1], info=of_policy[0], policy_gauges=of_policy[1])


def _by_kind(metrics: Sequence[Metric]) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
    """Splits metrics into those that are summed over rounds and those that are read at the end."""
    gauges = tuple(m for m in metrics if m.kind == "gauge")
    return tuple(m for m in metrics if m.kind != "gauge"), gauges


def _declared(name: str, env: Any, policy: Any) -> dict[str, dict[str, tuple[int, ...]]]:
    """Replaces the engine's trace of a round by what is declared, which `trace_round` checks later."""
    del name
    kinds = ("flows", "env_gauges", "info", "policy_gauges")
    metrics = (*_by_kind(env.spec.metrics), *_by_kind(metrics_of(policy)))
    return {kind: {m.name: (1,) * len(m.dims) for m in some} for kind, some in zip(kinds, metrics, strict=True)}


def _shapes(block: programs.Block) -> dict[str, tuple[int, ...]]:
    """Replaces `Block.shapes` by shapes from the trace of one round."""
    env, policy = block.grids
    record, horizon, *_ = block.static
    return {name: out.shape for name, out in trace_round(env, policy, record, horizon).items()}


def _numbers(
    block: programs.Block, tile: Mapping[str, int], seeds: np.ndarray, resumed: Any = None
) -> tuple[dict[str, np.ndarray], float]:
    """Replaces `Block.run` by made-up numbers that differ from setting to setting. No run is invalid."""
    del tile, resumed
    record, horizon, *_ = block.static
    sizes = tuple(block.layout.tile[axis] for axis in block.axes)
    runs = (*sizes, len(seeds), -(-horizon // record.every))
    setting = 1.0 + np.arange(np.prod(sizes, dtype=int)).reshape(sizes)
    increments = {}
    for name, shape in block.shapes().items():
        each = np.zeros_like(setting) if name.startswith(("zero/", "nan/")) else setting
        each = each.reshape(sizes + (1,) * (len(runs) + len(shape) - len(sizes)))
        increments[name] = np.broadcast_to(each, (*runs, *shape))
    return increments, 0.0


def _one_tile(setup: Setup, needs: Any) -> Layout:
    """Replaces the layout that memory allows by a single call for everything."""
    del needs
    return Layout(len(setup.sampling.seeds), {axis: len(values) for axis, values in setup.components.axes.items()})


@contextlib.contextmanager
def dry_engine() -> Iterator[None]:
    """Makes `simulate` trace every policy and play none, inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "shapes_of_round", _declared)
        patch.setattr(programs.Block, "shapes", _shapes)
        patch.setattr(programs.Block, "run", _numbers)
        patch.setattr(simulate, "choose_layout", _one_tile)
        patch.setattr(simulate, "compiler", contextlib.nullcontext)
        patch.setattr(simulate, "compile_blocks", lambda blocks, pool, progress: None)
        yield


@contextlib.contextmanager
def cheap_training() -> Iterator[None]:
    """A context in which what experiments fit before they play is not fitted: nothing depends on it but numbers.

    RouterDC is not trained, benchmarks of services are averages of fewer requests, the lists of the replay are not
    learned and its groups are those of one start, the
    best sets of models are not searched, the evaluators of the offline study are zero, and the head of the prompts' features is the
    identity.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.RouterDC, "of", classmethod(_untrained_router))
        patch.setattr(service_sources, "_SAMPLE", 1 << 10)
        patch.setattr(cascade.Frugal, "tuned", classmethod(lambda cls, env: cls.of(env, 0.5)))
        patch.setattr(instances, "best_set", _any_set)
        patch.setattr(
            cascade.Frugal, "fit", classmethod(lambda cls, scores, *more, **options: _first_model(cls, scores, options))
        )
        patch.setattr(rows, "_RESTARTS", 1)
        patch.setattr(cascade_study, "reward_pairs", _no_pairs)
        patch.setattr(cascade_study, "fit_glm", lambda features, rewards, link: np.zeros(features.shape[-1], np.float32))
        patch.setattr(queueing, "fit_projection", lambda features, probability, **sizes: lambda pool: pool)
        yield


def _untrained_router(kind: type, env: Any, training: int = 0) -> Any:
    del training
    return kind(encoder=np.zeros((env.spec.num_features, 16)), experts=np.zeros((env.spec.num_models, 16)))


def _first_model(kind: type, scores: np.ndarray, options: dict[str, Any]) -> Any:
    number = np.shape(scores)[1]
    return kind(threshold=np.full(number, -np.inf, np.float32), order=np.arange(number, dtype=np.float32), **options)


def _any_set(reward: Any, mean: np.ndarray, cost: np.ndarray, budget: Any, size: Any, *more: Any, groups: Any = None) -> Any:
    del reward, cost, budget, more, groups
    return np.arange(len(mean)) < np.sum(size), 1.0


def _no_pairs(env: Any, number: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    del number
    return np.zeros((samples, 1, env.spec.feature_dim)), np.zeros((samples, 1))


@functools.cache
def table_file() -> str:
    """Writes a small table of scores, costs and features that stands for a user's own, and returns its path."""
    rng = np.random.default_rng(0)
    scores = (rng.random((90, 5)) < [0.3, 0.5, 0.6, 0.7, 0.8]).astype(float)
    costs = np.tile([1e-4, 2e-4, 4e-4, 8e-4, 16e-4], (90, 1))
    folder = tempfile.mkdtemp(prefix="jaxroute-table-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "table.npz")
    RoutingTable(scores, costs, tuple("abcde"), features=rng.normal(size=(90, 4))).save(path)
    return path


@functools.cache
def dry_results(name: str, seeds: int = 8) -> dict[str, xr.Dataset]:
    """Results of an experiment by case, at its full horizon: every policy is traced, none is played, the numbers are made up.

    Args:
      name: of the experiment; one that needs a user's table gets a small one.
      seeds: of every case.
    """
    experiment = EXPERIMENTS[name]
    changes = {"data": table_file()} if name in NEEDS_TABLE else SMALLER.get(name, {})
    results = {}
    with cheap_training(), dry_engine():
        for case in experiment.cases:
            env = case.build(case.horizon, changes)
            results[case.name] = simulate.simulate(
                env,
                case.policies_for(env, changes),
                horizon=case.horizon,
                seeds=seeds,
                record_every=case.record_every,
                record=case.record,
                probes=case.probes,
                progress=False,
            ).assign_attrs(encoded({"experiment": name, "case_coordinates": dict(case.coordinates)}))
    return results
