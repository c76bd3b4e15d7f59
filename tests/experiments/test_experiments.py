"""Every built-in experiment runs at smoke size, draws its figures and evaluates its claims."""

import json
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from drawn import faults_by_figure
from every_experiment import EXPERIMENTS

import jaxroute as jr
from jaxroute import experiments
from jaxroute.data import RoutingTable
from jaxroute.experiments import Case, Claim, Experiment
from jaxroute.experiments import cascade as cascade_experiments
from jaxroute.experiments.base import picture, summarise
from jaxroute.experiments.measure import end
from jaxroute.experiments.verdicts import Verdict, judge
from jaxroute.problems import cascade, stochastic

NEEDS_DATA = ("staged/table", "combinatorial/table", "service/table", "queueing/table")
# The others have one compile per case and policy, which is left to the slow run.
SMALL = ("stochastic/regret", "staged/figure-2")


def smoke(name: str, out, **changes):
    experiment = EXPERIMENTS[name]
    horizon = min(experiment.smoke_horizon, experiment.horizon)
    summary = experiments.run(experiment, out, seeds=16, horizon=horizon, progress=False, **changes)
    assert json.loads((out / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert summary["experiment"] == name
    assert all(text.endswith(summary["table"]) for text in (summary["title"], *(c["text"] for c in summary["claims"])))
    assert {c["id"] for c in summary["claims"]} == {c.id for c in experiment.claims}
    departs = horizon != experiment.horizon or changes
    assert all((c["verdict"] == "not judged") == bool(departs) and c["measured"] for c in summary["claims"])
    folders = {case.name: out if len(experiment.cases) == 1 else out / case.name for case in experiment.cases}
    data = {name: jr.load(folder) for name, folder in folders.items()}
    for claim in experiment.claims:  # They are not judged at this size, but they can be evaluated.
        text, stated = claim.measure(data)
        assert isinstance(text, str) and text and judge(stated).verdict in list(Verdict)
    for figure in experiment.figures:
        assert (out / f"{figure}.png").stat().st_size > 5000
    assert faults_by_figure(name, data) == {}
    return summary


def test_only_the_problem_that_is_asked_for_is_imported():
    code = """
import sys
from jaxroute.experiments import EXPERIMENTS
assert "stochastic/regret" in EXPERIMENTS and "stochastic/x" not in EXPERIMENTS and "x" not in EXPERIMENTS
print([name for name in ("cascade", "combinatorial", "staged") if f"jaxroute.problems.{name}" in sys.modules], "scipy.optimize" in sys.modules)
print(len(EXPERIMENTS) == len(list(EXPERIMENTS)) > 50 and all(EXPERIMENTS.values()), "scipy.optimize" in sys.modules)
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.splitlines() == ["[] False", "True False"]  # No benchmark is solved before its experiment is played.


@pytest.mark.parametrize("name", SMALL)
def test_experiment_runs_at_smoke_size(name, tmp_path):
    smoke(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in EXPERIMENTS if n not in (*SMALL, *NEEDS_DATA)])
def test_large_experiment_runs_at_smoke_size(name, tmp_path):
    smoke(name, tmp_path)


@pytest.mark.slow
def test_table_experiment_on_a_file(tmp_path):
    rng = np.random.default_rng(0)
    names = tuple(f"model-{i}" for i in range(6))
    table = RoutingTable(rng.integers(0, 2, (50, 6)), rng.random((50, 6)) * 2e-4, names)
    table.save(tmp_path / "table.npz")
    summary = smoke("staged/table", tmp_path / "out", changes={"environment": {"data": str(tmp_path / "table.npz")}})
    entry = summary["policies"]["StageRoute"][0]
    assert entry["coordinates"] == {"cost_scale": 1.0, "budget_mode": "lp"}
    assert "cost_ratio" in entry and "served_reward" in entry


@pytest.mark.slow
def test_service_on_a_file_without_costs(tmp_path):
    rng = np.random.default_rng(0)
    probability = np.array([0.5, 0.7, 0.9])
    correct = (rng.random((300, 3)) < probability).astype(np.uint8)
    np.savez(tmp_path / "table.npz", correct=correct, models=np.array(["s", "m", "l"]), feat=rng.random((300, 4)))
    costs = {"l": 9.0, "s": 1.0, "m": 2.0}
    changes = {"environment": {"data": str(tmp_path / "table.npz"), "costs": costs, "alpha": 0.8}}
    summary = smoke("service/table", tmp_path / "out", changes=changes)
    cost = {name: summary["policies"][name][0]["cost"]["mean"] for name in ("always s", "always m", "always l")}
    assert cost == {"always s": 1.0, "always m": 2.0, "always l": 9.0}


@pytest.mark.slow
def test_queueing_on_a_file(tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 2, (90, 3)).astype(np.uint8)
    np.savez(tmp_path / "table.npz", correct=scores, models=np.array(["s", "m", "l"]), feat=rng.normal(size=(90, 4)))
    changes = {"environment": {"data": str(tmp_path / "table.npz"), "costs": {"s": 1.0, "m": 2.0, "l": 9.0}}}
    summary = smoke("queueing/table", tmp_path / "out", changes=changes)
    assert [entry["coordinates"]["load"] for entry in summary["policies"]["ACQB"]][::4] == [0.7, 0.8, 0.9]
    assert [entry["coordinates"]["head"] for entry in summary["policies"]["ACQB-CL, longer"]] == [0, 1, 2, 3] * 3


@pytest.mark.slow
def test_cascade_on_a_file(tmp_path):
    rng = np.random.default_rng(0)
    scores = (rng.random((90, 3)) < [0.5, 0.7, 0.9]).astype(np.uint8)
    costs = rng.random((90, 3)) * [1e-4, 3e-4, 1e-3]
    centres = rng.normal(size=(4, 5))
    features = centres[np.arange(90) % 4] + 0.01 * rng.normal(size=(90, 5))
    np.savez(tmp_path / "table.npz", correct=scores, cost=costs, models=np.array(["s", "m", "l"]), feat=features)
    changes = {"environment": {"data": str(tmp_path / "table.npz"), "groups": 4}}
    summary = smoke("cascade/replay", tmp_path / "out", changes=changes)
    entries = summary["policies"]["query all"]
    assert [entry["coordinates"]["rows"] for entry in entries] == ["independent"] * 12 + ["joint"] * 12
    unit = jr.load(tmp_path / "out" / "joint")["cost"].attrs["units"]
    assert unit == "USD per request" and entries[0]["cost"]["mean"] == pytest.approx(costs.mean(axis=0).sum(), rel=0.2)
    assert all(entry["queries"]["mean"] == 3.0 for entry in entries)


@pytest.mark.slow
def test_cascade_on_columns_with_confidences(tmp_path):
    pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    lines = ["dataset,sure,right_s,right_l,chars_s,chars_l"]
    for i in range(120):
        sure = rng.choice([0.0, 0.5, 1.0])
        right = int(rng.random() < 0.2 + 0.6 * sure)
        missing = "" if i == 7 else f"{right}"
        lines.append(
            f"{'abc'[i % 3]},{sure},{missing},{int(rng.random() < 0.8)},{rng.integers(5, 50)},{rng.integers(5, 50)}"
        )
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    environment = {
        "data": str(tmp_path / "table.csv"),
        "by": "dataset",
        "scores": {"s": "right_s", "l": "right_l"},
        "sizes": {"s": "chars_s", "l": "chars_l"},
        "costs": {"s": 1, "l": 20},
        "confidence": {"s": "sure"},
    }
    rows = cascade.recorded_rows(**environment)
    assert rows.scores.shape == (119, 2), "a row without a score is left out"
    assert rows.features.shape == (119, 2, 3 + 1 + 1), "group, model, confidence"
    halves = rows.halves()
    assert [len(half.groups) for half in halves] == [59, 60] and all(set(half.groups) == {0, 1, 2} for half in halves)
    env = cascade_experiments.replay(**environment).objects[1]
    assert float(env.cost_weight) * halves[1].highest_cost == pytest.approx(0.075), (
        "a mean call of the dearest model counts the weight"
    )
    np.testing.assert_allclose(env.boxes.cost.mean(axis=0), halves[1].costs.mean(axis=0), rtol=1e-6)  # In the file's unit.
    smoke("cascade/replay", tmp_path / "out", changes={"environment": environment})


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"data": "FILE", "sizes": {"a": "x"}}, "scores must name the columns"),
        ({"data": "FILE", "scores": {"a": "x"}, "costs": {"b": 1.0}}, "costs must be one of 'a', got 'b'"),
        ({"data": "FILE", "scores": {"a": "x"}}, "costs must have a number for each model"),
        ({"weights": [0.0]}, "weights must be above 0, got 0"),
        ({"by": "dataset"}, "by must be one of 'features', 'groups', got 'dataset'"),
        ({"costs": 5}, "costs must map names of models to values, got 5"),
    ],
)
def test_settings_of_the_replay_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        cascade_experiments.replay(**settings)


def test_columns_of_other_names_are_asked_for(tmp_path):
    """The error of a plain file names the three settings that work, and they do."""
    pytest.importorskip("pandas")
    (tmp_path / "mine.csv").write_text("q,right_a,right_b,usd_a,usd_b\n" + "1,1,0,0.001,0.02\n2,0,1,0.002,0.03\n" * 5)
    words = r"--set environment.scores=.*--set environment.sizes=.*--set environment.costs="
    with pytest.raises(ValueError, match=words):
        cascade_experiments.replay(str(tmp_path / "mine.csv"))
    settings = {"scores": {"a": "right_a", "b": "right_b"}, "sizes": {"a": "usd_a", "b": "usd_b"}, "costs": {"a": 1, "b": 1}}
    env = cascade_experiments.replay(str(tmp_path / "mine.csv"), **settings).example
    np.testing.assert_allclose(env.boxes.cost.mean(axis=0), [0.0015, 0.025], rtol=0.2)


def test_rules_are_fitted_to_other_rows_than_they_are_judged_on():
    train, judged = cascade.recorded_rows("standin").halves()
    assert len(train.groups) + len(judged.groups) == 2000 and abs(len(train.groups) - len(judged.groups)) <= 6
    same = {tuple(row) for row in train.costs} & {tuple(row) for row in judged.costs}
    assert not same, "no row is in both halves"
    unpaired = train.unpaired(2)
    assert len(unpaired.groups) == 2 * len(train.groups)
    np.testing.assert_allclose(unpaired.costs.mean(axis=0), train.costs.mean(axis=0), rtol=0.1)


def test_clusters_are_found_and_are_the_same_again():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 5, 200)
    features = 3.0 * np.eye(5)[true] + 0.1 * rng.normal(size=(200, 5))
    table = RoutingTable(np.ones((200, 1)), np.ones((200, 1)), ("a",), features)
    found = cascade.query_groups(table, number=5)
    assert len({(a, b) for a, b in zip(true, found, strict=True)}) == 5
    np.testing.assert_array_equal(found, cascade.query_groups(table, "features", 5))
    assert len(set(cascade.query_groups(table.with_features(np.zeros((200, 2))), number=3))) == 1


def test_horizon_scales_all_cases_alike_and_their_coordinates():
    cases = EXPERIMENTS["staged/discovery-slope"].scaled(8518)
    ratio = [c.horizon / o.horizon for c, o in zip(cases, EXPERIMENTS["staged/discovery-slope"].cases, strict=True)]
    np.testing.assert_allclose(ratio, 0.1, rtol=0.01)
    assert all(case.coordinates["horizon"] == case.horizon for case in cases)


def test_one_pass_takes_its_rounds_from_the_environment(tmp_path):
    policies = {"UCB1": stochastic.UCB1()}
    case = Case(stochastic.bernoulli([0.6, 0.4]), policies, horizon=500, one_pass=lambda env: 10 * env.spec.num_models)
    one = Experiment("x/y", "t", (case,))
    for name, asked, played in (("pass", {}, 20), ("asked", {"horizon": 30}, 30)):
        assert experiments.run(one, tmp_path / name, seeds=4, progress=False, **asked)["horizon"] == played
        assert int(jr.load(tmp_path / name)["time"][-1]) == played


def test_claims_are_not_judged_where_the_run_differs_from_what_they_are_about(tmp_path):
    case = Case(stochastic.bernoulli([0.6, 0.4]), {"UCB1": stochastic.UCB1()}, horizon=50)
    experiment = Experiment(
        "x/y", "t", (case,), claims=(Claim("never", "this never holds", "x", lambda results: ("no", False)),)
    )
    for name, changes, said in (
        ("same", {}, ("no", "refuted")),
        ("shorter", {"horizon": 20}, ("not judged: 20 rounds instead of 50", "not judged")),
        ("changed", {"changes": {"UCB1": {"width": 0.5}}}, ("not judged: UCB1.width = 0.5", "not judged")),
    ):
        summary = experiments.run(experiment, tmp_path / name, seeds=4, progress=False, **changes)
        assert [(c["measured"], c["verdict"]) for c in summary["claims"]] == [said]


def test_a_short_run_shows_errors_in_claims(tmp_path):
    case = Case(stochastic.bernoulli([0.6, 0.4]), {"UCB1": stochastic.UCB1()}, horizon=50)
    wrong = (lambda results: ("", results["no case"]), lambda results: ("", 3), lambda results: ("", False))
    claims = tuple(Claim(f"c{i}", "t", "x", measure) for i, measure in enumerate(wrong))
    experiment = Experiment("x/y", "t", (case,), claims=claims)
    with pytest.warns(UserWarning, match="the claim '.*' cannot be evaluated") as caught:
        summary = experiments.run(experiment, tmp_path / "short", seeds=4, horizon=20, progress=False)
    assert [str(one.message).split("'")[1] for one in caught] == ["c0", "c1"]
    assert {claim["verdict"] for claim in summary["claims"]} == {"not judged"}
    with pytest.raises(ValueError, match="the claim 'c0' cannot be evaluated: 'no case'"):
        experiments.run(experiment, tmp_path / "full", seeds=4, progress=False)


def test_a_claim_that_holds_says_who_is_over_budget():
    def case(spend):
        """Two policies, three seeds."""
        dims, about = ("policy", "seed", "time"), {"long_name": "spend / budget", "units": "", "kind": "average"}
        values = np.array([[[spend - 0.1], [spend], [spend + 0.1]], [[0.9], [0.9], [0.9]]])
        coords = {"policy": ["StageRoute", "Greedy"], "seed": [0, 1, 2], "time": [10]}
        more = {"settings": {"problem": "staged"}, "run_s": 1.0, "compile_s": 0.0, "decisions": 1, "case_coordinates": {}}
        more |= {"device": "1 x cpu", "versions": {}, "commit": None}
        valid = (dims[:-1], np.ones((2, 3), bool), {"kind": "flag"})
        spent = (dims, values, about | {"limit": 1.0, "violation": "over budget"})
        return xr.Dataset({"cost_ratio": spent, "valid": valid}, coords, more)

    claims = tuple(
        Claim(name, text, "x", lambda results, holds=holds: ("measured", holds))
        for name, text, holds in (
            ("first", "StageRoute scores above Greedy", True),
            ("second", "Greedy is second", True),
            ("third", "StageRoute is cheapest", False),
        )
    )
    results = {"a": case(3.97), "b": case(1.5), "c": case(0.5)}
    measured = [c["measured"] for c in summarise(Experiment("x/y", "t", (), claims=claims), results)["claims"]]
    but = "; but StageRoute: over budget, cost_ratio 3.970 (0.058), at most 1 (the worst of 2)"
    assert measured == [f"measured{but}", "measured", "measured"]

    def spends_more(name):
        """A claim about one case, whose disclosure is of that case."""
        return lambda results: ("StageRoute", end(results[name], "cost_ratio", "StageRoute").above(0.1))

    claims = tuple(Claim(name, "t", "x", spends_more(name)) for name in results)
    measured = [c["measured"] for c in summarise(Experiment("x/y", "t", (), claims=claims), results)["claims"]]
    said = ["3.970 (0.058), at most 1", "1.500 (0.058), at most 1", ""]
    for text, value in zip(measured, said, strict=True):
        assert text.partition("; but ")[2] == (f"StageRoute: over budget, cost_ratio {value}" if value else "")


def test_a_figure_that_cannot_be_drawn_costs_nothing_else(tmp_path):
    case = Case(stochastic.bernoulli([0.5, 0.5]), {"UCB1": stochastic.UCB1()}, horizon=20)  # No regret.
    figures = {
        "log": lambda results: jr.plot.curves(results["result"], log=True).figure,
        "plain": lambda results: jr.plot.curves(results["result"]).figure,
    }
    with pytest.warns(UserWarning, match="the figure 'log' is left out: log must be False or 'x' where a curve is nowhere"):
        experiments.run(Experiment("x/y", "t", (case,), figures=figures), tmp_path, seeds=4, progress=False)
    assert {path.name for path in tmp_path.iterdir()} >= {"summary.json", "plain.png"}
    assert not (tmp_path / "log.png").exists()


def test_what_was_run_on_stands_in_result_title_picture_and_claims(tmp_path):
    """The generated stand-in, or the file that takes its place; in each with the number of rows."""
    import matplotlib.pyplot as plt

    def table(data="standin"):
        return stochastic.bernoulli([0.6, 0.4] if data == "standin" else [0.6, 0.4, 0.2])

    case = Case(table, {"UCB1": stochastic.UCB1()}, 20, settings={"data": "standin"}, rows=lambda env: env.spec.num_models)
    claim = Claim("c", "a claim", "x", lambda results: ("nothing", False))
    one = Experiment("x/y", "a title", (case,), claims=(claim,), stand_in="a stand-in")
    for name, changes, said in (
        ("a", {}, "a stand-in, 2 rows"),
        ("b", {"environment": {"data": "to/t.csv"}}, "t.csv, 3 rows"),
    ):
        summary = experiments.run(one, tmp_path / name, seeds=4, progress=False, changes=changes)
        data = jr.load(tmp_path / name)
        assert (summary["table"], data.attrs["table"]) == (said, said)
        assert summary["title"] == f"a title, on {said}" and summary["claims"][0]["text"] == f"a claim, on {said}"
        figure = picture(lambda results: jr.plot.curves(results["result"], "regret"), {"result": data})
        assert figure.get_suptitle() == f"on {said}"
        plt.close("all")


@pytest.mark.fast
def test_rivals_of_the_combinatorial_figures_are_the_policies_that_they_are_named_for():
    """A rival under the name of its class has the settings of the class; what departs is in a note."""
    for name, experiment in EXPERIMENTS.items():
        for case in (
            experiment.cases if name.startswith("combinatorial/") and not callable(experiment.cases[0].policies) else ()
        ):
            for label, policy in case.policies.items() if not callable(case.policies) else ():
                kind = type(policy).__name__
                if label == kind and policy != type(policy)():
                    assert kind in experiment.notes, (name, label)
