"""Forest plot of interaction contrasts, with what the flag "superadditive" says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from cfair.disclosure import MASKED
from cfair.plotting import layout
from cfair.plotting.style import GREY, MARKERS, PALETTE

#: Series that can still be told apart within a row.
MOST_METRICS = 4


def plot_interaction(
    frame: pd.DataFrame,
    *,
    metrics: Sequence[str],
    labels: Mapping[str, str],
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Interaction contrasts with their intervals, a row per pair of levels.

    Parameters
    ----------
    frame : pandas.DataFrame
        As ``contrasts`` of the result of ``Audit.interaction``.
    metrics : sequence of str
        Up to four.
    labels : mapping of str to str
        Names of the metrics in print.
    level : float, default 0.95
        Confidence level of the intervals.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there are more than four metrics or none.
    """
    if not 0 < len(metrics) <= MOST_METRICS:
        raise ValueError(
            f"metrics must name one to {MOST_METRICS} metrics for one panel, not {len(metrics)}."
        )
    layout.check_axes(ax)
    parts = [frame[frame["metric"] == metric].reset_index(drop=True) for metric in metrics]
    rows, against = _labels(parts[0])
    ax = layout.row_axes(ax, layout.row_labels(rows), len(parts))
    ax.axvline(0, color=GREY, linewidth=0.9, zorder=1)
    step, middle = min(0.36, 0.8 / len(parts)), (len(parts) - 1) / 2
    handles: list[Artist | None] = []
    flagged: Line2D | None = None
    missing: list[tuple[float, str]] = []
    for j, part in enumerate(parts):
        y = np.arange(len(part)) + (j - middle) * step
        points, ring = _series(ax, part, y, j, len(parts))
        handles.append(points)
        flagged = ring or flagged
        undefined = part["contrast"].isna().to_numpy()
        missing += [(y[k], _reason(part["note"].iloc[k])) for k in np.flatnonzero(undefined)]
    values = np.concatenate(
        [p[["contrast", "ci_low", "ci_high"]].to_numpy().ravel() for p in parts]
    )
    _difference_axis(ax, values)
    lane = 0.8 * layout.row_points(ax, len(rows)) / len(parts)
    size = min(lane, 0.85 * layout.row_size(ax, len(rows)))
    marks = layout.mark_undefined(ax, [y for y, _ in missing], [n for _, n in missing], size)
    layout.x_label(ax, f"both − first only − second only + neither, with {100 * level:g}% interval")
    layout.head(ax, "Interaction contrasts", f"0: the effects of the two add up{against}")
    names = [str(labels.get(metric, metric)) for metric in metrics]
    return layout.finish(ax, [*handles, flagged, marks], [*names, "flagged as superadditive", None])


def _reason(note: str) -> str:
    """Why there is no contrast, which comes first in a note; of masked cells not in which."""
    reason = note.split("; ")[0]
    return reason.rpartition(" in ")[0] if reason.startswith(MASKED) else reason


def _labels(part: pd.DataFrame) -> tuple[list[str], str]:
    """Labels of rows; references, where each attribute has one throughout, are said once."""
    sides = [part[[f"attribute_{w}", f"reference_{w}"]].to_numpy().tolist() for w in "ab"]
    pairs = {(attribute, reference) for side in sides for attribute, reference in side}
    if len(pairs) == len({attribute for attribute, _ in pairs}):
        rows = [f"{r.level_a} × {r.level_b}" for r in part.itertuples()]
        names = dict.fromkeys(reference for side in sides for _, reference in side)
        return rows, f"; against {', '.join(map(str, names))}"
    return [
        f"{r.level_a} (v {r.reference_a}) × {r.level_b} (v {r.reference_b})"
        for r in part.itertuples()
    ], ""


def _series(
    ax: Axes, part: pd.DataFrame, y: np.ndarray, j: int, n_series: int
) -> tuple[Line2D, Line2D | None]:
    """Points with intervals, and rings around those that are flagged."""
    lane = 0.8 * layout.row_points(ax, len(part)) / n_series
    size = float(np.clip(0.6 * lane, 3.6, 6.0))
    low, high = part["ci_low"].to_numpy(float), part["ci_high"].to_numpy(float)
    layout.spans(ax, y, low, high, PALETTE[j], 0.9 + 0.08 * size)
    x = part["contrast"].to_numpy(float)
    (points,) = ax.plot(
        x, y, linestyle="none", marker=MARKERS[j], markersize=size, color=PALETTE[j],
        markeredgecolor="white", markeredgewidth=0.4, zorder=4,
    )  # fmt: skip
    flag = part["superadditive"].fillna(False).to_numpy(dtype=bool) & np.isfinite(x)
    if not flag.any():
        return points, None
    (ring,) = ax.plot(
        x[flag], y[flag], linestyle="none", marker="o", markersize=size + 4.5,
        markerfacecolor="none", markeredgecolor="black", markeredgewidth=1.1, zorder=5,
    )  # fmt: skip
    return points, ring


def _difference_axis(ax: Axes, values: np.ndarray) -> None:
    """Axis that holds all values and 0, with plain numbers."""
    known = values[np.isfinite(values)]
    low, high = min(known.min(initial=0.0), -0.02), max(known.max(initial=0.0), 0.02)
    room = 0.04 * (high - low)
    ax.set_xlim(low - room, high + room)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
