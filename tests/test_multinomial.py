"""Multinomial regression against statsmodels; designs and replicates that are not well behaved."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from cfair.errors import ConvergenceError, DataError
from cfair.nuisance import logistic, multinomial, multinomial_many
from cfair.nuisance.logistic import fit_logistic
from cfair.nuisance.multinomial import fit_multinomial
from cfair.nuisance.multinomial_influence import multinomial_influence, multinomial_score
from cfair.nuisance.multinomial_many import (
    ManyMultinomialFits,
    fit_multinomial_many,
    predict_many,
    settled_fits,
)
from cfair.nuisance.multinomial_sweep import expected_sums, full_sweep, softmax

# rows, covariates, classes, seed, strength of the effects
DATA = [(80, 1, 3, 0, 0.3), (400, 3, 4, 1, 0.7), (1500, 5, 6, 2, 0.5), (9000, 2, 3, 3, 1.5)]


def draw(rng, P):
    return (rng.random(len(P))[:, None] > np.cumsum(P, axis=1)[:, :-1]).sum(axis=1)


def sample(n, p, K, seed, strength=0.7):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, p))])
    beta = strength * rng.normal(size=(K, p + 1))
    return X, draw(rng, softmax(beta @ X.T).T), rng


def reference(X, group):
    return sm.MNLogit(group, X).fit(disp=0, method="newton", tol=1e-14, maxiter=100)


@pytest.mark.parametrize(("n", "p", "K", "seed", "strength"), DATA)
def test_a_fit_equals_statsmodels_mnlogit(n, p, K, seed, strength):
    X, group, _ = sample(n, p, K, seed, strength)
    fit, model = fit_multinomial(X, group, K), reference(X, group)
    np.testing.assert_allclose(fit.coef[:, 1:], model.params, atol=1e-9)
    np.testing.assert_array_equal(fit.coef[:, 0], 0.0)
    np.testing.assert_allclose(fit.fitted, model.predict(), atol=1e-10)
    np.testing.assert_allclose(fit.predict(X[:7]), fit.fitted[:7], atol=1e-14)
    assert fit.deviance == pytest.approx(-2 * model.llf, rel=1e-12)
    # statsmodels orders by class and then by column too
    covariance = np.linalg.inv(fit.information)
    np.testing.assert_allclose(covariance, model.cov_params(), rtol=1e-6, atol=1e-9)
    assert fit.converged
    assert fit.kept.all()
    assert fit.present.all()
    assert not fit.separated.any()
    assert fit.score_norm < 1e-6


def test_two_classes_are_logistic_regression():
    X, group, rng = sample(500, 3, 2, 4)
    w = rng.uniform(0.2, 3, 500)
    fit, logistic = fit_multinomial(X, group, 2, weights=w), fit_logistic(X, group, weights=w)
    np.testing.assert_allclose(fit.coef[:, 1], logistic.coef, atol=1e-10)
    np.testing.assert_allclose(fit.fitted[:, 1], logistic.fitted, atol=1e-12)
    np.testing.assert_allclose(fit.information, logistic.information, rtol=1e-8)
    assert fit.deviance == pytest.approx(logistic.deviance, rel=1e-12)


def test_weights_are_rows_repeated_and_their_unit_does_not_matter():
    X, group, rng = sample(400, 2, 4, 5)
    count = rng.integers(0, 4, 400)
    fit = fit_multinomial(X, group, 4, weights=count)
    long = fit_multinomial(np.repeat(X, count, axis=0), np.repeat(group, count), 4)
    np.testing.assert_allclose(fit.coef, long.coef, atol=1e-11)
    np.testing.assert_allclose(fit.information, long.information, rtol=1e-9)
    assert fit.deviance == pytest.approx(long.deviance, rel=1e-12)
    for unit in (1e-7, 1e7):
        scaled = fit_multinomial(X, group, 4, weights=count * unit)
        np.testing.assert_allclose(scaled.coef, fit.coef, atol=1e-11)
        assert scaled.deviance == pytest.approx(unit * fit.deviance, rel=1e-12)
        assert scaled.converged


def test_rows_of_weight_zero_are_not_used_but_get_probabilities():
    X, group, rng = sample(300, 2, 3, 6)
    use = rng.random(300) < 0.6
    wild = X.copy()
    wild[~use, 1] *= 1e3
    fit = fit_multinomial(wild, group, 3, weights=use.astype(float))
    alone = fit_multinomial(X[use], group[use], 3)
    np.testing.assert_allclose(fit.coef, alone.coef, atol=1e-12)
    assert fit.fitted.shape == (300, 3)
    np.testing.assert_allclose(fit.fitted, alone.predict(wild), atol=1e-12)
    np.testing.assert_allclose(fit.fitted.sum(axis=1), 1.0, rtol=1e-12)


def test_at_the_maximum_fitted_shares_are_observed_shares():
    """The likelihood equations, with columns of very different size."""
    X, group, rng = sample(1200, 3, 5, 7)
    w = rng.uniform(0.5, 2, 1200)
    Z = X * [1, 1e-5, 1e5, 1]
    fit = fit_multinomial(Z, group, 5, weights=w)
    own = np.eye(5)[group]
    np.testing.assert_allclose(((own - fit.fitted) * w[:, None]).T @ X, 0.0, atol=1e-8)
    assert not fit.separated.any()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_neither_the_order_of_rows_nor_the_names_of_classes_matter(seed, K):
    X, group, rng = sample(300, 2, K, seed, 0.5)
    fit = fit_multinomial(X, group, K)
    order, name = rng.permutation(300), rng.permutation(K)
    other = fit_multinomial(X[order], name[group][order], K)
    np.testing.assert_allclose(other.fitted[:, name], fit.fitted[order], atol=1e-9)
    assert other.deviance == pytest.approx(fit.deviance, rel=1e-10)
    if not fit.separated.any():  # against a reference of the same name
        turned = other.coef[:, name] - other.coef[:, name[:1]]
        np.testing.assert_allclose(turned, fit.coef, atol=1e-7)


@pytest.mark.parametrize("size", [0.0, 1.0, 10.0, 100.0, 1e6])
def test_any_start_ends_at_the_same_maximum(size):
    X, group, rng = sample(500, 3, 4, 8)
    fit = fit_multinomial(X, group, 4)
    other = fit_multinomial(X, group, 4, start=rng.normal(size=(4, 4)) * size)
    np.testing.assert_allclose(other.coef, fit.coef, atol=1e-8)
    assert other.converged
    assert fit_multinomial(X, group, 4, start=fit.coef).n_iter == 1


@pytest.mark.parametrize("seed", range(4))
def test_steps_that_overshoot_are_halved(monkeypatch, seed):
    X, group, _ = sample(500, 3, 4, 8)
    fit = fit_multinomial(X, group, 4)
    monkeypatch.setattr(multinomial, "_starting_values", None)  # so that it is not used
    start = np.random.default_rng(seed).normal(size=(4, 4)) * 5
    other = fit_multinomial(X, group, 4, start=start)
    np.testing.assert_allclose(other.coef, fit.coef, atol=1e-8)
    assert other.n_iter < 20


def test_large_data_start_from_a_part_and_end_where_they_should(monkeypatch):
    X, group, _ = sample(20_000, 3, 4, 9)
    gaps = group.copy()
    gaps[::16] = np.minimum(gaps[::16], 2)  # the part lacks a class
    cold, cold_gaps = fit_multinomial(X, group, 4), fit_multinomial(X, gaps, 4)
    monkeypatch.setattr(logistic, "_WARM_FROM", 1000)
    warm, warm_gaps = fit_multinomial(X, group, 4), fit_multinomial(X, gaps, 4)
    assert warm.n_iter < cold.n_iter
    assert warm_gaps.n_iter == cold_gaps.n_iter
    np.testing.assert_allclose(warm.coef, cold.coef, atol=1e-10)
    np.testing.assert_allclose(warm_gaps.coef, cold_gaps.coef, atol=1e-10)


# -- rank, empty classes, separation --------------------------------------------------------------


def test_dependent_columns_are_left_out():
    X, group, rng = sample(400, 2, 3, 10)
    Z = np.column_stack([X[:, 0], X[:, 1], 2 * X[:, 1] - 3, np.zeros(400), X[:, 2]])
    fit, plain = fit_multinomial(Z, group, 3), fit_multinomial(X, group, 3)
    assert fit.kept.tolist() == [True, True, False, False, True]
    assert np.isnan(fit.coef[[2, 3]]).all()
    np.testing.assert_allclose(fit.coef[fit.kept], plain.coef, atol=1e-10)
    np.testing.assert_allclose(fit.fitted, plain.fitted, atol=1e-12)
    np.testing.assert_allclose(fit.predict(Z), plain.fitted, atol=1e-12)
    assert not fit.separated.any()
    # a column may also vanish with the rows of weight zero
    w = (rng.random(400) < 0.5).astype(float)
    Z = np.column_stack([X, w == 0])
    fit = fit_multinomial(Z, group, 3, weights=w)
    assert fit.kept.tolist() == [True, True, True, False]
    np.testing.assert_allclose(fit.coef[:3], fit_multinomial(X, group, 3, weights=w).coef)


@pytest.mark.parametrize("empty", [0, 2, 4])
def test_a_class_without_rows_has_probability_zero(empty):
    X, group, _ = sample(300, 2, 4, 11)
    group = group + (group >= empty)
    fit, full = fit_multinomial(X, group, 5), fit_multinomial(X, group - (group > empty), 4)
    others = np.delete(np.arange(5), empty)
    np.testing.assert_array_equal(fit.fitted[:, empty], 0.0)
    np.testing.assert_allclose(fit.fitted[:, others], full.fitted, atol=1e-12)
    assert np.isnan(fit.coef[:, empty]).all()
    np.testing.assert_allclose(fit.coef[:, others], full.coef, atol=1e-10)
    assert fit.present.tolist() == [k != empty for k in range(5)]
    assert fit.information.shape == (9, 9)
    np.testing.assert_array_equal(fit.predict(X), fit.fitted)


def test_one_class_alone_is_certain():
    X, _, _ = sample(50, 2, 3, 12)
    fit = fit_multinomial(X, np.full(50, 1), 3)
    np.testing.assert_array_equal(fit.fitted, np.tile([0.0, 1.0, 0.0], (50, 1)))
    assert (fit.converged, fit.deviance) == (True, 0.0)
    assert fit.information.shape == (0, 0)


def test_a_design_without_columns_has_equal_probabilities():
    fit = fit_multinomial(np.zeros((6, 0)), np.array([0, 0, 0, 1, 1, 2]), 3)
    np.testing.assert_allclose(fit.fitted, 1 / 3)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_a_class_that_never_has_a_trait_is_named(k):
    X, group, rng = sample(900, 1, 4, 13, 0.3)
    trait = (rng.random(900) < 0.4) & (group != k)
    fit = fit_multinomial(np.column_stack([X, trait]), group, 4)
    expected = np.zeros((3, 4), dtype=bool)
    expected[2, k] = True
    np.testing.assert_array_equal(fit.separated, expected)
    assert fit.converged
    assert fit.fitted[trait, k].max() < 1e-6
    assert np.isfinite(fit.coef).all()


def test_complete_separation_ends():
    X, _, _ = sample(300, 1, 2, 14)
    group = np.digitize(X[:, 1], [-0.5, 0.5])
    fit = fit_multinomial(X, group, 3)
    assert fit.separated[1].sum() >= 2
    np.testing.assert_allclose(fit.fitted[np.arange(300), group], 1.0, atol=1e-6)
    assert fit.deviance < 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_strong_but_finite_effects_are_not_called_separation(seed):
    X, group, _ = sample(600, 1, 3, seed, 4.0)
    group[np.argsort(X[:, 1])[[0, 1, 2, -3, -2, -1]]] = [0, 1, 2, 0, 1, 2]  # the tails overlap
    fit = fit_multinomial(X, group, 3)
    assert not fit.separated.any()
    assert fit.converged


def test_what_cannot_be_fitted_is_said():
    X, group, _ = sample(50, 1, 3, 15)
    with pytest.raises(DataError, match="all 50 are zero"):
        fit_multinomial(X, group, 3, weights=np.zeros(50))
    with pytest.raises(DataError, match="2 of 50 are negative or not finite"):
        fit_multinomial(X, group, 3, weights=np.r_[-1.0, np.nan, np.ones(48)])
    with pytest.raises(DataError, match="weights"):
        fit_multinomial_many(X, group, 3, np.full((2, 50), -1.0))
    with pytest.raises(ConvergenceError, match="not finite at the start"):
        fit_multinomial(X, group, 3, start=np.outer([1e308, 1e308], [0, 1, -1]))
    X[3, 1] = np.nan
    with pytest.raises(ConvergenceError, match="1 rows not finite"):
        fit_multinomial(X, group, 3)


# -- passes over the rows, influence --------------------------------------------------------------


def plain_sweep(X, code, w, beta):
    """Deviance, score and information of one replicate, written down row by row."""
    C, p = beta.shape
    deviance, score, information = 0.0, np.zeros((C, p)), np.zeros((C * p, C * p))
    for x, k, a in zip(X, code, w, strict=True):
        P = softmax(np.r_[0.0, beta @ x][:, None])[:, 0]
        deviance -= 2 * a * np.log(P[k + 1])
        score += a * np.outer((np.arange(C) == k) - P[1:], x)
        spread = np.diag(P[1:]) - np.outer(P[1:], P[1:])
        information += a * np.kron(spread, np.outer(x, x))
    return deviance, score, information


@pytest.mark.parametrize("cached", [1, 200, 60_000])
def test_a_pass_over_the_rows_in_blocks_is_the_sum_over_rows(monkeypatch, cached):
    monkeypatch.setattr("cfair.nuisance.multinomial_sweep.CACHED", cached)
    rng = np.random.default_rng(16)
    X, code = rng.normal(size=(60, 3)), rng.integers(-1, 4, (2, 60))
    w, beta = rng.uniform(0, 2, (2, 60)), rng.normal(size=(4, 2, 3))
    deviance, score, information = full_sweep(X, code, w, beta)
    for b in range(2):
        expected = plain_sweep(X, code[b], w[b], beta[:, b])
        assert deviance[b] == pytest.approx(expected[0])
        np.testing.assert_allclose(score[:, b], expected[1], atol=1e-10)
        np.testing.assert_allclose(information[b], expected[2], atol=1e-10)


def test_far_out_linear_predictors_do_not_overflow():
    X, code = np.array([[1.0], [1.0]]), np.array([[0, -1]])
    deviance, score, information = full_sweep(X, code, np.ones((1, 2)), np.full((1, 1, 1), 5e3))
    assert deviance[0] > 1000
    assert (score[0, 0, 0], information[0, 0, 0]) == (-1.0, 0.0)


def test_score_residuals_add_up_to_the_score():
    X, group, rng = sample(300, 2, 4, 17)
    w = rng.uniform(0, 2, 300) * (rng.random(300) < 0.8)
    group[group == 2] = 3  # an empty class
    fit = fit_multinomial(X, group, 4, weights=w)
    residual = multinomial_score(fit, X, group, w)
    assert residual.shape == (300, 2)
    np.testing.assert_allclose(residual.T @ X, 0.0, atol=1e-9)
    own = np.eye(4)[group]
    np.testing.assert_allclose(
        multinomial_score(fit, X, group), (own - fit.fitted)[:, [1, 3]], atol=1e-14
    )


def test_influence_is_the_derivative_by_the_weight_of_a_row():
    """Of mean probabilities of two classes, by refits with one weight changed a little."""
    X, group, rng = sample(120, 2, 3, 18)
    X = np.column_stack([X[:, :2], 2 * X[:, 1], X[:, 2]])  # one column too many
    w = rng.uniform(0.5, 2, 120)
    fit = fit_multinomial(X, group, 3, weights=w)
    P, Z = fit.fitted, np.nan_to_num(X)
    derivative = np.stack(
        [
            np.stack([Z.T @ (P[:, g] * ((g == k) - P[:, k])) / 120 for k in range(3)], axis=1)
            for g in (0, 2)
        ]
    )
    influence = multinomial_influence(fit, X, group, derivative, w)
    np.testing.assert_allclose(influence.sum(axis=0), 0.0, atol=1e-10)
    h = 1e-4
    for i in range(0, 120, 17):
        change = np.zeros(120)
        change[i] = h * w[i]
        up, down = (
            fit_multinomial(X, group, 3, weights=w + sign * change).fitted[:, [0, 2]].mean(axis=0)
            for sign in (1, -1)
        )
        np.testing.assert_allclose(influence[i], (up - down) / (2 * h), atol=1e-8, rtol=1e-5)


@pytest.mark.parametrize("block", [1, 700, 500_000])
def test_influence_by_blocks_is_the_score_times_the_inverse_information(monkeypatch, block):
    monkeypatch.setattr("cfair.nuisance.multinomial_influence.BLOCK", block)
    X, group, rng = sample(150, 2, 4, 19)
    group[group == 2] = 3  # an empty class
    w = rng.uniform(0, 2, 150)
    fit, derivative = fit_multinomial(X, group, 4, weights=w), rng.normal(size=(5, 3, 4))
    P, expected = fit.predict(X), np.zeros((150, 5))
    inverse = np.linalg.inv(fit.information)
    for i in range(150):
        score = w[i] * np.concatenate([((group[i] == c) - P[i, c]) * X[i] for c in (1, 3)])
        for m in range(5):
            expected[i, m] = np.concatenate([derivative[m, :, c] for c in (1, 3)]) @ inverse @ score
    got = multinomial_influence(fit, X, group, derivative, w)
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_influence_takes_hardly_more_memory_than_what_it_returns():
    X, group, rng = sample(20_000, 3, 12, 20)
    fit, derivative = fit_multinomial(X, group, 12), rng.normal(size=(24, 4, 12))
    multinomial_influence(fit, X[:50], group[:50], derivative)  # modules are not counted
    tracemalloc.start()
    influence = multinomial_influence(fit, X, group, derivative)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - influence.nbytes < 15e6  # one number by row, class and figure is 42 MB


# -- many at once ---------------------------------------------------------------------------------


def one_by_one(X, groups, K, weights, fits, atol=1e-8):
    """Probabilities of every replicate against a fit of its own; the number of replicates."""
    P = predict_many(fits.coef, X)
    B = len(P)
    groups, weights = np.broadcast_to(groups, (B, len(X))), np.broadcast_to(weights, (B, len(X)))
    for b in range(B):
        one = fit_multinomial(X, groups[b], K, weights=weights[b])
        np.testing.assert_allclose(P[b], one.fitted, atol=atol, err_msg=str(b))
        finite = ~np.isnan(one.coef)
        if finite.all() and not one.separated.any():
            np.testing.assert_allclose(fits.coef[b], one.coef, atol=1e-6)
    return B


def training_folds(n, repeats, rng):
    fold = np.array([rng.permutation(np.arange(n) % 5) for _ in range(repeats)])
    return (fold[:, None] != np.arange(5)[:, None]).reshape(repeats * 5, n)


@pytest.fixture
def no_careful_fit(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a replicate was not fitted in its batch")

    monkeypatch.setattr(multinomial_many, "fit_multinomial", refuse)


@pytest.mark.parametrize(("n", "p", "K"), [(200, 2, 3), (600, 4, 6), (400, 3, 2)])
@pytest.mark.usefixtures("no_careful_fit")
def test_permuted_labels_with_folds_equal_one_fit_each(n, p, K):
    X, group, rng = sample(n, p, K, 19, 0.4)
    folds = training_folds(n, 6, rng)
    groups = np.repeat([rng.permutation(group) for _ in range(6)], 5, axis=0)
    fits = fit_multinomial_many(X, groups, K, folds)
    assert fits.converged.all()
    assert one_by_one(X, groups, K, folds, fits) == 30


@pytest.mark.usefixtures("no_careful_fit")
def test_bootstrap_weights_from_the_full_fit_equal_one_fit_each():
    X, group, rng = sample(500, 3, 4, 20)
    counts = rng.multinomial(500, np.full(500, 1 / 500), size=25)
    start = fit_multinomial(X, group, 4).coef
    fits = fit_multinomial_many(X, group, 4, counts, start)
    assert fits.converged.all()
    assert one_by_one(X, group, 4, counts, fits) == 25
    small = fit_multinomial_many(X, group, 4, counts * 1e-6, start)
    np.testing.assert_allclose(small.coef, fits.coef, atol=1e-10)


def test_labels_and_weights_may_be_shared():
    X, group, rng = sample(200, 2, 3, 21)
    alone = fit_multinomial(X, group, 3)
    plain = fit_multinomial_many(X, group, 3)
    assert plain.coef.shape == (1, 3, 3)
    np.testing.assert_allclose(plain.coef[0], alone.coef, atol=1e-7)
    w = rng.uniform(0, 2, 200)
    groups = np.stack([group, rng.permutation(group)])
    assert one_by_one(X, groups, 3, w, fit_multinomial_many(X, groups, 3, w)) == 2
    view = np.broadcast_to(w, (3, 200))
    assert one_by_one(X, group, 3, view, fit_multinomial_many(X, group, 3, view)) == 3


@pytest.mark.usefixtures("no_careful_fit")
def test_subsamples_of_large_data_are_fitted_on_their_own_rows(monkeypatch):
    X, group, rng = sample(1000, 2, 3, 22)
    monkeypatch.setattr(multinomial_many, "_LARGE", 1000)
    weights = (rng.random((8, 1000)) < 0.15).astype(np.int8)
    seen = []

    def seeing(xt, *args):
        seen.append(xt.shape[1])
        return expected_sums(xt, *args)

    monkeypatch.setattr(multinomial_many, "expected_sums", seeing)
    monkeypatch.setattr(multinomial_many, "_TOGETHER", 1)
    fits = fit_multinomial_many(X, group, 3, weights)
    assert max(seen) < 250
    assert one_by_one(X, group, 3, weights, fits) == 8


@pytest.mark.parametrize("together", [1, 10_000])
@pytest.mark.usefixtures("no_careful_fit")
def test_fits_without_each_fold_are_fits_with_weights_of_0_in_it(monkeypatch, together):
    monkeypatch.setattr(multinomial_many, "_TOGETHER", together)
    X, group, rng = sample(700, 3, 5, 31)
    counts = rng.multinomial(700, np.full(700, 1 / 700), size=6)
    fold = rng.integers(0, 3, 700)
    start = fit_multinomial(X, group, 5).coef
    fits = fit_multinomial_many(X, group, 5, counts, start, folds=fold)
    assert fits.coef.shape == (6, 3, 4, 5)
    assert fits.converged.all()
    for k in range(3):
        left = ManyMultinomialFits(fits.coef[:, k], fits.converged[:, k])
        assert one_by_one(X, group, 5, counts * (fold != k), left, atol=1e-9) == 6


@pytest.mark.parametrize(("n", "K", "strength"), [(250, 4, 0.5), (2000, 6, 0.5), (600, 3, 2.5)])
@pytest.mark.usefixtures("no_careful_fit")
def test_a_replicate_stops_at_its_maximum_and_not_near_it(n, K, strength):
    """The step that Newton's method has left moves no coefficient by 1e-7 standard errors."""
    X, group, rng = sample(n, 3, K, 32, strength)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=10).astype(float)
    fold = rng.integers(0, 4, n)
    start = fit_multinomial(X, group, K).coef
    fits = settled_fits(X, group, K, counts, start, folds=fold)
    assert fits.converged.mean() > 0.9
    for b, k in np.argwhere(fits.converged):
        w = counts[[b]] * (fold != k)
        beta = (fits.coef[b, k, :, 1:] - fits.coef[b, k, :, :1]).T[:, None]
        _, score, information = full_sweep(X, group[None] - 1, w, beta)
        flat = score.ravel()
        assert flat @ np.linalg.solve(information[0], flat) < 1e-14


