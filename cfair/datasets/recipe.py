"""How a simulated cohort is made: a design with counterfactual error rates that are exact by form.

The order of the draws is what makes everything known. With the group A, the outcome without
treatment Y0, the flag S, the covariates X and the treatment D,

    A ~ shares,   Y0 | A ~ prevalence,   S | Y0, A ~ (cFPR, 1 - cFNR),
    X | Y0, S, A ~ Normal(mean linear in Y0, S and A; one covariance),
    score | S in [0, 0.5) or [0.5, 1),
    D | X, S, score, A ~ logistic,   Y1 = 0 if Y0 = 0, else Bernoulli(event_if_treated).

So cFPR and cFNR are the numbers put in, the propensity model is logistic as written, and by Bayes'
rule the outcome model is logistic as well: the log odds of Y0 given (X, S, A), which D leaves as
they are, are linear in X with a free intercept for every group and flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import DataError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


@runtime_checkable
class Recipe(Protocol):
    """What `simulate_cohort` and `true_rates` ask of a design."""

    @property
    def name(self) -> str:
        """How messages call it."""

    @property
    def attributes(self) -> Mapping[str, tuple[str, ...]]:
        """Levels of each protected attribute."""

    def draw(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw n rows."""

    def truth(self) -> pd.DataFrame:
        """Exact rates, a row per group."""


@dataclass(frozen=True)
class Covariate:
    """One covariate: normal with standard deviation `scale`, its mean moved by Y0, S and the group.

    Attributes
    ----------
    name : str
        Column name.
    event_shift, flag_shift : float
        How far Y0 = 1 and S = 1 move the mean, in standard deviations.
    group_shift : tuple of float
        How far each group moves it, in standard deviations; empty for no shift.
    treatment : float
        Log odds of treatment per standard deviation.
    centre, scale : float
        Mean at Y0 = S = 0 without group shift, and standard deviation, in the column's own unit.
    decimals : int or None
        Decimals to round to. Treatment follows the rounded value, so the propensity stays exact.
    """

    name: str
    event_shift: float = 0.0
    flag_shift: float = 0.0
    group_shift: tuple[float, ...] = ()
    treatment: float = 0.0
    centre: float = 0.0
    scale: float = 1.0
    decimals: int | None = None


