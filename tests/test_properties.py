"""Properties that hold for any data, by function; examples of known answers are elsewhere.

=====================  ==========================================================================
property               functions
=====================  ==========================================================================
order of rows          E* youden ipw_influence covariance[3] permutation_null bootstrap_draws auc
                       brier log_loss calibration ece
names of groups        E* covariance[3] logit_wald fuse cramers_v permutation_null bootstrap_draws
scale of weights       E* youden covariance[3] auc brier log_loss calibration ece
twice the rows at      E* youden auc brier log_loss calibration ece; with the covariance at half:
half the weight        covariance[3]; under given labels and rows: permutation_null bootstrap_draws
whole weights          repeated rows: auc brier log_loss ece (E* are in test_estimators*)
complement             1 - rate for flipped calls: observed ipw aipw plug-in intervention
                       covariance[3] permutation_null bootstrap_draws; of the rates themselves:
                       disparities wilson logit plain effective_size boundary_se mover_difference
                       mover_p_value logit_wald equality_test aggregate_intervals fuse tost_counts
                       tost_to_all least_expected_cell; of outcome or score: auc brier log_loss
exchange of two        mover_difference mover_ratio tost_counts (more in test_intervals)
monotone in cutoff     observed ipw plug-in intervention; through `Audit`: observed ipw plug-in
monotone in level      wilson logit plain mover_combination bootstrap_interval aggregate_intervals
monotone in the value  permutation_p_values u_values tost_counts in the margin
affine                 disparities youden bootstrap_interval fuse mover_combination
brute force            mover_combination is mover_difference; u_values and permutation_p_values of
                       a repeated null; largest_gap is the maximum; covariance[3] is the product
                       of numerical derivatives of the plain formulas
=====================  ==========================================================================

E*: ipw, aipw, plug-in, small subgroups, group intervention (model and doubly robust), confusion
counts. covariance[3]: `rate_covariance` of the contributions of ipw, aipw and the plug-in.
"""

from __future__ import annotations

import bad_inputs
import numpy as np
import pandas as pd
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import cfair
from cfair import metrics
from cfair.equivalence.tost import least_expected_cell, tost_counts, tost_to_all
from cfair.estimators import (
    aipw_rates,
    aipw_scores,
    confusion_counts,
    disparities,
    group_intervention_rates,
    ipw_rates,
    largest_gap,
    observed_rates,
    small_subgroup_rates,
    youden_cutoff,
)
from cfair.inference.aggregate import AGGREGATE_INTERVALS, aggregate_intervals, fuse
from cfair.inference.association import cramers_v
from cfair.inference.bootstrap import bootstrap_interval
from cfair.inference.contributions import (
    OutcomeModel,
    TreatmentModel,
    aipw_contributions,
    ipw_contributions,
    plugin_contributions,
)
from cfair.inference.equality import equality_test, logit_wald, pair_deviations
from cfair.inference.influence import rate_covariance, row_influence
from cfair.inference.intervals import (
    boundary_se,
    effective_size,
    logit_interval,
    mover_combination,
    mover_difference,
    mover_p_value,
    mover_ratio,
    plain_interval,
    wilson_interval,
)
from cfair.inference.moments import contribution_moments
from cfair.inference.uvalue import permutation_p_values, u_values
from cfair.nuisance.logistic import FittedModel, fit_logistic

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
SEEDS = st.integers(0, 2**32 - 1)
few = settings(max_examples=25, deadline=None)
some = settings(max_examples=60, deadline=None)


