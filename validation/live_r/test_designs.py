"""Designs: what a formula makes of numbers, text, categories and missing values, against R.

Columns of designs agree to 1e-12, or span the same space to 1e-9; fits to them agree to 1e-9, since
``glm`` runs with ``epsilon = 1e-15``. With that epsilon ``glm`` would keep linearly dependent
columns, so where R's columns are dependent it is given an orthonormal basis of them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from cfair.errors import FormulaError
from cfair.formula import build_design, parse_formula
from cfair.nuisance.logistic import fit_logistic
from validation.ledger import check, compare, quiet
from validation.live_r.test_live_r import EXACTLY, analyse, as_vector, audit, draw

pytestmark = pytest.mark.r
COLUMN, FIT = 1e-12, 1e-9
SPAN = """
basis <- function(X) { q <- qr(X); qr.Q(q)[, seq_len(q$rank), drop = FALSE] }
outside <- function(M, Q) max(abs(M - Q %*% crossprod(Q, M)))
"""


def design_of(data: pd.DataFrame, formula: str):
    return build_design(parse_formula(f"d ~ {formula}", data.columns), data)


def same_columns(section: str, design: np.ndarray, expected: np.ndarray, what: str) -> None:
    """patsy orders columns by kind, R by order: columns are matched, not their places."""
    assert design.shape == expected.shape, (what, design.shape, expected.shape)
    free = list(range(expected.shape[1]))
    for column in design.T:
        distance = [np.abs(column - expected[:, j]).max() for j in free]
        at = free.pop(int(np.argmin(distance)))
        compare(section, column, expected[:, at], COLUMN, what)


def same_span(r, section: str, data: pd.DataFrame, formula: str, theirs: str) -> None:
    """Ranks, spaces and fits of cfair's design and of the columns that R code gives."""
    design = design_of(data, formula).matrix
    fit = fit_logistic(design, data["d"].to_numpy())
    r.run(SPAN)
    r.put("M", design)
    r.run(f"X <- {theirs}; Q <- basis(X)")
    compare(section, fit.kept.sum(), r("ncol(Q)")[0], 0, f"rank of {formula}")
    scale = np.maximum(1.0, [np.abs(design).max(), np.abs(r("X")).max()])
    distance = [r("outside(M, Q)")[0], r("outside(X, basis(M))")[0]] / scale
    compare(section, distance, [0.0, 0.0], FIT, f"space of {formula}")
    compare(section, fit.fitted, r(f"fitted(glm(d ~ Q - 1, {EXACTLY}))"), FIT, formula)


# -- the same columns ----------------------------------------------------------------------------

EQUAL = [
    ("a1", "a1"),
    ("a1 + a2 + x1", "a1 + a2 + x1"),
    ("a1 * a2", "a1 * a2"),
    ("a1 * a2 * x1", "a1 * a2 * x1"),
    ("a1 * x1 + a2", "a1 * x1 + a2"),
    ("x1 * x2", "x1 * x2"),
    ("x1:x2 + x1", "x1:x2 + x1"),
    ("a1 - 1", "a1 - 1"),
    ("0 + a2 + x1", "0 + a2 + x1"),
    ("(a1 + a2 + x1)**2", "(a1 + a2 + x1)^2"),
    ("a1 * a2 - a1:a2", "a1 * a2 - a1:a2"),
    ("x1 + I(x1**2)", "x1 + I(x1^2)"),
    ("I(x1 + x2)", "I(x1 + x2)"),
    ("I(score >= 0.5)", "I(as.numeric(score >= 0.5))"),
    ("log(x2) + exp(x1) + sqrt(x2)", "log(x2) + exp(x1) + sqrt(x2)"),
    ("log1p(x2) + log2(x2) + log10(x2)", "log1p(x2) + log2(x2) + log10(x2)"),
    ("sin(x1) + cos(x1) + abs(x1)", "sin(x1) + cos(x1) + abs(x1)"),
    ("minimum(x1, x2) + clip(x1, -1, 1)", "pmin(x1, x2) + pmin(pmax(x1, -1), 1)"),
    ("where(x1 > 0, x2, 0)", "ifelse(x1 > 0, x2, 0)"),
    ("center(x1)", "scale(x1, scale = FALSE)"),
    ("standardize(x1, ddof=1)", "scale(x1)"),
    ("C(a2, Treatment('v'))", "relevel(factor(a2), 'v')"),
    ("C(a2, Sum)", "C(factor(a2), contr.sum)"),
    ("C(a2, Poly)", "C(factor(a2), contr.poly)"),
    ("C(a2, Diff)", "C(factor(a2), MASS::contr.sdif)"),
    ("C(site)", "factor(site)"),
    ("bs(x1, df=5)", "splines::bs(x1, df = 5)"),
    ("bs(x1, knots=(-0.5, 0.5), degree=2)", "splines::bs(x1, knots = c(-0.5, 0.5), degree = 2)"),
]


