"""The declared question and its rows: every role checked once, one mask for the whole analysis.

`declare` reads and checks the columns that have a role; `make_cohort` adds the columns of the
formulas in use, leaves out rows under one rule, and hands on plain arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.columns import Binary, Score, check_some_weight
from cfair.counting import declare_counted, is_counted
from cfair.disclosure import (
    KINDS,
    SHOWN,
    Protection,
    is_masked,
    protect,
    quiet,
    rounded,
    small_masks,
)
from cfair.errors import CfairWarning, CutoffWarning, DataError, SmallGroupWarning, warn
from cfair.frame import show_some
from cfair.groups import Groups, cross
from cfair.roles import Declared, Roles, read_declaration

__all__ = [
    "Cohort",
    "Declared",
    "Dropped",
    "Roles",
    "build_cohort",
    "declare",
    "make_cohort",
    "require_comparison",
]

UNKNOWN_GROUP = "unknown group"


@dataclass(frozen=True, eq=False)
class Dropped:
    """What was left out, and why.

    Parameters
    ----------
    n : int
        Rows dropped in all.
    by_column : dict of str to int
        Missing values per column (a row may count under several columns).
    by_group : dict of str to int
        Rows dropped per group, "unknown group" where an attribute is missing.
    small_groups : dict of str to int
        Groups dropped because they are small, with their rows.
    below : int, optional
        Counts from 1 to one less are not told.
    """

    n: int = 0
    by_column: dict[str, int] = field(default_factory=dict)
    by_group: dict[str, int] = field(default_factory=dict)
    small_groups: dict[str, int] = field(default_factory=dict)
    below: int | None = None

    @property
    def masked(self) -> bool:
        """Whether some of the numbers of dropped rows are masked, or would give one away."""
        counts = [self.n, *self.by_column.values(), *self.small_groups.values()]
        missing = self.n - sum(self.small_groups.values())
        # rows that miss none but one of the columns, and, of two, those that miss both
        counts += [missing, *(missing - n for n in self.by_column.values())]
        counts += [sum(self.by_column.values()) - missing] * (len(self.by_column) == 2)
        return bool(is_masked(small_masks(counts, self.below)).any())

    def sentence(self) -> str:
        """Say it in one line.

        Examples
        --------
        >>> Dropped(38, {"bmi": 38}).sentence()
        '38 dropped: bmi missing'
        >>> Dropped(45, {"bmi": 38, "age": 9}, {}, {"F & Other": 2}).sentence()
        '45 dropped: bmi missing (38), age missing (9); small group F & Other (2)'
        """
        if self.n == 0 and not self.by_column and not self.small_groups:
            return "none dropped"  # and not few, rounded to none
        # with the total and all parts but one, the last would be known
        alone = (len(self.by_column) == 1 and not self.small_groups) or self.masked
        columns = [f"{k} missing" + ("" if alone else f" ({v})") for k, v in self.by_column.items()]
        parts = [show_some(columns, 6)] if columns else []
        if self.small_groups:
            names = [
                name if self.masked else f"{name} ({rows})"
                for name, rows in self.small_groups.items()
            ]
            parts.append(f"small group{'s' * (len(names) > 1)} {show_some(names, 6)}")
        few = is_masked(small_masks(self.n, self.below))
        n = f"<{self.below}" if few else f"{self.n:,}"
        return f"{n} dropped: {'; '.join(parts)}"


@dataclass(frozen=True, eq=False)
class Cohort:
    """The rows of one analysis as checked arrays.

    Parameters
    ----------
    y, s : (n,) int8 arrays
        Outcome, and the call under audit.
    d : (n,) int8 array or None
        Treatment.
    score : (n,) float array or None
        The score under audit.
    groups : Groups
        The crossed attributes.
    data : pandas.DataFrame
        Columns that formulas may use, on 0..n-1: attributes and text as Categorical, roles as 0/1.
    index : pandas.Index
        The caller's labels of these rows.
    rows : (n,) intp array
        Their positions in the caller's table.
    cluster : (n,) intp array or None
        Cluster of each row, numbered from 0.
    n_read : int
        Rows of the table; `dropped` says which are not here.
    dropped : Dropped
        What was left out.
    rule : str
        How S came about, such as 'risk >= 0.5'.
    outcome_others, treatment_others : tuple of str
        The values that are 0, each with its rows, where they are several: 'no: 6,957'.
    notes : tuple of str
        What a reader of the result should know.
    weights : (n,) float array or None
        Sampling weights with mean 1 over these rows. None if there are none, or all are equal and
        so change nothing; `weights_name` tells the two apart. Of an entry that is several rows,
        their mean.
    weight_squares : (n,) float array or None
        Sums of the squared weights of these rows, where an entry is several of them.
    repeats : (n,) int array or None
        Rows that each entry of the arrays stands for, where the table was counted in its own
        engine; None where an entry is a row.
    missing_levels : dict of str to str
        By attribute, the level that its missing values are, where they are one.
    suppress_below : int, optional
        Counts from 1 to one less are masked, and what would reveal them; see `protection`.
    round_counts_to : int, optional
        An entry is a combination of group, outcome and call, and its rows are rounded to a multiple
        of it; see `rounded_cohort`.
    min_group_size : int, optional
        Groups with fewer rows were to be warned of, or left out.
    """

    y: NDArray[np.int8]
    s: NDArray[np.int8]
    d: NDArray[np.int8] | None
    score: NDArray[np.float64] | None
    groups: Groups
    data: pd.DataFrame
    index: pd.Index
    rows: NDArray[np.intp]
    cluster: NDArray[np.intp] | None
    n_read: int
    dropped: Dropped
    rule: str
    outcome_name: str
    outcome_event: Any = 1
    treatment_name: str | None = None
    treatment_event: Any = None
    outcome_others: tuple[str, ...] = ()
    treatment_others: tuple[str, ...] = ()
    score_name: str | None = None
    prediction_name: str | None = None
    cluster_name: str | None = None
    cutoff: float | None = None
    notes: tuple[str, ...] = ()
    weights: NDArray[np.float64] | None = None
    weights_name: str | None = None
    weight_squares: NDArray[np.float64] | None = None
    repeats: NDArray[np.int64] | None = None
    missing_levels: dict[str, str] = field(default_factory=dict)
    suppress_below: int | None = None
    round_counts_to: int | None = None
    min_group_size: int | None = None

    @cached_property
    def protection(self) -> Protection | None:
        """What may be shown of the rows by group, outcome and call; None if everything may."""
        if self.suppress_below is None:
            return None
        cell = self.groups.codes * 4 + self.y.astype(np.intp) * 2 + self.s
        cells = np.bincount(cell, self.repeats, 4 * self.groups.n_groups)
        return protect(
            cells.reshape(-1, 2, 2).astype(np.float64), self.partitions, self.suppress_below
        )

    @cached_property
    def treated_protection(self) -> Protection | None:
        """The same with counts of treated and untreated beside them."""
        if self.protection is None or self.d is None:
            return None
        cell = ((self.groups.codes * 2 + self.y.astype(np.intp)) * 2 + self.s) * 2 + self.d
        cells = np.bincount(cell, self.repeats, 8 * self.groups.n_groups)
        whole = cells.reshape(-1, 2, 2, 2).astype(np.float64)
        return self.protection.with_treatment(whole, self.partitions)

    @property
    def controlled(self) -> bool:
        """Whether counts are masked or rounded."""
        return self.suppress_below is not None or self.round_counts_to is not None

    @property
    def partitions(self) -> list[NDArray[np.float64]]:
        """All rows, the levels of each attribute, and the groups, as sets of groups."""
        matrix, K = self.groups.target_matrix, self.groups.n_groups
        ends = np.cumsum([K, *self.groups.shape])
        levels = [matrix[a:b] for a, b in pairwise(ends)]
        return [matrix[-1:], *levels, matrix[:K]]

    @property
    def n_read_shown(self) -> float:
        """Rows of the table; NaN where they would reveal how few were dropped."""
        return float("nan") if self.dropped.masked else float(self.n_read)

    @property
    def n_clusters(self) -> int | None:
        """Number of clusters among the rows used; None if rows count as independent.

        A cluster whose rows all have weight 0 carries nothing and does not count.
        """
        if self.cluster is None:
            return None
        return len(np.unique(self.cluster if self.weights is None else self.cluster[self.weighted]))

    @property
    def weighted(self) -> NDArray[np.bool_]:
        """Rows that carry weight: all, unless some weights are 0."""
        return np.ones(self.n_used, dtype=bool) if self.weights is None else self.weights > 0

    @property
    def weighted_cluster(self) -> NDArray[np.intp]:
        """Cluster of each row among those that carry weight; rows without any are in the first."""
        if self.cluster is None:
            raise ValueError("this cohort has no clusters")
        codes = np.zeros(self.n_used, dtype=np.intp)
        codes[self.weighted] = np.unique(self.cluster[self.weighted], return_inverse=True)[1]
        return codes

    @property
    def kish(self) -> float:
        """Kish's effective size: how many rows of equal weight these are worth."""
        if self.weights is None:
            return float(self.n_used)
        if self.weight_squares is not None:
            return float(self.n_used**2 / self.weight_squares.sum())
        return float(self.weights.sum() ** 2 / np.sum(self.weights**2))

    @property
    def n_used(self) -> int:
        """Number of rows in the analysis."""
        return len(self.y) if self.repeats is None else int(self.repeats.sum())

    def count(self, which: NDArray[np.integer]) -> int:
        """Rows that have a 1 in an array of 0 and 1."""
        return int(which.sum() if self.repeats is None else self.repeats @ which)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows that stay, their groups, and what went."""

    keep: NDArray[np.bool_]
    groups: Groups
    dropped: Dropped
    small: dict[str, int]


def declare(data: Any, roles: Roles, *, count: bool = False) -> Declared:
    """Read and check a table's roles, and the rows that they leave.

    Parameters
    ----------
    data : data frame
        pandas, polars, pyarrow, a duckdb relation, or a dict of arrays. It is not changed.
    roles : Roles
        What each column is for.
    count : bool, default False
        Whether a lazy table may be counted in its own engine; `Declared.in_rows` has its rows.
    """
    if roles.round_counts_to is not None and not (roles.cluster is roles.weights is None):
        raise DataError(
            "round_counts_to= rounds counts, and weighted or clustered rates are of rows. Leave "
            "weights= and cluster= out, or take suppress_below=."
        )
    counted = count and is_counted(data, roles)
    return check_rows(declare_counted(data, roles) if counted else read_declaration(data, roles))


def check_rows(declared: Declared) -> Declared:
    """Check the rows that the roles leave, and warn of what is odd about them.

    Parameters
    ----------
    declared : Declared

    Returns
    -------
    Declared
    """
    roles = declared.roles
    rows = _select_rows(declared, {})
    for note in declared.alike_labels(rows.keep):
        warn(f"{note}.", CfairWarning)
    _warn_of_small_groups(rows.small, roles)
    side = _one_side(declared, rows.keep)
    if side and roles.warn_one_call:
        ask = " Is the cutoff on the scale of the score?" if roles.prediction is None else ""
        warn(f"{side}{ask}", CutoffWarning)
    return replace(declared, warned=frozenset(rows.small))


def make_cohort(
    declared: Declared,
    formula_columns: Sequence[str] = (),
    *,
    outcome: str | None = None,
    treatment: str | None = None,
    cluster: Any = None,
    also_missing: Mapping[str, NDArray[np.bool_]] | None = None,
) -> Cohort:
    """Choose the rows of one analysis and hand them on as arrays.

    Parameters
    ----------
    declared : Declared
        From `declare`.
    formula_columns : sequence of str
        Every column that a formula of this analysis uses; all of them enter the one mask.
    outcome, treatment : str, optional
        Left sides of formulas. They must be the declared columns, or fill in what was not declared.
    cluster : name or array, optional
        Cluster of each row, in place of the declared one.
    also_missing : mapping of str to array of bool, optional
        Rows without a value in what was given beside the table, by its name.
    """
    declared = declared.with_left_side("outcome", outcome)
    declared = declared.with_left_side("treatment", treatment)
    declared = declared.with_cluster(cluster)
    if declared.outcome is None:
        raise DataError("no outcome was declared. Give outcome= the name of the 0/1 event column.")
    wanted = list(dict.fromkeys(formula_columns))
    others = {name: declared.prepared(name) for name in wanted if name not in declared.by_name}
    masks = {name: c.isna().to_numpy() for name, c in others.items()}
    rows = _select_rows(declared, {**masks, **(also_missing or {})})
    new = {name: n for name, n in rows.small.items() if name not in declared.warned}
    _warn_of_small_groups(new, declared.roles)
    return _assemble(declared, declared.outcome, rows, wanted)


def rounded_cohort(cohort: Cohort, base: int) -> Cohort:
    """The cohort as counts by group, outcome and call, each rounded to a multiple of a base.

    Sums of rounded counts agree with each other, and no figure of this cohort tells more than they
    do: of every combination the rows are known within half a base.

    Parameters
    ----------
    cohort : Cohort
        Without weights and clusters.
    base : int

    Returns
    -------
    Cohort

    Raises
    ------
    DataError
        If nothing is left.
    """
    groups, gone = cohort.groups, cohort.dropped
    cell = groups.codes * 4 + cohort.y.astype(np.intp) * 2 + cohort.s
    n = rounded(np.bincount(cell, cohort.repeats, 4 * groups.n_groups), base)
    cells = np.flatnonzero(n)
    if not len(cells):
        raise DataError(
            f"round_counts_to={base}: every count of group, outcome and call is rounded to 0. "
            "Use fewer attributes, or a smaller base."
        )
    named = {k: int(rounded(v, base)) for k, v in gone.by_column.items()}
    by_group = {k: int(rounded(v, base)) for k, v in gone.by_group.items()}
    small = {k: int(rounded(v, base)) for k, v in gone.small_groups.items()}
    dropped = replace(
        gone, n=int(rounded(gone.n, base)), by_column=named, by_group=by_group, small_groups=small
    )
    kept = replace(groups, codes=cells // 4, repeats=n[cells])
    return replace(
        cohort,
        y=(cells // 2 % 2).astype(np.int8),
        s=(cells % 2).astype(np.int8),
        d=None,
        score=None,
        groups=kept,
        data=kept.row_frame(),
        index=pd.RangeIndex(len(cells)),
        rows=np.arange(len(cells)),
        n_read=int(n.sum()) + dropped.n,
        dropped=dropped,
        notes=tuple(quiet(note, base) for note in cohort.notes),
        repeats=n[cells],
        round_counts_to=base,
    )


def build_cohort(
    data: Any,
    roles: Roles,
    formula_columns: Sequence[str] = (),
    *,
    outcome: str | None = None,
    treatment: str | None = None,
    cluster: Any = None,
) -> Cohort:
    """`declare` and `make_cohort` in one step.

    Examples
    --------
    >>> table = {"sex": ["F", "M", "F", "M"], "y": [0, 1, 1, 0], "risk": [0.2, 0.5, 0.9, 0.1]}
    >>> cohort = build_cohort(table, Roles("y", "sex", score="risk", cutoff=0.5))
    >>> cohort.rule, cohort.s.tolist(), cohort.groups.names
    ('risk >= 0.5', [0, 1, 1, 0], ('F', 'M'))
    """
    return make_cohort(
        declare(data, roles), formula_columns, outcome=outcome, treatment=treatment, cluster=cluster
    )


def require_comparison(groups: Groups) -> None:
    """Refuse a comparison where fewer than two groups have rows."""
    filled = [name for name, n in zip(groups.names, groups.sizes, strict=True) if n > 0]
    if len(filled) < 2:
        raise DataError(
            f"a comparison needs two groups with rows, but {' x '.join(groups.attributes)} has "
            f"{len(filled)} ({show_some([f'{name!r}' for name in filled])}, {len(groups.codes)} "
            f"rows). Choose other attributes in groups=, or look at the rates alone."
        )


def _select_rows(declared: Declared, others: dict[str, NDArray[np.bool_]]) -> _Rows:
    """Apply the rule for missing values, then the one for small groups, and check what stays."""
    masks = {name: mask for name, mask in {**declared.missing, **others}.items() if mask.any()}
    by_column = {name: declared.count(mask) for name, mask in masks.items()}
    keep = np.ones(declared.table.n_rows, dtype=bool)
    for mask in masks.values():
        keep &= ~mask
    if masks and declared.roles.missing != "drop":
        raise DataError(_missing_message(declared, by_column, declared.count(~keep), bool(others)))
    _check_some_left(declared, keep, by_column)
    groups = _groups(declared, keep)
    small = _small_groups(groups, declared.roles)
    gone: dict[str, int] = {}
    if small and declared.roles.small_groups == "drop":
        codes = [groups.names.index(name) for name in small]
        keep[np.flatnonzero(keep)[np.isin(groups.codes, codes)]] = False
        gone, small = small, {}
        _check_some_left(declared, keep, by_column, gone)
        groups = _groups(declared, keep)
    carry, which = keep, "rows used"
    if declared.weights is not None:
        repeats = None if declared.repeats is None else declared.repeats[keep]
        check_some_weight(declared.weights.name, declared.weights.values[keep], repeats)
        carry, which = keep & (declared.weights.values > 0), "rows of weight above 0"
    outcome = declared.outcome if declared.roles.both_outcomes else None
    for role, column in (("outcome", outcome), ("treatment", declared.treatment)):
        if column is not None:
            _check_both_values(declared, column, role, carry, which)
    by_group = _dropped_by_group(declared, keep)
    dropped = Dropped(
        declared.count(~keep), by_column, by_group, gone, declared.roles.suppress_below
    )
    return _Rows(keep, groups, dropped, small)


def _groups(declared: Declared, rows: NDArray[np.bool_]) -> Groups:
    if rows.all():
        return cross(declared.attributes, declared.repeats)
    repeats = None if declared.repeats is None else declared.repeats[rows]
    return cross([attribute.take(rows) for attribute in declared.attributes], repeats)


def _missing_message(
    declared: Declared, by_column: dict[str, int], n_rows: int, with_formula: bool
) -> str:
    columns = show_some([f"{name!r} ({n} rows)" for name, n in by_column.items()], 10)
    message = (
        f"missing values in {columns}; {n_rows} of {declared.n_rows} rows in all. "
        f'Use missing="drop" to leave these rows out'
    )
    attributes = [a.name for a in declared.attributes if a.name in by_column]
    if attributes:
        message += (
            f', or missing="level" to make the missing values of {" and ".join(attributes)} a level'
        )
    message += ", or fill them in."
    return message if with_formula else message + _also_missing(declared, by_column)


def _also_missing(declared: Declared, by_column: dict[str, int]) -> str:
    """Which columns without a role have missing values, while no formula is known yet."""
    source = declared.table.source
    if not isinstance(source, pd.DataFrame) or declared.repeats is not None:
        return ""
    counts = zip(declared.table.names, source.isna().sum().to_numpy(), strict=True)
    known = {*by_column, *(name for _, name in declared.role_names)}
    more = [f"{str(name)!r} ({n} rows)" for name, n in counts if n and str(name) not in known]
    if not more:
        return ""
    return (
        f" Columns without a role that have missing values too: {show_some(more, 6)}; they count "
        "where a formula uses them."
    )


def _check_some_left(
    declared: Declared,
    keep: NDArray[np.bool_],
    by_column: dict[str, int],
    small: dict[str, int] | None = None,
) -> None:
    if not keep.any():
        why = Dropped(declared.n_rows, by_column, {}, small or {}).sentence()
        raise DataError(
            f"no rows are left of {declared.n_rows}: {why}. Leave out the column, or fill in its "
            f"values."
        )


def _check_both_values(
    declared: Declared, column: Binary, role: str, keep: NDArray[np.bool_], which: str
) -> None:
    n, n_events = declared.count(keep), declared.count(keep & (column.values == 1))
    if 0 < n_events < n:
        return
    if role == "outcome":
        what = "no events" if n_events == 0 else "no non-events"
    else:
        what = "no treated rows" if n_events == 0 else "no untreated rows"
    raise DataError(
        f"{role} column {column.name!r} has {what}: all {n} {which} are "
        f"{0 if n_events == 0 else 1} (1 is {column.event!r}). Both values are needed."
    )


def _small_groups(groups: Groups, roles: Roles) -> dict[str, int]:
    """Groups that have rows, but fewer than the minimum, by name.

    The minimum is no lower than disclosure control's: one limit after the other would find n.
    """
    if roles.min_group_size is None:
        return {}
    least = max(roles.min_group_size, roles.suppress_below or 0)
    sizes = zip(groups.names, groups.sizes.tolist(), strict=True)
    return {name: n for name, n in sizes if 0 < n < least}


def _dropped_by_group(declared: Declared, keep: NDArray[np.bool_]) -> dict[str, int]:
    if keep.all():
        return {}
    known = np.logical_and.reduce([~attribute.missing for attribute in declared.attributes])
    found = {}
    if (known & ~keep).any():
        gone = _groups(declared, known & ~keep)
        found = {name: int(n) for name, n in zip(gone.names, gone.sizes, strict=True) if n > 0}
    n_unknown = declared.count(~known & ~keep)
    return {**found, UNKNOWN_GROUP: n_unknown} if n_unknown else found


def _warn_of_small_groups(small: dict[str, int], roles: Roles) -> None:
    least, few = f"min_group_size={roles.min_group_size}", roles.suppress_below
    if few is not None:  # of a larger group the number of rows may be masked as well
        least, small = str(few), {name: n for name, n in small.items() if n < few}
    if small:
        shown = show_some([k if few else f"{k} ({n} rows)" for k, n in small.items()], 10)
        warn(
            f"{len(small)} group{'s' * (len(small) > 1)} with fewer than {least} "
            f'rows: {shown}. Merge levels, or leave them out with small_groups="drop".',
            SmallGroupWarning,
        )


def _one_side(declared: Declared, keep: NDArray[np.bool_]) -> str | None:
    """Say that all rows fall on one side, if they do."""
    n, n_positive = declared.count(keep), declared.count(keep & (declared.s == 1))
    if 0 < n_positive < n:
        return None
    side = "positive" if n_positive else "negative"
    return f"all {n} rows are {side} under {declared.rule}."


def _assemble(
    declared: Declared, outcome: Binary, rows: _Rows, formula_columns: Sequence[str]
) -> Cohort:
    keep, weights = rows.keep, declared.weights
    treatment, score = declared.treatment, declared.score
    cluster = None if declared.cluster is None else declared.cluster.take(keep)
    cohort = Cohort(
        y=outcome.values[keep],
        s=declared.s[keep],
        d=None if treatment is None else treatment.values[keep],
        # of counted rows only the call is known
        score=None if score is None or declared.repeats is not None else score.values[keep],
        groups=rows.groups,
        data=_formula_data(declared, rows, formula_columns),
        index=declared.table.index[keep],
        rows=np.flatnonzero(keep),
        cluster=None if cluster is None else np.unique(cluster.codes, return_inverse=True)[1],
        n_read=declared.n_rows,
        dropped=rows.dropped,
        rule=declared.rule,
        outcome_name=outcome.name,
        outcome_event=outcome.event,
        treatment_name=None if treatment is None else treatment.name,
        treatment_event=None if treatment is None else treatment.event,
        outcome_others=_others(declared, outcome, keep),
        treatment_others=_others(declared, treatment, keep),
        score_name=None if score is None else score.name,
        prediction_name=None if declared.prediction is None else declared.prediction.name,
        cluster_name=None if cluster is None else cluster.name,
        cutoff=None if declared.roles.cutoff is None else float(declared.roles.cutoff),
        notes=_notes(declared, rows),
        weights=None if weights is None else _mean_one(weights.values[keep]),
        weights_name=None if weights is None else weights.name,
        repeats=rows.groups.repeats,
        missing_levels={
            a.name: a.missing_level for a in declared.attributes if a.missing_level is not None
        },
        suppress_below=declared.roles.suppress_below,
        min_group_size=declared.roles.min_group_size,
    )
    small = _small_notes(cohort, rows.small, declared.roles)
    if not small:
        return cohort
    noted = replace(cohort, notes=(*cohort.notes, *small))
    noted.__dict__.update({k: v for k, v in cohort.__dict__.items() if k == "protection"})
    return noted


def _small_notes(cohort: Cohort, small: dict[str, int], roles: Roles) -> list[str]:
    """Groups with few rows; where their number is masked, no more than the mask says."""
    told, few = dict(small), cohort.suppress_below
    if small and cohort.protection is not None and few is not None:
        shown = cohort.protection.masks(cohort.partitions[-1], KINDS["n"]) == SHOWN
        for name, n in small.items():
            if n >= few and not shown[cohort.groups.names.index(name)]:
                del told[name]
    care = "rows; read its rates with care"
    if few is None:
        return [f"{name} has {n} {care}" for name, n in told.items()]
    return [
        f"{name} has fewer than {few if n < few else roles.min_group_size} {care}"
        for name, n in told.items()
    ]


def _mean_one(weights: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Weights with mean 1, whatever their scale; None if they are equal up to rounding."""
    share = weights / weights.max()  # first, since a sum of very large weights overflows
    return None if share.min() > 1 - 1e-12 else share / share.mean()


