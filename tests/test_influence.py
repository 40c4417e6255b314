"""Influence functions against numerical derivatives, and the covariance against their products."""

from __future__ import annotations

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from cfair.estimators.confusion import RATE_CELLS, confusion_counts, observed_rates
from cfair.inference.contributions import TreatmentModel, weight_derivative
from cfair.inference.influence import ipw_influence, rate_covariance
from cfair.inference.moments import cell_moments, cluster_scores
from cfair.nuisance.logistic import fit_logistic

K = 3


def sample(n=120, seed=0, strength=0.7):
    rng = np.random.default_rng(seed)
    g = rng.integers(0, K, n)
    x = rng.normal(size=(n, 2))
    X = np.column_stack([np.ones(n), x, g == 1, g == 2])
    d = rng.binomial(1, expit(strength * (X @ [-0.5, 1.0, -1.0, 0.3, -0.3])))
    y = rng.binomial(1, expit(0.5 * x[:, 0] - 0.2))
    s = rng.binomial(1, expit(x[:, 0] + 0.3 * g - 0.3))
    return y, s, d, g, X, rng


def model_of(X, d, truncation=(0.0, 1.0), weights=None):
    fit = fit_logistic(X, d, weights=weights)
    return TreatmentModel(np.clip(fit.fitted, *truncation), X, fit.fitted)


def joint(y, s, d, g, model, weights=None, cluster=None, membership=None):
    moments = cell_moments(y, s, d, g, model, K, weights)
    scores = None
    if cluster is not None:
        scores = cluster_scores(y, s, d, g, model, K, cluster, weights)
    return rate_covariance(
        moments, np.eye(K) if membership is None else membership, cluster_scores=scores
    )


# -- the derivative -------------------------------------------------------------------------------

TRUNCATIONS = [(0.0, 1.0), (0.2, 0.6)]


@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("seed", [1])
def test_influence_is_the_derivative_in_the_weight_of_a_row(truncation, seed):
    y, s, d, g, X, _ = sample(seed=seed)
    model = model_of(X, d, truncation)
    assert (model.pi != model.fitted).any() == (truncation != (0.0, 1.0))
    psi = ipw_influence(y, s, d, g, model, K)
    expected = plain.influence(y, s, d, g, K, X=X, truncation=truncation)
    np.testing.assert_allclose(psi, expected, atol=1e-9)


def test_influence_with_sampling_weights_is_the_derivative_times_the_weight():
    y, s, d, g, X, rng = sample(seed=3)
    w = rng.uniform(0.3, 2.0, len(y))
    model = model_of(X, d, weights=w)
    psi = ipw_influence(y, s, d, g, model, K, w)
    expected = plain.influence(y, s, d, g, K, X=X, weights=w)
    np.testing.assert_allclose(psi, expected, atol=1e-9)


def test_influence_with_known_propensities_is_the_derivative():
    y, s, d, g, _, rng = sample(seed=4)
    pi = rng.uniform(0.1, 0.8, len(y))
    psi = ipw_influence(y, s, d, g, TreatmentModel(pi), K)
    np.testing.assert_allclose(psi, plain.influence(y, s, d, g, K, pi=pi), atol=1e-9)


def test_weight_derivative_is_zero_for_treated_and_truncated_rows():
    model = TreatmentModel(
        np.array([0.5, 0.5, 0.9, 0.2]), np.ones((4, 1)), np.array([0.5, 0.5, 0.95, 0.2])
    )
    got = weight_derivative(np.array([0, 1, 0, 0]), model)
    np.testing.assert_allclose(got, [1.0, 0.0, 0.0, 0.25])


# -- the covariance -------------------------------------------------------------------------------

CASES = [
    (seed, truncation, weighted, known)
    for seed in range(3)
    for truncation in TRUNCATIONS
    for weighted in (False, True)
    for known in (False, True)
]


@pytest.mark.parametrize(("seed", "truncation", "weighted", "known"), CASES)
def test_covariance_is_the_sum_of_products_of_influences(seed, truncation, weighted, known):
    y, s, d, g, X, rng = sample(n=500, seed=seed)
    w = rng.uniform(0.3, 2.0, len(y)) if weighted else None
    model = model_of(X, d, truncation, w)
    if known:
        model = TreatmentModel(model.pi)
    psi = ipw_influence(y, s, d, g, model, K, w)
    got = joint(y, s, d, g, model, w)
    np.testing.assert_allclose(got.covariance, psi.T @ psi / len(y) ** 2, rtol=1e-11, atol=1e-14)
    rates = plain.ipw_by_group(y, s, d, model.pi, g, K, w)
    np.testing.assert_allclose(got.estimate, rates.T.ravel(), atol=1e-12)


def test_influences_add_up_to_zero():
    y, s, d, g, X, _ = sample(n=500)
    psi = ipw_influence(y, s, d, g, model_of(X, d), K)
    np.testing.assert_allclose(psi.sum(axis=0), 0, atol=1e-8)


def test_kish_sizes_and_rows_of_the_denominators():
    y, s, d, g, X, _ = sample(n=400, seed=5)
    model = model_of(X, d)
    got = joint(y, s, d, g, model)
    for k in range(K):
        for m, outcome in enumerate((0, 1)):
            rows = (g == k) & (d == 0) & (y == outcome)
            w = 1 / (1 - model.pi[rows])
            assert got.rows[m * K + k] == rows.sum()
            assert got.kish[m * K + k] == pytest.approx(w.sum() ** 2 / (w**2).sum(), rel=1e-12)


