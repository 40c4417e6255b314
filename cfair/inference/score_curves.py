"""Curves of a score, target by target: ROC points, recalibration, net benefit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, stdtrit

from cfair.inference.intervals import NORMAL, wilson_interval
from cfair.inference.performance import ScoredRows
from cfair.inference.recalibration import Recalibration

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RocPoints:
    """Points of the ROC curves of one partition, target by target, from (0, 0) to (1, 1).

    Attributes
    ----------
    target : (m,) int array
        Only targets with events and non-events have points.
    threshold : (m,) array
        The call is ``score >= threshold``; infinite at (0, 0).
    fpr, tpr : (m,) arrays
    tpr_low, tpr_high : (m,) arrays
        Wilson's limits of the sensitivity at that threshold.
    """

    target: NDArray[np.intp]
    threshold: Array
    fpr: Array
    tpr: Array
    tpr_low: Array
    tpr_high: Array


def roc_points(rows: ScoredRows, k: int, level: float = 0.95) -> RocPoints:
    """ROC curves of the targets of a partition, a point for every distinct score.

    Parameters
    ----------
    rows : ScoredRows
    k : int
    level : float, default 0.95

    Returns
    -------
    RocPoints
    """
    order, _ = rows.order(k)
    order = order[::-1]
    code, score, w, event = rows.codes[k][order], rows.p[order], rows.w[order], rows.y[order]
    size = rows.sizes[k]
    starts = np.ones(len(code), dtype=bool)
    starts[1:] = (code[1:] != code[:-1]) | (score[1:] != score[:-1])
    first = np.flatnonzero(starts)
    at = code[first]

    def shares(weight: Array) -> tuple[Array, Array]:
        """The class's weight by target, and its share at or above each block of equal scores."""
        mass = np.add.reduceat(weight, first)
        whole = np.bincount(at, mass, size).astype(float, copy=False)
        later = np.cumsum(whole[::-1])[::-1] - whole  # targets are in falling order
        share = (np.cumsum(mass) - later[at]) / np.where(whole > 0, whole, 1.0)[at]
        return whole, np.clip(share, 0, 1)

    events, tpr = shares(w * event)
    others, fpr = shares(w * (1 - event))
    present = np.flatnonzero((events > 0) & (others > 0))
    kept = np.isin(at, present)
    target = np.concatenate([present, at[kept]])
    fpr = np.concatenate([np.zeros(len(present)), fpr[kept]])
    tpr = np.concatenate([np.zeros(len(present)), tpr[kept]])
    threshold = np.concatenate([np.full(len(present), np.inf), score[first][kept]])
    sequence = np.lexsort([-threshold, target])
    target, tpr, fpr = target[sequence], tpr[sequence], fpr[sequence]
    max_df = NORMAL if rows.n_clusters is None else float(rows.n_clusters - 1)
    kish = rows.kish(k, rows.y == 1)
    low, high = wilson_interval(tpr, kish[target], level, max_df=max_df)
    return RocPoints(target, threshold[sequence], fpr, tpr, low, high)


@dataclass(frozen=True, eq=False)
class RecalibrationCurves:
    """Risk by score as the logistic recalibration sees it, over a target's own scores.

    Attributes
    ----------
    target : (m,) int array
    score, rate, low, high : (m,) arrays
    """

    target: NDArray[np.intp]
    score: Array
    rate: Array
    low: Array
    high: Array


