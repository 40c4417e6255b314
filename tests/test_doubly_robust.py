"""AIPW and the outcome model alone: rates, influence functions, replicates, and what is said."""

from __future__ import annotations

import re
from functools import cache

import bad_inputs
import matplotlib
import numpy as np
import pandas as pd
import plain
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from test_invariance import numbers, old_label, renamed, same, shuffled, sorted_label

import cfair
from cfair.analyses.replicates import check_replicates
from cfair.analyses.treatment import fit_models, read_counterfactual
from cfair.cohort import declare, make_cohort
from cfair.errors import ModelWarning, RankWarning
from cfair.estimators.aipw import aipw_scores
from cfair.inference import bootstrap as bootstrap_module
from cfair.inference import one_pass as one_pass_module
from cfair.inference.contributions import without_rounding
from cfair.inference.equality import logit_wald
from cfair.inference.influence import rate_covariance, row_influence
from cfair.inference.moments import cell_moments, contribution_moments, contribution_scores
from cfair.inference.one_pass import exchangeable_weights
from cfair.inference.permutation import (
    FIXED,
    FIXED_MODELS,
    GROUP_SUMS,
    ONE_STEP,
    ONE_STEP_MODELS,
    REFIT_MODELS,
    permutation_null,
)
from cfair.inference.refit import CounterfactualModels
from cfair.inference.resampling import streams
from cfair.inference.rows import Rows
from cfair.nuisance import binary as binary_module
from cfair.nuisance.binary import BinaryModel, DesignRows
from cfair.nuisance.logistic import fit_logistic
from cfair.roles import Roles

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

D, Y = "d ~ sex * race + age + s", "y ~ sex * race + age + s"
Y_ALL = "y ~ sex * race + age * d + s"  # fitted on all rows, with treatment in it
RATES = ("cfpr", "cfnr")
BOTH = ["aipw", "plugin"]
ALL = ["ipw", *BOTH]


def table(n=400, seed=0):
    t = bad_inputs.cohort(n, seed)
    t["age"] = (t["age"] - 60) / 10
    rng = np.random.default_rng(seed + 5)
    t["w"] = np.exp(rng.normal(0, 0.6, n) + 0.3 * t["s"])
    t["site"] = rng.integers(0, 40, n)
    t["chance"], t["mu"] = rng.uniform(0.1, 0.8, (2, n))
    t["fold"] = rng.choice(["x", "y", "z"], n)
    return t


def audit(t, groups=("sex", "race"), **options):
    options = {"outcome": "y", "score": "s", "cutoff": 0.5, "treatment": "d", **options}
    return cfair.Audit(t, groups=list(groups), **options)


def codes(t):
    """Groups of sex x race, in the order of the labels."""
    code = (t["sex"] == "M").to_numpy() * 3 + t["race"].map({"Black": 0, "Other": 1, "White": 2})
    return np.asarray(code, dtype=int)


def dummies(t, labels=None):
    code = codes(t) if labels is None else codes(t)[labels]
    return (code[:, None] == np.arange(6)).astype(float)


def covariates(t, *more):
    return np.column_stack([t["age"], t["s"], *more]).astype(float)


def design(t):
    """D, Y: the design as a function of the row whose labels each row carries."""
    return lambda labels: np.hstack([dummies(t, labels), covariates(t)])


def with_treatment(t, d):
    return lambda labels: np.hstack([dummies(t, labels), covariates(t, d, t["age"] * d)])


def setting(t, estimator, outcome=Y, **options):
    """The plain computation with the models of D and Y."""
    y, d, s = (t[c].to_numpy(float) for c in "yds")
    models = {"X": design(t), "M": design(t)}
    if outcome == Y_ALL:
        models.update(M=with_treatment(t, t["d"]), M0=with_treatment(t, 0 * t["d"]))
    return plain.Setting(estimator, y, (s >= 0.5).astype(int), d, codes(t), **{**models, **options})


def by_group(result, metrics=RATES):
    K = result.cohort.groups.n_groups
    return np.column_stack([result.estimates_of(m).estimate[:K] for m in metrics])


def everything(result):
    """Rates of groups, margins and all, (T, 2)."""
    return np.column_stack([result.estimates_of(m).estimate for m in RATES])


def fitted(t, outcome=Y, estimator="aipw", truncation=(0.005, 0.995), groups=("race",), **roles):
    """The models of an analysis with what the rows add, and its cohort."""
    roles = {"outcome": "y", "score": "s", "cutoff": 0.5, "treatment": "d", **roles}
    declared = declare(t, Roles(groups=list(groups), **roles))
    request = read_counterfactual(declared, "d ~ race + age + s", outcome, estimator, None)
    cohort = make_cohort(declared, request.columns, outcome="y", treatment="d")
    plan = check_replicates(
        n_boot=None, n_perm=None, bootstrap="auto", resamples=None, permutations=None, seed=0,
        n_jobs=1, exact=False, progress=False,
    )  # fmt: skip
    return fit_models(request, cohort, truncation, plan), cohort


# -- influence functions --------------------------------------------------------------------------

OUTCOME_ONLY, WITH_TREATMENT = "y ~ race + age + s", "y ~ race + age + s * d"


def three_groups(t, estimator, outcome, **options):
    race = t["race"].map({"Black": 0, "Other": 1, "White": 2}).to_numpy(int)
    X = np.column_stack([race == 0, race == 1, race == 2, t["age"], t["s"]]).astype(float)
    models = {"X": X, "M": X}
    if outcome == WITH_TREATMENT:
        d = t["d"].to_numpy(float)
        models.update(M=np.column_stack([X, d, t["s"] * d]), M0=np.column_stack([X, 0 * d, 0 * d]))
    y, d, s = (t[c].to_numpy(float) for c in "yds")
    return plain.Setting(estimator, y, (s >= 0.5).astype(int), d, race, **{**models, **options})


