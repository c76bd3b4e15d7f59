"""Errors of an environment and a policy that do not understand each other, in words."""

import contextlib
from collections.abc import Generator
from types import TracebackType
from typing import Any

import jax

from jaxroute.core.protocols import AnyEnvironment, AnyPolicy

_VERBS = ("init", "observe", "plan", "act", "step", "update", "gauges")


class SimulationError(ValueError):
    """A policy cannot play an environment: one of their methods fails on what the other gives it."""


@contextlib.contextmanager
def explained(name: str, env: AnyEnvironment, policy: AnyPolicy) -> Generator[None, None, None]:
    """A context in which rounds are traced: what fails there says who failed, with whom.

    Args:
      name: of the policy.
      env: the environment.
      policy: the policy.

    Raises:
      SimulationError: in place of the errors that code raises when it is given something else than it expects.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise SimulationError(
            f"policy {name!r} ({_home(policy)}) cannot play {_home(env)}{_where(error.__traceback__)}: {type(error).__name__}: {reason}"
        ) from error


@contextlib.contextmanager
def located(where: str) -> Generator[None, None, None]:
    """A context in which compiled rounds are played: an error of the runtime, of a callback for example, says where."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        error.add_note(f"while {where} was played")
        raise


def _where(trace: TracebackType | None) -> str:
    """The method of environment or policy that failed, in words; empty if it is not known."""
    where = ""
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name in _VERBS and "self" in frame.f_locals and not where:
            where = f", in {type(frame.f_locals['self']).__name__}.{frame.f_code.co_name}"
        trace = trace.tb_next
    return where


def _home(player: Any) -> str:
    return f"{type(player).__name__} of {type(player).__module__}"
