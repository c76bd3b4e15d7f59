"""Finds the role of each column of a log, from its name and content, or the reason why a file is not a log."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ..files import join_names, option
from .cells import are_sentences, examples, first_cells, fits_role, has_fractions, number_of, read_numbers, which_empty
from .names import (
    PER_MODEL,
    SEARCH_ORDER,
    UNIT_KINDS,
    WORDS,
    Family,
    can_be,
    find_families,
    has_role,
    lower_is_better,
    match_level,
    numbered_columns,
    plain_name,
    similar_names,
    title,
    words,
)
from .opening import FILE_COLUMNS, is_digits
from .sheets import Sheet

ROW = "row of the file"  # Column of ids in a served log without ids.
_PAIRS = ({"modela", "modelb"}, {"generator1", "generator2"}, {"model1", "model2"})  # Columns of pairwise preferences.
_SUMMARY = re.compile(rf"[\W_]*({'|'.join(sorted(WORDS['summaries']))}|all|grand)", re.IGNORECASE)
# In a table with a row per query, a single column with one of these roles says nothing about the models.
_OF_ONE_MODEL = {"model", *PER_MODEL} - {"tokens_in", "tokens_cached", "price_in", "price_out", "price_cached"}
_BESIDE_SUMMARY = {"all", "grand", "of", "queries", "questions", "models", "rows"}  # Possible beside "total".


@dataclass
class Roles:
    """Roles of the columns of a sheet: the meaning of each column, such as "query", "model" or "score"."""

    sheet: Sheet  #: The open file.
    given: dict[str, str]  #: Columns by role that the caller or the format named.
    candidates: dict[str, list[str]]  #: Columns by role with the most evidence; several if nothing decides between them.
    models: list[str] = field(default_factory=list)  #: Models, if the table has a row per query; else empty.
    families: dict[str, Family] = field(default_factory=dict)  #: Columns of each model by role, if it has a row per query.
    vectors: list[str] = field(default_factory=list)  #: Columns of numbers that are features of queries.
    used: set[str] = field(default_factory=set)  #: Columns that were read.
    _codes: dict[str, np.ndarray] = field(default_factory=dict)

    def column(self, role: str) -> str | None:
        """Returns the name of the column of a role, None if there is none. Raises an error if several columns fit equally well."""
        names = self.candidates.get(role, [])
        if len(names) > 1:
            raise _undecided(self.sheet, role, names, f", or --column {role}= for none")
        self.used |= set(names)
        return names[0] if names else None

    def note(self, role: str, column: str, *more: str) -> None:
        """Adds a line to the report for the user: role, column, examples of cells, and remarks `more`."""
        shown = examples(self.sheet.cells(column))
        details = "; ".join(part for part in (f"as in {shown}" if shown else "", *more) if part)
        self.sheet.notes.append(f"{title(role)}: column {column!r} ({details})")

    def codes(self, column: str) -> np.ndarray:
        """Returns an integer for each cell of a column, which is equal for cells with equal texts."""
        if column not in self._codes:
            texts = [str(cell).strip() for cell in self.sheet.cells(column)]
            self._codes[column] = pd.factorize(np.array(texts, object))[0]
        return self._codes[column]

    def num_different(self, *columns: str) -> int:
        return len(pd.DataFrame({column: self.codes(column) for column in columns}).drop_duplicates())

    def taken(self) -> set[str]:
        return {column for columns in self.candidates.values() for column in columns}


def _undecided(sheet: Sheet, role: str, names: Sequence[str], none: str = "") -> ValueError:
    """Returns the error that several columns (`names`) fit a role equally well. `none` is a hint on how to choose no column; it may be empty."""
    both = " and ".join(map(repr, names))
    hint = option("--column", f"{role}={names[0]}")
    return ValueError(f"{sheet.name}: {both} could both be the {title(role)}, and they differ: specify one ({hint}{none})")


def assign_roles(
    sheet: Sheet, given: Mapping[str, str], named: Sequence[str] = (), scored: bool = True, served: bool = False
) -> Roles:
    """Assigns to each column the role that its name matches best, if its cells fit. Raises `ValueError` if the file is not a log.

    `given` has the columns, by role, and `named` the models that the caller named; both may be empty. With `scored=False`, a log may lack scores.
    In a log that is `served`, or has propensities, each row is a query if no column has ids.
    """
    given = {**sheet.given, **given}
    numbers = [name for name in sheet.names if is_digits(name)]
    if numbers and not given and not any(map(has_role, sheet.names)) and len(numbers) >= len(sheet.names) / 3:
        names = f"names of columns ({join_names(map(repr, sheet.names), 6)})"
        hint = "add a line of names above it, such as query_id,model,score,cost"
        raise ValueError(f"{sheet.name}, line 1 looks like data and not like {names}: {hint}")
    single = {role: column for role, column in given.items() if "*" not in column}
    roles = Roles(sheet, given, {role: [column] if column else [] for role, column in single.items()})
    families = _fitting_families(sheet, given, named)
    options = _best_score_families(families)
    scores = options[0] if options else Family("score", "{}", 0.0)
    has_families = len(scores.columns) > 1
    shared = {f.role for f in families if f.role != "score" and len(f.of_models(scores.columns).columns) > 1}
    _find_candidates(roles, set(single.values()), has_families)
    if (served or roles.candidates.get("propensity")) and not has_families:
        ids = roles.candidates.get("query", [])
        if "query" not in single and (not ids or ids == roles.candidates.get("text")):
            sheet.put(ROW, np.arange(sheet.num_rows))
            roles.candidates["query"] = [ROW]
    query, model, score = (bool(roles.candidates.get(role)) for role in ("query", "model", "score"))
    is_long = query and model and score and "*" not in given.get("score", "")
    # Each answer has several scores, and its model is in a column.
    several = model and scores.level < 4 and (bool(given.get("model")) or not ("cost" in shared or (query and shared)))
    if has_families and not several and not (is_long and ("cost" not in shared or given.get("model"))):
        _refuse_different(sheet, options)
        return _assign_families(roles, families, scores)
    if not is_long and (scored or not (query and model)):
        raise ValueError(_explain_not_a_log(roles, scores, families, named))
    return roles


def _fitting_families(sheet: Sheet, given: Mapping[str, str], named: Sequence[str]) -> list[Family]:
    """Returns the families of `find_families`, groups of columns of one role with a column per model, without columns whose cells do not fit it."""
    found, families = [], find_families([name for name in sheet.names if name not in FILE_COLUMNS], given, named)
    for family in families:
        if "*" not in given.get(family.role, "") and family.role != "response":
            cells = {m: sheet.cells(column) for m, column in family.columns.items() if sheet.names.count(column) == 1}
            unfit = {model for model, column in cells.items() if first_cells(column) and not fits_role(family.role, column)}
            if len(family.columns) - len(unfit) > 1:
                # Columns of a model with other families are refused when they are read.
                others = [other for other in families if other.role != family.role and len(other.columns) > 1]
                unfit -= {model for other in others for model in other.columns}
            family = family.of_models(family.columns.keys() - unfit)
        if family.columns or family.statistics:
            found.append(family)
    return found


def _best_score_families(families: Sequence[Family]) -> list[Family]:
    """Returns the likeliest groups of score columns, several if equal: the caller's, else the group with most models that have other columns, too."""
    others = {model for family in families if family.role != "score" for model in family.columns}

    def evidence(family: Family) -> tuple[float, ...]:
        shared, number = len(family.columns.keys() & others), len(family.columns)
        return (family.level == 4.0, shared, family.level, number if shared or family.level >= 2 else 0)

    scores = [family for family in families if family.role == "score"]
    options = [family for family in scores if len(family.columns) > 1] or [f for f in scores if f.level >= 2][:1]
    most = max(map(evidence, options), default=())
    return [family for family in options if evidence(family) == most]


