"""Predictors that do not fit."""

import numpy as np
import pytest
from service_cases import SPEC, run

from jaxroute.core import draws
from jaxroute.problems import service as sv

WRONG_PARAMS = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.float32)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: run(sv.MessPlus(predictor=sv.Learned("head"))), "head must be Logistic"),
        (lambda: run(sv.MessPlus(predictor=sv.Learned(sv.Mlp(dropout=1.0)))), "dropout must be at least 0 and below 1, got 1"),
        (lambda: run(sv.MessPlus(predictor=sv.Learned(sv.Mlp(width=0)))), "width must be at least 1"),
        (lambda: run(sv.MessPlus(predictor=sv.Learned(sv.Logistic(init_spread=-1.0)))), "init_spread must be at least 0"),
        (lambda: run(sv.MessPlus(predictor=sv.Learned(params=WRONG_PARAMS))), "params must have the shapes"),
        (lambda: run(sv.MessPlus(predictor=sv.TrueChances(None))), "requests must be those of an environment"),
        (lambda: run(sv.MessPlus(predictor=sv.Labels())), "Labels needs an environment with reveals_labels=True"),
        (lambda: sv.TrueChances(sv.benchmark_service().requests).init(draws.key(0), SPEC), "requests must be those of this"),
    ],
)  # fmt: skip
def test_bad_input_of_predictors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
