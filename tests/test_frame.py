"""Any data frame in, the same plain columns out."""

from __future__ import annotations

import datetime as dt
import decimal
import subprocess
import sys

import bad_inputs as bad
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cfair.errors import DataError
from cfair.frame import as_table, column_names, is_name, plain_column, read_columns, show_some


def table():
    t = bad.cohort(60)
    t["site"] = pd.array([1, 2, None] * 20, dtype="Int64")
    t["smoker"] = pd.array([True, None, False] * 20, dtype="boolean")
    t["bmi"] = np.where(np.arange(60) % 7 == 0, np.nan, 25.5)
    t["note"] = pd.Series(["a", None, "NA"] * 20, dtype=object)
    return t


def duck(frame):
    return duckdb.from_df(frame)


FRAMES = {
    "pandas": lambda t: t,
    "pandas_nullable": lambda t: t.convert_dtypes(),
    "pandas_arrow": lambda t: t.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.from_pandas,
    "polars_lazy": lambda t: pl.from_pandas(t).lazy(),
    "pyarrow": pa.Table.from_pandas,
    "duckdb": duck,
    "dict": lambda t: {name: t[name].array for name in t},
}


def values_of(column):
    return [None if pd.isna(v) else v for v in column.astype(object)]


@pytest.mark.parametrize("kind", FRAMES)
def test_bl20_every_frame_gives_the_same_columns(kind):
    t = table()
    data = FRAMES[kind](t)
    assert column_names(data) == tuple(t.columns)
    got = read_columns(data, ["note", "sex", "y", "age", "site", "smoker", "bmi"])
    assert list(got.columns) == ["note", "sex", "y", "age", "site", "smoker", "bmi"]
    for name in got:
        assert values_of(got[name]) == values_of(t[name]), name
    assert got["y"].dtype.kind == "i"
    assert got["age"].dtype == np.float64
    assert str(got["site"].dtype) == "Int64"
    assert str(got["smoker"].dtype) == "boolean"


def test_bl20_narwhals_frames_are_read_too():
    import narwhals as nw

    t = bad.cohort(10)
    for data in (t, pa.Table.from_pandas(t), pl.from_pandas(t), pl.from_pandas(t).lazy()):
        got = read_columns(nw.from_native(data), ["y", "sex"])
        assert got["y"].tolist() == t["y"].tolist()


def test_order_of_an_enum_and_of_a_dictionary_is_kept():
    ordered = pd.Categorical(["lo", "hi", None], ["lo", "hi"], ordered=True)
    enum = pl.DataFrame({"x": pl.Series(["lo", "hi", None], dtype=pl.Enum(["lo", "hi"]))})
    arrow = pa.Table.from_pandas(pd.DataFrame({"x": ordered}))
    chunked = pa.concat_tables([arrow, arrow.slice(1)])
    enum_relation = duckdb.sql("select unnest(['lo', 'hi', null])::ENUM('lo', 'hi') as x")
    for data in (enum, arrow, pd.DataFrame({"x": ordered}), enum_relation):
        x = read_columns(data, ["x"])["x"]
        assert list(x.cat.categories) == ["lo", "hi"]
        assert x.cat.codes.tolist() == [0, 1, -1]
    assert read_columns(chunked, ["x"])["x"].cat.codes.tolist() == [0, 1, -1, 1, -1]
    cut = pd.DataFrame({"x": pd.cut(pd.Series([1.0, 60.0, None]), [0, 50, 65])})
    assert plain_column(cut["x"]).cat.categories.tolist()[0] == pd.Interval(0, 50)
    backed = pd.Series(arrow.column(0).to_pandas()).convert_dtypes(dtype_backend="pyarrow")
    dictionary = pd.Series(
        ["lo", "hi", None], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
    )
    assert list(plain_column(dictionary).cat.categories) == ["lo", "hi"]
    assert values_of(plain_column(backed)) == ["lo", "hi", None]