def test_a_slow_replicate_is_not_taken_for_a_settled_one():
    """Far from the start, information of the start makes every step too short."""
    rng = np.random.default_rng(33)
    x = rng.normal(size=400)
    group = (x + 0.3 * rng.normal(size=400) > 0).astype(int)  # steep in the replicates below
    X = np.column_stack([np.ones(400), x])
    flat = np.zeros((2, 2))
    flat[1, 1] = 0.1
    weights = rng.integers(0, 3, (5, 400))
    fits = fit_multinomial_many(X, group, 2, weights, flat, folds=np.arange(400) % 3)
    for b in range(5):
        for k in range(3):
            rows = np.repeat(np.arange(400), weights[b] * (np.arange(400) % 3 != k))
            glm = sm.Logit(group[rows], X[rows]).fit(disp=0, method="newton", tol=1e-14)
            np.testing.assert_allclose(fits.coef[b, k, :, 1], glm.params, rtol=1e-8)


def test_a_class_without_weight_in_a_replicate():
    X, group, rng = sample(300, 2, 4, 23, 0.3)
    weights = rng.integers(1, 3, (6, 300)).astype(float)
    weights[0, group == 0] = 0.0  # the usual reference
    weights[1, group == 2] = 0.0
    weights[2, group != 1] = 0.0
    weights[3] = 0.0
    fits = fit_multinomial_many(X, group, 5, weights)  # class 4 is always empty
    missing = np.isnan(fits.coef).all(axis=1)
    expected = np.zeros((6, 5), dtype=bool)
    expected[:, 4] = expected[0, 0] = expected[1, 2] = expected[3] = True
    expected[2, [0, 2, 3]] = True
    np.testing.assert_array_equal(missing, expected)
    assert fits.converged.tolist() == [True, True, True, False, True, True]
    P = predict_many(fits.coef, X)
    assert np.isnan(P[3]).all()
    np.testing.assert_array_equal(P[[0, 1, 2, 4], 0][expected[[0, 1, 2, 4]]], 0.0)
    some = [0, 1, 2, 4, 5]
    for b in some:
        one = fit_multinomial(X, group, 5, weights=weights[b])
        np.testing.assert_allclose(P[b], one.fitted, atol=1e-9)
        np.testing.assert_allclose(fits.coef[b], one.coef, atol=1e-7)
    alone = fit_multinomial_many(X, np.zeros(300, int), 3)  # one class only
    np.testing.assert_array_equal(predict_many(alone.coef, X)[0, :, 0], 1.0)


