"""Says which questions a served log can answer, before any answer: which models it has tried, at random or not, and what is missing."""

import math
from collections.abc import Iterator

import numpy as np
from scipy import stats

from jaxroute.data import ServedLog
from jaxroute.data.served import UNIFORM

from .evaluation import LEAST_SIZE, Evaluated
from .propensities import Balance, Calibration

# A rule does not choose at random if all its propensities are above the first number, or the mean of estimated ones above the second.
_CERTAIN, _CERTAIN_ESTIMATE = 0.999, 0.97
_SHARE, _QUERIES, _ERROR = 0.05, 20_000, 0.01  # Example of an experiment, and an error of one point.
_SIGNIFICANCE = 1e-3
_LIKELY = 10.0  # Expected answers of a model in a category, from which their absence is reported.


def is_deterministic(log: ServedLog, is_estimated: bool) -> bool:
    """Whether the log's rule was practically deterministic, by given or by estimated propensities."""
    assert log.propensity is not None
    return bool(log.propensity.mean() >= _CERTAIN_ESTIMATE if is_estimated else log.propensity.min() >= _CERTAIN)


def unfit(log: ServedLog, test: Balance | None, is_estimated: bool) -> str | None:
    """Returns why no rule but the log's own can be evaluated, in a sentence; None if nothing prevents it. `test` is the result of `balance`.

    `is_estimated` is whether the propensities were estimated.
    """
    if len(np.unique(log.model)) < 2:
        return f"All queries were answered by {log.models[int(log.model[0])]}, so nothing is known about another choice."
    if is_deterministic(log, is_estimated):
        return (
            "The log's rule did not choose at random: the same kind of query always got the same model. Only this rule, and rules that agree with it, "
            "can be evaluated; what other models would have answered is not in the log."
        )
    if log.source == UNIFORM and stats.chisquare(np.bincount(log.model, minlength=log.num_models)).pvalue < _SIGNIFICANCE:
        return (
            f"The choice was not uniform: {', '.join(_counts(log))} answered, which chance does not explain. Give the propensities in a column, or have "
            "them estimated (--logging estimated)."
        )
    if test is not None and test.wrong:
        return (
            f"The propensities contradict the log: the answers of {test.model} stand for {share(test.share)} (standard error {share(test.error)}) of "
            "the queries, and the propensities would be right at 100 %. No saving is computed from them; check how they were recorded."
        )
    return None


def sentences(
    log: ServedLog, singles: list[Evaluated], calibration: Calibration | None, test: Balance | None, problem: str | None
) -> list[str]:
    """Returns what a log can answer, in sentences.

    Args:
      log: the log, with propensities.
      singles: evaluations of "always this model" for all models.
      calibration: calibration of estimated propensities, None if they were given.
      test: result of `balance`.
      problem: result of `unfit`.
    """
    models = f"Answers by model: {', '.join(_counts(log))}."
    experiment = _experiment(log, singles)
    if problem is not None:
        return [models, *_scores(log), *experiment]
    return [
        models,
        *_unsupported(singles),
        *_gaps(log),
        *_propensities(log, calibration, test),
        *_scores(log),
        *_dependence(log),
        *experiment,
    ]


def share(value: float) -> str:
    """Formats a fraction as a whole percentage."""
    return f"{100 * value:.0f} %"


def _counts(log: ServedLog) -> Iterator[str]:
    for name, number in zip(log.models, np.bincount(log.model, minlength=log.num_models).tolist(), strict=True):
        yield f"{name} {number:,} ({100 * number / log.num_answers:.3g} %)"


def _unsupported(singles: list[Evaluated]) -> Iterator[str]:
    """Yields sentences about the models that the log does not support, by reason."""
    rare = [single for single in singles if single.known == "extrapolated"]
    if few := [f"{single.name} ({single.size:.3g})" for single in rare if single.size < LEAST_SIZE]:
        yield (
            f"Too few answers, by their effective sample size, of which an interval needs {LEAST_SIZE:g}: {', '.join(few)}. What these models would "
            "reach is extrapolated."
        )
    for single in rare:
        if single.size >= LEAST_SIZE and single.missing > 0.0:
            yield (
                f"By the propensities, {single.name} was not possible for about {share(single.missing)} of the queries, so that always using it is "
                "extrapolated."
            )


