"""The benchmark's bookkeeping: tables of stored results, and the README's section that is made from them."""

import importlib
import json
from pathlib import Path

import pytest

from jaxroute import cli

ROOT = Path(__file__).resolve().parents[2]
performance = importlib.import_module("performance")


def report(speed, created="2026-01-01", device="1 x cpu", tool="jaxroute", **ratios):
    row = {"tool": tool, "policy": "UCB1", "horizon": 1000, "runs": 64, "decisions_per_s": speed, "compile_s": 0.5}
    return {
        "created": created,
        "device": device,
        "commit": "abc",
        "versions": {"jax": "0.10"},
        "problems": {"stochastic": {"rows": [row], "ratios": {"UCB1": ratios}}},
    }


def stored(folder, *reports):
    files = []
    for i, one in enumerate(reports):
        files.append(folder / f"{i}.json")
        files[-1].write_text(json.dumps(one))
    return [str(f) for f in files]


def test_two_results_are_compared(tmp_path, capsys):
    files = stored(tmp_path, report(2e6), report(3e6, device="1 x H200"))
    assert cli.main(["bench", "--compare", *files]) == 0
    shown = capsys.readouterr().out
    assert "1.50" in shown and "The devices differ." in shown and "1,000 x 64" in shown


@pytest.mark.parametrize("second", ["{}", "not JSON", None])
def test_what_is_no_result_is_refused(tmp_path, capsys, second):
    files = stored(tmp_path, report(2e6))
    other = tmp_path / "other"
    if second is not None:
        other.write_text(second)
    assert cli.main(["bench", "--compare", *files, str(other)]) == 2
    assert f"--compare must be given two JSON files of this benchmark, got {str(other)!r}" in capsys.readouterr().err


def test_results_without_a_common_row_are_refused(tmp_path, capsys):
    files = stored(tmp_path, report(2e6), report(2e6, tool="loop"))
    assert cli.main(["bench", "--compare", *files]) == 2
    assert "must have a row in common" in capsys.readouterr().err


def test_the_latest_of_each_row_is_shown(tmp_path):
    stored(tmp_path, report(3e6, "2026-02-01", loop=250.0), report(2e6, "2026-01-01"), report(5e7, device="1 x H200"))
    text = performance.section(tmp_path)
    assert "| stochastic | UCB1 | 1,000 x 64 | 3 M | 0.5 s | 250 x loop |" in text
    assert text.index("1 x H200:") < text.index("1 x cpu:") and "50 M" in text
    with pytest.raises(ValueError, match="folder must hold the JSON files"):
        performance.section(tmp_path / "nothing")


def test_the_readme_is_made_from_what_is_stored():
    readme = (ROOT / "README.md").read_text()
    assert performance.written(readme, performance.section()) == readme, "run scripts/performance.py"
    with pytest.raises(ValueError, match="README.md must have one"):
        performance.written("no section", "text")
