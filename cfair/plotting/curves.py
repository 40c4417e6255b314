"""Curves of a score by group, a panel each: ROC, calibration, decision curves; and a forest."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from cfair.plotting import layout
from cfair.plotting.style import (
    GREY,
    LIGHT_GREY,
    MARKERS,
    PALETTE,
    base_size,
    literal,
    plain,
    printable,
    settle_fonts,
)
from cfair.tables import shorten_all

Array = NDArray[np.float64]

#: Panels of one figure; with more groups those farthest from all rows are drawn, and it says so.
MOST_PANELS = 20
#: Points of a curve that are drawn; more cannot be seen.
MOST_POINTS = 500
#: Groups that have a colour of their own where all are in one Axes.
MOST_COLOURS = 4
#: A group with fewer events or non-events says too little to be the background of the others, or
#: to set the limits of common axes.
LEAST_CLASS = 10
_STYLES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.2, 1.5)))


def plot_roc(
    curves: pd.DataFrame,
    about_groups: pd.DataFrame,
    *,
    level: float = 0.95,
    about: str = "",
    ax: Axes | None = None,
) -> Figure | Axes:
    """ROC curves: a panel per group over all the others, or all in one Axes.

    Parameters
    ----------
    curves : pandas.DataFrame
        Columns ``group, fpr, tpr, tpr_low, tpr_high``, in the order of falling thresholds.
    about_groups : pandas.DataFrame
        A row per group: ``group, n, events, estimate`` (AUC), ``ci_low, ci_high, overall, note``.
    level : float, default 0.95
    about : str, optional
        Printed under the title.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Figure with a panel per group, or the Axes given
    """
    ax = layout.check_axes(ax)
    lines = {str(g): (c["fpr"].to_numpy(), c["tpr"].to_numpy()) for g, c in curves.groupby("group")}
    title = "ROC curves by group"
    names = ("False positive rate", "True positive rate")
    if ax is not None:
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":", zorder=1)
        _unit_axes(ax)
        return _together(ax, lines, about_groups, "AUC", title, about, names)
    behind, others = _background(lines, about_groups)
    axes, shown, more = _panels(about_groups)
    for panel, (_, row) in zip(axes, shown.iterrows(), strict=True):
        _panel_head(panel, row, "AUC")
        _unit_axes(panel)
        panel.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":", zorder=1)
        _others(panel, behind, row["group"])
        own = curves[curves["group"] == row["group"]]
        if own.empty:
            _say_why(panel, row["note"])
            continue
        own = own.iloc[_thin(len(own))]
        x, y, low, high = (own[c].to_numpy() for c in ("fpr", "tpr", "tpr_low", "tpr_high"))
        panel.fill_between(x, low, high, color=PALETTE[0], alpha=0.22, linewidth=0, zorder=2)
        panel.plot(x, y, color=PALETTE[0], linewidth=1.6, zorder=3)
    entries = [
        (Line2D([], [], color=PALETTE[0], linewidth=1.6), "the group"),
        (
            Patch(facecolor=PALETTE[0], alpha=0.22),
            f"{100 * level:g}% interval of its true positive rate at each threshold",
        ),
        (Line2D([], [], color=LIGHT_GREY, linewidth=0.9), others),
        (Line2D([], [], color=GREY, linewidth=0.8, linestyle=":"), "chance"),
    ]
    return _finish(axes, entries, title, "; ".join(filter(None, [about, more])), names)


def plot_calibration(
    points: pd.DataFrame,
    curves: pd.DataFrame,
    about_groups: pd.DataFrame,
    *,
    level: float = 0.95,
    about: str = "",
    ax: Axes | None = None,
) -> Figure | Axes:
    """Calibration: event rates against scores, a panel per group, or all curves in one Axes.

    Parameters
    ----------
    points : pandas.DataFrame
        Columns ``group, mean_score, event_rate, ci_low, ci_high``, a row per bin.
    curves : pandas.DataFrame
        Columns ``group, score, event_rate, ci_low, ci_high``: logistic recalibration.
    about_groups : pandas.DataFrame
        A row per group: ``group, n, events, estimate`` (slope), ``ci_low, ci_high, overall, note``.
    level : float, default 0.95
    about : str, optional
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Figure with a panel per group, or the Axes given
    """
    ax = layout.check_axes(ax)
    lines = {
        str(g): (c["score"].to_numpy(), c["event_rate"].to_numpy())
        for g, c in curves.groupby("group")
    }
    title, names = "Calibration by group", ("Score", "Event rate")
    enough = _enough(about_groups)
    of_enough = [frame[frame["group"].isin(enough)] for frame in (points, curves)]
    rates = [frame["event_rate"] for frame in of_enough]
    # a score is seen whole, however few have it
    seen = [points["mean_score"], curves["score"], *rates]
    top = max((float(s.max()) for s in seen if len(s)), default=1.0)
    top = 1.0 if top > 0.6 else max(1.15 * top, 0.05)
    if ax is not None:
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":", zorder=1)
        _unit_axes(ax, top)
        return _together(ax, lines, about_groups, "slope", title, about, names)
    behind, others = _background(lines, about_groups)
    axes, shown, more = _panels(about_groups)
    for panel, (_, row) in zip(axes, shown.iterrows(), strict=True):
        _panel_head(panel, row, "slope")
        _unit_axes(panel, top)
        panel.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":", zorder=1)
        _others(panel, behind, row["group"])
        own = curves[curves["group"] == row["group"]]
        x, y, low, high = (own[c].to_numpy() for c in ("score", "event_rate", "ci_low", "ci_high"))
        panel.fill_between(x, low, high, color=PALETTE[0], alpha=0.22, linewidth=0, zorder=2)
        panel.plot(x, y, color=PALETTE[0], linewidth=1.6, zorder=3)
        bins = points[points["group"] == row["group"]]
        x, y, low, high = (
            bins[c].to_numpy() for c in ("mean_score", "event_rate", "ci_low", "ci_high")
        )
        panel.vlines(x, low, high, color=PALETTE[1], linewidth=0.9, zorder=4)
        panel.plot(
            x, y, linestyle="none", marker=MARKERS[1], markersize=3.6, color=PALETTE[1], zorder=5
        )
        if own.empty:
            _say_why(panel, row["note"], top, spans=(low, high))
    percent = f"{100 * level:g}% interval"
    entries = [
        (
            Line2D([], [], color=PALETTE[1], marker=MARKERS[1], markersize=3.6, linewidth=0.9),
            f"event rate in bins of the score, {percent}",
        ),
        (Line2D([], [], color=PALETTE[0], linewidth=1.6), "logistic recalibration"),
        (Patch(facecolor=PALETTE[0], alpha=0.22), f"its {percent}"),
        (Line2D([], [], color=LIGHT_GREY, linewidth=0.9), others),
        (Line2D([], [], color=GREY, linewidth=0.8, linestyle=":"), "perfect calibration"),
    ]
    return _finish(axes, entries, title, "; ".join(filter(None, [about, more])), names)


def plot_net_benefit(
    frame: pd.DataFrame,
    about_groups: pd.DataFrame,
    *,
    level: float = 0.95,
    about: str = "",
    standardized: bool = False,
    ax: Axes | None = None,
) -> Figure | Axes:
    """Decision curves: a panel per group with its band, or all groups in one Axes.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns ``group, threshold, net_benefit, ci_low, ci_high, treat_all``, and for
        `standardized` those of its name, and ``events`` and ``n``.
    about_groups : pandas.DataFrame
        A row per group: ``group, n, events, estimate`` (prevalence), ``ci_low, ci_high, overall,
        note``.
    level : float, default 0.95
    about : str, optional
    standardized : bool, default False
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Figure with a panel per group, or the Axes given
    """
    ax = layout.check_axes(ax)
    value, low, high = (
        ("standardized", "standardized_low", "standardized_high")
        if standardized
        else ("net_benefit", "ci_low", "ci_high")
    )
    if standardized:  # at threshold 0 calling everybody gains the prevalence
        prevalence = about_groups.set_index("group")["estimate"].reindex(frame["group"]).to_numpy()
        safe = np.where(prevalence > 0, prevalence, np.nan)
        frame = frame.assign(treat_all=frame["treat_all"] / safe)
    lines = {
        str(g): (c["threshold"].to_numpy(), c[value].to_numpy())
        for g, c in frame.groupby("group")
        if c[value].notna().any()
    }
    name = "Standardized net benefit" if standardized else "Net benefit"
    title, names = f"{name} by group", ("Threshold", name)
    common = frame[frame["group"].isin(_enough(about_groups))]
    top = float(np.nanmax(common[[value, high]].to_numpy(float), initial=0.01))
    top = min(top, 1.0)
    bottom = -0.25 * top
    right = float(frame["threshold"].max())
    if ax is not None:
        _decision_axes(ax, right, bottom, top)
        whole = float(about_groups["overall"].iloc[0])
        x = np.unique(frame["threshold"].to_numpy(float))
        y = (whole - x / (1 - x) * (1 - whole)) / (whole if standardized else 1.0)
        (everybody,) = ax.plot(x, y, color=GREY, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
        also = [(everybody, "calling everybody, all rows"), (_nobody(), "calling nobody")]
        return _together(ax, lines, about_groups, "prevalence", title, about, names, also)
    axes, shown, more = _panels(about_groups)
    for panel, (_, row) in zip(axes, shown.iterrows(), strict=True):
        _panel_head(panel, row, "prevalence")
        _decision_axes(panel, right, bottom, top)
        own = frame[frame["group"] == row["group"]]
        if own[value].isna().all():
            _say_why(panel, row["note"] or "no events", right, bottom, top)
            continue
        x = own["threshold"].to_numpy()
        panel.plot(x, own["treat_all"], color=GREY, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
        panel.fill_between(
            x, own[low], own[high], color=PALETTE[0], alpha=0.22, linewidth=0, zorder=3
        )
        panel.plot(x, own[value], color=PALETTE[0], linewidth=1.6, zorder=4)
    entries = [
        (Line2D([], [], color=PALETTE[0], linewidth=1.6), "calling those at or above it"),
        (Patch(facecolor=PALETTE[0], alpha=0.22), f"{100 * level:g}% interval, pointwise"),
        (Line2D([], [], color=GREY, linewidth=1.0, linestyle=(0, (4, 2))), "calling everybody"),
        (_nobody(), "calling nobody"),
    ]
    if _too_few(about_groups):
        said = f"(axes fit groups with {LEAST_CLASS} or more events and non-events)"
        entries.append((Line2D([], [], linestyle="none"), said))
    return _finish(axes, entries, title, "; ".join(filter(None, [about, more])), names)


def plot_score_metric(
    frame: pd.DataFrame,
    *,
    label: str,
    overall: float,
    target: float | None = None,
    level: float = 0.95,
    about: str = "",
    sections: Sequence[int] = (),
    ax: Axes | None = None,
) -> Axes:
    """One metric by group with its intervals, a row per group, on the metric's own scale.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns ``group, n, estimate, ci_low, ci_high, note``, the first group on top.
    label : str
        Name of the metric.
    overall : float
        Its value in all rows, drawn as a line.
    target : float, optional
        Its value for a perfect score, drawn as a dashed line.
    level : float, default 0.95
    about : str, optional
    sections : sequence of int, optional
        Rows that a line is drawn above.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    layout.check_axes(ax)
    ax = layout.row_axes(ax, layout.row_labels(frame["group"], frame["n"]), 1, extra=1.5)
    y = np.arange(len(frame))
    estimate, low, high = (frame[c].to_numpy(float) for c in ("estimate", "ci_low", "ci_high"))
    size = layout.row_size(ax, len(frame))
    lane = layout.row_points(ax, len(frame))
    marker = float(np.clip(0.5 * lane, 3.8, 6.0))
    layout.spans(ax, y, low, high, PALETTE[0], 1.4)
    (points,) = ax.plot(
        estimate, y, linestyle="none", marker=MARKERS[0], markersize=marker, color=PALETTE[0],
        markeredgecolor="white", markeredgewidth=0.4, zorder=4,
    )  # fmt: skip
    handles: list[Artist | None] = [points]
    names = [f"{label}, with {100 * level:g}% confidence interval"]
    values = np.concatenate([estimate, low, high, [overall]])
    if np.isfinite(overall):
        handles.append(ax.axvline(overall, color=GREY, linewidth=1.0, zorder=2))
        names.append(f"all rows, {overall:.3g}")
    if target is not None:
        line = ax.axvline(target, color="black", linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
        handles.append(line)
        names.append(f"perfect score, {target:g}")
        values = np.append(values, target)
    seen = values[np.isfinite(values)]
    if seen.size:
        span = (seen.max() - seen.min()) or 0.1
        ax.set_xlim(seen.min() - 0.06 * span, seen.max() + 0.06 * span)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
    undefined = np.isnan(estimate)
    notes = [str(note) or "undefined" for note in frame["note"][undefined]]
    marks = layout.mark_undefined(ax, y[undefined].tolist(), notes, 0.85 * size)
    handles.append(marks)
    texts = [
        "" if np.isnan(e) else f"{e:.2f}" + ("" if np.isnan(a) else f" [{a:.2f}, {b:.2f}]")
        for e, a, b in zip(estimate, low, high, strict=True)
    ]
    layout.divide(ax, sections)
    layout.right_column(ax, texts, f"estimate [{100 * level:g}% CI]", size)
    layout.x_label(ax, label)
    layout.head(ax, f"{label} by group", about)
    return layout.finish(ax, handles, [*names, None])


# -- panels ---------------------------------------------------------------------------------------


def _panels(about_groups: pd.DataFrame) -> tuple[NDArray[Any], pd.DataFrame, str]:
    """Axes for the groups, the groups that get one, and a word on those that do not."""
    from matplotlib import pyplot as plt

    shown, more = about_groups, ""
    if len(about_groups) > MOST_PANELS:
        distance = (about_groups["estimate"] - about_groups["overall"]).abs().fillna(-1.0)
        chosen = distance.sort_values(ascending=False, kind="stable").index[:MOST_PANELS]
        shown = about_groups.loc[sorted(chosen)]
        more = f"{MOST_PANELS} of {len(about_groups)} groups, those farthest from all rows"
    n = len(shown)
    columns = n if n <= 3 else 2 if n == 4 else 3 if n <= 9 else 4 if n <= 12 else 5
    rows = -(-n // columns)
    scale, side = base_size() / 9, 2.9 if columns <= 2 else 2.3
    figure = plt.figure(
        figsize=(scale * (side * columns + 0.5), scale * ((side + 0.4) * rows + 1.2)),
        layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.1),
    )
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for spare in grid[n:]:
        spare.remove()
    for k, panel in enumerate(grid[:n]):  # also above a gap in the last row
        panel.tick_params(axis="x", labelbottom=k >= n - columns)
    return grid[:n], shown, more


def _panel_head(ax: Axes, row: pd.Series, metric: str) -> None:
    """Name of the group, and in grey its size and the value of a metric."""
    base = base_size()
    value = "undefined"
    if np.isfinite(row["estimate"]):
        value = f"{row['estimate']:.2f}"
        if np.isfinite(row["ci_low"]):
            value += f" [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
    events = f"{row['events']:,} event{'s' * (row['events'] != 1)}"
    lines = f"n = {row['n']:,}, {events}\n{metric} {value}"
    ax.set_title(
        literal(shorten_all([printable(row["group"])], 26)[0]), loc="left", fontsize=base,
        pad=5 + 2.35 * base,
    )  # fmt: skip
    ax.annotate(
        lines, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points",
        fontsize=0.85 * base, color=GREY, va="bottom", annotation_clip=False, linespacing=1.15,
    )  # fmt: skip


def _unit_axes(ax: Axes, top: float = 1.0) -> None:
    ax.set_xlim(-0.02 * top, 1.02 * top)
    ax.set_ylim(-0.02 * top, 1.02 * top)
    ax.set_aspect("equal", adjustable="box")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
    layout.bare(ax, "top", "right")
    ax.tick_params(axis="both", labelsize=0.85 * base_size())


def _decision_axes(ax: Axes, right: float, bottom: float, top: float) -> None:
    ax.set_xlim(0, right)
    ax.set_ylim(bottom, 1.05 * top)
    ax.axhline(0, color="black", linewidth=0.8, zorder=1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
    layout.bare(ax, "top", "right")
    ax.tick_params(axis="both", labelsize=0.85 * base_size())


def _others(ax: Axes, lines: dict[str, tuple[Array, Array]], name: str) -> None:
    """Curves of the other groups, thin and grey, to see the group against them."""
    for other, (x, y) in lines.items():
        if other != str(name):
            chosen = _thin(len(x))
            ax.plot(x[chosen], y[chosen], color=LIGHT_GREY, linewidth=0.7, zorder=1.5)


def _say_why(
    ax: Axes,
    note: str,
    right: float = 1.0,
    bottom: float = 0.0,
    top: float | None = None,
    spans: tuple[Array, Array] = (np.empty(0), np.empty(0)),
) -> None:
    """A panel without a curve says why it has none, where and behind what it covers least."""
    top = right if top is None else top
    places = bottom + (top - bottom) * np.array([0.5, 0.88, 0.7, 0.3, 0.12])
    reach = 0.12 * (top - bottom)
    low, high = spans
    covered = [np.count_nonzero((low < y + reach) & (high > y - reach)) for y in places]
    ax.annotate(
        fill(plain(note or "no curve"), 30), (right / 2, places[int(np.argmin(covered))]),
        ha="center", va="center", fontsize=0.85 * base_size(), color="black", zorder=1.8,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
    )  # fmt: skip


def _too_few(about_groups: pd.DataFrame) -> int:
    """Number of groups that are left out of backgrounds and limits."""
    return len(about_groups) - len(_enough(about_groups))


def _enough(about_groups: pd.DataFrame) -> list[str]:
    """Groups with enough events and non-events; all of them, if none has."""
    rarer = np.minimum(about_groups["events"], about_groups["n"] - about_groups["events"])
    kept = about_groups.loc[rarer >= LEAST_CLASS, "group"]
    return [str(g) for g in (kept if len(kept) else about_groups["group"])]


def _background(
    lines: dict[str, tuple[Array, Array]], about_groups: pd.DataFrame
) -> tuple[dict[str, tuple[Array, Array]], str]:
    """The curves that groups are seen against, and what they are called."""
    enough = _enough(about_groups)
    which = f" with {LEAST_CLASS} or more events and non-events" * bool(_too_few(about_groups))
    return {g: line for g, line in lines.items() if g in enough}, f"the other groups{which}"


def _nobody() -> Line2D:
    return Line2D([], [], color="black", linewidth=0.8)


def _thin(n: int) -> NDArray[np.intp]:
    """Positions of the points that are drawn, first and last included."""
    return np.unique(np.linspace(0, n - 1, min(n, MOST_POINTS)).astype(np.intp))


def _finish(
    axes: NDArray[Any],
    entries: Sequence[tuple[Artist, str]],
    title: str,
    subtitle: str,
    names: tuple[str, str],
) -> Figure:
    """Title, names of the axes and one legend for all panels."""
    figure: Figure = axes[0].figure
    base = base_size()
    # the second line only keeps room for the grey one, which is put on it
    top = figure.suptitle(
        plain(title) + "\n " * bool(subtitle), x=0.01, ha="left", fontsize=1.1 * base
    )
    if subtitle:
        under = Annotation(
            plain(subtitle, 110), (0, 0), xycoords=top, va="bottom", fontsize=0.9 * base, color=GREY
        )
        under.set_in_layout(False)
        figure.add_artist(under)
    for panel in axes:
        spec = panel.get_subplotspec()
        if spec.is_first_col():
            panel.set_ylabel(names[1], fontsize=0.95 * base)
        if panel.xaxis.get_major_ticks()[0].label1.get_visible():
            panel.set_xlabel(names[0], fontsize=0.95 * base)
    width = 72 * figure.get_figwidth() / base  # in font sizes
    columns = len(entries)
    while (
        columns > 1
        and sum(
            max(0.55 * len(label) + 4 for _, label in entries[k::columns]) for k in range(columns)
        )
        > width
    ):
        columns -= 1
    figure.legend(
        [artist for artist, _ in entries],
        [label for _, label in entries],
        loc="outside lower left",
        ncols=columns,
        frameon=False,
        fontsize=0.95 * base,
        handletextpad=0.5,
        columnspacing=1.6,
    )
    for panel in axes:
        settle_fonts(panel)
    return figure


def _groups(n: int) -> str:
    return f"{n} group{'s' * (n != 1)}"


def _together(
    ax: Axes,
    lines: dict[str, tuple[Array, Array]],
    about_groups: pd.DataFrame,
    metric: str,
    title: str,
    about: str,
    names: tuple[str, str],
    also: Sequence[tuple[Artist, str]] = (),
) -> Axes:
    """All curves in one Axes: up to four in colour, of more only the two extremes."""
    rows = about_groups[about_groups["group"].isin(list(lines))]
    few = len(rows) <= MOST_COLOURS
    lost = len(about_groups) - len(rows)
    without = f"{_groups(lost)} without a curve" if lost else ""
    if not few:
        enough = rows[rows["group"].isin(_enough(rows))]
        small = len(rows) - len(enough)
        without += "; " * bool(without and small)
        if small:
            said = f"{_groups(small)} with fewer than {LEAST_CLASS}"
            without += f"{said} events or non-events left out"
        rows = enough
    known = rows[rows["estimate"].notna()]
    if few:
        marked = list(rows.index)
    else:
        marked = [known["estimate"].idxmin(), known["estimate"].idxmax()] if len(known) else []
    handles: list[Artist | None] = []
    labels = []
    for j, at in enumerate(marked):
        row = rows.loc[at]
        x, y = lines[str(row["group"])]
        chosen = _thin(len(x))
        (line,) = ax.plot(
            x[chosen], y[chosen], color=PALETTE[j], linestyle=_STYLES[j], linewidth=1.6, zorder=3
        )
        handles.append(line)
        word = "" if few else ("lowest: " if j == 0 else "highest: ")
        name = shorten_all([printable(row["group"])], 30)[0]
        value = f"{metric} {row['estimate']:.2f}" if np.isfinite(row["estimate"]) else ""
        labels.append(f"{word}{name}, {value} (n = {row['n']:,})")
    rest = [k for k in rows.index if k not in marked]
    for k in rest:
        x, y = lines[str(rows.loc[k, "group"])]
        chosen = _thin(len(x))
        ax.plot(x[chosen], y[chosen], color=LIGHT_GREY, linewidth=0.9, zorder=2)
    handles.append(Line2D([], [], color=LIGHT_GREY, linewidth=0.9) if rest else None)
    labels.append(f"the other {_groups(len(rest))}")
    handles.extend(artist for artist, _ in also)
    labels.extend(label for _, label in also)
    layout.x_label(ax, names[0])
    ax.set_ylabel(names[1], fontsize=base_size())
    layout.head(ax, title, "; ".join(filter(None, [about, without])))
    return layout.finish(ax, handles, labels)
