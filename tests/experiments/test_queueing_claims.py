"""Claims about the queueing problem can fail: each is shown results that confirm it, and results that do not."""

import math

import numpy as np
import pytest
import xarray as xr
from every_experiment import EXPERIMENTS

from jaxroute.experiments.measure import over_heads
from jaxroute.experiments.verdicts import judge

SEEDS = 32
# Enough that a share of 1 is above .99.
MANY = 800


def dataset(times, **metrics):
    """Results of policies: per metric the mean curve of each policy, to which the same noise of size .01 is added in all."""
    noise = 0.01 * np.random.default_rng(0).normal(size=(SEEDS, 1))
    policies = list(next(iter(metrics.values())))
    dims, values = (
        ("policy", "seed", "time"),
        {n: [np.asarray(curves[p], float) for p in policies] for n, curves in metrics.items()},
    )
    arrays = {name: (dims, np.stack([one + noise for one in some]), {"kind": "total"}) for name, some in values.items()}
    arrays["valid"] = (("policy", "seed"), np.ones((len(policies), SEEDS), bool))
    data = xr.Dataset(arrays, {"policy": policies, "seed": np.arange(SEEDS), "time": times})
    data.attrs["case_coordinates"] = {"K": 1}
    return data


def verdict(experiment, claim, results):
    (measure,) = [c.measure for c in EXPERIMENTS[experiment].claims if c.id == claim]
    text, stated = measure(results)
    assert isinstance(text, str)
    return str(judge(stated).verdict)


T = np.arange(50, 5001, 50)


def regret(power, random=1.0):
    return {"ACQB": T**power, "Random": T**random}


def test_growth_of_the_regret():
    for joint, routing, random, holds in (
        (0.4, 0.4, 1.0, "holds"),
        (0.7, 0.4, 1.0, "refuted"),
        (0.4, 0.7, 1.0, "refuted"),
        (0.4, 0.4, 0.9, "refuted"),
    ):
        data = dataset(T, joint_regret=regret(joint), routing_regret=regret(routing, random))
        assert verdict("queueing/theory", "theorem-6", {"regret": data}) == holds


def probes(distance, least):
    shape = (1, MANY, 20)
    arrays = {"estimate.distance": distance, "estimate.least": least}
    return xr.Dataset(
        {k: (("policy", "seed", "time"), np.broadcast_to(v, shape).copy()) for k, v in arrays.items()},
        {"policy": ["ACQB"], "time": np.arange(50, 1001, 50)},
    )


def test_nan_is_not_covered():
    assert verdict("queueing/theory", "coverage", {"shared": probes(np.nan, 10.0)}) == "refuted"
    for least, holds in ((10.0, "vacuous"), (np.nan, "refuted")):
        assert verdict("queueing/theory", "eigenvalue", {"shared": probes(0.5, least)}) == holds


def switching(effects):
    """Queues of learner, optimal policy and all switches between them, from the effects `[decision, time]`."""
    queue = np.concatenate([np.zeros_like(effects[:1]), np.cumsum(effects, axis=0)])  # [at, time]
    rounds = effects.shape[0]
    values = np.stack([queue, np.broadcast_to(queue[-1], queue.shape), np.broadcast_to(queue[0], queue.shape)])
    return xr.Dataset(
        {"queue_length": (("policy", "at", "seed", "time"), values[:, :, None, :])},
        {"policy": ["switch", "ACQB", "Optimal"], "at": np.arange(rounds + 1), "time": np.arange(1, rounds + 1)},
    )


def test_effects_of_decisions():
    good = np.zeros((4, 4))
    good[1, 1:3] = 1.0  # Felt in rounds 1 and 2.
    good[2, 3] = -1.0  # Felt later, with the other sign.
    cases = {"good": "holds"}
    bad = {"good": good}
    for name, (place, value) in {"of two": ((1, 2), 2.0), "of both signs": ((1, 3), -1.0), "before": ((3, 1), 1.0)}.items():
        bad[name], cases[name] = good.copy(), "refuted"
        bad[name][place] = value
    for name, holds in cases.items():
        assert verdict("queueing/theory", "switching", {"switching": switching(bad[name])}) == holds, name
    data = switching(good)
    data["queue_length"].loc[{"policy": "ACQB", "time": 4}] = 3.0
    assert verdict("queueing/theory", "switching", {"switching": data}) == "refuted"


def with_heads(data, policy, **levels):
    """Adds a policy with four heads: per metric the level of each, at every time, with the noise of the other policies."""
    heads = xr.IndexVariable("head", range(4))
    both = xr.concat([data] * 4, heads).transpose("policy", "head", "seed", "time")
    own = both.isel(policy=[0]).assign_coords(policy=[policy])
    for name, level in levels.items():
        noise = own[name] - own[name].mean("seed")
        own[name] = noise + xr.DataArray(np.asarray(level, float), {"head": heads})
    both = xr.concat([both, own], "policy")
    both["valid"] = (("policy", "head", "seed"), np.ones([both.sizes[axis] for axis in ("policy", "head", "seed")], bool))
    return both


@pytest.mark.parametrize(
    ("learner", "random", "holds"),
    [(0.0, 1.0, "holds"), (0.5, 1.0, "refuted"), (0.002, 1.0, "refuted"), (0.0, 0.0, "refuted")],
)
def test_stable_queues(learner, random, holds):
    """A queue that grows by a part in five hundred of Random's is not stable, if its error is small; where Random's does not grow
    either, nothing is shown."""
    data = dataset(T, queue_length={"ACQB": 5 + learner * T, "Random": random * T})
    assert verdict("queueing/figure-3", "stable", {"one": with_heads(data, "ACQB-CL", queue_length=[5.0] * 4)}) == holds


def test_a_queue_that_grows_by_less_than_its_error_is_not_decided():
    """It grows by 1 on average, in half of the runs by 20 and in the others by -18."""
    data = dataset(T, queue_length={"ACQB": 50 + 0 * T, "Random": T})
    data["queue_length"][0, :, -1] += 1.0 + 19.0 * np.resize([1.0, -1.0], SEEDS)
    results = {"one": with_heads(data, "ACQB-CL", queue_length=[5.0] * 4)}
    assert verdict("queueing/figure-3", "stable", results) == "not decided"


@pytest.mark.parametrize(
    ("levels", "holds"),
    [
        ([50.0, 50.1, 49.9, 50.0], "holds"),  # Ten less, by heads that agree.
        ([0.0, 0.0, 80.0, 80.0], "not decided"),  # Ten less on average, by heads that do not.
        ([60.0, 60.1, 59.9, 60.0], "not decided"),
    ],
)
def test_heads_count_in_the_error(levels, holds):
    data = with_heads(dataset(T, routing_regret={"ACQB": 60 + 0 * T}), "ACQB-CL", routing_regret=levels)
    assert verdict("queueing/contrastive", "contrastive", {"one": data}) == holds


def test_the_error_over_heads_and_seeds():
    """Effects of heads and seeds, crossed: the squared error is the sum of those of both means."""
    heads, seeds = np.array([-3.0, -1.0, 1.0, 3.0]), np.array([-1.0, 0.0, 1.0])
    runs = xr.DataArray(10.0 + heads[:, None] + seeds, dims=("head", "seed"))
    assert over_heads(runs) == pytest.approx((10.0, math.hypot(heads.std(ddof=1) / 2, seeds.std(ddof=1) / math.sqrt(3))))
    assert over_heads(runs.isel(head=0, drop=True)) == pytest.approx((7.0, 1 / math.sqrt(3)))
