"""Interaction contrasts of observed rates: whether the effects of two attributes add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.analyses.observed import (
    cell_counts,
    cluster_notes,
    observed_estimates,
    observed_moments,
    rate_masks,
    shown_denominators,
)
from cfair.cohort import Cohort
from cfair.disclosure import count_column, why_rate_masked
from cfair.errors import DataError
from cfair.estimators.confusion import LABELS, RATES, observed_rates
from cfair.frame import show_some
from cfair.groups import Groups
from cfair.inference.estimates import CARE_BELOW, RateEstimates
from cfair.metrics.superadditivity import (
    CELL_NAMES,
    CELLS,
    CONTRAST,
    REST,
    additivity,
    disagreement,
    superadditive,
)
from cfair.options import check_level, check_option
from cfair.results.contrasts import ADJUSTMENTS, adjust_p_values
from cfair.results.interaction import InteractionResult

Array = NDArray[np.float64]

#: Metrics unless told otherwise; none complements another.
METRICS: tuple[str, ...] = ("selection_rate", "tpr", "fpr", "ppv")
#: What levels are compared with, where no level is named.
REFERENCES: tuple[str, ...] = ("largest", REST, "pairs")

#: Said of cells that have a rate, but little behind it.
_CARE = "read with care: effective size"
#: Comparisons done at once: the covariance of their cells is a matrix.
_BATCH = 64


@dataclass(frozen=True)
class Comparison:
    """A pair of levels, with references, of a pair of attributes.

    Attributes
    ----------
    attributes, levels : (int, int)
        Positions.
    references : (int or None, int or None)
        None for all other levels together.
    """

    attributes: tuple[int, int]
    levels: tuple[int, int]
    references: tuple[int | None, int | None]

    def membership(self, groups: Groups) -> Array:
        """Groups in the four cells, then at level and reference of each attribute.

        Parameters
        ----------
        groups : Groups

        Returns
        -------
        (8, K) array of 0 and 1
        """
        sides = []
        for k, at, other in zip(self.attributes, self.levels, self.references, strict=True):
            codes = groups.level_codes[k]
            inside = codes == at
            sides.append((inside, ~inside if other is None else codes == other))
        (a, not_a), (b, not_b) = sides
        rows = [a & b, a & not_b, not_a & b, not_a & not_b]
        rows += [a & (b | not_b), not_a & (b | not_b), (a | not_a) & b, (a | not_a) & not_b]
        return np.array(rows, dtype=np.float64)

    def names(self, groups: Groups) -> dict[str, Any]:
        """Columns that say what is compared, the labels as they are shown.

        Parameters
        ----------
        groups : Groups

        Returns
        -------
        dict
        """
        found: dict[str, Any] = {}
        for which, k, at, other in zip(
            "ab", self.attributes, self.levels, self.references, strict=True
        ):
            names = groups.level_names[k]
            rest = [name for j, name in enumerate(names) if j != at]
            found[f"attribute_{which}"] = groups.attributes[k]
            found[f"level_{which}"] = names[at]
            if other is None:
                found[f"reference_{which}"] = rest[0] if len(rest) == 1 else REST
            else:
                found[f"reference_{which}"] = names[other]
        return found


def interaction(
    cohort: Cohort,
    *,
    metrics: str | Sequence[str] = METRICS,
    attributes: Sequence[str] | None = None,
    levels: Mapping[str, Any] | None = None,
    reference: str | Mapping[str, Any] = "largest",
    adjust: str | None = "holm",
    level: float = 0.95,
) -> InteractionResult:
    """Four cells, gaps, flag and interaction contrast for pairs of levels of pairs of attributes.

    Parameters
    ----------
    cohort : Cohort
    metrics, attributes, levels, reference, adjust, level
        As in `cfair.Audit.interaction`.

    Returns
    -------
    InteractionResult

    Raises
    ------
    DataError
        If there are fewer than two attributes, no such attribute or level.
    ValueError
        For an unknown option.
    """
    wanted = [metrics] if isinstance(metrics, str) else list(dict.fromkeys(metrics))
    if not wanted:
        raise ValueError(f"metrics must name one or more of {', '.join(RATES)}, not none.")
    for metric in wanted:
        check_option("metric", metric, RATES)
    check_option("adjust", adjust, [*ADJUSTMENTS, None])
    level = check_level(level)
    chosen = list(comparisons(cohort.groups, attributes, levels, reference))
    sums, counts = observed_moments(cohort), cell_counts(cohort)
    parts = []
    for start in range(0, len(chosen), _BATCH):
        batch = chosen[start : start + _BATCH]
        targets = np.vstack([c.membership(cohort.groups) for c in batch])
        names = pd.DataFrame([c.names(cohort.groups) for c in batch])
        cells = np.einsum("tk,kys->tys", targets, counts)
        for e in observed_estimates(cohort, wanted, targets, sums):
            parts.append(
                pd.concat(
                    [names.assign(metric=e.metric), _figures(cohort, e, cells, targets, level)],
                    axis=1,
                )
            )
    frame = pd.concat(parts, ignore_index=True)
    order = {metric: k for k, metric in enumerate(wanted)}
    frame = frame.sort_values("metric", key=lambda m: m.map(order), kind="stable")
    frame = frame.reset_index(drop=True)
    frame.insert(0, "metric", frame.pop("metric"))
    frame.insert(list(frame.columns).index("p_value") + 1, "p_adjusted", np.nan)
    family = adjust_p_values(frame, adjust)
    told = frame["p_adjusted"].to_numpy()
    flag = frame["superadditive"].fillna(False).to_numpy(dtype=bool)
    kinds = disagreement(
        flag, frame["gap_both"].to_numpy(), frame["contrast"].to_numpy(), told, level
    )
    frame.insert(len(frame.columns) - 1, "disagreement", kinds)
    return InteractionResult(
        cohort=cohort,
        _frame=frame,
        family=family,
        reference=_reference_in_words(cohort.groups, chosen, reference),
        labels={metric: LABELS[metric][0] for metric in wanted},
        level=level,
        notes=(*cohort.notes, *cluster_notes(cohort)),
    )


def comparisons(
    groups: Groups,
    attributes: Sequence[str] | None,
    levels: Mapping[str, Any] | None,
    reference: str | Mapping[str, Any],
) -> Iterator[Comparison]:
    """Every pair of levels of every pair of attributes that was asked for.

    Parameters
    ----------
    groups : Groups
    attributes : sequence of str or None
    levels : mapping or None
    reference : str or mapping

    Yields
    ------
    Comparison
    """
    positions = _positions(groups, attributes)
    if not isinstance(reference, Mapping):
        check_option("reference", reference, REFERENCES)
    for what, given in (("levels", levels), ("reference", reference)):
        unknown = (
            [name for name in given if name not in groups.attributes]
            if (isinstance(given, Mapping))
            else []
        )
        if unknown:
            raise DataError(
                f"{what}: {unknown[0]!r} is not an attribute of this audit. Its attributes are "
                f"{', '.join(groups.attributes)}."
            )
    pairs = {k: _level_pairs(groups, k, levels or {}, reference) for k in positions}
    for i, j in combinations(positions, 2):
        for (a, ref_a), (b, ref_b) in product(pairs[i], pairs[j]):
            yield Comparison((i, j), (a, b), (ref_a, ref_b))


def _positions(groups: Groups, attributes: Sequence[str] | None) -> list[int]:
    names = list(groups.attributes) if attributes is None else list(attributes)
    if isinstance(attributes, str) or len(set(names)) < 2:
        raise DataError(
            f"an interaction needs two attributes, but there is one ({show_some(names)}). Declare "
            "more in groups=, or name two in attributes=."
        )
    unknown = [name for name in names if name not in groups.attributes]
    if unknown:
        raise DataError(
            f"{unknown[0]!r} is not an attribute of this audit. Its attributes are "
            f"{', '.join(groups.attributes)}."
        )
    return [groups.attributes.index(name) for name in dict.fromkeys(names)]


def _level_pairs(
    groups: Groups, k: int, levels: Mapping[str, Any], reference: str | Mapping[str, Any]
) -> list[tuple[int, int | None]]:
    """Level and reference of every comparison within one attribute."""
    name, count = groups.attributes[k], groups.shape[k]
    if count < 2:
        raise DataError(
            f"{name!r} has one level ({groups.level_names[k][0]!r}); an interaction needs two. "
            "Leave it out of attributes=."
        )
    sizes = np.bincount(groups.level_codes[k], weights=groups.sizes, minlength=count)
    largest = int(np.argmax(sizes))
    asked = None
    if name in levels:
        given = levels[name]
        several = isinstance(given, (list, tuple, set, frozenset, np.ndarray, pd.Index))
        asked = [groups.level_position(k, v) for v in (given if several else [given])]
    if reference == "pairs":
        every = list(combinations(range(count), 2))
        return [(i, j) for i, j in every if asked is None or i in asked or j in asked]
    if reference == REST:
        usual = [i for i in range(count) if count > 2 or i != largest]
        return [(i, None) for i in (usual if asked is None else asked)]
    other = largest
    if isinstance(reference, Mapping) and name in reference:
        other = groups.level_position(k, reference[name])
    elif asked == [largest] and count == 2:
        other = 1 - largest  # the level in question was named, so the other is its reference
    found = [i for i in (range(count) if asked is None else asked) if i != other]
    if not found:
        raise DataError(
            f"levels: {name!r} is compared with {groups.level_names[k][other]!r}, and no other "
            f"level is asked for. Name another level, or another reference={{{name!r}: ..}}."
        )
    return [(i, other) for i in found]


def _reference_in_words(
    groups: Groups, chosen: Sequence[Comparison], reference: str | Mapping[str, Any]
) -> str:
    if reference == "pairs":
        return "all pairs of levels"
    if reference == REST:
        return "each level against all others together"
    found = {
        groups.attributes[k]: groups.level_names[k][other]
        for c in chosen
        for k, other in zip(c.attributes, c.references, strict=True)
        if other is not None
    }
    largest = (
        " (largest levels unless named)" if isinstance(reference, Mapping) else " (largest levels)"
    )
    return ", ".join(f"{name}: {level}" for name, level in found.items()) + largest


def _figures(
    cohort: Cohort, e: RateEstimates, cells: Array, targets: Array, level: float
) -> pd.DataFrame:
    """Rates, gaps, flag and contrast of one metric, a row per comparison of eight targets."""
    at = np.arange(len(e.estimate)).reshape(-1, 8)
    rates, n = e.estimate[at], shown_denominators(cohort, cells, e.metric, targets)[at]
    contrast = e.combination(at[:, :4], CONTRAST, level)
    gap = e.contrast(at[:, 0], at[:, 3], "difference", level)
    gap_a, gap_b = rates[:, 4] - rates[:, 5], rates[:, 6] - rates[:, 7]
    flag = pd.array(superadditive(gap.estimate, gap_a, gap_b), dtype="boolean")
    flag[np.isnan(gap.estimate + gap_a + gap_b)] = pd.NA
    product_ = rates[:, 1] * rates[:, 2]
    some = product_ > 0
    ratio = np.where(some, rates[:, 0] * rates[:, 3], np.nan) / np.where(some, product_, 1.0)
    return pd.DataFrame(
        {
            **{f"r{name}": rates[:, k] for k, name in enumerate(CELL_NAMES)},
            **{f"n{name}": count_column(n[:, k]) for k, name in enumerate(CELL_NAMES)},
            "gap_both": gap.estimate,
            "gap_low": gap.low,
            "gap_high": gap.high,
            "gap_a": gap_a,
            "gap_b": gap_b,
            "superadditive": flag,
            "contrast": contrast.estimate,
            "se": contrast.se,
            "ci_low": contrast.low,
            "ci_high": contrast.high,
            "p_value": contrast.p_value,
            "additivity": additivity(contrast.low, contrast.high),
            "ratio": ratio,
            "note": _notes(cohort, e, cells, targets, at),
        }
    )


def _notes(
    cohort: Cohort, e: RateEstimates, cells: Array, membership: Array, at: NDArray[np.intp]
) -> list[str]:
    """Which cells have no rate and why, or are too small to lean on."""
    masks = rate_masks(cohort, e.metric, membership)
    reason, n = LABELS[e.metric][1], cells.sum(axis=(1, 2))
    unweighted = observed_rates(cells)[e.metric]
    notes = []
    for targets in at[:, :4]:
        said: dict[str, list[str]] = {}
        for cell, t in zip(CELLS, targets, strict=True):
            name = cell.replace("_", " ")
            if np.isnan(e.estimate[t]):
                why = "no rows" if n[t] == 0 else reason
                why += " of weight above 0" * (not np.isnan(unweighted[t]))
                why = why_rate_masked(masks[t], cohort.suppress_below or 0) or why
                said.setdefault(why, []).append(name)
            elif e.size[t] < CARE_BELOW:
                said.setdefault(_CARE, []).append(f"{e.size[t]:.1f} in {name}")
        care = said.pop(_CARE, None)  # what is undefined comes first
        parts = [f"{why} in {', '.join(names)}" for why, names in said.items()]
        parts += [f"{_CARE} {', '.join(care)}"] if care else []
        notes.append("; ".join(parts))
    return notes
