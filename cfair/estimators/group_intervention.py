"""Error rates of a score if everybody were a member of one group, by model and doubly robust."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.estimators.ipw import rates_from_cells

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

# Values of Youden's J that differ by less are the same number, reached in another order of rows.
_TIE = 1e-12


def group_intervention_rates(
    mu: Array,
    cutoff: float,
    scores: Array | None = None,
    y: Integers | None = None,
    group: Integers | None = None,
    p_group: Array | None = None,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    r"""False positive and false negative rates with the group of every row set to g.

    With ``mu_g`` the probability of the outcome if the row belonged to g and ``S^g`` the prediction
    if it did, and sums over all rows,

    .. math::
        cFPR_g = \frac{\sum S^g (1-\psi_g)}{\sum (1-\psi_g)}, \qquad
        cFNR_g = \frac{\sum (1-S^g) \psi_g}{\sum \psi_g}.

    Single robust, from the outcome model alone: :math:`\psi_g = \mu_g`. Doubly robust, when `y`,
    `group` and `p_group` are given:

    .. math:: \psi_g = \frac{1_g}{p_g} (Y - \mu_g) + \mu_g.

    What is estimated are the rates of a population with the covariates of all rows, all of them
    members of g: P(S^g=1 | Y^g=0) and P(S^g=0 | Y^g=1), where a change of group leaves the
    covariates as they are. Membership cannot be assigned in the world, so the rates are a
    diagnostic of the models behind them and not an effect of anything that could be done.

    Parameters
    ----------
    mu : (n, K) array
        P(Y=1 | X, A=g), best predicted by a model that did not see the row.
    cutoff : float
        A score at or above it is a positive prediction.
    scores : (n, K) array, optional
        Score under audit of each row with its group set to g; `mu` by default.
    y : (n,) array of 0 and 1, optional
        Observed outcome.
    group : (n,) array of int, optional
        Group codes 0..K-1.
    p_group : (n, K) array, optional
        P(A=g | X), positive in the row's own group.
    weights : (n,) array, optional
        Sampling weights.

    Returns
    -------
    cfpr, cfnr : (K,) arrays
        NaN where the denominator is not positive. Doubly robust rates may lie outside [0, 1]. A
        group without rows has its single robust rates in either form, as far as `mu` goes.

    Raises
    ------
    ValueError
        If some, but not all, of `y`, `group`, `p_group` are given.
    DataError
        If shapes do not fit, or a score is missing.

    Notes
    -----
    The doubly robust rates are those usually written with ``psi(U, m) = 1_g / p_g (U - m) + m`` for
    ``U = S^g (1 - Y)``, ``m = S^g (1 - mu_g)`` and so on: ``S^g`` is a function of the covariates,
    so that it comes out of each term.

    References
    ----------
    Mishler A, Kennedy EH, Chouldechova A (2021). Fairness in risk assessment instruments:
    post-processing to achieve counterfactual equalized odds. FAccT '21, 386-400. (For the form of
    the estimates, with treatment in place of membership.)

    Examples
    --------
    >>> import numpy as np
    >>> mu = np.array([[0.2, 0.4], [0.6, 0.8]])
    >>> cfpr, cfnr = group_intervention_rates(mu, 0.5)
    >>> cfpr.round(4).tolist(), cfnr.round(4).tolist()
    ([0.3333, 0.25], [0.25, 0.3333])
    >>> half = np.full((2, 2), 0.5)
    >>> y, group = np.array([0, 1]), np.array([0, 1])
    >>> cfpr, cfnr = group_intervention_rates(mu, 0.5, y=y, group=group, p_group=half)
    >>> cfpr.round(4).tolist(), cfnr.round(4).tolist()
    ([0.25, -0.5], [-0.5, 0.25])
    """
    shown = mu if scores is None else scores
    if mu.ndim != 2 or shown.shape != mu.shape:
        raise DataError(
            f"mu must have a row per person and a column per group, and scores the same shape: "
            f"mu has {mu.shape}, scores {shown.shape}."
        )
    _check_no_missing(shown, "mu" if scores is None else "scores")
    flagged = shown >= cutoff
    given = {"y": y, "group": group, "p_group": p_group}
    absent = [name for name, value in given.items() if value is None]
    if y is not None and group is not None and p_group is not None:
        event = group_intervention_scores(mu, y, group, p_group)
    elif len(absent) == len(given):
        event = mu
    else:
        raise ValueError(
            "doubly robust rates need y, group and p_group, single robust rates none of them: "
            f"{' and '.join(absent)} missing."
        )
    return rates_from_cells(_intervention_cells(flagged, event, weights))


def group_intervention_scores(mu: Array, y: Integers, group: Integers, p_group: Array) -> Array:
    r"""Doubly robust scores of the outcome with the group of every row set to g.

    .. math:: \psi_g = \frac{1_g}{p_g} (Y - \mu_g) + \mu_g

    Parameters
    ----------
    mu : (n, K) array
        P(Y=1 | X, A=g).
    y : (n,) array of 0 and 1
        Observed outcome.
    group : (n,) array of int
        Group codes 0..K-1.
    p_group : (n, K) array
        P(A=g | X), positive in the row's own group.

    Returns
    -------
    (n, K) array
        Equal to `mu` but for the column of the row's own group; not confined to [0, 1] there.

    Raises
    ------
    DataError
        If shapes do not fit, or a row has no positive probability of its own group.

    Examples
    --------
    >>> import numpy as np
    >>> mu, p_group = np.array([[0.25, 0.5]]), np.array([[0.5, 0.5]])
    >>> group_intervention_scores(mu, np.array([1]), np.array([0]), p_group).tolist()
    [[1.75, 0.5]]
    """
    if p_group.shape != mu.shape or not len(y) == len(group) == len(mu):
        raise DataError(
            f"y and group must be as long as mu and p_group of its shape: mu has {mu.shape}, "
            f"p_group {p_group.shape}, y {len(y)} and group {len(group)} rows."
        )
    own = np.arange(len(mu)), np.asarray(group, dtype=np.intp)
    p_own, mu_own = p_group[own], mu[own]
    impossible = np.count_nonzero(~(p_own > 0))
    if impossible:
        raise DataError(
            f"p_group is not positive for the row's own group in {impossible} of {len(mu)} rows. "
            "Truncate the probabilities, to [0.005, 0.995] say."
        )
    psi = np.array(mu, dtype=np.float64)
    psi[own] = (y - mu_own) / p_own + mu_own
    return psi


def _intervention_cells(flagged: NDArray[np.bool_], event: Array, weights: Array | None) -> Array:
    """Sums by group, outcome and prediction, over all rows under each group: (K, 2, 2)."""
    a = np.ones(len(event)) if weights is None else np.asarray(weights, dtype=np.float64)
    cells = np.empty((event.shape[1], 2, 2))
    for outcome, amount in ((0, 1.0 - event), (1, event)):
        cells[:, outcome, 0] = a @ np.where(flagged, 0.0, amount)
        cells[:, outcome, 1] = a @ np.where(flagged, amount, 0.0)
    return cells


def youden_cutoff(y: Integers, score: Array, weights: Array | None = None) -> float:
    r"""Cutoff with the largest Youden index, the true less the false positive rate.

    .. math:: J(t) = P(R \ge t \mid Y=1) - P(R \ge t \mid Y=0)

    Parameters
    ----------
    y : (n,) array of 0 and 1
        Observed outcome.
    score : (n,) array
        Risk score.
    weights : (n,) array, optional
        Non-negative sampling weights.

    Returns
    -------
    float
        One of the observed values of `score` (in a row of positive weight). Of several with the
        same index, to within 1e-12, it is the smallest, which flags most rows.

    Raises
    ------
    DataError
        If there are no events, no non-events, or missing scores.

    References
    ----------
    Youden WJ (1950). Index for rating diagnostic tests. Cancer 3, 32-35.

    Examples
    --------
    >>> import numpy as np
    >>> youden_cutoff(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    0.35
    """
    _check_no_missing(score, "score")
    a = np.ones(len(score)) if weights is None else np.asarray(weights, dtype=np.float64)
    counted = a > 0
    values, code = np.unique(score[counted], return_inverse=True)
    tails = []
    for outcome, name in ((1, "events"), (0, "non-events")):
        amount = np.where(np.asarray(y)[counted] == outcome, a[counted], 0.0)
        at_or_above = np.bincount(code, weights=amount, minlength=len(values))[::-1].cumsum()[::-1]
        if not len(values) or at_or_above[0] == 0:
            raise DataError(
                f"y has no {name} among {len(code)} rows of positive weight, so that Youden's "
                "index is not defined. Give a cutoff."
            )
        tails.append(at_or_above / at_or_above[0])
    youden = tails[0] - tails[1]
    return float(values[np.argmax(youden >= youden.max() - _TIE)])


def _check_no_missing(values: Array, name: str) -> None:
    rows = np.isnan(values if values.ndim == 2 else values[:, None]).any(axis=1)
    if rows.any():
        raise DataError(
            f"{name} is missing in {np.count_nonzero(rows)} of {len(values)} rows (the first: row "
            f"{int(np.argmax(rows))}). Leave these rows out, or fill in what the model needs."
        )
