"""Parses the command line: no abbreviated options, errors on one line with a suggestion, help with examples; and reads the values of options."""

import argparse
import difflib
import itertools
import math
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from jaxroute.cli.output import text_width

REPEATED: dict[str, Any] = {"action": "append", "default": []}  # For an option that may be given several times.


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Returns a text such as "; did you mean --seeds?" with at most two names that resemble a wrong one; empty if none does."""
    names = {name.lstrip("-"): name for name in known}  # Dashes would make all options similar.
    close = [names[name] for name in difflib.get_close_matches(wrong.lstrip("-"), list(names), n=2)]
    return f"; did you mean {' or '.join(close)}?" if close else ""


class Parser(argparse.ArgumentParser):
    """Parser whose errors take one line. `text` has a description and examples below a line "Examples:"; `options` go to `ArgumentParser`."""

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
        if self._subparsers is None:  # Before argparse complains about arguments that are missing because of a misspelling.
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
    """Adds the option --json to a parser; `levels` adds --quiet and --verbose, too."""
    group = parser.add_argument_group("messages")
    group.add_argument("--json", action="store_true", help="print one JSON document on standard output, and nothing else")
    if levels:
        level = group.add_mutually_exclusive_group()
        level.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")
        level.add_argument("-v", "--verbose", action="store_true", help="print more details, and the traceback of an error")


def whole(text: str, *, least: int = 1, most: float = math.inf) -> int:
    """Parses a whole number from `least` to `most`, also in the forms 1e3, 1_000 and 1,000."""
    plain = text.replace("_", "").replace(",", "")
    try:
        value = int(plain) if plain.lstrip("+-").isdecimal() else float(plain)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value != int(value):
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    if value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, got {int(value)}")
    if value > most:
        raise argparse.ArgumentTypeError(f"must be at most {most:,}, got {int(value):,}")
    return int(value)


horizon = partial(whole, most=2**31 - 1)
root_seed = partial(whole, least=0, most=2**32 - 1)
orders = partial(whole, least=4)


def seeds(text: str) -> int | range:
    """Parses a number of seeds, or a range "A:B" of the seeds A to B - 1."""
    first, colon, stop = text.partition(":")
    if not colon:
        return whole(text, most=2**32)
    begin, end = whole(first, least=0), whole(stop, most=2**32)
    if begin >= end:
        raise argparse.ArgumentTypeError(f"must be A:B with A below B, got {text!r}")
    return range(begin, end)


def number(text: str, *, least: float = -math.inf, most: float = math.inf) -> float:
    """Parses a finite number from `least` to `most`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"must be from {least:g} to {most:g}, got {text}")
    return value


share = partial(number, least=0.0, most=0.5)


def quality(text: str) -> float:
    """Parses a mean score above 0 and below 1. Raises `ArgumentTypeError` for other texts; for a percentage, it suggests the share."""
    value = number(text.removesuffix("%"))
    if text.endswith("%") or not 0.0 < value < 1.0:
        hint = f"; for {value:g} % give {value / 100:g}" if (value > 1.0 or text.endswith("%")) and value < 100.0 else ""
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1, got {text}{hint}")
    return value


def positive(text: str) -> float:
    value = number(text)
    if value <= 0.0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def path(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("must be a path, got an empty text")
    return Path(text)


def folder_or_url(text: str) -> Path | str:
    from jaxroute.store.places import is_url

    return text if is_url(text) else path(text)


def folder(text: str) -> Path:
    if not isinstance(found := folder_or_url(text), Path):
        raise argparse.ArgumentTypeError(f"must be a folder on disk, where figures and summary.json go, got {text!r}")
    return found


def log_file(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError(f"must be a file, got the address {text!r}: download it first")
    return path(text)


def pairs(
    option: str, form: str, texts: Sequence[str], read: Callable[[str], Any], *, last: bool = False, empty: bool = False
) -> dict[str, Any]:
    """Converts the texts of a repeated option, such as `["a=1", "b=2"]`, to a dict such as `{"a": 1, "b": 2}`.

    Args:
      option, form: name of the option and form of its texts, for errors.
      texts: texts that the user gave.
      read: function that converts a value; its `ArgumentTypeError` explains what is wrong with the value.
      last: whether to split at the last equals sign, because names may contain one.
      empty: whether values may be empty.

    Raises:
      ValueError: a text has another form, or a name is given twice.
    """
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in (text.rpartition("=") if last else text.partition("=")))
        if name and name in found:
            raise ValueError(f"{option} {name} must be given once, got {given[name]} and {value}")
        try:
            if not (equals and name and (value or empty)):
                raise ValueError
            found[name], given[name] = read(value), value
        except (ValueError, argparse.ArgumentTypeError) as error:
            reason = f"; {error}" if isinstance(error, argparse.ArgumentTypeError) else ""
            raise ValueError(f"{option} must have the form {form}, got {text!r}{reason}") from None
    return found
