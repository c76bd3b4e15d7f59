"""Measures the GPU resources of the kernel of every default policy, compiled ahead of time by NVRTC; needs no GPU.

    python scripts/resources.py                        # for an H100: a table here, JSON in scripts/bench_results/resources.json
    python scripts/resources.py --only stochastic --policies UCB1 --keep folder
    python scripts/resources.py --variants all --out FILE                      # other numbers of registers
    JAXROUTE_NVRTC=LIBRARY python scripts/resources.py --targets sm_75 sm_90a --out FILE

Needs the packages of `pip install jaxroute[sass]`. Seconds are those of tracing and writing C, and of NVRTC. Instructions are all between the start and
the end of a round, with inner loops once; `loops` are the longest of these.

Cycles of a round are the maximum of all instructions and twice those of the pipe for integers, comparisons and selections, which processes a warp in
two cycles. The ceiling is the throughput of an H100 for these cycles: 132 processors with four schedulers of 32 lanes at 1.98 GHz. `expected` also
considers few warps and the stack (`expected_cycles`); it compares variants of a kernel, not different kernels.
"""

import importlib.metadata
import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from kernels import pairs, parser_of, stored

from jaxroute.core import draws
from jaxroute.core.batching.lanes import lanes
from jaxroute.core.protocols import build_policy, is_environment
from jaxroute.engine.grid import canonical
from jaxroute.engine.rollout import spans_of
from jaxroute.engine.rounds import Record, one_run, run_streams
from jaxroute.kernels import cuda
from jaxroute.kernels.ir import Unsupported
from jaxroute.kernels.source import RoundsWriter, Source

RESULTS = Path(__file__).resolve().parent / "bench_results" / "resources.json"
TARGET = "sm_90a"
HORIZON, EVERY = 10_000, 100
# Ways to compile a kernel: more options of NVRTC, and bounds of a launch (threads of a block, blocks of a processor).
VARIANTS: dict[str, tuple[tuple[str, ...], str]] = {
    "usual": ((), ""),
    **{f"{n} registers": ((f"--maxrregcount={n}",), "") for n in (168, 128, 96)},
    **{f"bounds {bounds}": ((), bounds) for bounds in ("64, 4", "64, 8")},
}
# Decisions per second of an H100 if a round took a scheduler one cycle.
PEAK = 132 * 4 * 32 * 1.98e9
# Instructions of the pipe that processes a warp in two cycles.
_HALF_RATE = re.compile(
    r"(IADD3?|VIADD|LOP3?|PLOP3|SHF|SH[LR]|[IF]SETP?|[IF]?SEL|[IF]MNMX3?|VI\w+|LEA|PRMT|IABS|MOV|P2R|R2P|BMSK|SGXT)$"
)
# Bytes of the first cache of a processor that hold stacks, and cycles of a scheduler for a warp's access to a stack in that cache and behind it.
_CACHE, _NEAR, _FAR = 192 << 10, 4, 16
# Marks the start of a round in the machine code.
MARK = '-DBEGIN_ROUND=asm volatile("pmevent 7;");'
_BRANCH = re.compile(r"BRA.*?(\.L_\w+)")


def source(env: Any, policy: Any) -> Source:
    """Makes the C source of a policy's kernel; parameters are inputs, as in `simulate`, and the default metrics are recorded."""
    builds = not hasattr(policy, "act")
    leaves, treedef = jax.tree.flatten(canonical((env, () if builds else policy)))
    example = env if is_environment(env) else env(draws.key(0))
    flows = tuple(m for m in example.spec.metrics if m.kind != "gauge" and m.default)
    record = Record(every=EVERY, flows=flows, zero_flows=example.spec.zero_flows)
    root = np.asarray(jax.random.key_data(draws.key(0)))
    made: list[Source] = []

    def simulated(leaves: Any, seeds: Any) -> Any:
        env, own = jax.tree.unflatten(treedef, leaves)
        own = policy if builds else own
        run = one_run(env, build_policy(own, env) if is_environment(env) else own, run_streams(root, seeds), HORIZON, record)
        states = lanes(run.start, run.size)(run.instance, run.words)
        spans = spans_of(HORIZON, EVERY, run.free_rounds, run.free_rounds)
        made.append(RoundsWriter(run, states, spans, run.chunk, run.free_rounds > 0, fast=True).source())
        return seeds

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    jax.eval_shape(simulated, shapes, jax.ShapeDtypeStruct((64,), np.uint32))
    return made[0]


