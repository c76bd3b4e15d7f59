"""Service that must satisfy an agreed share alpha of its requests (MESS+). A request is served by one model, or explored with all models.

`messplus` is the paper's Algorithm 1, composed of `parts`; `baselines` and `oracle` are the other policies. `env` is the environment, with requests
from `sources`; `instances` builds it, and MESS+ with the settings of the paper, its code and its theory. `optimum` computes the cheapest policies
that meet the target, by what they know about a request, `theory` the paper's bounds, and `types` the types that environment and policies exchange.
"""

from jaxroute.core.exports import public_names as _public_names
from jaxroute.estimators.heads import SGD, Logistic, Mlp, TheorySteps

from .baselines import (
    CheapestAbove,
    EducatedGuessing,
    MostSatisfying,
    RandomMix,
    RouteLLM,
    RouterDC,
    ShadowPrice,
    Single,
    educated_guess,
    fit_routerdc,
    strong_share,
)
from .env import ServiceEnv
from .instances import (
    benchmark_service,
    cell_service,
    code_policy,
    paper_policy,
    probit_service,
    service,
    table_service,
    theory_policy,
    typed_service,
)
from .messplus import MessPlus
from .optimum import best_blind, best_clairvoyant, best_in_hindsight, best_informed, cheapest_choice
from .oracle import OracleBlind, OracleClairvoyant, OracleInformed
from .parts.contrastive import cluster_loss, contrastive_loss
from .parts.predictors import KnownCost, Labels, LastCost, Learned, RunningMeanCost, TrueProbabilities, pretrain
from .sources import CellRequests, ProbitRequests, TableRequests, TypeRequests
from .theory import (
    admissible_probability,
    bound_mean_queue,
    bound_queue,
    bound_violation,
    expected_explorations,
    safety_margin,
)

POLICIES = (
    MessPlus, ShadowPrice, MostSatisfying, CheapestAbove, Single, RandomMix, EducatedGuessing, RouteLLM, RouterDC,
    OracleBlind, OracleInformed, OracleClairvoyant,
)  # fmt: skip
ENVIRONMENTS = (benchmark_service, typed_service, cell_service, probit_service, table_service)

__all__ = [
    "ENVIRONMENTS", "POLICIES", "SGD", "CellRequests", "CheapestAbove", "EducatedGuessing", "KnownCost", "Labels",
    "LastCost", "Learned", "Logistic", "MessPlus", "Mlp", "MostSatisfying", "OracleBlind", "OracleClairvoyant",
    "OracleInformed", "ProbitRequests", "RandomMix", "RouteLLM", "RouterDC", "RunningMeanCost", "ServiceEnv", "ShadowPrice",
    "Single", "TableRequests", "TheorySteps", "TrueProbabilities", "TypeRequests", "admissible_probability",
    "benchmark_service", "best_blind", "best_clairvoyant", "best_in_hindsight", "best_informed", "bound_mean_queue",
    "bound_queue", "bound_violation", "cell_service", "cheapest_choice", "cluster_loss", "code_policy", "contrastive_loss",
    "educated_guess", "expected_explorations", "fit_routerdc", "paper_policy", "pretrain", "probit_service",
    "safety_margin", "service", "strong_share", "table_service", "theory_policy", "typed_service",
]  # fmt: skip
__dir__ = _public_names(__name__)
