"""Run by tests in a process of its own: digests of what environments and policies hold, and of all numbers of their runs, as JSON.

python digests.py BACKEND CASE...
"""

import hashlib
import json
import sys
import warnings
from typing import Any

import jax
import numpy as np
from conformance_cases import OPTIONS, POLICIES

import jaxroute as jr


def digest(values: Any) -> str:
    """A digest of numbers, in which every NaN is the same."""
    array = np.asarray(values)
    same = np.where(array != array, array.dtype.type(np.nan), array) if array.dtype.kind == "f" else array
    return hashlib.sha256(np.ascontiguousarray(same).tobytes()).hexdigest()[:16]


def found(name: str, backend: str) -> list[str]:
    """Digests of the leaves of a case, and of its runs."""
    case = {**POLICIES, **OPTIONS}[name]
    env, policy = case.env(), case.policy
    example = policy if hasattr(policy, "act") else policy(env)
    leaves = [leaf for leaf in jax.tree.leaves((env, example)) if hasattr(leaf, "dtype") or isinstance(leaf, (int, float))]
    metrics = [m.name for m in (*env.spec.metrics, *getattr(example, "metrics", ()))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"horizon": 25, "record_every": 1, "seeds": 16, "record": metrics, "progress": False}
        result = jr.simulate(env, {"p": policy}, execution=jr.Execution(backend), **options)
    return [*map(digest, leaves), *(digest(result[name].values) for name in sorted(result.data_vars) if name != "policy")]


if __name__ == "__main__":
    print(json.dumps({name: found(name, sys.argv[1]) for name in sys.argv[2:]}))
