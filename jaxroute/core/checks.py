"""Checks of the user's arguments. Each error names the argument, its value and what is allowed."""

import difflib
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# Largest number of names that an error lists.
_MOST_NAMES = 32


def show(value: Any) -> str:
    """Formats a value for an error message in at most 80 characters; an array appears as its type and shape."""
    if hasattr(value, "shape") and np.ndim(value):
        return f"{type(value).__name__} of shape {np.shape(value)}"
    if isinstance(value, np.generic):
        value = value.item()
    try:
        text = repr(value)
    except Exception:  # A repr that fails is replaced by the type.
        text = type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."


def numbers(name: str, value: Any, shape: tuple[int | str, ...] | None = None) -> np.ndarray:
    """Returns `value` as a float64 array; raises `ValueError` if it is not numeric, has another shape or is not finite.

    Args:
      name: name of the argument in the error message.
      value: a number or an array of numbers.
      shape: required shape, such as `("N", 3)`: a letter allows any length of at least 1. None allows every shape.
    """
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an array of numbers, got {show(value)}") from None
    if shape is not None:
        fits = (size > 0 if isinstance(needed, str) else size == needed for size, needed in zip(array.shape, shape))
        if array.ndim != len(shape) or not all(fits):
            letters = any(isinstance(needed, str) for needed in shape)
            required = f"[{', '.join(map(str, shape))}]" if letters else shape
            raise ValueError(f"{name} must have shape {required}, got {array.shape}")
    if not np.isfinite(array).all():
        where, place = _first(~np.isfinite(array))
        raise ValueError(f"{name} must be finite, got {array[where]}{place}")
    return array


def _first(wrong: np.ndarray) -> tuple[tuple[int, ...], str]:
    """Returns the index of the first True in `wrong`, and " at index ..." for an error message; the text is empty for a scalar."""
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return where, f" at index {where}" if where else ""


def bounded(
    name: str, value: Any, shape: tuple[int | str, ...] | None, allowed: str, ok: Callable[[np.ndarray], Any]
) -> np.ndarray:
    """Returns `value` as finite numbers of this `shape` (None: any) for which the test `ok` holds; raises `ValueError` otherwise.

    The message says that the argument `name` must be `allowed`, for example "above 0", and gives the first number for which the test fails.
    """
    array = numbers(name, value, shape)
    if not ok(array).all():
        where, place = _first(~ok(array))
        raise ValueError(f"{name} must be {allowed}, got {array[where]:g}{place}")
    return array


def _range(allowed: str, ok: Callable[[np.ndarray], Any]) -> Callable[..., np.ndarray]:
    """Returns a check `(name, value, shape=None)` of numbers: `bounded` with the test `ok`, which error messages describe as `allowed`."""
    return lambda name, value, shape=None: bounded(name, value, shape, allowed, ok)


positive = _range("above 0", lambda a: a > 0)
non_negative = _range("at least 0", lambda a: a >= 0)
probability = _range("in [0, 1]", lambda a: (a >= 0) & (a <= 1))
share = _range("in (0, 1]", lambda a: (a > 0) & (a <= 1))


def at_least(name: str, value: Any, least: float, shape: tuple[int | str, ...] | None = ()) -> np.ndarray:
    """Returns `value`, the argument `name`, as finite float64 numbers of at least `least` and of this `shape` (None: any); `ValueError` otherwise."""
    return bounded(name, value, shape, f"at least {least:g}", lambda a: a >= least)


def booleans(name: str, value: Any, shape: tuple[int | str, ...] | None = None) -> np.ndarray:
    """Returns `value`, the argument `name`, with True and False (or 1 and 0) in this `shape` (None: any), as booleans; `ValueError` otherwise."""
    return bounded(name, value, shape, "True or False", lambda a: (a == 0) | (a == 1)) > 0


