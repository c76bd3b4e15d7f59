"""Runs a notebook's first cell as Colab would: in a new environment with a jax and a CUDA plugin.

    python scripts/colab.py                 # an older jax with its plugin, a recent jax, a recent jax with the plugin of an older one
    python scripts/colab.py --case older

Each case makes a virtual environment with a jax, the plugin's two packages (without NVIDIA's libraries) and a module `google.colab`, and runs
the first cell of the quickstart and a simulation in a kernel of that environment. The wheel of this tree is the address in the cell. Prints
versions before and after, the output of the cell, and the checks; the exit status is 1 if one fails.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import nbformat

from notebooks import FOLDER, ROOT, first_cell

NAMES = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt", "flax", "numpy")
OLDER, RECENT = "0.7.2", "0.9.2"


class Case(NamedTuple):
    """Case of a Colab environment: the packages that are installed before the first cell.

    Attributes:
      pins: packages with versions, as arguments of pip.
      plugin: version of the CUDA plugin, installed without its libraries.
      keeps: whether jax must stay the same.
    """

    pins: tuple[str, ...]
    plugin: str
    keeps: bool


CASES = {
    "older": Case((f"jax=={OLDER}", "flax==0.10.7"), OLDER, keeps=False),
    "recent": Case((f"jax=={RECENT}",), RECENT, keeps=True),
    "mixed": Case((f"jax=={RECENT}",), OLDER, keeps=True),
}
# Colab's kernels have this module loaded before the first cell.
BEFORE = """\
import sys, types
for name in ("google", "google.colab", "google.colab.output"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["google.colab"].output = sys.modules["google.colab.output"]  # jax looks for it."""
AFTER = """\
import warnings
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    import numpy as np
    import jaxroute as jr
    from jaxroute.problems import stochastic
    result = jr.simulate(stochastic.bernoulli([0.3, 0.7]), {"UCB1": stochastic.UCB1()}, horizon=50, seeds=4, progress=False)
import json
print(json.dumps({"file": jr.__file__, "warned": [str(one.message) for one in warned], "valid": bool(result["valid"].all()), "jax": sys.modules["jax"].__file__}))"""


def wheel(into: Path) -> Path:
    """Builds the wheel of this working tree in a folder; returns its path."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(into), str(ROOT)], check=True)
    return next(into.glob("jaxroute-*.whl"))


def run_case(name: str, folder: Path, address: str) -> bool:
    """Runs one case in `folder` and prints the result; returns whether all checks pass."""
    case, start = CASES[name], time.perf_counter()
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)

    def pip(*arguments: str) -> None:
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments], check=True)

    pip("ipykernel", *case.pins)
    pip("--no-deps", f"jax-cuda12-plugin=={case.plugin}", f"jax-cuda12-pjrt=={case.plugin}")
    before = _versions(python)
    print(f"{name}: made in {time.perf_counter() - start:.0f} s", flush=True)
    start = time.perf_counter()
    cell = first_cell().replace('JAXROUTE = ""', f'JAXROUTE = "{address}"', 1)
    first = next(one for one in nbformat.read(FOLDER / "quickstart.ipynb", as_version=4).cells if one.cell_type == "code")
    if first.source != first_cell() or address not in cell:
        raise ValueError("the quickstart must have the first cell that scripts/notebooks.py writes, with an empty address")
    output, after_cell = _run(python, folder, [BEFORE, cell, AFTER])
    after, seen = _versions(python), json.loads(after_cell)
    for package in NAMES:
        was, now = before.get(package, "-"), after.get(package, "-")
        print(f"   {package:<18} {was:<9} {'kept' if was == now else '-> ' + now}")
    print("   " + output.strip().replace("\n", "\n   "))
    checks = {
        "jax is the same": after["jax"] == before["jax"] and after["jaxlib"] == before["jaxlib"],
        "jax is new enough": tuple(map(int, after["jax"].split("."))) >= (0, 9),
        "the plugin is of jaxlib's version": {after["jax-cuda12-plugin"], after["jax-cuda12-pjrt"]} == {after["jaxlib"]},
        "jax does not complain about its plugin": not any("plugin" in text for text in seen["warned"]),
        "jaxroute is the installed one, and simulates": all(str(folder) in seen[k] for k in ("file", "jax"))
        and seen["valid"],
        "the cell explains how to get a GPU": "Runtime > Change runtime type" in output,
    }
    if not case.keeps:
        del checks["jax is the same"]
    for words, holds in checks.items():
        print(f"   {'ok' if holds else 'FAILED':<7} {words}")
    print(f"   first cell and a first simulation: {time.perf_counter() - start:.0f} s", flush=True)
    return all(checks.values())


def _versions(python: Path) -> dict[str, str]:
    command = [str(python), "-m", "pip", "list", "--format", "json"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {one["name"]: one["version"] for one in listed}


def _run(python: Path, folder: Path, cells: Sequence[str]) -> tuple[str, str]:
    """Runs cells in a Jupyter kernel of the interpreter `python`; returns the output of the last two cells."""
    import nbclient

    kernels = folder / "kernels" / "colab"
    kernels.mkdir(parents=True)
    command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernels / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "colab", "language": "python"}))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    content = folder / "content"
    content.mkdir()
    os.environ["JUPYTER_PATH"] = str(folder)
    os.environ.pop("PYTHONPATH", None)
    where = {"metadata": {"path": str(content)}}
    nbclient.NotebookClient(notebook, timeout=1800, kernel_name="colab", resources=where).execute()
    printed = [[o.get("text", "") for o in cell.outputs if o.get("name") == "stdout"] for cell in notebook.cells[1:]]
    return "".join(printed[0]), "".join(printed[1])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=list(CASES), help="only this one")
    options = parser.parse_args(arguments)
    passed = True
    for name in [options.case] if options.case else CASES:
        folder = Path(tempfile.mkdtemp())
        try:
            passed = run_case(name, folder, str(wheel(folder))) and passed
        finally:
            shutil.rmtree(folder)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
