"""What a counterfactual analysis refuses to fit, and how it says so."""

from __future__ import annotations

import bad_inputs
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from test_doubly_robust import BOTH, D, Y, audit, by_group, table

import cfair
from cfair.errors import DataError, FormulaError

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")


def refused(message, *args, error=DataError, t=None, declared=None, **options):
    with pytest.raises(error, match=message):
        audit(table(300) if t is None else t, **(declared or {})).counterfactual(*args, **options)


# -- estimators and what they need ----------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["AIPW", "dr", 1, ""])
def test_an_unknown_estimator(estimator):
    refused("'ipw', 'aipw', 'plugin'", D, error=ValueError, estimator=estimator)


@pytest.mark.parametrize("estimator", BOTH)
def test_an_estimator_without_its_outcome_model(estimator):
    refused(f'estimator="{estimator}" needs outcome_model=', D, estimator=estimator)


@pytest.mark.parametrize(
    "given", [{}, {"estimator": "ipw"}, {"outcome_model": Y}, {"outcome_model": Y, "folds": 3}]
)
def test_an_estimator_without_its_propensity(given):
    refused('estimator="a?ipw" needs a propensity', **given)


def test_a_treatment_that_is_nowhere_declared():
    nowhere = {"treatment": None}
    refused("no treatment is declared", outcome_model=Y, estimator="plugin", declared=nowhere)
    refused("no treatment is declared", "chance", outcome_model=Y, declared=nowhere)
    result = audit(table(300), **nowhere).counterfactual(D, outcome_model=Y, estimator="plugin")
    assert np.isfinite(by_group(result)).all()


# -- formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "error", "message"),
    [
        ("y ~ age + y", FormulaError, "column 'y' is on both sides"),
        ("~ age + y", DataError, "has the outcome 'y' on its right side"),
        ("~ age + Q('y')", DataError, "has the outcome 'y' on its right side"),
        ("~ age + I(1 - y)", DataError, "has the outcome 'y' on its right side"),
        ("d ~ age", DataError, "left side of the formula is 'd', but the declared outcome is 'y'"),
        ("s ~ age", DataError, "left side of the formula is 's', but the declared outcome is 'y'"),
        ("I(1 - y) ~ age", FormulaError, "the left side must be one column"),
        ("y ~ nowhere", FormulaError, "'nowhere' is not a column of the table"),
        ("y ~ 0", FormulaError, "no terms at all"),
        ("nowhere", FormulaError, "neither a formula nor a column of the table"),
    ],
)
def test_an_outcome_formula_that_cannot_be(formula, error, message):
    refused(message, D, error=error, outcome_model=formula)
    refused(message, error=error, outcome_model=formula, estimator="plugin")


@pytest.mark.parametrize("formula", ["y ~ s + age", "`y` ~ s + age", "Q('y') ~ s + age"])
def test_the_outcome_may_be_quoted(formula):
    result = audit(table(300)).counterfactual(D, outcome_model=formula)
    plain = audit(table(300)).counterfactual(D, outcome_model="~ s + age")
    np.testing.assert_allclose(by_group(result), by_group(plain), rtol=1e-12)


def test_a_formula_too_large_for_the_untreated():
    t = table(40)
    t["visit"] = [f"v{i % 30}" for i in range(40)]
    n = (t["d"] == 0).sum()
    refused(f"the outcome formula has 3[0-9] terms but only {n} rows", "d ~ s", t=t,
            outcome_model="y ~ s + age + visit")  # fmt: skip


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("estimator", BOTH)
def test_an_outcome_that_is_the_same_for_all_untreated(estimator, value):
    t = table(300)
    t.loc[t["d"] == 0, "y"] = value
    t.loc[t["d"] == 1, "y"] = np.arange((t["d"] == 1).sum()) % 2
    which = "none" if value == 0 else "every one"
    n = (t["d"] == 0).sum()
    message = f"of the {n} rows to fit it on, {which} has the event"
    refused(message, D, t=t, outcome_model=Y, estimator=estimator)
    # weighting has rates of the other kind
    frame = audit(t).counterfactual(D).rates.set_index("metric")["estimate"]
    there, not_there = ("cfpr", "cfnr") if value == 0 else ("cfnr", "cfpr")
    assert frame[not_there].isna().all()
    assert frame[there].notna().all()
    # and so has a model of all rows, if it can tell the treated from the others
    result = audit(t).counterfactual(D, outcome_model=Y + " + d", estimator=estimator)
    assert result.rates.set_index("metric").loc[not_there, "estimate"].isna().all()


