"""Rates of small subgroups, and R's scheme of subsampling, in plain R on random data sets.

Folds, permutations and resampled rows are drawn by R's `sample` and given to both. Membership is
fitted by ``nnet::multinom`` and three Newton steps (see `test_multinomial`), so that estimates
agree to 1e-10. Replicates are fitted together, and stop where a further step would change no
probability by 1e-8: 1e-8.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import cfair
from cfair.inference.drawing import faircfint_sizes
from validation.ledger import check, compare, quiet
from validation.live_r.test_live_r import analyse, replicate_columns
from validation.live_r.test_live_r import draw as draw_plain
from validation.live_r.test_multinomial import MULTINOMIAL

pytestmark = pytest.mark.r
ESTIMATE, REPLICATE = 1e-10, 1e-8
PROPENSITY = "d ~ a1 * a2 + score + x1 + x2"
WITHOUT = "d ~ score + x1 + x2"
MEMBERS = "~ x1 + x2 + site"

SMALL = """
limited <- function(p) pmin(pmax(p, 0.005), 0.995)
logit <- function(formula, data, a) {
  data$a_ <- a
  environment(formula) <- environment()
  glm(formula, family = quasibinomial, data = data, weights = a_,
      control = glm.control(epsilon = 1e-15, maxit = 100))
}
group_of <- function(data) interaction(factor(data$a2), factor(data$a1))  # a2 varies fastest
out_of_fold <- function(X, group, fold, a) {
  p <- matrix(NA, nrow(X), nlevels(group))
  for (k in unique(fold)) {
    held <- fold == k
    B <- membership(X[!held, ], group[!held], a[!held])
    p[held, ] <- softmax(B, X[held, , drop = FALSE])
  }
  p
}
one <- function(p, renormalise) if (renormalise) limited(p) / rowSums(limited(p)) else limited(p)
small <- function(data, fold, propensity, outcome, X, E = NULL, a = rep(1, nrow(data)),
                  renormalise = TRUE) {
  pi <- limited(fitted(logit(propensity, data, a)))
  without <- logit(update(outcome, . ~ . + d), data, a)
  with <- logit(update(outcome, . ~ . + d + s), data, a)
  mu <- function(fit, s) limited(predict(fit, transform(data, d = 0, s = s), type = "response"))
  mu0 <- mu(without, 0); mu1 <- mu(with, 1); mu_0 <- mu(with, 0)
  group <- group_of(data)
  p <- one(out_of_fold(X, group, fold, a), renormalise)
  alpha <- NaN
  if (!is.null(E)) {
    own <- outer(as.integer(group), seq_len(nlevels(group)), "==")
    alpha <- min(max(sum(a * (E - p) * (own - p)) / sum(a * (E - p)^2), 0), 1)
    p <- alpha * E + (1 - alpha) * p
  }
  y <- data$y; s <- data$s; w <- a * (1 - data$d) / (1 - pi)
  share <- function(v) as.vector(tapply(a * v, group, sum)) / sum(a * v)
  expected <- function(v) colSums(p * a * v) / sum(a * v)
  c(sum(w * s * (1 - y)) / sum(w * (1 - y)) * share((1 - mu1) * s) / expected(1 - mu0),
    sum(w * (1 - s) * y) / sum(w * y) * share(mu_0 * (1 - s)) / expected(mu0), alpha)
}
"""


def draw(seed: int, n: int | None = None, shift: float = 0.0) -> pd.DataFrame:
    """Attributes that depend on covariates; 4 or 6 groups, some of them small."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(400, 900)) if n is None else n
    x1, x2 = rng.normal(shift, 1, n), rng.exponential(size=n)
    site = rng.choice(["north", "south", "west"], n)
    a1 = np.where(rng.random(n) < expit(-0.9 + 0.9 * x1), "b", "a")
    k = 2 + seed % 2
    at = (rng.random(n) * 2 + 0.8 * (x2 > 0.7) + 0.3 * (site == "west")).clip(max=k - 0.01)
    a2 = np.array(["u", "v", "w"])[at.astype(int)]
    score = expit(0.8 * x1 - 0.4 * x2 + 0.3 * (a1 == "b") + rng.normal(size=n))
    d = rng.random(n) < expit(-0.8 + score + 0.4 * x1 - 0.5 * (a2 == "u") * (a1 == "a"))
    y = rng.random(n) < expit(-0.5 + 2 * (score - 0.5) - 0.7 * d + 0.3 * x2)
    return pd.DataFrame(
        {
            "y": y.astype(int), "d": d.astype(int), "score": score,
            "s": (score >= 0.5).astype(int), "a1": a1, "a2": a2, "x1": x1, "x2": x2, "site": site,
            "a": rng.uniform(0.3, 3.0, n),
        }
    )  # fmt: skip


