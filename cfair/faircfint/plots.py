"""Figures of an analysis, with intervals from its bootstrap and u-values from its null."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import CfairWarning, DataError, warn
from cfair.estimators.disparity import STATISTICS
from cfair.faircfint.intervals import (
    check_alpha,
    check_m_factor,
    ci_norm,
    ci_tint,
    ci_trunc,
    get_bs_rescaled,
    u_table,
)
from cfair.faircfint.results import SIGNS, SUMMARIES, AnalysisResult, group_names, in_order
from cfair.frame import show_some
from cfair.results.deltas import check_deltas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

_LABELS = {
    "cfpr": "cFPR",
    "cfnr": "cFNR",
    "cfpr_small": "cFPR for small groups",
    "cfnr_small": "cFNR for small groups",
    "fpr": "observed FPR",
    "fnr": "observed FNR",
}
_COLUMNS = ["point_est", "se_est", "low_trans", "high_trans"]
_LIMITS = _COLUMNS[2:]
_NO_SE = "no standard error: absolute differences are not normal, and the interval does without"


@dataclass(frozen=True, eq=False, repr=False)
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
        Index the figures; ``point_est, se_est, low_trans, high_trans, note``. NaN where there is no
        interval or no standard error, with the reason in ``note``.
    u_values : pandas.DataFrame or None
        Index the summaries; ``u_value, n_valid, delta, shown``. ``shown`` is the share to three
        digits; with ``compat=True`` one that rounds to 0 is ``<0.001``, as R has it whatever the
        number of null replicates, and otherwise ``0``.
    notes : tuple of str
        What stands under the figures: groups without an interval, or beside theirs.
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
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        names = [f.name for f in fields(self) if f.name not in ("intervals", "u_values", "notes")]
        drawn = [name for name in names if getattr(self, name) is not None]
        u = "no u-values" if self.u_values is None else f"u_values of {len(self.u_values)}"
        tables = f"intervals of {len(self.intervals)} figures, {u}"
        return "\n".join([f"Plots: {', '.join(drawn)}; {tables}", *self.notes])


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
        Rows n behind the intervals with ``compat=True``; those used by default, and another number
        is warned of.
    alpha : float, default 0.05
        Intervals of level 1 - alpha.
    m_factor : float, optional
        That of the bootstrap by default; with ``compat=False`` it has no use, which is warned of.
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
    The R package's intervals are replicates turned round the estimate: where nearly all of these,
    of a largest difference in small groups, lie above it, the interval lies below.
    """
    if not isinstance(results, AnalysisResult):
        raise DataError(
            f"results must be what analysis_estimation gives, not {type(results).__name__}."
        )
    level = 1 - check_alpha(alpha)
    check_deltas(delta)
    if m_factor is not None:
        check_m_factor(m_factor)
        if not results.compat:
            warn(
                "m_factor has no use with compat=False, where replicates have as many rows as the "
                "data.",
                CfairWarning,
            )
    names = _names(results, labels)
    used = results.cohort.n_used
    if sampsize is not None and sampsize != used:
        so = (
            "which intervals are for" if results.compat else "which intervals are from all the same"
        )
        warn(f"sampsize is {sampsize!r}, but {used:,} rows were used, {so}.", CfairWarning)
    if results.compat:
        intervals = _intervals_as_r(results, sampsize, alpha, m_factor)
        limits = _limits_as_r(results, intervals)
    else:
        intervals, limits = _own_intervals(results, level)
    u_values = null_dist = None
    if results.table_null is not None:
        u_values = u_table(results.defs, results.table_null, delta, as_r=results.compat)
        null_dist = _null_figure(results, u_values)
    said: dict[str, list[str]] = {
        metric: _rate_notes(results, intervals, metric, names) for metric in SIGNS.values()
    }
    said |= {f"metrics_{sign}": _metric_notes(results, intervals, sign) for sign in SIGNS}
    figures = {
        f"{metric}{end}": _rates_figure(results, limits, level, metric, names, numbers=not end)
        for metric in ("cfpr", "cfnr")
        for end in ("", "_unlabeled")
    }
    figures |= {
        "metrics_pos": _metrics_figure(results, intervals, level, "pos"),
        "metrics_neg": _metrics_figure(results, intervals, level, "neg"),
        "null_dist": null_dist,
    }
    from matplotlib import pyplot as plt

    for name, figure in figures.items():
        if figure is not None:
            _footnote(figure, said.get(name.removesuffix("_unlabeled"), []))
            plt.close(figure)  # pyplot would else count and show all of them
    notes = tuple(dict.fromkeys(note for part in said.values() for note in part))
    return Plots(**figures, intervals=intervals, u_values=u_values, notes=notes)


