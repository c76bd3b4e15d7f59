"""Conformance checks for a user's own policy or environment.

    from jaxroute.testing import check_policy
    check_policy(MyPolicy(width=0.5), stochastic.bernoulli([0.6, 0.4]))

Two tiers: `check_structure` traces every method without compilation (milliseconds); `check_behaviour` simulates (seconds). `check_policy` and
`check_environment` do both. `run_eagerly` is one run as a plain loop, for a debugger. `jaxroute.testing.figures.faults` checks a figure.

Each check raises `AssertionError` with a sentence that names the fault and its place.
"""

from typing import Any

from jaxroute.core.checks import suggest_keywords
from jaxroute.core.exports import public_names
from jaxroute.testing.behaviour import check_behaviour, run_eagerly
from jaxroute.testing.structure import check_structure

__all__ = ["check_behaviour", "check_environment", "check_policy", "check_structure", "run_eagerly"]
__dir__ = public_names(__name__)


@suggest_keywords
def check_policy(policy: Any, env: Any, *, horizon: int = 40, seeds: int = 24) -> None:
    """Checks that a policy follows the protocol on an environment: `check_structure`, then `check_behaviour`.

    Args:
      policy: the policy, or a function `env -> policy`.
      env: an environment (not a grid).
      horizon: number of simulated rounds; if the problem has stages, increased to cover more than two of them.
      seeds: number of runs.

    Raises:
      AssertionError: the protocol is violated.
    """
    check_structure(policy, env)
    check_behaviour(policy, env, horizon=horizon, seeds=seeds)


@suggest_keywords
def check_environment(env: Any, policy: Any, *, horizon: int = 40, seeds: int = 24) -> None:
    """Checks that an environment follows the protocol in `seeds` runs of `horizon` rounds with a policy that fits it; see `check_policy`."""
    check_policy(policy, env, horizon=horizon, seeds=seeds)
