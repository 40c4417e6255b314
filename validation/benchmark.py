"""Speed and memory of the replicates, and the error of the shortcuts behind them.

    python validation/benchmark.py               # two minutes: 5000 rows, against numpy and R
    python validation/benchmark.py --large       # and a million rows, in a process of its own

One thread throughout. Times are CPU seconds of the process, the median of several runs (a million
rows: one run), so that other work on the machine disturbs them less. The tables go to
``benchmark.md``.
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
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

import cfair
from cfair.errors import CfairWarning
from cfair.estimators import rates_from_cells

HERE = Path(__file__).parent
REPLICATES = 500


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


def analyse(data: pd.DataFrame, text: str, **options):
    """One analysis, without advice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        audit = cfair.Audit(
            data, outcome="y", score="score", cutoff=0.5, groups=["a1", "a2"], treatment="d"
        )
        return audit.counterfactual(text, **options)


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


R_LOOP = """
one_replicate <- function(data, formula) {
  fit <- glm(formula, family = binomial, data = data)
  w <- (1 - data$d) / (1 - pmin(pmax(fitted(fit), 0.005), 0.995))
  by <- interaction(data$a1, data$a2)
  c(tapply(w * data$s * (1 - data$y), by, sum) / tapply(w * (1 - data$y), by, sum),
    tapply(w * (1 - data$s) * data$y, by, sum) / tapply(w * data$y, by, sum))
}
loop <- function(data, formula, replicates) {
  formula <- as.formula(formula)
  by <- split(seq_len(nrow(data)), interaction(data$a1, data$a2))
  null <- replicate(replicates, {
    shuffled <- data
    shuffled[c("a1", "a2")] <- data[sample(nrow(data)), c("a1", "a2")]
    one_replicate(shuffled, formula)
  })
  boot <- replicate(replicates, {
    rows <- unlist(lapply(by, function(i) sample(i, length(i), replace = TRUE)))
    one_replicate(data[rows, ], formula)
  })
  invisible(NULL)
}
"""


def r_seconds(data: pd.DataFrame, text: str, replicates: int) -> float | None:
    """CPU seconds of the loop in R; None without R or rpy2."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import rpy2.robjects as ro
    except Exception:  # no rpy2, or no R that it can load
        return None
    frame = data.assign(s=(data["score"] >= 0.5).astype(int))
    columns = {
        c: ro.FactorVector(ro.StrVector(frame[c].astype(str)))
        if c in ("a1", "a2")
        else ro.FloatVector(frame[c].astype(float))
        for c in frame
    }
    ro.r(R_LOOP)
    ro.globalenv["data"] = ro.DataFrame(columns)
    return float(ro.r(f"system.time(loop(data, '{text}', {replicates}))[['user.self']]")[0])


# -- errors of the shortcuts ---------------------------------------------------------------------


def in_deviations(fast: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Mean and largest difference, in standard deviations of the replicates."""
    off = np.abs(fast - exact) / np.nanstd(exact, axis=0)
    return float(np.nanmean(off)), float(np.nanmax(off))


def permutation_errors(data: pd.DataFrame, text: str) -> tuple[float, float]:
    """The same seed gives the same labels whether or not the propensity is refitted."""
    draws = [
        analyse(data, text, n_perm=REPLICATES, seed=3, exact=exact).null_draws[["cfpr", "cfnr"]]
        for exact in (False, True)
    ]
    return in_deviations(*(d.to_numpy() for d in draws))


