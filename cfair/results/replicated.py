"""Rates with replicates: what every result with a permutation null or a bootstrap can do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import chdtrc

from cfair.disclosure import MASKED
from cfair.errors import DataError
from cfair.estimators.disparity import STATISTICS, disparities
from cfair.inference.bootstrap import MIN_VALID, BootstrapInterval, bootstrap_interval
from cfair.inference.influence import RateCovariance
from cfair.inference.replicates import RateDraws
from cfair.inference.uvalue import permutation_p_values, u_values
from cfair.options import check_level, check_option
from cfair.results.deltas import check_deltas
from cfair.results.rates import RatesResult

Array = NDArray[np.float64]

_NO_BOOT = "this result has no bootstrap replicates. Give n_boot= to the analysis."
_NO_NULL = "this result has no permutation null. Give n_perm= to the analysis."
_NO_WALD = "no studentized p-value: the permutations have no standard errors"
_WALD_MASKED = "no studentized p-value: rates of some groups are masked"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ReplicatedResult(RatesResult):
    """Rates of which some are compared, with permutations and bootstrap replicates of them.

    Attributes
    ----------
    estimator : str
        Name of the estimator.
    joint : RateCovariance
        The compared metrics at all targets with their joint covariance.
    null : RateDraws or None
        Rates under permuted labels.
    null_wald : tuple of float
        Observed Wald statistics of the compared metrics as the permutations compute them: with rows
        as independent. Empty without permutations, or if these have no Wald statistics.
    boot : RateDraws or None
    boot_kind : str or None
    u_delta : float or dict
        Delta of the printed u-values of average and maximum; the variance takes its square.
    """

    estimator: str
    joint: RateCovariance
    null: RateDraws | None = None
    null_wald: tuple[float, ...] = ()
    boot: RateDraws | None = None
    boot_kind: str | None = None
    u_delta: float | dict[str, float] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        wald = None if self.null is None else self.null.wald
        if wald is not None and {wald.shape[1], len(self.null_wald)} != {len(self.compared)}:
            raise ValueError(
                f"{len(self.compared)} metrics are compared, but there are {len(self.null_wald)} "
                f"observed Wald statistics and {wald.shape[1]} of each permutation."
            )

    @property
    def compared(self) -> tuple[str, ...]:
        """Metrics that comparisons and replicates are about; the others stand beside them."""
        return self.metrics

    @property
    def covariance(self) -> pd.DataFrame:
        """Joint covariance of the compared metrics of the groups."""
        K, M = self.cohort.groups.n_groups, len(self.compared)
        T = len(self.joint.estimate) // M
        at = np.concatenate([m * T + np.arange(K) for m in range(M)])
        labels = pd.MultiIndex.from_tuples(
            [(metric, name) for metric in self.compared for name in self.cohort.groups.names],
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
        return self._draws(self.null)

    @property
    def boot_draws(self) -> pd.DataFrame:
        """Bootstrap replicates: columns (metric, group), (metric, statistic), and the margins."""
        return self._boot_draws.copy()

    @cached_property
    def _boot_draws(self) -> pd.DataFrame:
        return self._draws(self.boot)

    def _draws(self, draws: RateDraws | None) -> pd.DataFrame:
        if draws is None:
            nothing = pd.MultiIndex.from_arrays([[], []], names=["metric", "quantity"])
            return pd.DataFrame(columns=nothing, dtype=float)
        groups = self.cohort.groups
        names = [*groups.names, *groups.margin_names]
        columns: list[tuple[str, str]] = []
        values: list[Array] = []
        for metric, rates in draws.rates.items():
            # all rows together have no column, and some estimators have no margins either
            shown = names[: rates.shape[1]]
            columns += [(metric, name) for name in shown]
            values.append(rates[:, : len(shown)])
            if metric in self.compared:
                columns += [(metric, statistic) for statistic in STATISTICS]
                values.append(self._statistics(draws, metric))
        labels = pd.MultiIndex.from_tuples(columns, names=["metric", "quantity"])
        frame = pd.DataFrame(np.column_stack(values), columns=labels)
        frame.index.name = "replicate"
        return frame

    def _statistics(self, draws: RateDraws, metric: str) -> Array:
        """Average, maximum and variance of the differences in each replicate."""
        rates = draws.rates[metric][:, : self.cohort.groups.n_groups]
        return np.column_stack(disparities(rates))

    def _more_columns(self, metric: str, targets: slice) -> dict[str, Any]:
        if self.boot is None:
            return {}
        if metric not in self.compared:
            nothing = np.full(len(self.estimates_of(metric).estimate[targets]), np.nan)
            columns: dict[str, Any] = dict.fromkeys(("boot_se", "boot_low", "boot_high"), nothing)
            return {**columns, "boot_valid": np.zeros(len(nothing), dtype=int)}
        limits = self._boot_limits(metric, "default", self.level)
        return {
            "boot_se": limits.se[targets],
            "boot_low": limits.low[targets],
            "boot_high": limits.high[targets],
            "boot_valid": limits.n_valid[targets],
        }

    def _boot_limits(self, metric: str, kind: str, level: float) -> BootstrapInterval:
        assert self.boot is not None
        if kind == "default":
            kind = "basic" if self.boot_kind == "faircfint" else "percentile"
        estimate = self.estimates_of(metric).estimate
        return bootstrap_interval(estimate, self.boot.rates[metric], kind, level)

    def bootstrap_intervals(
        self, kind: str = "percentile", level: float | None = None
    ) -> pd.DataFrame:
        """Intervals of the compared rates from the bootstrap replicates.

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
            raise DataError(_NO_BOOT)
        level = self.level if level is None else check_level(level)
        K = self.cohort.groups.n_groups
        parts = []
        for metric in self.compared:
            limits = self._boot_limits(metric, kind, level)
            n_boot = self.boot.n_replicates
            why = self.rows[self.metrics.index(metric)].notes[:K]
            notes = [
                said
                if said.startswith(MASKED)
                else ""
                if np.isfinite(low)
                else f"defined in {n} of {n_boot} replicates, fewer than {MIN_VALID}"
                if n < MIN_VALID
                else "all replicates are equal"
                for low, n, said in zip(limits.low[:K], limits.n_valid[:K], why, strict=True)
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
            raise DataError(_NO_NULL)
        deltas = check_deltas(delta)
        parts = []
        for metric in self.compared:
            aggregate = self.aggregate(self.metrics.index(metric))
            share = u_values(aggregate.estimate, self._statistics(self.null, metric), deltas)
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
        compared = frame["metric"].isin(self.compared).to_numpy()
        note[~compared] = "the null permutes for the compared rates only"
        if self.null is None:
            note[compared] = "no permutations (n_perm=)"
            return frame.assign(**columns, n_valid=n_valid, note=note)
        u = self.u_values(self.u_delta)
        R = self.null.n_replicates
        for metric in self.compared:
            at = (frame["metric"] == metric).to_numpy()
            null = self._statistics(self.null, metric)
            p = permutation_p_values(self.aggregate(self.metrics.index(metric)).estimate, null)
            columns["p_value"][at] = p.value
            columns["p_value_studentized"][at] = self.studentized_p_value(metric)
            mine = u[u["metric"] == metric]
            columns["u_value"][at] = mine["u_value"]
            columns["u_delta"][at] = mine["delta"]
            n_valid[at] = p.n_valid
            note[at] = ["" if n == R else f"{R - n} undefined" for n in p.n_valid]
        if self.null.wald is None:
            hidden = any(self.masked(metric).any() for metric in self.metrics)
            why = _WALD_MASKED if hidden else _NO_WALD
            note[compared] = [f"{said}; {why}" if said else why for said in note[compared]]
        for e in self.estimates:
            lost = (frame["metric"] == e.metric) & frame["ci_low"].isna() & (note == "")
            note[lost] = e.equality.note or "a single pair has no variance"
        return frame.assign(**columns, n_valid=n_valid, note=note)

    def studentized_p_value(self, metric: str) -> float:
        """Permutation p-value of the logit Wald statistic, recomputed in every permutation.

        Each difference is divided by its standard error in the permutation too, so that the p-value
        reacts less than the plain one to groups that differ in size, prevalence or treatment but
        not in the rate. Rows count as independent, observed and permuted alike.

        Parameters
        ----------
        metric : str
            One of `compared`.

        Returns
        -------
        float
            NaN without permutations, and where these have no standard errors.
        """
        check_option("metric", metric, self.compared)
        if self.null is None or self.null.wald is None:
            return float("nan")
        m = self.compared.index(metric)
        K = self.cohort.groups.n_groups
        # Tail probabilities are compared, since a replicate can leave a group without a rate.
        defined = np.count_nonzero(~np.isnan(self.null.rates[metric][:, :K]), axis=-1)
        null = np.asarray(chdtrc(np.maximum(defined - 1, 1).astype(float), self.null.wald[:, m]))
        groups = self.estimates_of(metric).estimate[:K]
        observed = chdtrc(max(np.count_nonzero(~np.isnan(groups)) - 1.0, 1.0), self.null_wald[m])
        p = permutation_p_values(np.array([-observed]), -null[:, None])
        return float(p.value[0])

    def plot_null(
        self, metric: str | None = None, statistic: str = "average", *, ax: Any = None
    ) -> Any:
        """Histogram of the permutation null with the observed disparity.

        Parameters
        ----------
        metric : str, optional
            One of `compared`; the first by default.
        statistic : {"average", "maximum", "variance"}, default "average"
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_null

        metric = self.compared[0] if metric is None else metric
        check_option("metric", metric, self.compared)
        check_option("statistic", statistic, STATISTICS)
        if self.null is None:
            raise DataError(_NO_NULL)
        at = (self._disparities["metric"] == metric) & (self._disparities["statistic"] == statistic)
        row = self._disparities[at].iloc[0]
        return plot_null(
            self._statistics(self.null, metric)[:, STATISTICS.index(statistic)],
            row["estimate"],
            title=f"{self.rows[self.metrics.index(metric)].label}: {statistic} difference",
            p_value=row["p_value"],
            u_value=row["u_value"],
            delta=row["u_delta"],
            ax=ax,
        )
