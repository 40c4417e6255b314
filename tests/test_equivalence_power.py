"""Planning of equivalence studies: expected cells, power, sample size, margins, gaps, prints."""

from __future__ import annotations

import itertools

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from scipy.special import ndtri
from scipy.stats import norm

import cfair
from cfair.cli import main
from cfair.equivalence.design import expected_cells, expected_rate, prevalence_range, scenario
from cfair.equivalence.detection import (
    gap_detection,
    gap_total,
    optimal_allocation,
    pair_variance,
    patient_variance,
)
from cfair.equivalence.joint import JointPower
from cfair.equivalence.margins import (
    CONTRASTS,
    METRICS,
    contrast_applied,
    contrast_value,
    scaled,
    unit_variance,
)
from cfair.equivalence.power import (
    narrowest_margin,
    planned_tests,
    score_tests,
    variance_per_row,
    wald_tests,
)
from cfair.equivalence.tost import tost_counts
from cfair.estimators.confusion import observed_rates

matplotlib.use("Agg")

BASE = {"share": 0.25, "prevalence": 0.25, "sensitivity": 0.75, "specificity": 0.75}
COLORECTAL = {"share": 0.468, "prevalence": 0.112, "sensitivity": 0.927, "specificity": 0.301}
MARGIN = {"ratio": (0.8, 1.25), "odds_ratio": (0.8, 1.25), "difference": (-0.1, 0.1)}

inside = st.floats(0.02, 0.98)
contrasts = st.sampled_from(sorted(CONTRASTS))
metrics = st.sampled_from(METRICS)
few = settings(deadline=None, max_examples=30)


def plain_power(p1, p2, n1, n2, low, high, alpha, contrast):
    """The formula written out for one scenario."""
    if contrast == "ratio":
        delta, se = np.log(p1 / p2), np.sqrt((1 - p1) / (n1 * p1) + (1 - p2) / (n2 * p2))
    elif contrast == "odds_ratio":
        cells = [n1 * p1, n1 * (1 - p1), n2 * p2, n2 * (1 - p2)]
        delta = np.log(p1 / (1 - p1) / (p2 / (1 - p2)))
        se = np.sqrt(sum(1 / c for c in cells))
    else:
        delta, se = p1 - p2, np.sqrt(p1 * (1 - p1) / n1 + p2 * (1 - p2) / n2)
    if contrast != "difference":
        low, high = np.log(low), np.log(high)
    z = norm.ppf(1 - alpha)
    return max(0.0, norm.cdf((high - delta) / se - z) - norm.cdf((low - delta) / se + z))


# -- who is expected where ------------------------------------------------------------------------


@given(inside, inside, inside)
def test_expected_rates_are_those_of_the_expected_table(prev, se, sp):
    cells = expected_cells(prev, se, sp)
    assert cells.sum() == pytest.approx(1)
    rates = observed_rates(1000 * cells[None])
    for metric in METRICS:
        rate, denominator = expected_rate(metric, cells)
        assert rate == pytest.approx(rates[metric][0], abs=1e-12)
        assert 0 < denominator < 1


def test_denominators_are_those_of_the_method():
    groups = scenario(0.1, 0.2, 0.7, 0.9, 0.3, 0.8, 0.6)
    flagged = np.array([0.2 * 0.7 + 0.8 * 0.1, 0.3 * 0.8 + 0.7 * 0.4])
    prev = np.array([0.2, 0.3])
    share = np.array([0.1, 0.9])
    expected = {"tpr": prev, "fnr": prev, "tnr": 1 - prev, "fpr": 1 - prev}
    expected.update({"ppv": flagged, "fdr": flagged, "npv": 1 - flagged, "for": 1 - flagged})
    for metric, of_group in expected.items():
        np.testing.assert_allclose(groups.rates(metric)[1], share * of_group, rtol=1e-14)


def test_least_cell_is_the_smallest_of_four_and_named():
    found = cfair.equivalence_power(
        "tnr", n=1465, share=0.061, prevalence=0.25, specificity=0.99
    ).frame.iloc[0]
    assert found["least_cell"] == pytest.approx(1465 * 0.061 * 0.75 * 0.01)
    assert found["cell"] == "false positives in the group"
    assert "0.7 false positives in the group expected, fewer than 5" in found["note"]


# -- power, sample size, margin -------------------------------------------------------------------


@few
@given(metrics, contrasts, inside, inside, inside, inside, st.integers(20, 10**6),
       st.floats(0.01, 0.2))  # fmt: skip
def test_power_is_the_formula(metric, contrast, share, prev, se, sp, n, alpha):
    found = cfair.equivalence_power(
        metric, n=n, share=share, prevalence=prev, sensitivity=se, specificity=sp,
        reference_prevalence=0.3, reference_sensitivity=0.8, margin=MARGIN[contrast],
        contrast=contrast, alpha=alpha,
    ).frame.iloc[0]  # fmt: skip
    expected = plain_power(
        found["rate"], found["reference_rate"], found["size"], found["reference_size"],
        *MARGIN[contrast], alpha, contrast,
    )  # fmt: skip
    assert found["power"] == pytest.approx(expected, abs=1e-11)


