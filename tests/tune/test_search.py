"""Searches over hyperparameters: known optima, bounds, budgets, resumption, and errors for wrong arguments."""

import itertools
import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from toys import Coin, Idle

import jaxroute as jr
from jaxroute import tune
from jaxroute.core import draws
from jaxroute.core.types import Leaf, Metric, Spec
from jaxroute.tune import candidates, ranking
from jaxroute.tune.space import Space

BEST = 0.1
NOISE = 0.4


@struct.dataclass
class Bowl(Coin):
    """Loses `(guess - best - noise)^2` a round, with mean `(guess - best)^2 + NOISE^2`; on few seeds another guess is best."""

    best: Leaf = BEST
    bad_above: Leaf = 1e9

    @property
    def spec(self):
        loss, spend = (Metric(name, f"mean {name}", "1", "average") for name in ("loss", "spend"))
        pulls = Metric("pulls", "pulls", "rounds", "total", ("model",), default=False)
        return Spec(num_models=2, metrics=(loss, spend, pulls), zero_flows=("bad",))

    def step(self, key, state, action, t):
        noise = draws.normal(key)
        miss = action - self.best - NOISE * noise
        flows = {"loss": miss**2, "spend": action + 0.1 * noise, "pulls": jnp.ones(2)}
        return state, miss, flows | {"bad": jnp.where(action > self.bad_above, 1.0, 0.0)}


@struct.dataclass
class Guess(Idle):
    """Chooses the number `x * k / 10 + shift` in every round."""

    x: Leaf = 0.5
    k: Leaf = 10
    shift: float = struct.field(pytree_node=False, default=0.0)

    def act(self, key, state, obs, t):
        return self.x * self.k / 10.0 + self.shift, {}


def find(parameters=None, policy=Guess, env=None, **options):
    """A small search."""
    parameters = {"x": tune.Log(0.001, 10.0)} if parameters is None else parameters
    settings = {"metric": "loss", "horizon": 20, "rounds": 20 * 700, "progress": False} | options
    return tune.search(Bowl() if env is None else env, policy, parameters, **settings)


def test_finds_a_known_optimum_and_its_true_mean():
    found = find(rounds=20 * 3000)
    assert found.values["x"] == pytest.approx(BEST, abs=0.05)  # The mean loss there is at most 1.6 % above the least.
    mean, error = found.best.score
    truth = (found.values["x"] - BEST) ** 2 + NOISE**2
    assert 0 < error < 0.1 * truth and abs(mean - truth) < 5 * error
    assert found.feasible and found.start is None and found.gain is None
    assert "mean loss" in found._repr_html_() and "<table" in found._repr_html_()


@pytest.mark.parametrize("strategy", [tune.Random(), tune.Lattice(9)])
def test_baselines_find_it_roughly(strategy):
    assert (find(strategy=strategy).values["x"] - BEST) ** 2 < 0.1


def test_a_function_of_metrics_is_maximised():
    options = {"maximise": True, "parameters": {"x": tune.Linear(-1.0, 1.0)}, "rounds": 20 * 2000}
    found = find(metric=lambda m: -m["loss"] - 2 * 0.3 * m["spend"], **options)
    assert found.values["x"] == pytest.approx(BEST - 0.3, abs=0.08)  # d/dx of (x - best)^2 + 0.6 x
    loss, spend = (found.best.metrics[name][0] for name in ("loss", "spend"))
    assert found.best.score[0] == pytest.approx(-loss - 0.6 * spend, abs=1e-6)


@pytest.mark.parametrize(
    ("bounds", "low", "high"), [({"at_most": {"spend": 0.06}}, 0.04, 0.06), ({"at_least": {"spend": 0.3}}, 0.3, 0.33)]
)
def test_a_bound_that_is_active_at_the_optimum(bounds, low, high):
    """The error of a mean spend is 0.1 / sqrt(20 seeds): the margin costs that."""
    found = find(**bounds, rounds=20 * 3000)
    assert found.feasible and low <= found.values["x"] <= high
    assert set(found.best.bounds.values()) <= {"satisfied", "undecided"}


