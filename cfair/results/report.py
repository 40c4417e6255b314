"""The parts that printed results share, in the order in which people in a hurry read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfair.cohort import Cohort
from cfair.disclosure import KINDS, MASKED, is_masked, small_masks
from cfair.frame import show_some
from cfair.groups import Groups
from cfair.inference.equality import EqualityTest
from cfair.inference.estimates import RateEstimates
from cfair.results import text
from cfair.results.gaps import (
    BRACKETS,
    MASKED_IN,
    NO_RATE_IN,
    odds_words,
    p_heading,
    severity_words,
    simultaneous_pairs,
)

if TYPE_CHECKING:
    from cfair.results.rates import RatesResult

#: Groups printed in full; beyond it the frame has them all and the print says so.
MAX_GROUPS = 40
#: Levels of single attributes printed.
MAX_MARGINS = 24


def cohort_facts(cohort: Cohort) -> list[tuple[str, str]]:
    """Who was analysed, what was left out, what the event and the call are; counts are of rows."""
    events, positive = cohort.count(cohort.y), cohort.count(cohort.s)
    counts = {"n": cohort.n_used, "events": events, "positive": positive}
    n, event, flagged = (_shown(cohort, name, value) for name, value in counts.items())
    read = "" if cohort.dropped.masked else f"{text.count(cohort.n_read)} rows, "
    return [
        ("cohort", f"{read}{text.count(n)} used ({cohort.dropped.sentence()})"),
        ("flagged", f"{cohort.rule} (S = 1): {text.share(flagged, n)}"),
        (
            "outcome",
            f"{cohort.outcome_name}, event {cohort.outcome_event}: {text.share(event, n)}"
            f"{_zeros(cohort.outcome_others, 'no event')}",
        ),
        ("weights", _weights(cohort)),
    ]


def _shown(cohort: Cohort, kind: str, value: float) -> float:
    """A count of all rows, masked if it has to be."""
    if cohort.protection is None:
        return value
    return float(cohort.protection.counts(cohort.partitions[0], KINDS[kind])[0])


def rate_text(
    result: RatesResult, k: int, target: int, limits: tuple[Any, Any] | None, digits: int = 3
) -> str:
    """The k-th rate of a target with its interval, or that it is masked."""
    if result.rows[k].notes[target].startswith(MASKED):
        return "masked"
    value = result.estimates[k].estimate[target]
    if limits is None:
        return text.number(value, digits)
    return text.estimate(value, limits[0][target], limits[1][target], digits)


def disclosure_fact(result: RatesResult) -> tuple[str, str]:
    """What was masked, if anything may be."""
    return ("disclosure", result.disclosure)


def _weights(cohort: Cohort) -> str:
    """What the sampling weights leave of the rows; empty without weights."""
    if cohort.weights_name is None:
        return ""
    if cohort.weights is None:
        return f"{cohort.weights_name}, equal in all rows: they change nothing"
    zero = small_masks(cohort.count(cohort.weights == 0), cohort.suppress_below)
    some = text.count(float(zero)) if is_masked(zero) else ""
    nothing = f"; {some + ' rows' if some else plural(int(zero), 'row')} of weight 0" * bool(zero)
    return (
        f"{cohort.weights_name}, scaled to mean 1; effective size {text.count(cohort.kish)} of "
        f"{text.count(cohort.n_used)} (Kish){nothing}"
    )


def cluster_fact(cohort: Cohort) -> str:
    """Which clusters, and how many, to go with the intervals; empty without any."""
    if cohort.cluster is None:
        return ""
    return f"; {cohort.n_clusters:,} clusters ({cohort.cluster_name})"


def plural(n: int, noun: str) -> str:
    """A count with its noun.

    Examples
    --------
    >>> plural(1, "group"), plural(2, "group")
    ('1 group', '2 groups')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"


def rows_told(n: int, cohort: Cohort) -> str:
    """A number of rows, masked if it is small and small ones are.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> [rows_told(n, SimpleNamespace(suppress_below=11)) for n in (1, 0, 20)]
    ['<11 rows', '0 rows', '20 rows']
    """
    told = float(small_masks(n, cohort.suppress_below))
    return f"{text.count(told)} rows" if is_masked(told) else plural(n, "row")


