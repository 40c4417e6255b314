"""Classifiers of scikit-learn in place of a formula: what was asked, and their predictions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.frame import show_some
from cfair.nuisance.classifiers import (
    estimator_name,
    explained,
    listening,
    parameters,
    probabilities,
    seeded_copy,
    weight_argument,
)
from cfair.nuisance.crossfit import Folds

if TYPE_CHECKING:
    from cfair.formula import Design

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: Characters of an estimator's settings that are shown; a long search space is cut off.
_LONGEST = 200
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def require_sklearn(what: str = "a Learner") -> None:
    """Check that scikit-learn can be imported.

    Parameters
    ----------
    what : str
        What needs it, for the message.

    Raises
    ------
    ImportError
        Which says how to install it.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'{what} needs scikit-learn, which is not installed: pip install "cfair[learners]".'
        ) from error


# ------------------------------------------------------------------------------- what is asked


@dataclass(frozen=True, repr=False)
class Learner:
    """A classifier and the columns it learns from, for any place that takes a model's formula.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Not fitted, with ``fit`` and ``predict_proba``; a pipeline or a search will do. It is copied
        for every fold and never changed. Where its ``random_state`` is None, it is set from the
        analysis's seed.
    columns : sequence of str, optional
        Columns of the table, each as it is: numbers as numbers, text and categories as indicators
        of all levels but the first.
    formula : str, optional
        In place of `columns`, such as ``"~ age + log(bmi) + sex:age"``. The estimator is not
        given the column of the intercept.

    Raises
    ------
    TypeError, ValueError
        If the estimator is no classifier with probabilities, or not exactly one of `columns` and
        `formula` is given.
    ImportError
        If scikit-learn is not installed.

    Notes
    -----
    Predictions are out of fold: a row is predicted by an estimator that has not seen it. An
    estimator that stops early or calibrates on a part of its rows will, in a bootstrap replicate,
    find copies of a row on both sides.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier  # doctest: +SKIP
    >>> forest = RandomForestClassifier(max_depth=3)  # doctest: +SKIP
    >>> Learner(forest, columns=["age", "sbp", "sex"])  # doctest: +SKIP
    RandomForestClassifier(max_depth=3) on age, sbp, sex
    """

    estimator: Any
    columns: Sequence[str] | None = None
    formula: str | None = None

    def __post_init__(self) -> None:
        require_sklearn()
        check_estimator(self.estimator)
        if (self.columns is None) == (self.formula is None):
            given = "neither is" if self.columns is None else "both are"
            raise ValueError(
                f"a Learner takes columns or formula, and {given} given. Write "
                'columns=["age", "sbp"], or formula="~ age + sbp".'
            )
        if self.columns is not None:
            object.__setattr__(self, "columns", _checked_columns(self.columns))
        elif not isinstance(self.formula, str):
            raise TypeError(
                f"formula must be text such as '~ age + sbp', not {type(self.formula).__name__}."
            )
        elif "~" not in self.formula:
            raise ValueError(
                f"formula must have a '~', as in '~ age + sbp', but is {self.formula!r}. "
                "Columns are given by columns=[...]."
            )

    def __repr__(self) -> str:
        what = self.formula if self.columns is None else show_some(list(self.columns), 8)
        return f"{self.name} on {what}"

    @property
    def name(self) -> str:
        """The estimator, with the settings that are not its defaults, as it is printed."""
        return estimator_text(self.estimator)

    @property
    def formula_text(self) -> str:
        """The formula, or the one of the columns, to be read by `cfair.formula.parse_formula`."""
        if self.columns is None:
            assert self.formula is not None
            return self.formula
        return "~ " + " + ".join(map(_quoted, self.columns))


def features(design: Design) -> tuple[Array, tuple[str, ...]]:
    """Matrix of a design and its names, without the column of the intercept.

    Parameters
    ----------
    design : Design

    Returns
    -------
    (n, p) array, tuple of str

    Raises
    ------
    FormulaError
        If the intercept is all there is.
    """
    first = int(design.formula.intercept)
    if design.matrix.shape[1] == first:
        raise design.formula.error("a Learner needs at least one column. Add a term.")
    return np.ascontiguousarray(design.matrix[:, first:]), design.names[first:]


def _quoted(name: str) -> str:
    if "`" not in name:
        return f"`{name}`"
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"Q('{escaped}')"


def _checked_columns(columns: Any) -> tuple[str, ...]:
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names: write columns=[{columns!r}].")
    try:
        names = tuple(columns)
    except TypeError:
        names = (columns,)
    wrong = [repr(name) for name in names if not isinstance(name, str)]
    if wrong:
        raise TypeError(f"columns must be names of columns, which {show_some(wrong)} is not.")
    if not names:
        raise ValueError('columns is empty. Name at least one, as in columns=["age"].')
    twice = [repr(name) for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"columns has {show_some(twice)} more than once. Name each once.")
    return tuple(str(name) for name in names)


def estimator_text(estimator: Any) -> str:
    """An estimator with the settings that are not its defaults, as scikit-learn writes it.

    Parameters
    ----------
    estimator : scikit-learn estimator

    Returns
    -------
    str
        In one line; the class alone where the estimator does not tell its settings.
    """
    from sklearn import config_context

    with config_context(print_changed_only=True):
        said = _ADDRESS.sub("", " ".join(repr(estimator).split()))
    if said.startswith("<"):  # Python's own, which tells no settings
        return estimator_name(estimator)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ..."


