"""Commands as a user gives them: output, files, and errors for wrong input."""

import argparse
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxroute as jr
from jaxroute import cli, kernels
from jaxroute.catalogue import catalogue, described
from jaxroute.cli import doctor
from jaxroute.cli import run as run_command
from jaxroute.cli.parsing import whole
from jaxroute.cli.simulating import store_programs
from jaxroute.experiments import EXPERIMENTS
from jaxroute.kernels import host

USER_EXPERIMENT = """
from jaxroute import grid
from jaxroute.experiments import Case, Claim, Experiment
from jaxroute.problems import stochastic

def best_width(results):
    regret = results["result"]["regret"].isel(time=-1).mean("seed").sel(policy="UCB1")
    return f"width {float(regret.width[int(regret.values.argmin())]):g}", True

experiment = Experiment(
    name="mine/width",
    title="UCB1 with a range of widths",
    cases=(
        Case(
            environment=stochastic.bernoulli([0.8, 0.7, 0.2]),
            policies={"UCB1": grid(stochastic.UCB1, width=[0.25, 1.0]), "Greedy": stochastic.EpsilonGreedy(epsilon=0.05)},
            horizon=400,
        ),
    ),
    claims=(Claim("best", "some width is best", "here", best_width),),
)
"""


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(USER_EXPERIMENT)
    return file


def run(*arguments: str) -> int:
    return cli.main([str(a) for a in arguments])


