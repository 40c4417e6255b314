"""Intervals from the replicates of the rescaled bootstrap, and u-values from those of the null."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.inference.bootstrap import MIN_VALID, BootstrapInterval, bootstrap_interval
from cfair.inference.uvalue import u_values
from cfair.options import is_number

Array = NDArray[np.float64]


def get_bs_rescaled(
    boot_out: pd.DataFrame, defs: pd.Series, sampsize: int, m_factor: float = 0.75
) -> pd.DataFrame:
    """Replicates on the scale of the root of their size: ``sqrt(m) (replicate - estimate)``.

    Parameters
    ----------
    boot_out : pandas.DataFrame
        Bootstrap replicates, a column per figure.
    defs : pandas.Series
        Estimates.
    sampsize : int
        Rows n of the data.
    m_factor : float, default 0.75
        m is n^m_factor, not rounded down here; 1 for replicates of n rows.

    Returns
    -------
    pandas.DataFrame
        Of the figures that are in `defs`.

    Raises
    ------
    DataError
        If two figures have the same name, or the size is none.

    Examples
    --------
    >>> import pandas as pd
    >>> boot = pd.DataFrame({"avg_neg": [0.2, 0.4]})
    >>> get_bs_rescaled(boot, pd.Series({"avg_neg": 0.3}), 10_000, 0.5)["avg_neg"].round(9).tolist()
    [-1.0, 1.0]
    """
    size = _size(sampsize, m_factor)
    names = [name for name in boot_out.columns if name in defs.index]
    if not boot_out.columns.is_unique or not defs.index.is_unique:
        raise DataError(
            "two figures have the same name, since labels of groups are the same when pasted. "
            "Rename levels of A1 or A2."
        )
    return (boot_out[names] - defs[names]) * np.sqrt(size)


def ci_norm(
    bs_rescaled: pd.DataFrame, defs: pd.Series, sampsize: int, alpha: float = 0.05
) -> pd.DataFrame:
    """Normal intervals ``est -+ z sd(rescaled) / sqrt(n)``.

    Parameters
    ----------
    bs_rescaled : pandas.DataFrame
        From `get_bs_rescaled`.
    defs : pandas.Series
    sampsize : int
        Rows n of the data.
    alpha : float, default 0.05

    Returns
    -------
    pandas.DataFrame
        Index the figures; ``point_est, var_est, se_est, low, high, note``, where ``var_est`` is the
        variance of the rescaled replicates. NaN where fewer than 40 replicates are defined; no
        limits where all are equal but for rounding. ``note`` says which.

    Raises
    ------
    DataError, ValueError

    Examples
    --------
    >>> import pandas as pd
    >>> boot, defs = pd.DataFrame({"avg_neg": [0.3] * 60}), pd.Series({"avg_neg": 0.2})
    >>> ci_norm(get_bs_rescaled(boot, defs, 500), defs, 500).loc["avg_neg", "note"]
    'all 60 replicates are equal'
    """
    size = _size(sampsize, 1.0)
    table, scaled = _on_the_scale(bs_rescaled, defs, "normal", alpha, size)
    table.insert(1, "var_est", scaled.se**2 * size)
    table.insert(2, "se_est", scaled.se)
    return table


def ci_tint(
    bs_rescaled: pd.DataFrame,
    defs: pd.Series,
    sampsize: int,
    alpha: float = 0.05,
    m_factor: float = 0.75,
) -> pd.DataFrame:
    """What the R package calls a t-interval: the basic interval at the scale of m rows.

    Its standard error cancels, which leaves ``[2 est - q_hi, 2 est - q_lo]`` of the replicates: too
    wide by sqrt(n/m). `cfair.faircfint` says more.

    Parameters
    ----------
    bs_rescaled : pandas.DataFrame
        From `get_bs_rescaled`, with the same `sampsize` and `m_factor`.
    defs : pandas.Series
    sampsize : int
    alpha : float, default 0.05
    m_factor : float, default 0.75

    Returns
    -------
    pandas.DataFrame
        Index the figures; ``point_est, low, high, note``. NaN where fewer than 40 replicates are
        defined, or all are equal but for rounding; ``note`` says which.

    Raises
    ------
    DataError, ValueError
    """
    return _on_the_scale(bs_rescaled, defs, "basic", alpha, _size(sampsize, m_factor))[0]


def ci_trunc(intervals: pd.DataFrame) -> pd.DataFrame:
    """Intervals cut to [0, 1].

    Parameters
    ----------
    intervals : pandas.DataFrame
        With ``low`` and ``high``.

    Returns
    -------
    pandas.DataFrame
        The same with ``low_trunc`` and ``high_trunc``.
    """
    cut = {f"{end}_trunc": intervals[end].clip(0, 1) for end in ("low", "high")}
    return intervals.assign(**cut)


def _size(sampsize: Any, m_factor: Any) -> float:
    whole = isinstance(sampsize, (int, np.integer)) and not isinstance(sampsize, bool)
    if not whole or sampsize < 2:
        raise DataError(f"sampsize must be the number of rows, not {sampsize!r}.")
    return float(sampsize) ** check_m_factor(m_factor)


def check_m_factor(m_factor: Any) -> float:
    """Check the user's exponent of the size of a replicate."""
    if not is_number(m_factor) or not 0 < m_factor <= 1:
        raise DataError(f"m_factor must be above 0 and at most 1, not {m_factor!r}.")
    return float(m_factor)


