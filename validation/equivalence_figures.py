"""Tables 2 and 3 and figures 2 to 4 of the paper on equivalence, and a simulation of the power.

The paper (Cancers 2026, 18, 3514) gives figures in its text and no software. What it prints is
compared by test_published_equivalence.py; here the tables and curves are computed from the same
scenarios, as csv and png, and power and size of the tests are simulated from whole populations.

Run by hand, less than a minute; writes to equivalence/ beside itself.

    python validation/equivalence_figures.py --draws 10000 --seed 1
"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import cfair
from cfair.equivalence.design import RULE_OF_FIVE, expected_cells, scenario
from cfair.equivalence.margins import METRIC_NAMES, METRICS, contrast_value
from cfair.equivalence.tost import tost_counts
from cfair.estimators.confusion import RATE_CELLS

HERE = Path(__file__).parent / "equivalence"
#: The scenario that the figures in the text belong to, unless they say otherwise.
BASE: dict[str, Any] = {
    "share": 0.25, "prevalence": 0.25, "sensitivity": 0.75, "specificity": 0.75,
}  # fmt: skip
COLORECTAL: dict[str, Any] = {
    "share": 0.468, "prevalence": 0.112, "sensitivity": 0.927, "specificity": 0.301,
}  # fmt: skip
EGFR: dict[str, Any] = {
    "share": 0.061, "prevalence": 0.25, "sensitivity": 0.84, "specificity": 0.99,
}  # fmt: skip
SUCCESS, FAILURE = ["tpr", "tnr", "ppv", "npv"], ["fnr", "fpr", "fdr", "for"]
DRAWS = 10_000
#: Columns of the curves that are written.
CURVE = ["panel", "metric", "contrast", "share", "prevalence", "rate", "margin_low", "margin_high",
         "n", "power"]  # fmt: skip


# -- tables and figures ---------------------------------------------------------------------------


def table_2() -> pd.DataFrame:
    """Patients needed by ratio and by odds ratio, and the rates that each margin lets through."""
    ratio = cfair.equivalence_sample_size(**BASE).frame
    odds = cfair.equivalence_sample_size(**BASE, contrast="odds_ratio").frame
    rows = []
    for metric, rate, n_ratio, n_odds in zip(
        METRICS, ratio["rate"], ratio["n"], odds["n"], strict=True
    ):
        row = {"metric": metric, "rate": rate, "n_ratio": n_ratio, "n_odds_ratio": n_odds}
        for name in ("ratio", "odds_ratio"):
            worse, better, _ = cfair.margin_in_patients(
                rate=rate, metric=metric, contrast=name, per=1
            )
            low, high = (better, worse) if metric in FAILURE else (worse, better)
            row.update({f"{name}_low": rate - low, f"{name}_high": rate + high})
        rows.append(row)
    return pd.DataFrame(rows)


def table_3() -> pd.DataFrame:
    """PPV, NPV, FDR and FOR when only the prevalence differs between the groups."""
    pairs = [(0.131, 0.095), (0.112, 0.112), (0.20, 0.10), (0.15, 0.10), (0.25, 0.20), (0.5, 0.25)]
    frames = []
    for name, base in (("colorectal", COLORECTAL), ("base", BASE), ("EGFR", EGFR)):
        for group, reference in pairs:
            plan = cfair.equivalence_plan(
                **{**base, "prevalence": group}, reference_prevalence=reference
            )
            alone = plan.prevalence_alone
            alone.insert(0, "example", name)
            alone["n_needed"] = (
                plan.frame.set_index("metric").loc[alone["metric"], "n_needed"].array
            )
            frames.append(alone)
    return pd.concat(frames, ignore_index=True)


def curves(metrics: list[str], n: np.ndarray, **changed: Any) -> Any:
    """Power over N of the base scenario, with one thing changed."""
    columns = {k: np.asarray(v, float)[:, None] for k, v in changed.items() if np.ndim(v)}
    fixed = {k: v for k, v in changed.items() if not np.ndim(v)}
    return cfair.equivalence_power(metrics, n=n, **{**BASE, **columns, **fixed})


def figures() -> dict[str, list[Any]]:
    """By name: results whose curves make up the figure, a panel each."""
    n = np.unique(np.geomspace(50, 40_000, 60).astype(int))
    share, prevalence = [0.1, 0.25, 0.5], [0.01, 0.1, 0.25, 0.5]
    wide = np.unique(np.geomspace(50, 200_000, 60).astype(int))
    return {
        "figure_2_by_share": [curves([m], n, share=share) for m in SUCCESS],
        "figure_3_by_prevalence": [curves([m], wide, prevalence=prevalence) for m in SUCCESS],
        "figure_4_failures_and_odds_ratio": [
            curves(FAILURE, wide),
            curves(SUCCESS, wide, contrast="odds_ratio"),
            curves(SUCCESS, n),
            cfair.equivalence_margin(SUCCESS, n=2000, **BASE),
        ],
    }


def draw(folder: Path) -> None:
    """Write the curves as csv and png."""
    from matplotlib import pyplot as plt

    for name, results in figures().items():
        frames = [r.frame.assign(panel=k + 1) for k, r in enumerate(results)]
        together = pd.concat(frames, ignore_index=True)[CURVE]
        together.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        figure, axes = plt.subplots(2, 2, figsize=(12, 10), layout="constrained")
        for result, ax in zip(results, axes.ravel(), strict=True):
            result.plot(ax=ax)
            metrics = list(dict.fromkeys(result.frame["metric"]))
            if len(metrics) == 1:
                ax.set_title(METRIC_NAMES[metrics[0]], loc="left", fontsize=10, pad=22)
        figure.savefig(folder / f"{name}.png", dpi=110)
        plt.close(figure)


# -- simulation -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A metric in a scenario; N is what the power of 0.8 needs unless given."""

    name: str
    metric: str
    groups: dict[str, Any]
    n: int | None = None
    contrast: str = "ratio"
    margin: tuple[float, float] = (0.8, 1.25)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        return {**self.groups, **self.more, "contrast": self.contrast, "margin": self.margin}


