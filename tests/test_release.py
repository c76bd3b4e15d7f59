"""A release: what is built has all that it needs, and says the same of itself everywhere."""

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import jaxroute as jr

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def newest():
    """Version and date of the first entry of the changelog."""
    found = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    return found.groups()


@pytest.mark.fast
def test_version_and_date_are_the_same_everywhere():
    citation = dict(
        re.findall(r'^(version|date-released|license): "?([^"\n]+)"?$', (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    )
    assert (citation["version"], citation["date-released"]) == newest()
    assert citation["version"] == jr.__version__
    assert citation["license"] == PROJECT["license"]


@pytest.mark.fast
def test_links_are_filled_in_or_absent_and_never_made_up():
    for name, url in PROJECT.get("urls", {}).items():
        assert name in ("Repository", "Documentation", "Issues", "Changelog", "Wheel")
        assert re.fullmatch(r"https://[\w.-]+/\S+", url) and "example" not in url, url


@pytest.mark.fast
def test_the_newest_entry_of_the_changelog_says_first_what_breaks():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^### (.*)$", text, re.MULTILINE).group(1) == "What breaks"


def run(*command, at, **options):
    """What a command prints, in a folder, without this tree on its path."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "JAXROUTE_SMOKE")} | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([str(c) for c in command], cwd=at, env=kept, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source distribution, the wheel made of it, and the wheel made of this tree."""
    pytest.importorskip("build", reason='building needs build: pip install "jaxroute[test]"')
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT, at=folder)  # The wheel is made of the sdist.
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder / "direct", ROOT, at=folder)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    (direct,) = (folder / "direct").glob("*.whl")
    return sdist, wheel, direct


def tracked(*places):
    listed = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).is_file()}


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built):
    inside = {name for name in contents(built[1]) if ".dist-info/" not in name}
    assert inside == tracked("jaxroute")
    assert {
        "jaxroute/py.typed",
        "jaxroute/catalogue.json",
        *(f"jaxroute/comparison/page/page.{kind}" for kind in ("css", "html", "js")),
        "jaxroute/kernels/prelude.h",
    } < inside


@pytest.mark.slow
def test_the_source_distribution_has_tests_notebooks_and_scripts_and_makes_the_same_wheel(built):
    sdist, wheel, direct = built
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = tracked("jaxroute", "tests", "notebooks", "scripts", "*.md", "*.cff", "LICENSE", "pyproject.toml")
    assert {name for name in wanted if not name.startswith("scripts/bench_results/")} <= inside
    assert sdist.stat().st_size < (4 + 3) * 2**20  # The gallery's pictures may take 3 (tests/scripts/test_gallery.py).
    assert contents(wheel) == contents(direct)


@pytest.mark.slow
def test_metadata_of_the_wheel(built):
    with zipfile.ZipFile(built[1]) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("METADATA"))
        told = importlib.metadata.PathDistribution(zipfile.Path(archive, name.removesuffix("METADATA"))).metadata
    assert told["Version"] == jr.__version__
    assert told["License-Expression"] == "Apache-2.0" and told.get_all("License-File") == ["LICENSE"]
    assert "Typing :: Typed" in told.get_all("Classifier")
    assert (told.get_all("Project-URL") or []) == [f"{k}, {v}" for k, v in PROJECT.get("urls", {}).items()]


IMPORT_ALL = """
import importlib, json, pkgutil, jaxroute
names = [m.name for m in pkgutil.walk_packages(jaxroute.__path__, "jaxroute.") if not m.name.endswith("__main__")]
lacking = {}
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        lacking[name] = error.name
for name in jaxroute.__all__:
    getattr(jaxroute, name)
print(json.dumps([len(names), lacking, jaxroute.__file__]))
"""
USE_DATA = """
import jax, numpy as np, jaxroute as jr
from jaxroute.problems import stochastic
rng = np.random.default_rng(0)
with open("log.csv", "w") as file:
    file.write("query_id,model,score,cost\\n")
    for query in range(60):
        for model, right, cost in (("small", 0.5, 1.0), ("large", 0.9, 9.0)):
            file.write(f"{query},{model},{int(rng.random() < right)},{cost}\\n")
jr.simulate(stochastic.bernoulli([0.4, 0.6]), {"UCB1": stochastic.UCB1()}, horizon=20, seeds=4, progress=False, execution=jr.Execution("kernel"))
"""


@pytest.mark.slow
def test_a_bare_environment_lists_runs_and_compares(built, tmp_path):
    """Without matplotlib, without the sources, in an empty folder."""
    run(sys.executable, "-m", "venv", tmp_path / "venv", at=tmp_path)
    programs = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python, command, empty = programs / "python", programs / "jaxroute", tmp_path / "empty"
    empty.mkdir()
    run(python, "-m", "pip", "install", "-q", built[1], at=empty)
    assert run(command, "--version", at=empty) == f"jaxroute {jr.__version__}\n"
    assert json.loads(run(command, "list", "--json", at=empty))
    assert "staged/figure-2" in run(command, "list", at=empty)
    number, lacking, file = json.loads(run(python, "-c", IMPORT_ALL, at=empty))
    assert lacking == {"jaxroute.comparison.page.pictures": "matplotlib"}
    assert number == len(tracked("jaxroute/**.py", "jaxroute/*.py")) - 2  # All but the package itself and __main__.
    assert str(tmp_path) in file
    shown = run(command, "run", "stochastic/regret", "--smoke", "--no-figures", "--out", "results", at=empty)
    assert "BetaThompson" in shown
    assert (empty / "results" / "summary.json").is_file()
    run(python, "-c", USE_DATA, at=empty)  # A kernel needs prelude.h.
    compare = (command, "compare", "log.csv", "--target-quality", "0.7", "--out", "report", "--orders", "4")
    run(*compare, at=empty)
    assert {"summary.json", "points.csv"} <= {file.name for file in (empty / "report").iterdir()}
    assert not (empty / "report" / "index.html").exists()
    run(python, "-m", "pip", "install", "-q", f"{built[1]}[plot]", at=empty)
    run(*compare, at=empty)
    assert "<style>" in (empty / "report" / "index.html").read_text(encoding="utf-8")  # The page needs page.css and page.js.
    assert "ok" in run(command, "doctor", at=empty)
