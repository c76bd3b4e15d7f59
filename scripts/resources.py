"""What every default policy's kernel needs of an H100: compiled ahead of time by NVRTC, no device needed.

    python scripts/resources.py                        # a table here, JSON in scripts/bench_results/resources.json
    python scripts/resources.py --only stochastic --policies UCB1 --keep folder

The packages of `pip install jaxroute[sass]` must be there. Seconds are of tracing and writing C, and of NVRTC. Instructions are those between
the begin of a round and its end, inner loops once, whether they are reached in every round or not; `loops` are the longest of these. The ceiling is
what 132 processors with four schedulers of 32 lanes at 1.98 GHz could play if each instruction took one cycle, and nothing else did.
"""

import argparse
import collections
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from kernels import ENVIRONMENTS, pairs

from jaxroute.core import draws
from jaxroute.core.protocols import build_policy, is_environment
from jaxroute.engine.batching.lanes import lanes
from jaxroute.engine.grid import canonical
from jaxroute.engine.kernels import cuda
from jaxroute.engine.kernels.source import Source, source_of
from jaxroute.engine.kernels.values import Unsupported
from jaxroute.engine.rollout import spans_of
from jaxroute.engine.rounds import Record, one_run, run_streams

RESULTS = Path(__file__).resolve().parent / "bench_results" / "resources.json"
TARGET = "sm_90a"
HORIZON, EVERY = 10_000, 100
# Marks the begin of a round in the machine code.
MARK = '-DBEGIN_ROUND=asm volatile("pmevent 7;");'
# What jax's Triton made of the same policies (commit 090f826): registers, bytes of the stack, instructions of a round.
TRITON = {
    ("stochastic", "UCB1"): (117, 0, 698),
    ("stochastic", "EpsilonGreedy"): (168, 0, 1416),
    ("stochastic", "GaussianThompson"): (96, 0, 1949),
    ("service", "MessPlus"): (167, 0, 2754),
    ("staged", "StageRoute"): (255, 272, 3339),
    ("combinatorial", "C2MABV"): (255, 328, 7156),
}
_BRANCH = re.compile(r"BRA.*?(\.L_\w+)")


def source(env: Any, policy: Any) -> Source:
    """The kernel of a policy, whose leaves are inputs as in `simulate`; recorded are the default flows."""
    builds = not hasattr(policy, "act")
    leaves, treedef = jax.tree.flatten(canonical((env, () if builds else policy)))
    example = env if is_environment(env) else env(draws.key(0))
    flows = tuple(m for m in example.spec.metrics if m.kind != "gauge" and m.default)
    record = Record(every=EVERY, flows=flows, zero_flows=example.spec.zero_flows)
    root = np.asarray(jax.random.key_data(draws.key(0)))
    made: list[Source] = []

    def play(leaves: Any, seeds: Any) -> Any:
        env, own = jax.tree.unflatten(treedef, leaves)
        own = policy if builds else own
        run = one_run(env, build_policy(own, env) if is_environment(env) else own, run_streams(root, seeds), HORIZON, record)
        states = lanes(run.start, run.size)(run.instance, run.words)
        spans = spans_of(HORIZON, EVERY, run.free_rounds, run.free_rounds)
        made.append(source_of(run, states, spans, run.chunk, run.free_rounds > 0)[0])
        return seeds

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    jax.eval_shape(play, shapes, jax.ShapeDtypeStruct((64,), np.uint32))
    return made[0]


