"""Request of a simulation: everything that decides the numbers of its result, and the digests by which a store finds them."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxroute.core import arithmetic, provenance
from jaxroute.core.description import describe, digest_of_setting
from jaxroute.core.protocols import AnyEnvironment
from jaxroute.core.provenance import fingerprint
from jaxroute.engine.components import Components
from jaxroute.engine.execution import Target
from jaxroute.engine.recording import Recording
from jaxroute.engine.sampling import Sampling
from jaxroute.store.cells import Request, describe_seeds
from jaxroute.store.packs import digest_of, plain

# Entries of the settings that are no part of a cell's identity, or are added to it for each policy.
_NOT_COMMON = ("environment", "policies", "record", "seeds", "horizon", "keep", "keep_states", "until_stderr", "jaxroute")


def request_of(
    components: Components,
    recording: Recording,
    sampling: Sampling,
    target: Target,
    inexact: Mapping[str, Any],
    keep_states: bool,
    with_code: bool,
) -> Request:
    """Returns the request of a simulation, without the shapes of the recorded quantities.

    Args:
      components, recording, sampling, target: of the simulation.
      inexact: operations that are not exact, by policy.
      keep_states: whether the states after the last round are stored.
      with_code: whether to add the digests of code and settings that a store needs.
    """
    settings = _settings(components, recording, sampling, target, inexact, keep_states)
    settings = {**fingerprint(settings), "jaxroute": provenance.versions()["jaxroute"]}
    settings = json.loads(json.dumps(settings))
    codes: dict[str, dict[str, Any]] = {}
    if with_code:
        codes = {one.label: one.code([p for _, p in recording.records[one.policy].probes]) for one in components.variants}
    digests = {label: digest_of(plain(code))[:8].hex() for label, code in codes.items()}
    return Request(
        policies=list(components.policies),
        axes=components.axes,
        policy_axes=components.policy_axes,
        seeds=sampling.seeds,
        times=recording.times,
        variables={},
        recorded={},
        model_names=list(components.spec.model_names),
        zero_flows=list(components.spec.zero_flows),
        keep=recording.keep,
        settings=settings,
        identities={name: _identities(components, name, settings, digests) for name in components.policies},
        code={digests[label]: code for label, code in codes.items()},
    )


def problem_of(env: AnyEnvironment) -> str:
    """Name of the problem that an environment belongs to: its folder, or its module outside jaxroute."""
    parts = type(env).__module__.split(".")
    return parts[parts.index("problems") + 1] if "problems" in parts[:-1] else parts[-1]


def _settings(
    components: Components,
    recording: Recording,
    sampling: Sampling,
    target: Target,
    inexact: Mapping[str, Any],
    keep_states: bool,
) -> dict[str, Any]:
    """Everything that decides the numbers, as plain JSON; options at their default are left out."""
    settings: dict[str, Any] = {
        "problem": problem_of(components.variants[0].example[0]),
        "environment": describe(components.env),
        "policies": {name: describe(policy) for name, policy in components.policies.items()},
        "horizon": sampling.horizon,
        "record_every": recording.every,
        "record": {name: describe(record) for name, record in recording.records.items()},
        "root_seed": sampling.root_seed,
        "seeds": describe_seeds(sampling.seeds),
        "arithmetic": f"exact {arithmetic.VERSION}",
    }
    if target.arithmetic != "exact" or inexact:  # Back ends and machines may round differently.
        backends = " ".join(sorted({target.backend_of(one.hint) for one in components.variants}))
        settings["arithmetic"] = f"{target.arithmetic} {target.platform} {backends}" + " quick" * target.quick
    if recording.keep != "runs":
        settings["keep"] = recording.keep
    if recording.goals:
        settings["until_stderr"] = recording.goals
    if keep_states:
        settings["keep_states"] = True
    return settings


def _identities(components: Components, policy: str, settings: Mapping[str, Any], codes: Mapping[str, str]) -> list[str]:
    """Digests of everything that decides the numbers of a policy except horizon and seeds, for each of its settings; empty without codes."""
    own, axes = components.policies[policy], components.policy_axes[policy]
    if not codes:
        return [""] * math.prod(len(components.axes[axis]) for axis in axes)
    common = {name: value for name, value in settings.items() if name not in _NOT_COMMON}
    common |= {"record": settings["record"][policy], "axes": [list(components.env.axes), list(own.axes)]}
    rest, identities = digest_of_setting(common), [grid.identities() for grid in (components.env, own)]
    found = []
    for place in np.ndindex(*(len(components.axes[axis]) for axis in axes)):
        at = dict(zip(axes, place, strict=True))
        numbers = (
            int(np.ravel_multi_index([at[a] for a in g.axes], g.shape)) if g.axes else 0 for g in (components.env, own)
        )
        digests = [one[number] for one, number in zip(identities, numbers, strict=True)]
        found.append(digest_of(plain([rest, *digests])).hex() + codes[components.variant(policy, at).label])
    return found
