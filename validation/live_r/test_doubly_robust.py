"""Doubly robust rates, the outcome model alone, and interventions on membership, in plain R.

Folds, permutations and resampled rows are drawn by R's `sample` and given to both. Fits are those
of ``glm`` with ``epsilon = 1e-15``, membership as in `test_multinomial`: estimates agree to 1e-10.
Replicates of cfair are fitted together, and stop where a further step would change no probability
of membership by 1e-8: 1e-8, found 6e-9 with the default rule and 1e-12 with a stricter one.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import cfair
from validation.ledger import check, compare, quiet
from validation.live_r.test_live_r import FULL, audit, draw, replicate_columns
from validation.live_r.test_multinomial import MULTINOMIAL
from validation.live_r.test_small_estimators import MEMBERS, SMALL
from validation.live_r.test_small_estimators import draw as draw_small

pytestmark = pytest.mark.r
ESTIMATE, REPLICATE = 1e-10, 1e-8
OUTCOMES = {
    "untreated": "y ~ a1 + a2 + score + x1 + x2",
    "all rows": "y ~ d * s + a1 * a2 + x1 + x2",
}

# -- treatment -----------------------------------------------------------------------------------

# Out of fold if there are folds; the outcome model on all rows if it names the treatment.
DOUBLY = """
doubly <- function(data, fold, propensity, outcome, augmented, a = rep(1, nrow(data))) {
  none <- transform(data, d = 0)
  used <- if ("d" %in% all.vars(outcome)) rep(TRUE, nrow(data)) else data$d == 0
  if (is.null(fold)) { fold <- rep(1, nrow(data)); first <- 0 } else first <- fold
  pi <- mu <- numeric(nrow(data))
  for (k in unique(fold)) {
    held <- fold == k; train <- first != k
    if (augmented) pi[held] <- predict(logit(propensity, data[train, ], a[train]), data[held, ],
                                       type = "response")
    fit <- logit(outcome, data[train & used, ], a[train & used])
    mu[held] <- predict(fit, none[held, ], type = "response")
  }
  w <- (1 - data$d) / (1 - limited(pi))
  event <- if (augmented) w * (data$y - mu) + mu else mu
  cells <- function(by) {
    total <- function(v) as.vector(tapply(a * v, by, sum))
    cbind(total(data$s * (1 - event)) / total(1 - event),
          total((1 - data$s) * event) / total(event))
  }
  by <- cells(group_of(data)); m1 <- cells(data$a1); m2 <- cells(data$a2)
  list(rates = c(by), margins = c(m1[, 1], m2[, 1], m1[, 2], m2[, 2]), event = event,
       figures = c(by, summaries(by[, 1]), summaries(by[, 2])))
}
"""


def ready(r, data: pd.DataFrame, seed: int) -> np.ndarray:
    """Give the data to R, which deals the folds."""
    r.put("data", data)
    r.run(MULTINOMIAL + SMALL + DOUBLY + INTERVENED)
    r.run(f"set.seed({seed}); fold <- sample(rep_len(1:4, nrow(data)))")
    return r("fold").astype(int)


def of_both(frame: pd.DataFrame) -> np.ndarray:
    return np.concatenate([frame.loc[frame["metric"] == m, "estimate"] for m in ("cfpr", "cfnr")])


@pytest.mark.parametrize("estimator", ["aipw", "plugin"])
@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
@pytest.mark.parametrize("crossfit", [True, False])
@pytest.mark.parametrize("seed", [1001, 1002])
def test_doubly_robust_rates(r, seed, crossfit, outcome, estimator):
    data = draw(seed).assign(a=lambda x: 0.3 + x["x2"])
    folds, weights = ready(r, data, seed), "a" if seed == 1002 else None
    with quiet():
        result = audit(data, weights=weights).counterfactual(
            FULL, outcome_model=outcome, estimator=estimator, folds=folds if crossfit else None
        )
    a = "data$a" if weights else "rep(1, nrow(data))"
    augmented = "TRUE" if estimator == "aipw" else "FALSE"
    r.run(
        f"a <- {a}; out <- doubly(data, {'fold' if crossfit else 'NULL'}, {FULL}, {outcome}, "
        f"{augmented}, a)"
    )
    section = f"R: {'cross-fitted' if crossfit else 'in-sample'} {estimator}"
    compare(section, of_both(result.rates), r("out$rates"), ESTIMATE, "rates")
    compare(section, of_both(result.marginals), r("out$margins"), ESTIMATE, "margins")
    parts = [result.disparities.query("metric == @m")["estimate"] for m in ("cfpr", "cfnr")]
    K = result.cohort.groups.n_groups
    compare(section, np.concatenate(parts), r("out$figures")[2 * K :], ESTIMATE, "summaries")
    if not (crossfit and estimator == "aipw"):
        return
    # out of fold both models count as known: the influence of a row is its own term
    se = r(
        "unlist(lapply(0:1, function(m) { group <- group_of(data);"
        "share <- a * (if (m) out$event else 1 - out$event); hit <- if (m) 1 - data$s else data$s;"
        "total <- tapply(share, group, sum); theta <- tapply(share * hit, group, sum) / total;"
        "sqrt(tapply((share * (hit - theta[group]))^2, group, sum)) / total }))"
    )
    rates = result.rates[result.rates["metric"].isin(["cfpr", "cfnr"])]
    compare(section, rates["se"], se, ESTIMATE, "standard errors")


@pytest.mark.parametrize("estimator", ["aipw", "plugin"])
@pytest.mark.parametrize("crossfit", [True, False])
def test_replicates_of_doubly_robust_rates(r, crossfit, estimator):
    """All models are refitted, in the same folds, labels in both models."""
    data = draw(1011, 700)
    folds = ready(r, data, 1011)
    r.run("n <- nrow(data); perm <- t(replicate(5, sample(n)))")
    r.run("rows <- t(replicate(5, sample(n, replace = TRUE)))")
    outcome = OUTCOMES["untreated"]
    with quiet():
        result = audit(data).counterfactual(
            FULL,
            outcome_model=outcome,
            estimator=estimator,
            folds=folds if crossfit else None,
            permutations=r("perm").astype(int) - 1,
            resamples=r("rows").astype(int) - 1,
        )
    r.run(
        "refitted <- function(data, fold) doubly(data, "
        f"{'fold' if crossfit else 'NULL'}, {FULL}, {outcome}, "
        f"{'TRUE' if estimator == 'aipw' else 'FALSE'})$figures"
    )
    section = f"R: replicates of {estimator}"
    null = r(
        "t(apply(perm, 1, function(i) { shuffled <- data; labels <- c('a1', 'a2');"
        "shuffled[labels] <- data[i, labels]; refitted(shuffled, fold) }))"
    )
    compare(section, replicate_columns(result.null_draws), null, REPLICATE, "null")
    boot = r("t(apply(rows, 1, function(i) refitted(data[i, ], fold[i])))")
    compare(section, replicate_columns(result.boot_draws), boot, REPLICATE, "rows")


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
    data = draw(803, 700)
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


# -- intervention on membership ------------------------------------------------------------------

INTERVENED = """
youden <- function(y, score) {
  places <- sort(unique(score))
  J <- sapply(places, function(t) mean(score[y == 1] >= t) - mean(score[y == 0] >= t))
  places[which(J >= max(J) - 1e-12)[1]]
}
intervened <- function(data, fold, outcome, X, cutoff = NULL, scores = NULL) {
  group <- group_of(data); K <- nlevels(group)
  data$group_ <- group
  member <- do.call(rbind, strsplit(levels(group), ".", fixed = TRUE))  # a2, a1
  mu <- matrix(NA, nrow(data), K)
  for (k in unique(fold)) {
    held <- fold == k
    fit <- logit(outcome, data[!held, ], rep(1, sum(!held)))
    for (g in seq_len(K)) {
      put <- transform(data[held, ], a1 = member[g, 2], a2 = member[g, 1])
      put$group_ <- factor(levels(group)[g], levels(group))
      mu[held, g] <- predict(fit, put, type = "response")
    }
  }
  own <- cbind(seq_len(nrow(data)), as.integer(group))
  shown <- if (is.null(scores)) round(mu, 10) else scores
  if (is.null(cutoff)) cutoff <- youden(data$y, shown[own])
  S <- shown >= cutoff
  raw <- out_of_fold(X, group, fold, rep(1, nrow(X))); p <- limited(raw)
  psi <- mu
  psi[own] <- (data$y - mu[own]) / p[own] + mu[own]
  # a group has no rate without a row with the outcome, or where outcomes add up to nothing
  seen <- c(tapply(data$y == 0, group, any), tapply(data$y == 1, group, any))
  both <- function(e) {
    total <- c(colSums(1 - e), colSums(e))
    ifelse(seen & total > 0, c(colSums(S * (1 - e)), colSums((1 - S) * e)) / total, NaN)
  }
  known <- function(e, hit) {
    theta <- colSums(e * hit) / colSums(e)
    sqrt(colSums((e * (hit - rep(theta, each = nrow(e))))^2)) / colSums(e)
  }
  list(sr = both(mu), dr = both(psi), cutoff = cutoff, mu = mu, p = p, raw = raw,
       se = c(known(1 - psi, S), known(psi, !S)))
}
"""


def intervention(data: pd.DataFrame, folds, outcome: str, **options):
    with quiet():
        found = cfair.Audit(data, outcome="y", score="score", cutoff=0.5, groups=["a1", "a2"])
        return found.group_intervention(
            **{"outcome_model": outcome, "membership": MEMBERS, "folds": folds, **options}
        )


MODELS = {
    "y ~ x1 + x2 + site": "y ~ x1 + x2 + site + group_",
    "y ~ x1 * a1 + a2 + x2": "y ~ x1 * a1 + a2 + x2",
}


@pytest.mark.parametrize("outcome", MODELS)
@pytest.mark.parametrize("seed", range(1021, 1024))
def test_group_intervention(r, seed, outcome):
    """The outcome model judged at Youden's cutoff, and a score that is given for every group."""
    data = draw_small(seed)
    folds = ready(r, data, seed)
    r.run(f"X <- unname(model.matrix({MEMBERS}, data))")
    r.run(f"out <- intervened(data, fold, {MODELS[outcome]}, X)")
    result = intervention(data, folds, outcome)
    section = "R: group intervention"
    compare(section, result.cutoff, r("out$cutoff")[0], 2e-10, "cutoff, rounded to 10 digits")
    compare(section, result.mu, r("out$mu"), ESTIMATE, "outcome under every group")
    compare(section, result.memberships, r("out$p"), ESTIMATE, "membership")
    frame = result.rates[result.rates["metric"].isin(["cfpr", "cfnr"])]
    compare(section, frame["estimate"], r("out$dr"), ESTIMATE, "doubly robust")
    compare(section, frame["estimate_sr"], r("out$sr"), ESTIMATE, "single robust")
    single = intervention(data, folds, outcome, estimator="sr")
    compare(section, of_both(single.rates), r("out$sr"), ESTIMATE, "single robust")
    K = result.cohort.groups.n_groups
    scores = (data["score"].to_numpy()[:, None] + 0.05 * np.arange(K)).clip(0, 1)
    r.put("scores", scores)
    r.run(f"out <- intervened(data, fold, {MODELS[outcome]}, X, 0.5, scores)")
    judged = intervention(data, folds, outcome, scores=scores)
    frame = judged.rates[judged.rates["metric"].isin(["cfpr", "cfnr"])]
    compare(section, frame["estimate"], r("out$dr"), ESTIMATE, "given scores")
    known = intervention(
        data, folds, outcome, scores=scores, outcome_model=r("out$mu"), membership=r("out$raw")
    )
    frame = known.rates[known.rates["metric"].isin(["cfpr", "cfnr"])]
    compare(section, frame["estimate"], r("out$dr"), ESTIMATE, "given probabilities")
    compare(section, frame["se"], r("out$se"), ESTIMATE, "standard errors, all known")


