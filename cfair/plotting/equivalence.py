"""Interval diagram of equivalence: which intervals lie inside the margin, outside, or across."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.plotting import layout
from cfair.plotting.forest import row_series
from cfair.plotting.style import GREY, PALETTE

Array = NDArray[np.float64]

#: Verdicts in the order of the legend, and which colour and marker each has.
VERDICTS: dict[str, int] = {"equivalent": 2, "different": 1, "not enough data": 0, "no power": 3}
#: Rows that a figure holds.
MOST_ROWS = 80
#: What lies inside the margin.
SHADE = "#DCE9DF"
#: Ticks of a ratio, on the log scale; the first set with enough of them in view is used.
_TICKS = (
    (1 / 100, 1 / 30, 1 / 10, 1 / 3, 1, 3, 10, 30, 100),
    (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8),
    (0.2, 0.3, 0.5, 0.8, 1, 1.25, 2, 3, 5),
    (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.4, 1.6),
    (0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15),
)


def plot_equivalence(
    frame: pd.DataFrame,
    *,
    labels: Mapping[str, str],
    level: float = 0.9,
    about: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Intervals that decide of equivalence, before the margin; a row per metric and pair.

    Ratios are on the log scale. An interval that goes on beyond the axis ends in an arrow.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns ``metric, group, reference, contrast, estimate, ci_low, ci_high, margin_low,
        margin_high, verdict, note``; one contrast.
    labels : mapping of str to str
        Names of the metrics in print.
    level : float, default 0.9
        Confidence level of the intervals, 1 - 2 alpha.
    about : str, optional
        What kind of rates these are, printed under the title.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError
        If there are too many pairs for one figure.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"metric": "tpr", "group": ["F"], "reference": ["M"],
    ...                       "contrast": "ratio", "estimate": [0.97], "ci_low": [0.9],
    ...                       "ci_high": [1.04], "margin_low": 0.8, "margin_high": 1.25,
    ...                       "verdict": ["equivalent"], "note": ""})
    >>> ax = plot_equivalence(frame, labels={"tpr": "TPR"}, ax=Figure().add_subplot())
    >>> [t.get_text() for t in ax.get_yticklabels()]
    ['F']
    """
    layout.check_axes(ax)
    if len(frame) > MOST_ROWS:
        raise DataError(
            f"a figure holds at most {MOST_ROWS} pairs, not {len(frame):,}. Ask for fewer metrics, "
            "give a reference=, or compare the levels of one attribute=."
        )
    rows = frame.reset_index(drop=True)
    kind = str(rows["contrast"].iloc[0])
    one = rows["reference"].nunique() == 1
    ax = layout.row_axes(
        ax, layout.row_labels(_names(rows, labels, one)), 1, extra=2.6, shaded=False
    )
    y, size = np.arange(len(rows)), layout.row_size(ax, len(rows))
    low, high = _view(rows, kind)
    _scale(ax, kind, low, high)
    shown = rows.assign(
        estimate=rows["estimate"].where(rows["estimate"].between(low, high)),
        ci_low=rows["ci_low"].clip(low, high),
        ci_high=rows["ci_high"].clip(low, high),
    )
    margin = _margins(ax, rows)
    ax.axvline(0.0 if kind == "difference" else 1.0, color=GREY, linewidth=0.9, zorder=1)
    handles: list[Artist | None] = []
    names = []
    for verdict, j in VERDICTS.items():
        mine = rows["verdict"] == verdict
        columns = shown[["estimate", "ci_low", "ci_high"]]
        points = row_series(ax, columns.where(mine), y, j, 1) if mine.any() else None
        handles.append(points)
        names.append(verdict)
        _arrows(ax, rows[mine], low, high, PALETTE[j])
    undefined = (rows["verdict"] == "undefined").to_numpy()
    notes = rows.loc[undefined, "note"].fillna("").astype(str).tolist()
    marks = layout.mark_undefined(ax, y[undefined].tolist(), notes, 0.85 * size)
    head = f"{kind.replace('_', ' ')} [{100 * level:g}% CI]"
    layout.right_column(ax, _numbers(rows), head, size)
    starts = np.flatnonzero((rows["metric"] != rows["metric"].shift()).to_numpy())
    layout.divide(ax, starts[1:].tolist())
    against = f" to {rows['reference'].iloc[0]}" if one else " of the first group to the second"
    what = {"ratio": "Ratio of rates", "odds_ratio": "Odds ratio", "difference": "Difference"}[kind]
    layout.x_label(ax, what + against + ", log scale" * (kind != "difference"))
    metrics = rows["metric"].unique()
    title = (
        f"Equivalence of {labels.get(metrics[0], metrics[0])}"
        if len(metrics) == 1
        else "Equivalence"
    )
    layout.head(ax, f"{title} between groups", about)
    return layout.finish(ax, [*handles, margin, marks], [*names, "within the margin", None])