@given(inside, inside, st.floats(5, 500), st.floats(5, 500))
def test_variance_of_the_odds_ratio_sums_the_inverse_counts(p1, p2, n1, n2):
    cells = np.array([n1 * p1, n1 * (1 - p1), n2 * p2, n2 * (1 - p2)])
    v = variance_per_row(np.array([p1, p2]), np.array([n1, n2]), "odds_ratio")
    assert v == pytest.approx((1 / cells).sum())


methods = st.sampled_from(["wald", "score"])


@few
@given(metrics, contrasts, inside, inside, inside, inside, inside, st.floats(0.05, 0.99), methods)
def test_one_patient_fewer_has_too_little_power(
    metric, contrast, share, prev, se, sp, other, power, method
):
    groups = scenario(share, prev, se, sp, None, other)
    rates, rows = groups.rates(metric)
    low, high = MARGIN[contrast]
    tests = planned_tests(rates, rows, low, high, contrast, method)
    n = tests.sample_size(power)
    if not low < contrast_value(*rates, contrast) < high:
        assert np.isnan(n)
        return
    assume(np.isfinite(n) and n > 2)
    assert n == np.floor(n)
    assert tests.power(n) >= power
    assert tests.power(n - 1) < power


@given(st.floats(-0.2, 0.2), st.floats(0.5, 500), st.integers(2, 10**6))
def test_power_grows_with_n_inside_the_margin_and_not_above_alpha_outside(delta, v, n):
    inner = wald_tests(delta, v, -0.22, 0.22).power(np.array([n, n + 1, 2 * n]))
    assert (np.diff(inner) >= -1e-12).all()
    assert wald_tests(0.22 + abs(delta), v, -0.22, 0.22).power(n) <= 0.05 + 1e-12


@few
@given(
    contrasts, inside, inside, st.floats(0.01, 0.5), st.integers(20, 10**6), st.floats(0.05, 0.99),
    methods,
)  # fmt: skip
def test_the_narrowest_margin_just_has_the_power(contrast, p1, p2, part, n, power, method):
    rates, rows = np.array([p1, p2]), np.array([part, 1 - part])

    def at(half):
        ends = (-half, half) if contrast == "difference" else (np.exp(-half), np.exp(half))
        return planned_tests(rates, rows, *ends, contrast, method).power(n)

    low, high = narrowest_margin(rates, rows, n, power, contrast, method=method)
    half = float(high if contrast == "difference" else np.log(high))
    assume(np.isfinite(half) and half < 25)
    assert contrast_value(1.0, 1.0, "ratio") == 1
    assert (-low if contrast == "difference" else 1 / low) == pytest.approx(high)
    assert at(half) >= power - 1e-9
    assert at(half * (1 - 1e-6)) < power


@few
@given(contrasts, inside, inside, st.floats(0.05, 0.95))
def test_at_equality_the_score_test_has_the_variance_of_the_common_rate(contrast, p1, p2, part):
    rates, rows = np.array([p1, p2]), np.array([part, 1 - part])
    equal = 0.0 if contrast == "difference" else 1.0
    tests = score_tests(rates, rows, equal, equal, contrast)
    common = rates @ rows
    z = tests.distance[0] / tests.null_sd[0]
    se = np.sqrt(common * (1 - common) * (1 / part + 1 / (1 - part)))
    assert z == pytest.approx((p1 - p2) / se, abs=1e-9)  # whatever the contrast
    assert tests.distance[1] == pytest.approx(-tests.distance[0])


def test_the_planned_power_of_the_score_test_is_that_of_the_tests_on_data():
    # 4,000 draws of two binomials: the score test's formula is right, Wald's promises too much
    n1, n2, p, draws = 80, 80, 0.75, 4000
    rng = np.random.default_rng(5)
    x1, x2 = rng.binomial(n1, p, draws), rng.binomial(n2, p, draws)
    won = np.mean(tost_counts(x1, n1, x2, n2).p_value < 0.05)
    rates, rows = np.array([p, p]), np.array([0.5, 0.5])
    by = {
        m: planned_tests(rates, rows, 0.8, 1.25, "ratio", m).power(160) for m in ("wald", "score")
    }
    error = np.sqrt(won * (1 - won) / draws)
    assert abs(by["score"] - won) < 0.02 + 2 * error
    assert by["wald"] - won > 0.03


def test_many_groups_agree_with_brute_force():
    rng = np.random.default_rng(3)
    sd, truth = np.array([1.0, 2.0, 1.5, 0.8]), np.array([0.0, 0.05, -0.05, 0.02])
    z = rng.normal(size=(200_000, 4))
    to_one = np.array([[0, 3], [1, 3], [2, 3]])
    every = np.array([[i, j] for i in range(4) for j in range(i + 1, 4)])
    for pairs in (to_one, every):
        delta = truth[pairs[:, 0]] - truth[pairs[:, 1]]
        joint = JointPower(delta, -0.22, 0.2, sd, pairs, 0.05)
        for n in (800, 1500, 3000):
            estimate = truth + z * sd / np.sqrt(n)
            gap = estimate[:, pairs[:, 0]] - estimate[:, pairs[:, 1]]
            reach = ndtri(0.95) * np.hypot(*sd[pairs].T) / np.sqrt(n)
            brute = ((gap > -0.22 + reach) & (gap < 0.2 - reach)).all(axis=1).mean()
            assert joint.at(n) == pytest.approx(brute, abs=0.005)
        n = joint.sample_size(0.8)
        assert joint.at(n) >= 0.8 > joint.at(n - 1)
        assert joint.at(n) <= min(
            wald_tests(d, sd[i] ** 2 + sd[j] ** 2, -0.22, 0.2).power(n) for d, (i, j) in
            zip(delta, pairs, strict=True)
        ) + 0.002  # fmt: skip


