"""The role of each column of a log, from its name and its content."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd

from jaxroute.data.files import option, some
from jaxroute.data.logs import cells as of_cells
from jaxroute.data.logs import names as of_names
from jaxroute.data.logs.cells import looks_like_numbers, looks_like_text, number_of, some_cells
from jaxroute.data.logs.files import FILE_COLUMNS, Sheet
from jaxroute.data.logs.names import CALLED, Family, can_be, families, known, level, opposite, similar, words

_NAME = "--column ROLE=NAME, in Python columns={'ROLE': 'NAME'}"


@dataclass
class Roles:
    """The roles of columns.

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
    _codes: dict[str, np.ndarray] = field(default_factory=dict)

    def column(self, role: str) -> str | None:
        """Returns the column of a role, None if there is none.

        Raises:
          ValueError: several columns could be it, and nothing decides.
        """
        names = self.candidates.get(role, [])
        if len(names) > 1:
            raise _undecided(self.sheet, role, names, f", or --column {role}= for none")
        self.used |= set(names)
        return names[0] if names else None

    def note(self, role: str, column: str, *more: str) -> None:
        """Adds the line of a role: its column, examples and conversions."""
        shown = of_cells.examples(self.sheet.cells(column))
        details = "; ".join(part for part in (f"as in {shown}" if shown else "", *more) if part)
        self.notes.append(f"{CALLED.get(role, role)}: column {column!r} ({details})")

    def codes(self, column: str) -> np.ndarray:
        """Returns `[R]` numbers of the different cells of a column, read as texts."""
        if column not in self._codes:
            texts = [str(cell).strip() for cell in self.sheet.cells(column)]
            self._codes[column] = pd.factorize(np.array(texts, object))[0]
        return self._codes[column]

    def different(self, *columns: str) -> int:
        """Returns how many different rows there are of some columns."""
        return len(pd.DataFrame({column: self.codes(column) for column in columns}).drop_duplicates())


def _undecided(sheet: Sheet, role: str, names: Sequence[str], none: str = "") -> ValueError:
    """The refusal of several columns, or columns per model, that could be the same role."""
    return ValueError(
        f"{sheet.name}: {' and '.join(map(repr, names))} could both be the {CALLED.get(role, role)}, and they differ: say which "
        f"(columns={{{role!r}: {names[0]!r}}}, on the command line {option('--column', f'{role}={names[0]}')}{none})"
    )


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
    roles = Roles(sheet, given, {role: [column] if column else [] for role, column in plain_given.items()})
    found = _families(sheet, given, wanted)
    options = _best_scores(found)
    scores = options[0] if options else Family("score", "{}", 0.0)
    wide = len(scores.columns) > 1
    shared = {of.role for of in found if of.role != "score" and len(of.only(scores.columns).columns) > 1} if wide else set()
    priced = "cost" in shared
    _find(roles, set(plain_given.values()), wide)
    query, model, score = (bool(roles.candidates.get(role)) for role in ("query", "model", "score"))
    long = query and model and score and "*" not in given.get("score", "")
    # Several scores of each answer, of models that have a column.
    several = model and scores.level < 4 and (bool(given.get("model")) or not (priced or (query and shared)))
    if wide and not several and not (long and (not priced or given.get("model"))):
        _refuse_different(sheet, options)
        return _wide(roles, found, scores)
    if not long and (scored or not (query and model)):
        raise ValueError(_no_log(roles, scores, found, wanted))
    return roles


def _wide(roles: Roles, found: list[Family], scores: Family) -> Roles:
    """Completes the roles of a table with a row per query."""
    sheet = roles.sheet
    roles.models = sorted(scores.columns, key=lambda model: sheet.names.index(scores.columns[model]))
    roles.families["score"] = scores
    if scores.statistics:
        left = ", ".join(scores.shape.replace("{}", name) for name in scores.statistics)
        roles.notes.append(
            f"left out: the columns {left}, called like statistics; if they are models, name all models (models=[...], --models A,B)"
        )
    found = [of.only(scores.columns) for of in found]
    for role in dict.fromkeys(of.role for of in found if of.role != "score"):
        options = [of for of in found if of.role == role and of.columns]
        options = [of for of in options if not set(of.columns.values()) & set(scores.columns.values())]
        most = max(((len(of.columns), of.level) for of in options), default=None)
        best = [of for of in options if (len(of.columns), of.level) == most]
        if best and role in ("cost", "latency"):
            _refuse_different(sheet, best)
        if best:
            roles.families[role] = best[0]
    of_models = {column for of in found for column in of.columns.values()}
    # Of a query, these say nothing of its models.
    gone = ("model", "score", "response", "latency", "tokens_out", "tokens_reasoning", "confidence", "cost")
    for role, names in [*roles.candidates.items()]:
        roles.candidates[role] = [name for name in names if name not in of_models or roles.given.get(role) == name]
        if role in gone or not (roles.candidates[role] or role in roles.given):
            del roles.candidates[role]
    return roles


