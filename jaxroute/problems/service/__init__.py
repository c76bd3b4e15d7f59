"""Service under an agreement on satisfaction (MESS+): explore all models or serve with one."""

from jaxroute.estimators.heads import Logistic, Mlp
from jaxroute.estimators.sgd import SGD, TheorySteps
from jaxroute.problems.service.baselines import (
    CheapestAbove,
    EducatedGuessing,
    MostSatisfying,
    OracleBlind,
    OracleClairvoyant,
    OracleInformed,
    RandomMix,
    RouteLLM,
    ShadowPrice,
    Single,
    calibrate_threshold,
    educated_guess,
    strong_share,
)
from jaxroute.problems.service.benchmark import (
    admissible_chance,
    best_blind,
    best_clairvoyant,
    best_in_hindsight,
    best_informed,
    cheapest_choice,
)
from jaxroute.problems.service.costs import KnownCost, LastCost, RunningMeanCost
from jaxroute.problems.service.env import Service, service
from jaxroute.problems.service.messplus import (
    MessPlus,
    bound_mean_queue,
    bound_queue,
    bound_violation,
    expected_explorations,
    safety_margin,
)
from jaxroute.problems.service.offline import RouterDC, cluster_loss, contrastive_loss, fit_routerdc, pretrain
from jaxroute.problems.service.predictors import Labels, Learned, TrueChances
from jaxroute.problems.service.presets import code_policy, paper_policy, theory_policy
from jaxroute.problems.service.requests import CellRequests, ProbitRequests, TableRequests, TypeRequests
from jaxroute.problems.service.services import benchmark_service, cell_service, probit_service, table_service, typed_service

POLICIES = (
    MessPlus,
    ShadowPrice,
    MostSatisfying,
    CheapestAbove,
    Single,
    RandomMix,
    EducatedGuessing,
    RouteLLM,
    RouterDC,
    OracleBlind,
    OracleInformed,
    OracleClairvoyant,
)
ENVIRONMENTS = (benchmark_service, typed_service, cell_service, probit_service, table_service)

__all__ = [
    "ENVIRONMENTS",
    "POLICIES",
    "SGD",
    "CellRequests",
    "CheapestAbove",
    "EducatedGuessing",
    "KnownCost",
    "Labels",
    "LastCost",
    "Learned",
    "Logistic",
    "MessPlus",
    "Mlp",
    "MostSatisfying",
    "OracleBlind",
    "OracleClairvoyant",
    "OracleInformed",
    "ProbitRequests",
    "RandomMix",
    "RouteLLM",
    "RouterDC",
    "RunningMeanCost",
    "Service",
    "ShadowPrice",
    "Single",
    "TableRequests",
    "TheorySteps",
    "TrueChances",
    "TypeRequests",
    "admissible_chance",
    "benchmark_service",
    "best_blind",
    "best_clairvoyant",
    "best_in_hindsight",
    "best_informed",
    "bound_mean_queue",
    "bound_queue",
    "bound_violation",
    "calibrate_threshold",
    "cell_service",
    "cheapest_choice",
    "cluster_loss",
    "code_policy",
    "contrastive_loss",
    "educated_guess",
    "expected_explorations",
    "fit_routerdc",
    "paper_policy",
    "pretrain",
    "probit_service",
    "safety_margin",
    "service",
    "strong_share",
    "table_service",
    "theory_policy",
    "typed_service",
]
