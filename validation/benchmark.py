"""Speed and memory of the replicates beside R, and the error of the shortcuts behind them.

    python validation/benchmark.py               # seven minutes: against R and numpy
    python validation/benchmark.py --large       # and a million rows, in a process of its own
    python validation/benchmark.py --quick       # half a minute: 25 replicates, nothing is written

One thread throughout. Times are CPU seconds, so that other work on the machine disturbs them less:
cfair and R run in turn in one process, R through rpy2, under one clock; of cfair the median of
several runs (a million rows: one run). Peak memory is that of a fresh process for each. The tables
go to ``benchmark.md``.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from scipy.special import expit

import cfair
from cfair.errors import CfairWarning
from cfair.estimators import rates_from_cells

Found = TypeVar("Found")
HERE = Path(__file__).parent
REPLICATES = 500  # of the million rows; elsewhere as `Size` has it


@dataclass(frozen=True)
class Size:
    """How much is measured; replicates are those of each kind."""

    rows: int = 5000
    replicates: int = REPLICATES
    small_in_r: int = 20  # of small subgroups, by R
    refitted: int = 50  # by loops in numpy and with `exact=True`, scaled up
    runs: int = 9  # of which the median is taken
    memory: bool = True


FULL = Size()
QUICK = Size(replicates=25, small_in_r=1, refitted=5, runs=3, memory=False)


class Report(list[str]):
    """Lines of the tables, printed as they come."""

    def say(self, *lines: str) -> None:
        """Keep and print."""
        self.extend(lines)
        print(*lines, sep="\n", flush=True)


def make_cohort(n: int, levels: tuple[int, int], n_covariates: int, seed: int = 1) -> pd.DataFrame:
    """A cohort with unequal groups whose treatment depends on attributes, score and covariates."""
    rng = np.random.default_rng(seed)
    a1, a2 = (rng.choice(k, n, p=np.arange(k, 0, -1) / (k * (k + 1) / 2)) for k in levels)
    X = rng.standard_normal((n, n_covariates))
    effect = 0.3 / np.arange(1, n_covariates + 1)
    y0 = rng.random(n) < expit(-0.7 + X @ effect + 0.2 * a1 - 0.1 * a2)
    score = expit(1.2 * y0 - 0.6 + X @ effect + 0.8 * rng.standard_normal(n))
    d = rng.random(n) < expit(-1.2 + score + X @ effect[::-1] + 0.2 * a1 + 0.1 * a2)
    y = np.where(d, y0 & (rng.random(n) < 0.6), y0)
    columns = {f"x{j + 1}": X[:, j] for j in range(n_covariates)}
    return pd.DataFrame(
        {
            "y": y.astype(np.int8),
            "d": d.astype(np.int8),
            "score": score,
            "a1": pd.Categorical.from_codes(a1, [f"a{k}" for k in range(levels[0])]),
            "a2": pd.Categorical.from_codes(a2, [f"b{k}" for k in range(levels[1])]),
            **columns,
        }
    )


def formula(n_covariates: int, with_attributes: bool) -> str:
    """Propensity with or without the attributes."""
    covariates = " + ".join(f"x{j + 1}" for j in range(n_covariates))
    return f"d ~ {'a1 * a2 + ' if with_attributes else ''}score + {covariates}"


@contextmanager
def quietly() -> Iterator[None]:
    """Without advice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        yield


def audit_of(data: pd.DataFrame) -> cfair.Audit:
    return cfair.Audit(
        data, outcome="y", score="score", cutoff=0.5, groups=["a1", "a2"], treatment="d"
    )


def analyse(data: pd.DataFrame, text: str, **options):
    """One analysis by weighting or doubly robust."""
    with quietly():
        return audit_of(data).counterfactual(text, **options)


def timed(work: Callable[[], Found]) -> tuple[Found, float]:
    """What comes out, and the CPU seconds it took, R in this process included."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def clock(work: Callable[[], object], runs: int = 5) -> tuple[float, float]:
    """Median CPU and wall seconds."""
    cpu, wall = [], []
    for _ in range(runs):
        start = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - start[0])
        wall.append(time.perf_counter() - start[1])
    return float(np.median(cpu)), float(np.median(wall))


# -- the same by plain loops ---------------------------------------------------------------------


def newton(X: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Logistic regression from zero to convergence, as anybody would write it."""
    beta = np.zeros(X.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-X @ beta))
        step = np.linalg.solve((X * (p * (1 - p))[:, None]).T @ X, X.T @ (d - p))
        beta += step
        if np.max(np.abs(step)) < 1e-10:
            break
    return 1 / (1 + np.exp(-X @ beta))


