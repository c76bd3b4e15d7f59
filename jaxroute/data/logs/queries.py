"""The roles of a file's columns, and what it says about queries alone: text, category, date and features."""

import fnmatch
import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jaxroute.core import checks
from jaxroute.data.logs.answers import Answers, say
from jaxroute.data.logs.columns import candidates, embedding_columns, plain
from jaxroute.data.logs.reading import Sheet
from jaxroute.data.logs.values import (
    empty,
    looks_like_numbers,
    looks_like_text,
    read_dates,
    read_numbers,
)


def find_roles(sheet: Sheet, given: Mapping[str, str]) -> dict[str, str]:
    """The column of each role: what was given, or else what names and contents say."""
    found = {role: column for role, column in given.items() if "*" not in column}
    names = [name for name in sheet.names if name]
    taken = set(found.values())

    def best(role: str, fits: Callable[[np.ndarray], bool] | None = None, also: Sequence[str] = ()) -> None:
        if role in given:
            return
        for name in candidates(role, names):
            if (name not in taken or name in also) and (fits is None or names.count(name) > 1 or fits(sheet.cells(name))):
                found[role] = name
                taken.add(name)
                return

    query = found.get("query", "")
    best("text", looks_like_text, also=[query])  # Where prompts name the queries, they are text all the same.
    if "text" not in found and names.count(query) == 1 and looks_like_text(sheet.cells(query)):
        found["text"] = query
    best("model", lambda cells: not _mostly_fractions(cells))
    best("query", also=[found["text"]] if "text" in found else ())
    best("score", looks_like_numbers)
    best("score")
    for role in ("cost", "tokens_in", "tokens_out", "price_in", "price_out", "prompt_chars", "response_chars"):
        best(role, lambda cells: looks_like_numbers(cells, words=False))
    best("cost")
    best("latency", lambda cells: looks_like_numbers(cells, words=False) or _with_unit(cells))
    best("date", _mostly_dates)
    best("category", lambda cells: not _mostly_fractions(cells))
    best("embedding", _mostly_vectors)
    if "query" in found and found["query"] == found.get("category"):
        del found["category"]
    return found


def _mostly_fractions(cells: np.ndarray) -> bool:
    some = [cell for cell in cells[:200] if not empty(cell)]
    try:
        return bool(some) and any(float(cell) % 1 for cell in some)
    except (TypeError, ValueError):
        return False


def _with_unit(cells: np.ndarray) -> bool:
    return any(str(cell).strip().lower().endswith(("ms", "s", "sec")) for cell in cells[:20] if not empty(cell))


def _mostly_dates(cells: np.ndarray) -> bool:
    if cells.dtype.kind == "M":
        return True
    some = [str(cell) for cell in cells[:50] if not empty(cell)]
    return bool(some) and sum(len(text) >= 8 and sum(c.isdigit() for c in text) >= 6 for text in some) > len(some) / 2


def _mostly_vectors(cells: np.ndarray) -> bool:
    first = next((cell for cell in cells if not empty(cell)), None)
    return isinstance(first, (list, tuple, np.ndarray)) or (isinstance(first, str) and first.strip().startswith("["))


def of_queries(sheet: Sheet, roles: Mapping[str, str], rows: np.ndarray, answers: Answers) -> None:
    """What a file says about queries alone: text, category, date and features."""
    said = answers.said
    if "text" in roles:
        cells = sheet.cells(roles["text"])[rows]
        lacking = sum(empty(cell) for cell in cells)
        answers.text = np.array(["" if empty(cell) else str(cell) for cell in cells], dtype=object)
        answers.text_from = roles["text"]
        say(said, "text", roles["text"], f"{lacking} empty" if lacking else "")
    if "category" in roles:
        cells = sheet.cells(roles["category"])[rows]
        answers.labels = np.array(["unknown" if empty(cell) else str(cell).strip() for cell in cells], dtype=object)
        say(said, "category", roles["category"], f"{len(set(answers.labels.tolist()))} different")
    if "date" in roles:
        try:
            answers.dates = read_dates(sheet, roles["date"])[rows]
            say(said, "date", roles["date"])
        except ValueError as error:
            said.append(f"date: not used, as {error}")
    answers.used |= {roles[role] for role in ("query", "text", "category", "date", "embedding") if role in roles}
    columns: list[str] = []
    if "*" in roles.get("embedding", ""):
        columns = fnmatch.filter(sheet.names, roles["embedding"].replace("[", "[[]"))
    elif "embedding" not in roles:
        columns = embedding_columns([name for name in sheet.names if name not in answers.used])
    if columns:
        answers.numbers = np.stack([_filled(sheet, name, rows) for name in columns], axis=1)
        answers.numbers_from = f"columns {columns[0]} to {columns[-1]}"
        answers.used |= set(columns)
    elif "embedding" in roles:
        answers.numbers = _vectors(sheet, roles["embedding"], rows)
        answers.numbers_from = f"column {roles['embedding']!r}"
    _signals(sheet, rows, answers)


def _signals(sheet: Sheet, rows: np.ndarray, answers: Answers) -> None:
    """What models say of their own answers: a column `<model>_confidence`. It is there with the answer, and no feature of the query."""
    called = {plain(model): place for place, model in enumerate(answers.models)}
    found = {}
    for name in sheet.names:
        model = plain(name).replace("confidence", "")
        if name not in answers.used and model != plain(name) and model in called and looks_like_numbers(sheet.cells(name)):
            found[name] = called[model]
    if not found:
        return
    answers.signals = np.zeros(answers.scores.shape)
    for name, place in found.items():
        answers.signals[:, place] = _filled(sheet, name, rows)
    answers.used |= set(found)
    names = ", ".join(map(repr, found))
    answers.said.append(
        f"confidence: {names} (what a model says of its answer, known once that is there: no feature of the query)"
    )


def _filled(sheet: Sheet, column: str, rows: np.ndarray) -> np.ndarray:
    values = read_numbers(sheet, column, "feature").values[rows]
    if np.isnan(values).any():
        raise ValueError(
            f"{sheet.place(int(rows[np.argmax(np.isnan(values))]))}, column {column!r} is empty; a feature must be there for every query"
        )
    return values


def _vectors(sheet: Sheet, column: str, rows: np.ndarray) -> np.ndarray:
    found: list[np.ndarray] = []
    for row in rows:
        cell, where = sheet.cells(column)[row], f"{sheet.place(int(row))}, column {column!r}"
        try:
            vector = np.asarray(json.loads(cell) if isinstance(cell, str) else cell, np.float64)
        except (TypeError, ValueError):
            vector = np.array(np.nan)
        if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
            raise ValueError(
                f"{where} is {checks.show(cell)}; an embedding must be a list of finite numbers such as [0.1, -0.2]"
            )
        if found and len(vector) != len(found[0]):
            raise ValueError(
                f"{where} has {len(vector)} numbers, but the first has {len(found[0])}: embeddings must be equally long"
            )
        found.append(vector)
    return np.stack(found)
