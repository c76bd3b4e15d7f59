"""`search`: the best leaves of an environment and a policy by any metric, within a number of rounds, and how good they are on fresh seeds.

Three phases share the rounds, and no seed is used by two of them.

1. Search: generations of candidates, each one grid, all on the same few seeds, so that differences are those of the leaves and not of luck; the
   next one has fresh seeds, so that nobody learns what suits some seeds. Where the halves of the seeds do not agree on which candidates are
   better, later generations have twice as many. Structures (combinations of choices) share the search by halving: after each of `log2 S` stages
   the better half goes on.
2. Choice: finalists are the centre that the strategy expects most of, and the best candidates by a model of all that was played of a structure
   (`surrogate`), which tells leaves from luck. They are played again on fresh seeds; after each rung, of equal cost, the better half by the
   model goes on, on twice as many fresh seeds. Where there are bounds, some finalists keep these by more than is asked for: what the model does
   not know of a bound it does not know of all candidates alike.
3. Judgement: the chosen one, and the start beside it, on seeds that neither phase has seen. Its mean is unbiased.
"""

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from jaxroute.core import checks
from jaxroute.core.code import code_of, python
from jaxroute.core.description import describe
from jaxroute.core.provenance import fingerprint
from jaxroute.engine.execution import Execution, read_execution
from jaxroute.engine.simulate import tqdm
from jaxroute.tune import history as histories
from jaxroute.tune.history import Batch, History
from jaxroute.tune.playing import Makers, Played, Players
from jaxroute.tune.ranking import Estimate, Goal, MetricFunction, agreement, moments
from jaxroute.tune.space import Scale, Space
from jaxroute.tune.strategies import CMAES, Points, Strategy
from jaxroute.tune.surrogate import Knowledge

# Candidates of the first rung of the choice, and the fewest seeds that are worth a rung.
_FINALISTS, _FEWEST_SEEDS = 8, 4
# Margins by which finalists keep bounds, in units of the one that is asked for, besides that.
_STRICTER = (2.0, 4.0)
# Generations by which the seeds are judged, and the mean rank correlation of their halves below which they are doubled.
_LOOKS, _AGREEMENT = 2, 0.5
# Parts of the rounds for the choice and for the judgement; the search has the others.
_CHOICE, _JUDGEMENT = 1 / 5, 1 / 8


class Judged(NamedTuple):
    """A candidate on the seeds of the judgement.

    values: its leaves. score: mean of what was searched for, and its standard error. metrics: means and standard errors of all metrics that
    were recorded. bounds: for each bound whether it is "kept" or "broken" by more than the margin, or "open".
    """

    values: dict[str, Any]
    score: tuple[float, float]
    metrics: dict[str, tuple[float, float]]
    bounds: dict[str, str]


class Found(NamedTuple):
    """Result of `search`.

    values: the chosen leaves by name. best: how good they are, on seeds that neither search nor choice has seen. start: the same of the start,
    None without one. gain: of the best over the start, seed by seed (positive is better), with its standard error. kept: whether it
    keeps all bounds with the margin, by all runs of search and choice. rounds: that were played, by phase. history: every evaluation, see
    `jaxroute.tune.history.dataset`.
    """

    values: dict[str, Any]
    best: Judged
    start: Judged | None
    gain: tuple[float, float] | None
    kept: bool
    rounds: dict[str, int]
    history: xr.Dataset


