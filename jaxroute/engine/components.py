"""Environment and policies of a simulation: checked, as grids, and cut into variants that one program each simulates."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.core import Tracer

from jaxroute.core import checks, draws
from jaxroute.core.code import code_of, python
from jaxroute.core.description import describe
from jaxroute.core.protocols import (
    ENVIRONMENT_METHODS,
    ENVIRONMENT_OPTIONS,
    POLICY_METHODS,
    POLICY_OPTIONS,
    AnyEnvironment,
    AnyPolicy,
    PolicyOf,
    Sampler,
    check_suits,
    check_values,
    cost_hint,
    first_state,
    has_plan,
    is_environment,
    is_policy,
    missing_methods,
    misspelt,
    stage_length_of,
)
from jaxroute.core.rewards import AssumptionWarning, assumed_by
from jaxroute.core.types import CostHint, Spec
from jaxroute.engine.grid import FunctionGrid, Grid, places_of, show_place
from jaxroute.engine.rounds import made_for, spec_for
from jaxroute.engine.sharing import shared_axes

# Types of `env` and of a policy in a call of `simulate`.
EnvironmentLike: TypeAlias = AnyEnvironment | Grid | Sampler
PolicyLike: TypeAlias = AnyPolicy | Grid | PolicyOf
Policies: TypeAlias = PolicyLike | Sequence[PolicyLike] | Mapping[str, PolicyLike]

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

    def start(self, horizon: int) -> Any:
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
    """

    env: Grid
    policies: dict[str, Grid]
    variants: list[Variant]
    axes: dict[str, np.ndarray]

    @property
    def spec(self) -> Spec:
        """What the environment declares; its variants differ in nothing that is recorded."""
        return self.variants[0].spec

    @property
    def static_axes(self) -> set[str]:
        """Axes along which programs differ."""
        return {axis for variant in self.variants for axis in variant.position}

    @functools.cached_property
    def shared_axes(self) -> tuple[str, ...]:
        """Axes whose settings share most of a run's state."""
        return shared_axes([variant.grids for variant in self.variants], self.static_axes)

    def first(self, policy: str) -> Variant:
        """First variant of a policy."""
        return next(one for one in self.variants if one.policy == policy)

    def variant(self, policy: str, place: Mapping[str, Any]) -> Variant:
        """Variant of a policy at a position by axis, or at a tile of positions."""
        own = (one for one in self.variants if one.policy == policy)
        return next(one for one in own if all(int(np.ravel(place[axis])[0]) == at for axis, at in one.position.items()))

    def axes_of(self, policy: str) -> list[str]:
        """Axes along which the runs of a policy differ, in order."""
        return [axis for axis in self.axes if axis in self.env.axes or axis in self.policies[policy].axes]

    def starting_otherwise(self, horizon: int, other: int) -> set[str]:
        """Policies whose first state depends on the horizon: a run of one horizon is no beginning of a run of the other."""
        return {one.policy for one in self.variants if one.start(horizon) != one.start(other)}

    def settings(self) -> dict[str, Any]:
        """Description of problem, environment and policies, as plain JSON."""
        policies = {name: describe(policy) for name, policy in self.policies.items()}
        return {"problem": problem_of(self.variants[0].example[0]), "environment": describe(self.env), "policies": policies}


