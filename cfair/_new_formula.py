"""Formulas: which columns they use, whatever these are called, and that nothing else is in them.

The text is rewritten first: each column becomes a plain placeholder, and any other word must be an
allowed one. patsy parses the result and expands its terms, within limits on the size, and the
syntax tree of each factor is checked. Nothing is evaluated here.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import keyword
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import patsy
from patsy.parse_formula import parse_formula as parse_with_patsy

from cfair.errors import FormulaError
from cfair.frame import show_some

MAX_CHARACTERS = 10_000
MAX_NESTING = 100
MAX_IN_A_ROW = 300  # patsy calls itself twice for each operator
MAX_TERMS = 500
MAX_DF = 1_000


def _of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(x)


def _standardize(x: Any, center: bool = True, rescale: bool = True, ddof: int = 0) -> None: ...


def _cubic(  # the functions that end in ... only say how they are called
    x: Any,
    df: Any = None,
    knots: Any = None,
    lower_bound: Any = None,
    upper_bound: Any = None,
    constraints: Any = None,
) -> None: ...


# numpy's functions stand in lambdas, because as they are they also take an array to write into.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "C": lambda data, contrast=None, levels=None: ...,
    "I": lambda x: x,
    "Q": lambda name: ...,
    "center": lambda x: ...,
    "standardize": _standardize,
    "scale": _standardize,
    "bs": lambda x, df=None, knots=None, degree=3, include_intercept=False, lower_bound=None,
    upper_bound=None: ...,
    "cr": _cubic,
    "cc": _cubic,
    "te": lambda s, *more, constraints=None: ...,
    "Treatment": lambda reference=None: ...,
    "Sum": lambda omit=None: ...,
    "Poly": lambda scores=None: ...,
    "Helmert": lambda: ...,
    "Diff": lambda: ...,
    **{
        name: _of_one(getattr(np, name))
        for name in ("log", "log1p", "log2", "log10", "exp", "sqrt", "abs", "sin", "cos")
    },
    "minimum": lambda x1, x2: np.minimum(x1, x2),
    "maximum": lambda x1, x2: np.maximum(x1, x2),
    "clip": lambda a, a_min=None, a_max=None: np.clip(a, a_min, a_max),
    "where": lambda condition, x, y: np.where(condition, x, y),
}
CONTRASTS = frozenset({"Treatment", "Sum", "Poly", "Helmert", "Diff"})
_OF_COLUMNS = frozenset({"te", "minimum", "maximum", "clip", "where"})  # of several columns
_CONSTANTS = frozenset({"True", "False", "None"})

_ALLOWED = "Allowed are columns, numbers, text, arithmetic, comparison and " + ", ".join(FUNCTIONS)
_REMEMBERS = "which remembers the rows it was fitted on"
_INSTEAD = {
    "mean average nanmean median sum": f"write center(x), {_REMEMBERS}",
    "std nanstd var zscore min max rank": f"write standardize(x) or scale(x), {_REMEMBERS}",
    "factor as.factor Categorical": "write C(x)",
    "ns rcs s": "write cr(x, df=4) or bs(x, df=4)",
    "poly power pow": "write x + I(x**2), or bs(x, df=4)",
    "ifelse if else": "write where(condition, x, y)",
    "offset": "there are no offsets here; leave it out, or enter the column as a term",
    "ln": "write log(x)",
    "and": "write & between conditions in brackets: I((a > 1) & (b > 1))",
    "or": "write | between conditions in brackets: I((a > 1) | (b > 1))",
    "not": "write ~ before a condition in brackets: I(~(a > 1))",
    "in is": "compare with each value: I((a == 1) | (a == 2))",
}
_HINTS = {word: hint for words, hint in _INSTEAD.items() for word in words.split()}
_SIGN_HINTS = {
    "^": "For powers write **: (a + b)**2, or I(a**2).",
    "!": "For 'not' write ~ before a condition in brackets: I(~(a > 1)).",
    "'": "A quote is not closed.",
    '"': "A quote is not closed.",
    "`": "A backtick is not closed.",
    ".": "It does not stand for all columns (name them, as in '~ age + sex'), and attribute access "
    "(a.b) is not allowed.",
}
# What patsy says of a formula that it cannot parse, by the beginning, and how it is said here.
_PARSER_MESSAGES = {
    "expected a noun, but": "a term is missing after {!r}. Add it; '~ 1' has no covariates.",
    "expected a noun, not": "a term is missing before {!r}. Add it, or take {0!r} out.",
    "expected an operator": "{!r} cannot follow a term. Arithmetic and conditions go inside I(...).",
    "intercept term": "the intercept (1) cannot interact with a term. Take it out.",
    "'**' requires": "'**' between terms takes a whole number, not {!r}. For a square write I(a**2).",
    "Unary minus": "nothing is before the minus sign of {!r}. For arithmetic write I(-a).",
    "numbers besides": "the number {} cannot be a term, only 0 and 1 can. Arithmetic goes in I(...).",
    "~ can only": "it has more than one '~'. Write one, as in 'd ~ age'; 'not' is I(~(a > 1)).",
}

_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])"
_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_SIGN = r"\*\*|//|[=!<>:]=|."
_SIGNS = frozenset("** // == != <= >= + - * / % : ~ ( ) [ ] , = < > & |".split())


@dataclass(frozen=True)
class Formula:
    """A formula that has been read and checked, without any data yet.

    Parameters
    ----------
    text : str
        The formula as it was written.
    left : str or None
        The column on the left-hand side.
    columns : tuple of str
        The data columns that the right-hand side uses, in order of appearance.
    notes : tuple of str
        What could have been read in another way, and how it was read.
    what : str
        What the formula models.
    intercept : bool
        Whether it has an intercept.
    codes : tuple of tuple of str
        Factors of each right-hand term, as code with placeholders for the columns.
    placeholders : dict of str to str
        Column by placeholder.
    widths : dict of str to int
        Columns of a factor's splines, by its code.
    """

    text: str
    left: str | None
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    what: str = field(repr=False)
    intercept: bool = field(repr=False)
    codes: tuple[tuple[str, ...], ...] = field(repr=False)
    placeholders: dict[str, str] = field(repr=False, compare=False)
    widths: dict[str, int] = field(repr=False, compare=False)

    @property
    def terms(self) -> tuple[str, ...]:
        """The right-hand terms as they are printed, without the intercept."""
        return tuple(":".join(self.show(code) for code in term) for term in self.codes)

    def show(self, code: str, *, quote: bool = False) -> str:
        """Put the columns' names for the placeholders, in backticks where `quote` asks for it."""
        return _show(code, self.placeholders, quote)

    def columns_of(self, code: str) -> tuple[str, ...]:
        """Columns that a factor uses."""
        return tuple(c for place, c in self.placeholders.items() if place in code)

    def error(self, message: str) -> FormulaError:
        """Say what is wrong, and with which formula."""
        return FormulaError(f"{self.what} formula {_shorten(self.text)!r}: {message}")