@pytest.mark.parametrize("given", [3, object(), 0.5, None])
def test_what_is_no_model_at_all(given):
    if given is None:
        return refused('estimator="aipw" needs outcome_model=', D, estimator="aipw")
    return refused("outcome model must be a formula, a column name, probab", D, outcome_model=given)


# -- given probabilities --------------------------------------------------------------------------

GIVEN = {
    "percent": (lambda m: 100 * m, r"must lie in \[0, 1\], but 300 rows range from 1[0-9]\."),
    "negative": (lambda m: m - 0.3, r"rows range from -0\.\d+ to -.*not logits or percent"),
    "missing": (lambda m: m.where(m > 0.2), r"missing values in 'outcome model' \(\d+ rows\)"),
    "other index": (lambda m: m.set_axis(m.index + 7), "has 300 rows with index 7, 8, 9"),
    "part of the rows": (lambda m: m[:50], "has 50 rows with index 0, 1, 2"),
    "short": (lambda m: m.to_numpy()[:50], "has 50 values, but the table has 300 rows"),
    "text": (lambda m: m.astype(str), "the given probabilities are .*, not numbers"),
}


@pytest.mark.parametrize("case", GIVEN)
@pytest.mark.parametrize("estimator", BOTH)
def test_probabilities_that_cannot_be(case, estimator):
    t = table(300)
    make, message = GIVEN[case]
    refused(message, D, t=t, outcome_model=make(t["mu"]), estimator=estimator)


def test_a_column_of_probabilities_that_cannot_be():
    t = table(300)
    t["percent"], t["word"], t["gap"] = 100 * t["mu"], "high", t["mu"].where(t["mu"] > 0.2)
    refused(r"must lie in \[0, 1\]", D, t=t, outcome_model="percent")
    refused("the outcome model column 'word' is not numeric", D, t=t, outcome_model="word")
    refused("missing values in 'gap'", D, t=t, outcome_model="gap")
    result = audit(t, missing="drop").counterfactual(D, outcome_model="gap")
    assert result.cohort.n_used == t["gap"].notna().sum()
    side = audit(t, missing="drop").counterfactual(D, outcome_model=t["gap"])
    pd.testing.assert_frame_equal(result.rates, side.rates)


def test_outcome_and_treatment_are_no_probabilities_of_themselves():
    refused("column 'y' is the outcome itself", D, outcome_model="y")
    refused("column 'd' is the treatment itself", D, outcome_model="d")
    refused("column 'd' is the treatment itself", "d")


def test_weights_that_would_be_infinite():
    t = table(300)
    t.loc[t.index[t["d"] == 0][0], "chance"] = 1.0
    refused("exactly 1 for 1 untreated", "chance", t=t, outcome_model=Y)


# -- fitted results -------------------------------------------------------------------------------


def glm(formula, t):
    return smf.glm(formula, t, family=sm.families.Binomial()).fit()


def test_results_of_something_else():
    t = table(300)
    refused("left side of the formula is 'd'", D, t=t, outcome_model=glm(D, t))
    refused("left side of the formula is 'y'", glm(Y, t), t=t, outcome_model=Y)
    refused("is a OLS, which does not model a probability", D, t=t,
            outcome_model=smf.ols(Y, t).fit())  # fmt: skip
    other = t.assign(y=1 - t["y"])
    refused("differs from the outcome 'y' in 300 of 300 rows", D, t=t, outcome_model=glm(Y, other))
    truth = t.assign(y=t["y"] == 1)
    refused("models two columns", D, t=truth, outcome_model=glm(Y, truth))


