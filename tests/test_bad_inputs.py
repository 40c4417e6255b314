"""Inputs that are easily got wrong, through the front door: each id is a function of bad_inputs."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import bad_inputs as bad
import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from test_fuzz import silent

import cfair
from cfair import metrics
from cfair.cli import main as command
from cfair.errors import (
    CfairWarning,
    CutoffWarning,
    DataError,
    FormulaError,
    ModelWarning,
    OverlapWarning,
    RankWarning,
    SeparationWarning,
    SmallGroupWarning,
)
from cfair.faircfint import analysis_estimation

ROLES = {"outcome": "y", "score": "s", "cutoff": 0.5, "groups": ["sex", "race"]}
FORMULA = "d ~ sex * race + s + age"


def audit(table, **changes):
    return cfair.Audit(table, **{**ROLES, **changes})


def rates(table, formula=FORMULA, **changes):
    return audit(table, **changes).counterfactual(formula).rates


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(one, other, rtol=1e-12, atol=1e-14)


def test_bl01_series_under_the_same_index_is_aligned_and_under_another_refused():
    table, shuffled = bad.bl01_series_in_another_order()
    plain = rates(bad.cohort())
    same(rates(table, groups=["sex", shuffled]), plain)
    moved = shuffled.set_axis(np.arange(len(shuffled)) + 5)
    with pytest.raises(DataError, match="index"):
        audit(table, groups=["sex", moved])


@pytest.mark.parametrize(
    "index", [None, "repeated", "multi"], ids=["gaps", "repeated labels", "MultiIndex"]
)
def test_bl02_any_index_gives_the_numbers_of_a_plain_one(index):
    table = bad.bl02_gaps_in_index()
    if index == "repeated":
        table = table.set_axis(np.arange(len(table)) // 3)
    if index == "multi":
        table = table.set_axis(
            pd.MultiIndex.from_arrays([np.arange(len(table)) // 7, np.arange(len(table))])
        )
    same(rates(table), rates(table.reset_index(drop=True)))


def test_bl04_rows_come_back_on_the_callers_index():
    table = bad.bl04_unsorted_index_with_missing_covariate()
    result = audit(table, missing="drop").counterfactual(FORMULA)
    complete = table.dropna()
    assert list(result.weights.index) == list(complete.index)
    treated = result.weights == 0
    assert (treated == (complete["d"] == 1)).all()


@pytest.mark.parametrize("marker", [np.nan, None, pd.NA], ids=["nan", "None", "NA"])
def test_bl05_missing_group_is_refused_dropped_or_a_level(marker):
    table = bad.bl05_missing_group(marker)
    with pytest.raises(DataError, match=r"'race' \(10 rows\)"):
        audit(table)
    dropped = audit(table, missing="drop").observed()
    assert dropped.cohort.dropped.n == 10
    assert "10 dropped: race missing" in str(dropped)
    level = audit(table, missing="level").observed()
    assert "missing" in level.cohort.groups.levels[1]
    assert level.rates.query("metric == 'fpr'")["n"].sum() == 600


def test_bl06_missing_value_in_a_formula_column_counts_for_the_whole_analysis():
    table, _, _ = bad.bl06_missing_in_one_formula_only()
    table["bmi"] += table["age"] % 7
    with pytest.raises(DataError, match=r"'bmi' \(20 rows\)"):
        audit(table).counterfactual(FORMULA + " + bmi")
    result = audit(table, missing="drop").counterfactual(FORMULA + " + bmi")
    assert result.cohort.n_used == 580
    assert "580 used (20 dropped: bmi missing)" in str(result)
    # a column that no formula of this analysis uses drops nothing
    assert audit(table).counterfactual(FORMULA).cohort.n_used == 600


def test_bl07_missing_outcome_is_named_with_its_count():
    with pytest.raises(DataError, match=r"'y' \(30 rows\)"):
        audit(bad.bl07_missing_outcome())


def test_bl08_side_arrays_follow_the_rows():
    table, _, cluster = bad.bl08_missing_row_with_side_arrays()
    by_array = audit(table, missing="drop", cluster=cluster).counterfactual(FORMULA)
    named = table.assign(site=cluster)
    by_name = audit(named, missing="drop", cluster="site").counterfactual(FORMULA)
    same(by_array.rates, by_name.rates)


def test_bl11_boolean_outcome_is_0_1():
    same(rates(bad.bl11_boolean_outcome()), rates(bad.cohort()))


def test_bl12_text_outcome_needs_its_event_named():
    table = bad.bl12_text_outcome()
    with pytest.raises(
        DataError, match=r"(?s)'y' must be 0/1 .* 'alive' .* 'died' .*outcome_event="
    ):
        audit(table)
    same(rates(table, outcome_event="died"), rates(bad.cohort()))


@pytest.mark.parametrize("codes", [(1, 2), (-1, 1), (0, 100)])
def test_bl13_other_codes_are_never_guessed(codes):
    table = bad.bl13_other_codes(codes)
    with pytest.raises(DataError, match="outcome_event="):
        audit(table)
    same(rates(table, outcome_event=codes[1]), rates(bad.cohort()))


@pytest.mark.parametrize("dtype", ["str", "string", "string[pyarrow]", object, "category"])
def test_bl15_text_of_every_kind_gives_the_same_numbers(dtype):
    same(rates(bad.bl15_string_dtypes(dtype)), rates(bad.cohort()))


def test_bl16_integer_groups_are_categories_in_formulas():
    numbers = rates(bad.bl16_integer_groups())
    text = rates(bad.cohort())
    columns = ["estimate", "se", "ci_low", "ci_high"]
    np.testing.assert_allclose(numbers[columns], text[columns], rtol=1e-12)


def test_bl18_the_order_of_a_binned_age_is_kept():
    result = audit(bad.bl18_binned_age_group(), groups="age_band").observed()
    assert list(result.rates["group"][:3]) == ["(0, 50]", "(50, 65]", "(65, 120]"]


@pytest.mark.parametrize("kind", ["polars", "lazy", "pyarrow", "duckdb", "dict"])
def test_bl20_every_frame_gives_the_same_numbers(kind):
    table = bad.cohort()
    if kind in ("polars", "lazy"):
        other = bad.bl20_polars_frame()
        other = other.lazy() if kind == "lazy" else other
    elif kind == "pyarrow":
        other = pytest.importorskip("pyarrow").Table.from_pandas(table)
    elif kind == "duckdb":
        other = pytest.importorskip("duckdb").from_df(table.astype({"sex": object, "race": object}))
    else:
        other = {name: table[name].to_numpy() for name in table}
    same(rates(other), rates(table))


def test_bl21_group_without_events_keeps_its_row_and_leaves_the_pairs():
    result = audit(bad.bl21_group_without_positives()).counterfactual(FORMULA)
    cfnr = result.rates.query("metric == 'cfnr' and race == 'Other'")
    assert cfnr["estimate"].isna().all()
    assert set(cfnr["note"]) == {"no events among the untreated"}
    assert cfnr["n"].min() > 0
    tests = result.test_equal().set_index("metric")
    assert tests.loc["cfnr", "df"] == 3
    assert "F & Other" in tests.loc["cfnr", "note"]
    assert "cFNR is undefined in F & Other (no events among the untreated)" in str(result)
    assert np.isfinite(result.disparities["estimate"]).all()


def test_bl22_empty_intersection_is_listed_with_n_0():
    with pytest.warns(RankWarning, match="sex"):
        result = audit(bad.bl22_empty_cell()).counterfactual(FORMULA)
    row = result.rates.query("metric == 'cfpr' and group == 'F & Other'").iloc[0]
    assert (row["n"], row["note"]) == (0, "no rows")
    assert np.isnan(row["estimate"])


def test_bl23_group_of_one_is_shown_with_an_honest_interval():
    table = bad.bl23_one_person_group()
    result = audit(table, groups="race").observed()
    for metric in ("fpr", "tpr", "selection_rate"):
        row = result.rates.query(f"metric == '{metric}' and group == 'Islander'").iloc[0]
        assert row["n"] == 1
        if np.isfinite(row["estimate"]):
            assert row["ci_high"] - row["ci_low"] > 0.7
    with pytest.warns(SeparationWarning, match="Islander"):
        weighted = audit(table, groups="race").counterfactual("d ~ race + s + age")
    one = weighted.rates.query("group == 'Islander'")
    defined = one[one["estimate"].notna()]
    assert ((defined["ci_high"] - defined["ci_low"]) > 0.7).all()


def test_bl25_labels_that_paste_alike_stay_two_groups():
    table = bad.bl25_labels_that_collide()
    result = audit(table, groups=["a", "b"]).observed()
    fpr = result.rates.query("metric == 'fpr'")
    assert fpr["group"].is_unique
    assert sorted(fpr["n"]) == [0, 0, 300, 300]
    long = audit(table, groups="long").observed()
    lines = [line for line in str(long).splitlines() if line.startswith("group")]
    assert len(set(lines)) == len(lines) == 2


def test_bl26_duplicate_column_is_refused():
    with pytest.raises(DataError, match="race"):
        audit(bad.bl26_duplicate_columns())


def test_bl27_one_group_gives_rates_but_no_comparison():
    result = audit(bad.bl27_single_group()).observed()
    assert "one group only" in str(result)
    for ask in (result.contrasts, result.test_equal):
        with pytest.raises(DataError, match="two groups"):
            ask()


def test_bl29_perfect_separation_warns_and_names_the_term():
    with pytest.warns(SeparationWarning, match="age"), pytest.warns(OverlapWarning):
        result = audit(bad.bl29_perfect_separation(), groups="sex").counterfactual("d ~ sex+s+age")
    assert "separated by" in str(result)
    assert result.overlap.truncated_high > 0


def test_bl30_separation_of_one_group_names_its_term():
    table = bad.cohort()
    table.loc[table["race"] == "Other", "d"] = 0
    with pytest.warns(SeparationWarning, match=r"race\[T.Other\]"):
        result = audit(table).counterfactual("d ~ sex + race + s + age")
    assert np.isfinite(result.rates.query("metric == 'cfpr'")["estimate"]).all()


def test_bl31_rank_deficiency_names_the_column_and_changes_no_rate():
    table = bad.bl31_rank_deficient()
    with pytest.warns(RankWarning, match=r"age_months, .*site|age_months"):
        result = audit(table).counterfactual(FORMULA + " + age_months + site")
    assert result.propensity.coefficients[["age_months", "site"]].isna().all()
    np.testing.assert_allclose(
        result.rates["estimate"], rates(bad.cohort())["estimate"], rtol=1e-10
    )


def test_bl34_statistics_of_a_column_are_refused_with_what_to_use_instead():
    table, _, _, _ = bad.bl34_transform_with_memory()
    with pytest.raises(FormulaError, match="center"):
        audit(table).counterfactual("d ~ I(age - np.mean(age))")
    centred = rates(table, "d ~ sex * race + s + center(age)")
    np.testing.assert_allclose(centred["estimate"], rates(table)["estimate"], rtol=1e-9)


def test_bl35_awkward_names_work_as_they_are():
    table = bad.bl35_awkward_names()
    result = cfair.Audit(
        table, outcome="y", score="risk-score", cutoff=0.5, groups=["class", "race.ethnicity"]
    ).counterfactual("d ~ class * race.ethnicity + risk-score + age at entry")
    np.testing.assert_allclose(result.rates["estimate"], rates(bad.cohort())["estimate"])
    assert "age at entry" in result.propensity.coefficients.index


def test_bl37_the_callers_variables_are_not_seen():
    table, _, _ = bad.bl37_caller_variables()
    bmi = np.zeros(len(table))
    assert len(bmi) == 600
    with pytest.raises(FormulaError, match="bmi"):
        audit(table).counterfactual("d ~ age + bmi")


def test_bl39_an_arm_that_cannot_have_happened_is_refused():
    table, given = bad.bl39_propensity_at_the_edge()
    with pytest.raises(DataError, match="exactly 0 .* treated and exactly 1"):
        audit(table, treatment="d").counterfactual(given)


def test_bl40_poor_overlap_is_said_and_counted():
    with pytest.warns(OverlapWarning) as caught:
        result = audit(bad.bl40_poor_overlap()).counterfactual(FORMULA)
    assert "poor overlap" in str(caught[0].message)
    assert "carry the weight of" in str(caught[1].message)
    cut = int(result.propensity.truncated.sum())
    assert cut > 0
    assert f"{cut:,} rows truncated to [0.005, 0.995]" in str(result)
    by_arm = result.overlap.propensities.query("group != 'all'")
    counted = by_arm["truncated_low"].sum() + by_arm["truncated_high"].sum()
    assert counted == cut


@pytest.mark.parametrize(("kind", "hint"), [("percent", "percent"), ("logit", "logit")])
def test_bl42_a_score_on_another_scale_is_refused_with_a_hint(kind, hint):
    with pytest.raises(DataError, match=hint):
        audit(bad.bl42_score_scale(kind))


def test_bl42_a_tie_at_the_cutoff_counts_as_positive():
    result = audit(bad.bl42_score_scale("ties"), groups="sex").observed()
    selected = result.overall.query("metric == 'selection_rate'")["estimate"].iloc[0]
    assert selected >= 0.5


def test_bl44_replicates_without_a_rate_are_counted():
    table = bad.bl44_rare_group_for_bootstrap()
    with pytest.warns(SeparationWarning, match="Islander"):
        result = audit(table, groups="race").counterfactual("d ~ race + s + age", n_boot=100)
    rows = result.bootstrap_intervals().query("group == 'Islander'")
    assert (rows["n_valid"] < 100).any()
    for row in rows.itertuples():
        assert np.isfinite(row.ci_low) or row.note
    assert "with an undefined rate" in str(result)


def test_bl46_a_permutation_p_value_is_never_zero():
    table, n_perm = bad.bl46_strong_effect_few_permutations()
    result = audit(table, groups="race").counterfactual("d ~ race + s + age", n_perm=n_perm, seed=1)
    p = result.disparities.query("metric == 'cfpr' and statistic == 'maximum'")["p_value"].iloc[0]
    assert p == pytest.approx(1 / (1 + n_perm))


def test_bl48_a_gap_is_printed_with_what_equal_groups_would_give():
    result = audit(bad.bl48_equal_groups(), groups="race").observed()
    row = result.disparities.query("metric == 'fpr' and statistic == 'maximum'").iloc[0]
    assert row["ci_low"] == 0
    assert row["expected_if_equal"] > 0.1
    assert "if equal" in str(result)


def test_bl50_numpys_global_state_is_neither_read_nor_changed():
    table, seed = bad.bl50_global_seed()
    before = np.random.get_state()[1].copy()
    one = audit(table).counterfactual(FORMULA, n_boot=30, n_perm=30, seed=seed)
    assert (np.random.get_state()[1] == before).all()
    np.random.seed(99)
    two = audit(table).counterfactual(FORMULA, n_boot=30, n_perm=30, seed=seed)
    pd.testing.assert_frame_equal(one.boot_draws, two.boot_draws)
    pd.testing.assert_frame_equal(one.null_draws, two.null_draws)


def test_bl51_the_level_printed_is_the_level_computed():
    table, level, _ = bad.bl51_interval_levels()
    narrow = audit(table).observed(level=level)
    wide = audit(table).observed()
    assert "80%" in str(narrow)
    ok = narrow.rates["estimate"].notna()
    width = narrow.rates["ci_high"] - narrow.rates["ci_low"]
    assert (width[ok] < (wide.rates["ci_high"] - wide.rates["ci_low"])[ok]).all()


def test_bl53_many_cells_are_cut_in_print_and_whole_in_the_frame():
    table = bad.bl53_many_cells().sample(20_000, random_state=0)
    result = audit(table, groups=["region", "decade"]).observed()
    K = result.cohort.groups.n_groups
    assert K > 300
    text = str(result)
    assert f"{K - 40} of {K} groups not shown" in text
    assert len(text.splitlines()) < 130
    levels = len(result.cohort.groups.margins)
    assert levels > 24
    assert f"... {levels - 24} levels not shown. The frame .marginals has all." in text
    assert (result.rates["metric"] == "fpr").sum() == K


def test_bl55_a_misspelt_option_is_a_type_error():
    table, options = bad.bl55_unknown_keyword()
    with pytest.raises(TypeError, match="n_boots"):
        audit(table).counterfactual(FORMULA, **options)


WRONG_VALUES = [
    ({"n_boot": -1}, "n_boot must be a whole number >= 1"),
    ({"n_boot": 10.5}, "n_boot must be a whole number >= 1"),
    ({"n_perm": "many"}, "n_perm must be a whole number >= 1"),
    (
        {"bootstrap": "patients", "n_boot": 10},
        "bootstrap must be one of 'auto', 'group', 'rows', 'cluster', 'faircfint', None",
    ),
    ({"interval": "wald"}, "interval must be one of 'wilson', 'logit', 'plain'"),
    ({"aggregate_interval": "percentile"}, "aggregate_interval must be one of 'tie-aware'"),
    ({"level": 95}, "level must be a confidence level between 0 and 1"),
    ({"truncation": (0.5, 0.1)}, "truncation must be"),
    ({"truncation": 0.01}, "truncation must be"),
    ({"seed": -3}, "seed must be a whole number"),
    ({"seed": "today"}, "seed must be a whole number"),
    ({"n_jobs": 0}, "n_jobs must be"),
]


@pytest.mark.parametrize(("option", "message"), WRONG_VALUES, ids=[str(o) for o, _ in WRONG_VALUES])
def test_a_wrong_value_is_refused_with_what_is_allowed(option, message):
    with pytest.raises(ValueError, match=message):
        audit(bad.cohort()).counterfactual(FORMULA, **option)


def test_the_nearest_of_the_values_is_named():
    asked = audit(bad.cohort())
    with pytest.raises(
        ValueError, match=r"metric must be one of .*not 'fprr'\. Did you mean 'fpr'"
    ):
        asked.interaction("fprr")
    with pytest.raises(ValueError, match=r"not 'Sensitivty'\. Did you mean 'sensitivity'\?$"):
        cfair.gap_sample_size("Sensitivty", prevalence=0.2, sensitivity=[0.6, 0.5])
    with pytest.raises(ValueError, match=r"not 'zzz'\.$"):
        asked.interaction("zzz")


def test_treatment_has_to_be_named_somewhere():
    with pytest.raises(DataError, match="no treatment is declared"):
        audit(bad.cohort()).counterfactual("~ age")


def test_left_side_must_be_the_declared_treatment():
    table = bad.cohort().assign(other=1 - bad.cohort()["d"])
    with pytest.raises(DataError, match="'other'.*'d'"):
        audit(table, treatment="d").counterfactual("other ~ age + s")


def test_a_cluster_bootstrap_needs_clusters():
    with pytest.raises(DataError, match="cluster="):
        audit(bad.cohort()).counterfactual(FORMULA, n_boot=5, bootstrap="cluster")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((2, 5), dtype=int), "shape"),
        (np.zeros((2, 600)), "whole numbers"),
        (np.full((2, 600), 600), "from 0 to 599"),
        (np.zeros((2, 600), dtype=int), "exactly once"),
    ],
)
def test_permutations_are_checked_before_any_work(given, message):
    with pytest.raises(DataError, match=message):
        audit(bad.cohort()).counterfactual(FORMULA, permutations=given)


@pytest.mark.parametrize(
    ("given", "message"),
    [([], "no replicate"), ([[0, 700]], "from 0 to 599"), ([[0.5]], "row numbers")],
)
def test_resamples_are_checked_before_any_work(given, message):
    with pytest.raises(DataError, match=message):
        audit(bad.cohort()).counterfactual(FORMULA, resamples=given)


def test_a_propensity_without_score_or_attributes_is_warned_of():
    with pytest.warns(ModelWarning) as caught:
        result = audit(bad.cohort()).counterfactual("d ~ age")
    said = " ".join(str(w.message) for w in caught)
    assert "leaves out the score" in said
    assert "leaves out sex, race" in said
    assert "score test" in said
    assert all(str(w.message) in result.notes for w in caught)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full(600, 1.5), "must lie in"),
        (np.full(600, np.nan), r"missing values in 'propensity' \(600 rows\)"),
        (np.full(5, 0.5), "5"),
        (pd.Series(0.5, index=np.arange(600) + 1000), "index"),
    ],
    ids=["outside", "missing", "length", "index"],
)
def test_given_propensities_are_checked(values, message):
    with pytest.raises(DataError, match=message):
        audit(bad.cohort(), treatment="d").counterfactual(values)


def test_a_clean_analysis_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", CfairWarning)
        result = audit(bad.cohort(5000), groups="sex").counterfactual("d ~ sex + s + age")
    assert result.notes == ()


# -- the outcome comes after the treatment ---------------------------------------------------------

OUTCOME_ON_THE_RIGHT = ["d ~ y", "d ~ sex * race + s + y", "d ~ s + C(y)", "d ~ s + age:y",
                        "d ~ s + I(y * age)", "~ s + y"]  # fmt: skip


@pytest.mark.parametrize("formula", OUTCOME_ON_THE_RIGHT)
def test_the_outcome_on_the_right_of_the_propensity_is_refused(formula):
    a = audit(bad.cohort(), treatment="d")
    with pytest.raises(DataError, match=r"outcome 'y' on its right side.*take it out"):
        a.counterfactual(formula)


def test_the_outcome_in_a_fitted_propensity_is_refused():
    table = bad.cohort()
    fit = smf.logit("d ~ s + age + y", table).fit(disp=0)
    with pytest.raises(DataError, match=r"outcome 'y' on its right side"):
        audit(table, treatment="d").counterfactual(fit)


def test_a_column_named_like_the_outcome_is_not_the_outcome():
    table = bad.cohort().assign(y2=lambda t: t["age"] / 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        audit(table).counterfactual("d ~ sex * race + s + y2")


# -- near copies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_near_copy_of_a_covariate_gives_no_separation_warning(seed):
    table = bad.cohort(600, seed)
    noise = 1e-7 * np.random.default_rng(seed).normal(size=600)
    table["age"] = (table["age"] - 60) / 10
    table["copy"] = table["age"] + noise
    with warnings.catch_warnings():
        warnings.simplefilter("error", SeparationWarning)
        result = audit(table).counterfactual("d ~ sex * race + s + age + copy")
    assert not any("separated" in note for note in result.notes)
    separated = table.assign(d=(table["age"] > 0.3).astype(int))
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        result = audit(separated).counterfactual("d ~ sex * race + s + age + copy")
    assert any(w.category is SeparationWarning for w in given)
    assert any("separated" in note for note in result.notes)


# -- where warnings point --------------------------------------------------------------------------


def small_group():
    audit(bad.cohort(), min_group_size=100)


def cutoff_on_another_scale():
    audit(bad.cohort(), cutoff=0.999999)


def score_left_out():
    audit(bad.cohort()).counterfactual("d ~ sex * race + age")


def attributes_left_out():
    audit(bad.cohort()).counterfactual("d ~ s + age", n_perm=2, n_boot=2)


def linear_combination():
    table = bad.cohort().assign(twice=lambda t: 2 * t["age"])
    audit(table).counterfactual(FORMULA + " + twice")


def separated_treatment():
    table = bad.cohort().assign(d=lambda t: (t["age"] > 60).astype(int))
    audit(table).counterfactual(FORMULA)


WARNINGS = [
    (small_group, SmallGroupWarning),
    (cutoff_on_another_scale, CutoffWarning),
    (score_left_out, ModelWarning),
    (attributes_left_out, ModelWarning),
    (linear_combination, RankWarning),
    (separated_treatment, SeparationWarning),
]


@pytest.mark.parametrize(("call", "category"), WARNINGS, ids=[w[0].__name__ for w in WARNINGS])
def test_a_warning_points_to_the_line_of_the_caller(call, category):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        call()
    found = [w for w in given if issubclass(w.category, CfairWarning)]
    assert any(w.category is category for w in found)
    for w in found:
        assert w.filename == __file__
        line = Path(__file__).read_text().splitlines()[w.lineno - 1]
        assert "cfair.Audit(" in line or ".counterfactual(" in line


# -- every input at every entry --------------------------------------------------------------------
# What an entry is asked of the same table; a refusal is a DataError, or status 2 of the command.


def by_verb(name, **options):
    def call(table, changes):
        result = getattr(audit(table, treatment="d", **changes), name)(**options)
        str(result)
        return result

    return call


def by_metric(function, column):
    def call(table, changes):
        t = pd.DataFrame(table) if isinstance(table, dict) else to_pandas(table)
        groups = changes.get("groups", ["sex", "race"])
        call = t["s"] >= 0.5 if column == "call" else t["s"]
        missing = changes.get("missing", "raise")
        return function(t["y"], call, sensitive_features=t[groups], missing=missing)

    return call


def to_pandas(table):
    return table if isinstance(table, pd.DataFrame) else table.to_pandas()


def by_representation(table, changes):
    result = cfair.representation_of(
        table,
        changes.get("groups", ["sex", "race"]),
        outcome="y",
        outcome_event=changes.get("outcome_event"),
        missing=changes.get("missing", "raise"),
    )
    str(result)
    return result


def by_fit(table, changes):
    given = {"groups": ["sex", "race"], "outcome": "y", **changes}
    result = cfair.fit_and_audit(table, features=["age"], cutoff=0.4, **given)
    str(result)
    return result


def by_r(table, changes):
    t = to_pandas(table)
    if changes.get("missing") == "drop":
        t = t.dropna()
    if "outcome_event" in changes:
        t = t.assign(y=(t["y"] == changes["outcome_event"]).astype(int))
    names = {"sex": "A1", "race": "A2", "y": "Y", "d": "D", "s": "S_prob"}
    t = t.rename(columns=names)[[*names.values(), "age"]]
    model, used = "D ~ A1 * A2 + S_prob + age", ["A1", "A2", "S_prob", "age"]
    result = analysis_estimation(t, cutoff=0.5, pi_model=model, pi_xvars=used)
    str(result)
    return result


def by_command(table, changes):
    """The shell: a CSV file has no index, and text for every type."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.csv"
        to_pandas(table).to_csv(file, index=False)
        groups = changes.get("groups", ["sex", "race"])
        asked = ["audit", file, "--outcome", "y", "--score", "s", "--cutoff", "0.5",
                 "--groups", *groups, "--propensity", FORMULA]  # fmt: skip
        for name in ("missing", "outcome_event"):
            if name in changes:
                asked += [f"--{name.replace('_', '-')}", str(changes[name])]
        said = StringIO()
        with redirect_stderr(said), redirect_stdout(StringIO()):
            status = command([str(word) for word in asked])
        assert "Traceback" not in said.getvalue()
        if status:
            raise DataError(said.getvalue())


