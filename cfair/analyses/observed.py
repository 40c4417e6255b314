"""Observed rates of a cohort by group and attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.disclosure import KINDS, MASKED, told_small, why_rate_masked
from cfair.errors import DataError
from cfair.estimators.confusion import (
    LABELS,
    RATE_CELLS,
    RATES,
    confusion_counts,
    denominators,
    observed_rates,
)
from cfair.inference.aggregate import AGGREGATE_INTERVALS
from cfair.inference.contributions import TreatmentModel
from cfair.inference.estimates import CARE_BELOW, RateEstimates, most_df
from cfair.inference.influence import effective_sizes, rate_covariance
from cfair.inference.intervals import EDGE, NORMAL
from cfair.inference.moments import (
    CellMoments,
    ClusterScores,
    cell_moments,
    cluster_scores,
    counted_moments,
)
from cfair.options import check_level, check_option
from cfair.results.observed import METHODS, ObservedResult
from cfair.results.rates import MetricRows

Array = NDArray[np.float64]

#: Below this many clusters standard errors are themselves uncertain.
FEW_CLUSTERS = 30


def targets(cohort: Cohort) -> Array:
    """Membership of the groups in the targets: each group, each margin, all.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    (T, K) array of 0 and 1
    """
    return cohort.groups.target_matrix


def observed_moments(cohort: Cohort) -> tuple[CellMoments, ClusterScores | None]:
    """Cell sums of the observed rates, and by cluster if there are clusters.

    They are the weighted ones of a cohort in which it is certain that nobody is treated. Clusters
    without any weight are left out.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    moments : CellMoments
    scores : ClusterScores or None
    """
    if cohort.weights is None and cohort.cluster is None:
        return counted_moments(cell_counts(cohort)), None
    nobody = np.zeros(cohort.n_used, dtype=np.int8)
    certain = TreatmentModel(np.zeros(cohort.n_used))
    arrays = (cohort.y, cohort.s, nobody, cohort.groups.codes, certain, cohort.groups.n_groups)
    moments = cell_moments(*arrays, weights=cohort.weights)
    if cohort.cluster is None:
        return moments, None
    require_clusters(cohort)
    return moments, cluster_scores(*arrays, cohort.weighted_cluster, cohort.weights)


def cell_counts(cohort: Cohort) -> Array:
    """Rows by group, outcome and call.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    (K, 2, 2) array
    """
    repeats = None if cohort.repeats is None else cohort.repeats.astype(np.float64)
    return confusion_counts(
        cohort.y, cohort.s, cohort.groups.codes, cohort.groups.n_groups, repeats
    )


def require_clusters(cohort: Cohort) -> None:
    """Refuse a variance from fewer than two clusters.

    Parameters
    ----------
    cohort : Cohort

    Raises
    ------
    DataError
    """
    if cohort.n_clusters is not None and cohort.n_clusters < 2:
        raise DataError(
            f"cluster column {cohort.cluster_name!r} has only one value in the rows that count; a "
            "variance needs two clusters or more. Leave cluster= out, or name another column."
        )


def observed_estimates(
    cohort: Cohort,
    metrics: list[str],
    membership: Array | None = None,
    sums: tuple[CellMoments, ClusterScores | None] | None = None,
) -> list[RateEstimates]:
    """Estimates of observed rates for groups, margins and all rows, clustered if the cohort is.

    Under disclosure control a masked rate is undefined.

    Without weights or clusters a count is binomial, and Wilson's interval has the normal quantile.
    With weights its variance is estimated, and Student's quantile has the effective size less one
    degrees of freedom; with clusters no more than the clusters less one.

    Parameters
    ----------
    cohort : Cohort
    metrics : list of str
        Names in `RATES`.
    membership : (T, K) array of 0 and 1, optional
        Other unions of groups than those of `targets`.
    sums : (CellMoments, ClusterScores or None), optional
        From `observed_moments`, if they are there already.

    Returns
    -------
    list of RateEstimates
    """
    moments, scores = observed_moments(cohort) if sums is None else sums
    clusters = cohort.n_clusters

    if membership is None:
        membership = targets(cohort)
    T = len(membership)

    def build(metric: str) -> RateEstimates:
        parts = ("tpr", "tnr") if metric == "balanced_accuracy" else (metric,)
        cells = [RATE_CELLS[name] for name in parts]
        found = rate_covariance(moments, membership, cells, scores)
        raw = found.estimate.reshape(len(parts), T)
        theta, slope = raw.mean(axis=0), np.full_like(raw, 1 / len(parts))
        if metric == "f1":  # the estimate is the Jaccard index J; F1 = 2 J / (1 + J)
            theta, slope = 2 * theta / (1 + theta), 2 / (1 + raw) ** 2
        blocks = found.covariance.reshape(len(parts), T, len(parts), T)
        sigma = (slope[:, :, None, None] * blocks * slope).sum(axis=(0, 2))
        fewest = found.clusters
        if fewest is not None:
            fewest = fewest.reshape(len(parts), T).min(axis=0)
        plain = clusters is None and cohort.weights is None
        one = RateEstimates(
            metric,
            cohort.groups.n_groups,
            theta,
            sigma,
            found.kish.reshape(len(parts), T).min(axis=0),
            max_df=NORMAL if plain else most_df(clusters, fewest),
            n_clusters=clusters,
        )
        if cohort.weights is None:
            return one
        kish = effective_sizes(moments, membership, cells)[0].reshape(len(parts), T)
        return replace(one, max_size=_kish_size(theta, raw, slope, kish))

    return [build(metric).without(rate_masks(cohort, metric, membership) > 0) for metric in metrics]


def rate_masks(cohort: Cohort, metric: str, membership: Array | None = None) -> NDArray[np.int8]:
    """What becomes of an observed rate under disclosure control, see `cfair.disclosure`.

    Parameters
    ----------
    cohort : Cohort
    metric : str
        One of `RATES`.
    membership : (T, K) array of 0 and 1, optional

    Returns
    -------
    (T,) array
    """
    membership = targets(cohort) if membership is None else membership
    if cohort.protection is None:
        return np.zeros(len(membership), dtype=np.int8)
    parts = ("tpr", "tnr") if metric == "balanced_accuracy" else (metric,)
    found = np.stack(
        [cohort.protection.rate_masks(membership, *RATE_CELLS[m].indicators()) for m in parts]
    )
    worst: NDArray[np.int8] = np.where((found == 1).any(axis=0), 1, found.max(axis=0))
    return worst


def _told(cohort: Cohort, metric: str) -> list[str]:
    """Which count under a rate the table of rates shows to be small: it has rows and events."""
    if cohort.protection is None:
        return [""] * len(targets(cohort))
    of_events = metric in RATE_CELLS and np.array_equal(
        RATE_CELLS[metric].indicators()[1], KINDS["events"]
    )
    named = {"patients": "n"} | ({"events": "events"} if of_events else {})
    member = targets(cohort)
    return told_small({s: cohort.protection.masks(member, KINDS[k]) for s, k in named.items()})


def shown_counts(
    cohort: Cohort, kind: Array, values: Array, membership: Array | None = None
) -> Array:
    """Counts with the masks of disclosure control in them, if there is any.

    Parameters
    ----------
    cohort : Cohort
    kind : (2, 2) array of 0 and 1
        The cells of outcome and call that are counted.
    values : (T,) array
    membership : (T, K) array of 0 and 1, optional

    Returns
    -------
    (T,) array
    """
    if cohort.protection is None:
        return values
    membership = targets(cohort) if membership is None else membership
    return cohort.protection.counts(membership, kind, values)


def shown_denominators(
    cohort: Cohort, cells: Array, metric: str, membership: Array | None = None
) -> Array:
    """Rows in the denominator of an observed rate, masked where they have to be.

    Parameters
    ----------
    cohort : Cohort
    cells : (T, 2, 2) array
    metric : str
    membership : (T, K) array of 0 and 1, optional

    Returns
    -------
    (T,) array
    """
    among = KINDS["n"] if metric == "balanced_accuracy" else RATE_CELLS[metric].indicators()[1]
    return shown_counts(cohort, among, denominators(cells, metric), membership)


def _kish_size(theta: Array, raw: Array, slope: Array, kish: Array) -> Array:
    """Effective size of rates that are functions of proportions with Kish's effective sizes."""
    variance = np.sum(slope**2 * raw * (1 - raw) / np.where(kish > 0, kish, np.nan), axis=0)
    bounded = variance > 0  # else the rate is undefined, or 0 or 1 and on Kish's size already
    result: Array = np.where(bounded, theta * (1 - theta), np.inf) / np.where(bounded, variance, 1)
    return result


