"""The reasons why a file is not a log, with the columns that it lacks and likely ones."""

import re
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from ..files import join_names, option
from .cells import examples, first_cells, looks_like_numbers, number_of
from .families import Family
from .files import FILE_COLUMNS
from .names import can_be, has_role, lower_is_better, match_level, plain_name, similar_names, words
from .sheet import Sheet

_GIVE = "--column {0}=NAME, in Python columns={{'{0}': 'NAME'}}"
_PAIRS = ({"modela", "modelb"}, {"generator1", "generator2"}, {"model1", "model2"})


def explain_not_a_log(
    sheet: Sheet, candidates: Mapping[str, list[str]], scores: Family, families: Sequence[Family], wanted: Sequence[str]
) -> str:
    """Returns why a file is not a log, and what would make it one; models that the caller named are `wanted`."""
    names = [name for name in sheet.names if name not in FILE_COLUMNS]
    has = f"It has {join_names(map(repr, names))}."
    if any(pair <= set(map(plain_name, names)) for pair in _PAIRS):
        pairs = "pairwise preferences (which of two answers is better), which are not scores of single answers"
        return f"{sheet.name} has {pairs}: have each answer scored. {has}"
    free = [name for name in names if not any(name in columns for columns in candidates.values())]
    unknown = [name for name in sheet.single(free) if not has_role(name) and "tokens" not in words(name)]
    unknown = [name for name in unknown if _like_scores(sheet.cells(name))]
    lacking = [role for role in ("query", "model", "score") if not candidates.get(role)]
    likely, likely_models = _likely_columns(sheet, lacking, free, unknown)
    more = f"{likely}. {has}" if likely else has
    doubted = (f for f in families if f.role == "score" and f.statistics and len(f.columns) + len(f.statistics) > 1)
    statistics = next(doubted, None)
    if statistics is not None and not candidates.get("model"):
        models = [*statistics.columns, *statistics.statistics]
        priced = candidates.get("cost") or any(family.role in ("cost", "price_in") for family in families)
        cost, price = option("--cost", f"{models[0]}=VALUE"), option("--price", f"{models[0]}=IN:OUT")
        costs = "" if priced else f", and their costs ({cost} ... or {price} ...)"
        called = f"some called like statistics ({join_names(map(repr, statistics.statistics))})"
        give = f"(models={models}, on the command line {option('--models', ','.join(models))}){costs}"
        columns = f"columns {statistics.shown()} for {', '.join(models)}"
        return f"{sheet.name} has {columns}, {called}: if they are models, say so {give}. {more}"
    if len(scores.columns) == 1 and not candidates.get("score") and not candidates.get("model"):
        model = next(iter(scores.columns))
        return (
            f"{sheet.name} has scores of one model, {model!r}: there is nothing to choose; add the answers of another. {has}"
        )
    if candidates.get("model"):
        return _lacks_columns(sheet, candidates["model"][0], lacking, more)
    of_others = {c for f in families if f.role != "score" and len(f.columns) > 1 for c in f.columns.values()}
    possible = [name for name in unknown if name not in of_others]
    named = [model for model in wanted if model in possible]
    if named:
        absent = [repr(model) for model in wanted if model not in names]
        one = f"only {named[0]!r} is named, and there is nothing to choose"
        why = f"{join_names(absent)} is not a column" if absent else one
        return f"{sheet.name}: columns called like the models have their scores, but {why}. {has}"
    pair = _two_patterns(sheet, free)
    if pair is not None and not candidates.get("score"):
        first, second, models = pair
        give = f"({option('--column', f'score={first}')} {option('--column', f'cost={second}')})"
        two = f"two columns for each of {join_names(models)}, {first!r} and {second!r}"
        return f"{sheet.name} has {two}: say which are the scores and which the costs {give}. {has}"
    if len(possible) > 1 and not likely_models and not candidates.get("score"):
        costs = " ".join(option("--cost", f"{name}=VALUE") for name in possible[:3])
        give = f"give the cost per query of each (costs={{...}}, on the command line {costs})"
        could = f"{join_names(map(repr, possible), 6)} could be scores of models"
        price = option("--price", f"{possible[0]}=IN:OUT")
        return f"{sheet.name} has no columns of costs; {could}: {give}, or their prices ({price}). {more}"
    patterns = "score_<model> and cost_<model>, <model> and <model>|total_cost, or <model>_score and <model>_cost"
    neither = f"neither a column of models (model, llm, ...) nor columns of scores per model ({patterns})"
    return f"{sheet.name} has {neither}: name the columns ({_GIVE.format('ROLE')}). {more}"


