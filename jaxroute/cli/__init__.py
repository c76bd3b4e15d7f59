"""The `jaxroute` command: its parser, and `main`, which calls the module of the chosen subcommand."""

import argparse
import contextlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from jaxroute import __version__
from jaxroute.cli import compare, completion, data, doctor, list, plot, run, store, tune
from jaxroute.cli.output import Output
from jaxroute.cli.parsing import Parser, add_messages

# Module and help of each command. The docstring of a module is the description; `add_options(parser)`, if any, adds options;
# `main(options, output)` runs the command and returns the exit status.
COMMANDS: dict[str, tuple[ModuleType, str]] = {
    "list": (list, "list problems, policies, experiments and data sets"),
    "run": (run, "run an experiment"),
    "data": (data, "describe a log and the potential gain of routing"),
    "compare": (compare, "find the cheapest way to reach a quality on your log"),
    "tune": (tune, "search the best hyperparameters of a policy"),
    "store": (store, "describe, verify, merge or export stored results"),
    "plot": (plot, "draw the figures of stored results"),
    "doctor": (doctor, "check the installation, the device and the kernels"),
    "completion": (completion, "print the script that completes commands in a shell"),
}
_RESUMABLE = ("run", "compare", "tune")
_TEXT = """Simulates online routing of queries to language models.

`jaxroute COMMAND --help` shows the options of a command; an argument @FILE stands for the options in a file.

Examples:
  jaxroute list
  jaxroute run staged/figure-2 --smoke
  jaxroute compare answers.csv --target-quality 0.7
"""


def make_parser() -> Parser:
    parser = Parser(prog="jaxroute", text=_TEXT, fromfile_prefix_chars="@")
    parser.add_argument("-V", "--version", action="version", version=f"jaxroute {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, text=module.__doc__)
        command.set_defaults(json=False, quiet=False, verbose=False)
        if hasattr(module, "add_options"):
            module.add_options(command)
        if name != "completion":
            add_messages(command, levels=name in (*_RESUMABLE, "store"))
    text = "print the help of a command"
    command = commands.add_parser("help", help=text, text="Prints the help of a command.\n\nExamples:\n  jaxroute help run")
    command.add_argument("topic", nargs="?", choices=commands.choices, metavar="COMMAND", help="name of a command")
    command.set_defaults(parsers=commands.choices)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line given by `arguments` (by default that of the process) and returns the exit status.

    It is 0 after success, 1 if a check fails, 2 after an error in the input, and 128 plus the number of a signal that ended the command.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = make_parser()
    completion.answer_shell(parser)
    options = parser.parse_args(arguments)
    options.arguments = arguments
    if options.command in (None, "help"):
        (options.parsers[options.topic] if options.command and options.topic else parser).print_help()
        return 0
    output = Output(json=options.json, quiet=options.quiet)
    try:
        with _environment(options):
            status = COMMANDS[options.command][0].main(options, output)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # The program that reads the output has ended, such as `head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        jax = sys.modules.get("jax")
        kinds = (ValueError, ImportError, OSError, MemoryError, *([jax.errors.JaxRuntimeError] if jax else []))
        if not isinstance(error, kinds):  # A defect of jaxroute itself.
            raise
        if options.verbose:
            traceback.print_exc()
        print(f"jaxroute: {_reason(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as end:
        again = "; the same command continues from the last finished block" if options.command in _RESUMABLE else ""
        with contextlib.suppress(OSError):  # The terminal may be closed.
            print(f"jaxroute: stopped{again}", file=sys.stderr)
        return 128 + int(end.args[0] if end.args else signal.SIGINT)


@contextlib.contextmanager
def _environment(options: argparse.Namespace) -> Iterator[None]:
    """Context manager in which a command runs: warnings take one line, SIGTERM and SIGHUP act as Ctrl-C, and --json keeps stdout for JSON."""

    def end(number: int, frame: Any) -> None:
        raise KeyboardInterrupt(number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    handlers = {}
    with contextlib.suppress(ValueError):  # Only the main thread may set handlers.
        handlers = {one: signal.signal(one, end) for one in numbers if signal.getsignal(one) != signal.SIG_IGN}
    before, warnings.formatwarning = warnings.formatwarning, _format_warning
    try:
        with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
            yield
    finally:
        warnings.formatwarning = before
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _reason(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError) and not text:
        text = "there is not enough memory: try fewer seeds (--seeds) or a shorter horizon (--horizon)"
    return "; ".join([" ".join(text.split()) or type(error).__name__, *getattr(error, "__notes__", ())])


def _format_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> str:
    kind = "" if issubclass(category, UserWarning) else f"{category.__name__}: "
    return f"jaxroute: {kind}{' '.join(str(message).split())}\n"
