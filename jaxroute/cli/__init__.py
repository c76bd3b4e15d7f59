"""The `jaxroute` command: `main`, and what each of its commands does."""

import contextlib
import importlib.util
import inspect
import json
import os
import runpy
import shlex
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxroute.cli import completion, terminal
from jaxroute.cli.parser import parser, refuse


class _Ended(KeyboardInterrupt):
    """A signal that ends the command as Ctrl-C does: what a scheduler sends, or a terminal that goes away."""


def _end(number: int, frame: Any) -> None:
    del frame
    raise _Ended(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, 2 after an error in the input, 128 and the number of a signal that ended it."""
    made = parser()
    completion.complete(made)
    options, rest = made.parse_known_args(arguments)
    if rest and options.command != "bench":
        refuse(made, options.command, rest)
    options.rest = rest
    options.given = list(sys.argv[1:] if arguments is None else arguments)
    before, warnings.formatwarning = warnings.formatwarning, _warning
    handlers = _end_by_signals()
    try:
        status = _COMMANDS[options.command](options)
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

        kinds += (jax.errors.JaxRuntimeError,)
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


def _reading(options) -> dict[str, Any]:
    """The arguments of `read_log` that the options of `_add_log_options` name, without the file.

    What is wrong in them is told before anything is imported that takes seconds.
    """
    if options.costs and options.prices:
        raise ValueError(
            f"--cost and --price mean the same, a price being per million tokens: give one of them, got --cost {options.costs[0]} and "
            f"--price {options.prices[0]}"
        )
    if options.price_file and (options.costs or options.prices):
        raise ValueError(f"--prices {options.price_file} must be given alone, without --price and --cost")
    return {
        "columns": _named("--column", "ROLE=NAME", options.columns, str) or {},
        "where": _named("--where", "COLUMN=VALUE", options.where, str),
        "units": _named("--unit", "ROLE=UNIT", options.units, str),
        "costs": _named("--cost", "MODEL=VALUE", options.costs, _cost),
        "prices": options.price_file or _named("--price", "MODEL=IN:OUT", options.prices, _price),
        "cost_unit": options.cost_unit,
        "models": None if options.models is None else [name.strip() for name in options.models.split(",") if name.strip()],
        "missing": options.missing,
        "scale": None if options.scale is None else _scale(options.scale),
        "separator": options.separator,
        "encoding": options.encoding,
        "features": options.features,
    }


def _files(options) -> Any:
    """The file, or the list of several."""
    return options.file[0] if len(options.file) == 1 else options.file


def _named(option: str, form: str, texts: Sequence[str], read: Callable[[str], Any]) -> dict[str, Any] | None:
    """`["a=1", "b=2"]` by name; None without any. A name may hold `=`."""
    found: dict[str, Any] = {}
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=") if option in ("--price", "--cost") else text.partition("=")
        name = name.strip()
        parsed, reason = None, ""
        if equals and name and (value.strip() or option == "--column"):
            try:
                parsed = read(value.strip())
            except _Wrong as error:
                reason = f"; {error}".replace("NAME", name)
            except ValueError:
                pass
        if parsed is None:
            raise ValueError(f"{option} must have the form {form}, got {text!r}{reason}")
        if name in found:
            raise ValueError(f"{option} {name} must be given once, got {values[name]} and {value}")
        found[name], values[name] = parsed, value
    return found or None


class _Wrong(ValueError):
    """What is wrong with a value, in words; NAME stands for what it was given to."""


def _cost(text: str) -> float:
    value = float(text)
    if not 0.0 <= value < float("inf"):
        raise _Wrong("a cost is a number of at least 0")
    return value


def _price(text: str) -> tuple[float, ...]:
    """USD per million input and output tokens, and of cached input."""
    parts = text.split(":")
    if len(parts) < 2 or not parts[1].strip():
        _cost(parts[0])
        raise _Wrong(
            f"OUT is missing, the USD per million output tokens: NAME={parts[0]}:{parts[0]} if they cost what input tokens do; a cost per query is --cost NAME=VALUE"
        )
    if not parts[0].strip():
        raise _Wrong("IN is missing, the USD per million input tokens, which may be 0")
    if len(parts) > 3:
        raise _Wrong("a price is IN:OUT or IN:OUT:CACHED")
    try:
        return tuple(_cost(part) for part in parts)
    except _Wrong:
        raise _Wrong("prices are numbers of at least 0") from None


def _scale(text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    try:
        if colon and float(low) < float(high):
            return float(low), float(high)
    except ValueError:
        pass
    raise ValueError(f"--scale must have the form LOW:HIGH, such as 0:10, got {text!r}")


def _data(options) -> int:
    reading = _reading(options)
    from jaxroute.data import describe, read_log

    description = describe(read_log(_files(options), **reading))
    print(json.dumps(description.as_dict(), indent=2) if options.json else "\n".join(description.lines(terminal.width())))
    return 0


def _stem(file: Path) -> str:
    """The name of a log without its endings, of which a compressed one has two."""
    packed = file.suffix.lower() in (".gz", ".bz2", ".xz", ".zst", ".zip")
    return Path(file.stem).stem if packed else file.stem


def _compare(options) -> int:
    start = time.perf_counter()
    reading = _reading(options)
    from jaxroute.data import read_log  # Before the rest of it, which takes seconds: what was read is told at once.

    log = read_log(_files(options), **reading)
    print("\n".join(["Read", *(terminal.wrapped("  ", line, 6) for line in log.read)]), flush=True)

    from jaxroute.comparison import compare
    from jaxroute.engine.waiting import Lines

    name = options.file[0].resolve().name + (f" and {len(options.file) - 1} more" if len(options.file) > 1 else "")
    out = options.out or Path(f"report-{_stem(options.file[0].resolve())}")
    _keep_compiled()
    found = compare(
        log,
        target_quality=options.target_quality,
        out=out,
        name=name,
        minutes=options.minutes,
        orders=options.orders,
        warm=options.warm_start,
        command=shlex.join(["jaxroute", *options.given]),
        progress=sys.stderr.isatty(),
        begun=_begun,
        callback=None if sys.stderr.isatty() else Lines().say,
    )
    first, *besides = found.sentences
    said = [first, *([" ".join(besides)] if besides else [])]
    print("".join(f"\n{terminal.wrapped('', text, 0)}\n" for text in said) + f"\n{found.table(terminal.columns())}\n")
    print(f"{found.shares(terminal.columns())}\n")
    words, code = found.to_route(str(out / "choice.npz"))
    print(
        "\n".join(
            [
                terminal.wrapped("To route a new query: ", words, 2),
                *(f"    {line}".rstrip() for line in code.splitlines()),
                "",
            ]
        )
    )
    page = out / "index.html"  # Missing without the extra `plot`.
    print(f"{time.perf_counter() - start:.0f} s; {f'{page} is the page' if page.exists() else f'{out} has the numbers'}")
    return 0


def _begun(lines: Sequence[str]) -> None:
    """What a comparison is about to do."""
    first, *ways, last = lines
    shown = [
        terminal.wrapped("", first, 0),
        *(terminal.wrapped("  ", way, 6) for way in ways),
        terminal.wrapped("", last, 0),
    ]
    print("\n" + "\n".join(shown), flush=True)


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
        print("\n" + terminal.wrapped(f"  {name}: ", problem["title"]))
        print(terminal.wrapped("    environments: ", ", ".join(problem["environments"])))
        print(terminal.wrapped("    policies: ", ", ".join(problem["policies"])))
    print("\nExperiments\n")
    width = max(map(len, everything["experiments"]))
    for name, experiment in everything["experiments"].items():
        size = f"{experiment['seeds']:,} seeds x {experiment['horizon']:,} rounds"
        print(terminal.wrapped(f"  {name:<{width}}  ", f"{experiment['title']} ({size})", width + 4))
    if not everything["data_sets"]:
        return 0
    print("\nData sets\n")
    width = max(map(len, everything["data_sets"]))
    for name, data in everything["data_sets"].items():
        print(terminal.wrapped(f"  {name:<{width}}  ", f"{data['kind']}: {data['description']}", width + 4))
    return 0


def _experiment(name: str) -> Any:
    """An experiment by name, or from a Python file; FILE.py:NAME chooses one of several."""
    from jaxroute.catalogue import catalogue
    from jaxroute.core import checks
    from jaxroute.experiments import EXPERIMENTS, Experiment

    file, separator, chosen = name.partition(".py:")
    if separator or name.endswith(".py"):
        file = file + ".py" if separator else name
        if not Path(file).is_file():
            raise ValueError(f"experiment must be a name or an existing file, got {name!r}")
        defined = _executed(file)
        found = defined.get("EXPERIMENTS", [defined.get("experiment")])
        for one in found:
            if not isinstance(one, Experiment):
                raise ValueError(
                    f"{file} must define `experiment = jaxroute.experiments.Experiment(...)`, or a list `EXPERIMENTS` of them, "
                    f"got {checks.show(one)}"
                )
        by_name = {one.name.rpartition("/")[2]: one for one in found}
        if not chosen and len(by_name) > 1:
            raise ValueError(f"{file} has several experiments: choose one by {file}:NAME, NAME being {', '.join(by_name)}")
        one = by_name[checks.one_of(f"experiment of {file}", chosen, by_name)] if chosen else found[0]
        try:
            _check_experiment(one)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        return one
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
        from jaxroute import kernels

        folder = kernels.cache_folder().with_name("compiled")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            return None
        jax.config.update("jax_compilation_cache_dir", str(folder))
        # All of them: dozens that take 20 ms each, and those that are compiled briefly, are a second or two of a command.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return jax.config.jax_compilation_cache_dir


def _compile(options: Any, devices: Sequence[Any] | None) -> str:
    """Returns how a simulation is compiled: soon, for a small run on a CPU."""
    import jax

    platform = devices[0].platform if devices else jax.default_backend()
    return "quick" if options.smoke and options.backend == "auto" and platform == "cpu" else "full"


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

    if options.x64:
        jax.config.update("jax_enable_x64", True)  # Before anything is computed, also by an import.

    from jaxroute import Execution, experiments
    from jaxroute.experiments.base import on_table

    devices = _devices(options.devices)
    _keep_compiled()
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
    print(terminal.wrapped(f"{experiment.name}: ", on_table(experiment.title, experiment.table(changes)), 2))
    if experiment.stands_in(changes):
        print(_stand_in(options.experiment), flush=True)
    if options.share is None and int(os.environ.get("SLURM_ARRAY_TASK_COUNT", 1)) > 1:
        print(
            "jaxroute: this is a task of an array, and there is no --share: each of its tasks simulates all", file=sys.stderr
        )
    execution = Execution(options.backend, devices, share=options.share, compile=_compile(options, devices))
    start = time.perf_counter()
    try:
        summary = experiments.run(
            experiment,
            out,
            seeds=seeds,
            horizon=horizon,
            changes=changes,
            root_seed=options.root_seed,
            store=options.store,
            execution=execution,
            keep=options.keep,
            until_stderr=goals,
            figures=figures,
            keep_states=options.keep_states,
            accept_changed_code=options.accept_changed_code,
        )
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ValueError(_with_setting(error, experiment)) from error
    if "missing" in summary:
        shared = "join" if isinstance(execution.share, str) else "{} of {}".format(*execution.share or (0, 1))
        last = "the last process to end writes figures and summary.json, and so does"
        again = f"jaxroute plot {shlex.quote(str(out))}" + (
            f" --store {shlex.quote(options.store)}" if options.store else ""
        )
        print(
            terminal.wrapped("", f"This share ({shared}) is done. Of the whole, {summary['missing']}; {last} `{again}`.", 0)
        )
        return 0
    print(_report(experiment, summary, changes, out, time.perf_counter() - start))
    if experiment.stands_in(changes):
        print(_stand_in(options.experiment))
    return 0


def _stand_in(name: str) -> str:
    """That generated queries are played, and how to play one's own."""
    text = (
        "no --data was given, so generated queries are played: the numbers say nothing about your models. "
        f"`jaxroute run {name} --data FILE` plays your table; `jaxroute data FILE` shows how a file is read."
    )
    return terminal.wrapped("Stand-in: ", text, 2).replace("Stand-in", terminal.coloured("Stand-in", "yellow"), 1)


def _tune(options) -> int:
    from jaxroute.experiments import tuning
    from jaxroute.experiments.base import on_table

    _keep_compiled()
    experiment = _experiment(options.experiment)
    figures = not options.no_figures
    if figures and importlib.util.find_spec("matplotlib") is None:
        figures = False
        print('jaxroute: no picture is drawn: it needs matplotlib, pip install "jaxroute[plot]"', file=sys.stderr)
    name = Path(experiment.name).stem if options.experiment.endswith(".py") else experiment.name
    out = options.out or Path("results") / f"tune-{name.replace('/', '-')}"
    parameters = tuning.scales(options.parameters)
    print(terminal.wrapped(f"{experiment.name}: ", on_table(experiment.title, experiment.table({})), 2))
    start = time.perf_counter()
    found = tuning.search(
        experiment,
        parameters,
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
        root_seed=options.root_seed,
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


_ROWS = 120  # Of a table in the terminal.


def _report(experiment, summary: dict[str, Any], changes: dict[str, Any], out: Path, elapsed: float) -> str:
    """What the terminal shows after a run: metrics, claims, and where the files are."""
    from jaxroute import metrics
    from jaxroute.experiments.base import folder_of
    from jaxroute.store import results

    lines = []
    cases = experiment.cases
    for case in cases:
        data = results.load(folder_of(summary.get("store", out), case, cases))
        lines += [
            "",
            *([f"{case.name}, {int(data['time'][-1]):,} rounds:"] if len(cases) > 1 else []),
            metrics.table(data, width=terminal.columns(), max_rows=_ROWS),
        ]
    departures = experiment.departures(summary["horizon"], changes)
    if summary["claims"] and departures:
        lines += [
            "",
            terminal.wrapped(
                "", f"The claims are not judged: the run differs from what they are about ({departures}).", 0
            ).replace("not judged", terminal.coloured("not judged", "yellow"), 1),
        ]
    elif summary["claims"]:
        lines += ["", "Claims", *_claims(summary["claims"], summary["seeds"])]
    if experiment.notes:
        lines += ["", terminal.wrapped("Note: ", experiment.notes, 0)]
    speed = f", {summary['decisions_per_s'] / 1e6:.2f} M decisions/s" if summary["decisions_per_s"] else ""
    now = summary["last_call"]
    if now["decisions"]:
        seconds = f"{now['compile_s']:.1f} s compiling, {now['run_s']:.1f} s running, {elapsed:.1f} s in all"
    else:
        before = f"{summary['compile_s']:.1f} s compiling and {summary['run_s']:.1f} s running before"
        seconds = f"nothing was left to play, {elapsed:.1f} s in all; {before}"
    written = ["store", *(f"{name}.png" for name in experiment.figures if (out / f"{name}.png").exists()), "summary.json"]
    lines += [
        "",
        *(
            terminal.wrapped("", f"{a}: {b}", 2)
            for a, b in ((summary["device"], f"{seconds}{speed}"), (f"{out}{os.sep}", ", ".join(written)))
        ),
    ]
    return "\n".join(lines)


def _claims(claims: Sequence[dict[str, Any]], seeds: int) -> list[str]:
    lines = []
    for claim in claims:
        verdict = claim["verdict"]
        text = terminal.wrapped(f"  {verdict:<12} ", f"{claim['text']} [{claim['source']}]", 15)
        colour = {"holds": "green", "refuted": "red"}.get(verdict, "yellow")
        lines.append(text.replace(verdict, terminal.coloured(verdict, colour), 1))
        lines.append(
            terminal.wrapped(" " * 15, f"measured in {claim.get('runs') or seeds:,g} runs: {claim['measured']}", 17)
        )
    return lines


def _store(options) -> int:
    from jaxroute.cli import stores

    return stores.main(options)


def _plot(options) -> int:
    from jaxroute import experiments
    from jaxroute.cli import stores

    summary, known = options.folder / "summary.json", {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(summary.read_text())
    store = options.store or known.get("store")
    name = known.get("experiment") or stores.experiment_of(store or options.folder)
    if options.experiment is None and name not in experiments.EXPERIMENTS:
        raise ValueError(
            f"{name!r} is an experiment of your own: name its file too, `jaxroute plot {options.folder} FILE.py`"
        )
    experiment = _experiment(options.experiment or name)
    if experiment.name != name:
        raise ValueError(f"experiment must be that of the run, {name!r}, got {experiment.name!r}")
    experiments.finish(experiment, options.folder, store)
    for file in (*(options.folder / f"{one}.png" for one in experiment.figures), summary):
        if file.exists():
            print(file)
    return 0


def _bench(options) -> int:
    script = Path(__file__).resolve().parents[2] / "scripts" / "bench.py"
    if not script.is_file():
        raise ValueError("the benchmark needs a checkout of the sources: scripts/bench.py is not part of an installation")
    sys.path.insert(0, str(script.parent))
    return runpy.run_path(str(script))["main"](options.rest)


def _kernels() -> bool:
    """Tries a kernel on the CPU, and on a GPU if there is a driver; prints what it finds, and returns whether nothing is broken."""
    import jax

    from jaxroute import kernels

    def fine(device: str, by: str | None, reason: str | None) -> bool:
        level = "FAILED" if by else "note"  # The scan needs no compiler.
        print(f"{level:<10} no kernel on this {device}: {reason}" if reason else f"kernels    on this {device} by {by}")
        return not (by and reason)

    on_cpu = fine("CPU", kernels.compiler(wide=True), kernels.trial("cpu"))
    if jax.default_backend() != "gpu":
        print("kernels    not on a GPU: jax uses none")
        return on_cpu
    reason = kernels.trial("gpu")
    return fine("GPU", "NVRTC" if reason else f"NVRTC {kernels.nvrtc_version()}", reason) and on_cpu


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
    from jaxroute import kernels
    from jaxroute.core import provenance
    from jaxroute.engine import compiling
    from jaxroute.problems import stochastic

    devices = jax.local_devices()
    print(f"device     {provenance.device_name(devices)} (platform {devices[0].platform})")
    for name, version in provenance.versions().items():
        print(f"{name:<10} {version}")
    print("precision ", "float64" if jax.config.read("jax_enable_x64") else "float32")
    print(f"memory     {provenance.memory_limit(devices[0]) / 2**30:.1f} GiB")
    fits = _kernels() and fits
    warnings.filterwarnings("ignore", "no kernel can be used here")  # That has been printed.
    remedy = f": {kernels.cache_folder().parent} cannot be written; set XDG_CACHE_HOME to another folder"
    unstored = f"is not stored between commands{remedy if jax.config.jax_enable_compilation_cache else ''}"
    print(f"compiled   {_keep_compiled() or unstored}")
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


def _completion(options) -> int:
    print(completion.script(options.shell))
    return 0


# What does each command; the parser knows their names.
_COMMANDS: dict[str, Callable[[Any], int]] = {
    "list": _list,
    "run": _run,
    "data": _data,
    "compare": _compare,
    "tune": _tune,
    "store": _store,
    "plot": _plot,
    "bench": _bench,
    "doctor": _doctor,
    "completion": _completion,
}
