"""Types that the engine shares with policies and environments: metrics, the description of an environment, and hints of the cost of a round."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import jax
from flax import struct

# A number or array that can be swept: on the host a number or NumPy array, on the device a JAX array or tracer.
Leaf = Any
# A tree of arrays of any structure.
PyTree = Any


@dataclass(frozen=True)
class Metric:
    """Quantity that an environment or a policy reports, and how it is recorded.

    Attributes:
      name: key in the flows of `step`, in the gauges (of a state) or in the Info of `act`, and name of the variable in a result.
      label: words for an axis or a table.
      unit: unit of the recorded value ("reward", "USD per query", "rounds", ...).
      kind: "total" for the cumulative sum of the rounds' values, "average" for their running mean, "gauge" for the state's value when it is recorded.
      dims: names of the dimensions of a vector (for example `("model",)`).
      default: whether it is recorded unless the user specifies other metrics.
      limit: largest allowed value of its mean over runs, for example 1 for spend divided by budget; None without a limit.
      violation: label of a policy above `limit` in tables and pictures ("over budget").
    """

    name: str
    label: str
    unit: str
    kind: Literal["total", "average", "gauge"]
    dims: tuple[str, ...] = ()
    default: bool = True
    limit: float | None = None
    violation: str = ""

    def __post_init__(self):
        if self.kind not in ("total", "average", "gauge"):
            raise ValueError(
                f"kind must be one of 'total', 'average', 'gauge', got {self.kind!r} for the metric {self.name!r}"
            )

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the metric's variable in a result; `long_name` and `units` are names of the CF conventions."""
        limit = {} if self.limit is None else {"limit": self.limit, "violation": self.violation}
        return {"long_name": self.label, "units": self.unit, "kind": self.kind, **limit}


def priced(metrics: Iterable[Metric], currency: str) -> tuple[Metric, ...]:
    """Returns the metrics with `currency` instead of the word "cost" in their units: for "USD", the unit "cost per query" becomes "USD per query"."""
    return tuple(replace(m, unit=re.sub(r"\bcost\b", currency, m.unit)) for m in metrics)


@dataclass(frozen=True)
class Spec:
    """Static, hashable description of an environment that a policy may know before the first round. Flows are a round's values, from `step`.

    Attributes:
      num_models: `K`, number of models that can ever be chosen.
      model_names: names of the models, empty if they have none.
      stage_length: number of rounds between two calls of a policy's `plan`, None if it is not called.
      free_rounds: number of rounds at the start that are simulated but not counted.
      metrics: metrics for the environment's flows and gauges.
      zero_flows: names of flows that must be zero in every round; a non-zero sum marks the run as invalid.
      overflow_flow: name of the flow in `zero_flows` that counts overflows (of a queue, say), if the environment has the method
        `with_double_capacity`: a run with overflows is simulated again with doubled capacity.
      horizon: number of counted rounds; the engine sets it, for policies whose constants depend on it.
    """

    num_models: int
    model_names: tuple[str, ...] = ()
    stage_length: int | None = None
    free_rounds: int = 0
    metrics: tuple[Metric, ...] = field(default=(), repr=False)
    zero_flows: tuple[str, ...] = ()
    overflow_flow: str | None = None
    horizon: int | None = None


class CostHint(NamedTuple):
    """Sizes of the matrices that make a round of one run expensive. The engine chooses by them how to simulate a policy.

    Attributes:
      matrix_bytes: size in bytes of the largest matrices of one run that a round reads.
      product_bytes: the part of `matrix_bytes` in matrices that a round reads completely, to multiply them by vectors.
    """

    matrix_bytes: int = 0
    product_bytes: int = 0


State = TypeVar("State")


@struct.dataclass
class UnplannedState(Generic[State]):
    """State of a policy before its first `plan`, which the engine calls at the start of each stage. `init` returns it if `act` needs a plan.

    It hides the fields of the state, so that `act` and `update` fail if a user's own loop forgets to call `plan`.

    Attributes:
      state: state from which `plan` starts.
    """

    state: State

    def __getattr__(self, name: str) -> Any:
        # Only called for missing names. copy, pickle and JAX read names with two underscores.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise AttributeError("this state has no plan yet: call plan(key, state, obs, t) before the first act")


def planned_state(state: State | UnplannedState[State]) -> State:
    """Returns the state inside an `UnplannedState`; any other state is returned unchanged."""
    return cast(State, state.state if isinstance(state, UnplannedState) else state)


@struct.dataclass
class FixedState:
    """State of a `FixedPolicy`: the environment's `Spec` (static)."""

    spec: Any = struct.field(pytree_node=False)


class FixedPolicy:
    """Base class of policies that learn nothing. A subclass defines only `act(key, state, obs, t)`, with a `FixedState` as the state."""

    def init(self, key: Any, spec: Any) -> Any:
        del key
        return FixedState(spec)

    def update(self, key: Any, state: Any, obs: Any, action: Any, feedback: Any, t: Any) -> Any:
        del key, obs, action, feedback, t
        return state


def classes_of(tree: Any) -> tuple[type, ...]:
    """Returns the classes of a tree's inner nodes, each before its children. Cache keys need them, since equal structures may differ in classes.

    From jax 0.10 on, two tree structures that differ only in the classes of their nodes compare equal, and `jax.jit` of 0.10.2 may run the program of
    another class: in a process with 400 such classes it did so for 50 to 70 of them (with 0.12.0.1 for none).
    """
    found, waiting = [], [jax.tree.structure(tree)]
    while waiting:
        node = waiting.pop()
        if (data := node.node_data()) is not None:
            found.append(data[0])
            waiting.extend(reversed(node.children()))
    return tuple(found)
