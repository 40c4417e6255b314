"""Labels of more than two classes: how unequal the classes are, and accuracy and F1 by group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import require_comparison
from cfair.columns import Weights, check_some_weight, read_weights
from cfair.estimators.confusion import ratio as divide
from cfair.estimators.disparity import largest_gap
from cfair.groups import Factor, Groups, factor
from cfair.metrics.comparing import KINDS, WEIGHTLESS, labelled, show_left_out, spread
from cfair.metrics.reading import check_array, complete_rows, read_features
from cfair.options import check_option

Array = NDArray[np.float64]

#: Rates of `subgroup_performance`.
PERFORMANCE = ("accuracy", "macro_f1")


def class_imbalance(
    y_true: Any, *, sample_weight: Any = None, missing: str = "raise"
) -> pd.DataFrame:
    """Size of each class, and how many times larger the largest is.

    Parameters
    ----------
    y_true : (n,) array-like
        Labels of any type.
    sample_weight : (n,) array-like, optional
        Sampling weights, on any scale; shares and ratios are weighted.
    missing : {"raise", "drop", "level"}, default "raise"
        Refuse missing labels, leave them out, or make them a class of their own.

    Returns
    -------
    pandas.DataFrame
        A row per class: ``class``, ``n``, ``share``, ``ratio`` (largest share over this one, NaN
        where this is 0). The largest ``ratio`` is TrustLens' imbalance ratio.

    Raises
    ------
    DataError
        If labels or weights do not fit, or are missing.
    ValueError
        If an option has no such value.

    Examples
    --------
    >>> print(class_imbalance(["mild", "mild", "mild", "severe"]).to_string(index=False))
     class  n  share  ratio
      mild  3   0.75    1.0
    severe  1   0.25    3.0
    """
    check_array(y_true, "y_true")
    labels, columns = read_features({"y_true": y_true}, sample_weight=sample_weight)
    weights = _read_weights(columns)
    masks = {} if weights is None else {weights.name: weights.missing}
    classes, keep, _ = complete_rows(labels, missing, **masks)
    used = _kept_weights(weights, keep)
    total = np.bincount(classes.codes, weights=used, minlength=classes.n_groups).astype(float)
    return pd.DataFrame(
        {
            "class": pd.Series(list(classes.levels[0]), dtype=object),
            "n": classes.sizes,
            "share": total / total.sum(),
            "ratio": divide(np.full(len(total), total.max()), total),
        }
    )


def subgroup_performance(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    by: str = "groups",
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """Accuracy and macro F1 in every group, for labels of any number of classes.

    Macro F1 is the mean over classes of 2 TP / (2 TP + FP + FN) of the class against all others. A
    class that a group has neither in its labels nor in its calls has no F1 there and leaves its
    mean, as in scikit-learn and TrustLens, so that macro F1 need not be about the same classes in
    two groups: ``classes`` says of how many.

    Parameters
    ----------
    y_true, y_pred : (n,) array-like
        Labels and predicted labels, of any type.
    sensitive_features : array-like, data frame, or mapping of name to array-like
        One or more attributes; several are crossed.
    by : {"groups", "attributes"}, default "groups"
        The crossed groups, or each attribute on its own.
    sample_weight : (n,) array-like, optional
        Sampling weights, on any scale. The counts are of rows.
    missing : {"raise", "drop", "level"}, default "raise"
        Refuse missing values, leave out their rows, or make those of an attribute a level.

    Returns
    -------
    pandas.DataFrame
        A row per group: ``group`` and a column per attribute (or ``attribute`` and ``level``),
        ``n``, ``classes``, ``accuracy``, ``macro_f1``, ``note``.

    Raises
    ------
    DataError
        If an array does not fit: values, length, index, missing values.
    ValueError
        If an option has no such value.

    Examples
    --------
    >>> table = subgroup_performance(
    ...     ["x", "y", "z", "x"], ["x", "y", "y", "x"], sensitive_features=list("aabb")
    ... )
    >>> print(table[["group", "n", "classes", "accuracy", "macro_f1"]].to_string(index=False))
    group  n  classes  accuracy  macro_f1
        a  2        2       1.0  1.000000
        b  2        3       0.5  0.333333
    """
    check_option("by", by, ("groups", "attributes"))
    rows = _read_labels(y_true, y_pred, sensitive_features, sample_weight, missing)
    groups = rows.groups
    membership = np.eye(groups.n_groups) if by == "groups" else groups.margin_matrix
    return labelled(groups, _performance(rows, membership), by)


def subgroup_gaps(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """Gaps in accuracy and macro F1, of each attribute and of their crossing.

    TrustLens' performance gap is that in accuracy, of rates rounded to four decimals, with its best
    and worst group.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, sample_weight, missing
        As in `subgroup_performance`.

    Returns
    -------
    pandas.DataFrame
        A row per attribute, and for the crossing of several, and rate: ``attribute``, ``rate``,
        ``gap``, ``ratio``, ``best`` and ``worst`` (the first where several tie), ``n_best``,
        ``n_worst``, ``note``, which names the groups that are left out.

    Raises
    ------
    DataError
        Also if an attribute has only one level.
    ValueError
        If an option has no such value.

    Examples
    --------
    >>> table = subgroup_gaps(
    ...     ["x", "y", "z", "x"], ["x", "y", "y", "x"], sensitive_features={"ward": list("aabb")}
    ... )
    >>> table[["attribute", "rate", "gap", "best", "worst"]].values.tolist()[0]
    ['ward', 'accuracy', 0.5, 'a', 'b']
    """
    rows = _read_labels(y_true, y_pred, sensitive_features, sample_weight, missing)
    records = []
    for name, groups in _settings(rows.groups):
        require_comparison(groups)
        found = _performance(replace(rows, groups=groups), np.eye(groups.n_groups))
        left_out = {k: why for k, why in zip(groups.names, found["note"], strict=True) if why}
        for rate in PERFORMANCE:
            best, worst = largest_gap(found[rate]) or (None, None)
            gap, ratio = (spread(found[rate], kind) for kind in KINDS)
            records.append(
                {
                    "attribute": name,
                    "rate": rate,
                    "gap": gap,
                    "ratio": ratio,
                    "best": None if best is None else groups.names[best],
                    "worst": None if worst is None else groups.names[worst],
                    "n_best": 0 if best is None else int(found["n"][best]),
                    "n_worst": 0 if worst is None else int(found["n"][worst]),
                    "note": f"left out: {show_left_out(left_out)}" if left_out else "",
                }
            )
    return pd.DataFrame(records)


def _settings(groups: Groups) -> list[tuple[str, Groups]]:
    """Each attribute on its own, and the crossing of several."""
    codes = groups.level_codes[:, groups.codes]
    parts = zip(groups.attributes, groups.levels, codes, strict=True)
    alone = [(name, Groups((name,), (levels,), own)) for name, levels, own in parts]
    return alone if len(alone) == 1 else [*alone, (" x ".join(groups.attributes), groups)]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows without missing values: (n,) codes of the labels over common levels, groups, weights."""

    truth: NDArray[np.intp]
    call: NDArray[np.intp]
    n_classes: int
    groups: Groups
    weights: Array | None


