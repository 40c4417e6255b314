"""Size of the tests of equivalence at the margin: exact for counts, simulated for weighted rates.

For counts every table that two groups can show is tested and weighted by its probability, so that
there is no Monte Carlo error. "Equivalent" is wrong at the margin, and should be said in at most
5%; "different" is wrong there too.

Run by hand; writes equivalence_data.md beside itself.

    python -m validation.equivalence_data --datasets 500 --seed 1
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import binom

import cfair
from cfair.equivalence.tost import least_expected_cell, tost_counts
from validation.ledger import quiet

HERE = Path(__file__).parent
ALPHA = 0.05
QUESTIONS = (
    ("ratio", (0.8, 1.25)), ("ratio", (0.5, 2.0)),
    ("odds_ratio", (0.5, 2.0)), ("difference", (-0.1, 0.1)),
)  # fmt: skip
SIZES = (
    (10, 10), (25, 75), (50, 150), (20, 400), (30, 1000), (100, 300), (250, 250), (60, 1500),
)  # fmt: skip
RATES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.75, 0.85, 0.9, 0.95, 0.97)


def rate_at(reference: float, value: float, contrast: str) -> float:
    """Rate of a group whose contrast to the reference has this value."""
    if contrast == "ratio":
        return reference * value
    if contrast == "difference":
        return reference + value
    return reference * value / (1 - reference + reference * value)


def exact_size(
    n: tuple[int, int], rates: tuple[float, float], margin: tuple[float, float], contrast: str
) -> dict[str, float]:
    """Probability of each verdict, by the score and by the Wald test.

    Parameters
    ----------
    n, rates : (group, reference)
    margin : (float, float)
    contrast : str

    Returns
    -------
    dict
        ``cell``, and ``equivalent`` and ``different`` by method.
    """
    x1, x2 = (np.arange(m + 1) for m in n)
    p = binom.pmf(x1, n[0], rates[0])[:, None] * binom.pmf(x2, n[1], rates[1])
    i, j = np.nonzero(p > 1e-10)
    found = {"cell": float(least_expected_cell(rates[0], n[0], rates[1], n[1]))}
    for method in ("wald", "score"):
        test = tost_counts(i, n[0], j, n[1], margin, contrast=contrast, method=method)
        found[f"equivalent, {method}"] = float(p[i, j][test.p_value < ALPHA].sum())
        found[f"different, {method}"] = float(p[i, j][test.p_value > 1 - ALPHA].sum())
    return found


def sizes() -> Iterator[dict[str, object]]:
    """Exact sizes of all designs, at both ends of the margin."""
    for contrast, margin in QUESTIONS:
        for n in SIZES:
            for reference in RATES:
                for end in margin:
                    rate = rate_at(reference, end, contrast)
                    if 0 < rate < 1:
                        found = exact_size(n, (rate, reference), margin, contrast)
                        yield {
                            "contrast": contrast, "margin": f"{margin[0]:g} to {margin[1]:g}",
                            "n": f"{n[0]} / {n[1]}", "rates": f"{rate:.3g} / {reference:g}",
                            **found,
                        }  # fmt: skip


#: What is simulated.
KINDS = ("cFPR by IPW", "FPR, weights", "FPR, clusters")
#: Rows of a cluster, and the correlation of two of them.
CLUSTER, ICC = 30, 0.05


def clustered(
    n: int, share: float, rates: tuple[float, float], rng: np.random.Generator
) -> pd.DataFrame:
    """Rows in clusters, each of which is in one group; of the group at least four.

    Parameters
    ----------
    n, share, rates, rng
        As for `simulated`.

    Returns
    -------
    pandas.DataFrame
    """
    few = max(4, round(n * share / CLUSTER))
    frames = []
    for group, clusters in ((1, few), (0, max(4, round(n * (1 - share) / CLUSTER)))):
        rate = rates[1 - group]
        own = rng.beta(rate * (1 - ICC) / ICC, (1 - rate) * (1 - ICC) / ICC, clusters)
        y0 = (rng.random(clusters * CLUSTER) < 0.25).astype(int)
        s = rng.random(len(y0)) < np.where(y0 == 1, 0.7, np.repeat(own, CLUSTER))
        code = 10_000 * group + np.repeat(np.arange(clusters), CLUSTER)
        frames.append(pd.DataFrame({"g": group, "y0": y0, "s": s.astype(int), "c": code}))
    return pd.concat(frames, ignore_index=True)


def simulated(
    n: int, share: float, rates: tuple[float, float], datasets: int, rng: np.random.Generator
) -> dict[str, float]:
    """How often weighted and clustered rates are wrongly called equivalent at the margin.

    Parameters
    ----------
    n : int
        Rows.
    share : float
        Of the group.
    rates : (float, float)
        FPR of the group and of the reference, whose ratio is 1.25.
    datasets : int
    rng : Generator

    Returns
    -------
    dict
        Shares of "equivalent", by kind of rate.
    """
    said: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    margin = (0.8, 1.25)
    for _ in range(datasets):
        group = (rng.random(n) < share).astype(int)
        x = rng.normal(size=n)
        y0 = (rng.random(n) < expit(-1.2 + x)).astype(int)
        s = (rng.random(n) < np.where(y0 == 1, 0.7, np.where(group == 1, *rates))).astype(int)
        d = (rng.random(n) < expit(-0.5 + 0.5 * x + 0.7 * s)).astype(int)
        y = y0 * (1 - d * (rng.random(n) < 0.6))
        data = pd.DataFrame({"g": group, "x": x, "y": y, "y0": y0, "s": s, "d": d})
        data["w"] = np.exp(rng.normal(0, 1, n))  # Kish's size is 37% of the rows
        within = clustered(n, share, rates, rng)
        common = {"prediction": "s", "groups": "g"}
        verdicts = {
            "cFPR by IPW": cfair.Audit(data, outcome="y", **common)
            .counterfactual("d ~ g + s + x")
            .equivalence("cfpr", margin=margin, reference=0),
            "FPR, weights": cfair.Audit(data, outcome="y0", weights="w", **common).equivalence(
                "fpr", margin=margin, reference=0
            ),
            "FPR, clusters": cfair.Audit(within, outcome="y0", cluster="c", **common).equivalence(
                "fpr", margin=margin, reference=0
            ),
        }
        for kind, result in verdicts.items():
            said[kind].append(result.pairs["verdict"].iloc[0] == "equivalent")
    return {kind: float(np.mean(values)) for kind, values in said.items()}


#: Rows, share of the group, FPR of group and reference.
DESIGNS = (
    (1500, 0.5, (0.75, 0.6)), (1500, 0.1, (0.75, 0.6)), (600, 0.1, (0.875, 0.7)),
    (3000, 0.3, (0.5, 0.4)),
)  # fmt: skip


def report(datasets: int, seed: int) -> str:
    """The page.

    Parameters
    ----------
    datasets, seed : int

    Returns
    -------
    str
    """
    frame = pd.DataFrame(sizes())
    lines = [
        "# Size of the tests of equivalence at the margin",
        "",
        "`python -m validation.equivalence_data "
        f"--datasets {datasets} --seed {seed}`; alpha = {ALPHA:g}. The true contrast is at an end "
        "of the margin, where equivalence should be said in at most 5% of studies.",
        "",
        "## Counts: exact, every table of two groups",
        "",
        f"{len(frame)} designs: sizes {', '.join(f'{a} / {b}' for a, b in SIZES)}; reference rates "
        f"{', '.join(f'{p:g}' for p in RATES)}; both ends of each margin. Cell is the smallest "
        "expected cell at the common rate.",
        "",
        "| contrast | cell | designs | equivalent: worst, Wald | score | above 6%, Wald | score | "
        "different: worst, Wald | score |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    bands = pd.cut(frame["cell"], [0, 1, 5, 10, 20, np.inf],
                   labels=["below 1", "1 to 5", "5 to 10", "10 to 20", "above 20"])  # fmt: skip
    for (contrast, band), part in frame.groupby(["contrast", bands], sort=False, observed=True):
        equal = [part[f"equivalent, {m}"] for m in ("wald", "score")]
        apart = [part[f"different, {m}"] for m in ("wald", "score")]
        lines.append(
            f"| {contrast.replace('_', ' ')} | {band} | {len(part)} | {equal[0].max():.3f} | "
            f"{equal[1].max():.3f} | {(equal[0] > 0.06).sum()} | {(equal[1] > 0.06).sum()} | "
            f"{apart[0].max():.3f} | {apart[1].max():.3f} |"
        )
    lines += [
        "",
        "The score test is therefore the default wherever rates are counts of independent rows, "
        "not only below five: Wald's size passes 6% with all expected cells above ten, too.",
        "",
        "## Where Wald is farthest off",
        "",
        *_designs(frame.nlargest(12, "equivalent, wald")),
        "",
        "## Where score is farthest off",
        "",
        *_designs(frame.nlargest(6, "equivalent, score")),
    ]
    error = np.sqrt(ALPHA * (1 - ALPHA) / datasets)
    lines += [
        "",
        "## Weights, clusters, counterfactual rates",
        "",
        f"{datasets:,} data sets a row; the standard error of a share of 5% is {100 * error:.1f} "
        "points. The ratio of the rates is 1.25, the upper end of the margin. Counterfactual and "
        "clustered rates have Wald's test with Student's quantile, weighted ones (log-normal "
        "weights, sd 1) the score test on effective sizes. Clusters are within groups, of "
        f"{CLUSTER} rows with a correlation of {ICC:g}; the group has four or more.",
        "",
        "| rows | share of the group | rates | cFPR by IPW | FPR, weights | FPR, clusters |",
        "|---|---|---|---|---|---|",
    ]
    rng = np.random.default_rng(seed)
    with quiet():
        for n, share, rates in DESIGNS:
            found = simulated(n, share, rates, datasets, rng)
            shown = " | ".join(f"{value:.3f}" for value in found.values())
            lines.append(f"| {n:,} | {share:g} | {rates[0]:g} / {rates[1]:g} | {shown} |")
    return "\n".join([*lines, ""])


def _designs(frame: pd.DataFrame) -> list[str]:
    """Designs as the rows of a table."""
    lines = [
        "| contrast | margin | n | rates | cell | equivalent, Wald | score |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in frame.to_dict("records"):
        cells = [
            row["contrast"].replace("_", " "),
            *(row[name] for name in ("margin", "n", "rates")),
            f"{row['cell']:.1f}",
            *(f"{row[f'equivalent, {method}']:.3f}" for method in ("wald", "score")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    (HERE / "equivalence_data.md").write_text(report(given.datasets, given.seed))