def same(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# -- estimators ------------------------------------------------------------------------------------


def rows(seed, n=60, K=3):
    """Every argument of every estimator, a row each."""
    rng = np.random.default_rng(seed)
    score = rng.uniform(size=n).round(1)  # with ties
    x = {"y": rng.integers(0, 2, n), "d": rng.integers(0, 2, n), "group": rng.integers(0, K, n)}
    x |= {"score": score, "s": (score >= 0.5).astype(int), "w": rng.uniform(0.1, 3, n)}
    x |= {name: rng.uniform(0.01, 0.99, n) for name in ("pi", "mu0", "mu0_s1", "mu0_s0")}
    x |= {"mu": rng.uniform(0.01, 0.99, (n, K)), "scores": rng.uniform(size=(n, K)).round(1)}
    x["p_group"] = rng.dirichlet(np.ones(K), n) * 0.9 + 0.1 / K
    return x


def take(x, at):
    return {name: values[at] for name, values in x.items()}


def observed_pair(x, w):
    r = observed_rates(confusion_counts(x["y"], x["s"], x["group"], x["mu"].shape[1], w))
    return r["fpr"], r["fnr"]


def aipw_pair(x, w):
    phi = aipw_scores(x["y"], x["d"], x["pi"], x["mu0"])
    return aipw_rates(x["s"], x["group"], phi, x["mu"].shape[1], w)


def small_pair(x, w):
    names = ("y", "s", "d", "group", "pi", "mu0", "mu0_s1", "mu0_s0", "p_group")
    return small_subgroup_rates(*(x[name] for name in names), weights=w)


ESTIMATORS = {
    "observed": observed_pair,
    "ipw": lambda x, w: ipw_rates(x["y"], x["s"], x["d"], x["group"], x["pi"], x["mu"].shape[1], w),
    "aipw": aipw_pair,
    "plug-in": lambda x, w: aipw_rates(x["s"], x["group"], x["mu0"], x["mu"].shape[1], w),
    "small": small_pair,
    "intervention": lambda x, w: group_intervention_rates(x["mu"], 0.5, x["scores"], weights=w),
    "doubly robust": lambda x, w: group_intervention_rates(
        x["mu"], 0.5, x["scores"], x["y"], x["group"], x["p_group"], w
    ),
    "youden": lambda x, w: (youden_cutoff(x["y"], x["score"], w),) * 2,
}
BY_GROUP = [name for name in ESTIMATORS if name != "youden"]


def estimate(name, x, w=None):
    return np.array(ESTIMATORS[name](x, x["w"] if w is None else w))


@pytest.mark.parametrize("name", ESTIMATORS)
@few
@given(SEEDS)
def test_order_scale_and_halves_of_weights_change_no_estimate(name, seed):
    x = rows(seed)
    found = estimate(name, x)
    same(estimate(name, take(x, np.random.default_rng(seed).permutation(60))), found)
    twice = np.tile(np.arange(60), 2)
    same(estimate(name, take(x, twice), np.tile(x["w"] / 2, 2)), found)
    for scale in (1e-3, 7.0, 1e6):
        same(estimate(name, x, scale * x["w"]), found)


@pytest.mark.parametrize("name", BY_GROUP)
@few
@given(SEEDS)
def test_names_of_groups_are_only_names(name, seed):
    x, order = rows(seed), np.random.default_rng(seed + 1).permutation(3)
    renamed = x | {"group": order[x["group"]]}
    for by_group in ("mu", "scores", "p_group"):
        renamed[by_group] = x[by_group][:, np.argsort(order)]
    same(estimate(name, renamed)[:, order], estimate(name, x))


@pytest.mark.parametrize("name", [n for n in BY_GROUP if n != "small"])
@few
@given(SEEDS)
def test_flipped_calls_have_the_complement(name, seed):
    x = rows(seed)
    flipped = x | {"s": 1 - x["s"], "scores": np.where(x["scores"] >= 0.5, 0.0, 1.0)}
    same(estimate(name, flipped), 1 - estimate(name, x))


@pytest.mark.parametrize("name", ["observed", "ipw", "plug-in", "intervention"])
@few
@given(SEEDS)
def test_a_higher_cutoff_flags_fewer(name, seed):
    x = rows(seed)
    found = []
    for cutoff in np.linspace(0, 1.1, 12):
        moved = x | {"s": (x["score"] >= cutoff).astype(int)}
        moved["scores"] = np.clip(x["scores"] - cutoff + 0.5 + 1e-9, 0, None)  # its cutoff is 0.5
        found.append(estimate(name, moved))
    steps = np.diff(np.array(found), axis=0)
    assert (np.nan_to_num(steps[:, 0]) <= 1e-12).all()
    assert (np.nan_to_num(steps[:, 1]) >= -1e-12).all()
    assert np.nanmin(found[0][0]) == pytest.approx(1)
    assert np.nanmax(found[-1][0]) == pytest.approx(0)


@few
@given(SEEDS)
def test_youden_follows_the_scale_of_the_score(seed):
    x = rows(seed)
    found = youden_cutoff(x["y"], x["score"])
    same(youden_cutoff(x["y"], 3 + np.exp(x["score"])), 3 + np.exp(found))


RATES = st.lists(st.floats(0, 1), min_size=2, max_size=8).map(np.array)


@some
@given(RATES, st.floats(0.1, 10), st.floats(-1, 1))
def test_disparities_know_differences_only(r, scale, shift):
    average, largest, variance = (float(v) for v in disparities(r))
    same(disparities(shift + scale * r), [scale * average, scale * largest, scale**2 * variance])
    high, low = largest_gap(r)
    assert r[high] - r[low] == largest
    assert average <= largest + 1e-15  # of two groups they are one number, summed otherwise


# -- covariances -----------------------------------------------------------------------------------


def fitted_rows(seed, n=70, K=2):
    rng = np.random.default_rng(seed)
    g, x = rng.integers(0, K, n), rng.normal(size=n)
    X = np.column_stack([np.ones(n), x, g == 1])
    y, d = rng.binomial(1, expit(0.7 * x - 0.2)), rng.binomial(1, expit(0.5 * x - 0.5))
    s = rng.binomial(1, expit(x))
    return {"y": y, "s": s, "d": d, "group": g, "X": X, "w": rng.uniform(0.5, 2, n)}


def contributions(kind, x, w):
    y, s, d, g, X = (x[name] for name in ("y", "s", "d", "group", "X"))
    pi = fit_logistic(X, d, weights=w).fitted
    treatment = TreatmentModel(pi, X, pi)
    if kind == "ipw":
        return ipw_contributions(y, s, d, g, treatment)
    used = d == 0
    beta = plain.weighted_logit(X[used], y[used], w[used])
    mu = expit(X @ beta)
    fitted = FittedModel(X, np.where(used, y - mu, 0), np.where(used, mu * (1 - mu), 0), X)
    outcome = OutcomeModel(mu, fitted)
    if kind == "plugin":
        return plugin_contributions(y, s, d, g, outcome)
    return aipw_contributions(y, s, d, g, treatment, outcome)


def covariance(kind, x, w=None, K=2):
    w = x["w"] if w is None else w
    found = rate_covariance(contribution_moments(contributions(kind, x, w), K, w), np.eye(K))
    return found.estimate, found.covariance, found.kish


KINDS = ["ipw", "aipw", "plugin"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(SEEDS)
def test_the_covariance_knows_neither_order_nor_names_nor_scale(kind, seed):
    x = fitted_rows(seed % 1000)
    theta, V, kish = covariance(kind, x)
    shuffled = take(x, np.random.default_rng(seed).permutation(len(x["y"])))
    for found in (covariance(kind, shuffled), covariance(kind, x, 5 * x["w"])):
        for a, b in zip(found, (theta, V, kish), strict=True):
            same(a, b, 1e-7)
    twice = take(x, np.tile(np.arange(len(x["y"])), 2))
    double = covariance(kind, twice, twice["w"] / 2)
    for a, b in zip(double, (theta, V / 2, 2 * kish), strict=True):
        same(a, b, 1e-7)
    renamed = covariance(kind, x | {"group": 1 - x["group"]})
    other = np.array([1, 0, 3, 2])
    same(np.ravel(renamed[0]), np.ravel(theta)[other], 1e-7)
    same(renamed[1], V[np.ix_(other, other)], 1e-7)
    flipped = covariance(kind, x | {"s": 1 - x["s"]})
    same(flipped[0], 1 - theta, 1e-7)
    same(flipped[1], V, 1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_the_covariance_is_that_of_numerical_derivatives(kind):
    x = fitted_rows(12)
    setting = plain.Setting(
        kind, x["y"], x["s"], x["d"], x["group"], X=x["X"], M=x["X"], weights=x["w"],
        truncation=(0, 1),
    )  # fmt: skip
    psi = setting.influence()
    same(row_influence(contributions(kind, x, x["w"]), 2, x["w"]), psi, 1e-6)
    found, plainly = np.diag(covariance(kind, x)[1]), np.diag(psi.T @ psi) / len(psi) ** 2
    assert (found > 0.999 * plainly).all()
    assert (found < 1.2 * plainly).all()  # the rest is the small-sample correction


# -- intervals -------------------------------------------------------------------------------------


def eight(*columns):
    """Eight cases at once: what is searched for is searched for in all of them in one go."""
    return st.lists(st.tuples(*columns), min_size=8, max_size=8)


RATE = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5])
SIZE = st.floats(1.5, 1e5)
LEVELS = st.tuples(st.floats(0.5, 0.99), st.floats(0.5, 0.99)).map(sorted)


def one(x):
    return np.array([x], dtype=float)


def wilson(p, n, level):
    return wilson_interval(one(p), one(n), level)


def by_se(interval):
    return lambda p, n, level: interval(one(p), np.sqrt(one(p) * (1 - p) / n), level)


INTERVALS = {"wilson": wilson, "plain": by_se(plain_interval), "logit": by_se(logit_interval)}


@pytest.mark.parametrize("name", INTERVALS)
@some
@given(RATE, SIZE, LEVELS)
def test_the_interval_of_a_complement_and_of_a_higher_level(name, p, n, levels):
    p = round(p, 6)  # 1 - (1 - p) is p
    low, high = INTERVALS[name](p, n, levels[1])
    back = INTERVALS[name](1 - p, n, levels[1])
    same(back[0], 1 - high, 1e-7)
    same(back[1], 1 - low, 1e-7)
    inner = INTERVALS[name](p, n, levels[0])
    assert not (inner[0] < low - 1e-12).any()
    assert not (inner[1] > high + 1e-12).any()


@some
@given(RATE, SIZE)
def test_sizes_and_errors_of_complements(p, n):
    p = round(p, 6)
    se = np.sqrt(one(p) * (1 - p) / n)
    for function in (effective_size, boundary_se):
        same(function(one(p), se, one(n)), function(one(1 - p), se, one(n)), 1e-7)


@settings(max_examples=8, deadline=None)
@given(eight(RATE, SIZE, RATE, SIZE, st.floats(-0.9, 0.9)))
def test_comparisons_of_two_rates(cases):
    a, na, b, nb, rho = np.transpose(cases)
    a, b = a.round(6), b.round(6)
    same(mover_p_value(a, na, b, nb, rho), mover_p_value(1 - a, na, 1 - b, nb, rho), 1e-5)
    for case in zip(a, na, b, nb, rho, strict=True):
        limits_of_two_rates(*case)


def limits_of_two_rates(a, na, b, nb, rho):
    A, B = wilson(a, na, 0.95), wilson(b, nb, 0.95)
    A1, B1 = wilson(1 - a, na, 0.95), wilson(1 - b, nb, 0.95)
    low, high = mover_difference(one(a), *A, one(b), *B, rho)
    low1, high1 = mover_difference(one(1 - a), *A1, one(1 - b), *B1, rho)
    same(low1, -high, 1e-6)
    same(high1, -low, 1e-6)
    values, lows, highs = np.array([[a, b]]), np.array([[*A[0], *B[0]]]), np.array([[*A[1], *B[1]]])
    signs = np.array([1.0, -1.0])
    correlation = np.array([[1, rho], [rho, 1]])
    found = mover_combination(values, lows, highs, signs, correlation)
    same(found, (low, high), 1e-9)
    scaled = mover_combination(values, lows, highs, 3 * signs, correlation)
    same(scaled, (3 * low, 3 * high), 1e-9)
    if min(a, b) > 0.01:
        r_low, r_high = mover_ratio(one(a), *A, one(b), *B, rho)
        q_low, q_high = mover_ratio(one(b), *B, one(a), *A, rho)
        if np.isfinite([r_low, r_high, q_low, q_high]).all() and min(r_low, q_low) > 1e-6:
            same(r_low * q_high, 1, 1e-6)
            same(r_high * q_low, 1, 1e-6)


# -- tests and summaries ---------------------------------------------------------------------------


def setting(seed, K=4):
    rng = np.random.default_rng(seed)
    theta, n = rng.uniform(0.05, 0.9, K), rng.uniform(30, 500, K)
    scale = np.sqrt(theta * (1 - theta) / n)
    A = rng.normal(size=(K, K))
    R = A @ A.T + 3 * np.eye(K)
    R /= np.sqrt(np.outer(np.diag(R), np.diag(R)))
    return theta, R * np.outer(scale, scale), n, rng


@few
@given(SEEDS)
def test_tests_of_equality_see_a_rate_and_its_complement_alike(seed):
    theta, V, n, rng = setting(seed)
    wald = logit_wald(theta, V, n)
    same(logit_wald(1 - theta, V, n), wald, 1e-8)
    order = rng.permutation(4)
    same(logit_wald(theta[order], V[np.ix_(order, order)], n[order]), wald, 1e-8)
    one_way, other = equality_test(theta, V, n), equality_test(1 - theta, V, n)
    same([one_way.p_value, one_way.max_t], [other.p_value, other.max_t], 1e-8)
    assert abs(one_way.max_t_p_value - other.max_t_p_value) < 0.02  # by simulation


@few
@given(SEEDS, st.floats(0.5, 5), st.floats(0.5, 2), st.floats(-1, 1))
def test_fused_values_move_with_the_values(seed, critical, scale, shift):
    theta, V, _, rng = setting(seed)
    found = fuse(theta, V, pair_deviations(V), critical)
    order = rng.permutation(4)
    mixed = V[np.ix_(order, order)]
    same(fuse(theta[order], mixed, pair_deviations(mixed), critical), found[order], 1e-9)
    wider = scale**2 * V
    moved = fuse(shift + scale * theta, wider, pair_deviations(wider), critical)
    same(moved, shift + scale * found, 1e-9)
    same(fuse(1 - theta, V, pair_deviations(V), critical), 1 - found, 1e-9)


@pytest.mark.parametrize("kind", AGGREGATE_INTERVALS)
@settings(max_examples=6, deadline=None)
@given(SEEDS)
def test_summaries_of_complements_and_of_higher_levels(kind, seed):
    theta, V, n, _ = setting(seed)
    wide = aggregate_intervals(theta, V, n, 0.99, interval=kind)
    other = aggregate_intervals(1 - theta, V, n, 0.99, interval=kind)
    same(other.estimate, wide.estimate)
    # the noise is drawn in the order of the rates: other draws of the same distribution
    found, expected = other.expected_if_equal, wide.expected_if_equal
    np.testing.assert_allclose(found[:2], expected[:2], rtol=0.05)  # the variance is all noise
    if wide.equality_rejected == other.equality_rejected:
        np.testing.assert_allclose(other.low, wide.low, rtol=0.1, atol=0.02)
    np.testing.assert_allclose(other.high, wide.high, rtol=0.1)
    narrow = aggregate_intervals(theta, V, n, 0.8, interval=kind)
    assert not (narrow.high > wide.high + 1e-9).any()
    assert not (narrow.low < wide.low - 1e-9).any()


@some
@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_association_has_no_order(seed, K):
    rng = np.random.default_rng(seed)
    table = rng.integers(1, 40, (K, 2)).astype(float)
    n = table.sum()
    found = cramers_v(table, n)
    for other in (table[rng.permutation(K)], table[:, ::-1]):
        again = cramers_v(other, n)
        same([again.v, again.low, again.high], [found.v, found.low, found.high], 1e-6)
    assert 0 <= found.low <= found.high <= 1


NULL = st.lists(st.floats(0, 1), min_size=1, max_size=30).map(lambda v: np.array(v)[:, None])


@some
@given(st.floats(0, 1), st.floats(0, 1), NULL, st.integers(2, 4))
def test_shares_of_a_null(a, b, null, times):
    a, b = sorted((a, b))
    p_a, p_b = (permutation_p_values(one(v), null) for v in (a, b))
    assert p_a.value[0] >= p_b.value[0] >= 1 / (len(null) + 1)
    u_a, u_b = (u_values(one(v), null, 0.1) for v in (a, b))
    assert u_a.value[0] <= u_b.value[0]
    assert u_values(one(a), null, 0.2).value[0] <= u_a.value[0]
    repeated = np.tile(null, (times, 1))
    same(u_values(one(a), repeated, 0.1).value, u_a.value)
    beyond = p_a.value * (1 + len(null)) - 1
    same(permutation_p_values(one(a), repeated).value, (1 + times * beyond) / (1 + len(repeated)))
    same(permutation_p_values(one(a), null[::-1]).value, p_a.value)


@pytest.mark.parametrize("kind", ["percentile", "basic", "normal"])
@few
@given(SEEDS, st.floats(0.1, 10), st.floats(-5, 5), LEVELS)
def test_bootstrap_intervals_move_with_the_draws(kind, seed, scale, shift, levels):
    rng = np.random.default_rng(seed)
    theta, draws = rng.normal(size=3), rng.normal(size=(60, 3))
    found = bootstrap_interval(theta, draws, kind, levels[1])
    moved = bootstrap_interval(shift + scale * theta, shift + scale * draws, kind, levels[1])
    for a, b in ((moved.low, found.low), (moved.high, found.high)):
        same(a, shift + scale * b, 1e-9)
    same(bootstrap_interval(theta, draws[::-1], kind, levels[1]).low, found.low)
    inner = bootstrap_interval(theta, draws, kind, levels[0])
    assert (inner.low >= found.low - 1e-12).all()
    assert (inner.high <= found.high + 1e-12).all()


COUNTS = eight(st.integers(0, 60), st.integers(1, 60), st.integers(0, 60), st.integers(1, 60))


@pytest.mark.parametrize("method", ["score", "wald"])
@settings(max_examples=8, deadline=None)
@given(COUNTS)
def test_equivalence_of_the_other_outcome_and_of_a_wider_margin(method, counts):
    x, n, x2, n2 = np.transpose(counts)
    x, x2 = np.minimum(x, n), np.minimum(x2, n2)
    options = {"contrast": "difference", "method": method}
    found = tost_counts(x, n, x2, n2, (-0.1, 0.2), **options)
    other = tost_counts(n - x, n, n2 - x2, n2, (-0.2, 0.1), **options)
    for a, b in ((other.estimate, -found.estimate), (other.low, -found.high),
                 (other.high, -found.low), (other.p_lower, found.p_upper)):  # fmt: skip
        same(a, b, 1e-6)
    odds = {"contrast": "odds_ratio", "method": method}
    found = tost_counts(x, n, x2, n2, (0.5, 4.0), **odds)
    other = tost_counts(n - x, n, n2 - x2, n2, (0.25, 2.0), **odds)
    same(other.p_lower, found.p_upper, 1e-6)
    same(other.p_value, found.p_value, 1e-6)
    wider = tost_counts(x, n, x2, n2, (0.4, 5.0), **odds)
    assert not (wider.p_value > found.p_value + 1e-9).any()


@settings(max_examples=8, deadline=None)
@given(COUNTS)
def test_equivalence_to_all_rows_of_the_other_outcome(counts):
    x, n, more, rest = np.transpose(counts)
    x, more = np.minimum(x, n), np.minimum(more, rest)
    found = tost_to_all(x, n, x + more, n + rest, (-0.1, 0.2), contrast="difference")
    other = tost_to_all(n - x, n, n + rest - x - more, n + rest, (-0.2, 0.1), contrast="difference")
    same(other.p_lower, found.p_upper, 1e-6)
    same(other.low, -found.high, 1e-6)
    cell = least_expected_cell(x / n, n, more / rest, rest)
    same(least_expected_cell(1 - x / n, n, 1 - more / rest, rest), cell, 1e-9)


# -- the quality of a score ------------------------------------------------------------------------

QUALITIES = {
    "auc": metrics.auc,
    "brier": metrics.brier,
    "log_loss": metrics.log_loss,
    "ece": metrics.ece,
    "calibration": lambda y, p, sample_weight=None: metrics.calibration(
        y, p, sample_weight=sample_weight
    ).select_dtypes("number").drop(columns=["n", "events"], errors="ignore").to_numpy(float),
}  # fmt: skip


def scored(seed):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, 80).round(2)
    y = rng.binomial(1, p)
    y[:2] = 0, 1
    return y, p, rng.uniform(0.2, 2, 80), rng


