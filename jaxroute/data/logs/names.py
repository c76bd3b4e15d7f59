"""Names of columns: what role a name says, in which unit, and of which model."""

import difflib
import fnmatch
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from jaxroute.core import checks
from jaxroute.data.files import some

_LEVELS = {"exact": 3, "synonyms": 2, "generic": 1}


_SIGNS = str.maketrans(
    {"%": " percent ", "$": " usd ", "€": " eur ", "£": " gbp ", "¥": " jpy ", "¢": " cents ", "µ": "u", "μ": "u"}
)


def plain(name: str) -> str:
    """Returns a name without case and without marks between its words: "Query-ID" is "queryid"."""
    return re.sub(r"[\W_]+", "", str(name).lower().translate(_SIGNS))


_FILE = json.loads((Path(__file__).parent / "names.json").read_text("utf-8"))
# Plain names by role, each with its level: 3 for the name itself, 2 for a synonym, 1 for a word that means other things, too.
_NAMES: dict[str, dict[str, int]] = {
    role: {plain(name): _LEVELS[kind] for kind in ("generic", "synonyms", "exact") for name in names[kind]}
    for role, names in _FILE["roles"].items()
}
# Words of columns that number repeated answers, of files that are parts of one table, around models in names of files, and of statistics.
REPEATS, PARTS, WRAPPERS, _STATISTICS = (
    frozenset(_FILE[key].split()) for key in ("repeats", "parts", "wrappers", "statistics")
)
ROLES = tuple(_NAMES)
_ALIASES = {
    "query": "query",
    "prompt": "text",
    "question": "text",
    "group": "category",
    "quality": "score",
    "features": "embedding",
}
_ALIASES |= {"id": "query", "cached": "tokens_cached", "reasoning": "tokens_reasoning"}

# Factors to seconds, USD, USD per million tokens and [0, 1]; a word is a currency or another unit that is kept.
UNITS: dict[str, dict[str, float | str]] = {
    "latency": {
        **dict.fromkeys(("us", "usec", "usecs", "micros", "microseconds"), 1e-6),
        **dict.fromkeys(("ms", "msec", "msecs", "millis", "milliseconds"), 1e-3),
        **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
        **dict.fromkeys(("min", "mins", "minutes"), 60.0),
    },
    "cost": {
        **dict.fromkeys(("usd", "dollar", "dollars", "perquery", "perrequest"), 1.0),
        **dict.fromkeys(("cents", "cent", "ct", "cts", "uscents"), 1e-2),
        **dict.fromkeys(("milli", "musd", "millis", "millidollars", "mills"), 1e-3),
        **dict.fromkeys(("micro", "uusd", "micros", "microusd", "microdollars"), 1e-6),
        **dict.fromkeys(("per1k", "per1000", "perthousand", "per1kqueries", "per1000queries", "per1krequests"), 1e-3),
        **{code: code.upper() for code in ("eur", "gbp", "jpy", "chf", "cny", "inr", "cad", "aud", "sek", "brl")},
        **dict.fromkeys(("j", "joule", "joules"), "J"),
    },
    "price": {
        **dict.fromkeys(("usd", "dollars"), 1.0),
        **dict.fromkeys(("pertoken", "pertok", "token", "tok"), 1e6),
        **dict.fromkeys(
            ("per1k", "per1ktokens", "per1ktok", "per1000tokens", "perktok", "perktokens", "ktok", "1ktok", "1ktokens"), 1e3
        ),
        **dict.fromkeys(
            ("per1m", "per1mtokens", "per1mtok", "permtok", "permtokens", "mtok", "1mtok", "permillion", "permilliontokens"),
            1.0,
        ),
    },
    "score": dict.fromkeys(("pct", "percent", "percentage"), 0.01),
}
KINDS = {
    "score": "score",
    "cost": "cost",
    "latency": "latency",
    "price_in": "price",
    "price_out": "price",
    "price_cached": "price",
}
# Words of a price whose name says per how many tokens, as in `usd_per_1m_tok_in` and `input_cost_per_token`.
_DIRECTIONS = {
    "price_in": ("in", "input", "prompt"),
    "price_out": ("out", "output", "completion"),
    "price_cached": ("cached", "cacheread"),
}
_DIRECTION_WORDS = frozenset(word for of in _DIRECTIONS.values() for word in of)


