"""Pages of the API reference: what each has, from the package itself, and their text for Sphinx.

A name is public if it does not begin with an underscore and is exported by a package (`__all__`), or is defined in one of the modules that
a page names. What a package exports is shown under the package's name, `jaxroute.problems.staged.StageRoute`, wherever it is defined.
"""

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any


@dataclass(frozen=True)
class Page:
    """One page.

    name: file name.
    title: heading.
    packages: what it shows, each with all that it exports.
    modules: modules that are shown with all that they define; a name that ends with `.*` is a package with all its modules.
    public: name under which users import it, where that is not where it is.
    """

    name: str
    title: str
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    public: dict[str, str] = field(default_factory=dict)


def _problem(name: str) -> Page:
    return Page(f"problems/{name}", f"problems.{name}", (f"jaxroute.problems.{name}",), (f"jaxroute.problems.{name}.*",))


def pages() -> tuple[Page, ...]:
    """All pages, in the order of the index; a problem that is added has its own."""
    problems = [m.name for m in pkgutil.iter_modules(importlib.import_module("jaxroute.problems").__path__) if m.ispkg]
    order = {
        name: i
        for i, name in enumerate(("stochastic", "contextual", "staged", "combinatorial", "service", "queueing", "cascade"))
    }
    alias = {
        "jaxroute.metrics": "jaxroute.metrics",
        "jaxroute.plot": "jaxroute.plot",
        "jaxroute.tune": "jaxroute.tune",
    }
    return (
        Page("jaxroute", "jaxroute", ("jaxroute",)),
        Page("metrics", "metrics", (), ("jaxroute.metrics",), alias),
        Page("plot", "plot", (), ("jaxroute.plot", "jaxroute.plot.style"), alias),
        Page("tune", "tune", ("jaxroute.tune",), (), alias),
        *(_problem(name) for name in sorted(problems, key=lambda name: order.get(name, len(order)))),
        Page("problems/registry", "problems", (), ("jaxroute.problems",)),
        Page("testing", "testing", ("jaxroute.testing",), ("jaxroute.testing.figures",)),
        Page("experiments", "experiments", ("jaxroute.experiments",), ("jaxroute.experiments.base", "jaxroute.experiments.claims", "jaxroute.experiments.measure", "jaxroute.experiments.pictures", "jaxroute.experiments.quantities", "jaxroute.experiments.verdicts")),
        Page("comparison", "comparison", ("jaxroute.comparison",)),
        Page("data", "data", ("jaxroute.data",)),
        Page("solvers", "solvers", ("jaxroute.solvers",)),
        Page("estimators", "estimators", ("jaxroute.estimators.mnl",), ("jaxroute.estimators.*",)),
        Page("core", "core", (), ("jaxroute.core.*",), {"jaxroute.core.draws": "jaxroute.draws", "jaxroute.core.numerics": "jaxroute.numerics"}),
        Page("engine", "engine", (), ("jaxroute.engine.errors", "jaxroute.engine.execution", "jaxroute.engine.grid", "jaxroute.engine.rounds", "jaxroute.engine.reference", "jaxroute.engine.memory")),
        Page("store", "store", (), ("jaxroute.store.*",)),
    )  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One object of a page.

    name: full name under which it is shown.
    thing: the object.
    module: where it is defined.
    """

    name: str
    thing: Any
    module: str


def _modules(names: tuple[str, ...]) -> Iterator[ModuleType]:
    for name in names:
        if not name.endswith(".*"):
            yield importlib.import_module(name)
            continue
        package = importlib.import_module(name.removesuffix(".*"))
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not any(part.startswith("_") for part in found.name.split(".")):
                yield importlib.import_module(found.name)


def _kind(thing: Any) -> str:
    if inspect.isclass(thing) and not isinstance(thing, GenericAlias):
        return "class"
    return (
        "function"
        if inspect.isroutine(thing) or isinstance(thing, functools.partial) or hasattr(thing, "__wrapped__")
        else "data"
    )


def _borrowed(package: ModuleType, thing: Any) -> bool:
    """Whether a package exports what another wing defines and shows; the package itself exports everything."""
    module = getattr(thing, "__module__", None)
    return package.__name__ != "jaxroute" and _kind(thing) != "data" and not str(module).startswith(package.__name__)


def entries(page: Page) -> list[Entry]:
    """What a page shows, in the order of its packages' lists and its modules' sources; each object once."""
    found, seen = [], set(_exported()) if page.name != "jaxroute" else set()
    for name in page.packages:
        package = importlib.import_module(name)
        for member in package.__all__:
            thing = getattr(package, member)
            if inspect.ismodule(thing) or _borrowed(package, thing):
                continue
            if _key(thing, member) in seen:
                continue
            module = getattr(thing, "__module__", None) if _kind(thing) != "data" else _home(package, member)
            found.append(Entry(f"{page.public.get(name, name)}.{member}", thing, module or name))
            seen.add(_key(thing, member))
    for module in _modules(page.modules):
        for member, thing in vars(module).items():
            if member.startswith("_") or _kind(thing) == "data" or getattr(thing, "__module__", None) != module.__name__:
                continue
            if _key(thing, member) not in seen and inspect.getdoc(thing):
                seen.add(_key(thing, member))
                found.append(Entry(f"{page.public.get(module.__name__, module.__name__)}.{member}", thing, module.__name__))
    return found


@functools.cache
def _exported() -> frozenset[int]:
    """What `import jaxroute` offers, by identity: shown there, and nowhere else."""
    package = importlib.import_module("jaxroute")
    return frozenset(id(getattr(package, member)) for member in package.__all__)


def _key(thing: Any, name: str) -> Any:
    return id(thing) if _kind(thing) != "data" else name


def _home(package: ModuleType, member: str) -> str:
    """The module of a package that assigns a constant."""
    for module in _modules((f"{package.__name__}.*",)):
        source = Path(module.__file__ or "").read_text(encoding="utf-8")
        if re.search(rf"(?m)^{member}\b.*=", source):
            return module.__name__
    return package.__name__


@functools.cache
def names() -> dict[int, str]:
    """Where each documented class and function is shown, by the identity of the object; the first page wins."""
    found: dict[int, str] = {}
    for page in pages():
        for entry in entries(page):
            if _kind(entry.thing) != "data":
                found.setdefault(id(entry.thing), entry.name)
    return found


def _comment(module: str, member: str) -> str:
    """The comment above a constant, or behind it."""
    lines = Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if re.match(rf"{member}\b.*=", line):
            above = []
            while number and lines[number - 1].startswith("# "):
                number -= 1
                above.insert(0, lines[number][2:])
            behind = re.search(r"  # (?!fmt|type|pyright|noqa)(.*)$", line)
            return " ".join(above) or (behind.group(1) if behind else "")
    return ""


def first_sentence(text: str) -> str:
    """The first sentence of a docstring."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s", paragraph)[0]


