"""`search` finds the best hyperparameters of an environment and a policy by any metric within a number of rounds, and tests them on fresh seeds.

Three phases share the rounds; no seed is used by two of them.

1. Search: all candidates of a generation run on the same seeds, so they differ by hyperparameters rather than noise. The next generation has fresh
seeds. If the ranking by one half of the seeds disagrees with the ranking by the other, later generations have twice as many seeds. Structures
(combinations of choices) are reduced by successive halving: there are `log2(number)` stages, and after each the better half of the structures
continues.
2. Selection: finalists are the strategy's estimates of the best point, and the candidates that a model of all evaluations of a structure
(`surrogate`) ranks best. They run again on fresh seeds, in rungs (rounds of halving) of equal cost, each with half of the finalists and twice as many
seeds. With bounds, some finalists are chosen by stricter margins, because an error of the model could otherwise make all finalists violate a bound.
3. Test: the chosen candidate and the user's `start`, if any, run on seeds that no earlier phase has used, so their means are unbiased.
"""

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas
import xarray as xr

from jaxroute.core import checks
from jaxroute.core.code import code_of, python
from jaxroute.core.description import describe
from jaxroute.core.provenance import fingerprint
from jaxroute.engine.execution import Execution, read_execution
from jaxroute.engine.progress import tqdm
from jaxroute.metrics import rounded
from jaxroute.tune.candidates import CandidateFactory, CandidateRunner
from jaxroute.tune.history import Batch, History, dataset, open_history
from jaxroute.tune.ranking import Estimate, Goal, MetricFunction, agreement, moments
from jaxroute.tune.space import CMAES, Optimizer, Scale, Space, Strategy
from jaxroute.tune.surrogate import Surrogate

_FINALISTS, _FEWEST_SEEDS = 8, 4  # Number of finalists, and the fewest seeds of a rung of the selection.
_STRICTER = (2.0, 4.0)  # Margins by which some finalists satisfy the bounds, in units of the required margin.
# Generations over which the agreement between the halves of the seeds is averaged; a mean agreement below which the number of seeds doubles.
_GENERATIONS, _AGREEMENT = 2, 0.5
_SELECTION_SHARE, _TEST_SHARE = 1 / 5, 1 / 8  # Shares of selection and test in the rounds; the search has the rest.


class Evaluation(NamedTuple):
    """Results of a candidate on the test seeds.

    Attributes:
      values: hyperparameters by name.
      score: mean score and its standard error.
      metrics: mean and standard error of each recorded metric.
      bounds: verdict on each bound, such as "cost <= 0.5": "satisfied" or "violated" by more than the margin, otherwise "undecided".
    """

    values: dict[str, Any]
    score: tuple[float, float]
    metrics: dict[str, tuple[float, float]]
    bounds: dict[str, str]


class SearchResult(NamedTuple):
    """Result of `search`.

    Attributes:
      values: best hyperparameters by name.
      best: results of the best hyperparameters on the test seeds.
      start: results of the user's start on the same seeds; None without a start.
      gain: mean improvement from start to best, seed by seed (positive is better), and its standard error; None without a start.
      feasible: whether the best candidate satisfies all bounds with the margin, by all runs of search and selection.
      rounds: number of simulated rounds in each phase.
      history: every evaluation, as described at `jaxroute.tune.history.dataset`.
    """

    values: dict[str, Any]
    best: Evaluation
    start: Evaluation | None
    gain: tuple[float, float] | None
    feasible: bool
    rounds: dict[str, int]
    history: xr.Dataset

    def _repr_html_(self) -> str:
        name = self.history["score"].attrs["long_name"]
        rows = {label: one for label, one in (("best", self.best), ("start", self.start)) if one is not None}
        columns = [one.values | {f"mean {name}": rounded(*one.score)} | one.bounds for one in rows.values()]
        return pandas.DataFrame(columns, list(rows)).to_html()


