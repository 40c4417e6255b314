"""Formulas: which are read and how, and which are refused."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pandas as pd
import patsy
import pytest
from bad_inputs import (
    bl37_caller_variables,
    cohort,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import cfair
from cfair.errors import FormulaError
from cfair.formula import build_design, parse_formula

COLUMNS = [
    *("age", "d", "sex", "race", "risk", "score", "a", "b"),
    *("risk-score", "X.1", "body mass", "class", "C", "log", "df", "2nd", "Ünï", "a:b", "it's"),
    *("race.ethnicity", "log(age)", "age at entry", "x²", "0", "1e5", " lead", "`tick`", "if"),
]


def parse(text: str, columns=None):
    return parse_formula(text, COLUMNS if columns is None else columns)


# ----------------------------------------------------------------------------- names

READ_AS = [
    ("d ~ age + sex", "d", ("age", "sex")),
    ("age + sex", None, ("age", "sex")),
    ("~ 1", None, ()),
    ("~ sex + age - sex", None, ("age",)),
    ("~ risk-score", None, ("risk-score",)),
    ("~ risk - score", None, ("risk",)),
    ("~ `risk-score` + body mass", None, ("risk-score", "body mass")),
    ("`body mass` ~ age", "body mass", ("age",)),
    ("Q('body mass') ~ age", "body mass", ("age",)),
    ("body mass ~ X.1 + race.ethnicity", "body mass", ("X.1", "race.ethnicity")),
    ("~ class*if", None, ("class", "if")),
    ("~ C(C) + C + log(log) + log", None, ("C", "log")),
    ("~ bs(df, df=4) + bs(age, df=4)", None, ("df", "age")),
    ("~ age at entry + age", None, ("age at entry", "age")),
    ("~ log(age) + log( age )", None, ("log(age)", "age")),
    ("~ a:b + a : b", None, ("a:b", "a", "b")),
    ("~ it's + C(sex, levels=['it', 's'])", None, ("it's", "sex")),
    ("~ 2nd + Ünï + x²", None, ("2nd", "Ünï", "x²")),
    ("~ I(race == 'body mass')", None, ("race",)),
    ("~ Q(' lead') + ` lead`", None, (" lead",)),
    ("~ Q('`tick`') + `0` + `1e5` + 0", None, ("`tick`", "0", "1e5")),
    ("~ age\n + \t sex", None, ("age", "sex")),
]


@pytest.mark.parametrize(("text", "left", "columns"), READ_AS)
def test_columns_are_found_under_any_name(text, left, columns):
    formula = parse(text)
    assert (formula.left, formula.columns) == (left, columns)
    assert formula.text == text


NOTED = [
    ("~ risk-score", "'risk-score' was read as the column of this name"),
    ("~ log(age)", "'log(age)' was read as the column of this name"),
    ("~ C", "column 'C' has the name of a formula function"),
    ("~ log(a)", "column 'log' has the name of a formula function"),
]


@pytest.mark.parametrize(("text", "note"), NOTED)
def test_a_name_that_can_be_read_in_two_ways_is_noted(text, note):
    assert any(note in line for line in parse(text).notes)


@pytest.mark.parametrize("text", ["~ body mass + X.1 + class", "~ age + C1", "~ risk - score"])
def test_a_name_with_one_reading_is_not_noted(text):
    assert parse(text, [*COLUMNS[:-1], "C1"] if "C1" in text else None).notes == ()


def test_a_column_beats_the_difference_only_where_it_is_written_so():
    columns = ["risk", "score", "risk-score", "risk-score2"]
    assert parse("risk-score2", columns).columns == ("risk-score2",)
    assert parse("risk-scores", [*columns, "scores"]).columns == ("risk",)


def test_the_longest_name_wins():
    columns = ["age", "age at", "age at entry"]
    assert parse("age at entry", columns).columns == ("age at entry",)
    assert parse("age at + age", columns).columns == ("age at", "age")


# --------------------------------------------------------------------------- refusals

REFUSED = [
    ("age.mean()", "center(x)"),
    ("np.mean(age)", "center(x)"),
    ("I(age - mean(age))", "center(x)"),
    ("age / age.std()", "standardize(x)"),
    ("np.log(age)", "write log("),
    ("np.where(age, 1, 2)", "write where("),
    ("age.real", "'age.real'"),
    ("(age).real", "attribute access"),
    ("'a'.join(sex)", "attribute access"),
    ("X.1.2", "'X.1.2'"),
    ("age[0]", "a subscript"),
    ("I([1][0] * age)", "a subscript"),
    ("C(sex)[0]", "a subscript"),
    ("lambda x: x", "'lambda'"),
    ("I([age for age in age])", "'for'"),
    ("f'{age}'", "'f'"),
    ("rb'a'", "'rb'"),
    ("I((a := 3))", "':='"),
    ("C(*age)", "starred"),
    ("C(**age)", "Usage"),
    ("__import__('os')", "'__import__()'"),
    ("__builtins__", "not a column"),
    ("age.__class__", "'age.__class__'"),
    ("eval('1')", "'eval()'"),
    ("open('x')", "'open()'"),
    ("getattr(age, 'real')", "'getattr()'"),
    ("os.system('true')", "'os.system'"),
    ("age and d", "write &"),
    ("age or d", "write |"),
    ("not age", "write ~"),
    ("age in (1, 2)", "'in'"),
    ("age is d", "'is'"),
    ("I(1 if age else 2)", "'if'"),
    ("await age", "'await'"),
    ("age @ d", "'@'"),
    ("age ^ 2", "write **"),
    ("I(age << 2)", "<"),
    ("I(1 < age < 3)", "two comparisons"),
    ("{age}", "'{'"),
    ("{'a': age}", "'{'"),
    ("age; d", "';'"),
    ("age # d", "'#'"),
    ("age \\ d", "sign"),
    ("'abc", "quote"),
    ("`age", "backtick"),
    ("`nope`", "'nope'"),
    ("age)", "no opening bracket"),
    ("(age", "not closed"),
    ("(age]", "bracket"),
    ("", "empty"),
    ("  \n", "empty"),
    ("~", "after '~'"),
    ("d ~", "after '~'"),
    ("d ~ age +", "after '+'"),
    ("d ~ * age", "before '*'"),
    ("a b", "'a b'"),
    ("age 'x'", "not complete"),
    (".", "Name all columns"),
    ("d ~ .", "Name all columns"),
    ("offset(age)", "offset"),
    ("d ~ age ~ sex", "left side"),
    ("d ~ (age ~ sex)", "more than one '~'"),
    ("~ age + ~sex", "more than one '~'"),
    ("(d ~ age)", "inside brackets"),
    ("log(d) ~ age", "left side"),
    ("d + a ~ age", "left side"),
    ("1 ~ age", "left side"),
    ("d ~ d + age", "both sides"),
    ("agee", "'age'"),
    ("2", "'2' is a number"),
    ("age + 2", "'2' is a number"),
    ("2*age", "'2' is a number"),
    ("0x10", "'0x10'"),
    ("1_000", "'1_000'"),
    ("1j", "'1j'"),
    ("age**1.5", "whole number"),
    ("age**b", "whole number"),
    ("1:age", "intercept"),
    ("-age", "I(-a)"),
    ("age > -1", "inside I(...)"),
    ("(age > 1) & (d > 1)", "inside I(...)"),
    ("I(1)", "no column"),
    ("'text'", "no column"),
    ("True", "no column"),
    ("C(log(2))", "no column"),
    ("age(d)", "a column, not a function"),
    ("exp", "write exp("),
    ("Sum", "no column"),
    ("I(age * Sum)", "contrast"),
    ("Q(age)", "Q()"),
    ("Q('nope')", "'nope'"),
    ("Q('a', 'b')", "Q()"),
    ("bs()", "no column"),
    ("log(age, d)", "Usage: log(x)"),
    ("log(age, out=d)", "'out'"),
    ("minimum(age, d, score)", "Usage"),
    ("clip(age, 0, 1, d)", "Usage"),
    ("where(age)", "Usage"),
    ("bs(age, foo=1)", "'foo'"),
    ("bs(age, df=999999)", "larger"),
    ("te(bs(age, df=200), bs(d, df=200))", "all splines together"),
    ("te(age, foo=1)", "'foo'"),
    ("age - __import__('os')", "not allowed"),
    ("age - I(age[0])", "a subscript"),
    ("0:((a + b + age + d + sex)**5 : (risk + score + log + df + class)**5)", "terms"),
    ("bs(age, df=10**9)", "whole number"),
    ("C(sex, levels=age)", "not a column"),
    ("C(sex, log)", "not a column"),
    ("C(sex, levels=[age])", "not a column"),
    ("I('a' * 9)", "no column"),
    ("I(age * 'a')", "arithmetic"),
    ("I(9**9**9 * age)", "too large"),
    ("I((9**9)**9 + age)", "too large"),
    ("I(age + 10**99999)", "too large"),
    ("I(age + 1e999)", "too large"),
    ("I(" + "1" * 5000 + " * age)", "too large"),
    ("mean(age)", "center(x)"),
    ("poly(age, 2)", "I(x**2)"),
    ("factor(sex)", "write C(x)"),
    ("ns(age, 3)", "cr(x, df=4)"),
    ("\x00", "sign"),
    ("\ud800", "sign"),
    ("１", "'１'"),
    (5, "must be text"),
    (None, "must be text"),
    (b"age", "must be text"),
    (["age"], "must be text"),
]


@pytest.mark.parametrize(("text", "piece"), REFUSED, ids=lambda value: repr(value)[:40])
def test_what_is_not_allowed_is_refused_by_name(text, piece):
    columns = [name for name in COLUMNS if name not in {"if", "log(age)"}]
    with pytest.raises(FormulaError) as refused:
        parse(text, columns)
    assert piece in str(refused.value)
    assert "_column" not in str(refused.value)


TOO_LARGE = [
    "a" * 10_000_000,
    "(" * 5000,
    "[" * 5000,
    "(" * 5000 + "age" + ")" * 4900,
    "C(" * 1500 + "age" + ")" * 1500,
    "C(" * 99 + "age age" + ")" * 99,
    "I(" + "-" * 5000 + "age)",
    "I(" + "-" * 200 + "age)",
    "I(" + "age+" * 2000 + "age)",
    "(a + b + age + d + sex + race + risk + score + class + log)**40",
    "((a + b + age + d + sex + race + risk + score)**8):((Ünï + X.1)**2)",
    ":".join(["(a + b + age + d + sex + race + risk + score)**8"] * 200),
    "*".join(COLUMNS[:15]),
    "age + " * 1600 + "sex",
]


@pytest.mark.parametrize("text", TOO_LARGE, ids=lambda value: value[:20])
def test_too_large_a_formula_is_refused_at_once(text):
    start = time.perf_counter()
    with pytest.raises(FormulaError):
        parse(text)
    assert time.perf_counter() - start < 2


def test_long_sums_of_few_terms_are_read():
    assert parse("~ " + "age + " * 250 + "sex").terms == ("age", "sex")
    assert parse("(a + b + age)**40").terms[-1] == "a:b:age"


def test_nothing_is_evaluated_when_a_part_is_refused(monkeypatch):
    monkeypatch.setattr("builtins.eval", lambda *_: pytest.fail("evaluated"))
    monkeypatch.setattr("patsy.EvalFactor", lambda *_: pytest.fail("evaluated"))
    with pytest.raises(FormulaError):
        parse("log(age) + center(d) + __import__('os').system('true')")


def test_the_callers_variables_are_not_seen():
    C, bmi = 0.5, np.zeros(600)  # noqa: F841
    data, shadowed, typo = bl37_caller_variables()
    formula = parse_formula(shadowed, data.columns)
    assert build_design(formula, data).names[1] == "C(race)[T.Other]"
    with pytest.raises(FormulaError, match=r"'bmi' is not a column.*variables are not seen"):
        parse_formula(typo, data.columns)


def test_an_unknown_name_comes_with_the_nearest_columns():
    with pytest.raises(FormulaError, match=r"outcome formula .*'raec'.*Nearest columns: 'race'"):
        parse_formula("~ raec", ["age", "race"], what="outcome")


# The pieces are signs, names and junk; put together at random, most of it is not a formula.
PIECES = [
    *("age", "sex", "risk-score", "body mass", "C", "log", "(", ")", "[", "]", "+", "-", "*", "/"),
    *(":", "**", "~", "0", "1", "2", "1.5", "'a'", '"', "`", ".", ",", "=", "==", "<", "&", "|"),
    *("bs", "df", "Q('a')", "lambda", "if", "not", "__x__", " ", "\n", "\x00", "é", "²", "\\", "{"),
]


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=14).map("".join)))
def test_random_text_never_raises_anything_but_a_formula_error(text):
    try:
        formula = parse(text)
    except FormulaError:
        return
    data = pd.DataFrame({name: np.linspace(0.1, 0.9, 8) for name in formula.columns}, range(8))
    with contextlib.suppress(FormulaError):
        assert np.isfinite(build_design(formula, data).matrix).all()


TERM = st.sampled_from(["a", "b", "age", "d", "0", "1", "(a + b)", "(age - 1)", "log(a)", "-1"])
OPERATORS = st.sampled_from([" + ", " - ", "*", "/", " : ", " + ", "**2 + "])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(TERM, OPERATORS), min_size=1, max_size=6), TERM)
def test_terms_expand_as_patsy_expands_them(pairs, last):
    text = "".join(term + operator for term, operator in pairs) + last
    try:
        expected = patsy.ModelDesc.from_formula("~ " + text).rhs_termlist
    except patsy.PatsyError:
        with pytest.raises(FormulaError):
            parse("~ " + text)
        return
    formula = parse("~ " + text, [*COLUMNS[:8]])
    names = [":".join(f.name() for f in term.factors) for term in expected]
    assert (["", *formula.terms] if formula.intercept else [*formula.terms]) == names


def test_a_column_of_a_learner_is_named_and_no_formula_is_shown():
    pytest.importorskip("sklearn")
    from sklearn.tree import DecisionTreeClassifier

    audit = cfair.Audit(cohort(60), outcome="y", score="s", cutoff=0.5, groups="sex", treatment="d")
    learner = cfair.Learner(DecisionTreeClassifier(), columns=["sex", "agee"])
    with pytest.raises(ValueError, match="propensity, columns of the Learner: 'agee' is not") as e:
        audit.counterfactual(learner)
    assert "'age'" in str(e.value)
    assert "~" not in str(e.value)
