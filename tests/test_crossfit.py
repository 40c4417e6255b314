"""Folds: balanced, whole clusters, dealt by content, and what a training set must have."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfair.errors import DataError
from cfair.nuisance.crossfit import (
    Folds,
    check_folds,
    draw_folds,
    folds_given,
    require_training_classes,
)
from cfair.nuisance.order import row_keys

SEEDS = st.integers(0, 2**32 - 1)


def some_rows(n, seed, distinct=None):
    """Keys, strata and clusters, which are part of what the keys stand for."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.integers(0, distinct or 10 * n, n),
            "stratum": rng.choice(list("abcd"), n, p=[0.5, 0.3, 0.15, 0.05]),
            "cluster": rng.integers(0, max(8, n // 6), n),
        }
    )
    return frame, row_keys(frame), rng


# --------------------------------------------------------------------------------------- balance


@settings(max_examples=60, deadline=None)
@given(st.integers(10, 300), st.integers(2, 10), SEEDS)
def test_folds_are_balanced_within_strata_and_over_all(n, k, seed):
    frame, keys, _ = some_rows(n, seed)
    folds = draw_folds(k, keys, frame["stratum"], seed=seed)
    assert folds.drawn
    assert folds.n_folds == k
    assert np.ptp(folds.sizes) <= 1
    for stratum in frame["stratum"].unique():
        within = np.bincount(folds.codes[frame["stratum"] == stratum], minlength=k)
        assert np.ptp(within) <= 1


@settings(max_examples=40, deadline=None)
@given(st.integers(40, 300), st.integers(2, 5), SEEDS)
def test_clusters_stay_whole_and_folds_even_up_to_the_largest(n, k, seed):
    frame, keys, _ = some_rows(n, seed)
    folds = draw_folds(k, keys, frame["stratum"], frame["cluster"], seed=seed)
    by_cluster = pd.Series(folds.codes).groupby(frame["cluster"].to_numpy()).nunique()
    assert (by_cluster == 1).all()
    assert np.ptp(folds.sizes) <= frame["cluster"].value_counts().max()
    assert folds.note == "clusters kept whole, not stratified"
    assert draw_folds(k, keys, None, frame["cluster"], seed=seed).note == "clusters kept whole"


def test_without_strata_every_pair_of_rows_is_apart_as_often_as_chance_has_it():
    keys = np.arange(12, dtype=np.uint64)
    together = np.zeros((12, 12))
    for seed in range(2000):
        codes = draw_folds(3, keys, seed=seed).codes
        together += codes[:, None] == codes
    pairs = together[np.triu_indices(12, 1)] / 2000
    np.testing.assert_allclose(pairs, 3 / 11, atol=5 * np.sqrt(3 / 11 * 8 / 11 / 2000))


def test_the_seed_draws_other_folds_and_the_same_seed_the_same():
    frame, keys, _ = some_rows(200, 3)
    for cluster in (None, frame["cluster"]):
        one, again, other = (
            draw_folds(5, keys, frame["stratum"], cluster, seed=s).codes for s in (1, 1, 2)
        )
        assert np.array_equal(one, again)
        assert np.mean(one == other) < 0.6


# ------------------------------------------------------------------------- content, not position


@settings(max_examples=60, deadline=None)
@given(st.integers(20, 200), st.integers(2, 6), st.sampled_from([None, 3]), SEEDS)
def test_neither_row_order_nor_names_change_who_is_in_which_fold(n, k, distinct, seed):
    frame, keys, rng = some_rows(n, seed, distinct)
    order = rng.permutation(n)
    renamed = frame["stratum"].map({"a": 9, "b": 4, "c": 1, "d": 7}).to_numpy()
    for cluster in (None, frame["cluster"].to_numpy()):
        folds = draw_folds(k, keys, frame["stratum"], cluster, seed=seed)
        moved = draw_folds(
            k,
            keys[order],
            renamed[order],
            None if cluster is None else np.array([f"c{-c}" for c in cluster])[order],
            seed=seed,
        )
        # rows that are alike may change places
        a = sorted(zip(keys[order], folds.codes[order], strict=True))
        b = sorted(zip(keys[order], moved.codes, strict=True))
        assert a == b


