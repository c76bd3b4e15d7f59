"""Completion of commands, names and files in a shell, by argcomplete where it is installed."""

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

SHELLS = ("bash", "zsh", "fish")
_HOW = {
    "bash": '# in ~/.bashrc: eval "$(jaxroute completion bash)"',
    "zsh": '# in ~/.zshrc, after compinit: eval "$(jaxroute completion zsh)"',
    "fish": "# in ~/.config/fish/config.fish: jaxroute completion fish | source",
}


def script(shell: str) -> str:
    """What a shell has to read so that it completes the command.

    Raises:
      ImportError: argcomplete is not installed.
    """
    return f"{_HOW[shell]}\n{_argcomplete().shellcode(['jaxroute'], shell=shell)}"


def complete(parser: argparse.ArgumentParser) -> None:
    """Answers the shell and ends the process, if it is a shell that asks; otherwise nothing."""
    if "_ARGCOMPLETE" in os.environ:
        _argcomplete().autocomplete(parser, always_complete_options=False)


def _argcomplete() -> Any:
    try:
        import argcomplete
    except ImportError:
        raise ImportError('completion needs argcomplete: pip install "jaxroute[completion]"') from None
    return argcomplete


def problems(**_: Any) -> list[str]:
    """Names of the problems."""
    from jaxroute.catalogue import catalogue

    return list(catalogue()["problems"])


def experiments(prefix: str = "", **_: Any) -> list[str]:
    """Names of the experiments, and Python files."""
    from jaxroute.catalogue import catalogue

    return [*catalogue()["experiments"], *files(".py")(prefix)]


def choices(*texts: str) -> Callable[..., list[str]]:
    """These texts."""
    return lambda **_: list(texts)


def files(*endings: str) -> Callable[..., Sequence[str]]:
    """Files with one of some endings, and folders."""

    def find(prefix: str = "", **_: Any) -> list[str]:
        folder, slash, start = prefix.rpartition(os.sep)
        place = folder + slash
        try:
            with os.scandir(place or ".") as entries:
                found = [(entry.name, entry.is_dir()) for entry in entries]
        except OSError:
            return []
        shown = [
            (name, is_folder) for name, is_folder in found if name.startswith(start) and (start or not name.startswith("."))
        ]
        return [f"{place}{n}{os.sep * d}" for n, d in shown if d or not endings or n.lower().endswith(endings)]

    return find


def completed(action: argparse.Action, completer: Callable[..., Sequence[str]]) -> argparse.Action:
    """An argument that is completed by a function."""
    action.completer = completer  # type: ignore[attr-defined]
    return action
