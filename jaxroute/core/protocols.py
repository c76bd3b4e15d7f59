"""Protocols of environments and policies: the methods that the engine requires, and a table of the optional ones.

Everything is written for one run of one setting; batching belongs to the engine. Environments and policies are frozen pytrees (a
`flax.struct.dataclass`, a class with `jax.tree_util.register_dataclass`, an `equinox.Module`): dynamic fields are numbers that can be swept,
static fields are sizes and structural choices.

Rules for the environments and policies of all problems:

- `observe` is pure. In each round `observe` and `step` get the same key, so that both can draw the same noise. If a policy has a method
  `plan`, a stage begins every `stage_length` rounds; `observe` is then called once more, with the key of the stage's first round.
- The environment draws the outcome of every model and reveals that of the chosen model. Its key does not depend on the policy, so all policies
  and settings share common random numbers.
- An action may be a decision rule: a pytree with a pure `run(outputs)` that the environment calls on its outputs.
- Anything that `update` must know about a decision is part of the action, in fields that the environment ignores.
- Flows are values of the round (scalars, or vectors with the dimensions named in the `Metric`), which the engine sums. Gauges are functions of a
  state, evaluated at record times, after the last round of the record interval and before the next decision.
- `Info` is a dict of arrays for diagnosis. It costs nothing unless it is recorded.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar

import chex
from flax import struct

from jaxroute.core.checks import show
from jaxroute.core.types import CostHint, Metric, Spec, planned_state

Flows: TypeAlias = Mapping[str, chex.Numeric]
Info: TypeAlias = Mapping[str, chex.Numeric]

State = TypeVar("State")
Feedback = TypeVar("Feedback")
# Result of `step`: a tuple of the next state, the feedback that a real router would see, and the flows of the round.
Transition: TypeAlias = tuple[State, Feedback, Flows]

# An environment returns observations and feedback and takes actions; a policy returns actions and takes observations and feedback.
GivenObs = TypeVar("GivenObs", covariant=True)
GivenFeedback = TypeVar("GivenFeedback", covariant=True)
TakenObs = TypeVar("TakenObs", contravariant=True)
TakenAction = TypeVar("TakenAction", contravariant=True)
TakenFeedback = TypeVar("TakenFeedback", contravariant=True)
Action = TypeVar("Action")


@dataclasses.dataclass(frozen=True)
class Members:
    """Methods and attributes of an environment or a policy that the engine uses.

    Attributes:
      required: names of the required methods.
      optional: names of the optional methods and attributes, and their meanings.
    """

    required: tuple[str, ...]
    optional: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.required, *self.optional)

    def listed(self) -> str:
        """Formats the optional methods and attributes, with their meanings, as indented lines of a docstring."""
        return "\n".join(f"      {name}: {meaning}." for name, meaning in self.optional.items())


_GAUGES = "`gauges(state) -> dict`, values of a state, evaluated at record times"
_CHECK = "`check()`, raises `ValueError` if a value is out of range"
ENVIRONMENT = Members(
    required=("init", "observe", "step"),
    optional={
        "spec": "attribute of every environment: the static `Spec` that a policy may know before the first round",
        "gauges": _GAUGES,
        "check": _CHECK,
        "with_double_capacity": "`with_double_capacity()`, the environment with doubled capacity, or None at maximum capacity; a run without "
        "overflow (`Spec.overflow_flow`) is the same run in both",
        "rewards": "`rewards()`, properties of its rewards (`jaxroute.core.rewards.Rewards`)",
    },
)
POLICY = Members(
    required=("init", "act", "update"),
    optional={
        "plan": "`plan(key, state, obs, t) -> state`, state with the plan of the stage that begins in round `t`; called before its first `act`",
        "gauges": _GAUGES,
        "metrics": "tuple of `Metric` for gauges and for entries of Info that are recorded by default",
        "check": _CHECK,
        "check_spec": "`check_spec(spec)`, raises `ValueError` if the policy does not suit an environment with this `Spec`",
        "stage_length": "rounds per stage where the environment has no stages",
        "assumes": "rewards that it is made for (`jaxroute.core.rewards.Assumptions`)",
        "cost_hint": "`cost_hint(spec) -> CostHint`, sizes of its matrices, where they make a round expensive",
    },
)
# Least similarity of a name that counts as misspelt (`updat` and `update` have 0.91).
_SIMILAR = 0.8


class Environment(Protocol[State, GivenObs, TakenAction, GivenFeedback]):
    """Simulated world of a policy: it draws each round's query, and the outcome and cost of every model, and knows each model's true mean reward."""

    @property
    def spec(self) -> Spec:
        """Static description of the environment that a policy may know before the first round."""
        ...

    def init(self, key: chex.PRNGKey) -> State:
        """Returns the state before the first round, drawn from `key` if it is random."""
        ...

    def observe(self, key: chex.PRNGKey, state: State, t: chex.ArrayDevice) -> GivenObs:
        """Returns the observation of round `t` (int32, from 0): what a real router would see before it decides."""
        ...

    def step(
        self, key: chex.PRNGKey, state: State, action: TakenAction, t: chex.ArrayDevice
    ) -> Transition[State, GivenFeedback]:
        """Returns the state after round `t`, the feedback to `action` that a real router would see, and flows: numbers by name to sum over rounds."""
        ...


class Policy(Protocol[State, TakenObs, Action, TakenFeedback]):
    """Routing policy: it makes a decision in every round and learns from the feedback."""

    def init(self, key: chex.PRNGKey, spec: Any) -> State:
        """Returns the policy's state before the first round, in an environment with the given `Spec`."""
        ...

    def act(self, key: chex.PRNGKey, state: State, obs: TakenObs, t: chex.ArrayDevice) -> tuple[Action, Info]:
        """Returns the action of round `t`, and `Info`, a dict of arrays for diagnosis that may be recorded."""
        ...

    def update(
        self, key: chex.PRNGKey, state: State, obs: TakenObs, action: Action, feedback: TakenFeedback, t: chex.ArrayDevice
    ) -> State:
        """Returns the policy's state after round `t`, learning from the round's observation, action and feedback."""
        ...


