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


@struct.dataclass
class Misspelt:
    """Has no `update`."""

    def init(self, key, spec):
        return ()

    def act(self, key, state, obs, t):
        return jnp.int32(0), {}

    def updat(self, key, state, obs, action, feedback, t):
        return state


@struct.dataclass
class MisspeltOption(Follower):
    """Its gauges would never be read."""

    def guages(self, state):
        return {"sum": state["sum"]}


@struct.dataclass
class MisspeltPlan(Follower):
    """Inherits `update`, and means to replace it."""

    def updates(self, key, state, obs, action, feedback, t):
        return state


@struct.dataclass
class NewShape(Follower):
    def update(self, key, state, obs, action, feedback, t):
        return {**state, "sum": jnp.stack([state["sum"], feedback])}


@struct.dataclass
class NewType(Follower):
    def update(self, key, state, obs, action, feedback, t):
        return {**state, "rounds": state["rounds"] + self.step}


@struct.dataclass
class DropsLeaf(Follower):
    def update(self, key, state, obs, action, feedback, t):
        return {"sum": state["sum"] + feedback}


@struct.dataclass
class Sums:
    sum: jax.Array
    rounds: jax.Array


@struct.dataclass
class OtherSums(Sums):
    pass


@struct.dataclass
class OtherClass(Follower):
    """Its update makes another class with the same leaves."""

    def init(self, key, spec):
        return Sums(jnp.float32(0), jnp.int32(0))

    def act(self, key, state, obs, t):
        return jnp.int32(0), {}

    def update(self, key, state, obs, action, feedback, t):
        return OtherSums(state.sum + feedback, state.rounds + 1)


@struct.dataclass
class WeakInit(Follower):
    def init(self, key, spec):
        return {"sum": 0.0, "rounds": jnp.zeros((), jnp.int32)}


@struct.dataclass
class WeakUpdate(Follower):
    def update(self, key, state, obs, action, feedback, t):
        return {"sum": state["sum"], "rounds": 0}


@struct.dataclass
class BareAction(Follower):
    def act(self, key, state, obs, t):
        return jnp.int32(0)


@struct.dataclass
class NoInfo(Follower):
    def act(self, key, state, obs, t):
        return jnp.int32(0), None


@struct.dataclass
class NewPlan(Follower):
    """Its plan makes a state of another structure."""

    stage_length: int = struct.field(pytree_node=False, default=4)

    def plan(self, key, state, obs, t):
        return {**state, "planned": t}


@struct.dataclass
class NoStages(Follower):
    def plan(self, key, state, obs, t):
        return state


@struct.dataclass
class LacksMetric(Follower):
    metrics = (Metric("width", "width", "1", "average"),)


@struct.dataclass
class LacksGauge(Follower):
    metrics = (Metric("width", "width", "1", "gauge"),)


@struct.dataclass
class WrongDimensions(Follower):
    metrics = (Metric("sum", "sum by model", "reward", "average", ("model",)),)


@struct.dataclass
class TakenMetric(Follower):
    metrics = (Metric("regret", "regret", "reward", "total"),)


@struct.dataclass
class StaticLeaf(Follower):
    """Reads a swept number on the host, so that every value of it is another program."""

    def act(self, key, state, obs, t):
        return jnp.int32(int(self.step) % 3), {}


@struct.dataclass
class BranchesOnState(Follower):
    def act(self, key, state, obs, t):
        return jnp.int32(0 if state["sum"] > 0 else 1), {}


COUNT = itertools.count()


@struct.dataclass
class Counts(Follower):
    """Keeps a count outside its state: eager and compiled runs differ."""

    def act(self, key, state, obs, t):
        return jnp.int32(next(COUNT) % 3), {}


KEPT = []


@struct.dataclass
class Remembers(Follower):
    """Keeps a traced value outside its state."""

    def act(self, key, state, obs, t):
        KEPT.append(t)
        return jnp.int32(0), {}


@struct.dataclass
class ChangesItself(Follower):
    def update(self, key, state, obs, action, feedback, t):
        object.__setattr__(self, "step", self.step + 1)
        return state


@struct.dataclass
class ChangesItsClass(Follower):
    played = 0

    def act(self, key, state, obs, t):
        type(self).played += 1
        return Follower.act(self, key, state, obs, t)


@struct.dataclass
class ChangesArgument(Follower):
    """Writes into the dict that it was given."""

    def update(self, key, state, obs, action, feedback, t):
        state["sum"] = state["sum"] + feedback
        return state


@struct.dataclass
class Unhashable(Follower):
    names: list = struct.field(pytree_node=False, default_factory=list)


class NoPytree:
    def init(self, key, spec):
        return ()

    def act(self, key, state, obs, t):
        return jnp.int32(0), {}

    def update(self, key, state, obs, action, feedback, t):
        return state


@struct.dataclass
class FewArguments(Follower):
    def act(self, key, state, obs):
        return jnp.int32(0), {}


