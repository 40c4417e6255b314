"""Gap overview: the widest gap of every metric, by attribute and by intersection."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from cfair.plotting import layout
from cfair.plotting.forest import expected_marks, interval_texts, row_series

#: Shades of the bands behind the gaps, from acceptable to severe.
BANDS = ("white", "0.945", "0.88")


def plot_gaps(
    frame: pd.DataFrame,
    *,
    labels: Mapping[str, str],
    level: float = 0.95,
    severity: tuple[float, float] = (0.05, 0.15),
    about: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Widest gaps with their intervals, before bands of severity.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns ``metric, by, group, reference, gap, ci_low, ci_high, expected_if_equal, note``.
    labels : mapping of str to str
        Names of the metrics in print.
    level : float, default 0.95
        Confidence level of the intervals.
    severity : tuple of two floats, default (0.05, 0.15)
        Where the bands begin.
    about : str, optional
        What kind of rates these are, printed under the title.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.

    Returns
    -------
    matplotlib Axes
    """
    layout.check_axes(ax)
    rows = frame.reset_index(drop=True).rename(columns={"gap": "estimate"})
    texts = [
        f"{labels.get(metric, metric)}, by {by}"
        for metric, by in zip(rows["metric"], rows["by"], strict=True)
    ]
    numbers = _numbers(rows)
    room = 0.3 + 0.068 * max(map(len, numbers), default=0)
    ax = layout.row_axes(ax, layout.row_labels(texts), 1, extra=room, shaded=False)
    y, size = np.arange(len(rows)), layout.row_size(ax, len(rows))
    values = [rows[c] for c in ("estimate", "ci_low", "ci_high", "expected_if_equal")]
    observed = row_series(ax, rows, y, 0, 1)
    expected = expected_marks(ax, rows["expected_if_equal"], y)
    undefined = rows["estimate"].isna().to_numpy()
    notes = rows.loc[undefined, "note"].fillna("").astype(str).tolist()
    marks = layout.mark_undefined(ax, y[undefined].tolist(), notes, 0.85 * size)
    layout.right_column(ax, numbers, f"gap [{100 * level:g}% CI], between", size)
    layout.proportion_axis(ax, [*values, [1.2 * severity[1]]], room=marks is not None)
    bands = _bands(ax, severity)
    starts = np.flatnonzero((rows["metric"] != rows["metric"].shift()).to_numpy())
    layout.divide(ax, starts[1:].tolist())
    layout.x_label(ax, "Difference between the highest and the lowest rate")
    layout.head(ax, "Widest gap between groups", about)
    return layout.finish(
        ax,
        [observed, expected, *bands, marks],
        [
            f"gap, with {100 * level:g}% confidence interval",
            "expected from chance alone if all rates were equal",
            f"acceptable, below {severity[0]:g}",
            "moderate",
            f"severe, above {severity[1]:g}",
            None,
        ],
    )


def _numbers(rows: pd.DataFrame) -> list[str]:
    """Gap and interval, and the two groups."""
    pairs = [
        f"{layout.row_labels([a])[0]}, {layout.row_labels([b])[0]}" if isinstance(a, str) else ""
        for a, b in zip(rows["group"], rows["reference"], strict=True)
    ]
    return [f"{text}  {pair}" for text, pair in zip(interval_texts(rows), pairs, strict=True)]


def _bands(ax: Axes, severity: tuple[float, float]) -> list[Patch]:
    """Shade by severity; a patch for each band."""
    low, high = ax.get_xlim()
    ends = [low, *severity, high]
    for k, shade in enumerate(BANDS):
        ax.axvspan(ends[k], ends[k + 1], facecolor=shade, linewidth=0, zorder=-1)
    ax.set_xlim(low, high)
    return [Patch(facecolor=shade, edgecolor="0.7", linewidth=0.6) for shade in BANDS]
