"""Names of columns: what role a name says, in which unit, and of which model."""

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

from jaxroute.core import checks
from jaxroute.data.files import some

_FILE = json.loads((Path(__file__).parent / "names.json").read_text("utf-8"))
_SIGNS = {code: unicodedata.normalize("NFD", chr(code))[0] for code in range(0xC0, 0x180)}  # Letters without accents.
_SIGNS |= str.maketrans(_FILE["signs"])


def plain(name: str) -> str:
    """Returns a name without case and without marks between its words: "Query-ID" is "queryid"."""
    return re.sub(r"[\W_]+", "", str(name).lower().translate(_SIGNS))


# Plain names by role, each with its level: 3 for the name itself, 2 for a synonym, 1 for a word that means other things, too.
_NAMES: dict[str, dict[str, int]] = {
    role: {plain(name): number for number, kind in enumerate(("generic", "synonyms", "exact"), 1) for name in names[kind]}
    for role, names in _FILE["roles"].items()
}
ROLES = tuple(_NAMES)
# Roles in the order in which columns are looked for, and those of which a table may have a column per model.
ORDER, PER_MODEL = (tuple(_FILE[key].split()) for key in ("order", "per_model"))
_ALIASES: dict[str, str] = _FILE["aliases"]
CALLED: dict[str, str] = _FILE["called"]  # Roles whose own names are no words.
# Factors to seconds, USD, USD per million tokens and [0, 1]; a word is a currency or another unit that stays.
UNITS: dict[str, dict[str, float | str]] = _FILE["units"]
VERDICTS: dict[str, float] = _FILE["verdicts"]
# Words of a price whose name says per how many tokens, as in `usd_per_1m_tok_in` and `input_cost_per_token`.
_DIRECTIONS: dict[str, list[str]] = {role: text.split() for role, text in _FILE["directions"].items()}
KINDS = {"score": "score", "cost": "cost", "latency": "latency", **dict.fromkeys(_DIRECTIONS, "price")}
_WORDS = {key: frozenset(text.split()) for key, text in _FILE["words"].items()}
# Words of columns that number repeated answers, of files that are parts of one table, around models in names of files, and of statistics.
REPEATS, PARTS, WRAPPERS, _STATISTICS = (_WORDS[key] for key in ("repeats", "parts", "wrappers", "statistics"))
EMPTY, SUMMARIES = _WORDS["empty"] | {""}, _WORDS["summaries"]
# Words of labels and right answers; of the largest number of points there can be, and around them; of what is no model; of values that are no scores
# or costs, and of scores that are better the lower they are.
TRUTHS, LARGEST, POINTS, _ASIDE, LOWER = (_WORDS[key] for key in ("truths", "largest", "points", "aside", "lower"))
NOT_MODELS = _STATISTICS | SUMMARIES | _WORDS["of_all"]


