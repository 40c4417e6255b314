"""How well a score orders patients and how near it is to the risk: estimates and influence values.

Every group, every level of an attribute, and all rows together are targets. A row belongs to one
target of each partition (the groups, the levels of each attribute, all), so a metric needs one
influence value per row and partition, and the covariance of any two targets, overlapping or not,
is a sum of products over rows, or over clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort

Array = NDArray[np.float64]
Codes = NDArray[np.intp]
#: A metric in the targets of one partition: their estimates, and an influence value per row.
Part = tuple[Array, Array]

#: Smallest logarithm of a probability in the log loss, as in FairMedFM and PyTorch.
LOG_CLAMP = -100.0


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Outcome, score and weight of every row, and the partitions that it has a place in.

    Attributes
    ----------
    y, p, w : (n,) arrays of float
        Outcome 0/1, score, weight.
    codes : tuple of (n,) int arrays
        The target of each row, partition by partition.
    sizes : tuple of int
        Targets of each partition; T in all.
    cluster : (n,) int array or None
    n_clusters : int or None
    """

    y: Array
    p: Array
    w: Array
    codes: tuple[Codes, ...]
    sizes: tuple[int, ...]
    cluster: Codes | None = None
    n_clusters: int | None = None

    def __post_init__(self) -> None:
        for array in (self.y, self.p, self.w, *self.codes):
            array.setflags(write=False)

    @cached_property
    def by_score(self) -> Codes:
        """Order of the rows by score."""
        return np.argsort(self.p, kind="stable")

    def order(self, k: int) -> tuple[Codes, Codes]:
        """Rows by target and within it by score, and where each target begins (and the last ends).

        Parameters
        ----------
        k : int
            Partition.

        Returns
        -------
        order : (n,) int array
        start : (size + 1,) int array
        """
        sorted_codes = self.codes[k][self.by_score].astype(np.int32)
        order = self.by_score[np.argsort(sorted_codes, kind="stable")]
        counts = np.bincount(self.codes[k], minlength=self.sizes[k])
        return order, np.concatenate([[0], np.cumsum(counts)])

    def total(self, k: int, values: Array) -> Array:
        """Sum of values by target of a partition."""
        return np.bincount(self.codes[k], values, self.sizes[k]).astype(float, copy=False)

    def count(self, k: int, among: NDArray[np.bool_] | None = None) -> Array:
        """Rows that carry weight, by target of a partition."""
        carry = self.w > 0 if among is None else (self.w > 0) & among
        return self.total(k, carry.astype(float))

    def kish(self, k: int, among: NDArray[np.bool_] | None = None) -> Array:
        """Kish's effective number of rows, by target of a partition."""
        w = self.w if among is None else self.w * among
        square = self.total(k, w**2)
        result: Array = np.where(square > 0, self.total(k, w) ** 2, 0.0) / _nonzero(square)
        return result

    def of_class(self, outcome: int | None) -> NDArray[np.bool_] | None:
        """Which rows have an outcome; None for all."""
        return None if outcome is None else self.y == outcome

    def units(self, k: int, outcome: int | None = None) -> Array:
        """What varies independently: rows that carry weight, or clusters that have any of them.

        Parameters
        ----------
        k : int
            Partition.
        outcome : {0, 1}, optional
            Only rows with this outcome.

        Returns
        -------
        (size,) array
        """
        return self._units[k][outcome]

    @cached_property
    def _units(self) -> list[dict[int | None, Array]]:
        found: list[dict[int | None, Array]] = []
        for k, codes in enumerate(self.codes):
            again = next((j for j in range(k) if self.codes[j] is codes), None)
            if again is not None:
                found.append(found[again])
            elif self.cluster is None:
                found.append({y: self.count(k, self.of_class(y)) for y in (None, 0, 1)})
            else:
                weight = {y: self._by_cluster(k, y) for y in (None, 0, 1)}
                found.append({y: (w > 0).sum(axis=0).astype(float) for y, w in weight.items()})
        return found

    def _by_cluster(self, k: int, outcome: int | None) -> Any:
        """Sums of weights by cluster and target, sparse."""
        from scipy.sparse import csr_array

        assert self.cluster is not None
        among = self.of_class(outcome)
        w = self.w if among is None else self.w * among
        shape = (int(self.cluster.max()) + 1, self.sizes[k])
        table = csr_array((w, (self.cluster, self.codes[k])), shape=shape)
        table.sum_duplicates()
        return table

    def least_kish(self, k: int, outcome: int | None = None) -> Array:
        """Kish's effective number of rows, or of clusters where these are fewer.

        A value at the edge of its range has no variance to tell how alike the rows of a cluster
        are; it rests on no more than this.
        """
        kish = self.kish(k, self.of_class(outcome))
        if self.cluster is None:
            return kish
        table = self._by_cluster(k, outcome)
        square = np.asarray((table**2).sum(axis=0))
        whole = np.asarray(table.sum(axis=0))
        return np.minimum(kish, np.where(square > 0, whole**2, 0.0) / _nonzero(square))

    def small_sample(self, k: int, outcome: int | None = None, parameters: int = 1) -> Array:
        """Root of ``m / (m - parameters)``; 0 where too little is left to vary.

        m are the rows of the target, or its own clusters: those that it has no row in tell nothing
        of it.
        """
        m = self.units(k, outcome)
        result: Array = np.sqrt(np.where(m > parameters, m, 0.0) / np.maximum(m - parameters, 1.0))
        return result

    @property
    def counted(self) -> float:
        """The factor of a mean of 0/1, as observed rates have it: from all clusters, if any."""
        if self.n_clusters is None:
            return 1.0
        return float(np.sqrt(self.n_clusters / max(self.n_clusters - 1, 1)))

    def each(self, metric: Callable[[ScoredRows, int], Part]) -> Influence:
        """A metric in all targets.

        Parameters
        ----------
        metric : callable
            From these rows and the number of a partition to estimates and influence values.

        Returns
        -------
        Influence
        """
        parts: list[Part] = []
        for k, codes in enumerate(self.codes):
            again = next((j for j in range(k) if self.codes[j] is codes), None)
            parts.append(metric(self, k) if again is None else parts[again])
        return Influence(np.concatenate([a for a, _ in parts]), tuple(b for _, b in parts))

    def every(self, values: Callable[[int], Array]) -> Array:
        """One number per target, from a function of the partition."""
        return np.concatenate([values(k) for k in range(len(self.codes))])

    def covariance(self, influence: Influence) -> Array:
        """Covariance of a metric in all targets.

        Parameters
        ----------
        influence : Influence

        Returns
        -------
        (T, T) array
            NaN in the rows and columns of undefined targets.
        """
        return self._products(list(influence.values), list(self.codes), influence.estimate)

    def joint_covariance(self, estimates: list[Array], values: list[Array]) -> Array:
        """Covariance of several metrics in the targets of the first partition, metric by metric.

        Parameters
        ----------
        estimates : list of (K,) arrays
            M of them.
        values : list of (n,) arrays
            Influence values in the first partition.

        Returns
        -------
        (M K, M K) array
        """
        return self._products(values, [self.codes[0]] * len(values), np.concatenate(estimates))

    def _products(self, values: list[Array], codes: list[Codes], estimate: Array) -> Array:
        """Sums of products over rows, or over clusters, of every two targets."""
        sizes = [
            self.sizes[next(k for k, c in enumerate(self.codes) if c is code)] for code in codes
        ]
        first = np.concatenate([[0], np.cumsum(sizes)])
        if self.cluster is not None:
            sigma = self._products_of_clusters(values, codes, first)
        else:
            sigma = np.zeros((first[-1], first[-1]))
            for k in range(len(codes)):
                for m in range(k, len(codes)):
                    cell = codes[k] if codes[k] is codes[m] else codes[k] * sizes[m] + codes[m]
                    same = codes[k] is codes[m]
                    count = sizes[k] if same else sizes[k] * sizes[m]
                    sums = np.bincount(cell, values[k] * values[m], count)
                    block = np.diag(sums) if same else sums.reshape(sizes[k], sizes[m])
                    sigma[first[k] : first[k + 1], first[m] : first[m + 1]] = block
                    sigma[first[m] : first[m + 1], first[k] : first[k + 1]] = block.T
        undefined = np.isnan(estimate)
        sigma[undefined, :] = sigma[:, undefined] = np.nan
        return sigma

    def _products_of_clusters(
        self, values: list[Array], codes: list[Codes], first: NDArray[np.intp]
    ) -> Array:
        from scipy.sparse import csr_array

        assert self.cluster is not None
        columns = np.concatenate([c + f for c, f in zip(codes, first[:-1], strict=True)])
        at = (np.tile(self.cluster, len(values)), columns)
        shape = (int(self.cluster.max()) + 1, int(first[-1]))
        table = csr_array((np.concatenate(values), at), shape=shape)
        return np.asarray((table.T @ table).todense())