def _families(sheet: Sheet, given: Mapping[str, str], wanted: Sequence[str]) -> list[Family]:
    """Families whose cells can be their role."""
    found, every = [], families([name for name in sheet.names if name not in FILE_COLUMNS], given, wanted)
    for of in every:
        if "*" not in given.get(of.role, "") and of.role != "response":
            cells = {model: sheet.cells(column) for model, column in of.columns.items() if sheet.names.count(column) == 1}
            cannot = {model for model, of_model in cells.items() if some_cells(of_model) and not _fits(of.role, of_model)}
            if len(of.columns) - len(cannot) > 1:  # Of a model that others know, they are refused when they are read.
                cannot -= {m for other in every if other.role != of.role and len(other.columns) > 1 for m in other.columns}
            of = of.only(of.columns.keys() - cannot)
        if of.columns or of.statistics:
            found.append(of)
    return found


def _best_scores(found: Sequence[Family]) -> list[Family]:
    """The families of scores with the most evidence: several where nothing decides; of one model if there is no other."""
    others = {model for of in found if of.role != "score" for model in of.columns}

    def weight(of: Family) -> tuple[float, ...]:
        known = len(of.columns.keys() & others)
        return (of.level == 4.0, known, of.level, len(of.columns) if known or of.level >= 2 else 0)

    options = [of for of in found if of.role == "score" and len(of.columns) > 1]
    options = options or [of for of in found if of.role == "score" and of.level >= 2][:1]
    most = max(map(weight, options), default=())
    return [of for of in options if weight(of) == most]


def _refuse_different(sheet: Sheet, options: Sequence[Family]) -> None:
    """Refuses families of the same role with different cells."""
    first, *others = (of.columns for of in options)
    if not all(of.keys() == first.keys() and all(_same(sheet, of[m], first[m]) for m in of) for of in others):
        raise _undecided(sheet, options[0].role, [of.shape.replace("{}", "*") for of in options])


def _same(sheet: Sheet, a: str, b: str, role: str = "") -> bool:
    """Whether two columns have the same cells, or numbers that are the same in their units."""
    first, second = sheet.cells(a), sheet.cells(b)
    if role in of_names.KINDS:
        try:
            first, second = (of_cells.read_numbers(sheet, name, role).values for name in (a, b))
        except ValueError:
            return False
    if first.dtype.kind in "biuf" and second.dtype.kind in "biuf":
        return np.allclose(first.astype(float), second.astype(float), rtol=1e-9, atol=0, equal_nan=True)
    return all(str(x).strip() == str(y).strip() for x, y in zip(first, second, strict=True))


def differing(roles: Roles, role: str, column: str) -> list[str]:
    """The columns that could be a role by a weaker name than the one that is used, and that have other cells."""
    sheet, taken = roles.sheet, {name for names in roles.candidates.values() for name in names}
    free = [name for name in _once(sheet, sheet.names) if name and name not in taken and name not in FILE_COLUMNS]
    weaker = {*similar(role, free)} | {name for name in free if level(role, name) > 0}
    return [
        name for name in free if name in weaker and _fits(role, sheet.cells(name)) and not _same(sheet, name, column, role)
    ]


def _once(sheet: Sheet, names: Sequence[str]) -> list[str]:
    """The names that one column has."""
    often = Counter(sheet.names)
    return [name for name in names if often[name] == 1]


def _fits(role: str, cells: np.ndarray) -> bool:
    """Whether cells can be a role."""
    if role in ("text", "response"):
        return looks_like_text(cells)
    if role == "date":
        return of_cells.looks_like_dates(cells)
    if role == "embedding":
        return of_cells.looks_like_vectors(cells)
    if role in ("model", "category"):
        return (role == "model" and cells.dtype.kind == "O") or not _fractions(cells)
    return looks_like_numbers(cells, role if role in ("score", "latency") else "cost")


