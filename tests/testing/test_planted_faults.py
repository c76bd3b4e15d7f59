"""Policies and environments with one fault each: the conformance kit names the fault, the object, the method and the leaf."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxroute import testing
from jaxroute.core.types import Metric
from jaxroute.problems import staged, stochastic

BERNOULLI = stochastic.bernoulli([0.9, 0.5, 0.1])


@struct.dataclass
class Follower:
    """A policy that keeps the protocol: the next model in turn. The classes below break it in one place each."""

    step: float = 1.0

    def init(self, key, spec):
        return {"sum": jnp.zeros((), jnp.float32), "rounds": jnp.zeros((), jnp.int32)}

    def act(self, key, state, obs, t):
        return (t % 3).astype(jnp.int32), {"sum": state["sum"]}

    def update(self, key, state, obs, action, feedback, t):
        return {"sum": state["sum"] + self.step * feedback, "rounds": state["rounds"] + 1}


class Three:
    """The required methods, without a pytree."""

    def init(self, key, spec):
        return ()

    def act(self, key, state, obs, t):
        return jnp.int32(0), {}

    def update(self, key, state, obs, action, feedback, t):
        return state


@struct.dataclass
class Sums:
    sum: jax.Array
    rounds: jax.Array


@struct.dataclass
class OtherSums(Sums):
    pass


def broken(name, *, base=Follower, **members):
    """A policy class with other methods."""
    return struct.dataclass(type(name, (base,), {"__module__": __name__, "__qualname__": name, **members}))


def act(function):
    """A method `act` that depends on the policy, the state and the round alone."""
    return lambda self, key, state, obs, t: function(self, state, t)


def update(function):
    """A method `update` that depends on the policy, the state and the feedback alone."""
    return lambda self, key, state, obs, action, feedback, t: function(self, state, feedback)


def changes_itself(self, state, feedback):
    object.__setattr__(self, "step", self.step + 1)
    return state


def changes_its_argument(self, state, feedback):
    state["sum"] = state["sum"] + feedback
    return state


COUNT, KEPT = itertools.count(), []
NAMES = struct.field(pytree_node=False, default_factory=list)
STAGES = {"__annotations__": {"stage_length": int}, "stage_length": struct.field(pytree_node=False, default=4)}

# Methods that break a class of this name, and the sentence about it.
FAULTS = {
    "MisspeltOption": ({"guages": lambda self, state: {"sum": state["sum"]}}, r"^MisspeltOption has 'guages', which nothing calls; did you mean 'gauges'\?$"),
    "NewShape": ({"update": update(lambda self, s, f: {**s, "sum": jnp.stack([s["sum"], f])})}, r"^NewShape.update changes the state's array \['sum'\] from float32\[\] to float32\[2\]$"),
    "NewType": ({"update": update(lambda self, s, f: {**s, "rounds": s["rounds"] + self.step})}, r"^NewType.update changes the state's array \['rounds'\] from int32\[\] to float32\[\]$"),
    "DropsLeaf": ({"update": update(lambda self, s, f: {"sum": s["sum"] + f})}, r"^DropsLeaf.update returns a state of another structure .* drops the array \['rounds'\]$"),
    "OtherClass": ({"init": lambda self, key, spec: Sums(jnp.float32(0), jnp.int32(0)), "act": Three.act, "update": update(lambda self, s, f: OtherSums(s.sum + f, s.rounds + 1))}, r"^OtherClass.update returns a state of another structure .* has other containers$"),
    "WeakInit": ({"init": lambda self, key, spec: {"sum": 0.0, "rounds": jnp.zeros((), jnp.int32)}}, r"^WeakInit.init makes the state's array \['sum'\] weakly typed"),
    "WeakUpdate": ({"update": update(lambda self, s, f: {"sum": s["sum"], "rounds": 0})}, r"^WeakUpdate.update makes the state's array \['rounds'\] weakly typed"),
    "BareAction": ({"act": act(lambda self, s, t: jnp.int32(0))}, r"^BareAction.act must return \(action, info\) with info a dict, got int32\[\]$"),
    "NewPlan": (STAGES | {"plan": lambda self, key, state, obs, t: {**state, "planned": t}}, r"^NewPlan.plan returns a state of another structure .* adds the array \['planned'\]$"),
    "NoStages": ({"plan": lambda self, key, state, obs, t: state}, r"^NoStages has plan, but neither it nor Bandit\w* has a stage_length$"),
    "LacksMetric": ({"metrics": (Metric("width", "width", "1", "average"),)}, r"^the Info of LacksMetric.act\(\) lacks 'width', which LacksMetric.metrics declares$"),
    "LacksGauge": ({"metrics": (Metric("width", "width", "1", "gauge"),)}, r"^LacksGauge.gauges\(\) lacks 'width', which LacksGauge.metrics declares$"),
    "WrongDimensions": ({"metrics": (Metric("sum", "sum by model", "reward", "average", ("model",)),)}, r"^'sum' in the Info of WrongDimensions.act\(\) has the shape \(\), .* dimensions \('model',\)$"),
    "TakenMetric": ({"metrics": (Metric("regret", "regret", "reward", "total"),)}, r"^TakenMetric.metrics declares 'regret', which Bandit\w*.spec.metrics declares too$"),
    "StaticLeaf": ({"act": act(lambda self, s, t: (jnp.int32(int(self.step) % 3), {}))}, r"^StaticLeaf.act needs a value that is known only when it runs .*Concret"),
    "Counts": ({"act": act(lambda self, s, t: (jnp.int32(next(COUNT) % 3), {}))}, r"^Counts.act is not pure"),
    "Remembers": ({"act": act(lambda self, s, t: (KEPT.append(t) or jnp.int32(0), {}))}, r"^Remembers.act keeps a traced value after it has returned"),
    "ChangesItself": ({"update": update(changes_itself)}, r"^ChangesItself.update changes ChangesItself.step"),
    "ChangesArgument": ({"update": update(changes_its_argument)}, r"^ChangesArgument.update changes one of its arguments in place"),
    "Unhashable": ({"__annotations__": {"names": list}, "names": NAMES}, r"^the static field Unhashable.names must be hashable, got \[\]$"),
    "FewArguments": ({"act": lambda self, key, state, obs: (jnp.int32(0), {})}, r"^FewArguments.act cannot be traced: TypeError: .*positional arguments"),
}  # fmt: skip
MISSPELT = type("Misspelt", (), {"init": Three.init, "act": Three.act, "updat": Three.update})
OTHERS = {
    "no update": (struct.dataclass(MISSPELT)(), r"^Misspelt has no method update; did you misspell it as 'updat'\?$"),
    "a class": (Follower, r"^policy is the class Follower; pass an instance"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*FAULTS, *OTHERS])
def test_a_fault_that_a_trace_shows_is_named(name):
    policy, message = OTHERS[name] if name in OTHERS else (broken(name, **FAULTS[name][0])(), FAULTS[name][1])
    with pytest.raises(AssertionError, match=message):
        testing.check_policy(policy, BERNOULLI)


def test_a_policy_of_another_problem_is_named_with_its_action():
    market = staged.arena_market(stage_length=10, horizon=40)
    with pytest.raises(AssertionError, match=r"^UCB1.\w+ cannot be traced|does not take the action of UCB1.act, int32\[\]"):
        testing.check_policy(stochastic.UCB1(), market)


# The first divides by the number of rounds before the first one; the second explores for a share of the horizon.
NotANumber = broken("NotANumber", update=lambda self, k, state, o, a, feedback, t: {**state, "sum": feedback * 0.0 / t})
FollowsHorizon = broken(
    "FollowsHorizon",
    init=lambda self, key, spec: {"explore": jnp.asarray(spec.horizon // 4, jnp.int32)},
    act=act(lambda self, state, t: (jnp.where(t < state["explore"], 2, 0), {})),
    update=Three.update,
)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (NotANumber(), r"^NotANumber has NaN in the state's array \['sum'\] after round 0$"),
        (FollowsHorizon(), r"^FollowsHorizon: '\w+' of the first \d+ rounds depends on how many rounds follow$"),
    ],
)
def test_a_fault_that_shows_in_play_is_named(policy, message):
    testing.check_structure(policy, BERNOULLI)
    with pytest.raises(AssertionError, match=message):
        testing.check_policy(policy, BERNOULLI, horizon=16, seeds=16)


def stepping(change):
    """A method `step` with another result; `change` gets `t`, state, feedback and flows."""

    def step(self, key, state, action, t):
        return change(t, *stochastic.BanditEnv.step(self, key, state, action, t))

    return step


@pytest.mark.parametrize(
    ("name", "members", "message"),
    [
        ("Undeclared", {"step": stepping(lambda t, s, fb, flows: (s, fb, {"reward": flows["reward"]}))}, r"^the flows of Undeclared.step\(\) lack 'regret', which Undeclared.spec.metrics declares$"),
        ("NewState", {"step": stepping(lambda t, s, fb, flows: (t, fb, flows))}, r"^NewState.step returns a state of another structure than init made: it adds the array"),
        ("NoSpec", {"spec": None}, r"^NoSpec.spec must be a Spec, got None$"),
        ("NumPyNoise", {"step": stepping(lambda t, s, fb, flows: (s, fb + np.random.default_rng().random(), flows))}, r"^NumPyNoise.step is not pure"),
    ],
)  # fmt: skip
def test_broken_environments_are_named(name, members, message):
    kind = broken(name, base=stochastic.BanditEnv, **members)
    with pytest.raises(AssertionError, match=message):
        testing.check_environment(kind(BERNOULLI.mean, BERNOULLI.scale), stochastic.UCB1())
