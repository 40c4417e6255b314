"""Who is in the data: a result with the cells, the single attributes and their association."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfair.disclosure import APART, count_column, is_masked, policy, rounding
from cfair.errors import DataError
from cfair.frame import show_some
from cfair.metrics.representation import (
    IMBALANCED,
    MUCH_MISSING,
    UNDER_REPRESENTED,
    RepresentationTables,
)
from cfair.results import text
from cfair.results.printed import Printed
from cfair.results.report import MAX_GROUPS, MAX_MARGINS, notes_lines, plural

#: Cells named in a note.
NAMED = 8


def _as_shown(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with its masked counts missing."""
    shown = frame.copy()
    for name in ("n", "events", "non_events", "missing"):
        if name in shown and shown[name].dtype.kind == "f":
            shown[name] = count_column(shown[name])
    return shown


def _so(flags: pd.Series) -> pd.Series:
    """A flag, which is not so where it is masked."""
    return flags.astype("boolean").fillna(False).astype(bool)


@dataclass(frozen=True, eq=False, repr=False)
class RepresentationResult(Printed):
    """Counts and shares of attributes and their intersections.

    Attributes
    ----------
    tables : RepresentationTables
    facts : tuple of (str, str)
        What the rows are, for the print.
    notes : tuple of str
    suppress_below : int, optional
        Counts from 1 to one less are masked.
    round_counts_to : int, optional
        Counts were rounded to multiples of it.
    """

    tables: RepresentationTables
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    suppress_below: int | None = None
    round_counts_to: int | None = None

    @property
    def disclosure(self) -> str:
        """What was rounded or masked, in a line; empty without disclosure control."""
        of_audit = self.facts[0][0] == "cohort"
        by = ("group, outcome and call",) if of_audit else ("cell and outcome",)
        first = rounding(self.round_counts_to, *by)
        if self.suppress_below is None:
            return first
        frames = [self.tables.cells, self.tables.levels]
        if len(self.tables.groups.attributes) == 1:
            frames = frames[:1]  # the levels are the cells
        names = [c for c in ("n", "events", "non_events") if c in frames[0]]
        counts = {c: np.concatenate([f[c].to_numpy(float) for f in frames]) for c in names}
        return "; ".join(filter(None, [first, policy(self.suppress_below, counts), APART]))

    @property
    def cells(self) -> pd.DataFrame:
        """A row per intersection, the empty ones too; see `cfair.metrics.representation`.

        ``group`` and a column per attribute, ``n``, ``share, ci_low, ci_high``, ``width`` of the
        interval that the rate in question would have there, ``expected``, ``expected_share``,
        ``ratio``, with weights ``weighted_share``, with an outcome ``events, non_events``;
        ``absent, below_floor, below_min_count, below_disclosure, note``. What is
        below is missing where ``n`` is masked, whatever the limit.
        """
        return _as_shown(self.tables.cells)

    @property
    def levels(self) -> pd.DataFrame:
        """A row per attribute and level, over the rows that have this attribute.

        ``attribute, level, n, share, ci_low, ci_high, width``, with an outcome ``events,
        non_events``; ``under_represented`` (share below 0.05) and ``small_group``.
        """
        return _as_shown(self.tables.levels)

    @property
    def attributes(self) -> pd.DataFrame:
        """A row per attribute.

        ``attribute, n_levels``; ``n`` with a value, ``missing`` (also where missing values are a
        level), ``missing_share`` (of all rows),
        ``much_missing`` (0.05 or more); ``min_share, max_share``, ``imbalance_ratio`` of the two,
        ``imbalanced`` (3 or more); ``entropy``, and ``entropy_ratio``, 1 where all levels are
        equally frequent.
        """
        return _as_shown(self.tables.attributes)

    @property
    def associations(self) -> pd.DataFrame:
        """A row per pair of attributes: test of independence and strength.

        ``attribute_a, attribute_b, n``; ``chi2, df, p_value`` of the chi-square test, with Yates'
        correction in a two by two table; ``cramers_v``, without it; ``low_expected``, the share of
        cells that expect fewer than 5 rows; ``note``.
        """
        return _as_shown(self.tables.associations)

    def to_frame(self) -> pd.DataFrame:
        """The same as `cells`."""
        return self.cells

    def to_dict(self) -> dict[str, Any]:
        """All tables as lists of plain rows, with the thresholds.

        Returns
        -------
        dict
            Missing values are None.
        """
        tables = {
            name: json.loads(
                getattr(self, name).to_json(
                    orient="records", date_format="iso", default_handler=str
                )
            )
            for name in ("cells", "levels", "attributes", "associations")
        }
        whole = {"n_read": self.tables.n_read, "n_known": self.tables.n_known}
        counts = {name: None if is_masked(n) else int(n) for name, n in whole.items()}
        thresholds = asdict(self.tables.thresholds)
        thresholds["disclosure"] = list(self.tables.thresholds.disclosure)
        return {**counts, "thresholds": thresholds, **tables}

    def to_json(self) -> str:
        """The same as `to_dict`, as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def plot(self, *, ax: Any = None) -> Any:
        """Mosaic: areas are shares; small cells are hatched and listed, absent ones listed.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_mosaic

        if is_masked(self.tables.cells["n"]).any():
            raise DataError(
                "the areas of a mosaic are the counts, and some are masked by suppress_below=. "
                "Merge levels, so that no cell is small, or draw it without suppress_below=."
            )
        groups, t = self.tables.groups, self.tables.thresholds
        return plot_mosaic(
            self.tables.cells["n"].to_numpy().reshape(groups.shape),
            groups.level_names,
            groups.attributes,
            min_count=t.min_count,
            disclosure=max(t.disclosure, default=0),
            ax=ax,
        )

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        t = self.tables.thresholds
        whole = "rows with all attributes" if t.denominator == "known" else "all rows"
        facts = [
            *self.facts,
            ("disclosure", self.disclosure),
            (
                "shares",
                f"of {whole}, {100 * t.level:g}% Wilson intervals; expected: rows if the "
                "attributes were independent",
            ),
            (
                "width",
                f"of the {100 * t.level:g}% interval that a rate of {t.rate:g} would have: what a "
                "cell can say",
            ),
        ]
        below = ", ".join(f"<{limit}" for limit in (t.min_count, *t.disclosure))
        facts.append(
            (
                "marks",
                f"{below}: rows; <{100 * t.floor:g}%: share of a cell; "
                f"<{100 * UNDER_REPRESENTED:g}%: share of a level of a single attribute",
            )
        )
        names = " x ".join(text.one_line(a) for a in self.tables.groups.attributes)
        return text.page(
            f"Representation of {names}",
            [
                text.facts(facts),
                self._cells(),
                self._levels(),
                self._attributes(),
                self._associations(),
                notes_lines([*self.notes, *self._remarks()]),
            ],
        )

    @property
    def _has_events(self) -> bool:
        return "events" in self.tables.cells

    def _header(self) -> list[str]:
        outcome = ["events", "non-events"] if self._has_events else []
        return ["n", "share", "expected", "ratio", *outcome, "width", ""]

    def _row(self, row: Any, *, cell: bool) -> list[str]:
        expected = ["", ""]
        if cell:
            one = "–" if np.isnan(row["expected"]) else f"{row['expected']:,.1f}"
            expected = [one, text.number(row["ratio"], 2)]
        outcome = ["events", "non_events"] if self._has_events else []
        return [
            text.count(row["n"]),
            text.estimate(row["share"], row["ci_low"], row["ci_high"]),
            *expected,
            *(text.count(row[name]) for name in outcome),
            text.short(row["width"], 2),
            self._short_note(row, cell),
        ]

    def _short_note(self, row: Any, cell: bool) -> str:
        """What is small, in a word."""
        t = self.tables.thresholds
        n = row["n"]
        if is_masked(n):
            return ""
        if n == 0:
            return "absent"
        said = [f"<{limit}" for limit in (t.min_count, *t.disclosure) if n < limit][-1:]
        if cell and row["share"] < t.floor:
            said.append(f"<{100 * t.floor:g}%")
        if not cell and row["share"] < UNDER_REPRESENTED:
            said.append(f"<{100 * UNDER_REPRESENTED:g}%")
        return " ".join(said)

    def _cells(self) -> list[str]:
        frame, groups = self.tables.cells, self.tables.groups
        chosen, hidden = np.arange(len(frame)), []
        if len(frame) > MAX_GROUPS:
            gap = (frame["n"] - frame["expected"]) / np.sqrt(frame["expected"])
            chosen = np.argsort(gap.to_numpy(), kind="stable")[:MAX_GROUPS]
            hidden = [
                f"... {len(frame) - MAX_GROUPS:,} of {len(frame):,} cells not shown; shown are "
                "those that fall short of their expected rows most. The frame .cells has all."
            ]
        rows = []
        for k in chosen:
            at = [
                names[int(c)]
                for names, c in zip(groups.level_names, groups.level_codes[:, k], strict=True)
            ]
            rows.append([*map(text.one_line, at), *self._row(frame.iloc[k], cell=True)])
        names = [text.one_line(a) for a in groups.attributes]
        return text.table([*names, *self._header()], rows, left=len(names)) + hidden

    def _levels(self) -> list[str]:
        if len(self.tables.groups.attributes) == 1:
            return []
        frame = self.tables.levels
        rows = [
            [text.one_line(f"{row['attribute']}: {row['level']}"), *self._row(row, cell=False)]
            for _, row in frame.head(MAX_MARGINS).iterrows()
        ]
        more = len(frame) - MAX_MARGINS
        hidden = [f"... {plural(more, 'level')} not shown. The frame .levels has all."] * (more > 0)
        header = self._header()
        header[2:4] = ["", ""]
        return text.table(["single attributes", *header], rows) + hidden

    def _attributes(self) -> list[str]:
        rows = [
            [
                text.one_line(row["attribute"]),
                text.count(row["n_levels"]),
                text.share(row["missing"], self.tables.n_read),
                text.number(row["min_share"]),
                "–" if np.isnan(row["imbalance_ratio"]) else f"{row['imbalance_ratio']:,.1f}",
                text.number(row["entropy_ratio"]),
            ]
            for _, row in self.tables.attributes.iterrows()
        ]
        header = ["attribute", "levels", "missing", "least share", "largest/least", "entropy ratio"]
        return text.table(header, rows)

    def _associations(self) -> list[str]:
        lines = []
        for _, row in self.tables.associations.iterrows():
            pair = f"{text.one_line(row['attribute_a'])} x {text.one_line(row['attribute_b'])}"
            if np.isnan(row["chi2"]):
                lines.append(f"{pair}: {row['note']}")
                continue
            note = f"; {row['note']}" if row["note"] else ""
            lines.append(
                f"{pair}: Cramer's V = {row['cramers_v']:.3f}, chi2({row['df']}) = "
                f"{row['chi2']:.1f}, {text.p_value(row['p_value'])}{note}"
            )
        return [
            line
            for k, found in enumerate(lines[:12])
            for line in text.facts([("associated?" if k == 0 else " ", found)])
        ] + [f"... {len(lines) - 12} more in .associations"] * (len(lines) > 12)

    def _remarks(self) -> list[str]:
        cells, t = self.tables.cells, self.tables.thresholds
        said = []
        there = ~cells["absent"] & ~is_masked(cells["n"])
        least = min(t.disclosure, default=0)
        for which, what in (
            (cells["absent"], "absent"),
            (_so(cells["below_floor"]) & there, f"below {100 * t.floor:g}% of the rows"),
            (
                (cells["n"] < least) & there,
                f"with fewer than {least} rows, which may disclose who it is",
            ),
        ):
            if which.any():
                names = show_some([text.one_line(g, 40) for g in cells.loc[which, "group"]], NAMED)
                said.append(f"{plural(int(which.sum()), 'cell')} {what}: {names}.")
        few = _so(cells["below_min_count"]) & there
        if few.any():
            said.append(
                f"{int(few.sum())} of {plural(len(cells), 'cell')} with fewer than {t.min_count} "
                "rows; their rates have the intervals that the width shows."
            )
        for _, row in self.tables.attributes.iterrows():
            if not np.isnan(row["missing_share"]) and row["much_missing"]:
                said.append(
                    f"{row['attribute']}: {100 * row['missing_share']:.1f}% missing "
                    f"({100 * MUCH_MISSING:g}% or more)."
                )
            if not np.isnan(row["imbalance_ratio"]) and row["imbalanced"]:
                said.append(
                    f"{row['attribute']}: the largest level is {row['imbalance_ratio']:.1f} times "
                    f"the least ({IMBALANCED:g} or more)."
                )
        return said
