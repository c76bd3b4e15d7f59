"""Files in the schema of the MESS+ authors."""

import numpy as np
import pytest
from data_cases import write
from pandas import DataFrame

from jaxroute.data import load_table, read_log


def load(path, benchmark=None):
    where = None if benchmark is None else {"benchmark_name": benchmark}
    return load_table(path, where=where, missing="drop", features="none").order_by_cost()


FILE = {
    "doc_id": [0, 1, 0, 1],
    "input_text": ["a, b", 'c "d"', "e\nf", "g"],
    "benchmark_name": ["sciq", "piqa", "sciq", "piqa"],
    "label_large": [1, 1, 1, 0],
    "acc_large": [1.0, 0.0, 1.0, 0.0],
    "energy_consumption_large": [2000.0, 1000.0, 2200.0, 1100.0],
    "inference_time_large": [0.5, 0.4, 0.5, 0.4],
    "label_small": [0, 1, 1, 0],
    "acc_small": [0.0, 1.0, 1.0, 1.0],
    "energy_consumption_small": [80.5, 40.0, 90.0, 45.5],
    "inference_time_small": [0.1, 0.1, 0.1, 0.1],
}


def without(*names):
    return {name: values for name, values in FILE.items() if name not in names}


@pytest.mark.parametrize("name", ["requests.csv", "requests.csv.gz", "requests.parquet", "requests.pkl"])
def test_load(name, tmp_path):
    table = load(write(DataFrame(FILE), tmp_path / name))
    assert table.models == ("small", "large")  # By mean energy.
    np.testing.assert_array_equal(table.scores, [[0, 1], [1, 1], [1, 1], [0, 0]])
    np.testing.assert_array_equal(table.costs, [[80.5, 2000], [40, 1000], [90, 2200], [45.5, 1100]])
    assert table.cost_unit == "J per request"
    assert table.group_names == ("piqa", "sciq")
    assert table.groups.tolist() == [1, 0, 1, 0]
    np.testing.assert_allclose(read_log(tmp_path / name).latency, [[0.5, 0.1], [0.4, 0.1], [0.5, 0.1], [0.4, 0.1]])


def test_load_one_benchmark(tmp_path):
    path = write(DataFrame(FILE), tmp_path / "requests.csv")
    table = load(path, "sciq")
    np.testing.assert_array_equal(table.costs, [[80.5, 2000], [90, 2200]])
    with pytest.raises(
        ValueError, match=r"where\['benchmark_name'\] is 'boolq', which no row of .*requests.csv has; it has 'sciq', 'piqa'"
    ):
        load(path, "boolq")


def test_load_without_labels_or_benchmarks(tmp_path):
    path = write(DataFrame(without("label_small", "label_large", "benchmark_name")), tmp_path / "requests.csv")
    table = load(path)
    np.testing.assert_array_equal(table.scores, [[0, 1], [1, 0], [1, 1], [1, 0]])  # acc
    assert table.groups is None
    with pytest.raises(ValueError, match="the column 'benchmark_name', which .*requests.csv lacks; it has 'doc_id', "):
        load(path, "sciq")


@pytest.mark.parametrize(
    ("absent", "message"),
    [
        (("energy_consumption_small", "energy_consumption_large"), "has no costs: give the cost of each model .*; models: large, small"),
        (("label_small",), "has scores of one model, 'large': .* It has 'doc_id'"),
        (("energy_consumption_small",), "has no cost of small: keep the others"),
        (("label_small", "label_large", "acc_small", "acc_large"), "It has 'doc_id', 'input_text', 'benchmark_name'"),
    ],
)  # fmt: skip
def test_a_file_that_lacks_something(absent, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load(write(DataFrame(without(*absent)), tmp_path / "requests.csv"))


def test_values_that_are_missing_or_impossible(tmp_path):
    path = tmp_path / "requests.csv"
    write(DataFrame(FILE | {"energy_consumption_small": [80.5, np.nan, 90.0, 45.5]}), path)
    with pytest.warns(UserWarning, match="dropped 1 of 4 queries"):
        assert load(path).groups.tolist() == [1, 1, 0]
    write(DataFrame(FILE | {"label_small": [0, 1, 2, 0]}), path)
    with pytest.raises(
        ValueError, match=r"model 'small' from 0 to 2.*\(.*requests.csv, line 5, column 'label_small' is 2\)"
    ):
        load(path)
