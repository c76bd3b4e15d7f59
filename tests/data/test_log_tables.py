"""The drawn logs agree with themselves: files hold the drawn cells, and the truth is what a second computation finds."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from log_tables import COST_UNITS, KNOWN, draw_table, judge, plain_name, text_cell

DRAWS = [draw_table(seed) for seed in range(1500)]
FINDINGS = {f"L{number}" for number in (1, 3, 4, 5, 6, 7, 8, 9, 12, 18, 19, 20, 21, 22)}


@pytest.mark.fast
def test_every_finding_is_in_two_of_a_hundred_draws():
    for finding in FINDINGS:
        assert sum(finding in drawn.kinds for drawn in DRAWS) >= 0.02 * len(DRAWS), finding
    assert 0.7 < np.mean([drawn.determined for drawn in DRAWS]) < 0.9
    assert all(drawn.determined == (not drawn.why) for drawn in DRAWS)


@pytest.mark.fast
def test_the_same_seed_draws_the_same():
    for drawn in DRAWS[:100]:
        again = draw_table(drawn.seed)
        for name in ("columns", "options", "form", "scores"):
            assert getattr(again, name) == getattr(drawn, name), name


@pytest.mark.fast
def test_columns_without_a_role_are_not_called_like_the_only_candidate():
    for drawn in DRAWS:
        if not {"two", "lower", "L1", "statistic without sibling"} & drawn.kinds:
            names = {plain_name(column.name) for column in drawn.columns if not column.role}
            assert names & KNOWN <= {"uuid"}, drawn.seed


@pytest.mark.fast
def test_files_hold_the_drawn_cells(tmp_path):
    for drawn in DRAWS[:600]:
        form = drawn.form
        folder = tmp_path / str(drawn.seed)
        folder.mkdir()
        path = drawn.write(folder)
        if form["parts"] or form["pack"]:
            continue
        if form["kind"] == "csv":
            encoding = form["encoding"].removesuffix("-le").removesuffix("-be")
            text = path.read_bytes().decode(encoding).split(form["newline"], len(form["leading"]))[-1]
            found = pd.read_csv(io.StringIO(text), sep=form["separator"], dtype=str, keep_default_na=False)
            assert list(found) == [column.name for column in drawn.columns]
            for column in drawn.columns:
                assert list(found[column.name]) == [text_cell(cell, form) for cell in column.cells], drawn.seed
        elif form["kind"] == "jsonl":
            lines = [json.loads(line) for line in path.read_text(form["encoding"]).splitlines()]
            assert len(lines) == len(drawn.columns[0].cells)


@pytest.mark.fast
def test_truth_is_what_pandas_computes():
    checked = 0
    for drawn in DRAWS:
        by_role = {column.role: column for column in drawn.columns}
        percent = bool({"scale percent", "scale named", "scale sign"} & drawn.kinds)
        plain = percent or {"scale fractions", "scale binary", "scale floats", "scale booleans"} & drawn.kinds
        if (
            not plain
            or not drawn.determined
            or not {"cost", "query"} <= by_role.keys()
            or {"where", "scale"} & set(drawn.options)
        ):
            continue
        frame = pd.DataFrame({role: column.cells for role, column in by_role.items() if role})
        keys = [role for role, column in by_role.items() if column.name in drawn.keys]
        frame["model"] = drawn.form["per_model"] or frame["model"]
        texts = frame["score"].astype(str).str.rstrip("% ").replace({"True": "1", "False": "0"})
        scores = pd.to_numeric(texts, errors="coerce")
        frame["score"], frame["cost"] = scores / (100 if percent else 1), pd.to_numeric(frame["cost"])
        groups = frame.dropna(subset=["score", "cost"]).groupby([*keys, "model"])
        means = groups[["score", "cost"]].mean().unstack("model").dropna()
        truth = np.array([[drawn.scores[key, model] for model in drawn.models] for key in drawn.queries])
        costs = np.array([[drawn.costs[key, model] for model in drawn.models] for key in drawn.queries])
        columns = list(drawn.models)
        np.testing.assert_allclose(np.sort(means["score"][columns].to_numpy(), 0), np.sort(truth, 0), atol=1e-9)
        paid, found = costs.max(1) > 0, np.sort(means["cost"][columns].to_numpy(), 0)
        ratio = found[paid] / np.maximum(np.sort(costs, 0), 1e-30)[paid]
        assert min(abs(ratio.max() / unit - 1) for unit in COST_UNITS.values()) < 1e-9
        checked += 1
    assert checked > 200


@pytest.mark.fast
def test_judge_wants_a_file_and_a_remedy():
    drawn = next(drawn for drawn in DRAWS if not drawn.determined and drawn.form["kind"] == "csv" and not drawn.says)
    assert judge(drawn, ValueError("what?")) == "silently wrong: the message lacks the file"
    assert judge(drawn, ValueError(f"{drawn.form['stem']}.csv: what?")) == "silently wrong: the message lacks a remedy"
    assert judge(drawn, ValueError(f"{drawn.form['stem']}.csv: give scale=(LOW, HIGH)")) == "refused ambiguous"
