"""Programs that take longer to compile than to run: what an environment or a policy computes once, before any round."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import jax
import numpy as np
from jax.core import Tracer

from jaxroute.core import rounding
from jaxroute.core.batching.lanes import exactly
from jaxroute.core.trees import classes_of

Given = ParamSpec("Given")
Made = TypeVar("Made")

# How XLA compiles them on a CPU: in a third of the time, into programs that run two to four times as long; rounds, which are vectorised
# over runs otherwise, ten times.
_LEVEL = "xla_backend_optimization_level"
_OPTIONS: dict[str, str | bool] = {_LEVEL: "0", "xla_cpu_use_fusion_emitters": False}


def brief_jit(
    function: Callable[Given, Made], static_argnums: int | Sequence[int] = (), often: bool = False
) -> Callable[Given, Made]:
    """`jax.jit` of a function that runs once, or a few times, for well below a second, with the one arithmetic (`arithmetic`).

    Args:
      function: to be compiled; it may be a traced part of another one.
      static_argnums: as for `jax.jit`.
      often: it may run dozens of times: LLVM optimises it, XLA's emitters of fusions do not. Training RouterDC takes 4.9 CPU seconds the first
        time instead of 5.6 (4.2 without `often`), and .24 later instead of .21 (1.7).
    """

    places = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    def of_classes(classes: tuple[type, ...], words: jax.Array, *args: Given.args, **kwargs: Given.kwargs) -> Made:
        del classes  # They are there to be compared.
        traced = [one for place, one in enumerate(args) if place not in places]

        def whole(traced: list[Any], kwargs: Any) -> Made:
            left, called = iter(traced), cast("Callable[..., Made]", function)
            return called(*(one if place in places else next(left) for place, one in enumerate(args)), **kwargs)

        with rounding.protected(words):
            return exactly(whole)(traced, kwargs)

    of_classes.__name__ = getattr(function, "__name__", "brief")  # Of the program.

    @functools.cache
    def compiled(platform: str) -> Callable[..., Made]:
        options: Any = None
        if platform == "cpu":
            options = {k: v for k, v in brief_options().items() if not (often and k == _LEVEL)}
        return jax.jit(of_classes, static_argnums=(0, *(place + 2 for place in places)), compiler_options=options)

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            return function(*args, **kwargs)  # Of another program, which has options of its own.
        return compiled(jax.default_backend())(classes_of((args, kwargs)), np.zeros(1, np.uint32), *args, **kwargs)

    return call


@functools.cache
def brief_options() -> dict[str, str | bool]:
    """How XLA compiles briefly on a CPU, as far as this version of it can."""
    nothing = jax.jit(lambda: None).lower()

    def has(name: str) -> bool:
        try:
            nothing.compile(compiler_options={name: _OPTIONS[name]})
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: value for name, value in _OPTIONS.items() if has(name)}
