"""Single columns by what they are for: 0/1 columns, scores, attributes, columns of formulas."""

from __future__ import annotations

import datetime as dt
import decimal
import re

import bad_inputs as bad
import numpy as np
import pandas as pd
import pytest

import cfair
from cfair.cli.flags import as_options
from cfair.columns import (
    check_cutoff,
    describe_kind,
    formula_column,
    read_attribute,
    read_binary,
    read_score,
    read_weights,
    refuse_numbers_as_text,
)
from cfair.errors import DataError
from cfair.frame import plain_column


def series(values, dtype=None, name="x"):
    return plain_column(pd.Series(values, dtype=dtype, name=name))


#: A column of numbers with one value that is none.
ONE_BAD = [*np.linspace(0.1, 0.9, 17).tolist(), "7o", 0.2, 0.3]
#: What is said of it.
ODD = (
    r"mixed types: float \(19 rows\), str \(1 rows\).*\. 19 of 20 values are numbers, and '7o' "
    r"\(1 row\) is not\. Correct it, or set it to missing: pd\.to_numeric\(table\['x'\], "
    r"errors='coerce'\)\. Look at the row with index 17\."
)

ZERO_ONE = {
    "int": ([0, 1, 1], None),
    "int8": ([0, 1, 1], "int8"),
    "uint8": ([0, 1, 1], "uint8"),
    "float": ([0.0, 1.0, 1.0], None),
    "float32": ([0.0, 1.0, 1.0], "float32"),
    "bool": ([False, True, True], None),
    "Int64": ([0, 1, 1], "Int64"),
    "boolean": ([False, True, True], "boolean"),
    "Float64": ([0, 1, 1], "Float64"),
    "arrow_bool": ([False, True, True], "bool[pyarrow]"),
    "arrow_int": ([0, 1, 1], "int64[pyarrow]"),
    "object_int": ([0, 1, 1], object),
    "object_bool": ([False, True, True], object),
    "decimal": ([decimal.Decimal(v) for v in (0, 1, 1)], object),
    "categorical_int": (pd.Categorical([0, 1, 1]), None),
    "categorical_bool": (pd.Categorical([False, True, True]), None),
    "categorical_unused": (pd.Categorical([0, 1, 1], categories=[2, 1, 0]), None),
    "sparse": ([0, 1, 1], pd.SparseDtype("int64", 0)),
}


@pytest.mark.parametrize("kind", ZERO_ONE)
def test_bl11_zero_one_in_every_form(kind):
    got = read_binary(series(*ZERO_ONE[kind]), "outcome", option="outcome_event")
    assert got.values.tolist() == [0, 1, 1]
    assert got.values.dtype == np.int8
    assert got.event == 1
    assert isinstance(got.event, bool) == ("bool" in kind)
    assert got.note is None


@pytest.mark.parametrize("dtype", ["float64", "Int64", "boolean", object])
def test_bl07_missing_is_kept_apart(dtype):
    got = read_binary(series([0, None, 1], dtype), "outcome")
    assert got.values.tolist() == [0, -1, 1]
    assert got.missing.tolist() == [False, True, False]


def test_bl12_text_needs_the_event():
    y = bad.bl12_text_outcome()["y"]
    n = y.value_counts()
    expected = (
        f"column 'y' must be 0/1 or True/False, but holds 'alive' ({n['alive']} rows), "
        f"'died' ({n['died']} rows).\nSay which is the event: "
        'outcome_event="alive" or outcome_event="died".'
    )
    with pytest.raises(DataError, match=re.escape(expected)):
        read_binary(y, "outcome", option="outcome_event")
    got = read_binary(y, "outcome", event="died")
    assert np.array_equal(got.values, bad.cohort()["y"])
    assert got.note == "outcome y: 'died' is 1, 'alive' 0"
    flipped = read_binary(y, "outcome", event="alive")
    assert np.array_equal(flipped.values, 1 - bad.cohort()["y"])


