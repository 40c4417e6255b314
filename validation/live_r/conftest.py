"""One R for the tests of this folder, or the reason why there is none."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest


class R:
    """R as a function of text; data go in as vectors, numbers come out as arrays."""

    def __init__(self, robjects) -> None:
        self._ro = robjects
        self.version = str(robjects.r("R.version.string")[0])

    def __call__(self, code: str) -> np.ndarray:
        """Run R code and return its value as an array of floats."""
        return np.asarray(self._ro.r(code), dtype=float)

    def run(self, code: str) -> None:
        """Run R code for what it does."""
        self._ro.r(code)

    def text(self, code: str) -> list[str]:
        """Run R code whose value is text."""
        return [str(x) for x in self._ro.r(code)]

    def put(self, name: str, values) -> None:
        """Give R a vector, a matrix or a data frame."""
        self._ro.globalenv[name] = self._vector(values)

    def _vector(self, values):
        ro = self._ro
        if isinstance(values, pd.DataFrame):
            return ro.DataFrame({c: self._vector(values[c]) for c in values})
        array = np.asarray(values)
        if array.dtype.kind in "OUS" or (isinstance(values, pd.Series) and values.dtype == object):
            return ro.StrVector([str(x) for x in array])
        if array.ndim == 2:
            flat = ro.FloatVector(array.ravel(order="F").astype(float))
            return ro.r["matrix"](flat, nrow=array.shape[0])
        if array.dtype.kind in "iub":
            return ro.IntVector(array.astype(int).tolist())
        return ro.FloatVector(array.astype(float).tolist())


@pytest.fixture(scope="session")
def r() -> R:
    """R, or a skip with the reason."""
    if shutil.which("R") is None:
        pytest.skip("R is not installed: no `R` on the PATH")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import rpy2.robjects as robjects
    except ImportError as error:
        pytest.skip(f"rpy2 is not installed: pip install 'cfair[validation]' ({error})")
    except Exception as error:  # R there but not loadable: rpy2 raises whatever it meets
        pytest.skip(f"rpy2 cannot start R: {error}")
    found = R(robjects)
    found.run('options(warn = -1, contrasts = c("contr.treatment", "contr.poly"))')
    found.run(ESTIMATOR)
    return found


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
