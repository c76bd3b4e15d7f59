"""Notebooks: they run from the first cell to the last, and are saved with clean outputs."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NAMES = ("quickstart", "staged", "combinatorial", "service", "queueing", "cascade", "your_traffic", "decision_focused")
MAX_BYTES = 200_000
SECONDS_PER_CELL = 300


def saved(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def figures(cell):
    return sum("image/png" in output.get("data", {}) for output in cell["outputs"])


# Long ones; what they show is also in the tests of their problems.
LONG = ("staged", "combinatorial", "service", "queueing", "cascade", "your_traffic", "decision_focused")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in NAMES])
def test_runs_at_smoke_size(name, tmp_path, monkeypatch):
    """Every cell runs, and draws as many figures as the saved notebook shows."""
    for module in ("matplotlib", "ipykernel"):
        pytest.importorskip(module, reason=f'notebooks need {module}: pip install "jaxroute[notebooks]"')
    nbclient = pytest.importorskip("nbclient", reason='running notebooks needs nbclient: pip install "jaxroute[notebooks]"')
    nbformat = pytest.importorskip("nbformat", reason="nbclient needs nbformat")
    monkeypatch.setenv("JAXROUTE_SMOKE", "1")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")  # Compiling is all the time at this size.
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    for cell in code_cells(notebook):
        cell["outputs"] = []
    nbclient.NotebookClient(
        notebook, timeout=SECONDS_PER_CELL, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    for before, after in zip(code_cells(saved(name)), code_cells(notebook), strict=True):
        assert figures(after) == figures(before), f"cell {after['id']!r} draws {figures(after)} figures"


@pytest.mark.parametrize("name", NAMES)
def test_saved_outputs_are_clean(name):
    """Outputs of one undisturbed run at full size: no warnings, errors or paths of the machine that made them."""
    path = FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < MAX_BYTES, f"{path.name} has {path.stat().st_size:,} bytes: draw smaller figures"
    notebook = saved(name)
    assert set(notebook["metadata"]) <= {"kernelspec", "language_info"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run the whole notebook, then save"
    assert sum(figures(cell) for cell in cells) >= 3
    for cell in cells:
        assert cell["metadata"] == {}, f"cell {cell['id']!r} has metadata {cell['metadata']}"
        for output in cell["outputs"]:
            assert output["output_type"] != "error", f"cell {cell['id']!r} failed"
            assert output.get("name") != "stderr", f"cell {cell['id']!r} writes to stderr: {''.join(output['text'])[:200]}"
            texts = [output.get("text", []), *(v for k, v in output.get("data", {}).items() if k.startswith("text/"))]
            found = re.search(r"/(?:tmp|root|home|Users|work)/\S*", " ".join("".join(t) for t in texts))
            assert found is None, f"cell {cell['id']!r} shows the path {found.group()}"


@pytest.mark.parametrize("name", NAMES)
def test_installs_on_colab_and_shrinks_in_one_place(name):
    cells = code_cells(saved(name))
    assert '"google.colab" in sys.modules' in source(cells[0])
    assert '%pip install -q "jaxroute[plot]"' in source(cells[0])
    assert sum("JAXROUTE_SMOKE" in source(cell) for cell in cells) == 1
