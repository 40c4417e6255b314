"""cfair against R as it runs: glm, model.matrix, quantile, p.adjust, prop.test, and our own R code.

Tolerances: 1e-12 for ratios of counts and for design columns, 1e-10 for what a logistic fit stands
behind (R's ``glm`` with ``epsilon = 1e-15``), 1e-9 for its coefficients.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import cfair
from cfair.errors import RankWarning, SeparationWarning
from cfair.inference.bootstrap import bootstrap_interval
from cfair.nuisance.logistic import fit_logistic
from validation.ledger import check, compare, quiet

pytestmark = pytest.mark.r
COUNT, FIT, COEF = 1e-12, 1e-10, 1e-9
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


def audit(data: pd.DataFrame, groups=("a1", "a2"), weights=None) -> cfair.Audit:
    return cfair.Audit(
        data,
        outcome="y",
        score="score",
        cutoff=0.5,
        groups=list(groups),
        treatment="d",
        weights=weights,
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


# -- formulas ------------------------------------------------------------------------------------

# patsy orders columns by kind, R by order: columns are matched, not their places
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
    ("center(x1)", "scale(x1, scale = FALSE)"),
    ("standardize(x1, ddof=1)", "scale(x1)"),
    ("C(a2, Treatment('v'))", "relevel(factor(a2), 'v')"),
    ("C(a2, Sum)", "C(factor(a2), contr.sum)"),
    ("C(a2, Poly)", "C(factor(a2), contr.poly)"),
    ("bs(x1, df=5)", "splines::bs(x1, df = 5)"),
    ("bs(x1, knots=(-0.5, 0.5), degree=2)", "splines::bs(x1, knots = c(-0.5, 0.5), degree = 2)"),
]


@pytest.mark.parametrize(("mine", "theirs"), EQUAL)
def test_design_columns(r, mine, theirs):
    data = draw(401, 500)  # three levels of a2
    r.put("data", data)
    design = analyse(data, f"d ~ {mine}").propensity.design.matrix
    expected = np.array(r(f"model.matrix(~ {theirs}, data = data)"))
    assert design.shape == expected.shape, (design.shape, expected.shape)
    free = list(range(expected.shape[1]))
    for column in design.T:
        distance = [np.abs(column - expected[:, j]).max() for j in free]
        at = free.pop(int(np.argmin(distance)))
        compare("R: design columns", column, expected[:, at], COUNT, mine)


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
    compare("R: designs, same fit", fitted, r(f"fitted(glm(d ~ {theirs}, {EXACTLY}))"), 1e-9, mine)


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


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_bootstrap_intervals(r, level):
    """Percentile and basic intervals are R's quantile type 7, the normal one its `sd`."""
    rng = np.random.default_rng(7)
    draws, estimate = rng.beta(2, 5, (211, 6)), np.full(6, 0.3)
    r.put("draws", draws)
    section = "R: quantiles and normal limits"
    tails = f"c({(1 - level) / 2!r}, {(1 + level) / 2!r})"
    quantiles = np.array(r(f"apply(draws, 2, quantile, probs = {tails}, type = 7)"))
    percentile = bootstrap_interval(estimate, draws, "percentile", level)
    compare(section, [percentile.low, percentile.high], quantiles, COUNT)
    basic = bootstrap_interval(estimate, draws, "basic", level)
    compare(section, [basic.low, basic.high], 2 * estimate - quantiles[::-1], COUNT)
    normal = bootstrap_interval(estimate, draws, "normal", level)
    half = r(f"qnorm({(1 + level) / 2!r}) * apply(draws, 2, sd)")
    compare(section, [normal.low, normal.high], [estimate - half, estimate + half], COUNT)


# -- adjustments, intervals, tests ---------------------------------------------------------------

ADJUST = {
    "holm": "holm",
    "bonferroni": "bonferroni",
    "simes-hochberg": "hochberg",
    "hommel": "hommel",
    "fdr_bh": "BH",
    "fdr_by": "BY",
}


