"""Lowering for a GPU where there is none."""

import contextlib
import functools
import re

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


_FUNCTION = re.compile(r"^\s*func\.func \w+ @\"?([\w.$-]+)\"?\(")
_CALL = re.compile(r"\bcall @\"?([\w.$-]+)\"?\(")


def count(text, operation):
    """How often a lowered module executes an operation if every loop is one trip and every branch is taken.

    An operation of a function counts once per call of the function: versions of jax differ in what they write as one.
    """
    lines, name = {}, ""
    for line in text.splitlines():
        head = _FUNCTION.match(line)
        name = head[1] if head else name
        if not head:
            lines.setdefault(name, []).append(line)

    @functools.cache
    def of(name):
        body = lines.get(name, [])
        called = [call for line in body for call in _CALL.findall(line)]
        return sum(line.count(operation) for line in body) + sum(map(of, called))

    return of("main")
