"""Kernels of all policies compile with every version of NVRTC and for every GPU that a user may have.

`NVRTC_FOLDERS` names folders, each with one version: `pip install --no-deps --target FOLDER nvidia-cuda-nvrtc==13.0.88`, for example.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import resources
from helpers import ROOT, assert_measured

from jaxroute.kernels import cuda
from jaxroute.problems import default_policies, problems

FOLDERS = os.environ.get("NVRTC_FOLDERS", "").split(os.pathsep)
TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90a")
ALL = {(problem, name) for problem, module in problems().items() for name in default_policies(module)}
SOME = {("stochastic", "UCB1"), ("service", "MessPlus"), ("staged", "StageRoute")}
# The driver reserves memory of a GPU for the stacks of all threads that it can hold: on an A100 with 40 GB, of which XLA leaves a quarter.
MOST_STACK = 10e9 / (108 * 2048)


def check(file):
    """All kernels in the file compile for all targets, and their stacks fit; returns their policies and the version of NVRTC."""
    report = json.loads(file.read_text())
    rows = report["rows"]
    pairs = {(row["problem"], row["policy"]) for row in rows}
    assert {(row["problem"], row["policy"], row["target"]) for row in rows} == {
        (*pair, t) for pair in pairs for t in TARGETS
    }
    assert not [row for row in rows if "reason" in row or row["stack_bytes"] > MOST_STACK]
    return pairs, report["nvrtc"]


@pytest.mark.skipif(FOLDERS == [""], reason="NVRTC_FOLDERS names no versions of NVRTC")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("pairs", [pytest.param(SOME, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.slow)])
def test_kernels_compile(folder, pairs, tmp_path):
    (library,) = Path(folder).resolve().rglob("libnvrtc.so.*")
    policies, out = sorted({name for _, name in pairs}), tmp_path / "rows.json"
    words = [sys.executable, ROOT / "scripts/resources.py", "--targets", *TARGETS, "--policies", *policies, "--out", out]
    done = subprocess.run(words, env=os.environ | {cuda.NVRTC_PATH: str(library)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert check(out)[0] == pairs


def test_all_kernels_compile_in_what_is_stored():
    measured, versions = zip(*map(check, sorted(resources.RESULTS.parent.glob("nvrtc-*.json"))), strict=True)
    assert versions == ("12.9", "13.0", "13.5")
    for pairs in measured:
        command = f"python scripts/resources.py --targets {' '.join(TARGETS)} --policies NAME --out FILE"
        assert_measured(pairs, f"{cuda.NVRTC_PATH}=.../libnvrtc.so.13 {command}, for each file")
