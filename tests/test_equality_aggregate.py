"""Tests of equal rates, and the intervals of what summarises their differences."""

from __future__ import annotations

import itertools

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cfair.estimators import disparities
from cfair.inference.aggregate import AGGREGATE_INTERVALS, aggregate_intervals, fuse
from cfair.inference.equality import (
    boundary_covariance,
    equality_test,
    largest_standardized,
    logit_wald,
    noise_draws,
    pair_deviations,
)

SEEDS = st.integers(0, 2**32 - 1)
DRAWS = 4000  # of few groups


def setting(seed, K=4, low=0.05, high=0.6):
    rng = np.random.default_rng(seed)
    theta, n = rng.uniform(low, high, K), rng.uniform(30, 800, K)
    return theta, np.diag(theta * (1 - theta) / n), n


def correlated(seed, K=4):
    theta, sigma, n = setting(seed, K)
    rng = np.random.default_rng(seed + 1)
    A = rng.normal(size=(K, K))
    scale = np.sqrt(np.diag(sigma))
    R = A @ A.T + 3 * np.eye(K)
    R = R / np.sqrt(np.outer(np.diag(R), np.diag(R)))
    return theta, R * np.outer(scale, scale), n


# -- Wald -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(2, 7))
def test_wald_with_independent_groups_is_the_weighted_sum_of_squares(seed, K):
    theta, sigma, n = setting(seed, K)
    eta = np.log(theta / (1 - theta))
    weight = (theta * (1 - theta)) ** 2 / np.diag(sigma)
    centre = np.sum(weight * eta) / weight.sum()
    expected = np.sum(weight * (eta - centre) ** 2)
    assert float(logit_wald(theta, sigma, n)) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(2, 7))
def test_wald_with_correlated_groups_is_the_contrast_form(seed, K):
    theta, sigma, n = correlated(seed, K)
    expected = plain.logit_wald(theta, sigma)
    assert float(logit_wald(theta, sigma, n)) == pytest.approx(expected, rel=1e-8)
    test = equality_test(theta, sigma, n)
    assert test.df == K - 1
    assert test.wald == pytest.approx(expected, rel=1e-8)
    assert test.p_value == pytest.approx(stats.chi2.sf(expected, K - 1), rel=1e-6, abs=1e-300)


def test_wald_of_a_stack_is_the_wald_of_each():
    parts = [correlated(seed) for seed in range(5)]
    stacked = logit_wald(*(np.array([p[i] for p in parts]) for i in range(3)))
    for k, part in enumerate(parts):
        assert stacked[k] == pytest.approx(float(logit_wald(*part)), rel=1e-12)


def test_an_undefined_rate_takes_no_part():
    theta, sigma, n = correlated(1, 5)
    keep = [0, 1, 3, 4]
    gone = theta.copy()
    gone[2] = np.nan
    wide = sigma.copy()
    wide[2] = wide[:, 2] = np.nan
    kish = np.where(np.arange(5) == 2, 0.0, n)
    some = equality_test(theta[keep], sigma[np.ix_(keep, keep)], n[keep])
    test = equality_test(gone, wide, kish, metric="cfpr")
    assert (test.metric, test.left_out) == ("cfpr", (2,))
    assert (test.df, test.wald, test.max_t) == (some.df, some.wald, some.max_t)
    assert test.max_t_p_value == some.max_t_p_value
    assert float(logit_wald(gone, wide, kish)) == pytest.approx(some.wald, rel=1e-6)


@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_a_boundary_rate_gets_agresti_coull_variance(edge):
    theta, sigma, n = setting(2, 3)
    theta[1], sigma[1, 1] = edge, 0.0
    shrunk = (edge * n[1] + 2) / (n[1] + 4)
    filled = theta.copy()
    filled[1] = shrunk
    V = sigma.copy()
    V[1, 1] = shrunk * (1 - shrunk) / (n[1] + 4)
    assert float(logit_wald(theta, sigma, n)) == pytest.approx(
        plain.logit_wald(filled, V), rel=1e-9
    )
    assert boundary_covariance(theta, sigma, n)[1, 1] == pytest.approx(V[1, 1], rel=1e-12)


def test_all_rates_zero_are_equal():
    test = equality_test(np.zeros(3), np.zeros((3, 3)), np.full(3, 50.0))
    assert test.wald == pytest.approx(0, abs=1e-12)
    assert test.max_t == 0
    assert test.p_value == pytest.approx(1)
    assert test.max_t_p_value == pytest.approx(1)


