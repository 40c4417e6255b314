"""Design matrices of formulas, which can be built again on new rows.

patsy fits the transforms, codes the categories and keeps both; only the reading of columns, the
closed environment and a few transforms are here.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import patsy
from numpy.typing import NDArray
from patsy.eval import VarLookupDict
from patsy.origin import Origin

from cfair.columns import formula_column
from cfair.errors import CfairError, DataError
from cfair.formula.allowed import FUNCTIONS
from cfair.formula.reading import Formula
from cfair.frame import plain_column, show_some

MAX_LEVELS = 2_000
MAX_DESIGN_COLUMNS = 20_000
_LARGEST = 1e100  # length of a design matrix whose squares can still be multiplied


class _Refused(ValueError):  # noqa: N818
    """Why a column or a term is refused; the public functions add which formula it was."""


@dataclass(frozen=True, eq=False)
class Design:
    """A design matrix and what is needed to build it again on other rows.

    Parameters
    ----------
    matrix : (n, p) float64 array
        One row per row of the data.
    names : tuple of str
        Names of its columns, with the plain names of the data columns.
    columns : tuple of str
        The data columns that are used.
    """

    matrix: NDArray[np.float64] = field(repr=False)
    names: tuple[str, ...]
    columns: tuple[str, ...]
    formula: Formula = field(repr=False)
    info: Any = field(repr=False)  # patsy's DesignInfo
    fitted: dict[str, Any] = field(repr=False)  # first value, or no rows of a Categorical

    def __getstate__(self) -> dict[str, Any]:
        # patsy's part cannot be pickled: a copy keeps the matrix, but builds none on new rows
        return {**self.__dict__, "info": None, "fitted": {}}

    def transform(self, new_data: pd.DataFrame) -> NDArray[np.float64]:
        """Build the matrix of new rows by the stored design.

        Centres, scales, knots and levels are those of the rows the design was built on. A level
        that did not occur there is a FormulaError.

        Parameters
        ----------
        new_data : pandas.DataFrame
            Any rows with the columns of the formula.
        """
        if self.info is None:
            raise self.formula.error("the design was pickled and cannot be built on new rows.")
        values = {
            column: read_again(self.formula, new_data, column, self.fitted[column])
            for column in self.columns
        }
        return evaluate(self.formula, self.info, values, len(new_data))


def build_design(formula: Formula, data: pd.DataFrame) -> Design:
    """Build the design matrix of a formula, as patsy would.

    Text, in whatever form, is a category with sorted levels; a Categorical keeps its order, without
    the levels that do not occur. True and False count as 1 and 0 in arithmetic.

    Parameters
    ----------
    formula : Formula
        From `parse_formula`.
    data : pandas.DataFrame
        Rows without missing values in the columns of the formula.

    Examples
    --------
    >>> from cfair.formula import parse_formula
    >>> formula = parse_formula("~ age + sex", ["age", "sex"])
    >>> data = pd.DataFrame({"age": [61, 58, 70], "sex": ["F", "M", "F"]})
    >>> design = build_design(formula, data)
    >>> design.names
    ('Intercept', 'sex[T.M]', 'age')
    >>> design.transform(data.tail(1))
    array([[ 1.,  0., 70.]])
    """
    if len(data) == 0:
        raise formula.error("the data have no rows. Check what was left out before.")
    values = {column: _read_first(formula, data, column) for column in formula.columns}
    arrays = _by_placeholder(formula, values)
    info = _prepared(formula, values, lambda: iter([arrays]), len(data))
    matrix = evaluate(formula, info, values, len(data))
    return _design(formula, info, matrix, values)


def build_design_by_batches(
    formula: Formula,
    levels: Mapping[str, Any],
    batches: Callable[[], Iterable[pd.DataFrame]],
) -> Design:
    """Build the design of a formula on rows that come in batches; its matrix has no rows.

    `Design.transform` gives the matrix of a batch. Centres, scales, knots and levels are those of
    all rows together, found by patsy in as many passes as its transforms need; none, if there are
    no transforms. Knots of splines need all values of their column at once.

    Parameters
    ----------
    formula : Formula
        From `parse_formula`.
    levels : mapping of str to Categorical or array
        By column, a Categorical of all its levels, or an array of its type.
    batches : callable
        Gives the batches anew at each call: rows without missing values in the columns of the
        formula.

    Returns
    -------
    Design

    Examples
    --------
    >>> from cfair.formula import parse_formula
    >>> formula = parse_formula("~ center(age) + sex", ["age", "sex"])
    >>> data = pd.DataFrame({"age": [61, 58, 70], "sex": ["F", "M", "F"]})
    >>> levels = {"sex": pd.Categorical(["F", "M"]), "age": np.zeros(1)}
    >>> design = build_design_by_batches(formula, levels, lambda: [data[:2], data[2:]])
    >>> design.transform(data).tolist()
    [[1.0, 0.0, -2.0], [1.0, 1.0, -5.0], [1.0, 0.0, 7.0]]
    """
    for name, value in levels.items():
        if isinstance(value, pd.Categorical):
            try:
                _check_levels(len(value.categories))
            except _Refused as error:
                raise formula.error(f"column {name!r}: {error}") from None

    def chunks() -> Iterator[dict[str, Any]]:
        for data in batches():
            values = {c: read_again(formula, data, c, levels[c]) for c in formula.columns}
            yield _by_placeholder(formula, values)

    info = _prepared(formula, levels, chunks, 0)
    return _design(formula, info, np.empty((0, len(info.column_names))), levels)


def _prepared(
    formula: Formula,
    values: Mapping[str, Any],
    chunks: Callable[[], Iterator[dict[str, Any]]],
    n_rows: int,
) -> Any:
    """The design as patsy has it, with transforms fitted to the chunks."""
    _check_width(formula, values)
    terms = [patsy.INTERCEPT] if formula.intercept else []
    terms += [patsy.Term([_factor(code) for code in codes]) for codes in formula.codes]
    with _explained(formula):
        info = patsy.design_matrix_builders([terms], chunks, _Closed([_ENVIRONMENT]), _KEEP_ALL)[0]
    n_columns = len(info.column_names)
    if n_columns == 0:
        raise formula.error("it has no terms at all. Write '~ 1' for an intercept alone.")
    if n_columns > MAX_DESIGN_COLUMNS or n_rows * n_columns * 8 > 2**34:
        rows = f" and {n_rows:,} rows" * bool(n_rows)
        raise formula.error(
            f"its matrix has {n_columns:,} columns{rows}, which is too large. "
            f"Group levels, or leave out interactions."
        )
    return info


def _design(
    formula: Formula, info: Any, matrix: NDArray[np.float64], values: Mapping[str, Any]
) -> Design:
    names = tuple(formula.show(name) for name in info.column_names)
    if len(set(names)) < len(names):  # a column called 'a:b' beside the interaction of a and b
        names = tuple(formula.show(name, quote=True) for name in info.column_names)
    fitted = {column: array[:1] for column, array in values.items()}
    return Design(matrix, names, formula.columns, formula, info, fitted)


# -------------------------------------------------------------------------- reading the columns


def _one_column(formula: Formula, data: pd.DataFrame, name: str) -> pd.Series:
    """Take one column of the data, which must be there once and without missing values."""
    if name not in data.columns:
        raise formula.error(f"the data have no column {name!r}. Add it.")
    series = data[name]
    if isinstance(series, pd.DataFrame):
        raise formula.error(
            f"the data have {series.shape[1]} columns called {name!r}. Rename all but one."
        )
    missing = series.isna().to_numpy()
    if missing.any():
        rows = show_some([repr(label) for label in series.index[missing][:6]])
        raise formula.error(
            f"column {name!r} has missing values in {int(missing.sum())} rows (index {rows}). "
            f"Leave these rows out, or fill them in."
        )
    return series


def _read_first(formula: Formula, data: pd.DataFrame, name: str) -> Any:
    """Values of a column as patsy is to see them: an array, or a Categorical."""
    series = _one_column(formula, data, name)
    try:
        if not isinstance(series.dtype, pd.CategoricalDtype):
            series = formula_column(plain_column(series))
        if not isinstance(series.dtype, pd.CategoricalDtype):
            return series.to_numpy()
        values: Any = series.array
        if np.bincount(values.codes, minlength=len(values.categories)).min() == 0:
            values = values.remove_unused_categories()
        _check_levels(len(values.categories))
    except (DataError, _Refused) as error:
        raise formula.error(f"column {name!r}: {error}") from None
    return values


def read_again(formula: Formula, data: pd.DataFrame, name: str, fitted: Any) -> Any:
    """Values of a column of new rows in the form that it had in fitting."""
    series = _one_column(formula, data, name)
    try:
        if isinstance(fitted, pd.Categorical):
            return _with_levels(series, tuple(fitted.categories), bool(fitted.ordered))
        if isinstance(series.dtype, pd.CategoricalDtype):
            series = pd.Series(np.asarray(series), name=name)
        values = plain_column(series).to_numpy()
        if values.dtype.kind not in "biuf":
            raise _Refused(f"it held numbers in fitting, but holds {series.dtype} now.")
        if fitted.dtype.kind == "b":
            _with_levels(values, (False, True))
        elif values.dtype.kind != "f":
            return values.astype(np.int64)
        return values.astype(fitted.dtype if fitted.dtype.kind == "b" else np.float64)
    except (DataError, _Refused) as error:
        raise formula.error(f"column {name!r}: {error}") from None


def _check_levels(n: int) -> None:
    if n > MAX_LEVELS:
        raise _Refused(
            f"{n:,} different values are more than the {MAX_LEVELS:,} that can be levels. Is it an "
            f"identifier? Leave it out, or group its values."
        )


def codes_of(values: Any) -> tuple[NDArray[np.intp], list[Any]]:
    """Code per row, and the values, some of which may not occur."""
    array = getattr(values, "array", values)
    if isinstance(array, pd.Categorical):
        return array.codes.astype(np.intp), list(array.categories)
    codes, uniques = pd.factorize(values)
    return codes, list(uniques)


def _with_levels(values: Any, levels: Sequence[Any], ordered: bool = False) -> pd.Categorical:
    """Values as a Categorical of these levels; others are refused."""
    codes, uniques = codes_of(values)
    position = {level: i for i, level in enumerate(levels)}
    new_codes = np.array([position.get(value, -1) for value in uniques] or [-1])[codes]
    unseen = new_codes < 0
    if unseen.any():
        which = show_some([repr(uniques[code]) for code in np.unique(codes[unseen])])
        raise _Refused(
            f"values {which} ({int(unseen.sum())} rows) are not among the levels "
            f"{show_some([repr(level) for level in levels])}. Leave these rows out, or fit on data "
            f"that have them."
        )
    return pd.Categorical.from_codes(new_codes, categories=pd.Index(levels), ordered=ordered)


# ----------------------------------------------------------------- what a factor's code can see


class _Categories:
    """C() in place of patsy's, which loops over rows and keeps levels that do not occur."""

    def __init__(self) -> None:
        self._levels: tuple[Any, ...] = ()
        self._ordered = False
        self._found: set[Any] = set()

    def memorize_chunk(self, data: Any, contrast: Any = None, levels: Any = None) -> None:
        if np.ndim(data) != 1:
            raise _Refused("C() takes one column.")
        codes, uniques = codes_of(data)
        self._found.update(uniques[code] for code in np.unique(codes))
        _check_levels(len(self._found))
        if levels is not None:
            _with_levels(data, tuple(levels))
            order = list(levels)
        elif isinstance(data, pd.Categorical):
            order = uniques
        else:
            order = [False, True] if data.dtype.kind == "b" else sorted(self._found)
        if isinstance(data, pd.Categorical):
            self._ordered = bool(data.ordered)
        fixed = levels is None and not isinstance(data, pd.Categorical)
        self._levels = tuple(v for v in order if fixed or v in self._found)

    def memorize_finish(self) -> None:
        """Nothing is left to do: the levels are those of the chunks so far."""

    def transform(self, data: Any, contrast: Any = None, levels: Any = None) -> pd.Categorical:
        values: Any = _with_levels(data, self._levels, self._ordered)
        values.contrast = contrast or getattr(data, "contrast", None)  # C(C(x, Sum))
        return values


