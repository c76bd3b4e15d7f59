"""Helpers for all tests: checks of means with error bars, real data beside the repository, double precision."""

import dataclasses
import functools
import os
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxroute.core.attributes import decoded
from jaxroute.problems import default_policies, problems

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
# What processes of their own find: the helpers of the tests, and the package.
CHILDREN_PATH = os.pathsep.join(map(str, [SUPPORT, ROOT / "tests", ROOT / "tests" / "store", ROOT / "scripts", ROOT]))
SHARED_DATA = ROOT.parent / "shared" / "data"


def assert_mean_close(samples, expected, num_sigma=5.0, what="mean"):
    """Passes when the mean of the samples is within `num_sigma` of its own standard errors of `expected`."""
    samples = np.asarray(samples, np.float64).ravel()
    error = samples.std(ddof=1) / np.sqrt(samples.size)
    gap = abs(samples.mean() - expected)
    assert error > 0, f"{what}: {samples.size} equal samples ({samples[0]}) have no error bar"
    assert gap < num_sigma * error, (
        f"{what}: {samples.mean():.6g} +- {error:.2g} is {gap / error:.1f} standard errors from {expected:.6g}"
    )


def assert_means_agree(first, second, num_sigma=5.0, what="means"):
    """Passes when two independent samples have means within `num_sigma` standard errors of their difference."""
    first, second = (np.asarray(x, np.float64).ravel() for x in (first, second))
    error = np.sqrt(sum(x.var(ddof=1) / x.size for x in (first, second)))
    gap = abs(first.mean() - second.mean())
    assert error > 0, f"{what}: no error bar"
    assert gap < num_sigma * error, (
        f"{what}: {first.mean():.6g} and {second.mean():.6g} are {gap / error:.1f} standard errors ({error:.2g}) apart"
    )


def x64(enabled=True):
    """Turns on double precision inside the block."""
    return jax.enable_x64(enabled)


def assert_measured(measured, command):
    """Checks that measurements have the pairs (problem, name) of all default policies, but at most five new ones, which are measured at a release."""
    every = {(problem, name) for problem, module in problems().items() for name in default_policies(module)}
    assert measured <= every, f"measurements of policies that are gone: {sorted(measured - every)}"
    assert len(every - measured) <= 5, f"not measured: {sorted(every - measured)}; {command}"


def backends(result):
    """Returns the names of the backends that simulated the policies of a result."""
    return set(decoded(result.attrs)["backend"].values())


def setup_of(seeds, platform="cpu", axes=(), shared=()):
    """Returns what a layout depends on: the number of seeds, the platform of a device, coordinates by axis, and the axes that share a state."""
    target = SimpleNamespace(devices=[SimpleNamespace(platform=platform)], block=None, on_cpu=platform == "cpu")
    components = SimpleNamespace(axes=dict(axes), shared_axes=shared, static_axes=())
    return SimpleNamespace(components=components, target=target, sampling=SimpleNamespace(seeds=range(seeds)))


def per_round(variable):
    """Recovers the values of a flow in each round from its recorded totals or averages, `[T, ...]`; those of a gauge are values already."""
    values, kind = variable.values, variable.attrs["kind"]
    if kind == "gauge":
        return values
    if kind == "average":
        values = values * variable["time"].values
    return np.diff(values, axis=0, prepend=np.zeros_like(values[:1]))


def shared_data(name):
    """Returns the path of a real file beside the repository, and skips the test if the file is missing."""
    path = SHARED_DATA / name
    if not path.exists():
        pytest.skip(f"no real data: {path} does not exist")
    return path


@functools.cache
def _double_class(cls):
    def init(self, *args):
        return doubles(cls.init(self, *args))

    return struct.dataclass(type("Double" + cls.__name__, (cls,), {"init": init, "__annotations__": {}}))


def doubles(tree):
    """Converts all floating-point leaves to float64 (inside `x64`)."""

    def leaf(x):
        floating = not isinstance(x, bool) and jnp.issubdtype(jnp.result_type(x), jnp.floating)
        return np.asarray(x, np.float64) if floating and not isinstance(x, jax.Array) else x.astype(float) if floating else x

    return jax.tree.map(leaf, tree)


def in_double(player):
    """Wraps an environment or policy so that its numbers and state are float64, whatever it declares (inside `x64`).

    Its class is a subclass that only widens what `init` returns, so that the very code under test runs in double precision.
    """
    values = {}
    for field in dataclasses.fields(player):
        value = getattr(player, field.name)
        values[field.name] = doubles(value) if field.metadata.get("pytree_node", True) else value
    return _double_class(type(player))(**values)
