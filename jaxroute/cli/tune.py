r"""Searches hyperparameters of a policy of an experiment, or settings of its environment, by any metric.

Evaluates the best candidate on seeds that the search has not used. The same command resumes an interrupted search.

Examples:
  jaxroute tune staged/figure-2 --param StageRoute.gamma=log:0.01:1 \
      --metric regret --at-most cost_ratio=1
"""

import argparse
import json
import os
import sys
import time

from jaxroute.cli import simulating
from jaxroute.cli.output import Output, table_width
from jaxroute.cli.parsing import REPEATED, horizon, number, pairs, whole


def add_options(parser: argparse.ArgumentParser) -> None:
    simulating.add_experiment(parser)
    needed = parser.add_argument_group("required options")
    text = (
        "hyperparameter to search, or environment.NAME=SCALE; scales are linear:LOW:HIGH, log:LOW:HIGH, integer:LOW:HIGH, "
        "log-integer:LOW:HIGH and choice:A,B,...; repeatable"
    )
    needed.add_argument("--param", metavar="POLICY.NAME=SCALE", action="append", required=True, help=text)
    needed.add_argument("--metric", required=True, metavar="NAME", help="metric to minimise or maximise")

    goal = parser.add_argument_group("goal")
    add = goal.add_mutually_exclusive_group().add_argument
    maximise = {"dest": "maximise", "default": None}
    text = "a larger metric is better (default: depends on the metric)"
    add("--maximise", "--maximize", action="store_true", help=text, **maximise)
    add("--minimise", "--minimize", action="store_false", help="a smaller metric is better", **maximise)
    goal.add_argument("--at-most", metavar="METRIC=NUMBER", help="upper bound on a mean; repeatable", **REPEATED)
    goal.add_argument("--at-least", metavar="METRIC=NUMBER", help="lower bound on a mean; repeatable", **REPEATED)
    text = "standard errors by which a mean must satisfy its bound (default: 1)"
    goal.add_argument("--margin", type=number, default=1.0, metavar="NUMBER", help=text)

    add = parser.add_argument_group("size").add_argument
    add("--rounds", type=whole, metavar="ROUNDS", help="rounds of all runs together (default: 1,000 runs)")
    add("--horizon", type=horizon, metavar="ROUNDS", help="rounds per run (default: the case's)")
    add("-n", "--seeds", type=whole, default=4, metavar="N", help="runs per candidate in the search (default: %(default)s)")

    settings = parser.add_argument_group("settings")
    settings.add_argument("--case", metavar="NAME", help="case of the experiment (default: the first)")
    text = "policy to simulate, required if only settings of the environment are searched"
    settings.add_argument("--policy", metavar="NAME", help=text)
    simulating.add_root_seed(settings)

    results = parser.add_argument_group("results")
    simulating.add_out(results, "search, picture and summary.json", "results/tune-staged-figure-2")
    results.add_argument("--no-figures", action="store_true", help="draw no picture of the search")
    text = "resume a search although the code has changed since"
    results.add_argument("--accept-changed-code", action="store_true", help=text)


def main(options: argparse.Namespace, output: Output) -> int:
    from jaxroute.experiments import tuning
    from jaxroute.experiments.base import on_table

    simulating.store_programs()
    experiment = simulating.experiment_of(options.experiment)
    figures = simulating.can_draw(not options.no_figures)
    out = simulating.folder_of(options, experiment, before="tune-")
    scales = tuning.scales(options.param)
    output.text(f"{experiment.name}: {on_table(experiment.title, experiment.table({}))}", 2)
    start = time.perf_counter()
    same = ("metric", "maximise", "margin", "rounds", "horizon", "seeds", "case", "policy", "accept_changed_code")
    given = {name: getattr(options, name) for name in (*same, "root_seed")}
    bounds = {name: getattr(options, name) for name in ("at_most", "at_least")}
    bounds = {n: pairs(f"--{n.replace('_', '-')}", "METRIC=NUMBER", texts, float) for n, texts in bounds.items()}
    progress = sys.stderr.isatty() and not options.quiet
    found = tuning.search(experiment, scales, out=out, figures=figures, progress=progress, **bounds, **given)
    output.document({**json.loads((out / "summary.json").read_text()), "out": out})
    written = ["search", *(["search.png"] if figures else []), "summary.json"]
    output.lines("", tuning.report(found), "")
    if options.verbose:
        output.lines("Candidates", found.history.to_dataframe().to_string(line_width=table_width(), max_rows=100), "")
    output.lines(f"{time.perf_counter() - start:.1f} s", f"{out}{os.sep}: {', '.join(written)}")
    return 0
