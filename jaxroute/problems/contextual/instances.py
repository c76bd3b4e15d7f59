"""Functions that build ready-made contextual bandits, with random contexts or recorded queries."""

from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.data import RoutingTable, ServedLog, main_directions
from jaxroute.estimators.links import IDENTITY, LOGISTIC, Link
from jaxroute.problems.contextual.env import ContextualEnv, ServedEnv, TableEnv, UniformContexts
from jaxroute.sources.distributions import Bernoulli, Gaussian
from jaxroute.sources.served import ServedRequests

# Number of contexts on which the mean reward of a model is measured.
_CONTEXTS = 20_000


def linear(theta: Leaf, scale: float = 0.1, *, num_models: int | None = None, intercept: bool = False) -> ContextualEnv:
    """Builds a linear contextual bandit: the expected reward of a model is `theta_k . x_k`, with normal noise.

    Contexts are uniform in a cube, with norm at most 1.

    Args:
      theta: `[K, d]`, a parameter vector for each model, and one context for all; or `[d]`, one parameter vector for all, and a separate context for
        each of the `num_models`.
      scale: standard deviation of the noise.
      num_models: number of models `K` if they share one parameter vector, otherwise None.
      intercept: whether the first entry of a context is constant.
    """
    noise = np.float32(checks.non_negative("scale", scale, ()))
    return _environment(theta, num_models, intercept, scale=noise, link=IDENTITY, distribution=Gaussian())


def logistic(theta: Leaf, *, num_models: int | None = None, intercept: bool = False) -> ContextualEnv:
    """Builds a logistic contextual bandit: the reward of a model is 1 with probability `1 / (1 + exp(-theta_k . x_k))`, else 0.

    `theta` is `[K, d]`, or `[d]` for one parameter vector and separate contexts of `num_models` models; with `intercept` a context's first entry is
    constant. Contexts are uniform in a cube, with norm at most 1.
    """
    return _environment(theta, num_models, intercept, scale=np.float32(0.0), link=LOGISTIC, distribution=Bernoulli())


def _environment(theta: Leaf, num_models: int | None, intercept: bool, link: Link, **options: Any) -> ContextualEnv:
    parameters = checks.numbers("theta", theta)
    if parameters.ndim not in (1, 2) or 0 in parameters.shape:
        raise ValueError(f"theta must have shape [K, d], or [d] with num_models, got {parameters.shape}")
    if (parameters.ndim == 1) != (num_models is not None):
        shown = f"{num_models} with theta {parameters.shape}"
        raise ValueError(f"num_models must be given with one theta [d] for all models, and only then, got {shown}")
    shared = parameters.ndim == 1
    number = checks.count("num_models", num_models) if shared else len(parameters)
    parameters = np.atleast_2d(parameters)
    contexts = UniformContexts(parameters.shape[1], rows=number if shared else 1, intercept=bool(intercept))
    predictor = np.einsum("nrd,gd->nrg" if shared else "nrd,gd->ng", contexts.sample(_CONTEXTS), parameters)
    average = np.asarray(link.value(predictor.reshape(_CONTEXTS, number))).mean(axis=0)
    env = ContextualEnv(
        contexts=contexts,
        theta=parameters.astype(np.float32),
        average=average.astype(np.float32),
        num_models=number,
        link=link,
        **options,
    )
    env.check()
    return env


def table_routing(table: RoutingTable, *, cost_weight: float = 0.0, directions: int = 8, one_pass: bool = True) -> TableEnv:
    """Builds an environment that replays the queries of a table as a contextual bandit, a common baseline in papers on routers.

    A context has a constant 1 and the principal components of the query's features. If the table has no features, a context has indicators of the
    table's groups; if it has no groups either, a context is the constant 1.

    Args:
      table: scores and costs of every model on every query, preferably with features.
      cost_weight: score per unit of cost.
      directions: largest number of principal components of the features.
      one_pass: whether each query is used once, in a random order, before any is repeated; otherwise rows are drawn with replacement.
    """
    if not isinstance(table, RoutingTable):
        raise ValueError(f"table must be a RoutingTable (see jaxroute.data), got {checks.show(table)}")
    weight = float(checks.non_negative("cost_weight", cost_weight, ()))
    features = _contexts(table, directions)
    rewards = np.asarray(table.scores, np.float64) - weight * np.asarray(table.costs, np.float64)
    env = TableEnv(
        features=features.astype(np.float32),
        scores=np.asarray(table.scores),
        costs=np.asarray(table.costs),
        cost_weight=np.float32(weight),
        fit=np.linalg.lstsq(features, rewards)[0].astype(np.float32),
        average=rewards.mean(axis=0).astype(np.float32),
        one_pass=bool(one_pass),
        names=table.models,
        currency=table.currency,
    )
    env.check()
    return env


def served_routing(
    log: ServedLog,
    *,
    cost_weight: float = 0.0,
    directions: int = 8,
    floor: float | None = None,
    rounds: int | None = None,
    bootstrap: bool = False,
) -> ServedEnv:
    """Builds an environment that evaluates policies on a log of served queries (see `ServedEnv` for the conditions).

        env = contextual.served_routing(log)
        policy = contextual.ReplayedPolicy(contextual.LinUCB(alpha=0.5))
        result = jr.simulate(env, {"LinUCB": policy}, horizon=env.num_rounds, seeds=1024)
        value = result["reward"] / result["accepted"]  # at the end, with all `env.rounds` accepted queries

    Contexts are those of `table_routing`.

    Args:
      log: served log with propensities, preferably with features.
      cost_weight: score per unit of cost; the reward is the score minus `cost_weight` times the cost.
      directions: largest number of principal components of the features.
      floor: least probability of any model on any query, at most the smallest propensity; None for that propensity.
      rounds: number of accepted events that count; None for the largest number that almost every run reaches, five standard deviations below `Q floor`.
      bootstrap: whether each run draws `Q` events with replacement; otherwise it has each event once, in a random order.
    """
    checks.instance("log", log, ServedLog)
    requests = ServedRequests.of(log, floor=floor, by_model=False, cost_weight=cost_weight, bootstrap=bootstrap)
    least = float(np.min(np.asarray(log.propensity))) if floor is None else float(floor)
    most = requests.sure_rounds(least) if rounds is None else rounds
    if rounds is None and most < 1:
        counted = f"about {least * requests.num_requests:.3g} of {requests.num_requests} events"
        raise ValueError(
            f"rounds must be given: with propensities from {least:.3g}, {counted} are accepted, too few for a default"
        )
    env = ServedEnv(requests, _contexts(log, directions)[log.query].astype(np.float32), most)
    env.check()
    return env


def _contexts(table: RoutingTable | ServedLog, directions: int) -> np.ndarray:
    """Returns the contexts of all queries: principal components of their features, else indicators of their groups, else a constant 1."""
    checks.count("directions", directions)
    if table.features is not None:
        return main_directions(table.features, min(directions, table.features.shape[1]))
    if table.groups is not None:
        return np.eye(len(table.group_names))[table.groups]
    return np.ones((table.num_queries, 1))
