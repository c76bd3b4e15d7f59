"""The models that count."""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxroute.core import checks

from ..files import join_names, option
from .answers import Answers
from .names import similar_names
from .presets import Prices


def choose_models(
    answers: Answers, models: Sequence[str] | None, costs: Mapping[str, float] | None, prices: Prices | None, file: str
) -> None:
    """Selects the models that are named, and that have a cost where costs or prices were given; `file` of prices may have more."""
    name, present = answers.sheet.name, set(answers.models)
    if len(present) < 2:
        others = [c for c in similar_names("model", answers.sheet.names) if answers.roles.num_different(c) > 1]
        more = f", or name their column ({option('--column', f'model={others[0]}')})" if others else ""
        one = f"{name} has one model, {answers.models[0]!r}: there is nothing to choose"
        raise ValueError(f"{one}; add answers of another{more}")
    if file and prices is not None and not prices.keys() <= present:
        others = join_names(sorted(prices.keys() - present), 4)
        answers.notes.append(f"prices: {file} also has those of {others}, which the log lacks")
        prices = {model: price for model, price in prices.items() if model in present}
    for argument, names in (("models", models), ("costs", costs), ("prices", prices)):
        for model in names or ():
            checks.one_of(f"a model in {argument}", model, answers.models)
    wanted = models or answers.models
    kept = [model for model in wanted if all(given is None or model in given for given in (costs, prices))]
    numbers = {model: number for number, model in enumerate(kept)}
    lacking = [model for model in wanted if model not in numbers]
    if lacking and models is not None:
        argument = "prices" if costs is None else "costs"
        raise ValueError(f"{argument} lacks {join_names(lacking)}, which models names: give it too")
    if lacking and file:
        add = "add a line for each, or keep the others (--models A,B)"
        raise ValueError(f"{file} has no price of {join_names(lacking)}: {add}")
    if len(kept) < 2:
        left = f"only {join_names(kept)} would be left: there is nothing to choose"
        raise ValueError(f"{name}: {left}; give those of others, too")
    omitted = [model for model in answers.models if model not in numbers]
    number = np.array([numbers.get(model, -1) for model in answers.models])[answers.model]
    chosen, place = np.flatnonzero(number >= 0), answers.place
    answers.row, answers.model, answers.models = answers.row[chosen], number[chosen], kept
    answers.place = lambda answer: place(int(chosen[answer]))
    answers.values = {role: values[chosen] for role, values in answers.values.items()}
    answers.percent = None if answers.percent is None else answers.percent[chosen]
    answers.notes.extend([f"left out: the models {join_names(omitted)}, which were not named"] if omitted else [])
