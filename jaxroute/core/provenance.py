"""Origin of a result: versions, device, host, commit, and the settings that can change its bits."""

import datetime
import functools
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

# Version of the store's format; results of another version are not found.
FORMAT = 4


@functools.cache
def versions() -> dict[str, str]:
    """Returns the versions of Python, jaxroute and the packages that can change the numbers."""
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    own = sys.modules[__name__.partition(".")[0]].__version__  # A clone that is not installed has no metadata.
    return {"python": platform.python_version(), "jaxroute": own, **packages}


def fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `settings` of a simulation or search, plus the store's format and JAX's version and options, which can change a result's bits."""
    precision = getattr(jax.config, "jax_default_matmul_precision", None)
    return {
        **settings,
        "format": FORMAT,
        "jax": versions()["jax"],
        "threefry_partitionable": bool(getattr(jax.config, "jax_threefry_partitionable", True)),
        "x64": jax.config.read("jax_enable_x64"),
        **({"matmul_precision": precision} if precision else {}),
    }


def now() -> str:
    """Returns the current UTC time in ISO format, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def provenance(devices: Sequence[Any], **measured: Any) -> dict[str, Any]:
    """Returns the versions, devices, host, commit and time of a result, and the entries of `measured`, such as the seconds that a call took."""
    machine = {"device": device_name(devices), "host": platform.node()}
    return {"versions": dict(versions()), **machine, "commit": commit(), "created": now(), **measured}


def made_with(device: Any) -> dict[str, str]:
    """Returns the processor, device, XLA flags and versions that can change the last bits of a number."""
    machine = {"processor": processor(), "device": device.device_kind, "flags": os.environ.get("XLA_FLAGS", "")}
    return machine | {name: versions()[name] for name in ("jaxroute", "python", "jaxlib", "numpy")}


@functools.cache
def processor() -> str:
    """Returns the processor of this machine, for example "x86_64 AMD EPYC 9V74"."""
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        named = None
    return " ".join([platform.machine(), named.group(1) if named else platform.processor()]).strip()


def device_name(devices: Sequence[Any]) -> str:
    """Returns the number and kind of the devices, for example "1 x NVIDIA H200" or "1 x cpu (2 cores)"."""
    kind = devices[0].device_kind
    cores = f" ({os.cpu_count()} cores)" if devices[0].platform == "cpu" else ""
    return f"{len(devices)} x {kind}{cores}"


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit(device: Any) -> int:
    """Returns the memory of a device in bytes; for a CPU that of the machine."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


@functools.cache
def commit() -> str:
    """Returns the commit of the source tree, with "+" after local changes; empty outside a checkout. Later calls repeat the first result."""
    folder = Path(__file__).resolve().parents[1]
    try:
        head, status = (
            subprocess.run(["git", "-C", folder, *args], capture_output=True, text=True, timeout=10, check=True).stdout
            for args in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--", str(folder)))
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.strip() + ("+" if status.strip() else "")
