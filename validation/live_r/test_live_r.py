"""The standard estimator, logistic fits, replicates and standard errors against R as it runs.

Tolerances: 1e-10 for what a logistic fit stands behind (R's ``glm`` with ``epsilon = 1e-15``), 1e-9
for its coefficients, 1e-8 where R differentiates numerically or goes towards infinity.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import cfair
from cfair.errors import RankWarning, SeparationWarning
from cfair.nuisance.logistic import fit_logistic
from validation.ledger import check, compare, quiet

pytestmark = pytest.mark.r
FIT, COEF = 1e-10, 1e-9
STATISTICS = ("average", "maximum", "variance")
FULL = "d ~ a1 * a2 + score + x1 + x2"


def draw(seed: int, n: int | None = None) -> pd.DataFrame:
    """A cohort without cfair's own generator; levels, sizes and strengths differ by seed."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(400, 2000)) if n is None else n
    levels = ("u", "v", "w")[: 2 + seed % 2]
    a1 = rng.choice(["a", "b"], n, p=[0.6, 0.4])
    a2 = rng.choice(levels, n)
    x1, x2 = rng.normal(size=n), rng.exponential(size=n)
    score = expit(0.8 * x1 - 0.4 * x2 + 0.3 * (a1 == "b") + rng.normal(size=n))
    d = rng.random(n) < expit(-0.8 + score + 0.4 * x1 - 0.5 * (a2 == "u") * (a1 == "a"))
    y = rng.random(n) < expit(-0.5 + 2 * (score - 0.5) - 0.7 * d + 0.3 * x2)
    return pd.DataFrame(
        {
            "y": y.astype(int), "d": d.astype(int), "score": score,
            "s": (score >= 0.5).astype(int), "a1": a1, "a2": a2, "x1": x1, "x2": x2,
        }
    )  # fmt: skip


def audit(data: pd.DataFrame, groups=("a1", "a2"), **roles) -> cfair.Audit:
    return cfair.Audit(
        data,
        outcome="y",
        score="score",
        cutoff=0.5,
        groups=list(groups),
        treatment="d",
        **roles,
    )


def analyse(data: pd.DataFrame, formula: str = FULL, **options):
    with quiet():
        return audit(data).counterfactual(formula, **options)


def as_vector(result) -> np.ndarray:
    """The figures in the order of `standard` in R."""
    parts = [
        result.rates.loc[result.rates["metric"] == m, "estimate"]
        for m in ("cfpr", "cfnr", "fpr", "fnr")
    ]
    parts += [
        result.marginals.loc[result.marginals["metric"] == m, "estimate"] for m in ("cfpr", "cfnr")
    ]
    summaries = result.disparities
    parts += [summaries.loc[summaries["metric"] == m, "estimate"] for m in ("cfpr", "cfnr")]
    return np.concatenate(parts)


# -- the standard estimator ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_standard_estimator(r, seed):
    data = draw(seed)
    formula = (FULL, "d ~ a1 + a2 + score + x1", "d ~ x1 + x2")[seed % 3]
    r.put("data", data)
    compare(
        "R: standard estimator",
        as_vector(analyse(data, formula)),
        r(f"standard(data, {formula})"),
        FIT,
    )


# -- glm -----------------------------------------------------------------------------------------

EXACTLY = "family = binomial, data = data, control = glm.control(epsilon = 1e-15, maxit = 100)"


@pytest.mark.parametrize("seed", range(6))
def test_glm(r, seed):
    data = draw(100 + seed)
    r.put("data", data)
    result = analyse(data)
    r.run(f"fit <- glm({FULL}, {EXACTLY})")
    section = "R: glm"
    names = dict(zip(r.text("names(coef(fit))"), r("coef(fit)"), strict=True))
    found = result.propensity.coefficients
    assert len(names) == len(found)
    for name, value in found.items():
        plain = name.replace("[T.", "").replace("]", "").replace("Intercept", "(Intercept)")
        compare(section, value, names[plain], COEF, name)
    compare(section, result.propensity.fitted, r("fitted(fit)"), FIT)
    compare(section, result.propensity.fit.deviance, r("deviance(fit)")[0], 1e-8)
    compare(section, result.weights, r("weights_of(data, " + FULL + ")"), 1e-9)


