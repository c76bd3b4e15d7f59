"""DeployOPT: worked examples, branch and bound, fillers, ties, and infeasible budgets."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import x64
from reference import staged as plain
from scipy.optimize import linprog

from jaxroute.core import draws
from jaxroute.data import STAGEROUTE_TABLE_1, min_max
from jaxroute.problems.staged import fillers, optimum, ties
from jaxroute.problems.staged.parts import deployment as module
from jaxroute.problems.staged.types import Observation, StagedSpec

TABLE = STAGEROUTE_TABLE_1
SHARES = np.where(np.array(TABLE.names) == "Yi-Lightning", 1.0, 0.4)


@functools.cache
def deployer(num_models, slots, support, filler, tie, dtype):
    """DeployOPT, jitted and vmapped over keys, bounds, capacities, pools and budgets."""
    del dtype
    spec = StagedSpec(num_models=num_models, max_deployed=slots, max_support=support)

    def one(key, u, c, capacity, available, budget):
        zero = jnp.zeros((), u.dtype)
        obs = Observation(available, capacity, budget, zero, jnp.int32(1), jnp.float32(0.1), jnp.float32(50.0))
        return module.deploy(key, u, c, obs, spec, filler, tie)[:2]

    return jax.jit(jax.vmap(one))


def deploy(
    u, c, capacity, available, budget, slots, *, filler=fillers.ReducedValue(), tie=ties.IndexTie(), support=None, dtype="float64"
):  # fmt: skip
    """Deployed sets `[n, N]` and flags `[n]` of a batch of instances.

    Few models are padded to eight with unavailable ones, and batches to 80, so that few programs are compiled.
    """
    count, size = np.shape(u)
    width, batch = max(size, 8), -(-count // 80) * 80
    support = width + 1 if support is None else support

    def padded(x, fill):
        x = np.broadcast_to(x, (count, size))
        x = np.concatenate([x, np.full((count, width - size), fill, x.dtype)], axis=1)
        return np.concatenate([x, np.repeat(x[:1], batch - count, axis=0)])

    with x64(dtype == "float64"):
        arrays = [jnp.asarray(padded(x, 0.5), dtype) for x in (u, c, capacity)]
        available = jnp.asarray(padded(np.asarray(available), False))
        budget = jnp.asarray(np.resize(np.broadcast_to(budget, (count,)), batch), dtype)
        keys = jax.random.split(draws.key(0), batch)
        run = deployer(width, slots, support, filler, tie, dtype)
        parts = [run(*(x[i : i + 80] for x in (keys, *arrays, available, budget))) for i in range(0, batch, 80)]
        deployed, feasible = (np.concatenate([np.asarray(x) for x in part]) for part in zip(*parts, strict=True))
    assert not deployed[:, size:].any()
    return deployed[:count, :size], feasible[:count]


def best_with(u, c, capacity, budget, chosen, least=0.0):
    """HiGHS: the best routing over the chosen models, each with at least the share `least`; NaN if there is none."""
    some = np.flatnonzero(chosen)
    total = {"A_eq": np.ones((1, len(some))), "b_eq": [1.0], "bounds": [(least, a) for a in capacity[some]]}
    answer = linprog(-u[some], A_ub=c[some][None], b_ub=[budget], **total)
    return -answer.fun if answer.success else np.nan


def members(deployed):
    return set(np.flatnonzero(deployed).tolist())


# Worked examples: Table 1 at its true means and costs.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("slots", "pool", "value", "expected"),
    [
        (3, 6, 0.360847, {1, 3, 5}),
        (3, 7, 0.523810, {3, 5, 6}),
        (3, 15, 0.721693, {6, 9, 10}),
        (6, 15, 0.766050, {5, 6, 9, 10, 11, 14}),
        (10, 15, 0.766050, {2, 3, 5, 6, 8, 9, 10, 11, 12, 14}),
        (6, 6, 0.384730, {0, 1, 2, 3, 4, 5}),
        (10, 7, 0.542902, {0, 1, 2, 3, 4, 5, 6}),
    ],
)
def test_table_1_at_its_true_values(slots, pool, value, expected, dtype):
    u, c = min_max(TABLE.scores), np.asarray(TABLE.costs)
    deployed, feasible = deploy(u[None], c, SHARES, np.arange(15) < pool, 2.0, slots, support=4, dtype=dtype)
    assert members(deployed[0]) == expected
    assert feasible[0]
    assert best_with(u, c, SHARES, 2.0, deployed[0]) == pytest.approx(value, abs=5e-7)
    assert optimum.pool_value(u, c, SHARES, 2.0, range(pool), slots) == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_start_up_tie(dtype):
    """Six unseen models (U = 1, L = .1) and three slots: the first three, or the newest."""
    u, c = np.ones((1, 6)), np.full(6, 0.1)
    deployed, _ = deploy(u, c, SHARES[:6], True, 2.0, 3, support=4, dtype=dtype)
    assert members(deployed[0]) == {0, 1, 2}
    newest, _ = deploy(u, c, 0.4, True, 2.0, 3, support=4, tie=ties.NewestTie(), dtype=dtype)
    assert members(newest[0]) == {3, 4, 5}


# Random instances against branch and bound.


def random_instances(seed, count, size):
    """A third without structure, a third with equal bounds, a third with a price-quality frontier; most with a mask."""
    rng = np.random.default_rng(seed)
    shape, kind = (count, size), (np.arange(count) % 3)[:, None]
    u = rng.uniform(0.05, 1, shape)
    c = 10.0 ** rng.uniform(-1, 1.2, shape)
    unseen = rng.random(shape) < 0.4
    u = np.where(kind == 2, np.clip((c / 16) ** 0.4 + 0.05 * rng.normal(size=shape), 0.01, 1), u)
    u, c = np.where((kind == 1) & unseen, 1.0, u), np.where((kind == 1) & unseen, 0.1, c)
    capacity = np.where(rng.random((count, 1)) < 0.3, 0.4, rng.uniform(0.15, 0.9, shape))
    available = rng.random(shape) < rng.choice([1.0, 0.75], (count, 1))
    available[np.arange(count), rng.integers(0, size, count)] = True
    cheap = np.where(available, c, np.inf).min(1)
    budget = cheap * 10.0 ** rng.uniform(-0.05, 1.2, count)
    return u, c, capacity, available, budget


CASES = [(6, 2, 80), (6, 3, 80), (8, 3, 80), (8, 4, 80), (8, 6, 80)]


@functools.cache
def branch_and_bound(size, slots, count, share):
    problem = random_instances(100 * size + slots, count, size)
    return problem, [plain.deploy_milp(*(x[i] for x in problem), slots, eps=share) for i in range(count)]


@pytest.mark.parametrize(("size", "slots", "count"), CASES)
def test_against_branch_and_bound(size, slots, count):
    """Same feasibility and value as the mixed-integer program, and a set as good as its own when each model must serve."""
    problem, answers = branch_and_bound(size, slots, count, 0.0)
    tiny = branch_and_bound(size, slots, count, 1e-4)[1]
    u, c, capacity, available, budget = problem
    deployed, feasible = deploy(*problem, slots)
    for i, (value, _, possible) in enumerate(answers):
        assert feasible[i] == possible, i
        pool = int(available[i].sum())
        assert deployed[i].sum() == min(slots, pool), i
        assert not (deployed[i] & ~available[i]).any(), i
        if not possible:
            continue
        assert best_with(u[i], c[i], capacity[i], budget[i], deployed[i]) == pytest.approx(value, abs=1e-7), i
        if tiny[i][2]:
            share = best_with(u[i], c[i], capacity[i], budget[i], deployed[i], 1e-4)
            assert share == pytest.approx(tiny[i][0], abs=1e-6), i
    assert 0.3 < feasible.mean() < 1.0


@pytest.mark.parametrize(("size", "slots", "count"), CASES)
def test_against_the_plain_procedure(size, slots, count):
    """The reference's loops choose the same sets, for all deterministic fillers."""
    problem = random_instances(100 * size + slots, count, size)
    choices = {"reduced": fillers.ReducedValue(), "none": fillers.NoFiller(), "index": fillers.IndexFiller()}
    for name, filler in choices.items():
        if name != "reduced" and slots not in (3, 4):
            continue
        deployed, feasible = deploy(*problem, slots, filler=filler)
        for i in range(count):
            expected, possible = plain.deploy(*(x[i] for x in problem), slots, filler=name)
            assert feasible[i] == possible, (name, i)
            if possible:
                np.testing.assert_array_equal(deployed[i], expected, err_msg=f"{name} {i}")
            else:  # Equal costs may be taken in any order.
                np.testing.assert_array_equal(np.sort(problem[1][i][deployed[i]]), np.sort(problem[1][i][expected]))


