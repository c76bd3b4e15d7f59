"""Pages of the API reference, in reStructuredText, from the package itself.

A name is public if a package exports it (`exports`), or if it is defined in one of the modules of a page; names with a leading underscore are
not. An exported name is shown under the package, as `jaxroute.problems.staged.StageRoute`, wherever it is defined.
"""

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any, NamedTuple

# Names under which users import modules that are elsewhere.
ALIASES = {"jaxroute.core.draws": "jaxroute.draws", "jaxroute.core.numerics": "jaxroute.numerics"}
# Problems in the order in which readers look for them.
_PROBLEMS = ["stochastic", "contextual", "staged", "combinatorial", "service", "queueing", "cascade"]


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
      name: heading, and file name with slashes for dots.
      packages: packages of which it shows all that they export.
      modules: modules of which it shows all that they define; a name that ends with `.*` is a package with all its modules.
    """

    name: str
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """File name without its ending."""
        return self.name.replace(".", "/")

    @property
    def top(self) -> str:
        """The package or module whose docstring begins the page."""
        return (*self.packages, *self.modules)[0].removesuffix(".*")


def _page(name: str, packages: str = "", modules: str = "") -> Page:
    """Makes a page with lists of names below `jaxroute`."""
    return Page(name, *(tuple(f"jaxroute.{one}" for one in names.split()) for names in (packages, modules)))


def pages() -> tuple[Page, ...]:
    """Returns all pages in the order of the index; a new problem gets its page automatically."""
    problems = [m.name for m in pkgutil.iter_modules(importlib.import_module("jaxroute.problems").__path__) if m.ispkg]
    problems.sort(key=lambda name: (name not in _PROBLEMS, _PROBLEMS.index(name) if name in _PROBLEMS else name))
    modules = "experiments.base experiments.claims experiments.measure experiments.pictures experiments.verdicts"
    return (
        Page("jaxroute", ("jaxroute",)),
        _page("metrics", "metrics"),
        _page("plot", "plot", "plot.style"),
        _page("tune", "tune"),
        *(_page(f"problems.{name}", f"problems.{name}", f"problems.{name}.*") for name in problems),
        _page("problems", "", "problems"),
        _page("testing", "testing", "testing.figures"),
        _page("experiments", "experiments", modules),
        *(_page(name, name) for name in ("comparison", "data", "offpolicy", "solvers")),
        _page("estimators", "estimators.mnl", "estimators.*"),
        _page("sources", "", "sources.*"),
        _page("core", "", "core.*"),
        _page("engine", "", "engine.execution engine.grid engine.rounds engine.reference"),
        _page("store", "", "store.*"),
    )


class Entry(NamedTuple):
    """One object of a page.

    Attributes:
      name: full name under which it is shown.
      thing: the object.
      module: name of the module that defines it.
      about: the comment on a constant.
    """

    name: str
    thing: Any
    module: str
    about: str = ""


def exports(package: ModuleType) -> list[str]:
    """Names that a package exports: its `__all__`, or the public names of its `__init__` other than modules."""
    public = [name for name, thing in vars(package).items() if not name.startswith("_") and not inspect.ismodule(thing)]
    return getattr(package, "__all__", public)


def _modules(names: Sequence[str]) -> Iterator[ModuleType]:
    for name in names:
        package = importlib.import_module(name.removesuffix(".*"))
        if not name.endswith(".*"):
            yield package
            continue
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not any(part.startswith("_") for part in found.name.split(".")):
                yield importlib.import_module(found.name)


def _kind(thing: Any) -> str:
    if inspect.isclass(thing) and not isinstance(thing, GenericAlias):
        return "class"
    called = inspect.isroutine(thing) or isinstance(thing, functools.partial) or hasattr(thing, "__wrapped__")
    return "function" if called else "data"


def _full(module: str, member: str) -> str:
    return f"{ALIASES.get(module, module)}.{member}"


def entries(page: Page) -> list[Entry]:
    """Returns the objects of a page, in the order of its packages' lists and its modules' sources; each object once."""
    found: dict[Any, Entry] = {}
    seen = _exported() if page.name != "jaxroute" else frozenset()
    for name in page.packages:
        package = importlib.import_module(name)
        for member in exports(package):
            thing = getattr(package, member)
            constant = _kind(thing) == "data"
            home, about = _assigned(package, member) if constant else (str(getattr(thing, "__module__", None)), "")
            # The page of another wing shows what that wing defines; `jaxroute` itself shows everything.
            elsewhere = name != "jaxroute" and not home.startswith(name)
            if not (inspect.ismodule(thing) or elsewhere or id(thing) in seen):
                found.setdefault(member if constant else id(thing), Entry(_full(name, member), thing, home, about))
    for module in _modules(page.modules):
        for member, thing in vars(module).items():
            own = getattr(thing, "__module__", None) == module.__name__ and not member.startswith("_")
            if own and _kind(thing) != "data" and id(thing) not in seen and inspect.getdoc(thing):
                found.setdefault(id(thing), Entry(_full(module.__name__, member), thing, module.__name__))
    return list(found.values())


@functools.cache
def _exported() -> frozenset[int]:
    """Returns the identities of the names of `jaxroute`, which only its own page shows."""
    package = importlib.import_module("jaxroute")
    return frozenset(id(getattr(package, member)) for member in exports(package))


def _assigned(package: ModuleType, member: str) -> tuple[str, str]:
    """Returns the module of a package that assigns a constant, and the comment above it or behind it."""
    assignment = re.compile(rf"(?m)((?:^# .*\n)*)^{member}\b.*=.*?(?:  # (?!fmt|type|pyright|noqa)(.*))?$")
    for module in (*_modules((f"{package.__name__}.*",)), package):
        if found := assignment.search(Path(module.__file__ or "").read_text(encoding="utf-8")):
            above = " ".join(line.removeprefix("# ") for line in found[1].splitlines())
            return module.__name__, above or found[2] or ""
    return package.__name__, ""


@functools.cache
def names() -> dict[int, str]:
    """Returns the full name of each documented class and function by identity; the first page wins."""
    found: dict[int, str] = {}
    for entry in (entry for page in pages() for entry in entries(page) if _kind(entry.thing) != "data"):
        found.setdefault(id(entry.thing), entry.name)
    return found


def _heading(module: str, page: Page) -> str:
    """Returns the title of a section: the module below the packages of the page."""
    bases = (*page.packages, *(name.removesuffix(".*") for name in page.modules))
    inside = [module.removeprefix(f"{base}.") for base in bases if module.startswith(f"{base}.")]
    return min(inside, key=len) if inside else ALIASES.get(module, module).removeprefix("jaxroute.")


def text(page: Page) -> str:
    """Formats the page in reStructuredText."""
    out = [page.name, "=" * len(page.name), ""]
    out += [f".. py:module:: {ALIASES.get(page.top, page.top)}", "", f".. automodule:: {page.top}", "   :no-index:", ""]
    for name in page.packages:
        package = importlib.import_module(name)
        shown = {member: names().get(id(getattr(package, member))) for member in exports(package)}
        other = [f":py:obj:`{m} <{full}>`" for m, full in shown.items() if full and full != _full(name, m)]
        out += [f"Also here: {', '.join(other)}.", ""] if other else []
    found = entries(page)
    if page.name == "jaxroute":  # Functions, then classes, then errors.
        found.sort(key=lambda e: (e.name.endswith("Error"), _kind(e.thing) == "class", e.name))
        return "\n".join([*out, *(line for entry in found for line in _directive(entry))])
    sections: dict[str, list[Entry]] = {}
    if page.name.startswith("problems."):  # In the order of its policies and environments, then by name.
        problem = importlib.import_module(page.top)
        sections = {made.__module__: [] for made in (*problem.POLICIES, *problem.ENVIRONMENTS)}
        found.sort(key=lambda entry: entry.module)
    for entry in found:
        sections.setdefault(entry.module, []).append(entry)
    for module, inside in sections.items():
        heading = _heading(module, page)
        if module != page.top and len(sections) > 1:
            out += [heading, "-" * len(heading), "", f".. automodule:: {module}", "   :no-index:", ""]
        out += [line for entry in inside for line in _directive(entry)]
    return "\n".join(out)


def _directive(entry: Entry) -> list[str]:
    if _kind(entry.thing) == "class":
        return [f".. autoclass:: {entry.name}", "   :members:", ""]
    if _kind(entry.thing) == "function":
        return [f".. autofunction:: {entry.name}", ""]
    about = entry.about or getattr(entry.thing, "source", "")
    if not about and isinstance(entry.thing, GenericAlias):
        short = re.sub(r"\b[a-z_.]+\.(?=[A-Z])", "", str(entry.thing))
        about = f"The type `{short}`."
    about = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", about or "A constant.").replace("*", r"\*")
    # The section's automodule has made its module the current one.
    module, _, member = entry.name.rpartition(".")
    return [f".. py:currentmodule:: {module}", "", f".. py:data:: {member}", "", f"   {about}", ""]


def index(found: tuple[Page, ...]) -> str:
    """Formats the page that lists the pages."""
    about = "Everything public, from the docstrings. ``import jaxroute as jr``; problems are in ``jaxroute.problems``."
    lines = ["API reference", "=============", "", about, "", ".. list-table::", "   :widths: 30 70", ""]
    for page in found:
        first = " ".join((importlib.import_module(page.top).__doc__ or "").partition("\n\n")[0].split())
        sentence = re.split(r"(?<=\.)\s", first)[0].replace("`", "``")
        lines += [f"   * - :doc:`{page.name} <{page.file}>`", f"     - {sentence}"]
    return "\n".join([*lines, "", ".. toctree::", "   :hidden:", "", *(f"   {page.file}" for page in found), ""])


def write(folder: Path) -> None:
    """Writes the pages that have changed, so that Sphinx does not read the others again."""
    found = pages()
    for name, content in {"index": index(found), **{page.file: text(page) for page in found}}.items():
        file = folder / f"{name}.rst"
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != content:
            file.write_text(content, encoding="utf-8")