@checks.suggest_keywords
def search(
    env: Any,
    policy: Any,
    parameters: Mapping[str, Scale],
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
    test_seeds: int | None = None,
    record: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    root_seed: int = 0,
    execution: Execution | None = None,
    progress: bool = True,
    accept_changed_code: bool = False,
) -> SearchResult:
    """Finds hyperparameters for which a metric at the horizon is smallest or largest.

    Args:
      env: an environment or sampler, or a function that makes an environment from some of the hyperparameters.
      policy: a policy whose fields are the hyperparameters (`"solver.temperature"` is a field of the object in its field `solver`), or a function
        that makes a policy from hyperparameters.
      parameters: `Linear`, `Log`, `Integer` or `Choice` by name. Each combination of choices is compiled separately.
      metric: name of a recorded metric, or a function of a dict of metric to values `[seed]` that returns a score for each seed, `[seed]`.
      horizon: number of rounds of a run, after the warm-up of environments that have one.
      rounds: largest number of such rounds in all runs of search, selection and test together.
      seeds: seeds of a candidate in the first generations; doubled if noise decides the order of candidates. Few seeds use the rounds best; 16
        simulate more rounds in about the same time on a CPU, which is better if only time is limited.
      maximise: whether more is better (default: by the name of the metric).
      at_most, at_least: bounds on the means of metrics, by name.
      margin: number of standard errors by which a mean must satisfy its bound.
      strategy: `CMAES()` (default), `Random()` or `Lattice()`.
      start: hyperparameters of the first candidate, which is also tested.
      test_seeds: number of seeds on which each tested candidate runs (default: as many as an eighth of `rounds` allows).
      record: metrics that the function `metric` needs (default: the default metrics of environment and policy).
      out: folder of the history, from which a stopped search is resumed, also with more rounds.
      root_seed: seed of all randomness, of runs and candidates.
      execution: options of the computation, such as devices; the search chooses the blocks if they are not specified.
      progress: whether to show a progress bar.
      accept_changed_code: whether to resume a search although the code has changed.

    Raises:
      ValueError: an argument is out of range, a name is unknown, the rounds are too few, or the folder holds another search.
      ImportError: the strategy is CMA-ES, and `cmaes` is not installed.
    """
    execution = read_execution(execution)
    space = Space.of(parameters)
    strategy = CMAES() if strategy is None else strategy
    checks.part("strategy", strategy, "begin", "CMAES()")
    checks.boolean("progress", progress)
    horizon, seeds = checks.whole("horizon", horizon, maximum=2**31 - 1), checks.whole("seeds", seeds, 2)
    root_seed = checks.root_seed(root_seed)
    begin = None if start is None else space.locate("start", start)
    plan = Plan.of(space, strategy, checks.whole("rounds", rounds), horizon, seeds, test_seeds, 1 if begin is None else 2)
    factory = CandidateFactory(env, policy, list(space.parameters))
    # Example candidates: all hyperparameters in the middle of their ranges, then each alone at either end of its range.
    places = np.arange(len(space.centre))
    points = [space.centre, *(np.where(places == place, end, space.centre) for place in places for end in (0.0, 1.0))]
    runners = [CandidateRunner(factory, [space.values(n, point) for point in points]) for n in range(len(space.structures))]
    example = space.values(0, space.centre)
    known = runners[0].metrics(example)
    goal = Goal.of(metric, maximise, at_most, at_least, margin, known)
    recorded = goal.record(known, record)
    described = {"environment": env, "policy": policy, "parameters": dict(space.parameters), "goal": goal}
    settings: dict[str, Any] = {name: describe(value) for name, value in described.items()}
    settings |= {"plan": asdict(plan), "strategy": describe(strategy)}
    settings |= {"start": None if begin is None else [begin[0], begin[1].tolist()], "record": recorded, "horizon": horizon}
    settings |= {"root_seed": root_seed, "backend": execution.backend}
    settings = fingerprint(settings | ({"compile": execution.compile} if execution.compile != "full" else {}))
    functions = [env, policy, strategy, *factory.make(example), *([metric] if callable(metric) else [])]
    history = open_history(out, settings, {"python": python(), **code_of(functions)}, accept_changed_code)
    options = {"horizon": horizon, "root_seed": root_seed, "execution": execution, "record": recorded}
    with tqdm(total=plan.runs, disable=not progress, unit="run", leave=False) as bar:
        phases = _Search(space, goal, plan, strategy, runners, history, options, begin, bar)
        result = phases.test(*phases.select(phases.finalists()))
    if not result.feasible:
        chosen = "the one with the smallest violation was chosen"
        warnings.warn(f"no finalist satisfies all bounds with the margin: {chosen}", stacklevel=2)
    return result


