"""Experiments of statistics in place of runs: what they show, judge and leave out."""

import json
import warnings

import pytest

import jaxroute as jr
from jaxroute import cli, experiments
from jaxroute.cli.simulating import experiment_of
from jaxroute.core.attributes import decoded

EXPERIMENT = """
from jaxroute import metrics, plot
from jaxroute.experiments import Case, Claim, Experiment
from jaxroute.experiments.measure import end, late_slope
from jaxroute.problems import stochastic

def best(results):
    a, b = (end(results["result"], "regret", p) for p in ("UCB1", "Thompson"))
    return f"{a[0]:.3f} against {b[0]:.3f}", b[0] < a[0]

def pairs(results):
    pair = metrics.paired(results["result"], "regret", "UCB1").isel(time=-1)
    return f"{float(pair['mean'].sel(policy='Thompson')):.3f}", bool(pair["z"] < -2.0)

def slope(results):
    fit = late_slope(results["result"], "regret", "UCB1", 50)
    return f"{fit[0]:.2f}", fit[0] < 1.0

def own(results):
    regret = results["result"]["regret"].sel(policy="UCB1").isel(time=-1)
    return f"{float(regret.mean()):.3f}", True

experiment = Experiment(
    name="mine/two",
    title="two policies",
    cases=(
        Case(
            environment=stochastic.bernoulli([0.2, 0.7, 0.5]),
            policies={"UCB1": stochastic.UCB1(), "Thompson": stochastic.GaussianThompson()},
            horizon=200,
            record_every=20,
        ),
    ),
    claims=tuple(Claim(f.__name__, f.__name__, "here", f) for f in (best, pairs, slope, own)),
    figures={
        "curves": lambda results: plot.curves(results["result"], "regret").figure,
        "runs": lambda results: plot.power_laws({"x": metrics.pick(results["result"], "regret")}).figure,
    },
)
"""


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(EXPERIMENT)
    return file


def test_the_command_keeps_moments_and_says_what_it_cannot_tell(mine, tmp_path, capsys):
    out, command = tmp_path / "out", ["run", str(mine), "--seeds", "3000", "--keep", "moments"]
    with pytest.warns(UserWarning, match="the figure 'runs' is left out: regret: single runs are needed.*keep='runs'"):
        assert cli.main([*command, "--out", str(out), "--until-stderr", "regret=0.5"]) == 0
    shown = capsys.readouterr().out
    words = " ".join(shown.split())
    assert "not judged slope" in words and "not evaluated: regret: single runs are needed" in words
    summary = json.loads((out / "summary.json").read_text())
    holds = {claim["id"]: claim["verdict"] for claim in summary["claims"]}
    assert holds == {"best": "holds", "pairs": "holds", "slope": "not judged", "own": "not judged"}
    data = jr.load(out)
    assert summary["seeds"] == data.attrs["seeds_played"] < 3000 and decoded(data.attrs)["until_stderr"]["reached"]
    assert (out / "curves.png").exists() and not (out / "runs.png").exists()
    assert f"of {data.attrs['seeds_played']} seeds" in shown


def test_claims_from_moments_say_what_claims_from_runs_say(mine, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        experiment = experiment_of(str(mine))
        experiment = experiments.Experiment(**{**vars(experiment), "figures": {}})
        one, two = (
            experiments.run(experiment, tmp_path / keep, seeds=64, keep=keep, progress=False) for keep in ("runs", "moments")
        )
    for a, b in zip(one["claims"][:2], two["claims"][:2], strict=True):
        assert a == b
    for policy, values in one["policies"].items():
        for metric, numbers in values.items():
            assert two["policies"][policy][metric] == pytest.approx(numbers, rel=1e-10)


@pytest.mark.parametrize("text", ["regret", "regret=", "=0.5", "regret=small"])
def test_wrong_goals_on_the_command_line(mine, text, tmp_path, capsys):
    assert cli.main(["run", str(mine), "--until-stderr", text, "--out", str(tmp_path / "out")]) == 2
    assert "--until-stderr must have the form METRIC=ERROR" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