@pytest.mark.parametrize("theta", [[np.nan, 0.2], [np.nan, np.nan], [0.3]])
def test_fewer_than_two_rates_make_no_test(theta):
    theta = np.array(theta)
    K = len(theta)
    test = equality_test(theta, np.full((K, K), 0.01), np.full(K, 30.0))
    assert test.df == 0
    assert np.isnan([test.wald, test.p_value, test.max_t, test.max_t_p_value]).all()
    assert np.isnan(logit_wald(theta, np.full((K, K), 0.01), np.full(K, 30.0)))
    summary = aggregate_intervals(theta, np.full((K, K), 0.01), np.full(K, 30.0))
    for values in (summary.estimate, summary.low, summary.high, summary.expected_if_equal):
        assert np.isnan(values).all()


# -- the largest difference -----------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(2, 6))
def test_largest_standardized_difference_is_over_explicit_pairs(seed, K):
    theta, sigma, _ = correlated(seed, K)
    deviations = pair_deviations(sigma)
    best = 0.0
    for i, j in itertools.combinations(range(K), 2):
        sd = np.sqrt(sigma[i, i] + sigma[j, j] - 2 * sigma[i, j])
        assert deviations[i, j] == pytest.approx(sd, rel=1e-9)
        best = max(best, abs(theta[i] - theta[j]) / sd)
    assert largest_standardized(theta[None, :], deviations)[0] == pytest.approx(best, rel=1e-9)


