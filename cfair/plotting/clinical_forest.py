"""Forest plot as clinical papers print it: counts at the left, squares and lines, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text

from cfair.plotting import layout
from cfair.plotting.style import GREY, PALETTE, literal

#: The band of a margin, light enough for the marks on it.
BAND = "#E3E3E3"
#: Blanks before a row that stands under a heading.
_INDENT = "   "
#: Shapes of the series, so that they are told apart in grey too.
_SHAPES = ("s", "o", "D", "^")
#: Part of the height of a row that its series share.
_SHARED = 0.84


@dataclass(frozen=True)
class Panel:
    """What the rows of one metric are compared with, and the counts that it rests on.

    Attributes
    ----------
    metric : str
    label : str
        Name of the metric in print.
    reference : float or sequence of float
        Where the line stands, for each series; NaN for none.
    band : (float, float) or None
        Ends of the band of the margin.
    counts : sequence of (str, str)
        Columns of counts at the left, with their heads.
    """

    metric: str
    label: str
    reference: float | Sequence[float] = float("nan")
    band: tuple[float, float] | None = None
    counts: Sequence[tuple[str, str]] = (("n", "n"), ("events", "events"))


def plot_clinical_forest(
    frame: pd.DataFrame,
    panels: Sequence[Panel],
    *,
    series: Sequence[str] = (),
    level: float = 0.95,
    about: str = "",
    reference: str = "all patients",
    margin: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Rates with their intervals under headings, counts at the left and numbers at the right.

    Parameters
    ----------
    frame : pandas.DataFrame
        A row per metric and group, in the order in which they are drawn: ``metric, section, group,
        estimate, ci_low, ci_high, n_effective, note`` and the columns of counts, in which an empty
        text stands where a series has no such count. A section is printed as a heading where it
        begins; an empty one has none. A row without an estimate has a hollow mark and its note.
    panels : sequence of Panel
        The metrics, from top to bottom, on one axis.
    series : sequence of str, optional
        What is compared within each row, by name: values of a column ``series`` of the frame. The
        first has all the rows.
    level : float, default 0.95
        Confidence level of the intervals.
    about : str, optional
        What kind of rates these are, printed under the title.
    reference : str, optional
        What the vertical line is, for the legend.
    margin : str, optional
        What the band is, for the legend.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"metric": "fpr", "section": "sex", "group": ["F", "M"],
    ...                       "n": [120, 90], "events": [30, 12], "estimate": [0.2, 0.1],
    ...                       "ci_low": [0.1, 0.05], "ci_high": [0.3, 0.2],
    ...                       "n_effective": [90.0, 78.0], "note": ""})
    >>> ax = plot_clinical_forest(frame, [Panel("fpr", "FPR", 0.16)], ax=Figure().add_subplot())
    >>> [t.get_text() for t in ax.get_yticklabels()]
    ['sex', '   F', '   M']
    """
    layout.check_axes(ax)
    names = list(series) or [""]
    drawn = [frame[frame["series"] == name] for name in series] or [frame]
    rows = _lines(drawn[0], panels)
    at = _places(rows)
    drawn = [_placed(part, at) for part in drawn]
    n = len(names)
    offsets = [_SHARED * (k - (n - 1) / 2) / n for k in range(n)]
    texts = _left_texts(rows, panels, drawn, offsets)
    room = 0.25 + sum(
        0.085 * max((len(text) for _, text, _ in column), default=0) for column in texts
    )
    labels = layout.row_labels(rows["group"])
    labels = [
        f"{_INDENT}{text}" if indented else text
        for text, indented in zip(labels, rows["indented"], strict=True)
    ]
    wide = [f"{text}{'n' * int(14 * room)}" for text in labels]
    # numbers of the series of a row stand under each other, and need its height
    tall = 1.0 if len(names) == 1 else 1.45 * len(names) - 0.5
    ax = layout.row_axes(ax, wide, tall, extra=1.75, shaded=False)
    ax.set_yticks(range(len(labels)), labels=[literal(text) for text in labels])
    size = layout.row_size(ax, len(rows))
    if len(names) > 1:
        size = min(size, 0.85 * _SHARED * layout.row_points(ax, len(rows)) / len(names))
    _left_columns(ax, rows, texts, size)
    points: list[Artist | None] = []
    lost: list[tuple[float, str]] = []
    told: list[tuple[float, str, str]] = []
    for k, (part, offset) in enumerate(zip(drawn, offsets, strict=True)):
        points.append(_squares(ax, part, offset, k, len(rows), len(names)))
        undefined = part[part["estimate"].isna()]
        notes = [str(note) or "no rate" for note in undefined["note"].fillna("")]
        lost += zip((undefined["y"] + offset).tolist(), notes, strict=True)
        colour = _text_colour(k, len(names))
        said = zip(part["y"] + offset, _numbers(part, drawn), strict=True)
        told += [(float(y), text, colour) for y, text in said if text]
    marks = layout.mark_undefined(
        ax, [y for y, _ in lost], [note for _, note in lost], 0.85 * size, called="no rate"
    )
    layout.right_column(
        ax, [text for _, text, _ in told], f"Estimate ({100 * level:g}% CI)", size,
        [y for y, _, _ in told], [colour for _, _, colour in told],
    )  # fmt: skip
    handles = [_reference(ax, rows, panels, len(names)), _band(ax, rows, panels)]
    values: list[Any] = [part[c] for part in drawn for c in ("estimate", "ci_low", "ci_high")]
    values += [np.append(np.asarray(p.reference, dtype=float), p.band or ()) for p in panels]
    layout.proportion_axis(ax, values, room=marks is not None)
    shown = _listed([p.label for p in panels])
    layout.x_label(ax, shown)
    layout.head(ax, f"{shown} by group", about)
    interval = f"with {100 * level:g}% confidence interval"
    called = [f"estimate, {interval}"] if len(names) == 1 else names
    line = f"{reference}, in the colour of each" if len(names) > 1 else reference
    return layout.finish(ax, [*points, *handles, marks], [*called, line, margin, None])


