"""What is shown while programs are compiled, and what is remembered of it."""

import json
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import pytest

from jaxroute.engine import progress as shown


@pytest.fixture
def terminal(capsys, monkeypatch):
    del capsys  # Which takes the place of standard error first.
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)


@pytest.fixture
def folder(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


def wait(seconds, progress=True, kind="kind of a"):
    """Waits for a program that takes so long."""
    with ThreadPoolExecutor(1) as pool:
        shown.wait_for_compilations({"a": pool.submit(time.sleep, seconds)}, {"a": kind}, progress)


def test_it_says_what_is_compiled_and_how_long_it_took_last_time(folder, terminal, capsys):
    wait(1.1)
    first = capsys.readouterr().err
    assert "compiling a [" in first and "last time" not in first
    assert json.loads((folder / "jaxroute-seconds.json").read_text()) == {"kind of a": pytest.approx(1.1, abs=0.5)}
    wait(0.05)
    assert "compiling a (1 s last time) [" in capsys.readouterr().err
    wait(0.05, kind="another")
    assert "last time" not in capsys.readouterr().err


def test_it_counts_the_compilations(folder, terminal, capsys):
    with ThreadPoolExecutor(1) as pool:
        programs = {name: pool.submit(time.sleep, 0.3) for name in "ab"}
        shown.wait_for_compilations(programs, {"a": "a", "b": "b"}, True)
    found = capsys.readouterr().err
    assert "compiling a, b, 0 of 2 done" in found and "compiling b, 1 of 2 done" in found


def test_what_comes_from_the_cache_is_not_remembered(folder):
    wait(0.01)
    assert not list(folder.iterdir())


def test_nothing_is_shown_or_kept_unasked(capsys):
    wait(0.05, progress=False)
    assert capsys.readouterr().err == ""


def test_where_there_is_no_terminal_lines_are_told_less_and_less_often(capsys, monkeypatch):
    passed = [0.0]
    monkeypatch.setattr(shown.time, "monotonic", lambda: passed[0])
    with shown.bar(100, True) as lines:
        lines.set_description("UCB1")
        for block in range(100):
            passed[0] = block
            lines.update(1)
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in told] == ["10", "20", "40", "80"]
    assert told[0] == "jaxroute: 10 s, block 11 of 100 (UCB1)"
    wait(1.1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["", "[1]", '{"kind of a": "long"}', "\x00"])
def test_a_damaged_memory_is_no_memory(folder, text, terminal, capsys):
    (folder / "jaxroute-seconds.json").write_text(text)
    wait(0.05)
    assert "compiling a [" in capsys.readouterr().err


def test_what_fails_is_waited_for_like_the_rest():
    failing, ready = Future(), Future()
    ready.set_result(1)
    threading.Timer(0.05, failing.set_exception, [ValueError("no")]).start()
    shown.wait_for_compilations({"a": failing, "b": ready}, {"a": "a", "b": "b"}, False)
    assert failing.done()