@pytest.mark.parametrize("method", ADJUST)
def test_adjusted_p_values(r, method):
    result = analyse(draw(601))
    for frame in (
        result.contrasts(adjust=method),
        result.contrasts(("a", "u"), adjust=method),
        result.contrasts(adjust=method, kind="ratio", metrics="cfpr"),
    ):
        r.put("p", frame["p_value"])
        expected = r(f"p.adjust(p, '{ADJUST[method]}')")
        compare("R: p.adjust", frame["p_adjusted"], expected, COUNT, method)


def observed_counts(data: pd.DataFrame) -> pd.DataFrame:
    """Numerators and denominators of the observed rates, a row per metric and group."""
    rows = []
    for metric, of, hit in (
        ("fpr", data["y"] == 0, data["s"] == 1),
        ("fnr", data["y"] == 1, data["s"] == 0),
        ("tpr", data["y"] == 1, data["s"] == 1),
        ("ppv", data["s"] == 1, data["y"] == 1),
        ("prevalence", data["y"] >= 0, data["y"] == 1),
    ):
        for (a1, a2), part in data.groupby(["a1", "a2"]):
            chosen = of[part.index]
            n, x = int(chosen.sum()), int((chosen & hit[part.index]).sum())
            rows.append((metric, f"{a1} & {a2}", x, n))
    return pd.DataFrame(rows, columns=["metric", "group", "x", "n"])


@pytest.mark.parametrize(
    ("interval", "code"),
    [
        ("wilson", "prop.test(x, n, correct = FALSE, conf.level = 0.9)$conf.int"),
        ("clopper-pearson", "binom.test(x, n, conf.level = 0.9)$conf.int"),
    ],
)
@pytest.mark.parametrize("seed", [701, 702])
def test_observed_intervals(r, interval, code, seed):
    data = draw(seed)
    with quiet():
        frame = audit(data).observed(interval=interval, level=0.9).rates
    frame = frame.set_index(["metric", "group"])
    for row in observed_counts(data).itertuples():
        found = frame.loc[(row.metric, row.group)]
        limits = r(f"x <- {row.x}; n <- {row.n}; as.vector({code})")
        tolerance = 1e-12 if interval == "wilson" else 1e-10
        compare(
            f"R: observed intervals, {interval}",
            [found["estimate"], found["ci_low"], found["ci_high"]],
            [row.x / row.n, *limits],
            tolerance,
        )


def test_newcombe_intervals_of_differences(r):
    """Method 10 of Newcombe (1998), from R's Wilson limits."""
    data = draw(703)
    with quiet():
        frame = audit(data).observed().contrasts(adjust=None, metrics=["fpr", "fnr"])
    counts = observed_counts(data).set_index(["metric", "group"])
    r.run(
        "newcombe <- function(x1, n1, x2, n2) {"
        " a <- prop.test(x1, n1, correct = FALSE)$conf.int;"
        " b <- prop.test(x2, n2, correct = FALSE)$conf.int;"
        " p1 <- x1 / n1; p2 <- x2 / n2; e <- p1 - p2;"
        " c(e, e - sqrt((p1 - a[1])^2 + (b[2] - p2)^2), e + sqrt((a[2] - p1)^2 + (p2 - b[1])^2)) }"
    )
    for row in frame.itertuples():
        one, two = counts.loc[(row.metric, row.group)], counts.loc[(row.metric, row.reference)]
        expected = r(f"newcombe({one['x']}, {one['n']}, {two['x']}, {two['n']})")
        compare("R: Newcombe intervals", [row.estimate, row.ci_low, row.ci_high], expected, COUNT)


def test_logit_wald_of_observed_rates(r):
    """Chi-square of equal logits with inverse-variance weights, written in R."""
    data = draw(704)
    with quiet():
        tests = audit(data).observed().test_equal().set_index("metric")
    counts = observed_counts(data)
    r.run(
        "wald <- function(x, n) { p <- x / n; l <- qlogis(p); w <- n * p * (1 - p);"
        " q <- sum(w * (l - sum(w * l) / sum(w))^2);"
        " c(q, length(x) - 1, pchisq(q, length(x) - 1, lower.tail = FALSE)) }"
    )
    for metric in ("fpr", "fnr", "ppv"):
        part = counts[counts["metric"] == metric]
        r.put("x", part["x"])
        r.put("n", part["n"])
        found = tests.loc[metric, ["wald", "df", "p_value"]]
        compare("R: logit Wald", found, r("wald(x, n)"), 1e-9, metric)


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


