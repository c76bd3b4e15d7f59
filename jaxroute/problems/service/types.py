"""Values that pass between environment and policies of the service problem, and what is measured.

Sizes: `M` models in rising order of cost, `d` features of a request.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
from flax import struct

from jaxroute.core.types import Leaf, Metric, Spec
from jaxroute.problems.service.parts.virtual_queue import VirtualQueue

# Parameters of a predictor: a pytree of its making.
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
    """What a policy may know in advance.

    num_features: `d`.
    knows_cost: the cost of each model is seen before a decision.
    reveals_labels: so is who satisfies (for clairvoyant policies only).
    fingerprint: of where requests come from, so that a policy that knows the truth can tell whether it is that of this environment; empty
      where the numbers are traced, or many.
    """

    num_features: int = 1
    knows_cost: bool = True
    reveals_labels: bool = False
    fingerprint: str = field(default="", compare=False, repr=False)


@struct.dataclass
class Request:
    """Everything about a request; no policy sees all of it.

    features: `[d]`.
    satisfied: `[M]` bool, which models would satisfy.
    cost: `[M]`, J.
    success: `[M]`, the probability of being satisfied given the features.
    """

    features: jax.Array
    satisfied: jax.Array
    cost: jax.Array
    success: jax.Array


@struct.dataclass
class Price:
    """What the best policy of some knowledge pays for satisfaction.

    cost: `[]` mean cost, J per request; if no policy reaches the target, that of one that satisfies as often as can be.
    price: `[]` J per unit of satisfaction, the constraint's shadow price, very large if no policy reaches the target.
    part: `[]` share of requests to be decided at a slightly higher price, the others at a lower one.
    """

    cost: Leaf
    price: Leaf
    part: Leaf


@struct.dataclass
class ServiceState:
    """State of the service.

    rounds: `[]` int32, requests so far.
    satisfied: `[]` int32, satisfied ones of these.
    queue: the virtual queue of eq. (2) on what really satisfied.
    first_compliance: `[]` int32, first request from the 50th on at which the share of satisfied requests is at least alpha,
      0 if there was none.
    last_violation: `[]` int32, last request at which it was not, 0 likewise.
    source: what the source of requests remembers.
    """

    rounds: jax.Array
    satisfied: jax.Array
    queue: VirtualQueue
    first_compliance: jax.Array
    last_violation: jax.Array
    source: Any


@struct.dataclass
class Observation:
    """What the provider sees of a request before a decision.

    features: `[d]`.
    cost: `[M]`, J, zeros if costs are not seen beforehand.
    labels: `[M]` float32, zeros unless the environment reveals them.
    alpha: `[]`, the share of requests that the service level agreement wants satisfied.
    """

    features: jax.Array
    cost: jax.Array
    labels: jax.Array
    alpha: jax.Array


@struct.dataclass
class Action:
    """What the provider does with a request.

    explore: `[]` bool, all models work on the request.
    serve: `[]` int32, whose answer is returned.
    energy: `[]`, J that the decision itself took; it is added to the cost.
    """

    explore: jax.Array
    serve: jax.Array
    energy: jax.Array


@struct.dataclass
class Feedback:
    """What the provider sees afterwards; zero where it sees nothing.

    arrived: `[]` bool, False if the user gave no feedback.
    satisfied: `[]` float32.
    cost: `[]`, J that the models took.
    labels: `[M]` float32, who satisfied; only of an explored request.
    costs: `[M]`, J; only of an explored request.
    """

    arrived: jax.Array
    satisfied: jax.Array
    cost: jax.Array
    labels: jax.Array
    costs: jax.Array