@pytest.mark.parametrize(("mine", "theirs"), EQUAL)
def test_design_columns(r, mine, theirs):
    data = draw(401, 500).assign(site=lambda x: (x["x2"] * 7).astype(int) % 4)
    r.put("data", data)
    design = analyse(data, f"d ~ {mine}").propensity.design.matrix
    same_columns("R: design columns", design, r(f"model.matrix(~ {theirs}, data = data)"), mine)


SAME_SPAN = [
    ("a1:a2", "a1:a2 - 1"),  # one column less than in R, where one is left out
    ("a1 + a1:x1", "a1 + a1:x1"),
    ("a2 / x1", "a2 / x1"),
    ("x1 + I(x1**2) + I(x1**3)", "poly(x1, 3)"),
    ("C(a2, Helmert)", "C(factor(a2), contr.helmert)"),
    ("cr(x1, df=4)", "splines::ns(x1, knots = quantile(x1, c(1, 2) / 3))"),
]


@pytest.mark.parametrize(("mine", "theirs"), SAME_SPAN)
def test_designs_with_other_columns_give_the_same_fit(r, mine, theirs):
    data = draw(403, 800)
    r.put("data", data)
    fitted = analyse(data, f"d ~ {mine}").propensity.fitted
    compare("R: designs, same fit", fitted, r(f"fitted(glm(d ~ {theirs}, {EXACTLY}))"), FIT, mine)


SPLINES = [
    ("bs(x1, df=6, degree=2, include_intercept=True)", "bs(x1, df = 6, degree = 2, intercept = T)"),
    ("bs(x1, df=4) * a2", "model.matrix(~ bs(x1, df = 4) * a2)"),
    ("cr(x1, df=5)", "smoothCon(s(x1, bs = 'cr', k = 5), data)[[1]]$X"),
    ("cc(x1, df=4)", "smoothCon(s(x1, bs = 'cc', k = 5), data)[[1]]$X"),  # two of its knots are one
    ("te(cr(x1, df=3), cr(x2, df=4))", "smoothCon(te(x1, x2, bs = 'cr', k = 3:4), data)[[1]]$X"),
]


@pytest.mark.parametrize(("mine", "theirs"), SPLINES)
def test_splines_span_what_those_of_mgcv_and_splines_do(r, mine, theirs):
    data = draw(405, 600)
    r.put("data", data)
    for name in ("s", "te", "smoothCon"):
        theirs = theirs.replace(f"{name}(", f"mgcv::{name}(") if "bs = 'c" in theirs else theirs
    theirs = theirs.replace("bs(", "splines::bs(")
    same_span(r, "R: designs, splines", data, mine, f"with(data, cbind(1, {theirs}))")


# -- random formulas -----------------------------------------------------------------------------

PARTS = ("a1", "a2", "flag", "x1", "x2", "I(x1**2)", "I(x1 * x2)")


def random_formula(seed: int) -> str:
    """Sums of terms, pairs with `:`, crossings and nestings, with or without intercept."""
    rng = np.random.default_rng(seed)
    terms = []
    for _ in range(rng.integers(1, 5)):
        sign = rng.choice(["", ":", "*", "/", "**"])
        chosen = rng.choice(PARTS, {"": 1, "*": rng.integers(2, 4)}.get(sign, 2), replace=False)
        if sign == "/" and "I" in chosen[0]:
            chosen = chosen[::-1]
        joined = f" {sign} ".join(chosen) if sign != "**" else f"({' + '.join(chosen)})**2"
        terms.append(joined)
    text = " + ".join(terms)
    kind = rng.random()
    if kind < 0.15:
        return f"{text} - 1"
    if kind < 0.3:
        return f"0 + {text}"
    return f"{text} - {rng.choice(PARTS)}" if kind < 0.45 else text


