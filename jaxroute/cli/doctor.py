"""Checks whether the installed packages fit together, compiles a kernel, and verifies a short simulation, in about ten seconds.

Prints device, versions and memory, too. The exit status is 1 if something is broken or a GPU stays unused.

Examples:
  jaxroute doctor
  jaxroute doctor --json
"""

import argparse
import time
import warnings
from collections.abc import Iterator

from jaxroute import installation
from jaxroute.cli.output import Output
from jaxroute.cli.simulating import store_programs

Line = tuple[str, str]  # Label and text.
_COLOURS = {"FAILED": "red", "note": "yellow", "ok": "green"}


def main(options: argparse.Namespace, output: Output) -> int:
    """Prints the result of each check as soon as it is known. Returns 1 if a check failed, else 0."""
    lines = []
    for label, text in check():
        lines.append({"label": label, "text": text})
        output.rows([(label, text, _COLOURS.get(label, ""))], label_width=9)
    passed = all(line["label"] != "FAILED" for line in lines)
    output.document({"passed": passed, "lines": lines})
    return 0 if passed else 1


def check() -> Iterator[Line]:
    """Checks packages, devices, kernels and a short simulation, and yields a label and a text for each check; "FAILED" is the label of a failure."""
    found = installation.findings()
    for one in found:
        yield "note" if one.level == "note" else "FAILED", f"{one.problem}: {one.command}"
    if any(one.level == "broken" for one in found):
        return  # jax cannot be imported.
    if not found:
        yield "ok", "jax, its plugins, the GPU and the packages that jaxroute needs fit together"
    import jax

    from jaxroute import kernels
    from jaxroute.core import provenance
    from jaxroute.engine import compiling

    devices = jax.local_devices()
    yield "device", f"{provenance.device_name(devices)} (platform {devices[0].platform})"
    yield from ((name, str(version)) for name, version in provenance.versions().items())
    yield "precision", "float64" if jax.config.read("jax_enable_x64") else "float32"
    yield "memory", f"{provenance.memory_limit(devices[0]) / 2**30:.1f} GiB"
    yield from check_kernels()
    warnings.filterwarnings("ignore", "no kernel can be used here")  # `check_kernels` has printed it.
    remedy = f": {kernels.cache_folder().parent} cannot be written; set XDG_CACHE_HOME to another folder"
    not_stored = f"not stored between commands{remedy if jax.config.jax_enable_compilation_cache else ''}"
    yield "programs", store_programs() or not_stored
    missing = ", ".join(compiling.dropped_options())
    slower = f"this XLA lacks {missing}: simulations may take up to four times as long"
    yield "XLA", slower if missing else "has all options that jaxroute compiles with"
    yield from check_simulation()


def check_kernels() -> Iterator[Line]:
    """Yields a label and a text that report whether kernels (compiled loops over rounds) can be built, for the CPU and for a GPU that jax uses."""
    import jax

    from jaxroute import kernels

    compiler, problem = kernels.compiler(wide=True), kernels.trial("cpu")
    if problem:  # Without a compiler the scan is used, which needs none.
        yield "FAILED" if compiler else "note", f"no kernel on the CPU: {problem}"
    else:
        yield "kernels", f"on the CPU, compiled by {compiler}"
    if jax.default_backend() != "gpu":
        yield "kernels", "none on a GPU, as jax uses no GPU"
    elif problem := kernels.trial("gpu"):
        yield "FAILED", f"no kernel on the GPU: {problem}"
    else:
        yield "kernels", f"on the GPU, compiled by NVRTC {kernels.nvrtc_version()}"


def check_simulation() -> Iterator[Line]:
    """Runs a short simulation. Yields "ok" or "FAILED" with a text for each check, and at the end "speed" with the decisions per second."""
    import numpy as np

    import jaxroute
    from jaxroute.problems import stochastic

    env = stochastic.bernoulli(np.linspace(0.9, 0.1, 10).tolist())
    policies = {"UCB1": stochastic.UCB1(), "Oracle": stochastic.Oracle.of}
    start = time.perf_counter()
    data = jaxroute.simulate(env, policies, horizon=5000, seeds=256, progress=False)
    single = jaxroute.simulate(env, policies, horizon=5000, seeds=[7], progress=False)
    final = data["regret"].isel(time=-1).mean("seed")
    checks = {
        "the oracle has no regret": float(final.sel(policy="Oracle")) == 0.0,
        "the mean regret of UCB1 is as expected (294 to 306)": 294 < float(final.sel(policy="UCB1")) < 306,
        "seed 7 alone equals seed 7 in a batch": bool((data["regret"].sel(seed=7) == single["regret"].sel(seed=7)).all()),
        "all runs are valid": bool(data["valid"].all()),
    }
    for text, passed in checks.items():
        yield "ok" if passed else "FAILED", text
    speed = data.attrs["decisions"] / data.attrs["run_s"] / 1e6
    yield "speed", f"{speed:.1f} M decisions/s with 256 runs; the check took {time.perf_counter() - start:.1f} s"
