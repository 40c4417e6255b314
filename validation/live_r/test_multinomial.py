"""Multinomial logistic regression against ``nnet::multinom``, run to its end.

``multinom`` minimises the deviance by BFGS and stops, at best, where the deviance no longer changes
in its last digit. A maximum is flat: where the deviance is known to 1e-15 of itself, coefficients
are known to about the square root of that. So the 24 fits of the first test agree to 1e-14 of
their deviance, but to 7e-7 in coefficients and probabilities; allowed are 2e-6 and 1e-6. What is
left is the optimiser's: after three Newton steps from where it stopped, written in R, all agree to
1e-14. Refits of replicates stop where a step would change no probability by 1e-8.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfair.formula import build_design, parse_formula
from cfair.nuisance.multinomial import MultinomialFit, fit_multinomial
from cfair.nuisance.multinomial_many import fit_multinomial_many, predict_many
from validation.ledger import check, compare

pytestmark = pytest.mark.r
STOPPED, STOPPED_COEF, POLISHED, MANY = 1e-6, 2e-6, 1e-11, 1e-8
TO_THE_END = "reltol = 1e-15, abstol = 1e-300, maxit = 5000, MaxNWts = 1e5, trace = FALSE"

# Coefficients have a row for each group but the first, as in nnet.
MULTINOMIAL = """
softmax <- function(B, X) { E <- exp(cbind(0, X %*% t(B))); E / rowSums(E) }
information <- function(B, X, w) {
  P <- softmax(B, X)[, -1, drop = FALSE]
  do.call(rbind, lapply(seq_len(ncol(P)), function(a) do.call(cbind, lapply(seq_len(ncol(P)),
    function(b) crossprod(X, w * P[, a] * ((a == b) - P[, b]) * X)))))
}
newton <- function(B, X, group, w) {
  own <- outer(as.integer(group), seq_len(nrow(B)) + 1, "==")
  for (step in 1:3) {
    score <- crossprod(X, w * (own - softmax(B, X)[, -1, drop = FALSE]))
    B <- B + matrix(solve(information(B, X, w), as.vector(score)), nrow(B), byrow = TRUE)
  }
  B
}
membership <- function(X, group, w = rep(1, nrow(X))) {  # Newton steps do the rest
  X <- unname(X)
  fit <- nnet::multinom(group ~ X - 1, weights = w, maxit = 1000, trace = FALSE)
  newton(matrix(coef(fit), nlevels(group) - 1), X, group, w)
}
"""


def people(seed: int, K: int) -> pd.DataFrame:
    """Groups that depend on numbers and on text; names in an order that is not that of codes."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(300, 700))
    x1, x2 = rng.normal(size=n), rng.exponential(size=n)
    site = rng.choice(["north", "south", "west"], n)
    X = np.column_stack([np.ones(n), x1, x2, site == "west"])
    p = np.exp(X @ rng.normal(0, 0.6, (4, K)))
    code = (rng.random(n)[:, None] > (p / p.sum(axis=1, keepdims=True)).cumsum(axis=1)).sum(axis=1)
    names = np.array(["m", "k", "p", "n", "o", "l"])
    return pd.DataFrame(
        {
            "group": names[code], "x1": x1, "x2": x2, "site": site,
            "w": rng.uniform(0.2, 3.0, n), "count": rng.poisson(1.2, n),
        }
    )  # fmt: skip


def fitted(data: pd.DataFrame, formula: str, weights: str | None = None) -> MultinomialFit:
    design = build_design(parse_formula(formula, data.columns), data)
    levels, code = np.unique(data["group"].to_numpy(dtype=str), return_inverse=True)
    w = None if weights is None else data[weights].to_numpy(dtype=float)
    return fit_multinomial(design.matrix, code, len(levels), weights=w)


def in_r(r, data: pd.DataFrame, formula: str, weights: str = "one") -> None:
    """Fit by multinom as `fit`, its design as `X`."""
    r.put("data", data.assign(one=1))
    r.run(MULTINOMIAL)
    r.run("data$group <- factor(data$group)")
    r.run(f"fit <- nnet::multinom({formula}, data, weights = {weights}, {TO_THE_END})")
    r.run(f"X <- unname(model.matrix({formula}, data)); w <- data${weights}")


def coefficients(r, code: str, K: int) -> np.ndarray:
    """(p, K - 1), as cfair has them beside the reference."""
    return np.array(r(code)).reshape(K - 1, -1).T


FORMULAS = {
    "~ x1 + x2 + site": "group ~ site + x1 + x2",
    "~ x1 * x2 + site + I(x1**2)": "group ~ site + x1 + x2 + x1:x2 + I(x1^2)",
}


