"""What the experiments of COSMOS share: where claims come from, what is recorded, and learners of one compile."""

from collections.abc import Mapping
from typing import Any

from jaxroute.experiments.base import Case, Results
from jaxroute.problems import cascade as ca

PAPER = "COSMOS (Belloni, Chen and Wei)"
OURS = "our study; the paper has no experiment"
# Text of claims that compare with independent NumPy simulations of ours.
TABLE = "regret is that of an independent simulation, within four joint standard errors"
RECORD = ("regret", "mean_cost_regret", "queries", "utility")
# Settings of the cascade that most experiments play, where scores are seen and where they are learned.
SEEN: dict[str, Any] = {"num_models": 3, "dim": 3}
LEARNED = SEEN | {"evaluator": 5}

STREAMING, WINDOW = ca.Streaming(), ca.Window()


def learner(index: float = 0.10, warm: int = 0, fit: Any = STREAMING) -> ca.COSMOS:
    """COSMOS for scores that are seen, with a bonus; a greedy policy with 0. All with one estimator are served by one compile."""
    return ca.COSMOS(fit=fit, radius=ca.Practical(index, 0.0, 0.0), exploration=ca.WarmUp(warm))


def learns_scores(index: float = 0.10, plug_in: float = 0.03, optimism: float = 0.30, fit: Any = WINDOW) -> ca.COSMOS:
    """COSMOS with an evaluator that is learned; a greedy policy with 0, 0, 0."""
    return ca.COSMOS(fit=fit, radius=ca.Practical(index, plug_in, optimism))


def uniform_case(
    policies: Any, horizon: int, name: str = "result", settings: Mapping[str, Any] = SEEN, *, every: int, **options: Any
) -> Case:
    """A case of a cascade with uniform noise, recorded `every` so many rounds."""
    options = {"record": RECORD, "record_every": every, **options}
    return Case(ca.uniform_cascade, policies, horizon, name, settings, **options)


def horizon_of(results: Results, case: str = "result") -> int:
    """Rounds that a case was played."""
    return int(results[case]["time"][-1])
