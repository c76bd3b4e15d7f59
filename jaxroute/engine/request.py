"""Requests: everything that decides the numbers of a simulation's result, with the digests by which a store finds that result."""

import functools
import json
import math
from collections.abc import Generator, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn

from jaxroute.core import arithmetic, checks, provenance
from jaxroute.core.description import describe, digest_of_setting
from jaxroute.core.provenance import fingerprint
from jaxroute.engine.components import Components
from jaxroute.engine.execution import Target
from jaxroute.engine.recording import Recording
from jaxroute.engine.rounds import STREAMS, Record, bytes_of_run, one_run, traced_once
from jaxroute.store.cells import Request, describe_seeds
from jaxroute.store.packs import digest_of, plain

# Settings that do not belong to the identity of a cell, or that are added for each policy.
_NOT_COMMON = ("environment", "policies", "record", "seeds", "horizon", "keep", "keep_states", "until_stderr", "jaxroute")
# Operations on float32 with the same result everywhere: exact ones, those computed by `arithmetic`, and those that only contain others.
# fmt: off
_EXACT = frozenset([
    *("abs", "add", "add_any", "argmax", "argmin", "bitcast_convert_type", "broadcast_in_dim", "ceil", "checkpoint", "clamp", "closed_call"),
    *("computed_once", "concatenate", "cond", "convert_element_type", "copy", "copy_p", "cummax", "cummin", "cumprod", "cumsum"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "defined", "div", "dot_general", "dynamic_slice", "dynamic_update_slice"),
    *("expand_dims", "first_best", "floor", "gather", "iota", "is_finite", "jit", "max", "min", "mul", "neg", "nextafter"),
    *("optimization_barrier", "pad", "pjit", "reduce_max", "reduce_min", "reduce_precision", "reduce_prod", "reduce_sum", "rem", "remat2"),
    *("reshape", "rev", "round", "rounded_product", "rounded_quotient", "scan", "scatter", "scatter-add", "scatter-max", "scatter-min"),
    *("scatter-mul", "scatter-sub", "select_n", "sign", "slice", "sort", "split", "sqrt", "square", "squeeze", "stack", "stop_gradient", "sub"),
    *("top_k", "transpose", "while"),
])
# fmt: on


@dataclass(frozen=True)
class Sampling:
    """Length and seeds of a simulation.

    Attributes:
      horizon: number of counted rounds.
      seeds: `[R]` uint32 seeds, one for each run.
      root_seed: seed from which all random draws derive.
    """

    horizon: int
    seeds: np.ndarray
    root_seed: int


