"""Power over the number of patients, or over the margin: a line per metric or scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from cfair.plotting import layout
from cfair.plotting.style import GREY, PALETTE, base_size

#: Lines that can still be told apart: four colours, full and dashed.
MOST_LINES = 8
_STYLES: tuple[Any, ...] = ("-", (0, (5, 1.8)))


def plot_power(
    curves: pd.DataFrame,
    *,
    labels: Mapping[str, str],
    x_label: str = "N, patients in both groups",
    title: str = "Power",
    about: str = "",
    wanted: float | Mapping[str, float] | None = None,
    given: tuple[float, str] | None = None,
    marks: Mapping[str, float] | None = None,
    log: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Curves of power, with dots where the power wanted is reached.

    Parameters
    ----------
    curves : pandas.DataFrame
        Columns ``line, x, power``; lines are drawn in the order of the frame. The fifth to the
        eighth have the colours of the first four, and are dashed.
    labels : mapping of str to str
        Legend entries of the lines.
    x_label : str
    title : str, default "Power"
    about : str, optional
        Printed under the title.
    wanted : float or mapping of str to float, optional
        Power at which a horizontal line is drawn; one for all lines or one for each.
    given : (float, str), optional
        A place on the horizontal axis that is marked by a line, and its name.
    marks : mapping of str to float, optional
        Where lines reach `wanted`.
    log : bool, default True
        Whether the horizontal axis is logarithmic.
    ax : matplotlib Axes, optional
        Drawn into; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there are more than eight lines.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> curves = pd.DataFrame({"line": "tpr", "x": [100, 1000], "power": [0.1, 0.7]})
    >>> ax = plot_power(curves, labels={"tpr": "sensitivity"}, ax=Figure().add_subplot())
    >>> ax.get_ylabel()
    'Power'
    """
    names = list(dict.fromkeys(curves["line"]))
    if len(names) > MOST_LINES:
        raise ValueError(
            f"a figure holds at most {MOST_LINES} lines, not {len(names)}. Ask for fewer metrics "
            "or scenarios, and draw the others into another Axes."
        )
    layout.check_axes(ax)
    if ax is None:
        ax = layout.new_axes(5.8, 3.3 + 0.2 * len(names))
    levels: Mapping[str, float] = {}
    if wanted is not None:
        levels = wanted if isinstance(wanted, Mapping) else dict.fromkeys(names, wanted)
    base = base_size()
    handles: list[Artist | None] = []
    for k, name in enumerate(names):
        own = curves[curves["line"] == name]
        color = PALETTE[k % 4]
        (line,) = ax.plot(
            own["x"], own["power"], color=color, linestyle=_STYLES[k // 4], linewidth=1.6, zorder=3
        )
        handles.append(line)
        at = (marks or {}).get(name, np.nan)
        if name in levels and np.isfinite(at):
            ax.plot(
                [at], [levels[name]], linestyle="none", marker="o" if k < 4 else "s",
                markersize=4.8, color=color, markeredgecolor="white", markeredgewidth=0.7, zorder=5,
            )  # fmt: skip
    texts = [labels.get(name, name) for name in names]
    for level in dict.fromkeys(levels.values()):
        handles.append(ax.axhline(level, color=GREY, linewidth=0.8, linestyle=":", zorder=1))
        texts.append(f"power {level:g}")
    if given is not None:
        handles.append(ax.axvline(given[0], color="black", linewidth=0.9, zorder=2))
        texts.append(given[1])
    _axes(ax, curves["x"].to_numpy(float), log)
    layout.x_label(ax, x_label)
    ax.set_ylabel("Power", fontsize=base)
    layout.head(ax, title, about)
    return layout.finish(ax, handles, texts)


def _axes(ax: Axes, x: np.ndarray, log: bool) -> None:
    """Power from 0 to 1; numbers of patients in logs, with labels at 1, 2 and 5."""
    ax.set_ylim(-0.02, 1.02)
    ax.set_yticks(np.arange(6) / 5)
    if log:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=_subs(x)))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.4g}"))
    ax.set_xlim(float(np.nanmin(x)), float(np.nanmax(x)))
    layout.bare(ax, "top", "right")
    ax.tick_params(axis="y", labelsize=0.95 * base_size())
    ax.grid(color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)


def _subs(x: np.ndarray) -> Sequence[float]:
    """Multiples of the powers of ten that get a label: fewer over many of them."""
    decades = np.log10(np.nanmax(x) / np.nanmin(x))
    return (1.0, 2.0, 5.0) if decades < 2.2 else (1.0, 3.0) if decades < 3.2 else (1.0,)
