"""Counterfactual error rates by augmented inverse probability weighting (doubly robust)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.ipw import ipw_weights, rates_from_cells

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


def aipw_scores(y: Integers, d: Integers, pi: Array, mu0: Array) -> Array:
    r"""Doubly robust scores of the outcome without treatment.

    With ``w = (1 - D) / (1 - pi)``,

    .. math:: \phi_0 = w (Y - \mu_0) + \mu_0.

    The mean of the scores, in any set of rows defined by the covariates and S, estimates the mean
    of Y0 there if `pi` or `mu0` is right.

    Parameters
    ----------
    y : (n,) array of 0 and 1
        Observed outcome; that of the treated has no part in the scores.
    d : (n,) array of 0 and 1
        Treatment.
    pi : (n,) array
        Probability of treatment, below 1 for the untreated.
    mu0 : (n,) array
        Probability of the outcome without treatment, P(Y=1 | D=0, ...). It has to be allowed to
        depend on the prediction or the score.

    Returns
    -------
    (n,) array
        Equal to `mu0` for the treated; not confined to [0, 1] for the untreated.

    References
    ----------
    Mishler A, Kennedy EH, Chouldechova A (2021). Fairness in risk assessment instruments:
    post-processing to achieve counterfactual equalized odds. FAccT '21, 386-400.

    Examples
    --------
    >>> import numpy as np
    >>> y, d, pi = np.array([1, 0, 1]), np.array([0, 0, 1]), np.array([0.5, 0.5, 0.9])
    >>> aipw_scores(y, d, pi, np.array([0.25, 0.25, 0.75])).tolist()
    [1.75, -0.25, 0.75]
    """
    return ipw_weights(d, pi) * (y - mu0) + mu0


def outcome_cells(
    s: Integers, group: Integers, phi0: Array, n_groups: int, weights: Array | None = None
) -> Array:
    """Sums of estimated outcomes by group, outcome and prediction.

    Parameters
    ----------
    s : (n,) array of 0 and 1
        Prediction.
    group : (n,) array of int
        Group codes 0..K-1.
    phi0 : (n,) array
        Estimated outcome of each row: scores as from `aipw_scores`, or probabilities.
    n_groups : int
        K.
    weights : (n,) array, optional
        Sampling weights.

    Returns
    -------
    (K, 2, 2) array
        ``[k, 1, j]`` is the sum of ``phi0`` and ``[k, 0, j]`` the sum of ``1 - phi0`` over the rows
        of group k with S = j. `rates_from_cells` turns them into rates; sums over k are the cells
        of several groups together.

    Examples
    --------
    >>> import numpy as np
    >>> s, group = np.array([0, 1, 1]), np.array([0, 0, 0])
    >>> outcome_cells(s, group, np.array([0.25, 0.5, 1.25]), 1).tolist()
    [[[0.75, 0.25], [0.25, 1.75]]]
    """
    code = np.asarray(group, dtype=np.intp) * 2 + np.asarray(s, dtype=np.intp)
    cells = np.empty((n_groups, 2, 2))
    for outcome, amount in ((0, 1.0 - phi0), (1, phi0)):
        weighted = amount if weights is None else weights * amount
        sums = np.bincount(code, weights=weighted, minlength=2 * n_groups)
        cells[:, outcome] = sums.reshape(n_groups, 2)
    return cells


def aipw_rates(
    s: Integers, group: Integers, phi0: Array, n_groups: int, weights: Array | None = None
) -> tuple[Array, Array]:
    r"""Counterfactual false positive and false negative rates under no treatment, doubly robust.

    With sums over the rows of group g,

    .. math::
        cFPR_g = \frac{\sum S (1-\phi_0)}{\sum (1-\phi_0)}, \qquad
        cFNR_g = \frac{\sum (1-S) \phi_0}{\sum \phi_0}.

    They estimate P(S=1 | Y0=0, A=g) and P(S=0 | Y0=1, A=g) under consistency, no unmeasured
    confounding of treatment given the variables of both models, and positivity, if one of the two
    models behind `phi0` is right. With the outcome probabilities ``mu0`` in place of the scores
    they are the plug-in estimates, which rest on the outcome model alone.

    Parameters
    ----------
    s : (n,) array of 0 and 1
        Prediction.
    group : (n,) array of int
        Group codes 0..K-1.
    phi0 : (n,) array
        Scores as from `aipw_scores`; or ``mu0`` for the plug-in estimates.
    n_groups : int
        K.
    weights : (n,) array, optional
        Sampling weights.

    Returns
    -------
    cfpr, cfnr : (K,) arrays
        NaN where the denominator is not positive, which scores outside [0, 1] can bring about in a
        small group. For the same reason a rate may lie outside [0, 1]; it is returned as it is.

    See Also
    --------
    ipw_rates : The estimates by weighting alone.

    References
    ----------
    Mishler A, Kennedy EH, Chouldechova A (2021). Fairness in risk assessment instruments:
    post-processing to achieve counterfactual equalized odds. FAccT '21, 386-400.

    Coston A, Mishler A, Kennedy EH, Chouldechova A (2020). Counterfactual risk assessments,
    evaluation, and fairness. FAT* '20, 582-593.

    Examples
    --------
    >>> import numpy as np
    >>> s, group = np.array([1, 0, 1, 0]), np.array([0, 0, 1, 1])
    >>> cfpr, cfnr = aipw_rates(s, group, np.array([0.5, 0.0, 1.25, -0.5]), 2)
    >>> cfpr.round(4).tolist(), cfnr.round(4).tolist()  # the second group is too small
    ([0.3333, -0.2], [0.0, -0.6667])
    """
    return rates_from_cells(outcome_cells(s, group, phi0, n_groups, weights))
