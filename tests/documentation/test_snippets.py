"""The code of README and of the site's pages: it runs, its commands can be read, its errors are what the pages say.

How a block is made small for the tests, or left out, stands in a comment above it: see `scripts/site/snippets.py`.
"""

import argparse
import dataclasses
import functools
import importlib.util
import re
import sys
import tomllib
import warnings
from types import ModuleType

import numpy as np
import pytest
from helpers import ROOT

import jaxroute as jr
from jaxroute import cli
from jaxroute.catalogue import catalogue

_FOLDER = ROOT / "scripts" / "site"


def _module(name):
    """A module of the site's tools, which are no package."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", _FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


snippets = _module("snippets")
PAGES = {page.relative_to(ROOT).as_posix(): snippets.snippets(page) for page in snippets.pages(ROOT)}
# Programs of commands that are not jaxroute's own, which the tests only look at.
OTHERS = {"sbatch", "git", "pre-commit", "python", "python3", "pip", "pytest", "ruff", "pyright"}


def _said(text):
    """Words of a message, without how its lines are broken."""
    return " ".join(text.split())


def _expect(snippet, message):
    begins = _said(snippet.after.partition("...")[0])
    assert begins, f"{snippet.page.name}, line {snippet.line}: no text block follows that says the message"
    assert _said(message).startswith(begins), f"{snippet.page.name}, line {snippet.line}: {message}"


def _play(snippet, names):
    """Runs a block of Python in the names of its page."""
    if snippet.file:
        with open(snippet.file, "w", encoding="utf-8") as file:
            file.write(snippet.small)
    if "raises" in snippet.options:
        with pytest.raises(Exception) as raised:
            exec(snippet.code, names)
        _expect(snippet, f"{raised.type.__name__}: {raised.value}")
    elif "warns" in snippet.options:
        with pytest.warns() as caught:
            exec(snippet.code, names)
        _expect(snippet, str(caught[0].message))
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # What a page shows is free of them.
            exec(snippet.code, names)


def _log(path):
    """A small log of three models, of which the dearer one is the better one."""
    rng = np.random.default_rng(0)
    models, probabilities, prices = ("small", "middle", "large"), (0.55, 0.7, 0.85), (0.0001, 0.0004, 0.002)
    lines = ["query,model,score,cost"]
    for query in range(120):
        for model, probability, price in zip(models, probabilities, prices, strict=True):
            lines.append(f"{query},{model},{int(rng.random() < probability)},{price * rng.uniform(0.5, 1.5):.6f}")
    path.write_text("\n".join(lines) + "\n")


def _quickly(simulate, *arguments, execution=None, **options):
    """Simulates what is compiled quickly, unless a backend is asked for."""
    execution = jr.Execution() if execution is None else execution
    if execution.backend == "auto":
        execution = dataclasses.replace(execution, compile="quick")
    return simulate(*arguments, **{"progress": False, "execution": execution} | options)


def _walk(page, slow, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    # As --smoke does: runs of so few rounds are all compilation. A block that names a backend has it.
    monkeypatch.setattr(jr, "simulate", functools.partial(_quickly, jr.simulate))
    module = ModuleType("a_page")  # Dataclasses look for the module that they are defined in.
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for snippet in PAGES[page]:
        if snippet.reason is not None or ("slow" in snippet.options and not slow):
            continue
        if snippet.language == "python":
            _play(snippet, module.__dict__)
        elif snippet.language == "bash" and "run" in snippet.options:
            for log in ("traffic.csv", "answers.csv"):
                _log(tmp_path / log)
            for command in snippet.commands:
                status = cli.main(command[1:])
                assert status == 0, f"{snippet.page.name}, line {snippet.line}: {command}\n{capsys.readouterr()}"
    pyplot.close("all")


def _with(rule):
    return [page for page, found in PAGES.items() if any(rule(s) for s in found)]


@pytest.mark.parametrize(
    "page", _with(lambda s: s.reason is None and "slow" not in s.options and (s.language == "python" or "run" in s.options))
)
def test_a_page_runs(page, tmp_path, monkeypatch, capsys):
    _walk(page, False, tmp_path, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("page", _with(lambda s: "slow" in s.options))
def test_a_page_runs_with_what_takes_long(page, tmp_path, monkeypatch, capsys):
    _walk(page, True, tmp_path, monkeypatch, capsys)


@pytest.mark.slow
def test_five_minutes_shows_the_table_that_its_code_prints(capsys):
    imports, simulation = [s for s in PAGES["notebooks/site/five_minutes.md"] if s.language == "python"][:2]
    exec(imports.shown, names := {})
    exec(simulation.shown, names)
    assert _said(capsys.readouterr().out) == _said(simulation.after)


@pytest.mark.fast
@pytest.mark.parametrize("page", PAGES)
def test_blocks_say_what_they_are(page):
    """Each block is of a known language and can be read, and one that is not run says why."""
    for snippet in PAGES[page]:
        where = f"{page}, line {snippet.line}"
        assert snippet.language in ("python", "bash", "c", "toml", "json", "yaml"), (
            f"{where}: a block of {snippet.language or 'no language'!r}"
        )
        if snippet.language == "python":
            assert snippet.code, where
        assert snippet.reason != "", f"{where}: no reason why it is not run"


def _read(words, monkeypatch):
    """What the command would do, as far as its options say it: it is stopped once they are read."""
    parse = argparse.ArgumentParser.parse_known_args

    class Read(BaseException):
        pass

    def stopped(self, *arguments, **options):
        found = parse(self, *arguments, **options)
        if self.prog == "jaxroute":
            raise Read(found)
        return found

    with monkeypatch.context() as patched, pytest.raises(Read) as read:
        patched.setattr(argparse.ArgumentParser, "parse_known_args", stopped)
        cli.main(words)
    return read.value.args[0]


@pytest.mark.fast
@pytest.mark.parametrize("page", _with(lambda s: s.language == "bash"))
def test_commands_can_be_read(page, monkeypatch):
    """The command's own parser takes each, and what it names is there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for snippet in PAGES[page]:
        if snippet.language != "bash":
            continue
        for words in snippet.commands:
            where = f"{page}, line {snippet.line}: {' '.join(words)}"
            program = re.sub(r"^\.venv[\w-]*/bin/", "", words[0])
            if program == "jaxroute":
                options, rest = _read(words[1:], monkeypatch)
                assert not rest or words[1] == "bench", where
                name = getattr(options, "experiment", None)
                if name and ".py:" in name:
                    assert (ROOT / name.partition(":")[0]).is_file(), where
                elif name and not name.endswith(".py"):
                    assert name in catalogue()["experiments"], where
                continue
            assert program in OTHERS or (ROOT / program).is_file(), where
            for word in words[1:]:
                assert not word.startswith("scripts/") or (ROOT / word).is_file(), where
                for named in re.findall(r"\[([\w,]+)\]", word) if "install" in words else ():
                    assert set(named.split(",")) <= set(extras), where
