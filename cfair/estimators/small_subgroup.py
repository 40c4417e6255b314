"""Counterfactual error rates of small groups by Bayes' rule (Wastvedt et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import ratio
from cfair.estimators.ipw import ipw_rates

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True)
class SmallSubgroupSums:
    """What the rates of small groups, and of unions of them, are made of.

    All arrays may have the same leading axes, for instance one of replicates.

    Attributes
    ----------
    overall : (..., 2) array
        cFPR and cFNR over all rows.
    numerator : (..., 2, K) array
        ``a_g`` and ``c_g``: estimates of P(A=g | S=1, Y0=0) and P(A=g | S=0, Y0=1).
    denominator : (..., 2, K) array
        ``b_g`` and ``d_g``: estimates of P(A=g | Y0=0) and P(A=g | Y0=1).
    size : (..., K) array
        Rows of each group, or their total weight.
    """

    overall: Array
    numerator: Array
    denominator: Array
    size: Array

    def rates(self, membership: Array | Integers | None = None) -> tuple[Array, Array]:
        """Rates of the groups, or of unions of groups.

        Parameters
        ----------
        membership : (T, K) array of 0 and 1, optional
            Which groups belong to each of T unions; by default each group is one of its own.

        Returns
        -------
        cfpr, cfnr : (..., T) arrays, or (..., K)
            ``overall`` times the sum of numerators over the sum of denominators. NaN for a union
            without rows, and where a denominator is 0. Rates above 1 can occur and are returned as
            they are. The union of all groups has the overall rates exactly only if the
            denominators add up to 1, that is, if the membership probabilities do.

        Examples
        --------
        >>> import numpy as np
        >>> shares = np.array([[0.5, 0.5], [0.25, 0.75]])
        >>> sums = SmallSubgroupSums(np.array([0.2, 0.4]), shares, np.full((2, 2), 0.5), np.ones(2))
        >>> [rate.tolist() for rate in sums.rates()]
        [[0.2, 0.2], [0.2, 0.6000000000000001]]
        >>> [rate.tolist() for rate in sums.rates(np.array([[1, 1]]))]
        [[0.2], [0.4]]
        """
        numerator, denominator, size = self.numerator, self.denominator, self.size
        if membership is not None:
            union = np.asarray(membership, dtype=np.float64).T
            numerator, denominator, size = numerator @ union, denominator @ union, size @ union
        rates = self.overall[..., None] * ratio(numerator, denominator)
        rates = np.where(size[..., None, :] > 0, rates, np.nan)
        return rates[..., 0, :], rates[..., 1, :]


def small_subgroup_sums(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    pi: Array,
    mu0: Array,
    mu0_s1: Array,
    mu0_s0: Array,
    p_group: Array,
    weights: Array | None = None,
) -> SmallSubgroupSums:
    """Overall rates and group shares behind the rates of small groups.

    Parameters
    ----------
    y, s, d, group, pi, mu0, mu0_s1, mu0_s0, p_group, weights
        As for `small_subgroup_rates`.

    Returns
    -------
    SmallSubgroupSums
    """
    n, n_groups = p_group.shape
    everybody = np.zeros(n, dtype=np.intp)
    cfpr, cfnr = ipw_rates(y, s, d, everybody, pi, 1, weights)
    a = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    flagged = np.asarray(s) == 1

    def share_of_rows(amount: Array) -> Array:
        sums = _sums_by_group(group, a * amount, n_groups)
        return ratio(sums, sums.sum())

    def share_by_probability(amount: Array) -> Array:
        return ratio((a * amount) @ p_group, (a * amount).sum())

    return SmallSubgroupSums(
        overall=np.concatenate([cfpr, cfnr]),
        numerator=np.stack(
            [
                share_of_rows(np.where(flagged, 1.0 - mu0_s1, 0.0)),
                share_of_rows(np.where(flagged, 0.0, mu0_s0)),
            ]
        ),
        denominator=np.stack([share_by_probability(1.0 - mu0), share_by_probability(mu0)]),
        size=_sums_by_group(group, a, n_groups),
    )


def _sums_by_group(group: Integers, amount: Array, n_groups: int) -> Array:
    return np.bincount(group, weights=amount, minlength=n_groups).astype(np.float64)


def small_subgroup_rates(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    pi: Array,
    mu0: Array,
    mu0_s1: Array,
    mu0_s0: Array,
    p_group: Array,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    r"""Counterfactual false positive and false negative rates of small groups.

    By Bayes' rule the rates over all rows are multiplied by two shares of the group, and only one
    of these rests on the few rows of the group itself:

    .. math::
        cFPR_g = cFPR \cdot \frac{a_g}{b_g}, \qquad cFNR_g = cFNR \cdot \frac{c_g}{d_g},

    where, with ``w = (1 - D) / (1 - pi)`` and sums over all rows,

    .. math::
        cFPR &= \frac{\sum w S (1-Y)}{\sum w (1-Y)}, &
        cFNR &= \frac{\sum w (1-S) Y}{\sum w Y}, \\
        a_g &= \frac{\sum (1-\mu_0(1)) S 1_g}{\sum (1-\mu_0(1)) S}, &
        b_g &= \frac{\sum p_g (1-\mu_0)}{\sum (1-\mu_0)}, \\
        c_g &= \frac{\sum \mu_0(0) (1-S) 1_g}{\sum \mu_0(0) (1-S)}, &
        d_g &= \frac{\sum p_g \mu_0}{\sum \mu_0}.

    They estimate P(S=1 | Y0=0, A=g) and P(S=0 | Y0=1, A=g) under consistency, no unmeasured
    confounding of treatment, positivity, right models, and a group that tells nothing more about Y0
    than the covariates of the models do, with and without S.

    Parameters
    ----------
    y : (n,) array of 0 and 1
        Observed outcome.
    s : (n,) array of 0 and 1
        Prediction.
    d : (n,) array of 0 and 1
        Treatment.
    group : (n,) array of int
        Group codes 0..K-1.
    pi : (n,) array
        Probability of treatment, below 1 for the untreated.
    mu0 : (n,) array
        P(Y=1 | D=0, X).
    mu0_s1, mu0_s0 : (n,) arrays
        P(Y=1 | D=0, X, S) with S set to 1 and to 0.
    p_group : (n, K) array
        P(A=g | X). Taken as given: rows that do not add up to 1 are not rescaled.
    weights : (n,) array, optional
        Sampling weights.

    Returns
    -------
    cfpr, cfnr : (K,) arrays
        NaN for a group without rows, and where a denominator is 0: for cFPR that is also when no
        row is flagged, for cFNR when all are. Nothing keeps a rate below 1.

    See Also
    --------
    small_subgroup_sums : The parts, from which rates of unions of groups are formed too.

    References
    ----------
    Wastvedt S, Huling JD, Wolfson J (2024). Counterfactual fairness for small subgroups.
    arXiv:2310.19988.

    Examples
    --------
    >>> import numpy as np
    >>> y, s, d = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.zeros(4, int)
    >>> half, group = np.full(4, 0.5), np.array([0, 0, 0, 1])
    >>> shares = np.tile([0.75, 0.25], (4, 1))
    >>> cfpr, cfnr = small_subgroup_rates(y, s, d, group, 0 * half, half, half, half, shares)
    >>> cfpr.round(4).tolist(), cfnr.round(4).tolist()
    ([0.3333, 1.0], [0.6667, 0.0])
    """
    sums = small_subgroup_sums(y, s, d, group, pi, mu0, mu0_s1, mu0_s0, p_group, weights)
    return sums.rates()