@pytest.mark.parametrize("name", QUALITIES)
@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_order_and_weights_of_the_quality_of_a_score(name, seed):
    y, p, w, rng = scored(seed)
    quality = QUALITIES[name]
    found = quality(y, p, sample_weight=w)
    order = rng.permutation(80)
    same(quality(y[order], p[order], sample_weight=w[order]), found, 1e-7)
    same(quality(y, p, sample_weight=50 * w), found, 1e-7)
    if name != "calibration":  # its standard errors count rows
        halves = np.tile(w / 2, 2)
        same(quality(np.tile(y, 2), np.tile(p, 2), sample_weight=halves), found, 1e-7)
        times = rng.integers(1, 4, 80)
        repeated = quality(np.repeat(y, times), np.repeat(p, times))
        same(quality(y, p, sample_weight=times.astype(float)), repeated, 1e-7)


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_quality_of_the_other_outcome(seed):
    y, p, w, _ = scored(seed)
    auc = metrics.auc(y, p, sample_weight=w)
    same(metrics.auc(1 - y, p, sample_weight=w), 1 - auc)
    same(metrics.auc(y, 1 - p, sample_weight=w), 1 - auc)
    for quality in (metrics.brier, metrics.log_loss):
        same(quality(1 - y, 1 - p, sample_weight=w), quality(y, p, sample_weight=w))


