"""Figures of an analysis, with intervals from its bootstrap and u-values from its null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.estimators.disparity import STATISTICS
from cfair.faircfint.figures import SMALL, group_names
from cfair.faircfint.intervals import ci_norm, ci_tint, ci_trunc, get_bs_rescaled, u_table
from cfair.faircfint.labels import SUMMARIES, margins
from cfair.faircfint.results import AnalysisResult
from cfair.options import check_level
from cfair.results.deltas import check_deltas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

_SIGNS = {"pos": "cfpr", "neg": "cfnr"}
_LABELS = {"cfpr": "cFPR", "cfnr": "cFNR", "fpr": "observed FPR", "fnr": "observed FNR"}


@dataclass(frozen=True, eq=False)
class Plots:
    """Figures of an analysis, and the numbers in them.

    Attributes
    ----------
    cfpr, cfnr : matplotlib Figure
        Rates of groups and single levels beside the observed ones, with intervals and numbers.
    cfpr_unlabeled, cfnr_unlabeled : matplotlib Figure
        The same without numbers.
    metrics_pos, metrics_neg : matplotlib Figure
        Average and largest difference of cFPR and of cFNR.
    null_dist : matplotlib Figure or None
        Null distributions of all summaries; None without a null.
    intervals : pandas.DataFrame
        Index the figures; ``point_est, se_est, low_trans, high_trans``. NaN where there is no
        interval.
    u_values : pandas.DataFrame or None
        Index the summaries; ``u_value, n_valid, delta, shown``.
    """

    cfpr: Figure
    cfnr: Figure
    cfpr_unlabeled: Figure
    cfnr_unlabeled: Figure
    metrics_pos: Figure
    metrics_neg: Figure
    null_dist: Figure | None
    intervals: pd.DataFrame
    u_values: pd.DataFrame | None


def get_plots(
    results: AnalysisResult,
    sampsize: int | None = None,
    alpha: float = 0.05,
    m_factor: float | None = None,
    delta: float = 0.1,
    labels: Sequence[str] | None = None,
) -> Plots:
    """Figures of an analysis.

    With ``compat=True`` intervals are those of the R package: what it calls t-intervals, cut to
    [0, 1], of summaries and of counterfactual rates of groups. Otherwise they are those of cfair's
    own results.

    Parameters
    ----------
    results : AnalysisResult
    sampsize : int, optional
        Rows n behind the intervals; those used by default.
    alpha : float, default 0.05
        Intervals of level 1 - alpha.
    m_factor : float, optional
        That of the bootstrap by default.
    delta : float, default 0.1
        Of the u-values. With ``compat=True`` the same for all summaries; otherwise the variance
        takes its square.
    labels : sequence of str, optional
        Names of the groups, in their order.

    Returns
    -------
    Plots

    Raises
    ------
    DataError, ValueError

    Notes
    -----
    Figures are not shown: ``plots.cfpr.savefig("cfpr.png")``, or ``plots.cfpr`` in a notebook.
    """
    if not isinstance(results, AnalysisResult):
        raise DataError(
            f"results must be what analysis_estimation gives, not {type(results).__name__}."
        )
    level = check_level(1 - alpha)
    check_deltas(delta)
    names = _names(results, labels)
    intervals = _intervals(results, sampsize, level, m_factor)
    u_values = None
    if results.table_null is not None:
        deltas: Any = float(delta)
        if not results.compat:
            summaries = [n for n in results.defs.index if str(n).split("_")[0] in SUMMARIES]
            deltas = np.array([delta**2 if str(n)[:3] == "var" else delta for n in summaries])
        u_values = u_table(results.defs, results.table_null, deltas, as_r=results.compat)
    rates = {
        (metric, numbers): _rates_figure(results, intervals, metric, names, level, numbers)
        for metric in ("cfpr", "cfnr")
        for numbers in (True, False)
    }
    pos, neg = (_metrics_figure(results, intervals, sign, level) for sign in ("pos", "neg"))
    null = None if u_values is None else _null_figure(results, u_values)
    for figure in (*rates.values(), pos, neg, null):
        _forget(figure)
    return Plots(
        cfpr=rates["cfpr", True],
        cfnr=rates["cfnr", True],
        cfpr_unlabeled=rates["cfpr", False],
        cfnr_unlabeled=rates["cfnr", False],
        metrics_pos=pos,
        metrics_neg=neg,
        null_dist=null,
        intervals=intervals,
        u_values=u_values,
    )


def _forget(figure: Figure | None) -> None:
    """Let pyplot forget a figure, which would else count and show all of them."""
    from matplotlib import pyplot as plt

    if figure is not None:
        plt.close(figure)


def _names(results: AnalysisResult, labels: Sequence[str] | None) -> list[str]:
    groups = results.cohort.groups
    if labels is None:
        return [f"Group {name}" for name in group_names(groups, compat=results.compat)]
    given = [labels] if isinstance(labels, str) else [str(label) for label in labels]
    if len(given) != groups.n_groups:
        raise DataError(
            f"labels must have a name for each of the {groups.n_groups} groups, not {len(given)}."
        )
    return given


# -- intervals ------------------------------------------------------------------------------------


def _intervals(
    results: AnalysisResult, sampsize: int | None, level: float, m_factor: float | None
) -> pd.DataFrame:
    """Interval of each figure, in the order of ``defs``."""
    index = results.defs.index
    nothing = pd.DataFrame(
        {
            "point_est": results.defs.to_numpy(),
            "se_est": np.nan,
            "low_trans": np.nan,
            "high_trans": np.nan,
        },
        index=index,
    )
    if not results.compat:
        return _own_intervals(results, nothing, level)
    if results.boot_out is None:
        return nothing
    if not index.is_unique:
        raise DataError(
            "two groups have the same pasted label, so that their figures cannot be told apart by "
            "name. Rename levels of A1 or A2."
        )
    n = results.cohort.n_used if sampsize is None else sampsize
    m = results.m_factor if m_factor is None else m_factor
    scaled = get_bs_rescaled(results.boot_out, results.defs, n, m)
    t = ci_trunc(ci_tint(scaled, results.defs, n, 1 - level, m))
    shown = np.array([_has_interval(str(name)) for name in index])
    return nothing.assign(
        se_est=ci_norm(scaled, results.defs, n, 1 - level)["se_est"].where(shown),
        low_trans=t["low_trunc"].where(shown),
        high_trans=t["high_trunc"].where(shown),
    )


def _has_interval(name: str) -> bool:
    """Whether a figure has one: summaries, and counterfactual rates of groups."""
    return not name.startswith(("fpr_", "fnr_", "cfpr_marg_", "cfnr_marg_"))


def _own_intervals(results: AnalysisResult, frame: pd.DataFrame, level: float) -> pd.DataFrame:
    """Intervals of cfair's own results under the R package's names."""
    frame = frame.copy()
    groups = results.cohort.groups
    names = [*group_names(groups, compat=False), *(f"marg_{m}" for m in margins(groups))]
    columns = ["se_est", "low_trans", "high_trans"]
    for key, end in (("counterfactual", ""), ("small", "_small")):
        result = results.est_choice.get(key)
        if result is None:
            continue
        result = replace(result, level=level)
        for metric in _SIGNS.values() if end else _LABELS:
            low, high = result.limits(metric)
            se = result.estimates_of(metric).se
            for t, name in enumerate(names):
                figure = f"{metric}{end}_{name}"
                if figure in frame.index:
                    frame.loc[figure, columns] = se[t], low[t], high[t]
        table = result.disparities.set_index(["metric", "statistic"])
        for sign, metric in _SIGNS.items():
            for short, statistic in zip(SUMMARIES, STATISTICS, strict=True):
                limits = table.loc[(metric, statistic), ["ci_low", "ci_high"]]
                frame.loc[f"{short}_{sign}{end}", ["low_trans", "high_trans"]] = limits.to_numpy()
    return frame


# -- figures --------------------------------------------------------------------------------------


def _about(results: AnalysisResult) -> str:
    return f"Had nobody been treated (faircfint, compat {results.compat})"


def _rates_figure(
    results: AnalysisResult,
    intervals: pd.DataFrame,
    metric: str,
    names: Sequence[str],
    level: float,
    numbers: bool,
) -> Any:
    """Rates of the groups, then of single levels, each beside the observed rate."""
    from cfair.plotting import layout, plot_rates

    groups = results.cohort.groups
    small = f"{metric}_small"
    metrics = [metric, *([small] if small in SMALL and results.small else []), metric[1:]]
    sizes = [*groups.sizes, *(groups.margin_matrix @ groups.sizes)]
    shown = [*names, *groups.margin_names]
    rows = []
    for name in metrics:
        low, high = _limits(results, intervals, name, level)
        for k, label in enumerate(shown):
            estimate = float(results._rates[name][0, k])
            rows.append((name, label, sizes[k], estimate, low[k], high[k], ""))
    columns = ["metric", "group", "n", "estimate", "ci_low", "ci_high", "note"]
    frame = pd.DataFrame(rows, columns=pd.Index(columns))
    labels = {**_LABELS, small: f"{_LABELS[metric]} for small groups"}
    ax = _wide(len(shown), len(metrics)) if numbers else None
    ax = plot_rates(
        frame, metrics=metrics, labels=labels, level=level, about=_about(results), ax=ax
    )
    if numbers:
        first = frame[frame["metric"] == (small if results.small else metric)]
        size = layout.row_size(ax, len(shown))
        shown_metric = f"{_LABELS[metric]}{' small' if results.small else ''}"
        head = f"{shown_metric} [{100 * level:g}% CI]"
        layout.right_column(ax, [_interval(row) for row in first.itertuples()], head, size)
    return ax.figure


def _limits(
    results: AnalysisResult, intervals: pd.DataFrame, metric: str, level: float
) -> tuple[Array, Array]:
    """Limits of a rate in all groups and single levels; NaN where there is no interval."""
    groups = results.cohort.groups
    K, M = groups.n_groups, len(groups.margins)
    if not results.compat:
        key = "small" if metric in SMALL else "counterfactual"
        result = replace(results.est_choice[key], level=level)
        low, high = result.limits(metric.removesuffix("_small"))
        return low[: K + M], high[: K + M]
    both = np.full((2, K + M), np.nan)
    first = f"{metric}_{group_names(groups, compat=True)[0]}"
    at = int(np.flatnonzero(intervals.index == first)[0])  # those of the groups follow each other
    both[:, :K] = intervals[["low_trans", "high_trans"]].to_numpy(dtype=float)[at : at + K].T
    return both[0], both[1]


def _wide(n_rows: int, series: int) -> Any:
    """Axes with room for a column of numbers at the right."""
    from cfair.plotting import layout

    row = (0.13 + 0.11 * series) * float(np.interp(n_rows, [4, 12, 40], [1.2, 1.0, 0.65]))
    return layout.new_axes(4.1, max(n_rows * row, 0.6) + 1.35, left=1.9, right=1.5)


def _interval(row: Any) -> str:
    if np.isnan(row.estimate):
        return ""
    if np.isnan(row.ci_low):
        return f"{row.estimate:.2f}"
    return f"{row.estimate:.2f} [{row.ci_low:.2f}, {row.ci_high:.2f}]"


def _metrics_figure(
    results: AnalysisResult, intervals: pd.DataFrame, sign: str, level: float
) -> Any:
    """Average and largest difference, beside what the null has on average."""
    from cfair.plotting import plot_disparities

    metric = _SIGNS[sign]
    rows = []
    for end in ("", "_small") if results.small else ("",):
        for short, statistic in zip(SUMMARIES, STATISTICS, strict=True):
            figure = f"{short}_{sign}{end}"
            at = int(np.flatnonzero(intervals.index == figure)[0])
            limits = intervals[["low_trans", "high_trans"]].to_numpy(dtype=float)[at]
            null = np.array([]) if results.table_null is None else results.table_null[figure]
            drawn = np.asarray(null)[np.isfinite(null)]
            expected = float(drawn.mean()) if drawn.size else np.nan
            estimate = float(results.defs[figure])
            rows.append((f"{metric}{end}", statistic, estimate, *limits, expected))
    columns = ["metric", "statistic", "estimate", "ci_low", "ci_high", "expected_if_equal"]
    frame = pd.DataFrame(rows, columns=pd.Index(columns)).replace(-np.inf, np.nan)
    labels = {**_LABELS, f"{metric}_small": f"{_LABELS[metric]} small"}
    ax = plot_disparities(
        frame,
        metrics=list(dict.fromkeys(frame["metric"])),
        labels=labels,
        level=level,
        about=_about(results),
    )
    return ax.figure


def _null_figure(results: AnalysisResult, u_values: pd.DataFrame) -> Any:
    """A panel for each summary: average, largest, variance, of cFPR and of cFNR."""
    from matplotlib import pyplot as plt

    from cfair.plotting import plot_null
    from cfair.plotting.style import base_size

    assert results.table_null is not None
    ends = ("", "_small") if results.small else ("",)
    rows = [(sign, end) for end in ends for sign in _SIGNS]
    scale = base_size() / 9
    figure, axes = plt.subplots(
        len(rows), 3, figsize=(scale * 11, scale * (2.6 * len(rows) + 0.4)), layout="constrained"
    )
    titles = ("Average difference", "Largest difference", "Variance")
    handles: list[Any] = []
    deltas, shown = u_values["delta"].to_dict(), dict(u_values["shown"])
    for line, (sign, end) in zip(axes, rows, strict=True):
        for ax, short, title in zip(line, SUMMARIES, titles, strict=True):
            name = f"{short}_{sign}{end}"
            plot_null(
                results.table_null[name].to_numpy(dtype=np.float64),
                float(results.defs[name]),
                title=f"{title}, {_LABELS[_SIGNS[sign]]}{' small' if end else ''}: u {shown[name]}",
                delta=float(deltas[name]),
                ax=ax,
            )
            legend = ax.get_legend()
            if len(legend.legend_handles) > len(handles):
                handles = list(legend.legend_handles)
            legend.remove()
            if line is not axes[-1]:
                ax.set_xlabel("")
    delta = float(u_values["delta"].max())
    square = "" if results.compat else f" (variance: {delta**2:g})"
    texts = [
        "null draws",
        f"draws that the observed value exceeds by more than {delta:g}{square}; u is their share",
        "observed value",
    ]
    if len(handles) == len(texts):
        figure.legend(
            handles, texts, loc="outside lower left", ncols=3, frameon=False, fontsize=base_size()
        )
    return figure
