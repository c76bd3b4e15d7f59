"""Checks the environment and the policies of a simulation, converts each to a grid of settings, and divides the settings into variants.

Settings that differ in numbers alone are simulated by one program. Settings that differ in static fields or shapes need several programs, one for
each `Variant`.
"""

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxroute.core import checks, draws, protocols
from jaxroute.core.batching.dependence import carry_dependence, which_depend
from jaxroute.core.code import code_of, python
from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, PolicyOf, is_environment, is_policy, stage_length_of
from jaxroute.core.rewards import AssumptionWarning, assumptions_of
from jaxroute.core.types import CostHint, Spec
from jaxroute.engine import reference
from jaxroute.engine.grid import EnvironmentLike, Grid, Policies, PolicyLike, env_settings, example_of, policy_settings
from jaxroute.engine.rounds import STREAMS, States, draws_key, spec_for, state_bytes, strong

# Fields of a `Spec` that are common to all variants of an environment.
_COMMON = ("num_models", "model_names", "free_rounds", "metrics", "zero_flows", "overflow_flow")
# With fewer settings, finding the axes that share state takes longer than it saves.
_FEW_SETTINGS = 5


@dataclass(frozen=True)
class Variant:
    """Settings of the environment and of one policy that a single compiled program can simulate.

    Attributes:
      policy: name of the policy.
      label: name for messages; it includes the position if the policy has several variants.
      position: index of the variant along each static axis (an axis whose settings need separate programs).
      grids: settings of the environment, and settings of the policy.
      example: one concrete environment and policy.
      spec: sizes, metrics and other static properties of the environment, with the horizon of the run.
      hint: cost of a round, estimated by the bytes of its matrices (`CostHint`).
    """

    policy: str
    label: str
    position: dict[str, int]
    grids: tuple[Grid, Grid]
    example: tuple[AnyEnvironment, AnyPolicy]
    spec: Spec
    hint: CostHint

    def first_state(self, horizon: int) -> Any:
        """Describes the program that makes the first state. If two horizons have the same one, runs of the shorter can be continued to the longer."""
        begin = functools.partial(protocols.first_state, spec=spec_for(self.example[0], horizon))
        program, shape = jax.make_jaxpr(begin, return_shape=True)(*self.example, draws.key(0))
        return str(program), [np.asarray(const).tobytes() for const in program.consts], jax.tree.structure(shape)

    def code(self, probes: Sequence[Any]) -> dict[str, Any]:
        """Returns digests of the code of the environment, the policy and the `probes` (recorded functions of the user), as plain JSON."""
        made = [one for grid in self.grids for one in grid.objects[:1]]
        return {"python": python(), "digests": code_of([*made, *self.example, *probes])}


@dataclass(frozen=True)
class Components:
    """Environment and policies of a simulation, checked and converted to grids.

    Attributes:
      env: settings of the environment; a single environment is a grid without axes.
      policies: settings of each policy, by name.
      variants: variants of all policies; the variants of one policy are neighbours.
      axes: coordinates of the settings along all axes of environment and policies, by name of the axis.
      policy_axes: for each policy, by name, the axes along which its runs differ: those of the environment and its own, in the order of `axes`.
    """

    env: Grid
    policies: dict[str, Grid]
    variants: list[Variant]
    axes: dict[str, np.ndarray]
    policy_axes: dict[str, list[str]]

    @property
    def spec(self) -> Spec:
        """Description (`Spec`) of the environment of the first variant, with the horizon of the run. All variants record the same quantities."""
        return self.variants[0].spec

    @property
    def static_axes(self) -> set[str]:
        """Names of the axes whose settings need separate programs."""
        return {axis for variant in self.variants for axis in variant.position}

    @functools.cached_property
    def shared_axes(self) -> tuple[str, ...]:
        """Names of the axes along which most of a run's state is the same at all settings, so that one call should simulate all of them."""
        return shared_axes([variant.grids for variant in self.variants], self.static_axes)

    def variant(self, policy: str, place: Mapping[str, Any]) -> Variant:
        """Returns the variant that simulates the policy of this name at `place`: indices of settings by axis, on a static axis one index."""
        own = (one for one in self.variants if one.policy == policy)
        return next(one for one in own if all(int(np.ravel(place[axis])[0]) == at for axis, at in one.position.items()))

    def resumable(self, stored: Iterable[int], horizon: int, every: int) -> Callable[[str], list[int]]:
        """Returns a function that maps a policy's name to the stored horizons from which its runs can continue, the largest first.

        Runs cannot continue if the policy's first state depends on the horizon.

        Args:
          stored: horizons of stored results.
          horizon: horizon of this simulation.
          every: rounds of a record interval; only stored horizons that are multiples of it can be continued.
        """
        found = sorted((one for one in stored if one < horizon and one % every == 0), reverse=True)
        differ = {one: {v.policy for v in self.variants if v.first_state(horizon) != v.first_state(one)} for one in found}
        return lambda policy: [one for one in found if policy not in differ[one]]


