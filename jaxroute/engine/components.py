"""Environment and policies of a simulation: checked, as grids, and cut into variants that one program each simulates."""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from jaxroute.core import checks, draws
from jaxroute.core.code import code_of, python
from jaxroute.core.protocols import (
    AnyEnvironment,
    AnyPolicy,
    check_suits,
    check_values,
    cost_hint,
    first_state,
    has_plan,
    is_policy,
    stage_length_of,
)
from jaxroute.core.rewards import AssumptionWarning, assumptions_of
from jaxroute.core.types import CostHint, Spec
from jaxroute.engine.grid import (
    EnvironmentLike,
    Grid,
    Policies,
    PolicyLike,
    env_settings,
    example_of,
    places_of,
    policy_settings,
    show_place,
)
from jaxroute.engine.rounds import spec_for
from jaxroute.engine.sharing import shared_axes

# Fields of a `Spec` that are common to all variants of an environment.
_COMMON = ("num_models", "model_names", "free_rounds", "metrics", "zero_flows", "overflow_flow")


@dataclass(frozen=True)
class Variant:
    """Settings of a policy and of the environment that one program simulates.

    Attributes:
      policy: name of the policy.
      label: name for messages, with the position if the policy has several variants.
      position: position by static axis.
      grids: settings of the environment and of the policy.
      example: one concrete environment and policy.
      spec: what the environment declares, with the horizon of the run.
      hint: how expensive a round is.
    """

    policy: str
    label: str
    position: dict[str, int]
    grids: tuple[Grid, Grid]
    example: tuple[AnyEnvironment, AnyPolicy]
    spec: Spec
    hint: CostHint

    def first_state(self, horizon: int) -> Any:
        """Program of the policy's first state for a horizon, in a form that can be compared."""
        begin = functools.partial(first_state, spec=spec_for(self.example[0], horizon))
        program, shape = jax.make_jaxpr(begin, return_shape=True)(*self.example, draws.key(0))
        return str(program), [np.asarray(const).tobytes() for const in program.consts], jax.tree.structure(shape)

    def code(self, probes: Sequence[Any]) -> dict[str, Any]:
        """Digests of the code of environment, policy and probes, as plain JSON."""
        made = [one for grid in self.grids for one in grid.objects[:1]]
        return {"python": python(), "digests": code_of([*made, *self.example, *probes])}


@dataclass(frozen=True)
class Components:
    """Environment and policies of a simulation.

    Attributes:
      env: settings of the environment; a single one is a grid without axes.
      policies: settings of each policy, by name.
      variants: variants of all policies, those of a policy together.
      axes: coordinates of all axes of settings.
      policy_axes: axes along which the runs of each policy differ, in order.
    """

    env: Grid
    policies: dict[str, Grid]
    variants: list[Variant]
    axes: dict[str, np.ndarray]
    policy_axes: dict[str, list[str]]

    @property
    def spec(self) -> Spec:
        """Description of the environment; its variants do not differ in recorded quantities."""
        return self.variants[0].spec

    @property
    def static_axes(self) -> set[str]:
        """Axes along which programs differ."""
        return {axis for variant in self.variants for axis in variant.position}

    @functools.cached_property
    def shared_axes(self) -> tuple[str, ...]:
        """Axes whose settings share most of a run's state."""
        return shared_axes([variant.grids for variant in self.variants], self.static_axes)

    def variant(self, policy: str, place: Mapping[str, Any]) -> Variant:
        """Variant of a policy at a position by axis, or at a tile of positions."""
        own = (one for one in self.variants if one.policy == policy)
        return next(one for one in own if all(int(np.ravel(place[axis])[0]) == at for axis, at in one.position.items()))

    def resumable(self, stored: Iterable[int], horizon: int, every: int) -> Callable[[str], list[int]]:
        """Returns the stored horizons from which runs of a policy can be continued, largest first, as a function of its name.

        The runs of a policy whose first state depends on the horizon cannot be continued.
        """
        found = sorted((one for one in stored if one < horizon and one % every == 0), reverse=True)
        differ = {one: {v.policy for v in self.variants if v.first_state(horizon) != v.first_state(one)} for one in found}
        return lambda policy: [one for one in found if policy not in differ[one]]