@lru_cache(65536)
def words(name: str) -> tuple[str, ...]:
    """Returns the words of a name: "promptTokens", "prompt_tokens" and "Prompt tokens" have the same."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+", str(name).translate(_SIGNS))
    return tuple(part.lower() for part in parts)


@lru_cache(65536)
def split_unit(kind: str, name: str) -> tuple[str, tuple[str, ...]]:
    """Returns a plain name without its units, and these: ("latency", ("ms",)) of "latency_ms"; a name of units alone stays."""
    head, remark = split_remark(name)
    filling = _WORDS["remarks"] - {"per", "query", "request", "call", "answer"}  # As in `Cost (USD, est.)`.
    parts, found, units = [*words(head), *(word for word in words(remark) if word not in filling)], [], UNITS.get(kind, {})
    if kind == "price" and "per" in parts:  # "usd per 1k input tokens" as "input usd per 1k tokens".
        before, after = parts[: parts.index("per")], parts[parts.index("per") :]
        within = [part for part in after if any(part in of for of in _DIRECTIONS.values())]
        parts = [*within, *before, *(part for part in after if part not in within)]
    while len(parts) > 1:
        for size in range(min(5, len(parts) - 1), 0, -1):
            head, tail = "".join(parts[:size]), "".join(parts[-size:])
            if tail in units or (head in units and head not in ("min", "s")):  # The least, or a letter: at the end alone.
                found.append(tail if tail in units else head)
                parts = parts[:-size] if tail in units else parts[size:]
                break
        else:
            break
    if found and len(parts) > 1 and parts[-1] == "in" and kind in ("latency", "cost"):  # As in `latency in ms`.
        parts = parts[:-1]
    if found:
        return "".join(parts), tuple(found)
    base = plain(name)
    for unit in sorted(units, key=len, reverse=True):  # Without marks between words, as in `latencyms`.
        if len(unit) > 1 and base.endswith(unit) and _named(base[: -len(unit)]):
            return base[: -len(unit)], (unit,)
    return base, (base,) if base in units else ()


def _named(base: str) -> bool:
    """Whether a plain name is one of a role."""
    return any(base in names for names in _NAMES.values())


def unit_of(role: str, name: str, given: Mapping[str, str]) -> tuple[float, str | None, str]:
    """Returns the factor of a column's unit, its currency if it has another than USD, and the unit in words, empty without one."""
    kind = KINDS.get(role, "")
    units = units_in(kind, given[role]) if role in given else split_unit(kind, name)[1]
    values = [UNITS[kind][unit] for unit in units] + (["J"] if kind == "cost" and "energy" in plain(name) else [])
    factor = math.prod((value for value in values if not isinstance(value, str)), start=1.0)
    currency = next((value for value in reversed(values) if isinstance(value, str)), None)
    return factor, currency, given.get(role, " ".join(reversed(units)))


def units_in(kind: str, text: str) -> tuple[str, ...]:
    """Returns the units in a text such as "ms" or "EUR cents", empty if it has another word."""
    parts = [plain(text)] if plain(text) in UNITS[kind] else [*map(plain, text.split())]
    return tuple(parts) if all(part in UNITS[kind] for part in parts) else ()


def given_units(units: Mapping[str, str] | None) -> dict[str, str]:
    """Returns units by role, checked.

    Raises:
      ValueError: an unknown role or unit; the message lists what is known.
    """
    found: dict[str, str] = {}
    if units is not None and not isinstance(units, Mapping):
        raise ValueError(f"units must map roles to units, as {{'latency': 'ms'}}, got {checks.show(units)}")
    for role, unit in (units or {}).items():
        role = checks.one_of("a role in units", _ALIASES.get(role, role), [*KINDS, "price"])
        if not units_in(KINDS.get(role, role), str(unit)):
            raise ValueError(f"units[{role!r}] must be one of {', '.join(UNITS[KINDS.get(role, role)])}, got {unit!r}")
        found |= dict.fromkeys(_DIRECTIONS if role == "price" else (role,), str(unit))
    return found


UNIT_COLUMN = re.compile("(.*?)(currency|units?)(code)?")  # Plain names of columns that say a unit.


def says_unit(name: str, role: str, text: str) -> bool | None:
    """Returns whether a column called `currency`, `cost_unit`, `unit`, ... says the unit of a role; None if it says one that is not known.

    Args:
      name: name of the column.
      role: role with a unit.
      text: the unit, as its cells have it.
    """
    match, kind = UNIT_COLUMN.fullmatch(plain(name)), KINDS[role]
    if not match or (match[1] and match[1] != kind and match[1] not in _NAMES[role]):
        return False
    if match[2] == "currency" and kind not in ("cost", "price"):
        return False
    return bool(units_in(kind, text)) or (None if match[1] or match[2] == "currency" else False)


@lru_cache(65536)
def level(role: str, name: str) -> float:
    """Returns how strongly a name says a role: 3 exactly, 2 a synonym, 1 a word with other meanings, 0 not at all.

    A field of an object (`usage.prompt_tokens`) says it less than any synonym, and a name with remarks ("Score (exact match)") half less.
    """
    found = whole_level(role, name)
    head, remark = split_remark(str(name))
    if not found and head and remark and (role == "score" or not _odd(remark)):
        if not can_be("score", remark) or (role.startswith("tokens") and not set(words(remark)) <= _WORDS["remarks"]):
            return 0.0  # As in `Score (lower is better)`.
        return max(0.0, whole_level(role, head) - 0.5)
    *heads, last = str(name).split(".")
    if not found and heads and not any(_WORDS["of_others"] & set(words(head)) for head in heads):
        return {3.0: 1.9, 2.0: 1.5}.get(whole_level(role, last), 0.0)
    return found


