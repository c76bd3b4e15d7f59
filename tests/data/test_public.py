"""Loaders of public files: RouterBench, SPROUT, EmbedLLM, MESS+, pickles, embeddings, and columns of any schema."""

import base64
import contextlib
import csv
import io
import json
import os
import pickle
import sys
import warnings
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest
from data_cases import COSTS, FEATURES, GROUP_NAMES, GROUPS, MODELS, SCORES, assert_same, changed, full_table, write
from helpers import shared_data
from pyarrow import parquet

from jaxroute.data import RoutingTable, costs_by_size, load_columns, load_embeddings, load_table, papers, pickles, read_log


def load(path, **more):
    return load_table(path, missing="drop", features="none", **more)


def test_sprout_prices_equal_the_independent_transcription():
    with open(shared_data("sprout_models_prices.csv"), newline="") as lines:
        rows = list(csv.DictReader(lines))
    expected = {row["model"]: (float(row["usd_per_mtok_in"]), float(row["usd_per_mtok_out"])) for row in rows}
    assert expected == papers.SPROUT_PRICES


FIRST, SECOND = MODELS

EXPECTED = RoutingTable(SCORES, COSTS, MODELS, None, GROUPS, GROUP_NAMES)


def routerbench_frame():
    """Three queries and two models in the published schema; the groups of columns differ in order."""
    frame = pandas.DataFrame({"sample_id": ["mbpp.dev.1", "mmlu-law.val.2", "mbpp.dev.3"], "prompt": ["['p']"] * 3})
    frame["eval_name"] = ["mbpp", "mmlu-law", "mbpp"]
    frame[FIRST], frame[SECOND] = (pandas.Series([1, 0.5, 0], dtype=object), pandas.Series([0.25, 1, 0], dtype=object))
    frame[f"{SECOND}|model_response"] = frame[f"{FIRST}|model_response"] = ["r"] * 3
    frame[f"{SECOND}|total_cost"], frame[f"{FIRST}|total_cost"] = [1e-4, 2e-4, 3e-4], [1e-2, 2e-2, 3e-2]
    return frame.assign(oracle_model_to_route_to=[FIRST, SECOND, "no_model_correct"])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".pkl", ".pickle"])
def test_every_kind_of_file_gives_the_same_table(suffix, tmp_path):
    path = write(routerbench_frame(), tmp_path / f"bench{suffix}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(load(path), EXPECTED)
        assert_same(load_table(str(path), features="none"), EXPECTED)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".pkl"])
@pytest.mark.parametrize("bad", [None, "", "n/a"])
def test_queries_without_a_number_are_dropped(bad, suffix, tmp_path):
    frame = routerbench_frame()
    frame[SECOND] = frame[SECOND].astype(object)
    frame.loc[1, SECOND] = bad
    if suffix == ".parquet":  # Columns of parquet have one type.
        frame[SECOND] = frame[SECOND].map(lambda value: None if value is None else str(value))
    path = write(frame, tmp_path / f"bench{suffix}")
    place = rf"(line 3|row 1 \(from 0\)), column '{SECOND}'"
    with pytest.warns(UserWarning, match=rf"dropped 1 of 3 queries .*\(of {SECOND} 1; first: .*bench{suffix}, {place}"):
        table = load(path)
    assert_same(table, replace(EXPECTED.subset(rows=[0, 2]), group_names=("mbpp",)))
    assert (table.rows.tolist(), table.num_rows) == ([0, 2], 3)
    with pytest.raises(ValueError, match=rf"1 of 3 queries .* {place}\); in Python missing='drop' leaves them out"):
        load_table(path)
    frame.loc[1, SECOND] = "oops"
    with pytest.raises(ValueError, match=rf"bench{suffix}, {place} is 'oops', which is not a number"):
        load(write(frame, path))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".pkl"])
def test_columns_may_be_permuted_and_rows_labelled(suffix, tmp_path):
    frame = routerbench_frame()
    mixed = frame[frame.columns[[7, 3, 0, 9, 8, 2, 5, 4, 1, 6]]].set_index("sample_id")
    assert_same(load(write(mixed, tmp_path / f"bench{suffix}")), EXPECTED)
    late = frame.set_index(np.array([5, 7, 9])).iloc[1:]
    assert_same(load(write(late, tmp_path / f"late{suffix}")), EXPECTED.subset(rows=[1, 2]))


