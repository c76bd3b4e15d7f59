"""Errors of an environment and a policy that do not fit together, in words."""

import contextlib
from collections.abc import Generator
from types import TracebackType
from typing import Any

import jax

from jaxroute.core.protocols import AnyEnvironment, AnyPolicy

_VERBS = ("init", "observe", "plan", "act", "step", "update", "gauges")


class SimulationError(ValueError):
    """A policy does not fit an environment: a method fails on the values of the other component."""


@contextlib.contextmanager
def explained(name: str, env: AnyEnvironment, policy: AnyPolicy) -> Generator[None, None, None]:
    """Context for tracing rounds; an error names the components and the method that failed.

    Args:
      name: name of the policy.
      env: the environment.
      policy: the policy.

    Raises:
      SimulationError: instead of the errors of code that gets unexpected values.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise SimulationError(
            f"policy {name!r} ({_home(policy)}) does not fit {_home(env)}{_where(error.__traceback__)}: {type(error).__name__}: {reason}"
        ) from error


@contextlib.contextmanager
def located(where: str) -> Generator[None, None, None]:
    """Context for running compiled rounds: an error of the runtime, of a callback for example, says where."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        error.add_note(f"while {where} was simulated")
        raise


def _where(trace: TracebackType | None) -> str:
    """The method of environment or policy that failed, in words; empty if it is unknown."""
    where = ""
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name in _VERBS and "self" in frame.f_locals and not where:
            where = f", in {type(frame.f_locals['self']).__name__}.{frame.f_code.co_name}"
        trace = trace.tb_next
    return where


def _home(component: Any) -> str:
    return f"{type(component).__name__} of {type(component).__module__}"
