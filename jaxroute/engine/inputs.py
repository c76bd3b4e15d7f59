"""What a call of `simulate` asks for: every argument checked at the boundary, and made into one form."""

import functools
import itertools
import json
import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.core import Tracer

from jaxroute import kernels
from jaxroute.core import arithmetic as exact
from jaxroute.core import checks, draws, provenance
from jaxroute.core.code import code_of, python
from jaxroute.core.description import describe, digest_of_setting
from jaxroute.core.protocols import (
    ENVIRONMENT_METHODS,
    ENVIRONMENT_OPTIONS,
    POLICY_METHODS,
    POLICY_OPTIONS,
    AnyEnvironment,
    AnyPolicy,
    PolicyOf,
    Probe,
    Sampler,
    check_suits,
    check_values,
    first_state,
    has_plan,
    is_environment,
    is_policy,
    missing_methods,
    misspelt,
    stage_length_of,
)
from jaxroute.core.provenance import fingerprint
from jaxroute.core.rewards import AssumptionWarning, assumptions_of
from jaxroute.core.types import Spec
from jaxroute.engine import recording, stopping
from jaxroute.engine.exactness import inexact_operations
from jaxroute.engine.grid import FunctionGrid, Grid, places_of, show_place
from jaxroute.engine.precision import in_64_bits
from jaxroute.engine.rounds import Record, made_for, scan_is_faster, spec_for
from jaxroute.engine.sharing import shared_axes
from jaxroute.store import runs
from jaxroute.store.cells import Request, describe_seeds
from jaxroute.store.packs import digest_of, plain

# What may be given as `env` and as a policy.
EnvironmentLike: TypeAlias = AnyEnvironment | Grid | Sampler
PolicyLike: TypeAlias = AnyPolicy | Grid | PolicyOf
Policies: TypeAlias = PolicyLike | Sequence[PolicyLike] | Mapping[str, PolicyLike]

# What stays of the runs: all of them, or their statistics.
KEPT = ("runs", "moments")


@dataclass(frozen=True)
class Part:
    """What of a policy is one program: a place along the static axes of environment and policy.

    policy: its name.
    label: the name, and where it is if there are several parts, for messages.
    place: position by static axis.
    env: settings of the environment there.
    settings: settings of the policy there.
    example: an environment and a policy as they are played, to read what they declare.
    """

    policy: str
    label: str
    place: dict[str, int]
    env: Grid
    settings: Grid
    example: tuple[AnyEnvironment, AnyPolicy]


