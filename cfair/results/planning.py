"""Plans of equivalence tests: power, sample size, margin, and the table of all metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.equivalence.design import RULE_OF_FIVE
from cfair.equivalence.margins import CONTRASTS, METRIC_NAMES
from cfair.equivalence.power import TwoTests, narrowest_margin, planned_tests
from cfair.results import text
from cfair.results.printed import Printed
from cfair.results.report import notes_lines, plural

Array = NDArray[np.float64]

#: Rows printed; the frame has all.
MOST_ROWS = 40
#: What describes the two groups, in the order of the frames.
SCENARIO: tuple[str, ...] = (
    "share",
    "prevalence",
    "reference_prevalence",
    "sensitivity",
    "reference_sensitivity",
    "specificity",
    "reference_specificity",
)
#: What is asked, and the column that answers.
QUESTIONS: dict[str, str] = {
    "power": "Power of equivalence tests",
    "n": "Sample size of equivalence tests",
    "margin": "Narrowest margin of equivalence tests",
}
#: The tests in print.
TEST_NAMES: dict[str, str] = {"wald": "Wald", "score": "score"}
#: Power that is marked where none was asked for.
POWER = 0.8
_POINTS = 200


def expected_of(frame: pd.DataFrame) -> tuple[Array, Array]:
    """(2, rows): the two rates, and the shares of N behind them, of a planning frame."""
    rates = frame[["rate", "reference_rate"]].to_numpy(float).T
    return rates, frame[["row_share", "reference_row_share"]].to_numpy(float).T


@dataclass(frozen=True, eq=False, repr=False)
class EquivalencePlanning(Printed):
    """Power, sample size or margin of equivalence tests, for one scenario or many.

    Attributes
    ----------
    question : {"power", "n", "margin"}
        What was asked.
    contrast : {"ratio", "odds_ratio", "difference"}
    shape : tuple of int
        Of the answer: metrics, if more than one was asked for by a list, and the scenarios.
    method : {"wald", "score"}
        Test that is planned for.
    notes : tuple of str
    """

    _frame: pd.DataFrame
    question: str
    contrast: str
    shape: tuple[int, ...] = ()
    method: str = "wald"
    notes: tuple[str, ...] = ()

    @property
    def frame(self) -> pd.DataFrame:
        """A row per metric and scenario.

        ``metric``; the scenario (``share, prevalence, sensitivity, specificity`` of the group, and
        with ``reference_`` before them of the reference); ``rate, reference_rate``; ``row_share,
        reference_row_share``, the shares of N that are in the metric's denominators; ``contrast``
        and its true ``value``; ``margin_low, margin_high, alpha``; ``wanted`` power if there is
        one; ``n``; ``size, reference_size`` of the denominators; ``least_cell``, the smallest
        expected count of the two groups, and ``cell``, which it is; ``power``; ``note``, why
        something is undefined or not to be relied on.
        """
        return self._frame.copy()

    def to_frame(self) -> pd.DataFrame:
        """The same as `frame`."""
        return self.frame

    @property
    def values(self) -> Any:
        """The answer alone.

        Power or sample size as an array of `shape`, a number if that is (); of margins a pair of
        such arrays, low and high. NaN where there is none.
        """
        names = ["margin_low", "margin_high"] if self.question == "margin" else [self.question]
        found = [self._frame[c].to_numpy(float, na_value=np.nan).reshape(self.shape) for c in names]
        answers = [a.item() if a.ndim == 0 else a for a in found]
        return tuple(answers) if self.question == "margin" else answers[0]

    def plot(self, *, ax: Any = None) -> Any:
        """Power over the margin where margins were asked for, else over N.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        return self.plot_margin(ax=ax) if self.question == "margin" else self.plot_power(ax=ax)

    def plot_power(self, n: Any = None, *, ax: Any = None) -> Any:
        """Power over the number of patients, a line per metric and scenario.

        Parameters
        ----------
        n : (float, float), optional
            Range of N; by default the N that were asked for, or what the power wanted needs.
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ValueError
            If there are more than eight lines.
        """
        from cfair.plotting import plot_power

        rows = self._lines("n")
        wanted = self._wanted(rows)
        needed = self._needed(rows, wanted)
        asked = self._frame["n"].to_numpy(float, na_value=np.nan)
        asked = np.unique(asked[np.isfinite(asked)]) if self.question == "power" else asked[:0]
        low, high = n if n is not None else _range(asked, needed)
        grid = np.unique(np.geomspace(max(low, 2), max(high, low + 1, 3), _POINTS))
        power = self._tests(rows, 1).power(grid, rows["alpha"].to_numpy()[:, None])
        names = self._names(rows, "n")
        ends = [f"N = {n:,.0f}" if np.isfinite(n) else "with no N" for n in needed]
        marks = np.where((needed >= grid[0]) & (needed <= grid[-1]), needed, np.nan)
        return plot_power(
            _curves(names, grid, power),
            labels={a: f"{a}: {b}" for a, b in zip(names, ends, strict=True)},
            title=f"Power to show that the {CONTRASTS[self.contrast]} lies inside the margin",
            about=self._about(rows),
            wanted=dict(zip(names, wanted, strict=True)),
            given=(float(asked[0]), f"N = {asked[0]:,.0f}") if len(asked) == 1 else None,
            marks=dict(zip(names, marks, strict=True)),
            ax=ax,
        )

    def plot_margin(self, *, ax: Any = None) -> Any:
        """Power over symmetric margins at N, a line per metric and scenario.

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
            If no N was given, or there are more than eight lines.
        """
        from cfair.plotting import plot_power

        if self.question == "n":
            raise ValueError(
                "power over the margin is drawn for given N: ask equivalence_margin(n=) or "
                "equivalence_plan(n, ...)."
            )
        rows = self._lines("margin_low", "margin_high")
        rows = rows[rows["n"].notna()]
        if rows.empty:
            raise ValueError("no row has an N, so that there is no margin to draw.")
        wanted = self._wanted(rows)
        n, alpha = rows["n"].to_numpy(float), rows["alpha"].to_numpy()
        rates, behind = expected_of(rows)
        ends = narrowest_margin(rates, behind, n, wanted, self.contrast, alpha, self.method)[1]
        least = ends if self.contrast == "difference" else np.log(ends)
        least = least[np.isfinite(least)] if np.isfinite(least).any() else np.array([1.0])
        # wider margins than a half to twice say little; lines that need them are in the legend
        most = max(0.5 if self.contrast == "difference" else np.log(2.0), 1.1 * float(least.min()))
        top = min(max(1.3 * float(least.max()), 1.6 * float(least.min())), most)
        grid = np.linspace(0, top, _POINTS)
        outer = grid if self.contrast == "difference" else np.exp(grid)
        inner = -outer if self.contrast == "difference" else 1 / outer
        tests = planned_tests(
            rates[..., None], behind[..., None], inner, outer, self.contrast, self.method
        )
        power = tests.power(n[:, None], alpha[:, None])
        names = self._names(rows, "margin_low", "margin_high")
        if self.contrast == "difference":
            x_label = "Margin m: differences between -m and m"
            said = [f"{-m:.3f} to {m:.3f}" for m in ends]
        else:
            x_label = f"Margin m: {CONTRASTS[self.contrast]}s between 1/m and m"
            said = [f"{1 / m:.3f} to {m:.3f}" for m in ends]
        marks = np.where(ends <= outer[-1], ends, np.nan)
        same = rows["n"].nunique() == 1
        return plot_power(
            _curves(names, outer, power),
            labels={a: f"{a}: {b}" for a, b in zip(names, said, strict=True)},
            x_label=x_label,
            title="Power by how wide the margin is" + (f", N = {n[0]:,.0f}" if same else ""),
            about=self._about(rows, margin=False),
            wanted=dict(zip(names, wanted, strict=True)),
            marks=dict(zip(names, marks, strict=True)),
            log=False,
            ax=ax,
        )

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        frame = self._frame
        varying = self._varying()
        rows = [
            [METRIC_NAMES[row["metric"]], *(_value(c, row[c]) for c in varying), *self._answer(row)]
            for _, row in frame.head(MOST_ROWS).iterrows()
        ]
        more = len(frame) - MOST_ROWS
        hidden = [f"... {plural(more, 'row')} not shown. The frame has all."] * (more > 0)
        header = ["metric", *(c.replace("_", " ") for c in varying), *self._answer_header()]
        title = f"{QUESTIONS[self.question]}: {CONTRASTS[self.contrast]} of group to reference"
        remarks = _remarks(frame, self.method)
        return text.page(
            title,
            [
                text.facts(self._facts(varying)),
                text.table(header, rows) + hidden,
                notes_lines([*self.notes, *remarks]),
            ],
        )

    # -- parts of the print -----------------------------------------------------------------------

    def _varying(self) -> list[str]:
        """Columns whose values differ between rows, apart from the answer and what follows."""
        asked = [*SCENARIO, "margin_low", "margin_high", "alpha", "wanted", "n"]
        answer = {"power": [], "n": ["n"], "margin": ["margin_low", "margin_high"]}[self.question]
        there = [c for c in asked if c in self._frame and c not in answer]
        varying = [c for c in there if self._frame[c].nunique(dropna=False) > 1]
        return [  # a reference that always has the group's own value says nothing
            c
            for c in varying
            if not c.startswith("reference_")
            or not self._frame[c].equals(self._frame[c.removeprefix("reference_")])
        ]

    def _answer_header(self) -> list[str]:
        answer = {"power": "power", "n": "N", "margin": "margin"}[self.question]
        return ["group", "reference", CONTRASTS[self.contrast], answer, "least cell", ""]

    def _answer(self, row: pd.Series) -> list[str]:
        digits = 3
        answers = {
            "power": lambda: text.number(row["power"], digits),
            "n": lambda: "–" if pd.isna(row["n"]) else text.count(row["n"]),
            "margin": lambda: f"[{row['margin_low']:.4f} {row['margin_high']:.4f}]",
        }
        return [
            text.number(row["rate"]),
            text.number(row["reference_rate"]),
            text.number(row["value"]),
            answers[self.question](),
            text.number(row["least_cell"], 1),
            _word(row),
        ]

    def _facts(self, varying: list[str]) -> list[tuple[str, str]]:
        row = self._frame.iloc[0]
        alpha = "" if "alpha" in varying else f" at {row['alpha']:g} each, the "
        interval = f"{100 * (1 - 2 * row['alpha']):g}% interval inside the margin" if alpha else ""
        own: list[str] = []
        other: list[str] = []
        for name in ("prevalence", "sensitivity", "specificity"):
            for column, where in ((name, own), (f"reference_{name}", other)):
                if column not in varying and np.isfinite(row[column]):
                    same = self._frame[column].nunique() == 1
                    where.append(f"{name} {row[column]:g}" if same else f"{name} as the group")
        group = [] if "share" in varying else [f"{100 * row['share']:g}% of N"]
        rest = [] if "share" in varying else [f"{100 * (1 - row['share']):g}% of N"]
        wanted = "wanted" in self._frame and "wanted" not in varying
        show = self.question != "margin" and not {"margin_low", "margin_high"} & set(varying)
        return [
            ("tests", f"two one-sided {TEST_NAMES[self.method]} tests{alpha}{interval}"),
            ("margin", f"{row['margin_low']:.4g} to {row['margin_high']:.4g}" if show else ""),
            ("group", ", ".join([*group, *own])),
            ("reference", ", ".join([*rest, *other])),
            ("power", f"{row['wanted']:g} wanted" if wanted else ""),
            ("N", "" if self.question == "n" or "n" in varying else f"{row['n']:,.0f}"),
        ]

    # -- parts of the plots -----------------------------------------------------------------------

    def _lines(self, *without: str) -> pd.DataFrame:
        """Rows that differ in more than these columns."""
        keys = ["metric", *SCENARIO, "margin_low", "margin_high", "alpha", "wanted", "n"]
        kept = [c for c in keys if c in self._frame and c not in without]
        return self._frame.drop_duplicates(kept).reset_index(drop=True)

    def _names(self, rows: pd.DataFrame, *without: str) -> list[str]:
        varying = [c for c in self._varying() if c not in without]
        names = []
        for _, row in rows.iterrows():
            parts = [f"{c.replace('_', ' ')} {_value(c, row[c])}" for c in varying]
            names.append(", ".join([METRIC_NAMES[row["metric"]], *parts]))
        return names

    def _about(self, rows: pd.DataFrame, margin: bool = True) -> str:
        """What all lines share, short enough for the width of a figure."""
        row, said = rows.iloc[0], []
        if margin and len(rows[["margin_low", "margin_high"]].drop_duplicates()) == 1:
            said.append(f"margin {row['margin_low']:.3g} to {row['margin_high']:.3g}")
        for c in (c for c in SCENARIO if not c.startswith("reference_")):
            if rows[c].nunique() == 1 and np.isfinite(row[c]):
                other = row.get(f"reference_{c}", row[c])
                against = "" if other == row[c] else f" / {other:g}"
                short = c if c == "share" else f"{c[:4]}."
                said.append(f"{short} {row[c]:g}{against}")
        return ", ".join(said)

    def _wanted(self, rows: pd.DataFrame) -> Array:
        usual = np.full(len(rows), POWER)
        return rows["wanted"].to_numpy(float) if "wanted" in rows else usual

    def _needed(self, rows: pd.DataFrame, wanted: Array) -> Array:
        return self._tests(rows).sample_size(wanted, rows["alpha"].to_numpy())

    def _tests(self, rows: pd.DataFrame, more: int = 0) -> TwoTests:
        """The tests of each row; more axes at the end, to go with a grid."""
        rates, behind = (v.reshape(*v.shape, *[1] * more) for v in expected_of(rows))
        low, high = (
            rows[c].to_numpy().reshape(-1, *[1] * more) for c in ("margin_low", "margin_high")
        )
        return planned_tests(rates, behind, low, high, self.contrast, self.method)