@pytest.mark.parametrize("codes", [(1, 2), (-1, 1), (0, 100), (0, 2), (0.5, 1)])
def test_bl13_other_codes_need_the_event(codes):
    y = bad.bl13_other_codes(codes)["y"]
    with pytest.raises(DataError, match=rf"0/1 or True/False.*\n.*treatment_event={codes[1]}"):
        read_binary(y, "treatment", option="treatment_event")
    got = read_binary(y, "treatment", event=codes[1], option="treatment_event")
    assert np.array_equal(got.values, bad.cohort()["y"])


@pytest.mark.parametrize("values", [["0", "1"], pd.Categorical(["0", "1"]), ["True", "False"]])
def test_bl12_text_that_reads_as_numbers_is_still_text(values):
    with pytest.raises(DataError, match="0/1 or True/False"):
        read_binary(series(values), "outcome", option="outcome_event")


def test_the_event_must_occur():
    with pytest.raises(
        DataError, match=r"outcome_event='Died' does not occur in column 'x'.*'died'"
    ):
        read_binary(series(["died", "alive"]), "outcome", event="Died", option="outcome_event")
    with pytest.raises(DataError, match="outcome_event='1' does not occur"):
        read_binary(series([0, 1]), "outcome", event="1", option="outcome_event")
    with pytest.raises(DataError, match="does not occur"):
        read_binary(series([0, 1]), "outcome", event=np.array([0, 1]))


def test_values_that_are_not_known_are_to_be_set_to_missing():
    said = "All others count as 0: set values that are not known to missing before"
    with pytest.raises(DataError, match=said):
        read_binary(series(["yes", "no", "unknown"]), "outcome", option="outcome_event")
    with pytest.raises(DataError) as two:
        read_binary(series(["yes", "no"]), "outcome", option="outcome_event")
    assert said not in str(two.value)


@pytest.mark.parametrize("read", [formula_column, read_weights])
def test_few_values_among_numbers_that_are_none_are_shown_with_their_rows(read):
    with pytest.raises(DataError, match=ODD) as told:
        read(pd.Series(ONE_BAD, name="x", dtype=object))
    assert "astype" not in str(told.value)
    twice = pd.Series(ONE_BAD, index=[7] * 20, name="x", dtype=object)
    with pytest.raises(DataError, match=r"Look at row 17, counting from 0\.$"):
        read(twice)


def test_where_labels_are_not_unique_rows_are_found_by_position():
    values = pd.Series([0.1, 0.2, np.inf, np.inf], index=["a", "b", "a", "b"], name="x")
    with pytest.raises(DataError, match=r"Look at rows 2, 3, counting from 0\.$"):
        read_score(values)


def test_event_among_many_values_and_types():
    got = read_binary(series(["a", "b", "c", None]), "outcome", event="b")
    assert got.values.tolist() == [0, 1, 0, -1]
    assert got.note == "outcome x: 'b' is 1, 'a', 'c' 0"
    assert read_binary(series([0, 1]), "outcome", event=True).values.tolist() == [0, 1]
    assert read_binary(series([0, 1]), "outcome", event=0).values.tolist() == [1, 0]
    days = [dt.date(2020, 1, 1), dt.date(2021, 1, 1)]
    assert read_binary(series(days), "outcome", event=days[0]).values.tolist() == [1, 0]


def test_a_prediction_is_to_be_recoded():
    with pytest.raises(DataError, match=r"Recode it, for example \(table\['x'\] == \"low\"\)"):
        read_binary(series(["high", "low"]), "prediction")


def test_many_values_are_cut():
    with pytest.raises(DataError, match="and 95 more"):
        read_binary(series(np.arange(100)), "outcome", option="outcome_event")


@pytest.mark.parametrize(
    "reader", [lambda x: read_binary(x, "outcome"), read_score, formula_column]
)
def test_infinite_values_are_refused_with_their_count(reader):
    with pytest.raises(DataError, match=r"column 'x' has infinite values in 2 rows"):
        reader(series([0.0, np.inf, -np.inf, 1.0]))
    with pytest.raises(DataError, match="infinite"):
        read_attribute(series([0.0, np.inf], object))


