"""`slope`: how the mean of a metric at the horizon moves with the leaves, from runs as the engine plays them.

Nothing is differentiated: candidates on both sides of the leaves meet the same luck, and what remains of their difference is what the leaves
do, by whatever way: decisions that jump, sets that are rounded, and what is learnt from what was chosen. The price is a bias that grows
with the square of the step, and noise that grows as the step shrinks: two runs that once decided otherwise go ways of their own.

Source: common random numbers: Glasserman and Yao (1992), "Some guidelines and guarantees for common random numbers"; all leaves at once: Spall
(1992), "Multivariate stochastic approximation using a simultaneous perturbation gradient approximation", here with orthogonal ways.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxroute.core import checks
from jaxroute.engine.execution import Execution
from jaxroute.tune.playing import Makers, Players
from jaxroute.tune.ranking import Goal, MetricFunction, moments
from jaxroute.tune.space import Linear, Log, Space


class Slope(NamedTuple):
    """Result of `slope`.

    values: derivative of the mean by leaf: for `Linear` per unit of the leaf, for `Log` per unit of its natural logarithm, so that a hundredth is
      what one per cent more does.
    errors: standard errors of the values, over the seeds.
    at: the middle of the candidates.
    score: mean over all candidates, and its standard error over the seeds.
    runs: `[seeds, leaves]` estimates of the single seeds.
    rounds: that were played.
    """

    values: dict[str, float]
    errors: dict[str, float]
    at: dict[str, float]
    score: tuple[float, float]
    runs: np.ndarray
    rounds: int


class Sides:
    """Candidates on both sides of a point of the box of some leaves.

    space: the box. number: of leaves. goal: what is differentiated.

    Args:
      env, policy, metric, maximise, record: as for `search`.
      leaves: `Linear` or `Log` by name.
      options: of `simulate`.

    Raises:
      ValueError: a name is unknown, or a leaf is no continuum.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        leaves: Mapping[str, Any],
        metric: str | MetricFunction,
        maximise: bool | None,
        record: Sequence[str] | None,
        options: Mapping[str, Any],
    ):
        self.space = Space.of(leaves)
        for name, scale in self.space.leaves.items():
            if not isinstance(scale, Linear):
                raise ValueError(f"leaves[{name!r}] must be Linear or Log to have a slope, got {checks.show(scale)}")
        self.number = len(self.space.leaves)
        ends = [self.space.values(0, np.full(self.number, end)) for end in (0.0, 1.0)]
        self.players = Players(Makers(env, policy, list(self.space.leaves)), ends)
        known = self.players.metrics(ends[0])
        self.goal = Goal.of(metric, maximise, None, None, 0.0, known)
        usual = [m.name for m in known.values() if m.default] if callable(metric) else []
        self.options = {
            **options,
            "record": list(dict.fromkeys([*self.goal.metrics, *(usual if record is None else record)])),
        }

    def inside(self, point: np.ndarray, step: float) -> np.ndarray:
        """The nearest point `[L]` both sides of which lie in the box along any way."""
        room = step * math.sqrt(self.number)
        return np.clip(point, room, 1.0 - room)

    def scores(self, points: np.ndarray, seeds: range) -> np.ndarray:
        """What points `[C, L]` score on seeds, `[C, S]`.

        Raises:
          FloatingPointError: a run is not valid, or its score not finite.
        """
        candidates = [self.space.values(0, point) for point in points]
        values, valid = self.players.together(candidates, seeds, **self.options)
        rows = [self.goal.scores({name: runs[place] for name, runs in values.items()}) for place in range(len(points))]
        found = np.stack(rows)
        bad = ~(valid & np.isfinite(found)).all(axis=1)
        if bad.any():
            raise FloatingPointError(
                f"runs of the candidate {candidates[int(np.argmax(bad))]} are not valid, or their score is not finite"
            )
        return found

    def slopes(self, point: np.ndarray, ways: np.ndarray, step: float, seeds: range) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives `[S, L]` per unit of the box by each seed, and mean scores `[S]`.

        Args:
          point: `[L]` middle, from which `step * ways` stays in the box.
          ways: `[P, L]` orthogonal; `2 P` runs a seed.
          step: in units of the box.
          seeds: played by all.
        """
        both = self.scores(np.concatenate([point + step * ways, point - step * ways]), seeds)
        up, down = np.split(both, 2)
        share = self.number / np.sum(ways**2)
        return share * ((up - down) / (2.0 * step)).T @ ways, both.mean(axis=0)


def orthogonal(number: int, pairs: int, generator: np.random.Generator) -> np.ndarray:
    """Random ways `[pairs, L]` of length `sqrt(L)`, orthogonal among each `L` of them; a mean over many of `way way'` is the identity."""
    blocks = []
    for _ in range(-(-pairs // number)):
        turned, triangle = np.linalg.qr(generator.standard_normal((number, number)))
        blocks.append(turned * np.sign(np.diag(triangle)))
    return math.sqrt(number) * np.concatenate(blocks)[:pairs]


def ways_of(number: int, pairs: int | None, generator: np.random.Generator) -> np.ndarray:
    """The axes for None, `pairs` random ways otherwise."""
    return np.eye(number) if pairs is None else orthogonal(number, pairs, generator)


def checked_step(step: Any, number: int) -> float:
    """A step both ends of which have room in the box."""
    checks.positive("step", step, ())
    most = 0.5 / math.sqrt(number)
    if step >= most:
        raise ValueError(
            f"step must be below {most:.3g} for {number} leaves, as both ends must lie in the box, got {step:g}"
        )
    return float(step)


def slope(
    env: Any,
    policy: Any,
    leaves: Mapping[str, Linear],
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
    """The derivative of the mean of a metric at the horizon with respect to leaves, with its standard error.

    By default each leaf has a candidate above and one below: `2 L` runs a seed. With `pairs` all leaves move at once, in random orthogonal ways:
    `2 pairs` runs a seed, whatever the number of leaves; the slopes in other leaves are then noise to each one, which the errors hold only if
    `pairs` is a multiple of the number of leaves.

    Args:
      env, policy: as for `search`.
      leaves: `Linear` or `Log` by name; their bounds say what a step is.
      metric: name of a recorded metric, or a function of a dict of metric to values `[seed]` that returns values `[seed]`.
      horizon: counted rounds of a run.
      at: values of the leaves (default: the middle of the box); closer to a bound than the step they are moved away from it.
      seeds: common to all candidates.
      step: half the distance of two candidates, in units of the box.
      pairs: ways in which all leaves move at once (default: one leaf at a time).
      record: metrics that a function needs (default: those that environment and policy mark as default).
      first_seed: the first of consecutive seeds.
      root_seed: seed of all randomness.
      execution: as for `simulate`.

    Raises:
      ValueError: an argument is out of range, a name is unknown, or a leaf is no continuum.
      FloatingPointError: a run is not valid, or its score not finite.
    """
    horizon, seeds = (
        checks.whole("horizon", horizon, maximum=2**31 - 1),
        checks.whole("seeds", seeds, 2),
    )
    first_seed = checks.whole("first_seed", first_seed, 0)
    options = {"horizon": horizon, "root_seed": root_seed, "execution": execution}
    sides = Sides(env, policy, leaves, metric, True, record, options)
    step = checked_step(step, sides.number)
    pairs = None if pairs is None else checks.whole("pairs", pairs)
    point = np.full(sides.number, 0.5) if at is None else sides.space.place("at", at)[1]
    point = sides.inside(point, step if pairs else step / math.sqrt(sides.number))
    ways = ways_of(sides.number, pairs, np.random.default_rng(root_seed))
    found, means = sides.slopes(point, ways, step, range(first_seed, first_seed + seeds))
    scales = sides.space.numbers.values()
    found = found / np.array([math.log(s.high / s.low) if isinstance(s, Log) else s.high - s.low for s in scales])
    known = [moments(column) for column in found.T]
    return Slope(
        values={name: mean for name, (mean, _) in zip(sides.space.leaves, known, strict=True)},
        errors={name: error for name, (_, error) in zip(sides.space.leaves, known, strict=True)},
        at=sides.space.values(0, point),
        score=moments(means),
        runs=found,
        rounds=2 * len(ways) * seeds * horizon,
    )