def treatment_fact(cohort: Cohort) -> tuple[str, str]:
    """How many were treated."""
    shown = treated_share(cohort) + _zeros(cohort.treatment_others, "untreated")
    return ("treatment", f"{cohort.treatment_name}, {cohort.treatment_event}: {shown}")


def treated_share(cohort: Cohort) -> str:
    """The treated rows with their percentage, masked if they have to be."""
    assert cohort.d is not None
    treated, n = float(cohort.count(cohort.d)), _shown(cohort, "n", cohort.n_used)
    protection = cohort.treated_protection
    if protection is not None:
        arm = np.stack([0 * KINDS["n"], KINDS["n"]], axis=-1)
        treated = float(protection.counts(cohort.partitions[0], arm)[0])
    return text.share(treated, n)


def _zeros(others: Sequence[str], counted_as: str) -> str:
    """The other values, where there are several; empty where it is one."""
    return f"; {show_some(list(others))} count as {counted_as}" if others else ""


def attribute_rows(groups: Groups, k: int) -> list[str]:
    """Level names of one group, an entry per attribute."""
    position = np.unravel_index(k, groups.shape)
    return [
        text.one_line(names[int(p)]) for names, p in zip(groups.level_names, position, strict=True)
    ]


def shown_groups(
    estimates: Sequence[RateEstimates], n_groups: int
) -> tuple[Sequence[int], list[str]]:
    """Which groups to print, and a line that counts the others.

    With many groups those farthest from the overall rate come first, in standard errors.
    """
    if n_groups <= MAX_GROUPS:
        return range(n_groups), []
    distance = np.zeros(n_groups)
    for e in estimates[:2]:
        overall = e.estimate[-1]
        z = np.abs(e.estimate[:n_groups] - overall) / np.where(e.se > 0, e.se, np.inf)[:n_groups]
        distance = np.maximum(distance, np.nan_to_num(z))
    chosen = np.argsort(-distance, kind="stable")[:MAX_GROUPS]
    hidden = n_groups - MAX_GROUPS
    line = (
        f"... {hidden:,} of {n_groups:,} groups not shown; shown are those farthest from the "
        f"overall rate, in standard errors. The frame .rates has all."
    )
    return [int(k) for k in chosen], [line]


def group_table(
    result: RatesResult, header: Sequence[str], cells: Callable[[int], list[str]]
) -> list[str]:
    """A line per intersectional group, and one for all when there is a single attribute."""
    groups = result.cohort.groups
    chosen, hidden = shown_groups(result.estimates, groups.n_groups)
    rows = [[*attribute_rows(groups, k), *cells(k)] for k in chosen]
    if len(groups.attributes) == 1:
        rows.append(["all", *cells(-1)])
    names = map(text.one_line, groups.attributes)
    return text.table([*names, *header], rows, left=len(groups.attributes)) + hidden


def margin_table(
    result: RatesResult, header: Sequence[str], cells: Callable[[int], list[str]]
) -> list[str]:
    """A line for all, and one per level of each attribute; nothing for a single attribute."""
    groups = result.cohort.groups
    if len(groups.attributes) == 1:
        return []
    shown = groups.margin_names[:MAX_MARGINS]
    rows = [["all", *cells(-1)]]
    rows += [[text.one_line(n), *cells(groups.n_groups + k)] for k, n in enumerate(shown)]
    hidden = len(groups.margin_names) - len(shown)
    more = f"... {plural(hidden, 'level')} not shown. The frame .marginals has all."
    return text.table(["single attributes", *header], rows) + [more] * (hidden > 0)


def equality_line(result: RatesResult, chosen: Sequence[int]) -> list[str]:
    """Whether the rates are equal, metric by metric."""
    lines = []
    for k in chosen:
        test, label = result.estimates[k].equality, result.rows[k].label
        if np.isnan(test.wald):
            lines.append((label, result.equality_note(test)))
            continue
        hidden = int(result.masked(test.metric)[list(test.left_out)].sum())
        counts = ((MASKED_IN, hidden), (NO_RATE_IN, len(test.left_out) - hidden))
        left = "".join(f"; {head}{plural(n, 'group')}" for head, n in counts if n)
        lines.append(
            (
                label,
                f"{_wald(test)}, {text.p_value(test.p_value)}; largest of "
                f"all pairs t = {test.max_t:.1f}, {text.p_value(test.max_t_p_value)}{left}",
            )
        )
    width = max(len(label) for label, _ in lines)
    head = "equal rates?"
    return [
        f"{head if i == 0 else '':<13}{label:<{width}}  {line}"
        for i, (label, line) in enumerate(lines)
    ]