ENTRIES = {
    "observed": by_verb("observed"),
    "performance": by_verb("performance"),
    "interaction": by_verb("interaction"),
    "representation": by_verb("representation"),
    "equivalence": by_verb("equivalence"),
    "table_one": by_verb("table_one"),
    "counterfactual": by_verb("counterfactual", propensity=FORMULA, n_boot=4, n_perm=4),
    "doubly robust": by_verb(
        "counterfactual", propensity=FORMULA, outcome_model="y ~ sex + s + age"
    ),
    "small_subgroups": by_verb(
        "small_subgroups", propensity=FORMULA, outcome_model="~ age", membership="~ age", n_boot=3
    ),
    "group_intervention": by_verb("group_intervention", outcome_model="~ age", membership="~ age"),
    "metrics.group_rates": by_metric(metrics.group_rates, "call"),
    "metrics.gap_table": by_metric(metrics.gap_table, "call"),
    "metrics.auc": by_metric(metrics.auc, "score"),
    "representation_of": by_representation,
    "fit_and_audit": by_fit,
    "faircfint": by_r,
    "command": by_command,
}
VERBS = [name for name in ENTRIES if "." not in name][:10]
METRICS = ["metrics.group_rates", "metrics.gap_table", "metrics.auc"]
MODELS = ["counterfactual", "doubly robust", "small_subgroups", "group_intervention"]
ALL = "everywhere"
FINE = None


