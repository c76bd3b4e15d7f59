"""Reads a log of models' answers to queries, and prints how it was read, quality and cost of the models, and the potential gain of routing.

A log is a table with a row per query and model, or with a row per query.

Examples:
  jaxroute data answers.csv
  jaxroute data answers.csv --column score=correct --unit cost=cents
  jaxroute data answers.jsonl --price small=0.1:0.4 --price large=2.5:10
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxroute.cli.completion import completed
from jaxroute.cli.output import Output, text_width
from jaxroute.cli.parsing import REPEATED, log_file, number, pairs, path

# Roles of the columns of a log.
ROLES = (
    *("query", "model", "score", "cost", "tokens_in", "tokens_out", "tokens_cached", "price_in", "price_out", "latency"),
    *("category", "text", "response", "date", "embedding", "propensity", "user"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "csv, tsv, JSON, JSON lines, parquet, Excel, npz or pickle, also compressed; a folder, or a file per model"
    parser.add_argument("file", type=log_file, nargs="+", metavar="FILE", help=text)
    add = parser.add_argument_group("reading the file, where it is not recognised (NAME=VALUE is repeatable)").add_argument
    text = f"column of a role ({', '.join(ROLES)}); 'perf_*' for a column per model, nothing for none, A+B for a query's two"
    completed(add("--column", metavar="ROLE=NAME", help=text, **REPEATED), [f"{role}=" for role in ROLES])
    add("--where", metavar="COLUMN=VALUE", help="use only rows with this value in a column", **REPEATED)
    text = "unit of cost (cents, per_1k, ...), latency (ms, us, s, min) or price (per_token, per_1k, per_1m)"
    add("--unit", metavar="ROLE=UNIT", help=text, **REPEATED)
    text = "USD per million input and output tokens, IN:OUT:CACHED with cached input; other models are left out"
    add("--price", metavar="MODEL=IN:OUT", help=text, **REPEATED)
    add("--prices", type=path, metavar="FILE", help="table of prices with columns model, price_in, price_out")
    add("--cost", metavar="MODEL=VALUE", help="cost per query; other models are left out", **REPEATED)
    add("--cost-unit", metavar="TEXT", help='unit of costs (default: from the file, or "USD per query")')
    add("--models", metavar="A,B", help="use these models only")
    text = "leave out queries that a model has not answered, or count score and cost 0 there (default: %(default)s)"
    add("--missing", choices=("drop", "zero"), default="drop", help=text)
    add("--scale", metavar="LOW:HIGH", help="lowest and highest possible score, as in 1:10 (--scale=-1:1 if below zero)")
    add("--separator", metavar="CHARACTER", help="character between columns of a text file")
    add("--encoding", metavar="NAME", help="encoding of a text file, as in windows-1252")
    text = "how models were chosen, in a log with one answer per query and no propensities: uniform (at random), or estimated, by an unknown rule that "
    text += "depended on features, category and time only (the default)"
    completed(add("--logging", choices=("uniform", "estimated"), metavar="HOW", help=text), ["uniform", "estimated"])
    text = "features of queries: own, text, none, or a file of numbers (npy, npz) (default: the best available)"
    completed(add("--features", metavar="WHICH", help=text), ["own", "text", "none"])


def main(options: argparse.Namespace, output: Output) -> int:
    arguments = reading(options)
    from jaxroute.data import ServedLog, describe, read_recorded

    log = read_recorded(files(options), **arguments)
    if isinstance(log, ServedLog):
        return _describe_served(log, output)
    description = describe(log)
    output.document(description.as_dict())
    output.lines(*description.lines(text_width()))
    return 0


def _describe_served(log: Any, output: Output) -> int:
    """Prints how a served log was read, and what it can answer."""
    from jaxroute.comparison.served import answerable

    lines = answerable(log)
    output.document({"read": list(log.read), "answerable": lines})
    for title, texts in (("How it was read", log.read), ("What this log can answer", lines)):
        output.lines(title)
        for line in texts:
            output.text(f"  {line}", 6)
        output.lines("")
    return 0


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the keyword arguments of `read_log` that the options of a command specify. Raises `ValueError` if an option is wrong."""
    if options.cost and options.price:
        got = f"--cost {options.cost[0]} and --price {options.price[0]}"
        raise ValueError(f"--cost and --price mean the same, a price being per million tokens: give one of them, got {got}")
    if options.prices and (options.cost or options.price):
        raise ValueError(f"--prices {options.prices} must be given alone, without --price and --cost")
    prices = pairs("--price", "MODEL=IN:OUT", options.price, _price, last=True)
    return {
        "columns": pairs("--column", "ROLE=NAME", options.column, str, empty=True),
        "where": pairs("--where", "COLUMN=VALUE", options.where, str) or None,
        "units": pairs("--unit", "ROLE=UNIT", options.unit, str) or None,
        "costs": pairs("--cost", "MODEL=VALUE", options.cost, _cost, last=True) or None,
        "prices": options.prices or prices or None,
        "models": None if options.models is None else [name.strip() for name in options.models.split(",") if name.strip()],
        "scale": None if options.scale is None else _scale(options.scale),
        **{
            name: getattr(options, name) for name in ("cost_unit", "missing", "separator", "encoding", "features", "logging")
        },
    }


def files(options: argparse.Namespace) -> Path | Sequence[Path]:
    """Returns the file to read, or a list if several were given."""
    return options.file[0] if len(options.file) == 1 else options.file


def _cost(text: str) -> float:
    value = float(text)
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("a cost is a number of at least 0")
    return value


def _price(text: str) -> tuple[float, ...]:
    """Parses "IN:OUT" or "IN:OUT:CACHED": USD per million input, output and cached input tokens."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) > 3:
        raise argparse.ArgumentTypeError("a price is IN:OUT or IN:OUT:CACHED")
    if not parts[0]:
        raise argparse.ArgumentTypeError("IN is missing, the USD per million input tokens, which may be 0")
    if not "".join(parts[1:2]):
        same = f"{_cost(parts[0]):g}:{parts[0]} if they cost the same"
        text = f"OUT is missing, the USD per million output tokens ({same}); a cost per query is --cost"
        raise argparse.ArgumentTypeError(text)
    try:
        return tuple(_cost(part) for part in parts)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError("prices are numbers of at least 0") from None


def _scale(text: str) -> tuple[float, float]:
    try:
        low, high = (number(part) for part in text.split(":"))
        if low < high:
            return low, high
    except (ValueError, argparse.ArgumentTypeError):
        pass
    raise ValueError(f"--scale must have the form LOW:HIGH, such as 0:10, got {text!r}")
