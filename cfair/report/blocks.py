"""What a page is made of: paragraphs, lists, tables, figures. No text here is markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cfair.tables import apart

#: Letters of names and numbers that stand side by side on a sheet of paper.
MOST_LETTERS = 132


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str
    kind: str = "paragraph"


@dataclass(frozen=True)
class Bullets:
    """A list; ``tone`` is "plain", "finding" or "warning". A pair has a first part in bold."""

    items: tuple[str | tuple[str, str], ...]
    tone: str = "plain"
    kind: str = "bullets"


@dataclass(frozen=True)
class Code:
    """Text in fixed width."""

    text: str
    label: str
    kind: str = "code"


@dataclass(frozen=True)
class Formula:
    """MathML that this package wrote; it holds no text from outside."""

    markup: str
    text: str
    kind: str = "formula"


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str
    kind: str = "heading"


@dataclass(frozen=True)
class Rows:
    """Rows of a table under a heading of their own; the first cell of each is its head."""

    heading: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Table:
    """A table with a caption.

    Attributes
    ----------
    caption : str
    head : tuple of str
        Of the columns.
    parts : tuple of Rows
    text_columns : tuple of int
        Columns of words, aligned to the left like the first.
    note : str
    """

    caption: str
    head: tuple[str, ...]
    parts: tuple[Rows, ...]
    text_columns: tuple[int, ...] = ()
    note: str = ""
    kind: str = "table"

    @property
    def fits(self) -> bool:
        """Whether a sheet of paper has room for every number in one line."""
        columns = [j for j in range(len(self.head)) if j not in self.text_columns]
        rows = [row for part in self.parts for row in part.rows]
        widths = [max((len(row[j]) for row in rows), default=0) + 2 for j in columns]
        widths[0] = min(widths[0], 40)  # names may be folded
        return sum(widths) <= MOST_LETTERS


@dataclass(frozen=True)
class Figure:
    """A picture as a data address, with what it shows in words."""

    source: str
    alt: str
    caption: str
    width: int
    height: int
    kind: str = "figure"


@dataclass(frozen=True)
class Flow:
    """Steps from the rows read to the rows used; each has a count and what it is a count of."""

    steps: tuple[tuple[str, str, str], ...]
    kind: str = "flow"


Block = Flow | Paragraph | Bullets | Code | Formula | Heading | Table | Figure


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; ``id`` is its address."""

    id: str
    title: str
    blocks: tuple[Block, ...] = field(default=())


def label(text: object) -> str:
    r"""A label from the data as one line that cannot change what stands around it.

    Parameters
    ----------
    text : object

    Returns
    -------
    str
        As `cfair.tables.apart`: without control characters and marks of direction; what runs from
        right to left is set apart, so that the numbers beside it stay where they are.

    Examples
    --------
    >>> label("F & Black"), label("a\x00b")
    ('F & Black', 'a b')
    """
    return apart(text)


def rate(value: float, low: float = np.nan, high: float = np.nan, digits: int = 3) -> str:
    """An estimate with its interval; a dash where there is none.

    Examples
    --------
    >>> rate(0.25, 0.2, 0.31), rate(float("nan"))
    ('0.250 (0.200 to 0.310)', '–')
    """
    if value is None or np.isnan(value):
        return "–"
    shown = number(value, digits)
    if np.isnan(low) or np.isnan(high):
        return shown
    return f"{shown} ({number(low, digits)} to {number(high, digits)})"


def number(value: float, digits: int = 3) -> str:
    """A number with fixed digits and a true minus sign; a dash where undefined.

    Examples
    --------
    >>> number(-0.25, 2), number(float("nan"))
    ('−0.25', '–')
    """
    if value is None or np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:,.{digits}f}"
    if text.startswith("-"):
        text = text[1:] if not float(text.replace(",", "")) else f"−{text[1:]}"
    return text


def count(value: Any) -> str:
    """A count with thousands separators; ``<11`` or a word where it is masked.

    Examples
    --------
    >>> count(12345), count(-11), count(float("nan"))
    ('12,345', '<11', 'masked')
    """
    if value is None or pd.isna(value):
        return "masked"
    return f"<{-int(value):,}" if value < 0 else f"{int(value):,}"


def percent(part: float, whole: float) -> str:
    """A count with its share, unless one of the two is masked.

    Examples
    --------
    >>> percent(25, 100), percent(-11, 100)
    ('25 (25.0%)', '<11')
    """
    return f"{count(part)} ({100 * part / whole:.1f}%)" if part >= 0 and whole > 0 else count(part)


def p_text(p: float) -> str:
    """A p-value as papers print it.

    Examples
    --------
    >>> p_text(0.0002), p_text(0.0314)
    ('<0.001', '0.031')
    """
    if p is None or np.isnan(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names with commas between, the rest counted.

    Examples
    --------
    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"
