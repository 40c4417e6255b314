"""Published figures and designs with known truth, against cfair's public verbs.

A simulated figure has to lie within four standard deviations of the printed one: its own standard
error by cfair, that of the printed figure where it was simulated too, and the rounding.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm

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
    "AIPW, right propensity, outcome without S": (
        (0.1004, 0.1507, 0.2001, 0.2499),
        (0.1990, 0.2493, 0.2992, 0.3469),
    ),
    "AIPW, propensity on X only, right outcome": (
        (0.1002, 0.1507, 0.2002, 0.2499),
        (0.1990, 0.2491, 0.2994, 0.3468),
    ),
    "AIPW, both wrong": ((0.1347, 0.1212, 0.1966, 0.2263), (0.2717, 0.2163, 0.3164, 0.2386)),
    "observed": ((0.1594, 0.1647, 0.2224, 0.2537), (0.1951, 0.2453, 0.2939, 0.3420)),
    "untreated only": ((0.1181, 0.1652, 0.2242, 0.2628), (0.1644, 0.2224, 0.2613, 0.3243)),
}
WITHOUT_S = "a1 * a2 + x1 + x2 + x3 + x4"
X_ONLY = "d ~ x1 + x2 + x3 + x4"
PROPENSITY = {
    "IPW, right propensity": RIGHT,
    "IPW, without S": f"d ~ {WITHOUT_S}",
    "IPW, X only": X_ONLY,
    "AIPW, right propensity, outcome without S": RIGHT,
    "AIPW, propensity on X only, right outcome": X_ONLY,
    "AIPW, both wrong": X_ONLY,
    "observed": RIGHT,
    "untreated only": None,  # a constant: every untreated row has the same weight
}
OUTCOME = {
    "AIPW, right propensity, outcome without S": f"y ~ {WITHOUT_S}",
    "AIPW, propensity on X only, right outcome": "y ~ s * a1 * a2 + x1 + x2 + x3 + x4",
    "AIPW, both wrong": f"y ~ {WITHOUT_S}",
}
GROUPS = ("0 & 0", "1 & 0", "0 & 1", "1 & 1")


@cache
def known_rates() -> pd.DataFrame:
    return simulate_cohort(N, seed=20230, design="known-rates")


def analyse(data: pd.DataFrame, propensity, groups, outcome_model=None):
    with quiet():
        audit = cfair.Audit(
            data, outcome="y", score="score", cutoff=0.5, groups=list(groups), treatment="d"
        )
        given = np.full(len(data), 0.5) if propensity is None else propensity
        return audit.counterfactual(given, outcome_model=outcome_model)


@cache
def known_rates_result(row: str):
    return analyse(known_rates(), PROPENSITY[row], ["a1", "a2"], OUTCOME.get(row))


def rates_of(result, metric: str, groups) -> tuple[np.ndarray, np.ndarray]:
    part = result.rates[result.rates["metric"] == metric].set_index("group").loc[list(groups)]
    return part["estimate"].to_numpy(), part["se"].to_numpy()


@pytest.mark.parametrize("row", PRINTED)
def test_known_rates_table(row):
    result = known_rates_result(row)
    metrics = ("fpr", "fnr") if row == "observed" else ("cfpr", "cfnr")
    for metric, printed in zip(metrics, PRINTED[row], strict=True):
        estimate, se = rates_of(result, metric, GROUPS)
        z = (estimate - np.array(printed)) / np.sqrt(1.1 * se**2 + (0.00005 / np.sqrt(3)) ** 2)
        compare(f"published: known rates, {row}", z, np.zeros(4), 4.0, metric)


def test_known_rates_against_the_truth():
    section = "published: known rates, truth"
    result = known_rates_result("IPW, right propensity")
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
    for row in ("IPW, without S", "IPW, X only", "AIPW, both wrong", "observed", "untreated only"):
        metric = "fpr" if row == "observed" else "cfpr"
        estimate, se = rates_of(known_rates_result(row), metric, GROUPS)
        gap = np.abs(estimate - [truth[tuple(g.split(" & "))] for g in GROUPS]) / se
        check(f"published: known rates, {row}", gap.max() > 6, "far from the truth")


def test_a_warning_says_that_the_propensity_leaves_out_what_drives_treatment():
    """The flag says more about the outcome than the covariates do: it has to be in."""
    section = "published: known rates, advice"
    said = {row: " ".join(known_rates_result(row).notes) for row in PROPENSITY}
    check(section, "leaves out" not in said["IPW, right propensity"], "nothing left out")
    for row in ("IPW, without S", "IPW, X only"):
        check(section, "leaves out the score" in said[row], row)
    check(section, "leaves out a1, a2" in said["IPW, X only"], "the groups as well")


def test_means_and_standard_errors_at_5000_rows_match_the_printed():
    """Printed from 300 data sets (4% error, means within .003); here 20."""
    printed = {
        "cfpr": (0.0120, 0.0161, 0.0184, 0.0149),
        "cfnr": (0.0215, 0.0315, 0.0331, 0.0470),
    }
    truth = {"cfpr": (0.10, 0.15, 0.20, 0.25), "cfnr": (0.20, 0.25, 0.30, 0.35)}
    found: dict[str, list] = {metric: [] for metric in printed}
    for k in range(20):
        data = simulate_cohort(5000, seed=500 + k, design="known-rates")
        result = analyse(data, RIGHT, ["a1", "a2"])
        for metric, values in found.items():
            values.append(rates_of(result, metric, GROUPS))
    for metric, deviations in printed.items():
        estimate, se = np.mean(found[metric], axis=0)
        compare("published: known rates, deviations", se / deviations, np.ones(4), 0.16, metric)
        off = np.abs(estimate - truth[metric]) - 0.003
        z = np.maximum(off, 0) / (np.array(deviations) / np.sqrt(20))
        compare("published: known rates, means", z, np.zeros(4), 4.0, metric)


# -- a fair score that every naive analysis calls unfair -----------------------------------------

EXACT = {
    ("cfpr", "IPW"): (0.181970, 0.181970),
    ("cfnr", "IPW"): (0.5, 0.5),
    ("cfpr", "AIPW"): (0.181970, 0.181970),
    ("cfnr", "AIPW"): (0.5, 0.5),
    ("fpr", "observed"): (0.291912, 0.305157),
    ("fnr", "observed"): (0.632131, 0.664612),
    ("cfpr", "untreated only"): (0.104687, 0.061686),
    ("cfnr", "untreated only"): (0.661494, 0.755587),
}


@cache
def fair_score(kind: str):
    data = fair_cohort()
    outcome = "y ~ a + x" if kind == "AIPW" else None
    return analyse(data, None if kind == "untreated only" else "d ~ a + x", ["a"], outcome)


@cache
def fair_cohort() -> pd.DataFrame:
    return simulate_cohort(N, seed=1909, design="fair-score")


#: Mean score of those without, one less it of those with the event: generalized rates.
GENERALIZED = {
    "counterfactual": ((0.330527, 0.330527), (0.5, 0.5)),
    "observed": ((0.386601, 0.395170), (0.561447, 0.579759)),
}


def by_quadrature(a: int) -> dict[tuple[str, str], float]:
    """The printed figures from the design: X standard normal, the score P(Y0 = 1 | X)."""
    at, weight = np.polynomial.legendre.leggauss(200)
    # the call cuts at x = .5: an integral on either side
    x = np.concatenate([-4.25 + 4.75 * at, 4.75 + 4.25 * at])
    w = np.concatenate([4.75 * weight, 4.25 * weight]) * norm.pdf(x)
    mu, pi, s = expit(x - 0.5), expit(x - 0.5 + 1.6 * a), x >= 0.5
    event = {"counterfactual": mu, "observed": mu * (1 - 0.9 * pi), "untreated only": mu}
    found = {
        ("treated", "share"): np.sum(w * pi),
        ("event", "share"): np.sum(w * event["observed"]),
    }
    for kind, p in event.items():
        v = w * (1 - pi) if kind == "untreated only" else w
        for name, call in (("", s), ("generalized ", mu)):
            found[kind, f"{name}fpr"] = np.sum(v * (1 - p) * call) / np.sum(v * (1 - p))
            found[kind, f"{name}fnr"] = np.sum(v * p * (1 - call)) / np.sum(v * p)
    return found


def test_the_printed_figures_are_exact():
    """To six decimals; one, the observed FPR of A = 1, is cut instead of rounded (.3051576)."""
    section = "published: fair score, by quadrature"
    own = [by_quadrature(a) for a in (0, 1)]
    for (metric, kind), printed in EXACT.items():
        which = "counterfactual" if kind in ("IPW", "AIPW") else kind
        found = [q[which, metric.removeprefix("c")] for q in own]
        allowed = 6e-7 if (metric, kind) == ("fpr", "observed") else 5e-7
        compare(section, found, printed, allowed, f"{metric}, {kind}")
    for kind, (fpr, fnr) in GENERALIZED.items():
        compare(section, [q[kind, "generalized fpr"] for q in own], fpr, 5e-7, kind)
        compare(section, [q[kind, "generalized fnr"] for q in own], fnr, 5e-7, kind)
    compare(section, [q["treated", "share"] for q in own], (0.397973, 0.714260), 5e-7)
    compare(section, [q["event", "share"] for q in own], (0.218885, 0.111807), 5e-7)


@pytest.mark.parametrize("kind", GENERALIZED)
def test_fair_score_generalized_rates(kind):
    """By cfair's weights: a mean score has no group rate of its own."""
    data = fair_cohort()
    result = fair_score("IPW")
    w = result.weights.to_numpy() if kind == "counterfactual" else np.ones(len(data))
    y, code = data["y"].to_numpy(), result.cohort.groups.codes
    for k in range(2):
        for event, printed in enumerate(np.transpose(GENERALIZED[kind])[k]):
            rows = (code == k) & (y == event)
            score = np.abs(event - data["score"].to_numpy()[rows])
            mean = np.average(score, weights=w[rows])
            se = np.sqrt(np.sum((w[rows] * (score - mean)) ** 2)) / w[rows].sum()
            z = (mean - printed) / se
            compare(f"published: fair score, generalized, {kind}", z, 0.0, 4.0, f"{k}, {event}")


