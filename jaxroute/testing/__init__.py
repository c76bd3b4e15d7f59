"""Conformance checks for a user's own policy or environment.

    from jaxroute.testing import check_policy
    check_policy(MyPolicy(width=0.5), stochastic.bernoulli([0.6, 0.4]))

Each check raises `AssertionError` with a sentence that says what is wrong and where; nothing is returned.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import checks, draws
from jaxroute.core.types import Metric, Spec
from jaxroute.engine.grid import Grid, canonical
from jaxroute.engine.rollout import build_policy, draws_key, first_state, run_streams, spec_for, stage_length_of
from jaxroute.engine.simulate import simulate, trace_count

__all__ = ["check_environment", "check_policy", "play"]


def check_policy(policy: Any, env: Any, *, horizon: int = 40, seeds: int = 24) -> None:
    """Checks that a policy keeps the protocol on an environment.

    In this order: the methods are there; `plan` and `update` return the shapes and types that `init` made, strongly typed; the
    compiled run equals a plain Python loop over rounds; a seed is the same run alone, in a batch and in blocks, and on one device
    or several; a longer horizon does not change the rounds before (give a policy whose constants follow the run's horizon one of
    its own); other luck later does not change decisions now; other values of the leaves, and a whole grid of them, cost one trace
    each.

    Args:
      policy: the policy, or a function `env -> policy`.
      env: an environment (not a grid).
      horizon: rounds of the checks; several stages if the problem has stages. seeds: number of runs.
    """
    policy, env = _arrays(policy), _arrays(env)
    built = build_policy(policy, env)
    for method in ("init", "act", "update"):
        assert callable(getattr(built, method, None)), f"{type(built).__name__} has no method {method}"
    _check_metrics(built, getattr(built, "metrics", ()))
    stage = stage_length_of(env, built)
    horizon = max(horizon, 2 * stage + 3) if stage and 2 * stage + 3 <= 1024 else horizon
    _check_fixed_point(built, env)
    _check_matches_loop(policy, env, horizon=min(horizon, 16 + (stage or 0)))
    _check_batch(policy, env, horizon, seeds)
    _check_not_anticipating(built, env, horizon=min(horizon, 12))
    if hasattr(policy, "act"):
        _check_traces(policy, env, horizon, seeds)


def check_environment(env: Any, policy: Any, *, horizon: int = 40, seeds: int = 24) -> None:
    """Checks that an environment keeps the protocol, with a policy that can play it.

    In this order: `spec` is a `Spec`, hashable, and declares every flow it needs; `step` returns the state that `init` made;
    `observe` changes nothing; `step` with the same key gives the same result; flows and gauges have the declared dimensions; then everything that
    `check_policy` checks; and no run is invalid.
    """
    policy, env = _arrays(policy), _arrays(env)
    spec = env.spec
    assert isinstance(spec, Spec), f"env.spec must be a Spec, got {checks.show(spec)}"
    assert hash(spec) == hash(env.spec) and spec == env.spec, "env.spec must be hashable and the same at every call"
    _check_metrics(env, spec.metrics)
    built = build_policy(policy, env)
    key = draws.key(0)
    state, policy_state = env.init(key), first_state(env, built, key, spec_for(env, 1))
    obs = env.observe(key, state, jnp.int32(0))
    _assert_equal(obs, env.observe(key, state, jnp.int32(0)), "observe gives another observation when called twice")
    if hasattr(built, "plan") and stage_length_of(env, built):
        policy_state = built.plan(key, policy_state, obs, jnp.int32(0))
    action, _ = built.act(key, policy_state, obs, jnp.int32(0))
    first, second = (env.step(key, state, action, jnp.int32(0)) for _ in range(2))
    _assert_equal(first, second, "step gives another result when called twice with the same key")
    flows = first[2]
    for metric in spec.metrics:
        if metric.kind == "gauge":
            values = env.gauges(state)
            assert metric.name in values, f"gauges() lacks {metric.name!r}, which spec.metrics declares"
            value = values[metric.name]
        else:
            assert metric.name in flows, f"the flows of step() lack {metric.name!r}, which spec.metrics declares"
            value = flows[metric.name]
        rank = jnp.ndim(value)
        assert rank == len(metric.dims), f"{metric.name!r} has {rank} dimensions, spec.metrics names {metric.dims}"
    for name in spec.zero_flows:
        assert name in flows, f"the flows of step() lack {name!r}, which spec.zero_flows names"
    check_policy(policy, env, horizon=horizon, seeds=seeds)
    data = simulate(env, {"policy": policy}, horizon=horizon, seeds=seeds, progress=False)
    assert bool(data["valid"].all()), f"{int((~data['valid']).sum())} of {seeds} runs are invalid: see the variable 'valid'"


def play(
    env: Any,
    policy: Any,
    *,
    horizon: int,
    rounds: int | None = None,
    seed: int = 0,
    key: int = 0,
    change_luck_from: int | None = None,
    jit: bool = False,
) -> list[dict[str, Any]]:
    """One run as a plain Python loop over the protocol: slow, and easy to step through in a debugger.

    Args:
      horizon: counted rounds of the run. rounds: how many of them are played, None for all.
      change_luck_from: draw the environment's luck from another stream from this round on.
      jit: compile each verb by itself.

    Returns:
      One dict per counted round: `obs`, `action`, `info`, `feedback`, `flows`, `env_state`, `policy_state`.
    """
    usual, changed = (run_streams(jax.random.key_data(draws.key(k)), np.asarray([seed], np.uint32)) for k in (key, key + 1))
    streams = {k: np.asarray(v)[:, 0] for k, v in usual.items()}
    other = np.asarray(changed["env"])[:, 0]
    if not hasattr(env, "step"):
        env = env(draws_key(streams["instance"]))
    env, policy = _arrays(env), build_policy(_arrays(policy), _arrays(env))
    verb = jax.jit if jit else lambda function: function
    observe, step, act, update = verb(env.observe), verb(env.step), verb(policy.act), verb(policy.update)
    stage = stage_length_of(env, policy)
    plan = verb(policy.plan) if stage else None
    env_state = env.init(draws_key(streams["env_init"]))
    policy_state = first_state(env, policy, draws_key(streams["policy_init"]), spec_for(env, horizon))
    played = []
    for number in range(env.spec.free_rounds + (horizon if rounds is None else rounds)):
        t = jnp.int32(number)
        luck = other if change_luck_from is not None and number >= change_luck_from else streams["env"]
        k_env = draws.fold_in(draws_key(luck), t)
        k_plan, k_act, k_update = (draws.fold_in(draws_key(streams[name]), t) for name in ("plan", "act", "update"))
        obs = observe(k_env, env_state, t)
        if plan and stage and number % stage == 0:
            policy_state = plan(k_plan, policy_state, obs, t)
        action, info = act(k_act, policy_state, obs, t)
        env_state, feedback, flows = step(k_env, env_state, action, t)
        policy_state = update(k_update, policy_state, obs, action, feedback, t)
        played.append(
            {
                "obs": obs,
                "action": action,
                "info": info,
                "feedback": feedback,
                "flows": flows,
                "env_state": env_state,
                "policy_state": policy_state,
            }
        )
    return played[env.spec.free_rounds :]


def _arrays(value: Any) -> Any:
    """An environment or policy with its leaves on the device; a function as it is."""
    return value if jax.tree_util.all_leaves([value]) else jax.tree.map(jnp.asarray, canonical(value))


def _check_metrics(owner, metrics) -> None:
    for metric in metrics:
        assert isinstance(metric, Metric), (
            f"{type(owner).__name__}.metrics must hold Metric objects, got {checks.show(metric)}"
        )
    names = [m.name for m in metrics]
    assert len(set(names)) == len(names), f"{type(owner).__name__} declares a metric twice: {sorted(names)}"


def _types(tree) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path), jax.typeof(jnp.asarray(leaf)).strip_weak_type()) for path, leaf in leaves]


def _assert_same_types(before, after, what: str) -> None:
    same = jax.tree.structure(before) == jax.tree.structure(after)
    assert same, f"{what} returns a state of another structure than init made"
    for (name, old), (_, new) in zip(_types(before), _types(after), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype), (
            f"{what} changes the state's leaf {name} from {old} to {new}"
        )


def _assert_equal(a, b, message: str) -> None:
    for (path, x), (_, y) in zip(*(jax.tree_util.tree_flatten_with_path(v)[0] for v in (a, b)), strict=True):
        same = np.array_equal(np.asarray(x), np.asarray(y), equal_nan=jnp.issubdtype(jnp.asarray(x).dtype, jnp.inexact))
        assert same, f"{message}: leaf {jax.tree_util.keystr(path) or '(root)'}"


def _check_fixed_point(policy, env) -> None:
    key, t = draws.key(0), jnp.int32(0)
    state, env_state = first_state(env, policy, key, spec_for(env, 1)), env.init(key)
    obs = env.observe(key, env_state, t)
    planned = state
    if hasattr(policy, "plan") and stage_length_of(env, policy):
        planned = policy.plan(key, state, obs, t)
        _assert_same_types(state, planned, "plan")
    action, info = policy.act(key, planned, obs, t)
    assert isinstance(info, dict), f"act must return (action, info) with info a dict, got {checks.show(info)}"
    next_env_state, feedback, _ = env.step(key, env_state, action, t)
    _assert_same_types(env_state, next_env_state, "step")
    _assert_same_types(state, policy.update(key, planned, obs, action, feedback, t), "update")
    for metric in getattr(policy, "metrics", ()):
        values = policy.gauges(state) if metric.kind == "gauge" else info
        place = "gauges()" if metric.kind == "gauge" else "the Info of act"
        assert metric.name in values, f"{place} lacks {metric.name!r}, which metrics declares"


def _flow_names(env) -> list[str]:
    return [m.name for m in env.spec.metrics if m.kind != "gauge" and not m.dims]


def _simulate(policy, env, rounds: int, **options):
    half = max(1, rounds // 2)
    return simulate(env, {"policy": policy}, **{"horizon": 2 * half, "record_every": half, "progress": False, **options})


def _check_matches_loop(policy, env, horizon: int) -> None:
    names = _flow_names(env)
    data = simulate(env, {"policy": policy}, horizon=horizon, seeds=[3], record_every=1, record=names, progress=False)
    for jit, length in ((False, 2), (True, horizon)):
        rounds = play(env, policy, horizon=horizon, rounds=length, seed=3, jit=jit)
        for metric in env.spec.metrics:
            if metric.name not in names:
                continue
            flow = np.cumsum([float(r["flows"][metric.name]) for r in rounds])
            curve = data[metric.name].values[0, 0, :length]
            expected = flow / np.arange(1, length + 1) if metric.kind == "average" else flow
            wrong = np.flatnonzero(~(np.abs(curve - expected) <= 1e-4 * np.maximum(np.abs(expected), 1.0)))
            assert not len(wrong), (
                f"{metric.name!r} of the compiled run differs from the plain loop from round {wrong[0] + 1} on: "
                f"{curve[wrong[0]]:g} against {expected[wrong[0]]:g}"
            )


def _assert_same_curves(got, expected, message: str) -> None:
    for name, curve in got.data_vars.items():
        if "time" in curve.dims:
            same = np.array_equal(curve.values, expected[name].values, equal_nan=True)
            assert same, f"{name!r} {message}"


def _check_batch(policy, env, horizon: int, seeds: int) -> None:
    whole = _simulate(policy, env, horizon, seeds=seeds, block=32 * len(jax.local_devices()))
    blocks = _simulate(policy, env, horizon, seeds=seeds, block=16)
    alone = _simulate(policy, env, horizon, seeds=[seeds // 2], block=16)
    _assert_same_curves(blocks, whole, f"of a seed played in blocks of 16 differs from the same seed in a batch of {seeds}")
    _assert_same_curves(
        alone, whole.sel(seed=[seeds // 2]), f"of a seed played alone differs from the same seed in a batch of {seeds}"
    )
    if len(jax.local_devices()) > 1:
        one = _simulate(policy, env, horizon, seeds=seeds, devices=jax.local_devices()[:1])
        _assert_same_curves(one, whole, "of a seed played on one device differs from the same seed on several")
    half = max(1, horizon // 2)
    short = _simulate(policy, env, horizon, seeds=seeds, block=16, horizon=half)
    _assert_same_curves(short, whole.isel(time=[0]), f"of the first {half} rounds depends on how many rounds follow")


def _check_not_anticipating(policy, env, horizon: int) -> None:
    change = horizon // 2
    usual = play(env, policy, horizon=horizon, seed=5, jit=True)
    other = play(env, policy, horizon=horizon, seed=5, change_luck_from=change + env.spec.free_rounds, jit=True)
    for number in range(change):
        message = f"the decision of round {number} depends on luck of round {change} or later"
        _assert_equal(usual[number]["action"], other[number]["action"], message)


def _check_traces(policy, env, horizon: int, seeds: int) -> None:
    values = canonical(policy)
    if not any(np.issubdtype(leaf.dtype, np.floating) for leaf in jax.tree.leaves(values)):
        return

    def scaled(factor):
        return jax.tree.map(lambda x: x * x.dtype.type(factor) if np.issubdtype(x.dtype, np.floating) else x, values)

    def shifted(amount):
        """Slightly smaller leaves, or larger ones where the policy's own check does not allow smaller."""
        try:
            getattr(scaled(1 - amount), "check", lambda: None)()
        except ValueError:
            return scaled(1 + amount)
        return scaled(1 - amount)

    def traced(one):
        before = trace_count()
        _simulate(one, env, horizon, seeds=seeds, block=16)
        return trace_count() - before

    count = traced(shifted(1e-3))
    name = type(policy).__name__
    assert count == 0, f"other values of the leaves of {name} cost {count} more traces; are leaves used as static values?"
    count = traced(Grid({"setting": [0, 1, 2, 3]}, [shifted(1e-3 * i) for i in range(4)], name))
    assert count <= 1, f"a grid of four settings of {name} cost {count} traces"
