"""What is asked of a scikit-learn classifier: a seeded copy, weights, probabilities, warnings."""

from __future__ import annotations

import copy
import inspect
import textwrap
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.errors import CfairError, DataError
from cfair.frame import show_some

Array = NDArray[np.float64]

_PURPOSE = 102  # keeps an estimator's seeds independent of folds, permutations and bootstraps


def estimator_name(estimator: Any) -> str:
    """Class of an estimator, with the classes inside it in brackets.

    Parameters
    ----------
    estimator : scikit-learn estimator

    Returns
    -------
    str
    """
    own = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
    inner = own.get("steps") or own.get("estimators") or []
    parts = [part[1] for part in inner] or [own.get("estimator")]
    inside = ", ".join(estimator_name(part) for part in parts if hasattr(part, "get_params"))
    return type(estimator).__name__ + (f"({inside})" if inside else "")


def parameters(estimator: Any) -> dict[str, Any]:
    """Parameters of an estimator and of those inside it; none if it does not tell them.

    Parameters
    ----------
    estimator : scikit-learn estimator

    Returns
    -------
    dict
    """
    return estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}


def seeded_copy(estimator: Any, seed: int) -> Any:
    """Unfitted copy in which every random_state that was None is a number from the seed.

    Parameters
    ----------
    estimator : scikit-learn estimator
    seed : int

    Returns
    -------
    estimator
    """
    from sklearn.base import clone

    model: Any = clone(estimator) if hasattr(estimator, "get_params") else copy.deepcopy(estimator)
    settings = parameters(model)
    numbers = np.random.SeedSequence(seed, spawn_key=(_PURPOSE,)).generate_state(len(settings))
    states = {}
    for (key, value), number in zip(sorted(settings.items()), numbers, strict=True):
        if key.split("__")[-1] == "random_state" and value is None:
            states[key] = int(number >> 1)  # below 2**31, as scikit-learn wants it
        elif not hasattr(value, "get_params") and getattr(value, "random_state", 0) is None:
            value.random_state = int(number >> 1)  # a splitter, which clone() has copied
    return model.set_params(**states) if states else model


def weight_argument(estimator: Any) -> str:
    """Name of the argument of fit() that takes sampling weights.

    Parameters
    ----------
    estimator : scikit-learn estimator

    Returns
    -------
    str
        ``"sample_weight"``, in a pipeline after the name of its last step.

    Raises
    ------
    DataError
        If it takes none.
    """
    name = _find_weight_argument(estimator)
    if name is None:
        raise DataError(
            f"sampling weights are declared, but {estimator_name(estimator)} takes none: fit (in a "
            "pipeline that of the last step) has no sample_weight. Leave the weights out, or use "
            "an estimator that has it, such as LogisticRegression or RandomForestClassifier."
        )
    return name


def _find_weight_argument(estimator: Any) -> str | None:
    steps = getattr(estimator, "steps", None)
    if steps:
        last, inner = steps[-1]
        found = _find_weight_argument(inner)
        return found and f"{last}__{found}"
    if not hasattr(estimator, "fit"):
        return None
    # A vote hands weights on to all of its parts, whatever its own fit() says.
    named = getattr(estimator, "estimators", None)
    if isinstance(named, list) and named and all(isinstance(pair, tuple) for pair in named):
        together = {_find_weight_argument(part) for _, part in named if not isinstance(part, str)}
        return "sample_weight" if together == {"sample_weight"} else None
    parameters = inspect.signature(estimator.fit).parameters
    if "sample_weight" in parameters:
        return "sample_weight"
    # A search hands its arguments on to its estimator.
    passed_on = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    inner = getattr(estimator, "estimator", None)
    return _find_weight_argument(inner) if passed_on and inner is not None else None


def probabilities(model: Any, X: Array, n_classes: int, where: str) -> Array:
    """Probabilities by class code, 0 for a class that the model has not seen.

    Parameters
    ----------
    model : fitted classifier
        Of classes that are codes 0..n_classes-1.
    X : (m, p) array
    n_classes : int
    where : str
        Which fit it is, for messages.

    Returns
    -------
    (m, n_classes) array

    Raises
    ------
    DataError
        If there is not a number from 0 to 1 for each row and class.
    """
    result = np.zeros((len(X), n_classes))
    if len(X) == 0:
        return result
    from joblib import parallel_config

    # A forest adds up its trees in the order in which threads finish; one worker has one order.
    with parallel_config(backend="sequential"):
        raw = np.asarray(model.predict_proba(X), dtype=np.float64)
    classes = np.asarray(getattr(model, "classes_", np.arange(n_classes))).astype(np.intp)
    if raw.shape != (len(X), len(classes)):
        raise DataError(
            f"{where}: predict_proba gives an array of shape {raw.shape} for {len(X):,} rows and "
            f"{len(classes)} classes. Give a classifier with a column of probabilities per class."
        )
    bad = ~((raw >= -1e-9) & (raw <= 1 + 1e-9)).all(axis=1)
    if bad.any():
        shown = show_some([f"{x:.4g}" for x in raw[bad].min(axis=1)[:6]], 3)
        raise DataError(
            f"{where}: {int(bad.sum())} of {len(X):,} rows are given what is no probability "
            f"between 0 and 1 ({shown}). Scale the columns, or use another estimator."
        )
    result[:, classes] = np.clip(raw, 0.0, 1.0)
    return result


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Whatever an estimator raises, said as a DataError.

    Parameters
    ----------
    where : str
        Which fit it is.
    """
    try:
        yield
    except (CfairError, MemoryError):
        raise
    except Exception as error:
        said = textwrap.shorten(str(error), 300, placeholder=" ...")
        raise DataError(
            f"{where}: the estimator stopped ({type(error).__name__}: {said}). Check its settings "
            "and its columns, or use another estimator."
        ) from error


class _Listener:
    """Hears the warnings of several threads, which `warnings.catch_warnings` alone would mix up.

    The first to listen changes the filters, and the last to leave puts them back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: dict[int, list[str]] = {}
        self._outer = warnings.catch_warnings()

    @contextmanager
    def __call__(self) -> Iterator[list[str]]:
        """Give the list in which the warnings of this thread are gathered as text."""
        mine: list[str] = []
        me = threading.get_ident()
        with self._lock:
            if not self._heard:
                self._outer = warnings.catch_warnings()
                self._outer.__enter__()
                warnings.simplefilter("always")
                warnings.simplefilter("ignore", DeprecationWarning)  # not for who only uses it
                warnings.simplefilter("ignore", PendingDeprecationWarning)
                warnings.showwarning = self._show
            self._heard[me] = mine
        try:
            yield mine
        finally:
            with self._lock:
                del self._heard[me]
                if not self._heard:
                    self._outer.__exit__(None, None, None)

    def _show(self, message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
        text = textwrap.shorten(str(message), 200, placeholder=" ...")
        with self._lock:
            # a thread that does not listen was started by an estimator: one that listens gets it
            lists = list(self._heard.values())
            for heard in [self._heard.get(threading.get_ident(), lists[0])] if lists else []:
                heard.append(f"{category.__name__}: {text}")


listening = _Listener()