def _places(rows: pd.DataFrame) -> pd.Series:
    """On which line a metric has a group."""
    filled = rows[rows["kind"] == "row"]
    keys = pd.MultiIndex.from_frame(filled[["metric", "section", "group"]])
    return pd.Series(filled.index.to_numpy(float), index=keys)


def _placed(part: pd.DataFrame, at: pd.Series) -> pd.DataFrame:
    """The rows of a series with their lines; what the first series has no line for is not drawn."""
    keys = pd.MultiIndex.from_frame(part[["metric", "section", "group"]])
    lines = at.reindex(keys).to_numpy()
    return part.assign(y=lines)[~np.isnan(lines)]


def _count(value: Any) -> str:
    """A count; below 0 it is masked, and less than so many; missing, it would reveal another."""
    if isinstance(value, str):  # there is no such count
        return value
    if pd.isna(value):
        return "masked"
    return f"<{-int(value):,}" if value < 0 else f"{int(value):,}"


def _lines(frame: pd.DataFrame, panels: Sequence[Panel]) -> pd.DataFrame:
    """Rows and headings, from top to bottom."""
    parts: list[dict[str, object]] = []
    for panel in panels:
        mine = frame[frame["metric"] == panel.metric]
        if len(panels) > 1:
            parts.append({"kind": "panel", "group": panel.label, "metric": panel.metric})
        last = ""
        for row in mine.to_dict("records"):
            section = str(row["section"])
            if section and section != last:
                parts.append({"kind": "section", "group": section, "metric": panel.metric})
            last = section
            parts.append({**{str(k): v for k, v in row.items()}, "kind": "row"})
    lines = pd.DataFrame(parts, columns=[*frame.columns, "kind"])
    return lines.assign(indented=(lines["kind"] == "row") & (lines["section"].fillna("") != ""))


def _text_colour(k: int, n_series: int) -> str:
    """Of the numbers of a series."""
    return "black" if n_series == 1 else PALETTE[k % len(PALETTE)]


def _left_texts(
    rows: pd.DataFrame,
    panels: Sequence[Panel],
    drawn: Sequence[pd.DataFrame],
    offsets: Sequence[float],
) -> list[list[tuple[float, str, str]]]:
    """Columns of counts: where a text stands, the text, and its colour.

    A head stands above its metric's rows, since metrics rest on different counts. A count that all
    series share stands once in the row.
    """
    columns = list(dict.fromkeys(column for panel in panels for column, _ in panel.counts))
    texts: list[list[tuple[float, str, str]]] = []
    for column in columns:
        mine: list[tuple[float, str, str]] = []
        for panel in panels:
            if column not in dict(panel.counts):
                continue
            here = rows[rows["metric"] == panel.metric]
            top = -0.5 if len(panels) == 1 else float(here.index[0])
            mine.append((top, dict(panel.counts)[column], GREY))
            told = [
                dict(zip(part["y"], part[column].map(_count), strict=True))
                for part in (d[d["metric"] == panel.metric] for d in drawn)
            ]
            for y in here.index[here["kind"] == "row"]:
                found = [of.get(float(y), "") for of in told]
                some = [text for text in found if text]
                if len(set(some)) == 1:
                    mine.append((float(y), some[0], "black"))
                    continue
                mine += [
                    (float(y + offset), text, _text_colour(k, len(drawn)))
                    for k, (offset, text) in enumerate(zip(offsets, found, strict=True))
                    if text
                ]
        texts.append(mine)
    return texts


