"""The sections of a report, each from the frames of one kind of result."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from cfair.cohort import Cohort
from cfair.disclosure import KINDS, MASKED, small_masks
from cfair.plotting import plot_clinical_forest
from cfair.report.blocks import (
    Block,
    Bullets,
    Code,
    Figure,
    Flow,
    Heading,
    Paragraph,
    Rows,
    Table,
    count,
    label,
    listed,
    number,
    p_text,
    percent,
    rate,
)
from cfair.report.findings import (
    SCORE_METRICS,
    equivalence_finding,
    interaction_finding,
    short,
    small_groups,
    tabled_gaps,
)
from cfair.report.methods import learner_in
from cfair.report.pictures import picture
from cfair.report.provenance import fingerprint, versions
from cfair.results.equivalence import EquivalenceResult
from cfair.results.fitted_model import FitAndAuditResult
from cfair.results.forest import forest_rows, ordered_rows
from cfair.results.group_intervention import GroupInterventionResult
from cfair.results.interaction import InteractionResult
from cfair.results.observed import ObservedResult
from cfair.results.performance import PerformanceResult
from cfair.results.rates import RatesResult
from cfair.results.replicated import ReplicatedResult
from cfair.results.report import shown_groups, treatment_fact
from cfair.results.representation import RepresentationResult
from cfair.results.table_one import TableOneResult
from cfair.results.treated import TreatedResult
from cfair.tables import Cell

#: Rows of a table of pairs, terms or notes; what is beyond is counted.
MOST_ROWS = 40
#: Notes of all results together; there can be one for each small group.
MOST_NOTES = 30
#: Groups whose curves still have a panel each.
MOST_PANELS = 12
#: Standardized differences above this are usually called imbalance.
IMBALANCE = 0.1


def short_name(result: ReplicatedResult) -> str:
    """Name of an estimator in the head of a column.

    Parameters
    ----------
    result : ReplicatedResult

    Returns
    -------
    str
    """
    inside = re.search(r"\(([^)]+)\)", result.estimator)
    return inside.group(1) if inside else result.estimator


# -- first page -----------------------------------------------------------------------------------


def cohort_blocks(cohort: Cohort, others: Sequence[Any]) -> list[Block]:
    """Flow of rows, and who had the event, was flagged, was treated.

    Parameters
    ----------
    cohort : Cohort
        Of the observed rates.
    others : sequence of results
        Those that used other rows are named.

    Returns
    -------
    list of blocks
    """
    gone, n = cohort.dropped, _told(cohort, "n", cohort.n_used)
    why = [f"{label(k)} missing: {v:,}" for k, v in gone.by_column.items()]
    why += [f"group {label(k)} too small: {v:,}" for k, v in gone.small_groups.items()]
    if gone.masked:
        why = [label(gone.sentence())]
    steps = [
        ("read", count(cohort.n_read_shown), "rows of the table"),
        ("left out", count(small_masks(gone.n, cohort.suppress_below)), "; ".join(why) or "none"),
        ("used", count(n), "rows in the analysis"),
        (
            "had the event",
            percent(_told(cohort, "events", cohort.count(cohort.y)), n),
            f"{label(cohort.outcome_name)} = {label(cohort.outcome_event)}",
        ),
        (
            "flagged",
            percent(_told(cohort, "positive", cohort.count(cohort.s)), n),
            label(cohort.rule),
        ),
    ]
    treated = next((r.cohort for r in others if isinstance(r, TreatedResult)), cohort)
    if treated.d is not None:
        what = f"{label(treated.treatment_name)} = {label(treated.treatment_event)}"
        shown = treatment_fact(treated)[1].rpartition(": ")[2]
        steps.append(("treated", shown, what))
    else:
        steps.append(("treated", "–", "no treatment was declared"))
    blocks: list[Block] = [Flow(tuple(steps))]
    less = [
        f"{name_of(r)}: {count(_told(r.cohort, 'n', r.cohort.n_used))} rows used "
        f"({label(r.cohort.dropped.sentence())})."
        for r in others
        if hasattr(r, "cohort") and r.cohort.n_used != cohort.n_used
    ]
    if less:
        blocks.append(Bullets(tuple(less)))
    if cohort.weights_name is not None:
        blocks.append(
            Paragraph(
                f"Rows are weighted by {label(cohort.weights_name)}; counts are of rows, rates of "
                f"weighted rows. Their effective size is {cohort.kish:,.0f}."
            )
        )
    if cohort.cluster is not None:
        blocks.append(
            Paragraph(f"Rows are in {cohort.n_clusters:,} clusters ({label(cohort.cluster_name)}).")
        )
    return blocks


#: What notes say to those who call the package, in words for those who read the page.
_SPOKEN: tuple[tuple[str, str], ...] = (
    (r"by estimator=[\"']ipw[\"']", "by weighting alone (IPW)"),
    (r"estimator=[\"']([a-z]+)[\"']", r"the estimator \1"),
    (r"; \.contrasts has which in its notes", ""),
    (r"; weighted_share in \.cells and \.levels weighs them", ""),
    (r"(The frame \.pairs has all|(the )?others in \.pairs)", "others are not shown"),
    (r": adjust=(?=\W|$)", ""),
)


def spoken(note: str) -> str:
    """A note without the words of the code.

    Examples
    --------
    >>> spoken('there intervals by estimator="ipw" hold better; .contrasts has which in its notes.')
    'there intervals by weighting alone (IPW) hold better.'
    """
    for pattern, words in _SPOKEN:
        note = re.sub(pattern, words, note)
    return note


def _told(cohort: Cohort, kind: str, value: float) -> float:
    """A count of all rows, masked if disclosure control asks for it."""
    if cohort.protection is None:
        return value
    return float(cohort.protection.counts(cohort.partitions[0], KINDS[kind])[0])


def meaning_table(others: Sequence[Any]) -> Table:
    """Which of the three things that are called counterfactual is computed here.

    Parameters
    ----------
    others : sequence of results

    Returns
    -------
    Table
    """
    treated = any(isinstance(r, TreatedResult) for r in others)
    group = any(isinstance(r, GroupInterventionResult) for r in others)
    rows = (
        ("Had nobody been treated", "What would the error rates be if no patient had received the "
         "treatment? Potential outcomes of the treatment; nobody's group is changed.",
         "computed" if treated else "not computed"),
        ("Another group membership", "What would the model do if a patient belonged to another "
         "group, all else being equal? A check of a model, not of the world.",
         "computed" if group else "not computed"),
        ("Explanation of a prediction", "What would have to be different about one patient for "
         "the call to be another? A question about single predictions.", "not computed"),
    )  # fmt: skip
    return Table(
        caption="Three meanings of “counterfactual”, and which of them is computed in this report",
        head=("Meaning", "What it asks", "Here"),
        parts=(Rows("", rows),),
        text_columns=(1, 2),
    )


def meaning_sentence(others: Sequence[Any]) -> str:
    """The same in a sentence.

    Parameters
    ----------
    others : sequence of results

    Returns
    -------
    str
    """
    treated = next((r for r in others if isinstance(r, TreatedResult)), None)
    group = any(isinstance(r, GroupInterventionResult) for r in others)
    if treated is None and not group:
        return "Nothing counterfactual is computed in this report: it shows the data as they are."
    parts = []
    if treated is not None:
        parts.append(
            f"the rates had nobody been treated (treatment: {label(treated.cohort.treatment_name)})"
        )
    if group:
        parts.append("the rates of the model with everybody put into one group")
    return (
        f"“Counterfactual” in this report means {' and, apart from these, '.join(parts)}; it does "
        "not mean explanations of single predictions."
    )


def _cell_text(cell: Cell) -> str:
    """A cell of Table 1; a dash is for what is undefined, not for what is masked."""
    return "masked" if cell.text == "–" and cell.note.startswith(MASKED) else label(cell.text)


def table_one_blocks(results: Sequence[TableOneResult]) -> list[Block]:
    """Who the patients of each group are.

    Parameters
    ----------
    results : sequence of TableOneResult

    Returns
    -------
    list of blocks
    """
    found: list[Block] = []
    for k, result in enumerate(results, start=1):
        own = result._as_table(None, None, None, None, None, None)
        parts = tuple(
            Rows(label(name), tuple(tuple(map(_cell_text, row)) for row in rows))
            for name, rows in own.sections
        )
        said = "Patients by group" + f", {k} of {len(results)}" * (len(results) > 1)
        note = spoken(" ".join(map(label, own.notes)))
        found.append(Table(said, tuple(map(label, own.header)), parts, note=note))
    return found


# -- tables of rates ------------------------------------------------------------------------------


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


def _rows(result: RatesResult, metrics: Sequence[str]) -> tuple[dict[Any, Any], list[str]]:
    """Rows of a result by (metric, section, group), and what is not shown."""
    chosen, hidden = shown_groups(result.estimates, result.cohort.groups.n_groups)
    frame = ordered_rows(result, metrics, only=sorted(chosen) if hidden else None)
    records = frame.to_dict("records")
    return {(r["metric"], r["section"], r["group"]): r for r in records}, hidden


def _keys(rows: dict[Any, Any]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((section, group) for _, section, group in rows))


def _shown(row: dict[Any, Any] | None, digits: int = 3) -> str:
    if row is None:
        return "–"
    if str(row["note"]).startswith(MASKED):
        return "masked"
    return rate(row["estimate"], row["ci_low"], row["ci_high"], digits)


def _reasons(rows: dict[Any, Any], names: dict[str, str], hidden: Sequence[str]) -> str:
    """Why there is a dash in a table, and what the table leaves out."""
    why: dict[tuple[str, str], list[str]] = {}
    for (metric, _, group), row in rows.items():
        if np.isnan(row["estimate"]) and row["note"]:
            at = (label(row["note"]), names.get(metric, metric))
            why.setdefault(at, []).append(label(group))
    alike: dict[tuple[str, str], list[str]] = {}
    for (note, metric), groups in why.items():  # metrics that the same groups lack are named once
        alike.setdefault((note, listed(groups)), []).append(metric)
    said = [
        f"{', '.join(metrics)} of {groups}: {note}" for (note, groups), metrics in alike.items()
    ]
    text = f"No rate: {'; '.join(said)}" if said else ""
    return ". ".join(part for part in (text, *hidden) if part)


def _labels(result: RatesResult) -> dict[str, str]:
    return {e.metric: r.label for e, r in zip(result.estimates, result.rows, strict=True)}


def _level(result: RatesResult) -> str:
    return f"{100 * result.level:g}%"


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
    rows, hidden = _rows(result, metrics)
    names = _labels(result)
    first = metrics[0]

    def cells(key: tuple[str, str]) -> list[str]:
        row = rows[(first, *key)]
        return [
            count(row.get("n")),
            count(row.get("events")),
            *(_shown(rows.get((m, *key))) for m in metrics),
        ]

    head: tuple[str, ...] = ("Group", "n", "Events", *(names[m] for m in metrics))
    note = _reasons(rows, names, hidden)
    return Table(f"{caption} ({_level(result)} intervals)", head, _parts(_keys(rows), cells),
                 note=note)  # fmt: skip


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
    names = {**_labels(result), "equalized_odds": "TPR or FPR"}
    parts = []
    for metric, mine in frame.groupby("metric", sort=False):
        rows = []
        for row in mine.to_dict("records"):
            known = not np.isnan(row["gap"])
            between = f"{label(row['group'])}, {label(row['reference'])}" if known else row["note"]
            rows.append(
                (
                    crossed if row["by"] == whole else label(row["by"]),
                    between,
                    rate(row["gap"], row["ci_low"], row["ci_high"]),
                    number(row["expected_if_equal"]),
                    number(row["detectable"]),
                    p_text(row["p_adjusted"]),
                )
            )
        parts.append(Rows(names.get(str(metric), str(metric)), tuple(rows)))
    head: tuple[str, ...] = (
        "By",
        "Highest, lowest",
        f"Gap ({_level(result)} interval)",
        "If all alike",
    )
    head += ("Would be found", "p")
    note = (
        "If all alike: what noise alone would give. Would be found: the least gap between two "
        "groups of these sizes, chosen beforehand, that a test finds with 80% power; the widest of "
        "many pairs must be wider. p: that all groups are equal, "
        f"{frame['family'].iloc[0]}. A large p is no evidence of equality."
    )
    return Table(caption, head, tuple(parts), text_columns=(1,), note=note)


def _several(cohort: Cohort) -> bool:
    return int(np.count_nonzero(cohort.groups.sizes)) > 1


def name_of(result: Any) -> str:
    """What a result is called on the page.

    Parameters
    ----------
    result : result of any kind

    Returns
    -------
    str
    """
    if isinstance(result, TreatedResult):
        return f"Counterfactual rates, {result.estimator}"
    names = {
        ObservedResult: "Observed rates",
        RepresentationResult: "Representation",
        GroupInterventionResult: "Everybody in one group",
        PerformanceResult: "Score quality",
        InteractionResult: "Interaction of attributes",
        EquivalenceResult: "Equivalence",
    }
    return next(name for kind, name in names.items() if isinstance(result, kind))


# -- sections -------------------------------------------------------------------------------------


def representation_blocks(result: RepresentationResult) -> list[Block]:
    """Who is in the data.

    Parameters
    ----------
    result : RepresentationResult

    Returns
    -------
    list of blocks
    """
    cells, t = result.cells, result.tables.thresholds
    events = "events" in cells
    if len(cells) > MOST_ROWS:
        cells = cells.sort_values("n", kind="stable").head(MOST_ROWS)

    def row(name: object, r: Any) -> tuple[str, ...]:
        outcome = (count(r["events"]), count(r["non_events"])) if events else ()
        if pd.isna(r["n"]):
            few = "masked"
        else:
            few = f"fewer than {t.min_count}" * (0 < r["n"] < t.min_count)
            few = "absent" if r["n"] == 0 else few
        share = rate(100 * r["share"], 100 * r["ci_low"], 100 * r["ci_high"], 1)
        width = number(r["width"], 2)
        if pd.isna(r["n"]) or r["n"] < 0:  # what was not told is not what cannot be
            share, width = (word if word != "–" else "masked" for word in (share, width))
        return (label(name), count(r["n"]), share, *outcome, width, few)

    parts = []
    attributes = list(result.tables.groups.attributes)
    if len(attributes) > 1:
        levels = result.levels
        for attribute in attributes:
            mine = levels[levels["attribute"] == attribute].head(MOST_ROWS)
            rows = tuple(row(r["level"], r) for r in mine.to_dict("records"))
            parts.append(Rows(label(attribute), rows))
    crossed = " × ".join(map(label, attributes))
    parts.append(Rows(crossed, tuple(row(r["group"], r) for r in cells.to_dict("records"))))
    head: tuple[str, ...] = (
        "Group",
        "n",
        "Share, % (interval)",
        *(("Events", "Non-events") if events else ()),
    )
    head += ("Width", "Care")
    if not any(cells[-1] for part in parts for cells in part.rows):
        parts = [Rows(p.heading, tuple(cells[:-1] for cells in p.rows)) for p in parts]
        head = head[:-1]
    hidden = len(result.cells) - len(cells)
    note = (
        f"Width: of the {100 * t.level:g}% interval that a rate of {t.rate:g} would have in this "
        "group: how much its rates can say."
    )
    note += f" The {MOST_ROWS} smallest of {len(result.cells):,} groups are shown." * (hidden > 0)
    blocks: list[Block] = [Bullets(tuple(small_groups(result)), "warning")]
    blocks.append(
        Table(
            "Who is in the data", head, tuple(parts), text_columns=(6 if events else 4,), note=note
        )
    )
    missing = result.attributes
    rows = tuple(
        (
            label(r["attribute"]),
            count(r["n_levels"]),
            count(r["missing"])
            + ("" if pd.isna(r["missing_share"]) else f" ({100 * r['missing_share']:.1f}%)"),
            number(r["imbalance_ratio"], 1),
        )
        for r in missing.to_dict("records")
    )
    head = ("Attribute", "Levels", "Missing", "Largest level to least")
    blocks.append(Table("Attributes", head, (Rows("", rows),)))
    return [b for b in blocks if not (isinstance(b, Bullets) and not b.items)]


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
    blocks: list[Block] = [
        Paragraph(
            "FLAGGED is the share flagged; TPR, the sensitivity, the share flagged among those "
            "with the event; FPR the share flagged among those without; PPV the share with the "
            "event among those flagged."
            + " What treatment did to the outcomes is in these rates."
            * treated
        ),
        rates_table(result, metrics, "Observed rates"),
    ]
    if _several(result.cohort):
        blocks.append(gaps_table(result, "Widest gaps in observed rates"))
    flagged = _labels(result)["selection_rate"]
    first = blocks[0]
    assert isinstance(first, Paragraph)
    blocks[0] = Paragraph(first.text.replace("FLAGGED", flagged[:1].upper() + flagged[1:]))
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
    heads = [short_name(r) for r in results]
    heads = [h if heads.count(h) == 1 else f"{h}, {heads[: k + 1].count(h)}"
             for k, h in enumerate(heads)]  # fmt: skip
    for metric, word in (("fpr", "False positive rate"), ("fnr", "False negative rate")):
        blocks.append(_side_by_side(results, heads, metric, word))
    for result, head in zip(results, heads, strict=True):
        if _several(result.cohort):
            caption = f"Widest gaps had nobody been treated: {head}"
            blocks.append(gaps_table(result, caption))
        if result.null is not None:
            blocks.append(_null_table(result, head))
    return blocks


def _side_by_side(
    results: Sequence[TreatedResult], heads: Sequence[str], metric: str, word: str
) -> Table:
    first, hidden = _rows(results[0], [metric, f"c{metric}"])
    counter = [_rows(r, [f"c{metric}"])[0] for r in results]
    keys = _keys(first)

    def cells(key: tuple[str, str]) -> list[str]:
        row = first.get((f"c{metric}", *key)) or first[(metric, *key)]
        return [
            count(row.get("n")),
            count(row.get("untreated")),
            count(row.get("events")),
            _shown(first.get((metric, *key))),
            *(_shown(rows.get((f"c{metric}", *key))) for rows in counter),
        ]

    head: tuple[str, ...] = ("Group", "n", "Untreated", "Events among them", "Observed")
    head += tuple(f"Nobody treated: {h}" for h in heads)
    note = _reasons(
        {k: v for rows in counter for k, v in rows.items()}, _labels(results[0]), hidden
    )
    return Table(f"{word}, observed and had nobody been treated ({_level(results[0])} intervals)",
                 head, _parts(keys, cells), note=note)  # fmt: skip


def _null_table(result: ReplicatedResult, head: str) -> Table:
    frame = result.disparities
    frame = frame[frame["metric"].isin(result.compared) & (frame["statistic"] != "variance")]
    names = _labels(result)
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
            f"Estimator: {result.estimator}."
        ),
        rates_table(result, list(result.metrics), "Error rates with everybody in the group"),
    ]
    if _several(result.cohort):
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
    if _several(result.cohort):
        blocks.append(gaps_table(result, "Widest gaps in the quality of the score"))
    if _drawable(result, "auc"):
        blocks.append(_auc_picture(result))
    below = result.cohort.suppress_below
    if below is not None:
        blocks.append(_left_out("the plot of calibration", below))
    elif result.cohort.groups.n_groups <= MOST_PANELS:
        alt = (
            "Calibration curves, a panel per group: event rates against scores, with a band. "
            f"Calibration slopes: {_range_words(result, 'calibration_slope')}. The same figures "
            "are in the table of the quality of the score."
        )
        blocks.append(picture(result.plot_calibration, alt, "Calibration by group"))
    return blocks


def _auc_picture(result: PerformanceResult) -> Figure:
    alt = (
        f"AUC by group with {_level(result)} intervals: {_range_words(result, 'auc')}. The same "
        "figures are in the table of the quality of the score."
    )
    return picture(result.plot_rates, alt, "AUC by group")


def interaction_blocks(result: InteractionResult) -> list[Block]:
    """Whether the effects of attributes add up.

    Parameters
    ----------
    result : InteractionResult

    Returns
    -------
    list of blocks
    """
    frame = result.contrasts
    shown = frame.sort_values("p_value", kind="stable").head(MOST_ROWS).sort_index()
    parts = []
    for metric, mine in shown.groupby("metric", sort=False):
        rows = tuple(
            (
                f"{label(r['level_a'])} & {label(r['level_b'])}",
                f"{label(r['reference_a'])}, {label(r['reference_b'])}",
                *(number(r[c]) for c in ("r11", "r10", "r01", "r00")),
                rate(r["contrast"], r["ci_low"], r["ci_high"]),
                p_text(r["p_adjusted"]),
            )
            for r in mine.to_dict("records")
        )
        parts.append(Rows(result.labels[str(metric)], rows))
    head: tuple[str, ...] = (
        "Levels",
        "Compared with",
        "Both",
        "First only",
        "Second only",
        "Neither",
    )
    head += (f"Contrast ({100 * result.level:g}% interval)", "p, adjusted")
    note = f"Contrast: both − first only − second only + neither. p: {result.family}."
    note += f" {len(shown)} of {len(frame):,} contrasts, of smallest p." * (len(shown) < len(frame))
    blocks: list[Block] = [
        Bullets(tuple(interaction_finding(result))),
        Table("Interaction of attributes", head, tuple(parts), text_columns=(1,), note=note),
    ]
    if len(frame) <= MOST_ROWS and frame["contrast"].notna().any():
        least = frame["contrast"].min(), frame["contrast"].max()
        alt = (
            f"Interaction contrasts with their intervals, from {least[0]:.2f} to {least[1]:.2f}; "
            "0 means that effects add up. The same figures are in the table above."
        )
        blocks.append(picture(result.plot, alt, "Interaction contrasts"))
    return blocks


def equivalence_blocks(result: EquivalenceResult) -> list[Block]:
    """Verdicts of equivalence, pair by pair.

    Parameters
    ----------
    result : EquivalenceResult

    Returns
    -------
    list of blocks
    """
    frame = result.pairs
    order = np.argsort(-frame["p_value"].fillna(-1).to_numpy(), kind="stable")[:MOST_ROWS]
    shown = frame.iloc[np.sort(order)]
    parts = []
    for metric, mine in shown.groupby("metric", sort=False):
        rows = tuple(
            (
                f"{label(r['group'])} to {label(r['reference'])}",
                f"{number(r['rate'])} to {number(r['rate_reference'])}",
                rate(r["estimate"], r["ci_low"], r["ci_high"], 2),
                p_text(r["p_adjusted"]),
                str(r["verdict"]),
                label(r["note"]),
            )
            for r in mine.to_dict("records")
        )
        low, high = result.question.margins[str(metric)]
        parts.append(
            Rows(f"{result.labels[str(metric)]}, margin {short(low)} to {short(high)}", rows)
        )
    kind = result.question.contrast.replace("_", " ").capitalize()
    head: tuple[str, ...] = (
        "Pair",
        "Rates",
        f"{kind} ({100 * result.level:g}% interval)",
        "p",
        "Verdict",
        "Note",
    )
    note = "p: of equivalence, the larger of two one-sided p-values."
    note += f" {len(shown)} of {len(frame):,} pairs, those farthest from equivalence." * (
        len(shown) < len(frame)
    )
    about = f": {label(result.about)}" if result.about else ""
    blocks: list[Block] = [
        Heading(label(result.about)),
        Bullets(tuple(equivalence_finding(result))),
        Table(f"Equivalence of groups{about}", head, tuple(parts), text_columns=(4, 5), note=note),
        Bullets(tuple(spoken(label(n)) for n in result.notes), "warning"),
    ]
    if len(frame) <= MOST_ROWS:
        said = " ".join(verdict for verdict, _ in equivalence_finding(result))
        alt = f"Intervals of each pair before the shaded margin. {said}"
        blocks.append(picture(result.plot, alt, f"Intervals before the margin{about}"))
    return [b for b in blocks if getattr(b, "text", "x") and getattr(b, "items", "x")]


def plot_blocks(observed: ObservedResult, others: Sequence[Any]) -> list[Block]:
    """Forest plots of observed and counterfactual rates, and null distributions.

    Parameters
    ----------
    observed : ObservedResult
    others : sequence of results

    Returns
    -------
    list of blocks
    """
    blocks = _forests(observed, ["fpr", "tpr"], "Observed rates by group")
    for result in others:
        if isinstance(result, TreatedResult):
            caption = f"Rates had nobody been treated, by group: {short_name(result)}"
            blocks += _forests(result, list(result.compared), caption)
        elif isinstance(result, GroupInterventionResult):
            caption = "Error rates with everybody in the group"
            blocks += _forests(result, list(result.compared), caption)
    for result in others:
        if isinstance(result, TreatedResult) and result.null is not None:
            blocks += [b for m in result.compared if (b := _null_picture(result, m)) is not None]
    return blocks


def _forests(result: RatesResult, metrics: Sequence[str], caption: str) -> list[Block]:
    """All rates in one plot, or a plot for each where there are too many rows for a page."""
    groups = result.cohort.groups
    metrics = [m for m in metrics if _drawable(result, m)]
    if not metrics:
        return []
    if groups.n_groups + len(groups.margins) <= MOST_ROWS // 2:
        return [_forest(result, metrics, caption)]
    names = _labels(result)
    return [_forest(result, [m], f"{caption}: {names[m]}") for m in metrics]


def _drawable(result: RatesResult, metric: str) -> bool:
    """Whether any group or level has a rate that a plot could show."""
    return any(
        bool(frame.loc[frame["metric"] == metric, "estimate"].notna().any())
        for frame in (result.rates, result.marginals)
        if len(frame)
    )


def _forest(result: RatesResult, metrics: Sequence[str], caption: str) -> Figure:
    chosen, hidden = shown_groups(result.estimates, result.cohort.groups.n_groups)
    rows = forest_rows(result, metrics, only=sorted(chosen) if hidden else None)
    counts = rows.counts
    if "fpr" in metrics and "non_events" in rows.frame:  # what the rate is a share of
        counts = [*counts, ("non_events", "no event")]
    names = _labels(result)
    said = "; ".join(f"{names[m]}: {_range_words(result, m)}" for m in metrics)
    alt = (
        f"{caption}: forest plot with {_level(result)} intervals, a row per group, counts at the "
        f"left and numbers at the right. {said}. The same figures are in the tables above."
    )
    draw = partial(
        plot_clinical_forest,
        rows.frame,
        rows.panels,
        counts=counts,
        level=result.level,
        about=result.about,
        reference=rows.reference,
    )
    if hidden:
        caption += f" ({hidden[0].removeprefix('... ')})"
    return picture(draw, alt, caption)


def _range_words(result: RatesResult, metric: str) -> str:
    """From which to which group a rate goes."""
    frame = result.rates
    frame = frame[(frame["metric"] == metric) & frame["estimate"].notna()]
    if frame.empty:
        return "no group has one"
    values = frame["estimate"].to_numpy(float)
    low, high = frame.iloc[int(values.argmin())], frame.iloc[int(values.argmax())]
    return (
        f"from {low['estimate']:.2f} ({label(low['group'])}) to {high['estimate']:.2f} "
        f"({label(high['group'])})"
    )


def _null_picture(result: ReplicatedResult, metric: str) -> Figure | None:
    """The null of a rate; none where there is nothing to draw, as where groups are masked."""
    frame = result.disparities
    at = (frame["metric"] == metric) & (frame["statistic"] == "average")
    row = frame[at].iloc[0]
    if np.isnan(row["estimate"]) or np.isnan(row["p_value"]):
        return None
    name = _labels(result)[metric]
    alt = (
        f"Histogram of the average difference in {name} between groups under permuted labels, "
        f"with the observed one, {row['estimate']:.3f}, marked; p = {p_text(row['p_value'])}."
    )
    caption = f"{name}: average difference against permuted labels, {short_name(result)}"
    return picture(partial(result.plot_null, metric), alt, caption)


# -- diagnostics ----------------------------------------------------------------------------------


def diagnostics_blocks(
    representation: RepresentationResult, observed: ObservedResult, others: Sequence[Any]
) -> list[Block]:
    """What to be careful about: notes of every result, overlap and balance.

    Parameters
    ----------
    representation : RepresentationResult
    observed : ObservedResult
    others : sequence of results

    Returns
    -------
    list of blocks
    """
    said: dict[str, list[str]] = {}
    for result in (representation, observed, *others):
        if not isinstance(result, EquivalenceResult):
            for note in result.notes:
                said.setdefault(spoken(label(note)), []).append(name_of(result))
    notes = tuple(
        f"{'; '.join(dict.fromkeys(names))}: {note}{'' if note.endswith('.') else '.'}"
        for note, names in said.items()
    )
    if len(notes) > MOST_NOTES:
        notes = (*notes[:MOST_NOTES], f"{len(notes) - MOST_NOTES:,} more notes are not shown.")
    blocks: list[Block] = []
    if notes:
        blocks.append(Bullets(notes, "warning"))
    else:
        blocks.append(Paragraph("No result has a note of what to be careful about."))
    for result in others:
        if isinstance(result, TreatedResult) and result.overlap is not None:
            blocks += _overlap_blocks(result)
    return blocks


def _overlap_blocks(result: TreatedResult) -> list[Block]:
    found, name = result.overlap, short_name(result)
    assert found is not None
    assert result.propensity is not None
    low, high = result.propensity.truncation
    below = result.cohort.suppress_below
    cut = float(small_masks(int(np.count_nonzero(result.propensity.truncated)), below))
    lines = [
        f"Truncation: {percent(cut, result.cohort.n_used)} of the rows had a propensity outside "
        f"[{low:g}, {high:g}] and were cut to it."
        + " For these, truncation stands in for data."
        * bool(cut)
    ]
    effective = found.effective
    weak = effective[(effective["share"] < 0.5) & (effective["untreated"] > 0)]
    if len(weak):
        names = "; ".join(
            f"{label(r['group'])}: {count(r['untreated'])} count as {number(r['n_effective'], 0)}"
            for r in weak.head(8).to_dict("records")
        )
        lines.append(f"A few untreated patients carry much of the weight in {names}.")
    else:
        lines.append("In no group do the weights halve the number of untreated patients.")
    balance = found.balance[found.balance["smd_after"].notna()]
    if len(balance):
        before, after = balance["smd_before"].abs().max(), balance["smd_after"].abs().max()
        word = "at most the usual limit of" if after <= IMBALANCE else "above the usual limit of"
        lines.append(
            "Balance: the largest standardized difference between the untreated and everybody was "
            f"{before:.2f} before weighting and is {after:.2f} after, {word} {IMBALANCE:g}."
        )
    blocks: list[Block] = [
        Heading(f"Overlap and balance: {name}"),
        Bullets(tuple(lines)),
        _effective_table(effective, name),
    ]
    if len(balance) < len(found.balance):
        blocks.append(_left_out("the balance of terms whose means would give counts", below or 0))
    if len(balance):
        blocks.append(_balance_table(balance, name))
    alt = (
        f"Propensities of treated and untreated patients by group, {name}. Where the two hardly "
        f"overlap, the untreated cannot stand for everybody. {lines[0]}"
    )
    draw = partial(result.plot_overlap, by_group=result.cohort.groups.n_groups <= MOST_ROWS)
    blocks.append(picture(draw, alt, f"Propensity by group and treatment: {name}"))
    return blocks


def _left_out(what: str, below: int) -> Paragraph:
    """What disclosure control keeps off the page, since masked counts could be read from it."""
    return Paragraph(f"Left out, since counts below {below} are masked: {what}.")


def _effective_table(effective: pd.DataFrame, name: str) -> Table:
    rows = tuple(
        (
            label(r["group"]),
            count(r["n"]),
            count(r["untreated"]),
            number(r["n_effective"], 1),
            number(r["share"], 2),
            number(r["largest_weight"], 1),
        )
        for r in effective.sort_values("share", kind="stable").head(MOST_ROWS).sort_index()
        .to_dict("records")
    )  # fmt: skip
    head: tuple[str, ...] = ("Group", "n", "Untreated", "Effective size", "Share", "Largest weight")
    return Table(f"Untreated patients and what their weights leave: {name}", head,
                 (Rows("", rows),))  # fmt: skip


def _balance_table(balance: pd.DataFrame, name: str) -> Table:
    order = np.argsort(-balance["smd_before"].abs().to_numpy(), kind="stable")[:MOST_ROWS]
    shown = balance.iloc[np.sort(order)]
    rows = tuple(
        (label(r["term"]), number(r["mean_all"]), number(r["mean_untreated"]),
         number(r["mean_weighted"]), number(r["smd_before"], 2), number(r["smd_after"], 2))
        for r in shown.to_dict("records")
    )  # fmt: skip
    head: tuple[str, ...] = (
        "Term",
        "Mean of all",
        "Untreated",
        "Weighted",
        "Difference before",
        "After",
    )
    more = len(balance) - len(shown)
    return Table(
        f"Balance of the propensity model's terms: {name}", head, (Rows("", rows),),
        note="Differences are standardized." + f" {more:,} more terms are not shown." * (more > 0),
    )  # fmt: skip


# -- how to repeat it -----------------------------------------------------------------------------


def repeat_blocks(
    declaration: str, results: Sequence[Any], fitted: Sequence[FitAndAuditResult] = ()
) -> list[Block]:
    """Calls, versions, seeds and a fingerprint of the data.

    Parameters
    ----------
    declaration : str
    results : sequence of results
    fitted : sequence of FitAndAuditResult
        Whose split of the rows was drawn.

    Returns
    -------
    list of blocks
    """
    calls = [
        getattr(r, "call", "") or f"# {name_of(r)}: the call was not recorded" for r in results
    ]
    text = "\n".join([f"audit = {declaration}", *dict.fromkeys(calls)])
    learners = "cfair.Learner" in text
    rows = tuple((name, value) for name, value in versions(learners=learners))
    seeds = [f"{name_of(r)}: {said}" for r in results if (said := _seeded(r))]
    seeds += [f"Fitted model: {said}" for r in fitted for _, said in r.facts if "seed" in said]
    blocks: list[Block] = [
        Code(text, "The calls that made this report"),
        Paragraph(
            "Arguments that were not given have their defaults. Those that change no number "
            "(n_jobs, progress) are left out; data given beside the table stand in angle brackets."
        ),
        Table("Versions", ("Software", "Version"), (Rows("", rows),), text_columns=(1,)),
        Bullets(tuple(seeds)) if seeds else Paragraph("Nothing random: no seed was used."),
    ]
    if any(r.cohort.controlled for r in results if hasattr(r, "cohort")):
        said = "A fingerprint of the data is left out: with it, guesses of counts could be "
        blocks.append(Paragraph(f"{said}checked."))
        return blocks
    prints: dict[str, list[str]] = {}
    for r in results:
        if hasattr(r, "cohort"):
            prints.setdefault(fingerprint(r.cohort), []).append(name_of(r))
    rows = tuple((name, key) for key, names in prints.items() for name in dict.fromkeys(names))
    blocks.append(
        Table(
            "SHA-256 of the data used",
            ("Result", "SHA-256"),
            (Rows("", rows),),
            text_columns=(1,),
            note="Of names and values of all columns that an analysis used, of the rows used, in "
            "their order. Analyses that use other columns have another one.",
        )
    )
    return blocks


def _seeded(result: Any) -> str:
    """The seed of a result and what was drawn with it; empty where nothing was random."""
    seed = getattr(result, "seed", None)
    if seed is None:
        return ""
    folds, boot, null = (getattr(result, name, None) for name in ("folds", "boot", "null"))
    models = [getattr(result, name, None) for name in ("propensity", "outcome_model")]
    drawn = [f"{folds.n_folds} folds"] if folds is not None and folds.drawn else []
    drawn += ["fits of a learner"] * any(learner_in(m) for m in models)
    for draws, what in ((boot, "bootstrap replicates"), (null, "permutations")):
        drawn += [f"{draws.n_replicates:,} {what}"] if draws is not None else []
    return f"seed {seed}, {', '.join(drawn)}" if drawn else ""
