"""Counts the kernels that a GPU launches per round, from the compiled module of every default policy; needs no GPU.

    python scripts/kernels.py                       # a table here, JSON in scripts/bench_results/kernels.json
    python scripts/kernels.py --only staged --policies StageRoute --keep modules

The scan over rounds is compiled ahead of time for a described H100, by the compiler that a GPU would use: the packages of
`pip install jaxroute[cuda12]` must be installed; a device is not needed. The script counts the instructions of the loop over rounds that become
a launch: fusions, reductions, sorts, copies, library calls. An inner loop counts its body times its iterations. A loop whose iterations depend on
the data is listed separately with the launches of one iteration, and so is the start of a stage. A branch counts its longest way.

`graph` is whether all loops of a run, also those of unknown length, are one graph on the device, which the host launches once; otherwise it
launches every kernel of every round.
"""

import argparse
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

import jaxroute
from jaxroute.core import draws, rounding
from jaxroute.core.batching.lanes import lanes
from jaxroute.core.protocols import build_policy
from jaxroute.engine.compiling import compile_lanes
from jaxroute.engine.grid import canonical
from jaxroute.engine.rollout import rollout
from jaxroute.engine.rounds import Record, one_run, run_streams
from jaxroute.problems import (
    cascade,
    combinatorial,
    contextual,
    default_policies,
    problems,
    queueing,
    service,
    staged,
    stochastic,
)

RESULTS = Path(__file__).resolve().parent / "bench_results" / "kernels.json"
TARGET = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 device_memory_size: 84929347584 clock_rate_ghz: 1.98
  cuda_compute_capability { major: 9 } driver_version: "12.9.0" runtime_version: "12.9.0"
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 } runtime_version { major: 12 minor: 9 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
# Where the compiler writes what the host launches.
DUMP = Path(tempfile.gettempdir()) / f"kernels-{os.getpid()}"
RUNS = 1 << 14
# Rounds of the counted loop, by which it is found in the module: a number that no other loop has.
ROUNDS = 997
MEANS = tuple(np.round(np.linspace(0.9, 0.0, 10), 6).tolist())
# The benchmark's environments.
ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    "stochastic": lambda: stochastic.bernoulli(MEANS),
    "contextual": lambda: contextual.logistic(np.linspace([1.0, -1.0, 0.5], [-1.0, 0.5, 1.0], 5), intercept=True),
    "staged": lambda: staged.arena_market(max_deployed=6, stage_length=250),
    "combinatorial": lambda: combinatorial.sciq_cloud(reward="suc"),
    "service": lambda: service.benchmark_service("winogrande", signal=0.15, reveals_labels=True),
    "queueing": queueing.RandomQueues,
    "cascade": cascade.uniform_cascade,
}

# Instructions that launch nothing.
_FREE = frozenset(
    ["parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "partition-id",
        "replica-id"])  # fmt: skip
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_CALLED = re.compile(r"(?:to_apply|calls|called_computations?|async_execution_computation)=\{?%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}|true_computation=%?([\w.\-]+), false_computation=%?([\w.\-]+)")
_TRIPS = re.compile(r'known_trip_count"?:\{"?n"?:"?(\d+)')


@dataclass
class Count:
    """Number of kernel launches in one execution of a computation.

    Attributes:
      kernels: number of launches that is known in advance.
      loops: launches per iteration of each inner loop whose number of iterations depends on the data.
    """

    kernels: int = 0
    loops: list[int] = field(default_factory=list)

    def add(self, other: "Count", times: int = 1) -> None:
        """Adds the launches of `times` executions of another computation."""
        self.kernels += times * other.kernels
        self.loops += times * other.loops


class Module:
    """Module of a compiled function in XLA's intermediate language after optimisation, parsed from its text."""

    def __init__(self, text: str):
        self.computations: dict[str, list[str]] = {}
        self.entry = name = ""
        for line in text.splitlines():
            head = _COMPUTATION.match(line)
            if head:
                name = head[1]
                self.computations[name] = []
                self.entry = name if line.startswith("ENTRY") else self.entry
            elif name and " = " in line:
                self.computations[name].append(line)

    def count(self, name: str = "") -> Count:
        """Counts the launches of one execution of the computation `name`, by default of the whole module."""
        total = Count()
        for line in self.computations[name or self.entry]:
            total.add(self._instruction(line))
        return total

    def loops(self, trips: int) -> list[str]:
        """Returns the names of the bodies of all loops with `trips` iterations."""
        lines = [line for lines in self.computations.values() for line in lines if opcode(line) == "while"]
        return [body_of(line) for line in lines if _trips(line) == trips]

    def _instruction(self, line: str) -> Count:
        kind = opcode(line)
        if kind in _FREE or kind.endswith("-done"):
            return Count()
        if kind == "while":
            body, trips, total = self.count(body_of(line)), _trips(line), Count()
            if trips is None:
                condition = re.search(r"condition=%?([\w.\-]+)", line)
                body.add(self.count(condition[1] if condition else ""))
                return Count(0, [body.kernels, *body.loops])
            total.add(body, trips)
            return total
        if kind == "conditional":
            listed, *two = _BRANCHES.search(line).groups()
            names = [name.strip().lstrip("%") for name in listed.split(",")] if listed else two
            return max((self.count(name) for name in names), key=lambda c: c.kernels + sum(c.loops))
        called = _CALLED.search(line)
        if kind in ("call", "async-start") and called:
            return self.count(called[1])
        return Count(1)


