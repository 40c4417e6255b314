"""Design of a study that is to show several groups equivalent: patients by group, power by pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfair.equivalence.joint import JointPower
from cfair.equivalence.margins import CONTRASTS, METRIC_NAMES
from cfair.results import text
from cfair.results.printed import Printed
from cfair.results.report import notes_lines, plural

#: Rows of a table that are printed.
MOST_ROWS = 40


@dataclass(frozen=True, eq=False, repr=False)
class EquivalenceDesign(Printed):
    """Sample size or power to show that all of several groups are equivalent.

    Attributes
    ----------
    metric : str
    contrast : {"ratio", "odds_ratio", "difference"}
    n : int or None
        Patients in all groups together: those given, or those needed; None if no N will do.
    n_needed : int or None
        For the power wanted.
    power : float
        Wanted, that all pairs are found equivalent.
    alpha : float
        Of each one-sided test.
    allocation : str
        In words.
    notes : tuple of str
    """

    _groups: pd.DataFrame
    _pairs: pd.DataFrame
    metric: str
    contrast: str
    n: int | None
    n_needed: int | None
    power: float
    alpha: float
    allocation: str
    _joint: JointPower
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> pd.DataFrame:
        """A row per group.

        ``group``; ``rate``; ``denominator``, the share of the group it rests on; ``allocation``,
        the part of N; ``n``, the group's patients, rounded up; ``size``, those expected in the
        denominator;
        ``least_cell``, the smaller of the two counts behind the rate.
        """
        return self._groups.copy()

    @property
    def frame(self) -> pd.DataFrame:
        """A row per pair of groups.

        ``group, reference``; ``contrast`` and its true ``value``; ``margin_low, margin_high``;
        ``n_needed`` for this pair alone; ``power`` of this pair at ``n``; ``note``.
        """
        return self._pairs.copy()

    def to_frame(self) -> pd.DataFrame:
        """The same as `frame`."""
        return self.frame

    @property
    def joint_power(self) -> float:
        """Power at `n` that all pairs are found equivalent."""
        return 0.0 if self.n is None else float(self._joint.at(self.n))

    def plot(self, *, ax: Any = None) -> Any:
        """Power over N: of all pairs together, and of the hardest pair alone.

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
            If no N shows that all groups are equivalent.
        """
        from cfair.equivalence.power import wald_tests
        from cfair.plotting import plot_power

        if self.n_needed is None:
            raise ValueError("no number of patients shows that all groups are equivalent.")
        ends = [self.n_needed] if self.n is None else [self.n_needed, self.n]
        grid = np.geomspace(max(min(ends) / 8, 2), 1.6 * max(ends), 200)
        k = int(self._pairs["n_needed"].to_numpy(float).argmax())
        hardest = self._pairs.iloc[k]
        joint = self._joint
        tests = wald_tests(joint.delta[k], joint.pair_sd[k] ** 2, joint.low, joint.high)
        alone = tests.power(grid, self.alpha)
        pair = f"{hardest['group']} and {hardest['reference']} alone"
        lines = {"all pairs": (self.n_needed, joint.at(grid))}
        if len(self._pairs) > 1:
            lines[pair] = (int(hardest["n_needed"]), alone)
        return plot_power(
            pd.DataFrame(
                {
                    "line": np.repeat(list(lines), len(grid)),
                    "x": np.tile(grid, len(lines)),
                    "power": np.concatenate([power for _, power in lines.values()]),
                }
            ),
            labels={name: f"{name}: N = {n:,}" for name, (n, _) in lines.items()},
            x_label="N, patients in all groups",
            title=f"Power to show that {METRIC_NAMES[self.metric]} is equivalent in "
            f"{len(self._groups)} groups",
            about=f"{CONTRASTS[self.contrast]} within {hardest['margin_low']:.3g} to "
            f"{hardest['margin_high']:.3g}, allocation {self.allocation}",
            wanted=self.power,
            given=None if self.n == self.n_needed else (float(self.n or 0), f"N = {self.n:,}"),
            marks={name: float(n) for name, (n, _) in lines.items()},
            ax=ax,
        )

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        pairs, first = self._pairs, self._pairs.iloc[0]
        needed = "no N will do" if self.n_needed is None else text.count(self.n_needed)
        given = self.n is not None and self.n != self.n_needed
        facts = [
            ("rate", METRIC_NAMES[self.metric]),
            (
                "equivalent",
                f"if the {CONTRASTS[self.contrast]} of every pair lies within "
                f"{first['margin_low']:.4g} to {first['margin_high']:.4g}",
            ),
            (
                "tests",
                f"two one-sided ones at {self.alpha:g} for each of {plural(len(pairs), 'pair')}, "
                "all of which have to reject; no correction is needed",
            ),
            ("allocation", self.allocation),
            ("N needed", f"{needed} for a power of {self.power:g} that all are found equivalent"),
            ("N given", f"{self.n:,}, a power of {self.joint_power:.3f}" if given else ""),
        ]
        groups = [
            [
                text.one_line(row["group"]),
                text.number(row["rate"]),
                text.number(row["denominator"]),
                text.number(row["allocation"]),
                *(
                    "–" if pd.isna(row[c]) else f"{row[c]:,.{digits}f}"
                    for c, digits in (("n", 0), ("size", 1), ("least_cell", 1))
                ),
            ]
            for _, row in self._groups.head(MOST_ROWS).iterrows()
        ]
        rows = [
            [
                f"{text.one_line(row['group'])} to {text.one_line(row['reference'])}",
                text.number(row["value"]),
                "–" if pd.isna(row["n_needed"]) else text.count(row["n_needed"]),
                text.number(row["power"]),
                str(row["note"]),
            ]
            for _, row in pairs.head(MOST_ROWS).iterrows()
        ]
        more = len(pairs) - MOST_ROWS
        hidden = [f"... {plural(more, 'pair')} not shown. The frame has all."] * (more > 0)
        head = ["group", "rate", "in denominator", "part of N", "patients", "of them counted"]
        return text.page(
            "Plan to show that several groups are equivalent",
            [
                text.facts(facts),
                text.table([*head, "least cell"], groups),
                text.table(
                    ["pair", CONTRASTS[self.contrast], "N needed alone", "power at N", ""], rows
                )
                + hidden,
                notes_lines(self.notes),
            ],
        )
