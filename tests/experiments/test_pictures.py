"""Figures of experiments as tables of panels; for every figure of every experiment see `test_claims`."""

import numpy as np
import pytest
import xarray as xr

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from jaxroute import plot  # noqa: E402
from jaxroute.experiments.pictures import Panel, panels_of, side_by_side  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def results(cases=("a", "b"), policies=("ACQB", "Random"), **axes):
    """Curves of queue and regret by case; the coordinate `K` of a case is its number."""
    rng, times = np.random.default_rng(0), np.arange(1, 11) * 100
    dims, made = ("policy", *axes, "seed", "time"), {}
    for number, case in enumerate(cases):
        shape = (len(policies), *map(len, axes.values()), 20, len(times))
        curves = {
            name: (dims, (1 + number) * times**power * rng.uniform(0.9, 1.1, shape), {"kind": kind, "long_name": name})
            for name, power, kind in (("queue", 0.1, "gauge"), ("regret", 0.5, "total"))
        }
        valid = {"valid": (dims[:-1], np.ones(shape[:-1], bool), {"kind": "flag"})}
        coordinates = {"policy": list(policies), **axes, "seed": np.arange(20), "time": times}
        made[case] = xr.Dataset({**curves, **valid}, coordinates, {"case_coordinates": {"K": number + 1}})
    return made


def said(figure):
    return [(ax.get_title(loc="left"), ax.get_ylabel()) for ax in figure.axes]


def test_metrics_by_rows_and_cases_by_columns():
    figure = panels_of(rows=("queue", "regret"), columns="case", band=None)(results())
    assert said(figure) == [("K = 1", "queue"), ("K = 2", "queue"), ("", "regret"), ("", "regret")]
    assert [ax.get_subplotspec().num1 for ax in figure.axes] == [0, 1, 2, 3]
    assert not figure.axes[0].collections, "options are those of the function that draws"


def test_cases_by_rows_and_metrics_by_columns():
    kinds = (Panel("queue", plot.sweep), Panel("regret", title="log", log=True, change=lambda data: data.isel(time=[5, 9])))
    figure = panels_of(rows="case", columns=kinds, titles={"a": "first"}, cases=["b", "a"])(results())
    assert [title for title, _ in said(figure)] == ["K = 2", "K = 2: log", "first", "first: log"]
    assert figure.axes[1].get_yscale() == "log"
    assert list(figure.axes[1].lines[0].get_xdata()) == [600, 1000]


def test_a_place_for_each_value_of_a_setting():
    picture = panels_of(rows=["regret"], columns="b", policies=lambda data: [data["policy"].values[0]])
    figure = picture(results(["only"], b=[0.1, 0.2]))
    assert [title for title, _ in said(figure)] == ["b = 0.1", "b = 0.2"]
    assert [[line.get_label() for line in ax.lines] for ax in figure.axes] == [["ACQB"], ["ACQB"]]


def test_a_single_case_needs_no_title():
    figure = panels_of(rows=["queue"], columns="case")(results(["result"]))
    assert said(figure) == [("", "queue")]
    titles = panels_of(rows=["queue"], columns="case", titles=lambda data: f"{data.sizes['seed']} seeds")(results())
    assert [title for title, _ in said(titles)] == ["20 seeds", "20 seeds"]


def test_a_table_has_metrics_on_one_side():
    for rows, columns in (("case", "b"), (["queue"], ["regret"])):
        with pytest.raises(ValueError, match='one of rows and columns must be "case" or a setting, the other metrics'):
            panels_of(rows=rows, columns=columns)


def test_panels_side_by_side():
    last = Panel("regret", plot.difference, minus="ACQB", title="paired", case="b")
    figure = side_by_side("queue", last, columns=2, band=None)(results())
    assert said(figure) == [("", "queue"), ("paired", "regret\nminus that of ACQB")]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["ACQB", "Random"]
