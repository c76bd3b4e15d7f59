"""Draws the figures of experiments from made-up results, and finds faults in them."""

import matplotlib.pyplot as plt
import numpy as np
from dry import cheap_training
from every_experiment import EXPERIMENTS
from matplotlib.colors import to_hex

from jaxroute.plot import style
from jaxroute.testing.figures import faults


def faults_by_figure(name, results):
    """Draws an experiment's figures from results by case. Returns the faults by figure, for figures that have any.

    Args:
      name: of the experiment.
      results: by case.
    """
    found = {}
    for figure, make in EXPERIMENTS[name].figures.items():
        with cheap_training():
            drawn = make(results)
        drawn = getattr(drawn, "figure", drawn)
        found[figure] = [*faults(drawn), *_in_other_colours(drawn)]
        plt.close("all")
    return {figure: texts for figure, texts in found.items() if texts}


def _in_other_colours(figure):
    """Systems that problems are named for and that do not have their colour."""
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            if style.role_of(label) == "subject":
                artist = handle[0] if isinstance(handle, tuple) else handle
                colour = artist.get_color() if hasattr(artist, "get_color") else artist.get_facecolor()
                if to_hex(colour if isinstance(colour, str) else np.ravel(colour)[:4]) != "#d55e00":
                    yield f"colour of {label}: {colour}"