class _Standardize:
    """standardize() and scale() in place of patsy's, which loops over rows."""

    def __init__(self) -> None:
        self._n = 0
        self._mean: Any = 0.0
        self._squares: Any = 0.0

    def memorize_chunk(self, x: Any, center: Any = 1, rescale: Any = 1, ddof: int = 0) -> None:
        values = np.asarray(x, dtype=np.float64)
        before, n = self._n, len(values)
        self._n = before + n
        mean = values.mean(axis=0)
        away = mean - self._mean  # Chan, Golub and LeVeque (1983): squares about the common mean
        self._squares += np.square(values - mean).sum(axis=0)
        self._squares += np.square(away) * (before * n / self._n)
        self._mean = self._mean + away * (n / self._n)
        self._scale = np.sqrt(self._squares / (self._n - ddof))

    def memorize_finish(self) -> None:
        """Nothing is left to do: the moments are those of the chunks so far."""

    def transform(self, x: Any, center: Any = 1, rescale: Any = 1, ddof: int = 0) -> Any:
        centred = np.asarray(x, dtype=np.float64) - (self._mean if center else 0)
        return centred / (self._scale if rescale else 1)


_OWN = {"C": _Categories, "standardize": _Standardize, "scale": _Standardize}
_ENVIRONMENT = {
    **FUNCTIONS,
    **{name: patsy.stateful_transform(transform) for name, transform in _OWN.items()},
}


