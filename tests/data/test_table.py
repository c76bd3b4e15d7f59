"""`RoutingTable`: what it accepts, its parts, the files that it writes."""

import numpy as np
import pytest
from data_cases import COSTS, FEATURES, GROUP_NAMES, GROUPS, MODELS, SCORES, assert_same, changed, full_table

from jaxroute.data import RoutingTable, load_table


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": SCORES[0]}, r"scores has shape \(2,\); expected \[Q, N\]"),
        ({"scores": SCORES[:0], "costs": COSTS[:0]}, r"scores has shape \(0, 2\); expected .* at least one query"),
        ({"costs": COSTS[:2]}, r"costs has shape \(2, 2\); expected \(3, 2\)"),
        ({"models": ("a",)}, r"models has 1 names; expected 2"),
        ({"models": ("a", "a")}, r"models has 'a' more than once"),
        ({"scores": changed(SCORES, (1, 1), np.nan)}, f"scores is nan at row 1, model '{MODELS[1]}'; .* finite"),
        ({"costs": changed(COSTS.astype(float), (0, 0), 1e300)}, f"costs is inf at row 0, model '{MODELS[0]}'"),
        ({"scores": changed(SCORES, (0, 1), 1.5)}, rf"scores is 1.5 at row 0, model '{MODELS[1]}'; .*\[0, 1\]"),
        ({"scores": changed(SCORES, (0, 1), -0.5)}, r"scores is -0.5 at row 0, .*\[0, 1\]"),
        ({"costs": changed(COSTS, (1, 0), -1.0)}, "costs is -1.0 at row 1, .* at least 0"),
        ({"features": FEATURES[:2]}, r"features has shape \(2, 4\); expected \[3, d\]"),
        ({"features": changed(FEATURES, (2, 3), np.nan)}, r"features is nan at \[2, 3\]; .* finite"),
        ({"groups": None}, "group_names has 2 names but groups is None"),
        ({"groups": GROUPS[:2]}, r"groups has shape \(2,\) .* expected \[3\] integers"),
        ({"groups": GROUPS.astype(float)}, "groups has .* dtype float64; expected"),
        ({"groups": changed(GROUPS, 1, 2)}, r"groups is 2 at \[1\]; .* 0 to 1"),
        ({"prompts": [0, -1, 0]}, r"prompts is -1 at \[1\]; .* 0 to 2\^31 - 1"),
        ({"prompts": [0, 1, 2**31]}, r"prompts is 2147483648 at \[2\]"),
    ],
)
def test_impossible_tables_are_refused_by_name(change, message):
    arguments = {"scores": SCORES, "costs": COSTS, "models": MODELS, "features": FEATURES}
    arguments |= {"groups": GROUPS, "group_names": GROUP_NAMES}
    with pytest.raises(ValueError, match=message):
        RoutingTable(**(arguments | change))


def test_table_has_its_own_read_only_arrays():
    scores = SCORES.astype(np.float64)
    table = RoutingTable(scores, COSTS, list(MODELS), groups=[0, 1, 0], group_names=GROUP_NAMES)
    scores[0, 0] = 0.0
    assert table.scores[0, 0] == 1.0
    assert scores.flags.writeable
    for array in (table.scores, table.costs, table.groups):
        assert not array.flags.writeable
    assert (table.scores.dtype, table.groups.dtype) == (np.float32, np.int32)
    assert (table.num_queries, table.num_models, table.models) == (3, 2, MODELS)


def test_means_are_float64():
    # Table of 0.1 and 0.3: a float32 sum over 3,000 rows would be off by more than 1e-9.
    table = RoutingTable(np.full((3000, 1), 0.1), np.full((3000, 1), 0.3), ["m"])
    np.testing.assert_allclose(table.mean_scores(), [np.float32(0.1)], rtol=1e-12)
    np.testing.assert_allclose(table.mean_costs(), [np.float32(0.3)], rtol=1e-12)
    assert table.mean_scores().dtype == table.mean_costs().dtype == np.float64


def test_subset():
    table = full_table()
    assert_same(table.subset(), table)
    order = [2, 0]
    scores, costs = SCORES[order][:, ::-1], COSTS[order][:, ::-1]
    turned = RoutingTable(scores, costs, MODELS[::-1], FEATURES[order], GROUPS[order], GROUP_NAMES)
    assert_same(table.subset(models=MODELS[::-1], rows=order), turned)
    assert_same(table.subset(rows=slice(1, None)), table.subset(rows=np.array([False, True, True])))
    assert_same(table.subset(models=MODELS[1]), table.subset(models=[MODELS[1]]))
    assert table.subset(rows=[1, 1]).num_queries == 2
    assert RoutingTable(SCORES, COSTS, MODELS).subset(rows=2).features is None


