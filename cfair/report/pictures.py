"""Plots as data addresses: vector where that is small, pixels where it is not."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

from cfair.report.blocks import Figure

#: Largest vector picture in bytes. Measured on the example: a forest plot of two rates has 57 kB
#: with its text as text (129 kB with letters as curves), and 42 kB in pixels of 64 colours.
#: Vector pictures stay sharp in print, but those of many panels grow past what pixels need.
MOST_BYTES = 60_000
_MOST_PARTS = 350  # lines, texts and the like, of some 200 bytes each
_DPI = 150


def picture(draw: Callable[[], Any], alt: str, caption: str) -> Figure:
    """Draw a plot and put it into a figure; the same plot gives the same bytes.

    Parameters
    ----------
    draw : callable
        Returns an Axes or a Figure.
    alt : str
        What the plot shows, in words.
    caption : str

    Returns
    -------
    Figure
    """
    from matplotlib import pyplot as plt

    # The reader's own fonts draw the text, so that it is sharp and no letters are stored.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "cfair"}
    with plt.style.context("default"), plt.rc_context(settings):  # whatever the user's style is
        open_before = plt.get_fignums()
        try:
            drawn = draw()
            figure = getattr(drawn, "figure", drawn)
            # of many parts a vector picture would be too large: not drawn to be thrown away
            content, kind = b"", "svg+xml"
            if len(figure.findobj()) <= _MOST_PARTS:
                content = _vector(figure)
            if not 0 < len(content) <= MOST_BYTES:
                content, kind = _pixels(figure), "png"
            width, height = figure.get_size_inches()
        finally:  # a plot that was interrupted too
            for number in set(plt.get_fignums()).difference(open_before):
                plt.close(number)
    address = f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"
    return Figure(address, alt, caption, round(96 * width), round(96 * height))


def _vector(figure: Any) -> bytes:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    # laid out and drawn once, where savefig does so twice
    FigureCanvasSVG(figure).print_svg(file, metadata=nothing)
    return file.getvalue()


def _pixels(figure: Any) -> bytes:
    """A picture in 64 colours, which plots have no more of."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure.set_dpi(_DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
    small = io.BytesIO()
    image.convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()
