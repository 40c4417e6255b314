"""Gathers what an audit found and writes it as one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.options import check_option, check_path, check_target, writing
from cfair.report.blocks import Block, Bullets, Heading, Paragraph, Section, label
from cfair.report.colours import DARK, LIGHT, variables
from cfair.report.comparisons import equivalence_blocks, interaction_blocks
from cfair.report.diagnostics import diagnostics_blocks
from cfair.report.findings import findings
from cfair.report.guideline import GUIDELINES, Facts, guideline_table
from cfair.report.methods import methods
from cfair.report.patients import (
    cohort_blocks,
    disclosure_blocks,
    meaning_sentence,
    meaning_table,
    representation_blocks,
    table_one_blocks,
)
from cfair.report.plots import plot_blocks
from cfair.report.provenance import repeat_blocks
from cfair.report.rates import (
    counterfactual_blocks,
    group_intervention_blocks,
    observed_blocks,
    performance_blocks,
)
from cfair.report.size import MOST_PAGE, within
from cfair.report.wording import is_of_rows, least_rows, other_rows
from cfair.results.equivalence import EquivalenceResult
from cfair.results.fitted_model import FitAndAuditResult
from cfair.results.group_intervention import GroupInterventionResult
from cfair.results.interaction import InteractionResult
from cfair.results.observed import ObservedResult
from cfair.results.performance import PerformanceResult
from cfair.results.representation import RepresentationResult
from cfair.results.table_one import TableOneResult
from cfair.results.treated import TreatedResult

_OTHERS = (
    TreatedResult,
    GroupInterventionResult,
    PerformanceResult,
    InteractionResult,
    EquivalenceResult,
)


_BESIDE = (FitAndAuditResult, TableOneResult)


def write_report(
    path: Any,
    results: Sequence[Any],
    *,
    declaration: str,
    observe: Callable[[], ObservedResult],
    represent: Callable[[], RepresentationResult],
    describe: Callable[[Sequence[str]], list[TableOneResult]] | None = None,
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
    describe : callable, optional
        What makes Table 1, given columns that the results use beside those with a role.
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
    fitted = [r for r in results if isinstance(r, FitAndAuditResult)]
    results = _opened(results)
    own = observe()
    _check_same_audit(own.cohort, results)
    observed = next((r for r in results if isinstance(r, ObservedResult)), own)
    represented = next((r for r in results if isinstance(r, RepresentationResult)), None)
    representation = represented or represent()
    others = [r for r in results if isinstance(r, _OTHERS)]
    elsewhere = [r for r in others if not is_of_rows(r, observed.cohort)]
    others = [r for r in others if r not in elsewhere]
    tables = [r for r in results if isinstance(r, TableOneResult)]
    if not tables and describe is not None:
        tables = describe(_columns(others))
    page = render(
        observed,
        representation,
        others,
        declaration=declaration,
        tables=tables,
        fitted=fitted,
        elsewhere=elsewhere,
        title=title,
        question=question,
        guideline=guideline,
        date=date,
    )
    with writing("path", target):
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
    target = check_path(path, "path")
    if target.suffix.lower() not in (".html", ".htm"):
        raise DataError(f"path {str(target)!r} must end in .html.")
    check_target(target, "path", make=True)
    if target.exists() and not overwrite:
        raise DataError(f"{str(target)!r} is there already. Give overwrite=True to replace it.")
    return target


def _check_kinds(results: Sequence[Any]) -> None:
    for k, result in enumerate(results, start=1):
        if not isinstance(result, (ObservedResult, RepresentationResult, *_OTHERS, *_BESIDE)):
            raise TypeError(
                f"result {k} is of type {type(result).__name__}, which a report does not hold. "
                "Give what the verbs of an audit return, one after the other: "
                "audit.report(path, audit.performance(), ...)."
            )
    for kind in (ObservedResult, RepresentationResult, FitAndAuditResult):
        if sum(isinstance(r, kind) for r in results) > 1:
            raise DataError(f"two results are of type {kind.__name__}. Give one.")


def _opened(results: Sequence[Any]) -> list[Any]:
    """The results, with those of a fitted model's audit in its place."""
    found = []
    there = {type(r) for r in results}
    for result in results:
        if isinstance(result, FitAndAuditResult):
            inside = (result.observed, result.performance)
            found += [r for r in inside if type(r) not in there]
        else:
            found.append(result)
    return found


def _columns(results: Sequence[Any]) -> list[str]:
    """Treatment and columns that models of the results use, in order.

    Under disclosure control a treatment that was not declared is none of them: its masks would be
    others than those of the counterfactual rates beside it.
    """
    cohorts = [r.cohort for r in results if hasattr(r, "cohort")]
    names = [str(c.treatment_name) for c in cohorts if c.d is not None and not c.controlled]
    return list(dict.fromkeys([*names, *(str(name) for c in cohorts for name in c.data.columns)]))


