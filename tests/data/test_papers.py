"""The papers' tables: as printed, normalised, checked."""

import csv

import numpy as np
import pytest
from helpers import shared_data

from jaxroute.data import STAGEROUTE_TABLE_1, STAGEROUTE_TABLE_2, ModelTable, PriceTable, divide_by_max, min_max, papers


def test_table_1_is_the_papers_and_normalises_as_specified():
    rows = (  # name, score, cost, min-max, score / 1446
        ("GPT-4o", 1336, 10.00, 0.417989, 0.923928),
        ("Gemini-1.5-pro-002", 1302, 5.00, 0.238095, 0.900415),
        ("Yi-Lightning", 1287, 0.14, 0.158730, 0.890041),
        ("o1-mini", 1304, 0.60, 0.248677, 0.901798),
        ("Llama 3.3 70B Instruct", 1257, 0.40, 0, 0.869295),
        ("DeepSeek-R1", 1358, 0.55, 0.534392, 0.939142),
        ("Gemini 2.0 Flash", 1380, 1.50, 0.650794, 0.954357),
        ("Claude 3.7 Sonnet", 1300, 15.00, 0.227513, 0.899032),
        ("Hunyuan-turbos", 1296, 0.28, 0.206349, 0.896266),
        ("Deepseek-v3", 1373, 0.28, 0.613757, 0.949516),
        ("Llama-4-Maveric", 1417, 0.82, 0.846561, 0.979945),
        ("GPT-4.1", 1366, 8.00, 0.576720, 0.944675),
        ("Grok-3-preview", 1403, 15.00, 0.772487, 0.970263),
        ("o3 by OpenAI", 1413, 40.00, 0.825397, 0.977178),
        ("Gemini-2.5-Pro", 1446, 10.00, 1, 1),
    )
    names, scores, costs, spread, share = zip(*rows, strict=True)
    assert STAGEROUTE_TABLE_1.names == names
    np.testing.assert_array_equal(STAGEROUTE_TABLE_1.scores, np.array(scores, np.float64))
    np.testing.assert_array_equal(STAGEROUTE_TABLE_1.costs, costs)
    np.testing.assert_allclose(min_max(STAGEROUTE_TABLE_1.scores), spread, atol=1e-6)
    np.testing.assert_allclose(divide_by_max(STAGEROUTE_TABLE_1.scores), share, atol=1e-6)


def test_table_2_is_the_papers():
    rows = {
        "claude-instant-v1": (0.5900, 0.001236), "claude-v1": (0.6480, 0.005870), "claude-v2": (0.5116, 0.006153),
        "meta/llama-2-70b-chat": (0.6059, 0.001337), "WizardLM/WizardLM-13B-V1.2": (0.5392, 0.000142),
        "meta/code-llama-instruct-34b-chat": (0.5040, 0.000550), "mistralai/mistral-7b-chat": (0.4999, 0.000139),
        "gpt-3.5-turbo-1106": (0.6867, 0.000709), "gpt-4-1106-preview": (0.8048, 0.007943),
        "zero-one-ai/Yi-34B-Chat": (0.7153, 0.000558), "mistralai/mixtral-8x7b-chat": (0.6504, 0.000414),
    }  # fmt: skip
    table = STAGEROUTE_TABLE_2
    assert table.names == tuple(rows)
    assert [*zip(table.scores.tolist(), table.costs.tolist(), strict=True)] == list(rows.values())


@pytest.mark.parametrize(
    ("table", "file", "score", "cost"),
    [
        (STAGEROUTE_TABLE_1, "stageroute_table1.csv", "arena_elo", "usd_per_mtok_out"),
        (STAGEROUTE_TABLE_2, "stageroute_table2.csv", "avg_perf", "avg_cost_usd"),
    ],
)
def test_tables_equal_the_independent_transcription(table, file, score, cost):
    with open(shared_data(file), newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert table.names == tuple(row["model"] for row in rows)
    np.testing.assert_array_equal(table.scores, [float(row[score]) for row in rows])
    np.testing.assert_array_equal(table.costs, [float(row[cost]) for row in rows])


def test_model_table_is_checked_and_read_only():
    units = {"score_unit": "", "cost_unit": "", "source": ""}
    with pytest.raises(ValueError, match=r"costs has shape \(1,\); expected \(2,\)"):
        ModelTable(("a", "b"), [1, 2], [1], **units)
    with pytest.raises(ValueError, match="scores is .* finite"):
        ModelTable(("a", "b"), [1, np.nan], [1, 2], **units)
    with pytest.raises(ValueError, match="read-only"):
        STAGEROUTE_TABLE_1.scores[0] = 0
    with pytest.raises(ValueError, match=r"prices has shape \(1,\); expected \(2,\)"):
        PriceTable(("a", "b"), [1], unit="", source="")


def test_a_row_of_another_length_than_the_columns_is_refused(monkeypatch):
    table = {"source": "", "columns": {"task": "task", "reward": "reward"}, "rows": [["awc", 0.18], ["suc"]]}
    monkeypatch.setattr(papers, "_read", lambda paper: {"chatglm2": table})
    with pytest.raises(ValueError, match=r"c2mabv.json, chatglm2: \('suc',\) must have 2 values: task, reward"):
        papers._rows("c2mabv", "chatglm2")


@pytest.mark.parametrize("change", [lambda rows: rows[:-1], lambda rows: [*rows, rows[0]], lambda rows: rows[::-1]])
def test_a_missing_repeated_or_misplaced_benchmark_is_refused(change):
    rows = papers._groups("messplus", "table_2")["MESS+"]
    with pytest.raises(ValueError, match="rows are .*; expected arc_challenge, .*, average"):
        papers._by_benchmark(papers._entry, change(rows))


def test_normalisations_refuse_what_they_cannot_scale():
    for scale, scores, message in (
        (min_max, [3.0, 3.0], "scores is .* different"),
        (min_max, [3.0, np.nan], r"scores must be finite, got nan at index \(1,\)"),
        (divide_by_max, [0.0, 0.0], "scores is .* positive"),
        (divide_by_max, [-1.0, 2.0], "scores is .* positive"),
    ):
        with pytest.raises(ValueError, match=message):
            scale(scores)
