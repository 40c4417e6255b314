"""Counterfactual error rates under no treatment: the record of one analysis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import chdtrc

from cfair.errors import DataError
from cfair.estimators.disparity import STATISTICS, disparities
from cfair.estimators.ipw import ipw_weights, rates_from_cells
from cfair.inference.bootstrap import MIN_VALID, BootstrapDraws, bootstrap_interval
from cfair.inference.influence import RateCovariance
from cfair.inference.permutation import PermutationNull
from cfair.inference.uvalue import permutation_p_values, u_values
from cfair.nuisance.overlap import Overlap
from cfair.nuisance.propensity import Propensity
from cfair.options import check_level, check_option
from cfair.results import text
from cfair.results.rates import RatesResult
from cfair.results.report import (
    aggregate_lines,
    cohort_facts,
    equality_line,
    group_table,
    largest_gap_lines,
    margin_table,
    notes_lines,
    treatment_fact,
)

Array = NDArray[np.float64]

#: The two counterfactual rates, always the first two metrics of the result.
COUNTERFACTUAL: tuple[str, str] = ("cfpr", "cfnr")
_INTERVAL_NAMES = {
    "wilson": "Wilson on the effective size",
    "logit": "normal on the logit scale",
    "plain": "normal",
}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CounterfactualResult(RatesResult):
    """Counterfactual false positive and false negative rates under no treatment.

    ``rates`` holds four metrics: ``cfpr`` and ``cfnr``, and beside them the observed ``fpr`` and
    ``fnr`` of all rows.

    Attributes
    ----------
    estimator : str
        Name of the estimator.
    propensity : Propensity
    joint : RateCovariance
        cFPR and cFNR of all targets with their joint covariance.
    overlap : Overlap
        Diagnostics of the weights.
    null : PermutationNull or None
    null_wald : tuple of float
        Observed Wald statistics of cFPR and cFNR as the permutations compute them: with rows as
        independent. Empty without permutations.
    boot : BootstrapDraws or None
    boot_kind : str or None
    u_delta : float
        Delta of the printed u-values of average and maximum; the variance takes its square.
    """

    estimator: str = "IPW"
    propensity: Propensity
    joint: RateCovariance
    overlap: Overlap
    null: PermutationNull | None = None
    null_wald: tuple[float, ...] = ()
    boot: BootstrapDraws | None = None
    boot_kind: str | None = None
    u_delta: float | dict[str, float] = 0.1

    @property
    def compared(self) -> tuple[str, ...]:
        """Metrics that comparisons are about unless told otherwise: the counterfactual ones."""
        return COUNTERFACTUAL

    @property
    def about(self) -> str:
        """What kind of rates these are, for the plots."""
        return f"Had nobody been treated: {self.estimator}"

    # -- per row --------------------------------------------------------------------------------

    @property
    def propensities(self) -> pd.Series:
        """Truncated propensities on the caller's index."""
        return pd.Series(self.propensity.pi, index=self.cohort.index, name="propensity", copy=True)

    @property
    def weights(self) -> pd.Series:
        """Weights (1 - D)/(1 - pi) on the caller's index; 0 for treated rows."""
        assert self.cohort.d is not None
        w = ipw_weights(self.cohort.d, self.propensity.pi)
        return pd.Series(w, index=self.cohort.index, name="weight")

    @property
    def covariance(self) -> pd.DataFrame:
        """Joint covariance of cFPR and cFNR of the groups, from their influence functions."""
        K, T = self.cohort.groups.n_groups, len(self.estimates[0].estimate)
        at = np.concatenate([np.arange(K), T + np.arange(K)])
        labels = pd.MultiIndex.from_tuples(
            [(metric, name) for metric in COUNTERFACTUAL for name in self.cohort.groups.names],
            names=["metric", "group"],
        )
        return pd.DataFrame(self.joint.covariance[np.ix_(at, at)], index=labels, columns=labels)

    # -- replicates -----------------------------------------------------------------------------

    @property
    def null_draws(self) -> pd.DataFrame:
        """Replicates of the permutation null: columns (metric, group), (metric, statistic)."""
        return self._null_draws.copy()

    @cached_property
    def _null_draws(self) -> pd.DataFrame:
        if self.null is None:
            return self._no_draws()
        return self._draws(self.null.cells, self.null.observed)

    @property
    def boot_draws(self) -> pd.DataFrame:
        """Bootstrap replicates: columns (metric, group), (metric, statistic), and the margins."""
        return self._boot_draws.copy()

    @cached_property
    def _boot_draws(self) -> pd.DataFrame:
        if self.boot is None:
            return self._no_draws()
        return self._draws(self.boot.cells, self.boot.observed)

    @staticmethod
    def _no_draws() -> pd.DataFrame:
        columns = pd.MultiIndex.from_arrays([[], []], names=["metric", "quantity"])
        return pd.DataFrame(columns=columns, dtype=float)

    def _draws(self, cells: Array, observed: Array) -> pd.DataFrame:
        groups = self.cohort.groups
        membership = np.vstack([np.eye(groups.n_groups), groups.margin_matrix])
        names = [*groups.names, *groups.margin_names]
        columns: list[tuple[str, str]] = []
        values: list[Array] = []
        for sums, metrics in ((cells, COUNTERFACTUAL), (observed, ("fpr", "fnr"))):
            both = rates_from_cells(np.einsum("tk,rkys->rtys", membership, sums))
            for metric, rates in zip(metrics, both, strict=True):
                columns += [(metric, name) for name in names]
                values.append(rates)
                if metric in COUNTERFACTUAL:
                    columns += [(metric, statistic) for statistic in STATISTICS]
                    values.append(np.column_stack(disparities(rates[:, : groups.n_groups])))
        labels = pd.MultiIndex.from_tuples(columns, names=["metric", "quantity"])
        frame = pd.DataFrame(np.column_stack(values), columns=labels)
        frame.index.name = "replicate"
        return frame

    def _null_statistics(self, metric: str) -> Array:
        assert self.null is not None
        rates = rates_from_cells(self.null.cells)[COUNTERFACTUAL.index(metric)]
        return np.column_stack(disparities(rates))

    def _more_columns(self, metric: str, targets: slice) -> dict[str, Array]:
        if self.boot is None or metric not in COUNTERFACTUAL:
            return (
                {} if self.boot is None else _empty_boot(len(self.estimates[0].estimate[targets]))
            )
        limits = self._boot_limits(metric, "default", self.level)
        return {
            "boot_se": limits.se[targets],
            "boot_low": limits.low[targets],
            "boot_high": limits.high[targets],
            "boot_valid": limits.n_valid[targets],
        }

    def _boot_limits(self, metric: str, kind: str, level: float) -> Any:
        assert self.boot is not None
        if kind == "default":
            kind = "basic" if self.boot_kind == "faircfint" else "percentile"
        groups = self.cohort.groups
        membership = np.vstack(
            [np.eye(groups.n_groups), groups.margin_matrix, np.ones((1, groups.n_groups))]
        )
        sums = np.einsum("tk,rkys->rtys", membership, self.boot.cells)
        draws = rates_from_cells(sums)[COUNTERFACTUAL.index(metric)]
        return bootstrap_interval(self.estimates_of(metric).estimate, draws, kind, level)

    def bootstrap_intervals(
        self, kind: str = "percentile", level: float | None = None
    ) -> pd.DataFrame:
        """Intervals of the counterfactual rates from the bootstrap replicates.

        Parameters
        ----------
        kind : {"percentile", "bc", "normal", "basic"}, default "percentile"
        level : float, optional
            That of the result by default.

        Returns
        -------
        pandas.DataFrame
            ``metric, group, estimate, se, ci_low, ci_high, n_valid, note``. The summaries of the
            differences are not here: a percentile interval of a quantity that cannot be negative
            never holds 0.

        Raises
        ------
        DataError
            If no bootstrap was asked for.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
        ... )
        >>> result = audit.counterfactual("treated ~ race + risk + age + sbp", n_boot=100)
        >>> frame = result.bootstrap_intervals("normal")
        >>> frame[["metric", "group", "n_valid"]].head(3)
          metric  group  n_valid
        0   cfpr  Black      100
        1   cfpr  Other      100
        2   cfpr  White      100
        """
        if self.boot is None:
            raise DataError(
                "this result has no bootstrap replicates. Give n_boot= to the analysis."
            )
        level = self.level if level is None else check_level(level)
        K = self.cohort.groups.n_groups
        parts = []
        for metric in COUNTERFACTUAL:
            limits = self._boot_limits(metric, kind, level)
            n_boot = len(self.boot.cells)
            notes = [
                ""
                if np.isfinite(low)
                else f"defined in {n} of {n_boot} replicates, fewer than {MIN_VALID}"
                if n < MIN_VALID
                else "all replicates are equal"
                for low, n in zip(limits.low[:K], limits.n_valid[:K], strict=True)
            ]
            parts.append(
                pd.DataFrame(
                    {
                        "metric": metric,
                        "group": list(self.cohort.groups.names),
                        "estimate": self.estimates_of(metric).estimate[:K],
                        "se": limits.se[:K],
                        "ci_low": limits.low[:K],
                        "ci_high": limits.high[:K],
                        "n_valid": limits.n_valid[:K],
                        "note": notes,
                    }
                )
            )
        return pd.concat(parts, ignore_index=True)

    def u_values(self, delta: float | dict[str, float] = 0.1) -> pd.DataFrame:
        """Share of null replicates that the observed disparity exceeds by more than delta.

        Parameters
        ----------
        delta : float or dict, default 0.1
            On the scale of the rates; the variance takes its square. A dict gives each statistic
            (``average``, ``maximum``, ``variance``) its own.

        Returns
        -------
        pandas.DataFrame
            ``metric, statistic, estimate, delta, u_value, n_valid``.

        Raises
        ------
        DataError
            If no permutations were asked for.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
        ... )
        >>> result = audit.counterfactual("treated ~ race + risk + age + sbp", n_perm=99)
        >>> frame = result.u_values(0.05)
        >>> frame[["metric", "statistic", "delta", "n_valid"]].head(3)
          metric statistic   delta  n_valid
        0   cfpr   average  0.0500       99
        1   cfpr   maximum  0.0500       99
        2   cfpr  variance  0.0025       99
        """
        if self.null is None:
            raise DataError("this result has no permutation null. Give n_perm= to the analysis.")
        deltas = check_deltas(delta)
        parts = []
        for k, metric in enumerate(COUNTERFACTUAL):
            aggregate = self.aggregate(k)
            share = u_values(aggregate.estimate, self._null_statistics(metric), deltas)
            parts.append(
                pd.DataFrame(
                    {
                        "metric": metric,
                        "statistic": list(STATISTICS),
                        "estimate": aggregate.estimate,
                        "delta": deltas,
                        "u_value": share.value,
                        "n_valid": share.n_valid,
                    }
                )
            )
        return pd.concat(parts, ignore_index=True)

    def _more_disparities(self, frame: pd.DataFrame) -> pd.DataFrame:
        columns = {
            name: np.full(len(frame), np.nan)
            for name in ("p_value", "p_value_studentized", "u_value", "u_delta")
        }
        n_valid = np.zeros(len(frame), dtype=int)
        note = np.full(len(frame), "", dtype=object)
        counterfactual = frame["metric"].isin(COUNTERFACTUAL).to_numpy()
        note[~counterfactual] = "the null permutes for counterfactual rates only"
        if self.null is None:
            note[counterfactual] = "no permutations (n_perm=)"
        else:
            u = self.u_values(self.u_delta)
            for k, metric in enumerate(COUNTERFACTUAL):
                at = (frame["metric"] == metric).to_numpy()
                p = permutation_p_values(self.aggregate(k).estimate, self._null_statistics(metric))
                columns["p_value"][at] = p.value
                columns["p_value_studentized"][at] = self.studentized_p_value(metric)
                mine = u[u["metric"] == metric]
                columns["u_value"][at] = mine["u_value"]
                columns["u_delta"][at] = mine["delta"]
                n_valid[at] = p.n_valid
                note[at] = [
                    "" if n == len(self.null.cells) else f"{len(self.null.cells) - n} undefined"
                    for n in p.n_valid
                ]
        return frame.assign(**columns, n_valid=n_valid, note=note)

    def studentized_p_value(self, metric: str) -> float:
        """Permutation p-value of the logit Wald statistic, recomputed in every permutation.

        Each difference is divided by its standard error in the permutation too, so that the p-value
        reacts less than the plain one to groups that differ in size, prevalence or treatment but
        not in the rate. Rows count as independent, observed and permuted alike.

        Parameters
        ----------
        metric : {"cfpr", "cfnr"}

        Returns
        -------
        float
            NaN without permutations.
        """
        if self.null is None:
            return float("nan")
        k = COUNTERFACTUAL.index(metric)
        # Tail probabilities are compared, since a replicate can leave a group without a rate.
        defined = np.count_nonzero(~np.isnan(rates_from_cells(self.null.cells)[k]), axis=-1)
        null = np.asarray(chdtrc(np.maximum(defined - 1, 1).astype(float), self.null.wald[:, k]))
        groups = self.estimates[k].estimate[: self.cohort.groups.n_groups]
        observed = chdtrc(max(np.count_nonzero(~np.isnan(groups)) - 1.0, 1.0), self.null_wald[k])
        p = permutation_p_values(np.array([-observed]), -null[:, None])
        return float(p.value[0])

    # -- plots ----------------------------------------------------------------------------------

    def plot_null(self, metric: str = "cfpr", statistic: str = "average", *, ax: Any = None) -> Any:
        """Histogram of the permutation null with the observed disparity.

        Parameters
        ----------
        metric : {"cfpr", "cfnr"}, default "cfpr"
        statistic : {"average", "maximum", "variance"}, default "average"
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_null

        check_option("metric", metric, COUNTERFACTUAL)
        check_option("statistic", statistic, STATISTICS)
        if self.null is None:
            raise DataError("this result has no permutation null. Give n_perm= to the analysis.")
        at = (self._disparities["metric"] == metric) & (self._disparities["statistic"] == statistic)
        row = self._disparities[at].iloc[0]
        return plot_null(
            self._null_statistics(metric)[:, STATISTICS.index(statistic)],
            row["estimate"],
            title=f"{self.rows[COUNTERFACTUAL.index(metric)].label}: {statistic} difference",
            p_value=row["p_value"],
            u_value=row["u_value"],
            delta=row["u_delta"],
            ax=ax,
        )

    def plot_overlap(self, *, by_group: bool = False, ax: Any = None) -> Any:
        """Propensities of the treated and the untreated.

        Parameters
        ----------
        by_group : bool, default False
            A row per group instead of all rows together.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_overlap

        groups = self.cohort.groups
        assert self.cohort.d is not None
        return plot_overlap(
            self.propensity.fitted,
            self.cohort.d,
            group=groups.codes if by_group else None,
            names=groups.names if by_group else None,
            truncation=self.propensity.truncation,
            ax=ax,
        )

    # -- text -----------------------------------------------------------------------------------

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        return text.page(
            f"Counterfactual error rates under no treatment, {self.estimator}",
            [
                text.facts(self._facts()),
                group_table(self, self._header(), self._cells),
                margin_table(self, self._header(), self._cells),
                self._differences(),
                notes_lines(self.notes),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        low, high = self.propensity.truncation
        cut = int(np.count_nonzero(self.propensity.truncated))
        clusters = "" if self.cohort.cluster is None else f"; clusters: {self.cohort.cluster_name}"
        kind = _INTERVAL_NAMES[self.interval]
        facts = [
            *cohort_facts(self.cohort),
            treatment_fact(self.cohort),
            (
                "propensity",
                f"{self.propensity.text};  {cut:,} rows truncated to [{low:g}, {high:g}]",
            ),
            ("intervals", f"{100 * self.level:g}%, influence functions, {kind}{clusters}"),
        ]
        if self.boot is not None:
            facts.append(("bootstrap", self._boot_fact()))
        if self.null is not None:
            facts.append(("null", self._null_fact()))
        if self.boot is not None or self.null is not None:
            facts.append(("seed", str(self.seed)))
        return facts

    def _boot_fact(self) -> str:
        assert self.boot is not None
        failed = self.boot.not_converged
        undefined = int(np.isnan(self._boot_draws[list(COUNTERFACTUAL)]).any(axis=1).sum())
        parts = [f"{len(self.boot.cells):,} replicates ({self.boot.method})"]
        if undefined:
            parts.append(f"{undefined} with an undefined rate")
        if failed:
            parts.append(f"{failed} not converged")
        return "; ".join(parts)

    def _null_fact(self) -> str:
        assert self.null is not None
        parts = [f"{len(self.null.cells):,} permutations of the labels ({self.null.method})"]
        undefined = int(np.isnan(self._null_draws[list(COUNTERFACTUAL)]).any(axis=1).sum())
        if undefined:
            parts.append(f"{undefined} with an undefined rate")
        if self.null.not_converged:
            parts.append(f"{self.null.not_converged} not converged")
        return "; ".join(parts)

    def _cells(self, target: int) -> list[str]:
        cells = [text.count(self.counts[c][target]) for c in ("n", "untreated", "events")]
        for e in self.estimates:
            if e.metric in COUNTERFACTUAL:
                low, high = self.limits(e.metric)
                cells.append(text.estimate(e.estimate[target], low[target], high[target]))
            else:
                cells.append(text.number(e.estimate[target]))
        return cells

    def _header(self) -> list[str]:
        labels = [row.label for row in self.rows]
        return ["n", "untreated", "events", *labels]

    def _differences(self) -> list[str]:
        if np.count_nonzero(self.cohort.groups.sizes) < 2:
            return ["one group only: nothing to compare"]
        lines = [*equality_line(self, [0, 1]), *aggregate_lines(self, [0, 1])]
        if self.null is not None:
            lines += self._null_table()
        return lines + largest_gap_lines(self, [0, 1])

    def _null_table(self) -> list[str]:
        u = "u" if isinstance(self.u_delta, dict) else f"u({self.u_delta:g})"
        header = ["permutation", "p avg", "p max", "p studentized", f"{u} avg", f"{u} max"]
        rows = []
        for k, metric in enumerate(COUNTERFACTUAL):
            part = self._disparities[self._disparities["metric"] == metric].reset_index(drop=True)
            rows.append(
                [
                    f"  {self.rows[k].label}",
                    *(text.number(part["p_value"][j]) for j in (0, 1)),
                    text.number(part["p_value_studentized"][0]),
                    *(text.number(part["u_value"][j]) for j in (0, 1)),
                ]
            )
        return text.table(header, rows, gap=3)


def _empty_boot(size: int) -> dict[str, Array]:
    nothing = np.full(size, np.nan)
    return {
        "boot_se": nothing,
        "boot_low": nothing,
        "boot_high": nothing,
        "boot_valid": np.zeros(size, dtype=int),
    }


def check_deltas(delta: float | dict[str, float]) -> Array:
    """Delta of each statistic; one number goes to average and maximum, its square to the variance.

    Parameters
    ----------
    delta : float or dict

    Returns
    -------
    (3,) array

    Raises
    ------
    ValueError
        If it is not in [0, 1), or a statistic has none.
    """
    if isinstance(delta, dict):
        unknown = set(delta) - set(STATISTICS)
        if unknown or len(delta) < len(STATISTICS):
            raise ValueError(
                f"delta needs a value for each of {', '.join(STATISTICS)}, not {sorted(delta)}."
            )
        return np.array([_check_delta(delta[name]) for name in STATISTICS])
    one = _check_delta(delta)
    return np.array([one, one, one**2])


def _check_delta(delta: Any) -> float:
    number = isinstance(delta, (int, float, np.number)) and not isinstance(delta, bool)
    if not number or not 0 <= delta < 1:
        raise ValueError(f"delta must be a number in [0, 1), or one per statistic, not {delta!r}.")
    return float(delta)