def test_a_users_file_runs_resumes_and_reports(mine, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("run", mine, "--seeds", 20, "--out", out, "--set", "Greedy.epsilon=0.2") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "mine/width" in shown and "not judged" in shown and "Greedy.epsilon = 0.2" in shown
    summary = json.loads((out / "summary.json").read_text())
    keys = "experiment problem horizon seeds policies claims compile_s run_s decisions_per_s device versions"
    assert set(keys.split()) <= set(summary)
    assert (summary["horizon"], summary["seeds"], summary["problem"]) == (400, 20, "stochastic")
    widths = [entry["coordinates"]["width"] for entry in summary["policies"]["UCB1"]]
    assert widths == [0.25, 1.0]
    data = jr.load(out)
    assert data["regret"].sizes == {"policy": 2, "width": 2, "seed": 20, "time": 100}
    entry = summary["policies"]["UCB1"][1]["regret"]
    final = data["regret"].sel(policy="UCB1", width=1.0).isel(time=-1)
    expected = {"mean": float(final.mean()), "stderr": float(final.std(ddof=1)) / 20**0.5}
    assert entry == pytest.approx(expected)
    claim = summary["claims"][0]
    assert set(claim) == {"id", "text", "source", "measured", "verdict"} and claim["verdict"] == "not judged"
    assert "s compiling, " in shown and "nothing was left to simulate" not in shown
    call = {"compile_s": summary["compile_s"], "run_s": summary["run_s"], "decisions": (2 + 1) * 20 * 400}
    assert summary["last_call"] == call
    before = data["regret"].values
    assert run("run", mine, "--seeds", 20, "--out", out, "--set", "Greedy.epsilon=0.2") == 0  # Nothing is left.
    np.testing.assert_array_equal(jr.load(out)["regret"].values, before)
    shown, again = capsys.readouterr().out, json.loads((out / "summary.json").read_text())
    assert "nothing was left to simulate" in shown
    assert again["last_call"] == {"compile_s": 0, "run_s": 0, "decisions": 0}
    assert {n: again[n] for n in ("compile_s", "run_s")} == {n: summary[n] for n in ("compile_s", "run_s")}
    assert run("run", mine, "--seeds", 20, "--out", out, "--set", "Greedy.epsilon=0.3") == 0  # Beside the other.
    assert run("store", out) == 0
    assert "1 other results" in capsys.readouterr().out


def test_smoke_run_of_a_figure_draws_it_again(tmp_path, capsys):
    out = tmp_path / "figure"
    assert run("run", "stochastic/regret", "--seeds", 16, "--horizon", 200, "--out", out) == 0
    picture = out / "regret.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    first = picture.read_bytes()
    picture.unlink()
    assert run("plot", out) == 0
    assert picture.read_bytes() == first
    assert str(picture) in capsys.readouterr().out


def test_doctor_passes_its_own_checks(capsys):
    assert run("doctor") == 0
    shown = capsys.readouterr().out
    assert "FAILED" not in shown and "float32" in shown and "jaxlib" in shown
    assert "has all options that jaxroute compiles with" in shown
    assert f"on the CPU, compiled by {host.compiler(wide=True)}" in shown or "there is no C++ compiler" in shown


KERNELS = {
    "all is well": ("/bin/c++", None, "13.0", None, True, ["kernels: on the CPU, compiled by /bin/c++", "kernels: on the GPU, compiled by NVRTC 13.0"]),
    "no GPU": ("/bin/c++", None, None, None, True, ["kernels: none on a GPU, as jax uses no GPU"]),
    "no compiler": (None, "install one", None, None, True, ["note: no kernel on the CPU: install one"]),
    "a compiler refuses": ("/bin/c++", "set CXX", None, None, False, ["FAILED: no kernel on the CPU: set CXX"]),
    "no NVRTC": ("/bin/c++", None, None, "pip install it", False, ["FAILED: no kernel on the GPU: pip install it"]),
}  # fmt: skip


@pytest.mark.parametrize("case", KERNELS)
def test_doctor_tries_kernels(case, monkeypatch):
    path, refused, version, refused_by_gpu, fine, lines = KERNELS[case]
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu" if version is refused_by_gpu is None else "gpu")
    monkeypatch.setattr(kernels, "compiler", lambda wide: path)
    monkeypatch.setattr(kernels, "trial", {"cpu": refused, "gpu": refused_by_gpu}.get)
    monkeypatch.setattr(kernels, "nvrtc_version", lambda: version)
    shown = [f"{label}: {text}" for label, text in doctor.check_kernels()]
    assert set(lines) <= set(shown)
    assert fine != any(line.startswith("FAILED") for line in shown)


TABLE = "Query ID;LLM;Correct;Cost (EUR);Task\n" + "".join(
    f"{q};{m};{'yes' if (q + i) % 3 else 'no'};0,0{i + 1};{'distribution' if q % 2 else 'code'}\n"
    for q in range(30)
    for i, m in enumerate(("small", "large"))
)
WRONG_LOGS = {
    "an unknown role": (["t.csv", "--column", "scoer=Correct"], "a role in columns must be one of"),
    "an unknown column": (["t.csv", "--column", "score=correkt"], "did you mean 'Correct'?"),
    "a column without role": (["t.csv", "--column", "Correct"], "--column must have the form ROLE=NAME, got 'Correct'"),
    "a role twice": (["t.csv", "--column", "cost=a", "--column", "cost=b"], "--column cost must be given once, got a and b"),
    "a cost without value": (["t.csv", "--cost", "small="], "--cost must have the form MODEL=VALUE, got 'small='"),
    "costs of one model": (["t.csv", "--cost", "small=1"], "only small would be left"),
    "an unknown model": (["t.csv", "--models", "small,larg"], "did you mean 'large'?"),
    "a scale": (["t.csv", "--scale", "10"], "--scale must have the form LOW:HIGH, such as 0:10, got '10'"),
    "gaps": (["t.csv", "--missing", "keep"], "invalid choice: 'keep'"),
    "an encoding": (["t.csv", "--encoding", "utf-7000"], "encoding must be one such as 'utf-8'"),
    "features": (["t.csv", "--features", "text"], "no column of text was found"),
}


def test_a_log_is_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("t.csv").write_text(TABLE)
    assert run("data", "t.csv") == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    words = (
        "semicolons between columns; decimal commas read as points; 'yes' counts as 1; EUR per query; 30 queries x 2 models"
    )
    for word in (*words.split("; "), "best single model", "upper bound", "routing by categories"):
        assert word in " ".join(shown.split()), word
    assert run("data", "t.csv", "--cost", "small=0.5", "--cost", "large=2", "--cost-unit", "J per query", "--json") == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["queries"], about["cost_unit"], about["cheapest"]) == (30, "J per query", "small")
    assert [model["cost"] for model in about["models"]] == [0.5, 2.0]
    Path("u.csv").write_text("n,model=a:1_hit,b_hit,a_fee\n1,3,4,1\n2,5,2,1\n")
    options = ["--column", "score=*_hit", "--scale", "1:5", "--cost", "model=a:1=1", "--cost", "b=2"]
    assert run("data", "u.csv", *options) == 0
    assert "scale 1:5 mapped to 0:1, as given" in capsys.readouterr().out


