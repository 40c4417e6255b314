"""Observed counts and rates by group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: The observed rates, each with its numerator and denominator in the four cells.
RATES: tuple[str, ...] = (
    "prevalence",
    "selection_rate",
    "tpr",
    "fpr",
    "tnr",
    "fnr",
    "ppv",
    "npv",
    "fdr",
    "for",
    "accuracy",
    "balanced_accuracy",
    "f1",
)


def confusion_counts(
    y: Integers, s: Integers, group: Integers, n_groups: int, weights: Array | None = None
) -> Array:
    """Counts of observed outcome and prediction in each group.

    Parameters
    ----------
    y : (n,) array of 0 and 1
        Observed outcome.
    s : (n,) array of 0 and 1
        Prediction, ``score >= cutoff``.
    group : (n,) array of int
        Group codes 0..K-1.
    n_groups : int
        K.
    weights : (n,) array, optional
        Row weights; every row counts 1 by default.

    Returns
    -------
    (K, 2, 2) array
        Counts indexed by group, outcome, prediction.

    Examples
    --------
    >>> import numpy as np
    >>> y, s, g = np.array([0, 1, 1]), np.array([1, 1, 0]), np.array([0, 0, 1])
    >>> confusion_counts(y, s, g, 2).astype(int).tolist()
    [[[0, 1], [0, 1]], [[0, 0], [1, 0]]]
    """
    cell = cell_codes(y, s, group)
    counts = np.bincount(cell, weights=weights, minlength=4 * n_groups)
    return counts.astype(np.float64).reshape(n_groups, 2, 2)


def cell_codes(y: Integers, s: Integers, group: Integers) -> NDArray[np.intp]:
    """Number the cells (group, outcome, prediction) from 0 to 4K-1.

    Parameters
    ----------
    y, s : (n,) arrays of 0 and 1
    group : (n,) array of int

    Returns
    -------
    (n,) array of int
    """
    codes = np.asarray(group, dtype=np.intp) * 4
    codes += np.asarray(y, dtype=np.intp) * 2
    codes += np.asarray(s, dtype=np.intp)
    return codes


def observed_rates(counts: Array) -> dict[str, Array]:
    """All observed rates from the counts of outcome and prediction.

    Parameters
    ----------
    counts : (..., 2, 2) array
        Counts by outcome and prediction, as from `confusion_counts`.

    Returns
    -------
    dict of (...) arrays
        ``prevalence``, ``selection_rate``, ``tpr`` (sensitivity), ``fpr``, ``tnr`` (specificity),
        ``fnr``, ``ppv``, ``npv``, ``fdr``, ``for`` (false omission rate), ``accuracy``,
        ``balanced_accuracy``, ``f1``. A rate without a denominator is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> rates = observed_rates(np.array([[40.0, 10.0], [5.0, 15.0]]))
    >>> float(rates["tpr"]), float(rates["fpr"])
    (0.75, 0.2)
    """
    rates: dict[str, Array] = {}
    for name in RATES:
        if name == "balanced_accuracy":
            rates[name] = (rates["tpr"] + rates["tnr"]) / 2
            continue
        numerator, denominator = numerator_denominator(counts, name)
        if name == "f1":
            # 2 TP / (2 TP + FP + FN), through the Jaccard index TP / (TP + FP + FN)
            jaccard = ratio(numerator, denominator)
            rates[name] = 2 * jaccard / (1 + jaccard)
        else:
            rates[name] = ratio(numerator, denominator)
    return rates


def numerator_denominator(counts: Array, rate: str) -> tuple[Array, Array]:
    """Numerator and denominator of an observed rate, as counts.

    Parameters
    ----------
    counts : (..., 2, 2) array
    rate : str
        One of `RATES` but ``balanced_accuracy``; for ``f1`` those of the Jaccard index are given.

    Returns
    -------
    numerator, denominator : (...) arrays
    """
    tn, fp = counts[..., 0, 0], counts[..., 0, 1]
    fn, tp = counts[..., 1, 0], counts[..., 1, 1]
    n = tn + fp + fn + tp
    table = {
        "prevalence": (tp + fn, n),
        "selection_rate": (tp + fp, n),
        "tpr": (tp, tp + fn),
        "fpr": (fp, fp + tn),
        "tnr": (tn, fp + tn),
        "fnr": (fn, tp + fn),
        "ppv": (tp, tp + fp),
        "npv": (tn, tn + fn),
        "fdr": (fp, tp + fp),
        "for": (fn, tn + fn),
        "accuracy": (tp + tn, n),
        "f1": (tp, tp + fp + fn),
    }
    return table[rate]


def ratio(numerator: Array, denominator: Array) -> Array:
    """Divide, giving NaN where nothing stands in the denominator.

    Parameters
    ----------
    numerator, denominator : arrays of one shape

    Returns
    -------
    array
    """
    some = denominator > 0
    result: Array = np.where(some, numerator, np.nan) / np.where(some, denominator, 1.0)
    return result
