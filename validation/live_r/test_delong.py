"""AUC by group, DeLong's intervals and differences, and recalibration, against R as it runs.

The second implementation is a few lines of base R: structural components by comparing all pairs.
Where the package pROC is installed, its variances, intervals and tests are compared too.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import cfair
from validation.ledger import compare, quiet

pytestmark = pytest.mark.r
DELONG = """
components <- function(y, p) {
  psi <- outer(p[y == 1], p[y == 0], function(a, b) (a > b) + (a == b) / 2)
  list(auc = mean(psi), events = rowMeans(psi), others = colMeans(psi))
}
delong <- function(y, p) {
  k <- components(y, p)
  v <- var(k$events) / length(k$events) + var(k$others) / length(k$others)
  half <- qnorm(0.975) * sqrt(v) / (k$auc * (1 - k$auc))
  c(k$auc, sqrt(v), plogis(qlogis(k$auc) - half), plogis(qlogis(k$auc) + half))
}
# two groups that may share rows: covariances of the components of the rows in both
delong_two <- function(y, p, a, b) {
  ka <- components(y[a], p[a]); kb <- components(y[b], p[b])
  value <- function(k, at, e) { x <- rep(0, length(y)); i <- which(at & y == e)
    z <- if (e == 1) k$events else k$others
    x[i] <- (z - k$auc) / length(z) * sqrt(length(z) / (length(z) - 1)); x }
  d <- ka$auc - kb$auc
  s <- sqrt(sum((value(ka, a, 1) - value(kb, b, 1))^2) + sum((value(ka, a, 0) - value(kb, b, 0))^2))
  c(d, s, d - qnorm(0.975) * s, d + qnorm(0.975) * s, 2 * pnorm(-abs(d / s)))
}
"""


def draw(seed: int, n: int = 400) -> pd.DataFrame:
    """Scores with ties, groups of unlike size."""
    rng = np.random.default_rng(seed)
    score = rng.beta(1.2, 2.5, n).clip(0.01, 0.99).round(2)
    return pd.DataFrame(
        {
            "y": (rng.random(n) < 0.05 + 0.8 * score).astype(int),
            "p": score,
            "sex": rng.choice(["F", "M"], n, p=[0.65, 0.35]),
            "race": rng.choice(["b", "o", "w"], n, p=[0.3, 0.15, 0.55]),
        }
    )


def performance(data: pd.DataFrame, groups=("sex", "race")):
    with quiet():
        return cfair.Audit(
            data, outcome="y", score="p", cutoff=0.5, groups=list(groups)
        ).performance()


@pytest.mark.parametrize("seed", range(6))
def test_auc_by_group_attribute_and_overall(r, seed):
    r.run(DELONG)
    data = draw(seed)
    r.put("data", data)
    result = performance(data)
    for frame, condition in (
        (result.rates, "data$sex == '{sex}' & data$race == '{race}'"),
        (result.marginals, "data${attribute} == '{level}'"),
        (result.overall, "rep(TRUE, nrow(data))"),
    ):
        for _, row in frame[frame["metric"] == "auc"].iterrows():
            own = row[["estimate", "se", "ci_low", "ci_high"]].to_numpy(float)
            at = condition.format(**row)
            theirs = r(f"i <- {at}; delong(data$y[i], data$p[i])")
            compare("DeLong: AUC, base R", own, theirs, 1e-10, f"{seed} {at}")


@pytest.mark.parametrize("seed", range(6))
def test_differences_of_separate_and_of_overlapping_groups(r, seed):
    r.run(DELONG)
    data = draw(seed)
    r.put("data", data)
    result = performance(data)
    frames = [
        (result.contrasts(metrics="auc", adjust=None), None),
        (result.contrasts(metrics="auc", attribute="race", adjust=None), "race"),
        (result.contrasts("overall", metrics="auc", attribute="race", adjust=None), "race"),
        (result.contrasts("overall", metrics="auc", adjust=None), None),
    ]

    def condition(name: str, attribute: str | None) -> str:
        if name == "overall":
            return "rep(TRUE, nrow(data))"
        if attribute:
            return f"data${attribute} == '{name}'"
        sex, race = name.split(" & ")
        return f"data$sex == '{sex}' & data$race == '{race}'"

    for frame, attribute in frames:
        for _, row in frame.iterrows():
            a, b = (condition(row[side], attribute) for side in ("group", "reference"))
            theirs = r(f"delong_two(data$y, data$p, {a}, {b})")
            own = row[["estimate", "se", "ci_low", "ci_high", "p_value"]].to_numpy(float)
            theirs[2:4] = np.clip(theirs[2:4], -1, 1)
            compare("DeLong: differences, base R", own, theirs, 1e-9, f"{seed} {a} {b}")


@pytest.mark.parametrize("seed", range(6))
def test_recalibration_is_that_of_glm(r, seed):
    data = draw(seed)
    r.put("data", data)
    frame = performance(data, ["sex"]).rates.set_index(["metric", "group"])
    for group in ("F", "M"):
        r.run(f"""
        d <- data[data$sex == '{group}', ]; x <- qlogis(d$p)
        tight <- glm.control(epsilon = 1e-15, maxit = 100)
        line <- glm(d$y ~ x, family = binomial, control = tight)
        large <- glm(d$y ~ 1, offset = x, family = binomial, control = tight)
        sandwich <- function(fit, factor) {{
          X <- model.matrix(fit); u <- X * (d$y - fitted(fit))
          bread <- solve(crossprod(X * sqrt(fitted(fit) * (1 - fitted(fit)))))
          sqrt(diag(bread %*% crossprod(u) %*% bread) * factor)
        }}
        n <- nrow(d)
        """)
        names = ("calibration_in_the_large", "calibration_intercept", "calibration_slope")
        own = [frame.loc[(name, group), "estimate"] for name in names]
        compare("recalibration: glm", own, r("c(coef(large), coef(line))"), 1e-9, group)
        own = [frame.loc[(name, group), "se"] for name in names]
        theirs = r("c(sandwich(large, n / (n - 1)), sandwich(line, n / (n - 2)))")
        compare("recalibration: sandwich in base R", own, theirs, 1e-9, group)
        own = frame.loc[("oe_ratio", group), ["estimate", "se"]].to_numpy(float)
        theirs = r("""{ o <- sum(d$y) / sum(d$p)
          c(o, sqrt(sum((d$y - o * d$p)^2) * n / (n - 1)) / sum(d$p)) }""")
        compare("O/E: linearization in base R", own, theirs, 1e-10, group)


@pytest.fixture
def proc(r):
    if r("as.numeric(requireNamespace('pROC', quietly = TRUE))")[0] == 0:
        pytest.skip("the R package pROC is not installed: apt-get install r-cran-proc")
    return r


@pytest.mark.parametrize("seed", range(6))
def test_proc_agrees(proc, seed):
    data = draw(seed)
    proc.put("data", data)
    proc.run("""
    curve <- function(i) pROC::roc(data$y[i], data$p[i], direction = '<', quiet = TRUE)
    """)
    result = performance(data, ["sex"])
    auc = result.rates.query("metric == 'auc'").set_index("group")
    for group in ("F", "M"):
        theirs = proc(f"i <- data$sex == '{group}'; c(pROC::auc(curve(i)), pROC::var(curve(i)))")
        own = [auc.loc[group, "estimate"], auc.loc[group, "se"] ** 2]
        compare("DeLong: pROC, AUC and variance", own, theirs, 1e-10, group)
    contrast = result.contrasts(metrics="auc", adjust=None).iloc[0]
    statistic = contrast["estimate"] / contrast["se"]
    theirs = proc("""pROC::roc.test(curve(data$sex == 'F'), curve(data$sex == 'M'),
      method = 'delong', paired = FALSE)$statistic""")
    compare("DeLong: pROC, test of two groups", statistic, theirs[0], 1e-9)
    points = result.roc_curves().query("group == 'F'")
    theirs = proc("{ k <- curve(data$sex == 'F'); rev(k$sensitivities) }")
    compare("ROC points: pROC", points["tpr"], theirs, 1e-12)
    theirs = proc("rev(1 - k$specificities)")
    compare("ROC points: pROC", points["fpr"], theirs, 1e-12)
