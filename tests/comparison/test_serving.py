"""A routing strategy for new queries: the rule of the report, saved, loaded and called query by query."""

import numpy as np
import pytest

import jaxroute as jr
from jaxroute.comparison import choice, load_strategy, serving
from jaxroute.comparison.offline import fit_cascade, offline, sample_of
from jaxroute.data import RoutingTable, read_log

TARGETS = (0.6, 0.9)


def logged(queries=120, seed=0, categories=False):
    """Only the large model answers questions of law; both models answer sums."""
    rng = np.random.default_rng(seed)
    rows = ["prompt,llm,correct,cost" + (",task" if categories else "")]
    for q in range(queries):
        law = bool(q % 2)
        words = ("contract court judge verdict" if law else "add number plus total").split()
        text = f"{' '.join(rng.permutation(words))} {q}"
        for model, right, cost in (("small", not law, 1.0), ("large", True, 8.0)):
            right ^= rng.random() < 0.03
            task = f",{'law' if law else 'sum'}" * categories
            rows.append(f"{text},{model},{int(right)},{cost * rng.uniform(0.9, 1.1):.4f}{task}")
    return "\n".join(rows)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    pytest.importorskip("sklearn")
    file = tmp_path_factory.mktemp("log") / "log.csv"
    file.write_text(logged())
    return read_log(file)


@pytest.fixture(scope="module")
def points(log):
    return offline(log.table, TARGETS)


def test_features_of_new_texts_are_those_of_the_log(log, tmp_path):
    import csv

    with open(log.opened.split("'")[1]) as file:
        texts = list(dict.fromkeys(row["prompt"] for row in csv.DictReader(file)))
    np.testing.assert_allclose(log.reader.of(texts), log.table.features, atol=1e-5)
    np.testing.assert_array_equal(log.reader.of(["zzz qqq", ""]), 0.0)
    assert log.reader.of(["court verdict of a new case"]).shape == (1, log.table.features.shape[1])


def test_a_saved_rule_routes_single_queries_as_it_routes_the_whole_log(log, points, tmp_path):
    sample = sample_of(log.table)
    seen = set()
    for point in points:
        if not serving.can_be_saved(point) or (point.kind, point.strategy) in seen:
            continue
        seen.add((point.kind, point.strategy))
        made = serving.strategy_of(log, point)
        assert point.kind == "single" or point.setting.endswith(str(made.rule))
        strategy = load_strategy(made.save(tmp_path / "choice.npz"))
        assert all(getattr(strategy, name) == getattr(made, name) for name in ("name", "setting", "models", "unit"))
        law, total = ("verdict of the judge in court", "add a number plus a total")
        assert strategy.model(law, draw=0.5) == made.model(law, draw=0.5) in strategy.models
        if point.strategy in ("Nearest neighbours", "Logistic regression"):
            assert (strategy.model(law), strategy.model(total)) != ("small", "large")
            assert strategy.model(law, asked={strategy.model(law): 1.0}) is None
            one_by_one = [made.rule.next_model(sample.take([q]), (), 0.0) for q in range(sample.num_queries)]
            np.testing.assert_array_equal(one_by_one, made.rule.choose(sample))
    assert {"Best mixture", "Nearest neighbours", "Logistic regression", "FrugalGPT cascade"} <= {name for _, name in seen}


@pytest.mark.parametrize("make", [list, tuple, np.array, lambda texts: np.array(texts, object)])
def test_many_queries_at_once_are_routed_as_one_by_one(log, points, make):
    texts = ["verdict of the judge in court", "add a number plus a total", "plus", ""]
    for name in ("Nearest neighbours", "Logistic regression", "FrugalGPT cascade", "large"):
        strategy = serving.strategy_of(log, next(p for p in points if p.strategy == name and p.kind != "bound"))
        assert strategy.predict(make(texts)) == [strategy.model(text) for text in texts]
        assert strategy.predict(make([])) == []
    for wrong, shown in (("court", "'court'"), (None, "None"), (3, "3")):
        message = rf"queries must be a list of texts or rows of numbers, got {shown}; for one give \[query"
        with pytest.raises(ValueError, match=message):
            strategy.predict(wrong)
    strategy = serving.strategy_of(log, next(p for p in points if p.strategy == "Logistic regression"))
    with pytest.raises(ValueError, match="text must be that of the query, which Logistic regression uses, got 3"):
        strategy.predict(["court", 3])


