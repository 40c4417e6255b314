"""What it is worth to act on a score, by group and threshold: decision curve analysis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfair.inference.performance import scored_rows
from cfair.inference.score_curves import check_thresholds
from cfair.inference.score_curves import net_benefit as net_benefit_of
from cfair.metrics.discrimination import curve_frame
from cfair.metrics.reading import read_score


def net_benefit(
    y_true: Any,
    y_score: Any,
    *,
    thresholds: ArrayLike | None = None,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    missing: str = "raise",
) -> pd.DataFrame:
    """Net benefit of calling those with ``score >= threshold``.

    True positives less false positives per person, a false positive weighed by the odds of the
    threshold, at which harm and benefit of a call are even. `cfair.Audit.performance` gives
    intervals.

    Parameters
    ----------
    y_true : (n,) array-like of 0/1 or bool
        Outcome.
    y_score : (n,) array-like in [0, 1]
        Score.
    thresholds : array-like, optional
        Risks in [0, 1); 0.01, 0.02, ..., 0.99 by default.
    sensitive_features : array-like, data frame, or mapping of name to array-like, optional
        One or more attributes; several are crossed.
    sample_weight : (n,) array-like, optional
        Sampling weights, on any scale.
    missing : {"raise", "drop", "level"}, default "raise"

    Returns
    -------
    pandas.DataFrame
        ``group`` (if there are any), ``threshold, net_benefit, standardized`` (net benefit over
        prevalence; NaN without events) and ``treat_all``, the net benefit of calling everybody;
        that of calling nobody is 0.

    Raises
    ------
    DataError
        If an array does not fit: values, length, index, missing values.
    ValueError
        If a threshold is outside [0, 1).

    References
    ----------
    Vickers AJ, Elkin EB (2006). Decision curve analysis: a novel method for evaluating prediction
    models. Medical Decision Making 26, 565-574.

    Examples
    --------
    >>> net_benefit([0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8], thresholds=[0.2])
       threshold  net_benefit  standardized  treat_all
    0        0.2       0.4375         0.875      0.375
    """
    cuts = check_thresholds(thresholds)
    cohort = read_score(
        y_true, y_score, sensitive_features, sample_weight, missing, both_outcomes=False
    )
    found = net_benefit_of(scored_rows(cohort), 0, cuts)
    K = cohort.groups.n_groups
    columns = {
        "threshold": np.tile(cuts, K),
        "net_benefit": found.benefit.ravel(),
        "standardized": found.standardized.ravel(),
        "treat_all": found.all_benefit.ravel(),
    }
    target = np.repeat(np.arange(K), len(cuts))
    return curve_frame(cohort, target, columns, alone=sensitive_features is None)