def test_results_without_a_formula_have_to_be_of_these_rows_without_treatment():
    t = table(300)
    family = sm.families.Binomial()
    X = sm.add_constant(t[["age", "s"]])
    fitted = sm.GLM(t["y"], X, family=family).fit()
    result = audit(t).counterfactual(D, outcome_model=fitted)
    given = audit(t).counterfactual(D, outcome_model=fitted.fittedvalues)
    np.testing.assert_allclose(by_group(result), by_group(given), rtol=1e-12)
    with_treatment = sm.GLM(t["y"], X.assign(d=t["d"]), family=family).fit()
    refused("has the treatment 'd' among its columns", D, t=t, outcome_model=with_treatment)
    part = t["d"] == 0
    n = part.sum()
    refused(f"result has {n} rows, the table 300.*probabilities on all rows", D, t=t,
            outcome_model=sm.GLM(t["y"][part], X[part], family=family).fit())  # fmt: skip


# -- folds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folds", "error", "message"),
    [
        (1, ValueError, "folds must be a whole number of at least 2, such as 5, not 1"),
        (0, ValueError, "not 0"),
        (True, ValueError, "not True"),
        (2.5, ValueError, "not 2.5"),
        (301, ValueError, "folds=301 is more than the 300 rows used"),
        ("5", DataError, "folds '5' is not a column of the table"),
        ("one", DataError, "the given folds are all 1. At least 2 different labels"),
        (np.zeros(300), DataError, "the given folds are all 0.0"),
        ([1, 2], DataError, "folds has 2 values, but the table has 300 rows"),
        (np.zeros((300, 2)), DataError, "the given folds have 2 dimensions"),
        ("gap", DataError, r"missing values in 'folds' \(\d+ rows\).*missing=\"drop\""),
    ],
)
def test_folds_that_cannot_be(folds, error, message):
    t = table(300)
    t["one"], t["gap"] = 1, t["fold"].where(t.index > 19)
    refused(message, D, t=t, outcome_model=Y, folds=folds, error=error)


def test_rows_without_a_fold_are_dropped_if_so_wanted():
    t = table(300)
    t["gap"] = t["fold"].where(t.index > 19)
    for folds in ("gap", t["gap"], t["gap"].to_numpy()):
        result = audit(t, missing="drop").counterfactual(D, outcome_model=Y, folds=folds)
        assert result.cohort.n_used == 280
        assert "20 dropped: folds missing" in " ".join(str(result).split())
        expected = audit(t[20:]).counterfactual(D, outcome_model=Y, folds="fold")
        np.testing.assert_allclose(by_group(result), by_group(expected), rtol=1e-9)


def test_folds_that_leave_nothing_to_learn():
    t = table(300)
    untreated = t.index[t["d"] == 0]
    t.loc[untreated, "y"] = 0
    t.loc[untreated[:3], "y"] = 1
    t["fold"] = np.where(t.index.isin(untreated[:3]), "b", np.where(t.index % 2, "a", "b"))
    message = r"outcome model: the rows outside fold 'b' have no row of class event \(3 in all\)"
    refused(message, D, t=t, outcome_model="y ~ s", folds="fold")
    t = table(300)
    t["fold"] = np.where(t["d"] == 1, "treated", "untreated")
    refused("propensity: the rows outside fold 'treated' have no row of class treated", D, t=t,
            folds="fold")  # fmt: skip
    t = table(300)
    t.loc[t["d"] == 0, "y"] = 0
    refused("none is of class event", D, t=t, outcome_model=Y, folds=3)


def test_more_folds_than_clusters():
    refused("there are 40 clusters for 41 folds", D, declared={"cluster": "site"},
            outcome_model=Y, folds=41)  # fmt: skip


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_resamples_have_to_be_a_list_of_row_numbers():
    t = bad_inputs.cohort(60)
    a = cfair.Audit(t, outcome="y", score="s", cutoff=0.5, groups="sex", treatment="d")
    for wrong in (5, iter([[0, 1]]), "rows"):
        with pytest.raises(ValueError, match="resamples must be a list of arrays of row numbers"):
            a.counterfactual("d ~ s", resamples=wrong)
    with pytest.raises(DataError, match="permutations holds no replicate"):
        a.counterfactual("d ~ s", permutations=np.zeros((0, 60), dtype=int))
    rows = np.random.default_rng(1).integers(0, 60, (3, 60))
    one = a.counterfactual("d ~ s", resamples=rows)
    two = a.counterfactual("d ~ s", resamples=pd.DataFrame(rows))
    pd.testing.assert_frame_equal(one.boot_draws, two.boot_draws)
