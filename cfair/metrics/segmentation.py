"""Overlap of segmentations by group: the Dice family, with intervals.

Dice of a sample is 2 |A and B| / (|A| + |B|) of a predicted and a true mask. Groups are compared by
their mean Dice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from cfair.cohort import require_comparison
from cfair.errors import DataError
from cfair.frame import show_some
from cfair.inference.aggregate import aggregate_intervals
from cfair.inference.intervals import student_limits
from cfair.metrics.comparing import labelled
from cfair.metrics.reading import complete_rows, read_features
from cfair.options import check_level, is_number

Array = NDArray[np.float64]

#: Means that differ by less are the same but for rounding.
_ROUNDING = 1e-12


def dice_scores(
    pred_masks: Any,
    true_masks: Any,
    *,
    label: int | None = None,
    mask_threshold: float = 0.5,
    empty_score: float = 1.0,
) -> Array:
    """Dice of every sample from its masks.

    Parameters
    ----------
    pred_masks, true_masks : (n, ...) array, or list of n arrays
        Masks of a sample, of any number of dimensions; in a list shapes may differ from sample to
        sample. Boolean, 0/1, probabilities, or labels if `label` is given.
    label : int, optional
        The structure in masks of several labels.
    mask_threshold : float in [0, 1), default 0.5
        Without `label`: a pixel counts as inside if it is above this.
    empty_score : float in [0, 1] or NaN, default 1.0
        Of a sample in which both masks are empty; NaN leaves it out.

    Returns
    -------
    (n,) array

    Raises
    ------
    DataError
        If numbers or shapes of the masks differ, they hold several labels and none is named, or
        none of them holds `label`.
    ValueError
        If an option has no such value.

    References
    ----------
    Dice LR (1945). Measures of the amount of ecologic association between species. Ecology 26,
    297-302.

    Examples
    --------
    >>> import numpy as np
    >>> dice_scores(np.array([[1, 1, 0, 0], [0, 0, 0, 0]]), np.array([[1, 0, 0, 0], [0, 0, 0, 0]]))
    array([0.66666667, 1.        ])
    """
    return _dice(pred_masks, true_masks, label, mask_threshold, empty_score)[0]


@dataclass(frozen=True, eq=False, repr=False)
class SegmentationGaps:
    """Mean Dice by group, and how far apart the groups are.

    Attributes
    ----------
    by_group : pandas.DataFrame
        A row per group: ``group``, a column per attribute, ``n`` (samples with a Dice),
        ``undefined`` (samples without), ``mean_dice``, ``sd``, ``se``, ``ci_low``, ``ci_high``,
        ``note``. Intervals are Student's for the mean, cut to [0, 1].
    mean_dice, min_dice, max_dice, delta_dice : float
        Mean of all samples; lowest and highest group mean, and their difference.
    std_dice : float
        Standard deviation of the group means: of the population (divisor K), each group counting
        the same whatever its size.
    skewness_dice : float
        (1 - min) / (1 - max); NaN if the best group's mean is 1.
    es_dice : float
        Equity-scaled: the mean of all samples over 1 + `std_dice`.
    delta_low, delta_high : float
        Interval of `delta_dice`. It starts at 0 unless equality of the group means is rejected.
    delta_if_equal : float
        What `delta_dice` would be on average if all groups had the same mean: noise alone.
    worst_group, best_group : str
        The first where several tie.
    level : float
    n, n_undefined, n_empty, n_dropped : int
        Samples with a Dice; without one; with both masks empty; left out for a missing attribute.
    note : str
        Why figures of the groups together are NaN, if some are.
    """

    by_group: pd.DataFrame
    mean_dice: float
    min_dice: float
    max_dice: float
    delta_dice: float
    std_dice: float
    skewness_dice: float
    es_dice: float
    delta_low: float
    delta_high: float
    delta_if_equal: float
    worst_group: str
    best_group: str
    level: float
    n: int
    n_undefined: int
    n_empty: int
    n_dropped: int
    note: str = ""

    @property
    def summary(self) -> pd.Series:
        """The figures of the groups together, by name."""
        names = ["mean_dice", "min_dice", "max_dice", "delta_dice", "delta_low", "delta_high"]
        names += ["delta_if_equal", "std_dice", "skewness_dice", "es_dice"]
        return pd.Series({name: getattr(self, name) for name in names})

    def to_frame(self) -> pd.DataFrame:
        """A copy of `by_group`."""
        return self.by_group.copy()

    def __str__(self) -> str:
        columns = ["group", "n", "mean_dice", "se", "ci_low", "ci_high", "note"]
        shown = self.by_group[columns].to_string(
            index=False, float_format=lambda x: f"{x:.4f}", max_rows=60, na_rep="–"
        )
        lines = [
            f"Dice by group: {_samples(self.n)}, mean {self.mean_dice:.4f}",
            shown,
            *self._together(),
            *[self.note] * bool(self.note),
        ]
        left = (
            (self.n_undefined, "without a Dice, counted by group in .by_group"),
            (self.n_empty, "with both masks empty"),
            (self.n_dropped, "left out: an attribute is missing"),
        )
        return "\n".join([*lines, *(f"{_samples(n)} {what}" for n, what in left if n)])

    def _together(self) -> list[str]:
        """Lines of the print about the groups together."""
        if np.isnan(self.delta_dice):
            return []
        interval = f"{100 * self.level:g}% [{self.delta_low:.4f}, {self.delta_high:.4f}]"
        ends = (
            f"worst {self.worst_group} ({self.min_dice:.4f}), best {self.best_group} "
            f"({self.max_dice:.4f})"
        )
        if self.delta_dice < _ROUNDING:
            ends = f"no worst and no best group: all have the mean {self.mean_dice:.4f}"
        return [
            f"gap {self.delta_dice:.4f}, {interval}; {self.delta_if_equal:.4f} by noise alone",
            ends,
            f"SD of group means {self.std_dice:.4f}, skewness {self.skewness_dice:.4f}, "
            f"equity-scaled Dice {self.es_dice:.4f}",
        ]

    __repr__ = __str__


def segmentation_gaps(
    dice: Any = None,
    *,
    sensitive_features: Any,
    pred_masks: Any = None,
    true_masks: Any = None,
    label: int | None = None,
    mask_threshold: float = 0.5,
    empty_score: float = 1.0,
    missing: str = "raise",
    level: float = 0.95,
) -> SegmentationGaps:
    """Gaps in Dice between groups.

    Parameters
    ----------
    dice : (n,) array-like in [0, 1], optional
        Dice of every sample; in its place come the masks. A NaN leaves the means and is counted.
    sensitive_features : array-like, data frame, or mapping of name to array-like
        One or more attributes, which are crossed.
    pred_masks, true_masks : (n, ...) array, or list of n arrays, optional
        Masks, as in `dice_scores`.
    label : int, optional
        The structure in masks of several labels.
    mask_threshold : float in [0, 1), default 0.5
        Without `label`: a pixel counts as inside if it is above this.
    empty_score : float in [0, 1] or NaN, default 1.0
        Dice of a sample in which both masks are empty; NaN leaves it out.
    missing : {"raise", "drop", "level"}, default "raise"
        Missing attributes.
    level : float, default 0.95
        Confidence level.

    Returns
    -------
    SegmentationGaps
        ``delta_dice``, ``std_dice``, ``skewness_dice`` and ``es_dice`` are FairMedFM's figures of
        these names, ``min_dice`` its worst-group Dice.

    Raises
    ------
    DataError
        If a Dice is outside [0, 1], the arrays do not fit, there is only one group, or no group
        has any Dice.
    ValueError
        If an option has no such value.

    Notes
    -----
    The standard deviation of the means gives a group of a dozen samples the weight of one of
    thousands, and like the gap it is positive by noise alone: beside the gap stands what it would
    be if all means were equal. Its interval is the tie-aware one of rates, with the variances
    widened to Student's quantiles of each group.

    Examples
    --------
    >>> import cfair
    >>> gaps = cfair.segmentation_gaps(
    ...     [0.9, 0.8, 0.7, 0.6], sensitive_features={"sex": ["F", "F", "M", "M"]}
    ... )
    >>> round(gaps.delta_dice, 3), round(gaps.std_dice, 3), round(gaps.skewness_dice, 3)
    (0.2, 0.1, 2.333)
    >>> gaps.worst_group
    'M'
    """
    level = check_level(level)
    n_empty = 0
    masks = pred_masks is not None or true_masks is not None
    if masks == (dice is not None) or (pred_masks is None) != (true_masks is None):
        raise DataError(
            "give either dice, one value per sample, or both pred_masks and true_masks."
        )
    if dice is None:
        dice, n_empty = _dice(pred_masks, true_masks, label, mask_threshold, empty_score)
    attributes, columns = read_features(sensitive_features, dice=dice)
    values = _checked(columns["dice"])
    groups, keep, dropped = complete_rows(attributes, missing)
    require_comparison(groups)
    values = values[keep]
    known = ~np.isnan(values)
    if not known.any():
        raise DataError(f"no sample has a Dice: all {len(values)} are missing.")
    table = _by_group(values[known], groups.codes[known], groups.n_groups, level)
    table.insert(1, "undefined", np.bincount(groups.codes[~known], minlength=groups.n_groups))
    empty = (table["n"] == 0).to_numpy()
    lost = (table["undefined"] > 0).to_numpy()
    table.loc[empty, "note"] = np.where(lost[empty], "no sample with a Dice", "no samples")
    means = table["mean_dice"].to_numpy()[~empty]
    names = [name for name, gone in zip(groups.names, empty, strict=True) if not gone]
    alone = len(means) == 1
    nan = float("nan")
    delta = (nan, nan, nan) if alone else _delta_interval(table[~empty], level)
    low, high = float(means.min()), float(means.max())
    mean, std = float(values[known].mean()), nan if alone else float(means.std())
    note = f"only {names[0]} has a Dice: no gap" if alone else ""
    if not alone and high == 1:
        note = "skewness is undefined: the best group's mean is 1"
    return SegmentationGaps(
        by_group=labelled(groups, table),
        mean_dice=mean,
        min_dice=low,
        max_dice=high,
        delta_dice=nan if alone else high - low,
        std_dice=std,
        skewness_dice=(1 - low) / (1 - high) if high < 1 and not alone else nan,
        es_dice=mean / (1 + std),
        delta_low=delta[0],
        delta_high=delta[1],
        delta_if_equal=delta[2],
        worst_group=names[int(np.argmin(means))],
        best_group=names[int(np.argmax(means))],
        level=level,
        n=int(known.sum()),
        n_undefined=int((~known).sum()),
        n_empty=n_empty,
        n_dropped=dropped.n,
        note=note,
    )


def _samples(n: int) -> str:
    return f"{n:,} sample{'s' * (n != 1)}"


def _checked(series: pd.Series) -> Array:
    if not pd.api.types.is_numeric_dtype(series.dtype) and series.notna().any():
        raise DataError(f"dice must be numbers in [0, 1], but holds {series.iloc[0]!r}.")
    values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    outside = (values < 0) | (values > 1)
    if outside.any():
        found = f"{values[outside].min():g} to {values[outside].max():g}"
        percent = np.nanmin(values) >= 0 and 2 < np.nanmax(values) <= 100
        hint = "Divide percentages by 100." if percent else "Set what is no Dice to NaN."
        n = int(outside.sum())
        raise DataError(
            f"dice must be in [0, 1], but {n} of {len(values)} values {'is' if n == 1 else 'are'} "
            f"outside ({found}). {hint}"
        )
    return values


def _by_group(y: Array, codes: NDArray[np.intp], size: int, level: float) -> pd.DataFrame:
    """Means with Student's intervals; a group without spread to judge by has none."""
    n = np.bincount(codes, minlength=size)
    some = n > 0
    mean = np.where(some, np.bincount(codes, weights=y, minlength=size), np.nan)
    mean = mean / np.where(some, n, 1)
    squares = np.bincount(codes, weights=(y - mean[codes]) ** 2, minlength=size)
    several = n > 1
    sd = np.sqrt(np.where(several, squares, np.nan) / np.where(several, n - 1, 1))
    spread = several & (sd > 1e-12)
    se = np.where(spread, sd, np.nan) / np.sqrt(np.where(some, n, 1))
    low, high = student_limits(mean, se, (n - 1).astype(np.float64))(np.array((1 - level) / 2))
    notes = np.select(
        [n == 1, several & ~spread], ["a single sample: no interval", "all alike: no interval"], ""
    )
    return pd.DataFrame(
        {
            "n": n,
            "mean_dice": mean,
            "sd": sd,
            "se": se,
            "ci_low": np.clip(low, 0, 1),
            "ci_high": np.clip(high, 0, 1),
            "note": pd.Series(notes, dtype="str"),
        }
    )


