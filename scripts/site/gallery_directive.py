"""The directive that shows what scripts/site/gallery.py has kept: experiments with picture, command and verdicts.

```{gallery} staged            all of a problem
```
```{gallery} staged/figure-2   one, or several by their names
```
"""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gallery

_VERDICTS = {True: "holds", False: "fails", None: "not judged"}
# Of a picture's pixels to those of a page: figures have 160 dots an inch, a page 96.
_SCALE = 96 / 160


def said(number: int, one: str, many: str = "") -> str:
    """A number of things in words: "1 seed", "1,024 seeds"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def caption(entry: dict[str, Any]) -> str:
    """How an experiment was played, and how many of its claims hold."""
    size = f"{said(entry['seeds'], 'seed')} of {said(entry['horizon'], 'round')}"
    if entry["seeds"] < entry["own_seeds"]:
        size += f" (its own number is {entry['own_seeds']:,})"
    parts = [size, f"{entry['cpu_s']:,.0f} CPU s on {entry['device']}, jaxroute {entry['version']}"]
    counts = {verdict: sum(claim["holds"] is verdict for claim in entry["claims"]) for verdict in _VERDICTS}
    told = [f"{count} {_VERDICTS[verdict]}" for verdict, count in counts.items() if count]
    if told:
        parts.append(f"{said(len(entry['claims']), 'claim')}: {', '.join(told)}")
    return "; ".join(parts) + "."


def claims(entry: dict[str, Any]) -> list[nodes.Node]:
    """The claims with what was measured, folded."""
    if not entry["claims"]:
        return []
    listed = nodes.bullet_list()
    for claim in entry["claims"]:
        verdict = _VERDICTS[claim["holds"]]
        line = nodes.paragraph()
        line += nodes.strong("", verdict, classes=[f"verdict-{verdict.replace(' ', '-')}"])
        line += nodes.Text(f": {claim['text']}. Measured: {claim['measured']}. ({claim['source']})")
        listed += nodes.list_item("", line)
    opened = nodes.raw("", "<details><summary>Claims and what was measured</summary>", format="html")
    return [opened, listed, nodes.raw("", "</details>", format="html")]


def shown(entry: dict[str, Any]) -> nodes.container:
    """An experiment: its name and title, pictures, caption, command and claims."""
    name = entry["experiment"]
    block = nodes.container(classes=["gallery-entry"], ids=[f"gallery-{gallery.stem(name).lower()}"])
    head = nodes.paragraph()
    head += [nodes.literal("", name), nodes.Text(" "), nodes.strong("", entry["title"])]
    block += head
    for picture in entry["pictures"]:
        image = nodes.image(
            uri=f"/gallery/{picture['file']}", alt=entry["title"], width=f"{round(picture['width'] * _SCALE)}px"
        )
        block += nodes.figure("", image)
    text = nodes.paragraph(classes=["gallery-caption"])
    text += nodes.Text(caption(entry))
    if entry["source"]:
        text += nodes.Text(f" {entry['source']}.")
    block += text
    if entry["notes"]:
        block += nodes.paragraph("", nodes.Text(f"Note: {entry['notes'].rstrip('.')}."))
    block += nodes.literal_block(entry["command"], entry["command"], language="bash")
    block += claims(entry)
    return block


class Gallery(SphinxDirective):
    """Experiments by name, or all of a problem."""

    required_arguments = 1
    optional_arguments = 50

    def run(self) -> list[nodes.Node]:
        there = {entry["experiment"]: entry for entry in gallery.entries()}
        for file in sorted(gallery.GALLERY.glob("*.json")):
            self.env.note_dependency(str(file))
        found: list[nodes.Node] = []
        for name in self.arguments:
            of_name = [entry for one, entry in there.items() if name in (one, one.partition("/")[0])]
            if not of_name:
                raise self.error(f"the gallery has no experiment and no problem of the name {name!r}")
            found += [shown(entry) for entry in of_name]
        return found


def setup(app: Any) -> dict[str, Any]:
    """Registers the directive."""
    app.add_directive("gallery", Gallery)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