@pytest.mark.parametrize(("size", "slots", "count"), [(6, 3, 80), (8, 3, 80)])
def test_single_precision_is_as_good(size, slots, count):
    problem, answers = branch_and_bound(size, slots, count, 0.0)
    u, c, capacity, _, budget = problem
    deployed, feasible = deploy(*problem, slots, dtype="float32")
    for i, (value, _, possible) in enumerate(answers):
        assert feasible[i] == possible, i
        if possible:
            found = best_with(u[i], c[i], capacity[i], budget[i] * (1 + 2e-6), deployed[i])
            assert found == pytest.approx(value, abs=2e-5), i


@pytest.mark.parametrize(("size", "slots", "count"), [(6, 3, 80), (8, 3, 80), (8, 4, 80)])
def test_minimum_share_against_branch_and_bound(size, slots, count):
    """A finite share for every deployed model, by enumeration of all sets, is the mixed-integer program itself."""
    problem, answers = branch_and_bound(size, slots, count, 1e-4)
    u, c, capacity, available, budget = problem
    deployed, _ = deploy(*problem, slots, filler=fillers.MinimumShare(1e-4))
    solved = 0
    for i, (value, chosen, possible) in enumerate(answers):
        if not possible or available[i].sum() < slots:
            continue
        solved += 1
        found = best_with(u[i], c[i], capacity[i], budget[i], deployed[i], 1e-4)
        assert found == pytest.approx(value, abs=1e-7), i
        if (deployed[i] != chosen).any():  # Only another optimum.
            assert best_with(u[i], c[i], capacity[i], budget[i], chosen, 1e-4) == pytest.approx(value, abs=1e-7)
    assert solved > 0.4 * count


