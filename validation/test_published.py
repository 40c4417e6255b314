"""Published figures and designs with known truth, against cfair's public verbs.

A simulated figure has to lie within four standard deviations of the printed one: its own standard
error by cfair, that of the printed figure where it was simulated too, and the rounding.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import cfair
from cfair.datasets import simulate_cohort, true_disparities, true_rates
from validation.ledger import check, compare, quiet

N = 200_000
RIGHT = "d ~ a1 * a2 + s + x1 + x2 + x3 + x4"

# Groups 00, 10, 01, 11; from two million rows, so with a tenth of the variance of ours.
PRINTED = {
    "IPW, right propensity": ((0.1001, 0.1507, 0.2002, 0.2499), (0.1993, 0.2491, 0.2997, 0.3461)),
    "IPW, without S": ((0.1203, 0.1667, 0.2271, 0.2636), (0.1610, 0.2198, 0.2575, 0.3227)),
    "IPW, X only": ((0.1195, 0.1670, 0.2267, 0.2645), (0.1621, 0.2194, 0.2580, 0.3213)),
    "observed": ((0.1594, 0.1647, 0.2224, 0.2537), (0.1951, 0.2453, 0.2939, 0.3420)),
    "untreated only": ((0.1181, 0.1652, 0.2242, 0.2628), (0.1644, 0.2224, 0.2613, 0.3243)),
}
PROPENSITY = {
    "IPW, right propensity": RIGHT,
    "IPW, without S": "d ~ a1 * a2 + x1 + x2 + x3 + x4",
    "IPW, X only": "d ~ x1 + x2 + x3 + x4",
    "observed": RIGHT,
    "untreated only": None,  # a constant: every untreated row has the same weight
}
GROUPS = ("0 & 0", "1 & 0", "0 & 1", "1 & 1")


@cache
def known_rates() -> pd.DataFrame:
    return simulate_cohort(N, seed=20230, design="known-rates")


def analyse(data: pd.DataFrame, propensity, groups):
    with quiet():
        audit = cfair.Audit(
            data, outcome="y", score="score", cutoff=0.5, groups=list(groups), treatment="d"
        )
        return audit.counterfactual(np.full(len(data), 0.5) if propensity is None else propensity)


def rates_of(result, metric: str, groups) -> tuple[np.ndarray, np.ndarray]:
    part = result.rates[result.rates["metric"] == metric].set_index("group").loc[list(groups)]
    return part["estimate"].to_numpy(), part["se"].to_numpy()


@pytest.mark.parametrize("row", PRINTED)
def test_known_rates_table(row):
    result = analyse(known_rates(), PROPENSITY[row], ["a1", "a2"])
    metrics = ("fpr", "fnr") if row == "observed" else ("cfpr", "cfnr")
    for metric, printed in zip(metrics, PRINTED[row], strict=True):
        estimate, se = rates_of(result, metric, GROUPS)
        z = (estimate - np.array(printed)) / np.sqrt(1.1 * se**2 + (0.00005 / np.sqrt(3)) ** 2)
        compare(f"published: known rates, {row}", z, np.zeros(4), 4.0, metric)


def test_known_rates_against_the_truth():
    section = "published: known rates, truth"
    result = analyse(known_rates(), RIGHT, ["a1", "a2"])
    truth = true_rates("known-rates")
    compare(section, truth["cfpr"], [0.10, 0.20, 0.15, 0.25], 1e-15, "order 00, 01, 10, 11")
    compare(section, truth["cfnr"], [0.20, 0.30, 0.25, 0.35], 1e-15)
    for metric in ("cfpr", "cfnr"):
        part = result.rates[result.rates["metric"] == metric]
        z = (part["estimate"].to_numpy() - truth[metric]) / part["se"].to_numpy()
        compare(section, z, np.zeros(4), 4.0, metric)
    exact = true_disparities("known-rates").set_index(["metric", "statistic"]).iloc[:, 0]
    for metric in ("cfpr", "cfnr"):
        compare(section, exact[metric, "average"], 0.083333, 5e-7)
        compare(section, exact[metric, "maximum"], 0.15, 1e-12)
        compare(section, exact[metric, "variance"], 0.00166667, 5e-9)
        part = result.disparities[result.disparities["metric"] == metric].set_index("statistic")
        for statistic in ("average", "maximum"):
            row = part.loc[statistic]
            inside = row["ci_low"] <= exact[metric, statistic] <= row["ci_high"]
            check(section, inside, f"{metric} {statistic} in its interval")


def test_wrong_analyses_are_as_wrong_as_printed():
    """Leaving out S, or treatment altogether, moves rates by many standard errors."""
    truth = true_rates("known-rates").set_index(["a1", "a2"])["cfpr"]
    for row in ("IPW, without S", "IPW, X only", "observed", "untreated only"):
        metric = "fpr" if row == "observed" else "cfpr"
        result = analyse(known_rates(), PROPENSITY[row], ["a1", "a2"])
        estimate, se = rates_of(result, metric, GROUPS)
        gap = np.abs(estimate - [truth[tuple(g.split(" & "))] for g in GROUPS]) / se
        check(f"published: known rates, {row}", gap.max() > 6, "far from the truth")


def test_standard_errors_at_5000_rows_match_the_printed_deviations():
    """Printed from 300 data sets (4% error); here the mean of 20 standard errors."""
    printed = {
        "cfpr": (0.0120, 0.0161, 0.0184, 0.0149),
        "cfnr": (0.0215, 0.0315, 0.0331, 0.0470),
    }
    found: dict[str, list] = {metric: [] for metric in printed}
    for k in range(20):
        data = simulate_cohort(5000, seed=500 + k, design="known-rates")
        result = analyse(data, RIGHT, ["a1", "a2"])
        for metric, values in found.items():
            values.append(rates_of(result, metric, GROUPS)[1])
    for metric, deviations in printed.items():
        ratio = np.mean(found[metric], axis=0) / np.array(deviations)
        compare("published: known rates, deviations", ratio, np.ones(4), 0.16, metric)


# -- a fair score that every naive analysis calls unfair -----------------------------------------

EXACT = {
    ("cfpr", "IPW"): (0.181970, 0.181970),
    ("cfnr", "IPW"): (0.5, 0.5),
    ("fpr", "observed"): (0.291912, 0.305157),
    ("fnr", "observed"): (0.632131, 0.664612),
    ("cfpr", "untreated only"): (0.104687, 0.061686),
    ("cfnr", "untreated only"): (0.661494, 0.755587),
}


@cache
def fair_score(kind: str):
    data = simulate_cohort(N, seed=1909, design="fair-score")
    return analyse(data, None if kind == "untreated only" else "d ~ a + x", ["a"])


@pytest.mark.parametrize(("metric", "kind"), EXACT)
def test_fair_score(metric, kind):
    estimate, se = rates_of(fair_score(kind), metric, ("0", "1"))
    z = (estimate - np.array(EXACT[metric, kind])) / se
    compare(f"published: fair score, {kind}", z, np.zeros(2), 4.0, metric)


def test_fair_score_verdicts():
    """Weighted, the groups cannot be told apart; otherwise equality is rejected outright."""
    section = "published: fair score, verdicts"
    weighted = fair_score("IPW").test_equal().set_index("metric")
    naive = fair_score("untreated only").test_equal().set_index("metric")
    for metric in ("cfpr", "cfnr"):
        check(section, weighted.loc[metric, "p_value"] > 0.001, f"{metric} equal")
        check(section, naive.loc[metric, "p_value"] < 1e-6, f"{metric} untreated only differs")
    for metric in ("fpr", "fnr"):
        check(section, weighted.loc[metric, "p_value"] < 1e-4, f"{metric} observed differs")


def test_fair_score_shares():
    section = "published: fair score, shares"
    result = fair_score("IPW")
    d, code = np.asarray(result.cohort.d), result.cohort.groups.codes
    y = np.asarray(result.cohort.y)
    truth = true_rates("fair-score")
    compare(section, truth["prevalence"], [0.397973, 0.397973], 5e-7)
    compare(section, truth["cfpr"], [0.181970, 0.181970], 5e-7)
    compare(section, truth["cfnr"], [0.5, 0.5], 5e-7)
    for values, printed in ((d, (0.397973, 0.714260)), (y, (0.218885, 0.111807))):
        for k, p in enumerate(printed):
            rows = values[code == k]
            z = (rows.mean() - p) / np.sqrt(p * (1 - p) / len(rows))
            compare(section, z, 0.0, 4.0)


# -- public counts -------------------------------------------------------------------------------


def test_compas_two_year_counts():
    """TN, FP, FN, TP; a score of medium or high is positive. Printed in percent, two decimals."""
    section = "published: COMPAS"
    counts = {"African-American": (990, 805, 532, 1369), "Caucasian": (1139, 349, 461, 505)}
    everyone = (2681, 1282, 1216, 2035)
    counts["other"] = tuple(np.subtract(everyone, np.sum(list(counts.values()), axis=0)))
    cells = [(0, 0), (0, 1), (1, 0), (1, 1)]
    rows = [
        (group, y, s)
        for group, by in counts.items()
        for (y, s), n in zip(cells, by, strict=True)
        for _ in range(n)
    ]
    data = pd.DataFrame(rows, columns=["race", "recidivism", "high"])
    with quiet():
        result = cfair.Audit(
            data, outcome="recidivism", prediction="high", groups="race"
        ).observed()
    printed = {
        "fpr": (32.35, 44.85, 23.45),
        "fnr": (37.40, 27.99, 47.72),
        "ppv": (61.35, 62.97, 59.13),
    }
    for metric, values in printed.items():
        part = result.rates[result.rates["metric"] == metric].set_index("group")["estimate"]
        overall = result.overall.set_index("metric").loc[metric, "estimate"]
        found = [overall, part["African-American"], part["Caucasian"]]
        compare(section, 100 * np.array(found), values, 0.005 + 1e-9, metric)
