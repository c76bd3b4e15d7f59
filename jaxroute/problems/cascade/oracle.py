"""Policies that know the environment: the optimal search, the best single calls, and indices that ignore the request."""

import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.cascade.env import Cascade, as_cascade
from jaxroute.problems.cascade.search import IndexSearch, Scoring
from jaxroute.problems.cascade.truth import single_values
from jaxroute.problems.cascade.types import CascadeSpec


@struct.dataclass
class _Knowing:
    """A search by the true scores that learns nothing.

    env: the environment. With an unknown evaluator scores come from its true coefficients, with recorded features from a fit to all.
    """

    env: Cascade

    @classmethod
    def of(cls, env: Cascade):
        """The policy of an environment."""
        return cls(as_cascade(env))

    def check(self) -> None:
        as_cascade(self.env).check()

    def check_for(self, spec: CascadeSpec) -> None:
        own = self.env.spec
        for name in ("num_models", "context_dim", "feature_dim"):
            if getattr(own, name) != getattr(spec, name):
                raise ValueError(
                    f"env must have {name}={getattr(spec, name)}, as the one that is played, got {getattr(own, name)}"
                )

    def init(self, key, spec):
        del key, spec
        return ()

    def update(self, key, state, obs, action, feedback, t):
        del key, obs, action, feedback, t
        return state

    def _scoring(self) -> Scoring | None:
        evaluator = self.env.evaluator
        if evaluator is None:
            return None
        theta, zero = jnp.asarray(evaluator.theta, jnp.float32), jnp.zeros((), jnp.float32)
        return Scoring(theta, jnp.zeros((theta.shape[0],) * 2, jnp.float32), zero, zero, link=evaluator.link)


@struct.dataclass
class Oracle(_Knowing):
    """Weitzman's rule with the true indices: the best policy, if outputs are independent.

    Source: Weitzman (1979); Belloni, Chen and Wei (2026), proposition 3.1.
    """

    def act(self, key, state, obs, t):
        del key, state, t
        index = self.env.true_index(obs.context)
        return IndexSearch(index, index, self._scoring(), index), {}


@struct.dataclass
class StaticIndex(_Knowing):
    """Weitzman's rule with the indices of the mean request (in the main cascade the intercepts): the same way for every request."""

    def act(self, key, state, obs, t):
        del key, state, obs, t
        index = self.env.true_index(self.env.contexts.mean)
        return IndexSearch(index, index, self._scoring()), {}


@struct.dataclass
class ContextSingle(_Knowing):
    """One call, of the model with the largest expected score less cost for the request: the best that any router can do."""

    def act(self, key, state, obs, t):
        del key, state, t
        value = self.env.single_value(obs.context)
        return IndexSearch(value, jnp.full_like(value, -jnp.inf), self._scoring()), {}


@struct.dataclass
class BestSingle(_Knowing):
    """One call, always of the same model.

    model: `[]`, its number.
    """

    model: Leaf

    @classmethod
    def of(cls, env: Cascade):
        """The model with the largest mean score less cost (`single_values`)."""
        return cls(as_cascade(env), numerics.argmax(single_values(env)))

    def check(self) -> None:
        _Knowing.check(self)
        model = checks.numbers("model", self.model, ())
        checks.count("model", int(model) if model == int(model) else self.model, 0, self.env.spec.num_models - 1)

    def act(self, key, state, obs, t):
        del key, state, obs, t
        number = self.env.spec.num_models
        first = numerics.one_hot(jnp.asarray(self.model, jnp.int32), number)
        return IndexSearch(first.astype(jnp.float32), jnp.full((number,), -jnp.inf), self._scoring()), {}
