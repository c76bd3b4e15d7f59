"""The list of data sets."""

import os
import subprocess
import sys
from pathlib import Path

from jaxroute.catalogue import catalogue


def test_the_list_of_data_sets():
    for name, data in catalogue()["data_sets"].items():
        assert name and data["kind"] in ("paper table", "public file", "generator")
        assert data["description"] and data["source"]


def test_import_does_not_need_pyarrow():
    code = (
        "import sys; sys.modules['pyarrow'] = sys.modules['matplotlib'] = None;"  # As if they were not installed.
        "import jaxroute.data.table, jaxroute.data.papers, jaxroute.data.logs.log; print('fine')"
    )
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "fine"
