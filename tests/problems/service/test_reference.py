"""Whole runs of MESS+ against the float64 reference on the same draws."""

import math

import numpy as np
import pytest
from reference import service as ref
from service_cases import cells, learner, played, probit, table, typed

from jaxroute import simulate
from jaxroute.estimators.heads import SGD, TheorySteps
from jaxroute.problems import service as sv
from jaxroute.testing import run_eagerly


def reference_params(params):
    """A head's parameters with the names and the orientation of the reference."""
    if "w" in params:
        return "logistic", {"w": np.asarray(params["w"], float).T, "b": np.asarray(params["b"], float)}
    hidden, norm, output = (params[name] for name in ("hidden", "norm", "output"))
    names = {"w1": hidden["kernel"].T, "b1": hidden["bias"], "gain": norm["scale"], "bias": norm["bias"]}
    names |= {"w2": output["kernel"].T, "b2": output["bias"]}
    return "mlp", {name: np.asarray(value, float) for name, value in names.items()}


def expected_path(env, policy, found):
    """The reference's run on the draws of `found`, with the settings of the policy."""
    request = found["request"]
    settings = {
        "alpha": float(np.float32(env.alpha)) + float(policy.margin),
        "c": float(policy.c),
        "explore_power": float(policy.explore_power),
        "force_first": policy.explores_first,
        "serve": "best" if env.serve_best else "largest",
        "cost_mode": {"KnownCost": "known", "LastCost": "last", "RunningMeanCost": "running_mean"}[
            type(policy.costs).__name__
        ],
        "l2": float(policy.l2),
        "sgd_repeats": policy.repeats,
        "pred_energy": float(policy.energy),
        "momentum": float(policy.optimiser.momentum),
        "weight_decay": float(policy.optimiser.weight_decay),
        "clip": math.inf if policy.optimiser.clip is None else float(policy.optimiser.clip),
        "drawn": np.argmax(found["flows"]["served_share"], axis=1),
    }
    rate = policy.optimiser.learning_rate
    if callable(rate):
        settings["step_rule"] = (float(rate.mu), float(rate.smoothness))
    else:
        settings["lr"] = float(rate)
    if env.arrival is not None:
        settings["observed"] = found["feedback"].arrived
    if policy.predictor.trains:
        kind, params = reference_params(found["first"].params)
        predictor = (kind, params)
        if kind == "mlp":
            masks = dict(zip(("input", "hidden"), (k > 0 for k in found["keep"]), strict=True))
            predictor += ({"rate": float(policy.predictor.head.dropout), **masks},)
    else:
        predictor = ("given", found["info"]["probability"])
    settings |= {"predictor": predictor, "V": float(policy.V)}
    return ref.messplus(request.features, request.satisfied.astype(float), request.cost, found["u"], **settings)


def assert_same_run(env, policy, found, path, least=100, atol=2e-4):
    """Choices equal but where the reference's two best scores are within 1e-4; numbers to float32, up to such a tie."""
    choice = np.argmax(found["flows"]["served_share"], axis=1)
    wrong = np.flatnonzero(choice != path["choice"])
    if wrong.size:
        assert path["margin"][wrong[0]] <= 1e-4, f"round {wrong[0]}: {choice[wrong[0]]}, not {path['choice'][wrong[0]]}"
    until = wrong[0] if wrong.size else len(choice)
    assert until >= least
    flows, losses = found["flows"], np.where(np.isnan(path["loss"]), 0.0, path["loss"])
    steps = np.cumsum(~np.isnan(path["loss"]))
    alpha = float(np.float32(env.alpha))
    satisfied = np.cumsum(path["sat"])
    pairs = {
        "explored": (found["action"].explore, path["explored"]),
        "exploration probability": (found["info"]["explore_probability"], path["probability"]),
        "predicted probability": (found["info"]["probability"], path["sat_hat"]),
        "cost": (flows["cost"], path["cost"]),
        "served_cost": (flows["served_cost"], path["cost_served"]),
        "satisfaction": (flows["satisfaction"], path["sat"]),
        "mean_satisfaction": (flows["mean_satisfaction"], satisfied / np.arange(1, len(choice) + 1)),
        "decision queue": (found["queue"], path["queue"]),
        "virtual_queue": (found["gauges"]["virtual_queue"], ref.queue_path(path["sat"], alpha)),
        "loss": (found["loss"], np.cumsum(losses) / np.maximum(steps, 1)),
        "steps": (found["steps"], steps),
    }
    if policy.explores_first:
        pairs["exploration probability"] = (found["info"]["explore_probability"][1:], path["probability"][1:])
    for name, (got, expected) in pairs.items():
        got, expected = (np.asarray(x, float)[:until] for x in (got, expected))
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=atol, err_msg=name)
    np.testing.assert_array_equal(found["action"].explore[:until], path["explored"][:until])
    if policy.predictor.trains and until == len(choice):
        _, params = reference_params(found["last"].params)
        for name, value in path["params"].items():
            np.testing.assert_allclose(params[name], value, rtol=1e-3, atol=atol, err_msg=name)


