"""What a formula may hold: the functions, and the check of a factor's syntax tree."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import patsy.builtins

from cfair.errors import FormulaError

MAX_NESTING = 100
MAX_DF = 1_000
MAX_DEGREE = 5  # the spline routines overrun their buffers at about 25


def _of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(x)


def _where(condition: Any, x: Any, y: Any) -> Any:
    """Choose by a condition; numpy's takes any text for true, and mixes numbers with text."""
    if np.asarray(condition).dtype.kind != "b":
        raise ValueError("the first argument must be a comparison, as in where(age > 60, 1, 0)")
    kinds = {np.asarray(value).dtype.kind in "OUS" for value in (x, y)}
    if len(kinds) > 1:
        raise ValueError("the second and third argument must both be numbers, or both text")
    return np.where(condition, x, y)


CONTRASTS = ("Treatment", "Sum", "Poly", "Helmert", "Diff")
_TRANSFORMS = ("C", "I", "center", "standardize", "scale", "bs", "cr", "cc", "te")
_ELEMENTARY = ("log", "log1p", "log2", "log10", "exp", "sqrt", "abs", "sin", "cos")
# numpy's functions stand in lambdas, because as they are they also take an array to write into.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(patsy.builtins, name) for name in (*_TRANSFORMS, *CONTRASTS)},
    **{name: _of_one(getattr(np, name)) for name in _ELEMENTARY},
    "minimum": lambda x1, x2: np.minimum(x1, x2),
    "maximum": lambda x1, x2: np.maximum(x1, x2),
    "clip": lambda a, a_min=None, a_max=None: np.clip(a, a_min, a_max),
    "where": lambda condition, x, y: _where(condition, x, y),
}
_OF_COLUMNS = ("te", "minimum", "maximum", "clip", "where")  # of several columns

ALLOWED = "Allowed are columns, numbers, text, arithmetic, comparison and " + ", ".join(FUNCTIONS)


def shorten(text: str, width: int = 60) -> str:
    """Cut a text that is long."""
    return text if len(text) <= width else text[: width - 3] + "..."


def show_code(code: str, places: dict[str, str], quote: bool = False) -> str:
    """Put the names of columns in the place of their placeholders."""

    def name(found: re.Match[str]) -> str:
        column = places.get(found.group(), found.group())
        return f"`{column}`" if quote and not column.isidentifier() else column

    return re.sub(r"_column_*[0-9]+_", name, code).strip()


_WORDS = {
    ast.Attribute: "attribute access (a.b)",
    ast.Subscript: "a subscript (a[b])",
    ast.Starred: "a starred argument",
}
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_SIGNED = (ast.BitAnd, ast.BitOr, ast.USub, ast.UAdd, ast.Invert)
_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_PARTS = (
    ast.Name,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.Call,
    ast.Tuple,
    ast.List,
)
_NODES = (*_PARTS, *_OPERATORS, *_SIGNED, *_COMPARED, ast.keyword, ast.Load)


class FactorCheck:
    """Checks the syntax tree of one factor; `width` is the number of columns of its splines."""

    def __init__(self, code: str, places: dict[str, str]) -> None:
        self.code = code
        self.places = places
        self.width = 1
        self._names: set[ast.AST] = set()  # of functions and contrasts, checked with their call
        try:
            tree = ast.parse(code, mode="eval").body
        except (SyntaxError, ValueError):
            shown = shorten(show_code(code, places))
            raise FormulaError(
                f"the term {shown!r} is not complete. Arithmetic with a sign, such as a > -1, goes "
                f"inside I(...)."
            ) from None
        if not self._has_column(tree):
            self._refuse(tree, "uses no column. Take it out.")
        level: list[ast.AST] = [tree]
        for _ in range(MAX_NESTING):
            for node in level:
                self._check(node)
            level = [child for node in level for child in ast.iter_child_nodes(node)]
        if level:
            self._refuse(tree, "too many operators in a row. Make it a column first.")

    def _refuse(self, node: ast.AST, why: str) -> NoReturn:
        piece = ast.get_source_segment(self.code, node) or self.code
        raise FormulaError(f"{shorten(show_code(piece, self.places))!r}: {why}")

    def _has_column(self, node: ast.AST) -> bool:
        return any(isinstance(n, ast.Name) and n.id in self.places for n in ast.walk(node))

    def _check(self, node: ast.AST) -> None:
        if not isinstance(node, _NODES):
            what = _WORDS.get(type(node), type(node).__name__)
            self._refuse(node, f"{what} is not allowed. {ALLOWED}.")
        if isinstance(node, ast.Name) and node.id not in self.places and node not in self._names:
            self._refuse(node, "a contrast goes to C(), as in C(column, Sum).")
        if isinstance(node, ast.BinOp):
            self._arithmetic(node)
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            self._refuse(node, "write two comparisons in brackets: (a < x) & (x < b).")
        if isinstance(node, (ast.Tuple, ast.List)):
            try:
                ast.literal_eval(node)
            except ValueError:
                self._refuse(node, "a list may hold numbers and text only, not a column.")
        if isinstance(node, ast.Call):
            self._call(node)

    def _arithmetic(self, node: ast.BinOp) -> None:
        for side in (node.left, node.right):
            text = isinstance(side, ast.Constant) and not isinstance(side.value, (int, float))
            if text or isinstance(side, (ast.Tuple, ast.List)):
                self._refuse(node, "arithmetic takes numbers and columns, not text or lists.")
        if isinstance(node.op, ast.Pow) and not self._has_column(node):
            self._refuse(node, "the power of two numbers may be too large. Write the number.")

    def _call(self, node: ast.Call) -> None:
        name = getattr(node.func, "id", "")
        if name not in FUNCTIONS:
            self._refuse(node.func, "it is a column, not a function, and cannot be called.")
        transform = getattr(FUNCTIONS[name], "__patsy_stateful_transform__", None)
        signature = inspect.signature(transform().transform if transform else FUNCTIONS[name])
        if name == "te":  # patsy's own takes any option, and ignores it
            signature = inspect.signature(lambda *splines, constraints=None: None)
        try:
            options: Any = {argument.arg: argument.value for argument in node.keywords}
            given = signature.bind(*node.args, **options).arguments
        except TypeError as error:
            self._refuse(node, f"{error}. Usage: {name}{signature}.")
        contrast = given.get("contrast") if name == "C" else None
        self._names |= {node.func}
        if isinstance(contrast, ast.Name) and contrast.id in CONTRASTS:
            self._names |= {contrast}
        if name not in CONTRASTS and not self._has_column(node):
            self._refuse(node, "uses no column.")
        for place, (option, value) in enumerate(given.items()):
            if name not in _OF_COLUMNS and (place or name in CONTRASTS):
                self._option(node, option, value)

    def _option(self, node: ast.Call, option: str, value: ast.expr) -> None:
        if self._has_column(value):
            self._refuse(node, f"{option!r} takes numbers or text, not a column.")
        size = len(value.elts) if isinstance(value, (ast.Tuple, ast.List)) else 1
        if option in ("df", "degree"):
            number = value.value if isinstance(value, ast.Constant) else "?"
            if not isinstance(number, (int, type(None))):
                self._refuse(node, f"{option} must be a whole number.")
            size = number or 1
        self.width *= max(size, 1) if option in ("df", "knots") else 1
        if option == "degree" and size > MAX_DEGREE:
            self._refuse(node, f"the degree of a spline may be at most {MAX_DEGREE}.")
        if max(self.width, size) > MAX_DF:
            self._refuse(node, f"{option} (of all splines together) is larger than {MAX_DF}.")
