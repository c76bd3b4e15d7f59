"""Writes the files of a report. Everything is rendered before anything is written, and each file is written completely or not at all."""

import base64
import csv
import hashlib
import io
import json
import math
import os
import re
import warnings
from importlib import resources
from pathlib import Path
from typing import Any

from jaxroute.comparison.page import numbers, plain, strategies
from jaxroute.comparison.points import Summary

_PAIRS = ("quality", "cost", "calls", "latency", "late_quality", "late_cost", "saving")
_ERRORS = [name for pair in _PAIRS for name in (pair, f"{pair}_error")]
COLUMNS = ["strategy", "kind", "setting", *_ERRORS, "without", "meets", "answer", "needs", "shares", "further"]
# Control characters and surrogates (halves of characters), which neither HTML nor fonts can show.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def write(summary: Summary, folder: Path) -> list[Path]:
    """Writes the page of a comparison, its pictures and its numbers to `folder`, which is created if necessary. Returns the paths of the files.

    Nothing is written if rendering fails. The files are `summary.json`, `points.csv`, and with matplotlib and jinja2 `index.html`, `quality-cost.png`
    and `quality-cost.pdf`. Without these packages, older pages and pictures are removed, because they would show other numbers.
    """
    # JSON has no NaN and no infinity.
    text = json.dumps(_plain(summary), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    contents = {"summary.json": text.encode(), "points.csv": as_csv(summary).encode()}
    try:
        contents = rendered(summary) | contents
    except ImportError as error:
        warnings.warn(f'no page and no pictures: pip install "jaxroute[plot]" ({error})', stacklevel=2)
        for name in ("index.html", "quality-cost.png", "quality-cost.pdf"):
            (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    return [put(folder / name, content) for name, content in contents.items()]


def rendered(summary: Summary) -> dict[str, bytes]:
    """Returns the content of the page and of its main picture by file name. Raises ImportError without matplotlib or jinja2."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup, escape

    from jaxroute.comparison.page import pictures

    def breakable(text: str) -> Markup:
        """Returns a text as HTML in which a browser may break words after every 22 letters, so that they do not widen a table."""
        return Markup(str(escape(re.sub(r"(\S{22})(?=\S)", "\\1\0", text))).replace("\0", "<wbr>"))

    def digest(text: str) -> str:
        return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

    def read(name: str) -> Markup:
        return Markup(resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8"))

    palettes = (pictures.LIGHT, pictures.DARK)
    light, dark = (";".join(f"--{name}:{colour}" for name, colour in colours.items()) for colours in palettes)
    style = Markup(f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}") + read("page.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    shown = (
        numbers.measured,
        numbers.percent,
        numbers.plain,
        numbers.portions,
        numbers.share,
        numbers.count,
        numbers.within,
    )
    functions = (*shown, pictures.svg, pictures.symbol, breakable, digest)
    environment.filters |= {function.__name__: function for function in functions}
    summary = _plain(summary)
    looks, costs = pictures.looks_of(summary), {model["name"]: model["cost"] for model in summary["data"]["models"]}
    wide = pictures.quality_cost(summary, looks)
    modules = {"strategies": strategies, "plain": plain, "pictures": pictures}
    values = {"summary": summary, "costs": costs, "looks": looks, "grey": pictures.Look(), "wide": wide}
    page = environment.from_string(read("page.html")).render(modules, **values, style=style, script=read("page.js"))
    return {"index.html": page.encode(), **{f"quality-cost.{end}": content for end, content in pictures.files(wide).items()}}


def as_csv(summary: Summary) -> str:
    """Returns all points as CSV, one a line, from the cheapest to the most expensive; unknown values are empty."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    for p in strategies.by_cost(_plain(summary["points"])):
        pairs = [number for name in _PAIRS for number in p[name] or (None, None)]
        flags = [str(p["meets"]).lower(), str(p["answer"]).lower()]
        shares = "; ".join(f"{name}={share:.4g}" for name, share in p["shares"].items())
        texts = ["; ".join(p["needs"]), shares, p["further"]]
        lines.writerow([p["strategy"], p["kind"], p["setting"], *pairs, p["without"] or "", *flags, *texts])
    return text.getvalue()


def _plain(value: Any) -> Any:
    """Converts nested values to plain Python: NaN and infinity become None, and unprintable characters the replacement character."""
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, str):
        return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value)
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def put(path: Path, content: bytes) -> Path:
    """Writes a file completely or not at all: under a temporary name, which is replaced by `path` at the end. Returns the path."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
