"""The list of data sets."""

import os
import subprocess
import sys
from pathlib import Path

from jaxroute.data import (
    DATASETS,
    ModelTable,
    PriceTable,
    RoutingTable,
)


def test_the_list_of_data_sets():
    assert len({dataset.name for dataset in DATASETS}) == len(DATASETS)
    for dataset in DATASETS:
        assert dataset.kind in ("paper table", "public file", "generator")
        assert dataset.description
        assert dataset.source
        if dataset.kind == "paper table":
            assert isinstance(dataset.loader(), (ModelTable, PriceTable, dict))
        if dataset.kind == "generator":
            assert all(isinstance(table, RoutingTable) for table in dataset.loader())


def test_import_does_not_need_pyarrow():
    code = (
        "import sys; sys.modules['pyarrow'] = sys.modules['matplotlib'] = None;"  # As if they were not installed.
        "import jaxroute.data.table, jaxroute.data.papers, jaxroute.data.public; print('fine')"
    )
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "fine"
