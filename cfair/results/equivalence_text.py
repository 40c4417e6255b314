"""Equivalence in print: what was asked, a line per pair, all together, and what to mind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cfair.equivalence.margins import CONTRASTS, FOUR_FIFTHS
from cfair.results import text
from cfair.results.equivalence_pairs import NO_POWER, UNDEFINED, VERDICTS
from cfair.results.equivalence_question import Question
from cfair.results.report import cluster_fact, cohort_facts, notes_lines, plural

if TYPE_CHECKING:
    from cfair.results.equivalence import EquivalenceResult

#: Pairs printed; beyond it those farthest from equivalence come first and the frame has all.
MOST_ROWS = 40


def equivalence_page(result: EquivalenceResult) -> str:
    """A test of equivalence as text.

    Parameters
    ----------
    result : EquivalenceResult

    Returns
    -------
    str
    """
    return text.page(
        "Equivalence of rates between groups",
        [
            text.facts(
                [
                    *cohort_facts(result.cohort),
                    ("disclosure", result.disclosure),
                    *_facts(result),
                ]
            ),
            _table(result),
            _together(result),
            notes_lines(result.notes),
        ],
    )


def _facts(result: EquivalenceResult) -> list[tuple[str, str]]:
    """What was asked, and by which tests it was decided."""
    q = result.question
    margins: dict[tuple[float, float], list[str]] = {m: [] for m in q.margins.values()}
    for metric, margin in q.margins.items():
        margins[margin].append(result.labels[metric])
    said = [f"{low:.4g} to {high:.4g}" for low, high in margins]
    if len(said) > 1:
        said = [
            f"{m} ({', '.join(names)})" for m, names in zip(said, margins.values(), strict=True)
        ]
    methods = result.pairs["method"].unique()
    words = {
        "score": "score (Miettinen and Nurminen)",
        "wald": "Wald" + " on the log scale" * (q.contrast != "difference"),
    }
    several = len(methods) > 1
    kinds = [
        words[m] + (f" ({', '.join(_labels_of(result, m))})" if several else "") for m in methods
    ]
    interval = f"the {100 * result.level:g}% interval (1 - 2 alpha)"
    decides = f"which is {interval} inside the margin"
    if q.adjust:
        decides = f"p-values adjusted ({result.family}); {interval} is not adjusted"
    return [
        ("rates", result.about),
        ("compared", result.reference),
        (
            "equivalent",
            f"if the {CONTRASTS[q.contrast]} of two rates, group to reference, lies within "
            f"{'; '.join(said)}",
        ),
        (
            "decided by",
            f"two one-sided tests at alpha = {q.alpha:g}, {decides}: {'; '.join(kinds)}"
            f"{cluster_fact(result.cohort)}",
        ),
    ]


def _labels_of(result: EquivalenceResult, method: str) -> list[str]:
    """Metrics, in print, that were tested by a method."""
    frame = result.pairs
    return [result.labels[m] for m in frame.loc[frame["method"] == method, "metric"].unique()]


def _table(result: EquivalenceResult) -> list[str]:
    """A line per pair."""
    frame, hidden = result.pairs, []
    if len(frame) > MOST_ROWS:
        order = np.argsort(-frame["p_value"].fillna(-1).to_numpy(), kind="stable")
        hidden = [
            f"... {len(frame) - MOST_ROWS:,} of {len(frame):,} pairs not shown; shown are "
            "those farthest from equivalence. The frame .pairs has all."
        ]
        frame = frame.iloc[np.sort(order[:MOST_ROWS])]
    head = CONTRASTS[result.question.contrast]
    one = frame["reference"].nunique() == 1
    header = ["metric", "group", *([] if one else ["reference"]), "n", "n ref.", "rate"]
    p_head = "p" if result.question.adjust is None else "p adj."
    header += ["ref.", f"{head} [{100 * result.level:g}%]", p_head, "cell", "verdict"]
    rows, last = [], ""
    for row in frame.to_dict("records"):
        label = result.labels[row["metric"]]
        names = [row["group"]] + ([] if one else [row["reference"]])
        p = row["p_adjusted"]
        rows.append(
            [
                label if label != last else "",
                *(text.one_line(name) for name in names),
                text.count(row["n"]),
                text.count(row["n_reference"]),
                text.short(row["rate"]),
                text.short(row["rate_reference"]),
                text.estimate(row["estimate"], row["ci_low"], row["ci_high"]),
                text.p_value(p).split(" ", 1)[1].removeprefix("= ") if not np.isnan(p) else "–",
                "" if np.isnan(row["expected_cell"]) else f"{row['expected_cell']:.1f}",
                row["verdict"],
            ]
        )
        last = label
    known = frame["expected_cell"].notna().any()
    legend = "p of equivalence, the larger of the two one-sided p-values" + (
        "; cell: the smallest expected cell at the common rate" * bool(known)
    )
    table = text.table(header, rows, left=2 if one else 3)
    return [*table, *hidden, *text.facts([(" ", legend)])]


def _together(result: EquivalenceResult) -> list[str]:
    """A line per metric with more than one pair: whether all are equivalent."""
    overall = result.overall
    if (overall["pairs"] == 1).all():
        return []
    width = max(len(label) for label in result.labels.values())
    lines = []
    for k, row in enumerate(overall.to_dict("records")):
        counts = [(row[name.replace(" ", "_")], name) for name in VERDICTS]
        said = ", ".join(f"{n:,} {name}" for n, name in counts if n)
        some = row["verdict"] == "some different"
        value = row["p_beyond"] if some else row["p_value"]
        p = "" if np.isnan(value) else f", {text.p_value(value)}" + " (Holm)" * some
        head = "all alike?" if k == 0 else ""
        lines += text.facts(
            [
                (
                    f"{head:<13}{result.labels[row['metric']]:<{width}}",
                    f"{row['verdict']}{p} ({said})",
                )
            ],
            indent=15 + width,
        )
    return lines


def notes_of(frame: pd.DataFrame, question: Question, labels: Mapping[str, str]) -> list[str]:
    """What to be careful about, and what the verdicts mean.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `judged`.
    question : Question
    labels : mapping of str to str

    Returns
    -------
    list of str
    """
    notes = []
    verdicts = set(frame["verdict"])
    small = frame[(frame["rule_of_five"] == False).fillna(False) & frame["p_value"].notna()]  # noqa: E712
    if len(small):
        notes.append(_small_note(small, len(frame), labels))
    if frame["metric"].duplicated().any():
        notes.append(
            "that all pairs of a metric are equivalent needs no correction for their number "
            "(intersection-union); that some differ does, and has it (Holm); one pair picked out "
            "of several does too: adjust=."
        )
    notes.append(
        "different means beyond the margin, the interval wholly outside it; an interval that "
        "excludes equality may still be equivalent. Not enough data is no verdict of fairness."
    )
    if NO_POWER in verdicts:
        notes.append(
            "no power is to show equivalence: no split of these events between the two groups "
            "would have shown it, or, by Wald's test, the interval is wider than the margin. The "
            "interval is of these data all the same, and may exclude equality."
        )
    if UNDEFINED in verdicts:
        undefined = frame[frame["verdict"] == UNDEFINED]
        reason = undefined["note"].iloc[0]
        notes.append(
            f"undefined: {plural(len(undefined), 'pair')}, the first because of {reason}; the "
            "others in .pairs."
        )
    if not question.chosen:
        low, high = FOUR_FIFTHS
        notes.append(
            f"the margin {low:g} to {high:g} is a convention, four fifths: choose what is "
            "tolerable in this case with margin=."
        )
    skewed = [
        labels[m]
        for m, (low, high) in question.margins.items()
        if not np.isclose(
            low + high if question.contrast == "difference" else low * high, question.equal
        )
    ]
    if skewed and frame["reference"].nunique() > 1:
        notes.append(
            f"the margin of {', '.join(skewed)} is not symmetric, so that it matters which group "
            "of a pair is the reference: name it with reference=."
        )
    return notes


def _small_note(small: pd.DataFrame, n: int, labels: Mapping[str, str]) -> str:
    first = small.iloc[int(small["expected_cell"].to_numpy().argmin())]
    which = f"{labels[first['metric']]} of {first['group']} and {first['reference']}"
    wald = int((small["method"] == "wald").sum())
    means = (
        "the score test allows for it"
        if not wald
        else "there the Wald test says equivalent too easily; read with care"
    )
    return (
        f"{len(small):,} of {plural(n, 'pair')} with an expected cell below 5, the smallest "
        f"{first['expected_cell']:.1f} ({which}): {means}."
    )
