"""What determines a run, and where and with what its result was made."""

import dataclasses
import datetime
import functools
import hashlib
import inspect
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxroute.store.instructions import digest_of_code

# Version of how results are stored: another one finds nothing of this.
FORMAT = 4


class StoreMismatchError(ValueError):
    """Error: a stored result was made by other settings or other code than those of this call."""


@functools.cache
def versions() -> dict[str, str]:
    """Returns the versions of what the numbers depend on, of this process."""
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    own = sys.modules[__name__.partition(".")[0]].__version__  # A clone that is not installed has no metadata.
    return {"python": platform.python_version(), "jaxroute": own, **packages}


def fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings with all else that the bits of a result depend on, except the code."""
    return {
        "platform": jax.default_backend(),
        **settings,
        "format": FORMAT,
        "jax": versions()["jax"],
        "threefry_partitionable": bool(getattr(jax.config, "jax_threefry_partitionable", True)),
        "x64": jax.config.read("jax_enable_x64"),
        **({"matmul_precision": precision} if (precision := jax.config.jax_default_matmul_precision) else {}),
    }


def now() -> str:
    """Returns the time, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def digest_of_setting(said: Any) -> str:
    """Returns the digest of the description of an environment or policy."""
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


# Types of numbers that need not be said, as they become those of the device.
_USUAL = ("float32", "float64", "int32", "int64", "uint32", "bool")


@functools.singledispatch
def describe(value: Any) -> Any:
    """What determines a run, as plain JSON: classes, static choices and numbers (long arrays by their hash)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value) if _is_said(f, value)}
        return {"type": type(value).__qualname__, **fields}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"type": type(value).__qualname__, **{k: describe(getattr(value, k)) for k in value._fields}}
    if isinstance(value, Mapping):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(v) for v in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(value)
        if array.size <= 32 and str(array.dtype) in _USUAL and all(array.shape):
            return array.tolist()
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest}
    if isinstance(value, range):
        return repr(value)
    if callable(value):
        return _describe_function(value)
    fields = {name: getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)}
    fields |= getattr(value, "__dict__", {})
    if fields:  # The text of such an object may leave them out, or be its place in memory.
        return {"type": type(value).__qualname__, **{name: describe(one) for name, one in fields.items()}}
    return repr(value)


def _is_said(field: "dataclasses.Field[Any]", value: Any) -> bool:
    return not field.metadata.get("unsaid_by_default") or getattr(value, field.name) != field.default


def _describe_function(function: Any) -> Any:
    """A function by its name and what it was made with (its code is told by `code`); any other object that can be called by its attributes."""
    if isinstance(function, functools.partial):
        parts = {"arguments": describe(function.args), "keywords": describe(function.keywords)}
        return {"partial": _describe_function(function.func), **parts}
    if hasattr(function, "__wrapped__"):  # A compiled or decorated function.
        return {"wrapped": _describe_function(function.__wrapped__)}
    if inspect.ismethod(function):
        return {"method": _describe_function(function.__func__), "of": describe(function.__self__)}
    code = getattr(function, "__code__", None)
    if code is None and hasattr(function, "__qualname__"):  # A class, or a function written in C.
        return f"{function.__module__}.{function.__qualname__}"
    if code is None:
        return {
            "type": type(function).__qualname__,
            **{k: describe(v) for k, v in getattr(function, "__dict__", {}).items()},
        }
    name = f"{function.__module__}.{function.__qualname__}"
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    inside += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    made_with = [name if thing is function else describe(thing) for thing in inside]
    if code.co_name == "<lambda>":  # All in one place have the same name.
        name = f"{name} {digest_of_code(code)}"
    return {"function": name, **({"made_with": made_with} if made_with else {})}


def provenance(devices: Sequence[Any], **measured: Any) -> dict[str, Any]:
    """Where and with what a result was made."""
    return {
        "versions": dict(versions()),
        "device": device_name(devices),
        "host": platform.node(),
        "commit": commit(),
        "created": now(),
        **measured,
    }


def made_with(device: Any) -> dict[str, str]:
    """What the last bits of a number may depend on, besides the settings: processor, device, flags and versions."""
    own = versions()
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        "processor": processor(),
        "device": device.device_kind,
        "flags": flags,
        **{n: own[n] for n in ("jaxroute", "python", "jaxlib", "numpy")},
    }


@functools.cache
def processor() -> str:
    """The processor of this machine, for example "x86_64 AMD EPYC 9V74"."""
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        named = None
    return " ".join([platform.machine(), named.group(1) if named else platform.processor()]).strip()


def device_name(devices: Sequence[Any]) -> str:
    """Number and kind of the devices, for example "1 x NVIDIA H200" or "1 x cpu (2 cores)"."""
    kind = devices[0].device_kind
    cores = f" ({os.cpu_count()} cores)" if devices[0].platform == "cpu" else ""
    return f"{len(devices)} x {kind}{cores}"


def memory_limit(device: Any) -> int:
    """Bytes of memory that a device may use; the host's for a CPU."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


@functools.cache
def commit() -> str:
    """Commit of the source tree that the package runs from, with "+" if it had been changed; empty outside a checkout.

    As it was when this was first called: what is edited later does not run.
    """
    folder = Path(__file__).resolve().parents[1]
    try:
        head, status = (
            subprocess.run(["git", "-C", folder, *args], capture_output=True, text=True, timeout=10, check=True).stdout
            for args in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--", str(folder)))
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.strip() + ("+" if status.strip() else "")