@pytest.mark.parametrize(("metric", "kind"), EXACT)
def test_fair_score(metric, kind):
    estimate, se = rates_of(fair_score(kind), metric, ("0", "1"))
    z = (estimate - np.array(EXACT[metric, kind])) / se
    compare(f"published: fair score, {kind}", z, np.zeros(2), 4.0, metric)


def test_fair_score_verdicts():
    """Weighted, the groups cannot be told apart; otherwise equality is rejected outright."""
    section = "published: fair score, verdicts"
    weighted = fair_score("IPW").test_equal().set_index("metric")
    robust = fair_score("AIPW").test_equal().set_index("metric")
    naive = fair_score("untreated only").test_equal().set_index("metric")
    for metric in ("cfpr", "cfnr"):
        check(section, weighted.loc[metric, "p_value"] > 0.001, f"{metric} equal")
        check(section, robust.loc[metric, "p_value"] > 0.001, f"{metric} equal, AIPW")
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


CELLS = ((0, 0), (0, 1), (1, 0), (1, 1))  # outcome, call: TN, FP, FN, TP


def from_counts(counts: dict[tuple[str, ...], tuple[int, ...]], attributes) -> pd.DataFrame:
    """A row per person from TN, FP, FN, TP of each group."""
    rows = [
        (*group, y, s)
        for group, by in counts.items()
        for (y, s), n in zip(CELLS, by, strict=True)
        for _ in range(n)
    ]
    return pd.DataFrame(rows, columns=[*attributes, "y", "s"])


