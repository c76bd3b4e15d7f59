"""The picture of a search: what was played when, and where in the leaves it lay."""

from typing import Any

import numpy as np
import xarray as xr

from jaxroute import plot
from jaxroute.core.attributes import decoded
from jaxroute.core.checks import show
from jaxroute.plot import style

# Colour and marker by phase: candidates of the search, finalists, and the one that was chosen.
_LOOKS: dict[str, dict[str, Any]] = {
    "search": {"color": "#0072B2", "marker": "o", "markersize": 3.2, "alpha": 0.75},
    "choice": {"color": "#E69F00", "marker": "s", "markersize": 4.2},
    "judgement": {"color": "#D55E00", "marker": "D", "markersize": 6.0},
}
_START = {"color": "#000000", "marker": "X", "markersize": 6.0}


@style.styled
def picture(history: xr.Dataset, *, title: str | None = None):
    """The scores of a search against the rounds played, and against each leaf.

    A point is a candidate on one set of seeds, hollow if it does not keep the bounds. Finalists on their fresh seeds and the chosen one on
    the seeds of the judgement have two standard errors; those of the search would hide what is common to all candidates, who meet the same
    luck.

    Args:
      history: of `search`, or from `load`.
      title: above the figure (default: none).

    Returns:
      The figure.

    Raises:
      ValueError: it is no history of a search.
    """
    if not isinstance(history, xr.Dataset) or "phase" not in history or "chosen" not in history.attrs:
        raise ValueError(f"history must be that of a search, got {show(history)}")
    leaves = [str(name) for name in history.data_vars if str(name).startswith("leaf.")]
    figure, axes = plot.panels(1 + len(leaves), columns=2 if len(leaves) in (1, 3) else 3)
    for ax, name in zip(axes, ["rounds", *leaves], strict=True):
        _panel(ax, history, name)
        ax.set_ylabel(style.wrapped(str(history["score"].attrs.get("long_name", "score")), 30))
    plot.share_legend(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
    return figure


def _panel(ax: Any, history: xr.Dataset, name: str) -> None:
    """Scores against the rounds, or a leaf."""
    attributes, values = decoded(history[name].attrs), history[name].values
    names = list(attributes.get("values", ()))
    places = np.array([names.index(v) for v in values], float) if names else values.astype(float)
    scores, errors = history["score"].values, 2 * history["stderr"].values
    phases, keeps = history["phase"].values, history["keeps"].values.astype(bool)
    candidates = history["candidate"].values
    groups = [
        ("candidates of the search", "search", phases == "search"),
        ("finalists on fresh seeds", "choice", phases == "choice"),
        ("the start, judged", "start", (phases == "judgement") & (candidates != history.attrs["chosen"])),
        ("the chosen one, judged", "judgement", (phases == "judgement") & (candidates == history.attrs["chosen"])),
    ]
    for label, phase, which in groups:
        look = dict(_START if phase == "start" else _LOOKS[phase])
        for kept in (True, False):
            some = which & (keeps == kept)
            if not some.any():
                continue
            face = look["color"] if kept else "none"
            said = label if kept else f"{label}: a bound is not kept"
            bars = None if phase == "search" else errors[some]
            ax.errorbar(
                places[some],
                scores[some],
                yerr=bars,
                linestyle="none",
                elinewidth=1.0,
                markerfacecolor=face,
                label=said,
                **look,
            )
    if attributes.get("scale") == "log":
        ax.set_xscale("log")
    if names:
        ax.set_xticks(range(len(names)), names)
        ax.set_xlim(-0.5, len(names) - 0.5)
    else:
        style.numbers(ax.xaxis)
    style.numbers(ax.yaxis)
    ax.set_xlabel("rounds played" if name == "rounds" else name.removeprefix("leaf."))
    style.grid(ax)
    _without_extremes(ax, scores[phases == "search"], scores[phases != "search"])


def _without_extremes(ax: Any, searched: np.ndarray, judged: np.ndarray) -> None:
    """The worst tenth of the search may lie outside, where it would squeeze all others."""
    shown = np.concatenate([searched, judged])
    shown = shown[np.isfinite(shown)]
    if len(shown) < 20:
        return
    low, high = np.quantile(shown, [0.1, 0.9])
    room = 0.5 * (high - low)
    inside = shown[(shown >= low - room) & (shown <= high + room)]
    low, high = min(inside.min(), judged.min()), max(inside.max(), judged.max())
    margin = 0.08 * ((high - low) or 1.0)
    ax.set_ylim(low - margin, high + margin)
