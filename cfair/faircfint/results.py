"""What an analysis gives back: the R function's outputs by their names, and a printed table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.faircfint.figures import SMALL, figure_table
from cfair.faircfint.found import Found
from cfair.faircfint.labels import SUMMARIES
from cfair.faircfint.models import Settings
from cfair.frame import show_some
from cfair.results import text
from cfair.results.report import (
    MAX_GROUPS,
    MAX_MARGINS,
    attribute_rows,
    cohort_facts,
    notes_lines,
    treatment_fact,
)

Array = NDArray[np.float64]

_COLUMNS = {
    "cfpr": "cFPR",
    "cfnr": "cFNR",
    "cfpr_small": "cFPR small",
    "cfnr_small": "cFNR small",
    "fpr": "FPR",
    "fnr": "FNR",
}
_SIGNS = {"neg": "cFNR", "pos": "cFPR"}


@dataclass(frozen=True, eq=False, repr=False)
class AnalysisResult:
    """Outputs of `analysis_estimation`, by their R names.

    Attributes
    ----------
    defs : pandas.Series
        All figures: ``fpr_<A1A2>``, ``fnr_``, ``cfpr_``, ``cfnr_``, the margins
        ``cfpr_marg_A1_<level>``, ..., and ``avg_neg, max_neg, var_neg, avg_pos, max_pos, var_pos``
        (neg: of cFNR, pos: of cFPR), then the same of small groups.
    est_choice : dict
        Beside ``defs`` what is known of each row, on the caller's index: ``propensity``,
        ``y0_weighted`` (the weight times Y), and for small groups ``mu0hat, mu0S1hat, mu0S0hat``,
        ``membership`` (with ``_internal`` and ``_external`` where these were mixed) and ``folds``;
        the fits ``pi_model`` and ``outcome_model``; ``alpha_null, alpha_boot`` of the replicates;
        with ``compat=False`` also the results of cfair's own analyses, ``counterfactual`` and
        ``small``.
    table_null, boot_out : pandas.DataFrame or None
        The figures of each replicate of the permutation null, and of the bootstrap.
    alpha : float or None
        Share of the external model.
    compat : bool
        Whether the figures are those of the R package.
    estimator_type : str
    cohort : Cohort
        The rows used.
    m_factor : float
        Exponent of the size of a bootstrap replicate; 1 with ``compat=False``.
    seed : int
    notes : tuple of str
        What to be careful about.
    """

    defs: pd.Series
    est_choice: Mapping[str, Any]
    table_null: pd.DataFrame | None
    boot_out: pd.DataFrame | None
    alpha: float | None
    compat: bool
    estimator_type: str
    cohort: Cohort
    m_factor: float
    seed: int
    notes: tuple[str, ...]
    _rates: Mapping[str, Array] = field(repr=False)
    _models: tuple[tuple[str, str], ...] = field(repr=False, default=())
    _dropped: Mapping[str, int] = field(repr=False, default_factory=dict)
    _n_read: int = 0

    @property
    def small(self) -> bool:
        """Whether rates of small groups were estimated."""
        return self.estimator_type != "standard"

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        return text.page(
            f"faircfint: {self.estimator_type} estimator, compat {self.compat}",
            [
                text.facts(self._facts()),
                self._group_lines(),
                self._margin_lines(),
                self._summary_lines(),
                notes_lines(self.notes),
            ],
        )

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        from html import escape

        style = "font-family: monospace; white-space: pre; overflow-x: auto; line-height: 1.3"
        return f'<div style="{style}">{escape(self.summary())}</div>'

    def _facts(self) -> list[tuple[str, str]]:
        used = text.count(self.cohort.n_used)
        dropped = ", ".join(f"{name} missing ({n})" for name, n in self._dropped.items())
        left_out = f"{self._n_read - self.cohort.n_used:,} dropped: {dropped}"
        rows = f"{self._n_read:,} rows, {used} used ({left_out if dropped else 'none dropped'})"
        facts = [("cohort", rows), *cohort_facts(self.cohort)[1:3], treatment_fact(self.cohort)]
        facts += list(self._models)
        if self.alpha is not None:
            facts.append(("borrowing", f"alpha {self.alpha:.4g}, the share of the external model"))
        for name, table in (("null", self.table_null), ("bootstrap", self.boot_out)):
            if table is not None:
                facts.append((name, f"{len(table):,} replicates"))
        how = (
            "True: the figures of the R package; cfair.faircfint lists where cfair differs"
            if self.compat
            else "False: cfair's own analyses under the R package's names"
        )
        return [*facts, ("compat", how), ("seed", str(self.seed))]

    def _lines(self, header: list[str], targets: list[int], names: list[list[str]]) -> list[str]:
        metrics = [m for m in _COLUMNS if m in self._rates]
        rows = [
            [*own, *(text.number(float(self._rates[m][0, t])) for m in metrics)]
            for own, t in zip(names, targets, strict=True)
        ]
        return text.table([*header, *(_COLUMNS[m] for m in metrics)], rows, left=len(header))

    def _group_lines(self) -> list[str]:
        groups = self.cohort.groups
        shown = list(range(min(groups.n_groups, MAX_GROUPS)))
        names = [[*attribute_rows(groups, k), text.count(groups.sizes[k])] for k in shown]
        lines = self._lines([*groups.attributes, "n"], shown, names)
        hidden = groups.n_groups - len(shown)
        return lines + [f"... {hidden:,} groups not shown; .defs has all"] * (hidden > 0)

    def _margin_lines(self) -> list[str]:
        groups = self.cohort.groups
        names = list(groups.margin_names[:MAX_MARGINS])
        targets = [groups.n_groups + k for k in range(len(names))]
        sizes = groups.margin_matrix @ groups.sizes
        rows = [[text.one_line(n), text.count(sizes[k])] for k, n in enumerate(names)]
        everyone = [["all", text.count(self.cohort.n_used)]]
        return self._lines(["single attributes", "n"], [-1, *targets], [*everyone, *rows])

    def _summary_lines(self) -> list[str]:
        rows = []
        for end in ("", "_small") if self.small else ("",):
            for sign in ("pos", "neg"):
                figures = [self.defs[f"{statistic}_{sign}{end}"] for statistic in SUMMARIES]
                name = f"  {_SIGNS[sign]}{' small' if end else ''}"
                digits = (3, 3, 5)
                shown = [
                    "-∞" if v == -np.inf else text.number(float(v), d)
                    for v, d in zip(figures, digits, strict=True)
                ]
                rows.append([name, *shown])
        return text.table(["|difference|", "average", "maximum", "variance"], rows, gap=3)


def make_result(found: Found, settings: Settings) -> AnalysisResult:
    """Put what was found into the R function's outputs.

    Parameters
    ----------
    found : Found
    settings : Settings

    Returns
    -------
    AnalysisResult
    """
    groups, compat = found.cohort.groups, settings.compat

    def table(rates: Mapping[str, Array] | None) -> pd.DataFrame | None:
        return None if rates is None else figure_table(rates, groups, compat=compat)

    figures = figure_table(found.rates, groups, compat=compat)
    defs = figures.iloc[0].rename("defs")
    notes = list(found.notes)
    if not defs.index.is_unique:
        twice = sorted({str(name) for name in defs.index[defs.index.duplicated()]})
        notes.append(f"two groups have the same pasted label: {show_some(twice, 4)} occur twice")
    est_choice: dict[str, Any] = {"defs": defs, **found.rows, **found.results}
    for name, rates in (("alpha_null", found.null), ("alpha_boot", found.boot)):
        if rates is not None and "alpha" in rates:
            est_choice[name] = rates["alpha"][:, 0]
    return AnalysisResult(
        defs=defs,
        est_choice=est_choice,
        table_null=table(found.null),
        boot_out=table(found.boot),
        alpha=found.alpha,
        compat=compat,
        estimator_type=settings.estimator_type,
        cohort=found.cohort,
        m_factor=settings.m_factor if compat else 1.0,
        seed=settings.seed,
        notes=tuple(notes),
        _rates={m: v for m, v in found.rates.items() if m in (*_COLUMNS, *SMALL)},
        _models=tuple(found.models),
        _dropped=found.dropped,
        _n_read=found.n_read,
    )