class _Closed(patsy.EvalEnvironment):
    """An environment without builtins, where arithmetic is done in floats."""

    def subset(self, names: Iterable[str]) -> _Closed:
        return _Closed(super().subset(names)._namespaces)

    def eval(self, expr: str, source_name: str = "<formula>", inner_namespace: Any = None) -> Any:
        tree = ast.fix_missing_locations(_Watched().visit(ast.parse(expr, mode="eval")))
        outer = {"__builtins__": {}, "_in_floats": _in_floats, "_no_codes": _no_codes}
        inner = VarLookupDict([inner_namespace or {}, *self._namespaces])
        return eval(compile(tree, source_name, "eval"), outer, inner)


class _Watched(ast.NodeTransformer):
    """Wraps what arithmetic is done on, and the arguments of functions but I() and C()."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.BitAnd, ast.BitOr)):
            node.left, node.right = _call("_in_floats", node.left), _call("_in_floats", node.right)
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Invert):
            node.operand = _call("_in_floats", node.operand)
        elif isinstance(node, ast.Call):
            function = ast.unparse(node.func)  # patsy calls C _patsy_stobj0__C__.transform
            if function != "I" and "__C__" not in function:
                node.args = [_call("_no_codes", argument) for argument in node.args]
        return node


def _call(name: str, argument: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [argument], [])


def _in_floats(values: Any) -> Any:
    """Whole numbers would overflow without a word, and True + True would be True."""
    whole = isinstance(values, np.ndarray) and values.dtype.kind in "biu"
    return values.astype(np.float64) if whole else values


def _no_codes(values: Any) -> Any:
    """Refuse groups that are coded by numbers, which numpy would take for those numbers."""
    if isinstance(values, pd.Categorical) and values.categories.dtype.kind in "biuf":
        raise _Refused("it needs numbers, but the column is a category with numbers as labels")
    return values


# --------------------------------------------------------------------------- building the matrix

_COMBINED_FROM = 10_000  # rows, from which terms of categories are built once for each combination
_BLOCK = 10_000  # rows that stay in cache
_KEEP_ALL = patsy.NAAction(on_NA="raise", NA_types=[])


def _factor(code: str) -> Any:
    """Give patsy's factor, which says in its errors where it stands: here, in its own code."""
    return patsy.EvalFactor(code, Origin(code, 0, len(code)))


