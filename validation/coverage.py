"""Coverage of the intervals and size of the tests, on cohorts whose true rates are known.

    python validation/coverage.py --datasets 400 --seed 1          # a quarter of an hour, one core
    python validation/coverage.py --quick                          # a minute, nothing is written

The counterfactual rates of `simulate_cohort` are exact by construction and its propensity is
logistic, so every data set shows whether an interval holds the truth. The table goes to
``coverage.csv`` (all figures) and ``coverage.md`` (one row per design, with the goals).
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
import warnings
import zlib
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

import cfair
from cfair.datasets import simulate_cohort, true_rates
from cfair.errors import CfairWarning
from cfair.estimators.disparity import disparities

HERE = Path(__file__).parent
FORMULA = "d ~ a1 * a2 + s + x1 + x2 + x3 + x4"  # the right propensity of every design
DESIGNS = (
    "unequal",
    "fair",
    "low",
    "six-groups",
    "treatment-by-group",
    "fair-treatment-by-group",
    "fair-six-groups",
    "exchangeable",
)
FAIR = {"fair", "fair-treatment-by-group", "fair-six-groups", "exchangeable"}
SIZES = (1000, 5000)
METRICS = ("cfpr", "cfnr")
STATISTICS = ("average", "maximum", "variance")


@dataclass
class Tally:
    """What the data sets of one design and size gave; NaN where a quantity was undefined."""

    rates: list = field(default_factory=list)  # (2K,) hits
    rate_widths: list = field(default_factory=list)
    rate_errors: list = field(default_factory=list)  # (2K, 2) error and standard error
    differences: list = field(default_factory=list)  # (2 pairs,) hits
    difference_widths: list = field(default_factory=list)
    aggregates: list = field(default_factory=list)  # (2, 3) hits
    aggregate_widths: list = field(default_factory=list)
    wald: list = field(default_factory=list)  # (2,) p-values
    max_t: list = field(default_factory=list)
    boundary: list = field(default_factory=list)  # (2,) whether some rate was exactly 0 or 1


def audit(data: pd.DataFrame):
    """The analysis whose intervals are checked, with its warnings kept quiet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        return cfair.Audit(
            data, outcome="y", score="score", cutoff=0.5, groups=["a1", "a2"]
        ).counterfactual(FORMULA)


def add(tally: Tally, result, truth: np.ndarray) -> None:
    """Compare one result with the truth, a (2, K) array."""
    rates = result.rates[result.rates["metric"].isin(METRICS)]
    hit, width = _hits(rates, truth.ravel())
    tally.rates.append(hit)
    tally.rate_widths.append(width)
    estimate = rates["estimate"].to_numpy()
    tally.rate_errors.append(np.column_stack([estimate - truth.ravel(), rates["se"]]))
    pairs = list(combinations(range(truth.shape[1]), 2))
    gaps = np.array([[row[i] - row[j] for i, j in pairs] for row in truth])
    hit, width = _hits(result.contrasts(adjust=None), gaps.ravel())
    tally.differences.append(hit)
    tally.difference_widths.append(width)
    summaries = result.disparities[result.disparities["metric"].isin(METRICS)]
    hit, width = _hits(summaries, np.column_stack(disparities(truth)).ravel())
    tally.aggregates.append(hit.reshape(2, 3))
    tally.aggregate_widths.append(width.reshape(2, 3))
    tests = result.test_equal()
    tests = tests[tests["metric"].isin(METRICS)]
    tally.wald.append(tests["p_value"].to_numpy())
    tally.max_t.append(tests["max_t_p_value"].to_numpy())
    tally.boundary.append(np.isin(estimate.reshape(2, -1), (0, 1)).any(axis=1))


