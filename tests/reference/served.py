"""Replays of served requests in float64 loops, written from the papers: rejection sampling with contexts, and queues without.

A run is given by the order of its events and a uniform number for each place of the order: an event with propensity `p` is discarded at once unless
its number is below `floor / p`. Policies are those of `reference.contextual` and `reference.stochastic`; their draws have the number of the event
among those that are not discarded at once.
"""

from .stochastic import History


def rejection(events, uniforms, log, floor, policy, rounds):
    """Li, Chu, Langford and Wang (2011), Algorithm 2, with propensities: the accepted events, in turn.

    `log` has `contexts` `[Q, d]` and `chosen`, `rewards`, `propensities` `[Q]`; `policy` is a pair `pick(number, x) -> model`, `learn(model, x, reward)`.
    """
    pick, learn = policy
    accepted, number = [], 0
    models = int(max(log["chosen"])) + 1
    for event, u in zip(events, uniforms, strict=True):
        if u >= floor / log["propensities"][event]:
            continue
        x = log["contexts"][event][None].repeat(models, axis=0)
        model = pick(number, x)
        number += 1
        if model == log["chosen"][event]:
            learn(model, x, log["rewards"][event])
            accepted.append(event)
        if len(accepted) == rounds:
            break
    return accepted


def queues(events, uniforms, log, floors, pick, horizon):
    """Mandel et al. (2016), the queue-based evaluator, with propensities: the events that the policy was shown, until a queue is empty."""
    queue = [[] for _ in floors]
    for event, u in zip(events, uniforms, strict=True):
        model = log["chosen"][event]
        if u < floors[model] / log["propensities"][event]:
            queue[model].append(event)
    history, shown = History(len(floors)), []
    for t in range(1, horizon + 1):
        model = pick(t, history)
        if not queue[model]:
            break
        event = queue[model].pop(0)
        history.add(model, log["rewards"][event])
        shown.append(event)
    return shown