def refuse_tracing(env: EnvironmentLike, policies: Policies) -> None:
    """`ValueError` inside `jit`, `vmap` or `grad`: `simulate` compiles and maps by itself, and its results are on the host."""
    # Under `jit` a new key is traced, too; under the others only mapped or differentiated values.
    leaves = [*jax.tree.leaves((env, policies)), draws.key(0)]
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise ValueError(
            "simulate must be called outside jit, vmap and grad: it compiles and maps over seeds and settings (jaxroute.grid) by itself, and "
            "its result is on the host; jaxroute.tune.objective_of is differentiable"
        )


def read_components(env: EnvironmentLike, policies: Policies, num_instances: int | None, horizon: int) -> Components:
    """Checks environment and policies of `simulate`, alone and together.

    Raises:
      ValueError: an argument is none of the types, a value is out of range, or environment and policy do not suit each other.
    """
    named = _named(policies)
    env_grid = env_settings(env, num_instances)
    grids = {name: policy_settings(f"policy {name!r}", policy) for name, policy in named.items()}
    owners = {"env": env_grid, **{f"policy {name!r}": grid for name, grid in grids.items()}}
    for owner, grid in owners.items():
        for one in grid.objects:
            checks.attributed(owner, check_values, one)
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
    """Policies by name."""
    named: dict[str, Any]
    if isinstance(policies, Mapping):
        named = dict(policies)
    elif isinstance(policies, (list, tuple)):
        named = {_policy_name(p): p for p in policies}
        if len(named) < len(policies):
            raise ValueError("policies of the same class need names: pass a dict of name to policy")
    else:
        named = {_policy_name(policies): policies}
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
    """Variants of a policy."""
    variants: list[Variant] = []
    for number, position in enumerate(places_of((env, policy))):
        label = name + "".join(f", {text}" for text in show_place(position, env.axes | policy.axes))
        if any(one.label == label for one in variants):  # Functions, for example, that have the same name.
            label += f" ({number})"
        grids = env.part(position), policy.part(position)
        example = example_of(label, *grids)
        if not isinstance(example[0].spec, Spec):
            raise ValueError(f"env.spec must be a Spec, got {checks.show(example[0].spec)}")
        spec = spec_for(example[0], horizon)
        variants.append(Variant(name, label, position, grids, example, spec, cost_hint(example[1], spec)))
    return variants


def _check_variant(variant: Variant, first: Spec) -> None:
    """Checks the conditions between environment and policy, and that all variants of the environment record the same."""
    env, policy = variant.example
    given = is_policy(variant.grids[1].example)
    for one in variant.grids[1].objects if given else [policy]:
        if not given:
            checks.attributed(f"policy {variant.policy!r}", check_values, one)
        checks.attributed(f"policy {variant.policy!r}", check_suits, one, variant.spec)
    if has_plan(policy) and stage_length_of(env, policy) is None:
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
    """Coordinates of all axes."""
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
    """Warns once about all policies that assume other rewards than the environment gives; see `jaxroute.core.rewards`."""
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
    """Warns about a field `horizon` (of a total budget, say) that is not the horizon of the run."""
    for owner, grid in owners.items():
        fields: list[Any] = [one.horizon for one in grid.objects if getattr(one, "horizon", None) is not None]
        own = {int(np.asarray(field)) for field in fields if np.ndim(field) == 0}
        if own and own != {horizon}:
            checks.warn(
                f"{owner} was made for a horizon of {', '.join(map(str, sorted(own)))} rounds, the run has {horizon}: what it does "
                f"with the horizon (a total budget, say) refers to the former; make it with horizon={horizon}"
            )
