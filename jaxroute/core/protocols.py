"""The two protocols. Everything is written for one run of one setting; batching belongs to the engine.

Environments and policies are frozen pytrees (`flax.struct.dataclass`): leaves are numbers one might sweep, static fields are
sizes and structural choices.

Rules that all five problems need:

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

from typing import Any, Protocol, runtime_checkable

from jaxroute.core.types import Spec

PyTree = Any


@runtime_checkable
class Environment(Protocol):
    """What happens: arrivals, outcomes, costs, and the truth against which policies are measured.

    Optional: `gauges(state) -> dict`, `check()` (raises `ValueError` on values out of range).
    """

    @property
    def spec(self) -> Spec: ...

    def init(self, key) -> PyTree:
        """State before the first round."""
        ...

    def observe(self, key, state, t) -> PyTree:
        """What a real router would see before it decides in round `t` (int32 `[]`, from 0)."""
        ...

    def step(self, key, state, action, t) -> tuple[PyTree, PyTree, dict]:
        """Plays a round: `(next state, feedback, flows)`. Feedback is what a real router would see afterwards."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Who decides.

    Optional: `plan(key, state, obs, t) -> state` once per stage before its first `act`; `gauges(state) -> dict`;
    `metrics`, a tuple of `Metric` for gauges and for entries of Info that are worth recording by default;
    `stage_length`, used when the environment has no stages; `check()`; `check_for(spec)`, which raises `ValueError` if the policy
    does not suit an environment.
    """

    def init(self, key, spec: Spec) -> PyTree:
        """State before the first round."""
        ...

    def act(self, key, state, obs, t) -> tuple[PyTree, dict]:
        """The decision of round `t`, and Info."""
        ...

    def update(self, key, state, obs, action, feedback, t) -> PyTree:
        """State after the round's feedback."""
        ...
