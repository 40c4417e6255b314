"""Plots as data addresses: vector where that is small, pixels where it is not."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cfair.report.blocks import Block, Figure, Paragraph, Section

#: Largest vector picture in bytes. Measured on the example: a forest plot of two rates has 57 kB
#: with its text as text (129 kB with letters as curves), and 42 kB in pixels of 64 colours.
#: Vector pictures stay sharp in print, but those of many panels grow past what pixels need.
MOST_BYTES = 60_000
_DPI = 150
#: Largest page in bytes that mail and viewers take without trouble.
MOST_PAGE = 1_000_000
#: Pixel pictures wider than this are halved where the page is too large.
_WIDE = 700


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
            content, kind = _vector(figure), "svg+xml"
            if len(content) > MOST_BYTES:
                content, kind = _pixels(figure), "png"
            width, height = figure.get_size_inches()
        finally:  # a plot that was interrupted too
            for number in set(plt.get_fignums()).difference(open_before):
                plt.close(number)
    address = f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"
    return Figure(address, alt, caption, round(96 * width), round(96 * height))


def within(sections: Sequence[Section], over: int) -> list[Section]:
    """Sections with fewer bytes of pictures: pixels halved first, then the largest left out.

    Parameters
    ----------
    sections : sequence of Section
    over : int
        Bytes to spare.

    Returns
    -------
    list of Section
        With a word where a picture was.
    """
    over += 200 * sum(isinstance(b, Figure) for s in sections for b in s.blocks)  # of the words
    found = [list(s.blocks) for s in sections]
    places = [(i, j) for i, s in enumerate(found) for j, b in enumerate(s) if isinstance(b, Figure)]
    places.sort(key=lambda at: -len(found[at[0]][at[1]].source))  # type: ignore[union-attr]
    for change in (_halved, _omitted):
        for i, j in places:
            block = found[i][j]
            if over <= 0 or not isinstance(block, Figure):
                continue
            found[i][j] = change(block)
            over -= len(block.source) - len(getattr(found[i][j], "source", ""))
    return [replace(s, blocks=tuple(b)) for s, b in zip(sections, found, strict=True)]


def _halved(figure: Figure) -> Block:
    """A picture of pixels at half its width; others as they are."""
    from PIL import Image

    kind, _, content = figure.source.partition(";base64,")
    if not kind.endswith("png") or not content:
        return figure
    file = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
        if image.width <= _WIDE:
            return figure
        half = image.convert("RGB").resize((image.width // 2, image.height // 2))
        half.quantize(64).save(file, format="png", optimize=True)
    smaller = base64.b64encode(file.getvalue()).decode("ascii")
    if len(smaller) >= len(content):
        return figure
    said = f"{figure.caption} (coarser, so that the page stays small)"
    return replace(figure, source=f"{kind};base64,{smaller}", caption=said)


def _omitted(figure: Figure) -> Block:
    return Paragraph(
        f"Left out, so that the page stays below {MOST_PAGE / 1e6:g} MB: {figure.caption}. Its "
        "figures are in the tables."
    )


def _vector(figure: Any) -> bytes:
    file = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=nothing)
    return file.getvalue()


def _pixels(figure: Any) -> bytes:
    """A picture in 64 colours, which plots have no more of."""
    from PIL import Image

    file, small = io.BytesIO(), io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    with Image.open(file) as image:
        image.convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()
