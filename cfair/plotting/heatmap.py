"""Heat map of rates, groups by metrics, coloured by how far a group is from all rows together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from cfair.plotting import layout
from cfair.plotting.style import PALETTE, base_size, literal, settle_fonts

#: Two of the palette's colours, which every eye tells apart, through white.
_COLOURS = LinearSegmentedColormap.from_list("difference", [PALETTE[0], "white", PALETTE[1]])

#: Letters of a metric's name that fit above its column.
_LINE = 10


def plot_heatmap(
    frame: pd.DataFrame,
    overall: pd.DataFrame,
    *,
    metrics: Sequence[str],
    labels: Mapping[str, str],
    about: str = "",
    title: str = "Rates by group",
    own_scale: bool = False,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Rates of all groups and metrics as a table of colours.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns ``metric, group, n, estimate, ci_low, ci_high``.
    overall : pandas.DataFrame
        Columns ``metric, estimate``: the rates that the colours compare with.
    metrics : sequence of str
        The columns of the map.
    labels : mapping of str to str
        Names of the metrics in print.
    about : str, optional
        What kind of rates these are, printed under the title.
    title : str, default "Rates by group"
    own_scale : bool, default False
        Each metric's colours reach up to its own largest difference, not that of all: for metrics
        that are no proportions alike.
    level : float, default 0.95
        Confidence level of the intervals.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.

    Returns
    -------
    matplotlib Axes
        A rate whose interval leaves out that of all rows together is printed in bold; one without
        an interval is not.
    """
    layout.check_axes(ax)
    first = frame[frame["metric"] == metrics[0]]
    every = overall.set_index("metric")["estimate"]
    parts = [frame[frame["metric"] == m] for m in metrics]
    rate, low, high = (
        np.column_stack([part[c].to_numpy(float) for part in parts])
        for c in ("estimate", "ci_low", "ci_high")
    )
    reference = every.reindex(list(metrics)).to_numpy(float)
    difference = rate - reference
    texts = layout.row_labels(first["group"], first["n"])
    width = max(0.72 * len(metrics) + 0.3, 0.066 * len(about))  # the line under the title fits too
    ax = layout.row_axes(ax, texts, 2, extra=0.1, shaded=False, width=width)
    largest = np.nanmax(np.abs(difference), axis=0, initial=0.0)
    if not own_scale:
        largest = np.full(len(metrics), max(largest.max(initial=0.0), 0.05))
    shade = difference / np.where(largest > 0, largest, 1.0)
    ax.imshow(shade, cmap=_COLOURS, vmin=-1, vmax=1, aspect="auto", zorder=0)
    size = 0.9 * layout.row_size(ax, len(texts))
    outside = (reference < low) | (high < reference)  # False without an interval
    for (k, j), value in np.ndenumerate(rate):
        defined = not np.isnan(value)
        strong = abs(shade[k, j]) > 0.7 if defined else False
        ax.text(
            j,
            k,
            f"{value:.2f}" if defined else "–",
            ha="center",
            va="center",
            fontsize=size,
            color="white" if strong else "black",
            fontweight="bold" if outside[k, j] else "normal",
        )
    names = [
        fill(str(labels.get(m, m)), _LINE, break_long_words=False, break_on_hyphens=False)
        + (f"\n{value:.2f}" if defined else "")
        for m, value, defined in zip(metrics, reference, ~np.isnan(reference), strict=True)
    ]
    ax.set_xticks(range(len(metrics)), [literal(n) for n in names], fontsize=0.9 * base_size())
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(-0.5, len(metrics) - 0.5)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    what = "value" if own_scale else "rate"
    reach = ", each up to the largest difference of its metric" * own_scale
    told = (
        f"Under each metric: its {what} in all rows. Blue is below, orange above{reach}; "
        f"bold where its {100 * level:g}% interval excludes it."
    )
    room = 72 * ax.get_window_extent().width / ax.figure.dpi / base_size()  # in font sizes
    ax.set_xlabel(fill(told, max(int(room / 0.55), 24)), fontsize=base_size())
    layout.head(ax, title, about)
    settle_fonts(ax)
    return ax
