"""Where the numbers come from: a fingerprint of the data, and versions of what computed them."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

from cfair._version import __version__
from cfair.cohort import Cohort

#: Packages whose version can move a number.
PACKAGES: tuple[str, ...] = ("numpy", "pandas", "scipy", "statsmodels", "patsy")


def versions(*, learners: bool = False) -> list[tuple[str, str]]:
    """Names and versions of what computed the results.

    Parameters
    ----------
    learners : bool, default False
        Whether scikit-learn took part.

    Returns
    -------
    list of (str, str)
    """
    found = [("cfair", __version__), ("Python", platform.python_version())]
    for name in (*PACKAGES, *(["scikit-learn"] if learners else [])):
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            found.append((name, "not installed"))
    return found


def fingerprint(cohort: Cohort) -> str:
    """SHA-256 of the rows and columns that an analysis used.

    Of the names and values, in the order of the rows used, of outcome, call, treatment, score,
    attributes, columns of formulas, clusters and weights. Numbers enter as little-endian 64-bit
    floats; attributes and text as their distinct values and the position of each row's among them.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    sha = hashlib.sha256()
    columns: dict[str, Any] = {
        f"outcome {cohort.outcome_name}={cohort.outcome_event!r}": cohort.y,
        f"call {cohort.rule}": cohort.s,
        f"treatment {cohort.treatment_name}={cohort.treatment_event!r}": cohort.d,
        f"score {cohort.score_name}": cohort.score,
        f"cluster {cohort.cluster_name}": cohort.cluster,
        f"weights {cohort.weights_name}": cohort.weights,
        "rows counted": cohort.repeats,
        "group names": np.array(cohort.groups.names, dtype=object),
        "group": cohort.groups.codes,
    }
    columns |= {f"column {name}": cohort.data[name] for name in sorted(map(str, cohort.data))}
    for name, values in columns.items():
        if values is not None:
            _add(sha, name.encode("utf-8", "surrogatepass"))
            _add(sha, _bytes(values))
    return sha.hexdigest()


def _add(sha: Any, content: bytes) -> None:
    """Content after its length, so that no two sequences of contents are alike."""
    sha.update(len(content).to_bytes(8, "little"))
    sha.update(content)


def _bytes(values: Any) -> bytes:
    if isinstance(values, pd.Series):
        values = values.array
    if isinstance(values, pd.Categorical):
        levels = "\x1f".join(map(str, values.categories)).encode("utf-8", "surrogatepass")
        return levels + b"\x1e" + np.asarray(values.codes).astype("<i8").tobytes()
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array.astype("<f8").tobytes()
    return "\x1f".join(map(str, array)).encode("utf-8", "surrogatepass")
