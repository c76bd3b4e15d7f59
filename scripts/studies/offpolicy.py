"""Validates off-policy evaluation by simulation: served logs are drawn from a full table by known rules, and intervals compared with the truth.

python scripts/studies/offpolicy.py TABLE.npz --logs 2000 --out scripts/bench_results/offpolicy.json
python scripts/studies/offpolicy.py TABLE.npz --logs 200 --savings

The table has arrays `score` [Q, N] and `feat` [Q, d], categories `task_idx` [Q], and prices per million tokens (`usd_per_mtok_in`, `..._out`); costs
are those of the prompts' lengths and of log-normal lengths of answers. Queries are drawn with replacement, so that the table's means are the truth.
"""

import argparse
import json
import multiprocessing
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from jaxroute.comparison.offline.router import Mixture
from jaxroute.comparison.served import compare_served
from jaxroute.data import RoutingTable, serve
from jaxroute.data.predictors import Sample, design
from jaxroute.offpolicy import (
    ESTIMATORS,
    Evaluator,
    degrees_of_freedom,
    effective_size,
    quantile,
    score_interval,
    standard_error,
    verdicts,
)
from jaxroute.offpolicy.propensities import estimate

SIZES = (500, 2000, 8000)


def table_of(path: str | Path) -> RoutingTable:
    """Reads the table, with simulated lengths of answers."""
    with np.load(path) as arrays:
        scores, features, groups = arrays["score"], arrays["feat"].astype(np.float32), arrays["task_idx"]
        into, out, chars = arrays["usd_per_mtok_in"], arrays["usd_per_mtok_out"], arrays["prompt_chars"]
        names = (
            tuple(map(str, arrays["models"])) if "models" in arrays else tuple(f"model {k}" for k in range(scores.shape[1]))
        )
    lengths = np.random.default_rng(0).lognormal(5.0, 0.5, scores.shape)
    costs = (chars[:, None] / 4 * into + lengths * out) * 1e-6
    return RoutingTable(scores, costs, names, features, groups, tuple(f"task {k}" for k in range(groups.max() + 1)))


def logging_rules(table: RoutingTable) -> dict[str, np.ndarray]:
    """Returns the probability of each model on each query, `[2, Q, N]`, for five rules: at the beginning and at the end of the log."""
    number = table.num_models
    uniform = np.full(table.scores.shape, 1 / number)
    best = np.broadcast_to(np.eye(number)[np.argmax(table.mean_scores())], table.scores.shape)
    predicted = predictions(table)
    softmax = np.exp((predicted - predicted.max(1, keepdims=True)) / 0.15)
    softmax = 0.95 * softmax / softmax.sum(1, keepdims=True) + 0.05 * uniform
    some, few = 0.9 * best + 0.1 * uniform, 0.99 * best + 0.01 * uniform
    rules = {"uniform": uniform, "10 % uniform": some, "softmax router": softmax, "almost deterministic": few}
    return {name: np.stack([rule, rule]) for name, rule in rules.items()} | {"drifting": np.stack([some, softmax])}


def predictions(table: RoutingTable) -> np.ndarray:
    """Returns scores predicted by a linear regression on the whole table, `[Q, N]`."""
    columns = design(Sample.of(table)).columns(Sample.of(table))
    columns = np.column_stack([np.ones(len(columns)), columns])
    return columns @ np.linalg.solve(columns.T @ columns + 10 * np.eye(columns.shape[1]), columns.T @ table.scores)


def candidates(table: RoutingTable) -> dict[str, np.ndarray]:
    """Returns the rules that are evaluated: probabilities of each model on each query, `[Q, N]`."""
    scores, costs, one = table.mean_scores(), table.mean_costs(), np.eye(table.num_models)
    best, cheap = one[np.argmax(scores)], one[np.argmin(costs)]
    second = one[np.argsort(-scores)[1]]
    router = one[np.argmax(predictions(table) - 0.05 * costs / costs.max(), axis=1)]
    fixed = {"best model": best, "second model": second, "cheapest model": cheap, "mixture": (best + cheap) / 2}
    return {name: np.broadcast_to(rule, table.scores.shape) for name, rule in fixed.items()} | {"router": router}


