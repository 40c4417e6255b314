"""A propensity fitted to rows that are read by batches: designs, Newton's sums, overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from cfair.cohort import Cohort
from cfair.columns import Binary, Score, formula_column, read_score, refuse_numbers_as_text
from cfair.combinations import Combinations
from cfair.errors import DataError
from cfair.formula import MAX_LEVELS, Design, Formula, build_design_by_batches
from cfair.frame import Table
from cfair.groups import Factor, categorical_of_codes, factor
from cfair.nuisance.checks import binary_fit_notes, far_note, require_rows
from cfair.nuisance.logistic import (
    FAR,
    MOVING,
    LogisticFit,
    clearly_independent,
    fitted_logistic,
    gram_matrix,
    independent_in,
    newton,
    start_from,
    starts_from_part,
    sweep,
    triangular_factor,
)
from cfair.nuisance.overlap import (
    QUANTILES,
    Overlap,
    arm_row,
    balance_frame,
    effective_frame,
)
from cfair.nuisance.propensity import Propensity, ScoreSums, refuse_certain
from cfair.roles import Declared

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

#: Rows of the fit that Newton's method starts from in large data.
_START_ROWS = 100_000
#: Intervals between 0 and 1 in which propensities are counted, for their quantiles.
_BINS = 10_000


@dataclass(frozen=True, eq=False)
class Batch:
    """Some of the rows of the analysis.

    Attributes
    ----------
    at : (n,) array of int
        The entry of the cohort that each row is one of.
    data : pandas.DataFrame
        The columns of the formula.
    """

    at: Integers
    data: pd.DataFrame


@dataclass(frozen=True, eq=False)
class BatchedRows:
    """The rows of an analysis, which are read anew whenever they are needed.

    Attributes
    ----------
    combinations : Combinations
    declared : Declared
        Its lines.
    cohort : Cohort
        Those that stay, with how many rows each stands for.
    columns : tuple of str
        Columns of the formula.
    """

    combinations: Combinations
    declared: Declared
    cohort: Cohort
    columns: tuple[str, ...]

    def read(self, label: str) -> Iterator[Batch]:
        """Read the rows that stay, batch by batch.

        Parameters
        ----------
        label : str
            What is done with them, for the bar.

        Yields
        ------
        Batch
            With at least one row.
        """
        cohort = self.cohort
        position = np.full(len(self.declared.table.index), -1, dtype=np.intp)
        position[cohort.rows] = np.arange(len(cohort.rows))
        for table, line in self.combinations.tables(self.columns, label):
            at = position[line]
            keep: Any = at >= 0
            if keep.all():
                keep = slice(None)
            at = at[keep]
            if len(at):
                columns = {name: self._column(table, name, at, keep) for name in self.columns}
                yield Batch(at, pd.DataFrame(columns, index=pd.RangeIndex(len(at))))

    def _column(self, table: Table, name: str, at: Integers, keep: Any) -> Any:
        """Values of a column in the form in which the cohort of a table in memory has them."""
        part, groups = self.declared.by_name.get(name), self.cohort.groups
        if isinstance(part, Binary):
            return part.values[self.cohort.rows][at].astype(np.int64)
        if isinstance(part, Factor):
            k = groups.attributes.index(name)
            return categorical_of_codes(groups.level_codes[k][groups.codes[at]], groups.levels[k])
        series = table.column(name)
        if isinstance(part, Score):
            return read_score(series).values[keep]
        return formula_column(series[keep].reset_index(drop=True)).array

    def levels(self, formula: Formula) -> dict[str, Any]:
        """All levels of the columns that are categories, and for the others an array of their type.

        Parameters
        ----------
        formula : Formula

        Returns
        -------
        dict of str to Categorical or array

        Raises
        ------
        FormulaError
            If a column is text in some batches and numbers in others.
        """
        groups, own_order = self.cohort.groups, self.combinations.own_order
        found: dict[str, Any] = {}
        for name, own in zip(groups.attributes, groups.levels, strict=True):
            if name in self.columns:
                found[name] = categorical_of_codes(np.arange(len(own)), own)
        others = {c: _Levels(c in own_order) for c in self.columns if c not in found}
        for batch in self.read("levels"):
            for name, levels in others.items():
                levels.learn(batch.data[name])
            if not any(levels.go_on for levels in others.values()):
                break  # all are numbers, or one has more levels than can be
        for name in formula.bare_columns:
            if name in others and not others[name].own_order:
                refuse_numbers_as_text(name, list(others[name].values))
        return {**found, **{name: levels.found(formula, name) for name, levels in others.items()}}


@dataclass(eq=False)
class _Levels:
    """What a column of a formula holds, as far as it has been read."""

    own_order: bool
    kinds: set[str] = field(default_factory=set)
    values: dict[Any, None] = field(default_factory=dict)
    order: dict[Any, None] = field(default_factory=dict)
    ordered: bool = False

    @property
    def go_on(self) -> bool:
        """Whether more rows can tell more."""
        return "c" in self.kinds and len(self.values) <= MAX_LEVELS

    def learn(self, series: pd.Series) -> None:
        category = isinstance(series.dtype, pd.CategoricalDtype)
        self.kinds.add("c" if category else series.dtype.kind)
        if category:
            self.values.update(dict.fromkeys(factor(series).levels))
            self.order.update(dict.fromkeys(series.cat.categories.tolist()))
            self.ordered = bool(series.cat.ordered)

    def found(self, formula: Formula, name: str) -> Any:
        if "c" not in self.kinds:
            return np.zeros(1, dtype=bool if self.kinds == {"b"} else np.float64)
        if len(self.kinds) > 1:
            raise formula.error(
                f"column {name!r} is a category in some batches and numbers in others. Give it one "
                "type."
            )
        if self.own_order:
            levels = tuple(v for v in self.order if v in self.values)
        else:
            levels = factor(pd.Series(list(self.values), dtype=object), name).levels
        found = categorical_of_codes(np.arange(len(levels)), levels)
        return found.as_ordered() if self.own_order and self.ordered else found


@dataclass(frozen=True, eq=False)
class _FitRows:
    """The rows as Newton's method wants them, in columns of full rank."""

    rows: BatchedRows
    design: Design
    kept: NDArray[np.bool_]
    most: Array

    def matrices(self, label: str) -> Iterator[tuple[Array, Array]]:
        d = self.rows.cohort.d
        assert d is not None
        for batch in self.rows.read(label):
            X = kept_columns(self.design.transform(batch.data), self.kept)
            yield X, d[batch.at].astype(np.float64)

    def sweep(self, beta: Array) -> tuple[float, Array, Array]:
        q = len(beta)
        deviance, score, information = 0.0, np.zeros(q), np.zeros((q, q))
        for Z, d in self.matrices("propensity"):
            part = sweep(Z, d, None, beta)
            deviance += part[0]
            score += part[1]
            information += part[2]
        return deviance, score, information

    def shift(self, step: Array) -> float:
        bound = float(np.abs(step) @ self.most)
        if bound <= MOVING:  # as at any proper maximum: no need to read the rows again
            return bound
        return max(float(np.max(np.abs(Z @ step))) for Z, _ in self.matrices("separation"))

    def largest(self) -> Array:
        return self.most


