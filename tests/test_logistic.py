"""Logistic regression against statsmodels, and what it says of designs that have no fit."""

from __future__ import annotations

import numpy as np
import plain
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import chi2 as chi2_law

import cfair
from cfair.errors import ModelWarning
from cfair.nuisance import logistic
from cfair.nuisance.binary import BinaryModel, DesignRows
from cfair.nuisance.logistic import (
    fit_logistic,
    independent_columns,
    solve_information,
    sweep,
)
from cfair.nuisance.logistic_labelled import solve_many
from cfair.nuisance.multinomial_binary import fit_binary_many
from cfair.nuisance.omitted import score_test

# rows, covariates, seed, strength of the effects
DATA = [(60, 2, 0, 0.3), (300, 5, 1, 1.0), (2000, 3, 2, 2.0), (20_000, 4, 3, 0.7)]


def sample(n, p, seed, strength=1.0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, p))])
    beta = strength * rng.normal(size=p + 1) / np.sqrt(p)
    return X, rng.binomial(1, expit(X @ beta)), rng


@pytest.mark.parametrize(("n", "p", "seed", "strength"), DATA)
def test_a_fit_equals_statsmodels_logit(n, p, seed, strength):
    X, d, _ = sample(n, p, seed, strength)
    fit = fit_logistic(X, d)
    reference = sm.Logit(d, X).fit(disp=0, tol=1e-14, maxiter=100)
    np.testing.assert_allclose(fit.coef, reference.params, atol=1e-10)
    np.testing.assert_allclose(fit.fitted, reference.predict(), atol=1e-10)
    assert fit.deviance == pytest.approx(-2 * reference.llf, rel=1e-12)
    assert fit.converged
    assert fit.kept.all()
    assert not fit.separated.any()
    np.testing.assert_allclose(fit.predict(X), fit.fitted, atol=1e-15)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_scale_of_a_column_changes_only_its_coefficient(scale):
    X, d, _ = sample(400, 3, 5)
    Z = X * np.array([1.0, scale, 1.0, 1.0])
    a, b = fit_logistic(X, d), fit_logistic(Z, d)
    np.testing.assert_allclose(b.fitted, a.fitted, atol=1e-10)
    assert b.coef[1] * scale == pytest.approx(a.coef[1], rel=1e-8)
    assert not b.separated.any()


def test_any_start_ends_at_the_same_maximum():
    X, d, rng = sample(500, 3, 6)
    a = fit_logistic(X, d)
    for _ in range(5):
        b = fit_logistic(X, d, start=rng.normal(size=4) * 5)
        np.testing.assert_allclose(b.coef, a.coef, atol=1e-9)
        assert b.converged


# -- rank -----------------------------------------------------------------------------------------

# name, columns (from 1, x, z), the columns that R's glm leaves out
ALIASED = [
    ("copy", lambda o, x, z: [o, x, x, z], [2]),
    ("multiple comes later", lambda o, x, z: [o, x, z, 3 * x], [3]),
    ("multiple comes first", lambda o, x, z: [o, 3 * x, z, x], [3]),
    ("sum", lambda o, x, z: [o, x, z, x + z], [3]),
    ("sum before its parts", lambda o, x, z: [o, x + z, x, z], [3]),
    ("constant", lambda o, x, z: [o, x, 2 * o, z], [2]),
    ("all dummies", lambda o, x, z: [o, z > 0, z <= 0, x], [2]),
    ("zero column", lambda o, x, z: [o, 0 * o, x, z], [1]),
    ("two copies", lambda o, x, z: [o, x, x, z, z, x], [2, 4, 5]),
    ("shifted", lambda o, x, z: [o, x, x + 5, z], [2]),
]


@pytest.mark.parametrize(("columns", "out"), [c[1:] for c in ALIASED], ids=[c[0] for c in ALIASED])
def test_aliased_columns_are_left_out_as_in_r(columns, out):
    X, d, rng = sample(200, 1, 7)
    x, z = rng.normal(size=(2, 200))
    X = np.column_stack([np.asarray(c, float) for c in columns(np.ones(200), x, z)])
    fit = fit_logistic(X, d)
    assert np.flatnonzero(~fit.kept).tolist() == out
    assert np.flatnonzero(np.isnan(fit.coef)).tolist() == out
    assert not fit.separated.any()
    np.testing.assert_allclose(fit.fitted, plain.logit(X, d), atol=1e-10)
    np.testing.assert_allclose(fit.predict(X), fit.fitted, atol=1e-14)