def _formula_data(declared: Declared, rows: _Rows, names: Sequence[str]) -> pd.DataFrame:
    """Columns that formulas may use: the attributes always, the others as named."""
    data = rows.groups.row_frame()
    for name in names:
        part = declared.by_name.get(name)
        if isinstance(part, Binary):
            data[name] = part.values[rows.keep].astype(np.int64)
        elif isinstance(part, Score):
            data[name] = part.values[rows.keep]
        elif part is None:
            data[name] = _without_missing(declared.prepared(name).array[rows.keep])
    return data


def _without_missing(values: Any) -> Any:
    """Plain arrays for nullable ones that have lost their missing rows, and levels that occur."""
    if isinstance(values, pd.Categorical):
        return values.remove_unused_categories()
    kind = values.dtype.kind
    return values.to_numpy(dtype={"b": bool, "i": np.int64, "u": np.int64, "f": np.float64}[kind])


def _others(declared: Declared, column: Binary | None, keep: NDArray[np.bool_]) -> tuple[str, ...]:
    """The values that are 0 with their rows, where they are several; masks say no numbers."""
    if column is None or column.which is None:
        return ()
    roles = declared.roles
    counts = [declared.count(keep & (column.which == k)) for k in range(len(column.others))]
    told = roles.suppress_below is roles.round_counts_to is None
    some = [(v, n) for v, n in zip(column.others, counts, strict=True) if n]
    if len(some) < 2:
        return ()
    return tuple(f"{v}: {n:,}" if told else str(v) for v, n in some)


def _notes(declared: Declared, rows: _Rows) -> tuple[str, ...]:
    binaries = [declared.outcome, declared.treatment]
    notes = [part.note for part in binaries if part is not None and part.note is not None]
    for part, role, zero in zip(
        binaries, ("outcome", "treatment"), ("no event", "untreated"), strict=True
    ):
        others = _others(declared, part, rows.keep)
        if part is not None and others:
            notes.append(
                f"{role} {part.name} has more than two values: {show_some(list(others))} count as "
                f"{zero}. Set values that are not known to missing"
            )
    notes += declared.alike_labels(rows.keep)
    for a in declared.attributes:
        if a.missing_level is not None:
            n = declared.count(rows.keep & (a.codes == len(a.levels) - 1))
            many = f" ({n} rows)" * (declared.roles.suppress_below is None)
            notes.append(f"{a.name}: missing values{many} are the level {a.missing_level!r}")
    side = _one_side(declared, rows.keep)
    return (*notes, side) if side else tuple(notes)
