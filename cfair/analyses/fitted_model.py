"""Prepares features and fits a scikit-learn classifier, with a record of what was done.

Nothing here learns from a held-out row: levels are named over all rows, since a name teaches
nothing, but values to fill in, means and which levels count come from the training rows alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.analyses.held_out import Part, Rows, Split, split_seeds
from cfair.columns import check_finite, describe_kind, is_text
from cfair.disclosure import small_masks
from cfair.errors import (
    CfairWarning,
    ConvergenceError,
    DataError,
    ModelWarning,
    SeparationWarning,
    warn,
)
from cfair.frame import is_name, show_some
from cfair.groups import factor, shown_levels
from cfair.nuisance.classifiers import (
    estimator_name,
    explained,
    listening,
    probabilities,
    seeded_copy,
    weight_argument,
)
from cfair.nuisance.learners import check_estimator, estimator_text
from cfair.nuisance.logistic import fit_logistic
from cfair.options import check_option
from cfair.results.text import count

Array = NDArray[np.float64]

#: Models by name, and what they are called in print.
MODELS: dict[str, str] = {
    "logistic": "logistic regression by maximum likelihood",
    "random_forest": "random forest",
    "decision_tree": "decision tree with 20 rows or more in a leaf",
    "gradient_boosting": "gradient boosting of histograms",
    "neural_network": "neural network",
    "lightgbm": "LightGBM",
}


# --------------------------------------------------------------------------------- the model


@dataclass(frozen=True, eq=False)
class Request:
    """What model is wanted.

    Attributes
    ----------
    estimator : scikit-learn classifier
    name : str
        In print.
    by_name : str or None
        A key of `MODELS`, unless an estimator was given.
    prepare : bool
        Whether features are filled in, coded and scaled before the model sees them.
    indicate_missing : bool
    balanced, upsample : bool
    """

    estimator: Any
    name: str
    by_name: str | None
    prepare: bool
    indicate_missing: bool
    balanced: bool
    upsample: bool


def read_model(
    model: Any,
    *,
    prepare: bool | None,
    indicate_missing: bool,
    class_weight: str | None,
    upsample: bool,
    weighted: bool,
) -> Request:
    """Check which model is wanted, before any work.

    Parameters
    ----------
    model : str or scikit-learn classifier
    prepare : bool or None
        None: unless the model is a pipeline.
    indicate_missing : bool
    class_weight : {"balanced"} or None
    upsample : bool
    weighted : bool
        Whether there are sampling weights.

    Returns
    -------
    Request

    Raises
    ------
    DataError
        If the model cannot be fitted, gives no probabilities or takes no weights.
    ValueError
        For an option that is not allowed.
    ImportError
        If LightGBM is wanted and not installed.
    """
    check_option("class_weight", class_weight, (None, "balanced"))
    options = {"upsample": upsample, "indicate_missing": indicate_missing}
    for option, value in {
        **options,
        "prepare": bool(prepare) if prepare is None else prepare,
    }.items():
        if not isinstance(value, bool):
            raise ValueError(f"{option} must be True or False, not {value!r}.")
    if upsample and class_weight is not None:
        raise ValueError(
            "class_weight='balanced' and upsample=True both make events and non-events count "
            "alike. Choose one of them."
        )
    if isinstance(model, str):
        check_option("model", model, MODELS)
        estimator, name = _named_model(model), MODELS[model]
    else:
        estimator, name = model, ""
        try:
            check_estimator(model)
        except (TypeError, ValueError) as error:
            raise DataError(f"model: {error}") from error
        name = estimator_text(model)
    pipeline = hasattr(estimator, "steps")
    if weighted:
        weight_argument(estimator)
    if class_weight is not None:
        try:
            weight_argument(estimator)
        except DataError as error:
            raise DataError(
                f"class_weight='balanced' weights the rows, but {estimator_name(estimator)} takes "
                "no weights. Use upsample=True in its place, or another model."
            ) from error
    return Request(
        estimator,
        name,
        model if isinstance(model, str) else None,
        not pipeline if prepare is None else prepare,
        indicate_missing,
        class_weight is not None,
        upsample,
    )


def _named_model(name: str) -> Any:
    """scikit-learn's own settings, unless they would give no risk: see the comments."""
    if name == "logistic":
        from sklearn.linear_model import LogisticRegression

        # an infinite C is no penalty, in all versions; the tolerance is that of other software
        return LogisticRegression(C=np.inf, tol=1e-8, max_iter=10_000)
    if name == "decision_tree":
        from sklearn.tree import DecisionTreeClassifier

        # grown to the end, a tree gives 0 or 1 and no risk between
        return DecisionTreeClassifier(min_samples_leaf=20)
    if name == "neural_network":
        from sklearn.neural_network import MLPClassifier

        return MLPClassifier(max_iter=1000)
    if name == "lightgbm":
        try:
            LGBMClassifier = import_module("lightgbm").LGBMClassifier
        except ImportError as error:
            raise ImportError(
                "model='lightgbm' needs LightGBM, which is not installed: pip install lightgbm. "
                "model='gradient_boosting' is scikit-learn's own of the same kind."
            ) from error
        return LGBMClassifier(verbose=-1)
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

    return RandomForestClassifier() if name == "random_forest" else HistGradientBoostingClassifier()


