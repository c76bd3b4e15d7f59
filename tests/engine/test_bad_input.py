"""Wrong input is refused at once, in words that name the argument and what is allowed, and leaves nothing behind."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_child import BANDIT
from flax import struct
from toys import Clock, Cycle, small_market

import jaxroute as jr
from jaxroute.core.types import Metric
from jaxroute.engine import programs
from jaxroute.problems import combinatorial, staged, stochastic


def play(out, env=BANDIT, policies=stochastic.UCB1(), **options):
    settings = {"horizon": 20, "seeds": 4, "record_every": 10, "progress": False} | options
    return jr.simulate(env, policies, out=out, **settings)


def market(cost_mean=(1.0, 2.0), reward_mean=(0.5, 0.6), **options):
    """A market of two models."""
    outcomes = staged.ParametricOutcomes(np.array(reward_mean), np.array(cost_mean), reward_noise=0.0, cost_noise=0.0)
    usual = {"capacity": 1.0, "budget": 3.0, "max_deployed": 2, "stage_length": 5, "horizon": 20}
    return staged.market(outcomes, **usual | options)


class PlainPolicy:
    """Has the three verbs, but is no pytree: its numbers cannot be found."""

    def __init__(self):
        self.width = 1.0

    init, act, update = stochastic.UCB1.init, stochastic.UCB1.act, stochastic.UCB1.update


class PlainBandit(stochastic.BanditEnv):
    """A subclass that was not decorated, which is no pytree either."""


@struct.dataclass
class Measuring(Cycle):
    """Declares a metric of its own; what its Info holds for it is `value`."""

    metric: Metric = struct.field(pytree_node=False, default=Metric("own", "own", "", "average"))
    value: tuple[float, ...] | float = struct.field(pytree_node=False, default=1.0)

    @property
    def metrics(self):
        return (self.metric,)

    def act(self, key, state, obs, t):
        action, info = super().act(key, state, obs, t)
        return action, {**info, self.metric.name: np.float32(self.value)}


@struct.dataclass
class Forgetful(Clock):
    """Does not measure the flow that it declares, or measures something of another shape."""

    instead: str = struct.field(pytree_node=False, default="nothing")

    def step(self, key, state, action, t):
        state, feedback, flows = super().step(key, state, action, t)
        rounds = flows.pop("rounds")
        return state, feedback, flows if self.instead == "nothing" else {**flows, "rounds": rounds * np.ones(3)}


@struct.dataclass
class Twice(jr.Wrapper):
    """Declares the first metric of the environment a second time."""

    @property
    def spec(self):
        return dataclasses.replace(self.env.spec, metrics=(*self.env.spec.metrics, self.env.spec.metrics[0]))


VECTOR = Metric("own", "own", "", "average", ("model",))
NAN = float("nan")

# What is wrong: the call, and the message.
SIMULATE = {
    "no horizon": ({"horizon": 0}, "horizon must be .*, got 0"),
    "horizon as text": ({"horizon": "20"}, "horizon must be a whole number .*, got '20'"),
    "horizon beyond int32": ({"horizon": 2**31, "record_every": 2**30}, "horizon must be .*2147483648"),
    "no seeds": ({"seeds": 0}, "seeds must be at least 1, got 0"),
    "fractional seeds": ({"seeds": 2.5}, "seeds must be a number of seeds or a list of them, got 2.5"),
    "empty seeds": ({"seeds": []}, r"seeds must be a non-empty list of whole numbers, got \[\]"),
    "negative seed": ({"seeds": [3, -1]}, r"seeds must be from 0 to 2\*\*32 - 1, got -1 to 3"),
    "seed beyond 32 bits": ({"seeds": [2**32]}, r"seeds must be from 0 to 2\*\*32 - 1, got 4294967296"),
    "duplicate seeds": ({"seeds": [1, 2, 1]}, "seeds must differ from each other"),
    "no record interval": ({"record_every": 0}, "record_every must be .*, got 0"),
    "unknown metric": ({"record": ["regrett"]}, "record must be one of .*'regret'.*, got 'regrett'; did you mean 'regret'"),
    "unknown info": ({"record": ["info.bounds"]}, "record.*bounds"),
    "record as a number": ({"record": 5}, "record must be .*, got 5"),
    "root seed with the bits of another": ({"root_seed": -1}, "root_seed must be .*, got -1"),
    "key of jax": ({"root_seed": jax.random.key(0)}, "root_seed must be a whole number"),
    "instances of a given environment": ({"num_instances": 3}, "instances needs a sampler"),
    "no instances": ({"env": lambda key: BANDIT, "num_instances": 0}, "num_instances must be at least 1, got 0"),
    "a probe that is no function": ({"probes": {"x": 3}}, r"probes\['x'\] must be a function, got 3"),
    "probes without names": ({"probes": lambda *a: a[-1]}, "probes must be a dict"),
    "a probe with the name of a metric": ({"probes": {"regret": lambda *a: a[-1]}}, "probes.*'regret'"),
    "a probe with the name of a flag": ({"probes": {"valid": lambda *a: a[-1]}}, "probes.*'valid'"),
    "execution as a dict": ({"execution": {"backend": "scan"}}, "execution must be a jaxroute.Execution.*, got {'backend': 'scan'}"),
    "environment class": ({"env": stochastic.BanditEnv}, "env is the class BanditEnv; pass an instance"),
    "environment as a number": ({"env": 42}, "env must have the methods init, observe and step, .*got 42"),
    "a sampler of something else": ({"env": lambda key: 42}, "env.*42"),
    "no policy": ({"policies": {"mine": 42}}, "policy 'mine' must have the methods init, act and update, .*got 42"),
    "a function of something else": ({"policies": {"mine": lambda env: 42}}, "policy 'mine'.*42"),
    "a policy that is no pytree": ({"policies": {"mine": PlainPolicy()}}, "policy 'mine'.*(PlainPolicy.*dataclass|dataclass.*PlainPolicy)"),
    "a changed mean": ({"env": BANDIT.replace(mean=np.array([0.5, 1.5]))}, r"env: mean must be in \[0, 1\], got 1.5 at index \(1,\)"),
    "an environment that is no pytree": ({"env": PlainBandit(mean=BANDIT.mean, scale=BANDIT.scale)}, "env.*(PlainBandit.*dataclass|dataclass.*PlainBandit)"),
    "no policies": ({"policies": {}}, "policies must hold at least one policy, got none"),
    "policies named by numbers": ({"policies": {1: stochastic.UCB1()}}, "policies must be named by strings, got 1"),
    "two policies of a class": ({"policies": [stochastic.UCB1(), stochastic.UCB1()]}, "policies of the same class need names"),
    "a policy with stages for an environment without": ({"policies": staged.StageRoute()}, "policy 'StageRoute' plans by stage, but neither .*stage_length: the policy belongs to another problem"),
    # What environments and policies say that they measure.
    "a metric of environment and policy": ({"env": Clock(), "policies": Measuring(metric=Metric("reward", "reward", "", "total"))}, "'reward'"),
    "a metric that the environment declares twice": ({"env": Twice(Clock()), "policies": Cycle()}, "the environment declares the metric 'reward' twice: give one of them another name"),
    "a metric of two shapes": ({"env": Clock(), "policies": {"one": Measuring(), "other": Measuring(metric=VECTOR, value=(1.0, 2.0, 3.0))}}, "'own'"),
    "a metric that Info does not have": ({"env": Clock(), "policies": Cycle(), "record": ["info.thrice"]}, "record must be one of .*'info.twice', got 'info.thrice'"),
    "a flow that is not measured": ({"env": Forgetful(), "policies": Cycle()}, "'rounds'.*(flow|step|measure)"),
    "a flow of another shape": ({"env": Forgetful(instead="a vector"), "policies": Cycle()}, "'rounds'.*(dim|shape)"),
    "a gauge that is not measured": ({"env": Clock(), "policies": Measuring(metric=Metric("own", "own", "", "gauge"))}, "'own'.*gauges"),
    # Values of policies, checked where they are used.
    "negative width": ({"policies": stochastic.UCB1(width=-1.0)}, "policy 'UCB1': width must be at least 0, got -1"),
    "many widths without a grid": ({"policies": stochastic.UCB1(width=np.ones(4))}, r"width must have shape \(\), got \(4,\)"),
    "a wrong width in a grid": ({"policies": jr.grid(stochastic.UCB1, width=[1.0, NAN])}, "policy 'UCB1': width must be finite, got nan"),
    "epsilon above 1": ({"policies": stochastic.EpsilonGreedy(epsilon=1.5)}, r"epsilon must be in \[0, 1\], got 1.5"),
    "prior of no weight": ({"policies": stochastic.GaussianThompson(prior_weight=0)}, "prior_weight must be above 0, got 0"),
    "beta prior below 1": ({"policies": stochastic.BetaThompson(failures=0.5)}, "failures must be at least 1, got 0.5"),
    "gamma of zero": ({"env": market(), "policies": staged.StageRoute(gamma=0.0)}, "policy 'StageRoute': gamma must be above 0, got 0"),
    "floor above ceiling": ({"env": market(), "policies": staged.StageRoute(cost_floor=3.0, cost_ceiling=1.0)}, "cost_floor must be at most cost_ceiling = 1, got 3"),
    # Values of environments that were changed after they were made.
    "a changed budget": ({"env": market().replace(budget=np.float32(-1)), "policies": staged.StageRoute()}, "env: budget must be above 0, got -1"),
}  # fmt: skip

CONSTRUCT = {
    "NaN mean": (lambda: stochastic.bernoulli([0.5, NAN]), r"mean must be finite, got nan at index \(1,\)"),
    "negative probability": (lambda: stochastic.bernoulli([-0.1, 0.5]), r"mean must be in \[0, 1\], got -0.1 at index \(0,\)"),
    "no models": (lambda: stochastic.bernoulli([]), r"mean must have shape \[K\], got \(0,\)"),
    "means as text": (lambda: stochastic.bernoulli(["a"]), r"mean must be a number or an array of numbers, got \['a'\]"),
    "negative scale": (lambda: stochastic.gaussian([0.0, 1.0], scale=-1.0), "scale must be at least 0, got -1"),
    "negative budget": (lambda: staged.arena_market(budget=-2.0), "budget must be above 0, got -2"),
    "infeasible budget": (lambda: staged.arena_market(budget=0.1), "budget must be at least 0.14, the cheapest way to serve all queries of the first stage, got 0.1"),
    "two budgets": (lambda: market(budget=[1.0, 2.0]), r"budget must have shape \(\), got \(2,\)"),
    "no horizon": (lambda: staged.arena_market(horizon=0), "horizon must be at least 1, got 0"),
    "capacity above 1": (lambda: market(capacity=[0.5, 1.2]), r"capacity must be in \(0, 1\], got 1.2 at index \(1,\)"),
    "capacities that cannot carry the traffic": (lambda: market(capacity=[0.4, 0.5]), "capacity must let some 2 models of the first stage carry all queries .*, got at most 0.9"),
    "wrong number of fees": (lambda: market(deploy_fee=[0.5, 0.5, 0.5]), r"deploy_fee must have shape \(2,\), got \(3,\)"),
    "negative fee": (lambda: market(deploy_fee=-0.1), "deploy_fee must be at least 0, got -0.1"),
    "wrong number of arrivals": (lambda: market(arrival=[1, 2, 3]), r"arrival must be 2 whole rounds of at least 1, got \[1, 2, 3\]"),
    "arrival in round 0": (lambda: market(arrival=[0, 1]), r"arrival must be 2 whole rounds of at least 1, got \[0, 1\]"),
    "nobody at the start": (lambda: market(arrival=[5, 2]), r"arrival must have a model in round 1, got \[5, 2\]"),
    "no slots": (lambda: market(max_deployed=0), "max_deployed must be at least 1, got 0"),
    "no stage": (lambda: market(stage_length=0), "stage_length must be at least 1, got 0"),
    "unknown optimum": (lambda: market(optimum="stages"), "optimum must be one of 'stage', 'continuous', got 'stages'; did you mean 'stage'"),
    "negative cost": (lambda: market(cost_mean=np.array([-1.0, 1.0])), r"cost_mean must be at least 0, got -1 at index \(0,\)"),
    "too few names": (lambda: market(names=["a"]), r"names must have one name per model \(2\), all different, got \('a',\)"),
    "mean reward above 1": (lambda: market(reward_mean=(0.5, 1.5)), r"reward_mean must be in \[0, 1\], got 1.5 at index \(1,\)"),
    "other number of costs": (lambda: market(cost_mean=np.ones(3)), r"cost_mean must have shape \(2,\), got \(3,\)"),
    "negative noise": (lambda: staged.arena_market(reward_noise=-0.1), "reward_noise must be at least 0, got -0.1"),
    "unknown normalisation": (lambda: staged.arena_market(normalisation="minmax"), "normalisation must be one of 'min-max', 'max', got 'minmax'; did you mean 'min-max'"),
    "no arrival interval": (lambda: staged.arena_market(arrival_interval=0), "arrival_interval must be at least 1, got 0"),
    "no cost scale": (lambda: staged.routerbench_market(cost_scale=0.0), "cost_scale must be above 0, got 0"),
    "no stages": (lambda: staged.discovery_market(horizon=100, stages=0), "stages must be at least 1, got 0"),
    "short lower bound": (lambda: staged.lower_bound_market(horizon=4), "horizon must be at least .* = 16, got 4"),
    "table of something else": (lambda: staged.table_market([[1.0]], max_deployed=1, stage_length=5, horizon=9, budget=1.0), r"table must be a RoutingTable, got \[\[1.0\]\]"),
    "outcomes of something else": (lambda: staged.market(5, capacity=1.0, budget=1.0, max_deployed=1, stage_length=1, horizon=1), "outcomes must be .*, got 5"),
    "grid of nothing to call": (lambda: jr.grid(5, width=[1.0, 2.0]), "constructor.*5"),
}  # fmt: skip


@pytest.fixture
def no_play(monkeypatch):
    def run(*_):
        pytest.fail("wrong input was not refused before a block was played")

    monkeypatch.setattr(programs.Block, "run", run)


@pytest.mark.parametrize("name", SIMULATE)
def test_simulate_refuses(name, tmp_path, no_play):
    options, message = SIMULATE[name]
    with pytest.raises(ValueError, match=message):
        play(tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", CONSTRUCT)
def test_constructors_refuse(name):
    make, message = CONSTRUCT[name]
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_an_error_in_the_users_own_step_leaves_nothing_behind(tmp_path):
    """It is met while tracing, before there is a store."""

    @struct.dataclass
    class Broken(Clock):
        def step(self, key, state, action, t):
            raise RuntimeError("my own mistake")

    with pytest.raises(RuntimeError, match="my own mistake"):
        play(tmp_path / "out", Broken(), Cycle())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("around", [jax.jit, jax.grad, jax.vmap])
def test_inside_jit_vmap_and_grad_it_says_what_to_do(around, no_play):
    def played(width):
        return jr.simulate(BANDIT, {"UCB1": stochastic.UCB1(width=width)}, horizon=10, seeds=2)

    with pytest.raises(ValueError, match="outside jit, vmap and grad: .*jaxroute.grid"):
        around(played)(jnp.ones((2,) if around is jax.vmap else ()))


def test_unknown_arguments_are_named():
    with pytest.raises(TypeError, match="horizonn"):
        jr.simulate(BANDIT, stochastic.UCB1(), horizonn=3)


def test_the_right_input_is_not_refused(tmp_path):
    """What the table above varies does run."""
    options = {"probes": {"x": lambda *a: a[-1]}, "record": ["regret"], "execution": jr.Execution(block=3)}
    assert play(tmp_path / "out", root_seed=2**31, **options)["valid"].all()
    assert market().budget == np.float32(3.0)


# Policies that break the protocol, each told at the boundary.


@struct.dataclass
class Misspelt:
    """Has `updat` in place of `update`."""

    init, act, updat = stochastic.UCB1.init, stochastic.UCB1.act, stochastic.UCB1.update


@struct.dataclass
class MisspeltOption(stochastic.UCB1):
    """Its gauges are never read."""

    def guages(self, state):
        return {}


def test_a_misspelt_method_is_named():
    said = r"policy 'Misspelt': Misspelt must have the methods init, act, update; it has no update \(is updat meant\?\)"
    with pytest.raises(ValueError, match=said):
        jr.simulate(BANDIT, Misspelt(), horizon=5, seeds=2, progress=False)
    with pytest.warns(UserWarning, match="policy 'MisspeltOption' has 'guages', which nothing calls; is 'gauges' meant?"):
        jr.simulate(BANDIT, MisspeltOption(), horizon=5, seeds=2, progress=False)


def test_a_policy_of_another_problem_is_named():
    """Whichever method of either fails on what the other gives it."""
    for env, policy, what in (
        (small_market(), stochastic.UCB1(), "'UCB1' .* does not fit MarketEnv of jaxroute.*staged.env, in MarketEnv.step"),
        (BANDIT, combinatorial.C2MABV(), "'C2MABV' .* does not fit BanditEnv of jaxroute.*stochastic.env, in C2MABV.act"),
    ):
        with pytest.raises(jr.SimulationError, match=f"policy {what}"):
            jr.simulate(env, policy, horizon=5, seeds=2, progress=False)
