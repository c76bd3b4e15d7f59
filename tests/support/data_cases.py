"""A small table and comparisons that several tests of data share."""

import numpy as np
import pytest

from jaxroute.data import RoutingTable

SCORES = np.array([[1.0, 0.25], [0.5, 1.0], [0.0, 0.0]], np.float32)
COSTS = np.array([[1e-2, 1e-4], [2e-2, 2e-4], [3e-2, 3e-4]], np.float32)
MODELS = ("gpt-4-1106-preview", "WizardLM/WizardLM-13B-V1.2")
FEATURES = np.arange(12, dtype=np.float32).reshape(3, 4)
GROUPS = np.array([0, 1, 0], np.int32)
GROUP_NAMES = ("mbpp", "mmlu-law")


def full_table():
    return RoutingTable(SCORES, COSTS, MODELS, FEATURES, GROUPS, GROUP_NAMES)


def assert_same(table, expected):
    for name in ("scores", "costs", "features", "groups"):
        value, wanted = getattr(table, name), getattr(expected, name)
        assert (value is None) == (wanted is None), name
        if wanted is not None:
            assert value.dtype == wanted.dtype, name
            np.testing.assert_array_equal(value, wanted, err_msg=name)
    for name in ("models", "group_names", "cost_unit"):
        assert getattr(table, name) == getattr(expected, name), name


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def write(frame, path):
    """Writes a data frame as csv, parquet or pickle; returns the path."""
    if path.name.endswith((".csv", ".csv.gz")):
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    else:
        frame.to_pickle(path)
    return path