def refused(capsys, *arguments):
    """Runs a command that is refused; returns its error, which is one line."""
    try:
        status = run(*arguments)
    except SystemExit as stop:  # argparse
        status = stop.code
    error = capsys.readouterr().err
    assert status == 2 and "Traceback" not in error and error.count("\n") == 1
    return error


@pytest.mark.parametrize("name", WRONG_LOGS)
def test_a_wrong_log_or_option_is_refused(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TABLE)
    arguments, message = WRONG_LOGS[name]
    assert message in refused(capsys, "data", *arguments)


# Refused by `compare` before jax is imported, and before the file is opened, which does not exist.
WRONG_COMPARISONS = {
    "a target above 1": (["--target-quality", "2"], "argument --target-quality: must be above 0 and below 1, got 2"),
    "a target in percent": (["--target-quality", "70"], "got 70; for 70 % give 0.7"),
    "a target with a sign": (["--target-quality", "70%"], "got 70%; for 70 % give 0.7"),
    "a target in words": (["--target-quality", "high"], "argument --target-quality: must be a number, got 'high'"),
    "no target": ([], "the following arguments are required: --target-quality"),
    "few orders": (["--target-quality", ".7", "--orders", "3"], "argument --orders: must be at least 4, got 3"),
    "no minutes": (["--target-quality", ".7", "--minutes", "0"], "argument --minutes: must be above 0, got 0"),
    "a long warm start": (["--target-quality", ".7", "--warm-start", ".9"], "argument --warm-start: must be from 0 to 0.5"),
    "a price without OUT": (["--target-quality", ".7", "--price", "a:8b=3"], "got 'a:8b=3'; OUT is missing, the USD per million output"),
    "a price without IN": (["--target-quality", ".7", "--price", "a=:3"], "got 'a=:3'; IN is missing"),
    "a price in words": (["--target-quality", ".7", "--price", "a=cheap"], "--price must have the form MODEL=IN:OUT, got 'a=cheap'"),
    "a negative price": (["--target-quality", ".7", "--price", "a=1:-1"], "got 'a=1:-1'; prices are numbers of at least 0"),
    "a negative cost": (["--target-quality", ".7", "--cost", "a=-1"], "got 'a=-1'; a cost is a number of at least 0"),
    "a price and a cost": (["--target-quality", ".7", "--price", "a=1:1", "--cost", "b=1"], "--cost and --price mean the same"),
    "a scale upside down": (["--target-quality", ".7", "--scale", "5:1"], "--scale must have the form LOW:HIGH"),
}  # fmt: skip


