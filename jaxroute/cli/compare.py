"""Compares fixed models, mixtures, routers, cascades and learning policies on a log of models' answers to queries.

Writes a page that says which of them reaches a quality at the lowest cost, with standard errors. The same command resumes an interrupted
comparison. If each query was answered by one model, as in a gateway's log, other rules are evaluated by reweighting these answers; then --minutes,
--orders and --warm-start are refused.

Examples:
  jaxroute compare answers.csv --target-quality 0.7
  jaxroute compare answers.csv --target-quality 0.7 --minutes 10 -o report
"""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxroute.cli import data
from jaxroute.cli.output import Output, table_width
from jaxroute.cli.parsing import folder, orders, positive, quality, share


def add_options(parser: argparse.ArgumentParser) -> None:
    needed = parser.add_argument_group("required options")
    needed.add_argument("--target-quality", type=quality, required=True, metavar="Q", help="mean score to reach, as in 0.75")
    data.add_options(parser)
    add = parser.add_argument_group("the comparison").add_argument
    text = "time for the whole comparison; what is left of it is spent on more random orders of the queries"
    add("--minutes", type=positive, metavar="MINUTES", help=text)
    add("--orders", type=orders, metavar="N", help="random orders in which policies learn, at least 4 (default: 8 to 32)")
    text = "share of the queries, at most 0.5, that policies learn from before they are measured (default: 0)"
    add("--warm-start", type=share, default=0.0, metavar="SHARE", help=text)
    text = "folder for page and numbers (default: report-answers for answers.csv)"
    add("-o", "--out", type=folder, metavar="FOLDER", help=text)


def main(options: argparse.Namespace, output: Output) -> int:
    start = time.perf_counter()
    arguments = data.reading(options)
    from jaxroute.data import (
        ServedLog,
        read_recorded,
    )  # Before the imports that take seconds, so the file is described at once.

    log = read_recorded(data.files(options), **arguments)
    output.lines("Read")
    for line in log.read:
        output.text(f"  {line}", 6)

    first = options.file[0].resolve()
    is_compressed = first.suffix.lower() in (".gz", ".bz2", ".xz", ".zst", ".zip")
    out = options.out or Path(f"report-{Path(first.stem).stem if is_compressed else first.stem}")
    name = first.name + (f" and {len(options.file) - 1} more" if len(options.file) > 1 else "")
    about = {"out": out, "name": name, "command": shlex.join(["jaxroute", *options.arguments])}
    if isinstance(log, ServedLog):
        return _compare_served(log, options, output, start, about)

    from jaxroute.cli.simulating import store_programs
    from jaxroute.comparison import compare
    from jaxroute.engine.progress import LineProgress, print_line

    is_bar = sys.stderr.isatty() and not (output.quiet or options.verbose)
    store_programs()

    def announce(lines: Sequence[str]) -> None:
        first, *ways, last = lines
        output.text(f"\n{first}")
        for way in ways:
            output.text(f"  {way}", 6)
        output.text(last)

    callback = None if is_bar or output.quiet else print_line if options.verbose else LineProgress().print
    size = {name: getattr(options, name) for name in ("target_quality", "minutes", "orders")} | {"warm": options.warm_start}
    comparison = compare(log, **about, **size, progress=is_bar, on_start=announce, callback=callback)
    output.document({**comparison.summary, "out": out})
    answer, *others = comparison.sentences
    for text in (answer, " ".join(others)):
        if text:
            output.lines("")
            output.text(text)
    output.lines("", comparison.table(table_width()), "", comparison.shares(table_width()), "")
    _end(comparison, output, out, start)
    return 0


def _compare_served(log: Any, options: argparse.Namespace, output: Output, start: float, about: dict[str, Any]) -> int:
    """Compares rules on a served log, prints what the log can answer, the answer and the table, and writes the report."""
    if options.minutes or options.orders or options.warm_start:
        given = next(name for name in ("minutes", "orders", "warm_start") if getattr(options, name)).replace("_", "-")
        raise ValueError(
            f"--{given} is for policies that learn online, and this log has the answer of one model per query: leave it out"
        )
    from jaxroute.comparison import compare_served

    found = compare_served(log, target_quality=options.target_quality, **about)
    output.document({**found.summary, "out": about["out"]})
    output.lines("", "What this log can answer")
    for line in found.answerable:
        output.text(f"  {line}", 6)
    for text in (found.sentences[0], " ".join(found.sentences[1:])):
        output.lines("")
        output.text(text)
    output.lines("", found.table(table_width()), "")
    output.text(
        "Intervals hold for all rules together with probability 95 %; single numbers in parentheses are standard errors.", 2
    )
    output.lines("")
    _end(found, output, about["out"], start)
    return 0


def _end(found: Any, output: Output, out: Path, start: float) -> None:
    """Prints how to route a new query, and where the page is."""
    words, code = found.to_route(str(out / "choice.npz"))
    output.text(f"To route a new query: {words}", 2)
    output.lines(*(f"    {line}".rstrip() for line in code.splitlines()), "")
    seconds, page = time.perf_counter() - start, out / "index.html"  # There is no page without the extra `plot`.
    output.lines(f"{seconds:.0f} s; {f'the page is {page}' if page.exists() else f'the numbers are in {out}'}")
