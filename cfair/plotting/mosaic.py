"""Mosaic of intersections: areas are shares, and what is too small to be seen is listed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from cfair.plotting import layout
from cfair.plotting.style import GREY, base_size, literal, printable
from cfair.tables import shorten, shorten_all

#: Fill and hatching of cells with enough rows, few, and hardly any: told apart without colour.
_FILLS = (("#B9D7EA", ""), ("#F5C98B", "////"), ("#D55E00", "xxxx"))
#: Width of a letter in font sizes, on the safe side.
_LETTER = 0.58


def plot_mosaic(
    counts: NDArray[np.integer],
    levels: Sequence[Sequence[str]],
    attributes: Sequence[str],
    *,
    min_count: int = 100,
    disclosure: int = 20,
    ax: Axes | None = None,
) -> Axes:
    """Mosaic of the intersections of attributes.

    A column is a level of the first attribute, or a crossing of all but the last, as wide as its
    share; its parts are the levels of the last attribute. Listed beside it are small cells that
    are absent, hardly filled or without room for their text, and apart from them the cells with
    rows enough that have no room.

    Parameters
    ----------
    counts : array of int
        Rows, an axis per attribute.
    levels : sequence of sequences of str
        Levels of each attribute, as shown.
    attributes : sequence of str
        Names.
    min_count, disclosure : int
        Cells with fewer rows are marked, in two steps.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.

    Returns
    -------
    matplotlib Axes
    """
    from statsmodels.graphics.mosaicplot import mosaic

    layout.check_axes(ax)
    last = [printable(level) for level in levels[-1]]
    columns = [" & ".join(map(printable, names)) for names in product(*levels[:-1])]
    table = np.asarray(counts).reshape(len(columns), len(last))
    drawn = [c for c in range(len(columns)) if table[c].sum() > 0]
    if ax is None:
        width = float(np.clip(0.9 * len(drawn), 4.4, 10.0))
        ax = layout.new_axes(width, float(np.clip(0.55 * len(last) + 2.6, 3.8, 9.0)), 0.3, 2.4)
    fill = np.where(table < disclosure, 2, np.where(table < min_count, 1, 0))
    cells = {(f"{c}", f"{r}"): int(table[c, r]) for c in drawn for r in range(len(last))}

    def look(key: tuple[str, str]) -> dict[str, object]:
        color, hatch = _FILLS[fill[int(key[0]), int(key[1])]]
        return {"facecolor": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.0}

    gaps = [0.03 if len(drawn) < 9 else 0.012, 0.006]
    _, boxes = mosaic(
        cells, ax=ax, gap=gaps, properties=look, labelizer=lambda _: "", axes_label=False
    )
    ax.set_xlim(0, 1)
    ax.set_ylim(1, 0)  # the first level on top
    for side in ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_yticks([])
    size = 0.9 * base_size()
    listed, unlabelled = [], []
    for (c, r), box in boxes.items():
        column, row = int(c), int(r)
        n = int(table[column, row])
        written = _write(ax, box, last[row], n, size)
        if n < disclosure or (not written and n < min_count):
            listed.append((column, row))
        elif not written:
            unlabelled.append((column, row))
    absent = [(c, r) for c in range(len(columns)) if c not in drawn for r in range(len(last))]
    names = {
        (c, r): f"{columns[c]} & {last[r]}" if columns[c] else last[r]
        for c, r in listed + absent + unlabelled
    }
    below = _column_labels(ax, boxes, columns, size)
    _list_beside(
        ax,
        {
            "small cells": [(names[at], int(table[at])) for at in sorted(listed + absent)],
            "not labelled": [(names[at], int(table[at])) for at in sorted(unlabelled)],
        },
        size,
    )
    layout.head(ax, _title(attributes), f"Areas are shares of {int(table.sum()):,} rows")
    shown = [
        (f"{min_count:,} rows or more", 0),
        (f"fewer than {min_count:,}", 1),
        (f"fewer than {disclosure:,}", 2),
    ]
    occurs = set(fill[drawn].ravel().tolist())
    patches = [
        Patch(facecolor=_FILLS[k][0], hatch=_FILLS[k][1], edgecolor="white", linewidth=0.0)
        if k in occurs
        else None
        for _, k in shown
    ]
    layout.finish(ax, patches, [text for text, _ in shown])
    legend = ax.get_legend()
    assert legend is not None  # there is a cell with rows
    drop = ScaledTranslation(0, -(3.6 * base_size() + below) / 72, ax.figure.dpi_scale_trans)
    legend.set_bbox_to_anchor((0, 0), transform=ax.transAxes + drop)
    return ax


def _title(attributes: Sequence[str]) -> str:
    return " × ".join(map(printable, attributes))


def _points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes in points, as they stand now."""
    box = ax.get_window_extent()
    return 72 * box.width / ax.figure.dpi, 72 * box.height / ax.figure.dpi


