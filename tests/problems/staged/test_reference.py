"""Staged policies: whole runs against float64 loops on the same random numbers."""

import numpy as np
import pytest
from reference import staged as plain
from staged_cases import by_index, of_seed, random_numbers, run_all_rounds

from jaxroute.problems import staged
from jaxroute.problems.staged import budgets, estimators, fillers, routing, scopes


def case(slots, stage, policy, choice=None, constants=None, market=None):
    """`M`, `I` and policy; options of the reference's loop; parameters of the reference; options of the market."""
    return slots, stage, policy, choice or {}, constants or {}, market or {}


def stage_scope(**options):
    return staged.StageRoute(scope=scopes.StageScope(), **options)


NOISE = {"reward_noise": 0.8, "cost_noise": 0.5}
BOUNDS = {"gamma": 8.0, "radius_multiplier": 1.5, "cost_floor": 0.05, "cost_ceiling": 8.0}
LEMMA3, PSEUDO = estimators.Lemma3(), estimators.PseudoObservation()
GREEDY, RATIO = {"policy": "Greedy"}, {"policy": "Greedy", "greedy_route": "ratio"}
BY_RATIO, BY_BEST = (staged.Greedy(routing=rule()) for rule in (routing.RatioRouting, routing.BestRatioRouting))
ROUTING_SCOPE = staged.StageRoute(scope=scopes.RoutingScope())


RUNS = {
    "M=6": case(6, 250, staged.StageRoute()),
    "M=3": case(3, 500, staged.StageRoute()),
    "routing scope, fees, ragged stages": case(
        3, 300, ROUTING_SCOPE, {"scope": "routing"}, {"deploy_fee": [1.5] * 15}, {"deploy_fee": 1.5}
    ),
    "stage scope, pseudo": case(6, 300, stage_scope(estimator=PSEUDO), {"scope": "stage", "estimator": "pseudo"}),
    "lemma3, index filler": case(
        6, 250, staged.StageRoute(estimator=LEMMA3, filler=fillers.IndexFiller()), {"estimator": "lemma3", "filler": "index"}
    ),
    "pace, no filler": case(
        6,
        250,
        staged.StageRoute(gamma=5.0, budget_mode=budgets.Pace(), filler=fillers.NoFiller()),
        {"budget_mode": "pace", "filler": "none"},
        {"gamma": 5.0},
        {"normalisation": "max"},
    ),
    "stop, much noise, other bounds": case(
        6, 250, staged.StageRoute(**BOUNDS), {"budget_mode": "stop"}, NOISE | BOUNDS, {"stop_at_budget": True} | NOISE
    ),
    "Greedy": case(6, 250, staged.Greedy(), GREEDY),
    "Greedy ratio": case(3, 500, BY_RATIO, RATIO),
    "Greedy ratio, too little capacity": case(2, 250, BY_RATIO, RATIO),
    "Greedy argmax": case(6, 250, BY_BEST, GREEDY | {"greedy_route": "argmax"}),
    "Oracle, M=3": case(3, 500, staged.Oracle.of, {"policy": "Oracle"}),
    "two slots with too little capacity": case(2, 250, staged.StageRoute()),
}


def compare(name, horizon, seeds):
    """Checks models, sets, flags, multipliers, flows and regrets in every round of every seed; returns the last seed's reference."""
    slots, stage, policy, choice, constants, options = RUNS[name]
    market = staged.arena_market(max_deployed=slots, stage_length=stage, horizon=horizon, **options)
    data = run_all_rounds(market, by_index(policy), horizon, seeds, double=True)
    assert data["valid"].all()
    normalisation = "max" if options.get("normalisation") == "max" else "minmax"
    params = plain.table1_params(slots, stage, horizon, normalisation, **constants)
    if choice.get("policy") == "Oracle":  # It holds the true means in single precision.
        params.mu, params.cost = (list(map(float, np.float32(x))) for x in (params.mu, params.cost))
    for seed in seeds:
        expected = plain.simulate(params, *random_numbers(seed, horizon), **choice)
        served = expected["served"]
        pulls = of_seed(data, "pulls", seed)
        where = f"{name}, seed {seed}"
        np.testing.assert_array_equal(pulls.sum(1), served, err_msg=where)
        different = np.flatnonzero(pulls[served].argmax(1) != expected["model"][served])
        assert not different.size, f"{where}: {different.size} rounds differ, the first is {different[0]}"
        stages = np.arange(horizon) // stage
        last = np.flatnonzero(served)[-1] + 1
        deployed = of_seed(data, "deployed", seed) > 0.5
        np.testing.assert_array_equal(deployed[:last], expected["deployed"][stages][:last], err_msg=where)
        fee = np.zeros(horizon)
        fee[::stage] = expected["fee"]
        # With a hard budget all queries before the spend reaches the total are served, in any run.
        spent = np.cumsum(expected["cost"] + fee)
        before = np.concatenate([[0.0], spent[:-1]]) < params.budget * horizon
        np.testing.assert_array_equal(of_seed(data, "served", seed) > 0.5, before, err_msg=where)
        np.testing.assert_allclose(of_seed(data, "fee", seed), fee, atol=1e-6)
        feasible = expected["feasible"]
        np.testing.assert_array_equal(of_seed(data, "infeasible_share", seed)[:last] > 0.5, ~feasible[:last])
        lam = of_seed(data, "multiplier", seed)[served & feasible]
        np.testing.assert_allclose(lam, expected["multiplier"][served & feasible], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(of_seed(data, "cost", seed), expected["cost"], rtol=1e-5, atol=1e-5)
        for regret in ("regret", "conditional_regret", "realised_regret"):
            curve = data[regret].isel(policy=0).sel(seed=seed).values
            np.testing.assert_allclose(curve, expected[regret], atol=2e-7 * horizon, err_msg=f"{where}: {regret}")
    return expected


QUICK = ("M=6", "stop, much noise, other bounds", "Greedy", "routing scope, fees, ragged stages")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in RUNS])
def test_equals_the_reference_round_by_round(name):
    expected = compare(name, horizon=2600, seeds=[0, 11])
    if "stop" in name:
        assert 0.3 < expected["served"].mean() < 1.0
    if name == "M=3":
        assert 0.05 < 1 - expected["feasible"].mean() < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_equals_the_reference_over_the_whole_horizon(name):
    compare(name, horizon=10_000, seeds=[0, 1, 2, 3])


@pytest.mark.parametrize("name", ["M=6", pytest.param("M=3", marks=pytest.mark.slow)])
def test_single_precision_has_the_same_runs(name):
    """In float32 a run follows the float64 reference until a uniform falls between the two precisions' probabilities.

    These differ by about 1e-7, so a run of a few thousand rounds differs from its reference with probability 0.1 %.
    """
    slots, stage, policy, *_ = RUNS[name]
    horizon, seeds = 2600, range(8)
    market = staged.arena_market(max_deployed=slots, stage_length=stage, horizon=horizon)
    data = run_all_rounds(market, by_index(policy), horizon, seeds, double=False)
    shares = []
    for seed in seeds:
        expected = plain.simulate(plain.table1_params(slots, stage, horizon), *random_numbers(seed, horizon))
        shares.append(np.mean(of_seed(data, "pulls", seed).argmax(1) == expected["model"]))
    assert np.mean(np.equal(shares, 1.0)) > 0.8, shares
    assert min(shares) > 0.5, shares