def test_a_plan_of_many_groups():
    asked = {"prevalence": 0.25, "sensitivity": 0.75}
    two = cfair.equivalence_sample_size("sensitivity", share=0.25, **asked).values
    assert cfair.equivalence_groups("sensitivity", allocation=[0.25, 0.75], **asked).n == two
    four = cfair.equivalence_groups("sensitivity", groups=4, **asked)
    one = cfair.equivalence_groups("sensitivity", groups=4, reference=0, **asked)
    assert one.n < four.n  # three pairs have to be won, not six
    assert four.joint_power == pytest.approx(0.8, abs=0.001)
    assert four.frame["n_needed"].max() < four.n
    given = cfair.equivalence_groups("sensitivity", groups=4, n=2000, **asked)
    assert given.joint_power < 0.8 < given.frame["power"].min()
    assert given.n_needed == four.n
    for plan in (cfair.equivalence_groups("sensitivity", groups=6, **asked), given):
        rows = plan.groups
        assert (rows["n"] % 1 == 0).all()  # patients are whole
        assert (rows["n"] >= plan.n * rows["allocation"] - 1e-6).all()
        assert plan.n <= rows["n"].sum() < plan.n + len(rows)
        np.testing.assert_allclose(rows["size"], rows["n"] * rows["denominator"])
        assert f"  {rows['n'][0]:,.0f}  " in str(plan)
    assert "2,000" in str(given)
    never = cfair.equivalence_groups(
        "ppv", prevalence=[0.2, 0.05], specificity=0.8, sensitivity=0.8
    )
    assert never.n is None
    assert "no N will do" in str(never)
    with pytest.raises(ValueError, match="no number of patients"):
        never.plot()
    with pytest.raises(ValueError, match="two or more"):
        cfair.equivalence_groups("sensitivity", **asked)


@few
@given(metrics, contrasts, inside, inside, inside, st.integers(20, 10**6))
def test_it_does_not_matter_which_group_is_the_reference(metric, contrast, share, p1, p2, n):
    here = {"prevalence": p1, "reference_prevalence": p2}
    there = {"prevalence": p2, "reference_prevalence": p1}
    low, high = MARGIN[contrast]
    turned = (-high, -low) if contrast == "difference" else (1 / high, 1 / low)
    more = {"n": n, "sensitivity": 0.8, "specificity": 0.7, "contrast": contrast}
    a = cfair.equivalence_power(metric, share=share, margin=(low, high), **here, **more).values
    b = cfair.equivalence_power(metric, share=1 - share, margin=turned, **there, **more).values
    assert a == pytest.approx(b, abs=1e-9)


@pytest.mark.parametrize("contrast", ["odds_ratio", "difference"])
def test_a_rate_and_its_complement_need_the_same_by_odds_ratio_and_difference(contrast):
    n = cfair.equivalence_sample_size(**BASE, contrast=contrast, margin=MARGIN[contrast]).values
    np.testing.assert_array_equal(n[:4], n[4:])


def test_arrays_broadcast_and_agree_with_single_calls():
    share, prevalence = np.array([0.1, 0.25]), np.array([[0.05], [0.25], [0.5]])
    arguments = {"share": share, "prevalence": prevalence, "sensitivity": 0.75, "specificity": 0.8}
    found = cfair.equivalence_sample_size(["tpr", "npv"], **arguments)
    assert found.values.shape == (2, 3, 2)
    assert len(found.frame) == 12
    for k, i, j in itertools.product(range(2), range(3), range(2)):
        one = cfair.equivalence_sample_size(
            ["tpr", "npv"][k], share=share[j], prevalence=prevalence[i, 0], sensitivity=0.75,
            specificity=0.8,
        )  # fmt: skip
        assert one.values == found.values[k, i, j]
    row = found.frame.iloc[3]
    assert (row["share"], row["prevalence"], row["n"]) == (0.25, 0.25, 1224)


def test_margins_broadcast_and_may_differ_by_metric():
    many = cfair.equivalence_sample_size("tpr", **BASE, margin=([0.8, 0.9], [1.25, 1 / 0.9]))
    assert many.values[0] == 1224
    assert many.values[1] > 4000
    given_ = {"sensitivity": (0.8, 1.25), "specificity": (0.9, 1 / 0.9)}
    each = cfair.equivalence_sample_size(["tpr", "tnr"], **BASE, margin=given_)
    alone = cfair.equivalence_sample_size("tnr", **BASE, margin=(0.9, 1 / 0.9))
    assert each.values.tolist() == [1224, alone.values]