def parse_formula(text: str, columns: Iterable[str], *, what: str = "propensity") -> Formula:
    """Read a formula: find its columns and refuse all that is not allowed, before any work.

    Parameters
    ----------
    text : str
        For example ``"d ~ age + C(site)"``; the left-hand side may be left out. A column whose name
        is not a plain word is written as it is, or in backticks.
    columns : iterable of str
        The names that the formula may use.
    what : str
        What the formula models, for messages.

    Returns
    -------
    Formula
        The columns it uses, and notes on names that could have been read in another way.

    Examples
    --------
    >>> formula = parse_formula("d ~ age at entry + log(bmi)", ["d", "age at entry", "bmi"])
    >>> formula.left, formula.columns, formula.terms
    ('d', ('age at entry', 'bmi'), ('age at entry', 'log(bmi)'))
    """
    if not isinstance(text, str):
        raise FormulaError(
            f"the {what} formula must be text such as 'd ~ age + C(site)', but is a "
            f"{type(text).__name__}."
        )
    try:
        return _read(text, tuple(dict.fromkeys(str(name) for name in columns)), what)
    except FormulaError as error:
        message = str(error)
    except (RecursionError, MemoryError, OverflowError):
        message = "it is too long or too deeply nested. Leave out terms, or write it flatter."
    raise FormulaError(f"{what} formula {_shorten(text)!r}: {message}")