def _names(results: AnalysisResult, labels: Sequence[str] | None) -> list[str]:
    """Names of the rows: as the R package has them, unless these would be cut."""
    from cfair.plotting.layout import LABEL_WIDTH

    groups = results.cohort.groups
    if labels is None:
        names = [f"Group {name}" for name in group_names(groups, compat=True)]
        fit = max(map(len, names)) <= LABEL_WIDTH
        return names if results.compat and fit else list(groups.names)
    given = [labels] if isinstance(labels, str) else [str(label) for label in labels]
    if len(given) != groups.n_groups:
        raise DataError(
            f"labels must have a name for each of the {groups.n_groups} groups, not {len(given)}."
        )
    return given


def _ends(results: AnalysisResult) -> tuple[str, ...]:
    return ("", "_small") if results.small else ("",)


# -- intervals ------------------------------------------------------------------------------------


def _intervals_as_r(
    results: AnalysisResult, sampsize: int | None, alpha: float, m_factor: float | None
) -> pd.DataFrame:
    """Intervals of summaries and of counterfactual rates of groups, in the order of ``defs``."""
    defs = results.defs
    found = pd.DataFrame(np.nan, index=defs.index, columns=pd.Index(_COLUMNS))
    found["point_est"] = defs
    if results.boot_out is None:
        return found.assign(note="no bootstrap was asked for")
    n = results.cohort.n_used if sampsize is None else sampsize
    m = results.m_factor if m_factor is None else m_factor
    scaled = get_bs_rescaled(results.boot_out, defs, n, m)
    t = ci_trunc(ci_tint(scaled, defs, n, alpha, m))
    without = ("fpr_", "fnr_", "cfpr_marg_", "cfnr_marg_")
    shown = np.array([not str(name).startswith(without) for name in defs.index])
    return found.assign(
        se_est=ci_norm(scaled, defs, n, alpha)["se_est"].where(shown),
        low_trans=t["low_trunc"].where(shown),
        high_trans=t["high_trunc"].where(shown),
        note=t["note"].where(shown, "the R package gives none"),
    )


def _limits_as_r(results: AnalysisResult, intervals: pd.DataFrame) -> dict[str, Array]:
    """Limits (T, 2) of each rate in all groups and single levels; NaN where there are none."""
    groups = results.cohort.groups
    found = {m: np.full((groups.n_groups + len(groups.margins), 2), np.nan) for m in results._rates}
    for metric, limits in found.items():
        limits[: groups.n_groups] = intervals[_LIMITS].iloc[_places(results, intervals, metric)]
    return found


def _places(results: AnalysisResult, intervals: pd.DataFrame, metric: str) -> slice:
    """Rows of a rate of the groups, by place, since two groups can have the same name."""
    names = group_names(results.cohort.groups, compat=results.compat)
    at = int(np.flatnonzero(intervals.index == f"{metric}_{names[0]}")[0])
    return slice(at, at + len(names))


