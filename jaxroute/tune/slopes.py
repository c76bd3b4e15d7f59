"""`slope`: derivative of the mean of a metric at the horizon in hyperparameters, from differences of simulated runs.

Candidates on both sides of a point have common random numbers, so that their difference shows the whole effect of the hyperparameters:
decisions that jump, rounded sets, and the value of exploration. The bias grows with the square of the step; the noise grows as the step
shrinks, because two runs part for good once they have decided differently.

Source: common random numbers: Glasserman and Yao (1992), "Some guidelines and guarantees for common random numbers"; all hyperparameters at
once: Spall (1992), "Multivariate stochastic approximation using a simultaneous perturbation gradient approximation", here with orthogonal
directions.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxroute.core import checks
from jaxroute.engine.execution import Execution
from jaxroute.tune.candidates import CandidateFactory, CandidateRunner
from jaxroute.tune.ranking import Goal, MetricFunction, moments
from jaxroute.tune.space import Linear, Log, Space


class Slope(NamedTuple):
    """Result of `slope`.

    Attributes:
      values: derivative of the mean by hyperparameter: for `Linear` per unit, for `Log` per unit of the natural logarithm, so that a
        hundredth of it is the effect of one per cent more.
      errors: standard errors of the values over the seeds.
      at: hyperparameters in the middle of the candidates.
      score: mean over all candidates, and its standard error over the seeds.
      runs: `[seeds, parameters]` estimates of the single seeds.
      rounds: number of simulated rounds.
    """

    values: dict[str, float]
    errors: dict[str, float]
    at: dict[str, float]
    score: tuple[float, float]
    runs: np.ndarray
    rounds: int


def orthogonal_directions(number: int, pairs: int, generator: np.random.Generator) -> np.ndarray:
    """Returns random directions `[pairs, L]` of length `sqrt(L)`, orthogonal among each `L` of them; the mean of many `v v'` is the identity."""
    blocks = []
    for _ in range(-(-pairs // number)):
        rotation, triangle = np.linalg.qr(generator.standard_normal((number, number)))
        blocks.append(rotation * np.sign(np.diag(triangle)))
    return math.sqrt(number) * np.concatenate(blocks)[:pairs]


@checks.suggest_keywords
def slope(
    env: Any,
    policy: Any,
    parameters: Mapping[str, Linear],
    *,
    metric: str | MetricFunction,
    horizon: int,
    at: Mapping[str, float] | None = None,
    seeds: int = 256,
    step: float = 0.05,
    pairs: int | None = None,
    record: Sequence[str] | None = None,
    first_seed: int = 0,
    root_seed: int = 0,
    execution: Execution | None = None,
) -> Slope:
    """Returns the derivative of the mean of a metric at the horizon in hyperparameters, with its standard error.

    By default each of `L` hyperparameters has a candidate above and one below: `2 L` runs per seed. With `pairs` all of them change at once, in
    random orthogonal directions: `2 pairs` runs per seed. The slopes in the other hyperparameters are then noise to each one; the errors
    include it only if `pairs` is a multiple of `L`.

    Args:
      env, policy: as for `search`.
      parameters: `Linear` or `Log` by name; a step is relative to their bounds.
      metric: name of a recorded metric, or a function of a dict of metric to values `[seed]` that returns values `[seed]`.
      horizon: counted rounds of a run.
      at: hyperparameters (default: the middle of the box); closer to a bound than the step they are moved away from it.
      seeds: number of seeds, common to all candidates.
      step: half the distance of two candidates, in units of the box.
      pairs: number of random directions (default: one hyperparameter at a time).
      record: metrics that a function needs (default: the default metrics of environment and policy).
      first_seed: the first of consecutive seeds.
      root_seed: seed of all randomness.
      execution: as for `simulate`.

    Raises:
      ValueError: an argument is out of range, a name is unknown, or a hyperparameter is not continuous.
      FloatingPointError: a run is not valid, or its score not finite.
    """
    horizon, seeds = checks.whole("horizon", horizon, maximum=2**31 - 1), checks.whole("seeds", seeds, 2)
    first_seed = checks.whole("first_seed", first_seed, 0)
    pairs = None if pairs is None else checks.whole("pairs", pairs)
    space = Space.of(parameters)
    for name, scale in space.parameters.items():
        if not isinstance(scale, Linear):
            raise ValueError(f"parameters[{name!r}] must be Linear or Log to have a slope, got {checks.show(scale)}")
    number, scales = len(space.parameters), list(space.numeric.values())
    step = float(checks.positive("step", step, ()))
    most = 0.5 / math.sqrt(number)
    if step >= most:
        raise ValueError(
            f"step must be below {most:.3g} for {number} hyperparameters, as both ends must lie in the box, got {step:g}"
        )
    bounds = [space.values(0, np.full(number, end)) for end in (0.0, 1.0)]
    runner = CandidateRunner(CandidateFactory(env, policy, list(space.parameters)), bounds)
    known = runner.metrics(bounds[0])
    goal = Goal.of(metric, True, None, None, 0.0, known)
    point = space.centre if at is None else space.locate("at", at)[1]
    # Of a direction of length sqrt(L) both ends lie in the box.
    reach = (step if pairs else step / math.sqrt(number)) * math.sqrt(number)
    point = np.clip(point, reach, 1.0 - reach)
    if pairs is None:
        directions = np.eye(number)
    else:
        directions = orthogonal_directions(number, pairs, np.random.default_rng(root_seed))
    points = np.concatenate([point + step * directions, point - step * directions])
    candidates = [space.values(0, one) for one in points]
    span = range(first_seed, first_seed + seeds)
    options = {"horizon": horizon, "root_seed": root_seed, "execution": execution, "record": goal.record(known, record)}
    values, valid = runner.run_grid(candidates, span, **options)
    scores = np.stack([goal.scores({name: runs[i] for name, runs in values.items()}) for i in range(len(points))])
    bad = ~(valid & np.isfinite(scores)).all(axis=1)
    if bad.any():
        raise FloatingPointError(
            f"runs of the candidate {candidates[int(np.argmax(bad))]} are not valid, or their score is not finite"
        )
    up, down = np.split(scores, 2)
    # One estimate of the gradient per seed, `[S, L]`, in units of the box.
    runs = number / np.sum(directions**2) * ((up - down) / (2.0 * step)).T @ directions
    runs = runs / np.array([math.log(s.high / s.low) if isinstance(s, Log) else s.high - s.low for s in scales])
    slopes = dict(zip(space.parameters, (moments(column) for column in runs.T)))
    return Slope(
        values={name: mean for name, (mean, _) in slopes.items()},
        errors={name: error for name, (_, error) in slopes.items()},
        at=space.values(0, point),
        score=moments(scores.mean(axis=0)),
        runs=runs,
        rounds=2 * len(directions) * seeds * horizon,
    )
