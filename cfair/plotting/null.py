"""The observed disparity beside what chance alone gives."""

from __future__ import annotations

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from cfair.plotting import layout
from cfair.plotting.style import GREY, LIGHT_GREY, base_size

Array = NDArray[np.float64]

#: Of the draws that the observed value exceeds by more than delta.
_COLOUR, _HATCH = "#E69F00", "////"


def plot_null(
    null: ArrayLike,
    observed: float,
    *,
    title: str,
    p_value: float | None = None,
    u_value: float | None = None,
    delta: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Null distribution of a disparity, with the observed value.

    Parameters
    ----------
    null : (R,) array_like
        Null draws; undefined ones (NaN) are left out and counted under the title.
    observed : float
        Observed value; NaN if undefined.
    title : str
        What is shown, such as ``"Average difference in cFPR"``.
    p_value, u_value : float, optional
        Printed in the legend.
    delta : float, optional
        Draws that the observed value exceeds by more than this are coloured; their share is the
        u-value.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If `null` does not have one dimension.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_null([0.1, 0.2, float("nan")], 0.3, title="Average difference in cFPR",
    ...                ax=Figure().add_subplot())
    >>> ax.texts[0].get_text()
    '2 null draws; 1 undefined, left out'
    """
    draws = np.asarray(null, dtype=np.float64)
    if draws.ndim != 1:
        raise ValueError(f"null must be a 1-D array of draws, not of shape {draws.shape}.")
    kept = draws[np.isfinite(draws)]
    ax = layout.check_axes(ax) or layout.new_axes(4.9, 3.7)
    delta = None if delta is None or np.isnan(delta) else float(delta)
    limit = None if delta is None or not np.isfinite(observed) else float(observed) - delta
    _histogram(ax, kept, limit, float(observed))
    handles: list[Artist | None] = [
        Patch(facecolor=LIGHT_GREY, edgecolor="white") if kept.size else None,
        Patch(facecolor=_COLOUR, edgecolor="white", hatch=_HATCH)
        if limit is not None and kept.size
        else None,
        None,
    ]
    if np.isfinite(observed):
        handles[2] = ax.axvline(float(observed), color="black", linewidth=1.8, zorder=5)
    else:
        _say(ax, "observed value undefined", 0.8)
    _scale(ax, kept, float(observed))
    layout.head(ax, title, _counted(draws.size, kept.size))
    return layout.finish(ax, handles, _entries(float(observed), p_value, u_value, delta))


def _histogram(ax: Axes, kept: Array, limit: float | None, observed: float) -> None:
    """Bars in grey; those below the limit coloured, with the limit as an edge between bars."""
    if not kept.size:
        _say(ax, "no defined null draw", 0.5)
        return
    edges = _edges(kept, limit, observed)
    counts, _ = np.histogram(kept, edges)
    centres = (edges[1:] + edges[:-1]) / 2
    below = np.zeros(len(counts), bool) if limit is None else centres < limit
    for chosen, colour, hatch in ((~below, LIGHT_GREY, None), (below, _COLOUR, _HATCH)):
        if chosen.any():
            ax.bar(
                edges[:-1][chosen],
                counts[chosen],
                np.diff(edges)[chosen],
                align="edge",
                color=colour,
                edgecolor="white",
                linewidth=0.5,
                hatch=hatch,
                zorder=3,
            )


def _edges(kept: Array, limit: float | None, observed: float) -> Array:
    low, high = float(kept.min()), float(kept.max())
    scale = max(abs(low), abs(high), abs(observed) if np.isfinite(observed) else 0.0, 1e-6)
    if high - low <= 1e-9 * scale:  # all draws equal: one narrow bar
        return np.array([low - 0.01 * scale, low + 0.01 * scale])
    width = (high - low) / np.clip(np.sqrt(kept.size), 8, 40)
    start = low if limit is None else limit
    first = int(np.floor((low - start) / width))
    last = int(np.floor((high - start) / width)) + 1
    if max(abs(first), abs(last)) > 10**6:  # so far off that edges would be rounded away
        return np.linspace(low, high, 30)
    edges: Array = start + width * np.arange(first, last + 1)
    return edges


def _say(ax: Axes, text: str, height: float) -> None:
    ax.text(
        0.5, height, text, transform=ax.transAxes, ha="center", color=GREY, fontsize=base_size()
    )


def _scale(ax: Axes, kept: Array, observed: float) -> None:
    seen = np.append(kept, observed)
    seen = seen[np.isfinite(seen)]
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 1.0)
    low = min(low, 0.0)  # a disparity is read from 0
    span = (high - low) or 1.0
    ax.set_xlim(low - 0.03 * span, high + 0.06 * span)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    ax.set_ylim(bottom=0)
    if not kept.size:
        ax.set_yticks([])
    ax.tick_params(axis="y", labelsize=0.95 * base_size())
    layout.bare(ax, "top", "right")
    ax.set_axisbelow(True)
    layout.x_label(ax, "Value if group membership made no difference")
    ax.set_ylabel("Null draws", fontsize=base_size())


def _counted(n: int, n_kept: int) -> str:
    text = f"{n_kept:,} null draws"
    return text if n == n_kept else f"{text}; {n - n_kept:,} undefined, left out"


def _entries(
    observed: float, p_value: float | None, u_value: float | None, delta: float | None
) -> list[str]:
    p = [] if p_value is None else [_share("p", p_value)]
    u = [] if u_value is None else [_share("u", u_value)]
    if delta is None:
        p, u = p + u, []
    below = "draws that the observed value exceeds by more than "
    below = "" if delta is None else f"{below}{delta:.3g}"
    return ["null draws", _with(below, u), _with(f"observed value, {observed:.3g}", p)]


def _with(text: str, numbers: list[str]) -> str:
    return f"{text} ({', '.join(numbers)})" if numbers else text


def _share(name: str, value: float) -> str:
    if not np.isfinite(value):
        return f"{name} undefined"
    if value == 0:
        return f"{name} = 0"
    if value < 0.001:
        return f"{name} < 0.001"
    return f"{name} = {value:.3f}" if value < 0.1 else f"{name} = {value:.2f}"