def test_large_share_changes_the_set():
    """By hand: u = (1, .9, .5), c = (4, .1, 3.9), two slots, capacity 1, budget 1.83.

    A share of .45 each costs at least .45 * 4 + .55 * .1 = 1.855 for {0, 1}, 1.81 for {1, 2} and more than 3.9 for {0, 2}: only
    {1, 2} is left. Without a share {0, 1} is best, at p = (1.73, 2.17) / 3.9 and value .944.
    """
    u, c = np.array([[1.0, 0.9, 0.5]]), np.array([4.0, 0.1, 3.9])
    assert members(deploy(u, c, 1.0, True, 1.83, 2, filler=fillers.MinimumShare(0.45))[0][0]) == {1, 2}
    assert members(deploy(u, c, 1.0, True, 1.83, 2)[0][0]) == {0, 1}


# Fillers and ties.


@pytest.mark.slow
def test_random_fillers():
    """Table 1, six slots: the support {6, 9, 10, 14} is always in; each of the 11 others with probability 2/11, within 5 standard errors."""
    u = np.repeat(min_max(TABLE.scores)[None], 400, axis=0)
    deployed, _ = deploy(u, np.asarray(TABLE.costs), SHARES, True, 2.0, 6, filler=fillers.RandomFiller(), support=4)
    others = np.delete(deployed, [6, 9, 10, 14], axis=1)
    assert deployed[:, [6, 9, 10, 14]].all() and (others.sum(1) == 2).all()
    assert np.abs(others.sum(0) - 400 * 2 / 11).max() < 5 * np.sqrt(400 * 2 / 11 * 9 / 11)


def test_ties_of_fillers_go_to_the_cheaper_then_to_the_index():
    # The first two carry everything (capacity .5 each, slack budget, multiplier 0); the others tie at u = .5.
    u = np.array([[0.9, 0.8, 0.5, 0.5, 0.5, 0.5]])
    c = np.array([1.0, 1.0, 0.3, 0.2, 0.2, 0.1])
    for slots, chosen in ((3, {0, 1, 5}), (4, {0, 1, 5, 3})):
        assert members(deploy(u, c, 0.5, True, 2.0, slots)[0][0]) == chosen
    assert members(deploy(u, c, 0.5, True, 2.0, 4, tie=ties.NewestTie())[0][0]) == {0, 1, 5, 4}


def test_rounding_does_not_decide_between_equal_models():
    """Two of eight models have the same bounds. Sets with either of them have the same value, summed in another order."""
    rng, count = np.random.default_rng(0), 2400
    u, c = rng.random((count, 8)).astype(np.float32), (3 * rng.random((count, 8))).astype(np.float32)
    first, second = np.sort(np.argsort(rng.random((count, 8)), axis=1)[:, :2], axis=1).T
    rows = np.arange(count)
    u[rows, second], c[rows, second] = u[rows, first], c[rows, first]
    budget = (0.3 + 1.5 * rng.random(count)).astype(np.float32)
    deployed, _ = deploy(u, c, 0.4, True, budget, 3, support=4, dtype="float32")
    deployed = np.asarray(deployed)
    assert (deployed[rows, first] != deployed[rows, second]).sum() > 200, "the instances decide between the two"
    assert not (deployed[rows, second] & ~deployed[rows, first]).any()


