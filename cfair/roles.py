"""The declared question: which column of the table has which role, each read and checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.columns import (
    Binary,
    Score,
    Weights,
    check_cutoff,
    fold,
    formula_column,
    is_text,
    read_attribute,
    read_binary,
    read_score,
    read_weights,
    refuse_numbers_as_text,
)
from cfair.errors import DataError
from cfair.frame import Table, as_table, is_name, show_some
from cfair.groups import Factor, factor
from cfair.options import check_option


@dataclass(frozen=True, eq=False)
class Roles:
    """What each column is for. A role is a column name, or a Series or array of values.

    Parameters
    ----------
    outcome : name or array, optional
        The event under study, 0/1 or True/False; with `outcome_event`, any two or more values.
    groups : name, or sequence of names or arrays
        The protected attributes, to be crossed. A plain string is a single attribute.
    score : name or array, optional
        The risk score under audit, real, in [0, 1].
    cutoff : float, optional
        S = score >= cutoff, so that a score at the cutoff counts as positive.
    prediction : name or array, optional
        A ready 0/1 call, in place of the cutoff.
    treatment : name or array, optional
        The treatment, 0/1 or True/False; with `treatment_event`, any two or more values.
    cluster : name or array, optional
        Rows with the same value belong together.
    weights : name or array, optional
        Sampling weights: for how many people a row stands, on any scale. Non-negative.
    outcome_event, treatment_event : value, or list of values, optional
        What counts as 1.
    missing : {"raise", "drop", "level"}
        What happens to rows with missing values. "level" makes the missing values of a group
        attribute a level of its own, and refuses all others.
    min_group_size : int, optional
        Groups with fewer rows are named in a warning, or dropped.
    small_groups : {"warn", "drop"}
        What happens to groups below `min_group_size`.
    both_outcomes : bool
        Whether an outcome with one value is refused.
    warn_one_call : bool
        Whether a call that is the same in all rows is warned of.
    suppress_below : int, optional
        Counts from 1 to one less are masked in all results.
    round_counts_to : int, optional
        All results are of counts that were rounded to multiples of it.
    """

    outcome: Any = None
    groups: Any = ()
    score: Any = None
    cutoff: float | None = None
    prediction: Any = None
    treatment: Any = None
    cluster: Any = None
    weights: Any = None
    outcome_event: Any = None
    treatment_event: Any = None
    missing: str = "raise"
    min_group_size: int | None = None
    small_groups: str = "warn"
    both_outcomes: bool = True
    warn_one_call: bool = True
    suppress_below: int | None = None
    round_counts_to: int | None = None

    def __post_init__(self) -> None:
        check_option("missing", self.missing, ("raise", "drop", "level"))
        check_option("small_groups", self.small_groups, ("warn", "drop"))
        size = self.min_group_size
        whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
        if size is not None and (not whole or size < 1):
            raise ValueError(f"min_group_size must be a whole number >= 1 or None, not {size!r}.")


@dataclass(frozen=True, eq=False)
class Declared:
    """A table whose roles were read and checked; the start of every analysis of it.

    ``repeats`` says how many rows each line of the table stands for, where the rows themselves
    stayed in their engine and only their counts came back (`cfair.counting`); ``lazy`` is that
    table.
    """

    table: Table
    roles: Roles
    attributes: tuple[Factor, ...]
    s: NDArray[np.int8]
    outcome: Binary | None = None
    treatment: Binary | None = None
    prediction: Binary | None = None
    score: Score | None = None
    cluster: Factor | None = None
    weights: Weights | None = None
    warned: frozenset[str] = frozenset()
    repeats: NDArray[np.int64] | None = None
    lazy: Any = field(default=None, repr=False)
    _formula_columns: dict[str, pd.Series] = field(default_factory=dict, repr=False)

    def count(self, lines: NDArray[np.bool_]) -> int:
        """Rows that these lines of the table stand for."""
        return int(lines.sum() if self.repeats is None else self.repeats[lines].sum())

    def in_rows(self) -> Declared:
        """The declaration of the rows themselves, which are collected if they are not here."""
        if self.repeats is None:
            return self
        found = replace(read_declaration(self.lazy, self.roles), warned=self.warned)
        if found.n_rows != self.n_rows:
            raise DataError(
                f"the table had {self.n_rows:,} rows when it was declared and has {found.n_rows:,} "
                "now, so that results would be of unlike data. Declare a new Audit."
            )
        return found

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return self.table.n_rows if self.repeats is None else int(self.repeats.sum())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names that a formula may use: the table's columns, and roles given as arrays."""
        names = [str(name) for name in self.table.names]
        return tuple(dict.fromkeys([*names, *self.by_name]))

    @property
    def by_name(self) -> dict[str, Binary | Score | Factor]:
        """The columns with a role, cluster and weights aside, by name."""
        parts = [self.outcome, self.treatment, self.score, self.prediction, *self.attributes]
        return {part.name: part for part in parts if part is not None}

    @property
    def missing(self) -> dict[str, NDArray[np.bool_]]:
        """Rows with missing values, per column with a role."""
        aside = [part for part in (self.cluster, self.weights) if part is not None]
        return {part.name: part.missing for part in [*self.by_name.values(), *aside]}

    def prepared(self, name: str) -> pd.Series:
        """Read a column without a role, for use in formulas; each is read once."""
        if name not in self._formula_columns:
            self._formula_columns[name] = formula_column(self.table.column(name))
        return self._formula_columns[name]

    def check_numbers(self, names: Sequence[str]) -> None:
        """Refuse numbers that are text for some other text among them, in columns of a formula.

        Parameters
        ----------
        names : sequence of str
            Columns that are not said to be categories.

        Raises
        ------
        DataError
        """
        for name in names:
            if name in self.by_name:
                continue  # which was checked by its role
            series = self.table.column(name)
            if is_text(series):
                found = factor(series)
                counts = np.bincount(found.codes[~found.missing], self._repeats(~found.missing))
                refuse_numbers_as_text(name, found.levels, counts)

    def alike_labels(self, rows: NDArray[np.bool_]) -> list[str]:
        """Labels of an attribute that differ only by case or the spaces around them, in words.

        Parameters
        ----------
        rows : (n,) array of bool
            The rows that are looked at.
        """
        told = self.roles.suppress_below is self.roles.round_counts_to is None
        found = []
        for a in self.attributes:
            here = rows & ~a.missing
            counts = np.bincount(a.codes[here], self._repeats(here), len(a.levels)).astype(int)
            spelt: dict[str, list[str]] = {}
            for level, n in zip(a.levels, counts.tolist(), strict=True):
                if isinstance(level, str) and n:
                    many = f" ({n:,} row{'s' * (n > 1)})" * told
                    spelt.setdefault(fold(level), []).append(f"{level!r}{many}")
            alike = [" and ".join(labels) for labels in spelt.values() if len(labels) > 1]
            if alike:
                found.append(
                    f"{a.name}: labels that differ only by case or the spaces around them are "
                    f"levels of their own: {show_some(alike)}. To merge them: "
                    f"table[{a.name!r}].str.strip().str.lower()"
                )
        return found

    def _repeats(self, lines: NDArray[np.bool_]) -> NDArray[np.int64] | None:
        return None if self.repeats is None else self.repeats[lines]

    def with_left_side(self, role: str, name: str | None) -> Declared:
        """Take the left side of a formula as outcome or treatment, unless another is declared.

        Parameters
        ----------
        role : {"outcome", "treatment"}
            What the formula models.
        name : str or None
            The column on its left side, if it has one.
        """
        own = self.outcome if role == "outcome" else self.treatment
        if name is None or (own is not None and own.name == name):
            return self
        if own is not None:
            raise DataError(
                f"the left side of the formula is {name!r}, but the declared {role} is "
                f"{own.name!r}. Model the declared {role}, or declare {role}={name!r}."
            )
        _refuse_two_roles([*self.role_names, (role, name)])
        event = self.roles.outcome_event if role == "outcome" else self.roles.treatment_event
        column = read_binary(
            self.table.column(name, role), role, event=event, option=f"{role}_event"
        )
        return (
            replace(self, outcome=column) if role == "outcome" else replace(self, treatment=column)
        )

    def with_cluster(self, cluster: Any) -> Declared:
        """Put another cluster, a name or an array, in place of the declared one."""
        if cluster is None:
            return self
        series = read_role(self.table, "cluster", cluster, "cluster")
        found = replace(self, cluster=factor(series))
        _refuse_two_roles(found.role_names)
        return found

    @property
    def role_names(self) -> list[tuple[str, str]]:
        """(role, column name) of every declared role."""
        single = {
            "outcome": self.outcome,
            "treatment": self.treatment,
            "prediction": self.prediction,
            "score": self.score,
            "cluster": self.cluster,
            "weights": self.weights,
        }
        found = [(role, part.name) for role, part in single.items() if part is not None]
        return found + [("groups", attribute.name) for attribute in self.attributes]

    @property
    def rule(self) -> str:
        """How S came about: 'risk >= 0.5', or the name of the prediction."""
        if self.prediction is not None:
            return self.prediction.name
        return f"{self.score.name if self.score else 'score'} >= {self.roles.cutoff}"