@dataclass(frozen=True, eq=False)
class BatchedFit:
    """A propensity fitted by batches.

    Attributes
    ----------
    design : Design
        Without rows.
    fit : LogisticFit
        Without fitted probabilities.
    mean : (q,) array
        Means of the columns that were kept.
    notes : tuple of str
    """

    design: Design
    fit: LogisticFit
    mean: Array
    notes: tuple[str, ...]

    def matrix(self, batch: Batch) -> Array:
        """Columns of the fit on a batch.

        Parameters
        ----------
        batch : Batch

        Returns
        -------
        (n, q) array
        """
        return kept_columns(self.design.transform(batch.data), self.fit.kept)

    def probabilities(self, X: Array) -> Array:
        """Probabilities of treatment, not truncated.

        Parameters
        ----------
        X : (n, q) array

        Returns
        -------
        (n,) array
        """
        found: Array = expit(X @ self.fit.coef[self.fit.kept])
        return found


def kept_columns(X: Array, kept: NDArray[np.bool_]) -> Array:
    """The columns that take part in a fit.

    Parameters
    ----------
    X : (n, p) array
    kept : (p,) array of bool

    Returns
    -------
    (n, q) array
    """
    return X if kept.all() else np.ascontiguousarray(X[:, kept])


def fit_by_batches(rows: BatchedRows, formula: Formula, text: str) -> BatchedFit:
    """Maximum likelihood of the propensity, the same as of the rows in memory.

    Parameters
    ----------
    rows : BatchedRows
    formula : Formula
    text : str
        The formula as it is printed.

    Returns
    -------
    BatchedFit

    Raises
    ------
    DataError, FormulaError
        If the design cannot be built, or has more terms than there are rows.
    """
    cohort = rows.cohort
    design = build_design_by_batches(
        formula, rows.levels(formula), lambda: (b.data for b in rows.read("transforms"))
    )
    require_rows(cohort, design, np.broadcast_to(np.True_, (cohort.n_used,)))
    p, n = len(design.names), cohort.n_used
    every = max(16, -(-n // _START_ROWS))
    gram, most, total = np.zeros((p, p)), np.zeros(p), np.zeros(p)
    some: list[tuple[Array, Array]] = []
    all_columns = _FitRows(rows, design, np.ones(p, dtype=bool), most)
    first = 0
    for X, d in all_columns.matrices("design"):
        gram += gram_matrix(X)
        total += X.sum(axis=0)
        np.maximum(most, np.max(np.abs(X), axis=0), out=most)
        if starts_from_part(n):
            part = slice(-first % every, None, every)
            some.append((X[part].copy(), d[part]))
            first += len(X)
    kept = np.ones(p, dtype=bool)
    if not clearly_independent(gram):
        R: Array | None = None
        for X, _ in all_columns.matrices("rank"):
            R = triangular_factor(X, R)
        assert R is not None
        kept = independent_in(R, n)
    start = np.zeros(int(kept.sum()))
    if some:
        X, d = np.vstack([x for x, _ in some]), np.concatenate([d for _, d in some])
        start = start_from(kept_columns(X, kept), d)
    some.clear()
    beta, state = newton(_FitRows(rows, design, kept, most[kept]), start)
    fit = fitted_logistic(beta, kept, state, np.zeros(0))
    notes = binary_fit_notes(design, fit, text, "propensity")
    mean = total / n
    sd = np.sqrt(np.maximum(np.diag(gram) / n - mean**2, 0.0))
    # the sums of a column far away have lost its variation, but not that it is no constant
    far = kept & (np.abs(mean) > FAR * sd) & (most > np.abs(mean) * (1 + 1e-12))
    if far.any():
        names = [name for name, is_far in zip(design.names, far, strict=True) if is_far]
        notes.append(far_note(names, mean[far], None, text, "propensity"))
    return BatchedFit(design, fit, total[kept] / n, (*formula.notes, *notes))


@dataclass(frozen=True, eq=False, repr=False)
class BatchedPropensity(Propensity):
    """A propensity fitted by batches, whose probabilities are nowhere all at once.

    `pi` and `fitted` are empty; `truncated` has an entry for each row that was cut.

    Attributes
    ----------
    n_rows, n_truncated : int
        Rows, and those whose probability was cut.
    """

    n_rows: int = 0
    n_truncated: int = 0

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """True for each row whose probability was cut; the other rows are not here."""
        return np.broadcast_to(np.True_, (self.n_truncated,))

    def __repr__(self) -> str:
        low, high = self.truncation
        rows = f"{self.n_truncated:,} of {self.n_rows:,} rows truncated to [{low:g}, {high:g}]"
        return f"Propensity: {self.text}; {rows}{self.coefficient_lines}"


@dataclass(eq=False)
class PropensitySums:
    """What is said of a propensity and of its weights, added up over the batches.

    Attributes
    ----------
    cohort : Cohort
    fitted : BatchedFit
    truncation : (float, float)
    """

    cohort: Cohort
    fitted: BatchedFit
    truncation: tuple[float, float]
    _sums: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        K, q = self.cohort.groups.n_groups, len(self.fitted.mean)
        bins = max(1, min(_BINS, 4_000_000 // (2 * K)))
        self._sums = {
            "histogram": np.zeros((2 * K, bins), dtype=np.int64),
            "least": np.full(2 * K, np.inf),
            "most": np.full(2 * K, -np.inf),
            "low": np.zeros(2 * K, dtype=np.int64),
            "high": np.zeros(2 * K, dtype=np.int64),
            "weight": np.zeros((3, K)),  # their sum, that of their squares, the largest
            "certain": 0,
            "untreated": np.zeros(q),
            "weighted": np.zeros(q),
            "squares": np.zeros(q),
            "residual": np.zeros(2 * K),
            "variance": np.zeros(2 * K),
            "slope": np.zeros((2 * K, q)),
        }

    def add(self, batch: Batch, X: Array, p: Array, pi: Array, w: Array) -> None:
        """Add a batch.

        Parameters
        ----------
        batch : Batch
        X : (n, q) array
        p, pi : (n,) arrays
            Probabilities before and after truncation.
        w : (n,) array
            Weights, 0 for the treated.
        """
        from scipy.sparse import csc_matrix

        cohort, sums = self.cohort, self._sums
        K, (low, high) = cohort.groups.n_groups, self.truncation
        assert cohort.d is not None
        group, d = cohort.groups.codes[batch.at], cohort.d[batch.at]
        arm, n = group * 2 + d, len(group)
        bins = sums["histogram"].shape[1]
        which = arm * bins + np.minimum((p * bins).astype(np.intp), bins - 1)
        sums["histogram"] += np.bincount(which, minlength=2 * K * bins).reshape(2 * K, bins)
        np.minimum.at(sums["least"], arm, p)
        np.maximum.at(sums["most"], arm, p)
        sums["low"] += np.bincount(arm[p < low], minlength=2 * K)
        sums["high"] += np.bincount(arm[p > high], minlength=2 * K)
        sums["weight"][0] += np.bincount(group, w, K)
        sums["weight"][1] += np.bincount(group, w * w, K)
        np.maximum.at(sums["weight"][2], group, w)
        sums["certain"] += int(np.count_nonzero((d == 0) & (pi >= 1)))
        sums["untreated"] += (d == 0) @ X
        sums["weighted"] += w @ X
        centred = X - self.fitted.mean
        sums["squares"] += np.einsum("ij,ij->j", centred, centred)
        cell = group * 2 + cohort.s[batch.at]
        variance = p * (1 - p)
        sums["residual"] += np.bincount(cell, d - p, 2 * K)
        sums["variance"] += np.bincount(cell, variance, 2 * K)
        chosen = csc_matrix((variance, cell, np.arange(n + 1)), shape=(2 * K, n))
        sums["slope"] += np.asarray(chosen @ X)

    def propensity(self, text: str, columns: Sequence[str]) -> BatchedPropensity:
        """The propensity; refuses untreated rows that stand for infinitely many.

        Parameters
        ----------
        text : str
        columns : sequence of str
            Of the formula.

        Returns
        -------
        BatchedPropensity
        """
        sums, fit = self._sums, self.fitted.fit
        refuse_certain(sums["certain"])
        return BatchedPropensity(
            text,
            np.zeros(0),
            np.zeros(0),
            self.truncation,
            coef=fit.coef[fit.kept],
            fit=fit,
            design=self.fitted.design,
            columns=tuple(columns),
            notes=self.fitted.notes,
            cells=ScoreSums(sums["residual"], sums["variance"], sums["slope"]),
            n_rows=self.cohort.n_used,
            n_truncated=int(sums["low"].sum() + sums["high"].sum()),
        )

    def overlap(self) -> Overlap:
        """Overlap, as of rows in memory; quantiles as near as the histogram has them.

        That is to a ten thousandth up to 200 groups, and to a thousandth with 2,000.

        Returns
        -------
        Overlap
        """
        sums, groups, fitted = self._sums, self.cohort.groups, self.fitted
        n, arms = self.cohort.n_used, sums["histogram"].sum(axis=1).reshape(-1, 2)
        names = [name for name, k in zip(fitted.design.names, fitted.fit.kept, strict=True) if k]
        total = sums["weight"][0].sum()
        return Overlap(
            propensities=pd.DataFrame(
                [
                    *(
                        self._arm(name, arm, slice(2 * g + arm, 2 * g + arm + 1))
                        for g, name in enumerate(groups.names)
                        for arm in (0, 1)
                    ),
                    *(self._arm("all", arm, slice(arm, None, 2)) for arm in (0, 1)),
                ]
            ),
            effective=effective_frame(groups, arms[:, 0], *sums["weight"]),
            balance=balance_frame(
                names,
                fitted.mean,
                np.sqrt(sums["squares"] / n),
                sums["untreated"] / arms[:, 0].sum(),
                sums["weighted"] / total,
            ),
            truncated_low=int(sums["low"].sum()),
            truncated_high=int(sums["high"].sum()),
        )

    def _arm(self, name: str, arm: int, which: slice) -> dict[str, object]:
        """The rows of one arm in one group, or in all."""
        sums = self._sums
        counts = sums["histogram"][which].sum(axis=0)
        n = int(counts.sum())
        quantiles = np.full(len(QUANTILES), np.nan)
        if n:
            place = (n - 1) * np.array(list(QUANTILES.values()))
            below = _ordered(counts, np.floor(place))
            raw = below + (place % 1) * (_ordered(counts, np.ceil(place)) - below)
            least, most = sums["least"][which].min(), sums["most"][which].max()
            quantiles = np.clip(raw, least, most)
            quantiles[[0, -1]] = least, most
        cut = (int(sums[end][which].sum()) for end in ("low", "high"))
        return arm_row(name, arm, n, quantiles, *cut)


def _ordered(counts: Integers, k: Array) -> Array:
    """The k-th smallest values, from 0, as near as a histogram of [0, 1] knows them."""
    last = np.cumsum(counts)
    at = np.searchsorted(last, k, side="right")
    within = (k - (last[at] - counts[at]) + 0.5) / counts[at]
    found: Array = (at + within) / len(counts)
    return found


def require_formula(propensity: Any) -> str:
    """The propensity as the text of a formula, which is all that can be fitted by batches.

    Parameters
    ----------
    propensity : object

    Returns
    -------
    str

    Raises
    ------
    DataError
    """
    if isinstance(propensity, str) and "~" in propensity:
        return propensity
    shown = repr(propensity) if isinstance(propensity, str) else type(propensity).__name__
    raise DataError(
        f'by batches the propensity is a formula, "treated ~ sex * race + risk + age" say, not '
        f"{shown}. For a learner or given probabilities take a sample of the rows into "
        "memory and use cfair.Audit(...).counterfactual(...)."
    )
