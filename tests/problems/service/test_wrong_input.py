"""Wrong input: the error names the argument, its value and the allowed values."""

import jax
import numpy as np
import pytest
from service_cases import SPEC, run, table

from jaxroute.core import draws
from jaxroute.estimators.heads import SGD, TheorySteps
from jaxroute.problems import service as sv

WINOGRANDE, TABLE = sv.benchmark_service("winogrande"), table()
# Another benchmark with as many features.
PIQA = sv.TrueProbabilities(sv.benchmark_service("piqa").requests)
WRONG_PARAMS = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.float32)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        # Environments.
        (lambda: sv.typed_service(alpha=0.0), r"alpha must be in \(0, 1\], got 0"),
        (lambda: sv.typed_service(alpha="high"), "alpha must be a number"),
        (lambda: sv.typed_service(alpha=[0.5, 0.6]), r"alpha must have shape \(\)"),
        (lambda: sv.typed_service(arrival=0.0), r"arrival must be in \(0, 1\]"),
        (lambda: sv.typed_service(names=["a"]), "names must have one name per model"),
        (lambda: sv.typed_service(success=[[0.5]]), "success and cost must be given together"),
        (lambda: sv.typed_service([[0.5, 1.2]], [[1.0, 2.0]]), r"success must be in \[0, 1\], got 1.2"),
        (lambda: sv.typed_service([0.5, 0.6], [1.0, 2.0]), r"success must have shape \[types, models\]"),
        (lambda: sv.typed_service([[0.5, 0.6]], [[2.0, 1.0]]), "cost must not fall from model to model"),
        (lambda: sv.typed_service([[0.5, 0.6]], [[-1.0, 1.0]]), "cost must be at least 0"),
        (lambda: sv.typed_service([[0.5, 0.6]], [[1.0]]), "cost must have shape"),
        (lambda: sv.typed_service(weight=[0.5, 0.4, 0.2]), "weight must sum to 1"),
        (lambda: sv.typed_service(weight=[1.5, -0.3, -0.2]), "weight must be at least 0"),
        (lambda: sv.typed_service(cost_noise=-0.1), "cost_noise must be at least 0"),
        (lambda: sv.typed_service(features=np.ones((3, 2))), "features must be 3 different rows"),
        (lambda: sv.cell_service([1, -1, 1, 1], [1.0, 2.0], [0.1, 0.1], alpha=0.5), "cells must be at least 0, got -1"),
        (lambda: sv.cell_service([0, 0, 0, 0], [1.0, 2.0], [0.1, 0.1], alpha=0.5), "cells must not all be 0"),
        (lambda: sv.cell_service([1, 1, 1], [1.0, 2.0], [0.1, 0.1], alpha=0.5), "cells"),
        (lambda: sv.cell_service([1, 1, 1, 1], [1.0, 2.0], [0.1], alpha=0.5), "cost_spread must have shape"),
        (lambda: sv.cell_service([1, 1, 1, 1], [1.0, 2.0], [0.1, -0.1], alpha=0.5), "cost_spread must be at least 0"),
        (lambda: sv.cell_service([1, 1, 1, 1], [1.0, 2.0], [0.1, 0.1], alpha=0.5, signal=np.inf), "signal must be finite"),
        (lambda: sv.cell_service([1, 1, 1, 1], [1.0, 2.0], [0.1, 0.1], alpha=0.5, num_noise=-1), "num_noise must be"),
        (lambda: sv.benchmark_service("winogrand"), "benchmark must be one of .*did you mean 'winogrande'"),
        (lambda: sv.probit_service([0.5, 1.0], [1.0, 2.0], alpha=0.5), "accuracy must be .* above 0 and below 1"),
        (lambda: sv.probit_service([0.5, 1.1], [1.0, 2.0], alpha=0.5), r"accuracy must be in \[0, 1\]"),
        (lambda: sv.probit_service([0.5, 0.6], [1.0], alpha=0.5), "cost must have shape"),
        (lambda: sv.probit_service([0.5, 0.6], [1.0, 2.0], alpha=0.5, from_features=0.9, shared=0.9), "from_features.*shared.* at most 1"),
        (lambda: sv.probit_service([0.5, 0.6], [1.0, 2.0], alpha=0.5, num_features=0), "num_features must be at least 1"),
        (lambda: sv.probit_service([0.5, 0.6], [1.0, 2.0], alpha=0.5, directions=-1), "directions must be at least 0"),
        (lambda: sv.probit_service([0.5, 0.6], [1.0, 2.0], alpha=0.5, length_spread=-1.0), "length_spread must be at least 0"),
        (lambda: sv.table_service([[0.1]], alpha=0.5), "table must be a RoutingTable"),
        (lambda: table(threshold=0.0), r"threshold must be in \(0, 1\]"),
        (lambda: sv.service(None, alpha=0.5), "requests must be TypeRequests"),
        *((lambda make=make: run(env=make), rf"for one environment call it: env={make.__name__}\(") for make in sv.ENVIRONMENTS),
        # Bounds.
        (lambda: sv.safety_margin(0.0, 1.0, 0.1, 10), "V must be above 0"),
        (lambda: sv.safety_margin(1.0, 1.0, 0.0, 10), "slack must be above 0"),
        (lambda: sv.bound_mean_queue(1.0, 1.0, 0.1, 0.0), "excess must be above 0"),
        (lambda: sv.bound_queue(1.0, 1.0, 0.1, 0), "horizon must be at least 1"),
        (lambda: sv.expected_explorations(-1.0, 10), "c must be at least 0"),
        # MESS+.
        (lambda: run(sv.MessPlus(V=-1.0)), "V must be at least 0, got -1"),
        (lambda: run(sv.MessPlus(c=-0.1)), "c must be at least 0, got -0.1"),
        (lambda: run(sv.MessPlus(explore_power=-1.0)), "explore_power must be at least 0"),
        (lambda: run(sv.MessPlus(l2=-1.0)), "l2 must be at least 0"),
        (lambda: run(sv.MessPlus(energy=-1.0)), "energy must be at least 0"),
        (lambda: run(sv.MessPlus(margin=np.nan)), "margin must be finite"),
        (lambda: run(sv.MessPlus(repeats=0)), "repeats must be at least 1"),
        (lambda: run(sv.MessPlus(optimiser=SGD(learning_rate=-0.1))), "learning_rate must be at least 0, got -0.1"),
        (lambda: run(sv.MessPlus(optimiser=SGD(momentum=1.0))), "momentum must be at least 0 and below 1, got 1"),
        (lambda: run(sv.MessPlus(optimiser=SGD(weight_decay=-1.0))), "weight_decay must be at least 0"),
        (lambda: run(sv.MessPlus(optimiser=SGD(clip=0.0))), "clip must be above 0"),
        (lambda: run(sv.MessPlus(optimiser=SGD(TheorySteps(0.0, 1.0)))), "mu must be above 0"),
        (lambda: run(sv.MessPlus(optimiser="sgd")), "optimiser must be an object such as SGD"),
        (lambda: run(sv.MessPlus(costs="known")), "costs must be an object such as KnownCost"),
        (lambda: run(sv.MessPlus(predictor=sv.Logistic())), "predictor must be an object such as Learned"),
        (lambda: run(env=sv.typed_service(knows_cost=False)), "KnownCost needs an environment with knows_cost=True"),
        # Baselines.
        (lambda: run(sv.ShadowPrice(price=-1.0)), "price must be at least 0"),
        (lambda: run(sv.Single(0.5)), "model must be a whole number"),
        (lambda: run(sv.Single(-2)), "model must be at least -1, got -2"),
        (lambda: run(sv.RandomMix(np.array([0.5, 0.5]))), "probabilities must have one entry per model"),
        (lambda: run(sv.RandomMix(np.zeros(3))), "probabilities must be .* not all 0"),
        (lambda: run(sv.RouteLLM(threshold=1.5)), r"threshold must be in \[0, 1\]"),
        (lambda: run(sv.RouteLLM(spread=0.0)), "spread must be above 0"),
        (lambda: run(sv.RouteLLM(energy=-1.0)), "energy must be at least 0"),
        (lambda: run(sv.RouteLLM(advantage=1.0)), "advantage needs a predictor"),
        (lambda: sv.fit_routerdc(sv.typed_service(), batch=0), "batch must be at least 1"),
        (lambda: sv.fit_routerdc(sv.typed_service(), learning_rate=0.0), "learning_rate must be above 0"),
        (lambda: sv.fit_routerdc(sv.typed_service(), cluster_weight=-1.0), "cluster_weight must be at least 0"),
        (lambda: sv.RouterDC(np.zeros((3, 2)), np.zeros((9, 2))).init(draws.key(0), SPEC), "encoder and experts must have"),
        (lambda: sv.RouteLLM(predictor=sv.Learned()).check(), "predictor must be TrueProbabilities"),
        (lambda: sv.fit_routerdc(sv.benchmark_service(), num_clusters=1), "num_clusters must be at least 2"),
        # Predictors.
        (lambda: run(sv.MessPlus(predictor=sv.Learned("head"))), "head must be an object such as Logistic"),
        (lambda: run(sv.MessPlus(predictor=sv.Learned(sv.Mlp(dropout=1.0)))), "dropout must be at least 0 and below 1, got 1"),
        (lambda: run(sv.MessPlus(predictor=sv.Learned(sv.Mlp(width=0)))), "width must be at least 1"),
        (lambda: run(sv.MessPlus(predictor=sv.Learned(sv.Logistic(init_spread=-1.0)))), "init_spread must be at least 0"),
        (lambda: run(sv.MessPlus(predictor=sv.Learned(params=WRONG_PARAMS))), "params must have the shapes"),
        (lambda: run(sv.MessPlus(predictor=sv.TrueProbabilities(None))), "requests must be those of an environment"),
        (lambda: run(sv.MessPlus(predictor=sv.Labels())), "Labels needs an environment with reveals_labels=True"),
        (lambda: sv.TrueProbabilities(sv.benchmark_service().requests).init(draws.key(0), SPEC), "requests must be those of this"),
        (lambda: run(sv.MessPlus(predictor=PIQA), WINOGRANDE), "requests must be those of this environment, TrueProbabilities"),
        (lambda: run(sv.RouteLLM(advantage=1.0, predictor=PIQA), WINOGRANDE), "requests must be those of this environment"),
        (lambda: run(sv.OracleInformed(WINOGRANDE.best, PIQA), WINOGRANDE), "requests must be those of this environment"),
        (lambda: run(sv.MessPlus(predictor=sv.TrueProbabilities(TABLE.requests)), TABLE), "has no true probabilities; use a predictor"),
        (lambda: sv.RouteLLM.knowing(TABLE, 0.5), "a table of recorded requests has no true probabilities"),
        (lambda: run(sv.OracleInformed.of, TABLE), "a table of recorded requests has no true probabilities"),
        (lambda: run(sv.OracleClairvoyant.of), "Labels needs an environment with reveals_labels=True"),
        (lambda: sv.pretrain(sv.typed_service(), sv.Logistic(), steps=0), "steps must be at least 1"),
        # Optima.
        (lambda: sv.best_in_hindsight(np.ones(3), np.ones(3), 0.5), "satisfied must have shape"),
        (lambda: sv.best_in_hindsight(np.ones((3, 2)), np.ones(3), 0.5), "cost must have shape"),
    ],
)  # fmt: skip
def test_wrong_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_equal_requests_are_those_of_the_environment():
    again = sv.benchmark_service("winogrande", alpha=0.75).requests
    sv.MessPlus(predictor=sv.TrueProbabilities(again)).check_spec(WINOGRANDE.spec)
    jax.jit(lambda env: sv.MessPlus(predictor=PIQA).check_spec(env.spec))(WINOGRANDE)  # What is traced cannot be compared.