POWER = (
    Case("base, share .10", "tpr", {**BASE, "share": 0.1}),
    Case("base", "tpr", BASE),
    Case("base, share .50", "tpr", {**BASE, "share": 0.5}),
    Case("base", "ppv", BASE),
    Case("base", "tnr", BASE),
    Case("base", "fnr", BASE),
    Case("base", "fpr", BASE),
    Case("base", "fdr", BASE),
    Case("base", "for", BASE),
    Case("base, prevalence .01", "tpr", {**BASE, "prevalence": 0.01}),
    Case("base", "tpr", BASE, contrast="odds_ratio"),
    Case("base", "tpr", BASE, contrast="difference", margin=(-0.1, 0.1)),
    Case("sensitivity .77 / .75", "tpr", {**BASE, "sensitivity": 0.77},
         more={"reference_sensitivity": 0.75}),
    Case("prevalence .26 / .25", "ppv", {**BASE, "prevalence": 0.26},
         more={"reference_prevalence": 0.25}),
    Case("colorectal", "tnr", COLORECTAL, 4230),
    Case("colorectal", "ppv", COLORECTAL, 4230),
    Case("colorectal", "tpr", COLORECTAL, 600),
    Case("base", "npv", BASE),
    Case("EGFR", "tpr", EGFR, 1465),
    Case("EGFR", "tnr", EGFR, 1465),
    Case("EGFR", "ppv", EGFR, 1465),
    Case("EGFR", "ppv", EGFR, 494),
)  # fmt: skip


def at_margin(low: bool, rate: float, contrast: str, margin: tuple[float, float]) -> float:
    """The rate whose contrast to a reference rate is an end of the margin."""
    from cfair.equivalence.margins import contrast_applied

    return float(contrast_applied(rate, margin[0 if low else 1], contrast))