@pytest.mark.parametrize("outcome", MODELS)
def test_replicates_of_group_intervention(r, outcome):
    """All models refitted in the same folds; the cutoff stays.

    Four groups: where a denominator of a small group is next to nothing, as one that subtracts can
    be, the 1e-8 of a refit are no longer 1e-8 of a rate.
    """
    data = draw_small(1032, 450)
    folds = ready(r, data, 1032)
    r.run("n <- nrow(data); perm <- t(replicate(3, sample(n)))")
    r.run("rows <- t(replicate(3, sample(n, replace = TRUE)))")
    r.run(f"X <- unname(model.matrix({MEMBERS}, data))")
    result = intervention(
        data,
        folds,
        outcome,
        permutations=r("perm").astype(int) - 1,
        resamples=r("rows").astype(int) - 1,
    )
    r.run(f"cutoff <- intervened(data, fold, {MODELS[outcome]}, X)$cutoff")
    call = f"intervened(%s, {MODELS[outcome]}, %s, cutoff)$dr"
    names, section = result.cohort.groups.names, "R: replicates of group intervention"
    null = r(
        "t(apply(perm, 1, function(i) { shuffled <- data; labels <- c('a1', 'a2');"
        f"shuffled[labels] <- data[i, labels]; {call % ('shuffled, fold', 'X')} }}))"
    )
    columns = [(m, name) for m in ("cfpr", "cfnr") for name in names]
    compare(section, result.null_draws[columns], null, REPLICATE, "null")
    boot = r(f"t(apply(rows, 1, function(i) {call % ('data[i, ], fold[i]', 'X[i, ]')}))")
    compare(section, result.boot_draws[columns], boot, REPLICATE, "rows")
    check(section, len(names) >= 4, "groups")
