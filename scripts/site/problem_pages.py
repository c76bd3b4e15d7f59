"""Directives for the pages of problems and the gallery: entries of scripts/site/gallery.py, and docstrings.

```{gallery} staged                 experiments with picture, command and verdicts: all of a problem
```
```{gallery} staged/figure-2        or by their names
```
```{gallery-verdicts} staged        a table of the experiments of a problem with the numbers of claims that hold
```
```{policies} stochastic            a table of the policies with first sentence and source
```
```{environments} stochastic        likewise of the environments
```
"""

import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gallery

PAGE = "gallery"  # The page with all of them, to which the other pages link.
_DOTS = 96  # An inch of a page.


def number_of(things: int, one: str) -> str:
    """Writes a number of things in words: "1 seed", "1,024 seeds"."""
    return f"{things:,} {one if things == 1 else one + 's'}"


def verdicts(entry: dict[str, Any]) -> str:
    """Counts the claims by verdict: "2 of 3 hold, 1 not decided"."""
    found = [claim["verdict"] for claim in entry["claims"]]
    if not found:
        return "none"
    others = (word for word in ("refuted", "not decided", "vacuous", "not judged") if word in found)
    return ", ".join([f"{found.count('holds')} of {len(found)} hold", *(f"{found.count(word)} {word}" for word in others)])


def caption(entry: dict[str, Any]) -> str:
    """Describes size and time of a run, and the numbers of claims that hold."""
    size = f"{number_of(entry['seeds'], 'seed')} of {number_of(entry['horizon'], 'round')}"
    if entry["seeds"] < entry["own_seeds"]:
        size += f" (the experiment's own number is {entry['own_seeds']:,})"
    parts = [size, f"{entry['cpu_s']:,.0f} CPU s on {entry['device']}, jaxroute {entry['version']}"]
    parts += [f"claims: {verdicts(entry)}"] if entry["claims"] else []
    return "; ".join(parts) + "."


def inline(text: str) -> list[nodes.Node]:
    """Converts text of a docstring or an experiment to nodes; text in backticks and options are code."""
    parts = re.split(r"`+([^`]+)`+|((?<!\w)--[a-z][\w-]*)", " ".join(text.split()))
    kinds = (nodes.Text, lambda code: nodes.literal("", code), lambda code: nodes.literal("", code))
    return [kinds[i % 3](part) for i, part in enumerate(parts) if part]


def table(head: Sequence[str], rows: Iterable[Sequence[list[nodes.Node]]], classes: Sequence[str] = ()) -> nodes.table:
    """Makes a table of cells, each a list of inline nodes."""

    def row(cells: Iterable[list[nodes.Node]]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in cells))

    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", row([nodes.Text(name)] for name in head))
    group += nodes.tbody("", *(row(cells) for cells in rows))
    return nodes.table("", group, classes=["colwidths-auto", *classes])


def reference(domain: str, kind: str, target: str, text: nodes.Node, page: str) -> nodes.Node:
    """Makes a link on `page` to an object of a Sphinx domain; Sphinx warns if the object is missing."""
    about = {"refdomain": domain, "reftype": kind, "reftarget": target, "refdoc": page}
    return addnodes.pending_xref("", text, refexplicit=True, refwarn=True, **about)


class _OfGallery(SphinxDirective):
    """A directive with the gallery's entries of some experiments or problems."""

    required_arguments = 1
    optional_arguments = 50

    def entries(self) -> list[dict[str, Any]]:
        there = list(gallery.entries())
        self.env.note_reread()  # Sphinx cannot know new entries.
        found = []
        for name in self.arguments:
            named = [entry for entry in there if name in (entry["experiment"], entry["experiment"].partition("/")[0])]
            if not named:
                raise self.error(f"the gallery has no experiment and no problem of the name {name!r}")
            found += named
        return found