@pytest.mark.parametrize("dtype", ["category", "string", "object"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".pkl"])
def test_missing_labels_become_a_group(dtype, suffix, tmp_path):
    frame = routerbench_frame()
    frame["eval_name"] = frame["eval_name"].astype(object)
    frame.loc[2, "eval_name"] = None
    frame["eval_name"] = frame["eval_name"].astype(dtype)
    table = load(write(frame, tmp_path / f"bench{suffix}"))
    assert table.group_names == ("mbpp", "mmlu-law", "unknown")
    assert table.groups.tolist() == [0, 1, 2]


def test_missing_extras_name_the_install_command(monkeypatch, tmp_path):
    path = write(routerbench_frame(), tmp_path / "a.csv")
    parquet = write(routerbench_frame(), tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert_same(load(path), EXPECTED)  # Text needs nothing else.
    with pytest.raises(ImportError, match=r'this file needs pyarrow: pip install "jaxroute\[data\]"'):
        load_table(parquet)


# `routerbench_frame()` written by the pandas named, protocol 5: zlib, base 85.
OLD_PICKLES = json.loads((Path(__file__).parents[1] / "support" / "old_pickles.json").read_text("utf-8"))


@pytest.mark.parametrize("writer", OLD_PICKLES)
def test_pickles_of_older_pandas(writer, tmp_path, monkeypatch):
    if writer == "pandas 2.2.3":
        monkeypatch.setitem(sys.modules, "pyarrow", None)  # Not needed.
    content = zlib.decompress(base64.b85decode(OLD_PICKLES[writer]))
    assert b"pandas.core.internals.managers" in content
    path = tmp_path / "old.pkl"
    path.write_bytes(content)
    assert_same(load(path), EXPECTED)


@pytest.mark.parametrize("protocol", [4, 5])
def test_pickle_protocols_and_numpy_scalars(protocol, tmp_path):
    frame = routerbench_frame()
    for model in MODELS:  # Object columns of NumPy scalars, as arithmetic on scores leaves them.
        frame[model] = np.array([np.float64(value) for value in frame[model]] + [None], dtype=object)[:3]
    frame.to_pickle(tmp_path / "bench.pkl", protocol=protocol)
    assert_same(load(tmp_path / "bench.pkl"), EXPECTED)


def test_pickled_missing_values(tmp_path):
    frame = routerbench_frame()
    frame.loc[0, FIRST], frame.loc[1, SECOND] = pandas.NA, None
    frame["eval_name"] = np.array(["mbpp", "mmlu-law", pandas.NA], dtype=object)
    frame["eval_name"] = frame["eval_name"].astype(object)
    frame = pandas.concat([frame, frame.iloc[2:]], ignore_index=True)
    frame.loc[3, "sample_id"] = "mbpp.dev.4"
    with pytest.warns(UserWarning, match="dropped 2 of 4 queries"):
        table = load(write(frame, tmp_path / "bench.pkl"))
    assert table.scores.tolist() == [[0, 0]] * 2
    assert table.group_names[table.groups[0]] == "unknown"


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def stack_global(module, name, argument):
    """The protocol 4 pickle that calls `module.name(argument)`; the name may have dots."""
    stream = io.BytesIO(b"")
    stream.write(b"\x80\x04")
    for text in (module, name):
        stream.write(b"\x8c" + bytes([len(text)]) + text.encode())
    stream.write(b"\x93\x8c" + bytes([len(argument)]) + argument.encode() + b"\x85R.")
    return stream.getvalue()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_hostile_pickles_are_refused_before_anything_runs(protocol, tmp_path):
    marker = tmp_path / "executed"
    path = tmp_path / "bench.pkl"
    for function, argument, name in (
        (os.system, f"touch {marker}", r"(posix|nt)\.system"),
        (eval, f"open({str(marker)!r}, 'w')", r"(builtins|__builtin__)\.eval"),
        (exec, f"open({str(marker)!r}, 'w')", r"(builtins|__builtin__)\.exec"),
        (np.save, str(marker), r"numpy\.save"),
    ):
        # Inside a list, after harmless content, as an attacker would hide it.
        path.write_bytes(pickle.dumps([1.0, {"a": Calls(function, argument)}], protocol=protocol))
        refused = f"refused {name}, .* nothing was run" if protocol > 1 else "is not a .pkl file"
        with pytest.raises(pickles.UnsafePickleError if protocol > 1 else ValueError, match=f"bench.pkl:? {refused}"):
            load(path)
        assert not marker.exists()


OUTSIDE = (
    "os.system builtins.setattr pandas.eval pandas.read_pickle pandas.DataFrame.to_csv pandas.io.common.os.system numpy.load "
    "numpy.ndarray.tofile pyarrow.OSFile os.pandas.DataFrame"
)


@pytest.mark.parametrize("name", OUTSIDE.split())
def test_names_outside_the_list_are_refused(name, tmp_path):
    path = tmp_path / "bench.pkl"
    parts = name.split(".")
    length = {"pandas.io.common.os.system": 3, "os.pandas.DataFrame": 2}.get(name, 1)  # Parts of the module.
    path.write_bytes(stack_global(".".join(parts[:length]), ".".join(parts[length:]), str(tmp_path / "executed")))
    with pytest.raises(pickles.UnsafePickleError, match=f"refused {name},"):
        load(path)
    assert not (tmp_path / "executed").exists()
    assert issubclass(pickles.UnsafePickleError, ValueError)


def test_allowed_names_do_not_reach_the_real_ones(tmp_path):
    # BUILD with a slot state sets attributes on whatever is below it on the stack, here on allowed names.
    path = tmp_path / "bench.pkl"
    for module, name in ((b"pandas", b"Index"), (b"builtins", b"slice"), (b"builtins", b"getattr"), (b"numpy", b"dtype")):
        path.write_bytes(b"\x80\x04c" + module + b"\n" + name + b"\nN}\x8c\x06forged\x8c\x01xs\x86b.")
        with pytest.raises(ValueError, match="not a pickled data frame"):
            load(path)
    getter = pickles._RecordUnpickler(io.BytesIO()).find_class("builtins", "getattr")
    assert not any(hasattr(target, "forged") for target in (pandas.Index, slice, np.dtype, getter))
    path.write_bytes(stack_global("builtins", "getattr", str(tmp_path)))  # A name that is kept, and not looked up.
    with pytest.raises(ValueError, match="not a pickled data frame"):
        load(path)


def test_damaged_pickles_raise_value_errors(tmp_path):
    content = zlib.decompress(base64.b85decode(OLD_PICKLES["pandas 2.2.3"]))
    path = tmp_path / "bench.pkl"
    others = [pickle.dumps(value) for value in ({"a": 1}, [], None, 3.0)]
    flipped = [content[:i] + bytes([content[i] ^ 0x41]) + content[i + 1 :] for i in range(0, len(content), 3)]
    for damaged in (*others, b"", b"no pickle", content[: len(content) // 2], *flipped):
        path.write_bytes(damaged)
        with warnings.catch_warnings(), contextlib.suppress(ValueError):  # Some flips only change a label or a number.
            warnings.simplefilter("ignore")
            load(path)
    path.write_bytes(others[0])
    with pytest.raises(ValueError, match=r"bench.pkl is a pickled dict of a, and not a data frame: save it as csv"):
        load(path)


@pytest.mark.parametrize("names", [("scores", "costs"), ("score", "cost"), ("perf", "cost"), ("correct", "cost")])
def test_npz_names(names, tmp_path):
    path = tmp_path / "table.npz"
    groups = {"eval_name_idx": GROUPS.astype(np.int16), "eval_names": np.array(GROUP_NAMES)}
    np.savez(path, **dict(zip(names, (SCORES, COSTS), strict=True)), models=np.array(MODELS), feat=FEATURES, **groups)
    assert_same(load_table(path), full_table())


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_costs_of_the_caller_also_select_models(suffix, tmp_path):
    path = tmp_path / f"table{suffix}"
    if suffix == ".npz":
        np.savez(path, correct=SCORES, models=np.array(MODELS))
    else:
        write(routerbench_frame()[["prompt", *MODELS]], path)
    table = load_table(path, costs={SECOND: 0.5, FIRST: 2.0}, cost_unit="GB", features="none")
    assert_same(table, RoutingTable(SCORES, [[2.0, 0.5]] * 3, MODELS, cost_unit="GB"))
    with pytest.raises(ValueError, match="costs must map models to numbers"):
        load_table(path, costs={})


def sprout_file(path, rows):
    """Writes a SPROUT-like file of rows (dataset, cell of model "m.1", cell of "m2"); a cell is (score, in, out)."""
    fields = ("score", "num_input_tokens", "num_output_tokens", "response")

    def cell(values):
        return None if values is None else dict(zip(fields, (*values, "text"), strict=True))

    columns = {"key": list(range(len(rows))), "dataset": [row[0] for row in rows]}  # Keys begin again in every part.
    columns["prompt"] = [f"{path.stem} {row}" for row in range(len(rows))]
    columns |= {"m.1": [cell(row[1]) for row in rows], "m2": [cell(row[2]) for row in rows]}
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_sprout(tmp_path):
    prices = {"m.1": (1.0, 10.0), "m2": (0.5, 0.5)}
    rows = [("math", (1.0, 100, 20), (0.5, 100, 40)), ("code", (0.0, 200, 10), (1.0, 200, 30))]
    sprout_file(tmp_path / "train-00000-of-00002.parquet", rows)
    more = [("math", None, (1.0, 1, 1)), ("math", (1.0, 50, 5), (None, 50, 5)), ("math", (0.25, 10, 0), (0.0, 10, 2))]
    sprout_file(tmp_path / "train-00001-of-00002.parquet", more)
    with pytest.warns(UserWarning, match="dropped 2 of 5 queries"):
        table = load(tmp_path, prices=prices)
    # USD: (100 * 1 + 20 * 10) / 1e6 = 3e-4 and (100 + 40) * 0.5 / 1e6 = 7e-5, and so on.
    costs = [[3e-4, 7e-5], [3e-4, 1.15e-4], [1e-5, 6e-6]]
    scores = [[1, 0.5], [0, 1], [0.25, 0]]
    assert_same(table, RoutingTable(scores, costs, ("m.1", "m2"), None, [1, 0, 1], ("code", "math")))
    one = load(tmp_path / "train-00000-of-00002.parquet", prices=prices)
    assert_same(one, table.subset(rows=[0, 1]))
    assert read_log(tmp_path, prices=prices, missing="zero").table.scores[2].tolist() == [0, 1]


def test_sprout_has_a_price_list(tmp_path):
    """USD per million tokens of the published models, which the caller may replace, and must complete for others."""
    cell = {"score": 1.0, "num_input_tokens": 1_000_000, "num_output_tokens": 0, "response": "x"}
    large, small = "openai-gpt-4o", "openai-gpt-4o-mini"
    data = {"dataset": ["m"] * 3, "prompt": ["who is it", None, "what is it"]}
    data |= {large: [cell, None, {**cell, "score": 0.5}], small: [cell] * 3}
    path = tmp_path / "train-0.parquet"
    parquet.write_table(pyarrow.table(data), path)
    with pytest.warns(UserWarning, match="dropped 1 of 3"):
        table = load(path)
    assert (table.scores.tolist(), table.costs.tolist()) == ([[1, 1], [0.5, 1]], [[2.5, np.float32(0.15)]] * 2)
    assert read_log(path, prices={large: (5.0, 5.0)}).table.costs[0, 0] == 5.0
    parquet.write_table(pyarrow.table({**data, "new-model": [cell] * 3}), path)
    with pytest.raises(ValueError, match="has models without a price, new-model: .*--price new-model=IN:OUT"):
        read_log(path)
    path = sprout_file(tmp_path / "test.parquet", [("math", (1.0, 1, 1), (1.0, 1, 1))])
    with pytest.raises(ValueError, match=r"test.parquet has models without a price, m.1, m2: give it in USD per million"):
        load(path)


def embedllm_file(path, rows):
    with open(path, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["prompt_id", "model_id", "category_id", "label", "prompt", "model_name", "category"])
        lines.writerows([prompt, 0, 0, label, "p", model, category] for prompt, model, label, category in rows)
    return path


def test_embedllm(tmp_path):
    first = [(7, "b", 1, "law"), (7, "a", 0, "law"), (3, "a", 0, "art"), (3, "b", 0, "art")]
    # A second answer, correct: the pair counts as correct. Query 9 was never answered by b, and is dropped.
    path = embedllm_file(tmp_path / "train.csv", [*first, (3, "a", 1, "art"), (9, "a", 1, "law")])
    with pytest.warns(UserWarning, match="dropped 1 of 3 queries"):
        table = load(path, costs={"b": 13.0, "a": 7.0}, models=["b", "a"], cost_unit="1e9 parameters")
    expected = RoutingTable([[0, 1], [1, 0]], [[13, 7]] * 2, ("b", "a"), None, [0, 1], ("art", "law"), "1e9 parameters")
    assert_same(table, expected)
    log = read_log(path, features="none")
    assert log.table.costs[0].tolist() == list(costs_by_size(log.table.models).values())
    assert any("the models' sizes in 1e9 parameters" in line for line in log.read)


SIZES = {
    "01-ai/Yi-34B-Chat": 34, "mistralai/Mixtral-8x7B-Instruct-v0.1": 56, "8x22b": 176, "Qwen/Qwen1.5-0.5B-Chat": 0.5,
    "DeepSeek-R1-Distill-Qwen-1.5B": 1.5, "facebook/opt-350m": 0.35, "bigscience/bloomz-7b1-mt": 7.1, "some-13Bv2": 13,
    "lmsys/vicuna-13b-v1.5-16k": 13, "neural-chat-7b-v3-1": 7, "llama_2_70b_chat": 70, "cloudyu/Mixtral_11Bx2_MoE_19B": 19,
    "TinyLlama-1.1B-intermediate-step-1431k-3T": 1.1, "model-4bit-33b": 33, "microsoft/phi-2": 9, "gpt-4-1106-preview": 9, "opus-v0b": 9,
}  # fmt: skip


def test_costs_by_size():
    assert costs_by_size(SIZES, default=9.0) == pytest.approx(SIZES)
    with pytest.raises(ValueError, match="default must be above 0, got 0"):
        costs_by_size(SIZES, default=0)


def test_embeddings(tmp_path):
    np.save(tmp_path / "e.npy", FEATURES.astype(np.float16))
    np.savez(tmp_path / "e.npz", anything=FEATURES)
    np.savez(tmp_path / "f.npz", other=COSTS, embeddings=FEATURES)
    for name in ("e.npy", "e.npz", "f.npz"):
        loaded = load_embeddings(tmp_path / name, num_queries=3)
        assert loaded.dtype == np.float32
        np.testing.assert_array_equal(loaded, FEATURES)
    assert full_table().with_features(loaded).features.shape == (3, 4)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": FEATURES, "b": COSTS}, "must have one array, or one called embeddings; it has a, b"),
        ({"a": np.array([["x"]])}, r"dtype <U1; expected \[Q, d\] numbers"),
        ({"a": FEATURES[:2]}, "has 2 rows; expected 3, one per query"),
        ({"a": changed(FEATURES, (2, 1), np.nan)}, r"is nan at \[2, 1\]; embeddings must be finite"),
        ({"a": FEATURES.astype(float) * 1e300}, r"is inf at \[0, 1\]"),
        ({"a": FEATURES.astype(object)}, "the array 'a' holds Python objects, which are not read"),
    ],
)
def test_embeddings_that_are_none(tmp_path, arrays, message):
    path = tmp_path / "e.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=message):
        load_embeddings(path, num_queries=3)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04broken", b"\x93NUMPY\x01"])
def test_embeddings_in_another_format(tmp_path, content):
    path = tmp_path / "e.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not an npy or npz file of plain arrays"):
        load_embeddings(path)