def test_an_undefined_rate_is_nan_in_its_row_and_column_only():
    y, s, d, g, X, _ = sample(n=400, seed=6)
    y = np.where(g == 1, 0, y)
    psi = ipw_influence(y, s, d, g, model_of(X, d), K)
    got = joint(y, s, d, g, model_of(X, d))
    bad = np.arange(2 * K) == K + 1
    assert np.array_equal(np.isnan(got.estimate), bad)
    assert np.array_equal(np.isnan(got.covariance), bad[:, None] | bad[None, :])
    assert np.array_equal(np.isnan(psi).all(axis=0), bad)
    assert got.kish[K + 1] == 0
    np.testing.assert_allclose(
        got.covariance[np.ix_(~bad, ~bad)], (psi.T @ psi / 400**2)[np.ix_(~bad, ~bad)], rtol=1e-11
    )


def test_margins_are_merged_groups():
    y, s, d, g, X, _ = sample(n=400, seed=7)
    model = model_of(X, d)
    membership = np.array([[1.0, 0, 0], [0, 1, 1], [1, 1, 1]])
    got = joint(y, s, d, g, model, membership=membership)
    merged = np.where(g == 0, 0, 1)
    psi = ipw_influence(y, s, d, merged, model, 2)
    total = ipw_influence(y, s, d, 0 * g, model, 1)
    psi = np.column_stack([psi[:, :2], total[:, 0], psi[:, 2:], total[:, 1]])
    np.testing.assert_allclose(got.covariance, psi.T @ psi / 400**2, rtol=1e-11)


# -- clusters -------------------------------------------------------------------------------------


def own_clusters(y, d, g, cluster):
    """Clusters with untreated rows of each group without the event, then with it."""
    return np.array(
        [
            len(np.unique(cluster[(d == 0) & (y == event) & (g == k)]))
            for event in (0, 1)
            for k in range(K)
        ]
    )


@pytest.mark.parametrize("known", [False, True])
def test_clusters_of_one_row_differ_by_the_factor_alone(known):
    y, s, d, g, X, rng = sample(n=300, seed=8)
    model = model_of(X, d)
    if known:
        model = TreatmentModel(model.pi)
    cluster = rng.permutation(300)
    got = joint(y, s, d, g, model, cluster=cluster)
    alone = joint(y, s, d, g, model)
    C = own_clusters(y, d, g, cluster)
    factor = np.sqrt(C / (C - 1))
    expected = alone.covariance * factor[:, None] * factor
    np.testing.assert_allclose(got.covariance, expected, rtol=1e-10)


def test_duplicated_rows_in_one_cluster_say_nothing_new():
    y, s, d, g, X, _ = sample(n=300, seed=9)
    model = model_of(X, d)
    rows = np.repeat(np.arange(300), 3)
    copies = TreatmentModel(model.pi[rows], X[rows], model.fitted[rows])
    got = joint(y[rows], s[rows], d[rows], g[rows], copies, cluster=rows)
    once = joint(y, s, d, g, model)
    C = own_clusters(y, d, g, np.arange(300))
    factor = np.sqrt(C / (C - 1))
    expected = once.covariance * factor[:, None] * factor
    np.testing.assert_allclose(got.covariance, expected, rtol=1e-10)
    np.testing.assert_allclose(got.estimate, once.estimate, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_clustered_covariance_sums_influences_within_clusters(weighted):
    y, s, d, g, X, rng = sample(n=400, seed=10)
    w = rng.uniform(0.3, 2.0, 400) if weighted else None
    model = model_of(X, d, weights=w)
    cluster = rng.integers(0, 25, 400)
    psi = ipw_influence(y, s, d, g, model, K, w)
    sums = np.array([psi[cluster == c].sum(axis=0) for c in range(25)])
    got = joint(y, s, d, g, model, w, cluster=cluster)
    C = own_clusters(y, d, g, cluster)
    sums *= np.sqrt(C / (C - 1))
    np.testing.assert_allclose(got.covariance, sums.T @ sums / 400**2, rtol=1e-10)


# -- observed rates -------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_observed_rates_have_the_binomial_variance(seed):
    rng = np.random.default_rng(seed)
    y, s = rng.integers(0, 2, (2, 90))
    g = np.arange(90) % K
    nobody = TreatmentModel(np.zeros(90))
    moments = cell_moments(y, s, np.zeros(90, int), g, nobody, K)
    names = list(RATE_CELLS)
    got = rate_covariance(moments, np.eye(K), [RATE_CELLS[m] for m in names])
    rates = observed_rates(confusion_counts(y, s, g, K))
    for j, name in enumerate(names):
        at = slice(j * K, (j + 1) * K)
        p = rates["f1"] / (2 - rates["f1"]) if name == "f1" else rates[name]
        np.testing.assert_allclose(got.estimate[at], p, atol=1e-12)
        n = got.rows[at]
        expected = p * (1 - p) / np.where(n > 0, n, np.nan)
        np.testing.assert_allclose(np.diag(got.covariance[at, at]), expected, atol=1e-14)


# -- does it hold? --------------------------------------------------------------------------------


def test_standard_errors_match_the_spread_over_samples():
    estimates, errors = [], []
    for seed in range(300):
        y, s, d, g, X, _ = sample(n=600, seed=1000 + seed)
        got = joint(y, s, d, g, model_of(X, d, (0.005, 0.995)))
        estimates.append(got.estimate)
        errors.append(np.sqrt(np.diag(got.covariance)))
    spread = np.std(estimates, axis=0, ddof=1)
    ratio = np.mean(errors, axis=0) / spread
    assert np.all((ratio > 0.84) & (ratio < 1.16))
    assert 0.93 < ratio.mean() < 1.07