def recalibration_curves(
    rows: ScoredRows, fit: Recalibration, k: int, level: float = 0.95, points: int = 60
) -> RecalibrationCurves:
    """Recalibration curves of the targets of a partition, with pointwise intervals.

    Parameters
    ----------
    rows : ScoredRows
    fit : Recalibration
    k : int
    level : float, default 0.95
    points : int, default 60
        Points of each curve.

    Returns
    -------
    RecalibrationCurves
    """
    first = sum(rows.sizes[:k])
    a = fit.intercept.estimate[first : first + rows.sizes[k]]
    b = fit.slope.estimate[first : first + rows.sizes[k]]
    za, zb = fit.intercept.values[k], fit.slope.values[k]
    order, start = rows.order(k)
    df = np.full(rows.sizes[k], np.inf) if rows.cluster is None else rows.units(k) - 2
    parts: list[tuple[Array, ...]] = []
    for g in np.flatnonzero(~np.isnan(b)):
        members = order[start[g] : start[g + 1]]
        p = rows.p[members]
        inside = p[(p > 0) & (p < 1)]
        x = np.linspace(logit(inside[0]), logit(inside[-1]), points)
        one = (za[members], zb[members])
        if rows.cluster is not None:
            at = rows.cluster[members]
            one = (np.bincount(at, one[0]).astype(float), np.bincount(at, one[1]).astype(float))
        variance = one[0] @ one[0] + 2 * x * (one[0] @ one[1]) + x**2 * (one[1] @ one[1])
        # without any variance, as in two clusters, there is a curve and no band
        deviation = np.sqrt(variance) if variance.min() > 0 else np.nan
        half = -stdtrit(max(df[g], 1.0), (1 - level) / 2) * deviation
        line = a[g] + b[g] * x
        parts.append(
            (np.full(points, g), expit(x), expit(line), expit(line - half), expit(line + half))
        )
    if not parts:
        nothing = np.empty(0)
        return RecalibrationCurves(np.empty(0, dtype=np.intp), nothing, nothing, nothing, nothing)
    target, score, rate, low, high = (np.concatenate(p) for p in zip(*parts, strict=True))
    return RecalibrationCurves(target.astype(np.intp), score, rate, low, high)


@dataclass(frozen=True, eq=False)
class NetBenefit:
    """Net benefit by target and threshold.

    Attributes
    ----------
    benefit, se : (size, m) arrays
        Of calling those at or above the threshold.
    standardized, standardized_se : (size, m) arrays
        Over the prevalence, the most there is to gain.
    all_benefit, all_se : (size, m) arrays
        Of calling everybody; calling nobody has net benefit 0.
    df : (size,) array
        Degrees of freedom of Student's quantile.
    """

    benefit: Array
    se: Array
    standardized: Array
    standardized_se: Array
    all_benefit: Array
    all_se: Array
    df: Array


def net_benefit(rows: ScoredRows, k: int, thresholds: Array) -> NetBenefit:
    """Net benefit: true positives less false positives at the odds of the threshold, per person.

    Parameters
    ----------
    rows : ScoredRows
    k : int
        Partition.
    thresholds : (m,) array
        In [0, 1).

    Returns
    -------
    NetBenefit

    References
    ----------
    Vickers AJ, Elkin EB (2006). Decision curve analysis: a novel method for evaluating prediction
    models. Medical Decision Making 26, 565-574. Kerr KF et al. (2016). Assessing the clinical
    impact of risk prediction models with decision curves. J Clin Oncol 34, 2534-2540.
    """
    sequence = np.argsort(thresholds, kind="stable")
    cuts = thresholds[sequence]
    odds = thresholds / (1 - thresholds)
    size, m = rows.sizes[k], len(thresholds)
    passed = np.searchsorted(cuts, rows.p, side="right")  # thresholds at or below the score
    called = _by_threshold(rows, k, passed, sequence)
    whole = rows.total(k, rows.w)
    prevalence = rows.total(k, rows.w * rows.y) / np.where(whole > 0, whole, 1.0)
    some, any_event = whole > 0, prevalence > 0
    share = np.where(some, whole, np.nan)[:, None]
    hits, alarms = called[0] / share, called[1] / share
    benefit = hits - odds * alarms
    everybody = prevalence[:, None] - odds * (1 - prevalence[:, None])
    base = np.where(any_event, prevalence, np.nan)[:, None]
    standardized = benefit / base
    if rows.cluster is None:
        sq_hits, sq_alarms, sq_events, sq_others = called[2], called[3], called[4], called[5]

        def deviation(hit: Array, alarm: Array, missed: Array, cleared: Array) -> Array:
            """Root of the sum of squared weighted values of the four kinds of rows."""
            total = (
                sq_hits * hit**2
                + sq_alarms * alarm**2
                + (sq_events - sq_hits) * missed**2
                + (sq_others - sq_alarms) * cleared**2
            )
            result: Array = np.sqrt(total) / share * rows.small_sample(k)[:, None]
            return result

        se = deviation(1 - benefit, -odds - benefit, -benefit, -benefit)
        one = 1 - standardized
        relative = deviation(one, -odds, -standardized, np.zeros_like(benefit)) / base
        all_se = deviation(1 - everybody, -odds - everybody, 1 - everybody, -odds - everybody)
    else:
        se, relative, all_se = _clustered(
            rows, k, thresholds, benefit, standardized, everybody, base, share
        )
    undefined = (~some)[:, None] | np.zeros((size, m), dtype=bool)
    nan = np.where(undefined, np.nan, 0.0)
    return NetBenefit(
        benefit + nan,
        _unknown_if_zero(se + nan),
        standardized + nan,
        _unknown_if_zero(relative + nan),
        everybody + nan,
        _unknown_if_zero(all_se + nan),
        rows.units(k) - 1,
    )