# R takes the term x1:x2 for the margin x1 of a2:x1, and leaves a column out. That is right for
# factors, whose interactions hold their margins, but not for numbers.
SHORT_IN_R = {8, 20, 39}


@pytest.mark.parametrize("seed", range(48))
def test_random_formulas(r, seed):
    """As R codes them, and with an indicator of every level of every factor."""
    data = draw(411, 300).assign(flag=lambda x: x["x2"] > 0.7)
    formula = random_formula(seed)
    r.put("data", data)
    r.run("for (f in c('a1', 'a2', 'flag')) data[[f]] <- factor(data[[f]])")
    theirs = formula.replace("**", "^")
    r.run(
        f"used <- intersect(all.vars(~ {theirs}), c('a1', 'a2', 'flag'));"
        "every <- if (length(used)) lapply(data[used], contrasts, contrasts = FALSE)"
    )
    section = "R: random formulas"
    coded = f"model.matrix(~ {theirs}, data)"
    every = f"model.matrix(~ {theirs}, data, contrasts.arg = every)"
    same_span(r, section, data, formula, every)
    if seed in SHORT_IN_R:
        rank = fit_logistic(design_of(data, formula).matrix, data["d"].to_numpy()).kept.sum()
        check(section, bool(r(f"qr({coded})$rank")[0] < rank), f"R has a column less: {formula}")
    else:
        same_span(r, section, data, formula, coded)


# -- missing values ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [421, 422, 423])
def test_rows_with_missing_values_are_those_that_na_omit_leaves_out(r, seed):
    """In outcome, treatment, score, attributes and covariates; not in a column nobody uses."""
    data, rng = draw(seed), np.random.default_rng(seed)
    data["spare"] = np.where(rng.random(len(data)) < 0.2, np.nan, 1.0)
    data["site"] = rng.choice(["e", "f", "g"], len(data))
    for name in ("y", "d", "score", "a1", "a2", "x1", "site"):
        hole = rng.random(len(data)) < 0.03
        data[name] = data[name].mask(hole)
    formula = "d ~ a1 * a2 + score + x1 + site"
    with quiet():
        result = audit(data, missing="drop").counterfactual(formula)
    texts = ("a1", "a2", "site")
    r.put("data", data.assign(s=0, **{c: data[c].astype(object).fillna("") for c in texts}))
    r.run(f"for (f in c{texts}) data[[f]][data[[f]] == ''] <- NA")
    r.run(f"fit <- glm({formula}, {EXACTLY}, na.action = na.omit, subset = !is.na(y))")
    section = "R: missing values"
    kept = r("as.integer(names(fitted(fit)))") - 1
    compare(section, result.cohort.rows, kept, 0, "rows")
    compare(section, result.propensity.fitted, r("fitted(fit)"), FIT)
    compare(section, result.propensity.fit.deviance, r("deviance(fit)")[0], 1e-8)
    r.run("data$s <- as.numeric(data$score >= 0.5); used <- na.omit(data[names(data) != 'spare'])")
    compare(section, as_vector(result), r(f"standard(used, {formula})"), 1e-10, "rates")


# -- categories ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "levels", [("w", "u", "v"), ("v", "w", "u"), ("z", "w", "v", "u", "t")], ids="".join
)
@pytest.mark.parametrize("formula", ["a2", "a1 * a2", "a2 * x1 - 1", "a1:a2 + x1"])
def test_order_and_unused_levels_of_a_categorical(r, levels, formula):
    """The first level is the reference; one without rows has no column, as in a model frame."""
    data = draw(431, 500)
    r.put("data", data)
    r.run(f"data$a2 <- factor(data$a2, levels = c{levels})")
    data["a2"] = pd.Categorical(data["a2"], categories=list(levels))
    section = "R: categories"
    r.run(f"frame <- model.frame(d ~ {formula}, data, drop.unused.levels = TRUE)")
    if ":" in formula and "*" not in formula:  # R has a column more, which depends on the others
        same_span(r, section, data, formula, f"model.matrix(~ {formula}, frame)")
    else:
        expected = np.array(r(f"model.matrix(~ {formula}, frame)"))
        same_columns(section, design_of(data, formula).matrix, expected, formula)
    fitted = analyse(data, f"d ~ {formula}").propensity.fitted
    r.run(f"Q <- basis(model.matrix(~ {formula}, frame))")
    compare(section, fitted, r(f"fitted(glm(d ~ Q - 1, {EXACTLY}))"), FIT, formula)


