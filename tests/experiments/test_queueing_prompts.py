"""Queues of prompts: by what settings heads are trained, and whose claims are about any table."""

import numpy as np
import pytest
from every_experiment import EXPERIMENTS

from jaxroute.estimators.contrastive import CONTRASTIVE_PRESETS
from jaxroute.experiments import queueing


@pytest.mark.parametrize("models", ["sprout", "embedllm", "routerbench"])
def test_the_papers_training_is_the_default(models, monkeypatch):
    """ACQB-CL's heads are trained by the preset of the data and differ in the seed alone; the variant has other sizes."""
    asked = []

    def fit(features, probability, **settings):
        asked.append(settings)
        return lambda pool: pool + settings["seed"]

    monkeypatch.setattr(queueing, "fit_projection", fit)
    queueing._projected.cache_clear()
    (case,) = (c for c in EXPERIMENTS["queueing/contrastive"].cases if c.name == "K1-load0.8")
    changes = {"models": models, "dim": 16, "horizon": 100}
    env = case.build(100, {"models": models, "dim": 16})
    policies = case.policies_for(env, changes)
    queueing._projected.cache_clear()
    shared = {"width": 32, "out": 16}
    preset = CONTRASTIVE_PRESETS[models]
    longer = preset | {"per_model": 60, "epochs": 100, "batch": None}
    assert asked == [training | shared | {"seed": seed} for training in (preset, longer) for seed in range(4)]
    for name in ("ACQB-CL", "ACQB-CL, longer"):
        features = [np.asarray(policy.features) for policy in policies[name].objects]
        assert [round(float((one - features[0]).mean())) for one in features] == [0, 1, 2, 3]
        assert {(p.c1, p.curvature, p.ridge) for p in (*policies[name].objects, policies["ACQB"])} == {(2.0, 0.05, 0.1)}


def test_claims_about_any_table_are_judged_of_a_users_own():
    table = {"environment": {"data": "FILE", "costs": {"a": 1.0}}}
    for name in ("table", "contrastive"):
        experiment = EXPERIMENTS[f"queueing/{name}"]
        assert experiment.departures(experiment.horizon, table) == ""
        assert all(claim.source.startswith("ours") for claim in experiment.claims)  # Not the paper's, on its own data.
        assert experiment.departures(100, table) == "100 rounds instead of 5,000"
        assert experiment.departures(5000, {"environment": {"load": 0.5}}) == "environment.load = 0.5"
        assert experiment.departures(5000, {"ACQB": {"c1": 1.0}}) == "ACQB.c1 = 1.0"
    assert EXPERIMENTS["queueing/figure-3"].departures(5000, table).startswith("environment.data = FILE")


def test_a_log_of_texts_is_played_by_features_of_the_texts(tmp_path):
    pytest.importorskip("sklearn")
    words = ("solve", "write", "prove", "draw", "count", "sort")
    rows = [
        f"{q},{words[q % 6]} the {words[q // 6 % 6]} {q},{m},{(q + i) % 2},0.0{i + 1}"
        for q in range(60)
        for i, m in enumerate("ab")
    ]
    file = tmp_path / "answers.csv"
    file.write_text("\n".join(("query_id,prompt,model,score,cost", *rows)) + "\n")
    with pytest.warns(UserWarning, match="answers.csv: features: text of column 'prompt', hashed"):
        env = queueing.data_queue(data=str(file), horizon=50)
    assert env.spec.rounds == 50
    pool, offline = queueing._tables("sprout", str(file), None, None, 64)
    assert (pool.num_queries, offline.num_queries) == (40, 20) and pool.features.shape[1] <= 32
