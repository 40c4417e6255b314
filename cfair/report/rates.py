"""Tables of rates and of the widest gaps, for every kind of rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cfair.disclosure import MASKED
from cfair.report import pictures
from cfair.report.blocks import (
    Block,
    Figure,
    Paragraph,
    Rows,
    Table,
    count,
    label,
    listed,
    number,
    p_text,
    rate,
)
from cfair.report.findings import SCORE_METRICS, tabled_gaps
from cfair.report.wording import (
    drawable,
    labels_of,
    left_out,
    level_of,
    range_words,
    sentence,
    several,
    short_names,
)
from cfair.results.forest import ordered_rows
from cfair.results.gaps import BRACKETS, odds_words, p_heading, severity_words
from cfair.results.group_intervention import GroupInterventionResult
from cfair.results.observed import ObservedResult
from cfair.results.performance import PerformanceResult
from cfair.results.rates import RatesResult
from cfair.results.replicated import ReplicatedResult
from cfair.results.report import shown_groups
from cfair.results.treated import TreatedResult

#: Groups whose curves still have a panel each.
MOST_PANELS = 12


def _parts(
    keys: Sequence[tuple[str, str]], cells: Callable[[tuple[str, str]], Sequence[str]]
) -> tuple[Rows, ...]:
    """Rows under the heading of their section."""
    parts: list[Rows] = []
    for section in dict.fromkeys(s for s, _ in keys):
        mine = [key for key in keys if key[0] == section]
        rows = tuple((label(key[1]), *cells(key)) for key in mine)
        parts.append(Rows(label(section), rows))
    return tuple(parts)


def rates_by_row(result: RatesResult, metrics: Sequence[str]) -> tuple[dict[Any, Any], list[str]]:
    """Rows of a result by (metric, section, group), and what is not shown."""
    chosen, hidden = shown_groups(result.estimates, result.cohort.groups.n_groups)
    frame = ordered_rows(result, metrics, only=sorted(chosen) if hidden else None)
    records = frame.to_dict("records")
    return {(r["metric"], r["section"], r["group"]): r for r in records}, hidden


def _keys(rows: dict[Any, Any]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((section, group) for _, section, group in rows))


def _rate_cell(row: dict[Any, Any] | None) -> str:
    if row is None:
        return "–"
    if str(row["note"]).startswith(MASKED):
        return "masked"
    return rate(row["estimate"], row["ci_low"], row["ci_high"])


def _reasons(rows: dict[Any, Any], names: dict[str, str], hidden: Sequence[str]) -> str:
    """Why there is a dash in a table, what is masked, and what the table leaves out."""
    masked: dict[str, None] = {}
    why: dict[tuple[str, str], list[str]] = {}
    for (metric, _, group), row in rows.items():
        if str(row["note"]).startswith(MASKED):  # the cell itself says that it is
            masked[label(row["note"])] = None
        elif np.isnan(row["estimate"]) and row["note"]:
            at = (label(row["note"]), names.get(metric, metric))
            why.setdefault(at, []).append(label(group))
    alike: dict[tuple[str, str], list[str]] = {}
    for (note, metric), groups in why.items():  # metrics that the same groups lack are named once
        alike.setdefault((note, listed(groups)), []).append(metric)
    said = [
        f"{', '.join(metrics)} of {groups}: {note}" for (note, groups), metrics in alike.items()
    ]
    text = f"No rate: {'; '.join(said)}" if said else ""
    return " ".join(sentence(part) for part in (*masked, text, *hidden) if part)


def rates_table(result: RatesResult, metrics: Sequence[str], caption: str) -> Table:
    """Counts and rates of all, of single attributes and of intersections.

    Parameters
    ----------
    result : RatesResult
    metrics : sequence of str
    caption : str

    Returns
    -------
    Table
    """
    rows, hidden = rates_by_row(result, metrics)
    names = labels_of(result)
    first = metrics[0]

    def cells(key: tuple[str, str]) -> list[str]:
        whole = (first, *key)
        row = rows[whole]
        return [
            count(row.get("n")),
            count(row.get("events")),
            *(_rate_cell(rows.get((m, *key))) for m in metrics),
        ]

    head: tuple[str, ...] = ("Group", "n", "Events", *(names[m] for m in metrics))
    note = _reasons(rows, names, hidden)
    return Table(f"{caption} ({level_of(result)} intervals)", head, _parts(_keys(rows), cells),
                 note=note)  # fmt: skip


def _masked(result: RatesResult, metrics: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """Levels of an attribute, or groups, whose rate is masked, by metric and what they are of."""
    whole = " x ".join(result.cohort.groups.attributes)
    found: dict[tuple[str, str], list[str]] = {}
    for frame, by, name in (
        (result.rates, None, "group"),
        (result.marginals, "attribute", "level"),
    ):
        for r in frame[frame["metric"].isin(metrics)].to_dict("records") if len(frame) else ():
            if str(r["note"]).startswith(MASKED):
                of = whole if by is None else r[by]
                found.setdefault((r["metric"], of), []).append(label(r[name]))
    return found


def gaps_table(result: RatesResult, caption: str) -> Table:
    """The widest gap of each rate, by attribute and by intersection.

    Parameters
    ----------
    result : RatesResult
    caption : str

    Returns
    -------
    Table
    """
    frame = tabled_gaps(result)
    whole = " x ".join(result.cohort.groups.attributes)
    crossed = " × ".join(map(label, result.cohort.groups.attributes))
    names = {**labels_of(result), "equalized_odds": "TPR or FPR"}
    masked = _masked(result, [m for m in frame["metric"].unique() if m in result.metrics])
    parts = []
    for metric, mine in frame.groupby("metric", sort=False):
        rows = []
        for row in mine.to_dict("records"):
            known = not np.isnan(row["gap"])
            between = f"{label(row['group'])}, {label(row['reference'])}" if known else row["note"]
            between += odds_words(row)
            severity = severity_words(row)
            if not known and (lost := masked.get((str(metric), row["by"]))):
                between, severity = f"masked: {listed(lost)}", "masked"
            rows.append(
                (
                    crossed if row["by"] == whole else label(row["by"]),
                    between,
                    rate(row["gap"], row["ci_low"], row["ci_high"]),
                    number(row["expected_if_equal"]),
                    number(row["detectable"]),
                    p_text(row["p_adjusted"]),
                    severity or "–",
                )
            )
        parts.append(Rows(names.get(str(metric), str(metric)), tuple(rows)))
    head: tuple[str, ...] = (
        "By",
        "Highest, lowest",
        f"Gap ({level_of(result)} interval)",
        "If all alike",
    )
    head += ("Would be found", p_heading(frame), "Severity")
    note = (
        "If all alike: what noise alone would give. Would be found: the least gap between two "
        "groups of these sizes, chosen beforehand, that a test finds with 80% power; the widest of "
        "many pairs must be wider. p: that all groups are equal, "
        f"{frame['family'].iloc[0]}, while an interval is of its gap alone. A large p is no "
        f"evidence of equality. Severity knows nothing of noise: {BRACKETS}."
    )
    return Table(caption, head, tuple(parts), text_columns=(1,), note=note)


def observed_blocks(result: ObservedResult) -> list[Block]:
    """The data as they are.

    Parameters
    ----------
    result : ObservedResult

    Returns
    -------
    list of blocks
    """
    metrics = [m for m in ("selection_rate", "tpr", "fpr", "ppv") if m in result.metrics]
    treated = result.cohort.treatment_name is not None
    flagged = labels_of(result)["selection_rate"]
    blocks: list[Block] = [
        Paragraph(
            f"{flagged[:1].upper()}{flagged[1:]} is the share flagged; TPR, the sensitivity, the "
            "share flagged among those with the event; FPR the share flagged among those without; "
            "PPV the share with the event among those flagged."
            + " What treatment did to the outcomes is in these rates."
            * treated
        ),
        rates_table(result, metrics, "Observed rates"),
    ]
    if several(result.cohort):
        blocks.append(gaps_table(result, "Widest gaps in observed rates"))
    return blocks


def counterfactual_blocks(results: Sequence[TreatedResult]) -> list[Block]:
    """Rates had nobody been treated, beside the observed ones of the same patients.

    Parameters
    ----------
    results : sequence of TreatedResult

    Returns
    -------
    list of blocks
    """
    blocks: list[Block] = [
        Paragraph(
            "Treating patients who are flagged prevents events and so makes right calls look "
            "wrong. The counterfactual rates are those of the same calls had nobody been treated. "
            "They rest on the untreated patients and their events, weighted or modelled to stand "
            "for everybody, and on there being no unmeasured confounding."
        )
    ]
    heads = short_names(results)
    for metric, word in (("fpr", "False positive rate"), ("fnr", "False negative rate")):
        blocks.append(_side_by_side(results, heads, metric, word))
    for result, head in zip(results, heads, strict=True):
        if several(result.cohort):
            caption = f"Widest gaps had nobody been treated: {head}"
            blocks.append(gaps_table(result, caption))
        if result.null is not None:
            blocks.append(_null_table(result, head))
    return blocks


def _side_by_side(
    results: Sequence[TreatedResult], heads: Sequence[str], metric: str, word: str
) -> Table:
    first, hidden = rates_by_row(results[0], [metric, f"c{metric}"])
    counter = [rates_by_row(r, [f"c{metric}"])[0] for r in results]
    keys = _keys(first)

    def cells(key: tuple[str, str]) -> list[str]:
        other = (metric, *key)
        row = first.get((f"c{metric}", *key)) or first[other]
        return [
            count(row.get("n")),
            count(row.get("untreated")),
            count(row.get("events")),
            _rate_cell(first.get((metric, *key))),
            *(_rate_cell(rows.get((f"c{metric}", *key))) for rows in counter),
        ]

    head: tuple[str, ...] = ("Group", "n", "Untreated", "Events among them", "Observed")
    head += tuple(f"Nobody treated: {h}" for h in heads)
    note = _reasons(
        {k: v for rows in counter for k, v in rows.items()}, labels_of(results[0]), hidden
    )
    return Table(f"{word}, observed and had nobody been treated ({level_of(results[0])} intervals)",
                 head, _parts(keys, cells), note=note)  # fmt: skip


def _null_table(result: ReplicatedResult, head: str) -> Table:
    frame = result.disparities
    frame = frame[frame["metric"].isin(result.compared) & (frame["statistic"] != "variance")]
    names = labels_of(result)
    parts = []
    for metric, mine in frame.groupby("metric", sort=False):
        rows = tuple(
            (
                f"{r['statistic']} difference",
                rate(r["estimate"], r["ci_low"], r["ci_high"]),
                number(r["expected_if_equal"]),
                p_text(r["p_value"]),
                p_text(r["p_value_studentized"]),
                f"{number(r['u_value'], 2)} (δ = {r['u_delta']:g})",
            )
            for r in mine.to_dict("records")
        )
        parts.append(Rows(names[str(metric)], rows))
    assert result.null is not None
    return Table(
        f"Differences between groups against {result.null.n_replicates:,} permutations: {head}",
        ("Statistic", "Estimate (interval)", "If all alike", "p", "p, studentized", "u-value"),
        tuple(parts),
        note="The permutation p-values are small whenever groups differ in anything, prevalence "
        "and treatment too; the studentized one less so. The u-value is the share of permutations "
        "that the observed difference exceeds by more than δ; it is no p-value.",
    )


def group_intervention_blocks(result: GroupInterventionResult) -> list[Block]:
    """Rates of the model with everybody put into one group.

    Parameters
    ----------
    result : GroupInterventionResult

    Returns
    -------
    list of blocks
    """
    blocks: list[Block] = [
        Paragraph(
            "Every patient is put into each group in turn, all other covariates as they are. This "
            "checks what a model does with membership; membership cannot be assigned in the world. "
            "Estimator: "
            + (
                "single robust, from the outcome model alone."
                if result.kind == "sr"
                else f"{result.estimator}."
            )
        ),
        rates_table(result, list(result.metrics), "Error rates with everybody in the group"),
    ]
    if several(result.cohort):
        blocks.append(gaps_table(result, "Widest gaps with everybody in the group"))
    return blocks


def performance_blocks(result: PerformanceResult) -> list[Block]:
    """Quality of the score by group.

    Parameters
    ----------
    result : PerformanceResult

    Returns
    -------
    list of blocks
    """
    metrics = [m for m in SCORE_METRICS if m in result.metrics]
    blocks: list[Block] = [rates_table(result, metrics, "Quality of the score by group")]
    if several(result.cohort):
        blocks.append(gaps_table(result, "Widest gaps in the quality of the score"))
    if drawable(result, "auc"):
        blocks.append(_auc_picture(result))
    below = result.cohort.suppress_below
    if below is not None:
        blocks.append(left_out("the plot of calibration", below))
    elif result.cohort.groups.n_groups <= MOST_PANELS:
        alt = (
            "Calibration curves, a panel per group: event rates against scores, with a band. "
            f"Calibration slopes: {range_words(result, 'calibration_slope')}. The same figures "
            "are in the table of the quality of the score."
        )
        blocks.append(pictures.picture(result.plot_calibration, alt, "Calibration by group"))
    return blocks


def _auc_picture(result: PerformanceResult) -> Figure:
    alt = (
        f"AUC by group with {level_of(result)} intervals: {range_words(result, 'auc')}. The same "
        "figures are in the table of the quality of the score."
    )
    return pictures.picture(result.plot_rates, alt, "AUC by group")
