"""Draws the figures of stored results and writes their summary.json.

This is needed after `jaxroute run --no-figures`, a change of a figure, `jaxroute store --merge`, or a run that several machines shared.

Examples:
  jaxroute plot results/staged-figure-2
  jaxroute plot results/mine mine.py
"""

import argparse
import contextlib
import json

from jaxroute.cli.completion import completed, experiments
from jaxroute.cli.output import Output
from jaxroute.cli.parsing import folder
from jaxroute.cli.simulating import experiment_of


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=folder, metavar="FOLDER", help="folder of a run")
    text = "Python file of the run, if the experiment is your own"
    completed(parser.add_argument("experiment", nargs="?", metavar="FILE.py", help=text), experiments)
    parser.add_argument("--store", metavar="URL", help="folder or URL of the stored results, if not in FOLDER")


def main(options: argparse.Namespace, output: Output) -> int:
    from jaxroute.cli.store import experiment_in
    from jaxroute.experiments import EXPERIMENTS, finish

    summary, known = options.folder / "summary.json", {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(summary.read_text())
    store = options.store or known.get("store")
    name = known.get("experiment") or experiment_in(store or options.folder)
    if options.experiment is None and name not in EXPERIMENTS:
        command = f"`jaxroute plot {options.folder} FILE.py`"
        raise ValueError(f"{name!r} is an experiment of your own: name its file too, {command}")
    experiment = experiment_of(options.experiment or name)
    if experiment.name != name:
        raise ValueError(f"experiment must be that of the run, {name!r}, got {experiment.name!r}")
    found = finish(experiment, options.folder, store)
    files = [file for one in experiment.figures if (file := options.folder / f"{one}.png").exists()]
    output.document({"figures": files, "summary": found})
    output.lines(*map(str, [*files, summary]))
    return 0