def test_keys_that_add_up_alike_do_not_make_strata_or_clusters_alike():
    keys = np.array([1, 4, 2, 3, 0, 5], dtype=np.uint64)  # each pair adds up to 5
    pairs = np.repeat(["u", "v", "w"], 2)
    moved = np.array([5, 4, 2, 1, 3, 0])
    for seed in range(20):
        a = draw_folds(3, keys, cluster=pairs, seed=seed)
        b = draw_folds(3, keys[moved], cluster=pairs[moved], seed=seed)
        assert np.array_equal(a.codes[moved], b.codes)
        a = draw_folds(2, keys, strata=pairs, seed=seed)
        b = draw_folds(2, keys[moved], strata=pairs[moved], seed=seed)
        assert np.array_equal(a.codes[moved], b.codes)


# -------------------------------------------------------------------------------------- row keys


def test_row_keys_are_of_the_values_not_of_how_they_are_stored():
    text = ["b", "a", "b", "c"]
    plain = row_keys(pd.DataFrame({"t": text, "x": [1, 2, 1, 0]}))
    for column in (
        pd.Categorical(text),
        pd.Categorical(text, categories=["c", "b", "zz", "a"], ordered=True),
        np.array(text, dtype=object),
        pd.array(text, dtype="string"),
    ):
        for numbers in ([1.0, 2.0, 1.0, 0.0], pd.array([1, 2, 1, 0], dtype="Int64")):
            assert np.array_equal(row_keys(pd.DataFrame({"t": column, "x": numbers})), plain)
    coded = pd.DataFrame({"t": text, "x": pd.Categorical([1, 2, 1, 0])})
    assert np.array_equal(row_keys(coded), plain)
    assert plain[0] == plain[2]
    assert len(set(plain)) == 3
    assert plain.dtype == np.uint64


def test_row_keys_see_every_column_and_every_array():
    frame = pd.DataFrame({"a": [0, 1, 0, 1], "b": [0, 0, 1, 1]})
    assert len(set(row_keys(frame))) == 4
    assert len(set(row_keys(frame[["a"]]))) == 2
    assert len(set(row_keys(frame[["a"]], np.array([0, 0, 1, 1])))) == 4
    assert len(set(row_keys(frame[[]], np.array([[0, 0], [0, 1], [1, 0], [1, 1]])))) == 4
    swapped = row_keys(frame)[1], row_keys(frame[["b", "a"]])[1]
    assert swapped[0] != swapped[1]
    assert row_keys(frame[[]]).tolist() == [0, 0, 0, 0]


def test_row_keys_of_dates_missing_values_and_booleans():
    dates = pd.to_datetime(["2020-01-01", "2020-01-02", None, "2020-01-01"])
    keys = row_keys(pd.DataFrame({"when": dates}))
    assert keys[0] == keys[3]
    assert len(set(keys)) == 3
    for missing in (np.nan, None, pd.NA):
        texts = pd.Series(["u", missing], dtype=object)
        as_category = texts.astype("category")
        assert np.array_equal(row_keys(texts.to_frame()), row_keys(as_category.to_frame()))
    yes = pd.DataFrame({"f": [True, False]})
    assert np.array_equal(row_keys(yes), row_keys(yes.astype(int)))


# -------------------------------------------------------------------------------- what was given


@pytest.mark.parametrize("value", [1, 0, -3, 2.5, "5", None, True, np.nan])
def test_a_number_of_folds_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match="folds must be a whole number of at least 2"):
        check_folds(value, 100)


