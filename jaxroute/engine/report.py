"""Report of a simulation: attributes of its result, and warnings about invalid runs, probes and goals."""

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from jaxroute.core import checks, provenance
from jaxroute.engine import diagnose
from jaxroute.engine.execution import Target
from jaxroute.engine.programs import Block
from jaxroute.engine.recording import Recording
from jaxroute.engine.schedule import Ending


def attributes(
    target: Target,
    blocks: Mapping[str, Block],
    inexact: Mapping[str, Sequence[str]],
    measured: Mapping[str, Any],
    goals: Mapping[str, float],
    ending: Ending,
    invalid: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Returns the attributes of a result: where and how it was made, and what went wrong.

    Args:
      target: devices and back end.
      blocks: compiled blocks by label.
      inexact: operations that are not exact, by policy.
      measured: measurements of the work, and the layout.
      goals: standard errors by metric at which the simulation stops.
      ending: where it ended.
      invalid: first bad rounds, see `diagnose.first_bad_rounds`.
    """
    about: dict[str, Any] = {
        "backend": {name: block.backend for name, block in blocks.items()},
        "arithmetic": target.arithmetic,
        "fell_back": {name: block.ran.reason for name, block in blocks.items() if block.ran.reason},
        **measured,
    }
    about |= {"inexact": dict(inexact)} if inexact else {}
    about |= {"invalid": list(invalid)} if invalid else {}
    if goals and ending.seeds:
        about["seeds_played"] = ending.seeds
        about["until_stderr"] = {"goal": goals, "reached": ending.met, "stderr": ending.errors}
    return provenance.provenance(target.devices, **about)


def warn(
    data: xr.Dataset,
    recorded: Mapping[str, Sequence[str]],
    recording: Recording,
    ending: Ending,
    invalid: Sequence[Mapping[str, Any]],
) -> None:
    """Warns about invalid runs, probes with NaN, and goals that were not reached; `recorded`: names of quantities by policy."""
    _warn_invalid(data, invalid)
    _warn_probes(data, recorded, recording)
    if recording.goals and not ending.met:
        checks.warn(
            f"the standard errors after {ending.seeds} seeds are not below the goal, until_stderr={recording.goals}: the largest are "
            f"{ending.errors}"
        )


def _warn_invalid(data: xr.Dataset, bad: Sequence[Mapping[str, Any]]) -> None:
    if "invalid" in data:
        invalid, runs, where = int(data["invalid"].sum()), int(data["runs"].sum()), "'invalid'"
    else:
        invalid, runs, where = int((~data["valid"]).sum()), data["valid"].size, "'valid'"
    if invalid:
        firsts = "".join(f"; first bad value of {text}" for text in map(diagnose.text, bad))
        checks.warn(
            f"{invalid} of {runs} runs are invalid (something is NaN, or a flow is not finite, or must be zero and is not): "
            f"see the variable {where} and the counters beside it{firsts}"
        )


def _warn_probes(data: xr.Dataset, recorded: Mapping[str, Sequence[str]], recording: Recording) -> None:
    """Warns about NaN in a probe, which does not make a run invalid, but is rarely meant."""
    found: dict[str, int] = {}
    for policy, record in recording.records.items():
        probes = dict(record.probes)
        for name in (one for one in recorded[policy] if one.partition(".")[0] in probes):
            if "seed" in data.dims:
                values, valid = data[name].sel(policy=policy), data["valid"].sel(policy=policy)
                number = int((values.isnull().any([d for d in values.dims if d not in valid.dims]) & valid).sum())
            else:
                counts, valid = data[f"{name}_count"].sel(policy=policy), (data["runs"] - data["invalid"]).sel(policy=policy)
                number = int((valid - counts.min([d for d in counts.dims if d not in valid.dims])).sum())
            if number:
                found[name] = found.get(name, 0) + number
    for name, number in found.items():
        checks.warn(f"the probe {name!r} is NaN at some time in {number} runs that are valid")