def split_remark(name: str) -> tuple[str, str]:
    """Returns a name and what stands behind it in parentheses or brackets, empty if nothing does."""
    match = re.fullmatch(r"([^(\[]+)[(\[](.+)[)\]]\s*", name)
    return (match[1], match[2]) if match else (name, "")


def stated_scale(name: str) -> tuple[float, float] | None:
    """Returns the range of scores that a name says, as "Score (0-10)", "rating (1 to 5)", "score_0_10" and "score out of 5" do."""
    match = re.search(r"(?<![^\W_])(?<!\.)([01]) ?(?:[-–_]|to|\.\.) ?(\d{1,3})(?![\d.])", name) or re.search(
        r"out[ _]of[ _](\d{1,3})\b", name
    )
    if match is None:
        return None
    low, high = (float(match[1]), float(match[2])) if match.lastindex == 2 else (0.0, float(match[1]))
    return (low, high) if high > low else None


def opposite(name: str) -> bool:
    """Whether a name says that a score is better the lower it is: "error_rate" and "Rating (1 = best)", not "error_free" or "Rating (1-5, 5 = best)"."""
    text = name.lower()
    numbers = [float(number) for number in re.findall(r"\d+", text)]
    ends = [(float(number), word) for number, word in re.findall(r"(\d+) ?(?:=|is|:) ?([a-z]+)", text)]
    good = [number for number, word in ends if word in _WORDS["best"]]
    bad = [number for number, word in ends if word in LOWER | _WORDS["worst"]]
    if good or bad:
        least, most = (min(numbers), max(numbers)) if len(numbers) > 1 else (0.0, 1.0 if "best" not in text else math.inf)
        return any(number < most for number in good) or any(number > least for number in bad)
    return bool(LOWER & set(words(text))) and not {"no", "free", "without", "higher"} & set(words(text))


def _odd(name: str) -> bool:
    """Whether a name has a word of a unit that is not known."""
    return any(word in _WORDS["unknown_units"] or (word.isdigit() and int(word) >= 100) for word in words(name))


def unknown_unit(kind: str, name: str) -> bool:
    """Whether the name of a column says a unit that is not known."""
    if kind not in ("cost", "latency", "price") or _named(plain(name)):
        return False
    units = "".join(split_unit(kind, name)[1])
    left = [word for word in words(split_remark(name)[1]) if word not in units and word not in _WORDS["remarks"]]
    if left and (not units or any(map(str.isdigit, left))):  # As in `cost (pesos)` and `cost [1e-6 USD]`.
        return True
    return any(word not in units for word in words(name) if _odd(word))


@lru_cache(65536)
def whole_level(role: str, name: str) -> float:
    """Returns how strongly a whole name says a role, apart from its units."""
    kind, whole, names = KINDS.get(role, ""), plain(name), _NAMES.get(role, {})
    base, units = split_unit(kind, name) if kind else (whole, ())
    if role == "query" and whole not in names and len(words(name)) == 2:  # As in `problem_idx`.
        first, second = words(name)
        if first in _WORDS["asked"] and second in _WORDS["numbered"]:
            return 2.0
    if role == "cost" and base == "price" and any(unit.startswith("per") for unit in units):
        return 0.0  # Per thousand tokens, or queries?
    found = float(names.get(whole, 0) or names.get(base, 0))
    if kind == "price" and any("tok" in unit or "million" in unit for unit in units):
        found = max(found, 2.0 if re.sub("^(usd|per)+|tokens?|cost|price", "", base) in _DIRECTIONS[role] else 0.0)
    return found


def known(name: str, nested: bool = True) -> bool:
    """Whether a name says any role; without `nested`, not only by its last part, as `gpt-4.score` does."""
    levels = [level(role, name) for role in ROLES]
    return any(of >= 1 and (nested or "." not in name or of % 1 == 0) for of in levels)


