"""Figures of results, from the `xarray.Dataset` of a simulation.

Every function draws on the given axes or on a new figure, returns the axes (`ax.figure` is the figure), and never shows or closes anything. A
figure states label and unit on the axis, the number of seeds and the meaning of the band. A policy has the same colour, dash and marker in
all panels and whichever policies are drawn: they follow its name (see `style`). Bands and bars are two standard errors unless stated otherwise.
"""

from jaxroute.core.exports import public_names
from jaxroute.plot.figures import level, line_style, log_axis, panels, power_laws, save, share_legend
from jaxroute.plot.lines import curves, difference
from jaxroute.plot.maps import deployment, heat
from jaxroute.plot.settings import points, quantiles, sweep

__all__ = [
    "curves",
    "deployment",
    "difference",
    "heat",
    "level",
    "line_style",
    "log_axis",
    "panels",
    "points",
    "power_laws",
    "quantiles",
    "save",
    "share_legend",
    "sweep",
]
__dir__ = public_names(__name__)
