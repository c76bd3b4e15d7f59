"""Recognises names of columns: their role and unit, by the lists of `names.json`, and the columns of each model in a wide table.

A role is the meaning of a column, such as "query", "model" or "score". A family is a group of columns with one role, one for each model:
`score_gpt` and `score_llama` in a table with a row per query. How well a name matches a role is its match level: 3 for the name
itself, 2 for a synonym, 1 for a word that also has other meanings, 0 for none. A plain name is in lower case without marks.
"""

import difflib
import fnmatch
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from jaxroute.core import checks

from ..files import join_names

_FILE = json.loads(Path(__file__).with_name("names.json").read_text("utf-8"))
_LETTERS = {code: unicodedata.normalize("NFD", chr(code))[0] for code in range(0xC0, 0x180)}  # Without accents.
_LETTERS |= str.maketrans(_FILE["signs"])


def plain_name(name: str) -> str:
    """Converts a name to lower case without marks between its words: "Query-ID" becomes "queryid"."""
    return re.sub(r"[\W_]+", "", str(name).lower().translate(_LETTERS))


# Match level by role and plain name.
NAMES: dict[str, dict[str, int]] = {
    role: {plain_name(name): level for level, kind in enumerate(("generic", "synonyms", "exact"), 1) for name in names[kind]}
    for role, names in _FILE["roles"].items()
}
ROLES = tuple(NAMES)
# Roles in the order in which their columns are searched, and those that may have a column per model.
SEARCH_ORDER, PER_MODEL = (tuple(_FILE[key].split()) for key in ("order", "per_model"))
_ALIASES: dict[str, str] = _FILE["aliases"]
_TITLES: dict[str, str] = _FILE["titles"]  # Words for roles whose own names are not words.
PRICING_ROLES = tuple(_TITLES)  # Tokens, prices and lengths, from which costs are computed.
# Factors to seconds, USD, USD per million tokens and [0, 1]; a text is a currency, or a unit that is not converted.
UNITS: dict[str, dict[str, float | str]] = _FILE["units"]
VERDICTS: dict[str, float] = _FILE["verdicts"]
# Words of a price whose name tells per how many tokens, as in `usd_per_1m_tok_in` and `input_cost_per_token`.
_DIRECTIONS: dict[str, list[str]] = {role: text.split() for role, text in _FILE["directions"].items()}
UNIT_KINDS = {"score": "score", "cost": "cost", "latency": "latency", **dict.fromkeys(_DIRECTIONS, "price")}
WORDS = {key: frozenset(text.split()) for key, text in _FILE["words"].items()}
NOT_MODELS = WORDS["statistics"] | WORDS["summaries"] | WORDS["of_all"]


def title(role: str) -> str:
    return _TITLES.get(role, role)