def observed_rows(cohort: Cohort, estimates: list[RateEstimates]) -> list[MetricRows]:
    """Denominators and notes of observed rates.

    Parameters
    ----------
    cohort : Cohort
    estimates : list of RateEstimates

    Returns
    -------
    list of MetricRows
    """
    cells = np.einsum("tk,kys->tys", targets(cohort), cell_counts(cohort))
    n = cells.sum(axis=(1, 2))
    unweighted = observed_rates(cells)
    rows = []
    for e in estimates:
        label, reason = LABELS[e.metric]
        # rows are there, but none that carries weight
        reasons = [
            ("no rows" if total == 0 else reason) + " of weight above 0" * (not np.isnan(rate))
            for total, rate in zip(n, unweighted[e.metric], strict=True)
        ]
        masked = [
            why_rate_masked(m, cohort.suppress_below or 0, few)
            for m, few in zip(rate_masks(cohort, e.metric), _told(cohort, e.metric), strict=True)
        ]
        notes = tuple(
            why or rate_note(*values)
            for why, *values in zip(masked, e.estimate, e.size, n, reasons, strict=True)
        )
        rows.append(MetricRows(label, shown_denominators(cohort, cells, e.metric), notes))
    return rows


def rate_note(theta: float, size: float, total: float, reason: str) -> str:
    """What has to be said about one rate.

    Parameters
    ----------
    theta : float
        NaN if undefined.
    size : float
        Effective size of the denominator.
    total : float
        Rows of the group.
    reason : str
        Why the rate is undefined, if it is.

    Returns
    -------
    str
    """
    if np.isnan(theta):
        return reason
    notes = []
    if size < CARE_BELOW:
        notes.append(f"effective size {size:.1f}: read with care")
    if min(abs(theta), abs(1 - theta)) <= EDGE:
        exactly = "exactly" if theta in (0.0, 1.0) else "all but"
        notes.append(f"{exactly} {theta:.0f}: Agresti-Coull standard error")
    return "; ".join(notes)