def number_of_seeds(seeds: int | Sequence[int]) -> int:
    """Returns how many seeds the argument `seeds` of `simulate` specifies, if possible without building a list of them.

    Raises:
      ValueError: there are none, or more than fit into memory.
    """
    if isinstance(seeds, Iterable):
        number = len(seeds) if isinstance(seeds, Sized) else 1
    elif checks.is_integer(seeds) or (isinstance(seeds, float) and seeds.is_integer()):
        number = checks.whole("seeds", seeds)
    else:
        raise ValueError(f"seeds must be a number of seeds or a list of them, got {checks.show(seeds)}")
    most = min(2**32, provenance.memory_limit(jax.local_devices(backend="cpu")[0]) // 40)
    if number > most:
        raise ValueError(f"seeds must be at most {most:,} on this machine (40 bytes for each), got {number:,}")
    return number


def read_sampling(horizon: int, seeds: int | Sequence[int], root_seed: int) -> Sampling:
    """Checks the arguments `seeds` and `root_seed` of `simulate`, and converts them, with the checked `horizon`, to a `Sampling`.

    Raises:
      ValueError: one of them is out of range, or two seeds are equal.
    """
    root_seed = checks.root_seed(root_seed)
    if not isinstance(seeds, Iterable):
        return Sampling(horizon, np.arange(checks.whole("seeds", seeds), dtype=np.uint32), root_seed)
    values = np.arange(seeds.start, seeds.stop, seeds.step) if isinstance(seeds, range) else np.asarray([*seeds])
    if not values.size or not np.issubdtype(values.dtype, np.integer) or values.ndim != 1:
        raise ValueError(f"seeds must be a non-empty list of whole numbers, got {checks.show(seeds)}")
    if values.min() < 0 or values.max() >= 2**32:
        raise ValueError(f"seeds must be from 0 to 2**32 - 1, got {values.min()} to {values.max()}")
    if len(np.unique(values)) < len(values):
        raise ValueError("seeds must differ from each other: equal seeds are equal runs")
    return Sampling(horizon, values.astype(np.uint32), root_seed)


@dataclass(frozen=True)
class Setup:
    """Arguments of a simulation, after they have been checked.

    Attributes:
      components: environment and policies.
      recording: recorded quantities.
      sampling: horizon, seeds and root seed.
      target: devices, back end and rounding.
      keep_states: whether the states after the last round are stored.
    """

    components: Components
    recording: Recording
    sampling: Sampling
    target: Target
    keep_states: bool

    @functools.cached_property
    def inexact(self) -> dict[str, list[str]]:
        """Texts by policy: the operations that are not rounded exactly, so that another CPU or back end may give other bits.

        An example is "products of matrices with sums of 128 terms". Policies without such operations (nearly all) are left out.
        """
        found: dict[str, list[str]] = {}
        for one in self.components.variants:
            record = self.recording.records[one.policy]
            if operations := _inexact_operations(*one.example, one.spec.horizon or 0, record):
                found[one.policy] = sorted({*found.get(one.policy, []), *operations})
        return found

    @functools.cached_property
    def state_bytes(self) -> dict[str, int]:
        """Bytes of the states of one run, by label of the variant."""
        return {one.label: bytes_of_run(*one.example) for one in self.components.variants}


def request_of(setup: Setup, with_code: bool) -> Request:
    """Describes the simulation `setup` by a `Request`, by which a store finds its result. `Recording.completed` adds recorded quantities later.

    `with_code` adds the digests of code and settings that a store needs.
    """
    components, recording, sampling, target = setup.components, setup.recording, setup.sampling, setup.target
    home = type(components.variants[0].example[0]).__module__.split(".")
    settings: dict[str, Any] = {
        # The environment's folder in jaxroute, or the name of its module elsewhere.
        "problem": home[home.index("problems") + 1] if "problems" in home[:-1] else home[-1],
        "environment": describe(components.env),
        "policies": {name: describe(policy) for name, policy in components.policies.items()},
        "horizon": sampling.horizon,
        "record_every": recording.every,
        "record": {name: describe(record) for name, record in recording.records.items()},
        "root_seed": sampling.root_seed,
        "seeds": describe_seeds(sampling.seeds),
        "arithmetic": f"exact {arithmetic.VERSION}",
    }
    if target.arithmetic != "exact" or setup.inexact:  # Back ends and machines may round differently.
        backends = " ".join(sorted({target.backend_of(one.hint) for one in components.variants}))
        settings["arithmetic"] = f"{target.arithmetic} {target.platform} {backends}" + " quick" * target.quick
    settings |= {"keep": recording.keep} if recording.keep != "runs" else {}
    settings |= {"until_stderr": recording.goals} if recording.goals else {}
    settings |= {"keep_states": True} if setup.keep_states else {}
    settings = json.loads(json.dumps({**fingerprint(settings), "jaxroute": provenance.versions()["jaxroute"]}))
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


def _identities(components: Components, policy: str, settings: Mapping[str, Any], codes: Mapping[str, str]) -> list[str]:
    """Returns for each setting a digest of everything that decides the numbers of `policy`, except horizon and seeds; all "" if `codes` is empty.

    `settings` describes the whole simulation. `codes` has a digest of each variant's code, by label; it is empty if there is no store.
    """
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


def _inexact_operations(env: Any, policy: Any, horizon: int, record: Record) -> list[str]:
    def whole(env: Any, policy: Any, streams: dict[str, jax.Array], t: jax.Array) -> Any:
        run = one_run(env, policy, streams, horizon, record)
        own = jax.tree.map(lambda x: x[..., 0], (run.instance, run.words))
        states = run.start(*own)
        if run.stage_length:
            states = run.plan(*own, states, t)
        states, flows = run.round(*own, states, t)
        return flows, run.read(*own, states, t)

    def trace(env: Any, policy: Any) -> list[str]:
        words, t = jax.ShapeDtypeStruct((2, 1), jnp.uint32), jax.ShapeDtypeStruct((), jnp.int32)
        return sorted(set(_inexact(jax.make_jaxpr(whole)(env, policy, dict.fromkeys(STREAMS, words), t).jaxpr)))

    return traced_once(("inexact", horizon, record), trace, env, policy)


def _inexact(jaxpr: Jaxpr) -> Generator[str, None, None]:
    for eqn in jaxpr.eqns:
        if any(getattr(v.aval, "dtype", None) == jnp.float32 for v in eqn.outvars) and (why := _reason(eqn)):
            yield why
        for inner in _held(list(eqn.params.values())):
            yield from _inexact(inner)


def _held(values: Sequence[Any]) -> Generator[Jaxpr, None, None]:
    """Yields the jaxprs (traced functions) among `values`, the parameters of an operation, which may be nested lists."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _held(list(value))
        elif hasattr(value, "eqns") or hasattr(value, "jaxpr"):
            yield getattr(value, "jaxpr", value)


def _reason(eqn: JaxprEqn) -> str:
    """Returns in words why another CPU or back end may round the operation `eqn` differently; an empty text if all give the same bits."""
    name = eqn.primitive.name
    if name == "dot_general" and (terms := arithmetic.terms_of(eqn)) > arithmetic.MOST_TERMS:
        return f"products of matrices with sums of {terms:,} terms"
    return "" if name in _EXACT or arithmetic.definition(eqn) is not None else name