def test_polars_categorical_is_text():
    data = pl.DataFrame({"x": pl.Series(["b", "a", None], dtype=pl.Categorical)})
    assert values_of(read_columns(data, ["x"])["x"]) == ["b", "a", None]


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "duckdb"])
def test_decimals_become_numbers_and_dates_stay_dates(kind):
    t = pd.DataFrame({
        "p": [decimal.Decimal("0.25"), None, decimal.Decimal("1.00")],
        "when": pd.to_datetime(["2020-01-01", None, "2021-05-06"]),
    })  # fmt: skip
    got = read_columns(FRAMES[kind](t), ["p", "when"])
    np.testing.assert_array_equal(got["p"], [0.25, np.nan, 1.0])
    assert got["when"].dtype.kind == "M"
    assert got["when"].isna().tolist() == [False, True, False]


def test_dates_of_other_libraries_are_objects():
    data = pl.DataFrame({"x": [dt.date(2020, 1, 1), None]})
    assert values_of(read_columns(data, ["x"])["x"]) == [dt.date(2020, 1, 1), None]


@pytest.mark.skipif(not hasattr(pl, "Int128"), reason="an older polars")
def test_128_bit_integers_become_floats():
    huge = pl.DataFrame({"x": pl.Series([1, None], dtype=pl.Int128)})
    np.testing.assert_array_equal(read_columns(huge, ["x"])["x"], [1.0, np.nan])


OBJECTS = {
    "integers": ([1, 2], "int64", [1, 2]),
    "integers_missing": ([1, None, pd.NA, np.nan], "Int64", [1, None, None, None]),
    "booleans": ([True, np.False_], "bool", [True, False]),
    "booleans_missing": ([True, None], "boolean", [True, None]),
    "floats": ([0.5, 1, pd.NA], "float64", [0.5, 1.0, None]),
    "decimals": ([decimal.Decimal("0.5"), decimal.Decimal("NaN")], "float64", [0.5, None]),
    "huge": ([2**70, 1], "float64", [2.0**70, 1.0]),
    "all_missing": ([None, pd.NA], "float64", [None, None]),
    "text": (["1", None], "object", ["1", None]),
    "mixed": (["1", 1], "object", ["1", 1]),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_that_are_numbers_become_numbers(kind):
    values, dtype, expected = OBJECTS[kind]
    got = plain_column(pd.Series(values, dtype=object, name="x"))
    assert str(got.dtype) == dtype
    assert values_of(got) == expected
    assert got.name == "x"


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("Int8", "int8"),
        ("UInt64", "uint64"),
        ("Float32", "float32"),
        ("boolean", "bool"),
        ("int16[pyarrow]", "int16"),
        ("double[pyarrow]", "float64"),
        ("bool[pyarrow]", "bool"),
        (pd.SparseDtype(int, 0), "int64"),
    ],
)
def test_nullable_and_sparse_columns_become_plain(dtype, expected):
    got = plain_column(pd.Series([1, 0, 1]).astype(dtype))
    assert str(got.dtype) == expected
    assert got.tolist() == [1, 0, 1]


@pytest.mark.parametrize("dtype", ["Float64", "double[pyarrow]"])
def test_nan_inside_a_nullable_float_is_missing(dtype):
    ratio = pd.Series([0.0, 1.0, None], dtype=dtype) / pd.Series([0.0, 2.0, 1.0], dtype=dtype)
    assert plain_column(ratio).isna().tolist() == [True, False, True]


def test_unsigned_and_arrow_integers_with_missing_values_stay_integers():
    assert str(plain_column(pd.Series([1, None], dtype="UInt8")).dtype) == "UInt64"
    assert str(plain_column(pd.Series([1, None], dtype="int8[pyarrow]")).dtype) == "Int64"
    when = pd.Series([dt.datetime(2020, 1, 1), None], dtype=pd.ArrowDtype(pa.timestamp("us")))
    assert plain_column(when).dtype.kind == "M"
    days = pd.Series([dt.date(2020, 1, 1), None], dtype=pd.ArrowDtype(pa.date32()))
    assert values_of(plain_column(days)) == [dt.date(2020, 1, 1), None]


def test_bl02_index_is_kept():
    t = bad.bl02_gaps_in_index()
    assert read_columns(t, ["y"]).index.equals(t.index)
    multi = t.set_index(["sex", "race"])
    assert read_columns(multi, ["y"]).index.equals(multi.index)


