"""Lowering for a GPU where there is none."""

import contextlib

import jax


def abstract_gpu():
    """A GPU to lower for where there is none, which jax asks for since 0.11."""
    if jax.__version_info__ < (0, 11):
        return contextlib.nullcontext()
    device = jax.sharding.AbstractDevice(device_kind="NVIDIA H100 80GB HBM3", num_cores=132, platform="gpu")
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))


def lowers(function, *args):
    """The text of `function(*args)` lowered for CUDA, on any machine."""
    with abstract_gpu():
        return jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",)).as_text()
