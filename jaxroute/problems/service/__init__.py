"""Service under an agreement on satisfaction (MESS+): explore all models or serve with one.

`messplus` is Algorithm 1 of the paper, composed of `parts` (virtual queue, predictors, cost models, pretraining). `env` is the environment, with
requests from `sources`. `instances` has the services of the paper's experiments and of users' data, and MESS+ with the settings of the paper, its
code and its theory. `baselines` has the paper's baselines and ablations of MESS+, `optimum` the cheapest policies for each kind of information,
`oracle` the policies that apply them, `theory` the bounds, and `types` the interfaces and metrics.
"""

from jaxroute.core.exports import public_names as _public_names
from jaxroute.estimators.heads import Logistic, Mlp
from jaxroute.estimators.sgd import SGD, TheorySteps
from jaxroute.problems.service.baselines import (
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
from jaxroute.problems.service.env import ServiceEnv
from jaxroute.problems.service.instances import (
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
from jaxroute.problems.service.messplus import MessPlus
from jaxroute.problems.service.optimum import (
    best_blind,
    best_clairvoyant,
    best_in_hindsight,
    best_informed,
    cheapest_choice,
)
from jaxroute.problems.service.oracle import OracleBlind, OracleClairvoyant, OracleInformed
from jaxroute.problems.service.parts.contrastive import cluster_loss, contrastive_loss
from jaxroute.problems.service.parts.costs import KnownCost, LastCost, RunningMeanCost
from jaxroute.problems.service.parts.predictors import Labels, Learned, TrueProbabilities
from jaxroute.problems.service.parts.pretraining import pretrain
from jaxroute.problems.service.sources import CellRequests, ProbitRequests, TableRequests, TypeRequests
from jaxroute.problems.service.theory import (
    admissible_probability,
    bound_mean_queue,
    bound_queue,
    bound_violation,
    expected_explorations,
    safety_margin,
)

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
    "ServiceEnv",
    "ShadowPrice",
    "Single",
    "TableRequests",
    "TheorySteps",
    "TrueProbabilities",
    "TypeRequests",
    "admissible_probability",
    "benchmark_service",
    "best_blind",
    "best_clairvoyant",
    "best_in_hindsight",
    "best_informed",
    "bound_mean_queue",
    "bound_queue",
    "bound_violation",
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
__dir__ = _public_names(__name__)
