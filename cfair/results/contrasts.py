"""Frames of pairwise comparisons: which pairs, adjusted p-values, and notes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import require_comparison
from cfair.disclosure import MASKED
from cfair.errors import DataError
from cfair.estimators.confusion import SYNONYMS
from cfair.groups import Groups
from cfair.inference.estimates import CONTRASTS, RateEstimates
from cfair.options import check_option

Array = NDArray[np.float64]

#: Adjustments of p-values for several tests: statsmodels' names, and how they are printed.
ADJUSTMENTS: dict[str, str] = {
    "holm": "Holm",
    "bonferroni": "Bonferroni",
    "sidak": "Sidak",
    "holm-sidak": "Holm-Sidak",
    "simes-hochberg": "Simes-Hochberg",
    "hommel": "Hommel",
    "fdr_bh": "Benjamini-Hochberg",
    "fdr_by": "Benjamini-Yekutieli",
}

#: What else the field calls a rate, for those who ask by that name.
_MORE_SYNONYMS: dict[str, str] = {
    **SYNONYMS,
    "equalised_odds": "equalized_odds",
    "roc_auc": "auc",
    "auroc": "auc",
}
_SCORES = ("auc", "brier", "log_loss", "ece")


def metric_hint(metric: str, labels: Mapping[str, str]) -> str:
    """What may have been meant by the name of a metric that is not there.

    Parameters
    ----------
    metric : str
    labels : mapping of str to str
        The metrics that are there, and their names in print.

    Returns
    -------
    str
        A sentence after a blank, or nothing.
    """
    asked = metric.strip().lower().replace(" ", "_").replace("-", "_")
    by_label = {label.lower().replace(" ", "_"): name for name, label in labels.items()}
    found = _MORE_SYNONYMS.get(asked, by_label.get(asked, asked))
    if found not in labels:
        near = difflib.get_close_matches(found, labels, n=1)
        found = near[0] if near else found
    if found in labels:
        return f" Did you mean {found!r}?"
    return " Audit.performance() has it." if found in _SCORES else ""


#: Why a comparison of two values has no interval.
NO_SE = "a value has no standard error"

#: All rows together, as a reference.
OVERALL = "overall"


@dataclass(frozen=True)
class Compared:
    """What is compared: targets by name and position, and the one they are compared with.

    Attributes
    ----------
    names : tuple of str
    positions : (m,) array of int
        Among the groups, margins and all.
    reference : int or None
        Position in `names`; None for all pairs.
    to_all : bool
        Whether the reference is all rows, those of each group among them. A group or level that is
        called "overall" is what it is, and the others are compared with it.
    """

    names: tuple[str, ...]
    positions: NDArray[np.intp]
    reference: int | None
    to_all: bool = False

    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """First and second of every pair, as positions in `names`."""
        n = len(self.names)
        if self.reference is None:
            first, second = np.triu_indices(n, 1)
            return first, second
        others = np.array([k for k in range(n) if k != self.reference], dtype=np.intp)
        return others, np.full(len(others), self.reference, dtype=np.intp)


def compared_groups(groups: Groups, attribute: str | None, reference: Any) -> Compared:
    """Choose the groups, or the levels of one attribute, that are to be compared.

    Parameters
    ----------
    groups : Groups
    attribute : str or None
        Levels of this attribute; the intersectional groups by default.
    reference : label or None
        What the others are compared with, or ``"overall"``; all pairs by default.

    Returns
    -------
    Compared

    Raises
    ------
    DataError
        If there is only one group, no such attribute, or no such label.
    """
    if attribute is None:
        require_comparison(groups)
        if isinstance(reference, str) and reference == OVERALL and OVERALL not in groups.names:
            every = groups.n_groups + len(groups.margins)
            whole = np.append(np.arange(groups.n_groups), every)
            return Compared((*groups.names, OVERALL), whole, groups.n_groups, to_all=True)
        position = None if reference is None else groups.index_of(reference)
        return Compared(groups.names, np.arange(groups.n_groups), position)
    if attribute not in groups.attributes:
        raise DataError(
            f"{attribute!r} is not an attribute of this audit. "
            f"Its attributes are {', '.join(groups.attributes)}."
        )
    names = groups.level_names[groups.attributes.index(attribute)]
    at = [k for k, (a, _) in enumerate(groups.margins) if a == attribute]
    levels = [groups.margins[k][1] for k in at]
    if len(levels) < 2:
        raise DataError(
            f"a comparison needs two levels, but {attribute!r} has only {', '.join(names)}. Choose "
            "another attribute."
        )
    targets = groups.n_groups + np.array(at, dtype=np.intp)
    if isinstance(reference, str) and reference == OVERALL and OVERALL not in (*levels, *names):
        every = groups.n_groups + len(groups.margins)
        return Compared((*names, OVERALL), np.append(targets, every), len(names), to_all=True)
    position = None
    if reference is not None:
        if reference not in levels and reference not in names:
            raise DataError(
                f"{reference!r} is no level of {attribute!r}. Its levels are {', '.join(names)}."
            )
        position = levels.index(reference) if reference in levels else names.index(reference)
    return Compared(names, targets, position)


def contrast_frame(
    estimates: Sequence[RateEstimates],
    compared: Compared,
    *,
    kind: str,
    adjust: str | None,
    level: float,
    reasons: Sequence[Sequence[str]] | None = None,
) -> pd.DataFrame:
    """Differences or ratios of all pairs, for several metrics.

    Parameters
    ----------
    estimates : sequence of RateEstimates
    compared : Compared
    kind : {"difference", "ratio"}
    adjust : str or None
        A key of `ADJUSTMENTS`, ``"max-t"``, or None.
    level : float
    reasons : sequence of (T,) sequences of str, optional
        Notes on the rates of each metric; where they say that one is masked, its pairs say it too.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    ValueError
        For an unknown option.
    """
    check_option("kind", kind, CONTRASTS)
    check_option("adjust", adjust, [*ADJUSTMENTS, "max-t", None])
    first, second = compared.pairs()
    i, j = compared.positions[first], compared.positions[second]
    parts = []
    for m, e in enumerate(estimates):
        pointwise, adjusted = level, np.full(len(i), np.nan)
        if adjust == "max-t":
            pointwise, adjusted = e.simultaneous(i, j, level)
        c = e.contrast(i, j, kind, pointwise)
        columns = {
            "metric": e.metric,
            "group": [compared.names[k] for k in first],
            "reference": [compared.names[k] for k in second],
            "estimate": c.estimate,
            "se": c.se,
            "ci_low": c.low,
            "ci_high": c.high,
            "p_value": c.p_value,
            "p_adjusted": adjusted,
        }
        a, b = e.estimate[i], e.estimate[j]
        why = {
            "a rate is undefined": np.isnan(a) | np.isnan(b),
            "the reference rate is 0": (b == 0) & (kind == "ratio"),
            NO_SE: np.isnan(c.se),
        }
        notes = np.select(list(why.values()), list(why), "")
        if reasons is not None:
            ends = zip(first, i, second, j, notes, strict=True)
            notes = np.array([_masked(reasons[m], compared.names, *pair) for pair in ends], object)
        parts.append(pd.DataFrame(columns).assign(note=notes))
    frame = pd.concat(parts, ignore_index=True)
    frame.insert(len(frame.columns) - 1, "family", adjust_p_values(frame, adjust))
    return frame


def _masked(
    reasons: Sequence[str], names: Sequence[str], a: int, i: int, b: int, j: int, note: str
) -> str:
    """Which rate of a pair is masked and why, in place of its note."""
    for k, target in ((a, i), (b, j)):
        if reasons[target].startswith(MASKED):
            return f"{reasons[target]} in {names[k]}"
    return note


def adjust_p_values(frame: pd.DataFrame, adjust: str | None) -> str:
    """Adjust ``p_value`` over all that are defined in a frame, into ``p_adjusted``.

    Parameters
    ----------
    frame : pandas.DataFrame
        With columns ``metric, p_value, p_adjusted``; changed.
    adjust : str or None
        A key of `ADJUSTMENTS`, ``"max-t"``, which leaves what is there, or None.

    Returns
    -------
    str
        The family in words.
    """
    defined = frame["p_value"].notna().to_numpy()
    n, n_metrics = int(defined.sum()), frame["metric"].nunique()
    what = f"{n} p-value{'s' * (n != 1)} ({n_metrics} metric{'s' * (n_metrics > 1)})"
    if adjust == "max-t":
        return f"max-t within each metric, {what}"
    if adjust is None:
        frame["p_adjusted"] = frame["p_value"]
        return f"not adjusted, {what}"
    if n:
        from statsmodels.stats.multitest import multipletests

        p = frame.loc[defined, "p_value"].to_numpy(dtype=np.float64)
        frame.loc[defined, "p_adjusted"] = multipletests(p, method=adjust)[1]
    return f"{ADJUSTMENTS[adjust]} over {what}"
