"""What the command understands: its parser, and how texts of options become values."""

import argparse
import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from jaxroute import __version__
from jaxroute.cli import completion
from jaxroute.cli.completion import completed
from jaxroute.engine import BACKENDS


def meant(wrong: str, known: Iterable[str]) -> str:
    """What may be meant by a wrong word, for the end of a sentence."""
    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


class Parser(argparse.ArgumentParser):
    """Errors on one line, with the name that may be meant."""

    def error(self, message: str) -> NoReturn:
        found = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        if found:
            message += meant(found[1], [choice.strip(" '") for choice in found[2].split(",")])
        self.exit(2, f"{self.prog}: {message} (`{self.prog} --help` shows what is understood)\n")


def refuse(made: argparse.ArgumentParser, command: str, surplus: Sequence[str]) -> None:
    """Ends the process: a command was given what it does not take."""
    (commands,) = (action for action in made._actions if isinstance(action, argparse._SubParsersAction))
    own: Parser = commands.choices[command]
    hint = next((text for wrong in surplus if (text := meant(wrong.partition("=")[0], own._option_string_actions))), "")
    own.error(f"unrecognized arguments: {' '.join(surplus)}{hint}")


# What a column of a log may be.
ROLES = (
    "query",
    "model",
    "score",
    "cost",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "price_in",
    "price_out",
    "latency",
    "category",
    "text",
    "response",
    "date",
    "embedding",
)