def _find(roles: Roles, taken: set[str], wide: bool) -> None:
    """Fills the candidates of every role that was not given."""
    sheet, candidates = roles.sheet, roles.candidates
    names = [name for name in sheet.names if name and name not in FILE_COLUMNS]
    for role in (role for role in of_names.ORDER if role not in roles.given):
        said = [name for name in names if level(role, name) > 0]
        if role == "query":
            best = _queries(roles, [name for name in said if name not in taken or name in candidates.get("text", ())])
        else:
            best = _strongest(roles, role, [name for name in said if name not in taken])
        if role == "model" and not best and not wide:
            best = _by_file(roles, names)
        if best:
            candidates[role] = best
            taken |= set(best)
    query = candidates.get("query", [])
    alone = len(query) == 1 and _once(sheet, query) and query[0] not in sheet.made
    if alone and "text" not in {*candidates, *roles.given} and of_cells.looks_like_sentences(sheet.cells(query[0])):
        candidates["text"] = query
    if "embedding" not in candidates and "embedding" not in roles.given:
        roles.vectors = of_names.numbered_columns([name for name in names if name not in taken])


def _best(role: str, names: Sequence[str]) -> list[str]:
    """The names that say a role most strongly."""
    most = max((level(role, name) for name in names), default=0)
    return [name for name in names if level(role, name) == most]


def _first_of_each(names: Sequence[str], same: Callable[[str, str], bool]) -> list[str]:
    """The names that are not the same as one before them."""
    return [name for place, name in enumerate(names) if not any(same(name, other) for other in names[:place])]


def _strongest(roles: Roles, role: str, names: Sequence[str]) -> list[str]:
    """The columns whose names say a role most strongly, of those that say it and whose cells can be it."""
    sheet = roles.sheet
    options = _once(sheet, names)
    can = [name for name in options if _fits(role, sheet.cells(name))]
    if not can and role in ("score", "cost"):  # A name that says it exactly: refused with the cell that is wrong.
        can = [name for name in options if level(role, name) == 3 and some_cells(sheet.cells(name))]
    model = _once(sheet, roles.candidates.get("model", []))
    if role == "category":
        # One value for each model, and several in all, say something of the model and not of the query.
        of_models = {name for name in can if len(model) == 1 and roles.different(name, *model) == roles.different(*model)}
        can = [name for name in can if name not in of_models or level(role, name) > 1 or roles.different(name) == 1]
        can = [name for name in can if len(set(map(str, sheet.cells(name)))) > 1] or can
    best = _best(role, can)
    least = max(level(role, best[0]) if best else 0, 1)
    twice = [name for name in names if name not in options and level(role, name) >= least]  # Refused when it is read.
    return twice[:1] or _first_of_each(best, lambda a, b: _same(sheet, a, b, role))


def _by_file(roles: Roles, names: Sequence[str]) -> list[str]:
    """The parts of the paths of several files that may be the models: those whose values have most of the same questions, unless a column looks like it."""
    sheet, text = roles.sheet, roles.candidates.get("text", [])
    there = [column for column in FILE_COLUMNS if column in sheet.names]
    if not there or similar("model", names):
        return []
    ids = _once(sheet, [name for name in names if level("query", name) > 0 and name not in text])
    asked = [name for name in (*text, *ids) if not of_cells.which_empty(sheet.cells(name)).any()][:1]
    shared = {}
    for column in there:
        parts = {word for stem in set(sheet.cells(column)) for word in words(str(stem)) if not word.isdigit()}
        if not parts <= of_names.PARTS:
            pairs = roles.different(column, *asked)
            shared[column] = pairs / (roles.different(column) * roles.different(*asked)) if asked else 0.0
    most = max(shared.values(), default=0.0)
    found = [column for column, share in shared.items() if share > most - 0.02]
    found.sort(key=lambda column: len(max(map(str, sheet.cells(column)), key=len)))
    return _first_of_each(found, lambda a, b: np.array_equal(roles.codes(a), roles.codes(b)))


def _queries(roles: Roles, options: Sequence[str]) -> list[str]:
    """The strongest columns of queries: of several, those that name a query for more than one model alike."""
    sheet, model = roles.sheet, roles.candidates.get("model", [])
    taken = {*model, *roles.candidates.get("score", ())}
    can = [name for name in _once(sheet, options) if name not in taken]
    can = [name for name in can if level("query", name) == 3 or not _fractions(sheet.cells(name))]
    can = [name for name in can if not of_cells.which_empty(sheet.cells(name)).any()] or can
    ids = [name for name in can if name not in roles.candidates.get("text", ())]
    can = ids or can  # Texts count beside the ids in any case.
    if len(model) == 1 and len(can) > 1 and _once(sheet, model):
        can = [name for name in can if roles.different(name, *model) > roles.different(name)] or can
    return _first_of_each(_best("query", can), lambda a, b: np.array_equal(roles.codes(a), roles.codes(b)))


