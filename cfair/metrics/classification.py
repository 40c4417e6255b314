"""Rates of a 0/1 call by group, and how far apart they are: gaps, ratios, contrasts, severity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import require_comparison
from cfair.estimators.confusion import RATES
from cfair.estimators.confusion import ratio as divide
from cfair.estimators.disparity import largest_gap
from cfair.metrics.cells import FN_FP, GIVEN_OUTCOME, CallCells, call_cells
from cfair.metrics.comparing import (
    KINDS,
    labelled,
    place_of,
    show_left_out,
    spread,
    warn_left_out,
    why_nan,
)
from cfair.metrics.reading import read_call
from cfair.options import check_option, is_number

Array = NDArray[np.float64]

AGGREGATES = ("worst_case", "mean")


def group_rates(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    rates: str | Sequence[str] | None = None,
    by: str = "groups",
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """Rates of a 0/1 call in every group.

    Parameters
    ----------
    y_true : (n,) array-like of 0/1 or bool
        Outcome.
    y_pred : (n,) array-like of 0/1 or bool
        The call, such as ``score >= 0.5``.
    sensitive_features : array-like, data frame, or mapping of name to array-like
        One or more attributes; several are crossed.
    rates : str or sequence of str, optional
        Some of ``prevalence``, ``selection_rate``, ``tpr`` (sensitivity, recall), ``fpr``, ``tnr``
        (specificity), ``fnr``, ``ppv`` (precision), ``npv``, ``fdr``, ``for`` (false omission
        rate), ``accuracy``, ``balanced_accuracy``, ``f1``, which are the default, and
        ``fn_fp_ratio``. One that is named twice is given once.
    by : {"groups", "attributes"}, default "groups"
        The crossed groups, or each attribute on its own.
    sample_weight : (n,) array-like, optional
        Sampling weights, on any scale. Rates are weighted; the counts are of rows.
    missing : {"raise", "drop", "level"}, default "raise"
        Refuse missing values, leave out their rows with a warning that counts them, or make those
        of an attribute a level.

    Returns
    -------
    pandas.DataFrame
        A row per group, also if it is empty: ``group`` and a column per attribute (or
        ``attribute`` and ``level``), ``n``, ``events``, ``non_events``, ``predicted_positive``,
        ``predicted_negative``, the rates, and ``note``. A rate without a denominator is NaN,
        never 0, and the note says why.

    Raises
    ------
    DataError
        If an array does not fit: values, length, index, missing values.
    ValueError
        If an option has no such value.

    Examples
    --------
    >>> table = group_rates(
    ...     [0, 1, 1, 0, 0], [0, 1, 0, 1, 0], sensitive_features=list("aaabb"), rates=["tpr", "fpr"]
    ... )
    >>> print(table[["group", "n", "events", "tpr", "fpr", "note"]].to_string(index=False))
    group  n  events  tpr  fpr           note
        a  3       2  0.5  0.0
        b  2       0  NaN  0.5 tpr: no events
    """
    check_option("by", by, ("groups", "attributes"))
    wanted = _chosen(rates)
    cohort = read_call(y_true, y_pred, sensitive_features, sample_weight, missing)
    cells = call_cells(cohort)
    groups = cohort.groups
    if by == "attributes":
        cells = CallCells(groups.margin_names, *cells.merged(groups.margin_matrix))
    columns = {rate: cells.values(rate) for rate in wanted}
    return labelled(groups, {**cells.sizes(), **columns, "note": cells.notes(wanted)}, by)


def contrasts(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    reference: Any,
    rates: str | Sequence[str] | None = None,
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """Every group against a reference, with sign: difference and ratio of rates.

    AIF360's differences are those against all others pooled (``reference="rest"``) with the sign
    turned, since it subtracts the privileged group; its average odds difference is the mean of the
    differences in ``tpr`` and ``fpr``, its average predictive value difference of those in ``ppv``
    and ``for``. Fair Code's are disadvantaged minus advantaged, its equalized odds whichever of
    the differences in ``tpr`` and ``fpr`` is larger in absolute value, and it adds 1e-6 to both
    sides of its ratio. R fairmetrics' equal opportunity is the difference in ``fnr``. Aequitas'
    disparities are the ratios.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, sample_weight, missing
        As in `group_rates`.
    reference : label, "overall" or "rest"
        A group (a tuple of levels, or with one attribute its level), all rows together, or for each
        group all the others pooled. Pooling hides groups that differ in opposite directions.
    rates : str or sequence of str, optional
        As in `group_rates`.

    Returns
    -------
    pandas.DataFrame
        A row per rate and group other than the reference: ``rate``, ``group``, the attributes, the
        counts of `group_rates`, ``reference``, ``estimate``, ``reference_estimate``,
        ``difference`` (group less reference), ``ratio`` (group over reference), ``note``.

    Raises
    ------
    DataError
        Also if there is only one group, or no group like the reference.
    ValueError
        If an option has no such value.

    Examples
    --------
    >>> table = contrasts(
    ...     [1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 0], sensitive_features=list("aaabbb"),
    ...     reference="b", rates=["tpr", "fpr"],
    ... )
    >>> table[["rate", "group", "difference", "ratio", "note"]].values.tolist()
    [['tpr', 'a', -0.5, 0.5, ''], ['fpr', 'a', 1.0, nan, 'the reference is 0: no ratio']]
    """
    wanted = _chosen(rates)
    cohort = read_call(y_true, y_pred, sensitive_features, sample_weight, missing)
    require_comparison(cohort.groups)
    cells = call_cells(cohort)
    K = len(cells.names)
    shown, keep = np.arange(K), np.ones(K, dtype=bool)
    if isinstance(reference, str) and reference in ("overall", "rest"):
        sums = np.ones((K, K)) if reference == "overall" else 1 - np.eye(K)
        others = CallCells((reference,) * K, *cells.merged(sums))
    else:
        at = cohort.groups.index_of(reference)
        keep = shown != at
        others = CallCells((cells.names[at],) * K, *cells.merged(np.eye(K)[[at] * K]))
    parts = []
    for rate in wanted:
        own, their = cells.values(rate), others.values(rate)
        none = (their == 0) & ~np.isnan(own)
        notes = [
            note
            or (f"reference {other}" if other else "the reference is 0: no ratio" if zero else "")
            for note, other, zero in zip(
                cells.notes([rate]), others.notes([rate]), none, strict=True
            )
        ]
        columns = {
            "rate": rate,
            **cells.sizes(),
            "reference": list(others.names),
            "estimate": own,
            "reference_estimate": their,
            "difference": own - their,
            "ratio": divide(own, their),
            "note": notes,
        }
        frame = labelled(cohort.groups, columns)
        frame.insert(0, "rate", frame.pop("rate"))
        parts.append(frame[keep])
    return pd.concat(parts, ignore_index=True)


def gap(
    y_true: Any,
    y_pred: Any,
    *,
    rate: str,
    sensitive_features: Any,
    to: Any = "groups",
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """How far the groups are apart in a rate.

    A gap is never negative, and above 0 by chance when all groups are equal, the more so the
    smaller they are: `cfair.Audit.observed` says what to expect then, and gives an interval.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, sample_weight, missing
        As in `group_rates`.
    rate : str
        One of the rates of `group_rates`.
    to : label, "groups" or "overall", default "groups"
        Largest less smallest rate; or the largest distance to the rate of all rows together
        (Fairlearn's ``to_overall``) or of one group.

    Returns
    -------
    float
        NaN if fewer than two groups have the rate.

    Raises
    ------
    DataError
        Also if there is only one group.
    ValueError
        If an option has no such value.

    Warns
    -----
    CfairWarning
        Names the groups that have no such rate, and why. They are left out.

    Examples
    --------
    >>> y_true, y_pred, sex = [1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 0], list("aaabbb")
    >>> gap(y_true, y_pred, rate="tpr", sensitive_features=sex)
    0.5
    >>> gap(y_true, y_pred, rate="tpr", sensitive_features=sex, to="overall")
    0.25
    """
    arrays = (y_true, y_pred, sensitive_features, sample_weight, missing)
    return compare_rates(arrays, (_check_rate(rate),), "difference", to)


def ratio(
    y_true: Any,
    y_pred: Any,
    *,
    rate: str,
    sensitive_features: Any,
    to: Any = "groups",
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """How unequal the groups are in a rate: the smallest over the largest.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, sample_weight, missing
        As in `group_rates`.
    rate : str
        One of the rates of `group_rates`.
    to : label, "groups" or "overall", default "groups"
        Smallest over largest rate; or the smallest of the ratios to the rate of all rows together
        (Fairlearn's ``to_overall``) or of one group, each turned over if it is above 1.

    Returns
    -------
    float
        Between 0 and 1. NaN if fewer than two groups have the rate, or if all rates are 0.

    Raises
    ------
    DataError, ValueError
        As in `gap`.

    Warns
    -----
    CfairWarning
        As in `gap`.

    Examples
    --------
    >>> y_true, y_pred, sex = [1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 0], list("aaabbb")
    >>> ratio(y_true, y_pred, rate="tpr", sensitive_features=sex)
    0.5
    """
    arrays = (y_true, y_pred, sensitive_features, sample_weight, missing)
    return compare_rates(arrays, (_check_rate(rate),), "ratio", to)


def group_min(
    y_true: Any,
    y_pred: Any,
    *,
    rate: str,
    sensitive_features: Any,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """Smallest rate of a group.

    Parameters
    ----------
    y_true, y_pred, rate, sensitive_features, sample_weight, missing
        As in `gap`. One group is enough.

    Returns
    -------
    float
        NaN if no group has the rate. `gap_table` names the group.

    Raises
    ------
    DataError, ValueError
        As in `group_rates`.

    Warns
    -----
    CfairWarning
        As in `gap`.

    Examples
    --------
    >>> y_true, y_pred, sex = [1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 0], list("aaabbb")
    >>> group_min(y_true, y_pred, rate="tpr", sensitive_features=sex)
    0.5
    """
    return _extreme(np.min, rate, (y_true, y_pred, sensitive_features, sample_weight, missing))


def group_max(
    y_true: Any,
    y_pred: Any,
    *,
    rate: str,
    sensitive_features: Any,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """Largest rate of a group.

    Parameters
    ----------
    y_true, y_pred, rate, sensitive_features, sample_weight, missing
        As in `gap`. One group is enough.

    Returns
    -------
    float
        NaN if no group has the rate. `gap_table` names the group.

    Raises
    ------
    DataError, ValueError
        As in `group_rates`.

    Warns
    -----
    CfairWarning
        As in `gap`.

    Examples
    --------
    >>> y_true, y_pred, sex = [1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 0], list("aaabbb")
    >>> group_max(y_true, y_pred, rate="tpr", sensitive_features=sex)
    1.0
    """
    return _extreme(np.max, rate, (y_true, y_pred, sensitive_features, sample_weight, missing))


def gap_table(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    rates: str | Sequence[str] | None = None,
    moderate: float = 0.05,
    severe: float = 0.15,
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """Gap, ratio and the two groups behind them, for many rates at once.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, rates, sample_weight, missing
        As in `group_rates`.
    moderate, severe : float, default 0.05 and 0.15
        Boundaries of the words, as in `severity`.

    Returns
    -------
    pandas.DataFrame
        A row per rate: ``rate``, ``gap``, ``ratio``, ``highest`` and ``lowest`` (groups, the first
        where several tie), ``n_highest`` and ``n_lowest`` (rows behind their rates), ``groups``
        (how many have the rate), ``severity``, and ``note``, which names the groups without it.

    Raises
    ------
    DataError, ValueError
        As in `gap`.

    Examples
    --------
    >>> table = gap_table(
    ...     [1, 1, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0, 1], sensitive_features=list("aaabbbc"),
    ...     rates=["tpr"],
    ... )
    >>> table[["gap", "highest", "lowest", "severity", "note"]].values.tolist()
    [[0.5, 'b', 'a', 'severe', 'left out: c (no events)']]
    """
    _check_boundaries(moderate, severe)
    wanted = _chosen(rates)
    cohort = read_call(y_true, y_pred, sensitive_features, sample_weight, missing)
    require_comparison(cohort.groups)
    cells = call_cells(cohort)
    records = []
    for rate in wanted:
        values = cells.values(rate)
        difference, quotient = (spread(values, kind) for kind in KINDS)
        pair = largest_gap(values)
        behind = cells.behind(rate)
        high, low = pair or (None, None)
        records.append(
            {
                "rate": rate,
                "gap": difference,
                "ratio": quotient,
                "highest": None if high is None else cells.names[high],
                "lowest": None if low is None else cells.names[low],
                "n_highest": 0 if high is None else int(behind[high]),
                "n_lowest": 0 if low is None else int(behind[low]),
                "groups": int(np.count_nonzero(~np.isnan(values))),
                "severity": "none" if rate == FN_FP else severity(difference, moderate, severe),
                "note": _gap_note(cells, rate, difference, quotient),
            }
        )
    return pd.DataFrame(records)


def severity(gap: float, moderate: float = 0.05, severe: float = 0.15) -> str:
    """A word for the size of a gap.

    The word knows nothing of chance: with few rows a gap is severe more often than not.

    Parameters
    ----------
    gap : float
        A difference between rates; its sign does not matter.
    moderate, severe : float, default 0.05 and 0.15
        From `moderate` on, and up to and with `severe`, a gap is moderate, as in TrustLens.

    Returns
    -------
    {"acceptable", "moderate", "severe", "undefined"}
        The last if the gap is NaN. A gap within rounding (1e-12) of a boundary is on it.

    Raises
    ------
    ValueError
        Unless ``0 < moderate < severe < 1``, and the gap is a number.

    Examples
    --------
    >>> [severity(gap) for gap in (0.0499, 0.05, 0.15, 0.1501, float("nan"))]
    ['acceptable', 'moderate', 'moderate', 'severe', 'undefined']
    """
    _check_boundaries(moderate, severe)
    if not is_number(gap):
        raise ValueError(f"gap must be a number, such as 0.1, not {gap!r}.")
    size = abs(float(gap))
    if np.isnan(size):
        return "undefined"
    if size > severe + 1e-12:
        return "severe"
    return "moderate" if size >= moderate - 1e-12 else "acceptable"


def compare_rates(
    arrays: tuple[Any, Any, Any, Any, str],
    rates: tuple[str, ...],
    kind: str,
    to: Any,
    agg: str = "worst_case",
) -> float:
    """Gap or ratio of one rate, or the worse or the mean of those of two.

    Parameters
    ----------
    arrays : tuple
        ``y_true``, ``y_pred``, ``sensitive_features``, ``sample_weight``, ``missing``.
    rates : tuple of str
    kind : {"difference", "ratio"}
    to : label, "groups" or "overall"
    agg : {"worst_case", "mean"}, default "worst_case"

    Returns
    -------
    float
    """
    check_option("agg", agg, AGGREGATES)
    cohort = read_call(*arrays, both_outcomes=not GIVEN_OUTCOME.isdisjoint(rates))
    require_comparison(cohort.groups)
    cells = call_cells(cohort)
    centre = place_of(cohort.groups, to)
    whole = CallCells(("all",), *cells.merged(np.ones((1, len(cells.names)))))
    found, why = [], ""
    for rate in rates:
        values = cells.values(rate)
        beside = None
        if centre is not None:
            beside = float(whole.values(rate)[0] if centre < 0 else values[centre])
        found.append(spread(values, kind, beside))
        why = why or (why_nan(values, beside) if np.isnan(found[-1]) else "")
    worst = max(found) if kind == "difference" else min(found)
    result = float(np.mean(found)) if agg == "mean" else worst
    if np.isnan(found).any():  # the worse of two is unknown if one is
        result = float("nan")
    warn_left_out(" and ".join(rates), cells.left_out(rates), why)
    return result


def _extreme(
    choose: Callable[[Array], Any], rate: str, arrays: tuple[Any, Any, Any, Any, str]
) -> float:
    cohort = read_call(*arrays, both_outcomes=_check_rate(rate) in GIVEN_OUTCOME)
    cells = call_cells(cohort)
    values = cells.values(rate)
    defined = values[~np.isnan(values)]
    warn_left_out(rate, cells.left_out([rate]), "" if len(defined) else "no group has one")
    return float(choose(defined)) if len(defined) else float("nan")


def _gap_note(cells: CallCells, rate: str, difference: float, quotient: float) -> str:
    left_out = {k: why.rpartition(": ")[2] for k, why in cells.left_out([rate]).items()}
    parts = [f"left out: {show_left_out(left_out)}"] if left_out else []
    if np.isnan(difference):
        parts.append("fewer than two groups have the rate")
    elif np.isnan(quotient):
        parts.append("all rates are 0: no ratio")
    return "; ".join(parts)


def _check_rate(rate: Any) -> str:
    check_option("rate", rate, (*RATES, FN_FP))
    return str(rate)


def _chosen(rates: Sequence[str] | str | None) -> tuple[str, ...]:
    if rates is None:
        return RATES
    if not isinstance(rates, (str, Iterable)):
        raise ValueError(
            f"rates must be one or more of {', '.join(map(repr, (*RATES, FN_FP)))}, or None, not "
            f"{rates!r}."
        )
    wanted = (rates,) if isinstance(rates, str) else tuple(rates)
    if not wanted:
        raise ValueError("rates must name one rate or more, or be None for all.")
    return tuple(dict.fromkeys(_check_rate(rate) for rate in wanted))


def _check_boundaries(moderate: float, severe: float) -> None:
    numbers = is_number(moderate) and is_number(severe)
    if not numbers or not 0 < moderate < severe < 1:
        raise ValueError(
            f"thresholds must be 0 < moderate < severe < 1, not moderate={moderate!r} and "
            f"severe={severe!r}."
        )
