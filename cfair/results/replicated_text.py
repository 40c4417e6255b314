"""The printed parts that results with replicates share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.inference.estimates import RateEstimates
from cfair.inference.replicates import RateDraws
from cfair.results import text
from cfair.results.report import (
    aggregate_lines,
    attribute_rows,
    equality_line,
    group_table,
    largest_gap_lines,
    margin_table,
    rate_text,
    shown_groups,
)

if TYPE_CHECKING:
    from cfair.results.replicated import ReplicatedResult


def replicate_facts(result: ReplicatedResult) -> list[tuple[str, str]]:
    """How the replicates were made, and from which seed; nothing without any."""
    compared = list(result.compared)
    folds = getattr(result, "folds", None)
    facts = []

    def shown(draws: pd.DataFrame) -> pd.DataFrame:
        masks = result.cohort.suppress_below is not None  # masked groups are in no replicate
        return draws[compared].dropna(axis=1, how="all") if masks else draws[compared]

    if result.boot is not None:
        what = f"{result.boot.n_replicates:,} replicates"
        facts.append(("bootstrap", _made(what, result.boot, shown(result.boot_draws))))
    if result.null is not None:
        what = f"{result.null.n_replicates:,} permutations of the labels"
        facts.append(("null", _made(what, result.null, shown(result.null_draws))))
    random = facts or (folds is not None and folds.drawn)
    return [*facts, ("seed", str(result.seed))] if random else []


def _made(what: str, draws: RateDraws, frame: pd.DataFrame) -> str:
    # two groups have no variance of their one difference, whatever the replicate
    frame = frame.drop(columns="variance", level=1, errors="ignore")
    undefined = int(np.isnan(frame).any(axis=1).sum())
    parts = [f"{what} ({draws.method})"]
    if undefined:
        parts.append(f"{undefined} with an undefined rate")
    if draws.not_converged:
        parts.append(f"{draws.not_converged} with a fit that did not converge, kept")
    return "; ".join([*parts, *draws.notes])


def rate_tables(result: ReplicatedResult) -> list[list[str]]:
    """The rates of the groups, then of the margins where there are any."""
    header = [*result.counts, *(row.label for row in result.rows)]
    cells = _cells(result)
    if result.has_margins:
        return [group_table(result, header, cells), margin_table(result, header, cells)]
    groups = result.cohort.groups
    compared = [_with_overall(result.estimates_of(m), groups.sizes) for m in result.compared]
    chosen, hidden = shown_groups(compared, groups.n_groups)
    rows = [[*attribute_rows(groups, k), *cells(k)] for k in chosen]
    header = [*map(text.one_line, groups.attributes), *header]
    return [text.table(header, rows, left=len(groups.attributes)) + hidden]


def _cells(result: ReplicatedResult) -> Callable[[int], list[str]]:
    limits = {metric: result.limits(metric) for metric in result.compared}

    def of_target(target: int) -> list[str]:
        cells = [text.count(values[target]) for values in result.counts.values()]
        for k, metric in enumerate(result.metrics):
            cells.append(rate_text(result, k, target, limits.get(metric)))
        return cells

    return of_target


def _with_overall(e: RateEstimates, sizes: NDArray[np.integer]) -> RateEstimates:
    """Rates of the groups followed by their mean over the rows, to measure distances from."""
    K = e.n_groups
    defined = np.flatnonzero(~np.isnan(e.estimate[:K]))
    weights = np.maximum(sizes, 1)[defined]
    overall = np.average(e.estimate[defined], weights=weights) if len(defined) else np.nan
    return replace(
        e,
        estimate=np.append(e.estimate[:K], overall),
        covariance=np.pad(e.covariance[:K, :K], (0, 1)),
        kish=np.append(e.kish[:K], sizes.sum()),
    )


def difference_lines(result: ReplicatedResult) -> list[str]:
    """Tests, summaries and the widest gaps of the metrics that are compared."""
    if np.count_nonzero(result.cohort.groups.sizes) < 2:
        return ["one group only: nothing to compare"]
    chosen = [result.metrics.index(metric) for metric in result.compared]
    lines = [*equality_line(result, chosen), *aggregate_lines(result, chosen)]
    if result.null is not None:
        lines += null_table(result)
    K = result.cohort.groups.n_groups
    pairs = [k for k in chosen if np.count_nonzero(~np.isnan(result.estimates[k].estimate[:K])) > 1]
    # only those with a gap, since the first of them has the label of the lines
    return lines + largest_gap_lines(result, pairs) if pairs else lines


def null_table(result: ReplicatedResult) -> list[str]:
    """P-values and u-values of the permutation null; studentized ones where there are any."""
    assert result.null is not None
    u = "u" if isinstance(result.u_delta, dict) else f"u({result.u_delta:g})"
    studentized = ["p studentized"] * (result.null.wald is not None)
    header = ["permutation", "p avg", "p max", *studentized, f"{u} avg", f"{u} max"]
    disparities = result.disparities
    rows = []
    for metric in result.compared:
        part = disparities[disparities["metric"] == metric].reset_index(drop=True)
        rows.append(
            [
                f"  {result.rows[result.metrics.index(metric)].label}",
                *(text.number(part["p_value"][j]) for j in (0, 1)),
                *(text.number(part["p_value_studentized"][0]) for _ in studentized),
                *(text.number(part["u_value"][j]) for j in (0, 1)),
            ]
        )
    return text.table(header, rows, gap=3)
