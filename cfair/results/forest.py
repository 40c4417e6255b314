"""Rows of a clinical forest plot: all, single attributes, intersections, and the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfair.equivalence.margins import check_margin
from cfair.errors import DataError
from cfair.options import check_option
from cfair.results.contrasts import OVERALL

if TYPE_CHECKING:
    from cfair.plotting.clinical_forest import Panel
    from cfair.results.rates import RatesResult


@dataclass(frozen=True, eq=False)
class ForestRows:
    """What `cfair.plotting.plot_clinical_forest` draws.

    Attributes
    ----------
    frame : pandas.DataFrame
    panels : list of Panel
    counts : list of (str, str)
    reference, margin : str
        In words.
    """

    frame: pd.DataFrame
    panels: list[Panel]
    counts: list[tuple[str, str]]
    reference: str
    margin: str


def forest_rows(
    result: RatesResult,
    metrics: Sequence[str],
    *,
    attributes: Sequence[str] | None = None,
    intersections: bool = True,
    reference: Any = OVERALL,
    margin: tuple[float, float] | None = None,
    contrast: str = "ratio",
    only: Sequence[int] | None = None,
) -> ForestRows:
    """Put the rows of a result in order.

    Parameters
    ----------
    result : RatesResult
    metrics : sequence of str
    attributes, intersections, reference, margin, contrast
        As for `RatesResult.plot_forest`.
    only : sequence of int, optional
        Positions of the intersectional groups that are drawn; all by default.

    Returns
    -------
    ForestRows

    Raises
    ------
    DataError
        If there is no such attribute or reference, or single attributes have no rates.
    ValueError
        For a metric or margin that is not allowed.
    """
    from cfair.plotting.clinical_forest import Panel

    wanted = list(dict.fromkeys(metrics))
    for metric in wanted:
        if getattr(result.estimates_of(metric), "scale", "unit") != "unit":
            raise ValueError(f"{metric} is no share, which this plot draws. See plot_rates().")
    order = _order(result, attributes)
    label, at = _reference(result, reference)
    check_option("contrast", contrast, ("ratio", "difference"))
    ends = None if margin is None else check_margin(margin, contrast)
    if ends is not None and at is None:
        raise ValueError("margin= needs a reference: it is drawn around it. Leave reference= out.")
    frame = ordered_rows(result, wanted, order, intersections=intersections, only=only)
    rates, overall = result.rates, result.overall
    names = {e.metric: r.label for e, r in zip(result.estimates, result.rows, strict=True)}
    panels = []
    for metric in wanted:
        value = np.nan
        if at is not None:
            here = overall if at == OVERALL else rates[rates["group"] == at]
            value = float(here.loc[here["metric"] == metric, "estimate"].iloc[0])
        band = None
        if ends is not None:
            low, high = map(float, ends)
            band = (
                (value * low, value * high) if contrast == "ratio" else (value + low, value + high)
            )
            band = (max(band[0], 0.0), min(band[1], 1.0))
        panels.append(Panel(metric, names.get(metric, metric), value, band))
    counts = [("n", "n")]
    counts += [(c, c) for c in ("untreated", "events") if c in rates]
    said = "" if ends is None else f"{ends[0]:g} to {ends[1]:g}, {contrast} to the reference"
    return ForestRows(frame, panels, counts, label, said)


def ordered_rows(
    result: RatesResult,
    metrics: Sequence[str],
    attributes: Sequence[str] | None = None,
    *,
    intersections: bool = True,
    only: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Rates of all, of single attributes and of intersections, in the order of a table.

    Parameters
    ----------
    result : RatesResult
    metrics : sequence of str
    attributes : sequence of str, optional
        Those wanted, in their order; all by default.
    intersections : bool, default True
    only : sequence of int, optional
        Positions of the intersectional groups wanted.

    Returns
    -------
    pandas.DataFrame
        ``metric``; ``section``, the attribute, the attributes joined, or empty for all; ``group``,
        counts, ``estimate, ci_low, ci_high, n_effective, note``.
    """
    order = list(result.cohort.groups.attributes) if attributes is None else list(attributes)
    rates, overall, single = result.rates, result.overall, result.marginals
    parts = [
        part
        for metric in metrics
        for part in _of_metric(
            metric, rates, overall, single, order, intersections=intersections, only=only
        )
    ]
    return pd.concat(parts, ignore_index=True)


def _order(result: RatesResult, attributes: Sequence[str] | None) -> list[str]:
    known = list(result.cohort.groups.attributes)
    if attributes is None:
        return known
    order = [attributes] if isinstance(attributes, str) else list(attributes)
    unknown = [a for a in order if a not in known]
    if unknown or not order:
        raise DataError(
            f"attributes must be of {', '.join(map(repr, known))}, not "
            f"{', '.join(map(repr, unknown)) or 'none'}."
        )
    return list(dict.fromkeys(order))


def _reference(result: RatesResult, reference: Any) -> tuple[str, str | None]:
    """What the line is in words, and where its rate is found."""
    groups = result.cohort.groups
    if reference is None:
        return "", None
    if isinstance(reference, str) and reference == OVERALL and OVERALL not in groups.names:
        if result.overall.empty:
            return "", None
        return "all rows", OVERALL
    name = groups.names[groups.index_of(reference)]
    return name, name


def _of_metric(
    metric: str,
    rates: pd.DataFrame,
    overall: pd.DataFrame,
    single: pd.DataFrame,
    order: Sequence[str],
    *,
    intersections: bool,
    only: Sequence[int] | None,
) -> list[pd.DataFrame]:
    parts = []
    mine = {
        name: frame[frame["metric"] == metric]
        for name, frame in (("overall", overall), ("single", single), ("rates", rates))
    }
    if len(mine["overall"]):
        parts.append(mine["overall"].assign(section="", group="All"))
    several = "attribute" in mine["single"] and len(mine["single"])
    for attribute in order if several else []:
        part = mine["single"][mine["single"]["attribute"] == attribute]
        parts.append(part.assign(section=attribute, group=part["level"].astype(str)))
    groups = mine["rates"].reset_index(drop=True)
    attributes = list(dict.fromkeys(mine["single"]["attribute"])) if several else list(order)
    if intersections and (len(attributes) > 1 or not several):
        chosen = groups if only is None else groups.iloc[list(only)]
        first = [a for a in order if a in chosen.columns]
        rank = chosen[first].apply(lambda c: pd.factorize(c)[0]) if first else chosen[[]]
        if list(order) != attributes[: len(order)] and first:
            chosen = chosen.loc[rank.sort_values(first, kind="stable").index]
        parts.append(chosen.assign(section=" × ".join(attributes)))
    keep = ["metric", "section", "group", "n", "untreated", "events", "non_events", "denominator"]
    keep += ["estimate", "ci_low", "ci_high", "n_effective", "note"]
    return [part[[c for c in keep if c in part]] for part in parts]
