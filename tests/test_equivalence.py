"""Two one-sided tests: decisions, the score test, and verdicts that say no more than they may."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from scipy import stats
from scipy.special import xlogy
from statsmodels.stats import proportion as sm_proportion
from statsmodels.stats.proportion import (
    confint_proportions_2indep,
    score_test_proportions_2indep,
    tost_proportions_2indep,
)

import cfair
from cfair.equivalence.restricted import restricted_rates
from cfair.equivalence.tost import least_expected_cell, tost_counts, tost_estimates, tost_to_all
from cfair.errors import DataError, SmallGroupWarning

COMPARE = {"ratio": "ratio", "odds_ratio": "odds-ratio", "difference": "diff"}
MARGINS = {"ratio": (0.8, 1.3), "odds_ratio": (0.4, 2.2), "difference": (-0.1, 0.15)}


@st.composite
def tables(draw, least=1):
    n1, n2 = draw(st.integers(least, 3000)), draw(st.integers(least, 3000))
    return draw(st.integers(0, n1)), n1, draw(st.integers(0, n2)), n2


def several(tables):
    """Eight tables at once: limits are searched for in all of them in one go."""
    return st.lists(tables, min_size=8, max_size=8).map(np.transpose)


@pytest.mark.parametrize("contrast", COMPARE)
@pytest.mark.parametrize("method", ["score", "wald"])
@given(table=several(tables()), alpha=st.sampled_from([0.01, 0.05, 0.2]), wide=st.floats(0.05, 0.9))
@settings(max_examples=15, deadline=None)
def test_the_decision_is_the_interval_in_the_margin(contrast, method, table, alpha, wide):
    margin = (-wide, wide) if contrast == "difference" else (1 - wide, 1 / (1 - wide))
    found = tost_counts(*table, margin, contrast=contrast, alpha=alpha, method=method)
    gaps = np.abs([found.low - margin[0], found.high - margin[1]])
    clear = np.nanmin(np.append(gaps, np.ones((1, 8)), axis=0), axis=0) > 1e-9  # not touching
    inside = (found.low > margin[0]) & (found.high < margin[1])
    outside = (found.low > margin[1]) | (found.high < margin[0])
    assert (inside == (found.p_value < alpha))[clear].all()
    assert (outside == (found.p_value > 1 - alpha))[clear].all()
    if method == "score":
        assert found.reachable[clear & inside].all()
    known = clear & ~np.isnan(found.estimate) & ~np.isnan(found.low)
    estimate, low, high = found.estimate[known], found.low[known], found.high[known]
    slack = np.where(np.isfinite(estimate), 1e-9 * (1 + np.abs(estimate)), 0)
    assert ((low - slack <= estimate) & (estimate <= high + slack)).all()


@pytest.mark.parametrize("contrast", COMPARE)
@given(table=several(tables()))
@settings(max_examples=10, deadline=None)
def test_exchanging_the_groups_turns_the_contrast_round(contrast, table):
    low, high = MARGINS[contrast]
    turned = (-high, -low) if contrast == "difference" else (1 / high, 1 / low)
    one = tost_counts(*table, (low, high), contrast=contrast)
    other = tost_counts(*table[2:], *table[:2], turned, contrast=contrast)
    np.testing.assert_allclose(one.p_lower, other.p_upper, rtol=1e-6, atol=1e-12)
    if contrast == "difference":
        np.testing.assert_allclose(one.low, -other.high, atol=1e-9)
    else:
        inner = (one.low > 0) & (one.low < np.inf)
        np.testing.assert_allclose(one.low[inner], 1 / other.high[inner], rtol=1e-7)


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(8)
    n1, n2 = rng.integers(5, 400, (2, 200)).astype(float)
    x1 = np.clip(rng.binomial(n1.astype(int), rng.random(200)), 1, n1 - 1)
    x2 = np.clip(rng.binomial(n2.astype(int), rng.random(200)), 1, n2 - 1)
    return x1, n1, x2, n2


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("contrast", ["ratio", "odds_ratio"])
def test_score_tests_and_limits_of_ratios_are_those_of_statsmodels(many, contrast):
    margin = MARGINS[contrast]
    found = tost_counts(*many, margin, contrast=contrast)
    for value, side, p in zip(margin, ("larger", "smaller"), (found.p_lower, found.p_upper),
                              strict=True):  # fmt: skip
        theirs = score_test_proportions_2indep(
            *many, value=value, compare=COMPARE[contrast], alternative=side, return_results=False
        )[1]
        np.testing.assert_allclose(p, theirs, rtol=1e-9, atol=1e-14)
    for k in range(0, 200, 8):
        limits = confint_proportions_2indep(
            *(v[k] for v in many), compare=COMPARE[contrast], method="score", alpha=0.1
        )
        np.testing.assert_allclose([found.low[k], found.high[k]], limits, rtol=1e-7)


def test_the_restricted_difference_is_the_most_likely_one(many):
    x1, n1, x2, n2 = many
    rng = np.random.default_rng(2)
    d = rng.uniform(-0.9, 0.9, len(x1))
    p2 = restricted_rates(*many, d, "difference")[1]
    low, high = np.maximum(0, -d), np.minimum(1, 1 - d)

    def likelihood(p):
        q = np.clip(p + d, 0, 1)
        return xlogy(x1, q) + xlogy(n1 - x1, 1 - q) + xlogy(x2, p) + xlogy(n2 - x2, 1 - p)

    at = likelihood(p2)
    with np.errstate(divide="ignore"):
        for share in np.linspace(0, 1, 501):
            assert (likelihood(low + share * (high - low)) <= at + 1e-9).all()


def test_statsmodels_still_errs_where_we_do_not_follow_it():
    # when one of these fails, statsmodels is mended and may take the place of our own test
    wrong = score_test_proportions_2indep(12.0, 97.0, 30.0, 34.0, value=-0.85, compare="diff")
    assert wrong.prop1_null < 0  # no probability
    low, _ = confint_proportions_2indep(5, 5, 62, 131, compare="ratio", method="score", alpha=0.1)
    p = score_test_proportions_2indep(5.0, 5.0, 62.0, 131.0, value=float(np.real(low)),
                                      compare="ratio", return_results=False)[1]  # fmt: skip
    assert abs(p - 0.1) > 0.05  # its own test says otherwise at its limit
    ours = tost_counts(5, 5, 62, 131).low
    p = score_test_proportions_2indep(5.0, 5.0, 62.0, 131.0, value=float(ours),
                                      compare="ratio", return_results=False)[1]  # fmt: skip
    assert p == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize(
    ("contrast", "method"), [("ratio", "log"), ("odds_ratio", "logit"), ("difference", "wald")]
)
def test_wald_is_that_of_statsmodels(many, contrast, method):
    margin = MARGINS[contrast]
    found = tost_counts(*many, margin, contrast=contrast, method="wald")
    theirs = tost_proportions_2indep(*many, *margin, method=method, compare=COMPARE[contrast])
    np.testing.assert_allclose(found.p_value, theirs.pvalue, rtol=1e-9, atol=1e-14)
    low, high = confint_proportions_2indep(
        *many, method=method, compare=COMPARE[contrast], alpha=0.1
    )
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-9)


def test_empty_cells_give_no_certainty():
    nothing = tost_counts([0, 0, 5], [10, 0, 9], [0, 3, 0], [20, 9, 0])
    assert np.isnan(nothing.p_value).all()
    assert np.isnan(nothing.low).all()
    full = tost_counts(3, 3, 4, 4)
    assert full.p_value > 0.05
    assert full.high - full.low > 0.5
    wald = tost_counts(3, 3, 4, 4, method="wald")
    assert wald.high > wald.low  # no variance of 0
    none = tost_counts(30, 100, 0, 200)
    assert none.estimate == none.high == np.inf
    assert 1 < none.low < np.inf
    # both rates 0: the difference is known to be small all the same
    zero = tost_counts(0, 500, 0, 500, (-0.05, 0.05), contrast="difference")
    assert zero.p_value < 0.05


def test_reach_is_that_of_every_split():
    rng = np.random.default_rng(5)
    for contrast in COMPARE:
        for _ in range(25):
            n1, n2 = rng.integers(3, 60, 2)
            total = int(rng.integers(1, n1 + n2))
            x1 = np.arange(max(0, total - n2), min(n1, total) + 1)
            for method in ("score", "wald"):
                every = tost_counts(
                    x1, n1, total - x1, n2, MARGINS[contrast], contrast=contrast, method=method
                )
                shown = bool((every.p_value < 0.05).any())
                assert shown == bool(every.reachable[0]), (contrast, method, n1, n2, total)


def test_wald_of_estimates_takes_covariance_and_degrees_of_freedom():
    a, b, s, t = 0.3, 0.25, 0.03, 0.02
    one = tost_estimates(*map(np.array, (a, b, s, t)), correlation=0.5, contrast="ratio")
    se = np.sqrt((s / a) ** 2 + (t / b) ** 2 - 2 * 0.5 * s * t / (a * b))
    z = stats.norm.ppf(0.95)
    assert one.high == pytest.approx(a / b * np.exp(z * se), rel=1e-12)
    assert one.p_upper == pytest.approx(stats.norm.cdf((np.log(a / b) - np.log(1.25)) / se))
    few = tost_estimates(
        *map(np.array, (a, b, s, t)), (-0.1, 0.1), df=(9.0, 14.0), contrast="difference"
    )
    nu = (s**2 + t**2) ** 2 / (s**4 / 9 + t**4 / 14)
    assert few.high == pytest.approx(a - b + stats.t.ppf(0.95, nu) * np.hypot(s, t), rel=1e-9)
    capped = tost_estimates(
        *map(np.array, (a, b, s, t)), (-0.1, 0.1), df=(9.0, 14.0), max_df=3, contrast="difference"
    )
    assert capped.high == pytest.approx(a - b + stats.t.ppf(0.95, 3) * np.hypot(s, t), rel=1e-9)


def test_expected_cells_are_those_of_the_chi_square_test():
    table = np.array([[7, 33], [50, 110]])
    expected = stats.contingency.expected_freq(table)
    assert least_expected_cell(7 / 40, 40, 50 / 160, 160) == pytest.approx(expected.min())


# -- on data --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def audit():
    return cfair.Audit(
        cfair.load_cohort(),
        outcome="readmitted",
        score="risk",
        cutoff=0.5,
        groups=["sex", "race"],
        treatment="treated",
    )


def small(cells):
    """An audit of groups with given (tn, fp, fn, tp)."""
    y, s = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    parts = [
        pd.DataFrame({"g": g, "y": np.repeat(y, n), "s": np.repeat(s, n)}) for g, n in cells.items()
    ]
    return cfair.Audit(pd.concat(parts, ignore_index=True), outcome="y", prediction="s", groups="g")


def test_counts_of_the_cohort_are_tested(audit):
    found = audit.equivalence("sensitivity", reference=("M", "White")).pairs
    rates = audit.observed().rates.query("metric == 'tpr'").set_index("group")
    assert found["reference"].unique().tolist() == ["M & White"]
    for row in found.to_dict("records"):
        assert row["n"] == rates.loc[row["group"], "denominator"]
        assert row["rate"] == pytest.approx(row["events"] / row["n"])
        test = tost_counts(row["events"], row["n"], row["events_reference"], row["n_reference"])
        assert row["p_value"] == pytest.approx(float(test.p_value), rel=1e-12)
        assert (row["ci_low"], row["ci_high"]) == (test.low, test.high)
        verdict = "equivalent" if test.p_value < 0.05 else "not enough data"
        assert row["verdict"] == verdict
        assert row["method"] == "score"
    wald = audit.equivalence("tpr", reference=("M", "White"), method="wald").pairs
    assert (wald["method"] == "wald").all()
    assert (wald["p_value"] != found["p_value"]).all()


def test_all_pairs_and_single_attributes(audit):
    assert len(audit.equivalence("fpr").pairs) == 15
    race = audit.equivalence("fpr", attribute="race", reference="White")
    assert race.pairs["group"].tolist() == ["Black", "Other"]
    alone = cfair.Audit(
        cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
    ).equivalence("fpr", reference="White")
    pd.testing.assert_frame_equal(race.pairs, alone.pairs)
    whole = audit.equivalence("fpr", attribute="race", reference="overall").pairs
    assert (whole["method"] == "score").all()  # against the other rows
    odds = audit.equivalence("fpr", attribute="race", reference="overall", contrast="odds_ratio")
    assert (odds.pairs["method"] == "wald").all()  # all rows hold those of each group


def test_all_equivalent_is_the_largest_p_value():
    audit = small({"a": (800, 200, 60, 540), "b": (790, 210, 62, 538), "c": (401, 99, 29, 271)})
    result = audit.equivalence(["tpr", "fpr"])
    for row in result.overall.to_dict("records"):
        part = result.pairs[result.pairs["metric"] == row["metric"]]
        assert row["p_value"] == part["p_value"].max()
        every = (part["verdict"] == "equivalent").all()
        assert (row["verdict"] == "all equivalent") == every
    assert result.overall["verdict"].tolist() == ["all equivalent", "not shown"]
    assert "(intersection-union)" in str(result)


def test_verdicts():
    cells = {
        "reference": (900, 100, 50, 450),
        "same": (900, 100, 50, 450),
        "apart": (900, 100, 250, 250),
        "little": (90, 10, 9, 51),
        "tiny": (9, 1, 1, 3),
        "none": (9, 1, 0, 0),
    }
    with pytest.warns(SmallGroupWarning, match="expected cell below 5"):
        result = small(cells).equivalence("tpr", reference="reference")
    found = result.pairs.set_index("group")
    assert found["verdict"].to_dict() == {
        "apart": "different",
        "little": "equivalent",
        "none": "undefined",
        "same": "equivalent",
        "tiny": "no power",
    }
    assert found.loc["none", "note"] == "no events in none"
    assert np.isnan(found.loc["none", ["estimate", "ci_low", "p_value"]].astype(float)).all()
    assert "below 5" in found.loc["tiny", "note"]
    assert not found.loc["tiny", "rule_of_five"]
    assert result.overall.loc[0, "verdict"] == "some different"
    assert np.isnan(result.overall.loc[0, "p_value"])
    assert "90%" in str(result)


def test_no_power_beside_an_interval_that_excludes_equality_is_explained():
    with pytest.warns(SmallGroupWarning, match="expected cell below 5"):
        result = small({"most": (900, 100, 50, 450), "few": (9, 1, 3, 2)}).equivalence("tpr")
    row = result.pairs.iloc[0]
    assert row["verdict"] == "no power"
    assert row["ci_low"] > 1 or row["ci_high"] < 1
    assert "not equal; whether beyond the margin is open" in row["note"]
    printed = " ".join(str(result).split())
    assert "no power is to show equivalence: no split of these events" in printed
    assert "The interval is of these data all the same, and may exclude equality." in printed


def test_equal_is_not_what_equivalent_means():
    audit = small({"a": (8000, 2000, 1000, 9000), "b": (8000, 2000, 1200, 8800)})
    row = audit.equivalence("tpr").pairs.iloc[0]
    assert row["verdict"] == "equivalent"
    assert row["note"] == "not equal, but within the margin"


def test_margins_by_metric(audit):
    result = audit.equivalence(margin={"sensitivity": (0.7, 1.4), "fpr": (0.5, 2)})
    margins = result.pairs.groupby("metric")["margin_high"].first()
    assert margins.to_dict() == {"tpr": 1.4, "fpr": 2.0}
    assert "0.7 to 1.4 (TPR)" in str(result)
    with pytest.raises(ValueError, match="margin must have a pair for each metric"):
        audit.equivalence(["tpr", "fpr"], margin={"tpr": (0.7, 1.4)})


def test_adjusted_verdicts(audit):
    plain = audit.equivalence(["tpr", "fpr"], margin=(0.75, 4 / 3)).pairs
    holm = audit.equivalence(["tpr", "fpr"], margin=(0.75, 4 / 3), adjust="holm").pairs
    assert (holm["p_adjusted"] >= plain["p_value"]).all()
    lost = (plain["verdict"] == "equivalent") & (holm["verdict"] != "equivalent")
    assert lost.any()
    assert holm.loc[lost, "note"].str.contains("not after adjustment").all()
    assert ((holm["p_adjusted"] < 0.05) == (holm["verdict"] == "equivalent")).all()


def test_counterfactual_rates_have_the_covariance_of_their_influence(audit):
    result = audit.counterfactual("treated ~ sex * race + risk + age + sbp")
    found = result.equivalence("cfpr", contrast="difference", margin=(-0.1, 0.1))
    covariance = result.covariance.loc["cfpr", "cfpr"]
    row = found.pairs.iloc[3]
    pair = [row["group"], row["reference"]]
    part = covariance.loc[pair, pair].to_numpy()
    se = np.sqrt(part[0, 0] + part[1, 1] - 2 * part[0, 1])
    half = (row["ci_high"] - row["ci_low"]) / 2
    assert stats.norm.ppf(0.95) * se <= half <= 1.03 * stats.norm.ppf(0.95) * se  # Student's
    assert found.pairs["events"].isna().all()
    assert "Wald" in str(found)
    with pytest.raises(ValueError, match="rests on weights or models"):
        result.equivalence("cfpr", method="score")
    assert (result.equivalence("fpr").pairs["method"] == "score").all()


def test_clusters_have_wald():
    data = cfair.load_cohort().assign(c=lambda d: np.arange(len(d)) % 40)
    common = {"outcome": "readmitted", "score": "risk", "cutoff": 0.5, "groups": "sex"}
    plain = cfair.Audit(data, **common).equivalence("tpr", method="wald").pairs.iloc[0]
    row = cfair.Audit(data, **common, cluster="c").equivalence("tpr").pairs.iloc[0]
    assert row["method"] == "wald"
    assert row["ci_high"] != plain["ci_high"]
    with pytest.raises(ValueError, match="rows of a cluster are not independent"):
        cfair.Audit(data, **common, cluster="c").equivalence("tpr", method="score")


def test_weighted_rates_have_the_score_test_on_effective_sizes():
    data = cfair.load_cohort().assign(w=lambda d: 1 + d["age"] % 3)
    audit = cfair.Audit(
        data, outcome="readmitted", score="risk", cutoff=0.5, groups="sex", weights="w"
    )
    row = audit.equivalence("tpr").pairs.iloc[0]
    rates = audit.observed().rates.query("metric == 'tpr'").set_index("group")
    p, size = (rates.loc[["F", "M"], c].to_numpy() for c in ("estimate", "n_effective"))
    own = tost_counts(p[0] * size[0], size[0], p[1] * size[1], size[1])
    assert row["method"] == "score"
    assert row["ci_low"] == pytest.approx(float(own.low))
    assert row["p_upper"] == pytest.approx(float(own.p_upper))
    assert pd.isna(row["events"])


@pytest.mark.parametrize(("n", "rest"), [(20, 380), (50, 950)])
def test_the_size_against_all_rows_is_near_alpha(n, rest):
    # every table of a group and the others, with the ratio to all rows at the lower margin
    overall, f = 0.9, n / (n + rest)
    p1 = 0.8 * overall
    p2 = (overall - f * p1) / (1 - f)
    x1, x2 = np.meshgrid(np.arange(n + 1), np.arange(rest + 1), indexing="ij")
    with np.errstate(divide="ignore"):  # scipy 1.10, far in the tails
        chance = stats.binom.pmf(x1, n, p1) * stats.binom.pmf(x2, rest, p2)
    likely = chance > 1e-9
    x1, x2, chance = x1[likely], x2[likely], chance[likely]
    found = tost_to_all(x1, n, x1 + x2, n + rest)
    assert 0.03 < chance[found.p_value < 0.05].sum() < 0.06
    assert found.estimate == pytest.approx((x1 / n) / ((x1 + x2) / (n + rest)))
    inside = (found.low > 0.8) & (found.high < 1.25)
    assert (inside == (found.p_value < 0.05)).mean() > 0.9999


@given(
    several(st.tuples(*[st.integers(1, 200)] * 2, *[st.integers(0, 200)] * 2)),
)
@settings(max_examples=13, deadline=None)
def test_a_difference_to_all_rows_is_a_part_of_that_to_the_others(counts):
    n1, n2, x1, x2 = counts
    x1, x2 = np.minimum(x1, n1), np.minimum(x2, n2)
    f = n1 / (n1 + n2)
    whole = tost_to_all(x1, n1, x1 + x2, n1 + n2, (-0.1, 0.1), contrast="difference")
    for k in range(8):  # each has a margin of its own
        margin = max(-0.1 / (1 - f[k]), -1), min(0.1 / (1 - f[k]), 1)
        rest = tost_counts(x1[k], n1[k], x2[k], n2[k], margin, contrast="difference")
        assert whole.p_value[k] == pytest.approx(rest.p_value)
        assert whole.low[k] == pytest.approx((1 - f[k]) * rest.low)


def test_a_level_called_overall_is_not_all_rows():
    data = cfair.load_cohort()
    roles = {"outcome": "readmitted", "score": "risk", "cutoff": 0.5, "groups": "race"}
    named = cfair.Audit(data.replace({"race": {"Other": "overall"}}), **roles)
    own = named.equivalence("tpr", reference="overall").pairs
    other = cfair.Audit(data, **roles).equivalence("tpr", reference="Other").pairs
    columns = ["method", "ci_low", "ci_high", "n_reference"]
    assert (
        own.set_index("group")
        .loc[["Black", "White"], columns]
        .equals(other.set_index("group").loc[["Black", "White"], columns])
    )


def test_that_some_differ_is_corrected_for_the_number_of_pairs(audit):
    found = audit.equivalence("fpr", margin=(0.95, 1 / 0.95))
    pairs, overall = found.pairs, found.overall.iloc[0]
    beyond = 1 - pairs[["p_lower", "p_upper"]].max(axis=1)
    assert pairs["p_beyond"].to_numpy() == pytest.approx(beyond.to_numpy())
    assert overall["p_beyond"] == pytest.approx(min(1, 15 * beyond.min()))
    assert overall["verdict"] == "some different"
    assert "(Holm)" in str(found)
    random = cfair.load_cohort().assign(site=lambda d: np.arange(len(d)) % 45)
    many = cfair.Audit(random, outcome="readmitted", score="risk", cutoff=0.5, groups="site")
    with pytest.warns(SmallGroupWarning):
        chance = many.equivalence("tpr")
    assert chance.overall.loc[0, "different"] > 0  # one pair in a hundred, by chance
    assert chance.overall.loc[0, "verdict"] == "not shown"
    with pytest.raises(ValueError, match="at most 80 pairs"):
        chance.plot()


def test_adjustment_reaches_different_and_not_the_claim_about_all(audit):
    margin = (0.9, 1 / 0.9)
    plain = audit.equivalence(["tpr", "fpr"], margin=margin)
    holm = audit.equivalence(["tpr", "fpr"], margin=margin, adjust="holm")
    counts = [(r.pairs["verdict"] == "different").sum() for r in (plain, holm)]
    assert counts[0] > counts[1] > 0
    lost = (plain.pairs["verdict"] == "different") & (holm.pairs["verdict"] != "different")
    assert holm.pairs.loc[lost, "note"].str.contains("different by itself").all()
    largest = plain.pairs.groupby("metric", sort=False)["p_value"].max()
    assert holm.overall["p_value"].to_numpy() == pytest.approx(largest.to_numpy())


def test_of_scores_the_interval_is_that_of_their_contrasts():
    data = cfair.load_cohort().iloc[:400]
    audit = cfair.Audit(data, outcome="readmitted", score="risk", cutoff=0.5, groups="race")
    result = audit.performance(level=0.9)
    found = result.equivalence("auc", contrast="difference", margin=(-0.2, 0.2), reference="White")
    other = result.contrasts("White", metrics="auc")
    for column in ("ci_low", "ci_high"):
        assert found.pairs[column].to_numpy() == pytest.approx(other[column].to_numpy())
    assert audit.performance().equivalence(contrast="difference", margin=(-0.2, 0.2)).metrics == (
        "auc",
    )


def test_wald_against_all_rows_allows_for_those_of_the_group(audit):
    row = audit.equivalence(
        "tpr", contrast="difference", margin=(-0.2, 0.2), reference="overall", method="wald"
    ).pairs.iloc[0]
    p, n, q, m = row[["rate", "n", "rate_reference", "n_reference"]].astype(float)
    shared = p * (1 - p) / m  # the covariance of a rate with that of all
    se = np.sqrt(p * (1 - p) / n + q * (1 - q) / m - 2 * shared)
    half = (row["ci_high"] - row["ci_low"]) / 2
    assert half == pytest.approx(stats.norm.ppf(0.95) * se, rel=0.01)


def test_the_factor_of_miettinen_and_nurminen_is_that_of_statsmodels():
    x1, n1, x2, n2 = 12, 30, 25, 40
    for contrast, compare, value in (("difference", "diff", 0.0), ("ratio", "ratio", 0.8)):
        margin = (value or -1e-12, 1 if contrast == "difference" else 9)
        own = tost_counts(x1, n1, x2, n2, margin, contrast=contrast)
        theirs = sm_proportion.test_proportions_2indep(
            x1, n1, x2, n2, value=value, compare=compare, method="score", correction=True,
            alternative="larger",
        )  # fmt: skip
        assert float(own.p_lower) == pytest.approx(theirs.pvalue, abs=1e-9)


def test_the_smallest_cell_is_in_the_smaller_group():
    assert least_expected_cell(0.9, 40, 0.8, 160) == least_expected_cell(0.8, 160, 0.9, 40)
    assert float(least_expected_cell(0.9, 40, 0.8, 160)) == pytest.approx(40 * (1 - 0.82))


def test_notes_say_what_was_chosen_and_what_is_not_symmetric(audit):
    usual = "\n".join(audit.equivalence("tpr").notes)
    chosen = "\n".join(audit.equivalence("tpr", margin=(0.7, 1.2)).notes)
    assert "four fifths" in usual
    assert "symmetric" not in usual
    assert "four fifths" not in chosen
    assert "symmetric" in chosen
    assert "symmetric" not in "\n".join(
        audit.equivalence("tpr", margin=(0.7, 1.2), reference=("M", "White")).notes
    )


def test_not_equal_is_said_on_either_side():
    for x in (1300, 700):
        audit = small({"a": (8000, 2000, 1000, 9000), "b": (8000, 2000, x, 10000 - x)})
        row = audit.equivalence("tpr", margin=(0.5, 2)).pairs.iloc[0]
        assert row["note"] == "not equal, but within the margin"


@pytest.mark.parametrize("metrics", [[], ["tpr", "sensitivity"], 5])
def test_metrics_that_name_none_or_one_twice_are_refused(audit, metrics):
    with pytest.raises(ValueError, match="metric"):
        audit.equivalence(metrics)


def test_one_number_is_the_margin_of_a_difference(audit):
    pair = audit.equivalence(["tpr", "fpr"], margin=(-0.1, 0.1), contrast="difference")
    for one in (0.1, np.float64(0.1), {"sensitivity": 0.1, "fpr": (-0.1, 0.1)}):
        found = audit.equivalence(["tpr", "fpr"], margin=one, contrast="difference")
        pd.testing.assert_frame_equal(found.pairs, pair.pairs)
        assert str(found) == str(pair)
    assert found.question.chosen
    again = audit.equivalence("tpr", margin=0.1, contrast="difference")
    assert again.call == "audit.equivalence(metrics='tpr', margin=0.1, contrast='difference')"


@pytest.mark.parametrize("margin", [-0.1, 0, 0.0, 1, np.nan, np.inf])
def test_one_number_that_is_no_margin_is_refused(audit, margin):
    with pytest.raises(ValueError, match="margin must lie around 0"):
        audit.equivalence("tpr", margin=margin, contrast="difference")


@pytest.mark.parametrize(("margin", "contrast"), [(1.25, "ratio"), (0.5, "odds_ratio"),
                                                  (True, "difference")])  # fmt: skip
def test_one_number_says_nothing_of_a_ratio(audit, margin, contrast):
    with pytest.raises(ValueError, match="margin must be a pair"):
        audit.equivalence("tpr", margin=margin, contrast=contrast)


def test_a_margin_given_twice_is_refused(audit):
    twice = {"sensitivity": (0.8, 1.25), "tpr": (0.7, 1.4)}
    with pytest.raises(ValueError, match="each once"):
        audit.equivalence("tpr", margin=twice)


def test_counts_that_cannot_be_are_refused():
    for x in (-3, 30):
        with pytest.raises(ValueError, match="between 0 and n"):
            tost_counts(x, 20, 5, 50)


def test_quality_of_the_score(audit):
    result = audit.performance()
    found = result.equivalence("auc", contrast="difference", margin=(-0.1, 0.1)).pairs
    theirs = result.contrasts(metrics="auc", level=0.9)
    np.testing.assert_allclose(found[["ci_low", "ci_high"]], theirs[["ci_low", "ci_high"]])
    assert found["rule_of_five"].isna().all()
    for metric, contrast in (
        ("ece", "ratio"),
        ("calibration_slope", "ratio"),
        ("auc", "odds_ratio"),
    ):
        with pytest.raises(ValueError, match=metric):
            result.equivalence(metric, contrast=contrast)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": "nothing"}, "nothing"),
        ({"metrics": "tpr", "margin": (1.1, 1.3)}, "margin must lie around 1"),
        ({"metrics": "tpr", "margin": 0.8}, "margin must be a pair"),
        ({"metrics": "tpr", "margin": ([0.8, 0.7], 1.25)}, "margin must be a pair of numbers"),
        ({"metrics": "tpr", "contrast": "difference"}, "margin has no default"),
        ({"metrics": "tpr", "contrast": "hazard"}, "contrast must be one of"),
        ({"metrics": "tpr", "alpha": 0.5}, "alpha must lie between"),
        ({"metrics": "tpr", "alpha": [0.05, 0.1]}, "alpha must be one number"),
        ({"metrics": "tpr", "method": "exact"}, "method must be one of"),
        ({"metrics": "tpr", "adjust": "max-t"}, "adjust must be one of"),
        ({"metrics": "f1", "method": "score"}, "f1 is no share of rows"),
    ],
)
def test_wrong_options_are_refused(audit, options, message):
    with pytest.raises(ValueError, match=message):
        audit.equivalence(**options)


def test_wrong_groups_are_refused(audit):
    with pytest.raises(DataError, match="not a group"):
        audit.equivalence("tpr", reference=("M", "Blue"))
    with pytest.raises(DataError, match="two groups"):
        small({"a": (9, 9, 9, 9)}).equivalence("tpr")


def test_the_record_does_not_change(audit):
    result = audit.equivalence("tpr")
    changed = result.pairs
    changed["p_value"] = 0
    assert (result.pairs["p_value"] > 0).all()
    assert str(pickle.loads(pickle.dumps(result))) == str(result)


def test_many_pairs_are_printed_in_part():
    rng = np.random.default_rng(1)
    cells = {f"g{k:02}": tuple(rng.integers(5, 90, 4)) for k in range(14)}
    with pytest.warns(SmallGroupWarning):
        result = small(cells).equivalence("tpr")
    assert len(result.pairs) == 91
    assert "51 of 91 pairs not shown" in str(result)


@pytest.mark.parametrize("contrast", COMPARE)
def test_the_diagram_shows_every_pair(contrast):
    cells = {
        "a": (900, 100, 50, 450),
        "b": (900, 100, 52, 448),
        "c": (900, 100, 400, 100),
        "d": (9, 1, 1, 4),
        "e": (9, 1, 0, 0),
    }
    margin = {"ratio": (0.8, 1.25), "odds_ratio": (0.5, 2), "difference": (-0.1, 0.1)}[contrast]
    with pytest.warns(SmallGroupWarning):
        result = small(cells).equivalence("tpr", contrast=contrast, margin=margin, reference="a")
    ax = result.plot()
    texts = [t.get_text() for t in ax.texts]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["b", "c", "d", "e"]
    assert sum("equivalent" in t for t in texts) == 1
    assert sum(t.endswith("different") for t in texts) == 1
    assert "no events in e" in texts
    assert any("90% CI" in t for t in texts)
    edges = {round(p.get_x(), 6) for p in ax.patches if p.get_height() == 1}
    assert edges == {margin[0]}
    assert (ax.get_xscale() == "log") == (contrast != "difference")
    drawn = np.concatenate([np.asarray(line.get_xdata(), float) for line in ax.lines[1:4]])
    assert result.pairs["estimate"].iloc[0] in drawn
    plt.close("all")
