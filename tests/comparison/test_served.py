"""Comparison on logs with one answer per query: what is claimed, what is left open, and what is said about unfit logs."""

import json

import numpy as np
import pandas as pd
import pytest
from served_cases import full_table, served

from jaxroute.cli import main
from jaxroute.comparison import compare_served, load_strategy
from jaxroute.data import read_recorded


def compared(frame, target=0.7, **reading):
    return compare_served(read_recorded(frame, **reading), target_quality=target)


def by_category(queries):
    """A rule that chooses by the category alone."""
    return np.eye(3)[full_table(queries)[0] % 2 + 1]


def test_a_clear_saving_is_claimed_and_is_true():
    found = compared(served())
    _, scores, costs = full_table(4000)
    assert found.best is not None and found.problem is None
    saved = found.verdict(found.best)
    own = float((costs * [0.25, 0.25, 0.5]).sum(1).mean())
    middle = next(c for c in found.candidates if c.strategy == "middle")
    assert (
        found.meets(middle)
        and found.verdict(middle).saving.low < 1 - costs[:, 1].mean() / own < found.verdict(middle).saving.high
    )
    assert saved.saving.low > 0 and saved.quality.low >= 0.7
    assert abs(middle.evaluated.quality.value - scores[:, 1].mean()) < 4 * middle.evaluated.quality.error
    assert "reaches 70 %" in found.sentence and "less than now" in found.sentence
    assert found.meets(next(c for c in found.candidates if c.strategy == "small")) is False


def test_where_the_log_s_rule_misses_the_target_a_model_is_the_base():
    found = compared(served(8000, probability=(0.6, 0.2, 0.2)), target=0.75)
    assert found.logged.quality.value < 0.7 and found.base.name in ("middle", "large")
    assert found.best is not None and (
        "the cheapest single model that is proven to" in found.sentence or found.best.evaluated is found.base
    )


def test_what_is_too_close_stays_open():
    found = compared(served(800), target=0.79)
    assert found.best is None and found.sentence.startswith("The log proves no saving at 79 %")
    assert "more queries like these would prove it" in found.sentence or "too close" in found.sentence
    impossible = compared(served(), target=0.97)
    assert impossible.sentence.startswith("The log shows no rule that reaches 97 %") and impossible.exported is None


UNFIT = {
    "deterministic, by category": (
        lambda: served(2000, probability=by_category(2000), propensity=None),
        {},
        "did not choose at random",
    ),
    "deterministic, as stated": (lambda: served(2000, probability=by_category(2000)), {}, "did not choose at random"),
    "propensities half as large": (lambda: halved(0.5), {}, "The propensities contradict the log"),
    "propensities twice as large": (lambda: halved(2.0), {}, "was not possible for about"),
    "40 queries": (lambda: served(40), {}, "Too few answers, by their effective sample size"),
    "a model that is rarely used": (lambda: served(2000, probability=(0.005, 0.3, 0.695)), {}, r"Too few answers.*small \("),
    "scores that depend on the model": (lambda: half_scored(True), {}, "share with a score depends on the model"),
    "a category without a model": (
        lambda: served(2000, probability=without_law()),
        {},
        "No overlap: the log never used large on law",
    ),
    "few scores": (lambda: half_scored(False), {}, "of the answers have no score"),
    "three users": (
        lambda: served(2000, user_id=[f"u{i % 3}" for i in range(2000)]),
        {},
        "come from 3 users; errors treat those of one as dependent",
    ),
    "not uniform": (lambda: served(2000, propensity=None), {"logging": "uniform"}, "The choice was not uniform"),
    "unknown rule": (lambda: served(2000, propensity=None), {}, "right only if the choice depended on nothing else"),
    "copies": (lambda: pd.concat([stamped(), stamped().iloc[:900]]), {}, "come from 2,000 different prompts"),
}


def halved(factor):
    frame = served(3000)
    return frame.assign(propensity=np.minimum(frame["propensity"] * factor, 1.0))


def without_law():
    """All models answer at random, except that the large one answers no query of the category "law"."""
    is_law = full_table(2000)[0][:, None] == 0
    return np.where(is_law, [0.5, 0.5, 0.0], [0.25, 0.25, 0.5])