def test_columns_of_any_schema(tmp_path):
    (tmp_path / "t.csv").write_text("kind,x,y\na,1,2.5\n,n/a,3\na,4,\n")
    read = load_columns(tmp_path / "t.csv", ["x", "y"], ["kind"])
    np.testing.assert_array_equal(read["x"], [1.0, np.nan, 4.0])
    np.testing.assert_array_equal(read["y"], [2.5, 3.0, np.nan])
    assert read["kind"].tolist() == ["a", "unknown", "a"]
    with pytest.raises(ValueError, match="lacks the column z"):
        load_columns(tmp_path / "t.csv", ["z"])
    with pytest.raises(ValueError, match="t.csv, line 2, column 'kind' is 'a', which is not a number"):
        load_columns(tmp_path / "t.csv", ["kind"])


# Files in the schema of the MESS+ authors.


def load_messplus(path, benchmark=None):
    where = None if benchmark is None else {"benchmark_name": benchmark}
    return load(path, where=where).order_by_cost()


MESSPLUS = {
    "doc_id": [0, 1, 0, 1], "input_text": ["a, b", 'c "d"', "e\nf", "g"], "benchmark_name": ["sciq", "piqa", "sciq", "piqa"],
    "label_large": [1, 1, 1, 0], "acc_large": [1.0, 0.0, 1.0, 0.0], "energy_consumption_large": [2000.0, 1000.0, 2200.0, 1100.0],
    "inference_time_large": [0.5, 0.4, 0.5, 0.4], "label_small": [0, 1, 1, 0], "acc_small": [0.0, 1.0, 1.0, 1.0],
    "energy_consumption_small": [80.5, 40.0, 90.0, 45.5], "inference_time_small": [0.1, 0.1, 0.1, 0.1],
}  # fmt: skip