# The same for doubly robust rates and the outcome model alone, with sampling weights.
DOUBLE_SANDWICH = """
double_sandwich <- function(data, X, M, M0, used, inside, negative, augmented, a) {
  exact <- glm.control(epsilon = 1e-15, maxit = 100)
  hit <- if (negative) 1 - data$s else data$s
  fit <- function(X, y, w) unname(coef(suppressWarnings(
    glm(y ~ X - 1, family = binomial, weights = w, control = exact))))
  beta <- fit(X, data$d, a)
  gamma <- fit(M[used == 1, ], data$y[used == 1], a[used == 1])
  p <- length(beta)
  share <- function(par) {
    mu <- as.vector(plogis(M0 %*% par[-seq_len(p)]))
    if (!augmented) return(if (negative) mu else 1 - mu)
    w <- (1 - data$d) / (1 - as.vector(plogis(X %*% par[seq_len(p)])))
    phi <- w * (data$y - mu) + mu
    if (negative) phi else 1 - phi
  }
  equations <- function(par) {
    pi <- as.vector(plogis(X %*% par[1 + seq_len(p)]))
    mu <- as.vector(plogis(M %*% par[-seq_len(p + 1)]))
    a * cbind(inside * share(par[-1]) * (hit - par[1]), X * (data$d - pi),
              used * M * (data$y - mu))
  }
  value <- a * inside * share(c(beta, gamma))
  par <- c(sum(value * hit) / sum(value), beta, gamma)
  slope <- sapply(seq_along(par), function(j) {
    step <- 1e-5; up <- par; down <- par
    up[j] <- up[j] + step; down[j] <- down[j] - step
    (colSums(equations(up)) - colSums(equations(down))) / (2 * step)
  })
  inverse <- solve(slope)
  V <- inverse %*% crossprod(equations(par)) %*% t(inverse)
  c(par[1], sqrt(V[1, 1]))
}
"""


@pytest.mark.parametrize("estimator", ["aipw", "plugin"])
@pytest.mark.parametrize("all_rows", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_doubly_robust_rates_against_stacked_estimating_equations(r, estimator, all_rows, weighted):
    data = draw(803)
    data["a"] = np.random.default_rng(5).uniform(0.3, 3.0, len(data)) if weighted else 1.0
    r.put("data", data)
    r.run(DOUBLE_SANDWICH)
    right = FULL.replace("d ~", "~")
    outcome = f"y ~ d * s + {right[1:]}" if all_rows else f"y ~ s + {right[1:]}"
    r.run(f"X <- model.matrix({right}, data)")
    r.run(f"M <- model.matrix({outcome.replace('y ~', '~')}, data)")
    r.run(f"none <- data; none$d <- 0; M0 <- model.matrix({outcome.replace('y ~', '~')}, none)")
    used = "rep(1, nrow(data))" if all_rows else "1 - data$d"
    with quiet():
        result = audit(data, weights="a").counterfactual(
            FULL, outcome_model=outcome, estimator=estimator, truncation=None
        )
    augmented = "TRUE" if estimator == "aipw" else "FALSE"
    for row in result.rates[result.rates["metric"].isin(["cfpr", "cfnr"])].itertuples():
        negative = "TRUE" if row.metric == "cfnr" else "FALSE"
        inside = f"as.numeric(data$a1 == '{row.a1}' & data$a2 == '{row.a2}')"
        expected = r(
            f"double_sandwich(data, X, M, M0, {used}, {inside}, {negative}, {augmented}, data$a)"
        )
        compare("R: sandwich, outcome model", [row.estimate, row.se], expected, 1e-8, row.group)
