"""Sampling weights, from the column to observed rates, propensity and overlap."""

from __future__ import annotations

import warnings

import bad_inputs as bad
import numpy as np
import pandas as pd
import plain
import polars as pl
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import cfair
from cfair.cohort import build_cohort, declare, make_cohort
from cfair.errors import DataError, RankWarning
from cfair.estimators.confusion import RATES
from cfair.formula import build_design
from cfair.nuisance.logistic import fit_logistic
from cfair.nuisance.omitted import omitted_call, omitted_groups, score_test
from cfair.nuisance.overlap import overlap
from cfair.nuisance.propensity import estimate_propensity
from cfair.nuisance.request import read_model
from cfair.roles import Roles

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

GROUPS = ["sex", "race"]
FORMULA = "d ~ sex * race + age + s"


def table(n=240, seed=3, zero=0):
    """A cohort with weights that have to do with outcome and score, and with sites."""
    t = bad.cohort(n, seed)
    t["age"] = (t["age"] - 60) / 10
    rng = np.random.default_rng(seed + 10)
    t["w"] = 700 * np.exp(0.5 * t["s"] - 0.3 * t["y"] + rng.normal(0, 0.5, n))
    t.loc[: zero - 1, "w"] = 0.0
    t["site"] = rng.integers(0, 25, n)
    return t


def roles(**changes):
    values = {"outcome": "y", "groups": GROUPS, "score": "s", "cutoff": 0.5, "treatment": "d"}
    return Roles(**{**values, "weights": "w", **changes})


def observed(t, groups=("sex",), weights="w", cluster=None, **options):
    audit = cfair.Audit(
        t,
        outcome="y",
        score="s",
        cutoff=0.5,
        groups=list(groups),
        weights=weights,
        cluster=cluster,
    )
    return audit.observed(**options)


def arrays(t):
    return t["y"].to_numpy(), (t["s"] >= 0.5).to_numpy().astype(int), t["w"].to_numpy()


# -- the column -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w.where(w.index > 3, -w),
            r"'w' has negative values in 4 rows \(-\d.*, \.\.\.\)",
        ),
        (
            lambda w: w.where(w.index != 5, -2.5),
            r"'w' has negative values in 1 row \(-2\.5\)\. A w",
        ),
        (lambda w: w.where(w.index > 1, np.inf), r"'w' has infinite values in 2 rows \(inf, inf\)"),
        (lambda w: w.where(w.index > 0, -np.inf), r"'w' has infinite values in 1 row \(-inf\)"),
        (lambda w: w > 700, r"'w' must be numbers, but is boolean of dtype bool \(\w+"),
        (
            lambda w: (w > 700).astype("boolean"),
            r"boolean of dtype bool.*table\['w'\]\.astype\(int",
        ),
        (lambda w: w.astype(str), r"is text of dtype \w+ \(.*pd\.to_numeric\(table\['w'\]\)"),
        (lambda w: w.round(-2).astype("category"), "is a Categorical of dtype category"),
        (lambda w: pd.to_datetime(w, unit="s"), "is dates or times of dtype datetime64"),
        (lambda w: w + 0j, "is complex numbers of dtype complex128"),
        (lambda w: 0 * w, r"'w' is 0 in all 240 rows used"),
    ],
)
def test_what_cannot_be_a_weight(change, message):
    t = table()
    with pytest.raises(DataError, match=message):
        declare(t.assign(w=change(t["w"])), roles())


def test_missing_weights_enter_the_one_mask():
    t = table()
    t.loc[[2, 5], "w"] = np.nan
    with pytest.raises(DataError, match=r"missing values in 'w' \(2 rows\)"):
        declare(t, roles())
    cohort = build_cohort(t, roles(missing="drop"))
    assert cohort.dropped.by_column == {"w": 2}
    assert cohort.n_used == 238
    kept = t["w"].drop([2, 5]).to_numpy()
    np.testing.assert_allclose(cohort.weights, kept / kept.mean(), rtol=1e-13)
    t["w"] = np.nan
    with pytest.raises(DataError, match="no rows are left"):
        declare(t, roles(missing="drop"))