def _read(text: str, columns: tuple[str, ...], what: str) -> Formula:
    if len(text) > MAX_CHARACTERS:
        raise FormulaError(
            f"it has {len(text):,} characters, more than the {MAX_CHARACTERS:,} that are read. "
            f"Leave out terms, or combine columns beforehand."
        )
    if not text.strip():
        raise FormulaError("it is empty. Write '~ 1' for a model without covariates.")
    rewriter = _Rewriter(text, columns)
    code, places = rewriter.rewrite(), rewriter.placeholders
    widths: dict[str, int] = {}
    try:
        tree = parse_with_patsy(code)
        left = _left_column(tree, places)
        if _count_terms(tree.args[-1], places, widths) > MAX_TERMS:
            raise FormulaError(f"it expands to more than {MAX_TERMS} terms. Use fewer interactions.")
        right = patsy.ModelDesc.from_formula(tree).rhs_termlist
    except patsy.PatsyError as error:
        raise FormulaError(_parser_message(error, places)) from None
    codes = tuple(tuple(f.code for f in term.factors) for term in right if term.factors)
    in_use = " ".join(code for term in codes for code in term)
    used = tuple(column for place, column in places.items() if place in in_use)
    if left in used:
        raise FormulaError(f"column {left!r} is on both sides. Take it out of the right-hand side.")
    intercept = patsy.INTERCEPT in right
    notes = tuple(dict.fromkeys(rewriter.notes))
    return Formula(text, left, used, notes, what, intercept, codes, places, widths)