def _wald(test: EqualityTest) -> str:
    if np.isnan(test.df_denominator):
        return f"Wald chi2({test.df}) = {test.wald:.1f}"
    return f"Wald F({test.df}, {test.df_denominator:g}) = {test.f_statistic:.1f}"


def aggregate_lines(result: RatesResult, chosen: Sequence[int]) -> list[str]:
    """Average and maximum difference, with what noise alone would give."""
    header = ["|difference|", "average", "if equal", "maximum", "if equal"]
    rows = []
    for k in chosen:
        a = result.aggregate(k)
        row = [f"  {result.rows[k].label}"]
        for j in (0, 1):
            row.append(text.estimate(a.estimate[j], a.low[j], a.high[j]))
            row.append(text.number(a.expected_if_equal[j]))
        rows.append(row)
    return text.table(header, rows, gap=3)


def largest_gap_lines(result: RatesResult, chosen: Sequence[int]) -> list[str]:
    """The widest gap of each metric, by name."""
    lines: list[str] = []
    for k in chosen:
        gap = result.widest_gap(result.metrics[k])
        label = result.rows[k].label
        if gap is not None:
            value = text.estimate(gap["gap"], gap["ci_low"], gap["ci_high"])
            pair = (
                f"{text.one_line(gap['group'], 40)} against {text.one_line(gap['reference'], 40)}"
            )
            # a metric without a gap has no line, and the first that has one is named
            head = "" if lines else "largest gap"
            clearest = _clearest(result, k, gap)
            lines += text.facts([(head, f"{label}: {pair}, {value}{clearest}")])
    return lines


def _clearest(result: RatesResult, k: int, widest: Mapping[Any, Any]) -> str:
    """The pair that is told from 0 best, where the widest rests on too few to be told at all."""
    pairs = simultaneous_pairs(result.estimates[k], result.blocks(result.metrics[k]), result.level)
    rows = pairs[pairs["ci_low"] > 0].to_dict("records")  # all that are told from 0
    own = tuple(widest[c] for c in ("by", "group", "reference"))
    if not rows or any((row["by"], row["group"], row["reference"]) == own for row in rows):
        return ""
    best = max(rows, key=lambda row: float(row["ci_low"]))
    shown = text.estimate(best["gap"], best["ci_low"], best["ci_high"])
    names = " against ".join(text.one_line(best[c], 40) for c in ("group", "reference"))
    doubt = "may be noise" if widest["ci_low"] <= 0 else "not told from 0 as one of all pairs"
    return f", {doubt}; clearest: {names}, {shown} (simultaneous)"


def gap_table(frame: pd.DataFrame, labels: Mapping[str, str]) -> list[str]:
    """The widest gaps, a line per metric and attribute.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `RatesResult.gaps`.
    labels : mapping of str to str
        Metrics in print.
    """
    header = ["widest gap", "by", "between", "", "if equal", "detectable"]
    header += [p_heading(frame), "severity"]
    rows, last, noise = [], "", False
    for row in frame.to_dict("records"):
        between = row["note"]
        if not np.isnan(row["gap"]):
            between = f"{text.one_line(row['group'])}, {text.one_line(row['reference'])}"
        between += odds_words(row)
        said = severity_words(row)
        noise |= said.startswith("(")
        rows.append(
            [
                labels[row["metric"]] if row["metric"] != last else "",
                text.one_line(row["by"]),
                text.one_line(between, 60),
                text.estimate(row["gap"], row["ci_low"], row["ci_high"]),
                text.number(row["expected_if_equal"]),
                text.number(row["detectable"]),
                text.p_value(row["p_adjusted"]).removeprefix("p ").removeprefix("= "),
                said,
            ]
        )
        last = row["metric"]
    lines = text.table(header, rows, left=3)
    said = f"p of the test that all groups are equal; {frame['family'].iloc[0]}"
    said += f"; {BRACKETS}" * noise
    return [*lines, *text.facts([(" ", said)])]


def notes_lines(notes: Sequence[str]) -> list[str]:
    """What to be careful about."""
    return [
        line
        for i, note in enumerate(notes)
        for line in text.facts([("notes" if i == 0 else " ", note)])
    ]
