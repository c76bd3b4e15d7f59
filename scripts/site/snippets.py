"""The code of README and pages, as the tests run it.

Python blocks of a page run in order and share their names. Commands are parsed, and run if marked so. Invisible comments before a block
specify exceptions, one per line:

    <!-- snippet: slow -->                               in the slow tier, with all blocks before it
    <!-- snippet: not run: needs a GPU -->               with the reason; it must still be Python, or a command that can be parsed
    <!-- snippet: seeds=1024 => seeds=8 -->              replacement in the tests; the page shows the original
    <!-- snippet: raises -->                             the next text block is the beginning of the error, up to "..." if it has that
    <!-- snippet: warns -->                              the same for a warning
    <!-- snippet: file mine.py -->                       the block is also a file of that name, for later commands
    <!-- snippet: run -->                                run the commands, in the folder of the page's test
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(`{3,})(\{?[\w-]*)")
_OPTION = re.compile(r"^<!-- snippet: (.*) -->$")


@dataclass(frozen=True)
class Snippet:
    """A block of code.

    Attributes:
      page: file of the page.
      line: number of its first line.
      language: `python`, `bash`, `text` or another.
      shown: text on the page.
      options: texts of its comments.
      after: the text block that follows it, if the next block is one.
    """

    page: Path
    line: int
    language: str
    shown: str
    options: tuple[str, ...]
    after: str = ""

    @property
    def reason(self) -> str | None:
        """Reason why the block is not run; None if it is."""
        return next((o.partition(":")[2].strip() for o in self.options if o.startswith("not run")), None)

    @property
    def file(self) -> str | None:
        """Name of the file with the block, if it is one."""
        return next((o.removeprefix("file ") for o in self.options if o.startswith("file ")), None)

    @property
    def small(self) -> str:
        """Text that the tests run.

        Raises:
          ValueError: the block does not have the text that a comment replaces.
        """
        text = self.shown
        for old, new in (o.split(" => ") for o in self.options if " => " in o):
            if old not in text:
                raise ValueError(f"{self.page.name}, line {self.line}: the comment replaces {old!r}, which the block lacks")
            text = text.replace(old, new)
        return text

    @property
    def code(self) -> object:
        """The compiled block, whose errors name page and line."""
        return compile("\n" * (self.line - 1) + self.small, str(self.page), "exec")

    @property
    def commands(self) -> list[list[str]]:
        """Words of each command of a bash block, without comments, leading variables and pipes."""
        found = []
        for line in self.small.replace("\\\n", " ").splitlines():
            reader = shlex.shlex(line, posix=True, punctuation_chars=";&|")
            reader.whitespace_split = True
            words: list[str] = []
            piped = False
            for word in [*reader, ";"]:
                if set(word) <= set(";&|"):
                    if words and not piped:
                        found.append(words)
                    words, piped = [], word == "|"
                elif words or not re.fullmatch(r"\w+=.*", word):
                    words.append(word)
        return found


def snippets(page: Path) -> list[Snippet]:
    """Reads the blocks of a page, in order.

    Raises:
      ValueError: an option that is not one, or a block without an end.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[Snippet] = []
    options: list[str] = []
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        number += 1
        if option := _OPTION.match(line):
            options.append(option.group(1))
        elif begins := _FENCE.match(line):
            fence, language = begins.groups()
            inside, first = [], number + 1
            indent = len(lines[number - 1]) - len(lines[number - 1].lstrip())
            while number < len(lines) and lines[number].strip() != fence:
                inside.append(lines[number][indent:])
                number += 1
            if number == len(lines):
                raise ValueError(f"{page.name}, line {first - 1}: the block does not end")
            number += 1
            if language.startswith("{"):  # A directive, such as a table of contents.
                continue
            for one in options:
                known = one in ("slow", "raises", "warns", "run") or one.startswith(("not run: ", "file "))
                if not known and " => " not in one:
                    raise ValueError(f"{page.name}, line {first - 1}: no option of a snippet: {one!r}")
            if language in ("", "text") and found and not found[-1].after:
                found[-1] = Snippet(**{**vars(found[-1]), "after": "\n".join(inside)})
            elif language not in ("", "text"):
                found.append(Snippet(page, first, language, "\n".join(inside), tuple(options)))
            options = []
        elif options and line and not (line.startswith("<!--") and line.endswith("-->")):
            raise ValueError(f"{page.name}, line {number}: a snippet's comment must stand before a block")
    return found


def pages(root: Path) -> list[Path]:
    """Returns README, CONTRIBUTING and the written pages of the site."""
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "notebooks" / "site").rglob("*.md"))]