@pytest.mark.parametrize("mine", FORMULAS)
@pytest.mark.parametrize("seed", range(12))
def test_multinomial_fits(r, seed, mine):
    K, weights = 3 + seed % 4, (None, "w", "count")[seed // 4]
    data = people(seed, K)
    fit = fitted(data, mine, weights)
    in_r(r, data, FORMULAS[mine], weights or "one")
    section = "R: multinom, as it ends"
    X, theirs = build_design(parse_formula(mine, data.columns), data).matrix, np.array(r("X"))
    order = [int(np.argmin(np.abs(theirs - column[:, None]).max(axis=0))) for column in X.T]
    assert sorted(order) == list(range(X.shape[1]))
    compare(section, fit.coef[:, 1:], coefficients(r, "coef(fit)", K)[order], STOPPED_COEF)
    compare(section, fit.fitted, r("fitted(fit)"), STOPPED)
    deviance = r("deviance(fit)")[0]
    compare(section, fit.deviance / deviance, 1.0, 1e-13, "deviance")
    errors = coefficients(r, "summary(fit)$standard.errors", K)[order]
    own = np.sqrt(np.diag(np.linalg.inv(fit.information))).reshape(K - 1, -1).T
    compare(section, own, errors, STOPPED, "standard errors")
    section = "R: multinom, then Newton steps"
    r.run("B <- newton(coef(fit), X, data$group, w)")
    compare(section, fit.coef[:, 1:], coefficients(r, "t(t(B))", K)[order], POLISHED)
    compare(section, fit.fitted, r("softmax(B, X)"), POLISHED)


def test_multinomial_predictions_on_new_rows(r):
    data, new = people(21, 4), people(22, 4).head(100)
    formula = "~ site * x1 + center(x2) + I(x1 > 0)"
    parsed = build_design(parse_formula(formula, data.columns), data)
    fit = fitted(data, formula)
    in_r(r, data, "group ~ site * x1 + scale(x2, scale = FALSE) + I(as.numeric(x1 > 0))")
    r.put("new", new)
    expected = r("predict(fit, new, type = 'probs')")
    compare("R: multinom, new rows", fit.predict(parsed.transform(new)), expected, STOPPED)


@pytest.mark.parametrize("seed", [31, 32, 33])
def test_multinomial_of_deficient_rank(r, seed):
    """multinom keeps all columns and ends at one of many maxima: probabilities are the same."""
    data = people(seed, 3 + seed % 3).assign(x3=lambda x: x["x1"] - 2 * x["x2"], x4=2.0)
    K = data["group"].nunique()
    fit = fitted(data, "~ site + x1 + x2 + x3 + x4")
    check("R: multinom, rank-deficient", (~fit.kept).tolist() == [0, 0, 0, 0, 0, 1, 1], "left out")
    in_r(r, data, "group ~ site + x1 + x2 + x3 + x4")
    section = "R: multinom, rank-deficient"
    compare(section, fit.fitted, r("fitted(fit)"), STOPPED)
    compare(section, fit.deviance / r("deviance(fit)")[0], 1.0, 1e-13, "deviance")
    in_r(r, data, "group ~ site + x1 + x2")
    r.run("B <- newton(coef(fit), X, data$group, w)")
    compare(section, fit.coef[:5, 1:], coefficients(r, "t(t(B))", K), POLISHED)
    check(section, bool(np.isnan(fit.coef[5:]).all()), "NaN for columns left out")


@pytest.mark.parametrize("seed", [41, 42, 43, 44])
@pytest.mark.parametrize("only", [True, False])
def test_multinomial_of_separated_data(r, seed, only):
    """`z` occurs in one group only, or in all groups but one: a coefficient is infinite.

    multinom gives up on its way, with a deviance that is up to 2e-6 above cfair's.
    """
    data = people(seed, 3 + seed % 4)
    last = data["group"] == data["group"].max()
    chosen = np.random.default_rng(seed).random(len(data)) < 0.3
    data["z"] = (chosen & (last if only else ~last)).astype(int)
    fit = fitted(data, "~ site + x1 + z")
    section = "R: multinom, separated"
    check(section, bool(fit.separated[-1].any() and not fit.separated[:-1].any()), "z is named")
    in_r(r, data, "group ~ site + x1 + z")
    compare(section, fit.fitted, r("fitted(fit)"), STOPPED)
    higher = r("deviance(fit)")[0] - fit.deviance
    check(section, bool(-1e-8 < higher < 1e-5), f"the deviance of multinom is higher by {higher}")
    finite = ~fit.separated[:, 1:]
    if not only:  # else the coefficients of all groups are relative to one that runs away
        theirs = coefficients(r, "coef(fit)", data["group"].nunique())
        compare(section, fit.coef[:, 1:][finite], theirs[finite], STOPPED_COEF)
        return
    # what the maximum goes to: certainty where z is 1, and the fit of the other rows without z
    r.run("rest <- data$z == 0; B <- membership(X[rest, 1:4], data$group[rest])")
    limit = np.where(data[["z"]] == 1, np.eye(fit.fitted.shape[1])[-1], r("softmax(B, X[, 1:4])"))
    compare(section, fit.fitted, limit, MANY)


def test_many_multinomial_fits_of_resampled_rows(r):
    """Rows drawn by R's `sample`, fitted together: they stop within 1e-8 in every probability."""
    data = people(51, 4)
    in_r(r, data, "group ~ site + x1 + x2")
    r.run("set.seed(51); rows <- replicate(12, sample(nrow(data), replace = TRUE))")
    rows = np.array(r("rows")).astype(int) - 1
    X = build_design(parse_formula("~ site + x1 + x2", data.columns), data).matrix
    levels, code = np.unique(data["group"].to_numpy(dtype=str), return_inverse=True)
    counts = np.stack([np.bincount(i, minlength=len(data)) for i in rows.T]).astype(float)
    fits = fit_multinomial_many(X, code, len(levels), counts)
    section = "R: multinom, many fits at once"
    check(section, bool(fits.converged.all()), "all converged")
    for b, found in enumerate(predict_many(fits.coef, X)):
        r.run(f"i <- rows[, {b + 1}]; B <- membership(X[i, ], data$group[i])")
        compare(section, found, r("softmax(B, X)"), MANY)
        theirs = coefficients(r, "t(t(B))", len(levels))
        compare(section, fits.coef[b][:, 1:], theirs, 10 * MANY)