def parser() -> argparse.ArgumentParser:
    """The parser of the command; `command` of what it returns is the name of the function that does it."""
    made = Parser(prog="jaxroute", description="Batch simulation of online routing of language models.")
    made.add_argument("--version", action="version", version=f"jaxroute {__version__}")
    commands = made.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    one = commands.add_parser("list", help="problems, policies, experiments and data sets")
    completed(one.add_argument("problem", nargs="?", help="a problem: only what belongs to it"), completion.problems)
    one.add_argument("--json", action="store_true", help="for programs")
    one.set_defaults(command="list")

    one = commands.add_parser(
        "run",
        help="run an experiment",
        description="Runs an experiment; a killed run is continued, and a finished one grows: with more --seeds only what is missing is played.",
    )
    completed(
        one.add_argument("experiment", help="a name from `jaxroute list`, or a Python file that defines `experiment`"),
        completion.experiments,
    )
    one.add_argument(
        "--seeds", type=seeds, metavar="N", help="number of seeds (default: the experiment's), or seeds A to B - 1 as A:B"
    )
    one.add_argument("--horizon", type=at_most(2**31 - 1), help="rounds of the longest case; the others keep their ratio")
    one.add_argument("--out", type=folder, help="folder for store, figures and summary.json (default: results/EXPERIMENT)")
    one.add_argument(
        "--store", metavar="URL", help="folder or URL of the store, such as s3://bucket/figure-2 (default: --out)"
    )
    one.add_argument(
        "--set",
        dest="changes",
        metavar="POLICY.LEAF=VALUE",
        action="append",
        default=[],
        help="change a policy's leaf, or environment.SETTING",
    )
    completed(
        one.add_argument("--data", type=path, metavar="FILE", help="file for an experiment on the user's own table"),
        completion.files(),
    )
    one.add_argument("--root-seed", type=int, default=0, help="seed of all randomness (default 0)")
    one.add_argument(
        "--keep", choices=("runs", "moments"), default="runs", help="every run (default), or statistics over the seeds only"
    )
    one.add_argument(
        "--until-stderr",
        metavar="METRIC=ERROR",
        action="append",
        default=[],
        help="stop when the standard error at the horizon is below this for every policy; --seeds is then the most",
    )
    one.add_argument(
        "--keep-states", action="store_true", help="keep the states at the end, so that a longer --horizon goes on from them"
    )
    one.add_argument(
        "--backend",
        choices=BACKENDS,
        default="auto",
        help="what simulates the rounds: the scan, one kernel for all rounds, or the textbook's loop (default: the kernel; the scan on a CPU where "
        "there is no C++ compiler)",
    )
    completed(
        one.add_argument(
            "--devices",
            metavar="PLATFORM[:I,J]",
            help="cpu, cuda, or some of them as in cuda:0,1 (default: all of the best platform)",
        ),
        completion.choices("cpu", "cuda"),
    )
    one.add_argument("--x64", action="store_true", help="numbers of 64 bits")
    one.add_argument("--smoke", action="store_true", help="a size that takes seconds, compiled quickly on a CPU")
    one.add_argument("--no-figures", action="store_true", help="draw nothing; `jaxroute plot` does so later")
    one.add_argument(
        "--accept-changed-code",
        action="store_true",
        help="simulate anew, beside what is stored, where the code of a policy or environment has changed since",
    )
    several = one.add_argument_group("several processes, each started with the same command and the same --out (or --store)")
    share = several.add_mutually_exclusive_group()
    share.add_argument(
        "--share",
        metavar="I/N",
        nargs="?",
        const="auto",
        help="simulate part I of N, from 0 (default: what the variables of Slurm, Open MPI, submitit or Ray say; auto/N in a job of Kubernetes or PBS)",
    )
    share.add_argument(
        "--join",
        dest="share",
        action="store_const",
        const="join",
        help="simulate what no other process has simulated or simulates, until everything is there; processes may come and go",
    )
    one.set_defaults(command="run")

    one = commands.add_parser(
        "data",
        help="what a log of answers says: how it is read, models, what routing could gain",
        description="Reads a log of models' answers to queries, a table with a row per query and model or per query, and shows how it was read and what it says.",
    )
    add_log_options(one)
    one.add_argument("--json", action="store_true", help="for programs")
    one.set_defaults(command="data")

    one = commands.add_parser(
        "compare",
        help="compare routing strategies on your log: which one reaches a quality at the least cost?",
        description="Compares fixed models, mixtures, routers, cascades and policies that learn on a log of models' answers to queries, and writes "
        "a page that says which of them reaches a quality for the least money, and how sure that is. A comparison that was stopped goes on.",
    )
    add_log_options(one)
    one.add_argument(
        "--target-quality", type=quality, required=True, metavar="Q", help="mean score to be reached, as in 0.75"
    )
    one.add_argument(
        "--out", type=folder, help="folder for the page and its numbers (default: report-LOG, as in report-traffic)"
    )
    one.add_argument(
        "--minutes",
        type=positive,
        help="of all; what is left after the comparison goes into more random orders of the queries",
    )
    one.add_argument(
        "--orders", type=at_least(4), help="random orders that policies learn in, at least 4 (default: 8 to 32)"
    )
    one.add_argument(
        "--warm-start",
        type=warm_start,
        default=0.0,
        metavar="SHARE",
        help="share of the queries that policies learn from before they are judged, at most 0.5 (default: 0)",
    )
    one.set_defaults(command="compare")

    one = commands.add_parser(
        "tune",
        help="search the best hyperparameters of a policy",
        description="Searches hyperparameters of a policy of an experiment, or settings of its environment, by any metric, and tests the best on "
        "seeds that the search has not used; a stopped search is resumed.",
    )
    completed(
        one.add_argument("experiment", help="a name from `jaxroute list`, or a Python file that defines `experiment`"),
        completion.experiments,
    )
    one.add_argument(
        "--parameter",
        dest="parameters",
        metavar="POLICY.NAME=SCALE",
        action="append",
        required=True,
        help="hyperparameter to search, for example StageRoute.gamma=log:0.01:1; scales are linear, log, integer, log-integer (LOW:HIGH) and choice "
        "(A,B,...); environment.SETTING too",
    )
    one.add_argument("--metric", required=True, help="what is made smallest or largest")
    better = one.add_mutually_exclusive_group()
    better.add_argument(
        "--maximise",
        dest="maximise",
        action="store_true",
        default=None,
        help="more is better (default: by the metric's name)",
    )
    better.add_argument("--minimise", dest="maximise", action="store_false", help="less is better")
    for option, word in (("--at-most", "largest"), ("--at-least", "smallest")):
        one.add_argument(
            option, metavar="METRIC=NUMBER", action="append", default=[], help=f"{word} mean that a metric may have"
        )
    one.add_argument(
        "--margin", type=float, default=1.0, help="standard errors by which a bound must be satisfied (default 1)"
    )
    one.add_argument("--rounds", type=count, help="rounds in all (default: 1,000 runs)")
    one.add_argument("--horizon", type=at_most(2**31 - 1), help="rounds of a run (default: the case's)")
    one.add_argument("--seeds", type=count, default=4, help="seeds of a candidate in the search (default 4)")
    one.add_argument("--case", help="name of the case (default: the first)")
    one.add_argument("--policy", help="name of the policy, if all hyperparameters are the environment's")
    one.add_argument("--root-seed", type=int, default=0, help="seed of all randomness (default 0)")
    one.add_argument(
        "--out", type=folder, help="folder for search, picture and summary.json (default: results/tune-EXPERIMENT)"
    )
    one.add_argument("--no-figures", action="store_true", help="draw nothing")
    one.add_argument(
        "--accept-changed-code", action="store_true", help="resume a search although the code has changed since"
    )
    one.set_defaults(command="tune")

    one = commands.add_parser(
        "store",
        help="what is in a store, whether it is sound, and stores put together",
        description="Shows what the stores below a folder hold, and what would be played to complete them.",
    )
    completed(
        one.add_argument("folder", type=place, help="the folder of a run, or of several, or a URL"), completion.files("/")
    )
    one.add_argument(
        "--verify", action="store_true", help="read everything; exit status 1 if something is not what was written"
    )
    one.add_argument(
        "--merge",
        type=place,
        nargs="+",
        metavar="DIR",
        help="first make the stores in folder out of those of these folders: the same settings, other seeds",
    )
    one.add_argument(
        "--export", type=path, metavar="FILE", help="write the result as *.zarr, *.nc (netCDF) or *.parquet (tables) instead"
    )
    one.set_defaults(command="store")

    one = commands.add_parser(
        "plot",
        help="draw the figures of a stored result, and write its summary",
        description="Draws the figures of a stored result and writes its summary.json: after a change of figures, a merge of stores, or shares "
        "of several machines.",
    )
    completed(one.add_argument("folder", type=folder, help="the folder of a run"), completion.files("/"))
    one.add_argument("--store", metavar="URL", help="folder or URL of the store, if it is not in the folder")
    completed(
        one.add_argument("experiment", nargs="?", help="the Python file that the run was made from, if it was your own"),
        completion.files(".py"),
    )
    one.set_defaults(command="plot")

    # Its options are those of scripts/bench.py.
    one = commands.add_parser("bench", help="measure decisions per second, or compare measurements", add_help=False)
    one.set_defaults(command="bench")

    one = commands.add_parser(
        "doctor", help="whether what is installed fits together, device, memory, and a self-check, in about ten seconds"
    )
    one.set_defaults(command="doctor")

    one = commands.add_parser(
        "completion",
        help="what your shell reads to complete commands, names and files",
        description='Prints what a shell has to read to complete the command: eval "$(jaxroute completion bash)". Needs argcomplete, '
        'pip install "jaxroute[completion]".',
    )
    one.add_argument("shell", choices=completion.SHELLS)
    one.set_defaults(command="completion")
    return made


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """The file of a log, and how it is read; `_reading` of the command takes them."""
    completed(
        parser.add_argument(
            "file",
            type=log_file,
            nargs="+",
            help="csv, tsv, JSON, JSON lines, parquet, Excel, npz or pickle, also compressed; a folder, or several files with a model in each",
        ),
        completion.files(),
    )
    how = parser.add_argument_group("how the file is read, where that cannot be told or is told wrongly")
    completed(
        how.add_argument(
            "--column",
            dest="columns",
            metavar="ROLE=NAME",
            action="append",
            default=[],
            help=f"the column of a role ({', '.join(ROLES)}); 'perf_*' for a column per model, nothing for none, A+B for two that together name the query",
        ),
        completion.choices(*(f"{role}=" for role in ROLES)),
    )
    how.add_argument(
        "--where", metavar="COLUMN=VALUE", action="append", default=[], help="keep the rows in which a column has this value"
    )
    how.add_argument(
        "--unit",
        dest="units",
        metavar="ROLE=UNIT",
        action="append",
        default=[],
        help="unit of cost (cents, per_1k, ...), latency (ms, us, s, min) or price (per_token, per_1k, per_1m), if the column's name does not say it",
    )
    how.add_argument(
        "--price",
        dest="prices",
        metavar="MODEL=IN:OUT",
        action="append",
        default=[],
        help="USD per million input and output tokens, and of cached input where there is some (IN:OUT:CACHED); only models with a price are kept",
    )
    how.add_argument(
        "--prices",
        dest="price_file",
        type=path,
        metavar="FILE",
        help="prices as a table with the columns model, price_in, price_out",
    )
    how.add_argument("--cost", dest="costs", metavar="MODEL=VALUE", action="append", default=[], help="cost per query")
    how.add_argument(
        "--cost-unit", metavar="TEXT", help='what a cost counts (default: what the file says, or "USD per query")'
    )
    how.add_argument("--models", metavar="A,B", help="keep these models alone")
    how.add_argument(
        "--missing",
        choices=("drop", "zero"),
        default="drop",
        help="leave out queries that a model has not answered (default), or count no answer as score 0 and cost 0",
    )
    how.add_argument(
        "--scale", metavar="LOW:HIGH", help="lowest and highest score there can be, such as 1:10 (--scale=-1:1 below zero)"
    )
    how.add_argument("--separator", metavar="CHARACTER", help="what is between columns of text")
    how.add_argument("--encoding", help="of text, such as windows-1252")
    completed(
        how.add_argument(
            "--features",
            metavar="WHICH",
            help="own, text or none, or a file of numbers (npy, npz); default: the best there is",
        ),
        completion.choices("own", "text", "none"),
    )


