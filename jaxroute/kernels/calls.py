"""Registers Python functions as custom calls of XLA, by ctypes and the C interface of XLA's FFI, and lets callers wait for compilations of kernels.

The interface is binary and versioned ("XLA runtime guarantees that old API versions are supported for at least 12 months", c_api.h). Only its oldest
part is used: call frame, buffers, stream and error. So no build and no header is needed. A call simulates all rounds of all its runs, so that taking
Python's lock once is negligible.
"""

import contextlib
import contextvars
import ctypes
import itertools
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax

from jaxroute.core.provenance import cores
from jaxroute.core.rounding import within
from jaxroute.kernels.ir import Unsupported

_VOID, _SIZE, _LONG, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int
_METADATA, _EXECUTE = 1, 3
_INTERNAL = 13
_numbers = itertools.count()


def _structure(**fields: Any) -> Any:
    return type("Structure", (ctypes.Structure,), {"_fields_": [("struct_size", _SIZE), *fields.items()]})


_Extension = _structure(type=_INT, next=_VOID)
_Version = _structure(extension_start=_VOID, major=_INT, minor=_INT)
_Metadata = _structure(version=_Version, traits=ctypes.c_uint32)
_Buffer = _structure(extension_start=_VOID, dtype=_INT, data=_VOID, rank=_LONG, dims=ctypes.POINTER(_LONG))
_Buffers = _structure(extension_start=_VOID, size=_LONG, types=_VOID, items=ctypes.POINTER(ctypes.POINTER(_Buffer)))
_METHODS = ("internal", "error_create", "error_message", "error_destroy", "register", "stream_get")
_Api = _structure(extension_start=_VOID, version=_Version, **dict.fromkeys(_METHODS, _VOID))
_POINTERS = {"extension_start": ctypes.POINTER(_Extension), "api": ctypes.POINTER(_Api)}
_Frame = _structure(**_POINTERS, context=_VOID, stage=_INT, arguments=_Buffers, results=_Buffers)
_ErrorArguments = _structure(extension_start=_VOID, message=ctypes.c_char_p, code=_INT)
_StreamArguments = _structure(extension_start=_VOID, context=_VOID, stream=_VOID)


class _MetadataExtension(ctypes.Structure):
    _fields_ = [("base", _Extension), ("metadata", ctypes.POINTER(_Metadata))]


_HANDLER = ctypes.CFUNCTYPE(_VOID, ctypes.POINTER(_Frame))
_METHOD = ctypes.CFUNCTYPE(_VOID, _VOID)


class Buffer(NamedTuple):
    """Array in memory that XLA passes to a call: its address and shape."""

    address: int
    shape: tuple[int, ...]


class Call(NamedTuple):
    """Call of a registered function: `arguments` to read, `results` to fill, and a C structure, `frame`, from which `stream` gets the CUDA stream."""

    arguments: Sequence[Buffer]
    results: Sequence[Buffer]
    frame: Any

    def stream(self) -> int:
        """Returns the address of the CUDA stream on which the call must run."""
        api = self.frame.api.contents
        arguments = _StreamArguments(ctypes.sizeof(_StreamArguments), None, self.frame.context, None)
        _METHOD(api.stream_get)(ctypes.addressof(arguments))
        return arguments.stream or 0


def register(function: Callable[[Call], None], platform: str, name: str | None = None) -> str:
    """Lets XLA's programs on a platform ("cpu" or "CUDA") call a function by `name` (None: a new name) until the process ends. Returns the name."""

    def handle(pointer: Any) -> int | None:
        frame = pointer.contents
        try:
            if not _is_metadata(frame) and frame.stage == _EXECUTE:
                function(Call(_buffers(frame.arguments), _buffers(frame.results), frame))
            return None
        except BaseException as error:  # XLA propagates only its own errors.
            if not isinstance(error, Exception):
                _interrupts.append(error)
            text = f"{type(error).__name__}: {error}".encode()
            arguments = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, text, _INTERNAL)
            return _METHOD(frame.api.contents.error_create)(ctypes.addressof(arguments))

    handler = _HANDLER(handle)
    _kept.append(handler)
    name = f"jaxroute_{next(_numbers)}" if name is None else name
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform=platform)
    return name


_kept: list[Any] = []
_interrupts: list[BaseException] = []


def raise_interrupt() -> None:
    """Raises the KeyboardInterrupt that arrived during a call, if any. XLA itself reports it only as an internal error."""
    if _interrupts:
        raise _interrupts.pop()


def _is_metadata(frame: Any) -> bool:
    """Whether a call only asks for the interface's version, which is then written to `frame`. Raises if XLA's major version is not 0."""
    if not frame.extension_start or frame.extension_start.contents.type != _METADATA:
        return False
    extension = ctypes.cast(frame.extension_start, ctypes.POINTER(_MetadataExtension)).contents
    own, version = frame.api.contents.version, extension.metadata.contents.version
    if own.major != 0:
        found = f"this jaxlib has {own.major}.{own.minor}"
        raise RuntimeError(f"jaxroute knows version 0 of XLA's foreign function interface, {found}")
    version.major, version.minor = own.major, own.minor
    extension.metadata.contents.traits = 0
    return True


def _buffers(found: Any) -> list[Buffer]:
    items = (found.items[i].contents for i in range(found.size))
    return [Buffer(one.data or 0, tuple(one.dims[k] for k in range(one.rank))) for one in items]


# Compilations of kernels, which start while a program is lowered and are finished before it is compiled

# Time limit of a compilation, in seconds.
MOST_S = 120

# Threads that compile kernels.
pool = ThreadPoolExecutor(cores(), thread_name_prefix="kernels")
# Started compilations, each with its kernel on a GPU (None on a CPU).
Started = list[tuple[Future[Any], Any]]
_started: contextvars.ContextVar[Started | None] = contextvars.ContextVar("started", default=None)
# Indices of the GPUs for which programs are lowered; empty for all GPUs of this process.
devices: contextvars.ContextVar[tuple[int, ...]] = contextvars.ContextVar("devices", default=())


def note(future: Future[Any], kernel: Any = None) -> None:
    """Adds a started compilation, `future`, to the list of the enclosing `compilations`, if any. `kernel` is the `cuda.Kernel`, None on a CPU."""
    started = _started.get()
    if started is not None:
        started.append((future, kernel))


@contextlib.contextmanager
def compilations(own: Sequence[int] = ()) -> Generator[Started, None, None]:
    """Context manager that yields a list of the kernel compilations started inside it. `own`: indices of the GPUs to compile for; empty: all."""
    started: Started = []
    with within(_started, started), within(devices, tuple(own)):
        yield started


def finish(kernels: Started) -> None:
    """Waits until the kernels' compilations have finished. Raises the error of a failed compilation, and `Unsupported` if one takes too long."""
    for kernel, _ in kernels:
        try:
            kernel.result(MOST_S)
        except TimeoutError:
            raise Unsupported(f"compiling it takes more than {MOST_S} s") from None
