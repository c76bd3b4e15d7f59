"""One vocabulary: the same file names in every problem folder, and no words that were given up."""

import re
from pathlib import Path

import pytest

import jaxroute

ROOT = Path(jaxroute.__file__).parent
PROBLEMS = sorted(p for p in (ROOT / "problems").iterdir() if (p / "__init__.py").exists())
# As CONTRIBUTING.md says; the paper's policy stands in the file of its name.
COMMON = {"__init__", "types", "env", "sources", "instances", "parts", "baselines", "oracle", "optimum", "theory"}
OF_THE_PAPER = {
    "staged": "stageroute",
    "combinatorial": "c2mabv",
    "service": "messplus",
    "queueing": "acqb",
    "cascade": "cosmos",
    "stochastic": "policies",
    "contextual": "policies",
}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_problem_folders_have_the_same_file_names(problem):
    names = {p.stem for p in problem.iterdir() if p.suffix == ".py" or (p.is_dir() and (p / "__init__.py").exists())}
    assert names <= COMMON | {OF_THE_PAPER[problem.name]}
    assert OF_THE_PAPER[problem.name] in names


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_no_class_and_function_differ_by_case_only(problem):
    source = "\n".join(p.read_text() for p in problem.rglob("*.py"))
    classes = {name.lower() for name in re.findall(r"(?m)^class (\w+)", source)}
    assert not classes & set(re.findall(r"(?m)^def (\w+)", source))


def test_the_words_of_the_field():
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        assert "programme" not in text, path
        assert not re.search(r"(?m)^\s*the = ", text), path
        assert not re.search(r"\bclass (Game|Crew)\b", text), path