def messplus_file(path, *absent, **changed):
    frame = pandas.DataFrame(MESSPLUS | changed)
    return write(frame.drop(columns=list(absent)), path)


@pytest.mark.parametrize("name", ["requests.csv", "requests.csv.gz", "requests.parquet", "requests.pkl"])
def test_messplus(name, tmp_path):
    path = messplus_file(tmp_path / name)
    table = load_messplus(path)
    assert table.models == ("small", "large")  # By mean energy.
    np.testing.assert_array_equal(table.scores, [[0, 1], [1, 1], [1, 1], [0, 0]])
    np.testing.assert_array_equal(table.costs, [[80.5, 2000], [40, 1000], [90, 2200], [45.5, 1100]])
    assert (table.cost_unit, table.group_names, table.groups.tolist()) == ("J per request", ("piqa", "sciq"), [1, 0, 1, 0])
    np.testing.assert_allclose(read_log(path).latency, [[0.5, 0.1], [0.4, 0.1], [0.5, 0.1], [0.4, 0.1]])
    np.testing.assert_array_equal(load_messplus(path, "sciq").costs, [[80.5, 2000], [90, 2200]])
    with pytest.raises(ValueError, match=r"where\['benchmark_name'\] is 'boolq', which no row .* it has 'sciq', 'piqa'"):
        load_messplus(path, "boolq")