# -- replicates of given labels and rows, through the front door -----------------------------------

TABLE = bad_inputs.cohort(160, 4).assign(
    age=lambda t: (t["age"] - 60) / 10, call=lambda t: (t["s"] >= 0.5).astype(int)
)
FORMULA = "d ~ sex + age"
MODELS = {
    "ipw": {"propensity": FORMULA},
    "aipw": {"propensity": FORMULA, "outcome_model": "y ~ sex + age"},
    "plugin": {"outcome_model": "y ~ sex + age", "estimator": "plugin"},
}
LABELS = np.array([np.random.default_rng(r).permutation(160) for r in range(4)])
DRAWS = np.array([np.random.default_rng(9 + r).integers(0, 160, 160) for r in range(4)])


def replicated(kind, table, permutations=LABELS, resamples=DRAWS):
    audit = cfair.Audit(table, outcome="y", prediction="call", groups="sex", treatment="d")
    found = audit.counterfactual(
        **MODELS[kind], permutations=permutations, resamples=list(resamples), exact=True
    )
    wanted = ["cfpr", "cfnr"]
    return found.rates, found.null_draws[wanted], found.boot_draws[wanted]


def rates_only(draws, groups=("F", "M")):
    return np.array([draws[metric, g] for metric in ("cfpr", "cfnr") for g in groups])