def put(r, data: pd.DataFrame, seed: int) -> np.ndarray:
    """Give the data to R, which deals the folds."""
    r.put("data", data)
    r.run(MULTINOMIAL + SMALL)
    r.run(f"X <- unname(model.matrix({MEMBERS}, data))")
    r.run(f"set.seed({seed}); fold <- sample(rep_len(1:5, nrow(data)))")
    return r("fold").astype(int)


def analysed(data: pd.DataFrame, folds, propensity=PROPENSITY, weights=None, **options):
    with quiet():
        audit = cfair.Audit(
            data, outcome="y", score="score", cutoff=0.5, treatment="d", groups=["a1", "a2"],
            weights=weights,
        )  # fmt: skip
        return audit.small_subgroups(
            propensity,
            outcome_model="~ x1 + x2 + site",
            membership=MEMBERS,
            folds=folds,
            **{"n_boot": 0, **options},
        )


def in_r(propensity=PROPENSITY, rows="", more="") -> str:
    """The call in R, of all rows or of some."""
    parts = ("data[i, ], fold[i]", "X[i, ]") if rows else ("data, fold", "X")
    return f"small({parts[0]}, {propensity}, y ~ x1 + x2 + site, {parts[1]}{more})"


def figures(result) -> np.ndarray:
    """Rates of the groups, then alpha."""
    rates = [result.rates.loc[result.rates["metric"] == m, "estimate"] for m in ("cfpr", "cfnr")]
    return np.concatenate([*rates, [result.alpha]])