def _size(name: str, metric: str, base: dict[str, Any], n: int, low: bool, contrast="ratio",
          margin=(0.8, 1.25)) -> Case:  # fmt: skip
    """A case whose true contrast is an end of its margin."""
    what = "sensitivity" if metric in ("tpr", "fnr") else "specificity"
    rate = base[what] if metric in ("tpr", "tnr") else 1 - base[what]
    other = at_margin(low, rate, contrast, margin)
    group = other if metric in ("tpr", "tnr") else 1 - other
    return Case(f"{name}, at the {'lower' if low else 'upper'} end", metric, {**base, what: group},
                n, contrast, margin, {f"reference_{what}": base[what]})  # fmt: skip


SIZE = (
    _size("base", "tpr", BASE, 2548, True),
    _size("base", "tpr", BASE, 2548, False),
    _size("base", "tnr", BASE, 2000, True),
    _size("base", "fnr", BASE, 11_008, True),
    _size("base", "fnr", BASE, 11_008, False),
    _size("base", "tpr", BASE, 19_569, True, "odds_ratio"),
    _size("base", "tpr", BASE, 2548, True, "difference", (-0.1, 0.1)),
    _size("colorectal", "tpr", COLORECTAL, 4230, True),
    _size("colorectal", "tnr", COLORECTAL, 4230, False),
    _size("EGFR", "tpr", EGFR, 1465, True),
    _size("EGFR", "tnr", {**EGFR, "specificity": 0.97}, 300, True),
    _size("EGFR, prevalence .1", "tpr", {**EGFR, "prevalence": 0.1}, 1465, True),
    _size("share .05, sensitivity .96", "tpr", {**BASE, "share": 0.05, "sensitivity": 0.96}, 1600,
          True),
)  # fmt: skip


def simulate(case: Case, draws: int, seed: int) -> dict[str, Any]:
    """Share of drawn populations in which each test concludes equivalence."""
    planned = cfair.equivalence_sample_size(case.metric, **case.arguments).frame.iloc[0]
    n = int(planned["n"]) if case.n is None else case.n
    by = {
        method: cfair.equivalence_power(
            case.metric, n=n, **case.arguments, method=method
        ).frame.iloc[0]
        for method in ("wald", "score")
    }
    formula = by["wald"]
    groups = scenario(**{**case.groups, **case.more})
    cells = expected_cells(groups.prevalence, groups.sensitivity, groups.specificity)
    shares = (groups.shares * cells).reshape(-1)  # outcome, prediction, group
    rng = np.random.default_rng(seed)
    table = rng.multinomial(n, shares, size=draws).reshape(draws, 2, 2, 2)
    which = RATE_CELLS[case.metric]
    top = sum(table[:, y, s] for y, s in which.numerator)
    bottom = sum(table[:, y, s] for y, s in which.denominator)
    row: dict[str, Any] = {
        "case": case.name,
        "metric": METRIC_NAMES[case.metric],
        "contrast": case.contrast,
        "n": n,
        "least_cell": formula["least_cell"],
        "formula, wald": by["wald"]["power"],
        "formula, score": by["score"]["power"],
    }
    for method in ("wald", "score"):
        found = tost_counts(
            top[:, 0], bottom[:, 0], top[:, 1], bottom[:, 1], case.margin,
            contrast=case.contrast, method=method,
        )  # fmt: skip
        rejects = found.p_value < 0.05  # an undefined one is not
        row[method] = float(np.mean(rejects))
    row["true"] = float(contrast_value(formula["rate"], formula["reference_rate"], case.contrast))
    return row


def simulation(cases: tuple[Case, ...], draws: int, seed: int) -> pd.DataFrame:
    """A row per case; draws differ from case to case."""
    rows = [simulate(case, draws, seed + 1000 * k) for k, case in enumerate(cases)]
    frame = pd.DataFrame(rows)
    p = frame["formula, score"].clip(0.5 / draws, 1 - 0.5 / draws)
    frame["mc_se"] = np.sqrt(p * (1 - p) / draws)
    return frame