def _gaps(log: ServedLog) -> Iterator[str]:
    """Yields a sentence about categories in which a model was never used, although its share of all answers makes ten or more likely."""
    if log.groups is None:
        return
    number = np.zeros((len(log.group_names), log.num_models))
    np.add.at(number, (log.groups[log.query], log.model), 1)
    likely = number.sum(1, keepdims=True) * number.sum(0) / log.num_answers
    pairs = [
        f"{log.models[model]} on {log.group_names[group]}"
        for group, model in np.argwhere((number == 0) & (likely >= _LIKELY))
    ]
    if pairs:
        more = f" and {len(pairs) - 5} more" if len(pairs) > 5 else ""
        yield f"No overlap: the log never used {', '.join(pairs[:5])}{more}; rules that do are extrapolated there."


def _propensities(log: ServedLog, calibration: Calibration | None, test: Balance | None) -> Iterator[str]:
    if calibration is None and test is not None:
        yield (
            f"Propensities: {log.source}. They agree with the log: weighted by them, the answers of each model stand for about 100 % of the queries (those of "
            f"{test.model} for {100 * test.share:.3g} %, standard error {100 * test.error:.2g})."
        )
    if calibration is not None:
        yield (
            f"Propensities are {log.source}; they differ from the observed shares by {calibration.gap:.2g} on average (calibration in ten bins). They are "
            "right only if the choice depended on nothing else. If it did, for example on the text of the query or on a user's plan, all values of "
            "other rules are biased. What would test this: send a random part of the traffic to a random model, and compare."
        )
        if log.dates is None:
            yield "The log has no times, so that a change of its rule would not be noticed."


def _scores(log: ServedLog) -> Iterator[str]:
    if log.unscored is None:
        return
    scored = np.bincount(log.model, minlength=log.num_models)
    table = np.array([scored, log.unscored])
    used = table[:, table.sum(0) > 0]
    text = f"{share(float(log.unscored.sum() / table.sum()))} of the answers have no score."
    if min(used.shape) > 1 and (used.sum(1) > 0).all() and stats.chi2_contingency(used).pvalue < _SIGNIFICANCE:
        rates = scored / np.maximum(table.sum(0), 1)
        low, high = int(np.argmin(np.where(table.sum(0) > 0, rates, np.inf))), int(np.argmax(rates))
        pair = f"{log.models[low]} {share(rates[low])}, {log.models[high]} {share(rates[high])}"
        yield f"{text} The share with a score depends on the model ({pair}), so that scored answers are no random sample: score a random part of all answers."
    else:
        yield f"{text} The values hold for queries that get a score; if users score when they are annoyed, score a random part of all answers to test it."


def _dependence(log: ServedLog) -> Iterator[str]:
    clusters = log.clusters
    if clusters is None:
        return
    sizes = np.bincount(clusters)
    sizes = sizes[sizes > 0]
    if sizes.size < log.num_queries:
        which = "users" if log.users is not None else "different prompts"
        few = (
            " These are few; if they are services rather than people, leave the column out (--column user=)."
            if sizes.size < 30
            else ""
        )
        yield f"The queries come from {sizes.size:,} {which}; errors treat those of one as dependent.{few}"


def randomised(log: ServedLog, part: float, queries: int) -> float:
    """Returns the standard error of a model's quality if a part of the queries were sent to a model at random, all with equal probability."""
    spread = math.sqrt(float(np.mean([_variance(log, m) for m in range(log.num_models)])))
    return spread / math.sqrt(queries * part / log.num_models)


def _variance(log: ServedLog, model: int) -> float:
    scores = log.scores[log.model == model]
    return float(scores.var()) if len(scores) > 20 else 0.25


def _experiment(log: ServedLog, singles: list[Evaluated]) -> Iterator[str]:
    if all(single.known != "extrapolated" for single in singles):
        return
    error = randomised(log, _SHARE, _QUERIES)
    needed = _QUERIES * (error / _ERROR) ** 2
    digits = 10 ** max(len(str(int(needed))) - 2, 0)
    number = math.ceil(needed / digits) * digits
    yield (
        f"To learn more: send {share(_SHARE)} of the traffic to a random model, all {log.num_models} with equal probability, and log the probability. After "
        f"{_QUERIES:,} queries the quality of each model has an error of {100 * error:.2g} points; an error of 1 point takes {number:,} queries."
    )
