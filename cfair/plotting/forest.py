"""Forest plots: rates by group, and how much they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from cfair.plotting import layout
from cfair.plotting.style import GREY, MARKERS, PALETTE, base_size

#: Series that can still be told apart within a row.
MOST_METRICS = 4


def plot_rates(
    frame: pd.DataFrame,
    *,
    metrics: Sequence[str],
    labels: Mapping[str, str],
    level: float = 0.95,
    about: str = "",
    numbers: str | None = None,
    sections: Sequence[int] = (),
    ax: Axes | None = None,
) -> Axes:
    """Rates by group with their intervals, a row per group; undefined rates keep their row.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns ``metric, group, n, estimate, ci_low, ci_high, note``. Groups are drawn in the
        order of the frame, the first on top.
    metrics : sequence of str
        Up to four.
    labels : mapping of str to str
        Names of the metrics in print.
    level : float, default 0.95
        Confidence level of the intervals.
    about : str, optional
        What kind of rates these are, printed under the title.
    numbers : str, optional
        The metric whose estimates and intervals are printed at the right.
    sections : sequence of int, optional
        Groups, by their place, before which a line is drawn.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there are more than four metrics, none, or one that the frame does not have.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"metric": "fpr", "group": ["F", "M"], "n": [120, 90],
    ...                       "estimate": [0.2, 0.1], "ci_low": [0.1, 0.05],
    ...                       "ci_high": [0.3, 0.2], "note": ""})
    >>> ax = plot_rates(frame, metrics=["fpr"], labels={"fpr": "FPR"}, ax=Figure().add_subplot())
    >>> [t.get_text() for t in ax.get_yticklabels()]
    ['F  (n = 120)', 'M  (n = 90)']
    """
    metrics = _check_metrics(frame, metrics)
    if len(metrics) > MOST_METRICS:
        raise ValueError(
            f"metrics must name at most {MOST_METRICS} metrics for one panel, not {len(metrics)}. "
            "Draw the others into another Axes."
        )
    layout.check_axes(ax)
    rows = _keyed(frame[frame["metric"].isin(metrics)])
    groups = rows.loc[~rows.index.duplicated(), ["group", "n"]]
    texts = layout.row_labels(groups["group"], groups["n"])
    ax = layout.row_axes(ax, texts, len(metrics), extra=0.0 if numbers is None else 1.35)
    parts = [rows[rows["metric"] == metric].reindex(groups.index) for metric in metrics]
    step = min(0.36, 0.8 / len(metrics))
    middle = (len(metrics) - 1) / 2
    handles: list[Artist | None] = [
        row_series(ax, part, np.arange(len(part)) + (j - middle) * step, j, len(metrics))
        for j, part in enumerate(parts)
    ]
    names = [str(labels.get(metric, metric)) for metric in metrics]
    handles.append(_undefined(ax, parts, step))
    if numbers is not None:
        k = metrics.index(numbers)
        head = f"{names[k]} [{100 * level:g}% CI]" if _hasinterval_texts(parts[k]) else names[k]
        layout.right_column(ax, interval_texts(parts[k]), head, layout.row_size(ax, len(groups)))
    values = [part[column] for part in parts for column in ("estimate", "ci_low", "ci_high")]
    layout.proportion_axis(ax, values, room=handles[-1] is not None)
    layout.divide(ax, sections)
    layout.x_label(ax, f"Rate{_with_interval(rows, level)}")
    layout.head(ax, f"{_listed(names)} by group", about)
    return layout.finish(ax, handles, [*names, None])


def plot_disparities(
    frame: pd.DataFrame,
    *,
    metrics: Sequence[str],
    labels: Mapping[str, str],
    level: float = 0.95,
    about: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Average and maximum difference between groups, and what equal rates would give.

    The variance is left out: it is on another scale.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns ``metric, statistic, estimate, ci_low, ci_high, expected_if_equal``, and ``note``
        if it is known why there is no estimate.
    metrics : sequence of str
    labels : mapping of str to str
        Names of the metrics in print.
    level : float, default 0.95
        Confidence level of the intervals.
    about : str, optional
        What kind of rates these are, printed under the title.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If no metric is given, or one that the frame does not have.
    """
    metrics = _check_metrics(frame, metrics)
    layout.check_axes(ax)
    wanted = pd.MultiIndex.from_product([metrics, ["average", "maximum"]])
    indexed = frame.set_index(["metric", "statistic"])
    rows = indexed[~indexed.index.duplicated()].reindex(wanted).reset_index(drop=True)
    names = [str(labels.get(metric, metric)) for metric in metrics]
    statistics = ("average difference", "largest difference")
    texts = layout.row_labels([f"{name}, {s}" for name in names for s in statistics])
    ax = layout.row_axes(ax, texts, 1, extra=1.35)
    y = np.arange(len(rows))
    size = layout.row_size(ax, len(rows))
    observed = row_series(ax, rows, y, 0, 1)
    known = rows["expected_if_equal"].notna().any()
    expected = expected_marks(ax, rows["expected_if_equal"], y) if known else None
    undefined = rows["estimate"].isna().to_numpy()
    notes = rows["note"] if "note" in rows else pd.Series("", rows.index)
    why = [note or "fewer than two groups have a rate" for note in notes[undefined].fillna("")]
    marks = layout.mark_undefined(ax, y[undefined].tolist(), why, 0.85 * size)
    head = f"estimate [{100 * level:g}% CI]" if _hasinterval_texts(rows) else "estimate"
    layout.right_column(ax, interval_texts(rows), head, size)
    values = [rows[c] for c in ("estimate", "ci_low", "ci_high", "expected_if_equal")]
    layout.proportion_axis(ax, values, room=marks is not None)
    layout.x_label(ax, "Absolute difference between the rates of two groups")
    layout.head(ax, f"Differences in {_listed(names)} between groups", about)
    return layout.finish(
        ax,
        [observed, expected, marks],
        [
            f"estimate{_with_interval(rows, level)}",
            "expected from chance alone if all rates were equal",
            None,
        ],
    )