for _protocol, _members in ((Environment, ENVIRONMENT), (Policy, POLICY)):
    _protocol.__doc__ = f"{_protocol.__doc__}\n\n    Optional members:\n\n{_members.listed()}\n    "

AnyEnvironment: TypeAlias = Environment[Any, Any, Any, Any]
AnyPolicy: TypeAlias = Policy[Any, Any, Any, Any]
# Function that draws an environment for each run, and function (an oracle) that builds a policy from the environment.
Sampler: TypeAlias = Callable[[chex.PRNGKey], AnyEnvironment]
PolicyOf: TypeAlias = Callable[[Any], AnyPolicy]
# Function `(env, policy, env_state, policy_state, t) -> array or dict` that is evaluated at record times.
Probe: TypeAlias = Callable[..., Any]


def is_environment(value: Any) -> TypeGuard[AnyEnvironment]:
    """Whether a value is an environment and not a function that returns one."""
    return hasattr(value, "step")


def is_policy(value: Any) -> TypeGuard[AnyPolicy]:
    """Whether a value is a policy and not a function that returns one."""
    return hasattr(value, "act")


def missing_methods(value: Any, members: Members) -> str:
    """Returns a sentence that names the required methods (of `members`) that `value` lacks, and similar names that it has; empty if it lacks none."""
    missing = [name for name in members.required if not callable(getattr(value, name, None))]
    if not missing:
        return ""
    names = [name for name in dir(value) if not name.startswith("__") and name not in members.names]
    close = {name: difflib.get_close_matches(name, names, n=1) for name in missing}
    hints = [f"{name} (is {close[name][0]} meant?)" if close[name] else name for name in missing]
    return f"{type(value).__name__} must have the methods {', '.join(members.required)}; it has no {' and no '.join(hints)}"


