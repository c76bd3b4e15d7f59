"""Services of the paper's experiments and of users' data, and MESS+ with the settings of the paper, its code and its theory."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.scipy.special import ndtri

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.data import MESSPLUS_BENCHMARKS, MESSPLUS_MODELS, MESSPLUS_WEIGHT_DECAY, RoutingTable
from jaxroute.estimators.heads import SGD, TheorySteps
from jaxroute.problems.service.env import ServiceEnv
from jaxroute.problems.service.messplus import MessPlus
from jaxroute.problems.service.optimum import Optimum, best_blind, best_informed, cheapest_choice
from jaxroute.problems.service.parts.predictors import LastCost
from jaxroute.problems.service.sources import CellRequests, ProbitRequests, RequestSource, TableRequests, TypeRequests
from jaxroute.problems.service.types import Price


def _price(optimum: Optimum) -> Price:
    return Price(*(np.float32(x) for x in (optimum.cost, min(optimum.price, 1e9), optimum.part)))


def service(
    requests: RequestSource,
    *,
    alpha: float,
    arrival: float | None = None,
    knows_cost: bool = True,
    reveals_labels: bool = False,
    serve_best: bool = False,
    names: Sequence[str] = (),
    currency: str = "J",
) -> ServiceEnv:
    """Builds a service and computes the costs of its optimal policies.

    Args:
      requests: `TypeRequests`, `CellRequests`, `ProbitRequests` or `TableRequests` of `M` models in ascending order of mean cost.
      alpha: share of satisfied requests that the agreement requires. An unreachable target causes a warning: the virtual queue then grows forever.
      arrival: probability that a user gives feedback (default: 1). Without feedback a policy learns nothing, even from an explored request.
      knows_cost: whether the costs of a request are observed before the decision.
      reveals_labels: whether satisfaction is observed before the decision, for clairvoyant policies only.
      serve_best: whether an explored request is answered by the largest satisfying model instead of the largest one.
      names, currency: names of the models, and currency of the costs.
    """
    if not (hasattr(requests, "draw") and hasattr(requests, "contexts")):
        allowed = "TypeRequests, CellRequests, ProbitRequests or TableRequests"
        raise ValueError(f"requests must be {allowed}, got {checks.show(requests)}")
    requests.check()
    alpha = float(checks.share("alpha", alpha, ()))
    blind = best_blind(requests, alpha)
    best = best_informed(requests, alpha, knows_cost)
    if not best.feasible:
        who = "no mixture of the models" if len(best.choice) == 1 else "no policy, even if it knew the probabilities,"
        why = f"{who} satisfies more than {best.satisfaction:.4g}: the virtual queue grows without end"
        warnings.warn(f"alpha is {alpha:g}, but {why}", stacklevel=2)
    average = requests.average()
    accuracy, mean_cost = average.success[0], average.cost[0]
    if (np.diff(mean_cost) < 0).any():
        raise ValueError(f"cost must not fall from model to model on average, got {np.round(mean_cost, 6).tolist()}")
    if names and len(names) != len(accuracy):
        raise ValueError(f"names must have one name per model ({len(accuracy)}), got {len(names)}")
    return ServiceEnv(
        requests=requests,
        alpha=np.float32(alpha),
        arrival=None if arrival is None else np.float32(checks.share("arrival", arrival, ())),
        accuracy=accuracy.astype(np.float32),
        mean_cost=mean_cost.astype(np.float32),
        best=_price(best),
        clairvoyant=_price(cheapest_choice(requests.clairvoyant_contexts(knows_cost), alpha)),
        blind_cost=np.float32(blind.cost),
        blind_choice=blind.choice[0].astype(np.float32),
        knows_cost=bool(knows_cost),
        reveals_labels=bool(reveals_labels),
        serve_best=bool(serve_best),
        names=tuple(names),
        currency=str(currency),
    )


def typed_service(
    success: Leaf | None = None,
    cost: Leaf | None = None,
    weight: Leaf | None = None,
    *,
    alpha: float = 0.75,
    features: Leaf | None = None,
    cost_noise: float = 0.0,
    comonotone: bool = False,
    **options: Any,
) -> ServiceEnv:
    """Builds a service with a few types of requests, whose optimal costs are exact; by default three types and three models.

    With more than 12 independent models the clairvoyant optimum is estimated from 65,536 requests.

    Args:
      success: `[K, M]` probability that each of `M` models satisfies a request of each of `K` types.
      cost: `[K, M]` mean cost, J.
      weight: `[K]` shares of the types (default: equal).
      alpha, options: required share of satisfied requests, and other arguments of `service`, such as `arrival`.
      features: `[K, d]` features of each type (default: one-hot).
      cost_noise: standard deviation of the logarithm of a cost.
      comonotone: whether satisfaction is nested: if a model satisfies, so do all models with larger probabilities; otherwise models are independent.
    """
    if (success is None) != (cost is None):
        raise ValueError("success and cost must be given together, or neither")
    if success is None:
        weight = np.array([0.5, 0.3, 0.2]) if weight is None else weight
        success = np.array([[0.90, 0.94, 0.96], [0.50, 0.75, 0.92], [0.20, 0.50, 0.80]])
        cost = np.outer([1.0, 1.2, 1.5], [50.0, 200.0, 1000.0])
    success = checks.probability("success", success)
    if success.ndim != 2:
        raise ValueError(f"success must have shape [types, models], got {success.shape}")
    number = len(success)
    requests = TypeRequests(
        weight=np.asarray(np.full(number, 1.0 / number) if weight is None else checks.numbers("weight", weight), np.float32),
        probability=success.astype(np.float32),
        cost_mean=checks.non_negative("cost", cost, success.shape).astype(np.float32),
        cost_noise=np.float32(checks.non_negative("cost_noise", cost_noise, ())),
        vectors=np.asarray(np.eye(number) if features is None else checks.numbers("features", features), np.float32),
        comonotone=bool(comonotone),
    )
    return service(requests, alpha=alpha, **options)


def cell_service(
    cells: Leaf, cost: Leaf, cost_spread: Leaf, *, alpha: float, signal: float = 0.0, num_noise: int = 4, **options: Any
) -> ServiceEnv:
    """Builds a service with a given joint distribution of satisfaction.

    Args:
      cells: `[2 ** M]` for each set of models the share or count of requests that exactly these models satisfy (`M` at most 20); the first model is
        the highest bit of a set's index (for two models: none, the second, the first, both).
      cost, cost_spread: `[M]` mean and standard deviation of each model's cost, J.
      alpha, options: required share of satisfied requests, and other arguments of `service`, such as `arrival`.
      signal: strength with which a request's features, one per model, predict which models satisfy: 0 not at all, .15 weakly (area under the ROC
        curve .58), .6 strongly (.80).
      num_noise: number of uninformative features.
    """
    weight = checks.non_negative("cells", cells)
    if weight.sum() <= 0:
        raise ValueError("cells must not all be 0")
    requests = CellRequests(
        weight=(weight / weight.sum()).astype(np.float32),
        cost_mean=checks.non_negative("cost", cost).astype(np.float32),
        cost_spread=checks.non_negative("cost_spread", cost_spread).astype(np.float32),
        signal=np.float32(checks.numbers("signal", signal, ())),
        num_noise=num_noise,
    )
    return service(requests, alpha=alpha, **options)


def benchmark_service(benchmark: str = "winogrande", *, alpha: float | None = None, **options: Any) -> ServiceEnv:
    """Builds one of the paper's eight benchmarks with Llama models of 1B, 8B and 70B parameters. Source: MESS+, section 4.1, Table 2.

    The joint distribution of satisfaction and the energy per request were measured (see `jaxroute.data.MESSPLUS_BENCHMARKS`). Features are synthetic
    and by default uninformative, since the texts of these benchmarks predict little.

    Args:
      benchmark: "arc_challenge", "arc_easy", "boolq", "logiqa", "piqa", "sciq", "socialiqa" or "winogrande".
      alpha: required share of satisfied requests (default: the target of Table 2).
      options: other arguments of `cell_service` and `service`, such as `signal` and `arrival`.
    """
    data = MESSPLUS_BENCHMARKS[checks.one_of("benchmark", benchmark, MESSPLUS_BENCHMARKS)]
    alpha = data.alpha if alpha is None else alpha
    options = {"names": MESSPLUS_MODELS, **options}
    return cell_service(data.cells, data.energy_mean, data.energy_sd, alpha=alpha, **options)


def probit_service(
    accuracy: Leaf,
    cost: Leaf,
    *,
    alpha: float,
    from_features: float = 0.3,
    shared: float = 0.6,
    length_spread: float = 0.0,
    num_features: int = 8,
    directions: int = 0,
    **options: Any,
) -> ServiceEnv:
    """Builds a service of `ProbitRequests`: normal features and given accuracies, for any number of models.

    Args:
      accuracy: `[M]` accuracies in (0, 1).
      cost: `[M]` mean cost, J.
      alpha, options: required share of satisfied requests, and other arguments of `service`, such as `arrival`.
      from_features: weight of the features in the latent number whose sign decides satisfaction, see `ProbitRequests`.
      shared: weight, in this number, of a difficulty of the request that all models share; `from_features^2 + shared^2` is at most 1.
      length_spread: standard deviation of the logarithm of a request's length, which is a factor of all costs.
      num_features: number of features, `d`.
      directions: seed of the random directions in feature space, one per model, that predict satisfaction by the model.
    """
    accuracy = checks.probability("accuracy", accuracy)
    if accuracy.ndim != 1 or ((accuracy <= 0) | (accuracy >= 1)).any():
        raise ValueError(f"accuracy must be [models] numbers above 0 and below 1, got {checks.show(accuracy.tolist())}")
    rows = np.random.default_rng(checks.count("directions", directions, minimum=0)).normal(
        size=(len(accuracy), checks.count("num_features", num_features))
    )
    requests = ProbitRequests(
        threshold=np.asarray(ndtri(accuracy), np.float32),
        direction=(rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32),
        from_features=np.float32(checks.numbers("from_features", from_features, ())),
        shared=np.float32(checks.numbers("shared", shared, ())),
        cost_mean=checks.non_negative("cost", cost, accuracy.shape).astype(np.float32),
        length_spread=np.float32(checks.non_negative("length_spread", length_spread, ())),
    )
    return service(requests, alpha=alpha, **options)


def table_service(table: RoutingTable, *, alpha: float, threshold: float = 0.5, **options: Any) -> ServiceEnv:
    """Builds a service that replays recorded requests in a random order for each run, each once before any is repeated.

    Models are sorted by ascending cost, and a constant 1 is appended to the table's features.

    Args:
      table: scores in [0, 1] and costs of `M` models on `N` requests, `[N, M]`, preferably with features.
      alpha, options: required share of satisfied requests, and other arguments of `service`, such as `arrival`; costs are in the table's unit.
      threshold: smallest score that counts as satisfaction.
    """
    checks.instance("table", table, RoutingTable)
    threshold = float(checks.share("threshold", threshold, ()))
    table = table.order_by_cost()
    ones = np.ones((table.num_queries, 1), np.float32)
    requests = TableRequests(
        labels=(table.scores >= threshold).astype(np.float32),
        cost_table=table.costs.astype(np.float32),
        vectors=ones if table.features is None else np.concatenate([table.features, ones], axis=1),
    )
    return service(requests, alpha=alpha, **{"names": table.models, "currency": table.currency, **options})


def paper_policy(benchmark: str = "winogrande", **changes: Any) -> MessPlus:
    """Returns MESS+ with V = 1e-3, c = .1, a logistic classifier, and Table 4's SGD settings for `benchmark`; `changes` override its fields."""
    data = MESSPLUS_BENCHMARKS[checks.one_of("benchmark", benchmark, MESSPLUS_BENCHMARKS)]
    optimiser = SGD(data.learning_rate, data.momentum, MESSPLUS_WEIGHT_DECAY)
    return MessPlus(**{"optimiser": optimiser, **changes})