@lru_cache(65536)
def words(name: str) -> tuple[str, ...]:
    """Returns the words of a name: "promptTokens", "prompt_tokens" and "Prompt tokens" have the same."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+", str(name).translate(_SIGNS))
    return tuple(part.lower() for part in parts)


@lru_cache(65536)
def split_unit(kind: str, name: str) -> tuple[str, tuple[str, ...]]:
    """Returns a plain name without its units, and these: ("latency", ("ms",)) of "latency_ms"; a name of units alone stays."""
    parts, found, units = list(words(name)), [], UNITS.get(kind, {})
    if kind == "price" and "per" in parts:  # "usd per 1k input tokens" as "input usd per 1k tokens".
        within = [part for part in parts[parts.index("per") :] if part in _DIRECTION_WORDS]
        parts = [*within, *parts[: parts.index("per")], *(p for p in parts[parts.index("per") :] if p not in within)]
    while len(parts) > 1:
        for size in range(min(5, len(parts) - 1), 0, -1):
            head, tail = "".join(parts[:size]), "".join(parts[-size:])
            if tail in units:
                found.append(tail)
                parts = parts[:-size]
                break
            if head in units and head not in ("min", "s"):  # The least, or a letter: units at the end alone.
                found.append(head)
                parts = parts[size:]
                break
        else:
            break
    if found and len(parts) > 1 and parts[-1] == "in" and kind in ("latency", "cost"):
        parts = parts[:-1]
    base = "".join(parts)
    if not found:
        base = plain(name)
        for unit in sorted(units, key=len, reverse=True):  # Without marks between words, as in `latencyms`.
            if len(unit) > 1 and base.endswith(unit) and any(base[: -len(unit)] in known for known in _NAMES.values()):
                return base[: -len(unit)], (unit,)
        if base in units:
            found = [base]
    return base, tuple(found)


def unit_of(role: str, name: str, given: Mapping[str, str]) -> tuple[float, str | None, str]:
    """Returns the factor of a column's unit, its currency if it has another than USD, and the unit in words, empty without one."""
    kind = KINDS.get(role, "")
    units = (plain(given[role]),) if role in given else split_unit(kind, name)[1]
    factor, currency = 1.0, None
    for unit in units:
        value = UNITS[kind][unit]
        factor, currency = (factor, value) if isinstance(value, str) else (factor * value, currency)
    if kind == "cost" and "energy" in plain(name):
        currency = "J"
    return factor, currency, given.get(role, " ".join(reversed(units)))


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
        allowed = UNITS[KINDS.get(role, role)]
        if plain(unit) not in allowed:
            raise ValueError(f"units[{role!r}] must be one of {', '.join(allowed)}, got {unit!r}")
        found |= dict.fromkeys(("price_in", "price_out", "price_cached") if role == "price" else (role,), str(unit))
    return found


@lru_cache(65536)
def level(role: str, name: str) -> float:
    """Returns how strongly a name says a role: 3 exactly, 2 a synonym, 1 a word with other meanings, 0 not at all.

    A field of an object (`usage.prompt_tokens`) says it less than any synonym, and a name with remarks ("Score (exact match)") half less.
    """
    found = whole_level(role, name)
    if not found and re.fullmatch(r".+\(.+\)\s*", str(name)) and not _odd(str(name).split("(")[1]):
        return max(0.0, whole_level(role, str(name).split("(")[0]) - 0.5)
    if not found and "." in str(name):
        *heads, last = str(name).split(".")
        if not any(_OTHERS & set(words(head)) for head in heads):
            return {3.0: 1.9, 2.0: 1.5}.get(whole_level(role, last), 0.0)
    return found


# Words of units that are not known, and of objects that say something of others than the answer.
_UNKNOWN = frozenset(
    (
        "per",
        "token",
        "tokens",
        "tok",
        "thousand",
        "million",
        "billion",
        "nano",
        "ns",
        "hour",
        "hours",
        "h",
        "k",
        "m",
        "thousandths",
    )
)
_OTHERS = frozenset(
    ("judge", "grader", "reference", "retrieval", "user", "previous", "meta", "baseline", "expected", "target")
)


