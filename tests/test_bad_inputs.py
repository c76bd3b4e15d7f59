"""What is said to whoever gives something wrong: a file, an argument, a command. Each row is one input, and the sentence that answers it.

An answer names the file or the argument, its value, what is allowed and, where that is not plain, what to do. Nothing here is compiled.
"""

import gzip
import io
import json
import os
import re
import sys
import warnings

import numpy as np
import pytest
import xarray as xr

import jaxroute as jr
from jaxroute import cli, metrics, plot
from jaxroute.cli.simulating import changes_of
from jaxroute.data import RoutingTable, divide_by_max, load_columns, load_embeddings, load_table, min_max
from jaxroute.problems import stochastic

WIDE = "prompt_id,a,a|total_cost,b,b|total_cost\n1,0.5,0.01,1,0.02\n2,0,0.01,0.25,0.03\n"
SCORES, COSTS = [[0.5, 1.0], [0.0, 0.25]], [[0.01, 0.02], [0.01, 0.03]]
LONG = "prompt_id,model,correct,cost\n1,a,0.5,0.01\n1,b,1,0.02\n2,b,0.25,0.03\n2,a,0,0.01\n"
LINES = [
    json.dumps({"query": q, "llm": m, "score": s, "usd": c}) for q, m, s, c in (("x", "a", 0.5, 0.01), ("x", "b", 1, 0.02))
]


