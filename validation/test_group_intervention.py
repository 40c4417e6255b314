"""Rates under an intervention on membership, on cohorts with a known effect of group.

Sixty data sets per case find a broken estimator or interval, not a slightly short one. With 300
data sets of 2000 rows the intervals of rates covered 0.952 (doubly robust), 0.952 (single robust),
0.953 (outcome model wrong) and 0.953 (membership wrong).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

import cfair
from cfair.datasets import GroupEffect, simulate_cohort, true_rates
from validation.ledger import check, compare, quiet

DATASETS, ROWS = 60, 800
DESIGN = GroupEffect()
FAIR = GroupEffect(outcome=(-0.6,) * 4, score=(-0.2,) * 4)
RIGHT = {"outcome_model": "y ~ x1 + x2", "membership": "~ x1 + x2"}
CASES = {
    "doubly robust": RIGHT,
    "single robust": {**RIGHT, "estimator": "sr"},
    "outcome wrong": {**RIGHT, "outcome_model": "y ~ 1"},
    "membership wrong": {**RIGHT, "membership": "~ 1"},
}
COVERAGE = "group intervention: coverage"
# One in a thousand right procedures would fall outside.
LOWEST = float(binom.ppf(5e-4, DATASETS, 0.95)) / DATASETS
HIGHEST_SIZE = float(binom.ppf(1 - 5e-4, DATASETS, 0.05)) / DATASETS


def analysed(design, seed, rows=ROWS, **options):
    frame = simulate_cohort(rows, seed=seed, design=design)
    audit = cfair.Audit(frame, outcome="y", score="score", cutoff=0.5, groups=["a1", "a2"])
    with quiet():
        return audit.group_intervention(scores=design.scores_under(frame), **options)


def truth(design):
    rates = true_rates(design)
    return np.concatenate([rates["cfpr"], rates["cfnr"]])


@cache
def found(case):
    """Estimates, standard errors and hits, (data sets, 2K) each."""
    target, rows = truth(DESIGN), []
    for seed in range(DATASETS):
        rates = analysed(DESIGN, 1000 + seed, **CASES[case]).rates.iloc[: len(target)]
        hit = (rates["ci_low"] <= target) & (target <= rates["ci_high"])
        rows.append([rates["estimate"], rates["se"], hit])
    return np.array(rows, dtype=float).transpose(1, 0, 2)


@pytest.mark.parametrize("case", CASES)
def test_coverage(case):
    hit = found(case)[2]
    compare(COVERAGE, hit.mean(), 0.95, 0.03, case)
    # the lowest of eight: twice the allowance
    check(COVERAGE, hit.mean(axis=0).min() >= LOWEST - 0.04, case)


@pytest.mark.parametrize("case", CASES)
def test_bias_and_standard_errors(case):
    section = "group intervention: bias and standard errors"
    estimate, se, _ = found(case)
    compare(section, estimate.mean(axis=0), truth(DESIGN), 0.035, f"{case}, bias")
    compare(section, (se.mean(axis=0) / estimate.std(axis=0)).mean(), 1.0, 0.12, f"{case}, se/sd")


def test_single_robust_rates_need_the_outcome_model():
    wrong = analysed(DESIGN, 5, 20_000, outcome_model="y ~ 1", estimator="sr")
    error = np.abs(wrong.rates["estimate"].to_numpy()[:8] - truth(DESIGN)).max()
    check("group intervention: bias and standard errors", error > 0.1, "single robust, wrong")


def test_size_where_group_matters_to_nothing_but_the_covariates():
    p = [
        analysed(FAIR, 3000 + seed, **RIGHT).test_equal()["p_value"][:2] for seed in range(DATASETS)
    ]
    for m, metric in enumerate(("cfpr", "cfnr")):
        size = np.mean(np.array(p)[:, m] < 0.05)
        check("group intervention: tests", size <= HIGHEST_SIZE, f"size, {metric}")
        compare("group intervention: truth", np.ptp(true_rates(FAIR)[metric]), 0.0, 1e-12, metric)


def test_bootstrap_against_influence_functions():
    result = analysed(DESIGN, 7, 2000, n_boot=300, **RIGHT).rates.iloc[:8]
    compare("group intervention: bootstrap", result["boot_se"] / result["se"], np.ones(8), 0.2)