def test_messages_about_bad_rows_say_which_the_first_are():
    index = [f"p{k}" for k in range(100)]
    bad = np.isin(np.arange(100), [7, 11, 12, 40])
    values = {
        "score": (read_score, np.where(bad, 1.5, 0.5)),
        "infinite": (formula_column, np.where(bad, np.inf, 0.5)),
        "weights": (read_weights, np.where(bad, -1.0, 0.5)),
    }
    for reader, x in values.values():
        with pytest.raises(
            DataError, match=r"4 .*Look at the rows with index p7, p11, p12 and 1 more\.$"
        ):
            reader(pd.Series(x, index=index, name="x"))
    with pytest.raises(DataError, match=r"in 1 row\. .*Look at the row with index p7\.$"):
        formula_column(pd.Series(np.where(np.arange(100) == 7, np.inf, 1.0), index=index, name="x"))
    with pytest.raises(DataError, match="percentage") as other_scale:  # where no row is odd
        read_score(pd.Series(np.arange(100.0), index=index, name="x"))
    assert "Look at" not in str(other_scale.value)


@pytest.mark.parametrize("dtype", ["float64", "float32", "Float64", "double[pyarrow]", object])
def test_scores(dtype):
    got = read_score(series([0.0, 0.5, 1.0, None], dtype))
    assert got.values.dtype == np.float64
    np.testing.assert_array_equal(got.values, [0, 0.5, 1, np.nan])
    assert got.missing.tolist() == [False, False, False, True]
    assert got.positive(0.5).tolist() == [0, 1, 1, 0]
    assert read_score(series([0, None, 1], "Int64")).positive(1).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("kind", "hint"), [("percent", "percentage"), ("logit", "log-odds"), ("large", "probability")]
)
def test_bl42_score_on_another_scale(kind, hint):
    s = series([0.2, 550.0], name="s") if kind == "large" else bad.bl42_score_scale(kind)["s"]
    with pytest.raises(DataError, match=rf"'s' must lie in \[0, 1\], but runs from .* to .*{hint}"):
        read_score(s)


def test_a_few_scores_out_of_range_are_no_other_scale():
    s = series([0.2, 0.4] * 50 + [1.2], name="s")
    with pytest.raises(
        DataError, match=r"\(1 of 101 rows outside\).*look at the others first"
    ) as e:
        read_score(s)
    assert "percentage" not in str(e.value)


def test_decimal_commas_are_recognised():
    s = series(["0,514", "0,2", "1"], name="s")
    with pytest.raises(DataError, match=r"decimal commas\? Give .*str.replace\(',', '\.'\)"):
        read_score(s)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("cutoff", [0.1, 0.5, 0.7, 1 / 3])
def test_bl42_ties_count_as_positive_in_any_precision(dtype, cutoff):
    got = read_score(series(np.array([cutoff, cutoff - 0.01], dtype=dtype)))
    assert got.positive(cutoff).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["0.1", "0.5"], r"is text \('0.1', '0.5'\).*pd.to_numeric"),
        ([True, False], "holds True/False, not a score.*prediction='x'"),
        ([0.1 + 0j, 1j], "complex numbers"),
        (pd.Categorical([0.1, 0.5]), "a Categorical"),
        (pd.to_datetime(["2020-01-01"]), "dates or times"),
        ([0.1, "0.5"], r"mixed types: float \(1 rows\), str \(1 rows\)"),
        (ONE_BAD, ODD),
    ],
)
def test_scores_that_are_no_numbers(values, message):
    with pytest.raises(DataError, match=message):
        read_score(series(values))


@pytest.mark.parametrize("cutoff", [-0.1, 1.5, 50, np.nan, np.inf, "0.5", True, None, [0.5]])
def test_bl42_cutoff_outside(cutoff):
    with pytest.raises(DataError, match=r"cutoff must be a number in \[0, 1\]"):
        check_cutoff(cutoff)


@pytest.mark.parametrize("cutoff", [0, 1, 0.5, np.float32(0.5), np.int64(1)])
def test_cutoffs(cutoff):
    assert check_cutoff(cutoff) == cutoff