def _odd(name: str) -> bool:
    """Whether a name has a word of a unit that is not known."""
    return any(word in _UNKNOWN or (word.isdigit() and int(word) >= 100) for word in words(name))


def unknown_unit(kind: str, name: str) -> bool:
    """Whether the name of a column says a unit that is not known."""
    units = "".join(split_unit(kind, name)[1])
    known_name = any(plain(name) in names for names in _NAMES.values())
    return (
        kind in ("cost", "latency", "price")
        and not known_name
        and any(word not in units for word in words(name) if _odd(word))
    )


# Words of a name such as `problem_idx`.
_ASKED = frozenset(
    ["query", "prompt", "question", "problem", "sample", "doc", "document", "example", "item", "instance", "request", "case"]
)
_NUMBERED = frozenset(["id", "idx", "index", "no", "nr", "num", "number", "key"])


@lru_cache(65536)
def whole_level(role: str, name: str) -> float:
    """Returns how strongly a whole name says a role, apart from its units."""
    kind = KINDS.get(role, "")
    base, units = split_unit(kind, name) if kind else (plain(name), ())
    names = _NAMES.get(role, {})
    parts = words(name) if role == "query" else ()
    if len(parts) == 2 and parts[0] in _ASKED and parts[1] in _NUMBERED and not names.get(plain(name)):
        return 2.0
    found = float(names.get(plain(name), 0) or names.get(base, 0))
    if role == "cost" and base == "price" and any(unit.startswith("per") for unit in units):
        return 0.0  # Per thousand tokens, or queries?
    if kind == "price" and any("tok" in unit or "million" in unit for unit in units):
        of = re.sub("^(usd|per)+|tokens?|cost|price", "", base)
        found = max(found, 2.0 if of in _DIRECTIONS[role] else 0.0)
    return found


def known(name: str) -> bool:
    """Whether a whole name says any role."""
    return any(level(role, name) >= 1 for role in ROLES)


def similar(role: str, names: Sequence[str]) -> list[str]:
    """Returns the columns whose names have a word of the role in them, for a proposal."""
    marks = {"query": {"id", "question", "prompt", "query", "uuid", "hash"}, "text": {"prompt", "question"}}.get(
        role, {role.split("_")[0]}
    )
    marks |= {
        "score": {"correct", "accuracy", "passed", "acc", "quality"},
        "cost": {"usd", "price", "spend"},
        "model": {"llm"},
    }.get(role, set())
    return [
        name
        for name in names
        if not known(name)
        and not _odd(name)
        and any(word in marks or (word.startswith(("model", "llm")) and role == "model") for word in words(name))
    ]


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
        column = str(column)
        if "*" in column:
            if not fnmatch.filter(names, column.replace("[", "[[]")):
                raise ValueError(
                    f"columns[{role!r}] is {column!r}, which no column of {where} fits; it has {some(names, 40)}"
                )
        elif column and column not in names:
            close = difflib.get_close_matches(column.lower(), [name.lower() for name in names], n=1)
            meant = next((name for name in names if close and name.lower() == close[0]), None)
            hint = f"; did you mean {meant!r}?" if meant else ";"
            raise ValueError(
                f"columns[{role!r}] is {column!r}, which {where} lacks{hint} it has {some(map(repr, names), 40)}"
            )
        found[role] = column
    return found


# A column per model.

PER_MODEL = (
    "score",
    "cost",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "tokens_written",
    "tokens_reasoning",
    "tokens_total",
    "price_in",
)
PER_MODEL += ("price_out", "price_cached", "latency", "response", "response_chars", "confidence")


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


def _affixes(name: str) -> list[tuple[str, str, str, float, int]]:
    """Role, shape, model, level and length of all beginnings and endings by which a name can be a model's column."""
    found = []
    for match in re.finditer(r"[\s_\-.|:/]+", name):
        left, mark, right = name[: match.start()], match[0], name[match.end() :]
        for part, model, shape in ((left, right, f"{left.lower()}{mark}{{}}"), (right, left, f"{{}}{mark}{right.lower()}")):
            roles = [(role, whole_level(role, part)) for role in PER_MODEL if part and model]
            roles += [("response_chars", 1.0)] if plain(part) == "chars" and model else []
            found += [(role, shape, model, strength, len(part)) for role, strength in roles if strength >= 1]
    return found