def test_columns_dependent_in_a_replicate_do_not_reach_rows_outside():
    """Without the rows of one level, the other two dummies add up to the intercept."""
    rng = np.random.default_rng(24)
    level = rng.integers(0, 3, 300)
    X = np.column_stack([np.ones(300), level == 1, level == 2, rng.normal(size=300)])
    group = rng.integers(0, 3, 300)
    weights = np.ones((3, 300))
    weights[0, level == 0] = 0.0
    weights[1, level == 1] = 0.0
    fits = fit_multinomial_many(X, group, 3, weights)
    assert fits.converged.all()
    assert one_by_one(X, group, 3, weights, fits) == 3
    np.testing.assert_array_equal(fits.coef[0, 2], 0.0)


def test_separated_replicates_end_like_single_fits():
    X, group, rng = sample(240, 1, 4, 25, 0.3)
    trait = (rng.random(240) < 0.3) & ((group != 3) | (np.arange(240) < 60))
    X = np.column_stack([X, trait])
    weights = rng.multinomial(240, np.full(240, 1 / 240), size=30)
    weights[::3, trait & (group == 3)] = 0
    fits = fit_multinomial_many(X, group, 4, weights, fit_multinomial(X, group, 4).coef)
    assert fits.converged.all()
    assert one_by_one(X, group, 4, weights, fits, atol=1e-6) == 30
    assert predict_many(fits.coef, X)[0][trait, 3].max() < 1e-6
    whole = np.where(X[:, 1] > 0, group > 1, group <= 1)[None]  # halves of classes told apart
    fits = fit_multinomial_many(X, group, 4, whole)
    half = predict_many(fits.coef, X)[0][:, 2:].sum(axis=1)
    np.testing.assert_allclose(half[whole[0]], X[whole[0], 1] > 0, atol=1e-4)


