"""Permutation p-values and u-values by their definitions."""

from __future__ import annotations

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cfair.inference.uvalue import permutation_p_values, u_values

VALUE = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5]))
NULL = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 30), st.just(2)),
    elements=st.one_of(VALUE, st.just(np.nan)),
)


@settings(max_examples=100, deadline=None)
@given(VALUE, VALUE, NULL, st.floats(0, 0.5))
def test_shares_are_those_of_the_definitions(a, b, null, delta):
    seen = np.array([a, b])
    p, u = permutation_p_values(seen, null), u_values(seen, null, delta)
    for j in range(2):
        column = null[:, j].tolist()
        n = int(np.count_nonzero(~np.isnan(null[:, j])))
        assert p.n_valid[j] == u.n_valid[j] == n
        if n == 0:
            assert np.isnan(p.value[j])
            assert np.isnan(u.value[j])
            continue
        near = np.abs(null[:, j] - seen[j]) < 1e-11 * seen[j]
        if not (near & (null[:, j] != seen[j])).any():
            assert p.value[j] == plain.permutation_p(seen[j], column)
        beyond = seen[j] - null[:, j] - delta
        if not (np.abs(beyond) < 1e-11).any():  # ties are tested below
            assert u.value[j] == plain.u_value(seen[j], column, delta)
        assert 0 < p.value[j] <= 1


def test_a_p_value_is_never_zero():
    null = np.zeros((99, 1))
    assert permutation_p_values(np.array([0.5]), null).value[0] == 0.01


def test_ties_up_to_rounding_count_as_ties():
    null = np.full((9, 1), 0.3)
    assert permutation_p_values(np.array([0.1 + 0.2]), null).value[0] == 1.0


def test_an_undefined_observed_value_has_neither():
    null = np.zeros((9, 1))
    assert np.isnan(permutation_p_values(np.array([np.nan]), null).value[0])
    assert np.isnan(u_values(np.array([np.nan]), null).value[0])


def test_each_statistic_can_have_its_own_delta():
    null = np.zeros((4, 3))
    got = u_values(np.array([0.2, 0.2, 0.02]), null, np.array([0.1, 0.3, 0.01]))
    assert got.value.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_an_excess_of_exactly_delta_does_not_count(delta):
    assert u_values(np.array([0.5 + delta]), np.full((3, 1), 0.5 + delta), 0.0).value[0] == 0.0
    assert u_values(np.array([0.25]), np.full((3, 1), 0.125), 0.125).value[0] == 0.0


@pytest.mark.parametrize("order", [1, -1])
def test_a_disparity_of_exactly_delta_more_does_not_exceed_it(order):
    # in floating point 0.25 - 0.15 is more than 0.1, and 0.3 - 0.2 is less
    for seen, null in ((0.25, 0.15), (0.3, 0.2), (1.1, 1.0)):
        nulls = np.array([[null], [0.0]])[::order]
        assert u_values(np.array([seen]), nulls, 0.1).value[0] == 0.5
