"""The two protocols, and the only place that asks which of their optional methods somebody has.

Everything is written for one run of one setting; batching belongs to the engine. Environments and policies are frozen pytrees
(`flax.struct.dataclass`): leaves are numbers one might sweep, static fields are sizes and structural choices.

Rules that all problems need:

- `observe` is pure and changes nothing; `observe` and `step` of a round get the same key, so that the environment can draw the
  same luck twice. At a stage start `observe` is called once more, with the same key.
- The environment draws the outcome of every model and reveals the chosen one. Its key does not depend on the policy, so all
  policies and settings meet the same luck.
- An action may be a decision rule: a pytree with a pure `run(outputs)` that the environment calls on the outputs it has drawn.
- What `update` must remember of a decision travels in the action, in fields the environment ignores.
- Flows are the round's values (scalars, or vectors with the dimensions named in the `Metric`), summed by the engine. Gauges are
  functions of a state, read at record times, after the last round of the record interval and before the next decision.
- `Info` is a dict of arrays that a person may want to see. It is free when nobody records it.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar, cast

import jax

from jaxroute.core.checks import show
from jaxroute.core.types import CostHint, Metric, Spec, planned_state

Flows: TypeAlias = Mapping[str, Any]
Info: TypeAlias = Mapping[str, Any]

State = TypeVar("State")
# An environment gives observations and feedback and takes actions; a policy the other way round.
GivenObs = TypeVar("GivenObs", covariant=True)
GivenAction = TypeVar("GivenAction", covariant=True)
GivenFeedback = TypeVar("GivenFeedback", covariant=True)
TakenObs = TypeVar("TakenObs", contravariant=True)
TakenAction = TypeVar("TakenAction", contravariant=True)
TakenFeedback = TypeVar("TakenFeedback", contravariant=True)
Action = TypeVar("Action")


class Environment(Protocol[State, GivenObs, TakenAction, GivenFeedback]):
    """What happens: arrivals, outcomes, costs, and the truth against which policies are measured.

    Optional methods: those of `HasGauges`, `HasCheck` and `HasCapacity`, and `rewards()`, the rewards that it gives (`jaxroute.core.rewards.Rewards`).
    """

    @property
    def spec(self) -> Spec:
        """What a policy may know before the first round; static."""
        ...

    def init(self, key: jax.Array) -> State:
        """State before the first round."""
        ...

    def observe(self, key: jax.Array, state: State, t: jax.Array) -> GivenObs:
        """What a real router would see before it decides in round `t` (int32 `[]`, from 0)."""
        ...

    def step(self, key: jax.Array, state: State, action: TakenAction, t: jax.Array) -> tuple[State, GivenFeedback, Flows]:
        """Plays a round: `(next state, feedback, flows)`. Feedback is what a real router would see afterwards."""
        ...


class Policy(Protocol[State, TakenObs, Action, TakenFeedback]):
    """Who decides.

    Optional methods: those of `Planner`, `HasGauges`, `HasCheck`, `HasRequirements` and `HasCostHint`. Optional attributes: `metrics`, a tuple of `Metric` for
    gauges and for entries of Info that are worth recording by default; `stage_length`, used where the environment has no stages;
    `assumes`, the rewards that it is for (`jaxroute.core.rewards.Assumptions`).
    """

    def init(self, key: jax.Array, spec: Any) -> State:
        """State before the first round, for an environment with this `Spec`."""
        ...

    def act(self, key: jax.Array, state: State, obs: TakenObs, t: jax.Array) -> tuple[Action, Info]:
        """The decision of round `t`, and Info."""
        ...

    def update(
        self, key: jax.Array, state: State, obs: TakenObs, action: Action, feedback: TakenFeedback, t: jax.Array
    ) -> State:
        """State after the round's feedback."""
        ...


class Planner(Policy[State, TakenObs, Action, TakenFeedback], Protocol[State, TakenObs, Action, TakenFeedback]):
    """A policy with stages."""

    def plan(self, key: jax.Array, state: State, obs: TakenObs, t: jax.Array) -> State:
        """State with the plan of the stage that begins in round `t`; called before the stage's first `act`."""
        ...


class HasGauges(Protocol):
    """Somebody whose state has numbers worth reading at record times."""

    def gauges(self, state: Any) -> Mapping[str, Any]:
        """The numbers by metric."""
        ...


class HasCheck(Protocol):
    """Somebody who knows which of its values are in range."""

    def check(self) -> None:
        """Raises `ValueError` on a value that is out of range."""
        ...


class HasCapacity(Protocol):
    """An environment whose state has room for so much, of a queue for example."""

    def with_double_capacity(self) -> Any:
        """The same environment with twice the room; None if it has as much as a run can need.

        A run that has lost nothing for want of room (`Spec.overflow_flow`) is a run of the same luck in both.
        """
        ...


class HasRequirements(Protocol):
    """A policy that does not suit every environment."""

    def check_spec(self, spec: Any) -> None:
        """Raises `ValueError` if the policy does not suit an environment with this `Spec`."""
        ...


class HasCostHint(Protocol):
    """A policy whose rounds may be expensive."""

    def cost_hint(self, spec: Any) -> CostHint:
        """Returns the sizes of its matrices in an environment with this `Spec`."""
        ...