def test_messplus_without_labels_or_benchmarks(tmp_path):
    path = messplus_file(tmp_path / "requests.csv", "label_small", "label_large", "benchmark_name")
    table = load_messplus(path)
    np.testing.assert_array_equal(table.scores, [[0, 1], [1, 0], [1, 1], [1, 0]])  # The columns acc.
    assert table.groups is None
    with pytest.raises(ValueError, match="the column 'benchmark_name', which .*requests.csv lacks; it has 'doc_id', "):
        load_messplus(path, "sciq")


@pytest.mark.parametrize(
    ("absent", "changed", "message"),
    [
        (("energy_consumption_small", "energy_consumption_large"), {}, "has no costs: give the cost of each model .*; models: large, small"),
        (("label_small",), {}, "has scores of one model, 'large': .* It has 'doc_id'"),
        (("energy_consumption_small",), {}, "has no cost of small: keep the others"),
        (("label_small", "label_large", "acc_small", "acc_large"), {}, "It has 'doc_id', 'input_text', 'benchmark_name'"),
        ((), {"label_small": [0, 1, 2, 0]}, r"model 'small' from 0 to 2.*\(.*requests.csv, line 5, column 'label_small' is 2\)"),
    ],
)  # fmt: skip
def test_messplus_that_lacks_something(absent, changed, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_messplus(messplus_file(tmp_path / "requests.csv", *absent, **changed))
