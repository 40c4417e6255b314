"""Findings in plain words: an estimate with its interval, or that the data cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfair.report.blocks import label, listed, number, rate
from cfair.results.equivalence import VERDICTS, EquivalenceResult
from cfair.results.group_intervention import GroupInterventionResult
from cfair.results.interaction import InteractionResult
from cfair.results.observed import ObservedResult
from cfair.results.performance import PerformanceResult
from cfair.results.rates import RatesResult
from cfair.results.representation import RepresentationResult
from cfair.results.treated import TreatedResult

#: Metrics as they are named in a sentence.
WORDS: dict[str, tuple[str, str]] = {
    "selection_rate": ("Share flagged", ""),
    "tpr": ("Sensitivity", "Share flagged among those with the event. "),
    "fpr": ("False positive rate", "Share flagged among those without the event. "),
    "fnr": ("False negative rate", "Share missed among those with the event. "),
    "ppv": ("Positive predictive value", "Share with the event among those flagged. "),
    "cfpr": ("False positive rate", "Share flagged among those who would have no event. "),
    "cfnr": ("False negative rate", "Share missed among those who would have the event. "),
    "auc": ("AUC", ""),
    "brier": ("Brier score", ""),
    "oe_ratio": ("Observed to expected events", ""),
    "calibration_slope": ("Calibration slope", ""),
}
#: What it comes to, and the figures.
Finding = tuple[str, str]
#: Which rates of a result the findings are about, in this order.
_TOLD: dict[type, tuple[str, ...]] = {
    ObservedResult: ("fpr", "tpr", "selection_rate"),
    PerformanceResult: ("auc", "oe_ratio"),
}


def gap_findings(result: RatesResult) -> list[Finding]:
    """The widest gap of each rate between the groups: how large, how sure, or that it is unknown.

    Parameters
    ----------
    result : RatesResult

    Returns
    -------
    list of (str, str)
        What it comes to, and the figures.
    """
    metrics = _TOLD.get(type(result), result.compared)
    if np.count_nonzero(result.cohort.groups.sizes) < 2:
        return [("One group only.", "Nothing can be compared.")]
    gaps = result.gaps([m for m in metrics if m in result.metrics], adjust=None)
    whole = " x ".join(result.cohort.groups.attributes)
    rows = gaps[gaps["by"] == whole].to_dict("records")
    return [_finding(result, row) for row in rows]


def _finding(result: RatesResult, row: dict[Any, Any]) -> Finding:
    metric = str(row["metric"])
    name, meaning = WORDS.get(metric, (metric, ""))
    gap, low, high = (float(row[c]) for c in ("gap", "ci_low", "ci_high"))
    unknown = f"{name}: cannot tell whether groups differ."
    if np.isnan(gap):
        return unknown, f"{meaning}There is no gap to give: {label(row['note'])}."
    one, other = (_rate_of(result, metric, row[c]) for c in ("group", "reference"))
    if np.isnan(low) or np.isnan(high):
        return unknown, (
            f"{meaning}The widest gap seen is {gap:.2f}, between {one} and {other}; no interval "
            "was computed."
        )
    shown = f"{gap:.2f} ({100 * result.level:g}% interval {low:.2f} to {high:.2f})"
    if low > 0:
        return f"{name}: groups differ, by {shown}.", (
            f"{meaning}Highest in {one}, lowest in {other}.{_noise(row)}"
        )
    return unknown, (
        f"{meaning}The widest gap seen is {shown}, between {one} and {other}.{_noise(row)}"
        f"{_unseen(row)}"
    )


def _rate_of(result: RatesResult, metric: str, group: Any) -> str:
    rates = result.rates
    row = rates[(rates["metric"] == metric) & (rates["group"] == group)]
    if row.empty:
        return label(group)
    value, low, high = row.iloc[0][["estimate", "ci_low", "ci_high"]].astype(float)
    return f"{label(group)} ({rate(value, low, high, 2).replace(' (', ', ').rstrip(')')})"


def _noise(row: dict[Any, Any]) -> str:
    expected = float(row["expected_if_equal"])
    if np.isnan(expected):
        return ""
    return f" If all groups were alike, noise alone would give about {expected:.2f}."


def _unseen(row: dict[Any, Any]) -> str:
    detectable = float(row["detectable"])
    said = " This is no evidence that the groups are alike"
    if np.isnan(detectable):
        return f"{said}."
    found = f"a test of two groups of these sizes finds gaps from {detectable:.2f} on (80% power)"
    return f"{said}: {found}."


def same_pair(counterfactual: RatesResult) -> list[Finding]:
    """How far the groups that differ most without treatment differ in the data.

    Parameters
    ----------
    counterfactual : RatesResult
        With the observed rates of the same rows.

    Returns
    -------
    list of (str, str)
    """
    said: list[Finding] = []
    if np.count_nonzero(counterfactual.cohort.groups.sizes) < 2:
        return said
    gaps = counterfactual.gaps(counterfactual.compared, adjust=None)
    whole = " x ".join(counterfactual.cohort.groups.attributes)
    rates = counterfactual.rates.set_index(["metric", "group"])["estimate"]
    for row in gaps[gaps["by"] == whole].to_dict("records"):
        metric = str(row["metric"])
        if np.isnan(row["gap"]):
            continue
        observed = metric.removeprefix("c")
        seen = float(rates[observed, row["group"]] - rates[observed, row["reference"]])
        if np.isnan(seen):
            continue
        said.append(
            (
                f"{WORDS[metric][0]}: {number(seen, 2)} in the data, {float(row['gap']):.2f} had "
                "nobody been treated.",
                f"The gap of {label(row['group'])} to {label(row['reference'])}; no interval is "
                "given of the change between the two.",
            )
        )
    return said


def equivalence_finding(result: EquivalenceResult) -> list[Finding]:
    """How many pairs got which verdict.

    Parameters
    ----------
    result : EquivalenceResult

    Returns
    -------
    list of str
    """
    said: list[Finding] = []
    for row in result.overall.to_dict("records"):
        metric = str(row["metric"])
        low, high = result.question.margins[metric]
        counts = [(int(row[name.replace(" ", "_")]), name) for name in VERDICTS]
        shown = listed([f"{n:,} {name}" for n, name in counts if n])
        name = result.labels[metric]
        contrast = result.question.contrast.replace("_", " ")
        said.append(
            (
                f"{name.capitalize() if name.islower() else name}: of {int(row['pairs']):,} "
                f"{'pair' if row['pairs'] == 1 else 'pairs'}, {shown}.",
                f"Equivalent is a {contrast} within {short(low)} to {short(high)}; "
                f"{label(result.reference)}.",
            )
        )
    return said


def short(value: float) -> str:
    """A number as short as it goes, with a true minus sign."""
    return f"{value:g}".replace("-", "−")


def interaction_finding(result: InteractionResult) -> list[Finding]:
    """In how many comparisons two attributes together do more or less than add up.

    Parameters
    ----------
    result : InteractionResult

    Returns
    -------
    list of (str, str)
    """
    frame = result.contrasts
    told = frame[frame["p_adjusted"] < 1 - result.level]
    unknown = "Effects of two attributes: cannot tell whether they do more than add up."
    if told.empty:
        defined = int(frame["contrast"].notna().sum())
        return [(unknown, f"None of {defined:,} contrasts is told from 0 after adjustment.")]
    named = [
        f"{result.labels[r['metric']]} of {label(r['level_a'])} & {label(r['level_b'])} "
        f"({rate(r['contrast'], r['ci_low'], r['ci_high'], 2)})"
        for r in told.to_dict("records")
    ]
    return [
        (
            f"Effects of two attributes: {len(told):,} of {len(frame):,} contrasts do not just "
            "add up.",
            f"After adjustment: {listed(named, 4)}.",
        )
    ]


def small_groups(result: RepresentationResult) -> list[str]:
    """Which groups are too small to be judged.

    Parameters
    ----------
    result : RepresentationResult

    Returns
    -------
    list of str
    """
    cells = result.cells
    few = cells[cells["below_min_count"].astype(bool) | cells["absent"].astype(bool)]
    if few.empty:
        return []
    least = result.tables.thresholds.min_count
    names = listed([label(g) for g in few["group"]], 6)
    return [
        f"{len(few):,} of {len(cells):,} groups have fewer than {least} rows, so that their rates "
        f"are hardly known: {names}."
    ]


def findings(
    representation: RepresentationResult, observed: ObservedResult, others: Sequence[Any]
) -> list[tuple[str, list[Finding]]]:
    """All findings under their headings, in the order of the page.

    Parameters
    ----------
    representation : RepresentationResult
    observed : ObservedResult
    others : sequence of results

    Returns
    -------
    list of (str, list of (str, str))
    """
    few = [("Small groups.", text) for text in small_groups(representation)]
    said = [("In the data as they are", [*few, *gap_findings(observed)])]
    treated = [r for r in others if isinstance(r, TreatedResult)]
    for k, result in enumerate(treated):
        more = same_pair(result) if k == 0 else []
        said.append(
            (f"Had nobody been treated, by {label(result.estimator)}", gap_findings(result) + more)
        )
    for result in others:
        if isinstance(result, GroupInterventionResult):
            said.append(("With everybody put into one group (a check of the model)",
                         gap_findings(result)))  # fmt: skip
        elif isinstance(result, PerformanceResult):
            said.append(("Quality of the score", gap_findings(result)))
        elif isinstance(result, InteractionResult):
            said.append(("Interaction of attributes", interaction_finding(result)))
        elif isinstance(result, EquivalenceResult):
            about = f": {label(result.about[:1].lower())}{label(result.about[1:])}"
            said.append((f"Equivalence{about if result.about else ''}",
                         equivalence_finding(result)))  # fmt: skip
    return said
