"""Rules for production, fitted to a whole table."""

from typing import Literal

from jaxroute.core import checks
from jaxroute.data import RoutingTable

from . import cascade, router
from .cascade import Cascade
from .cascade_routing import PERFECT_ROUTING, CascadeRouting
from .measure import WHOLE
from .mixture import BEST_MIXTURE, Mixture
from .part import Part
from .router import Router
from .sample import Sample, sample_of


def fit_mixture(table: RoutingTable, target: float) -> Mixture:
    """The cheapest random choice between two models that reaches a target on a table, whatever the query.

    Args:
      table: scores and costs of all models.
      target: quality in [0, 1].

    Returns:
      The rule: `first`, `second` (indices into its `models`) and `weight`, the probability of the second.
    """
    return BEST_MIXTURE.fit(_part(table, target)).tuned(target)


def fit_router(table: RoutingTable, target: float, by: Literal["logistic", "neighbours"] = "logistic") -> Router:
    """The router that reaches a target on a table at the least cost.

    Args:
      table: scores and costs of all models, with features (for neighbours) or features or groups (for logistic).
      target: quality in [0, 1].
      by: method that predicts scores.

    Returns:
      The rule: `predictor`, `costs` and `price`; `choose` takes further queries.

    Raises:
      ValueError: the table has no features.
    """
    if by not in ("logistic", "neighbours"):
        raise ValueError(f'by is {by!r}; expected "logistic" or "neighbours"')
    part = _part(table, target)
    if by == "neighbours" and part.sample.features is None:
        raise ValueError('by="neighbours" needs features, which the table lacks')
    _described(part.sample)
    return (router.LOGISTIC if by == "logistic" else router.NEIGHBOURS).fit(part).tuned(target)


def fit_cascade(table: RoutingTable, target: float, judge: Literal["learned", "perfect"] = "learned") -> Cascade:
    """FrugalGPT's cascade that reaches a target on a table at the least cost.

    Args:
      table: scores and costs of all models; for a learned judge with features or groups.
      target: quality in [0, 1].
      judge: a judge of answers fitted to the table, or one that sees their scores.

    Returns:
      The rule: `stages` (indices into its `models`), `thresholds` and `judge`.

    Raises:
      ValueError: the table has no features for the judge.
    """
    if judge not in ("learned", "perfect"):
        raise ValueError(f'judge is {judge!r}; expected "learned" or "perfect"')
    part = _part(table, target)
    if judge == "learned":
        _described(part.sample)
    return (cascade.LEARNED if judge == "learned" else cascade.PERFECT).fit(part).tuned(target)


def fit_cascade_routing(table: RoutingTable, target: float) -> CascadeRouting:
    """Cascade routing with a perfect judge that reaches a target on a table at the least cost.

    Args:
      table: scores and costs of all models.
      target: quality in [0, 1].

    Returns:
      The rule: `predictor`, `covariance`, `costs` and `price`.
    """
    return PERFECT_ROUTING.fit(_part(table, target)).tuned(target)


def _part(table: RoutingTable, target: float) -> Part:
    if not isinstance(table, RoutingTable):
        raise ValueError(f"table must be a RoutingTable, got {checks.show(table)}")
    if not 0 <= target <= 1:
        raise ValueError(f"target is {target}; expected a quality in [0, 1]")
    return Part(sample_of(table), WHOLE)


def _described(sample: Sample) -> None:
    if not sample.described:
        raise ValueError("the table has neither features nor groups, so nothing is known about a query before it is served")