def test_one_number_is_the_margin_of_a_difference():
    for verb in (cfair.equivalence_power, cfair.equivalence_plan):
        one, pair = (
            verb(n=5000, **BASE, contrast="difference", margin=margin).frame
            for margin in (0.1, (-0.1, 0.1))
        )
        pd.testing.assert_frame_equal(one, pair)
    with pytest.raises(ValueError, match="margin must lie around 0"):
        cfair.equivalence_power(n=5000, **BASE, contrast="difference", margin=-0.1)
    scalar = cfair.equivalence_plan(n=5000, **BASE, contrast="difference", margin=np.array(0.1))
    pd.testing.assert_frame_equal(scalar.frame, one)
    with pytest.raises(ValueError, match=r"must be a pair .* give contrast=\"difference\""):
        cfair.equivalence_power(n=5000, **BASE, margin=0.05)
    with pytest.raises(ValueError, match="margin must be a pair"):
        cfair.equivalence_power(n=5000, **BASE, contrast="difference", margin=0.1 + 0j)


def test_main_published_figures():
    n = cfair.equivalence_sample_size
    assert n("sensitivity", **{**BASE, "share": [0.1, 0.25, 0.5]}).values.tolist() == [
        2548, 1224, 918,
    ]  # fmt: skip
    assert n(["ppv", "tnr", "npv", "fnr"], **BASE).values.tolist() == [2447, 408, 164, 11008]
    assert n("tpr", **BASE, contrast="odds_ratio").values == 19569
    power = cfair.equivalence_power(n=4230, **COLORECTAL).frame.set_index("metric")["power"]
    assert power["ppv"].round(2) == 0.62
    assert (power[["tpr", "tnr", "fpr", "fdr", "npv"]] > 0.99).all()
    assert (power[["fnr", "for"]] == 0).all()
    low, high = cfair.equivalence_margin(["tpr", "tnr"], n=4230, **COLORECTAL, power=0.9).values
    assert low.round(4).tolist() == [0.9185, 0.8488]
    assert high.round(4).tolist() == [1.0887, 1.1781]


def test_only_what_a_metric_depends_on_is_needed():
    assert cfair.equivalence_sample_size(
        "sensitivity", share=0.25, prevalence=0.25, sensitivity=0.75
    ).values == 1224  # fmt: skip
    with pytest.raises(ValueError, match="specificity must be given for PPV"):
        cfair.equivalence_sample_size("ppv", share=0.25, prevalence=0.25, sensitivity=0.75)


def test_what_no_n_can_show_is_missing_and_says_so():
    found = cfair.equivalence_sample_size(
        ["ppv", "npv"], **{**COLORECTAL, "prevalence": 0.131}, reference_prevalence=0.095
    ).frame
    assert found["n"].isna().tolist() == [True, False]
    assert found.loc[0, "note"].startswith("cannot be shown with any N: the true ratio, 1.363")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": 1.2}, "share must lie between 0 and 1, not 1.2"),
        ({"prevalence": [0.1, 0, 1]}, r"prevalence .* not 0, 1 \(2 of 3 values\).*no variance"),
        ({"sensitivity": 93}, "sensitivity .* Percent"),
        ({"specificity": "high"}, "specificity must be a number"),
        ({"specificity": True}, "specificity must be a number"),
        ({"specificity": np.nan}, "specificity must lie between 0 and 1"),
        ({"reference_prevalence": -0.1}, "reference_prevalence must lie between"),
        ({"alpha": 0.5}, "alpha must lie between 0 and 0.5"),
        ({"n": 0}, "n must be a whole number"),
        ({"n": 12.5}, "n must be a whole number"),
        ({"margin": (0.8, 0.9)}, "margin must lie around 1"),
        ({"margin": (1.1, 1.25)}, "margin must lie around 1"),
        ({"margin": (0, 1.25)}, "margin must lie around 1"),
        ({"margin": 0.8}, "margin must be a pair"),
        ({"margin": ("a", "b")}, "margin must hold numbers"),
        ({"margin": (0.8, 1.25), "contrast": "difference"}, "margin must lie around 0"),
        ({"contrast": "difference"}, "no default for a difference"),
        ({"contrast": "rr"}, "contrast must be one of"),
        ({"metric": "accuracy"}, "metric must be one of"),
        ({"metric": ["tpr", "sensitivity"]}, "each once"),
        ({"margin": {"ppv": (0.8, 1.25)}}, "margin must have a pair for each metric"),
        ({"share": [0.1, 0.2], "prevalence": [0.1, 0.2, 0.3]}, r"share \(2,\), prevalence \(3,\)"),
    ],
)
def test_errors_name_the_argument(change, message):
    arguments = {**BASE, "n": 1000, "metric": "sensitivity", **change}
    with pytest.raises(ValueError, match=message):
        cfair.equivalence_power(arguments.pop("metric"), **arguments)


