"""The papers' formulas once more, as plainly as they can be written: loops, pairs, refits.

Nothing here shares code with cfair; where a model is fitted, statsmodels fits it.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import statsmodels.api as sm
from scipy import stats

# -- rates ----------------------------------------------------------------------------------------


def divide(a, b):
    return a / b if b > 0 else math.nan


def cells(y, s, weights=None):
    """Sums (tn, fp, fn, tp)."""
    sums = {(0, 0): 0.0, (0, 1): 0.0, (1, 0): 0.0, (1, 1): 0.0}
    for i in range(len(y)):
        sums[int(y[i]), int(s[i])] += 1.0 if weights is None else weights[i]
    return sums[0, 0], sums[0, 1], sums[1, 0], sums[1, 1]


def observed(y, s, weights=None):
    """All observed rates of one set of rows."""
    tn, fp, fn, tp = cells(y, s, weights)
    n = tn + fp + fn + tp
    tpr, tnr = divide(tp, tp + fn), divide(tn, tn + fp)
    return {
        "prevalence": divide(tp + fn, n),
        "selection_rate": divide(tp + fp, n),
        "tpr": tpr,
        "fpr": divide(fp, fp + tn),
        "tnr": tnr,
        "fnr": divide(fn, fn + tp),
        "ppv": divide(tp, tp + fp),
        "npv": divide(tn, tn + fn),
        "fdr": divide(fp, tp + fp),
        "for": divide(fn, tn + fn),
        "accuracy": divide(tp + tn, n),
        "balanced_accuracy": (tpr + tnr) / 2,
        "f1": divide(2 * tp, 2 * tp + fp + fn),
    }


def ipw(y, s, d, pi, member, weights=None):
    """cFPR and cFNR of the rows for which `member` is true."""
    fp = negatives = fn = positives = 0.0
    for i in range(len(y)):
        if not member[i] or d[i] == 1:
            continue
        w = 1 / (1 - pi[i])
        if weights is not None:
            w *= weights[i]
        fp += w * s[i] * (1 - y[i])
        negatives += w * (1 - y[i])
        fn += w * (1 - s[i]) * y[i]
        positives += w * y[i]
    return divide(fp, negatives), divide(fn, positives)


def ipw_by_group(y, s, d, pi, group, n_groups, weights=None):
    """(K, 2) array of cFPR and cFNR."""
    group = np.asarray(group)
    return np.array([ipw(y, s, d, pi, group == g, weights) for g in range(n_groups)])


def disparities(rates, drop_boundary=False):
    """Average, maximum, variance of the absolute differences over explicit pairs."""
    kept = [r for r in rates if not math.isnan(r)]
    if drop_boundary:
        kept = [r for r in kept if r not in (0.0, 1.0)]
    gaps = [abs(a - b) for a, b in itertools.combinations(kept, 2)]
    if not gaps:
        return math.nan, math.nan, math.nan
    mean = sum(gaps) / len(gaps)
    if len(gaps) == 1:
        return mean, max(gaps), math.nan
    return mean, max(gaps), sum((g - mean) ** 2 for g in gaps) / (len(gaps) - 1)


# -- propensity -----------------------------------------------------------------------------------


def independent(X):
    """Columns that add to the rank of those before them."""
    kept = []
    for j in range(X.shape[1]):
        if np.linalg.matrix_rank(X[:, [*kept, j]]) == len(kept) + 1:
            kept.append(j)
    return kept


def logit(X, d):
    """Fitted probabilities of statsmodels' Logit."""
    Z = X[:, independent(X)]
    return sm.Logit(d, Z).fit(disp=0, tol=1e-14, maxiter=100).predict(Z)


def weighted_logit(X, d, weights):
    """Coefficients of statsmodels' GLM with frequency weights."""
    model = sm.GLM(d, X, family=sm.families.Binomial(), freq_weights=weights)
    return np.asarray(model.fit(tol=1e-15, maxiter=100).params)


def propensity(X, d, truncation=(0.005, 0.995)):
    return np.clip(logit(X, d), *truncation)


# -- an outcome model, in place of the weights or beside them --------------------------------------


def fitted_glm(X, target, weights=None):
    """statsmodels' GLM on the columns that add to the rank; gives a function that predicts."""
    full = np.linalg.matrix_rank(X) == X.shape[1]
    kept = list(range(X.shape[1])) if full else independent(X)
    options = {} if weights is None else {"freq_weights": weights}
    model = sm.GLM(target, X[:, kept], family=sm.families.Binomial(), **options)
    found = model.fit(tol=1e-12, maxiter=100)
    return lambda rows: np.asarray(found.predict(rows[:, kept]))


