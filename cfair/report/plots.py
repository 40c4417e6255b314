"""Forest plots of rates, and what permuted labels give."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from cfair.plotting import plot_clinical_forest
from cfair.report import pictures
from cfair.report.blocks import Block, Figure, p_text
from cfair.report.wording import (
    MOST_ROWS,
    drawable,
    labels_of,
    level_of,
    range_words,
    short_name,
    short_names,
)
from cfair.results.forest import forest_rows
from cfair.results.group_intervention import GroupInterventionResult
from cfair.results.observed import ObservedResult
from cfair.results.rates import RatesResult
from cfair.results.replicated import ReplicatedResult
from cfair.results.report import shown_groups
from cfair.results.treated import TreatedResult

#: Series that one forest plot still tells apart.
MOST_SERIES = 4


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
    treated = [r for r in others if isinstance(r, TreatedResult)]
    blocks += _observed_and_not(treated)
    for result in others:
        if isinstance(result, GroupInterventionResult):
            caption = "Error rates with everybody in the group"
            blocks += _forests(result, list(result.compared), caption)
    for result in treated:
        if result.null is not None:
            blocks += [b for m in result.compared if (b := _null_picture(result, m)) is not None]
    return blocks


def _forests(result: RatesResult, metrics: Sequence[str], caption: str) -> list[Block]:
    """All rates in one plot, or a plot for each where there are too many rows for a page."""
    groups = result.cohort.groups
    metrics = [m for m in metrics if drawable(result, m)]
    if not metrics:
        return []
    if groups.n_groups + len(groups.margins) <= MOST_ROWS // 2:
        return [_forest(result, metrics, caption)]
    names = labels_of(result)
    return [_forest(result, [m], f"{caption}: {names[m]}") for m in metrics]


def _observed_and_not(results: Sequence[TreatedResult]) -> list[Block]:
    """Error rates as observed and had nobody been treated, side by side; a plot for each rate."""
    blocks: list[Block] = []
    names = [f"Nobody treated: {name}" for name in short_names(results)]
    named = list(zip(names, results, strict=True))
    while named:
        # others may have dropped a level, or be of another level of confidence
        first = (named[0][1].cohort.groups.names, named[0][1].level)
        alike = [(n, r) for n, r in named if (r.cohort.groups.names, r.level) == first]
        alike = alike[: MOST_SERIES - 1]
        named = [(n, r) for n, r in named if n not in dict(alike)]
        for metric, word in (("fpr", "False positive rate"), ("fnr", "False negative rate")):
            told = {n: r for n, r in alike if drawable(r, f"c{metric}")}
            if told or drawable(alike[0][1], metric):
                said = ", ".join(n.partition(": ")[2] for n in told or dict(alike))
                caption = f"{word}, observed and had nobody been treated ({said})"
                blocks.append(_forest(alike[0][1], [metric], caption, told or dict(alike)))
    return blocks


def _forest(
    result: RatesResult,
    metrics: Sequence[str],
    caption: str,
    compare: dict[str, TreatedResult] | None = None,
) -> Figure:
    chosen, hidden = shown_groups(result.estimates, result.cohort.groups.n_groups)
    only = sorted(chosen) if hidden else None
    names = labels_of(result)
    said = [f"{names[m]}: {range_words(result, m)}" for m in metrics]
    for name, other in (compare or {}).items():
        said += [f"{name}: {range_words(other, f'c{m}')}" for m in metrics]
    alt = (
        f"{caption}: forest plot with {level_of(result)} intervals, a row per group, counts at the "
        f"left and numbers at the right. {'; '.join(said)}. The same figures are in the tables "
        "above."
    )

    def draw() -> Any:
        rows = forest_rows(result, metrics, compare=compare, only=only)
        return plot_clinical_forest(
            rows.frame,
            rows.panels,
            series=rows.series,
            level=result.level,
            about=rows.about,
            reference=rows.reference,
        )

    if hidden:
        caption += f" ({hidden[0].removeprefix('... ')})"
    return pictures.picture(draw, alt, caption)


def _null_picture(result: ReplicatedResult, metric: str) -> Figure | None:
    """The null of a rate; none where there is nothing to draw, as where groups are masked."""
    frame = result.disparities
    at = (frame["metric"] == metric) & (frame["statistic"] == "average")
    row = frame[at].iloc[0]
    if np.isnan(row["estimate"]) or np.isnan(row["p_value"]):
        return None
    name = labels_of(result)[metric]
    alt = (
        f"Histogram of the average difference in {name} between groups under permuted labels, "
        f"with the observed one, {row['estimate']:.3f}, marked; p = {p_text(row['p_value'])}."
    )
    caption = f"{name}: average difference against permuted labels, {short_name(result)}"
    return pictures.picture(partial(result.plot_null, metric), alt, caption)
