"""MESS+ on recorded requests: 15,361 questions answered by Mixtral-8x7B and GPT-4, with features of their texts."""

import numpy as np
import pytest
from helpers import shared_data

import jaxroute as jr
from jaxroute.data import RoutingTable
from jaxroute.problems import service

PRICES = np.array([[0.6, 0.6], [10.0, 30.0]])  # USD per million tokens in and out, of Mixtral and GPT-4 Turbo.


@pytest.fixture(scope="module")
def table():
    """Costs in 1e-3 USD: four characters a token; answers of unknown length are one token."""
    with np.load(shared_data("routellm_mmlu_gsm8k.npz")) as file:
        tokens_in = file["prompt_chars"][:, None] / 4.0
        tokens_out = np.where(file["resp_chars"] > 0, file["resp_chars"], 4) / 4.0
        costs = (tokens_in * PRICES[:, 0] + tokens_out * PRICES[:, 1]) * 1e-3
        features = file["feat"].astype(np.float32)
        return RoutingTable(file["correct"], costs, tuple(file["models"]), features, cost_unit="1e-3 USD per request")


@pytest.mark.slow
def test_the_target_is_reached_below_the_cost_of_the_large_model(table):
    env = service.table_service(table, alpha=0.75)
    policies = {
        "MESS+": jr.grid(service.MessPlus, V=[0.1, 1.0], optimiser=service.SGD(0.3, 0.9, 1e-4)),
        "large": service.Single(),
        "blind": service.OracleBlind.of,
    }
    record = ["cost", "satisfaction", "violation"]
    data = jr.simulate(env, policies, horizon=table.num_queries, seeds=64, record=record, progress=False).isel(time=-1)
    assert bool(data["valid"].all())
    own, large, blind = data.sel(policy="MESS+", V=0.1), data.sel(policy="large", V=0.1), data.sel(policy="blind", V=0.1)
    mean, error = float(own["violation"].mean()), float(own["violation"].std(ddof=1)) / 8
    assert mean + 5 * error < 0.0, "a share of .75 is satisfied"
    np.testing.assert_allclose(large["cost"], table.mean_costs()[1], rtol=1e-5)
    np.testing.assert_allclose(large["satisfaction"], table.mean_scores()[1], rtol=1e-5)
    assert float(own["cost"].max()) < float(large["cost"].min())
    # The features tell something: the best mixture that does not look at requests costs more.
    gap = (own["cost"] - blind["cost"]).values
    assert gap.mean() + 2 * gap.std(ddof=1) / 8 < 0.0


@pytest.mark.slow
def test_a_pass_uses_every_request_once(table):
    env = service.table_service(table, alpha=0.75)
    data = jr.simulate(env, service.Single(0), horizon=table.num_queries, seeds=16, progress=False).isel(time=-1, policy=0)
    np.testing.assert_allclose(data["satisfaction"], table.mean_scores()[0], rtol=1e-6)