def _by_placeholder(formula: Formula, values: Mapping[str, Any]) -> dict[str, Any]:
    return {p: values[column] for p, column in formula.placeholders.items() if column in values}


@contextmanager
def _explained(formula: Formula) -> Iterator[None]:
    """Whatever patsy or a transform raises, said of the formula's term."""
    try:
        with np.errstate(all="ignore"):
            yield
    except CfairError:
        raise  # of the rows, where they are read by batches; it has said what is wrong
    except Exception as error:
        origin = getattr(error, "origin", None)
        cause = error.__cause__ or error
        own = isinstance(cause, (_Refused, patsy.PatsyError))
        kind = "" if own else f"{type(cause).__name__}: "
        message = formula.show(str(getattr(cause, "message", cause))).split("\n")[0]
        code = origin.code if origin else ""
        columns = " and ".join(repr(column) for column in formula.columns_of(code))
        where = f"term {formula.show(code)!r} cannot be computed from column {columns}"
        raise formula.error(
            f"{where if origin else 'its matrix cannot be built'} ({kind}{message}). Check the "
            f"arguments and the kind of the column."
        ) from error


def evaluate(
    formula: Formula, info: Any, values: Mapping[str, Any], n_rows: int
) -> NDArray[np.float64]:
    """Build the matrix of a design, or of some of its terms, from columns that have been read."""
    if n_rows == 0:
        return np.ones((0, len(info.column_names)))
    with _explained(formula):
        matrix = _of_terms(formula, info, values, n_rows)
        # false for any value that is not finite; sums of larger ones overflow in the fit
        usable = np.vdot(matrix, matrix) <= _LARGEST**2
    if not usable:
        _refuse_infinite(formula, info, matrix, values)
    return matrix