def test_glm_with_weights(r):
    """Whole-number weights, as a bootstrap replicate has them."""
    data = draw(150, 500)
    rng = np.random.default_rng(0)
    counts = rng.poisson(1.0, len(data))
    X = np.column_stack([np.ones(len(data)), data["x1"], data["x2"], data["score"]])
    fit = fit_logistic(X, data["d"].to_numpy(), weights=counts.astype(float))
    r.put("data", data.assign(count=counts))
    expected = r(f"coef(glm(d ~ x1 + x2 + score, weights = count, {EXACTLY}))")
    compare("R: glm", fit.coef, expected, COEF)


@pytest.mark.parametrize("seed", range(3))
def test_glm_of_deficient_rank(r, seed):
    """The same column is left out, with NaN for its coefficient, and predictions agree."""
    data = draw(200 + seed).assign(x3=lambda x: 2 * x["x1"] - x["x2"], x4=1.5)
    formula = "d ~ a1 + x1 + x2 + x3 + x4 + score"
    r.put("data", data)
    # a small epsilon would make glm's tolerance for a column that is left out small as well
    r.run(f"dropped <- names(which(is.na(coef(glm({formula}, family = binomial, data = data)))))")
    r.run(f"fit <- glm(d ~ a1 + x1 + x2 + score, {EXACTLY})")
    section = "R: glm, rank-deficient"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = audit(data).counterfactual(formula)
    check(section, any(issubclass(w.category, RankWarning) for w in caught), "warned")
    names = dict(zip(r.text("names(coef(fit))"), r("coef(fit)"), strict=True))
    names |= dict.fromkeys(r.text("dropped"), np.nan)
    check(section, r.text("dropped") == ["x3", "x4"], "R leaves out the same columns")
    for name, value in result.propensity.coefficients.items():
        plain = name.replace("[T.", "").replace("]", "").replace("Intercept", "(Intercept)")
        compare(section, value, names[plain], COEF, name)
    compare(section, result.propensity.fitted, r("fitted(fit)"), FIT)


@pytest.mark.parametrize("seed", range(3))
def test_glm_of_separated_data(r, seed):
    """R stops somewhere on the way to infinity; truncated probabilities and rates agree."""
    data = draw(300 + seed, 600)
    data["z"] = ((np.random.default_rng(seed).random(600) < 0.1) & (data["d"] == 0)).astype(int)
    formula = "d ~ a1 * a2 + score + x1 + z"
    r.put("data", data)
    r.run(f"fit <- glm({formula}, {EXACTLY})")
    section = "R: glm, separated"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = audit(data).counterfactual(formula)
    check(section, any(issubclass(w.category, SeparationWarning) for w in caught), "warned")
    compare(section, result.propensity.pi, r("pmin(pmax(fitted(fit), 0.005), 0.995)"), 1e-8)
    compare(section, as_vector(result), r(f"standard(data, {formula})"), 1e-8)


# -- replicates from R's own random numbers ------------------------------------------------------


@pytest.mark.parametrize("formula", ["d ~ score + x1 + x2", FULL, "d ~ a1 * x1 + a2 + score"])
def test_permutation_null(r, formula):
    """Labels are permuted by R's `sample`, the propensity refitted by R's `glm`."""
    data = draw(501, 900)
    r.put("data", data)
    r.run("set.seed(31); perm <- t(replicate(12, sample(nrow(data))))")
    r.run(
        "permuted <- function(p) { shuffled <- data;"
        " shuffled[c('a1', 'a2')] <- data[p, c('a1', 'a2')];"
        f" refit(shuffled, {formula}) }}"
    )
    expected = np.array(r("t(apply(perm, 1, permuted))"))
    permutations = np.array(r("perm")).astype(int) - 1
    draws = analyse(data, formula, permutations=permutations).null_draws
    compare("R: permutation null", replicate_columns(draws), expected, FIT, formula)


