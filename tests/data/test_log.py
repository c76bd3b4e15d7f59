"""Tables as people have them: `read_log` on what is odd, on what is wrong, and on every spelling of the same table."""

import gzip
import io
import json
import re

import numpy as np
import pytest
from data_cases import assert_same
from log_cases import CASES, LONG, both_layouts, make, shared

from jaxroute.data import features as features_of
from jaxroute.data import read_log
from jaxroute.data.logs.names import NAMES as NAMES_OF_ROLES
from jaxroute.data.logs.roles import _like_scores

SCORES, COSTS = [[0.5, 1.0], [0.0, 0.25]], [[0.01, 0.02], [0.01, 0.03]]


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


GOOD = {"scores": np.array(SCORES), "costs": np.array(COSTS), "models": np.array(["a", "b"])}
GAPS = "prompt_id,model,correct,cost\n1,a,1,1\n1,b,0,1\n1,c,1,1\n2,a,1,1\n2,b,1,1\n3,a,0,1\n3,b,1,1\n4,c,1,1\n"

# Name of the file, its content (None for a folder, ... for nothing), options, and a part of the error.
WRONG = CASES["wrong"] | {
    "no file": ("t.csv", ..., {}, "there is no such file"),
    "damaged gz": ("t.csv.gz", gzip.compress(LONG.encode() * 9)[:-12], {}, "is a damaged gzip file"),
    "rubbish": ("t.csv", bytes(range(256)) * 4, {}, "is not text, despite its name|no text, or in UTF-16"),
    "parquet called csv": ("t.csv", b"PAR1" + bytes(99), {}, "is not a parquet file, or is damaged"),
    "xlsx called csv": ("t.csv", b"PK\x03\x04" + bytes(99), {}, "is a damaged zip archive"),
    "the wrong encoding": ("t.csv", LONG.replace("a", "é").encode("cp1252"), {"encoding": "utf-8"}, "is not in utf-8 .byte 0xe9"),
    "features of too few": ("t.csv", LONG, {"features": np.ones((3, 2))}, r"features must be numbers \[2, d\]"),
    "features as NaN": ("t.csv", LONG, {"features": np.full((2, 2), np.nan)}, "features must be finite"),
    "npz without models": ("t.npz", npz(scores=np.ones((2, 2))), {}, "has no array models; it has scores"),
    "npz without scores": ("t.npz", npz(models=np.array(["a", "b"])), {}, r"has no array of scores; expected scores \[Q, 2\]"),
    "npz of another shape": ("t.npz", npz(**{**GOOD, "scores": np.ones((2, 3))}), {}, r"array 'scores' has shape \(2, 3\).*expected \[Q, 2\]"),
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


# Unusual files of one table: name, content, options, and parts of the lines about reading, with ;; between them.
SAME = CASES["same"] | {
    "UTF-16": ("t.csv", LONG.encode("utf-16"), {}, "text in UTF-16"),
    "UTF-16 without mark": ("t.csv", LONG.encode("utf-16-le"), {}, "text in UTF-16-LE"),
    "Windows-1252": ("t.csv", LONG.replace("\n1", ",größe\n1", 1).replace("2\n2", "2,ü\n2").replace("0.01\n", "0.01,é\n").replace("3\n", "3,ß\n").encode("cp1252"), {}, "text in cp1252"),
    "gz": ("t.csv.gz", gzip.compress(LONG.encode()), {}, "compressed by gzip"),
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


@pytest.mark.parametrize(("role", "name"), [(r, n) for r in ("tokens_in", "tokens_out") for n in NAMES_OF_ROLES[r]])
def test_every_name_of_tokens_is_known(role, name, tmp_path):
    path = make(tmp_path, "t.csv", LONG.replace("cost", name).replace(".", ""))
    log = read_log(path, prices=dict.fromkeys("ab", (1e6, 0) if role == "tokens_in" else (0, 1e6)), scale=(0, 25))
    assert log.table.costs.tolist() == [[1, 2], [1, 3]]


@pytest.mark.parametrize("latency", ["latency in ms", "latencyms", "latency (ms)"])
def test_names_of_two_words_and_units_inside_names_are_known(latency, tmp_path):
    """Repeated answers are numbered by `answer_idx`; dates have no marks."""
    rows = ["problem_idx,answer_idx,model,correct,cost,date," + latency]
    rows += [f"{q},{n},{m},{n},1,2025013{q},500" for q in (0, 1) for m in "ab" for n in (0, 1)]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    log = read_log(tmp_path / "t.csv")
    assert log.table.scores.tolist() == [[0.5, 0.5]] * 2
    np.testing.assert_allclose(log.latency, 0.5)
    assert log.dates.tolist() == [np.datetime64(f"2025-01-3{q}T00:00:00").tolist() for q in (0, 1)]


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
    "frugalgpt_summary.csv": "'test_acc' or 'train_acc' looks like the score",
    "messplus_zoo.csv": "has no costs",
    "routerbench_0shot_families.csv": "neither a column of models",
    "routellm_mmlu_gsm8k.npz": f"--price {MIXTRAL}=IN:OUT",
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


def test_answers_are_not_measured_where_costs_are_known_and_a_log_prints_how_it_was_read(tmp_path):
    rows = "".join(f"{i},{m},{i % 2},.1,some answer\n" for i in range(9) for m in "ab")
    (tmp_path / "log.csv").write_text("id,llm,correct,cost,response\n" + rows)
    log = read_log(tmp_path / "log.csv")
    assert "not used: 'response'" in log.read and not any("length" in line for line in log.read)
    assert repr(log).splitlines() == [f"Log: {log.table!r}", *(f"  {line}" for line in log.read)]


@pytest.mark.parametrize(
    ("cells", "found"),
    [("0.1 0.5 1", True), ("50 70.5 100", True), ("-0.5 0.2 1", False), ("3 250 7", False), ("12.3 40.1 88.8", False)],
)
def test_shares_and_grades_look_like_scores(cells, found):
    assert _like_scores(np.array(cells.split(), object)) == found