def test_draws_are_antithetic_with_the_covariance_asked_for():
    _, sigma, _ = correlated(3, 4)
    draws = noise_draws(sigma, DRAWS)
    np.testing.assert_array_equal(draws[: DRAWS // 2], -draws[DRAWS // 2 :])
    np.testing.assert_allclose(np.cov(draws.T), sigma, atol=0.1 * sigma.max())
    np.testing.assert_array_equal(draws, noise_draws(sigma, DRAWS))


@pytest.mark.parametrize("df", [1, 3, 11])
def test_draws_with_few_clusters_are_multivariate_t(df):
    _, sigma, _ = correlated(3, 4)
    draws = noise_draws(sigma, 40_000, df)
    np.testing.assert_array_equal(draws[:20_000], -draws[20_000:])
    np.testing.assert_array_equal(draws, noise_draws(sigma, 40_000, df))
    half = draws[:20_000]
    for c in (*np.eye(4), np.array([1.0, -1, 0, 0]), np.ones(4)):
        scaled = half @ c / np.sqrt(c @ sigma @ c)
        assert stats.kstest(scaled, stats.t(df).cdf).pvalue > 1e-3
    # all rates of a draw share one scale: the squared distance is F
    distance = np.einsum("rk,rk->r", half, np.linalg.solve(sigma, half.T).T) / 4
    assert stats.kstest(distance, stats.f(4, df).cdf).pvalue > 1e-3


def test_max_t_p_value_of_two_groups_is_the_normal_one_on_the_logit_scale():
    theta, sigma, n = np.array([0.2, 0.3]), np.diag([0.001, 0.0015]), np.array([160.0, 140.0])
    test = equality_test(theta, sigma, n)
    gap = np.log(0.3 / 0.7) - np.log(0.2 / 0.8)
    z = gap / np.sqrt(0.001 / 0.16**2 + 0.0015 / 0.21**2)
    assert test.max_t == pytest.approx(z, rel=1e-12)
    assert test.max_t_p_value == pytest.approx(2 * stats.norm.sf(z), abs=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_the_groups_changes_nothing(seed):
    theta, sigma, n = correlated(seed, 5)
    order = np.random.default_rng(seed).permutation(5)
    a = equality_test(theta, sigma, n)
    b = equality_test(theta[order], sigma[np.ix_(order, order)], n[order])
    assert b.wald == pytest.approx(a.wald, rel=1e-9)
    assert b.max_t == pytest.approx(a.max_t, rel=1e-12)
    assert b.max_t_p_value == a.max_t_p_value
    for kind in AGGREGATE_INTERVALS:
        x = aggregate_intervals(theta, sigma, n, interval=kind)
        y = aggregate_intervals(theta[order], sigma[np.ix_(order, order)], n[order], interval=kind)
        for name in ("estimate", "low", "high", "expected_if_equal"):
            np.testing.assert_allclose(getattr(y, name), getattr(x, name), atol=1e-12)


# -- clusters -------------------------------------------------------------------------------------


def hotelling(wald, n_clusters, n_groups):
    """P-value of W: T2 = W is (v q / (v - q + 1)) F(q, v - q + 1), q contrasts, v = C - 1."""
    v, q = n_clusters - 1, n_groups - 1
    return stats.f.sf(wald * (v - q + 1) / (v * q), q, v - q + 1)


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("more", [1, 2, 7, 300])
def test_wald_with_clusters_is_hotellings_f(K, more):
    theta, sigma, n = correlated(K, K)
    C = K + more
    test = equality_test(theta, sigma, n, n_clusters=C)
    assert test.wald == pytest.approx(plain.logit_wald(theta, sigma), rel=1e-8)
    assert (test.df, test.note) == (K - 1, "")
    assert test.p_value == pytest.approx(hotelling(test.wald, C, K), rel=1e-9)
    alone = equality_test(theta, sigma, n)
    assert test.max_t == alone.max_t
    assert test.p_value > alone.p_value
    if more <= 7:  # beyond, the errors of the draws are larger than the difference
        assert test.max_t_p_value >= alone.max_t_p_value


def test_two_groups_with_clusters_are_compared_by_students_t():
    theta, sigma, n = np.array([0.2, 0.3]), np.diag([0.001, 0.0015]), np.array([160.0, 140.0])
    for C in (3, 6, 20):
        test = equality_test(theta, sigma, n, n_clusters=C)
        assert test.p_value == pytest.approx(2 * stats.t.sf(test.max_t, C - 1), rel=1e-9)
        assert test.max_t_p_value == pytest.approx(test.p_value, abs=0.015)


def test_an_undefined_group_costs_no_degrees_of_freedom():
    theta, sigma, n = correlated(1, 5)
    theta[2] = np.nan
    test = equality_test(theta, sigma, n, n_clusters=5)
    assert (test.df, test.left_out, test.note) == (3, (2,), "")
    assert test.p_value == pytest.approx(hotelling(test.wald, 5, 4), rel=1e-9)


@pytest.mark.parametrize("C", [2, 3, 4])
def test_as_many_groups_as_clusters_make_no_test_and_say_so(C):
    theta, sigma, n = wide_apart()
    test = equality_test(theta, sigma, n, n_clusters=C)
    assert np.isnan([test.wald, test.p_value, test.max_t, test.max_t_p_value]).all()
    assert test.df == 0
    assert test.note == f"{C} clusters are too few to compare 4 groups"
    got = aggregate_intervals(theta, sigma, n, n_clusters=C)
    assert not got.equality_rejected
    np.testing.assert_array_equal(got.low, 0)
    np.testing.assert_allclose(got.estimate, plain.disparities(theta), atol=1e-12)


@pytest.mark.parametrize("kind", AGGREGATE_INTERVALS)
def test_few_clusters_widen_the_intervals_of_the_summaries(kind):
    theta, sigma, n = wide_apart()
    few = aggregate_intervals(theta, sigma, n, interval=kind, n_clusters=6)
    many = aggregate_intervals(theta, sigma, n, interval=kind, n_clusters=10_000)
    none = aggregate_intervals(theta, sigma, n, interval=kind)
    assert np.all(few.high[:2] > many.high[:2])
    np.testing.assert_allclose(many.high[:2], none.high[:2], atol=0.01)
    np.testing.assert_allclose(many.low[:2], none.low[:2], atol=0.01)


def test_tests_of_fair_data_with_twelve_clusters_keep_their_size():
    """150 fair data sets: 12 clusters with rates of their own, 40 rows of each group in each."""
    K, C, m = 3, 12, 40
    rng = np.random.default_rng(2024)
    wald, largest, naive = [], [], []
    for _ in range(150):
        rate = rng.beta(6, 14, (C, K))  # every group differs between clusters, on average the same
        hits = rng.binomial(m, rate)
        theta = hits.sum(axis=0) / (C * m)
        scores = (hits - m * theta) / (C * m)
        sigma = scores.T @ scores * C / (C - 1)
        test = equality_test(theta, sigma, np.full(K, C * m), n_clusters=C)
        wald.append(test.p_value < 0.05)
        largest.append(test.max_t_p_value < 0.05)
        naive.append(equality_test(theta, sigma, np.full(K, C * m)).p_value < 0.05)
    assert np.mean(wald) < 0.12
    assert np.mean(largest) < 0.12
    assert np.mean(wald) < np.mean(naive)


# -- summaries ------------------------------------------------------------------------------------


def wide_apart(K=4):
    theta = np.linspace(0.1, 0.7, K)
    n = np.full(K, 400.0)
    return theta, np.diag(theta * (1 - theta) / n), n


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(AGGREGATE_INTERVALS), st.sampled_from([0.8, 0.95, 0.99]))
def test_lower_limits_are_zero_unless_both_tests_reject(seed, kind, level):
    theta, sigma, n = setting(seed, 4, 0.2, 0.35)
    test = equality_test(theta, sigma, n)
    got = aggregate_intervals(theta, sigma, n, level, interval=kind)
    both = max(test.p_value, test.max_t_p_value) < 1 - level
    if abs(test.max_t_p_value - (1 - level)) > 1e-3:
        assert got.equality_rejected == both
    defined = ~np.isnan(got.low)
    if not got.equality_rejected:
        assert np.all(got.low[defined] == 0)
    assert np.all(got.low[defined] <= got.estimate[defined] + 1e-12)
    assert np.all(got.high[defined] >= got.estimate[defined] - 1e-12)
    assert np.all((got.low[defined] >= 0) & (got.high[defined] <= 1))
    np.testing.assert_allclose(got.estimate, plain.disparities(theta), atol=1e-12)


@pytest.mark.parametrize("kind", AGGREGATE_INTERVALS)
def test_clear_differences_exclude_zero(kind):
    got = aggregate_intervals(*wide_apart(), interval=kind)
    assert got.equality_rejected
    assert np.all(got.low[:2] > 0.05)


def test_tie_aware_limits_are_those_of_the_recipe():
    theta, sigma, n = wide_apart()
    theta = theta + np.array([0, -0.18, 0, 0])  # two groups nearly tie
    got = aggregate_intervals(theta, sigma, n)
    noise = noise_draws(sigma, DRAWS)
    f = np.array(plain.disparities(theta))
    critical = np.quantile(largest_standardized(noise, pair_deviations(sigma)), 0.95)
    u = plain.fuse(theta, sigma, critical)
    assert len(np.unique(np.round(u, 9))) < 4
    shifted = np.array(disparities(theta + noise))
    around = np.array(disparities(u + noise)) - np.array(plain.disparities(u))[:, None]
    q_high = np.quantile(shifted, 0.975, axis=1)
    r_low, r_high = np.quantile(around, [0.025, 0.975], axis=1)
    low = np.minimum(f - (q_high - f), f - r_high)
    high = np.maximum(q_high, f - r_low)
    assert got.equality_rejected
    low[1] = max(low[1], low[0])  # the maximum is at least the average
    np.testing.assert_allclose(got.low, np.clip(low, 0, 1), atol=1e-10)
    np.testing.assert_allclose(got.high, np.clip(high, 0, 1), atol=1e-10)


def test_expected_if_equal_of_two_groups_is_the_mean_of_a_folded_normal():
    theta, sigma, n = (
        np.array([0.2, 0.4]),
        np.array([[0.001, 0.0002], [0.0002, 0.002]]),
        np.full(2, 99),
    )
    got = aggregate_intervals(theta, sigma, n)
    expected = np.sqrt(2 / np.pi) * np.sqrt(0.001 + 0.002 - 0.0004)
    assert got.expected_if_equal[0] == pytest.approx(expected, rel=0.02)
    assert got.expected_if_equal[0] == pytest.approx(got.expected_if_equal[1], rel=1e-12)
    assert np.isnan([x[2] for x in (got.estimate, got.low, got.high, got.expected_if_equal)]).all()


def test_expected_if_equal_of_hardly_known_rates_is_no_difference_beyond_one():
    variance = np.array([0.4, 0.9])
    got = aggregate_intervals(np.array([0.2, 0.4]), np.diag(variance), np.full(2, 2.0))
    sd = np.sqrt(variance.sum())
    x = np.linspace(0, 1, 20_001)  # mean of min(|Z|, 1) is the integral of P(|Z| > x) up to 1
    expected = np.mean(2 * stats.norm.sf(x / sd))
    np.testing.assert_allclose(got.expected_if_equal[:2], expected, rtol=0.02)
    assert np.sqrt(2 / np.pi) * sd > 1.1 * expected


@pytest.mark.parametrize("n_clusters", [None, 7])
def test_expected_if_equal_caps_each_summary(n_clusters):
    theta, n = np.array([0.2, 0.3, 0.5, 0.6]), np.full(4, 2.0)
    sigma = np.diag([0.5, 0.4, 0.02, 0.01])
    nu = None if n_clusters is None else n_clusters - 1
    got = aggregate_intervals(theta, sigma, n, n_clusters=n_clusters)
    noise = noise_draws(sigma, DRAWS, nu)
    first, second = np.triu_indices(4, 1)
    gaps = np.abs(noise[:, first] - noise[:, second])
    # the group of a draw may sit elsewhere, so equal but for the error of the draws
    assert got.expected_if_equal[0] == pytest.approx(
        np.minimum(gaps.mean(axis=1), 1).mean(), rel=0.01
    )
    assert got.expected_if_equal[1] == pytest.approx(
        np.minimum(gaps.max(axis=1), 1).mean(), rel=0.01
    )
    assert got.expected_if_equal[2] == pytest.approx(
        np.minimum(gaps.var(axis=1, ddof=1), 1).mean(), rel=0.03
    )


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(2, 7), st.sampled_from(AGGREGATE_INTERVALS), st.sampled_from([None, 9]))
def test_the_lower_limit_of_the_maximum_is_at_least_that_of_the_average(seed, K, kind, clusters):
    theta, sigma, n = setting(seed, K)
    got = aggregate_intervals(theta, sigma, n, interval=kind, n_clusters=clusters)
    assert got.low[1] >= got.low[0]


def test_a_summary_without_one_group_is_that_of_the_others():
    theta, sigma, n = correlated(4, 5)
    keep = [0, 1, 2, 4]
    gone, wide = theta.copy(), sigma.copy()
    gone[3] = np.nan
    wide[3] = wide[:, 3] = np.nan
    a = aggregate_intervals(gone, wide, np.where(np.arange(5) == 3, 0.0, n))
    b = aggregate_intervals(theta[keep], sigma[np.ix_(keep, keep)], n[keep])
    for name in ("estimate", "low", "high", "expected_if_equal"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=1e-12)


def test_projection_has_no_interval_for_the_variance_and_is_wider():
    narrow = aggregate_intervals(*wide_apart())
    wide = aggregate_intervals(*wide_apart(), interval="projection")
    assert np.isnan([wide.low[2], wide.high[2]]).all()
    assert np.all(wide.high[:2] - wide.low[:2] > narrow.high[:2] - narrow.low[:2])


@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_boundary_rates_keep_their_place_in_the_summaries(edge):
    theta, sigma, n = setting(5, 4)
    theta[0], sigma[0, 0] = edge, 0.0
    got = aggregate_intervals(theta, sigma, n)
    np.testing.assert_allclose(got.estimate, plain.disparities(theta), atol=1e-12)
    assert np.all(np.isfinite(got.low))
    assert np.all(got.high >= got.estimate)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(2, 8), st.floats(0.3, 6))