def probabilities(X, target, used, at, weights=None, folds=None):
    """Predictions at `at` of fits on the used rows, with `folds` on those of the other folds."""
    used = np.asarray(used, dtype=bool)
    if weights is not None:
        used = used & (weights > 0)
    values = np.empty(len(at))
    for fold in [None] if folds is None else np.unique(folds):
        held = np.ones(len(at), bool) if fold is None else folds == fold
        rows = used if fold is None else used & ~held
        w = None if weights is None else weights[rows]
        values[held] = fitted_glm(X[rows], target[rows], w)(at[held])
    return values


def from_scores(s, phi, member, weights=None):
    """cFPR and cFNR where every row has phi events and 1 - phi non-events."""
    fp = negatives = fn = positives = 0.0
    for i in range(len(s)):
        if not member[i]:
            continue
        a = 1.0 if weights is None else weights[i]
        fp += a * s[i] * (1 - phi[i])
        negatives += a * (1 - phi[i])
        fn += a * (1 - s[i]) * phi[i]
        positives += a * phi[i]
    return divide(fp, negatives), divide(fn, positives)


class Setting:
    """A question with its models, to be computed again for other rows or under other labels.

    `X` is the propensity's design and `M` the outcome's, (n, p) arrays or functions of the row
    whose labels each row carries; `M0` is `M` without treatment and has all rows in the fit.
    """

    def __init__(
        self, estimator, y, s, d, group, *, X=None, M=None, M0=None, pi=None, mu0=None,
        weights=None, folds=None, truncation=(0.005, 0.995),
    ):  # fmt: skip
        self.__dict__.update(locals())
        self.n_groups = int(group.max()) + 1

    def nuisances(self, rows, labels, weights):
        """pi and mu0 of these rows with those labels."""

        def made(design):
            return design(labels)[rows] if callable(design) else design[rows]

        folds = None if self.folds is None else self.folds[rows]
        pi = None if self.pi is None else self.pi[rows]
        if self.X is not None and self.estimator != "plugin":
            X = made(self.X)
            fitted = probabilities(X, self.d[rows], np.ones(len(X)), X, weights, folds)
            pi = np.clip(fitted, *self.truncation)
        mu0 = None if self.mu0 is None else self.mu0[rows]
        if self.M is not None and self.estimator != "ipw":
            M = made(self.M)
            at = M if self.M0 is None else made(self.M0)
            used = self.d[rows] == 0 if self.M0 is None else np.ones(len(M))
            mu0 = probabilities(M, self.y[rows], used, at, weights, folds)
        return pi, mu0

    def rates(self, rows=None, labels=None, weights=None, members=None):
        """(K, 2) array of cFPR and cFNR, or one row for each set of `members`."""
        everyone = np.arange(len(self.y))
        rows = everyone if rows is None else rows
        group = (self.group if labels is None else self.group[labels])[rows]
        if weights is None and self.weights is not None:
            weights = self.weights[rows]
        y, s, d = self.y[rows], self.s[rows], self.d[rows]
        pi, mu0 = self.nuisances(rows, everyone if labels is None else labels, weights)
        members = [group == g for g in range(self.n_groups)] if members is None else members
        if self.estimator == "ipw":
            return np.array([ipw(y, s, d, pi, member, weights) for member in members])
        phi = list(mu0)
        for i in range(len(y)):
            if self.estimator == "aipw" and d[i] == 0:
                phi[i] = (y[i] - mu0[i]) / (1 - pi[i]) + mu0[i]
        return np.array([from_scores(s, phi, member, weights) for member in members])

    def influence(self):
        """(n, 2K) array of influences of the group rates."""
        n = len(self.y)
        base = np.ones(n) if self.weights is None else np.asarray(self.weights, float)
        return base[:, None] * derivatives(lambda a: self.rates(weights=a).T.ravel(), base)


# -- replicates -----------------------------------------------------------------------------------


def _replicate(y, s, d, pi, group, n_groups):
    rates = ipw_by_group(y, s, d, pi, group, n_groups)
    seen = np.array(
        [[observed(y[group == g], s[group == g])[m] for m in ("fpr", "fnr")]
         for g in range(n_groups)]
    )  # fmt: skip
    return np.column_stack([rates, seen])


def permutation_null(
    y, s, d, group, n_groups, permutations, *, design=None, pi=None, truncation=(0.005, 0.995)
):
    """(R, K, 4) array: cFPR, cFNR, FPR, FNR; `design` makes the matrix from the labels' rows.

    Row i of a replicate gets the labels of row ``permutation[i]``.
    """
    replicates = []
    for permutation in permutations:
        chance = pi if design is None else propensity(design(permutation), d, truncation)
        replicates.append(_replicate(y, s, d, chance, group[permutation], n_groups))
    return np.array(replicates)


