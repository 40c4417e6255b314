"""What the analyses of rates share: their options, estimates from a covariance, replicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfair.analyses.replicates import Replicates
from cfair.cohort import Cohort
from cfair.inference.aggregate import AGGREGATE_INTERVALS
from cfair.inference.drawn_estimates import DrawnEstimates
from cfair.inference.estimates import RateEstimates, most_df
from cfair.inference.influence import RateCovariance
from cfair.inference.intervals import RATE_INTERVALS
from cfair.inference.replicates import (
    RateDraws,
    Refittable,
    bootstrap_rates,
    permuted_rates,
)
from cfair.nuisance.propensity import check_truncation
from cfair.options import check_level, check_option
from cfair.results.deltas import check_deltas


@dataclass(frozen=True)
class Options:
    """Options of intervals and summaries, checked before any work.

    Attributes
    ----------
    level : float
    interval, aggregate_interval : str
    truncation : (float, float)
    u_delta : float or dict
    """

    level: float
    interval: str
    aggregate_interval: str
    truncation: tuple[float, float]
    u_delta: Any


def check_options(
    level: Any, interval: Any, aggregate_interval: Any, truncation: Any, u_delta: Any
) -> Options:
    """Check the options of intervals and summaries.

    Parameters
    ----------
    level, interval, aggregate_interval, truncation, u_delta
        As the user gave them.

    Returns
    -------
    Options

    Raises
    ------
    ValueError
        For a value that is not allowed.
    """
    check_deltas(u_delta)
    check_option("interval", interval, RATE_INTERVALS)
    check_option("aggregate_interval", aggregate_interval, AGGREGATE_INTERVALS)
    return Options(
        check_level(level), interval, aggregate_interval, check_truncation(truncation), u_delta
    )


def influence_estimates(
    joint: RateCovariance, cohort: Cohort, metrics: Sequence[str]
) -> list[RateEstimates]:
    """Estimates whose covariance is from influence functions.

    Parameters
    ----------
    joint : RateCovariance
        Of all metrics, one after the other.
    cohort : Cohort
    metrics : sequence of str

    Returns
    -------
    list of RateEstimates
    """
    found = []
    for metric, at in zip(metrics, _parts(joint, len(metrics)), strict=True):
        found.append(
            RateEstimates(
                metric,
                cohort.groups.n_groups,
                joint.estimate[at],
                joint.covariance[at, at],
                joint.kish[at],
                max_df=most_df(cohort.n_clusters, joint.clusters, at),
                n_clusters=cohort.n_clusters,
            )
        )
    return found


def drawn_estimates(
    joint: RateCovariance,
    cohort: Cohort,
    metrics: Sequence[str],
    spread: RateDraws | None,
    no_variance: str,
) -> list[DrawnEstimates]:
    """Estimates whose covariance is from bootstrap replicates, where it is known.

    Parameters
    ----------
    joint : RateCovariance
        Of all metrics, one after the other.
    cohort : Cohort
    metrics : sequence of str
    spread : RateDraws or None
        The replicates that the covariance is from.
    no_variance : str
        Why a rate has no variance, if it has none.

    Returns
    -------
    list of DrawnEstimates
    """
    clusters, K = cohort.n_clusters, cohort.groups.n_groups
    found = []
    for metric, at in zip(metrics, _parts(joint, len(metrics)), strict=True):
        covariance = joint.covariance[at, at]
        known = ~np.isnan(np.diag(covariance)[:K])
        # of the group that is defined in the fewest, so that nothing counts as better known
        drawn = None
        if spread is not None and known.any():
            drawn = int(spread.n_valid(metric)[:K][known].min())
        max_df = most_df(cohort.n_clusters, joint.clusters, at)
        found.append(
            DrawnEstimates(
                metric,
                K,
                joint.estimate[at],
                covariance,
                joint.kish[at],
                max_df=max_df if drawn is None else np.minimum(max_df, drawn - 1),
                n_clusters=clusters,
                no_variance=no_variance,
                n_replicates=drawn,
            )
        )
    return found


def _parts(joint: RateCovariance, n_metrics: int) -> list[slice]:
    T = len(joint.estimate) // n_metrics
    return [slice(m * T, (m + 1) * T) for m in range(n_metrics)]


def bootstrapped(
    estimator: Refittable, cohort: Cohort, replicates: Replicates, what: str = "models"
) -> RateDraws | None:
    """Bootstrap replicates, if they are wanted.

    Parameters
    ----------
    estimator : Refittable
    cohort : Cohort
    replicates : Replicates
    what : str, default "models"
        What is refitted, for the print.

    Returns
    -------
    RateDraws or None
    """
    if not replicates.bootstraps:
        return None
    return bootstrap_rates(
        estimator,
        kind=replicates.require_kind(cohort),
        n_boot=replicates.n_boot,
        seed=replicates.seed,
        resamples=replicates.resamples,
        cluster=cohort.cluster,
        what=what,
        n_jobs=replicates.n_jobs,
        progress=replicates.progress,
    )


def permuted(
    estimator: Refittable, replicates: Replicates, what: str = "models"
) -> RateDraws | None:
    """Replicates with group labels exchanged, if they are wanted.

    Parameters
    ----------
    estimator : Refittable
    replicates : Replicates
    what : str, default "models"
        What is refitted, for the print.

    Returns
    -------
    RateDraws or None
    """
    if not replicates.permutes:
        return None
    return permuted_rates(
        estimator,
        n_perm=replicates.n_perm,
        seed=replicates.seed,
        permutations=replicates.permutations,
        what=what,
        n_jobs=replicates.n_jobs,
        progress=replicates.progress,
    )
