"""Planted faults of figures are found, each by its name; a good figure has none."""

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from jaxroute.testing.figures import faults  # noqa: E402

X = np.linspace(0, 10, 50)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def good():
    """Two panels with two named lines and a legend below."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for ax in axes:
        ax.plot(X, X, color="C0", label="first")
        ax.plot(X, X**1.5, color="C1", linestyle="--", label="second")
        ax.set(title="growth", xlabel="round", ylabel="regret")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure, axes


def test_a_good_figure_has_no_fault():
    assert faults(good()[0]) == []


def test_slanted_names_may_have_boxes_that_overlap():
    figure, axes = good()
    axes[0].set_xticks([0, 2, 4, 6, 8], ["a name of some length"] * 5, rotation=25, ha="right")
    assert faults(figure) == []
    axes[0].set_xticks([0, 0.2], ["a name of some length"] * 2, rotation=25, ha="right")
    assert [fault.partition(":")[0] for fault in faults(figure)] == ["texts overlap"]


def overlapping(figure, axes):
    axes[0].text(2, 3, "here")
    axes[0].text(2.05, 3, "there")


def squeezed(figure, axes):
    figure.set_layout_engine("none")
    axes[0].set_position((0.1, 0.3, 0.14, 0.5))


def empty(figure, axes):
    for line in list(axes[1].lines):
        line.remove()
    axes[1].set(xlim=(0, 1), ylim=(0, 1))


def alike(figure, axes):
    for ax in axes:
        ax.lines[1].set(color="C0", linestyle="-")


def without_numbers(figure, axes):
    axes[1].set_yscale("log")
    axes[1].set_ylim(11, 19)
    axes[1].yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())


@pytest.mark.parametrize(
    ("plant", "name", "what"),
    [
        (lambda figure, axes: figure.text(0.97, 0.5, "a note that runs out"), "outside the canvas", "a note that runs"),
        (overlapping, "texts overlap", "'here' and text 'there'"),
        (lambda figure, axes: axes[0].text(9.5, 3, "over the frame"), "across the frame", "over the frame"),
        (lambda figure, axes: axes[1].text(1, 25, "small print", fontsize=5), "smaller than 7 points", "small print"),
        (squeezed, "squeezed", "28% of its panel wide"),
        (empty, "empty", "the axes 'growth'"),
        (lambda figure, axes: axes[1].lines[0].set_ydata(np.full(50, np.nan)), "no data", "'first'"),
        (lambda figure, axes: axes[1].set_ylim(12, 40), "out of view", "'first'"),
        (lambda figure, axes: [line.set_ydata(np.ones(50)) for line in axes[0].lines], "constant", "'growth'"),
        (lambda figure, axes: axes[0].legend(loc="upper right"), "legend over data", "'second'"),
        (lambda figure, axes: axes[0].plot(X, X**1.2, color="C2", label="third"), "in no legend", "third"),
        (lambda figure, axes: [ax.lines[1].set_label("another") for ax in axes], "legend without data", "'second'"),
        (lambda figure, axes: axes[1].lines[0].set_color("C5"), "several colours", "'first' has 2"),
        (alike, "one look", "'first' and 'second'"),
        (lambda figure, axes: axes[1].set_ylabel(""), "without label", "the vertical axis"),
        (without_numbers, "without numbers", "the vertical axis"),
        (lambda figure, axes: axes[1].set_title("growth", fontweight="bold"), "titles differ", "2 sorts"),
        (lambda figure, axes: figure.set_size_inches(26, 4), "too wide", "26 inches"),
    ],
)
def test_a_planted_fault_is_found(plant, name, what):
    figure, axes = good()
    plant(figure, axes)
    found = [fault for fault in faults(figure) if fault.startswith(name)]
    assert found and any(what in fault for fault in found), faults(figure)
