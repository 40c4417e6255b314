"""Crossing of attributes: order, labels, sizes, margins, and labels that nearly collide."""

from __future__ import annotations

import datetime as dt
import itertools
import pickle
import time

import bad_inputs as bad
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfair.errors import DataError
from cfair.groups import (
    Factor,
    categorical_of_codes,
    cross,
    factor,
    make_groups,
    shown_levels,
)


def two(t=None):
    return make_groups((bad.cohort() if t is None else t)[["sex", "race"]])


def test_last_attribute_varies_fastest():
    g = two()
    assert g.attributes == ("sex", "race")
    assert g.n_groups == 6
    assert g.labels == tuple(itertools.product(["F", "M"], ["Black", "Other", "White"]))
    assert g.names[:2] == ("F & Black", "F & Other")
    t = bad.cohort()
    expected = t.groupby(["sex", "race"]).size()
    assert g.sizes.tolist() == expected.tolist()
    rows = [g.labels[code] for code in g.codes]
    assert rows == list(zip(t["sex"], t["race"], strict=True))
    assert g.codes.dtype == np.intp


def test_margins():
    g = two()
    assert g.margins[:3] == (("sex", "F"), ("sex", "M"), ("race", "Black"))
    assert g.margin_matrix.shape == (5, 6)
    assert g.margin_matrix.dtype == float
    assert g.margin_matrix[0].tolist() == [1, 1, 1, 0, 0, 0]
    assert g.margin_matrix[2].tolist() == [1, 0, 0, 1, 0, 0]
    by_hand = bad.cohort()["race"].value_counts()["Black"]
    assert g.margin_matrix[2] @ g.sizes == by_hand


def test_label_frame():
    frame = two().label_frame()
    assert frame.shape == (6, 2)
    assert list(frame["race"].cat.categories) == ["Black", "Other", "White"]
    assert tuple(frame.itertuples(index=False, name=None)) == two().labels
    rows = two().row_frame()
    assert rows.astype(str).equals(bad.cohort()[["sex", "race"]].astype(str))


@pytest.mark.parametrize("dtype", ["str", "string", "string[pyarrow]", object, "category"])
def test_bl15_every_way_to_hold_text(dtype):
    t = bad.bl15_string_dtypes(dtype)
    assert two(t).labels == two().labels
    assert np.array_equal(two(t).codes, two().codes)
    arrow = t[["sex", "race"]].astype(pd.ArrowDtype(pa.string()))
    assert np.array_equal(make_groups(arrow).codes, two().codes)


@pytest.mark.parametrize("dtype", ["int64", "int8", "Int64", "float64", "int64[pyarrow]", object])
def test_bl16_integer_groups(dtype):
    t = bad.bl16_integer_groups().astype({"race": dtype})
    g = two(t)
    assert g.levels[1] == (1, 2, 3)
    assert type(g.levels[1][0]) in (int, float)
    assert g.names[0] == "F & 1"
    assert np.array_equal(g.codes, two().codes)
    assert g.index_of(("F", 2)) == 1
    assert g.index_of(("F", np.int64(2))) == 1


def test_numbers_are_sorted_as_numbers():
    assert factor(pd.Series([10, 9, 100])).levels == (9, 10, 100)
    assert factor(pd.Series(["10", "9", "100"])).levels == ("10", "100", "9")
    assert factor(pd.Series([2.5, 10, None], dtype=object)).levels == (2.5, 10)


def test_booleans_and_dates_as_groups():
    g = make_groups({"old": [True, False, True]})
    assert g.labels == ((False,), (True,))
    assert g.index_of(True) == 1
    assert g.names == ("False", "True")
    days = make_groups({"day": [dt.date(2021, 1, 1), dt.date(2020, 1, 1)]})
    assert days.levels == ((dt.date(2020, 1, 1), dt.date(2021, 1, 1)),)
    stamps = make_groups({"day": pd.to_datetime(["2021-01-01", "2020-01-01"])})
    assert stamps.codes.tolist() == [1, 0]


def test_mixed_types_are_sorted_by_type_then_value():
    values = ["b", 2, "a", 10, None, dt.date(2020, 1, 1)]
    assert factor(pd.Series(values, dtype=object)).levels == (2, 10, dt.date(2020, 1, 1), "a", "b")
    backwards = factor(pd.Series(values[::-1], dtype=object))
    assert backwards.levels == (2, 10, dt.date(2020, 1, 1), "a", "b")
    assert make_groups({"x": ["b", 2]}).label_frame()["x"].tolist() == [2, "b"]


def test_values_without_an_order_and_tuples():
    assert factor(pd.Series([1 + 2j, 1j])).levels == (1 + 2j, 1j)
    g = make_groups({"x": pd.Series([("b", 1), ("a", 2)], dtype=object)})
    assert g.levels == ((("a", 2), ("b", 1)),)
    assert g.index_of((("b", 1),)) == 1
    assert g.label_frame()["x"].tolist() == [("a", 2), ("b", 1)]


