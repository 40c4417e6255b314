"""Published figures of equivalence tests and of sample sizes to find a gap, digit by digit.

Cancers 2026, 18, 3514 (two one-sided tests; what its text says, and the figures behind it) and
Singh et al. 2023, arXiv:2312.04745 (detecting a gap); and the simulation of equivalence_figures.py
in a smaller form.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import cfair
from cfair.equivalence.detection import gap_total, pair_variance, patient_variance
from validation.equivalence_figures import (
    BASE,
    COLORECTAL,
    EGFR,
    POWER,
    SIZE,
    figures,
    simulate,
    table_2,
    table_3,
)
from validation.ledger import check, compare

NAME = "equivalence: "
#: Smallest N for a power of 0.8 in the base scenario: what is changed, metric, N.
SIZES = (
    ({"share": 0.1}, "sensitivity", 2548),
    ({"share": 0.25}, "sensitivity", 1224),
    ({"share": 0.5}, "sensitivity", 918),
    ({"share": 0.1}, "ppv", 5096),
    ({"share": 0.25}, "ppv", 2447),
    ({"share": 0.5}, "ppv", 1835),
    ({}, "specificity", 408),
    ({}, "npv", 164),
    ({"prevalence": 0.01}, "sensitivity", 30576),
    ({"prevalence": 0.1}, "sensitivity", 3058),
    ({"prevalence": 0.5}, "sensitivity", 612),
    ({"prevalence": 0.01}, "specificity", 309),
    ({"prevalence": 0.5}, "specificity", 612),
    ({}, "fnr", 11008),
    ({}, "fpr", 3670),
    ({}, "fdr", 2447),
    ({}, "for", 13209),
    ({"contrast": "odds_ratio"}, "sensitivity", 19569),
    ({"contrast": "odds_ratio"}, "fnr", 19569),
)
#: Power in the two examples, to all digits that separate code gave.
COLORECTAL_POWER = (0.9999999999972766, 0.9953908201674708, 0.6190312761201919, 1, 0, 1, 1, 0)
EGFR_POWER = (0.5141660777209813, 1, 0.9993250225513985, 0.9999999992032493, 0, 0, 0, 0)


@pytest.mark.parametrize(("changed", "metric", "n"), SIZES)
def test_smallest_n(changed, metric, n):
    arguments = {**BASE, **changed}
    found = cfair.equivalence_sample_size(metric, **arguments)
    compare(NAME + "smallest N", found.values, n, 0)
    fewer = cfair.equivalence_power(metric, n=n - 1, **arguments).values
    check(NAME + "one patient fewer is too few", fewer < 0.8, f"{metric} {changed}: {fewer}")


def test_what_the_text_rounds_to():
    # "around 1200", "fewer than 200" and the like, read off curves, are within 2.5%
    printed = {"sensitivity": (2600, 1200, 900), "ppv": (5100, 2500, 1800)}
    for metric, numbers in printed.items():
        found = cfair.equivalence_sample_size(metric, **{**BASE, "share": [0.1, 0.25, 0.5]}).values
        compare(NAME + "N in the text, relative", found / np.array(numbers), np.ones(3), 0.025)
    by_prevalence = cfair.equivalence_sample_size(
        "sensitivity", **{**BASE, "prevalence": [0.01, 0.1, 0.25, 0.5]}
    ).values
    compare(
        NAME + "N in the text, relative",
        by_prevalence / np.array([30700, 3100, 1200, 600]), np.ones(4), 0.025,
    )  # fmt: skip
    check(
        NAME + "NPV needs fewer than 200",
        cfair.equivalence_sample_size("npv", **BASE).values < 200, "NPV",
    )  # fmt: skip


def test_colorectal_example():
    power = cfair.equivalence_power(n=4230, **COLORECTAL).values
    compare(NAME + "power, colorectal", power, COLORECTAL_POWER, 1e-12)
    low, high = cfair.equivalence_margin(
        ["sensitivity", "specificity"], n=4230, **COLORECTAL, power=0.9
    ).values
    compare(
        NAME + "margins, colorectal", np.array([low, high]).T,
        [[0.9185119334835299, 1.0887174826432795], [0.8488018381862248, 1.1781312846080367]], 1e-9,
    )  # fmt: skip
    compare(
        NAME + "margins as printed", np.array([low, high]).T,
        [[0.9185, 1.0887], [0.8488, 1.1781]], 5e-5,
    )  # fmt: skip


def test_egfr_example():
    found = cfair.equivalence_power(n=1465, **EGFR).frame
    compare(NAME + "power, EGFR", found["power"], EGFR_POWER, 1e-12)
    least = found.set_index("metric")["least_cell"]
    compare(NAME + "expected cells, EGFR", least[["tpr", "tnr"]], [3.5745999999999998, 0.6702375],
            1e-12)  # fmt: skip
    positives = found.set_index("metric").loc["tpr", "size"]
    compare(NAME + "expected cells, EGFR", positives, 22.34125, 1e-12)
    check(
        NAME + "the rule of five fails in the paper's own example",
        found["note"].str.contains("fewer than 5").all(), str(found["note"].tolist()),
    )  # fmt: skip


def test_impossibility():
    alone = (
        cfair.equivalence_plan(**{**COLORECTAL, "prevalence": 0.131}, reference_prevalence=0.095)
        .prevalence_alone.set_index("metric")
    )  # fmt: skip
    figures_ = alone.loc[["ppv", "for"], ["rate", "reference_rate", "value"]].to_numpy(float)
    expected = [
        [0.1666104150545778, 0.12220048289068353, 1.3634186307072282],
        [0.03527064308159844, 0.024826376458795485, 1.4206923487258554],
    ]
    compare(NAME + "impossibility", figures_, expected, 1e-12)
    printed = [[0.1666, 0.1222, 1.363], [0.0353, 0.0248, 1.421]]
    compare(NAME + "impossibility as printed", figures_, printed, 5e-4)
    check(NAME + "outside with any N", not alone.loc[["ppv", "for"], "inside"].any(), "inside")


def test_tables_and_figures_are_made_of_these():
    table = table_2().set_index("metric")
    expected = {"tpr": (1224, 19569), "fnr": (11008, 19569)}
    for metric, (ratio, odds) in expected.items():
        compare(NAME + "table 2", table.loc[metric, ["n_ratio", "n_odds_ratio"]], [ratio, odds], 0)
    ranges = table.loc[
        ["tpr", "fnr"], ["ratio_low", "ratio_high", "odds_ratio_low", "odds_ratio_high"]
    ].to_numpy(float)
    compare(NAME + "rates within the margin", ranges[:, :2], [[0.6, 0.9375], [0.2, 0.3125]], 1e-12)
    compare(NAME + "rates within the margin", ranges[0, 2:],
            [0.7058823529411765, 0.7894736842105263], 1e-12)  # fmt: skip
    first = table_3().iloc[0]
    compare(NAME + "table 3", first[["rate", "reference_rate"]].astype(float),
            [0.1666104150545778, 0.12220048289068353], 1e-12)  # fmt: skip
    for name, results in figures().items():
        for result in results:
            if result.question == "power":
                monotone = (np.diff(result.values, axis=-1) >= -1e-12).all()
                check(NAME + "curves rise", bool(monotone), name)


def test_power_is_the_formula_of_the_paper_as_it_is_printed_there():
    n = np.array([200, 500, 1224, 3000, 10_000])
    for metric in ("tpr", "tnr", "ppv", "npv"):
        found = cfair.equivalence_power(metric, n=n, **BASE)
        frame = found.frame
        p, q = frame["rate"], frame["reference_rate"]
        se = np.sqrt((1 - p) / (frame["size"] * p) + (1 - q) / (frame["reference_size"] * q))
        z, delta = norm.ppf(0.95), np.log(p / q)
        upper = norm.cdf((np.log(1.25) - delta) / se - z)
        lower = norm.cdf((delta - np.log(0.8)) / se - z)
        compare(NAME + "formula", found.values, np.maximum(upper + lower - 1, 0), 1e-12)


# -- detecting a gap ------------------------------------------------------------------------------

GAP = "gap: "
RATES, PREVALENCE = [0.683460, 0.789375], [0.3478, 0.4404]


def test_gap_in_sensitivity():
    def n(allocation):
        return cfair.gap_sample_size(
            "sensitivity", sensitivity=RATES, prevalence=PREVALENCE, allocation=allocation
        ).n

    compare(GAP + "N, optimal and equal", [n("optimal"), n("equal")], [1379, 1400], 0)
    # The share is printed as 0.0659; the N printed is met at its lower limit of rounding.
    compare(GAP + "N, share of 0.06585", n([0.06585, 1 - 0.06585]), 6893, 0)
    compare(GAP + "N, share of 0.0659 as rounded", n([0.0659, 1 - 0.0659]), 6893, 5.5)


@pytest.mark.parametrize(
    ("gap", "spread", "printed", "rounding"),
    [
        # (s1 + s0)^2 has the digits that are printed; N is rounded, not up
        (0.092636, 0.934573, 855, 0.5),
        (0.032381, 0.873591, 6539, 0.5),
        # 1.958 may be 1.9585, which is 1.1 more, and each group is rounded up
        (0.060340, 1.958, 4222, 1.1),
    ],
)
def test_gap_from_the_spread(gap, spread, printed, rounding):
    compare(GAP + "N from the spread", float(gap_total(gap, spread)), printed, rounding)


def test_per_patient_variance_and_allocation():
    v = patient_variance(RATES, PREVALENCE)
    part = np.sqrt(v) / np.sqrt(v).sum()
    variance = pair_variance(v, part, np.array([[0, 1]]))
    compare(GAP + "the optimum is (s1 + s0)^2", variance[0], np.sqrt(v).sum() ** 2, 1e-12)
    design = cfair.gap_sample_size("sensitivity", sensitivity=RATES, prevalence=PREVALENCE)
    compare(GAP + "allocation", design.groups["allocation"], part, 1e-12)


# -- simulation, smaller --------------------------------------------------------------------------


ENOUGH = 16  # the first cases of POWER expect five or more in every cell


@pytest.mark.parametrize("k", range(ENOUGH))
def test_simulated_power_of_the_score_test_is_that_of_its_formula(k):
    row = simulate(POWER[k], 4000, 100 + k)
    assert row["least_cell"] >= 5
    p = row["formula, score"]
    error = 3 * np.sqrt(p * (1 - p) / 4000)
    compare(NAME + "simulated power, score", row["score"], p, error, row["case"])


# Wald's formula is a first-order one: with cells of a few dozen (case 2, 29 in the least) it is
# 0.022 off the Wald test in 10,000 draws, which is no error of the simulation.
@pytest.mark.parametrize("k", [k for k in range(ENOUGH) if k != 2])
def test_simulated_power_of_the_wald_test_is_that_of_its_formula(k):
    row = simulate(POWER[k], 4000, 100 + k)
    p = row["formula, wald"]
    error = 3 * np.sqrt(p * (1 - p) / 4000)
    compare(NAME + "simulated power, Wald", row["wald"], p, error, row["case"])


def test_with_small_cells_the_formula_of_the_score_test_stays_near():
    for k in range(ENOUGH, len(POWER)):
        row = simulate(POWER[k], 4000, 100 + k)
        assert row["least_cell"] < 5
        off = abs(row["score"] - row["formula, score"])
        check(NAME + "score power, small cells", off < 0.08, f"{row['case']}: {off:.3f}")


@pytest.mark.parametrize("k", range(len(SIZE)))
def test_simulated_size_of_the_score_test(k):
    row = simulate(SIZE[k], 4000, 200 + k)
    error = 3 * np.sqrt(0.05 * 0.95 / 4000)
    what = f"{row['case']}, {row['metric']}: {row['score']}"
    check(NAME + "size of the score test", row["score"] <= 0.05 + error, what)


def test_where_the_rule_of_five_fails_wald_is_liberal_and_the_score_test_is_not():
    case = next(c for c in SIZE if c.metric == "tnr" and c.n == 300)
    row = simulate(case, 4000, 7)
    check(NAME + "Wald is liberal in small cells", row["wald"] > 0.1, str(row["wald"]))
    check(NAME + "the score test is not", row["score"] <= 0.06, str(row["score"]))