def check_estimator(estimator: Any) -> None:
    """Check that an estimator is an unfitted classifier with probabilities.

    Parameters
    ----------
    estimator : scikit-learn classifier

    Raises
    ------
    TypeError, ValueError
        If it is not, or has a part that is fitted already.
    """
    if isinstance(estimator, type):
        name = estimator.__name__
        raise TypeError(f"estimator is the class {name}. Give an instance: {name}().")
    name = type(estimator).__name__
    if not callable(getattr(estimator, "fit", None)):
        raise TypeError(
            f"estimator must be a scikit-learn classifier such as RandomForestClassifier(), but "
            f"is a {name}, which has no fit."
        )
    # A stack without a last estimator will have a logistic regression, but not before it is fitted.
    stack = getattr(estimator, "final_estimator", "") is None
    if not stack and not callable(getattr(estimator, "predict_proba", None)):
        raise TypeError(
            f"{estimator_name(estimator)} has no predict_proba and so gives no probabilities. "
            "Give a classifier that does: for a regressor its classifier namesake, for a support "
            "vector machine CalibratedClassifierCV(LinearSVC())."
        )
    for key, value in parameters(estimator).items():
        prefit = isinstance(value, str) and value == "prefit"
        if prefit or type(value).__name__ == "FrozenEstimator":
            raise ValueError(
                f"{estimator_name(estimator)} has a part that is fitted already ({key}) and would "
                "predict rows it has seen. Give it unfitted: it is fitted here, on other rows."
            )


# ---------------------------------------------------------------------- out-of-fold predictions


@dataclass(frozen=True, eq=False)
class Predictions:
    """Probabilities for rows that the models had not seen.

    Attributes
    ----------
    values : list of arrays
        One for each matrix that was predicted: (n,) of class 1, or (n, K) by class code.
    notes : tuple of str
        What the estimator warned of, and in how many folds.
    """

    values: list[Array]
    notes: tuple[str, ...] = ()


def out_of_fold(
    estimator: Any,
    X: Array,
    target: Integers,
    folds: Folds,
    *,
    used: NDArray[np.bool_] | None = None,
    counts: Integers | Array | None = None,
    weights: Array | None = None,
    predict: Sequence[Array] | None = None,
    n_classes: int = 2,
    order: Integers | None = None,
    seed: int = 0,
) -> Predictions:
    """Predict each row by a copy of the estimator that was fitted on the other folds.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Stays as it is.
    X : (n, p) array
        What it is fitted on.
    target : (n,) array of int
        Class codes 0..n_classes-1.
    folds : Folds
    used : (n,) bool array, optional
        Rows to fit on, for instance the untreated. All rows are predicted.
    counts : (n,) array of whole numbers, optional
        How often each row was drawn in a bootstrap replicate; it is fitted on so often.
    weights : (n,) array, optional
        Sampling weights, handed to the estimator as ``sample_weight`` with mean 1, so that their
        unit does not count. Rows of weight 0 are not fitted on.
    predict : sequence of (n, p) arrays, optional
        What is predicted, for instance the same rows under another treatment; `X` by default.
    n_classes : int, default 2
    order : (n,) array of int, optional
        Which row comes first, second, ... in fitting. An order by content makes the predictions
        independent of the order of the data; one by `row_keys` leaves it to chance, as estimators
        that split rows further without shuffling expect it.
    seed : int, default 0
        For every ``random_state`` of the estimator that is None; the same for all folds.

    Returns
    -------
    Predictions

    Raises
    ------
    DataError
        If the rows outside a fold are all of one class, or the estimator cannot be fitted, takes
        no weights, or predicts what is no probability.
    """
    n = len(X)
    position = np.arange(n) if order is None else np.asarray(order, dtype=np.intp)
    fitted_on = _fitted_on(n, used, counts, weights)
    argument = None if weights is None else weight_argument(estimator)
    matrices = [X] if predict is None else list(predict)
    values = [np.zeros((n, n_classes)) for _ in matrices]
    warned: Counter[str] = Counter()
    for fold in range(folds.n_folds):
        here = position[folds.codes[position] == fold]
        rows = position[folds.codes[position] != fold]
        rows = np.repeat(rows, fitted_on[rows])
        where = f"{estimator_name(estimator)} outside {folds.name(fold)}"
        _require_two_classes(target[rows], where)
        extra = {}
        if weights is not None:
            # rounded, so that their unit changes no last digit: trees break ties by it
            extra[str(argument)] = np.round(weights[rows] / weights[rows].mean(), 10)
        model = seeded_copy(estimator, seed)
        with explained(where), listening() as heard:
            model.fit(X[rows], target[rows], **extra)
            for result, matrix in zip(values, matrices, strict=True):
                result[here] = probabilities(model, matrix[here], n_classes, where)
        warned.update(set(heard))
    name = estimator_name(estimator)
    notes = [f"{name}: {text} (in {k} of {folds.n_folds} folds)" for text, k in warned.items()]
    if n_classes == 2:
        values = [v[:, 1].copy() for v in values]
    return Predictions(values, tuple(sorted(notes)))


def _fitted_on(
    n: int, used: NDArray[np.bool_] | None, counts: Integers | Array | None, weights: Array | None
) -> NDArray[np.intp]:
    """How often each row is fitted on, where it is not left out for its fold."""
    times = np.ones(n, dtype=np.intp)
    if counts is not None:
        times[:] = counts
        if (times != counts).any() or (times < 0).any():
            raise ValueError("counts must be whole numbers >= 0: a row is repeated so many times.")
    if used is not None:
        times[~used] = 0
    if weights is not None:
        times[weights == 0] = 0
    return times


def _require_two_classes(target: Integers, where: str) -> None:
    classes = np.unique(target)
    if len(classes) < 2:
        what = f"all {len(target):,} rows are of class {classes[0]}" if len(classes) else "no rows"
        raise DataError(
            f"{where}: there is nothing to tell apart, {what}. Use fewer folds, or a larger group."
        )