def test_nearly_aliased_columns_stay_in():
    X, _, rng = sample(300, 2, 8)
    X = np.column_stack([X, X[:, 1] + 1e-7 * rng.normal(size=300)])
    assert independent_columns(X).all()


def test_more_columns_than_rows_leaves_some_out():
    X, _, _ = sample(5, 7, 9)
    kept = independent_columns(X)
    assert kept.tolist() == [True] * 5 + [False] * 3


def test_a_design_without_columns_has_probability_one_half():
    assert independent_columns(np.zeros((10, 0))).shape == (0,)
    fit = fit_logistic(np.zeros((10, 0)), np.array([0, 1] * 5))
    np.testing.assert_array_equal(fit.fitted, np.full(10, 0.5))


# -- separation -----------------------------------------------------------------------------------


def test_complete_separation_names_the_column():
    X, _, _ = sample(300, 2, 10)
    fit = fit_logistic(X, (X[:, 1] > 0.2).astype(int))
    assert fit.separated[1]


@pytest.mark.parametrize("value", [0, 1])
def test_a_group_without_variation_is_named_alone(value):
    X, d, _ = sample(300, 2, 11)
    dummy = (np.arange(300) < 30).astype(float)
    d = d.copy()
    d[:30] = value
    fit = fit_logistic(np.column_stack([X, dummy]), d)
    assert fit.separated.tolist() == [False, False, False, True]
    others = fit_logistic(X[30:], d[30:])
    np.testing.assert_allclose(fit.coef[:3], others.coef, atol=1e-8)


@pytest.mark.parametrize("value", [0, 1])
def test_an_interaction_cell_without_variation_is_named(value):
    rng = np.random.default_rng(12)
    a, b = rng.integers(0, 2, (2, 400))
    d = rng.integers(0, 2, 400)
    d[(a == 1) & (b == 1)] = value
    fit = fit_logistic(np.column_stack([np.ones(400), a, b, a * b]).astype(float), d)
    assert fit.separated.tolist() == [False, False, False, True]


@pytest.mark.parametrize("seed", range(8))
def test_strong_but_finite_effects_are_not_called_separation(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=400)
    d = rng.binomial(1, expit(8 * x))
    d[np.argmax(x)] = 0  # the tails overlap
    d[np.argmin(x)] = 1
    assert not fit_logistic(np.column_stack([np.ones(400), x]), d).separated.any()
    dummy = (np.arange(400) < 40).astype(float)
    d[:40] = 1
    d[0] = 0  # one row is enough for a maximum
    fit = fit_logistic(np.column_stack([np.ones(400), x, dummy]), d)
    assert not fit.separated.any()
    assert fit.converged


@pytest.mark.parametrize("seed", range(8))
def test_a_near_copy_of_a_covariate_is_not_separation(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=500)
    d = rng.binomial(1, expit(0.8 * x))
    X = np.column_stack([np.ones(500), x, x + 1e-7 * rng.normal(size=500)])
    fit = fit_logistic(X, d)
    assert fit.kept.all()
    assert not fit.separated.any()
    # twice the log likelihood of one covariate that is nothing but noise
    assert 0 <= fit_logistic(X[:, :2], d).deviance - fit.deviance < 15
    apart = fit_logistic(X, (x > 0.2).astype(int))
    assert apart.separated[1:].any()


def test_an_outcome_without_variation_is_separation():
    X, _, _ = sample(100, 1, 13)
    assert fit_logistic(X, np.ones(100, int)).separated[0]


# -- weights and blocks ---------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whole_weights_are_repeated_rows(seed):
    X, d, rng = sample(80, 2, seed, 0.5)
    weights = rng.integers(0, 4, 80)
    # keep both outcomes and full rank whatever the draw
    weights[:20] += 1
    repeated = np.repeat(np.arange(80), weights)
    a = fit_logistic(X, d, weights=weights.astype(float))
    b = fit_logistic(X[repeated], d[repeated])
    if b.separated.any():
        assert a.separated.any()
        return
    np.testing.assert_allclose(a.coef, b.coef, atol=1e-9)
    assert a.deviance == pytest.approx(b.deviance, rel=1e-10)


