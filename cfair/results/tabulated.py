"""What every result can be written as: a table for a paper, in HTML, LaTeX, Markdown or Excel."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfair.options import check_option
from cfair.results import text
from cfair.results.gaps import (
    BRACKETS,
    COLUMNS,
    EQUALIZED_ODDS,
    RATIO,
    odds_words,
    p_heading,
    severity_words,
)
from cfair.tables import (
    Cell,
    Table,
    interval,
    of_frame,
    to_excel,
    to_gt,
    to_latex,
    to_markdown,
)

if TYPE_CHECKING:
    from cfair.results.rates import RatesResult

#: Frames that are no tables: matrices, replicates, and values of every row.
_NO_TABLES = frozenset(
    ("covariance", "null_draws", "boot_draws", "mu", "scores", "memberships", "to_frame")
)
#: Frames of curves, which disclosure control refuses.
_CURVES = ("net_benefit",)
#: Methods that give a table without being asked for anything.
_METHODS = ("contrasts", "gaps", "test_equal", "worst", "net_benefit")
#: What a result shows unless told otherwise: the first of these that it has.
_FIRST = ("rates", "pairs", "contrasts", "cells")
#: Columns whose names are no words.
_COLUMNS = {"estimate_sr": "single robust estimate", "estimate_dr": "doubly robust estimate"}
#: Counts in the order of a table.
_COUNTS = ("n", "untreated", "events")


class Tabulated:
    """A result whose frames can be written as tables."""

    @property
    def table_names(self) -> tuple[str, ...]:
        """Names of the tables that `to_gt`, `to_latex`, `to_markdown` and `to_excel` can write."""
        found = []
        masked = getattr(getattr(self, "cohort", None), "suppress_below", None) is not None
        for name in dir(type(self)):
            if name.startswith("_") or name in _NO_TABLES or (masked and name in _CURVES):
                continue
            member = inspect.getattr_static(type(self), name)
            getter = member.fget if isinstance(member, property) else None
            if getter is None and name in _METHODS and inspect.isfunction(member):
                getter = member
            if getter is not None and getter.__annotations__.get("return") == "pd.DataFrame":
                found.append(name)
        first = [name for name in _FIRST if name in found]
        return (*first, *(name for name in found if name not in first))

    def to_gt(
        self,
        table: str | None = None,
        *,
        metrics: str | Sequence[str] | None = None,
        digits: int = 3,
        labels: Mapping[Any, str] | None = None,
        order: Sequence[str] | None = None,
        caption: str | None = None,
    ) -> Any:
        """A table of great_tables: shown in a notebook, and HTML by ``as_raw_html()``.

        Parameters
        ----------
        table : str, optional
            One of `table_names`. By default the table of a paper: rates, a row per group.
        metrics : str or sequence of str, optional
            Columns of the table of rates; those that are compared by default.
        digits : int, default 3
            From 1 to 15. P-values have at least three, and are printed as <0.001 below.
        labels : mapping of str to str, optional
            Other names for groups, levels, metrics and columns.
        order : sequence of str, optional
            Groups that come first, by name, in this order.
        caption : str, optional

        Returns
        -------
        great_tables.GT

        Raises
        ------
        DataError
            If great-tables is not installed.
        ValueError
            If there is no such table, metric or group.
        """
        return to_gt(self._as_table(table, metrics, digits, labels, order, caption))

    def to_latex(
        self,
        table: str | None = None,
        *,
        metrics: str | Sequence[str] | None = None,
        digits: int = 3,
        labels: Mapping[Any, str] | None = None,
        order: Sequence[str] | None = None,
        caption: str | None = None,
        label: str = "",
    ) -> str:
        r"""A table in LaTeX, for the package booktabs.

        Parameters
        ----------
        table, metrics, digits, labels, order, caption
            As for `to_gt`.
        label : str
            For ``\ref``.

        Returns
        -------
        str
        """
        return to_latex(self._as_table(table, metrics, digits, labels, order, caption), label)

    def to_markdown(
        self,
        table: str | None = None,
        *,
        metrics: str | Sequence[str] | None = None,
        digits: int = 3,
        labels: Mapping[Any, str] | None = None,
        order: Sequence[str] | None = None,
        caption: str | None = None,
    ) -> str:
        """A table in Markdown.

        Parameters
        ----------
        table, metrics, digits, labels, order, caption
            As for `to_gt`.

        Returns
        -------
        str

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> print(audit.observed().to_markdown(metrics="fpr", digits=2))
        | Group   |     n | Events |                 FPR |
        |:--------|------:|-------:|--------------------:|
        | All     | 5,000 |  1,087 | 0.26 (0.24 to 0.27) |
        | **sex** |       |        |                     |
        | F       | 2,670 |    626 | 0.26 (0.24 to 0.28) |
        | M       | 2,330 |    461 | 0.25 (0.23 to 0.27) |
        <BLANKLINE>
        Estimate (low to high): 95%, Wilson
        """
        return to_markdown(self._as_table(table, metrics, digits, labels, order, caption))

    def to_excel(
        self,
        path: str | Path,
        tables: str | Sequence[str] | None = None,
        *,
        digits: int = 3,
        labels: Mapping[Any, str] | None = None,
        order: Sequence[str] | None = None,
        caption: str | None = None,
    ) -> Path:
        """Tables in a workbook, a sheet each: first the table of a paper, then frames in full.

        Parameters
        ----------
        path : path
        tables : str or sequence of str, optional
            Of `table_names`; all by default.
        digits, labels, order, caption
            Of the first sheet, as for `to_gt`. The other sheets have all digits.

        Returns
        -------
        pathlib.Path
        """
        wanted = [tables] if isinstance(tables, str) else list(tables or self.table_names)
        for name in wanted:
            check_option("tables", name, self.table_names)
        sheets: dict[str, Table | pd.DataFrame] = {
            "table": self._as_table(wanted[0], None, digits, labels, order, caption)
        }
        sheets |= {name: self._frame_of(name) for name in wanted}
        notes = [*getattr(self, "notes", ()), *_policy(self)]
        return to_excel(sheets, path, notes)

    def _frame_of(self, name: str) -> pd.DataFrame:
        found = getattr(self, name)
        frame: pd.DataFrame = found() if callable(found) else found
        return frame

    def _as_table(
        self,
        table: str | None,
        metrics: str | Sequence[str] | None,
        digits: int,
        labels: Mapping[Any, str] | None,
        order: Sequence[str] | None,
        caption: str | None,
    ) -> Table:
        """The table that was asked for."""
        if not self.table_names:
            raise TypeError(f"{type(self).__name__} has no table.")
        name = self.table_names[0] if table is None else table
        check_option("table", name, self.table_names)
        if not isinstance(digits, int) or isinstance(digits, bool) or not 1 <= digits <= 15:
            raise ValueError(
                f"digits must be a whole number from 1 to 15, not {digits!r}: without any, rates "
                "would be 0 or 1."
            )
        names = dict(labels or {})
        if name == "rates" and hasattr(self, "estimates"):
            return rates_table(self, metrics, digits, names, order, caption)  # type: ignore[arg-type]
        if metrics is not None:
            raise ValueError('metrics= is for table="rates"; other tables have all of theirs.')
        frame = self._frame_of(name)
        if order is not None:
            frame = _in_order(frame, order)
        headed, explained = _COLUMNS, _explained(frame)
        of = {**_metric_names(self), **names}
        if set(COLUMNS) <= set(frame):
            headed = {**_COLUMNS, "ratio": RATIO, "p_adjusted": p_heading(frame)}
            frame = _gaps_as_read(frame, of)
            if frame["severity"].str.startswith("(").any():
                explained.append(f"Severity: {BRACKETS}")
        elif "metric" in frame:
            frame = frame.assign(metric=[of.get(m, m) for m in frame["metric"]])
        attributes = getattr(getattr(self, "cohort", None), "groups", None)
        return of_frame(
            frame,
            digits=digits,
            labels={**headed, **names},
            caption=caption or "",
            notes=[*explained, *_policy(self)],
            attributes=getattr(attributes, "attributes", ()),
        )


def _metric_names(result: Any) -> dict[str, str]:
    """What the metrics of a result are called in its tables."""
    found = {EQUALIZED_ODDS: "TPR or FPR"}
    if hasattr(result, "estimates") and hasattr(result, "rows"):
        found |= {e.metric: r.label for e, r in zip(result.estimates, result.rows, strict=True)}
    else:
        found |= getattr(result, "labels", {})
    return {metric: _capital(name) for metric, name in found.items()}


def _policy(result: Any) -> list[str]:
    said = getattr(result, "disclosure", "")
    return [f"Disclosure: {said}"] if said else []


#: What an effective size is, which can be read as a count of patients and is none.
EFFECTIVE = (
    "n effective: how many independent patients, counted without weights, would give this standard "
    "error. It is fewer than the patients where weights are uneven or patients of a cluster alike, "
    "and can be more, where a model adds what covariates tell of treatment or outcome."
)


def _explained(frame: pd.DataFrame) -> list[str]:
    """What a column means that is easily misread."""
    return [EFFECTIVE] * ("n_effective" in frame)


def _gaps_as_read(frame: pd.DataFrame, names: Mapping[Any, str]) -> pd.DataFrame:
    """Gaps as they are printed: severity in brackets, and of which rate equalized odds speak."""
    records = frame.to_dict("records")
    return frame.assign(
        metric=[f"{names.get(r['metric'], r['metric'])}{odds_words(r)}" for r in records],
        severity=[severity_words(r, names.get(r["severity"])) for r in records],
    )


def _in_order(frame: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """Rows of the groups named first, in their order; the others follow."""
    if "group" not in frame:
        raise ValueError("order= is for tables with groups, and this one has none.")
    _check_order(order, list(frame["group"].astype(str)))
    place = {name: k for k, name in enumerate(order)}
    at = frame["group"].astype(str).map(lambda g: place.get(g, len(place)))
    by = [frame["metric"].map({m: k for k, m in enumerate(frame["metric"].unique())})] * (
        "metric" in frame
    )
    keys = pd.concat([*by, at], axis=1, keys=range(len(by) + 1))
    return frame.loc[keys.sort_values(list(keys.columns), kind="stable").index]


def _check_order(order: Sequence[str], names: Sequence[str]) -> None:
    unknown = [name for name in order if name not in names]
    if unknown or isinstance(order, str):
        shown = ", ".join(map(repr, dict.fromkeys(names)))
        raise ValueError(f"order must be of the groups {shown}, not {order!r}.")


def rates_table(
    result: RatesResult,
    metrics: str | Sequence[str] | None,
    digits: int,
    labels: Mapping[Any, str],
    order: Sequence[str] | None,
    caption: str | None,
) -> Table:
    """The table of a paper: a row per group, single attributes above the intersections.

    Parameters
    ----------
    result : RatesResult
    metrics : str or sequence of str, optional
    digits : int
    labels : mapping of str to str
    order : sequence of str, optional
    caption : str, optional

    Returns
    -------
    Table
    """
    if metrics is None:
        metrics = result.compared
    wanted = [metrics] if isinstance(metrics, str) else list(metrics)
    if not wanted:
        raise ValueError("metrics must name at least one metric, or be left out.")
    for metric in wanted:
        result.estimates_of(metric)
    groups = result.cohort.groups
    several = len(groups.attributes) > 1
    parts: list[tuple[str, pd.DataFrame, list[str], int]] = []
    single = result.marginals
    named = [str(labels.get(a, a)) for a in groups.attributes]
    if result.has_margins:
        first = groups.n_groups
        parts.append(("", result.overall, ["All"], first + len(groups.margins)))
        for attribute, levels in zip(groups.attributes, groups.level_names, strict=True):
            of = single[single["attribute"] == attribute]
            parts.append((labels.get(attribute, attribute), of, list(levels), first))
            first += len(levels)
    if several or not result.has_margins:
        whole = " x ".join(named)
        parts.append((whole, result.rates, list(groups.names), 0))
    counts = [c for c in _COUNTS if c in result.counts]
    if order is not None:
        _check_order(order, [name for part in parts for name in part[2]])
    place = {name: k for k, name in enumerate(order or ())}
    sections = []
    for heading, frame, names, first in parts:
        by_metric = {m: f.reset_index(drop=True) for m, f in frame.groupby("metric", sort=False)}
        chosen = sorted(range(len(names)), key=lambda k: place.get(names[k], len(place)))
        rows = []
        for k in chosen:
            row = [Cell(_label(names[k], labels))]
            row += [_count(result.counts[c][first + k]) for c in counts]
            for metric in wanted:
                one = by_metric[metric].iloc[k]
                shown = interval(one["estimate"], one["ci_low"], one["ci_high"], digits)
                row.append(Cell(shown, str(one["note"]) if shown == "–" else ""))
            rows.append(row)
        sections.append((heading, rows))
    names_of = {e.metric: r.label for e, r in zip(result.estimates, result.rows, strict=True)}
    header = [labels.get("group", "Group")]
    header += [labels.get(c, c if c == "n" else c.capitalize()) for c in counts]
    header += [labels.get(m, _capital(names_of[m])) for m in wanted]
    notes = [_intervals(result), *_policy(result)]
    return Table(header, sections, caption or "", notes, attributes=named)


def _count(value: float) -> Cell:
    """A count, which is a number where it is not masked."""
    known = not np.isnan(value) and value >= 0
    return Cell(text.count(value), value=int(value) if known else None)


def _capital(label: str) -> str:
    """A label with a capital, unless it is an abbreviation."""
    return label[:1].upper() + label[1:] if label.split()[0].islower() else label


def _label(name: str, labels: Mapping[Any, str]) -> str:
    """A group by its own label, or by those of its levels."""
    if name in labels or " & " not in name:
        return str(labels.get(name, name))
    return " & ".join(str(labels.get(part, part)) for part in name.split(" & "))


def _intervals(result: RatesResult) -> str:
    """What the intervals are, as the print says it."""
    facts = getattr(result, "_facts", None)
    said = dict(facts()).get("intervals", "") if callable(facts) else ""
    if not said and hasattr(result, "_intervals"):
        said = result._intervals()
    said = said or f"{100 * result.level:g}%, {result.interval}"
    return f"Estimate (low to high): {said}"
