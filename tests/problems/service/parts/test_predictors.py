"""Predictors that do not fit."""

import jax
import numpy as np
import pytest
from service_cases import SPEC, run, table

from jaxroute.core import draws
from jaxroute.problems import service as sv

WINOGRANDE, TABLE = sv.benchmark_service("winogrande"), table()
# Another benchmark with as many features.
PIQA = sv.TrueProbabilities(sv.benchmark_service("piqa").requests)
WRONG_PARAMS = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.float32)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: run(sv.MessPlus(predictor=sv.Learned("head"))), "head must be Logistic"),
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
    ],
)  # fmt: skip
def test_bad_input_of_predictors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_equal_requests_are_those_of_the_environment():
    again = sv.benchmark_service("winogrande", alpha=0.75).requests
    sv.MessPlus(predictor=sv.TrueProbabilities(again)).check_spec(WINOGRANDE.spec)
    jax.jit(lambda env: sv.MessPlus(predictor=PIQA).check_spec(env.spec))(WINOGRANDE)  # What is traced cannot be compared.