def test_subset_refuses_what_is_not_there():
    table = full_table()
    with pytest.raises(ValueError, match="models has 'gpt-5', which the table lacks; it has gpt-4-1106-preview, "):
        table.subset(models=["gpt-5"])
    with pytest.raises(IndexError, match="rows does not fit a table of 3 queries"):
        table.subset(rows=[3])
    with pytest.raises(IndexError, match="rows does not fit a table of 3 queries"):
        table.subset(rows=[True, False])
    for nothing in ({"rows": []}, {"models": []}):
        with pytest.raises(ValueError, match="at least one query and one model"):
            table.subset(**nothing)


def test_order_by_cost():
    table = full_table().order_by_cost()
    assert table.models == MODELS[::-1]
    assert np.all(np.diff(table.mean_costs()) >= 0)
    equal = RoutingTable(SCORES, np.ones_like(COSTS), MODELS)
    assert equal.order_by_cost().models == MODELS


def test_with_features():
    table, other = full_table(), FEATURES[:, :2] + 1
    assert_same(table.with_features(other), RoutingTable(SCORES, COSTS, MODELS, other, GROUPS, GROUP_NAMES))
    assert_same(table.with_features(None), RoutingTable(SCORES, COSTS, MODELS, None, GROUPS, GROUP_NAMES))
    assert table.features.shape == (3, 4)
    with pytest.raises(ValueError, match=r"features has shape \(2, 4\); expected \[3, d\]"):
        table.with_features(FEATURES[:2])


@pytest.mark.parametrize("table", [full_table(), RoutingTable(SCORES, COSTS, MODELS, cost_unit="MJ per query")])
def test_save_and_load(table, tmp_path):
    path = tmp_path / "table.bin"  # The name is kept as it is.
    table.save(path)
    assert_same(RoutingTable.load(path), table)
    path = tmp_path / "table.npz"
    table.save(path)
    assert_same(load_table(path), table)


def test_load_names_what_is_missing(tmp_path):
    path = tmp_path / "table.npz"
    np.savez(path, scores=SCORES, costs=COSTS)
    with pytest.raises(ValueError, match="lacks models, cost_unit; it has scores, costs"):
        RoutingTable.load(path)


def test_a_table_knows_which_rows_of_the_file_it_has(tmp_path):
    table = full_table().subset(rows=[2, 1, 0]).subset(rows=[2, 0])
    assert (table.rows.tolist(), table.num_rows) == ([0, 2], 3)
    table.save(tmp_path / "t.npz")
    for load in (RoutingTable.load, load_table):
        assert load(tmp_path / "t.npz").rows.tolist() == [0, 2]
        assert load(tmp_path / "t.npz").num_rows == 3
    np.testing.assert_array_equal(table.with_features(FEATURES + 1).features, FEATURES[[0, 2]] + 1)
    for rows in ([0, 3, 1], [0, -1, 1], [0, 1], [0.5, 1, 2]):
        with pytest.raises(ValueError, match=r"rows must be \[3\] integers from 0 to num_rows - 1 = 2"):
            RoutingTable(SCORES, COSTS, MODELS, rows=rows)


def test_prompts_go_with_their_queries(tmp_path):
    table = RoutingTable(SCORES, COSTS, MODELS, prompts=[5, 2, 5])
    assert table.prompts.tolist() == [5, 2, 5] and table.prompts.dtype == np.int32 and not table.prompts.flags.writeable
    assert table.subset(rows=[1, 2]).prompts.tolist() == table.order_by_cost().with_features(FEATURES).prompts.tolist()[1:]
    table.save(tmp_path / "t.npz")
    assert RoutingTable.load(tmp_path / "t.npz").prompts.tolist() == [5, 2, 5]
    assert full_table().prompts is None


def test_to_frame():
    frame = full_table().to_frame()
    assert list(frame.columns) == ["query", "model", "score", "cost", "group"]
    assert frame["query"].tolist() == [0, 0, 1, 1, 2, 2] and frame["model"].tolist() == [*MODELS] * 3
    np.testing.assert_array_equal(frame.pivot(index="query", columns="model", values="score")[[*MODELS]], SCORES)
    np.testing.assert_array_equal(frame["cost"].to_numpy().reshape(3, 2), COSTS)
    assert frame["group"].tolist() == ["mbpp", "mbpp", "mmlu-law", "mmlu-law", "mbpp", "mbpp"]
    frame.loc[0, "score"] = 0.5  # A copy.
    assert "group" not in RoutingTable(SCORES, COSTS, MODELS).to_frame()


def test_repr_is_short():
    assert repr(full_table()) == "RoutingTable(3 queries x 2 models, cost in USD per query, 4 features, 2 groups)"
    assert repr(RoutingTable(SCORES, COSTS, MODELS)) == "RoutingTable(3 queries x 2 models, cost in USD per query)"
