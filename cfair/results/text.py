"""Laying out results as text: numbers, aligned columns, wrapped notes."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence

import numpy as np

WIDTH = 92


def number(value: float, digits: int = 3) -> str:
    """A rate with fixed digits; an en dash where undefined.

    Examples
    --------
    >>> number(0.25), number(float("nan"))
    ('0.250', '–')
    """
    if value is None or np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞"
    return f"{value:.{digits}f}"


def short(value: float, digits: int = 3) -> str:
    """A number without its leading zero, as inside brackets.

    Examples
    --------
    >>> short(0.25), short(-0.5), short(1.0)
    ('.250', '-.500', '1.000')
    """
    text = number(value, digits)
    if text.startswith("0."):
        return text[1:]
    if text.startswith("-0."):
        return "-" + text[2:]
    return text


def estimate(value: float, low: float, high: float, digits: int = 3) -> str:
    """A rate with its interval.

    Examples
    --------
    >>> estimate(0.21, 0.16, 0.27)
    '0.210 [.160 .270]'
    """
    if np.isnan(value):
        return "–"
    if np.isnan(low) and np.isnan(high):
        return number(value, digits)
    return f"{number(value, digits)} [{short(low, digits)} {short(high, digits)}]"


def p_value(p: float) -> str:
    """A p-value as it is printed in papers.

    Examples
    --------
    >>> p_value(0.0004), p_value(0.0314), p_value(0.5)
    ('p < .001', 'p = .031', 'p = .500')
    """
    if np.isnan(p):
        return "p undefined"
    return "p < .001" if p < 0.001 else f"p = {short(p)}"


def count(value: float) -> str:
    """A count with thousands separators; a masked one as `cfair.disclosure` writes them.

    Examples
    --------
    >>> count(12345), count(-11), count(float("nan"))
    ('12,345', '<11', 'masked')
    """
    if value is None or np.isnan(value):
        return "masked"
    return f"<{int(-value)}" if value < 0 else f"{int(value):,}"


def share(part: float, whole: float) -> str:
    """A count with its percentage, unless one of the two is masked.

    Examples
    --------
    >>> share(25, 100), share(-11, 100)
    ('25 (25.0%)', '<11')
    """
    if np.isnan(whole) or not part >= 0 or whole < 0:
        return count(part)
    return f"{count(part)} ({100 * part / whole:.1f}%)" if whole else count(part)


def width_of(text: str) -> int:
    """Columns that a text takes on a terminal: wide characters take two, combining ones none.

    Examples
    --------
    >>> width_of("age"), width_of("年齢")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    total = 0
    for character in text:
        if unicodedata.combining(character):
            continue
        total += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return total


def one_line(text: object, limit: int = 28) -> str:
    """A label on one line, cut in the middle when long, so that long labels stay distinct.

    Examples
    --------
    >>> one_line("group" + "a" * 41, 20)
    'groupaaaaa…aaaaaaaaa'
    """
    flat = "".join(c if c.isprintable() else " " for c in str(text))
    if len(flat) <= limit:
        return flat
    head = limit // 2
    return f"{flat[:head]}…{flat[len(flat) - (limit - head - 1) :]}"


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, gap: int = 2
) -> list[str]:
    """Align columns: the first `left` to the left, the others to the right.

    Parameters
    ----------
    header : sequence of str
    rows : sequence of sequences of str
    left : int, default 1
        Columns aligned to the left.
    gap : int, default 2
        Blanks between columns.

    Returns
    -------
    list of str
        Lines, the header first.
    """
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(width_of(line[j]) for line in lines) for j in range(len(header))]
    text = []
    for line in lines:
        cells = [
            cell + " " * (w - width_of(cell)) if j < left else " " * (w - width_of(cell)) + cell
            for j, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        text.append((" " * gap).join(cells).rstrip())
    return text


def facts(pairs: Sequence[tuple[str, str]], indent: int = 13, width: int = WIDTH) -> list[str]:
    """Lines of a name and a text, wrapped under the text.

    Parameters
    ----------
    pairs : sequence of (name, text)
        A pair with an empty text is left out.
    indent : int, default 13
    width : int

    Returns
    -------
    list of str
    """
    lines = []
    for name, text in pairs:
        if not text:
            continue
        lines += textwrap.wrap(
            _hold_together(text),
            width,
            initial_indent=f"{name:<{indent}}",
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _hold_together(text: str) -> str:
    """Keep an interval in brackets on one line."""
    return re.sub(
        r"\S+ \[[^\]]{1,20}\]", lambda m: m.group().replace(" ", "\N{NO-BREAK SPACE}"), text
    )


def _printable(line: str) -> str:
    """A line without control characters that a label may have brought along."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else " " for c in line)


def page(title: str, blocks: Sequence[Sequence[str]]) -> str:
    """Join blocks of lines with rules between them.

    Parameters
    ----------
    title : str
    blocks : sequence of sequences of str
        Empty blocks are left out.

    Returns
    -------
    str
    """
    filled = [[_printable(line) for line in block] for block in blocks if block]
    width = max([WIDTH, *(width_of(line) for block in filled for line in block)])
    rule = "-" * width
    lines = [title, "=" * width]
    for k, block in enumerate(filled):
        lines += [rule] * (k > 0) + block
    return "\n".join([*lines, rule])