@checks.suggest_keywords
def search(
    env: Any,
    policy: Any,
    leaves: Mapping[str, Scale],
    *,
    metric: str | MetricFunction,
    horizon: int,
    rounds: int,
    seeds: int = 4,
    maximise: bool | None = None,
    at_most: Mapping[str, float] | None = None,
    at_least: Mapping[str, float] | None = None,
    margin: float = 1.0,
    strategy: Strategy | None = None,
    start: Mapping[str, Any] | None = None,
    fresh: int | None = None,
    record: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    root_seed: int = 0,
    execution: Execution | None = None,
    progress: bool = True,
    accept_changed_code: bool = False,
) -> Found:
    """Finds leaves for which a metric at the horizon is smallest or largest.

    Args:
      env: an environment or sampler, or a function that makes an environment from some of the leaves.
      policy: a policy whose fields are the leaves (`"solver.temperature"` is a field of an object that it holds), or a function that makes
        one from them.
      leaves: `Linear`, `Log`, `Integer` or `Choice` by name. Each combination of choices is a program of its own.
      metric: name of a recorded metric, or a function of a dict of metric to values `[seed]` that returns values `[seed]`.
      horizon: counted rounds of a run.
      rounds: counted rounds in all, of search, choice and judgement together; no more are played.
      seeds: seeds of a candidate in the first generations: few, for many generations teach more than sure ones; doubled where luck decides who
        is better. A CPU plays 16 in the same time, so that where time counts and rounds do not, 16 are better.
      maximise: whether more is better (default: by the name of the metric).
      at_most, at_least: bounds on means by metric.
      margin: standard errors by which a bound has to be kept, see `jaxroute.tune.ranking`.
      strategy: `CMAES()`, the default, `Random()` or `Lattice()`.
      start: leaves to begin with, which are also judged (default: the middle of the box, and no judgement).
      fresh: seeds of the judgement (default: an eighth of the rounds).
      record: metrics that are kept besides (default: those that environment and policy mark as default, if `metric` is a function).
      out: folder of the search, which a killed one goes on from, to the same bits; with more rounds a finished one, too, which then finds what
        it would have found with so many from the start, and plays the generations that both have once.
      root_seed: seed of all randomness, of runs and candidates.
      execution: as for `simulate`; the search chooses the blocks where it does not say them.
      progress: shows a progress bar.
      accept_changed_code: goes on with a folder where the code has changed.

    Raises:
      ValueError: an argument is out of range, a name is unknown, the rounds are too few, or the folder holds another search.
      ImportError: CMA-ES is asked for, and `cmaes` is not installed.
    """
    execution = read_execution(execution)
    space = Space.of(leaves)
    strategy = CMAES() if strategy is None else strategy
    checks.part("strategy", strategy, "begin", "CMAES()")
    checks.boolean("progress", progress)
    horizon, seeds = (
        checks.whole("horizon", horizon, maximum=2**31 - 1),
        checks.whole("seeds", seeds, 2),
    )
    root_seed = checks.root_seed(root_seed)
    begin = None if start is None else space.place("start", start)
    plan = Plan.of(space, strategy, checks.whole("rounds", rounds), horizon, seeds, fresh, 1 if begin is None else 2)
    makers = Makers(env, policy, list(space.leaves))
    players = [Players(makers, _probes(space, number)) for number in range(len(space.structures))]
    examples = [space.values(number, np.full(len(space.numbers), 0.5)) for number in range(len(space.structures))]
    known = players[0].metrics(examples[0])
    goal = Goal.of(metric, maximise, at_most, at_least, margin, known)
    usual = [m.name for m in known.values() if m.default] if callable(metric) else []
    wanted = list(dict.fromkeys([*goal.metrics, *(usual if record is None else record)]))
    options: dict[str, Any] = {"horizon": horizon, "root_seed": root_seed, "execution": execution, "record": wanted}
    settings = fingerprint(
        {
            "environment": describe(env),
            "policy": describe(policy),
            "leaves": describe(dict(space.leaves)),
            "goal": describe(goal),
            "plan": asdict(plan),
            "strategy": describe(strategy),
            "start": None if begin is None else [begin[0], begin[1].tolist()],
            "record": wanted,
            "horizon": horizon,
            "root_seed": root_seed,
            "backend": execution.backend,
            **({"compile": execution.compile} if execution.compile != "full" else {}),
        }
    )
    code = {
        "python": python(),
        **code_of([env, policy, strategy, *makers.make(examples[0]), *([metric] if callable(metric) else [])]),
    }
    history = histories.opened(out, settings, code, accept_changed_code)
    with tqdm(total=plan.runs, disable=not progress, unit="run", leave=False) as bar:
        found = _Search(space, goal, plan, strategy, players, history, options, begin, root_seed, bar).run()
    if not found.kept:
        warnings.warn("no finalist keeps all bounds with the margin: the one that lacks least was chosen", stacklevel=2)
    return found


def _probes(space: Space, structure: int) -> list[dict[str, Any]]:
    """Candidates among which every leaf changes: the middle, and each bound alone."""
    middle = np.full(len(space.numbers), 0.5)
    points = [middle]
    for place in range(len(middle)):
        for end in (0.0, 1.0):
            points.append(np.where(np.arange(len(middle)) == place, end, middle))
    return [space.values(structure, point) for point in points]