@dataclass(frozen=True, eq=False)
class Influence:
    """A metric in all targets, and what each row contributes to its errors.

    Attributes
    ----------
    estimate : (T,) array
        NaN where undefined.
    values : tuple of (n,) arrays
        A row's influence on the estimate of its target, partition by partition, divided by the
        sum of weights; it sums to 0 over a target.
    """

    estimate: Array
    values: tuple[Array, ...]


def scored_rows(cohort: Cohort) -> ScoredRows:
    """The rows of a cohort, with its groups, the levels of its attributes, and all as targets.

    Parameters
    ----------
    cohort : Cohort
        With a score.

    Returns
    -------
    ScoredRows
    """
    assert cohort.score is not None
    groups, n = cohort.groups, cohort.n_used
    if len(groups.attributes) == 1:
        codes, sizes = [groups.codes, groups.codes], [groups.n_groups, groups.n_groups]
    else:
        codes = [groups.codes, *(at[groups.codes] for at in groups.level_codes)]
        sizes = [groups.n_groups, *groups.shape]
    return ScoredRows(
        y=cohort.y.astype(float),
        p=cohort.score,
        w=np.ones(n) if cohort.weights is None else cohort.weights,
        codes=(*codes, np.zeros(n, dtype=np.intp)),
        sizes=(*sizes, 1),
        cluster=None if cohort.cluster is None else cohort.weighted_cluster,
        n_clusters=cohort.n_clusters,
    )