def refuse_tracing(env: EnvironmentLike, policies: Policies) -> None:
    """Raises `ValueError` if arguments of `simulate` are traced, as inside `jit`, `vmap` or `grad`: `simulate` compiles and maps by itself."""
    # Under `jit` even a new key is a traced value; under `vmap` and `grad` only mapped or differentiated values are.
    leaves = [*jax.tree.leaves((env, policies)), draws.key(0)]
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise ValueError(
            "simulate must be called outside jit, vmap and grad: it compiles and maps over seeds and settings (jaxroute.grid) by itself, and "
            "its result is on the host; jaxroute.tune.objective_of is differentiable"
        )


def read_components(env: EnvironmentLike, policies: Policies, num_instances: int | None, horizon: int) -> Components:
    """Checks the arguments of `simulate` with these names, each alone and in combination, and converts them to `Components`.

    Raises:
      ValueError: an argument has a wrong type, a value is out of range, or environment and policy do not suit each other.
    """
    named = _named(policies)
    env_grid = env_settings(env, num_instances)
    grids = {name: policy_settings(f"policy {name!r}", policy) for name, policy in named.items()}
    owners = {"env": env_grid, **{f"policy {name!r}": grid for name, grid in grids.items()}}
    for owner, grid in owners.items():
        for one in grid.objects:
            checks.attributed(owner, protocols.optional, one, "check")
    _warn_horizon(horizon, owners)
    axes = _axes(env_grid, grids)
    variants = [one for name, policy in grids.items() for one in _variants(name, env_grid, policy, horizon)]
    for variant in variants:
        _check_variant(variant, variants[0].spec)
    _warn_assumptions(variants)
    policy_axes = {
        name: [axis for axis in axes if axis in env_grid.axes or axis in grid.axes] for name, grid in grids.items()
    }
    return Components(env_grid, grids, variants, axes, policy_axes)


def _named(policies: Policies) -> dict[str, PolicyLike]:
    given: Any = policies if isinstance(policies, (Mapping, list, tuple)) else [policies]
    named: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {_policy_name(p): p for p in given}
    if len(named) < len(given):
        raise ValueError("policies of the same class need names: pass a dict of name to policy")
    if not named:
        raise ValueError("policies must hold at least one policy, got none")
    for name in named:
        if not isinstance(name, str):
            raise ValueError(f"policies must be named by strings, got {checks.show(name)}")
    return named


def _policy_name(policy: Any) -> str:
    if isinstance(policy, Grid):
        return policy.name
    return policy.__qualname__.split(".")[0] if hasattr(policy, "__qualname__") else type(policy).__name__


