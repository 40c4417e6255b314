"""Two one-sided tests: whether a contrast of two rates lies inside a margin.

The two tests at alpha say "equivalent" exactly when the interval of level 1 - 2 alpha lies inside
the margin. Contrasts are of a rate to a reference rate; margins are on the scale of the contrast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from cfair.equivalence.design import check_alpha
from cfair.equivalence.margins import CONTRASTS, FOUR_FIFTHS, scaled
from cfair.equivalence.restricted import restricted_rates, share_by_odds
from cfair.inference.intervals import boundary_se
from cfair.options import check_option

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Tests of binomial rates: score, or the normal approximation of the estimate.
TESTS: tuple[str, ...] = ("score", "wald")


@dataclass(frozen=True)
class Tost:
    """Two one-sided tests of one contrast, or of many.

    Attributes
    ----------
    estimate : array
        NaN where the contrast is undefined, infinite where only the reference rate is 0.
    low, high : arrays
        Limits of level 1 - 2 alpha, which decide.
    p_lower, p_upper : arrays
        Against a contrast at the lower margin or below it, and at the upper one or above it.
    reachable : array of bool
        Whether some split of the same number of events between groups of these sizes would have
        shown equivalence, of a hundred that are tried. Where none would, the study has no power.
    """

    estimate: Array
    low: Array
    high: Array
    p_lower: Array
    p_upper: Array
    reachable: Mask

    @property
    def p_value(self) -> Array:
        """Of equivalence, the larger of the two; above 1 - alpha the interval is wholly outside."""
        result: Array = np.maximum(self.p_lower, self.p_upper)
        return result


def least_expected_cell(
    rate: ArrayLike, n: ArrayLike, reference: ArrayLike, n_ref: ArrayLike
) -> Array:
    """Smallest expected cell of the table of two groups, had both the rate they have together.

    Parameters
    ----------
    rate, n : arrays
        Rate of a group, and rows in its denominator or their effective number.
    reference, n_ref : arrays
        The same of the reference.

    Returns
    -------
    array
        NaN where a rate is undefined.

    Examples
    --------
    >>> least_expected_cell(0.9, 40, 0.8, 160).round(1).tolist()
    7.2
    """
    n, n_ref = np.asarray(n, dtype=float), np.asarray(n_ref, dtype=float)
    pooled = _pooled(rate, n, reference, n_ref)
    result: Array = np.minimum(n, n_ref) * np.minimum(pooled, 1 - pooled)
    return result


def tost_counts(
    events: ArrayLike,
    n: ArrayLike,
    events_ref: ArrayLike,
    n_ref: ArrayLike,
    margin: tuple[ArrayLike, ArrayLike] = FOUR_FIFTHS,
    *,
    contrast: str = "ratio",
    alpha: float = 0.05,
    method: str = "score",
) -> Tost:
    """Two one-sided tests of independent binomial rates.

    Parameters
    ----------
    events, n : arrays
        Of the rows in the denominator (n), those in the numerator, in a group: counts, or effective
        numbers of weighted rows.
    events_ref, n_ref : arrays of int
        The same in the reference group.
    margin : (array, array), default (0.8, 1.25)
        On the scale of the contrast.
    contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"
    alpha : float, default 0.05
        Size of each one-sided test.
    method : {"score", "wald"}, default "score"
        ``"score"``: the score test of Koopman and of Miettinen and Nurminen, with their variance
        factor N / (N - 1). ``"wald"``: the normal approximation of the log ratio (Katz), the log
        odds ratio (Woolf), or the difference. With small cells Wald's size may be three times
        alpha, the score test's stays near it.

    Returns
    -------
    Tost
        NaN where a denominator is 0, where the contrast is undefined (a ratio of two rates of 0),
        and by ``"wald"`` where a logarithm is.

    Raises
    ------
    ValueError
        For an unknown option, or events that are negative or more than n.

    Notes
    -----
    Intervals are found by inverting the tests, so that interval and p-values agree.

    For a rate of exactly 0 or 1, whose binomial variance is 0, the Wald test takes Agresti and
    Coull's: no zero variance counts as certainty.

    The score test is not taken from statsmodels 0.15, though for ratios it agrees with
    ``score_test_proportions_2indep``. There the restricted estimate of a difference is not the
    most likely one (its issue 10269: the cubic has a count where the size of a group belongs); the
    limits of ``confint_proportions_2indep`` for a ratio are wrong where a rate is exactly 1; and
    with an empty cell other limits are errors or NaN, which is where score limits are wanted.

    References
    ----------
    Schuirmann DJ (1987). A comparison of the two one-sided tests procedure and the power approach
    for assessing the equivalence of average bioavailability. Journal of Pharmacokinetics and
    Biopharmaceutics 15, 657-680.

    Katz D, Baptista J, Azen SP, Pike MC (1978). Obtaining confidence intervals for the risk ratio
    in cohort studies. Biometrics 34, 469-474.

    Koopman PAR (1984). Confidence intervals for the ratio of two binomial proportions. Biometrics
    40, 513-517.

    Miettinen O, Nurminen M (1985). Comparative analysis of two rates. Statistics in Medicine 4,
    213-226.

    Examples
    --------
    >>> found = tost_counts(450, 500, 880, 1000)
    >>> [float(np.round(v, 3)) for v in (found.estimate, found.low, found.high)]
    [1.023, 0.99, 1.054]
    >>> bool(found.p_value < 0.05)  # equivalent within 0.8 to 1.25
    True
    """
    check_option("method", method, TESTS)
    check_option("contrast", contrast, CONTRASTS)
    alpha = float(check_alpha(alpha))
    x1, n1, x2, n2, lower, upper = np.broadcast_arrays(
        *(np.asarray(v, dtype=float) for v in (events, n, events_ref, n_ref, *margin))
    )
    for count, rows in ((x1, n1), (x2, n2)):
        if ((count < 0) | (count > rows)).any():
            raise ValueError("events must lie between 0 and n.")
    some = (n1 > 0) & (n2 > 0)
    n1, n2 = np.where(some, n1, np.nan), np.where(some, n2, np.nan)
    if method == "score":
        return _score_tost((x1, n1, x2, n2), lower, upper, contrast, alpha)
    a, b = x1 / n1, x2 / n2
    se = [boundary_se(p, np.sqrt(p * (1 - p) / m), m) for p, m in ((a, n1), (b, n2))]
    return tost_estimates(
        *(a, b, se[0], se[1], (lower, upper)),
        sizes=(n1, n2),
        whole=True,
        contrast=contrast,
        alpha=alpha,
    )


def tost_to_all(
    events: ArrayLike,
    n: ArrayLike,
    events_all: ArrayLike,
    n_all: ArrayLike,
    margin: tuple[ArrayLike, ArrayLike] = FOUR_FIFTHS,
    *,
    contrast: str = "ratio",
    alpha: float = 0.05,
) -> Tost:
    """Two one-sided score tests of the rate of a group against that of all rows.

    All rows hold those of the group. With a share f of them in the group, a ratio v to all is a
    ratio v (1 - f) / (1 - v f) to the other rows, and a difference d one of d / (1 - f). The others
    are independent of the group, so that the score test of two binomial rates applies.

    Parameters
    ----------
    events, n : arrays of int
        Of a group; see `tost_counts`.
    events_all, n_all : arrays of int
        Of all rows.
    margin : (array, array), default (0.8, 1.25)
    contrast : {"ratio", "difference"}, default "ratio"
    alpha : float, default 0.05

    Returns
    -------
    Tost
        On the scale of the contrast to all rows. NaN for a group that has all of them.

    Examples
    --------
    >>> found = tost_to_all(45, 50, 880, 1000)
    >>> [float(np.round(v, 3)) for v in (found.estimate, found.low, found.high)]
    [1.023, 0.922, 1.082]
    """
    check_option("contrast", contrast, ("ratio", "difference"))
    x1, n1, x, total, *ends = np.broadcast_arrays(
        *(np.asarray(v, dtype=float) for v in (events, n, events_all, n_all, *margin))
    )
    some = (n1 > 0) & (total > n1)
    f = np.where(some, n1, np.nan) / np.where(some, total, np.nan)

    def to_rest(v: Array) -> Array:
        if contrast == "difference":
            return np.clip(v / (1 - f), -1, 1)
        room = 1 - v * f
        return np.where(room > 0, v * (1 - f) / np.where(room > 0, room, 1.0), np.exp(_FAR))

    def to_all(v: Array) -> Array:
        if contrast == "difference":
            return v * (1 - f)
        with np.errstate(invalid="ignore"):
            finite = v / (f * v + 1 - f)
        return np.where(np.isinf(v), 1 / f, finite)

    found = tost_counts(
        x1, n1, x - x1, np.where(some, total - n1, 0.0), (to_rest(ends[0]), to_rest(ends[1])),
        contrast=contrast, alpha=alpha,
    )  # fmt: skip
    return replace(
        found, estimate=to_all(found.estimate), low=to_all(found.low), high=to_all(found.high)
    )


def tost_estimates(
    rate: Array,
    reference: Array,
    se: Array,
    se_ref: Array,
    margin: tuple[ArrayLike, ArrayLike] = FOUR_FIFTHS,
    *,
    correlation: ArrayLike = 0.0,
    df: tuple[ArrayLike, ArrayLike] = (np.inf, np.inf),
    max_df: float = np.inf,
    sizes: tuple[Array, Array] | None = None,
    whole: bool = False,
    contrast: str = "ratio",
    alpha: float = 0.05,
) -> Tost:
    """Two one-sided Wald tests of estimates with standard errors, on the log scale for ratios.

    Parameters
    ----------
    rate, reference : arrays
        Estimates in a group and in the reference.
    se, se_ref : arrays
        Their standard errors.
    margin : (array, array), default (0.8, 1.25)
    correlation : array, default 0
        Of the two estimates.
    df : (array, array), default infinite
        Degrees of freedom of the two standard errors, combined by Welch's formula into those of
        Student's distribution.
    max_df : float, default inf
        No more than these: the clusters less one.
    sizes : (array, array), optional
        Effective sizes of two rates in [0, 1], for `reachable`. By default it follows from the
        standard errors: whether the interval is shorter than the margin.
    whole : bool, default False
        Whether rates are counts over these sizes.
    contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"
    alpha : float, default 0.05

    Returns
    -------
    Tost
        NaN where an estimate has no logarithm: a ratio with a rate of 0, an odds ratio with a rate
        of 0 or 1.

    Raises
    ------
    ValueError
        For an unknown option.

    Examples
    --------
    >>> found = tost_estimates(np.array(0.30), np.array(0.31), np.array(0.02), np.array(0.01))
    >>> [float(np.round(v, 3)) for v in (found.low, found.high, found.p_lower, found.p_upper)]
    [0.857, 1.093, 0.005, 0.0]
    """
    check_option("contrast", contrast, CONTRASTS)
    alpha = float(check_alpha(alpha))
    a, b = np.asarray(rate, dtype=float), np.asarray(reference, dtype=float)
    rho = np.asarray(correlation, dtype=float)
    ends = [scaled(m, contrast) for m in margin]
    nu = _welch(a, b, se, se_ref, df, max_df, contrast)
    q = -stdtrit(nu, alpha)

    def test(a: Array, b: Array, se_a: ArrayLike, se_b: ArrayLike) -> tuple[Array, ...]:
        (f, s), (g, t) = _on_scale(a, se_a, contrast), _on_scale(b, se_b, contrast)
        at, spread = f - g, np.sqrt(np.maximum(s**2 + t**2 - 2 * rho * s * t, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            p = [stdtr(nu, (ends[0] - at) / spread), stdtr(nu, (at - ends[1]) / spread)]
        return at, spread, *p

    at, spread, p_lower, p_upper = test(a, b, se, se_ref)
    if sizes is None:
        reachable = 2 * q * spread < ends[1] - ends[0]
    else:
        n1, n2 = sizes

        def p_of(x1: Array, x2: Array) -> Array:
            rates = [(x / n, n) for x, n in ((x1, n1), (x2, n2))]
            errors = [boundary_se(p, np.sqrt(p * (1 - p) / n), n) for p, n in rates]
            result: Array = np.maximum(*test(rates[0][0], rates[1][0], *errors)[2:])
            return result

        events = np.clip(a, 0, 1) * n1 + np.clip(b, 0, 1) * n2
        reachable = _some_split(p_of, events, n1, n2, margin, contrast, alpha, whole=whole)
    low, high = (_unscaled(at + sign * q * spread, contrast) for sign in (-1, 1))
    return Tost(_estimate(a, b, contrast), low, high, p_lower, p_upper, reachable)


def _some_split(
    p_of: Callable[[Array, Array], Array],
    events: Array,
    n1: Array,
    n2: Array,
    margin: tuple[ArrayLike, ArrayLike],
    contrast: str,
    alpha: float,
    whole: bool,
) -> Mask:
    """Whether equivalence would be shown by some split of the events between two groups.

    Of the splits whose contrast is inside the margin, about a hundred are tried.
    """
    ends = []
    for value in (np.asarray(m, dtype=float) for m in margin):
        with np.errstate(invalid="ignore", divide="ignore"):
            if contrast == "ratio":
                split = value * n1 * events / (n2 + value * n1)
            elif contrast == "odds_ratio":
                split = events - n2 * share_by_odds(n1, n2, events, value)
            else:
                split = (value + events / n2) / (1 / n1 + 1 / n2)
        ends.append(np.clip(split, np.maximum(0.0, events - n2), np.minimum(n1, events)))
    steps = np.linspace(0, 1, 101).reshape(-1, *[1] * np.ndim(events))
    split = ends[0] + (ends[1] - ends[0]) * steps
    if whole:
        split = np.clip(np.rint(split), np.ceil(ends[0]), np.floor(ends[1]))
        split = np.where(np.ceil(ends[0]) <= np.floor(ends[1]), split, np.nan)
    with np.errstate(invalid="ignore"):
        shown = p_of(split, events - split) < alpha
    return np.asarray(shown.any(axis=0))


def _unscaled(value: Array, contrast: str) -> Array:
    """A contrast from the scale of its test."""
    with np.errstate(over="ignore"):
        result: Array = value if contrast == "difference" else np.exp(value)
    return result


def _pooled(rate: ArrayLike, n: Array, reference: ArrayLike, n_ref: Array) -> Array:
    a, b = np.clip(rate, 0, 1), np.clip(reference, 0, 1)
    total = np.where(n + n_ref > 0, n + n_ref, np.nan)
    result: Array = np.clip((a * n + b * n_ref) / total, 0, 1)
    return result


def _estimate(a: Array, b: Array, contrast: str) -> Array:
    if contrast == "difference":
        return a - b
    with np.errstate(divide="ignore", invalid="ignore"):
        result: Array = a / b if contrast == "ratio" else (a * (1 - b)) / (b * (1 - a))
    return result


def _on_scale(theta: Array, se: ArrayLike, contrast: str) -> tuple[Array, Array]:
    """A rate and its standard error on the scale of the test; NaN where it has no place there."""
    se = np.asarray(se, dtype=float)
    if contrast == "difference":
        return theta, se
    safe: Array = np.where((theta > 0) & ((theta < 1) | (contrast == "ratio")), theta, np.nan)
    if contrast == "ratio":
        return np.log(safe), se / safe
    return np.log(safe) - np.log1p(-safe), se / (safe * (1 - safe))


def _welch(
    a: Array,
    b: Array,
    se_a: ArrayLike,
    se_b: ArrayLike,
    df: tuple[ArrayLike, ArrayLike],
    max_df: float,
    contrast: str,
) -> Array:
    """Degrees of freedom of the standard error of a contrast."""
    s, t = (_on_scale(p, se, contrast)[1] ** 2 for p, se in ((a, se_a), (b, se_b)))
    nu = [np.maximum(np.asarray(f, dtype=float), 1.0) for f in df]
    parts = s**2 / nu[0] + t**2 / nu[1]
    some = parts > 0  # else both are normal
    found = np.where(some, (s + t) ** 2, np.inf) / np.where(some, parts, 1.0)
    result: Array = np.minimum(found, max_df)
    return result


# -- the score test -------------------------------------------------------------------------------

#: Ratios are looked for up to this power of e.
_FAR = 30.0


def _score_tost(
    table: tuple[Array, Array, Array, Array],
    lower: Array,
    upper: Array,
    contrast: str,
    alpha: float,
) -> Tost:
    x1, n1, x2, n2 = table
    estimate = _estimate(x1 / n1, x2 / n2, contrast)
    known = ~np.isnan(estimate)
    q = float(-ndtri(alpha))
    low, high = _score_limits(table, contrast, q, estimate)
    p = [ndtr(-_score(*table, lower, contrast)), ndtr(_score(*table, upper, contrast))]
    low, high, p_lower, p_upper = (np.where(known, v, np.nan) for v in (low, high, *p))

    def p_of(x1: Array, x2: Array) -> Array:
        z = np.minimum(
            *(s * _score(x1, n1, x2, n2, m, contrast) for s, m in zip((1, -1), ends, strict=True))
        )
        return ndtr(-z)

    ends = (lower, upper)
    whole = bool(all(np.all(v[known] == np.floor(v[known])) for v in (x1, n1, x2, n2)))
    reachable = _some_split(p_of, x1 + x2, n1, n2, ends, contrast, alpha, whole=whole)
    return Tost(estimate, low, high, p_lower, p_upper, reachable)


def _score(x1: Array, n1: Array, x2: Array, n2: Array, value: Array, contrast: str) -> Array:
    """Score statistic of a null value, falling in it; 0 where the table says nothing of it."""
    total, n = x1 + x2, n1 + n2
    factor = np.sqrt((n - 1) / n)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if contrast == "ratio":
            p1, p2 = restricted_rates(x1, n1, x2, n2, value, contrast)
            distance = x1 / n1 - value * x2 / n2
            spread = np.sqrt(p1 * (1 - p1) / n1 + value**2 * p2 * (1 - p2) / n2)
            z = distance / spread
        elif contrast == "odds_ratio":
            p2, q2 = (
                share_by_odds(n1, n2, total, value),
                share_by_odds(n1, n2, n - total, 1 / value),
            )
            p1, q1 = p2 * value / (q2 + p2 * value), q2 / (q2 + p2 * value)
            # four ways to write one distance: that of the smallest cell keeps its digits
            cells = np.stack(np.broadcast_arrays(n1 * p1, n1 * q1, n2 * p2, n2 * q2))
            ways = np.stack([x1 - cells[0], cells[1] - n1 + x1, cells[2] - x2, n2 - x2 - cells[3]])
            distance = np.take_along_axis(ways, cells.argmin(axis=0)[None], axis=0)[0]
            z = distance * np.sqrt(1 / (n1 * p1 * q1) + 1 / (n2 * p2 * q2))
        else:
            p1, p2 = restricted_rates(x1, n1, x2, n2, value, contrast)
            distance = x1 / n1 - x2 / n2 - value
            z = distance / np.sqrt(p1 * (1 - p1) / n1 + p2 * (1 - p2) / n2)
    result: Array = factor * np.where(np.isnan(z), 0.0, z)
    return result


def _score_limits(
    table: tuple[Array, Array, Array, Array], contrast: str, q: float, estimate: Array
) -> tuple[Array, Array]:
    """Null values at which the score statistic is q and -q, by bisection on the test's scale."""
    wide = 1.0 if contrast == "difference" else _FAR
    with np.errstate(divide="ignore"):
        start = np.clip(np.nan_to_num(scaled(estimate, contrast)), -wide, wide)
    limits = []
    for sign in (1.0, -1.0):
        # the statistic crosses sign * q between the far end and the estimate, if at all
        far, near = np.full_like(start, -sign * wide), start.copy()
        for _ in range(60):
            middle = (far + near) / 2
            z = _score(*table, _unscaled(middle, contrast), contrast)
            beyond = sign * z > q
            far, near = np.where(beyond, middle, far), np.where(beyond, near, middle)
        found = _unscaled(near, contrast)
        if contrast != "difference":
            never = np.abs(near) > wide - 1e-9
            found = np.where(never, 0.0 if sign > 0 else np.inf, found)
        limits.append(found)
    return limits[0], limits[1]
