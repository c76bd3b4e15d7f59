"""Files in the formats of tools, and logs written at random: they are read exactly, or refused with the file and a remedy."""

from collections import Counter
from itertools import count, islice

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from log_tables import draw_table, judge, log_tables
from old_faults import FAULTS, put_back
from tool_formats import FORMATS

from jaxroute.data import read_answers, read_log

GOOD = ("right", "refused ambiguous", "refused determined")


def verdict(drawn, folder):
    folder.mkdir()
    try:
        outcome = read_log(drawn.write(folder), **drawn.options)
    except ValueError as error:
        outcome = error
    return judge(drawn, outcome)


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


@pytest.mark.parametrize("number", FAULTS)
def test_the_generated_logs_find_a_fault_that_is_put_back(number, tmp_path, monkeypatch):
    """Among draws that show the kind of the fault, some are wrong with it and none without."""
    drawn = list(islice((table for seed in count() if number in (table := draw_table(seed)).kinds), 25))
    assert all(verdict(table, tmp_path / f"without {place}") in GOOD for place, table in enumerate(drawn))
    put_back(number, monkeypatch)
    wrong = [place for place, table in enumerate(drawn) if verdict(table, tmp_path / f"with {place}") not in GOOD[:2]]
    assert wrong, number


def test_judge_wants_a_file_and_a_remedy():
    draws = map(draw_table, count())
    drawn = next(drawn for drawn in draws if not drawn.determined and drawn.form["kind"] == "csv" and not drawn.says)
    assert judge(drawn, ValueError("what?")) == "silently wrong: the message lacks the file"
    assert judge(drawn, ValueError(f"{drawn.form['stem']}.csv: what?")) == "silently wrong: the message lacks a remedy"
    assert judge(drawn, ValueError(f"{drawn.form['stem']}.csv: give scale=(LOW, HIGH)")) == "refused ambiguous"


def same(found, wanted):
    pairs = zip(found, wanted, strict=True)
    return all(want is None or np.isclose(value, want, rtol=1e-6, atol=1e-12) for value, want in pairs)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_formats_of_tools(form, tmp_path):
    path = form.write(tmp_path)
    if form.refused:
        with pytest.raises(ValueError) as error:
            read_log(path)
        assert form.refused in str(error.value) and str(path) in str(error.value)
        return
    if form.logged:
        frame = read_answers(path)
        means = frame.groupby([frame["query"].astype(str), "model"])[["score", "cost", "seconds"]].mean()
        assert set(means.index) == form.truth.keys()
        for pair, wanted in form.truth.items():
            assert same(means.loc[pair], wanted), (pair, means.loc[pair], wanted)
        with pytest.raises(ValueError, match="one model alone|lacks a column for the score"):
            read_log(path)
        return
    models = sorted({model for _, model in form.truth})
    costs = None if form.prices or next(iter(form.truth.values()))[1] is not None else dict.fromkeys(models, 0.01)
    log = read_log(path, prices=form.prices, costs=costs, features="none")
    table = log.table
    assert log.read[0].count("; ") == 2, "the third part names the recognised format"
    assert sorted(table.models) == models and table.num_queries == len({query for query, _ in form.truth})
    for model in models:
        column = table.models.index(model)
        found = [table.scores[:, column], table.costs[:, column]]
        found += [] if log.latency is None else [log.latency[:, column]]
        wanted = np.array([truth for (_, other), truth in form.truth.items() if other == model], float)
        tolerance = 0.04 if form.texts else 1e-5
        for values, want in zip(found, wanted.T, strict=False):
            if not np.isnan(want).any():
                np.testing.assert_allclose(np.sort(values), np.sort(want), rtol=tolerance, atol=1e-7)