def _fractions(cells: np.ndarray) -> bool:
    """Whether cells are numbers of which some are not whole."""
    try:
        return any(float(cell) % 1 for cell in some_cells(cells))
    except (TypeError, ValueError):
        return False


def _check_header(sheet: Sheet, given: Mapping[str, str]) -> None:
    """Refuses a first line that is data."""
    numbers = [name for name in sheet.names if name.replace(".", "", 1).replace("-", "", 1).replace(",", "", 1).isdigit()]
    if numbers and not given and not any(map(known, sheet.names)) and len(numbers) >= len(sheet.names) / 3:
        raise ValueError(
            f"{sheet.name}, line 1 looks like data and not like names of columns ({some(map(repr, sheet.names), 6)}): add a line of names above it, such "
            "as query_id,model,score,cost"
        )


def _no_log(roles: Roles, scores: Family, found: Sequence[Family], wanted: Sequence[str]) -> str:
    """Why a file is no log, and what would make it one."""
    sheet, candidates = roles.sheet, roles.candidates
    names = [name for name in sheet.names if name not in FILE_COLUMNS]
    has = f"It has {some(map(repr, names))}."
    plains = set(map(of_names.plain, names))
    if any(pair <= plains for pair in ({"modela", "modelb"}, {"generator1", "generator2"}, {"model1", "model2"})):
        return f"{sheet.name} has pairwise preferences (which of two answers is better), which are no scores of single answers: have each answer scored. {has}"
    free = [name for name in names if not any(name in of for of in candidates.values())]
    unknown = [
        name
        for name in _once(sheet, free)
        if not known(name) and "tokens" not in words(name) and _like_scores(sheet.cells(name))
    ]
    lacking = [role for role in ("query", "model", "score") if not candidates.get(role)]
    proposals = {role: similar(role, free) for role in lacking}
    if lacking == ["score"]:  # By what is in them.
        proposals["score"] = proposals["score"] or [name for name in unknown if can_be("score", name)]
    likely = "; ".join(
        f"{' or '.join(map(repr, of[:3]))} looks like the {role}: {option('--column', f'{role}={of[0]}')}"
        for role, of in proposals.items()
        if of
    )
    lower = list(filter(opposite, unknown)) if lacking == ["score"] else []
    if lower and not likely:
        called = option("--column", f"score={lower[0]}")
        likely = f"{some(map(repr, lower), 3)} may be better the lower it is: then add a column of 1 - it; if it is not, name it ({called})"
    strange = [name for name in free if level("score", name) > 0 and not looks_like_numbers(sheet.cells(name), "score")]
    if lacking == ["score"] and not likely and strange:
        likely = f"{strange[0]!r} has {of_cells.examples(sheet.cells(strange[0]))}, which are no verdicts that are known: write 1 and 0"
    more = f"{likely}. {has}" if likely else has
    doubtful = (of for of in found if of.role == "score" and of.statistics and len(of.columns) + len(of.statistics) > 1)
    if (of := next(doubtful, None)) and not candidates.get("model"):
        shape, called = of.shape.replace("{}", "<model>"), [*of.columns, *of.statistics]
        priced = candidates.get("cost") or any(of.role in ("cost", "price_in") for of in found)
        costs = (
            ""
            if priced
            else f", and their costs ({option('--cost', f'{called[0]}=VALUE')} ... or {option('--price', f'{called[0]}=IN:OUT')} ...)"
        )
        return (
            f"{sheet.name} has columns {shape} for {', '.join(called)}, some called like statistics ({some(map(repr, of.statistics))}): if they are models, say so "
            f"(models={called}, on the command line {option('--models', ','.join(called))}){costs}. {more}"
        )
    if len(scores.columns) == 1 and not candidates.get("score") and not candidates.get("model"):
        return f"{sheet.name} has scores of one model, {next(iter(scores.columns))!r}: there is nothing to choose; add the answers of another. {has}"
    if candidates.get("model"):
        model = candidates["model"][0]
        different = len(set(map(str, sheet.cells(model))))
        if lacking == ["query"] or ("query" in lacking and different == sheet.num_rows):
            return (
                f"{sheet.name} has models (column {model!r}, {different} different in {sheet.num_rows} rows) but no column of queries: a summary of "
                f"models is no log of their answers to single queries; if there is one, name it ({_NAME.replace('ROLE', 'query')}). {more}"
            )
        said = " and ".join(f"a column for the {role}" for role in lacking)
        return f"{sheet.name} has a column of models, {model!r}, but lacks {said}: name it ({_NAME}). {more}"
    others = {column for of in found if of.role != "score" and len(of.columns) > 1 for column in of.columns.values()}
    could = [name for name in unknown if name not in others]
    named = [model for model in wanted if model in could]
    if named:
        absent = [repr(model) for model in wanted if model not in names]
        why = f"{some(absent)} is no column" if absent else f"only {named[0]!r} is named, and there is nothing to choose"
        return f"{sheet.name}: columns called like the models have their scores, but {why}. {has}"
    pair = _two_shapes(sheet, free)
    if pair is not None and not candidates.get("score"):
        first, second, models = pair
        return (
            f"{sheet.name} has two columns for each of {some(models)}, {first!r} and {second!r}: say which are the scores and which the costs "
            f"({option('--column', f'score={first}')} {option('--column', f'cost={second}')}). {has}"
        )
    if len(could) > 1 and not proposals["model"] and not candidates.get("score"):
        example = " ".join(option("--cost", f"{name}=VALUE") for name in could[:3])
        return (
            f"{sheet.name} has no columns of costs; {some(map(repr, could), 6)} could be scores of models: give the cost per query of each "
            f"(costs={{...}}, on the command line {example}), or their prices ({option('--price', f'{could[0]}=IN:OUT')}). {more}"
        )
    shapes = "score_<model> and cost_<model>, <model> and <model>|total_cost, or <model>_score and <model>_cost"
    return f"{sheet.name} has neither a column of models (model, llm, ...) nor columns of scores per model ({shapes}): name the columns ({_NAME}). {more}"


