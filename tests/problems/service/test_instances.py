"""Constructors refuse what is out of range."""

import warnings

import numpy as np
import pytest
from service_cases import run, table

from jaxroute.problems import service as sv


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sv.typed_service(alpha=0.0), r"alpha must be in \(0, 1\], got 0"),
        (lambda: sv.typed_service(alpha=1.5), r"alpha must be in \(0, 1\], got 1.5"),
        (lambda: sv.typed_service(alpha=np.nan), "alpha must be finite, got nan"),
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
        (lambda: sv.typed_service(weight=[0.5, 0.5]), "weight must have shape"),
        (lambda: sv.typed_service(weight=[1.5, -0.3, -0.2]), "weight must be at least 0"),
        (lambda: sv.typed_service(cost_noise=-0.1), "cost_noise must be at least 0"),
        (lambda: sv.typed_service(features=np.ones((3, 2))), "features must be 3 different rows"),
        (lambda: sv.cell_service([1, -1, 1, 1], [1.0, 2.0], [0.1, 0.1], alpha=0.5), "cells must be at least 0, got -1"),
        (lambda: sv.cell_service([0, 0, 0, 0], [1.0, 2.0], [0.1, 0.1], alpha=0.5), "cells must not all be 0"),
        (lambda: sv.cell_service([1, 1, 1], [1.0, 2.0], [0.1, 0.1], alpha=0.5), "cells"),
        (lambda: sv.cell_service([1, 1, 1, 1], [2.0, 1.0], [0.1, 0.1], alpha=0.5), "cost must not fall"),
        (lambda: sv.cell_service([1, 1, 1, 1], [1.0, 2.0], [0.1], alpha=0.5), "cost_spread must have shape"),
        (lambda: sv.cell_service([1, 1, 1, 1], [1.0, 2.0], [0.1, -0.1], alpha=0.5), "cost_spread must be at least 0"),
        (lambda: sv.cell_service([1, 1, 1, 1], [1.0, 2.0], [0.1, 0.1], alpha=0.5, signal=np.inf), "signal must be finite"),
        (lambda: sv.cell_service([1, 1, 1, 1], [1.0, 2.0], [0.1, 0.1], alpha=0.5, num_noise=-1), "num_noise must be"),
        (lambda: sv.benchmark_service("winogrand"), "benchmark must be one of .*did you mean 'winogrande'"),
        (lambda: sv.benchmark_service(alpha=0.0), "alpha must be in"),
        (lambda: sv.probit_service([0.5, 1.0], [1.0, 2.0], alpha=0.5), "accuracy must be .* above 0 and below 1"),
        (lambda: sv.probit_service([0.5, 1.1], [1.0, 2.0], alpha=0.5), r"accuracy must be in \[0, 1\]"),
        (lambda: sv.probit_service([0.5, 0.6], [2.0, 1.0], alpha=0.5), "cost must not fall"),
        (lambda: sv.probit_service([0.5, 0.6], [1.0], alpha=0.5), "cost must have shape"),
        (lambda: sv.probit_service([0.5, 0.6], [1.0, 2.0], alpha=0.5, from_features=0.9, shared=0.9), "from_features.*shared.* at most 1"),
        (lambda: sv.probit_service([0.5, 0.6], [1.0, 2.0], alpha=0.5, num_features=0), "num_features must be at least 1"),
        (lambda: sv.probit_service([0.5, 0.6], [1.0, 2.0], alpha=0.5, directions=-1), "directions must be at least 0"),
        (lambda: sv.probit_service([0.5, 0.6], [1.0, 2.0], alpha=0.5, length_spread=-1.0), "length_spread must be at least 0"),
        (lambda: sv.table_service([[0.1]], alpha=0.5), "table must be a RoutingTable"),
        (lambda: table(threshold=0.0), r"threshold must be in \(0, 1\]"),
        (lambda: table(alpha=2.0), "alpha must be in"),
        (lambda: sv.service(None, alpha=0.5), "requests must be TypeRequests"),
        *((lambda make=make: run(env=make), rf"for one environment call it: env={make.__name__}\(") for make in sv.ENVIRONMENTS),
    ],
)  # fmt: skip
def test_bad_input_of_instances(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_target_out_of_reach_is_said():
    with pytest.warns(
        UserWarning, match="alpha is 0.95, but no policy, even if it knew the probabilities, satisfies more than 0.79"
    ):
        sv.benchmark_service(alpha=0.95)
    with pytest.warns(
        UserWarning, match=r"alpha is 0.99, but no mixture of the models satisfies more than 0\.\d+: the virtual queue"
    ):
        table(alpha=0.99)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sv.benchmark_service(alpha=0.79)
        sv.benchmark_service(alpha=0.85, signal=1.0)  # Out of reach of the best model, not of who tells requests apart.
