"""The role of each column of a log, from its name and its content."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from jaxroute.data.files import option, some
from jaxroute.data.logs import cells as of_cells
from jaxroute.data.logs.cells import looks_like_numbers, looks_like_text, some_cells
from jaxroute.data.logs.files import FILE_COLUMNS, Sheet
from jaxroute.data.logs.names import (
    KINDS,
    PARTS,
    REPEATS,
    ROLES,
    Family,
    families,
    known,
    level,
    numbered_columns,
    plain,
    similar,
    words,
)

NUMERIC = tuple(
    role
    for role in ROLES
    if role.startswith(("tokens", "price")) or role in ("cost", "prompt_chars", "response_chars", "confidence")
)
CALLED = {
    "tokens_in": "input tokens",
    "tokens_out": "output tokens",
    "tokens_cached": "cached tokens",
    "tokens_written": "tokens written to a cache",
    "tokens_reasoning": "reasoning tokens",
    "tokens_total": "all tokens",
    "price_in": "price of input",
    "price_out": "price of output",
    "price_cached": "price of cached input",
    "prompt_chars": "characters of prompts",
    "response_chars": "characters of answers",
}
_NAME = "--column ROLE=NAME, in Python columns={'ROLE': 'NAME'}"


@dataclass
class Roles:
    """Which column has which role.

    Attributes:
      sheet: the open file.
      given: columns by role that the caller named.
      candidates: columns by role with the most evidence; several where nothing decides between them.
      models: models of a table with a row per query, empty for one with a row per query and model.
      families: columns of each model by role, in a table with a row per query.
      vectors: columns of numbers that are features of queries.
      used: columns that were read.
      notes: a line for each role.
    """

    sheet: Sheet
    given: dict[str, str]
    candidates: dict[str, list[str]]
    models: list[str] = field(default_factory=list)
    families: dict[str, Family] = field(default_factory=dict)
    vectors: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def column(self, role: str) -> str | None:
        """Returns the column of a role, None if there is none.

        Raises:
          ValueError: several columns could be it, and nothing decides.
        """
        names = self.candidates.get(role, [])
        if len(names) > 1:
            raise ValueError(
                f"{self.sheet.name}: {' and '.join(map(repr, names))} could both be the {CALLED.get(role, role)}, and they differ: say which "
                f"(columns={{{role!r}: {names[0]!r}}}, on the command line {option('--column', f'{role}={names[0]}')}, or --column {role}= for none)"
            )
        if names:
            self.used.add(names[0])
        return names[0] if names else None

    def note(self, role: str, column: str, *more: str) -> None:
        """Adds the line of a role: its column, examples and conversions."""
        shown = of_cells.examples(self.sheet.cells(column))
        details = "; ".join(part for part in (f"as in {shown}" if shown else "", *more) if part)
        self.notes.append(f"{CALLED.get(role, role)}: column {column!r} ({details})")


def assign_roles(sheet: Sheet, given: Mapping[str, str], wanted: Sequence[str] = (), scored: bool = True) -> Roles:
    """Assigns a role to each column.

    A column has a role by its name (exactly, as a synonym, or as a word with other meanings) if its cells can be that. The strongest name wins.

    Args:
      sheet: the open file.
      given: columns by role that the caller named.
      wanted: models that the caller named.
      scored: whether a row per query and model needs a score.

    Raises:
      ValueError: the file is no log; the message says what it lacks and what looks like it.
    """
    given = {**sheet.given, **given}
    _check_header(sheet, given)
    plain_given = {role: column for role, column in given.items() if "*" not in column}
    roles = Roles(sheet, dict(given), {role: [column] if column else [] for role, column in plain_given.items()})
    found = _families(sheet, given, wanted)
    options = _best_scores(found)
    scores = options[0] if options else None
    wide = bool(scores and len(scores.columns) > 1)
    priced = (
        scores is not None
        and wide
        and any(of.role == "cost" and len(of.columns.keys() & scores.columns.keys()) > 1 for of in found)
    )
    _find(roles, set(plain_given.values()), wide)
    long = all(roles.candidates.get(role) for role in ("query", "model", "score")) and "*" not in given.get("score", "")
    if wide and scores and not (long and (not priced or given.get("model"))):
        summary = (
            bool(roles.candidates.get("model")) and not priced and scores.level < 4 and not roles.candidates.get("query")
        )
        if not summary:
            if not _same_families(sheet, options):
                raise ValueError(_two_shapes(sheet, options))
            of_models = {column for of in found for model, column in of.columns.items() if model in scores.columns}
            return _wide(roles, found, scores, of_models, given)
    if not long and (scored or not (roles.candidates.get("query") and roles.candidates.get("model"))):
        statistics = next((of for of in found if of.role == "score" and len(of.statistics) > 1), None)
        others = {column for of in found if of.role != "score" and len(of.columns) > 1 for column in of.columns.values()}
        raise ValueError(_no_log(roles, scores, statistics, others, wanted))
    return roles


def _wide(roles: Roles, found: list[Family], scores: Family, of_models: set[str], given: Mapping[str, str]) -> Roles:
    """Completes the roles of a table with a row per query."""
    sheet = roles.sheet
    roles.models = sorted(scores.columns, key=lambda model: sheet.names.index(scores.columns[model]))
    roles.families["score"] = scores
    if scores.statistics:
        left = ", ".join(scores.shape.replace("{}", name) for name in scores.statistics)
        roles.notes.append(
            f"left out: the columns {left}, called like statistics; if they are models, name all models (models=[...], --models A,B)"
        )
    for role in {of.role: None for of in found if of.role != "score"}:
        options = [of for of in found if of.role == role and of.columns.keys() & scores.columns.keys()]
        options = [
            Family(o.role, o.shape, o.level, {m: c for m, c in o.columns.items() if m in scores.columns}) for o in options
        ]
        options = [of for of in options if not set(of.columns.values()) & set(scores.columns.values())]
        options.sort(key=lambda of: (-len(of.columns), -of.level))
        best = [of for of in options if (len(of.columns), of.level) == (len(options[0].columns), options[0].level)]
        if len(best) > 1 and role in ("cost", "latency") and not _same_families(sheet, best):
            raise ValueError(_two_shapes(sheet, best))
        if best:
            roles.families[role] = best[0]
    drop = of_models | set(scores.columns.values())
    roles.candidates = {
        role: [name for name in names if name not in drop or given.get(role) == name]
        for role, names in roles.candidates.items()
    }
    roles.candidates = {role: names for role, names in roles.candidates.items() if names or role in given}
    for role in ("model", "score", "response", "latency", "tokens_out", "tokens_reasoning", "confidence", "cost"):
        roles.candidates.pop(role, None)  # Of a query, which says nothing of its models.
    return roles


def _families(sheet: Sheet, given: Mapping[str, str], wanted: Sequence[str]) -> list[Family]:
    """Families whose cells can be their role."""
    found, every = [], families([name for name in sheet.names if name not in FILE_COLUMNS], given, wanted)
    for of in every:
        kind = "score" if of.role == "score" else "cost"
        if "*" not in given.get(of.role, "") and of.role != "response":
            can = {m: c for m, c in of.columns.items() if sheet.names.count(c) > 1 or _numeric(sheet, c, kind, of.role)}
            others = {m for other in every if other.role != of.role and len(other.columns) > 1 for m in other.columns}
            columns = {
                m: c for m, c in of.columns.items() if m in can or (len(can) > 1 and m in others)
            }  # Refused with its cell.
            of = Family(of.role, of.shape, of.level, columns, of.statistics)
        if of.columns or of.statistics:
            found.append(of)
    return found


def _numeric(sheet: Sheet, column: str, kind: str, role: str) -> bool:
    cells = sheet.cells(column)
    return looks_like_numbers(cells, "latency" if role == "latency" else kind) or not some_cells(cells)


def _best_scores(found: Sequence[Family]) -> list[Family]:
    """The families of scores with the most evidence: several where nothing decides; of one model if there is no other."""
    others = [of.columns.keys() for of in found if of.role != "score"]

    def weight(of: Family) -> tuple[float, ...]:
        known = len({model for model in of.columns if any(model in columns for columns in others)})
        return (of.level == 4.0, known, of.level, len(of.columns) if known or of.level >= 2 else 0)

    options = [of for of in found if of.role == "score" and len(of.columns) > 1]
    options = options or [of for of in found if of.role == "score" and of.level >= 2][:1]
    most = max(map(weight, options), default=())
    return [of for of in options if weight(of) == most]


def _same_families(sheet: Sheet, options: Sequence[Family]) -> bool:
    first = options[0]
    return all(
        of.columns.keys() == first.columns.keys() and all(_same(sheet, of.columns[m], first.columns[m]) for m in of.columns)
        for of in options[1:]
    )


def _two_shapes(sheet: Sheet, options: Sequence[Family]) -> str:
    shapes = [of.shape.replace("{}", "*") for of in options]
    role = options[0].role
    return (
        f"{sheet.name}: the columns {' and '.join(shapes)} could both be the {CALLED.get(role, role)} of models, and they differ: say which "
        f"(columns={{{role!r}: {shapes[0]!r}}}, on the command line {option('--column', f'{role}={shapes[0]}')})"
    )


def _same(sheet: Sheet, a: str, b: str, role: str = "") -> bool:
    """Whether two columns have the same cells, or numbers that are the same in their units."""
    first, second = sheet.cells(a), sheet.cells(b)
    if role in KINDS:
        try:
            first, second = (of_cells.read_numbers(sheet, name, role).values for name in (a, b))
        except ValueError:
            return False
    if first.dtype.kind in "biuf" and second.dtype.kind in "biuf":
        return np.allclose(first.astype(float), second.astype(float), rtol=1e-9, atol=0, equal_nan=True)
    return all(str(x).strip() == str(y).strip() for x, y in zip(first, second, strict=True))


def _find(roles: Roles, taken: set[str], wide: bool) -> None:
    """Fills the candidates of every role that was not given."""
    sheet = roles.sheet
    names = [name for name in sheet.names if name and name not in FILE_COLUMNS]
    fits: dict[str, Callable[..., bool]] = {
        "text": looks_like_text,
        "model": lambda cells: cells.dtype.kind == "O" or not _fractions(cells),
        "score": lambda cells: looks_like_numbers(cells, "score"),
        "latency": lambda cells: looks_like_numbers(cells, "latency"),
        "date": of_cells.looks_like_dates,
        "category": lambda cells: not _fractions(cells),
        "embedding": of_cells.looks_like_vectors,
        "response": looks_like_text,
    } | dict.fromkeys(NUMERIC, looks_like_numbers)

    def strongest(role: str, options: Sequence[str]) -> list[str]:
        options = [n for n in options if n not in taken and level(role, n) > 0 and sheet.names.count(n) == 1]
        can = [n for n in options if role not in fits or fits[role](sheet.cells(n))]
        if not can and role in ("score", "cost"):  # A name that says it exactly: refused with the cell that is wrong.
            can = [n for n in options if level(role, n) == 3 and some_cells(sheet.cells(n))]
        if role == "category":
            can = [n for n in can if not _of_models(roles, n)]
            can = [n for n in can if len(set(map(str, sheet.cells(n)))) > 1] or can
        best = max((level(role, n) for n in can), default=0)
        twice = [
            n for n in dict.fromkeys(names) if sheet.names.count(n) > 1 and n not in taken and level(role, n) >= max(best, 1)
        ]
        if twice:  # Refused when it is read.
            return twice[:1]
        can = [n for n in can if level(role, n) == best]
        return [n for place, n in enumerate(can) if not any(_same(sheet, n, other, role) for other in can[:place])]

    order = (
        "text",
        "model",
        "score",
        "query",
        "cost",
        "tokens_cached",
        "tokens_written",
        "tokens_reasoning",
        "tokens_total",
        "tokens_in",
        "tokens_out",
    )
    order += (
        "price_in",
        "price_out",
        "price_cached",
        "prompt_chars",
        "response_chars",
        "latency",
        "date",
        "category",
        "embedding",
        "response",
        "confidence",
    )
    for role in order:
        if role in roles.given:
            continue
        if role == "query":
            best = _queries(roles, [n for n in names if n not in taken or n in roles.candidates.get("text", ())])
        else:
            best = strongest(role, names)
        if role == "model" and not best and not wide:
            best = _by_file(sheet, names, roles.candidates.get("text", []))
        if best:
            roles.candidates[role] = best
            taken |= set(best)
    query = roles.candidates.get("query", [])
    unknown = "text" not in roles.candidates and "text" not in roles.given
    if (
        unknown
        and len(query) == 1
        and sheet.names.count(query[0]) == 1
        and query[0] not in sheet.made
        and of_cells.looks_like_sentences(sheet.cells(query[0]))
    ):
        roles.candidates["text"] = query
    if "embedding" not in roles.candidates and "embedding" not in roles.given:
        roles.vectors = numbered_columns([name for name in names if name not in taken])


def _by_file(sheet: Sheet, names: Sequence[str], text: Sequence[str]) -> list[str]:
    """The parts of the paths of several files that may be the models: those whose values have most of the same questions, unless a column looks like it."""
    there = [column for column in FILE_COLUMNS if column in sheet.names]
    if not there or similar("model", names):
        return []
    ids = [name for name in names if level("query", name) > 0 and name not in text and sheet.names.count(name) == 1]
    asked = [name for name in (*text, *ids) if not any(of_cells.empty(cell) for cell in sheet.cells(name))][:1]
    shared = {}
    for column in there:
        cells = sheet.cells(column)
        numbered = all(
            set(words(str(stem))) <= PARTS | {word for word in words(str(stem)) if word.isdigit()} for stem in set(cells)
        )
        if not numbered and asked:
            keys = _keys(sheet.cells(asked[0]))
            shared[column] = len(set(zip(keys, cells, strict=True))) / (len(set(keys)) * len(set(cells)))
        elif not numbered:
            shared[column] = 0.0
    most = max(shared.values(), default=0.0)
    found = sorted(
        (c for c, share in shared.items() if share > most - 0.02), key=lambda c: len(max(map(str, sheet.cells(c)), key=len))
    )
    return [c for place, c in enumerate(found) if not any(_same_parts(sheet, c, other) for other in found[:place])]


def _queries(roles: Roles, options: Sequence[str]) -> list[str]:
    """The strongest columns of queries: of several, those that name a query for more than one model alike."""
    sheet, taken = roles.sheet, {name for role in ("model", "score") for name in roles.candidates.get(role, ())}
    can = [
        n
        for n in options
        if level("query", n) > 0
        and n not in taken
        and sheet.names.count(n) == 1
        and (level("query", n) == 3 or not _fractions(sheet.cells(n)))
    ]
    full = [n for n in can if not any(of_cells.empty(cell) for cell in sheet.cells(n))]
    can = full or can
    ids = [n for n in can if n not in roles.candidates.get("text", ())]  # Texts count beside the ids in any case.
    can = ids or can
    model = roles.candidates.get("model", [])
    if len(model) == 1 and len(can) > 1 and sheet.names.count(model[0]) == 1:
        models = pd.factorize(_keys(sheet.cells(model[0])))[0]

        def shared(name: str) -> bool:
            codes = pd.factorize(_keys(sheet.cells(name)))[0]
            pairs = np.unique(codes.astype(np.int64) * (models.max() + 1) + models) // (models.max() + 1)
            return bool((np.bincount(pairs) > 1).any())

        can = [name for name in can if shared(name)] or can
    best = max((level("query", n) for n in can), default=0)
    can = [n for n in can if level("query", n) == best]
    return [n for place, n in enumerate(can) if not any(_same_parts(sheet, n, other) for other in can[:place])]


def _keys(cells: np.ndarray) -> np.ndarray:
    return np.array([str(cell).strip() for cell in cells], object)


def _same_parts(sheet: Sheet, a: str, b: str) -> bool:
    """Whether two columns put the same rows together."""
    first, second = (pd.factorize(_keys(sheet.cells(name)))[0] for name in (a, b))
    return np.array_equal(first, second)


def _of_models(roles: Roles, name: str) -> bool:
    """Whether a column says something of the model and not of the query: one value for each model, and several in all."""
    model = roles.candidates.get("model", [])
    if len(model) != 1 or roles.sheet.names.count(model[0]) > 1 or level("category", name) > 1:
        return False
    models, cells = _keys(roles.sheet.cells(model[0])), _keys(roles.sheet.cells(name))
    return len(set(cells)) > 1 and len(set(zip(models, cells))) == len(set(models))


def _fractions(cells: np.ndarray) -> bool:
    """Whether cells are numbers of which some are not whole."""
    try:
        return any(float(cell) % 1 for cell in some_cells(cells))
    except (TypeError, ValueError):
        return False


def _check_header(sheet: Sheet, given: Mapping[str, str]) -> None:
    """Refuses a first line that is data."""
    numbers = [name for name in sheet.names if name.replace(".", "", 1).replace("-", "", 1).replace(",", "", 1).isdigit()]
    if numbers and not given and not any(known(name) for name in sheet.names) and len(numbers) >= len(sheet.names) / 3:
        raise ValueError(
            f"{sheet.name}, line 1 looks like data and not like names of columns ({some(map(repr, sheet.names), 6)}): add a line of names above it, such "
            "as query_id,model,score,cost"
        )


def _no_log(
    roles: Roles, scores: Family | None, statistics: Family | None, others: Collection[str], wanted: Sequence[str]
) -> str:
    """Why a file is no log, and what would make it one."""
    sheet = roles.sheet
    names = [name for name in sheet.names if name not in FILE_COLUMNS]
    has = f"It has {some(map(repr, names))}."
    plains = {plain(name) for name in names}
    if {"modela", "modelb"} <= plains or {"generator1", "generator2"} <= plains or {"model1", "model2"} <= plains:
        return f"{sheet.name} has pairwise preferences (which of two answers is better), which are no scores of single answers: have each answer scored. {has}"
    free = [name for name in names if name not in {n for of in roles.candidates.values() for n in of}]
    lacking = [role for role in ("query", "model", "score") if not roles.candidates.get(role)]
    proposals = [(role, similar(role, free)) for role in lacking]
    if lacking == ["score"] and not dict(proposals)["score"]:  # By what is in them.
        judged = [n for n in free if sheet.names.count(n) == 1 and not known(n) and _like_scores(sheet.cells(n))]
        proposals = [(role, judged if role == "score" else of) for role, of in proposals]
    likely = "; ".join(
        f"{' or '.join(map(repr, of[:3]))} looks like the {role}: {option('--column', f'{role}={of[0]}')}"
        for role, of in proposals
        if of
    )
    likely = f" {likely}." if likely else ""
    if statistics and not roles.candidates.get("model"):
        called = ",".join(statistics.statistics)
        return (
            f"{sheet.name} has columns {statistics.shape.replace('{}', '<model>')} for {called.replace(',', ', ')}, which are words of statistics: if they are "
            f"models, say so (models={statistics.statistics}, on the command line {option('--models', called)}).{likely} {has}"
        )
    if scores and len(scores.columns) == 1 and not roles.candidates.get("score") and not roles.candidates.get("model"):
        return f"{sheet.name} has scores of one model, {next(iter(scores.columns))!r}: there is nothing to choose; add the answers of another. {has}"
    if roles.candidates.get("model"):
        model = roles.candidates["model"][0]
        different = len({str(cell) for cell in sheet.cells(model)})
        if lacking == ["query"] or ("query" in lacking and different == sheet.num_rows):
            return (
                f"{sheet.name} has models (column {model!r}, {different} different in {sheet.num_rows} rows) but no column of queries: a summary of "
                f"models is no log of their answers to single queries; if there is one, name it ({_NAME.replace('ROLE', 'query')}).{likely} {has}"
            )
        said = " and ".join(f"a column for the {role}" for role in lacking)
        return f"{sheet.name} has a column of models, {model!r}, but lacks {said}: name it ({_NAME}).{likely} {has}"
    fractions = [
        n for n in free if sheet.names.count(n) == 1 and n not in others and not known(n) and _like_scores(sheet.cells(n))
    ]
    named = [model for model in wanted if model in fractions]
    if named:
        lacking = [repr(model) for model in wanted if model not in names]
        why = f"{some(lacking)} is no column" if lacking else f"only {named[0]!r} is named, and there is nothing to choose"
        return f"{sheet.name}: columns called like the models have their scores, but {why}. {has}"
    if len(fractions) > 1 and not dict(proposals)["model"] and not roles.candidates.get("score"):
        example = " ".join(option("--cost", f"{n}=VALUE") for n in fractions[:3])
        return (
            f"{sheet.name} has no columns of costs; {some(map(repr, fractions), 6)} could be scores of models: give the cost per query of each "
            f"(costs={{...}}, on the command line {example}), or their prices ({option('--price', f'{fractions[0]}=IN:OUT')}).{likely} {has}"
        )
    shapes = "score_<model> and cost_<model>, <model> and <model>|total_cost, or <model>_score and <model>_cost"
    return (
        f"{sheet.name} has neither a column of models (model, llm, ...) nor columns of scores per model ({shapes}): name the columns "
        f"({_NAME}).{likely} {has}"
    )


def _like_scores(cells: np.ndarray) -> bool:
    """Whether cells are numbers or verdicts in [0, 1], or whole or half grades up to 100."""
    if not looks_like_numbers(cells, "score"):
        return False
    values = np.array(
        [float(value[0]) for cell in some_cells(cells) if (value := of_cells._number(cell, "score", True)) is not None]
    )
    return bool((values >= 0).all() and (values.max() <= 1 or (values.max() <= 100 and (values * 2 % 1 == 0).all())))


def unused(roles: Roles) -> str:
    """The line about columns that were not used, empty if all were."""
    left = [name for name in roles.sheet.names if name and name not in roles.used and name not in FILE_COLUMNS]
    return f"not used: {some(map(repr, left))}" if left else ""


def is_repeat(name: str) -> bool:
    """Whether a column numbers repeated answers."""
    parts = set(words(name))
    return bool(REPEATS & parts) or bool(
        parts & {"answer", "completion", "output"} and parts & {"idx", "index", "id", "number"}
    )
