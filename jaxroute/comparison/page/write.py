"""Writing a report: everything is rendered before anything is written, and each file appears whole or not at all."""

import base64
import csv
import hashlib
import io
import json
import math
import os
from importlib import resources
from pathlib import Path
from typing import Any

from jaxroute.comparison.page import looks, mpl, picture, sections, svg, ways
from jaxroute.comparison.page.html import Markup, element
from jaxroute.comparison.summary import Pair, Summary

_PAIRS = ("quality", "cost", "calls", "latency", "late_quality", "late_cost", "saving")
COLUMNS = (
    "approach",
    "kind",
    "setting",
    *(c for p in _PAIRS for c in (p, f"{p}_error")),
    "without",
    "meets",
    "answer",
    "needs",
    "shares",
    "further",
)


def write(summary: Summary, folder: Path) -> list[Path]:
    """Writes the page of a comparison and its numbers.

    Nothing is written if rendering fails: what the folder held before stays. Without matplotlib the two pictures are left out, and older
    ones, which would show something else than the page, are removed.

    Args:
      summary: all that the page shows.
      folder: where to; it is made if it is not there.

    Returns:
      the files: `index.html`, `summary.json`, `points.csv`, and `quality-cost.png` and `quality-cost.pdf` if there is matplotlib.
    """
    folder = Path(folder)
    drawn = mpl.files(picture.draw(summary))
    contents = {
        "index.html": page(summary).encode("utf-8", "replace"),
        "summary.json": as_json(summary).encode("utf-8", "replace"),
        "points.csv": as_csv(summary).encode("utf-8", "replace"),
        **{f"quality-cost.{end}": content for end, content in drawn.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("quality-cost.png", "quality-cost.pdf"):
        if name not in contents:
            (folder / name).unlink(missing_ok=True)
    return [put(folder / name, content) for name, content in contents.items()]


def page(summary: Summary) -> str:
    """The page: one file without any other, that needs no network and no JavaScript."""
    looked = looks.cast(summary)
    style, script = svg.colours() + _text("page.css"), _text("page.js")
    policy = f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'"
    body = [
        sections.head(summary),
        element(
            "main",
            sections.main_picture(summary),
            sections.answers(summary, looked),
            sections.shares(summary, looked),
            sections.to_route(summary),
            sections.needs(summary, looked),
            sections.learned(summary, looked),
            sections.other_targets(summary, looked),
            sections.data(summary),
            sections.assumptions(summary),
            sections.further(summary, looked),
        ),
        sections.foot(summary),
        element("script", Markup(script)),
    ]
    first = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{summary['data']['file']}: ways of routing compared"),
        element("style", Markup(style)),
    )
    return f"<!doctype html>\n{element('html', first, element('body', body), lang='en')}\n"


def as_json(summary: Summary) -> str:
    """The summary as JSON; what is no number in JSON is null."""
    return json.dumps(_finite(summary), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(summary: Summary) -> str:
    """All points, one a line, from the cheapest on; what is not known is empty."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    for p in ways.by_cost(summary["points"]):
        pairs = [number for name in _PAIRS for number in _numbers(p[name])]
        flags = [str(p["meets"]).lower(), str(p["answer"]).lower()]
        shares = "; ".join(f"{name}={share:.4g}" for name, share in p["shares"].items())
        texts = ["; ".join(p["needs"]), shares, p["further"]]
        lines.writerow([p["approach"], p["kind"], p["setting"], *pairs, p["without"] or "", *flags, *texts])
    return text.getvalue()


def _numbers(pair: Pair | None) -> list[Any]:
    return ["" if _finite(v) is None else v for v in pair or (None, None)]


def _finite(value: Any) -> Any:
    """Plain Python, with null for what is no number; a number of numpy becomes one of Python."""
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def put(path: Path, content: bytes) -> Path:
    """A file with a content, under another name until it is whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