def test_bounds_that_no_candidate_satisfies():
    with pytest.warns(UserWarning, match="no finalist satisfies all bounds"):
        found = find(at_most={"spend": -1.0})
    assert not found.feasible and found.best.bounds == {"spend <= -1": "violated"}
    assert found.values["x"] < 0.005  # The smallest violation.


def test_whole_numbers_and_structures():
    """Only with the shift 0 can `k / 10 * x` be the best; at most two programs per structure, one for each of the first two phases."""
    parameters = {"k": tune.Integer(1, 40), "shift": tune.Choice([0.0, 0.8, 1.6])}
    before = jr.trace_count()
    found = find(parameters, lambda k, shift: Guess(x=0.05, k=k, shift=shift), rounds=20 * 2500)
    assert jr.trace_count() - before <= 3 + 3
    assert found.values["shift"] == 0.0 and isinstance(found.values["k"], int)
    assert abs(0.05 * found.values["k"] / 10 - BEST) < 0.06
    searched = found.history.where(found.history.phase == "search", drop=True)
    counts = [int((searched.structure == s).sum()) for s in range(3)]
    assert counts[0] == max(counts) > 2 * min(counts) > 0, "the better structures get more of the rounds"
    assert set(found.history["parameter.shift"].values) == {"0.0", "0.8", "1.6"}


def test_choices_alone_are_all_simulated():
    found = find({"shift": tune.Choice([0.0, 0.1, 0.9])}, lambda shift: Guess(x=0.0, shift=shift), rounds=20 * 600)
    assert found.values == {"shift": 0.1} and found.rounds["search"] == 0


def test_hyperparameters_of_the_environment_and_of_both():
    def bowl(best):
        return Bowl(best=best)

    found = find({"best": tune.Linear(0.0, 1.0)}, Guess(x=0.7), bowl)
    assert found.values["best"] == pytest.approx(0.7, abs=0.15)
    scales = {"best": tune.Linear(0.0, 1.0), "x": tune.Linear(0.0, 1.0)}
    both = find(scales, lambda x: Guess(x=x), bowl, at_least={"spend": 0.8})
    assert both.feasible and both.values["x"] == pytest.approx(both.values["best"], abs=0.2) and both.values["x"] > 0.75


def test_fields_of_a_policy_and_a_start():
    """A policy instead of a function."""
    found = find({"x": tune.Linear(0.0, 1.0)}, Guess(k=20), start={"x": 0.9}, rounds=20 * 1500)
    assert 2 * found.values["x"] == pytest.approx(BEST, abs=0.1)
    assert found.start is not None and found.start.values == {"x": 0.9} and found.gain is not None
    assert found.gain[0] == pytest.approx(found.start.score[0] - found.best.score[0], abs=1e-9)
    assert found.gain[0] > 4 * found.gain[1]


def test_one_program_for_all_generations_and_common_random_numbers():
    before = jr.trace_count()
    history = find(rounds=20 * 1000).history
    assert jr.trace_count() - before <= 2  # One for generations, one for single candidates.
    assert int(history.generation.where(history.phase == "search").max()) >= 8
    phases = history.groupby("phase")
    spans = {phase: set(zip(part.first_seed.values, part.seeds.values, strict=True)) for phase, part in phases}
    searched = history.where(history.phase == "search", drop=True)
    for _, part in searched.groupby("generation"):
        assert part.sizes["evaluation"] == 8 and len(set(part.first_seed.values)) == 1, "common random numbers"
    seeds = [range(f, f + n) for f, n in sorted({*spans["search"], *spans["selection"], *spans["test"]})]
    assert len(spans["search"]) == int(searched.generation.max()) + 1
    assert all(one.stop <= other.start for one, other in itertools.pairwise(seeds)), "no seed is used twice"
    for row in (0, 17, history.sizes["evaluation"] - 1):
        one = history.isel(evaluation=row)
        policy = Guess(x=float(one["parameter.x"]))
        span = range(int(one.first_seed), int(one.first_seed + one.seeds))
        again = jr.simulate(Bowl(), policy, horizon=20, seeds=list(span), progress=False)["loss"].isel(policy=0, time=-1)
        assert float(again.mean()) == pytest.approx(float(one.score), rel=1e-6)