@pytest.mark.parametrize("seed", range(900, 908))
def test_small_subgroups(r, seed):
    data, propensity = draw(seed), (PROPENSITY, WITHOUT)[seed // 2 % 2]
    folds = put(r, data, seed)
    result = analysed(data, folds, propensity)
    section = "R: small subgroups"
    compare(section, figures(result), r(in_r(propensity)), ESTIMATE)
    p = r("one(out_of_fold(X, group_of(data), fold, rep(1, nrow(data))), TRUE)")
    compare("R: small subgroups, membership", result.memberships, p, ESTIMATE)
    check(section, result.membership_model.n_truncated > 10, "rows are cut, and brought back")


@pytest.mark.parametrize("seed", [911, 912, 913])
def test_small_subgroups_with_sampling_weights_and_sums_that_are_not_1(r, seed):
    data = draw(seed)
    folds = put(r, data, seed)
    for renormalise in (True, False):
        result = analysed(data, folds, weights="a", renormalise=renormalise)
        expected = r(in_r(more=f", a = data$a, renormalise = {str(renormalise).upper()}"))
        compare("R: small subgroups, weighted", figures(result), expected, ESTIMATE)


EXTERNAL = """
levels_ <- levels(group_of(data))
B <- membership(model.matrix({members}, outside), factor(group_of(outside), levels_), outside$w)
E <- one(softmax(B, model.matrix({members}, data)), TRUE)
"""


@pytest.mark.parametrize("weights", [None, "a"])
@pytest.mark.parametrize(("seed", "shift"), [(921, 0.0), (922, 0.4), (923, -1.0)])
def test_borrowing_by_brier_score(r, seed, shift, weights):
    """The closed form of alpha, which R's `optimize` finds as well."""
    data, outside = draw(seed, 600), draw(seed + 100, 900, shift)
    folds = put(r, data, seed)
    r.put("outside", outside.assign(w=outside["a"] if weights else 1.0))
    r.run(EXTERNAL.format(members="~ x1 + x2"))
    result = analysed(
        data, folds, weights=weights, external=outside, external_membership="~ x1 + x2",
        external_weights=weights,
    )  # fmt: skip
    section = "R: small subgroups, borrowing"
    compare(section, result.borrowed.external.p, r("E"), ESTIMATE, "external membership")
    check(section, 0.1 < result.alpha < 0.9, f"alpha is {result.alpha}, inside")
    more = ", E = E" + (", a = data$a" if weights else "")
    compare(section, figures(result), r(in_r(more=more)), ESTIMATE)
    r.run(
        f"a <- {'data$a' if weights else 'rep(1, nrow(data))'};"
        "p <- one(out_of_fold(X, group_of(data), fold, a), TRUE);"
        "own <- outer(as.integer(group_of(data)), seq_along(levels_), '==');"
        "brier <- function(q) weighted.mean(rowSums((q - own)^2), a);"
        "best <- optimize(function(z) brier(z * E + (1 - z) * p), c(0, 1), tol = 1e-10)$minimum"
    )
    # the least value of a parabola is only found to the square root of its last digit
    compare(section, result.alpha, r("best")[0], 1e-6, "alpha by search")
    scores = [result.borrowed.criterion[k] for k in ("internal", "external")]
    compare(section, scores, r("c(brier(p), brier(E))"), ESTIMATE, "Brier scores")


@pytest.mark.parametrize(("own", "alpha"), [(0.97, 1.0), (0.0, 0.0)])
def test_borrowing_at_its_bounds(r, own, alpha):
    """Given probabilities that know the group, and such that deny it."""
    data = draw(925, 400)
    folds = put(r, data, 925)
    K = 2 * data["a2"].nunique()
    at = r("as.integer(group_of(data))").astype(int) - 1
    given = np.where(np.eye(K)[at] == 1, own, (1 - own) / (K - 1))
    r.put("given", given)
    r.run("E <- one(given, TRUE)")
    result = analysed(data, folds, external=given)
    section = "R: small subgroups, borrowing"
    compare(section, result.alpha, alpha, 0, "alpha")
    compare(section, figures(result), r(in_r(more=", E = E")), ESTIMATE)


HAND_TILL = """
hand_till <- function(p, group) {
  auc <- function(i, j) {  # of group i against group j by the probability of i
    inside <- p[as.integer(group) == i, i]; other <- p[as.integer(group) == j, i]
    mean(outer(inside, other, ">") + outer(inside, other, "==") / 2)
  }
  pairs <- subset(expand.grid(i = seq_len(ncol(p)), j = seq_len(ncol(p))), i != j)
  mean(mapply(auc, pairs$i, pairs$j))
}
"""


def test_borrowing_by_auc(r):
    """The criterion at alpha; that no place of a grid has a larger one."""
    data, outside = draw(931, 300), draw(933, 600, 0.3)
    folds = put(r, data, 931)
    r.put("outside", outside.assign(w=1.0))
    r.run(EXTERNAL.format(members=MEMBERS) + HAND_TILL)
    result = analysed(data, folds, external=outside, borrow="auc")
    r.run("group <- group_of(data); p <- one(out_of_fold(X, group, fold, rep(1, nrow(X))), TRUE)")
    section = "R: small subgroups, borrowing"
    found = [result.borrowed.criterion[k] for k in ("internal", "external", "mixed")]
    at = f"{result.alpha!r} * E + {1 - result.alpha!r} * p"
    expected = r(f"sapply(list(p, E, {at}), hand_till, group)")
    compare(section, found, expected, ESTIMATE, "AUC of Hand and Till")
    grid = r("sapply(0:20 / 20, function(z) hand_till(z * E + (1 - z) * p, group))")
    check(section, bool(found[2] >= grid.max() - 1e-12), "no better place on the grid")


def replicates(draws: pd.DataFrame, names) -> np.ndarray:
    return np.column_stack([draws[(m, name)] for m in ("cfpr", "cfnr") for name in names])


@pytest.mark.parametrize("propensity", [PROPENSITY, WITHOUT])
@pytest.mark.parametrize("borrow", [False, True])
def test_replicates_of_small_subgroups(r, propensity, borrow):
    """Labels permuted and rows drawn by R; all refitted in the same folds, labels in the null."""
    seed = 941 + borrow
    data, outside = draw(seed, 400), draw(seed + 10, 600, 0.2)
    folds = put(r, data, seed)
    r.put("outside", outside.assign(w=1.0))
    r.run(EXTERNAL.format(members=MEMBERS))
    r.run("n <- nrow(data); perm <- t(replicate(3, sample(n)))")
    r.run("rows <- t(replicate(3, sample(n, replace = TRUE)))")
    given = {
        "permutations": r("perm").astype(int) - 1,
        "resamples": r("rows").astype(int) - 1,
        "external": outside if borrow else None,
    }
    result = analysed(data, folds, propensity, n_boot=None, **given)
    names, section = result.cohort.groups.names, "R: small subgroups, replicates"
    more, rates = (", E = E", ", E = E[i, ]") if borrow else ("", ""), 2 * len(names)
    r.run("given <- data; labels <- c('a1', 'a2')")
    expected = r(
        "t(apply(perm, 1, function(i) { data <- given; data[labels] <- given[i, labels];"
        f"{in_r(propensity, more=more[0])} }}))"
    )
    compare(section, replicates(result.null_draws, names), expected[:, :rates], REPLICATE, "null")
    drawn = r(f"t(apply(rows, 1, function(i) {in_r(propensity, 'i', more[1])}))")
    compare(section, replicates(result.boot_draws, names), drawn[:, :rates], REPLICATE, "rows")
    if borrow:
        compare(section, result.borrowed.null_alpha, expected[:, -1], REPLICATE, "alpha, null")
        compare(section, result.borrowed.boot_alpha, drawn[:, -1], REPLICATE, "alpha, rows")


# -- subsamples as in faircfint ------------------------------------------------------------------

SUBSAMPLE = """
takes <- function(sizes) round(sizes * (floor(sum(sizes)^0.75) / sum(sizes)))
subsample <- function(data) unlist(lapply(
  split(seq_len(nrow(data)), paste(data$a1, data$a2, data$y, data$s)),
  function(i) i[sample.int(length(i), round(length(i) * (floor(nrow(data)^0.75) / nrow(data))))]))
"""


def test_sizes_of_subsamples(r):
    """A share of each stratum, halves rounded to even as R's `round` does."""
    r.run(SUBSAMPLE)
    rng = np.random.default_rng(951)
    cases = [rng.integers(0, 300, 24) for _ in range(40)]
    cases += [np.array([2, 6, 10, 14, 18, 22, 184])]  # 64 of 256 rows: 0.5, 1.5, 2.5, ...
    for sizes in cases:
        r.put("sizes", sizes)
        m = int(sizes.sum() ** 0.75)
        compare("R: faircfint subsamples", faircfint_sizes(sizes, m), r("takes(sizes)"), 0, "sizes")


@pytest.mark.parametrize("formula", ["d ~ score + x1 + x2", "d ~ a1 + a2 + score + x1"])
def test_subsamples_within_group_outcome_and_prediction(r, formula):
    """m = n^0.75 rows without replacement, and the interval [2 est - q_hi, 2 est - q_lo]."""
    data = draw_plain(953, 1500)
    r.put("data", data)
    r.run(SUBSAMPLE + "set.seed(53); rows <- t(replicate(60, subsample(data)))")
    rows = r("rows").astype(int) - 1
    assert len(np.unique(rows[0])) == rows.shape[1]
    result = analyse(data, formula, resamples=rows)
    section = "R: faircfint subsamples"
    r.run(f"draws <- t(apply(rows, 1, function(i) refit(data[i, ], {formula})))")
    compare(section, replicate_columns(result.boot_draws), r("draws"), 1e-9, formula)
    own = analyse(data, formula, n_boot=2, bootstrap="faircfint", seed=1)
    compare(section, own.boot.rows_per_replicate, [rows.shape[1]] * 2, 0, "rows per replicate")
    K = result.cohort.groups.n_groups
    found = result.bootstrap_intervals("basic", level=0.9)
    r.run(f"estimate <- refit(data, {formula})[1:{2 * K}]; draws <- draws[, 1:{2 * K}]")
    limits = r("2 * estimate - t(apply(draws, 2, quantile, c(0.95, 0.05), type = 7))")
    compare(section, found[["ci_low", "ci_high"]], limits, 1e-9, "interval")
    compare(section, found["se"], r("apply(draws, 2, sd)"), 1e-9, "spread")


def test_clusters_drawn_by_r(r):
    """Whole clusters with replacement; replicates differ in their number of rows."""
    data = draw_plain(955, 900)
    data["site"] = np.random.default_rng(955).integers(0, 30, len(data))
    r.put("data", data)
    r.run(
        "set.seed(55); sites <- split(seq_len(nrow(data)), data$site);"
        "rows <- replicate(10, unlist(sites[sample(length(sites), replace = TRUE)]), FALSE)"
    )
    formula = "d ~ a1 + a2 + score + x1 + x2"
    resamples = [r(f"rows[[{b}]]").astype(int) - 1 for b in range(1, 11)]
    assert len({len(rows) for rows in resamples}) > 5
    draws = analyse(data, formula, resamples=resamples).boot_draws
    expected = r(f"t(sapply(rows, function(i) refit(data[i, ], {formula})))")
    compare("R: bootstrap of clusters", replicate_columns(draws), expected, 1e-9)