def seen_by_tracing():
    yield Misspelt(), r"^Misspelt has no method update; did you misspell it as 'updat'\?$"
    yield MisspeltOption(), r"^MisspeltOption has 'guages', which nothing calls; did you mean 'gauges'\?$"
    yield MisspeltPlan(), r"^MisspeltPlan has 'updates', which nothing calls; did you mean 'update'\?$"
    yield NewShape(), r"^NewShape.update changes the state's array \['sum'\] from float32\[\] to float32\[2\]$"
    yield NewType(), r"^NewType.update changes the state's array \['rounds'\] from int32\[\] to float32\[\]$"
    yield DropsLeaf(), r"^DropsLeaf.update returns a state of another structure .* drops the array \['rounds'\]$"
    yield OtherClass(), r"^OtherClass.update returns a state of another structure .* has other containers$"
    yield WeakInit(), r"^WeakInit.init makes the state's array \['sum'\] weakly typed"
    yield WeakUpdate(), r"^WeakUpdate.update makes the state's array \['rounds'\] weakly typed"
    yield BareAction(), r"^BareAction.act must return \(action, info\) with info a dict, got int32\[\]$"
    yield NoInfo(), r"^NoInfo.act must return .* info a dict, got \(int32\[\], None\)$"
    yield NewPlan(), r"^NewPlan.plan returns a state of another structure .* adds the array \['planned'\]$"
    yield NoStages(), r"^NoStages has plan, but neither it nor Bandit\w* has a stage_length$"
    yield LacksMetric(), r"^the Info of LacksMetric.act\(\) lacks 'width', which LacksMetric.metrics declares$"
    yield LacksGauge(), r"^LacksGauge.gauges\(\) lacks 'width', which LacksGauge.metrics declares$"
    yield WrongDimensions(), r"^'sum' in the Info of WrongDimensions.act\(\) has the shape \(\), .* dimensions \('model',\)$"
    yield TakenMetric(), r"^TakenMetric.metrics declares 'regret', which Bandit\w*.spec.metrics declares too$"
    yield StaticLeaf(), r"^StaticLeaf.act needs a value that is known only when it runs .*Concret"
    yield BranchesOnState(), r"^BranchesOnState.act needs a value that is known only when it runs .*Bool"
    yield Counts(), r"^Counts.act is not pure"
    yield Remembers(), r"^Remembers.act keeps a traced value after it has returned"
    yield ChangesItself(), r"^ChangesItself.update changes ChangesItself.step"
    yield ChangesItsClass(), r"^ChangesItsClass.act changes ChangesItsClass.played"
    yield ChangesArgument(), r"^ChangesArgument.update changes one of its arguments in place"
    yield Unhashable(), r"^the static field Unhashable.names must be hashable, got \[\]$"
    yield (
        NoPytree(),
        r"^policy must be a pytree, got the plain class NoPytree: decorate the class with flax.struct.dataclass or",
    )
    yield FewArguments(), r"^FewArguments.act cannot be traced: TypeError: .*positional arguments"
    yield Follower, r"^policy is the class Follower; pass an instance"
    yield staged.StageRoute(), r"^StageRoute"  # A policy of another problem.


@pytest.mark.parametrize(("policy", "message"), [pytest.param(p, m, id=m[1:30].split()[0]) for p, m in seen_by_tracing()])
def test_a_fault_that_a_trace_shows_is_named(policy, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_policy(policy, BERNOULLI)


def test_a_policy_of_another_problem_is_named_with_its_action():
    market = staged.arena_market(stage_length=10, horizon=40)
    with pytest.raises(AssertionError, match=r"^UCB1.\w+ cannot be traced|does not take the action of UCB1.act, int32\[\]"):
        testing.check_policy(stochastic.UCB1(), market)


@struct.dataclass
class NotANumber(Follower):
    """Divides by the number of rounds before the first one."""

    def update(self, key, state, obs, action, feedback, t):
        return {**state, "sum": feedback * 0.0 / t}


@struct.dataclass
class FollowsHorizon(Follower):
    """Explores for a share of the horizon: its first rounds depend on how many follow."""

    def init(self, key, spec):
        return {"explore": jnp.asarray(spec.horizon // 4, jnp.int32)}

    def act(self, key, state, obs, t):
        return jnp.where(t < state["explore"], 2, 0), {}

    def update(self, key, state, obs, action, feedback, t):
        return state


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


def test_a_good_policy_passes():
    testing.check_policy(Follower(), BERNOULLI, horizon=16, seeds=16)


@struct.dataclass
class Undeclared(stochastic.BanditEnv):
    def step(self, key, state, action, t):
        state, feedback, flows = super().step(key, state, action, t)
        return state, feedback, {"reward": flows["reward"]}


@struct.dataclass
class NewState(stochastic.BanditEnv):
    def step(self, key, state, action, t):
        _, feedback, flows = super().step(key, state, action, t)
        return t, feedback, flows


@struct.dataclass
class NoSpec(stochastic.BanditEnv):
    spec = None


@struct.dataclass
class OtherLuck(stochastic.BanditEnv):
    """Draws with NumPy: the luck is that of the trace."""

    def step(self, key, state, action, t):
        state, feedback, flows = super().step(key, state, action, t)
        return state, feedback + np.random.default_rng().random(), flows


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Undeclared, r"^the flows of Undeclared.step\(\) lack 'regret', which Undeclared.spec.metrics declares$"),
        (NewState, r"^NewState.step returns a state of another structure than init made: it adds the array"),
        (NoSpec, r"^NoSpec.spec must be a Spec, got None$"),
        (OtherLuck, r"^OtherLuck.step is not pure"),
    ],
)
def test_broken_environments_are_named(kind, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_environment(kind(BERNOULLI.mean, BERNOULLI.scale), stochastic.UCB1())
