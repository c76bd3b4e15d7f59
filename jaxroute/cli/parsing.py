"""Parser of the command line: no abbreviations, errors on one line with a suggestion, help with examples."""

import argparse
import difflib
import itertools
import re
import shlex
import textwrap
from collections.abc import Iterable
from typing import Any, NoReturn

from jaxroute.cli.output import text_width

REPEATED: dict[str, Any] = {"action": "append", "default": []}  # For an option that may be given several times.


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Returns "; did you mean ...?" with the two names that are most like a wrong one, or an empty text."""
    names = {name.lstrip("-"): name for name in known}  # Dashes make all options alike.
    close = [names[name] for name in difflib.get_close_matches(wrong.lstrip("-"), list(names), n=2)]
    return f"; did you mean {' or '.join(close)}?" if close else ""


class Parser(argparse.ArgumentParser):
    """Parser whose errors are one line each.

    Args:
      text: description, and examples below a line "Examples:".
      options: arguments of the base class.
    """

    def __init__(self, *, text: str, **options: Any) -> None:
        description, _, examples = text.partition("\n\nExamples:\n")
        super().__init__(
            description=textwrap.fill(" ".join(description.split()), text_width()),
            epilog=f"examples:\n{examples}",
            allow_abbrev=False,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=text_width()),
            **options,
        )

    def error(self, message: str) -> NoReturn:
        found = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        if found:
            message += suggestion(found[1], [choice.strip(" '") for choice in found[2].split(",")])
        self.exit(2, f"{self.prog}: {message} (see `{self.prog} --help`)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        if self._subparsers is None:  # Before argparse complains of what is missing because of a misspelling.
            before = itertools.takewhile(lambda text: text != "--", args)
            options = (text.partition("=")[0] for text in before if text.startswith("--") and " " not in text)
            if wrong := next((text for text in options if text not in self._option_string_actions), None):
                self.error(f"unrecognized argument: {wrong}{suggestion(wrong, self._option_string_actions)}")
        found, surplus = super().parse_known_args(args, namespace)
        if surplus:
            self.error(f"unrecognized arguments: {' '.join(surplus)}")
        return found, surplus

    def convert_arg_line_to_args(self, arg_line: str) -> list[str]:
        return shlex.split(arg_line, comments=True)


def add_messages(parser: argparse.ArgumentParser, *, levels: bool = True) -> None:
    """Adds the options that control what a command prints; `levels` adds --quiet and --verbose."""
    group = parser.add_argument_group("messages")
    group.add_argument("--json", action="store_true", help="print one JSON document on standard output, and nothing else")
    if levels:
        level = group.add_mutually_exclusive_group()
        level.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")
        level.add_argument("-v", "--verbose", action="store_true", help="print more details, and the traceback of an error")