@dataclass(frozen=True)
class Inputs:
    """A call of `simulate`, checked.

    env: the settings of the environment; a single one is a grid without axes.
    policies: the settings of each policy, by name.
    parts: the programs of each policy; one, if neither it nor the environment sweeps something static.
    records: what is recorded of each policy.
    axes: coordinates of all axes of settings.
    times: `[records]` counted rounds after which something is recorded.
    horizon: counted rounds.
    record_every: rounds between two records.
    seeds: `[R]` uint32.
    root_seed: seed of all randomness.
    block: seeds per compiled call, None for what the layout chooses.
    backend: that of an `Execution`, but "auto". chosen: whether it was. quick: whether it is compiled soon.
    arithmetic: "exact" or "fast", or "float64" in double precision.
    reason: why no kernel can be used on this machine, where kernels are wanted; else empty.
    platform: of the devices.
    keep: one of `KEPT`.
    goals: standard errors at which to stop, by metric; empty without.
    keep_states: keeps the states after the last round.
    accept_changed_code: goes on with a store that was made by other code.
    description: more attributes of the result.
    """

    env: Grid
    policies: dict[str, Grid]
    parts: dict[str, list[Part]]
    records: dict[str, Record]
    axes: dict[str, np.ndarray]
    times: np.ndarray
    horizon: int
    record_every: int
    seeds: np.ndarray
    root_seed: int
    block: int | None
    backend: str
    chosen: bool
    quick: bool
    arithmetic: str
    reason: str
    platform: str
    keep: str
    goals: dict[str, float]
    keep_states: bool
    accept_changed_code: bool
    description: dict[str, Any]

    @property
    def spec(self) -> Spec:
        """What the environment declares; of several programs that of the first: they differ in nothing that is recorded."""
        return self.every_part[0].example[0].spec

    @property
    def every_part(self) -> list[Part]:
        """The parts of all policies."""
        return list(itertools.chain.from_iterable(self.parts.values()))

    def part(self, policy: str, place: Mapping[str, Any]) -> Part:
        """The part of a policy at a place: positions by axis, of which only those along static axes matter."""
        return next(
            one for one in self.parts[policy] if all(int(np.ravel(place[axis])[0]) == at for axis, at in one.place.items())
        )

    @property
    def static_axes(self) -> set[str]:
        """Axes along which programs differ."""
        return {axis for part in self.every_part for axis in part.place}

    def backend_of(self, part: Part) -> str:
        """Returns the backend of a part: on a CPU the scan if its policy prefers it, unless the user chose a backend."""
        env, policy = part.example
        free = self.chosen and not self.quick and self.platform == "cpu"
        return "scan" if self.reason or (free and scan_is_faster(policy, spec_for(env, self.horizon))) else self.backend

    @functools.cached_property
    def shared(self) -> tuple[str, ...]:
        """Axes of settings that share most of a run's state."""
        return shared_axes([(part.env, part.settings) for part in self.every_part], self.static_axes)

    def axes_of(self, policy: str) -> list[str]:
        """Axes along which the runs of a policy differ, in order."""
        return [axis for axis in self.axes if axis in self.env.axes or axis in self.policies[policy].axes]

    def knowing_horizon(self, other: int) -> list[str]:
        """Policies that begin in another way if the horizon is another one: their runs are no beginnings of longer ones."""

        def begin(env: Any, policy: Any, horizon: int) -> Any:
            start = functools.partial(first_state, spec=spec_for(env, horizon))
            program, shape = jax.make_jaxpr(start, return_shape=True)(env, policy, draws.key(0))
            return str(program), [np.asarray(const).tobytes() for const in program.consts], jax.tree.structure(shape)

        know = [part.policy for part in self.every_part if begin(*part.example, self.horizon) != begin(*part.example, other)]
        return list(dict.fromkeys(know))

    def settings(self) -> dict[str, Any]:
        """All that decides the numbers of the result, as plain JSON. What was added later is only said where it is not the usual."""
        settings: dict[str, Any] = {
            "problem": problem_of(self.every_part[0].example[0]),
            "environment": describe(self.env),
            "policies": {name: describe(policy) for name, policy in self.policies.items()},
            "horizon": self.horizon,
            "record_every": self.record_every,
            "record": {name: describe(record) for name, record in self.records.items()},
            "root_seed": self.root_seed,
            "seeds": describe_seeds(self.seeds),
        }
        settings["arithmetic"] = f"exact {exact.VERSION}"
        if self.arithmetic != "exact" or self.inexact:  # Whoever computes it may round otherwise.
            backends = " ".join(sorted({self.backend_of(part) for part in self.every_part}))
            settings["arithmetic"] = f"{self.arithmetic} {self.platform} {backends}" + " quick" * self.quick
        if self.keep != "runs":
            settings["keep"] = self.keep
        if self.goals:
            settings["until_stderr"] = self.goals
        if self.keep_states:
            settings["keep_states"] = True
        return settings

    @functools.cached_property
    def inexact(self) -> dict[str, list[str]]:
        """Operations that are not exact, by policy; a policy of which all are exact is left out."""
        found: dict[str, list[str]] = {}
        for part in self.every_part:
            operations = inexact_operations(*part.example, self.horizon, self.records[part.policy])
            if operations:
                found[part.policy] = sorted({*found.get(part.policy, []), *operations})
        return found

    def code(self, part: Part) -> dict[str, Any]:
        """Returns the digests of the code of a policy, its environment and the probes, as plain JSON."""
        made = [one for grid in (part.env, part.settings) for one in grid.objects[:1]]
        probes = [probe for _, probe in self.records[part.policy].probes]
        return {"python": python(), "digests": code_of([*made, *part.example, *probes])}

    def request(self, with_code: bool) -> Request:
        """Returns the request of the result, without the shapes of what is recorded; `with_code`: as a store needs it."""
        settings = {**fingerprint(self.settings()), "jaxroute": provenance.versions()["jaxroute"]}
        settings = json.loads(json.dumps(settings))
        policies = list(self.policies)
        own = {part.label: self.code(part) for part in self.every_part} if with_code else {}
        digests = {label: digest_of(plain(code))[:8].hex() for label, code in own.items()}
        return Request(
            policies=policies,
            axes=self.axes,
            policy_axes={name: self.axes_of(name) for name in policies},
            seeds=self.seeds,
            times=self.times,
            variables={},
            recorded={},
            model_names=list(self.spec.model_names),
            zero_flows=list(self.spec.zero_flows),
            keep=self.keep,
            settings=settings,
            identities={name: self._identities(name, settings, digests) for name in policies},
            code={digests[label]: code for label, code in own.items()},
        )

    def _identities(self, policy: str, settings: Mapping[str, Any], codes: Mapping[str, str]) -> list[str]:
        """Digests of all that decides the numbers of a policy but the horizon and the seeds, for each of its settings; without codes empty."""
        apart = ("environment", "policies", "record", "seeds", "horizon", "keep", "keep_states", "until_stderr", "jaxroute")
        own, axes = self.policies[policy], self.axes_of(policy)
        if not codes:
            return [""] * math.prod(len(self.axes[axis]) for axis in axes)
        common = {name: value for name, value in settings.items() if name not in apart}
        common |= {"record": settings["record"][policy], "axes": [list(self.env.axes), list(own.axes)]}
        envs, players, rest = self.env.identities(), own.identities(), digest_of_setting(common)
        found = []
        for place in np.ndindex(*(len(self.axes[axis]) for axis in axes)):
            at = dict(zip(axes, place, strict=True))
            env, player = (
                int(np.ravel_multi_index([at[a] for a in g.axes], g.shape)) if g.axes else 0 for g in (self.env, own)
            )
            code = codes[self.part(policy, at).label]
            found.append(digest_of(plain([rest, envs[env], players[player]])).hex() + code)
        return found


