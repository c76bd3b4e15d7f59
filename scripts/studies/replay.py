"""Study of replays: values of learning policies by replay of served logs, compared with those on the full table from which the logs are drawn.

python scripts/studies/replay.py --data FOLDER    (a folder with llmrouter_9models.npz)

Each run has a separate log: the function `log` draws `Q` queries with replacement from the table, and for each the model by known probabilities,
uniform ones, or a softmax of the scores that a linear rule predicts. Runs are therefore independent, and a standard error over runs covers logs,
orders and policies. On the full table, queries are drawn with replacement, too. The last table has many orders and bootstrap samples of one log.
"""

import argparse
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxroute as jr
from jaxroute import draws
from jaxroute.data import RoutingTable
from jaxroute.problems import contextual as co
from jaxroute.problems import stochastic as st
from jaxroute.sources.served import ServedRequests

_MODELS = ("qwen2.5-7b-instruct", "llama3-chatqa-1.5-70b", "mistral-7b-instruct-v0.3")
_ROUNDS, _WEIGHT, _DIRECTIONS, _STEEP = 400, 1000.0, 4, 3.0
_POLICIES = {
    "LinUCB": co.LinUCB(alpha=0.3),
    "LinearThompson": co.LinearThompson(scale=0.3),
    "LogisticThompson": co.LogisticThompson(low=-1.1),
    "SquareCB": co.SquareCB(),
    "EpsilonGreedy": co.EpsilonGreedy(epsilon=0.05),
    "UCB1": st.UCB1(width=0.5),
    "GaussianThompson": st.GaussianThompson(scale=0.5),
}


def table_of(folder: Path) -> co.TableEnv:
    """Reads the table and restricts it to three models; a prompt of n characters costs n / 4 input tokens."""
    with np.load(folder / "llmrouter_9models.npz") as data:
        places = [list(data["models"]).index(name) for name in _MODELS]
        costs = data["prompt_chars"][:, None] / 4e6 * data["usd_per_mtok_in"][places]
        table = RoutingTable(data["score"][:, places], costs, _MODELS, features=data["feat"].astype(float))
    return co.table_routing(table, cost_weight=_WEIGHT, directions=_DIRECTIONS, one_pass=False)


def log(key: Any, table: co.TableEnv, probability: Any, number: int, floor: Any) -> tuple[ServedRequests, Any]:
    """Draws a log of `number` requests, and its contexts. `floor` is a number or `[K]`; None rejects nothing, which ignores the propensities."""
    k_row, k_model = draws.split(key)
    row = draws.randint(k_row, table.num_queries, (number,))
    passed = draws.uniform(k_model, (number,))[:, None] >= jnp.cumsum(probability, axis=1)[row]
    chosen = jnp.minimum(jnp.sum(passed, axis=1, dtype=jnp.int32), len(_MODELS) - 1)
    scores, costs = (jnp.asarray(x)[row, chosen] for x in (table.scores, table.costs))
    least = jnp.asarray(probability)[row, chosen] if floor is None else jnp.broadcast_to(floor, len(_MODELS))[chosen]
    retained = least / jnp.asarray(probability)[row, chosen]
    requests = ServedRequests(chosen, scores, costs, retained, np.float32(_WEIGHT), len(_MODELS))
    return requests, jnp.asarray(table.features)[row]


def values(env: Any, policy: Any, rounds: int, seeds: range) -> tuple[np.ndarray, float, float]:
    """Returns each run's mean reward in `_ROUNDS` counted rounds, the share of runs that reach them, and runs per second without compilation."""
    result = jr.simulate(env, {"policy": policy}, horizon=rounds, seeds=seeds, record_every=rounds, progress=False)
    end, speed = result.isel(policy=0, time=-1), len(seeds) / float(result.attrs["run_s"])
    counted = end.get("accepted", _ROUNDS)  # On the full table `reward` is a mean.
    return end["reward"].values / (_ROUNDS if "accepted" in end else 1), float(np.mean(counted == _ROUNDS)), speed


def report(name: str, kind: str, found: tuple[np.ndarray, float, float], truth: np.ndarray) -> None:
    """Prints the value of a replay, and its difference from the full table with standard error."""
    gap, error = found[0].mean() - truth.mean(), np.sqrt(sum(x.var(ddof=1) / x.size for x in (found[0], truth)))
    line = f"{name:17s} {kind:12s} {truth.mean():.4f} {found[0].mean():.4f} {gap:+.5f} ({error:.5f}) {gap / error:+6.1f}"
    print(f"{line} {found[1]:8.4f} {found[2]:9,.0f}", flush=True)


def replays(name: str, policy: Any, table: co.TableEnv, probabilities: dict[str, np.ndarray], seeds: range) -> None:
    """Reports the values of a policy by replay, for each kind of log, and by a replay that ignores the softmax propensities."""
    queues = isinstance(policy, (st.UCB1, st.GaussianThompson))

    def row(key: Any, mean: Any, scale: Any) -> Any:
        """Draws the rewards of all models on a query."""
        at = draws.randint(key, table.num_queries)
        return jnp.asarray(table.scores)[at] - _WEIGHT * jnp.asarray(table.costs)[at]

    full = st.BanditEnv(np.asarray(table.average), np.float32(0.0), distribution=row) if queues else table
    truth = values(full, policy, _ROUNDS, range(len(seeds)))
    print(f"{name:17s} {'full table':12s} {truth[0].mean():.4f} {truth[2]:51,.0f}")
    for kind, p in (*probabilities.items(), ("no rejection", probabilities["softmax"])):
        floor = None if kind == "no rejection" else p.min(axis=0) if queues else p.min()
        number = int(np.ceil((_ROUNDS + 6.0 * np.sqrt(_ROUNDS)) / p.min()))
        rounds = _ROUNDS if queues else min(number, int(1.1 * number * len(_MODELS) * p.min()) + 100)

        def sampler(key: Any, p: Any = p, number: int = number, floor: Any = floor) -> Any:
            requests, contexts = log(key, table, p, number, floor)
            return st.ServedEnv(requests) if queues else co.ServedEnv(requests, contexts, _ROUNDS)

        report(name, kind, values(sampler, policy if queues else co.ReplayedPolicy(policy), rounds, seeds), truth[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with llmrouter_9models.npz")
    parser.add_argument("--seeds", type=int, default=2048, help="runs of each policy and log")
    options = parser.parse_args()
    if not (options.data / "llmrouter_9models.npz").exists():
        parser.exit(message=f"no table: {options.data} has no llmrouter_9models.npz\n")
    table, seeds = table_of(options.data), range(options.seeds, 2 * options.seeds)
    soft = np.exp(_STEEP * np.asarray(table.features) @ np.asarray(table.fit))
    soft = (soft / soft.sum(axis=1, keepdims=True)).astype(np.float32)
    probabilities = {"uniform": np.full(soft.shape, 1 / 3, np.float32), "softmax": soft}
    print("policy            log          table  replay difference (error)       z  reached    runs/s")
    for name, policy in _POLICIES.items():
        replays(name, policy, table, probabilities, seeds)
    for bootstrap in (False, True):
        requests, contexts = log(draws.key(1), table, probabilities["uniform"], 1600, 1 / 3)
        env = co.ServedEnv(requests.replace(bootstrap=bootstrap), contexts, _ROUNDS)
        found = values(env, co.ReplayedPolicy(_POLICIES["LinUCB"]), 1600, seeds)
        print(
            f"LinUCB, one log, {bootstrap=}: {found[0].mean():.4f}, deviation {found[0].std():.4f}, {found[2]:,.0f} runs/s"
        )


if __name__ == "__main__":
    main()
