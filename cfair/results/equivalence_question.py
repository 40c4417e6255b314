"""What a test of equivalence asks of every pair of groups: contrast, margin, alpha, method."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfair.equivalence.design import check_alpha
from cfair.equivalence.margins import CONTRASTS, check_margin, check_metric
from cfair.options import check_option
from cfair.results.contrasts import ADJUSTMENTS

#: Score tests of counts and Wald elsewhere, or one of them throughout.
METHODS: tuple[str, ...] = ("auto", "score", "wald")
#: Within what a contrast counts as no difference: its ends, or how far a difference may be from 0.
Margin = tuple[float, float] | float


@dataclass(frozen=True)
class Question:
    """What is asked of every pair.

    Attributes
    ----------
    contrast : {"ratio", "odds_ratio", "difference"}
    margins : dict of str to (float, float)
        By metric.
    alpha : float
        Of each one-sided test.
    method : {"auto", "score", "wald"}
    adjust : str or None
    chosen : bool
        Whether a margin was given.
    """

    contrast: str
    margins: Mapping[str, tuple[float, float]]
    alpha: float
    method: str
    adjust: str | None
    chosen: bool

    @property
    def equal(self) -> float:
        """Value of the contrast where rates are equal."""
        return 0.0 if self.contrast == "difference" else 1.0


def read_question(
    metrics: Any,
    known: Sequence[str],
    compared: Sequence[str],
    *,
    margin: Any,
    contrast: str,
    alpha: Any,
    method: str,
    adjust: str | None,
) -> Question:
    """Check what was asked.

    Parameters
    ----------
    metrics : str, sequence of str or None
    known, compared : sequences of str
        Metrics of the result, and those that it compares unless told otherwise.
    margin : pair or number, mapping of metric to such a margin, or None
    contrast, alpha, method, adjust
        As the user gave them.

    Returns
    -------
    Question

    Raises
    ------
    ValueError
        For a value that is not allowed.
    """
    check_option("contrast", contrast, CONTRASTS)
    check_option("method", method, METHODS)
    check_option("adjust", adjust, [*ADJUSTMENTS, None])
    if np.ndim(alpha):
        raise ValueError(f"alpha must be one number, not {alpha!r}.")
    each = isinstance(margin, Mapping)
    named = margin if each and metrics is None else metrics
    wanted = named_metrics(compared if named is None else named, known)
    if each:
        names = named_metrics(margin, known)
        if set(names) != set(wanted):
            raise ValueError(
                f"margin must have a pair for each metric ({', '.join(wanted)}) and for no other, "
                f"not for {', '.join(names)}."
            )
        given = dict(zip(names, margin.values(), strict=True))
    margins = {}
    for metric in wanted:
        low, high = check_margin(given[metric] if each else margin, contrast)
        if np.ndim(low) or np.ndim(high):
            raise ValueError(f"margin must be a pair of numbers (low, high), not {margin!r}.")
        margins[metric] = (float(low), float(high))
    return Question(
        contrast, margins, float(check_alpha(alpha)), method, adjust, chosen=margin is not None
    )


def named_metrics(metrics: Any, known: Sequence[str]) -> list[str]:
    """Metrics by their names in a result; sensitivity and specificity are read too.

    Parameters
    ----------
    metrics : str or collection of str
    known : sequence of str
        Metrics of the result.

    Returns
    -------
    list of str

    Raises
    ------
    ValueError
        If one is unknown or comes twice, or there is none.
    """
    if isinstance(metrics, str) or not isinstance(metrics, Collection):
        metrics = [metrics]
    found = []
    for metric in metrics:
        name = metric
        with suppress(ValueError):  # the eight metrics of the planning functions have synonyms
            name = check_metric(metric)
        if name not in known:
            check_option("metric", metric, known)
        found.append(str(name))
    if not found or len(set(found)) < len(found):
        raise ValueError(f"metrics must name one metric or more, each once, not {list(metrics)!r}.")
    return found
