"""Files in the formats of evaluation tools, gateways and tracers are read without options, or refused for what they are."""

import numpy as np
import pytest
from tool_formats import FORMATS

from jaxroute.data import read_answers, read_log

pytestmark = pytest.mark.fast


def by_pair(frame):
    """Score, cost and seconds of an answer by query and model; means of repeated answers."""
    means = frame.groupby([frame["query"].astype(str), "model"])[["score", "cost", "seconds"]].mean()
    return {pair: tuple(values) for pair, values in zip(means.index, means.to_numpy(), strict=True)}


def same(found, wanted, tolerance=1e-6):
    return wanted is None or np.isclose(found, wanted, rtol=tolerance, atol=1e-12)


def keyed(form, query, category=None):
    """The name of a query in the truth: with its task where ids begin again in each."""
    return (f"{category}/{query}", query) if category else (query,)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_formats_of_tools(form, tmp_path):
    path = form.write(tmp_path)
    if form.refused:
        with pytest.raises(ValueError) as error:
            read_log(path)
        assert form.refused in str(error.value) and str(path) in str(error.value)
        return
    if form.logged:
        found = by_pair(read_answers(path))
        assert found.keys() == form.truth.keys()
        for pair, wanted in form.truth.items():
            assert all(same(value, want) for value, want in zip(found[pair], wanted, strict=True)), (
                pair,
                found[pair],
                wanted,
            )
        with pytest.raises(ValueError, match="one model alone|lacks a column for the score"):
            read_log(path)
        return
    models = sorted({model for _, model in form.truth})
    costs = None if form.prices or next(iter(form.truth.values()))[1] is not None else dict.fromkeys(models, 0.01)
    log = read_log(path, prices=form.prices, costs=costs, features="none")
    table = log.table
    assert sorted(table.models) == models and table.num_queries == len({query for query, _ in form.truth})
    names = {model: sorted(query for query, of in form.truth if of == model) for model in models}
    for model in models:
        column = table.models.index(model)
        found = [table.scores[:, column], table.costs[:, column]]
        found += [] if log.latency is None else [log.latency[:, column]]
        wanted = np.array([[np.nan if v is None else v for v in form.truth[query, model]] for query in names[model]])
        tolerance = 0.04 if form.texts else 1e-5
        for values, want in zip(found, wanted.T, strict=False):
            if not np.isnan(want).any():
                np.testing.assert_allclose(np.sort(values), np.sort(want), rtol=tolerance, atol=1e-7)