@pytest.mark.fast
@pytest.mark.parametrize("name", WRONG_COMPARISONS)
def test_a_comparison_that_makes_no_sense_is_refused_at_once(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jaxroute.data.read_recorded", None)  # A command that reads the file fails in another way.
    arguments, message = WRONG_COMPARISONS[name]
    assert message in refused(capsys, "compare", "nowhere.csv", *arguments) and not any(tmp_path.iterdir())


PROMPTS = "prompt,llm,correct,cost\n" + "".join(
    f"what is the {('root', 'sum', 'distribution', 'name')[q % 4]} of {q},{m},{int((q + i) % 3 > 0)},{1 + 4 * i}\n"
    for q in range(60)
    for i, m in enumerate(("small", "large"))
)


def test_a_comparison_says_what_it_read_and_will_do_before_it_does_it(tmp_path, capsys, monkeypatch):
    from jaxroute.comparison import comparing, learning

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(learning.strategies, "STRATEGIES", {"LinUCB": learning.STRATEGIES["LinUCB"]})
    monkeypatch.setattr("jaxroute.engine.progress._FIRST_LINE_S", 1e-6)
    Path("log.csv").write_text(PROMPTS)
    before = []
    fitted = comparing.offline.offline

    def spy(*arguments, **options):
        before.append(capsys.readouterr().out)
        return fitted(*arguments, **options)

    monkeypatch.setattr(comparing.offline, "offline", spy)
    arguments = ["compare", "log.csv", "--target-quality", "0.6", "--orders", "4", "--out", "out"]
    assert run(*arguments) == 0
    shown = capsys.readouterr()
    early = " ".join(before[0].split())
    words = ("query: column 'prompt' (as in what is", "model: column 'llm' (as in small, large)", "score: column 'correct'")
    words += (
        "60 queries x 2 models",
        "which reaches 60 % at the least cost?",
        "2 single models",
        "4 random partitions into 3",
    )
    for word in (*words, "1 learning online, in 4 random orders", "LinUCB", "At most 16 steps"):
        assert word in early, word
    assert max(map(len, (before[0] + shown.out).splitlines())) <= 80
    assert "kept:" not in shown.out and "the page is out/index.html" in shown.out
    # Where there is no terminal there are spare lines, and each step has its number.
    assert "step 1 of 16: fitted rules" in shown.err and 0 < shown.err.count("\n") < 16
    page = json.loads(Path("out/summary.json").read_text())
    assert page["data"]["file"] == "log.csv" and page["command"] == "jaxroute " + " ".join(arguments)
    assert any("read_log('log.csv')" in point["further"] for point in page["points"])


COMMANDS = [*cli.COMMANDS, "help"]


@pytest.mark.fast
@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_has_a_description_and_examples_and_fits(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    arguments = [["help"], []] if name is None else [["help", name], [name, "--help"]]
    shown = []
    for one in arguments:
        try:
            assert run(*one) == 0
        except SystemExit as stop:  # argparse
            assert stop.code == 0
        shown.append(capsys.readouterr().out)
    usage, description, *_ = shown[0].split("\n\n")
    assert shown[0] == shown[1] and usage.startswith("usage: jaxroute") and description.endswith(".")
    examples = shown[0].partition("\nexamples:\n")[2].splitlines()
    assert examples and all("jaxroute" in line or line.startswith("      ") for line in examples), examples
    assert max(map(len, shown[0].splitlines())) <= 80


@pytest.mark.fast
def test_examples_in_the_help_are_understood(monkeypatch):
    monkeypatch.setattr(cli.parsing.Parser, "_read_args_from_files", lambda self, texts: [t for t in texts if t[0] != "@"])
    for module, _ in cli.COMMANDS.values():
        examples = module.__doc__.partition("\nExamples:\n")[2].replace("\\\n", " ")
        for line in re.findall(r"jaxroute (.*)", examples):
            words = shlex.split(line.partition("|")[0].replace(')"', ""), comments=True)
            cli.make_parser().parse_args(["run", "x"] if words == ["run", "@options.txt"] else words)


@pytest.mark.fast
@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_never_abbreviated(name, capsys):
    parser = cli.make_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    known = [text for text in commands.choices[name]._option_string_actions if text.startswith("--")]
    for option in known:
        for prefix in {option[: len(option) - 1], option[:5]} - set(known):
            with pytest.raises(SystemExit, match="2"):
                parser.parse_args([name, prefix])
            assert f"jaxroute {name}: unrecognized argument: {prefix}" in capsys.readouterr().err


@pytest.mark.fast
def test_options_have_two_spellings_and_short_forms_and_may_be_in_a_file(tmp_path):
    read = cli.make_parser().parse_args
    tune = ["tune", "x", "--param", "a", "--metric", "b"]
    spellings = [read([*tune, f"--{word}"]).maximise for word in ("maximise", "maximize", "minimise", "minimize")]
    assert spellings == [True, True, False, False]
    assert read(tune).maximise is None
    assert [whole(text) for text in ("1e3", "1_000", "1,000", "1000")] == [1000] * 4
    short = read(["run", "x", "-n", "1e3", "-o", "out", "-q", "--root-seed", "1_000"])
    assert (short.seeds, short.out, short.quiet, short.root_seed) == (1000, Path("out"), True, 1000)
    file = tmp_path / "options.txt"
    file.write_text("# of a figure\nx --seeds 2:5\n--set 'A.b=some text'   # a comment\n--verbose\n")
    given = read(["run", f"@{file}"])
    assert (given.experiment, given.seeds, given.set, given.verbose) == ("x", range(2, 5), ["A.b=some text"], True)


def as_json(capsys, *arguments):
    """Runs a command with --json; returns the document, which must be all that it prints."""
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_json_is_all_that_is_printed_and_quiet_prints_nothing(mine, tmp_path, capsys, monkeypatch):
    """Also where a user's file prints."""
    from jaxroute.comparison import learning

    monkeypatch.chdir(tmp_path)
    mine.write_text(mine.read_text() + "print('from the file')\n")
    out, command = tmp_path / "out", ["run", mine, "-n", 4, "-o", tmp_path / "out"]
    made = as_json(capsys, *command)
    assert (made["seeds"], made["out"]) == (4, str(out)) and set(made["policies"]) == {"UCB1", "Greedy"}
    assert run(*command, "--quiet") == 0
    assert capsys.readouterr() == ("from the file\n", "")
    (stored,) = as_json(capsys, "store", out)["stores"]
    assert (stored["seeds"], stored["horizon"], stored["sound"], stored["missing"]) == ([[0, 3]], 400, True, "")
    assert stored["policies"] == ["UCB1", "Greedy"] and stored["calls"][0]["decisions"] == 3 * 4 * 400
    assert as_json(capsys, "store", out, "--export", "a.nc") == {"files": ["a.nc"]}
    assert run("store", out, "-q", "--verify") == 0 and capsys.readouterr() == ("", "")
    assert as_json(capsys, "plot", out, mine)["summary"]["experiment"] == "mine/width"
    found = as_json(capsys, "tune", mine, "--param", "Greedy.epsilon=linear:0:1", "--metric", "regret", "--rounds", "1e5")
    assert found["policy"] == "Greedy" and 0 <= found["best"]["values"]["epsilon"] <= 1
    report = as_json(capsys, "doctor")
    assert report["passed"] and {"label": "precision", "text": "float32"} in report["lines"]
    assert as_json(capsys, "list") == catalogue()
    Path("log.csv").write_text(PROMPTS)
    assert as_json(capsys, "data", "log.csv")["queries"] == 60
    monkeypatch.setattr(learning.strategies, "STRATEGIES", {"LinUCB": learning.STRATEGIES["LinUCB"]})
    comparison = ["compare", "log.csv", "--target-quality", "0.6", "--orders", "4"]
    found = as_json(capsys, *comparison)
    assert (found["target"], found["out"]) == (0.6, "report-log") and Path("report-log/summary.json").is_file()
    assert run(*comparison, "--quiet") == 0 and capsys.readouterr() == ("", "")


def test_verbose_prints_blocks_and_the_traceback_of_an_error(mine, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("run", mine, "-n", 4, "-o", out, "-v") == 0
    assert "block 2 of 2: " in capsys.readouterr().err
    assert run("run", mine, "-n", 4, "-o", out, "--set", "UCB2.width=1", "-v") == 2
    error = capsys.readouterr().err
    assert error.startswith("Traceback") and "did you mean 'UCB1'" in error.splitlines()[-1]


def test_version_and_lists_for_people_and_programs(capsys):
    with pytest.raises(SystemExit) as stop:
        run("--version")
    assert stop.value.code == 0 and jr.__version__ in capsys.readouterr().out
    assert run("list") == 0
    shown = capsys.readouterr().out
    for word in ("stochastic", "StageRoute", "UCB1", "arena_market", "stageroute-table-1", "RandomCascade", *EXPERIMENTS):
        assert word in shown, word
    assert run("list", "staged") == 0
    shown = capsys.readouterr().out
    assert "staged/figure-2" in shown and "queueing" not in shown and "Data sets" not in shown


FIGURE = """
from jaxroute import plot
experiment = Experiment(**{**vars(experiment), "figures": {"curves": lambda results: plot.curves(results["result"], "regret").figure}})
"""


def test_figures_of_a_users_experiment_can_be_drawn_later(mine, tmp_path, capsys):
    mine.write_text(mine.read_text() + FIGURE)
    out = tmp_path / "out"
    assert run("run", mine, "--seeds", 4, "--out", out, "--no-figures") == 0
    assert "store, summary.json" in " ".join(capsys.readouterr().out.split()) and not (out / "curves.png").exists()
    assert run("plot", out) == 2
    assert "'mine/width' is an experiment of your own: name its file too" in capsys.readouterr().err
    assert run("plot", out, mine) == 0
    assert str(out / "curves.png") in capsys.readouterr().out and (out / "curves.png").exists()


def test_without_matplotlib_it_runs_and_says_what_is_left_out(tmp_path, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name))
    assert run("run", "stochastic/regret", "--seeds", 4, "--horizon", 50, "--out", tmp_path / "out") == 0
    assert "no figures are drawn: they need matplotlib" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.png"))


def test_an_experiment_of_a_file_with_several_is_chosen_by_name(tmp_path, capsys):
    file, out = tmp_path / "several.py", tmp_path / "out"
    file.write_text("x = 1\n")
    assert "must define `experiment" in refused(capsys, "run", file)
    several = 'EXPERIMENTS = [experiment, __import__("dataclasses").replace(experiment, name="mine/other")]\n'
    file.write_text(USER_EXPERIMENT + several)
    assert f"choose one by {file}:NAME, NAME being width, other" in refused(capsys, "run", file)
    assert "must be one of 'width', 'other', got 'height'" in refused(capsys, "run", f"{file}:height")
    assert run("run", f"{file}:other", "--seeds", 4, "--horizon", 50, "--out", out) == 0
    assert json.loads((out / "summary.json").read_text())["experiment"] == "mine/other"


def test_the_catalogue_is_that_of_the_code():
    assert catalogue() == described() | {"data_sets": catalogue()["data_sets"]}, "run `python -m jaxroute.catalogue`"


@pytest.mark.parametrize(
    "arguments", ["--help", "--version", "run --help", "run", "rnu", "list", "list --json", "list staged"]
)
def test_what_needs_no_jax_does_not_wait_for_it(arguments):
    code = (
        f"import sys; from jaxroute import cli\ntry: cli.main({arguments.split()})\nexcept SystemExit: pass\n"
        "print('jax' in sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.splitlines()[-1] == "False"


def test_public_names_are_there_when_they_are_asked_for():
    code = "import sys, jaxroute as jr; print('jax' in sys.modules, [n for n in jr.__all__ if not hasattr(jr, n)], 'jax' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["False", "[]", "True"] and set(jr.__all__) <= set(dir(jr))
    with pytest.raises(AttributeError, match="module 'jaxroute' has no attribute 'simulat'"):
        _ = jr.simulat


def test_compiled_programs_are_kept_where_the_user_says(tmp_path, monkeypatch):
    names = ("jax_compilation_cache_dir", "jax_enable_compilation_cache", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        jax.config.update("jax_enable_compilation_cache", False)
        assert store_programs() is None
        jax.config.update("jax_enable_compilation_cache", True)
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
        assert store_programs() is None and jax.config.jax_compilation_cache_dir is None
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert store_programs() == str(tmp_path / "jaxroute" / "compiled")
        assert jax.config.jax_persistent_cache_min_compile_time_secs == 0  # All programs are stored.
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
        assert store_programs() == str(tmp_path / "mine")
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


@pytest.mark.fast
def test_experiments_that_simulate_generated_queries_are_called_stand_ins():
    """Every experiment on a user's table has one of both: `--data` that must be given, or a stand-in that is called one."""
    named = {name for name in EXPERIMENTS if EXPERIMENTS[name].stands_in({})}
    prompts = {"queueing/figure-3", "queueing/figure-6", "queueing/figure-7", "queueing/table"}
    assert named == {"contextual/table", "cascade/replay", "cascade/queries", *prompts}
    for name in named:
        assert "stand-in" in catalogue()["experiments"][name]["title"]
        assert not EXPERIMENTS[name].stands_in({"environment": {"data": "table.npz"}})


def test_a_stand_in_is_called_one_before_and_after_it_is_played(tmp_path, capsys, monkeypatch):
    from jaxroute import experiments

    before = []
    monkeypatch.setattr(experiments, "run", lambda *a, **k: before.append(capsys.readouterr().out) or {})
    monkeypatch.setattr(run_command, "print_report", lambda *a: None)
    assert run("run", "contextual/table", "--smoke", "--out", tmp_path / "a") == 0
    for said in (before[0], capsys.readouterr().out):
        said = " ".join(said.split())
        assert "Stand-in: no --data was given" in said and "`jaxroute run contextual/table --data FILE`" in said
    assert run("run", "contextual/table", "--smoke", "--data", "t.csv", "--out", tmp_path / "b") == 0
    assert "Stand-in" not in before[1] + capsys.readouterr().out