MLP = sv.Learned(sv.Mlp(dropout=0.3, width=6))


# Environment and policy. Runs of the same structure share one compilation, so further values of leaves are cheap.
RUNS = {
    "typed": (typed, learner()),
    "typed, only the first": (typed, learner(c=0.0)),
    "typed, always": (typed, learner(c=1e6)),
    "typed, margin and energy": (typed, learner(margin=0.05, energy=3.0)),
    "typed, l2 and power": (typed, learner(l2=0.05, explore_power=0.5)),
    "typed, large V": (typed, learner(V=0.05)),
    "typed, V = 0": (typed, learner(V=0.0)),
    "cells": (cells, learner(optimiser=SGD(clip=0.5))),
    "cells, tight clip": (cells, learner(optimiser=SGD(learning_rate=0.5, clip=0.05, momentum=0.5))),
    "table, last cost": (lambda: table(knows_cost=False), learner(costs=sv.LastCost())),
    "probit, running mean": (lambda: probit(knows_cost=False), learner(costs=sv.RunningMeanCost())),
    "Mlp, two steps": (lambda: cells(serve_best=True), learner(predictor=MLP, repeats=2)),
    "sparse feedback": (lambda: cells(arrival=0.6), learner(c=1.0)),
    "theory steps": (
        lambda: sv.typed_service(),
        learner(c=1.0, l2=0.1, explores_first=False, optimiser=SGD(TheorySteps(0.1, 0.6), momentum=0.0, weight_decay=0.0)),
    ),
    "true probabilities": (lambda: typed(comonotone=True), learner(predictor=sv.TrueProbabilities(sv.typed_service().requests))),
    "Mlp": (cells, learner(predictor=MLP)),
    "serve the best": (lambda: typed(serve_best=True), learner()),
    "running mean on types": (lambda: typed(knows_cost=False), learner(costs=sv.RunningMeanCost(), explores_first=False)),
    "last cost on types": (lambda: typed(knows_cost=False), learner(costs=sv.LastCost(), explores_first=False, c=0.2)),
    "probit": (probit, learner(repeats=2, optimiser=SGD(learning_rate=0.02))),
    "sparse feedback, Mlp": (lambda: table(arrival=0.6, serve_best=True), learner(predictor=MLP, c=1.0)),
    "uninformative benchmark": (sv.benchmark_service, learner()),
    "zero first": (typed, sv.MessPlus(c=0.6)),
}  # fmt: skip


SLOW = (
    "Mlp", "true probabilities",
    "serve the best", "running mean on types", "last cost on types", "probit", "sparse feedback, Mlp", "uninformative benchmark",
)  # fmt: skip


MARKS = {name: [pytest.mark.slow] for name in SLOW}


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, [])) for n in RUNS])
def test_equals_the_reference_round_by_round(name):
    make, policy = RUNS[name]
    env = make()
    found = played(env, policy)
    path = expected_path(env, policy, found)
    assert_same_run(env, policy, found, path)


def never_is_nan(first, horizon):
    return first if first <= horizon else np.nan


def test_metrics_are_those_of_the_reference():
    for make, policy in ((typed, learner()), (lambda: typed(alpha=0.85), learner(V=1e-4, energy=3.0))):
        env = make()
        found = played(env, policy)
        path = expected_path(env, policy, found)
        np.testing.assert_array_equal(np.argmax(found["flows"]["served_share"], axis=1), path["choice"])
        alpha = round(float(env.alpha), 6)
        expected = ref.metrics(path, found["request"].cost, alpha)
        flows, gauges, horizon = found["flows"], found["gauges"], len(path["sat"])
        for t in (50, 51, 120, 200, horizon):  # Also on the way, by the prefix.
            first, last = ref.sla_times(path["sat"][:t], round(1000 * alpha))
            np.testing.assert_equal(gauges["first_compliance"][t - 1], never_is_nan(first, t))
            assert (gauges["complied"][t - 1], gauges["last_violation"][t - 1]) == (first <= t, last)
        pairs = {
            "cost": path["cost"].mean(),
            "served_cost": expected["cost_served_mean"],
            "explore_cost": expected["explore_cost"] / horizon,
            "explore_overhead": expected["explore_overhead"],
            "satisfaction": path["sat"].mean(),
            "mean_satisfaction": expected["tavg_sat"],
            "explored": path["explored"].mean(),
            "served_share": expected["served_ratio"],
            "called_share": expected["call_count"] / horizon,
            "decision_cost": float(policy.energy),
            "gap": path["cost"].mean() - float(env.best.cost),
        }
        for name, value in pairs.items():
            np.testing.assert_allclose(flows[name].mean(axis=0), value, rtol=1e-4, err_msg=name)
        assert gauges["violation"][-1] == pytest.approx(expected["violation"], abs=1e-6)
        assert gauges["virtual_queue"][-1] / horizon == pytest.approx(
            ref.queue_path(path["sat"], alpha)[-1] / horizon, abs=1e-5
        )
        assert found["loss"][-1] == pytest.approx(expected["train_loss_mean"], rel=1e-4)
        probability = np.take_along_axis(found["request"].success, path["choice"][:, None], axis=1)[:, 0]
        np.testing.assert_allclose(flows["satisfaction_mean"], probability, rtol=1e-6)


