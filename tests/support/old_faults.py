"""Faults that the reader of logs once had, put back one at a time, to show that the generated files find them."""

import re
from dataclasses import replace

import numpy as np

from jaxroute.data.logs import answers, cells, complete, families, features, log, names, pivot, pricing, roles, scales


def last_candidate(patch):
    """L1: all names of a role count the same, and the last column wins."""
    match_level = roles.match_level
    patch.setattr(roles, "match_level", lambda role, name: float(match_level(role, name) >= 1))

    def column(self, role):
        found = self.candidates.get(role, [])
        self.used |= set(found[-1:])
        return found[-1] if found else None

    patch.setattr(roles.Roles, "column", column)


def one_scale(patch):
    """L3: one scale for all scores of a file."""
    patch.setattr(scales, "_refuse_mixed", lambda *_: None)


def merged_questions(patch):
    """L4: questions with the same id are averaged."""
    patch.setattr(pivot, "_have_several", lambda codes, labels: False)


def no_model_called_max(patch):
    """L5: models whose names are words of statistics are dropped."""

    def find_families(*given):
        found = families.find_families(*given)
        for family in found:
            statistics = names.WORDS["statistics"]
            family.columns = {m: c for m, c in family.columns.items() if names.plain_name(m) not in statistics}
        return found

    patch.setattr(roles, "find_families", find_families)


def raw_features(patch):
    """L6: columns of features stay in their own units."""
    patch.setattr(features, "_from_numbers", lambda numbers, source, _: (numbers.astype(np.float32), source, [], None))


def free_answers(patch):
    """L7: an answer with 0 tokens costs nothing."""
    patch.setattr(pricing, "_lost_usage", lambda values, *tokens: np.zeros(len(next(iter(values.values()))), bool))


def averaged_settings(patch):
    """L8: answers that another column tells apart are averaged."""
    patch.setattr(pivot, "_tells_apart", lambda pairs, values: False)


def no_units(patch):
    """L9: units in names are ignored."""
    patch.setattr(cells, "unit_of", lambda role, name, given: (1.0, None, ""))


def text_with_blanks(patch):
    """L12: text is known by the blanks between words of letters."""

    def looks_like_text(column):
        found = [str(cell) for cell in cells.first_cells(column)]
        return sum(bool(re.search(r"[^\W\d_]+\s+\S", text)) for text in found) > 0.2 * len(found)

    patch.setattr(cells, "looks_like_text", looks_like_text)


def silent_gaps(patch):
    """L18: nothing is said of queries that are left out and not like the others."""
    patch.setattr(pivot, "_unlike_rest", lambda *_: [])


def full_price(patch):
    """L19: cached tokens cost what others do, and reasoning tokens are never added."""
    patch.setattr(pricing, "_cached_cost", lambda found, *_: np.zeros(len(found.row)))
    patch.setattr(pricing, "_are_beside", lambda *_: False)


def split_copies(patch):
    """L20: copies of a prompt are different prompts."""

    def complete_log(*given):
        found = complete.complete_log(*given)
        return replace(found, table=replace(found.table, prompts=None))

    patch.setattr(log, "complete_log", complete_log)


def deaf_roles(patch):
    """L21: texts of answers have no effect."""
    is_needed = answers._is_needed
    patch.setattr(answers, "_is_needed", lambda found, role: not role.startswith("response") and is_needed(found, role))


def dropped_copies(patch):
    """L22: rows that look alike count once."""
    original = log.open_log

    def open_log(*given):
        sheet = original(*given)
        columns = [sheet.cells(name) for name in sheet.names if sheet.names.count(name) == 1]
        first = {}
        for row, key in enumerate(zip(*(map(str, column) for column in columns), strict=True)):
            first.setdefault(key, row)
        sheet.select(np.array(list(first.values())))
        return sheet

    patch.setattr(log, "open_log", open_log)


FAULTS = {
    "L1": last_candidate,
    "L3": one_scale,
    "L4": merged_questions,
    "L5": no_model_called_max,
    "L6": raw_features,
    "L7": free_answers,
    "L8": averaged_settings,
    "L9": no_units,
    "L12": text_with_blanks,
    "L18": silent_gaps,
    "L19": full_price,
    "L20": split_copies,
    "L21": deaf_roles,
    "L22": dropped_copies,
}