@pytest.mark.parametrize("kind", MODELS)
def test_replicates_know_neither_order_nor_names_nor_copies(kind):
    _, null, boot = replicated(kind, TABLE)
    order = np.random.default_rng(3).permutation(160)
    where = np.argsort(order)
    _, null2, boot2 = replicated(
        kind, TABLE.iloc[order].reset_index(drop=True), where[LABELS[:, order]], where[DRAWS]
    )
    same(null2, null, 1e-7)
    same(boot2, boot, 1e-7)
    renamed = TABLE.assign(sex=TABLE["sex"].map({"F": "z", "M": "a"}))
    _, null3, boot3 = replicated(kind, renamed)
    same(rates_only(null3, ("z", "a")), rates_only(null), 1e-7)
    same(rates_only(boot3, ("z", "a")), rates_only(boot), 1e-7)
    copies = pd.concat([TABLE, TABLE], ignore_index=True)
    both = np.hstack([LABELS, LABELS + 160]), np.hstack([DRAWS, DRAWS + 160])
    _, null4, boot4 = replicated(kind, copies, *both)
    same(null4, null, 1e-7)
    same(boot4, boot, 1e-7)


@pytest.mark.parametrize("kind", MODELS)
def test_replicates_of_flipped_calls_are_complements(kind):
    rates, null, boot = replicated(kind, TABLE)
    flipped, null2, boot2 = replicated(kind, TABLE.assign(call=1 - TABLE["call"]))
    same(rates_only(null2), 1 - rates_only(null), 1e-9)
    same(rates_only(boot2), 1 - rates_only(boot), 1e-9)
    wanted = rates["metric"].isin(["cfpr", "cfnr"])
    same(flipped["estimate"][wanted], 1 - rates["estimate"][wanted], 1e-9)
    same(flipped["ci_low"][wanted], 1 - rates["ci_high"][wanted], 1e-7)


@pytest.mark.parametrize("kind", ["observed", "ipw", "plugin"])
def test_rates_of_an_audit_fall_with_the_cutoff(kind):
    found = []
    for cutoff in (0.2, 0.35, 0.5, 0.65, 0.8):
        audit = cfair.Audit(
            TABLE, outcome="y", score="s", cutoff=cutoff, groups="sex", treatment="d"
        )
        result = audit.observed() if kind == "observed" else audit.counterfactual(**MODELS[kind])
        frame = result.rates.pivot(index="metric", columns="group", values="estimate")
        low, high = ("fpr", "fnr") if kind == "observed" else ("cfpr", "cfnr")
        found.append([*frame.loc[low], *-frame.loc[high]])
    assert (np.diff(np.array(found), axis=0) <= 1e-12).all()
    assert np.ptp(np.array(found), axis=0).min() > 0.1