def _names(rows: pd.DataFrame, labels: Mapping[str, str], one: bool) -> list[str]:
    """Metric and groups of each row, each named only where it is not the same throughout."""
    pairs = rows["group"].astype(str)
    if not one:
        pairs = pairs + " to " + rows["reference"].astype(str)
    if rows["metric"].nunique() == 1:
        return pairs.tolist()
    metrics = [str(labels.get(metric, metric)) for metric in rows["metric"]]
    return [f"{metric}: {pair}" for metric, pair in zip(metrics, pairs, strict=True)]


def _view(rows: pd.DataFrame, kind: str) -> tuple[float, float]:
    """Ends of the axis: margins, estimates and intervals, but none that dwarfs the margin."""
    ends = (rows["margin_low"].min(), rows["margin_high"].max())
    values = rows[["estimate", "ci_low", "ci_high"]].to_numpy(float)
    if kind == "difference":
        wide = 4 * max(-ends[0], ends[1])
        finite = values[np.isfinite(values)]
        low = max(min(finite.min(initial=ends[0]), 1.3 * ends[0]), -wide)
        high = min(max(finite.max(initial=ends[1]), 1.3 * ends[1]), wide)
        room = 0.03 * (high - low)
        return low - room, high + room
    wide = 4 * max(-np.log(ends[0]), np.log(ends[1]))
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    finite = logs[np.isfinite(logs)]
    low = max(min(finite.min(initial=0.0), 1.3 * np.log(ends[0])), -wide)
    high = min(max(finite.max(initial=0.0), 1.3 * np.log(ends[1])), wide)
    room = 0.03 * (high - low)
    return float(np.exp(low - room)), float(np.exp(high + room))


def _scale(ax: Axes, kind: str, low: float, high: float) -> None:
    if kind == "difference":
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    else:
        ax.set_xscale("log")
        inside = [[t for t in ticks if low <= t <= high] for ticks in _TICKS]
        enough = next((t for t in inside if len(t) >= 4), inside[-1])
        ax.xaxis.set_major_locator(FixedLocator(enough))
        ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
    ax.set_xlim(low, high)


def _margins(ax: Axes, rows: pd.DataFrame) -> Patch:
    """Shade the margin behind every row."""
    for k, (low, high) in enumerate(zip(rows["margin_low"], rows["margin_high"], strict=True)):
        patch = Rectangle((low, k - 0.5), high - low, 1, facecolor=SHADE, linewidth=0, zorder=0)
        ax.add_patch(patch)
        ax.vlines([low, high], k - 0.5, k + 0.5, color="0.6", linewidth=0.8, zorder=1)
    return Patch(facecolor=SHADE, edgecolor="0.6", linewidth=0.8)


def _arrows(ax: Axes, rows: pd.DataFrame, low: float, high: float, color: str) -> None:
    """Mark where an interval goes on beyond the axis."""
    for end, beyond, marker in (
        (low, rows["ci_low"] < low, "<"),
        (high, rows["ci_high"] > high, ">"),
    ):
        at = rows.index[beyond].to_numpy()
        if len(at):
            ax.plot(
                np.full(len(at), end), at, linestyle="none", marker=marker, markersize=5,
                color=color, clip_on=False, zorder=4,
            )  # fmt: skip


def _numbers(rows: pd.DataFrame) -> list[str]:
    """Estimate, interval and verdict; nothing where undefined."""
    texts = []
    for row in rows.to_dict("records"):
        values = [row["estimate"], row["ci_low"], row["ci_high"]]
        if row["verdict"] == "undefined":
            texts.append("")
            continue
        shown = ["∞" if np.isinf(v) else f"{v:.2f}" for v in values]
        texts.append(f"{shown[0]} [{shown[1]}, {shown[2]}]  {row['verdict']}")
    return texts