def _likely_columns(
    sheet: Sheet, lacking: Sequence[str], free: Sequence[str], unknown: Sequence[str]
) -> tuple[str, list[str]]:
    """Proposals of columns for the roles that are lacking, in words; those for the models."""
    proposals = {role: similar_names(role, free) for role in lacking}
    only_score = lacking == ["score"]
    if only_score:  # By their content.
        proposals["score"] = proposals["score"] or [name for name in unknown if can_be("score", name)]
    likely = "; ".join(
        f"{' or '.join(map(repr, names[:3]))} looks like the {role}: {option('--column', f'{role}={names[0]}')}"
        for role, names in proposals.items()
        if names
    )
    lower = list(filter(lower_is_better, unknown)) if only_score else []
    if lower and not likely:
        give = f"if it is not, name it ({option('--column', f'score={lower[0]}')})"
        likely = f"{join_names(map(repr, lower), 3)} may be better the lower it is: then add a column of 1 minus it; {give}"
    strange = [n for n in free if match_level("score", n) > 0 and not looks_like_numbers(sheet.cells(n), "score")]
    if only_score and not likely and strange:
        shown = examples(sheet.cells(strange[0]))
        likely = f"{strange[0]!r} has {shown}, which are not known verdicts: write 1 and 0"
    return likely, proposals.get("model", [])


def _lacks_columns(sheet: Sheet, model: str, lacking: Sequence[str], more: str) -> str:
    """Why a file with a column of models is not a log."""
    different = len(set(map(str, sheet.cells(model))))
    if lacking == ["query"] or ("query" in lacking and different == sheet.num_rows):
        models = f"models (column {model!r}, {different} different in {sheet.num_rows} rows) but no column of queries"
        why = "a summary of models is not a log of their answers to single queries"
        return f"{sheet.name} has {models}: {why}; if there is one, name it ({_GIVE.format('query')}). {more}"
    columns = " and ".join(f"a column for the {role}" for role in lacking)
    return f"{sheet.name} has a column of models, {model!r}, but lacks {columns}: name it ({_GIVE.format('ROLE')}). {more}"


def _two_patterns(sheet: Sheet, free: Sequence[str]) -> tuple[str, str, list[str]] | None:
    """Two patterns of names of numeric columns that the same models have, the likelier scores first, and the models."""
    patterns: dict[str, dict[str, str]] = {}
    for name in sheet.single(free):
        marks = [*re.finditer(r"[\s_\-.|:/]+", name)] if looks_like_numbers(sheet.cells(name)) else []
        starts, ends = [0, *(mark.end() for mark in marks)], [*(mark.start() for mark in marks), len(name)]
        for start, end in product(starts, ends) if marks else ():
            if start < end and end - start < len(name):
                patterns.setdefault(f"{name[:start]}*{name[end:]}", {})[name[start:end]] = name
    by_models: dict[frozenset[str], list[str]] = {}
    for pattern, columns in patterns.items():
        by_models.setdefault(frozenset(columns), []).append(pattern)
    pairs = [same[:2] for models, same in by_models.items() if len(models) > 1 and len(same) > 1]
    if not pairs:
        return None

    def share_of_grades(pattern: str) -> float:
        """Share of whole and half numbers."""
        numbers = [number_of(cell) for name in patterns[pattern].values() for cell in first_cells(sheet.cells(name))]
        return float(np.mean(np.array(numbers) * 2 % 1 == 0))

    largest = max(pairs, key=lambda pair: len(patterns[pair[0]]))
    first, second = sorted(largest, key=share_of_grades, reverse=True)
    return first, second, list(patterns[first])


def _like_scores(cells: np.ndarray) -> bool:
    """Whether cells are numbers or verdicts in [0, 1], or whole or half grades up to 100."""
    if not looks_like_numbers(cells, "score"):
        return False
    values = np.array([number for number in map(number_of, first_cells(cells)) if number == number])
    return bool((values >= 0).all() and (values.max() <= 1 or (values.max() <= 100 and (values * 2 % 1 == 0).all())))
