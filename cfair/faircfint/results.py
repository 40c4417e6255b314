"""What an analysis gives back: the R function's outputs by their names, and a printed table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import CfairWarning, warn
from cfair.estimators.disparity import disparities
from cfair.estimators.ipw import ipw_weights
from cfair.faircfint.intervals import too_few
from cfair.faircfint.reading import pasted, twice
from cfair.faircfint.settings import Settings
from cfair.frame import show_some
from cfair.groups import Groups
from cfair.inference.bootstrap import MIN_VALID
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.propensity import Propensity
from cfair.nuisance.small_outcome import CallOutcome
from cfair.results import text
from cfair.results.printed import Printed
from cfair.results.report import (
    MAX_GROUPS,
    MAX_MARGINS,
    attribute_rows,
    cohort_facts,
    notes_lines,
    plural,
    treatment_fact,
)

Array = NDArray[np.float64]
#: Rates of groups, margins and all rows, an array (replicates, targets) for each metric.
Rates = dict[str, Array]

#: The rates of small groups, by Bayes' rule.
SMALL: tuple[str, str] = ("cfpr_small", "cfnr_small")
#: The three summaries by their R names, in the order of `cfair.estimators.disparities`.
SUMMARIES: tuple[str, str, str] = ("avg", "max", "var")
#: Which rate a summary is of.
SIGNS = {"neg": "cfnr", "pos": "cfpr"}
_COLUMNS = {
    "cfpr": "cFPR",
    "cfnr": "cFNR",
    "cfpr_small": "cFPR small",
    "cfnr_small": "cFNR small",
    "fpr": "FPR",
    "fnr": "FNR",
}
_TURNED = (
    "; R's intervals are these turned round the estimate, and can lie beside it (compat=False: "
    "around it)"
)


# -- figures by their R names ---------------------------------------------------------------------


def group_names(groups: Groups, *, compat: bool) -> tuple[str, ...]:
    """Names of the groups: pasted labels; without `compat` those that collide are kept apart."""
    names = pasted(groups)
    return groups.names if not compat and twice(names) else names


def figure_table(rates: Mapping[str, Array], groups: Groups, *, compat: bool) -> pd.DataFrame:
    """All figures of estimates or replicates, by their R names, a row for each."""
    of_groups = {metric: values[:, : groups.n_groups] for metric, values in rates.items()}
    three = {
        sign + end: np.column_stack(
            summaries(of_groups[metric + end], compat=compat, small=bool(end))
        )
        for end in ("", "_small")
        for sign, metric in SIGNS.items()
        if metric + end in rates
    }
    return in_order(rates, three, groups, compat=compat)


def in_order(
    rates: Mapping[str, Array], three: Mapping[str, Array], groups: Groups, *, compat: bool
) -> pd.DataFrame:
    """Put values (R, T) of rates, and (R, 3) of their summaries, in the order of ``defs``."""
    K, M = groups.n_groups, len(groups.margins)
    own = list(group_names(groups, compat=compat))
    single = [
        f"marg_{attribute}_{level}"
        for attribute, levels in zip(groups.attributes, groups.level_names, strict=True)
        for level in levels
    ]
    parts = [(metric, own, rates[metric][:, :K]) for metric in ("fpr", "fnr", "cfpr", "cfnr")]
    parts += [(metric, single, rates[metric][:, K : K + M]) for metric in ("cfpr", "cfnr")]
    names = [f"{metric}_{name}" for metric, ends, _ in parts for name in ends]
    names += [f"{statistic}_{sign}" for sign in SIGNS for statistic in SUMMARIES]
    blocks = [*(values for _, _, values in parts), *(three[sign] for sign in SIGNS)]
    if SMALL[0] in rates:
        names += [f"{metric}_{name}" for metric in SMALL for name in own]
        names += [f"{statistic}_{sign}_small" for sign in SIGNS for statistic in SUMMARIES]
        blocks += [rates[metric][:, :K] for metric in SMALL]
        blocks += [three[f"{sign}_small"] for sign in SIGNS]
    return pd.DataFrame(np.hstack(blocks), columns=pd.Index(names))


def summaries(rates: Array, *, compat: bool, small: bool = False) -> tuple[Array, Array, Array]:
    """Average, maximum and variance of the absolute differences between groups, (R,) each.

    With `compat` rates (R, K) of exactly 0 or 1 are left out; where pairs are left but none is
    defined, the maximum is minus infinity; of small groups one undefined rate makes all three
    undefined.

    Examples
    --------
    >>> import numpy as np
    >>> nothing = np.array([[np.nan, 0.2, np.nan], [0.0, 0.2, 1.0], [0.0, 0.2, 0.3]])
    >>> [x.round(3).tolist() for x in summaries(nothing, compat=True)]
    [[nan, nan, 0.1], [-inf, nan, 0.1], [nan, nan, nan]]
    """
    average, maximum, variance = disparities(rates, drop_boundary=compat)
    if not compat:
        return average, maximum, variance
    undefined = np.isnan(rates)
    if small:
        broken = undefined.any(axis=-1)
        average, maximum, variance = (
            np.where(broken, np.nan, part) for part in (average, maximum, variance)
        )
        return average, maximum, variance
    kept = np.sum((rates != 0) & (rates != 1), axis=-1)  # undefined ones are
    nothing = (kept >= 2) & (np.sum(undefined, axis=-1) > kept - 2)
    return average, np.where(nothing, -np.inf, maximum), variance


# -- the result -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class AnalysisResult(Printed):
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

    @property
    def small(self) -> bool:
        """Whether rates of small groups were estimated."""
        return self.estimator_type != "standard"

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        facts = self._facts()
        return text.page(
            f"faircfint: {self.estimator_type} estimator, compat {self.compat}",
            [
                text.facts(facts, indent=max(13, *(2 + len(name) for name, _ in facts))),
                self._group_lines(),
                self._margin_lines(),
                self._summary_lines(),
                notes_lines(self.notes),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        c = self.cohort
        missing = ", ".join(f"{name} missing ({n})" for name, n in c.dropped.by_column.items())
        left_out = f"{c.dropped.n:,} dropped: {missing}" if missing else "none dropped"
        rows = f"{c.n_read:,} rows, {text.count(c.n_used)} used ({left_out})"
        facts = [("cohort", rows), *cohort_facts(c)[1:3], treatment_fact(c), *self._models]
        if self.alpha is not None:
            facts.append(("borrowing", f"alpha {self.alpha:.4g}, the share of the external model"))
        for name, table in (("null", self.table_null), ("bootstrap", self.boot_out)):
            if table is not None:
                turned = self.compat and name == "bootstrap"
                facts.append((name, f"{plural(len(table), 'replicate')}{_TURNED * turned}"))
        how = (
            "True: the figures of the R package; cfair.faircfint lists where cfair differs"
            if self.compat
            else "False: cfair's own analyses under the R package's names"
        )
        return [*facts, ("compat", how), ("seed", str(self.seed))]

    def _lines(self, header: list[str], names: list[list[str]], targets: list[int]) -> list[str]:
        metrics = [m for m in _COLUMNS if m in self._rates]
        rows = [
            [*own, *(text.number(float(self._rates[m][0, t])) for m in metrics)]
            for own, t in zip(names, targets, strict=True)
        ]
        return text.table([*header, *(_COLUMNS[m] for m in metrics)], rows, left=len(header) - 1)

    def _group_lines(self) -> list[str]:
        groups = self.cohort.groups
        shown = list(range(min(groups.n_groups, MAX_GROUPS)))
        names = [[*attribute_rows(groups, k), text.count(groups.sizes[k])] for k in shown]
        hidden = groups.n_groups - len(shown)
        more = f"... {hidden:,} groups not shown; .defs has all"
        return self._lines([*groups.attributes, "n"], names, shown) + [more] * (hidden > 0)

    def _margin_lines(self) -> list[str]:
        groups = self.cohort.groups
        sizes = groups.margin_matrix @ groups.sizes
        levels = groups.margin_names[:MAX_MARGINS]
        names = [["all", text.count(self.cohort.n_used)]]
        names += [[text.one_line(n), text.count(sizes[k])] for k, n in enumerate(levels)]
        targets = [-1, *range(groups.n_groups, groups.n_groups + len(levels))]
        return self._lines(["single attributes", "n"], names, targets)

    def _summary_lines(self) -> list[str]:
        rows = []
        for end in ("", "_small") if self.small else ("",):
            for sign, metric in reversed(SIGNS.items()):
                figures = [float(self.defs[f"{statistic}_{sign}{end}"]) for statistic in SUMMARIES]
                shown = [text.number(v, d) for v, d in zip(figures, (3, 3, 5), strict=True)]
                if figures[1] == -np.inf:
                    shown[1] = "-∞"
                rows.append([f"  {_COLUMNS[metric + end]}", *shown])
        return text.table(["|difference|", "average", "maximum", "variance"], rows, gap=3)


def make_result(
    s: Settings,
    cohort: Cohort,
    rates: Rates,
    null: Rates | None,
    boot: Rates | None,
    alpha: float | None,
    of_rows: Mapping[str, Any],
    notes: Iterable[str],
) -> AnalysisResult:
    """Put what was found into the R function's outputs."""
    tables = {
        name: None if found is None else figure_table(found, cohort.groups, compat=s.compat)
        for name, found in (("defs", rates), ("null", null), ("boot", boot))
    }
    assert tables["defs"] is not None
    defs = tables["defs"].iloc[0].rename("defs")
    notes = list(dict.fromkeys(notes))
    alike = twice(defs.index.tolist())
    if alike:
        notes.append(f"two groups have the same pasted label: {show_some(alike, 4)} occur twice")
    n_boot = MIN_VALID if tables["boot"] is None else len(tables["boot"])
    if n_boot < MIN_VALID and (s.compat or s.small):  # others have intervals without a bootstrap
        notes.append(f"no intervals from the bootstrap: {too_few(n_boot)}")
        warn(f"{notes[-1]}.", CfairWarning)
    models = [("propensity", of_rows["pi_model"].text)]
    if s.small:
        folds = f"{of_rows['folds'].nunique()} folds"
        models += [
            ("outcome model", f"{of_rows['outcome_model'].text}, {s.outcome_model_type}"),
            ("membership", f"{' + '.join(s.pa_xvars_int)}, {s.fit_method_int}, {folds}"),
        ]
    return AnalysisResult(
        defs=defs,
        est_choice={"defs": defs, **of_rows},
        table_null=tables["null"],
        boot_out=tables["boot"],
        alpha=alpha,
        compat=s.compat,
        estimator_type=s.estimator_type,
        cohort=cohort,
        m_factor=s.m_factor if s.compat else 1.0,
        seed=s.seed,
        notes=tuple(notes),
        _rates=rates,
        _models=tuple(models),
    )


