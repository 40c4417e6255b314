"""What metrics by group share: label columns, one number for unequal values, who is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import CfairWarning, warn
from cfair.frame import show_some
from cfair.groups import Groups
from cfair.inference.performance import ScoredRows

Array = NDArray[np.float64]

KINDS = ("difference", "ratio")
#: Said after what is missing if rows are there, but none that carries weight.
WEIGHTLESS = " of weight above 0"


def labelled(
    groups: Groups, columns: Mapping[str, Any] | pd.DataFrame, by: str = "groups"
) -> pd.DataFrame:
    """A frame by group, with the names of the groups and a column per attribute in front.

    Parameters
    ----------
    groups : Groups
    columns : mapping of str to (K,) array-like, or data frame
    by : {"groups", "attributes"}, default "groups"
        By attributes there is a row per level, with the columns ``attribute`` and ``level``.

    Returns
    -------
    pandas.DataFrame
        An attribute that is called like another column, say ``n``, becomes ``n (attribute)``, or
        ``n (attribute 2)`` if there is one of that name as well.

    Examples
    --------
    >>> from cfair.groups import make_groups
    >>> import pandas as pd
    >>> labelled(make_groups(pd.DataFrame({"n": ["a", "b"]})), {"n": [5, 2]})
      group n (attribute)  n
    0     a             a  5
    1     b             b  2
    """
    table = pd.DataFrame(dict(columns))
    if by == "attributes":
        levels = pd.Series([level for _, level in groups.margins], dtype=object)
        names = [name for name, _ in groups.margins]
        return pd.concat([pd.DataFrame({"attribute": names, "level": levels}), table], axis=1)
    labels = groups.label_frame()
    taken = {"group", *table}
    used = taken | set(labels)
    headers: list[str] = []
    for name in map(str, labels):
        if name in taken:
            tries = (f"{name} (attribute{f' {k}' * (k > 1)})" for k in range(1, len(used) + 2))
            name = next(new for new in tries if new not in used)
            used.add(name)
        headers.append(name)
    labels.columns = headers
    labels.insert(0, "group", list(groups.names))
    return pd.concat([labels, table], axis=1)


def spread(values: Array, kind: str, centre: float | None = None) -> float:
    """One number for how unequal values are; NaN ones are left out.

    Parameters
    ----------
    values : (K,) array
        Non-negative, NaN where undefined.
    kind : {"difference", "ratio"}
        Largest less smallest, or smallest over largest.
    centre : float, optional
        Compare each value with this one instead: the largest distance, or the smallest ratio, each
        turned over if it is above 1.

    Returns
    -------
    float
        NaN if fewer than two values are defined, the centre is NaN, or a ratio would be of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> rates = np.array([0.25, 0.5, np.nan])
    >>> spread(rates, "difference"), spread(rates, "ratio"), spread(rates, "ratio", 0.25)
    (0.25, 0.5, 0.5)
    """
    defined = values[~np.isnan(values)]
    if len(defined) < 2 or (centre is not None and np.isnan(centre)):
        return float("nan")
    if centre is None:
        low, high = defined.min(keepdims=True), defined.max(keepdims=True)
    else:
        low, high = np.minimum(defined, centre), np.maximum(defined, centre)
    if kind == "difference":
        return float((high - low).max())
    some = high > 0
    return float((low[some] / high[some]).min()) if some.any() else float("nan")


def why_nan(values: Array, centre: float | None = None) -> str:
    """Say why `spread` gives NaN for these values.

    Parameters
    ----------
    values : (K,) array
    centre : float, optional

    Returns
    -------
    str
    """
    if np.count_nonzero(~np.isnan(values)) < 2:
        return "fewer than two groups have one"
    if centre is not None and np.isnan(centre):
        return "what the groups are compared with has none"
    return "all are 0, and have no ratio"


def lacking(rows: ScoredRows, *outcomes: int) -> list[str]:
    """What each group lacks: rows at all, or rows with one of these outcomes; empty if nothing.

    Parameters
    ----------
    rows : ScoredRows
    *outcomes : int
        1 for events, 0 for non-events.

    Returns
    -------
    list of K str
    """
    found = [""] * rows.sizes[0]
    wanted = [("rows", np.ones(len(rows.y), dtype=bool))]
    wanted += [(("non-events", "events")[y], rows.y == y) for y in outcomes]
    for what, among in wanted:
        there, carry = rows.total(0, among.astype(np.float64)), rows.count(0, among)
        for k in np.flatnonzero(carry == 0):
            found[k] = found[k] or f"no {what}{WEIGHTLESS * bool(there[k])}"
    return found


def place_of(groups: Groups, to: Any) -> int | None:
    """What groups are compared with: None for each other, -1 for all rows, or a group's code.

    Parameters
    ----------
    groups : Groups
    to : label, "groups" or "overall"

    Returns
    -------
    int or None
    """
    if isinstance(to, str) and to in ("groups", "overall"):
        return None if to == "groups" else -1
    return groups.index_of(to)


def show_left_out(left_out: Mapping[str, str]) -> str:
    """Groups that a figure leaves out, with the reasons, in one line.

    Parameters
    ----------
    left_out : mapping of str to str

    Returns
    -------
    str
    """
    return show_some([f"{name} ({why})" for name, why in left_out.items()], 10)


def warn_left_out(what: str, left_out: Mapping[str, str], why: str = "") -> None:
    """Warn of groups that a number leaves out, and of a number that is NaN.

    Parameters
    ----------
    what : str
        What could not be computed, such as ``tpr``.
    left_out : mapping of str to str
        Groups and the reasons.
    why : str, optional
        Why the number is NaN, if it is.
    """
    n = len(left_out)
    parts = [f"{n} group{'s' * (n > 1)} left out of {what}: {show_left_out(left_out)}."] * (n > 0)
    parts += [f"The result is NaN ({what}): {why}."] * bool(why)
    if parts:
        warn(" ".join(parts), CfairWarning)
