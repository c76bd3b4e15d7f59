"""Grids: many settings of an environment or a policy as one object.

Only the fields that differ between settings are stacked into arrays and mapped over; the other values are stored once. The code calls the numbers
and arrays among the fields "leaves", as JAX does.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pandas
from flax import struct

from jaxroute.core import checks, draws, protocols
from jaxroute.core.checks import show
from jaxroute.core.description import describe, digest_of_setting
from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, PolicyOf, Sampler, is_environment, is_policy
from jaxroute.core.types import classes_of
from jaxroute.engine.rounds import made_for

_INSTANCE_ROOT = 0x1257A9CE
_PYTREES = (
    "decorate the class with flax.struct.dataclass or jax.tree_util.register_dataclass, or derive it from equinox.Module"
)


class Grid:
    """All combinations of some settings of an environment or policy, made by `grid` or `instances`; a single one is a grid without axes.

    A leaf (a number or array in the fields) has only those axes of settings along which it differs.

    Settings that differ in a static field, or in the shape of a leaf, need separate programs. The attribute `static` names the axes along which they
    differ, and `part` returns the settings of one program. A grid with static axes has no attributes `leaves`, `leaf_axes` and `structure`.

    Attributes:
      axes: coordinates by axis name, in order.
      objects: the environments or policies of all settings; the index along the last axis changes fastest.
      name: name for messages and results.
      static: names of the axes whose settings need separate programs.
      leaves: one array for each leaf of the pytree; its first dimensions are the axes along which the leaf varies.
      leaf_axes: indices of the axes along which each leaf varies.
      structure: static part of the settings, hashable.
    """

    def __init__(self, axes: Mapping[str, Sequence[Any]], objects: Sequence[Any], name: str):
        self.axes = {key: _coordinates(values) for key, values in axes.items()}
        self.shape = tuple(len(values) for values in self.axes.values())
        self.objects = list(objects)
        self.name = name
        flat = [jax.tree.flatten(canonical(o)) for o in self.objects]
        kinds: list[Any] = []
        programs = []
        for one, (leaves, treedef) in zip(self.objects, flat, strict=True):
            kind = treedef, classes_of(one), [v.shape for v in leaves]
            kinds += [] if kind in kinds else [kind]
            programs.append(kinds.index(kind))
        which = np.asarray(programs).reshape(self.shape)
        self.static = tuple(axis for i, axis in enumerate(self.axes) if _varies(which, i))
        self._parts: dict[tuple[int, ...], Grid] = {}
        if self.static:
            return
        self.structure = flat[0][1]
        self.leaves: list[np.ndarray] = []
        self.leaf_axes: list[tuple[int, ...]] = []
        for leaf in zip(*(leaves for leaves, _ in flat), strict=True):
            stacked = np.stack(leaf).reshape(self.shape + leaf[0].shape)
            varies = tuple(i for i in range(len(self.shape)) if _varies(stacked, i))
            index = tuple(slice(None) if i in varies else 0 for i in range(len(self.shape)))
            self.leaves.append(stacked[index])
            self.leaf_axes.append(varies)

    def part(self, place: Mapping[str, int]) -> "Grid":
        """Returns the settings of one program, at an index (`place`) along each static axis, as a grid; the whole grid if no axis is static."""
        if not self.static:
            return self
        key = tuple(int(place[axis]) for axis in self.static)
        if key not in self._parts:
            at = dict(zip(self.static, key, strict=True))
            spans = [np.arange(len(v))[at.get(a, slice(None))].reshape(-1) for a, v in self.axes.items()]
            numbers = np.arange(len(self.objects)).reshape(self.shape)[np.ix_(*spans)].ravel()
            axes = {a: v[span] for (a, v), span in zip(self.axes.items(), spans, strict=True)}
            self._parts[key] = Grid(dict[str, Any](axes), [self.objects[i] for i in numbers], self.name)
        return self._parts[key]

    def tile(self, positions: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns the leaves (arrays) at the indices `positions` by axis. A leaf's first dimensions are the axes along which it varies."""
        along, pairs = [positions[axis] for axis in self.axes], zip(self.leaves, self.leaf_axes, strict=True)
        return [leaf[(*np.ix_(*(along[axis] for axis in varies)), ...)] for leaf, varies in pairs]

    def leaves_at(self, setting: Mapping[str, int]) -> list[np.ndarray]:
        """Returns the leaves (arrays) of one setting, given by its index along each axis."""
        tiles = self.tile({name: np.asarray([setting[name]]) for name in self.axes})
        return [leaf.reshape(leaf.shape[len(varies) :]) for leaf, varies in zip(tiles, self.leaf_axes, strict=True)]

    def build(self, leaves: Sequence[Any]) -> Any:
        """Returns the environment or policy of one setting from the leaves of its pytree."""
        return jax.tree.unflatten(self.structure, leaves)

    def identities(self) -> list[str]:
        """Returns a digest of each setting, in the order of `objects`, by which a store identifies its results."""
        return [digest_of_setting(describe(one)) for one in self.objects]

    @property
    def example(self) -> Any:
        return self.objects[0]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{k}: {len(v)}" for k, v in self.axes.items())
        return f"Grid({self.name}; {sizes})"

    def _repr_html_(self) -> str:
        rows = {axis: (len(values), ", ".join(map(str, values))) for axis, values in self.axes.items()}
        return pandas.DataFrame.from_dict(rows, "index", columns=["settings", self.name]).to_html()


