"""Two designs from the literature, drawn in the order in which their authors wrote them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cfair.datasets.recipe import (
    FloatArray,
    attribute_columns,
    expit,
    potential_outcomes,
    rates_frame,
)

_BINARY = ("0", "1")


@dataclass(frozen=True)
class KnownRates:
    """Four groups, a binary prediction, and covariates that drive the outcome.

    X1 to X4 are normal with means 1, -1, 2, -2 and variance 0.3; the log odds of Y0 are
    X1 + X2 + X3 + X4 - A1 - 0.5 A2 - 0.5 A1 A2, those of treatment
    0.1 + X1 + X2 - A1 - 0.5 A2 - 0.25 A1 A2 - 0.5 S, both probabilities clipped to [0.005, 0.995].
    S is drawn given Y0 and the group alone, and so are its error rates known. Treatment keeps an
    event with probability 0.8, in group (1, 1) with 0.7.

    References
    ----------
    Wastvedt S, Huling JD, Wolfson J (2023). An intersectional framework for counterfactual
    fairness in risk prediction. Biostatistics, kxad021.
    """

    name: str = "known-rates"
    attributes: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"a1": _BINARY, "a2": _BINARY}
    )
    shares: tuple[float, ...] = (0.4, 0.2, 0.2, 0.2)
    cfpr: tuple[float, ...] = (0.10, 0.20, 0.15, 0.25)
    cfnr: tuple[float, ...] = (0.20, 0.30, 0.25, 0.35)
    event_if_treated: tuple[float, ...] = (0.8, 0.8, 0.8, 0.7)
    # A1, A2 and their product, for the groups 00, 01, 10, 11.
    event_log_odds: tuple[float, ...] = (0.0, -0.5, -1.0, -2.0)
    treatment_log_odds: tuple[float, ...] = (0.1, -0.4, -0.9, -1.65)
    means: tuple[float, ...] = (1.0, -1.0, 2.0, -2.0)
    variance: float = 0.3

    def draw(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw n rows, with both potential outcomes in the last two columns."""
        group = rng.choice(len(self.shares), size=n, p=self.shares)
        x = np.asarray(self.means)[:, None] + np.sqrt(self.variance) * rng.standard_normal((4, n))
        y0 = rng.random(n) < _clipped(x.sum(axis=0) + np.asarray(self.event_log_odds)[group])
        s = rng.random(n) < np.where(
            y0, 1 - np.asarray(self.cfnr)[group], np.asarray(self.cfpr)[group]
        )
        log_odds = x[0] + x[1] + np.asarray(self.treatment_log_odds)[group] - 0.5 * s
        d = rng.random(n) < _clipped(log_odds)
        y1 = y0 & (rng.random(n) < np.asarray(self.event_if_treated)[group])
        return pd.DataFrame(
            {
                "y": np.where(d, y1, y0).astype(np.int64),
                "score": s.astype(np.float64),
                "s": s.astype(np.int64),
                "d": d.astype(np.int64),
                **attribute_columns(self.attributes, group),
                **{f"x{j + 1}": x[j] for j in range(4)},
                **potential_outcomes("y", y0, y1),
            }
        )

    def truth(self) -> pd.DataFrame:
        """Exact rates, a row per group; the prevalence by quadrature."""
        centre, spread = sum(self.means), np.sqrt(4 * self.variance)

        def prevalence(group_log_odds: float) -> float:
            return _normal_mean(lambda z: _clipped(centre + spread * z + group_log_odds))

        by_group = tuple(prevalence(log_odds) for log_odds in self.event_log_odds)
        return rates_frame(self.attributes, self.cfpr, self.cfnr, self.shares, by_group)


@dataclass(frozen=True)
class FairScore:
    """Two groups, a score that is right for both, and treatment that goes mostly to one.

    X is standard normal, the score is P(Y0 = 1 | X) = expit(X - 0.5) whatever the group,
    P(Y1 = 1 | X) is a tenth of it, and the log odds of treatment are X - 0.5 + 1.6 A. At a cutoff
    of 0.5 both groups have the same counterfactual error rates, and every analysis that overlooks
    the treatment finds a gap.

    References
    ----------
    Coston A, Mishler A, Kennedy EH, Chouldechova A (2020). Counterfactual risk assessments,
    evaluation, and fairness. FAT* 2020; arXiv 1909.00066.
    """

    name: str = "fair-score"
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"a": _BINARY})
    shares: tuple[float, ...] = (0.5, 0.5)

    def draw(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw n rows, with both potential outcomes in the last two columns."""
        group = rng.choice(2, size=n, p=self.shares)
        x = rng.standard_normal(n)
        score = expit(x - 0.5)
        y0 = rng.random(n) < score
        y1 = rng.random(n) < 0.1 * score
        d = rng.random(n) < expit(x - 0.5 + 1.6 * group)
        return pd.DataFrame(
            {
                "y": np.where(d, y1, y0).astype(np.int64),
                "score": score,
                "s": (score >= 0.5).astype(np.int64),
                "d": d.astype(np.int64),
                **attribute_columns(self.attributes, group),
                "x": x,
                **potential_outcomes("y", y0, y1),
            }
        )

    def truth(self) -> pd.DataFrame:
        """Exact rates at a cutoff of 0.5 by quadrature, a row per group."""
        prevalence = _normal_mean(lambda x: expit(x - 0.5))
        # The score reaches 0.5 at x = 0.5.
        cfpr = _normal_mean(lambda x: expit(0.5 - x), low=0.5) / (1 - prevalence)
        cfnr = _normal_mean(lambda x: expit(x - 0.5), high=0.5) / prevalence
        return rates_frame(
            self.attributes, (cfpr,) * 2, (cfnr,) * 2, self.shares, (prevalence,) * 2
        )


def _clipped(log_odds: FloatArray) -> FloatArray:
    """Turn log odds into a probability kept within [0.005, 0.995]."""
    return np.clip(expit(log_odds), 0.005, 0.995)


def _normal_mean(
    function: Callable[[FloatArray], FloatArray], low: float = -12.0, high: float = 12.0
) -> float:
    """Integral of `function` times the standard normal density, by Gauss-Legendre."""
    node, weight = np.polynomial.legendre.leggauss(400)
    z = low + (high - low) * (node + 1) / 2
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return float((high - low) / 2 * np.sum(weight * density * function(z)))