@pytest.mark.parametrize("power", [0, 1, 1.5])
def test_power_wanted_is_checked(power):
    for ask in (cfair.equivalence_sample_size, cfair.equivalence_plan):
        with pytest.raises(ValueError, match="power must lie between 0 and 1"):
            ask(**BASE, power=power)


def test_a_reference_alone_and_arrays_in_a_plan_are_refused():
    with pytest.raises(ValueError, match="reference_sensitivity was given without sensitivity"):
        cfair.equivalence_power("tpr", n=9, share=0.5, prevalence=0.5, reference_sensitivity=0.5)
    with pytest.raises(ValueError, match="share must be one number in a plan"):
        cfair.equivalence_plan(**{**BASE, "share": [0.1, 0.2]})


# -- the plan -------------------------------------------------------------------------------------


def test_plan_puts_the_three_answers_together():
    plan = cfair.equivalence_plan(4230, **COLORECTAL, power=0.9)
    frame = plan.frame
    assert frame["metric"].tolist() == list(METRICS)
    sizes = cfair.equivalence_sample_size(**COLORECTAL, power=0.9).values
    powers = cfair.equivalence_power(n=4230, **COLORECTAL).values
    low, high = cfair.equivalence_margin(n=4230, **COLORECTAL, power=0.9).values
    np.testing.assert_array_equal(frame["n_needed"].astype(float), sizes)
    np.testing.assert_array_equal(frame["power"], powers)
    np.testing.assert_array_equal(frame[["narrowest_low", "narrowest_high"]].T, [low, high])
    assert (frame["n"] == 4230).all()
    for metric, n in zip(frame["metric"], frame["n_five"], strict=True):
        at = cfair.equivalence_power(metric, n=[n - 1, n], **COLORECTAL).frame["least_cell"]
        assert at[0] < 5 <= at[1]
    with pytest.raises(AttributeError):
        plan.n = 5
    frame["n"] = 0
    assert (plan.frame["n"] == 4230).all()


def test_plan_says_what_no_n_can_show_and_what_prevalence_alone_does():
    plan = cfair.equivalence_plan(**{**COLORECTAL, "prevalence": 0.131}, reference_prevalence=0.095)
    said = str(plan)
    assert said.count("cannot be shown with any N") == 4  # PPV and FOR, in both tables
    alone = plan.prevalence_alone.set_index("metric")
    assert alone.loc["ppv", ["rate", "reference_rate"]].astype(float).round(4).tolist() == [
        0.1666, 0.1222,
    ]  # fmt: skip
    assert round(alone.loc["for", "value"], 3) == 1.421
    assert alone["inside"].tolist() == [False, True, True, False]
    assert "0.076 to 0.120" in said


def test_prevalence_alone_takes_accuracy_from_the_reference():
    plan = cfair.equivalence_plan(
        **{**BASE, "sensitivity": 0.5}, reference_sensitivity=0.75, reference_prevalence=0.2
    )
    same = cfair.equivalence_plan(**BASE, reference_prevalence=0.2)
    pd.testing.assert_frame_equal(plan.prevalence_alone, same.prevalence_alone)


@given(st.sampled_from(["ppv", "npv", "fdr", "for"]), contrasts, inside, inside, inside)
def test_at_the_ends_of_the_prevalence_range_the_contrast_is_an_end_of_the_margin(
    metric, contrast, prev, se, sp
):
    rate, _ = expected_rate(metric, expected_cells(prev, se, sp))
    low, high = MARGIN[contrast]
    ends = prevalence_range(metric, rate, prev, low, high, contrast)
    assert ends[0] < prev < ends[1]
    for end in ends:
        if 1e-6 < end < 1 - 1e-6:
            other, _ = expected_rate(metric, expected_cells(end, se, sp))
            value = contrast_value(other, rate, contrast)
            assert min(abs(value - low), abs(value - high)) < 1e-6


def test_prints_have_what_was_asked_and_are_cut_with_a_count():
    said = str(cfair.equivalence_margin("tpr", n=4230, **COLORECTAL, power=0.9))
    assert "[0.9185 1.0887]" in said
    long = cfair.equivalence_power("tpr", n=np.arange(100, 200), **BASE)
    assert "... 60 rows not shown" in str(long)
    assert "N = " not in long._repr_html_()


# -- margins in numbers of patients ---------------------------------------------------------------


@given(metrics, contrasts, st.floats(0.05, 0.95), st.floats(0.001, 0.04))
def test_margins_in_patients_go_there_and_back(metric, contrast, rate, part):
    margin = cfair.margin_from_patients(
        1000 * part, rate=rate, per=1000, metric=metric, contrast=contrast
    )
    worse, _, _ = cfair.margin_in_patients(
        margin, rate=rate, per=1000, metric=metric, contrast=contrast
    )
    assert worse == pytest.approx(1000 * part, rel=1e-9)


def test_five_in_a_hundred_missed_cancers():
    low, high = cfair.margin_from_patients(5, rate=0.95)
    assert (low, high) == pytest.approx((0.90 / 0.95, 0.95 / 0.90))
    _, _, words = cfair.margin_in_patients((low, high), rate=0.95)
    assert words.startswith("Of 100 patients with the event, at most 5 more missed")
    assert "as far as a rate can go" in words
    assert cfair.margin_from_patients(5, rate=0.95, contrast="difference") == pytest.approx(
        (-0.05, 0.05)
    )
    with pytest.raises(ValueError, match="Give fewer patients"):
        cfair.margin_from_patients(20, rate=0.1)


