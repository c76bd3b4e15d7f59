"""Kinds of logs that a careful reviewer found to be read wrongly or refused without need, each with the answer that is right."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jaxroute.data import RoutingTable, read_log

ROWS = 40
BASE = pd.DataFrame({"query_id": [f"q{i // 2}" for i in range(ROWS)], "model": ["a", "b"] * 20})
BASE = BASE.assign(score=[1, 0, 0, 1] * 10, cost=[0.1, 0.2] * 20)
USED = BASE.assign(tokens_in=1000, tokens_out=500)
BARE, WIDE = BASE.drop(columns="score"), {"query_id": list("abcd"), "score_x": [1, 0, 1, 0], "score_y": [0, 0, 1, 1]}
PRICES = {"a": (1, 2), "b": (2, 4)}
USAGE = {"input_tokens": 10, "output_tokens": 10_000, "cache_read_input_tokens": 5000, "total_tokens": 10_010}


def answers(**columns):
    """Records of twenty queries and two models; a column is a value, or a function of query and model."""
    pairs = [(query, model) for query in range(20) for model in "ab"]
    made = [{name: of(*pair) if callable(of) else of for name, of in columns.items()} for pair in pairs]
    return [
        {"query_id": q, "model": m, "score": (q if m == "a" else q // 2) % 2, **more}
        for (q, m), more in zip(pairs, made, strict=True)
    ]


def half(cost_a=0.1, cost_b=0.2, queries=20, models=("a", "b"), scores=(0.5, 0.5)):
    return models, list(scores), [cost_a, cost_b], queries


def part(model):
    return BASE[BASE.model == model].drop(columns="model")


# What is read, the options, and models, mean scores, mean costs and number of queries.
READ = {
    "percent signs, and the scale": (BASE.assign(score=["84%", "50%"] * 20), {"scale": (0, 100)}, half(scores=(0.84, 0.5))),
    "percent in the name, and the scale": (BARE.assign(score_pct=[84, 50] * 20), {"scale": (0, 100)}, half(scores=(0.84, 0.5))),
    "fractions under percent, and the scale": (BARE.assign(acc_pct=[0.84, 0.5] * 20), {"scale": (0, 1)}, half(scores=(0.84, 0.5))),
    "rows without an id": ({"query_id": ["a", "b", None, None, None, "c"], "score_x": [1, 0, 1, 0, 1, 1], "score_y": [0, 0, 1, 1, 1, 1]} | {"cost_x": [0.1] * 6, "cost_y": [0.2] * 6}, {}, half(queries=6, models=("x", "y"), scores=(2 / 3, 2 / 3))),
    "models called like numbers": (BASE.assign(model=["3.5", "4"] * 20), {}, half(models=("3.5", "4"))),
    "ids with a point": (BASE.assign(query_id=[f"1.{i // 2}" for i in range(ROWS)]), {}, half()),
    "columns of errors": (BASE.rename(columns={"query_id": "id"}).assign(execution_time=1.2, error=""), {}, half()),
    "queries that no chosen model has": (pd.concat([BASE[BASE.query_id < "q2"], BASE.assign(model="c")]), {"models": ["a", "b"], "missing": "zero"}, half(queries=12)),
    "scores late in the file": (pd.DataFrame({"query_id": np.repeat(np.arange(3000), 2), "model": ["a", "b"] * 3000}) .assign(score=[None] * 4100 + [1, 0] * 950, label=[0, 1] * 3000, cost=0.1), {}, half(0.1, 0.1, 950, scores=(1, 0))),
    "cached tokens beside the input": (answers(**USAGE), {"prices": dict.fromkeys("ab", (3, 15, 0.3))}, half(0.15153, 0.15153)),
    "a spend beside a cost per request": (BASE.drop(columns="cost").assign(spend=0.01, startTime="2025-01-01T00:00:00"), {}, half(0.01, 0.01)),
    "columns of two levels": (pd.DataFrame(np.c_[[1, 0, 1, 0], [0, 1, 1, 0], [0.1] * 4, [0.2] * 4], columns=pd.MultiIndex.from_product([["score", "cost"], ["gpt-4", "cl"]])), {}, half(queries=4, models=("gpt-4", "cl"))),
    "an id that is the index and a column": (BASE.set_index("query_id", drop=False), {}, half()),
    "units between name and model": (WIDE | {"cost_x_cents": [0.1] * 4, "cost_y_cents": [0.2] * 4}, {}, half(0.001, 0.002, 4, ("x", "y"))),
    "models with a common beginning": ({"query_id": list("abcd"), "gpt-j_score": [1, 0, 1, 0], "gpt-neo_score": [0, 0, 1, 1]} | {"gpt-j_cost": [0.1] * 4, "gpt-neo_cost": [0.2] * 4}, {}, half(queries=4, models=("gpt-j", "gpt-neo"))),
    "a model called like a unit": ({"query_id": list("abcd"), "x_pct": [1, 0, 1, 0], "y": [0, 0, 1, 1], "x_pct_cost": [0.1] * 4, "y_cost": [0.2] * 4}, {}, half(queries=4, models=("x_pct", "y"))),
    "repeated answers of other lengths": (pd.concat([USED.assign(tokens_out=500 + r, total_tokens=1500 + r, reasoning_tokens=64 * r, response_chars=90 + r, latency_ms=900 + r, duration_s=2 + r) for r in (1, 2)]), {}, half()),
    "runs with a date": (pd.concat([BASE.assign(run=r, date=f"2025-01-0{r}", region=f"r{r}") for r in (1, 2)]), {}, half()),
    "an empty value that is chosen": (pd.concat([BASE.assign(setting=None), BASE.assign(setting="x")]), {"where": {"setting": ""}}, half()),
    "another scale of a model that is left out": (pd.concat([BASE, BASE[BASE.model == "a"].assign(model="c", score=[0, 100] * 10)]), {"models": ["a", "b"]}, half()),
    "means of tokens with three digits": (answers(tokens_in="26.333", tokens_out="14.000"), {"prices": {"a": (1, 1), "b": (1, 1)}}, half(4.0333e-05, 4.0333e-05)),
    "prices by direction and token": (answers(tokens_in=1000, tokens_out=500, usd_per_input_token=1e-6, UsdPer1kOutputTokens=2e-3), {}, half(0.002, 0.002)),
    "tokens of two kinds of input beside models": ({"query_id": list("abcd"), "x": [1, 0, 1, 0], "y": [0, 0, 1, 1]} | {f"{m}_{name}": [size] * 4 for m in "xy" for name, size in (("num_input_tokens", 100), ("num_output_tokens", 10), ("cache_read_input_tokens", 50))}, {"prices": dict.fromkeys("xy", (1, 2, 0.1))}, half(1.25e-04, 1.25e-04, 4, ("x", "y"))),
    "a mark at the end of rows": (("t.csv", "query_id,model,score,cost\n" + "".join(f"q{i},{m},{i % 2},.1,\n" for i in range(5) for m in "ab")), {}, half(0.1, 0.1, 5, scores=(0.4, 0.4))),
    "dots and commas in answers": (("t.tsv", "query_id\tmodel\tscore\tcost\tanswer\tlatency_ms\n" + "".join(f"q{i}\t{m}\t{i % 2}\t0.001\t3,14\t1234\n" for i in range(10) for m in "ab")), {}, half(0.001, 0.001, 10)),
    "numbers in lines of prompts": (("t.csv", BASE.assign(prompt=[f"Sort {i // 2}:\n1,2,3,4,5\n6,7,8,9,10\nplease" for i in range(ROWS)]).to_csv(index=False)), {}, half()),
}  # fmt: skip
RECORDS = [{"query_id": q, "model": m, "score": s, "cost": c} for q, m, s, c in BASE.itertuples(index=False)]
# Shapes of JSON.
JSON = {
    "objects by id": {str(i): record for i, record in enumerate(RECORDS)},
    "columns that are objects by id": BASE.to_dict(),
    "lists by model": {"a": part("a").to_dict("records"), "b": part("b").to_dict("records")},
    "numbered objects": {"rows": {str(i): record for i, record in enumerate(RECORDS)}},
    "objects by query and model": {q: {m: {"score": s, "cost": c} for _, m, s, c in of.itertuples(index=False)} for q, of in BASE.groupby("query_id", sort=False) },
    "objects by model and query": {m: {q: {"score": s, "cost": c} for q, _, s, c in of.itertuples(index=False)} for m, of in BASE.groupby("model")},
    "answers in a list": [{"query_id": q, "answers": of.drop(columns="query_id").to_dict("records")} for q, of in BASE.groupby("query_id", sort=False)],
}  # fmt: skip
READ |= {f"JSON, {shape}": (("t.json", value), {}, half()) for shape, value in JSON.items()}


def source(data, folder):
    """Returns data in memory; a pair (name of a file, its text or JSON value) is written, and its path returned."""
    if not isinstance(data, tuple):
        return data
    name, content = data
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder / name


def assert_found(log, expected):
    table, (models, scores, costs, queries) = log.table, expected
    assert (table.models, table.num_queries) == (models, queries)
    np.testing.assert_allclose(table.mean_scores(), scores, atol=1e-6)
    np.testing.assert_allclose(table.mean_costs(), costs, rtol=1e-4)


@pytest.mark.parametrize("case", READ)
def test_it_is_read_rightly(case, tmp_path):
    data, options, expected = READ[case]
    assert_found(read_log(source(data, tmp_path), **options), expected)


# What is refused, the options, and a part of the message.
REFUSED = {
    "0 and 1 under percent": (BARE.assign(acc_pct=[1, 0, 0, 1] * 10), {}, "'acc_pct' has percent in its name, and numbers from 0 to 1"),
    "letters as scores of one model": (WIDE | {"score_z": list("ABCA"), "cost_x": [0.1] * 4, "cost_y": [0.2] * 4, "cost_z": [0.3] * 4}, {}, "column 'score_z' is 'A', which is not a number"),
    "words and fractions": (BASE.assign(score=["good", "bad", 0.25, 0.5] * 10), {}, "has words .* and numbers .*: write all in the same way"),
    "a latency with and without a unit": (BASE.assign(latency=["350ms", "2"] * 20), {}, "'2' without a unit, but others have one"),
    "features of queries in another order": (BASE.assign(query_id=[int(i) for i in np.random.default_rng(1).permutation(20).repeat(2)]), {"features": np.ones((20, 2))}, "in the order of their numbers, which is not that of the file"),
    "no columns": ([{}], {}, "has no columns"),
    "rows of tasks": ({"task_id": [1, 2, 3] * 10, "score_a": [0, 1] * 15, "score_b": [1, 0] * 15, "cost_a": [0.1] * 30, "cost_b": [0.2] * 30}, {}, "several rows with one 'task_id'"),
    "scores without a cost": (WIDE | {"score_human": [1] * 4, "cost_x": [0.1] * 4, "cost_y": [0.2] * 4}, {}, r"has no cost of human: keep the others \(models="),
    "a price called a cost": (BASE.rename(columns={"cost": "price (USD/1M)"}), {}, "has no costs: give the cost of each model"),
    "a unit that is not known": (BASE.rename(columns={"cost": "cost_nano_usd"}), {"columns": {"cost": "cost_nano_usd"}}, "unit in the name of 'cost_nano_usd'"),
    "units in a list": (BASE, {"units": ["ms"]}, r"units must map roles to units, as .*, got \['ms'\]"),
    "values in a list": (BASE, {"where": ["a"]}, r"where must map columns to values, as .*, got \['a'\]"),
    "costs of one model": ({"prompt": ["x", "y"], "a": [1, 0], "b": [0, 1]}, {"costs": {"a": 0.5}}, "only 'a' is named, and there is nothing to choose"),
    "costs of a model that is not there": ({"prompt": ["x", "y"], "a": [1, 0], "b": [0, 1]}, {"costs": {"a": 0.5, "c": 1}}, "'c' is not a column"),
    "cached tokens without a price": (answers(**USAGE), {"prices": PRICES}, "has cached tokens, and their price is unknown"),
    "repeated answers to prompts of other lengths": (pd.concat([USED.assign(tokens_in=1000 + r) for r in (1, 2)]), {}, "which differ in the column 'tokens_in'"),
    "a role without an effect": (USED, {"columns": {"tokens_in": "tokens_in"}}, "has no effect in this file, as costs are stated"),
    "a row of means": (pd.concat([BASE, pd.DataFrame({"query_id": ["Mean"] * 2, "model": ["a", "b"], "score": [0.5, 0.5], "cost": [0.1, 0.2]})]), {}, "column 'query_id' is 'Mean': is the row a summary of the others"),
    "two names of one model": (BASE.assign(query_id=range(ROWS), model=["openai/gpt-q", "gpt-q-2025-08-06"] * 20), {}, "'openai/gpt-q' and 'gpt-q-2025-08-06' never answer the same query: are they two names of one model"),
    "prices of input that nothing counts": (BASE.assign(tokens_out=500), {"prices": PRICES}, "has neither input tokens nor texts of queries"),
    "objects of objects": ({"x": 1}, {}, "equal lengths"),
    "a quotation mark that is not closed": (("t.csv", "query_id\tmodel\tscore\tcost\tprompt\n" + "".join(f"q{i // 2}\t{'ab'[i % 2]}\t{i % 2}\t.1\t{chr(34) if i in (10, 40) else ''}prompt of {i // 2}\n" for i in range(60))), {}, "a quotation mark is not closed"),
    "points between thousands": (("t.csv", "query_id;model;score;tokens_in;tokens_out\n" + "".join(f"q{i};{m};{i % 2};{'1.234' if i % 2 else '987'};2.001\n" for i in range(10) for m in "ab")), {"prices": {"a": (1, 1), "b": (1, 1)}}, "'1.234': is the point between thousands"),
    "several lists in JSON": (("t.json", {"a": RECORDS, "b": [{"query_id": 1, "model": "a", "score": 1, "cost": 2, "more": 3}]}), {}, "has several lists of records, 'a', 'b'"),
    "unclear objects in JSON": (("t.json", {"a": {"x": {"score": 1}, "y": {"score": 1}}, "b": {"x": {"score": 1}, "y": {"score": 0}}}), {}, "does not show which of them are the models"),
    "an object in JSON": (("t.json", {"a": 1}), {}, "must be a list of records .* got an object with 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case, tmp_path):
    data, options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        read_log(source(data, tmp_path), **options)


GERMAN = {"Frage": ["q1", "q2", "q3", "q4"], "Groß Bewertung": [5, 4, 1, 2], "Groß Kosten (Cent)": [1.0, 1.0, 1.0, 3.0]}
GERMAN |= {"Klein Bewertung": [3, 1, 1, 2], "Klein Kosten (Cent)": [0.1, 0.1, 0.1, "k. A."]}
SHAPES = {"score": "* Bewertung", "cost": "* Kosten (Cent)"}


def test_words_of_another_language():
    with pytest.raises(ValueError, match=r"'Groß Bewertung'.* could be scores of models: .*--column 'score=\* NAME'"):
        read_log(GERMAN)
    log = read_log(GERMAN, columns=SHAPES)
    assert_found(log, half(0.01, 0.001, 3, ("Groß", "Klein"), scores=(7 / 12, 1 / 6)))
    centimes = {name.replace("Kosten (Cent)", "coût (centimes)"): cells for name, cells in GERMAN.items()}
    log = read_log(centimes, columns=SHAPES | {"cost": "* coût (centimes)"})
    assert_found(log, half(0.01, 0.001, 3, ("Groß", "Klein"), scores=(7 / 12, 1 / 6)))
    coins = {name.replace("Cent", "Rappen"): cells for name, cells in GERMAN.items()}
    with pytest.raises(ValueError, match="the unit in the name of .*Rappen.* is not known: give it"):
        read_log(coins, columns=SHAPES | {"cost": "* Kosten (Rappen)"})
    means = {name: [*cells, "Mittelwert" if name == "Frage" else 2.25] for name, cells in GERMAN.items()}
    with pytest.raises(ValueError, match="column 'Frage' is 'Mittelwert': is the row a summary of the others"):
        read_log(means, columns=SHAPES)


def test_several_scores_of_each_answer():
    records = [
        {"trace": f"t{i}", "item_id": f"q{i // 2}", "metadata": {"model": "ab"[i % 2]}, "cost": 0.1}
        | {"scores": {"helpful": i % 2, "concise": 1 - i % 2}}
        for i in range(20)
    ]
    for given in ({}, {"model": "metadata.model"}):
        with pytest.raises(ValueError, match="'scores.helpful' or 'scores.concise' looks like the score"):
            read_log(records, columns=given)
    log = read_log(records, columns={"score": "scores.helpful", "model": "metadata.model"})
    assert_found(log, half(0.1, 0.1, 10, scores=(0, 1)))
    with pytest.raises(ValueError, match="several models have the values of 'item_id': --column query=item_id"):
        read_log(records, columns={"score": "scores.helpful", "query": "trace"})


def test_a_latency_has_its_unit():
    for column, cell, seconds in (
        ("latency_ms", "350ms", 0.35),
        ("latency_ms", pd.Timedelta("350ms"), 0.35),
        ("latency", "1.5 s", 1.5),
        ("duration_min", 2, 120.0),
    ):
        latency = read_log(BASE.assign(**{column: cell})).latency
        np.testing.assert_allclose(latency, seconds, rtol=1e-6)
    log = read_log(BASE.assign(latency=90_000))
    assert log.latency is None
    assert any("latency: not used, as its median is 90,000 and no unit is known" in line for line in log.read)


def test_notes_say_what_was_left_out():
    wide = WIDE | {"score_max": [1] * 4, "cost_x": [0.1] * 4, "cost_y": [0.2] * 4}
    assert any("left out: the columns score_max, called like statistics" in line for line in read_log(wide).read)
    dates = BASE.assign(date=["unknown" if i == 30 else "2025-01-02" for i in range(ROWS)])
    log = read_log(dates)
    assert log.dates is None
    assert any("date: not used, as" in line and "row 30" in line for line in log.read)
    assert read_log(BASE.rename(columns={"cost": "cost (€)"})).table.cost_unit == "EUR per query"
    costs = read_log(BASE, costs={"a": 1.0, "b": 2.0}).read
    assert [line for line in costs if line.startswith("cost")] == ["cost: as given, the same for every query"]


def test_repeated_records_of_inspect_are_left_out_and_old_ones_have_no_ids(tmp_path):
    logs = Path(__file__).parents[1] / "support/tool_formats/inspect_json/logs"
    for name in ("twice", "old"):
        (tmp_path / name).mkdir()
    for file in logs.iterdir():
        log = json.loads(file.read_text())
        (tmp_path / "twice" / file.name).write_text(json.dumps(log | {"samples": 2 * log["samples"]}))
        for sample in log["samples"]:
            del sample["uuid"]
        (tmp_path / "old" / file.name).write_text(json.dumps(log))
    prices = {"acme/small-1b": (0.1, 0.4), "acme/large-70b": (2.0, 8.0)}
    once, twice, old = (read_log(folder, prices=prices) for folder in (logs, tmp_path / "twice", tmp_path / "old"))
    assert once.table.scores.tolist() == twice.table.scores.tolist() == old.table.scores.tolist()
    left_out = [sum("file: left out 6 of 12 records of" in line for line in log.read) for log in (once, twice, old)]
    assert left_out == [0, 2, 0]
    with pytest.raises(ValueError, match=r"twice \(converted from a log of Inspect\) lacks; it has 'query_id'"):
        read_log(tmp_path / "twice", where={"uuid": "1"})


def test_prompts_of_a_table_stay_with_its_rows():
    groups = {"groups": [0, 0, 1, 1, 1, 0], "group_names": ("x", "y")}
    table = RoutingTable(np.eye(6, 2), np.ones((6, 2)), ("a", "b"), prompts=[5, 5, 7, 8, 8, 9], **groups)
    assert read_log(table, where={"groups": "y"}).table.prompts.tolist() == [7, 8, 8]


def test_a_list_of_prices_may_be_longer(tmp_path):
    (tmp_path / "p.csv").write_text("model,price_in,price_out\na,1,2\nb,2,4\nother,1,1\n")
    log = read_log(USED, prices=tmp_path / "p.csv")
    assert_found(log, half(0.002, 0.004))
    assert any("also has those of other, which the log lacks" in line for line in log.read)
    for text, message in (
        ("model,price_in,price_out\na,1,2\n", "p.csv lacks b: add an entry for each"),
        ("model,price_in,price_out\na,1,2\na,1,3\nb,1,1\n", "has two prices of the model 'a'"),
        ("model,price_in\na,1\nb,1\n", "it lacks the column price_out"),
        ("model,price_in,price_out\na,1,2\nb,1,\n", "column 'price_out' is empty: give a price, or 0"),
    ):
        (tmp_path / "p.csv").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_log(USED, prices=tmp_path / "p.csv")


def test_an_archive_of_models(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for model in "ab":
            archive.writestr(f"{model}/results.csv", part(model).to_csv(index=False))
    assert_found(read_log(tmp_path / "all.zip"), half())


def test_files_that_are_ambiguous(tmp_path):
    for name in ("math", "code"):
        (tmp_path / "parts").mkdir(exist_ok=True)
        BASE.to_csv(tmp_path / "parts" / f"{name}.csv", index=False)
    with pytest.raises(ValueError, match=r"several answers, which differ in the column '\(file\)'"):
        read_log(tmp_path / "parts")
    tmp_path = tmp_path / "tasks"
    for task in ("math", "code"):
        for model in ("gpt", "cla"):
            (tmp_path / task / model).mkdir(parents=True)
            table = part("a")
            score = table.score if model == "gpt" else 1 - table.score
            table.assign(score=score).to_csv(tmp_path / task / model / "results.csv", index=False)
    with pytest.raises(ValueError, match=r"'\(folder\)' and '\(folder 2\)' could both be the model"):
        read_log(tmp_path)
    options = {"columns": {"model": "(folder)", "category": "(folder 2)"}}
    assert read_log(tmp_path, **options).table.models == ("cla", "gpt")


def test_what_is_no_log_beside_logs_is_left_aside(tmp_path):
    (tmp_path / "README.txt").write_text("Hello there\n")
    (tmp_path / "notes.csv").write_text("u,v\n1,2\n")
    for model in "ab":
        BASE[BASE.model == model].to_csv(tmp_path / f"{model}.csv", index=False)
    log = read_log(tmp_path)
    assert_found(log, half())
    assert any("skipped README.txt" in line for line in log.read)
    assert any("skipped notes.csv, with other columns than the largest" in line for line in log.read)


def test_columns_of_durations_in_several_files(tmp_path):
    pytest.importorskip("pyarrow")
    for k in (0, 1):
        BASE.iloc[20 * k : 20 * k + 20].assign(latency_s=pd.Timedelta("1.5s")).to_parquet(tmp_path / f"part-{k}.parquet")
    log = read_log(tmp_path)
    assert_found(log, half())
    np.testing.assert_array_equal(log.latency, 1.5)


def test_scores_in_lists_of_a_parquet_type():
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"query_id": [0, 0, 1, 1], "model": ["a", "b"] * 2, "scores": [[{"name": "f1", "value": 0.5}]] * 4}
    table = pyarrow.table({**columns, "cost": [0.1] * 4})
    assert_found(read_log(table, columns={"score": "scores.f1"}), half(0.1, 0.1, 2))


def test_a_text_that_is_cut_in_a_letter(tmp_path):
    rows = "".join(f"q{i},{m},{i % 2},.1,où est l'été {i} é\n" for i in range(10) for m in "ab")
    (tmp_path / "t.csv").write_bytes(("query_id,model,score,cost,prompt\n" + rows).encode()[:-2])
    log = read_log(tmp_path / "t.csv", columns={"text": ""})
    assert log.table.num_queries == 10
    assert "UTF-8 with 1 damaged places" in log.read[0]


def test_of_one_model_and_one_called_like_a_statistic_is_asked_and_answered(tmp_path):
    wide = tmp_path / "wide.csv"
    wide.write_text("id,gpt|score,mean|score\n" + "".join(f"q{i},{i / 20},{1 - i / 30}\n" for i in range(20)))
    with pytest.raises(ValueError, match=r"some called like statistics \('mean'\): .*--models gpt,mean\), and their costs"):
        read_log(wide)
    log = read_log(wide, models=["gpt", "mean"], costs={"gpt": 1e-3, "mean": 2e-3})
    assert log.table.models == ("gpt", "mean") and log.table.scores[5].tolist() == pytest.approx([0.25, 1 - 5 / 30])
