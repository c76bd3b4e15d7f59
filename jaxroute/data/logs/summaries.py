"""Rows that are means or sums of the others."""

import re

import numpy as np

from .cells import is_empty, number_of
from .names import WORDS, words
from .roles import Roles

_SUMMARY = re.compile(rf"[\W_]*({'|'.join(sorted(WORDS['summaries']))}|all|grand)", re.IGNORECASE)
_BESIDE_SUMMARY = {"all", "grand", "of", "queries", "questions", "models", "rows"}


def refuse_summary(roles: Roles) -> None:
    """Refuses rows of means or sums.

    Their query is a word such as "Total" among ids with digits, or the word is in one of the first columns of the last rows, and in no
    row above. If ids are words, the numbers decide.
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
            cell = f"{sheet.place(rows[0])}, column {column!r} is {cells[rows[0]]!r}"
            raise ValueError(f"{cell}: is the row a summary of the others? delete such rows, or rename their queries")


def _is_summary_word(cell: object) -> bool:
    """Whether a cell is a word such as "Total (n=20)"."""
    if not isinstance(cell, str) or not _SUMMARY.match(cell):
        return False
    parts = set(words(cell.split("(")[0]))
    return bool(parts & (WORDS["summaries"] | {"all"})) and parts <= WORDS["summaries"] | _BESIDE_SUMMARY


def _is_mean(roles: Roles, column: str, row: int) -> bool:
    """Whether the scores and costs of a row are the mean or the sum of the others', of the same model if it has one."""
    sheet, model = roles.sheet, roles.candidates.get("model", [])
    others = roles.codes(column) != roles.codes(column)[row]
    if len(model) == 1 and not is_empty(sheet.cells(model[0])[row]):
        others &= roles.codes(model[0]) == roles.codes(model[0])[row]
    names = [*roles.candidates.get("score", ()), *roles.candidates.get("cost", ())]
    names += [name for role in ("score", "cost") if role in roles.families for name in roles.families[role].columns.values()]
    for name in names if others.any() else ():
        numbers = np.array([number_of(str(cell).strip("$€£")) for cell in sheet.cells(name)])
        values, within = [np.nanmean(numbers[others]), np.nansum(numbers[others])], 0.006 * numbers[others].max()
        if not np.isclose(numbers[row], values, rtol=0.01, atol=within).any():
            return False
    return bool(others.any())
