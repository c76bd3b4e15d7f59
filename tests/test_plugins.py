"""Policies, problems and experiments of another package, found by its entry points."""

import json
import subprocess
import sys
import textwrap
import tomllib

import pytest

from jaxroute.core import plugins

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "jaxroute-example"
version = "1"
[project.entry-points."jaxroute.policies"]
"stochastic.Always" = "example_plugin:Always"
[project.entry-points."jaxroute.problems"]
example = "example_plugin"
[project.entry-points."jaxroute.experiments"]
"example.figure-1" = "example_plugin:FIGURE_1"
"""
MODULE = '''
"""A problem of another package."""
from flax import struct
from jaxroute.experiments import Case, Experiment
from jaxroute.problems import stochastic

@struct.dataclass
class Always:
    """Always chooses the first model."""
    model: int = 0
    def init(self, key, spec): return {}
    def act(self, key, state, obs, t): return self.model, {}
    def update(self, key, state, obs, action, feedback, t): return state

ENVIRONMENTS, POLICIES = (stochastic.bernoulli,), (Always,)
FIGURE_1 = Experiment(name="example/figure-1", title="An example", seeds=4,
    cases=(Case(environment=stochastic.bernoulli([0.9, 0.5]), policies={"Always": Always()}, horizon=20),))
'''


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Runs Python code beside an installed package with entry points."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "example_plugin.py").write_text(MODULE)
    info = folder / "jaxroute_example-1.dist-info"  # What an installer writes.
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jaxroute-example\nVersion: 1\n")
    groups = tomllib.loads(PROJECT)["project"]["entry-points"]
    lines = [f"[{group}]\n" + "\n".join(f"{n} = {v}" for n, v in points.items()) for group, points in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def run(code):
        code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{textwrap.dedent(code)}"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)

    return run


def test_they_are_listed(example):
    done = example("from jaxroute.cli import main; sys.exit(main(['list', '--json']))")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assert listed["problems"]["example"] == {
        "title": "A problem of another package.",
        "environments": ["bernoulli"],
        "policies": ["Always"],
    }
    assert "Always" in listed["problems"]["stochastic"]["policies"]
    assert listed["experiments"]["example/figure-1"]["title"] == "An example"


def test_an_experiment_runs(example):
    done = example("from jaxroute.cli import main; sys.exit(main(['run', 'example/figure-1', '--out', 'results']))")
    assert done.returncode == 0, done.stderr
    assert "Always" in done.stdout


def test_what_cannot_be_imported_is_named(example):
    done = example(
        "import example_plugin; del example_plugin.FIGURE_1\nfrom jaxroute.experiments import EXPERIMENTS; EXPERIMENTS['example/figure-1']"
    )
    assert (
        "entry point 'example.figure-1' of jaxroute-example in jaxroute.experiments: example_plugin:FIGURE_1 cannot be imported"
        in done.stderr
    )


def test_without_plugins_there_is_nothing():
    assert all(not plugins.plugins(group) for group in ("policies", "problems", "experiments"))
