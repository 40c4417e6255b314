"""Axes, rows, titles and legends: the parts that all figures are put together from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from cfair.disclosure import MASKED
from cfair.plotting.style import (
    GREY,
    base_size,
    literal,
    plain,
    printable,
    settle_fonts,
)
from cfair.tables import shorten, shorten_all

#: Length that labels of rows are cut to.
LABEL_WIDTH = 36


def check_axes(ax: Any) -> Axes | None:
    """Check that what was passed as `ax` can be drawn into.

    Parameters
    ----------
    ax : matplotlib Axes or None

    Returns
    -------
    matplotlib Axes or None

    Raises
    ------
    TypeError
        If it is something else, such as the array that ``plt.subplots(1, 2)`` returns.
    """
    if ax is None or isinstance(ax, Axes):
        return ax
    raise TypeError(
        f"ax must be one matplotlib Axes, or None for a new figure, not {type(ax).__name__}. "
        "From an array of Axes pick one, such as axes[0]."
    )


def new_axes(width: float, height: float, left: float = 0.7, right: float = 0.1) -> Axes:
    """Axes of a new figure that is laid out to hold labels and legend.

    Parameters
    ----------
    width : float
        Width of the axes in inches at matplotlib's usual font size; it grows and shrinks with the
        user's.
    height : float
        Height of the figure, at least 1.5.
    left, right : float
        Room wanted beside the axes.

    Returns
    -------
    matplotlib Axes
    """
    from matplotlib import pyplot as plt

    scale = base_size() / 9
    figure = plt.figure(
        figsize=(scale * (left + width + right), scale * height),
        layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08),
    )
    # The layout settles when the figure is drawn; sizes are chosen by where it is likely to end.
    total = left + width + right
    grid = figure.add_gridspec(
        left=left / total, right=1 - right / total, bottom=0.85 / height, top=1 - 0.4 / height
    )
    return figure.add_subplot(grid[0])


def row_labels(names: Iterable[object], sizes: Iterable[Any] | None = None) -> list[str]:
    """Labels of rows, cut where long, with the number of rows of data behind them.

    Parameters
    ----------
    names : iterable
    sizes : iterable of int, optional

    Returns
    -------
    list of str
    """
    short = shorten_all([printable(name) for name in names], LABEL_WIDTH)
    if sizes is None:
        return short
    counts = pd.Series(list(sizes), dtype=object)
    return [
        name if lost else f"{name}  (n = {int(n):,})"  # an empty or a masked number
        for name, n, lost in zip(short, counts, pd.isna(counts), strict=True)
    ]


def row_axes(
    ax: Axes | None,
    labels: Sequence[str],
    series: float,
    extra: float = 0.0,
    shaded: bool = True,
    width: float = 4.1,
) -> Axes:
    """Axes with a labelled row for each group, first on top.

    Parameters
    ----------
    ax : matplotlib Axes or None
        None for a new figure.
    labels : sequence of str
    series : float
        Series drawn side by side within a row, which its height grows with.
    extra : float, default 0
        Inches wanted to the right of the axes.
    shaded : bool, default True
        Whether every other row is shaded.
    width : float, default 4.1
        Inches of the axes.

    Returns
    -------
    matplotlib Axes
    """
    n = len(labels)
    if ax is None:
        row = (0.13 + 0.11 * series) * float(np.interp(n, [4, 12, 40], [1.2, 1.0, 0.65]))
        longest = max((len(label) for label in labels), default=0)
        height = max(n * row, 0.6) + 1.35
        ax = new_axes(width, height, left=0.2 + 0.068 * longest, right=0.1 + extra)
    size = row_size(ax, n)
    for k in range(1, n if shaded else 0, 2):
        ax.axhspan(k - 0.5, k + 0.5, facecolor="0.955", linewidth=0, zorder=0)
    ax.set_ylim(max(n, 1) - 0.5, -0.5)
    ax.set_yticks(range(n), labels=[literal(label) for label in labels], fontsize=size)
    ax.tick_params(axis="y", length=0, pad=6)
    bare(ax, "left", "top", "right")
    ax.grid(axis="x", color="0.87", linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def divide(ax: Axes, rows: Sequence[int]) -> None:
    """Draw a line above each of these rows.

    Parameters
    ----------
    ax : matplotlib Axes
    rows : sequence of int
    """
    for row in rows:
        ax.axhline(row - 0.5, color="0.6", linewidth=0.7, zorder=1)


def row_points(ax: Axes, n_rows: int) -> float:
    """Height of a row in points, as the axes stand now.

    Parameters
    ----------
    ax : matplotlib Axes
    n_rows : int

    Returns
    -------
    float
    """
    inches = ax.get_window_extent().height / ax.figure.dpi
    return float(72 * inches / max(n_rows, 1))


def row_size(ax: Axes, n_rows: int) -> float:
    """Size of text that fits into a row.

    Parameters
    ----------
    ax : matplotlib Axes
    n_rows : int

    Returns
    -------
    float
    """
    base = base_size()
    return float(np.clip(0.62 * row_points(ax, n_rows), 0.55 * base, base))


def bare(ax: Axes, *sides: str) -> None:
    """Hide spines and set the size of numbers on the axes.

    Parameters
    ----------
    ax : matplotlib Axes
    *sides : str
    """
    for side in sides:
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="x", labelsize=0.95 * base_size())


def proportion_axis(ax: Axes, values: Sequence[Any], room: bool = False) -> None:
    """Horizontal axis from 0 to 1, or to what is needed of it.

    Parameters
    ----------
    ax : matplotlib Axes
    values : sequence of array_like
        What has to be seen.
    room : bool, default False
        Leave room left of 0 for the marks of undefined rows.
    """
    everything = np.concatenate([np.ravel(np.asarray(v, dtype=float)) for v in values])
    defined = everything[np.isfinite(everything)]
    top = max(float(defined.max()) if defined.size else 1.0, 1e-3)
    top = 1.0 if 0.75 < top <= 1 else top
    # Steps that numbers with few digits give; the last one above all values.
    locator = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10])
    ticks = [t for t in locator.tick_values(0, top) if -1e-9 <= t <= top * (1 + 1e-9)]
    ax.set_xticks(ticks)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
    ax.set_xlim(-(0.06 if room else 0.02) * top, 1.02 * top)


def spans(
    ax: Axes,
    y: NDArray[Any],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    color: str,
    linewidth: float,
) -> None:
    """Horizontal lines from `low` to `high`, where both are defined.

    Parameters
    ----------
    ax : matplotlib Axes
    y, low, high : arrays
    color : str
    linewidth : float
    """
    known = np.isfinite(low) & np.isfinite(high)
    if known.any():
        ax.hlines(y[known], low[known], high[known], color=color, linewidth=linewidth, zorder=3)


def mark_undefined(
    ax: Axes,
    rows: Sequence[float],
    notes: Sequence[str],
    size: float,
    gap: float = 16,
    called: str = "undefined",
) -> Line2D | None:
    """Mark rows without an estimate at the left edge and say why.

    A masked one says no more than that: why it is masked is in the label of the marks.

    Parameters
    ----------
    ax : matplotlib Axes
    rows : sequence of float
        Vertical positions.
    notes : sequence of str
        An empty one draws no text.
    size : float
        Size of text in points.
    gap : float, default 16
        Points from the edge to the text.
    called : str, default "undefined"
        What the marks are in a legend.

    Returns
    -------
    matplotlib Line2D or None
        The marks, with their label; None if there are none.
    """
    if not len(rows):
        return None
    edge = ax.get_yaxis_transform() + ScaledTranslation(7 / 72, 0, ax.figure.dpi_scale_trans)
    (marks,) = ax.plot(
        np.zeros(len(rows)),
        rows,
        linestyle="none",
        marker="X",
        markersize=0.75 * size,
        markerfacecolor="white",
        markeredgecolor=GREY,
        markeredgewidth=0.9,
        transform=edge,
        clip_on=False,
        label=_reasons(notes, called),
        zorder=4,
    )
    width = 72 * ax.get_window_extent().width / ax.figure.dpi
    for y, note in zip(rows, notes, strict=True):
        if note:
            ax.annotate(
                plain(_masked(note), max(int(width / (0.5 * size)), 12)),
                (0, y),
                (gap, 0),
                xycoords=ax.get_yaxis_transform(),
                textcoords="offset points",
                fontsize=size,
                color=GREY,
                va="center",
                annotation_clip=False,
                zorder=5,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            )
    return marks


def _masked(note: str) -> str:
    """The note of a row, shorter where it is one of many with the same reason."""
    return MASKED.rstrip(": ") if note.startswith(MASKED) else note


def _reasons(notes: Sequence[str], called: str) -> str:
    """What marks are called in a legend: masked ones with their reason."""
    masked = list(dict.fromkeys(note for note in notes if note.startswith(MASKED)))
    if not masked:
        return called
    others = [called] * any(not note.startswith(MASKED) for note in notes)
    return "; ".join([*others, *masked])


def right_column(
    ax: Axes,
    texts: Sequence[str],
    header: str,
    size: float,
    rows: Sequence[float] | None = None,
    colors: Sequence[str] | None = None,
) -> None:
    """Numbers to the right of the rows, as in a table.

    Parameters
    ----------
    ax : matplotlib Axes
    texts : sequence of str
        One per row.
    header : str
    size : float
        Size of text in points.
    rows : sequence of float, optional
        Where each text stands; by default one per row from the first on.
    colors : sequence of str, optional
        Of the texts; black by default.
    """
    places = range(len(texts)) if rows is None else rows
    shades = ["black"] * len(texts) if colors is None else colors
    told = [*zip(places, texts, shades, strict=True), (-0.5, header, GREY)]
    for y, text, color in told:
        ax.annotate(
            literal(text),
            (1, y),
            (8, 4 if y == -0.5 else 0),
            xycoords=ax.get_yaxis_transform(),
            textcoords="offset points",
            fontsize=size,
            color=color,
            va="bottom" if y == -0.5 else "center",
            annotation_clip=False,
        )


def head(ax: Axes, title: str, subtitle: str = "") -> None:
    """Title at the left, and a line in grey under it.

    Parameters
    ----------
    ax : matplotlib Axes
    title : str
    subtitle : str, optional
    """
    base = base_size()
    ax.set_title(
        plain(title), loc="left", fontsize=1.1 * base, pad=8 + (1.5 * base if subtitle else 0)
    )
    if subtitle:
        ax.annotate(
            plain(subtitle, 160),
            (0, 1),
            (0, 6),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=0.9 * base,
            color=GREY,
            va="bottom",
            annotation_clip=False,
        )


def x_label(ax: Axes, text: str) -> None:
    """Name of the horizontal axis.

    Parameters
    ----------
    ax : matplotlib Axes
    text : str
    """
    ax.set_xlabel(plain(text), fontsize=base_size())


def finish(ax: Axes, handles: Sequence[Artist | None], labels: Sequence[str | None]) -> Axes:
    """Put the legend under the axes, clear of the data, and settle the fonts.

    Parameters
    ----------
    ax : matplotlib Axes
    handles : sequence of matplotlib artists
        None leaves an entry out.
    labels : sequence of str
        None for the label that the artist has.

    Returns
    -------
    matplotlib Axes
    """
    base = base_size()
    room = 72 * ax.get_window_extent().width / ax.figure.dpi / base  # in font sizes
    entries = [
        (handle, _folded(handle, room) if label is None else _entry(label))
        for handle, label in zip(handles, labels, strict=True)
        if handle is not None
    ]
    if entries:
        below = ax.transAxes + ScaledTranslation(0, -3.6 * base / 72, ax.figure.dpi_scale_trans)
        ax.legend(
            [handle for handle, _ in entries],
            [label for _, label in entries],
            loc="upper left",
            bbox_to_anchor=(0, 0),
            bbox_transform=below,
            borderaxespad=0,
            borderpad=0,
            frameon=False,
            fontsize=base,
            ncols=_columns(room, [label for _, label in entries]),
            handletextpad=0.5,
            columnspacing=1.6,
        )
    settle_fonts(ax)
    return ax


def _folded(handle: Artist, room: float) -> str:
    """The label that marks have, which may be a sentence, in lines as long as the axes."""
    return fill(_entry(str(handle.get_label())), max(int((room - 3) / 0.55), 24))


def _entry(label: str) -> str:
    text = literal(shorten(printable(label), 90))
    return f" {text}" if text.startswith("_") else text  # "_" would hide it from the legend


def _columns(room: float, labels: Sequence[str]) -> int:
    """Most columns of legend entries that fit into the width of the axes, in font sizes."""
    widths = [0.55 * len(label) + 4 for label in labels]
    for n in range(len(labels), 1, -1):
        if sum(part.max() for part in np.array_split(widths, n)) <= room:  # filled as legends are
            return n
    return 1
