"""Several processes that share the work: the recipes of the page "Many machines", as they stand there, at a smaller size."""

import contextlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from helpers import ROOT

import jaxroute as jr
from jaxroute.cli.store import rows_of
from jaxroute.engine import execution
from jaxroute.engine.execution import share_here
from jaxroute.engine.schedule import parts_of
from jaxroute.problems import stochastic
from jaxroute.store import results

PAGE = (ROOT / "notebooks/site/howto/many_machines.md").read_text()
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# What is made smaller, by module that a recipe needs.
RECIPES = {
    "submitit": {"AutoExecutor": "LocalExecutor", "range(8), [8] * 8": "range(2), [2] * 2"},
    "distributed": {"LocalCluster()": "LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)"},
    "ray": {"ray.init()": "ray.init(num_cpus=2, include_dashboard=False)", "range(8)": "range(2)"},
}
BLOCKS = {"submitit": "submitit", "distributed": "Dask", "ray": "Ray"}


def block(heading):
    """The first block of code below a heading of the page."""
    return re.search(rf"^## {heading}\n.*?```\w+\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)[1]


def same(one, other):
    """Fails unless two results are equal, bit for bit."""
    xr.testing.assert_identical(one.drop_attrs(), other.drop_attrs())


@pytest.mark.slow
@pytest.mark.parametrize("module", RECIPES)
def test_a_recipe_gives_the_bits_of_one_process(module, tmp_path):
    pytest.importorskip(module, reason='needs pip install "jaxroute[cluster]"')
    text = block(BLOCKS[module])
    for large, small in {**RECIPES[module], "100_000": "512"}.items():
        assert large in text
        text = text.replace(large, small)
    (tmp_path / "recipe.py").write_text(text)
    subprocess.run([sys.executable, "recipe.py"], cwd=tmp_path, env=ENV, check=True, timeout=300)
    (folder,) = (store.parent for store in tmp_path.glob("*/store"))
    env = stochastic.bernoulli([0.8, 0.7, 0.2])
    same(jr.load(folder), jr.simulate(env, stochastic.UCB1(), horizon=1000, seeds=512, progress=False))


def test_an_array_job_of_slurm_gives_the_bits_of_one_process(tmp_path):
    script = block("Slurm")
    line = next(line for line in script.splitlines() if line.startswith("jaxroute run"))
    line = line.replace("100000", "600").replace("/shared/regret", str(tmp_path / "shared")) + " --smoke --no-figures"
    first, last = map(int, re.search(r"--array=(\d+)-(\d+)", script).groups())
    assert (first, last) == (0, 7)
    array = {"SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "2"}
    said = []
    for task in (2, 0, 1):
        env = ENV | array | {"SLURM_ARRAY_TASK_ID": str(task)}
        command = [sys.executable, "-m", "jaxroute", *line.split()[1:]]
        said.append(subprocess.run(command, env=env, check=True, timeout=300, capture_output=True, text=True).stdout)
    assert [" is done. Of the whole result, " in text for text in said] == [True, True, False]
    assert (tmp_path / "shared" / "summary.json").is_file()
    alone = line.replace("shared", "alone").replace("--share", "").split()[1:]
    subprocess.run([sys.executable, "-m", "jaxroute", *alone], env=ENV, check=True)
    same(jr.load(tmp_path / "shared"), jr.load(tmp_path / "alone"))


POLICIES = {"ucb": stochastic.UCB1(), "wide": jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0])}


def play(**options):
    """Two policies, one of them a grid."""
    settings = {"horizon": 30, "seeds": 300, "record_every": 10, "progress": False} | options
    return jr.simulate(stochastic.bernoulli([0.8, 0.7, 0.2]), POLICIES, **settings)


@pytest.mark.parametrize("keep", ["runs", "moments"])
@pytest.mark.parametrize("size", [2, 3, 40])
def test_shares_are_the_whole_and_no_run_is_simulated_twice(keep, size, tmp_path):
    for rank in reversed(range(size)):
        with pytest.warns(execution.PartWarning, match="is not complete") if rank else contextlib.nullcontext():
            part = play(keep=keep, out=tmp_path, execution=jr.Execution(share=f"{rank}/{size}", block=64))
        assert ("missing" in part.attrs) == (rank > 0)
    same(part, play(keep=keep))
    same(jr.load(tmp_path), part)
    if keep == "runs":  # Differences need both policies in one process.
        assert part.attrs["decisions"] == 4 * 300 * 30


@pytest.mark.parametrize("keep", ["runs", "moments"])
@pytest.mark.parametrize("lost", range(4))
def test_of_what_a_lost_share_left_nothing_else_is_simulated(keep, lost, tmp_path):
    """It begins and ends within a setting, and within a block."""
    env, settings = stochastic.bernoulli([0.8, 0.2]), jr.grid(stochastic.GaussianThompson, scale=[0.5, 1.0, 2.0])
    options = {"horizon": 10, "seeds": 11 * 256, "keep": keep, "out": tmp_path}
    for rank in {0, 1, 2, 3} - {lost}:
        with pytest.warns(execution.PartWarning, match="is not complete"):
            jr.simulate(env, settings, execution=jr.Execution(share=(rank, 4), block=1024), **options)
    whole = jr.simulate(env, settings, execution=jr.Execution(block=1024), **options)
    assert whole.attrs["decisions"] == 3 * 11 * 256 * 10
    same(whole, jr.simulate(env, settings, **options | {"out": None}))
    (made,) = [text for label, text, *_ in rows_of(results.inspect(tmp_path)) if label == "created"]
    assert "by 4 calls on " in made and made.endswith(": 84,480 decisions")