def _heading(module: str, page: Page) -> str:
    """A section's title: the file below the package, as the tree of the package says it."""
    base = [*page.packages, *(m.removesuffix(".*") for m in page.modules)]
    inside = [module.removeprefix(b).removeprefix(".") for b in base if module.startswith(f"{b}.")]
    return (
        min(inside, key=len)
        if inside and min(inside, key=len)
        else page.public.get(module, module).removeprefix("jaxroute.")
    )


def text(page: Page) -> str:
    """The page in reStructuredText."""
    found = entries(page)
    out = [page.title, "=" * len(page.title), ""]
    sections: dict[str, list[Entry]] = {}
    for entry in found:
        sections.setdefault(entry.module, []).append(entry)
    tops = list(page.packages) or [page.modules[0].removesuffix(".*")]
    out += [f".. py:module:: {page.public.get(tops[0], tops[0])}", "", f".. automodule:: {tops[0]}", "   :no-index:", ""]
    for name in page.packages:
        package = importlib.import_module(name)
        other = [
            m
            for m in package.__all__
            if id(getattr(package, m)) in names()
            and names()[id(getattr(package, m))] != f"{page.public.get(name, name)}.{m}"
        ]
        if other:
            out += [
                "Also here: " + ", ".join(f":py:obj:`{m} <{names()[id(getattr(package, m))]}>`" for m in other) + ".",
                "",
            ]
    if page.name == "jaxroute":
        return "\n".join([*out, *(line for entry in sorted(found, key=_asked) for line in _directive(entry))])
    order = _order(page, list(sections))
    for module in order:
        if module not in tops:
            heading = _heading(module, page)
            if len(order) > 1:
                out += [heading, "-" * len(heading), "", f".. automodule:: {module}", "   :no-index:", ""]
        for entry in sections[module]:
            out += _directive(entry)
    return "\n".join(out)


