"""Prints the script that lets a shell complete commands, options, names and files.

Needs argcomplete: pip install "jaxroute[completion]".

Examples:
  eval "$(jaxroute completion bash)"           # in ~/.bashrc
  eval "$(jaxroute completion zsh)"            # in ~/.zshrc, after compinit
  jaxroute completion fish | source            # in ~/.config/fish/config.fish
"""

import argparse
import os
from typing import Any

from jaxroute.cli.output import Output

SHELLS = ("bash", "zsh", "fish")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="your shell")


def main(options: argparse.Namespace, output: Output) -> int:
    output.lines(_argcomplete().shellcode(["jaxroute"], shell=options.shell))
    return 0


def answer_shell(parser: argparse.ArgumentParser) -> None:
    """Prints completions and ends the process if a shell has started this process to complete a command line; does nothing otherwise."""
    if "_ARGCOMPLETE" in os.environ:
        _argcomplete().autocomplete(parser, always_complete_options=False)


def problems(**_: Any) -> list[str]:
    from jaxroute.catalogue import catalogue

    return list(catalogue()["problems"])


def experiments(prefix: str = "", **_: Any) -> list[str]:
    """Returns completions of the argument EXPERIMENT: names of all experiments, and paths of Python files that begin with `prefix`."""
    from jaxroute.catalogue import catalogue

    return [*catalogue()["experiments"], *_argcomplete().FilesCompleter(("py",))(prefix)]


def completed(action: argparse.Action, completer: Any) -> None:
    """Sets how a shell completes the argument `action`: by `completer`, a list of texts or a function of the typed `prefix` that returns a list."""
    action.completer = completer if callable(completer) else lambda **_: completer  # type: ignore[attr-defined]


def _argcomplete() -> Any:
    try:
        import argcomplete
    except ImportError:
        raise ImportError('completion needs argcomplete: pip install "jaxroute[completion]"') from None
    return argcomplete
