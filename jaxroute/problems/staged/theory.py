"""Computes quantities of StageRoute's theorems and proofs: a lower bound of the regret, parts of the regret, and the violation of the budget."""

import functools

import numpy as np
import xarray as xr

from jaxroute.problems.staged.env import MarketEnv
from jaxroute.problems.staged.optimum import pool_value


def lower_bound(max_deployed: int, horizon: int, constant: float = 1.0) -> float:
    """Returns Theorem 2's lower bound of the regret on its hard instances, `(c M)^(1/3) T^(2/3) / 16`, in units of reward.

    Source: StageRoute, Theorem 2 and appendix C.

    Args:
      max_deployed: number of slots `M`.
      horizon: number of queries `T`.
      constant: universal constant `c` of the theorem, which the paper leaves open.
    """
    return (float(constant) * max_deployed) ** (1 / 3) * horizon ** (2 / 3) / 16


def decompose(data: xr.Dataset, env: MarketEnv) -> xr.Dataset:
    """Splits the total regret of each run into regret of the deployments and regret of the routing. Returns a dataset without time axis.

    Let `V(D)` be the best expected reward per query of a deployed set `D`, 0 if `D` is infeasible under the true costs. With the available models
    `pool` and the set `D_k` deployed in the stage, `deployment_regret` sums `V(pool) - V(D_k)` over the rounds, and `routing_regret` sums `V(D_k)`
    minus the expected reward of the chosen models; their sum is `regret`. The split means nothing in a stage whose deployment is infeasible:
    `feasible_deployment_regret` and `feasible_routing_regret` omit such stages, and `infeasible_stages` counts them. Source: StageRoute, Lemma 4; the
    version over feasible stages is ours.

    Args:
      data: result of `simulate(..., record=["regret", "deployed", "mean_reward"])` with a record at the end of every stage.
      env: market of the simulation (one setting).

    Raises:
      ValueError: a variable or the end of a stage is missing.
    """
    for name in ("deployed", "mean_reward"):
        if name not in data:
            raise ValueError(f"data must have the variable {name!r}: record it, for example record=['regret', {name!r}]")
    times = data["time"].values
    length, horizon = env.stage_length, int(times[-1])
    ends = np.unique(np.append(np.arange(length, horizon + 1, length), horizon))
    missing = np.setdiff1d(ends, times)
    if len(missing):
        raise ValueError(
            f"data must be recorded at the end of every stage ({length} rounds), and has no record at round {missing[0]}: "
            f"simulate with a record_every that divides {length}"
        )
    at_ends = data.sel(time=ends)
    deployed = at_ends["deployed"].transpose(..., "time", "model").values > 0.5
    earned = (at_ends["mean_reward"] * at_ends["time"]).transpose(..., "time").values
    earned = np.diff(earned, axis=-1, prepend=0.0)
    reward, cost = (np.asarray(v, np.float64) for v in (env.outcomes.reward_mean, env.outcomes.cost_mean))
    capacity, budget = np.asarray(env.capacity, np.float64), float(env.budget)
    value = functools.cache(lambda members: pool_value(reward, cost, capacity, budget, members, env.max_deployed))
    flat = deployed.reshape(-1, deployed.shape[-1])
    sets, which = np.unique(flat, axis=0, return_inverse=True)
    values = np.array([value(tuple(np.flatnonzero(s).tolist())) for s in sets])[which.reshape(deployed.shape[:-1])]
    rounds = np.diff(ends, prepend=0)
    starts = np.asarray(env.optimum_start, np.int64)
    segment = np.searchsorted(starts, np.append(0, ends[:-1]), side="right") - 1
    best = np.asarray(env.optimum_value, np.float64)[segment]
    feasible = values > 0.0
    parts = {
        "deployment_regret": ("regret of the deployments", rounds * (best - values)),
        "routing_regret": ("regret of the routing", rounds * values - earned),
    }
    parts |= {f"feasible_{k}": (f"{label}, feasible stages", np.where(feasible, v, 0.0)) for k, (label, v) in parts.items()}
    parts["infeasible_stages"] = ("stages with an infeasible deployment", (~feasible).astype(float))
    dims = tuple(d for d in data["mean_reward"].dims if d != "time")
    coords = {d: data[d] for d in dims}
    made = {
        name: xr.DataArray(v.sum(axis=-1), coords, dims, attrs={"long_name": label, "units": "reward", "kind": "total"})
        for name, (label, v) in parts.items()
    }
    made["infeasible_stages"].attrs["units"] = "stages"
    return xr.Dataset(made)


def violation(data: xr.Dataset) -> xr.DataArray:
    """Returns `max(0, overspend) / time`, the overspend per query so far, for each run and recorded time of a result `data` of `simulate`."""
    if "overspend" not in data:
        raise ValueError("data must have the variable 'overspend': record it, for example record=['regret', 'overspend']")
    above = np.maximum(data["overspend"], 0.0) / data["time"]
    return above.assign_attrs(long_name="spend above the budget", units="cost per query", kind="average")