class FunctionGrid(Grid):
    """Grid for a function that is given instead of an environment or policy: `env -> policy` (an oracle), or a sampler `key -> Environment`.

    With a `number`, a sampler draws that many environments, along the axis `instance`, which all seeds share; otherwise it draws one for each run.
    """

    def __init__(self, function: Callable[..., Any], number: int | None = None):
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.axes = {} if number is None else {"instance": np.arange(number)}
        self.static = ()
        self.shape = () if number is None else (number,)
        self.leaves = [] if number is None else [np.arange(number, dtype=np.uint32)]
        self.leaf_axes = [] if number is None else [(0,)]
        self.structure = function
        self.objects = [function]

    def build(self, leaves: Sequence[Any]) -> Any:
        if not leaves:
            return self.function
        return self.function(draws.fold_in(draws.key(_INSTANCE_ROOT), leaves[0]))

    @property
    def example(self) -> Any:
        return self.function if not self.axes else self.function(draws.key(_INSTANCE_ROOT))

    def identities(self) -> list[str]:
        text = describe(self.function)
        return [digest_of_setting([text, i]) for i in range(*self.shape)] if self.axes else [digest_of_setting(text)]


def grid(constructor: Callable[..., Any], /, **settings: Any) -> Grid:
    """Calls `constructor` for every combination of the swept settings and stacks the results.

    A list, a range or an array (of NumPy or JAX) is swept along its first dimension; any other value, a tuple for example, is passed on as it
    is. To give an array as a single value, convert it to a tuple, or bind it: `functools.partial(constructor, breaks=np.array([300, 600]))`. The
    constructor runs on the host for each setting, so that derived values (benchmarks, normalised tables) fit the setting.

    Numbers are swept in one program. Each value of a static field (sizes, choices of behaviour) is a separately compiled program, under the
    same axis of the result. States may have different sizes; recorded quantities must have one shape.

    Args:
      constructor: class or function that returns an environment or a policy.
      settings: keyword arguments of the constructor.

    Returns:
      A `Grid` with one axis per swept argument, named after it. Equal values on an axis give equal runs, and a warning.

    Example:
      >>> import jaxroute as jr
      >>> from jaxroute.problems import stochastic
      >>> jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0])
      Grid(UCB1; width: 3)

    Raises:
      ValueError: nothing is swept, an axis is empty, or the constructor refuses a setting, which is then named.
      TypeError: the constructor does not take these arguments.
    """
    if not callable(constructor):
        raise ValueError(f"constructor must be a class or function, got {show(constructor)}")
    function = getattr(constructor, "func", constructor)
    name = getattr(function, "__qualname__", type(function).__name__)
    swept = {k: _settings_of(v) for k, v in settings.items() if _is_swept(v)}
    fixed = {k: v for k, v in settings.items() if k not in swept}
    if not swept:
        raise ValueError(
            f"grid({name}, ...) needs at least one argument with several values, got {show(settings)}; only a list, a range or an array is swept"
        )
    for key, values in swept.items():
        if not values:
            raise ValueError(f"{key} must have at least one value, got an empty {type(settings[key]).__name__}")
    checks.keywords(f"grid: {name}", constructor, settings)
    for key, values in swept.items():
        coordinates = _coordinates(values)
        if coordinates.dtype.kind in "biufU" and not any(np.ndim(v) or callable(v) for v in values):
            different, counts = np.unique(coordinates, return_counts=True)
            if len(different) < len(coordinates):
                again = different[counts > 1][0].item()
                checks.warn(f"grid: {key} has {again!r} more than once; equal settings are equal runs")
    objects = []
    for values in itertools.product(*swept.values()):
        setting = dict(zip(swept, values, strict=True))
        try:
            objects.append(made := constructor(**fixed, **setting))
            if not (isinstance(made, type) or jax.tree_util.all_leaves([made])):
                check_pytree(name, made)
        except (TypeError, ValueError) as error:
            where = ", ".join(f"{key}={show(value)}" for key, value in setting.items())
            kind, hint = TypeError if isinstance(error, TypeError) else ValueError, ""
            arrays = [key for key in swept if hasattr(settings[key], "shape")]
            if arrays and (kind is TypeError or "shape" in str(error)):
                hint = f" (each value of {' and '.join(arrays)} is a setting; give an array that is one value as a tuple)"
            raise kind(f"grid: {name} at {where}: {error}{hint}") from error
    made = Grid(swept, objects, name)
    _need_components(name, objects)
    return made


