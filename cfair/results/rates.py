"""What every result of rates by group can do: frames, comparisons, and here its plots.

The record and its frames are in :mod:`cfair.results.rate_frames`, contrasts, equivalence, tests and
gaps in :mod:`cfair.results.rate_comparisons`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfair.disclosure import MASKED
from cfair.options import check_option
from cfair.results.contrasts import OVERALL
from cfair.results.rate_comparisons import RateComparisons
from cfair.results.rate_frames import MetricRows

__all__ = ["MetricRows", "RatesResult"]


@dataclass(frozen=True, eq=False, repr=False)
class RatesResult(RateComparisons):
    """Rates by group with their uncertainty: a frozen record of one analysis.

    Attributes
    ----------
    cohort : Cohort
        The rows that were used, and what was left out.
    estimates : tuple of RateEstimates
        One per metric, for the groups, the margins, and all rows together; or the groups only.
    rows : tuple of MetricRows
        In the order of `estimates`.
    counts : dict of str to (T,) array
        Columns of counts that are the same for every metric, such as ``n`` and ``events``.
    level : float
        Confidence level.
    interval : str
        Kind of interval of the rates.
    aggregate_interval : str
        Kind of interval of the summaries.
    seed : int
        Seed of the replicates, if there are any.
    notes : tuple of str
        What to be careful about.
    """

    def plot_rates(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        ax: Any = None,
        marginals: bool | str = False,
    ) -> Any:
        """Rates with their intervals, a row per group, undefined groups kept and marked.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Up to four metrics in one panel; those of `plotted` by default.
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.
        marginals : bool or "both", default False
            Single attributes instead of their intersection, or all rows, the single attributes and
            the intersection on one scale.

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_rates

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.plotted)
        for metric in wanted:
            self.estimates_of(metric)
        if not isinstance(marginals, (bool, np.bool_)):
            check_option("marginals", marginals, ("both",))
        frame, sections = self.rates, []
        if marginals:
            self._require_margins(wanted)
            frame = self.marginals
            named = zip(frame["attribute"], frame["level"], strict=True)
            frame = frame.assign(group=[f"{a}: {v}" for a, v in named])
        if marginals == "both":
            several = len(self.cohort.groups.attributes) > 1
            sections = [1, *([1 + len(self.cohort.groups.margins)] if several else [])]
            parts = [self.overall.assign(group="all"), frame, *([self.rates] if several else [])]
            frame = pd.concat(parts, ignore_index=True)
        return plot_rates(
            frame,
            metrics=wanted,
            labels=self._labels,
            level=self.level,
            about=self.about,
            sections=sections,
            ax=ax,
        )

    def plot_forest(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        compare: RatesResult | Mapping[str, RatesResult] | None = None,
        attributes: Sequence[str] | None = None,
        intersections: bool = True,
        reference: Any = OVERALL,
        margin: tuple[float, float] | None = None,
        contrast: str = "ratio",
        ax: Any = None,
    ) -> Any:
        """Rates as in clinical papers: group, counts, square and line, estimate (interval).

        All rows come first, then the single attributes, then their intersections, each under a
        heading. A group without a rate keeps its row, with a hollow mark and the reason. The counts
        are n and what the rate is a share of: events for TPR and FNR, non-events for FPR and TNR,
        the patients flagged for PPV, those not flagged for NPV; of counterfactual rates, the
        untreated and the events or non-events among them.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Drawn one under the other on the same axis; those of `plotted` by default.
        compare : result, or mapping of str to result, optional
            Drawn beside these rates in each row: another estimator, or the observed rates beside
            those had nobody been treated. A mapping gives the names of the legend. The rate that is
            drawn of each is that without treatment where the result has one (cFPR for FPR), so that
            ``compare=result`` shows a counterfactual result beside its own observed rates. Calls
            and numbers of rows that differ stand in the legend.
        attributes : sequence of str, optional
            Single attributes in the order wanted, which intersections follow; all by default.
        intersections : bool, default True
            Whether the intersectional groups are drawn below the single attributes.
        reference : label, "overall" or None, default "overall"
            Where the vertical line stands: at all rows together, or at an intersectional group.
        margin : (float, float), optional
            Drawn as a grey band around the reference, for instance (0.8, 1.25). Whether groups are
            equivalent is not seen from it: see `equivalence`.
        contrast : {"ratio", "difference"}, default "ratio"
            What the margin is of, group to reference.
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        DataError
            If there is no such attribute or reference, single attributes have no rates, or what is
            compared has other groups.
        ValueError
            For a metric or margin that is not allowed, or a comparison with another event, level or
            disclosure control.
        TypeError
            If `compare` is no result with rates by group.

        Examples
        --------
        >>> import cfair
        >>> from matplotlib.figure import Figure
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> result = audit.counterfactual("treated ~ sex + risk + age + sbp")
        >>> ax = audit.observed().plot_forest("fpr", compare=result, ax=Figure().add_subplot())
        >>> [text.get_text().partition(",")[0] for text in ax.get_legend().get_texts()][:2]
        ['Observed', 'Had nobody been treated: inverse probability weighting (IPW)']
        """
        from cfair.plotting import plot_clinical_forest
        from cfair.results.forest import forest_rows

        rows = forest_rows(
            self,
            [metrics] if isinstance(metrics, str) else metrics,
            compare=compare,
            attributes=attributes,
            intersections=intersections,
            reference=reference,
            margin=margin,
            contrast=contrast,
        )
        return plot_clinical_forest(
            rows.frame,
            rows.panels,
            series=rows.series,
            level=self.level,
            about=rows.about,
            reference=rows.reference,
            margin=rows.margin,
            ax=ax,
        )

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
            Those of `judged` by default.
        severity : tuple of two floats, default (0.05, 0.15)
            From where on a gap is moderate, and beyond which it is severe.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_gaps

        return plot_gaps(
            self.gaps(metrics, severity=severity),
            labels=self._labels,
            level=self.level,
            severity=severity,
            about=self.about,
            ax=ax,
        )

    def plot_heatmap(self, metrics: str | Sequence[str] | None = None, *, ax: Any = None) -> Any:
        """Rates of all groups and metrics as a table, coloured by the distance from all rows.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            All by default.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_heatmap

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.metrics)
        self._require_margins(wanted)
        return plot_heatmap(
            self.rates,
            self.overall,
            metrics=wanted,
            labels=self._labels,
            about=self.about,
            level=self.level,
            ax=ax,
        )

    def plot_all(self, directory: Any, *, suffix: str = "png", dpi: float = 150) -> list[Path]:
        """Draw every plot of this result into files, one for each plot and attribute.

        Parameters
        ----------
        directory : path
            Made if it is not there.
        suffix : str, default "png"
            Format, as matplotlib knows it.
        dpi : float, default 150

        Returns
        -------
        list of pathlib.Path
            Names are safe whatever the attributes are called: ``race/ethnicity`` is
            ``race_ethnicity``.
        """
        from cfair.plotting import save_all

        return save_all(self._plots(), directory, suffix=suffix, dpi=dpi)

    def _plots(self) -> dict[str, Callable[[], Any]]:
        """Every plot by the name of its file."""
        groups = self.cohort.groups
        whole = " x ".join(groups.attributes)
        found: dict[str, Callable[[], Any]] = {f"rates by {whole}": self.plot_rates}
        if np.count_nonzero(groups.sizes) > 1:
            found[f"disparities by {whole}"] = self.plot_disparities
            found["gaps"] = self.plot_gaps
        if self.has_margins:
            found[f"forest by {whole}"] = self.plot_forest
            found["rates beside attributes"] = partial(self.plot_rates, marginals="both")
            found[f"heat map by {whole}"] = self.plot_heatmap
            if len(groups.attributes) > 1:
                for attribute in groups.attributes:
                    found[f"rates by {attribute}"] = partial(self._plot_attribute, attribute)
        return found

    def _plot_attribute(self, attribute: str) -> Any:
        from cfair.plotting import plot_rates

        frame = self.marginals
        frame = frame[frame["attribute"] == attribute]
        return plot_rates(
            frame.assign(group=frame["level"].astype(str)),
            metrics=list(self.plotted),
            labels=self._labels,
            level=self.level,
            about=self.about,
        )

    def plot_disparities(
        self, metrics: str | Sequence[str] | None = None, *, ax: Any = None
    ) -> Any:
        """Average and maximum difference with intervals, and what noise alone would give.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Those of `plotted` by default.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_disparities

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.plotted)
        for metric in wanted:
            self.estimates_of(metric)
        why = {
            metric: next((note for note in r.notes if note.startswith(MASKED)), "")
            for metric, r in zip(self.metrics, self.rows, strict=True)
        }
        note = [why.get(metric, "") for metric in self._disparities["metric"]]
        return plot_disparities(
            self._disparities.assign(note=note),
            metrics=wanted,
            labels=self._labels,
            level=self.level,
            about=self.about,
            ax=ax,
        )