class _Rewriter:
    """Puts placeholders for the columns of a formula, and refuses words that are not allowed."""

    def __init__(self, text: str, columns: tuple[str, ...]) -> None:
        self.text = text
        self.columns = columns
        self.known = frozenset(columns)
        self.placeholders: dict[str, str] = {}
        self.notes: list[str] = []
        self._stem = "_column"
        while self._stem in text:
            self._stem += "_"
        self._open: list[str] = []

    def rewrite(self) -> str:
        awkward = sorted(filter(_can_be_written, self.columns), key=len, reverse=True)
        tokens = re.compile(
            rf"(?P<text>{_TEXT})|`(?P<backticks>[^`]*)`|Q\s*\(\s*(?P<quoted>{_TEXT})\s*\)"
            rf"|(?P<name>{'|'.join(map(_bounded, awkward)) or '(?!)'})|(?P<number>{_NUMBER})"
            rf"|(?P<word>\w+(?:\.\w+)*)|(?P<space>\s+)|(?P<sign>{_SIGN})",
            re.DOTALL,
        )
        # Spaces keep the parts apart; patsy spaces the code of a factor in its own way.
        code = " ".join(
            getattr(self, f"_{kind}")(found[kind], found.end())
            for found in tokens.finditer(self.text)
            if (kind := found.lastgroup) and kind != "space"
        )
        if self._open:
            raise FormulaError(f"a {self._open[-1]!r} is not closed. Add the bracket.")
        return code

    def _text(self, source: str, end: int) -> str:
        return source if source.isprintable() and "\\" not in source else repr(_unquote(source))

    def _backticks(self, name: str, end: int) -> str:
        if name not in self.known:
            raise FormulaError(self._unknown(name))
        places = {column: place for place, column in self.placeholders.items()}
        place = places.get(name, f"{self._stem}{len(places)}_")
        self.placeholders[place] = name
        return place

    def _quoted(self, source: str, end: int) -> str:
        return self._backticks(_unquote(source), end)

    def _name(self, name: str, end: int) -> str:
        parts = set(re.split(r"[-+*/:%<>=&|()\s]+", name)) - {""}
        if parts <= self.known | FUNCTIONS.keys() and len(parts) > 1:
            self.notes.append(
                f"{name!r} was read as the column of this name, not as a formula of other columns. "
                f"Change the spaces around its signs for the other reading."
            )
        return self._backticks(name, end)

    def _number(self, source: str, end: int) -> str:
        value = float(source)
        if not math.isfinite(value) or (source.isdigit() and value > 1e18):
            raise FormulaError(f"the number {_shorten(source)!r} is too large.")
        return str(int(source)) if source.isdigit() else source  # 01 is no number in Python

    def _word(self, word: str, end: int) -> str:
        rest = self.text[end:].lstrip()
        called = rest.startswith("(")
        if self._open and re.match("=(?!=)", rest):
            return word
        if word in FUNCTIONS and word in self.known:
            self.notes.append(
                f"column {word!r} has the name of a formula function: {word}(...) was read as the "
                f"function, {word!r} without a bracket as the column."
            )
        if word == "Q" and called:
            raise FormulaError("Q() takes one column name in quotes: Q('body mass').")
        if called and word in FUNCTIONS:
            return word
        if word in self.known:
            return self._backticks(word, end)
        if word in _CONSTANTS or word in CONTRASTS:
            return word
        self._refuse_word(word, called)

    def _refuse_word(self, word: str, called: bool) -> NoReturn:
        shown = _shorten(word + "()" * called)
        last = word.split(".")[-1]
        hint = _HINTS.get(word) or _HINTS.get(last)
        if last in FUNCTIONS:
            hint = f"write {last}(...) with a column inside"
        if hint and (called or "." in word or word in FUNCTIONS or keyword.iskeyword(word)):
            raise FormulaError(f"{shown!r} is not allowed: {hint}.")
        if keyword.iskeyword(word):
            raise FormulaError(f"{shown!r} is Python, not part of a formula. {_ALLOWED}.")
        if called and "." not in word:
            raise FormulaError(f"the function {shown!r} is not allowed. {_ALLOWED}.")
        attribute = "Attribute access (a.b) is not allowed. " if "." in word else ""
        raise FormulaError(attribute + self._unknown(word))

    def _sign(self, sign: str, end: int) -> str:
        if sign not in _SIGNS:
            hint = _SIGN_HINTS.get(sign, "Put a column whose name has signs in backticks.")
            raise FormulaError(f"the sign {sign!r} is not allowed. {hint}")
        if sign in "([":
            self._open.append(sign)
            if len(self._open) > MAX_NESTING:
                raise FormulaError(f"brackets are nested more than {MAX_NESTING} deep.")
        elif sign in ")]" and (not self._open or self._open.pop() + sign not in ("()", "[]")):
            raise FormulaError(f"a {sign!r} has no opening bracket. Take it out.")
        return sign

    def _unknown(self, name: str) -> str:
        by_case = {c.casefold().strip(): c for c in self.columns if len(c) <= 200}
        near = difflib.get_close_matches(name[:100].casefold(), by_case, n=3, cutoff=0.5)
        shown = [repr(_shorten(by_case[c])) for c in near] or [repr(c) for c in self.columns]
        return (
            f"{_shorten(name)!r} is not a column of the table (the caller's variables are not "
            f"seen). {'Nearest' if near else 'The'} columns: {show_some(shown)}."
        )


def _can_be_written(name: str) -> bool:
    """Whether a name that is no plain word can stand in a formula without backticks."""
    if re.fullmatch(r"\w*", name) or re.fullmatch(_NUMBER, name) or name != name.strip():
        return False  # plain words are looked up as words
    return name[0] not in "'\"`." and "~" not in name and any(map(str.isalpha, name))