@pytest.mark.parametrize("runs", [137, 500, 1203])
@pytest.mark.parametrize("tested", [1, 2])
def test_the_budget_is_used_and_never_exceeded(monkeypatch, runs, tested):
    count = 0

    def count_runs(env, policies, seeds, options):
        nonlocal count
        rows = sum(len(grid.objects) for grid in policies.values())
        count += rows * len(seeds)
        noise = np.random.default_rng(count).random((rows, len(seeds)))
        return {"loss": noise, "spend": noise}, np.ones((rows, len(seeds)), bool)

    monkeypatch.setattr(candidates, "_simulate", count_runs)
    found = find(rounds=20 * runs + 7, start=None if tested == 1 else {"x": 0.5})
    assert 0.93 * runs < count <= runs and sum(found.rounds.values()) == 20 * count
    assert int(found.history.rounds.max()) == 20 * count


def test_a_stopped_search_is_resumed_to_the_same_bits(tmp_path, monkeypatch):
    options = {"parameters": {"x": tune.Log(0.001, 10.0), "k": tune.Integer(1, 30)}, "start": {"x": 1.0, "k": 10}}
    whole = find(**options)
    simulate, calls = candidates._simulate, []

    def stops(*args):
        calls.append(args)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return simulate(*args)

    monkeypatch.setattr(candidates, "_simulate", stops)
    with pytest.raises(KeyboardInterrupt):
        find(**options, out=tmp_path / "s")
    assert len(list((tmp_path / "s").glob("batch-*.json"))) == 4
    with pytest.raises(ValueError, match="must be the folder of a finished search"):
        tune.load(tmp_path / "s")
    resumed = find(**options, out=tmp_path / "s")
    assert resumed.history.identical(whole.history) and resumed.values == whole.values and resumed.best == whole.best
    number = len(calls)
    again = find(**options, out=tmp_path / "s")
    assert len(calls) == number and again.history.identical(whole.history)
    stored = tune.load(tmp_path / "s")
    assert all(np.array_equal(stored[name], whole.history[name]) for name in whole.history)
    assert stored.attrs == whole.history.attrs
    with pytest.raises(ValueError, match="holds another search: plan.runs is 700 there and 600 here"):
        find(**options, out=tmp_path / "s", rounds=20 * 600)
    damaged = tmp_path / "s" / "batch-00002.json"
    damaged.write_text(damaged.read_text().replace("1", "2", 1))
    with pytest.raises(ValueError, match="batch-00002.json' is damaged: delete it"):
        find(**options, out=tmp_path / "s")
    damaged.unlink()
    first = json.loads((tmp_path / "s" / "batch-00000.json").read_text())
    assert first["batch"]["phase"] == "search"
    assert np.mean(first["values"]["loss"], axis=1) == pytest.approx(whole.history["score"].values[:8], rel=1e-12)
    repaired = find(**options, out=tmp_path / "s")
    assert len(calls) == number + 1 and repaired.history.identical(whole.history)


def batches(history):
    """Batches as phase, structure, generation, first seed, number of seeds, and the hyperparameter of each candidate."""
    found = {}
    for row in range(history.sizes["evaluation"]):
        one = history.isel(evaluation=row)
        where = tuple(one[name].item() for name in ("phase", "structure", "generation", "first_seed", "seeds"))
        found[where] = (*found.get(where, ()), float(one["parameter.x"]))
    return {(*where, values) for where, values in found.items()}


