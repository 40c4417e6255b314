"""The simulated cohorts have the rates, the models and the columns that they promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from cfair.datasets import (
    DESIGNS,
    Covariate,
    Design,
    load_cohort,
    simulate_cohort,
    true_disparities,
    true_rates,
)
from cfair.datasets.build import make_cohort, write_cohort
from cfair.errors import DataError

N = 200_000
GENERATIVE = [name for name, design in DESIGNS.items() if isinstance(design, Design)]
CLINICAL = [
    *("readmitted", "risk", "treated", "sex", "race", "age", "sbp", "bmi", "zip_income"),
    *("readmitted_untreated", "readmitted_treated"),
]
FOUR_COVARIATES = ["y", "score", "s", "d", "a1", "a2", "x1", "x2", "x3", "x4"]
TWO_GROUPS = Design(
    name="two groups",
    attributes={"sex": ("F", "M")},
    shares=(0.5, 0.5),
    prevalence=(0.3, 0.2),
    cfpr=(0.1, 0.2),
    cfnr=(0.3, 0.3),
    covariates=(Covariate("age", event_shift=0.5, treatment=0.4, centre=60, scale=9),),
    treatment_intercept=(-0.5, -0.5),
)


@pytest.fixture(scope="module")
def cohorts():
    """Each design once, 200,000 rows, drawn when first asked for."""
    drawn = {}

    def get(name):
        if name not in drawn:
            drawn[name] = simulate_cohort(N, seed=20260, design=name)
        return drawn[name]

    return get


def names_of(name):
    design = DESIGNS[name]
    return (
        getattr(design, "outcome", "y"),
        getattr(design, "score", "score"),
        getattr(design, "treatment", "d"),
        list(design.attributes),
    )


def group_codes(cohort, name):
    attributes = list(DESIGNS[name].attributes)
    rates = true_rates(name)[attributes].assign(code=range(len(true_rates(name))))
    return cohort[attributes].merge(rates, on=attributes, how="left")["code"].to_numpy()


@pytest.mark.parametrize("name", DESIGNS)
def test_potential_outcomes_have_the_true_rates(cohorts, name):
    cohort, truth = cohorts(name), true_rates(name)
    outcome, score, _, _ = names_of(name)
    y0 = cohort[f"{outcome}_untreated"].to_numpy()
    s = (cohort[score] >= 0.5).to_numpy()
    code = group_codes(cohort, name)
    for k, row in enumerate(truth.itertuples()):
        group = code == k
        for found, expected in (
            (s[group & (y0 == 0)], row.cfpr),
            (~s[group & (y0 == 1)], row.cfnr),
            (y0[group], row.prevalence),
            (group, row.share),
        ):
            sd = np.sqrt(expected * (1 - expected) / len(found))
            assert abs(found.mean() - expected) < 4.5 * sd


@pytest.mark.parametrize("name", DESIGNS)
def test_outcome_is_the_potential_outcome_of_the_treatment_given(cohorts, name):
    cohort = cohorts(name)
    outcome, _, treatment, _ = names_of(name)
    y0, y1 = cohort[f"{outcome}_untreated"], cohort[f"{outcome}_treated"]
    np.testing.assert_array_equal(cohort[outcome], np.where(cohort[treatment] == 1, y1, y0))
    if name != "fair-score":  # there Y1 is drawn apart from Y0
        assert (y1 <= y0).all()


@pytest.mark.parametrize("name", DESIGNS)
def test_score_is_a_probability_and_gives_the_flag(cohorts, name):
    cohort = cohorts(name)
    _, score, _, _ = names_of(name)
    assert cohort[score].between(0, 1).all()
    if name != "known-rates":
        assert ((cohort[score] > 0) & (cohort[score] < 1)).all()
    if name != "clinical":
        np.testing.assert_array_equal(cohort["s"], (cohort[score] >= 0.5).astype(int))


@pytest.mark.parametrize("name", GENERATIVE)
def test_propensity_is_logistic_with_the_designed_coefficients(cohorts, name):
    cohort, design = cohorts(name), DESIGNS[name]
    flag = (cohort[design.score] >= 0.5).astype(float)
    by_score = cohort[design.score] if design.treatment_score else flag
    groups = np.eye(len(design.shares))[group_codes(cohort, name)]
    fit = sm.Logit(
        cohort[design.treatment].to_numpy(),
        np.column_stack([groups, by_score, standardized(cohort, design)]),
    ).fit(disp=0)
    designed = [
        *design.treatment_intercept,
        design.treatment_score or design.treatment_flag,
        *(c.treatment for c in design.covariates),
    ]
    assert np.abs((fit.params - designed) / fit.bse).max() < 4.5


@pytest.mark.parametrize("name", GENERATIVE)
def test_outcome_among_the_untreated_is_logistic_by_bayes_rule(cohorts, name):
    cohort, design = cohorts(name), DESIGNS[name]
    untreated = (cohort[design.treatment] == 0).to_numpy()
    flag = (cohort[design.score] >= 0.5).to_numpy()
    groups = np.eye(len(design.shares))[group_codes(cohort, name)]
    X = np.column_stack([groups, groups * flag[:, None], standardized(cohort, design)])
    fit = sm.Logit(cohort[design.outcome].to_numpy()[untreated], X[untreated]).fit(disp=0)
    assert np.abs((fit.params - outcome_coefficients(design)) / fit.bse).max() < 4.5


def standardized(cohort, design):
    return np.column_stack([(cohort[c.name] - c.centre) / c.scale for c in design.covariates])


def outcome_coefficients(design):
    """Log odds of Y0 given (A, S, X): intercepts by group, by group and flag, and slopes."""
    n_groups, p = len(design.shares), len(design.covariates)
    covariance = np.full((p, p), design.correlation) + (1 - design.correlation) * np.eye(p)
    event_shift = np.array([c.event_shift for c in design.covariates])
    flag_shift = np.array([c.flag_shift for c in design.covariates])
    group_shift = np.array([c.group_shift or (0.0,) * n_groups for c in design.covariates]).T
    slopes = np.linalg.solve(covariance, event_shift)
    prevalence, cfpr, cfnr = map(np.array, (design.prevalence, design.cfpr, design.cfnr))
    unflagged = np.log(prevalence * cfnr / ((1 - prevalence) * (1 - cfpr)))
    flagged = np.log(prevalence * (1 - cfnr) / ((1 - prevalence) * cfpr))
    intercept = unflagged - (group_shift + event_shift / 2) @ slopes
    return np.concatenate([intercept, flagged - unflagged - flag_shift @ slopes, slopes])


def test_known_rates_design_reproduces_the_observed_rates_computed_elsewhere(cohorts):
    # Groups 00, 01, 10, 11; computed with separate code at n = 2,000,000.
    cohort = cohorts("known-rates")
    code = group_codes(cohort, "known-rates")
    y, s = cohort["y"].to_numpy(), cohort["s"].to_numpy()
    fpr = [s[(code == k) & (y == 0)].mean() for k in range(4)]
    fnr = [1 - s[(code == k) & (y == 1)].mean() for k in range(4)]
    np.testing.assert_allclose(fpr, [0.1594, 0.2224, 0.1647, 0.2537], atol=0.009)
    np.testing.assert_allclose(fnr, [0.1951, 0.2939, 0.2453, 0.3420], atol=0.023)


def test_fair_score_truth_is_the_published_quadrature():
    truth = true_rates("fair-score")
    np.testing.assert_allclose(truth["cfpr"], 0.181970, atol=5e-7)
    np.testing.assert_allclose(truth["cfnr"], 0.5, atol=1e-12)
    np.testing.assert_allclose(truth["prevalence"], 0.397973, atol=5e-7)


def test_fair_score_observed_rates_and_treatment_are_the_published_ones(cohorts):
    cohort = cohorts("fair-score")
    for level, fpr, fnr, treated in (
        ("0", 0.291912, 0.632131, 0.397973),
        ("1", 0.305157, 0.664612, 0.714260),
    ):
        group = cohort[cohort["a"] == level]
        assert group.loc[group["y"] == 0, "s"].mean() == pytest.approx(fpr, abs=0.008)
        assert 1 - group.loc[group["y"] == 1, "s"].mean() == pytest.approx(fnr, abs=0.021)
        assert group["d"].mean() == pytest.approx(treated, abs=0.007)


def test_known_rates_truth_is_in_the_order_of_an_audit():
    truth = true_rates("known-rates")
    assert list(truth) == ["a1", "a2", "cfpr", "cfnr", "share", "prevalence"]
    assert list(zip(truth["a1"], truth["a2"], strict=True)) == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
        ("1", "1"),
    ]
    assert truth["cfpr"].tolist() == [0.10, 0.20, 0.15, 0.25]
    assert truth["cfnr"].tolist() == [0.20, 0.30, 0.25, 0.35]


@pytest.mark.parametrize("name", DESIGNS)
def test_levels_are_sorted_and_shares_sum_to_one(name):
    for levels in DESIGNS[name].attributes.values():
        assert list(levels) == sorted(levels)
    assert true_rates(name)["share"].sum() == pytest.approx(1)


@pytest.mark.parametrize("name", [name for name in DESIGNS if name.startswith("fair")])
def test_fair_designs_have_no_disparity(name):
    assert np.allclose(true_disparities(name)["value"].dropna(), 0)


def test_disparities_by_hand():
    # Rates .1, .2, .4: differences .1, .3, .2.
    three = replace(
        TWO_GROUPS,
        attributes={"site": ("a", "b", "c")},
        shares=(0.2, 0.3, 0.5),
        prevalence=(0.3,) * 3,
        cfpr=(0.1, 0.2, 0.4),
        cfnr=(0.3,) * 3,
        treatment_intercept=(0.0,) * 3,
    )
    found = true_disparities(three).set_index(["metric", "statistic"])["value"]
    assert found["cfpr", "average"] == pytest.approx(0.2)
    assert found["cfpr", "maximum"] == pytest.approx(0.3)
    assert found["cfpr", "variance"] == pytest.approx(0.01)


def test_variance_of_one_pair_is_nan():
    found = true_disparities(TWO_GROUPS).set_index(["metric", "statistic"])["value"]
    assert found["cfpr", "average"] == pytest.approx(0.1)
    assert np.isnan(found["cfpr", "variance"])


def test_smallest_group_is_mostly_treated_where_treatment_follows_the_group(cohorts):
    cohort = cohorts("treatment-by-group")
    treated = cohort.groupby(["a1", "a2"])["d"].mean()
    assert treated["b", "v"] == pytest.approx(0.63, abs=0.02)
    assert treated["a", "u"] < 0.3


@pytest.mark.parametrize("name", DESIGNS)
def test_columns_and_dtypes(cohorts, name):
    cohort = cohorts(name)
    expected = {
        "clinical": CLINICAL,
        "fair-score": ["y", "score", "s", "d", "a", "x", "y_untreated", "y_treated"],
    }.get(name, [*FOUR_COVARIATES, "y_untreated", "y_treated"])
    assert list(cohort) == expected
    outcome, score, treatment, attributes = names_of(name)
    binary = [outcome, treatment, f"{outcome}_untreated", f"{outcome}_treated"]
    assert all(cohort[column].dtype == np.int64 for column in binary)
    assert all(cohort[column].isin([0, 1]).all() for column in binary)
    assert cohort[score].dtype == np.float64
    for attribute in attributes:
        assert set(map(type, cohort[attribute].unique())) == {str}
    assert cohort.index.equals(pd.RangeIndex(N))
    assert cohort.notna().all(axis=None)


@pytest.mark.parametrize("name", DESIGNS)
def test_same_seed_same_cohort(name):
    one = simulate_cohort(50, seed=3, design=name)
    pd.testing.assert_frame_equal(one, simulate_cohort(50, seed=3, design=name))
    assert not one.equals(simulate_cohort(50, seed=4, design=name))


def test_seed_may_be_a_sequence_or_a_generator():
    by_int = simulate_cohort(50, seed=3)
    by_sequence = simulate_cohort(50, seed=np.random.SeedSequence(3))
    rng = np.random.default_rng(3)
    pd.testing.assert_frame_equal(by_int, by_sequence)
    pd.testing.assert_frame_equal(by_int, simulate_cohort(50, seed=rng))
    assert not by_int.equals(simulate_cohort(50, seed=rng))


def test_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()
    simulate_cohort(50, seed=3)
    np.testing.assert_array_equal(before, np.random.get_state()[1])


def test_one_row_is_a_cohort():
    assert len(simulate_cohort(1, seed=0)) == 1
    assert len(simulate_cohort(np.int32(2), seed=0)) == 2


@pytest.mark.parametrize("n", [0, -1, 2.5, 10.0, "10", None, True, np.nan])
def test_n_must_be_a_whole_number_of_rows(n):
    with pytest.raises(DataError, match="n must be a whole number"):
        simulate_cohort(n, seed=0)


@pytest.mark.parametrize("design", ["clinic", "", None, 3])
def test_unknown_design_lists_what_is_allowed(design):
    for call in (true_rates, true_disparities, lambda d: simulate_cohort(5, seed=0, design=d)):
        with pytest.raises(ValueError, match=r"'clinical', 'unequal'.*'fair-score'"):
            call(design)


def test_design_of_ones_own():
    cohort = simulate_cohort(N, seed=5, design=TWO_GROUPS)
    events = cohort[cohort["y_untreated"] == 1]
    assert 1 - events["s"].mean() == pytest.approx(0.3, abs=0.01)
    assert true_rates(TWO_GROUPS)["cfpr"].tolist() == [0.1, 0.2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shares": (0.5, 0.6)}, "shares must sum to 1, but sum to 1.1"),
        ({"cfpr": (0.1, 1.2)}, r"cfpr must hold probabilities .* 1 of 2 do not: 1.2"),
        ({"prevalence": (0.3,)}, "prevalence has 1 values, .* 2 groups"),
        ({"treatment_intercept": (0.0,) * 3}, "treatment_intercept has 3 values"),
        ({"covariates": (Covariate("x", group_shift=(1.0,)),)}, "covariate 'x' has 1 values"),
        ({"event_if_treated": -0.1}, "event_if_treated"),
        ({"covariates": (Covariate("x", scale=0.0),)}, "scale of covariate 'x' must be above 0"),
        ({"covariates": (Covariate("sex"),)}, "'sex' is used more than once"),
        ({"correlation": 1.0}, "correlation must be in"),
    ],
)
def test_impossible_design_is_refused(changes, message):
    with pytest.raises(DataError, match=f"design 'two groups': .*{message}"):
        replace(TWO_GROUPS, **changes)


def test_rounded_score_never_crosses_the_cutoff():
    coarse = replace(TWO_GROUPS, score_decimals=1)
    cohort = simulate_cohort(10_000, seed=6, design=coarse)
    np.testing.assert_array_equal(cohort["s"], cohort["score"] >= 0.5)
    assert cohort["score"].between(0.1, 0.9).all()


def test_shipped_cohort_is_what_its_recipe_makes():
    # Should a later numpy draw other numbers from the same seed, write the file anew.
    pd.testing.assert_frame_equal(load_cohort(), make_cohort(), check_exact=True)


def test_written_file_carries_no_time_stamp(tmp_path):
    for name in ("one.gz", "two.gz"):
        write_cohort(tmp_path / name)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    assert (tmp_path / "one.gz").read_bytes()[4:8] == bytes(4)


def test_shipped_cohort_holds_what_its_docstring_says():
    cohort = load_cohort()
    assert list(cohort) == CLINICAL[:-2]
    assert cohort.shape == (5000, 9)
    assert cohort.isna().sum().to_dict() == {**dict.fromkeys(cohort, 0), "bmi": 38}
    assert set(cohort["sex"]) == {"F", "M"}
    assert set(cohort["race"]) == {"Black", "Other", "White"}
    assert cohort["age"].between(18, 105).all()
    assert cohort["sbp"].between(60, 220).all()
    assert cohort["sbp"].dtype == np.int64
    assert cohort["zip_income"].gt(0).all()
    sizes = cohort.groupby(["sex", "race"]).size()
    assert sizes.idxmin() == ("M", "Other")
    assert 250 <= sizes.min() <= 300


def test_weighting_the_shipped_cohort_comes_near_the_truth_and_counting_does_not():
    cohort, truth = load_cohort(), true_rates().set_index(["sex", "race"])
    dummies = pd.get_dummies(cohort["sex"] + cohort["race"], dtype=float)
    X = np.column_stack([dummies, cohort[["risk", "age", "sbp"]]])
    d, y, s = cohort["treated"], cohort["readmitted"], cohort["risk"] >= 0.5
    w = (1 - d) / (1 - sm.Logit(d, X).fit(disp=0).predict(X))
    group = [cohort["sex"], cohort["race"]]

    def rate(numerator, denominator):
        return numerator.groupby(group).sum() / denominator.groupby(group).sum()

    weighted = rate(w * s * (1 - y), w * (1 - y))
    observed = rate(s * (1 - y), 1 - y)
    assert (weighted - truth["cfpr"]).abs().max() < 0.07
    gap = ("F", "Black"), ("M", "White")
    true_gap = truth["cfpr"][gap[0]] - truth["cfpr"][gap[1]]
    assert weighted[gap[0]] - weighted[gap[1]] == pytest.approx(true_gap, abs=0.02)
    assert observed[gap[0]] - observed[gap[1]] < true_gap - 0.02