def _need_components(owner: str, objects: Sequence[Any]) -> None:
    for one in objects:
        if isinstance(one, type) or not (callable(one) or hasattr(one, "init")):
            raise ValueError(f"{owner} must give environments or policies, got {show(one)}")


@checks.suggest_keywords
def instances(environments: Sequence[Any]) -> Grid:
    """Returns several environments as a grid along the axis `instance`; environments of equal structure are simulated by one program."""
    if not isinstance(environments, Iterable):
        raise ValueError(f"environments must be a list of them, got {show(environments)}")
    environments = list(environments)
    if not environments:
        raise ValueError("instances needs at least one environment, got an empty list")
    _need_components("instances", environments)
    return Grid({"instance": range(len(environments))}, environments, type(environments[0]).__name__)


def larger_settings(env: Grid, example: AnyEnvironment) -> Iterator[Grid]:
    """Yields the settings `env` with 2, 4, 8, ... times their capacity, until no run of `example`, one of the environments, can need more."""
    larger = protocols.with_double_capacity if is_environment(env.example) else _LargerSampler
    while (more := protocols.with_double_capacity(example)) is not None:
        example = more
        if isinstance(env, FunctionGrid):
            env = FunctionGrid(_LargerSampler(env.function), len(env.axes["instance"]) if env.axes else None)
        else:
            env = Grid(dict[str, Any](env.axes), [larger(one) for one in env.objects], env.name)
        yield env


@struct.dataclass
class _LargerSampler:
    """Draws an environment from `sampler` and doubles its capacity. Objects with equal samplers are equal, so that they share a compiled program."""

    sampler: Any

    def __call__(self, key: jax.Array) -> Any:
        return protocols.with_double_capacity(self.sampler(key))


def _is_swept(value: Any) -> bool:
    return isinstance(value, (list, range)) or (hasattr(value, "shape") and np.ndim(value) > 0)


def _settings_of(value: Any) -> list[Any]:
    return np.asarray(value).tolist() if hasattr(value, "shape") and np.ndim(value) > 1 else list(value)


def check_pytree(owner: str, value: Any) -> None:
    """Checks that `value`, an environment or a policy, is a pytree of numbers and arrays. Errors call it `owner`.

    Raises:
      ValueError: its class is no pytree, or a field that is not static is a function or a text.
    """
    kind = type(value).__name__
    if jax.tree_util.all_leaves([value]):
        plain = "dataclass" if dataclasses.is_dataclass(value) else "class"
        raise ValueError(f"{owner} must be a pytree, got the plain {plain} {kind}: {_PYTREES}")
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        if callable(leaf) and isinstance(value, tuple):
            raise ValueError(
                f"{owner} must be an object with methods and with numbers as fields, got {kind}, a named tuple of functions: write a class, and "
                f"{_PYTREES}"
            )
        if callable(leaf) or isinstance(leaf, (str, bytes)):
            if hasattr(value, "check"):  # The message of `check` is more precise.
                checks.attributed(owner, value.check)
            field = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(
                f"{owner}: the field {field} of {kind} must be a number or an array, or static, as flax.struct.field(pytree_node=False), "
                f"got {show(leaf)}"
            )


def canonical(tree: chex.ArrayTree) -> chex.ArrayTree:
    """Converts the leaves of a pytree to NumPy arrays of the types that JAX uses: float32 (float64 if `jax_enable_x64` is set), int32, bool."""

    def leaf(x: Any) -> np.ndarray:
        array = np.asarray(x)
        return np.asarray(array, jax.dtypes.canonicalize_dtype(array.dtype))

    return jax.tree.map(leaf, tree)


def _varies(array: np.ndarray, axis: int) -> bool:
    first = np.take(array, [0], axis=axis)
    equal_nan = np.issubdtype(array.dtype, np.inexact)
    return not np.array_equal(np.broadcast_to(first, array.shape), array, equal_nan=equal_nan)