def measure(arguments: tuple) -> list[tuple]:
    """Simulates some logs of one size; returns rows (rule, size, candidate, estimator, outcome, covered, shown, error, standard error)."""
    path, size, seeds, is_estimated = arguments
    table = table_of(path)
    truth = {"quality": table.scores.astype(float), "cost": table.costs.astype(float)}
    rules, compared, rows = logging_rules(table), candidates(table), []
    for seed in seeds:
        drawn = np.random.default_rng((seed, size)).integers(0, table.num_queries, size)
        late = np.linspace(0, 1, size)[:, None]
        for rule, (first, last) in rules.items():
            log = serve(table, (1 - late) * first[drawn] + late * last[drawn], (seed, size, 1), drawn)
            evaluator = Evaluator(estimate(log)[0] if is_estimated else log)
            found_all = []
            for name, probabilities in compared.items():
                found = evaluator.rule(name, probabilities[drawn])
                found_all.append(found)
                for outcome, of in truth.items():
                    right = float((probabilities * of).sum(1).mean())
                    value = getattr(found, outcome)
                    shown = value.interval
                    if shown is not None:
                        covered = shown.low <= right <= shown.high
                        rows.append((rule, size, name, "shown", outcome, covered, True, value.value - right, value.error))
                    else:
                        rows.append((rule, size, name, "shown", outcome, False, False, value.value - right, value.error))
                seen = evaluator.evidence(probabilities[drawn])
                right = float((probabilities * truth["quality"]).sum(1).mean())
                for estimator, of in ESTIMATORS.items():
                    values = of(seen)
                    mean, error = float(values.mean()), standard_error(values)
                    degrees = min(degrees_of_freedom(values), max(effective_size(seen.weights) - 1, 0.0))
                    ends = score_interval(mean, error, quantile(degrees), degrees)
                    row = (ends.low <= right <= ends.high, shown is not None, mean - right, error)
                    rows.append((rule, size, name, estimator, "quality", *row))
            own = float(((first + last) / 2 * truth["cost"]).sum(1).mean())
            inside = []
            for verdict in verdicts(found_all, evaluator.logged(), None):
                quality, cost = (float((compared[verdict.rule.name] * of).sum(1).mean()) for of in truth.values())
                inside.append(verdict.quality.low <= quality <= verdict.quality.high)
                inside.append(verdict.saving.low <= 1 - cost / own <= verdict.saving.high)
            rows.append((rule, size, "all rules together", "shown", "both", all(inside), bool(inside), 0.0, 0.0))
    return rows


def true_value(rule, table: RoutingTable) -> tuple[float, float]:
    """Returns mean score and mean cost of a rule on the whole table."""
    order = [table.models.index(name) for name in rule.models]
    sample = Sample.of(table)
    sample = replace(sample, models=rule.models, scores=sample.scores[:, order], costs=sample.costs[:, order])
    if isinstance(rule, Mixture):
        one = np.eye(len(order))
        probability = np.broadcast_to(
            (1 - rule.weight) * one[rule.first] + rule.weight * one[rule.second], sample.scores.shape
        )
    else:
        probability = rule.probabilities(sample)
    return float((probability * sample.scores).sum(1).mean()), float((probability * sample.costs).sum(1).mean())


def scenarios(table: RoutingTable) -> dict[str, tuple[RoutingTable, np.ndarray, float, int]]:
    """Returns situations in which savings are claimed, rightly or not: table, probabilities `[Q, N]`, target quality, number of queries.

    In the first, a model costs 10 % less than the log's rule, is 5 points above the target, and has an effective sample size of about 1,000. In the
    second, every cheaper rule misses the target, some of them by a hundredth of a point: queries have no features. In the third, other models cost
    more, and in the fourth the target is out of reach of every rule. The others ask for 2 points less than the log's rule reaches, with five rules.
    """
    few = table.subset(models=[table.models[k] for k in np.argsort(-table.mean_scores())[:4]])
    means, number = few.mean_scores(), few.num_models
    best, other = np.argsort(-means)[:2]
    one = np.eye(number)

    def priced(ratio: float, rest: float = 1.3) -> RoutingTable:
        factors = np.full(number, rest)
        factors[best], factors[other] = 1.0, ratio
        costs = few.costs.mean(1, keepdims=True) * factors
        return replace(few, costs=costs)

    rule = np.broadcast_to(
        0.75 * one[best] + 0.25 * one[other], few.scores.shape
    )  # 4,000 queries, of which 1,000 get the other model.
    ratio = next(r for r in np.linspace(0.5, 1, 501) if r >= 0.9 * (0.75 + 0.25 * r))
    blind = replace(priced(ratio), features=None, groups=None, group_names=())
    found = {
        "true saving of 10 %": (priced(ratio), rule, float(means[other]) - 0.05, 4000),
        "cheaper rules just miss the target": (blind, rule, float(0.75 * means[best] + 0.25 * means[other]) + 1e-4, 4000),
        "no cheaper model": (priced(1.001), rule, float(means[other]) - 0.05, 4000),
        "target out of reach": (priced(ratio), rule, float(few.scores.max(1).mean()) - 0.02, 4000),
    }
    for name, (first, last) in logging_rules(few).items():
        both = (first + last) / 2
        found[f"2 points less, {name}"] = (few, both, float((both * few.scores).sum(1).mean()) - 0.02, 4000)
    return found