def observed(
    cohort: Cohort,
    *,
    level: float = 0.95,
    interval: str = "wilson",
    aggregate_interval: str = "tie-aware",
) -> ObservedResult:
    """Observed rates by intersectional group and by attribute.

    Parameters
    ----------
    cohort : Cohort
    level : float, default 0.95
    interval : {"wilson", "clopper-pearson", "agresti-coull"}, default "wilson"
        With weights or clusters all are on the effective size, the latter two on that of Korn and
        Graubard (1998), which is smaller by what Student's quantile is wider than the normal one.
    aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"

    Returns
    -------
    ObservedResult

    References
    ----------
    Korn EL, Graubard BI (1998). Confidence intervals for proportions with small expected number
    of positive counts estimated from survey data. Survey Methodology 24, 193-201.
    """
    check_option("interval", interval, METHODS)
    check_option("aggregate_interval", aggregate_interval, AGGREGATE_INTERVALS)
    moments, scores = observed_moments(cohort)
    estimates = observed_estimates(cohort, list(RATES))
    rows = observed_rows(cohort, estimates)
    return ObservedResult(
        cohort=cohort,
        estimates=tuple(estimates),
        rows=tuple(rows),
        counts=all_counts(cohort),
        _moments=moments,
        _cluster_scores=scores,
        level=check_level(level),
        interval=interval,
        aggregate_interval=aggregate_interval,
        notes=(
            *cohort.notes,
            *cluster_notes(cohort),
            # a group too small for a selection rate is seen by its n
            *care_notes(cohort, *_of(("tpr", "fpr", "ppv"), estimates, rows)),
        ),
    )


