"""Real tables: a sample of RouterBench (365 queries, 11 models) and one of RouterArena (809, 2)."""

import numpy as np
import pytest
from helpers import shared_data

from jaxroute.comparison.offline import offline
from jaxroute.comparison.points import meets
from jaxroute.data import RoutingTable, load_table

TARGETS = (0.6, 0.65, 0.7, 0.75, 0.8)


@pytest.fixture(scope="module", params=["routerbench_0shot_uniform365.npz", "routerarena_sub10.npz"])
def measured(request):
    path = shared_data(request.param)
    if "routerbench" in request.param:
        table = load_table(path)
    else:  # One score is a little below 0.
        with np.load(path) as file:
            table = RoutingTable(np.clip(file["score"], 0, 1), file["cost"], tuple(file["models"].tolist()), file["feat"])
    return table, offline(table, TARGETS)


def test_tuned_rules_come_near_their_targets(measured):
    table, points = measured
    within = [t for t in TARGETS if table.mean_scores().min() + 0.05 < t < table.mean_scores().max() - 0.03]
    assert within
    for target in within:
        for point in points:
            if point.kind == "offline" and point.setting.startswith(f"tuned for {100 * target:g} %"):
                assert point.judged.quality.value > target - 3 * point.judged.quality.error, point


def test_routing_saves_money_on_routerbench(measured):
    """GPT-4 is the cheapest single model that reaches 70 %; mixtures, routers and cascades cost a fraction of it."""
    table, points = measured
    if table.num_models != 11:
        pytest.skip("of the other table")
    reaching = [p for p in points if p.kind == "single" and meets(p.judged.quality, 0.7)]
    assert [p.strategy for p in reaching] == ["gpt-4-1106-preview"]
    most = {"Best mixture": 0.35, "Logistic regression": 0.25, "FrugalGPT cascade": 0.3}
    most["FrugalGPT cascade, perfect judge"] = 0.06
    for name, share in most.items():
        point = next(p for p in points if p.strategy == name and p.setting.startswith("tuned for 70 %"))
        assert point.judged.cost.value < share * reaching[0].judged.cost.value
        assert abs(point.judged.quality.value - 0.7) < 2 * point.judged.quality.error
