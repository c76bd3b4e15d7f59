"""Runs an experiment: simulates its policies, writes results, figures and summary.json, and checks the paper's claims.

The same command resumes an interrupted run; more --seeds or a longer --horizon simulate only what is missing.

Examples:
  jaxroute run staged/figure-2 --smoke
  jaxroute run staged/figure-4a -n 4096 -o results/4a
  jaxroute run staged/figure-2 --set StageRoute.gamma=0.5
  jaxroute run staged/table --data answers.csv
  jaxroute run @options.txt                    # options from a file
"""

import argparse
import inspect
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxroute.cli import simulating
from jaxroute.cli.completion import completed
from jaxroute.cli.output import Output, table_width
from jaxroute.cli.parsing import REPEATED, horizon, pairs, path, seeds
from jaxroute.engine import BACKENDS

_MOST_ROWS = 120  # Largest number of rows of a table in the terminal.


def add_options(parser: argparse.ArgumentParser) -> None:
    simulating.add_experiment(parser)
    add = parser.add_argument_group("size").add_argument
    text = "runs of each policy, or A:B for seeds A to B - 1 (default: the experiment's number)"
    add("-n", "--seeds", type=seeds, metavar="N", help=text)
    text = "rounds per run of the longest case; other cases scale in proportion (default: the experiment's)"
    add("--horizon", type=horizon, metavar="ROUNDS", help=text)
    add("--smoke", action="store_true", help="small size for a first look, which takes seconds")
    text = "stop when the standard error at the horizon is below ERROR for every policy; --seeds is then the maximum"
    add("--until-stderr", metavar="METRIC=ERROR", help=text, **REPEATED)

    settings = parser.add_argument_group("settings")
    text = "set a hyperparameter of a policy, or a setting of the environment (environment.NAME=VALUE); repeatable"
    settings.add_argument("--set", metavar="POLICY.NAME=VALUE", help=text, **REPEATED)
    settings.add_argument("--data", type=path, metavar="FILE", help="your table, for experiments that take one")
    simulating.add_root_seed(settings)

    results = parser.add_argument_group("results")
    add = results.add_argument
    simulating.add_out(results, "results, figures and summary.json", "results/staged-figure-2, or -smoke with --smoke,")
    add("--store", metavar="URL", help="folder or URL of the stored results, as in s3://bucket/figure-2 (default: --out)")
    text = "store every run, or only mean and variance over the seeds (default: %(default)s)"
    add("--keep", choices=("runs", "moments"), default="runs", help=text)
    add("--keep-states", action="store_true", help="store the final states, so that a longer --horizon continues from them")
    add("--no-figures", action="store_true", help="draw no figures; `jaxroute plot` draws them later")
    text = "simulate again what was stored by code that has changed since, and store it beside the former results"
    add("--accept-changed-code", action="store_true", help=text)

    add = parser.add_argument_group("machine").add_argument
    text = "simulate rounds by a scan, one kernel for all rounds, or a plain loop for reference (default: the kernel if possible)"
    add("--backend", choices=BACKENDS, default="auto", help=text)
    text = "cpu, cuda, or some of them as in cuda:0,1 (default: all of the best platform)"
    completed(add("--devices", metavar="PLATFORM[:I,J]", help=text), ["cpu", "cuda"])
    add("--x64", action="store_true", help="compute with 64-bit floating-point numbers")

    text = "Start each process with the same command and the same --out (or --store)."
    add = parser.add_argument_group("several processes", text).add_mutually_exclusive_group().add_argument
    text = (
        "simulate part I of N, counted from 0 (default: from Slurm, Open MPI, submitit or Ray; auto/N for Kubernetes or PBS)"
    )
    add("--share", metavar="I/N", nargs="?", const="auto", help=text)
    text = "simulate what no other process has simulated, until nothing is left; processes may come and go"
    add("--join", dest="share", action="store_const", const="join", help=text)


def main(options: argparse.Namespace, output: Output) -> int:
    import jax

    if options.x64:
        jax.config.update("jax_enable_x64", True)  # Before anything is computed, also by an import.
    from jaxroute import Execution, experiments
    from jaxroute.engine.progress import print_line
    from jaxroute.experiments.base import on_table

    devices = devices_of(options.devices)
    simulating.store_programs()
    experiment = simulating.experiment_of(options.experiment)
    small = options.smoke
    number = options.seeds or (experiment.smoke_seeds if small else None)
    rounds = options.horizon or (min(experiment.smoke_horizon, experiment.horizon) if small else None)
    out = simulating.folder_of(options, experiment, after="-smoke" if small else "")
    changes = simulating.changes_of(options.set)
    if options.data is not None:
        if "data" in changes.setdefault("environment", {}):
            raise ValueError("--data and --set environment.data mean the same: give one of them")
        changes["environment"]["data"] = str(options.data)
    goals = pairs("--until-stderr", "METRIC=ERROR", options.until_stderr, float) or None
    output.text(f"{experiment.name}: {on_table(experiment.title, experiment.table(changes))}", 2)
    is_stand_in = experiment.stands_in(changes)
    if is_stand_in:
        print_stand_in(options.experiment, output)
    if options.share is None and int(os.environ.get("SLURM_ARRAY_TASK_COUNT", 1)) > 1:
        print("jaxroute: without --share, each task of this job array simulates everything", file=sys.stderr)
    is_quick = small and options.backend == "auto" and (devices or jax.local_devices())[0].platform == "cpu"
    execution = Execution(options.backend, devices, share=options.share, compile="quick" if is_quick else "full")

    def report_block(progress: Any) -> None:
        about = ", ".join(f"{name} = {values}" for name, values in progress.setting.items())
        block = f"block {progress.done} of {progress.total}"
        print_line(f"{progress.seconds:.1f} s, {block}: {progress.policy} {about}".rstrip())

    start = time.perf_counter()
    try:
        same = ("root_seed", "store", "keep", "keep_states", "accept_changed_code")
        size = {"seeds": number, "horizon": rounds, "changes": changes, "until_stderr": goals, "execution": execution}
        shown = {"progress": not options.quiet, "callback": report_block if options.verbose else None}
        figures = simulating.can_draw(bool(experiment.figures) and not options.no_figures)
        given = {name: getattr(options, name) for name in same}
        summary = experiments.run(experiment, out, figures=figures, **size, **shown, **given)
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ValueError(_with_option(error, experiment)) from error
    output.document({**summary, "out": out})
    if "missing" in summary:
        again = shlex.join(["jaxroute", "plot", str(out), *(["--store", options.store] if options.store else [])])
        share = "join" if isinstance(execution.share, str) else "{} of {}".format(*execution.share or (0, 1))
        last = f"The last process to finish writes figures and summary.json, and so does `{again}`."
        output.text(f"This share ({share}) is done. Of the whole result, {summary['missing']}. {last}")
        return 0
    if not (output.json or output.quiet):
        print_report(experiment, summary, changes, out, time.perf_counter() - start, output)
    if is_stand_in:
        print_stand_in(options.experiment, output)
    return 0