def markdown(power: pd.DataFrame, size: pd.DataFrame, draws: int, seed: int) -> str:
    """Both tables, and what they say."""
    enough = power["least_cell"] >= RULE_OF_FIVE
    off = {m: (power[m] - power[f"formula, {m}"]).abs() for m in ("wald", "score")}
    said = {}
    for m, distance in off.items():
        near = enough & (distance <= 3 * power["mc_se"])
        worst = power.loc[distance[enough].idxmax()]
        said[m] = (
            f"{int(near.sum())} of {int(enough.sum())} rows agree within three standard errors of "
            f"the simulation; the farthest is {worst['metric']}, {worst['case']}, by "
            f"{distance[enough].max():.3f} (least cell {worst['least_cell']:.0f})"
        )
    gap = (power["score"] - power["formula, wald"])[enough].min()
    few = {m: distance[~enough].max() for m, distance in off.items()}
    many = size["least_cell"] >= RULE_OF_FIVE
    wald, score = size.loc[many, "wald"].max(), size.loc[many, "score"].max()
    wald_few, score_few = size.loc[~many, "wald"].max(), size.loc[~many, "score"].max()
    error = 3 * np.sqrt(0.05 * 0.95 / draws)
    remarks = (
        f"Expected cells of {RULE_OF_FIVE} or more. Wald test and its formula: {said['wald']}. "
        f"Score test and its formula: {said['score']}. First-order formulas, with cells of a few "
        f"dozen. Planned by Wald's formula the score test is up to {-gap:.3f} short of its power.",
        f"Fewer: the power of the Wald test is up to {few['wald']:.2f} off its formula, that of "
        f"the score test up to {few['score']:.2f}.",
        f"Expected cells of {RULE_OF_FIVE} or more: at most {wald:.3f} by Wald and {score:.3f} by "
        "the score test. The log ratio is skewed, so that Wald's test is liberal at one end of the "
        "margin and conservative at the other, also where the rule of five holds.",
        f"Fewer: up to {wald_few:.3f} by Wald, at most {score_few:.3f} by the score test, which "
        "mends it.",
        "A power of 0 by formula means that the interval is wider than the margin at the standard "
        "error that is expected. Small samples vary, so that a test may still conclude.",
    )
    points = [
        "\n".join(textwrap.wrap(r, 96, initial_indent="- ", subsequent_indent="  "))
        for r in remarks
    ]
    return f"""# Power and size of the equivalence tests, simulated

{draws:,} populations a row, seed {seed}, drawn whole: group, outcome and prediction multinomial, so
that the denominators vary. Each one-sided test is at 0.05. Written by `equivalence_figures.py`.

## Power: formula against simulation

Least cell: the smallest expected count. Formula: `method="wald"` and `method="score"` of
`equivalence_power`; wald, score: simulated. Last column: the standard error of a simulated share.

{_table(power)}
{points[0]}
{points[1]}

## Size: the true contrast at an end of the margin

0.05 is allowed, and three standard errors of the simulation are {error:.3f}.

{_table(size)}
{points[2]}
{points[3]}
{points[4]}
"""


def _table(frame: pd.DataFrame) -> str:
    """A frame as a table in markdown."""
    names = ["case", "metric", "contrast", "true", "n", "least_cell", "formula, wald", "wald"]
    names += ["formula, score", "score", "mc_se"]
    shown = {"n": "{:,}", "least_cell": "{:.1f}", "true": "{:.3f}", "mc_se": "{:.4f}"}
    shown.update(dict.fromkeys(("formula, wald", "formula, score", "wald", "score"), "{:.4f}"))
    lines = [
        "| " + " | ".join(n.replace("_", " ") for n in names) + " |",
        "|---" * len(names) + "|",
    ]
    for _, row in frame.iterrows():
        cells = [shown[n].format(row[n]) if n in shown else str(row[n]) for n in names]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    HERE.mkdir(exist_ok=True)
    table_2().to_csv(HERE / "table_2.csv", index=False, float_format="%.6g")
    table_3().to_csv(HERE / "table_3.csv", index=False, float_format="%.6g")
    draw(HERE)
    power, size = (simulation(c, arguments.draws, arguments.seed) for c in (POWER, SIZE))
    said = markdown(power, size, arguments.draws, arguments.seed)
    (HERE / "simulation.md").write_text(said, encoding="utf-8")
    print(said)


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    main()
