"""Candidates as they are played: all of one structure as a grid whose leaves are stacked alike, whatever their values, so that one program
plays every generation."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax import struct

from jaxroute.core import checks
from jaxroute.core.protocols import is_environment, is_policy, metrics_of
from jaxroute.core.types import Metric
from jaxroute.core.wrapper import Wrapper
from jaxroute.engine import inputs
from jaxroute.engine.grid import Grid
from jaxroute.engine.simulate import simulate
from jaxroute.tune.gradient import leaf, replace

_AXIS = "candidate"

# Values at the horizon `[candidate, seed]` by metric, and which runs are valid `[candidate, seed]`.
Played = tuple[dict[str, np.ndarray], np.ndarray]


@struct.dataclass
class _Together(Wrapper):
    """An environment that brings its policy along, for a search in leaves of both."""

    policy: Any


def _policy_of(env: Any) -> Any:
    return env.policy


class Makers:
    """Who makes environment and policy of a candidate from its leaves.

    Args:
      env: an environment or sampler, or a function of some leaves that returns an environment; one with `**more` takes all leaves.
      policy: a policy whose fields are the leaves, or a function (or class) of some leaves that returns a policy; where all leaves are the
        environment's, whatever `simulate` takes.
      leaves: their names.

    Raises:
      ValueError: nobody takes a leaf, or it is no leaf of the policy.
    """

    def __init__(self, env: Any, policy: Any, leaves: Sequence[str]):
        if isinstance(env, Grid) or isinstance(policy, Grid):
            raise ValueError("env and policy must be single ones, and leaves what is swept, got a Grid")
        self.env, self.policy = env, policy
        makes_env = callable(env) and (isinstance(env, type) or not is_environment(env))
        self.of_env = [name for name in leaves if makes_env and _has(env, name)]
        if is_policy(policy) and not isinstance(policy, type):
            self.of_policy = [name for name in leaves if name not in self.of_env]
            for name in self.of_policy:
                _field(policy, name)
        else:
            if not callable(policy):
                raise ValueError(f"policy must be a policy, or a function that makes one, got {checks.show(policy)}")
            self.of_policy = [name for name in leaves if _has(policy, name)]
            for name in leaves:
                if name not in (*self.of_env, *self.of_policy):
                    checks.one_of("leaves", name, [*_parameters(policy), *(_parameters(env) if makes_env else ())])

    def make(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """Environment and policy of a candidate, as `simulate` takes them.

        Raises:
          ValueError: they are not made from these values, or are none.
        """
        where = ", ".join(f"{name}={checks.show(value)}" for name, value in values.items())
        try:
            env = self.env(**{n: values[n] for n in self.of_env}) if self.of_env else self.env
            if not self.of_policy:
                return env, self.policy
            own = {n: values[n] for n in self.of_policy}
            made = (
                replace(self.policy, own)
                if is_policy(self.policy) and not isinstance(self.policy, type)
                else self.policy(**own)
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"the candidate {where} cannot be made: {error}") from error
        if not is_policy(made):
            raise ValueError(f"policy must return a policy when called with {where}, got {checks.show(made)}")
        return env, made


def _parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def _has(function: Any, name: str) -> bool:
    """Whether a function takes a leaf."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _field(policy: Any, name: str) -> None:
    """`ValueError` unless a policy has this field, also in what it holds."""
    at = policy
    *parts, last = name.split(".")
    for part in parts:
        at = getattr(at, part, None)
    fields = getattr(at, "__dataclass_fields__", {})
    if last not in fields:
        checks.one_of(
            f"leaf of {type(policy).__name__}",
            name,
            [".".join([*parts, field]) for field in fields] or list(policy.__dataclass_fields__),
        )
    if fields[last].metadata.get("pytree_node", True) and hasattr(getattr(at, last), "shape"):
        leaf(policy, name)


class Players:
    """The candidates of one structure.

    Args:
      makers: who makes them.
      probes: some candidates, among which every leaf that a candidate can change does change.
    """

    def __init__(self, makers: Makers, probes: Sequence[Mapping[str, Any]]):
        self.makers = makers
        self._varying: dict[str, set[int]] = {}
        self._stacked(probes)  # So that every generation stacks what any candidate changes.

    def _stacked(self, candidates: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
        """Environment and policy of all candidates, as `simulate` takes them."""
        made = [self.makers.make(values) for values in candidates]
        envs, policies = ([pair[i] for pair in made] for i in (0, 1))
        if self.makers.of_env and self.makers.of_policy:
            together = [_Together(env, policy) for env, policy in made]
            return self._grid("both", together), _policy_of
        if self.makers.of_env:
            return self._grid("env", envs), policies[0]
        return envs[0], self._grid("policy", policies)

    def _grid(self, what: str, objects: Sequence[Any]) -> Grid:
        """A grid of objects whose leaves have an axis wherever any candidate so far has changed them."""
        made = Grid({_AXIS: range(len(objects))}, objects, type(objects[0]).__name__)
        if made.static:
            raise ValueError(
                f"{made.name} differs between candidates in a static field (a size or a choice of behaviour), or in the shape of a leaf; "
                "in a search such a leaf is a Choice"
            )
        varying = self._varying.setdefault(what, set())
        varying |= {i for i, axes in enumerate(made.leaf_axes) if axes}
        for i in varying:
            if not made.leaf_axes[i]:
                made.leaves[i] = np.repeat(made.leaves[i][None], len(objects), axis=0)
                made.leaf_axes[i] = (0,)
        return made

    def metrics(self, values: Mapping[str, Any]) -> dict[str, Metric]:
        """What can be recorded of a candidate."""
        env, policy = self.makers.make(values)
        example_env, example = inputs.example(
            "candidate", inputs.env_settings(env), inputs.policy_settings("policy", policy)
        )
        return {m.name: m for m in (*example_env.spec.metrics, *metrics_of(example))}

    def together(self, candidates: Sequence[Mapping[str, Any]], seeds: range, **options: Any) -> Played:
        """Plays all candidates on the same seeds, as one grid."""
        env, policy = self._stacked(candidates)
        return _play(env, {_AXIS: policy}, seeds, options)

    def one_by_one(self, candidates: Sequence[Mapping[str, Any]], seeds: range, **options: Any) -> Played:
        """The same by a program for one candidate, whatever their number."""
        parts = [self._stacked([values]) for values in candidates]
        if not self.makers.of_env:
            return _play(parts[0][0], {f"{i}": policy for i, (_, policy) in enumerate(parts)}, seeds, options)
        played = [_play(env, {_AXIS: policy}, seeds, options) for env, policy in parts]
        values = {name: np.concatenate([p[0][name] for p in played]) for name in played[0][0]}
        return values, np.concatenate([p[1] for p in played])


def _play(env: Any, policies: Mapping[str, Any], seeds: range, options: Mapping[str, Any]) -> Played:
    data = simulate(env, policies, seeds=list(seeds), progress=False, record_every=options["horizon"], **options).isel(
        time=-1
    )
    single = {str(n): v for n, v in data.data_vars.items() if set(v.dims) == {"policy", _AXIS, "seed"} and n != "valid"}

    def rows(array: Any) -> np.ndarray:
        return array.transpose("policy", _AXIS, "seed").values.reshape(-1, len(seeds))

    return {name: rows(v).astype(np.float64) for name, v in single.items()}, rows(data["valid"]).astype(bool)
