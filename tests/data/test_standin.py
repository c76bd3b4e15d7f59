"""The synthetic prompts that stand in for RouterBench, SPROUT and EmbedLLM."""

import numpy as np
import pytest
from helpers import assert_mean_close

from jaxroute.data import SPROUT_PRICES, STAGEROUTE_TABLE_2, STANDIN_MODELS, RoutingTable, standin
from jaxroute.problems.queueing.sources.utility import departure_probability, describe_probabilities


def described(seed, size=1, **arguments):
    table, _ = standin(**({"models": "sprout", "offline": 1} | arguments), seed=seed)
    probability, degenerate = departure_probability(table.scores, table.costs)
    assert not degenerate.any()
    return describe_probabilities(probability, size=size)


@pytest.mark.parametrize(("models", "count"), [("routerbench", 11), ("sprout", 14), ("embedllm", 112)])
@pytest.mark.parametrize(("preset", "scores", "dim"), [("clean", "soft", 64), ("semantic-noise", "binary", 384)])
def test_tables(models, count, preset, scores, dim):
    online, offline = standin(models, preset=preset, scores=scores, dim=dim, queries=300, offline=200)
    assert (online.num_queries, offline.num_queries) == (300, 200)
    for table in (online, offline):
        assert isinstance(table, RoutingTable)
        assert table.num_models == count
        assert table.features.shape == (table.num_queries, dim)
        np.testing.assert_allclose(np.linalg.norm(table.features.astype(float), axis=1), 1, atol=1e-6)
        assert table.costs.max() <= 1
        assert (set(np.unique(table.scores)) == {0, 1}) == (scores == "binary")
        assert len(table.group_names) == 8
    assert online.models == offline.models
    # By definition half a percent of the pool's costs are cut off.
    assert 0.003 < (online.costs == 1).mean() < 0.007


def test_published_numbers():
    assert {name for name, _, _ in STANDIN_MODELS["routerbench"]} == set(STAGEROUTE_TABLE_2.names)
    prices = {name: price for name, _, price in STANDIN_MODELS["sprout"]}
    assert prices.pop("openai-o3-mini") == 4.4
    assert prices == {name: price for name, (_, price) in SPROUT_PRICES.items()}


def test_what_simple_routers_achieve():
    # With SPROUT's accuracies the means over 100 worlds are .562 and .789, with spreads of .020 and .052.
    rates = [described(seed) for seed in range(40)]
    random, fixed = (np.array([r[name] for r in rates]) for name in ("random", "best_fixed"))
    assert_mean_close(random, 0.5616, what="random")
    assert_mean_close(fixed, 0.789, what="best fixed")
    assert np.all((random > 0.48) & (random < 0.64)) and np.all((fixed > 0.65) & (fixed < 0.96))
    np.testing.assert_allclose([r["oracle"] for r in rates], 0.99)


@pytest.mark.parametrize("models", ["routerbench", "embedllm"])
@pytest.mark.parametrize(("preset", "scores"), [("clean", "binary"), ("semantic-noise", "soft")])
def test_other_presets_leave_something_to_learn(models, preset, scores):
    single = described(0, models=models, preset=preset, scores=scores, queries=300)
    assert 0.45 < single["random"] < single["best_fixed"] - 0.05 < 0.9
    if models == "routerbench":
        pair = described(0, size=2, models=models, preset=preset, scores=scores, queries=300)
        assert single["random"] + 0.1 < pair["random"] < pair["best_fixed"] < pair["oracle"] < 1


def probe(features, labels):
    """Share of the variance of `labels` `[n, k]` that least squares on the features explains, on a held-out half."""
    half = len(features) // 2
    design = np.column_stack([features, np.ones(len(features))])
    weights = np.linalg.lstsq(design[:half], labels[:half], rcond=None)[0]
    rest = labels[half:] - labels[:half].mean(axis=0)
    return 1 - ((labels[half:] - design[half:] @ weights) ** 2).sum() / (rest**2).sum()


def test_features_tell_the_topic_clearly_or_through_noise():
    explained = {}
    for preset in ("clean", "semantic-noise"):
        table, _ = standin(preset=preset, queries=2000, offline=1)
        explained[preset] = probe(table.features.astype(float), np.eye(8)[table.groups])
    assert explained["clean"] > explained["semantic-noise"] + 0.1 > 0.4
    # Without a part of the features beyond the topic, a model's mean logit depends on the topic alone.
    table, _ = standin(preset="semantic-noise", queries=4000, offline=1)
    residual = np.log(table.scores.astype(float) / (1 - table.scores.astype(float)))
    residual -= residual.mean(axis=1, keepdims=True)  # without the difficulty
    for topic in range(8):
        rows = residual[table.groups == topic]
        assert rows.std(axis=0).max() < 1e-2  # float32 scores near 1


def test_accuracies_are_those_asked_for():
    # Over many topics and prompts, the logit's mean is logit(accuracy): the spreads around it are symmetric.
    accuracy = np.array([0.2, 0.5, 0.9])
    logits = []
    for seed in range(40):
        table, _ = standin((accuracy, np.ones(3)), queries=50, offline=1, seed=seed, topics=30, dim=64)
        p = np.clip(table.scores.astype(float), 1e-7, 1 - 1e-7)
        logits.append(np.log(p / (1 - p)).mean(axis=0))
    for j, expected in enumerate(np.log(accuracy / (1 - accuracy))):
        assert_mean_close(np.array(logits)[:, j], expected, what=f"model {j}")


def test_the_seed_decides_everything():
    def same(a, b):
        return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("scores", "costs", "features", "groups"))

    first, second = standin(queries=30, offline=20, seed=3), standin(queries=30, offline=20, seed=3)
    assert all(same(a, b) for a, b in zip(first, second, strict=True))
    longer = standin(queries=30, offline=50, seed=3)
    assert same(first[0], longer[0])
    assert not same(first[0], standin(queries=30, offline=20, seed=4)[0])
    assert not np.array_equal(first[0].features[:20], first[1].features)
    free, _ = standin(([0.5, 0.6], [0.0, 0.0]), queries=5, offline=1)
    assert free.costs.max() == 0 and free.models == ("model-0", "model-1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": "sprot"}, "models must be one of .*did you mean 'sprout'"),
        ({"models": np.ones(3)}, r"models must be a name or a pair of arrays \(accuracy, price\)"),
        ({"models": ([0.5, 1.0], [1, 1])}, "accuracy must be between 0 and 1 exclusive, got 1 at index 1"),
        ({"models": ([], [])}, r"accuracy must have shape \[N\]"),
        ({"models": ([0.5, 0.6], [1])}, r"price must have shape \(2,\), got \(1,\)"),
        ({"preset": "noise"}, "preset must be one of 'clean', 'semantic-noise'"),
        ({"scores": "hard"}, "scores must be one of 'soft', 'binary'"),
        ({"queries": 0}, "queries must be at least 1, got 0"),
        ({"dim": 15}, r"dim must be at least topics \+ styles = 16, .* got 15"),
    ],
)
def test_bad_input_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        standin(**arguments)
