"""What to be careful about: notes of all results, overlap and balance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from cfair.disclosure import small_masks
from cfair.report import pictures
from cfair.report.blocks import (
    Block,
    Bullets,
    Heading,
    Paragraph,
    Rows,
    Table,
    count,
    label,
    number,
    percent,
)
from cfair.report.wording import MOST_ROWS, left_out, name_of, short_name, spoken
from cfair.results.equivalence import EquivalenceResult
from cfair.results.observed import ObservedResult
from cfair.results.representation import RepresentationResult
from cfair.results.treated import TreatedResult

#: Notes of all results together; there can be one for each small group.
MOST_NOTES = 30


#: Standardized differences above this are usually called imbalance.
IMBALANCE = 0.1


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
        blocks.append(left_out("the balance of terms whose means would give counts", below or 0))
    if len(balance):
        blocks.append(_balance_table(balance, name))
    alt = (
        f"Propensities of treated and untreated patients by group, {name}. Where the two hardly "
        f"overlap, the untreated cannot stand for everybody. {lines[0]}"
    )
    if not len(result.propensity.pi):  # of a table read by batches, whose rows are not kept
        return blocks
    draw = partial(result.plot_overlap, by_group=result.cohort.groups.n_groups <= MOST_ROWS)
    blocks.append(pictures.picture(draw, alt, f"Propensity by group and treatment: {name}"))
    return blocks


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
    note = (
        "Effective size: how many patients of equal weight would tell as much (Kish); it is never "
        "more than the untreated. The effective size of a rate, which the area of its mark in a "
        "forest plot follows, is that of its standard error, and can exceed the number of patients "
        "where covariates tell something of treatment or outcome."
    )
    return Table(f"Untreated patients and what their weights leave: {name}", head,
                 (Rows("", rows),), note=note)  # fmt: skip


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