def numpy_loop(data: pd.DataFrame, with_attributes: bool, replicates: int) -> None:
    """Permutations and bootstrap, a full refit in each replicate."""
    rng = np.random.default_rng(0)
    y, d = data["y"].to_numpy(int), data["d"].to_numpy(int)
    s = (data["score"] >= 0.5).to_numpy(int)
    group = (data["a1"].cat.codes * len(data["a2"].cat.categories) + data["a2"].cat.codes).to_numpy(
        int
    )
    K = group.max() + 1
    X = np.column_stack([np.ones(len(d)), data["score"], data.filter(regex="^x")])

    def rates(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        design = X[rows]
        if with_attributes:
            design = np.column_stack([design, np.eye(K)[labels][:, 1:]])
        pi = np.clip(newton(design, d[rows]), 0.005, 0.995)
        w = (1 - d[rows]) / (1 - pi)
        cells = np.bincount(labels * 4 + y[rows] * 2 + s[rows], weights=w, minlength=4 * K)
        return np.concatenate(rates_from_cells(cells.reshape(K, 2, 2)))

    everyone = np.arange(len(d))
    members = [np.flatnonzero(group == k) for k in range(K)]
    for _ in range(replicates):
        rates(everyone, rng.permutation(group))
    for _ in range(replicates):
        rows = np.concatenate([rng.choice(m, len(m)) for m in members])
        rates(rows, group[rows])


# Estimators and their replicates as loops of `glm` and `multinom`, everything fitted anew in each.
# `data` has y, d, s, a1, a2, for small groups also fold; `models` are formulas by name.
R_LOOPS = """
cut <- function(p) pmin(pmax(p, 0.005), 0.995)
logistic <- function(formula, data) glm(formula, family = binomial, data = data)
weights_of <- function(data, models)
  (1 - data$d) / (1 - cut(fitted(logistic(models$propensity, data))))
groups <- function(data) interaction(data$a1, data$a2, lex.order = TRUE)
rates <- function(data, free, event) {
  by <- groups(data)
  c(tapply(free * data$s, by, sum) / tapply(free, by, sum),
    tapply(event * (1 - data$s), by, sum) / tapply(event, by, sum))
}
ipw <- function(data, models) {
  w <- weights_of(data, models)
  rates(data, w * (1 - data$y), w * data$y)
}
aipw <- function(data, models) {
  outcome <- logistic(models$outcome_model, data[data$d == 0, ])
  mu <- predict(outcome, data, type = "response")
  event <- weights_of(data, models) * (data$y - mu) + mu
  rates(data, 1 - event, event)
}
small <- function(data, models) {
  w <- weights_of(data, models)
  s <- data$s
  by <- groups(data)
  untreated <- function(more, ...) {
    fit <- logistic(update(models$outcome_model, more), data)
    cut(predict(fit, transform(data, d = 0, ...), type = "response"))
  }
  mu <- untreated(. ~ . + d)
  mu1 <- untreated(. ~ . + d + s, s = 1)
  mu0 <- untreated(. ~ . + d + s, s = 0)
  p <- matrix(NA, nrow(data), nlevels(by))
  membership <- update(models$membership, by ~ .)
  for (k in unique(data$fold)) {
    out <- data$fold == k
    fit <- nnet::multinom(membership, cbind(data, by = by)[!out, ], trace = FALSE,
                          reltol = models$reltol, abstol = models$abstol, maxit = models$maxit)
    p[out, ] <- predict(fit, data[out, ], type = "probs")
  }
  p <- cut(p) / rowSums(cut(p))
  everybody <- function(call, event) sum(w * event * call) / sum(w * event)
  ratio <- function(v, of) tapply(v, by, sum) / sum(v) * sum(of) / colSums(of * p)
  c(everybody(s, 1 - data$y) * ratio((1 - mu1) * s, 1 - mu),
    everybody(1 - s, data$y) * ratio(mu0 * (1 - s), mu))
}
# a row per replicate: labels of the rows perm[r, ], or the rows rows[r, ] themselves
null_of <- function(data, estimator, models, perm) t(apply(perm, 1, function(i) {
  data[c("a1", "a2")] <- data[i, c("a1", "a2")]
  estimator(data, models)
}))
boot_of <- function(data, estimator, models, rows)
  t(apply(rows, 1, function(i) estimator(data[i, ], models)))
permuted <- function(data, n) t(replicate(n, sample(nrow(data))))
resampled <- function(data, n) {
  by <- split(seq_len(nrow(data)), groups(data))
  t(replicate(n, unlist(lapply(by, function(i) i[sample.int(length(i), replace = TRUE)]))))
}
whole <- function(data, estimator, models, n_perm, n_boot) {
  estimator(data, models)
  null_of(data, estimator, models, permuted(data, n_perm))
  boot_of(data, estimator, models, resampled(data, n_boot))
}
"""
MULTINOM = {"reltol": 1e-8, "abstol": 1e-4, "maxit": 100}  # R's own limits


@dataclass(frozen=True)
class Task:
    """An analysis that both sides can do."""

    name: str
    data: pd.DataFrame
    propensity: str
    outcome_model: str | None = None
    membership: str | None = None
    multinom: dict[str, float] = field(default_factory=MULTINOM.copy)

    @property
    def estimator(self) -> str:
        """Its name in `R_LOOPS`."""
        return "small" if self.membership else "aipw" if self.outcome_model else "ipw"

    def in_cfair(self, n_perm: int | None, n_boot: int | None, **given):
        """The analysis with replicates; `given` may hold permutations, resamples and the like."""
        options: dict = {"n_perm": n_perm, "n_boot": n_boot, **given}
        if self.outcome_model:
            options["outcome_model"] = self.outcome_model
        if self.membership is None:
            return analyse(self.data, self.propensity, **options)
        options |= {"membership": self.membership, "folds": "fold"}
        with quietly():
            return audit_of(self.data).small_subgroups(self.propensity, **options)

    def models_in_r(self) -> str:
        """The formulas, as an R list."""
        formulas = [f"propensity = {self.propensity}"]
        if self.outcome_model:
            formulas.append(f"outcome_model = {self.outcome_model}")
        if self.membership:
            formulas.append(f"membership = {self.membership}")
        return f"list({', '.join(formulas + [f'{k} = {v}' for k, v in self.multinom.items()])})"

    def frame(self) -> pd.DataFrame:
        """The data with the call, and attributes as text."""
        labels = {a: self.data[a].astype(str) for a in ("a1", "a2")}
        return self.data.assign(s=(self.data["score"] >= 0.5).astype(int), **labels)


def standard_task(n: int, n_covariates: int, with_attributes: bool, aipw: bool = False) -> Task:
    """Weighting or doubly robust estimation on a simulated cohort of four groups."""
    text = formula(n_covariates, with_attributes)
    what = "with" if with_attributes else "without"
    name = f"{'AIPW' if aipw else 'IPW'}, {n_covariates} covariates, {what} attributes"
    outcome = text.replace("d ~", "y ~") if aipw else None
    return Task(name, make_cohort(n, (2, 2), n_covariates), text, outcome)


def small_task(n: int | None = None, **multinom: float) -> Task:
    """Small subgroups: the recorded data, 1,500 rows in 6 groups, or n rows of the larger four."""
    data = pd.read_csv(HERE / "recorded" / "data" / "small_groups.csv")
    names = {"Y": "y", "D": "d", "S_prob": "score", "A1": "a1", "A2": "a2"}
    data = data.rename(columns=names).assign(fold=np.arange(len(data)) % 5 + 1)
    members = [f"XP{i}" for i in range(1, 6)]
    # `multinom` stops earlier on covariates of different scales
    data[members] = (data[members] - data[members].mean()) / data[members].std()
    if n is not None:
        data = data[data["a2"] != 2].head(n).reset_index(drop=True)
    return Task(
        "small subgroups",
        data,
        "d ~ X1 + X2 + X3 + X4",
        f"y ~ {' + '.join(f'XO{i}' for i in range(1, 7))}",
        f"~ {' + '.join(members)}",
        MULTINOM | multinom,
    )


class R:
    """R in this process, with the loops in an environment of their own."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import rpy2.robjects as ro
        self._ro = ro
        self._own = ro.r("new.env(parent = globalenv())")
        self.run("options(warn = -1)")
        self.run(R_LOOPS)

    @classmethod
    def start(cls) -> tuple[R | None, str]:
        """R and its version, or None and why."""
        try:
            r = cls()
        except Exception as error:  # no rpy2, or no R that it can load: it raises what it meets
            return None, f"no R: {type(error).__name__}: {error}"
        return r, str(r.run("R.version.string")[0])

    def run(self, code: str):
        """Run R code; what it gives is R's."""
        return self._ro.r["eval"](self._ro.r["parse"](text=code), envir=self._own)

    def has(self, package: str) -> bool:
        """Whether a package is installed."""
        return bool(self.run(f"isTRUE(requireNamespace('{package}', quietly = TRUE))")[0])

    def put(self, name: str, value: pd.DataFrame | np.ndarray) -> None:
        """Give R a data frame, or a matrix of whole numbers."""
        ro = self._ro
        if isinstance(value, np.ndarray):
            flat = ro.IntVector(value.ravel(order="F").tolist())
            self._own[name] = ro.r["matrix"](flat, nrow=len(value))
            return
        columns = {
            c: ro.FloatVector(value[c].astype(float))
            if pd.api.types.is_numeric_dtype(value[c])
            else ro.FactorVector(ro.StrVector(value[c]))
            for c in value
        }
        self._own[name] = ro.DataFrame(columns)

    def __call__(self, code: str) -> np.ndarray:
        return np.asarray(self.run(code), dtype=float)

    def replicates(self, task: Task, perm: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Estimate, null and bootstrap by the loops, from rows that count from 0."""
        self.put("data", task.frame())
        self.put("perm", perm + 1)
        self.put("rows", rows + 1)
        with_models = f"data, {task.estimator}, {task.models_in_r()}"
        return (
            self(f"{task.estimator}(data, {task.models_in_r()})"),
            self(f"null_of({with_models}, perm)"),
            self(f"boot_of({with_models}, rows)"),
        )

    def seconds(self, task: Task, replicates: int) -> float:
        """CPU seconds of the estimate, so many permutations and so many bootstrap replicates."""
        self.put("data", task.frame())
        code = whole_in_r(task, replicates)
        self.run(whole_in_r(task, 1))  # first touch
        return clock(lambda: self.run(f"invisible({code})"), 1)[0]


def whole_in_r(task: Task, replicates: int) -> str:
    return f"whole(data, {task.estimator}, {task.models_in_r()}, {replicates}, {replicates})"


# -- side by side with R -------------------------------------------------------------------------


def tasks(size: Size = FULL) -> list[tuple[Task, int]]:
    """Analyses, and how many replicates of each kind R does; a child asks for one by number."""
    return [
        (standard_task(size.rows, 4, True), size.replicates),
        (standard_task(size.rows, 4, False), size.replicates),
        (standard_task(size.rows, 4, True, aipw=True), size.replicates),
        (small_task(), size.small_in_r),
    ]


# The same in a process of its own; what is resident before, and the peak.
R_PEAK = """
data <- read.csv(commandArgs(TRUE), stringsAsFactors = TRUE)
%s
invisible(gc())
resident <- function(what) {
  line <- grep(what, readLines("/proc/self/status"), value = TRUE)
  as.numeric(gsub("[^0-9]", "", line)) / 1000
}
before <- resident("VmRSS")
%s
cat(before, resident("VmHWM"))
"""


def peak_of_cfair(k: int) -> str:
    """Peak memory of a process that does nothing else, MB, as a cell of the table."""
    own = [sys.executable, str(Path(__file__).resolve()), "--child", f"memory {k}"]
    done = subprocess.run(own, capture_output=True, text=True, check=True)
    before, peak = json.loads(done.stdout.splitlines()[-1])
    return f"{peak:.0f} ({before:.0f})"


def memory_child(k: int) -> None:
    """Run an analysis as R does, and print the memory before and at the peak."""
    task, replicates = tasks()[k]
    task.in_cfair(1, 1).summary()
    before = memory()[0]
    task.in_cfair(replicates, replicates).summary()
    print(json.dumps([before, memory()[1]]))


def peak_of_r(k: int) -> str:
    """The same of R."""
    if not Path("/proc/self/status").exists():
        return "not measured"
    task, replicates = tasks()[k]
    code = R_PEAK % tuple(f"invisible({whole_in_r(task, n)})" for n in (1, replicates))
    with tempfile.TemporaryDirectory() as folder:
        table, script = Path(folder) / "data.csv", Path(folder) / "peak.R"
        task.frame().to_csv(table, index=False)
        script.write_text(f"options(warn = -1)\n{R_LOOPS}\n{code}", encoding="utf-8")
        done = subprocess.run(
            ["Rscript", "--vanilla", str(script), str(table)],
            capture_output=True,
            text=True,
            check=True,
        )
    before, peak = map(float, done.stdout.split()[-2:])
    return f"{peak:.0f} ({before:.0f})"


def side_by_side(out: Report, size: Size) -> None:
    """cfair and R in one process, in turn."""
    r, about = R.start()
    out.say("## Beside R, in one process", "")
    if r is None:
        return out.say(f"Not run: {about}", "")
    out.say(
        "| analysis | rows | replicates | cfair, CPU s | R, CPU s | R / cfair "
        "| cfair, peak MB (before) | R, peak MB (before) |",
        "|---|---|---|---|---|---|---|---|",
    )
    for k, (task, replicates) in enumerate(tasks(size)):
        if task.membership and not r.has("nnet"):
            out.say(f"| {task.name} | | | | not run: no R package nnet | | | |")
            continue
        task.in_cfair(1, 1).summary()
        in_r = r.seconds(task, replicates)
        rounds = sorted({replicates, size.replicates})
        for n in rounds:
            own, _ = clock(lambda t=task, n=n: t.in_cfair(n, n).summary(), 3)
            scaled = in_r * n / replicates
            measured = f"{scaled:.1f}" if n == replicates else f"{scaled:.0f}, scaled up"
            told = size.memory and n == replicates
            peaks = f"{peak_of_cfair(k)} | {peak_of_r(k)}" if told else "|"
            out.say(
                f"| {task.name} | {len(task.data):,} | {n} + {n} | {own:.2f} | {measured} "
                f"| {scaled / own:.0f} | {peaks} |"
            )
    out.say(
        "",
        f"{about}. R fits everything anew in each replicate by `glm` and `nnet::multinom`, from "
        "permuted labels and from rows drawn within group, and computes rates of groups only. The "
        "time of cfair has its tables, intervals, tests, p- and u-values. `test_speed.py` shows "
        "that both get the same numbers from the same labels and rows. Peak memory: resident "
        "memory of a fresh process for each side, interpreter and packages included; before: with "
        "data and packages loaded and one replicate of each kind done.",
        "",
    )
    return original(r, out, size)


def original(r: R, out: Report, size: Size) -> None:
    """The R package's own function, or our rendering of it in plain R, and `cfair.faircfint`."""
    from cfair.faircfint import analysis_estimation

    there = r.has("faircfint")
    code = "faircfint::analysis_estimation" if there else "analysis_estimation"
    if not there:
        r.run((HERE / "live_original" / "plain.R").read_text(encoding="utf-8"))
    out.say(
        f"`analysis_estimation` by {'the R package' if there else 'plain R'}, and by "
        "`cfair.faircfint` with `compat=True`, which does the same work: subsamples of n^0.75 "
        "rows, main effects refitted.",
        "",
        "| estimator | rows | replicates | cfair, CPU s | R, CPU s | R / cfair |",
        "|---|---|---|---|---|---|",
    )
    names = {"y": "Y", "d": "D", "score": "S_prob", "a1": "A1", "a2": "A2"}
    cohort = make_cohort(size.rows, (2, 2), 4).rename(columns=names)
    people = pd.read_csv(HERE / "recorded" / "data" / "small_groups.csv")
    covariates = {"pi_xvars": ["X1", "X2", "X3", "X4"]}
    covariates["outcome_xvars"] = [f"XO{i}" for i in range(1, 7)]
    covariates["pa_xvars_int"] = [f"XP{i}" for i in range(1, 6)]
    main_effects = {"pi_xvars": ["A1", "A2", "S_prob", "x1", "x2", "x3", "x4"]}
    for kind, data, options, n in (
        ("standard", cohort, main_effects, size.replicates),
        ("small_internal", people, covariates, size.small_in_r),
    ):
        r.put("data", data.assign(A1=data["A1"].astype(str), A2=data["A2"].astype(str)))
        lists = [f"{k} = c({', '.join(map(repr, v))})" for k, v in options.items()]
        call = (
            f"set.seed(1); invisible({code}(data = data, cutoff = 0.5, estimator_type = '{kind}', "
            f"gen_null = TRUE, R_null = {n}, bootstrap = 'rescaled', B = {n}, {', '.join(lists)}))"
        )

        def own(data=data, kind=kind, n=n, options=options) -> None:
            replicates = {"gen_null": True, "R_null": n, "bootstrap": "rescaled", "B": n}
            with quietly():
                analysis_estimation(data, 0.5, kind, seed=1, **replicates, **options)

        cpu, (in_r, _) = clock(own, 3)[0], clock(lambda c=call: r.run(c), 1)
        out.say(
            f"| {kind} | {len(data):,} | {n} + {n} | {cpu:.2f} | {in_r:.1f} | {in_r / cpu:.0f} |"
        )
    if not there:
        out.say(
            "",
            "The R package faircfint is not installed here and so not timed. Version 0.0.0.9000 "
            "under R 4.2.2, on 5,000 rows in four groups of its own, took 28.9 s for 500 + 500 "
            "replicates of the standard estimator and 137 s for 100 + 100 of small groups.",
        )
    out.say("")


# -- errors of the shortcuts ---------------------------------------------------------------------


def in_deviations(fast: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Mean and largest difference, in standard deviations of the replicates."""
    off = np.abs(fast - exact) / np.nanstd(exact, axis=0)
    return float(np.nanmean(off)), float(np.nanmax(off))


def permutation_errors(data: pd.DataFrame, text: str, n: int) -> tuple[float, float]:
    """The same seed gives the same labels whether or not the propensity is refitted."""
    draws = [
        analyse(data, text, n_perm=n, seed=3, exact=exact).null_draws[["cfpr", "cfnr"]]
        for exact in (False, True)
    ]
    return in_deviations(*(d.to_numpy() for d in draws))


def bootstrap_errors(data: pd.DataFrame, text: str, n: int) -> tuple[float, float, float]:
    """One Newton step against a full refit, with the very weights of the one-pass bootstrap.

    They are drawn inside, so this goes below the public functions.
    """
    from cfair.inference import one_pass as b
    from cfair.inference.contributions import TreatmentModel, ipw_contributions
    from cfair.inference.refit import CounterfactualModels
    from cfair.inference.resampling import streams
    from cfair.inference.rows import Rows

    result = analyse(data, text)
    c, p = result.cohort, result.propensity
    arrays = (c.y, c.s, c.d, c.groups.codes)
    models = CounterfactualModels(
        Rows(*arrays, c.groups.n_groups),
        "ipw",
        p.pi,
        treatment=p.model(c, labels=False),
        coef=p.fit.coef,
        fitted=p.fitted,
    )
    added = ipw_contributions(*arrays, TreatmentModel(p.pi, p.matrix, p.fitted))
    plan = b.one_pass_plan(models, added)
    fast, exact = [], []
    for block in streams(3, 2, n):
        fast.append(b.one_pass(plan, block).cells)
        rng = block.generator()
        weights = np.hstack(
            [
                b.exchangeable_weights([(rng, block.size)], part.stop - part.start)
                for part, _ in plan.blocks
            ]
        )
        exact.append(models.under_counts(plan.at.put_back(weights.astype(float))).cells)
    rates = [np.hstack(rates_from_cells(np.concatenate(parts))) for parts in (fast, exact)]
    boot = analyse(data, text, n_boot=n, exact=True, seed=3).boot
    multinomial = np.hstack([boot.rates[m][:, : c.groups.n_groups] for m in ("cfpr", "cfnr")])
    own = rates[0]
    ratio = own.std(axis=0) / multinomial.std(axis=0)
    return (*in_deviations(*rates), float(ratio.mean()))


# -- tables --------------------------------------------------------------------------------------


def small(out: Report, size: Size) -> None:
    """5000 rows, 4 groups; the goals are for all replicates."""
    n, B = size.rows, size.replicates
    out.say(
        f"## {n:,} rows, 4 groups, {B} permutations and {B} bootstrap replicates",
        "",
        "| propensity | covariates | replicates, CPU s | goal | whole call, CPU s "
        "| with its tables | numpy loop | numpy / cfair |",
        "|---|---|---|---|---|---|---|---|",
    )
    errors = [
        "",
        f"Error of a replicate against a full refit (`exact=True`), in standard deviations of the "
        f"{B} replicates, {n:,} rows:",
        "",
        "| propensity | covariates | permutation: mean | largest | bootstrap: mean | largest "
        "| sd over that of multinomial counts |",
        "|---|---|---|---|---|---|---|",
    ]
    for n_covariates in (4, 10):
        data = make_cohort(n, (2, 2), n_covariates)
        for with_attributes, goal in ((True, 0.35), (False, 0.15)):
            text = formula(n_covariates, with_attributes)
            what = "with attributes" if with_attributes else "without"
            analyse(data, text, n_perm=5, n_boot=5)  # imports, first touch
            bare, _ = clock(lambda d=data, t=text: analyse(d, t), size.runs)
            whole, _ = clock(lambda d=data, t=text: analyse(d, t, n_perm=B, n_boot=B), size.runs)
            tables, _ = clock(lambda d=data, t=text: analyse(d, t, n_perm=B, n_boot=B).summary(), 3)
            own = whole - bare
            loop, _ = clock(lambda d=data, a=with_attributes: numpy_loop(d, a, size.refitted), 1)
            loop *= B / size.refitted
            verdict = f"{goal} {'met' if own <= goal else 'MISSED'}" if size == FULL else ""
            out.say(
                f"| {what} | {n_covariates} | {own:.3f} "
                f"| {verdict} | {whole:.3f} | {tables:.3f} | {loop:.1f} "
                f"| {loop / own:.0f} |"
            )
            mean, largest = permutation_errors(data, text, B)
            boot_mean, boot_largest, ratio = bootstrap_errors(data, text, B)
            errors.append(
                f"| {what} | {n_covariates} | {mean:.4f} | {largest:.3f} | {boot_mean:.4f} "
                f"| {boot_largest:.3f} | {ratio:.3f} |"
            )
    out.say(
        "",
        "Replicates: the whole call less the same call without replicates. With its tables: "
        "`summary()` as well, that is intervals, tests, p- and u-values. "
        f"The loop refits from scratch in each replicate ({size.refitted} of each kind "
        "measured, scaled up).",
        *errors,
    )


def others(out: Report, size: Size) -> None:
    """Replicates of the other estimators against full refits."""
    data = make_cohort(size.rows, (2, 2), 4)
    text = formula(4, True)
    model = text.replace("d ~", "y ~")
    B, few = size.replicates, size.refitted
    out.say(
        "",
        "## Other estimators",
        "",
        "| what | rows | replicates | CPU s | against |",
        "|---|---|---|---|---|",
    )
    for estimator in ("aipw", "plugin"):
        options = {"outcome_model": model, "estimator": estimator}
        bare, _ = clock(lambda o=options: analyse(data, text, **o), 5)
        whole, _ = clock(lambda o=options: analyse(data, text, n_perm=B, n_boot=B, **o), 3)
        exact, _ = clock(
            lambda o=options: analyse(data, text, n_perm=few, n_boot=few, exact=True, **o), 1
        )
        exact = (exact - bare) * B / few
        ratio = f"{exact / (whole - bare):.0f} times faster than full refits ({exact:.1f} s)"
        out.say(
            f"| {estimator}, models with attributes | {size.rows:,} | {B} + {B} "
            f"| {whole - bare:.2f} | {ratio} |"
        )


STEPS = {
    "fit_models": "design and fit of the propensity",
    "contribution_moments": "influence functions: sums over rows",
    "rate_covariance": "influence functions: covariance",
    "overlap": "overlap diagnostics",
    "omitted_variables": "score tests of omitted variables",
}


def watch_steps() -> dict[str, float]:
    """CPU seconds of the steps of an analysis, filled in as it runs."""
    from cfair.analyses import counterfactual as module

    spent: dict[str, float] = {}

    def watched(name: str, step: Callable) -> Callable:
        def run(*args, **options):
            start = time.process_time()
            found = step(*args, **options)
            spent[name] = spent.get(name, 0.0) + time.process_time() - start
            return found

        return run

    for name in STEPS:
        if hasattr(module, name):
            setattr(module, name, watched(name, getattr(module, name)))
    return spent


def tables_of(result) -> None:
    """Everything that the result computes when it is asked."""
    result.rates, result.marginals, result.disparities, result.contrasts(), result.test_equal()


def memory() -> tuple[float, float]:
    """Resident memory of this process now and at its peak, MB.

    Linux keeps `ru_maxrss` of the parent in a child that it starts, so the kernel's own account is
    read where there is one.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak /= 1e6 if sys.platform == "darwin" else 1e3
        return peak, peak
    kept = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return tuple(float(kept[name].split()[0]) / 1e3 for name in ("VmRSS", "VmHWM"))


def child(part: str) -> None:
    """One measurement of the million rows, in a process of its own, as a line of JSON."""
    n = 1_000_000
    text = formula(10, not part.endswith("without"))
    replicates = (
        {} if part.startswith("intervals") else {"n_perm": REPLICATES, "n_boot": REPLICATES}
    )
    warm = dict.fromkeys(replicates, 5)
    tables_of(analyse(make_cohort(3000, (3, 4), 10), text, **warm))  # imports
    data = make_cohort(n, (3, 4), 10)
    before = memory()[0] / 1e3
    steps = watch_steps()
    start = time.process_time(), time.perf_counter()
    result = analyse(data, text, **replicates)
    tables_of(result)
    found = {
        "cpu": time.process_time() - start[0],
        "wall": time.perf_counter() - start[1],
        "data_gb": before,
        "peak_gb": memory()[1] / 1e3,
        "steps": steps,
        "columns": len(result.propensity.coef),
    }
    print(json.dumps(found))


def large(out: Report) -> None:
    """A million rows, 12 groups, 10 covariates."""
    out.say(
        "",
        "## 1,000,000 rows, 12 groups, 10 covariates",
        "",
        "| what | propensity | design columns | CPU s | wall s | goal | peak memory, GB "
        "(data alone) | goal |",
        "|---|---|---|---|---|---|---|---|",
    )
    steps = ["", "Where the time of the intervals goes, CPU seconds:", ""]
    both = f"{REPLICATES} + {REPLICATES} replicates"
    for part, what, goal in (
        ("intervals with", "influence-function intervals alone", 2),
        ("intervals without", "influence-function intervals alone", 2),
        ("with", both, 30),
        ("without", both, 30),
    ):
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--child", part],
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
        time_met = "met" if found["cpu"] <= goal else "MISSED"
        memory_met = "met" if found["peak_gb"] <= 3 else "MISSED"
        model = "without" if part.endswith("without") else "with attributes"
        out.say(
            f"| {what} | {model} | {found['columns']} | {found['cpu']:.2f} | {found['wall']:.2f} "
            f"| {goal} {time_met} | {found['peak_gb']:.2f} ({found['data_gb']:.2f}) "
            f"| 3 {memory_met} |"
        )
        if part.startswith("intervals"):
            parts = [f"{STEPS[k]} {v:.2f}" for k, v in found["steps"].items()]
            rest = found["cpu"] - sum(found["steps"].values())
            steps.append(f"- {model}: {'; '.join(parts)}; all else {rest:.2f}.")
    out.say(
        "",
        "The data are a pandas frame with categorical attributes; reading it, the fit, all tables, "
        "contrasts and tests are part of the time, imports are not.",
        *steps,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--large", action="store_true", help="a million rows as well")
    extent.add_argument("--quick", action="store_true", help="25 replicates, nothing is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        if options.child.startswith("memory"):
            memory_child(int(options.child.split()[1]))
        else:
            child(options.child)
        return
    size = QUICK if options.quick else FULL
    out, start = Report(), os.getloadavg()[0]
    side_by_side(out, size)
    small(out, size)
    others(out, size)
    if options.large:
        large(out)
    if options.quick:
        print(
            "\nNothing is written. With so few replicates most of cfair's time is that of its "
            "tables: compare ratios of a full run."
        )
        return
    about = (
        f"`python validation/benchmark.py{' --large' if options.large else ''}`, cfair "
        f"{cfair.__version__}, numpy {np.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}, one thread. CPU seconds. Load average {start:.1f} at the start and "
        f"{os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} cores; goals are for a machine to "
        "itself, so under a load above the number of cores compare ratios."
    )
    text = "\n".join(["# Speed", "", about, "", *out])
    (HERE / "benchmark.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
