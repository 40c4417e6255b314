"""Overlap: whether there are untreated patients to stand for every patient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.estimators.confusion import ratio
from cfair.estimators.ipw import ipw_weights
from cfair.groups import Groups
from cfair.nuisance.propensity import Propensity

Array = NDArray[np.float64]

QUANTILES = {"min": 0.0, "q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95,
              "max": 1.0}  # fmt: skip


_BALANCE = ["term", "mean_all", "mean_untreated", "mean_weighted", "smd_before", "smd_after"]


@dataclass(frozen=True, eq=False, repr=False)
class Overlap:
    """Diagnostics of the weights.

    With sampling weights, the weights here are their products with ``(1 - D) / (1 - pi)``.

    Attributes
    ----------
    propensities : pandas.DataFrame
        A row per group (and one for all) and treatment arm: rows, quantiles of the propensity
        before truncation, rows truncated at each end. Sampling weights do not enter.
    effective : pandas.DataFrame
        A row per group: rows, untreated rows, Kish's effective size of the weighted untreated, its
        share of the untreated, and the largest weight.
    balance : pandas.DataFrame
        A row per design column: its mean in all rows and among the untreated, plain and weighted,
        and the standardized differences from all rows before and after weighting. Weighted, the
        untreated are to look like everybody. Empty if propensities were given. Sampling weights, if
        there are any, are in every mean and standard deviation.
    truncated_low, truncated_high : int
        Rows cut at the lower and at the upper limit; ``-t`` where disclosure control says fewer
        than t.
    """

    propensities: pd.DataFrame
    effective: pd.DataFrame
    balance: pd.DataFrame
    truncated_low: int
    truncated_high: int

    def __repr__(self) -> str:
        # cell by cell, since pandas prints numbers as its options say
        cells = [list(self.effective.columns), *map(_shown, self.effective.itertuples(index=False))]
        widths = [max(len(row[j]) for row in cells) for j in range(len(cells[0]))]
        table = "\n".join("  ".join(map(str.rjust, row, widths)) for row in cells)
        low, high = (
            f"<{-n:,}" if n < 0 else f"{n:,}" for n in (self.truncated_low, self.truncated_high)
        )
        return (
            f"Overlap: {low} row{'s' * (low != '1')} truncated below, {high} above\n{table}\n"
            "(.propensities, .effective and .balance are frames)"
        )


def _shown(row: tuple[object, ...]) -> list[str]:
    """A line of `Overlap.effective` as text; an en dash where there is no number."""
    kinds = {str: "", float: ".2f"}
    return ["–" if pd.isna(v) else format(v, kinds.get(type(v), ",")) for v in row]  # type: ignore[call-overload]


def overlap(cohort: Cohort, propensity: Propensity) -> Overlap:
    """Diagnose overlap.

    Parameters
    ----------
    cohort : Cohort
    propensity : Propensity

    Returns
    -------
    Overlap
    """
    low, high = propensity.truncation
    return Overlap(
        propensities=_propensities(cohort, propensity),
        effective=_effective(cohort, propensity),
        balance=_balance(cohort, propensity),
        truncated_low=int(np.count_nonzero(propensity.fitted < low)),
        truncated_high=int(np.count_nonzero(propensity.fitted > high)),
    )


def _propensities(cohort: Cohort, propensity: Propensity) -> pd.DataFrame:
    assert cohort.d is not None
    low, high = propensity.truncation
    cell = (cohort.groups.codes * 2 + cohort.d).astype(np.int16)
    order = np.argsort(cell, kind="stable")  # a radix sort for 16 bits
    limits = np.searchsorted(cell[order], np.arange(2 * cohort.groups.n_groups + 1))
    value = propensity.fitted[order]
    parts = [
        (name, arm, value[limits[2 * g + arm] : limits[2 * g + arm + 1]])
        for g, name in enumerate(cohort.groups.names)
        for arm in (0, 1)
    ]
    parts += [("all", arm, propensity.fitted[cohort.d == arm]) for arm in (0, 1)]
    return pd.DataFrame(
        arm_row(
            name,
            arm,
            len(x),
            np.quantile(x, list(QUANTILES.values())) if len(x) else [np.nan] * 7,
            int(np.count_nonzero(x < low)),
            int(np.count_nonzero(x > high)),
        )
        for name, arm, x in parts
    )


def arm_row(
    name: str, arm: int, n: int, quantiles: Sequence[float] | Array, low: int, high: int
) -> dict[str, object]:
    """A row of `Overlap.propensities`.

    Parameters
    ----------
    name : str
        Of the group.
    arm : {0, 1}
    n : int
        Rows.
    quantiles : sequence of float
        Those of `QUANTILES`.
    low, high : int
        Rows truncated at each end.

    Returns
    -------
    dict
    """
    return {
        "group": name,
        "treated": arm,
        "n": int(n),
        **dict(zip(QUANTILES, quantiles, strict=True)),
        "truncated_low": int(low),
        "truncated_high": int(high),
    }


def _effective(cohort: Cohort, propensity: Propensity) -> pd.DataFrame:
    assert cohort.d is not None
    groups = cohort.groups
    w = _combined_weights(cohort, propensity)
    total = np.bincount(groups.codes, weights=w, minlength=groups.n_groups)
    square = np.bincount(groups.codes, weights=w * w, minlength=groups.n_groups)
    untreated = np.bincount(groups.codes[cohort.d == 0], minlength=groups.n_groups)
    largest = np.zeros(groups.n_groups)
    np.maximum.at(largest, groups.codes, w)
    return effective_frame(groups, untreated, total, square, largest)


def effective_frame(
    groups: Groups, untreated: Any, total: Any, square: Any, largest: Any
) -> pd.DataFrame:
    """`Overlap.effective` from sums by group.

    Parameters
    ----------
    groups : Groups
    untreated : (K,) array of int
    total, square, largest : (K,) arrays
        Sum of the weights and of their squares, and the largest one.

    Returns
    -------
    pandas.DataFrame
    """
    effective = np.nan_to_num(ratio(np.asarray(total**2, float), np.asarray(square, float)))
    return pd.DataFrame(
        {
            "group": groups.names,
            "n": groups.sizes,
            "untreated": untreated,
            "n_effective": effective,
            "share": ratio(effective, untreated.astype(float)),
            "largest_weight": np.where(untreated > 0, largest, np.nan),
        }
    )


def _balance(cohort: Cohort, propensity: Propensity) -> pd.DataFrame:
    if propensity.design is None:
        return pd.DataFrame(columns=_BALANCE)
    assert cohort.d is not None
    X, names = propensity.design.matrix, list(propensity.design.names)
    if propensity.matrix is not None and propensity.fit is not None:
        X = propensity.matrix
        names = [n for n, k in zip(names, propensity.fit.kept, strict=True) if k]
    w = _combined_weights(cohort, propensity)
    a = np.ones(len(X)) if cohort.weights is None else cohort.weights
    mean = X.mean(axis=0) if cohort.weights is None else a @ X / a.sum()
    sd = _standard_deviations(X, mean, a)
    untreated = (cohort.d == 0) * a
    plain = untreated @ X / untreated.sum()
    weighted = w @ X / w.sum()
    return balance_frame(names, mean, sd, plain, weighted)


def balance_frame(
    names: Sequence[str], mean: Array, sd: Array, plain: Array, weighted: Array
) -> pd.DataFrame:
    """`Overlap.balance` from the means of the columns that vary.

    Parameters
    ----------
    names : sequence of str
    mean, sd : (p,) arrays
        Of all rows.
    plain, weighted : (p,) arrays
        Means of the untreated.

    Returns
    -------
    pandas.DataFrame
    """
    varies = sd > 1e-12 * np.maximum(np.abs(mean), 1e-300)
    frame = pd.DataFrame(
        {
            "term": names,
            "mean_all": mean,
            "mean_untreated": plain,
            "mean_weighted": weighted,
            "smd_before": (plain - mean) / np.where(varies, sd, 1.0),
            "smd_after": (weighted - mean) / np.where(varies, sd, 1.0),
        }
    )
    return frame[varies].reset_index(drop=True)


def _combined_weights(cohort: Cohort, propensity: Propensity) -> Array:
    """Weights of the untreated, times the sampling weights."""
    assert cohort.d is not None
    w = ipw_weights(cohort.d, propensity.pi)
    return w if cohort.weights is None else w * cohort.weights


def _standard_deviations(X: Array, mean: Array, a: Array) -> Array:
    """Standard deviations of the columns, by blocks of rows that stay in cache."""
    squares = np.zeros(X.shape[1])
    for first in range(0, len(X), 8_192):
        centred = X[first : first + 8_192] - mean
        squares += np.einsum("i,ij,ij->j", a[first : first + 8_192], centred, centred)
    result: Array = np.sqrt(squares / a.sum())
    return result