def test_a_number_of_folds_up_to_the_rows_is_taken():
    assert check_folds(np.int64(5), 5) == 5
    assert type(check_folds(np.int64(5), 5)) is int
    with pytest.raises(ValueError, match="folds=6 is more than the 5 rows"):
        check_folds(6, 5)
    with pytest.raises(ValueError, match="more than the 3 rows"):
        draw_folds(4, np.arange(3, dtype=np.uint64))


@pytest.mark.parametrize(
    "values",
    [
        [3, 1, 1, 2],
        [3.5, 1.5, 1.5, 2.5],
        ["c", "a", "a", "b"],
        pd.Categorical(["z", "x", "x", "y"]),
        pd.Series([3, 1, 1, 2], dtype="Int8"),
    ],
)
def test_given_folds_may_be_labelled_by_anything(values):
    folds = folds_given(values)
    assert folds.codes.tolist() == [2, 0, 0, 1]
    assert (folds.n_folds, folds.drawn) == (3, False)
    assert folds.codes.dtype == np.intp


def test_given_folds_keep_their_names_for_messages():
    assert folds_given(["north", "south"]).name(1) == "fold 'south'"
    assert folds_given([10, 20]).name(0) == "fold 10"
    assert draw_folds(2, np.arange(4, dtype=np.uint64)).name(0) == "fold 1"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", None, "b"], "missing in 1 of 3 rows"),
        ([1.0, np.nan, np.nan], "missing in 2 of 3 rows"),
        (["a", "a"], "are all 'a'"),
        ([], "have no rows"),
        ([[1, 2], [3, 4]], "2 dimensions"),
    ],
)
def test_given_folds_that_cannot_be_used_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        folds_given(values)


def test_too_few_clusters_are_refused():
    keys = np.arange(9, dtype=np.uint64)
    with pytest.raises(DataError, match="3 clusters for 4 folds"):
        draw_folds(4, keys, cluster=np.arange(9) // 3)
    with pytest.raises(DataError, match="all rows are of one cluster"):
        draw_folds(2, keys, cluster=np.zeros(9))


def test_masks_and_text_of_folds():
    folds = draw_folds(3, np.arange(10, dtype=np.uint64), np.zeros(10), seed=4)
    for k in range(3):
        assert not folds.train(k)[folds.rows(k)].any()
        assert folds.train(k).sum() + len(folds.rows(k)) == 10
    assert repr(folds) == "Folds: 3 drawn, stratified; rows 4, 3, 3"
    assert repr(folds_given(["a", "b"])) == "Folds: 2 given; rows 1, 1"
    copy = pickle.loads(pickle.dumps(folds))
    assert np.array_equal(copy.codes, folds.codes)


# ----------------------------------------------------------------------- what a training set has


def test_a_training_set_without_a_class_is_named():
    folds = Folds(np.array([0, 0, 1, 1, 2, 2]), 3, drawn=True)
    target = np.array([0, 1, 0, 1, 2, 2])
    require_training_classes(folds, np.array([0, 1, 0, 1, 0, 1]), 2)
    with pytest.raises(
        DataError,
        match=r"^membership model: the rows outside fold 3 have no row of class Other \(2 in all\)"
        r"\. Use fewer folds or another seed, or merge small groups\.$",
    ):
        require_training_classes(
            folds, target, 3, what="membership model", labels=["F", "M", "Other"]
        )
    given = folds_given(["x", "x", "y", "y", "z", "z"])
    with pytest.raises(DataError, match=r"outside fold 'z' have no row of class 2 .*other folds"):
        require_training_classes(given, target, 3)


def test_only_the_rows_used_count_for_a_training_set():
    folds = Folds(np.array([0, 0, 1, 1]), 2, drawn=True)
    target = np.array([0, 1, 0, 1])
    require_training_classes(folds, target, 2)
    with pytest.raises(DataError, match=r"outside fold 1 have no row of class 1 \(1 in all\)"):
        require_training_classes(folds, target, 2, used=np.array([True, True, True, False]))
    with pytest.raises(DataError, match=r"of the 2 rows to fit on, none is of class 1"):
        require_training_classes(folds, target, 2, used=target == 0)