@pytest.mark.parametrize("strategy", [tune.CMAES(), tune.Random()])
@pytest.mark.parametrize("stops", [False, True])
def test_a_finished_search_is_resumed_with_more_rounds(tmp_path, monkeypatch, strategy, stops):
    """The result equals that of a search from scratch; generations that both have are simulated once."""
    options: dict = {"parameters": {"x": tune.Log(0.001, 10.0)}, "strategy": strategy}
    if stops:  # Structures share the search, so that only the first stage is the same.
        options["parameters"]["shift"], options["policy"] = tune.Choice([0.0, 0.8]), lambda x, shift: Guess(x=x, shift=shift)
    more = {"rounds": 20 * 1600}
    whole = find(**options, **more)
    small = find(**options, out=tmp_path / "s")
    simulate, calls = candidates._simulate, []

    def counted(*args):
        calls.append(sum(len(grid.objects) for grid in args[1].values()) * len(args[2]))
        if stops and len(calls) == 3:
            raise KeyboardInterrupt
        return simulate(*args)

    monkeypatch.setattr(candidates, "_simulate", counted)
    if stops:
        with pytest.raises(KeyboardInterrupt):
            find(**options, **more, out=tmp_path / "s")
        with pytest.raises(ValueError, match="must be the folder of a finished search"):
            tune.load(tmp_path / "s")
    grown = find(**options, **more, out=tmp_path / "s")
    assert grown.history.identical(whole.history) and grown.values == whole.values and grown.best == whole.best
    shared = batches(small.history) & batches(whole.history)
    assert {batch[0] for batch in shared} == {"search"} and len(shared) >= (2 if stops else 7)
    stopped = calls[2] if stops else 0
    assert 20 * (sum(calls) - stopped + sum(len(batch[-1]) * batch[-2] for batch in shared)) == sum(whole.rounds.values())
    stored = tune.load(tmp_path / "s")
    assert all(np.array_equal(stored[name], whole.history[name]) for name in whole.history)
    with pytest.raises(ValueError, match="holds another search: plan.runs is 1600 there and 700 here"):
        find(**options, out=tmp_path / "s")
    with pytest.raises(ValueError, match="holds another search: plan.seeds is 4 there and 6 here"):
        find(**options, out=tmp_path / "s", seeds=6, rounds=20 * 2000)


def test_other_code_is_refused(tmp_path):
    small = {"out": tmp_path / "s", "maximise": True, "rounds": 20 * 200}

    def score(m):
        return -m["loss"]

    find(metric=score, **small)

    def score(m):
        return -2 * m["loss"]

    with pytest.raises(ValueError, match="was made by other code"):
        find(metric=score, **small)
    assert find(metric=score, accept_changed_code=True, **small).values
    with pytest.raises(ValueError, match="holds another search: goal.metric.function"):
        find(metric=lambda m: -2 * m["loss"], **small)


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds something else than a search"):
        find(out=tmp_path)


def test_candidates_with_invalid_runs_are_not_chosen():
    """The loss is least at 0.1, but from 0.05 on a counter is positive that must be zero."""
    with pytest.warns(UserWarning, match="runs are invalid"):
        found = find(env=Bowl(bad_above=0.05))
    assert found.values["x"] <= 0.05 and found.feasible
    assert not bool(found.history.valid.all())


def test_the_picture():
    pytest.importorskip("matplotlib")
    scales = {"x": tune.Log(0.001, 10.0), "shift": tune.Choice([0.0, 1.0])}
    found = find(scales, Guess(), start={"x": 1.0, "shift": 1.0}, rounds=20 * 1000)
    figure = tune.picture(found.history, title="a bowl")
    labels = [ax.get_xlabel() for ax in figure.axes if ax.get_visible()]
    assert labels == ["simulated rounds", "x", "shift"] and figure.axes[1].get_xscale() == "log"
    assert len(figure.legends) == 1
    with pytest.raises(ValueError, match="must be that of a search"):
        tune.picture(found.history.drop_vars("phase"))


# The ranking.


def estimate(score, error=0.0, spend=0.0, spend_error=0.0, valid=True):
    return ranking.Estimate((score, error), {"spend": (spend, spend_error)}, valid)


def test_order_of_candidates():
    goal = ranking.Goal("loss", False, {"spend": 1.0}, {}, 1.0)
    estimates = [
        estimate(0.1, valid=False),
        estimate(0.2, spend=1.5),  # Violates the bound by 0.5.
        estimate(0.3, spend=1.2),  # By 0.2.
        estimate(0.9, spend=0.9),
        estimate(0.5, spend=0.9, spend_error=0.2),  # By 0.1, with the margin.
        estimate(0.8, spend=1.0),
    ]
    assert goal.order(estimates) == [5, 3, 4, 2, 1, 0]
    assert [goal.is_feasible(one) for one in estimates] == [False, False, False, True, False, True]
    assert goal.verdicts(estimates[4]) == {"spend <= 1": "undecided"}
    sure, unsure = estimate(0.52, 0.01), estimate(0.5, 0.05)
    assert goal.order([sure, unsure]) == [1, 0] and goal.order([sure, unsure], cautious=True) == [0, 1]
    largest = ranking.Goal("loss", True, {}, {}, 1.0)  # NaN is last.
    assert largest.order([estimate(np.nan, valid=False), estimate(-5.0), estimate(2.0)]) == [2, 1, 0]


