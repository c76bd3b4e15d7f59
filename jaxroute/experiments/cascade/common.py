"""Shared parts of the experiments of COSMOS: learners, cases, claims and figures."""

from collections.abc import Mapping
from typing import Any

from jaxroute import plot
from jaxroute.experiments.base import Case, Claim, Experiment
from jaxroute.experiments.claims import Measure
from jaxroute.experiments.pictures import Picture, panel, side_by_side
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.parts.radii import PracticalRadius
from jaxroute.problems.cascade.parts.streaming import StreamingNewton
from jaxroute.problems.cascade.parts.window import Window

COSMOS = "COSMOS (Belloni, Chen and Wei)"
OURS = "our study; the paper has no experiment"
RECORD = ("regret", "mean_cost_regret", "queries", "utility")
# Settings of the cascade in most experiments, with observed and with learned scores.
SEEN: dict[str, Any] = {"num_models": 3, "dim": 3}
UNSEEN = SEEN | {"evaluator": 5}
STREAMING, WINDOW = StreamingNewton(), Window()


def learner(index: float = 0.10, warm: int = 0, fit: Any = STREAMING) -> ca.COSMOS:
    """COSMOS for observed scores, with a bonus; the greedy policy for 0. All with the same estimator share a compiled program."""
    return ca.COSMOS(fit=fit, radius=PracticalRadius(index, 0.0, 0.0), exploration=WarmUp(warm))


def learns_scores(index: float = 0.10, plug_in: float = 0.03, optimism: float = 0.30, fit: Any = WINDOW) -> ca.COSMOS:
    """COSMOS with a learned evaluator; the greedy policy for 0, 0, 0."""
    return ca.COSMOS(fit=fit, radius=PracticalRadius(index, plug_in, optimism))


def case_of(
    policies: Any, horizon: int, name: str = "result", settings: Mapping[str, Any] = SEEN, *, every: int, **options: Any
) -> Case:
    """A case of a cascade with uniform noise (or another `environment`), with a record after `every` rounds."""
    options = {"environment": ca.uniform_cascade, "record": RECORD, "record_every": every, **options}
    return Case(policies=policies, horizon=horizon, name=name, settings=settings, **options)


def claims(*rows: tuple[str, str, Measure] | tuple[str, str, Measure, str]) -> tuple[Claim, ...]:
    """Claims from rows of name, text, measure and optionally source (default: our study)."""
    return tuple(Claim(row[0], row[1], row[3] if len(row) > 3 else OURS, row[2]) for row in rows)


def study(
    name: str, title: str, cases: tuple[Case, ...], seeds: int, claims: tuple[Claim, ...], figures: Any, **more: Any
) -> Experiment:
    """An experiment, with our study as its default source."""
    return Experiment(name, title, cases, seeds, claims, figures, **{"source": OURS, **more})


def mean_and_runs(draw: Any = plot.curves, change: Any = None, **options: Any) -> Picture:
    """Figure of the mean regret, drawn by a function of `plot`, and of single runs."""
    runs = {name: value for name, value in options.items() if name == "policies"}
    mean = panel("regret", draw, change=change, title="mean", **options)
    return side_by_side(mean, panel("regret", plot.quantiles, change=change, log=True, title="runs", **runs))
