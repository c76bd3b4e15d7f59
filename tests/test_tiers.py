"""Which tests wait for the slow tier."""

import re

import tiers
from helpers import ROOT


def test_what_is_listed_is_there():
    sources = {}
    for test in tiers.listed():
        file, name = re.match(r"([^:]+)::(?:\w+::)?(\w+)", test).groups()
        text = sources.setdefault(file, (ROOT / "tests" / file).read_text())
        assert f"def {name}(" in text, f"{test} is in {tiers.LIST.name}, and nowhere else"


def test_the_longest_wait_and_one_case_stays():
    report = """
        3.00s call     tests/a.py::one[x]
        2.00s setup    tests/a.py::one[y]
        1.50s call     tests/a.py::one[y]
        99.00s call     tests/a.py::alone
        5.00s call     tests/b.py::other
        0.25s teardown tests/b.py::other
    """
    seconds = tiers.measured(report.replace("        ", ""))
    assert seconds == {"a.py::one[x]": 3.0, "a.py::one[y]": 3.5, "a.py::alone": 99.0, "b.py::other": 5.25}
    assert tiers.long_ones(seconds, 200.0) == set()
    assert tiers.long_ones(seconds, 20.0) == {"a.py::alone"}
    assert tiers.long_ones(seconds, 10.0) == {"a.py::alone", "a.py::one[y]"}
    assert tiers.long_ones(seconds, 0.0) == {"a.py::alone", "a.py::one[y]"}  # One case of each stays.
