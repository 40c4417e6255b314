"""Score quality by group: how well the score orders patients, and how near it is to the risk.

Here it is drawn and printed. The record and its comparisons are in
:mod:`cfair.results.score_comparisons`, curves in :mod:`cfair.results.score_curves`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from cfair.disclosure import count_column
from cfair.options import check_option
from cfair.results import text
from cfair.results.report import (
    aggregate_lines,
    cluster_fact,
    cohort_facts,
    disclosure_fact,
    equality_line,
    group_table,
    largest_gap_lines,
    margin_table,
    notes_lines,
    rate_text,
)
from cfair.results.score_curves import ScoreCurves
from cfair.results.score_measures import MEASURES, PRINTED

Array = NDArray[np.float64]

_BIN_WORDS = {
    "unit": "equal bins of [0, 1]",
    "group": "equal bins of the group's own range",
    "quantile": "bins at the group's own quantiles",
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PerformanceResult(ScoreCurves):
    """Score quality by intersectional group, by attribute and overall.

    Printing shows AUC, Brier score, O/E and calibration slope; ``rates``, ``marginals``,
    ``overall``, ``gaps()``, ``contrasts()`` and ``test_equal()`` have all metrics. Frames have two
    columns more than other results: ``threshold`` of a metric of a call, and
    ``expected_if_calibrated``, what the calibration error of a perfectly calibrated score would be
    in so many rows.

    Intervals: AUC by DeLong's variance on the logit scale, Brier score and mean score on the logit
    scale, log loss and O/E on the log scale, calibration in the large, intercept and slope by the
    sandwich variance, accuracy, F1 and prevalence by Wilson on the effective size. Those at the
    best-F1 threshold take the threshold as given. Differences have an interval from their own
    standard error, for AUC DeLong's; covariances of overlapping groups come from the influence
    values. The calibration error has an interval that allows for its bias, and no contrast. In
    ``gaps()`` the gap that is ``detectable`` follows from the standard error of the difference of
    the two groups.

    Attributes
    ----------
    rule : str
        Side of a threshold on which a score equal to it falls.
    best_f1_threshold : float
        Of all rows; the call ``score >= threshold`` has the highest F1 there. It is the score of a
        patient, and NaN under ``suppress_below``, where `scored`, `fit`, `binned` and `values` are
        refused.
    bins : int
    bin_range : str
    clip : float or None

    See Also
    --------
    RatesResult : the other attributes, and what can be asked of every result.
    """

    def plot_roc(self, *, attribute: str | None = None, ax: Any = None) -> Any:
        """ROC curves: a panel per group with its band over all the others, or all in one Axes.

        Parameters
        ----------
        attribute : str, optional
            Levels of this attribute instead of the intersectional groups.
        ax : matplotlib Axes, optional
            All groups are drawn into it, up to four in colour, else the two of highest and lowest
            AUC. By default a new figure has a panel per group; the band is Wilson's interval of the
            sensitivity at each threshold.

        Returns
        -------
        matplotlib Figure, or the Axes given
        """
        from cfair.plotting import plot_roc

        return plot_roc(
            self.roc_curves(attribute), self._about_targets("auc", attribute), level=self.level,
            about=self.about, ax=ax,
        )  # fmt: skip

    def plot_calibration(self, *, attribute: str | None = None, ax: Any = None) -> Any:
        """Event rates against scores: a panel per group, or all groups' curves in one Axes.

        Parameters
        ----------
        attribute : str, optional
            Levels of this attribute instead of the intersectional groups.
        ax : matplotlib Axes, optional
            By default a new figure has a panel per group: event rates with Wilson's intervals in
            ten quantile bins, in five where a group has fewer than 200 rows, and the logistic
            recalibration curve with its band.

        Returns
        -------
        matplotlib Figure, or the Axes given
        """
        from cfair.plotting import plot_calibration

        fine = self.calibration_curves(attribute)
        coarse = self.calibration_curves(attribute, bins=5)
        about = self._about_targets("calibration_slope", attribute)
        few = set(about.loc[about["n"] < 200, "group"])
        points = pd.concat([fine[~fine["group"].isin(few)], coarse[coarse["group"].isin(few)]])
        return plot_calibration(
            points, self.recalibration_curves(attribute), about, level=self.level,
            about=self.about, ax=ax,
        )  # fmt: skip

    def plot_net_benefit(
        self,
        thresholds: ArrayLike | None = None,
        *,
        attribute: str | None = None,
        standardized: bool = False,
        ax: Any = None,
    ) -> Any:
        """Decision curves: a panel per group, beside calling everybody and nobody.

        Parameters
        ----------
        thresholds : array_like, optional
            In [0, 1); 0.01, 0.02, ... by default, up to where hardly any score reaches.
        attribute : str, optional
            Levels of this attribute instead of the intersectional groups.
        standardized : bool, default False
            Net benefit over prevalence, so that groups of unlike prevalence compare.
        ax : matplotlib Axes, optional
            All groups' curves are drawn into it. By default a new figure has a panel per group.

        Returns
        -------
        matplotlib Figure, or the Axes given
        """
        from cfair.plotting import plot_net_benefit

        if thresholds is None:
            top = float(np.quantile(self._scored.p, 0.99))
            thresholds = np.arange(1, max(int(100 * top), 5) + 1) / 100
            thresholds = thresholds[thresholds < 1]
        return plot_net_benefit(
            self.net_benefit(thresholds, attribute=attribute),
            self._about_targets("prevalence", attribute), level=self.level, about=self.about,
            standardized=standardized, ax=ax,
        )  # fmt: skip

    def plot_rates(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        ax: Any = None,
        marginals: bool | str = False,
    ) -> Any:
        """One metric by group with its intervals and the value of all rows, AUC by default.

        Parameters
        ----------
        metrics : str, optional
            A metric, or a sequence of one.
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.
        marginals : bool or "both", default False
            Single attributes instead of their intersection, or both.

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_score_metric

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.plotted)
        if len(wanted) != 1:
            raise ValueError(
                f"metrics must name one metric, since each has its own scale, not {wanted!r}. Draw "
                "each into its own Axes."
            )
        metric = wanted[0]
        self.estimates_of(metric)
        if not isinstance(marginals, (bool, np.bool_)):
            check_option("marginals", marginals, ("both",))
        frame, sections = self.rates, []
        if marginals:
            levels = self.marginals
            named = zip(levels["attribute"], levels["level"], strict=True)
            levels = levels.assign(group=[f"{a}: {v}" for a, v in named])
            both = marginals == "both" and len(self.cohort.groups.attributes) > 1
            sections = [len(self.cohort.groups.margins)] if both else []
            frame = pd.concat([levels, frame], ignore_index=True) if both else levels
        frame = frame[frame["metric"] == metric]
        overall = float(self.estimates_of(metric).estimate[-1])
        measure = MEASURES[metric]
        return plot_score_metric(
            frame, label=measure.label, overall=overall, level=self.level, about=self.about,
            target=measure.best if measure.scale in ("positive", "real") else None,
            sections=sections, ax=ax,
        )  # fmt: skip

    def plot_heatmap(self, metrics: str | Sequence[str] | None = None, *, ax: Any = None) -> Any:
        """All groups and metrics as a table, coloured by the distance from all rows.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            All by default. Each has a colour scale of its own, up to its largest distance.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_heatmap

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.metrics)
        for metric in wanted:
            self.estimates_of(metric)
        return plot_heatmap(
            self.rates, self.overall, metrics=wanted, labels=self._labels, about=self.about,
            title="Score quality by group", own_scale=True, level=self.level, ax=ax,
        )  # fmt: skip

    def plot_gaps(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        severity: tuple[float, float] = (0.05, 0.15),
        ax: Any = None,
    ) -> Any:
        """The widest gaps by attribute and by intersection, before bands of severity.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            AUC, Brier score, accuracy and F1 by default; the bands are meant for metrics in [0, 1].
        severity : tuple of two floats, default (0.05, 0.15)
            From where on a gap is moderate, and beyond which severe.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        wanted = metrics or ("auc", "brier", "accuracy", "f1")
        return super().plot_gaps(wanted, severity=severity, ax=ax)

    def _plots(self) -> dict[str, Callable[[], Any]]:
        """Every plot by the name of its file."""
        whole = " x ".join(self.cohort.groups.attributes)
        found: dict[str, Callable[[], Any]] = {
            f"{MEASURES[m].label.replace('/', '')} by {whole}": partial(
                self.plot_rates, m, marginals="both"
            )
            for m in PRINTED
        }
        if np.count_nonzero(self.cohort.groups.sizes) > 1:
            found["gaps"] = self.plot_gaps
        found[f"heat map by {whole}"] = self.plot_heatmap
        if self.cohort.suppress_below is not None:
            return found
        several = len(self.cohort.groups.attributes) > 1
        for by in [None, *(self.cohort.groups.attributes if several else [])]:
            found[f"ROC by {by or whole}"] = partial(self.plot_roc, attribute=by)
            found[f"calibration by {by or whole}"] = partial(self.plot_calibration, attribute=by)
            found[f"net benefit by {by or whole}"] = partial(self.plot_net_benefit, attribute=by)
        return found

    def _about_targets(self, metric: str, attribute: str | None) -> pd.DataFrame:
        """Group, n, events, estimate and limits of a metric, and why it is undefined."""
        k, names = self._partition(attribute)
        at = self._targets_of(k)
        low, high = self.limits(metric)
        e = self.estimates_of(metric)
        notes = self.rows[self.metrics.index(metric)].notes
        return pd.DataFrame(
            {
                "group": list(names),
                "n": count_column(self.counts["n"][at]),
                "events": count_column(self.counts["events"][at]),
                "estimate": e.estimate[at],
                "ci_low": low[at],
                "ci_high": high[at],
                "overall": e.estimate[-1],
                "note": [notes[t] for t in at],
            }
        )

    # -- text -----------------------------------------------------------------------------------

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        return text.page(
            f"Quality of the {self._score} by group",
            [
                text.facts([*cohort_facts(self.cohort), *self._facts()]),
                group_table(self, self._header(), self._cells),
                margin_table(self, self._header(), self._cells),
                self._all_rows(),
                self._differences(),
                notes_lines(self.notes),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        level = f"{100 * self.level:g}%"
        return [
            (
                "intervals",
                f"{level}; AUC DeLong on the logit scale, Brier logit, O/E log, slope by the "
                f"sandwich variance{cluster_fact(self.cohort)}",
            ),
            disclosure_fact(self),
        ]

    def _header(self) -> list[str]:
        return ["n", "events", *(MEASURES[m].label for m in PRINTED)]

    def _cells(self, target: int) -> list[str]:
        cells = [text.count(self.counts["n"][target]), text.count(self.counts["events"][target])]
        for metric in PRINTED:
            digits = 3 if MEASURES[metric].scale == "unit" else 2
            k = self.metrics.index(metric)
            cells.append(rate_text(self, k, target, self.limits(metric), digits))
        return cells

    def _all_rows(self) -> list[str]:
        """What the table has no room for, of all rows together."""

        def value(metric: str, digits: int = 3) -> str:
            low, high = self.estimates_of(metric).interval("wilson", self.level)
            at = self.estimates_of(metric).estimate[-1]
            return f"{MEASURES[metric].label} {text.estimate(at, low[-1], high[-1], digits)}"

        masked = np.isnan(self.best_f1_threshold) and self.cohort.suppress_below is not None
        at = "masked" if masked else f"score {self.rule} {self.best_f1_threshold:.3g}"
        noise = text.number(self._binned.if_calibrated[-1])
        debiased = text.number(self.estimates_of("ece_debiased").estimate[-1])
        return text.facts(
            [
                ("all rows", f"{value('log_loss')}, {value('calibration_in_the_large', 2)}"),
                (
                    " ",
                    f"{value('ece')} in {self.bins} {_BIN_WORDS[self.bin_range]}, where noise "
                    f"alone gives {noise}; debiased {debiased}",
                ),
                (
                    " ",
                    f"{value('accuracy')}, {value('f1')}; best F1 of all rows at {at}: "
                    f"{text.number(self.estimates_of('f1_best_f1').estimate[-1])}",
                ),
            ]
        )

    def _differences(self) -> list[str]:
        if np.count_nonzero(self.cohort.groups.sizes) < 2:
            return ["one group only: nothing to compare"]
        chosen = [self.metrics.index(m) for m in PRINTED]
        return [
            *equality_line(self, chosen),
            *aggregate_lines(self, chosen),
            *largest_gap_lines(self, chosen),
        ]
