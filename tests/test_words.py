"""Plain English in docstrings, comments, messages and pages: the rules of CONTRIBUTING, "Words"."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# First words that make a docstring a clause without a verb.
CLAUSE = re.compile(r"(What|Who|Which|Where|How|Of|With|As|That|Those|In|For|From|By)\b")
WORDS = {
    r"\bluck\b": "common random numbers, noise",
    r"\bchances?\b": "probability",
    r"\bdear(er|est)?\b": "expensive",
    r"(?<!power )(?<!power-)\blaws?\b(?! of (large|the iterated))": "distribution",
    r"\b(is|are|was|be|been) (had|said|told)\b": "available, specified, reported",
    r"\bin place of\b": "instead of",
    r"\bbut for\b": "except",
    r"\bof (its|their|your|one's) own\b": "separate, own",
    r"\bplay(s|ed|ing)? (it|them|the|a|an|all|each|so many|what)\b": "run, simulate",
    r"\b(goes|go|went) on\b": "continue, resume",
    r"\brooms?\b|\broomier\b": "capacity",
    r"\b(is|are) kept\b": "stored, retained",
    r"\bby the clock\b": "wall-clock time",
    r"\banew\b": "again, from scratch",
    r"\b(somebody|nobody|whoever)\b": "the user, no caller",
    r"\bhand(s|ed)? (on|over)\b": "pass",
    r"\bwithout a word\b|\baloud\b": "silently, with a warning",
}
WORDS = {re.compile(pattern, re.I): instead for pattern, instead in WORDS.items()}
LONGEST = 40


def python_files():
    """Source files of the package and the scripts."""
    return sorted(p for folder in ("jaxroute", "scripts") for p in (ROOT / folder).rglob("*.py"))


def pages():
    """README, CONTRIBUTING and the pages of the site."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "notebooks" / "site").rglob("*.md"))]


def documented(path):
    """Yields (line, docstring, node) of a module and its classes and functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text, node


def prose(path):
    """Yields (line, text) of the docstrings and comments of a source file, or of a page without its code and tables."""
    if path.suffix == ".md":
        fenced = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            if not fenced and not line.lstrip().startswith(("```", "|", "<!--", "$")):
                yield number, line
        return
    for first, text, _ in documented(path):
        yield from enumerate(text.splitlines(), first)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("#"):
            yield number, line


def test_the_words_of_the_field():
    found = [
        f"{path.relative_to(ROOT)}:{n}: {match.group()!r}, say {instead}: {line.strip()}"
        for path in (*python_files(), *pages())
        for n, line in prose(path)
        for word, instead in WORDS.items()
        if (match := word.search(line))
    ]
    assert not found, "\n".join(found)


def test_docstrings_begin_with_a_verb_or_a_noun_phrase():
    found = [
        f"{path.relative_to(ROOT)}:{n}: {text.splitlines()[0]}"
        for path in python_files()
        for n, text, _ in documented(path)
        if CLAUSE.match(text)
    ]
    assert not found, "\n".join(found)


def test_fields_stand_under_attributes_one_a_line():
    found = []
    for path in python_files():
        for n, text, node in documented(path):
            if isinstance(node, ast.ClassDef):
                targets = (s.target for s in node.body if isinstance(s, ast.AnnAssign))
                fields = {target.id for target in targets if isinstance(target, ast.Name)}
                head, _, listed = text.partition("Attributes:\n")
                wrong = [line for line in head.splitlines() if line.partition(":")[0].strip().split(",")[0] in fields]
                wrong += [line for line in listed.splitlines() if (m := re.search(r"\. (\w+): ", line)) and m[1] in fields]
                found += [f"{path.relative_to(ROOT)}:{n}: {line.strip()}" for line in wrong]
    assert not found, "\n".join(found)


def sentences(path):
    """Sentences of a page or of the docstrings of a source file, without code, tables and headings; a formula is one word."""
    texts = [path.read_text()] if path.suffix == ".md" else [text for _, text, _ in documented(path)]
    for text in texts:
        text = re.sub(r"(?s)```.*?```", "", text)
        text = re.sub(r"\$[^$]*\$|`[^`]*`", "x", text)
        for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\w+: ))", text):
            code = block.strip("\n").startswith("    ") and path.suffix == ".py"
            if not code and not block.lstrip().startswith(("|", "<!--", "#", "$")):
                yield from re.split(r"(?<=[.!?:;]) ", " ".join(block.split()))


def test_sentences_are_short():
    paths = (*python_files(), *pages())
    found = [f"{path.relative_to(ROOT)}: {s}" for path in paths for s in sentences(path) if len(s.split()) > LONGEST]
    assert not found, "\n".join(found)


def test_the_lint_finds_faults(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("They meet the same luck.\n\n```text\nluck\n```\n")
    assert [n for n, line in prose(page) if any(word.search(line) for word in WORDS)] == [1]
    assert CLAUSE.match("What is stored of a run.") and not CLAUSE.match("Whether a run is stored.")