def _order(page: Page, modules: list[str]) -> list[str]:
    """Modules in the order in which a reader asks: the paper's policy, the others, environments, what they are put together from."""
    if not page.name.startswith("problems/"):
        return modules
    first = (
        "policies",
        "stageroute",
        "c2mabv",
        "messplus",
        "acqb",
        "cosmos",
        "baselines",
        "oracle",
        "instances",
        "env",
        "sources",
        "parts",
    )
    last = ("optimum", "theory", "types")

    def rank(module: str) -> tuple[int, str]:
        part = module.removeprefix(page.packages[0] if page.packages else "").split(".")[1:2]
        name = part[0] if part else ""
        return (first.index(name) if name in first else 90 + last.index(name) if name in last else 50, module)

    return sorted(modules, key=rank)


def _asked(entry: Entry) -> tuple[bool, int, str]:
    """The order in which a newcomer asks for the names of `jaxroute`; errors last."""
    first = (
        "simulate",
        "grid",
        "instances",
        "load",
        "compare",
        "Policy",
        "Environment",
        "Spec",
        "Metric",
        "Wrapper",
        "Grid",
    )
    name = entry.name.rpartition(".")[2]
    return (name.endswith("Error"), first.index(name) if name in first else len(first), name)


def _directive(entry: Entry) -> list[str]:
    member = entry.name.rpartition(".")[2]
    if _kind(entry.thing) == "class":
        return [f".. autoclass:: {entry.name}", "   :members:", ""]
    if _kind(entry.thing) == "function":
        return [f".. autofunction:: {entry.name}", ""]
    said = _comment(entry.module, member) or getattr(entry.thing, "source", "")
    said = said or (f"The type `{_short(entry.thing)}`." if isinstance(entry.thing, GenericAlias) else "A constant.")
    # The section's automodule has made its module the current one.
    return [
        f".. py:currentmodule:: {entry.name.rpartition('.')[0]}",
        "",
        f".. py:data:: {member}",
        "",
        f"   {_escaped(said)}",
        "",
    ]


def _short(alias: Any) -> str:
    """A type without the modules of its parts."""
    return re.sub(r"\b[a-z_.]+\.(?=[A-Z])", "", str(alias))


def _escaped(said: str) -> str:
    return re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", said).replace("*", r"\*")


def index(found: tuple[Page, ...]) -> str:
    """The page that lists the pages."""
    lines = ["API reference", "=============", ""]
    lines += [
        "Everything public, from the docstrings. ``import jaxroute as jr``; problems are in ``jaxroute.problems``.",
        "",
    ]
    lines += [".. list-table::", "   :widths: 30 70", ""]
    for page in found:
        top = (page.packages or (page.modules[0].removesuffix(".*"),))[0]
        said = first_sentence(importlib.import_module(top).__doc__ or "").replace("`", "``")
        lines += [f"   * - :doc:`{page.title} <{page.name}>`", f"     - {said}"]
    lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {page.name}" for page in found), ""]
    return "\n".join(lines)


def write(folder: Path) -> None:
    """Writes the pages; a file whose text has not changed is left alone, so that Sphinx reads it no second time."""
    found = pages()
    texts = {"index": index(found), **{page.name: text(page) for page in found}}
    for name, content in texts.items():
        file = folder / f"{name}.rst"
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != content:
            file.write_text(content, encoding="utf-8")
