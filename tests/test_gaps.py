"""The widest gaps of a result: which pair, what interval, what could have been found."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import power_proportions_2indep

import cfair
from cfair.errors import CutoffWarning, DataError
from cfair.results.gaps import (
    COLUMNS,
    EQUALIZED_ODDS,
    detectable_gap,
    p_heading,
    simultaneous_pairs,
)
from cfair.results.report import largest_gap_lines


@pytest.fixture(scope="module")
def result():
    audit = cfair.Audit(
        cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups=["sex", "race"]
    )
    return audit.observed()


@pytest.fixture(scope="module")
def gaps(result):
    return result.gaps().set_index(["metric", "by"])


def test_a_row_per_metric_and_attribute(result, gaps):
    assert list(result.gaps()) == list(COLUMNS)
    metrics = ["selection_rate", "tpr", "fpr", "ppv", EQUALIZED_ODDS]
    assert list(gaps.index) == [(m, by) for m in metrics for by in ("sex", "race", "sex x race")]


@pytest.mark.parametrize("metric", ["selection_rate", "tpr", "fpr", "ppv"])
def test_the_pair_is_the_highest_and_the_lowest(result, gaps, metric):
    rates = result.rates.query("metric == @metric").set_index("group")["estimate"]
    row = gaps.loc[(metric, "sex x race")]
    assert (row["group"], row["reference"]) == (rates.idxmax(), rates.idxmin())
    assert row["gap"] == pytest.approx(rates.max() - rates.min(), rel=1e-12)
    assert row["ratio"] == pytest.approx(rates.min() / rates.max(), rel=1e-12)
    levels = result.marginals.query("metric == @metric and attribute == 'race'")
    row = gaps.loc[(metric, "race")]
    assert row["gap"] == pytest.approx(np.ptp(levels["estimate"]), rel=1e-12)
    assert row["group"] == levels["level"].iloc[levels["estimate"].argmax()]


def test_intervals_are_those_of_a_maximum(result, gaps):
    whole = result.disparities.query("statistic == 'maximum'").set_index("metric")
    alone = cfair.Audit(
        cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
    ).observed()
    race = alone.disparities.query("statistic == 'maximum'").set_index("metric")
    tests = alone.test_equal().set_index("metric")
    for metric in ("tpr", "fpr"):
        for by, frame in (("sex x race", whole), ("race", race)):
            columns = ["ci_low", "ci_high", "expected_if_equal"]
            row = gaps.loc[(metric, by), columns].astype(float)
            alike = frame.loc[metric, columns].astype(float)
            pd.testing.assert_series_equal(row, alike, check_names=False)
        p = tests.loc[metric, "p_value"]
        assert gaps.loc[(metric, "race"), "p_value"] == pytest.approx(p, rel=1e-8)


def test_equalized_odds_is_the_larger_gap_with_a_simultaneous_interval(result, gaps):
    halved = cfair.Audit(
        cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups=["sex", "race"]
    ).observed(level=0.975)
    for by in ("sex", "race", "sex x race"):
        parts = halved.gaps(["tpr", "fpr"], adjust=None).query("by == @by")
        row = gaps.loc[(EQUALIZED_ODDS, by)]
        assert row["gap"] == parts["gap"].max()
        assert row["ci_low"] == pytest.approx(parts["ci_low"].max(), abs=1e-12)
        assert row["ci_high"] == pytest.approx(parts["ci_high"].max(), abs=1e-12)
        assert row["p_value"] == min(1, 2 * parts["p_value"].min())
        widest = parts.loc[parts["gap"].idxmax(), "metric"].upper()
        surest = parts.loc[parts["p_value"].idxmin(), "metric"].upper()
        assert row["note"] == f"of {widest}" + f"; p from {surest}" * (surest != widest)


@pytest.mark.parametrize("adjust", ["holm", "fdr_bh"])
def test_p_values_are_adjusted_over_the_table(result, adjust):
    frame = result.gaps(adjust=adjust)
    expected = multipletests(frame["p_value"], method=adjust)[1]
    np.testing.assert_allclose(frame["p_adjusted"], expected, rtol=1e-12)
    assert frame["family"].str.contains("15 p-values").all()
    plain = result.gaps(adjust=None)
    assert (plain["p_adjusted"] == plain["p_value"]).all()


def test_a_detectable_gap_is_found_with_the_power_asked_for():
    rng = np.random.default_rng(4)
    low, one, two = rng.uniform(0.05, 0.6, 30), rng.integers(40, 900, 30), rng.integers(40, 900, 30)
    for power in (0.5, 0.8, 0.95):
        gap = detectable_gap(low, one, two, 0.9, power)
        assert not np.isnan(gap).any()
        found = power_proportions_2indep(
            gap, low, one, ratio=two / one, alpha=0.1, return_results=False
        )
        np.testing.assert_allclose(found, power, atol=1e-5)


def test_no_gap_can_be_found_between_groups_of_one():
    assert np.isnan(detectable_gap(np.array([0.0, 0.5]), np.ones(2), np.ones(2))).all()


def test_severity_has_its_own_bounds(result):
    frame = result.gaps("fpr", severity=(0.01, 0.02))
    assert frame["severity"].tolist() == ["moderate", "severe", "severe"]
    with pytest.raises(ValueError, match="moderate"):
        result.gaps("fpr", severity=(0.2, 0.1))


def table(y, s, g):
    return pd.DataFrame({"y": y, "s": s, "g": g})


def test_a_group_without_a_rate_is_named_and_never_the_widest():
    data = table([1, 0, 1, 0, 0, 0] * 20, [1, 0, 0, 1, 1, 0] * 20, list("aabbcc") * 20)
    result = cfair.Audit(data, outcome="y", prediction="s", groups="g").observed()
    row = result.gaps("tpr").iloc[0]
    assert (row["group"], row["reference"], row["note"]) == ("a", "b", "no rate in c")
    assert "no rate in c" in result.gaps(EQUALIZED_ODDS)["note"].iloc[0]


def test_no_gap_with_fewer_than_two_rates():
    data = table([1, 0, 0, 0, 0, 0] * 9, [1, 0, 0, 1, 1, 0] * 9, list("aabbcc") * 9)
    result = cfair.Audit(data, outcome="y", prediction="s", groups="g").observed()
    frame = result.gaps(["tpr", EQUALIZED_ODDS])
    assert frame["gap"].isna().all()
    assert frame["p_value"].isna().all()
    assert frame["severity"].eq("undefined").all()
    assert frame["note"].tolist() == ["no rate in b, c", "TPR: no rate in b, c"]
    assert "no rate in b, c" in str(result)


def test_counterfactual_gaps_have_margins_too():
    audit = cfair.Audit(
        cfair.load_cohort(),
        outcome="readmitted",
        score="risk",
        cutoff=0.5,
        groups=["sex", "race"],
        treatment="treated",
    )
    result = audit.counterfactual("treated ~ sex * race + risk")
    frame = result.gaps()
    assert frame["metric"].unique().tolist() == ["cfpr", "cfnr"]
    assert frame["by"].tolist() == ["sex", "race", "sex x race"] * 2


def test_contrasts_with_all_rows_together(result):
    frame = result.contrasts("overall", metrics="tpr", attribute="race")
    rates = result.marginals.query("metric == 'tpr' and attribute == 'race'")["estimate"]
    every = result.overall.set_index("metric").loc["tpr", "estimate"]
    np.testing.assert_allclose(frame["estimate"], rates - every)
    assert frame["reference"].eq("overall").all()
    # a group is part of all rows: their difference varies less than that of independent rates
    apart = np.hypot(
        result.marginals.query("metric == 'tpr' and attribute == 'race'")["se"],
        result.overall.set_index("metric").loc["tpr", "se"],
    )
    assert (frame["se"].to_numpy() < apart.to_numpy()).all()
    assert len(result.contrasts("overall", metrics="tpr")) == 6


def test_a_group_called_overall_is_a_group():
    data = table([1, 0, 1, 0] * 20, [1, 0, 0, 1] * 20, ["overall", "overall", "b", "b"] * 20)
    result = cfair.Audit(data, outcome="y", prediction="s", groups="g").observed()
    assert result.contrasts("overall", metrics="tpr")["group"].tolist() == ["b"]


def test_treatment_equality(result):
    frame = result.treatment_equality
    data = cfair.load_cohort()
    missed = (data["readmitted"] == 1) & (data["risk"] < 0.5)
    wrong = (data["readmitted"] == 0) & (data["risk"] >= 0.5)
    for row in frame.to_dict("records"):
        rows = pd.Series(True, index=data.index)
        if row["by"] == "sex x race":
            rows = data["sex"] + " & " + data["race"] == row["group"]
        elif row["by"] in data:
            rows = data[row["by"]] == row["group"]
        assert row["false_negatives"] == (missed & rows).sum()
        assert row["false_positives"] == (wrong & rows).sum()
        assert row["ratio"] == pytest.approx((missed & rows).sum() / (wrong & rows).sum())
        assert row["ci_low"] < row["ratio"] < row["ci_high"]
    assert len(frame) == 6 + 5 + 1


def test_treatment_equality_without_errors():
    data = table([1, 0, 1, 0] * 20, [1, 0, 0, 0] * 20, ["a", "a", "b", "b"] * 20)
    frame = cfair.Audit(data, outcome="y", prediction="s", groups="g").observed().treatment_equality
    assert frame["note"].tolist() == ["no errors", "no false positives", "no false positives"]
    assert np.isnan(frame["ratio"][0])
    assert np.isinf(frame["ratio"][1])


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("TPR", "Did you mean 'tpr'?"),
        ("sensitivity", "Did you mean 'tpr'?"),
        ("selection rate", "Did you mean 'selection_rate'?"),
        ("equalised_odds", "Did you mean 'equalized_odds'?"),
        ("auc", r"Audit.performance\(\) has it"),
    ],
)
def test_a_metric_by_another_name_is_not_guessed_but_named(result, asked, hint):
    with pytest.raises(ValueError, match=hint):
        result.gaps(asked)


def test_a_level_in_place_of_a_group_is_told_from_a_mistake(result):
    with pytest.raises(DataError, match="level of 'race': give attribute='race'"):
        result.contrasts("White", metrics="tpr")


def test_the_print_brackets_severity_that_may_be_noise(result):
    lines = [line for line in str(result).splitlines() if "M & Black, M & Other" in line]
    assert lines[0].endswith("(severe)")  # TPR: [.000 .325]
    assert lines[1].endswith(" severe")  # the larger of TPR and FPR
    assert "(TPR; p: FPR)" in lines[1]
    said = " ".join(str(result).split())
    assert "'severe' and 'moderate' in brackets where the interval reaches 0" in said
    assert re.search(r"detectable +all equal\? p \(Holm\) +severity", str(result))


def test_paper_tables_read_as_the_print_does(result, tmp_path):
    import openpyxl

    book = openpyxl.load_workbook(result.to_excel(tmp_path / "gaps.xlsx", "gaps"))
    sheet = "\n".join(str(c.value) for row in book["table"].iter_rows() for c in row)
    for text in (result.to_markdown("gaps"), result.to_latex("gaps"), sheet):
        for said in ("lowest/highest", "p (Holm)", "TPR or FPR (TPR; p: FPR)", "(severe)",
                     "(moderate)", "'severe' and 'moderate' in brackets where"):  # fmt: skip
            assert said in text
        assert "(acceptable)" not in text
    assert "p (Benjamini" not in result.to_markdown("gaps")
    assert "(schwer)" in result.to_markdown("gaps", labels={"severe": "schwer"})


@pytest.mark.parametrize(
    ("family", "heading"),
    [
        ("Holm over 15 p-values (5 metrics)", "all equal? p (Holm)"),
        ("not adjusted, 3 p-values (1 metric)", "all equal? p"),
    ],
)
def test_adjusted_p_values_are_headed_by_their_adjustment(family, heading):
    assert p_heading(pd.DataFrame({"family": [family]})) == heading


def tiny_groups():
    """4,000 patients, of whom one flagged and one not are alone in their groups."""
    sex = np.repeat(["Male", "Female"], 2000)
    kind = np.where(np.arange(4000) % 2, "a", "b").astype(object)
    flagged = np.zeros(4000, dtype=int)
    flagged[:350], flagged[2000:2190] = 1, 1
    kind[0], kind[1999] = "one", "two"
    return table((np.arange(4000) % 5 == 4).astype(int), flagged, sex).assign(h=kind)


def test_simultaneous_pairs_are_the_contrasts_of_their_family():
    audit = cfair.Audit(tiny_groups(), outcome="y", prediction="s", groups="h")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = audit.observed()
    pairs = simultaneous_pairs(result.estimates_of("fpr"), result.blocks("fpr"), 0.95)
    frame = result.contrasts(metrics="fpr", adjust="max-t")
    frame = frame[frame["ci_low"].notna()]
    turned = (frame["estimate"] < 0).to_numpy()
    assert turned.any()
    assert not turned.all()
    np.testing.assert_allclose(pairs["gap"], frame["estimate"].abs())
    np.testing.assert_allclose(
        pairs["ci_low"], np.where(turned, -frame["ci_high"], frame["ci_low"])
    )
    np.testing.assert_allclose(
        pairs["ci_high"], np.where(turned, -frame["ci_low"], frame["ci_high"])
    )
    assert (pairs["group"] == np.where(turned, frame["reference"], frame["group"])).all()


def test_the_largest_gap_in_print_says_that_it_is_not_told_from_0():
    audit = cfair.Audit(tiny_groups(), outcome="y", prediction="s", groups=["g", "h"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = audit.observed()
    said = " ".join(" ".join(largest_gap_lines(result, [result.metrics.index("fpr")])).split())
    assert "Male & one against" in said
    assert "1.000], not told from 0 as one of all pairs; clearest: Male against Female" in said
    alone = cfair.Audit(tiny_groups(), outcome="y", prediction="s", groups="g").observed()
    assert "noise" not in " ".join(largest_gap_lines(alone, [alone.metrics.index("fpr")]))


@pytest.mark.parametrize("power", [80, 0, 1, -0.5, "0.8", None, True])
def test_power_is_a_probability(result, power):
    with pytest.raises(ValueError, match="power must be a number between 0 and 1"):
        result.gaps(power=power)


@pytest.mark.parametrize("adjust", ["max-t", "foo"])
def test_gaps_are_adjusted_by_a_method_of_statsmodels(result, adjust):
    with pytest.raises(ValueError, match="adjust must be one of"):
        result.gaps(adjust=adjust)


def test_a_rate_and_its_complement_have_the_same_gap(result):
    frame = result.gaps(["tpr", "fnr", "fpr", "tnr", "ppv", "fdr", "npv", "for"], adjust=None)
    parts = frame.set_index(["metric", "by"])
    for one, other in (("tpr", "fnr"), ("fpr", "tnr"), ("ppv", "fdr"), ("npv", "for")):
        for by in ("sex", "race", "sex x race"):
            a, b = parts.loc[(one, by)], parts.loc[(other, by)]
            assert (a["group"], a["reference"]) == (b["reference"], b["group"])
            for column in ("gap", "ci_low", "ci_high", "expected_if_equal", "p_value"):
                assert a[column] == pytest.approx(b[column], rel=1e-9)


def test_a_metric_named_twice_is_one_test(result):
    once = result.contrasts(metrics=["fpr"])
    pd.testing.assert_frame_equal(result.contrasts(metrics=["fpr", "fpr"]), once)
    pd.testing.assert_frame_equal(result.gaps(["tpr", "tpr"]), result.gaps("tpr"))
    for nothing in ([], 0):
        with pytest.raises(ValueError, match="metrics must be one name, or a sequence"):
            result.gaps(nothing)


def test_groups_with_equal_rates_are_two_groups():
    data = table([1, 0, 1, 0] * 20, [1, 1, 1, 1] * 20, ["a", "a", "b", "b"] * 20)
    with pytest.warns(CutoffWarning):
        result = cfair.Audit(data, outcome="y", prediction="s", groups="g").observed()
    row = result.gaps("tpr").iloc[0]
    assert (row["group"], row["reference"], row["gap"]) == ("a", "b", 0.0)


@pytest.mark.parametrize("severity", [(0.1, 0.2, 0.3), (0.1,), 0.1, None])
def test_severity_is_two_numbers(result, severity):
    with pytest.raises(ValueError, match="severity must be two numbers"):
        result.gaps(severity=severity)


def test_an_attribute_of_one_level_is_not_compared():
    data = table([1, 0, 1, 0] * 20, [1, 0, 0, 1] * 20, list("aabb") * 20).assign(h="z")
    result = cfair.Audit(data, outcome="y", prediction="s", groups=["g", "h"]).observed()
    for reference in (None, "overall", "z"):
        with pytest.raises(DataError, match="needs two levels, but 'h' has only z"):
            result.contrasts(reference, attribute="h")


def test_a_rate_of_0_has_a_detectable_gap_too():
    found = detectable_gap(np.array([0.0, 0.001]), np.array([200.0, 200.0]), np.full(2, 200.0))
    assert found[0] > 0.04  # with a variance of 0 it would be found at once
    assert found[0] == pytest.approx(found[1], rel=0.5)


def test_a_gap_of_one_patient_is_in_brackets_and_says_so():
    cohort = cfair.load_cohort()
    cohort["race"] = cohort["race"].astype(object)
    cohort.loc[[0, 1], "race"] = "Inuit"
    roles = {"outcome": "readmitted", "score": "risk", "cutoff": 0.5, "groups": "race"}
    result = cfair.Audit(cohort, **roles).observed()
    row = result.gaps("fpr").iloc[0]
    assert row["ci_low"] > 0
    assert row["note"].startswith("rests on 1 in Inuit: read with care")
    assert "(severe)" in str(result)
    assert "or a rate rests on fewer than 20" in " ".join(str(result).split())


def test_the_widest_gap_is_that_of_the_intersection_or_of_an_attribute(result):
    e, at = result.estimates_of("fpr"), result.metrics.index("fpr")
    K = result.cohort.groups.n_groups
    for hidden, by in ((0, "sex x race"), (K, "race")):
        rates = np.where(np.arange(len(e.estimate)) < hidden, np.nan, e.estimate)
        estimates = list(result.estimates)
        estimates[at] = replace(e, estimate=rates)
        found = replace(result, estimates=tuple(estimates))
        row = found.gaps("fpr").set_index("by").loc[by]
        widest = found.widest_gap("fpr")
        assert widest["by"] == by
        for name in ("group", "reference", "gap", "ci_low", "ci_high"):
            assert widest[name] == row[name]
    estimates[at] = replace(e, estimate=np.full(len(e.estimate), np.nan))
    assert replace(result, estimates=tuple(estimates)).widest_gap("fpr") is None


def test_what_is_kept_cannot_be_changed(result):
    low, _ = result.limits("fpr")
    assert result.limits("fpr")[0] is low
    with pytest.raises(ValueError, match="read-only"):
        low[0] = 0.0
    with pytest.raises(ValueError, match="metrics must be of"):
        result.limits("fprs")
