"""One process of several, run by the tests of hosts: joins the others on this machine, plays, and reports."""

import json
import os
import signal
import sys
import time
import warnings

from jaxroute.engine import hosts, programs

# A goal that is reached at the third of four looks.
UNTIL = {"seeds": 2000, "until_stderr": {"regret": 0.1}}


def main(port, processes, index, out, how):
    """`how`: words for what happens to the last process ("killed", "full", "refused"), or "slow" for blocks that take time.

    With "moments" only statistics are kept, with "until" the run has a goal.
    """
    words = how.split()
    keep = "moments" if "moments" in words else "runs"
    hosts.initialize(f"127.0.0.1:{port}", processes, index, heartbeat_s=6)
    import engine_child
    import jax
    import numpy as np

    from jaxroute.store import moments, runs

    warnings.simplefilter("ignore")
    played, last = [], index == processes - 1
    sink = runs.RunSink if keep == "runs" else moments.MomentSink
    run, write = programs.Block.play, sink.write

    def counted(self, tile, seeds, *begun):
        if "killed" in words and last and len(played) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if "slow" in words:
            time.sleep(0.3)
        played.append(int(seeds[0]))
        return run(self, tile, seeds, *begun)

    def full(self, *args):
        if "full" in words and last and len(played) == 2:
            raise OSError(28, "No space left on device")
        write(self, *args)

    programs.Block.play, sink.write = counted, full
    options = {"keep": keep, "seeds": 100, "block": 16} | ({"key": index} if "refused" in words else {})
    options |= UNTIL if "until" in words else {}
    try:
        data = engine_child.play("bandit", out=out, mesh=hosts.whole_mesh(), **options)
    except (RuntimeError, OSError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}", "played": played}), flush=True)
        return hosts.leave()
    np.savez(f"{out}/{index}.npz", **{name: v.values for name, v in data.items()})
    report = {"played": played, "devices": len(jax.devices()), "attributes": data.attrs}
    print(json.dumps(report), flush=True)
    return hosts.leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
