"""How strongly two classifications go together, whatever the number of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, chndtrinc

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Association:
    """Cramer's V of groups and a binary outcome.

    Its square is the share of the outcome's variance that group explains. A p-value says how sure
    it is that there is any association, and goes to zero with the number of rows however weak it
    is; V does not. Nor does it grow with the number of small groups, as the largest difference
    between two of them does.

    Attributes
    ----------
    v : float
        0 to 1, corrected for what chance alone adds; NaN where there is nothing to compare.
    low, high : float
        Interval.
    p_value : float
        Of the chi-square test of independence.
    """

    v: float
    low: float
    high: float
    p_value: float


def cramers_v(table: Array, n: float, level: float = 0.95) -> Association:
    """Association of the rows and the two columns of a table.

    Parameters
    ----------
    table : (K, 2) array
        Rows, or their weights, by group and outcome.
    n : float
        Effective number of rows: with weights Kish's, else the sum of the table.
    level : float, default 0.95

    Returns
    -------
    Association

    Notes
    -----
    The chi-square statistic has the mean ``K - 1 + n V^2``: the first part is taken off. Limits are
    those of the noncentrality of its distribution.

    References
    ----------
    Bergsma W (2013). A bias-correction for Cramer's V and Tschuprow's T. Journal of the Korean
    Statistical Society 42, 323-328. Smithson M (2003). Confidence Intervals. Sage, chapter 4.

    Examples
    --------
    >>> import numpy as np
    >>> found = cramers_v(np.array([[60.0, 40.0], [40.0, 60.0]]), 200)
    >>> round(found.v, 3), round(found.low, 3), round(found.high, 3), round(found.p_value, 4)
    (0.187, 0.061, 0.339, 0.0047)
    """
    table = table[table.sum(axis=1) > 0]
    columns = table.sum(axis=0)
    if len(table) < 2 or not (columns > 0).all():
        return Association(np.nan, np.nan, np.nan, np.nan)
    share = table / table.sum()
    expected = np.outer(share.sum(axis=1), share.sum(axis=0))
    df, chi2 = len(table) - 1, n * float(np.sum((share - expected) ** 2 / expected))
    outside = (1 - level) / 2
    low, high = (float(chndtrinc(chi2, df, p)) for p in (1 - outside, outside))
    v, low, high = (min(1.0, max(0.0, x / n)) ** 0.5 for x in (chi2 - df, low, high))
    return Association(v, low, high, float(chdtrc(df, chi2)))