AnyEnvironment: TypeAlias = Environment[Any, Any, Any, Any]
AnyPolicy: TypeAlias = Policy[Any, Any, Any, Any]
# A random instance per run, and a policy (an oracle) that is built from the environment.
Sampler: TypeAlias = Callable[[jax.Array], AnyEnvironment]
PolicyOf: TypeAlias = Callable[[Any], AnyPolicy]
# `(env, policy, env_state, policy_state, t) -> array or dict`, read at record times.
Probe: TypeAlias = Callable[..., Any]

ENVIRONMENT_METHODS = ("init", "observe", "step")
POLICY_METHODS = ("init", "act", "update")
# What they may have besides.
ENVIRONMENT_OPTIONS = ("spec", "gauges", "check", "with_double_capacity", "rewards")
POLICY_OPTIONS = (*("plan", "gauges", "metrics", "assumes", "check", "check_spec", "stage_length", "cost_hint"),)
# A name that is so similar to one of the protocol is taken for a misspelling (`updat` and `update`: 0.91).
_ALIKE = 0.8


def is_environment(value: Any) -> TypeGuard[AnyEnvironment]:
    """Whether a value is meant as an environment, and not as a function that makes one."""
    return hasattr(value, "step")


def is_policy(value: Any) -> TypeGuard[AnyPolicy]:
    """Whether a value is meant as a policy, and not as a function that makes one."""
    return hasattr(value, "act")


def missing_methods(value: Any, methods: tuple[str, ...]) -> str:
    """Which of these methods a value does not have, in words, with the closest name that it has; empty if it has them all.

    Args:
      value: an environment or a policy.
      methods: names of methods that it must have.
    """
    missing = [name for name in methods if not callable(getattr(value, name, None))]
    if not missing:
        return ""
    names = [name for name in dir(value) if not name.startswith("__") and name not in (*methods, *POLICY_OPTIONS)]
    close = {name: difflib.get_close_matches(name, names, n=1) for name in missing}
    hints = [f"{name} (is {close[name][0]} meant?)" if close[name] else name for name in missing]
    return f"{type(value).__name__} must have the methods {', '.join(methods)}; it has no {' and no '.join(hints)}"


def misspelt(value: Any, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """What an environment or a policy defines under a name that is almost one of the protocol, and which nobody calls.

    Args:
      value: environment or policy.
      names: of the protocol, required or not.

    Returns:
      Pairs of the name and the one that may be meant.
    """
    owner = type(value)
    fields = {f.name for f in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set[str]()
    above: set[str] = set()  # What this class or one that derives from it defines.
    pairs: list[tuple[str, str]] = []
    for cls in owner.__mro__[:-1]:
        above |= set(vars(cls))
        for name in vars(cls):
            if name.startswith("_") or name in names or name in fields:
                continue
            close = difflib.get_close_matches(name, names, n=1, cutoff=_ALIKE)
            if close and close[0] not in above:
                pairs.append((name, close[0]))
    return pairs


def has_plan(policy: Any) -> TypeGuard[Planner[Any, Any, Any, Any]]:
    """Whether a policy plans by stages."""
    return hasattr(policy, "plan")


def stage_length_of(env: AnyEnvironment, policy: AnyPolicy) -> int | None:
    """Rounds per stage: the environment's, or the policy's where the environment has no stages; None without `plan`."""
    if not has_plan(policy):
        return None
    return env.spec.stage_length or getattr(policy, "stage_length", None)


def first_state(env: AnyEnvironment, policy: AnyPolicy, key: jax.Array, spec: Spec) -> Any:
    """The policy's state before the first round; with stages a plan is sure to come first, for a stage begins at round 0."""
    state = policy.init(key, spec)
    return planned_state(state) if stage_length_of(env, policy) else state


def gauges_of(player: AnyEnvironment | AnyPolicy, state: Any) -> Mapping[str, Any]:
    """Gauges of an environment or a policy; none if it has no `gauges`."""
    return cast(HasGauges, player).gauges(state) if hasattr(player, "gauges") else {}


def with_double_capacity(env: AnyEnvironment) -> AnyEnvironment | None:
    """The environment with twice the room for what its state holds; None if there is no more to have."""
    return cast(HasCapacity, env).with_double_capacity() if hasattr(env, "with_double_capacity") else None


def metrics_of(policy: AnyPolicy) -> tuple[Metric, ...]:
    """What a policy itself measures."""
    return tuple(getattr(policy, "metrics", ()))


def check_values(player: Any) -> None:
    """Runs the `check` of an environment or a policy that has one.

    Raises:
      ValueError: a value is out of range.
    """
    if hasattr(player, "check"):
        player.check()


def check_suits(policy: AnyPolicy, spec: Spec) -> None:
    """Runs the `check_spec` of a policy that has one.

    Raises:
      ValueError: the policy does not suit an environment with this `Spec`.
    """
    if hasattr(policy, "check_spec"):
        cast(HasRequirements, policy).check_spec(spec)


def cost_hint(policy: AnyPolicy, spec: Spec) -> CostHint:
    """The hint of a policy in an environment with this `Spec`; without `cost_hint` its rounds are cheap."""
    return cast(HasCostHint, policy).cost_hint(spec) if hasattr(policy, "cost_hint") else CostHint()


def build_policy(policy: Any, env: AnyEnvironment) -> AnyPolicy:
    """The policy itself, or the one that a function `env -> policy` (an oracle) makes for this environment.

    Raises:
      ValueError: the function returns something else.
    """
    if is_policy(policy):
        return policy
    built = policy(env)
    if not is_policy(built):
        raise ValueError(f"a function must return a policy when called with an environment, got {show(built)}")
    return built
