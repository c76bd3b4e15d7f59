"""The list of what the papers have: complete, and in agreement with the experiments and the tests that it names."""

import re

import pytest
from every_experiment import EXPERIMENTS
from helpers import ROOT

PAGE = ROOT / "notebooks" / "site" / "not_confirmed.md"
KINDS = "Assumption|Algorithm|Definition|Theorem|Corollary|Lemma|Proposition|Remark|Condition|Table|Figure"


def _numbers(text):
    return {number.strip() for number in text.replace(" to ", ", ").split(",")}


def _span(*pieces):
    """Numbers, written as "1-12" or "7, 8"."""
    found = set()
    for piece in ", ".join(pieces).split(", "):
        first, _, last = piece.partition("-")
        found |= {str(n) for n in range(int(first), int(last) + 1)} if last else {first}
    return found


# What each paper numbers, from its text; figures and tables under the folder of the problem.
PAPERS = {
    "StageRoute": ("staged", {"Assumption": "1", "Algorithm": "1", "Definition": "1-2", "Theorem": "1-2", "Lemma": "1-12", "Table": "1-3", "Figure": "1-6"}),
    "C2MAB-V": ("combinatorial", {"Algorithm": "1-3", "Lemma": "1-6", "Theorem": "1-2", "Remark": "1-2", "Table": "1-4", "Figure": "1-14"}),
    "MESS+": ("service", {"Algorithm": "1", "Assumption": "1-3", "Theorem": "1-2", "Corollary": "1", "Lemma": "A.1, A.2, A.3", "Table": "1-7", "Figure": "1-3, C.1, C.2, C.3"}),
    "ACQB": ("queueing", {"Algorithm": "1-3", "Assumption": "1-4", "Theorem": "5-6, 22, 24", "Remark": "7, 15, 21, 23, 26", "Condition": "20", "Proposition": "10, 13-14, 39",
                          "Lemma": "8-9, 11-12, 16-19, 25, 27-38, 40-42", "Figure": "1-7"}),
    "COSMOS": ("cascade", {"Algorithm": "1-2", "Remark": "2.1, 3.2, 4.6, 5.2", "Proposition": "3.1, 4.1, 4.4, 4.5, 5.4, 8.8, 10.10, 11.2", "Theorem": "3.3, 5.5",
                           "Lemma": "4.2, 4.3, 5.1, 5.3, 7.1, 8.1, 8.4, 8.6, 9.1, 9.2, 10.1, 10.3, 10.5, 10.7, 10.9"}),
}  # fmt: skip


def rows(paper):
    """Items of a paper's table, each with where it is and the remark."""
    section = PAGE.read_text(encoding="utf-8").split(f"### {paper}\n")[1].split("\n### ")[0]
    found = {}
    for item, where, remark in re.findall(r"^\| (\w[^|]*) \| ([^|]*) \| ([^|]*)\|$", section, re.MULTILINE):
        if item == "item":
            continue
        kind = re.match(KINDS, item)
        assert kind, item
        for number in _numbers(item[kind.end() :].removeprefix("s")):
            assert (kind[0], number) not in found, f"{item} has two rows"
            found[kind[0], number] = where.strip(), remark.strip()
    return found


def cited(source):
    """Numbered items that a source names: "Theorem 1 and Corollary 1", "figure 3", "propositions 4.4, 4.5 and 10.10"."""
    text = re.sub(r"\bFig\. ?", "Figure ", source)
    found = set()
    for kind, numbers in re.findall(rf"\b({KINDS})s? ((?:[A-Z]?\.?\d[\d.]*[a-z]?(?:, | and )?)+)", text, re.IGNORECASE):
        for number in re.split(r", | and ", numbers):
            if number.strip(" ,"):
                found.add((kind.capitalize(), number.strip().rstrip(".").rstrip("abc")))
    return found


@pytest.mark.fast
@pytest.mark.parametrize("paper", PAPERS)
def test_every_numbered_item_has_a_row(paper):
    listed = rows(paper)
    assert set(listed) == {(kind, n) for kind, numbers in PAPERS[paper][1].items() for n in _span(numbers)}
    for item, (where, remark) in listed.items():
        names = re.findall(r"`([^`]+)`", where)
        if where == "absent":
            assert remark, f"{item} is absent: why?"
            continue
        assert names, item
        for name in names:
            assert name in EXPERIMENTS or (ROOT / name).is_file(), f"{item}: {name}"


@pytest.mark.fast
@pytest.mark.parametrize("paper", PAPERS)
def test_rows_name_the_experiments_whose_claims_cite_them(paper):
    listed, problem = rows(paper), PAPERS[paper][0]
    by_item = {}
    for name, experiment in EXPERIMENTS.items():
        if name.startswith(f"{problem}/"):
            sources = [claim.source for claim in experiment.claims if "ours" not in claim.source] or [experiment.source]
            for item in {one for source in sources if paper in source for one in cited(source)}:
                by_item.setdefault(item, set()).add(name)
    assert by_item, "claims cite nothing"
    for item, names in by_item.items():
        assert item in listed, f"{sorted(names)} cite {item}, which the paper does not have"
        assert names <= set(re.findall(r"`([^`]+)`", listed[item][0])), f"{item}: {sorted(names)}"