def _unknown_if_zero(se: Array) -> Array:
    """A standard error of 0 says that nothing varied among these rows, not that it is known."""
    return np.where(se > 0, se, np.nan)


def _by_threshold(
    rows: ScoredRows, k: int, passed: NDArray[np.intp], sequence: NDArray[np.intp]
) -> list[Array]:
    """Weights of called events and non-events, their squares, and squares of both classes."""
    size, m = rows.sizes[k], len(sequence)
    cell = rows.codes[k] * (m + 1) + passed

    def called(values: Array) -> tuple[Array, Array]:
        sums = np.bincount(cell, values, size * (m + 1)).astype(float, copy=False)
        table = sums.reshape(size, m + 1)
        above = np.cumsum(table[:, ::-1], axis=1)[:, ::-1]
        found = np.empty((size, m))
        found[:, sequence] = above[:, 1:]
        return found, above[:, :1]

    w, y = rows.w, rows.y
    hits, _ = called(w * y)
    alarms, _ = called(w * (1 - y))
    square_hits, square_events = called(w**2 * y)
    square_alarms, square_others = called(w**2 * (1 - y))
    return [hits, alarms, square_hits, square_alarms, square_events, square_others]


def _clustered(
    rows: ScoredRows,
    k: int,
    thresholds: Array,
    benefit: Array,
    standardized: Array,
    everybody: Array,
    base: Array,
    share: Array,
) -> tuple[Array, Array, Array]:
    """Standard errors from sums over clusters, a threshold at a time."""
    assert rows.cluster is not None
    code, size = rows.codes[k], rows.sizes[k]
    pair, place = np.unique(rows.cluster * size + code, return_inverse=True)
    target = pair % size
    scale = rows.small_sample(k)

    def deviation(values: Array) -> Array:
        sums = np.bincount(place, rows.w * values, len(pair))
        return np.sqrt(np.bincount(target, sums**2, size)) * scale / share[:, 0]

    columns: list[tuple[Array, Array, Array]] = []
    for j, t in enumerate(thresholds):
        odds, call = t / (1 - t), rows.p >= t
        gained = call * (rows.y - odds * (1 - rows.y))
        columns.append(
            (
                deviation(gained - np.nan_to_num(benefit[:, j])[code]),
                deviation(gained - np.nan_to_num(standardized[:, j])[code] * rows.y) / base[:, 0],
                deviation(rows.y - odds * (1 - rows.y) - np.nan_to_num(everybody[:, j])[code]),
            )
        )
    first, second, third = (np.column_stack(c) for c in zip(*columns, strict=True))
    return first, second, third


def check_thresholds(thresholds: ArrayLike | None) -> Array:
    """Check the thresholds of a decision curve.

    Parameters
    ----------
    thresholds : array_like or None

    Returns
    -------
    (m,) array

    Raises
    ------
    ValueError
        If one is outside [0, 1), where a false positive has finite odds.
    """
    if thresholds is None:
        return np.arange(1, 100) / 100
    cuts = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if cuts.ndim != 1 or not cuts.size or not np.all((cuts >= 0) & (cuts < 1)):
        raise ValueError(f"thresholds must be risks in [0, 1), not {thresholds!r}.")
    return cuts
