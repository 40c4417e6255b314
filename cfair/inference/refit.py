"""Rates under no treatment when rows count otherwise or carry other labels: models fitted again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from cfair.estimators.aipw import aipw_scores
from cfair.estimators.confusion import cell_codes, confusion_counts
from cfair.estimators.ipw import ipw_weights
from cfair.inference.contributions import (
    Contributions,
    OutcomeModel,
    TreatmentModel,
    aipw_contributions,
    ipw_contributions,
    plugin_contributions,
    without_rounding,
)
from cfair.inference.equality import logit_wald
from cfair.inference.influence import rate_covariance
from cfair.inference.moments import contribution_moments
from cfair.inference.rows import Rows
from cfair.nuisance.binary import BinaryFit, BinaryModel
from cfair.nuisance.multinomial_binary import fit_binary_many

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: Estimators of rates under no treatment.
ESTIMATORS: tuple[str, ...] = ("ipw", "aipw", "plugin")


@dataclass(frozen=True, eq=False)
class Part:
    """A block of replicates.

    Attributes
    ----------
    cells : (B, K, 2, 2) array
        Sums by group, outcome without treatment, and prediction.
    observed : (B, K, 2, 2) array
        Sums of all rows by group, outcome and prediction.
    not_converged : int
    size : (B,) array
        Rows drawn; empty where labels were exchanged.
    wald : (B, 2) array or None
        Logit Wald statistics of cFPR and cFNR, under labels.
    """

    cells: Array
    observed: Array
    not_converged: int
    size: Array
    wald: Array | None = None


@dataclass(frozen=True, eq=False)
class CounterfactualModels:
    """The rows of an analysis with the models behind its rates.

    Attributes
    ----------
    rows : Rows
    estimator : {"ipw", "aipw", "plugin"}
    pi : (n,) array or None
        Truncated probabilities of treatment in the full sample.
    mu0 : (n,) array or None
        Probabilities of the event without treatment in the full sample.
    treatment, outcome : BinaryModel or None
        None where the probabilities are given or not needed.
    truncation : (float, float)
    coef : (p,) array or None
        Coefficients of the propensity in the full sample, to start from.
    outcome_coef : (m,) array or None
    fitted : (n,) array or None
        Probabilities of treatment before truncation, which tell rows apart.
    content : tuple of (n,) arrays
        What else tells rows apart, where equal probabilities do not mean equal rows: out of fold,
        and with learners.
    """

    rows: Rows
    estimator: str
    pi: Array | None
    mu0: Array | None = None
    treatment: BinaryModel | None = None
    outcome: BinaryModel | None = None
    truncation: tuple[float, float] = (0.005, 0.995)
    coef: Array | None = None
    outcome_coef: Array | None = None
    fitted: Array | None = None
    content: tuple[Array, ...] = ()

    @property
    def uses_groups(self) -> bool:
        """Whether another fit is needed when the labels change."""
        return any(m is not None and m.uses_groups for m in (self.treatment, self.outcome))

    @property
    def in_sample(self) -> bool:
        """Whether all models are fitted and used on the same rows, by maximum likelihood."""
        return all(m is None or m.in_sample for m in (self.treatment, self.outcome))

    @property
    def needs_bootstrap(self) -> bool:
        """Whether no influence function holds: an outcome model alone, out of fold."""
        return self.estimator == "plugin" and not self.in_sample

    @property
    def learns(self) -> bool:
        """Whether a learner is among the models."""
        both = (self.treatment, self.outcome)
        return any(m is not None and m.estimator is not None for m in both)

    @property
    def keys(self) -> list[Array]:
        """Numbers that tell rows apart."""
        # where there are probabilities before truncation, those after it tell nothing apart
        known = (self.pi if self.fitted is None else self.fitted, self.mu0)
        return [*self.content, *(values for values in known if values is not None)]

    def contributions(
        self,
        group: Integers | None = None,
        treatment: BinaryFit | None = None,
        outcome: BinaryFit | None = None,
    ) -> Contributions:
        """What every row adds to the sums.

        Parameters
        ----------
        group : (n,) array of int, optional
            Other labels.
        treatment, outcome : BinaryFit, optional
            Fits to use; the probabilities of the full sample, as known, by default.

        Returns
        -------
        Contributions
        """
        r = self.rows
        arrays = (r.y, r.s, r.d, r.group if group is None else group)
        if self.estimator == "plugin":
            return plugin_contributions(*arrays, self._outcome_model(outcome))
        model = self._treatment_model(treatment)
        if self.estimator == "ipw":
            return ipw_contributions(*arrays, model)
        return aipw_contributions(*arrays, model, self._outcome_model(outcome))

    def _treatment_model(self, fit: BinaryFit | None) -> TreatmentModel:
        if fit is None:
            assert self.pi is not None
            return TreatmentModel(self.pi)
        fitted = fit.values[0]
        pi = np.clip(fitted, *self.truncation)
        if not fit.models:
            return TreatmentModel(pi)
        return TreatmentModel(pi, fit.models[0].design, fitted, fit.models[0].information)

    def _outcome_model(self, fit: BinaryFit | None) -> OutcomeModel:
        if fit is None:
            assert self.mu0 is not None
            return OutcomeModel(self.mu0)
        return OutcomeModel(fit.values[0], fit.models[0] if fit.models else None)

    # -- other counts ---------------------------------------------------------------------------

    def under_counts(self, counts: Array) -> Part:
        """Fit and estimate with every row counted so many times.

        Parameters
        ----------
        counts : (B, n) array

        Returns
        -------
        Part
        """
        r = self.rows
        total = counts if r.weights is None else counts * r.weights
        converged = np.ones(len(counts), dtype=bool)
        observed = self._by_own_cell(total)
        pi, mu0 = self.pi, self.mu0
        if self.treatment is not None and self.estimator != "plugin":
            (fitted,), good = fit_binary_many(self.treatment, counts, self.coef)
            pi, converged = np.clip(fitted, *self.truncation), converged & good
        if self.outcome is not None and self.estimator != "ipw":
            (mu0,), good = fit_binary_many(self.outcome, counts, self.outcome_coef)
            converged = converged & good
        if self.estimator == "ipw":
            assert pi is not None
            cells = self._by_own_cell(total * ipw_weights(self.rows.d, pi))
        else:
            cells = self._by_prediction(total, self._scores(pi, mu0))
        return Part(cells, observed, int((~converged).sum()), counts.sum(axis=1))

    def _scores(self, pi: Array | None, mu0: Array | None) -> Array:
        """AIPW scores, or the outcome model alone."""
        assert mu0 is not None
        if self.estimator == "plugin":
            return mu0
        assert pi is not None
        if pi.ndim == 1 and mu0.ndim == 1:
            return aipw_scores(self.rows.y, self.rows.d, pi, mu0)
        return np.asarray(ipw_weights(self.rows.d, pi) * (self.rows.y - mu0) + mu0)

    def _by_own_cell(self, values: Array) -> Array:
        """Sums of values (B, n) by group, outcome and prediction."""
        return np.asarray((self._own_cell @ values.T).T).reshape(-1, self.rows.n_groups, 2, 2)

    def _by_prediction(self, total: Array, phi: Array) -> Array:
        """Sums of phi and of 1 - phi by group and prediction."""
        K = self.rows.n_groups
        events = np.asarray((self._prediction_cell @ (total * phi).T).T).reshape(-1, K, 2)
        everyone = np.asarray((self._prediction_cell @ total.T).T).reshape(-1, K, 2)
        return without_rounding(np.stack([everyone - events, events], axis=2))

    @cached_property
    def _own_cell(self) -> csr_matrix:
        r = self.rows
        return _indicator(cell_codes(r.y, r.s, r.group), 4 * r.n_groups)

    @cached_property
    def _prediction_cell(self) -> csr_matrix:
        r = self.rows
        return _indicator(np.asarray(r.group, np.intp) * 2 + r.s, 2 * r.n_groups)

    # -- other labels ---------------------------------------------------------------------------

    def under_labels(self, labels: Integers, *, one_step: bool = False) -> Part:
        """Fit and estimate with other group labels.

        Parameters
        ----------
        labels : (B, n) array of int
        one_step : bool, default False
            A single Newton step from the fits without labels.

        Returns
        -------
        Part
        """
        r, K = self.rows, self.rows.n_groups
        cells, observed = np.empty((len(labels), K, 2, 2)), np.empty((len(labels), K, 2, 2))
        wald = np.empty((len(labels), 2))
        failures = 0
        fixed = self._fixed_fits
        for b, row in enumerate(labels):
            group = row.astype(np.intp)
            fits = {}
            for name, model in self.refitted.items():
                refit = model.uses_groups
                fits[name] = model.fit(labels=group, one_step=one_step) if refit else fixed[name]
            failures += not all(fit.converged for fit in fits.values())
            added = self.contributions(group, **fits)
            cells[b], wald[b] = _cells_and_walds(self._studentized(added), K, r.weights)
            observed[b] = confusion_counts(r.y, r.s, group, K, r.weights)
        return Part(cells, observed, failures, np.zeros(0), wald)

    def walds(self, added: Contributions) -> Array:
        """Wald statistics as the permutations compute them: rows count as independent.

        Parameters
        ----------
        added : Contributions
            Of the full sample.

        Returns
        -------
        (2,) array
            cFPR, cFNR.
        """
        return _cells_and_walds(self._studentized(added), self.rows.n_groups, self.rows.weights)[1]

    def _studentized(self, added: Contributions) -> Contributions:
        """Standard errors under labels: of AIPW scores as if the models were known.

        With both models right estimating them does not matter, and whatever the scale, the observed
        statistic is held against the same one under other labels.
        """
        if self.estimator == "ipw":
            return added
        return Contributions(added.cell, added.value, (), (), added.base, added.base_cell)

    @property
    def refitted(self) -> dict[str, BinaryModel]:
        """The models that the estimator uses and that can be fitted again, by name."""
        wanted = {"treatment": self.treatment, "outcome": self.outcome}
        if self.estimator != "aipw":
            del wanted["outcome" if self.estimator == "ipw" else "treatment"]
        return {name: model for name, model in wanted.items() if model is not None}

    @cached_property
    def _fixed_fits(self) -> dict[str, BinaryFit]:
        """Fits that no label changes."""
        return {n: m.fit() for n, m in self.refitted.items() if not m.uses_groups}


def _indicator(codes: NDArray[np.intp], n_codes: int) -> csr_matrix:
    n = len(codes)
    return csr_matrix((np.ones(n), (codes, np.arange(n))), shape=(n_codes, n))


def _cells_and_walds(
    added: Contributions, n_groups: int, weights: Array | None
) -> tuple[Array, Array]:
    moments = contribution_moments(added, n_groups, weights)
    rates = rate_covariance(moments, np.eye(n_groups))
    parts = [slice(m * n_groups, (m + 1) * n_groups) for m in range(2)]
    walds = [
        float(logit_wald(rates.estimate[at], rates.covariance[at, at], rates.kish[at]))
        for at in parts
    ]
    return moments.by_group(moments.mass), np.array(walds)


#: Information on the coefficient of a group from which one Newton step is near enough: its standard
#: error is then 0.32.
ENOUGH_INFORMATION = 10.0


def least_information(variance: Array, rows: Rows) -> float:
    """Least information on the coefficient of a group, over groups with rows.

    Parameters
    ----------
    variance : (n,) array
        Of the fitted outcome in each row, 0 for a row that the fit does not use.
    rows : Rows

    Returns
    -------
    float
        Sums of the variances, of as many rows as the sampling weights are worth.
    """
    a = np.ones(rows.n) if rows.weights is None else rows.weights
    total, squares = (
        np.bincount(rows.group, weights=w * variance, minlength=rows.n_groups) for w in (a, a**2)
    )
    information = total**2 / np.where(squares > 0, squares, 1.0)
    return float(np.min(information[rows.sizes > 0], initial=np.inf))
