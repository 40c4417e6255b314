"""Fairness criteria by their names: what has to be equal between groups, and by how much it is not.

A criterion of a 0/1 call is a rate, or two, of `cfair.metrics.group_rates`; class balance is about
mean scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort, require_comparison
from cfair.estimators.confusion import ratio as divide
from cfair.inference.performance import ScoredRows, scored_rows
from cfair.metrics.cells import FN_FP, call_cells
from cfair.metrics.classification import compare_rates
from cfair.metrics.comparing import (
    KINDS,
    labelled,
    lacking,
    place_of,
    spread,
    warn_left_out,
    why_nan,
)
from cfair.metrics.reading import check_array, read_arrays, read_call

Array = NDArray[np.float64]


def treatment_equality(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """False negatives for each false positive, by group.

    Groups are treated alike if this ratio is the same in all of them (Berk et al. 2021).

    Parameters
    ----------
    y_true, y_pred, sensitive_features, sample_weight, missing
        As in `group_rates`.

    Returns
    -------
    pandas.DataFrame
        As `group_rates`, with ``false_negatives`` and ``false_positives`` (rows) and
        ``fn_fp_ratio``, which is NaN, with a note, in a group without false positives.

    Raises
    ------
    DataError, ValueError
        As in `group_rates`.

    References
    ----------
    Berk R, Heidari H, Jabbari S, Kearns M, Roth A (2021). Fairness in criminal justice risk
    assessments. Sociological Methods & Research 50(1).

    Examples
    --------
    >>> table = treatment_equality(
    ...     [1, 1, 0, 1, 0, 0], [0, 0, 1, 1, 1, 1], sensitive_features=list("aaabbb")
    ... )
    >>> table[["group", "false_negatives", "false_positives", "fn_fp_ratio"]].values.tolist()
    [['a', 2, 1, 2.0], ['b', 0, 2, 0.0]]
    """
    cohort = read_call(y_true, y_pred, sensitive_features, sample_weight, missing)
    cells = call_cells(cohort)
    columns = {
        **cells.sizes(),
        "false_negatives": cells.rows[:, 1, 0].astype(np.int64),
        "false_positives": cells.rows[:, 0, 1].astype(np.int64),
        FN_FP: cells.values(FN_FP),
        "note": cells.notes([FN_FP]),
    }
    return labelled(cohort.groups, columns)


@dataclass(frozen=True)
class _Criterion:
    """A named criterion: the rates that have to be equal, and what its docstrings say.

    `examples` are its difference and ratio in the example of the docstring.
    """

    title: str
    rates: tuple[str, ...]
    equal: str
    others: str
    examples: tuple[str, str]
    reference: str = ""


_HARDT = (
    "Hardt M, Price E, Srebro N (2016). Equality of opportunity in supervised learning. NeurIPS 29."
)
_CHOULDECHOVA = (
    "Chouldechova A (2017). Fair prediction with disparate impact. Big Data 5(2):153-163."
)
_BERK = (
    "Berk R, Heidari H, Jabbari S, Kearns M, Roth A (2021). Fairness in criminal justice risk\n"
    "    assessments. Sociological Methods & Research 50(1)."
)

_CRITERIA: dict[str, _Criterion] = {
    "demographic_parity": _Criterion(
        "Demographic parity",
        ("selection_rate",),
        "the share with a positive call",
        "Also called statistical parity (AIF360, R fairmetrics, Aequitas) and, as a ratio,\n"
        "    disparate impact (AIF360, Fair Code).",
        ("0.125", "0.75"),
    ),
    "equal_opportunity": _Criterion(
        "Equal opportunity",
        ("tpr",),
        "the true positive rate (sensitivity)",
        "FairMedFM's ``eo`` and Fairlearn's value are this gap. Fair Code and AIF360 keep the\n"
        "    sign (`contrasts`); R fairmetrics takes the false negative rate, with the other one.",
        ("0.25", "0.667"),
        _HARDT,
    ),
    "predictive_equality": _Criterion(
        "Predictive equality",
        ("fpr",),
        "the false positive rate",
        "R fairmetrics' name; Fairlearn and Aequitas say false positive rate.",
        ("0.083", "0.75"),
        _CHOULDECHOVA,
    ),
    "predictive_parity": _Criterion(
        "Predictive parity",
        ("ppv",),
        "the positive predictive value (precision)",
        "R fairmetrics says positive predictive parity, Aequitas precision parity.",
        ("0.067", "0.9"),
        _CHOULDECHOVA,
    ),
    "negative_predictive_parity": _Criterion(
        "Negative predictive parity",
        ("npv",),
        "the negative predictive value",
        "R fairmetrics' and Aequitas' name.",
        ("0.2", "0.75"),
    ),
    "accuracy": _Criterion(
        "Accuracy",
        ("accuracy",),
        "the share of right calls",
        "Fair Code says accuracy equality, R fairmetrics overall accuracy parity, TrustLens\n"
        "    performance gap (of rounded accuracies), FairMedFM ``acc-gap``.",
        ("0.075", "0.893"),
    ),
    "treatment_equality": _Criterion(
        "Treatment equality",
        (FN_FP,),
        "the number of false negatives for each false positive",
        "R fairmetrics' name. A group without false positives has no such ratio; a difference has\n"
        "    no upper bound, so that no word of `severity` fits it.",
        ("1.5", "0.25"),
        _BERK,
    ),
    "equalized_odds": _Criterion(
        "Equalized odds",
        ("tpr", "fpr"),
        "both the true and the false positive rate",
        'Fairlearn has both ways. AIF360\'s average odds error is ``agg="mean"`` with two\n'
        "    groups, its average odds difference and Fair Code's equalized odds keep the sign, as\n"
        "    in `contrasts`.\n"
        "    FairMedFM's ``eod`` is a score, 1 if fair: `equalized_odds_score`.",
        ("0.25", "0.667"),
        _HARDT,
    ),
    "conditional_use_accuracy": _Criterion(
        "Conditional use accuracy equality",
        ("ppv", "npv"),
        "both the positive and the negative predictive value",
        "R fairmetrics' conditional accuracy equality, which gives two signed differences.",
        ("0.2", "0.75"),
        _BERK,
    ),
}

_KIND_WORDS = {
    "difference": ("largest less smallest", "0 if all groups are equal", "largest", "distances"),
    "ratio": ("smallest over largest", "1 if all groups are equal", "smallest", "ratios"),
}

_AGG_DOC = """    agg : {{"worst_case", "mean"}}, default "worst_case"
        The worse of the two {kind}s, or their mean. Chance makes the worse of two worse than
        either, so it is not to be tested as if it had been chosen beforehand.