def auc(rows: ScoredRows, k: int) -> Part:
    """Area under the ROC curve: the chance that an event has a higher score than a non-event.

    Ties count one half. The influence values are the structural components of DeLong et al.
    (1988), whose sample variances, with one less than the events and the non-events, they give.
    With one event or one non-event, or all of a class in one cluster, there is no such variance;
    all values are then 0. Clusters take the place of events and non-events in the variances of a
    class (Obuchowski 1997).

    Parameters
    ----------
    rows : ScoredRows
    k : int
        Partition.

    Returns
    -------
    estimate : (size,) array
    values : (n,) array

    References
    ----------
    DeLong ER, DeLong DM, Clarke-Pearson DL (1988). Comparing the areas under two or more
    correlated receiver operating characteristic curves: a nonparametric approach. Biometrics 44,
    837-845. Obuchowski NA (1997). Nonparametric analysis of clustered ROC curve data. Biometrics
    53, 567-578.
    """
    order, _ = rows.order(k)
    code, score, w = rows.codes[k][order], rows.p[order], rows.w[order]
    event = rows.y[order]
    starts = np.ones(len(code), dtype=bool)
    starts[1:] = (code[1:] != code[:-1]) | (score[1:] != score[:-1])
    first, block = np.flatnonzero(starts), np.cumsum(starts) - 1
    at, size = code[first], rows.sizes[k]

    def shares_below(weight: Array) -> tuple[Array, Array]:
        """Of a class, by block of equal scores: the weight, and the share below, ties half."""
        mass = np.add.reduceat(weight, first)
        whole = np.bincount(at, mass, size).astype(float, copy=False)
        earlier = np.concatenate([[0.0], np.cumsum(whole)[:-1]])
        below = (np.cumsum(mass) - mass / 2 - earlier[at]) / _nonzero(whole)[at]
        return whole, below

    events, events_below = shares_below(w * event)
    others, others_below = shares_below(w * (1 - event))
    defined = (events > 0) & (others > 0)
    sums = np.bincount(code, w * event * others_below[block], size)
    estimate = np.where(defined, sums, np.nan) / _nonzero(events)
    few = (rows.units(k, 1) < 2) | (rows.units(k, 0) < 2)
    use = np.where(defined & ~few, 1.0, 0.0)
    per_event = use * rows.small_sample(k, 1) / _nonzero(events)
    per_other = use * rows.small_sample(k, 0) / _nonzero(others)
    centre = np.nan_to_num(estimate)[code]
    values = np.empty(len(code))
    values[order] = w * np.where(
        event == 1,
        (others_below[block] - centre) * per_event[code],
        (1 - events_below[block] - centre) * per_other[code],
    )
    return estimate, values