def standard_rows(cohort: Cohort, propensity: Propensity | None) -> dict[str, Any]:
    """What the standard estimator knows of each row, by its R name, and the model behind it."""
    assert cohort.d is not None
    assert propensity is not None
    found = {
        "propensity": propensity.pi,
        "y0_weighted": ipw_weights(cohort.d, propensity.pi) * cohort.y,
    }
    return {**_by_row(cohort, found), "pi_model": propensity}


def small_rows(
    cohort: Cohort, outcome: CallOutcome, folds: Folds, members: Mapping[str, Array], compat: bool
) -> dict[str, Any]:
    """The same of the estimators of small groups; `members` are probabilities of the groups."""
    names = pd.Index(group_names(cohort.groups, compat=compat))
    found = {
        "mu0hat": outcome.mu0,
        "mu0S1hat": outcome.mu0_s1,
        "mu0S0hat": outcome.mu0_s0,
        "folds": folds.codes + 1,
    }
    frames = {name: pd.DataFrame(p, cohort.index, columns=names) for name, p in members.items()}
    return {**_by_row(cohort, found), **frames, "outcome_model": outcome}


def _by_row(cohort: Cohort, found: Mapping[str, NDArray[Any]]) -> dict[str, pd.Series]:
    return {name: pd.Series(values, cohort.index, name=name) for name, values in found.items()}