def _hits(frame: pd.DataFrame, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = frame["ci_low"].to_numpy(), frame["ci_high"].to_numpy()
    undefined = np.isnan(frame["estimate"].to_numpy()) | np.isnan(low)
    # a fair design has a true disparity of 1e-17, not 0, once differences are taken
    hit = ((low <= truth + 1e-12) & (truth <= high + 1e-12)).astype(float)
    hit[undefined] = np.nan
    return hit, np.where(undefined, np.nan, high - low)


def run(design: str, n: int, n_datasets: int, seed: int) -> Tally:
    """Analyse seeded data sets of one design and size."""
    truth = true_rates(design)[list(METRICS)].to_numpy().T
    tally = Tally()
    for k in range(n_datasets):
        # the name, not the position, so that a subset of the designs gives the same figures
        rng = np.random.default_rng([seed, zlib.crc32(design.encode()), n, k])
        add(tally, audit(simulate_cohort(n, seed=rng, design=design)), truth)
    return tally


def figures(design: str, n: int, tally: Tally) -> list[dict]:
    """Rows of the table: quantity, metric, value, Monte Carlo error, goal and verdict."""
    rows: list[dict] = []
    n_datasets = len(tally.rates)
    K = len(tally.rates[0]) // 2

    def row(quantity: str, metric: str, values: np.ndarray, width: float, **goal) -> None:
        defined = ~np.isnan(values)
        value = float(np.mean(values[defined]))
        # columns of one data set are not independent: the error is that of data-set means
        share = np.nanmean(values.reshape(n_datasets, -1), axis=1) if values.ndim > 1 else values
        error = float(np.nanstd(share, ddof=1) / np.sqrt(np.count_nonzero(~np.isnan(share))))
        rows.append(
            {
                "design": design,
                "n": n,
                "datasets": n_datasets,
                "quantity": quantity,
                "metric": metric,
                "value": value,
                "mc_error": error,
                "mean_width": width,
                "undefined": int(np.count_nonzero(~defined)),
                **_verdict(value, error if values.ndim > 1 else 0.0, int(defined.sum()), **goal),
            }
        )

    for name, hits, widths, goal in (
        ("rate", tally.rates, tally.rate_widths, {"low": 0.93, "high": 0.97}),
        ("difference", tally.differences, tally.difference_widths, {"low": 0.93, "high": 0.98}),
    ):
        hit, width = np.array(hits), np.array(widths)
        half = hit.shape[1] // 2
        for m, metric in enumerate(METRICS):
            part = slice(m * half, (m + 1) * half)
            row(f"{name}, mean", metric, hit[:, part], float(np.nanmean(width[:, part])), **goal)
        mean = np.nanmean(hit, axis=0)
        lowest = int(np.argmin(mean))
        metric = METRICS[lowest // half]
        goal = {"low": 0.90} if name == "rate" else {}
        row(f"{name}, lowest", metric, hit[:, lowest], float(np.nanmean(width[:, lowest])), **goal)
    hits, widths = np.array(tally.aggregates), np.array(tally.aggregate_widths)
    for m, metric in enumerate(METRICS):
        for j, statistic in enumerate(STATISTICS):
            goal = {"low": 0.93} if statistic != "variance" else {}
            row(statistic, metric, hits[:, m, j], float(np.nanmean(widths[:, m, j])), **goal)
    for name, p_values in (("logit Wald", tally.wald), ("max-t", tally.max_t)):
        p = np.array(p_values)
        for m, metric in enumerate(METRICS):
            rejected = np.where(np.isnan(p[:, m]), np.nan, (p[:, m] < 0.05).astype(float))
            if design in FAIR:
                row(f"{name}, size", metric, rejected, np.nan, low=0.02, high=0.08)
            else:
                row(f"{name}, power", metric, rejected, np.nan)
    errors = np.array(tally.rate_errors)
    sd = np.nanstd(errors[:, :, 0], axis=0, ddof=1)
    ratio = np.sqrt(np.nanmean(errors[:, :, 1] ** 2, axis=0)) / sd
    bias = np.abs(np.nanmean(errors[:, :, 0], axis=0))
    for m, metric in enumerate(METRICS):
        part = slice(m * K, (m + 1) * K)
        for quantity, value in (
            ("largest bias", bias[part].max()),
            ("se over sd, mean", ratio[part].mean()),
            ("se over sd, lowest", ratio[part].min()),
            ("data sets with a rate of 0 or 1", np.mean(np.array(tally.boundary)[:, m])),
        ):
            rows.append(
                {
                    "design": design,
                    "n": n,
                    "datasets": n_datasets,
                    "quantity": quantity,
                    "metric": metric,
                    "value": float(value),
                }
            )
    return rows


def _verdict(
    value: float, error: float, n: int, low: float | None = None, high: float | None = None
) -> dict[str, str]:
    """Whether a share of n hits meets its goal; `error` is that of dependent hits, 0 if none are.

    A share of 0 or 1 has an estimated error of 0, so the error is at least the binomial one of n
    independent hits at the bound.
    """
    if low is None:
        return {"goal": "", "verdict": ""}
    goal = f">= {low:g}" if high is None else f"{low:g} to {high:g}"
    short = max(low - value, value - (1 if high is None else high), 0)
    bound = low if value < low or high is None else high
    error = max(error, float(np.sqrt(bound * (1 - bound) / n)))
    verdict = "met" if short == 0 else "within error" if short <= 2 * error else "MISSED"
    return {"goal": goal, "verdict": verdict}


def study(designs=DESIGNS, sizes=SIZES, n_datasets: int = 400, seed: int = 1, say=None):
    """The whole table as a frame."""
    rows: list[dict] = []
    for design in designs:
        for n in sizes:
            start = time.perf_counter()
            rows += figures(design, n, run(design, n, n_datasets, seed))
            if say is not None:
                say(f"{design}, n = {n}: {time.perf_counter() - start:.0f} s")
    return pd.DataFrame(rows)


def as_markdown(table: pd.DataFrame, seed: int) -> str:
    """The table people read: a row per design and size."""
    n_datasets = int(table["datasets"].iloc[0])
    judged = table[table["goal"].fillna("") != ""]
    counts = judged["verdict"].value_counts()
    missed = judged[judged["verdict"] == "MISSED"]
    lines = [
        "# Coverage of nominal 95% intervals, size of tests at 5%",
        "",
        f"`python validation/coverage.py --datasets {n_datasets} --seed {seed}`, cfair "
        f"{cfair.__version__}, numpy {np.__version__}. IPW, right propensity `{FORMULA}`, default "
        "intervals: Wilson on the effective size, MOVER, tie-aware.",
        f"A coverage from {n_datasets} data sets has a standard error of "
        f"{100 * np.sqrt(0.95 * 0.05 / n_datasets):.1f} points; means over rates have less.",
        "",
        "Goals: rates 93 to 97% on average and no rate below 90%; differences 93 to 98% on "
        "average; average and maximum disparity at least 93%; logit Wald and max-t (both on the "
        "logit scale) reject 2 to 8% under fairness.",
        "The last column says whether a row meets them all; *within error*: missed by less than "
        "two Monte Carlo standard errors.",
        f"Goals met {counts.get('met', 0)}, within error {counts.get('within error', 0)}, "
        f"missed {counts.get('MISSED', 0)} of {len(judged)}.",
        "",
        "Cells: cFPR, cFNR, as percentages; lowest: of all rates or differences of both metrics. "
        "The tie-aware interval leaves 0 only when both tests reject.",
        "",
        "| design | n | rates, mean | lowest | differences, mean | lowest | average | maximum "
        "| variance | logit Wald | max-t | undefined rates | goals |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (design, n), part in table.groupby(["design", "n"], sort=False):
        found = part.set_index(["quantity", "metric"])

        def both(quantity: str, found=found) -> str:
            return ", ".join(
                f"{100 * found.loc[(quantity, m), 'value']:.1f}"
                for m in METRICS
                if (quantity, m) in found.index
            )

        kind = "size" if design in FAIR else "power"
        tests = [f"{both(f'{t}, {kind}')} ({kind})" for t in ("logit Wald", "max-t")]
        undefined = int(found.loc[("rate, mean", slice(None)), "undefined"].sum())
        verdicts = part.loc[part["goal"].fillna("") != "", "verdict"]
        verdict = "MISSED" if (verdicts == "MISSED").any() else "met"
        if verdict == "met" and (verdicts == "within error").any():
            verdict = "met, within error"
        cells = [
            design,
            f"{n:,}",
            both("rate, mean"),
            both("rate, lowest"),
            both("difference, mean"),
            both("difference, lowest"),
            *(both(s) for s in STATISTICS),
            *tests,
            str(undefined),
            verdict,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Mean width of the intervals, and how well standard errors match:", ""]
    lines += [
        "| design | n | rates | differences | average | maximum | largest bias "
        "| se over sd, mean | lowest | with a rate of 0 or 1 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (design, n), part in table.groupby(["design", "n"], sort=False):
        found = part.set_index(["quantity", "metric"])

        def pair(quantity: str, column: str, form: str, found=found) -> str:
            return ", ".join(format(found.loc[(quantity, m), column], form) for m in METRICS)

        cells = [
            design,
            f"{n:,}",
            pair("rate, mean", "mean_width", ".3f"),
            pair("difference, mean", "mean_width", ".3f"),
            pair("average", "mean_width", ".3f"),
            pair("maximum", "mean_width", ".3f"),
            pair("largest bias", "value", ".4f"),
            pair("se over sd, mean", "value", ".2f"),
            pair("se over sd, lowest", "value", ".2f"),
            pair("data sets with a rate of 0 or 1", "value", ".1%"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Missed goals:", ""]
    if missed.empty:
        lines.append("none.")
    for r in missed.itertuples():
        lines.append(
            f"- {r.design}, n = {r.n:,}: {r.quantity} {r.metric} {r.value:.3f} "
            f"(se {r.mc_error:.3f}), goal {r.goal}"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="40 data sets, nothing is written")
    options = parser.parse_args()
    n_datasets = 40 if options.quick else options.datasets
    table = study(
        n_datasets=n_datasets, seed=options.seed, say=lambda line: print(line, flush=True)
    )
    text = as_markdown(table, options.seed)
    if not options.quick:
        table.round(6).to_csv(HERE / "coverage.csv", index=False, lineterminator="\n")
        (HERE / "coverage.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
