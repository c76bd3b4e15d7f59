"""Checks the behaviour of a policy by simulation, which takes seconds: compiled, in batches, in grids, and against a plain Python loop."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import draws
from jaxroute.core.protocols import build_policy, is_policy, stage_length_of
from jaxroute.core.quick import quick_jit
from jaxroute.engine import reference
from jaxroute.engine.compiling import trace_count
from jaxroute.engine.execution import Execution
from jaxroute.engine.grid import Grid, canonical
from jaxroute.engine.rounds import run_streams
from jaxroute.engine.simulate import simulate


def check_behaviour(policy: Any, env: Any, *, horizon: int = 40, seeds: int = 24) -> None:
    """Checks, by simulation, that a policy behaves on an environment as the engine expects, after `check_structure`.

    The compiled run must equal a plain Python loop over rounds, whose states contain no NaN. No run may be invalid. A seed must give the same run
    alone, in a batch, in a batch computed 16 seeds at a time, and on one device or several. A longer horizon must not change earlier rounds (fix the
    horizon of a policy whose constants depend on it). Other draws of the environment from some round on must not change earlier decisions. Changed
    values of the policy's fields must need no new trace, and a grid of four settings a single trace. Arguments are those of `check_policy`.

    Raises `AssertionError` if a check fails.
    """
    policy, env = on_device(policy), on_device(env)
    built = build_policy(policy, env)
    stage = stage_length_of(env, built)
    horizon = max(horizon, 2 * stage + 3) if stage and 2 * stage + 3 <= 1024 else horizon
    name = type(built).__name__
    _check_matches_loop(name, policy, env, horizon=min(horizon, 16 + (stage or 0)))
    _check_batch(name, policy, env, horizon, seeds)
    _check_not_anticipating(name, built, env, horizon=min(horizon, 12))
    if is_policy(policy):
        _check_traces(name, policy, env, horizon, seeds)


def _simulate(policy, env, rounds: int, **options):
    half = max(1, rounds // 2)
    return simulate(env, {"policy": policy}, **{"horizon": 2 * half, "record_every": half, "progress": False, **options})


def _check_matches_loop(name: str, policy, env, horizon: int) -> None:
    metrics = [m for m in env.spec.metrics if m.kind != "gauge" and not m.dims]
    names, rounds = [m.name for m in metrics], list[dict[str, Any]]()
    data = simulate(env, {"policy": policy}, horizon=horizon, seeds=[3], record_every=1, record=names, progress=False)
    for jit, length in ((False, 2), (True, horizon)):
        rounds = run_eagerly(env, policy, horizon=horizon, rounds=length, seed=3, jit=jit)
        for metric in metrics:
            flow = np.cumsum([float(r["flows"][metric.name]) for r in rounds])
            curve = data[metric.name].values[0, 0, :length]
            expected = flow / np.arange(1, length + 1) if metric.kind == "average" else flow
            wrong = np.flatnonzero(~(np.abs(curve - expected) <= 1e-4 * np.maximum(np.abs(expected), 1.0)))
            assert not len(wrong), (
                f"{name}: {metric.name!r} of the compiled run differs from the plain loop from round {wrong[0] + 1} on: "
                f"{curve[wrong[0]]:g} against {expected[wrong[0]]:g}"
            )
    for number, values in enumerate(rounds):
        for path, leaf in jax.tree_util.tree_flatten_with_path(values["policy_state"])[0]:
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                where = f"the state's array {jax.tree_util.keystr(path)}" if path else "its state"
                assert not np.isnan(np.asarray(leaf)).any(), f"{name} has NaN in {where} after round {number}"


def _check_batch(name: str, policy, env, horizon: int, seeds: int) -> None:
    whole = _simulate(policy, env, horizon, seeds=seeds, execution=Execution(block=32 * len(jax.local_devices())))
    wrong = int((~whole["valid"]).sum())
    assert not wrong, (
        f"{wrong} of {whole['valid'].size} runs are invalid: a value is not finite, or a flow that must be zero is not (such as 'illegal', "
        "which counts decisions that there are not); a warning of `simulate` names the first"
    )

    def check(expected, message, seeds: Any = seeds, execution=None, **options):
        data = _simulate(policy, env, horizon, seeds=seeds, execution=execution or Execution(block=16), **options)
        for metric, curve in data.data_vars.items():
            same = "time" not in curve.dims or np.array_equal(curve.values, expected[metric].values, equal_nan=True)
            assert same, f"{name}: {metric!r} {message}"

    batch = f"differs from the same seed in a batch of {seeds:,}"
    check(whole, f"of a seed simulated in blocks of 16 {batch}")
    check(whole.sel(seed=[seeds // 2]), f"of a seed simulated alone {batch}", [seeds // 2])
    if len(jax.local_devices()) > 1:
        one = Execution(devices=jax.local_devices()[:1])
        check(whole, "of a seed simulated on one device differs from the same seed on several", execution=one)
    half = max(1, horizon // 2)
    check(whole.isel(time=[0]), f"of the first {half} rounds depends on how many rounds follow", horizon=half)


def _check_not_anticipating(name: str, policy, env, horizon: int) -> None:
    change = horizon // 2
    usual = run_eagerly(env, policy, horizon=horizon, seed=5, jit=True)
    other = run_eagerly(env, policy, horizon=horizon, seed=5, change_draws_from=change + env.spec.free_rounds, jit=True)
    for number in range(change):
        message = f"{name}: the decision of round {number} depends on draws of round {change} or later"
        chex.assert_trees_all_equal(usual[number]["action"], other[number]["action"], custom_message=message)


def _check_traces(name: str, policy, env, horizon: int, seeds: int) -> None:
    leaves, structure = jax.tree.flatten(canonical(policy))
    if not any(np.issubdtype(leaf.dtype, np.floating) for leaf in leaves):
        return

    def allowed(changed):
        try:
            getattr(structure.unflatten(changed), "check", lambda: None)()
        except ValueError:
            return False
        return True

    def shifted(amount):
        changed = list(leaves)
        for i, x in enumerate(leaves):
            if np.issubdtype(x.dtype, np.floating):
                ways = [[*changed[:i], x * x.dtype.type(factor), *changed[i + 1 :]] for factor in (1 - amount, 1 + amount)]
                changed = next(filter(allowed, ways), changed)
        return structure.unflatten(changed)

    def traced(one):
        before = trace_count()
        _simulate(one, env, horizon, seeds=seeds, execution=Execution(block=16))
        return trace_count() - before

    count = traced(shifted(1e-3))
    assert count == 0, f"other values of the fields of {name} cost {count} more traces; are fields used as static values?"
    count = traced(Grid({"setting": [0, 1, 2, 3]}, [shifted(1e-3 * i) for i in range(4)], name))
    assert count <= 1, f"a grid of four settings of {name} cost {count} traces"


def run_eagerly(
    env: Any,
    policy: Any,
    *,
    horizon: int,
    rounds: int | None = None,
    seed: int = 0,
    root_seed: int = 0,
    change_draws_from: int | None = None,
    jit: bool = False,
) -> list[dict[str, Any]]:
    """Simulates one run in a plain Python loop over the methods of environment and policy, which a debugger can step through.

    Args:
      env: an environment, or a sampler `key -> Environment`.
      policy: the policy, or a function `env -> policy`.
      horizon: number of counted rounds of the run; `env.spec.free_rounds` further rounds come first and are not counted.
      rounds: number of counted rounds to simulate, None for all.
      seed: seed of the run.
      root_seed: seed from which all random draws derive.
      change_draws_from: index of the round from which the environment uses different random draws; None for never.
      jit: whether to compile the round; its numbers are then those of `simulate`, bit by bit.

    Returns:
      One dict per counted round: `obs`, `action`, the dict `info` of `act`, `feedback`, the dict `flows` of `step`, `env_state`, `policy_state`.
    """
    roots, seeds = (root_seed, root_seed + 1), np.asarray([seed], np.uint32)
    usual, others = (run_streams(jax.random.key_data(draws.key(root)), seeds) for root in roots)
    keys, other = (reference.keys_of({name: words[:, 0] for name, words in one.items()}) for one in (usual, others))
    env, policy, states = reference.first_states(on_device(env), on_device(policy), keys, horizon)
    stage, history = stage_length_of(env, policy), list[dict[str, Any]]()
    simulate_round = [functools.partial(reference.one_round, env, policy, begins=begins) for begins in (False, True)]
    if jit:
        simulate_round = [quick_jit(one, often=True) for one in simulate_round]
    for number in range(env.spec.free_rounds + (horizon if rounds is None else rounds)):
        changed = {"env": other["env"]} if change_draws_from is not None and number >= change_draws_from else {}
        begins = bool(stage) and number % (stage or 1) == 0
        states, values = simulate_round[begins](keys | changed, states, jnp.int32(number))
        history.append({**values, "env_state": states[0], "policy_state": states[1]})
    return history[env.spec.free_rounds :]


def on_device(value: Any) -> Any:
    """Converts the arrays of an environment or policy to arrays on the device; returns a function unchanged."""
    return value if jax.tree_util.all_leaves([value]) else jax.tree.map(jnp.asarray, canonical(value))
