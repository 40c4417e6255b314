"""Formulas: which columns they use, whatever these are called, and that nothing else is in them.

The text is rewritten first: each column becomes a plain placeholder, and any other word must be an
allowed one. patsy parses the result and expands its terms, within limits on the size, and the
syntax tree of each factor is checked. Nothing is evaluated here.
"""

from __future__ import annotations

import difflib
import keyword
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import patsy
import patsy.builtins
from patsy.parse_formula import parse_formula as parse_with_patsy

from cfair.errors import FormulaError
from cfair.formula.allowed import (
    ALLOWED,
    CONTRASTS,
    FUNCTIONS,
    MAX_NESTING,
    FactorCheck,
    shorten,
    show_code,
)
from cfair.frame import show_some

MAX_CHARACTERS = 10_000
MAX_IN_A_ROW = 300  # patsy calls itself twice for each operator
MAX_TERMS = 500


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
    "Q": "it takes one column name in quotes, as in Q('body mass')",
    "and": "write & between conditions in brackets: I((a > 1) & (b > 1))",
    "or": "write | between conditions in brackets: I((a > 1) | (b > 1))",
    "not": "write ~ before a condition in brackets: I(~(a > 1))",
    "in is": "compare with each value: I((a == 1) | (a == 2))",
}
_HINTS = {word: hint for words, hint in _INSTEAD.items() for word in words.split()}
_SIGN_HINTS = {
    "^": "For powers write **: (a + b)**2, or I(a**2).",
    "'": "A quote is not closed.",
    '"': "A quote is not closed.",
    "`": "A backtick is not closed.",
    ".": "Name all columns, as in '~ age + sex'; attribute access (a.b) is not allowed.",
}
# What patsy says of a formula that it cannot parse, by the beginning, and how it is said here.
_PARSER_MESSAGES = {
    "expected a noun, but": "a term is missing after {}. Add it; '~ 1' has no covariates.",
    "expected a noun, not": "a term is missing before {}. Add it, or take the sign out.",
    "expected an operator": "{} cannot follow a term. Arithmetic and conditions go inside I(...).",
    "intercept term": "the intercept (1) cannot interact with a term. Take it out.",
    "'**' requires": "'**' between terms takes a whole number. For a square write I(a**2).",
    "Unary minus": "nothing is before the minus sign of {}. For arithmetic write I(-a).",
    "numbers besides": "{} is a number; of these only 0 and 1 can be terms. Write I(2 * a).",
    "~ can only": "it has more than one '~'. Write one, as in 'd ~ age'.",
}

_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])"
_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_SIGN = r"\*\*|//|[=!<>:]=|."
_SIGNS = ("**", "//", "==", "!=", "<=", ">=", *"+-*/%:~()[],=<>&|")


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
    what, intercept, codes, placeholders, widths
        For `build_design`: what is modelled, whether with an intercept, the code of each term's
        factors, the column of each placeholder in it, and the columns of a factor's splines.
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

    @property
    def bare_columns(self) -> tuple[str, ...]:
        """Columns that stand as they are in a term, outside of C() and any other function."""
        codes = {code for term in self.codes for code in term}
        return tuple(column for place, column in self.placeholders.items() if place in codes)

    def show(self, code: str, *, quote: bool = False) -> str:
        """Put the columns' names for the placeholders, in backticks where `quote` asks for it."""
        return show_code(code, self.placeholders, quote)

    def columns_of(self, code: str) -> tuple[str, ...]:
        """Columns that a factor uses."""
        return tuple(c for place, c in self.placeholders.items() if place in code)

    def error(self, message: str) -> FormulaError:
        """Say what is wrong, and with which formula."""
        return FormulaError(f"{self.what} formula {shorten(self.text)!r}: {message}")


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
    raise FormulaError(f"{what} formula {shorten(text)!r}: {message}")


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
        _count_terms(tree.args[-1], places, widths)
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
            raise FormulaError(f"the number {shorten(source)!r} is too large.")
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
        if word in FUNCTIONS and called:
            return word
        if word in self.known and not (word == "Q" and called):
            return self._backticks(word, end)
        if word not in ("True", "False", "None", *CONTRASTS):
            self._refuse_word(word, called)
        return word

    def _refuse_word(self, word: str, called: bool) -> NoReturn:
        shown = shorten(word + "()" * (called and not keyword.iskeyword(word)))
        dotted, last = "." in word, word.split(".")[-1]
        hint = f"write {last}(x)" if last in FUNCTIONS else _HINTS.get(word, _HINTS.get(last))
        if hint and (called or dotted or word in FUNCTIONS or keyword.iskeyword(word)):
            raise FormulaError(f"{shown!r} is not allowed: {hint}.")
        if keyword.iskeyword(word) or (called and not dotted):
            raise FormulaError(f"{shown!r} is not allowed in a formula. {ALLOWED}.")
        attribute = "Attribute access (a.b) is not allowed. " if dotted else ""
        raise FormulaError(self._unknown(word) + attribute)

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
        shown = [repr(shorten(by_case[c])) for c in near] or [repr(c) for c in self.columns]
        return (
            f"{shorten(name)!r} is not a column of the table (the caller's variables are not "
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


def _parser_message(error: patsy.PatsyError, places: dict[str, str]) -> str:
    source = error.origin.relevant_code() if error.origin else ""
    piece = shorten(show_code(source, places))
    for beginning, message in _PARSER_MESSAGES.items():
        if error.message.startswith(beginning):
            return message.format(repr(piece))
    return f"it cannot be read ({error.message}: {piece!r})."


def _left_column(tree: Any, places: dict[str, str]) -> str | None:
    if tree.token and tree.origin.relevant_code().startswith("("):
        raise FormulaError("the '~' is inside brackets. Take these out.")
    if len(tree.args) == 1:
        return None
    code = tree.args[0].origin.relevant_code()
    if code not in places:
        raise FormulaError(
            f"the left side must be one column, but is {shorten(show_code(code, places))!r}. "
            f"Make it a column of the table first."
        )
    return places[code]


def _count_terms(node: Any, places: dict[str, str], widths: dict[str, int], depth: int = 0) -> int:
    """Check the factors, and give the most terms that they can expand to."""
    if depth > MAX_IN_A_ROW:
        raise FormulaError(f"it has more than {MAX_IN_A_ROW} terms in a row. Use fewer.")
    if node.type == "PYTHON_EXPR":
        code = node.token.extra
        widths[code] = widths.get(code) or FactorCheck(code, places).width
        return 1
    counts = [_count_terms(argument, places, widths, depth + 1) for argument in node.args]
    left, right = (*counts, 0, 0)[:2]
    if node.type == "**":
        power = node.args[1].token.extra if node.args[1].type in ("NUMBER", "ONE") else ""
        if not str(power).isdigit():
            return left  # which patsy refuses
        total = sum(math.comb(left, k + 1) for k in range(min(left, int(power))))
    else:
        products = {"*": left + right + left * right, ":": left * right}
        total = products.get(node.type, left + right)
    if total > MAX_TERMS:
        raise FormulaError(f"it expands to more than {MAX_TERMS} terms. Use fewer interactions.")
    return total