def _of_terms(
    formula: Formula, info: Any, values: Mapping[str, Any], n_rows: int
) -> NDArray[np.float64]:
    """The matrix as patsy builds it; terms of categories alone only for what there is of them.

    With a product of two attributes in a million rows patsy multiplies every pair of columns; the
    same rows are taken here from the matrix of the combinations that occur.
    """
    if n_rows < _COMBINED_FROM:
        return _by_patsy(formula, info, values, n_rows)
    combined = [
        term
        for term in info.term_slices
        if (used := formula.columns_of(term.name()))
        and all(isinstance(values[column], pd.Categorical) for column in used)
    ]
    columns = sorted({c for term in combined for c in formula.columns_of(term.name())})
    n_combinations = math.prod(len(values[column].categories) for column in columns)
    if not combined or n_combinations > n_rows // 10:
        return _by_patsy(formula, info, values, n_rows)
    code = np.zeros(n_rows, dtype=np.intp)
    for column in columns:
        code = code * len(values[column].categories) + values[column].codes
    first = np.full(n_combinations, -1)
    first[code[::-1]] = np.arange(n_rows)[::-1]
    occurs = first >= 0
    few = {column: values[column][first[occurs]] for column in columns}
    others = [term for term in info.term_slices if term not in combined]
    code = (np.cumsum(occurs) - 1)[code]
    matrix = np.empty((n_rows, len(info.column_names)))
    for terms, wanted, rows in ((combined, few, code), (others, values, None)):
        part = info.subset(terms)
        built = _by_patsy(formula, part, wanted, n_rows if rows is None else len(few[columns[0]]))
        for term, own in part.term_slices.items():
            place = info.term_slices[term]
            for start in range(0, n_rows, _BLOCK):
                some = slice(start, start + _BLOCK)
                matrix[some, place] = built[some if rows is None else rows[some], own]
    return matrix


def _by_patsy(
    formula: Formula, info: Any, values: Mapping[str, Any], n_rows: int
) -> NDArray[np.float64]:
    if not info.factor_infos:
        return np.ones((n_rows, len(info.column_names)))
    arrays = _by_placeholder(formula, values)
    built = patsy.build_design_matrices([info], arrays, NA_action=_KEEP_ALL)[0]
    return np.ascontiguousarray(np.asarray(built, dtype=np.float64))


def _refuse_infinite(
    formula: Formula, info: Any, matrix: NDArray[np.float64], values: Mapping[str, Any]
) -> None:
    for term, place in info.term_slices.items():
        bad = ~(np.abs(matrix[:, place]) < _LARGEST / 1e6).all(axis=1)
        if bad.any():
            first = "; ".join(
                f"{c} = {show_some([repr(v) for v in np.asarray(values[c])[bad][:6].tolist()], 3)}"
                for c in formula.columns_of(term.name())
            )
            finite = np.isfinite(matrix[:, place]).all()
            what = f"is beyond {_LARGEST / 1e6:g}" if finite else "is not a finite number"
            raise formula.error(
                f"term {formula.show(term.name())!r} {what} in {int(bad.sum())} "
                f"rows ({first}). Change the term, or leave these rows out."
            )


def _check_width(formula: Formula, values: Mapping[str, Any]) -> None:
    """Refuse interactions of so many levels that even their names would fill the memory."""

    def width(code: str) -> int:
        columns = [values[column] for column in formula.columns_of(code)]
        as_levels = [v for v in columns if isinstance(v, pd.Categorical) or code.startswith("C(")]
        return formula.widths[code] * max((len(pd.unique(v)) for v in as_levels), default=1)

    for term in formula.codes:
        if len(term) > 1 and math.prod(map(width, term)) > MAX_DESIGN_COLUMNS:
            shown = ":".join(map(formula.show, term))
            raise formula.error(
                f"term {shown!r} has more than {MAX_DESIGN_COLUMNS:,} columns. Group the levels, "
                f"or lower df."
            )