def _left_columns(
    ax: Axes, rows: pd.DataFrame, texts: Sequence[Sequence[tuple[float, str, str]]], size: float
) -> None:
    """Names from the left edge, then the counts, each column as wide as its longest text."""
    gap = 0.9 * size
    right = gap
    for column in reversed(texts):
        drawn = [
            ax.annotate(
                literal(text),
                (0, y),
                (-right, 4 if y == -0.5 else 0),
                xycoords=ax.get_yaxis_transform(),
                textcoords="offset points",
                ha="right",
                va="bottom" if y == -0.5 else "center",
                fontsize=size,
                color=colour,
                annotation_clip=False,
            )
            for y, text, colour in column
        ]
        right += max((_points(ax, t) for t in drawn), default=0.0) + gap
    names = ax.get_yticklabels()
    for text, kind in zip(names, rows["kind"], strict=True):
        if kind != "row":
            text.set_fontweight("bold")
        if kind == "panel":
            text.set_fontsize(1.1 * float(text.get_fontsize()))
    width = max((_points(ax, t) for t in names), default=0.0)
    for text in names:
        text.set_horizontalalignment("left")
        text.set_verticalalignment("center")
    ax.tick_params(axis="y", pad=right + width + 0.3 * gap)


def _points(ax: Axes, text: Text) -> float:
    """Width of a text in points."""
    return float(72 * text.get_window_extent().width / ax.figure.dpi)


def _squares(
    ax: Axes, part: pd.DataFrame, offset: float, k: int, n_rows: int, n_series: int
) -> Artist | None:
    """Marks whose area follows the effective size, over the lines of their intervals."""
    known = part[part["estimate"].notna()]
    if known.empty:
        return None
    y = known["y"].to_numpy(float) + offset
    row = layout.row_points(ax, n_rows) / (1 if n_series == 1 else 0.8 * n_series)
    width = float(np.clip(0.09 * row, 1.0, 1.5))
    colour, shape = PALETTE[k % len(PALETTE)], _SHAPES[k % len(_SHAPES)]
    layout.spans(
        ax, y, known["ci_low"].to_numpy(float), known["ci_high"].to_numpy(float), colour, width
    )
    weight = known["n_effective"].fillna(0.0).to_numpy(float)
    weight = weight / max(weight.max(), 1.0)
    side = float(np.clip(0.62 * row, 4.0, 9.0))
    ax.scatter(
        known["estimate"].to_numpy(float),
        y,
        s=side**2 * (0.2 + 0.8 * weight),
        marker=shape,
        color=colour,
        edgecolors="white",
        linewidths=0.4,
        zorder=4,
    )
    return Line2D(
        [0], [0], color=colour, linewidth=width, marker=shape, markersize=5.5,
        markeredgecolor="white", markeredgewidth=0.4,
    )  # fmt: skip


def _spans_of(rows: pd.DataFrame, panel: Panel) -> tuple[float, float]:
    """From the first to the last row of a metric."""
    mine = rows.index[(rows["metric"] == panel.metric) & (rows["kind"] == "row")]
    return float(mine.min()) - 0.5, float(mine.max()) + 0.5


def _reference(
    ax: Axes, rows: pd.DataFrame, panels: Sequence[Panel], n_series: int
) -> Artist | None:
    """Lines of reference; with several series each has the colour of its own."""
    drawn = None
    for panel in panels:
        for k, value in enumerate(np.ravel(np.asarray(panel.reference, dtype=float))):
            if np.isfinite(value):
                top, bottom = _spans_of(rows, panel)
                drawn, *_ = ax.plot(
                    [value] * 2, [top, bottom], linewidth=1.0, linestyle=(0, (4, 2)), zorder=2,
                    color=GREY if n_series == 1 else PALETTE[k % len(PALETTE)],
                )  # fmt: skip
    if drawn is None or n_series == 1:
        return drawn
    return Line2D([0], [0], color=GREY, linewidth=1.0, linestyle=(0, (4, 2)))


def _band(ax: Axes, rows: pd.DataFrame, panels: Sequence[Panel]) -> Artist | None:
    drawn = None
    for panel in panels:
        if panel.band is not None and np.isfinite(panel.band).all():
            top, bottom = _spans_of(rows, panel)
            low, high = panel.band
            ax.add_patch(
                Rectangle((low, top), high - low, bottom - top, facecolor=BAND, linewidth=0,
                          zorder=0.5)
            )  # fmt: skip
            drawn = Patch(facecolor=BAND, edgecolor="0.6", linewidth=0.8)
    return drawn


def _numbers(part: pd.DataFrame, drawn: Sequence[pd.DataFrame]) -> list[str]:
    """Text such as "0.31 (0.26 to 0.36)"; empty where there is no rate."""
    largest = max((d["estimate"].max() for d in drawn if d["estimate"].notna().any()), default=0.0)
    digits = 3 if largest < 0.05 else 2
    texts = []
    for estimate, low, high in part[["estimate", "ci_low", "ci_high"]].to_numpy(float):
        text = "" if np.isnan(estimate) else f"{estimate:.{digits}f}"
        known = text and np.isfinite(low) and np.isfinite(high)
        texts.append(f"{text} ({low:.{digits}f} to {high:.{digits}f})" if known else text)
    return texts


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
