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
# Orders in which readers look for things: problems, files of a problem (others between the two), names of `jaxroute`.
_PROBLEMS = ["stochastic", "contextual", "staged", "combinatorial", "service", "queueing", "cascade"]
_FIRST = [
    "policies", "stageroute", "c2mabv", "messplus", "acqb", "cosmos", "baselines", "oracle", "instances", "env", "sources",
    "parts",
]  # fmt: skip
_LAST = ["optimum", "theory", "types"]
_NAMES = ["simulate", "grid", "instances", "load", "compare", "Policy", "Environment", "Spec", "Metric", "Wrapper", "Grid"]


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
      name: file name.
      title: heading.
      packages: packages of which it shows all that they export.
      modules: modules of which it shows all that they define; a name that ends with `.*` is a package with all its modules.
    """

    name: str
    title: str
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    @property
    def top(self) -> str:
        """The package or module whose docstring begins the page."""
        return (self.packages or (self.modules[0].removesuffix(".*"),))[0]


def _page(name: str, packages: str = "", modules: str = "") -> Page:
    """Makes a page with lists of names below `jaxroute`."""
    below = (tuple(f"jaxroute.{one}" for one in names.split()) for names in (packages, modules))
    return Page(name.replace(".", "/"), name, *below)


def _below(package: str, modules: str) -> str:
    return " ".join(f"{package}.{name}" for name in modules.split())


def pages() -> tuple[Page, ...]:
    """Returns all pages in the order of the index; a new problem gets its page automatically."""
    problems = [m.name for m in pkgutil.iter_modules(importlib.import_module("jaxroute.problems").__path__) if m.ispkg]
    problems.sort(key=lambda name: (_place(name, _PROBLEMS), name))
    return (
        Page("jaxroute", "jaxroute", ("jaxroute",)),
        _page("metrics", "metrics"),
        _page("plot", "plot", "plot.style"),
        _page("tune", "tune"),
        *(_page(f"problems.{name}", f"problems.{name}", f"problems.{name}.*") for name in problems),
        Page("problems/registry", "problems", (), ("jaxroute.problems",)),
        _page("testing", "testing", "testing.figures"),
        _page("experiments", "experiments", _below("experiments", "base claims measure pictures verdicts")),
        *(_page(name, name) for name in ("comparison", "data", "solvers")),
        _page("estimators", "estimators.mnl", "estimators.*"),
        _page("sources", "", "sources.*"),
        _page("core", "", "core.*"),
        _page("engine", "", _below("engine", "execution grid rounds reference")),
        _page("store", "", "store.*"),
    )


class Entry(NamedTuple):
    """One object of a page.

    Attributes:
      name: full name under which it is shown.
      thing: the object.
      module: name of the module that defines it.
    """

    name: str
    thing: Any
    module: str

    @property
    def member(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]


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


def _key(thing: Any, name: str) -> Any:
    return name if _kind(thing) == "data" else id(thing)


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
            home = str(getattr(thing, "__module__", None)) if _kind(thing) != "data" else _home(package, member)
            # The page of another wing shows what that wing defines; `jaxroute` itself shows everything.
            elsewhere = name != "jaxroute" and not home.startswith(name)
            if not (inspect.ismodule(thing) or elsewhere or _key(thing, member) in seen):
                found.setdefault(_key(thing, member), Entry(_full(name, member), thing, home))
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


def _home(package: ModuleType, member: str) -> str:
    """Returns the module of a package that assigns a constant."""
    for module in _modules((f"{package.__name__}.*",)):
        if re.search(rf"(?m)^{member}\b.*=", Path(module.__file__ or "").read_text(encoding="utf-8")):
            return module.__name__
    return package.__name__


@functools.cache
def names() -> dict[int, str]:
    """Returns the full name of each documented class and function by identity; the first page wins."""
    found: dict[int, str] = {}
    for entry in (entry for page in pages() for entry in entries(page) if _kind(entry.thing) != "data"):
        found.setdefault(id(entry.thing), entry.name)
    return found


def _comment(module: str, member: str) -> str:
    """Returns the comment above a constant, or behind it."""
    source = Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8")
    found = re.search(rf"(?m)((?:^# .*\n)*)^{member}\b.*=.*?(?:  # (?!fmt|type|pyright|noqa)(.*))?$", source)
    if found is None:
        return ""
    return " ".join(line.removeprefix("# ") for line in found[1].splitlines()) or found[2] or ""


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.strip().split("\n\n")[0].split()))[0]


def _heading(module: str, page: Page) -> str:
    """Returns the title of a section: the module below the packages of the page."""
    bases = (*page.packages, *(name.removesuffix(".*") for name in page.modules))
    inside = [module.removeprefix(f"{base}.") for base in bases if module.startswith(f"{base}.")]
    return min(inside, key=len) if inside else ALIASES.get(module, module).removeprefix("jaxroute.")


def text(page: Page) -> str:
    """Formats the page in reStructuredText."""
    out = [page.title, "=" * len(page.title), ""]
    out += [f".. py:module:: {ALIASES.get(page.top, page.top)}", "", f".. automodule:: {page.top}", "   :no-index:", ""]
    for name in page.packages:
        package = importlib.import_module(name)
        shown = {member: names().get(id(getattr(package, member))) for member in exports(package)}
        other = [f":py:obj:`{m} <{full}>`" for m, full in shown.items() if full and full != _full(name, m)]
        out += [f"Also here: {', '.join(other)}.", ""] if other else []
    found = entries(page)
    if page.name == "jaxroute":
        found.sort(key=lambda e: (e.member.endswith("Error"), _place(e.member, _NAMES), e.member))
        return "\n".join([*out, *(line for entry in found for line in _directive(entry))])
    sections: dict[str, list[Entry]] = {}
    for entry in found:
        sections.setdefault(entry.module, []).append(entry)
    for module in sorted(sections, key=lambda module: _rank(page, module)):
        heading = _heading(module, page)
        if module != page.top and len(sections) > 1:
            out += [heading, "-" * len(heading), "", f".. automodule:: {module}", "   :no-index:", ""]
        out += [line for entry in sections[module] for line in _directive(entry)]
    return "\n".join(out)


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _rank(page: Page, module: str) -> tuple:
    """Returns a sort key: the sections of a problem are the paper's policy, other policies, environments, parts; other pages keep their order."""
    if not page.name.startswith("problems/"):
        return ()
    name = [*module.removeprefix(page.top).split("."), ""][1]
    return _place(name, [*_FIRST, "", *_LAST]) if name in (*_FIRST, *_LAST) else len(_FIRST), module


