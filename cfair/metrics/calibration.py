"""How near a score is to the risk, by group: Brier score, log loss, calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cfair.cohort import Cohort
from cfair.inference import performance as scores
from cfair.inference.intervals import NORMAL, wilson_interval
from cfair.inference.performance import mean_of, observed_over_expected, scored_rows
from cfair.inference.recalibration import (
    BIN_RANGES,
    Bins,
    calibration_bins,
    check_bins,
    check_clip,
    recalibrate,
)
from cfair.metrics.discrimination import by_group, curve_frame, gap_of
from cfair.metrics.reading import read_score
from cfair.options import check_level, check_option


def brier(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float | pd.DataFrame:
    """Brier score: mean squared distance of the score from the outcome.

    R fairmetrics compares it as Brier score parity, ``eval_bs_parity``.

    Parameters
    ----------
    y_true : (n,) array-like of 0/1 or bool
        Outcome.
    y_score : (n,) array-like in [0, 1]
        Score.
    sensitive_features : array-like, data frame, or mapping of name to array-like, optional
        One or more attributes; several are crossed. Without any, the value of all rows.
    sample_weight : (n,) array-like, optional
        Sampling weights, on any scale.
    missing : {"raise", "drop", "level"}, default "raise"
        Refuse missing values, leave out their rows, or make those of an attribute a level.

    Returns
    -------
    float or pandas.DataFrame
        With sensitive features a row per group: ``group``, the attributes, ``n``, ``events``,
        ``non_events``, ``brier``, ``note``.

    Raises
    ------
    DataError
        If an array does not fit: values, length, index, missing values.

    Examples
    --------
    >>> round(brier([0, 1], [0.2, 0.6]), 3)
    0.1
    """
    cohort = read_score(
        y_true, y_score, sensitive_features, sample_weight, missing, both_outcomes=False
    )
    values, _ = mean_of(scores.squared_error)(scored_rows(cohort), 0)
    return by_group(cohort, {"brier": values}, alone=sensitive_features is None)


def log_loss(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float | pd.DataFrame:
    """Log loss, or binary cross-entropy: mean of minus the log probability of what happened.

    A logarithm counts as no less than -100, as in FairMedFM (``bce``) and PyTorch, so that an event
    with a score of 0 costs 100.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing
        As in `brier`.

    Returns
    -------
    float or pandas.DataFrame
        As `brier`, with a column ``log_loss``.

    Examples
    --------
    >>> log_loss([0, 1], [0.0, 0.0])
    50.0
    """
    cohort = read_score(
        y_true, y_score, sensitive_features, sample_weight, missing, both_outcomes=False
    )
    values, _ = mean_of(scores.log_loss)(scored_rows(cohort), 0)
    return by_group(cohort, {"log_loss": values}, alone=sensitive_features is None)


def log_loss_gap(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """Largest less smallest log loss of the groups: FairMedFM's ``bce_gap``.

    FairMedFM leaves out groups with one outcome only; here they have a log loss like any other.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing
        As in `brier`.

    Returns
    -------
    float

    Raises
    ------
    DataError
        Also if there is only one group.

    Examples
    --------
    >>> value = log_loss_gap([0, 1, 0, 1], [0.5, 0.5, 0.0, 1.0], sensitive_features=list("aabb"))
    >>> round(value, 3)
    0.693
    """
    cohort = read_score(
        y_true, y_score, sensitive_features, sample_weight, missing, both_outcomes=False
    )
    values, _ = mean_of(scores.log_loss)(scored_rows(cohort), 0)
    return gap_of(cohort, values, "log loss")


def ece(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any = None,
    bins: int = 10,
    range: str = "unit",
    debias: bool = False,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float | pd.DataFrame:
    """Expected calibration error: distance of score and event rate, over bins of the score.

    It is a sum of absolute values and so positive for a perfectly calibrated score too: about 0.06
    with 300 rows and ten bins, 0.28 with 12. ``expected_if_calibrated`` in the frame says how much
    of it is that.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing
        As in `brier`.
    bins : int, default 10
    range : {"unit", "group", "quantile"}, default "unit"
        Bins of equal width over [0, 1], closed at the left, as in TrustLens; of equal width over
        the range of each group's own scores, closed at the right, as in FairMedFM; or at each
        group's own quantiles.
    debias : bool, default False
        Take off the bias: of a bin's absolute gap as if normal, with the gap itself put at the root
        of its square less its variance. The result is not below 0 and still a little too large for
        a perfectly calibrated score.

    Returns
    -------
    float or pandas.DataFrame
        With sensitive features as `brier`, with columns ``ece`` and ``expected_if_calibrated``.

    Raises
    ------
    ValueError
        If an option has no such value.

    References
    ----------
    Kumar A, Liang P, Ma T (2019). Verified uncertainty calibration. NeurIPS 32.

    Examples
    --------
    >>> ece([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75])
    0.25
    """
    cohort = read_score(
        y_true, y_score, sensitive_features, sample_weight, missing, both_outcomes=False
    )
    found = _bins(cohort, bins, range)
    K = cohort.groups.n_groups
    values = {"ece": (found.debiased if debias else found.error)[:K]}
    if sensitive_features is not None:
        values["expected_if_calibrated"] = found.if_calibrated[:K]
    return by_group(cohort, values, alone=sensitive_features is None)


def ece_gap(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any,
    bins: int = 10,
    range: str = "unit",
    debias: bool = False,
    sample_weight: Any = None,
    missing: str = "raise",
) -> float:
    """Largest less smallest expected calibration error of the groups: FairMedFM's ``ece_gap``.

    Small groups have larger errors by chance, so that it measures their size more than anything
    else; ``debias=True`` helps, ``cfair.Audit.performance().gaps("ece")`` says what to expect.

    Parameters
    ----------
    y_true, y_score, sensitive_features, bins, range, debias, sample_weight, missing
        As in `ece`. FairMedFM has ``range="group"`` and leaves out groups with one outcome only.

    Returns
    -------
    float

    Raises
    ------
    DataError
        Also if there is only one group.

    Examples
    --------
    >>> ece_gap([0, 1, 1, 1], [0.5, 0.5, 0.75, 0.75], sensitive_features=list("aabb"))
    0.25
    """
    cohort = read_score(
        y_true, y_score, sensitive_features, sample_weight, missing, both_outcomes=False
    )
    found = _bins(cohort, bins, range)
    values = (found.debiased if debias else found.error)[: cohort.groups.n_groups]
    return gap_of(cohort, values, "ECE")


def calibration(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any = None,
    clip: float | None = None,
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """Calibration in numbers: O/E, calibration in the large, intercept and slope.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing
        As in `brier`.
    clip : float, optional
        Scores are moved into ``[clip, 1 - clip]`` before their logit is taken. By default none is,
        and a group with a score of exactly 0 or 1 has neither intercept nor slope.

    Returns
    -------
    pandas.DataFrame
        A row per group (one without groups): ``n``, ``events``, ``non_events``; ``mean_score``,
        ``oe_ratio`` (events over the sum of scores); ``in_the_large`` (intercept of the logistic
        recalibration with slope 1; 0 is perfect), ``intercept`` and ``slope`` (0 and 1); ``note``.

    References
    ----------
    Van Calster B et al. (2016). A calibration hierarchy for risk models was defined: from utopia to
    empirical data. Journal of Clinical Epidemiology 74, 167-176.

    Examples
    --------
    >>> y, score = [0, 0, 1, 0, 1, 1], [0.2, 0.2, 0.2, 0.6, 0.6, 0.6]
    >>> calibration(y, score)[["oe_ratio", "in_the_large", "slope"]].round(3).values.tolist()
    [[1.25, 0.49, 0.774]]
    """
    cohort = read_score(y_true, y_score, sensitive_features, sample_weight, missing)
    rows, K = scored_rows(cohort), cohort.groups.n_groups
    fit = recalibrate(rows, check_clip(clip))
    values = {
        "mean_score": mean_of(lambda y, p: p)(rows, 0)[0],
        "oe_ratio": observed_over_expected(rows, 0)[0],
        "in_the_large": fit.in_the_large.estimate[:K],
        "intercept": fit.intercept.estimate[:K],
        "slope": fit.slope.estimate[:K],
    }
    notes = list(fit.reasons[1][:K])
    frame: pd.DataFrame = by_group(
        cohort, values, both=True, alone=sensitive_features is None, notes=notes
    )
    return frame


def calibration_curve(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any = None,
    bins: int = 10,
    range: str = "quantile",
    level: float = 0.95,
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """Event rates in bins of the score, with Wilson's intervals.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing
        As in `brier`.
    bins : int, default 10
    range : {"quantile", "unit", "group"}, default "quantile"
        As in `ece`.
    level : float, default 0.95

    Returns
    -------
    pandas.DataFrame
        ``group`` (if there are any), ``bin, n, events, mean_score, event_rate, ci_low, ci_high``, a
        row per bin that is not empty.

    Examples
    --------
    >>> calibration_curve([0, 1, 1, 1], [0.2, 0.2, 0.7, 0.7], bins=2)[["mean_score", "event_rate"]]
       mean_score  event_rate
    0         0.2         0.5
    1         0.7         1.0
    """
    cohort = read_score(
        y_true, y_score, sensitive_features, sample_weight, missing, both_outcomes=False
    )
    found = _bins(cohort, bins, range).select(np.arange(cohort.groups.n_groups))
    rates, sizes = found.rate.ravel(), found.kish.ravel()
    low, high = wilson_interval(rates, sizes, check_level(level), max_df=NORMAL)
    some = np.nonzero(found.n > 0)
    columns = {
        "bin": some[1],
        "n": found.n[some].astype(int),
        "events": found.events[some].astype(int),
        "mean_score": found.score[some],
        "event_rate": found.rate[some],
        "ci_low": low.reshape(found.rate.shape)[some],
        "ci_high": high.reshape(found.rate.shape)[some],
    }
    return curve_frame(cohort, some[0], columns, alone=sensitive_features is None)


def _bins(cohort: Cohort, bins: int, bin_range: str) -> Bins:
    check_option("range", bin_range, BIN_RANGES)
    return calibration_bins(scored_rows(cohort), check_bins(bins), bin_range)
