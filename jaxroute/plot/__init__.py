"""Figures of results, from the `xarray.Dataset` of a simulation.

Functions that draw data take `ax`, axes to draw on (default: a new figure), and `title`, a title above the figure (default: none). They return
the axes (`ax.figure` is the figure), and never show or close anything. `data` is a result, `metric` the name of a metric, and `policies` are
the policies to draw (default: all that have the metric). An unknown name, or more setting axes than a figure can show, is a ValueError.

A figure states label and unit on the axis, the number of seeds and the meaning of the band. A policy has the same colour, dash and marker in
all panels and whichever policies are drawn: they follow its name (see `style`). Bands and bars are two standard errors unless stated otherwise.
"""

from jaxroute.core.exports import public_names
from jaxroute.plot.figures import deployment, heat, level, line_style, log_axis, panels, power_laws, save
from jaxroute.plot.lines import curves, difference, points, quantiles, sweep
from jaxroute.plot.style import share_legend

__all__ = ["curves", "deployment", "difference", "heat", "level", "line_style", "log_axis", "panels"]
__all__ += ["points", "power_laws", "quantiles", "save", "share_legend", "sweep"]
__dir__ = public_names(__name__)