def test_weights_that_are_zero_in_the_rows_that_stay():
    t = table()
    t["w"] = 0.0
    t.loc[:4, "w"] = 1.0
    t.loc[:4, "age"] = np.nan
    declared = declare(t, roles(missing="drop"))
    with pytest.raises(DataError, match="'w' is 0 in all 235 rows used"):
        make_cohort(declared, ["age"])


@pytest.mark.parametrize("column", ["outcome", "treatment"])
def test_both_values_are_needed_where_there_is_weight(column):
    t = table()
    name = {"outcome": "y", "treatment": "d"}[column]
    t["w"] = t["w"].where(t[name] == 0, 0.0)
    n = int((t["w"] > 0).sum())
    with pytest.raises(DataError, match=f"{column} .* all {n} rows of weight above 0 are 0"):
        declare(t, roles())


@pytest.mark.parametrize(
    ("changes", "both"),
    [
        ({"score": "w"}, "'w' has two roles: score and weights"),
        ({"weights": "site", "cluster": "site"}, "'site' has two roles: cluster and weights"),
        ({"weights": "y"}, "'y' has two roles: outcome and weights"),
        ({"groups": ["sex", "w"]}, "'w' has two roles: weights and groups"),
    ],
)
def test_a_weights_column_in_two_roles(changes, both):
    t = table().assign(s2=0.5)
    if changes.get("score") == "w":
        t["w"] = 0.5
    if changes.get("groups"):
        t["w"] = 2
    with pytest.raises(DataError, match=both):
        declare(t, roles(**changes))


def test_weights_cannot_become_the_treatment_or_the_cluster():
    t = table().assign(w=lambda x: 1 + x["d"])
    declared = declare(t, roles(treatment=None))
    with pytest.raises(DataError, match="'w' has two roles: weights and treatment"):
        make_cohort(declared, treatment="w")
    with pytest.raises(DataError, match="'w' has two roles: cluster and weights"):
        make_cohort(declared, cluster="w")


def test_weights_as_names_arrays_and_series():
    t = table()
    expected = build_cohort(t, roles())
    assert expected.weights_name == "w"
    without = t.drop(columns="w")
    shuffled = t["w"].sample(frac=1, random_state=1)
    for values in (t["w"].to_numpy(), t["w"].tolist(), shuffled, pl.Series(t["w"].to_numpy())):
        got = build_cohort(without, roles(weights=values))
        np.testing.assert_array_equal(got.weights, expected.weights)
        assert got.weights_name in ("w", "weights", "")
    with pytest.raises(DataError, match="weights has 239 values, but the table has 240 rows"):
        declare(t, roles(weights=t["w"].to_numpy()[1:]))
    with pytest.raises(DataError, match="weight"):
        declare(t, roles(weights="wt"))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "Int64", "Float64", "float32", "float64"])
def test_weights_of_any_number_type(dtype):
    t = table().assign(w=lambda x: np.arange(240) % 7)
    got = build_cohort(t.assign(w=t["w"].astype(dtype)), roles()).weights
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, t["w"] / t["w"].mean(), rtol=1e-14)


def test_weights_may_be_a_covariate_too():
    t = table()
    cohort = build_cohort(t, roles(), ["w", "age"])
    np.testing.assert_array_equal(cohort.data["w"], t["w"])


# -- the cohort -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-290, 1 / 3, 1e4, 1e300])
def test_the_scale_of_the_weights_changes_nothing(scale):
    t = table()
    one, other = build_cohort(t, roles()), build_cohort(t.assign(w=t["w"] * scale), roles())
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-12)
    assert one.weights.mean() == pytest.approx(1, abs=1e-12)
    assert one.kish == pytest.approx(t["w"].sum() ** 2 / (t["w"] ** 2).sum(), rel=1e-12)


