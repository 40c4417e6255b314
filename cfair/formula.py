"""Patsy formulas in a closed environment: names, what is allowed, designs rebuilt on new rows.

A formula is read in three steps. The scanner finds the columns, whatever they are called, and puts
a plain placeholder in the place of each. The terms are then expanded under size limits, and each
factor is checked on its syntax tree: nothing is evaluated before all of it has passed. What is left
for patsy is the coding of categories and the transforms that remember the rows they were fitted on.
"""

from __future__ import annotations

import ast
import difflib
import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.columns import formula_column
from cfair.errors import DataError, FormulaError
from cfair.frame import show_some

MAX_CHARACTERS = 10_000
MAX_NESTING = 100
MAX_TERMS = 500
MAX_LEVELS = 2_000
MAX_DESIGN_COLUMNS = 20_000
_MAX_FACTOR_TOKENS = 500
_MAX_PRODUCTS = 200_000  # pairs of terms multiplied in one formula
_MAX_DF = 1_000


class _Signature(NamedTuple):
    """Arguments of an allowed function: how many are needed, their names, any number or not."""

    needed: int
    names: tuple[str, ...]
    variadic: bool = False


_ONE = _Signature(1, ("x",))
_STANDARDIZE = _Signature(1, ("x", "center", "rescale", "ddof"))
_CUBIC = _Signature(1, ("x", "df", "knots", "lower_bound", "upper_bound", "constraints"))
_TWO = _Signature(2, ("x1", "x2"))
_BS = ("x", "df", "knots", "degree", "include_intercept", "lower_bound", "upper_bound")

_FUNCTIONS: dict[str, _Signature] = {
    "C": _Signature(1, ("data", "contrast", "levels")),
    "I": _ONE,
    "Q": _Signature(1, ("name",)),
    "center": _ONE,
    "standardize": _STANDARDIZE,
    "scale": _STANDARDIZE,
    "bs": _Signature(1, _BS),
    "cr": _CUBIC,
    "cc": _CUBIC,
    "te": _Signature(1, ("constraints",), variadic=True),
    "Treatment": _Signature(0, ("reference",)),
    "Sum": _Signature(0, ("omit",)),
    "Poly": _Signature(0, ("scores",)),
    "Helmert": _Signature(0, ()),
    "Diff": _Signature(0, ()),
    **dict.fromkeys(("log", "log1p", "log2", "log10", "exp", "sqrt", "abs", "sin", "cos"), _ONE),
    "minimum": _TWO,
    "maximum": _TWO,
    "clip": _Signature(1, ("a", "a_min", "a_max")),
    "where": _Signature(3, ("condition", "x", "y")),
}
_CONTRASTS = frozenset({"Treatment", "Sum", "Poly", "Helmert", "Diff"})
_CONSTANTS = frozenset({"True", "False", "None"})
_OF_COLUMNS = frozenset({"te", "minimum", "maximum", "clip", "where"})  # of several columns

_REMEMBERS = "which remembers the rows it was fitted on"
_CENTER = f"write center(x), {_REMEMBERS}"
_STANDARD = f"write standardize(x) or scale(x), {_REMEMBERS}"
_HINTS: dict[str, str] = {
    **dict.fromkeys(("mean", "average", "nanmean", "median", "sum"), _CENTER),
    **dict.fromkeys(("std", "nanstd", "var", "zscore", "mad"), _STANDARD),
    **dict.fromkeys(("min", "max", "ptp", "quantile", "percentile", "rank"), _STANDARD),
    **dict.fromkeys(("factor", "as_factor", "as.factor", "Categorical", "category"), "write C(x)"),
    **dict.fromkeys(("ns", "rcs", "s", "splines"), "write cr(x, df=4) or bs(x, df=4)"),
    **dict.fromkeys(("poly", "power", "pow", "square"), "write x + I(x**2), or bs(x, df=4)"),
    **dict.fromkeys(("ln",), "write log(x)"),
    **dict.fromkeys(("ifelse", "if_else"), "write where(condition, x, y)"),
    **dict.fromkeys(("fmin", "pmin"), "write minimum(x, y)"),
    **dict.fromkeys(("fmax", "pmax"), "write maximum(x, y)"),
    **dict.fromkeys(("absolute", "fabs"), "write abs(x)"),
    "offset": "an offset is not available here; leave it out, or enter the column as a term",
}
_KEYWORD_HINTS = {
    "and": "write & between conditions in brackets: I((a > 1) & (b > 1))",
    "or": "write | between conditions in brackets: I((a > 1) | (b > 1))",
    "not": "write ~ before a condition in brackets: I(~(a > 1))",
    "in": "compare with each value: I((a == 1) | (a == 2))",
    "is": "compare with ==",
    "if": "write where(condition, x, y)",
    "else": "write where(condition, x, y)",
}
_ALLOWED = "Allowed are columns, numbers, text, arithmetic, comparison and " + ", ".join(_FUNCTIONS)
_UNSEEN = "the caller's variables are not seen"

_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_QUOTED_CALL = re.compile(r"\s*\(\s*(?=['\"])")
_OPERATORS = (
    *("**", "//", "==", "!=", "<=", ">=", ":="),
    *"+-*/%:~()[],=<>&|",
)


class _Refused(ValueError):  # noqa: N818
    """Why a formula is refused; the public functions add which formula it was."""


class _Unseen(ValueError):  # noqa: N818
    """Values of a categorical column that did not occur in fitting."""

    def __init__(self, values: Sequence[Any], n_rows: int) -> None:
        super().__init__(show_some([repr(v) for v in values]))
        self.n_rows = n_rows


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
    """

    text: str
    left: str | None
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    _what: str = field(repr=False)
    _intercept: bool = field(repr=False)
    _terms: tuple[tuple[str, ...], ...] = field(repr=False)
    _names: _Placeholders = field(repr=False)

    @property
    def terms(self) -> tuple[str, ...]:
        """The right-hand terms as they are printed, without the intercept."""
        return tuple(":".join(self._names.show(code) for code in term) for term in self._terms)

    def _error(self, message: str) -> FormulaError:
        return FormulaError(f"{self._what} formula {_shorten(self.text)!r}: {message}")


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
    known = tuple(dict.fromkeys(str(name) for name in columns))
    try:
        return _read(text, known, what, look_for_other_readings=True)
    except _Refused as refused:
        message = str(refused)
    except (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError) as error:
        message = f"it cannot be read ({type(error).__name__}). Write it in simpler terms."
    raise FormulaError(f"{what} formula {_shorten(text)!r}: {message}")


def _read(
    text: str, columns: tuple[str, ...], what: str, *, look_for_other_readings: bool
) -> Formula:
    if len(text) > MAX_CHARACTERS:
        raise _Refused(
            f"it has {len(text):,} characters, more than the {MAX_CHARACTERS:,} that are read. "
            f"Leave out terms, or combine columns beforehand."
        )
    if not text.strip():
        raise _Refused("it is empty. Write '~ 1' for a model without covariates.")
    names = _Placeholders.for_text(text)
    scanner = _Scanner(text, columns, names)
    left, right = _split_sides(scanner.scan())
    expression = _Terms(names).expand(right)
    terms = tuple(expression.terms.values())
    for code in dict.fromkeys(code for term in terms for code in term):
        _FactorCheck(code, names).check()
    used = tuple(dict.fromkeys(c for term in terms for code in term for c in names.in_code(code)))
    in_order = tuple(name for name in names.columns if name in used)
    if left is not None and left in used:
        raise _Refused(f"column {left!r} is on both sides. Take it out of the right-hand side.")
    notes = list(scanner.notes)
    if look_for_other_readings:
        notes += _other_readings(scanner.as_written, columns)
    return Formula(text, left, in_order, tuple(notes), what, not expression.removed, terms, names)


def _other_readings(as_written: Iterable[str], columns: tuple[str, ...]) -> Iterator[str]:
    """Notes on columns such as 'risk-score' whose name is also a formula of other columns."""
    for name in dict.fromkeys(as_written):
        if not set(name) & set("+-*/:%<>=&|("):
            continue
        others = tuple(column for column in columns if column != name)
        try:
            terms = _read(name, others, "", look_for_other_readings=False).terms
        except (_Refused, RecursionError, MemoryError, SyntaxError, ValueError, OverflowError):
            continue
        shown = " and ".join(repr(term) for term in terms)
        yield (
            f"{name!r} was read as the column of this name, not as a formula of other columns"
            + (f" ({shown})." if shown else ".")
            + " Change the spaces around its signs for the other reading."
        )


@dataclass(frozen=True)
class _Placeholders:
    """Plain names that stand for columns inside the rewritten formula."""

    stem: str
    columns: list[str] = field(default_factory=list)

    @classmethod
    def for_text(cls, text: str) -> _Placeholders:
        stem = "_column"
        while stem in text:
            stem += "_"
        return cls(stem)

    def __hash__(self) -> int:
        return hash((self.stem, *self.columns))

    def add(self, column: str) -> str:
        if column not in self.columns:
            self.columns.append(column)
        return f"{self.stem}{self.columns.index(column)}_"

    def is_one(self, code: str) -> bool:
        return code.startswith(self.stem)

    def _pattern(self) -> re.Pattern[str]:
        return re.compile(re.escape(self.stem) + r"([0-9]+)_")

    def in_code(self, code: str) -> tuple[str, ...]:
        """Columns of which the code uses the placeholders, in order."""
        found = (self.columns[int(m.group(1))] for m in self._pattern().finditer(code))
        return tuple(dict.fromkeys(found))

    def show(self, code: str, *, quote: bool = False) -> str:
        """Replace the placeholders by the plain names, or by the names as they can be written."""

        def name(match: re.Match[str]) -> str:
            column = self.columns[int(match.group(1))]
            return f"`{column}`" if quote and not column.isidentifier() else column

        return self._pattern().sub(name, code)

    def as_data(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays by placeholder."""
        return {self.add(column): array for column, array in values.items()}


