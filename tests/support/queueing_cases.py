"""Makes small queues and simulates them through the public functions."""

import numpy as np

import jaxroute as jr
from jaxroute.problems import queueing as qu

THETA = [[1.0, -0.5], [-0.8, 0.9], [0.2, 1.0]]
RECORD = ("queue_length", "queue_regret", "routing_regret", "joint_regret", "departures", "retrials", "arrivals")
RECORD += ("idle", "explored")


def play(env, policies, horizon=120, seeds=32, **options):
    return jr.simulate(env, policies, **{"horizon": horizon, "seeds": seeds, "progress": False, "record": RECORD} | options)


def small(**options):
    return qu.fixed_queue(THETA, **{"horizon": 120, "slack": 0.0, "arrival_rate": 0.6} | options)


def pool(**options):
    rng = np.random.default_rng(0)
    features, rates = rng.normal(size=(12, 2)), rng.uniform(0.1, 0.9, (12, 3))
    return qu.pool_queue(features, rates, **{"arrival_rate": 0.5, "horizon": 120} | options)