def _assign_families(roles: Roles, families: list[Family], scores: Family) -> Roles:
    """Adds to `roles` the models of `scores`, the chosen family of score columns, and for each other role the best of `families`; returns `roles`."""
    sheet = roles.sheet
    roles.models = sorted(scores.columns, key=lambda model: sheet.names.index(scores.columns[model]))
    roles.families["score"] = scores
    if scores.statistics:
        columns = f"left out: the columns {', '.join(map(scores.shown, scores.statistics))}, called like statistics"
        sheet.notes.append(f"{columns}; if they are models, name all models (--models A,B)")
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
    for role, names in [*roles.candidates.items()]:
        roles.candidates[role] = [name for name in names if name not in of_models or roles.given.get(role) == name]
        if role in _OF_ONE_MODEL or not (roles.candidates[role] or role in roles.given):
            del roles.candidates[role]
    return roles


def _refuse_different(sheet: Sheet, options: Sequence[Family]) -> None:
    """Raises an error if `options`, groups of columns with the same role, have different cells, since it is unclear which group counts."""
    first, *others = (family.columns for family in options)
    if not all(o.keys() == first.keys() and all(_same_cells(sheet, o[m], first[m]) for m in o) for o in others):
        raise _undecided(sheet, options[0].role, [family.shown("*") for family in options])


