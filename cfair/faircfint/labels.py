"""Labels of attributes and names of figures as the R package writes and sorts them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cfair.errors import DataError
from cfair.frame import show_some
from cfair.groups import Groups, categorical_of_codes, factor, shown_levels

#: Signs before digits and letters, in the order of the Unicode root collation.
_SIGNS = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$"


def collation_key(text: str) -> tuple[Any, ...]:
    """Key that sorts text as R does with ICU: a, A, b, B; signs before digits before letters.

    Parameters
    ----------
    text : str

    Returns
    -------
    tuple

    Examples
    --------
    >>> sorted(["B", "b", "10", "9", "A", "a", "100", "a b", "ab"], key=collation_key)
    ['10', '100', '9', 'a', 'A', 'a b', 'ab', 'b', 'B']
    """
    letters: list[tuple[int, str]] = []
    accents: list[str] = []
    upper: list[bool] = []
    for sign in unicodedata.normalize("NFD", text):
        if unicodedata.combining(sign):
            accents[-1:] = [(accents[-1] if accents else "") + sign]
            continue
        letters.append(_class_of(sign))
        accents.append("")
        upper.append(sign.isupper())
    return letters, accents, upper, text


def _class_of(sign: str) -> tuple[int, str]:
    if sign.isspace():
        return 0, sign
    if sign in _SIGNS:
        return 1, f"{_SIGNS.index(sign):02d}"
    if sign.isalpha():
        return 4, sign.casefold()
    return (3 if sign.isdigit() else 2), sign


def as_r_factor(series: pd.Series) -> pd.Series:
    """A column as text, its levels in R's order; an order of the user is not kept.

    Parameters
    ----------
    series : pandas.Series
        Without missing values.

    Returns
    -------
    pandas.Series
        Categorical, with levels that occur.

    Raises
    ------
    DataError
        If two values are the same as text.

    Examples
    --------
    >>> as_r_factor(pd.Series([9, 10, 100])).cat.categories.tolist()
    ['10', '100', '9']
    """
    found = factor(series)
    logical = {True: "TRUE", False: "FALSE"}
    plain = shown_levels(found.levels)
    texts = [
        logical[level] if isinstance(level, bool) else plain[i]
        for i, level in enumerate(found.levels)
    ]
    if len(set(texts)) < len(texts) or (
        len({type(level) for level in found.levels}) > 1
        and len({str(level) for level in found.levels}) < len(found.levels)
    ):
        raise DataError(
            f"column {series.name!r} holds values that are the same as text "
            f"({show_some([repr(v) for v in found.levels])}), which the R package would merge. "
            "Give them one type."
        )
    order = sorted(range(len(texts)), key=lambda i: collation_key(texts[i]))
    rank = np.argsort(order)
    values = categorical_of_codes(rank[found.codes], [texts[i] for i in order])
    return pd.Series(values, index=series.index, name=series.name)


def pasted(groups: Groups) -> tuple[str, ...]:
    """Names of the groups: their labels one after the other, nothing in between.

    Parameters
    ----------
    groups : Groups

    Returns
    -------
    tuple of str
        In the order of the groups. Two groups can have the same name.
    """
    return tuple(
        "".join(names[i] for names, i in zip(groups.level_names, at, strict=True))
        for at in groups.level_codes.T
    )


def margins(groups: Groups) -> tuple[str, ...]:
    """Names of single levels, such as ``A1_F``, attribute by attribute.

    Parameters
    ----------
    groups : Groups

    Returns
    -------
    tuple of str
    """
    return tuple(
        f"{attribute}_{level}"
        for attribute, levels in zip(groups.attributes, groups.level_names, strict=True)
        for level in levels
    )


def figure_names(groups: Sequence[str], single: Iterable[str], small: bool) -> list[str]:
    """Names of all figures, in the order of ``defs``.

    Parameters
    ----------
    groups : sequence of str
    single : iterable of str
        From `margins`.
    small : bool
        Whether there are estimates for small groups.

    Returns
    -------
    list of str

    Examples
    --------
    >>> figure_names(["F1"], ["A1_F"], small=False)[:6]
    ['fpr_F1', 'fnr_F1', 'cfpr_F1', 'cfnr_F1', 'cfpr_marg_A1_F', 'cfnr_marg_A1_F']
    """
    single = list(single)
    names = [f"{metric}_{g}" for metric in ("fpr", "fnr", "cfpr", "cfnr") for g in groups]
    names += [f"{metric}_marg_{level}" for metric in ("cfpr", "cfnr") for level in single]
    names += [f"{statistic}_{sign}" for sign in ("neg", "pos") for statistic in SUMMARIES]
    if small:
        names += [f"{metric}_small_{g}" for metric in ("cfpr", "cfnr") for g in groups]
        names += [f"{statistic}_{sign}_small" for sign in ("neg", "pos") for statistic in SUMMARIES]
    return names


#: The three summaries by their R names, in the order of `cfair.estimators.disparities`.
SUMMARIES: tuple[str, str, str] = ("avg", "max", "var")
