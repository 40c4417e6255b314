"""Equivalence of the observed rates of a cohort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfair.analyses.observed import observed
from cfair.cohort import Cohort
from cfair.results.equivalence import EquivalenceResult
from cfair.results.equivalence_question import Margin


def equivalence(
    cohort: Cohort,
    metrics: str | Sequence[str] | None = None,
    *,
    margin: Margin | Mapping[str, Margin] | None = None,
    contrast: str = "ratio",
    reference: Any = None,
    attribute: str | None = None,
    alpha: float = 0.05,
    method: str = "auto",
    adjust: str | None = None,
) -> EquivalenceResult:
    """Two one-sided tests on observed rates.

    Parameters
    ----------
    cohort : Cohort
    metrics, margin, contrast, reference, attribute, alpha, method, adjust
        As for `RatesResult.equivalence`.

    Returns
    -------
    EquivalenceResult
    """
    return observed(cohort).equivalence(
        metrics,
        margin=margin,
        contrast=contrast,
        reference=reference,
        attribute=attribute,
        alpha=alpha,
        method=method,
        adjust=adjust,
    )