def test_equal_weights_are_no_weights():
    t = table()
    for w in (1, 0.1, 1e300):
        cohort = build_cohort(t.assign(w=w), roles())
        assert cohort.weights is None
        assert (cohort.weights_name, cohort.kish, cohort.weighted.all()) == ("w", 240, True)
    for options in ({}, {"cluster": "site"}, {"interval": "agresti-coull"}):
        weighted = observed(t.assign(w=0.1), GROUPS, **options)
        plainly = observed(t, GROUPS, None, **options)
        pd.testing.assert_frame_equal(weighted.rates, plainly.rates, rtol=1e-12)
        pd.testing.assert_frame_equal(weighted.contrasts(), plainly.contrasts(), rtol=1e-12)
        assert "w, equal in all rows: they change nothing" in str(weighted)


def test_nearly_equal_weights_give_nearly_the_same():
    t = table()
    near = 1 + 1e-9 * np.random.default_rng(0).random(240)
    weighted, plainly = observed(t, GROUPS, near), observed(t, GROUPS, None)
    assert weighted.cohort.weights is not None
    columns = ["estimate", "se", "n_effective"]
    pd.testing.assert_frame_equal(weighted.rates[columns], plainly.rates[columns], rtol=1e-6)


# -- observed rates -------------------------------------------------------------------------------


def members(t, cohort):
    """Rows of every target: groups, margins, all."""
    labels = t[GROUPS].agg(" & ".join, axis=1)
    found = [(labels == name).to_numpy() for name in cohort.groups.names]
    found += [(t[a] == level).to_numpy() for a, level in cohort.groups.margins]
    return [*found, np.ones(len(t), bool)]


@pytest.mark.parametrize("zero", [0, 30])
def test_weighted_rates_are_those_of_a_plain_loop(zero):
    t = table(zero=zero)
    result = observed(t, GROUPS)
    y, s, w = arrays(t)
    for target, rows in enumerate(members(t, result.cohort)):
        expected = plain.observed(y[rows], s[rows], w[rows])
        got = {m: result.estimates_of(m).estimate[target] for m in RATES}
        assert got == pytest.approx(expected, rel=1e-12, nan_ok=True)
    assert result.overall["n"].eq(240).all()
    assert result.overall["events"].eq(y.sum()).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_whole_weights_are_repeated_rows(seed):
    t = table(120, seed)
    t["w"] = np.random.default_rng(seed).integers(0, 5, 120)
    repeated = t.loc[t.index.repeat(t["w"])].reset_index(drop=True)
    one, other = observed(t, ["race"]), observed(repeated, ["race"], None)
    for metric in RATES:
        np.testing.assert_allclose(
            one.estimates_of(metric).estimate, other.estimates_of(metric).estimate, rtol=1e-12
        )


def numerical_influence(t, cohort, targets):
    """Weight of every row times the derivative of every rate in it: (n, metrics, targets)."""
    y, s, w = arrays(t)
    w = w / w.mean()
    psi = np.zeros((len(t), len(RATES), len(targets)))
    for j, rows in enumerate(targets):
        at = np.flatnonzero(rows)
        for i in at[w[at] > 0]:
            step = 1e-4 * w[i]
            ends = []
            for sign in (1, -1):
                moved = w.copy()
                moved[i] += sign * step
                rates = plain.observed(y[at], s[at], moved[at])
                ends.append(np.array([rates[m] for m in RATES]))
            psi[i, :, j] = w[i] * (ends[0] - ends[1]) / (2 * step)
    return psi


@pytest.mark.parametrize("clustered", [False, True])
def test_the_covariance_is_that_of_linearization(clustered):
    t = table(90, zero=12)
    t["site"] = t["site"].where(t["w"] > 0, 99)  # a site without weight is no site
    result = observed(t, ["sex"], cluster="site" if clustered else None)
    targets = [(t["sex"] == name).to_numpy() for name in ("F", "M")]
    psi = numerical_influence(t, result.cohort, targets)
    if clustered:
        sites = t.loc[t["w"] > 0, "site"].unique()
        assert result.cohort.n_clusters == len(sites)
        psi = np.stack([psi[(t["site"] == site).to_numpy()].sum(axis=0) for site in sites])
        # each rate has the factor of the sites in its own denominator; TPR and TNR have their own
        # in balanced accuracy, too
        y, s, w = arrays(t)
        for j, at in enumerate(targets):
            factor = {
                metric: np.sqrt(g / (g - 1))
                for metric, rows in denominators(y, s).items()
                for g in [t.loc[rows & at & (w > 0), "site"].nunique()]
            }
            own = {metric: psi[:, k, j].copy() for k, metric in enumerate(RATES)}
            for k, metric in enumerate(RATES):
                psi[:, k, j] *= factor.get(metric, np.nan)
            psi[:, RATES.index("balanced_accuracy"), j] = (
                own["tpr"] * factor["tpr"] + own["tnr"] * factor["tnr"]
            ) / 2
    flat = psi.reshape(len(psi), -1)
    expected = flat.T @ flat
    np.testing.assert_allclose(result.covariance, expected, rtol=1e-5, atol=1e-10)
    for k, metric in enumerate(RATES):
        sigma = result.estimates_of(metric).covariance[:2, :2]
        np.testing.assert_allclose(
            sigma, expected[2 * k : 2 * k + 2, 2 * k : 2 * k + 2], rtol=1e-5, atol=1e-10
        )


