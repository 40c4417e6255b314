"""The closed forms against loops over the papers' formulas."""

from __future__ import annotations

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cfair.estimators import (
    confusion_counts,
    disparities,
    ipw_rates,
    ipw_weights,
    largest_gap,
    observed_rates,
)
from cfair.estimators.confusion import RATE_CELLS, RATES

SIZES = [(1, 1), (7, 3), (60, 4), (400, 6)]  # rows, groups
COMPLEMENTS = [("fpr", "tnr"), ("tpr", "fnr"), ("ppv", "fdr"), ("npv", "for")]
SEEDS = st.integers(0, 2**32 - 1)


def draw(n, K, seed):
    rng = np.random.default_rng(seed)
    y, s, d = rng.integers(0, 2, (3, n))
    return y, s, d, rng.integers(0, K, n), rng.uniform(0.005, 0.995, n), rng


def same(a, b, tolerance=1e-12):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("n", "K"), SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_ipw_rates_equal_the_formulas(n, K, seed):
    y, s, d, g, pi, rng = draw(n, K, seed)
    same(np.column_stack(ipw_rates(y, s, d, g, pi, K)), plain.ipw_by_group(y, s, d, pi, g, K))
    w = rng.uniform(0, 2, n)
    same(
        np.column_stack(ipw_rates(y, s, d, g, pi, K, weights=w)),
        plain.ipw_by_group(y, s, d, pi, g, K, w),
    )


@pytest.mark.parametrize(("n", "K"), SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_observed_rates_equal_the_formulas(n, K, seed):
    y, s, _, g, _, _ = draw(n, K, seed)
    rates = observed_rates(confusion_counts(y, s, g, K))
    assert tuple(rates) == RATES
    for k in range(K):
        expected = plain.observed(y[g == k], s[g == k])
        for name in RATES:
            same(rates[name][k], expected[name])


@pytest.mark.parametrize(
    "counts", [(0, 0, 5, 3), (4, 2, 0, 0), (0, 7, 0, 2), (3, 0, 2, 0), (0,) * 4]
)
def test_f1_and_all_others_are_nan_exactly_where_the_denominator_is_zero(counts):
    cells = np.array(counts, float).reshape(2, 2)
    rates = observed_rates(cells)
    tn, fp, fn, tp = counts
    y = [0] * (tn + fp) + [1] * (fn + tp)
    s = [0] * tn + [1] * fp + [0] * fn + [1] * tp
    expected = plain.observed(y, s)
    for name in RATES:
        same(rates[name], expected[name])


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.int64, (3, 2, 2), elements=st.integers(0, 50)))
def test_complementary_rates_add_up_to_one(counts):
    rates = observed_rates(counts.astype(float))
    for a, b in COMPLEMENTS:
        assert np.array_equal(np.isnan(rates[a]), np.isnan(rates[b]))
        total = rates[a] + rates[b]
        same(total[~np.isnan(total)], 1.0)
    for name, cells in RATE_CELLS.items():
        empty = sum(counts[:, y, s] for y, s in cells.denominator) == 0
        assert np.array_equal(np.isnan(rates[name]), empty)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 50), st.integers(1, 5))
def test_weights_of_one_change_nothing(seed, n, K):
    y, s, d, g, pi, _ = draw(n, K, seed)
    one = np.ones(n)
    same(confusion_counts(y, s, g, K), confusion_counts(y, s, g, K, weights=one))
    same(ipw_rates(y, s, d, g, pi, K), ipw_rates(y, s, d, g, pi, K, weights=one))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 40), st.integers(1, 5), st.integers(1, 4))
def test_duplicating_all_rows_changes_no_rate(seed, n, K, times):
    y, s, d, g, pi, _ = draw(n, K, seed)
    rows = np.repeat(np.arange(n), times)
    same(
        ipw_rates(y, s, d, g, pi, K),
        ipw_rates(y[rows], s[rows], d[rows], g[rows], pi[rows], K),
    )
    same(times * confusion_counts(y, s, g, K), confusion_counts(y[rows], s[rows], g[rows], K))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 40), st.integers(1, 5))
