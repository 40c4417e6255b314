"""How results, notes and counts are named on the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from cfair.cohort import Cohort
from cfair.disclosure import KINDS, is_masked, small_masks
from cfair.report.blocks import Paragraph, label
from cfair.results.equivalence import EquivalenceResult
from cfair.results.group_intervention import GroupInterventionResult
from cfair.results.interaction import InteractionResult
from cfair.results.observed import ObservedResult
from cfair.results.performance import PerformanceResult
from cfair.results.rates import RatesResult
from cfair.results.replicated import ReplicatedResult
from cfair.results.representation import RepresentationResult
from cfair.results.treated import TreatedResult

#: Rows of a table of pairs, terms or notes; what is beyond is counted.
MOST_ROWS = 40


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


def short_names(results: Sequence[ReplicatedResult]) -> list[str]:
    """Names of estimators that tell them apart.

    Parameters
    ----------
    results : sequence of ReplicatedResult

    Returns
    -------
    list of str
    """
    names = [short_name(result) for result in results]
    return [
        name if names.count(name) == 1 else f"{name}, {names[: k + 1].count(name)}"
        for k, name in enumerate(names)
    ]


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


#: What notes say to those who call the package, in words for those who read the page.
_SPOKEN: tuple[tuple[str, str], ...] = (
    (r"estimator=[\"']sr[\"']", "the single-robust estimator (the outcome model alone)"),
    (r"estimator=[\"']dr[\"']", "the doubly robust estimator"),
    (r"by estimator=[\"']ipw[\"']", "by weighting alone (IPW)"),
    (r"estimator=[\"']([a-z]+)[\"']", r"the estimator \1"),
    (r"; \.contrasts has which in its notes", ""),
    (r"; weighted_share in \.cells and \.levels weighs them", ""),
    (r"(The frame \.pairs has all|(the )?others in \.pairs)", "others are not shown"),
    (r": (adjust|name it with reference)=(?=\W|$)", ""),
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


def sentence(note: str) -> str:
    """A note as a sentence of its own.

    Examples
    --------
    >>> sentence("no power: too few events")
    'No power: too few events.'
    """
    said = spoken(label(note))
    first = said.split(" ", 1)[0]
    said = said[:1].upper() + said[1:] if first.islower() and first.isascii() else said
    return said if said.endswith(".") else f"{said}."


def told(cohort: Cohort, kind: str, value: float) -> float:
    """A count of all rows, masked if disclosure control asks for it."""
    if cohort.protection is None:
        return value
    return float(cohort.protection.counts(cohort.partitions[0], KINDS[kind])[0])


def least_rows(cohort: Cohort) -> int | None:
    """Rows that a group was to have; no less than the limit of disclosure control."""
    least = cohort.min_group_size
    return None if least is None else max(least, cohort.suppress_below or 0)


def labels_of(result: RatesResult) -> dict[str, str]:
    """Metrics of a result in print."""
    return {e.metric: r.label for e, r in zip(result.estimates, result.rows, strict=True)}


def level_of(result: RatesResult) -> str:
    """Confidence level of a result in print."""
    return f"{100 * result.level:g}%"


def several(cohort: Cohort) -> bool:
    """Whether there are two groups to compare."""
    return int(np.count_nonzero(cohort.groups.sizes)) > 1


def range_words(result: RatesResult, metric: str) -> str:
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


def drawable(result: RatesResult, metric: str) -> bool:
    """Whether any group or level has a rate that a plot could show."""
    return any(
        bool(frame.loc[frame["metric"] == metric, "estimate"].notna().any())
        for frame in (result.rates, result.marginals)
        if len(frame)
    )


def left_out(what: str, below: int) -> Paragraph:
    """What disclosure control keeps off the page, since masked counts could be read from it."""
    return Paragraph(f"Left out, since counts below {below} are masked: {what}.")


def is_of_rows(result: Any, cohort: Cohort) -> bool:
    """Whether a result may stand beside those of a cohort under disclosure control.

    Two results of overlapping rows are masked apart from each other, and the few rows by which they
    differ are what is left when one is subtracted from the other.
    """
    own = result.cohort
    if cohort.suppress_below is None:
        return True
    if own.n_used != cohort.n_used:
        return False
    if own.repeats is not None or cohort.repeats is not None:
        return True  # counted or rounded: of one declaration, as many rows are the same rows
    return bool(np.array_equal(own.rows, cohort.rows))


def other_rows(result: Any, cohort: Cohort, *, fitted: bool = False) -> Paragraph:
    """Why a result of other rows than these is left out, and what to do about it.

    Parameters
    ----------
    result : result of other rows
    cohort : Cohort
    fitted : bool, default False
        Whether the audit is of `cfair.fit_and_audit`, which leaves no rows out by other columns.

    Returns
    -------
    Paragraph
    """
    own, below = result.cohort, cohort.suppress_below
    few = is_masked(small_masks([abs(own.n_used - cohort.n_used), own.dropped.n], below)).any()
    n, of = (told(c, "n", c.n_used) for c in (own, cohort))
    rows = f"on {n:,.0f} of the {of:,.0f} rows"
    if few or own.dropped.masked or not (n > 0 and of > 0 and own.n_used != cohort.n_used):
        rows = "on other rows than the tables above"
    advice = (
        "Give fit_and_audit a table without the rows in which a column of this analysis has no "
        "value."
        if fitted
        else "Declare the audit on the rows of this analysis: complete= names the columns in which "
        "no value may be missing."
    )
    return Paragraph(
        f"Left out: {name_of(result)}. It rests {rows}; beside the tables above, counts "
        f"below {below} could be computed by subtraction. {advice}"
    )
