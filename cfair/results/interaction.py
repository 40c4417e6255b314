"""Interaction of attributes: contrasts with intervals, beside the flag "superadditive"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from cfair.cohort import Cohort
from cfair.disclosure import APART, rounding
from cfair.metrics.superadditivity import in_words
from cfair.options import check_option
from cfair.results import text
from cfair.results.printed import Printed
from cfair.results.report import cluster_fact, cohort_facts, notes_lines, plural

#: Comparisons printed; beyond it those told from 0 best come first and the frame has all.
MOST_ROWS = 40
#: Disagreements put into words.
MOST_SENTENCES = 5

_FLAG = (
    "The flag asks whether |gap|, both - neither, exceeds |gap a| + |gap b|, the marginal gaps, "
    "each over all rows of the two levels and so not a difference of the rates shown. It compares "
    "point estimates and also measures how the attributes go together: with no gaps at all it "
    "fires in up to 60% of simulated samples. The contrast r11 - r10 - r01 + r00 is 0 where the "
    "effects of the two attributes add up; more or less than additive: its own interval leaves out "
    "0. reference= and levels= choose what is compared with what."
)


@dataclass(frozen=True, eq=False, repr=False)
class InteractionResult(Printed):
    """Whether the effects of two attributes on a rate add up, for pairs of levels.

    Attributes
    ----------
    cohort : Cohort
        The rows that were used.
    family : str
        How p-values are adjusted, and over how many.
    reference : str
        What levels are compared with, in words.
    labels : dict of str to str
        Metrics as printed.
    level : float
        Confidence level.
    notes : tuple of str
    """

    cohort: Cohort
    _frame: pd.DataFrame
    family: str
    reference: str
    labels: Mapping[str, str]
    level: float = 0.95
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "labels": dict(self.labels)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__["labels"] = MappingProxyType(state["labels"])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(self.labels)

    @property
    def contrasts(self) -> pd.DataFrame:
        """A row per metric and pair of levels.

        ``metric``; ``attribute_a``, ``level_a``, ``reference_a`` and the same for ``b``; rates
        ``r11`` (both at their level), ``r10`` (a only), ``r01`` (b only), ``r00`` and the rows in
        their denominators ``n11`` to ``n00``; ``gap_both`` (r11 - r00) with ``gap_low`` and
        ``gap_high``, marginal gaps ``gap_a`` and ``gap_b``, the flag ``superadditive`` (missing
        where a gap is undefined); ``contrast``, ``se``, ``ci_low``, ``ci_high``, ``p_value``,
        ``p_adjusted``, ``additivity`` ("more than additive" or "less than additive" if the interval
        leaves out 0, which is not adjusted); ``ratio``, the multiplicative r11 r00 / (r10 r01),
        estimate only; ``disagreement`` of flag and contrast (by ``p_adjusted``); ``note``.
        """
        return self._frame.copy()

    @property
    def disagreements(self) -> pd.DataFrame:
        """Rows of `contrasts` in which flag and contrast disagree, with the ``sentence``."""
        frame = self._frame[self._frame["disagreement"] != ""].copy()
        frame["sentence"] = [self._sentence(row) for _, row in frame.iterrows()]
        return frame

    @property
    def disclosure(self) -> str:
        """What was rounded or masked, in a line; empty without disclosure control."""
        first = rounding(self.cohort.round_counts_to)
        if self.cohort.suppress_below is None:
            return first
        lost = int(self._frame["contrast"].isna().sum())
        return (f"{first}; " if first else "") + (
            f"counts below {self.cohort.suppress_below} masked, and what would reveal them; "
            f"{lost:,} of {plural(len(self._frame), 'contrast')} undefined; {APART}"
        )

    def to_frame(self) -> pd.DataFrame:
        """The same as `contrasts`."""
        return self.contrasts

    def plot(self, metrics: str | Sequence[str] | None = None, *, ax: Any = None) -> Any:
        """Contrasts with their intervals, a row per pair of levels; flagged ones are ringed.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Up to four; the first four by default.
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_interaction

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.metrics[:4])
        for metric in wanted:
            check_option("metric", metric, self.metrics)
        return plot_interaction(
            self._frame, metrics=wanted, labels=self.labels, level=self.level, ax=ax
        )

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        size = "" if self.cohort.weights is None else " on the effective size"
        facts = [
            *cohort_facts(self.cohort),
            ("reference", self.reference),
            (
                "intervals",
                f"{100 * self.level:g}%, MOVER from Wilson limits{size}{cluster_fact(self.cohort)}",
            ),
            ("p-values", self.family),
            ("disclosure", self.disclosure),
        ]
        return text.page(
            "Interaction of attributes: r11 - r10 - r01 + r00",
            [
                text.facts(facts),
                self._table(),
                self._disagreements(),
                notes_lines([*self.notes, *self._care(), _FLAG]),
            ],
        )

    def _table(self) -> list[str]:
        frame, hidden = self._frame, []
        if len(frame) > MOST_ROWS:
            order = np.argsort(frame["p_value"].fillna(2.0).to_numpy(), kind="stable")
            hidden = [
                f"... {len(frame) - MOST_ROWS:,} of {len(frame):,} contrasts not shown; shown are "
                "those with the smallest p-values. The frame .contrasts has all."
            ]
            frame = frame.iloc[np.sort(order[:MOST_ROWS])]
        lines: list[str] = []
        for (a, b), part in frame.groupby(["attribute_a", "attribute_b"], sort=False):
            if lines:
                lines.append("")
            rows = [row for _, row in part.iterrows()]
            header = ["metric", text.one_line(a), text.one_line(b)]
            rates = ["both", "a only", "b only", "neither", "least n", "gap", "gap a", "gap b"]
            told = ["contrast", "p adj.", "than additive"]
            lines += text.table([*header, *rates, "flag"], [self._rates(r) for r in rows], left=3)
            lines += ["", *text.table([*header, *told], [self._told(r) for r in rows], left=3)]
        return lines + hidden

    def _rates(self, row: Any) -> list[str]:
        """The four rates, and the gaps that the flag compares."""
        flag = "–" if pd.isna(row["superadditive"]) else ("flag" if row["superadditive"] else "")
        return [
            self.labels[row["metric"]],
            *self._levels(row),
            *(text.short(row[f"r{name}"]) for name in ("11", "10", "01", "00")),
            self._least(row),
            *(text.short(row[f"gap_{name}"]) for name in ("both", "a", "b")),
            flag,
        ]

    def _told(self, row: Any) -> list[str]:
        """The contrast, on a line of its own so that tables stay narrow."""
        return [
            self.labels[row["metric"]],
            *self._levels(row),
            text.estimate(row["contrast"], row["ci_low"], row["ci_high"]),
            self._adjusted(row).removeprefix("= ").replace("< ", "<"),
            row["additivity"].removesuffix(" than additive"),
        ]

    def _least(self, row: Any) -> str:
        """Rows of the smallest of the four cells."""
        sizes = [row[f"n{name}"] for name in ("11", "10", "01", "00")]
        return "masked" if any(map(pd.isna, sizes)) else text.count(min(sizes))

    def _adjusted(self, row: Any) -> str:
        """The adjusted p-value, with as many digits as show on which side of the level it is."""
        p, limit = row["p_adjusted"], 1 - self.level
        if np.isnan(p):
            return "–"
        digits = next((d for d in (3, 4, 5) if (round(p, d) < limit) == (p < limit)), 6)
        return "< .001" if p < 0.001 else f"= {text.short(p, digits)}"

    def _levels(self, row: Any) -> list[str]:
        """Levels, with their references where these are not the same throughout."""
        pairs = [(row[f"level_{w}"], row[f"reference_{w}"]) for w in "ab"]
        if self.reference != "all pairs of levels":
            return [text.one_line(level, 20) for level, _ in pairs]
        return [
            f"{text.one_line(level, 16)} v {text.one_line(other, 16)}" for level, other in pairs
        ]

    def _sentence(self, row: Any) -> str:
        shown = text.estimate(row["contrast"], row["ci_low"], row["ci_high"])
        said = in_words(row["disagreement"], shown, self._alone(row))
        versus = f" (against {row['reference_a']}, {row['reference_b']})"
        p = f" (p adj. {self._adjusted(row)})"
        return f"{self._whose(row)}{versus}: {said}{p}"

    def _whose(self, row: Any) -> str:
        return f"{self.labels[row['metric']]}, {row['level_a']} & {row['level_b']}"

    def _alone(self, row: Any) -> str:
        """Said of a contrast that only its own p-value tells from 0."""
        return " after adjustment" if row["p_value"] < 1 - self.level else ""

    def _disagreements(self) -> list[str]:
        frame = self._frame
        n = int((frame["disagreement"] != "").sum())
        if not frame["p_value"].notna().any():
            return ["no contrast is defined"]
        if n == 0:
            return ["flag and contrast agree everywhere"]
        lines = [
            f"flag and contrast (p adj.) disagree in {n} of {plural(len(frame), 'comparison')}:"
        ]
        alike: dict[str, list[str]] = {}
        shown = frame[frame["disagreement"] != ""].sort_values("p_value", kind="stable")
        for _, row in shown.head(MOST_SENTENCES).iterrows():
            said = in_words(row["disagreement"], adjusted=self._alone(row))
            versus = f" v {row['reference_a']}, {row['reference_b']}"
            which = versus * (self.reference == "all pairs of levels")
            p = self._adjusted(row).removeprefix("= ")
            alike.setdefault(f"{said} (p adj.)", []).append(f"{self._whose(row)}{which} ({p})")
        for said, whose in alike.items():
            lines += text.facts([("-", f"{said}: {'; '.join(whose)}")], indent=2)
        more = n - MOST_SENTENCES
        return lines + [f"  ... {more} more: .disagreements"] * (more > 0)

    def _care(self) -> list[str]:
        frame, said = self._frame, []
        undefined = int(frame["contrast"].isna().sum())
        if undefined:
            first = frame[frame["contrast"].isna()].iloc[0]
            which = f"{self.labels[first['metric']]} of {first['level_a']} & {first['level_b']}"
            said.append(
                f"{plural(undefined, 'contrast')} undefined, such as {which}: {first['note']}."
            )
        care = frame["note"].str.contains("read with care") & frame["contrast"].notna()
        if care.any():
            said.append(
                f"{plural(int(care.sum()), 'contrast')} with a cell of effective size below 20: "
                "read with care; .contrasts has which in its notes."
            )
        return said
