"""How well a score tells events from non-events, by group: AUC, ROC curves, the best-F1 threshold.

They also hold the frames, of groups and of curves, of every metric of a score here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort, require_comparison
from cfair.errors import CfairWarning, warn
from cfair.inference import performance as scores
from cfair.inference.performance import scored_rows
from cfair.inference.score_curves import roc_points
from cfair.metrics.comparing import labelled, lacking, spread, warn_left_out
from cfair.metrics.reading import read_score

Array = NDArray[np.float64]


def auc(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float | pd.DataFrame:
    """Area under the ROC curve: how often an event has a higher score than a non-event.

    Ties count one half, as in scikit-learn and FairMedFM. `cfair.Audit.performance` gives DeLong's
    intervals.

    Parameters
    ----------
    y_true : (n,) array-like of 0/1 or bool
        Outcome.
    y_score : (n,) array-like in [0, 1]
        Score.
    sensitive_features : array-like, data frame, or mapping of name to array-like, optional
        One or more attributes; several are crossed. Without any, the AUC of all rows.
    sample_weight : (n,) array-like, optional
        Sampling weights, on any scale.
    missing : {"raise", "drop", "level"}, default "raise"
        Refuse missing values, leave out their rows, or make those of an attribute a level.

    Returns
    -------
    float or pandas.DataFrame
        With sensitive features a row per group: ``group``, the attributes, ``n``, ``events``,
        ``non_events``, ``auc`` and ``note``, which says why an AUC is undefined.

    Raises
    ------
    DataError
        If an array does not fit: values, length, index, missing values.

    Warns
    -----
    CfairWarning
        If the score has one or two values: it may be a call.

    Examples
    --------
    >>> y, score = [0, 1, 0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.7, 0.6]
    >>> round(auc(y, score), 3)
    0.778
    >>> auc(y, score, sensitive_features=list("aabbbb"))[["group", "auc"]].round(3).values.tolist()
    [['a', 1.0], ['b', 0.75]]
    """
    cohort = read_score(y_true, y_score, sensitive_features, sample_weight, missing)
    values = _auc(cohort)
    return by_group(cohort, {"auc": values}, both=True, alone=sensitive_features is None)


def auc_gap(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """Largest less smallest AUC of the groups: FairMedFM's ``auc_gap``.

    Chance alone makes it positive, the more so the smaller the groups;
    ``cfair.Audit.performance().gaps("auc")`` says by how much, and gives an interval.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing
        As in `auc`.

    Returns
    -------
    float
        NaN if fewer than two groups have an AUC.

    Raises
    ------
    DataError
        Also if there is only one group.

    Warns
    -----
    CfairWarning
        Names the groups without events or without non-events. They are left out.

    Examples
    --------
    >>> y, score = [0, 1, 0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.7, 0.6]
    >>> auc_gap(y, score, sensitive_features=list("aabbbb"))
    0.25
    """
    cohort = read_score(y_true, y_score, sensitive_features, sample_weight, missing)
    values = _auc(cohort)
    return gap_of(cohort, values, "AUC", both=True)


def worst_auc(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """Smallest AUC of a group: FairMedFM's ``worst_group_auc``.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing
        As in `auc`.

    Returns
    -------
    float
        NaN if no group has an AUC.

    Warns
    -----
    CfairWarning
        Names the groups without events or without non-events. They are left out.

    Examples
    --------
    >>> y, score = [0, 1, 0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.7, 0.6]
    >>> worst_auc(y, score, sensitive_features=list("aabbbb"))
    0.75
    """
    cohort = read_score(y_true, y_score, sensitive_features, sample_weight, missing)
    values = _auc(cohort)
    _warn_of_undefined(cohort, values, "AUC", both=True)
    return float(np.nanmin(values)) if (~np.isnan(values)).any() else float("nan")


def roc_curves(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """ROC curves, a point for every distinct score.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing
        As in `auc`.

    Returns
    -------
    pandas.DataFrame
        ``group`` (if there are any), ``threshold`` (the call is ``score >= threshold``; infinite at
        the first point), ``fpr``, ``tpr``. A group without events or non-events has no rows.

    Examples
    --------
    >>> roc_curves([0, 1, 0, 1], [0.1, 0.4, 0.4, 0.8])
       threshold  fpr  tpr
    0        inf  0.0  0.0
    1        0.8  0.0  0.5
    2        0.4  0.5  1.0
    3        0.1  1.0  1.0
    """
    cohort = read_score(y_true, y_score, sensitive_features, sample_weight, missing)
    points = roc_points(scored_rows(cohort), 0)
    columns = {"threshold": points.threshold, "fpr": points.fpr, "tpr": points.tpr}
    return curve_frame(cohort, points.target, columns, alone=sensitive_features is None)


def best_f1_threshold(
    y_true: Any, y_score: Any, *, sample_weight: Any = None, missing: str = "raise"
) -> float:
    """The threshold at which ``score >= threshold`` has the highest F1.

    One for all groups, as in FairMedFM, which then calls those strictly above it (and so can miss
    the highest F1): ``y_score > best_f1_threshold(y_true, y_score)`` are its calls.

    Parameters
    ----------
    y_true : (n,) array-like of 0/1 or bool
    y_score : (n,) array-like in [0, 1]
    sample_weight : (n,) array-like, optional
    missing : {"raise", "drop"}, default "raise"

    Returns
    -------
    float
        One of the scores; the lowest, if several do equally well.

    Examples
    --------
    >>> best_f1_threshold([0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8])
    0.4
    """
    rows = scored_rows(read_score(y_true, y_score, None, sample_weight, missing))
    return scores.best_f1_threshold(rows.y, rows.p, rows.w)


# -- for all metrics of a score -------------------------------------------------------------------


def by_group(
    cohort: Cohort,
    values: dict[str, Array],
    *,
    both: bool = False,
    alone: bool = False,
    notes: list[str] | None = None,
) -> Any:
    """A frame by group of one or more metrics; the bare number of one metric of all rows.

    Parameters
    ----------
    cohort : Cohort
    values : dict of str to (K,) array
    both : bool, default False
        Whether the metric needs events and non-events.
    alone : bool, default False
        There are no groups.
    notes : list of str, optional
        What else there is to say of each group.
    """
    if alone and len(values) == 1:
        return float(next(iter(values.values()))[0])
    groups = cohort.groups
    counts = {
        "n": groups.sizes,
        "events": np.bincount(groups.codes[cohort.y == 1], minlength=groups.n_groups),
        "non_events": np.bincount(groups.codes[cohort.y == 0], minlength=groups.n_groups),
    }
    reasons = _reasons(cohort, both)
    extra = notes or [""] * groups.n_groups
    shown = [reason or more for reason, more in zip(reasons, extra, strict=True)]
    frame = {**counts, **values, "note": shown}
    return pd.DataFrame(frame) if alone else labelled(groups, frame)


def gap_of(cohort: Cohort, values: Array, label: str, *, both: bool = False) -> float:
    """Largest less smallest value of the groups; warns of those that have none."""
    require_comparison(cohort.groups)
    _warn_of_undefined(cohort, values, label, both)
    return spread(values, "difference")


def curve_frame(
    cohort: Cohort, target: NDArray[np.intp], columns: dict[str, Any], *, alone: bool
) -> pd.DataFrame:
    """A frame of curves, with the group first if there are groups."""
    frame = pd.DataFrame(columns)
    if not alone:
        names = np.asarray(cohort.groups.names, dtype=object)[target]
        frame.insert(0, "group", pd.Series(names, dtype="str"))
    return frame


def _auc(cohort: Cohort) -> Array:
    """AUC of every group; warns of a score that may be a call."""
    rows = scored_rows(cohort)
    if said := scores.few_values(rows):
        warn(f"y_score: {said}", CfairWarning)
    return scores.auc(rows, 0)[0]


def _reasons(cohort: Cohort, both: bool) -> list[str]:
    """What each group lacks; empty where it lacks nothing."""
    return lacking(scored_rows(cohort), *((1, 0) if both else ()))


def _warn_of_undefined(cohort: Cohort, values: Array, label: str, both: bool) -> None:
    reasons = _reasons(cohort, both)
    undefined = np.flatnonzero(np.isnan(values))
    warn_left_out(label, {cohort.groups.names[k]: reasons[k] or "undefined" for k in undefined})
