"""When a run has enough seeds: goals for standard errors, and the numbers of seeds at which they are looked at."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.store.cells import Seeds

# With fewer runs a standard error says too little about itself.
FEWEST_SEEDS = 256


def goals(until_stderr: Any, metrics: Collection[str]) -> dict[str, float]:
    """The goals as numbers by metric.

    Args:
      until_stderr: what the user gave. metrics: names of what is recorded.

    Raises:
      ValueError: it is no dict of recorded metrics and positive numbers.
    """
    if until_stderr is None:
        return {}
    if not isinstance(until_stderr, Mapping) or not until_stderr:
        raise ValueError(
            f"until_stderr must be a dict of metric and standard error, as {{'regret': 0.5}}, got {checks.show(until_stderr)}"
        )
    for name in until_stderr:
        checks.one_of("until_stderr", name, metrics)
    return {name: float(checks.positive(f"until_stderr[{name!r}]", goal, ())) for name, goal in until_stderr.items()}


def looks(seeds: Seeds) -> list[int]:
    """Returns the numbers of seeds after which the standard errors are looked at: they double, until all seeds are played.

    Each is one at which whole granules of seeds have been played.
    """
    last = np.zeros(len(seeds.values), np.int64)
    for part in seeds.granules.values():
        last[part] = part.max()
    whole = np.flatnonzero(np.maximum.accumulate(last) <= np.arange(len(last))) + 1
    number, found = FEWEST_SEEDS, []
    while number < len(last):
        found.append(int(whole[np.searchsorted(whole, number)]))
        number *= 2
    return list(dict.fromkeys([*found, len(last)]))


def reached(wanted: Mapping[str, float], errors: Mapping[str, np.ndarray]) -> tuple[bool, dict[str, float | None]]:
    """Whether all standard errors are small enough, and the largest of each metric (None where one is not known).

    Args:
      wanted: goals by metric. errors: of all policies and settings, by metric.
    """
    worst = {name: float(np.max(errors[name], initial=0.0)) for name in wanted}
    met = all(worst[name] < goal for name, goal in wanted.items())
    return met, {name: error if math.isfinite(error) else None for name, error in worst.items()}
