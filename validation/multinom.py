"""Multinomial fits that stop where those of R's nnet do, to tell a method from its optimiser.

`multinom` starts at zero, follows the variable metric method of Nash's algorithm 21 and stops at a
relative change of 1e-8, short of the maximum by up to 2e-4 in a coefficient.

Nash JC (1990). Compact Numerical Methods for Computers, 2nd edition. Adam Hilger, chapter 15.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cfair.nuisance.membership import MembershipModel

STEP, ACCEPT, SAME = 0.2, 1e-4, 10.0


def variable_metric(
    value: Callable, gradient: Callable, start, iterations=100, absolute=1e-4, relative=1e-8
):
    """Nash's algorithm 21 with the limits of R's nnet."""
    b, n = start.copy(), len(start)
    best, slope = value(b), gradient(b)
    gradients = reset = 1
    metric = np.eye(n)
    while True:
        if reset == gradients:
            metric = np.eye(n)
        old, old_slope = b.copy(), slope.copy()
        direction = -metric @ slope
        along = direction @ slope
        finished = True
        if along < 0:
            length, now = 1.0, best
            while True:
                b = old + length * direction
                still = bool(np.all(SAME + old == SAME + b))
                if still:
                    break
                now = value(b)
                if np.isfinite(now) and now <= best + along * length * ACCEPT:
                    break
                length *= STEP
            enough = now > absolute and abs(now - best) > relative * (abs(best) + relative)
            if still or not enough:
                best = now
                if reset < gradients:
                    finished, reset = False, gradients
            else:
                finished, best, slope = False, now, gradient(b)
                gradients += 1
                moved, turned = length * direction, slope - old_slope
                curvature = moved @ turned
                if curvature > 0:
                    image = metric @ turned
                    metric += (
                        (1 + turned @ image / curvature) * np.outer(moved, moved)
                        - np.outer(moved, image)
                        - np.outer(image, moved)
                    ) / curvature
                else:
                    reset = gradients
        elif reset != gradients:
            finished, reset = False, gradients
        if gradients >= iterations or (finished and reset == gradients):
            return b, best
        if gradients - reset > 2 * n:
            reset = gradients


def softmax(eta):
    p = np.exp(eta - eta.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def multinom(X, group, n_groups):
    """Coefficients (K, p) against the first group, and the deviance, as R's nnet stops."""
    n, p = X.shape
    own = np.eye(n_groups)[group]

    def fitted(b):
        return softmax(np.hstack([np.zeros((n, 1)), X @ b.reshape(n_groups - 1, p).T]))

    def value(b):
        with np.errstate(divide="ignore"):  # a step too far: infinite, and not taken
            return -np.log(fitted(b)[np.arange(n), group]).sum()

    def gradient(b):
        return ((fitted(b) - own)[:, 1:].T @ X).ravel()

    b, lost = variable_metric(value, gradient, np.zeros((n_groups - 1) * p))
    return np.vstack([np.zeros(p), b.reshape(n_groups - 1, p)]), 2 * lost


class StoppedMembership(MembershipModel):
    """A membership model fitted by `multinom`, its covariates standardised as the package does."""

    def _logistic(self, group, w, say):
        drawn = np.ones(len(group), bool) if w is None else w > 0
        assert w is None or set(np.unique(w)) <= {0.0, 1.0}
        columns = self.design[:, 1:]
        scaled = (columns - columns[drawn].mean(axis=0)) / columns[drawn].std(axis=0, ddof=1)
        X = np.column_stack([np.ones(len(columns)), scaled])
        raw = np.full((self.n_groups, len(group)), np.nan)
        for fold in range(self.folds.n_folds):
            train, held = self.folds.train(fold) & drawn, self.folds.rows(fold)
            coef, _ = multinom(X[train], group[train], self.n_groups)
            raw[:, held] = softmax(X[held] @ coef.T).T
        return raw, True, ()

    def fit_many(self, counts=None, labels=None):
        replicates = range(len(counts if labels is None else labels))
        fits = [
            self.fit(None if counts is None else counts[b], None if labels is None else labels[b])
            for b in replicates
        ]
        return np.stack([fit.p for fit in fits]), np.ones(len(fits), bool)
