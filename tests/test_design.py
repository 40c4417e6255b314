"""Design matrices: as patsy builds them, again on new rows, and split by attribute."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import patsy
import pytest
from bad_inputs import (
    bl16_integer_groups,
    bl31_rank_deficient,
    bl32_new_level_in_new_data,
    bl34_transform_with_memory,
    bl35_awkward_names,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from cfair.errors import FormulaError
from cfair.formula import build_design, parse_formula, split_design
from cfair.formula import design as design_module


def frame(n: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(60, 10, n),
            "bmi": rng.normal(25, 3, n),
            "k": rng.integers(0, 4, n),
            "sex": rng.choice(["F", "M"], n),
            "race": rng.choice(["Black", "Other", "White"], n),
            "site": rng.choice(["a", "b", "c"], n),
            "smoker": rng.random(n) < 0.4,
        }
    )


def design(text: str, data: pd.DataFrame):
    return build_design(parse_formula(text, data.columns), data)


# --------------------------------------------------------------------- design matrices


def test_printed_names_are_the_plain_column_names():
    data = frame().rename(columns={"age": "age at entry", "race": "race.ethnicity", "sex": "class"})
    text = "~ center(age at entry) + `race.ethnicity`:bmi + class"
    assert design(text, data).names == (
        *("Intercept", "class[T.M]", "center(age at entry)"),
        *(f"race.ethnicity[{level}]:bmi" for level in ("Black", "Other", "White")),
    )


def test_printed_names_stay_apart_when_a_column_looks_like_a_term():
    data = frame().assign(**{"age:bmi": 1.0})
    names = design("~ `age:bmi` + age : bmi", data).names
    assert names == ("Intercept", "`age:bmi`", "age:bmi")


def test_the_code_of_a_factor_sees_no_builtins():
    from cfair.formula.design import _Closed

    with pytest.raises(NameError):
        _Closed([{}]).eval("open")


AS_PATSY = [
    "age + bmi",
    "age*race",
    "C(k) + C(race, Sum)",
    "C(k, Poly) + C(site, Helmert) + C(race, Diff)",
    "C(race, Treatment(reference='Other')):age - 1",
    "C(race, levels=['White', 'Other', 'Black'])",
    "C(C(race), Sum)",
    "bs(age, df=4) + cr(bmi, df=3)",
    "bs(age, knots=[55, 65], degree=2) + cc(bmi, df=3)",
    "te(cr(age, df=3), cr(bmi, df=3))",
    "standardize(age) + center(bmi) + scale(k, ddof=1)",
    "standardize(center(age)) + center(bmi)/center(age)",
    "I(age**2) + I(age/bmi - 3)",
    "smoker*race + C(smoker)",
    "race:sex - 1",
    "race/age",
    "0 + race",
    "age > 60 + I(bmi <= 25)",
    "I(race == 'Black') + I((age > 60) & ~(bmi > 25))",
    "(age + race + sex)**2 - age",
    "1",
]


# terms of categories alone are built for their combinations in large data: in blocks of 7 rows here
@pytest.mark.parametrize("combined_from", [7, 10_000])
@pytest.mark.parametrize("text", [*AS_PATSY, "sex*race", "0 + C(race, Sum):sex", "race + sex:bmi"])
def test_the_matrix_is_patsys(text, combined_from, monkeypatch):
    monkeypatch.setattr(design_module, "_COMBINED_FROM", combined_from)
    monkeypatch.setattr(design_module, "_BLOCK", 7)
    data = frame()
    expected = patsy.dmatrix(text, data)
    built = design(text, data)
    assert built.names == tuple(expected.design_info.column_names)
    np.testing.assert_allclose(built.matrix, np.asarray(expected), rtol=1e-12, atol=1e-10)
    assert built.matrix.flags.c_contiguous
    assert built.matrix.dtype == np.float64


def test_combinations_of_categories_are_built_once(monkeypatch):
    monkeypatch.setattr(design_module, "_COMBINED_FROM", 10)
    built = []
    by_patsy = design_module._by_patsy
    monkeypatch.setattr(
        design_module,
        "_by_patsy",
        lambda *given: built.append(by_patsy(*given)) or built[-1],
    )
    design("sex*race + age", frame())
    assert [part.shape for part in built] == [(6, 5), (len(frame()), 2)]
    del built[:]
    design("sex*race", frame())
    assert [part.shape for part in built] == [(6, 5), (len(frame()), 1)]
    del built[:]
    design("sex*race + age", frame(50))  # too few rows for it to pay
    assert [part.shape for part in built] == [(50, 7)]


@pytest.mark.parametrize("text", AS_PATSY)
def test_the_stored_design_gives_the_same_rows_again(text):
    data = frame()
    built = design(text, data)
    some = data.iloc[[5, 17, 3]].set_axis([9, 9, 9])
    np.testing.assert_array_equal(built.transform(some), built.matrix[[5, 17, 3]])
    assert built.transform(data.head(0)).shape == (0, len(built.names))


NUMPY_FUNCTIONS = [
    ("log(age)", lambda d: np.log(d.age)),
    ("sqrt(age) ", lambda d: np.sqrt(d.age)),
    ("clip(age, 50, a_max=60)", lambda d: d.age.clip(50, 60)),
    ("minimum(age, bmi)", lambda d: np.minimum(d.age, d.bmi)),
    ("where(sex == 'F', age, 0)", lambda d: d.age.where(d.sex == "F", 0)),
    ("I((age > 60) + smoker)", lambda d: (d.age > 60).astype(int) + d.smoker),
    ("I(k**60)", lambda d: d.k.astype(float) ** 60),
]


@pytest.mark.parametrize(("text", "value"), NUMPY_FUNCTIONS)
def test_elementary_functions_and_arithmetic(text, value):
    data = frame()
    np.testing.assert_allclose(design(f"0 + {text}", data).matrix[:, 0], value(data))


def test_text_made_in_the_formula_keeps_its_levels():
    data = frame()
    built = design("where(age > 60, 'old', 'young')", data)
    old = data[data.age > 60].head(3)
    assert built.names[1].endswith("[T.young]")
    np.testing.assert_array_equal(built.transform(old), [[1, 0]] * 3)


@pytest.mark.parametrize("dtype", ["str", "string", "string[pyarrow]", object, "category"])
def test_every_form_of_text_gives_the_same(dtype):
    data = frame()
    expected = design("sex*race + age", data)
    built = design("sex*race + age", data.astype({"sex": dtype, "race": dtype}))
    assert built.names == expected.names
    np.testing.assert_array_equal(built.matrix, expected.matrix)
    np.testing.assert_array_equal(built.transform(data), expected.matrix)


@pytest.mark.parametrize(
    ("column", "dtype"), [("k", "Int64"), ("age", "Float64"), ("smoker", "boolean")]
)
def test_nullable_columns_are_plain_numbers(column, dtype):
    data = frame()
    expected = design(f"{column} + C(k)", data)
    built = design(f"{column} + C(k)", data.astype({column: dtype}))
    assert built.names == expected.names
    np.testing.assert_array_equal(built.matrix, expected.matrix)


def test_a_categorical_keeps_its_order_and_loses_absent_levels():
    data = frame()
    data["race"] = pd.Categorical(data["race"], ["White", "Absent", "Black", "Other"], ordered=True)
    for text in ("race", "C(race)"):
        assert [name.split("[")[1] for name in design(text, data).names[1:]] == [
            "T.Black]",
            "T.Other]",
        ]
    assert len(design("C(site, levels=['c', 'z', 'b', 'a'])", data).names) == 3


def test_integer_groups_are_categories_when_their_column_is():  # bl16
    data = bl16_integer_groups()
    data["race"] = data["race"].astype("category")
    assert design("race + age", data).names == ("Intercept", "race[T.2]", "race[T.3]", "age")
    for text in ("I(race * 2)", "log(race)", "center(race)", "bs(race, df=4)", "where(d, race, 0)"):
        with pytest.raises(FormulaError, match=r"term .* cannot be computed from column .*'race'"):
            design(text, data)
    assert design("I(race == 2)", data).matrix[:, 1].sum() == (data["race"] == 2).sum()


def test_collinear_columns_are_kept_for_the_model_to_judge():  # bl31
    built = design("age + age_months + site", bl31_rank_deficient())
    assert built.matrix.shape[1] == 4
    assert np.linalg.matrix_rank(built.matrix) == 2


@pytest.mark.parametrize("text", ["race", "C(race)", "C(race, Sum)*age"])
def test_a_new_level_is_refused_and_a_subset_is_not(text):  # bl32
    data, islanders, white = bl32_new_level_in_new_data()
    built = design(text, data)
    with pytest.raises(FormulaError, match=r"'race'.*'Islander'.*5 rows"):
        built.transform(islanders)
    np.testing.assert_array_equal(built.transform(white), built.matrix[white.index])


def test_a_new_level_of_numbers_in_C_is_refused():
    built = design("C(k)", frame())
    with pytest.raises(FormulaError, match=r"'C\(k\)'.*'k'.*9.*2 rows"):
        built.transform(frame().head(2).assign(k=9))


def test_transforms_remember_the_rows_they_were_fitted_on():  # bl34
    data, head, forgets, remembers = bl34_transform_with_memory()
    with pytest.raises(FormulaError, match=r"np\.mean.*center\(x\)"):
        parse_formula(forgets, data.columns)
    built = build_design(parse_formula(remembers, data.columns), data)
    np.testing.assert_allclose(built.transform(head)[:, 1], head["age"] - data["age"].mean())


def test_awkward_names_are_used_as_they_are_written():  # bl35
    data = bl35_awkward_names()
    formula = parse_formula("d ~ age at entry + race.ethnicity*class + risk-score", data.columns)
    assert formula.columns == ("age at entry", "race.ethnicity", "class", "risk-score")
    names = build_design(formula, data).names
    assert "race.ethnicity[T.White]:class[T.M]" in names
    assert names[-2:] == ("age at entry", "risk-score")


def test_only_the_columns_in_use_are_touched():
    data = frame().assign(broken=[object()] * 300, missing=np.nan)
    assert design("age", data).columns == ("age",)


def test_the_callers_frame_is_not_changed():
    data = frame()
    before = data.copy(deep=True)
    design("standardize(age) + center(k) + C(race) + clip(bmi, 20, 30)", data)
    pd.testing.assert_frame_equal(data, before)


NOT_BUILT = [
    ("log(age - 60)", {}, r"'log\(age - 60\)'.*2 rows.*age = 59.0, 60.0"),
    ("I(1 / (age - 60))", {}, r"1 rows.*60.0"),
    ("standardize(one)", {}, "not a finite number in 3 rows"),
    ("age", {"age": [1.0, np.nan, 2.0]}, r"'age'.*1 rows \(index 1\)"),
    ("sex", {"sex": ["F", None, "M"]}, r"'sex'.*missing.*1 rows"),
    ("age", {"age": [1.0, np.inf, 2.0]}, "'age'.*infinite"),
    ("when", {"when": pd.date_range("2020", periods=3)}, "'when'.*date"),
    ("I(sex + sex)", {}, r"'I\(sex \+ sex\)'"),
    ("log(sex)", {}, r"'log\(sex\)'"),
    ("C(sex, Treatment('X'))", {}, "X"),
    ("C(sex, levels=['F'])", {}, r"'M' \(1 rows\)"),
    ("bs(age, df=1)", {}, r"'bs\(age, df=1\)'"),
    ("0", {}, "no terms"),
    ("age - age - 1", {}, "no terms"),
]


@pytest.mark.parametrize(("text", "columns", "message"), NOT_BUILT)
def test_a_matrix_that_would_be_wrong_is_refused(text, columns, message):
    data = pd.DataFrame({"age": [59.0, 60.0, 61.0], "sex": ["F", "M", "F"], "one": 1.0})
    with pytest.raises(FormulaError, match=message):
        design(text, data.assign(**columns))


def test_data_without_rows_or_with_too_many_levels_are_refused():
    with pytest.raises(FormulaError, match="no rows"):
        design("age", frame().head(0))
    many = pd.DataFrame({"id": np.arange(3000).astype(str), "n": np.arange(3000)})
    for text in ("id", "C(n)"):
        with pytest.raises(FormulaError, match="3,000 different values"):
            design(text, many)
    with pytest.raises(FormulaError, match="all splines together"):
        design("te(bs(n, df=200), bs(n, df=200))", many)
    with pytest.raises(FormulaError, match="more than 20,000 columns"):
        design("a:C(b)", pd.DataFrame({"a": (many["n"] % 500).astype(str), "b": many["n"] % 499}))


def test_new_rows_must_have_the_columns_in_the_same_form():
    built = design("age + smoker + race", frame())
    with pytest.raises(FormulaError, match="no column 'age'"):
        built.transform(frame().drop(columns="age"))
    with pytest.raises(FormulaError, match=r"'age'.*numbers"):
        built.transform(frame().assign(age="old"))
    as_numbers = frame().assign(smoker=frame()["smoker"].astype(int))
    np.testing.assert_array_equal(built.transform(as_numbers), built.matrix)
    doubled = pd.concat([frame(), frame()[["age"]]], axis=1)
    with pytest.raises(FormulaError, match="2 columns called 'age'"):
        built.transform(doubled)


def test_a_million_rows_are_built_quickly():
    rng = np.random.default_rng(0)
    n = 1_000_000
    data = pd.DataFrame({f"x{i}": rng.normal(size=n) for i in range(10)})
    for name in ("sex", "race", "site"):
        data[name] = pd.Categorical.from_codes(rng.integers(0, 3, n), ["a", "b", "c"])
    formula = parse_formula(" + ".join(data.columns), data.columns)
    start = time.perf_counter()
    build_design(formula, data)
    assert time.perf_counter() - start < 3  # about half a second on an idle machine


# ------------------------------------------------------------------ split by attributes


def groups_of(data: pd.DataFrame, extra: tuple[str, ...] = ()):
    """Crossing of sex and race, and the code of each row."""
    sexes, races = ["F", "M"], ["Black", "Other", "White", *extra]
    rows = [(s, r) for s in sexes for r in races]
    made = pd.DataFrame(
        {
            "sex": pd.Categorical([s for s, _ in rows], sexes),
            "race": pd.Categorical([r for _, r in rows], races),
        }
    )
    position = {row: k for k, row in enumerate(rows)}
    return made, np.array([position[row] for row in zip(data["sex"], data["race"], strict=True)])


def assert_split(built, data, made, codes):
    split = split_design(built, data, made)
    rows = np.arange(len(data))
    parts = [(split.fixed, split.fixed_columns)]
    if split.by_group is not None:
        parts.append((split.by_group[codes], split.by_group_columns))
    if split.mixed is not None:
        parts.append((split.mixed[codes, rows], split.mixed_columns))
    columns = np.concatenate([columns for _, columns in parts])
    assert sorted(columns) == list(range(len(built.names)))
    whole = np.concatenate([values for values, _ in parts], axis=1)
    np.testing.assert_allclose(whole, built.matrix[:, columns], rtol=1e-12)
    return split


SPLIT_TERMS = [
    *("age", "sex", "C(race)", "sex:race", "race:age", "C(sex, Sum):bs(age, df=4)", "k:site"),
    *("where(sex == 'F', age, bmi)", "center(bmi)", "site:race", "smoker", "I(race == 'White')"),
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(SPLIT_TERMS), min_size=1, max_size=6, unique=True),
    st.booleans(),
    st.integers(0, 3),
)
def test_the_parts_of_a_row_are_the_row(terms, intercept, seed):
    data = frame(80, seed)
    built = design(("1 + " if intercept else "0 + ") + " + ".join(terms), data)
    assert_split(built, data, *groups_of(data))


def test_absent_parts_are_none():
    data = frame(50)
    split = assert_split(design("age", data), data, *groups_of(data))
    assert split.by_group is None
    assert split.mixed is None
    assert split.fixed.shape == (50, 2)
    assert split_design(design("0 + race", data), data, groups_of(data)[0]).fixed.shape == (50, 0)


def test_mixed_rows_are_those_of_data_moved_to_the_group():
    data = frame(60)
    built = design("age*race + sex", data)
    made, codes = groups_of(data)
    split = assert_split(built, data, made, codes)
    for k in range(len(made)):
        moved = data.assign(sex=made["sex"][k], race=made["race"][k])
        expected = built.transform(moved)[:, split.mixed_columns]
        np.testing.assert_array_equal(split.mixed[k], expected)


def test_groups_with_a_level_that_never_occurred_are_zero():
    data = frame(60)
    built = design("sex*race + race:age", data)
    made, codes = groups_of(data, extra=("Islander",))
    split = assert_split(built, data, made, codes)
    islander = (made["race"] == "Islander").to_numpy()
    assert not split.by_group[islander].any()
    assert not split.mixed[islander].any()
    assert split.by_group[~islander].any(axis=1).sum() == 5  # all but the reference group


def test_attributes_held_as_numbers_or_truth_values_split_too():
    data = frame(60)
    made = pd.DataFrame(
        {"k": pd.Categorical([0, 1, 2, 3, 7]), "smoker": pd.Categorical([True] * 5)}
    )
    made.loc[1, "smoker"] = True
    everyone = pd.concat([made, made.assign(smoker=pd.Categorical([False] * 5))], ignore_index=True)
    everyone["smoker"] = everyone["smoker"].astype("category")
    codes = (data["k"] + 5 * ~data["smoker"]).to_numpy()
    for text in ("C(k) + smoker + age", "k*age + smoker:age", "C(k):age + C(smoker)"):
        assert_split(design(text, data), data, everyone, codes)


def test_a_split_that_needs_too_much_memory_is_refused():
    data = frame(100)
    made, _ = groups_of(data)
    with pytest.raises(FormulaError, match=r"'age:race'.*6 groups.*max_bytes"):
        split_design(design("age*race", data), data, made, max_bytes=1000)
