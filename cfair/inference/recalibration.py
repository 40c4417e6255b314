"""How near a score is to the risk: logistic recalibration, and calibration errors in bins."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from cfair.inference.performance import Influence, ScoredRows
from cfair.nuisance.logistic import fit_logistic

Array = NDArray[np.float64]

#: Where the bins of a calibration error lie.
BIN_RANGES: tuple[str, ...] = ("unit", "group", "quantile")


@dataclass(frozen=True, eq=False)
class Recalibration:
    """Logistic recalibration of a score in all targets.

    Attributes
    ----------
    in_the_large : Influence
        Intercept with the slope fixed at 1.
    intercept, slope : Influence
        Of the logistic regression of the outcome on the logit of the score.
    reasons : tuple of (T,) tuples of str
        Why the first, and why the other two are undefined; empty where they are not.
    """

    in_the_large: Influence
    intercept: Influence
    slope: Influence
    reasons: tuple[tuple[str, ...], tuple[str, ...]]


def recalibrate(rows: ScoredRows, clip: float | None = None) -> Recalibration:
    """Calibration in the large, calibration intercept and slope.

    The fits are maximum likelihood; the influence values are those of the sandwich variance, times
    ``m / (m - 1)`` and ``m / (m - 2)`` for m rows (HC1), or clusters of the target, so that they
    hold whether or not the recalibrated score is right.

    Parameters
    ----------
    rows : ScoredRows
    clip : float, optional
        Scores are moved into ``[clip, 1 - clip]`` before their logit is taken. By default none is,
        and a target with a score of exactly 0 or 1 has no recalibration.

    Returns
    -------
    Recalibration

    References
    ----------
    Cox DR (1958). Two further applications of a model for binary regression. Biometrika 45,
    562-565. Van Calster B et al. (2016). A calibration hierarchy for risk models was defined. J
    Clin Epidemiol 74, 167-176.
    """
    p = rows.p if clip is None else np.clip(rows.p, clip, 1 - clip)
    edge = (p <= 0) | (p >= 1)
    x = logit(np.where(edge, 0.5, p))
    large: list[tuple[Array, Array]] = []
    fits: list[tuple[Array, Array]] = []
    why: tuple[list[str], list[str]] = ([], [])
    for k in range(len(rows.codes)):
        extreme = rows.count(k, edge)
        blocked = [
            f"{m} score{'s' * (m != 1)} of exactly 0 or 1: no logit" if m else ""
            for m in extreme.astype(int).tolist()
        ]
        usable = (
            (extreme == 0) & (rows.count(k, rows.y == 1) > 0) & (rows.count(k, rows.y == 0) > 0)
        )
        large.append(_in_the_large(rows, k, x, usable))
        both, values, reasons = _line(rows, k, x, usable)
        fits.append((both, values))
        why[0].extend(blocked)
        why[1].extend(a or b for a, b in zip(blocked, reasons, strict=True))
    return Recalibration(
        Influence(np.concatenate([a for a, _ in large]), tuple(b for _, b in large)),
        Influence(np.concatenate([a[0] for a, _ in fits]), tuple(b[0] for _, b in fits)),
        Influence(np.concatenate([a[1] for a, _ in fits]), tuple(b[1] for _, b in fits)),
        (tuple(why[0]), tuple(why[1])),
    )


def _in_the_large(
    rows: ScoredRows, k: int, x: Array, usable: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """Solve ``sum w (y - expit(x + a)) = 0`` for all targets at once: Newton within brackets."""
    code, size = rows.codes[k], rows.sizes[k]
    w = rows.w * usable[code]
    rate = rows.total(k, w * rows.y) / np.where(usable, rows.total(k, w), 1.0)
    centre = logit(np.where(usable, rate, 0.5))
    carry = w > 0
    top, bottom = np.full(size, -np.inf), np.full(size, np.inf)
    np.maximum.at(top, code[carry], x[carry])
    np.minimum.at(bottom, code[carry], x[carry])
    low = np.where(usable, centre - top, 0.0)
    high = np.where(usable, centre - bottom, 0.0)
    a = (low + high) / 2
    for _ in range(100):
        fitted = expit(x + a[code])
        score = rows.total(k, w * (rows.y - fitted))
        information = rows.total(k, w * fitted * (1 - fitted))
        low, high = np.where(score > 0, a, low), np.where(score > 0, high, a)
        step = np.divide(score, information, out=np.zeros(size), where=information > 0)
        new = np.where((a + step < low) | (a + step > high), (low + high) / 2, a + step)
        if np.all(np.abs(new - a) <= 1e-14 * (1 + np.abs(a))):
            break
        a = new
    fitted = expit(x + a[code])
    information = rows.total(k, w * fitted * (1 - fitted))
    factor = rows.small_sample(k) / np.where(information > 0, information, 1.0)
    return np.where(usable, a, np.nan), w * (rows.y - fitted) * factor[code]


def _line(
    rows: ScoredRows, k: int, x: Array, usable: NDArray[np.bool_]
) -> tuple[Array, Array, list[str]]:
    """Intercepts and slopes, target by target."""
    order, start = rows.order(k)
    estimate = np.full((2, rows.sizes[k]), np.nan)
    values = np.zeros((2, len(rows.y)))
    factor = rows.small_sample(k, parameters=2)
    reasons = [""] * rows.sizes[k]
    for g in np.flatnonzero(usable):
        members = order[start[g] : start[g + 1]]
        members = members[rows.w[members] > 0]
        w, y, at = rows.w[members], rows.y[members], x[members]
        if at[0] == at[-1]:  # they are in the order of the score
            reasons[g] = "all scores are equal"
            continue
        ones, zeros = at[y == 1], at[y == 0]
        if zeros[-1] <= ones[0] or ones[-1] <= zeros[0]:
            reasons[g] = "the score separates events from non-events: no finite slope"
            continue
        centre = float(np.average(at, weights=w))
        X = np.column_stack([np.ones_like(at), at - centre])  # centred, for the rounding
        fit = fit_logistic(X, y, weights=w)
        a, b = fit.coef
        estimate[:, g] = a - b * centre, b
        residual = w * (y - fit.fitted)
        information = (X * (w * fit.fitted * (1 - fit.fitted))[:, None]).T @ X
        beta = np.linalg.solve(information, X.T * residual) * factor[g]
        values[0, members] = beta[0] - centre * beta[1]
        values[1, members] = beta[1]
    return estimate, values, reasons


@dataclass(frozen=True, eq=False)
class Bins:
    """Scores and outcomes of all targets in bins of the score.

    Attributes
    ----------
    gap : (T, B) array
        Share of the target's weight in the bin times mean score less event rate.
    variance : (T, B) array
        Of `gap` given the scores.
    variance_if_calibrated : (T, B) array
        The same if every score were the risk.
    n, events : (T, B) arrays
        Rows and events.
    weight, score, rate : (T, B) arrays
        Share of the target's weight, mean score, event rate; the latter NaN in an empty bin.
    kish : (T, B) array
        Kish's effective size.
    """

    gap: Array
    variance: Array
    variance_if_calibrated: Array
    n: Array
    events: Array
    weight: Array
    score: Array
    rate: Array
    kish: Array

    def select(self, targets: NDArray[np.intp]) -> Bins:
        """The bins of some of the targets.

        Parameters
        ----------
        targets : (m,) array of int

        Returns
        -------
        Bins
        """
        return Bins(*(getattr(self, f.name)[targets] for f in fields(self)))

    @property
    def error(self) -> Array:
        """Expected calibration error of each target."""
        return np.where(self.weight.sum(axis=1) > 0, np.abs(self.gap).sum(axis=1), np.nan)

    @property
    def if_calibrated(self) -> Array:
        """What the error would be on average if every score were the risk: noise alone."""
        noise = np.sqrt(2 / np.pi * self.variance_if_calibrated).sum(axis=1)
        return np.where(self.weight.sum(axis=1) > 0, noise, np.nan)

    @property
    def debiased(self) -> Array:
        """The error less its bias, not below 0.

        The absolute value of a bin's gap, normal with mean d and deviation s, is on average
        longer than d by ``s sqrt(2/pi) exp(-d^2 / 2 s^2) - 2 d Phi(-d / s)``; d is put at the root
        of the gap's square less ``s^2``.
        """
        from scipy.special import ndtr

        s = np.sqrt(self.variance)
        d = np.sqrt(np.maximum(self.gap**2 - self.variance, 0.0))
        z = d / np.where(s > 0, s, 1.0)
        excess = s * np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2) - 2 * d * ndtr(-z)
        excess = np.where(s > 0, excess, 0.0)
        return np.maximum(self.error - excess.sum(axis=1), 0.0)


def calibration_bins(rows: ScoredRows, bins: int = 10, bin_range: str = "unit") -> Bins:
    """Sort the rows of every target into bins of the score.

    Parameters
    ----------
    rows : ScoredRows
    bins : int, default 10
    bin_range : {"unit", "group", "quantile"}, default "unit"
        Bins of equal width over [0, 1], closed at the left; of equal width over the range of the
        target's own scores, closed at the right; or at the target's own quantiles.

    Returns
    -------
    Bins
    """
    parts = [
        _sums(rows, k, _places(rows, k, bins, bin_range), bins) for k in range(len(rows.codes))
    ]
    return Bins(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _places(rows: ScoredRows, k: int, bins: int, bin_range: str) -> NDArray[np.intp]:
    """Bin of each row within its target."""
    if bin_range == "unit":
        inner = np.linspace(0, 1, bins + 1)[1:-1]
        return np.searchsorted(inner, rows.p, side="right")
    order, start = rows.order(k)
    place = np.zeros(len(rows.p), dtype=np.intp)
    for g in np.flatnonzero(np.diff(start)):
        members = order[start[g] : start[g + 1]]
        members = members[rows.w[members] > 0]  # rows of weight 0 carry nothing, no bounds either
        p = rows.p[members]
        if not len(p):
            continue
        if bin_range == "group":
            if p[0] < p[-1]:
                inner = np.linspace(p[0], p[-1], bins + 1)[1:-1]
                place[members] = np.searchsorted(inner, p, side="left")
        else:
            inner = np.quantile(p, np.linspace(0, 1, bins + 1)[1:-1])
            place[members] = np.searchsorted(inner, p, side="right")
    return place


def _sums(rows: ScoredRows, k: int, place: NDArray[np.intp], bins: int) -> tuple[Array, ...]:
    size = rows.sizes[k]
    cell = rows.codes[k] * bins + place

    def total(values: Array) -> Array:
        sums = np.bincount(cell, values, size * bins).astype(float, copy=False)
        return sums.reshape(size, bins)

    y, p, w = rows.y, rows.p, rows.w
    weight, events, expected = total(w), total(w * y), total(w * p)
    whole = weight.sum(axis=1, keepdims=True)
    whole = np.where(whole > 0, whole, 1.0)
    some = np.where(weight > 0, weight, 1.0)
    square = total(w**2)
    kish = np.where(square > 0, weight**2, 0.0) / np.where(square > 0, square, 1.0)
    # the event rate, drawn to the mean score by two rows: a bin of one row has a variance too
    rate = (kish * events + 2 * expected) / (some * (kish + 2))
    variance = square * rate * (1 - rate) / whole**2
    if_calibrated = total(w**2 * p * (1 - p)) / whole**2
    if rows.cluster is not None:
        effect = _design_effect(rows, cell, (events - expected) / some).reshape(size, bins)
        variance, if_calibrated = variance * effect, if_calibrated * effect
    empty = weight == 0
    return (
        (expected - events) / whole,
        variance,
        if_calibrated,
        total(np.ones_like(y)),
        total(y),
        weight / whole,
        np.where(empty, np.nan, expected / some),
        np.where(empty, np.nan, events / some),
        kish,
    )


def _design_effect(rows: ScoredRows, cell: NDArray[np.intp], centre: Array) -> Array:
    """Variance of each cell's sum by clusters over that by rows, at least 1."""
    from scipy.sparse import csr_array

    assert rows.cluster is not None
    residual = rows.w * (rows.y - rows.p - centre.ravel()[cell])
    shape = (int(rows.cluster.max()) + 1, centre.size)
    table = csr_array((residual, (rows.cluster, cell)), shape=shape)
    table.sum_duplicates()
    by_cluster: Array = np.asarray(table.multiply(table).sum(axis=0)).ravel()
    by_row = np.bincount(cell, residual**2, centre.size)
    some = by_row > 0
    result: Array = np.maximum(np.where(some, by_cluster, 1.0) / np.where(some, by_row, 1.0), 1.0)
    return result


def check_bins(bins: Any) -> int:
    """Check a number of bins.

    Parameters
    ----------
    bins : int

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If it is not a whole number of at least 1.
    """
    whole = isinstance(bins, (int, np.integer)) and not isinstance(bins, bool)
    if not whole or bins < 1:
        raise ValueError(f"bins must be a whole number >= 1, not {bins!r}.")
    return int(bins)


def check_clip(clip: Any) -> float | None:
    """Check how near to 0 and 1 a score may come before its logit is taken.

    Parameters
    ----------
    clip : float or None

    Returns
    -------
    float or None

    Raises
    ------
    ValueError
        If it is not between 0 and 0.5.
    """
    if clip is None:
        return None
    number = isinstance(clip, (int, float, np.number)) and not isinstance(clip, bool)
    if not number or not 0 < clip < 0.5:
        raise ValueError(f"clip must be between 0 and 0.5, such as 1e-6, or None, not {clip!r}.")
    return float(clip)
