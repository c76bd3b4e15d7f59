"""The role of each column of a log, from its name and its content."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ..files import join_names, option
from .cells import examples, first_cells, fits_role, has_fractions, looks_like_sentences, read_numbers, which_empty
from .families import Family, find_families
from .files import FILE_COLUMNS
from .names import SEARCH_ORDER, UNIT_KINDS, WORDS, has_role, match_level, numbered_columns, similar_names, title, words
from .not_a_log import explain_not_a_log
from .sheet import Sheet
from .text import is_digits


@dataclass
class Roles:
    """Roles of the columns.

    Attributes:
      sheet: the open file.
      given: columns by role that the caller or the format named.
      candidates: columns by role with the most evidence; several where nothing decides between them.
      models: models of a table with a row per query, empty for one with a row per query and model.
      families: columns of each model by role, in a table with a row per query.
      vectors: columns of numbers that are features of queries.
      used: columns that were read.
      notes: lines for the user, one for each role.
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
        """Returns the column of a role, None without one; refuses several columns if nothing decides between them."""
        names = self.candidates.get(role, [])
        if len(names) > 1:
            raise _undecided(self.sheet, role, names, f", or --column {role}= for none")
        self.used |= set(names)
        return names[0] if names else None

    def note(self, role: str, column: str, *more: str) -> None:
        """Adds the line of a role: its column, examples and conversions."""
        shown = examples(self.sheet.cells(column))
        details = "; ".join(part for part in (f"as in {shown}" if shown else "", *more) if part)
        self.notes.append(f"{title(role)}: column {column!r} ({details})")

    def codes(self, column: str) -> np.ndarray:
        """Returns `[R]` numbers of the different cells of a column, read as texts."""
        if column not in self._codes:
            texts = [str(cell).strip() for cell in self.sheet.cells(column)]
            self._codes[column] = pd.factorize(np.array(texts, object))[0]
        return self._codes[column]

    def num_different(self, *columns: str) -> int:
        """Returns the number of different rows of some columns."""
        return len(pd.DataFrame({column: self.codes(column) for column in columns}).drop_duplicates())

    def unused(self) -> str:
        """Returns the line about columns that were not used, empty if all were."""
        left = [name for name in self.sheet.names if name and name not in self.used and name not in FILE_COLUMNS]
        return f"not used: {join_names(map(repr, left), 30)}" if left else ""


def _undecided(sheet: Sheet, role: str, names: Sequence[str], none: str = "") -> ValueError:
    """Error about several columns, or columns per model, that could have the same role."""
    give = f"(columns={{{role!r}: {names[0]!r}}}, on the command line {option('--column', f'{role}={names[0]}')}{none})"
    which = f"{' and '.join(map(repr, names))} could both be the {title(role)}, and they differ"
    return ValueError(f"{sheet.name}: {which}: say which {give}")


def assign_roles(sheet: Sheet, given: Mapping[str, str], wanted: Sequence[str] = (), scored: bool = True) -> Roles:
    """Assigns a role to each column: the one that its name matches best, if its cells fit.

    Columns that the caller named, by role, are `given`; models that the caller named are `wanted`. A file that is not a log is refused.
    """
    given = {**sheet.given, **given}
    _check_header(sheet, given)
    single = {role: column for role, column in given.items() if "*" not in column}
    roles = Roles(sheet, given, {role: [column] if column else [] for role, column in single.items()})
    families = _fitting_families(sheet, given, wanted)
    options = _best_score_families(families)
    scores = options[0] if options else Family("score", "{}", 0.0)
    has_families = len(scores.columns) > 1
    others = [family for family in families if family.role != "score"] if has_families else []
    shared = {family.role for family in others if len(family.of_models(scores.columns).columns) > 1}
    _find_candidates(roles, set(single.values()), has_families)
    query, model, score = (bool(roles.candidates.get(role)) for role in ("query", "model", "score"))
    is_long = query and model and score and "*" not in given.get("score", "")
    # Several scores of each answer, whose model is in a column.
    several = model and scores.level < 4 and (bool(given.get("model")) or not ("cost" in shared or (query and shared)))
    if has_families and not several and not (is_long and ("cost" not in shared or given.get("model"))):
        _refuse_different(sheet, options)
        return _assign_families(roles, families, scores)
    if not is_long and (scored or not (query and model)):
        raise ValueError(explain_not_a_log(sheet, roles.candidates, scores, families, wanted))
    return roles


def _check_header(sheet: Sheet, given: Mapping[str, str]) -> None:
    numbers = [name for name in sheet.names if is_digits(name)]
    if numbers and not given and not any(map(has_role, sheet.names)) and len(numbers) >= len(sheet.names) / 3:
        looks = f"line 1 looks like data and not like names of columns ({join_names(map(repr, sheet.names), 6)})"
        raise ValueError(f"{sheet.name}, {looks}: add a line of names above it, such as query_id,model,score,cost")