def test_shares_of_other_layouts_fit(tmp_path):
    for rank, block in enumerate((16, 48, 512)):
        part = play(out=tmp_path, execution=jr.Execution(share=(rank, 3), block=block))
    same(part, play())
    assert part.attrs["decisions"] == 4 * 300 * 30


@pytest.mark.parametrize("settings", [1, 3, 10])
@pytest.mark.parametrize("parts", [1, 7, 64])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_part_has_one_owner_and_shares_are_equal(settings, parts, size):
    owned = np.zeros((size, settings, parts), int)
    for rank in range(size):
        for setting in range(settings):
            owned[rank, setting, list(parts_of((rank, size), setting, settings, parts))] = 1
    assert (owned.sum(axis=0) == 1).all()
    numbers = owned.sum(axis=(1, 2))
    assert numbers.max() - numbers.min() <= 1


def test_a_process_that_joins_alone_does_all(tmp_path):
    same(play(out=tmp_path, execution=jr.Execution(share="join", block=64)), play())


JOIN = """
import sys
sys.path.insert(0, {tests!r})
import test_clusters as t
import jaxroute as jr
from jaxroute.engine import schedule
schedule.EXPIRES_S = 4.0
t.play(keep={keep!r}, out={out!r}, seeds=1500, horizon=200, execution=jr.Execution(share="join", block=64, backend="scan"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_processes_that_join_and_die_leave_the_bits_of_one(keep, tmp_path):
    text = JOIN.format(tests=str(ROOT / "tests/engine"), keep=keep, out=str(tmp_path / "out"))
    env = ENV | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/support'}"}

    def start():
        return subprocess.Popen([sys.executable, "-c", text], env=env, stderr=subprocess.PIPE)

    dying, others = start(), [start(), start()]
    with pytest.raises(subprocess.TimeoutExpired):
        dying.wait(timeout=5)
    dying.kill()
    for one in others:
        assert one.wait(timeout=300) == 0, one.stderr.read().decode()
    same(jr.load(tmp_path / "out"), play(keep=keep, seeds=1500, horizon=200, execution=jr.Execution(backend="scan")))


ARRAY = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP")
CLUSTERS = {
    "an array of Slurm": (dict(zip(ARRAY, "5412", strict=True)), (2, 4)),
    "srun": ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),
    "Kubernetes": ({"JOB_COMPLETION_INDEX": "3"}, (3, 8)),
    "Open MPI": ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2)),
    "Ray Train": ({"RANK": "1", "WORLD_SIZE": "4"}, (1, 4)),
}


@pytest.fixture
def no_cluster(monkeypatch):
    for name in (name for names in execution._VARIABLES for name in names if name):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_say_which_share_it_is(name, no_cluster, monkeypatch):
    said, expected = CLUSTERS[name]
    for variable, value in said.items():
        monkeypatch.setenv(variable, value)
    assert share_here(8 if name == "Kubernetes" else None) == expected
    assert jr.Execution(share="auto/8" if name == "Kubernetes" else "auto").share == expected


def test_no_share_is_guessed(no_cluster, monkeypatch):
    with pytest.raises(ValueError, match=r"share 'auto' needs a variable .* got none; give I/N"):
        jr.Execution(share="auto")
    monkeypatch.setenv("SLURM_PROCID", "0")  # A batch script, whose tasks `srun` has not started.
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(ValueError, match="got none"):
        jr.Execution(share="auto")
    for name, value in {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "3"}.items():
        monkeypatch.setenv(name, value)  # --array=3,7
    with pytest.raises(ValueError, match=r"got SLURM_ARRAY_TASK_ID=7 of 2 tasks with gaps between them; give I/N"):
        jr.Execution(share="auto")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    monkeypatch.setenv("SLURM_ARRAY_TASK_MAX", "7")
    with pytest.raises(ValueError, match="got SLURM_ARRAY_TASK_ID=3 of 2 tasks with gaps"):
        jr.Execution(share="auto")


def test_a_share_needs_a_store_and_a_part_cannot_tell_how_many_seeds_there_will_be(tmp_path):
    with pytest.raises(ValueError, match="share needs out"):
        play(execution=jr.Execution(share="join"))
    with pytest.raises(ValueError, match="until_stderr needs share='join'"):
        play(out=tmp_path, until_stderr={"regret": 0.1}, execution=jr.Execution(share="0/2"))
    together = play(out=tmp_path, until_stderr={"regret": 0.5}, execution=jr.Execution(share="join"))
    same(together, play(until_stderr={"regret": 0.5}))