def can_be(role: str, name: str) -> bool:
    """Whether no word of a name speaks against a role, as in `error_rate` and `cost_limit`."""
    against = {"score": _ASIDE, "cost": _ASIDE | LOWER | _WORDS["parts_of_cost"]}
    return not against.get(role, set()) & set(words(name)) and not (role == "score" and opposite(name))


def similar(role: str, names: Sequence[str]) -> list[str]:
    """Returns the columns whose names have a word of the role in them, for a proposal."""
    marks = re.compile(_FILE["marks"].get(role, role.split("_")[0]))
    unknown = [name for name in names if not known(name) and not _odd(name) and can_be(role, name)]
    return [name for name in unknown if any(map(marks.fullmatch, words(name)))]


def _fitting(names: Sequence[str], pattern: str) -> list[str]:
    """The names that fit a pattern with `*`."""
    return fnmatch.filter(names, pattern.replace("[", "[[]"))


def given_roles(columns: Mapping[str, str] | None, names: Sequence[str], where: str) -> dict[str, str]:
    """Returns columns by role as a caller named them; a name with `*` stands for a column per model, an empty one for none.

    Raises:
      ValueError: an unknown role or column, with close names.
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise ValueError(
            f"columns must map roles to names of columns, as {{'score': 'my_column'}}, got {checks.show(columns)}"
        )
    found: dict[str, str] = {}
    for role, column in (columns or {}).items():
        role = checks.one_of("a role in columns", _ALIASES.get(str(role), str(role)), ROLES)
        found[role] = column = str(column)
        wrong = f"columns[{role!r}] is {column!r}, which"
        if "*" in column:
            if not _fitting(names, column):
                raise ValueError(f"{wrong} no column of {where} fits; it has {some(names, 40)}")
        elif column and column not in names:
            lower = {name.lower(): name for name in reversed(names)}
            close = difflib.get_close_matches(column.lower(), list(lower), n=1)
            hint = f"; did you mean {lower[close[0]]!r}?" if close else ";"
            raise ValueError(f"{wrong} {where} lacks{hint} it has {some(map(repr, names), 40)}")
    return found


@dataclass
class Family:
    """The columns of one role of several models, called alike.

    Attributes:
      role: role of the columns.
      shape: how they are called, with `{}` for the model.
      level: how strongly the name says the role.
      columns: column by model.
      statistics: names that were left out, as they are words of statistics.
    """

    role: str
    shape: str
    level: float
    columns: dict[str, str] = field(default_factory=dict)
    statistics: list[str] = field(default_factory=list)

    def only(self, models: Collection[str]) -> "Family":
        """Returns the family of some of the models."""
        return replace(self, columns={model: column for model, column in self.columns.items() if model in models})


def _affixes(name: str) -> list[tuple[str, str, str, float, int]]:
    """Role, shape, model, level and length of all beginnings and endings by which a name can be a model's column."""
    found = []
    for match in re.finditer(r"[\s_\-.|:/]+", name):
        left, mark, right = name[: match.start()], match[0], name[match.end() :]
        for part, model, shape in ((left, right, f"{left.lower()}{mark}{{}}"), (right, left, f"{{}}{mark}{right.lower()}")):
            if part and model:
                roles = [(role, whole_level(role, part)) for role in PER_MODEL]
                roles += [("response_chars", 1.0)] if plain(part) == "chars" else []
                found += [(role, shape, model, strength, len(part)) for role, strength in roles if strength >= 1]
    return found


def _cut(free: Sequence[str]) -> Iterator[tuple[str, str, str, str, float]]:
    """Column, role, shape, model and level of the best cuts: those whose model other roles have, then the longest beginning and ending."""
    cuts = {name: _affixes(name) for name in free}
    roles_of: dict[str, set[str]] = {}
    for role, _, model, _, _ in (cut for of in cuts.values() for cut in of):
        roles_of.setdefault(model, set()).add(role)
    often = Counter(shape for of in cuts.values() for _, shape, _, _, _ in of)

    def rank(cut: tuple[str, str, str, float, int]) -> tuple[bool, int, int, int]:
        _, shape, model, _, length = cut
        roles = len(roles_of[model])
        return model in cuts and roles > 1, roles, often[shape] if roles > 1 else 0, length

    for name, of in cuts.items():
        for ending in (False, True):
            ranked = {cut: rank(cut) for cut in of if cut[1].startswith("{}") == ending}
            best = max(ranked.values(), default=None)
            yield from ((name, *cut[:4]) for cut in ranked if ranked[cut] == best)