def bootstrap_errors(data: pd.DataFrame, text: str) -> tuple[float, float, float]:
    """One Newton step against a full refit, with the very weights of the one-pass bootstrap.

    They are drawn inside, so this goes below the public functions.
    """
    from cfair.inference import bootstrap as b
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
    for block in streams(3, 2, REPLICATES):
        fast.append(b.one_pass(plan, block).cells)
        rng = block.generator()
        weights = np.hstack(
            [
                b.exchangeable_weights(rng, block.size, part.stop - part.start)
                for part, _ in plan.blocks
            ]
        )
        exact.append(models.under_counts(plan.at.put_back(weights.astype(float))).cells)
    rates = [np.hstack(rates_from_cells(np.concatenate(parts))) for parts in (fast, exact)]
    boot = analyse(data, text, n_boot=REPLICATES, exact=True, seed=3).boot
    multinomial = np.hstack([boot.rates[m][:, : c.groups.n_groups] for m in ("cfpr", "cfnr")])
    own = rates[0]
    ratio = own.std(axis=0) / multinomial.std(axis=0)
    return (*in_deviations(*rates), float(ratio.mean()))


# -- tables --------------------------------------------------------------------------------------


def small(say: Callable[[str], None]) -> list[str]:
    """5000 rows, 4 groups."""
    n, r_replicates, numpy_replicates = 5000, 25, 50
    lines = [
        f"## {n:,} rows, 4 groups, {REPLICATES} permutations and {REPLICATES} bootstrap replicates",
        "",
        "| propensity | covariates | replicates, CPU s | goal | whole call, CPU s "
        "| with its tables | numpy loop | R loop | numpy / cfair | R / cfair |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    errors = [
        "",
        f"Error of a replicate against a full refit (`exact=True`), in standard deviations of the "
        f"{REPLICATES} replicates, {n:,} rows:",
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
            bare, _ = clock(lambda d=data, t=text: analyse(d, t), 9)
            whole, _ = clock(
                lambda d=data, t=text: analyse(d, t, n_perm=REPLICATES, n_boot=REPLICATES), 9
            )
            tables, _ = clock(
                lambda d=data, t=text: analyse(
                    d, t, n_perm=REPLICATES, n_boot=REPLICATES
                ).summary(),
                3,
            )
            own = whole - bare
            loop, _ = clock(lambda d=data, a=with_attributes: numpy_loop(d, a, numpy_replicates), 1)
            loop *= REPLICATES / numpy_replicates
            in_r = r_seconds(data, text, r_replicates)
            r_text = r_ratio = "no R"
            if in_r is not None:
                in_r *= REPLICATES / r_replicates
                r_text, r_ratio = f"{in_r:.1f}", f"{in_r / own:.0f}"
            verdict = "met" if own <= goal else "MISSED"
            lines.append(
                f"| {what} | {n_covariates} | {own:.3f} "
                f"| {goal} {verdict} | {whole:.3f} | {tables:.3f} | {loop:.1f} | {r_text} "
                f"| {loop / own:.0f} | {r_ratio} |"
            )
            mean, largest = permutation_errors(data, text)
            boot_mean, boot_largest, ratio = bootstrap_errors(data, text)
            errors.append(
                f"| {what} | {n_covariates} | {mean:.4f} | {largest:.3f} | {boot_mean:.4f} "
                f"| {boot_largest:.3f} | {ratio:.3f} |"
            )
            say(lines[-1])
            say(errors[-1])
    lines += [
        "",
        "Replicates: the whole call less the same call without replicates. With its tables: "
        "`summary()` as well, that is intervals, tests, p- and u-values. "
        f"The loops refit from scratch in each replicate ({numpy_replicates} of each kind measured "
        f"in numpy, {r_replicates} in R, scaled up).",
    ]
    return lines + errors


# CPU seconds of faircfint 0.0.0.9000 under R 4.2.2 (5000 rows, 4 groups; 100 null, 100 bootstrap
# replicates of the small-subgroup estimator, internal data only), recorded in one process.
R_SMALL = 111.964 + 25.220


def others(say: Callable[[str], None]) -> list[str]:
    """Replicates of the other estimators."""
    data = make_cohort(5000, (2, 2), 4)
    text = formula(4, True)
    model = text.replace("d ~", "y ~")
    lines = [
        "",
        "## Other estimators",
        "",
        "| what | rows | replicates | CPU s | against |",
        "|---|---|---|---|---|",
    ]

    def add(what: str, rows: int, n: int, seconds: float, against: str) -> None:
        lines.append(f"| {what} | {rows:,} | {n} + {n} | {seconds:.2f} | {against} |")
        say(lines[-1])

    for estimator in ("aipw", "plugin"):
        options = {"outcome_model": model, "estimator": estimator}
        bare, _ = clock(lambda o=options: analyse(data, text, **o), 5)
        whole, _ = clock(
            lambda o=options: analyse(data, text, n_perm=REPLICATES, n_boot=REPLICATES, **o), 3
        )
        exact, _ = clock(
            lambda o=options: analyse(data, text, n_perm=50, n_boot=50, exact=True, **o), 1
        )
        exact = (exact - bare) * REPLICATES / 50
        ratio = f"{exact / (whole - bare):.0f} times faster than full refits ({exact:.1f} s)"
        add(f"{estimator}, models with attributes", 5000, REPLICATES, whole - bare, ratio)
    small = pd.read_csv(HERE / "recorded" / "data" / "small_groups.csv")
    for what, frame in (
        ("small subgroups, recorded data, 6 groups", small),
        ("the same rows drawn to 5,000", small.sample(5000, replace=True, random_state=1)),
    ):
        seconds, _ = clock(lambda f=frame: small_subgroups(f), 3)
        ratio = f"R on 5,000 other rows {R_SMALL:.0f} s: {R_SMALL / seconds:.0f} times faster"
        add(what, len(frame), 100, seconds, ratio)
    return lines


def small_subgroups(frame: pd.DataFrame) -> None:
    """The analysis that R was timed on, in the form of the recorded runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        cfair.Audit(
            frame, outcome="Y", score="S_prob", cutoff=0.5, groups=["A1", "A2"], treatment="D"
        ).small_subgroups(
            "D ~ X1 + X2 + X3 + X4",
            outcome_model="Y ~ XO1 + XO2 + XO3 + XO4 + XO5 + XO6",
            membership="~ XP1 + XP2 + XP3 + XP4 + XP5",
            n_boot=100,
            n_perm=100,
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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    steps = watch_steps()
    start = time.process_time(), time.perf_counter()
    result = analyse(data, text, **replicates)
    tables_of(result)
    found = {
        "cpu": time.process_time() - start[0],
        "wall": time.perf_counter() - start[1],
        "data_gb": before,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "steps": steps,
        "columns": len(result.propensity.coef),
    }
    print(json.dumps(found))


def large(say: Callable[[str], None]) -> list[str]:
    """A million rows, 12 groups, 10 covariates."""
    lines = [
        "",
        "## 1,000,000 rows, 12 groups, 10 covariates",
        "",
        "| what | propensity | design columns | CPU s | wall s | goal | peak memory, GB "
        "(data alone) | goal |",
        "|---|---|---|---|---|---|---|---|",
    ]
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
        lines.append(
            f"| {what} | {model} | {found['columns']} | {found['cpu']:.2f} | {found['wall']:.2f} "
            f"| {goal} {time_met} | {found['peak_gb']:.2f} ({found['data_gb']:.2f}) "
            f"| 3 {memory_met} |"
        )
        say(lines[-1])
        if part.startswith("intervals"):
            parts = [f"{STEPS[k]} {v:.2f}" for k, v in found["steps"].items()]
            rest = found["cpu"] - sum(found["steps"].values())
            steps.append(f"- {model}: {'; '.join(parts)}; all else {rest:.2f}.")
            say(steps[-1])
    return [
        *lines,
        "",
        "The data are a pandas frame with categorical attributes; reading it, the fit, all tables, "
        "contrasts and tests are part of the time, imports are not.",
        *steps,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="a million rows as well")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return

    def say(line: str) -> None:
        print(line, flush=True)

    lines = [
        "# Speed",
        "",
        f"`python validation/benchmark.py{' --large' if options.large else ''}`, cfair "
        f"{cfair.__version__}, numpy {np.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}, one thread. CPU seconds, on a machine shared with other work: "
        "compare ratios.",
        "",
        *small(say),
        *others(say),
    ]
    if options.large:
        lines += large(say)
    (HERE / "benchmark.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