@pytest.mark.parametrize("size", [30.0, 3e3, 1e200])
def test_a_bad_start_is_not_believed(size):
    X, group, rng = sample(300, 2, 3, 26)
    weights = rng.integers(0, 3, (4, 300))
    fits = fit_multinomial_many(X, group, 3, weights, size * rng.normal(size=(3, 3)))
    assert fits.converged.all()
    assert one_by_one(X, group, 3, weights, fits) == 4


def test_steps_that_run_out_are_followed_by_a_single_fit():
    X, group, rng = sample(300, 2, 3, 27)
    groups = np.array([rng.permutation(group) for _ in range(3)])
    fits = fit_multinomial_many(X, groups, 3, max_iter=1)
    assert fits.converged.all()
    assert one_by_one(X, groups, 3, 1.0, fits) == 3


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_replicates_do_not_depend_on_their_company(seed):
    X, group, rng = sample(120, 2, 3, seed, 0.4)
    weights = rng.integers(0, 3, (7, 120))
    together = predict_many(fit_multinomial_many(X, group, 3, weights).coef, X)
    for b in (0, 3, 6):
        alone = predict_many(fit_multinomial_many(X, group, 3, weights[[b]]).coef, X)
        np.testing.assert_allclose(alone[0], together[b], atol=1e-8)


