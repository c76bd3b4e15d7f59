"""Simulates candidate settings of a search. Those that differ only in numbers form a grid, which one compiled program simulates in each step."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax import struct

from jaxroute.core import checks
from jaxroute.core.protocols import Wrapper, is_environment, is_policy, metrics_of
from jaxroute.core.types import Metric
from jaxroute.engine import grid
from jaxroute.engine.grid import Grid
from jaxroute.engine.simulate import simulate

_AXIS = "candidate"

# A dict of metric to its values at the horizon, `[candidate, seed]`, and a flag for each run, `[candidate, seed]`: whether it is valid.
Outcomes = tuple[dict[str, np.ndarray], np.ndarray]


def replace(policy: Any, parameters: Mapping[str, Any]) -> Any:
    """Returns the policy with new values of its fields, by name; `"solver.temperature"` is the field `temperature` of its field `solver`."""
    for name, value in parameters.items():
        first, _, rest = name.partition(".")
        policy = policy.replace(**{first: replace(getattr(policy, first), {rest: value}) if rest else value})
    return policy


@struct.dataclass
class _EnvironmentWithPolicy(Wrapper):
    """Stores environment and policy in one object, for a search in hyperparameters of both."""

    policy: Any


def _policy_of(env: Any) -> Any:
    return env.policy


class CandidateFactory:
    """Makes the environment and the policy of a candidate from its hyperparameters.

    Args:
      env: an environment or sampler, or a function of some hyperparameters that returns an environment; with an argument `**more` it gets all of
        them.
      policy: a policy whose fields are the hyperparameters, or a function (or class) of some of them that returns a policy. If all hyperparameters
        belong to `env`, it is anything that `simulate` accepts as a policy.
      names: names of the hyperparameters.

    Raises:
      ValueError: a hyperparameter is neither an argument of one of the functions nor a field of the policy.
    """

    def __init__(self, env: Any, policy: Any, names: Sequence[str]):
        if isinstance(env, Grid) or isinstance(policy, Grid):
            raise ValueError("env and policy must be single ones, and parameters what is swept, got a Grid")
        self.env, self.policy = env, policy
        makes_env = callable(env) and (isinstance(env, type) or not is_environment(env))
        self.of_env = [name for name in names if makes_env and _takes(env, name)]
        self._has_fields = is_policy(policy) and not isinstance(policy, type)
        if self._has_fields:
            self.of_policy = [name for name in names if name not in self.of_env]
            for name in self.of_policy:
                _check_field(policy, name)
            return
        if not callable(policy):
            raise ValueError(f"policy must be a policy, or a function that makes one, got {checks.show(policy)}")
        self.of_policy = [name for name in names if _takes(policy, name)]
        for name in names:
            if name not in (*self.of_env, *self.of_policy):
                functions: list[Any] = [policy, *([env] if makes_env else [])]
                checks.one_of("parameters", name, [p for f in functions for p in inspect.signature(f).parameters])

    def make(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """Returns the environment and the policy of a candidate for `simulate`. Raises ValueError if they cannot be made from the values."""
        described = ", ".join(f"{name}={checks.show(value)}" for name, value in values.items())
        try:
            env = self.env(**{n: values[n] for n in self.of_env}) if self.of_env else self.env
            if not self.of_policy:
                return env, self.policy
            own = {n: values[n] for n in self.of_policy}
            policy = replace(self.policy, own) if self._has_fields else self.policy(**own)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the candidate {described} cannot be made: {error}") from error
        if not is_policy(policy):
            raise ValueError(f"policy must return a policy when called with {described}, got {checks.show(policy)}")
        return env, policy


def _takes(function: Any, name: str) -> bool:
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _check_field(policy: Any, name: str) -> None:
    """Raises ValueError unless `name`, dotted as in `replace`, is a field of the policy or of an object in it that is static or a single number."""
    owner, (*path, last) = policy, name.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    fields = getattr(owner, "__dataclass_fields__", {})
    if last not in fields:
        known = [".".join([*path, field]) for field in fields] or list(policy.__dataclass_fields__)
        checks.one_of(f"parameter of {type(policy).__name__}", name, known)
    value = getattr(owner, last)
    if fields[last].metadata.get("pytree_node", True) and getattr(value, "shape", ()):
        raise ValueError(f"parameters must name single numbers, but {name!r} is {checks.show(value)}")


class CandidateRunner:
    """Simulates the candidates of one structure (combination of choices), which `factory` makes from their hyperparameters.

    `probes` are example candidates among which every hyperparameter varies; they show which arrays of environment and policy vary with it. These
    arrays are stacked over the candidates of every generation, so that all generations run the same compiled program.
    """

    def __init__(self, factory: CandidateFactory, probes: Sequence[Mapping[str, Any]]):
        self.factory = factory
        self._varying: dict[str, set[int]] = {}
        self._stack(probes)  # All generations get the same leaves with a candidate axis, and so the same compiled program.

    def _stack(self, candidates: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
        """Returns environment and policy of all candidates for `simulate`: the one that depends on hyperparameters is a grid over the candidates.

        If both depend on hyperparameters, the result is a grid of pairs, and a function that returns the policy of a pair.
        """
        made = [self.factory.make(values) for values in candidates]
        if self.factory.of_env and self.factory.of_policy:
            both = [_EnvironmentWithPolicy(env, policy) for env, policy in made]
            return self._grid("both", both), _policy_of
        if self.factory.of_env:
            return self._grid("env", [env for env, _ in made]), made[0][1]
        return made[0][0], self._grid("policy", [policy for _, policy in made])

    def _grid(self, kind: str, objects: Sequence[Any]) -> Grid:
        """Returns a grid of `objects`. It stacks each array that differs between objects, or did so in an earlier call with this `kind`."""
        grid = Grid({_AXIS: range(len(objects))}, objects, type(objects[0]).__name__)
        if grid.static:
            what = "a static field (a size or a choice of behaviour), or in the shape of an array"
            advice = "in a search such a hyperparameter is a Choice"
            raise ValueError(f"{grid.name} differs between candidates in {what}; {advice}")
        varying = self._varying.setdefault(kind, set())
        varying |= {i for i, axes in enumerate(grid.leaf_axes) if axes}
        for i in varying:
            if not grid.leaf_axes[i]:
                grid.leaves[i] = np.repeat(grid.leaves[i][None], len(objects), axis=0)
                grid.leaf_axes[i] = (0,)
        return grid

    def metrics(self, values: Mapping[str, Any]) -> dict[str, Metric]:
        """Returns the metrics that environment and policy of the candidate with the hyperparameters `values` can record, by name."""
        env, policy = self.factory.make(values)
        example_env, example = grid.example_of("candidate", grid.env_settings(env), grid.policy_settings("policy", policy))
        return {m.name: m for m in (*example_env.spec.metrics, *metrics_of(example))}

    def run_grid(self, candidates: Sequence[Mapping[str, Any]], seeds: range, **options: Any) -> Outcomes:
        """Simulates all candidates on the same seeds as one grid; each number of candidates is compiled separately. `options` are for `simulate`."""
        env, policy = self._stack(candidates)
        return _simulate(env, {_AXIS: policy}, seeds, options)

    def run_each(self, candidates: Sequence[Mapping[str, Any]], seeds: range, **options: Any) -> Outcomes:
        """Simulates candidates one by one on the same seeds; one compiled program serves any number of them. `options` are those of `simulate`."""
        parts = [self._stack([values]) for values in candidates]
        if not self.factory.of_env:
            return _simulate(parts[0][0], {f"{i}": policy for i, (_, policy) in enumerate(parts)}, seeds, options)
        outcomes = [_simulate(env, {_AXIS: policy}, seeds, options) for env, policy in parts]
        values = {name: np.concatenate([own[name] for own, _ in outcomes]) for name in outcomes[0][0]}
        return values, np.concatenate([valid for _, valid in outcomes])


def _simulate(env: Any, policies: Mapping[str, Any], seeds: range, options: Mapping[str, Any]) -> Outcomes:
    sampling = {"seeds": list(seeds), "record_every": options["horizon"]}
    data = simulate(env, policies, progress=False, **sampling, **options).isel(time=-1)
    single = {str(n): v for n, v in data.data_vars.items() if set(v.dims) == {"policy", _AXIS, "seed"} and n != "valid"}

    def rows(array: Any) -> np.ndarray:
        return array.transpose("policy", _AXIS, "seed").values.reshape(-1, len(seeds))

    return {name: rows(v).astype(np.float64) for name, v in single.items()}, rows(data["valid"]).astype(bool)
