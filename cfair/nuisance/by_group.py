"""Numbers for every row under every group: given as a table, or said by a fitted classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.frame import as_table, show_some
from cfair.groups import Groups
from cfair.nuisance.classifiers import estimator_name, explained
from cfair.roles import Declared

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ByGroupRequest:
    """A number for every row and group as the user gave it, before the rows are chosen.

    Attributes
    ----------
    what : str
        The argument.
    text : str
        For the printed result.
    values : pandas.DataFrame or None
        On the table's index; None for a classifier.
    labelled : bool
        Whether the columns carry labels of groups; otherwise they are in the order of the groups.
    classifier : object or None
    features : pandas.DataFrame or None
        What the classifier is given, on the table's index.
    attributes : tuple of str
        Protected attributes among the features.
    """

    what: str
    text: str
    values: pd.DataFrame | None = None
    labelled: bool = False
    classifier: Any = None
    features: pd.DataFrame | None = None
    attributes: tuple[str, ...] = ()

    @property
    def missing(self) -> dict[str, NDArray[np.bool_]]:
        """Rows that lack a number, or something that the classifier is to be given."""
        if self.values is not None:
            return {self.what: self.values.isna().any(axis=1).to_numpy()}
        assert self.features is not None
        # missing attributes are the declaration's own affair: they may be a level
        others = [name for name in self.features.columns if name not in self.attributes]
        return {str(name): self.features[name].isna().to_numpy() for name in others}

    def on(self, cohort: Cohort, declared: Declared) -> Array:
        """The numbers on the rows of the analysis.

        Parameters
        ----------
        cohort : Cohort
        declared : Declared
            Of which the cohort has rows.

        Returns
        -------
        (n, K) array

        Raises
        ------
        DataError
            If a group has no column, or a number is no probability.
        """
        if self.values is None:
            return self._asked(cohort, declared)
        chosen = _columns_of_groups(self, cohort.groups)
        rows = self.values.to_numpy(dtype=np.float64)[cohort.rows]
        found = np.where(chosen >= 0, rows[:, chosen], 0.0)
        outside = ~((found >= 0) & (found <= 1)).all(axis=1)
        if outside.any():
            raise DataError(
                f"{self.what} must lie in [0, 1], but {int(outside.sum())} of {len(found)} rows "
                f"range from {found[outside].min():.4g} to {found[outside].max():.4g}. Give "
                "probabilities, not logits or percent."
            )
        if self.what == "membership":
            off = np.abs(found.sum(axis=1) - 1) > 1e-4  # they may come rounded
            if off.any():
                raise DataError(
                    f"membership: the probabilities do not add up to 1 in {int(off.sum())} of "
                    f"{len(found)} rows (sums from {found.sum(axis=1).min():.4g} to "
                    f"{found.sum(axis=1).max():.4g}). Divide each row by its sum."
                )
        return found

    def _asked(self, cohort: Cohort, declared: Declared) -> Array:
        """What the classifier says of every row with its attributes set to those of each group."""
        from joblib import parallel_config

        assert self.features is not None
        features, groups = self.features, cohort.groups
        here = features.iloc[cohort.rows]
        where = f"{self.what}: {estimator_name(self.classifier)}"
        event = _event_column(self.classifier, cohort, where)
        found = np.zeros((cohort.n_used, groups.n_groups))
        for g in np.flatnonzero(groups.sizes):
            moved = here.copy()
            for a, attribute in enumerate(declared.attributes):
                if attribute.name in self.attributes:
                    level = groups.levels[a][groups.level_codes[a, g]]
                    # a row that has the level lends its value, so that the type stays the same
                    lender = int(np.argmax(attribute.codes == attribute.levels.index(level)))
                    lent = features[attribute.name].iloc[np.full(len(here), lender)]
                    moved[attribute.name] = lent.array
            # one worker adds up the trees of a forest in one order
            with explained(where), parallel_config(backend="sequential"):
                said = np.asarray(self.classifier.predict_proba(moved), dtype=np.float64)[:, event]
            bad = ~((said >= -1e-9) & (said <= 1 + 1e-9))
            if bad.any():
                raise DataError(
                    f"{where} gives {int(bad.sum())} of {len(said)} rows what is no probability "
                    f"when their group is set to {groups.names[g]!r}. Check its columns."
                )
            found[:, g] = np.clip(said, 0.0, 1.0)
        return found


def read_by_group(value: Any, declared: Declared, what: str, text: str = "") -> ByGroupRequest:
    """Understand a table with a row per row and a column per group.

    Parameters
    ----------
    value : (n, K) array or data frame
        The columns of a frame are found by the labels of the groups; those of an array are in the
        order of the groups.
    declared : Declared
    what : str
        The argument, for messages.
    text : str
        For the printed result.

    Returns
    -------
    ByGroupRequest

    Raises
    ------
    DataError
        If it does not have the rows of the table.
    """
    text = text or f"{what} as given"
    if hasattr(value, "columns"):
        if not isinstance(value, pd.DataFrame):
            source = as_table(value)
            value = source.read(source.names)
        columns = [declared.table.align(value.iloc[:, j], what) for j in range(value.shape[1])]
        labels = list(value.columns)
    else:
        array = np.asarray(value)
        if array.ndim != 2:
            raise DataError(
                f"{what} must have a row per row of the table and a column per group, but has "
                f"{array.ndim} dimension{'s' * (array.ndim != 1)}. Give an (n, K) array, or a data "
                "frame with a column for each group."
            )
        columns = [declared.table.align(array[:, j], what) for j in range(array.shape[1])]
        labels = list(range(array.shape[1]))
    wrong = [f"{labels[j]!r}" for j, c in enumerate(columns) if not _is_numeric(c)]
    if wrong:
        raise DataError(f"{what}: columns {show_some(wrong)} hold no numbers. Give probabilities.")
    frame = pd.concat([c.astype(float).rename(j) for j, c in enumerate(columns)], axis=1)
    frame.columns = pd.Index(labels, tupleize_cols=False)
    return ByGroupRequest(what, text, frame, labelled=hasattr(value, "columns"))


def read_classifier(value: Any, columns: Any, declared: Declared) -> ByGroupRequest:
    """Understand a fitted classifier and the columns that it is to be given.

    Parameters
    ----------
    value : fitted classifier
        With ``predict_proba``.
    columns : sequence of str
        Columns of the table, in the order of its fit.
    declared : Declared

    Returns
    -------
    ByGroupRequest

    Raises
    ------
    DataError
        If there are no columns.
    """
    name = estimator_name(value)
    if columns is None or isinstance(columns, str) or not len(columns):
        raise DataError(
            f"scores: {name} needs the columns that it was fitted on: "
            'score_columns=["age", "sex", ...], in that order.'
        )
    features = declared.table.read(list(columns))
    text = f"{name} of {show_some([str(c) for c in columns], 8)}"
    attributes = tuple(a.name for a in declared.attributes if a.name in features.columns)
    return ByGroupRequest(
        "scores", text, classifier=value, features=features, attributes=attributes
    )


def _is_numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not isinstance(
        column.dtype, pd.CategoricalDtype
    )


def _columns_of_groups(request: ByGroupRequest, groups: Groups) -> NDArray[np.intp]:
    """Position of the column of each group; -1 for a group without rows that has none."""
    assert request.values is not None
    labels, K = list(request.values.columns), groups.n_groups
    order = f"{' x '.join(groups.attributes)}: {show_some(list(groups.names), 20)}"
    if not request.labelled:
        if len(labels) != K:
            raise DataError(
                f"{request.what} has {len(labels)} columns, but there are {K} groups. Give one "
                f"column per group, in the order of {order}."
            )
        return np.arange(K)
    place = np.full(K, -1, dtype=np.intp)
    for j, label in enumerate(labels):
        try:
            k = groups.index_of(label)
        except DataError:
            continue  # of a group that lost its rows, or no group's: then another lacks a column
        if place[k] >= 0:
            raise DataError(
                f"{request.what} has two columns for group {groups.names[k]!r}: "
                f"{labels[place[k]]!r} and {label!r}. Keep one."
            )
        place[k] = j
    without = [groups.names[k] for k in np.flatnonzero((place < 0) & (groups.sizes > 0))]
    if without:
        raise DataError(
            f"{request.what} has no column for group {show_some([repr(n) for n in without])}; its "
            f"columns are {show_some([repr(c) for c in labels], 8)}. Name them as the groups of "
            f"{order}."
        )
    return place


def _event_column(classifier: Any, cohort: Cohort, where: str) -> int:
    """Column of predict_proba that is the event's."""
    classes = list(getattr(classifier, "classes_", []))
    if not classes:
        raise DataError(f"{where} is not fitted: it has no classes_. Fit it first.")
    if len(classes) != 2:
        raise DataError(
            f"{where} has {len(classes)} classes, not 2. Give the probabilities: an (n, K) array."
        )
    for event in (cohort.outcome_event, 1):
        found = [j for j, c in enumerate(classes) if bool(c == event)]
        if found:
            return found[0]
    raise DataError(
        f"{where} has the classes {classes[0]!r} and {classes[1]!r}, of which neither is the event "
        f"{cohort.outcome_event!r} nor 1. Give the probabilities: an (n, K) array."
    )