def misspelt(value: Any, members: Members) -> list[tuple[str, str]]:
    """Returns pairs of names: one that the class of `value` defines, and a similar one of the protocol `members` that was probably meant."""
    owner, names = type(value), members.names
    fields = {f.name for f in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set[str]()
    defined: set[str] = set()  # Names that this class or a class derived from it defines.
    pairs: list[tuple[str, str]] = []
    for cls in owner.__mro__[:-1]:
        defined |= set(vars(cls))
        for name in vars(cls):
            if name.startswith("_") or name in names or name in fields:
                continue
            close = difflib.get_close_matches(name, names, n=1, cutoff=_SIMILAR)
            if close and close[0] not in defined:
                pairs.append((name, close[0]))
    return pairs


def stage_length_of(env: AnyEnvironment, policy: AnyPolicy) -> int | None:
    """Returns the number of rounds between calls of `plan`: the `stage_length` in `env.spec`, else the policy's, else None. None without a `plan`."""
    if not hasattr(policy, "plan"):
        return None
    return env.spec.stage_length or getattr(policy, "stage_length", None)


def first_state(env: AnyEnvironment, policy: AnyPolicy, key: chex.PRNGKey, spec: Spec) -> Any:
    """Returns `policy.init(key, spec)`, the state before the first round; an `UnplannedState`, which marks a state before `plan`, is unwrapped."""
    state = policy.init(key, spec)
    return planned_state(state) if stage_length_of(env, policy) else state


def optional(component: Any, method: str, *args: Any, default: Any = None) -> Any:
    """Calls an optional method of `component`, an environment or a policy, such as `check`; returns `default` if it does not have the method."""
    return getattr(component, method)(*args) if hasattr(component, method) else default


def with_double_capacity(env: Any) -> AnyEnvironment | None:
    """Returns `env` with twice the capacity, for example of its queue. None if that exceeds a maximum, or `env` has no capacity."""
    return optional(env, "with_double_capacity")


def metrics_of(policy: AnyPolicy) -> tuple[Metric, ...]:
    return tuple(getattr(policy, "metrics", ()))


def cost_hint(policy: Any, spec: Spec) -> CostHint:
    """Returns the sizes of matrices that make a policy's rounds expensive, by its method `cost_hint`; zeros (cheap rounds) without this method."""
    return optional(policy, "cost_hint", spec, default=CostHint())


def build_policy(policy: Any, env: AnyEnvironment) -> AnyPolicy:
    """Returns `policy`, or `policy(env)` if it is a function that builds one for an environment (an oracle, say); `ValueError` if it builds none."""
    if is_policy(policy):
        return policy
    built = policy(env)
    if not is_policy(built):
        raise ValueError(f"a function must return a policy when called with an environment, got {show(built)}")
    return built


@struct.dataclass
class Wrapper:
    """Environment that passes every call to another environment, optional methods and fields included. A subclass overrides what it changes.

    A subclass is a `flax.struct.dataclass` too:

        @struct.dataclass
        class Doubled(jr.Wrapper):
            def step(self, key, state, action, t):
                state, feedback, flows = self.env.step(key, state, action, t)
                return state, feedback, {**flows, "cost": 2.0 * flows["cost"]}

    Attributes:
      env: wrapped environment.
    """

    env: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":  # Read before `env` is set, by a copy for example.
            raise AttributeError(name)
        found = getattr(self.env, name)
        return self._with_double_capacity if name == "with_double_capacity" else found

    def _with_double_capacity(self) -> Any:
        more = self.env.with_double_capacity()
        return None if more is None else self.replace(env=more)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def spec(self) -> Spec:
        return self.env.spec

    def init(self, key: chex.PRNGKey) -> Any:
        return self.env.init(key)

    def observe(self, key: chex.PRNGKey, state: Any, t: chex.ArrayDevice) -> Any:
        return self.env.observe(key, state, t)

    def step(self, key: chex.PRNGKey, state: Any, action: Any, t: chex.ArrayDevice) -> Transition[Any, Any]:
        return self.env.step(key, state, action, t)