def _two_shapes(sheet: Sheet, free: Sequence[str]) -> tuple[str, str, list[str]] | None:
    """Two shapes of names of numeric columns that the same models have, the likelier scores first, and the models."""
    shapes: dict[str, dict[str, str]] = {}
    for name in _once(sheet, free):
        marks = [*re.finditer(r"[\s_\-.|:/]+", name)] if looks_like_numbers(sheet.cells(name)) else []
        starts, ends = [0, *(mark.end() for mark in marks)], [*(mark.start() for mark in marks), len(name)]
        for start, end in product(starts, ends) if marks else ():
            if start < end and end - start < len(name):
                shapes.setdefault(f"{name[:start]}*{name[end:]}", {})[name[start:end]] = name
    alike: dict[frozenset[str], list[str]] = {}
    for shape, columns in shapes.items():
        alike.setdefault(frozenset(columns), []).append(shape)
    pairs = [of[:2] for models, of in alike.items() if len(models) > 1 and len(of) > 1]
    if not pairs:
        return None

    def grades(shape: str) -> float:  # The share of whole and half numbers.
        numbers = [number_of(cell) for name in shapes[shape].values() for cell in some_cells(sheet.cells(name))]
        return float(np.mean(np.array(numbers) * 2 % 1 == 0))

    first, second = sorted(max(pairs, key=lambda pair: len(shapes[pair[0]])), key=grades, reverse=True)
    return first, second, list(shapes[first])


def _like_scores(cells: np.ndarray) -> bool:
    """Whether cells are numbers or verdicts in [0, 1], or whole or half grades up to 100."""
    if not looks_like_numbers(cells, "score"):
        return False
    values = np.array([number for number in map(number_of, some_cells(cells)) if number == number])
    return bool((values >= 0).all() and (values.max() <= 1 or (values.max() <= 100 and (values * 2 % 1 == 0).all())))


def unused(roles: Roles) -> str:
    """The line about columns that were not used, empty if all were."""
    left = [name for name in roles.sheet.names if name and name not in roles.used and name not in FILE_COLUMNS]
    return f"not used: {some(map(repr, left), 30)}" if left else ""


def is_repeat(name: str) -> bool:
    """Whether a column numbers repeated answers."""
    parts = set(words(name))
    answers = parts & {"answer", "completion", "output"} and parts & {"idx", "index", "id", "number"}
    return bool((of_names.REPEATS & parts and not {"date", "time"} & parts) or answers)