def test_fused_rates_equal_explicit_agglomeration(seed, K, critical):
    theta, sigma, _ = correlated(seed, K)
    got = fuse(theta, sigma, pair_deviations(sigma), critical)
    np.testing.assert_allclose(got, plain.fuse(theta, sigma, critical), atol=1e-9)


def test_fusing_does_not_change_its_input():
    theta, sigma, _ = correlated(6, 4)
    copies = theta.copy(), sigma.copy()
    fuse(theta, sigma, pair_deviations(sigma), 5.0)
    np.testing.assert_array_equal(theta, copies[0])
    np.testing.assert_array_equal(sigma, copies[1])


@pytest.mark.parametrize("rates", ["equal", "unequal"])
def test_intervals_cover_the_true_summaries(rates):
    theta = np.full(4, 0.3) if rates == "equal" else np.array([0.15, 0.25, 0.3, 0.45])
    n = np.array([150.0, 300, 500, 900])
    truth = np.array(plain.disparities(theta))
    rng = np.random.default_rng(7)
    hits, tests = [], []
    for _ in range(150):
        r = rng.binomial(n.astype(int), theta) / n
        sigma = np.diag(r * (1 - r) / n)
        got = aggregate_intervals(r, sigma, n)
        hits.append((got.low <= truth + 1e-12) & (truth <= got.high))
        tests.append(got.equality_rejected)
    assert np.all(np.mean(hits, axis=0)[:2] > 0.89)
    assert np.mean(tests) < 0.11 if rates == "equal" else np.mean(tests) > 0.9


def test_draws_of_a_covariance_that_contradicts_itself_are_those_of_the_nearest():
    covariance = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    assert np.linalg.eigvalsh(covariance)[0] < -0.5
    draws = noise_draws(covariance, 200_000)
    found = np.cov(draws.T)
    np.testing.assert_allclose(np.diag(found), 1, atol=0.02)
    values, vectors = np.linalg.eigh(covariance)
    nearest = (vectors * np.maximum(values, 0)) @ vectors.T
    scale = np.sqrt(np.diag(nearest))
    np.testing.assert_allclose(found, nearest / np.outer(scale, scale), atol=0.02)
    fine = np.array([[1.0, 0.5], [0.5, 2.0]])
    np.testing.assert_allclose(np.cov(noise_draws(fine, 200_000).T), fine, atol=0.03)