def _bounded(name: str) -> str:
    """Pattern of a name, where neither it nor what is around it runs on as a word."""
    before, after = r"\b" * bool(re.match(r"\w", name)), r"\b" * bool(re.search(r"\w$", name))
    return rf"(?<!\.){before}{re.escape(name)}{after}(?!\.\w)"


def _unquote(source: str) -> str:
    return re.sub(r"\\([\\'\"])", r"\1", source[1:-1])


def _shorten(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _show(code: str, places: dict[str, str], quote: bool = False) -> str:
    def name(found: re.Match[str]) -> str:
        column = places.get(found.group(), found.group())
        return f"`{column}`" if quote and not column.isidentifier() else column

    return re.sub(r"_column_*[0-9]+_", name, code)


def _parser_message(error: patsy.PatsyError, places: dict[str, str]) -> str:
    source = error.origin.relevant_code() if error.origin else ""
    piece = _shorten(_show(source, places))
    for beginning, message in _PARSER_MESSAGES.items():
        if error.message.startswith(beginning):
            return message.format(piece)
    return f"it cannot be read ({error.message}: {piece!r})."


def _left_column(tree: Any, places: dict[str, str]) -> str | None:
    if tree.token and tree.origin.relevant_code().startswith("("):
        raise FormulaError("the '~' is inside brackets. Take these out.")
    if len(tree.args) == 1:
        return None
    code = tree.args[0].origin.relevant_code()
    if code not in places:
        raise FormulaError(
            f"the left side must be one column, but is {_shorten(_show(code, places))!r}. Make it "
            f"a column of the table first."
        )
    return places[code]


def _count_terms(node: Any, places: dict[str, str], widths: dict[str, int], depth: int = 0) -> int:
    """Check the factors, and give the most terms that they can expand to."""
    if depth > MAX_IN_A_ROW:
        raise FormulaError(f"it has more than {MAX_IN_A_ROW} terms in a row. Use fewer.")
    if node.type == "PYTHON_EXPR":
        code = node.token.extra
        widths[code] = widths.get(code) or _FactorCheck(code, places).width
        return 1
    counts = [_count_terms(argument, places, widths, depth + 1) for argument in node.args]
    left, right = (*counts, 0, 0)[:2]
    if node.type == "**":
        power = node.args[1].token.extra if node.args[1].type in ("NUMBER", "ONE") else ""
        if not str(power).isdigit():
            return left  # which patsy refuses
        return sum(math.comb(min(left, MAX_TERMS), k + 1) for k in range(min(left, int(power))))
    product = {"*": left + right + left * right, ":": left * right}
    return min(product.get(node.type, left + right), MAX_TERMS + 1)


_FORBIDDEN = {
    ast.Attribute: "attribute access (a.b)",
    ast.Subscript: "subscripts (a[b])",
    ast.Lambda: "lambda",
    ast.JoinedStr: "f-strings",
    ast.NamedExpr: "assignment",
    ast.Starred: "starred arguments",
    ast.IfExp: "if-else",
    ast.BoolOp: "and/or",
}
_BINARY = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd)


