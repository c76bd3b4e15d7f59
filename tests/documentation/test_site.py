"""The site: built without a warning, with all that is public, and without anything from another server."""

import html.parser
import importlib
import os
import subprocess
import sys
import types
from urllib.parse import unquote, urlsplit

import pytest
from helpers import ROOT

TOOLS = ROOT / "scripts" / "site"


class _Page(html.parser.HTMLParser):
    """Anchors of a page, where its links go, and what a browser loads for it."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loaded, self.without_words = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(given["href"])
        if tag == "img" and not given.get("alt"):
            self.without_words.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason='the site needs Sphinx: pip install "jaxroute[docs]"')
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(TOOLS / "build.py"), "--out", str(out)]
    variables = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return out


@pytest.fixture(scope="module")
def pages(site):
    folder = site / "html"
    return {p.relative_to(folder).as_posix(): _Page(p.read_text(encoding="utf-8")) for p in folder.rglob("*.html")}


@pytest.mark.slow
def test_every_link_has_a_place(site, pages):
    """Pages, anchors and files that links and pictures name; other sites are listed, not asked."""
    folder = site / "html"
    lost = []
    for name, page in pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (folder / name).parent / unquote(parts.path) if parts.path else folder / name
            there = target.resolve().relative_to(folder.resolve()).as_posix()
            if not target.exists() or (
                parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].anchors
            ):
                lost.append(f"{name}: {link}")
    assert not lost, "\n".join(lost)
    outside = {link for page in pages.values() for link in page.links if urlsplit(link).netloc}
    listed = (site / "links.txt").read_text(encoding="utf-8").split()
    assert {link.split("#")[0] for link in outside} == set(listed) and len(listed) > 2


@pytest.mark.slow
def test_nothing_is_loaded_from_another_server(pages):
    assert {src for page in pages.values() for src in page.loaded if urlsplit(src).netloc} == set()


@pytest.mark.slow
def test_pictures_of_pages_have_words(pages):
    assert not [name for name, page in pages.items() if page.without_words and not name.startswith("notebooks/")]


@pytest.mark.slow
def test_the_reference_has_everything_public(site, monkeypatch):
    """Each name that a package exports is on a page, under that name or where it is defined."""
    from sphinx.util.inventory import InventoryFile

    with (site / "html" / "objects.inv").open("rb") as file:
        known = InventoryFile.load(file, "", os.path.join)
    shown = set(known["py:class"]) | set(known["py:function"]) | set(known["py:data"]) | set(known.get("py:exception", ()))
    monkeypatch.syspath_prepend(TOOLS)
    api = importlib.import_module("api")
    for package in (package for page in api.pages() for package in page.packages):
        module = importlib.import_module(package)
        for name in api.exports(module):
            thing = getattr(module, name)
            public = api.names().get(id(thing), f"{package}.{name}")
            assert isinstance(thing, types.ModuleType) or public in shown, f"{package}.{name} is on no page"
    assert len(shown) > 700


@pytest.mark.parametrize(
    ("name", "kind", "problem", "head"),
    [
        ("policies", "class", "stochastic", "what it does, and its source"),
        ("environments", "constructor", "contextual", "what it does"),
    ],
)
def test_a_table_speaks_of_sources_where_there_are_some(name, kind, problem, head, monkeypatch):
    pytest.importorskip("sphinx", reason='the site needs Sphinx: pip install "jaxroute[docs]"')
    from docutils import nodes

    monkeypatch.syspath_prepend(TOOLS)
    directives = importlib.import_module("problem_pages")
    page = types.SimpleNamespace(note_dependency=lambda file: None)
    directive = types.SimpleNamespace(arguments=[problem], env=page, name=name, link=lambda one: nodes.Text(one.__name__))
    (made,) = directives.OfProblem.run(directive)
    cells = [row.astext().split("\n\n") for row in made.findall(nodes.row)]
    assert cells[0] == [kind, head]
    assert all(len(row) == 2 and all(row) for row in cells)