def test_real_weights_equal_statsmodels_glm():
    X, d, rng = sample(300, 3, 14)
    w = rng.uniform(0.1, 3, 300)
    np.testing.assert_allclose(
        fit_logistic(X, d, weights=w).coef, plain.weighted_logit(X, d, w), atol=1e-9
    )


@pytest.mark.parametrize("block", [1, 7, 128, 999, 5000])
def test_blocks_of_rows_change_nothing(block):
    X, d, rng = sample(1000, 3, 15)
    w = rng.uniform(0, 2, 1000)
    beta = rng.normal(size=4)
    for weights in (None, w):
        whole = sweep(X, d.astype(float), weights, beta, block=10_000)
        parts = sweep(X, d.astype(float), weights, beta, block=block)
        for a, b in zip(whole, parts, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-10)


def test_rank_is_found_across_blocks():
    X, _, _ = sample(40_000, 2, 16)
    X = np.column_stack([X, X[:, 1] - 2 * X[:, 2]])
    assert independent_columns(X).tolist() == [True, True, True, False]


WARM = [(400, 2, 30, 0.5), (3000, 4, 31, 1.0), (20_000, 3, 32, 2.0)]


@pytest.mark.parametrize(("n", "p", "seed", "strength"), WARM)
@pytest.mark.parametrize("weighted", [False, True])
def test_starting_from_a_part_of_the_rows_ends_at_the_same_maximum(
    monkeypatch, n, p, seed, strength, weighted
):
    X, d, rng = sample(n, p, seed, strength)
    weights = rng.uniform(0.2, 2, n) if weighted else None
    cold = fit_logistic(X, d, weights=weights)
    monkeypatch.setattr(logistic, "_WARM_FROM", 0)
    warm = fit_logistic(X, d, weights=weights)
    assert logistic._starting_values(X, d.astype(float), weights).any()  # the part has a fit
    assert warm.n_iter <= cold.n_iter
    assert warm.converged
    assert not warm.separated.any()
    np.testing.assert_allclose(warm.coef, cold.coef, atol=1e-10)
    np.testing.assert_allclose(warm.fitted, cold.fitted, atol=1e-10)
    np.testing.assert_allclose(warm.information, cold.information, rtol=1e-6)
    assert warm.deviance == pytest.approx(cold.deviance, rel=1e-12)


@pytest.mark.parametrize("part", ["separated", "without a level", "of one value", "tiny"])
def test_a_part_of_the_rows_without_a_fit_is_no_start(monkeypatch, part):
    X, d, rng = sample(30 if part == "tiny" else 1600, 1, 33)
    d = d.copy()
    some = np.arange(len(d)) % 16 == 0
    if part == "separated":
        d[some] = X[some, 1] > 0
    elif part == "of one value":
        d[some] = 1
    elif part == "without a level":
        X = np.column_stack([X, ~some & (rng.random(len(d)) < 0.1)])
    cold = fit_logistic(X, d)
    monkeypatch.setattr(logistic, "_WARM_FROM", 0)
    warm = fit_logistic(X, d)
    assert cold.converged
    assert warm.converged
    assert not warm.separated.any()
    np.testing.assert_allclose(warm.coef, cold.coef, atol=1e-10)


def test_separation_is_found_from_a_start_on_a_part_of_the_rows(monkeypatch):
    monkeypatch.setattr(logistic, "_WARM_FROM", 0)
    X, d, _ = sample(1600, 2, 34)
    dummy = (np.arange(1600) < 40).astype(float)
    d = np.where(dummy == 1, 1, d)
    fit = fit_logistic(np.column_stack([X, dummy]), d)
    assert fit.separated.tolist() == [False, False, False, True]


# -- many fits ------------------------------------------------------------------------------------


def model_of(X, d, **options):
    rows = DesignRows(X)
    return BinaryModel(d.astype(float), rows, (rows,), np.ones(len(d), bool), **options)


@pytest.mark.parametrize("seed", range(3))
def test_many_fits_equal_one_fit_each(seed):
    X, d, rng = sample(250, 3, seed)
    weights = rng.multinomial(250, np.full(250, 1 / 250), size=30).astype(float)
    (fitted,), converged = fit_binary_many(model_of(X, d), weights, fit_logistic(X, d).coef)
    assert converged.all()
    for b in range(30):
        one = fit_logistic(X, d, weights=weights[b])
        np.testing.assert_allclose(fitted[b], one.predict(X), atol=1e-9)