def _of(
    metrics: Sequence[str], estimates: list[RateEstimates], rows: list[MetricRows]
) -> tuple[list[RateEstimates], list[MetricRows]]:
    """Those of some metrics, in the order of all."""
    chosen = [k for k, e in enumerate(estimates) if e.metric in metrics]
    return [estimates[k] for k in chosen], [rows[k] for k in chosen]


def cluster_notes(cohort: Cohort) -> list[str]:
    """Say it when there are few clusters.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    list of str
    """
    if cohort.n_clusters is None or cohort.n_clusters >= FEW_CLUSTERS:
        return []
    return [
        f"only {cohort.n_clusters} clusters ({cohort.cluster_name}): standard errors from so few "
        "are themselves uncertain; intervals and tests use Student's and Hotelling's distributions."
    ]


def base_counts(cohort: Cohort) -> dict[str, Array]:
    """Rows and events of every target, masked where they have to be.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    dict of str to (T,) array
    """
    cells = np.einsum("tk,kys->tys", targets(cohort), cell_counts(cohort))
    found = {"n": cells.sum(axis=(1, 2)), "events": cells[:, 1].sum(axis=1)}
    return {name: shown_counts(cohort, KINDS[name], values) for name, values in found.items()}


def all_counts(cohort: Cohort) -> dict[str, Array]:
    """Rows, events, non-events and positive calls of every target, masked where they have to be.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    dict of str to (T,) array
    """
    cells = np.einsum("tk,kys->tys", targets(cohort), cell_counts(cohort))
    more = {"non_events": cells[:, 0].sum(axis=1), "predicted_positive": cells[:, :, 1].sum(axis=1)}
    kinds = {"non_events": KINDS["non_events"], "predicted_positive": KINDS["positive"]}
    return {
        **base_counts(cohort),
        **{name: shown_counts(cohort, kinds[name], values) for name, values in more.items()},
    }


def care_notes(
    cohort: Cohort, estimates: list[RateEstimates], rows: list[MetricRows], limit: int = 6
) -> list[str]:
    """Sentences about groups that have no rate, or too little to stand on.

    Parameters
    ----------
    cohort : Cohort
    estimates : list of RateEstimates
    rows : list of MetricRows
    limit : int, default 6
        Groups named at most, per metric.

    Returns
    -------
    list of str
    """
    K = cohort.groups.n_groups
    sentences = []
    for e, r in zip(estimates, rows, strict=True):
        undefined = [
            k
            for k in range(K)  # the line on disclosure speaks of the masked ones
            if np.isnan(e.estimate[k]) and not r.notes[k].startswith(MASKED)
        ]
        small = [k for k in range(K) if not np.isnan(e.estimate[k]) and e.size[k] < CARE_BELOW]
        for kind, members in (("undefined", undefined), ("small", small)):
            if not members:
                continue
            named = [
                f"{cohort.groups.names[k]} ({r.notes[k]})"
                if kind == "undefined"
                else f"{cohort.groups.names[k]} ({e.size[k]:.1f})"
                for k in members[:limit]
            ]
            more = f" and {len(members) - limit} more" if len(members) > limit else ""
            if kind == "undefined":
                sentences.append(f"{r.label} is undefined in {', '.join(named)}{more}.")
            else:
                sentences.append(
                    f"too little to stand on for {r.label}, effective size below "
                    f"{CARE_BELOW:.0f}: {', '.join(named)}{more}. Read with care."
                )
    return sentences