def refuse_tracing(env: EnvironmentLike, policies: Policies) -> None:
    """`ValueError` inside `jit`, `vmap` or `grad`: `simulate` compiles and maps by itself, and its results are on the host."""
    # Under `jit` a new key is traced, too; under the others only what is mapped or differentiated.
    leaves = [*jax.tree.leaves((env, policies)), draws.key(0)]
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise ValueError(
            "simulate must be called outside jit, vmap and grad: it compiles and maps over seeds and settings (jaxroute.grid) by itself, and "
            "its result is on the host; jaxroute.tune.objective_of is differentiable"
        )


def read_inputs(
    env: EnvironmentLike,
    policies: Policies,
    *,
    horizon: int,
    seeds: int | Sequence[int],
    record_every: int | None,
    record: Sequence[str] | None,
    probes: Mapping[str, Probe] | None,
    num_instances: int | None,
    root_seed: int,
    block: int | None,
    backend: str,
    quick: bool,
    arithmetic: str,
    platform: str,
    keep: str,
    until_stderr: Mapping[str, float] | None,
    keep_states: bool,
    accept_changed_code: bool,
    description: Mapping[str, Any],
) -> Inputs:
    """Checks the arguments of `simulate`, which says what they are, for devices of a platform. Backend and block are those of an `Execution`.

    Raises:
      ValueError: an argument is out of range, a name is unknown, or environment and policy do not suit each other.
    """
    horizon = checks.whole("horizon", horizon, maximum=2**31 - 1)
    seeds = checks.whole("seeds", seeds) if isinstance(seeds, float) and seeds.is_integer() else seeds
    number = _number_of_seeds(seeds)
    if record_every is None:
        record_every = max(1, horizon // 100)
    record_every = min(checks.whole("record_every", record_every), horizon)
    if quick and platform != "cpu":
        raise ValueError(
            f"compile='quick' is for CPUs, got devices of the platform {platform!r}; compile='full' is as quick there"
        )
    checks.one_of("keep", keep, KEPT)
    if keep_states and (keep != "runs" or backend == "reference"):
        raise ValueError(
            f"keep_states needs keep='runs' and another backend than 'reference', got keep={keep!r} and backend={backend!r}"
        )
    named = _named(policies)
    env_grid = env_settings(env, num_instances)
    policy_grids = {name: policy_settings(f"policy {name!r}", policy) for name, policy in named.items()}
    _check_values(env_grid, policy_grids)
    parts = {name: _parts(name, env_grid, policy) for name, policy in policy_grids.items()}
    _check_players(parts, horizon)
    _warn_horizon(horizon, env_grid, policy_grids)
    _warn_assumptions(parts)
    records = _records(parts, record, record_every, {} if probes is None else probes)
    axes = _setting_axes(env_grid, policy_grids, records)
    times = np.unique(np.append(np.arange(record_every, horizon + 1, record_every), horizon))
    if keep == "runs":  # Before anything that takes longer with more seeds.
        spec = next(iter(parts.values()))[0].example[0].spec
        most = max(recording.numbers_per_record(one, spec) - len(one.zero_flows) for one in records.values())
        runs.check_runs(most * len(times) * len(named) * math.prod(len(values) for values in axes.values()), number)
    asked = Inputs(
        env=env_grid,
        policies=policy_grids,
        parts=parts,
        records=records,
        axes=axes,
        times=times,
        horizon=horizon,
        record_every=record_every,
        seeds=_seed_list(seeds),
        root_seed=checks.root_seed(root_seed),
        block=block,
        backend=backend,
        chosen=backend == "auto",
        quick=quick,
        arithmetic=_arithmetic(arithmetic, platform, backend),
        reason="",
        platform=platform,
        keep=keep,
        goals=stopping.goals(until_stderr, recording.recorded_metrics(records)),
        keep_states=keep_states,
        accept_changed_code=accept_changed_code,
        description=dict(description),
    )
    if asked.chosen:  # Nobody has it yet; a copy would look for shared axes again.
        object.__setattr__(asked, "backend", _fastest(asked))
    if asked.backend == "kernel" and not (quick or in_64_bits()) and (reason := no_kernels(platform)):
        object.__setattr__(asked, "reason", reason)
        if asked.chosen:
            object.__setattr__(asked, "backend", "scan")
        same = " with the same numbers" if platform == "cpu" else ""
        checks.warn(f"no kernel can be used here, the scan runs instead{same}, mostly more slowly: {reason}")
    return asked


def _arithmetic(asked: str, platform: str, backend: str) -> str:
    """The arithmetic on a platform.

    Raises:
      ValueError: the fast one is asked for on a CPU, or the exact one of the scan on a GPU.
    """
    if in_64_bits():
        return "float64"
    if asked == "fast" and platform == "cpu":
        raise ValueError("arithmetic='fast' is for GPUs, got devices of the platform 'cpu', where 'exact' is the only one")
    if asked == "exact" and platform != "cpu" and backend == "scan":
        raise ValueError("arithmetic='exact' on a GPU is that of kernels, got backend='scan'")
    return asked if asked != "auto" else "exact" if platform == "cpu" else "fast"


def no_kernels(platform: str) -> str | None:
    """Returns why this machine cannot use kernels, with the remedy; None if it can."""
    if platform not in ("cpu", "gpu"):
        return f"kernels are for CPUs and NVIDIA's GPUs, not for the platform {platform!r}"
    return kernels.trial(platform)


def problem_of(env: AnyEnvironment) -> str:
    """Name of the problem an environment belongs to: its folder, or its module outside jaxroute."""
    parts = type(env).__module__.split(".")
    return parts[parts.index("problems") + 1] if "problems" in parts[:-1] else parts[-1]


def env_settings(env: EnvironmentLike, num_instances: int | None = None) -> Grid:
    """What was given as `env`, as a grid.

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


def policy_settings(what: str, policy: PolicyLike) -> Grid:
    """What was given as a policy, as a grid.

    Args:
      what: how errors call it.
      policy: as for `simulate`.

    Raises:
      ValueError: it is no policy, grid or function.
    """
    if isinstance(policy, Grid):
        return policy
    _refuse_class(what, policy)
    if is_policy(policy):
        return _single(what, policy, POLICY_METHODS)
    if callable(policy):
        return FunctionGrid(policy)
    raise ValueError(
        f"{what} must have the methods init, act and update, or be a grid or a function, got {checks.show(policy)}"
    )


def _refuse_class(what: str, value: Any) -> None:
    if isinstance(value, type):
        raise ValueError(f"{what} is the class {value.__name__}; pass an instance, for example {value.__name__}(...)")


def _single(what: str, value: Any, methods: tuple[str, ...]) -> Grid:
    """A grid of one setting."""
    missing = missing_methods(value, methods)
    if missing:
        raise ValueError(f"{what}: {missing}")
    if jax.tree_util.all_leaves([value]):
        raise ValueError(f"{what} must be a pytree: decorate {type(value).__name__} with flax.struct.dataclass")
    return Grid({}, [value], type(value).__name__)


def example(name: str, env: Grid, policy: Grid) -> tuple[AnyEnvironment, AnyPolicy]:
    """One concrete environment and policy, to read what they declare.

    Raises:
      ValueError: a function does not return what it should.
    """
    made = env.example if is_environment(env.example) else _sampled(env)
    if not is_environment(made):
        raise ValueError(f"env must return an environment when called with a key, got {checks.show(made)}")
    try:
        if not is_policy(policy.example):
            checks.takes(f"policy {name!r}, a function,", policy.example, "env")
        built = made_for(made, policy.example)
    except ValueError as error:
        raise ValueError(f"policy {name!r}: {error}") from None
    protocols = (
        ("env", made, ENVIRONMENT_METHODS, ENVIRONMENT_OPTIONS),
        (f"policy {name!r}", built, POLICY_METHODS, POLICY_OPTIONS),
    )
    for what, value, methods, options in protocols:
        missing = missing_methods(value, methods)
        if missing:
            raise ValueError(f"{what}: {missing}")
        for wrong, meant in misspelt(value, (*methods, *options)):
            checks.warn(f"{what} has {wrong!r}, which nothing calls; is {meant!r} meant?")
    return made, built


def _sampled(env: Grid) -> Any:
    """The first environment of a sampler."""
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


def _fastest(asked: Inputs) -> str:
    """The fastest backend for most policies, of those that are at hand."""
    if in_64_bits():
        return "scan"
    if asked.platform != "cpu":
        return "kernel"
    if asked.shared:  # What settings share a kernel would compute for each.
        return "scan"
    if asked.quick:
        return "kernel" if kernels.compiler() else "scan"
    return "kernel"


def _number_of_seeds(seeds: int | Sequence[int]) -> int:
    """Returns the number of seeds without listing them, if possible."""
    if checks.is_integer(seeds):
        number = checks.count("seeds", seeds)
    else:
        number = len(seeds) if isinstance(seeds, Sized) else 1
    most = min(2**32, provenance.memory_limit(jax.local_devices(backend="cpu")[0]) // 40)
    if number > most:
        raise ValueError(f"seeds must be at most {most:,} on this machine (40 bytes for each), got {number:,}")
    return number


def _seed_list(seeds: int | Sequence[int]) -> np.ndarray:
    if checks.is_integer(seeds):
        return np.arange(seeds, dtype=np.uint32)
    try:
        values = np.arange(seeds.start, seeds.stop, seeds.step) if isinstance(seeds, range) else np.asarray([*seeds])  # type: ignore[misc]
    except TypeError:
        raise ValueError(f"seeds must be a number of seeds or a list of them, got {checks.show(seeds)}") from None
    if not values.size or not np.issubdtype(values.dtype, np.integer) or values.ndim != 1:
        raise ValueError(f"seeds must be a non-empty list of whole numbers, got {checks.show(seeds)}")
    if values.min() < 0 or values.max() >= 2**32:
        raise ValueError(f"seeds must be from 0 to 2**32 - 1, got {values.min()} to {values.max()}")
    if len(np.unique(values)) < len(values):
        raise ValueError("seeds must differ from each other: equal seeds are equal runs")
    return values.astype(np.uint32)


def _parts(name: str, env: Grid, policy: Grid) -> list[Part]:
    """The programs of a policy."""
    parts: list[Part] = []
    for number, place in enumerate(places_of((env, policy))):
        where = "".join(f", {text}" for text in show_place(place, env.axes | policy.axes))
        if any(part.label == f"{name}{where}" for part in parts):  # Functions, for example, that have the same name.
            where += f" ({number})"
        settings = env.part(place), policy.part(place)
        parts.append(Part(name, f"{name}{where}", place, *settings, example(f"{name}{where}", *settings)))
    return parts


# What of a `Spec` a result has once, whatever the program.
_COMMON = ("num_models", "model_names", "free_rounds", "metrics", "zero_flows", "overflow_flow")


def _records(
    parts: Mapping[str, Sequence[Part]], record: Sequence[str] | None, every: int, probes: Mapping[str, Probe]
) -> dict[str, Record]:
    """What is recorded of each policy, the same of each of its programs."""
    labelled = {part.label: part for several in parts.values() for part in several}
    first = next(iter(labelled.values())).example[0].spec
    for label, part in labelled.items():
        spec = part.example[0].spec
        for name in _COMMON if part.place else ():
            if getattr(spec, name) != getattr(first, name):
                raise ValueError(
                    f"env of {label!r} has spec.{name} {checks.show(getattr(spec, name))}, the first setting {checks.show(getattr(first, name))}; "
                    "such environments have results of their own: play them in runs of their own"
                )
    records = recording.make_records({label: part.example for label, part in labelled.items()}, record, every, probes)
    for name, several in parts.items():
        for part in several[1:]:
            if records[part.label] != records[several[0].label]:
                raise ValueError(
                    f"policy {name!r} has other metrics at {part.label} than at {several[0].label}; record those that both have"
                )
    return {name: records[several[0].label] for name, several in parts.items()}


def _check_values(env: Grid, policies: Mapping[str, Grid]) -> None:
    """Runs the optional checks of everything that the user passed in."""
    for what, grid in [("env", env), *((f"policy {n!r}", p) for n, p in policies.items())]:
        for one in grid.objects:
            try:
                check_values(one)
            except ValueError as error:
                raise ValueError(f"{what}: {error}") from None


def _check_players(parts: Mapping[str, Sequence[Part]], horizon: int) -> None:
    """The conditions between environment and policies."""
    for name, part in ((name, part) for name, several in parts.items() for part in several):
        example_env, example_policy = part.example
        if not isinstance(example_env.spec, Spec):
            raise ValueError(f"env.spec must be a Spec, got {checks.show(example_env.spec)}")
        given = is_policy(part.settings.example)
        for one in part.settings.objects if given else [example_policy]:
            try:
                if not given:
                    check_values(one)
                check_suits(one, spec_for(example_env, horizon))
            except ValueError as error:
                raise ValueError(f"policy {name!r}: {error}") from None
        if has_plan(example_policy) and stage_length_of(example_env, example_policy) is None:
            raise ValueError(
                f"policy {name!r} plans by stage, but neither it nor the environment has a stage_length: the policy belongs to another problem, or "
                "the environment must say how long its stages are"
            )


def _setting_axes(env: Grid, policies: Mapping[str, Grid], records: Mapping[str, Record]) -> dict[str, np.ndarray]:
    axes = dict(env.axes)
    for policy in policies.values():
        for name, coordinates in policy.axes.items():
            if name in env.axes:
                raise ValueError(f"axis {name!r} is swept by env and by a policy; give one of them another name")
            if name in axes and not np.array_equal(axes[name], coordinates):
                raise ValueError(f"two policies sweep {name!r} over different values; give one axis another name")
            axes[name] = coordinates
    taken = set(recording.RESERVED)
    for record in records.values():
        taken |= {m.name for m in record.metrics}
        taken |= {*record.zero_flows, *dict(record.probes)}
    for name in axes:
        if name in taken:
            raise ValueError(f"a grid axis may not be called {name!r}: the result has a dimension or variable of that name")
    return axes


def _warn_assumptions(parts: Mapping[str, Sequence[Part]]) -> None:
    """One warning for all policies that assume other rewards than the environment gives; see `jaxroute.core.rewards`."""
    missed: dict[str, None] = {}
    for name, part in ((name, part) for name, several in parts.items() for part in several):
        example_env, example_policy = part.example
        policies = part.settings.objects if is_policy(part.settings.example) else [example_policy]
        envs = [env for env in part.env.objects if hasattr(env, "rewards")] or [example_env]
        if hasattr(example_env, "rewards"):
            given, assumed = {env.rewards(): None for env in envs}, {assumptions_of(one): None for one in policies}
            texts = (one.violations(rewards) for rewards in given if rewards for one in assumed)
            missed |= {f"policy {name!r} {text}": None for text in itertools.islice(filter(None, texts), 1)}
    if missed:
        checks.warn("\n".join(missed), AssumptionWarning)


def _warn_horizon(horizon: int, env: Grid, policies: Mapping[str, Grid]) -> None:
    """Budgets over a whole horizon refer to a leaf of that name: it should be the run's."""
    for what, grid in (("env", env), *((f"policy {n!r}", p) for n, p in policies.items())):
        leaves: list[Any] = [one.horizon for one in grid.objects if getattr(one, "horizon", None) is not None]
        made_for = {int(np.asarray(leaf)) for leaf in leaves if np.ndim(leaf) == 0}
        if made_for and made_for != {horizon}:
            checks.warn(
                f"{what} was made for a horizon of {', '.join(map(str, sorted(made_for)))} rounds, the run has {horizon}: what it does "
                f"with the horizon (a total budget, say) refers to the former; make it with horizon={horizon}"
            )