def _check_metrics(frame: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    wanted = [metrics] if isinstance(metrics, str) else list(metrics)
    known = list(dict.fromkeys(frame["metric"]))
    unknown = [metric for metric in wanted if metric not in known]
    if not wanted or unknown:
        given = ", ".join(map(repr, unknown)) if unknown else "none"
        raise ValueError(f"metrics must be of {', '.join(map(str, known))}, not {given}.")
    return list(dict.fromkeys(wanted))


def _keyed(frame: pd.DataFrame) -> pd.DataFrame:
    """Index rows by group; groups that print alike stay apart by the order they come in."""
    group = frame["group"].astype(str)
    again = group.groupby([frame["metric"], group], observed=True).cumcount()
    return frame.assign(group=group).set_index(pd.MultiIndex.from_arrays([group, again]))


def row_series(ax: Axes, part: pd.DataFrame, y: np.ndarray, j: int, n_series: int) -> Line2D:
    """Draw points with intervals, in the colour and shape of series `j`.

    Parameters
    ----------
    ax : matplotlib Axes
    part : pandas.DataFrame
        Columns ``estimate, ci_low, ci_high``.
    y : array
        Heights.
    j, n_series : int

    Returns
    -------
    matplotlib Line2D
        The points.
    """
    lane = 0.8 * layout.row_points(ax, len(part)) / n_series
    size = float(np.clip(0.65 * lane, 3.8, 6.0))
    low, high = part["ci_low"].to_numpy(float), part["ci_high"].to_numpy(float)
    layout.spans(ax, y, low, high, PALETTE[j], 0.9 + 0.08 * size)
    (points,) = ax.plot(
        part["estimate"].to_numpy(float),
        y,
        linestyle="none",
        marker=MARKERS[j],
        markersize=size,
        color=PALETTE[j],
        markeredgecolor="white",
        markeredgewidth=0.4,
        zorder=4,
    )
    return points


def _undefined(ax: Axes, parts: Sequence[pd.DataFrame], step: float) -> Line2D | None:
    """Mark undefined rates of all metrics; one note for a group that lacks all of them alike."""
    n_groups, middle = len(parts[0]), (len(parts) - 1) / 2
    missing = np.array([part["estimate"].isna().to_numpy() for part in parts])
    why = np.array([part["note"].fillna("").astype(str).to_numpy() for part in parts], dtype=object)
    rows, notes = [], []
    for k in range(n_groups):
        if missing[:, k].all() and len(set(why[:, k])) == 1:
            rows.append(float(k))
            notes.append(why[0, k] or "no rate")
            continue
        for j in np.flatnonzero(missing[:, k]):
            rows.append(k + (j - middle) * step)
            notes.append(why[j, k] or "no rate")
    lane = 0.8 * layout.row_points(ax, n_groups) / len(parts)
    base = base_size()
    return layout.mark_undefined(ax, rows, notes, float(np.clip(lane, 0.55 * base, 0.85 * base)))


def expected_marks(ax: Axes, expected: pd.Series, y: np.ndarray) -> Line2D:
    """Draw a tall tick behind the points, which is seen even where it coincides with one.

    Parameters
    ----------
    ax : matplotlib Axes
    expected : pandas.Series
    y : array
        Heights.

    Returns
    -------
    matplotlib Line2D
    """
    (marks,) = ax.plot(
        expected.to_numpy(float),
        y,
        linestyle="none",
        marker="|",
        markersize=float(np.clip(0.6 * layout.row_points(ax, len(y)), 6, 15)),
        markeredgewidth=2.4,
        color=GREY,
        zorder=2,
    )
    return marks


def _hasinterval_texts(rows: pd.DataFrame) -> bool:
    return bool((rows["ci_low"].notna() & rows["ci_high"].notna()).any())


def _with_interval(rows: pd.DataFrame, level: float) -> str:
    return f", with {100 * level:g}% confidence interval" if _hasinterval_texts(rows) else ""


def interval_texts(rows: pd.DataFrame) -> list[str]:
    """Estimates and intervals as text; empty where undefined.

    Parameters
    ----------
    rows : pandas.DataFrame
        Columns ``estimate, ci_low, ci_high``.

    Returns
    -------
    list of str
    """
    numbers = rows[["estimate", "ci_low", "ci_high"]].to_numpy(float)
    digits = 3 if np.nanmax(numbers[:, 0], initial=0.0) < 0.05 else 2
    texts = []
    for estimate, low, high in numbers:
        text = "" if np.isnan(estimate) else f"{estimate:.{digits}f}"
        known = text and not (np.isnan(low) or np.isnan(high))
        texts.append(f"{text} [{low:.{digits}f}, {high:.{digits}f}]" if known else text)
    return texts


def _listed(names: Sequence[str]) -> str:
    if len(names) > MOST_METRICS:
        return "rates"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