def devices_of(text: str | None) -> list[Any] | None:
    """Converts a text such as "cuda:0,1" (platform and indices of devices) to a list of jax devices; None (no choice) stays None."""
    if text is None:
        return None
    import jax

    platform, colon, numbers = text.partition(":")
    try:
        devices = dict(enumerate(jax.local_devices(backend=platform)))
        return [devices[int(number)] for number in numbers.split(",")] if colon else list(devices.values())
    except (RuntimeError, ValueError, KeyError):
        names = dict.fromkeys(device.platform for device in jax.devices() + jax.devices("cpu"))
        here = {name: range(len(jax.local_devices(backend=name))) for name in names}
        known = ", ".join(f"{name}:{','.join(map(str, numbers))}" for name, numbers in here.items())
        problem = f"--devices must be a platform of this machine or some of its devices ({known})"
        raise ValueError(f"{problem}, got {text!r}") from None


def print_stand_in(name: str, output: Output) -> None:
    """Prints that no log was given and queries are generated instead, and which command runs the experiment `name` on a log."""
    text = (
        "no --data was given, so generated queries are simulated: the numbers say nothing about your models. "
        f"`jaxroute run {name} --data FILE` uses your table; `jaxroute data FILE` shows how a file is read."
    )
    output.rows([("Stand-in:", text, "yellow")])


def print_report(
    experiment: Any, summary: dict[str, Any], changes: dict[str, Any], out: Path, elapsed: float, output: Output
) -> None:
    """Prints metrics, claims, files and times (`elapsed` seconds in all) of a run; no claims if its horizon or `changes` alter the experiment."""
    from jaxroute import metrics
    from jaxroute.experiments.base import folder_of
    from jaxroute.store import results

    cases = experiment.cases
    for case in cases:
        data = results.load(folder_of(summary.get("store", out), case, cases))
        output.lines("", *([f"{case.name}, {int(data['time'][-1]):,} rounds:"] if len(cases) > 1 else []))
        output.lines(metrics.table(data, width=table_width(), max_rows=_MOST_ROWS))
    departures = experiment.departures(summary["horizon"], changes)
    if summary["claims"] and departures:
        output.lines("")
        text = f"this run differs from the experiment that the claims are about ({departures})"
        output.rows([("Claims not judged:", text, "yellow")])
    elif summary["claims"]:
        output.lines("", "Claims")
        print_claims(summary["claims"], summary["seeds"], output)
    if experiment.notes:
        output.lines("")
        output.text(f"Note: {experiment.notes}")
    speed = f", {summary['decisions_per_s'] / 1e6:.2f} M decisions/s" if summary["decisions_per_s"] else ""
    call = summary["last_call"]
    seconds = f"{call['compile_s']:.1f} s compiling, {call['run_s']:.1f} s running, {elapsed:.1f} s in all"
    if not call["decisions"]:
        before = f"{summary['compile_s']:.1f} s compiling and {summary['run_s']:.1f} s running before"
        seconds = f"nothing was left to simulate, {elapsed:.1f} s in all; {before}"
    written = ["store", *(f"{name}.png" for name in experiment.figures if (out / f"{name}.png").exists()), "summary.json"]
    output.lines("")
    output.text(f"{summary['device']}: {seconds}{speed}", 2)
    output.text(f"{out}{os.sep}: {', '.join(written)}", 2)


def print_claims(claims: Sequence[dict[str, Any]], number: int, output: Output) -> None:
    """Prints verdict, text, source and measurement of each claim. `number` is the number of measured runs of claims without an entry `runs`."""
    rows = []
    for claim in claims:
        verdict = claim["verdict"]
        colour = {"holds": "green", "refuted": "red"}.get(verdict, "yellow")
        measured = f"  measured in {claim.get('runs') or number:,g} runs: {claim['measured']}"
        rows += [(verdict, f"{claim['text']} [{claim['source']}]", colour), ("", measured)]
    output.rows(rows, indent=2, label_width=11)


def _with_option(error: ValueError, experiment: Any) -> str:
    """Returns an error's text. If it is about a setting of the environment, the option that changes the setting is added."""
    setting = str(error).partition(" ")[0]
    for case in experiment.cases:
        if inspect.isfunction(case.environment) and setting in inspect.signature(case.environment).parameters:
            return f"{error}; --set environment.{setting}=VALUE changes it"
    return str(error)
