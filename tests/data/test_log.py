"""Tables as people have them: `read_log` on what is odd, on what is wrong, and on every spelling of the same table."""

import gzip
import io
import json
import re

import numpy as np
import pytest
from data_cases import assert_same
from log_cases import LONG, WIDE, both_layouts, long_rows, make, shared

from jaxroute.data import features as features_of
from jaxroute.data import read_log
from jaxroute.data.logs.names import NAMES as NAMES_OF_ROLES

pytestmark = pytest.mark.fast

SCORES, COSTS = [[0.5, 1.0], [0.0, 0.25]], [[0.01, 0.02], [0.01, 0.03]]


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


GOOD = {"scores": np.array(SCORES), "costs": np.array(COSTS), "models": np.array(["a", "b"])}
COST = {"costs": {"a": 0.01, "b": 0.02}}
GAPS = "prompt_id,model,correct,cost\n1,a,1,1\n1,b,0,1\n1,c,1,1\n2,a,1,1\n2,b,1,1\n3,a,0,1\n3,b,1,1\n4,c,1,1\n"

# Name of the file, its content (None for a folder, ... for nothing), options, and what is said.
WRONG = {
    "no file": ("t.csv", ..., {}, "there is no such file"),
    "no suffix": ("table", LONG, {}, r"of an unknown kind; expected a name that ends in \.csv, \.tsv"),
    "old Excel": ("t.xls", LONG, {}, "an old Excel file: save it as .xlsx or .csv"),
    "a folder": ("t.csv", None, {}, "is a folder without files that can be read"),
    "empty": ("t.csv", "", {}, "is empty: it has no bytes"),
    "only blank lines": ("t.csv", "\n\n", {}, "one column|is empty"),
    "names alone": ("t.csv", LONG.splitlines()[0], {}, "has a line of names, but no rows"),
    "empty list": ("t.json", "[]", {}, "is empty: a list without records"),
    "no list": ("t.json", "3", {}, r"must be a list of records \[\{...\}, ...\], got 3"),
    "a list of numbers": ("t.json", "[1, 2]", {}, r"record 0 \(from 0\) must be an object"),
    "cut off JSON": ("t.json", '[{"a": 1}, {"a"', {}, "line 1 is not JSON"),
    "cut off JSON lines": ("t.jsonl", '{"query": 1}\n{"query"', {}, "line 2 is not JSON"),
    "a list in JSON lines": ("t.jsonl", "[1]\n", {}, r"record 0 .from 0. must be an object"),
    "damaged gz": ("t.csv.gz", gzip.compress(LONG.encode() * 9)[:-12], {}, "is a damaged gzip file"),
    "rubbish": ("t.csv", bytes(range(256)) * 4, {}, "is not text, despite its name|no text, or in UTF-16"),
    "a picture": ("t.csv", b"\x89PNG\r\n\x1a\n" + bytes(200), {}, "is not text, despite its name"),
    "parquet called csv": ("t.csv", b"PAR1" + bytes(99), {}, "is not a parquet file, or is damaged"),
    "xlsx called csv": ("t.csv", b"PK\x03\x04" + bytes(99), {}, "is a damaged zip archive"),
    "text called parquet": ("t.parquet", LONG, {}, "is not a parquet file, or is damaged"),
    "text called xlsx": ("t.xlsx", LONG, {}, r"is not an Excel file \(xlsx\), or is damaged"),
    "text called npz": ("t.npz", LONG, {}, "is not an npy or npz file of plain arrays, or cut off"),
    "text called pickle": ("t.pkl", LONG, {}, "t.pkl"),
    "an open quotation mark": ("t.csv", LONG + '5,"a,1,1\n', {}, r"line 6: .*is a quotation mark not closed, or the file cut off\?"),
    "too few fields": ("t.csv", LONG + "5,a\n", {}, r"line 6: 2 fields, but the first line names 4 columns; is a quotation mark not closed, or the file cut off\?"),
    "too many fields": ("t.csv", LONG + "5,a,1,1,9\n", {}, "line 6: 5 fields, .*into quotation marks"),
    "one column": ("t.csv", "a\n1\n", {}, "has one column, 'a': if another character .*--separator"),
    "another separator": ("t.csv", LONG.replace(",", "~"), {}, "has one column, .*--separator"),
    "no names": ("t.csv", "1,0.5,0.01\n2,0.7,0.02\n", {}, "line 1 looks like data and not like names .*add a line of names above it"),
    "an unknown separator": ("t.csv", LONG, {"separator": ",,"}, "separator must be one character"),
    "an unknown encoding": ("t.csv", LONG, {"encoding": "utf-9"}, "encoding must be one such as"),
    "the wrong encoding": ("t.csv", LONG.replace("a", "é").encode("cp1252"), {"encoding": "utf-8"}, "is not in utf-8 .byte 0xe9"),
    "unknown role": ("t.csv", LONG, {"columns": {"scroe": "correct"}}, "a role in columns must be one of .*did you mean 'score'"),
    "unknown column": ("t.csv", LONG, {"columns": {"score": "corect"}}, r"columns\['score'\] is 'corect', which .* lacks; did you mean 'correct'\?"),
    "unknown columns of models": ("t.csv", WIDE, {"columns": {"score": "perf_*"}}, r"is 'perf_\*', which no column of .* fits"),
    "columns as text": ("t.csv", LONG, {"columns": "score"}, "columns must map roles to names of columns"),
    "no query": ("t.csv", "model,correct,cost\na,1,1\nb,0,1\n", {}, r"column 'model', 2 different in 2 rows\) but no column of queries"),
    "no score": ("t.csv", "prompt_id,model,cost\n1,a,1\n1,b,1\n", {}, "lacks a column for the score: name it .*--column"),
    "nothing known": ("t.csv", "x1,y\nu,v\n", {}, "has neither a column of models .* nor columns of scores per model"),
    "scores without costs": ("t.csv", "prompt,a,b\nwho is,1,0\nwho was,0,1\n", {}, "'a', 'b' could be scores of models: give the cost .*--cost a=VALUE --cost b=VALUE"),
    "tokens without prices": ("t.csv", LONG.replace("cost", "completion_tokens").replace(",0.0", ",1"), {}, r"has no costs: give the cost of each model .*--price a=IN:OUT"),
    "no costs": ("t.csv", LONG.replace("cost", "beauty"), {}, r"has no costs: give the cost of each model .*--cost a=VALUE"),
    "one model": ("t.csv", "prompt_id,model,correct,cost\n1,a,1,1\n2,a,0,1\n", {}, "has one model, 'a': there is nothing to choose"),
    "one model, a row per query": ("t.csv", "id,perf_a,cost_a\n1,1,1\n2,0,1\n", {}, "scores of one model, 'a': there is nothing to choose"),
    "one query": ("t.csv", "\n".join(LONG.splitlines()[:3]), {}, "has 1 query; at least 2 are needed"),
    "one model left": ("t.csv", LONG, {"models": ["a"]}, "models must be at least two different names, got a"),
    "the same model twice": ("t.csv", LONG, {"models": ["a", "a"]}, "models must be at least two different names, got a, a"),
    "an unknown model": ("t.csv", LONG, {"models": ["a", "c"]}, "a model in models must be one of 'a', 'b', got 'c'"),
    "costs of nobody": ("t.csv", LONG, {"costs": {"a": 1, "c": 1}}, "a model in costs must be one of 'a', 'b', got 'c'"),
    "costs of one": ("t.csv", LONG, {"costs": {"a": 1}}, "only a would be left"),
    "costs that lack a model": ("t.csv", LONG, {"models": ["a", "b"], "costs": {"a": 1}}, "costs lacks b, which models names"),
    "costs as a number": ("t.csv", LONG, {"costs": 3}, r"costs must map models to numbers, as \{'MODEL': 0.01\}, got 3"),
    "a negative given cost": ("t.csv", LONG, {"costs": {"a": -1, "b": 1}}, r"costs\['a'\] must be at least 0, got -1"),
    "four prices": ("t.csv", LONG, {"prices": {"a": (1, 2, 3, 4), "b": 1}}, r"prices\['a'\] must be USD per million"),
    "costs and prices": ("t.csv", LONG, {**COST, "prices": {"a": 1, "b": 1}}, "costs and prices mean the same"),
    "unknown treatment of gaps": ("t.csv", LONG, {"missing": "ignore"}, "missing must be one of 'drop', 'zero', got 'ignore'"),
    "a scale upside down": ("t.csv", LONG, {"scale": (1, 0)}, r"scale must be \(LOW, HIGH\) with LOW below HIGH"),
    "a scale of words": ("t.csv", LONG, {"scale": "high"}, r"scale must be two numbers \(LOW, HIGH\)"),
    "outside the scale": ("t.csv", LONG, {"scale": (0.5, 1)}, r"line 4, query '2' and model 'b' is 0.25, outside the scale 0.5:1"),
    "a negative cost": ("t.csv", LONG.replace("0.03", "-0.03"), {}, r"line 4, column 'cost' is '-0.03'; a cost must be finite and at least 0"),
    "an infinite cost": ("t.csv", LONG.replace("0.03", "inf"), {}, r"line 4, column 'cost' is 'inf'; a cost must be finite"),
    "an infinite score": ("t.csv", LONG.replace("0.25", "inf"), {}, r"line 4, column 'correct' is 'inf'; a score must be finite"),
    "a negative score": ("t.csv", LONG.replace("0.25", "-3"), {}, r"line 4, .*model 'b' is -3; scores must lie in \[0, 1\] or \[0, 100\].*--scale LOW:HIGH"),
    "a score over 100": ("t.csv", LONG.replace("0.25", "250"), {}, r"line 4, .*is 250; scores must lie in .*--scale"),
    "one score over 1": ("t.csv", LONG.replace("0.25", "3"), {}, r"different scales: model 'a' from 0 to 0.5 but model 'b' from 1 to 3 \(.*line 4, query '2' and model 'b' is 3\); correct the value.*--scale"),
    "percent and fractions": ("t.csv", LONG.replace(",0.25,", ",80,").replace(",0.5,", ",0.7,"), {}, "different scales: model 'a' from 0 to 0.7 but model 'b' from 1 to 80"),
    "some percent signs": ("t.csv", LONG.replace(",0.25,", ",25%,").replace(",1,", ",75,"), {}, "without a % sign, but others have one"),
    "percent over 100": ("t.csv", "id,model,score,cost\n1,a,120%,1\n1,b,50%,1\n2,a,1%,1\n2,b,3%,1\n", {}, "line 2.* is 1.2, outside 0 % to 100 %"),
    "a word for a score": ("t.csv", LONG.replace("0.25", "maybe"), {}, r"line 4, column 'correct' is 'maybe', which is not a number; write a number, a percentage"),
    "a word for a cost": ("t.csv", LONG.replace("0.03", "cheap"), {}, r"line 4, column 'cost' is 'cheap', which is not a number"),
    "two currencies": ("t.csv", LONG.replace("0.03", "€0.03").replace("0.02", "$0.02"), {}, r"line 4, column 'cost' is '€0.03', in EUR, but .*line 3.* is in USD: convert"),
    "two currencies in two columns": ("t.csv", "id,perf_a,cost_a,perf_b,cost_b\n1,1,$1,0,£1\n2,0,$2,1,£3\n", {}, "costs are in GBP and in USD"),
    "a row without model": ("t.csv", LONG.replace("2,b", "2,"), {}, "line 4, column 'model' is empty, and 0 more rows name no model"),
    "a row without query": ("t.csv", LONG.replace("2,b", ",b"), {}, "line 4, column 'prompt_id' is empty"),
    "a model named twice": ("t.csv", "id,perf_a,perf_b,perf_a,cost_a,cost_b\n1,1,1,1,1,1\n2,0,0,0,1,1\n", {}, "has 2 columns 'perf_a': rename or remove"),
    "a router's log": ("t.csv", "id,model,correct,cost\n1,a,1,1\n2,b,0,1\n3,a,1,1\n", {}, "every query has the answer of one model alone"),
    "no complete query": ("t.csv", GAPS.replace("1,c,1,1\n2", "2", 1), {}, r"no query has an answer .*\(c 3.* missing of 4; .*--models a,b\) 3 queries are complete"),
    "text that is not there": ("t.csv", LONG, {"features": "text"}, "features is \"text\", but no column of text was found"),
    "an embedding that is not there": ("t.csv", LONG, {"features": "own"}, "features is \"own\", but the file has no embedding"),
    "features of too few": ("t.csv", LONG, {"features": np.ones((3, 2))}, r"features must be numbers \[2, d\]"),
    "features as NaN": ("t.csv", LONG, {"features": np.full((2, 2), np.nan)}, "features must be finite"),
    "unequal embeddings": ("t.jsonl", "\n".join(json.dumps({"id": q, "model": m, "score": 1, "cost": 1, "embedding": [1.0] * (q + 1)}) for q in (1, 2) for m in "ab"), {}, "has 3 numbers, but the first has 2"),
    "an embedding in words": ("t.csv", "id,emb_0,emb_1,perf_a,perf_b,cost_a,cost_b\n1,x,1,1,1,1,1\n2,0,0,0,0,1,1\n", {}, "line 2, column 'emb_0' is 'x', which is not a number"),
    "npz without models": ("t.npz", npz(scores=np.ones((2, 2))), {}, "has no array models; it has scores"),
    "npz without scores": ("t.npz", npz(models=np.array(["a", "b"])), {}, r"has no array scores \[Q, 2\]"),
    "npz of another shape": ("t.npz", npz(**{**GOOD, "scores": np.ones((2, 3))}), {}, r"array 'scores' has shape \(2, 3\).*expected \[Q, 2\]"),
    "npz without costs": ("t.npz", npz(scores=GOOD["scores"], models=GOOD["models"]), {}, "has no costs: give the cost of each model"),
    "npz with a negative cost": ("t.npz", npz(**{**GOOD, "costs": -GOOD["costs"]}), {}, r"row 0 .from 0., column 'costs.a' is -0.01; a cost must be finite and at least 0"),
    "npz with the same model twice": ("t.npz", npz(**{**GOOD, "models": np.array(["a", "a"])}), {}, "has the model 'a' twice"),
    "columns of npz": ("t.npz", npz(**GOOD), {"columns": {"score": "x"}}, "is 'x', which .* lacks; it has"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_the_place_and_the_remedy(name, tmp_path):
    file, content, options, message = WRONG[name]
    path = make(tmp_path, file, content)
    with pytest.raises(ValueError) as error:
        read_log(path, **options)
    text = str(error.value)
    assert re.search(message, text), text
    assert "\n" not in text


# What is odd but read: file, content, options, what `read` says (several parts with ;; between them), scores and costs.
SAME = {
    "long": ("t.csv", LONG, {}, "layout: a row per query and model;;query: column 'prompt_id' .as in 1, 2.;;kept: 2 queries x 2 models"),
    "wide": ("t.csv", WIDE, {}, "layout: a row per query, columns called like the models;;cost: columns <model>.total_cost"),
    "semicolons": ("t.csv", LONG.replace(",", ";"), {}, "semicolons between columns"),
    "tabs": ("t.csv", LONG.replace(",", "\t"), {}, "tabs between columns"),
    "bars": ("t.txt", LONG.replace(",", "|"), {}, "vertical bars between columns"),
    "a given separator": ("t.csv", LONG.replace(",", "~"), {"separator": "~"}, "'~' between columns"),
    "decimal commas": ("t.csv", LONG.replace(",", ";").replace(".", ","), {}, "decimal commas read as points"),
    "quoted decimal commas": ("t.csv", re.sub(r"(\d+)\.(\d+)", r'"\1,\2"', LONG), {}, "decimal commas read as points"),
    "UTF-16": ("t.csv", LONG.encode("utf-16"), {}, "text in UTF-16"),
    "UTF-16 without mark": ("t.csv", LONG.encode("utf-16-le"), {}, "text in UTF-16-LE"),
    "Windows-1252": ("t.csv", LONG.replace("\n1", ",größe\n1", 1).replace("2\n2", "2,ü\n2").replace("0.01\n", "0.01,é\n").replace("3\n", "3,ß\n").encode("cp1252"), {}, "text in cp1252"),
    "gz": ("t.csv.gz", gzip.compress(LONG.encode()), {}, "compressed by gzip"),
    "dollars": ("t.csv", re.sub(r",(0\.0\d)", r",$\1", LONG), {}, r"currency signs left out \(USD\)"),
    "a currency in words": ("t.csv", re.sub(r",(0\.0\d)", r",USD \1", LONG), {}, r"currency signs left out \(USD\)"),
    "percent signs": ("t.csv", LONG.replace(",1,", ",100%,").replace(",0.5,", ",50 %,").replace(",0.25,", ",25%,").replace(",0,", ",0%,"), {}, "percentages divided by 100"),
    "percent": ("t.csv", LONG.replace(",1,", ",100,").replace(",0.5,", ",50,").replace(",0.25,", ",25,"), {}, "taken for percent, and divided by 100"),
    "a given scale": ("t.csv", LONG.replace(",1,", ",3,").replace(",0.5,", ",1,").replace(",0.25,", ",0,").replace("a,0,", "a,-1,"), {"scale": (-1, 3)}, "scale -1:3 mapped to 0:1, as given"),
    "judged from 1 to 5": ("t.csv", LONG.replace("correct", "rating").replace(",1,", ",5,").replace(",0.5,", ",3,").replace(",0.25,", ",2,").replace("a,0,", "a,1,"), {}, "taken for a scale of 1 to 5"),
    "grades from 0 to 10": ("t.csv", LONG.replace("correct", "judge").replace(",1,", ",10,").replace(",0.5,", ",5,").replace(",0.25,", ",2.5,"), {}, "taken for a scale of 0 to 10"),
    "fractions": ("t.csv", LONG.replace(",0.5,", ",2/4,"), {}, "score: column 'correct'"),
    "copies": ("t.csv", LONG + LONG.splitlines()[1] + "\n", {}, r"1 pairs of query and model have several answers \(2 rows\): their means count"),
    "several answers": ("t.csv", LONG.replace("1,a,0.5,0.01", "1,a,1,0.00\n1,a,0,0.02"), {}, r"1 pairs of query and model have several answers \(2 rows\): their means count"),
    "a gap": ("t.csv", LONG + "3,a,1,0.5\n", {}, r"left out: 1 of 3 queries that lack an answer or a cost \(of b 1; first: query '3' and model 'b'\)"),
    "an empty cell": ("t.csv", WIDE + "3,1,n/a,1,0.02\n", {}, r"left out: 1 of 3 queries .*line 4"),
    "another model": ("t.csv", LONG + "1,c,1,1\n", {"models": ["a", "b"]}, "left out: the models c, which were not named"),
    "names in another case": ("t.csv", LONG.replace("prompt_id,model,correct,cost", "Prompt-ID,LLM Name,Is Correct,Cost (USD)"), {}, "query: column 'Prompt-ID'"),
    "own names": ("t.csv", LONG.replace("prompt_id,model,correct,cost", "a1,a2,a3,a4"), {"columns": {"query": "a1", "model": "a2", "score": "a3", "cost": "a4"}}, "cost: column 'a4'"),
    "own names per model": ("t.csv", "n,hit-a,fee-a,hit-b,fee-b\n1,0.5,0.01,1,0.02\n2,0,0.01,0.25,0.03\n", {"columns": {"score": "hit-*", "cost": "fee-*"}}, "score: columns hit-<model>"),
    "JSON": ("t.json", json.dumps(long_rows()), {}, "JSON in UTF-8"),
    "JSON lines called JSON": ("t.json", "\n".join(map(json.dumps, long_rows())), {}, "JSON lines in UTF-8"),
    "records inside": ("t.json", json.dumps({"records": long_rows()}), {}, "JSON in UTF-8"),
    "columns of lists": ("t.json", json.dumps({k: [r[k] for r in long_rows()] for k in long_rows()[0]}), {}, "JSON in UTF-8"),
    "nested": ("t.jsonl", "\n".join(json.dumps({"id": r["prompt_id"], "llm": r["model"], "evaluation_result": {"score": r["correct"], "inference_cost": r["cost"]}}) for r in long_rows()), {}, "score: column 'evaluation_result.score'"),
    "unused columns": ("t.csv", LONG.replace("\n", ",7\n").replace("cost,7", "cost,weather"), {}, "not used: 'weather'"),
    "prices in the file": ("t.csv", "id,model,score,completion_tokens,price_in,price_out,prompt_tokens\n1,a,0.5,1000,5,5,1000\n1,b,1,1000,10,10,1000\n2,b,0.25,2000,10,10,1000\n2,a,0,1000,5,5,1000\n", {}, "the file's prices in USD per million tokens x input tokens and output tokens"),
    "given prices": ("t.csv", "id,model,score,completion_tokens\n1,a,0.5,1000\n1,b,1,1000\n2,b,0.25,1500\n2,a,0,1000\n", {"prices": {"a": (0, 10), "b": (0, 20)}}, "x no input tokens and output tokens"),
    "characters": ("t.csv", "id,perf_a,perf_b,a_chars,b_chars\n1,0.5,1,4000,4000\n2,0,0.25,4000,6000\n", {"prices": {"a": (0, 10), "b": (0, 20)}}, "assumed to be characters / 4"),
    "npz": ("t.npz", npz(**GOOD), {}, "an npz file; 2 rows, 4 columns"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_what_is_odd_is_read_and_said(name, tmp_path):
    file, content, options, said = SAME[name]
    log = read_log(make(tmp_path, file, content), **options)
    np.testing.assert_allclose(log.table.scores, SCORES, atol=1e-7)
    np.testing.assert_allclose(log.table.costs, np.float32(COSTS) * (1 if "dear" not in name else 100), rtol=1e-6)
    assert log.table.models == ("a", "b")
    for part in said.split(";;"):
        assert re.search(part, "\n".join(log.read)), log.read


SPELT = ["query", "model", "score", "cost", "latency", "category", "date"]
CELLS = {"latency": "0.5", "category": "law", "date": "2025-01-31T10:00:00Z"}
NAMES = {"query": "query_id", "model": "model", "score": "score", "cost": "cost"}


@pytest.mark.parametrize(("role", "name"), [(role, name) for role in SPELT for name in NAMES_OF_ROLES[role]])
def test_every_name_of_a_role_is_known(role, name, tmp_path):
    header = [name if role == known else column for known, column in NAMES.items()]
    rows = [row.split(",") for row in LONG.splitlines()[1:]]
    if role in CELLS:
        header, rows = [*header, name.upper()], [[*row, CELLS[role]] for row in rows]
    if role == "query":
        rows = [["what is" + row[0], *row[1:]] for row in rows]
    text = "\n".join(",".join(row) for row in (header, *rows)) + "\n"
    log = read_log(make(tmp_path, "t.csv", text), features="none")
    assert log.table.scores.tolist() == SCORES
    if role == "latency":
        seconds = 0.0005 if re.search("ms$|milliseconds", name) else 0.5
        np.testing.assert_allclose(log.latency, seconds)
    if role == "category":
        assert log.table.group_names == ("law",)
    if role == "date":
        assert log.dates.tolist() == [np.datetime64("2025-01-31T10:00:00").tolist()] * 2


@pytest.mark.parametrize(
    ("role", "name"), [(role, name) for role in ("tokens_in", "tokens_out") for name in NAMES_OF_ROLES[role]]
)
def test_every_name_of_tokens_is_known(role, name, tmp_path):
    path = make(tmp_path, "t.csv", LONG.replace("cost", name).replace(".", ""))
    log = read_log(path, prices=dict.fromkeys("ab", (1e6, 0) if role == "tokens_in" else (0, 1e6)), scale=(0, 25))
    assert log.table.costs.tolist() == [[1, 2], [1, 3]]


def test_the_same_table_in_every_form(tmp_path):
    rng = np.random.default_rng(3)
    models = ("gpt-4", "mistralai/mixtral-8x7b", "claude 2")
    scores, costs = rng.integers(0, 5, (40, 3)) / 4, np.round(rng.uniform(0, 0.02, (40, 3)), 6)
    groups = [["law", "maths", "code"][i] for i in rng.integers(0, 3, 40)]
    expected = read_log(both_layouts(tmp_path / "wide.csv", models, scores, costs, groups, "wide")).table
    np.testing.assert_array_equal(expected.scores, np.float32(scores))
    np.testing.assert_array_equal(expected.costs, np.float32(costs))
    suffixes = (".tsv", ".jsonl", ".json", ".parquet", ".xlsx", ";.csv", "frame")
    forms = [("wide", suffix) for suffix in suffixes]
    forms += [("long", suffix) for suffix in (*suffixes, ".csv", ".csv.gz", ".pkl")]
    for layout, suffix in forms:
        data = both_layouts(tmp_path / f"{layout}{suffix}", models, scores, costs, groups, layout)
        assert_same(read_log(data).table, expected)
    expected.save(tmp_path / "t.npz")
    assert_same(read_log(tmp_path / "t.npz").table, expected)
    assert_same(read_log(expected).table, expected)
    chosen = read_log(expected, models=["claude 2", "gpt-4"]).table
    assert_same(chosen, expected.subset(models=["claude 2", "gpt-4"]))


def test_gaps_are_dropped_or_count_as_nothing(tmp_path):
    path = make(tmp_path, "t.csv", GAPS)
    with pytest.raises(ValueError, match="has 1 query; at least 2 are needed"):
        read_log(path)
    zero = read_log(path, missing="zero")
    assert zero.table.scores.tolist() == [[1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert zero.table.costs[1:].tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert any("4 answers count as score 0 and cost 0 (of c 2, a 1, b 1;" in line for line in zero.read)
    assert read_log(path, models=["b", "a"]).table.scores.tolist() == [[0, 1], [1, 1], [1, 0]]


def test_fewer_than_half_proposes_models(tmp_path):
    rows = "".join(f"{q},{m},1,1\n" for q in range(10) for m in "abc" if m != "c" or q < 3)
    log = read_log(make(tmp_path, "t.csv", "id,model,score,cost\n" + rows))
    assert log.table.num_queries == 3
    said = "fewer than half of the queries are left: with models=['a', 'b'] (--models a,b) 10"
    assert any(said in line for line in log.read)


def test_text_becomes_features(tmp_path):
    pytest.importorskip("sklearn")
    words = ["solve the equation", "write a poem", "solve an integral", "write a sonnet", "", "prove the theorem"]
    text = "prompt_id,prompt,model,score,cost\n" + "".join(f"{q},{w},{m},1,1\n" for q, w in enumerate(words) for m in "ab")
    log = read_log(make(tmp_path, "t.csv", text))
    features = log.table.features
    assert features.shape[0] == 6 and features.shape[1] <= 5 and features.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), [1, 1, 1, 1, 0, 1], atol=1e-5)
    assert features[1] @ features[3] > features[1] @ features[5] + 0.1
    assert log.features.startswith("text of column 'prompt', hashed,")
    assert any("text: column 'prompt' (as in solve the equation" in line and "1 empty" in line for line in log.read)
    np.testing.assert_array_equal(read_log(tmp_path / "t.csv").table.features, features)
    assert read_log(tmp_path / "t.csv", features="none").table.features is None
    given = np.arange(12.0).reshape(6, 2)
    np.testing.assert_array_equal(read_log(tmp_path / "t.csv", features=given).table.features, given)
    np.save(tmp_path / "f.npy", given)
    np.testing.assert_array_equal(read_log(tmp_path / "t.csv", features=tmp_path / "f.npy").table.features, given)


def test_without_scikit_learn_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(features_of, "has_sklearn", lambda: False)
    text = "prompt_id,prompt,task,model,score,cost\n1,who is it,x,a,1,1\n1,who is it,x,b,1,1\n2,who was it,y,a,1,1\n2,who was it,y,b,1,1\n"
    log = read_log(make(tmp_path, "t.csv", text))
    assert log.table.features is None and log.table.group_names == ("x", "y") and log.features == "categories only"
    assert any('pip install "jaxroute[data]"' in line for line in log.read)
    with pytest.raises(ImportError, match="need scikit-learn"):
        read_log(tmp_path / "t.csv", features="text")


@pytest.mark.parametrize("width", [3, 100])
def test_embeddings_in_cells_and_in_columns(width, tmp_path):
    vectors = np.random.default_rng(0).standard_normal((40, width))
    answer = {"score": 1, "cost": 1}
    rows = [{"id": q, "model": m, **answer, "embedding": v.tolist()} for q, v in enumerate(vectors) for m in "ab"]
    cells = read_log(make(tmp_path, "t.jsonl", "\n".join(map(json.dumps, rows))))
    head = ",".join(["id", *(f"emb_{i}" for i in range(width)), "perf_a", "perf_b", "cost_a", "cost_b"])
    body = "\n".join(",".join([str(q), *map(repr, v.tolist()), "1,1,1,1"]) for q, v in enumerate(vectors))
    columns = read_log(make(tmp_path, "t.csv", f"{head}\n{body}\n"))
    np.testing.assert_allclose(cells.table.features, columns.table.features, atol=1e-5)
    if width == 3:
        np.testing.assert_array_equal(cells.table.features, np.float32(vectors))
        assert cells.features == "the file's own 3 numbers (column 'embedding')"
    else:
        assert cells.table.features.shape == (40, 32) and "reduced to 32 directions" in cells.features


def test_numbers_of_queries_that_begin_anew_in_every_benchmark(tmp_path):
    rows = "".join(f"{q},{task},{m},{score},1\n" for task in ("x", "y") for q in (0, 1) for m, score in (("a", 1), ("b", 0)))
    log = read_log(make(tmp_path, "t.csv", "id,task,model,score,cost\n" + rows))
    assert log.table.num_queries == 4 and any("begins again in every 'task'" in line for line in log.read)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "got None"),
        (3, "got 3"),
        ("", "got an empty text"),
        ([1], "got .1."),
        ("answer.csv", r"there is no such file; did you mean '.*answers.csv'\?"),
        ("no/answer.csv", "the folder .* does not exist either"),
    ],
)
def test_data_that_are_no_file(data, message, tmp_path):
    make(tmp_path, "answers.csv", LONG)
    with pytest.raises(ValueError, match=message):
        read_log(tmp_path / data if isinstance(data, str) and data else data)


# The files of real answers that the measurements use.

MIXTRAL, GPT4 = "mistralai/Mixtral-8x7B-Instruct-v0.1", "gpt-4-1106-preview"
COSTS_OF_BENCH = {"costs": {MIXTRAL: 0.001, GPT4: 0.02}, "columns": {"query": "question_id+turn"}}
CASCADE = {"prices": {"slm": (0, 0.2), "llm": (0, 10)}}
REAL = {
    "llmrouter_9models.npz": ({}, (6108, 9), 32, 14, "an assumed 256 output tokens"),
    "routerbench_0shot_uniform365.npz": ({}, (365, 11), 32, 61, "score: columns perf.<model>"),
    "routerarena_sub10.npz": ({}, (809, 2), 32, 0, "1 of 1,618 outside"),
    "routellm_mmlu_gsm8k.npz": ({"prices": {MIXTRAL: 0.6, GPT4: (10, 30)}}, (15361, 2), 32, 58, "whose length is unknown"),
    "routellm_mtbench.npz": (COSTS_OF_BENCH, (160, 2), 0, 0, "taken for a scale of 1 to 10"),
    "cascade_slm_gpt5_confidence.csv.gz": (CASCADE, (4000, 2), 0, 4, "confidence: columns <model>_confidence"),
}
SUMMARIES = {
    "aider_edit.csv": "no column of queries",
    "aider_polyglot.csv": "lacks a column for the query",
    "c2mabv_table3.csv": "no column of queries",
    "frugalgpt_summary.csv": "'test_acc' or 'train_acc' looks like the score",
    "messplus_zoo.csv": "has no costs",
    "routerbench_0shot_families.csv": "neither a column of models",
    "routerbench_0shot_value_hist.csv": "no column of queries",
    "sprout_models_prices.csv": "no column of queries",
    "stageroute_table1.csv": "no column of queries",
    "stageroute_table2.csv": "no column of queries",
    "routellm_mmlu_gsm8k.npz": f"--price {MIXTRAL}=IN:OUT",
    "routellm_mtbench.npz": f"--cost {MIXTRAL}=VALUE",
    "cascade_slm_gpt5_confidence.csv.gz": "--price slm=IN:OUT",
}


@pytest.mark.parametrize("name", REAL)
def test_real_files(name):
    options, shape, width, groups, said = REAL[name]
    log = read_log(shared(name), **options)
    assert log.table.scores.shape == shape
    assert (0 if log.table.features is None else log.table.features.shape[1]) == width
    assert len(log.table.group_names) == groups
    assert any(said in line for line in log.read), log.read


@pytest.mark.parametrize("name", SUMMARIES)
def test_real_files_that_are_no_logs_or_lack_costs(name):
    with pytest.raises(ValueError) as error:
        read_log(shared(name))
    assert SUMMARIES[name] in str(error.value)


@pytest.mark.parametrize("named", [{}, {"query": "prompt"}, {"text": "prompt"}, {"query": "prompt", "text": "prompt"}])
@pytest.mark.parametrize("wide", [False, True])
def test_naming_the_column_of_prompts_by_hand_loses_no_features(named, wide, tmp_path):
    """`--column query=prompt` and the like read what is read without them."""
    pytest.importorskip("sklearn")
    prompts = [f"what is the {word} of {number}" for number, word in enumerate(("root", "sum", "law", "name") * 5)]
    lines = ["prompt,a,a_cost,b,b_cost", *(f"{p},{i % 2},1,1,2" for i, p in enumerate(prompts))]
    if not wide:
        lines = ["prompt,llm,correct,cost"]
        lines += [f"{p},{m},{(i + (m == 'b')) % 2},{1 + (m == 'b')}" for i, p in enumerate(prompts) for m in "ab"]
    file = tmp_path / "log.csv"
    file.write_text("\n".join(lines))
    log, found = read_log(file, columns=named), read_log(file)
    assert log.features == found.features and log.features.startswith("text of column 'prompt'")
    np.testing.assert_array_equal(log.table.features, found.table.features)
    assert any(line.startswith("text: column 'prompt' (as in what is the") for line in log.read)


def test_a_column_that_a_person_calls_the_query_is_text_whatever_its_name(tmp_path):
    pytest.importorskip("sklearn")
    lines = ["what_was_asked,llm,correct,cost"]
    lines += [f"tell me about {i},{m},{(i + (m == 'b')) % 2},1" for i in range(20) for m in "ab"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    log = read_log(tmp_path / "log.csv", columns={"query": "what_was_asked"})
    assert log.features.startswith("text of column 'what_was_asked'")
    numbered = [line.replace("tell me about ", "") for line in lines]
    (tmp_path / "log.csv").write_text("\n".join(numbered))
    assert read_log(tmp_path / "log.csv", columns={"query": "what_was_asked"}).features == "none"


def test_prices_without_anything_to_count_are_told_so(tmp_path):
    (tmp_path / "log.csv").write_text("id,llm,correct\n" + "".join(f"{i},{m},{i % 2}\n" for i in range(9) for m in "ab"))
    with pytest.raises(ValueError, match="prices per million tokens need to know how many tokens there are.*tokens_in"):
        read_log(tmp_path / "log.csv", prices={"a": (1.0, 2.0), "b": (3.0, 4.0)})
