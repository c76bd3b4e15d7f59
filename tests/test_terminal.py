"""Output in a terminal: widths, colours, lines of progress, completion."""

import io
import os
import subprocess
import sys

import pytest

from jaxroute import cli
from jaxroute.catalogue import catalogue
from jaxroute.cli import completion, output, run
from jaxroute.cli.output import Output
from jaxroute.engine import progress


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "variables", "expected"),
    [
        (Screen(), {}, True),
        (io.StringIO(), {}, False),
        (Screen(), {"NO_COLOR": "1"}, False),
        (Screen(), {"NO_COLOR": ""}, True),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (Screen(), {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_where_they_are_wanted(stream, variables, expected, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm"} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", stream)
    Output().rows([("label", "text", "red")])
    Output().rows([("text",)], ("Head",))
    assert ("\033[31m" in stream.getvalue()) == ("\033[1m" in stream.getvalue()) == expected
    assert ("\033" in stream.getvalue()) == expected


def test_verdicts_are_coloured_and_claims_fit(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    claims = [
        {"verdict": verdict, "text": "holds refuted not decided " * 5, "source": "Fig. 1", "measured": "1 against 2 " * 9}
        for verdict in ("holds", "refuted", "not decided")
    ]
    run.print_claims(claims, 8, Output())
    lines = capsys.readouterr().out.splitlines()
    for colour, verdict in ((32, "holds"), (31, "refuted"), (33, "not decided")):
        assert sum(line.startswith(f"  \033[{colour}m{verdict}\033[0m ") for line in lines) == 1
    assert max(len(line) for line in lines if "\033" not in line) <= 60


@pytest.mark.parametrize(("said", "columns", "width"), [(None, 80, 80), ("200", 200, 110), ("20", 40, 40)])
def test_lines_are_as_wide_as_the_terminal(said, columns, width, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    if said:
        monkeypatch.setenv("COLUMNS", said)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: (_ for _ in ()).throw(OSError))  # A pipe.
    assert (output.table_width(), output.text_width()) == (columns, width)


@pytest.mark.parametrize("columns", [80, 60])
def test_the_list_fits(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns and not any(line.endswith(" ") for line in lines)


def test_progress_is_told_ever_less_often(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    lines = progress.LineProgress(100)
    lines.set_description("UCB1")
    for second in range(1, 101):
        clock[0] = float(second)
        lines.update(1)
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in told] == ["10", "20", "40", "80"]
    assert told[0] == "jaxroute: 10 s, block 10 of 100 (UCB1)"


# Completion.


def completed(line):
    """Returns the completions of a line, from a process that does not import jax."""
    code = (
        "import sys; from jaxroute import cli\n"
        "try: cli.main()\n"
        "finally: assert 'jax' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    asked |= {"_ARGCOMPLETE_STDOUT_FILENAME": "/dev/stdout", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("jaxroute ", ["run", "list", "completion"]),
        ("jaxroute list sta", ["staged"]),
        ("jaxroute run staged/figure-2 --no-fig", ["--no-figures"]),
        ("jaxroute data log.csv --column to", ["tokens_in=", "tokens_out="]),
    ],
)
def test_a_shell_is_told_what_fits(line, among):
    pytest.importorskip("argcomplete")
    found = [text.strip() for text in completed(line)]
    assert set(among) <= set(found)
    assert all(text.startswith(line.rpartition(" ")[2]) for text in found)


def test_names_and_files_are_completed(tmp_path, monkeypatch):
    pytest.importorskip("argcomplete")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    (tmp_path / "log.csv").touch()
    (tmp_path / "folder").mkdir()
    names = completion.experiments("")
    assert set(catalogue()["experiments"]) < set(names) and {"mine.py", "folder/"} < set(names)
    assert "log.csv" not in names and completion.problems() == list(catalogue()["problems"])
    assert [text.strip() for text in completed("jaxroute data l")] == ["log.csv"]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_each_shell_has_a_script(shell, capsys):
    pytest.importorskip("argcomplete")
    assert cli.main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    assert "jaxroute" in shown and "_ARGCOMPLETE" in shown
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=shown, text=True, check=True)


def test_without_argcomplete_it_says_what_is_needed(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert cli.main(["completion", "bash"]) == 2
    assert 'completion needs argcomplete: pip install "jaxroute[completion]"' in capsys.readouterr().err