@given(inside, contrasts, st.floats(0.7, 0.99))
def test_a_contrast_that_is_applied_has_its_value(rate, contrast, m):
    value = m - 1 if contrast == "difference" else m
    moved = contrast_applied(rate, value, contrast)
    assume(moved > 1e-3)
    assert contrast_value(moved, rate, contrast) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("contrast", CONTRASTS)
def test_unit_variance_is_the_delta_method(contrast):
    p, h = 0.3, 1e-6
    slope = float(
        scaled(contrast_value(p + h, 0.3, contrast), contrast)
        - scaled(contrast_value(p - h, 0.3, contrast), contrast)
    ) / (2 * h)
    assert unit_variance(p, contrast) == pytest.approx(slope**2 * p * (1 - p), rel=1e-6)


# -- gaps -----------------------------------------------------------------------------------------

TWO = {"sensitivity": [0.683460, 0.789375], "prevalence": [0.3478, 0.4404]}


def test_published_numbers_of_patients_for_a_gap():
    assert cfair.gap_sample_size("tpr", **TWO).n == 1379
    assert cfair.gap_sample_size("tpr", **TWO, allocation="equal").n == 1400


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), inside, inside, st.floats(0, 0.05))
def test_optimum_of_two_groups_has_the_closed_form(p1, p2, q1, q2, tolerance):
    assume(abs(p1 - p2) > tolerance + 0.02)
    v = patient_variance([p1, p2], [q1, q2])
    pairs, beyond = np.array([[0, 1]]), np.array([abs(p1 - p2) - tolerance])
    part = optimal_allocation(v, pairs, beyond)
    sd = np.sqrt(v)
    z = norm.ppf(0.975) + norm.ppf(0.8)
    expected = z**2 * sd.sum() ** 2 / beyond**2
    assert gap_total(beyond, pair_variance(v, part, pairs)) == pytest.approx(expected, rel=1e-9)
    for other in (0.5, 0.3, min(part[0] * 1.05, 0.99)):
        variance = pair_variance(v, np.array([other, 1 - other]), pairs)
        assert gap_total(beyond, variance) >= expected * (1 - 1e-9)
    at = gap_detection(beyond, pair_variance(v, part, pairs), expected)
    assert at == pytest.approx(0.8, abs=1e-9)


def test_optimum_of_three_groups_is_that_of_a_search():
    v = np.array([0.2, 0.5, 0.1])
    for pairs in (np.array([[0, 1], [0, 2], [1, 2]]), np.array([[1, 0], [2, 0]])):
        beyond = np.array([0.1, 0.15, 0.12])[: len(pairs)]
        part = optimal_allocation(v, pairs, beyond)
        best = gap_total(beyond, pair_variance(v, part, pairs)).max()
        a, b = np.meshgrid(np.linspace(0.002, 0.998, 499), np.linspace(0.002, 0.998, 499))
        parts = np.stack([a, b, 1 - a - b])[:, a + b < 0.999]
        spread = v[pairs, None] / parts[pairs]  # pair, its two groups, grid
        found = (spread.sum(axis=1) / beyond[:, None] ** 2).max(axis=0).min()
        found *= (norm.ppf(0.975) + norm.ppf(0.8)) ** 2
        assert best <= found * (1 + 1e-9)
        # the grid's step is one or two hundredths of the smallest part
        assert found == pytest.approx(best, rel=0.01)


def test_groups_by_name_reference_and_bonferroni():
    rates = {"sensitivity": [0.7, 0.8, 0.9], "prevalence": 0.3, "groups": ["A", "B", "C"]}
    pairs = cfair.gap_sample_size("tpr", **rates, allocation="equal")
    assert len(pairs.frame) == 3
    assert pairs.level == pytest.approx(0.05 / 3)
    against = cfair.gap_sample_size("tpr", **rates, allocation="equal", reference="A")
    assert against.frame["group"].tolist() == ["B", "C"]
    assert set(against.frame["reference"]) == {"A"}
    assert against.n < pairs.n
    assert (against.groups["n"] * 1.0 == against.n / 3).all()
    assert (pairs.frame["power"] >= 0.8).all()
    at = cfair.gap_power("tpr", n=pairs.n, **rates, allocation="equal")
    np.testing.assert_allclose(at.frame["power"], pairs.frame["power"])
    best = cfair.gap_sample_size("tpr", **rates)
    assert best.n <= pairs.n


