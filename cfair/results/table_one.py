"""Table 1 of a paper: who the patients of each group are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfair.options import check_option
from cfair.results import text
from cfair.results.printed import Printed
from cfair.results.report import notes_lines
from cfair.tables import Cell, Table, flat, shorten_all

#: Columns of a terminal that a print may take.
_TERMINAL = 100
#: Letters of a group's name above its column.
_LONGEST = 28


@dataclass(frozen=True, eq=False, repr=False)
class TableOneResult(Printed):
    """Patients by group: numbers of patients, means or medians, categories.

    Attributes
    ----------
    groups : tuple of str
        Columns; "Overall" is the first.
    facts : tuple of (str, str)
        Who was counted, for the print.
    notes : tuple of str
    disclosure : str
        What is masked, in a line; empty without ``suppress_below``.
    differences : bool
        Whether there is a column of standardised differences.
    """

    _cells: pd.DataFrame
    groups: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    disclosure: str = ""
    differences: bool = False

    @property
    def cells(self) -> pd.DataFrame:
        """A row per covariate, level and group.

        ``covariate, level, group``; ``statistic`` ("n", "n (%)", "mean (SD)", "median [IQR]" or
        "missing, n (%)"); ``count`` and ``share`` of those with a value, or ``centre, spread_low,
        spread_high`` (mean and SD twice, or median and quartiles); ``smd``, the largest
        standardised difference between two groups; ``note``, why a figure is masked.
        """
        return self._cells.drop(columns="below")

    @property
    def suppress_below(self) -> int | None:
        """Counts from 1 to one less are masked."""
        return int(self._cells["below"].max()) or None

    def to_frame(self) -> pd.DataFrame:
        """The same as `cells`."""
        return self.cells

    def _as_table(
        self,
        table: str | None,
        metrics: str | Sequence[str] | None,
        digits: int | None,
        labels: Mapping[Any, str] | None,
        order: Sequence[str] | None,
        caption: str | None,
    ) -> Table:
        check_option("table", table, (None, *self.table_names))
        if metrics is not None:
            raise ValueError("metrics= is for results with rates.")
        names = dict(labels or {})
        # the decimals of rates are too many for ages and per cents
        decimals = 1 if digits is None or digits == 3 else digits
        columns = list(self.groups)
        if order is not None:
            unknown = [name for name in order if name not in columns]
            if unknown:
                raise ValueError(f"order must be of the groups {columns}, not {order!r}.")
            rest = [g for g in columns[1:] if g not in order]
            columns = [columns[0], *(g for g in order if g != columns[0]), *rest]
        sections: list[tuple[str, list[list[Cell]]]] = []
        for covariate, part in self._cells.groupby("covariate", sort=False):
            rows = []
            for (level, statistic), of in part.groupby(["level", "statistic"], sort=False):
                at = of.set_index("group")
                label = str(names.get(level, level)) if level else str(statistic)
                row = [Cell(label), *(_cell(at.loc[g], decimals) for g in columns)]
                if self.differences:
                    row.append(Cell(text.number(float(of["smd"].iloc[0]), 2)))
                rows.append(row)
            kinds = [s for s in part["statistic"].unique() if not s.startswith("missing")]
            heading = str(names.get(covariate, covariate))
            # a heading says what all its rows are, and a single row says it itself
            what = f"{heading}, {kinds[0]}" if kinds[:1] == ["n (%)"] else heading
            sections.append((what if covariate else str(names.get("Patients", "Patients")), rows))
        header = [names.get("Characteristic", "Characteristic")]
        header += [names.get(g, g) for g in columns] + ["SMD"] * self.differences
        said = [*self.notes, *([f"Disclosure: {self.disclosure}"] if self.disclosure else [])]
        return Table(header, sections, caption or "", said)

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        table = self._as_table(None, None, None, None, None, None)
        rows = []
        for heading, lines in table.sections:
            if heading:
                rows.append([heading, *[""] * (len(table.header) - 1)])
            indent = "  " if heading else ""
            rows += [[indent + text.one_line(r[0].text), *(c.text for c in r[1:])] for r in lines]
        names = list(map(flat, table.header))
        header = shorten_all(names, _LONGEST)
        cut = [
            f"{short}: {name}" for short, name in zip(header, names, strict=True) if short != name
        ]
        facts = [*self.facts, ("disclosure", self.disclosure)]
        return text.page(
            "Patients by group (Table 1)",
            [
                text.facts(facts),
                *_stacked(header, rows),
                text.facts([("cut names", "; ".join(cut))]),
                notes_lines(self.notes),
            ],
        )


def _stacked(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """A table no wider than a terminal: columns beyond stand below, beside the same first one."""
    columns = np.arange(1, len(header))
    parts: list[list[str]] = []
    for n in range(1, len(columns) + 1):
        parts = [
            text.table(
                [header[0], *(header[j] for j in at)],
                [[row[0], *(row[j] for j in at)] for row in rows],
            )
            for at in np.array_split(columns, n)
        ]
        if max(text.width_of(line) for lines in parts for line in lines) <= _TERMINAL:
            break
    return parts


def _cell(row: Any, digits: int) -> Cell:
    """One figure, or how and why it is masked."""
    statistic = row["statistic"]
    if statistic in ("mean (SD)", "median [IQR]"):
        if np.isnan(row["centre"]):
            return Cell("–", row["note"] or "no values")
        if abs(row["spread_high"]) < 1:  # shares and scores
            digits += 1
        centre = f"{row['centre']:.{digits}f}"
        low, high = f"{row['spread_low']:.{digits}f}", f"{row['spread_high']:.{digits}f}"
        if np.isnan(row["spread_low"]):
            return Cell(f"{centre} (–)", "one value: no SD")
        spread = f"({low})" if statistic == "mean (SD)" else f"[{low}, {high}]"
        return Cell(f"{centre} {spread}")
    if pd.isna(row["count"]):
        return Cell("masked" if "reveal" in row["note"] else f"<{row['below']}")
    shown = f"{int(row['count']):,}"
    if statistic == "n" or np.isnan(row["share"]):
        return Cell(shown)
    return Cell(f"{shown} ({100 * row['share']:.{digits}f})")