def _find_candidates(roles: Roles, taken: set[str], has_families: bool) -> None:
    """Stores in `roles.candidates` the best columns for each role that is not in `roles.given`, and adds them to `taken`, the columns in use.

    Without a column of models, names of files may be the models, unless each model has separate columns (`has_families`).
    """
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
    is_single = len(query) == 1 and sheet.single(query) and query[0] not in sheet.made
    if is_single and "text" not in {*candidates, *roles.given} and are_sentences(sheet.cells(query[0])):
        candidates["text"] = query
    if "embedding" not in candidates and "embedding" not in roles.given:
        roles.vectors = numbered_columns([name for name in names if name not in taken])


def _best_columns(roles: Roles, role: str, names: Sequence[str]) -> list[str]:
    """Returns those columns among `names` that match a role best and whose cells fit it; of columns with equal cells, only the first."""
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
    best = best_match(role, fitting)
    least = max(match_level(role, best[0]) if best else 0, 1)
    repeated = [name for name in names if name not in options and match_level(role, name) >= least]  # Refused later.
    return repeated[:1] or _first_of_each(best, lambda a, b: _same_cells(sheet, a, b, role))


def _best_queries(roles: Roles, options: Sequence[str]) -> list[str]:
    """Returns the columns among `options` that match the role "query" best; among several, those whose values recur for different models."""
    sheet, model = roles.sheet, roles.candidates.get("model", [])
    taken = {*model, *roles.candidates.get("score", ())}
    fitting = [name for name in sheet.single(options) if name not in taken]
    fitting = [name for name in fitting if match_level("query", name) == 3 or not has_fractions(sheet.cells(name))]
    fitting = [name for name in fitting if not which_empty(sheet.cells(name)).any()] or fitting
    fitting = [name for name in fitting if name not in roles.candidates.get("text", ())] or fitting  # Texts count anyway.
    if len(model) == 1 and len(fitting) > 1 and sheet.single(model):
        fitting = [name for name in fitting if roles.num_different(name, *model) > roles.num_different(name)] or fitting
    return _first_of_each(best_match("query", fitting), lambda a, b: np.array_equal(roles.codes(a), roles.codes(b)))


def _models_in_paths(roles: Roles, names: Sequence[str]) -> list[str]:
    """Returns columns of file or folder names that may be the models, because the files or folders contain mostly the same questions."""
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
    """Returns columns without a role that the user may have meant for `role`: they match it less well than `column` and have other cells."""
    sheet, taken = roles.sheet, roles.taken()
    free = [n for n in sheet.single(sheet.names) if n and n not in taken and n not in FILE_COLUMNS]
    weaker = {*similar_names(role, free)} | {name for name in free if match_level(role, name) > 0}
    return [n for n in free if n in weaker and fits_role(role, sheet.cells(n)) and not _same_cells(sheet, n, column, role)]


def best_match(role: str, names: Sequence[str]) -> list[str]:
    most = max((match_level(role, name) for name in names), default=0)
    return [name for name in names if match_level(role, name) == most > 0]


def _first_of_each(names: Sequence[str], same: Callable[[str, str], bool]) -> list[str]:
    """Returns `names` without those that equal an earlier one; `same(name, earlier)` compares two."""
    return [name for place, name in enumerate(names) if not any(same(name, other) for other in names[:place])]


def _same_cells(sheet: Sheet, a: str, b: str, role: str = "") -> bool:
    """Whether columns `a` and `b` of a sheet have equal cells or, for a `role` with units such as "cost", equal numbers in its standard unit."""
    first, second = sheet.cells(a), sheet.cells(b)
    if role in UNIT_KINDS:
        try:
            first, second = (read_numbers(sheet, name, role).values for name in (a, b))
        except ValueError:
            return False
    if first.dtype.kind in "biuf" and second.dtype.kind in "biuf":
        return np.allclose(first.astype(float), second.astype(float), rtol=1e-9, atol=0, equal_nan=True)
    return all(str(x).strip() == str(y).strip() for x, y in zip(first, second, strict=True))