def _own_intervals(results: AnalysisResult, level: float) -> tuple[pd.DataFrame, dict[str, Array]]:
    """The same from cfair's own results: in the order of ``defs``, and the limits of the rates."""
    rates, three, notes, more = {}, {}, {}, {}
    for end in _ends(results):
        own = replace(results.est_choice["small" if end else "counterfactual"], level=level)
        for metric in SIGNS.values() if end else own.metrics:
            rates[metric + end] = np.stack([own.estimates_of(metric).se, *own.limits(metric)])
            why = own.rows[own.metrics.index(metric)].notes
            notes[metric + end] = np.where(np.isnan(rates[metric + end][1]), why, "")[None]
        table = own.disparities.set_index(["metric", "statistic"])
        for sign, metric in SIGNS.items():
            limits = table.loc[metric].loc[list(STATISTICS), ["ci_low", "ci_high"]]
            three[sign + end] = np.vstack([np.full(3, np.nan), limits.to_numpy().T])
            why = [note for note in notes[metric + end][0] if note]
            none = why[0] if why else "fewer than two groups have an interval"
            more[sign + end] = np.where(np.isnan(three[sign + end][1]), none, _NO_SE)[None]
    groups = results.cohort.groups
    found = in_order(rates, three, groups, compat=False).T
    found.columns = pd.Index(_COLUMNS[1:])
    found.insert(0, "point_est", results.defs.to_numpy())
    found["note"] = in_order(notes, more, groups, compat=False).iloc[0]
    return found, {metric: values[1:].T for metric, values in rates.items()}


# -- what there is to say -------------------------------------------------------------------------


def _rate_notes(
    results: AnalysisResult, intervals: pd.DataFrame, metric: str, names: Sequence[str]
) -> list[str]:
    found = []
    for end in _ends(results):
        part = intervals.iloc[_places(results, intervals, metric + end)]
        found += _notes(results, part, [f"{_LABELS[metric + end]} of {name}" for name in names])
    if results.compat and results.boot_out is not None:
        found.append("No interval of observed rates and single levels: the R package gives none.")
    return found


def _metric_notes(results: AnalysisResult, intervals: pd.DataFrame, sign: str) -> list[str]:
    shown = {
        f"{short}_{sign}{end}": f"{long} difference in {_LABELS[SIGNS[sign] + end]}"
        for end in _ends(results)
        for short, long in (("avg", "average"), ("max", "largest"))
    }
    return _notes(results, intervals.loc[list(shown)], list(shown.values()))


def _notes(results: AnalysisResult, part: pd.DataFrame, labels: Sequence[str]) -> list[str]:
    """Which of these estimates have no interval, and why; and which lie beside theirs."""
    if results.compat and results.boot_out is None:
        return []  # no figure speaks of intervals
    estimate = part["point_est"].to_numpy(dtype=np.float64)
    low, high = part[_LIMITS].to_numpy(dtype=np.float64).T
    found: dict[str, list[str]] = {}
    for k in np.flatnonzero(np.isfinite(estimate) & np.isnan(low)):
        found.setdefault(str(part["note"].iloc[k]), []).append(labels[int(k)])
    said = [f"No interval ({why}): {show_some(which, 3)}." for why, which in found.items()]
    beside = np.flatnonzero((estimate < low - 1e-12) | (estimate > high + 1e-12))
    if len(beside):
        which = show_some([labels[int(k)] for k in beside], 3)
        said.append(
            f"Beside its interval: {which}. R's intervals are the replicates turned round the "
            "estimate, and centred elsewhere where these are; compat=False has them around it."
        )
    return said


def _footnote(figure: Any, lines: Sequence[str]) -> None:
    """Write lines under a figure, which grows by as much."""
    if not lines:
        return
    from cfair.plotting.style import GREY, base_size, plain, settle_fonts

    size = 0.85 * base_size()
    width, height = figure.get_size_inches()
    columns = int(72 * width / (0.52 * size))
    wrapped = [row for line in lines for row in textwrap.wrap(plain(line, 400), columns)]
    figure.set_size_inches(width, height + 1.35 * size * len(wrapped) / 72)
    figure.supxlabel("\n".join(wrapped), x=0.01, ha="left", fontsize=size, color=GREY)
    settle_fonts(figure)


# -- figures --------------------------------------------------------------------------------------


def _about(results: AnalysisResult) -> str:
    return f"Had nobody been treated (faircfint, compat {results.compat})"


