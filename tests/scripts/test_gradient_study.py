"""The laws of draws that the study differentiates, against enumeration and frequencies; and what it has stored."""

import itertools
import json

import gradient_study
import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest

from jaxroute.solvers.rounding import pairwise

SELECTIONS = {
    "halves": [0.5, 0.5, 0.5, 0.5],
    "two meet above 1": [0.9, 0.7, 0.4],
    "whole ones between": [0.3, 1.0, 0.25, 0.0, 0.45, 1.0, 0.8, 0.2],
    "a partial sum is whole": [0.6, 0.4, 0.7, 0.3, 1.0],
    "all whole": [1.0, 0.0, 1.0],
}


def all_sets(size):
    return jnp.array(list(itertools.product([False, True], repeat=size)))


@pytest.mark.parametrize("name", SELECTIONS)
def test_chances_are_frequencies_of_pairwise_rounding(name):
    z, runs = jnp.array(SELECTIONS[name], jnp.float32), 20_000
    sets = all_sets(z.size)
    chances = np.asarray(jax.jit(jax.vmap(lambda s: laws.chance_of_set(z, s)))(sets), np.float64)
    assert chances.sum() == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(chances @ np.asarray(sets), z, atol=1e-5)  # Marginals are those of the selection.
    uniforms = jax.random.uniform(jax.random.key(1), (runs, z.size))
    drawn = np.asarray(jax.jit(jax.vmap(lambda u: pairwise(z, u, whole_sum=True)))(uniforms))
    number = drawn @ 2 ** np.arange(z.size)[::-1]
    shares = np.bincount(number, minlength=len(chances)) / runs
    assert (np.abs(shares - chances) <= 5 * np.sqrt(chances * (1 - chances) / runs) + 1e-6).all()


def test_the_derivative_of_all_chances_sums_to_nothing_and_moves_the_marginals():
    z, way = jnp.array([0.9, 0.7, 0.35, 0.6, 0.45]), jnp.array([0.5, -1.0, 0.25, 1.0, -0.75])
    sets = all_sets(5)
    _, moved = jax.jvp(lambda z: jax.vmap(lambda s: laws.chance_of_set(z, s))(sets), (z,), (way,))
    assert float(moved.sum()) == pytest.approx(0.0, abs=1e-5)
    np.testing.assert_allclose(moved @ sets, way, atol=1e-5)


def test_categorical():
    p = jnp.array([0.2, 0.0, 0.8])
    assert float(laws.categorical(p, jnp.int32(2))) == pytest.approx(np.log(0.8))
    np.testing.assert_allclose(jax.grad(laws.categorical)(p, jnp.int32(0)), [5.0, 0.0, 0.0], rtol=1e-6)


def test_stored_tables_are_whole():
    """Each task has its three points, with all estimators and the errors of both sides; no bias is said without its error."""
    stored = json.loads(gradient_study.RESULTS.read_text())
    for task, points in gradient_study.POINTS.items():
        assert set(stored[f"slopes/{task}"]) == set(points)
        for point in stored[f"slopes/{task}"].values():
            rows = [row for leaves in point["estimators"].values() for row in leaves.values()]
            assert len(rows) == 11 * len(point["values"])
            assert all(row["bias_error"] > row["error"] > 0 and row["cpu_ms_per_run"] > 0 for row in rows)


@pytest.mark.slow
def test_one_compiled_call_scores_as_the_engine(monkeypatch):
    setting = gradient_study.Setting.of("stageroute")
    points = np.array([[0.3, 0.4], [0.9, 0.8]])
    few = setting.scores(points, range(3), 5)
    monkeypatch.setattr(gradient_study, "FEW", 0)
    np.testing.assert_allclose(few, setting.scores(points, range(3), 5), rtol=1e-5)