@dataclass(frozen=True)
class Plan:
    """Division of a search's runs into phases; a run is one seed of one candidate.

    Attributes:
      runs: number of all runs.
      test_seeds: number of seeds on which each candidate is tested.
      tested: number of tested candidates: the best one, and the one that the user gave as the start, if any.
      selection: number of runs in which the best candidates of all generations are compared.
      size: number of candidates of a generation.
      seeds: number of seeds of a candidate in the first generations.
      stages: number of stages of the search; after each the better half of the structures (combinations of static parameters) continues.
    """

    runs: int
    test_seeds: int
    tested: int
    selection: int
    size: int
    seeds: int
    stages: int

    @staticmethod
    def of(space: Space, strategy: Strategy, rounds: int, horizon: int, seeds: int, test_seeds: Any, tested: int) -> "Plan":
        """Plans a search that simulates `rounds` rounds in all, in runs of `horizon` rounds, and tests `tested` candidates on new seeds.

        A candidate has `seeds` seeds at first, and `test_seeds` in the test (None: chosen here). Raises `ValueError` if `rounds` is too small.
        """
        structures, runs = len(space.structures), rounds // horizon
        usual = max(2, math.floor(runs * _TEST_SHARE) // tested)
        number = usual if test_seeds is None else checks.whole("test_seeds", test_seeds, 2)
        if not space.numeric and structures < 2:
            raise ValueError("parameters must have something to choose from, got a single candidate")
        size = strategy.population(len(space.numeric)) if space.numeric else 0
        stages = math.ceil(math.log2(structures)) + 1 if space.numeric else 0
        left = runs - tested * number
        selection = math.floor(runs * _SELECTION_SHARE) if space.numeric else left
        # Every stage gets at least the runs that the first stage needs: a generation of each structure.
        least = stages * structures * size * seeds
        fewest = 2 if space.numeric else 2 * structures
        if left - selection < least or selection < fewest:
            need = (max(least, fewest) + tested * number) * horizon
            need /= 1 - (_SELECTION_SHARE if space.numeric else 0) - (_TEST_SHARE if test_seeds is None else 0)
            search = f"a generation of {size} candidates x {seeds} seeds x {horizon:,} rounds"
            search += f" in each of {stages} stages of {structures} structures" if structures > 1 else ""
            parts = f"{search}, the selection of the best and {number:,} test seeds"
            raise ValueError(f"rounds must be about {math.ceil(need):,} at least, for {parts}; got {rounds:,}")
        return Plan(runs, number, tested, selection, size, seeds, stages)

    @property
    def search(self) -> int:
        """Number of runs of the search phase."""
        return self.runs - self.selection - self.tested * self.test_seeds

    @property
    def block(self) -> int:
        """Number of seeds that a call simulates in selection and test. It is fixed, so that one compiled program serves any number of seeds."""
        return min(256, max(16, 1 << (max(1, self.test_seeds) - 1).bit_length()))


@dataclass(eq=False)
class _Candidate:
    """Candidate in one phase, at a `point` `[d]` of a structure. `runs` has a pair for each batch: values `[seed]` by metric, validity `[seed]`."""

    number: int
    structure: int
    point: np.ndarray
    runs: list[tuple[dict[str, np.ndarray], np.ndarray]] = field(default_factory=list)

    def estimate(self, goal: Goal) -> Estimate:
        values = {name: np.concatenate([own[name] for own, _ in self.runs]) for name in self.runs[0][0]}
        return goal.estimate(values, np.concatenate([valid for _, valid in self.runs]))


@dataclass(eq=False)
class _Structure:
    """State of the search within one structure (combination of choices).

    Attributes:
      optimizer: proposes candidates.
      seeds: current number of seeds of a candidate.
      next_seed: the first unused seed of the structure.
      generations: number of generations so far.
      agreements: rank correlation between halves of the seeds (`agreement`), by generation since `seeds` last doubled; `seeds` doubles if the mean of
        the last two is below one half.
      candidates: all candidates so far.
    """

    optimizer: Optimizer
    seeds: int
    next_seed: int = 0
    generations: int = 0
    agreements: list[float] = field(default_factory=list)
    candidates: list[_Candidate] = field(default_factory=list)


@dataclass(eq=False)
class _Search:
    """State of a search, with a method for each of its phases.

    Attributes:
      next_seed: the first seed that no structure has used.
      number: number of candidates so far.
      surrogates: model of all runs of search and selection for each structure.
    """

    space: Space
    goal: Goal
    plan: Plan
    strategy: Strategy
    runners: list[CandidateRunner]
    history: History
    options: dict[str, Any]
    begin: tuple[int, np.ndarray] | None
    bar: Any
    next_seed: int = 0
    number: int = 0
    surrogates: dict[int, Surrogate] = field(default_factory=dict)

    def evaluate(self, phase: str, generation: int, candidates: Sequence[_Candidate], seeds: range) -> None:
        """Simulates candidates of one structure on the same seeds as a `Batch`, or reads their stored outcomes; adds these to the candidates."""
        structure = candidates[0].structure
        points = [[float(u) for u in one.point] for one in candidates]
        batch = Batch(phase, generation, structure, [c.number for c in candidates], points, seeds.start, len(seeds))
        runner, execution = self.runners[structure], self.options["execution"]
        run, block = (runner.run_grid, self.plan.seeds) if phase == "search" else (runner.run_each, self.plan.block)
        options = self.options | {"execution": replace(execution, block=execution.block or block)}
        values_of = [self.space.values(structure, point) for point in points]
        values, valid = self.history.outcomes(batch, lambda: run(values_of, seeds, **options))
        self.bar.set_description(phase)
        self.bar.update(len(candidates) * len(seeds))
        if phase != "test":
            self.surrogates.setdefault(structure, Surrogate(self.goal)).add(np.array(points), values, valid)
        for place, one in enumerate(candidates):
            one.runs.append(({name: runs[place] for name, runs in values.items()}, valid[place]))

    def candidate(self, structure: int, point: np.ndarray) -> _Candidate:
        self.number += 1
        return _Candidate(self.number - 1, structure, point)

    def finalists(self) -> list[_Candidate]:
        """Runs the search phase. Returns the finalists as new candidates that have no outcomes yet."""
        plan, alive = self.plan, list(range(len(self.runners)))
        if not plan.stages:
            return [self.candidate(structure, np.zeros(0)) for structure in alive]
        start = None if self.begin is None else self.begin[1]
        states = {}
        for structure in alive:
            seed = int(np.random.SeedSequence([self.options["root_seed"], structure]).generate_state(1)[0])
            states[structure] = _Structure(self.strategy.begin(self.space.steps, start, seed), plan.seeds)
        left = plan.search
        for stage in range(plan.stages):
            share = left // (plan.stages - stage) // len(alive)
            for structure in alive:
                left -= self._run_stage(structure, states[structure], share)
            alive = self._better_half(alive, states) if stage < plan.stages - 1 else alive
        return self._finalists({structure: states[structure] for structure in alive})

    def _run_stage(self, structure: int, state: _Structure, share: int) -> int:
        """Runs generations of a structure with at most `share` runs (one seed of one candidate each), and updates `state`. Returns the runs used."""
        spent = 0
        while (number := min(self.plan.size, (share - spent) // state.seeds)) > 0:
            points = state.optimizer.ask(number)
            if not len(points):
                break
            candidates = [self.candidate(structure, point) for point in points]
            seeds = range(state.next_seed, state.next_seed + state.seeds)
            state.next_seed, self.next_seed = seeds.stop, max(self.next_seed, seeds.stop)
            self.evaluate("search", state.generations, candidates, seeds)
            state.generations += 1
            state.optimizer.tell(self.goal.order([one.estimate(self.goal) for one in candidates]))
            state.candidates += candidates
            spent += len(candidates) * len(seeds)
            state.agreements.append(agreement(np.array([self.goal.scores(one.runs[-1][0]) for one in candidates])))
            if len(state.agreements) >= _GENERATIONS and np.mean(state.agreements[-_GENERATIONS:]) < _AGREEMENT:
                state.seeds *= 2
                state.agreements.clear()
        return spent

    def estimates(self, candidates: Sequence[_Candidate]) -> list[Estimate]:
        """Estimates each candidate by the Gaussian-process model of its structure, or by its own runs if the structure has too few evaluations."""
        estimates = [one.estimate(self.goal) for one in candidates]
        for structure in dict.fromkeys(one.structure for one in candidates):
            members = [i for i, one in enumerate(candidates) if one.structure == structure]
            modelled = self.surrogates[structure].at(np.array([candidates[i].point for i in members]))
            for i, one in zip(members, modelled or []):
                estimates[i] = replace(one, valid=estimates[i].valid)
        return estimates

    def _better_half(self, alive: list[int], states: Mapping[int, _Structure]) -> list[int]:
        """Returns the better half of the structures `alive` (indices in `states`), compared by their best candidates; an odd number is rounded up."""
        best = []
        for structure in alive:
            estimates = self.estimates(states[structure].candidates)
            best.append(estimates[self.goal.order(estimates, cautious=True)[0]])
        order = self.goal.order(best, cautious=True)
        return sorted(alive[i] for i in order[: -(-len(alive) // 2)])

    def _finalists(self, states: Mapping[int, _Structure]) -> list[_Candidate]:
        """Returns new candidates, without outcomes, at the strategies' estimates of the best point and at the best points of the search.

        With bounds, points come in turn from three rankings by different margins: the goal's, and 2 and 4 times it (at least 2 and 4). A larger
        margin prefers points that are less likely to violate a bound on other seeds.
        """
        most = _FINALISTS
        while most > 1 and self.plan.selection // (most * max(1, math.ceil(math.log2(most)))) < _FEWEST_SEEDS:
            most //= 2
        candidates = [one for state in states.values() for one in state.candidates]
        estimates = self.estimates(candidates)
        margins = [max(self.goal.margin, 1.0) * more for more in _STRICTER] if self.goal.bounded else []
        orders = [self.goal.order(estimates, cautious=True, margin=margin) for margin in (self.goal.margin, *margins)]
        centres = [(structure, state.optimizer.centre()) for structure, state in states.items()]
        proposals = [(structure, centre) for structure, centre in centres if centre is not None]
        proposals += [(candidates[i].structure, candidates[i].point) for places in zip(*orders) for i in places]
        distinct = {repr((structure, point.tolist())): (structure, point) for structure, point in proposals}
        return [self.candidate(structure, point) for structure, point in list(distinct.values())[:most]]

    def select(self, finalists: list[_Candidate]) -> tuple[_Candidate, bool]:
        """Runs the selection: the better half of finalists runs again on fresh seeds until one is left. Returns it, and whether it is feasible."""
        # The selection also has the runs that the search left over.
        left = self.plan.runs - self.plan.tested * self.plan.test_seeds - self.history.runs["search"]
        rungs = max(1, math.ceil(math.log2(len(finalists))))
        rung = 0
        while True:
            number = left // (rungs - rung) // len(finalists)
            seeds = range(self.next_seed, self.next_seed + number)
            for structure in dict.fromkeys(one.structure for one in finalists):
                self.evaluate("selection", rung, [one for one in finalists if one.structure == structure], seeds)
            self.next_seed, left, rung = seeds.stop, left - number * len(finalists), rung + 1
            estimates = self.estimates(finalists)
            order = self.goal.order(estimates)
            if rung == rungs:
                return finalists[order[0]], self.goal.is_feasible(estimates[order[0]])
            finalists = [finalists[i] for i in order[: -(-len(finalists) // 2)]]

    def test(self, chosen: _Candidate, feasible: bool) -> SearchResult:
        """Evaluates the chosen candidate and the start on unused seeds, and returns the result of the search."""
        seeds = range(self.next_seed, self.next_seed + self.plan.test_seeds)
        tested = [_Candidate(chosen.number, chosen.structure, chosen.point)]
        tested += [] if self.begin is None else [self.candidate(*self.begin)]
        evaluations, gain = [], None
        for one in tested:
            self.evaluate("test", 0, [one], seeds)
            estimate, metrics = one.estimate(self.goal), {name: moments(runs) for name, runs in one.runs[0][0].items()}
            values, verdicts = self.space.values(one.structure, one.point), self.goal.verdicts(estimate)
            evaluations.append(Evaluation(values, estimate.score, metrics, verdicts))
        if len(tested) == 2:
            best, start = (self.goal.scores(one.runs[0][0]) for one in tested)
            gain = moments((1.0 if self.goal.maximise else -1.0) * (best - start))
        horizon, best, start = self.options["horizon"], evaluations[0], evaluations[1] if len(tested) == 2 else None
        rounds = {phase: runs * horizon for phase, runs in self.history.runs.items()}
        history = dataset(self.history, self.space, self.goal, horizon, chosen.number)
        return SearchResult(best.values, best, start, gain, feasible, rounds, history)
