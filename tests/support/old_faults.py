"""Faults that the reader of logs once had, put back one at a time, to show that the generated files find them."""

import re
from dataclasses import replace

import numpy as np

from jaxroute.data import features
from jaxroute.data.logs import answers, cells, complete, doubts, log, names, roles

_match_level, _find_families, _is_needed = roles.match_level, roles.find_families, answers._is_needed
_complete_log, _open_log = log.complete_log, log.open_log


def last_candidate(self, role):
    found = self.candidates.get(role, [])
    self.used |= set(found[-1:])
    return found[-1] if found else None


def families_without_statistics(*given):
    found = _find_families(*given)
    for family in found:
        statistics = names.WORDS["statistics"]
        family.columns = {m: c for m, c in family.columns.items() if names.plain_name(m) not in statistics}
    return found


def has_blanks(column):
    found = [str(cell) for cell in cells.first_cells(column)]
    return sum(bool(re.search(r"[^\W\d_]+\s+\S", text)) for text in found) > 0.2 * len(found)


def log_without_prompts(*given):
    found = _complete_log(*given)
    return replace(found, table=replace(found.table, prompts=None))


def different_rows(*given):
    sheet = _open_log(*given)
    columns = [sheet.cells(name) for name in sheet.names if sheet.names.count(name) == 1]
    first = {}
    for row, key in enumerate(zip(*(map(str, column) for column in columns), strict=True)):
        first.setdefault(key, row)
    sheet.select(np.array(list(first.values())))
    return sheet


# By the number of the finding: functions, by the object that holds them and their name, and what stands in their place.
FAULTS = {
    "L1": {  # All names of a role count the same, and the last column wins.
        (roles, "match_level"): lambda role, name: float(_match_level(role, name) >= 1),
        (roles.Roles, "column"): last_candidate,
    },
    "L3": {(doubts, "_refuse_mixed"): lambda *_: None},  # One scale for all scores of a file.
    "L4": {(complete, "_have_several"): lambda codes, labels: False},  # Questions with the same id are averaged.
    "L5": {(roles, "find_families"): families_without_statistics},  # Models whose names are words of statistics are dropped.
    # Columns of features stay in their own units.
    "L6": {(features, "_from_numbers"): lambda numbers, source, *_: (numbers.astype(np.float32), source, None)},
    "L7": {
        (answers, "_lost_usage"): lambda values, *_: np.zeros(len(next(iter(values.values()))), bool)
    },  # 0 tokens are free.
    "L8": {(complete, "_distinguishes"): lambda pairs, values: False},  # Answers that a column tells apart are averaged.
    "L9": {(cells, "unit_of"): lambda role, name, given: (1.0, None, "")},  # Units in names are ignored.
    "L12": {(cells, "looks_like_text"): has_blanks},  # Text is known by the blanks between words of letters.
    "L18": {(complete, "_unlike_rest"): lambda *_: []},  # Omitted queries that are not like the others are not mentioned.
    "L19": {  # Cached tokens cost what others do, and reasoning tokens are never added.
        (answers, "_cached_cost"): lambda found, *_: np.zeros(len(found.row)),
        (answers, "_are_beside"): lambda *_: False,
    },
    "L20": {(log, "complete_log"): log_without_prompts},  # Copies of a prompt are different prompts.
    # Texts of answers have no effect.
    "L21": {(answers, "_is_needed"): lambda found, role: not role.startswith("response") and _is_needed(found, role)},
    "L22": {(log, "open_log"): different_rows},  # Rows that look alike count once.
}


def put_back(number, patch):
    """Puts a fault back for the rest of a test."""
    for (owner, name), fault in FAULTS[number].items():
        patch.setattr(owner, name, fault)
