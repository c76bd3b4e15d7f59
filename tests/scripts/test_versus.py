"""What a comparison of two checkouts says of a row."""

import importlib

import pytest

versus = importlib.import_module("versus")
ROW = {
    "decisions_per_cpu_s": [10.0, 20.0],
    "ratio": 2.0,
    "peak_bytes": [2**30, 2**29],
    "mean": [1.0, 1.0],
    "stderr": [0.1, 0.1],
    "equal_bits": True,
}


@pytest.mark.parametrize("valid", [True, False])
def test_invalid_runs_are_said_to_be(valid):
    text = versus.line("queueing/ACQB", ROW | {"valid": valid})
    assert "2.00 x" in text and "1,024    512 MiB" in text and "equal bits" in text
    assert ("INVALID" in text) is not valid
