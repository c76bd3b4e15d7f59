"""Imports point one way: core <- estimators, solvers, sources <- problems; core <- store <- engine <- experiments, comparison <- cli."""

import ast
import graphlib
from pathlib import Path

import pytest

import jaxroute

ROOT = Path(jaxroute.__file__).parent

# What each wing may import, besides itself.
MAY_IMPORT = {
    "core": (),
    "estimators": ("core",),
    "solvers": ("core", "estimators"),
    "data": ("core",),
    "sources": ("core",),
    "offpolicy": ("core", "data"),
    "problems": ("core", "estimators", "solvers", "data", "sources"),
    "store": ("core",),
    "engine": ("core", "store", "kernels"),
    "kernels": ("core", "engine"),
    "metrics": ("core", "store"),
    "plot": ("core", "store", "metrics", ""),
    "tune": ("core", "store", "engine", "metrics", "plot", ""),
    "testing": ("core", "engine"),
    "experiments": ("core", "estimators", "solvers", "data", "problems", "store", "engine", "metrics", "plot", "tune", ""),
    "comparison": ("core", "data", "offpolicy", "problems", "engine", "metrics", "plot", ""),
    "catalogue": ("core", "data", "problems", "experiments"),
    "installation": ("",),
    "cli": ("core", "catalogue", "data", "offpolicy", "problems", "store", "engine", "metrics", "plot", "tune", "kernels", "experiments", "comparison", "testing", "installation", ""),
    "__main__": ("cli",),
    # The package itself: its public names, the last two of them loaded when they are asked for.
    "": ("core", "store", "engine", "metrics", "plot", "tune", "testing", "problems", "solvers", "experiments", "data", "offpolicy", "comparison"),
}  # fmt: skip
# Modules of the engine that kernels may know.
KERNELS_KNOW = ("precision", "rollout", "rounds")
MAY_LOAD_BY_NAME = ("__init__.py", "problems/__init__.py", "experiments", "cli", "data")


def module_of(path):
    """Dotted name of a file, below the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(ROOT.rglob("*.py"))}
PROBLEMS = sorted(p.name for p in (ROOT / "problems").iterdir() if (p / "__init__.py").exists())


def imports_of(source, module, is_package, modules=MODULES):
    """Modules below the package that a source imports anywhere, also inside functions; with True if only for type checkers."""
    found = set()
    tree = ast.parse(source)
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for child in block.body
        for node in ast.walk(child)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = ["jaxroute", *module.split(".")] if module else ["jaxroute"]
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, base]) if base else ".".join(parts)
            inside = base.removeprefix("jaxroute").removeprefix(".")
            for alias in node.names:
                child = f"{inside}.{alias.name}" if inside else alias.name
                names.append(f"jaxroute.{child}" if child in modules else base)
        for name in names:
            if name == "jaxroute" or name.startswith("jaxroute."):
                found.add((name.removeprefix("jaxroute").removeprefix("."), id(node) in for_types))
    return found


def imports(module):
    path = MODULES[module]
    return imports_of(path.read_text(), module, path.name == "__init__.py")


def part(module):
    return module.split(".")[0]


def test_the_parser_of_imports_sees_every_kind():
    source = """
import jaxroute.core.draws as d
from jaxroute import core, simulate
from jaxroute.problems.staged import StageRoute, env
from . import types
from .oracle import value
from ..stochastic import UCB1
from typing import TYPE_CHECKING
import numpy
if TYPE_CHECKING:
    from jaxroute.engine.simulate import simulate
def f():
    from jaxroute.engine.rollout import rollout
"""
    names = (
        "core core.draws problems problems.staged problems.staged.env problems.staged.types engine.simulate engine.rollout"
    )
    names = dict.fromkeys(names.split())
    found = imports_of(source, "problems.staged.env", False, names)
    assert found == {
        ("core.draws", False),
        ("core", False),
        ("", False),  # jaxroute.simulate is a name of the package itself.
        ("problems.staged", False),
        ("problems.staged.env", False),
        ("problems.staged.types", False),
        ("problems.staged.oracle", False),
        ("problems.stochastic", False),
        ("engine.simulate", True),
        ("engine.rollout", False),
    }
    assert imports_of("from . import env", "problems.staged", True, names) == {("problems.staged.env", False)}


def test_every_wing_of_the_package_has_a_place():
    assert {part(module) for module in MODULES} <= set(MAY_IMPORT), "a new wing: say in MAY_IMPORT what it may know"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module):
    allowed = {part(module), *MAY_IMPORT[part(module)]}
    for imported, _ in imports(module):
        assert part(imported) in allowed, f"{module or 'jaxroute'} imports {imported or 'jaxroute'}"


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("problems.")])
def test_problems_do_not_know_each_other(module):
    own = module.split(".")[1]
    for imported, _ in imports(module):
        if part(imported) == "problems":
            assert imported.split(".")[1:2] == [own], f"{module} imports {imported}"


def test_kernels_and_the_engine_know_little_of_each_other():
    for module in MODULES:
        for imported, _ in imports(module):
            if part(module) == "kernels" and part(imported) == "engine":
                assert imported.removeprefix("engine.") in KERNELS_KNOW, f"{module} imports {imported}"
            elif part(module) != "kernels" and part(imported) == "kernels":
                assert imported == "kernels", f"{module} imports {imported}, not what kernels shows"


def test_kernels_are_written_without_a_look_at_their_text():
    for module in (m for m in MODULES if part(m) == "kernels"):
        assert "import re\n" not in MODULES[module].read_text(), module


@pytest.mark.parametrize(
    "module", [m for m in MODULES if part(m) in ("core", "estimators", "solvers", "sources", "store", "engine", "kernels")]
)
def test_the_engine_does_not_even_name_a_problem(module):
    """No branch on a problem's name either. Docstrings may mention one as an example."""
    tree = ast.parse(MODULES[module].read_text())
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    words |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert words.isdisjoint(PROBLEMS)


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_loaded_by_name_only_where_there_is_a_registry(module):
    path = MODULES[module].relative_to(ROOT).as_posix()
    tree = ast.parse(MODULES[module].read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    loads = names & {"import_module", "__import__"}
    assert not loads or path.startswith(MAY_LOAD_BY_NAME)


def test_there_are_no_cycles():
    """Also not within one part; imports for type checkers alone do not count."""
    graph = {m: {i for i, for_types in imports(m) if not for_types and i in MODULES and i != m} for m in MODULES}
    for module in graph:  # The package's own public names come last, and the command line reads its version.
        graph[module].discard("") if module else None
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(MODULES)