def _write(
    ax: Axes, box: tuple[float, float, float, float], level: str, n: int, size: float
) -> bool:
    """Write level and rows into a cell if there is room; returns whether there was."""
    x, y, w, h = box
    width, height = _points(ax)
    room = width * w - 4
    lines = int((height * h - 2) / (1.25 * size))
    count = f"{n:,}"
    if not n or lines < 1 or _length(count, size) > room:
        return False
    beside = f"  {count}"
    if _length(level + beside, size) <= room:
        text = level + beside
    elif lines >= 2 and (short := _fit(level, room, size)):
        text = f"{short}\n{count}"
    elif short := _fit(level, room, size, beside):
        text = short + beside
    else:
        return False
    ax.text(
        x + w / 2, y + h / 2, literal(text), ha="center", va="center", fontsize=size,
        linespacing=1.1, bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8},
    )  # fmt: skip
    return True


def _fit(level: str, room: float, size: float, more: str = "") -> str:
    """A level, cut to five letters at least where it is too long; empty if that is not enough."""
    for letters in range(len(level), min(len(level), 5) - 1, -1):
        if _length(shorten(level, letters) + more, size) <= room:
            return shorten(level, letters)
    return ""


def _length(text: str, size: float) -> float:
    """Length of a text in points, as drawn."""
    with warnings.catch_warnings():  # a sign that the font lacks is measured by its box
        warnings.simplefilter("ignore")
        return float(TextPath((0, 0), literal(text), size=size).get_extents().width)


def _column_labels(
    ax: Axes,
    boxes: dict[tuple[str, str], tuple[float, float, float, float]],
    columns: Sequence[str],
    size: float,
) -> float:
    """Name the columns, slanted where names are long; returns the points they take below that."""
    spans = {int(c): (x, w) for (c, _), (x, _, w, _) in boxes.items()}
    width, _ = _points(ax)
    names = {c: shorten(columns[c], 24) for c in spans}
    slanted = any(_LETTER * size * len(names[c]) > width * w + 6 for c, (_, w) in spans.items())
    shown: list[tuple[float, str]] = []
    for c, (x, w) in sorted(spans.items(), key=lambda item: -item[1][1]):  # the widest first
        apart = [abs(x + w / 2 - other) * width > 1.9 * size for other, _ in shown]
        if not slanted or all(apart):  # else it would be on top of its neighbour
            shown.append((x + w / 2, literal(names[c])))
    shown.sort()
    ax.set_xticks(
        [x for x, _ in shown], labels=[name for _, name in shown], fontsize=size,
        rotation=35 if slanted else 0, ha="right" if slanted else "center",
        rotation_mode="anchor" if slanted else "default",
    )  # fmt: skip
    ax.tick_params(axis="x", length=0, pad=4)
    longest = max(len(name) for _, name in shown)
    return _LETTER * size * longest * np.sin(np.radians(35)) if slanted else 0.0


def _list_beside(ax: Axes, cells: Mapping[str, Sequence[tuple[str, int]]], size: float) -> None:
    """Cells that cannot be seen or read, with their rows, at the right of the mosaic."""
    cells = {title: listed for title, listed in cells.items() if listed}
    if not cells:
        return
    _, height = _points(ax)
    fits = max(int((height / (1.35 * size) + 1) / len(cells)) - 2, 3)
    written: list[str] = []
    for title, listed in cells.items():
        ordered = sorted(listed, key=lambda cell: cell[1])
        short = shorten_all([name for name, _ in ordered], 34)
        sizes = [f"{n:,}" if n else "absent" for _, n in ordered]
        lines = [f"{name}: {n}" for name, n in zip(short, sizes, strict=True)]
        if len(lines) > fits:
            lines = [*lines[: fits - 1], f"… and {len(lines) - fits + 1} more"]
        written += [*([""] if written else []), title, *lines]
    beside = ax.transAxes + ScaledTranslation(8 / 72, 0, ax.figure.dpi_scale_trans)
    ax.text(
        1, 1, literal("\n".join(written)), transform=beside, ha="left", va="top",
        fontsize=size, linespacing=1.35, color=GREY,
    )  # fmt: skip
