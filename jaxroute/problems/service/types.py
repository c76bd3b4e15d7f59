"""Interfaces between environment and policies of the service problem, and its metrics.

Sizes: `M` models in ascending order of cost, `d` features of a request.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
from flax import struct

from jaxroute.core.types import Leaf, Metric, Spec
from jaxroute.problems.service.parts.virtual_queue import VirtualQueue

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
    """Information about the environment for policies.

    Attributes:
      num_features: number of features, `d`.
      knows_cost: whether costs are observed before a decision.
      reveals_labels: whether satisfaction is observed before a decision (for clairvoyant policies only).
      fingerprint: digest of the source of requests, by which an oracle recognises its environment; empty if the numbers are traced, or many.
    """

    num_features: int = 1
    knows_cost: bool = True
    reveals_labels: bool = False
    fingerprint: str = field(default="", compare=False, repr=False)


@struct.dataclass
class Request:
    """Complete request; no policy observes all of it.

    Attributes:
      features: `[d]` features.
      satisfied: `[M]` bool, models that would satisfy.
      cost: `[M]` costs, J.
      success: `[M]` probability of satisfaction given the features.
    """

    features: jax.Array
    satisfied: jax.Array
    cost: jax.Array
    success: jax.Array


@struct.dataclass
class Price:
    """Cost and shadow price of the best policy with some information.

    Attributes:
      cost: `[]` mean cost, J per request; that of the most satisfying policy if the target cannot be reached.
      price: `[]` shadow price of the constraint, J per unit of satisfaction; very large if the target cannot be reached.
      part: `[]` share of requests to decide at a slightly higher price; the others are decided at a lower one.
    """

    cost: Leaf
    price: Leaf
    part: Leaf


@struct.dataclass
class ServiceState:
    """State of the service.

    Attributes:
      rounds: `[]` int32 number of requests so far.
      satisfied: `[]` int32 number of satisfied requests.
      queue: virtual queue of eq. (2) with the true satisfaction.
      first_compliance: `[]` int32 first request, from the 50th on, with a share of satisfied requests of at least alpha; 0 for none.
      last_violation: `[]` int32 last request with a smaller share; 0 for none.
      source: state of the source of requests.
    """

    rounds: jax.Array
    satisfied: jax.Array
    queue: VirtualQueue
    first_compliance: jax.Array
    last_violation: jax.Array
    source: Any


@struct.dataclass
class Observation:
    """Information about a request before the decision.

    Attributes:
      features: `[d]` features.
      cost: `[M]` costs, J; zeros if costs are not observed.
      labels: `[M]` float32 satisfaction; zeros unless the environment reveals it.
      alpha: `[]` share of satisfied requests that the agreement requires.
    """

    features: jax.Array
    cost: jax.Array
    labels: jax.Array
    alpha: jax.Array


@struct.dataclass
class Action:
    """Decision about a request.

    Attributes:
      explore: `[]` bool, whether all models work on the request.
      serve: `[]` int32 model whose answer is returned.
      energy: `[]` cost of the decision itself, J, added to the cost.
    """

    explore: jax.Array
    serve: jax.Array
    energy: jax.Array


@struct.dataclass
class Feedback:
    """Information after the decision; unobserved values are zero.

    Attributes:
      arrived: `[]` bool, whether the user gave feedback.
      satisfied: `[]` float32 satisfaction of the request.
      cost: `[]` cost of the models, J.
      labels: `[M]` float32 satisfaction by each model; only for an explored request.
      costs: `[M]` cost of each model, J; only for an explored request.
    """

    arrived: jax.Array
    satisfied: jax.Array
    cost: jax.Array
    labels: jax.Array
    costs: jax.Array