def boolean(name: str, value: Any, hint: str = "") -> bool:
    """Returns `value`, the argument `name`, if it is True or False; `ValueError` otherwise, with `hint` at the end of the message."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {show(value)}{hint}")
    return bool(value)


def is_integer(value: Any) -> bool:
    """Whether a value is an integer of Python or NumPy; a boolean is not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def count(name: str, value: Any, minimum: int = 1, maximum: int | None = None) -> int:
    """Returns `value`, the argument `name`, if it is an integer from `minimum` to `maximum` (None: no maximum); `ValueError` otherwise."""
    allowed = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    if not is_integer(value):
        raise ValueError(f"{name} must be a whole number {allowed}, got {show(value)}")
    if value < minimum or (maximum is not None and value > maximum):
        raise ValueError(f"{name} must be {allowed}, got {value}")
    return int(value)


def whole(name: str, value: Any, minimum: int = 1, maximum: int | None = None) -> int:
    """Returns `value`, the argument `name`, as an int; `ValueError` unless it is a whole number, such as 1e3, in the range (None: no maximum)."""
    integral = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return count(name, int(value) if integral else value, minimum, maximum)


def root_seed(value: Any) -> int:
    """Returns `value` if it is a root seed, an integer from 0 to 2**32 - 1 from which all random draws derive; `ValueError` otherwise."""
    if not is_integer(value) or not 0 <= value < 2**32:
        raise ValueError(f"root_seed must be a whole number from 0 to 2**32 - 1, got {show(value)}")
    return int(value)


def takes(name: str, function: Callable[..., Any], *arguments: str) -> None:
    """Raises `ValueError` unless `function`, the argument `name`, can be called with as many positional arguments as `arguments` has names."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # A function written in C may have no signature.
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise ValueError(f"{name} must take ({', '.join(arguments)}), got one that takes {signature}") from None


def keywords(called: str, function: Callable[..., Any], given: Iterable[str]) -> None:
    """Raises `TypeError` if a name in `given` is no argument of `function`. The message calls the function `called` and suggests a similar name."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # Written in C.
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for key in given:
        if key not in parameters:
            close = difflib.get_close_matches(key, parameters, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(parameters) or 'none'}"
            raise TypeError(f"{called}() got an unexpected keyword argument {key!r}{hint}")


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function so that an unknown keyword argument raises a `TypeError` that suggests the closest name."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        keywords(function.__qualname__.removesuffix(".__init__"), function, kwargs)
        return function(*args, **kwargs)

    return checked


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issues a warning of this message and category that points to the line of the user's code that called the package."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").startswith("jaxroute."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=2 if frame is None else level)


def attributed(owner: str, check: Callable[..., Any], *args: Any) -> Any:
    """Returns `check(*args)`. If it raises `ValueError`, the message begins with `owner`, for example "policy 'ucb': scale must be above 0"."""
    try:
        return check(*args)
    except ValueError as error:
        raise ValueError(f"{owner}: {error}") from None


def instance(name: str, value: Any, kind: type[T]) -> T:
    """Returns `value`, the argument `name`, if it is an object of the class `kind`; `ValueError` otherwise."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got {show(value)}")
    return value


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Returns `value`, the argument `name`, if it is in `allowed`; else `ValueError` suggests the closest name and lists all, or 5 if over 32."""
    allowed = list(allowed)
    if value in allowed:
        return value
    lower = {str(name).lower(): name for name in allowed}
    close = [lower[name] for name in difflib.get_close_matches(str(value).lower(), lower, n=1)]
    hint = f"; did you mean {close[0]!r}?" if close else ""
    shown = allowed if len(allowed) <= _MOST_NAMES else difflib.get_close_matches(str(value), allowed, n=5, cutoff=0.0)
    others = f" or {len(allowed) - len(shown)} other names" if len(shown) < len(allowed) else ""
    raise ValueError(f"{name} must be one of {', '.join(map(repr, shown))}{others}, got {value!r}{hint}")


def part(name: str, value: Any, method: str, example: str) -> None:
    """Raises `ValueError` unless `value` is an object with this `method`; calls its `check()`, if any. The message has `name` and `example`."""
    if isinstance(value, type) or not hasattr(value, method):
        raise ValueError(f"{name} must be an object such as {example}, got {show(value)}")
    if hasattr(value, "check"):
        value.check()