def _on_the_scale(
    bs_rescaled: pd.DataFrame, defs: pd.Series, kind: str, alpha: float, size: float
) -> tuple[pd.DataFrame, BootstrapInterval]:
    """Estimates with their limits, and the interval, at the scale of so many rows."""
    check_alpha(alpha)
    draws = bs_rescaled.to_numpy(dtype=np.float64)
    draws = np.where(np.isfinite(draws), draws, np.nan)  # a maximum of no pair is undefined
    estimate = defs[bs_rescaled.columns].to_numpy(dtype=np.float64)
    # on the scale of the estimate, where equal replicates are equal but for rounding
    scaled = bootstrap_interval(estimate, estimate + draws / np.sqrt(size), kind, 1 - alpha)
    columns = {
        "point_est": estimate,
        "low": scaled.low,
        "high": scaled.high,
        "note": _reasons(estimate, scaled, len(draws)),
    }
    return pd.DataFrame(columns, index=bs_rescaled.columns), scaled


def _reasons(estimate: Array, found: BootstrapInterval, n: int) -> list[str]:
    """Why there is no interval; empty where there is one."""

    def reason(value: float, low: float, n_valid: int) -> str:
        if np.isfinite(low):
            return ""
        if not np.isfinite(value):
            return "the estimate is undefined"
        if n_valid < n and n_valid < MIN_VALID:
            return f"defined in {n_valid} of {n} replicates, an interval takes {MIN_VALID}"
        if n < MIN_VALID:
            return too_few(n)
        return f"all {n_valid} {'defined ' * (n_valid < n)}replicates are equal"

    return [reason(*one) for one in zip(estimate, found.low, found.n_valid.tolist(), strict=True)]


def too_few(n: int) -> str:
    """What there is to say of so few replicates."""
    return f"{n} replicate{'s' * (n != 1)}, an interval takes at least {MIN_VALID}"


def check_alpha(alpha: Any) -> float:
    """Check the user's alpha, of intervals of level 1 - alpha."""
    if not is_number(alpha) or not 0 < alpha < 1:
        raise ValueError(
            f"alpha must be between 0 and 1, such as 0.05 for 95% intervals, not {alpha!r}."
        )
    return float(alpha)


def u_table(defs: pd.Series, table_null: pd.DataFrame, delta: float, *, as_r: bool) -> pd.DataFrame:
    """Share of null replicates that each summary exceeds by more than delta.

    Columns ``u_value, n_valid, delta, shown``. With `as_r` a share of 0 is shown as ``<0.001``;
    otherwise the variance takes the square of delta.
    """
    names = [str(n) for n in defs.index if str(n).split("_")[0] in ("avg", "max", "var")]
    squared = [name.startswith("var") and not as_r for name in names]
    deltas = np.where(squared, delta**2, delta)
    with np.errstate(invalid="ignore"):  # a maximum of no pair is minus infinity
        share = u_values(
            defs[names].to_numpy(dtype=np.float64),
            table_null[names].to_numpy(dtype=np.float64),
            deltas,
        )

    def shown(value: float) -> str:
        if np.isnan(value):
            return "undefined"
        return "<0.001" if as_r and round(value, 3) == 0 else f"{round(value, 3):g}"

    columns = {"u_value": share.value, "n_valid": share.n_valid, "delta": deltas}
    texts = [shown(value) for value in share.value]
    return pd.DataFrame({**columns, "shown": texts}, index=pd.Index(names))
