"""Simulated cohorts, and the counterfactual error rates they truly have."""

from __future__ import annotations

from itertools import combinations
from numbers import Integral

import numpy as np
import pandas as pd

from cfair.datasets.designs import get_design
from cfair.datasets.recipe import Recipe
from cfair.errors import DataError


def simulate_cohort(
    n: int,
    *,
    seed: int | np.random.SeedSequence | np.random.Generator,
    design: str | Recipe = "clinical",
) -> pd.DataFrame:
    """Simulate a cohort whose counterfactual error rates are known.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, numpy.random.SeedSequence or numpy.random.Generator
        Source of randomness; the same int gives the same cohort. A Generator is advanced.
    design : str or Design
        Name of a design (below), or a `Design` of your own.

    Returns
    -------
    pandas.DataFrame
        The clinical columns of `load_cohort` for "clinical"; for the others outcome `y`, `score`,
        its flag `s` = 1{score >= 0.5}, treatment `d`, attributes `a1`, `a2` (text) and covariates
        `x1` to `x4` ("fair-score": one attribute `a`, one covariate `x`).
        The last two columns are the potential outcomes, named after the outcome:
        `readmitted_untreated` and `readmitted_treated`, or `y_untreated` and `y_treated`. They are
        there to check an analysis against. No study sees both: never use them as covariates.

    Notes
    -----
    ========================= ==========================================================
    design                    what it is for
    ========================= ==========================================================
    "clinical"                six groups of unequal rates in clinical dress; treatment
                              follows the risk score, age, blood pressure, sex x race
    "unequal"                 four groups, the smallest 10 %, rates from 0.12 to 0.40
    "fair"                    all rates 0.3, but unequal prevalence and covariates
    "low"                     rates from 0.04 to 0.10
    "six-groups"              six groups, the smallest 4 %
    "treatment-by-group"      "unequal", treatment depends on the group as well
    "fair-treatment-by-group" "fair", treatment depends on the group as well
    "exchangeable"            all rates 0.3 and groups alike in everything but size
    "fair-six-groups"         six groups, all rates 0.3
    "known-rates"             binary prediction, after Wastvedt et al. (2023)
    "fair-score"              fair score, unequal treatment: Coston et al. (2020)
    ========================= ==========================================================

    In all but the last two, treatment among those alike in (score, covariates, group) is exactly
    logistic, and so is the outcome among the untreated, given the covariates and a free intercept
    per group and flag (`y ~ a1 * a2 * s + x1 + x2 + x3 + x4`). Treatment follows the flag `s`
    rather than the score in all but "clinical" and "fair-score".

    Examples
    --------
    >>> from cfair.datasets import simulate_cohort
    >>> cohort = simulate_cohort(1_000, seed=2026, design="unequal")
    >>> cohort.shape
    (1000, 12)
    >>> bool((cohort["s"] == (cohort["score"] >= 0.5)).all())
    True
    """
    recipe = get_design(design)
    if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
        raise DataError(f"n must be a whole number of rows, 1 or more, but is {n!r}.")
    return recipe.draw(int(n), np.random.default_rng(seed))


def true_rates(design: str | Recipe = "clinical") -> pd.DataFrame:
    """Counterfactual error rates that a design truly has, exactly.

    Parameters
    ----------
    design : str or Design
        As in `simulate_cohort`.

    Returns
    -------
    pandas.DataFrame
        A row per group, in the order of an audit: the attributes, `cfpr` = P(S = 1 | Y0 = 0),
        `cfnr` = P(S = 0 | Y0 = 1), the group's `share` of the cohort, and its `prevalence`
        P(Y0 = 1), where Y0 is the outcome without treatment and S = 1{score >= 0.5}.

    Examples
    --------
    >>> from cfair.datasets import true_rates
    >>> true_rates("known-rates").round(4)
      a1 a2  cfpr  cfnr  share  prevalence
    0  0  0  0.10  0.20    0.4      0.5000
    1  0  1  0.20  0.30    0.2      0.4008
    2  1  0  0.15  0.25    0.2      0.3083
    3  1  1  0.25  0.35    0.2      0.1617
    """
    return get_design(design).truth()


def true_disparities(design: str | Recipe = "clinical") -> pd.DataFrame:
    """Summaries of the true absolute differences over all pairs of groups.

    Parameters
    ----------
    design : str or Design
        As in `simulate_cohort`.

    Returns
    -------
    pandas.DataFrame
        A row per `metric` (cfpr, cfnr) and `statistic` (average, maximum, variance) with its
        `value`. The variance has the number of pairs less one as its divisor, and is NaN for a
        single pair.

    Examples
    --------
    >>> from cfair.datasets import true_disparities
    >>> true_disparities("known-rates").round(6)
      metric statistic     value
    0   cfpr   average  0.083333
    1   cfpr   maximum  0.150000
    2   cfpr  variance  0.001667
    3   cfnr   average  0.083333
    4   cfnr   maximum  0.150000
    5   cfnr  variance  0.001667
    """
    rates = true_rates(design)
    rows = []
    for metric in ("cfpr", "cfnr"):
        gaps = np.array([abs(a - b) for a, b in combinations(rates[metric], 2)])
        variance = gaps.var(ddof=1) if len(gaps) > 1 else np.nan
        rows += [
            (metric, "average", gaps.mean() if len(gaps) else np.nan),
            (metric, "maximum", gaps.max() if len(gaps) else np.nan),
            (metric, "variance", variance),
        ]
    return pd.DataFrame(rows, columns=["metric", "statistic", "value"])