def test_a_cascade_calls_the_same_models_query_by_query(log):
    sample = sample_of(log.table)
    for target in (0.6, 0.75, 0.9, 0.97):
        rule = fit_cascade(log.table, target)
        called = np.zeros(sample.scores.shape)
        for q in range(sample.num_queries):
            asked = []
            while (following := rule.next_model(sample.take([q]), asked, 0.0)) is not None:
                asked.append(following)
                called[q, following] += 1
        outcomes = rule.evaluate(sample)
        np.testing.assert_array_equal(called.sum(0), outcomes.sent)
        np.testing.assert_array_equal(called.sum(1), outcomes.calls)
    strategy = serving.Strategy("FrugalGPT cascade", "", rule, log.reader, log.table.features.shape[1])
    later = [name for k, name in enumerate(strategy.models) if k != rule.stages[0]]
    with pytest.raises(ValueError, match="asked must follow the cascade"):
        strategy.model("court", asked={later[0]: 1.0})


def test_a_mixture_calls_each_model_with_its_probability():
    table = RoutingTable(np.tile([[0.0, 1.0], [1.0, 1.0]], (20, 1)), np.tile([[1.0, 4.0]], (40, 1)), ("a", "b"))
    point = next(p for p in offline(table, (0.8,)) if p.strategy == "Best mixture")
    strategy = serving.strategy_of(jr.data.Log(table), point)
    assert strategy.rule.weight == pytest.approx(0.6)
    assert [strategy.model(draw=x) for x in (0.0, 0.59, 0.61)] == ["b", "b", "a"]
    assert strategy.model("whatever", draw=0.0, asked={"b": 4.0}) is None
    assert sum(point.shares.values()) == pytest.approx(1.0)


def test_missing_inputs_are_named(log, points, tmp_path):
    model = serving.strategy_of(log, next(p for p in points if p.strategy == "Logistic regression")).model
    bound, file = next(p for p in points if p.kind == "bound"), tmp_path / "other.npz"
    np.savez(file, a=np.zeros(3))
    for call, message in (
        (model, "text must be that of the query, which Logistic regression uses, got None"),
        (lambda: model("court", asked={"smal": 1.0}), "a model in asked must be one of"),
        (lambda: model("court", asked={"small": -1.0}), "at least 0"),
        (lambda: serving.strategy_of(log, bound), "point must be a single model or one of Best mixture"),
        (lambda: load_strategy(file), "must be a routing strategy that `jaxroute compare` saved"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(OSError):
        load_strategy(tmp_path / "nowhere.npz")


def test_categories_alone_and_beside_texts(tmp_path):
    pytest.importorskip("sklearn")
    (tmp_path / "log.csv").write_text(logged(categories=True))
    for features in ("none", None):
        log = read_log(tmp_path / "log.csv", features=features)
        point = next(p for p in offline(log.table, (0.95,)) if p.strategy == "Logistic regression")
        strategy = load_strategy(serving.strategy_of(log, point).save(tmp_path / "strategy.npz"))
        text = None if features == "none" else "verdict of the court"
        assert strategy.model(text, category="law") == "large"
        assert strategy.model(text, category="never heard of") in strategy.models
        assert "category=category" in serving.snippet(log, point, "strategy.npz")
        each = [strategy.model(text, category=c) for c in ("law", "sum")]
        assert strategy.predict([text] * 2, categories=["law", "sum"]) == each
        with pytest.raises(ValueError, match="categories must be a list of 2, one for each query"):
            strategy.predict([text] * 2, categories=["law"])
        if features == "none":
            with pytest.raises(ValueError, match="category must be that of the query"):
                strategy.model()


def test_long_embeddings_are_reduced_as_those_of_the_log():
    rng = np.random.default_rng(0)
    table = RoutingTable(rng.integers(0, 2, (60, 2)), np.tile([[1.0, 2.0]], (60, 1)), ("a", "b"))
    numbers = rng.normal(size=(60, 100))
    log = read_log(table, features=numbers)
    np.testing.assert_allclose(log.reader.of(numbers), log.table.features, atol=1e-5)
    point = next(p for p in offline(log.table, (0.5,)) if p.strategy == "Nearest neighbours")
    strategy = serving.strategy_of(log, point)
    assert strategy.model(features=numbers[0]) in ("a", "b")
    each = [strategy.model(features=row) for row in numbers]
    assert strategy.predict(numbers) == strategy.predict(numbers.tolist()) == each
    for wrong in (numbers[:3, :32], numbers[0]):
        with pytest.raises(ValueError, match=r"features must have shape \(\d+, 100\)"):
            strategy.predict(wrong)
    with pytest.raises(ValueError, match=r"features must have shape \(1, 100\), got \(1, 32\)"):
        strategy.model(features=numbers[0, :32])


def test_the_answer_or_the_cheapest_rule_is_saved(points):
    saved = choice.saved(points, 0.9, serving.can_be_saved)
    best = choice.answer(points, 0.9).best
    assert saved is best or saved.kind == "single"
    assert choice.saved(points, 0.9999, serving.can_be_saved) is None
