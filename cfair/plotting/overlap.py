"""Overlap of the treatment arms: propensities of all rows, or group by group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from cfair.plotting import layout
from cfair.plotting.style import MARKERS, PALETTE, base_size

Array = NDArray[np.float64]

_ARMS = ("untreated", "treated")
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def plot_overlap(
    fitted: ArrayLike,
    treated: ArrayLike,
    *,
    group: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    truncation: tuple[float, float] = (0.005, 0.995),
    ax: Axes | None = None,
    masked: Sequence[int] = (),
    below: int | None = None,
) -> Axes:
    """Propensities of the treated and the untreated.

    Parameters
    ----------
    fitted : (n,) array_like
        Propensities before truncation.
    treated : (n,) array_like of 0/1
    group : (n,) array_like of int, optional
        Codes of the groups, positions in `names`. With them the figure has a row per group, and
        mirrored histograms of all rows without.
    names : sequence of str, optional
        Names of the groups, given with `group`.
    truncation : (float, float), default (0.005, 0.995)
        Limits that propensities are cut at, drawn as dashed lines.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.
    masked : sequence of int, optional
        Groups whose numbers of rows are not to be seen; their rows say so.
    below : int, optional
        A smaller number of rows outside the limits is not told.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If lengths differ, only one of `group` and `names` is given, or a code has no name.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_overlap([0.2, 0.4, 0.6], [0, 1, 1], ax=Figure().add_subplot())
    >>> ax.get_xlabel()
    'Estimated probability of treatment'
    """
    pi, d = np.asarray(fitted, dtype=np.float64), np.asarray(treated)
    codes = _check(pi, d, group, names)
    ax = layout.check_axes(ax)
    known = np.isfinite(pi)
    lost = int(np.count_nonzero(~known))
    pi, d = pi[known], d[known].astype(int)
    left_out = f"; {lost:,} without a propensity left out" if lost else ""
    handles: list[Artist | None]
    if codes is None or names is None:
        ax = ax or layout.new_axes(4.9, 3.9)
        handles = _mirrored(ax, pi, d)
        labels = [
            f"{_ARMS[arm]} (n = {np.count_nonzero(d == arm):,}), {where}"
            for arm, where in ((1, "upwards"), (0, "downwards"))
        ]
        layout.head(ax, "Overlap of treated and untreated", f"{len(pi):,} rows{left_out}")
    else:
        ax, handles = _by_group(ax, pi, d, codes[known], names, masked)
        labels = [
            "treated",
            "untreated",
            "masked, or an arm without rows" if masked else "arm without rows",
        ]
        layout.head(
            ax,
            "Overlap of treated and untreated by group",
            f"Median, middle half (thick), 5% to 95% (thin){left_out}",
        )
    low, high = truncation
    limits = [
        ax.axvline(x, color="black", linestyle=(0, (4, 3)), linewidth=0.9, zorder=2)
        for x in (low, high)
    ]
    outside = int(np.count_nonzero((pi < low) | (pi > high)))
    told = f"<{below}" if below is not None and 0 < outside < below else f"{outside:,}"
    rows = "row" if told == "1" else "rows"
    labels.append(f"truncation at {low:g} and {high:g} ({told} {rows} outside)")
    marked = codes is not None and handles[-1] is not None
    ax.set_xlim(-0.065 if marked else -0.02, 1.02)
    ax.set_xticks(np.linspace(0, 1, 6))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
    layout.x_label(ax, "Estimated probability of treatment")
    return layout.finish(ax, [*handles, limits[0]], labels)


def _check(
    pi: Array, d: NDArray[np.generic], group: ArrayLike | None, names: Sequence[str] | None
) -> NDArray[np.intp] | None:
    if pi.ndim != 1 or pi.shape != d.shape:
        raise ValueError(
            f"fitted and treated must be 1-D and of one length, not {pi.shape} and {d.shape}."
        )
    if not np.isin(d, (0, 1)).all():
        raise ValueError("treated must be 0 or 1 in every row.")
    if (group is None) != (names is None):
        raise ValueError("group and names go together: give both, or neither.")
    if group is None or names is None:
        return None
    codes = np.asarray(group)
    if codes.shape != pi.shape:
        raise ValueError(f"group must be as long as fitted: {codes.shape} against {pi.shape}.")
    if codes.size and (codes.min() < 0 or codes.max() >= len(names)):
        raise ValueError(
            f"group must have codes from 0 to {len(names) - 1}, the positions in names; "
            f"it has {codes.min()} to {codes.max()}."
        )
    return codes.astype(np.intp)


def _mirrored(ax: Axes, pi: Array, d: NDArray[np.int_]) -> list[Artist | None]:
    """Histograms in percent of the arm, so that a small arm is as visible as a large one."""
    edges = np.linspace(0, 1, 51)
    for arm, sign in ((1, 1), (0, -1)):
        counts, _ = np.histogram(pi[d == arm], edges)
        share = sign * 100 * counts / max(counts.sum(), 1)
        ax.bar(
            edges[:-1],
            share,
            0.02,
            align="edge",
            color=PALETTE[arm],
            edgecolor="white",
            linewidth=0.4,
            zorder=3,
        )
    top = max((abs(y) for y in ax.dataLim.intervaly), default=1.0) or 1.0
    ax.set_ylim(-1.08 * top, 1.08 * top)
    ax.axhline(0, color="black", linewidth=0.8, zorder=4)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{abs(y):g}"))
    ax.tick_params(axis="y", labelsize=0.95 * base_size())
    ax.set_ylabel("Percent of the arm", fontsize=base_size())
    layout.bare(ax, "top", "right")
    return [Patch(facecolor=PALETTE[arm], edgecolor="white") for arm in (1, 0)]


def _by_group(
    ax: Axes | None,
    pi: Array,
    d: NDArray[np.int_],
    codes: NDArray[np.intp],
    names: Sequence[str],
    masked: Sequence[int],
) -> tuple[Axes, list[Artist | None]]:
    K = len(names)
    cells = np.bincount(2 * codes + d, minlength=2 * K).reshape(K, 2)
    hidden = np.isin(np.arange(K), np.asarray(masked, dtype=int))
    sizes = [None if lost else n for n, lost in zip(cells.sum(axis=1), hidden, strict=True)]
    ax = layout.row_axes(ax, layout.row_labels(names, sizes), 2, extra=1.3)
    quantiles = np.full((K, 2, len(_QUANTILES)), np.nan)
    for k, arm in np.argwhere((cells > 0) & ~hidden[:, None]):
        quantiles[k, arm] = np.quantile(pi[(codes == k) & (d == arm)], _QUANTILES)
    handles: list[Artist | None] = [_boxes(ax, quantiles[:, arm], arm) for arm in (1, 0)]
    size = layout.row_size(ax, K)
    nobody = [(float(k), "masked") for k in np.flatnonzero(hidden)]
    nobody += [(float(k), "no rows") for k in np.flatnonzero(~hidden & (cells.sum(axis=1) == 0))]
    one_arm = [
        (_lane(k, arm), f"no {_ARMS[arm]}")
        for k, arm in np.argwhere(cells == 0)
        if cells[k].sum() > 0 and not hidden[k]
    ]
    empty = nobody + one_arm
    positions, notes = [y for y, _ in empty], [note for _, note in empty]
    # The text begins to the right of the lower truncation limit.
    handles.append(layout.mark_undefined(ax, positions, notes, 0.85 * size, gap=26))
    told = [
        "–" if lost else f"{n1:,} / {n0:,}" for (n0, n1), lost in zip(cells, hidden, strict=True)
    ]
    layout.right_column(ax, told, "treated / untreated", size)
    return ax, handles


def _lane(k: float, arm: int) -> float:
    return k - 0.18 if arm else k + 0.18


def _boxes(ax: Axes, quantiles: Array, arm: int) -> Line2D:
    """Quantiles of one arm in all groups; the line of the medians is returned."""
    y = np.array([_lane(k, arm) for k in range(len(quantiles))])
    lane = 0.4 * layout.row_points(ax, len(quantiles))
    colour = PALETTE[arm]
    layout.spans(ax, y, quantiles[:, 0], quantiles[:, 4], colour, 1.0)
    thick = float(np.clip(0.45 * lane, 2.0, 4.5))
    layout.spans(ax, y, quantiles[:, 1], quantiles[:, 3], colour, thick)
    (line,) = ax.plot(
        quantiles[:, 2],
        y,
        linestyle="none",
        marker=MARKERS[arm],
        markersize=float(np.clip(0.65 * lane, 3.0, 6.0)),
        color=colour,
        markerfacecolor="white",
        markeredgewidth=1.2,
        zorder=4,
    )
    return line