def _directive(entry: Entry) -> list[str]:
    if _kind(entry.thing) == "class":
        return [f".. autoclass:: {entry.name}", "   :members:", ""]
    if _kind(entry.thing) == "function":
        return [f".. autofunction:: {entry.name}", ""]
    about = _comment(entry.module, entry.member) or getattr(entry.thing, "source", "")
    if not about and isinstance(entry.thing, GenericAlias):
        short = re.sub(r"\b[a-z_.]+\.(?=[A-Z])", "", str(entry.thing))
        about = f"The type `{short}`."
    about = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", about or "A constant.").replace("*", r"\*")
    # The section's automodule has made its module the current one.
    module = entry.name.rpartition(".")[0]
    return [f".. py:currentmodule:: {module}", "", f".. py:data:: {entry.member}", "", f"   {about}", ""]


def index(found: tuple[Page, ...]) -> str:
    """Formats the page that lists the pages."""
    about = "Everything public, from the docstrings. ``import jaxroute as jr``; problems are in ``jaxroute.problems``."
    lines = ["API reference", "=============", "", about, "", ".. list-table::", "   :widths: 30 70", ""]
    for page in found:
        about = first_sentence(importlib.import_module(page.top).__doc__ or "").replace("`", "``")
        lines += [f"   * - :doc:`{page.title} <{page.name}>`", f"     - {about}"]
    return "\n".join([*lines, "", ".. toctree::", "   :hidden:", "", *(f"   {page.name}" for page in found), ""])


def write(folder: Path) -> None:
    """Writes the pages that have changed, so that Sphinx does not read the others again."""
    found = pages()
    for name, content in {"index": index(found), **{page.name: text(page) for page in found}}.items():
        file = folder / f"{name}.rst"
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != content:
            file.write_text(content, encoding="utf-8")
