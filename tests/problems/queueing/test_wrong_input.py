"""Wrong input: the error names the argument, its value and the allowed values."""

import functools

import numpy as np
import pytest
from queueing_cases import THETA, play, pool, small

from jaxroute.data import RoutingTable
from jaxroute.estimators.mnl import Newton, Tracked
from jaxroute.problems import queueing as qu
from jaxroute.problems.queueing import departure_probability, describe_probabilities, divide_costs


def arriving(arrivals):
    return play(small(arrivals=arrivals), qu.Random())


UNIT = [[0.5, 1.0]]
WRONG = {
    # Environments.
    "arrivals too many": (lambda: small(arrival_rate=1.2), r"arrival_rate must be in \[0, 1\], got 1.2"),
    "no slack": (lambda: small(arrival_rate=0.9, slack=0.2), r"arrival_rate \+ slack must be below 1, got 0.9 \+ 0.2"),
    "negative slack": (lambda: small(slack=-0.1), "slack must be at least 0, got -0.1"),
    "too many answers": (lambda: small(num_offered=4), "num_offered must be from 1 to 3, got 4"),
    "parameters of one model": (lambda: qu.fixed_queue([1.0, 2.0]), r"theta must have shape \[N, d\], got \(2,\)"),
    "NaN parameters": (lambda: qu.fixed_queue([[1.0, float("nan")]]), r"theta must be finite, got nan at index \(0, 1\)"),
    "no horizon": (lambda: small(horizon=0), "horizon must be at least 1, got 0"),
    "no places": (lambda: small(limit=0), "limit must be at least 1, got 0"),
    "certain acceptance": (lambda: qu.pool_queue(np.ones((2, 1)), [[0.5], [1.0]], arrival_rate=0.5), r"probability must be above 0 and below 1, got 1 at index \(1, 0\)"),
    "tables of other lengths": (lambda: qu.pool_queue(np.ones((3, 1)), [[0.5], [0.4]], arrival_rate=0.5), r"probability must have shape \[3, N\], got \(2, 1\)"),
    "features of a pool by column": (lambda: pool().contexts.replace(features=np.ones((2, 12))).check(), r"features must have shape \[12, d\], got \(2, 12\)"),
    "recorded contexts of another size": (lambda: qu.recorded_queue(THETA, [1, 0], np.ones((2, 3)), [0.1, 0.2]), r"contexts must have shape \[T, 2\], got \(2, 3\)"),
    "a uniform of 2": (lambda: qu.recorded_queue(THETA, [1, 0], np.ones((2, 2)), [0.1, 2.0]), r"uniforms must be in \[0, 1\], got 2 at index \(1,\)"),
    "sizes of a fixed queue": (lambda: small(num_models=3), "setting must be one of"),
    "half a model": (lambda: qu.RandomQueues(num_models=2.5).check(), "num_models must be a whole number at least 1, got 2.5"),
    "other parameters": (lambda: qu.RandomQueues().of(np.ones((3, 5))), r"theta must have shape \(5, 5\), got \(3, 5\)"),
    "half an arrival": (lambda: qu.recorded_queue(THETA, [0.5, 1], np.ones((2, 2)), [0.1, 0.2]), "arrivals must be True or False, got 0.5"),
    "one parameter": (lambda: qu.recorded_queue(1.0, [1, 1], np.ones((2, 2)), [0.1, 0.2]), "theta must have shape"),
    "too few arrivals": (lambda: pool(recorded=([1, 0], [0, 1, 2], [0.1, 0.2, 0.3])), r"arrivals must have shape \(3,\), got \(2,\)"),
    "a prompt too many": (lambda: pool(recorded=([1, 0], [0, 12], [0.1, 0.2])), "prompts must be whole numbers from 0 to 11, got 12"),
    "two recorded arrays": (lambda: pool(recorded=([1, 0], [0, 1])), "recorded must be three arrays"),
    "names as one word": (lambda: pool(names="abc"), "names must be a list of names, got 'abc'"),
    "an array as a table": (lambda: qu.table_queue(np.ones((2, 2))), "table must be a RoutingTable"),
    "a table without features": (lambda: qu.table_queue(RoutingTable(np.ones((2, 2)), np.ones((2, 2)), ("a", "b"))), "table must have features"),
    # Processes of arrivals.
    "a rate above 1": (lambda: arriving(qu.Rates([0.5, 1.2])), r"rates must be .* 1.2"),
    "a table of rates": (lambda: arriving(qu.Rates([[0.5]])), r"rates must have shape \[T\]"),
    "rows that do not sum to 1": (lambda: arriving(qu.Bursts([0.1, 0.2], [[0.5, 0.4], [0.5, 0.5]])), "moves must have rows that sum to 1"),
    "moves of other phases": (lambda: arriving(qu.Bursts([0.1, 0.2, 0.3], np.eye(2))), r"moves must have shape \(3, 3\)"),
    "no servers": (lambda: arriving(qu.Slots(0.5, servers=0)), "servers must be"),
    "a rate instead of a process": (lambda: arriving(0.5), "arrivals must be"),
    "a quiet phase shorter than a round": (lambda: qu.Bursts.on_off(0.5, 2.0, 0.5), "mean_off must be at least 1, got 0.5"),
    # ACQB.
    "negative kappa": (lambda: play(small(), qu.ACQB(curvature=-1.0)), "curvature must be at least 0, got -1"),
    "no ridge": (lambda: play(small(), qu.ACQB(ridge=0.0)), "ridge must be above 0, got 0"),
    "a trigger of something else": (lambda: play(small(), qu.ACQB(trigger=0.5)), r"trigger must be an object such as PhaseThenCoin\(...\), got 0.5"),
    "a solver of something else": (lambda: play(small(), qu.ACQB(solver=3)), r"solver must be an object such as Newton\(\), got 3"),
    "Newton on a pool": (lambda: play(pool(), qu.ACQB(solver=Newton())), r"solver must be BFGS\(...\) or Online\(\) for a pool"),
    "one parameter at a time with two answers": (lambda: play(small(num_offered=2), qu.ACQB(solver=Tracked())), r"solver must be Newton\(...\) or .* with 2 answers, got Tracked"),
    "one parameter at a time, jointly": (lambda: play(small(), qu.ACQB(solver=Tracked(), joint=True)), "with joint estimates, got Tracked"),
    "features without a pool": (lambda: play(small(), qu.ACQB(features=np.ones((2, 5)))), "features must be None without a pool"),
    "features of another pool": (lambda: play(pool(), qu.ACQB(features=np.ones((2, 5)))), r"features must be \[d, 12\], one column per prompt, got shape \(2, 5\)"),
    "one answer at a time where it cannot be": (lambda: play(small(num_offered=2), qu.ACQB(second_answer=0.2)), "second_answer must be None .* mixed=False"),
    "a class in place of a solver": (lambda: play(small(), qu.ACQB(solver=Newton)), "solver must be an object such as Newton"),
    "two rules of exploration": (lambda: play(small(), qu.ACQB(c1=2.0, trigger=qu.DecayingExploration(1.0))), "c1 must be left out where a trigger is given"),
    "negative exploration": (lambda: play(small(), qu.ACQB(c1=-1.0)), "c1 must be at least 0, got -1"),
    # Other policies.
    "CQB-eps without a horizon": (lambda: play(small(), qu.CQBEpsilon()), r"use CQBEpsilon.of\(environment\)"),
    "one at a time with two": (lambda: play(small(num_offered=2), qu.QUCB()), "QUCB shows one answer at a time, got an environment with 2"),
    "a policy that is built wrongly": (lambda: play(small(), functools.partial(qu.CQBEpsilon.of, curvature=-1.0)), "curvature must be at least 0, got -1"),
    "a switch in the past": (lambda: play(small(), qu.PolicySwitch(qu.ACQB(), qu.Random(), at=-5)), "at must be at least 0, got -5"),
    "a switch from what does not suit": (lambda: play(small(num_offered=2), qu.PolicySwitch(qu.QUCB(), qu.Random(), at=5)), "QUCB shows one answer at a time"),
    "the optimum of another queue": (lambda: play(small(), qu.Optimal(np.ones((2, 2)))), r"theta must have shape \(3, 2\), got theta of shape \(2, 2\)"),
    "the optimum of a sampler": (lambda: qu.Optimal.of(qu.RandomQueues()), "env must be a QueueEnv, got RandomQueues"),
    "an optimum of nothing": (lambda: play(small(), qu.Optimal()), r"use Optimal.of\(environment\)"),
    # Departure probabilities.
    "a score above 1": (lambda: departure_probability([[0.5, 1.5]], UNIT), r"scores must be in \[0, 1\], got 1.5 at index \(0, 1\)"),
    "scores of one model": (lambda: departure_probability([0.5], [0.5]), r"scores must have shape \[P, N\]"),
    "costs of other prompts": (lambda: departure_probability(UNIT, [[0.5]]), r"costs must have shape \(1, 2\), got \(1, 1\)"),
    "costs that are not normalised": (lambda: departure_probability(UNIT, [[0.5, 7.0]]), r"costs must be in \[0, 1\], got 7 .*divide_costs normalises"),
    "a negative weight": (lambda: departure_probability(UNIT, UNIT, cost_weight=-1), "cost_weight must be at least 0, got -1"),
    "equal probabilities": (lambda: departure_probability(UNIT, UNIT, low=0.5, high=0.5), "0 < low < high < 1, got low=0.5 and high=0.5"),
    "a certain answer": (lambda: departure_probability(UNIT, UNIT, high=1.0), "0 < low < high < 1, got low=0.1 and high=1"),
    "an impossible answer": (lambda: departure_probability(UNIT, UNIT, low=0.0), "0 < low < high < 1, got low=0 and"),
    "a negative cost": (lambda: divide_costs([[-1.0]]), "costs must be at least 0, got -1"),
    "a NaN cost": (lambda: divide_costs([[np.nan]]), "costs must be finite"),
    "a probability of 1": (lambda: describe_probabilities([[0.5, 1.0]]), r"probability must be at least 0 and below 1, got 1 at index \(0, 1\)"),
    "probabilities of one model": (lambda: describe_probabilities([0.5]), r"probability must have shape \[P, N\]"),
    "too many models": (lambda: describe_probabilities([[0.5, 0.6]], size=3), "size must be from 1 to 2, got 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused(name):
    make, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        make()
