"""The answer and the sentences about it, on points made by hand."""

import math

import pytest

from jaxroute.comparison import choice
from jaxroute.comparison.points import JUDGE, Estimate, Measures, Point, meets


def point(strategy, quality, cost, kind="offline", setting="", needs=(), judged=None, error=0.01):
    """A point whose `judged` is `chosen_by`, unless `judged` is another pair of quality and cost."""

    def measures(q, c):
        return Measures(Estimate(q, error), Estimate(c, 0.02 * c), Estimate(1.0, 0.0))

    return Point(strategy, kind, setting, measures(quality, cost), measures(*(judged or (quality, cost))), needs=needs)


SINGLES = [point("small", 0.6, 1.0, "single"), point("large", 0.8, 10.0, "single"), point("huge", 0.82, 20.0, "single")]
BOUND = point("Best model of each query", 0.95, 3.0, "bound")
MIXTURE = [point(choice.MIXTURE, 0.7, 5.5, setting="half"), point(choice.MIXTURE, 0.75, 8.0, setting="a quarter")]
ALONE = "cheaper at 75 %: always using large reaches the target at 10.0 (0.2) USD per query."
# Rules that always call the large model: their costs are the same sums in another order.
RULES = [(-1, "router", ()), (1, choice.MIXTURE, ()), (-2, "cascade", (JUDGE,))]


def said(points, target, unit="USD per query"):
    return choice.sentences(points, choice.answer(points, target), unit)


def test_a_target_is_met_up_to_half_a_standard_error():
    qualities = ((0.745, 0.01), (0.7449, 0.01), (0.75,), (0.7499,))
    assert [meets(Estimate(*quality), 0.75) for quality in qualities] == [True, False, True, False]


def test_a_saving_is_one_minus_the_quotient_with_the_error_of_both():
    saved = choice.saving(point("a", 0.8, 4.0), SINGLES[1])
    assert saved.value == pytest.approx(0.6)  # 1 - 4 / 10
    # The quotient .4 has relative errors of 2 % twice: .4 sqrt(2) .02.
    assert saved.error == pytest.approx(0.4 * math.sqrt(2) * 0.02)
    assert math.isnan(choice.saving(point("a", 0.8, 4.0), point("free", 0.8, 0.0, "single")).value)


def test_settings_are_chosen_by_the_measures_for_choosing_alone():
    overestimated = point("overestimated", 0.7, 0.5, judged=(0.9, 0.1))
    chosen = choice.answers([*SINGLES, overestimated, point("overestimated", 0.76, 0.6, judged=(0.76, 0.6))], 0.75)
    assert [p.chosen_by.quality.value for p in chosen if p.strategy == "overestimated"] == [0.76]
    costly = point("costly", 0.76, 3.0, judged=(0.76, 9.0))
    assert choice.answer([*SINGLES, overestimated, costly], 0.75).best is costly
    assert choice.answer([*SINGLES, overestimated], 0.75).best is SINGLES[1]


def test_a_quality_slightly_below_the_target_is_reported():
    close = said([*SINGLES, point("close", 0.76, 1.0, judged=(0.746, 1.0))], 0.75)[0]
    assert close.startswith("close reaches 74.6 (1.0) % (75 % within half a standard error) at 1.00")


def test_each_approach_has_one_chosen_setting():
    better = point("policy", 0.74, 6.0, "online", "V = 2")
    short = [point("policy", 0.7, 1.0, "online", "V = 1"), better]
    chosen = choice.answers([*SINGLES, *MIXTURE, BOUND, *short], 0.75)
    assert [p for p in chosen if p.strategy == "policy"] == [better]  # None reaches it: the one of the highest quality.
    assert [p.setting for p in chosen if p.strategy == choice.MIXTURE] == ["a quarter"]
    assert [p.strategy for p in chosen if p.kind == "single"] == ["large"]
    assert not [p for p in chosen if p.kind == "bound"]


def test_the_headline():
    points = [*SINGLES, *MIXTURE, BOUND, point("LinUCB", 0.76, 2.9, "online", "width 0.1")]
    first, *besides = said(points, 0.75)
    assert first == (
        "LinUCB (width 0.1) reaches 76.0 (1.0) % at 2.90 (0.06) USD per query, 71.0 (0.8) % less than always using large, "
        "the cheapest single model that does."
    )
    assert besides == ["The best query-blind mixture saves 20.0 (2.3) %."]


def test_a_strategy_with_a_perfect_judge_is_reported_but_not_the_answer():
    judged = point("cascade", 0.76, 2.0, needs=(JUDGE,))
    points = [*SINGLES, *MIXTURE, judged, point("router", 0.76, 5.0)]
    assert choice.answer(points, 0.75).best.strategy == "router"
    first, *besides = said(points, 0.75)
    assert first.startswith("router reaches") and "cascade" not in first
    judge = "With a perfect judge of each answer before it is served"
    assert besides[-1].startswith(f"{judge}, cascade would reach 76.0 (1.0) % at 2.00")
    # One that is no cheaper than the answer is not reported.
    points = [*SINGLES, point("cascade", 0.76, 6.0, needs=(JUDGE,)), point("router", 0.76, 5.0)]
    assert choice.answer(points, 0.75).with_judge is None


def test_the_headline_without_a_clear_saving():
    first, *besides = said([*SINGLES, point("router", 0.76, 9.9)], 0.75)
    assert first == f"No deployable strategy is clearly {ALONE}"
    assert besides == ["router costs 1.0 (2.8) % less."]
    _, below = said([*SINGLES, point("router", 0.76, 9.9, judged=(0.746, 9.9))], 0.75)
    assert below.endswith("% less (tuned for 75 %, but up to half a standard error below it on held-out queries).")
    assert said(SINGLES, 0.75) == [f"No deployable strategy is {ALONE}"]


def test_a_rule_that_always_calls_one_model_is_that_model():
    """RouterArena's rows: one of two models is the better and the cheaper one, and every rule that is fitted calls it."""
    alike = [point(name, 0.8, 10.0 * (1 + 1e-12 * sign), needs=needs) for sign, name, needs in RULES]
    found = choice.answer([*SINGLES[1:], *alike], 0.75)
    assert found.best is found.single is SINGLES[1]
    assert found.with_judge is None and not found.saves
    assert said([*SINGLES[1:], *alike], 0.75) == [f"No deployable strategy is {ALONE}"]


def test_the_headline_if_no_single_model_meets_the_target():
    first, *besides = said([*SINGLES, point("router", 0.9, 12.0), BOUND], 0.88)
    assert first == "No single model reaches 88 %. router reaches 90.0 (1.0) % at 12.0 (0.2) USD per query."
    assert besides == []


def test_the_headline_if_no_strategy_meets_the_target():
    points = [*SINGLES, BOUND]
    found = choice.answer(points, 0.97)
    assert found.best is None and not found.saves
    (text,) = said(points, 0.97)
    highest = "reaches 97 %: the highest deployable quality is 82.0 (1.0) %, by huge"
    assert text.startswith(f"No strategy {highest}, 15.0 points short;")
    assert "the best answer to each query would have 95.0 (1.0) %" in text
    first, besides = said([*points, point("cascade", 0.98, 12.0, needs=(JUDGE,))], 0.97)
    assert first.startswith(f"No strategy without a perfect judge of answers {highest}")
    assert "cascade would reach 98.0 (1.0) %" in besides