def opcode(line: str) -> str:
    """Returns the operation of an instruction of a module's text, such as "fusion"; it follows the type, which may be a tuple."""
    found = re.search(r" ([a-z][\w\-]*)\(", line.split(" = ", 1)[1])
    assert found, line
    return found[1]


def body_of(line: str) -> str:
    """Returns the name of the computation that a loop, given by its instruction, repeats."""
    found = re.search(r"body=%?([\w.\-]+)", line)
    assert found, line
    return found[1]


def _trips(line: str) -> int | None:
    found = _TRIPS.search(line)
    return int(found[1]) if found else None


def target() -> NamedSharding:
    """Returns a sharding that places everything on a described GPU, which need not exist; modules are compiled for it.

    Raises:
      SystemExit: jax's packages for CUDA are not installed, or do not accept the description.
    """
    try:
        described = topologies.get_topology_desc(platform="cuda", target_config=TARGET, topology="1x1x1")
    except (RuntimeError, NotImplementedError) as error:
        raise SystemExit(
            f"the GPU compiler is missing: install jax's packages for CUDA (pip install 'jaxroute[cuda12]'); no device is needed. {error}"
        ) from None
    return NamedSharding(topologies.make_mesh(described, (1,), ("seed",)), PartitionSpec())


def compiled(function: Callable, shapes, where: NamedSharding) -> tuple[str, str]:
    """Compiles `function(*shapes)` for a GPU; returns the text of the module and the list of the host's launches."""
    traced = jax.jit(function, in_shardings=where, out_shardings=where).trace(*shapes)
    text = compile_lanes(traced.lower(lowering_platforms=("cuda",)), "cuda").as_text()
    found = sorted(DUMP.glob("*.thunk_sequence_after_thunk_passes.txt"))
    launches = found[-1].read_text() if found else ""
    shutil.rmtree(DUMP, ignore_errors=True)
    return text, launches


def one_graph(launches: str) -> bool:
    """Whether the device executes all loops as one graph, so that the list of the host's launches has no loop."""
    depth, lines = None, re.findall(r"^( *)\d+: (k\w+)", launches, re.MULTILINE)
    for indent, kind in lines:
        if depth is not None and len(indent) <= depth:
            depth = None
        if kind == "kCommandBuffer" and depth is None:
            depth = len(indent)
        if kind == "kWhile" and depth is None:
            return False
    return any(kind == "kWhile" for _, kind in lines)


def programs(env, policy, runs: int = RUNS) -> tuple[int, dict[str, tuple[Callable, tuple]]]:
    """Returns the functions whose launches are counted: `rounds`, a whole run, and, if there are stages, `plan`, the start of a stage.

    Parameters of environment and policy are arguments, as in `simulate`; the default metrics are recorded.

    Returns:
      Number of iterations of the loop over rounds, and each function with the shapes of its arguments.
    """
    builds = not hasattr(policy, "act")
    leaves, treedef = jax.tree.flatten(canonical((env, () if builds else policy)))
    example = env if hasattr(env, "step") else env(draws.key(0))
    spec, own = example.spec, build_policy(policy, example)
    stage = (spec.stage_length or getattr(own, "stage_length", None)) if hasattr(own, "plan") else None
    every = math.gcd(stage, spec.free_rounds) if stage else ROUNDS
    flows = tuple(m for m in spec.metrics if m.kind != "gauge" and m.default)
    record = Record(every=every, flows=flows, zero_flows=spec.zero_flows)
    root = np.asarray(jax.random.key_data(draws.key(0)))

    def pair(leaves):
        env, made = jax.tree.unflatten(treedef, leaves)
        return env, policy if builds else made

    def rounds(leaves, seeds):
        with rounding.compilers_own():  # The default of a GPU.
            return rollout(*pair(leaves), run_streams(root, seeds), every, record)

    def begin(leaves, seeds):
        streams = run_streams(root, seeds)
        run = one_run(*pair(leaves), streams, every, record)
        return streams, run.instance, run.words, lanes(run.start, run.size)(run.instance, run.words)

    def plan(leaves, streams, instance, words, states, t):
        with rounding.compilers_own():
            run = one_run(*pair(leaves), streams, every, record)
            mapped = lanes(lambda instance, words, states: run.plan(instance, words, states, t), run.size)
            return mapped(instance, words, states)

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    seeds = jax.ShapeDtypeStruct((runs,), jnp.uint32)
    made = {"rounds": (rounds, (shapes, seeds))}
    if stage:
        started = jax.eval_shape(begin, shapes, seeds)
        made["plan"] = (plan, (shapes, *started, jax.ShapeDtypeStruct((), jnp.int32)))
    return every, made


