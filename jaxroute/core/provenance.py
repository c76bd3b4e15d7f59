"""Provenance of a result: versions, device, host and commit, and the settings that its bits depend on."""

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
    """Returns the versions of the packages that numbers depend on."""
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    own = sys.modules[__name__.partition(".")[0]].__version__  # A clone that is not installed has no metadata.
    return {"python": platform.python_version(), "jaxroute": own, **packages}


def fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings extended by everything else that the bits of a result depend on, except the code."""
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
    """Returns the UTC time, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def provenance(devices: Sequence[Any], **measured: Any) -> dict[str, Any]:
    """Returns versions, device, host, commit and time of a result."""
    machine = {"device": device_name(devices), "host": platform.node()}
    return {"versions": dict(versions()), **machine, "commit": commit(), "created": now(), **measured}


def made_with(device: Any) -> dict[str, str]:
    """Returns processor, device, flags and versions: the last bits of a number may depend on them."""
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
    """Returns number and kind of the devices, for example "1 x NVIDIA H200" or "1 x cpu (2 cores)"."""
    kind = devices[0].device_kind
    cores = f" ({os.cpu_count()} cores)" if devices[0].platform == "cpu" else ""
    return f"{len(devices)} x {kind}{cores}"


def cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit(device: Any) -> int:
    """Returns the memory of a device in bytes; the host's for a CPU."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


@functools.cache
def commit() -> str:
    """Returns the commit of the package's source tree, with "+" after local changes; empty outside a checkout.

    The value of the first call remains, because later edits do not run.
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
