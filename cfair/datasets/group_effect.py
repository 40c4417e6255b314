"""A design in which group acts on outcome and score by a known amount, whatever the covariates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd

from cfair.datasets.recipe import (
    FloatArray,
    IntArray,
    attribute_columns,
    expit,
    group_labels,
    rates_frame,
)


@dataclass(frozen=True)
class GroupEffect:
    """Membership follows the covariates; outcome and score follow the covariates and the group.

    X1 and X2 are standard normal, P(A = g | X) is multinomial logistic, the log odds of the outcome
    are ``outcome[g] + outcome_x1 X1 + outcome_x2 X2``, those of the score ``score[g] + X1``. So the
    error rates with everybody put into group g, covariates left as they are, are integrals over X,
    and exact. Tuples "per group" follow the crossing of the attributes, the last one varying
    fastest.

    Attributes
    ----------
    membership : tuple of float
        Per group: log odds of membership at X = 0 against the first group.
    membership_x1, membership_x2 : tuple of float
        What X1 and X2 add to them.
    outcome, score : tuple of float
        Per group: log odds of the outcome and of the score at X = 0.
    outcome_x1, outcome_x2 : float
    cutoff : float
        S = 1{score >= cutoff}.

    Examples
    --------
    >>> from cfair.datasets import GroupEffect, simulate_cohort, true_rates
    >>> design = GroupEffect()
    >>> list(simulate_cohort(100, seed=1, design=design))
    ['y', 'score', 'a1', 'a2', 'x1', 'x2']
    >>> true_rates(design).round(4)
      a1 a2    cfpr    cfnr   share  prevalence
    0  a  u  0.1960  0.5604  0.3593      0.3213
    1  a  v  0.2833  0.4486  0.2622      0.3685
    2  b  u  0.3202  0.4069  0.2373      0.3685
    3  b  v  0.4543  0.2793  0.1412      0.4690
    """

    name: str = "group effect"
    attributes: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"a1": ("a", "b"), "a2": ("u", "v")}
    )
    membership: tuple[float, ...] = (0.0, -0.4, -0.6, -1.1)
    membership_x1: tuple[float, ...] = (0.0, 0.5, -0.5, 0.4)
    membership_x2: tuple[float, ...] = (0.0, 0.3, 0.5, -0.4)
    outcome: tuple[float, ...] = (-0.9, -0.65, -0.65, -0.15)
    score: tuple[float, ...] = (-0.6, -0.3, -0.2, 0.2)
    outcome_x1: float = 0.8
    outcome_x2: float = 0.6
    cutoff: float = 0.5

    def draw(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw n rows."""
        x1, x2 = rng.standard_normal((2, n))
        cumulative = self._membership(x1, x2).cumsum(axis=1)
        drawn = (rng.random(n)[:, None] > cumulative).sum(axis=1)
        group = np.minimum(drawn, len(self.membership) - 1)  # 1 can be rounded down
        y = rng.random(n) < self._outcome(x1, x2, group)
        return pd.DataFrame(
            {
                "y": y.astype(np.int64),
                "score": expit(x1 + np.asarray(self.score)[group]),
                **attribute_columns(self.attributes, group),
                "x1": x1,
                "x2": x2,
            }
        )

    def scores_under(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Score of every row with its group set to each group.

        Parameters
        ----------
        frame : pandas.DataFrame
            From `simulate_cohort`.

        Returns
        -------
        pandas.DataFrame
            A column per group, named as an audit names it.
        """
        names = [" & ".join(label) for label in group_labels(self.attributes)]
        x1 = frame["x1"].to_numpy()
        scores = expit(x1[:, None] + np.asarray(self.score))
        return pd.DataFrame(scores, index=frame.index, columns=names)

    def truth(self) -> pd.DataFrame:
        """Exact rates with everybody in each group, and shares, by quadrature.

        The prevalence is that of the outcome with everybody in the group.
        """
        rates = []
        for g, shift in enumerate(self.score):
            start = np.log(self.cutoff / (1 - self.cutoff)) - shift  # flagged from here in x1
            outcome = partial(self._outcome, group=np.full(1, g))
            event, found = _mean(outcome, -12.0, 12.0), _mean(outcome, start, 12.0)
            above = _mean(lambda x1, x2: np.ones_like(x1), start, 12.0)
            rates.append(((above - found) / (1 - event), (event - found) / event, event))
        cfpr, cfnr, prevalence = zip(*rates, strict=True)
        shares = tuple(
            _mean(partial(self._share, g=g), -12.0, 12.0) for g in range(len(self.score))
        )
        return rates_frame(self.attributes, cfpr, cfnr, shares, prevalence)

    def _membership(self, x1: FloatArray, x2: FloatArray) -> FloatArray:
        log_odds = (
            np.asarray(self.membership)
            + np.outer(x1, self.membership_x1)
            + np.outer(x2, self.membership_x2)
        )
        odds = np.exp(log_odds)
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def _share(self, x1: FloatArray, x2: FloatArray, g: int) -> FloatArray:
        return self._membership(x1, x2)[:, g]

    def _outcome(self, x1: FloatArray, x2: FloatArray, group: IntArray) -> FloatArray:
        return expit(np.asarray(self.outcome)[group] + self.outcome_x1 * x1 + self.outcome_x2 * x2)


def _mean(
    function: Callable[[FloatArray, FloatArray], FloatArray], low: float, high: float
) -> float:
    """Mean over two standard normals, the first within limits and else 0, by Gauss-Legendre."""
    node, weight = np.polynomial.legendre.leggauss(200)

    def rule(start: float, stop: float) -> tuple[FloatArray, FloatArray]:
        z = start + (stop - start) * (node + 1) / 2
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return z, (stop - start) / 2 * weight * density

    (z1, w1), (z2, w2) = rule(low, high), rule(-12.0, 12.0)
    x1, x2 = np.repeat(z1, len(z2)), np.tile(z2, len(z1))
    return float(np.outer(w1, w2).ravel() @ function(x1, x2))
