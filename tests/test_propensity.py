"""Propensities from elsewhere: statsmodels results, columns and arrays of probabilities."""

from __future__ import annotations

import pickle
import warnings

import bad_inputs as bad
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import cfair
from cfair.errors import DataError, FormulaError

FORMULA = "d ~ C(sex) * C(race) + s + age"
BINOMIAL = sm.families.Binomial()


def audit(table, **changes):
    roles = {"outcome": "y", "score": "s", "cutoff": 0.5, "groups": ["sex", "race"]}
    return cfair.Audit(table, **{**roles, **changes})


@pytest.fixture
def table():
    return bad.cohort()


@pytest.fixture
def by_formula(table):
    return audit(table).counterfactual(FORMULA)


RESULTS = {
    "logit": lambda t: smf.logit(FORMULA, t).fit(disp=0),
    "glm": lambda t: smf.glm(FORMULA, t, family=BINOMIAL).fit(),
    "rows in another order": lambda t: smf.logit(FORMULA, t.sample(frac=1, random_state=1)).fit(
        disp=0
    ),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_a_fitted_result_gives_what_its_formula_gives(table, by_formula, kind):
    result = audit(table, treatment="d").counterfactual(RESULTS[kind](table))
    pd.testing.assert_frame_equal(result.rates, by_formula.rates, rtol=1e-9)


def test_a_result_on_arrays_gives_its_probabilities(table):
    X = sm.add_constant(table[["s", "age"]])
    with pytest.warns(match="leaves out") as caught:
        formula = audit(table).counterfactual("d ~ s + age")
    assert len(caught) == 1
    arrays = audit(table, treatment="d").counterfactual(sm.Logit(table["d"], X).fit(disp=0))
    np.testing.assert_allclose(arrays.rates["estimate"], formula.rates["estimate"], rtol=1e-6)
    assert "count as known" in str(arrays)


def sorted_rows(t):
    other = t.sort_values("age").reset_index(drop=True)
    return sm.Logit(other["d"], sm.add_constant(other[["s", "age"]])).fit(disp=0)


WRONG = {
    "True/False treatment": lambda t: smf.glm(
        FORMULA, t.assign(d=t["d"] == 1), family=BINOMIAL
    ).fit(),
    "text treatment": lambda t: smf.glm(
        FORMULA, t.assign(d=np.where(t["d"] == 1, "yes", "no")), family=BINOMIAL
    ).fit(),
    "reversed": lambda t: smf.logit("I(1 - d) ~ age + s", t).fit(disp=0),
    "reversed array": lambda t: sm.Logit(1 - t["d"], sm.add_constant(t[["s"]])).fit(disp=0),
    "the outcome": lambda t: sm.Logit(t["y"], sm.add_constant(t[["s"]])).fit(disp=0),
    "rows sorted under a new index": sorted_rows,
    "a linear model": lambda t: smf.ols("d ~ s", t).fit(),
    "an offset": lambda t: smf.glm("d ~ s", t, family=BINOMIAL, offset=0.1 * t["age"]).fit(),
    "other rows": lambda t: sm.Logit(t["d"][:99], sm.add_constant(t[["s"]][:99])).fit(disp=0),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_result_that_models_something_else_is_refused(table, what):
    with pytest.raises(DataError, match="propensity"):
        audit(table, treatment="d").counterfactual(WRONG[what](table))


def test_a_result_of_the_other_coding_is_refused(table):
    fitted = smf.logit(FORMULA, table).fit(disp=0)
    with pytest.raises(DataError, match="differs from the treatment"):
        audit(table, treatment="d", treatment_event=0).counterfactual(fitted)


def test_missing_probabilities_follow_the_rule_for_missing_values(table):
    pi = np.full(len(table), 0.4)
    pi[:5] = np.nan
    with pytest.raises(DataError, match=r"'propensity' \(5 rows\)"):
        audit(table, treatment="d").counterfactual(pi)
    given = audit(table, treatment="d", missing="drop").counterfactual(pi)
    column = audit(table.assign(pi=pi), treatment="d", missing="drop").counterfactual("pi")
    pd.testing.assert_frame_equal(given.rates, column.rates)
    assert given.cohort.n_used == 595


def test_a_certain_treated_row_weighs_nothing(table):
    pi = np.where(table["d"] == 1, 1.0, 0.3)
    result = audit(table, treatment="d").counterfactual(pi, truncation=None)
    assert (result.weights[table["d"] == 1] == 0).all()
    assert result.overlap.effective["n_effective"].min() > 1


def test_the_outcome_cannot_explain_treatment(table):
    with pytest.raises(DataError, match="outcome 'y' on its right side"):
        audit(table).counterfactual("d ~ s + y")


@pytest.mark.parametrize(
    "formula",
    ["d ~ bs(age, df=30, degree=25)", "d ~ where(sex, age, 0)", "d ~ where(age > 60, age, 'x')"],
)
def test_what_the_libraries_get_wrong_is_refused(table, formula):
    with pytest.raises(FormulaError):
        audit(table).counterfactual(formula)


def test_a_score_of_32_bits_is_the_number_it_prints_as(table):
    table["s"] = table["s"].round(1).astype("float32")
    cohort = audit(table, cutoff=0.7).cohort()
    np.testing.assert_array_equal(cohort.s, table["s"].astype(str).astype(float) >= 0.7)
    # the call inside a formula is the call of the audit
    result = audit(table, cutoff=0.7).counterfactual("d ~ sex * race + age + I(s >= 0.7)")
    column = list(result.propensity.coefficients.index).index("I(s >= 0.7)[T.True]")
    np.testing.assert_array_equal(result.propensity.matrix[:, column], cohort.s)


def test_a_result_survives_pickling(table):
    delta = {"average": 0.1, "maximum": 0.1, "variance": 0.01}
    result = audit(table).counterfactual(FORMULA, n_perm=40, n_boot=40, u_delta=delta)
    again = pickle.loads(pickle.dumps(result))
    assert str(again) == str(result)
    pd.testing.assert_frame_equal(again.rates, result.rates)
    with pytest.raises(FormulaError, match="pickled"):
        again.propensity.design.transform(table)


def test_numbers_that_are_text_are_no_factor_unless_it_is_said(table):
    table["SBP"] = (100 + np.arange(len(table)) % 30).astype(str)
    some = [*table.index[table["d"] == 1][:2], *table.index[table["d"] == 0][:2]]
    table.loc[some, "SBP"] = "n/k"
    for formula in (f"{FORMULA} + SBP", "d ~ sex * SBP + s"):
        with pytest.raises(DataError, match=r"'SBP' is text: 596 of 600 .* 4 are not \('n/k'\)"):
            audit(table).counterfactual(formula)
    with pytest.raises(DataError, match="'SBP' is text"):
        audit(table).counterfactual(FORMULA, outcome_model="y ~ SBP + s + d")
    numbers = table.assign(SBP=pd.to_numeric(table["SBP"], errors="coerce"))
    assert audit(numbers, missing="drop").counterfactual(f"{FORMULA} + SBP").cohort.n_used == 596
    categories = audit(table).counterfactual(f"{FORMULA} + C(SBP)")
    declared = audit(table.assign(SBP=table["SBP"].astype("category")))
    np.testing.assert_allclose(
        categories.rates["estimate"], declared.counterfactual(f"{FORMULA} + SBP").rates["estimate"]
    )


def test_a_treatment_of_several_values(table):
    table["drug"] = np.where(table["d"] == 1, np.where(table["y"] == 1, "on", "On"), "off")
    with pytest.raises(DataError, match=r"treatment_event=\['On', 'on'\]|\['on', 'On'\]"):
        audit(table, treatment_event="on").counterfactual(FORMULA.replace("d ~", "drug ~"))
    got = audit(table, treatment_event=["on", "On"]).counterfactual(
        FORMULA.replace("d ~", "drug ~")
    )
    want = audit(table).counterfactual(FORMULA)
    np.testing.assert_array_equal(got.rates["estimate"], want.rates["estimate"])
    assert "on or On" in str(got)


def few_untreated(share):
    """Groups of sex of 400 and 16 rows, of whom `share` are treated."""
    rng = np.random.default_rng(4)
    sex = np.repeat(["F", "M"], [400, 16])
    treated = np.concatenate([np.arange(400) % 2, np.arange(16) < share]).astype(int)
    table = pd.DataFrame({"sex": sex, "d": treated, "y": np.arange(416) % 3 == 0})
    return table.assign(y=table["y"].astype(int), s=rng.random(416).round(3), age=rng.random(416))


@pytest.mark.parametrize("below", [None, 11])
def test_no_score_test_gives_masked_arms_away(below):
    said = {}
    for share in (9, 10):
        with pytest.warns(match="leaves out sex"):
            result = audit(few_untreated(share), groups="sex", suppress_below=below).counterfactual(
                "d ~ s + age"
            )
        said[share] = [n for n in result.notes if "leaves out sex" in n]
        assert len(said[share]) == 1
        assert ("chi2" in said[share][0]) == (below is None)
    assert (said[9] == said[10]) == (below is not None)


@pytest.mark.parametrize("formula", ["d ~ sex", "d ~ sex + s"])
def test_propensities_and_coefficients_do_not_give_masked_arms_away(formula):
    table = few_untreated(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = audit(table, groups="sex").counterfactual(formula)
        masked = audit(table, groups="sex", suppress_below=11).counterfactual(formula)
    if formula == "d ~ sex":
        assert np.isclose(plain.overlap.propensities["max"].max(), 10 / 16)
    of_all = masked.overlap.propensities.set_index("group").loc["all"]
    assert of_all[["min", "median", "max"]].isna().all(axis=None)
    assert (of_all["note"] == "masked: would give how many of a group are treated").all()
    own = masked.overlap.propensities.set_index("group").loc["M"]
    assert own["max"].isna().all()
    assert (own["note"].str.startswith("masked: ")).all()
    assert masked.propensity.coefficients.isna().all()
    assert "would give how many" in repr(masked.propensity)
    assert plain.propensity.coefficients.notna().all()


def test_a_propensity_without_groups_keeps_its_coefficients():
    with pytest.warns():
        result = audit(few_untreated(10), groups="sex", suppress_below=11).counterfactual("d ~ s")
    assert result.propensity.coefficients.notna().all()
    of_all = result.overlap.propensities.set_index("group").loc["all"]
    assert of_all["max"].notna().all()