def refuse_tracing(env: EnvironmentLike, policies: Policies) -> None:
    """`ValueError` inside `jit`, `vmap` or `grad`: `simulate` compiles and maps by itself, and its results are on the host."""
    # Under `jit` a new key is traced, too; under the others only mapped or differentiated values.
    leaves = [*jax.tree.leaves((env, policies)), draws.key(0)]
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise ValueError(
            "simulate must be called outside jit, vmap and grad: it compiles and maps over seeds and settings (jaxroute.grid) by itself, and "
            "its result is on the host; jaxroute.tune has gradients of simulated metrics"
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
            _attributed(owner, check_values, one)
    variants = [one for name, policy in grids.items() for one in _variants(name, env_grid, policy, horizon)]
    for variant in variants:
        _check_variant(variant, variants[0].spec)
    _warn_horizon(horizon, owners)
    _warn_assumptions(variants)
    return Components(env_grid, grids, variants, _axes(env_grid, grids))


def problem_of(env: AnyEnvironment) -> str:
    """Name of the problem that an environment belongs to: its folder, or its module outside jaxroute."""
    parts = type(env).__module__.split(".")
    return parts[parts.index("problems") + 1] if "problems" in parts[:-1] else parts[-1]


def env_settings(env: EnvironmentLike, num_instances: int | None = None) -> Grid:
    """The argument `env` as a grid.

    Raises:
      ValueError: it is no environment, grid or sampler.
    """
    if num_instances is not None and (isinstance(env, Grid) or is_environment(env)):
        raise ValueError(
            "num_instances needs a sampler `key -> Environment` as env; for given environments use jaxroute.instances"
        )
    if isinstance(env, Grid):
        return env
    _refuse_class("env", env)
    if is_environment(env):
        return _single("env", env, ENVIRONMENT_METHODS)
    if num_instances is None and callable(env) and not jax.tree_util.all_leaves([env]):
        return Grid({}, [env], type(env).__name__)  # A sampler with leaves of its own.
    if callable(env):
        return FunctionGrid(env, None if num_instances is None else checks.whole("num_instances", num_instances))
    raise ValueError(f"env must have the methods init, observe and step, or be a grid or a function, got {checks.show(env)}")


def policy_settings(owner: str, policy: PolicyLike) -> Grid:
    """A policy of `simulate` as a grid.

    Args:
      owner: name of the argument for errors.
      policy: as for `simulate`.

    Raises:
      ValueError: it is no policy, grid or function.
    """
    if isinstance(policy, Grid):
        return policy
    _refuse_class(owner, policy)
    if is_policy(policy):
        return _single(owner, policy, POLICY_METHODS)
    if callable(policy):
        return FunctionGrid(policy)
    raise ValueError(
        f"{owner} must have the methods init, act and update, or be a grid or a function, got {checks.show(policy)}"
    )


def example_of(name: str, env: Grid, policy: Grid) -> tuple[AnyEnvironment, AnyPolicy]:
    """One concrete environment and policy of some settings.

    Raises:
      ValueError: a function returns something else.
    """
    made = env.example if is_environment(env.example) else _sampled(env)
    if not is_environment(made):
        raise ValueError(f"env must return an environment when called with a key, got {checks.show(made)}")
    if not is_policy(policy.example):
        _attributed(f"policy {name!r}", checks.takes, "a function", policy.example, "env")
    built = _attributed(f"policy {name!r}", made_for, made, policy.example)
    protocols = (
        ("env", made, ENVIRONMENT_METHODS, ENVIRONMENT_OPTIONS),
        (f"policy {name!r}", built, POLICY_METHODS, POLICY_OPTIONS),
    )
    for owner, value, methods, options in protocols:
        if missing := missing_methods(value, methods):
            raise ValueError(f"{owner}: {missing}")
        for wrong, meant in misspelt(value, (*methods, *options)):
            checks.warn(f"{owner} has {wrong!r}, which nothing calls; is {meant!r} meant?")
    return made, built


def _attributed(owner: str, check: Any, *args: Any) -> Any:
    """Value of a call whose `ValueError` is to name the owner of the values."""
    try:
        return check(*args)
    except ValueError as error:
        raise ValueError(f"{owner}: {error}") from None


def _refuse_class(owner: str, value: Any) -> None:
    if isinstance(value, type):
        raise ValueError(f"{owner} is the class {value.__name__}; pass an instance, for example {value.__name__}(...)")


def _single(owner: str, value: Any, methods: tuple[str, ...]) -> Grid:
    """A grid of one setting."""
    if missing := missing_methods(value, methods):
        raise ValueError(f"{owner}: {missing}")
    if jax.tree_util.all_leaves([value]):
        raise ValueError(f"{owner} must be a pytree: decorate {type(value).__name__} with flax.struct.dataclass")
    return Grid({}, [value], type(value).__name__)


def _sampled(env: Grid) -> Any:
    """First environment of a sampler."""
    name = env.name.split(".")[-1]
    remedy = f"for one environment call it: env={name}(...)"
    try:
        checks.takes(f"env, the function {name},", env.example, "key")
    except ValueError as error:
        raise ValueError(f"{error}; {remedy}") from None
    try:
        return env.example(draws.key(0))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"env is the function {name}, which was called with a key, as a sampler is, and failed: {str(error).splitlines()[0]}; {remedy}"
        ) from error


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
            _attributed(f"policy {variant.policy!r}", check_values, one)
        _attributed(f"policy {variant.policy!r}", check_suits, one, variant.spec)
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
            given, assumed = {one.rewards(): None for one in envs}, {assumed_by(one): None for one in policies}
            texts = (one.missed(rewards) for rewards in given if rewards for one in assumed)
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