# -------------------------------------------------------------------------------- the features


@dataclass(frozen=True, eq=False)
class Features:
    """The features of training and held-out rows: numbers as floats, categories as text.

    Missing values are NaN in both.

    Attributes
    ----------
    train, test : pandas.DataFrame
    numbers, categories : tuple of str
        Which columns are which.
    constant : tuple of str
        Columns that were left out since no two training rows differ in them.
    unseen : dict of str to (levels, number of rows)
        Levels of held-out rows that no training row has.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    constant: tuple[str, ...]
    unseen: dict[str, tuple[tuple[str, ...], float]]

    @property
    def names(self) -> list[str]:
        """All columns, in the order in which they were named."""
        return list(self.train.columns)


def read_features(features: Any, split: Split, request: Request) -> Features:
    """Read the features of training and held-out rows.

    Parameters
    ----------
    features : name or sequence of names
    split : Split
    request : Request

    Returns
    -------
    Features

    Raises
    ------
    DataError
        If a name is unknown or has another role, a column holds neither numbers nor categories, or
        has no values in the training rows, or all columns are constant.
    """
    names = _checked_names(features, split)
    n = len(split.train.rows)
    columns: dict[str, Any] = {}
    numbers: list[str] = []
    categories: list[str] = []
    constant: list[str] = []
    empty: list[str] = []
    unseen = {}
    for given in names:
        name = str(given)
        parts = [part.table.column(given).iloc[part.rows] for part in (split.train, split.test)]
        attribute = name in split.attributes
        missing_level = attribute and split.roles.missing == "level"
        if parts[0].isna().all() and not missing_level:
            empty.append(repr(name))
            continue
        category = attribute or _is_category(name, parts)
        if category:
            values = _labels(parts, missing_level)
        else:
            values = np.concatenate([s.to_numpy(float, na_value=np.nan) for s in parts])
        missing = pd.isna(values)
        known = pd.unique(pd.Series(values[:n][~missing[:n]]))
        varies = len(known) > 1 or (request.indicate_missing and missing[:n].any())
        if request.prepare and not varies:
            constant.append(name)
            continue
        columns[name] = values
        (categories if category else numbers).append(name)
        new = ~missing[n:] & ~pd.Series(values[n:]).isin(known).to_numpy()
        if category and new.any():
            rows = small_masks(new.sum(), split.roles.suppress_below)
            unseen[name] = tuple(sorted(set(values[n:][new]))), float(rows)
    if empty:
        raise DataError(
            f"feature{'s' * (len(empty) > 1)} {show_some(empty)}: all {n:,} training rows have a "
            "missing value. Leave such columns out of features=."
        )
    if not columns:
        raise DataError(
            f"all features ({show_some(constant)}) have one value only in the {n:,} training rows: "
            "there is nothing to learn from. Name others in features=."
        )
    frame = pd.DataFrame(columns)
    train, test = frame[:n], frame[n:]
    return Features(train, test, tuple(numbers), tuple(categories), tuple(constant), unseen)


#: What to do about a feature that has another role.
_TWO_ROLES = {
    "outcome": (
        "A model that is given the outcome has nothing to predict: leave it out of the features."
    ),
    "treatment": (
        "What comes after the risk cannot be part of it: leave it out of the features. If it comes "
        "before, leave treatment= out; result.audit.counterfactual takes it from the left side of "
        "its formula."
    ),
}


def _checked_names(features: Any, split: Split) -> list[Any]:
    """Names of columns, none twice, none with a role other than of a group."""
    names = [features] if is_name(features) else features
    if not isinstance(names, (list, tuple, pd.Index)) or not all(map(is_name, names)):
        raise DataError("features must be names of columns, for example features=['age', 'sbp'].")
    if len(names) == 0:
        raise DataError("features is empty. Name at least one column, as in features=['age'].")
    twice = [repr(name) for name, times in Counter(map(str, names)).items() if times > 1]
    if twice:
        raise DataError(f"features names {show_some(twice)} more than once. Name each once.")
    for role, column in split.role_names:
        if role != "groups" and column in map(str, names):
            what = _TWO_ROLES.get(role, "Give each role a column of its own.")
            raise DataError(f"column {column!r} has two roles: {role} and features. {what}")
    one = split.train.table is split.test.table
    for where, part in (("train: ", split.train), ("test: ", split.test)):
        for name in names:
            part.table.position(name, ("" if one else where) + "feature")
    return list(names)


def _is_category(name: str, parts: Sequence[pd.Series]) -> bool:
    """Whether a feature is a category, in both parts alike; a number otherwise."""
    kinds = []
    for series in parts:
        dtype: Any = series.dtype
        numeric = getattr(dtype, "kind", "O") in "iuf"
        category = (
            isinstance(dtype, (pd.CategoricalDtype, pd.IntervalDtype))
            or pd.api.types.is_bool_dtype(dtype)
            or is_text(series)
        )
        if not (numeric or category or series.isna().all()):
            first = show_some([repr(v) for v in series.dropna().head(3)])
            raise DataError(
                f"feature {name!r} must be numbers or categories, but is {describe_kind(series)} "
                f"({first}). Make it a number, for example days since a date, or text."
            )
        if not series.isna().all():
            kinds.append(category)
        check_finite(series, f"feature {name!r}")
    if len(set(kinds)) == 2:
        shown = [describe_kind(series) for series in parts]
        raise DataError(
            f"feature {name!r} is {shown[0]} in train, but {shown[1]} in test. Make it one type."
        )
    return kinds[0]


def _labels(parts: Sequence[pd.Series], missing_level: bool) -> NDArray[np.object_]:
    """Levels as text, NaN where missing."""
    found = factor(pd.concat([s.astype(object) for s in parts], ignore_index=True), "feature")
    if missing_level:
        found = found.with_missing_level()
    names = np.array([*shown_levels(found.levels), np.nan], dtype=object)
    labels: NDArray[np.object_] = names[found.codes]  # code -1 is the last, missing
    return labels


# ----------------------------------------------------------------------------------- the fit


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model and the risk it gives to held-out rows.

    Attributes
    ----------
    model : scikit-learn pipeline or classifier
        Takes a frame of the features, numbers as floats and categories as text.
    risk : (n_test,) array
    n_columns : int
        Columns that the classifier saw.
    copies : (n_train,) array of int
        How often each training row was fitted on.
    imputed : pandas.DataFrame
        A row per feature with missing values: ``column, value, train, test``, the last two the
        number of rows. ``value`` is None where the pipeline was left to deal with it.
    notes : tuple of str
    """

    model: Any
    risk: Array
    n_columns: int
    copies: Rows
    imputed: pd.DataFrame
    notes: tuple[str, ...]


