"""Equivalence of rates between groups: what the data say of each pair, and of all together.

What is asked is in :mod:`cfair.results.equivalence_question`, the tests of every pair in
:mod:`cfair.results.equivalence_pairs`, the print in :mod:`cfair.results.equivalence_text`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from cfair.cohort import Cohort
from cfair.disclosure import APART, rounding
from cfair.errors import SmallGroupWarning, warn
from cfair.results.contrasts import Compared
from cfair.results.equivalence_pairs import VERDICTS, judged
from cfair.results.equivalence_question import Question, named_metrics
from cfair.results.equivalence_text import equivalence_page, notes_of
from cfair.results.printed import Printed
from cfair.results.report import plural


@dataclass(frozen=True, eq=False, repr=False)
class EquivalenceResult(Printed):
    """Whether rates of two groups are equivalent, pair by pair, and all together.

    Attributes
    ----------
    cohort : Cohort
        The rows that were used.
    question : Question
        Contrast, margins, alpha.
    labels : dict of str to str
        Metrics as printed.
    about : str
        What kind of rates these are.
    reference : str
        What groups are compared with, in words.
    family : str
        How p-values are adjusted, and over how many.
    notes : tuple of str
    """

    cohort: Cohort
    _frame: pd.DataFrame
    question: Question
    labels: Mapping[str, str]
    about: str
    reference: str
    family: str
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
        return tuple(self.question.margins)

    @property
    def level(self) -> float:
        """Confidence level of the intervals, 1 - 2 alpha."""
        return 1 - 2 * self.question.alpha

    @property
    def pairs(self) -> pd.DataFrame:
        """A row per metric and pair.

        ``metric``; ``group`` and ``reference``; ``contrast``, its ``estimate`` (group to
        reference), ``ci_low`` and ``ci_high`` of level 1 - 2 alpha; ``margin_low, margin_high``;
        ``p_lower`` and ``p_upper``, the two one-sided p-values; ``p_value``, the larger;
        ``p_adjusted`` over the ``family``; ``p_beyond`` of the test that the contrast is outside
        the margin; the ``verdict``; ``expected_cell``, the smallest of the table at the common
        rate, from effective sizes where there are weights or models, and whether it meets the
        ``rule_of_five``; ``method`` of the test; ``rate, rate_reference``; ``n, n_reference``, rows
        in the denominators; ``events, events_reference``, rows in the numerators, missing where
        rates are not counts; ``note``.
        """
        return self._frame.copy()

    def to_frame(self) -> pd.DataFrame:
        """The same as `pairs`."""
        return self.pairs

    @property
    def overall(self) -> pd.DataFrame:
        """A row per metric: whether all pairs are equivalent.

        By the intersection-union principle the claim that all are holds at alpha when each test
        rejects at alpha, with no correction: its ``p_value`` is the largest of the pairs', and it
        is undefined if one of them is. The claim that some are different does need one:
        ``p_beyond`` is the smallest of the pairs', adjusted by Holm over the metric's pairs. The
        other columns count verdicts.
        """
        rows = []
        for metric, part in self._frame.groupby("metric", sort=False):
            counts = part["verdict"].value_counts()
            undefined = part["p_value"].isna().any()
            p = np.nan if undefined else part["p_value"].max()
            found = {name.replace(" ", "_"): int(counts.get(name, 0)) for name in VERDICTS}
            beyond = part["p_beyond"].min() * part["p_beyond"].notna().sum()  # Holm's first step
            some = "some different" if beyond < self.question.alpha else "not shown"
            rows.append(
                {
                    "metric": metric,
                    "pairs": len(part),
                    **found,
                    "p_value": p,
                    "p_beyond": min(beyond, 1.0),
                    "verdict": "all equivalent" if p < self.question.alpha else some,
                }
            )
        return pd.DataFrame(rows)

    def plot(self, metrics: str | Sequence[str] | None = None, *, ax: Any = None) -> Any:
        """Intervals before the shaded margin, a row per pair.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            All by default.
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_equivalence

        wanted = self.metrics if metrics is None else metrics
        chosen = named_metrics(wanted, self.metrics)
        return plot_equivalence(
            self._frame[self._frame["metric"].isin(chosen)],
            labels=self.labels,
            level=self.level,
            about=self.about,
            ax=ax,
        )

    @property
    def disclosure(self) -> str:
        """What was rounded or masked, in a line; empty without disclosure control."""
        first, below = rounding(self.cohort.round_counts_to), self.cohort.suppress_below
        if below is None:
            return first
        lost = int(self._frame["estimate"].isna().sum())
        masked = f"counts below {below} masked, and what would reveal them; "
        masked += f"{lost:,} of {plural(len(self._frame), 'pair')} without an estimate"
        return "; ".join(filter(None, [first, masked, APART]))

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        return equivalence_page(self)


def equivalence_result(
    cohort: Cohort,
    frame: pd.DataFrame,
    question: Question,
    labels: Mapping[str, str],
    about: str,
    compared: Compared,
) -> EquivalenceResult:
    """Judge all pairs, warn of small cells, and keep the record.

    Parameters
    ----------
    cohort : Cohort
    frame : pandas.DataFrame
        Of `pairs_of`, all metrics.
    question : Question
    labels : mapping of str to str
        Metrics in print.
    about : str
    compared : Compared

    Returns
    -------
    EquivalenceResult
    """
    frame, family = judged(frame, question)
    labels = {metric: labels[metric] for metric in question.margins}
    notes = notes_of(frame, question, labels)
    if notes and "expected cell" in notes[0]:
        warn(notes[0], SmallGroupWarning)
    reference = f"all pairs of {plural(len(compared.names), 'group')}"
    if len(compared.names) == 2:
        reference = "{} with {}".format(*frame.loc[0, ["group", "reference"]])
    elif compared.reference is not None:
        reference = f"each group with {compared.names[compared.reference]}"
    return EquivalenceResult(
        cohort, frame, question, labels, about, reference, family, tuple(notes)
    )