def test_seeds_are_doubled_where_their_halves_do_not_agree(monkeypatch):
    means, draw = np.linspace(0, 1, 8)[:, None], np.random.default_rng(0).normal(size=(8, 16))
    assert ranking.agreement(means + 0.01 * draw) == 1.0 and ranking.agreement(means[::-1] + 0 * draw) == 1.0
    assert ranking.agreement(draw) < 0.8 and ranking.agreement(np.ones((8, 4))) == 1.0
    for noise, most in ((0.0, 4), (1.0, 16)):

        def simulate(env, policies, seeds, options, noise=noise):
            rows = sum(len(grid.objects) for grid in policies.values())
            draw = np.random.default_rng(len(seeds)).normal(size=(rows, len(seeds)))
            own = noise * draw + np.arange(rows)[:, None] * (1 - noise)
            return {"loss": own}, np.ones((rows, len(seeds)), bool)

        monkeypatch.setattr(candidates, "_simulate", simulate)
        history = find().history
        seeds = history.seeds.values[history.phase.values == "search"]
        assert seeds[0] == 4 and seeds.max() >= most and (np.diff(seeds) >= 0).all()
        assert noise or (seeds == 4).all()


# Spaces and strategies.


@pytest.mark.parametrize(
    "scale",
    [tune.Linear(-1.0, 3.0), tune.Log(0.01, 10.0), tune.Integer(3, 9), tune.Integer(1, 1000, log=True), tune.Integer(-2, 5)],
)
def test_values_and_positions(scale):
    positions = np.linspace(0, 1, scale.num_values or 7)
    values = [scale.at(u) for u in positions]
    assert values[0] == scale.low and values[-1] == scale.high and values == sorted(values)
    assert [scale.position(v) for v in values] == pytest.approx(positions.tolist())
    assert scale.at(-0.1) == scale.low and scale.at(1.1) == scale.high
    if scale.num_values:
        assert all(isinstance(v, int) for v in values) and len(set(values)) == len(values)


def test_structures_are_all_combinations():
    space = Space.of({"a": tune.Choice([1, 2]), "x": tune.Linear(0, 1), "b": tune.Choice(["p", "q", "r"])})
    assert len(space.structures) == 6 and space.values(4, [0.25]) == {"a": 2, "x": 0.25, "b": "q"}
    structure, point = space.locate("start", {"a": 2, "x": 0.25, "b": "q"})
    assert structure == 4 and point.tolist() == [0.25]


def test_a_lattice_has_every_point_once():
    points = tune.Lattice(3, size=4).begin(np.zeros(2), None, 0)
    asked = [points.ask(4) for _ in range(4)]
    assert [len(a) for a in asked] == [4, 4, 1, 0]
    assert {tuple(p) for a in asked for p in a} == {(a, b) for a in (0.0, 0.5, 1.0) for b in (0.0, 0.5, 1.0)}


