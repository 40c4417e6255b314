"""Disclosure control of tables of representation: which of their counts and shares are masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.disclosure import (
    KINDS,
    Protection,
    is_masked,
    protect,
    small_masks,
    why_masked,
    written,
)
from cfair.groups import Factor
from cfair.metrics.representation import RepresentationTables

Array = NDArray[np.float64]

#: Outcomes as cells of outcome and call: one that is missing has a cell of its own.
_OUTCOMES: dict[str, Array] = {"events": KINDS["events"], "non_events": KINDS["tn"]}


@dataclass(frozen=True, eq=False)
class Shown:
    """Sums of base cells that a table of representation shows.

    Attributes
    ----------
    protection : Protection
        Of K base cells.
    cells : (G, K) array of 0 and 1
        The intersections.
    levels : sequence of (m, K) arrays
        The levels of each attribute, over the rows that have it.
    missing : (A, K) array or None
        Rows that miss each attribute, if there may be any.
    outcomes : dict of str to (2, 2) array
    """

    protection: Protection
    cells: Array
    levels: Sequence[Array]
    missing: Array | None
    outcomes: dict[str, Array]

    @property
    def below(self) -> int:
        """Counts below it are masked."""
        return self.protection.below

    def n(self, membership: Array) -> NDArray[np.int8]:
        """What becomes of numbers of rows."""
        return self.protection.masks(membership, KINDS["n"])


def shown_of_cohort(cohort: Cohort) -> Shown | None:
    """What may be shown of a cohort, as in all its other results.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    Shown or None
    """
    if cohort.protection is None:
        return None
    _, *levels, cells = cohort.partitions
    outcomes = {name: KINDS[name] for name in ("events", "non_events")}
    return Shown(cohort.protection, cells, levels, None, outcomes)


def shown_of_table(
    attributes: Sequence[Factor],
    events: Array | None,
    below: int | None,
    repeats: NDArray[np.integer] | None = None,
) -> Shown | None:
    """What may be shown of a table, of which rows may miss attributes.

    Parameters
    ----------
    attributes : sequence of Factor
        Missing values have code -1.
    events : (n,) array of 0, 1 and NaN, or None
    below : int or None
    repeats : (n,) array of int, optional
        Rows that each entry stands for.

    Returns
    -------
    Shown or None
    """
    if below is None:
        return None
    sizes = [len(a.levels) for a in attributes]
    with_missing = [size + bool(a.missing.any()) for a, size in zip(attributes, sizes, strict=True)]
    codes = [np.where(a.missing, size, a.codes) for a, size in zip(attributes, sizes, strict=True)]
    cell = np.ravel_multi_index(codes, with_missing)
    outcome = 0 if events is None else np.where(np.isnan(events), 1, np.where(events == 1, 2, 0))
    K = int(np.prod(with_missing))
    counts = np.bincount(cell * 4 + outcome, repeats, 4 * K).reshape(K, 2, 2).astype(float)
    at = np.array(np.unravel_index(np.arange(K), with_missing))
    levels = [(np.arange(size)[:, None] == at[k]).astype(float) for k, size in enumerate(sizes)]
    missing = np.array([at[k] == size for k, size in enumerate(sizes)], dtype=float)
    complete = missing.sum(axis=0) == 0
    cells = np.eye(K)[complete]
    every = np.ones((1, K))
    partitions = [every, complete[None].astype(float), *levels, missing, cells]
    if not complete.all():  # rows that miss something, by what they miss, and each sort of them
        patterns = np.unique(missing, axis=1).T[:, :, None] == missing
        partitions += [patterns.all(axis=1).astype(float), np.eye(K)[~complete]]
    protection = protect(counts, partitions, below)
    return Shown(protection, cells, levels, missing, {} if events is None else _OUTCOMES)


def masked_tables(
    tables: RepresentationTables, shown: Shown | None, dropped: bool = False
) -> RepresentationTables:
    """The tables with masks: counts as `cfair.disclosure` writes them, what rests on them NaN.

    Parameters
    ----------
    tables : RepresentationTables
    shown : Shown or None
    dropped : bool, default False
        Whether the rows of the table are masked, since they would tell how few were dropped.

    Returns
    -------
    RepresentationTables
    """
    if shown is None:
        return tables
    cells, levels = tables.cells.copy(), tables.levels.copy()
    known = [_known(shown, membership) for membership in shown.levels]
    _counts(cells, shown, shown.cells)
    lost = np.zeros(len(cells), dtype=bool)
    for codes, hidden in zip(tables.groups.level_codes, known, strict=True):
        lost |= hidden[codes]
    cells.loc[lost, ["expected", "expected_share", "ratio"]] = np.nan
    cells.loc[is_masked(cells["n"]), "ratio"] = np.nan
    masks = shown.n(shown.cells)
    cells["note"] = [
        why_masked(m, shown.below) or said for m, said in zip(masks, cells["note"], strict=True)
    ]
    _counts(levels, shown, np.vstack(shown.levels))
    every = shown.n(np.vstack(shown.levels))
    levels["note"] = [why_masked(m, shown.below) for m in every]
    _unknown(cells, is_masked(cells["n"]), ("below_floor", "below_min_count", "below_disclosure"))
    _unknown(levels, is_masked(levels["n"]), ("under_represented", "small_group"))
    return replace(
        tables,
        groups=replace(tables.groups, codes=tables.groups.codes[:0], repeats=None),
        cells=cells,
        levels=levels,
        attributes=_attributes(tables, shown, dropped),
        associations=_associations(tables, shown),
        n_read=float("nan") if dropped else _whole(shown, tables.n_read, None),
        n_known=_whole(shown, tables.n_known, shown.cells),
    )


def _unknown(frame: pd.DataFrame, masked: NDArray[np.bool_], names: Sequence[str]) -> None:
    """Flags of masked figures are missing: thresholds chosen one after the other would find n."""
    if masked.any():
        for name in names:
            flags = frame[name]
            frame[name] = (flags.astype("boolean") if flags.dtype == bool else flags).mask(masked)


def _known(shown: Shown, membership: Array) -> NDArray[np.bool_]:
    """Levels whose rows with all attributes are masked."""
    complete = shown.cells.sum(axis=0)
    return shown.n(membership * complete) > 0


def _whole(shown: Shown, n: float, cells: Array | None) -> float:
    """A count of all rows, or of those that have all attributes."""
    member = np.ones((1, shown.cells.shape[1])) if cells is None else cells.sum(axis=0)[None]
    return float(written(np.array([n]), shown.n(member), shown.below)[0])


def _counts(frame: pd.DataFrame, shown: Shown, membership: Array) -> None:
    """Mask the counts of a table, and the shares that would give them."""
    mask = shown.n(membership)
    frame["n"] = written(frame["n"].to_numpy(float), mask, shown.below)
    shares = [c for c in ("share", "ci_low", "ci_high", "width", "weighted_share") if c in frame]
    frame.loc[mask > 0, shares] = np.nan
    for name, kind in shown.outcomes.items():
        own = shown.protection.masks(membership, kind)
        frame[name] = written(frame[name].to_numpy(float), own, shown.below)


def _attributes(tables: RepresentationTables, shown: Shown, dropped: bool) -> pd.DataFrame:
    frame = tables.attributes.copy()
    hidden = [bool((shown.n(membership) > 0).any()) for membership in shown.levels]
    names = ["min_share", "max_share", "imbalance_ratio", "entropy", "entropy_ratio"]
    frame.loc[hidden, names] = np.nan
    missing = small_masks(frame["missing"], shown.below)
    if shown.missing is not None:
        missing = written(frame["missing"].to_numpy(float), shown.n(shown.missing), shown.below)
    lost = is_masked(missing)
    if dropped:  # those that miss one attribute and not the other may be few
        lost |= missing > 0
        missing = np.where(missing > 0, np.nan, missing)
        frame["n"] = np.nan
    frame["missing"] = missing
    frame["n"] = frame["n"].astype(float).mask(lost)
    frame.loc[lost, "missing_share"] = np.nan
    _unknown(frame, np.array(hidden), ("imbalanced",))
    _unknown(frame, lost, ("much_missing",))
    why = np.where(lost, "masked: tells how few rows are missing", "")
    frame["note"] = np.where(hidden, "masked: a level is", why)
    return frame


def _associations(tables: RepresentationTables, shown: Shown) -> pd.DataFrame:
    """A statistic of a table with one masked cell would give this cell."""
    frame = tables.associations.copy()
    complete = shown.cells.sum(axis=0)
    pairs = combinations(range(len(shown.levels)), 2)
    for row, (i, j) in enumerate(pairs):
        a, b = shown.levels[i], shown.levels[j]
        pair = (a[:, None] * b[None]).reshape(-1, a.shape[1]) * complete
        if (shown.n(pair) > 0).any():
            frame.loc[row, ["chi2", "p_value", "cramers_v", "low_expected"]] = np.nan
            frame.loc[row, "note"] = "masked: a cell of the table is"
    frame["n"] = written(
        frame["n"].to_numpy(float),
        np.repeat(shown.n(complete[None]), len(frame)),
        shown.below,
    )
    return frame
