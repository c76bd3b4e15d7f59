"""Simulates all rounds of each run by one call of a kernel, in C generated from the same functions as the scan.

On a GPU a scan over rounds launches several small kernels a round, which takes longer than their computation. Here each run has a thread, which
holds its states, draws random numbers from the same streams, and writes to memory only at record times.
"""

import ctypes
import functools
import hashlib
import itertools
import math
import operator
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from jaxroute.core.batching.lanes import lanes
from jaxroute.engine.precision import in_64_bits
from jaxroute.engine.rollout import spans_of
from jaxroute.engine.rounds import LONGEST_CHUNK, STATE, Record, leaves_of, one_run, states_of
from jaxroute.kernels import calls, cuda, host
from jaxroute.kernels.ir import Unsupported
from jaxroute.kernels.source import RoundsWriter, Source, steps


def kernel_rollout(
    env: Any,
    policy: Any,
    streams: Mapping[str, jax.Array],
    horizon: int,
    record: Record,
    *,
    since: int = 0,
    resumed: Mapping[str, jax.Array] | None = None,
    keep_states: bool = False,
    spans: jax.Array | None = None,
    wide: bool = False,
    fast: bool = False,
) -> dict[str, Any]:
    """Simulates `R` runs by one call of a kernel. Returns the records, arrays `[records, ..., R]` by name (see `engine.rollout.packed_rollout`).

    Raises `Unsupported` if a round, a plan or a gauge (see `kernels`) has an operation that cannot be translated to C.

    Args:
      env, policy: environment (or a sampler `key -> Environment`, for one instance per run) and policy (or a function `env -> policy`).
      streams: words of the runs' random keys by name.
      horizon, record: number of rounds after the warm-up, and quantities to record.
      since: number of rounds (without warm-up) before the checkpoint from which runs resume; 0 without one.
      resumed: states in that checkpoint by name; None without one.
      keep_states: whether to return the last states, too.
      spans: first round and number of rounds of each record interval, if the program serves several horizons; None otherwise.
      wide: whether to simulate several runs at once, on CPUs; otherwise runs are sequential on CPUs and have a thread each on GPUs.
      fast: whether elementwise operations use a GPU's library functions, where available, instead of their definitions.
    """
    if in_64_bits():
        raise Unsupported("numbers of 64 bits")
    run = one_run(env, policy, streams, horizon, record)
    start = lambda: lanes(run.start, run.size)(run.instance, run.words)  # noqa: E731
    states = states_of(resumed, jax.eval_shape(start)) if resumed else start()
    since = since if resumed else 0
    warm_up = 0 if resumed else run.free_rounds
    if spans is None:
        spans = jnp.asarray(spans_of(horizon - since, record.every, warm_up, run.free_rounds + since))
    # Without stages a short interval is one chunk of any length, so that the kernel serves other intervals.
    chunk = run.chunk if run.stage_length or record.every > LONGEST_CHUNK else LONGEST_CHUNK
    writer = RoundsWriter(run, states, spans, chunk, warm_up > 0, wide, fast)
    source, names = writer.source(), writer.names
    common, own = iter(writer.shared), iter(leaves_of(((run.instance, run.words), states)).values())
    operands = [next(common if array.shared else own) for array in source.inputs]
    outs = rounds_p.bind(*operands, source=source, size=run.size, lead=(), spread=((),) * len(operands))
    values = dict(zip(names, outs, strict=False))
    if keep_states:
        values |= {f"{STATE}{number}": leaf for number, leaf in enumerate(outs[len(names) :])}
    return values


rounds_p = Primitive("rounds")
rounds_p.multiple_results = True


@rounds_p.def_abstract_eval
def _(*operands: Any, source: Source, size: int, lead: tuple[int, ...], spread: Any) -> list[Any]:
    del operands, spread
    return [ShapedArray((*lead, *array.shape, size), array.dtype) for array in source.outputs]


def _batch(operands: Sequence[Any], dims: Sequence[int | None], *, source: Source, size: int, lead: Any, spread: Any) -> Any:
    """Batching rule of a kernel's call: `jax.vmap` adds a first axis to `lead` and, for each operand, whether it has this axis to `spread`."""
    number = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)
    moved = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(operands, dims, strict=True)]
    spread = tuple((d is not None, *own) for d, own in zip(dims, spread, strict=True))
    outs = rounds_p.bind(*moved, source=source, size=size, lead=(number, *lead), spread=spread)
    return outs, [0] * len(outs)