def archive(**arrays):
    """An npz file."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def parquet(text=WIDE):
    pyarrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [line.split(",") for line in text.splitlines()]
    file = io.BytesIO()
    writer.write_table(pyarrow.table({name: [float(row[i]) for row in rows[1:]] for i, name in enumerate(rows[0])}), file)
    return file.getvalue()


def zipped(text):
    return gzip.compress(text.encode())


NPZ = archive(scores=np.asarray(SCORES), costs=np.asarray(COSTS), models=np.array(["a", "b"]))
OBJECTS = archive(scores=np.asarray(SCORES), costs=np.asarray(COSTS), models=np.array(["a", "b"], object))

# Name of the file, its content (None for a folder), and what is said after its name; `tests/data/test_log.py` has more.
MORE = WIDE + "3,1,0.01,0,0.02\n"
FILES = {
    "no file": ("t.csv", ..., "there is no such file"),
    "a folder": ("t.csv", None, "is a folder without files that can be read"),
    "unknown kind": ("t.doc", WIDE, r"of an unknown kind; its name must end in \.csv, \.tsv.*\.jsonl"),
    "names without rows": ("t.csv", WIDE.splitlines()[0], "has a line of names, but no rows"),
    "empty jsonl": ("t.jsonl", "\n", "is empty"),
    "empty gz": ("t.csv.gz", zipped(""), "is empty"),
    "truncated npz": ("t.npz", NPZ[: len(NPZ) // 2], "is not an npy or npz file of plain arrays, or cut off"),
    "empty npz": ("t.npz", b"", "is empty"),
    "npy named npz": ("t.npz", b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }".ljust(128) + b"\n" + b"\0" * 8, "holds one array without a name"),
    "npz with names as objects": ("t.npz", OBJECTS, "the array 'models' holds Python objects, which are not read; save names with dtype=str"),
    "another number of models in npz": ("t.npz", archive(scores=np.asarray(SCORES), costs=np.asarray(COSTS), models=np.array(["a"])), r"the array 'scores' has shape \(2, 2\) .*; expected \[Q, 1\]"),
    "npz with one cost of each, of as many": ("t.npz", archive(scores=np.asarray(SCORES), costs=np.array([1.0, 2.0]), models=np.array(["a", "b"])), r"the array 'costs' has shape \(2,\) .*; expected \[Q, 2\] numbers"),
    "a damaged array in npz": ("t.npz", NPZ.replace(np.float64(0.02).tobytes(), bytes(8)), "the array 'costs' is damaged"),
    "npz named csv": ("t.csv", NPZ, "npz"),
    "truncated parquet": ("t.parquet", lambda: parquet()[:-20], "[Pp]arquet"),
    "pickle that calls": ("t.pkl", b"\x80\x04cos\nsystem\n\x8c\x04true\x85R.", "refused os.system, .* nothing was run"),
    "a word in a cell": ("t.csv", WIDE.replace("0.25", "oops"), "line 3, column 'b' is 'oops', which is not a number"),
    "an empty cell": ("t.csv", MORE.replace("0.25", ""), r"1 of 3 queries that lack an answer or a cost \(of b 1; first: .*line 3, column 'b'\); in Python missing='drop' leaves them out$"),
    "a pair that is not there": ("t.csv", LONG + "3,a,1,0.1\n", "1 of 3 queries .*query '3' and model 'b'.; in Python missing='drop' leaves them out$"),
    "one percent sign": ("t.csv", WIDE.replace("0.25", "25%"), "line 2, column 'a' is 0.5 without a % sign, but others have one"),
    "a negative cost": ("t.csv", WIDE.replace("0.03", "-1"), "line 3, column 'b.total_cost' is '-1'; a cost must be finite and at least 0"),
    "a negative score": ("t.csv", WIDE.replace("0.25", "-2"), "line 3, column 'b' is -2; scores must lie in"),
    "surplus fields": ("t.csv", WIDE + "3,1,0.01,1,0.02,surplus\n", "line 4: 6 fields, but the first line names 5 columns; .*text with ',' not in quotation marks"),
    "a row cut off": ("t.csv", WIDE + "3,1,0.0", r"line 4: 3 fields, but the first line names 5 columns; .*the file cut off\?"),
    "an open quotation mark": ("t.csv", WIDE + '3,"1,0.01,1,0.02\n', "line 4: .*is a quotation mark not closed, .* or the file cut off"),
    "a repeated column": ("t.csv", WIDE.replace("prompt_id", "a"), "has 2 columns 'a': rename or remove all but one"),
    "costs without scores": ("t.csv", WIDE.replace(",b,", ",c,"), "It has 'prompt_id', 'a'"),
    "no JSON": ("t.jsonl", LINES[0] + "\n{broken\n", "line 2 is not JSON"),
    "brackets without end": ("t.jsonl", "[" * 100_000, "is JSON of too many levels"),
    "a whole number without end": ("t.jsonl", "\n".join(LINES).replace("0.01", "1" + "0" * 400), "a cost must be finite and at least 0"),
    "a word in jsonl": ("t.jsonl", LINES[0] + "\n" + LINES[1].replace('"score": 1', '"score": "fine"'), "line 2, column 'score' is 'fine', which is not a number"),
    "lists for scores": ("t.jsonl", "\n".join(LINES).replace('"score": 1', '"score": [1, 0]'), r"line 2, column 'score' is \[1, 0\], a list"),
}  # fmt: skip


def make(folder, name, content):
    path = folder / name
    content = content() if callable(content) else content
    if content is None:
        path.mkdir()
    elif content is not ...:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def said_about(path, load=load_table, **options):
    """The error, which is one line with the name of the file."""
    with warnings.catch_warnings(), pytest.raises((ValueError, OSError)) as error:
        warnings.simplefilter("error")
        load(path, **options)
    text = str(error.value)
    assert path.name in text
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_file_is_named_with_the_place_and_the_remedy(name, tmp_path):
    file, content, message = FILES[name]
    path = make(tmp_path, file, content)
    text = said_about(path)
    assert re.search(message, text), text


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs the permissions of Unix")
def test_a_file_that_may_not_be_read(tmp_path):
    path = make(tmp_path, "t.csv", WIDE)
    path.chmod(0)
    me = os.geteuid()
    try:
        if me == 0:  # Who may read everything.
            os.seteuid(65534)
        assert "Permission denied" in said_about(path)
    finally:
        os.seteuid(me)


# Files that are read without a word of warning.
READ = {
    "tsv": ("t.tsv", WIDE.replace(",", "\t")),
    "semicolons": ("t.csv", WIDE.replace(",", ";")),
    "a byte order mark": ("t.csv", ("\ufeff" + WIDE).encode()),
    "gz without saying so": ("t.csv", zipped(WIDE)),
    "parquet named csv": ("t.csv", lambda: parquet(WIDE)),
    "CSV for csv": ("T.CSV", WIDE),
    "blank lines and spaces": ("t.csv", WIDE.replace("\n", "\n\n").replace(",", ", ")),
    "Windows lines": ("t.csv", WIDE.replace("\n", "\r\n")),
    "currency": ("t.csv", WIDE.replace(",0.0", ",$0.0")),
    "a decimal comma": ("t.csv", WIDE.replace("0.25", '"0,25"')),
    "cost_<model>": ("t.csv", WIDE.replace("a|total_cost", "cost_a").replace("b|total_cost", "cost_b")),
    "<model>_cost and <model>_correct": ("t.csv", WIDE.replace("|total", "").replace(",a,", ",a_correct,").replace(",b,", ",b_correct,")),
    "a row per query and model": ("t.csv", LONG),
    "the same in jsonl": ("t.jsonl", "\n".join(json.dumps(dict(zip(LONG.split("\n")[0].split(","), row.split(","), strict=True))) for row in LONG.split("\n")[1:-1])),
    "true and false": ("t.csv", WIDE.replace("1,0.02", "True,0.02").replace("2,0,", "2,false,")),
    "the same answer twice": ("t.csv", WIDE + WIDE.splitlines()[1]),
    "a score without cost": ("t.csv", WIDE.replace("\n", ",0.5\n").replace("cost,0.5", "cost,c")),
    "a number beside": ("t.csv", WIDE.replace("\n", ",17\n").replace("cost,17", "cost,tokens")),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_file_that_is_only_unusual_is_read(name, tmp_path):
    file, content = READ[name]
    path = make(tmp_path, file, content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = load_table(path)
    np.testing.assert_array_equal(table.scores, np.float32(SCORES))
    np.testing.assert_array_equal(table.costs, np.float32(COSTS))
    assert table.models == ("a", "b")


def test_queries_that_are_dropped_are_counted_and_the_first_gap_is_named(tmp_path):
    path = make(tmp_path, "t.csv", WIDE + "3,1,n/a,1,0.02\n")
    with pytest.warns(UserWarning, match=r"dropped 1 of 3 queries .*\(of a 1; first: .*t.csv, line 4, column 'a'\)"):
        table = load_table(path, missing="drop")
    assert (table.rows.tolist(), table.num_rows) == ([0, 1], 3)
    embeddings = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(table.with_features(embeddings).features, embeddings[:2])
    np.testing.assert_array_equal(table.subset(rows=[1]).with_features(embeddings).features, embeddings[[1]])
    with pytest.raises(ValueError, match="features has 4 rows; expected 2, one per query, or 3, one per row of the file"):
        table.with_features(np.ones((4, 2)))


def test_files_of_data_sets_are_known_by_their_columns(tmp_path):
    embedllm = "prompt_id,model_id,category_id,label,prompt,model_name,category\n7,0,0,1,p,x-13b,distribution\n3,0,0,0,q,x-13b,art\n"
    path = make(tmp_path, "train.csv", embedllm + "3,1,0,1,q,phi,art\n7,1,0,0,p,phi,distribution\n")
    table = load_table(path)
    assert (table.models, table.costs[0].tolist(), table.currency) == (("x-13b", "phi"), [13.0, 7.0], "1e9 parameters")
    assert (table.scores.tolist(), table.group_names) == ([[0, 1], [1, 0]], ("art", "distribution"))  # By prompt_id.
    assert load_table(path, costs={"phi": 1.0, "x-13b": 2.0}).cost_unit == "USD per query"
    mess = make(tmp_path, "mess.csv", "label_s,energy_consumption_s,label_l,energy_consumption_l\n1,5,1,50\n0,6,1,60\n")
    assert load_table(mess).cost_unit == "J per request"
    pyarrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cell = {"score": 1.0, "num_input_tokens": 1_000_000, "num_output_tokens": 0}
    names = ("openai-gpt-4o", "openai-gpt-4o-mini")
    cells = {names[0]: [cell, None, {**cell, "score": 0.5}], names[1]: [cell] * 3}
    writer.write_table(pyarrow.table({"dataset": ["m"] * 3, **cells}), tmp_path / "s.parquet")
    with pytest.warns(UserWarning, match=r"dropped 1 of 3 .*s.parquet, row 1 \(from 0\), column 'openai-gpt-4o.score'"):
        table = load_table(tmp_path / "s.parquet", missing="drop")
    assert (table.models, table.costs.tolist(), table.rows.tolist()) == (
        names,
        np.float32([[2.5, 0.15]] * 2).tolist(),
        [0, 2],
    )


# Arguments: what is called, the kind of error, and what is said.
BANDIT = stochastic.bernoulli([0.5, 0.6])
RESULT = xr.Dataset(
    {"regret": (("policy", "seed", "time"), np.arange(8.0).reshape(2, 2, 2), {"kind": "total", "long_name": "regret"})},
    coords={"policy": ["a", "b"], "seed": [0, 1], "time": [1, 2]},
)
ARGUMENTS = {
    "costs as a number": (lambda path: load_table(path, costs=3), r"costs must map models to numbers, as \{'MODEL': 0.01\}, got 3"),
    "costs of nobody": (lambda path: load_table(path, costs={"c": 1.0}), r"a model in costs must be one of 'a', 'b', got 'c'"),
    "a negative cost": (lambda path: load_table(path, costs={"a": -1.0}), r"costs\['a'\] must be at least 0, got -1"),
    "a cost as text": (lambda path: load_table(path, costs={"a": "much"}), r"costs\['a'\] must be a number .*, got 'much'"),
    "unknown treatment of gaps": (lambda path: load_table(path, missing="ignore"), "missing must be one of 'error', 'drop', got 'ignore'"),
    "a column that is not there": (lambda path: load_columns(path, ["latency"]), "t.csv lacks the column latency; it has prompt_id, a"),
    "scores in percent": (lambda _: RoutingTable([[50.0, 70.0]], [[1.0, 1.0]], ("a", "b")), r"scores is 50.0 at row 0, model 'a'; scores must lie in \[0, 1\]; are they percent\? divide them by 100"),
    "an argument of simulate by another name": (lambda _: play(n_seeds=10), r"^simulate\(\) got an unexpected keyword argument 'n_seeds'; did you mean 'seeds'\?$"),
    "a misspelt argument of an execution": (lambda _: jr.Execution(devises=1), r"^Execution\(\) got an unexpected keyword argument 'devises'; did you mean 'devices'\?$"),
    "a misspelt argument of a store": (lambda _: jr.Store("out", keep_state=True), "did you mean 'keep_states'"),
    "a misspelt argument of load": (lambda _: jr.load("out", partially=True), r"^load\(\) got an unexpected keyword argument 'partially'; did you mean 'partial'"),
    "a misspelt argument of a search": (lambda _: jr.tune.search(None, None, {}, horizont=3), "did you mean 'horizon'"),
    "a misspelt argument of a grid": (lambda _: jr.grid(stochastic.UCB1, widht=[1.0, 2.0]), "UCB1.. got an unexpected keyword argument 'widht'; did you mean 'width'"),
    "a misspelt argument of a table": (lambda _: jr.metrics.table(RESULT, metric="regret"), "did you mean 'metrics'"),
    "a misspelt argument of a comparison of pairs": (lambda _: jr.metrics.paired(RESULT, "regret", base="a"), "did you mean 'baseline'"),
    "a misspelt argument of a log": (lambda path: jr.data.read_log(path, colums={}), "did you mean 'columns'"),
    "a misspelt argument of a check": (lambda _: jr.testing.check_policy(stochastic.UCB1(), BANDIT, horizont=3), "did you mean 'horizon'"),
    "an array that is one value": (lambda _: jr.grid(stochastic.bernoulli, mean=np.array([0.1, 0.9])), r"grid: bernoulli at mean=0.1: mean must have shape \[K\].*each value of mean is a setting; give an array that is one value as a tuple"),
    "a setting that is refused": (lambda _: jr.grid(stochastic.gaussian, mean=(0.1, 0.9), scale=[1.0, -1.0]), "grid: gaussian at scale=-1.0: scale must be at least 0, got -1"),
    "no path": (lambda _: load_table(None), "data must be the name of a file, .*, got None"),
    "an empty path": (lambda _: load_table(""), "data must be the name of a file, got an empty text"),
    "a folder of embeddings": (lambda path: load_embeddings(path.parent), "path must be a file, got the folder"),
    "a csv of embeddings": (load_embeddings, "t.csv is not an npy or npz file of plain arrays, or cut off$"),
    "no names of models": (lambda _: RoutingTable([[0.5]], [[1.0]], None), "models must be names, got None"),
    "rows of different lengths": (lambda _: RoutingTable([[0.5], [0.5, 0.6]], [[1.0]], ("a",)), "scores must be an array of numbers: rows of different lengths"),
    "no scores to scale": (lambda _: min_max([]), r"scores is \[\]; min_max needs at least two different finite values"),
    "scores to scale in words": (lambda _: divide_by_max(["high"]), r"scores must be a number or an array of numbers, got \['high'\]"),
    "a tuple to sweep": (lambda _: jr.grid(stochastic.UCB1, width=(1.0, 2.0)), "needs at least one argument with several values, got .*; only a list, a range or an array is swept"),
    "a grid of numbers": (lambda _: jr.grid(lambda a: a, a=[1, 2]), "must give environments or policies, got 1"),
    "instances of a number": (lambda _: jr.instances(5), "environments must be a list of them, got 5"),
    "a summary of differences": (lambda _: metrics.table(metrics.paired(RESULT, "regret", "a")), "data must be the result of a simulation, with single runs along 'seed', got a Dataset of mean, stderr, z, count"),
    "a table of nothing": (lambda _: metrics.table(None), "data must be the xarray.Dataset of a simulation, got None"),
    "a mean of a number": (lambda _: metrics.mean(3.0, "regret"), "data must be an xarray.Dataset or DataArray, got float"),
}  # fmt: skip


def play(env=BANDIT, policies=stochastic.UCB1(), **options):
    return jr.simulate(env, policies, **({"horizon": 10, "seeds": 2, "progress": False} | options))


ARGUMENTS |= {
    "a function for progress": (lambda _: play(progress=print), "progress must be True or False, got <built-in function print>"),
    "a probe of one argument": (lambda _: play(probes={"x": lambda state: state}), r"probes\['x'\] must take \(env, policy, env_state, policy_state, t\), got one that takes \(state\)"),
    "a sampler without key": (lambda _: play(env=lambda: BANDIT), r"env, the function .*, must take \(key\), got one that takes \(\); for one environment call it"),
    "a constructor for an environment": (lambda _: play(env=stochastic.bernoulli), r"env is the function bernoulli, which was called with a key, as a sampler is, and failed: mean must be .*; for one environment call it: env=bernoulli\(...\)"),
    "a policy made of nothing": (lambda _: play(policies={"x": lambda: stochastic.UCB1()}), r"policy 'x': a function must take \(env\), got one that takes \(\)"),
    "seeds beyond memory": (lambda _: play(seeds=10**12), r"seeds must be at most [0-9,]+ on this machine \(40 bytes for each\), got 1,000,000,000,000"),
    "a horizon beyond 32 bits": (lambda _: play(horizon=10**12), "horizon must be from 1 to 2147483647, got 1000000000000"),
    "an empty folder": (lambda _: play(out=""), "the folder of a result must be a path, got ''"),
    "a number for a folder": (lambda _: play(out=3), "the folder of a result must be a path, got 3"),
    "a result of nothing": (lambda _: jr.load(None), "the folder of a result must be a path, got None"),
    "a figure of nothing": (lambda path: plot.save(None, path.with_name("x.png")), "figure must be a matplotlib Figure or Axes"),
    "a metric that differences are not of": (lambda _: plot.curves(metrics.paired(RESULT, "regret", "a"), "z"), "metric must be 'regret', the one of these differences, got 'z'"),
    "quantiles of differences": (lambda _: plot.curves(metrics.paired(RESULT, "regret", "a"), band="quantile"), "band must be 'stderr' for differences, which have two signs, got 'quantile'"),
    "a table in another language": (lambda _: metrics.table(RESULT, format="tex"), "format must be one of 'text', 'latex', 'markdown', 'frame', got 'tex'"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_wrong_argument_is_named(name, tmp_path):
    call, message = ARGUMENTS[name]
    path = make(tmp_path, "t.csv", WIDE)
    with pytest.raises((TypeError, ValueError), match=message) as error:
        call(path)
    assert "\n" not in str(error.value)


# Commands, and what they say; {t} is a table.
COMMANDS = {
    "a misspelt command": (["hlep"], "did you mean help?"),
    "an unknown option": (["run", "x", "--seed", "3"], "unrecognized argument: --seed; did you mean --seeds or --root-seed?"),
    "an option of other commands": (["list", "--quiet"], "unrecognized argument: --quiet (see"),
    "an option without command": (["--sedes"], "jaxroute: unrecognized arguments: --sedes (see"),
    "an unknown letter": (["run", "x", "-z"], "jaxroute run: unrecognized arguments: -z (see"),
    "a missing file of options": (["run", "@nowhere.txt"], "nowhere.txt"),
    "an unknown experiment": (["run", "staged/figure-22"], "other names, got 'staged/figure-22'; did you mean 'staged/figure-2'? (`jaxroute list` shows all; studies are in the sources: scripts/studies/PROBLEM.py:NAME)"),
    "a text for an experiment": (["run", "t.csv"], "a file of your own must end in .py"),
    "a file that is no Python": (["run", "broken.py"], "broken.py, line 2: invalid syntax"),
    "a file that fails": (["run", "failing.py"], "failing.py, line 3: ZeroDivisionError: division by zero"),
    "one case in place of several": (["run", "case.py"], "case.py: cases must be a tuple of at least one Case, got Case("),
    "a misspelt argument of an experiment": (["run", "titel.py"], "titel.py, line 4: TypeError: Experiment.__init__() got an unexpected keyword argument 'titel'"),
    "policies as a list": (["run", "list.py"], "list.py: case 'result': policies must be a dict of name to policy, or a function, got [UCB1("),
    "an environment as a number": (["run", "five.py"], "five.py: case 'result': environment must be an environment, a grid or a function, got 5"),
    "a horizon as text": (["run", "text.py"], "text.py: case 'result': horizon must be a whole number at least 1, got '10'"),
    "two cases of a name": (["run", "twice.py"], "twice.py: cases must have different names of files without folders, got 'result', 'result'"),
    "a case outside the folder": (["run", "outside.py"], "outside.py: cases must have different names of files without folders, got '../outside'"),
    "a file that leaves": (["run", "leaves.py"], "leaves.py, line 1: SystemExit: 3"),
    "a binary file": (["run", "binary.py"], "binary.py, line 1: "),
    "too long a horizon": (["run", "stochastic/regret", "--horizon", "10**12"], "argument --horizon: must be a whole number, got '10**12'"),
    "a horizon beyond 32 bits": (["run", "stochastic/regret", "--horizon", "1e12"], "argument --horizon: must be at most 2,147,483,647"),
    "a fractional root seed": (["run", "stochastic/regret", "--root-seed", "1.5"], "argument --root-seed: must be a whole number, got '1.5'"),
    "a negative root seed": (["run", "stochastic/regret", "--root-seed", "-1"], "argument --root-seed: must be at least 0, got -1"),
    "an empty --out": (["run", "stochastic/regret", "--out", ""], "argument -o/--out: must be a path, got an empty text"),
    "a file for --out": (["run", "stochastic/regret", "--out", "t.csv"], "out must be a folder or URL that can be written to, got 't.csv/store': Not a directory"),
    "--data without file": (["run", "service/table", "--data", "nowhere.csv"], "nowhere.csv: there is no such file"),
    "--data without costs": (["run", "service/table", "--data", "plain.csv"], "--set environment.costs="),
    "a setting that does not suit the data": (["run", "staged/table", "--smoke", "--data", "t.csv"], "got 0.0002; --set environment.budget=VALUE changes it"),
    "a size above the number of models": (["run", "combinatorial/table", "--data", "t.csv"], "size must be from 1 to 2, got 3; --set environment.size=VALUE changes it"),
    "no features": (["run", "queueing/table", "--data", "t.csv"], "t.csv has no features, of text or otherwise: give embeddings"),
    "--data twice": (["run", "service/table", "--data", "t.csv", "--set", "environment.data=u.csv"], "--data and --set environment.data mean the same: give one of them"),
    "--set twice": (["run", "stochastic/regret", "--set", "UCB1.width=1", "--set", "UCB1.width=2"], "--set UCB1.width must be given once, got 1 and 2"),
    "--set without a leaf": (["run", "stochastic/regret", "--set", "UCB1=2"], "--set must have the form POLICY.NAME=VALUE, got 'UCB1=2'"),
    "a misspelt leaf": (["run", "stochastic/regret", "--set", "UCB1.with=2"], "hyperparameter of UCB1 must be one of 'width', got 'with'; did you mean 'width'?"),
    "a leaf as a list": (["run", "stochastic/regret", "--set", "UCB1.width=[1, 2]"], "UCB1.width must have shape (), got (2,)"),
    "a goal for nothing": (["run", "stochastic/regret", "--until-stderr", "regrets=1"], "until_stderr must be one of 'regret'"),
    "a goal that is no number": (["run", "stochastic/regret", "--until-stderr", "regret=small"], "--until-stderr must have the form METRIC=ERROR, got 'regret=small'"),
    "a goal of zero": (["run", "stochastic/regret", "--until-stderr", "regret=0"], "until_stderr['regret'] must be above 0, got 0"),
    "an unknown problem": (["list", "Staged"], "problem must be one of 'cascade'"),
    "a plot of no run": (["plot", "folder"], "folder must hold a stored result, got 'folder', where no store/*.pack is found"),
    "a plot of something else": (["plot", "other"], "folder must hold a stored result, got 'other', where no store/*.pack is found"),
    "a plot of a broken run": (["plot", "broken"], "folder must hold a stored result, got 'broken', where no store/*.pack is found"),
    "missing file": (["run", "nothing.py"], "existing file"),
    "malformed --set": (["run", "stochastic/regret", "--set", "UCB1width"], "POLICY.NAME=VALUE"),
    "unknown policy": (["run", "stochastic/regret", "--set", "UCB2.width=1"], "did you mean 'UCB1'"),
    "hyperparameter that is no number": (["run", "stochastic/regret", "--set", "UCB1.width=wide"], "UCB1.width must be a number"),
    "hyperparameter out of range": (["run", "stochastic/regret", "--set", "UCB1.width=-1"], "width must be at least 0, got -1"),
    "NaN": (["run", "stochastic/regret", "--set", "UCB1.width=NaN"], "must be finite"),
    "hyperparameter of an oracle": (["run", "stochastic/regret", "--set", "Oracle.best=1"], "cannot change Oracle"),
    "negative budget": (["run", "staged/figure-2", "--smoke", "--set", "environment.budget=-1"], "budget must be above 0"),
    "infeasible budget": (["run", "staged/figure-2", "--smoke", "--set", "environment.budget=0.01"], "budget must be at least 0.14"),
    "unknown setting": (["run", "staged/figure-2", "--smoke", "--set", "environment.bugdet=1"], "environment"),
    "no data": (["run", "staged/table", "--smoke"], "--data FILE"),
    "data for an experiment without": (["run", "stochastic/regret", "--data", "x.csv"], "takes no --data"),
    "setting of a fixed environment": (["run", "stochastic/regret", "--set", "environment.mean=1"], "environment.mean cannot be set: the environment of this experiment is fixed"),
    "setting of an environment that is made for each run": (["run", "combinatorial/figure-10", "--set", "environment.size=3"], "environment.size cannot be set: the environment of this experiment is fixed"),
    "misspelt choice": (["run", "stochastic/regret", "--keep", "moment"], "did you mean moments?"),
}  # fmt: skip


CASE = "Case(environment=stochastic.bernoulli([0.5]), policies={'u': stochastic.UCB1()}, horizon=10)"
EXPERIMENT = f"""from jaxroute.experiments import Case, Experiment
from jaxroute.problems import stochastic

