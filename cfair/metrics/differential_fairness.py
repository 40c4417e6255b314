"""Fairness across many intersections at once: differential fairness, inequality of errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import require_comparison
from cfair.errors import CfairWarning, warn
from cfair.estimators.confusion import ratio as divide
from cfair.metrics.cells import call_cells
from cfair.metrics.comparing import WEIGHTLESS, warn_left_out
from cfair.metrics.reading import read_call
from cfair.options import check_option, is_number

Array = NDArray[np.float64]

PARTS = ("total", "between", "within")


def differential_fairness(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    of: str = "prediction",
    concentration: float | None = 1.0,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    r"""Differential fairness: the largest log ratio between groups of P(1) and of P(0).

    AIF360's ``smoothed_edf``. With p_g the share of ones in group g, it is the smallest epsilon for
    which p_g / p_h and (1 - p_g) / (1 - p_h) lie within exp(-epsilon) and exp(epsilon) for every
    pair of groups. Every merging of attributes into fewer is at least as fair.

    Parameters
    ----------
    y_true : (n,) array-like of 0/1 or bool
        Outcome.
    y_pred : (n,) array-like of 0/1 or bool
        The call.
    sensitive_features : array-like, data frame, or mapping of name to array-like
        One or more attributes; several are crossed.
    of : {"prediction", "outcome"}, default "prediction"
        Shares of positive calls, or of events: how unequal the data were to begin with.
    concentration : float or None, default 1.0
        Of the Dirichlet prior, half for each value: p_g = (n_g1 + c / 2) / (n_g + c), which keeps
        small groups from deciding. None or 0: no smoothing.
    sample_weight : (n,) array-like, optional
        Sampling weights, on any scale: they are made to have mean 1, so that the prior is worth
        `concentration` rows.
    missing : {"raise", "drop", "level"}, default "raise"
        Refuse missing values, leave out their rows, or make those of an attribute a level.

    Returns
    -------
    float
        0 if all groups have the same share. Infinite, without smoothing, if a group has a share
        of 0 or 1 and another has not.

    Raises
    ------
    DataError
        If an array does not fit, or there is only one group.
    ValueError
        If an option has no such value.

    Warns
    -----
    CfairWarning
        Names crossings without rows or weight. They are left out.

    References
    ----------
    Foulds J, Islam R, Keya K, Pan S (2020). An intersectional definition of fairness. ICDE 2020,
    equations 2 and 8.

    Examples
    --------
    >>> y_true, sex = [0, 1, 0, 1, 0, 1], list("aaabbb")
    >>> y_pred = [1, 0, 0, 1, 1, 0]
    >>> epsilon = differential_fairness(y_true, y_pred, sensitive_features=sex, concentration=None)
    >>> round(epsilon, 6)  # log of (2/3) / (1/3)
    0.693147
    """
    check_option("of", of, ("prediction", "outcome"))
    _check_concentration(concentration)
    counts = _counts(y_true, y_pred, sensitive_features, sample_weight, missing)
    return _epsilon(_ones_and_sizes(counts, of), concentration or 0.0)


def bias_amplification(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    concentration: float | None = 1.0,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """How much less fair the calls are than the outcomes: difference of two epsilons.

    AIF360's ``df_bias_amplification``: `differential_fairness` of the calls less that of the
    outcomes.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, concentration, sample_weight, missing
        As in `differential_fairness`.

    Returns
    -------
    float
        Above 0 if the calls differ more between groups than the outcomes do. NaN if both epsilons
        are infinite.

    Raises
    ------
    DataError, ValueError
        As in `differential_fairness`.

    Warns
    -----
    CfairWarning
        As in `differential_fairness`, and if both epsilons are infinite.

    References
    ----------
    Foulds J, Islam R, Keya K, Pan S (2020). An intersectional definition of fairness. ICDE 2020.

    Examples
    --------
    >>> y_true, y_pred, sex = [0, 1, 0, 1, 0, 0], [1, 0, 0, 1, 1, 0], list("aaabbb")
    >>> round(bias_amplification(y_true, y_pred, sensitive_features=sex), 6)  # outcomes are equal
    0.510826
    """
    _check_concentration(concentration)
    counts = _counts(y_true, y_pred, sensitive_features, sample_weight, missing)
    calls, outcomes = (
        _epsilon(_ones_and_sizes(counts, of), concentration or 0.0)
        for of in ("prediction", "outcome")
    )
    if np.isinf(calls) and np.isinf(outcomes):
        warn(
            "bias amplification is NaN: a group has a share of 0 or 1 and another has not, both in "
            "the calls and in the outcomes. Give concentration=1.0 for smoothed shares.",
            CfairWarning,
        )
        return float("nan")
    return calls - outcomes


def generalized_entropy(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    alpha: float = 2.0,
    part: str = "total",
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """Inequality of the benefit of a call: generalized entropy, in all, between or within groups.

    The benefit is 1 for a right call, 2 for a false positive, 0 for a false negative:
    b = 1 + y_pred - y_true. AIF360's ``generalized_entropy_error`` is the total,
    ``between_group_generalized_entropy_error`` the part between groups.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, sample_weight, missing
        As in `differential_fairness`.
    alpha : float, default 2.0
        mean((b / mean b)^alpha - 1) / (alpha (alpha - 1)); at 1 the Theil index, mean(b / mean b
        log(b / mean b)). Above 0, since a benefit may be 0.
    part : {"total", "between", "within"}, default "total"
        Between: everybody has the mean benefit of the own group. Within: the rest.

    Returns
    -------
    float
        0 if all benefits are equal.

    Raises
    ------
    DataError
        Also, for a part, if there is only one group.
    ValueError
        If an option has no such value.

    Warns
    -----
    CfairWarning
        As in `differential_fairness`.

    References
    ----------
    Speicher T, et al. (2018). A unified approach to quantifying algorithmic unfairness. KDD 2018.

    Examples
    --------
    >>> y_true, y_pred, sex = [0, 1, 0, 1, 0, 0], [1, 0, 0, 1, 0, 0], list("aaabbb")
    >>> round(generalized_entropy(y_true, y_pred, sensitive_features=sex), 6)
    0.166667
    >>> generalized_entropy(y_true, y_pred, sensitive_features=sex, part="between")
    0.0
    """
    check_option("part", part, PARTS)
    if not is_number(alpha) or not np.isfinite(alpha) or alpha <= 0:
        raise ValueError(f"alpha must be a number above 0, not {alpha!r}.")
    counts = _counts(y_true, y_pred, sensitive_features, sample_weight, missing, part)
    benefit = np.array([[1.0, 2.0], [0.0, 1.0]])  # by outcome and call
    sizes = counts.sum(axis=(1, 2))
    total = _entropy(np.broadcast_to(benefit, counts.shape), counts, alpha)
    between = _entropy((counts * benefit).sum(axis=(1, 2)) / sizes, sizes, alpha)
    return {"total": total, "between": between, "within": total - between}[part]


def _entropy(benefit: Array, weight: Array, alpha: float) -> float:
    whole = (benefit * weight).sum()
    if whole == 0:  # nobody has any: all are equal
        return 0.0
    relative = benefit * weight.sum() / whole
    if alpha == 1:
        terms = relative * np.log(np.where(relative > 0, relative, 1.0))
    else:
        terms = (relative**alpha - 1) / (alpha * (alpha - 1))
    return float((terms * weight).sum() / weight.sum())


def _counts(
    y_true: Any,
    y_pred: Any,
    sensitive_features: Any,
    sample_weight: Any,
    missing: str,
    part: str = "between",
) -> Array:
    """Counts of the groups that have rows with weight, the others named in a warning."""
    cohort = read_call(y_true, y_pred, sensitive_features, sample_weight, missing)
    if part != "total":
        require_comparison(cohort.groups)
    cells = call_cells(cohort)
    some = cells.counts.sum(axis=(1, 2)) > 0
    if part != "total":
        n = cells.sizes()["n"]
        empty = {cells.names[k]: "no rows" + WEIGHTLESS * bool(n[k]) for k in np.flatnonzero(~some)}
        warn_left_out("the comparison", empty)
    return cells.counts[some]


def _ones_and_sizes(counts: Array, of: str) -> tuple[Array, Array]:
    ones = counts[:, :, 1].sum(axis=1) if of == "prediction" else counts[:, 1].sum(axis=1)
    return ones, counts.sum(axis=(1, 2))


def _epsilon(ones_and_sizes: tuple[Array, Array], concentration: float) -> float:
    ones, sizes = ones_and_sizes
    result = 0.0
    for number in (ones, sizes - ones):
        share = divide(number + concentration / 2, sizes + concentration)
        low, high = share.min(), share.max()
        if low < high:  # equal shares of 0 have no log ratio, and no difference
            result = max(result, float("inf") if low == 0 else float(np.log(high / low)))
    return result


def _check_concentration(value: Any) -> None:
    if value is not None and (not is_number(value) or not np.isfinite(value) or value < 0):
        raise ValueError(f"concentration must be a number >= 0 or None, not {value!r}.")