batching.primitive_batchers[rounds_p] = _batch


_registering = threading.Lock()
_registered: dict[str, Future[Any]] = {}


def _host_target(source: Source, lead: tuple[int, ...], spread: Any, size: int) -> tuple[str, Future[Any]]:
    """Starts compiling a kernel for a CPU. Returns its call's name in XLA and the compilation's future. `lead`, `spread`: see `Source.for_device`."""
    text, every = source.for_host(), steps(lead, (True,) * len(lead))
    # For each array its steps between two settings along each axis, and its bytes.
    sizes = [math.prod(a.shape) * (1 if a.shared else size) * a.dtype.itemsize for a in source.inputs]
    inputs = [(steps(lead, own), n) for own, n in zip(spread, sizes, strict=True)]
    outputs = [(every, math.prod(a.shape) * size * a.dtype.itemsize) for a in source.outputs]

    def addresses(buffers: Sequence[calls.Buffer], strides: Any, setting: Sequence[int]) -> Any:
        skipped = (size * sum(map(operator.mul, setting, own)) for own, size in strides)
        moved = [b.address + skip for b, skip in zip(buffers, skipped, strict=True)]
        return (ctypes.c_void_p * max(1, len(moved)))(*moved)

    def simulate(call: calls.Call) -> None:
        rounds = compilation.result()
        for setting in itertools.product(*map(range, lead)):
            rounds(0, size, size, addresses(call.arguments, inputs, setting), addresses(call.results, outputs, setting))

    what = (text, source.wide, host.compiler(source.wide), host.own_flags(), size, lead, inputs, outputs)
    name = f"jaxroute_{hashlib.sha256(repr(what).encode()).hexdigest()[:32]}"
    with _registering:
        if name not in _registered:
            _registered[name] = compilation = calls.pool.submit(host.compiled, text, source.wide)
            calls.register(simulate, "cpu", name)
        elif (known := _registered[name]).done() and known.exception():
            raise Unsupported(str(known.exception()))
        return name, _registered[name]


@functools.lru_cache(maxsize=256)
def _device_target(
    source: Source, lead: tuple[int, ...], spread: Any, size: int, devices: tuple[int, ...]
) -> tuple[str, Future[Any], cuda.Kernel]:
    """Starts compiling for the GPUs `devices` (empty: all). Returns its call's name in XLA, the future and the kernel. See also `_host_target`."""
    if (settings := math.prod(lead)) > cuda.MOST_SETTINGS:
        raise Unsupported(f"{settings:,} settings of a call; a launch has {cuda.MOST_SETTINGS:,} at most")
    kernel = cuda.Kernel(source.for_device(lead, spread), source.scratch)
    prepared = calls.pool.submit(kernel.prepare, devices)

    def simulate(call: calls.Call) -> None:
        prepared.result()
        addresses = [b.address for b in (*call.arguments, *call.results)]
        kernel.launch(addresses, call.arguments[0].shape[0], size, settings, call.stream())

    return calls.register(simulate, "CUDA"), prepared, kernel


def _lowered_for_host(ctx: Any, *operands: Any, source: Source, size: int, lead: Any, spread: Any) -> Any:
    name, compilation = _host_target(source, lead, spread, size)
    calls.note(compilation)
    return jax.ffi.ffi_lowering(name)(ctx, *operands)


def _lowered_for_device(ctx: Any, *operands: Any, source: Source, size: int, lead: Any, spread: Any) -> Any:
    name, compilation, kernel = _device_target(source, lead, spread, size, calls.devices.get())
    calls.note(compilation, kernel)
    # A further result, dropped below, makes XLA allocate the scratch memory.
    scratch = ShapedArray((math.prod(lead), source.scratch, size), np.dtype(np.uint8))
    return jax.ffi.ffi_lowering(name)(ctx.replace(avals_out=[*ctx.avals_out, scratch]), *operands)[:-1]


mlir.register_lowering(rounds_p, _lowered_for_host, platform="cpu")
mlir.register_lowering(rounds_p, _lowered_for_device, platform="cuda")
rounds_p.def_impl(lambda *operands, **params: jax.jit(functools.partial(rounds_p.bind, **params))(*operands))