def test_a_measurement_is_no_group():
    with pytest.raises(
        DataError, match=r"'age' is a measurement with 600 distinct.*pd\.cut\(table"
    ):
        read_attribute(bad.cohort()["age"])
    with pytest.raises(DataError, match="measurement with 60"):
        read_attribute(series(pd.date_range("2020-01-01", periods=60)))
    assert len(read_attribute(series(np.arange(60.0))).levels) == 60  # whole numbers: a site id
    assert read_attribute(series([0.5, 1.5])).levels == (0.5, 1.5)


def test_text_in_a_formula_is_categorical():
    for dtype in ("str", "string", object, "string[pyarrow]"):
        got = formula_column(series(["b", "a", None], dtype))
        assert list(got.cat.categories) == ["a", "b"]
        assert got.isna().tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, 2], "int8", "int64"),
        ([1, 2], "uint64", "int64"),
        ([1, 2**63], "uint64", "float64"),
        ([1, None], "Int8", "Int64"),
        ([1, None], "UInt8", "Int64"),
        ([None, None], "UInt8", "Int64"),
        ([0.5, None], "Float32", "float64"),
        ([True, False], None, "bool"),
        ([True, None], "boolean", "boolean"),
        ([decimal.Decimal("0.5"), 1], object, "float64"),
    ],
)
def test_numbers_in_a_formula_are_wide(values, dtype, expected):
    assert str(formula_column(series(values, dtype)).dtype) == expected


def test_intervals_and_categoricals_in_a_formula():
    cut = bad.bl18_binned_age_group()["age_band"]
    assert formula_column(cut) is cut
    plain = pd.Series(pd.arrays.IntervalArray.from_breaks([0, 1, 2]), name="x")
    assert len(formula_column(plain).cat.categories) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pd.to_datetime(["2020-01-01"]), "dates or times.*days since"),
        ([dt.date(2020, 1, 1)], "dates or times.*days since"),
        (pd.to_timedelta([1], unit="D"), "dates or times"),
        (pd.period_range("2020", periods=1, freq="D"), "dates or times"),
        ([1j], "complex numbers.*to_numeric"),
        ([1, "a"], r"mixed types: int \(1 rows\), str \(1 rows\).*\.astype\(str\)"),
        ([[1]], "mixed types: list"),
        ([b"a"], "bytes"),
    ],
)
def test_what_a_formula_cannot_use(values, message):
    with pytest.raises(DataError, match=rf"'x' cannot be used in a formula: it is .*{message}"):
        formula_column(series(values))


def test_describe_kind_of_other_objects():
    assert describe_kind(series(["a"])) == "text"


def test_an_event_spelt_in_two_ways_is_refused():
    values = ["yes"] * 5 + ["Yes"] * 2 + [" YES "] + ["no"] * 4
    with pytest.raises(DataError) as caught:
        read_binary(series(values), "outcome", event="yes", option="outcome_event")
    message = str(caught.value)
    parts = ["'yes' (5 rows)", "'Yes' (2 rows)", "' YES ' (1 rows)", "names 1 of these 3"]
    parts += ["table['x'].str.strip().str.lower()", "outcome_event=['yes', ' YES ', 'Yes']"]
    for part in parts:
        assert part in message
    assert "'no'" not in message
    lowered = series(values).str.strip().str.lower()
    all_named = read_binary(series(values), "outcome", event=["yes", "Yes", " YES "])
    assert np.array_equal(all_named.values, read_binary(lowered, "outcome", event="yes").values)
    with pytest.raises(DataError, match="names 2 of these 3"):
        read_binary(series(values), "outcome", event=["yes", "Yes"])
    # non-events may be spelt in any way, since they are all 0
    assert read_binary(series(["yes", "no", "No"]), "outcome", event="yes").values.sum() == 1


