"""Who is in the data: the flow of rows, the patients of each group, and what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from cfair.cohort import Cohort
from cfair.disclosure import APART, MASKED, small_masks
from cfair.plotting.layout import LABEL_WIDTH
from cfair.report.blocks import (
    Block,
    Bullets,
    Flow,
    Paragraph,
    Rows,
    Table,
    count,
    label,
    number,
    percent,
    rate,
)
from cfair.report.findings import small_groups
from cfair.report.wording import MOST_ROWS, least_rows, name_of, spoken, told
from cfair.results.fitted_model import FitAndAuditResult
from cfair.results.group_intervention import GroupInterventionResult
from cfair.results.report import treated_share
from cfair.results.representation import RepresentationResult
from cfair.results.table_one import TableOneResult
from cfair.results.treated import TreatedResult
from cfair.tables import Cell

#: Columns of the table of patients that can still be read side by side.
MOST_COLUMNS = 26


def cohort_blocks(
    cohort: Cohort, others: Sequence[Any], fitted: FitAndAuditResult | None = None
) -> list[Block]:
    """Flow of rows, and who had the event, was flagged, was treated.

    Parameters
    ----------
    cohort : Cohort
        Of the observed rates.
    others : sequence of results
        Those that used other rows are named.
    fitted : FitAndAuditResult, optional
        Whose held-out rows these are.

    Returns
    -------
    list of blocks
    """
    least, gone, n = least_rows(cohort), cohort.dropped, told(cohort, "n", cohort.n_used)
    why = [f"{label(k)} missing: {v:,}" for k, v in gone.by_column.items()]
    small = "too small" if least is None else f"with fewer than {least:,} rows"
    why += [f"group {label(k)} {small}: {v:,}" for k, v in gone.small_groups.items()]
    if gone.masked:
        why = [label(gone.sentence())]
    first = ("read", "rows of the table")
    if fitted is not None:
        read = dict(fitted.facts)["rows read"]
        trained = f"trained on {count(len(fitted.train_rows))}"
        first = ("held out", f"rows that the model has not seen; read {label(read)}; {trained}")
    steps = [
        (first[0], count(cohort.n_read_shown), first[1]),
        ("left out", count(small_masks(gone.n, cohort.suppress_below)), "; ".join(why) or "none"),
        ("used", count(n), "rows in the analysis"),
        (
            "had the event",
            percent(told(cohort, "events", cohort.count(cohort.y)), n),
            f"{label(cohort.outcome_name)} = {label(cohort.outcome_event)}",
        ),
        (
            "flagged",
            percent(told(cohort, "positive", cohort.count(cohort.s)), n),
            label(cohort.rule),
        ),
    ]
    treated = cohort
    if cohort.d is None:  # it may be declared by a formula alone
        treated = next((r.cohort for r in others if isinstance(r, TreatedResult)), cohort)
    if treated.d is not None:
        what = f"{label(treated.treatment_name)} = {label(treated.treatment_event)}"
        if treated.n_used != cohort.n_used:
            what += f", of the {count(told(treated, 'n', treated.n_used))} rows with covariates"
        steps.append(("treated", treated_share(treated), what))
    else:
        named = treated.treatment_name
        told_of = "no treatment was declared" if named is None else f"not counted: {label(named)}"
        steps.append(("treated", "–", told_of))
    blocks: list[Block] = [Flow(tuple(steps))]
    if any(len(name) > LABEL_WIDTH for name in cohort.groups.names):
        blocks.append(
            Paragraph("Long names are cut in the middle in figures; the tables have them in full.")
        )
    less = [
        f"{name_of(r)}: {count(told(r.cohort, 'n', r.cohort.n_used))} rows used "
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


def disclosure_blocks(cohort: Cohort, results: Sequence[Any]) -> list[Block]:
    """What is masked or rounded, result by result: each has other counts, and masks of its own.

    Parameters
    ----------
    cohort : Cohort
    results : sequence of results

    Returns
    -------
    list of blocks
        None without disclosure control.
    """
    told: dict[str, list[str]] = {}
    for result in results:
        if result.disclosure:
            told.setdefault(label(result.disclosure), []).append(name_of(result))
    if len(told) == 1:
        return [Paragraph(f"Disclosure control: {said}.") for said in told]
    short = [said.removesuffix(f"; {APART}") for said in told]
    items = [
        (f"{'; '.join(dict.fromkeys(names))}:", f"{said}.")
        for said, names in zip(short, told.values(), strict=True)
    ]
    apart = any(said.endswith(APART) for said in told)
    below = cohort.suppress_below
    what = "" if below is None else f"counts below {below} masked, "
    lead = f"Disclosure control: {what}of each result by itself, since each shows other counts."
    tail = f"Counts are {APART}." * apart
    return [Paragraph(f"{lead} {tail}".strip()), Bullets(tuple(items))] if told else []


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


def meaning_sentence(others: Sequence[Any], elsewhere: Sequence[Any] = ()) -> str:
    """The same in a sentence.

    Parameters
    ----------
    others : sequence of results
    elsewhere : sequence of results
        That were given to the report and are left out of it.

    Returns
    -------
    str
    """
    treated = next((r for r in others if isinstance(r, TreatedResult)), None)
    group = any(isinstance(r, GroupInterventionResult) for r in others)
    kinds = (TreatedResult, GroupInterventionResult)
    names = dict.fromkeys(name_of(r) for r in elsewhere if isinstance(r, kinds))
    lost = (
        f"Left out of this report: {'; '.join(names)}. They rest on other rows than its tables, so "
        "that masked counts could be computed from both; what to do is said in their place below."
        if names
        else ""
    )
    if treated is None and not group:
        return lost or (
            "Nothing counterfactual is computed in this report: it shows the data as they are."
        )
    parts = []
    if treated is not None:
        parts.append(
            f"the rates had nobody been treated (treatment: {label(treated.cohort.treatment_name)})"
        )
    if group:
        parts.append("the rates of the model with everybody put into one group")
    return (
        f"“Counterfactual” in this report means {' and, apart from these, '.join(parts)}; it does "
        f"not mean explanations of single predictions.{' ' * bool(lost)}{lost}"
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
            Rows(label(name), tuple(tuple(map(_cell_text, row[:MOST_COLUMNS])) for row in rows))
            for name, rows in own.sections
        )
        said = "Patients by group" + f", {k} of {len(results)}" * (len(results) > 1)
        hidden = len(own.header[MOST_COLUMNS:])
        more = [f"{hidden:,} columns are not shown; audit.table_one() has them all."] * bool(hidden)
        note = spoken(" ".join([*more, *map(label, own.notes)]))
        found.append(Table(said, tuple(map(label, own.header[:MOST_COLUMNS])), parts, note=note))
    return found


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