def families(names: Sequence[str], given: Mapping[str, str], wanted: Sequence[str]) -> list[Family]:
    """Returns the families of columns of models, by name alone.

    Args:
      names: all columns.
      given: columns by role as the caller named them; one with `*` is that role's only family.
      wanted: models that the caller named; their columns of scores may be called like them.
    """
    found: dict[tuple[str, str], Family] = {}
    unnamed = [name for name in names if name not in given.values()]
    free = [name for name in unnamed if name and not known(name, nested=False)]
    for name, role, shape, model, strength in _cut(free):
        if role not in given:
            found.setdefault((role, shape), Family(role, shape, strength)).columns.setdefault(model, name)
    for name in unnamed:
        if words(name)[-1:] == ("min",):  # Minutes, or the model called min.
            for role, shape, model, _, _ in _affixes(name):
                if (role, shape) in found:
                    found[role, shape].columns.setdefault(model, name)
    for role, column in given.items():
        if "*" in column:
            head, _, tail = column.partition("*")
            fits = {name[len(head) : len(name) - len(tail)]: name for name in _fitting(names, column)}
            found[role, column] = Family(role, column.replace("*", "{}"), 4.0, fits)
    if "score" not in given:  # Columns called like the models: those that have a column of costs, tokens or seconds.
        for of in [*found.values()]:
            bare = {model: model for model in of.columns if model in free}
            most = len(found["score", "{}"].columns) if ("score", "{}") in found else 1
            if of.role != "score" and len(bare) > most:
                found["score", "{}"] = Family("score", "{}", 1.0, bare)
        called = {model: model for model in wanted if model in free}
        if len(called) > 1:
            found["score", "{}"] = Family("score", "{}", 2.5, called)
    scored = {model for of in found.values() if of.role == "score" for model in of.columns}
    for (role, shape), of in [*found.items()]:  # The unit after the model, as in `cost_<model>_usd`.
        unit = next((words(model)[-1] for model in of.columns if words(model)), "")
        if unit in UNITS.get(KINDS.get(role, ""), {}) and not of.columns.keys() <= scored:
            ending = re.compile(rf"[\s_\-.|]+{unit}$", re.IGNORECASE)
            bare = {ending.sub("", model): column for model, column in of.columns.items()}
            if bare.keys() <= scored and len(bare) > 1:
                found[role, f"{shape}_{unit}"] = Family(role, f"{shape}_{unit}", of.level, bare)
    siblings = Counter(model for of in found.values() if len(of.columns) > 1 for model in of.columns)
    for of in found.values():
        if of.role not in given:
            alone = all(plain(model) in _STATISTICS for model in of.columns)
            left = [model for model in of.columns if _statistic(model, of.columns) and (alone or siblings[model] < 2)]
            of.statistics = [model for model in left if model not in wanted]
            of.columns = of.only(of.columns.keys() - of.statistics).columns
    return [of for of in found.values() if of.columns or of.statistics]


def _statistic(model: str, models: Collection[str]) -> bool:
    """Whether a model is called like a statistic, or like one of another model."""
    ends = [model, *(model.removeprefix(other) for other in models if model.startswith(other))]
    return any(plain(end) in _STATISTICS for end in ends)


_EMBEDDED = re.compile(r"^(emb|embedding|feature|feat|vec|vector|dim)[\s_\-.]*(\d+)$", re.IGNORECASE)


def numbered_columns(names: Sequence[str]) -> list[str]:
    """Returns columns emb_0, emb_1, ... in the order of their numbers: the largest such group of at least two."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for match in filter(None, map(_EMBEDDED.match, names)):
        groups.setdefault(match[1].lower(), []).append((int(match[2]), match.string))
    best = max(groups.values(), key=len, default=[])
    return [name for _, name in sorted(best)] if len(best) > 1 else []
