"""Curves of recorded quantities in double precision, from the increments of the record intervals."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.engine.rounds import NAN_ROUNDS, NAN_STATES, Record
from jaxroute.store.runs import Checkpoint


def curves_of(
    increments: Mapping[str, Any],
    record: Record,
    times: np.ndarray,
    runs: tuple[int, ...],
    before: Checkpoint | None = None,
    xp: Any = np,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Curves in float64 from the increments of the record intervals, which runs are valid, and the sums at the end.

    A run is valid if the environment's flows are finite, those that must be zero are, and neither a state nor feedback nor Info ever was
    NaN. What is only recorded, Info and gauges, may be infinite.

    Args:
      increments: arrays `[settings..., R, records, ...]` by name, as `rollout` returns them.
      record: what was written.
      times: `[records]`.
      runs: `(settings..., R)`.
      before: sums and curves of earlier rounds of these runs.
      xp: numpy; or jax.numpy with numbers of 64 bits, for arrays on a device.

    Returns:
      Curves of the same shapes, after those of earlier rounds; for each flow that must be zero its sum; `valid`, bool `[settings..., R]`. And
      the sums at the end, `[settings..., R, ...]` float64 by name.
    """
    earlier = {} if before is None else before.curves
    sums = {} if before is None else before.totals
    totals: dict[str, Any] = {}
    times = times[-next(iter(increments.values())).shape[len(runs)] :]
    metrics = {m.name: m for m in (*record.flows, *record.info)}
    must_be_finite = {m.name for m in record.flows}
    curves: dict[str, Any] = {}
    valid = earlier["valid"] if "valid" in earlier else xp.ones(runs, bool)
    for name, raw in increments.items():
        if name in (NAN_ROUNDS, NAN_STATES):
            valid = valid & ~raw.astype(bool).any(axis=len(runs))
            continue
        metric = metrics.get(name)
        if metric is None and not name.startswith("zero/"):
            curves[name] = raw
            continue
        time_axis = len(runs)
        if name in sums:
            raw = np.concatenate([np.expand_dims(sums[name], time_axis), raw], axis=time_axis)
        total = xp.cumsum(raw, axis=time_axis, dtype=np.float64)
        if name in sums:
            total = np.delete(total, 0, axis=time_axis)
        last = totals[name] = xp.take(total, -1, axis=time_axis)
        extra = tuple(range(time_axis, last.ndim))
        if metric is None or name in must_be_finite:
            valid = valid & xp.isfinite(last).all(axis=extra)
        if metric is None:
            count = last.sum(axis=extra)
            curves[name.removeprefix("zero/")] = count
            valid = valid & (count == 0)
        elif metric.kind == "average":
            curves[name] = total / times.reshape((-1,) + (1,) * len(metric.dims))
        else:
            curves[name] = total
    for name in curves.keys() & earlier.keys():
        if curves[name].ndim > len(runs):
            curves[name] = np.concatenate([earlier[name], curves[name]], axis=len(runs))
    return curves | {"valid": valid}, totals


@functools.partial(jax.jit, static_argnums=(2, 3))
def _on_device(increments: dict[str, Any], times: Any, record: Record, runs: tuple[int, ...]) -> dict[str, jax.Array]:
    return curves_of(increments, record, times, runs, xp=jnp)[0]


def curves_on_device(
    increments: Mapping[str, Any], record: Record, times: np.ndarray, runs: tuple[int, ...]
) -> dict[str, jax.Array]:
    """The curves of `curves_of`, of arrays that stay where they are."""
    with jax.enable_x64(True):
        return _on_device(dict(increments), times, record, runs)