def refuse_summary(roles: Roles) -> None:
    """Raises `ValueError` if a log has rows that summarise other rows, such as a line of means at the end.

    A summary has a word such as "Total" as its query id. If most other ids are words, too, its numbers must also be means or sums of other rows.
    One of the last three rows is a summary, too, if a word such as "Total" is in one of its first columns and in no row above.
    """
    sheet, size, queries = roles.sheet, roles.sheet.num_rows, roles.candidates.get("query", [])
    texts = {*roles.candidates.get("text", ())} - {*queries} if queries else set()
    excluded = {roles.given.get("query"), *roles.candidates.get("model", ()), *texts}
    for column in dict.fromkeys([*sheet.names[:3], *queries, *roles.candidates.get("category", ())]):
        if sheet.names.count(column) > 1 or column in excluded:
            continue
        cells = sheet.cells(column)
        rows = [row for row in range(max(0, size - 3), size) if _is_summary_word(cells[row])]
        rows = [row for row in rows if not any(cell == cells[row] for cell in cells[: size - 3])]
        if column in queries:
            first = np.unique(roles.codes(column), return_index=True)[1]
            rows = [row for row in first if _is_summary_word(cells[row])]
            numbered = sum(any(letter.isdigit() for letter in str(cell)) for cell in cells[first]) if rows else 0
            if numbered <= (len(first) - len(rows)) / 2:
                rows = [row for row in rows if _is_mean(roles, column, row)]
        if rows:
            raise sheet.cell_error(rows[0], column, ": is the row a summary of the others? delete it, or rename its query")


def _is_summary_word(cell: object) -> bool:
    """Whether a cell is a word for a mean or a sum, such as "Total (n=20)"."""
    if not isinstance(cell, str) or not _SUMMARY.match(cell):
        return False
    parts = set(words(cell.split("(")[0]))
    return bool(parts & (WORDS["summaries"] | {"all"})) and parts <= WORDS["summaries"] | _BESIDE_SUMMARY


def _is_mean(roles: Roles, column: str, row: int) -> bool:
    """Whether each score and cost of a row is the mean or sum over rows with other ids in `column`, and with the same model if the row names one."""
    sheet, model = roles.sheet, roles.candidates.get("model", [])
    others = roles.codes(column) != roles.codes(column)[row]
    if len(model) == 1 and not which_empty(sheet.cells(model[0]))[row]:
        others &= roles.codes(model[0]) == roles.codes(model[0])[row]
    names = [*roles.candidates.get("score", ()), *roles.candidates.get("cost", ())]
    names += [name for role in ("score", "cost") if role in roles.families for name in roles.families[role].columns.values()]
    for name in names if others.any() else ():
        numbers = np.array([number_of(str(cell).strip("$€£")) for cell in sheet.cells(name)])
        values, within = [np.nanmean(numbers[others]), np.nansum(numbers[others])], 0.006 * numbers[others].max()
        if not np.isclose(numbers[row], values, rtol=0.01, atol=within).any():
            return False
    return bool(others.any())