def test_many_fits_without_the_rows_of_a_column_leave_it_out():
    X, d, _ = sample(200, 1, 17)
    X = np.column_stack([X, np.arange(200) < 5])
    weights = np.ones((2, 200))
    weights[1, :5] = 0.0
    (fitted,), converged = fit_binary_many(model_of(X, d), weights, None)
    assert converged.all()
    without = fit_logistic(X[5:, :2], d[5:])
    np.testing.assert_allclose(fitted[1], without.predict(X[:, :2]), atol=1e-8)
    np.testing.assert_allclose(fitted[0], fit_logistic(X, d).fitted, atol=1e-8)


def test_many_fits_never_report_a_separated_replicate_as_a_finite_fit():
    X, d, _ = sample(100, 1, 18)
    keep = X[:, 1] > 0
    weights = (np.where(keep, d == 1, d == 0)).astype(float)[None, :]
    (fitted,), converged = fit_binary_many(model_of(X, d), weights, np.zeros(2))
    assert not converged[0] or np.all(np.abs(fitted[0] - d)[weights[0] > 0] < 1e-3)


def test_many_fits_of_small_strong_samples_equal_one_fit_each():
    """300 bootstrap samples of 30 to 120 rows; where the fit converged its probabilities hold."""
    held, total = 0, 0
    for seed in range(30):
        rng = np.random.default_rng(100 + seed)
        n = int(rng.integers(30, 121))
        X = np.column_stack([np.ones(n), rng.normal(size=(n, 2)), rng.random(n) < 0.3])
        d = rng.binomial(1, expit(X @ [0.3, 2.5, -2.0, 1.5]))
        weights = rng.multinomial(n, np.full(n, 1 / n), size=10).astype(float)
        (fitted,), converged = fit_binary_many(model_of(X, d), weights, None)
        for b in range(10):
            total += 1
            if not converged[b]:
                continue
            held += 1
            one = fit_logistic(X, d, weights=weights[b])
            rows = weights[b] > 0
            np.testing.assert_allclose(
                fitted[b, rows], one.predict(X)[rows], atol=1e-6, err_msg=f"{seed}, {b}"
            )
    assert total == 300
    assert held > 200


def test_solvers_solve():
    rng = np.random.default_rng(19)
    roots = rng.normal(size=(6, 4, 4))
    stack = roots @ roots.transpose(0, 2, 1)
    right = rng.normal(size=(6, 4))
    for k in range(6):
        one = solve_information(stack[k], right[k])
        np.testing.assert_allclose(stack[k] @ one, right[k], atol=1e-8)
        np.testing.assert_allclose(solve_many(stack, right)[k], one, rtol=1e-7)
    many = solve_information(stack[0], right[:3].T)
    np.testing.assert_allclose(many[:, 1], solve_information(stack[0], right[1]), rtol=1e-10)
    flat = np.diag([2.0, 0.0, 4.0])
    np.testing.assert_allclose(solve_information(flat, np.array([2.0, 0.0, 2.0])), [1, 0, 0.5])


# -- score test -----------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1, 2, 3])
def test_score_test_equals_statsmodels(q):
    X, d, rng = sample(400, 2, 20 + q)
    added = rng.normal(size=(400, q)) + 0.3 * X[:, [1]]
    got = score_test(X, d, fit_logistic(X, d), added)
    model = sm.GLM(d, np.column_stack([X, added]), family=sm.families.Binomial())
    small = sm.GLM(d, X, family=sm.families.Binomial()).fit(tol=1e-14)
    expected = model.score_test(np.concatenate([small.params, np.zeros(q)]), k_constraints=q)
    assert got[0] == pytest.approx(float(np.squeeze(expected[0])), rel=1e-6)
    assert got[1] == q
    assert got[2] == pytest.approx(float(np.squeeze(expected[1])), rel=1e-6)