class _Token(NamedTuple):
    kind: str  # column, function, contrast, keyword, constant, number, string or operator
    code: str
    source: str


class _Scanner:
    """Cuts a formula into tokens; columns become placeholders, all else must be allowed."""

    def __init__(self, text: str, columns: tuple[str, ...], names: _Placeholders) -> None:
        self.text = text
        self.columns = dict.fromkeys(columns)
        self.names = names
        self.notes: list[str] = []
        self.as_written: list[str] = []
        self.tokens: list[_Token] = []
        self._depth = 0
        self._position = 0
        writable = [name for name in columns if _can_be_written(name)]
        self._by_length = sorted({len(name) for name in writable}, reverse=True)
        self._writable = frozenset(writable)

    def scan(self) -> list[_Token]:
        while self._position < len(self.text):
            character = self.text[self._position]
            if character.isspace():
                self._position += 1
            elif character == "`":
                self._backticks()
            elif character in "'\"":
                self._add("string", *self._string())
            elif not self._name_as_written():
                self._plain(character)
        if self._depth:
            raise _Refused("a bracket is not closed. Add the ')' that is missing.")
        return self.tokens

    def _plain(self, character: str) -> None:
        if character.isdigit() or character == ".":
            self._number()
        elif _is_word(character):
            self._word()
        else:
            self._operator(character)

    def _add(self, kind: str, code: str, source: str) -> None:
        self.tokens.append(_Token(kind, code, source))
        self._position += len(source)

    def _add_column(self, name: str, source: str) -> None:
        rest = self.text[self._position + len(source) :].lstrip()
        if rest.startswith("("):
            raise _Refused(
                f"{_shorten(source)!r} is a column, not a function, and cannot be called. "
                f"Write an operator between the column and the bracket."
            )
        if rest.startswith("["):
            raise _Refused(
                f"{_shorten(source + '[')!r}: subscripts are not allowed. Make the part a column "
                f"of the table first."
            )
        if rest.startswith(".") and not _NUMBER.match(rest):
            self._attribute(source, rest)
        self._add("column", self.names.add(name), source)

    def _backticks(self) -> None:
        end = self.text.find("`", self._position + 1)
        if end < 0:
            raise _Refused("a backtick is not closed. Add the one that is missing.")
        name = self.text[self._position + 1 : end]
        if name not in self.columns:
            raise _Refused(self._unknown(name))
        self._add_column(name, self.text[self._position : end + 1])

    def _string(self) -> tuple[str, str]:
        """Code and source of the quoted text that starts here."""
        text, start = self.text, self._position
        quote, at, value = text[start], start + 1, []
        while at < len(text) and text[at] != quote:
            if text[at] == "\\" and at + 1 < len(text) and text[at + 1] in "\\'\"":
                at += 1
            value.append(text[at])
            at += 1
        if at >= len(text):
            raise _Refused(f"a quote is not closed: {_shorten(text[start:])!r}. Close it.")
        source, content = text[start : at + 1], "".join(value)
        plain = content.isprintable() and "\\" not in source
        return (source if plain else repr(content)), source

    def _name_as_written(self) -> bool:
        """Take the longest column name that is no plain word and stands here as it is written."""
        text, start = self.text, self._position
        inside_word = start > 0 and _is_word(text[start - 1]) and _is_word(text[start])
        if inside_word or (start > 0 and text[start - 1] == "." and self.tokens):
            return False
        for length in self._by_length:
            name = text[start : start + length]
            if name not in self._writable:
                continue
            after = text[start + length : start + length + 2]
            runs_on = bool(after) and _is_word(name[-1]) and _is_word(after[0])
            if runs_on or (after[:1] == "." and _is_word(after[1:])):
                continue
            self._add_column(name, name)
            self.as_written.append(name)
            return True
        return False

    def _number(self) -> None:
        found = _NUMBER.match(self.text, self._position)
        if found is None:
            self._dot_or_digit()
        end = found.end()
        word = self._word_at(self._position)
        if word in self.columns and not _NUMBER.fullmatch(word):
            self._add_column(word, word)
            return
        if self.text[end : end + 1] and (_is_word(self.text[end]) or self.text[end] == "."):
            piece = re.match(r"[\w.]+", self.text[self._position :])
            raise _Refused(self._unknown(piece.group() if piece else word))
        value = float(found.group())
        if not math.isfinite(value) or (found.group().isdigit() and value > 1e18):
            raise _Refused(f"the number {_shorten(found.group())!r} is too large.")
        code = found.group()
        # Python reads 01 as an error and 1. as 1.0; both are numbers here.
        code = code.lstrip("0") or "0" if code.isdigit() else code
        self._add("number", code, found.group())

    def _dot_or_digit(self) -> NoReturn:
        alone = re.match(r"\.(?![\w.])", self.text[self._position :])
        if alone and not (self.tokens and self.tokens[-1].source in ")]"):
            raise _Refused(
                "'.' does not stand for all columns here. Name them, as in '~ age + sex'."
            )
        piece = re.match(r"\.?[\w.]*", self.text[self._position :])
        shown = piece.group() if piece else "."
        before = "".join(token.source for token in self.tokens[-1:])
        if shown.startswith("."):
            self._attribute(before, shown)
        raise _Refused(self._unknown(shown))

    def _attribute(self, owner: str, rest: str) -> NoReturn:
        piece = re.match(r"[\w.]*", rest)
        path = piece.group() if piece else "."
        last = path.rstrip(".").split(".")[-1]
        whole = _shorten(owner + path)
        if last in _HINTS:
            raise _Refused(f"{whole!r} is not allowed: {_HINTS[last]}.")
        if last in _FUNCTIONS:
            signature = ", ".join(_FUNCTIONS[last].names[: _FUNCTIONS[last].needed])
            raise _Refused(f"{whole!r} is not allowed: write {last}({signature}).")
        near = self._nearest(owner + path)
        raise _Refused(
            f"{whole!r} is not a column, and attribute access (a.b) is not allowed. {near}"
        )

    def _word_at(self, start: int) -> str:
        end = start
        while end < len(self.text) and _is_word(self.text[end]):
            end += 1
        return self.text[start:end]

    def _word(self) -> None:
        word = self._word_at(self._position)
        end = self._position + len(word)
        rest = self.text[end:].lstrip()
        called = rest.startswith("(")
        if word == "Q" and called:
            self._quoted_column(end)
        elif called and word in _FUNCTIONS:
            self._note_shadowed(word)
            self._add("function", word, word)
        elif self._depth and rest.startswith("=") and not rest.startswith("=="):
            self._add("keyword", word, word)
        elif word in self.columns:
            self._note_shadowed(word)
            self._add_column(word, word)
        elif word in _CONSTANTS and not called:
            self._add("constant", word, word)
        elif word in _CONTRASTS:
            self._add("contrast", word, word)
        else:
            self._refuse_word(word, self.text[end : end + 1], called)

    def _note_shadowed(self, word: str) -> None:
        if word in _FUNCTIONS and word in self.columns:
            note = (
                f"column {word!r} has the name of a formula function: {word}(...) was read as the "
                f"function, {word!r} without a bracket as the column."
            )
            if note not in self.notes:
                self.notes.append(note)

    def _quoted_column(self, end: int) -> None:
        opening = _QUOTED_CALL.match(self.text, end)
        start = self._position
        if opening:
            self._position = opening.end()
            code, source = self._string()
            closing = re.compile(r"\s*\)").match(self.text, self._position + len(source))
            self._position = start
            if closing:
                name = ast.literal_eval(code)
                if name not in self.columns:
                    raise _Refused(self._unknown(name))
                self._add_column(name, self.text[start : closing.end()])
                return
        raise _Refused("Q() takes one column name in quotes: Q('body mass').")

    def _refuse_word(self, word: str, after: str, called: bool) -> NoReturn:
        shown = _shorten(word)
        if after in ("'", '"') and len(word) <= 2:
            raise _Refused(
                f"{word + after + '...' + after!r}: f-strings and other prefixed strings are not "
                f"allowed. Write plain text in quotes."
            )
        if keyword.iskeyword(word):
            why = _KEYWORD_HINTS.get(word, _ALLOWED)
            raise _Refused(f"{shown!r} is Python, not part of a formula: {why}.")
        if word.startswith("__"):
            raise _Refused(f"{shown!r}: names that start with two underscores are not allowed.")
        if after == ".":
            rest = self.text[self._position + len(word) :]
            self._attribute(word, rest)
        if word in _FUNCTIONS:
            raise _Refused(f"{word!r} is a function: write {word}(...) with a column inside.")
        if called:
            hint = _HINTS.get(word)
            raise _Refused(
                f"the function {shown + '()'!r} is not allowed"
                + (f": {hint}." if hint else f". {_ALLOWED}.")
            )
        raise _Refused(self._unknown(word))

    def _operator(self, character: str) -> None:
        found = next((o for o in _OPERATORS if self.text.startswith(o, self._position)), None)
        if found is None:
            raise _Refused(self._unknown_sign(character))
        if found == ":=":
            raise _Refused("':=' (assignment) is not allowed in a formula.")
        if found in "([":
            self._open(found)
        elif found in ")]":
            self._depth -= 1
            if self._depth < 0:
                raise _Refused(f"a {found!r} has no opening bracket. Take it out.")
        self._add("operator", found, found)

    def _open(self, bracket: str) -> None:
        before = self.tokens[-1] if self.tokens else None
        if bracket == "[" and before and (before.kind != "operator" or before.source in ")]"):
            raise _Refused(
                f"{_shorten(before.source + '[')!r}: subscripts are not allowed. Make the part a "
                f"column of the table first."
            )
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise _Refused(f"brackets are nested more than {MAX_NESTING} deep. Write it flatter.")

    @staticmethod
    def _unknown_sign(character: str) -> str:
        hints = {
            "^": "For powers write **: (a + b)**2, or I(a**2).",
            "{": "Braces (sets, dicts) are not allowed.",
            "}": "Braces (sets, dicts) are not allowed.",
            "#": "Comments are not allowed.",
            "!": "For 'not' write ~ before a condition in brackets: I(~(a > 1)).",
        }
        hint = hints.get(character, "Columns whose names have signs can be put in backticks.")
        return f"the sign {character!r} is not allowed. {hint}"

    def _unknown(self, name: str) -> str:
        return f"{_shorten(name)!r} is not a column of the table ({_UNSEEN}). {self._nearest(name)}"

    def _nearest(self, name: str) -> str:
        if not self.columns:
            return "The table has no columns."
        by_case = {c.casefold().strip(): c for c in self.columns if len(c) <= 200}
        near = difflib.get_close_matches(name[:100].casefold(), by_case, n=3, cutoff=0.5)
        shown = [by_case[c] for c in near] or list(self.columns)
        listed = show_some([repr(_shorten(c)) for c in shown])
        return f"{'Nearest' if near else 'The'} columns: {listed}."