@pytest.mark.parametrize(
    ("estimator", "outcome", "truncation", "weighted"),
    [
        ("aipw", OUTCOME_ONLY, (0.0, 1.0), False),
        ("aipw", OUTCOME_ONLY, (0.3, 0.5), True),
        ("aipw", WITH_TREATMENT, (0.3, 0.5), False),
        ("plugin", OUTCOME_ONLY, (0.0, 1.0), True),
        ("plugin", WITH_TREATMENT, (0.0, 1.0), False),
    ],
)
def test_influence_is_the_derivative_in_the_weight_of_a_row(
    estimator, outcome, truncation, weighted
):
    t = table(64, 1)
    models, cohort = fitted(t, outcome, estimator, truncation, weights="w" if weighted else None)
    psi = row_influence(models.added, 3, cohort.weights)
    cut = {"truncation": truncation}
    w = cohort.weights
    expected = three_groups(t, estimator, outcome, weights=w, **cut).influence()
    assert np.isfinite(psi).all()
    assert np.abs(psi).max() > 1
    np.testing.assert_allclose(psi, expected, rtol=0, atol=1e-8 * np.abs(psi).max())
    if estimator == "aipw" and truncation != (0.0, 1.0):
        assert models.propensity.truncated.mean() > 0.1
    # and what the analysis makes of it
    joint = audit(t, ["race"], weights="w" if weighted else None).counterfactual(
        "d ~ race + age + s", outcome_model=outcome, estimator=estimator, **cut
    )
    got = joint.covariance.to_numpy()
    at = [*range(3), *range(len(got) // 2, len(got) // 2 + 3)]
    np.testing.assert_allclose(
        got[np.ix_(at, at)], expected.T @ expected / 64**2, rtol=1e-6, atol=1e-12
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outcome", [OUTCOME_ONLY, WITH_TREATMENT])
@pytest.mark.parametrize("estimator", BOTH)
def test_covariance_is_the_sum_of_products_of_influences(estimator, outcome, weighted):
    t = table(500, 2)
    models, cohort = fitted(t, outcome, estimator, (0.25, 0.6), weights="w" if weighted else None)
    w = cohort.weights
    psi = row_influence(models.added, 3, w)
    moments = contribution_moments(models.added, 3, w)
    got = rate_covariance(moments, np.eye(3))
    np.testing.assert_allclose(psi.sum(axis=0), 0, atol=1e-8 * np.abs(psi).sum(axis=0).max())
    np.testing.assert_allclose(got.covariance, psi.T @ psi / 500**2, rtol=1e-10, atol=1e-14)
    cluster = t["site"].to_numpy()
    C = cluster.max() + 1
    scores = contribution_scores(models.added, 3, cluster, w)
    got = rate_covariance(moments, np.eye(3), cluster_scores=scores)
    sums = np.array([psi[cluster == c].sum(axis=0) for c in range(C)])
    own = own_sites(t)
    assert (own < C).any()
    np.testing.assert_array_equal(got.clusters, own)
    sums *= np.sqrt(own / (own - 1))
    np.testing.assert_allclose(got.covariance, sums.T @ sums / 500**2, rtol=1e-10, atol=1e-14)
    assert not np.allclose(got.covariance, psi.T @ psi / 500**2, rtol=0.01)


def own_sites(t):
    """Sites with untreated rows of each race without the event, then with it."""
    return np.concatenate(
        [t[(t["d"] == 0) & (t["y"] == event)].groupby("race")["site"].nunique() for event in (0, 1)]
    )


def test_clusters_reach_the_standard_errors_of_the_analysis():
    t = table(500, 2)
    models, cohort = fitted(t, weights="w", outcome=OUTCOME_ONLY)
    result = audit(t, ["race"], weights="w", cluster="site").counterfactual(
        "d ~ race + age + s", outcome_model=OUTCOME_ONLY
    )
    psi = row_influence(models.added, 3, cohort.weights)
    sums = np.array([psi[t["site"] == c].sum(axis=0) for c in range(40)])
    own = own_sites(t)
    se = np.sqrt(own / (own - 1) * (sums**2).sum(axis=0)) / 500
    np.testing.assert_allclose(result.rates["se"][:6], se, rtol=1e-9)


# -- estimates ------------------------------------------------------------------------------------


def members(t, groups=True):
    """Groups, then levels of sex and race, then all: the targets of a result, in their order."""
    levels = [t[a].to_numpy() == v for a in ("sex", "race") for v in sorted(t[a].unique())]
    return [*(codes(t) == k for k in range(6)), *levels, np.ones(len(t), bool)]


@pytest.mark.parametrize("folds", [None, 3, "fold", "array"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outcome", [Y, Y_ALL])
@pytest.mark.parametrize("estimator", BOTH)
def test_rates_are_those_of_plain_loops(estimator, outcome, weighted, folds):
    t = table(500, 3)
    own = t["fold"].to_numpy()
    result = audit(t, weights="w" if weighted else None).counterfactual(
        None if estimator == "plugin" else D,
        outcome_model=outcome,
        estimator=estimator,
        folds=own if folds == "array" else folds,
    )
    if folds == 3:
        assert result.folds.drawn
        own = result.folds.codes
        assert result.folds.sizes.max() - result.folds.sizes.min() <= 1
    expected = setting(
        t, estimator, outcome,
        weights=t["w"].to_numpy() if weighted else None,
        folds=None if folds is None else own,
    )  # fmt: skip
    np.testing.assert_allclose(everything(result), expected.rates(members=members(t)), atol=1e-9)


@pytest.mark.parametrize(
    ("propensity", "outcome"),
    [
        ("chance", Y),
        (D, "mu"),
        ("chance", "mu"),
        ("array", "series"),
        ("result", Y),
        (D, "result"),
        ("result", "result"),
        ("result", "result with treatment"),
        ("unrelated result", "mu"),
    ],
)
def test_anything_may_stand_in_place_of_a_formula(propensity, outcome):
    t = table(300, 4)
    family = sm.families.Binomial()
    untreated = t[t["d"] == 0]
    results = {
        "result": smf.glm(D, t, family=family),
        "unrelated result": smf.logit("d ~ age", t),
    }
    outcomes = {
        "result": smf.glm(Y, untreated, family=family),
        "result with treatment": smf.logit(Y_ALL, t),
    }

    def given(name, models):
        if name in models:
            model = models[name]
            return model.fit(tol=1e-13) if name in ("result",) else model.fit(disp=0, tol=1e-13)
        return {"array": t["chance"].to_numpy(), "series": t["mu"].sample(frac=1)}.get(name, name)

    result = audit(t).counterfactual(
        given(propensity, results), outcome_model=given(outcome, outcomes)
    )
    options = {}
    if propensity in ("chance", "array"):
        options.update(X=None, pi=t["chance"].to_numpy())
    if propensity == "unrelated result":
        options["X"] = np.column_stack([np.ones(300), t["age"]])
    if outcome in ("mu", "series"):
        options.update(M=None, mu0=t["mu"].to_numpy())
    chosen = Y_ALL if outcome == "result with treatment" else Y
    expected = setting(t, "aipw", chosen, **options)
    np.testing.assert_allclose(by_group(result), expected.rates(), atol=1e-9)
    # a fitted result counts as estimated: its error is in the standard errors
    if "result" in (propensity, outcome) and "chance" not in (propensity, outcome):
        other = audit(t).counterfactual(D, outcome_model=chosen)
        np.testing.assert_allclose(result.rates["se"], other.rates["se"], rtol=1e-6)


def test_a_result_of_another_fit_counts_as_known():
    t = table(300, 4)
    everyone = smf.glm(Y, t, family=sm.families.Binomial()).fit()  # not on the untreated
    result = audit(t).counterfactual(D, outcome_model=everyone, resamples=[np.arange(300)] * 2)
    expected = setting(t, "aipw", M=None, mu0=np.asarray(everyone.predict(t)))
    np.testing.assert_allclose(by_group(result), expected.rates(), atol=1e-9)
    assert sum("count as known" in note for note in result.notes) == 1
    names = list(result.cohort.groups.names)
    np.testing.assert_allclose(result.boot_draws["cfpr"][names].iloc[0], by_group(result)[:, 0])


def test_a_fitted_result_is_fitted_again_outside_the_folds():
    t = table(300, 4)
    pi = smf.glm(D, t, family=sm.families.Binomial()).fit()
    mu = smf.glm(Y, t[t["d"] == 0], family=sm.families.Binomial()).fit()
    result = audit(t).counterfactual(pi, outcome_model=mu, folds="fold")
    expected = setting(t, "aipw", folds=t["fold"].to_numpy()).rates()
    np.testing.assert_allclose(by_group(result), expected, atol=1e-9)
    assert not any("count as known, and" in note for note in result.notes)


def test_the_estimator_follows_from_what_is_given():
    t = table(300, 5)
    a = audit(t)
    for given, expected in (
        ({"propensity": D}, "ipw"),
        ({"propensity": D, "outcome_model": Y}, "aipw"),
    ):
        one, other = a.counterfactual(**given), a.counterfactual(**given, estimator=expected)
        pd.testing.assert_frame_equal(one.rates, other.rates)
        assert one.estimator == other.estimator
    names = {"ipw": "inverse probability", "aipw": "doubly robust", "plugin": "outcome model alone"}
    results = {e: a.counterfactual(D, outcome_model=Y, estimator=e) for e in ALL}
    for estimator, result in results.items():
        assert names[estimator] in str(result).splitlines()[0]
        np.testing.assert_allclose(by_group(result), setting(t, estimator).rates(), atol=1e-9)
    np.testing.assert_allclose(by_group(a.counterfactual(D)), by_group(results["ipw"]))


@pytest.mark.parametrize("estimator", ["ipw", "plugin"])
def test_a_model_that_is_not_used_is_named_and_only_names_the_treatment(estimator):
    t = table(300, 5)
    t.loc[:50, "age"] = np.nan  # a gap in the model that is not used drops no row
    whole = "~ sex * race + s"
    models = {"ipw": (f"d {whole}", Y), "plugin": (D, f"y {whole}")}[estimator]
    result = audit(t, treatment=None).counterfactual(
        models[0], outcome_model=models[1], estimator=estimator
    )
    assert result.cohort.n_used == 300
    unused = {"ipw": "outcome model", "plugin": "propensity"}[estimator]
    assert sum(f"the {unused} given has no part" in note for note in result.notes) == 1


def test_a_propensity_without_score_is_repaired_by_the_outcome_model_and_the_other_way_round():
    # doubly robust in more than name: truth from a cohort whose treatment does nothing
    n = 20_000
    t = table(n, 6)
    rng = np.random.default_rng(7)
    t["d"] = rng.binomial(1, bad_inputs.expit(3 * t["s"] - 1.5 + 0.3 * (t["sex"] == "M")))
    risk = t["age"] + 2 * t["s"] - 1.5 + 0.4 * (t["race"] == "Black")
    y0 = rng.binomial(1, bad_inputs.expit(risk))
    t["y"] = np.where(t["d"] == 1, 0, y0)
    truth = np.array(
        [
            [plain.observed(y0[m], (t["s"] >= 0.5).to_numpy()[m])[k] for k in ("fpr", "fnr")]
            for m in (codes(t) == k for k in range(6))
        ]
    )
    poor_pi, poor_mu = "d ~ sex * race", "y ~ sex * race"
    worst = {}
    for name, pi, mu, estimator in (
        ("both", D, Y, "aipw"),
        ("outcome", poor_pi, Y, "aipw"),
        ("propensity", D, poor_mu, "aipw"),
        ("neither", poor_pi, poor_mu, "aipw"),
        ("ipw", poor_pi, None, "ipw"),
        ("plugin", None, poor_mu, "plugin"),
    ):
        result = audit(t).counterfactual(pi, outcome_model=mu, estimator=estimator)
        worst[name] = np.abs(by_group(result) - truth).max()
    assert max(worst["both"], worst["outcome"], worst["propensity"]) < 0.025
    assert min(worst["neither"], worst["ipw"], worst["plugin"]) > 0.045


# -- sampling weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Y, Y_ALL])
@pytest.mark.parametrize("estimator", ALL)
def test_whole_weights_are_rows_repeated(estimator, outcome):
    t = table(300, 8)
    t["w"] = np.random.default_rng(8).integers(0, 4, 300)
    repeated = t.loc[np.repeat(t.index, t["w"])].reset_index(drop=True)
    given = {"outcome_model": outcome, "estimator": estimator}
    one = audit(t, weights="w").counterfactual(D, **given)
    two = audit(repeated).counterfactual(D, **given)
    np.testing.assert_allclose(everything(one), everything(two), atol=1e-9)
    if estimator != "ipw":
        np.testing.assert_allclose(
            one.outcome_model.coefficients, two.outcome_model.coefficients, atol=1e-7
        )
    # rows of weight 0 carry nothing, whatever is in them
    t.loc[t["w"] == 0, ["y", "s", "age"]] = [1, 0.99, 40.0]
    three = audit(t, weights="w").counterfactual(D, **given)
    np.testing.assert_allclose(everything(three), everything(two), atol=1e-9)
    np.testing.assert_allclose(three.rates["se"], one.rates["se"], atol=1e-9)


# -- the bootstrap --------------------------------------------------------------------------------


def drawn_rows(n, B=3, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, n, size) for size in (n, n - 50, n + 100)[:B]]


def boot_rates(result):
    names = list(result.cohort.groups.names)
    return np.stack([result.boot_draws[m][names].to_numpy() for m in RATES], axis=-1)


def null_rates(result):
    names = list(result.cohort.groups.names)
    return np.stack([result.null_draws[m][names].to_numpy() for m in RATES], axis=-1)


@pytest.mark.parametrize(
    ("estimator", "outcome", "weighted", "folds"),
    [
        ("ipw", None, True, False),
        ("ipw", None, True, True),
        ("aipw", Y, False, False),
        ("aipw", Y, True, False),
        ("aipw", Y_ALL, True, False),
        ("aipw", Y, False, True),
        ("aipw", Y_ALL, True, True),
        ("plugin", Y, True, False),
        ("plugin", Y_ALL, False, False),
        ("plugin", Y, True, True),
    ],
)
def test_given_rows_equal_a_plain_loop(estimator, outcome, weighted, folds):
    t = table(600, 9)
    rows = drawn_rows(600)
    result = audit(t, weights="w" if weighted else None).counterfactual(
        D, outcome_model=outcome, estimator=estimator, resamples=rows,
        folds="fold" if folds else None, truncation=(0.25, 0.6),
    )  # fmt: skip
    again = setting(
        t, estimator, Y if outcome is None else outcome, truncation=(0.25, 0.6),
        weights=t["w"].to_numpy() if weighted else None,
        folds=t["fold"].to_numpy() if folds else None,
    )  # fmt: skip
    expected = np.array([again.rates(rows=r) for r in rows])
    np.testing.assert_allclose(boot_rates(result), expected, atol=1e-8)
    assert result.boot.rows_per_replicate.tolist() == [600, 550, 700]


@pytest.mark.parametrize("folds", [None, "fold"])
def test_many_fits_at_once_are_the_fits_one_by_one(monkeypatch, folds):
    t = table(600, 9)
    a = audit(t, weights="w")
    options = {"outcome_model": Y_ALL, "resamples": drawn_rows(600), "folds": folds}
    together = a.counterfactual(D, **options)
    for module in (binary_module, bootstrap_module, one_pass_module):
        monkeypatch.setattr(module, "BUDGET", 1)
    alone = a.counterfactual(D, **options)
    np.testing.assert_allclose(boot_rates(alone), boot_rates(together), atol=1e-8)
    again = setting(t, "aipw", Y_ALL, weights=t["w"].to_numpy())
    if folds is None:
        expected = again.rates(rows=options["resamples"][1])
        np.testing.assert_allclose(boot_rates(alone)[1], expected, atol=1e-8)


def test_given_rows_with_one_model_known():
    t = table(400, 9)
    rows = drawn_rows(400)
    for propensity, outcome, options in (
        ("chance", Y, {"X": None, "pi": t["chance"].to_numpy()}),
        (D, "mu", {"M": None, "mu0": t["mu"].to_numpy()}),
    ):
        result = audit(t).counterfactual(propensity, outcome_model=outcome, resamples=rows)
        again = setting(t, "aipw", **options)
        expected = np.array([again.rates(rows=r) for r in rows])
        np.testing.assert_allclose(boot_rates(result), expected, atol=1e-8)


@pytest.mark.parametrize("estimator", ALL)
def test_one_pass_replicates_are_weighted_refits(estimator):
    # the same bytes, with the models refitted in full; sampling weights, and rows without any
    n = 5200
    data = cfair.simulate_cohort(n, seed=8, design="unequal")
    rng = np.random.default_rng(8)
    weights = rng.uniform(0.5, 1.5, n) * (rng.random(n) > 0.1)
    weights /= weights.mean()
    y, s, d = (data[c].to_numpy(dtype=int) for c in ("y", "s", "d"))
    X = np.column_stack([np.ones(n), data["x1"], data["x2"], s]).astype(float)
    g = np.unique((data["a1"] + data["a2"]).to_numpy(), return_inverse=True)[1]
    used = weights > 0
    rows = DesignRows(X)
    treatment = BinaryModel(d.astype(float), rows, (rows,), used, weights)
    outcome = BinaryModel(y.astype(float), rows, (rows,), used & (d == 0), weights)
    fit, fit0 = treatment.fit(), outcome.fit()
    pi, mu0 = np.clip(fit.values[0], 0.005, 0.995), fit0.values[0]
    models = CounterfactualModels(
        Rows(y, s, d, g, 4, weights), estimator, pi, mu0, treatment, outcome
    )
    added = models.contributions(treatment=fit, outcome=fit0)
    plan = one_pass_module.one_pass_plan(models, added)
    block = streams(1, 2, 10)[0]
    fast = one_pass_module.one_pass(plan, block)
    random = block.generator()
    counts = np.column_stack(
        [exchangeable_weights([(random, 10)], r.stop - r.start) for r, _ in plan.blocks]
    )
    slow = models.under_counts(plan.at.put_back(counts.astype(float)))
    np.testing.assert_allclose(fast.observed, slow.observed, rtol=1e-5)
    np.testing.assert_allclose(fast.cells, slow.cells, rtol=0.05)
    assert np.abs(fast.cells / slow.cells - 1).mean() < 0.003
    # nearer to the refit than the draws are to one another
    spread = slow.cells.std(axis=0)
    assert (np.abs(fast.cells - slow.cells).max(axis=0) < 0.35 * spread).all()
    # and with one draw of every row they are the estimates
    once = models.under_counts(np.ones((1, n)))
    moments = contribution_moments(added, 4, weights)
    np.testing.assert_allclose(once.cells[0], moments.by_group(moments.mass), rtol=1e-8)


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize(("n", "outcome"), [(1500, Y), (6000, Y_ALL)])
def test_the_bootstrap_has_the_spread_of_the_influence_functions(n, estimator, outcome):
    t = table(n, 10)
    t.loc[t.index % 10 == 3, "w"] = 0.0  # rows of weight 0 come first in their cells
    result = audit(t, weights="w").counterfactual(
        D, outcome_model=outcome, estimator=estimator, n_boot=300, seed=1
    )
    assert ("one Newton step" in result.boot.method) == (n >= 5000)
    draws = boot_rates(result)
    se = np.column_stack([result.estimates_of(m).se[:6] for m in RATES])
    ratio = draws.std(axis=0) / se
    assert np.abs(ratio - 1).max() < (0.35 if n < 5000 else 0.2)
    assert abs(ratio.mean() - 1) < 0.1
    assert (np.abs(draws.mean(axis=0) - by_group(result)) < 0.35 * se).all()


@pytest.mark.parametrize("estimator", ALL)
def test_one_pass_is_close_to_multinomial_refits(estimator):
    t = table(5000, 11)
    results = [
        audit(t, weights="w").counterfactual(
            "d ~ sex + race + age + s", outcome_model="y ~ sex + race + age + s",
            estimator=estimator, n_boot=draws, seed=1, exact=exact,
        )
        for draws, exact in ((400, False), (100, True))
    ]  # fmt: skip
    fast, slow = (boot_rates(r) for r in results)
    assert "refitted" in results[1].boot.method
    assert np.all(np.abs(fast.std(axis=0) / slow.std(axis=0) - 1) < 0.28)
    error = slow.std(axis=0) / np.sqrt(100)
    assert np.all(np.abs(fast.mean(axis=0) - slow.mean(axis=0)) < 5 * error)


def test_clusters_are_drawn_whole_and_stay_in_their_fold():
    t = table(600, 12)
    result = audit(t, cluster="site").counterfactual(D, outcome_model=Y, folds=3, n_boot=60, seed=1)
    assert result.boot_kind == "cluster"
    folds = pd.Series(result.folds.codes).groupby(t["site"]).nunique()
    assert (folds == 1).all()
    assert "clusters kept whole" in str(result)
    split = audit(t, cluster="site").counterfactual(D, outcome_model=Y, folds="fold")
    apart = (t.groupby("site")["fold"].nunique() > 1).sum()
    assert any(f"{apart} of 40 clusters (site) are in more than" in note for note in split.notes)
    assert not any("in more than" in note for note in result.notes)


# -- permutations ---------------------------------------------------------------------------------


def bare(t):
    X = np.column_stack([np.ones(len(t)), covariates(t)])
    return {"X": X, "M": X}


@pytest.mark.parametrize(
    ("estimator", "attributes", "outcome", "weighted", "folds"),
    [
        ("ipw", True, None, True, False),
        ("ipw", False, None, True, False),
        ("ipw", True, None, True, True),
        ("aipw", True, Y, False, False),
        ("aipw", True, Y_ALL, True, False),
        ("aipw", False, Y, True, False),
        ("aipw", True, Y, True, True),
        ("aipw", False, Y, False, True),
        ("plugin", True, Y, True, False),
        ("plugin", True, Y_ALL, False, True),
        ("plugin", False, Y, False, False),
    ],
)
def test_given_permutations_equal_a_plain_loop(estimator, attributes, outcome, weighted, folds):
    t = table(500, 13)
    rng = np.random.default_rng(13)
    given = np.array([rng.permutation(500) for _ in range(3)])
    formulas = (D, outcome) if attributes else ("d ~ age + s", outcome and "y ~ age + s")
    result = audit(t, weights="w" if weighted else None).counterfactual(
        formulas[0], outcome_model=formulas[1], estimator=estimator, permutations=given,
        folds="fold" if folds else None,
    )  # fmt: skip
    again = setting(
        t, estimator, Y if outcome is None else outcome,
        weights=t["w"].to_numpy() if weighted else None,
        folds=t["fold"].to_numpy() if folds else None,
        **({} if attributes else bare(t)),
    )  # fmt: skip
    expected = np.array([again.rates(labels=p) for p in given])
    np.testing.assert_allclose(null_rates(result), expected, atol=1e-8)
    fixed = result.null.method in (FIXED, FIXED_MODELS)
    assert fixed == (not attributes and not folds)  # out of fold every replicate is fitted


def test_one_model_with_attributes_and_one_without():
    t = table(500, 13)
    rng = np.random.default_rng(14)
    given = np.array([rng.permutation(500) for _ in range(3)])
    for propensity, outcome, options in (
        (D, "y ~ age + s", {"M": bare(t)["M"]}),
        ("d ~ age + s", Y, {"X": bare(t)["X"]}),
        ("chance", Y, {"X": None, "pi": t["chance"].to_numpy()}),
        (D, "mu", {"M": None, "mu0": t["mu"].to_numpy()}),
    ):
        result = audit(t).counterfactual(propensity, outcome_model=outcome, permutations=given)
        again = setting(t, "aipw", **options)
        expected = np.array([again.rates(labels=p) for p in given])
        np.testing.assert_allclose(null_rates(result), expected, atol=1e-8)
        assert result.null.method == REFIT_MODELS


def test_the_identity_gives_back_rates_and_wald_statistics():
    t = table(500, 15)
    for estimator in ALL:
        result = audit(t, weights="w").counterfactual(
            D, outcome_model=Y, estimator=estimator, permutations=np.arange(500)[None, :]
        )
        np.testing.assert_allclose(null_rates(result)[0], by_group(result), atol=1e-9)
        np.testing.assert_allclose(result.null.wald[0], result.null_wald, rtol=1e-6)
        for metric in RATES:
            assert result.studentized_p_value(metric) == 1.0


SHORTCUTS = [
    ("ipw", "d ~ age + s", None),
    ("ipw", D, None),
    ("ipw", "d ~ sex * age + race + s", None),
    ("aipw", D, Y),
    ("aipw", D, Y_ALL),
    ("aipw", "d ~ sex * age + race + s", "y ~ sex * age * d + race + s"),
    ("plugin", None, Y),
    ("plugin", None, "y ~ sex * age * d + race + s"),
]


@pytest.mark.parametrize(("estimator", "propensity", "outcome"), SHORTCUTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_shortcuts_are_close_to_the_full_refit(estimator, propensity, outcome, weighted):
    t = table(5000, 16)
    t.loc[t.index % 10 == 3, "w"] = 0.0
    a = audit(t, weights="w" if weighted else None)
    options = {"outcome_model": outcome, "estimator": estimator, "n_perm": 20, "seed": 3}
    fast = a.counterfactual(propensity, **options)
    slow = a.counterfactual(propensity, **options, exact=True)
    without_attributes = propensity == "d ~ age + s"  # the one case in which nothing is refitted
    assert (fast.null.method == FIXED) == without_attributes
    assert (fast.null.method == slow.null.method) == without_attributes
    if estimator == "ipw":
        assert fast.null.method in (FIXED, GROUP_SUMS, ONE_STEP)
    x, y = fast.null_draws.to_numpy(), slow.null_draws.to_numpy()
    assert np.array_equal(np.isnan(x), np.isnan(y))
    sd = y.std(axis=0)
    error = np.abs(x - y)[:, sd > 0] / sd[sd > 0]
    mean, largest = {"ipw": (0.02, 0.2), "aipw": (0.004, 0.1), "plugin": (0.02, 0.4)}[estimator]
    assert error.mean() < mean
    assert error.max() < largest
    for metric in ("fpr", "fnr"):
        np.testing.assert_allclose(fast.null.rates[metric], slow.null.rates[metric], rtol=1e-12)
    # group sums studentize AIPW and plug-in by the spread of the scores without labels
    gap = np.abs(fast.null.wald - slow.null.wald)
    assert gap.max() < (0.3 if estimator == "ipw" else 1.5)
    assert gap.mean() < (0.1 if estimator == "ipw" else 0.4)


@pytest.mark.parametrize("estimator", BOTH)
def test_a_group_that_is_always_treated_stops_no_shortcut(estimator):
    # its column is left out of the outcome model, but not under other labels
    t = table(5000, 17)
    t.loc[(t["sex"] == "M") & (t["race"] == "Other"), "d"] = 1
    options = {"estimator": estimator, "n_perm": 15, "seed": 3}
    for outcome in (Y, "y ~ sex * race + sex * age + s"):
        fast, slow = (
            audit(t).counterfactual(D, outcome_model=outcome, **options, exact=exact)
            for exact in (False, True)
        )
        x, y = null_rates(fast), null_rates(slow)
        error = np.abs(x - y) / y.std(axis=0)
        assert error.mean() < 0.03
        assert error.max() < 0.35
        assert "step" in fast.null.method
    assert fast.null.method == ONE_STEP_MODELS


@pytest.mark.parametrize("truncation", [(0.0, 1.0), (0.3, 0.5)])
@pytest.mark.parametrize("known", [False, True])
def test_batched_wald_with_weights_equals_a_full_computation_per_replicate(truncation, known):
    t = table(600, 18)
    y, d, g = t["y"].to_numpy(), t["d"].to_numpy(), codes(t)
    s = (t["s"] >= 0.5).to_numpy().astype(int)
    w = t["w"].to_numpy() / t["w"].mean()
    X = bare(t)["X"]
    fit = fit_logistic(X, d, weights=w)
    pi = np.clip(fit.fitted, *truncation)
    rows = DesignRows(X)
    treatment = BinaryModel(d.astype(float), rows, (rows,), np.ones(600, bool), w)
    models = CounterfactualModels(
        Rows(y, s, d, g, 6, w), "ipw", pi, treatment=None if known else treatment,
        truncation=truncation,
    )  # fmt: skip
    given = np.array([np.random.default_rng(r).permutation(600) for r in range(5)])
    null = permutation_null(models, n_perm=0, seed=0, permutations=given)
    assert null.method == FIXED
    model = models._treatment_model(None if known else treatment.fit())
    for r, permuted in enumerate(given):
        full = rate_covariance(cell_moments(y, s, d, g[permuted], model, 6, w), np.eye(6))
        np.testing.assert_allclose(
            plain.ipw_by_group(y, s, d, pi, g[permuted], 6, w).T.ravel(), full.estimate
        )
        for m in range(2):
            at = slice(6 * m, 6 * m + 6)
            wald = logit_wald(full.estimate[at], full.covariance[at, at], full.kish[at])
            assert null.wald[r, m] == pytest.approx(float(wald), rel=1e-9)
            if ((full.estimate[at] > 0) & (full.estimate[at] < 1)).all():
                direct = plain.logit_wald(full.estimate[at], full.covariance[at, at])
                assert null.wald[r, m] == pytest.approx(direct, rel=1e-7)


# -- what must not matter -------------------------------------------------------------------------

CASES = {
    "aipw": {"propensity": D, "outcome_model": Y_ALL},
    "plugin": {"outcome_model": Y, "estimator": "plugin"},
    "discrete": {"propensity": "d ~ sex + C(visits)", "outcome_model": "y ~ race + age + s"},
    "folds": {"propensity": "d ~ sex + race + age + s", "outcome_model": Y_ALL, "folds": 3},
    "folds, discrete": {
        "propensity": "d ~ sex + C(visits)",
        "outcome_model": "y ~ race + C(visits)",
        "folds": 3,
    },
    "known": {"propensity": "chance", "outcome_model": "mu", "folds": 3},
}


def cohort_of(case, n=600):
    t = table(n, 20)
    t["visits"] = np.random.default_rng(20).integers(0, 3, n)
    return t, {**CASES[case], "n_boot": 45, "n_perm": 20, "seed": 1}


@cache
def base(case, weights="w"):
    t, options = cohort_of(case)
    return audit(t, weights=weights).counterfactual(**options)


@cache
def base_numbers(case):
    return numbers(base(case))


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_rows_changes_no_number(case):
    t, options = cohort_of(case)
    moved = audit(shuffled(t), weights="w").counterfactual(**options)
    same(base_numbers(case), numbers(moved), tolerance=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_the_names_of_groups_change_no_number(case):
    t, options = cohort_of(case)
    other = audit(renamed(t), weights="w").counterfactual(**options)
    same(numbers(base(case), sorted_label), numbers(other, old_label), tolerance=1e-8)


@pytest.mark.parametrize("case", ["aipw", "folds"])
def test_workers_change_no_number(case):
    t, options = cohort_of(case)
    for n_jobs in (2, None):
        other = audit(t, weights="w").counterfactual(**options, n_jobs=n_jobs)
        same(base_numbers(case), numbers(other), tolerance=1e-12)


@pytest.mark.parametrize("case", ["aipw", "plugin"])
def test_nothing_matters_in_larger_data_either(case):
    t, options = cohort_of(case, 5000)
    options = {**options, "n_boot": 25}
    one = audit(t, weights="w").counterfactual(**options)
    other = audit(shuffled(t), weights="w").counterfactual(**options, n_jobs=2)
    same(numbers(one), numbers(other), tolerance=1e-5)  # one pass in single precision


# -- rates that are no proportions ----------------------------------------------------------------


def fragile():
    """A group whose cFPR is negative: an untreated event of large weight among the flagged."""
    t = table(400, 21)
    t["chance"], t["mu"] = 0.4, 0.05
    small = t.index[(t["sex"] == "M") & (t["race"] == "Other")]
    t.loc[small, ["y", "d", "s"]] = [0, 0, 0.2]
    t.loc[small[:2], ["y", "d", "s"]] = [1, 0, 0.9]
    t.loc[small[0], "chance"] = 0.9
    return t


def test_a_rate_outside_the_unit_interval_is_shown_as_it_is():
    t = fragile()
    result = audit(t).counterfactual("chance", outcome_model="mu", n_boot=60, n_perm=30, seed=1)
    rate = result.rates.set_index(["metric", "group"]).loc[("cfpr", "M & Other")]
    pi, mu0 = t["chance"].to_numpy(), t["mu"].to_numpy()
    expected = setting(t, "aipw", X=None, M=None, pi=pi, mu0=mu0).rates()
    assert rate["estimate"] == pytest.approx(expected[4, 0])
    assert rate["estimate"] < -0.1
    assert 0 <= rate["ci_low"] <= rate["ci_high"] <= 1
    assert rate["se"] > 0
    notes = [x for x in result.notes if "cFPR outside [0, 1]" in x]
    assert len(notes) == 1
    assert "in M & Other: doubly robust" in notes[0]
    (line,) = [x for x in str(result).splitlines() if re.match(r"M\s+Other\s", x)]
    assert f"{rate['estimate']:.3f} [" in line
    for kind in ("wilson", "logit", "plain"):
        again = audit(t).counterfactual("chance", outcome_model="mu", interval=kind)
        limits = again.rates[["ci_low", "ci_high"]].to_numpy()
        assert ((limits >= 0) & (limits <= 1)).all()
        contrasts = again.contrasts().select_dtypes("number")
        assert np.isfinite(contrasts.to_numpy()).all()
        tests = again.test_equal()[["wald", "p_value"]].to_numpy(float)
        assert np.isfinite(tests).all()
        assert ((tests[:, 1] >= 0) & (tests[:, 1] <= 1)).all()
    disparities = result.disparities.set_index("metric").loc[list(RATES)]
    assert np.isfinite(disparities.select_dtypes("number").to_numpy()).all()
    assert np.isfinite(result.null.wald).all()
    for plot in (result.plot_rates, result.plot_null, result.plot_disparities):
        plot()
        matplotlib.pyplot.close("all")
    weighted = audit(t).counterfactual("chance")
    assert weighted.rates["estimate"].between(0, 1).all()
    assert not any("outside" in note for note in weighted.notes)


def test_thin_groups_are_said_to_do_better_with_weighting_alone():
    t = table(400, 0)
    result = audit(t).counterfactual(D, outcome_model=Y)
    notes = [x for x in result.notes if "hold better" in x]
    kish = result.estimates_of("cfnr").kish[:6]
    assert (kish < 10).any()
    names = [n for n, k in zip(result.cohort.groups.names, kish, strict=True) if k < 10]
    assert sum(all(name in x for name in names) and "cFNR" in x for x in notes) == 1
    assert not any("hold better" in x for x in audit(t).counterfactual(D).notes)


def test_a_denominator_that_is_not_positive_gives_nan_and_its_reason():
    t = fragile()
    small = t.index[(t["sex"] == "M") & (t["race"] == "Other")]
    t.loc[small, "d"] = 1
    t.loc[small[0], "d"] = 0  # one untreated row, an event of weight 10
    t = t.drop(small[8:]).reset_index(drop=True)
    result = audit(t).counterfactual("chance", outcome_model="mu", n_boot=60, seed=1)
    frame = result.rates.set_index(["metric", "group"])
    row = frame.loc[("cfpr", "M & Other")]
    y, d, chance, mu = (t[c].to_numpy() for c in ("y", "d", "chance", "mu"))
    assert (1 - aipw_scores(y, d, chance, mu))[codes(t) == 4].sum() < -0.5
    assert np.isnan(row[["estimate", "se", "ci_low", "ci_high"]].astype(float)).all()
    assert row["note"] == (
        'the scores of non-events do not add up to more than 0: estimator="ipw" may have a rate'
    )
    assert "cFPR is undefined in M & Other (the scores of non-events" in " ".join(result.notes)
    assert np.isfinite(frame.loc[("cfnr", "M & Other"), "estimate"])
    others = frame.drop(index="M & Other", level="group")
    assert np.isfinite(others["estimate"]).all()
    assert (result.test_equal().set_index("metric").loc["cfpr", "df"]) == 4


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize("n", [600, 5200])
def test_a_group_without_events_has_no_rate_made_of_rounding(estimator, n):
    # the group's own term drives its probabilities towards 0; 0/0 is no rate
    t = table(n, 22)
    t.loc[(t["race"] == "Other") & (t["d"] == 0), "y"] = 0
    result = audit(t).counterfactual(
        D, outcome_model=Y, estimator=estimator, n_boot=45, n_perm=5, seed=1
    )
    frame = result.rates.set_index(["metric", "race"]).sort_index()
    assert frame.loc[("cfnr", "Other"), "estimate"].isna().all()
    reason = "the scores of events do not add up to more than 0"
    assert frame.loc[("cfnr", "Other"), "note"].str.startswith(reason).all()
    assert frame.drop(index=("cfnr", "Other"))["estimate"].between(-0.2, 1.2).all()
    names = [x for x in result.cohort.groups.names if "Other" in x]
    assert result.boot_draws["cfnr"][names].isna().all(axis=None)
    others = [x for x in result.cohort.groups.names if "Other" not in x]
    assert result.boot_draws["cfnr"][others].notna().all(axis=None)
    assert f"cFNR is undefined in F & Other ({reason}" in " ".join(result.notes)


def test_sums_that_are_only_rounding_are_nothing():
    cells = np.array([[[3.0, 2.0], [1e-15, -3e-15]], [[3.0, 2.0], [1e-7, 0.0]], [[-1, 3], [0, 2]]])
    got = without_rounding(cells)
    assert (got[0, 1] == 0).all()
    np.testing.assert_array_equal(got[0, 0], cells[0, 0])
    np.testing.assert_array_equal(got[1:], cells[1:])
    assert (without_rounding(cells, 1e-6)[1, 1] == 0).all()
    nothing = np.full((2, 2), np.nan)
    assert np.isnan(without_rounding(nothing)).all()


# -- what is said ---------------------------------------------------------------------------------


def heard(t, *args, **options):
    with pytest.warns(ModelWarning) as caught:
        result = audit(t).counterfactual(*args, **options)
    said = [str(w.message) for w in caught if w.category is ModelWarning]
    assert all(message in result.notes for message in said)
    return said, result


def test_a_model_without_score_or_attributes_is_warned_of_by_what_it_costs():
    t = table(400, 23)
    said, _ = heard(t, D, outcome_model="y ~ sex * race + age")
    assert len(said) == 1
    assert "outcome formula has neither the score nor its 0/1 form" in said[0]
    assert "double robustness is lost" in said[0]
    said, _ = heard(t, D, outcome_model="y ~ sex + age + s")
    assert len(said) == 1
    assert "the outcome formula leaves out race:" in said[0]
    said, _ = heard(t, None, outcome_model="y ~ age", estimator="plugin")
    assert len(said) == 2
    assert all("rates from it are biased" in x for x in said)
    said, _ = heard(t, "d ~ age", outcome_model=Y)
    assert len(said) == 2
    assert all("the rates rest on the outcome model being right" in x for x in said)
    said, _ = heard(t, "d ~ age")
    assert all("rates are biased" in x and "outcome model" not in x for x in said)


def test_the_call_may_stand_for_the_score_and_full_models_are_silent(recwarn):
    t = table(400, 23)
    t["call"] = (t["s"] >= 0.5).astype(int)
    a = audit(t, score=None, cutoff=None, prediction="call")
    a.counterfactual("d ~ sex * race + call", outcome_model="y ~ sex * race + call")
    audit(t).counterfactual(D, outcome_model=Y)
    audit(t).counterfactual(D, outcome_model="mu")
    assert [w for w in recwarn if w.category is ModelWarning] == []


def test_a_level_among_the_treated_alone_is_not_passed_over():
    t = table(400, 24)
    rng = np.random.default_rng(24)
    t["ward"] = rng.choice(["a", "b"], 400)
    treated = t.index[t["d"] == 1][:17]
    t.loc[treated, "ward"] = "icu"
    with pytest.warns(RankWarning, match=r"ward\[T.icu\].*17 rows have values of these terms") as w:
        result = audit(t).counterfactual(D, outcome_model=Y + " + ward")
    assert not any("do not change" in str(x.message) for x in w)
    assert any("17 rows have values" in note for note in result.notes)
    X = np.hstack([design(t)(None), (t["ward"] == "b").to_numpy(float)[:, None]])
    expected = setting(t, "aipw", M=X).rates()
    np.testing.assert_allclose(by_group(result), expected, atol=1e-9)
    # a column that is a combination everywhere changes nothing, and is said to
    with pytest.warns(RankWarning, match="Predictions do not change"):
        audit(t.assign(age2=2 * t["age"])).counterfactual(D, outcome_model=Y + " + age2")
    folded = audit(t).counterfactual(D, outcome_model=Y + " + ward", folds=3)
    assert any("terms were left out" in x and "3 of 3 folds" in x for x in folded.notes)


def test_separation_is_told_in_and_out_of_folds():
    t = table(400, 25)
    t["old"] = (t["age"] > 0.8).astype(int)
    t.loc[(t["old"] == 1) & (t["d"] == 0), "y"] = 1
    with pytest.warns(cfair.errors.SeparationWarning, match="outcome model.*separated by old"):
        one = audit(t).counterfactual(D, outcome_model=Y + " + old")
    assert np.isfinite(by_group(one)).all()
    two = audit(t).counterfactual(D, outcome_model=Y + " + old", folds=3)
    assert any("outcome model: terms separate" in x and "3 of 3 folds" in x for x in two.notes)
    fine = audit(t).counterfactual(D, outcome_model="y ~ sex + race + age + s", folds=2)
    assert not any("terms separate" in x for x in fine.notes)


@pytest.mark.parametrize("estimator", ALL)
def test_out_of_fold_notes_say_what_the_errors_leave_out(estimator):
    t = table(400, 26)
    result = audit(t).counterfactual(D, outcome_model=Y, estimator=estimator, folds=3)
    inside = audit(t).counterfactual(D, outcome_model=Y, estimator=estimator)
    words = {
        "ipw": "the propensity is predicted out of fold and counts as known",
        "aipw": "models are predicted out of fold and count as known",
        "plugin": "no influence function when it is predicted out of fold",
    }
    for e, text in words.items():
        assert any(text in x for x in result.notes) == (e == estimator)
        assert not any(text in x for x in inside.notes)
    assert "folds" in str(result)
    assert "models predict out of fold" in str(result)
    assert "out of fold" not in str(inside)


def test_an_outcome_model_alone_out_of_fold_has_intervals_from_the_bootstrap_only():
    t = table(500, 27)
    options = {"outcome_model": Y, "estimator": "plugin", "folds": "fold", "seed": 1}
    none = audit(t).counterfactual(**options)
    few = audit(t).counterfactual(**options, n_boot=39)
    some = audit(t).counterfactual(**options, n_boot=60)
    scheme = audit(t).counterfactual(**options, n_boot=60, bootstrap="faircfint")
    expected = setting(t, "plugin", folds=t["fold"].to_numpy()).rates()
    for result in (none, few, scheme, some):
        np.testing.assert_allclose(by_group(result), expected, atol=1e-9)
        frame = result.rates[result.rates["metric"].isin(RATES)]
        columns = ["se", "ci_low", "ci_high"]
        if result is some:
            draws = result.boot_draws
            names = list(result.cohort.groups.names)
            sd = np.concatenate([draws[m][names].std(ddof=1) for m in RATES])
            np.testing.assert_allclose(frame["se"], sd, rtol=1e-9)
            assert frame[columns].notna().all(axis=None)
            assert any("standard errors are from the bootstrap" in x for x in result.notes)
            assert "95%, bootstrap" in str(result)
        else:
            assert frame[columns].isna().all(axis=None)
            assert any("there are no intervals without n_boot= of 40" in x for x in result.notes)
    joint = some.covariance
    np.testing.assert_allclose(
        joint.loc[("cfpr", "F & White"), ("cfnr", "M & White")],
        some.boot_draws[[("cfpr", "F & White"), ("cfnr", "M & White")]].cov().iloc[0, 1],
    )


def test_folds_without_a_model_to_fit_have_no_effect_and_say_so():
    t = table(400, 28)
    for given in (
        {"outcome_model": "mu", "estimator": "plugin"},
        {"propensity": "chance", "outcome_model": "mu"},
        {"propensity": "chance"},
    ):
        one, other = (audit(t).counterfactual(**given, folds=f) for f in (3, None))
        pd.testing.assert_frame_equal(one.rates, other.rates)
        assert one.folds is None
        assert any("folds have no effect" in x for x in one.notes)
        assert "influence functions" in str(one)
        assert "out of fold" not in str(one)
    result = audit(t).counterfactual("chance", outcome_model=Y, folds=3)
    assert result.folds.n_folds == 3


# -- hard samples ---------------------------------------------------------------------------------


def test_the_smallest_samples_stop_nothing():
    t = table(400, 29)
    for n in (14, 20, 30):
        small = t.iloc[:n]
        for estimator in ALL:
            result = audit(small).counterfactual(
                "d ~ age", outcome_model="y ~ age", estimator=estimator,
                n_boot=45, n_perm=10, seed=1,
            )  # fmt: skip
            assert len(str(result)) > 500
            frame = result.rates
            assert ((frame["note"] != "") | frame["estimate"].notna()).all()


def test_one_group_and_a_group_without_untreated():
    t = table(400, 30)
    one = audit(t.assign(all="all"), ["all"]).counterfactual(
        "d ~ age + s", outcome_model="y ~ age + s", n_boot=45, n_perm=5
    )
    again = setting(t, "aipw", **bare(t))
    expected = again.rates(members=[np.ones(400, bool)])
    np.testing.assert_allclose(by_group(one), expected, atol=1e-9)
    t.loc[(t["sex"] == "M") & (t["race"] == "Other"), "d"] = 1
    n = ((t["sex"] == "M") & (t["race"] == "Other")).sum()
    result = audit(t).counterfactual(D, outcome_model=Y)
    assert any(f"{n} rows have values of these terms that no row" in x for x in result.notes)
    frame = result.rates.set_index(["metric", "group"])
    assert frame.loc[("cfpr", "M & Other"), "untreated"] == 0
    weighted = audit(t).counterfactual(D).rates.set_index(["metric", "group"])
    assert weighted.loc[("cfpr", "M & Other"), "note"] == "no untreated rows"


@pytest.mark.parametrize("kind", ["bool", "text"])
def test_treatment_and_outcome_in_other_codes_and_awkward_names(kind):
    t = table(400, 31)
    base = audit(t).counterfactual(D, outcome_model=Y_ALL)
    new = t.rename(columns={"y": "died in hospital", "d": "was treated", "age": "age at entry"})
    options = {"outcome": "died in hospital", "treatment": "was treated"}
    for name, event in (("died in hospital", "yes"), ("was treated", "drug")):
        new[name] = new[name] == 1 if kind == "bool" else np.where(new[name] == 1, event, "none")
    if kind == "text":
        options.update(outcome_event="yes", treatment_event="drug")
    result = audit(new, **options).counterfactual(
        "`was treated` ~ sex * race + `age at entry` + s",
        outcome_model="`died in hospital` ~ sex * race + `age at entry` * `was treated` + s",
    )
    np.testing.assert_allclose(everything(result), everything(base), atol=1e-12)
    np.testing.assert_allclose(result.rates["se"], base.rates["se"], rtol=1e-9)
    assert "all rows, with treatment set to none" in str(result)
    categorical = audit(new, **options).counterfactual(
        "`was treated` ~ sex * race + `age at entry` + s",
        outcome_model="~ sex * race + `age at entry` * C(`was treated`) + s",
    )
    np.testing.assert_allclose(everything(categorical), everything(base), atol=1e-9)


def test_no_truncation_with_separation_divides_by_nothing():
    t = table(400, 32)
    t["old"] = (t["age"] > 1).astype(float)
    t.loc[t["age"] > 1, "d"] = 1
    for estimator in ("ipw", "aipw"):
        result = audit(t).counterfactual(
            D + " + old", outcome_model=Y, estimator=estimator, truncation=None,
            n_boot=45, n_perm=3, seed=1,
        )  # fmt: skip
        assert np.isfinite(by_group(result)).all()
        assert np.isfinite(boot_rates(result)).mean() > 0.9