def replicate_columns(draws: pd.DataFrame) -> np.ndarray:
    """Columns in the order of `refit` in R: group rates of both metrics, then the summaries."""
    rates, summaries = [], []
    for metric in ("cfpr", "cfnr"):
        names = [q for m, q in draws.columns if m == metric and ": " not in q]
        rates += [draws[(metric, q)] for q in names if q not in STATISTICS]
        summaries += [draws[(metric, s)] for s in STATISTICS]
    return np.column_stack([*rates, *summaries])


@pytest.mark.parametrize("formula", ["d ~ score + x1 + x2", FULL])
def test_bootstrap_replicates(r, formula):
    """Rows are drawn within group by R's `sample`, the propensity refitted by R's `glm`."""
    data = draw(502, 900)
    r.put("data", data)
    r.run(
        "set.seed(32); rows <- t(replicate(12, unlist(lapply("
        "split(seq_len(nrow(data)), paste(data$a1, data$a2)), "
        "function(i) sample(i, length(i), replace = TRUE)))))"
    )
    expected = np.array(r(f"t(apply(rows, 1, function(i) refit(data[i, ], {formula})))"))
    resamples = np.array(r("rows")).astype(int) - 1
    draws = analyse(data, formula, resamples=resamples).boot_draws
    compare("R: bootstrap replicates", replicate_columns(draws), expected, 1e-9, formula)


# -- influence functions -------------------------------------------------------------------------

# Stacked estimating equations of the propensity and one rate, differentiated numerically in R.
SANDWICH = """
sandwich_se <- function(data, X, inside, negative) {
  y <- if (negative) data$y else 1 - data$y
  hit <- if (negative) 1 - data$s else data$s
  beta <- unname(coef(glm(data$d ~ X - 1, family = binomial,
                          control = glm.control(epsilon = 1e-15, maxit = 100))))
  equations <- function(par) {
    pi <- as.vector(plogis(X %*% par[-1]))
    w <- (1 - data$d) / (1 - pi)
    cbind(inside * y * w * (hit - par[1]), X * (data$d - pi))
  }
  w <- (1 - data$d) / (1 - as.vector(plogis(X %*% beta)))
  theta <- sum(inside * y * w * hit) / sum(inside * y * w)
  par <- c(theta, beta)
  slope <- sapply(seq_along(par), function(j) {
    step <- 1e-5; up <- par; down <- par
    up[j] <- up[j] + step; down[j] <- down[j] - step
    (colSums(equations(up)) - colSums(equations(down))) / (2 * step)
  })
  inverse <- solve(slope)
  V <- inverse %*% crossprod(equations(par)) %*% t(inverse)
  c(theta, sqrt(V[1, 1]))
}
"""


@pytest.mark.parametrize("seed", [801, 802])
def test_standard_errors_against_stacked_estimating_equations(r, seed):
    data = draw(seed)
    r.put("data", data)
    r.run(SANDWICH)
    r.run(f"X <- model.matrix({FULL.replace('d ~', '~')}, data)")
    with quiet():
        result = audit(data).counterfactual(FULL, truncation=None)
    for row in result.rates[result.rates["metric"].isin(["cfpr", "cfnr"])].itertuples():
        negative = "TRUE" if row.metric == "cfnr" else "FALSE"
        inside = f"as.numeric(data$a1 == '{row.a1}' & data$a2 == '{row.a2}')"
        expected = r(f"sandwich_se(data, X, {inside}, {negative})")
        compare("R: sandwich", [row.estimate, row.se], expected, 1e-8, row.group)