def count(text: str) -> int:
    plain = text.replace("_", "").replace(",", "")
    try:
        value = int(plain)
    except ValueError:
        value = whole(plain, text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def seeds(text: str) -> int | range:
    """A number of seeds, or the first one and the one behind the last as A:B."""
    first, colon, stop = text.partition(":")
    if not colon:
        return at_most(2**32)(text)
    begin, end = whole(first.replace("_", "").replace(",", ""), first), at_most(2**32)(stop)
    if not 0 <= begin < end:
        raise argparse.ArgumentTypeError(f"must be A:B with A from 0 and below B, got {text!r}")
    return range(begin, end)


def at_most(maximum: int) -> Callable[[str], int]:
    """Reads numbers of things, no more than the engine counts."""

    def read(text: str) -> int:
        value = count(text)
        if value > maximum:
            raise argparse.ArgumentTypeError(f"must be at most {maximum:,}, got {value:,}")
        return value

    return read


def at_least(minimum: int) -> Callable[[str], int]:
    """Reads numbers of things, no fewer than something needs."""

    def read(text: str) -> int:
        value = count(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum:,}, got {value:,}")
        return value

    return read


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return value


def quality(text: str) -> float:
    """A mean score that can be asked for."""
    value = number(text.removesuffix("%"))
    if text.endswith("%") or not 0.0 < value < 1.0:
        hint = f"; for {value:g} % give {value / 100:g}" if (value > 1.0 or text.endswith("%")) and value < 100.0 else ""
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1, got {text}{hint}")
    return value


def positive(text: str) -> float:
    """A number above 0."""
    value = number(text)
    if value <= 0.0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def warm_start(text: str) -> float:
    """A share of the queries that leaves at least half of them to judge by."""
    value = number(text)
    if not 0.0 <= value <= 0.5:
        raise argparse.ArgumentTypeError(f"must be from 0 to 0.5, a share of the queries, got {text}")
    return value


def path(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("must be a path, got an empty text")
    return Path(text)


def place(text: str) -> Path | str:
    """A path, or a URL as it is."""
    from jaxroute.store.places import is_url

    return text if is_url(text) else path(text)


def log_file(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError(f"must be a file, got the address {text!r}: download it first")
    return path(text)


def folder(text: str) -> Path:
    from jaxroute.store.places import is_url

    if is_url(text):
        raise argparse.ArgumentTypeError(f"must be a folder on disk, where figures and summary.json go, got {text!r}")
    return path(text)


def whole(plain: str, text: str) -> int:
    """A whole number such as 1e3."""
    try:
        value = float(plain)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(value)