def _can_be_written(name: str) -> bool:
    """Whether a name that is no plain word can stand in a formula without backticks."""
    if not name or all(_is_word(character) for character in name):
        return False  # plain words are looked up as words
    if name != name.strip() or name[0] in "'\"`." or "~" in name or _NUMBER.fullmatch(name):
        return False
    return any(character.isalpha() for character in name)


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


def _shorten(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _split_sides(tokens: list[_Token]) -> tuple[str | None, list[_Token]]:
    """Column on the left and tokens on the right of the one ~ outside of brackets."""
    depth, at = 0, []
    for i, token in enumerate(tokens):
        if token.kind == "operator":
            depth += (token.source in "([") - (token.source in ")]")
            if token.source == "~" and depth == 0:
                at.append(i)
    if len(at) > 1:
        raise _Refused("it has more than one '~'. Write one, as in 'd ~ age + sex'.")
    left, right = (tokens[: at[0]], tokens[at[0] + 1 :]) if at else ([], tokens)
    if not right:
        raise _Refused("nothing is on the right of '~'. Write '~ 1' for no covariates.")
    if left and not (len(left) == 1 and left[0].kind == "column"):
        shown = _shorten("".join(token.source for token in left))
        raise _Refused(
            f"the left side must be one column, but is {shown!r}. Make it a column of the table "
            f"first."
        )
    # The column on the left was added first; it must not count as one of the right-hand side.
    return (_bare(left[0].source) if left else None), right


def _bare(source: str) -> str:
    """Name of the column that a token was written as: plain, in backticks, or in Q('...')."""
    if source.startswith("`"):
        return source[1:-1]
    quoted = re.fullmatch(r"Q\s*\(\s*(['\"].*['\"])\s*\)", source, re.DOTALL)
    return str(ast.literal_eval(quoted.group(1))) if quoted else source


@dataclass(frozen=True)
class _Expression:
    """Terms of a part of a formula: factor codes by the set of them, and what of the intercept."""

    terms: dict[frozenset[str], tuple[str, ...]] = field(default_factory=dict)
    intercept: bool = False
    removed: bool = False
    literal: str | None = None


_BINARY = {"+": 100, "-": 100, "*": 200, "/": 200, ":": 300, "**": 500}
_UNARY = 100
_FACTOR_ENDS = frozenset({*_BINARY, "~", ")"})


class _Terms:
    """Expands operators into terms as patsy does, but flat, and with limits on the size."""

    def __init__(self, names: _Placeholders) -> None:
        self.names = names
        self._products = 0
        self._nouns: list[_Expression] = []
        self._pending: list[str] = []  # operators, 'unary+', 'unary-' and '('

    def expand(self, tokens: list[_Token]) -> _Expression:
        position, want_noun = 0, True
        while position < len(tokens):
            token = tokens[position]
            operator = token.source if token.kind == "operator" else ""
            if operator == "~":
                raise _Refused("'~' inside brackets: for 'not' write I(~(a > 1)).")
            if want_noun:
                position, want_noun = self._noun(tokens, position, operator)
            else:
                want_noun = self._after_noun(token, operator)
                position += 1
        if want_noun:
            last = tokens[-1].source if tokens else ""
            raise _Refused(f"a term is missing after {last!r}. Add it, or take {last!r} out.")
        while self._pending:
            self._run()
        self._check_literal(self._nouns[0])
        return self._nouns[0]

    def _noun(self, tokens: list[_Token], position: int, operator: str) -> tuple[int, bool]:
        if operator == "(":
            self._pending.append("(")
            return position + 1, True
        if operator in ("+", "-"):
            self._pending.append(f"unary{operator}")
            return position + 1, True
        if operator in _FACTOR_ENDS:
            raise _Refused(f"a term is missing before {operator!r}. Add it, or take it out.")
        end = self._factor_end(tokens, position)
        self._nouns.append(self._factor(tokens[position:end]))
        return end, False

    @staticmethod
    def _factor_end(tokens: list[_Token], start: int) -> int:
        depth, at = 0, start
        while at < len(tokens):
            token = tokens[at]
            if token.kind == "operator":
                if depth == 0 and token.source in _FACTOR_ENDS:
                    break
                depth += (token.source in "([") - (token.source in ")]")
            at += 1
        if at - start > _MAX_FACTOR_TOKENS:
            raise _Refused(
                f"the term that starts with {_source(tokens[start : start + 8])!r} has "
                f"{at - start} parts, more than {_MAX_FACTOR_TOKENS}. Make it a column of the "
                f"table first."
            )
        return at

    def _factor(self, tokens: list[_Token]) -> _Expression:
        if len(tokens) == 1 and tokens[0].kind == "number":
            literal = tokens[0].code
            if literal == "1":
                return _Expression(intercept=True, literal=literal)
            return _Expression(removed=literal == "0", literal=literal)
        code = _to_code(tokens)
        return _Expression({frozenset((code,)): (code,)})

    def _after_noun(self, token: _Token, operator: str) -> bool:
        if operator == ")":
            while self._pending and self._pending[-1] != "(":
                self._run()
            if not self._pending:
                raise _Refused("a ')' has no opening bracket. Take it out.")
            self._pending.pop()
            return False
        if operator not in _BINARY:
            raise _Refused(
                f"{_shorten(token.source)!r} cannot follow a term. Put an operator between them; "
                f"arithmetic and conditions go inside I(...)."
            )
        while self._pending and _BINARY[operator] <= self._precedence(self._pending[-1]):
            self._run()
        self._pending.append(operator)
        return True

    @staticmethod
    def _precedence(operator: str) -> int:
        return -1 if operator == "(" else _BINARY.get(operator, _UNARY)

    def _run(self) -> None:
        operator = self._pending.pop()
        if operator == "(":
            raise _Refused("a bracket is not closed. Add the ')' that is missing.")
        right = self._nouns.pop()
        if operator.startswith("unary"):
            self._nouns.append(self._unary(operator, right))
            return
        left = self._nouns.pop()
        if operator != "**":
            for side in (left, right):
                self._check_literal(side)
        compute = {
            "+": self._plus,
            "-": self._minus,
            "*": self._product,
            "/": self._nested,
            ":": self._interaction,
            "**": self._power,
        }
        self._nouns.append(compute[operator](left, right))

    @staticmethod
    def _check_literal(side: _Expression) -> None:
        if side.literal not in (None, "0", "1"):
            raise _Refused(
                f"the number {side.literal} cannot be a term: only 0 and 1 (the intercept) can. "
                f"For arithmetic write I(2 * a)."
            )

    def _unary(self, operator: str, side: _Expression) -> _Expression:
        self._check_literal(side)
        if operator == "unary+":
            return side
        if side.literal == "0":
            return _Expression(intercept=True)
        if side.literal == "1":
            return _Expression(removed=True)
        raise _Refused("a minus sign with nothing before it. For arithmetic write I(-a).")

    @staticmethod
    def _plus(left: _Expression, right: _Expression) -> _Expression:
        if right.literal == "0":
            return _Expression(left.terms, removed=True)
        terms = _limited({**left.terms, **_new(right.terms, left.terms)})
        if right.intercept:
            return _Expression(terms, intercept=True)
        return _Expression(terms, left.intercept, left.removed)

    @staticmethod
    def _minus(left: _Expression, right: _Expression) -> _Expression:
        if right.literal == "0":
            return _Expression(left.terms, intercept=True)
        terms = _new(left.terms, right.terms)
        if right.literal == "1" or right.intercept:
            return _Expression(terms, removed=True)
        return _Expression(terms, left.intercept, left.removed)

    def _interaction(self, left: _Expression, right: _Expression) -> _Expression:
        if left.intercept or right.intercept:
            raise _Refused("the intercept (1) cannot interact with a term. Take it out.")
        self._products += len(left.terms) * len(right.terms)
        if self._products > _MAX_PRODUCTS:
            raise _Refused(_too_many_terms())
        terms: dict[frozenset[str], tuple[str, ...]] = {}
        for one in left.terms.values():
            for other in right.terms.values():
                both = tuple(dict.fromkeys((*one, *other)))
                terms.setdefault(frozenset(both), both)
            _limited(terms)
        return _Expression(terms)

    def _product(self, left: _Expression, right: _Expression) -> _Expression:
        both = self._interaction(left, right).terms
        terms = {**left.terms, **_new(right.terms, left.terms)}
        return _Expression(_limited({**terms, **_new(both, terms)}))

    def _nested(self, left: _Expression, right: _Expression) -> _Expression:
        codes = tuple(dict.fromkeys(code for term in left.terms.values() for code in term))
        combined = _Expression({frozenset(codes): codes}, left.intercept)
        inner = self._interaction(combined, right).terms
        return _Expression(_limited({**left.terms, **_new(inner, left.terms)}))

    def _power(self, left: _Expression, right: _Expression) -> _Expression:
        self._check_literal(left)
        if left.intercept:
            raise _Refused("the intercept (1) cannot be raised to a power. Take it out.")
        literal = right.literal or ""
        if not literal.isdigit() or int(literal) < 1:
            raise _Refused("'**' between terms takes a whole number. For a square write I(a**2).")
        terms, big = dict(left.terms), left
        for _ in range(1, min(len(left.terms), int(literal))):
            big = self._interaction(left, big)
            terms = _limited({**terms, **_new(big.terms, terms)})
        return _Expression(terms)


def _new(
    terms: Mapping[frozenset[str], tuple[str, ...]], known: Mapping[frozenset[str], Any]
) -> dict[frozenset[str], tuple[str, ...]]:
    return {key: term for key, term in terms.items() if key not in known}


def _limited(
    terms: dict[frozenset[str], tuple[str, ...]],
) -> dict[frozenset[str], tuple[str, ...]]:
    if len(terms) > MAX_TERMS:
        raise _Refused(_too_many_terms())
    return terms


def _too_many_terms() -> str:
    return f"it expands to more than {MAX_TERMS} terms. Use fewer interactions."


def _source(tokens: Sequence[_Token]) -> str:
    return _shorten("".join(token.source for token in tokens))


def _to_code(tokens: Sequence[_Token]) -> str:
    """Python code of a factor, spaced as patsy prints it."""
    import tokenize

    from patsy.tokens import pretty_untokenize

    types = {"number": tokenize.NUMBER, "string": tokenize.STRING, "operator": tokenize.OP}
    typed = [(types.get(token.kind, tokenize.NAME), token.code) for token in tokens]
    return str(pretty_untokenize(typed))


_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_BITS = (ast.BitAnd, ast.BitOr)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_HARMLESS = (ast.Expression, ast.Load, ast.keyword, ast.operator, ast.unaryop, ast.cmpop)
_FORBIDDEN_NODES = {
    ast.Attribute: "attribute access",
    ast.Subscript: "a subscript",
    ast.Lambda: "lambda",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "assignment",
    ast.Starred: "a starred argument",
    ast.IfExp: "if-else",
    ast.BoolOp: "and/or",
}


class _FactorCheck:
    """Checks the syntax tree of one factor, so that only what is allowed is ever evaluated."""

    def __init__(self, code: str, names: _Placeholders) -> None:
        self.code = code
        self.names = names
        self._known_places: set[int] = set()  # names that have been checked with their call

    def check(self) -> None:
        shown = _shorten(self.names.show(self.code))
        try:
            tree = ast.parse(self.code, mode="eval")
        except SyntaxError:
            raise _Refused(
                f"the term {shown!r} is not complete. Arithmetic with a sign, such as a > -1, goes "
                f"inside I(...)."
            ) from None
        if not self.names.in_code(self.code):
            raise _Refused(f"the term {shown!r} uses no column. Take it out.")
        for node in ast.walk(tree):  # parents before children, without recursion
            self._node(node)

    def _piece(self, node: ast.AST) -> str:
        segment = ast.get_source_segment(self.code, node) or self.code
        return _shorten(self.names.show(segment))

    def _refuse(self, node: ast.AST, why: str) -> NoReturn:
        raise _Refused(f"{self._piece(node)!r}: {why}")

    def _node(self, node: ast.AST) -> None:
        if isinstance(node, _HARMLESS):
            return
        checks: dict[type[ast.AST], Callable[[Any], None]] = {
            ast.Name: self._name,
            ast.Constant: self._constant,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.Compare: self._compare,
            ast.Call: self._call,
            ast.Tuple: self._sequence,
            ast.List: self._sequence,
        }
        check = checks.get(type(node))
        if check is None:
            what = _FORBIDDEN_NODES.get(type(node), type(node).__name__)
            self._refuse(node, f"{what} is not allowed. {_ALLOWED}.")
        check(node)

    def _name(self, node: ast.Name) -> None:
        if self.names.is_one(node.id) or id(node) in self._known_places:
            return
        if node.id in _CONTRASTS:
            self._refuse(node, f"is a contrast. Give it to C(): C(column, {node.id}).")
        self._refuse(node, f"is not allowed. {_ALLOWED}.")

    def _constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, (str, int, float, bool, type(None))):
            self._refuse(node, "only numbers and text are allowed.")

    def _binary(self, node: ast.BinOp) -> None:
        if not isinstance(node.op, (*_ARITHMETIC, *_BITS)):
            self._refuse(node, f"this operator is not allowed. {_ALLOWED}.")
        for side in (node.left, node.right):
            text = isinstance(side, ast.Constant) and not isinstance(side.value, (int, float))
            if text or isinstance(side, (ast.Tuple, ast.List)):
                self._refuse(node, "arithmetic takes numbers and columns, not text or lists.")
        if isinstance(node.op, ast.Pow):
            self._power(node)

    def _power(self, node: ast.BinOp) -> None:
        if self._has_column(node):
            return
        literals = [
            side.value
            for side in (node.left, node.right)
            if isinstance(side, ast.Constant) and isinstance(side.value, (int, float))
        ]
        if len(literals) < 2 or literals[0] > 1e6 or literals[1] > 100:
            self._refuse(node, "the power of two numbers is too large. Write the number itself.")

    def _has_column(self, node: ast.AST) -> bool:
        return any(isinstance(n, ast.Name) and self.names.is_one(n.id) for n in ast.walk(node))

    def _unary(self, node: ast.UnaryOp) -> None:
        deep: ast.expr = node
        for _ in range(20):
            if not isinstance(deep, ast.UnaryOp):
                return
            if isinstance(deep.op, ast.Not):
                self._refuse(node, _KEYWORD_HINTS["not"] + ".")
            deep = deep.operand
        self._refuse(node, "too many signs in a row.")

    def _compare(self, node: ast.Compare) -> None:
        if len(node.ops) > 1:
            self._refuse(node, "write two comparisons in brackets: (a < x) & (x < b).")
        if not isinstance(node.ops[0], _COMPARISONS):
            self._refuse(node, "only ==, !=, <, <=, > and >= are allowed.")

    def _call(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
            self._refuse(node, f"this call is not allowed. {_ALLOWED}.")
        name = node.func.id
        self._known_places.add(id(node.func))
        signature = _FUNCTIONS[name]
        if any(isinstance(argument, ast.Starred) for argument in node.args) or any(
            argument.arg is None for argument in node.keywords
        ):
            self._refuse(node, "starred arguments are not allowed.")
        given = {} if signature.variadic else dict(zip(signature.names, node.args, strict=False))
        for argument in node.keywords:
            if argument.arg not in signature.names or argument.arg in given:
                self._refuse(node, f"wrong argument {argument.arg!r}. {self._usage(name)}")
            given[str(argument.arg)] = argument.value
        count = len(node.args) if signature.variadic else len(given)
        too_many = not signature.variadic and len(node.args) > len(signature.names)
        missing = [n for n in signature.names[: signature.needed] if n not in given]
        if too_many or count < signature.needed or (missing and not signature.variadic):
            self._refuse(node, f"wrong number of arguments. {self._usage(name)}")
        self._arguments(node, name, given)

    def _arguments(self, node: ast.Call, name: str, given: dict[str, ast.expr]) -> None:
        if name == "C" and isinstance(given.get("contrast"), ast.Name):
            self._known_places.add(id(given["contrast"]))
        for size in ("df", "degree"):
            if size in given:
                self._size(node, size, given[size])
        data = None if name in _CONTRASTS else _FUNCTIONS[name].names[0]
        for option, value in given.items():
            if name not in _OF_COLUMNS and option != data and self._has_column(value):
                self._refuse(node, f"{option!r} takes numbers or text, not a column.")
        if name not in _CONTRASTS and not self._has_column(node):
            self._refuse(node, "uses no column.")

    def _size(self, node: ast.Call, size: str, value: ast.expr) -> None:
        number = value.value if isinstance(value, ast.Constant) else "?"
        if number is not None and not isinstance(number, int):
            self._refuse(node, f"{size} must be a whole number.")
        if number is not None and number > _MAX_DF:
            self._refuse(node, f"{size} is larger than {_MAX_DF}.")

    @staticmethod
    def _usage(name: str) -> str:
        signature = _FUNCTIONS[name]
        shown = ["..."] * signature.variadic + [
            n if i < signature.needed and not signature.variadic else f"{n}="
            for i, n in enumerate(signature.names)
        ]
        return f"Usage: {name}({', '.join(shown)})."

    def _sequence(self, node: ast.Tuple | ast.List) -> None:
        for item in node.elts:
            value = item.operand if isinstance(item, ast.UnaryOp) else item
            if not isinstance(value, (ast.Constant, ast.Tuple, ast.List)):
                self._refuse(node, "a list may hold numbers and text only.")


class _Columns(NamedTuple):
    """How a column of the fitted data is to be read again: its kind, and levels if it has any."""

    kind: str  # number, bool or levels
    levels: tuple[Any, ...] = ()
    ordered: bool = False


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
    _formula: Formula = field(repr=False)
    _info: Any = field(repr=False)
    _kinds: dict[str, _Columns] = field(repr=False)

    def transform(self, new_data: pd.DataFrame) -> NDArray[np.float64]:
        """Build the matrix of new rows by the stored design.

        Centres, scales, knots and levels are those of the rows the design was built on. A level
        that did not occur there is a FormulaError.

        Parameters
        ----------
        new_data : pandas.DataFrame
            Any rows with the columns of the formula.
        """
        values: dict[str, Any] = {}
        for column in self.columns:
            series = _one_column(self._formula, new_data, column)
            try:
                values[column] = _read_again(series, self._kinds[column])
            except _Unseen as unseen:
                known = show_some([repr(v) for v in self._kinds[column].levels])
                raise self._formula._error(
                    f"column {column!r} has values that did not occur in fitting: {unseen} "
                    f"({unseen.n_rows} rows; known are {known}). Leave these rows out, or fit on "
                    f"data that have them."
                ) from None
            except _Refused as refused:
                raise self._formula._error(f"column {column!r}: {refused}.") from None
        matrix = _evaluate(self._formula, self._info, values, len(new_data))
        _check_finite(self._formula, self._info, matrix, values)
        return matrix


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
    >>> formula = parse_formula("~ age + sex", ["age", "sex"])
    >>> data = pd.DataFrame({"age": [61, 58, 70], "sex": ["F", "M", "F"]})
    >>> design = build_design(formula, data)
    >>> design.names
    ('Intercept', 'sex[T.M]', 'age')
    >>> design.transform(data.tail(1))
    array([[ 1.,  0., 70.]])
    """
    if len(data) == 0:
        raise formula._error("the data have no rows. Check what was left out before.")
    values: dict[str, Any] = {}
    kinds: dict[str, _Columns] = {}
    for column in formula.columns:
        series = _one_column(formula, data, column)
        try:
            values[column], kinds[column] = _read_first(series)
        except (DataError, _Refused) as error:
            raise formula._error(str(error)) from None
    _check_width(formula, values)
    info = _design_info(formula, values)
    if not info.column_names:
        raise formula._error("it has no terms at all. Write '~ 1' for an intercept alone.")
    _check_size(formula, len(data), len(info.column_names))
    matrix = _evaluate(formula, info, values, len(data))
    _check_finite(formula, info, matrix, values)
    return Design(matrix, _print_names(formula, info), formula.columns, formula, info, kinds)


def _print_names(formula: Formula, info: Any) -> tuple[str, ...]:
    names = tuple(formula._names.show(name) for name in info.column_names)
    if len(set(names)) < len(names):  # a column called 'a:b' beside the interaction of a and b
        names = tuple(formula._names.show(name, quote=True) for name in info.column_names)
    return names


def _one_column(formula: Formula, data: pd.DataFrame, name: str) -> pd.Series:
    """Take one column of the data, which must be there once and without missing values."""
    if name not in data.columns:
        raise formula._error(f"the data have no column {name!r}. Add it.")
    series = data[name]
    if isinstance(series, pd.DataFrame):
        raise formula._error(
            f"the data have {series.shape[1]} columns called {name!r}. Rename all but one."
        )
    missing = series.isna().to_numpy()
    if missing.any():
        rows = show_some([repr(label) for label in series.index[missing][:6]])
        raise formula._error(
            f"column {name!r} has missing values in {int(missing.sum())} rows (index {rows}). "
            f"Leave these rows out, or fill them in."
        )
    return series


def _read_first(series: pd.Series) -> tuple[Any, _Columns]:
    """Values of a column as patsy is to see them, and how to read the column again."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        values = _without_absent(series.array)
    else:
        column = formula_column(_plain(series))
        if not isinstance(column.dtype, pd.CategoricalDtype):
            array = column.to_numpy()
            return array, _Columns("bool" if array.dtype.kind == "b" else "number")
        values = _without_absent(column.array)
    levels = tuple(values.categories)
    _check_levels(len(levels), f"column {series.name!r}")
    return values, _Columns("levels", levels, bool(values.ordered))


def _without_absent(values: Any) -> Any:
    counts = np.bincount(values.codes, minlength=len(values.categories))
    return values if (counts > 0).all() else values.remove_unused_categories()


def _check_levels(n: int, what: str) -> None:
    if n > MAX_LEVELS:
        raise _Refused(
            f"{what} has {n:,} different values, more than the {MAX_LEVELS:,} that can be "
            f"levels. Is it an identifier? Leave it out, or group its values."
        )


def _plain(series: pd.Series) -> pd.Series:
    """Numbers in any of pandas' wrappers as numpy's; objects that are all numbers too."""
    from cfair.frame import plain_column

    return plain_column(series)


def _read_again(series: pd.Series, stored: _Columns) -> Any:
    """Values of a column of new rows in the form that it had in fitting."""
    if stored.kind == "levels":
        return _with_levels(series, stored.levels, stored.ordered)
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = pd.Series(np.asarray(series), index=series.index, name=series.name)
    try:
        values = _plain(series).to_numpy()
        if values.dtype.kind not in "biuf":
            values = values.astype(np.float64) if len(values) == 0 else values
        if values.dtype.kind not in "biuf":
            raise _Refused
    except (_Refused, DataError, TypeError, ValueError):
        first = [repr(v) for v in series.iloc[:3]]
        raise FormulaError(
            f"column {series.name!r} held numbers in fitting, but holds {series.dtype} now "
            f"({show_some(first)}). Make it numbers."
        ) from None
    if stored.kind == "bool":
        if values.dtype.kind != "b" and not np.isin(values, (0, 1)).all():
            raise _Unseen(np.unique(values)[:5].tolist(), int((~np.isin(values, (0, 1))).sum()))
        return values.astype(np.bool_)
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _codes(values: Any) -> tuple[NDArray[np.intp], list[Any]]:
    """Code per row, and the values that occur."""
    array = getattr(values, "array", values)
    if isinstance(array, pd.Categorical):
        return array.codes.astype(np.intp), list(array.categories)
    try:
        codes, uniques = pd.factorize(values)
    except TypeError:
        raise _Refused("its values cannot be levels; give it one label per row") from None
    return codes, list(uniques)


def _with_levels(values: Any, levels: Sequence[Any], ordered: bool = False) -> pd.Categorical:
    """Values as a Categorical of these levels; others are refused."""
    codes, uniques = _codes(values)
    position = {level: i for i, level in enumerate(levels)}
    new_code = np.array([position.get(value, -1) for value in uniques], dtype=np.intp)
    new_codes = new_code[codes] if len(new_code) else codes
    unseen = new_codes < 0
    if unseen.any():
        which = [uniques[code] for code in np.unique(codes[unseen])]
        raise _Unseen(which, int(unseen.sum()))
    return pd.Categorical.from_codes(new_codes, categories=pd.Index(levels), ordered=ordered)


class _Categories:
    """The transform behind C(): levels are remembered, and only those that occur enter."""

    def __init__(self) -> None:
        self._levels: tuple[Any, ...] = ()
        self._ordered = False

    def memorize_chunk(self, data: Any, contrast: Any = None, levels: Any = None) -> None:
        if np.ndim(data) != 1:
            raise _Refused("C() takes one column.")
        if isinstance(data, np.ndarray) and data.dtype.kind == "b" and levels is None:
            self._levels = (False, True)
            return
        codes, uniques = _codes(data)
        present = np.bincount(codes, minlength=len(uniques)) > 0
        found = [value for value, there in zip(uniques, present, strict=True) if there]
        _check_levels(len(found), "C()")
        if levels is not None:
            _with_levels(data, tuple(levels))
            self._levels = tuple(level for level in levels if level in found)
        elif isinstance(data, pd.Categorical):
            self._levels, self._ordered = tuple(found), bool(data.ordered)
        else:
            self._levels = tuple(_in_order(found))

    def memorize_finish(self) -> None:
        """Nothing is left to do: all rows come in one piece."""

    def transform(self, data: Any, contrast: Any = None, levels: Any = None) -> pd.Categorical:
        values = _with_levels(data, self._levels, self._ordered)
        inner = getattr(data, "contrast", None)  # C(C(x, Sum))
        values.contrast = inner if contrast is None else contrast  # type: ignore[attr-defined]
        return values


def _in_order(values: list[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda value: (type(value).__name__, str(value)))


class _Standardize:
    """The transform behind standardize() and scale(), as patsy's but without a loop over rows."""

    def __init__(self) -> None:
        self._mean: Any = 0.0
        self._squares: Any = 0.0
        self._n = 0

    def memorize_chunk(
        self, x: Any, center: bool = True, rescale: bool = True, ddof: int = 0
    ) -> None:
        values = np.asarray(x, dtype=np.float64)
        self._n = len(values)
        self._mean = values.mean(axis=0)
        self._squares = np.square(values - self._mean).sum(axis=0)

    def memorize_finish(self) -> None:
        """Nothing is left to do: all rows come in one piece."""

    def transform(
        self, x: Any, center: bool = True, rescale: bool = True, ddof: int = 0
    ) -> NDArray[np.float64]:
        values = np.array(x, dtype=np.float64)
        if center:
            values -= self._mean
        if rescale:
            values /= np.sqrt(self._squares / (self._n - ddof))
        return values


class _Stateful:
    """Marks a class as a transform that patsy fits once and then keeps."""

    def __init__(self, transform: type) -> None:
        self.__patsy_stateful_transform__ = transform


def _environment() -> dict[str, Any]:
    """All that the code of a factor can see, apart from the columns."""
    import patsy

    def clip(a: Any, a_min: Any = None, a_max: Any = None) -> Any:
        return np.clip(a, a_min, a_max)

    def where(condition: Any, x: Any, y: Any) -> Any:
        return np.where(condition, x, y)

    # Each function is wrapped: numpy's own would take arrays to write into as further arguments.
    return {
        "C": _Stateful(_Categories),
        "I": lambda x: x,
        "standardize": _Stateful(_Standardize),
        "scale": _Stateful(_Standardize),
        **{name: getattr(patsy, name) for name in ("center", "bs", "cr", "cc", "te", *_CONTRASTS)},
        **{
            name: _one_argument(getattr(np, name))
            for name, signature in _FUNCTIONS.items()
            if signature is _ONE and name not in ("I", "center")
        },
        "minimum": lambda x1, x2: np.minimum(x1, x2),
        "maximum": lambda x1, x2: np.maximum(x1, x2),
        "clip": clip,
        "where": where,
    }


def _one_argument(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda x: function(x)


class _ClosedEnvironment:
    """Evaluates checked code that sees its columns, the allowed functions and nothing else."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions

    def eval(self, code: str, inner_namespace: Any) -> Any:
        tree = ast.parse(code, mode="eval")
        nodes = list(ast.walk(tree))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        _watch_kinds(nodes)
        visible: dict[str, Any] = {
            "__builtins__": {},
            "_number": _number,
            "_not_categories": _not_categories,
        }
        for name in used:
            visible[name] = (
                inner_namespace[name] if name in inner_namespace else self._functions[name]
            )
        compiled = compile(ast.fix_missing_locations(tree), "<formula>", "eval")
        return eval(compiled, visible, {})


def _watch_kinds(nodes: Iterable[ast.AST]) -> None:
    """Let arithmetic be done in floats, where whole numbers would overflow without a word."""
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
            node.left, node.right = _wrapped(node.left), _wrapped(node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            node.operand = _wrapped(node.operand)
        elif isinstance(node, ast.Call) and not _takes_categories(node.func):
            node.args = [_checked(argument) for argument in node.args]


def _takes_categories(function: ast.expr) -> bool:
    """Whether this is I() or C(), which patsy calls by a name of its own making."""
    name = function.value if isinstance(function, ast.Attribute) else function
    return isinstance(name, ast.Name) and (name.id == "I" or name.id.endswith("__C__"))


def _checked(node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("_not_categories", ast.Load()), [node], [])


def _not_categories(values: Any) -> Any:
    """Refuse groups that are coded by numbers, which numpy would take for those numbers."""
    if isinstance(values, pd.Categorical) and values.categories.dtype.kind in "biuf":
        raise _Refused("it needs numbers, but the column is a category with numbers as labels")
    return values


def _wrapped(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Constant) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC)
    ):
        return node
    return ast.Call(ast.Name("_number", ast.Load()), [node], [])


def _number(values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.dtype.kind in "biu":
        return values.astype(np.float64)
    return values


class _Factor:
    """One factor of a term, in the form that patsy asks of factors."""

    origin = None

    def __init__(self, code: str, formula: Formula) -> None:
        self.code = code
        self.columns = formula._names.in_code(code)
        self._formula = formula
        self._first = code[slice(*_first_placeholder(code, formula._names))]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Factor) and self.code == other.code

    def __hash__(self) -> int:
        return hash(self.code)

    def name(self) -> str:
        return self.code  # placeholders, which cannot collide; printed names come later

    def memorize_passes_needed(self, state: dict[str, Any], eval_env: Any) -> int:
        from patsy import EvalFactor

        state["factor"] = EvalFactor(self.code)
        passes = self._guard(state["factor"].memorize_passes_needed, state, eval_env)
        state["eval_env"] = _ClosedEnvironment(eval_env.namespace)
        return int(passes)

    def memorize_chunk(self, state: dict[str, Any], which_pass: int, data: Any) -> None:
        self._guard(state["factor"].memorize_chunk, state, which_pass, data)

    def memorize_finish(self, state: dict[str, Any], which_pass: int) -> None:
        self._guard(state["factor"].memorize_finish, state, which_pass)

    def eval(self, state: dict[str, Any], data: Any) -> Any:
        return self._guard(self._values, state, data)

    def _values(self, state: dict[str, Any], data: Any) -> Any:
        value = state["factor"].eval(state, data)
        n = len(data[self._first])
        if np.ndim(value) not in (1, 2) or len(value) != n:
            raise _Refused("it does not give one value per row.")
        if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
            # Text made inside the formula, as by where(age > 60, 'old', 'young').
            if "levels" not in state:
                uniques = _codes(value)[1]
                _check_levels(len(uniques), "the term")
                state["levels"] = tuple(_in_order(uniques))
            value = _with_levels(value, state["levels"])
        return value

    def _guard(self, function: Callable[..., Any], *arguments: Any) -> Any:
        from patsy import PatsyError

        try:
            return function(*arguments)
        except PatsyError as error:
            cause = error.__cause__ or error
        except Exception as error:  # whatever a transform raises is about this term
            cause = error
        if isinstance(cause, FormulaError):
            raise cause
        shown = self._formula._names.show(self.code)
        columns = " and ".join(repr(column) for column in self.columns)
        if isinstance(cause, _Unseen):
            raise self._formula._error(
                f"term {shown!r}: column {columns} has values that are not among its levels: "
                f"{cause} ({cause.n_rows} rows). Leave these rows out, or fit on data that have "
                f"them."
            ) from None
        message = self._formula._names.show(str(cause)).split("\n")[0]
        kind = "" if isinstance(cause, _Refused) else f"{type(cause).__name__}: "
        raise self._formula._error(
            f"term {shown!r} cannot be computed from column {columns} ({kind}{message}). Check "
            f"the arguments and the kind of the column."
        ) from cause


def _first_placeholder(code: str, names: _Placeholders) -> tuple[int, int]:
    found = names._pattern().search(code)
    return found.span() if found else (0, 0)


def _design_info(formula: Formula, values: Mapping[str, Any]) -> Any:
    """Let patsy fit the transforms and choose the coding of the categories."""
    from patsy import INTERCEPT, EvalEnvironment, PatsyError, Term, design_matrix_builders

    factors = {code: _Factor(code, formula) for term in formula._terms for code in term}
    terms = [INTERCEPT] if formula._intercept else []
    terms += [Term([factors[code] for code in term]) for term in formula._terms]
    data = formula._names.as_data(values)
    try:
        with np.errstate(all="ignore"):
            return design_matrix_builders(
                [terms], lambda: iter([data]), EvalEnvironment([_environment()]), _keep_all()
            )[0]
    except FormulaError:
        raise
    except (PatsyError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        message = formula._names.show(str(error)).split("\n")[0]
        raise formula._error(f"it cannot be coded ({message}). Check its contrasts.") from error


def _keep_all() -> Any:
    from patsy import NAAction

    return NAAction(on_NA="raise", NA_types=[])


def _evaluate(
    formula: Formula, info: Any, values: Mapping[str, Any], n_rows: int
) -> NDArray[np.float64]:
    from patsy import PatsyError, build_design_matrices

    width = len(info.column_names)
    if not info.factor_infos or n_rows == 0:
        return np.ones((n_rows, width))
    data = formula._names.as_data(values)
    try:
        with np.errstate(all="ignore"):
            built = build_design_matrices([info], data, NA_action=_keep_all())[0]
    except FormulaError:
        raise
    except (PatsyError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        message = formula._names.show(str(error)).split("\n")[0]
        raise formula._error(f"its matrix cannot be built ({message}).") from error
    return np.ascontiguousarray(np.asarray(built, dtype=np.float64))


def _check_width(formula: Formula, values: Mapping[str, Any]) -> None:
    """Refuse interactions of so many levels that even their names would fill the memory."""

    def width(code: str) -> int:
        columns = [values[column] for column in formula._names.in_code(code)]
        levels = [len(v.categories) for v in columns if isinstance(v, pd.Categorical)]
        if code.startswith("C("):
            levels += [len(pd.unique(v)) for v in columns if isinstance(v, np.ndarray)]
        return max(levels, default=1) * _spline_width(code)

    for term in formula._terms:
        simple = len(term) == 1 and not term[0].startswith("te(")
        if not simple and math.prod(width(code) for code in term) > MAX_DESIGN_COLUMNS:
            shown = ":".join(formula._names.show(code) for code in term)
            raise formula._error(
                f"term {shown!r} has more than {MAX_DESIGN_COLUMNS:,} columns. Group the levels, "
                f"or lower df."
            )


def _spline_width(code: str) -> int:
    """Product of the degrees of freedom of the splines in a factor, as te() multiplies them."""
    width = 1
    for node in ast.walk(ast.parse(code, mode="eval")):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("bs", "cr", "cc"):
            given = [k.value for k in node.keywords if k.arg == "df"] or node.args[1:2]
            width *= next((n for n in map(_whole, given) if n > 0), 1)
    return width


def _whole(node: ast.expr) -> int:
    value = node.value if isinstance(node, ast.Constant) else 0
    return value if isinstance(value, int) else 0


def _check_size(formula: Formula, n_rows: int, n_columns: int) -> None:
    if n_columns > MAX_DESIGN_COLUMNS or n_rows * n_columns * 8 > 2**34:
        raise formula._error(
            f"its matrix has {n_columns:,} columns and {n_rows:,} rows, which is too large. "
            f"Group levels, or leave out interactions."
        )


def _check_finite(
    formula: Formula, info: Any, matrix: NDArray[np.float64], values: Mapping[str, Any]
) -> None:
    with np.errstate(all="ignore"):
        if np.isfinite(matrix.sum()):  # no value but a finite one leaves the sum finite
            return
    for term, place in info.term_slices.items():
        bad = ~np.isfinite(matrix[:, place]).all(axis=1)
        if not bad.any():
            continue
        columns = dict.fromkeys(column for factor in term.factors for column in factor.columns)
        values_of = {column: np.asarray(values[column])[bad][:6].tolist() for column in columns}
        first = "; ".join(
            f"{column} = {show_some([repr(v) for v in shown], 3)}"
            for column, shown in values_of.items()
        )
        raise formula._error(
            f"term {formula._names.show(term.name())!r} is not a finite number in "
            f"{int(bad.sum())} rows ({first}). Change the term, or leave these rows out."
        )


@dataclass(frozen=True, eq=False)
class AttributeSplit:
    """A design matrix taken apart by whether its terms use the protected attributes.

    Parameters
    ----------
    fixed : (n, p0) array
        Columns of terms without attributes, the intercept among them.
    by_group : (K, q) array or None
        Columns of terms of attributes alone, one row per group; None without such terms.
    mixed : (K, n, m) array or None
        Columns of terms of attributes and other columns, for all rows as if every row were in that
        group; None without such terms.
    fixed_columns, by_group_columns, mixed_columns : integer arrays
        Which columns of the design matrix the three parts are.
    """

    fixed: NDArray[np.float64] = field(repr=False)
    by_group: NDArray[np.float64] | None = field(repr=False)
    mixed: NDArray[np.float64] | None = field(repr=False)
    fixed_columns: NDArray[np.intp]
    by_group_columns: NDArray[np.intp]
    mixed_columns: NDArray[np.intp]


def split_design(
    design: Design,
    data: pd.DataFrame,
    group_frame: pd.DataFrame,
    *,
    max_bytes: int = 1_000_000_000,
) -> AttributeSplit:
    """Take a design apart, so that rows can be put into other groups without building it again.

    Parameters
    ----------
    design : Design
        Built on `data`.
    data : pandas.DataFrame
        The rows of the design matrix.
    group_frame : pandas.DataFrame
        One row per group, one column per protected attribute.
    max_bytes : int
        Most memory that `mixed` may take.

    Returns
    -------
    AttributeSplit
        For row i in group k, ``fixed[i]``, ``by_group[k]`` and ``mixed[k, i]`` together are the row
        of the design matrix. A group with a level that did not occur in fitting has zeros.
    """
    if len(data) != len(design.matrix):
        raise design._formula._error(
            f"the data have {len(data)} rows, but the design was built on {len(design.matrix)}."
        )
    parts = _sort_terms(design, frozenset(group_frame.columns))
    places = {part: _places(design, terms) for part, terms in parts.items()}
    groups = _Groups.of(design, data, group_frame)
    return AttributeSplit(
        np.ascontiguousarray(design.matrix[:, places["fixed"]]),
        _by_group(design, parts["by_group"], groups),
        _mixed(design, parts["mixed"], groups, data, max_bytes),
        places["fixed"],
        places["by_group"],
        places["mixed"],
    )


def _sort_terms(design: Design, attributes: frozenset[Any]) -> dict[str, list[Any]]:
    parts: dict[str, list[Any]] = {"fixed": [], "by_group": [], "mixed": []}
    for term in design._info.term_slices:
        used = _columns_of([term])
        if not used & attributes:
            parts["fixed"].append(term)
        elif used <= attributes:
            parts["by_group"].append(term)
        else:
            parts["mixed"].append(term)
    return parts


def _columns_of(terms: Iterable[Any]) -> frozenset[str]:
    return frozenset(c for term in terms for factor in term.factors for c in factor.columns)


def _places(design: Design, terms: Iterable[Any]) -> NDArray[np.intp]:
    slices = [design._info.term_slices[term] for term in terms]
    return np.array([i for s in slices for i in range(s.start, s.stop)], dtype=np.intp)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Attributes of each group, in the form that they had in fitting."""

    values: dict[str, Any]
    known: NDArray[np.bool_]  # groups all of whose levels occurred in fitting

    @classmethod
    def of(cls, design: Design, data: pd.DataFrame, group_frame: pd.DataFrame) -> _Groups:
        values: dict[str, Any] = {}
        known = np.ones(len(group_frame), dtype=np.bool_)
        for column in design.columns:
            if column not in group_frame.columns:
                continue
            codes, uniques = _codes(data[column])
            occurring = {uniques[code] for code in np.unique(codes)}
            levels = group_frame[column].tolist()
            seen = np.array([level in occurring for level in levels], dtype=np.bool_)
            if not seen.any():
                raise design._formula._error(
                    f"no group has a level of {column!r} that occurs in the data. Build the groups "
                    f"from the same table."
                )
            # A group with an unknown level borrows a known one here; its rows become zeros.
            stand_in = np.where(seen, np.arange(len(seen)), int(np.argmax(seen)))
            values[column] = _read_again(group_frame[column].iloc[stand_in], design._kinds[column])
            known &= seen
        return cls(values, known)


def _by_group(design: Design, terms: list[Any], groups: _Groups) -> NDArray[np.float64] | None:
    if not terms:
        return None
    values = {column: groups.values[column] for column in _columns_of(terms)}
    part = design._info.subset(terms)
    matrix = _evaluate(design._formula, part, values, len(groups.known))
    matrix[~groups.known] = 0.0
    return matrix


def _mixed(
    design: Design, terms: list[Any], groups: _Groups, data: pd.DataFrame, max_bytes: int
) -> NDArray[np.float64] | None:
    if not terms:
        return None
    part = design._info.subset(terms)
    n_groups, n_rows, width = len(groups.known), len(data), len(part.column_names)
    needed = n_groups * n_rows * width * 8
    if needed > max_bytes:
        shown = show_some([repr(design._formula._names.show(term.name())) for term in terms])
        raise design._formula._error(
            f"the terms of attributes with other columns ({shown}) need {needed / 1e9:.2f} GB for "
            f"{n_groups} groups and {n_rows:,} rows, more than max_bytes = {max_bytes:,}. Leave "
            f"out these interactions, or allow more."
        )
    used = _columns_of(terms)
    others = {
        column: _read_again(_one_column(design._formula, data, column), design._kinds[column])
        for column in used
        if column not in groups.values
    }
    mixed = np.zeros((n_groups, n_rows, width))
    for k in np.flatnonzero(groups.known):
        same = {c: _repeat(groups.values[c], int(k), n_rows) for c in used if c in groups.values}
        mixed[k] = _evaluate(design._formula, part, {**others, **same}, n_rows)
    return mixed


def _repeat(values: Any, k: int, n: int) -> Any:
    if isinstance(values, pd.Categorical):
        return pd.Categorical.from_codes(np.full(n, values.codes[k]), dtype=values.dtype)
    return np.full(n, values[k])
