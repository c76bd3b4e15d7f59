"""Notebooks: they run from the first cell to the last, and are saved with clean outputs."""

import base64
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from notebooks import MAX_BYTES, first_cell

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NAMES = ("quickstart", "staged", "combinatorial", "service", "queueing", "cascade", "your_traffic", "decision_focused")
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
            if picture := output.get("data", {}).get("image/png"):
                Image.open(io.BytesIO(base64.b64decode("".join(picture)))).load()  # An error if it is damaged.
            texts = [output.get("text", []), *(v for k, v in output.get("data", {}).items() if k.startswith("text/"))]
            found = re.search(r"/(?:tmp|root|home|Users|work)/\S*", " ".join("".join(t) for t in texts))
            assert found is None, f"cell {cell['id']!r} shows the path {found.group()}"


@pytest.mark.fast
def test_all_notebooks_are_looked_at():
    assert sorted(NAMES) == sorted(path.stem for path in FOLDER.glob("*.ipynb"))


@pytest.mark.fast
@pytest.mark.parametrize("name", NAMES)
def test_has_the_common_first_cell_and_shrinks_in_one_place(name):
    cells = code_cells(saved(name))
    assert source(cells[0]) == first_cell(), "python scripts/notebooks.py writes it"
    assert sum("JAXROUTE_SMOKE" in source(cell) for cell in cells) == 1
    assert not any("pip install" in source(cell) for cell in cells[1:])


@pytest.mark.fast
@pytest.mark.parametrize("name", NAMES)
def test_says_what_one_learns_and_where_to_go_next(name):
    first, *_, last = (source(cell) for cell in saved(name)["cells"] if cell["cell_type"] == "markdown")
    assert first.startswith("# ") and "**What you learn:**" in first
    names = re.findall(r"`(\w+)\.ipynb`", last.partition("**Where to go next:**")[2])
    assert names and set(names) <= set(NAMES) - {name}


# The first cell, in an interpreter of its own: what it does before jax is there.


def first_cell_in(folder, *options, before="", address=""):
    """Runs the first cell; what it prints, and the last line of an error."""
    text = first_cell().replace('JAXROUTE = ""', f"JAXROUTE = {address!r}", 1)
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, *options, "-c", f"{before}\n{text}"], cwd=folder, env=kept, capture_output=True, text=True)
    return done.stdout, (done.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.fast
def test_first_cell_in_a_clone_takes_the_sources_beside_it():
    shown, error = first_cell_in(FOLDER, before="import atexit, sys\natexit.register(lambda: print(sys.modules['jaxroute'].__file__))")
    assert error == ""
    assert re.search(r"^jaxroute \S+, jax \S+: nothing had to be installed\.$", shown, re.MULTILINE)
    assert str(FOLDER.parent / "jaxroute") in shown


@pytest.mark.fast
def test_first_cell_where_jaxroute_is_installed(tmp_path):
    """Anywhere, with jaxroute on the path."""
    shown, error = first_cell_in(tmp_path, before=f"import sys\nsys.path.insert(0, {str(FOLDER.parent)!r})")
    assert error == "" and "nothing had to be installed" in shown


@pytest.mark.fast
def test_first_cell_where_nothing_is_installed_says_what_to_do(tmp_path):
    shown, error = first_cell_in(tmp_path, "-I", "-S")
    assert shown == "" and error.startswith("ImportError: jaxroute is not installed: write its address into JAXROUTE")


PIP = """
import subprocess, sys
def run(command, **options):
    print("CALLED", *command[1:])
    if "--no-deps" in command:
        sys.path.insert(0, {sources!r})
    return subprocess.CompletedProcess(command, 0, "", "")
subprocess.run = run
"""


@pytest.mark.fast
def test_first_cell_with_an_address_installs_that_alone_and_then_what_it_needs(tmp_path):
    """With a pip that only puts the sources in reach; `scripts/colab.py` tests the real one."""
    before = PIP.format(sources=str(FOLDER.parent))
    shown, error = first_cell_in(tmp_path, "-I", "-S", before=before, address="git+https://host.invalid/x")
    first, *_, last = [line for line in shown.splitlines() if "pip" in line]
    assert first == "CALLED -m pip install -q --no-deps git+https://host.invalid/x"
    assert last.startswith("CALLED -m pip install -q --upgrade jax>=0.9 ") and "matplotlib>=3.8" in last
    assert "jaxroute" not in last  # Nothing is installed by a name that is not registered.
    assert "jax is not installed" in error  # This pip installed nothing, and that is noticed.


@pytest.mark.fast
def test_the_address_is_the_link_that_is_filled_in(tmp_path):
    file = tmp_path / "pyproject.toml"
    texts = {
        "": "",
        'Repository = "https://host.invalid/r"': "git+https://host.invalid/r",
        'Repository = "https://host.invalid/r"\nWheel = "https://host.invalid/w.whl"': "https://host.invalid/w.whl",
    }
    for links, address in texts.items():
        file.write_text(f"[project]\nname = 'x'\n[project.urls]\n{links}\n")
        assert f'JAXROUTE = "{address}"\n' in first_cell(file)