def _performance(rows: _Rows, membership: Array) -> dict[str, NDArray[Any]]:
    """Columns of `subgroup_performance`, for sums of groups by a (T, K) array of 0 and 1."""
    K, C = rows.groups.n_groups, rows.n_classes

    def by_class(labels: NDArray[np.intp], weights: Array | None) -> Array:
        counts = np.bincount(rows.groups.codes * C + labels, weights=weights, minlength=K * C)
        return np.asarray(membership @ counts.reshape(K, C), dtype=np.float64)

    hit = (rows.truth == rows.call).astype(np.float64)
    right = by_class(rows.truth, hit if rows.weights is None else hit * rows.weights)
    of_truth, of_call = by_class(rows.truth, rows.weights), by_class(rows.call, rows.weights)
    n, total = by_class(rows.truth, None).sum(axis=1), of_truth.sum(axis=1)
    f1 = divide(2 * right, of_truth + of_call)
    classes = (~np.isnan(f1)).sum(axis=1)
    return {
        "n": n.astype(np.int64),
        "classes": classes,
        "accuracy": divide(right.sum(axis=1), total),
        "macro_f1": divide(np.nansum(f1, axis=1), classes.astype(np.float64)),
        "note": np.select([n == 0, total == 0], ["no rows", f"no rows{WEIGHTLESS}"], ""),
    }


def _read_labels(
    y_true: Any, y_pred: Any, sensitive_features: Any, sample_weight: Any, missing: str
) -> _Rows:
    """Read and check the arrays under one mask; labels may be of any type."""
    check_array(y_true, "y_true")
    check_array(y_pred, "y_pred")
    attributes, columns = read_features(
        sensitive_features, y_true=y_true, y_pred=y_pred, sample_weight=sample_weight
    )
    names = ("y_true", "y_pred")
    labels = _common_levels([factor(columns[name], name) for name in names])
    weights = _read_weights(columns)
    masks = {f.name: f.missing for f in labels}
    if weights is not None:
        masks[weights.name] = weights.missing
    groups, keep, _ = complete_rows(attributes, missing, **masks)
    truth, call = (f.codes[keep] for f in labels)
    return _Rows(truth, call, len(labels[0].levels), groups, _kept_weights(weights, keep))


def _common_levels(found: list[Factor]) -> list[Factor]:
    """Factors of several columns over the same levels, so that their codes can be compared."""
    every = pd.Series([level for f in found for level in f.levels], dtype=object)
    levels = factor(every, "y_true and y_pred").levels
    where = {level: k for k, level in enumerate(levels)}
    return [
        Factor(f.name, levels, np.array([*(where[v] for v in f.levels), -1], np.intp)[f.codes])
        for f in found
    ]


def _read_weights(columns: dict[str, pd.Series]) -> Weights | None:
    return read_weights(columns["sample_weight"]) if "sample_weight" in columns else None


def _kept_weights(weights: Weights | None, keep: NDArray[np.bool_]) -> Array | None:
    if weights is None:
        return None
    check_some_weight(weights.name, weights.values[keep])
    return weights.values[keep]