@dataclass(frozen=True)
class Design:
    """A simulated cohort whose counterfactual error rates are the numbers put in.

    Tuples "per group" follow the crossing of the attributes, the last one varying fastest.

    Attributes
    ----------
    name : str
        How messages call it.
    attributes : mapping of str to tuple of str
        Levels of each protected attribute, sorted if an audit is to list groups in this order.
    shares, prevalence, cfpr, cfnr : tuple of float
        Per group: share of the cohort, P(Y0 = 1), P(S = 1 | Y0 = 0), P(S = 0 | Y0 = 1).
    covariates : tuple of Covariate
        What else is measured.
    treatment_intercept : tuple of float
        Per group: log odds of treatment at S = 0, score 0 and covariates at their centre.
    treatment_flag, treatment_score : float
        Log odds of treatment for S = 1 against S = 0, and per unit of the score.
    event_if_treated : float
        P(Y1 = 1 | Y0 = 1): the share of events that treatment does not prevent.
    correlation : float
        Between any two covariates, given Y0, S and the group.
    score_shape : tuple of float
        Score = (S + Beta(*score_shape)) / 2, so that S = 1{score >= 0.5}.
    score_decimals : int or None
        Decimals of the score, rounded down so that no score crosses the cutoff of 0.5.
    outcome, score, treatment : str
        Column names.
    flag : str or None
        Column name of S; None leaves the column out.

    Examples
    --------
    >>> from cfair.datasets import Covariate, Design, simulate_cohort, true_rates
    >>> design = Design(
    ...     name="two groups",
    ...     attributes={"sex": ("F", "M")},
    ...     shares=(0.5, 0.5), prevalence=(0.3, 0.2), cfpr=(0.1, 0.2), cfnr=(0.3, 0.3),
    ...     covariates=(Covariate("age", event_shift=0.5, treatment=0.4, centre=60, scale=9),),
    ...     treatment_intercept=(-0.5, -0.5), treatment_flag=1.0,
    ... )
    >>> list(simulate_cohort(100, seed=1, design=design))
    ['y', 'score', 's', 'd', 'sex', 'age', 'y_untreated', 'y_treated']
    >>> true_rates(design)
      sex  cfpr  cfnr  share  prevalence
    0   F   0.1   0.3    0.5         0.3
    1   M   0.2   0.3    0.5         0.2
    """

    name: str
    attributes: Mapping[str, tuple[str, ...]]
    shares: tuple[float, ...]
    prevalence: tuple[float, ...]
    cfpr: tuple[float, ...]
    cfnr: tuple[float, ...]
    covariates: tuple[Covariate, ...]
    treatment_intercept: tuple[float, ...]
    treatment_flag: float = 0.0
    treatment_score: float = 0.0
    event_if_treated: float = 0.6
    correlation: float = 0.0
    score_shape: tuple[float, float] = (1.5, 3.0)
    score_decimals: int | None = None
    outcome: str = "y"
    score: str = "score"
    flag: str | None = "s"
    treatment: str = "d"

    def __post_init__(self) -> None:
        n_groups = len(group_labels(self.attributes))
        for field in ("shares", "prevalence", "cfpr", "cfnr", "treatment_intercept"):
            _check_length(self.name, field, getattr(self, field), n_groups)
        for field in ("shares", "prevalence", "cfpr", "cfnr"):
            _check_probabilities(self.name, field, getattr(self, field))
        _check_probabilities(self.name, "event_if_treated", (self.event_if_treated,))
        for covariate in self.covariates:
            if covariate.group_shift:
                what = f"group_shift of covariate {covariate.name!r}"
                _check_length(self.name, what, covariate.group_shift, n_groups)
            if not covariate.scale > 0:
                raise DataError(
                    f"design {self.name!r}: scale of covariate {covariate.name!r} must be above 0, "
                    f"but is {covariate.scale:g}."
                )
        self._check_names()
        if abs(sum(self.shares) - 1) > 1e-9:
            raise DataError(
                f"design {self.name!r}: shares must sum to 1, but sum to {sum(self.shares):g}."
            )
        if not 0 <= self.correlation < 1:
            raise DataError(
                f"design {self.name!r}: correlation must be in [0, 1), but is {self.correlation:g}."
            )

    def draw(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw n rows, with both potential outcomes in the last two columns."""
        group = rng.choice(len(self.shares), size=n, p=self.shares)
        y0 = rng.random(n) < np.asarray(self.prevalence)[group]
        s = rng.random(n) < np.where(
            y0, 1 - np.asarray(self.cfnr)[group], np.asarray(self.cfpr)[group]
        )
        score = self._draw_score(s, rng)
        covariates = self._draw_covariates(y0, s, group, rng)
        d = rng.random(n) < expit(self._treatment_log_odds(s, score, group, covariates))
        y1 = y0 & (rng.random(n) < self.event_if_treated)

        columns: dict[str, object] = {
            self.outcome: np.where(d, y1, y0).astype(np.int64),
            self.score: score,
        }
        if self.flag is not None:
            columns[self.flag] = s.astype(np.int64)
        columns[self.treatment] = d.astype(np.int64)
        columns.update(attribute_columns(self.attributes, group))
        columns.update(
            (c.name, x.astype(np.int64) if c.decimals == 0 else x)
            for c, x in zip(self.covariates, covariates, strict=True)
        )
        columns.update(potential_outcomes(self.outcome, y0, y1))
        return pd.DataFrame(columns)

    def truth(self) -> pd.DataFrame:
        """Exact rates, a row per group."""
        return rates_frame(self.attributes, self.cfpr, self.cfnr, self.shares, self.prevalence)

    def _check_names(self) -> None:
        names = [self.outcome, self.score, self.treatment, *self.attributes]
        names += [self.flag] if self.flag is not None else []
        names += [covariate.name for covariate in self.covariates]
        names += [f"{self.outcome}_untreated", f"{self.outcome}_treated"]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DataError(
                f"design {self.name!r}: every column needs a name of its own, but "
                f"{', '.join(map(repr, twice))} is used more than once."
            )

    def _draw_score(self, s: NDArray[np.bool_], rng: np.random.Generator) -> FloatArray:
        """Draw a score that tells S and nothing else."""
        score = (s + rng.beta(*self.score_shape, size=len(s))) / 2
        if self.score_decimals is not None:
            unit = 10.0**self.score_decimals
            # Down, not to the nearest: 0.4999 must not become 0.500. And never to 0 itself.
            score = np.maximum(np.floor(score * unit), 1) / unit
        return score

    def _draw_covariates(
        self, y0: NDArray[np.bool_], s: NDArray[np.bool_], group: IntArray, rng: np.random.Generator
    ) -> list[FloatArray]:
        """Draw normal covariates given (Y0, S, A), each in its own unit."""
        n = len(group)
        shared = np.sqrt(self.correlation) * rng.standard_normal(n) if self.correlation else 0.0
        drawn = []
        for c in self.covariates:
            z = np.sqrt(1 - self.correlation) * rng.standard_normal(n) + shared
            z += c.event_shift * y0 + c.flag_shift * s
            if c.group_shift:
                z += np.asarray(c.group_shift)[group]
            x = c.centre + c.scale * z
            drawn.append(x if c.decimals is None else np.round(x, c.decimals))
        return drawn

    def _treatment_log_odds(
        self,
        s: NDArray[np.bool_],
        score: FloatArray,
        group: IntArray,
        covariates: list[FloatArray],
    ) -> FloatArray:
        """Log odds of treatment, linear in what the frame shows."""
        log_odds = np.asarray(self.treatment_intercept, dtype=np.float64)[group]
        log_odds += self.treatment_flag * s + self.treatment_score * score
        for c, x in zip(self.covariates, covariates, strict=True):
            log_odds += c.treatment * (x - c.centre) / c.scale
        return log_odds


def group_labels(attributes: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """All crossings of the attributes' levels, the last attribute varying fastest."""
    return list(product(*attributes.values()))


def attribute_columns(
    attributes: Mapping[str, tuple[str, ...]], group: IntArray
) -> dict[str, object]:
    """Turn group codes into one text column per attribute."""
    by_attribute = zip(attributes, zip(*group_labels(attributes), strict=True), strict=True)
    return {name: np.array(labels, dtype=object)[group] for name, labels in by_attribute}


def potential_outcomes(
    outcome: str, y0: NDArray[np.bool_], y1: NDArray[np.bool_]
) -> dict[str, NDArray[np.int64]]:
    """Columns of the outcome without and with treatment, of which a study sees one per row."""
    return {
        f"{outcome}_untreated": y0.astype(np.int64),
        f"{outcome}_treated": y1.astype(np.int64),
    }


def rates_frame(
    attributes: Mapping[str, tuple[str, ...]],
    cfpr: tuple[float, ...],
    cfnr: tuple[float, ...],
    shares: tuple[float, ...],
    prevalence: tuple[float, ...],
) -> pd.DataFrame:
    """Lay out the truth, a row per group."""
    frame = pd.DataFrame(group_labels(attributes), columns=list(attributes))
    return frame.assign(cfpr=cfpr, cfnr=cfnr, share=shares, prevalence=prevalence)


def expit(x: FloatArray) -> FloatArray:
    """Inverse of the logit, without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def _check_length(name: str, field: str, values: tuple[float, ...], n_groups: int) -> None:
    if len(values) != n_groups:
        raise DataError(
            f"design {name!r}: {field} has {len(values)} values, but the attributes cross into "
            f"{n_groups} groups. Give one value per group, the last attribute varying fastest."
        )


def _check_probabilities(name: str, field: str, values: tuple[float, ...]) -> None:
    wrong = [value for value in values if not 0 <= value <= 1]
    if wrong:
        raise DataError(
            f"design {name!r}: {field} must hold probabilities in [0, 1], but {len(wrong)} of "
            f"{len(values)} do not: {', '.join(f'{value:g}' for value in wrong[:3])}."
        )