@dataclass(frozen=True)
class Plan:
    """How the runs are shared out.

    runs: in all. judged: seeds of the judgement of each of `judges` candidates. choice: runs of the choice. size: candidates of a generation.
    seeds: of a candidate in the search. stages: of the search, after each of which the better half of the structures goes on.
    """

    runs: int
    judged: int
    judges: int
    choice: int
    size: int
    seeds: int
    stages: int

    @staticmethod
    def of(space: Space, strategy: Strategy, rounds: int, horizon: int, seeds: int, fresh: Any, judges: int) -> "Plan":
        """The plan of a search.

        Raises:
          ValueError: the rounds are too few for a generation of each structure, a choice and a judgement.
        """
        structures, runs = len(space.structures), rounds // horizon
        judged = max(2, math.floor(runs * _JUDGEMENT) // judges) if fresh is None else checks.count("fresh", fresh, 2)
        if not space.numbers and structures < 2:
            raise ValueError("leaves must have something to choose from, got a single candidate")
        size = strategy.population(len(space.numbers)) if space.numbers else 0
        stages = math.ceil(math.log2(structures)) + 1 if space.numbers else 0
        left = runs - judges * judged
        choice = math.floor(runs * _CHOICE) if space.numbers else left
        alive, least = structures, 0
        for _ in range(stages):
            least += alive * size * seeds
            alive = -(-alive // 2)
        # As much as the first stage needs, as all stages are equal.
        least = max(least, stages * structures * size * seeds)
        fewest = 2 * structures if not space.numbers else 2
        if left - choice < least or choice < fewest:
            need = (max(least, fewest) + judges * judged) * horizon
            need = math.ceil(need / (1 - (_CHOICE if space.numbers else 0) - (_JUDGEMENT if fresh is None else 0)))
            raise ValueError(
                f"rounds must be about {need:,} at least, for a generation of {size} candidates x {seeds} seeds x {horizon} rounds"
                f"{f' in each of {stages} stages of {structures} structures' if structures > 1 else ''}, the choice among the best and "
                f"{judged} seeds of judgement; got {rounds:,}"
            )
        return Plan(runs, judged, judges, choice, size, seeds, stages)

    @property
    def search(self) -> int:
        """Runs of the search."""
        return self.runs - self.choice - self.judges * self.judged


@dataclass(eq=False)
class _Candidate:
    """A candidate: where it lies, and what is known of it in this phase.

    number: of the candidate. structure: of the choices. point: `[d]`. runs: what came out of each batch.
    """

    number: int
    structure: int
    point: np.ndarray
    runs: list[tuple[dict[str, np.ndarray], np.ndarray]] = field(default_factory=list)

    def known(self, goal: Goal) -> Estimate:
        """What all its runs say."""
        values = {name: np.concatenate([own[name] for own, _ in self.runs]) for name in self.runs[0][0]}
        return goal.estimate(values, np.concatenate([valid for _, valid in self.runs]))


@dataclass(eq=False)
class _Search:
    """A search that is going on.

    next_seed: the first that no phase has used. number: of candidates so far. seeds: of a candidate now, by structure. fresh: the first that
    a structure has not seen. agreed: between the halves of the seeds, by structure and generation since the last doubling. knowledge: what
    search and choice have played of a structure.
    """

    space: Space
    goal: Goal
    plan: Plan
    strategy: Strategy
    players: list[Players]
    history: History
    options: dict[str, Any]
    begin: tuple[int, np.ndarray] | None
    root_seed: int
    bar: Any
    next_seed: int = 0
    number: int = 0
    seeds: dict[int, int] = field(default_factory=dict)
    fresh: dict[int, int] = field(default_factory=dict)
    agreed: dict[int, list[float]] = field(default_factory=dict)
    knowledge: dict[int, Knowledge] = field(default_factory=dict)

    def run(self) -> Found:
        """The story."""
        finalists = self.look()
        chosen = self.choose(finalists)
        return self.judge(chosen)

    def play(self, phase: str, generation: int, candidates: Sequence[_Candidate], seeds: range) -> None:
        """Plays candidates of one structure on some seeds, or remembers that; they then know what came out."""
        structure = candidates[0].structure
        points = [[float(u) for u in one.point] for one in candidates]
        batch = Batch(phase, generation, structure, [c.number for c in candidates], points, seeds.start, len(seeds))
        played = self.history.stored(batch)
        if played is None:
            played = self._played(batch)
            self.history.add(batch, played)
        self.bar.set_description(phase)
        self.bar.update(len(candidates) * len(seeds))
        values, valid = played
        if phase != "judgement":
            self.knowledge.setdefault(structure, Knowledge(self.goal)).add(np.array(points), values, valid)
        for place, one in enumerate(candidates):
            one.runs.append(({name: runs[place] for name, runs in values.items()}, valid[place]))

    def _played(self, batch: Batch) -> Played:
        candidates = [self.space.values(batch.structure, point) for point in batch.points]
        player = self.players[batch.structure]
        if batch.phase == "search":
            return player.together(candidates, batch.span, **self._options(self.plan.seeds))
        return player.one_by_one(candidates, batch.span, **self._options(_block(self.plan)))

    def _options(self, block: int) -> dict[str, Any]:
        """Options of `simulate`, with so many seeds a block where the execution does not say it."""
        execution = self.options["execution"]
        return self.options | {"execution": replace(execution, block=execution.block or block)}

    def candidate(self, structure: int, point: np.ndarray) -> _Candidate:
        """A new candidate."""
        self.number += 1
        return _Candidate(self.number - 1, structure, point)

    def look(self) -> list[_Candidate]:
        """The search; returns the finalists, who know nothing of it."""
        plan = self.plan
        alive, played = list(range(len(self.players))), {number: [] for number in range(len(self.players))}
        if not plan.stages:
            return [self.candidate(structure, np.zeros(0)) for structure in alive]
        points = {structure: self._begin(structure) for structure in alive}
        self.seeds = dict.fromkeys(alive, plan.seeds)
        generations, left = dict.fromkeys(alive, 0), plan.search
        for stage in range(plan.stages):
            share = left // (plan.stages - stage) // len(alive)
            for structure in alive:
                spent = self._stage(structure, points[structure], share, played[structure], generations)
                left -= spent
            alive = self._halved(alive, played) if stage < plan.stages - 1 else alive
        return self._finalists(alive, points, [one for structure in alive for one in played[structure]])

    def _begin(self, structure: int) -> Points:
        at = None if self.begin is None else self.begin[1]
        seed = int(np.random.SeedSequence([self.root_seed, structure]).generate_state(1)[0])
        return self.strategy.begin(self.space.steps, at, seed)

    def _stage(
        self, structure: int, points: Points, share: int, played: list[_Candidate], generations: dict[int, int]
    ) -> int:
        """Generations of a structure for a number of runs; how many were played."""
        spent = 0
        while (number := min(self.plan.size, (share - spent) // self.seeds[structure])) > 0:
            asked = points.ask(number)
            if not len(asked):
                break
            candidates = [self.candidate(structure, point) for point in asked]
            first = self.fresh.get(structure, 0)
            seeds = range(first, first + self.seeds[structure])
            self.fresh[structure], self.next_seed = seeds.stop, max(self.next_seed, seeds.stop)
            self.play("search", generations[structure], candidates, seeds)
            generations[structure] += 1
            points.tell(asked, self.goal.order([one.known(self.goal) for one in candidates]))
            played += candidates
            spent += len(candidates) * len(seeds)
            self._adapt(structure, candidates)
        return spent

    def estimates(self, candidates: Sequence[_Candidate]) -> list[Estimate]:
        """What all that was played of their structures says of candidates; what their own runs say where that is too little for a model."""
        known = [one.known(self.goal) for one in candidates]
        for structure in dict.fromkeys(one.structure for one in candidates):
            which = [i for i, one in enumerate(candidates) if one.structure == structure]
            modelled = self.knowledge[structure].at(np.array([candidates[i].point for i in which]))
            for i, one in zip(which, modelled or [], strict=False):
                known[i] = replace(one, valid=known[i].valid)
        return known

    def _adapt(self, structure: int, candidates: list[_Candidate]) -> None:
        """Twice as many seeds from now on, where the halves of the seeds have not agreed on who is better."""
        agreed = self.agreed.setdefault(structure, [])
        agreed.append(agreement(np.array([self.goal.scores(one.runs[-1][0]) for one in candidates])))
        if len(agreed) >= _LOOKS and np.mean(agreed[-_LOOKS:]) < _AGREEMENT:
            self.seeds[structure] *= 2
            agreed.clear()

    def _halved(self, alive: list[int], played: Mapping[int, list[_Candidate]]) -> list[int]:
        """The better half of the structures, by the best candidate of each."""
        best = []
        for structure in alive:
            known = self.estimates(played[structure])
            best.append(known[self.goal.order(known, cautious=True)[0]])
        order = self.goal.order(best, cautious=True)
        return sorted(alive[i] for i in order[: -(-len(alive) // 2)])

    def _finalists(self, alive: list[int], points: Mapping[int, Points], played: list[_Candidate]) -> list[_Candidate]:
        """The centres of the strategies, and the best that were played, each once.

        Where there are bounds, two of three finalists are the best of those that keep them by more: those that just keep a bound may break it
        together on other seeds.
        """
        most = _FINALISTS
        while most > 1 and self.plan.choice // (most * max(1, math.ceil(math.log2(most)))) < _FEWEST_SEEDS:
            most //= 2
        known = self.estimates(played)
        margins = [max(self.goal.margin, 1.0) * more for more in _STRICTER] if self.goal.bounded else []
        orders = [self.goal.order(known, cautious=True, margin=margin) for margin in (self.goal.margin, *margins)]
        centres = [(structure, points[structure].centre()) for structure in alive]
        wanted = [(s, c) for s, c in centres if c is not None]
        wanted += [(played[i].structure, played[i].point) for places in zip(*orders, strict=True) for i in places]
        found: dict[str, tuple[int, np.ndarray]] = {}
        for structure, point in wanted:
            found.setdefault(repr((structure, [float(u) for u in point])), (structure, point))
        return [self.candidate(structure, point) for structure, point in list(found.values())[:most]]

    def choose(self, finalists: list[_Candidate]) -> tuple[_Candidate, bool]:
        """The best of the finalists by successive halving on fresh seeds, and whether it keeps all bounds."""
        # What the search left over goes to the choice.
        spent = self.history.rounds["search"]
        left, rung = self.plan.runs - self.plan.judges * self.plan.judged - spent, 0
        rungs = max(1, math.ceil(math.log2(len(finalists))))
        while True:
            number = left // (rungs - rung) // len(finalists)
            seeds = range(self.next_seed, self.next_seed + number)
            for structure in dict.fromkeys(one.structure for one in finalists):
                self.play("choice", rung, [one for one in finalists if one.structure == structure], seeds)
            self.next_seed, left, rung = seeds.stop, left - number * len(finalists), rung + 1
            known = self.estimates(finalists)
            order = self.goal.order(known)
            if rung == rungs:
                return finalists[order[0]], self.goal.keeps(known[order[0]])
            finalists = [finalists[i] for i in order[: -(-len(finalists) // 2)]]

    def judge(self, choice: tuple[_Candidate, bool]) -> Found:
        """The result, with what it is worth on seeds that nobody has seen."""
        chosen, kept = choice
        seeds = range(self.next_seed, self.next_seed + self.plan.judged)
        best = _Candidate(chosen.number, chosen.structure, chosen.point)
        start = None if self.begin is None else self.candidate(*self.begin)
        for one in (best, start):
            if one is not None:
                self.play("judgement", 0, [one], seeds)
        gain = None
        if start is not None:
            sign = 1.0 if self.goal.maximise else -1.0
            scores = [self.goal.scores(one.runs[0][0]) for one in (best, start)]
            gain = moments(sign * (scores[0] - scores[1]))
        horizon = self.options["horizon"]
        rounds = {phase: runs * horizon for phase, runs in self.history.rounds.items()}
        return Found(
            values=self.space.values(best.structure, best.point),
            best=self._judged(best),
            start=None if start is None else self._judged(start),
            gain=gain,
            kept=kept,
            rounds=rounds,
            history=histories.dataset(self.history, self.space, self.goal, horizon, best.number),
        )

    def _judged(self, one: _Candidate) -> Judged:
        known = one.known(self.goal)
        metrics = {name: moments(runs) for name, runs in one.runs[0][0].items()}
        return Judged(self.space.values(one.structure, one.point), known.score, metrics, self.goal.verdicts(known))


def _block(plan: Plan) -> int:
    """Seeds of a compiled call of the choice and the judgement: the same for all rungs, so that they are one program."""
    return min(256, max(16, 1 << (max(1, plan.judged) - 1).bit_length()))