class _FactorCheck(ast.NodeVisitor):
    """Checks the syntax tree of one factor; a kind of node without a method here is refused."""

    def __init__(self, code: str, places: dict[str, str]) -> None:
        self.code = code
        self.places = places
        self.width = 1
        self._depth = 0
        shown = _shorten(_show(code, places))
        try:
            tree = ast.parse(code, mode="eval").body
        except (SyntaxError, ValueError):
            raise FormulaError(
                f"the term {shown!r} is not complete. Arithmetic with a sign, such as a > -1, goes "
                f"inside I(...)."
            ) from None
        if not self._has_column(tree):
            raise FormulaError(f"the term {shown!r} uses no column. Take it out.")
        self.visit(tree)

    def _refuse(self, node: ast.AST, why: str) -> NoReturn:
        piece = ast.get_source_segment(self.code, node) or self.code
        raise FormulaError(f"{_shorten(_show(piece, self.places))!r}: {why}")

    def _has_column(self, *nodes: ast.AST) -> bool:
        inside = (n for node in nodes for n in ast.walk(node))
        return any(isinstance(n, ast.Name) and n.id in self.places for n in inside)

    def visit(self, node: ast.AST) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise FormulaError("a term has too many operators in a row. Make it a column first.")
        super().visit(node)
        self._depth -= 1

    def generic_visit(self, node: ast.AST) -> None:
        what = _FORBIDDEN.get(type(node), type(node).__name__)
        self._refuse(node, f"{what} is not allowed. {_ALLOWED}.")

    def visit_Name(self, node: ast.Name) -> None:
        if node.id not in self.places:
            self._refuse(node, "a contrast goes to C(), as in C(column, Sum).")

    def visit_Constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, (str, int, float, bool, type(None))):
            self._refuse(node, "only numbers and text are allowed.")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not isinstance(node.op, (*_BINARY, ast.BitOr)):
            self._refuse(node, f"this operator is not allowed. {_ALLOWED}.")
        for side in (node.left, node.right):
            text = isinstance(side, ast.Constant) and not isinstance(side.value, (int, float))
            if text or isinstance(side, (ast.Tuple, ast.List)):
                self._refuse(node, "arithmetic takes numbers and columns, not text or lists.")
            self.visit(side)
        if isinstance(node.op, ast.Pow) and not self._has_column(node):
            self._refuse(node, "the power of two numbers may be too large. Write the number.")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.visit(node.operand)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) > 1:
            self._refuse(node, "write two comparisons in brackets: (a < x) & (x < b).")
        if isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            self._refuse(node, "only ==, !=, <, <=, > and >= are allowed.")
        self.visit(node.left)
        self.visit(node.comparators[0])

    def visit_Tuple(self, node: ast.Tuple | ast.List) -> None:
        try:
            ast.literal_eval(node)
        except ValueError:
            self._refuse(node, "a list may hold numbers and text only, not a column.")

    visit_List = visit_Tuple  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "id", "")
        if name not in FUNCTIONS:
            self._refuse(node.func, "it is a column, not a function, and cannot be called.")
        signature = inspect.signature(FUNCTIONS[name])
        try:
            options: Any = {argument.arg: argument.value for argument in node.keywords}
            given = signature.bind(*node.args, **options).arguments
        except TypeError as error:
            self._refuse(node, f"{error}. Usage: {name}{signature}.")
        if name not in CONTRASTS and not self._has_column(*node.args, *options.values()):
            self._refuse(node, "uses no column.")
        for place, (option, value) in enumerate(given.items()):
            if name not in _OF_COLUMNS and (place or name in CONTRASTS):
                self._option(node, option, value)
        for value in (*node.args, *options.values()):
            contrast = name == "C" and value is given.get("contrast")
            if not (contrast and isinstance(value, ast.Name) and value.id in CONTRASTS):
                self.visit(value)

    def _option(self, node: ast.Call, option: str, value: ast.expr) -> None:
        if self._has_column(value):
            self._refuse(node, f"{option!r} takes numbers or text, not a column.")
        size = len(value.elts) if isinstance(value, (ast.Tuple, ast.List)) else 0
        if option in ("df", "degree"):
            size = value.value if isinstance(value, ast.Constant) else "?"  # type: ignore[assignment]
            if not isinstance(size, (int, type(None))):
                self._refuse(node, f"{option} must be a whole number.")
        self.width *= max(size or 1, 1) if option in ("df", "knots") else 1
        if max(self.width, size or 1) > MAX_DF:
            self._refuse(node, f"{option} (of all splines together) is larger than {MAX_DF}.")
