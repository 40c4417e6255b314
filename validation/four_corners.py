"""Bias and coverage with right and wrong models: weighting, doubly robust, outcome model alone.

    python validation/four_corners.py --datasets 500 --seed 1      # ten minutes, one core
    python validation/four_corners.py --quick                      # half a minute, nothing written

In the design "known-rates" the counterfactual rates are exact, the propensity is logistic in the
groups, S and the covariates, and so is the outcome without treatment (S says as much of it as its
error rates do). A wrong model leaves out the groups and the call. In the weighted sample, rows were
kept with a probability that depends on the outcome, the group and a covariate, and have its inverse
as sampling weight. The table goes to ``four_corners.md``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import cfair
from cfair.datasets import simulate_cohort, true_rates
from cfair.errors import CfairWarning

HERE = Path(__file__).parent
DESIGN = "known-rates"
METRICS = ("cfpr", "cfnr")
PI = {"right": "d ~ a1 * a2 + s + x1 + x2", "wrong": "d ~ x1"}
MU = {"right": "y ~ a1 * a2 * s + x1 + x2 + x3 + x4", "wrong": "y ~ x3"}
#: Name in the table, estimator, propensity, outcome model, and whether it has to be right.
CASES = [
    ("IPW", "ipw", "right", None, True),
    ("IPW", "ipw", "wrong", None, False),
    ("AIPW", "aipw", "right", "right", True),
    ("AIPW", "aipw", "right", "wrong", True),
    ("AIPW", "aipw", "wrong", "right", True),
    ("AIPW", "aipw", "wrong", "wrong", False),
    ("AIPW, 5 folds", "aipw", "right", "right", True),
    ("outcome model alone", "plugin", None, "right", True),
    ("outcome model alone", "plugin", None, "wrong", False),
    ("IPW, weighted sample", "ipw", "right", None, True),
    ("AIPW, weighted sample", "aipw", "right", "right", True),
]
BIAS, LOW, HIGH = 0.005, 0.93, 0.97


def analyse(data: pd.DataFrame, case: tuple):
    """One estimate, with warnings of left-out terms kept quiet."""
    name, estimator, pi, mu, _ = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        audit = cfair.Audit(
            data,
            outcome="y",
            prediction="s",
            groups=["a1", "a2"],
            treatment="d",
            weights="w" if "weighted" in name else None,
        )
        return audit.counterfactual(
            None if pi is None else PI[pi],
            outcome_model=None if mu is None else MU[mu],
            estimator=estimator,
            folds=5 if "folds" in name else None,
        )


def sample(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """About n rows kept from more, with the inverse of the probability as weight."""
    full = simulate_cohort(int(4.2 * n), seed=rng, design=DESIGN)
    x = np.clip(full["x1"].to_numpy() - 1, -1, 1)
    kept = np.where(full["y"] == 1, 0.6, 0.15) * np.where(full["a1"] == "1", 1.0, 0.6)
    kept = np.clip(kept * np.exp(0.5 * x), 0.02, 1)
    here = rng.random(len(full)) < kept
    return full.assign(w=1 / kept)[here].reset_index(drop=True)


def study(n: int, n_datasets: int, seed: int) -> dict[int, np.ndarray]:
    """Error, standard error, hit and width of every rate: a (datasets, 2K, 4) array per case."""
    truth = true_rates(DESIGN)[list(METRICS)].to_numpy().T.ravel()
    found: dict[int, list] = {k: [] for k in range(len(CASES))}
    for i in range(n_datasets):
        rng = np.random.default_rng([seed, n, i])
        data = simulate_cohort(n, seed=rng, design=DESIGN)
        weighted = sample(n, rng)
        for k, case in enumerate(CASES):
            rates = analyse(weighted if "weighted" in case[0] else data, case).rates
            rates = rates[rates["metric"].isin(METRICS)]
            low, high = rates["ci_low"].to_numpy(), rates["ci_high"].to_numpy()
            error = rates["estimate"].to_numpy() - truth
            hit = (low <= truth) & (truth <= high)
            found[k].append(np.column_stack([error, rates["se"], hit, high - low]))
    return {k: np.array(rows) for k, rows in found.items()}


def table(found: dict[int, np.ndarray]) -> pd.DataFrame:
    """A row per case: largest bias of a rate, coverage over the rates, standard error by spread."""
    rows = []
    for k, (name, _, pi, mu, right) in enumerate(CASES):
        error, se, hit, width = np.moveaxis(found[k], -1, 0)
        bias = error.mean(axis=0)
        coverage = hit.mean(axis=0)
        rows.append(
            {
                "estimator": name,
                "propensity": pi or "–",
                "outcome model": mu or "–",
                "largest bias": np.abs(bias).max(),
                "coverage": coverage.mean(),
                "lowest": coverage.min(),
                "highest": coverage.max(),
                "sd": error.std(axis=0).mean(),
                "se / sd": (se.mean(axis=0) / error.std(axis=0)).mean(),
                "width": width.mean(),
                "has to be right": right,
            }
        )
    return pd.DataFrame(rows)


def failures(frame: pd.DataFrame) -> list[str]:
    """Cases with a right model that miss the goals; wrong ones that do not show."""
    wrong = []
    for row in frame.to_dict("records"):
        what = f"{row['estimator']}, propensity {row['propensity']}, {row['outcome model']}"
        if row["has to be right"]:
            if not row["largest bias"] <= BIAS:
                wrong.append(f"{what}: bias {row['largest bias']:.4f}")
            if not LOW <= row["coverage"] <= HIGH:
                wrong.append(f"{what}: coverage {row['coverage']:.3f}")
        elif row["largest bias"] < 2 * BIAS:
            wrong.append(f"{what}: a wrong model does not show, bias {row['largest bias']:.4f}")
    return wrong


def markdown(frame: pd.DataFrame, n: int, n_datasets: int, seed: int) -> str:
    """The table as committed."""
    lines = [
        "# Right and wrong models: the four corners",
        "",
        f"{n_datasets} cohorts of {n:,} rows of the design `{DESIGN}`, seed {seed}; four groups, "
        "cFPR and cFNR. Bias is the largest of the eight rates, coverage of 95% intervals the mean "
        f"over them. Goal wherever a model is right: bias at most {BIAS}, coverage {LOW:.0%} to "
        f"{HIGH:.0%}.",
        "",
        f"    python validation/four_corners.py --datasets {n_datasets} --n {n} --seed {seed}",
        "",
        "| estimator | propensity | outcome model | largest bias | coverage (lowest, highest rate) "
        "| sd | se / sd | width |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in frame.to_dict("records"):
        bold = "**" if row["has to be right"] else ""
        lines.append(
            f"| {row['estimator']} | {row['propensity']} | {row['outcome model']} "
            f"| {bold}{row['largest bias']:.4f}{bold} "
            f"| {bold}{row['coverage']:.3f}{bold} ({row['lowest']:.3f}, {row['highest']:.3f}) "
            f"| {row['sd']:.4f} | {row['se / sd']:.3f} | {row['width']:.3f} |"
        )
    missed = failures(frame)
    lines += ["", "All goals met." if not missed else "Missed: " + "; ".join(missed) + "."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the study from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=500)
    parser.add_argument("--n", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="40 cohorts, nothing is written")
    options = parser.parse_args()
    n_datasets = 40 if options.quick else options.datasets
    start = time.perf_counter()
    frame = table(study(options.n, n_datasets, options.seed))
    text = markdown(frame, options.n, n_datasets, options.seed)
    print(text, f"{time.perf_counter() - start:.0f} s", sep="\n")
    if not options.quick:
        (HERE / "four_corners.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