def test_a_gap_within_the_tolerance_needs_no_n_and_says_so():
    none = cfair.gap_sample_size("tpr", **TWO, tolerance=0.2)
    assert none.n is None
    assert "not beyond the tolerance" in none.frame["note"][0]
    assert "there is nothing to detect" in str(none)
    some = cfair.gap_sample_size("selection_rate", prevalence=[0.3, 0.31, 0.5], sensitivity=0.8,
                                 specificity=0.8, tolerance=0.05)  # fmt: skip
    assert some.frame["n_needed"].isna().tolist() == [True, False, False]
    assert some.metric == "selection rate"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sensitivity": 0.7, "prevalence": 0.3}, "one value per group"),
        ({"sensitivity": None}, "sensitivity must be given"),
        ({"sensitivity": [0.7, 0.8, 0.9]}, "broadcast"),
        ({"allocation": "best"}, "allocation must be one of"),
        ({"allocation": [0.5, 0.6]}, "the sum 1"),
        ({"allocation": [0.5, 0.3, 0.2]}, "each of 2 groups"),
        ({"reference": 2}, "reference must be the place or the name"),
        ({"reference": "A"}, "reference must be the place or the name"),
        ({"groups": ["A", "A"]}, "each once"),
        ({"tolerance": -0.1}, "tolerance must be at least 0"),
        ({"alpha": 0.7}, "alpha must lie"),
        ({"power": 80}, "power .* Percent"),
        ({"metric": "auc"}, "metric must be one of"),
    ],
)
def test_errors_of_gaps(change, message):
    arguments = {"metric": "tpr", **TWO, **change}
    with pytest.raises(ValueError, match=message):
        cfair.gap_sample_size(arguments.pop("metric"), **arguments)


# -- plots and the command line -------------------------------------------------------------------


def test_power_curves_have_a_line_a_metric_and_dots_where_the_power_is_reached():
    plan = cfair.equivalence_plan(4230, **COLORECTAL)
    ax = plan.plot()
    curves = [line for line in ax.lines if len(line.get_xdata()) > 2]
    assert len(curves) == 8
    needed = plan.frame["n_needed"].tolist()
    dots = [line.get_xdata()[0] for line in ax.lines if line.get_marker() in ("o", "s")]
    assert sorted(dots) == sorted(needed)
    matplotlib.pyplot.close(ax.figure)


def test_curves_pass_through_the_answers():
    ax = cfair.equivalence_power("tpr", n=[500, 1224, 5000], **BASE).plot()
    line = ax.lines[0]
    assert np.interp(1224, line.get_xdata(), line.get_ydata()) == pytest.approx(0.8, abs=0.002)
    assert ax.get_xlim() == (500, 5000)
    found = cfair.equivalence_margin("tpr", n=4230, **COLORECTAL, power=0.9)
    margins = found.plot().lines[0]
    at = np.interp(found.values[1], margins.get_xdata(), margins.get_ydata())
    assert at == pytest.approx(0.9, abs=0.002)
    matplotlib.pyplot.close("all")


def test_gap_plot_and_too_many_lines():
    ax = cfair.gap_sample_size("tpr", **TWO).plot()
    assert "Power to detect a gap in sensitivity" in ax.get_title(loc="left")
    many = cfair.equivalence_sample_size("tpr", **{**BASE, "share": np.linspace(0.1, 0.5, 9)})
    with pytest.raises(ValueError, match="at most 8 lines"):
        many.plot()
    with pytest.raises(ValueError, match="no gap exceeds"):
        cfair.gap_sample_size("tpr", **TWO, tolerance=0.2).plot()
    matplotlib.pyplot.close("all")


def test_power_on_the_command_line(tmp_path, capsys):
    options = ["--share", ".468", "--prevalence", ".112", "--sensitivity", ".927"]
    options += ["--specificity", ".301", "--n", "4230", "--power", ".9", "--out", str(tmp_path)]
    assert main(["power", *options]) == 0
    said = capsys.readouterr().out
    plan = cfair.equivalence_plan(4230, **COLORECTAL, power=0.9)
    assert str(plan) in said
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"power.txt", "power.csv", "power_prevalence.csv", "power_by_n.png",
                     "power_by_margin.png"}  # fmt: skip
    written = pd.read_csv(tmp_path / "power.csv")
    np.testing.assert_allclose(written["power"], plan.frame["power"])


def test_power_on_the_command_line_explains_errors(capsys):
    options = ["power", "--share", ".4", "--prevalence", ".1", "--sensitivity", ".9"]
    assert main([*options, "--specificity", "30"]) == 2
    assert "specificity must lie between 0 and 1, not 30. Percent" in capsys.readouterr().err
    assert main([*options, "--specificity", ".3", "--contrast", "difference"]) == 2
    assert "give --margin" in capsys.readouterr().err


# -- the ends of what can be asked ----------------------------------------------------------------

SHARED = {"share": 0.25, "prevalence": 0.25, "sensitivity": 0.75}


@pytest.mark.parametrize(
    ("changes", "contrast"),
    [({"share": 1e-12}, "ratio"), ({"prevalence": 1e-15}, "ratio"),
     ({"share": 0.1, "prevalence": 0.1, "sensitivity": 0.5}, "difference")],
)  # fmt: skip
@pytest.mark.parametrize("method", ["wald", "score"])
def test_a_margin_that_no_contrast_can_have_is_missing_and_says_why(changes, contrast, method):
    found = cfair.equivalence_margin(
        "tpr", n=20, **{**SHARED, **changes}, contrast=contrast, method=method
    )
    row = found.frame.iloc[0]
    assert np.isnan(found.values).all()
    assert "wide enough" in row["note"]
    assert "no margin will do" in str(found)


