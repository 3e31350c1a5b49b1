"""What the package's charts have in common: colours, quiet axes, and PNG bytes without a display."""

from __future__ import annotations

import io

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# from the palette of Okabe and Ito, told apart without colour vision; lines differ in style and marker too
BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
GREY = "#999999"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, BLACK)
DPI = 120


def quiet(axes: Axes) -> None:
    """Leave two spines and a pale grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)


def png(figure: Figure) -> bytes:
    """The figure as PNG bytes."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
