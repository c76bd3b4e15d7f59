"""Shared parts of the experiments on MESS+: passes over the benchmarks, baseline policies, and measurements."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid, metrics
from jaxroute.core.provenance import cores
from jaxroute.data import MESSPLUS_BENCHMARKS
from jaxroute.engine.grid import Grid
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Measure
from jaxroute.experiments.measure import Measured, mean_of, runs_of
from jaxroute.experiments.verdicts import Stated
from jaxroute.problems import service as sv

RECORD = ("cost", "satisfaction", "violation", "virtual_queue", "complied", "first_compliance", "explored")
STAND_IN = (
    "satisfaction and costs follow recorded outcomes of the eight benchmarks; the features are uninformative, since text is hardly "
    'informative about the outcomes (the study "signal" has informative features)'
)
TRAINED = "RouterDC is trained eight times and each router is used in 64 runs: its error is that over the trainings"
_ROUTER = "-RouterDC"


def claim(name: str, source: str, measure: Measure, text: str = "") -> Claim:
    """Makes a claim. By default, its text is the first line of the docstring of `measure`, without "Tests the claim:"."""
    text = text or (measure.__doc__ or "").splitlines()[0].removeprefix("Tests the claim: ").rstrip(".")
    return Claim(name, text, source if source == "ours" else f"MESS+, {source}", measure)


def experiment(
    name: str, title: str, cases: Any, seeds: int, claims: Any, figures: Any, source: str = "", **options: Any
) -> Experiment:
    """Makes an experiment on MESS+ called "service/" and `name`; `source` is a place in the paper (default: our own study)."""
    options = {"notes": STAND_IN, "smoke_horizon": 200, "stand_in": "recorded answers with stand-in features", **options}
    source = f"MESS+, {source}" if source else "ours"
    return Experiment(f"service/{name}", title, tuple(cases), seeds, tuple(claims), figures, source=source, **options)


def passes(
    policies: Any,
    benchmarks: Iterable[str] = MESSPLUS_BENCHMARKS,
    *,
    every: int | None = None,
    record: Sequence[str] = RECORD,
    all_alphas: bool = False,
    **settings: Any,
) -> tuple[Case, ...]:
    """Makes a case for each benchmark: a pass, which serves each of its requests once.

    Args:
      policies: as for `Case`; the argument `settings` of a function has the benchmark's name under "benchmark".
      benchmarks: names of the benchmarks.
      every: number of requests between two records (default: one record, at the end).
      record: as for `Case`.
      all_alphas: whether to use the three satisfaction targets alpha of the paper's figures instead of the one of its tables.
      settings: further settings of the environment.
    """
    cases = []
    for name in benchmarks:
        data = MESSPLUS_BENCHMARKS[name]
        made = {"benchmark": name, "alpha": list(data.alphas) if all_alphas else data.alpha, **settings}
        where = {key: value for key, value in made.items() if not isinstance(value, list)}
        options: dict[str, Any] = {"record_every": every or data.num_requests, "record": record}
        cases.append(Case(_environment, policies, data.num_requests, name, made, where, **options))
    return tuple(cases)


def _environment(**settings: Any) -> Any:
    """Makes the environment of a benchmark. If some `settings` are lists, it makes a grid of environments over all combinations of their values."""
    swept = any(isinstance(value, list) for value in settings.values())
    return grid(sv.benchmark_service, **settings) if swept else sv.benchmark_service(**settings)


def trained_routers(env: sv.ServiceEnv, number: int) -> Grid:
    """Trains RouterDC `number` times in parallel, and returns the trained policies as a grid along the axis `training` (0, 1, ...)."""

    def trained(training: int) -> sv.RouterDC:
        return jax.block_until_ready(sv.RouterDC.of(env, training))

    with ThreadPoolExecutor(cores()) as pool:
        return Grid({"training": range(number)}, list(pool.map(trained, range(number))), "RouterDC.of")


def router_passes(benchmarks: Iterable[str] = MESSPLUS_BENCHMARKS, **options: Any) -> tuple[Case, ...]:
    """Makes a case for each benchmark in which RouterDC, trained eight times, serves each request once. `options` are arguments of `passes`."""

    def trainings(env: sv.ServiceEnv) -> dict[str, Any]:
        return {"RouterDC": trained_routers(env, 8)}

    cases = passes(trainings, benchmarks, **options)
    return tuple(dataclasses.replace(case, name=case.name + _ROUTER, seeds=64) for case in cases)


def over_trainings(data: xr.Dataset) -> xr.Dataset:
    """Averages RouterDC's metrics over seeds. In the returned data, the dimension `seed` lists trainings of RouterDC ("training 0", ...) instead."""
    names = [name for name in metrics.metric_names(data) if name not in ("complied", "first_compliance")]
    labels = [f"training {number}" for number in data["training"].values]
    means = {name: metrics.pick(data, name).mean("seed", keep_attrs=True).rename(training="seed") for name in names}
    means = {name: one.assign_coords(seed=labels) for name, one in means.items()}
    valid = xr.ones_like(next(iter(means.values())).isel(time=-1, drop=True), dtype=bool)
    return xr.Dataset({**means, "valid": valid}, attrs=data.attrs)


@functools.cache
def at_its_target(benchmark: str) -> sv.ServiceEnv:
    """Makes a benchmark's environment with its satisfaction target in the paper. The result is cached, as finding its optimum takes a fifth of a second."""
    return sv.benchmark_service(benchmark)


def benchmarks_of(results: Results) -> list[str]:
    return [name for name in results if not name.endswith(_ROUTER)]