def _fitting_families(sheet: Sheet, given: Mapping[str, str], wanted: Sequence[str]) -> list[Family]:
    """Families without the columns whose cells cannot have their role."""
    found, families = [], find_families([name for name in sheet.names if name not in FILE_COLUMNS], given, wanted)
    for family in families:
        if "*" not in given.get(family.role, "") and family.role != "response":
            cells = {m: sheet.cells(column) for m, column in family.columns.items() if sheet.names.count(column) == 1}
            unfit = {model for model, column in cells.items() if first_cells(column) and not fits_role(family.role, column)}
            if (
                len(family.columns) - len(unfit) > 1
            ):  # Columns of a model with other families are refused when they are read.
                others = [other for other in families if other.role != family.role and len(other.columns) > 1]
                unfit -= {model for other in others for model in other.columns}
            family = family.of_models(family.columns.keys() - unfit)
        if family.columns or family.statistics:
            found.append(family)
    return found


def _best_score_families(families: Sequence[Family]) -> list[Family]:
    """Families of scores with the most evidence; several where nothing decides, one of a single model if there is no other."""
    others = {model for family in families if family.role != "score" for model in family.columns}

    def evidence(family: Family) -> tuple[float, ...]:
        shared, number = len(family.columns.keys() & others), len(family.columns)
        return (family.level == 4.0, shared, family.level, number if shared or family.level >= 2 else 0)

    scores = [family for family in families if family.role == "score"]
    options = [family for family in scores if len(family.columns) > 1] or [f for f in scores if f.level >= 2][:1]
    most = max(map(evidence, options), default=())
    return [family for family in options if evidence(family) == most]


def _assign_families(roles: Roles, families: list[Family], scores: Family) -> Roles:
    """Completes the roles of a table with a row per query."""
    sheet = roles.sheet
    roles.models = sorted(scores.columns, key=lambda model: sheet.names.index(scores.columns[model]))
    roles.families["score"] = scores
    if scores.statistics:
        left = f"left out: the columns {', '.join(map(scores.shown, scores.statistics))}, called like statistics"
        roles.notes.append(f"{left}; if they are models, name all models (models=[...], --models A,B)")
    families = [family.of_models(scores.columns) for family in families]
    for role in dict.fromkeys(family.role for family in families if family.role != "score"):
        options = [family for family in families if family.role == role and family.columns]
        options = [family for family in options if not {*family.columns.values()} & {*scores.columns.values()}]
        most = max(((len(family.columns), family.level) for family in options), default=None)
        best = [family for family in options if (len(family.columns), family.level) == most]
        if best and role in ("cost", "latency"):
            _refuse_different(sheet, best)
        if best:
            roles.families[role] = best[0]
    of_models = {column for family in families for column in family.columns.values()}
    # A column of the query with one of these roles says nothing about the models.
    dropped = ("model", "score", "response", "latency", "tokens_out", "tokens_reasoning", "confidence", "cost")
    for role, names in [*roles.candidates.items()]:
        roles.candidates[role] = [name for name in names if name not in of_models or roles.given.get(role) == name]
        if role in dropped or not (roles.candidates[role] or role in roles.given):
            del roles.candidates[role]
    return roles


def _refuse_different(sheet: Sheet, options: Sequence[Family]) -> None:
    """Refuses families of the same role with different cells."""
    first, *others = (family.columns for family in options)
    if not all(o.keys() == first.keys() and all(_same_cells(sheet, o[m], first[m]) for m in o) for o in others):
        raise _undecided(sheet, options[0].role, [family.shown("*") for family in options])


def _find_candidates(roles: Roles, taken: set[str], has_families: bool) -> None:
    """Fills the candidates of every role that was not given."""
    sheet, candidates = roles.sheet, roles.candidates
    names = [name for name in sheet.names if name and name not in FILE_COLUMNS]
    for role in (role for role in SEARCH_ORDER if role not in roles.given):
        matching = [name for name in names if match_level(role, name) > 0]
        if role == "query":
            best = _best_queries(roles, [n for n in matching if n not in taken or n in candidates.get("text", ())])
        else:
            best = _best_columns(roles, role, [name for name in matching if name not in taken])
        if role == "model" and not best and not has_families:
            best = _models_in_paths(roles, names)
        if best:
            candidates[role] = best
            taken |= set(best)
    query = candidates.get("query", [])
    alone = len(query) == 1 and sheet.single(query) and query[0] not in sheet.made
    if alone and "text" not in {*candidates, *roles.given} and looks_like_sentences(sheet.cells(query[0])):
        candidates["text"] = query
    if "embedding" not in candidates and "embedding" not in roles.given:
        roles.vectors = numbered_columns([name for name in names if name not in taken])