def read_declaration(data: Any, roles: Roles) -> Declared:
    """Read the columns that have a role, and check each by what it is for.

    Parameters
    ----------
    data : data frame
        pandas, polars, pyarrow, a duckdb relation, or a dict of arrays. It is not changed.
    roles : Roles
        What each column is for.
    """
    table = as_table(data)
    if table.n_rows == 0:
        raise DataError(f"the table has no rows (0 rows, {len(table.names)} columns).")
    found = [(role, read_role(table, role, value, name)) for role, value, name in given(roles)]
    _refuse_two_roles([(role, str(series.name)) for role, series in found])
    attributes = tuple(read_attribute(series) for role, series in found if role == "groups")
    if roles.missing == "level":
        attributes = tuple(attribute.with_missing_level() for attribute in attributes)
    single = {role: series for role, series in found if role != "groups"}
    prediction = _binary(single, "prediction")
    _refuse_swapped(single, roles)
    score = read_score(single["score"]) if "score" in single else None
    return Declared(
        table,
        roles,
        attributes,
        s=_call(score, roles.cutoff, prediction),
        outcome=_binary(single, "outcome", roles.outcome_event),
        treatment=_binary(single, "treatment", roles.treatment_event),
        prediction=prediction,
        score=score,
        cluster=factor(single["cluster"]) if "cluster" in single else None,
        weights=read_weights(single["weights"]) if "weights" in single else None,
    )


