"""A GPU for tests where there is none: XLA's own plugin on a driver whose device is the host (`driver.c`), and an NVRTC that compiles for
the host (`nvrtc.c`). The package runs unchanged in a process of its own that finds both libraries by `LD_LIBRARY_PATH`."""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers import CHILDREN_PATH, ROOT

HERE = Path(__file__).parent
PLUGINS = ("jax_plugins.xla_cuda13", "jax_cuda13_plugin")
# One library by the names of four, of which the runtime and cuDNN may be installed beside the plugin, too.
DRIVERS, NVRTC = ("libcuda.so.1", "libcudart.so.13", "libcudnn.so.9"), "libnvrtc.so.13"
SETTINGS = {
    "JAX_PLATFORMS": "cuda,cpu",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "XLA_FLAGS": "--xla_gpu_autotune_level=0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def missing() -> str:
    """Returns what a fake GPU needs and this machine lacks; empty if nothing does."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "the fake GPU needs Linux on x86-64"
    if not (shutil.which("gcc") and shutil.which("g++")):
        return "the fake GPU needs gcc and g++"
    if not all(_has(name) for name in PLUGINS):
        return (
            "the fake GPU needs jax-cuda13-plugin, jax-cuda13-pjrt, nvidia-cuda-nvcc and nvidia-nvvm (pip install --no-deps)"
        )
    return ""


def _has(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _libraries() -> list[Path]:
    folders = [Path(folder) for name in PLUGINS for folder in importlib.util.find_spec(name).submodule_search_locations]
    return sorted(file for folder in folders for file in folder.glob("*.so"))


def build() -> Path:
    """Returns a folder with both libraries, which are built once for each version of the plugin."""
    sources = [HERE / name for name in ("driver.c", "nvrtc.c", "kernel.h")]
    versions = [importlib.metadata.version(name) for name in ("jax-cuda13-plugin", "jax-cuda13-pjrt")]
    digest = hashlib.sha256(
        "\0".join([*versions, *(file.read_text() for file in [*sources, Path(__file__)])]).encode()
    ).hexdigest()
    folder = ROOT / ".pytest_cache" / "fake_gpu" / digest[:16]
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        shutil.copy(HERE / "kernel.h", made)
        compile_ = ["gcc", "-std=gnu11", "-O1", "-w", "-shared", "-fPIC", "-x", "c", "-", "-Wl,-Bsymbolic"]
        driver, nvrtc = ((HERE / name).read_text() for name in ("driver.c", "nvrtc.c"))
        driver += _stubs(driver)
        for name in (*DRIVERS, NVRTC):
            given = nvrtc if name == NVRTC else driver
            subprocess.run([*compile_, f"-Wl,-soname,{name}", "-o", f"{made}/{name}"], input=given, text=True, check=True)
        Path(made, "libnvidia-ml.so.1").symlink_to("libcuda.so.1")
        try:
            Path(made).rename(folder)
        except OSError:  # Another process was quicker.
            assert folder.exists()
        Path(made).mkdir(exist_ok=True)
    return folder


def _stubs(text: str) -> str:
    """Returns C code of functions that do nothing, for all names that the plugin knows and the driver's text lacks."""
    own = set(re.findall(r"^\w[\w ]* \*?(\w+)\(", text, re.MULTILINE))
    named = {
        name.decode()
        for file in _libraries()
        for name in re.findall(rb"\0((?:cu|nvml|(?:__)?cuda|cudnn)[A-Z]\w+)(?=\0)", file.read_bytes())
    }
    stub = 'int {0}() {{ static int calls; if (!calls++) say("stub {0}"); return {1}; }}'
    return "\n".join(stub.format(name, "NOT_SUPPORTED" if name.startswith("nvml") else 0) for name in sorted(named - own))


def environment(folder: Path) -> dict[str, str]:
    """Returns the variables with which Python finds a fake GPU. `folder` gets what is compiled and the driver's log."""
    built = build()
    return {
        "LD_LIBRARY_PATH": str(built),
        "LD_PRELOAD": ":".join(str(built / name) for name in DRIVERS[1:]),
        "JAXROUTE_NVRTC": str(built / NVRTC),
        "XDG_CACHE_HOME": str(folder),
        "FAKE_GPU_LOG": str(folder / "log.txt"),
        "PYTHONPATH": os.pathsep.join([str(HERE / "site"), CHILDREN_PATH]),
        **SETTINGS,
    }


def start(folder: Path, function: str, *arguments: str, **settings: str) -> "subprocess.Popen[str]":
    """Starts a process that calls a function of `child.py`; `settings` are variables of driver and compiler."""
    command = [sys.executable, str(HERE / "child.py"), function, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=os.environ | environment(folder) | settings, **pipes)


def log(folder: Path) -> list[str]:
    """Reads the lines that the driver has written, without the times."""
    file = folder / "log.txt"
    return [line.split(" ", 1)[1] for line in file.read_text().splitlines()] if file.exists() else []