def test_random_ties():
    """Of twelve unseen models for three slots all have the same probability; better ones are always deployed."""
    count = 600
    u, c = np.ones((count, 12)), np.full(12, 0.1)
    deployed, _ = deploy(u, c, 0.4, True, 2.0, 3, tie=ties.RandomTie(), support=4, dtype="float32")
    assert (deployed.sum(1) == 3).all()
    error = np.sqrt(count * 0.25 * 0.75)
    assert np.abs(deployed.sum(0) - count / 4).max() < 5 * error
    u[:, 1:] = np.linspace(0.5, 0.9, 11)
    deployed, _ = deploy(u, c, 0.4, True, 2.0, 3, tie=ties.RandomTie(), support=4, dtype="float32")
    assert [members(d) for d in deployed] == [{0, 10, 11}] * count


# The number of deployed models, and the support.


@pytest.mark.parametrize(("capacity", "bound"), [(1.0, 2), (0.5, 3), (0.4, 4), (1 / 3, 4), (0.3, 5), (0.25, 5), (0.1, 11)])
def test_support_bound(capacity, bound):
    """No optimal routing needs more models than the bound, and (with a frontier that uses them) some need that many."""
    assert optimum.max_support([1.0, capacity, 1.0]) == bound
    rng = np.random.default_rng(bound)
    size = 14
    largest = 0
    for _ in range(60):
        c = np.sort(10.0 ** rng.uniform(-1, 1, size))
        u = (c / 10) ** 0.5
        problem = (u, c, np.full(size, capacity), float(rng.uniform(1, 4)))
        relaxed = optimum.routing_values(*problem, [range(size)])[0]
        if relaxed > 0:
            assert optimum.pool_value(*problem, range(size), bound) == pytest.approx(relaxed, abs=1e-12)
            largest = max(largest, int((np.asarray(plain.route_lp(*problem)[0]) > 1e-9).sum()))
    assert largest in (bound, bound - 1)


def test_sets_are_enumerated_only_below_the_support_bound(monkeypatch):
    def refuse(*args):
        raise AssertionError("enumerated")

    monkeypatch.setattr(module, "_best_set", refuse)
    budget, overspend, floor, ceiling = (jnp.float32(x) for x in (2.0, 0.0, 0.1, 50.0))
    obs = Observation(jnp.ones(6, bool), jnp.full(6, 0.4), budget, overspend, jnp.int32(1), floor, ceiling)
    u, c = jnp.linspace(0.1, 0.9, 6), jnp.linspace(0.1, 5.0, 6)
    for slots in (4, 5):
        spec = StagedSpec(num_models=6, max_deployed=slots, max_support=4)
        jax.eval_shape(lambda key, u, c, spec=spec: module.deploy(key, u, c, obs, spec), draws.key(0), u, c)
    with pytest.raises(AssertionError, match="enumerated"):
        module.deploy(draws.key(0), u, c, obs, StagedSpec(num_models=6, max_deployed=3, max_support=4))


def test_more_sets_than_one_block():
    """C(11, 4) = 330 sets take three blocks of the enumeration, the last one padded; the best set may be in any of them."""
    u, c, capacity, available, budget = random_instances(3, 60, 11)
    available[:] = True
    deployed, feasible = deploy(u, c, capacity, available, budget, 4)
    sets = list(itertools.combinations(range(11), 4))
    places = []
    for i in np.flatnonzero(feasible):
        values = optimum.routing_values(u[i], c[i], capacity[i], budget[i], sets)
        own = sets.index(tuple(np.flatnonzero(deployed[i]).tolist()))
        assert values[own] == pytest.approx(values.max(), abs=1e-9)
        places.append(own)
    assert min(places) < 128
    assert max(places) >= 256


# Infeasible budgets.


def test_infeasible_sets_are_the_cheapest():
    # Budget: c = (3, 4, 5, 6) with budget 2. Capacity: two slots of .4 cannot carry 1.
    u, c = np.array([[0.9, 0.8, 0.7, 0.6]]), np.array([5.0, 3.0, 6.0, 4.0])
    for budget, capacity in ((2.0, 1.0), (100.0, 0.4)):
        for filler in (fillers.ReducedValue(), fillers.RandomFiller()):
            deployed, feasible = deploy(u, c, capacity, True, budget, 2, filler=filler)
            assert members(deployed[0]) == {1, 3}
            assert not feasible[0]
    # Feasible for the pool, but for no two models: {1, 3} at capacity .6 costs at least .6 * 3 + .4 * 4 = 3.4.
    deployed, feasible = deploy(u, c, 0.6, True, 3.3, 2)
    assert members(deployed[0]) == {1, 3}
    assert not feasible[0]
    deployed, feasible = deploy(u, c, 0.6, True, 3.5, 2)
    assert feasible[0]


def test_empty_pool():
    deployed, feasible = deploy(np.ones((1, 4)), np.ones(4), 1.0, False, 2.0, 2)
    assert not deployed.any()
    assert not feasible[0]