@lru_cache(65536)
def words(name: str) -> tuple[str, ...]:
    """Splits a name into lower-case words: "promptTokens", "prompt_tokens" and "Prompt tokens" all give ("prompt", "tokens")."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+", str(name).translate(_LETTERS))
    return tuple(part.lower() for part in parts)


def _split_remark(name: str) -> tuple[str, str]:
    """Splits a name such as "cost (USD)" into the name and the remark in parentheses or brackets at its end; the remark may be empty."""
    match = re.fullmatch(r"([^(\[]+)[(\[](.+)[)\]]\s*", name)
    return (match[1], match[2]) if match else (name, "")


@lru_cache(65536)
def split_unit(kind: str, name: str) -> tuple[str, tuple[str, ...]]:
    """Splits units of a `kind` off a name: "latency_ms" gives ("latency", ("ms",)). A name that is only a unit stays: ("ms", ("ms",))."""
    head, remark = _split_remark(name)
    filling = WORDS["remarks"] - {"per", "query", "request", "call", "answer"}  # As in `Cost (USD, est.)`.
    parts, found, units = [*words(head), *(word for word in words(remark) if word not in filling)], [], UNITS.get(kind, {})
    if kind == "price" and "per" in parts:  # "usd per 1k input tokens" becomes "input usd per 1k tokens".
        before, after = parts[: parts.index("per")], parts[parts.index("per") :]
        directions = [part for part in after if any(part in names for names in _DIRECTIONS.values())]
        parts = [*directions, *before, *(part for part in after if part not in directions)]
    while len(parts) > 1:
        for size in range(min(5, len(parts) - 1), 0, -1):
            head, tail = "".join(parts[:size]), "".join(parts[-size:])
            if tail in units or (head in units and head not in ("min", "s")):  # A leading "min" or "s" has other meanings.
                found.append(tail if tail in units else head)
                parts = parts[:-size] if tail in units else parts[size:]
                break
        else:
            break
    if found and len(parts) > 1 and parts[-1] == "in" and kind in ("latency", "cost"):  # As in `latency in ms`.
        parts = parts[:-1]
    if found:
        return "".join(parts), tuple(found)
    base = plain_name(name)
    for unit in sorted(units, key=len, reverse=True):  # Without marks between words, as in `latencyms`.
        if len(unit) > 1 and base.endswith(unit) and any(base[: -len(unit)] in names for names in NAMES.values()):
            return base[: -len(unit)], (unit,)
    return base, (base,) if base in units else ()


def parse_units(kind: str, text: str) -> tuple[str, ...]:
    """Splits a text into units of a kind ("cost", "latency", "price"): "EUR cents" gives ("eur", "cents"). Empty if any word is not such a unit."""
    parts = [plain_name(text)] if plain_name(text) in UNITS[kind] else [*map(plain_name, text.split())]
    return tuple(parts) if all(part in UNITS[kind] for part in parts) else ()


def unit_of(role: str, name: str, given: Mapping[str, str]) -> tuple[float, str | None, str]:
    """Returns the unit in `given[role]` or else in `name`: factor to the standard unit, currency (None for USD or none), and text (may be empty)."""
    kind = UNIT_KINDS.get(role, "")
    units = parse_units(kind, given[role]) if role in given else split_unit(kind, name)[1]
    values = [UNITS[kind][unit] for unit in units] + (["J"] if kind == "cost" and "energy" in plain_name(name) else [])
    factor = math.prod((value for value in values if not isinstance(value, str)), start=1.0)
    currency = next((value for value in reversed(values) if isinstance(value, str)), None)
    return factor, currency, given.get(role, " ".join(reversed(units)))


def read_unit(name: str, role: str, texts: Sequence[str], called: str) -> tuple[str, str]:
    """Returns a role's unit from the column `name`, such as `cost_unit` or `currency`, and a line for the user; both are empty for other columns.

    `texts` are the different cells of the column, `called` is the name of the column with the numbers. The unit is empty if it is the standard one.
    """
    kind, match = UNIT_KINDS.get(role, ""), re.fullmatch("(.*?)(currency|units?)(code)?", plain_name(name))
    if not kind or not match or not texts or (match[1] and match[1] not in (kind, *NAMES[role])):
        return "", ""
    is_currency, unknown = match[2] == "currency", [text for text in texts if not parse_units(kind, text)]
    if kind not in ("cost", "price") if is_currency else unknown and not match[1]:
        return "", ""
    what, give = f"the {title(role)}", f"give the unit (--unit {role}=UNIT)"
    own = split_unit(kind, called)[1]
    differ = [unit for unit in own for text in texts for other in parse_units(kind, text) if _contradict(kind, unit, other)]
    if differ and is_currency:
        return "", f"unit of {what}: {differ[0]!r}, as in its name, not as in column {name!r}"
    if differ:
        raise ValueError(f"the column {name!r} has the unit {texts[0]!r}, but the name {called!r} has {differ[0]!r}: {give}")
    if unknown:
        known = ", ".join([*UNITS[kind]][:8])
        raise ValueError(f"the column {name!r} has {unknown[0]!r}, which is not a known unit of {what} ({known}): {give}")
    if len(texts) > 1:
        units = join_names(map(repr, texts), 4)
        raise ValueError(f"the column {name!r} has several units of {what}, {units}: convert all to one, or {give}")
    is_standard = unit_of(role, "", {role: texts[0]})[:2] == (1.0, None)
    note = f"unit of {what}: column {name!r} ({texts[0]!r} in every row)"
    return "" if is_standard else " ".join([texts[0], *own]), note


def _contradict(kind: str, unit: str, other: str) -> bool:
    """Whether two units of a `kind` such as "cost" contradict each other: they are different currencies or different factors."""
    values = {name: UNITS[kind][name] for name in (unit, other)}
    are_currencies = {isinstance(value, str) or name[:3] == "usd" or "dollar" in name for name, value in values.items()}
    return len(set(values.values())) == 2 and len(are_currencies) == 1


def _has_unknown_unit_word(name: str) -> bool:
    return any(word in WORDS["unknown_units"] or (word.isdigit() and int(word) >= 100) for word in words(name))


def has_unknown_unit(kind: str, name: str) -> bool:
    """Whether a name, such as `cost (pesos)`, contains a unit that jaxroute does not know for numbers of a `kind` such as "cost"."""
    if kind not in ("cost", "latency", "price"):
        return False
    units = "".join(split_unit(kind, name)[1])
    rest = [word for word in words(_split_remark(name)[1]) if word not in units and word not in WORDS["remarks"]]
    if rest and (not units or any(map(str.isdigit, rest))):  # As in `cost (pesos)` and `cost [1e-6 USD]`.
        return True
    return any(word not in units for word in words(name) if _has_unknown_unit_word(word))


@lru_cache(65536)
def match_level(role: str, name: str) -> float:
    """Returns how well a name matches a role, from 0 (not at all) to 3 (the role's own name).

    A synonym has level 2. A field of an object (`call.cost`) has 1.9 instead of 3, or 1.5 instead of 2; a remark (`cost (estimated)`) subtracts 0.5.
    """
    found = full_match_level(role, name)
    head, remark = _split_remark(str(name))
    if not found and head and remark and (role == "score" or not _has_unknown_unit_word(remark)):
        if not can_be("score", remark) or (role.startswith("tokens") and not set(words(remark)) <= WORDS["remarks"]):
            return 0.0  # As in `Score (lower is better)`.
        return max(0.0, full_match_level(role, head) - 0.5)
    *heads, last = str(name).split(".")
    if not found and heads and not any(WORDS["of_others"] & set(words(head)) for head in heads):
        return {3.0: 1.9, 2.0: 1.5}.get(full_match_level(role, last), 0.0)
    return found


@lru_cache(65536)
def full_match_level(role: str, name: str) -> float:
    """Returns `match_level` if the whole name matches a role, or else 0, as for `call.cost` and `cost (estimated)`, of which only a part matches."""
    kind, whole, names = UNIT_KINDS.get(role, ""), plain_name(name), NAMES.get(role, {})
    base, units = split_unit(kind, name) if kind else (whole, ())
    if role == "query" and whole not in names and len(words(name)) == 2:  # As in `problem_idx`.
        first, second = words(name)
        if first in WORDS["asked"] and second in WORDS["numbered"]:
            return 2.0
    if role == "cost" and base == "price" and any(unit.startswith("per") for unit in units):
        return 0.0  # It is unclear whether the price is per tokens or queries.
    found = float(names.get(whole, 0) or names.get(base, 0))
    if kind == "price" and any("tok" in unit or "million" in unit for unit in units):
        found = max(found, 2.0 if re.sub("^(usd|per)+|tokens?|cost|price", "", base) in _DIRECTIONS[role] else 0.0)
    return found


def has_role(name: str, nested: bool = True) -> bool:
    """Whether a name matches any role. With `nested=False`, fields of objects such as `gpt-4.score` do not count."""
    levels = [match_level(role, name) for role in ROLES]
    return any(level >= 1 and (nested or "." not in name or level % 1 == 0) for level in levels)


def can_be(role: str, name: str) -> bool:
    """Whether no word of a name contradicts a role. In `error_rate` a word contradicts "score", in `cost_limit` a word contradicts "cost"."""
    contradictions = {"score": WORDS["aside"], "cost": WORDS["aside"] | WORDS["lower"] | WORDS["parts_of_cost"]}
    return not contradictions.get(role, set()) & set(words(name)) and not (role == "score" and lower_is_better(name))


def similar_names(role: str, names: Sequence[str]) -> list[str]:
    """Returns the `names` that match no role, but contain a word that hints at `role`, such as "spend" for "cost", for proposals to the user."""
    marks = re.compile(_FILE["marks"].get(role, role.split("_")[0]))
    free = [name for name in names if not has_role(name) and not _has_unknown_unit_word(name) and can_be(role, name)]
    return [name for name in free if any(map(marks.fullmatch, words(name)))]


def scale_in_name(name: str) -> tuple[float, float] | None:
    """Returns the lowest and the highest score in a name such as "Score (0-10)", "rating (1 to 5)" or "score out of 5"; None for other names."""
    match = re.search(r"(?<![^\W_])(?<!\.)([01]) ?(?:[-–_]|to|\.\.) ?(\d{1,3})(?![\d.])", name)
    match = match or re.search(r"out[ _]of[ _](\d{1,3})\b", name)
    if match is None:
        return None
    low, high = (float(match[1]), float(match[2])) if match.lastindex == 2 else (0.0, float(match[1]))
    return (low, high) if high > low else None


def lower_is_better(name: str) -> bool:
    """Whether a name shows that low scores are better, as in "error_rate" and "Rating (1 = best)", but not in "error_free"."""
    text = name.lower()
    numbers = [float(number) for number in re.findall(r"\d+", text)]
    ends = [(float(number), word) for number, word in re.findall(r"(\d+) ?(?:=|is|:) ?([a-z]+)", text)]
    good = [number for number, word in ends if word in WORDS["best"]]
    bad = [number for number, word in ends if word in WORDS["lower"] | WORDS["worst"]]
    if good or bad:
        least, most = (min(numbers), max(numbers)) if len(numbers) > 1 else (0.0, 1.0 if "best" not in text else math.inf)
        return any(number < most for number in good) or any(number > least for number in bad)
    return bool(WORDS["lower"] & set(words(text))) and not {"no", "free", "without", "higher"} & set(words(text))


def is_repeat(name: str) -> bool:
    """Whether the name of a column shows that it numbers repeated answers, as `run` and `answer_idx` do."""
    parts = set(words(name))
    answers = parts & {"answer", "completion", "output"} and parts & {"idx", "index", "id", "number"}
    return bool((WORDS["repeats"] & parts and not {"date", "time"} & parts) or answers)


def numbered_columns(names: Sequence[str]) -> list[str]:
    """Returns the columns of an embedding such as emb_0, emb_1, ..., by number: the largest such group, or nothing if no group has two columns."""
    groups: dict[str, list[tuple[int, str]]] = {}
    pattern = r"(?i)^(emb|embedding|feature|feat|vec|vector|dim)[\s_\-.]*(\d+)$"
    for match in filter(None, (re.match(pattern, name) for name in names)):
        groups.setdefault(match[1].lower(), []).append((int(match[2]), match.string))
    best = max(groups.values(), key=len, default=[])
    return [name for _, name in sorted(best)] if len(best) > 1 else []


def check_units(units: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the caller's units by role, an empty dict for None. Raises `ValueError` for unknown roles and units."""
    found: dict[str, str] = {}
    if units is not None and not isinstance(units, Mapping):
        raise ValueError(f"units must map roles to units, as {{'latency': 'ms'}}, got {checks.show(units)}")
    for role, unit in (units or {}).items():
        role = checks.one_of("a role in units", _ALIASES.get(role, role), [*UNIT_KINDS, "price"])
        kind = UNIT_KINDS.get(role, role)
        if not parse_units(kind, str(unit)):
            raise ValueError(f"units[{role!r}] must be one of {', '.join(UNITS[kind])}, got {unit!r}")
        found |= dict.fromkeys(_DIRECTIONS if role == "price" else (role,), str(unit))
    return found


def check_columns(columns: Mapping[str, str] | None, names: Sequence[str], file: str) -> dict[str, str]:
    """Returns a checked copy of `columns` by role. `ValueError` for unknown roles, and for columns except "" (none) that match none of `names`."""
    if columns is not None and not isinstance(columns, Mapping):
        raise ValueError(f"columns must map roles to names of columns, as {{'score': 'mine'}}, got {checks.show(columns)}")
    found: dict[str, str] = {}
    for role, column in (columns or {}).items():
        role = checks.one_of("a role in columns", _ALIASES.get(str(role), str(role)), ROLES)
        found[role] = column = str(column)
        fits = fnmatch.filter(names, column.replace("[", "[[]")) if "*" in column else column in ("", *names)
        if not fits:
            lower = {name.lower(): name for name in reversed(names)}
            close = difflib.get_close_matches(column.lower(), list(lower), n=1)
            hint = f"; did you mean {lower[close[0]]!r}?" if close else ";"
            has = f"it has {join_names(map(repr, names), 40)}"
            raise ValueError(f"columns[{role!r}] is {column!r}, which {file} lacks{hint} {has}")
    return found


@dataclass
class Family:
    """Columns of one role, such as `cost_a` and `cost_b`, one for each model, in a table with a row per query."""

    role: str  #: Role of the columns.
    pattern: str  #: Name of a column, with `{}` for the model.
    level: float  #: Match level of the name without the model, 4 if the caller specified it.
    columns: dict[str, str] = field(default_factory=dict)  #: Column by model.
    statistics: list[str] = field(default_factory=list)  #: Models excluded because they are called like statistics.

    def of_models(self, models: Collection[str]) -> "Family":
        """Returns a copy with only the columns of the given models."""
        return replace(self, columns={model: column for model, column in self.columns.items() if model in models})

    def shown(self, model: str = "<model>") -> str:
        """Returns the common name of the columns, with a placeholder or a model's name in it."""
        return self.pattern.replace("{}", model)


class _Split(NamedTuple):
    """Division of a column's name into a role and a model. `length` is the number of characters of the role in the name."""

    role: str
    pattern: str
    model: str
    level: float
    length: int


def find_families(names: Sequence[str], given: Mapping[str, str], named: Sequence[str]) -> list[Family]:
    """Finds the families among the names of columns: groups with one role and a column for each model.

    A name with `*` that the caller gave for a role (`given`) is the only family of this role. Columns called like models, as `gpt` and `llama`, are
    a family of scores if there are columns `cost_gpt` and `cost_llama`, or the caller named these models (`named`).
    """
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
            fitting = fnmatch.filter(names, column.replace("[", "[[]"))
            columns = {name[len(head) : len(name) - len(tail)]: name for name in fitting}
            families[role, column] = Family(role, column.replace("*", "{}"), 4.0, columns)
    # Columns called like the models are scores, if the models have a column of another role or the caller named them.
    if "score" not in given:
        others = [[m for m in family.columns if m in free] for family in families.values() if family.role != "score"]
        for level, models in ((1.0, max(others, key=len, default=[])), (2.5, [model for model in named if model in free])):
            if len(models) > 1:
                families["score", "{}"] = Family("score", "{}", level, dict(zip(models, models)))
    _add_units_behind_models(families)
    _remove_statistics(families, given, named)
    return [family for family in families.values() if family.columns or family.statistics]


def _splits(name: str) -> list[_Split]:
    """Divides a column's name, such as `score_gpt`, into a role and a model in all possible ways; either may come first."""
    found = []
    for match in re.finditer(r"[\s_\-.|:/]+", name):
        left, mark, right = name[: match.start()], match[0], name[match.end() :]
        prefixed, suffixed = (left, right, f"{left.lower()}{mark}{{}}"), (right, left, f"{{}}{mark}{right.lower()}")
        for part, model, pattern in (prefixed, suffixed):
            if part and model:
                levels = [(role, full_match_level(role, part)) for role in PER_MODEL]
                levels += [("response_chars", 1.0)] if plain_name(part) == "chars" else []
                found += [_Split(role, pattern, model, level, len(part)) for role, level in levels if level >= 1]
    return found


def _best_splits(free: Sequence[str]) -> Iterator[tuple[str, _Split]]:
    """Yields each of the column names `free` with its likeliest division into role and model, several if equal, for each order of the two."""
    splits = {name: _splits(name) for name in free}
    roles_of: dict[str, set[str]] = {}
    for split in (split for found in splits.values() for split in found):
        roles_of.setdefault(split.model, set()).add(split.role)
    counts = Counter(split.pattern for found in splits.values() for split in found)

    # The best model has columns of several roles (`score_gpt` and `cost_gpt`) and is a column itself.
    def rank(split: _Split) -> tuple[bool, int, int, int]:
        roles = len(roles_of[split.model])
        return split.model in splits and roles > 1, roles, counts[split.pattern] if roles > 1 else 0, split.length

    for name, found in splits.items():
        for is_ending in (False, True):
            ranked = {split: rank(split) for split in found if split.pattern.startswith("{}") == is_ending}
            best = max(ranked.values(), default=None)
            yield from ((name, split) for split in ranked if ranked[split] == best)


def _add_units_behind_models(families: dict[tuple[str, str], Family]) -> None:
    """Adds `cost_{}_usd` to `families`, by (role, pattern), if columns such as `cost_a_usd` end in a unit and models such as "a" have scores."""
    scored = {model for family in families.values() if family.role == "score" for model in family.columns}
    for (role, pattern), family in [*families.items()]:
        unit = next((words(model)[-1] for model in family.columns if words(model)), "")
        if unit in UNITS.get(UNIT_KINDS.get(role, ""), {}) and not family.columns.keys() <= scored:
            ending = re.compile(rf"[\s_\-.|]+{unit}$", re.IGNORECASE)
            columns = {ending.sub("", model): column for model, column in family.columns.items()}
            if columns.keys() <= scored and len(columns) > 1:
                families[role, f"{pattern}_{unit}"] = Family(role, f"{pattern}_{unit}", family.level, columns)


def _remove_statistics(families: Mapping[tuple[str, str], Family], given: Mapping[str, str], named: Sequence[str]) -> None:
    """Removes models called like statistics ("mean") from families of roles not in `given`, unless they are in `named` or in several families."""
    siblings = Counter(model for family in families.values() if len(family.columns) > 1 for model in family.columns)
    for family in families.values():
        if family.role not in given:
            only_statistics = all(plain_name(model) in WORDS["statistics"] for model in family.columns)
            for model in [*family.columns]:
                ends = [model, *(model.removeprefix(other) for other in family.columns if model.startswith(other))]
                is_statistic = any(plain_name(end) in WORDS["statistics"] for end in ends)
                if is_statistic and (only_statistics or siblings[model] < 2) and model not in named:
                    family.statistics.append(model)
            family.columns = family.of_models(family.columns.keys() - family.statistics).columns