def fit_model(request: Request, features: Features, train: Part, seed: int) -> Fitted:
    """Fit on the training rows and predict the held-out ones.

    Parameters
    ----------
    request : Request
    features : Features
    train : Part
    seed : int
        Of the upsampling, and of every ``random_state`` that is None.

    Returns
    -------
    Fitted

    Raises
    ------
    DataError
        If the model cannot be fitted.
    """
    from sklearn.pipeline import Pipeline

    notes = _feature_notes(features, request.prepare)
    X: Any = features.train
    new: Any = features.test
    prepare = None
    if request.prepare:
        prepare = _preparation(features, request.indicate_missing).fit(features.train)
        X, new = prepare.transform(features.train), prepare.transform(features.test)
    copies = _copies(request, train, seed)
    weights = _fit_weights(request, train, copies)
    if request.by_name == "logistic" and prepare is not None:
        notes += _logistic_notes(
            prepare, X, train.y, copies if weights is None else weights * copies
        )
    where = estimator_name(request.estimator)
    model = seeded_copy(request.estimator, seed)
    rows = np.repeat(np.arange(len(copies)), copies)
    extra = {} if weights is None else {weight_argument(model): weights[rows]}
    with explained(where), listening() as heard:
        model.fit(X[rows] if request.prepare else X.iloc[rows], train.y[rows].astype(int), **extra)
        risk = probabilities(model, new, 2, where)[:, 1]
    # LightGBM makes up names for the columns of an array and then misses them
    said = dict.fromkeys(text for text in heard if "valid feature names" not in text)
    for text in said:
        _say(notes, f"{where}: {text}", ModelWarning)
    if request.balanced or request.upsample:
        notes.append(
            "events and non-events counted alike in training: fitted risks are higher than the "
            "share of events where events are rarer, and are not calibrated."
            if 2 * train.y.sum() < len(train.y)
            else "events and non-events counted alike in training: fitted risks are not calibrated."
        )
    return Fitted(
        model=model if prepare is None else Pipeline([("prepare", prepare), ("model", model)]),
        risk=np.ascontiguousarray(risk),
        n_columns=X.shape[1],
        copies=copies,
        imputed=_imputed(features, prepare),
        notes=tuple(notes),
    )