@dataclass(frozen=True, eq=False, repr=False)
class EquivalencePlan(EquivalencePlanning):
    """The design table of a study: every metric, what it needs and what N patients give.

    Attributes
    ----------
    n : int or None
        Patients there are.
    power : float
        Wanted.
    """

    n: int | None = None
    power: float = 0.8
    _prevalence: pd.DataFrame | None = None

    @property
    def frame(self) -> pd.DataFrame:
        """A row per metric, columns as in `EquivalencePlanning.frame`, and the following.

        ``n_needed`` for the power wanted; ``n_score``, the same for the score test; ``n_five``,
        from which on every cell expects five or more; ``narrowest_low, narrowest_high``, the
        narrowest symmetric margin that N patients give that power for. Without an N, ``n`` is
        ``n_needed``.
        """
        return self._frame.copy()

    @property
    def prevalence_alone(self) -> pd.DataFrame:
        """What the prevalences alone do to PPV, NPV, FDR and FOR.

        The sensitivity and specificity of the reference in both groups: ``metric, prevalence,
        reference_prevalence, rate, reference_rate, contrast, value, margin_low, margin_high``;
        ``inside``, whether the value lies inside the margin; ``least_prevalence,
        most_prevalence``, between which that of the group would keep it there.
        """
        assert self._prevalence is not None
        return self._prevalence.copy()

    def plot(self, *, ax: Any = None) -> Any:
        """The same as `plot_power`.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        return self.plot_power(ax=ax)

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        f = self._frame
        margins = f[["margin_low", "margin_high"]].drop_duplicates()
        one = len(margins) == 1
        header = ["metric", "group", "reference", CONTRASTS[self.contrast]]
        header += ["margin"] * (not one) + ["N needed"]
        header += ["N, score"] * (self.method == "wald") + ["N for 5"]
        header += ["power", "margin at N"] if self.n is not None else []
        header += [""]
        rows = []
        for _, row in f.iterrows():
            cells = [
                METRIC_NAMES[row["metric"]],
                *map(text.number, row[["rate", "reference_rate"]]),
            ]
            cells.append(text.number(row["value"]))
            if not one:
                cells.append(f"[{row['margin_low']:.3g} {row['margin_high']:.3g}]")
            cells.append("–" if pd.isna(row["n_needed"]) else text.count(row["n_needed"]))
            if self.method == "wald":
                cells.append("–" if pd.isna(row["n_score"]) else text.count(row["n_score"]))
            cells.append(text.count(row["n_five"]))
            if self.n is not None:
                cells.append(text.number(row["power"]))
                narrowest = text.short(row["narrowest_low"]), text.short(row["narrowest_high"])
                cells.append(f"[{' '.join(narrowest)}]")
            rows.append([*cells, _word(row)])
        facts = [
            (name, value)
            for name, value in self._facts(["margin_low"] if not one else [])
            if name != "N" or self.n is not None
        ]
        return text.page(
            f"Plan of equivalence tests: {CONTRASTS[self.contrast]} of group to reference",
            [
                text.facts(facts),
                text.table(header, rows),
                self._alone(),
                notes_lines([*self.notes, *_remarks(f, self.method), *self._columns()]),
            ],
        )

    def _columns(self) -> list[str]:
        """What the columns of the table are."""
        said = (
            f"N for 5: from there on every cell expects {RULE_OF_FIVE} or more; with fewer no "
            "formula is to be relied on, so that a study needs the largest N of its row."
        )
        if self.n is None:
            return [said]
        return [said, f"Margin at N: the narrowest symmetric one with a power of {self.power:g}."]

    def _alone(self) -> list[str]:
        p = self.prevalence_alone
        row = p.iloc[0]
        prevalences = f"prevalences of {row['prevalence']:g} and {row['reference_prevalence']:g}"
        if row["prevalence"] == row["reference_prevalence"]:
            prevalences = f"a prevalence of {row['prevalence']:g} in both"
        lines = text.facts(
            [
                (
                    "prevalence",
                    "alone moves the predictive values, whatever the model. With the reference's "
                    f"sensitivity and specificity in both groups, and {prevalences}:",
                )
            ]
        )
        rows = [
            [
                METRIC_NAMES[r["metric"]],
                text.number(r["rate"], 4),
                text.number(r["reference_rate"], 4),
                text.number(r["value"]),
                f"{text.number(r['least_prevalence'])} to {text.number(r['most_prevalence'])}",
                "" if r["inside"] else "outside: cannot be shown with any N",
            ]
            for _, r in p.iterrows()
        ]
        header = ["metric", "group", "reference", CONTRASTS[self.contrast]]
        return lines + text.table([*header, "inside if prevalence is", ""], rows)


def _range(asked: Array, needed: Array) -> tuple[float, float]:
    """N to be drawn: what was asked for, or around what is needed."""
    if len(asked) > 1:
        return float(asked[0]), float(asked[-1])
    around = np.append(asked, needed[np.isfinite(needed)])
    if not around.size:
        return 100.0, 100_000.0
    return float(max(around.min() / 8, 2)), float(1.6 * around.max())


def _curves(names: list[str], x: Array, power: Array) -> pd.DataFrame:
    """Long table of curves, a line after the other."""
    return pd.DataFrame(
        {
            "line": np.repeat(names, len(x)),
            "x": np.tile(x, len(names)),
            "power": power.ravel(),
        }
    )


def _value(column: str, value: Any) -> str:
    """A value of the scenario as printed."""
    if pd.isna(value):
        return "–"
    return text.count(value) if column == "n" else f"{value:.4g}"


def _word(row: Any) -> str:
    """What is the matter with a row, in a few words."""
    if "not inside" in row["note"]:
        return "cannot be shown with any N"
    if "any N" in row["note"]:
        return "needs more than 9e15"
    if "wide enough" in row["note"]:
        return "no margin will do"
    if "no power" in row["note"]:
        return "no power"
    return f"fewer than {RULE_OF_FIVE}" if row["least_cell"] < RULE_OF_FIVE else ""


def _remarks(frame: pd.DataFrame, method: str) -> list[str]:
    """The words explained, those that occur."""
    words = {_word(row) for row in frame.to_dict("records")}
    said = {
        "cannot be shown with any N": "Cannot be shown with any N: the true contrast is not inside "
        "the margin, so that no number of patients makes the groups equivalent.",
        "no power": "No power to show equivalence: the 1 - 2 alpha interval is expected to be "
        "wider than the margin, so that wherever it lies it does not fit in.",
    }
    notes = [note for word, note in said.items() if word in words]
    few = frame[frame["least_cell"] < RULE_OF_FIVE]
    if len(few):
        where = list(
            dict.fromkeys(
                f"{METRIC_NAMES[row['metric']]} ({row['least_cell']:.1f} {row['cell']})"
                for _, row in few.iterrows()
            )
        )
        shown = "; ".join(where[:6]) + (f"; and {len(where) - 6} more" if len(where) > 6 else "")
        notes.append(
            f"A cell expects fewer than {RULE_OF_FIVE}, so that the power is not to be relied on"
            + (", and the test should be the score test" if method == "wald" else "")
            + f": {shown}."
        )
    if method == "wald":
        notes.append(
            "By Wald's formula, as published. On counts Audit.equivalence takes the score test, "
            "which has less power than that where cells are small, 3 points with 20 expected and "
            "17 with 6: plan for it with method='score'."
        )
    return notes