def resources(code: bytes, folder: Path) -> dict[str, Any]:
    """Returns a compiled kernel's registers and bytes of stack, and the instructions and stack accesses of a round, by disassembling `code`."""
    file = folder / "kernel.cubin"
    file.write_bytes(code)
    text, usage = (
        subprocess.run([tool(name), option, str(file)], capture_output=True, text=True, check=True).stdout
        for name, option in (("nvdisasm", "-c"), ("cuobjdump", "-res-usage"))
    )
    registers, stack = map(int, re.findall(r"REG:(\d+) STACK:(\d+)", usage)[0])
    instructions, labels = [], {}
    for line in text.splitlines():
        label = re.match(r"\s*(\.L_\w+):", line)
        if label:
            labels[label[1]] = len(instructions)
        found = re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?);", line)
        if found:
            instructions.append(found[1])
    jumps = [(labels.get(m[1], math.inf), i) for i, one in enumerate(instructions) if (m := _BRANCH.search(one))]
    back = [(start, end) for start, end in jumps if start <= end]
    mark = next(i for i, one in enumerate(instructions) if "PMTRIG" in one)
    first, last = min((span for span in back if span[0] <= mark <= span[1]), key=lambda span: span[1] - span[0])
    inner = sorted((b - a + 1 for a, b in back if first < a and b < last), reverse=True)
    row = {"registers": registers, "stack_bytes": stack, "code_kb": len(instructions) * 16 // 1024, "loops": inner[:4]}
    return row | of_round(instructions[first : last + 1], registers, stack)


def of_round(instructions: Sequence[str], registers: int, stack: int) -> dict[str, Any]:
    """Computes the numbers of the table for a round with these instructions, in a kernel with `registers` and `stack` bytes per thread."""
    names = [re.sub(r"^@!?U?P\w+ ", "", one).split()[0].split(".")[0] for one in instructions]
    row: dict[str, Any] = {
        "round_instructions": len(names),
        "half_rate": sum(bool(_HALF_RATE.match(name)) for name in names),
        "stack_accesses": names.count("LDL") + names.count("STL"),
        "warps": min(64, 4 * (16384 // (-(-registers // 8) * 8 * 32))),
    }
    row["round_cycles"] = max(row["round_instructions"], 2 * row["half_rate"])
    return row | {"ceiling": PEAK / row["round_cycles"], "expected": PEAK / expected_cycles(row, stack)}


def expected_cycles(row: Mapping[str, Any], stack: int) -> float:
    """Estimates how many cycles a scheduler of the GPU needs for a round of a warp.

    With fewer than four warps a scheduler is idle in some cycles. Accesses to the stack take longer if all stacks of a processor exceed its L1 cache.
    """
    far = stack * 32 * row["warps"] > _CACHE
    issued = row["round_instructions"] / min(1.0, row["warps"] / 16)
    return max(issued, 2.0 * row["half_rate"], row["stack_accesses"] * (_FAR if far else _NEAR))


def tool(name: str) -> str:
    """Returns the path of one of NVIDIA's binary utilities, such as "nvdisasm"."""
    files = importlib.metadata.files(f"nvidia-cuda-{name}") or []
    return str(next(f for f in files if f.stem == name and f.suffix in ("", ".exe")).locate())


def bounded(text: str, bounds: str) -> str:
    """Adds launch bounds, which limit registers, to the text of a kernel; an empty `bounds` leaves the text unchanged."""
    return text.replace("__global__ void", f"__global__ void __launch_bounds__({bounds})") if bounds else text


def measure(made: Source, folder: Path, target: str = TARGET, variant: str = "usual") -> dict[str, Any]:
    """Compiles a kernel and returns its row of the table; if the kernel does not compile, the row has only the `reason`."""
    options, bounds = VARIANTS[variant]
    start = time.process_time()
    try:
        code = cuda.compile_text(bounded(made.for_device(), bounds), target, (*cuda.OPTIONS, *options, MARK))
    except Unsupported as error:
        return {"reason": str(error)}
    return {"compile_s": round(time.process_time() - start, 2)} | resources(code, folder)


def check(now: dict[str, Any], stored: dict[str, Any], more: float = 0.1) -> list[str]:
    """Describes the numbers of a kernel that are worse than in a stored row by more than the fraction `more`."""
    names = ("registers", "stack_bytes", "round_instructions", "stack_accesses")
    return [f"{name} {stored[name]} -> {now[name]}" for name in names if now[name] > (1 + more) * stored[name] + 4]


def main(arguments: list[str] | None = None) -> int:
    """Compiles the kernels of all policies, prints a table and stores it; returns the exit status 0."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--targets", nargs="+", default=[TARGET], help=f"architectures (default {TARGET})")
    parser.add_argument("--variants", nargs="+", choices=[*VARIANTS, "all"], default=["usual"], help="ways to compile")
    parser.add_argument("--keep", type=Path, help="folder for the texts in C")
    options = parser.parse_args(arguments)
    variants = list(VARIANTS) if "all" in options.variants else options.variants
    keys = ("problem", "policy", "target", "variant")
    rows = stored(options.out, keys)
    print(f"{'NVRTC ' + cuda.version():<56}" + "".join(f"{name:>{width}}" for name, _, width in COLUMNS) + "  loops")
    for problem, name, env, policy in pairs(options.only, options.policies):
        start = time.process_time()
        made = source(env, policy)
        write_s = round(time.process_time() - start, 2)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{problem}.{name}.cu").write_text(made.for_device())
        for target, variant in itertools.product(options.targets, variants):
            key = problem, name, target, variant
            with tempfile.TemporaryDirectory() as folder:
                row = {"write_s": write_s, **measure(made, Path(folder), target, variant)}
            rows[key] = dict(zip(keys, key, strict=True)) | row
            print(f"{problem:<14}{name:<22}{target:<7}{variant:<13}{show(row)}", flush=True)
        lines = ",\n".join(json.dumps(rows[key]) for key in sorted(rows))
        head = json.dumps({"options": cuda.OPTIONS, "nvrtc": cuda.version()})
        options.out.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')
    return 0


# Of the table: heading, key of a row, width.
COLUMNS = (
    *(("write s", "write_s", 8), ("NVRTC s", "compile_s", 8), ("registers", "registers", 10), ("stack B", "stack_bytes", 8)),
    *(("KB", "code_kb", 5), ("round", "round_instructions", 7), ("cycles", "round_cycles", 7),
        ("LDL+STL", "stack_accesses", 8)),
    *(("warps", "warps", 6), ("ceiling", "ceiling", 9), ("expected", "expected", 9)),
)  # fmt: skip


def show(row: dict[str, Any]) -> str:
    """Formats a row as a line of the table."""
    if "reason" in row:
        return f"  does not compile: {row['reason']}"
    cells = (f"{row[key]:>{width}.1e}" if width == 9 else f"{row[key]:>{width}}" for _, key, width in COLUMNS)
    return f"{''.join(cells)}  {', '.join(map(str, row['loops']))}"


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