@pytest.mark.parametrize("ordered", [True, False])
def test_bl18_order_of_a_categorical_is_kept(ordered):
    values = pd.Categorical(["hi", "lo", "hi"], ["lo", "mid", "hi"], ordered=ordered)
    g = make_groups({"x": values})
    assert g.levels == (("lo", "hi"),)  # nobody is "mid"
    assert g.codes.tolist() == [1, 0, 1]


def test_bl18_intervals_of_cut():
    t = bad.bl18_binned_age_group()
    g = make_groups(t[["sex", "age_band"]])
    assert g.levels[1] == tuple(t["age_band"].cat.categories)
    assert g.names[0] == "F & (0, 50]"
    assert g.index_of(("F", "(50, 65]")) == 1
    assert g.index_of("M & (65, 120]") == 5
    assert g.index_of(("M", pd.Interval(0, 50))) == 3
    assert g.label_frame()["age_band"].cat.categories.equals(t["age_band"].cat.categories)


def test_bl22_empty_crossing_stays_and_empty_level_goes():
    g = two(bad.bl22_empty_cell())
    assert g.n_groups == 6
    assert g.sizes[g.index_of(("F", "Other"))] == 0
    t = bad.bl22_empty_cell().astype({"race": "category"})
    assert two(t[t["race"] != "Other"]).levels[1] == ("Black", "White")


def test_bl23_one_person_group():
    g = two(bad.bl23_one_person_group())
    assert g.sizes[g.index_of((bad.cohort()["sex"][0], "Islander"))] == 1


def test_bl25_labels_that_collide_when_pasted():
    t = bad.bl25_labels_that_collide()
    g = make_groups(t[["a", "b"]])
    assert g.sizes.tolist() == [300, 0, 0, 300]
    assert len(set(g.names)) == 4
    assert make_groups(t[["long"]]).sizes.tolist() == [300, 300]
    pasted = make_groups({"a": ["1", "11"], "b": ["11", "1"]})
    assert pasted.sizes.tolist() == [0, 1, 1, 0]


def test_bl25_names_that_look_alike_are_told_apart():
    g = make_groups({"a": ["x & y", "x"], "b": ["z", "y & z"]})
    assert len(set(g.names)) == 4
    for k, label in enumerate(g.labels):
        assert g.index_of(label) == k
        assert g.index_of(g.names[k]) == k
    mixed = make_groups({"a": pd.Series([1, "1"], dtype=object)})
    assert mixed.names == ("1", "'1'")
    assert mixed.index_of(1) == 0
    assert mixed.index_of("1") == 1
    assert mixed.index_of("'1'") == 1
    assert mixed.index_of(("1",)) == 1


def test_shown_levels():
    assert shown_levels((1.0, 2.0, "missing")) == ("1", "2", "missing")
    assert shown_levels((1.0, 2.5)) == ("1.0", "2.5")
    assert shown_levels((True, False)) == ("True", "False")

    class Odd:
        def __repr__(self):
            return "odd"

    assert shown_levels((Odd(), Odd())) == ("odd #1", "odd #2")


def test_index_of_one_attribute():
    g = make_groups({"race": ["White", "Black"]})
    assert [g.index_of("White"), g.index_of(("White",)), g.index_of(["White"])] == [1, 1, 1]


@pytest.mark.parametrize("label", ["F & Blak", ("F", "Blak"), ("F",), "F", 3, None, np.zeros(2)])
def test_index_of_unknown_label(label):
    with pytest.raises(DataError, match=r"is not a group of sex x race.*groups are: 'F & Black'"):
        two().index_of(label)


def test_index_of_suggests_the_nearest():
    with pytest.raises(DataError, match="Did you mean 'F & Black'"):
        two().index_of("F & Blak")


def test_missing_level():
    t = bad.bl05_missing_group()
    with pytest.raises(DataError, match=r"'race' has missing values in 10 rows.*missing=.level"):
        two(t)
    g = make_groups(t[["sex", "race"]], missing_level=True)
    assert g.levels[1] == ("Black", "Other", "White", "missing")
    assert make_groups(bad.cohort()[["race"]], missing_level=True).n_groups == 3


def test_text_that_reads_missing_is_not_missing():
    x = pd.Series(["missing", "NA", "nan", "", "None", None, "(missing)"], dtype=object)
    f = factor(x)
    assert f.missing.sum() == 1
    assert f.with_missing_level().levels[-1] == "(missing 2)"
    assert f.with_missing_level().missing_level == "(missing 2)"


