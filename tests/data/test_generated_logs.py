"""Logs written at random are read exactly, or refused with the file and a remedy; faults that the reader once had are found by them."""

from collections import Counter
from itertools import count, islice

import pytest
from hypothesis import HealthCheck, given, settings
from log_tables import draw_table, judge, log_tables
from old_faults import FAULTS, put_back

from jaxroute.data import read_log

GOOD = ("right", "refused ambiguous", "refused determined")


def verdict(drawn, folder):
    folder.mkdir()
    try:
        outcome = read_log(drawn.write(folder), **drawn.options)
    except ValueError as error:
        outcome = error
    return judge(drawn, outcome)


@pytest.mark.fast
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(drawn=log_tables())
def test_a_log_written_at_random_is_never_read_wrongly(drawn, tmp_path_factory):
    assert verdict(drawn, tmp_path_factory.mktemp("log") / "log") in GOOD


@pytest.mark.slow
def test_twenty_thousand_logs(tmp_path):
    found = Counter(verdict(draw_table(seed), tmp_path / str(seed)) for seed in range(50_000, 70_000))
    determined = found["right"] + found["refused determined"]
    assert set(found) <= set(GOOD), found
    assert found["refused determined"] < 0.02 * determined, found


@pytest.mark.fast
@pytest.mark.parametrize("number", FAULTS)
def test_the_generated_logs_find_a_fault_that_is_put_back(number, tmp_path, monkeypatch):
    """Among draws that show the kind of the fault, some are wrong with it and none without."""
    drawn = list(islice((table for seed in count() if number in (table := draw_table(seed)).kinds), 25))
    assert all(verdict(table, tmp_path / f"without {place}") in GOOD for place, table in enumerate(drawn))
    put_back(number, monkeypatch)
    wrong = [place for place, table in enumerate(drawn) if verdict(table, tmp_path / f"with {place}") not in GOOD[:2]]
    assert wrong, number
