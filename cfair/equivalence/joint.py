"""Power and sample size to show that several groups are all equivalent, at once.

By the intersection-union principle all pairs are claimed to be equivalent if each is, with no
correction of alpha. The price is paid in power: all tests have to reject. Their estimates share
groups, so that the powers of the pairs do not multiply. On the scale of the contrast the estimate
of group k is normal with the variance v_k / (f_k N); pair (i, j) is found equivalent where

    lo + z s_ij < theta_i - theta_j < hi - z s_ij,      s_ij^2 = (v_i / f_i + v_j / f_j) / N.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from cfair.equivalence.power import MOST_ROWS, least_number, wald_tests

Array = NDArray[np.float64]
Pairs = NDArray[np.intp]

#: Points of the normal distribution of the groups' errors, where all pairs are compared.
POINTS = 2**15
#: Nodes of the integral over the error of a common reference, and how far it goes in sds.
_NODES, _REACH = 4001, 9.0


class JointPower:
    """Power of several equivalence tests that all have to reject, as a function of N.

    Parameters
    ----------
    delta : (m,) array
        True contrasts of the pairs, on the scale on which they are normal.
    low, high : floats
        Margin on that scale.
    sd : (K,) array
        Of each group's estimate, times the root of N.
    pairs : (m, 2) array of int
        Group and reference.
    alpha : float
        Of each one-sided test.

    Notes
    -----
    Where one reference is common to all pairs the tests are independent given its error, and power
    is an integral over that error. Otherwise it is the mean over `POINTS` points of a Sobol
    sequence (scrambled, always the same), right to about 0.001.

    Examples
    --------
    >>> import numpy as np
    >>> two = JointPower(np.zeros(1), np.log(0.8), np.log(1.25), np.array([2.3094, 1.3333]),
    ...                  np.array([[0, 1]]), 0.05)
    >>> round(float(two.at(1224)), 3)
    0.8
    >>> three = JointPower(np.zeros(3), np.log(0.8), np.log(1.25), np.full(3, 1.0),
    ...                    np.array([[0, 1], [0, 2], [1, 2]]), 0.05)
    >>> round(float(three.at(500)), 2), three.sample_size(0.8)
    (0.86, 453.0)
    """

    def __init__(
        self, delta: Array, low: float, high: float, sd: Array, pairs: Pairs, alpha: float
    ) -> None:
        self.delta, self.low, self.high = delta, low, high
        self.sd, self.pairs, self.alpha = sd, pairs, alpha
        self.pair_sd = np.hypot(*sd[pairs].T)
        self._needed: Array | None = None

    @property
    def common(self) -> bool:
        """Whether one reference is common to all pairs."""
        return bool((self.pairs[:, 1] == self.pairs[0, 1]).all())

    def at(self, n: Any) -> Array:
        """Power with N patients.

        Parameters
        ----------
        n : (...) array

        Returns
        -------
        (...) array
        """
        n = np.asarray(n, dtype=float)
        if len(self.pairs) == 1:
            v = self.pair_sd[0] ** 2
            return wald_tests(self.delta[0], v, self.low, self.high).power(n, self.alpha)
        if self.common:
            return self._integral(n)
        needed = np.sort(self._smallest_n())
        return np.asarray(np.searchsorted(needed, n, side="right") / len(needed), dtype=float)

    def sample_size(self, power: float) -> float:
        """Smallest whole N that reaches a power.

        Parameters
        ----------
        power : float in (0, 1)

        Returns
        -------
        float
            NaN if none does.
        """
        nearer = np.minimum(self.high - self.delta, self.delta - self.low)
        if (nearer <= 0).any():
            return np.nan
        if not self.common:
            needed = np.sort(self._smallest_n())
            n = float(np.ceil(needed[int(np.ceil(power * len(needed))) - 1]))
            return n if n < MOST_ROWS else np.nan
        # No more than what Bonferroni's inequality asks for; no less than one row.
        z = -ndtri(self.alpha) - ndtri((1 - power) / (2 * len(self.pairs)))
        most = float(np.max(self.pair_sd / nearer * z) ** 2)
        if most >= MOST_ROWS:
            return np.nan
        return float(
            least_number(
                lambda n: self.at(n) >= power,
                np.array(1.0), np.array(np.ceil(most) + 1), whole=True,
            )
        )  # fmt: skip

    def _integral(self, n: Array) -> Array:
        """Given the error of the reference, the groups are independent."""
        x = np.linspace(-_REACH, _REACH, _NODES)
        weight = np.exp(-0.5 * x**2)
        weight /= weight.sum()
        z, root = -ndtri(self.alpha), np.sqrt(n)[..., None]
        at = int(self.pairs[0, 1])
        inside = np.ones((*n.shape, _NODES))
        for (group, _), delta, sd in zip(self.pairs, self.delta, self.pair_sd, strict=True):
            least = (self.low - delta) * root + z * sd + self.sd[at] * x
            most = (self.high - delta) * root - z * sd + self.sd[at] * x
            inside *= np.maximum(ndtr(most / self.sd[group]) - ndtr(least / self.sd[group]), 0.0)
        return np.asarray(inside @ weight, dtype=float)

    def _smallest_n(self) -> Array:
        """For each point of the errors the N from which on every pair is found equivalent."""
        if self._needed is None:
            K = len(self.sd)
            sobol = qmc.Sobol(K, scramble=True, seed=0)
            error = ndtri(np.clip(sobol.random(POINTS), 1e-12, 1 - 1e-12)) * self.sd
            z, root = -ndtri(self.alpha), np.zeros(POINTS)
            to_low, to_high = self.delta - self.low, self.high - self.delta
            with np.errstate(divide="ignore"):
                for k, (i, j) in enumerate(self.pairs):
                    gap = error[:, i] - error[:, j]
                    for reach, distance in ((gap, to_high[k]), (-gap, to_low[k])):
                        needed = z * self.pair_sd[k] + reach
                        never = np.where(needed > 0, np.inf, 0.0)
                        root = np.maximum(root, needed / distance if distance > 0 else never)
            self._needed = root**2
        return self._needed
