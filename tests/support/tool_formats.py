"""Small files in the formats of tools that log answers of models, and what a reader must find in each.

The files are in the folder `tool_formats`, and their truth is in `tool_formats.json`. The questions, answers, scores, prices and times are
invented; the names of fields and their nesting are those of the samples that `source` names.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).with_suffix("")


@dataclass(frozen=True)
class Format:
    """A format and the truth of its files."""

    name: str
    path: str  # File or folder that is read, below the folder of the format.
    source: str  # Where samples of the format are.
    truth: dict  # (score, USD, seconds) by (query, model); None for what neither the file nor `prices` gives.
    refused: str | None = None  # Reason why the file allows no comparison.
    prices: dict | None = None  # USD for a million tokens read and written, where the file has no costs.
    texts: bool = (
        False  # Whether costs come from characters; how parts of a prompt are joined changes them by less than 2 %.
    )
    logged: bool = False  # Whether one model answered each query, from which no comparison follows.

    def write(self, folder: Path) -> Path:
        """Copies the files to a folder, and returns the path that is read."""
        source = HOME / self.name.replace(" ", "_")
        for file in filter(Path.is_file, source.rglob("*")):
            copy = folder / str(file.relative_to(source)).replace("%3A", ":")  # Not every system has colons in names.
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        return folder / self.path


def _format(truth, **about):
    return Format(truth={(query, model): tuple(values) for query, model, *values in truth}, **about)


FORMATS = [_format(**entry) for entry in json.loads(HOME.with_suffix(".json").read_text("utf-8"))]
