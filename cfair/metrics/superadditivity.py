"""Two attributes at once: four cells, the flag "superadditive", and the interaction contrast.

With r11 the rate where both attributes are at their level, r10 and r01 where one is, r00 where
neither is, two questions are asked of one table. Fair Code's flag: is the gap of both to neither
larger than the two marginal gaps together? And the interaction contrast r11 - r10 - r01 + r00: do
the two effects add up? Only the second has an interval and a p-value; the flag compares point
estimates, mixes in how the attributes go together, and fires on noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.columns import check_finite
from cfair.errors import DataError
from cfair.frame import as_table, is_name, show_some
from cfair.groups import Groups, factor
from cfair.inference.intervals import (
    NORMAL,
    Limits,
    boundary_se,
    mover_combination,
    mover_combination_p_value,
    student_limits,
    wilson_limits,
)
from cfair.metrics.reading import complete_rows, read_features
from cfair.options import check_level

Array = NDArray[np.float64]

#: The four cells: both attributes at their level, one of them, none.
CELLS: tuple[str, ...] = ("both", "a_only", "b_only", "neither")
#: The same in the names of columns.
CELL_NAMES: tuple[str, ...] = ("11", "10", "01", "00")
#: Coefficients of the interaction contrast in the order of `CELLS`.
CONTRAST = np.array([1.0, -1.0, -1.0, 1.0])
#: By how much a gap has to exceed a sum of gaps, so that rounding errors do not decide.
_TIE = 1e-12
#: How a reference that is all other levels together is called.
REST = "rest"


def superadditive(gap_both: Any, gap_a: Any, gap_b: Any) -> NDArray[np.bool_]:
    """Fair Code's flag: whether the gap of both to neither exceeds the two marginal gaps together.

    It is no test: three point estimates are compared, and a gap that is larger by a hair counts.
    In four cells of equal size with marginal gaps of one sign the two sides are equal by algebra; a
    plain comparison then goes by rounding errors and fires in one sample of seven without any gaps.
    A difference within 1e-12 is a tie here, and does not fire.

    Parameters
    ----------
    gap_both : (...) array
        Rate of the rows with both levels less that of the rows with neither.
    gap_a, gap_b : (...) arrays
        Marginal gaps of the two attributes.

    Returns
    -------
    (...) array of bool
        False where a gap is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> superadditive(np.array([-0.21, 0.1]), np.array([-0.17, 0.1]), np.array([-0.03, 0.1]))
    array([ True, False])
    """
    flag: NDArray[np.bool_] = np.abs(gap_both) > np.abs(gap_a) + np.abs(gap_b) + _TIE
    return flag


def interaction_contrast(rates: Array) -> Array:
    """Additive interaction r11 - r10 - r01 + r00: what both add beyond the sum of each.

    Parameters
    ----------
    rates : (..., 4) array
        In the order of `CELLS`.

    Returns
    -------
    (...) array

    References
    ----------
    Rothman KJ, Greenland S, Walker AM (1980). Concepts of interaction. American Journal of
    Epidemiology 112, 467-470.

    Examples
    --------
    >>> import numpy as np
    >>> round(float(interaction_contrast(np.array([0.4, 0.2, 0.2, 0.1]))), 3)
    0.1
    """
    result: Array = rates @ CONTRAST
    return result


def interaction_interval(rates: Array, sizes: Array, level: float = 0.95) -> tuple[Array, Array]:
    """Interval of the interaction contrast of four independent proportions.

    MOVER from the four Wilson intervals; in cells of a dozen rows it covers where a Wald interval
    does not (validation/interaction.md).

    Parameters
    ----------
    rates : (..., 4) array
    sizes : (4,) or (..., 4) array
        Rows behind the rates. An empty cell gives NaN, a single row an interval of (0, 1).
    level : float, default 0.95

    Returns
    -------
    low, high : (...) arrays

    References
    ----------
    Zou GY, Huang W, Zhang X (2009). A note on confidence interval estimation for a linear function
    of binomial proportions. Computational Statistics & Data Analysis 53, 1080-1085.

    Examples
    --------
    >>> import numpy as np
    >>> rates = np.array([0.375, 0.469, 0.629, 0.589])
    >>> limits = interaction_interval(rates, np.array([40, 64, 35, 90]))
    >>> [round(float(limit), 3) for limit in limits]
    [-0.384, 0.138]
    """
    limits = wilson_limits(rates, np.asarray(sizes, dtype=np.float64), max_df=NORMAL)
    tail = np.full((*np.shape(rates)[:-1], 1), (1 - check_level(level)) / 2)
    return mover_combination(rates, *limits(tail), CONTRAST)


def disagreement(
    flag: Any, gap_both: Array, contrast: Array, p_value: Array, level: float = 0.95
) -> NDArray[Any]:
    """How flag and contrast disagree, if they do.

    Parameters
    ----------
    flag : (...) array of bool
    gap_both, contrast, p_value : (...) arrays
    level : float, default 0.95
        The contrast is told from 0 if its p-value is below 1 - level.

    Returns
    -------
    (...) array of str
        ``"flag only"``: it fires, and the contrast cannot be told from 0. ``"opposite"``: it fires,
        and the effects add up to more than the gap of both. ``"contrast only"``: the gap of both is
        larger than the effects add up to, and no flag shows it. Empty where they agree, or one of
        them is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> disagreement(np.array([True]), np.array([0.3]), np.array([-0.1]), np.array([0.001])).item()
    'opposite'
    """
    flag = np.asarray(flag, dtype=bool)
    told = p_value < 1 - level  # False where undefined
    same = np.sign(contrast) == np.sign(gap_both)
    known = ~(np.isnan(p_value) | np.isnan(gap_both))
    return np.select(
        [known & flag & ~told, known & flag & told & ~same, known & ~flag & told & same],
        ["flag only", "opposite", "contrast only"],
        "",
    )


def in_words(kind: str, contrast: str = "", adjusted: str = "") -> str:
    """Say how flag and contrast disagree.

    Parameters
    ----------
    kind : str
        From `disagreement`.
    contrast : str, optional
        The contrast with its interval, as printed; without it, what holds of several.
    adjusted : str, optional
        Said of a contrast whose own interval leaves out 0, but not its adjusted p-value.

    Returns
    -------
    str
    """
    flag, tail = {
        "flag only": (
            "flag fires",
            f"not told from 0{adjusted}, so the two effects may simply add up",
        ),
        "opposite": ("flag fires", "together they do less than the two effects add up to"),
        "contrast only": ("no flag", "the two effects do not add up"),
    }.get(kind, ("", ""))
    if not flag:
        return ""
    if contrast:
        return f"{flag}, but the contrast is {contrast}: {tail}"
    return f"{flag}; {'the contrast is ' * tail.startswith('not')}{tail}"


def additivity(low: Array, high: Array) -> NDArray[Any]:
    """What an interval of the contrast says of the two effects together.

    Parameters
    ----------
    low, high : (...) arrays

    Returns
    -------
    (...) array of str
        ``"more than additive"``, ``"less than additive"``, or empty where it has 0 or is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> additivity(np.array([0.1, -0.3, -0.1]), np.array([0.3, -0.1, 0.1])).tolist()
    ['more than additive', 'less than additive', '']
    """
    return np.select([low > 0, high < 0], ["more than additive", "less than additive"], "")


@dataclass(frozen=True, eq=False, repr=False)
class IntersectionalGap:
    """Four cells, their gaps, the flag and the contrast.

    Attributes
    ----------
    attributes, levels, references : tuple of two str
        Which attributes; the level that counts as 1; what it is compared with.
    cell_rates, cell_sizes : dict of str to float, int
        By ``both``, ``a_only``, ``b_only``, ``neither``. A rate is NaN in an empty cell.
    gap, gap_low, gap_high, gap_p_value : float
        Rate of both less that of neither, its interval (Newcombe's) and p-value.
    gap_a_alone, gap_b_alone : float
        Marginal gaps, each over both sides of the other attribute.
    superadditive : bool or None
        Fair Code's flag; None where a gap is undefined.
    contrast, se, ci_low, ci_high, p_value : float
        Interaction contrast. The p-value is the level at which the interval touches 0.
    ratio : float
        Multiplicative interaction r11 r00 / (r10 r01), the estimate only; NaN if a rate is 0.
    level : float
    n, n_left_out : int
        Rows in the four cells, and complete rows in none of them.
    dropped : int
        Rows with missing values that were left out.
    note : str
        Why something is undefined.
    """

    attributes: tuple[str, str]
    levels: tuple[str, str]
    references: tuple[str, str]
    cell_rates: dict[str, float]
    cell_sizes: dict[str, int]
    gap: float
    gap_low: float
    gap_high: float
    gap_p_value: float
    gap_a_alone: float
    gap_b_alone: float
    superadditive: bool | None
    contrast: float
    se: float
    ci_low: float
    ci_high: float
    p_value: float
    ratio: float
    level: float
    n: int
    n_left_out: int
    dropped: int
    note: str

    @property
    def verdict(self) -> str:
        """Flag and contrast in words."""
        shown = f"{self.contrast:.3f} [{self.ci_low:.3f}, {self.ci_high:.3f}]"
        if self.superadditive is None or np.isnan(self.p_value):
            return f"no verdict: {self.note}"
        flag, gap, contrast, p = map(
            np.array, (self.superadditive, self.gap, self.contrast, self.p_value)
        )
        kind = disagreement(flag, gap, contrast, p, self.level).item()
        told = "told from 0" if self.p_value < 1 - self.level else "not told from 0"
        fires = "flag fires" if self.superadditive else "no flag"
        return in_words(kind, shown) or f"{fires}, the contrast is {shown}: {told}"

    def to_frame(self) -> pd.DataFrame:
        """One row, with the columns of ``Audit.interaction``."""
        rates, sizes = self.cell_rates, self.cell_sizes
        row: dict[str, Any] = {}
        for k, which in enumerate("ab"):
            row[f"attribute_{which}"] = self.attributes[k]
            row[f"level_{which}"] = self.levels[k]
            row[f"reference_{which}"] = self.references[k]
        row.update({f"r{k}": rates[cell] for k, cell in zip(CELL_NAMES, CELLS, strict=True)})
        row.update({f"n{k}": sizes[cell] for k, cell in zip(CELL_NAMES, CELLS, strict=True)})
        row.update(gap_both=self.gap, gap_low=self.gap_low, gap_high=self.gap_high)
        row.update(gap_a=self.gap_a_alone, gap_b=self.gap_b_alone)
        row.update(superadditive=self.superadditive, contrast=self.contrast, se=self.se)
        row.update(ci_low=self.ci_low, ci_high=self.ci_high, p_value=self.p_value)
        row.update(ratio=self.ratio, note=self.note)
        return pd.DataFrame([row]).astype({"superadditive": "boolean"})

    def __str__(self) -> str:
        a, b = self.attributes
        names = ("both", f"{a} only", f"{b} only", "neither")
        width = max(len("both - neither"), *map(len, names), len(a) + 6, len(b) + 6)
        pairs = zip(self.attributes, self.levels, self.references, strict=True)
        lines = [f"{name}: {level} against {other}" for name, level, other in pairs]
        lines.append(f"{'cell':<{width}}    rate        n")
        for name, cell in zip(names, CELLS, strict=True):
            rate, size = self.cell_rates[cell], self.cell_sizes[cell]
            lines.append(f"{name:<{width}}  {rate:6.3f}  {size:>7,}")
        gap_limits = f"[{self.gap_low:.3f}, {self.gap_high:.3f}]"
        limits = f"[{self.ci_low:.3f}, {self.ci_high:.3f}]"
        lines += [
            f"{'both - neither':<{width}}  {self.gap:6.3f}  {gap_limits}",
            f"{a + ' alone':<{width}}  {self.gap_a_alone:6.3f}",
            f"{b + ' alone':<{width}}  {self.gap_b_alone:6.3f}",
            f"{'contrast':<{width}}  {self.contrast:6.3f}  {limits}  "
            f"({100 * self.level:g}% interval, p = {self.p_value:.3g})",
            self.verdict,
        ]
        out = [f"{self.n_left_out:,} rows in none of the four cells"] * (self.n_left_out > 0)
        out += [f"{self.dropped:,} rows with missing values left out"] * (self.dropped > 0)
        return "\n".join([*lines, *out, *([self.note] if self.note else [])])

    __repr__ = __str__


def intersectional_gap(
    outcome: Any,
    *,
    sensitive_features: Any,
    levels: Sequence[Any] | None = None,
    references: Sequence[Any] | None = None,
    data: Any = None,
    missing: str = "raise",
    level: float = 0.95,
) -> IntersectionalGap:
    """Gap of an intersection, the flag "superadditive", and whether two effects add up.

    Which side is at a disadvantage is not for this function to say: each attribute has a level that
    counts as 1 and a reference that counts as 0. Exchanging the two of one attribute turns the sign
    of the contrast; the flag may come or go.

    Rows count alike and as independent; `cfair.Audit.interaction` has weights, clusters, several
    metrics, attributes and levels at once, and adjusts for their number.

    Parameters
    ----------
    outcome : (n,) array-like or name
        Whose mean is compared: 0/1 or True/False, such as a call, an error, or a call among those
        with an event; or any real number. A name if `data` is given.
    sensitive_features : data frame, mapping of name to array-like, or two names
        Exactly two attributes. Masks, True on the side in question, will do.
    levels : (level of a, level of b), optional
        The levels in question. By default the second of two: True of a mask.
    references : (reference of a, reference of b), optional
        The levels they are compared with. By default all others together, as in Fair Code; with a
        reference, rows at other levels take no part, in the marginal gaps either.
    data : data frame, optional
        Table that `outcome` and `sensitive_features` are columns of.
    missing : {"raise", "drop", "level"}, default "raise"
    level : float, default 0.95
        Confidence level.

    Returns
    -------
    IntersectionalGap

    Raises
    ------
    DataError
        If the data do not fit, there are not two attributes, or no such level.

    Notes
    -----
    With a 0/1 outcome intervals are MOVER's from Wilson's limits of the four rates; with any other,
    from Student's limits of the four means.

    Fair Code's ``intersectional_report`` has the same point values under ``intersectional``,
    ``gap_a_alone``, ``gap_b_alone``, ``superadditive``, ``cell_rates`` and ``cell_sizes``. Its
    interval is a bootstrap percentile one, which in a cell of 12 rows at a rate of 0.1 covers 73%
    for a nominal 95%, and an empty cell gets p = 0 there, but NaN and a reason here.

    References
    ----------
    Rothman KJ, Greenland S, Walker AM (1980). Concepts of interaction. American Journal of
    Epidemiology 112, 467-470.

    Zou GY, Huang W, Zhang X (2009). A note on confidence interval estimation for a linear function
    of binomial proportions. Computational Statistics & Data Analysis 53, 1080-1085.

    Examples
    --------
    >>> import cfair
    >>> cohort = cfair.load_cohort()
    >>> flagged = (cohort["risk"] >= 0.5).astype(int)
    >>> gap = cfair.intersectional_gap(
    ...     flagged, sensitive_features=cohort[["sex", "race"]], levels=("F", "Black")
    ... )
    >>> round(gap.gap, 3), gap.superadditive, round(gap.contrast, 3)
    (0.146, False, 0.002)
    >>> gap.cell_sizes
    {'both': 719, 'a_only': 1951, 'b_only': 548, 'neither': 1782}
    """
    level = check_level(level)
    if data is not None:
        outcome, sensitive_features = _of_table(data, outcome, sensitive_features)
    attributes, columns = read_features(sensitive_features, outcome=outcome)
    if len(attributes) != 2:
        raise DataError(
            f"sensitive_features must be two attributes, not {len(attributes)} "
            f"({show_some([a.name for a in attributes])}). For more, use Audit.interaction."
        )
    values = _number(columns["outcome"])
    groups, keep, dropped = complete_rows(attributes, missing, outcome=np.isnan(values))
    sides = [
        _side(groups, k, _chosen(levels, k, "levels"), _chosen(references, k, "references"))
        for k in (0, 1)
    ]
    (a, in_a, name_a, other_a), (b, in_b, name_b, other_b) = sides
    used = in_a & in_b
    cell = np.where(a, np.where(b, 0, 1), np.where(b, 2, 3))[used]
    found = _measure(values[keep][used], cell, level)
    return IntersectionalGap(
        attributes=(groups.attributes[0], groups.attributes[1]),
        levels=(name_a, name_b),
        references=(other_a, other_b),
        level=level,
        n=int(used.sum()),
        n_left_out=int((~used).sum()),
        dropped=dropped.n,
        **found,
    )


def _of_table(data: Any, outcome: Any, features: Any) -> tuple[Any, Any]:
    table = as_table(data)
    names = [features] if is_name(features) else list(features)
    read = {str(name): table.column(name, "sensitive_features") for name in names}
    return (table.column(outcome, "outcome") if is_name(outcome) else outcome), read


def _number(series: pd.Series) -> Array:
    """Outcome as real numbers, missing ones NaN."""
    if not pd.api.types.is_numeric_dtype(series.dtype):
        raise DataError(
            f"outcome must be 0/1, True/False or real numbers, but holds "
            f"{factor(series, 'outcome').describe()}. Say which value counts as 1: "
            "outcome == value."
        )
    check_finite(series, "outcome")
    return series.to_numpy(dtype=np.float64, na_value=np.nan)


def _chosen(given: Sequence[Any] | None, k: int, name: str) -> Any:
    if given is None:
        return None
    if isinstance(given, str) or len(given) != 2:
        raise DataError(
            f"{name} must hold one level for each of the two attributes, not {given!r}."
        )
    return given[k]


def _side(
    groups: Groups, k: int, level: Any, reference: Any
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], str, str]:
    """Rows at the level, rows at level or reference, and the names of the two."""
    names, codes = groups.level_names[k], groups.level_codes[k][groups.codes]
    if level is None:
        if len(names) != 2:
            raise DataError(
                f"{groups.attributes[k]!r} has {len(names)} levels "
                f"({show_some(list(names), 8)}); say which one is in question: levels=(.., ..)."
            )
        at = 1 if reference is None else 1 - groups.level_position(k, reference)
    else:
        at = groups.level_position(k, level)
    if reference is None:
        others = [name for j, name in enumerate(names) if j != at]
        rest = others[0] if len(others) == 1 else REST
        return codes == at, np.ones(len(codes), dtype=bool), names[at], rest
    other = groups.level_position(k, reference)
    if other == at:
        raise DataError(f"{groups.attributes[k]!r}: level and reference are both {names[at]!r}.")
    return codes == at, (codes == at) | (codes == other), names[at], names[other]


def _measure(y: Array, cell: NDArray[np.intp], level: float) -> dict[str, Any]:
    """Rates, gaps, flag and contrast of rows in four cells."""
    n = np.bincount(cell, minlength=4).astype(np.float64)
    total: Array = np.bincount(cell, weights=y, minlength=4).astype(np.float64)
    some = n > 0
    rates = np.where(some, total, np.nan) / np.where(some, n, 1)
    limits, part_se, note = _limits(y, cell, rates, n)
    tail = np.array([(1 - level) / 2])
    low, high = limits(tail)
    ends, difference = [0, 3], np.array([1.0, -1.0])

    def limits_of_ends(tail: Array) -> tuple[Array, Array]:
        ends_low, ends_high = limits(tail)
        return ends_low[ends], ends_high[ends]

    gap_low, gap_high = mover_combination(rates[ends], low[ends], high[ends], difference)
    ci_low, ci_high = mover_combination(rates, low, high, CONTRAST)
    gap, gap_a, gap_b = rates[0] - rates[3], _marginal(total, n, 0), _marginal(total, n, 1)
    flag = superadditive(gap, gap_a, gap_b)
    product = rates[1] * rates[2]
    return {
        "cell_rates": dict(zip(CELLS, map(float, rates), strict=True)),
        "cell_sizes": dict(zip(CELLS, map(int, n), strict=True)),
        "gap": float(gap),
        "gap_low": float(gap_low),
        "gap_high": float(gap_high),
        "gap_p_value": float(mover_combination_p_value(rates[ends], limits_of_ends, difference)),
        "gap_a_alone": gap_a,
        "gap_b_alone": gap_b,
        "superadditive": None if np.isnan(gap + gap_a + gap_b) else bool(flag),
        "contrast": float(interaction_contrast(rates)),
        "se": float(np.sqrt(np.sum(part_se**2))),
        "ci_low": float(ci_low),
        "ci_high": float(ci_high),
        "p_value": float(mover_combination_p_value(rates, limits, CONTRAST)),
        "ratio": float(rates[0] * rates[3] / product) if product > 0 else np.nan,
        "note": note,
    }


def _marginal(total: Array, n: Array, axis: int) -> float:
    """Mean at the level less mean at the reference, over both sides of the other attribute."""
    sums, sizes = total.reshape(2, 2).sum(axis=1 - axis), n.reshape(2, 2).sum(axis=1 - axis)
    if not sizes.all():
        return float("nan")
    return float(sums[0] / sizes[0] - sums[1] / sizes[1])


def _limits(y: Array, cell: NDArray[np.intp], rates: Array, n: Array) -> tuple[Limits, Array, str]:
    """Limits of the four means, their standard errors, and what is undefined."""
    empty = [name for name, size in zip(CELLS, n, strict=True) if size == 0]
    note = f"no rows in {', '.join(empty)}" if empty else ""
    if np.isin(y, (0, 1)).all():
        plain = np.sqrt(rates * (1 - rates) / np.where(n > 0, n, 1))
        return wilson_limits(rates, n, max_df=NORMAL), boundary_se(rates, plain, n), note
    squares = np.bincount(cell, weights=(y - rates[cell]) ** 2, minlength=4)
    df = n - 1
    se = np.sqrt(np.where(df > 0, squares, np.nan) / np.where(df > 0, df * n, 1))
    if not note and (df <= 0).any():
        note = "a single row in a cell: no standard error"
    if not note and not (se > 0).any():
        se, note = np.full(4, np.nan), "no spread within any cell: no standard error"
    return student_limits(rates, se, df), se, note