def read_role(table: Table, role: str, value: Any, default: str) -> pd.Series:
    """Read a role's values, from a column's name or from values given beside the table.

    Parameters
    ----------
    table : Table
        The table.
    role : str
        The role, for messages.
    value : name, Series or array
        A column name, or one value per row.
    default : str
        The name of an array that has none.
    """
    if is_name(value):
        return table.column(value, role)
    series = table.align(value, role)
    name = default if series.name is None else str(series.name)
    names = {str(own) for own in table.names}
    if name in names and series.name is None:
        name = f"{default}_array"
    if name in names and not _equal(series, table.column(name)):
        raise DataError(
            f"{role}: the Series is called {name!r}, but the table has a column of this name with "
            f"other values. Rename the Series, or give the name of the column."
        )
    return series.rename(name)


def given(roles: Roles) -> list[tuple[str, Any, str]]:
    """(role, value, name if it has none) of every role that was given."""
    single = {
        "outcome": roles.outcome,
        "score": roles.score,
        "prediction": roles.prediction,
        "treatment": roles.treatment,
        "cluster": roles.cluster,
        "weights": roles.weights,
    }
    groups = roles.groups
    if isinstance(groups, pd.DataFrame):
        groups = [groups[name] for name in groups.columns]
    groups = list(groups) if isinstance(groups, (list, tuple)) else [groups]
    if not groups or groups[0] is None:
        raise DataError("groups must name one or more columns, for example groups=['sex', 'race'].")
    found = [(role, value, role) for role, value in single.items() if value is not None]
    return found + [("groups", value, f"group_{i}") for i, value in enumerate(groups, start=1)]


def _refuse_two_roles(names: Sequence[tuple[str, str]]) -> None:
    seen: dict[str, str] = {}
    for role, name in names:
        if name in seen and role == seen[name]:
            raise DataError(f"{role} names column {name!r} twice. Name each attribute once.")
        if name in seen:
            raise DataError(
                f"column {name!r} has two roles: {seen[name]} and {role}. Give each role a column "
                f"of its own."
            )
        seen[name] = role


def _binary(single: dict[str, pd.Series], role: str, event: Any = None) -> Binary | None:
    if role not in single:
        return None  # an outcome or treatment may still come from a formula's left side
    option = None if role == "prediction" else f"{role}_event"
    return read_binary(single[role], role, event=event, option=option)


def _refuse_swapped(single: dict[str, pd.Series], roles: Roles) -> None:
    """Refuse an outcome of many numbers beside a score of two, which are likely each other's."""
    outcome, score = single.get("outcome"), single.get("score")
    if outcome is None or score is None or roles.outcome_event is not None:
        return
    n = outcome.nunique()
    if getattr(outcome.dtype, "kind", "O") == "f" and n > 2 and score.nunique() == 2:
        raise DataError(
            f"the outcome column {str(outcome.name)!r} holds {n:,} different numbers, and the "
            f"score column {str(score.name)!r} only two. Are they swapped? outcome= is the 0/1 "
            "event, score= the risk of it in [0, 1]. A score of two values is a call: prediction=."
        )


def _call(score: Score | None, cutoff: Any, prediction: Binary | None) -> NDArray[np.int8]:
    """S, from the ready prediction or from the score and its cutoff."""
    if prediction is not None:
        if cutoff is not None:
            raise DataError(
                f"prediction={prediction.name!r} is a ready 0/1 call, so that cutoff={cutoff!r} "
                f"has no use. Give one of the two."
            )
        return prediction.values
    if score is None:
        raise DataError("give score= with cutoff=, or a ready 0/1 call as prediction=.")
    if cutoff is None:
        raise DataError(
            f"score={score.name!r} needs a cutoff= in [0, 1] (S is score >= cutoff), or give a "
            f"ready 0/1 call as prediction=."
        )
    return score.positive(check_cutoff(cutoff))


def _equal(one: pd.Series, other: pd.Series) -> bool:
    missing = one.isna().to_numpy()
    if not np.array_equal(missing, other.isna().to_numpy()):
        return False
    mine, theirs = one.astype(object)[~missing], other.astype(object)[~missing]
    return mine.to_list() == theirs.to_list()
