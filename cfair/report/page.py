"""Gathers what an audit found and writes it as one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cfair.errors import DataError
from cfair.options import check_option
from cfair.report.blocks import Block, Bullets, Heading, Paragraph, Section, label
from cfair.report.colours import DARK, LIGHT, variables
from cfair.report.findings import findings
from cfair.report.guideline import GUIDELINES, Facts, guideline_table
from cfair.report.methods import methods
from cfair.report.sections import (
    cohort_blocks,
    counterfactual_blocks,
    diagnostics_blocks,
    equivalence_blocks,
    group_intervention_blocks,
    interaction_blocks,
    meaning_sentence,
    meaning_table,
    observed_blocks,
    performance_blocks,
    plot_blocks,
    repeat_blocks,
    representation_blocks,
)
from cfair.results.equivalence import EquivalenceResult
from cfair.results.group_intervention import GroupInterventionResult
from cfair.results.interaction import InteractionResult
from cfair.results.observed import ObservedResult
from cfair.results.performance import PerformanceResult
from cfair.results.representation import RepresentationResult
from cfair.results.treated import TreatedResult

_OTHERS = (
    TreatedResult,
    GroupInterventionResult,
    PerformanceResult,
    InteractionResult,
    EquivalenceResult,
)


def write_report(
    path: Any,
    results: Sequence[Any],
    *,
    declaration: str,
    observe: Callable[[], ObservedResult],
    represent: Callable[[], RepresentationResult],
    title: str | None = None,
    question: str | None = None,
    guideline: str | None = None,
    date: str | None = None,
    overwrite: bool = True,
) -> Path:
    """Write a report of an audit.

    Parameters
    ----------
    path : path
        Ending in .html; its folder is made if it is not there.
    results : sequence of results
        Of one audit.
    declaration : str
        The call that declared the audit.
    observe, represent : callable
        What computes observed rates and representation, where they are not among `results`.
    title, question, guideline, date, overwrite
        As for `cfair.Audit.report`.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    ImportError
        If jinja2 is not installed.
    DataError
        If a result is of another audit, or the file cannot be written there.
    TypeError
        If something is no result that a report can hold.
    ValueError
        For an unknown guideline.
    """
    target = check_report(path, overwrite)
    check_option("guideline", guideline, [*GUIDELINES, None])
    for name, text in (("title", title), ("question", question), ("date", date)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} must be text, not {type(text).__name__}.")
    _check_kinds(results)
    observed = next((r for r in results if isinstance(r, ObservedResult)), None) or observe()
    _check_same_audit(observed, results)
    represented = next((r for r in results if isinstance(r, RepresentationResult)), None)
    representation = represented or represent()
    others = [r for r in results if isinstance(r, _OTHERS)]
    page = render(
        observed,
        representation,
        others,
        declaration=declaration,
        title=title,
        question=question,
        guideline=guideline,
        date=date,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page, encoding="utf-8", newline="\n")
    return target


def check_report(path: Any, overwrite: bool = True) -> Path:
    """Refuse before any work where a page cannot be written.

    Parameters
    ----------
    path : path
    overwrite : bool, default True

    Returns
    -------
    pathlib.Path

    Raises
    ------
    ImportError
        If jinja2 is missing; it says how to install it.
    DataError
        If the name is not one of a page, or is taken.
    """
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'a report needs jinja2, which is not installed: pip install "cfair[report]".'
        ) from error
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise DataError(f"path {str(target)!r} must end in .html.")
    there = next((p for p in target.parents if p.exists()), target.parent)
    if not there.is_dir():
        raise DataError(f"path {str(target)!r}: {str(there)!r} is a file, not a folder.")
    if target.is_dir():
        raise DataError(f"path {str(target)!r} is a folder. Give the name of a file in it.")
    if target.exists() and not overwrite:
        raise DataError(f"{str(target)!r} is there already. Give overwrite=True to replace it.")
    return target


def _check_kinds(results: Sequence[Any]) -> None:
    for k, result in enumerate(results, start=1):
        if not isinstance(result, (ObservedResult, RepresentationResult, *_OTHERS)):
            raise TypeError(
                f"result {k} is of type {type(result).__name__}, which a report does not hold. "
                "Give what the verbs of an audit return, one after the other: "
                "audit.report(path, audit.performance(), ...)."
            )
    for kind in (ObservedResult, RepresentationResult):
        if sum(isinstance(r, kind) for r in results) > 1:
            raise DataError(f"two results are of type {kind.__name__}. Give one.")


def _check_same_audit(observed: ObservedResult, results: Sequence[Any]) -> None:
    def of(cohort: Any) -> tuple[Any, ...]:
        return (cohort.n_read, cohort.groups.attributes, cohort.outcome_name, cohort.rule)

    own = of(observed.cohort)
    for k, result in enumerate(results, start=1):
        if hasattr(result, "cohort") and of(result.cohort) != own:
            raise DataError(
                f"result {k} ({type(result).__name__}) is of another audit: rows read, attributes, "
                f"outcome and call are {of(result.cohort)}, not {own}. Give results of one audit."
            )


def render(
    observed: ObservedResult,
    representation: RepresentationResult,
    others: Sequence[Any],
    *,
    declaration: str,
    title: str | None = None,
    question: str | None = None,
    guideline: str | None = None,
    date: str | None = None,
) -> str:
    """The page as text.

    Parameters
    ----------
    observed : ObservedResult
    representation : RepresentationResult
    others : sequence of results
    declaration : str
    title, question, guideline, date : str, optional

    Returns
    -------
    str
    """
    import jinja2

    cohort = observed.cohort
    groups = [label(a) for a in cohort.groups.attributes]
    by = groups[0] if len(groups) == 1 else f"{', '.join(groups[:-1])} and {groups[-1]}"
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cfair.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html").render(
        title=label(title or f"Audit of {cohort.rule} for {cohort.outcome_name}, by {by}"),
        question=label(
            question
            or f"Do the errors of {cohort.rule}, called for {cohort.outcome_name}, differ between "
            f"groups by {by}?"
        ),
        meaning=meaning_sentence(others),
        date=label(date) if date else "",
        sections=_sections(observed, representation, others, declaration, guideline),
        light=variables(LIGHT),
        dark=variables(DARK),
        scheme="light dark",
    )


def _sections(
    observed: ObservedResult,
    representation: RepresentationResult,
    others: Sequence[Any],
    declaration: str,
    guideline: str | None,
) -> list[Section]:
    treated = [r for r in others if isinstance(r, TreatedResult)]
    found: list[tuple[str, str, list[Block]]] = [
        ("cohort", "Cohort", cohort_blocks(observed.cohort, others)),
        ("findings", "Key findings", _finding_blocks(representation, observed, others)),
        ("meaning", "What “counterfactual” means here", [meaning_table(others)]),
        ("representation", "Representation", representation_blocks(representation)),
        ("observed", "Observed rates", observed_blocks(observed)),
    ]
    if treated:
        found.append(("counterfactual", "Counterfactual rates", counterfactual_blocks(treated)))
    for kind, key, name, blocks in _MORE:
        mine = [b for r in others if isinstance(r, kind) for b in blocks(r)]
        if mine:
            found.append((key, name, mine))
    found += [
        ("plots", "Plots", plot_blocks(observed, others)),
        ("diagnostics", "Diagnostics", diagnostics_blocks(representation, observed, others)),
    ]
    tests = [b for r in others if isinstance(r, EquivalenceResult) for b in equivalence_blocks(r)]
    if tests:
        found.append(("equivalence", "Equivalence", tests))
    found.append(("methods", "Methods and references", methods(observed, others, guideline)))
    everything = [representation, observed, *others]
    found.append(("repeat", "How to repeat this", repeat_blocks(declaration, everything)))
    if guideline is not None:
        facts = Facts(
            treatment=bool(treated),
            dropped=any(r.cohort.dropped.n for r in [observed, *others]),
            performance=any(isinstance(r, PerformanceResult) for r in others),
            clusters=observed.cohort.cluster is not None,
        )
        found.append(("guideline", "Reporting guideline", [guideline_table(guideline, facts)]))
    return [Section(key, name, tuple(blocks)) for key, name, blocks in found]


_MORE: tuple[tuple[type, str, str, Callable[[Any], list[Block]]], ...] = (
    (GroupInterventionResult, "group", "Everybody in one group", group_intervention_blocks),
    (PerformanceResult, "score", "Score quality", performance_blocks),
    (InteractionResult, "interaction", "Interaction of attributes", interaction_blocks),
)


def _finding_blocks(
    representation: RepresentationResult, observed: ObservedResult, others: Sequence[Any]
) -> list[Block]:
    said = findings(representation, observed, others)
    blocks: list[Block] = []
    for heading, items in said:
        blocks += [Heading(heading), Bullets(tuple(items), "finding")]
    return [
        *blocks,
        Paragraph(
            "Each statement stands alone. A gap is a difference in rates between two groups, with "
            "an interval that allows for the choice of the widest among all pairs. Whether a gap "
            "is acceptable is a judgement that no p-value makes."
        ),
    ]