def test_predict_many_is_softmax():
    rng = np.random.default_rng(28)
    coef, X = rng.normal(size=(3, 2, 4)), rng.normal(size=(5, 2)) * 400
    coef[1, :, 2] = np.nan
    P = predict_many(coef, X)
    assert P.shape == (3, 5, 4)
    np.testing.assert_allclose(P.sum(axis=2), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(P[1, :, 2], 0.0)
    eta = X @ coef[0]
    np.testing.assert_allclose(P[0, 0] / P[0, 0].max(), np.exp(eta[0] - eta[0].max()), atol=1e-12)


def test_predictions_outside_a_separated_fit_do_not_hang_on_the_order_of_the_rows():
    """Rounding must not decide the last steps: levels that rows outside have are separated."""
    rng = np.random.default_rng(26)
    n, worst = 150, 0.0
    for _ in range(10):
        group, site = rng.integers(0, 3, n), rng.choice(6, n, p=[0.4, 0.3, 0.15, 0.1, 0.03, 0.02])
        X = np.column_stack([np.ones(n), rng.normal(size=n), *(site == k for k in range(1, 6))])
        train = np.arange(n) % 3 > 0
        one = fit_multinomial(X[train], group[train], 3).predict(X[~train])
        two = fit_multinomial(X[train][::-1], group[train][::-1], 3).predict(X[~train])
        worst = max(worst, float(np.abs(one - two).max()))
    assert worst < 1e-5
