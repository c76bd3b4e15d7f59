"""An environment around another one."""

from typing import Any

import chex
from flax import struct

from jaxroute.core.protocols import Transition
from jaxroute.core.types import Spec


@struct.dataclass
class Wrapper:
    """An environment that passes every call to another one, also of optional methods and fields; a subclass overrides what it changes.

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
