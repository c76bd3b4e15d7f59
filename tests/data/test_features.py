"""Columns of unlike size, contexts, and the list of data sets."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from jaxroute.catalogue import catalogue
from jaxroute.data import main_directions
from jaxroute.data.features import Standardisation, _reduce, scales


def test_standardised_columns():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 4))
    constant = [np.full(500, 0.1), np.full(500, 1.7e9)]
    features = np.stack([1.7e9 + x[:, 0], 1e-200 * x[:, 1], 1e200 * x[:, 2], 5 + x[:, 3], *constant], 1)
    found = Standardisation.fit(features)
    values = found.of(features)
    assert values.dtype == np.float32 and found.mean.dtype == found.scale.dtype == np.float64
    np.testing.assert_allclose(values[:, :4], (x - x.mean(0)) / x.std(0), atol=2e-6)
    assert not values[:, 4:].any() and np.isinf(found.scale[4:]).all()
    np.testing.assert_allclose(found.mean[[0, 3]], features[:, [0, 3]].mean(0), rtol=1e-12)
    other = features[:1] * [1, 1, 1, 1, 2, 2]  # Another value of a constant column is as good as none.
    assert found.of(other)[0, 4:].tolist() == [0, 0]
    rounding = np.where(np.arange(500) % 2, 0.1 + 0.2, 0.3)[:, None]
    assert not Standardisation.fit(rounding).of(rounding).any()


def test_only_columns_of_unlike_size_are_scaled():
    x = np.random.default_rng(0).standard_normal((300, 3))
    assert scales(x * [1, 50, 1]).tolist() == scales(x * [1, 0, 1]).tolist() == scales(0 * x).tolist() == [1, 1, 1]
    np.testing.assert_allclose(scales(x * [1, 1e6, 0]), [x[:, 0].std(), 1e6 * x[:, 1].std(), np.inf])


def test_contexts_do_not_depend_on_the_unit_of_a_column():
    x = np.random.default_rng(0).standard_normal((300, 3)) * [1, 1e-3, 1] @ np.diag([1.0, 1.0, 2.0])
    before, after = main_directions(x, 2), main_directions(x * [1, 1, 1e6] + 7.0, 2)
    np.testing.assert_allclose(np.abs(before), np.abs(after), atol=1e-6)
    alike = np.random.default_rng(1).standard_normal((300, 2)) * [1, 10]
    assert np.corrcoef(main_directions(alike, 1)[:, 1], alike[:, 1])[0, 1] ** 2 > 0.99


def test_directions_of_rounding_errors_are_left_out():
    rng = np.random.default_rng(0)
    rows, columns = (np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in (60, 50))
    matrix = rows * [1.0, 1e-3, 1e-8] @ columns.T
    points, directions = _reduce(matrix)
    assert points.shape == (60, 2) and directions.shape == (2, 50)
    np.testing.assert_allclose(np.abs(directions @ columns[:, :2]), np.eye(2), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-6)


def test_the_list_of_data_sets():
    for name, data in catalogue()["data_sets"].items():
        assert name and data["kind"] in ("paper table", "public file", "generator")
        assert data["description"] and data["source"]


def test_import_does_not_need_pyarrow():
    hidden = "import sys; sys.modules['pyarrow'] = sys.modules['matplotlib'] = None;"  # As if they were not installed.
    code = f"{hidden} import jaxroute.data"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
