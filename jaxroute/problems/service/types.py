"""Types that environment and policies of the service problem exchange, its virtual queue and its metrics.

Sizes: `M` models in ascending order of cost, `d` features of a request.
"""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import numerics
from jaxroute.core.types import Leaf, Metric, Spec

# Parameters of a predictor: any pytree.
Params = Any

METRICS = (
    Metric("cost", "mean operating cost", "cost per request", "average"),
    Metric("served_cost", "mean cost of the models whose answer was returned", "cost per request", "average", default=False),
    Metric("explore_cost", "mean cost of exploring", "cost per request", "average", default=False),
    Metric("explore_overhead", "mean cost of unused answers", "cost per request", "average", default=False),
    Metric("decision_cost", "mean cost of deciding", "cost per request", "average", default=False),
    Metric("gap", "mean cost above the best stationary policy", "cost per request", "average", default=False),
    Metric("satisfaction", "share of satisfied requests", "", "average"),
    Metric("satisfaction_mean", "mean probability that the served model satisfies", "", "average", default=False),
    Metric("mean_satisfaction", "mean over requests of the share satisfied so far", "", "average", default=False),
    Metric("violation", "shortfall of satisfaction", "", "gauge", limit=0.0, violation="short of the target"),
    Metric("virtual_queue", "virtual queue", "requests", "gauge"),
    Metric("mean_queue", "mean over requests of the virtual queue", "requests", "average", default=False),
    Metric("complied", "share of runs that have met the target", "", "gauge"),
    Metric("first_compliance", "first request at which the target is met, where it is", "requests", "gauge"),
    Metric("last_violation", "last request at which the target is missed", "requests", "gauge", default=False),
    Metric("explored", "share of explored requests", "", "average"),
    Metric("served_share", "share of requests that each model answered", "", "average", ("model",)),
    Metric("called_share", "share of requests that each model worked on", "", "average", ("model",), default=False),
)


@dataclass(frozen=True)
class ServiceSpec(Spec):
    """Properties of the environment that a policy knows in advance.

    Attributes:
      num_features: number of features, `d`.
      knows_cost, reveals_labels: whether costs, and whether satisfaction (for clairvoyant policies only), are observed before a decision.
      fingerprint: digest of the source of requests, by which an oracle recognises its environment; empty if unknown (see `sources.fingerprint`).
    """

    num_features: int = 1
    knows_cost: bool = True
    reveals_labels: bool = False
    fingerprint: str = field(default="", compare=False, repr=False)


@struct.dataclass
class Request:
    """Request with all outcomes, of which a policy observes only a part.

    Attributes:
      features: `[d]` features.
      satisfied: `[M]` bool, models that would satisfy.
      cost: `[M]` costs, J.
      success: `[M]` probability of satisfaction given the features; for a recorded request, where it is unknown, `satisfied` as 0 or 1.
    """

    features: Array
    satisfied: Array
    cost: Array
    success: Array


@struct.dataclass
class Price:
    """Cost and shadow price of the cheapest policy that meets the target with given information about requests.

    Attributes:
      cost: `[]` mean cost, J per request; if the target cannot be reached, the cost of the most satisfying policy.
      price: `[]` shadow price of the constraint, J per unit of satisfaction; very large if the target cannot be reached.
      part: `[]` share of requests that the policy decides at a price slightly above `price`, the rest slightly below, to meet the target exactly.
    """

    cost: Leaf
    price: Leaf
    part: Leaf


@struct.dataclass
class VirtualQueue:
    """Virtual queue `Q` of missing satisfaction. It starts at 0; satisfaction `s` changes it to `max(0, Q + alpha - s)`. Source: MESS+, eq. (2).

    Attributes:
      length: `[]` float32 length `Q` in requests, at least 0.
      error: `[]` float32 rounding error of `length`, see `numerics.add_up`.
    """

    length: Array
    error: Array

    @classmethod
    def empty(cls) -> "VirtualQueue":
        zero = jnp.zeros((), jnp.float32)
        return cls(length=zero, error=zero)

    def served(self, alpha: Leaf, satisfied: Array) -> "VirtualQueue":
        """Returns the queue after a request, given the target `alpha` and the satisfaction `satisfied` of the request (float32, 0 or 1)."""
        # Added separately: their difference would be rounded in every round.
        length, error = numerics.add_up(*numerics.add_up(self.length, self.error, jnp.asarray(alpha)), -satisfied)
        owed = length > 0
        return VirtualQueue(length=jnp.where(owed, length, 0.0), error=jnp.where(owed, error, 0.0))


@struct.dataclass
class ServiceState:
    """State of the service between two requests.

    Attributes:
      rounds: `[]` int32 number of requests so far.
      satisfied: `[]` int32 number of satisfied requests.
      queue: virtual queue of eq. (2) with the true satisfaction.
      first_compliance: `[]` int32 number of the first request, from the 50th on, after which the share satisfied so far is alpha or more; 0 for none.
      last_violation: `[]` int32 number, counted from 1, of the last request after which the share satisfied so far is below alpha; 0 for none.
      source: state of the source of requests.
    """

    rounds: Array
    satisfied: Array
    queue: VirtualQueue
    first_compliance: Array
    last_violation: Array
    source: Any

    @classmethod
    def start(cls, source: Any) -> "ServiceState":
        zero = jnp.zeros((), jnp.int32)
        return cls(zero, zero, VirtualQueue.empty(), zero, zero, source)


@struct.dataclass
class Observation:
    """Information about a request that a policy has before its decision.

    Attributes:
      features: `[d]` features.
      cost: `[M]` costs, J; zeros if costs are not observed.
      labels: `[M]` float32, 1 for models that satisfy the request, otherwise 0; zeros unless the environment reveals them.
      alpha: `[]` share of satisfied requests that the agreement requires.
    """

    features: Array
    cost: Array
    labels: Array
    alpha: Array


@struct.dataclass
class Action:
    """Decision of a policy about a request.

    Attributes:
      explore: `[]` bool, whether all models work on the request.
      serve: `[]` int32 model whose answer the user gets, also on an explored request unless `serve_best=True`.
      energy: `[]` cost of the decision itself, J, added to the cost.
    """

    explore: Array
    serve: Array
    energy: Array


@struct.dataclass
class Feedback:
    """Information that a policy gets after its decision; unobserved values are zero.

    Attributes:
      arrived: `[]` bool, whether the user gave feedback.
      satisfied: `[]` float32, 1 if the user gave feedback and is satisfied, otherwise 0.
      cost: `[]` cost of the models that worked on the request, J; without the energy of the decision.
      labels: `[M]` float32, 1 for models that satisfy, otherwise 0; only for an explored request.
      costs: `[M]` cost of each model, J; only for an explored request.
    """

    arrived: Array
    satisfied: Array
    cost: Array
    labels: Array
    costs: Array