def resources(code: bytes, folder: Path) -> dict[str, Any]:
    """Registers, bytes of the stack, instructions of a round, and loads and stores of the stack in it."""
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
    back = [
        (labels[m[1]], i)
        for i, one in enumerate(instructions)
        if (m := _BRANCH.search(one)) and labels.get(m[1], i + 1) <= i
    ]
    mark = next(i for i, one in enumerate(instructions) if "PMTRIG" in one)
    first, last = min((span for span in back if span[0] <= mark <= span[1]), key=lambda span: span[1] - span[0])
    inner = sorted((b - a + 1 for a, b in back if first < a and b < last), reverse=True)
    names = collections.Counter(
        re.sub(r"^@!?U?P\w+ ", "", one).split()[0].split(".")[0] for one in instructions[first : last + 1]
    )
    return {
        "registers": registers,
        "stack_bytes": stack,
        "round_instructions": last - first + 1,
        "loops": inner[:4],
        "stack_accesses": names["LDL"] + names["STL"],
        "warps": min(64, 65536 // (-(-registers // 8) * 8 * 32)),
        "ceiling": 132 * 4 * 32 * 1.98e9 / (last - first + 1),
    }


def tool(name: str) -> str:
    """One of NVIDIA's binary utilities."""
    files = importlib.metadata.files(f"nvidia-cuda-{name}") or []
    return str(next(f for f in files if f.stem == name and f.suffix in ("", ".exe")).locate())


def measure(env: Any, policy: Any, folder: Path) -> dict[str, Any]:
    """A row of the table; `reason` if there is no kernel."""
    start = time.perf_counter()
    try:
        made = source(env, policy)
    except Unsupported as error:
        return {"reason": str(error)}
    written = time.perf_counter()
    code = cuda.compile_text(made.for_device(), TARGET, (*cuda.OPTIONS, MARK))
    row = {"write_s": round(written - start, 2), "compile_s": round(time.perf_counter() - written, 2)}
    return row | resources(code, folder)


def check(now: dict[str, Any], stored: dict[str, Any], more: float = 0.1) -> list[str]:
    """In what a kernel has become worse than a stored row by more than a share, in words."""
    names = ("registers", "stack_bytes", "round_instructions", "stack_accesses")
    return [f"{name} {stored[name]} -> {now[name]}" for name in names if now[name] > (1 + more) * stored[name] + 4]


def main(arguments: list[str] | None = None) -> int:
    """Compiles, prints and stores; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ENVIRONMENTS, metavar="PROBLEM", help="these problems only")
    parser.add_argument("--policies", nargs="+", help="names of policies (default: all)")
    parser.add_argument("--keep", type=Path, help="folder for the texts in C")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; pairs that are not compiled stay as they are")
    options = parser.parse_args(arguments)
    stored = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows = {(row["problem"], row["policy"]): row for row in stored}
    print(
        f"{'':<34}{'write s':>8}{'NVRTC s':>8}{'registers':>10}{'stack B':>8}{'round':>8}{'LDL+STL':>8}{'warps':>6}{'ceiling':>9}  loops"
    )
    for problem, name, env, policy in pairs(options.only, options.policies):
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{problem}.{name}.cu").write_text(source(env, policy).for_device())
        with tempfile.TemporaryDirectory() as folder:
            row = {"problem": problem, "policy": name, **measure(env, policy, Path(folder))}
        if (problem, name) in TRITON:
            row["triton"] = dict(zip(("registers", "stack_bytes", "round_instructions"), TRITON[problem, name], strict=True))
        rows[problem, name] = row
        print(f"{problem:<14}{name:<20}" + show(row), flush=True)
        report = {
            "target": TARGET,
            "options": cuda.OPTIONS,
            "nvrtc": cuda.version(),
            "rows": [rows[key] for key in sorted(rows)],
        }
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def show(row: dict[str, Any]) -> str:
    """A line of the table."""
    if "reason" in row:
        return f"  no kernel: {row['reason']}"
    return (
        f"{row['write_s']:>8.2f}{row['compile_s']:>8.2f}{row['registers']:>10}{row['stack_bytes']:>8}{row['round_instructions']:>8}"
        f"{row['stack_accesses']:>8}{row['warps']:>6}{row['ceiling']:>9.1e}  {', '.join(map(str, row['loops']))}"
    )


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
