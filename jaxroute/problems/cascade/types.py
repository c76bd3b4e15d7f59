"""Values shared by environment and policies of the cascade problem, and its metrics.

Sizes: `K` boxes (models), `m` features of a request, `d` features of an output (0 if scores are seen).
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol

from flax import struct
from jax import Array

from jaxroute.core.types import Metric, Spec
from jaxroute.estimators.links import IDENTITY, LOGISTIC, Link

METRICS = (
    Metric("regret", "cumulative regret", "utility", "total"),
    Metric("mean_cost_regret", "cumulative regret with mean costs", "utility", "total"),
    Metric("realised_regret", "cumulative regret with realised costs", "utility", "total"),
    Metric("utility", "mean score less weighted cost", "utility per request", "average"),
    Metric("reward", "mean score of the deployed output", "per request", "average"),
    Metric("cost", "mean cost", "per request", "average"),
    Metric("queries", "models called", "per request", "average"),
    Metric("opened", "requests on which a model was called", "share", "average", ("model",), default=False),
    Metric("deployed", "requests that a model answered", "share", "average", ("model",), default=False),
    Metric("optimistic", "requests with all indices at least the true ones", "share", "average", default=False),
    Metric("optimistic_score", "requests with all scores at least the true ones", "share", "average", default=False),
)
# Flows that make a run invalid: no box opened or not exactly one deployed; regret outside the bounds of the decomposition; scores outside 0 to 1 or
# negative costs, for which neither the optimal search nor the bounds hold.
ZERO_FLOWS = ("empty", "violations", "outside")


def metrics_in(cost_unit: str = "", *, joint: bool = False) -> tuple[Metric, ...]:
    """Returns the metrics that a cascade can record, with costs in the unit named `cost_unit`.

    If outputs depend on each other (`joint`), `regret` and `mean_cost_regret` compare with a policy that is not the best, and are not recorded by
    default.
    """
    changes: dict[str, dict[str, Any]] = {"cost": {"unit": f"{cost_unit} per request"}} if cost_unit else {}
    if joint:
        changes |= {key: {"default": False} for key in ("regret", "mean_cost_regret")}
    return tuple(replace(m, **changes.get(m.name, {})) for m in METRICS)


@dataclass(frozen=True)
class CascadeSpec(Spec):
    """Sizes and link functions of a cascade environment, which a policy knows in advance.

    Attributes:
      context_dim: number of features of a request, `m`.
      feature_dim: number of features of an output, `d`; 0 if the scores of opened outputs are seen (known evaluator).
      index_link, score_link: link function of the reservation indices, and link function of the evaluator.
      context_bound, feature_bound: largest norms of a request's features `psi` and of an output's features `phi`.
      shows_all: whether the outputs of unopened boxes are shown after a request.
    """

    context_dim: int = 1
    feature_dim: int = 0
    index_link: Link = IDENTITY
    score_link: Link = LOGISTIC
    context_bound: float = 1.0
    feature_bound: float = 1.0
    shows_all: bool = False


@struct.dataclass
class Observation:
    """Request that a policy sees before it calls a model: features `context` `[m]`, the paper's `psi(x)`, on which the reservation indices depend."""

    context: Array


@struct.dataclass
class Outputs:
    """Outputs of all boxes (models) in a period (request); a search may read only those of opened boxes.

    Attributes:
      score: `[K]` true scores, None if scores must be learned.
      features: `[K, d]` features, None if scores are seen.
      cost: `[K]` costs, in units of utility.
    """

    score: Array | None
    features: Array | None
    cost: Array


@struct.dataclass
class SearchResult:
    """Boxes (models) that a search opened (called), and the box whose output it deploys.

    Attributes:
      opened: `[K]` bool, opened boxes.
      deployed: `[K]` bool, one-hot, box whose output is deployed.
      score: `[K]` scores by which the search decided when to stop: true ones, or optimistic estimates if scores are not seen.
    """

    opened: Array
    deployed: Array
    score: Array


@struct.dataclass
class Feedback:
    """Feedback after a request, zero where `seen` is False. In the first period, which does not count, all boxes are opened and nothing is deployed.

    Attributes:
      opened, seen: `[K]` bool, opened boxes, and boxes whose output is shown: the opened ones, or all if the environment has `shows_all=True`.
      deployed: `[K]` bool, box whose output was deployed.
      cost: `[K]` costs, in units of utility.
      score: `[K]` scores, None if scores must be learned.
      features: `[K, d]` features, None if scores are seen.
      reward: `[]` reward of the deployed output.
    """

    opened: Array
    seen: Array
    deployed: Array
    cost: Array
    score: Array | None
    features: Array | None
    reward: Array


class Search(Protocol):
    """Action of a policy: a decision rule that the environment runs on the outputs of a period.

    Optional attributes: `index`, `[K]` optimistic reservation indices that metrics compare with the true ones, and `bounded`, a bool, whether theorem
    3.3 bounds the regret.
    """

    def run(self, outputs: Outputs) -> SearchResult:
        """Opens boxes and chooses one to deploy. `outputs` has the outputs of all boxes; those of unopened boxes must not influence the result."""
        ...