def table_of(function, *arguments, part=0):
    def make():
        found = function(*arguments)
        return found[part] if isinstance(found, tuple) else found

    return make


#: id -> (table, changes of the roles, what an entry says: a part of its message, or None if fine).
#: An entry that is not named says what `ALL` says. As in R, faircfint leaves out incomplete rows.
INPUTS = {
    "bl01": (table_of(bad.cohort), {}, {ALL: FINE}),
    "bl02": (table_of(bad.bl02_gaps_in_index), {}, {ALL: FINE}),
    "bl04": (
        table_of(bad.bl04_unsorted_index_with_missing_covariate),
        {},
        {ALL: FINE, **dict.fromkeys([*MODELS, "command"], "'age'"), "faircfint": FINE},
    ),
    "bl04 dropped": (
        table_of(bad.bl04_unsorted_index_with_missing_covariate), {"missing": "drop"}, {ALL: FINE},
    ),
    "bl05 nan": (table_of(bad.bl05_missing_group), {}, {ALL: "race|sensitive", "faircfint": FINE}),
    "bl05 None": (table_of(bad.bl05_missing_group, None), {}, {ALL: "race|sensitive", "faircfint": FINE}),  # noqa: E501
    "bl05 NA": (table_of(bad.bl05_missing_group, pd.NA), {}, {ALL: "race|sensitive", "faircfint": FINE}),  # noqa: E501
    "bl05 dropped": (table_of(bad.bl05_missing_group), {"missing": "drop"}, {ALL: FINE}),
    "bl05 level": (
        table_of(bad.bl05_missing_group), {"missing": "level"}, {ALL: FINE},
    ),
    "bl06": (table_of(bad.bl06_missing_in_one_formula_only), {}, {ALL: FINE}),
    "bl07": (
        table_of(bad.bl07_missing_outcome), {},
        {ALL: "'y'|y_true", "faircfint": "missing in 30", "representation_of": FINE},
    ),
    "bl07 dropped": (table_of(bad.bl07_missing_outcome), {"missing": "drop"}, {ALL: FINE}),
    "bl08": (
        table_of(bad.bl08_missing_row_with_side_arrays), {"missing": "drop"}, {ALL: FINE},
    ),
    "bl11": (table_of(bad.bl11_boolean_outcome), {}, {ALL: FINE}),
    "bl12": (table_of(bad.bl12_text_outcome), {}, {ALL: "'alive'", "faircfint": "text"}),
    "bl12 named": (
        table_of(bad.bl12_text_outcome), {"outcome_event": "died"},
        {ALL: FINE, **dict.fromkeys(METRICS, "'alive'")},
    ),
    "bl13": (table_of(bad.bl13_other_codes), {}, {ALL: "0/1", "faircfint": FINE}),
    "bl13 signs": (table_of(bad.bl13_other_codes, (-1, 1)), {}, {ALL: "0/1", "faircfint": FINE}),
    "bl13 named": (
        table_of(bad.bl13_other_codes, (0, 100)), {"outcome_event": 100},
        {ALL: FINE, **dict.fromkeys(METRICS, "0/1")},
    ),
    "bl15 string": (table_of(bad.bl15_string_dtypes, "string"), {}, {ALL: FINE}),
    "bl15 object": (table_of(bad.bl15_string_dtypes, object), {}, {ALL: FINE}),
    "bl15 arrow": (table_of(bad.bl15_string_dtypes, "string[pyarrow]"), {}, {ALL: FINE}),
    "bl16": (table_of(bad.bl16_integer_groups), {}, {ALL: FINE}),
    "bl18": (
        table_of(bad.bl18_binned_age_group), {"groups": ["sex", "age_band"]},
        {ALL: FINE, "counterfactual": FINE},
    ),
    "bl20": (table_of(bad.bl20_polars_frame), {}, {ALL: FINE}),
    "bl21": (table_of(bad.bl21_group_without_positives), {}, {ALL: FINE}),
    "bl22": (table_of(bad.bl22_empty_cell), {}, {ALL: FINE}),
    "bl23": (
        table_of(bad.bl23_one_person_group), {},
        {ALL: FINE, **dict.fromkeys(["small_subgroups", "group_intervention"], "at least 2 rows")},
    ),
    "bl25": (table_of(bad.bl25_labels_that_collide), {"groups": ["a", "b"]}, {ALL: FINE}),
    "bl26": (
        table_of(bad.bl26_duplicate_columns), {},
        {ALL: "race", "faircfint": "race|A2", **dict.fromkeys(METRICS, "race")},
    ),
    "bl27": (
        table_of(bad.bl27_single_group), {},
        {ALL: FINE, "interaction": "two|levels", "equivalence": "two groups",
         "metrics.gap_table": "two|one",
         "faircfint": "in all rows"},
    ),
    "bl29": (table_of(bad.bl29_perfect_separation), {}, {ALL: FINE}),
    "bl30": (table_of(bad.bl30_group_without_events), {}, {ALL: FINE}),
    "bl31": (table_of(bad.bl31_rank_deficient), {}, {ALL: FINE}),
    "bl32": (table_of(bad.bl32_new_level_in_new_data), {}, {ALL: FINE}),
    "bl34": (table_of(bad.bl34_transform_with_memory), {}, {ALL: FINE}),
    "bl37": (table_of(bad.bl37_caller_variables), {}, {ALL: FINE}),
    "bl38": (
        table_of(bad.bl38_rare_arm_for_folds), {}, {ALL: FINE},
    ),
    "bl39": (table_of(bad.bl39_propensity_at_the_edge), {}, {ALL: FINE}),
    "bl40": (table_of(bad.bl40_poor_overlap), {}, {ALL: FINE}),
    "bl42 percent": (
        table_of(bad.bl42_score_scale, "percent"), {},
        {ALL: "percent", **dict.fromkeys(METRICS[:2], FINE), "representation_of": FINE,
         "fit_and_audit": FINE, "faircfint": FINE},
    ),
    "bl42 logit": (
        table_of(bad.bl42_score_scale, "logit"), {},
        {ALL: "logit", **dict.fromkeys(METRICS[:2], FINE), "representation_of": FINE,
         "fit_and_audit": FINE, "faircfint": FINE},
    ),
    "bl42 ties": (table_of(bad.bl42_score_scale, "ties"), {}, {ALL: FINE}),
    "bl44": (table_of(bad.bl44_rare_group_for_bootstrap), {}, {ALL: FINE}),
    "bl46": (table_of(bad.bl46_strong_effect_few_permutations), {}, {ALL: FINE}),
    "bl48": (table_of(bad.bl48_equal_groups), {}, {ALL: FINE}),
    "bl50": (table_of(bad.bl50_global_seed), {}, {ALL: FINE}),
    "bl51": (table_of(bad.bl51_interval_levels), {}, {ALL: FINE}),
    "bl55": (table_of(bad.bl55_unknown_keyword), {}, {ALL: FINE}),
}  # fmt: skip
#: The plain table, asked in another way than by verb alone: above.
PLAIN = ["bl01", "bl32", "bl34", "bl37", "bl39", "bl50", "bl51", "bl55"]
PAIRS = [(n, e) for n in INPUTS for e in ENTRIES if n not in PLAIN or e == "counterfactual"]
LARGE = {"bl52", "bl53"}  # of their own, above and in the tests of large tables
NAMES = {"bl35"}  # its columns have other names: above


