"""Reading logs of served queries: recognised, converted, and refused where something decides that the file does not say."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from served_cases import MODELS, full_table, served

from jaxroute.data import Log, ServedLog, read_log, read_recorded, read_served


def test_a_served_log_is_recognised_and_read():
    frame = served(
        300, timestamp=pd.date_range("2026-10-01", periods=300, freq="h"), user_id=[f"u{i // 2}" for i in range(300)]
    )
    log = read_recorded(frame)
    assert isinstance(log, ServedLog) and (log.num_queries, log.num_answers, log.num_models) == (300, 300, 3)
    order = [MODELS.index(name) for name in log.models]
    assert (np.array(order)[log.model] == [MODELS.index(name) for name in frame["model"]]).all()
    for name, column in (("scores", "score"), ("costs", "cost_usd"), ("propensity", "propensity")):
        assert np.allclose(getattr(log, name), frame[column]), name
    assert log.users is not None and len(np.unique(log.users)) == 150
    assert [log.group_names[g] for g in log.groups[:5]] == frame["category"][:5].tolist()
    assert log.dates[1] - log.dates[0] == np.timedelta64(1, "h")
    assert log.source == "column 'propensity'"
    part = log.take(np.arange(100, 200))
    assert (
        part.num_queries == 100
        and np.array_equal(part.scores, log.scores[100:200])
        and len(part.features or part.groups) == 100
    )


def test_a_complete_table_stays_one():
    _, scores, costs = full_table(50)
    frame = pd.DataFrame(
        {f"score_{m}": scores[:, i] for i, m in enumerate(MODELS)} | {f"cost_{m}": costs[:, i] for i, m in enumerate(MODELS)}
    )
    assert isinstance(read_recorded(frame), Log)
    long = pd.DataFrame([(f"q{q}", m, scores[q, i], costs[q, i]) for q in range(50) for i, m in enumerate(MODELS)])
    long.columns = ["query_id", "model", "score", "cost"]
    assert isinstance(read_recorded(long), Log)


@pytest.mark.parametrize("form", ["wide", "long"])
def test_both_layouts_give_the_same_log(form):
    frame = served(200, propensity=None)
    if form == "wide":
        wide = {f"score_{m}": np.where(frame["model"] == m, frame["score"], np.nan) for m in MODELS}
        wide |= {f"cost_{m}": np.where(frame["model"] == m, frame["cost_usd"], np.nan) for m in MODELS}
        frame = pd.DataFrame({"query_id": frame["request_id"], **wide})
    log = read_recorded(frame)
    assert isinstance(log, ServedLog) and log.propensity is None and log.source == "unknown"
    expected = served(200)
    assert np.allclose(log.scores, expected["score"]) and np.allclose(log.costs, expected["cost_usd"])
    assert [log.models[m] for m in log.model] == expected["model"].tolist()


def test_rows_without_ids_are_queries_only_where_that_is_said():
    frame = served(200, request_id=None, propensity=None)
    with pytest.raises(
        ValueError, match=r"no column of queries.*if each row is a query.*--logging uniform, --logging estimated"
    ):
        read_recorded(frame)
    log = read_recorded(frame, logging="uniform")
    assert log.num_queries == 200 and np.allclose(log.propensity, 1 / 3) and log.source == "all models equally likely"
    assert read_recorded(served(200, request_id=None)).num_queries == 200  # Propensities say so, too.
    # The same prompt at different times is several queries, in one cluster.
    texts = [f"what is {i % 50} plus {i % 50} times seven and why" for i in range(200)]
    log = read_recorded(served(200, request_id=None, prompt=texts), features="none")
    assert log.num_queries == 200 and len(np.unique(log.clusters)) == 50


def test_several_answers_to_a_query_are_used_as_they_are():
    frame = served(100)
    again = frame.iloc[:5].assign(model=np.where(frame["model"][:5] == "large", "small", "large"), propensity=0.5)
    log = read_recorded(pd.concat([frame, again]))
    assert log.num_queries == 100 and log.num_answers == 105
    repeated = read_recorded(pd.concat([frame, frame.iloc[:3].assign(score=1 - frame["score"][:3])]))
    assert repeated.num_answers == 100 and (repeated.scores[:3] == 0.5).all()
    assert any(line.startswith("repeats") for line in repeated.read)
    uniform = read_recorded(pd.concat([frame, again]).drop(columns="propensity"), logging="uniform")
    assert sorted({round(p, 6) for p in uniform.propensity}) == [round(1 / 3, 6), round(2 / 3, 6)]


def test_answers_without_score_or_cost_are_counted_and_left_out():
    frame = served(300)
    frame.loc[frame.index % 3 == 0, "score"] = np.nan
    frame.loc[1, "cost_usd"] = np.nan
    log = read_recorded(frame)
    assert log.num_answers == 199 and log.unscored.sum() == 100
    assert any("100 of 300 answers have none" in line for line in log.read)
    assert any("left out: 1 of 300 answers without a cost" in line for line in log.read)


def test_copies_of_rows_count_once_in_errors():
    frame = served(300, request_id=None, timestamp=pd.date_range("2026-10-01", periods=300, freq="h"))
    log = read_recorded(pd.concat([frame, frame.iloc[:60]]))
    assert any(line.startswith("copies: 60 of 360 rows") for line in log.read)
    assert log.num_queries == 360 and len(np.unique(log.clusters)) == 300


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"propensity": np.zeros(100)}, {}, r"row 0.*'propensity' is 0.*in \(0, 1\].*had a probability above 0"),
        ({"propensity": np.full(100, 25.0)}, {}, r"is 25.*is it percent, or one divided by the probability"),
        ({}, {"logging": "uniform"}, r"has propensities in 'propensity', and logging is 'uniform'.*--column propensity="),
        ({}, {"logging": "random"}, r"logging must be one of"),
        ({"model": ["small"] * 100}, {}, r"has one model, 'small': there is nothing to choose"),
        ({"score": None}, {}, r"lacks a column for the"),
    ],
)
def test_what_cannot_be_read_is_named(change, options, message):
    with pytest.raises(ValueError, match=message):
        read_recorded(served(100, **change), **options)


def test_options_are_those_of_read_log():
    with pytest.raises(TypeError, match="did you mean 'columns'"):
        read_served(served(100), colums={})
    log = read_served(served(100).rename(columns={"propensity": "chance"}), columns={"propensity": "chance"})
    assert log.propensity is not None
    with pytest.raises(ValueError, match=r"in Python read_served"):
        read_log(served(100, propensity=None))


def test_the_line_of_python_reads_the_file_again(tmp_path):
    file = tmp_path / "served.csv"
    served(60).to_csv(file, index=False)
    log = read_recorded(file)
    assert log.opened == f"log = jaxroute.data.read_served({str(file)!r})"


def test_columns_that_a_tool_s_format_leaves_out_can_be_named(tmp_path):
    """A gateway's export has more columns than those that are converted: the user's probabilities and costs, for example."""
    source = Path(__file__).parents[1] / "support" / "tool_formats" / "litellm_json"
    records = json.loads(next(source.glob("*.json")).read_text())
    records = records if isinstance(records, list) else records["data"]
    file = tmp_path / "spend.json"
    file.write_text(json.dumps([{**r, "score": i % 2, "our_odds": 0.5, "our_bill": 0.25} for i, r in enumerate(records)]))
    log = read_recorded(file, columns={"propensity": "our_odds", "cost": "our_bill"}, logging=None)
    assert isinstance(log, ServedLog) and set(log.costs) == {0.25} and set(log.propensity) == {0.5}
    with pytest.raises(ValueError, match=r"columns\['cost'\] is 'bill', which .* lacks"):
        read_recorded(file, columns={"cost": "bill"})


def test_models_of_a_served_log_cannot_be_left_out():
    with pytest.raises(ValueError, match="has one model per query, and large would be left out"):
        read_recorded(served(100), models=["small", "middle"])