"""

_TEMPLATE = """{title}, {kind}: {words[0]} value of a group, {words[1]}.

    It holds if {equal} {verb} the same in all groups.
    {others}

    Parameters
    ----------
    y_true : (n,) array-like of 0/1 or bool
        Outcome.
    y_pred : (n,) array-like of 0/1 or bool
        The call, such as ``score >= 0.5``.
    sensitive_features : array-like, data frame, or mapping of name to array-like
        One or more attributes; several are crossed.
{agg}    to : label, "groups" or "overall", default "groups"
        Compare groups with each other, or take the {words[2]} of the {words[3]} to all rows
        together or to one group, as in `{general}`.
    sample_weight : (n,) array-like, optional
        Sampling weights, on any scale.
    missing : {{"raise", "drop", "level"}}, default "raise"
        As in `group_rates`.

    Returns
    -------
    float
        NaN if fewer than two groups have {rates}{zero}.

    Raises
    ------
    DataError
        If an array does not fit, or there is only one group.
    ValueError
        If an option has no such value.

    Warns
    -----
    CfairWarning
        Names the groups in which a rate is undefined, and why. They are left out.

    See Also
    --------
    gap_table : The groups behind it.
    contrasts : Every group against a reference, with sign.
{reference}
    Examples
    --------
    >>> y_true = [1, 1, 1, 1, 0, 0, 0, 0] + [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    >>> y_pred = [1, 1, 0, 0, 1, 0, 0, 0] + [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]
    >>> sex = ["F"] * 8 + ["M"] * 10
    >>> round({name}(y_true, y_pred, sensitive_features=sex), 3)
    {example}
    """


def _document(function: Callable[..., float], name: str, kind: str) -> Callable[..., float]:
    """Give a criterion's function its name and its docstring."""
    criterion = _CRITERIA[name]
    two = len(criterion.rates) == 2
    reference = ""
    if criterion.reference:
        reference = f"\n    References\n    ----------\n    {criterion.reference}\n"
    function.__name__ = function.__qualname__ = f"{name}_{kind}"
    function.__doc__ = _TEMPLATE.format(
        title=criterion.title,
        kind=kind,
        words=_KIND_WORDS[kind],
        equal=criterion.equal,
        verb="are" if two else "is",
        others=criterion.others,
        agg=_AGG_DOC.format(kind=kind) if two else "",
        general="gap" if kind == "difference" else "ratio",
        rates=" and ".join(f"``{rate}``" for rate in criterion.rates),
        zero=", or all of these are 0" if kind == "ratio" else "",
        reference=reference,
        name=function.__name__,
        example=criterion.examples[KINDS.index(kind)],
    )
    return function


def _of_one_rate(name: str, kind: str) -> Callable[..., float]:
    """Make the function of a criterion that is about one rate."""

    def function(
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any,
        to: Any = "groups",
        sample_weight: Any = None,
        missing: str = "raise",
    ) -> float:
        arrays = (y_true, y_pred, sensitive_features, sample_weight, missing)
        return compare_rates(arrays, _CRITERIA[name].rates, kind, to)

    return _document(function, name, kind)


def _of_two_rates(name: str, kind: str) -> Callable[..., float]:
    """Make the function of a criterion that is about two rates."""

    def function(
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any,
        agg: str = "worst_case",
        to: Any = "groups",
        sample_weight: Any = None,
        missing: str = "raise",
    ) -> float:
        arrays = (y_true, y_pred, sensitive_features, sample_weight, missing)
        return compare_rates(arrays, _CRITERIA[name].rates, kind, to, agg)

    return _document(function, name, kind)


demographic_parity_difference = _of_one_rate("demographic_parity", "difference")
demographic_parity_ratio = _of_one_rate("demographic_parity", "ratio")
equal_opportunity_difference = _of_one_rate("equal_opportunity", "difference")
equal_opportunity_ratio = _of_one_rate("equal_opportunity", "ratio")
predictive_equality_difference = _of_one_rate("predictive_equality", "difference")
predictive_equality_ratio = _of_one_rate("predictive_equality", "ratio")
predictive_parity_difference = _of_one_rate("predictive_parity", "difference")
predictive_parity_ratio = _of_one_rate("predictive_parity", "ratio")
negative_predictive_parity_difference = _of_one_rate("negative_predictive_parity", "difference")
negative_predictive_parity_ratio = _of_one_rate("negative_predictive_parity", "ratio")
accuracy_difference = _of_one_rate("accuracy", "difference")
accuracy_ratio = _of_one_rate("accuracy", "ratio")
treatment_equality_difference = _of_one_rate("treatment_equality", "difference")
treatment_equality_ratio = _of_one_rate("treatment_equality", "ratio")
equalized_odds_difference = _of_two_rates("equalized_odds", "difference")
equalized_odds_ratio = _of_two_rates("equalized_odds", "ratio")
conditional_use_accuracy_difference = _of_two_rates("conditional_use_accuracy", "difference")
conditional_use_accuracy_ratio = _of_two_rates("conditional_use_accuracy", "ratio")


def equalized_odds_score(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    agg: str = "mean",
    to: Any = "groups",
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """Equalized odds as a score: 1 less the gaps in true positive and true negative rate.

    FairMedFM's ``eod`` is this score, where 1 is fair; elsewhere the name stands for a difference,
    where 0 is. FairMedFM leaves a group without events out of both gaps, not only of the one in the
    true positive rate.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, sample_weight, missing
        As in `group_rates`. FairMedFM's own call is ``score > t``.
    agg : {"mean", "worst_case"}, default "mean"
        Mean of the two gaps, or the larger one.
    to : label, "groups" or "overall", default "groups"
        As in `gap`.

    Returns
    -------
    float
        Between 0 and 1. NaN if fewer than two groups have one of the rates.

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
    >>> equalized_odds_score(y_true, y_pred, sensitive_features=sex)
    0.25
    """
    arrays = (y_true, y_pred, sensitive_features, sample_weight, missing)
    return 1.0 - compare_rates(arrays, ("tpr", "tnr"), "difference", to, agg)


def class_balance(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """Mean score of those with and of those without the event, by group.

    Balance holds if groups have the same mean score among their events (balance for the positive
    class), and among their non-events (for the negative class).

    Parameters
    ----------
    y_true, sensitive_features, sample_weight, missing
        As in `group_rates`.
    y_score : (n,) array-like in [0, 1]
        Score.

    Returns
    -------
    pandas.DataFrame
        A row per group: ``group``, the attributes, ``n``, ``events``, ``non_events``,
        ``mean_score_events``, ``mean_score_non_events``, ``note``.

    Raises
    ------
    DataError
        If an array does not fit: values, length, index, missing values.

    References
    ----------
    Kleinberg J, Mullainathan S, Raghavan M (2017). Inherent trade-offs in the fair determination of
    risk scores. ITCS 2017.

    Examples
    --------
    >>> table = class_balance(
    ...     [1, 0, 1, 1], [0.5, 0.25, 0.75, 0.25], sensitive_features=list("aabb")
    ... )
    >>> table[["group", "mean_score_events", "mean_score_non_events", "note"]].values.tolist()
    [['a', 0.5, 0.25, ''], ['b', 0.5, nan, 'mean_score_non_events: no non-events']]
    """
    arrays = (y_true, y_score, sensitive_features, sample_weight, missing)
    cohort = _scored(arrays, both_outcomes=False)
    rows = scored_rows(cohort)
    columns = {"mean_score_events": 1, "mean_score_non_events": 0}
    means = {name: _mean_scores(rows, 0, y) for name, y in columns.items()}
    lacks = {name: lacking(rows, y) for name, y in columns.items()}
    table = {
        "n": cohort.groups.sizes,
        "events": rows.total(0, rows.y).astype(np.int64),
        "non_events": rows.total(0, 1 - rows.y).astype(np.int64),
        **means,
        "note": [
            "; ".join(f"{name}: {lacks[name][k]}" for name in columns if lacks[name][k])
            for k in range(cohort.groups.n_groups)
        ],
    }
    return labelled(cohort.groups, table)


def class_balance_difference(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any,
    given: int = 1,
    to: Any = "groups",
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """Class balance, difference: largest less smallest mean score of a group, given the outcome.

    R fairmetrics' balance for the positive (``given=1``) or negative class, which keeps the sign:
    take it from `class_balance`.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing
        As in `class_balance`.
    given : {1, 0}, default 1
        Among events or among non-events.
    to : label, "groups" or "overall", default "groups"
        As in `gap`.

    Returns
    -------
    float
        NaN if fewer than two groups have such rows.

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
    >>> y_true, y_score, sex = [1, 0, 1, 0], [0.5, 0.25, 0.75, 0.25], list("aabb")
    >>> class_balance_difference(y_true, y_score, sensitive_features=sex)
    0.25
    """
    arrays = (y_true, y_score, sensitive_features, sample_weight, missing)
    return _balance(arrays, given, "difference", to)


def class_balance_ratio(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any,
    given: int = 1,
    to: Any = "groups",
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """Class balance, ratio: smallest over largest mean score of a group, given the outcome.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing
        As in `class_balance`.
    given : {1, 0}, default 1
        Among events or among non-events.
    to : label, "groups" or "overall", default "groups"
        As in `ratio`.

    Returns
    -------
    float
        NaN if fewer than two groups have such rows, or if all means are 0.

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
    >>> y_true, y_score, sex = [1, 0, 1, 0], [0.5, 0.25, 1.0, 0.25], list("aabb")
    >>> class_balance_ratio(y_true, y_score, sensitive_features=sex)
    0.5
    """
    arrays = (y_true, y_score, sensitive_features, sample_weight, missing)
    return _balance(arrays, given, "ratio", to)


def _scored(arrays: tuple[Any, Any, Any, Any, str], both_outcomes: bool) -> Cohort:
    y_true, y_score, sensitive_features, sample_weight, missing = arrays
    check_array(y_true, "y_true")
    check_array(y_score, "y_score")
    return read_arrays(
        y_true,
        y_score=y_score,
        sensitive_features=sensitive_features,
        sample_weight=sample_weight,
        missing=missing,
        both_outcomes=both_outcomes,
    )


def _balance(arrays: tuple[Any, Any, Any, Any, str], given: int, kind: str, to: Any) -> float:
    integer = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
    if not integer or given not in (0, 1):
        raise ValueError(f"given must be 1 (events) or 0 (non-events), not {given!r}.")
    cohort = _scored(arrays, both_outcomes=True)
    require_comparison(cohort.groups)
    rows, at = scored_rows(cohort), place_of(cohort.groups, to)
    values = _mean_scores(rows, 0, given)
    whole = _mean_scores(rows, -1, given)  # the last partition has all rows in one target
    centre = None if at is None else float(whole[0] if at == -1 else values[at])
    result = spread(values, kind, centre)
    lacks = zip(cohort.groups.names, lacking(rows, given), strict=True)
    warn_left_out(
        f"mean score given y = {given}",
        {name: why for name, why in lacks if why},
        why_nan(values, centre) if np.isnan(result) else "",
    )
    return result


def _mean_scores(rows: ScoredRows, k: int, y: int) -> Array:
    """Mean score of the rows with an outcome, by target of a partition."""
    among = rows.w * (rows.y == y)
    return divide(rows.total(k, among * rows.p), rows.total(k, among))