def bootstrap(y, s, d, group, n_groups, resamples, *, X=None, pi=None, truncation=(0.005, 0.995)):
    """(B, K, 4) array: cFPR, cFNR, FPR, FNR of given rows, propensity refitted on them."""
    replicates = []
    for rows in resamples:
        chance = pi[rows] if X is None else propensity(X[rows], d[rows], truncation)
        replicates.append(_replicate(y[rows], s[rows], d[rows], chance, group[rows], n_groups))
    return np.array(replicates)


# -- inference ------------------------------------------------------------------------------------


def influence(
    y, s, d, group, n_groups, *, X=None, pi=None, weights=None, truncation=(0.0, 1.0), step=5e-3
):
    """(n, 2K) array: n times the derivative of each rate in the weight of each row, refitted.

    Central differences at one and two steps, extrapolated (Richardson): the error is of the fourth
    order in the step, 1e-11 here, so that rounding does not need a smaller one.
    """
    n = len(y)
    base = np.ones(n) if weights is None else np.asarray(weights, float)

    def rates(a):
        chance = pi
        if X is not None:
            chance = np.clip(1 / (1 + np.exp(-X @ weighted_logit(X, d, a))), *truncation)
        return ipw_by_group(y, s, d, chance, group, n_groups, a).T.ravel()

    return base[:, None] * derivatives(rates, base, step)


def derivatives(function, base, step=5e-3):
    """(n, m) array: n times the derivative of m numbers in the weight of each of n rows."""
    psi = []
    for i in range(len(base)):
        moved = {}
        for k in (-2, -1, 1, 2):
            a = base.copy()
            a[i] += k * step
            moved[k] = function(a)
        psi.append((8 * (moved[1] - moved[-1]) - (moved[2] - moved[-2])) / (12 * step))
    return len(base) * np.array(psi)


def wilson(p, n, level=0.95, student=True, most_df=math.inf):
    """Limits of Wilson's interval as roots of (p - x)^2 = q^2 x (1 - x) / n."""
    if n <= 1:
        return 0.0, 1.0
    tail = (1 + level) / 2
    q = stats.t.ppf(tail, min(n - 1, most_df)) if student else stats.norm.ppf(tail)
    a, b, c = 1 + q**2 / n, -(2 * p + q**2 / n), p**2
    root = math.sqrt(max(b**2 - 4 * a * c, 0.0))
    return max((-b - root) / (2 * a), 0.0), min((-b + root) / (2 * a), 1.0)


def mover(a, la, ua, b, lb, ub, rho=0.0):
    """Interval of a - b from the limits of both."""
    below = (a - la) ** 2 + (ub - b) ** 2 - 2 * rho * (a - la) * (ub - b)
    above = (ua - a) ** 2 + (b - lb) ** 2 - 2 * rho * (ua - a) * (b - lb)
    return a - b - math.sqrt(max(below, 0)), a - b + math.sqrt(max(above, 0))


def logit_wald(theta, covariance):
    """Wald statistic of equal logits by an explicit matrix of contrasts; all rates inside (0, 1)."""  # noqa: E501
    theta = np.asarray(theta)
    slope = np.diag(1 / (theta * (1 - theta)))
    V = slope @ covariance @ slope
    K = len(theta)
    C = np.column_stack([np.ones(K - 1), -np.eye(K - 1)])
    gap = C @ np.log(theta / (1 - theta))
    return float(gap @ np.linalg.inv(C @ V @ C.T) @ gap)


def permutation_p(observed_value, null):
    defined = [x for x in null if not math.isnan(x)]
    return (1 + sum(x >= observed_value for x in defined)) / (1 + len(defined))


def u_value(observed_value, null, delta):
    defined = [x for x in null if not math.isnan(x)]
    return sum(observed_value - x > delta for x in defined) / len(defined)


def fuse(theta, sigma, critical):
    """Join the closest two clusters again and again, every distance from the definition."""
    K = len(theta)
    clusters = [[k] for k in range(K)]

    def weights(cluster):
        w = np.zeros(K)
        w[cluster] = 1 / np.diag(sigma)[cluster]
        return w / w.sum()

    while len(clusters) > 1:
        best = None
        for i, j in itertools.combinations(range(len(clusters)), 2):
            c = weights(clusters[i]) - weights(clusters[j])
            distance = abs(c @ theta) / math.sqrt(c @ sigma @ c)
            if best is None or distance < best[0]:
                best = (distance, i, j)
        if best[0] >= critical:
            break
        joined = clusters[best[1]] + clusters[best[2]]
        clusters = [c for k, c in enumerate(clusters) if k not in best[1:]] + [joined]
    result = np.empty(K)
    for cluster in clusters:
        result[cluster] = weights(cluster) @ theta
    return result
