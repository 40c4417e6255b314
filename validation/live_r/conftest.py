"""R with the closed forms of the 2023 paper."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def r(r):
    """The R of all tests, which knows `standard` and `refit`."""
    r.run(ESTIMATOR)
    return r


# The closed forms of the 2023 paper in base R; `data` has y, d, s, a1, a2.
ESTIMATOR = """
summaries <- function(rates) {
  gaps <- abs(outer(rates, rates, "-"))[upper.tri(diag(length(rates)))]
  c(mean(gaps), max(gaps), var(gaps))
}
rates <- function(data, w, by) {
  fp <- tapply(w * data$s * (1 - data$y), by, sum) / tapply(w * (1 - data$y), by, sum)
  fn <- tapply(w * (1 - data$s) * data$y, by, sum) / tapply(w * data$y, by, sum)
  cbind(as.vector(fp), as.vector(fn))
}
weights_of <- function(data, formula, lower = 0.005, upper = 0.995) {
  fit <- glm(formula, family = binomial, data = data,
             control = glm.control(epsilon = 1e-15, maxit = 100))
  pi <- pmin(pmax(fitted(fit), lower), upper)
  (1 - data$d) / (1 - pi)
}
standard <- function(data, formula) {
  w <- weights_of(data, formula)
  one <- rep(1, nrow(data))
  cell <- interaction(factor(data$a2), factor(data$a1))  # the first factor varies fastest
  by <- rates(data, w, cell)
  observed <- rates(data, one, cell)
  m1 <- rates(data, w, data$a1)
  m2 <- rates(data, w, data$a2)
  c(by[, 1], by[, 2], observed[, 1], observed[, 2], m1[, 1], m2[, 1], m1[, 2], m2[, 2],
    summaries(by[, 1]), summaries(by[, 2]))
}
refit <- function(data, formula) {
  w <- weights_of(data, formula)
  by <- rates(data, w, interaction(factor(data$a2), factor(data$a1)))
  c(by[, 1], by[, 2], summaries(by[, 1]), summaries(by[, 2]))
}
"""