def _variants(name: str, env: Grid, policy: Grid, horizon: int) -> list[Variant]:
    variants: list[Variant] = []
    axes = env.axes | policy.axes
    sizes = {axis: len(axes[axis]) for axis in (*env.static, *policy.static)}
    for number, place in enumerate(np.ndindex(*sizes.values())):
        position = dict(zip(sizes, place, strict=True))
        label = name + "".join(f", {axis}={checks.show(axes[axis][at])}" for axis, at in position.items())
        if any(one.label == label for one in variants):  # For example two functions with the same name.
            label += f" ({number})"
        grids = env.part(position), policy.part(position)
        example = example_of(label, *grids)
        if not isinstance(example[0].spec, Spec):
            raise ValueError(f"env.spec must be a Spec, got {checks.show(example[0].spec)}")
        spec = spec_for(example[0], horizon)
        variants.append(Variant(name, label, position, grids, example, spec, protocols.cost_hint(example[1], spec)))
    return variants


def _check_variant(variant: Variant, first: Spec) -> None:
    """Checks that a variant's environment and policy suit each other, and that it records what `first`, the spec of the first variant, declares."""
    env, policy = variant.example
    given = is_policy(variant.grids[1].example)
    for one in variant.grids[1].objects if given else [policy]:
        if not given:
            checks.attributed(f"policy {variant.policy!r}", protocols.optional, one, "check")
        checks.attributed(f"policy {variant.policy!r}", protocols.optional, one, "check_spec", variant.spec)
    if hasattr(policy, "plan") and stage_length_of(env, policy) is None:
        raise ValueError(
            f"policy {variant.policy!r} plans by stage, but neither it nor the environment has a stage_length: the policy belongs to another "
            "problem, or the environment must say how long its stages are"
        )
    for name in _COMMON if variant.position else ():
        if getattr(variant.spec, name) != getattr(first, name):
            raise ValueError(
                f"env of {variant.label!r} has spec.{name} {checks.show(getattr(variant.spec, name))}, the first setting "
                f"{checks.show(getattr(first, name))}; such environments have separate results: simulate them in separate calls"
            )


def _axes(env: Grid, policies: Mapping[str, Grid]) -> dict[str, np.ndarray]:
    axes = dict(env.axes)
    for policy in policies.values():
        for name, coordinates in policy.axes.items():
            if name in env.axes:
                raise ValueError(f"axis {name!r} is swept by env and by a policy; give one of them another name")
            if name in axes and not np.array_equal(axes[name], coordinates):
                raise ValueError(f"two policies sweep {name!r} over different values; give one axis another name")
            axes[name] = coordinates
    return axes


def _warn_assumptions(variants: Sequence[Variant]) -> None:
    """Warns about every policy in `variants` that assumes other rewards than its environment gives (`core.rewards`), in one warning."""
    missed: dict[str, None] = {}
    for variant in variants:
        (env_grid, grid), (env, policy) = variant.grids, variant.example
        if hasattr(env, "rewards"):
            policies = grid.objects if is_policy(grid.example) else [policy]
            envs = [one for one in env_grid.objects if hasattr(one, "rewards")] or [env]
            given, assumed = {one.rewards(): None for one in envs}, {assumptions_of(one): None for one in policies}
            texts = (one.violations(rewards) for rewards in given if rewards for one in assumed)
            missed |= {f"policy {variant.policy!r} {text}": None for text in itertools.islice(filter(None, texts), 1)}
    if missed:
        checks.warn("\n".join(missed), AssumptionWarning)


def _warn_horizon(horizon: int, owners: Mapping[str, Grid]) -> None:
    """Warns if an environment or policy, given in `owners` by its name, has a field `horizon` that differs from the horizon of the run."""
    for owner, grid in owners.items():
        fields: list[Any] = [one.horizon for one in grid.objects if getattr(one, "horizon", None) is not None]
        own = {int(np.asarray(field)) for field in fields if np.ndim(field) == 0}
        if own and own != {horizon}:
            checks.warn(
                f"{owner} was made for a horizon of {', '.join(f'{n:,}' for n in sorted(own))} rounds, the run has {horizon:,}: what it does "
                f"with the horizon (a total budget, say) refers to the former; make it with horizon={horizon}"
            )


