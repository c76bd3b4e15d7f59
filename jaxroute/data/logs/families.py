"""Columns of several models in a table with a row per query, by their names alone: `score_gpt` and `score_llama` are a family."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .names import PER_MODEL, UNIT_KINDS, UNITS, WORDS, fitting, full_match_level, has_role, plain_name, words


@dataclass
class Family:
    """Columns of one role, one for each model.

    Attributes:
      role: role of the columns.
      pattern: name of a column, with `{}` for the model.
      level: match level of the name, 4 if the caller specified it.
      columns: column by model.
      statistics: models that were left out, as they are words of statistics.
    """

    role: str
    pattern: str
    level: float
    columns: dict[str, str] = field(default_factory=dict)
    statistics: list[str] = field(default_factory=list)

    def of_models(self, models: Collection[str]) -> "Family":
        """Returns the family of some of the models."""
        return replace(self, columns={model: column for model, column in self.columns.items() if model in models})

    def shown(self, model: str = "<model>") -> str:
        """Returns the pattern with a text instead of the model."""
        return self.pattern.replace("{}", model)


class Split(NamedTuple):
    """One reading of a column's name as a role and a model; `length` is that of the part with the role."""

    role: str
    pattern: str
    model: str
    level: float
    length: int


def find_families(names: Sequence[str], given: Mapping[str, str], wanted: Sequence[str]) -> list[Family]:
    """Finds the families among columns; a `given` one with `*` is that role's only family, scores may be called like `wanted` models."""
    families: dict[tuple[str, str], Family] = {}
    unnamed = [name for name in names if name not in given.values()]
    free = [name for name in unnamed if name and not has_role(name, nested=False)]
    for name, split in _best_splits(free):
        if split.role not in given:
            family = families.setdefault((split.role, split.pattern), Family(split.role, split.pattern, split.level))
            family.columns.setdefault(split.model, name)
    for name in unnamed:
        if words(name)[-1:] == ("min",):  # Minutes, or the model called min.
            for split in _splits(name):
                if (split.role, split.pattern) in families:
                    families[split.role, split.pattern].columns.setdefault(split.model, name)
    for role, column in given.items():
        if "*" in column:
            head, _, tail = column.partition("*")
            columns = {name[len(head) : len(name) - len(tail)]: name for name in fitting(names, column)}
            families[role, column] = Family(role, column.replace("*", "{}"), 4.0, columns)
    if "score" not in given:
        _add_bare_scores(families, free, wanted)
    _add_units_behind_models(families)
    _remove_statistics(families, given, wanted)
    return [family for family in families.values() if family.columns or family.statistics]


def _splits(name: str) -> list[Split]:
    """Readings of a name as the column of a role and a model, by all its beginnings and endings."""
    found = []
    for match in re.finditer(r"[\s_\-.|:/]+", name):
        left, mark, right = name[: match.start()], match[0], name[match.end() :]
        prefixed, suffixed = (left, right, f"{left.lower()}{mark}{{}}"), (right, left, f"{{}}{mark}{right.lower()}")
        for part, model, pattern in (prefixed, suffixed):
            if part and model:
                levels = [(role, full_match_level(role, part)) for role in PER_MODEL]
                levels += [("response_chars", 1.0)] if plain_name(part) == "chars" else []
                found += [Split(role, pattern, model, level, len(part)) for role, level in levels if level >= 1]
    return found


def _best_splits(free: Sequence[str]) -> Iterator[tuple[str, Split]]:
    """Best readings of columns: those whose model has columns of other roles, then the longest beginning and ending."""
    splits = {name: _splits(name) for name in free}
    roles_of: dict[str, set[str]] = {}
    for split in (split for found in splits.values() for split in found):
        roles_of.setdefault(split.model, set()).add(split.role)
    counts = Counter(split.pattern for found in splits.values() for split in found)

    def rank(split: Split) -> tuple[bool, int, int, int]:
        roles = len(roles_of[split.model])
        return split.model in splits and roles > 1, roles, counts[split.pattern] if roles > 1 else 0, split.length

    for name, found in splits.items():
        for is_ending in (False, True):
            ranked = {split: rank(split) for split in found if split.pattern.startswith("{}") == is_ending}
            best = max(ranked.values(), default=None)
            yield from ((name, split) for split in ranked if ranked[split] == best)


def _add_bare_scores(families: dict[tuple[str, str], Family], free: Sequence[str], wanted: Sequence[str]) -> None:
    """Adds scores in columns called like the models, if these have a column of costs, tokens or seconds or are `wanted`."""
    for family in [*families.values()]:
        bare = {model: model for model in family.columns if model in free}
        most = len(families["score", "{}"].columns) if ("score", "{}") in families else 1
        if family.role != "score" and len(bare) > most:
            families["score", "{}"] = Family("score", "{}", 1.0, bare)
    bare = {model: model for model in wanted if model in free}
    if len(bare) > 1:
        families["score", "{}"] = Family("score", "{}", 2.5, bare)


def _add_units_behind_models(families: dict[tuple[str, str], Family]) -> None:
    """Adds families whose unit follows the model, as in `cost_<model>_usd`."""
    scored = {model for family in families.values() if family.role == "score" for model in family.columns}
    for (role, pattern), family in [*families.items()]:
        unit = next((words(model)[-1] for model in family.columns if words(model)), "")
        if unit in UNITS.get(UNIT_KINDS.get(role, ""), {}) and not family.columns.keys() <= scored:
            ending = re.compile(rf"[\s_\-.|]+{unit}$", re.IGNORECASE)
            columns = {ending.sub("", model): column for model, column in family.columns.items()}
            if columns.keys() <= scored and len(columns) > 1:
                families[role, f"{pattern}_{unit}"] = Family(role, f"{pattern}_{unit}", family.level, columns)


def _remove_statistics(families: Mapping[tuple[str, str], Family], given: Mapping[str, str], wanted: Sequence[str]) -> None:
    """Removes models called like statistics that have columns of one role alone."""
    siblings = Counter(model for family in families.values() if len(family.columns) > 1 for model in family.columns)
    for family in families.values():
        if family.role not in given:
            alone = all(plain_name(model) in WORDS["statistics"] for model in family.columns)
            left = [m for m in family.columns if _is_statistic(m, family.columns) and (alone or siblings[m] < 2)]
            family.statistics = [model for model in left if model not in wanted]
            family.columns = family.of_models(family.columns.keys() - family.statistics).columns


def _is_statistic(model: str, models: Collection[str]) -> bool:
    """Whether a model is called like a statistic, or like one of another model."""
    ends = [model, *(model.removeprefix(other) for other in models if model.startswith(other))]
    return any(plain_name(end) in WORDS["statistics"] for end in ends)