def test_cma_es_needs_only_ranks_and_proposes_whole_numbers():
    points = tune.CMAES().begin(np.array([0.0, 0.1]), np.array([0.9, 0.9]), 3)
    for _ in range(40):
        asked = points.ask(8)
        assert np.allclose(asked[:, 1] * 10, np.rint(asked[:, 1] * 10)) and asked.min() >= 0 and asked.max() <= 1
        points.tell(np.argsort(((asked - [0.3, 0.4]) ** 2).sum(1)).tolist())
    assert points.centre() == pytest.approx([0.3, 0.4], abs=0.02)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(ImportError, match=r'pip install "jaxroute\[tune\]"'):
        tune.CMAES().begin(np.zeros(1), None, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": {}}, "parameters must be a dict of name to scale with at least one entry"),
        ({"parameters": {"x": (0.1, 1.0)}}, r"parameters\['x'\] must be Linear, Log, Integer or Choice, got \(0.1, 1.0\)"),
        ({"parameters": {"xx": tune.Linear(0, 1)}}, "parameters must be one of 'x', 'k', 'shift', got 'xx'; did you mean 'x'"),
        ({"parameters": {"kk": tune.Linear(0, 1)}, "policy": Guess()}, "parameter of Guess must be one of 'x', 'k', 'shift', got 'kk'; did you mean 'k'"),
        ({"parameters": {"x": tune.Linear(1, 0)}}, "must have low < high"),
        ({"parameters": {"x": tune.Linear(0, np.inf)}}, r"parameters\['x'\].high must be finite"),
        ({"parameters": {"x": tune.Log(0, 1)}}, "must have 0 < low on a logarithmic scale"),
        ({"parameters": {"k": tune.Integer(0.5, 3)}}, r"parameters\['k'\].low must be a whole number"),
        ({"parameters": {"k": tune.Integer(0, 3, log=True)}}, r"parameters\['k'\].low must be at least 1"),
        ({"parameters": {"shift": tune.Choice([])}}, "must be a Choice of a list of values"),
        ({"parameters": {"shift": tune.Choice([1.0, 1.0])}}, "values with different names"),
        ({"parameters": {"shift": tune.Choice([1.0])}}, "must have something to choose from"),
        ({"parameters": {"shift": tune.Linear(0.0, 1.0)}}, "in a static field .*in a search such a hyperparameter is a Choice"),
        ({"metric": "los"}, "metric must be one of 'loss', 'spend', got 'los'; did you mean 'loss'"),
        ({"metric": "pulls"}, "metric must be one of 'loss', 'spend', got 'pulls'"),
        ({"metric": "spend"}, r"maximise must be True or False \(--maximise or --minimise\): whether more of 'spend' is better is not known"),
        ({"metric": lambda m: m["loss"]}, r"maximise must be True or False .*: whether more of what the function returns"),
        ({"metric": lambda m: m["lots"], "maximise": True}, "a metric in the function `metric` must be one of 'loss'"),
        ({"metric": lambda m: 1.0, "maximise": True}, r"must return an array of shape \(4,\), one number per run, got shape \(\)"),
        ({"metric": lambda: 1.0, "maximise": True}, "metric, a function, must take"),
        ({"maximise": 1}, "maximise must be True, False or None, got 1"),
        ({"at_most": {"spent": 1}}, "at_most must be one of 'loss', 'spend', got 'spent'; did you mean 'spend'"),
        ({"at_least": {"spend": "much"}}, r"at_least\['spend'\] must be a number"),
        ({"at_most": 3}, "at_most must be a dict of metric to bound"),
        ({"margin": -1}, "margin must be at least 0"),
        ({"rounds": 500}, "rounds must be about .* at least, for a generation of 8 candidates x 4 seeds x 20 rounds.*got 500"),
        ({"seeds": 1}, "seeds must be at least 2, got 1"),
        ({"test_seeds": 1}, "test_seeds must be at least 2, got 1"),
        ({"progress": 1}, "progress must be True or False, got 1"),
        ({"root_seed": -1}, "root_seed must be a whole number from 0"),
        ({"start": {"y": 1.0}}, "start must be one of 'x', got 'y'"),
        ({"start": {"x": 11.0}}, r"start\['x'\] must be from 0.001 to 10, got 11"),
        ({"strategy": "cma"}, r"strategy must be an object such as CMAES\(\), got 'cma'"),
        ({"strategy": tune.CMAES(size=2)}, "size must be at least 4, got 2"),
        ({"out": "s3://bucket/x"}, "out must be a folder on disk, got 's3://bucket/x'"),
        ({"policy": lambda x: x}, "policy must return a policy when called with x=0.1"),
        ({"policy": 3}, "policy must be a policy, or a function that makes one, got 3"),
        ({"policy": jr.grid(Guess, x=[0.1, 0.2])}, "got a Grid"),
    ],
)  # fmt: skip
def test_bad_input(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        find(**options)