def _coordinates(values: Sequence[Any]) -> np.ndarray:
    """Returns the coordinates of an axis with these `values`: numbers and texts themselves, functions and classes by name, others by `repr`."""
    values = list(values)
    if all(isinstance(v, (bool, int, float, np.number, str, jnp.number)) for v in values):
        return np.asarray(values)
    if all(hasattr(v, "dtype") and np.ndim(v) == 0 for v in values):
        return np.asarray([np.asarray(v).item() for v in values])
    return np.asarray([getattr(v, "__name__", None) or show(v) for v in values])


# Types of `env` and of a policy in a call of `simulate`.
EnvironmentLike: TypeAlias = AnyEnvironment | Grid | Sampler
PolicyLike: TypeAlias = AnyPolicy | Grid | PolicyOf
Policies: TypeAlias = PolicyLike | Sequence[PolicyLike] | Mapping[str, PolicyLike]


def env_settings(env: EnvironmentLike, num_instances: int | None = None) -> Grid:
    """Converts the argument `env` of `simulate` to a grid. A sampler draws `num_instances` environments (None: one for each run).

    Raises:
      ValueError: `env` is no environment, grid or sampler.
    """
    if num_instances is not None and (isinstance(env, Grid) or is_environment(env)):
        raise ValueError(
            "num_instances needs a sampler `key -> Environment` as env; for given environments use jaxroute.instances"
        )
    if isinstance(env, Grid):
        return env
    _refuse_class("env", env)
    if is_environment(env):
        return _single("env", env, protocols.ENVIRONMENT)
    if num_instances is None and callable(env) and not jax.tree_util.all_leaves([env]):
        return Grid({}, [env], type(env).__name__)  # A sampler that is itself a pytree with leaves.
    if callable(env):
        return FunctionGrid(env, None if num_instances is None else checks.whole("num_instances", num_instances))
    raise ValueError(f"env must have the methods init, observe and step, or be a grid or a function, got {checks.show(env)}")


def policy_settings(owner: str, policy: PolicyLike) -> Grid:
    """Converts a policy of `simulate`, which errors call `owner`, to a grid. Raises `ValueError` if it is no policy, grid or function."""
    if isinstance(policy, Grid):
        return policy
    _refuse_class(owner, policy)
    if is_policy(policy):
        return _single(owner, policy, protocols.POLICY)
    if callable(policy):
        return FunctionGrid(policy)
    raise ValueError(
        f"{owner} must have the methods init, act and update, or be a grid or a function, got {checks.show(policy)}"
    )


def example_of(name: str, env: Grid, policy: Grid) -> tuple[AnyEnvironment, AnyPolicy]:
    """Builds environment and policy of the first settings of two grids, and warns about misspelt methods. `name`: the policy's name in errors.

    Raises:
      ValueError: a function does not return an environment or a policy.
    """
    made = env.example if is_environment(env.example) else _sampled(env)
    if not is_environment(made):
        raise ValueError(f"env must return an environment when called with a key, got {checks.show(made)}")
    if not is_policy(policy.example):
        checks.attributed(f"policy {name!r}", checks.takes, "a function", policy.example, "env")
    built = checks.attributed(f"policy {name!r}", made_for, made, policy.example)
    for owner, value, members in (("env", made, protocols.ENVIRONMENT), (f"policy {name!r}", built, protocols.POLICY)):
        if missing := protocols.missing_methods(value, members):
            raise ValueError(f"{owner}: {missing}")
        for wrong, meant in protocols.misspelt(value, members):
            checks.warn(f"{owner} has {wrong!r}, which nothing calls; is {meant!r} meant?")
    return made, built


def _refuse_class(owner: str, value: Any) -> None:
    if isinstance(value, type):
        raise ValueError(f"{owner} is the class {value.__name__}; pass an instance, for example {value.__name__}(...)")


def _single(owner: str, value: Any, members: protocols.Members) -> Grid:
    if missing := protocols.missing_methods(value, members):
        raise ValueError(f"{owner}: {missing}")
    check_pytree(owner, value)
    return Grid({}, [value], type(value).__name__)


def _sampled(env: Grid) -> Any:
    """Returns an environment from the sampler that `env` holds, for a fixed key. If this fails, the error explains that `env` must be a sampler."""
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


@describe.register
def _(value: Grid) -> Any:
    """Describes a grid as plain JSON: by its axes and all settings or, for over 16 settings, by the first one and a digest of each."""
    if not value.axes:
        return describe(value.example)
    axes = {name: values.tolist() for name, values in value.axes.items()}
    if isinstance(value, FunctionGrid):
        return {"grid": axes, "each": describe(value.function)}
    settings = [describe(o) for o in value.objects]
    if len(settings) <= 16:
        return {"grid": axes, "settings": settings}
    return {"grid": axes, "first": settings[0], "digests": [digest_of_setting(one) for one in settings]}
