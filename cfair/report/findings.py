"""Findings in plain words: an estimate with its interval, or that the data cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from cfair.report.blocks import label, listed, number, p_text, rate
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
#: Below this effective size of a denominator the analyses say to read a rate with care.
CARE_BELOW = 20.0
#: What it comes to, and the figures.
Finding = tuple[str, str]
#: Measures of the score that the page has a table of.
SCORE_METRICS: tuple[str, ...] = ("auc", "brier", "oe_ratio", "calibration_slope")
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
    if np.count_nonzero(result.cohort.groups.sizes) < 2:
        return [("One group only.", "Nothing can be compared.")]
    gaps = tabled_gaps(result)
    whole = " x ".join(result.cohort.groups.attributes)
    said: list[Finding] = []
    for metric in _TOLD.get(type(result), result.compared):
        mine = gaps[gaps["metric"] == metric]
        rows = mine[mine["by"] == whole]
        if rows["gap"].isna().all() and mine["gap"].notna().any():
            rows = mine[mine["gap"].notna()]  # what single attributes say is better than nothing
        said += [_finding(result, row, row["by"] != whole) for row in rows.to_dict("records")]
    return said


def tabled_gaps(result: RatesResult) -> pd.DataFrame:
    """The gaps that the page has in a table, with the adjusted p-values that are printed there.

    Parameters
    ----------
    result : RatesResult

    Returns
    -------
    pandas.DataFrame
        As `RatesResult.gaps`.
    """
    if result not in _GAPS:
        chosen = None
        if isinstance(result, PerformanceResult):
            chosen = [m for m in SCORE_METRICS if m in result.metrics]
        _GAPS[result] = result.gaps(chosen)
    return _GAPS[result].copy()


#: Gaps of a result, which findings and tables both ask for; kept as long as the result is.
_GAPS: WeakKeyDictionary[RatesResult, pd.DataFrame] = WeakKeyDictionary()


def _finding(result: RatesResult, row: dict[Any, Any], single: bool = False) -> Finding:
    """One gap in words; ``single`` if it is between the levels of one attribute."""
    metric = str(row["metric"])
    name, meaning = WORDS.get(metric, (metric, ""))
    if single:
        name = f"{name} by {label(row['by'])}"
    gap, low, high = (float(row[c]) for c in ("gap", "ci_low", "ci_high"))
    unknown = f"{name}: cannot tell whether groups differ."
    if np.isnan(gap):
        return unknown, f"{meaning}There is no gap to give: {label(row['note'])}."
    places = [_place(result, metric, row["by"] if single else None, row[c]) for c in _PAIR]
    one, other = (_rate_of(label(row[c]), at) for c, at in zip(_PAIR, places, strict=True))
    more = _care([(label(row[c]), at) for c, at in zip(_PAIR, places, strict=True)])
    if str(row["note"]).startswith(_NO_RATE):
        more += f" Left out, for want of a rate: {label(row['note'])[len(_NO_RATE) :]}."
    if np.isnan(low) or np.isnan(high):
        return unknown, (
            f"{meaning}The widest gap seen is {gap:.2f}, between {one} and {other}; no interval "
            f"was computed.{more}"
        )
    shown = f"{gap:.2f} ({100 * result.level:g}% interval {low:.2f} to {high:.2f})"
    if row["p_adjusted"] < 1 - result.level:
        return f"{name}: groups differ, by {shown}.", (
            f"{meaning}Highest in {one}, lowest in {other}.{_noise(row)}{more}"
        )
    adjusted = (
        f" The interval is of this gap alone; adjusted for all gaps of the table, "
        f"p = {p_text(row['p_adjusted'])}."
        if low > 0
        else ""
    )
    return unknown, (
        f"{meaning}The widest gap seen is {shown}, between {one} and {other}.{_noise(row)}"
        f"{adjusted}{_unseen(row, _compared(result, metric, row['by'] if single else None))}{more}"
    )


_NO_RATE = "no rate in "
_PAIR = ("group", "reference")


def _place(result: RatesResult, metric: str, attribute: str | None, group: Any) -> dict[Any, Any]:
    """The row of a rate: of a group, or of the level of an attribute."""
    if result not in _ROWS:
        single = result.marginals.assign(group=lambda f: f["level"].astype(str))
        rows = [*result.rates.assign(attribute=None).to_dict("records"), *single.to_dict("records")]
        _ROWS[result] = {(r["metric"], r["attribute"], str(r["group"])): r for r in rows}
    return _ROWS[result].get((metric, attribute, str(group)), {})


#: Rows of a result by metric, attribute and group, which are looked up for each gap.
_ROWS: WeakKeyDictionary[RatesResult, dict[Any, dict[Any, Any]]] = WeakKeyDictionary()


def _rate_of(name: str, row: dict[Any, Any]) -> str:
    if not row:
        return name
    value, low, high = (float(row[c]) for c in ("estimate", "ci_low", "ci_high"))
    return f"{name} ({rate(value, low, high, 2).replace(' (', ', ').rstrip(')')})"


def _care(places: Sequence[tuple[str, dict[Any, Any]]]) -> str:
    """Which of the groups in a sentence are so small that their rates are to be read with care."""
    said = ""
    for name, row in places:
        size = float(row.get("n_effective", np.nan))
        if size < CARE_BELOW:
            said += f" The rate of {name} rests on {_patients(size)}: read it with care."
        elif "read with care" in str(row.get("note", "")):
            why = label(row["note"]).partition(": read with care")[0]
            said += f" Read the figure of {name} with care: {why}."
    return said


def _patients(size: float) -> str:
    """An effective size in words."""
    shown = f"{size:.0f}" if abs(size - round(size)) < 0.01 else f"an effective {size:.1f}"
    return f"{shown} {'patient' if shown == '1' else 'patients'}"


def _noise(row: dict[Any, Any]) -> str:
    expected = float(row["expected_if_equal"])
    if np.isnan(expected):
        return ""
    return f" If all groups were alike, noise alone would give about {expected:.2f}."


def _compared(result: RatesResult, metric: str, attribute: str | None) -> int:
    """How many groups, or levels of an attribute, have a rate."""
    frame = result.rates
    if attribute is not None:
        frame = result.marginals[result.marginals["attribute"] == attribute]
    return int(frame.loc[frame["metric"] == metric, "estimate"].notna().sum())


def _unseen(row: dict[Any, Any], groups: int) -> str:
    """What the data could have shown: the power is of one pair, not of the widest of many."""
    detectable = float(row["detectable"])
    said = " This is no evidence that the groups are alike"
    if np.isnan(detectable):
        return f"{said}."
    if groups == 2:
        return f"{said}: a test of these two finds gaps from {detectable:.2f} on (80% power)."
    return (
        f"{said}: for one pair of groups of these sizes, chosen beforehand, a test finds gaps from "
        f"{detectable:.2f} on (80% power); the widest of many must be wider to be told from noise."
    )


def same_pair(counterfactual: RatesResult) -> list[Finding]:
    """How far the groups that differ most without treatment differ in the data.

    Only where the gap without treatment is told from 0: the pair was chosen because its gap is the
    widest there, so that any other would look like an effect of treatment by this choice alone.

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
    gaps = tabled_gaps(counterfactual)
    whole = " x ".join(counterfactual.cohort.groups.attributes)
    rates = counterfactual.rates.set_index(["metric", "group"])["estimate"]
    for row in gaps[gaps["by"] == whole].to_dict("records"):
        metric = str(row["metric"])
        if not row["p_adjusted"] < 1 - counterfactual.level:
            continue
        observed = metric.removeprefix("c")
        seen = float(rates[observed, row["group"]] - rates[observed, row["reference"]])
        if np.isnan(seen):
            continue
        small = [(label(row[c]), _place(counterfactual, metric, None, row[c])) for c in _PAIR]
        said.append(
            (
                f"{WORDS[metric][0]}: {number(seen, 2)} in the data, {float(row['gap']):.2f} had "
                "nobody been treated.",
                f"The gap of {label(row['group'])} to {label(row['reference'])}, a pair chosen "
                "because its gap is the widest without treatment; no interval is given of the "
                f"change between the two.{_care(small)}",
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
        if not defined:
            masked = result.cohort.suppress_below is not None
            why = ": their rates are masked or undefined" if masked else ": rates are undefined"
            return [(unknown, f"No contrast can be given{why}.")]
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
    few = cells[
        cells["below_min_count"].eq(True).fillna(False).astype(bool) | cells["absent"].astype(bool)
    ]
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
            (f"Had nobody been treated: {label(result.estimator)}", gap_findings(result) + more)
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