def _check_same_audit(own: Cohort, results: Sequence[Any]) -> None:
    """Refuse what is of other rows, another declaration or other data."""
    known = [own]
    for k, result in enumerate(results, start=1):
        cohort = getattr(result, "cohort", None)
        if not isinstance(cohort, Cohort) or any(cohort is c for c in known):
            continue
        told = _declared_otherwise(own, cohort) or _other_rows(own, cohort)
        told = told or next(filter(None, (_other_values(c, cohort) for c in known)), "")
        known.append(cohort)
        if told:
            raise DataError(
                f"result {k} ({type(result).__name__}) is of another audit: {told}. Give results "
                "of one audit."
            )


def _declared_otherwise(own: Cohort, other: Cohort) -> str:
    """What two declarations do not share; empty if they are one."""
    compared: list[tuple[str, Callable[[Cohort], Any]]] = [
        ("rows read", lambda c: c.n_read),
        ("attributes", lambda c: c.groups.attributes),
        ("outcome", lambda c: c.outcome_name),
        ("event", lambda c: c.outcome_event),
        ("call", lambda c: c.rule),
    ]
    if own.treatment_name is not None and own.treatment_name == other.treatment_name:
        compared.append(("treatment event", lambda c: c.treatment_event))
    return "; ".join(
        f"{name} {of(other)!r}, not {of(own)!r}" for name, of in compared if of(other) != of(own)
    )


def _other_rows(own: Cohort, other: Cohort) -> str:
    """Whether an analysis has rows that the audit left out; it may leave out more for its models.

    Where entries are counted, rows are not told apart, and counts stand for them.
    """
    if own.repeats is not None or other.repeats is not None:
        same = own.dropped.n == other.dropped.n and own.groups.names == other.groups.names
        unlike = same and own.round_counts_to is None and _cells(own) != _cells(other)
        return "counts by group, outcome and call differ" if unlike else ""
    shared = len(np.intersect1d(own.rows, other.rows, assume_unique=True))
    same_columns = own.dropped.by_column == other.dropped.by_column
    if shared < len(other.rows) or (same_columns and shared < len(own.rows)):
        return "other rows were left out"
    return ""


def _other_values(own: Cohort, other: Cohort) -> str:
    """Which columns have other values in rows that both have."""
    if own.repeats is not None or other.repeats is not None:
        return ""
    _, mine, theirs = np.intersect1d(own.rows, other.rows, assume_unique=True, return_indices=True)
    pairs = {
        f"the outcome {own.outcome_name!r}": (own.y, other.y),
        f"the call {own.rule}": (own.s, other.s),
        f"the score {own.score_name!r}": (own.score, other.score),
        "the groups": (
            np.array(own.groups.names, dtype=object)[own.groups.codes],
            np.array(other.groups.names, dtype=object)[other.groups.codes],
        ),
    }
    if own.treatment_name == other.treatment_name:
        pairs[f"the treatment {own.treatment_name!r}"] = (own.d, other.d)
    for name in own.data.columns.intersection(other.data.columns):
        if own.data[name].dtype.kind in "biuf" and other.data[name].dtype.kind in "biuf":
            values = own.data[name].to_numpy(), other.data[name].to_numpy()
            pairs.setdefault(f"the column {name!r}", values)
    differ = [
        name
        for name, (a, b) in pairs.items()
        if a is not None and b is not None and not _equal(a[mine], b[theirs])
    ]
    return f"in the same rows {', '.join(differ)} has other values" if differ else ""


