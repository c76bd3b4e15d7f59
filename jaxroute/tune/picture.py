"""Draws the history of a search: scores against the rounds and against each hyperparameter."""

from typing import Any

import numpy as np
import xarray as xr

from jaxroute import plot
from jaxroute.core.attributes import decoded
from jaxroute.core.checks import show
from jaxroute.plot import style
from jaxroute.plot.axes import grid_lines, numbers


@style.styled
def picture(history: xr.Dataset, *, title: str | None = None) -> Any:
    """Draws the scores of a search against the simulated rounds, and against each hyperparameter. Returns the figure.

    A point is a candidate on one set of seeds, hollow if it does not satisfy the bounds. Finalists and tested candidates have error bars of two
    standard errors. Points of the search phase have none, because the candidates of a generation share their noise.

    Args:
      history: history of a `SearchResult`, or from `load`.
      title: title above the figure (default: none).

    Raises:
      ValueError: `history` is not the history of a search.
    """
    if not isinstance(history, xr.Dataset) or "phase" not in history or "chosen" not in history.attrs:
        raise ValueError(f"history must be that of a search, got {show(history)}")
    names = [str(name) for name in history.data_vars if str(name).startswith("parameter.")]
    figure, axes = plot.panels(1 + len(names), columns=2 if len(names) in (1, 3) else 3)
    for ax, name in zip(axes, ["rounds", *names], strict=True):
        _panel(ax, history, name)
        ax.set_ylabel(style.wrapped(str(history["score"].attrs.get("long_name", "score")), 30))
    plot.share_legend(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
    return figure


def _panel(ax: Any, history: xr.Dataset, name: str) -> None:
    """Draws the scores of a search against the variable `name` of its history: "rounds" (simulated so far), or a hyperparameter."""
    attributes, values = decoded(history[name].attrs), history[name].values
    names = list(attributes.get("values", ()))
    places = np.array([names.index(v) for v in values], float) if names else values.astype(float)
    scores, errors = history["score"].values, 2 * history["stderr"].values
    phases, feasible = history["phase"].values, history["feasible"].values.astype(bool)
    chosen = history["candidate"].values == history.attrs["chosen"]
    groups: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        ("candidates of the search", phases == "search", {"color": "#0072B2", "marker": "o", "markersize": 3.2, "alpha": 0.75}),
        ("finalists on fresh seeds", phases == "selection", {"color": "#E69F00", "marker": "s", "markersize": 4.2}),
        ("start, tested", (phases == "test") & ~chosen, {"color": "#000000", "marker": "X", "markersize": 6.0}),
        ("chosen candidate, tested", (phases == "test") & chosen, {"color": "#D55E00", "marker": "D", "markersize": 6.0}),
    ]  # fmt: skip
    for label, members, look in groups:
        for satisfied in (True, False):
            some = members & (feasible == satisfied)
            if some.any():
                bars = None if phases[some][0] == "search" else errors[some]
                options = look | {"linestyle": "none", "elinewidth": 1.0, "mfc": look["color"] if satisfied else "none"}
                text = label if satisfied else f"{label}: not feasible"
                ax.errorbar(places[some], scores[some], yerr=bars, label=text, **options)
    if attributes.get("scale") == "log":
        ax.set_xscale("log")
    if names:
        ax.set_xticks(range(len(names)), names)
        ax.set_xlim(-0.5, len(names) - 0.5)
    else:
        numbers(ax.xaxis)
    numbers(ax.yaxis)
    ax.set_xlabel("simulated rounds" if name == "rounds" else name.removeprefix("parameter."))
    grid_lines(ax)
    _hide_extremes(ax, scores[phases == "search"], scores[phases != "search"])


def _hide_extremes(ax: Any, searched: np.ndarray, tested: np.ndarray) -> None:
    """Limits the vertical axis so that points of the search far outside of the 10 to 90 % range of all scores are not shown."""
    shown = np.concatenate([searched, tested])
    shown = shown[np.isfinite(shown)]
    if len(shown) < 20:
        return
    low, high = np.quantile(shown, [0.1, 0.9])
    margin = 0.5 * (high - low)
    inside = shown[(shown >= low - margin) & (shown <= high + margin)]
    low, high = min(inside.min(), tested.min()), max(inside.max(), tested.max())
    margin = 0.08 * ((high - low) or 1.0)
    ax.set_ylim(low - margin, high + margin)