def _rates_figure(
    results: AnalysisResult,
    limits: dict[str, Array],
    level: float,
    metric: str,
    names: Sequence[str],
    *,
    numbers: bool,
) -> Any:
    """Rates of the groups, then of single levels, each beside the observed rate."""
    from cfair.plotting import plot_rates

    groups = results.cohort.groups
    metrics = [*(metric + end for end in _ends(results)), metric[1:]]
    # the levels of a single attribute are the groups once more
    several = sum(n > 1 for n in groups.shape) > 1
    shown = [*names, *(groups.margin_names if several else ())]
    sizes = [*groups.sizes, *(groups.margin_matrix @ groups.sizes)]
    parts = []
    for name in metrics:
        columns = {
            "metric": name,
            "group": shown,
            "n": sizes[: len(shown)],
            "estimate": results._rates[name][0, : len(shown)],
            "ci_low": limits[name][: len(shown), 0],
            "ci_high": limits[name][: len(shown), 1],
            "note": "",
        }
        parts.append(pd.DataFrame(columns))
    ax = plot_rates(
        pd.concat(parts),
        metrics=metrics,
        labels=_LABELS,
        level=level,
        about=_about(results),
        numbers=metrics[-2] if numbers else None,
    )
    return ax.figure


def _metrics_figure(
    results: AnalysisResult, intervals: pd.DataFrame, level: float, sign: str
) -> Any:
    """Average and largest difference, beside what the null has on average."""
    from cfair.plotting import plot_disparities

    rows = []
    for end in _ends(results):
        for short, statistic in zip(SUMMARIES, STATISTICS, strict=True):
            figure, expected = f"{short}_{sign}{end}", np.nan
            if results.table_null is not None:
                expected = results.table_null[figure].replace(-np.inf, np.nan).mean()
            at = intervals.index.get_loc(figure)
            estimate, limits = results.defs.iloc[at], intervals[_LIMITS].iloc[at]
            rows.append((SIGNS[sign] + end, statistic, estimate, *limits, expected))
    columns = ["metric", "statistic", "estimate", "ci_low", "ci_high", "expected_if_equal"]
    frame = pd.DataFrame(rows, columns=pd.Index(columns)).replace(-np.inf, np.nan)
    metrics = list(dict.fromkeys(frame["metric"]))
    labels = {m: _LABELS[m].replace(" for small groups", " small") for m in metrics}
    return plot_disparities(
        frame, metrics=metrics, labels=labels, level=level, about=_about(results)
    ).figure


def _null_figure(results: AnalysisResult, u_values: pd.DataFrame) -> Any:
    """A panel for each summary: average, largest, variance, of cFPR and of cFNR."""
    from matplotlib import pyplot as plt

    from cfair.plotting import plot_null
    from cfair.plotting.style import base_size

    assert results.table_null is not None
    rows = [(sign, end) for end in _ends(results) for sign in reversed(SIGNS)]
    scale = base_size() / 9
    figure, axes = plt.subplots(
        len(rows), 3, figsize=(scale * 11, scale * (2.6 * len(rows) + 0.4)), layout="constrained"
    )
    titles = ("Average difference", "Largest difference", "Variance")
    entries: dict[str, Any] = {}
    for line, (sign, end) in zip(axes, rows, strict=True):
        for ax, short, title in zip(line, SUMMARIES, titles, strict=True):
            name = f"{short}_{sign}{end}"
            of = f"{_LABELS[SIGNS[sign]]}{' small' if end else ''}"
            plot_null(
                results.table_null[name].to_numpy(dtype=np.float64),
                float(results.defs[name]),
                title=f"{title}, {of}: u {u_values['shown'][name]}",
                delta=float(u_values["delta"][name]),
                ax=ax,
            )
            ax.locator_params(axis="x", nbins=4)
            legend = ax.get_legend()
            if legend is not None:  # one for all panels is enough
                kinds = (text.get_text().split()[0] for text in legend.get_texts())
                entries |= dict(zip(kinds, legend.legend_handles, strict=True))
                legend.remove()
            if line is not axes[-1]:
                ax.set_xlabel("")
    delta = float(u_values["delta"].max())
    square = "" if results.compat else f" (variance: {delta**2:g})"
    texts = {
        "null": "null draws",
        "draws": f"draws that the observed value exceeds by more than {delta:g}{square}; u is "
        "their share",
        "observed": "observed value",
    }
    shown = [kind for kind in texts if kind in entries]
    figure.legend(
        [entries[kind] for kind in shown],
        [texts[kind] for kind in shown],
        loc="outside lower left",
        ncols=3,
        frameon=False,
        fontsize=base_size(),
    )
    return figure
