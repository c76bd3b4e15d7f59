"""Run by the tests of the engine in a process of its own, with several forced host devices: plays, and reports what differs."""

import json
import sys
import tempfile
import warnings

import jax
import numpy as np
import toys

import jaxroute as jr
from jaxroute.core.attributes import decoded
from jaxroute.engine import programs
from jaxroute.problems import staged, stochastic

BANDIT = stochastic.bernoulli([0.1, 0.7, 0.5, 0.65, 0.3])
PLAYERS = {
    "bandit": (BANDIT, {"UCB1": stochastic.UCB1(), "Thompson": stochastic.GaussianThompson()}),
    "staged": (toys.small_market(), {"StageRoute": staged.StageRoute()}),
}
RECORD = {"bandit": ["regret", "reward", "pulls"], "staged": ["regret", "cost", "infeasible_share", "pulls", "deployed"]}


def play(problem, policies=None, **options):
    """100 rounds of 64 seeds, recorded every 20, unless said otherwise."""
    env, everyone = PLAYERS[problem]
    settings = {"horizon": 100, "seeds": 64, "record_every": 20, "record": RECORD[problem], "progress": False} | options
    return jr.simulate(env, policies or everyone, **settings)


def differences(one, other):
    """Names of the variables that are not bit-equal in the seeds of `other`."""
    one = one.sel(seed=other["seed"], policy=other["policy"])
    same = {name: np.array_equal(one[name].values, other[name].values, equal_nan=True) for name in one}
    return sorted(name for name, equal in same.items() if not equal)


def main():
    warnings.simplefilter("ignore")
    devices = jax.local_devices()
    report = {"devices": len(devices)}
    before = jr.trace_count()
    eight = {problem: play(problem) for problem in PLAYERS}
    report["traces"] = jr.trace_count() - before
    report["block"] = decoded(eight["bandit"].attrs)["layout"]["block"]
    report["one seed"] = [
        differences(eight["bandit"], play("bandit", seeds=[7], execution=jr.Execution(devices=devices))),
        jr.trace_count() - before,
    ]
    ucb = {"UCB1": stochastic.UCB1()}
    play("bandit", ucb, execution=jr.Execution(devices=devices[5:6]), seeds=[1, 2, 3])
    compiled = [program.compiled.result() for program in programs.PROGRAMS.values() if program.compiled]
    used = [jax.tree.leaves(one.output_shardings)[0].device_set for one in compiled]
    report["on device 5"] = {devices[5]} in used
    for number in (8, 3):  # A store whose blocks do not fit the devices of the run that continues it.
        with tempfile.TemporaryDirectory() as out:
            some = jr.Execution(devices=devices[:number])
            play("bandit", ucb, execution=jr.Execution(devices=devices[:1], block=16), seeds=24, out=out)
            try:
                report[f"resumed on {number}"] = differences(eight["bandit"], play("bandit", ucb, execution=some, out=out))
            except Exception as error:
                report[f"resumed on {number}"] = f"{type(error).__name__}: {str(error)[:200]}"
    np.savez(sys.argv[1], **{f"{p}/{n}": v.values for p, data in eight.items() for n, v in data.items()})
    print(json.dumps(report))


if __name__ == "__main__":
    main()
