"""From rates of groups and margins to the figures of ``defs`` and of the replicate tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import SmallGroupWarning, warn
from cfair.estimators.disparity import disparities
from cfair.faircfint.labels import figure_names, margins, pasted
from cfair.frame import show_some
from cfair.groups import Groups

Array = NDArray[np.float64]

#: The rates of small groups, by Bayes' rule.
SMALL: tuple[str, str] = ("cfpr_small", "cfnr_small")
NAMES = {
    "fpr": "observed FPR",
    "fnr": "observed FNR",
    "cfpr": "cFPR",
    "cfnr": "cFNR",
    "cfpr_small": "cFPR of small groups",
    "cfnr_small": "cFNR of small groups",
}


def summaries(rates: Array, *, compat: bool, small: bool = False) -> tuple[Array, Array, Array]:
    """Average, maximum and variance of the absolute differences between groups.

    Parameters
    ----------
    rates : (R, K) array
    compat : bool
        As the R package: rates of exactly 0 or 1 are left out; where pairs are left but none is
        defined, the maximum is minus infinity; of small groups one undefined rate makes all three
        undefined.
    small : bool, default False

    Returns
    -------
    average, maximum, variance : (R,) arrays

    Examples
    --------
    >>> import numpy as np
    >>> nothing = np.array([[np.nan, 0.2, np.nan], [0.0, 0.2, 1.0], [0.0, 0.2, 0.3]])
    >>> [x.round(3).tolist() for x in summaries(nothing, compat=True)]
    [[nan, nan, 0.1], [-inf, nan, 0.1], [nan, nan, nan]]
    """
    average, maximum, variance = disparities(rates, drop_boundary=compat)
    if not compat:
        return average, maximum, variance
    undefined = np.isnan(rates)
    if small:
        broken = undefined.any(axis=-1)
        parts = (np.where(broken, np.nan, part) for part in (average, maximum, variance))
        average, maximum, variance = parts
        return average, maximum, variance
    kept = np.sum((rates != 0) & (rates != 1), axis=-1)  # undefined ones are
    nothing = (kept >= 2) & (np.sum(undefined, axis=-1) > kept - 2)
    return average, np.where(nothing, -np.inf, maximum), variance


def figure_table(rates: Mapping[str, Array], groups: Groups, *, compat: bool) -> pd.DataFrame:
    """All figures of estimates or replicates, by their R names.

    Parameters
    ----------
    rates : mapping of str to (R, T) array
        ``fpr, fnr, cfpr, cfnr``, perhaps ``cfpr_small, cfnr_small``, of groups, margins, all.
    groups : Groups
    compat : bool

    Returns
    -------
    pandas.DataFrame
    """
    K = groups.n_groups
    M = len(groups.margins)
    small = SMALL[0] in rates
    blocks = [rates[metric][:, :K] for metric in ("fpr", "fnr", "cfpr", "cfnr")]
    blocks += [rates[metric][:, K : K + M] for metric in ("cfpr", "cfnr")]
    for metric in ("cfnr", "cfpr"):
        blocks.append(np.column_stack(summaries(rates[metric][:, :K], compat=compat)))
    if small:
        blocks += [rates[metric][:, :K] for metric in SMALL]
        for metric in SMALL[::-1]:
            of_three = summaries(rates[metric][:, :K], compat=compat, small=True)
            blocks.append(np.column_stack(of_three))
    names = figure_names(group_names(groups, compat=compat), margins(groups), small)
    return pd.DataFrame(np.hstack(blocks), columns=pd.Index(names))


def group_names(groups: Groups, *, compat: bool) -> tuple[str, ...]:
    """Names of the groups: pasted labels; without `compat` those that collide are kept apart.

    Parameters
    ----------
    groups : Groups
    compat : bool

    Returns
    -------
    tuple of str
    """
    names = pasted(groups)
    return groups.names if not compat and len(set(names)) < len(names) else names


def warn_of_boundary(rates: Mapping[str, Array], groups: Groups) -> list[str]:
    """Warn of rates of exactly 0 or 1, which the summaries leave out.

    Parameters
    ----------
    rates : mapping of str to (1, T) array
    groups : Groups

    Returns
    -------
    list of str
        The same as notes.
    """
    notes = []
    K, names = groups.n_groups, pasted(groups)
    for metric, values in rates.items():
        of_groups = values[0, :K]
        at = np.flatnonzero((of_groups == 0) | (of_groups == 1))
        if len(at):
            left_out = metric not in ("fpr", "fnr")
            notes.append(
                f"{NAMES[metric]} is exactly 0 or 1 in "
                f"{show_some([f'{names[k]} ({of_groups[k]:g})' for k in at], 6)}"
                + ("; the summaries leave it out (compat=True)" if left_out else "")
            )
            warn(f"{notes[-1]}.", SmallGroupWarning)
    return notes


def boundary_note(rates: Mapping[str, Array], groups: Groups, what: str) -> list[str]:
    """Say in how many replicates some rate is 0 or 1, or undefined; warn of it once.

    Parameters
    ----------
    rates : mapping of str to (R, T) array
    groups : Groups
    what : str
        Kind of replicates.

    Returns
    -------
    list of str
    """
    K = groups.n_groups
    found = np.hstack([v[:, :K] for m, v in rates.items() if m not in ("fpr", "fnr")])
    boundary = int(((found == 0) | (found == 1)).any(axis=1).sum())
    undefined = int(np.isnan(found).any(axis=1).sum())
    notes = []
    if boundary:
        notes.append(
            f"{what}: in {boundary} of {len(found)} replicates a counterfactual rate is exactly 0 "
            "or 1, and the summaries leave it out (compat=True)"
        )
    if undefined:
        notes.append(f"{what}: in {undefined} of {len(found)} replicates a rate is undefined")
    for note in notes:
        warn(f"{note}.", SmallGroupWarning)
    return notes