experiment = Experiment(name="mine", title="mine", cases=({CASE},))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with some files."""
    for name, content in {
        "t.csv": WIDE,
        "plain.csv": "query,a,b\n1,0,1\n",
        "broken.py": "x = 1\nexperiment = = 2\n",
        "failing.py": "x = 1\n\nexperiment = x / 0\n",
        "case.py": EXPERIMENT.replace(f"({CASE},)", CASE),
        "titel.py": EXPERIMENT.replace("title", "titel"),
        "list.py": EXPERIMENT.replace("{'u': stochastic.UCB1()}", "[stochastic.UCB1()]"),
        "five.py": EXPERIMENT.replace("stochastic.bernoulli([0.5])", "5"),
        "text.py": EXPERIMENT.replace("horizon=10", "horizon='10'"),
        "twice.py": EXPERIMENT.replace(CASE, f"{CASE}, {CASE}"),
        "outside.py": EXPERIMENT.replace("horizon=10", "horizon=10, name='../outside'"),
        "leaves.py": "raise SystemExit(3)\n",
        "binary.py": b"\0",
    }.items():
        make(tmp_path, name, content)
    for name, summary in {"folder": None, "other": '{"x": 1}', "broken": "{"}.items():
        make(tmp_path, name, None)
        if summary:
            (tmp_path / name / "summary.json").write_text(summary)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_command_is_answered_on_one_line_and_leaves_nothing(name, here, capsys):
    arguments, message = COMMANDS[name]
    before = sorted(here.rglob("*"))
    if arguments[:1] == ["run"] and "--out" not in arguments:
        arguments = [*arguments, "--out", "out"]
    try:
        status = cli.main(arguments)
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("jaxroute") and error.count("\n") == 1 and error.endswith("\n"), error
    assert sorted(here.rglob("*")) == before


def test_warnings_of_a_command_are_one_line_each(here, capsys, monkeypatch):
    monkeypatch.setattr(
        warnings, "showwarning", lambda *said: sys.stderr.write(warnings.formatwarning(*said[:4]))
    )  # pytest's keeps them.
    make(here, "gap.csv", WIDE + "3,,0.01,1,0.02\n")
    assert cli.main(["run", "combinatorial/table", "--data", "gap.csv", "--out", "out"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(
        "jaxroute: gap.csv: left out: 1 of 3 queries that lack an answer or a cost (of a 1; first: gap.csv, line 4"
    )
    assert second.startswith("jaxroute: size must be from 1 to 2")


@pytest.mark.parametrize(
    ("text", "value"), [(".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("[1, 2]", [1, 2]), ("true", True), ("text", "text")]
)
def test_values_of_set(text, value):
    assert changes_of([f"A.b={text}"]) == {"A": {"b": value}}


def test_a_reader_that_has_gone_is_no_error(here, capfd, monkeypatch):
    def gone(*_):
        raise BrokenPipeError

    monkeypatch.setattr(cli.list, "main", gone)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert cli.main(["list"]) == 141
    assert capfd.readouterr().err == ""
