"""Derivatives of simulated metrics in hyperparameters.

`slope` estimates the derivative of a metric's mean at the horizon from differences between runs. Candidates on both sides of a point have common
random numbers, so their difference shows the whole effect of the hyperparameters, including that of discrete decisions, rounding and exploration. The
bias grows with the square of the step. The noise grows as the step shrinks, because two runs stay different once they have decided differently.

`objective_of` makes a run differentiable for policies whose action contains both a set of models and the fractional (relaxed) selection from which
the set was rounded. The objective is a function of the selection, while outcomes, feedback and statistics come from the set. The gradient takes the
sets, and so the observed data, as fixed, although other hyperparameters would change them: it lacks the effects of rounding, discrete decisions and
exploration.

Source: common random numbers: Glasserman and Yao (1992), "Some guidelines and guarantees for common random numbers"; all hyperparameters at once:
Spall (1992), "Multivariate stochastic approximation using a simultaneous perturbation gradient approximation", here with orthogonal directions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws
from jaxroute.core.protocols import Wrapper
from jaxroute.core.types import Metric
from jaxroute.engine.execution import Execution
from jaxroute.engine.precision import as_written
from jaxroute.engine.rollout import rollout
from jaxroute.engine.rounds import Record, run_streams
from jaxroute.tune.candidates import CandidateFactory, CandidateRunner, replace
from jaxroute.tune.ranking import Goal, MetricFunction, moments
from jaxroute.tune.space import Linear, Log, Space

Objective = Callable[[Any, Any, Any, Any], jax.Array]
_METRIC = Metric("objective", "mean objective", "", "average")


class Slope(NamedTuple):
    """Result of `slope`.

    Attributes:
      values: derivative of the mean in each hyperparameter: for `Linear` per unit, for `Log` per unit of the natural logarithm (a hundredth of it is
        the effect of an increase by one per cent).
      errors: standard errors of the derivatives over the seeds.
      at: hyperparameters at which the derivative is taken.
      score: mean score over the candidates around `at`, near that of `at` itself, and its standard error over the seeds.
      runs: `[seeds, parameters]` derivatives estimated from each seed alone.
      rounds: number of simulated rounds.
    """

    values: dict[str, float]
    errors: dict[str, float]
    at: dict[str, float]
    score: tuple[float, float]
    runs: np.ndarray
    rounds: int


def orthogonal_directions(number: int, pairs: int, generator: np.random.Generator) -> np.ndarray:
    """Returns `pairs` random directions of length `sqrt(number)`, `[pairs, number]`; the rows of each block of `number` rows are orthogonal."""
    rotations, triangles = np.linalg.qr(generator.standard_normal((-(-pairs // number), number, number)))
    rotations *= np.sign(np.diagonal(triangles, axis1=1, axis2=2))[:, None, :]
    return math.sqrt(number) * rotations.reshape(-1, number)[:pairs]


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

    By default each of `L` hyperparameters has a candidate above and one below, which takes `2 L` runs per seed. With `pairs` all hyperparameters
    change at once, in random orthogonal directions, which takes `2 pairs` runs per seed. Each derivative then has additional noise from the other
    hyperparameters; the errors include this noise only if `pairs` is a multiple of `L`.

    Args:
      env, policy: environment and policy, or functions of hyperparameters that make them, as in `search`.
      parameters: `Linear` or `Log` by name; a step is relative to their ranges.
      metric: name of a recorded metric, or a function of a dict of metric to values `[seed]` that returns a score for each seed, `[seed]`.
      horizon: number of rounds of a run, after the warm-up of environments that have one.
      at: hyperparameters (default: the middle of the ranges). A value so near the end of a range that a candidate would be outside is moved inwards.
      seeds: number of seeds, common to all candidates.
      step: half the distance of two candidates, as a share of the range.
      pairs: number of random directions (default: one hyperparameter at a time).
      record: metrics that the function `metric` needs (default: the default metrics of environment and policy).
      first_seed: the first of consecutive seeds.
      root_seed: seed of all randomness.
      execution: options of the computation, such as devices.

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
        raise ValueError(f"step must be below {most:.3g} for {number} hyperparameters, to stay in the box, got {step:g}")
    bounds = [space.values(0, np.full(number, end)) for end in (0.0, 1.0)]
    runner = CandidateRunner(CandidateFactory(env, policy, list(space.parameters)), bounds)
    known = runner.metrics(bounds[0])
    goal = Goal.of(metric, True, None, None, 0.0, known)
    point = space.centre if at is None else space.locate("at", at)[1]
    # Moves the point away from the bounds, so that candidates in all directions of length sqrt(L) lie in the unit cube.
    reach = (step if pairs else step / math.sqrt(number)) * math.sqrt(number)
    point = np.clip(point, reach, 1.0 - reach)
    generator = np.random.default_rng(root_seed)
    directions = np.eye(number) if pairs is None else orthogonal_directions(number, pairs, generator)
    points = np.concatenate([point + step * directions, point - step * directions])
    candidates = [space.values(0, one) for one in points]
    span = range(first_seed, first_seed + seeds)
    options = {"horizon": horizon, "root_seed": root_seed, "execution": execution, "record": goal.record(known, record)}
    values, valid = runner.run_grid(candidates, span, **options)
    scores = np.stack([goal.scores({name: runs[i] for name, runs in values.items()}) for i in range(len(points))])
    bad = ~(valid & np.isfinite(scores)).all(axis=1)
    if bad.any():
        worst = candidates[int(np.argmax(bad))]
        raise FloatingPointError(f"runs of the candidate {worst} are not valid, or their score is not finite")
    up, down = np.split(scores, 2)
    # One estimate of the gradient per seed, `[S, L]`, first in units of the unit cube, then in those of `Slope.values`.
    runs = number / np.sum(directions**2) * ((up - down) / (2.0 * step)).T @ directions
    runs = runs / np.array([math.log(s.high / s.low) if isinstance(s, Log) else s.high - s.low for s in scales])
    values, errors = (dict(zip(space.parameters, column)) for column in zip(*map(moments, runs.T)))
    score, rounds = moments(scores.mean(axis=0)), 2 * len(directions) * seeds * horizon
    return Slope(values, errors, space.values(0, point), score, runs, rounds)


@struct.dataclass
class _WithObjective(Wrapper):
    """Environment with one more metric, "objective": in each round `objective(env, state, action, t)` with the state before the round."""

    objective: Objective = struct.field(pytree_node=False)

    def step(self, key, state, action, t):
        after, feedback, flows = self.env.step(key, state, action, t)
        return after, feedback, {**flows, "objective": self.objective(self.env, state, action, t)}


def objective_of(
    env: Any, policy: Any, objective: Objective, *, horizon: int, root_seed: int = 0
) -> Callable[..., jax.Array]:
    """Returns the objective per round as a differentiable function of a policy's hyperparameters.

    Args:
      env: an environment.
      policy: a policy; hyperparameters that the returned function does not receive stay as they are.
      objective: function `(env, env_state, action, t) -> value` of a round, differentiable in fields of the action such as a fractional selection.
      horizon: number of rounds of a run.
      root_seed: seed of all randomness.

    Returns:
      A function `f(parameters, seeds)` of a dict of hyperparameter to scalar, and of `R` integer seeds, `[R]`. It returns each run's mean over its
      rounds, `[R]`. Differentiate the mean of the runs with `jax.jacfwd`, whose time grows with the number of hyperparameters, or with `jax.grad`,
      whose memory grows with the horizon.
    """
    record = Record(every=checks.whole("horizon", horizon), flows=(_METRIC,))
    root = jax.random.key_data(draws.key(root_seed))
    env = _WithObjective(env, objective)

    # `jit` here keeps differentiation outside of `rounding.protected`: inside, derivative rules would close over its traced zeros in a loop.
    @jax.jit
    def value(parameters: Mapping[str, Any], seeds: Any) -> jax.Array:
        with as_written():
            streams = run_streams(root, jnp.asarray(seeds, np.uint32))
            recorded = rollout(env, replace(policy, parameters), streams, horizon, record, reversible=True)
        return recorded["objective"][0] / horizon

    return value