def test_whole_weights_are_repeated_rows(seed, n, K):
    y, s, d, g, pi, rng = draw(n, K, seed)
    w = rng.integers(0, 4, n)
    rows = np.repeat(np.arange(n), w)
    same(
        ipw_rates(y, s, d, g, pi, K, weights=w.astype(float)),
        ipw_rates(y[rows], s[rows], d[rows], g[rows], pi[rows], K),
    )


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 60), st.integers(1, 5))
def test_without_treatment_and_with_certain_propensity_ipw_is_the_observed_rate(seed, n, K):
    y, s, _, g, _, _ = draw(n, K, seed)
    nobody = np.zeros(n, int)
    fpr, fnr = ipw_rates(y, s, nobody, g, np.zeros(n), K)
    rates = observed_rates(confusion_counts(y, s, g, K))
    same(fpr, rates["fpr"])
    same(fnr, rates["fnr"])


def test_swapping_outcome_and_call_swaps_the_rates():
    y, s, d, g, pi, _ = draw(200, 3, 9)
    fpr, fnr = ipw_rates(y, s, d, g, pi, 3)
    fpr2, fnr2 = ipw_rates(1 - y, 1 - s, d, g, pi, 3)
    same(fpr, fnr2)
    same(fnr, fpr2)


def test_weights_of_the_treated_are_zero_even_at_probability_one_half():
    same(ipw_weights(np.array([0, 1, 0]), np.array([0.5, 0.5, 0.0])), [2.0, 0.0, 1.0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, bool, np.float64])
def test_types_of_the_arrays_do_not_matter(dtype):
    y, s, d, g, pi, _ = draw(100, 3, 10)
    a = ipw_rates(y, s, d, g, pi, 3)
    b = ipw_rates(y.astype(dtype), s.astype(dtype), d.astype(dtype), g.astype(np.int16), pi, 3)
    same(a, b)


# -- disparities ----------------------------------------------------------------------------------

RATE = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, np.nan]))


@settings(max_examples=200, deadline=None)
@given(st.lists(RATE, min_size=1, max_size=9), st.booleans())
def test_disparities_equal_explicit_pairs(rates, drop):
    got = [float(x) for x in disparities(np.array(rates), drop_boundary=drop)]
    same(got, plain.disparities(rates, drop))


@settings(max_examples=40, deadline=None)
@given(hnp.arrays(np.float64, (2, 3, 5), elements=st.floats(0, 1)))
def test_disparities_work_on_stacks(stack):
    stack[0, 0, :4] = np.nan
    stack[1, 2, 1] = np.nan
    got = disparities(stack)
    for i in range(2):
        for j in range(3):
            same([float(x[i, j]) for x in got], plain.disparities(stack[i, j]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.randoms())
def test_disparities_do_not_depend_on_order_or_level(rates, random):
    shuffled = rates.copy()
    random.shuffle(shuffled)
    base = np.array(disparities(np.array(rates)))
    same(np.array(disparities(np.array(shuffled))), base)
    same(np.array(disparities(1 - np.array(rates))), base)


def test_equal_rates_have_no_disparity():
    average, maximum, variance = disparities(np.full(6, 0.1))
    assert (float(average), float(maximum)) == (0.0, 0.0)
    assert 0 <= variance < 1e-30


@pytest.mark.parametrize(
    ("rates", "pair"),
    [
        ([0.2, 0.5, 0.1], (1, 2)),
        ([np.nan, 0.5, 0.1], (1, 2)),
        ([np.nan, 0.5, np.nan], None),
        ([0.3], None),
    ],
)
def test_largest_gap_names_highest_and_lowest(rates, pair):
    assert largest_gap(np.array(rates)) == pair