def shared_axes(pairs: Sequence[tuple[Grid, Grid]], static: Collection[str] = ()) -> tuple[str, ...]:
    """Returns the axes along which more than half of a run's state is the same at all settings, such as a predictor that all settings train alike.

    All settings along such an axis are best simulated by one compiled call, which computes the common state once.

    Args:
      pairs: settings of the environment and of a policy, for each program.
      static: axes whose settings need separate programs, which share no state.
    """
    total: dict[str, int] = {}
    unchanged: dict[str, int] = {}
    for env, policy in pairs:
        if not is_environment(env.example) or len(env.objects) * len(policy.objects) < _FEW_SETTINGS:
            continue  # A sampler has a separate environment for each run.
        for grid in (env, policy):
            for place, axis in enumerate(grid.axes):
                if axis in static:
                    continue
                swept = [[g is grid and place in varies for varies in g.leaf_axes] for g in (env, policy)]
                for size, changed in leaf_dependence(env.example, policy.example, [*swept[0], *swept[1]]):
                    total[axis] = total.get(axis, 0) + size
                    unchanged[axis] = unchanged.get(axis, 0) + size * (not changed)
    return tuple(axis for axis in total if 2 * unchanged[axis] > total[axis])


def leaf_dependence(env: AnyEnvironment, policy: AnyPolicy | PolicyOf, swept: Sequence[bool]) -> list[tuple[int, bool]]:
    """Finds out which arrays of a run's state depend on swept parameters, by following the data through a round.

    Args:
      env: environment.
      policy: policy, or a function `env -> policy`.
      swept: whether each leaf of the pytree `(env, policy)` is swept, in JAX's order of leaves.

    Returns:
      A pair for each leaf of the states `(env, policy)`: its number of bytes (0 if no round changes it), and whether it depends on a swept parameter.
    """
    leaves, structure = jax.tree.flatten((env, policy if is_policy(policy) else ()))
    shapes = [jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.canonicalize_dtype(np.asarray(x).dtype)) for x in leaves]
    word, time = jax.ShapeDtypeStruct((2,), jnp.uint32), jax.ShapeDtypeStruct((), jnp.int32)

    def components(leaves: list[Any]) -> tuple[AnyEnvironment, AnyPolicy]:
        env, given = jax.tree.unflatten(structure, leaves)
        return env, protocols.build_policy(given if is_policy(policy) else policy, env)

    def start(leaves: list[Any], words: jax.Array) -> States:
        keys = dict.fromkeys(STREAMS, draws_key(words))
        return jax.tree.map(strong, reference.first_states(*components(leaves), keys, 1)[2])

    def one_round(leaves: list[Any], states: States, words: jax.Array, t: jax.Array) -> States:
        (env, policy), keys = components(leaves), dict.fromkeys(STREAMS, draws_key(words))
        plans = hasattr(policy, "plan") and stage_length_of(env, policy)
        return jax.tree.map(strong, reference.one_round(env, policy, keys, states, t, plans)[0])

    states = jax.eval_shape(start, shapes, word)
    sizes = [state_bytes(leaf) for leaf in jax.tree.leaves(states)]
    first, step = jax.make_jaxpr(start)(shapes, word), jax.make_jaxpr(one_round)(shapes, states, word, time)
    given = step.jaxpr.invars[len(shapes) : len(shapes) + len(sizes)]
    sizes = [0 if now is then else size for size, now, then in zip(sizes, step.jaxpr.outvars, given, strict=True)]
    changed = carry_dependence(
        which_depend(first, [*swept, False]), lambda now: which_depend(step, [*swept, *now, False, False])
    )
    return list(zip(sizes, changed, strict=True))
