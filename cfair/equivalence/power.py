"""Power, sample size and margin of two one-sided tests, as functions of arrays.

Two rates are compared by their ratio, odds ratio or difference. On the scale of the contrast
(logs, but of a difference) the estimate is taken as normal with the true contrast delta as its mean
and the variance v / N, so that with margin (lo, hi) and z the 1 - alpha quantile

    power = max(0, Phi((hi - delta) / se - z) - Phi((lo - delta) / se + z)),    se^2 = v / N.

It grows with N if delta lies inside the margin, and stays below alpha if it does not. That is the
Wald test, the formula that is published; the score test, whose variance under the null is another,
has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from statsmodels.stats.power import normal_power_het

from cfair.equivalence.margins import contrast_value, scaled, unit_variance
from cfair.equivalence.restricted import restricted_rates

Array = NDArray[np.float64]

#: Beyond it whole numbers have no exact floating-point form.
MOST_ROWS = 2.0**53
#: No ratio is looked for beyond this power of e.
_FAR = 30.0


def variance_per_row(rates: Array, rows: Array, contrast: str) -> Array:
    """Variance of a contrast times N.

    Parameters
    ----------
    rates : (2, ...) array
        Of the group and the reference.
    rows : (2, ...) array
        Rows in the denominators of the two, as shares of N.
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    (...) array

    Examples
    --------
    >>> import numpy as np
    >>> variance_per_row(np.array([0.75, 0.75]), np.array([0.0625, 0.1875]), "ratio").round(3)
    np.float64(7.111)
    """
    result: Array = (unit_variance(rates, contrast) / rows).sum(axis=0)
    return result


@dataclass(frozen=True)
class TwoTests:
    """Two one-sided tests of a study with N = 1, from which those of every N follow.

    Attributes
    ----------
    distance : (2, ...) array
        Of the true contrast from the low and from the high end of the margin, above 0 inside.
    null_sd, sd : (2, ...) arrays
        Standard deviation of the statistic at that end, and at the true rates.
    """

    distance: Array
    null_sd: Array
    sd: Array

    def power(self, n: Any, alpha: Any = 0.05) -> Array:
        """Probability that both tests reject, so that equivalence is concluded.

        Parameters
        ----------
        n : (...) array
        alpha : (...) array, default 0.05
            Level of each test.

        Returns
        -------
        (...) array
            0 where the 1 - 2 alpha interval would be wider than the margin.
        """
        shape = np.broadcast_shapes(self.distance.shape[1:], np.shape(n), np.shape(alpha))
        distance, null_sd, sd = self._broadcast(shape)
        each = normal_power_het(
            distance, n, alpha, std_alternative=sd, std_null=null_sd, alternative="larger"
        )
        result: Array = np.maximum(each[0] + each[1] - 1, 0.0)
        return result

    def sample_size(self, power: Any, alpha: Any = 0.05) -> Array:
        """Smallest whole number of rows that reaches a power.

        Parameters
        ----------
        power : (...) array in (0, 1)
        alpha : (...) array, default 0.05

        Returns
        -------
        (...) array
            NaN where no number of rows reaches it: the true contrast is not inside the margin, or
            so near to its end that more than 9e15 rows would be needed.
        """
        shape = np.broadcast_shapes(self.distance.shape[1:], np.shape(power), np.shape(alpha))
        distance, null_sd, sd = self._broadcast(shape)
        power, alpha = np.broadcast_to(power, shape), np.broadcast_to(alpha, shape)
        possible = (distance > 0).all(axis=0)
        z, safe = -ndtri(alpha), np.where(distance > 0, distance, 1.0)
        # The nearer end alone gives too much power; both as near as that give too little.
        least, most = (
            (np.maximum((z * null_sd + q * sd) / safe, 0.0) ** 2).max(axis=0)
            for q in (ndtri(power), ndtri((1 + power) / 2))
        )
        possible &= most < MOST_ROWS
        least, most = np.where(possible, least, 2.0), np.where(possible, most, 2.0)
        n = least_number(
            lambda n: self.power(n, alpha) >= power,
            np.maximum(np.floor(least) - 1, 1.0),
            np.maximum(np.ceil(most) + 1, 2.0),
            whole=True,
        )
        return np.where(possible, n, np.nan)

    def _broadcast(self, shape: tuple[int, ...]) -> list[Array]:
        """Distances and standard deviations at both ends, for scenarios of this shape."""
        parts = (self.distance, self.null_sd, self.sd)
        return [np.stack([np.broadcast_to(end, shape) for end in part]) for part in parts]


def wald_tests(delta: Any, v: Any, low: Any, high: Any) -> TwoTests:
    """The Wald tests of an estimate that is normal on the scale of its margin.

    Parameters
    ----------
    delta : (...) array
        True contrast, on the scale on which it is normal: its log, but of a difference.
    v : (...) array
        Variance of its estimate times N.
    low, high : (...) arrays
        Margin, on the scale of `delta`.

    Returns
    -------
    TwoTests

    References
    ----------
    Schuirmann DJ (1987). A comparison of the two one-sided tests procedure and the power approach
    for assessing the equivalence of average bioavailability. Journal of Pharmacokinetics and
    Biopharmaceutics 15, 657-680.

    Examples
    --------
    >>> tests = wald_tests(0.0, 7.111, np.log(0.8), np.log(1.25))
    >>> round(float(tests.power(1224)), 3), float(tests.sample_size(0.8))
    (0.8, 1224.0)
    """
    sd, below, above = np.broadcast_arrays(
        np.sqrt(v), np.subtract(delta, low), np.subtract(high, delta)
    )
    both = np.stack([sd, sd])
    return TwoTests(np.stack([below, above]), both, both)


def score_tests(rates: Array, rows: Array, low: Any, high: Any, contrast: str) -> TwoTests:
    """The score tests of two rates: their variance at an end of the margin is that under it.

    Parameters
    ----------
    rates, rows : (2, ...) arrays
        As in `variance_per_row`.
    low, high : (...) arrays
        Margin, on the scale of the contrast itself.
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    TwoTests

    References
    ----------
    Farrington CP, Manning G (1990). Test statistics and sample size formulae for comparative
    binomial trials with null hypothesis of non-zero risk difference or non-unity relative risk.
    Statistics in Medicine 9, 1447-1454: their third method, at the expected counts.

    Examples
    --------
    >>> rates, rows = np.array([0.75, 0.75]), np.array([0.0625, 0.1875])
    >>> float(score_tests(rates, rows, 0.8, 1.25, "ratio").sample_size(0.8))
    1300.0
    """
    (p1, p2), (n1, n2) = rates, rows
    distance, null_sd, sd = [], [], []
    for end, sign in ((low, 1.0), (high, -1.0)):
        q1, q2 = restricted_rates(n1 * p1, n1, n2 * p2, n2, end, contrast)
        if contrast == "odds_ratio":
            # events of the group less those expected given all events, of which a part moves both
            w1, w2 = n1 * q1 * (1 - q1), n2 * q2 * (1 - q2)
            part = w1 / (w1 + w2)
            at = n1 * (p1 - q1)
            null = part * w2
            true = (1 - part) ** 2 * n1 * p1 * (1 - p1) + part**2 * n2 * p2 * (1 - p2)
        else:
            factor = end if contrast == "ratio" else 1.0
            at = p1 - p2 * end if contrast == "ratio" else p1 - p2 - end
            null = q1 * (1 - q1) / n1 + factor**2 * q2 * (1 - q2) / n2
            true = p1 * (1 - p1) / n1 + factor**2 * p2 * (1 - p2) / n2
        distance.append(sign * at)
        null_sd.append(np.sqrt(null))
        sd.append(np.sqrt(true))
    return TwoTests(*(np.stack(np.broadcast_arrays(*v)) for v in (distance, null_sd, sd)))


def planned_tests(
    rates: Array, rows: Array, low: Any, high: Any, contrast: str, method: str = "wald"
) -> TwoTests:
    """The two tests of a planned study.

    Parameters
    ----------
    rates, rows : (2, ...) arrays
        As in `variance_per_row`.
    low, high : (...) arrays
        Margin, on the scale of the contrast itself.
    contrast : {"ratio", "odds_ratio", "difference"}
    method : {"wald", "score"}, default "wald"

    Returns
    -------
    TwoTests
    """
    if method == "score":
        return score_tests(rates, rows, low, high, contrast)
    delta = scaled(contrast_value(rates[0], rates[1], contrast), contrast)
    ends = scaled(low, contrast), scaled(high, contrast)
    return wald_tests(delta, variance_per_row(rates, rows, contrast), *ends)


def narrowest_margin(
    rates: Array,
    rows: Array,
    n: Any,
    power: Any,
    contrast: str,
    alpha: Any = 0.05,
    method: str = "wald",
) -> tuple[Array, Array]:
    """Narrowest symmetric margin that reaches a power.

    Parameters
    ----------
    rates, rows : (2, ...) arrays
        As in `variance_per_row`.
    n, power, alpha : (...) arrays
    contrast : {"ratio", "odds_ratio", "difference"}
    method : {"wald", "score"}, default "wald"

    Returns
    -------
    low, high : (...) arrays
        1/m and m, or -m and m of a difference; NaN where none below the widest that there is, 1
        for a difference and e^30 for a ratio, reaches it.

    Examples
    --------
    >>> rates, rows = np.array([0.75, 0.75]), np.array([0.0625, 0.1875])
    >>> low, high = narrowest_margin(rates, rows, 1224, 0.8, "ratio")
    >>> round(float(low), 3), round(float(high), 3)
    (0.8, 1.25)
    """
    delta = np.abs(scaled(contrast_value(rates[0], rates[1], contrast), contrast))
    v = variance_per_row(rates, rows, contrast)
    delta, v, n, power, alpha = np.broadcast_arrays(delta, v, n, power, alpha)
    widest = np.full(delta.shape, 1 - 1e-9 if contrast == "difference" else _FAR)
    start = np.minimum(delta, widest)
    if method == "wald":  # bounds as of the sample size
        se, z = np.sqrt(v / n), -ndtri(alpha)
        start = np.minimum(delta + se * (z + ndtri(power)), widest)
        widest = np.minimum(delta + se * (z + ndtri((1 + power) / 2)) * (1 + 1e-12), widest)

    def ends(half: Array) -> tuple[Array, Array]:
        return (-half, half) if contrast == "difference" else (np.exp(-half), np.exp(half))

    def reaches(half: Array) -> NDArray[np.bool_]:
        tests = planned_tests(rates, rows, *ends(half), contrast, method)
        found: NDArray[np.bool_] = tests.power(n, alpha) >= power
        return found

    half = least_number(reaches, start, widest, whole=False)
    half = np.where(reaches(half), half, np.nan)
    return ends(half)


def least_number(
    reaches: Callable[[Array], NDArray[np.bool_]], low: Array, high: Array, *, whole: bool
) -> Array:
    """The least number at which something that stays true once it is true becomes true.

    Parameters
    ----------
    reaches : function of a (...) array to a (...) array of bool
    low, high : (...) arrays
        It lies above `low` and is not above `high`; both whole if `whole`.
    whole : bool
        Whether to look among whole numbers only. Otherwise to the last digits.

    Returns
    -------
    (...) array

    Examples
    --------
    >>> least_number(lambda x: x**2 >= 10, np.array(0.0), np.array(10.0), whole=True)
    array(4.)
    """
    low, high = np.array(low, dtype=float), np.array(high, dtype=float)
    for _ in range(60):
        middle = (low + high) / 2
        if whole:
            if (high - low <= 1).all():
                break
            middle = np.floor(middle)
        found = reaches(middle)
        high = np.where(found, middle, high)
        low = np.where(found, low, middle)
    return high
