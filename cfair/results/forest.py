"""Rows of a clinical forest plot: all, single attributes, intersections, what is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfair.equivalence.margins import check_margin
from cfair.errors import DataError
from cfair.frame import show_some
from cfair.options import check_option
from cfair.results.contrasts import OVERALL

if TYPE_CHECKING:
    from cfair.plotting.clinical_forest import Panel
    from cfair.results.rates import RatesResult


#: Rates that rest on the untreated, where there is a treatment.
COUNTERFACTUAL = ("cfpr", "cfnr")
#: What a rate is a share of, as a column of counts and its head. The rows in its denominator are
#: counted for every rate; a rate of all rows has what it counts instead.
_COUNTED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("tpr", "fnr", "cfnr"), ("denominator", "events")),
    **dict.fromkeys(("fpr", "tnr", "cfpr"), ("denominator", "non-events")),
    **dict.fromkeys(("ppv", "fdr"), ("denominator", "flagged")),
    **dict.fromkeys(("npv", "for"), ("denominator", "not flagged")),
    "selection_rate": ("predicted_positive", "flagged"),
}


@dataclass(frozen=True, eq=False)
class ForestRows:
    """What `cfair.plotting.plot_clinical_forest` draws.

    Attributes
    ----------
    frame : pandas.DataFrame
    panels : list of Panel
    series : list of str
        Names of the results that are compared; empty for a single one.
    about, reference, margin : str
        In words.
    """

    frame: pd.DataFrame
    panels: list[Panel]
    series: list[str]
    about: str
    reference: str
    margin: str


def forest_rows(
    result: RatesResult,
    metrics: Sequence[str] | None,
    *,
    compare: RatesResult | Mapping[str, RatesResult] | None = None,
    attributes: Sequence[str] | None = None,
    intersections: bool = True,
    reference: Any = OVERALL,
    margin: tuple[float, float] | None = None,
    contrast: str = "ratio",
    only: Sequence[int] | None = None,
) -> ForestRows:
    """Put the rows of a result in order, and those of others beside them.

    Parameters
    ----------
    result : RatesResult
    metrics : sequence of str or None
    compare, attributes, intersections, reference, margin, contrast
        As for `RatesResult.plot_forest`.
    only : sequence of int, optional
        Positions of the intersectional groups that are drawn; all by default.

    Returns
    -------
    ForestRows

    Raises
    ------
    DataError
        If there is no such attribute or reference, single attributes have no rates, or what is
        compared has other groups.
    ValueError
        For a metric or margin that is not allowed, or a comparison with another event, level or
        disclosure control.
    TypeError
        If something that cannot be compared is given.
    """
    from cfair.plotting.clinical_forest import Panel

    order = _order(result, attributes)
    check_option("contrast", contrast, ("ratio", "difference"))
    ends = None if margin is None else check_margin(margin, contrast)
    label, at = _reference(result, reference)
    if ends is not None and at is None:
        raise ValueError("margin= needs a reference: it is drawn around it. Leave reference= out.")
    if ends is not None and compare is not None:
        raise ValueError("margin= is for one result. Leave compare= or margin= out.")
    others = _others(result, compare)
    wanted = _wanted(result, others, metrics)
    series = _series(result, others, wanted)
    parts: list[pd.DataFrame] = []
    panels = []
    for k, metric in enumerate(wanted):
        mine = [(name, one, own[k]) for name, one, own in series]
        found = [
            ordered_rows(one, [m], order, intersections=intersections, only=only)
            for _, one, m in mine
        ]
        heads = [_counts(one, m, part) for (_, one, m), part in zip(mine, found, strict=True)]
        heads_of = {
            slot: next(counts[slot][1] for counts in heads if slot in counts)
            for slot in _SLOTS
            if any(slot in counts for counts in heads)
        }
        for part, counts, (name, _, _) in zip(found, heads, mine, strict=True):
            told = {
                slot: part[counts[slot][0]].astype(object) if slot in counts else ""
                for slot in heads_of
            }
            parts.append(part.assign(**told, metric=metric, series=name))
        values = [_rate_at(one, m, at) for _, one, m in mine]
        labels = list(dict.fromkeys(_label(one, m) for _, one, m in mine))
        panels.append(
            Panel(
                metric,
                " / ".join(labels),
                values[0] if len(values) == 1 else values,
                _band(values[0], ends, contrast),
                tuple(heads_of.items()),
            )
        )
    said = "" if ends is None else f"{ends[0]:g} to {ends[1]:g}, {contrast} to the reference"
    names = [name for name, _, _ in series]
    return ForestRows(
        pd.concat(parts, ignore_index=True),
        panels,
        names if others else [],
        "" if others else result.about,
        label,
        said,
    )


#: Columns of counts from left to right; the last is what the rate is a share of, or counts.
_SLOTS = ("n", "untreated", "of")


def _counts(result: RatesResult, metric: str, frame: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """What a rate rests on: for each place at the left a column of the frame, and its head."""
    column, head = _COUNTED.get(metric, ("events", "events"))
    found = {"n": ("n", "n"), "of": (column, head)}
    if metric in COUNTERFACTUAL:
        found["untreated"] = ("untreated", "untreated")
        if hasattr(result, "membership_text"):  # whose membership is modelled, not counted
            found["of"] = (column, f"expected {head}")
    return {slot: (c, h) for slot, (c, h) in found.items() if c in frame}


def _label(result: RatesResult, metric: str) -> str:
    """A metric in print."""
    return result.rows[result.metrics.index(metric)].label


def _rate_at(result: RatesResult, metric: str, at: str | None) -> float:
    """The rate of the reference."""
    if at is None:
        return float("nan")
    here = result.overall if at == OVERALL else result.rates
    here = here if at == OVERALL else here[here["group"] == at]
    found = here.loc[here["metric"] == metric, "estimate"]
    return float(found.iloc[0]) if len(found) else float("nan")


def _band(
    value: float, ends: tuple[float, float] | None, contrast: str
) -> tuple[float, float] | None:
    """The ends of a margin around the reference, within 0 and 1."""
    if ends is None:
        return None
    low, high = map(float, ends)
    band = (value * low, value * high) if contrast == "ratio" else (value + low, value + high)
    return max(band[0], 0.0), min(band[1], 1.0)


def _others(
    result: RatesResult, compare: RatesResult | Mapping[str, RatesResult] | None
) -> list[tuple[str, RatesResult]]:
    """What is compared, with the names that were given."""
    if compare is None:
        return []
    named = dict(compare) if isinstance(compare, Mapping) else {"": compare}
    if not named:
        raise ValueError("compare must have at least one result, or be left out.")
    own = result.cohort.groups
    for other in named.values():
        if not hasattr(other, "estimates_of"):
            raise TypeError(
                "compare must be a result with rates by group, or a mapping of names to such "
                f"results, not {type(other).__name__}."
            )
        theirs = other.cohort.groups
        if (own.attributes, own.names) != (theirs.attributes, theirs.names):
            raise DataError(
                f"compare has the groups {show_some(list(theirs.names))}, and this result "
                f"{show_some(list(own.names))}. Compare results by the same attributes."
            )
        _refuse_unlike(result, other)
    return [(str(name), other) for name, other in named.items()]


def _refuse_unlike(result: RatesResult, other: RatesResult) -> None:
    """Refuse what one axis would make look alike, and what together shows a masked count."""
    mine, theirs = result.cohort, other.cohort
    events = [f"{c.outcome_name} = {c.outcome_event!r}" for c in (mine, theirs)]
    if events[0] != events[1]:
        raise ValueError(
            f"compare is of the event {events[1]}, and this result of {events[0]}. Their rates are "
            "shares of other patients: draw them apart."
        )
    if result.level != other.level:
        raise ValueError(
            f"compare has level={other.level:g}, and this result level={result.level:g}. Make both "
            "at one level."
        )
    for name in ("suppress_below", "round_counts_to"):
        own, its = getattr(mine, name), getattr(theirs, name)
        if own != its:
            raise ValueError(
                f"compare has {name}={its}, and this result {name}={own}: together they would show "
                "masked counts. Make both with the same."
            )


def _wanted(
    result: RatesResult,
    others: Sequence[tuple[str, RatesResult]],
    metrics: Sequence[str] | None,
) -> list[str]:
    """Metrics that are drawn; those that plots show and all have, unless told otherwise."""
    known = list(dict.fromkeys(result.plotted if metrics is None else metrics))
    if metrics is None:
        known = [
            m for m in known if all(_counterpart(o, m) in o.metrics for _, o in others)
        ] or known
    for one, metric in [(result, m) for m in known] + [
        (o, _counterpart(o, m)) for _, o in others for m in known
    ]:
        if getattr(one.estimates_of(metric), "scale", "unit") != "unit":
            raise ValueError(f"{metric} is no share, which this plot draws. See plot_rates().")
    return known


def _series(
    result: RatesResult, others: Sequence[tuple[str, RatesResult]], metrics: Sequence[str]
) -> list[tuple[str, RatesResult, list[str]]]:
    """Results with names that tell them apart, and the metrics that are drawn of each."""
    found = [("", result, list(metrics))]
    found += [(name, other, [_counterpart(other, m) for m in metrics]) for name, other in others]
    names = [name or _series_name(one, own) for name, one, own in found]
    told = [_distinctions(one, [r for _, r, _ in found]) for _, one, _ in found]
    given = [bool(name) for name, _, _ in found]
    names = [
        name if is_given or not more else f"{name}: {', '.join(more)}"
        for name, is_given, more in zip(names, given, told, strict=True)
    ]
    return [
        (name if names.count(name) == 1 else f"{name} ({names[: k + 1].count(name)})", one, own)
        for k, (name, (_, one, own)) in enumerate(zip(names, found, strict=True))
    ]


def _distinctions(one: RatesResult, every: Sequence[RatesResult]) -> list[str]:
    """The call and the rows of a result, where those of the results differ."""
    found = []
    if len({r.cohort.rule for r in every}) > 1:
        found.append(one.cohort.rule)
    # a difference of rows is a count that may be small
    if len({r.cohort.n_used for r in every}) > 1 and not any(r.cohort.controlled for r in every):
        found.append(f"n = {one.cohort.n_used:,}")
    return found


def _counterpart(result: RatesResult, metric: str) -> str:
    """The rate that answers to a metric: that without treatment where a result estimates it."""
    plain = metric.removeprefix("c")
    if f"c{plain}" in result.metrics:
        return f"c{plain}"
    return plain if plain in result.metrics else metric  # which is refused by name


def _series_name(result: RatesResult, metrics: Sequence[str]) -> str:
    """What a series is called: observed rates stand in counterfactual results too."""
    about = result.about
    if not any(m in COUNTERFACTUAL for m in metrics) and about.startswith("Had "):
        return "Observed"
    return about.partition(", treated patients")[0]


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
    keep = ["metric", "section", "group", "n", "untreated", "events", "non_events"]
    keep += ["predicted_positive", "denominator"]
    keep += ["estimate", "ci_low", "ci_high", "n_effective", "note"]
    return [part[[c for c in keep if c in part]] for part in parts]
