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


@dataclass(frozen=True)
class Panel:
    """What the rows of one metric are compared with.

    Attributes
    ----------
    metric : str
    label : str
        Name of the metric in print.
    reference : float
        Where the line stands; NaN for none.
    band : (float, float) or None
        Ends of the band of the margin.
    """

    metric: str
    label: str
    reference: float = float("nan")
    band: tuple[float, float] | None = None


def plot_clinical_forest(
    frame: pd.DataFrame,
    panels: Sequence[Panel],
    *,
    counts: Sequence[tuple[str, str]] = (("n", "n"), ("events", "events")),
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
        estimate, ci_low, ci_high, n_effective, note`` and the columns of `counts`. A section is
        printed as a heading where it begins; an empty one has none. A row without an estimate has
        a hollow mark and its note.
    panels : sequence of Panel
        The metrics, from top to bottom, on one axis.
    counts : sequence of (str, str)
        Columns of counts at the left, with their heads.
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
    rows = _lines(frame, panels)
    filled = rows[rows["kind"] == "row"]
    heads = ["", *(head for _, head in counts)]
    kinds = rows["kind"].tolist()
    cells = [
        [_count(v, kind == "row") for v, kind in zip(rows[column].tolist(), kinds, strict=True)]
        for column, _ in counts
    ]
    room = 0.25 + sum(0.085 * max(map(len, [*texts, head]), default=0) for texts, head in
                      zip(cells, heads[1:], strict=True))  # fmt: skip
    labels = layout.row_labels(rows["group"])
    labels = [
        f"{_INDENT}{text}" if indented else text
        for text, indented in zip(labels, rows["indented"], strict=True)
    ]
    ax = layout.row_axes(
        ax, [f"{text}{'n' * int(14 * room)}" for text in labels], 1, extra=1.75, shaded=False
    )
    ax.set_yticks(range(len(labels)), labels=[literal(text) for text in labels])
    size = layout.row_size(ax, len(rows))
    _left_columns(ax, rows, heads, cells, size)
    handles = [_reference(ax, rows, panels), _band(ax, rows, panels)]
    points = _squares(ax, filled)
    undefined = filled[filled["estimate"].isna()]
    notes = [str(note) or "no rate" for note in undefined["note"].fillna("")]
    marks = layout.mark_undefined(ax, undefined.index.tolist(), notes, 0.85 * size)
    layout.right_column(ax, _numbers(rows), f"Estimate ({100 * level:g}% CI)", size)
    values: list[Any] = [filled[c] for c in ("estimate", "ci_low", "ci_high")]
    values += [[p.reference, *(p.band or ())] for p in panels]
    layout.proportion_axis(ax, values, room=marks is not None)
    names = _listed([p.label for p in panels])
    layout.x_label(ax, names)
    layout.head(ax, f"{names} by group", about)
    return layout.finish(
        ax,
        [points, *handles, marks],
        [f"estimate, with {100 * level:g}% confidence interval", reference, margin, "no rate"],
    )


def _count(value: float, row: bool) -> str:
    """A count; below 0 it is masked, and less than so many; missing, it would reveal another."""
    if pd.isna(value):
        return "–" if row else ""
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


def _left_columns(
    ax: Axes, rows: pd.DataFrame, heads: Sequence[str], cells: Sequence[Sequence[str]], size: float
) -> None:
    """Names from the left edge, then the counts, each column as wide as its longest text."""
    gap = 0.9 * size
    right = gap
    columns = list(zip(heads[1:], cells, strict=True))
    for head, texts in reversed(columns):
        drawn = [
            ax.annotate(
                literal(text),
                (0, y),
                (-right, 4 if y < 0 else 0),
                xycoords=ax.get_yaxis_transform(),
                textcoords="offset points",
                ha="right",
                va="bottom" if y < 0 else "center",
                fontsize=size,
                color=GREY if y < 0 else "black",
                annotation_clip=False,
            )
            for y, text in [*enumerate(texts), (-0.5, head)]
            if text
        ]
        right += max((_points(ax, t) for t in drawn), default=0.0) + gap
    names = ax.get_yticklabels()
    for text, kind in zip(names, rows["kind"], strict=True):
        if kind != "row":
            text.set_fontweight("bold")
        if kind == "panel":
            text.set_fontsize(1.1 * size)
    width = max((_points(ax, t) for t in names), default=0.0)
    for text in names:
        text.set_horizontalalignment("left")
        text.set_verticalalignment("center")
    ax.tick_params(axis="y", pad=right + width + 0.3 * gap)


def _points(ax: Axes, text: Text) -> float:
    """Width of a text in points."""
    return float(72 * text.get_window_extent().width / ax.figure.dpi)


def _squares(ax: Axes, filled: pd.DataFrame) -> Artist | None:
    """Squares whose area follows the effective size, over the lines of their intervals."""
    known = filled[filled["estimate"].notna()]
    if known.empty:
        return None
    y = known.index.to_numpy(float)
    row = layout.row_points(ax, int(filled.index.max()) + 1)
    width = float(np.clip(0.09 * row, 1.0, 1.5))
    layout.spans(
        ax, y, known["ci_low"].to_numpy(float), known["ci_high"].to_numpy(float), PALETTE[0], width
    )
    weight = known["n_effective"].fillna(0.0).to_numpy(float)
    weight = weight / max(weight.max(), 1.0)
    side = float(np.clip(0.62 * row, 4.0, 9.0))
    ax.scatter(
        known["estimate"].to_numpy(float),
        y,
        s=side**2 * (0.2 + 0.8 * weight),
        marker="s",
        color=PALETTE[0],
        edgecolors="white",
        linewidths=0.4,
        zorder=4,
    )
    return Line2D(
        [0], [0], color=PALETTE[0], linewidth=width, marker="s", markersize=5.5,
        markeredgecolor="white", markeredgewidth=0.4,
    )  # fmt: skip


def _spans_of(rows: pd.DataFrame, panel: Panel) -> tuple[float, float]:
    """From the first to the last row of a metric."""
    mine = rows.index[(rows["metric"] == panel.metric) & (rows["kind"] == "row")]
    return float(mine.min()) - 0.5, float(mine.max()) + 0.5


def _reference(ax: Axes, rows: pd.DataFrame, panels: Sequence[Panel]) -> Artist | None:
    drawn = None
    for panel in panels:
        if np.isfinite(panel.reference):
            top, bottom = _spans_of(rows, panel)
            (drawn,) = ax.plot(
                [panel.reference] * 2, [top, bottom], color=GREY, linewidth=1.0,
                linestyle=(0, (4, 2)), zorder=2,
            )  # fmt: skip
    return drawn


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


def _numbers(rows: pd.DataFrame) -> list[str]:
    """Text such as "0.31 (0.26 to 0.36)"; nothing beside headings and where there is no rate."""
    numbers = rows[["estimate", "ci_low", "ci_high"]].to_numpy(float)
    digits = 3 if np.nanmax(numbers[:, 0], initial=0.0) < 0.05 else 2
    texts = []
    for estimate, low, high in numbers:
        text = "" if np.isnan(estimate) else f"{estimate:.{digits}f}"
        known = text and np.isfinite(low) and np.isfinite(high)
        texts.append(f"{text} ({low:.{digits}f} to {high:.{digits}f})" if known else text)
    return texts


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
