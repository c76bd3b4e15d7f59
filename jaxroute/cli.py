"""The `jaxroute` command."""

import argparse
import contextlib
import importlib.util
import inspect
import json
import math
import os
import runpy
import shlex
import shutil
import signal
import sys
import textwrap
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxroute import __version__
from jaxroute.engine import BACKENDS


class _Ended(KeyboardInterrupt):
    """A signal that ends the command as Ctrl-C does: what a scheduler sends, or a terminal that goes away."""


def _end(number: int, frame: Any) -> None:
    del frame
    raise _Ended(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, 2 after an error in the input, 128 and the number of a signal that ended it."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and options.function is not _bench:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    options.given = list(sys.argv[1:] if arguments is None else arguments)
    before, warnings.formatwarning = warnings.formatwarning, _warning
    handlers = _end_by_signals()
    try:
        with contextlib.ExitStack() as options.until_the_end:
            status = options.function(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # Whoever read the output has gone, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if not _is_told(error):
            raise
        print(f"jaxroute: {_reason(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as end:
        with contextlib.suppress(OSError):  # The terminal may have gone.
            print("jaxroute: stopped; the same command continues from the last finished block", file=sys.stderr)
        return 128 + int(end.args[0] if end.args else signal.SIGINT)
    finally:
        warnings.formatwarning = before
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _is_told(error: Exception) -> bool:
    """Whether one line says it, and not a traceback: what is wrong with the input, the machine or the memory."""
    kinds: tuple[type[Exception], ...] = (ValueError, ImportError, OSError, MemoryError)
    if "jax" in sys.modules:  # As late as here: `--help` and a wrong option do without it.
        import jax

        from jaxroute.engine import hosts

        kinds += (hosts.HostsError, jax.errors.JaxRuntimeError)
    return isinstance(error, kinds)


def _end_by_signals() -> dict[int, Any]:
    """Lets SIGTERM and SIGHUP end the command as Ctrl-C does; the handlers of before. Only the main thread may ask for that."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    try:
        return {number: signal.signal(number, _end) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    except ValueError:
        return {}


def _reason(error: BaseException) -> str:
    """What went wrong, on one line."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError) and not text:
        text = "there is not enough memory: try fewer seeds (--seeds) or a shorter horizon (--horizon)"
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    return (" ".join(text.split()) or type(error).__name__) + notes


def _warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> str:
    return f"jaxroute: {'' if issubclass(category, UserWarning) else category.__name__ + ': '}{' '.join(str(message).split())}\n"


class _Parser(argparse.ArgumentParser):
    """Errors on one line."""

    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: {message} (`{self.prog} --help` shows what is understood)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="jaxroute", description="Batch simulation of online routing of language models.")
    parser.add_argument("--version", action="version", version=f"jaxroute {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    one = commands.add_parser("list", help="problems, policies, experiments and data sets")
    one.add_argument("problem", nargs="?", help="a problem: only what belongs to it")
    one.add_argument("--json", action="store_true", help="for programs")
    one.set_defaults(function=_list)

    one = commands.add_parser(
        "run",
        help="run an experiment",
        description="Runs an experiment; a killed run is continued, and a finished one grows: with more --seeds only what is missing is played.",
    )
    one.add_argument("experiment", help="a name from `jaxroute list`, or a Python file that defines `experiment`")
    one.add_argument("--seeds", type=_at_most(2**32), help="number of seeds (default: the experiment's)")
    one.add_argument("--horizon", type=_at_most(2**31 - 1), help="rounds of the longest case; the others keep their ratio")
    one.add_argument("--out", type=_folder, help="folder for store, figures and summary.json (default: results/EXPERIMENT)")
    one.add_argument(
        "--set",
        dest="changes",
        metavar="POLICY.LEAF=VALUE",
        action="append",
        default=[],
        help="change a policy's leaf, or environment.SETTING",
    )
    one.add_argument("--data", type=_path, metavar="FILE", help="file for an experiment on the user's own table")
    one.add_argument("--key", type=int, default=0, help="root of all randomness (default 0)")
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
        help="who plays the rounds: the scan, the same compiled briefly (three times as fast, but it plays ten times as long), one kernel for "
        "all rounds, or the textbook's loop (default: the kernel on a GPU, else the scan; of --smoke on a CPU the brief one)",
    )
    one.add_argument(
        "--devices",
        metavar="PLATFORM[:I,J]",
        help="cpu, cuda, or some of them as in cuda:0,1 (default: all of the best platform)",
    )
    one.add_argument("--x64", action="store_true", help="numbers of 64 bits")
    one.add_argument("--smoke", action="store_true", help="a size that takes seconds, compiled briefly on a CPU")
    one.add_argument("--no-figures", action="store_true", help="draw nothing; `jaxroute plot` does so later")
    one.add_argument(
        "--accept-changed-code",
        action="store_true",
        help="go on with a store where the code of a policy or environment has changed since",
    )
    several = one.add_argument_group("several processes, each started with the same command and the same --out")
    several.add_argument(
        "--distributed", action="store_true", help="share the seeds; SLURM, Open MPI, Kubernetes and TPU are detected"
    )
    several.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 can be reached, if nothing is detected")
    several.add_argument("--processes", type=_count, metavar="N", help="number of processes")
    several.add_argument("--process-id", type=int, metavar="I", help="number of this process, from 0")
    one.set_defaults(function=_run)

    one = commands.add_parser(
        "data",
        help="what a log of answers says: how it is read, models, what routing could gain",
        description="Reads a log of models' answers to queries, a table with a row per query and model or per query, and shows how it was read and what it says.",
    )
    _add_log_options(one)
    one.add_argument("--json", action="store_true", help="for programs")
    one.set_defaults(function=_data)

    one = commands.add_parser(
        "compare",
        help="which way of routing reaches a quality for the least money, on your log",
        description="Compares fixed models, mixtures, routers, cascades and policies that learn on a log of models' answers to queries, and writes "
        "a page that says which of them reaches a quality for the least money, and how sure that is. A comparison that was stopped goes on.",
    )
    _add_log_options(one)
    one.add_argument("--target-quality", type=float, required=True, metavar="Q", help="mean score to be reached, as in 0.75")
    one.add_argument(
        "--out", type=_folder, default=Path("report"), help="folder for the page and its numbers (default: report)"
    )
    one.add_argument(
        "--minutes", type=float, help="of all; what is left after the comparison goes into more random orders of the queries"
    )
    one.add_argument("--orders", type=_count, help="random orders that policies learn in (default: 8 to 32)")
    one.add_argument(
        "--warm-start",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the queries that policies learn from before they are judged (default: 0)",
    )
    one.set_defaults(function=_compare)

    one = commands.add_parser(
        "tune",
        help="search the best leaves of a policy",
        description="Searches leaves of a policy of an experiment, or settings of its environment, by any metric, and judges the best on seeds "
        "that the search has not seen; a killed search is continued.",
    )
    one.add_argument("experiment", help="a name from `jaxroute list`, or a Python file that defines `experiment`")
    one.add_argument(
        "--leaf",
        dest="leaves",
        metavar="POLICY.LEAF=SCALE",
        action="append",
        required=True,
        help="what is searched, for example StageRoute.gamma=log:0.01:1; scales are linear, log, integer, log-integer (LOW:HIGH) and choice "
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
    one.add_argument("--margin", type=float, default=1.0, help="standard errors by which a bound must be kept (default 1)")
    one.add_argument("--rounds", type=_count, help="rounds in all (default: 1,000 runs)")
    one.add_argument("--horizon", type=_at_most(2**31 - 1), help="rounds of a run (default: the case's)")
    one.add_argument("--seeds", type=_count, default=4, help="seeds of a candidate in the search (default 4)")
    one.add_argument("--case", help="name of the case (default: the first)")
    one.add_argument("--policy", help="who plays, where all leaves are the environment's")
    one.add_argument("--key", type=int, default=0, help="root of all randomness (default 0)")
    one.add_argument(
        "--out", type=_folder, help="folder for search, picture and summary.json (default: results/tune-EXPERIMENT)"
    )
    one.add_argument("--no-figures", action="store_true", help="draw nothing")
    one.add_argument(
        "--accept-changed-code", action="store_true", help="go on with a search where the code has changed since"
    )
    one.set_defaults(function=_tune)

    one = commands.add_parser(
        "store",
        help="what is in a store, whether it is sound, and stores put together",
        description="Shows what the stores below a folder hold, and what would be played to complete them.",
    )
    one.add_argument("folder", type=_path, help="the folder of a run, or of several")
    one.add_argument(
        "--verify", action="store_true", help="read everything; exit status 1 if something is not what was written"
    )
    one.add_argument(
        "--merge",
        type=_path,
        nargs="+",
        metavar="DIR",
        help="first make the stores in folder out of those of these folders: the same settings, other seeds",
    )
    one.set_defaults(function=_store)

    one = commands.add_parser("plot", help="draw the figures of a finished run again")
    one.add_argument("folder", type=_folder, help="the folder of a run")
    one.add_argument("experiment", nargs="?", help="the Python file that the run was made from, if it was your own")
    one.set_defaults(function=_plot)

    # Its options are those of scripts/bench.py.
    one = commands.add_parser("bench", help="measure decisions per second, or compare measurements", add_help=False)
    one.set_defaults(function=_bench)

    one = commands.add_parser(
        "doctor", help="whether what is installed fits together, device, memory, and a ten-second self-check"
    )
    one.set_defaults(function=_doctor)
    return parser


def _add_log_options(parser: argparse.ArgumentParser) -> None:
    """The file of a log, and how it is read; `_reading` takes them."""
    parser.add_argument(
        "file", type=_path, help="csv, tsv, JSON, JSON lines, parquet, Excel, npz or pickle; also a folder of SPROUT's files"
    )
    how = parser.add_argument_group("how the file is read, where that cannot be told or is told wrongly")
    how.add_argument(
        "--column",
        dest="columns",
        metavar="ROLE=NAME",
        action="append",
        default=[],
        help="the column of a role (query, model, score, cost, tokens_in, tokens_out, latency, category, text, date, embedding); 'perf_*' for a "
        "column per model",
    )
    how.add_argument(
        "--price",
        dest="prices",
        metavar="MODEL=IN:OUT",
        action="append",
        default=[],
        help="USD per million input and output tokens",
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
    how.add_argument(
        "--features", metavar="WHICH", help="own, text or none, or a file of numbers (npy, npz); default: the best there is"
    )


def _reading(options) -> dict[str, Any]:
    """The arguments of `read_log` that the options of `_add_log_options` name, without the file."""
    return {
        "columns": _named("--column", "ROLE=NAME", options.columns, str) or {},
        "costs": _named("--cost", "MODEL=VALUE", options.costs, float),
        "prices": _named("--price", "MODEL=IN:OUT", options.prices, _two),
        "cost_unit": options.cost_unit,
        "models": None if options.models is None else [name.strip() for name in options.models.split(",") if name.strip()],
        "missing": options.missing,
        "scale": None if options.scale is None else _scale(options.scale),
        "separator": options.separator,
        "encoding": options.encoding,
        "features": options.features,
    }


def _named(option: str, form: str, texts: Sequence[str], read: Callable[[str], Any]) -> dict[str, Any] | None:
    """`["a=1", "b=2"]` by name; None without any. A name may hold `=`."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=") if option == "--column" else text.rpartition("=")
        name = name.strip()
        try:
            parsed = read(value.strip())
        except ValueError:
            parsed = None
        if not (equals and name and value.strip()) or parsed is None:
            raise ValueError(f"{option} must have the form {form}, got {text!r}")
        if name in found:
            raise ValueError(f"{option} {name} must be given once, got {found[name]} and {value}")
        found[name] = parsed
    return found or None


def _two(text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    return float(low), float(high if colon else low)


def _scale(text: str) -> tuple[float, float]:
    try:
        if ":" in text:
            return _two(text)
    except ValueError:
        pass
    raise ValueError(f"--scale must have the form LOW:HIGH, such as 0:10, got {text!r}")


def _data(options) -> int:
    from jaxroute.data import describe, read_log

    description = describe(read_log(options.file, **_reading(options)))
    print(json.dumps(description.as_dict(), indent=2) if options.json else "\n".join(description.lines(_width())))
    return 0


def _compare(options) -> int:
    from jaxroute.comparison import compare

    _keep_programs(options)
    start = time.perf_counter()
    found = compare(
        options.file,
        target_quality=options.target_quality,
        out=options.out,
        minutes=options.minutes,
        orders=options.orders,
        warm=options.warm_start,
        command=shlex.join(["jaxroute", *options.given]),
        progress=sys.stderr.isatty(),
        **_reading(options),
    )
    print("\n".join(_wrapped("", line, 2) for line in found.log.read))
    print(f"\n{_wrapped('', found.sentence, 0)}\n\n{found.table(_width())}\n")
    print(f"{time.perf_counter() - start:.0f} s; {options.out / 'index.html'} is the page")
    return 0


def _count(text: str) -> int:
    plain = text.replace("_", "").replace(",", "")
    try:
        value = int(plain)
    except ValueError:
        value = _whole(plain, text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _at_most(maximum: int) -> Callable[[str], int]:
    """Reads numbers of things, no more than the engine counts."""

    def read(text: str) -> int:
        value = _count(text)
        if value > maximum:
            raise argparse.ArgumentTypeError(f"must be at most {maximum:,}, got {value:,}")
        return value

    return read


def _path(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("must be a path, got an empty text")
    return Path(text)


def _folder(text: str) -> Path:
    from jaxroute.store.description import is_url

    if is_url(text):
        raise argparse.ArgumentTypeError(f"must be a folder on disk, where figures and summary.json go, got {text!r}")
    return _path(text)


def _whole(plain: str, text: str) -> int:
    """A whole number such as 1e3."""
    try:
        value = float(plain)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(value)


def _list(options) -> int:
    from jaxroute.catalogue import catalogue
    from jaxroute.core import checks

    everything = catalogue()
    if options.problem is not None:
        name = checks.one_of("problem", options.problem, everything["problems"])
        played = {one: e for one, e in everything["experiments"].items() if one.split("/")[0] == name}
        everything = {"problems": {name: everything["problems"][name]}, "experiments": played, "data_sets": {}}
    if options.json:
        print(json.dumps(everything, indent=2))
        return 0
    print("Problems")
    for name, problem in everything["problems"].items():
        print("\n" + _wrapped(f"  {name}: ", problem["title"]))
        print(_wrapped("    environments: ", ", ".join(problem["environments"])))
        print(_wrapped("    policies: ", ", ".join(problem["policies"])))
    print("\nExperiments\n")
    width = max(map(len, everything["experiments"]))
    for name, experiment in everything["experiments"].items():
        size = f"{experiment['seeds']:,} seeds x {experiment['horizon']:,} rounds"
        print(_wrapped(f"  {name:<{width}}  ", f"{experiment['title']} ({size})", width + 4))
    if not everything["data_sets"]:
        return 0
    print("\nData sets\n")
    width = max(map(len, everything["data_sets"]))
    for name, data in everything["data_sets"].items():
        print(_wrapped(f"  {name:<{width}}  ", f"{data['kind']}: {data['description']}", width + 4))
    return 0


def _width() -> int:
    """Columns of a line of text on this terminal."""
    return max(60, min(shutil.get_terminal_size((110, 40)).columns, 130))


def _wrapped(label: str, text: str, indent: int = 8) -> str:
    return textwrap.fill(text, _width(), initial_indent=label, subsequent_indent=" " * indent)


def _experiment(name: str) -> Any:
    """An experiment by name, or from a user's file."""
    from jaxroute.catalogue import catalogue
    from jaxroute.core import checks
    from jaxroute.experiments import EXPERIMENTS, Experiment

    if name.endswith(".py"):
        if not Path(name).is_file():
            raise ValueError(f"experiment must be a name or an existing file, got {name!r}")
        found = _executed(name).get("experiment")
        if not isinstance(found, Experiment):
            raise ValueError(
                f"{name} must define `experiment = jaxroute.experiments.Experiment(...)`, got {checks.show(found)}"
            )
        try:
            _check_experiment(found)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return found
    try:
        return EXPERIMENTS[checks.one_of("experiment", name, catalogue()["experiments"])]
    except ValueError as error:
        hint = "a file of your own must end in .py" if Path(name).exists() else "`jaxroute list` shows all"
        raise ValueError(f"{error} ({hint})") from None


def _executed(file: str) -> dict[str, Any]:
    """What a user's Python file defines.

    Raises:
      ValueError: the file cannot be executed; the message says why and in which line.
    """
    sys.path.insert(0, str(Path(file).resolve().parent))
    try:
        return runpy.run_path(file)
    except SyntaxError as error:
        raise ValueError(f"{error.filename or file}, line {error.lineno or 1}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        where = f"{file}, line {lines[-1]}" if lines else file
        raise ValueError(f"{where}: {type(error).__name__}: {error}") from error


def _check_experiment(experiment: Any) -> None:
    """`ValueError` for what cannot be played, or would be written elsewhere than into the folder of the run."""
    from jaxroute.core import checks
    from jaxroute.experiments import Case

    cases = experiment.cases
    if not isinstance(cases, (tuple, list)) or not cases or not all(isinstance(case, Case) for case in cases):
        raise ValueError(f"cases must be a tuple of at least one Case, got {checks.show(cases)}")
    for case in cases:
        where = f"case {case.name!r}: "
        if not callable(case.policies) and not isinstance(case.policies, Mapping):
            raise ValueError(
                f"{where}policies must be a dict of name to policy, or a function, got {checks.show(case.policies)}"
            )
        if (
            not callable(case.environment)
            and not hasattr(case.environment, "init")
            and not hasattr(case.environment, "axes")
        ):
            raise ValueError(
                f"{where}environment must be an environment, a grid or a function, got {checks.show(case.environment)}"
            )
        checks.count(f"{where}horizon", case.horizon)
    names = [case.name for case in cases]
    for what, given in (("cases", names), ("figures", list(experiment.figures))):
        for name in given:
            if name in ("", ".", "..") or Path(name).name != name or given.count(name) > 1:
                raise ValueError(
                    f"{what} must have different names of files without folders, got {', '.join(map(repr, given))}"
                )


def _with_setting(error: ValueError, experiment: Any) -> str:
    """An error, with the option that changes what it complains of if that is a setting of the environment."""
    setting = str(error).partition(" ")[0]
    for case in experiment.cases:
        if inspect.isfunction(case.environment) and setting in inspect.signature(case.environment).parameters:
            return f"{error}; --set environment.{setting}=VALUE changes it"
    return str(error)


def _keep_compiled() -> str | None:
    """Lets JAX keep compiled programs between commands, unless it has been told where to, or not to; returns the folder."""
    import jax

    if not jax.config.jax_enable_compilation_cache:
        return None
    if jax.config.jax_compilation_cache_dir is None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "jaxroute" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    return jax.config.jax_compilation_cache_dir


def _keep_programs(options) -> None:
    """Lets a command keep compiled programs for the next one: JAX, and the engine, which then need not even trace them."""
    folder = _keep_compiled()
    if folder is not None and "://" not in folder:
        from jaxroute.engine.shelf import shelf

        options.until_the_end.enter_context(shelf(Path(folder) / "jaxroute-programs"))


def _has_gpu(devices: list[Any] | None) -> bool:
    """Whether something else than a CPU plays."""
    import jax

    return (devices or jax.local_devices())[0].platform != "cpu"


def _changes(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`["StageRoute.gamma=0.5"]` as `{"StageRoute": {"gamma": 0.5}}`."""
    changes: dict[str, dict[str, Any]] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        who, dot, leaf = target.rpartition(".")
        if not (equals and dot and who and leaf and value):
            raise ValueError(f"--set must have the form POLICY.LEAF=VALUE, got {text!r}")
        if leaf in changes.setdefault(who, {}):
            raise ValueError(f"--set {target} must be given once, got {json.dumps(changes[who][leaf])} and {value}")
        changes[who][leaf] = _value(value)
    return changes


def _value(text: str) -> Any:
    """What a user wrote, as JSON or as a number; else the text."""
    for read in (json.loads, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _goals(texts: Sequence[str]) -> dict[str, float] | None:
    """`["regret=0.5"]` as `{"regret": 0.5}`; None without any."""
    goals = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name in goals:
            raise ValueError(f"--until-stderr {name} must be given once, got {goals[name]} and {value}")
        try:
            goals[name] = float(value)
        except ValueError:
            equals = ""
        if not (equals and name):
            raise ValueError(f"--until-stderr must have the form METRIC=ERROR, got {text!r}")
    return goals or None


def _devices(text: str | None) -> list[Any] | None:
    """`"cuda:0,1"` as devices; None without."""
    if text is None:
        return None
    import jax

    platform, colon, numbers = text.partition(":")
    try:
        devices = jax.local_devices(backend=platform)
    except RuntimeError:
        there = ", ".join(dict.fromkeys(["cpu", *(d.platform for d in jax.local_devices())]))
        raise ValueError(f"--devices must begin with a platform of this machine ({there}), got {text!r}") from None
    if not colon:
        return devices
    try:
        return [devices[_index(number, len(devices))] for number in numbers.split(",")]
    except ValueError:
        raise ValueError(
            f"--devices {platform}: must be followed by numbers from 0 to {len(devices) - 1}, got {text!r}"
        ) from None


def _index(text: str, size: int) -> int:
    number = int(text)
    if not 0 <= number < size:
        raise ValueError
    return number


def _run(options) -> int:
    import jax

    from jaxroute.engine import hosts

    if options.x64:
        jax.config.update("jax_enable_x64", True)
    three = options.coordinator, options.processes, options.process_id
    if not options.distributed:
        if three != (None, None, None):
            raise ValueError("--coordinator, --processes and --process-id need --distributed")
        return _run_here(options)
    hosts.initialize(*three)  # Before anything is computed, also by an import.
    try:
        status = _run_here(options, mesh=hosts.whole_mesh())
    except Exception:
        hosts.leave()
        raise
    hosts.leave()
    return status


def _run_here(options, mesh: Any = None) -> int:
    from jaxroute import experiments
    from jaxroute.engine import hosts

    devices = _devices(options.devices)
    if devices is not None and mesh is not None:
        raise ValueError("--distributed uses the devices of all processes, and takes no --devices")
    _keep_programs(options)
    experiment = _experiment(options.experiment)
    figures = bool(experiment.figures) and not options.no_figures
    if figures and importlib.util.find_spec("matplotlib") is None:
        figures = False
        print('jaxroute: no figures are drawn: they need matplotlib, pip install "jaxroute[plot]"', file=sys.stderr)
    seeds = options.seeds or (experiment.smoke_seeds if options.smoke else None)
    horizon = options.horizon or (min(experiment.smoke_horizon, experiment.horizon) if options.smoke else None)
    name = Path(experiment.name).stem if options.experiment.endswith(".py") else experiment.name
    out = options.out or Path("results") / (name.replace("/", "-") + ("-smoke" if options.smoke else ""))
    changes = _changes(options.changes)
    if options.data is not None:
        if "data" in changes.setdefault("environment", {}):
            raise ValueError("--data and --set environment.data mean the same: give one of them")
        changes["environment"]["data"] = str(options.data)
    goals = _goals(options.until_stderr)
    if hosts.is_first():
        print(f"{experiment.name}: {experiment.title}")
    start = time.perf_counter()
    try:
        summary = experiments.run(
            experiment,
            out,
            seeds=seeds,
            horizon=horizon,
            changes=changes,
            key=options.key,
            backend="brief" if options.smoke and options.backend == "auto" and not _has_gpu(devices) else options.backend,
            devices=devices,
            mesh=mesh,
            keep=options.keep,
            until_stderr=goals,
            figures=figures,
            keep_states=options.keep_states,
            accept_changed_code=options.accept_changed_code,
            progress=sys.stderr.isatty(),
        )
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ValueError(_with_setting(error, experiment)) from error
    if hosts.is_first():
        print(_report(experiment, summary, changes, out, time.perf_counter() - start))
    return 0


def _tune(options) -> int:
    from jaxroute.experiments import tuning

    _keep_programs(options)
    experiment = _experiment(options.experiment)
    figures = not options.no_figures
    if figures and importlib.util.find_spec("matplotlib") is None:
        figures = False
        print('jaxroute: no picture is drawn: it needs matplotlib, pip install "jaxroute[plot]"', file=sys.stderr)
    name = Path(experiment.name).stem if options.experiment.endswith(".py") else experiment.name
    out = options.out or Path("results") / f"tune-{name.replace('/', '-')}"
    leaves = tuning.scales(options.leaves)
    print(f"{experiment.name}: {experiment.title}")
    start = time.perf_counter()
    found = tuning.search(
        experiment,
        leaves,
        metric=options.metric,
        maximise=options.maximise,
        at_most=tuning.bounds("--at-most", options.at_most),
        at_least=tuning.bounds("--at-least", options.at_least),
        margin=options.margin,
        rounds=options.rounds,
        horizon=options.horizon,
        seeds=options.seeds,
        case=options.case,
        policy=options.policy,
        key=options.key,
        out=out,
        figures=figures,
        progress=sys.stderr.isatty(),
        accept_changed_code=options.accept_changed_code,
    )
    written = ["search", *(["search.png"] if figures else []), "summary.json"]
    print(
        "\n".join(
            ["", tuning.report(found), "", f"{time.perf_counter() - start:.1f} s", f"{out}{os.sep}: {', '.join(written)}"]
        )
    )
    return 0


def _report(experiment, summary: dict[str, Any], changes: dict[str, Any], out: Path, elapsed: float) -> str:
    """What the terminal shows after a run: metrics, claims, and where the files are."""
    from jaxroute.analysis import metrics
    from jaxroute.store import results

    lines = []
    cases = experiment.cases
    for case in cases:
        data = results.load(out if len(cases) == 1 else out / case.name)
        lines += ["", *([f"{case.name}:"] if len(cases) > 1 else []), metrics.table(data)]
    departures = experiment.departures(summary["horizon"], changes)
    if summary["claims"] and departures:
        lines += [
            "",
            _wrapped("", f"The claims are not judged: the run differs from what they are about ({departures}).", 0),
        ]
    elif summary["claims"]:
        lines += ["", "Claims", *_claims(summary["claims"])]
    if experiment.notes:
        lines += ["", _wrapped("Note: ", experiment.notes, 0)]
    speed = f", {summary['decisions_per_s'] / 1e6:.2f} M decisions/s" if summary["decisions_per_s"] else ""
    seconds = f"{summary['compile_s']:.1f} s compiling, {summary['run_s']:.1f} s running, {elapsed:.1f} s in all"
    written = ["store", *(f"{name}.png" for name in experiment.figures if (out / f"{name}.png").exists()), "summary.json"]
    lines += ["", f"{summary['device']}: {seconds}{speed}", f"{out}{os.sep}: {', '.join(written)}"]
    return "\n".join(lines)


def _claims(claims: Sequence[dict[str, Any]]) -> list[str]:
    width = _width() - 10
    lines = []
    for claim in claims:
        verdict, colour = {True: ("holds", 32), False: ("fails", 31), None: ("unknown", 33)}[claim["holds"]]
        verdict = f"{verdict:<9}"
        if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
            verdict = f"\033[{colour}m{verdict}\033[0m"
        lines.append(f"  {verdict}{textwrap.shorten(claim['text'] + ' [' + claim['source'] + ']', 400)}")
        lines += textwrap.wrap(f"measured: {claim['measured']}", width, initial_indent=" " * 11, subsequent_indent=" " * 21)
    return lines


def _store(options) -> int:
    from jaxroute.store import inspection

    if options.merge:
        for made in inspection.merge_folders(options.merge, options.folder):
            print(made)
    stores = inspection.stores_in(options.folder)
    sound = True
    for store in stores:
        found = inspection.inspect(store, verify=options.verify)
        print(
            "\n".join(["", f"{store}:", *(f"  {line}" for line in found.lines())]).removeprefix(
                "\n" if store == stores[0] else ""
            )
        )
        sound = sound and not found.damage
    return 0 if sound else 1


def _plot(options) -> int:
    from jaxroute import experiments

    summary = options.folder / "summary.json"
    if not summary.is_file():
        raise ValueError(f"folder must hold the summary.json of a finished run, got {str(options.folder)!r}")
    try:
        name = json.loads(summary.read_text())["experiment"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{summary} must be that of a run, but names no experiment: run it again") from None
    if options.experiment is None and name not in experiments.EXPERIMENTS:
        raise ValueError(
            f"{name!r} is an experiment of your own: name its file too, `jaxroute plot {options.folder} FILE.py`"
        )
    experiment = _experiment(options.experiment or name)
    if experiment.name != name:
        raise ValueError(f"experiment must be that of the run, {name!r}, got {experiment.name!r}")
    if not experiment.figures:
        raise ValueError(f"{name!r} has no figures")
    for file in experiments.redraw(experiment, options.folder):
        print(file)
    return 0


def _bench(options) -> int:
    script = Path(__file__).resolve().parents[1] / "scripts" / "bench.py"
    if not script.is_file():
        raise ValueError("the benchmark needs a checkout of the sources: scripts/bench.py is not part of an installation")
    sys.path.insert(0, str(script.parent))
    return runpy.run_path(str(script))["main"](options.rest)


def _nvrtc() -> str:
    """NVIDIA's compiler of kernels, in words."""
    from jaxroute.engine.kernels import cuda

    try:
        return f"NVRTC {cuda.version()}"
    except cuda.Unsupported as error:
        return f"nobody: {error}"


def _fits() -> bool | None:
    """Says what is installed and what of it does not fit; whether all does, None if jax cannot even be imported."""
    from jaxroute import installation

    found = installation.findings()
    for one in found:
        print(f"{'note' if one.level == 'note' else 'FAILED':<10} {one.what}\n{'':<10} {one.command}")
    if not found:
        print("ok         jax, its plugins, the GPU and what jaxroute needs fit together")
    sys.stdout.flush()
    levels = {one.level for one in found}
    return None if "broken" in levels else "slow" not in levels


def _doctor(options) -> int:
    del options
    fits = _fits()
    if fits is None:
        return 1
    import jax
    import numpy as np

    import jaxroute
    from jaxroute.engine.batching import compiling
    from jaxroute.engine.kernels import host
    from jaxroute.problems import stochastic
    from jaxroute.store import provenance

    devices = jax.local_devices()
    print(f"device     {provenance.device_name(devices)} (platform {devices[0].platform})")
    for name, version in provenance.versions().items():
        print(f"{name:<10} {version}")
    print("precision ", "float64" if jax.config.read("jax_enable_x64") else "float32")
    print(f"memory     {provenance.memory_limit(devices[0]) / 2**30:.1f} GiB")
    print(f"kernels    on a CPU by {host.compiler() or 'nobody: there is no C compiler'}, on a GPU by {_nvrtc()}")
    print(f"compiled   {_keep_compiled() or 'not kept between commands'}")
    env = stochastic.bernoulli(np.linspace(0.9, 0.1, 10).tolist())
    policies = {"UCB1": stochastic.UCB1(), "Oracle": stochastic.Oracle.of}
    start = time.perf_counter()
    data = jaxroute.simulate(env, policies, horizon=5000, seeds=256, progress=False)
    alone = jaxroute.simulate(env, policies, horizon=5000, seeds=[7], progress=False)
    final = data["regret"].isel(time=-1).mean("seed")
    checks = {
        "the oracle has no regret": float(final.sel(policy="Oracle")) == 0.0,
        "UCB1's regret is what it was when this was written (294 to 306)": 294 < float(final.sel(policy="UCB1")) < 306,
        "seed 7 alone equals seed 7 in the batch": bool((data["regret"].sel(seed=7) == alone["regret"].sel(seed=7)).all()),
        "every run is valid": bool(data["valid"].all()),
    }
    for text, passed in checks.items():
        print(f"{'ok' if passed else 'FAILED':<10} {text}")
    lacking = ", ".join(compiling.dropped_options())
    slower = f"this XLA lacks {lacking}: simulations may take up to four times as long"
    print("options   ", slower if lacking else "this XLA has all that jaxroute compiles with")
    speed = data.attrs["decisions"] / data.attrs["run_s"] / 1e6
    print(f"speed      {speed:.1f} M decisions/s at 256 runs; self-check took {time.perf_counter() - start:.1f} s")
    return 0 if fits and all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