class Gallery(_OfGallery):
    """Experiments with pictures, captions, commands and claims."""

    def run(self) -> list[nodes.Node]:
        return [self.shown(entry) for entry in self.entries()]

    def shown(self, entry: dict[str, Any]) -> nodes.container:
        """Makes the block of an experiment."""
        name, label = entry["experiment"], f"gallery-{gallery.stem(entry['experiment']).lower()}"
        block = nodes.container(classes=["gallery-entry"])
        if self.env.docname == PAGE:
            block["ids"].append(label)
            standard = self.env.get_domain("std")
            standard.labels[label] = (PAGE, label, name)
            standard.anonlabels[label] = (PAGE, label)
        title = nodes.strong("", "", *inline(entry["title"]))
        block += nodes.paragraph("", "", nodes.literal("", name), nodes.Text(" "), title)
        for picture in entry["pictures"]:
            width = f"{round(picture['width'] * _DOTS / picture['dots'])}px"
            block += nodes.figure("", nodes.image(uri=f"/gallery/{picture['file']}", alt=entry["title"], width=width))
        text = nodes.paragraph("", caption(entry), classes=["gallery-caption"])
        study = " A study, not in the paper." if "scripts/studies/" in entry["command"] else ""
        text += nodes.Text((f" {entry['source']}." if entry["source"] else "") + study)
        block += text
        if entry["notes"]:
            block += nodes.paragraph("", "", *inline(f"Note: {entry['notes'].rstrip('.')}."))
        block += nodes.literal_block(entry["command"], entry["command"], language="bash")
        block += self.claims(entry)
        return block

    def claims(self, entry: dict[str, Any]) -> list[nodes.Node]:
        """Makes a folded list of the claims and the measured values."""
        if not entry["claims"]:
            return []
        listed = nodes.bullet_list()
        for claim in entry["claims"]:
            verdict = claim["verdict"]
            line = nodes.paragraph()
            line += nodes.strong("", verdict, classes=[f"verdict-{verdict.replace(' ', '-')}"])
            seeds = number_of(int(claim.get("runs") or entry["seeds"]), "seed")
            line += inline(f" ({seeds}): {claim['text']} ({claim['source']}). Measured: {claim['measured']}.")
            listed += nodes.list_item("", line)
        opened = nodes.raw("", "<details><summary>Claims, and measured values</summary>", format="html")
        return [opened, listed, nodes.raw("", "</details>", format="html")]


class Verdicts(_OfGallery):
    """A table of experiments with their titles and numbers of claims that hold."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for entry in self.entries():
            label = f"gallery-{gallery.stem(entry['experiment']).lower()}"
            link = reference("std", "ref", label, nodes.literal("", entry["experiment"]), self.env.docname)
            few = f" ({number_of(entry['seeds'], 'seed')})" if entry["seeds"] < entry["own_seeds"] else ""
            rows.append([[link], inline(entry["title"]), [nodes.Text(verdicts(entry) + few)]])
        return [table(("experiment", "subject", "claims"), rows)]


class NotRun(SphinxDirective):
    """The experiments that the gallery leaves out, with the reason."""

    def run(self) -> list[nodes.Node]:
        listed = nodes.bullet_list()
        for name, reason in gallery.NOT_RUN.items():
            listed += nodes.list_item("", nodes.paragraph("", "", *inline(f"`jaxroute run {name}`: {reason}.")))
        return [listed]


class OfProblem(SphinxDirective):
    """A table of the policies or environments of a problem, from their docstrings; the name of the directive says which."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        problem = importlib.import_module(f"jaxroute.problems.{self.arguments[0]}")
        rows, named = [], False
        for one in getattr(problem, self.name.upper()):
            self.env.note_dependency(inspect.getsourcefile(one) or "")
            paragraphs = inspect.cleandoc(one.__doc__ or "").split("\n\n")
            sources = [text.removeprefix("Source:") for text in paragraphs if text.startswith("Source:")]
            source = " ".join(" ".join(sources).split()).strip(" .")
            named |= bool(source)
            # In the same cell: a separate column is cut off on a telephone.
            sourced = [nodes.Text(" "), nodes.emphasis("", "", *inline(f"{source}."))] if source else []
            rows.append([[self.link(one)], [*inline(paragraphs[0]), *sourced]])
        head = "what it does, and its source" if named else "what it does"
        return [table(("class" if self.name == "policies" else "constructor", head), rows, classes=["of-problem"])]

    def link(self, thing: Any) -> nodes.Node:
        name = f"jaxroute.problems.{self.arguments[0]}.{thing.__name__}"
        return reference(
            "py", "obj", name, nodes.literal("", thing.__name__, classes=["xref", "py", "py-obj"]), self.env.docname
        )


def setup(app: Any) -> dict[str, Any]:
    """Registers the directives."""
    app.add_css_file("problem_pages.css")
    app.add_directive("gallery", Gallery)
    app.add_directive("gallery-verdicts", Verdicts)
    app.add_directive("gallery-not-run", NotRun)
    app.add_directive("policies", OfProblem)
    app.add_directive("environments", OfProblem)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
