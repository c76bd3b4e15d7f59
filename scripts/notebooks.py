"""Maintains the notebooks: the same first cell in all, and outputs of one run.

    python scripts/notebooks.py                      # writes the first cell into every notebook
    python scripts/notebooks.py --execute queueing   # runs notebooks and stores their outputs

The address in the first cell is `Wheel` or `Repository` under `[project.urls]` in `pyproject.toml`: if one is present, a notebook on Colab
installs jaxroute by itself.
"""

import argparse
import base64
import datetime
import io
import os
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import nbformat
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
MAX_BYTES = 200_000  # Of a notebook with its pictures.

_FIRST_CELL = """\
# On Colab: write the address of a wheel of jaxroute, or "git+" and the address of its repository, between the quotes. For a GPU, choose
# Runtime > Change runtime type before running anything.
JAXROUTE = "{address}"

import os, subprocess, sys

if os.path.isfile("../jaxroute/__init__.py"):  # In a clone: the sources beside this notebook.
    sys.path.insert(0, os.path.abspath(".."))
elif JAXROUTE:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", JAXROUTE], check=True)
try:
    from jaxroute import installation
except ImportError:
    raise ImportError("jaxroute is not installed: write its address into JAXROUTE, above, and run this cell again") from None

# With an address, installs missing packages. A recent jax stays; an older one is replaced together with its GPU plugin.
installation.prepare("plot", "tune", install=bool(JAXROUTE))"""


def first_cell(pyproject: Path = ROOT / "pyproject.toml") -> str:
    """Returns the code of the first cell, the same in every notebook."""
    links = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"].get("urls", {})
    git = f"git+{links['Repository']}" if links.get("Repository") else ""
    return _FIRST_CELL.format(address=links.get("Wheel") or git)


def names() -> list[str]:
    """Returns the names of all notebooks."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def write(name: str) -> bool:
    """Writes the first cell into a notebook; returns whether it has changed."""
    notebook = _read(name)
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code")
    if cell.source == first_cell():
        return False
    cell.source = first_cell()
    _save(name, notebook)
    return True


def execute(name: str) -> list[tuple[int, float]]:
    """Runs a notebook on a CPU in its folder and stores it with its outputs; returns the cells that took ten seconds or more, with seconds."""
    import nbclient

    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    notebook = _read(name)
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    where = {"metadata": {"path": str(FOLDER)}}
    nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3", resources=where).execute()
    slow, marks = [], ("iopub.execute_input", "shell.execute_reply")
    for place, cell in enumerate(notebook.cells):
        times = cell.metadata.pop("execution", {})
        if times.keys() >= set(marks):
            begin, end = (datetime.datetime.fromisoformat(times[mark]) for mark in marks)
            if (end - begin).total_seconds() >= 10:
                slow.append((place, (end - begin).total_seconds()))
    notebook.metadata = {key: value for key, value in notebook.metadata.items() if key in ("kernelspec", "language_info")}
    tidy(notebook)
    _save(name, notebook)
    return slow


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Makes outputs small and reproducible: reduces colours of pictures, joins streams, and removes XLA's warnings about slow compilation."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        kept: list[nbformat.NotebookNode] = []
        for one in cell.outputs:
            if one.get("name") == "stderr" and "slow_operation_alarm" in one["text"]:
                continue
            if kept and one.output_type == kept[-1].output_type == "stream" and one.name == kept[-1].name:
                kept[-1]["text"] += one["text"]
            else:
                kept.append(one)
        cell.outputs = kept
    drawn = [one["data"] for cell in cells for one in cell.outputs if "image/png" in one.get("data", {})]
    pictures = [Image.open(io.BytesIO(base64.b64decode(data["image/png"]))) for data in drawn]
    if all(picture.mode == "P" for picture in pictures):  # They have few colours already.
        return
    for colours in (128, 64, 48, 40, 32, 24):
        for data, picture in zip(drawn, pictures, strict=True):
            few, file = picture.convert("RGB").quantize(colours, dither=Image.Dither.NONE), io.BytesIO()
            few.save(file, "PNG", optimize=True)
            data["image/png"] = base64.b64encode(file.getvalue()).decode()
        if len(nbformat.writes(notebook).encode()) < MAX_BYTES:
            return


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; all of them if none is given")
    parser.add_argument("--execute", action="store_true", help="run them, too, and store their outputs")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(names())):
        parser.error(f"NAME must be of {', '.join(names())}, got {', '.join(unknown)}")
    for name in options.names or names():
        print(f"{name}: {'first cell written' if write(name) else 'first cell as it was'}", flush=True)
        if options.execute:
            start = time.perf_counter()
            for place, seconds in execute(name):
                print(f"   cell {place}: {seconds:.0f} s")
            print(f"{name}: executed in {time.perf_counter() - start:.0f} s", flush=True)


def _read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def _save(name: str, notebook: nbformat.NotebookNode) -> None:
    nbformat.write(notebook, FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