def _delta_interval(table: pd.DataFrame, level: float) -> tuple[float, float, float]:
    """Interval of the largest difference, and its mean under equality."""
    mean, n = table["mean_dice"].to_numpy(), table["n"].to_numpy(dtype=np.float64)
    tail = (1 - level) / 2
    wider = stdtrit(np.maximum(n - 1, 1), tail) / ndtri(tail)
    # a group whose spread is unknown gets that of a proportion, the widest there is in [0, 1]
    variance = np.nan_to_num(table["se"].to_numpy() * wider) ** 2
    found = aggregate_intervals(mean, np.diag(variance), n, level)
    return float(found.low[1]), float(found.high[1]), float(found.expected_if_equal[1])


def _dice(
    pred: Any, true: Any, label: int | None, threshold: float, empty_score: float
) -> tuple[Array, int]:
    """Dice of every sample, and in how many both masks are empty."""
    _check_mask_options(label, threshold, empty_score)
    both, sizes = _overlaps(pred, true, label, threshold)
    some = sizes > 0
    dice = np.where(some, 2 * both / np.where(some, sizes, 1), empty_score)
    return dice, int((~some).sum())


def _overlaps(pred: Any, true: Any, label: int | None, threshold: float) -> tuple[Array, Array]:
    """Pixels in both masks, and in the two together, of every sample."""
    if len(pred) != len(true):
        raise DataError(f"pred_masks has {len(pred)} samples, but true_masks has {len(true)}.")
    if not len(pred):
        raise DataError("pred_masks and true_masks have no samples.")
    shapes = [np.shape(mask) for mask in pred]
    wrong = [k for k, mask in enumerate(true) if np.shape(mask) != shapes[k]]
    if wrong:
        k = wrong[0]
        raise DataError(
            f"masks differ in shape in {len(wrong)} of {len(pred)} samples, such as sample {k}: "
            f"{shapes[k]} predicted, {np.shape(true[k])} true."
        )
    if not shapes[0]:
        raise DataError(
            "a mask must be an array of pixels; pred_masks and true_masks hold numbers."
        )
    for name, masks in (("pred_masks", pred), ("true_masks", true)):
        _check_labels(masks, name, label)
    pairs = (
        [(pred, true)]
        if len(set(shapes)) == 1
        else [([p], [t]) for p, t in zip(pred, true, strict=True)]
    )
    parts = [_counts(_inside(p, label, threshold), _inside(t, label, threshold)) for p, t in pairs]
    both, sizes = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    if label is not None and not sizes.any():
        # every Dice would be that of two empty masks, and so perfect
        held = np.unique(np.concatenate([np.unique(np.asarray(m)) for pair in pairs for m in pair]))
        raise DataError(
            f"label={label!r} is in none of the {len(pred)} predicted and true masks, which hold "
            f"{show_some([f'{v:g}' for v in held.astype(np.float64)], 6)}. Give one of these."
        )
    return both, sizes