def test_score_test_is_close_to_the_likelihood_ratio():
    X, d, rng = sample(50_000, 2, 24)
    added = rng.normal(size=(50_000, 2))
    d = rng.binomial(1, expit(X @ [0.2, 0.5, -0.5] + added @ [0.02, 0.0]))
    small, large = fit_logistic(X, d), fit_logistic(np.column_stack([X, added]), d)
    chi2, df, p = score_test(X, d, small, added)
    assert chi2 == pytest.approx(small.deviance - large.deviance, rel=0.02)
    assert (df, p) == (2, pytest.approx(chi2_law.sf(chi2, 2), rel=1e-10))


def test_score_test_counts_only_columns_that_add_something():
    X, d, rng = sample(300, 2, 25)
    fit = fit_logistic(X, d)
    assert score_test(X, d, fit, X[:, [1]] * 3)[:2] == (0.0, 0)
    new = rng.normal(size=300)
    once = score_test(X, d, fit, new[:, None])
    twice = score_test(X, d, fit, np.column_stack([new, 2 * new, X[:, 1]]))
    assert twice[1] == 1
    assert twice[0] == pytest.approx(once[0], rel=1e-6)


def test_predictions_outside_a_separated_fit_do_not_hang_on_the_order_of_the_rows():
    """Rounding must not decide the last steps: levels that rows outside have are separated."""
    rng = np.random.default_rng(27)
    n, worst = 90, 0.0
    for _ in range(40):
        y, site = (
            rng.integers(0, 2, n),
            rng.choice(8, n, p=np.array([30, 20, 10, 5, 3, 2, 1, 1]) / 72),
        )
        X = np.column_stack([np.ones(n), rng.normal(size=n), *(site == k for k in range(1, 8))])
        train = np.arange(n) % 3 > 0
        one = fit_logistic(X[train], y[train]).predict(X[~train])
        two = fit_logistic(X[train][::-1], y[train][::-1]).predict(X[~train])
        worst = max(worst, float(np.abs(one - two).max()))
    assert worst < 1e-4


@pytest.mark.parametrize("coding", ["intercept", "groups"])
@pytest.mark.parametrize("offset", [1e7, 2e9])
def test_a_column_far_from_zero_is_centred(offset, coding):
    X, y = sample(400, 3, seed=8)[:2]
    first = X[:, 1] > 0
    constant = [np.ones(400)] if coding == "intercept" else [first, ~first]
    Z = np.column_stack([*constant, X[:, 2], np.round(40 + 12 * X[:, 2] ** 2 + 5 * X[:, 1])])
    near = fit_logistic(Z, y)
    Z[:, -1] += offset
    far = fit_logistic(Z, y)
    np.testing.assert_allclose(far.coef[-2:], near.coef[-2:], rtol=1e-8)
    np.testing.assert_allclose(far.fitted, near.fitted, rtol=1e-9)
    np.testing.assert_allclose(far.predict(Z), near.fitted, atol=1e-7)
    again = fit_logistic(Z, y, start=far.coef)
    np.testing.assert_allclose(again.coef[-1], near.coef[-1], rtol=1e-8)


def test_columns_far_from_zero_are_found_and_constants_are_not():
    x = np.random.default_rng(0).standard_normal(500)
    X = np.column_stack([np.ones(500), np.full(500, 0.1), x, x + 9e3, x + 2e4, x + 2e9])
    assert logistic.far_columns(X).tolist() == [False] * 4 + [True] * 2


def test_a_far_column_is_warned_of_with_its_mean():
    data = cfair.load_cohort()
    data = data.assign(stamp=2e9 + np.round(data["age"]))
    audit = cfair.Audit(data, outcome="readmitted", score="risk", cutoff=0.5, groups="sex")
    with pytest.warns(ModelWarning, match=r"stamp \(mean 2e\+09, standard deviation 9\.6\)"):
        far = audit.counterfactual("treated ~ sex + risk + stamp")
    near = audit.counterfactual("treated ~ sex + risk + I(stamp - 2e9)")
    assert any("Centre it" in note for note in far.notes)
    assert not any("Centre it" in note for note in near.notes)
    np.testing.assert_allclose(far.rates["estimate"], near.rates["estimate"], rtol=1e-7)
    with pytest.warns(ModelWarning, match=r"stamp \(mean 2e\+09\)"):
        cfair.counterfactual_by_batches(
            data, "treated ~ sex + risk + stamp", outcome="readmitted", score="risk", cutoff=0.5,
            groups="sex",
        )  # fmt: skip
