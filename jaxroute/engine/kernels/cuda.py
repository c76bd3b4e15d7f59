"""The rounds of a run, compiled by NVRTC (which comes with `jax[cuda12]` and `jax[cuda13]`) and launched on the stream of XLA's program."""

import ctypes
import functools
import hashlib
import importlib.metadata
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from jaxroute.engine.kernels.host import cache_folder
from jaxroute.engine.kernels.values import Unsupported

# Sums and products are rounded one by one, and numbers below 1.2e-38 are 0, as in XLA's programs on a CPU. Divisions and roots are off by
# one or two units in the last place: those of IEEE cost UCB1 61 % more instructions.
OPTIONS = ("--std=c++17", "-fmad=false", "-ftz=true", "-prec-div=false", "-prec-sqrt=false")
# Threads of a block: two warps, so that few runs spread over all processors of the device.
BLOCK = 64


@functools.cache
def nvrtc() -> Any:
    """NVIDIA's compiler as a library.

    Raises:
      Unsupported: it is not installed.
    """
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise Unsupported("there is no NVRTC (it comes with jax[cuda12] or jax[cuda13])")


def _candidates() -> list[str]:
    found = []
    for package in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12"):
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found += [str(f.locate()) for f in files if f.name.startswith("libnvrtc.so") or f.name.startswith("nvrtc64")]
    return [*found, "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]


def compiled(text: str, architecture: str, options: Sequence[str] = OPTIONS) -> bytes:
    """Machine code of a CUDA C text for an architecture such as `sm_90a`, compiled once and kept on disk.

    Raises:
      Unsupported: there is no compiler, or it refuses the text.
    """
    key = "\0".join([text, architecture, version(), *options])
    kept = cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.cubin"
    if kept.exists():
        return kept.read_bytes()
    code = compile_text(text, architecture, options)
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_name(f"{kept.name}.{os.getpid()}-{threading.get_ident()}")
    partial.write_bytes(code)
    partial.replace(kept)
    return code


def version() -> str:
    """That of NVRTC."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def compile_text(text: str, architecture: str, options: Sequence[str] = OPTIONS) -> bytes:
    """As `compiled`, without looking for what is on disk."""
    library, program = nvrtc(), ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"rounds.cu", 0, None, None)
    try:
        given = [f"--gpu-architecture={architecture}", *options]
        array = (ctypes.c_char_p * len(given))(*(one.encode() for one in given))
        failed = library.nvrtcCompileProgram(program, len(given), array)
        if failed:
            raise Unsupported(f"NVRTC does not compile it: {_told(library, program)[:500]}")
        size = ctypes.c_size_t()
        library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        library.nvrtcGetCUBIN(program, code)
        return code.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _told(library: Any, program: Any) -> str:
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    return log.value.decode(errors="replace").strip()


class Driver:
    """NVIDIA's driver as a library; each call raises `RuntimeError` if it fails."""

    def __init__(self) -> None:
        names = ("libcuda.so.1", "nvcuda.dll")
        self._library = next((lib for lib in map(_loaded, names) if lib is not None), None)
        if self._library is None:
            raise Unsupported("there is no CUDA driver")
        self("cuInit", 0)

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))  # type: ignore[union-attr]
            raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()} ({status})")


def _loaded(name: str) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


@functools.cache
def driver() -> Driver:
    """The driver of this machine.

    Raises:
      Unsupported: there is none.
    """
    return Driver()


@functools.cache
def architecture(device: int = 0) -> str:
    """What a device is compiled for, such as `sm_90a`."""
    handle, numbers = ctypes.c_int(), []
    driver()("cuDeviceGet", ctypes.byref(handle), device)
    for attribute in (75, 76):  # Major and minor of its compute capability.
        number = ctypes.c_int()
        driver()("cuDeviceGetAttribute", ctypes.byref(number), attribute, handle)
        numbers.append(number.value)
    major, minor = numbers
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


class Kernel:
    """A kernel that is loaded on each device when it is first launched there.

    Args:
      code: function that gives its machine code.
    """

    def __init__(self, code: Callable[[], bytes]):
        self._code = code
        self._functions: dict[int, Any] = {}
        self._lock = threading.Lock()

    def _function(self) -> Any:
        """The kernel in the present context, which is XLA's."""
        context = ctypes.c_void_p()
        driver()("cuCtxGetCurrent", ctypes.byref(context))
        place = context.value or 0
        with self._lock:
            if place not in self._functions:
                module, function = ctypes.c_void_p(), ctypes.c_void_p()
                driver()("cuModuleLoadData", ctypes.byref(module), self._code())
                driver()("cuModuleGetFunction", ctypes.byref(function), module, b"rounds")
                self._functions[place] = function
            return self._functions[place]

    def launch(self, addresses: Sequence[int], runs: int, settings: int, stream: int) -> None:
        """Plays so many runs of each setting.

        Args:
          addresses: of inputs and outputs.
          runs: number of them.
          settings: number of them.
          stream: that it is put on.
        """
        values = [*(ctypes.c_void_p(a) for a in addresses), ctypes.c_longlong(runs)]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        grid = -(-runs // BLOCK), settings, 1
        driver()("cuLaunchKernel", self._function(), *grid, BLOCK, 1, 1, 0, ctypes.c_void_p(stream), pointers, None)