def denominators(y, s):
    """Rows behind each rate."""
    every, jaccard = np.ones(len(y), dtype=bool), (y == 1) | (s == 1)
    return {
        "prevalence": every, "selection_rate": every, "accuracy": every, "f1": jaccard,
        "tpr": y == 1, "fnr": y == 1, "fpr": y == 0, "tnr": y == 0,
        "ppv": s == 1, "fdr": s == 1, "npv": s == 0, "for": s == 0,
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:cov_type not fully supported with var_weights")
@pytest.mark.parametrize("clustered", [False, True])
def test_fpr_is_that_of_statsmodels(clustered):
    t = table(400)
    result = observed(t, GROUPS, cluster="site" if clustered else None).rates
    result = result[result["metric"] == "fpr"]
    nobody = t[t["y"] == 0].assign(cell=lambda x: x["sex"] + x["race"], call=t["s"] >= 0.5)
    X = pd.get_dummies(nobody["cell"]).astype(float)
    model = sm.GLM(nobody["call"].astype(float), X, sm.families.Binomial(), var_weights=nobody["w"])
    if clustered:
        fit = model.fit(
            cov_type="cluster",
            cov_kwds={"groups": nobody["site"], "use_correction": False},
            tol=1e-14,
        )
        sites = nobody.groupby("cell")["site"].nunique().to_numpy()  # of each group's own
        factor = np.sqrt(sites / (sites - 1))
    else:
        fit, factor = model.fit(cov_type="HC0", tol=1e-14), 1.0
    p = 1 / (1 + np.exp(-fit.params.to_numpy()))
    np.testing.assert_allclose(result["estimate"], p, rtol=1e-8)
    se = p * (1 - p) * fit.bse.to_numpy() * factor
    np.testing.assert_allclose(result["se"], se, rtol=1e-6)


@pytest.mark.parametrize("clustered", [False, True])
def test_wilson_on_a_size_no_larger_than_kish(clustered):
    t = table(300)
    result = observed(t, GROUPS, cluster="site" if clustered else None)
    y, s, w = arrays(t)
    in_denominator = {
        "selection_rate": y >= 0,
        "tpr": y == 1,
        "fpr": y == 0,
        "ppv": s == 1,
    }
    capped = 0
    for metric, rows in in_denominator.items():
        e = result.estimates_of(metric)
        low, high = result.limits(metric)
        for target, member in enumerate(members(t, result.cohort)):
            of = w[rows & member]
            kish = of.sum() ** 2 / (of**2).sum()
            p, se = e.estimate[target], e.se[target]
            if not 0 < p < 1:
                continue
            size = min(kish, p * (1 - p) / se**2)
            capped += size == kish
            assert e.size[target] == pytest.approx(size, rel=1e-9)
            df = e.max_df if np.ndim(e.max_df) == 0 else e.max_df[target]
            expected = plain.wilson(p, size, 0.95, True, df)
            assert (low[target], high[target]) == pytest.approx(expected, rel=1e-6)
        assert np.max(e.max_df) == (24 if clustered else np.inf)
    assert capped > 3


def test_kish_for_functions_of_proportions():
    """With weights that have nothing to do with the rows, the cap is the size itself."""
    t = bad.cohort(500, 2)
    both = pd.concat([t.assign(w=1.0), t.assign(w=3.0)], ignore_index=True)
    for metric in RATES:
        e = observed(both).estimates_of(metric)
        np.testing.assert_allclose(e.max_size, e._implied_size, rtol=1e-9)
        np.testing.assert_allclose(
            e.size, observed(t, weights=None).estimates_of(metric).size * 1.6, rtol=1e-9
        )


def test_the_test_of_equality_is_on_the_same_sizes():
    result = observed(table(900), GROUPS)
    tests = result.test_equal().set_index("metric")
    widened = 0
    for metric in ("selection_rate", "tpr", "fpr", "ppv", "f1"):
        e = result.estimates_of(metric)
        theta, size = e.estimate[:6], e.size[:6]
        se = np.sqrt(theta * (1 - theta) / size)
        own = e.se[:6]
        np.testing.assert_allclose(own, np.sqrt(np.diag(e.covariance)[:6]), rtol=1e-12)
        assert np.all(se >= own * (1 - 1e-12))
        widened += np.count_nonzero(se > own * (1 + 1e-9))
        sigma = e.covariance[:6, :6] * np.outer(se / own, se / own)
        assert tests.loc[metric, "wald"] == pytest.approx(plain.logit_wald(theta, sigma), rel=1e-6)
    assert 5 < widened < 30


@pytest.mark.parametrize("interval", ["clopper-pearson", "agresti-coull"])
def test_other_intervals_are_on_the_size_of_korn_and_graubard(interval):
    t = table(300)
    result = observed(t, GROUPS, interval=interval)
    for metric in ("tpr", "fpr", "f1"):
        e = result.estimates_of(metric)
        low, high = result.limits(metric)
        for k in range(len(e.estimate)):
            p, size = e.estimate[k], e.size[k]
            n = size * (stats.norm.ppf(0.975) / stats.t.ppf(0.975, size - 1)) ** 2
            if interval == "clopper-pearson":
                expected = (
                    stats.beta.ppf(0.025, n * p, n * (1 - p) + 1) if p > 0 else 0.0,
                    stats.beta.ppf(0.975, n * p + 1, n * (1 - p)) if p < 1 else 1.0,
                )
            else:
                z = stats.norm.ppf(0.975)
                centre = (n * p + z**2 / 2) / (n + z**2)
                half = z * np.sqrt(centre * (1 - centre) / (n + z**2))
                expected = max(centre - half, 0), min(centre + half, 1)
            assert (low[k], high[k]) == pytest.approx(expected, rel=1e-8)


def test_a_denominator_without_weight_is_undefined_and_says_why():
    t = table()
    female = t["sex"] == "F"
    t.loc[female & (t["y"] == 1), "w"] = 0
    result = observed(t)
    rates = result.rates.set_index(["metric", "group"])
    tpr = rates.loc[("tpr", "F")]
    assert np.isnan(tpr["estimate"])
    assert tpr["note"] == "no events of weight above 0"
    assert tpr["denominator"] == (female & (t["y"] == 1)).sum()
    assert rates.loc[("prevalence", "F"), "estimate"] == 0
    assert rates.loc[("prevalence", "F"), "se"] > 0
    assert rates.loc[("balanced_accuracy", "F"), "note"].endswith("of weight above 0")
    assert "TPR is undefined in F (no events of weight above 0)." in result.notes
    t.loc[female, "w"] = 0
    rates = observed(t).rates.set_index(["metric", "group"])
    assert rates.loc[("prevalence", "F"), "note"] == "no rows of weight above 0"
    assert rates.xs("F", level="group")["estimate"].isna().all()
    assert rates.xs("F", level="group")["n"].eq(female.sum()).all()
    assert rates.xs("M", level="group")["estimate"].notna().all()


def test_rows_without_weight_change_nothing_but_the_count():
    t = table(zero=40)
    for cluster in (None, "site"):
        whole, part = (observed(x, GROUPS, cluster=cluster) for x in (t, t[t["w"] > 0]))
        for one, other in zip(whole.estimates, part.estimates, strict=True):
            np.testing.assert_allclose(one.estimate, other.estimate, rtol=1e-12)
            np.testing.assert_allclose(one.se, other.se, rtol=1e-10)
            np.testing.assert_allclose(one.size, other.size, rtol=1e-10)
            np.testing.assert_array_equal(one.max_df, other.max_df)
    assert (whole.cohort.n_used, part.cohort.n_used) == (240, 200)


def test_one_cluster_with_weight_is_refused():
    t = table()
    t["w"] = t["w"].where(t["site"] == 3, 0.0)
    t.loc[t["site"] == 3, "y"] = np.arange((t["site"] == 3).sum()) % 2
    with pytest.raises(DataError, match="'site' has only one value in the rows that count"):
        observed(t, cluster="site")


def test_the_order_of_the_rows_does_not_matter():
    t = table()
    one = observed(t, GROUPS, cluster="site")
    other = observed(t.sample(frac=1, random_state=4), GROUPS, cluster="site")
    pd.testing.assert_frame_equal(one.rates, other.rates, rtol=1e-9)
    pd.testing.assert_frame_equal(one.test_equal(), other.test_equal(), rtol=1e-6)


def test_the_print_tells_of_the_weights():
    text = str(observed(table(zero=5)))
    cohort = build_cohort(table(zero=5), roles())
    line = f"w, scaled to mean 1; effective size {int(cohort.kish)} of 240 (Kish)"
    assert f"weights      {line}; 5 rows of weight 0" in text
    assert "95%, Wilson on the effective size" in text
    assert "weights  " not in str(observed(table(), weights=None))


# -- propensity and overlap -----------------------------------------------------------------------


def fitted(t, formula=FORMULA, **changes):
    declared = declare(t, roles(**{"treatment": None, **changes}))
    request = read_model(formula, declared)
    cohort = make_cohort(declared, request.columns, treatment=request.left)
    return cohort, estimate_propensity(request, cohort)


def test_the_propensity_is_the_weighted_fit():
    t = table(400)
    cohort, propensity = fitted(t)
    expected = plain.weighted_logit(propensity.matrix, cohort.d, cohort.weights)
    np.testing.assert_allclose(propensity.coef, expected, rtol=1e-7)
    unweighted = fitted(t, weights=None)[1]
    assert np.max(np.abs(unweighted.coef - propensity.coef)) > 0.05


def test_rows_without_weight_do_not_decide_what_is_fitted():
    t = table(400, zero=50).assign(rare=lambda x: (x.index < 20).astype(float))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        propensity = fitted(t, f"{FORMULA} + rare")[1]
    assert [w.category for w in caught] == [RankWarning]
    assert np.isnan(propensity.coefficients["rare"])
    assert len(propensity.pi) == 400
    alone = fitted(t[t["w"] > 0])[1]
    np.testing.assert_allclose(propensity.coef, alone.coef, rtol=1e-8)
    np.testing.assert_allclose(propensity.pi[50:], alone.pi, rtol=1e-8)
    t["w"] = (t.index < 6).astype(float)
    t.loc[:5, ["y", "d"]] = [[0, 0], [1, 1]] * 3
    with pytest.raises(DataError, match="8 terms but only 6 rows of weight above 0 are left"):
        fitted(t)


def test_a_fitted_result_is_the_model_if_it_was_fitted_with_the_weights():
    t = table(400)
    family = sm.families.Binomial()
    weighted = smf.glm(FORMULA, t, family=family, freq_weights=t["w"] / t["w"].mean()).fit()
    assert fitted(t, weighted)[1].fit is not None
    unweighted = smf.glm(FORMULA, t, family=family).fit()
    propensity = fitted(t, unweighted)[1]
    assert propensity.fit is None
    assert "perhaps without the weights" in propensity.notes[0]


def plain_score_test(X, d, p, Z, w):
    """Robust score test with dense matrices and one row at a time."""
    v = w * p * (1 - p)
    slope = np.linalg.solve(X.T @ (v[:, None] * X), X.T @ (v[:, None] * Z))
    score, variance = 0.0, 0.0
    for i in range(len(d)):
        z = Z[i] - X[i] @ slope
        one = w[i] * (d[i] - p[i]) * z
        score = score + one
        variance = variance + np.outer(one, one)
    return float(score @ np.linalg.solve(variance, score))


@pytest.mark.parametrize("zero", [0, 40])
def test_the_score_tests_are_robust(zero):
    t = table(400, zero=zero)
    cohort, propensity = fitted(t, "d ~ age")
    codes = cohort.groups.codes
    dummies = (codes[:, None] == np.arange(1, 6)).astype(float)
    call = cohort.s[:, None].astype(float)
    for found, Z in (
        (omitted_call(propensity, cohort), call),
        (omitted_groups(propensity, cohort), dummies),
    ):
        args = (propensity.matrix, cohort.d, propensity.fitted, Z, cohort.weights)
        assert found.chi2 == pytest.approx(plain_score_test(*args), rel=1e-7)
        assert found.df == Z.shape[1]
        assert found.p_value == pytest.approx(stats.chi2.sf(found.chi2, found.df), rel=1e-9)


def test_the_robust_score_test_knows_no_scale_and_counts_what_adds_something():
    t = table(400)
    cohort, propensity = fitted(t, "d ~ age")
    X, d, w = propensity.matrix, cohort.d, cohort.weights
    new = np.random.default_rng(0).normal(size=400)
    once = score_test(X, d, propensity.fit, new[:, None], w)
    fit = fit_logistic(X, d, weights=1000 * w)
    assert score_test(X, d, fit, new[:, None], 1000 * w) == pytest.approx(once, rel=1e-8)
    twice = score_test(X, d, propensity.fit, np.column_stack([new, 2 * new, X[:, 1]]), w)
    assert twice == pytest.approx(once, rel=1e-8)
    assert score_test(X, d, propensity.fit, X[:, [1]] * 3, w)[:2] == (0.0, 0)


def test_the_robust_score_test_holds_its_level():
    """Where the weights are taken for counts, two tests in five reject at 5%."""
    rng = np.random.default_rng(11)
    p_values, by_counts = [], []
    for _ in range(400):
        x, new = rng.normal(size=(2, 300))
        d = (rng.random(300) < bad.expit(x)).astype(int)
        w = np.exp(rng.normal(0, 1, 300) + 0.5 * d)
        w *= 300 / w.sum()
        X = np.column_stack([np.ones(300), x])
        fit = fit_logistic(X, d, weights=w)
        p_values.append(score_test(X, d, fit, new[:, None], w)[2])
        v = w * fit.fitted * (1 - fit.fitted)
        rest = new - X @ np.linalg.solve(X.T @ (v[:, None] * X), X.T @ (v * new))
        by_counts.append((w * (d - fit.fitted) @ new) ** 2 / (v @ rest**2) > 3.84)
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.08
    assert np.mean(by_counts) > 0.15


def test_overlap_is_that_of_plain_loops():
    t = table(400, zero=20)
    cohort, propensity = fitted(t)
    found = overlap(cohort, propensity)
    a, d, pi = cohort.weights, cohort.d, propensity.pi
    w = np.where(d == 0, a / (1 - pi), 0.0)
    for k, row in found.effective.iterrows():
        of = w[cohort.groups.codes == k]
        assert row["n_effective"] == pytest.approx(of.sum() ** 2 / (of**2).sum(), rel=1e-10)
        assert row["largest_weight"] == pytest.approx(of.max(), rel=1e-12)
    X = build_design(read_model(FORMULA, declare(t, roles())).formula, cohort.data)
    for _, row in found.balance.iterrows():
        x = X.matrix[:, X.names.index(row["term"])]
        mean = np.average(x, weights=a)
        sd = np.sqrt(np.average((x - mean) ** 2, weights=a))
        before, after = np.average(x, weights=a * (d == 0)), np.average(x, weights=w)
        expected = [mean, before, after, (before - mean) / sd, (after - mean) / sd]
        assert row.iloc[1:].tolist() == pytest.approx(expected, rel=1e-8)
    assert len(found.balance) == 7
    # the fit makes treated and untreated alike in what is modelled, under its own weights
    assert found.balance["smd_after"].abs().max() < found.balance["smd_before"].abs().max()