def mean_of(
    values: Callable[[Array, Array], Array], *, counted: bool = False, among: int | None = None
) -> Callable[[ScoredRows, int], Part]:
    """The metric that is a mean of a function of outcome and score.

    Parameters
    ----------
    values : callable
        Of ``y`` and ``p``.
    counted : bool, default False
        A mean of 0/1, whose variance is the binomial one; else the sample variance.
    among : {0, 1}, optional
        Only rows with this outcome.

    Returns
    -------
    callable
    """

    def metric(rows: ScoredRows, k: int) -> Part:
        v, code = values(rows.y, rows.p), rows.codes[k]
        which = rows.of_class(among)
        w = rows.w if which is None else rows.w * which
        whole = rows.total(k, w)
        estimate = np.where(whole > 0, rows.total(k, w * v), np.nan) / _nonzero(whole)
        factor = (rows.counted if counted else rows.small_sample(k, among)) / _nonzero(whole)
        return estimate, w * (v - np.nan_to_num(estimate)[code]) * factor[code]

    return metric


def f1_of(call: Array) -> Callable[[ScoredRows, int], Part]:
    """F1 of a ready 0/1 call.

    Parameters
    ----------
    call : (n,) array of 0 and 1

    Returns
    -------
    callable
    """

    def metric(rows: ScoredRows, k: int) -> Part:
        top = 2 * rows.y * call
        bottom = rows.y + call
        whole = rows.total(k, rows.w * bottom)
        estimate = np.where(whole > 0, rows.total(k, rows.w * top), np.nan) / _nonzero(whole)
        code = rows.codes[k]
        centre = np.nan_to_num(estimate)[code]
        return estimate, rows.counted * rows.w * (top - centre * bottom) / _nonzero(whole)[code]

    return metric


def squared_error(y: Array, p: Array) -> Array:
    """A row's term of the Brier score."""
    return (p - y) ** 2


def log_loss(y: Array, p: Array) -> Array:
    """A row's term of the log loss (binary cross-entropy), at most 100."""
    with np.errstate(divide="ignore"):
        likelihood = np.where(y == 1, np.log(p), np.log1p(-p))
    return -np.maximum(likelihood, LOG_CLAMP)


def observed_over_expected(rows: ScoredRows, k: int) -> Part:
    """Events over expected events, the sum of the scores.

    Parameters
    ----------
    rows : ScoredRows
    k : int
        Partition.

    Returns
    -------
    estimate : (size,) array
        NaN where nothing is expected.
    values : (n,) array
        On the scale of the ratio; those of its logarithm are these over the estimate.
    """
    events, expected = rows.total(k, rows.w * rows.y), rows.total(k, rows.w * rows.p)
    estimate = np.where(expected > 0, events, np.nan) / _nonzero(expected)
    code = rows.codes[k]
    factor = rows.small_sample(k) / _nonzero(expected)
    return estimate, rows.w * (rows.y - np.nan_to_num(estimate)[code] * rows.p) * factor[code]


def few_values(rows: ScoredRows) -> str:
    """Say of a score with one or two values that it may be no score; empty where it has more.

    Parameters
    ----------
    rows : ScoredRows

    Returns
    -------
    str
    """
    there = rows.p[rows.w > 0]
    m = len(np.unique(there))
    if m > 2 or len(there) == m:  # as many values as rows say nothing
        return ""
    if m == 1:
        return "score has 1 value: it cannot tell events from non-events."
    return "score has 2 values: is it a call? AUC and calibration are meant for a risk."


def best_f1_threshold(y: Array, p: Array, w: Array) -> float:
    """The threshold whose call ``p >= threshold`` has the highest F1 among all rows.

    Parameters
    ----------
    y, p, w : (n,) arrays

    Returns
    -------
    float
        One of the scores, the lowest where several do equally well; NaN without events.
    """
    y, p, w = y[w > 0], p[w > 0], w[w > 0]
    order = np.argsort(-p, kind="stable")
    score = p[order]
    last = np.append(score[1:] != score[:-1], True)
    hits = np.cumsum((w * y)[order])[last]
    called = np.cumsum(w[order])[last]
    events = hits[-1]
    if not events > 0:
        return float("nan")
    value = 2 * hits / (called + events)
    # within rounding of the highest, so that a common scale of the weights changes nothing
    return float(score[last][np.flatnonzero(value >= value.max() * (1 - 1e-12))[-1]])


def _nonzero(total: Array) -> Array:
    return np.where(total > 0, total, 1.0)
