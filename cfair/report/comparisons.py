"""Comparisons of groups beyond a gap: whether effects add up, whether rates are equivalent."""

from __future__ import annotations

import numpy as np

from cfair.disclosure import MASKED
from cfair.report import pictures
from cfair.report.blocks import (
    Block,
    Bullets,
    Heading,
    Paragraph,
    Rows,
    Table,
    label,
    number,
    p_text,
    rate,
)
from cfair.report.findings import equivalence_finding, interaction_finding, short
from cfair.report.wording import MOST_ROWS, sentence
from cfair.results.equivalence import EquivalenceResult
from cfair.results.interaction import InteractionResult

#: Columns of the rates of four cells, and what notes call these.
_CELLS = {"r11": "both", "r10": "a only", "r01": "b only", "r00": "neither"}


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
                *(_or_masked(number(r[c]), cell, r["note"]) for c, cell in _CELLS.items()),
                _or_masked(rate(r["contrast"], r["ci_low"], r["ci_high"]), "", r["note"]),
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
    reason = next((n for n in frame["note"] if n.startswith(MASKED)), "")
    note += f" {sentence(reason.split('; ')[0].rpartition(' in ')[0])}" * bool(reason)
    note += f" {len(shown)} of {len(frame):,} contrasts, of smallest p." * (len(shown) < len(frame))
    blocks: list[Block] = [
        Bullets(tuple(interaction_finding(result))),
        Table("Interaction of attributes", head, tuple(parts), text_columns=(1,), note=note),
    ]
    if shown["superadditive"].fillna(False).any():
        blocks.append(
            Paragraph(
                "Flagged as superadditive in the figure: the gap of both levels to neither is "
                "wider than the gaps of the two attributes together. The flag compares estimates "
                "and knows nothing of noise; the interval of the contrast does."
            )
        )
    if len(frame) <= MOST_ROWS and frame["contrast"].notna().any():
        least = frame["contrast"].min(), frame["contrast"].max()
        alt = (
            f"Interaction contrasts with their intervals, from {least[0]:.2f} to {least[1]:.2f}; "
            "0 means that effects add up. The same figures are in the table above."
        )
        blocks.append(pictures.picture(result.plot, alt, "Interaction contrasts"))
    return blocks


def _or_masked(shown: str, cell: str, note: str) -> str:
    """A number, or that it is masked: a note names the cells that are, and none is a contrast."""
    reason = note.split("; ")[0]
    if shown != "–" or not reason.startswith(MASKED):
        return shown
    return "masked" if cell in reason.rpartition(" in ")[2] else shown


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
        Bullets(tuple(map(sentence, result.notes)), "warning"),
    ]
    if len(frame) <= MOST_ROWS:
        said = " ".join(verdict for verdict, _ in equivalence_finding(result))
        alt = f"Intervals of each pair before the shaded margin. {said}"
        blocks.append(pictures.picture(result.plot, alt, f"Intervals before the margin{about}"))
    return [b for b in blocks if getattr(b, "text", "x") and getattr(b, "items", "x")]