def _cut(free: Sequence[str]) -> Iterator[tuple[str, str, str, str, float]]:
    """Column, role, shape, model and level of the best cuts: those whose model another role has, then the longest beginning and ending."""
    cuts = {name: _affixes(name) for name in free}
    roles_of: dict[str, set[str]] = {}
    for role, _, model, _, _ in (cut for of in cuts.values() for cut in of):
        roles_of.setdefault(model, set()).add(role)
    often = Counter(shape for of in cuts.values() for _, shape, _, _, _ in of)
    for name, of in cuts.items():
        for ending in (False, True):
            ranked = {
                cut: (len(roles_of[cut[2]]) > 1, often[cut[1]] if len(roles_of[cut[2]]) > 1 else 0, cut[4])
                for cut in of
                if cut[1].startswith("{}") == ending
            }
            best = max(ranked.values(), default=None)
            yield from ((name, *cut[:4]) for cut, rank in ranked.items() if rank == best)


def families(names: Sequence[str], given: Mapping[str, str], wanted: Sequence[str]) -> list[Family]:
    """Returns the families of columns of models, by name alone.

    Args:
      names: all columns.
      given: columns by role as the caller named them; one with `*` is that role's only family.
      wanted: models that the caller named; their columns of scores may be called like them.
    """
    found: dict[tuple[str, str], Family] = {}
    free = [name for name in names if name and not (known(name) and not _nested_only(name)) and name not in given.values()]
    for name, role, shape, model, strength in _cut(free):
        if role not in given:
            found.setdefault((role, shape), Family(role, shape, strength)).columns.setdefault(model, name)
    for name in [
        name for name in names if words(name)[-1:] == ("min",) and name not in given.values()
    ]:  # Minutes, or the model called min.
        for role, shape, model, _, _ in _affixes(name):
            if (role, shape) in found:
                found[role, shape].columns.setdefault(model, name)
    for role, column in given.items():
        if "*" in column:
            head, _, tail = column.partition("*")
            fits = {
                name[len(head) : len(name) - len(tail)]: name for name in fnmatch.filter(names, column.replace("[", "[[]"))
            }
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
        bare = {
            re.sub(rf"[\s_\-.|]+{unit}$", "", model, flags=re.IGNORECASE): column for model, column in of.columns.items()
        }
        if (
            role in KINDS
            and unit in UNITS[KINDS[role]]
            and bare.keys() <= scored
            and not of.columns.keys() <= scored
            and len(bare) > 1
        ):
            found[role, f"{shape}_{unit}"] = Family(role, f"{shape}_{unit}", of.level, bare)
    siblings = [set(of.columns) for of in found.values() if len(of.columns) > 1]
    for of in found.values():
        if of.role not in given:
            words_alone = all(plain(m) in _STATISTICS for m in of.columns)
            spread = {
                m
                for m in of.columns
                for other in of.columns
                if m != other and m.startswith(other) and plain(m.removeprefix(other)) in _STATISTICS
            }
            keep = {
                m
                for m in of.columns
                if (plain(m) not in _STATISTICS and m not in spread)
                or m in wanted
                or (not words_alone and sum(m in s for s in siblings) > 1)
            }
            of.statistics = [model for model in of.columns if model not in keep]
            of.columns = {model: column for model, column in of.columns.items() if model in keep}
    return [of for of in found.values() if of.columns or of.statistics]


def _nested_only(name: str) -> bool:
    """Whether a name says a role only by its last part, as `gpt-4.score` does."""
    return "." in name and all(level(role, name) % 1 for role in ROLES if level(role, name))


_EMBEDDED = re.compile(r"^(emb|embedding|feature|feat|vec|vector|dim)[\s_\-.]*(\d+)$", re.IGNORECASE)


def numbered_columns(names: Sequence[str]) -> list[str]:
    """Returns columns emb_0, emb_1, ... in the order of their numbers: the largest such group of at least two."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        match = _EMBEDDED.match(name)
        if match:
            groups.setdefault(match[1].lower(), []).append((int(match[2]), name))
    best = max(groups.values(), key=len, default=[])
    return [name for _, name in sorted(best)] if len(best) > 1 else []