@pytest.mark.parametrize("kind", FRAMES)
def test_the_callers_frame_is_never_changed(kind):
    t = table()
    before = t.copy(deep=True)
    got = read_columns(FRAMES[kind](t), list(t.columns))
    got.loc[got.index[0], "age"] = -1.0
    got["y"] = 0
    pd.testing.assert_frame_equal(t, before)


def test_columns_added_later_are_not_seen():
    t = bad.cohort(10)
    wrapped = as_table(t)
    t["late"] = 1
    assert "late" not in wrapped.names
    assert as_table(wrapped) is wrapped


def test_lazy_frames_are_collected_once():
    calls = []

    def count(frame):
        calls.append(1)
        return frame

    lazy = pl.from_pandas(bad.cohort(10)).lazy().map_batches(count)
    wrapped = as_table(lazy)
    wrapped.read(["y"])
    wrapped.read(["age"])
    assert len(calls) == 1
    assert as_table(lazy, only=["y"]).names == ("y",)


def test_bl26_duplicate_column_among_those_used():
    t = bad.bl26_duplicate_columns()
    assert read_columns(t, ["sex"]).shape == (600, 1)
    with pytest.raises(DataError, match=r"'race'.*2 columns of this name.*Rename or drop"):
        read_columns(t, ["race"])
    arrow = pa.table([pa.array([1, 2])] * 2 + [pa.array([3, 4])], names=["x", "x", "y"])
    assert read_columns(arrow, ["y"])["y"].tolist() == [3, 4]
    with pytest.raises(DataError, match="2 columns"):
        read_columns(arrow, ["x"])


def test_bl26_duplicate_column_of_a_relation():
    with pytest.raises(DataError, match="more than one column of the name 'x'"):
        read_columns(duckdb.sql("select 1 as x, 2 as x"), ["x"])


def test_unknown_column_names_the_nearest():
    t = bad.cohort(10).rename(columns={"y": "readmitted"})
    with pytest.raises(DataError, match=r"'Readmited' is not a column.*nearest.*'readmitted'"):
        read_columns(t, ["Readmited"])
    with pytest.raises(
        DataError, match=r"'zzz' is not a column of the table. It has 'sex', 'race'"
    ):
        read_columns(t, ["zzz"])
    with pytest.raises(DataError, match="not a column"):
        read_columns(pl.from_pandas(t).lazy(), ["zzz"])
    with pytest.raises(DataError, match=r"'sex' is not a column.*level of the index.*reset_index"):
        read_columns(t.set_index("sex"), ["sex"])


def test_whole_numbers_as_column_names():
    t = pd.DataFrame({0: [1, 2], 1: [3, 4], "x": [5, 6]})
    assert as_table(t).column(np.int64(1)).tolist() == [3, 4]
    assert as_table(t).column("1").tolist() == [3, 4]
    with pytest.raises(DataError, match="2 is not a column"):
        as_table(t).column(2)
    with pytest.raises(DataError, match="not a column"):
        as_table(pd.DataFrame({True: [1]})).column(1)
    assert is_name(1)
    assert is_name("x")
    assert not is_name(True)
    assert not is_name(1.0)


def test_column_names_of_several_levels_are_refused():
    t = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")]))
    with pytest.raises(DataError, match="2 levels"):
        as_table(t)


@pytest.mark.parametrize(
    "data", [None, 5, "table.csv", [{"a": 1}], np.zeros((3, 2)), pd.Series([1]), pl.Series([1])]
)
def test_anything_else_is_refused_with_what_is_accepted(data):
    with pytest.raises(DataError, match=r"data must be a pandas, polars .* but is a"):
        as_table(data)