def _equal(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f"))


def _cells(cohort: Cohort) -> list[int]:
    cell = cohort.groups.codes * 4 + cohort.y.astype(np.intp) * 2 + cohort.s
    found: list[int] = np.bincount(cell, cohort.repeats, 4 * cohort.groups.n_groups).tolist()
    return found


def render(
    observed: ObservedResult,
    representation: RepresentationResult,
    others: Sequence[Any],
    *,
    declaration: str,
    tables: Sequence[TableOneResult] = (),
    fitted: Sequence[FitAndAuditResult] = (),
    elsewhere: Sequence[Any] = (),
    title: str | None = None,
    question: str | None = None,
    guideline: str | None = None,
    date: str | None = None,
) -> str:
    """The page as text, of no more than `MOST_PAGE` bytes: what does not fit is cut, and said.

    Parameters
    ----------
    observed : ObservedResult
    representation : RepresentationResult
    others : sequence of results
    declaration : str
    tables : sequence of TableOneResult
    fitted : sequence of FitAndAuditResult
    elsewhere : sequence of results
        Of other rows, which masked counts could be computed from: said to be left out.
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
    sections = _sections(
        observed, representation, others, declaration, guideline, tables, fitted, elsewhere
    )
    template = environment.get_template("report.html")
    told = {
        "title": label(title or f"Audit of {cohort.rule} for {cohort.outcome_name}, by {by}"),
        "question": label(
            question
            or f"Do the errors of {cohort.rule}, called for {cohort.outcome_name}, differ between "
            f"groups by {by}?"
        ),
        "meaning": meaning_sentence(others, elsewhere),
        "date": label(date) if date else "",
        "light": variables(LIGHT),
        "dark": variables(DARK),
        "scheme": "light dark",
    }
    page = template.render(sections=sections, **told)
    for margin in (2_000, 20_000, 200_000):  # sizes of blocks are known before markup only roughly
        over = len(page.encode()) - MOST_PAGE
        if over <= 0:
            break
        sections = within(sections, over + margin)
        page = template.render(sections=sections, **told)
    return page


def _sections(
    observed: ObservedResult,
    representation: RepresentationResult,
    others: Sequence[Any],
    declaration: str,
    guideline: str | None,
    tables: Sequence[TableOneResult],
    fitted: Sequence[FitAndAuditResult],
    elsewhere: Sequence[Any],
) -> list[Section]:
    treated = [r for r in others if isinstance(r, TreatedResult)]
    least = least_rows(observed.cohort)
    cohort = cohort_blocks(observed.cohort, others, next(iter(fitted), None))
    cohort += disclosure_blocks(observed.cohort, [observed, representation, *others])
    found: list[tuple[str, str, list[Block]]] = [
        # first, since whoever reads findings has to know of which rates they are
        ("meaning", "What “counterfactual” means here", [meaning_table(others)]),
        ("cohort", "Cohort", cohort),
        ("findings", "Key findings", _finding_blocks(representation, observed, others)),
    ]
    if fitted:
        found.append(("model", "Fitted model", [b for r in fitted for b in _fitted_blocks(r)]))
    if tables:
        found.append(("patients", "Patients by group", table_one_blocks(tables)))
    found += [
        ("representation", "Representation", representation_blocks(representation)),
        ("observed", "Observed rates", observed_blocks(observed)),
    ]
    apart = partial(other_rows, cohort=observed.cohort, fitted=bool(fitted))
    lost = [apart(r) for r in elsewhere if isinstance(r, TreatedResult)]
    if treated or lost:
        rates = counterfactual_blocks(treated) if treated else []
        found.append(("counterfactual", "Counterfactual rates", [*rates, *lost]))
    for kind, key, name, blocks in _MORE:
        mine = [b for r in others if isinstance(r, kind) for b in blocks(r)]
        mine += [apart(r) for r in elsewhere if isinstance(r, kind)]
        if mine:
            found.append((key, name, mine))
    found += [
        ("plots", "Plots", plot_blocks(observed, others)),
        ("diagnostics", "Diagnostics", diagnostics_blocks(representation, observed, others)),
    ]
    tests = [b for r in others if isinstance(r, EquivalenceResult) for b in equivalence_blocks(r)]
    tests += [apart(r) for r in elsewhere if isinstance(r, EquivalenceResult)]
    if tests:
        found.append(("equivalence", "Equivalence", tests))
    found.append(("methods", "Methods and references", methods(observed, others, guideline, least)))
    everything = [representation, observed, *others]
    found.append(("repeat", "How to repeat this", repeat_blocks(declaration, everything, fitted)))
    if guideline is not None:
        facts = Facts(
            treatment=bool(treated),
            dropped=any(r.cohort.dropped.n for r in [observed, *others]),
            performance=any(isinstance(r, PerformanceResult) for r in others),
            clusters=observed.cohort.cluster is not None,
            patients=bool(tables),
            fingerprint=not any(r.cohort.controlled for r in everything if hasattr(r, "cohort")),
        )
        found.append(("guideline", "Reporting guideline", [guideline_table(guideline, facts)]))
    return [Section(key, name, tuple(blocks)) for key, name, blocks in found]


_MORE: tuple[tuple[type, str, str, Callable[[Any], list[Block]]], ...] = (
    (GroupInterventionResult, "group", "Everybody in one group", group_intervention_blocks),
    (PerformanceResult, "score", "Score quality", performance_blocks),
    (InteractionResult, "interaction", "Interaction of attributes", interaction_blocks),
)


def _fitted_blocks(result: FitAndAuditResult) -> list[Block]:
    """How the model was fitted, and what to be careful about."""
    rows = tuple((label(name), label(said)) for name, said in result.facts if said)
    notes = tuple(label(note) for note in result.notes)
    fitted: list[Block] = [Bullets(rows)]
    return [*fitted, Bullets(notes, "warning")] if notes else fitted


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