def runs(results: Results, benchmark: str, metric: str, policy: str, **where: Any) -> xr.DataArray:
    """Returns a metric `[seed]` of a policy after all requests of a benchmark. RouterDC has one value per training, and ignores the setting `where`."""
    if policy == "RouterDC":
        return runs_of(over_trainings(results[benchmark + _ROUTER]), metric, policy)
    return runs_of(results[benchmark], metric, policy, **where)


def reached(results: Results, benchmark: str, metric: str, policy: str, **where: Any) -> Measured:
    """Returns the mean of a policy's metric after all requests of a benchmark, with its standard error; `where` selects a setting."""
    found = mean_of(runs(results, benchmark, metric, policy, **where))
    return found.changed(floor=found.error) if policy == "RouterDC" else found


def mj(results: Results, benchmark: str, policy: str, metric: str = "cost", **where: Any) -> Measured:
    """Returns the energy in megajoules for all requests of a benchmark: the mean per request (`metric`, in J) times their number."""
    return reached(results, benchmark, metric, policy, **where).times(MESSPLUS_BENCHMARKS[benchmark].num_requests / 1e6)


def points_short(results: Results, benchmark: str, policy: str, **where: Any) -> Measured:
    """Returns the target alpha minus the share of satisfied requests, in percentage points."""
    return reached(results, benchmark, "violation", policy, **where).times(100.0)


def averaged(values: Mapping[str, xr.DataArray], per_pass: bool = False) -> Measured:
    """Averages runs `[seed]` over benchmarks, paired by seed. `per_pass` converts joules per request to megajoules for a benchmark's requests."""
    scaled = [one * (MESSPLUS_BENCHMARKS[name].num_requests / 1e6 if per_pass else 1.0) for name, one in values.items()]
    scaled = [one.drop_vars("case", errors="ignore") for one in scaled]
    return mean_of(xr.concat(scaled, "benchmark", join="inner", coords="minimal", compat="override").mean("benchmark"))


def average_mj(results: Results, benchmarks: Iterable[str], policy: str, metric: str = "cost", **where: Any) -> Measured:
    """Returns the mean over benchmarks of the energy in megajoules for all requests of a benchmark; `metric` is in joules per request."""
    return averaged({name: runs(results, name, metric, policy, **where) for name in benchmarks}, per_pass=True)


def steps(data: xr.Dataset, metric: str, policy: str, axis: str, **where: Any) -> list[Measured]:
    """Returns the mean change of a metric from each value of the setting `axis` to the next larger one, and last from the smallest to the largest value."""
    runs = [runs_of(data, metric, policy, **{axis: value}, **where) for value in np.sort(data[axis].values)]
    pairs = [*itertools.pairwise(runs), (runs[0], runs[-1])]
    return [mean_of(after - before) for before, after in pairs]


def moves(changes: Sequence[Measured], sign: int) -> Stated:
    """States that the last of `changes`, the total one in `steps`, has the sign `sign`, and that no other one reverses more than a tenth of it."""
    *between, whole = (change.times(float(sign)) for change in changes)
    return [whole.above(0.0), *(change.at_least(0.0, margin=0.1 * abs(whole.mean)) for change in between)]


def baselines(benchmark: str) -> dict[str, Any]:
    """Makes the untrained baselines of the paper on MESS+. RouteLLM's threshold is that of Table 5 for the target nearest to the environment's."""
    data = MESSPLUS_BENCHMARKS[benchmark]

    def routellm(env: sv.ServiceEnv) -> sv.RouteLLM:
        alphas = jnp.asarray(data.alphas, jnp.float32)
        thresholds = jnp.asarray([data.routellm_threshold[alpha] for alpha in data.alphas], jnp.float32)
        return sv.RouteLLM(threshold=thresholds[jnp.argmin(jnp.abs(alphas - env.alpha))], offset=data.routellm_offset)

    return {"EducatedGuessing": sv.EducatedGuessing.of, "RouteLLM": routellm}


def informed(**settings: Any) -> Callable[[sv.ServiceEnv], sv.MessPlus]:
    """Returns a function that makes MESS+ for an environment with the true probabilities of success, not predictions; `settings` are its arguments."""
    return lambda env: sv.MessPlus(predictor=sv.TrueProbabilities(env.requests), **settings)


def with_router(results: Results, benchmark: str) -> xr.Dataset:
    """Adds RouterDC to the policies in a benchmark's result. Its entries along `seed` are means of its trainings instead of single runs."""
    data, router = results[benchmark], over_trainings(results[benchmark + _ROUTER])
    names = [name for name in router.data_vars if name != "valid"]
    wide = {name: xr.concat([data[name], router[name]], "policy", join="outer") for name in names}
    wide = {name: one.transpose(*data[name].dims).assign_attrs(data[name].attrs) for name, one in wide.items()}
    return xr.Dataset(wide, attrs=data.attrs)


def blind_line(accuracy: Any, cost: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns shares of satisfied requests, and for each the least cost of a random choice among `K` models of given `accuracy` and `cost`, `[K]`."""
    contexts = sv.sources.Contexts(np.ones(1), np.asarray(accuracy, float)[None], np.asarray(cost, float)[None])
    low, high = contexts.success[0, np.argmin(cost)], contexts.success.max()
    shares = np.union1d(np.linspace(low, high, 40), np.clip(contexts.success, low, high))  # With the line's corners.
    return shares, np.array([sv.cheapest_choice(contexts, share).value for share in shares])