def code_policy(benchmark: str = "winogrande", **changes: Any) -> MessPlus:
    """Returns MESS+ with the settings that the authors' later public code has for `benchmark`; `changes` override fields of `MessPlus`.

    Gradients are clipped to norm 1, some benchmarks take several SGD steps per explored request, costs are estimated by those of the last explored
    request (`LastCost`), and the first request is not always explored.
    """
    data = MESSPLUS_BENCHMARKS[checks.one_of("benchmark", benchmark, MESSPLUS_BENCHMARKS)]
    optimiser = SGD(data.learning_rate, data.momentum, MESSPLUS_WEIGHT_DECAY, clip=1.0)
    options = {"optimiser": optimiser, "costs": LastCost(), "explores_first": False, "repeats": data.passes}
    return MessPlus(**{**options, **changes})


def theory_policy(mu: float = 0.1, smoothness: float = 1.0, **changes: Any) -> MessPlus:
    """Returns MESS+ with the step sizes and the loss of Lemma A.1; `changes` override fields of `MessPlus`.

    The loss includes half the squared norm of the parameters with weight `mu`, the constant of the Polyak-Lojasiewicz inequality. Step `k` of SGD,
    without momentum, has size `min(2 / (mu (k + 1)), 1 / smoothness)`, where `smoothness` is the Lipschitz constant of the gradient.
    """
    optimiser = SGD(TheorySteps(mu, smoothness), momentum=0.0, weight_decay=0.0)
    return MessPlus(**{"optimiser": optimiser, "l2": mu, **changes})