def test_ordered_categories_have_indicators_where_r_has_polynomials(r):
    """The same space; `C(a2, Poly)` gives the polynomials."""
    data = draw(433, 500)
    r.put("data", data)
    r.run("data$a2 <- ordered(data$a2, levels = c('v', 'u', 'w'))")
    data["a2"] = pd.Categorical(data["a2"], categories=["v", "u", "w"], ordered=True)
    section = "R: categories"
    for formula in ("a2", "a2 * x1", "a1 * a2"):
        same_span(r, section, data, formula, f"model.matrix(~ {formula}, data)")
    expected = np.array(r("model.matrix(~ a2 * x1, data)"))
    same_columns(section, design_of(data, "C(a2, Poly) * x1").matrix, expected, "Poly")
    expected = np.array(r("model.matrix(~ factor(a2, ordered = FALSE), data)"))
    same_columns(section, design_of(data, "a2").matrix, expected, "Treatment")


@pytest.mark.parametrize("formula", ["flag", "flag * x1", "flag:a1 + x1", "flag - 1", "a2 * flag"])
@pytest.mark.parametrize("name", ["bool", "boolean"])
def test_true_and_false(r, formula, name):
    data = draw(435, 500)
    data["flag"] = (data["x2"] > 0.7).astype(name)
    r.put("data", data.astype({"flag": int}))
    r.run("data$flag <- data$flag == 1")
    theirs = f"model.matrix(~ {formula}, data)"
    if ":" in formula:
        same_span(r, "R: categories", data, formula, theirs)
    else:
        same_columns("R: categories", design_of(data, formula).matrix, r(theirs), formula)


# -- new rows ------------------------------------------------------------------------------------

ON_NEW_ROWS = [
    ("a1 * a2 + x1 + I(x2**2)", "a1 * a2 + x1 + I(x2^2)"),
    ("center(x1) * a2", "scale(x1, scale = FALSE) * a2"),
    ("standardize(x1) + scale(x2, ddof=1)", "scale(x1) + scale(x2)"),
    ("standardize(log(x2)) * standardize(x1)", "scale(log(x2)) * scale(x1)"),
    ("bs(x1, df=5) + a1", "splines::bs(x1, df = 5) + a1"),
    ("bs(x2, knots=(0.5, 1), degree=2)", "splines::bs(x2, knots = c(0.5, 1), degree = 2)"),
    ("cr(x1, df=4) + x2", "splines::ns(x1, knots = quantile(x1, c(1, 2) / 3)) + x2"),
    ("x1 + I(x1**2) + I(x1**3)", "poly(x1, 3)"),
    ("C(a2, Poly) + C(a1, Sum)", "C(a2, contr.poly) + C(a1, contr.sum)"),
]


@pytest.mark.parametrize(("mine", "theirs"), ON_NEW_ROWS)
def test_predictions_on_new_rows(r, mine, theirs):
    """Means, scales, knots and levels are those of the rows of the fit."""
    data, new = draw(441, 500), draw(443, 300)
    new = new[new["a2"] != "u"].reset_index(drop=True)  # a level less
    new.loc[0, ["x1", "x2"]] = data["x1"].max() + 1, data["x2"].max() + 1
    if "bs(" in mine:  # has no values beyond its knots, where R warns and goes on
        names = ("x1", "x2")
        inside = [new[c].between(data[c].min(), data[c].max()) for c in names]
        with pytest.raises(FormulaError, match="outside the outermost knots"):
            design_of(data, mine).transform(new)
        new = new[inside[0] & inside[1]]
    for name, frame in (("data", data), ("new", new)):
        r.put(name, frame)
        r.run(f"for (f in c('a1', 'a2')) {name}[[f]] <- factor({name}[[f]])")
    design = design_of(data, mine)
    fit = fit_logistic(design.matrix, data["d"].to_numpy())
    r.run(f"fit <- glm(d ~ {theirs}, {EXACTLY})")
    found = expit(design.transform(new) @ np.nan_to_num(fit.coef))
    expected = r("predict(fit, new, type = 'response')")
    compare("R: designs, new rows", found, expected, FIT, mine)