def count_pair(texts: dict[str, str], trips: int) -> dict[str, Any]:
    """Counts the launches of a policy in the compiled texts of its `programs`; the loop over rounds has `trips` iterations.

    Returns the launches `per_round` and per start of a stage (`plan`), and those per iteration of loops of unknown length (`loops`, `plan_loops`).
    """
    module = Module(texts["rounds"])
    bodies = module.loops(trips)
    if len(bodies) != 1:
        raise RuntimeError(f"the loop over rounds must be found once, by its {trips} trips; found {len(bodies)} of them")
    found = module.count(bodies[0])
    row: dict[str, Any] = {"per_round": found.kernels, "loops": found.loops}
    if "plan" in texts:
        plan = Module(texts["plan"]).count()
        row |= {"plan": plan.kernels, "plan_loops": plan.loops}
    return row


def pairs(only=None, policies=None):
    """Yields (problem, policy's name, environment, policy) for every default policy, or for those that `only` and `policies` name."""
    for problem, module in problems().items():
        for name, policy in default_policies(module).items():
            if (only is None or problem in only) and (policies is None or name in policies):
                options = {"any_size": True} if name == "Everything" else {}
                env = combinatorial.sciq_cloud(reward="suc", **options) if options else ENVIRONMENTS[problem]()
                yield problem, name, env, policy


def sum_of(kernels: int, loops: list[int]) -> str:
    """Formats a number of launches as text; loops of unknown length count as multiples of `n`."""
    return " + ".join([str(kernels), *(f"{k} n" for k in loops)])


def show(row: dict[str, Any]) -> str:
    """Formats a row as a line of the table."""
    counts = [sum_of(row[when]["per_round"], row[when]["loops"]) for when in ("first", "now")]
    plans = [sum_of(row[when]["plan"], row[when]["plan_loops"]) if "plan" in row[when] else "" for when in ("first", "now")]
    cells = "".join(f"{text:>30}" for text in counts) + "".join(f"{text:>8}" for text in plans)
    return f"{row['problem']:<14}{row['policy']:<20}{cells}{row['state_bytes']:>9,}  {'yes' if row['graph'] else 'no'}"


def parser_of(doc: str | None, results: Path | None) -> argparse.ArgumentParser:
    """Makes the parser of a script that measures each default policy and stores its rows in a JSON file."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ENVIRONMENTS, metavar="PROBLEM", help="these problems only")
    parser.add_argument("--policies", nargs="+", help="names of policies (default: all)")
    parser.add_argument("--out", type=Path, default=results, help="JSON file; rows that are not measured stay as they are")
    return parser


def stored(file: Path, keys: tuple[str, ...] = ("problem", "policy")) -> dict[tuple, dict[str, Any]]:
    """Reads the rows of a JSON file as a dict by the values of `keys`, "usual" for a missing variant; empty if there is no file."""
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    return {tuple(row.get(key, "usual") for key in keys): row for row in rows}


def store(file: Path, rows: dict[tuple, dict[str, Any]], **about: Any) -> None:
    """Writes rows to a JSON file in the order of their keys, after entries that hold for all rows."""
    file.write_text(json.dumps({**about, "rows": [rows[key] for key in sorted(rows)]}, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Counts the launches of all policies, prints a table and stores it; returns the exit status 0."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--keep", type=Path, help="folder for the modules' texts")
    options = parser.parse_args(arguments)
    where, rows = target(), stored(options.out)
    print(f"{'':<34}{'kernels per round, first':>30}{'now':>30}{'plan':>8}{'now':>8}{'bytes':>9}  graph")
    counted = "launches in the body of the compiled loop over rounds, ahead of time, without a device"
    device = re.findall(r'device_description_str: "(.*)"', TARGET)[0]
    for problem, name, env, policy in pairs(options.only, options.policies):
        trips, functions = programs(env, policy)
        both = {what: compiled(function, shapes, where) for what, (function, shapes) in functions.items()}
        texts = {what: text for what, (text, _) in both.items()}
        for what, text in texts.items() if options.keep else ():
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{problem}.{name}.{what}.txt").write_text(text)
        now = count_pair(texts, trips)
        first = rows.get((problem, name), {"first": now})["first"]
        found = {"first": first, "now": now, "graph": one_graph(both["rounds"][1])}
        rows[problem, name] = {"problem": problem, "policy": name, **found, "state_bytes": jaxroute.run_bytes(env, policy)}
        print(show(rows[problem, name]), flush=True)
        store(options.out, rows, counted=counted, target=device, jax=jax.__version__, runs=RUNS)
    return 0


if __name__ == "__main__":
    # Nothing can be timed without a device.
    os.environ.setdefault("XLA_FLAGS", f"--xla_gpu_autotune_level=0 --xla_dump_to={DUMP}")
    jax.config.update("jax_platforms", "cpu")  # Where constants live.
    sys.exit(main())
