"""Wilson and MOVER against statsmodels and against the formulas; interval and p-value agree."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import plain
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from cfair.inference.intervals import (
    NORMAL,
    boundary_se,
    effective_size,
    logit_interval,
    mover_difference,
    mover_p_value,
    mover_ratio,
    plain_interval,
    wilson_interval,
)

LEVELS = [0.5, 0.8, 0.9, 0.95, 0.99, 0.999]
COUNTS = [(0, 1), (0, 10), (1, 3), (3, 10), (7, 7), (40, 200), (999, 1000)]  # successes, rows
RATE = st.one_of(st.floats(0.001, 0.999), st.sampled_from([0.0, 1.0, 0.5]))
SIZE = st.one_of(st.floats(1.05, 20), st.floats(20, 5000), st.integers(2, 50).map(float))
LEVEL = st.sampled_from(LEVELS)
MAX_DF = st.sampled_from([np.inf, NORMAL, 1.0, 3.0, 11.0, 200.0])  # clusters less one


def arrays(*values):
    return [np.array([v], dtype=float) for v in values]


def wilson(p, n, level=0.95, max_df=np.inf):
    low, high = wilson_interval(*arrays(p, n), level, max_df=max_df)
    return float(low[0]), float(high[0])


# -- one rate -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("x", "n"), [c for c in COUNTS if c[1] > 1])
def test_wilson_with_the_normal_quantile_equals_statsmodels(x, n, level):
    expected = proportion_confint(x, n, alpha=1 - level, method="wilson")
    np.testing.assert_allclose(wilson(x / n, n, level, NORMAL), expected, atol=1e-12)


@settings(max_examples=120, deadline=None)
@given(RATE, st.floats(1.5, 1e5), LEVEL, MAX_DF)
def test_wilson_limits_solve_the_defining_equation(p, n, level, max_df):
    expected = plain.wilson(p, n, level, max_df != NORMAL, max_df)
    np.testing.assert_allclose(wilson(p, n, level, max_df), expected, atol=1e-7)


@settings(max_examples=120, deadline=None)
@given(RATE, st.floats(0, 1e6), LEVEL)
def test_wilson_stays_in_the_unit_interval_and_holds_the_rate(p, n, level):
    low, high = wilson(p, n, level)
    assert 0 <= low <= p + 1e-12
    assert p - 1e-12 <= high <= 1


@settings(max_examples=100, deadline=None)
@given(RATE, SIZE)
def test_wilson_is_wider_at_a_higher_level(p, n):
    limits = [wilson(p, n, level) for level in LEVELS]
    assert all(a[0] >= b[0] and a[1] <= b[1] for a, b in pairwise(limits))


@pytest.mark.parametrize("n", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("p", [0.0, 0.4, 1.0])
def test_an_effective_size_of_one_or_less_knows_nothing(p, n):
    assert wilson(p, n) == (0.0, 1.0)
    assert wilson(p, n, max_df=NORMAL) == (0.0, 1.0)
    assert wilson(p, n, max_df=3.0) == (0.0, 1.0)


@pytest.mark.parametrize("n", [1 + 1e-12, 1 + 1e-6, 1.001, 1.01, 1.1, 1.5])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_an_effective_size_just_above_one_knows_next_to_nothing(p, n):
    low, high = wilson(p, n)
    assert low < 0.01
    assert high > 0.99


@settings(max_examples=60, deadline=None)
@given(RATE, st.floats(1.5, 1e5), LEVEL, st.integers(1, 60))
def test_few_clusters_widen_wilson_and_many_change_nothing(p, n, level, df):
    few, many = wilson(p, n, level, float(df)), wilson(p, n, level)
    assert few[0] <= many[0]
    assert few[1] >= many[1]
    if df >= n - 1:
        assert few == many
    np.testing.assert_array_equal(wilson(p, n, level, n + 1), many)


def test_boundary_rates_have_one_sided_limits():
    low, high = wilson(0.0, 50)
    assert low == 0.0
    assert 0.03 < high < 0.12
    low, high = wilson(1.0, 50)
    assert high == 1.0
    assert 0.88 < low < 0.97


def test_undefined_rates_have_undefined_limits():
    nan, some, zero = np.array([np.nan]), np.array([0.1]), np.array([0.0])
    for low, high in (
        wilson_interval(nan, some * 300),
        wilson_interval(nan, zero),
        plain_interval(nan, some),
        logit_interval(nan, some),
        logit_interval(nan, nan),
    ):
        assert np.isnan([low[0], high[0]]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_plain_and_logit_intervals_are_the_textbook_ones(level):
    p, se = 0.3, 0.05
    z = stats.norm.ppf((1 + level) / 2)
    low, high = plain_interval(*arrays(p, se), level)
    np.testing.assert_allclose([low[0], high[0]], np.clip([p - z * se, p + z * se], 0, 1))
    low, high = logit_interval(*arrays(p, se), level)
    limits = np.log(p / (1 - p)) + np.array([-1, 1]) * z * se / (p * (1 - p))
    np.testing.assert_allclose([low[0], high[0]], 1 / (1 + np.exp(-limits)), rtol=1e-12)


def test_logit_interval_at_the_boundary_is_everything():
    low, high = logit_interval(np.array([0.0, 1.0]), np.array([0.1, 0.1]))
    assert (low.tolist(), high.tolist()) == ([0, 0], [1, 1])


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 0.99), st.floats(2, 1e4))
def test_effective_size_undoes_the_binomial_standard_error(p, n):
    se = np.sqrt(p * (1 - p) / n)
    assert effective_size(*arrays(p, se, 7))[0] == pytest.approx(n, rel=1e-9)
    assert boundary_se(*arrays(p, se, 7))[0] == se


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_boundary_rates_use_kish_and_agresti_coull(p):
    assert effective_size(*arrays(p, 0.0, 37))[0] == 37
    shrunk = (p * 37 + 2) / 41
    expected = np.sqrt(shrunk * (1 - shrunk) / 41)
    assert boundary_se(*arrays(p, 0.0, 37))[0] == pytest.approx(expected, rel=1e-14)


# -- two rates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("a", [c for c in COUNTS if c[1] > 1])
@pytest.mark.parametrize("b", [(2, 9), (0, 10), (60, 100)])
def test_mover_with_independent_proportions_is_newcombe(a, b, level):
    pa, pb = a[0] / a[1], b[0] / b[1]
    la, lb = (wilson(x, n, level, NORMAL) for x, n in ((pa, a[1]), (pb, b[1])))
    low, high = mover_difference(*arrays(pa, *la, pb, *lb))
    expected = confint_proportions_2indep(*a, *b, method="newcomb", alpha=1 - level)
    np.testing.assert_allclose([low[0], high[0]], expected, atol=1e-12)


@settings(max_examples=120, deadline=None)
@given(RATE, SIZE, RATE, SIZE, st.floats(-1, 1))
def test_mover_difference_is_the_formula_and_antisymmetric(a, na, b, nb, rho):
    la, lb = wilson(a, na), wilson(b, nb)
    low, high = mover_difference(*arrays(a, *la, b, *lb), rho)
    np.testing.assert_allclose([low[0], high[0]], plain.mover(a, *la, b, *lb, rho), atol=1e-12)
    back = mover_difference(*arrays(b, *lb, a, *la), rho)
    np.testing.assert_allclose([-back[1][0], -back[0][0]], [low[0], high[0]], atol=1e-12)
    assert low[0] <= a - b + 1e-12
    assert high[0] >= a - b - 1e-12
    if rho == 0:
        assert low[0] >= -1 - 1e-9
        assert high[0] <= 1 + 1e-9


@settings(max_examples=120, deadline=None)
@given(RATE, SIZE, RATE, SIZE, st.floats(-0.95, 0.95), LEVEL)
@example(0.5, 2.0, 0.0, 2.0, 2e-313, 0.5)  # a correlation so small that its square is not there
def test_ratio_holds_one_exactly_when_the_difference_holds_zero(a, na, b, nb, rho, level):
    la, lb = wilson(a, na, level), wilson(b, nb, level)
    values = arrays(a, *la, b, *lb)
    low, high = mover_difference(*values, rho)
    r_low, r_high = mover_ratio(*values, rho)
    if b == 0:
        assert np.isnan([r_low[0], r_high[0]]).all()
        return
    if min(abs(low[0]), abs(high[0])) < 1e-9:
        return  # at the edge rounding decides
    assert (low[0] <= 0 <= high[0]) == (r_low[0] <= 1 <= r_high[0])


@settings(max_examples=120, deadline=None)
@given(
    st.floats(0.05, 0.95), st.floats(3, 3000), st.floats(0.05, 0.95), st.floats(3, 3000),
    st.floats(-0.9, 0.9),
)  # fmt: skip
def test_ratio_limits_are_where_a_minus_r_b_touches_zero(a, na, b, nb, rho):
    la, lb = wilson(a, na), wilson(b, nb)
    low, high = (x[0] for x in mover_ratio(*arrays(a, *la, b, *lb), rho))
    assert 0 <= low <= a / b * (1 + 1e-9)
    assert high >= a / b * (1 - 1e-9)
    if low > 0:
        edge = plain.mover(a, *la, low * b, low * lb[0], low * lb[1], rho)[0]
        assert edge == pytest.approx(0, abs=1e-6)
    if np.isfinite(high) and high < 1e4:
        edge = plain.mover(a, *la, high * b, high * lb[0], high * lb[1], rho)[1]
        assert edge == pytest.approx(0, abs=1e-5 * max(1, high))


@pytest.mark.parametrize("a", [0.3, 0.0, 1.0])
def test_a_ratio_to_a_reference_of_zero_has_no_limits(a):
    la, lb = wilson(a, 40.0), wilson(0.0, 40.0)
    for limits in mover_ratio(*arrays(a, *la, 0.0, *lb)):
        assert np.isnan(limits[0])


def test_a_ratio_has_no_upper_limit_where_the_reference_may_be_zero():
    low, high = mover_ratio(*arrays(0.3, 0.2, 0.4, 0.05, 0.0, 0.1))
    assert np.isposinf(high[0])
    assert 0 < low[0] < 0.3 / 0.05


# -- p-value --------------------------------------------------------------------------------------


def several(*columns):
    """Eight pairs of groups at once: a p-value is searched for all of them in one go."""
    return st.lists(st.tuples(*columns), min_size=8, max_size=8)


def agree(cases, level, max_df=np.inf):
    p = mover_p_value(*np.transpose(cases), max_df=max_df)
    for case, value in zip(cases, p, strict=True):
        a, na, b, nb, rho = case
        la, lb = wilson(a, na, level, max_df), wilson(b, nb, level, max_df)
        low, high = plain.mover(a, *la, b, *lb, rho)
        if min(abs(low), abs(high)) < 1e-9:
            continue
        assert (value < 1 - level) == (not low <= 0 <= high), case


@settings(max_examples=25, deadline=None)
@given(several(RATE, SIZE, RATE, SIZE, st.just(0.0)), LEVEL, MAX_DF)
def test_p_value_is_below_alpha_exactly_when_the_interval_excludes_zero(cases, level, df):
    agree(cases, level, df)


@settings(max_examples=25, deadline=None)
@given(several(RATE, st.floats(10, 5000), RATE, st.floats(10, 5000), st.floats(-0.5, 0.5)), LEVEL)
def test_p_value_and_interval_agree_for_correlated_rates(cases, level):
    agree(cases, level)


# small groups, where Student's quantile is extreme far out in the tails
@pytest.mark.parametrize(("a", "b", "nb"), [(1.0, 0.54, 73.0), (0.0, 0.78, 40.0), (0.1, 0.9, 4.0)])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
def test_p_values_of_small_groups_agree_with_the_interval(a, b, nb, level):
    na = np.linspace(1.01, 12, 1500)
    a, b, nb = (np.full(len(na), x) for x in (a, b, nb))
    p = mover_p_value(a, na, b, nb)
    limits = (wilson_interval(r, n, level) for r, n in ((a, na), (b, nb)))
    (la, ua), (lb, ub) = limits
    low, high = mover_difference(a, la, ua, b, lb, ub)
    clear = np.minimum(np.abs(low), np.abs(high)) > 1e-9
    wrong = clear & ((p < 1 - level) == ((low <= 0) & (high >= 0)))
    assert not wrong.any(), f"p-values {p[wrong][:3]} at effective sizes {na[wrong][:3]}"


@settings(max_examples=20, deadline=None)
@given(several(RATE, SIZE, RATE, SIZE))
def test_p_value_is_symmetric_and_in_the_unit_interval(cases):
    a, na, b, nb = np.transpose(cases)
    p = mover_p_value(a, na, b, nb)
    assert ((p >= 0) & (p <= 1)).all()
    assert mover_p_value(b, nb, a, na) == pytest.approx(p, rel=1e-9)


def test_p_value_is_one_for_equal_rates_and_nan_for_undefined_ones():
    a, b = np.array([0.3, np.nan, 0.0]), np.array([0.3, 0.2, 0.0])
    n = np.full(3, 40.0)
    p = mover_p_value(a, n, b, n)
    assert p[0] == p[2] == 1.0
    assert np.isnan(p[1])


@pytest.mark.parametrize("gap", [0.05, 0.1, 0.15])
def test_p_value_is_close_to_the_normal_one_in_large_samples(gap):
    n = 2000.0
    a, b = 0.3 + gap, 0.3
    p = mover_p_value(*arrays(a, n, b, n))[0]
    z = gap / np.sqrt((a * (1 - a) + b * (1 - b)) / n)
    assert np.log(p) == pytest.approx(np.log(2 * stats.norm.sf(z)), rel=0.05)