def test_several_values_are_the_event():
    got = read_binary(series(["a", "b", "c", None]), "outcome", event=["a", "c"])
    assert got.values.tolist() == [1, 0, 1, -1]
    assert (got.event, got.note) == ("a or c", "outcome x: 'a', 'c' are 1, 'b' 0")
    one = read_binary(series([0, 1]), "outcome", event=[1])
    assert (one.event, one.note) == (1, None)
    numbers = read_binary(series([1, 2, 3]), "outcome", event=(2, 3))
    assert (numbers.event, numbers.values.tolist()) == ("2 or 3", [0, 1, 1])
    with pytest.raises(DataError, match="outcome_event='d' does not occur in column 'x'"):
        read_binary(series(["a", "b"]), "outcome", event=["a", "d"], option="outcome_event")
    with pytest.raises(DataError, match="outcome_event is empty"):
        read_binary(series(["a", "b"]), "outcome", event=[], option="outcome_event")


@pytest.mark.parametrize(
    ("values", "advice", "not_said"),
    [
        (
            ["14.7%", "3 %", None],
            r"table\['x'\]\.str\.rstrip\('%'\)\.astype\(float\) / 100\.$",
            "z",
        ),
        (["14.7%", "n/k"], r"rstrip\('%'\), errors='coerce'\) / 100\. .*'n/k'; 1 rows", "astype"),
        (["14.7%", "0.3"], r"1 rows have no % sign", "errors"),
        (["0.3", "n/k"], r"to_numeric\(table\['x'\], errors='coerce'\)\. .*'n/k'; 1 rows", "%"),
    ],
)
def test_advice_on_scores_that_are_text_can_be_followed(values, advice, not_said):
    with pytest.raises(DataError, match=advice) as caught:
        read_score(series(values))
    assert not_said not in str(caught.value)
    code = re.search(r"(?:pd|table).*?(?:/ 100|\))(?=\.(?: |$))", str(caught.value))
    got = eval(code[0], {"pd": pd, "table": {"x": series(values)}, "float": float})
    assert got.notna().sum() == sum(v not in (None, "n/k") for v in values)


def test_advice_on_scores_on_another_scale_names_the_column():
    with pytest.raises(DataError, match="Divide the column 'x' by 100 before") as caught:
        read_score(series([0.5, 63.0]))
    assert "score >=" not in str(caught.value)
    assert "column of 0/1" in as_options(str(caught.value))


def test_numbers_that_other_text_made_text():
    values = [f"{v}" for v in range(100, 130)]
    with pytest.raises(DataError) as caught:
        refuse_numbers_as_text("SBP", [*values, "n/k"], [50] * 30 + [4])
    assert str(caught.value) == (
        "column 'SBP' is text: 1,500 of 1,504 values are numbers, 4 are not ('n/k'). Convert it "
        "with pd.to_numeric(table['SBP'], errors='coerce'), or name the missing values (command "
        "line: --na n/k), or write C(SBP) if categories are meant."
    )
    with pytest.raises(DataError, match="30 of 60 different values are numbers, 30 are not"):
        refuse_numbers_as_text("SBP", [*values, *(f"ward {v}" for v in values)])
    with pytest.raises(DataError, match=r"numbers\. Convert it with pd.to_numeric\(table\['x'\]\)"):
        refuse_numbers_as_text("x", values)
    refuse_numbers_as_text("SBP", [*values, *(f"ward {v}" for v in values), "x"])
    refuse_numbers_as_text("site", [*values[:19], "n/k"])
    refuse_numbers_as_text("SBP", [float(v) for v in values])


def test_missing_values_are_told_with_the_columns_that_formulas_may_use():
    table = bad.cohort(60)
    table["y"] = table["y"].astype(float)
    table.iloc[[3, 5], table.columns.get_loc("y")] = np.nan
    table["bmi"] = np.where(np.arange(60) < 7, np.nan, 25.0)
    roles = {"outcome": "y", "score": "s", "cutoff": 0.5, "groups": "sex"}
    with pytest.raises(
        DataError, match=r"'y' \(2 rows\).*fill them in\. Columns .*'bmi' \(7 rows\)"
    ):
        cfair.Audit(table, **roles).observed()
    known = table.assign(y=table["y"].fillna(0))
    with pytest.raises(DataError, match=r"'bmi' \(7 rows\).*fill them in\.$"):
        cfair.Audit(known, **roles).counterfactual("d ~ sex + s + bmi")