def observed(data: pd.DataFrame, groups):
    with quiet():
        return cfair.Audit(data, outcome="y", prediction="s", groups=groups).observed()


def test_compas_two_year_counts():
    """A score of medium or high is positive. Printed in percent, two decimals."""
    section = "published: COMPAS"
    counts = {("African-American",): (990, 805, 532, 1369), ("Caucasian",): (1139, 349, 461, 505)}
    everyone = (2681, 1282, 1216, 2035)
    counts["other",] = tuple(np.subtract(everyone, np.sum(list(counts.values()), axis=0)))
    data = from_counts(counts, ["race"])
    for (y, s), n in zip(CELLS, everyone, strict=True):
        compare(section, ((data["y"] == y) & (data["s"] == s)).sum(), n, 0)
    result = observed(data, "race")
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


# Table 1 prints rates and sizes only; these counts have those rates, to two decimals, and the gaps
# of table 2, to four. People of other races are in the analysis by gender alone.
FAIRLOGUE = {
    ("Black", "F"): (49, 31, 31, 59),
    ("Black", "M"): (35, 26, 19, 50),
    ("White", "F"): (90, 35, 25, 88),
    ("White", "M"): (84, 40, 68, 55),
    ("other", "F"): (9, 7, 3, 6),
    ("other", "M"): (9, 1, 5, 10),
}
TABLE_1 = {  # n, TPR, FPR
    "race": {"Black": (300, 0.69, 0.40), "White": (485, 0.61, 0.30)},
    "gender": {"F": (433, 0.72, 0.33), "M": (402, 0.56, 0.34)},
    "both": {
        "Black & F": (170, 0.66, 0.39),
        "Black & M": (130, 0.72, 0.43),
        "White & F": (238, 0.78, 0.28),
        "White & M": (247, 0.45, 0.32),
    },
}
TABLE_2 = {  # demographic parity, FPR, TPR
    "race": (0.1038, 0.1031, 0.0796),
    "gender": (0.0692, 0.0133, 0.1661),
    "both": (0.200, 0.1462, 0.3316),
}


@pytest.mark.parametrize("by", TABLE_1)
def test_fairlogue_gaps_from_its_rates(by):
    section = "published: Fairlogue, component 1"
    data = from_counts(FAIRLOGUE, ["race", "gender"])
    if by != "gender":
        data = data[data["race"] != "other"]
    result = observed(data, ["race", "gender"] if by == "both" else by)
    table = result.rates.set_index(["metric", "group"])
    for group, (n, tpr, fpr) in TABLE_1[by].items():
        compare(section, table.loc[("tpr", group), "n"], n, 0, group)
        compare(section, table.loc[("tpr", group), "estimate"], tpr, 0.005 + 1e-9, group)
        compare(section, table.loc[("fpr", group), "estimate"], fpr, 0.005 + 1e-9, group)
    gaps = result.disparities.set_index(["metric", "statistic"])["estimate"]
    for metric, gap in zip(("selection_rate", "fpr", "tpr"), TABLE_2[by], strict=True):
        rounding = 0.0005 if gap == 0.200 else 0.00005
        compare(section, gaps[metric, "maximum"], gap, rounding + 1e-9, metric)
