"""Run by tests in a process of its own on the fake GPU: calls a function of this file, and prints what it returns as JSON.

python child.py FUNCTION [ARGUMENT...]
"""

import json
import signal
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import jax
import kernel_calls
import kernels
import numpy as np
import toys
from jax.sharding import Mesh, PartitionSpec

import jaxroute as jr
from jaxroute.core.attributes import decoded
from jaxroute.engine.rounds import STATE
from jaxroute.kernels import cuda
from jaxroute.kernels.ir import Unsupported
from jaxroute.kernels.rollout import rounds_p
from jaxroute.problems import staged, stochastic

UCB1 = stochastic.bernoulli([0.9, 0.5, 0.3]), stochastic.UCB1()
MARKET = toys.small_market(), staged.StageRoute()
SEEDS = 100  # The last block of threads is not full.


def call_of(*players, every=5, **options):
    """Builds the call of a kernel. Returns its operands (computed on a CPU), a function of them, and the results' names."""
    operands, params, names = kernel_calls.call_of(*players, every=every, runs=SEEDS, **options)
    return operands, lambda *given: rounds_p.bind(*given, **params), names


def on(device, operands, function, *_):
    """Returns the results of a call on a device."""
    return [np.asarray(x) for x in jax.jit(function)(*jax.device_put(operands, device))]


def unequal(ours, theirs):
    """Returns the positions of results that differ in a bit."""
    return [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if (a.shape, a.tobytes()) != (b.shape, b.tobytes())]


def unequal_calls(*call):
    """Returns which results differ between GPU and host, for as few launches as possible and for one launch a round."""
    theirs = on(CPU, *call)
    whole = unequal(on(GPUS[0], *call), theirs)
    cuda.LAUNCH_S = 0.0
    pieces = unequal(on(GPUS[0], *call), theirs)
    cuda.LAUNCH_S = 1.0
    return whole + pieces


def policies(*names):
    """Compares default policies, given as "problem/policy"."""
    found = {}
    for problem, name, *players in kernels.pairs():
        if (name := f"{problem}/{name}") in names:
            try:
                found[name] = unequal_calls(*call_of(*players))
            except Unsupported as error:
                found[name] = str(error)
    return found


def cut():
    """Compares runs that are cut within chunks of a long record interval, and within stages."""
    long, stages = call_of(*UCB1, horizon=5000, every=5000), call_of(*MARKET, horizon=47, every=10)
    return {"long": unequal_calls(*long), "stages": unequal_calls(*stages)}


def continued():
    """Compares runs that continue others with the host's runs from scratch."""
    found = {}
    for name, players in {"UCB1": UCB1, "StageRoute": MARKET}.items():
        *call, names = call_of(*players, horizon=20, every=20)
        resumed = {n: x for n, x in zip(names, on(GPUS[0], *call), strict=True) if n.startswith(STATE)}
        ours = on(GPUS[0], *call_of(*players, horizon=47, every=10, since=20, resumed=resumed))
        theirs = on(CPU, *call_of(*players, horizon=47, every=10))
        found[name] = unequal(ours[-len(resumed) :], theirs[-len(resumed) :])
    return found


def grids():
    """Compares settings of a grid, and devices that have a setting each. Also checks that two settings differ."""
    operands, function, _ = call_of(*UCB1)
    place = next(i for i, one in enumerate(operands) if one.ndim and one.dtype == np.float32)

    def with_setting(setting, *given):
        return function(*given[:place], setting, *given[place + 1 :])

    def settings(stack, *given):
        return jax.vmap(lambda setting: with_setting(setting, *given))(stack)

    def alone(stack, *given):
        return [x[None] for x in with_setting(stack[0], *given)]

    stack = np.stack([operands[place] + more for more in np.float32([0.0, 0.5, 0.9])])
    three, two = [stack, *operands], [stack[:2], *operands]
    mesh, every, own = Mesh(np.asarray(GPUS), ("seed",)), PartitionSpec(), PartitionSpec("seed")
    spread = jax.shard_map(alone, mesh=mesh, in_specs=(own, *[every] * len(operands)), out_specs=own, check_vma=False)
    devices = [np.asarray(x) for x in jax.jit(spread)(*two)]
    theirs = on(CPU, three, settings)
    return {
        "settings": unequal(on(GPUS[0], three, settings), theirs),
        "devices": unequal(devices, on(CPU, two, settings)),
        "two settings": unequal([x[0] for x in theirs], [x[1] for x in theirs]),
    }


def threads():
    """Compares kernels that several threads call at the same time."""
    kinds = stochastic.UCB1, stochastic.MOSS, stochastic.UCBV, stochastic.Exp3
    many = [call_of(UCB1[0], kind()) for kind in kinds] * 3
    theirs = [on(CPU, *call) for call in many]
    with ThreadPoolExecutor(len(many)) as pool:
        ours = list(pool.map(lambda call: on(GPUS[0], *call), many))
    return [unequal(*both) for both in zip(ours, theirs, strict=True)]


def simulate(options="{}"):
    """Simulates UCB1. Returns warnings and backend only, as numbers mean nothing: XLA's own kernels do nothing here."""
    settings = {"horizon": 200, "execution": jr.Execution(block=64), "seeds": 256, "progress": False} | json.loads(options)
    cuda.MOST_STACK = settings.pop("most_stack", cuda.MOST_STACK)
    if settings["progress"]:
        sys.stderr.isatty = lambda: True  # A bar is for terminals.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = jr.simulate(UCB1[0], {"UCB1": UCB1[1]}, **settings)
    shown, about = [str(one.message) for one in caught if "are invalid" not in str(one.message)], decoded(result.attrs)
    return {"warnings": shown, "backend": about["backend"]["UCB1"], "fell_back": about["fell_back"].get("UCB1")}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Shells let jobs in the background ignore it.
    GPUS, CPU = jax.devices("cuda"), jax.devices("cpu")[0]
    if sys.argv[1] != "simulate":  # Kernels that the scan outruns, too.
        cuda.MOST_STACK = cuda.MOST_SCRATCH = 1 << 30
    with jax.default_device(GPUS[0] if sys.argv[1] == "simulate" else CPU):
        print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
