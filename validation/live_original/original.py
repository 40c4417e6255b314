"""The original as a function: runs it in R, keeps what it drew and said, and decodes the draws."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

PLAIN = (Path(__file__).parent / "plain.R").read_text(encoding="utf-8")

#: Whatever draws does so through `sample.int`, base R's `sample` and other packages' alike.
WATCH = """
watched <- function(call, seed) {
  calls <- list()
  said <- character()
  note <- function(n, drawn) calls[[length(calls) + 1]] <<- list(n = n, drawn = drawn)
  suppressMessages(trace("sample.int", exit = bquote(.(note)(n, returnValue())), print = FALSE,
                         where = baseenv()))
  on.exit(suppressMessages(untrace("sample.int", where = baseenv())))
  set.seed(seed)
  value <- withCallingHandlers(call, warning = function(w) {
    said <<- c(said, conditionMessage(w))
    invokeRestart("muffleWarning")
  })
  list(value = value, calls = calls, said = said)
}
# the package keeps some outputs one level down
output <- function(x, name) if (is.null(x[[name]])) x$est_choice[[name]] else x[[name]]
"""


@dataclass(frozen=True)
class Run:
    """What a run gave: its outputs by their R names, its draws in order, its warnings."""

    defs: pd.Series
    table_null: pd.DataFrame | None
    boot_out: pd.DataFrame | None
    alpha: float | None
    calls: list[tuple[int, np.ndarray]]
    said: list[str]


@dataclass(frozen=True)
class Original:
    """One implementation of the original, and how near cfair has to come to it."""

    r: Any
    name: str
    code: str
    exact: bool = False

    @property
    def weighting(self) -> float:
        """Allowed for rates by weighting."""
        return 1e-10 if self.exact else 1e-8

    @property
    def small(self) -> float:
        """Allowed for rates of small groups."""
        return 1e-10 if self.exact else 5e-5

    @property
    def replicate(self) -> float:
        """The same in replicates, which cfair fits together, each to within 1e-10."""
        return 1e-9 if self.exact else 5e-4

    @property
    def alpha(self) -> float:
        """Allowed for the share of the external model."""
        return 1e-10 if self.exact else 1e-4

    def run(self, data: pd.DataFrame, options: dict[str, Any], seed: int = 1) -> Run:
        """Run the original; `options` are cfair's, a data frame or a formula among them."""
        r = self.r
        r.put("data", data)
        arguments = [f"{name} = {self._as_r(name, value)}" for name, value in options.items()]
        if self.exact:
            arguments.append("exact = TRUE")
        r.run(f"found <- watched({self.code}(data = data, {', '.join(arguments)}), {seed})")
        r.run("value <- found$value; defs <- unlist(output(value, 'defs'))")
        return Run(
            defs=pd.Series(usual(r("defs")), r.text("names(defs)")),
            table_null=self._table("table_null"),
            boot_out=self._table("boot_out"),
            alpha=self._number("alpha"),
            calls=self._calls(),
            said=r.text("found$said"),
        )

    def _as_r(self, name: str, value: Any) -> str:
        if isinstance(value, pd.DataFrame):
            self.r.put(name, value)
            return name
        if name == "pi_model":
            return f"glm({value}, family = binomial, data = data)"
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, list):
            return f"c({', '.join(map(repr, value))})"
        return repr(value)

    def _absent(self, name: str) -> bool:
        return bool(self.r(f"is.null(output(value, '{name}'))")[0])

    def _number(self, name: str) -> float | None:
        return None if self._absent(name) else float(self.r(f"output(value, '{name}')")[0])

    def _table(self, name: str) -> pd.DataFrame | None:
        if self._absent(name):
            return None
        self.r.run(f"table <- data.matrix(as.data.frame(output(value, '{name}'), optional = TRUE))")
        return pd.DataFrame(usual(self.r("table")), columns=self.r.text("colnames(table)"))

    def _calls(self) -> list[tuple[int, np.ndarray]]:
        r = self.r
        if not len(r("lengths(found$calls)")):
            return []
        n = r("vapply(found$calls, function(k) as.numeric(k$n), 0)").astype(int)
        sizes = r("vapply(found$calls, function(k) length(k$drawn), 0)").astype(int)
        drawn = r("unlist(lapply(found$calls, function(k) k$drawn))").astype(int)
        return list(zip(n.tolist(), np.split(drawn, np.cumsum(sizes)[:-1]), strict=True))