def half_scored(depends):
    frame = served(3000)
    share = np.where(frame["model"] == "large", 0.2, 0.7) if depends else 0.5
    return frame.assign(score=np.where(np.random.default_rng(3).random(3000) < share, frame["score"], np.nan))


def stamped():
    return served(2000, request_id=None, timestamp=pd.date_range("2026-10-01", periods=2000, freq="min"))


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_logs_are_described_before_any_answer(name):
    pytest.importorskip("sklearn")
    make, options, message = UNFIT[name]
    found = compared(make(), target=0.6, **options)
    text = " ".join([*found.answerable, *found.sentences])
    assert pd.Series([text]).str.contains(message, regex=True)[0], text
    assert found.answerable[0].startswith("Answers by model: ")
    if "did not choose" in message or "contradict" in message:
        assert found.best is None and found.exported is None and not found.verdicts
        assert found.sentence.startswith("This log cannot tell what another rule would cost.")
    if name in ("40 queries", "three users"):
        assert found.best is None  # Too little is independent.


def test_too_few_queries_are_refused():
    with pytest.raises(ValueError, match="must have at least 40 queries with a scored answer, got 39"):
        compared(served(39))


def test_estimated_propensities_are_named_in_the_headline():
    pytest.importorskip("sklearn")
    found = compared(served(propensity=None))
    assert found.calibration is not None and found.calibration.gap < 0.02
    assert "if the choice of models depended only on the category" in found.sentences[0]


def test_a_router_that_uses_categories_is_found_saved_and_loaded(tmp_path):
    """In one category the small model is as good as the large one."""
    rng = np.random.default_rng(0)
    groups = rng.integers(2, size=6000)
    level = np.where(groups[:, None] == 0, [0.9, 0.9, 0.9], [0.2, 0.6, 0.9])
    chosen = rng.choice(3, 6000, p=[0.2, 0.2, 0.6])
    frame = served(6000, propensity=np.array([0.2, 0.2, 0.6])[chosen], category=np.array(["easy", "hard"])[groups])
    frame["model"] = np.array(["small", "middle", "large"])[chosen]
    frame["score"] = (rng.random(6000) < level[np.arange(6000), chosen]).astype(float)
    frame["cost_usd"] = np.array([1.0, 3.0, 9.0])[chosen]
    found = compared(frame, target=0.84)
    assert found.best is not None and found.best.strategy == "Regression router"
    found.report(tmp_path)
    strategy = load_strategy(tmp_path / "choice.npz")
    assert strategy.model(category="easy") == "small" and strategy.model(category="hard") == "large"
    truth = 0.9  # Mean score of this rule in both categories.
    verdict = found.verdict(found.best)
    assert verdict.quality.low < truth < verdict.quality.high
    assert verdict.saved == pytest.approx(
        1 - 5 / 9, abs=0.05
    )  # Than always using the large model: the log's own rule misses the target.
    assert "less than always using large, the cheapest single model that is proven to" in found.sentence


def test_the_summary_is_plain_json_and_marks_the_evidence(tmp_path):
    found = compared(served(2000, probability=(0.005, 0.3, 0.695)))
    found.report(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    evidence = {p["strategy"]: p["evidence"] for p in summary["points"]}
    assert evidence["As logged"] == "observed" and evidence["large"] == "reweighted" and evidence["small"] == "extrapolated"
    for point in summary["points"]:
        assert (point["quality_interval"] is None) == (point["evidence"] != "reweighted")
    page = (tmp_path / "index.html").read_text()
    assert "What this log can answer" in page and "extrapolated" in page and 'class="overlap"' in page


def test_the_command_reads_compares_and_reports(tmp_path, capsys):
    file = tmp_path / "served.csv"
    served(2000).to_csv(file, index=False)
    assert main(["compare", str(file), "--target-quality", "0.7", "-o", str(tmp_path / "report")]) == 0
    printed = capsys.readouterr().out
    assert "What this log can answer" in printed and "proven to meet the target and to save" in printed
    assert {"index.html", "summary.json", "points.csv", "choice.npz"} <= {p.name for p in (tmp_path / "report").iterdir()}
    assert main(["data", str(file)]) == 0
    assert "What this log can answer" in capsys.readouterr().out
    assert main(["compare", str(file), "--target-quality", "0.7", "--orders", "8"]) == 2
    assert "--orders is for policies that learn online" in capsys.readouterr().err