def claim(arguments: tuple) -> list[tuple]:
    """Compares rules on some logs of one situation; returns rows with the names of `report_claims`."""
    path, name, seeds = arguments
    table, probability, target, size = scenarios(table_of(path))[name]
    base = float((probability * table.costs).sum(1).mean())
    rows = []
    for seed in seeds:
        drawn = np.random.default_rng((seed, 77)).integers(0, table.num_queries, size)
        found = compare_served(serve(table, probability[drawn], (seed, 78), drawn), target_quality=target)
        if found.best is None:
            rows.append((name, False, False, 0.0, 0.0, 0.0, False))
            continue
        quality, cost = true_value(found.best.rule, table)
        verdict = found.verdict(found.best)
        base = base if found.base is found.logged else float(table.costs[:, table.models.index(found.base.name)].mean())
        inside = (
            verdict.quality.low <= quality <= verdict.quality.high
            and verdict.saving.low <= 1 - cost / base <= verdict.saving.high
        )
        numbers = (verdict.saved, 1 - cost / base, found.best.evaluated.size, inside)
        rows.append((name, True, quality < target or (cost >= base and found.best.evaluated is not found.base), *numbers))
    return rows


def report_claims(path: str, logs: int, processes: int) -> list[dict]:
    """Prints and returns how often savings are claimed, and how often wrongly, in each situation."""
    tasks = [
        (path, name, part.tolist())
        for name in scenarios(table_of(path))
        for part in np.array_split(np.arange(logs), max(logs // 20, 1))
    ]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        rows = [row for part in pool.imap_unordered(claim, tasks) for row in part]
    found = []
    for name in scenarios(table_of(path)):
        claimed, false, saved, true, size, inside = np.array([row[1:] for row in rows if row[0] == name], float).T
        means = {"saving_claimed": saved, "saving_true": true, "effective_size": size, "inside": inside}
        line = {"situation": name, "logs": len(claimed), "claimed": float(claimed.mean()), "false": float(false.mean())}
        found.append(line | {key: float(of[claimed > 0].mean()) if claimed.any() else None for key, of in means.items()})
        print(found[-1])
    return found


def summary(rows: list[tuple]) -> list[dict]:
    """Returns coverage, bias, root mean squared error and mean standard error, of all logs and of those in which the page shows an interval."""
    groups = defaultdict(list)
    for *key, covered, shown, error, stated in rows:
        groups[tuple(key)].append((covered, shown, error, stated))
    found = []
    for (rule, size, name, estimator, outcome), values in groups.items():
        covered, shown, error, stated = np.array(values, float).T
        usable = shown > 0
        found.append(
            {"rule": rule, "size": size, "candidate": name, "estimator": estimator, "outcome": outcome, "logs": len(values),
             "shown": float(usable.mean()), "coverage": float(covered.mean()),
             "coverage_shown": float(covered[usable].mean()) if usable.any() else None, "bias": float(np.nanmean(error)),
             "rmse": float(np.sqrt(np.nanmean(np.square(error)))), "stated": float(np.nanmean(stated))}
        )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table")
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--estimated", action="store_true", help="estimate the propensities instead of using the known ones")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--savings", action="store_true", help="how often savings are claimed, and how often wrongly")
    options = parser.parse_args()
    if options.savings:
        claims = report_claims(options.table, options.logs, options.processes)
        return None if options.out is None else options.out.write_text(json.dumps(claims, indent=1) + "\n")
    batches = np.array_split(np.arange(options.logs), max(options.logs // 20, 1))
    tasks = [(options.table, size, batch.tolist(), options.estimated) for size in options.sizes for batch in batches]
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        rows = [row for part in pool.imap_unordered(measure, tasks) for row in part]
    found = summary(rows)
    for line in found:
        if line["estimator"] == "shown":
            coverage = "-" if line["coverage_shown"] is None else f"{line['coverage_shown']:.3f}"
            about = f"{line['rule']:21} {line['size']:6} {line['candidate']:15} {line['outcome']:8}"
            print(f"{about} shown {line['shown']:.2f} coverage {coverage} bias {line['bias']:+.2g} rmse {line['rmse']:.3g}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