def test_dicts():
    t = as_table({"a": [1, None], "b": np.array(["x", "y"]), "c": pl.Series([True, False])})
    assert t.names == ("a", "b", "c")
    assert t.column("c").dtype == bool
    assert as_table({}).n_rows == 0
    index = pd.Index([5, 7])
    assert as_table({"a": pd.Series([1, 2], index), "b": [3, 4]}).index.equals(index)
    with pytest.raises(DataError, match=r"equal lengths, but 'a' has 2, 'b' has 1"):
        as_table({"a": [1, 2], "b": [1]})
    with pytest.raises(DataError, match="different indexes"):
        as_table({"a": pd.Series([1, 2]), "b": pd.Series([1, 2], index)})
    with pytest.raises(DataError, match=r"'a' must have one dimension, but has shape \(2, 2\)"):
        as_table({"a": np.zeros((2, 2))})
    with pytest.raises(DataError, match="is a int"):
        as_table({"a": 1})


def test_bl01_series_is_matched_by_index():
    t, shuffled = bad.bl01_series_in_another_order()
    wrapped = as_table(t)
    assert wrapped.align(shuffled, "groups").equals(shuffled.sort_index())
    renamed = shuffled.set_axis(np.arange(600) + 1)
    with pytest.raises(DataError, match=r"groups: the Series 'race' has 600 rows with index.*599"):
        wrapped.align(renamed, "groups")
    with pytest.raises(DataError, match="599 rows"):
        wrapped.align(shuffled.iloc[:-1], "groups")
    with pytest.raises(DataError, match="index with duplicates"):
        wrapped.align(shuffled.set_axis([0] * 600), "groups")


def test_bl01_duplicate_index_is_matched_when_equal():
    t = bad.cohort(4).set_axis([1, 1, 2, 2])
    assert as_table(t).align(t["race"], "groups").tolist() == t["race"].tolist()


ARRAYS = {
    "numpy": np.array,
    "list": list,
    "tuple": tuple,
    "index": pd.Index,
    "categorical": pd.Categorical,
    "polars": pl.Series,
    "pyarrow": pa.array,
    "pyarrow_chunked": lambda x: pa.chunked_array([x]),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_are_matched_by_length(kind):
    wrapped = as_table(bad.bl02_gaps_in_index().head(3))
    assert wrapped.align(ARRAYS[kind](["a", "b", "c"]), "cluster").tolist() == ["a", "b", "c"]
    with pytest.raises(DataError, match=r"cluster has 2 values, but the table has 3 rows"):
        wrapped.align(ARRAYS[kind](["a", "b"]), "cluster")


@pytest.mark.parametrize(
    "values", [np.zeros((3, 1)), len, 1.5, pl.col("x"), {"a": 1}, [[1], [2], [3]], None]
)
def test_what_is_no_array_is_refused(values):
    with pytest.raises(DataError, match=r"score must .*(one value per row|one dimension)"):
        as_table(bad.cohort(3)).align(values, "score")


def test_show_some():
    assert show_some([], 2) == ""
    assert show_some(["a", "b"], 2) == "a, b"


def test_works_without_pyarrow():
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import pandas as pd, polars as pl, duckdb\n"
        "from cfair.frame import read_columns\n"
        "d = {'a': [1, None], 'b': ['x', None], 'c': [True, None], 'e': [0.5, 1.0]}\n"
        "frames = [pd.DataFrame(d), pl.DataFrame(d), pl.DataFrame(d).lazy()]\n"
        "t = pd.DataFrame(d)\n"
        "frames.append(duckdb.from_df(t))\n"
        "for f in frames:\n"
        "    got = read_columns(f, ['a', 'b', 'c', 'e'])\n"
        "    assert got.isna().sum().tolist() == [1, 1, 1, 0], got\n"
        "    assert got['e'].tolist() == [0.5, 1.0]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_series_is_not_matched_with_a_table_that_has_no_index():
    from cfair.errors import DataError

    shuffled = pd.Series([1, 2, 3], index=[2, 0, 1], name="x")
    for data in ({"y": np.arange(3)}, pl.DataFrame({"y": [0, 1, 2]})):
        with pytest.raises(DataError, match="the table has none to match it by"):
            as_table(data).align(shuffled, "score")
        plain = as_table(data).align(shuffled.reset_index(drop=True), "score")
        assert plain.tolist() == [1, 2, 3]
    frame = pd.DataFrame({"y": [0, 1, 2]})
    assert as_table(frame).align(shuffled, "score").tolist() == [2, 3, 1]