def _best_columns(roles: Roles, role: str, names: Sequence[str]) -> list[str]:
    """Columns with the best match, of those whose cells fit."""
    sheet = roles.sheet
    options = sheet.single(names)
    fitting = [name for name in options if fits_role(role, sheet.cells(name))]
    if not fitting and role in ("score", "cost"):  # An exact name is refused with the cell that is wrong.
        fitting = [name for name in options if match_level(role, name) == 3 and first_cells(sheet.cells(name))]
    model = sheet.single(roles.candidates.get("model", []))
    if role == "category":
        # One value for each model, and several in all, describe the model and not the query.
        of_models = {n for n in fitting if len(model) == 1 and roles.num_different(n, *model) == roles.num_different(*model)}
        fitting = [n for n in fitting if n not in of_models or match_level(role, n) > 1 or roles.num_different(n) == 1]
        fitting = [name for name in fitting if len(set(map(str, sheet.cells(name)))) > 1] or fitting
    best = _best_match(role, fitting)
    least = max(match_level(role, best[0]) if best else 0, 1)
    repeated = [name for name in names if name not in options and match_level(role, name) >= least]  # Refused when read.
    return repeated[:1] or _first_of_each(best, lambda a, b: _same_cells(sheet, a, b, role))


def _best_queries(roles: Roles, options: Sequence[str]) -> list[str]:
    """Columns of queries with the best match: of several, those in which models have the same values."""
    sheet, model = roles.sheet, roles.candidates.get("model", [])
    taken = {*model, *roles.candidates.get("score", ())}
    fitting = [name for name in sheet.single(options) if name not in taken]
    fitting = [name for name in fitting if match_level("query", name) == 3 or not has_fractions(sheet.cells(name))]
    fitting = [name for name in fitting if not which_empty(sheet.cells(name)).any()] or fitting
    ids = [name for name in fitting if name not in roles.candidates.get("text", ())]
    fitting = ids or fitting  # Texts count beside the ids in any case.
    if len(model) == 1 and len(fitting) > 1 and sheet.single(model):
        fitting = [name for name in fitting if roles.num_different(name, *model) > roles.num_different(name)] or fitting
    return _first_of_each(_best_match("query", fitting), lambda a, b: np.array_equal(roles.codes(a), roles.codes(b)))


def _models_in_paths(roles: Roles, names: Sequence[str]) -> list[str]:
    """Parts of the paths of several files that may be the models: those whose values share most of the questions."""
    sheet, text = roles.sheet, roles.candidates.get("text", [])
    columns = [column for column in FILE_COLUMNS if column in sheet.names]
    if not columns or similar_names("model", names):
        return []
    ids = sheet.single([name for name in names if match_level("query", name) > 0 and name not in text])
    query = [name for name in (*text, *ids) if not which_empty(sheet.cells(name)).any()][:1]
    shares = {}
    for column in columns:
        parts = {word for stem in set(sheet.cells(column)) for word in words(str(stem)) if not word.isdigit()}
        if not parts <= WORDS["parts"]:
            pairs = roles.num_different(column, *query)
            shares[column] = pairs / (roles.num_different(column) * roles.num_different(*query)) if query else 0.0
    most = max(shares.values(), default=0.0)
    found = [column for column, share in shares.items() if share > most - 0.02]
    found.sort(key=lambda column: len(max(map(str, sheet.cells(column)), key=len)))
    return _first_of_each(found, lambda a, b: np.array_equal(roles.codes(a), roles.codes(b)))


def differing_columns(roles: Roles, role: str, column: str) -> list[str]:
    """Returns columns that match a role less than the one that is used, and that have other cells."""
    sheet, taken = roles.sheet, {name for names in roles.candidates.values() for name in names}
    free = [n for n in sheet.single(sheet.names) if n and n not in taken and n not in FILE_COLUMNS]
    weaker = {*similar_names(role, free)} | {name for name in free if match_level(role, name) > 0}
    fitting = [name for name in free if name in weaker and fits_role(role, sheet.cells(name))]
    return [name for name in fitting if not _same_cells(sheet, name, column, role)]


def _best_match(role: str, names: Sequence[str]) -> list[str]:
    most = max((match_level(role, name) for name in names), default=0)
    return [name for name in names if match_level(role, name) == most]


def _first_of_each(names: Sequence[str], same: Callable[[str, str], bool]) -> list[str]:
    """Names that are not the same as an earlier one."""
    return [name for place, name in enumerate(names) if not any(same(name, other) for other in names[:place])]


def _same_cells(sheet: Sheet, a: str, b: str, role: str = "") -> bool:
    """Whether two columns have the same cells, or numbers that are the same in their units."""
    first, second = sheet.cells(a), sheet.cells(b)
    if role in UNIT_KINDS:
        try:
            first, second = (read_numbers(sheet, name, role).values for name in (a, b))
        except ValueError:
            return False
    if first.dtype.kind in "biuf" and second.dtype.kind in "biuf":
        return np.allclose(first.astype(float), second.astype(float), rtol=1e-9, atol=0, equal_nan=True)
    return all(str(x).strip() == str(y).strip() for x, y in zip(first, second, strict=True))