def _explain_not_a_log(roles: Roles, scores: Family, families: Sequence[Family], named: Sequence[str]) -> str:
    """Returns why a file is no log, and how to make it one. `scores` is the likeliest of `families`; `named` are models that the caller named."""
    sheet, candidates, file = roles.sheet, roles.candidates, roles.sheet.name
    names = [name for name in sheet.names if name not in FILE_COLUMNS]
    has = f"It has {join_names(map(repr, names))}."
    if any(pair <= set(map(plain_name, names)) for pair in _PAIRS):
        return f"{file} has pairwise preferences, which are not scores of single answers: have each answer scored. {has}"
    free = [name for name in names if not any(name in columns for columns in candidates.values())]
    unknown = [n for n in sheet.single(free) if not (has_role(n) or "tokens" in words(n)) and _like_scores(sheet.cells(n))]
    lacking = [role for role in ("query", "model", "score") if not candidates.get(role)]
    likely, likely_models = _likely_columns(sheet, lacking, free, unknown)
    more = f"{likely}. {has}" if likely else has
    doubted = (f for f in families if f.role == "score" and f.statistics and len(f.columns) + len(f.statistics) > 1)
    if not candidates.get("model") and (statistics := next(doubted, None)):
        models = [*statistics.columns, *statistics.statistics]
        priced = candidates.get("cost") or any(family.role in ("cost", "price_in") for family in families)
        cost, price = (option(name, models[0]) for name in ("--cost", "--price"))
        costs = "" if priced else f", and their costs ({cost}=VALUE ... or {price}=IN:OUT ...)"
        called = f"some called like statistics ({join_names(map(repr, statistics.statistics))})"
        hint = f"if they are models, name them ({option('--models', ','.join(models))}){costs}"
        return f"{file} has columns {statistics.shown()} for {join_names(models, 1000)}, {called}: {hint}. {more}"
    if len(scores.columns) == 1 and not candidates.get("score") and not candidates.get("model"):
        model = next(iter(scores.columns))
        return f"{file} has scores of one model, {model!r}: there is nothing to choose; add the answers of another. {has}"
    if candidates.get("model"):
        model = candidates["model"][0]
        different = len(set(map(str, sheet.cells(model))))
        if lacking == ["query"] or ("query" in lacking and different == sheet.num_rows):
            models = f"models (column {model!r}, {different} different in {sheet.num_rows} rows)"
            hint = "a log has answers to single queries; if it has their ids, name the column (--column query=NAME)"
            if different < sheet.num_rows / 2:
                hint += "; if each row is a query that a rule sent to one model, say how it chose (--logging uniform, --logging estimated)"
            return f"{file} has {models} but no column of queries: {hint}. {more}"
        columns = " and ".join(f"a column for the {role}" for role in lacking)
        return f"{file} has a column of models, {model!r}, but lacks {columns}: name it (--column ROLE=NAME). {more}"
    of_others = {c for f in families if f.role != "score" and len(f.columns) > 1 for c in f.columns.values()}
    possible = [name for name in unknown if name not in of_others]
    if scored := [model for model in named if model in possible]:
        absent = [repr(model) for model in named if model not in names]
        one = f"only {scored[0]!r} is named, and there is nothing to choose"
        why = f"{join_names(absent)} is not a column" if absent else one
        return f"{file}: columns called like the models have their scores, but {why}. {has}"
    if len(possible) > 1 and not likely_models and not candidates.get("score"):
        costs = " ".join(option("--cost", f"{name}=VALUE") for name in possible[:3])
        doubt = f"{join_names(map(repr, possible), 6)} could be scores of models"
        hint = f"give the cost of each per query ({costs}) or its price ({option('--price', possible[0])}=IN:OUT)"
        hint += "; if models have columns of several kinds, name these (--column 'score=* NAME')"
        return f"{file} has no columns of costs; {doubt}: {hint}. {more}"
    wide = "score_<model> and cost_<model>, <model> and <model>|total_cost, or <model>_score and <model>_cost"
    lacks = f"neither a column of models (model, llm, ...) nor columns of scores per model ({wide})"
    return f"{file} has {lacks}: name the columns (--column ROLE=NAME). {more}"


def _likely_columns(sheet: Sheet, lacking: list[str], free: list[str], unknown: list[str]) -> tuple[str, list[str]]:
    """Returns a text that proposes columns in `free` for the `lacking` roles, and those for "model" as a list. `unknown`: columns like scores."""
    proposals = {role: similar_names(role, free) for role in lacking}
    only_score = lacking == ["score"]
    if only_score:  # By their content.
        proposals["score"] = proposals["score"] or [name for name in unknown if can_be("score", name)]
    likely = "; ".join(likely_column(role, names) for role, names in proposals.items() if names)
    lower = list(filter(lower_is_better, unknown)) if only_score else []
    if lower and not likely:
        hint = f"add a column of 1 minus it; if it is not, name it ({option('--column', f'score={lower[0]}')})"
        likely = f"{join_names(map(repr, lower), 3)} may be better the lower it is: then {hint}"
    strange = [n for n in free if match_level("score", n) > 0 and not fits_role("score", sheet.cells(n))]
    if only_score and not likely and strange:
        shown = examples(sheet.cells(strange[0]))
        likely = f"{strange[0]!r} has {shown}, which are not known verdicts: write 1 and 0"
    return likely, proposals.get("model", [])


def likely_column(role: str, names: Sequence[str]) -> str:
    """Returns a sentence that proposes the first three of `names` as columns of a role, with the option that chooses the first."""
    return f"{' or '.join(map(repr, names[:3]))} looks like the {role}: {option('--column', f'{role}={names[0]}')}"


def _like_scores(cells: np.ndarray) -> bool:
    """Whether cells look like scores: numbers in [0, 1], judgements such as "correct", or whole and half grades up to 100."""
    if not fits_role("score", cells):
        return False
    values = np.array([number for number in map(number_of, first_cells(cells)) if number == number])
    return bool((values >= 0).all() and (values.max() <= 1 or (values.max() <= 100 and (values * 2 % 1 == 0).all())))
