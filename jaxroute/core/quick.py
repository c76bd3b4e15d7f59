"""Quick compilation of programs that run only a few times and take longer to compile than to run."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import jax
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxroute.core import rounding
from jaxroute.core.batching.lanes import exactly
from jaxroute.core.types import classes_of

Given = ParamSpec("Given")
Made = TypeVar("Made")

# XLA's options on a CPU: a third of the compile time, for programs that run two to four times as long (rounds, which lose their
# vectorisation over runs, ten times).
_LEVEL = "xla_backend_optimization_level"
_OPTIONS: dict[str, str | bool] = {_LEVEL: "0", "xla_cpu_use_fusion_emitters": False}


def quick_jit(
    function: Callable[Given, Made], static_argnums: int | Sequence[int] = (), often: bool = False
) -> Callable[Given, Made]:
    """Compiles like `jax.jit`, for a few calls only: on a CPU compilation is faster, the program slower. Results have the same bits on any device.

    `often` switches on LLVM's optimisations, for a program that runs dozens of times. `static_argnums` is as in `jax.jit`. A call within another
    traced function is compiled as part of that function, with its options.
    """
    places = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    def of_classes(classes: tuple[type, ...], words: Array, *args: Given.args, **kwargs: Given.kwargs) -> Made:
        del classes  # Part of the key of the compiled program.
        traced = [one for place, one in enumerate(args) if place not in places]

        def whole(traced: list[Any], kwargs: Any) -> Made:
            left, called = iter(traced), cast("Callable[..., Made]", function)
            return called(*(one if place in places else next(left) for place, one in enumerate(args)), **kwargs)

        with rounding.protected(words):
            return exactly(whole)(traced, kwargs)

    of_classes.__name__ = getattr(function, "__name__", "quick")  # Name of the program.

    @functools.cache
    def compiled(platform: str) -> Callable[..., Made]:
        options: Any = None
        if platform == "cpu":
            options = {k: v for k, v in quick_options().items() if not (often and k == _LEVEL)}
        return jax.jit(of_classes, static_argnums=(0, *(place + 2 for place in places)), compiler_options=options)

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            return function(*args, **kwargs)  # Part of another program, with its own options.
        return compiled(jax.default_backend())(classes_of((args, kwargs)), np.zeros(1, np.uint32), *args, **kwargs)

    return call


@functools.cache
def quick_options() -> dict[str, str | bool]:
    """Returns XLA's options for quick compilation on a CPU, as far as this version of XLA has them."""
    nothing = jax.jit(lambda: None).lower()

    def has(name: str) -> bool:
        try:
            nothing.compile(compiler_options={name: _OPTIONS[name]})
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: value for name, value in _OPTIONS.items() if has(name)}