def usual(values: np.ndarray) -> np.ndarray:
    """R's NA, a NaN at which numpy's arithmetic raises an alarm, as any NaN."""
    return np.where(np.isnan(values), np.nan, values)


@dataclass
class Calls:
    """The draws that are left; those of no rows do not count."""

    left: list[tuple[int, np.ndarray]]

    def take(self, n: int, size: int) -> np.ndarray:
        """The next draw, which has to be of so many of n; from 0."""
        assert self.left, f"no draw is left where one of {size} of {n} is due"
        of, drawn = self.left.pop(0)
        assert (of, len(drawn)) == (n, size), (
            f"a draw of {len(drawn)} of {of} where one of {size} of {n} is due"
        )
        return drawn - 1

    def folds(self, group: np.ndarray, n_folds: int) -> np.ndarray:
        """Folds dealt within groups, one draw each."""
        fold = np.zeros(len(group), dtype=int)
        for code in range(group.max() + 1):
            rows = np.flatnonzero(group == code)
            order = rows[self.take(len(rows), len(rows))]
            fold[order] = np.arange(len(rows)) % n_folds + 1
        return fold


def decode(calls, data: pd.DataFrame, options: dict[str, Any]) -> dict[str, Any]:
    """What was drawn as arguments of `cfair.faircfint.analysis_estimation`.

    The order is that of the original: null, bootstrap, estimate. Of small groups folds are dealt
    twice each time, first for outcome models, which do not use them. Strata come in the order in
    which they appear in the data.
    """
    complete = data.notna().all(axis=1).to_numpy()
    data = data[complete].reset_index(drop=True)
    n, left = len(data), Calls([(of, drawn) for of, drawn in calls if len(drawn)])
    group = pd.factorize(data["A1"].astype(str) + "\0" + data["A2"].astype(str), sort=True)[0]
    small, n_folds = options["estimator_type"] != "standard", options.get("nfolds", 5)
    found: dict[str, list] = {name: [] for name in ("permutations", "null_folds")}
    found |= {name: [] for name in ("resamples", "boot_folds")}

    def folds(group):
        left.folds(group, n_folds)
        return left.folds(group, n_folds)

    for _ in range(options["R_null"] if options.get("gen_null") else 0):
        found["permutations"].append(left.take(n, n))
        if small:
            found["null_folds"].append(folds(group[found["permutations"][-1]]))
    for _ in range(options["B"] if options.get("bootstrap") == "rescaled" else 0):
        found["resamples"].append(drawn_rows(left, data, group, options))
        if small:
            found["boot_folds"].append(folds(group[found["resamples"][-1]]))
    given: dict[str, Any] = {name: values for name, values in found.items() if values}
    if small:
        given["folds"] = np.ones(len(complete), dtype=int)  # of rows left out any will do
        given["folds"][complete] = folds(group)
    assert not left.left, f"{len(left.left)} draws are left over"
    return given


def drawn_rows(left: Calls, data, group, options) -> np.ndarray:
    """Rows of one subsample, stratum after stratum."""
    share = int(len(data) ** options["m_factor"]) / len(data)
    called = data["S_prob"] >= options["cutoff"]
    stratum = pd.factorize(group * 4 + (data["Y"] == data["Y"].max()) * 2 + called)[0]
    parts = []
    for code in range(stratum.max() + 1):
        rows = np.flatnonzero(stratum == code)
        size = round(len(rows) * share)  # half to even, as in R
        if size:
            parts.append(rows[left.take(len(rows), size)])
    return np.concatenate(parts)