@pytest.mark.parametrize("marker", [np.nan, None, pd.NA, pd.NaT])
def test_bl05_every_marker_is_missing(marker):
    assert factor(bad.bl05_missing_group(marker)["race"]).missing.sum() == 10


def test_too_many_groups():
    n = 2001
    with pytest.raises(DataError, match=r"'a' \(2001\) gives 2,001 groups.*pd\.cut"):
        make_groups({"a": np.arange(n)})
    with pytest.raises(DataError, match=r"'a' \(50\) x 'b' \(50\) gives 2,500 groups"):
        make_groups({"a": np.arange(50), "b": np.arange(50)})
    assert make_groups({"a": np.arange(2000)}).n_groups == 2000


def test_bl53_hundreds_of_cells():
    t = bad.bl53_many_cells()
    g = make_groups(t[["region", "decade"]])
    assert g.n_groups == 50 * t["decade"].nunique()
    assert g.sizes.sum() == 200_000


def test_what_cannot_be_a_category():
    with pytest.raises(DataError, match=r"'x' holds values that cannot be categories \(list\)"):
        factor(pd.Series([[1], [2]], name="x"))
    with pytest.raises(DataError, match=r"both True/False \(1 rows\) and numbers"):
        factor(pd.Series([True, 1, "a"], dtype=object, name="x"))
    with pytest.raises(DataError, match="at least one attribute"):
        make_groups({})
    with pytest.raises(DataError, match=r"same number of rows, but 'a' has 1, 'b' has 2"):
        make_groups({"a": [1], "b": [1, 2]})


def test_bl27_single_group_has_one_crossing():
    assert two(bad.bl27_single_group()).labels == (("F", "White"),)


def test_bl04_any_index_gives_the_same_codes():
    t = bad.cohort()
    for index in (np.zeros(600), np.arange(600)[::-1], pd.MultiIndex.from_arrays([[1] * 600] * 2)):
        assert np.array_equal(two(t.set_axis(index)).codes, two().codes)


def test_take_keeps_the_order_and_leaves_out_empty_levels():
    f = factor(pd.Series(["b", "c", None, "a"]))
    taken = f.take(np.array([True, False, True, True]))
    assert taken.levels == ("a", "b")
    assert taken.codes.tolist() == [1, -1, 0]
    assert f.describe(2) == "'a' (1 rows), 'b' (1 rows) and 1 more"
    assert cross([f.take(np.array([0, 1]))]).names == ("b", "c")


def test_categorical_of_codes_keeps_types():
    x = categorical_of_codes(np.array([0, 1, -1]), (1, 2.5))
    assert [type(v) for v in x.categories] == [int, float]
    assert pd.isna(x[2])
    assert len(categorical_of_codes(np.array([], dtype=np.intp), ())) == 0


def test_groups_survive_pickling():
    g = pickle.loads(pickle.dumps(two()))
    assert g.names == two().names
    assert Factor("x", (1,), np.zeros(1, np.intp)).counts.tolist() == [1]


@pytest.mark.parametrize("dtype", ["str", object])
def test_bl52_a_million_rows_are_quick(dtype):
    t = bad.bl52_million_rows()[["sex", "race"]].astype(dtype)
    start = time.perf_counter()
    g = make_groups(t)
    assert time.perf_counter() - start < 3  # 0.2 s on an idle machine
    assert g.sizes.sum() == 1_000_000


labels = st.one_of(
    st.text(max_size=3), st.integers(-3, 3), st.sampled_from([0.5, None, "1", "x & y", "y"])
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(labels, labels), min_size=1, max_size=25), st.randoms())
def test_any_labels_round_trip(rows, random):
    columns = {
        name: pd.Series([row[i] for row in rows], dtype=object) for i, name in enumerate("ab")
    }
    g = make_groups(columns, missing_level=True)
    for code, row in zip(g.codes, rows, strict=True):
        for value, got in zip(row, g.labels[code], strict=True):
            assert got == value or (value is None and str(got).strip("()").startswith("missing"))
    assert len(set(g.names)) == g.n_groups
    assert [g.index_of(label) for label in g.labels] == list(range(g.n_groups))
    order = list(range(len(rows)))
    random.shuffle(order)
    again = make_groups({k: v.iloc[order] for k, v in columns.items()}, missing_level=True)
    assert again.labels == g.labels
    assert np.array_equal(again.codes, g.codes[order])
    assert g.margin_matrix.sum(axis=0).tolist() == [2.0] * g.n_groups


def test_spaces_around_a_label_are_seen():
    g = make_groups({"sex": ["Female", "Female ", "male"], "site": ["a", "a", " "]})
    assert g.level_names == (("Female", "'Female '", "male"), ("' '", "a"))
    assert g.index_of(("Female ", "a")) == g.index_of("'Female ' & a") == 3