def _say(notes: list[str], text: str, category: type[CfairWarning]) -> None:
    warn(text, category)
    notes.append(text)


def _preparation(features: Features, indicate_missing: bool) -> Any:
    """Fill in, scale and code, as learnt from the rows that it is fitted on."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import MissingIndicator, SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    categories = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    steps: list[tuple[str, Any, list[str]]] = [
        ("numbers", numbers, list(features.numbers)),
        ("categories", categories, list(features.categories)),
    ]
    gaps = [name for name in features.names if features.train[name].isna().any()]
    if indicate_missing:
        steps.append(("missing", MissingIndicator(error_on_new=False), gaps))
    return ColumnTransformer([step for step in steps if step[2]], sparse_threshold=0)


def _imputed(features: Features, prepare: Any) -> pd.DataFrame:
    """What was filled in, and in how many rows."""
    values: dict[str, Any] = {}
    if prepare is not None:
        for kind in ("numbers", "categories"):
            names = getattr(features, kind)
            if names:
                filled = prepare.named_transformers_[kind].steps[0][1].statistics_
                values.update(zip(names, filled, strict=True))
    counts = [
        (c, features.train[c].isna().sum(), features.test[c].isna().sum()) for c in features.names
    ]
    rows = [(c, values.get(c), int(a), int(b)) for c, a, b in counts if a or b]
    frame = pd.DataFrame(rows, columns=["column", "value", "train", "test"])
    return frame.astype({"column": "str", "value": object, "train": int, "test": int})


def _copies(request: Request, train: Part, seed: int) -> Rows:
    """How often each training row is fitted on: once, some of the rarer outcome more often."""
    from sklearn.utils import resample

    copies = np.ones(len(train.y), dtype=np.intp)
    if train.weights is not None:
        copies[train.weights == 0] = 0
    if request.upsample:
        by_outcome = [np.flatnonzero((train.y == value) & (copies > 0)) for value in (0, 1)]
        rare, common = sorted(by_outcome, key=len)
        if len(rare) < len(common):
            drawn = resample(
                rare, n_samples=len(common) - len(rare), random_state=split_seeds(seed)[1]
            )
            copies += np.bincount(drawn, minlength=len(copies))
    return copies


def _fit_weights(request: Request, train: Part, copies: Rows) -> Array | None:
    """Weights of the training rows, with mean 1 over those fitted on; None if all count alike."""
    if train.weights is None and not request.balanced:
        return None
    weights = np.ones(len(train.y)) if train.weights is None else train.weights.copy()
    if request.balanced:
        # scikit-learn's own class weights count rows, and not for how many people they stand
        for value in (0, 1):
            weights[train.y == value] /= weights[train.y == value].sum()
    scaled: Array = np.round(weights / np.average(weights, weights=copies), 10)
    return scaled


def _feature_notes(features: Features, prepared: bool) -> list[str]:
    notes: list[str] = []
    if features.constant:
        _say(
            notes,
            f"left out of the features, with one value only in the training rows: "
            f"{show_some(list(features.constant), 8)}.",
            ModelWarning,
        )
    for name, (levels, n) in features.unseen.items():
        _say(
            notes,
            f"{name}: {count(n)} held-out row{'s' * (n != 1)} with a level that no training row "
            f"has ({show_some(list(levels))}); "
            + (
                "the model takes them as of none of the levels it knows."
                if prepared
                else "what becomes of them is up to the pipeline."
            ),
            ModelWarning,
        )
    return notes


def _logistic_notes(
    prepare: Any, X: Array, y: NDArray[np.int8], weights: Array | Rows
) -> list[str]:
    """Refuse more parameters than rows, and say whether the outcome is separated."""
    design = np.column_stack([np.ones(len(X)), X])
    used = weights > 0
    try:
        fit = fit_logistic(design[used], y[used], weights=np.asarray(weights[used], dtype=float))
    except ConvergenceError:  # the estimator will tell
        return []
    n_parameters = int(fit.kept.sum())
    if n_parameters >= used.sum():
        raise DataError(
            f"model='logistic' has {n_parameters:,} parameters, but there are {int(used.sum()):,} "
            "training rows. Use fewer features or levels, or a model with a penalty."
        )
    names = ["Intercept", *(c.split("__", 1)[1] for c in prepare.get_feature_names_out())]
    moving = [n for n, m in zip(names, fit.separated, strict=True) if m and n != "Intercept"]
    notes: list[str] = []
    if fit.separated.any():
        _say(
            notes,
            f"logistic regression: the outcome is separated by {show_some(moving or names[:1], 8)}:"
            " in some training rows it is all but certain, and the coefficients have no finite "
            "estimate. Drop or coarsen these features, or use a model with a penalty.",
            SeparationWarning,
        )
    return notes