@pytest.mark.slow
def test_the_scan_of_the_protocol_is_the_engines_run():
    env, policy = typed(), learner()
    found = played(env, policy, seed=5)
    names = ["cost", "satisfaction", "explored", "virtual_queue", "decision_queue"]
    data = simulate(env, policy, horizon=300, seeds=[5], record_every=300, record=names, progress=False).isel(
        policy=0, seed=0
    )
    for name in ("cost", "satisfaction", "explored"):
        np.testing.assert_allclose(data[name].values[-1], found["flows"][name].mean(), rtol=1e-5)
    np.testing.assert_allclose(data["virtual_queue"].values[-1], found["gauges"]["virtual_queue"][-1], atol=1e-4)
    np.testing.assert_allclose(data["decision_queue"].values[-1], found["queue"][-1], atol=1e-4)
    rounds = run_eagerly(env, policy, horizon=3, seed=5, jit=True)
    for t, one in enumerate(rounds):
        assert int(one["action"].serve) == found["action"].serve[t]
        np.testing.assert_allclose(one["policy_state"].loss.total, found["loss"][t], rtol=1e-5)


def test_four_rounds_by_hand():
    """Of the reference, whose numbers the runs above are compared with."""
    labels = np.array([[0.0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]])
    cost = np.array([[1.0, 2, 9], [1, 3, 9], [2, 3, 8], [1, 2, 7]])
    given, u = ("given", np.tile([0.5, 0.7, 0.9], (4, 1))), [0.9, 0.5, 0.9, 0.001]
    path = ref.messplus(np.zeros((4, 1)), labels, cost, u, predictor=given, V=0.1, alpha=0.75, c=0.1)
    # t=1 forced, model 2 fails, Q .75. t=2: .1 E - .75 s_hat = (-.275, -.225, .225) -> model 0 fails, Q 1.5.
    # t=3: (.2, .3, .8) - 1.5 s_hat = (-.55, -.75, -.55) -> model 1 fails, Q 2.25. t=4: .001 < .1 / sqrt 2, Q 2.
    assert path["explored"].tolist() == [True, False, False, True] and path["choice"].tolist() == [2, 0, 1, 2]
    assert path["cost"].tolist() == [12, 1, 3, 10] and path["cost_served"].tolist() == [9, 1, 3, 7]
    assert path["queue"].tolist() == ref.queue_path(path["sat"], 0.75).tolist() == [0.75, 1.5, 2.25, 2.0]
    best = ref.messplus(np.zeros((4, 1)), labels, cost, u, predictor=given, V=0.1, alpha=0.75, c=0.1, serve="best")
    # t=1 served by model 1, Q 0; t=2 cheapest, fails, Q .75; t=3 (-.175, -.225, .125) -> 1 fails, Q 1.5; t=4 model 2.
    assert best["choice"].tolist() == [1, 0, 1, 2] and best["queue"].tolist() == [0.0, 0.75, 1.5, 1.25]


def test_two_sgd_steps_by_hand():
    # First step: logits (.2, -.8), (sigma - s) / 2 = (-.225083, .155013); W + .5 (.225083 x - .1 W), etc.
    params, velocity = {"w": np.array([[0.2, 0.0], [0.0, -0.4]])}, {"w": np.zeros((2, 2))}
    for x, s, loss, w in (
        ((1, 2), (1, 0), 0.4846198, [[0.3025415, 0.2250830], [-0.0775064, -0.5350128]]),
        ((1, -1), (0, 1), 0.6114796, [[0.2498630, 0.5462423], [-0.0464924, -0.7266680]]),
    ):
        value, grads = ref.loss_and_grads("logistic", params | {"b": np.zeros(2)}, np.array(x, float), np.array(s))
        params, velocity = ref.sgd_step(params, velocity, {"w": grads["w"]}, 0.5, 0.9, 0.1)
        assert value == pytest.approx(loss, abs=5e-8)
        np.testing.assert_allclose(params["w"], w, atol=5.01e-8)