def test_a_size_out_of_reach_is_not_called_outside_the_margin():
    found = cfair.equivalence_sample_size("tpr", share=0.25, prevalence=1e-15, sensitivity=0.75)
    assert np.isnan(found.values)
    assert "too few patients" in found.frame.loc[0, "note"]
    assert "9e15" in str(found)
    assert "not inside" not in str(found)


def test_arguments_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"prevalence \(2,\), reference_prevalence \(2,\)"):
        cfair.equivalence_power("tpr", n=[10, 20, 30] * 2, share=0.2, sensitivity=0.5,
                                prevalence=[0.1, 0.2])  # fmt: skip
    with pytest.raises(ValueError, match="pairs of numbers in a plan"):
        cfair.equivalence_plan(500, **SHARED, specificity=0.75, margin=([0.8, 0.9], 1.2))
    with pytest.raises(ValueError, match="not none"):
        cfair.equivalence_power("tpr", n=500, **SHARED, margin={})
    with pytest.raises(ValueError, match="no study has it"):
        cfair.equivalence_sample_size("tpr", **SHARED, power=1)
    two = {"sensitivity": [0.7, 0.8], "prevalence": 0.2}
    for name in ("alpha", "tolerance", "power"):
        with pytest.raises(ValueError, match=f"{name} must be one number"):
            cfair.gap_sample_size("sensitivity", **two, **{name: [0.05, 0.1]})
    with pytest.raises(ValueError, match="place or the name"):
        cfair.gap_sample_size("sensitivity", **two, reference=-1)


def test_a_gap_of_nothing_is_no_gap():
    found = cfair.gap_sample_size("sensitivity", sensitivity=[0.7, 0.7 + 1e-9], prevalence=0.2)
    assert found.n is None
    assert "nothing to detect" in found.frame.loc[0, "note"]
    tiny = cfair.gap_sample_size("sensitivity", sensitivity=[0.1, 0.9], prevalence=0.9, power=0.01)
    assert tiny.plot() is not None
    plt.close("all")


def test_patients_of_a_gap_study_are_whole_in_each_group():
    two = {"sensitivity": [0.7, 0.8], "prevalence": [0.1, 0.25]}
    found = cfair.gap_sample_size("sensitivity", **two)
    least = next(
        n for n in range(found.n - 2, found.n + 1)
        if cfair.gap_power("sensitivity", n=n, **two).frame.loc[0, "power"] >= 0.8
    )  # fmt: skip
    assert least <= found.n <= least + 1
    assert (found.groups["n"] % 1 == 0).all()
    assert "each group rounded up" in str(found)


def test_a_group_without_a_gap_that_counts_is_left_out_in_words():
    found = cfair.gap_sample_size(
        "sensitivity", sensitivity=[0.7, 0.71, 0.9], prevalence=0.2, tolerance=0.05,
        groups=["A", "B", "C"], reference="A",
    )  # fmt: skip
    assert found.groups.loc[1, "n"] == 0
    assert "No patients of B" in str(found)
    assert "-0.0" not in str(found)


def test_power_is_marked_at_each_level_that_was_wanted():
    found = cfair.equivalence_sample_size("tpr", **SHARED, power=[0.8, 0.9])
    texts = [t.get_text() for t in found.plot().get_legend().get_texts()]
    assert any("N = 1,224" in t for t in texts)
    assert any(f"N = {found.values[1]:,.0f}" in t for t in texts)
    assert {"power 0.8", "power 0.9"} <= set(texts)
    plt.close("all")
    margins = cfair.equivalence_margin("tpr", n=1224, **SHARED, power=[0.8, 0.9])
    texts = [t.get_text() for t in margins.plot().get_legend().get_texts()]
    assert any("0.800 to 1.250" in t for t in texts)
    assert any(f"{margins.values[0][1]:.3f} to" in t for t in texts)
    plt.close("all")


def test_a_margin_is_drawn_for_a_given_n_only():
    with pytest.raises(ValueError, match="given N"):
        cfair.equivalence_plan(**SHARED, specificity=0.75).plot_margin()


def test_a_plan_has_both_sizes():
    plan = cfair.equivalence_plan(**SHARED, specificity=0.75)
    row = plan.frame.set_index("metric").loc["tpr"]
    assert (row["n_needed"], row["n_score"]) == (1224, 1300)
    assert "N, score" in str(plan)
    by_score = cfair.equivalence_plan(**SHARED, specificity=0.75, method="score")
    assert by_score.frame.set_index("metric").loc["tpr", "n_needed"] == 1300
    assert "N, score" not in str(by_score)


@pytest.mark.parametrize("beyond", [-0.3, -0.1, 0.0])
def test_no_gap_beyond_the_tolerance_is_detected_in_less_than_half_of_alpha(beyond):
    power = gap_detection(np.array(beyond), np.array(1.0), 400, 0.05)
    assert power <= 0.025 + 1e-12
    assert (power < 0.02) == (beyond < 0)
