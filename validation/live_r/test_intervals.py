"""Intervals, adjusted p-values, tests and shares of replicates, against R's own or by hand in R.

Tolerances: 1e-12 for closed forms of counts and draws; 1e-10 where R itself searches a quantile of
a beta distribution; 1e-9 for what is solved by `uniroot` or stands behind a covariance.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfair.inference.bootstrap import bootstrap_interval
from cfair.results.contrasts import ADJUSTMENTS
from validation.ledger import compare, quiet
from validation.live_r.test_live_r import FULL, STATISTICS, analyse, audit, draw

pytestmark = pytest.mark.r
COUNT = 1e-12

# -- from replicates -----------------------------------------------------------------------------


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
    r.put("estimate", estimate)
    r.run(
        f"corrected <- function(x, e) {{ z <- qnorm(mean(x < e) + mean(x == e) / 2);"
        f" quantile(x, pnorm(2 * z + qnorm({tails})), type = 7) }}"
    )
    bias_corrected = bootstrap_interval(estimate, draws, "bc", level)
    expected = r("mapply(corrected, as.data.frame(draws), estimate)")
    compare(section, [bias_corrected.low, bias_corrected.high], expected, COUNT)
    normal = bootstrap_interval(estimate, draws, "normal", level)
    half = r(f"qnorm({(1 + level) / 2!r}) * apply(draws, 2, sd)")
    compare(section, [normal.low, normal.high], [estimate - half, estimate + half], COUNT)


def test_shares_of_the_permutation_null(r):
    """p-values (1 + #{null >= obs}) / (1 + R), u-values with delta, squared for the variance."""
    result = analyse(draw(611, 700), n_perm=99)
    section = "R: permutation p-values and u-values"
    for metric in ("cfpr", "cfnr"):
        r.put("null", result.null_draws[[(metric, s) for s in STATISTICS]].to_numpy())
        frame = result.disparities[result.disparities["metric"] == metric]
        r.put("obs", frame["estimate"])
        expected = r("sapply(1:3, function(k) (1 + sum(null[, k] >= obs[k])) / (1 + nrow(null)))")
        compare(section, frame["p_value"], expected, COUNT, metric)
        for delta in (0.0, 0.02, 0.1):
            u = result.u_values(delta).query("metric == @metric")["u_value"]
            r.put("delta", np.array([delta, delta, delta**2]))
            expected = r("sapply(1:3, function(k) mean(obs[k] - null[, k] > delta[k]))")
            compare(section, u, expected, COUNT, f"{metric}, delta {delta}")


# -- adjustments, intervals and tests of observed rates ------------------------------------------

ADJUST = {
    "holm": "p.adjust(p, 'holm')",
    "bonferroni": "p.adjust(p, 'bonferroni')",
    "simes-hochberg": "p.adjust(p, 'hochberg')",
    "hommel": "p.adjust(p, 'hommel')",
    "fdr_bh": "p.adjust(p, 'BH')",
    "fdr_by": "p.adjust(p, 'BY')",
    # R has these by hand only
    "sidak": "1 - (1 - p)^length(p)",
    "holm-sidak": "cummax(1 - (1 - sort(p))^(length(p):1))[rank(p, ties.method = 'first')]",
}


def test_every_adjustment_has_a_counterpart():
    assert set(ADJUST) == set(ADJUSTMENTS)


@pytest.mark.parametrize("method", ADJUST)
def test_adjusted_p_values(r, method):
    result = analyse(draw(601))
    for frame in (
        result.contrasts(adjust=method),
        result.contrasts(("a", "u"), adjust=method),
        result.contrasts(adjust=method, kind="ratio", metrics="cfpr"),
    ):
        r.put("p", frame["p_value"])
        expected = r(ADJUST[method])
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
        (
            "agresti-coull",
            "q <- qnorm(0.95)^2; m <- n + q; p <- (x + q / 2) / m;"
            "pmin(pmax(p + c(-1, 1) * sqrt(q * p * (1 - p) / m), 0), 1)",
        ),
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
        limits = r(f"x <- {row.x}; n <- {row.n}; as.vector({{{code}}})")
        tolerance = 1e-10 if interval == "clopper-pearson" else COUNT
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


# -- rates with a covariance ---------------------------------------------------------------------

# Wilson's interval for an effective size, and MOVER: the interval of a - r b from those of both.
MOVER = """
wilson <- function(p, n, tail) {
  q <- qt(tail, n - 1, lower.tail = FALSE)
  middle <- (p + q^2 / (2 * n)) / (1 + q^2 / n)
  half <- q / (1 + q^2 / n) * sqrt(p * (1 - p) / n + q^2 / (4 * n^2))
  c(middle - half, middle + half)
}
mover <- function(a, n_a, b, n_b, rho, tail, r = 1) {
  A <- wilson(a, n_a, tail); B <- r * wilson(b, n_b, tail); d <- a - r * b
  reach <- function(x, z) sqrt(x^2 + z^2 - 2 * rho * x * z)
  c(d - reach(a - A[1], B[2] - r * b), d + reach(A[2] - a, r * b - B[1]))
}
root <- function(f, low, high) uniroot(f, c(low, high), tol = 1e-14, maxiter = 5000)$root
p_value <- function(a, n_a, b, n_b, rho) {
  side <- if (a > b) 1 else 2
  exp(root(function(z) mover(a, n_a, b, n_b, rho, exp(z) / 2)[side], -80, -1e-12))
}
ratio_limits <- function(a, n_a, b, n_b, rho, tail) {
  limit <- function(side) function(r) mover(a, n_a, b, n_b, rho, tail, r)[side]
  c(root(limit(1), 1e-9, a / b), root(limit(2), a / b, 100))
}
"""


@pytest.mark.parametrize("seed", [711, 712])
def test_intervals_and_contrasts_of_counterfactual_rates(r, seed):
    """From estimates and their covariance: Wilson with Student's quantile, and MOVER."""
    data = draw(seed)
    r.run(MOVER)
    section = "R: Wilson and MOVER of weighted rates"
    results = {kind: analyse(data, interval=kind) for kind in ("wilson", "logit", "plain")}
    result = results["wilson"]
    frames = {
        kind: found.rates[found.rates["metric"].isin(["cfpr", "cfnr"])].reset_index(drop=True)
        for kind, found in results.items()
    }
    frame = frames["wilson"]
    r.put("p", frame["estimate"])
    r.put("se", frame["se"])
    compare(section, frame["n_effective"], r("n <- p * (1 - p) / se^2; n + 0"), 1e-9)
    limits = {
        "wilson": "t(mapply(wilson, p, n, 0.025))",
        "logit": "z <- qnorm(0.975) * se / (p * (1 - p)); plogis(qlogis(p) + cbind(-z, z))",
        "plain": "pmin(pmax(p + qnorm(0.975) * cbind(-se, se), 0), 1)",
    }
    for kind, code in limits.items():
        compare(section, frames[kind][["ci_low", "ci_high"]], r(code), COUNT, kind)
    at = {key: k + 1 for k, key in enumerate(zip(frame["metric"], frame["group"], strict=True))}
    r.put("rho", result.covariance.to_numpy() / np.outer(frame["se"], frame["se"]))
    both = [result.contrasts(adjust=None, kind=kind) for kind in ("difference", "ratio")]
    for one, ratio in zip(*(f.itertuples() for f in both), strict=True):
        i, j = at[one.metric, one.group], at[one.metric, one.reference]
        call = f"(p[{i}], n[{i}], p[{j}], n[{j}], rho[{i}, {j}]"
        found = [one.estimate, one.ci_low, one.ci_high, one.se]
        se = f"sqrt(se[{i}]^2 + se[{j}]^2 - 2 * rho[{i}, {j}] * se[{i}] * se[{j}])"
        expected = r(f"c(p[{i}] - p[{j}], mover{call}, 0.025), {se})")
        compare(section, found, expected, COUNT, "difference")
        compare(section, one.p_value, r(f"p_value{call})")[0], 1e-9, "p-value")
        expected = r(f"c(p[{i}] / p[{j}], ratio_limits{call}, 0.025))")
        found = [ratio.estimate, ratio.ci_low, ratio.ci_high]
        compare(section, found, expected, 1e-9, "ratio")
        compare(section, ratio.p_value, one.p_value, 0, "the same p-value")


WALD = """
wald <- function(p, V) {
  slope <- diag(1 / (p * (1 - p))); l <- qlogis(p); W <- solve(slope %*% V %*% slope)
  sum(l * (W %*% l)) - sum(W %*% l)^2 / sum(W)
}
"""


@pytest.mark.parametrize("clusters", [None, 25])
def test_equality_of_weighted_rates(r, clusters):
    """Chi-square from the joint covariance; with clusters Hotelling's F."""
    data = draw(721, 1500)
    if clusters:
        data["site"] = np.random.default_rng(721).integers(0, clusters, len(data))
    with quiet():
        result = audit(data, cluster="site" if clusters else None).counterfactual(FULL)
    r.run(WALD)
    tests = result.test_equal().set_index("metric")
    for metric in ("cfpr", "cfnr"):
        p = result.rates.loc[result.rates["metric"] == metric, "estimate"]
        r.put("p", p)
        r.put("V", result.covariance.loc[metric, metric].to_numpy())
        df = len(p) - 1
        r.run(f"W <- wald(p, V); df <- {df}")
        tail = "pchisq(W, df, lower.tail = FALSE)"
        if clusters:
            r.run(f"rest <- {clusters} - 1 - df + 1")
            tail = f"pf(W * rest / ({clusters - 1} * df), df, rest, lower.tail = FALSE)"
        found = tests.loc[metric, ["wald", "df", "p_value"]]
        compare("R: logit Wald", found, r(f"c(W, df, {tail})"), 1e-9, metric)


def test_overlap(r):
    """Quantiles of propensities (type 7), Kish's sizes, standardised mean differences."""
    data = draw(731)
    found = analyse(data).overlap
    r.put("data", data)
    r.run(f"w <- weights_of(data, {FULL}); pi <- fitted(glm({FULL}, binomial, data, "
          "control = glm.control(epsilon = 1e-15)))")  # fmt: skip
    section = "R: overlap"
    names = ["min", "q05", "q25", "median", "q75", "q95", "max"]
    for row in found.propensities[["group", "treated", *names]].itertuples(index=False):
        inside = "TRUE" if row[0] == "all" else "paste(data$a1, '&', data$a2) == group"
        r.run(f"group <- '{row[0]}'; some <- pi[{inside} & data$d == {row[1]}]")
        expected = r("quantile(some, c(0, 0.05, 0.25, 0.5, 0.75, 0.95, 1), type = 7)")
        compare(section, row[2:], expected, 1e-10, row[0])
    kish = r("by <- paste(data$a1, data$a2); tapply(w, by, sum)^2 / tapply(w^2, by, sum)")
    compare(section, found.effective["n_effective"], kish, 1e-8, "Kish")
    numbers = found.balance.set_index("term").loc[["x1", "x2", "score"]]
    r.run(
        "smd <- function(x) { s <- sqrt(mean((x - mean(x))^2));"
        " c((mean(x[data$d == 0]) - mean(x)) / s, (weighted.mean(x, w) - mean(x)) / s) }"
    )
    expected = r("t(sapply(data[c('x1', 'x2', 'score')], smd))")
    compare(section, numbers[["smd_before", "smd_after"]], expected, 1e-10, "balance")


def test_association_of_group_and_outcome(r):
    """Chi-square of independence, the bias-corrected V, and its limits by the noncentrality."""
    data = draw(741)
    with quiet():
        found = (
            audit(data)
            .group_intervention(outcome_model="y ~ x1 + x2", membership="~ x1 + x2", cutoff=0.5)
            .association
        )
    r.put("data", data)
    r.run("test <- chisq.test(table(paste(data$a1, data$a2), data$y), correct = FALSE)")
    r.run(
        "X <- test$statistic; k <- test$parameter; n <- nrow(data);"
        "at <- function(p) if (pchisq(X, k) < p) 0 else uniroot(function(z) pchisq(X, k, z) - p,"
        " c(0, 500), tol = 1e-12)$root"
    )
    expected = r(
        "c(sqrt(max(0, X - k) / n), sqrt(at(0.975) / n), sqrt(at(0.025) / n), test$p.value)"
    )
    section = "R: chi-square and Cramer's V"
    compare(section, [found.v, found.low, found.high, found.p_value], expected, 1e-8)
