"""Design of a study that is to find a gap: who is needed from each group, and what it can see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.equivalence.detection import gap_detection
from cfair.results import text
from cfair.results.planning import POWER
from cfair.results.printed import Printed
from cfair.results.report import notes_lines, plural

Array = NDArray[np.float64]

#: Rows of a table that are printed.
MOST_ROWS = 40


@dataclass(frozen=True, eq=False, repr=False)
class GapDesign(Printed):
    """Sample size or power to detect gaps of a rate beyond a tolerance.

    Attributes
    ----------
    metric : str
        In print.
    n : int or None
        Patients in all groups together; None if no gap exceeds the tolerance.
    power : float
        Wanted; NaN if N was given.
    tolerance, alpha : float
        Two-sided level of all comparisons together.
    level : float
        Level of each comparison: alpha over their number.
    allocation : str
        In words.
    notes : tuple of str
    """

    _groups: pd.DataFrame
    _pairs: pd.DataFrame
    metric: str
    n: int | None
    power: float
    tolerance: float
    alpha: float
    level: float
    allocation: str
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> pd.DataFrame:
        """A row per group.

        ``group``; ``rate``; ``denominator``, the share of the group it rests on; ``allocation``,
        the part of N; ``n``, the group's patients, whole if N was asked for; ``size``, those that
        are expected in the denominator.
        """
        return self._groups.copy()

    @property
    def frame(self) -> pd.DataFrame:
        """A row per pair of groups.

        ``group, reference``; ``gap``, absolute; ``tolerance``; ``sd``, of the gap times the root of
        N; ``n_needed`` for the power wanted (0.8 if N was given) with this allocation; ``power``
        at N; ``note``.
        """
        return self._pairs.copy()

    def to_frame(self) -> pd.DataFrame:
        """The same as `frame`."""
        return self.frame

    def plot(self, *, ax: Any = None) -> Any:
        """Power over N, a line per pair whose gap exceeds the tolerance.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ValueError
            If there are more than eight such pairs, or none.
        """
        from cfair.plotting import plot_power

        rows = self._pairs[self._pairs["n_needed"].notna()]
        if rows.empty:
            raise ValueError("no gap exceeds the tolerance, so that there is no power to draw.")
        needed = rows["n_needed"].to_numpy(float)
        wanted = POWER if np.isnan(self.power) else self.power
        around = needed if self.n is None else np.append(needed, self.n)
        around = np.maximum(around, 2)
        grid = np.geomspace(max(around.min() / 8, 2), 1.6 * around.max(), 200)
        beyond = (rows["gap"] - self.tolerance).to_numpy()[:, None]
        power = gap_detection(beyond, rows["sd"].to_numpy()[:, None] ** 2, grid, self.level)
        names = [f"{a} against {b}" for a, b in zip(rows["group"], rows["reference"], strict=True)]
        return plot_power(
            pd.DataFrame(
                {
                    "line": np.repeat(names, len(grid)),
                    "x": np.tile(grid, len(names)),
                    "power": power.ravel(),
                }
            ),
            labels={
                a: f"{a}, gap {gap:.3g}: N = {n:,.0f}"
                for a, gap, n in zip(names, rows["gap"], needed, strict=True)
            },
            x_label="N, patients in all groups",
            title=f"Power to detect a gap in {self.metric} above {self.tolerance:g}",
            about=f"allocation {self.allocation}, two-sided level {self.level:.3g} each",
            wanted=wanted,
            given=None if self.n is None else (float(self.n), f"N = {self.n:,}"),
            marks=dict(zip(names, needed, strict=True)),
            ax=ax,
        )

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        pairs = self._pairs
        together = f"{self.alpha:g}, two-sided"
        if len(pairs) > 1:
            tested = round(self.alpha / self.level)
            together += f"; {self.level:.3g} for each of {plural(tested, 'comparison')}"
        wanted = "" if np.isnan(self.power) else f"{self.power:g} wanted for each gap"
        facts = [
            ("rate", self.metric),
            ("tolerance", f"{self.tolerance:g}"),
            ("level", together),
            ("power", wanted),
            ("allocation", self.allocation),
            (
                "N",
                "–"
                if self.n is None
                else text.count(self.n) + ", each group rounded up" * bool(wanted),
            ),
        ]
        groups = [
            [
                text.one_line(row["group"]),
                text.number(row["rate"]),
                text.number(row["denominator"]),
                text.number(row["allocation"]),
                *("–" if pd.isna(row[c]) else f"{row[c]:,.1f}" for c in ("n", "size")),
            ]
            for _, row in self._groups.head(MOST_ROWS).iterrows()
        ]
        rows = [
            [
                f"{text.one_line(row['group'])} against {text.one_line(row['reference'])}",
                text.number(row["gap"]),
                "–" if pd.isna(row["n_needed"]) else text.count(row["n_needed"]),
                text.number(row["power"]),
                str(row["note"]),
            ]
            for _, row in pairs.head(MOST_ROWS).iterrows()
        ]
        more = len(pairs) - MOST_ROWS
        hidden = [f"... {plural(more, 'pair')} not shown. The frame has all."] * (more > 0)
        return text.page(
            "Detecting a gap beyond a tolerance",
            [
                text.facts(facts),
                text.table(
                    ["group", "rate", "in denominator", "part of N", "patients", "of them counted"],
                    groups,
                ),
                text.table(["gap of", "gap", "N needed", "power at N", ""], rows) + hidden,
                notes_lines(self.notes),
            ],
        )
