"""`jaxroute tune`: what a user types, sees and gets."""

import json

import pytest

from jaxroute import cli, tune
from jaxroute.experiments import tuning

MINE = """
from jaxroute import grid
from jaxroute.experiments import Case, Experiment
from jaxroute.problems import stochastic

def bandit(gap=0.2):
    return stochastic.bernoulli([0.6, 0.6 - gap, 0.2])

experiment = Experiment(
    name="mine/width",
    title="UCB1 on two cases",
    cases=(
        Case(name="first", environment=bandit, settings={"gap": 0.2}, horizon=200,
             policies={"UCB1": stochastic.UCB1(width=2.0), "Greedy": stochastic.EpsilonGreedy(epsilon=0.5),
                       "Widths": grid(stochastic.UCB1, width=[0.25, 1.0]), "Oracle": stochastic.Oracle.of}),
        Case(name="second", environment=stochastic.bernoulli([0.9, 0.1]), policies={"UCB1": stochastic.UCB1()}, horizon=100),
    ),
)
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def run(*arguments):
    return cli.main([str(a) for a in arguments])


def test_scales_are_read():
    texts = "A.x=log:0.01:1 A.part.y=linear:-1:2 A.n=integer:1:9 A.m=log-integer:1:100 A.kind=choice:1,2.5,plain"
    assert tuning.scales(texts.split()) == {
        "A.x": tune.Log(0.01, 1.0),
        "A.part.y": tune.Linear(-1.0, 2.0),
        "A.n": tune.Integer(1, 9),
        "A.m": tune.Integer(1, 100, log=True),
        "A.kind": tune.Choice([1, 2.5, "plain"]),
    }


def test_a_search_is_shown_kept_and_continued(mine, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["tune", mine, "--param", "UCB1.width=log:0.01:10", "--metric", "regret", "--rounds", "240_000", "--out", out]
    assert run(*command) == 0
    shown = capsys.readouterr().out
    assert "mine/width" in shown and "width = " in shown and "the best is better than the start by" in shown
    assert "seeds that the search did not use" in shown and "240,000" not in shown.split("rounds:")[1]
    summary = json.loads((out / "summary.json").read_text())
    about = {"experiment": "mine/width", "case": "first", "policy": "UCB1", "better": "min"}
    assert summary.items() >= about.items()
    assert summary["start"]["values"] == {"width": 2.0} and summary["best"]["values"]["width"] < 2.0
    assert summary["gain"][0] > 4 * summary["gain"][1] > 0 and sum(summary["rounds"].values()) <= 240_000
    assert (out / "search.png").read_bytes().startswith(b"\x89PNG")
    history = tune.load(out / "search")
    assert run(*command) == 0  # Nothing is left to play.
    assert tune.load(out / "search").identical(history) and json.loads((out / "summary.json").read_text()) == summary
    assert run(*command, "--seeds", 8) == 2
    assert "holds another search" in capsys.readouterr().err


def test_a_setting_of_the_environment_with_a_bound(mine, tmp_path, capsys):
    """The largest gap at which a policy keeps a regret."""
    options = ["--metric", "reward", "--minimise", "--at-most", "regret=20", "--rounds", "240_000", "--no-figures"]
    gap = ["--param", "environment.gap=linear:0:0.5", "--policy", "Greedy", "--out", tmp_path / "o"]
    assert run("tune", mine, *gap, *options) == 0
    shown = capsys.readouterr().out
    assert "gap = " in shown and "regret <= 20: " in shown
    assert not (tmp_path / "o" / "search.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("width=log:1:2", "--param must have the form POLICY.NAME=SCALE"),
        ("UCB1.width=log:1", "--param must have the form POLICY.NAME=SCALE"),
        ("UCB1.width=lag:1:2", "the scale must be one of 'linear', 'log', 'integer', 'log-integer', 'choice', got 'lag'"),
        ("UCB1.width=log:1:2 --param UCB1.width=log:1:3", "--param UCB1.width must be given once"),
        ("UCB1.width=log:0:2", "must have 0 < low"),
        ("UCB1.wdth=log:1:2", "parameter of UCB1 must be one of 'width', got 'wdth'; did you mean 'width'"),
        ("UCB.width=log:1:2", "--param must be one of 'UCB1', 'Greedy', 'Widths', 'Oracle', 'environment', got 'UCB'"),
        ("UCB1.width=log:1:2 --param Greedy.epsilon=linear:0:1", "of one policy, got those of UCB1 and Greedy"),
        ("Widths.width=log:1:2", "--param cannot change Widths: it is a grid"),
        ("Oracle.width=log:1:2", "--param cannot change Oracle: it is a grid, or is made from the environment"),
        ("environment.gap=linear:0:1", "--policy must name the policy"),
        ("environment.gop=linear:0:1 --policy UCB1", "must be one of 'gap', got 'gop'"),
        ("environment.gap=linear:0:1 --policy UCB1 --case second", "environment of this experiment is fixed"),
        ("UCB1.width=log:1:2 --case third", "--case must be one of 'first', 'second', got 'third'"),
        ("UCB1.width=log:1:2 --at-most regret", "--at-most must have the form METRIC=NUMBER, got 'regret'"),
        ("UCB1.width=log:1:2 --rounds 1000", "rounds must be about"),
    ],
)
def test_wrong_input(mine, tmp_path, capsys, arguments, message):
    assert run("tune", mine, "--metric", "regret", "--out", tmp_path / "out", "--param", *arguments.split()) == 2
    assert message in " ".join(capsys.readouterr().err.split())