def _check_mask_options(label: Any, threshold: Any, empty_score: Any) -> None:
    """Refuse what would make a mask empty, or full, without a word."""
    whole = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
    if label is not None and not whole:
        raise ValueError(f"label must be a whole number, as in the masks, or None, not {label!r}.")
    if not is_number(threshold) or not 0 <= threshold < 1:
        raise ValueError(f"mask_threshold must be a number in [0, 1), not {threshold!r}.")
    if not is_number(empty_score) or not (np.isnan(empty_score) or 0 <= empty_score <= 1):
        raise ValueError(f"empty_score must be a number in [0, 1] or NaN, not {empty_score!r}.")


def _inside(masks: Sequence[Any] | NDArray[Any], label: int | None, threshold: float) -> Any:
    pixels = np.asarray(masks)
    return pixels == label if label is not None else pixels > threshold


def _counts(pred: NDArray[np.bool_], true: NDArray[np.bool_]) -> tuple[Array, Array]:
    axes = tuple(range(1, pred.ndim))
    both = np.count_nonzero(pred & true, axis=axes)
    sizes = np.count_nonzero(pred, axis=axes) + np.count_nonzero(true, axis=axes)
    return np.asarray(both, dtype=np.float64), np.asarray(sizes, dtype=np.float64)


def _check_labels(masks: Any, name: str, label: int | None) -> None:
    """Refuse missing pixels, and masks of several labels where none is named."""
    arrays = [masks] if isinstance(masks, np.ndarray) else [np.asarray(mask) for mask in masks]
    low, high, missing = np.inf, -np.inf, 0
    for array in arrays:
        if array.dtype.kind not in "biuf":
            raise DataError(f"{name} must hold booleans or numbers, not {array.dtype}.")
        if array.dtype.kind == "f":
            missing += int(np.isnan(array).sum())
        if array.size:
            low, high = min(low, float(np.min(array))), max(high, float(np.max(array)))
    if missing:
        raise DataError(f"{name} has {missing} missing pixel{'s' * (missing > 1)}. Fill in.")
    if label is None and (low < 0 or high > 1):
        values = show_some([f"{v:g}" for v in np.unique(np.asarray(arrays[0]))[:8]], 6)
        raise DataError(
            f"{name} holds values from {low:g} to {high:g} (such as {values}), not 0 and 1. Say "
            "which structure is meant: label=1, say; or scale grey values to [0, 1]."
        )