def test_every_bad_input_is_in_the_table():
    ids = {name[:4] for name in vars(bad) if name.startswith("bl")}
    assert ids == {name[:4] for name in INPUTS} | LARGE | NAMES


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
@pytest.mark.parametrize(("name", "entry"), PAIRS)
def test_every_entry_meets_every_input(name, entry):
    make, changes, said = INPUTS[name]
    expected = said.get(entry, said[ALL])
    if expected is not FINE:
        with pytest.raises(DataError, match=expected):
            ENTRIES[entry](make(), changes)
        return
    ask = result_of if name in SAME else result_of.__wrapped__  # kept for the test below
    result = ask(name, entry)
    for attribute in ("rates", "marginals", "overall", "cells", "pairs", "disparities"):
        frame = getattr(result, attribute, None)
        if isinstance(frame, pd.DataFrame):
            assert silent(attribute, frame) is None


SAME = [
    "bl01",
    "bl11",
    "bl15 string",
    "bl15 object",
    "bl15 arrow",
    "bl20",
    "bl34",
    "bl50",
    "bl12 named",
]


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
@pytest.mark.parametrize("entry", ["observed", *MODELS, "performance", "equivalence"])
@pytest.mark.parametrize("name", SAME)
def test_what_is_the_same_data_gives_the_same_numbers(name, entry):
    frame = "pairs" if entry == "equivalence" else "rates"
    found = getattr(result_of(name, entry), frame)
    same(found, getattr(result_of("plain", entry), frame))


@cache
def result_of(name, entry):
    """What an entry gives for an input."""
    make, changes, _ = INPUTS[name] if name != "plain" else (bad.cohort, {}, {})
    return ENTRIES[entry](make(), changes)
