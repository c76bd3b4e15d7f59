"""Compiles kernels for GPUs by NVRTC (part of `jax[cuda12]` and `jax[cuda13]`) and launches them on the stream of XLA's program."""

import ctypes
import dataclasses
import functools
import glob
import hashlib
import importlib.metadata
import os
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from jaxroute.kernels.host import cache_folder
from jaxroute.kernels.ir import SlowerThanScan, Unsupported

# Sums and products are rounded individually, and numbers below 1.2e-38 are 0, as in XLA's programs on a CPU. Roots may be off by one ulp, quotients
# hardly ever (`prelude.h`). IEEE roots would cost UCB1 about 128 more instructions a round, IEEE divisions 77.
OPTIONS = ("--std=c++17", "-fmad=false", "-ftz=true", "-prec-div=false", "-prec-sqrt=false")
# Number of threads in a block: two warps, so that few runs spread over all processors of the device.
BLOCK = 64
# Largest number of settings of a launch: blocks along the second axis of a grid.
MOST_SETTINGS = 65_535
# Target duration of a launch in seconds, number of rounds of the first launch, and largest ratio of the next launch to it.
LAUNCH_S, FIRST_ROUNDS, GROWTH = 0.5, 64, 16
# Bytes of a thread's stack and of its scratch memory above which the scan is faster than a kernel, which waits for memory. On an H100 kernels with at
# most 1,712 and 4,928 bytes are 1.4 to 12 times as fast as the scan. Of those above 3,100 or 8,192 bytes one is 1.9 times as fast, two are equal,
# and the others take 1.6 to 6 times as long. One in between (2,720 bytes) takes 3.2 times as long.
MOST_STACK, MOST_SCRATCH = 3 << 10, 8 << 10
# Environment variable with the path of the NVRTC to use.
NVRTC_PATH = "JAXROUTE_NVRTC"
TRIVIAL = 'extern "C" __global__ void rounds(float *x) { x[threadIdx.x] = threadIdx.x / 4.0f + 1.0f; }'


@functools.cache
def nvrtc() -> Any:
    """Loads NVRTC, NVIDIA's run-time compiler, in the newest version that the driver supports and that compiles a trivial kernel.

    If there is none, it raises `Unsupported` with the reason why each version failed, and a remedy.
    """
    try:
        supported = driver().version // 1000
    except Unsupported:  # Without a driver machine code can still be compiled.
        supported = None
    found, refused = [], []
    for path in dict.fromkeys(_candidates()):
        try:
            library = _with_builtins(path)
            found.append((_version(library), path, library))
        except (OSError, AttributeError) as error:
            refused += [str(error)] if os.path.isabs(path) or NVRTC_PATH in os.environ else []
    for version, path, library in sorted(found, key=lambda one: one[0], reverse=True):
        name = f"{path} (NVRTC {version[0]}.{version[1]})"
        if supported is not None and version[0] > supported:
            refused.append(f"{name} is newer than the driver, which supports CUDA {supported}")
            continue
        try:
            compile_text(TRIVIAL, "sm_75" if supported is None else architecture(), library=library)
        except Unsupported as error:
            refused.append(f"{name}: {error}")
            continue
        return library
    wrong = f"no NVRTC can be used: {'; '.join(refused)}" if refused else "there is no NVRTC"
    raise Unsupported(f"{wrong}; {_install(supported)}")


def _install(major: int | None) -> str:
    return f"python -m pip install -U nvidia-cuda-nvrtc{'-cu12' if major == 12 else ''}"


def _candidates() -> list[str]:
    """Returns paths and names of libraries that may be NVRTC; if the variable JAXROUTE_NVRTC is set, its value alone."""
    if own := os.environ.get(NVRTC_PATH):
        return [own]
    found: list[str] = []
    with suppress(Exception):  # It is not installed, or finds nothing.
        from cuda import pathfinder  # pyright: ignore

        found += [path for path in [pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path] if path]
    for package in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12"):
        with suppress(importlib.metadata.PackageNotFoundError):
            files = importlib.metadata.files(package) or []
            found += [str(f.locate()) for f in files if f.name.startswith(("libnvrtc.so", "nvrtc64"))]
    return [*found, "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]


def _with_builtins(path: str) -> Any:
    """Loads the NVRTC at a path. The library of builtins in its folder is loaded first, because NVRTC of CUDA 13.0 would not find it."""
    if os.path.isabs(path):
        for builtins in glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-builtins.so*")):
            ctypes.CDLL(builtins)
    return ctypes.CDLL(path)


def _version(library: Any) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compiled(text: str, architecture: str, options: Sequence[str] = OPTIONS) -> bytes:
    """Compiles CUDA C to machine code for an architecture such as `sm_90a`, with NVRTC's `options`; cached on disk where possible.

    Raises `Unsupported` if there is no compiler, or if the compiler refuses the text.
    """
    key = "\0".join([text, architecture, version(), *options])
    file = cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.cubin"
    with suppress(OSError):
        return file.read_bytes()
    code = compile_text(text, architecture, options)
    with suppress(OSError):  # Without a writable folder the next process compiles again.
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}")
        partial.write_bytes(code)
        partial.replace(file)
    return code


