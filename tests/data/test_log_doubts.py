"""Files whose other columns or rows show that a column is not what its name says: each is refused, with the remedy, or the doubt is printed."""

import io
import json

import numpy as np
import pandas as pd
import pytest

from jaxroute.data import read_log

ROWS = 40
BASE = pd.DataFrame({"id": [f"q{i // 2}" for i in range(ROWS)], "model": ["a", "b"] * 20})
BASE = BASE.assign(score=[1, 0, 0, 1] * 10, cost_usd=[0.01, 0.02] * 20)


def renamed(**names):
    return BASE.rename(columns=names)


BARE, PRICED = BASE.drop(columns="score"), BASE.drop(columns="cost_usd").assign(price_in=2.0, price_out=8.0)
COST = renamed(cost_usd="cost")
GOLD, GUESS = [0, 0, 1, 1] * 10, [0, 1, 1, 1] * 10
WIDE = pd.DataFrame({"id": list("pqrs"), "label": [1, 0, 0, 1], "cost_a": 0.01, "cost_b": 0.02})
STATED = {"score_a": [1, 0, 1, 1], "score_b": [0, 0, 1, 0]}


def table(text):
    """A data frame of CSV, whose cells are texts."""
    return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)


# What is read, a part of the message, and the options that the message names, with which it is read.
REFUSED = {
    "a label and a prediction": (BARE.assign(label=GOLD, prediction=GUESS), "judgements, or labels or predictions as 'prediction'", {"columns": {"score": "label"}}),
    "a prediction and what was expected": (BARE.assign(result=GUESS, expected=GOLD), "predictions as 'expected'", {"columns": {"score": "result"}}),
    "a score and the right one": (BASE.assign(gold_score=GUESS), "predictions as 'gold_score'", {"columns": {"score": "score"}}),
    "words of labels": (BARE.assign(outcome=["yes", "no"] * 20, truth=["no", "no", "yes", "yes"] * 10), "predictions as 'truth'", {"columns": {"score": "outcome"}}),
    "correct is the right answer": (BARE.assign(answer=GUESS, correct=GOLD), r"\(column 'correct'\) judgements, or labels", {"columns": {"score": "correct"}}),
    "the score of a retrieval": (BASE.assign(score=np.repeat(np.linspace(0.5, 0.9, 20), 2)), "all models have the same score on every query", {"columns": {"score": "score"}}),
    "a score of each query": (renamed(score="outcome").assign(outcome=GOLD), "is it a property of the queries", {"columns": {"score": "outcome"}}),
    "classes of each model": (WIDE.assign(a=[1, 0, 1, 1], b=[0, 0, 1, 0]), "predictions as 'label'", {"models": ["a", "b"]}),
    "classes in columns with a name": (WIDE.assign(a_result=[1, 0, 1, 1], b_result=[0, 0, 1, 0]), r"score=\*_result", {"columns": {"score": "*_result"}}),
    "probabilities beside a label": (WIDE.assign(a=[0.9, 0.1, 0.7, 0.3], b=[0.2, 0.2, 0.4, 0.3]), "predictions as 'label'", {"models": ["a", "b"]}),
    "points and their maximum": (BASE.assign(score=[3, 0, 5, 1] * 10, max_points=10), "points of which 'max_points' is the largest number.*--scale 0:10", {"scale": (0, 10)}),
    "points and several maxima": (BASE.assign(max_points=[1, 1, 2, 2] * 10), "a column of their ratio", {"columns": {"score": "score"}}),
    "lower is better": (BASE.assign(higher_is_better=False), "better the lower they are", {"columns": {"score": "score"}}),
    "a remark that turns the score": (renamed(score="Score (lower is better)"), r"may be better the lower it is: then add a column of 1 minus it", {"columns": {"score": "Score (lower is better)"}}),
    "a remark that says which end is best": (renamed(score="Rating (1 = best, 5 = worst)"), "may be better the lower it is", {"columns": {"score": "Rating (1 = best, 5 = worst)"}, "scale": (0, 1)}),
    "a verdict against the score": (BASE.assign(result=["wrong", "correct", "correct", "wrong"] * 10), "column 'result' contradicts the scores", {"columns": {"score": "result"}}),
    "a router's choices": (WIDE.assign(**STATED, score_router=[1, 0, 1, 0], cost_router=[0.01, 0.01, 0.02, 0.02]), "is 'router' a model.*or those of one of them", {"models": ["a", "b"]}),
    "a spread as a model": (WIDE.assign(**STATED, score_std=[0.5, 0, 0, 0.5], cost_std=0.005), "is 'std' a model", {"models": ["a", "b"]}),
    "units that contradict each other": (BASE.assign(latency_s=350, latency_unit="ms"), "column 'latency_unit' has the unit 'ms', but the name 'latency_s' has 's'", {"units": {"latency": "ms"}}),
    "units of ten": (renamed(cost_usd="Cost [1e-6 USD]"), "the unit in the name of .* is not known", {"units": {"cost": "micros"}}),
    "a mean among words": (pd.concat([BASE.assign(id=np.repeat([*"ABCDEFGHIJKLMNOPQRST"], 2)), BASE[:2].assign(id="Mean", score=0.5)]), "column 'id' is 'Mean': is the row a summary", None),
    "a rate of errors": (renamed(score="error_rate"), "'error_rate' may be better the lower it is", {"columns": {"score": "error_rate"}}),
    "a metric of another kind": (renamed(score="value").assign(metric="error_rate"), "of the metric 'error_rate'", {"columns": {"score": "value"}}),
    "costs in several currencies": (COST.assign(currency=["USD", "JPY"] * 20), "column 'currency' has several units of the cost, 'USD', 'JPY'", {"units": {"cost": "USD"}}),
    "an unknown currency": (COST.assign(currency="XAU"), "'XAU', which is not a known unit of the cost", {"units": {"cost": "USD"}}),
    "sums between rows": (pd.concat([BASE, BASE[:2].assign(id="Grand total (n=20)"), BASE.assign(id="z" + BASE.id)]), "row 40 .* summary of the others", None),
    "sums of many models": (pd.concat([BASE.assign(model=m) for m in "abcde"] + [BASE[:1].assign(id="Overall", model=m) for m in "abcde"]), "'Overall': is the row a summary", None),
    "a mean of other models": (WIDE.assign(**STATED, score_mean=[0.5, 0, 1, 0.5], cost_mean=0.015), "is 'mean' a model.*--models a,b", {"models": ["a", "b"]}),
    "the best of other models": (pd.concat([BASE, BASE[::2].assign(model="best", score=1, cost_usd=0.01)]), "is 'best' a model", {"models": ["a", "b"]}),
    "what was expected, as a model": (WIDE.assign(**STATED, score_expected=1, cost_expected=0.5), "is 'expected' a model", {"models": ["a", "b"]}),
    "tokens in thousands": (PRICED.assign(input_tokens=1.183, output_tokens=0.727), "are they thousands of tokens", None),
    "a remark on tokens": (PRICED.assign(**{"Input tokens (thousands)": 1.5, "Output tokens (thousands)": 0.5}), r"what 'Input tokens \(thousands\)' counts is not known", None),
    "a remark on costs": (renamed(cost_usd="cost_usd_x1000"), "what 'cost_usd_x1000' counts is not known", None),
    "cells without values": (BASE.assign(cost_usd=None), "the cells of 'cost_usd' are empty", {"costs": {"a": 1, "b": 2}}),
    "estimated and actual costs": (renamed(cost_usd="estimated_cost").assign(actual_cost=0.5), "could both be the cost", {"columns": {"cost": "actual_cost"}}),
    "ids that Excel cut": (BASE.assign(id=["1.23457E+14"] * 20 + ["1.23458E+14"] * 20), "end in zeros, as Excel leaves long numbers", {"columns": {"query": "id"}}),
    "ids in other digits": (table("id,model,score,cost\n1,a,1,1\n2,a,0,1\n1.0,b,1,1\n2.0,b,1,1\n"), "ids such as '1' and '1.0' are equal as numbers", {"missing": "zero"}),
    "one model, and those that answered": (BASE.assign(model="auto", response_model=BASE.model), "--column model=response_model", {"columns": {"model": "response_model"}}),
    "verdicts of an unknown language": (renamed(score="result").assign(result=["hai", "iie"] * 20), "'result' has hai, iie, which are not known verdicts", None),
    "dates of runs": (pd.concat([BASE.assign(run_date="2024-05-01"), BASE.assign(run_date="2024-08-01", score=1 - BASE.score)]), "differ in the column 'run_date'", {"where": {"run_date": "2024-05-01"}}),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_with_the_remedy(case):
    data, message, options = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        read_log(data)
    if options is not None:
        assert read_log(data, **options).table.num_models == 2


PRINTED = {
    "a score of each query": (BASE.assign(score=GOLD), "score: the same for all models on every query"),
    "a weaker name that differs": (BASE.assign(correct=GUESS), "'correct' could be it, too, with other values: --column score=correct"),
    "a second cost": (BASE.assign(total_cost=0.5), "'total_cost' could be it, too, with other values"),
    "costs of whole queries": (BASE.assign(cost_usd=np.repeat(np.arange(1.0, 21), 2)), "cost: doubtful, as all models have the same on each query"),
    "running sums": (BASE.assign(cost_usd=np.outer(np.arange(1, 21), [0.1, 0.01]).ravel()), "cost: doubtful, as that of every model rises from row to row"),
    "costs rounded to nothing": (BASE.assign(cost_usd=[0.01, 0] * 20), "cost: 0 for b: are small costs rounded to 0?"),
    "prices per thousand": (PRICED.assign(input_tokens=1000, output_tokens=100, price_in=0.0025, price_out=0.01), "cost: implausible prices of at most 0.01"),
    "whole seconds that are milliseconds": (BASE.assign(latency=[140, 90] * 20), "latency: not used, as its median is 115 and no unit is known"),
    "costs that are scores": (BASE.assign(cost_usd=[0, 1] * 20), "cost: doubtful, as it is 0 or 1"),
    "one page of several": ({"page": 1, "total_pages": 3, "data": BASE.to_dict("records")}, "one page of several (total_pages: 3)"),
    "more to come": ({"has_more": True, "data": BASE.to_dict("records")}, "one page of several (has_more: True)"),
}  # fmt: skip


@pytest.mark.parametrize("case", PRINTED)
def test_the_doubt_is_printed(case, tmp_path):
    data, line = PRINTED[case]
    if "data" in data:
        (tmp_path / "log.json").write_text(json.dumps(data))
        data = tmp_path / "log.json"
    assert any(line in said for said in read_log(data).read)
    assert not any(line in said for said in read_log(BASE).read)


def test_a_column_of_units():
    """Units in a column count like those in a name, alone or together with it."""
    for columns, unit, cost in (
        ({"currency": "EUR"}, "EUR per query", 0.01),
        ({"cost_unit": "cents"}, "USD per query", 0.0001),
        ({"currency": "$"}, "USD per query", 0.01),
        ({"unit": "GBP"}, "GBP per query", 0.01),
        ({"unit": "kilograms"}, "USD per query", 0.01),
    ):
        log = read_log(COST.assign(**columns))
        assert log.table.cost_unit == unit
        np.testing.assert_allclose(np.mean(log.table.costs, axis=0), [cost, 2 * cost], rtol=1e-6)
    log = read_log(renamed(cost_usd="cost_cents").assign(currency="EUR", latency=350.0, latency_unit="ms"))
    assert log.table.cost_unit == "EUR per query"
    np.testing.assert_allclose(np.mean(log.table.costs, axis=0), [1e-4, 2e-4], rtol=1e-6)
    np.testing.assert_allclose(log.latency, 0.35, rtol=1e-6)


def test_what_only_looks_like_it_is_read():
    """Labels of other values, models called like statistics with numbers of their own, ids that are words, and judgements beside the right answer."""
    assert read_log(BASE.assign(label=["cat", "dog"] * 20, total_tokens=100)).table.num_models == 2
    assert read_log(renamed(score="correct").assign(prediction=GUESS, label=GOLD)).table.num_models == 2
    own = pd.concat([BASE, BASE[::2].assign(model="max", score=[0, 1] * 10, cost_usd=0.5)])
    assert read_log(own).table.models == ("a", "b", "max")
    named = BASE.assign(id=np.repeat(["sum", "max", "sort", "join", "split", "upper", "lower", "mean", "zip", "map"] * 2, 2))
    assert read_log(named[:20]).table.num_queries == 10
    assert read_log(BASE.assign(score=1)).table.num_models == 2
    verdicts = read_log(BASE.assign(score=["richtig", "falsch", "nein", "ja"] * 10))
    np.testing.assert_array_equal(np.asarray(verdicts.table.scores)[:2], [[1, 0], [0, 1]])


SCALED = "Score (0-10);rating (0 to 10);Score [0-10];score (out of 10);Score (0-10, 10 = best);score_0_10;score_out_of_10"


@pytest.mark.parametrize("name", SCALED.split(";"))
def test_a_scale_in_the_name(name):
    """Values that look like another scale are read on that of the name."""
    log = read_log(renamed(score=name).assign(**{name: [1, 5, 4, 2] * 10}), columns={"score": name})
    np.testing.assert_allclose(np.asarray(log.table.scores)[:2], [[0.1, 0.5], [0.4, 0.2]], atol=1e-6)


def test_counts_units_and_ids_that_mean_no_harm(tmp_path):
    """Numbers of samples, a currency beside a cost that names its own, long ids, ids that are words of statistics, and remarks."""
    for name in ("pages", "data"):  # All that there is.
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"has_more": False, name: BASE.to_dict("records")}))
        assert not any("one page of several" in line for line in read_log(file).read)
    for column in ("n", "total", "max", "num_questions"):
        assert read_log(BASE.assign(**{column: 20})).table.num_models == 2
    table = read_log(BASE.assign(currency="EUR")).table
    assert table.cost_unit == "USD per query"
    stamps = BASE.assign(id=[1_718_000_000_000_000_000 + 1_000_000_000 * (i // 2) for i in range(ROWS)])
    assert read_log(stamps).table.num_queries == 20
    names = "Score (no errors = 1);Score (1 = correct);Accuracy (exact match);Correct (true/false);pass_rate"
    for name in names.split(";"):
        assert read_log(renamed(score=name)).table.num_models == 2
    with pytest.raises(ValueError, match="outside the scale 0:10 that was given, or is in the name"):
        read_log(renamed(score="Score (0-10)").assign(**{"Score (0-10)": [1, 12] * 20}))
    for name in ("Cost (USD, est.)", "Cost (mean, USD)", "Cost [USD]"):
        assert read_log(renamed(cost_usd=name)).table.cost_unit == "USD per query"
