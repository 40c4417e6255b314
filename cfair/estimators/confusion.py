"""Observed counts and rates by group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True)
class RateCells:
    """Which cells of outcome and prediction make up a rate.

    Attributes
    ----------
    numerator, denominator : tuple of (outcome, prediction) pairs
    """

    numerator: tuple[tuple[int, int], ...]
    denominator: tuple[tuple[int, int], ...]

    def indicators(self) -> tuple[Array, Array]:
        """Numerator and denominator as (2, 2) arrays of 0 and 1."""
        masks = np.zeros((2, 2, 2))
        for mask, cells in zip(masks, (self.numerator, self.denominator), strict=True):
            for outcome, prediction in cells:
                mask[outcome, prediction] = 1.0
        return masks[0], masks[1]


_TN, _FP, _FN, _TP = (0, 0), (0, 1), (1, 0), (1, 1)
_ALL = (_TN, _FP, _FN, _TP)

#: Rates that are one ratio of cells. ``f1`` is 2 J / (1 + J) of the Jaccard index J given here.
RATE_CELLS: dict[str, RateCells] = {
    "prevalence": RateCells((_FN, _TP), _ALL),
    "selection_rate": RateCells((_FP, _TP), _ALL),
    "tpr": RateCells((_TP,), (_FN, _TP)),
    "fpr": RateCells((_FP,), (_TN, _FP)),
    "tnr": RateCells((_TN,), (_TN, _FP)),
    "fnr": RateCells((_FN,), (_FN, _TP)),
    "ppv": RateCells((_TP,), (_FP, _TP)),
    "npv": RateCells((_TN,), (_TN, _FN)),
    "fdr": RateCells((_FP,), (_FP, _TP)),
    "for": RateCells((_FN,), (_TN, _FN)),
    "accuracy": RateCells((_TN, _TP), _ALL),
    "f1": RateCells((_TP,), (_FP, _FN, _TP)),
}

#: What the rates are called in print, and what is missing where they are undefined.
LABELS: dict[str, tuple[str, str]] = {
    "prevalence": ("prevalence", "no rows"),
    "selection_rate": ("selection rate", "no rows"),
    "tpr": ("TPR", "no events"),
    "fpr": ("FPR", "no non-events"),
    "tnr": ("TNR", "no non-events"),
    "fnr": ("FNR", "no events"),
    "ppv": ("PPV", "no positive calls"),
    "npv": ("NPV", "no negative calls"),
    "fdr": ("FDR", "no positive calls"),
    "for": ("FOR", "no negative calls"),
    "accuracy": ("accuracy", "no rows"),
    "balanced_accuracy": ("balanced accuracy", "no events or no non-events"),
    "f1": ("F1", "neither events nor positive calls"),
}

#: What else the rates are called, in the field and in other packages.
SYNONYMS: dict[str, str] = {
    "sensitivity": "tpr",
    "recall": "tpr",
    "true_positive_rate": "tpr",
    "specificity": "tnr",
    "true_negative_rate": "tnr",
    "false_positive_rate": "fpr",
    "false_negative_rate": "fnr",
    "precision": "ppv",
    "positive_predictive_value": "ppv",
    "negative_predictive_value": "npv",
    "demographic_parity": "selection_rate",
    "statistical_parity": "selection_rate",
    "equal_opportunity": "tpr",
}

#: All observed rates, in the order of tables.
RATES: tuple[str, ...] = tuple(LABELS)


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
        numerator, denominator = RATE_CELLS[name].indicators()
        value = ratio(
            np.einsum("...ys,ys->...", counts, numerator),
            np.einsum("...ys,ys->...", counts, denominator),
        )
        rates[name] = 2 * value / (1 + value) if name == "f1" else value
    return rates


def denominators(counts: Array, rate: str) -> Array:
    """Rows in the denominator of an observed rate.

    Parameters
    ----------
    counts : (..., 2, 2) array
        Counts by outcome and prediction.
    rate : str
        One of `RATES`.

    Returns
    -------
    (...) array
        Of balanced accuracy, a mean of two rates, all rows.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([[40.0, 10.0], [5.0, 15.0]])
    >>> float(denominators(counts, "tpr")), float(denominators(counts, "ppv"))
    (20.0, 25.0)
    """
    among = np.ones((2, 2))
    if rate != "balanced_accuracy":
        among = RATE_CELLS[rate].indicators()[1]
    result: Array = np.einsum("...ys,ys->...", counts, among)
    return result


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