def version() -> str:
    """Returns the version of NVRTC, such as "13.0"."""
    return "{}.{}".format(*_version(nvrtc()))


def compile_text(text: str, architecture: str, options: Sequence[str] = OPTIONS, library: Any = None) -> bytes:
    """Compiles CUDA C for an architecture such as `sm_90a` by the NVRTC `library` (None: the one of `nvrtc()`), without the disk cache."""
    library, program = nvrtc() if library is None else library, ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"rounds.cu", 0, None, None)
    try:
        given = [f"--gpu-architecture={architecture}", *options]
        array = (ctypes.c_char_p * len(given))(*(one.encode() for one in given))
        failed = library.nvrtcCompileProgram(program, len(given), array)
        if failed:
            log = _made(library, program, "ProgramLog").partition(b"\0")[0].decode(errors="replace").strip()
            raise Unsupported(f"NVRTC does not compile it: {log[:500]}")
        return _made(library, program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _made(library: Any, program: Any, what: str) -> bytes:
    """Returns an output of NVRTC (`library`) for the handle `program`: machine code if `what` is "CUBIN", compiler messages if "ProgramLog"."""
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    made = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, made)
    return made.raw


class DriverError(RuntimeError):
    """Error: a call of NVIDIA's driver failed."""


class Driver:
    """Interface to NVIDIA's driver, called as `driver(name, *arguments)`. A failure raises `DriverError`, a missing driver `Unsupported`."""

    def __init__(self) -> None:
        self._library = next(filter(None, map(_loaded, ("libcuda.so.1", "nvcuda.dll"))), None)
        if self._library is None:
            raise Unsupported("there is no CUDA driver")
        try:
            self("cuInit", 0)
        except DriverError as error:
            raise Unsupported(str(error)) from None
        self.version = self.number("cuDriverGetVersion")

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))  # type: ignore[union-attr]
            raise DriverError(f"{name}: {(text.value or b'unknown error').decode()} ({status})")

    def number(self, name: str, *arguments: Any) -> int:
        """Calls the driver's function `name`, which writes an integer to its first argument, with further arguments; returns the integer."""
        found = ctypes.c_int()
        self(name, ctypes.byref(found), *arguments)
        return found.value

    @contextmanager
    def context(self, pointer: Any) -> Generator[None, None, None]:
        """Context manager that makes the CUDA context at the address `pointer` current in this thread."""
        self("cuCtxPushCurrent_v2", pointer)
        try:
            yield
        finally:
            self("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def _loaded(name: str) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


# The driver of this machine.
driver = functools.cache(Driver)


# Attributes of a device: number of multiprocessors, threads and registers of each, major and minor compute capability.
_PROCESSORS, _THREADS, _REGISTERS, _MAJOR, _MINOR = 16, 39, 82, 75, 76
# Attributes of a kernel: bytes of its stack, registers of a thread.
_LOCAL_BYTES, _REGISTERS_OF_THREAD = 3, 4


@functools.cache
def attribute(which: int, device: int = 0) -> int:
    """Returns a property of the GPU with index `device`, such as its number of processors; `which` is its code in CUDA's `CUdevice_attribute`."""
    return driver().number("cuDeviceGetAttribute", which, driver().number("cuDeviceGet", device))


def architecture(device: int = 0) -> str:
    """Returns the target architecture of the GPU with index `device`, such as `sm_90a`."""
    major, minor = attribute(_MAJOR, device), attribute(_MINOR, device)
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def active() -> list[int]:
    """Returns the indices of the GPUs that XLA uses: those on which this process has a context."""
    found, flags, is_active = list[int](), ctypes.c_uint(), ctypes.c_int()
    for device in range(driver().number("cuDeviceGetCount")):
        handle = driver().number("cuDeviceGet", device)
        driver()("cuDevicePrimaryCtxGetState", handle, ctypes.byref(flags), ctypes.byref(is_active))
        found += [device] if is_active.value else []
    return found


@contextmanager
def primary(device: int) -> Generator[None, None, None]:
    """Context manager that makes XLA's CUDA context on the GPU with index `device` current in this thread."""
    context, handle = ctypes.c_void_p(), driver().number("cuDeviceGet", device)
    driver()("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    try:
        with driver().context(context):
            yield
    finally:
        driver()("cuDevicePrimaryCtxRelease_v2", handle)


@dataclasses.dataclass(frozen=True)
class LoadedKernel:
    """Kernel that is loaded on a device.

    Attributes:
      function: the driver's handle of the kernel.
      device: index of the device.
      registers: number of registers that a thread uses.
      local_bytes: bytes of device memory that a thread's stack takes.
    """

    function: Any
    device: int
    registers: int
    local_bytes: int

    @staticmethod
    def of(code: bytes, device: int) -> "LoadedKernel":
        """Loads machine code in the current CUDA context, that of the GPU with index `device`. Raises `DriverError` if the driver refuses it."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        driver()("cuModuleLoadData", ctypes.byref(module), code)
        driver()("cuModuleGetFunction", ctypes.byref(function), module, b"rounds")
        numbers = (driver().number("cuFuncGetAttribute", one, function) for one in (_REGISTERS_OF_THREAD, _LOCAL_BYTES))
        return LoadedKernel(function, device, *numbers)

    @property
    def threads_at_once(self) -> int:
        """Returns how many threads of the kernel its device runs at once. Registers are the limit: a warp of 32 threads gets them in units of 256."""
        of_warp = -(-self.registers * 32 // 256) * 256 or 256
        warps = 4 * (attribute(_REGISTERS, self.device) // 4 // of_warp)
        blocks = min(32 * warps, attribute(_THREADS, self.device)) // BLOCK
        return max(1, blocks) * BLOCK * attribute(_PROCESSORS, self.device)

    def check_memory(self, scratch: int) -> None:
        """Raises `SlowerThanScan` if a thread's stack or a run's `scratch` bytes exceed a limit, and `Unsupported` if all stacks exceed free memory.

        The driver reserves stacks for all threads that the device can run at once, and reuses the memory of earlier kernels' stacks: only additional
        bytes must be free.
        """
        if self.local_bytes > MOST_STACK or scratch > MOST_SCRATCH:
            size = (self.local_bytes + scratch) / 1024
            raise SlowerThanScan(f"a run has {size:.1f} KiB of arrays in memory, with which the scan is faster on a GPU")
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        driver()("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        more = max(0, self.local_bytes - _reserved.get(self.device, 0))
        needed = more * attribute(_PROCESSORS, self.device) * attribute(_THREADS, self.device)
        if needed > free.value:
            raise Unsupported(
                f"its local arrays need {needed / 1e9:.3g} GB of the device, and {free.value / 1e9:.3g} GB are free; "
                "XLA_PYTHON_CLIENT_MEM_FRACTION=0.5 leaves more"
            )


_reserved: dict[int, int] = {}  # Bytes that are reserved for each thread's stack, by device.


class Kernel:
    """Simulation kernel for GPUs: compiles its CUDA text, loads the machine code on the devices that XLA uses, and launches it.

    Args:
      text: text of the kernel in CUDA C.
      scratch: bytes of scratch memory that a run needs.

    Attributes:
      done: completed share of the rounds of the current call, in [0, 1].
    """

    def __init__(self, text: str, scratch: int = 0):
        self.done, self.scratch = 0.0, scratch
        self._text = text
        self._loaded: dict[int, LoadedKernel] = {}
        self._pace: dict[tuple[int, int], float] = {}  # Rounds per second, by runs and settings.
        self._lock, self._stopped = threading.Lock(), threading.Event()

    def prepare(self, devices: Sequence[int] = ()) -> "Kernel":
        """Compiles the kernel and loads it on the GPUs with the indices `devices`; an empty sequence means all that XLA uses. Returns the kernel.

        Raises `SlowerThanScan` if its arrays in memory are too large (see `check_memory`), and `Unsupported` if it cannot be compiled or loaded.
        """
        try:
            used = [device for device in active() if device in devices or not devices]
            for one in {architecture(device) for device in used or active() or [0]}:
                compiled(self._text, one)
            for device in used:
                with primary(device):
                    self.loaded().check_memory(self.scratch)
        except DriverError as error:
            raise Unsupported(str(error)) from None
        return self

    def loaded(self) -> LoadedKernel:
        """Returns the loaded kernel of the current CUDA context, after compiling and loading it if needed."""
        context = ctypes.c_void_p()
        driver()("cuCtxGetCurrent", ctypes.byref(context))
        with self._lock:
            if (place := context.value or 0) not in self._loaded:
                device = driver().number("cuCtxGetDevice")
                self._loaded[place] = LoadedKernel.of(compiled(self._text, architecture(device)), device)
            return self._loaded[place]

    def threads_at_once(self) -> int:
        """Returns how many threads of the kernel a GPU runs at once: the minimum over the GPUs that have loaded it, or 131,072 if none has."""
        return min((one.threads_at_once for one in self._loaded.values()), default=1 << 17)

    def interrupt(self, stopped: bool = True) -> None:
        """Stops calls after their current launch, or allows calls again if `stopped` is False."""
        (self._stopped.set if stopped else self._stopped.clear)()

    def launch(self, addresses: Sequence[int], intervals: int, runs: int, settings: int, stream: int) -> None:
        """Simulates all rounds of the runs by launches of about half a second, and waits for each. Raises `InterruptedError` after `interrupt`.

        Args:
          addresses: pointers to the inputs (the first is int32 `[intervals, 2]`, first round and number of rounds of each interval), to the
            outputs, and to scratch memory.
          intervals, runs, settings: numbers of record intervals, of runs of each setting, and of settings.
          stream: the driver's handle of the CUDA stream on which to launch.
        """
        context, on = ctypes.c_void_p(), ctypes.c_void_p(stream)
        driver()("cuStreamGetCtx", on, ctypes.byref(context))
        with driver().context(context):
            kernel, spans = self.loaded(), np.empty((intervals, 2), np.int32)
            driver()("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(spans.ctypes.data), ctypes.c_void_p(addresses[0]), ctypes.c_size_t(spans.nbytes), on)  # fmt: skip
            driver()("cuStreamSynchronize", on)
            ends = spans.sum(axis=1, dtype=np.int64)
            pointers = [ctypes.c_void_p(a) for a in addresses]
            grid = -(-runs // BLOCK), settings, 1
            for start, stop in self._pieces(int(spans[0, 0]), ends, (runs, settings)):
                values = [*pointers, ctypes.c_longlong(runs), ctypes.c_int(start), ctypes.c_int(stop)]
                given = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
                driver()("cuLaunchKernel", kernel.function, *grid, BLOCK, 1, 1, 0, on, given, None)
                driver()("cuStreamSynchronize", on)
                _reserved[kernel.device] = max(kernel.local_bytes, _reserved.get(kernel.device, 0))

    def _pieces(self, first: int, ends: np.ndarray, size: tuple[int, int]) -> Generator[tuple[int, int], None, None]:
        """Yields pairs (first round, end round) of launches, which together simulate the rounds from `first` to the last record time in `ends`.

        The caller runs each launch before it takes the next. The measured pace decides the next launch's number of rounds, so that it takes about
        half a second, and the first launch's in later calls with the same `size`, which is (runs, settings).
        """
        at, last = first, int(ends[-1])
        most = FIRST_ROUNDS if size not in self._pace else max(1, int(self._pace[size] * LAUNCH_S))
        self.done = 0.0
        while at < last:
            stop = piece_end(at, most, ends)
            begin = time.perf_counter()
            yield at, stop
            pace = (stop - at) / max(time.perf_counter() - begin, 1e-9)
            most = min(GROWTH * most, max(1, int(pace * LAUNCH_S)))
            at, self._pace[size], self.done = stop, pace, (stop - first) / (last - first)
            if at < last and self._stopped.is_set():
                raise InterruptedError("the run was interrupted")


def piece_end(at: int, most: int, ends: np.ndarray) -> int:
    """Returns the end (exclusive) of a launch that starts at round `at` and has about `most` rounds. `ends` are all record times, ascending.

    If at most `1.25 * most` rounds remain, it is the last record time. Otherwise it is the last one up to `at + most` or, without one, `at + most`.
    """
    if ends[-1] - at <= most + most // 4:
        return int(ends[-1])
    records = ends[(ends > at) & (ends <= at + most)]
    return int(records[-1]) if records.size else at + most


def trial() -> str | None:
    """Compiles and launches a trivial kernel on XLA's first GPU. Returns None if it works, else the reason of the failure and a remedy."""
    try:
        return None if _tried() else "a trivial kernel gives wrong numbers; update the driver"
    except Unsupported as error:
        return str(error)
    except DriverError as error:
        return f"the driver refuses a trivial kernel: {error}; update it, or {_install(driver().version // 1000)}"


@functools.cache  # Errors are not cached.
def _tried() -> bool:
    device = (active() or [0])[0]
    code = compile_text(TRIVIAL, architecture(device))
    with primary(device):
        kernel, memory, numbers = LoadedKernel.of(code, device), ctypes.c_void_p(), np.zeros(BLOCK, np.float32)
        driver()("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(numbers.nbytes))
        try:
            given = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
            driver()("cuLaunchKernel", kernel.function, 1, 1, 1, BLOCK, 1, 1, 0, None, given, None)
            driver()("cuMemcpyDtoH_v2", ctypes.c_void_p(numbers.ctypes.data), memory, ctypes.c_size_t(numbers.nbytes))
        finally:
            driver()("cuMemFree_v2", memory)
    return np.array_equal(numbers, np.arange(BLOCK) / 4 + 1)
