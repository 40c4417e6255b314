"""Tables for papers: labels, cells and footnotes, and how they become HTML, LaTeX and Excel."""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfair.errors import DataError
from cfair.options import check_path, check_target, writing

#: Marks that turn the direction of what stands after them, in the row and beyond it.
_TURNING = dict.fromkeys([0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
#: Classes of direction of letters that are written from right to left.
_RIGHT_TO_LEFT = frozenset(("R", "AL"))
_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"
#: What stands between the levels of a crossed group.
CROSSED = " & "
_RAISED = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖ"
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "∞": r"$\infty$",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text : str
    note : str
        A footnote to it; empty for none.
    value : int, float or None
        The number that the text shows, which a workbook gets in its place.
    """

    text: str
    note: str = ""
    value: int | float | None = None


@dataclass(frozen=True)
class Table:
    """A table as it is read: text, in sections, with footnotes.

    Attributes
    ----------
    header : sequence of str
        The first column names the rows.
    sections : sequence of (str, rows)
        A heading, which may be empty, and its rows of cells.
    caption : str
    notes : sequence of str
        What stands below, after the footnotes of the cells.
    text_columns : collection of int
        Columns of words beside the first, which are aligned to the left like it.
    attributes : sequence of str
        Attributes that a heading or a cell may name together, joined by " x ": where a table is
        set rather than typed, in HTML and LaTeX, the sign between them is "×".
    """

    header: Sequence[str]
    sections: Sequence[tuple[str, Sequence[Sequence[Cell]]]]
    caption: str = ""
    notes: Sequence[str] = ()
    text_columns: Collection[int] = ()
    attributes: Sequence[str] = ()
    marks: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for cell in (cell for _, rows in self.sections for row in rows for cell in row):
            if cell.note:
                self.marks.setdefault(cell.note, len(self.marks))

    def is_text(self, j: int) -> bool:
        """Whether a column is aligned to the left.

        Parameters
        ----------
        j : int

        Returns
        -------
        bool
        """
        return j == 0 or j in self.text_columns

    def texts(
        self, mark: Callable[[int], str], typeset: bool = False
    ) -> list[tuple[str, list[list[str]]]]:
        """Sections with the marks of their footnotes in the cells.

        Parameters
        ----------
        mark : callable
            A mark from the number of a footnote.
        typeset : bool, default False
            Whether attributes are joined by the sign "×" rather than the letter.

        Returns
        -------
        list of (str, list of list of str)
        """
        crossed = {}
        if typeset and len(self.attributes) > 1:
            crossed = {" x ".join(self.attributes): " × ".join(self.attributes)}

        def told(cell: Cell) -> str:
            noted = mark(self.marks[cell.note]) if cell.note else ""
            return crossed.get(cell.text, cell.text) + noted

        return [
            (crossed.get(heading, heading), [list(map(told, row)) for row in rows])
            for heading, rows in self.sections
        ]

    def footnotes(self, mark: Callable[[int], str]) -> list[str]:
        """What stands below the table, footnotes of cells first.

        Parameters
        ----------
        mark : callable

        Returns
        -------
        list of str
        """
        return [*(f"{mark(k)} {note}" for note, k in self.marks.items()), *self.notes]


def raised(k: int) -> str:
    """The mark of the k-th footnote.

    Examples
    --------
    >>> raised(0), raised(40)
    ('ᵃ', '⁽⁴¹⁾')
    """
    if k < len(_RAISED):
        return _RAISED[k]
    return f"⁽{str(k + 1).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}⁾"


def interval(value: float, low: float, high: float, digits: int = 3) -> str:
    """An estimate as papers print it; a dash where there is none.

    Examples
    --------
    >>> interval(0.25, 0.2, 0.31, 2)
    '0.25 (0.20 to 0.31)'
    """
    if value is None or np.isnan(value):
        return "–"
    if np.isnan(low) and np.isnan(high):
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def of_frame(
    frame: pd.DataFrame,
    *,
    digits: int = 3,
    labels: Mapping[Any, str] | None = None,
    caption: str = "",
    notes: Sequence[str] = (),
    attributes: Sequence[str] = (),
) -> Table:
    """A table of a tidy frame: numbers rounded, missing ones a dash, its notes as footnotes.

    P-values have at least three digits, and are never printed as 0.

    Parameters
    ----------
    frame : pandas.DataFrame
        A column ``note`` is turned into footnotes of the first column.
    digits : int, default 3
    labels : mapping of str to str, optional
        Other names for columns and for text in cells.
    caption : str
    notes : sequence of str
    attributes : sequence of str
        As in `Table`.

    Returns
    -------
    Table
    """
    names = dict(labels or {})
    shown = [c for c in frame.columns if c != "note"]
    said = frame["note"].fillna("").astype(str) if "note" in frame else [""] * len(frame)
    p_values = [c == "p" or str(c).startswith("p_") or str(c).endswith("p_value") for c in shown]
    words = [
        j for j, c in enumerate(shown) if any(isinstance(value, str) for value in frame[c].tolist())
    ]
    rows = []
    for row, note in zip(frame[shown].itertuples(index=False), said, strict=True):
        cells = [
            Cell(
                _p_value(value, digits) if is_p else _shown(value, digits, names),
                value=_finite(value),
            )
            for value, is_p in zip(row, p_values, strict=True)
        ]
        rows.append([replace(cells[0], note=note), *cells[1:]])
    header = [names.get(c, str(c).replace("_", " ")) for c in shown]
    return Table(header, [("", rows)], caption, notes, words, attributes)


def _finite(value: Any) -> int | float | None:
    """A number as Python has it, if it is one."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        return None
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, int):  # a sheet has fifteen digits; a longer number is an identifier
        return plain if abs(plain) < 10**15 else None
    return plain if np.isfinite(plain) else None


def _p_value(value: Any, digits: int) -> str:
    """A p-value, or that it is below the least that these digits can show."""
    if pd.isna(value):
        return "–"
    places = max(digits, 3)
    least = 10.0**-places
    return f"<{least:.{places}f}" if value < least else f"{value:.{places}f}"


def _shown(value: Any, digits: int, names: Mapping[Any, str]) -> str:
    """One value as text."""
    try:
        if value in names:
            return names[value]
    except TypeError:  # what has no hash has no label
        pass
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return "–"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:.{digits}f}"
    return str(value)


# -- labels ----------------------------------------------------------------------------------------


def flat(text: object) -> str:
    r"""A label in one line, without signs of control and marks that would turn what is around it.

    Parameters
    ----------
    text : object

    Returns
    -------
    str

    Examples
    --------
    >>> flat("a\x00b\n c")
    'a b c'
    """
    plain = "".join(
        " " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else "\ufffd" if _is_half(c) else c
        for c in str(text).translate(_TURNING)
    )
    return " ".join(plain.split())


def _is_half(character: str) -> bool:
    """Whether it is half of a surrogate pair, which no encoding can write."""
    return "\ud800" <= character <= "\udfff"


def turned(text: str) -> bool:
    """Whether a text has letters that are written from right to left.

    Parameters
    ----------
    text : str

    Returns
    -------
    bool

    Examples
    --------
    >>> turned("White"), turned("\u05e2\u05d1\u05e8\u05d9\u05ea")
    (False, True)
    """
    return any(unicodedata.bidirectional(c) in _RIGHT_TO_LEFT for c in text)


def apart(text: object) -> str:
    """A label in one line, set apart where it runs from right to left: numbers beside it stay put.

    Of a crossed group each level is set apart by itself, so that levels keep the order of their
    attributes.

    Parameters
    ----------
    text : object

    Returns
    -------
    str

    Examples
    --------
    >>> apart("F & Black")
    'F & Black'
    """
    return CROSSED.join(
        f"{_FIRST_STRONG_ISOLATE}{part}{_POP_ISOLATE}" if turned(part) else part
        for part in flat(text).split(CROSSED)
    )


def shorten(text: str, width: int) -> str:
    """Shorten a long text in its middle, where labels differ least.

    Parameters
    ----------
    text : str
    width : int
        Longest length that is kept.

    Returns
    -------
    str

    Examples
    --------
    >>> shorten("Native Hawaiian or Pacific Islander", 17)
    'Native H…Islander'
    """
    if len(text) <= width:
        return text
    kept = max(width - 1, 2)
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


def shorten_all(texts: Sequence[str], width: int, longest: int = 80) -> list[str]:
    """Shorten texts, but keep different ones different as far as `longest` allows.

    Parameters
    ----------
    texts : sequence of str
    width : int
        Length aimed at.
    longest : int, default 80
        Length never exceeded.

    Returns
    -------
    list of str
    """
    different = len(set(texts))
    for size in range(width, longest + 1, 6):
        short = [shorten(t, size) for t in texts]
        if len(set(short)) == different:
            return short
    return [shorten(t, longest) for t in texts]


# -- formats ---------------------------------------------------------------------------------------


def to_markdown(table: Table) -> str:
    """A table in Markdown, as GitHub and pandoc read it.

    Parameters
    ----------
    table : Table

    Returns
    -------
    str

    Examples
    --------
    >>> print(to_markdown(Table(["group", "n"], [("sex", [[Cell("F"), Cell("<11", "masked")]])])))
    | group   |    n |
    |:--------|-----:|
    | **sex** |      |
    | F       | <11ᵃ |
    <BLANKLINE>
    ᵃ masked
    """
    empty = [""] * (len(table.header) - 1)
    lines = [[_in_markdown(name) for name in table.header]]
    for heading, rows in table.texts(raised):
        if heading:
            lines.append([f"**{_in_markdown(heading)}**", *empty])
        lines += [[_in_markdown(text) for text in row] for row in rows]
    widths = [max(3, *(len(line[j]) for line in lines)) for j in range(len(table.header))]

    def line(cells: Sequence[str]) -> str:
        pairs = enumerate(zip(cells, widths, strict=True))
        shown = [c.ljust(w) if table.is_text(j) else c.rjust(w) for j, (c, w) in pairs]
        return f"| {' | '.join(shown)} |"

    rule = "|".join(
        ":" + "-" * (w + 1) if table.is_text(j) else "-" * (w + 1) + ":"
        for j, w in enumerate(widths)
    )
    text = "\n".join([line(lines[0]), f"|{rule}|", *map(line, lines[1:])])
    below = "\n".join(f"{_in_markdown(note)}  " for note in table.footnotes(raised)).rstrip()
    parts = [f"**{_in_markdown(table.caption)}**" if table.caption else "", text, below]
    return "\n\n".join(part for part in parts if part)


_LINK = re.compile(r"\]\s*[(:\[]|\[\^")


def _in_markdown(text: str) -> str:
    line = flat(text)
    signs = "\\|*_`~$" + ("[]" if _LINK.search(line) else "")  # brackets alone are no link
    for sign in signs:
        line = line.replace(sign, f"\\{sign}")
    # a tag would be taken for HTML; "<11" is none
    return "".join(
        "&lt;" if c == "<" and line[i + 1 : i + 2].isalpha() | (line[i + 1 : i + 2] in "/!") else c
        for i, c in enumerate(line)
    )


def latex_text(text: str) -> str:
    r"""Text with the characters that LaTeX reads as commands written out.

    Examples
    --------
    >>> latex_text("50% of A_1 & B, <11")
    '50\\% of A\\_1 \\& B, \\textless{}11'
    """
    return "".join(_LATEX.get(c, c) for c in flat(text))


def to_latex(table: Table, label: str = "") -> str:
    r"""A table in LaTeX, for the package booktabs.

    Letters of other scripts than Latin need XeLaTeX or LuaLaTeX and a font that has them.

    Parameters
    ----------
    table : Table
    label : str
        For ``\ref``.

    Returns
    -------
    str
    """
    _require("jinja2")

    def mark(k: int) -> str:
        return f"\ue000{k}\ue001"  # of private use, and no sign of a label

    def written(text: str) -> str:
        done = latex_text(text)
        for k in range(len(table.marks)):
            done = done.replace(mark(k), rf"\textsuperscript{{{_letter(k)}}}")
        return done

    def first(done: str) -> str:
        # after the end of a row, LaTeX would take these for an option of the line break
        return f"{{{done[0]}}}{done[1:]}" if done[:1] in ("[", "*") else done

    lines = []
    for heading, rows in table.texts(mark, typeset=True):
        if heading:
            lines.append([rf"\textit{{{latex_text(heading)}}}", *[""] * (len(table.header) - 1)])
        indent = r"\quad " if heading else ""
        lines += [[indent + first(written(row[0])), *map(written, row[1:])] for row in rows]
    frame = pd.DataFrame(lines, columns=[latex_text(name) for name in table.header])
    body = frame.style.hide(axis="index").to_latex(
        hrules=True,
        column_format="".join("l" if table.is_text(j) else "r" for j in range(len(table.header))),
    )
    notes = [written(note) for note in table.footnotes(mark)]
    parts = [
        r"\begin{table}[htbp]",
        r"\centering",
        *([rf"\caption{{{latex_text(table.caption)}}}"] if table.caption else []),
        *([rf"\label{{{label}}}"] if label else []),
        body.strip(),
        *([r"\par\smallskip\footnotesize\raggedright"] if notes else []),
        *[rf"{note}\par" for note in notes],
        r"\end{table}",
    ]
    return "\n".join(parts) + "\n"


def _letter(k: int) -> str:
    return chr(ord("a") + k) if k < 26 else str(k + 1)


def to_gt(table: Table) -> Any:
    """A table of great_tables, which shows itself in a notebook and has ``as_raw_html()``.

    Parameters
    ----------
    table : Table

    Returns
    -------
    great_tables.GT
    """
    gt = _require("great_tables")
    columns = [f"c{j}" for j in range(len(table.header))]
    texts = table.texts(raised, typeset=True)  # great_tables escapes cells and headings
    lines = [
        [apart(heading) or "Overall", *map(apart, row)] for heading, rows in texts for row in rows
    ]
    frame = pd.DataFrame(lines, columns=["section", *columns])
    headings = any(heading for heading, _ in texts)
    if not headings:
        frame = frame.drop(columns="section")
    found = gt.GT(frame, rowname_col="c0", groupname_col="section" if headings else None)
    names = [gt.html(escape(apart(name))) for name in table.header]
    found = found.cols_label(dict(zip(columns[1:], names[1:], strict=True)))
    found = found.tab_stubhead(names[0])
    for side, text in (("left", True), ("right", False)):
        chosen = [c for j, c in enumerate(columns) if j and table.is_text(j) == text]
        found = found.cols_align(side, columns=chosen) if chosen else found
    if table.caption:
        found = found.tab_header(gt.html(escape(apart(table.caption))))
    for note in table.footnotes(raised):
        found = found.tab_source_note(gt.html(escape(apart(note))))
    return found.tab_options(
        table_font_size="14px",
        heading_align="left",
        heading_title_font_size="16px",
        row_group_font_weight="bold",
        data_row_padding="4px",
        source_notes_font_size="12px",
    ).opt_table_font(["Helvetica Neue", "Arial", "sans-serif"])


def to_excel(
    sheets: Mapping[str, Table | pd.DataFrame], path: Any, notes: Sequence[str] = ()
) -> Path:
    """Tables in a workbook, a sheet each, and what there is to say in a last one.

    Numbers are numbers, with as many digits shown as the table has; text that begins like a formula
    stays text.

    Parameters
    ----------
    sheets : mapping of str to Table or pandas.DataFrame
        Frames keep their numbers.
    path : path
    notes : sequence of str

    Returns
    -------
    pathlib.Path

    Raises
    ------
    DataError
        If the file cannot be written there.
    """
    openpyxl = _require("openpyxl")
    target = check_path(path, "path")
    check_target(target, "path")
    styles = importlib.import_module("openpyxl.styles")
    book = openpyxl.Workbook()
    book.remove(book.active)
    bold = styles.Font(bold=True)
    used: set[str] = set()
    for name, table in sheets.items():
        sheet = book.create_sheet(_sheet_name(name, used))
        lines: list[tuple[bool, Sequence[Any]]] = []
        if isinstance(table, pd.DataFrame):
            lines = [(True, [str(c) for c in table.columns])]
            lines += [(False, row) for row in table.itertuples(index=False)]
        else:
            lines += [(True, [table.caption])] * bool(table.caption)
            lines += [(True, table.header)]
            for (heading, rows), (_, cells) in zip(
                table.texts(raised), table.sections, strict=True
            ):
                lines += [(True, [heading])] * bool(heading)
                lines += [
                    (False, list(map(_sheet_value, row, texts)))
                    for row, texts in zip(cells, rows, strict=True)
                ]
            lines += [(False, [note]) for note in ["", *table.footnotes(raised)]]
        _fill(sheet, lines, bold)
    if notes:
        _fill(book.create_sheet(_sheet_name("notes", used)), [(False, [n]) for n in notes], bold)
    with writing("path", target):
        book.save(target)
    return target


@dataclass(frozen=True)
class _Number:
    """A number with the digits of the text that stands for it."""

    value: int | float
    text: str

    @property
    def format(self) -> str:
        """As a workbook writes it down."""
        places = len(self.text.partition(".")[2])
        return f"0.{'0' * places}" if places else "#,##0"

    def __str__(self) -> str:
        return self.text


def _sheet_value(cell: Cell, text: str) -> Any:
    """A number where a cell has one; but not where its text says less, such as "<0.001"."""
    if cell.value is None or not text.strip("-")[:1].isdigit() or cell.note:
        return text
    return _Number(cell.value, text)


def _fill(sheet: Any, lines: Sequence[tuple[bool, Sequence[Any]]], bold: Any) -> None:
    widths: dict[int, int] = {}
    for i, (heading, values) in enumerate(lines, start=1):
        for j, value in enumerate(values, start=1):
            cell = sheet.cell(row=i, column=j)
            shown = _write(cell, value)
            if heading:
                cell.font = bold
            if len(values) > 1:  # captions and notes run over the columns beside them
                widths[j] = min(max(widths.get(j, 8), len(shown) + 2), 40)
    for j, width in widths.items():
        sheet.column_dimensions[sheet.cell(row=1, column=j).column_letter].width = width


def _write(cell: Any, value: Any) -> str:
    """Write a value into a cell of a sheet, and say what is seen of it."""
    if isinstance(value, _Number):
        cell.value, cell.number_format = value.value, value.format
        return value.text
    number = _finite(value)
    if number is not None:
        cell.value = number
        return f"{number:.6g}" if isinstance(number, float) else str(number)
    if isinstance(value, (bool, np.bool_)):
        cell.value = bool(value)
    elif isinstance(value, str) or not (value is None or pd.isna(value)):
        flat = " ".join(str(value).split("\n"))
        cell.value = "".join(c if c.isprintable() else " " for c in flat)
        cell.data_type = "s"  # and no formula, whatever it begins with
    return "" if cell.value is None else str(cell.value)


def _sheet_name(name: str, used: set[str]) -> str:
    """A name that Excel accepts, and no sheet has yet."""
    base = "".join("_" if c in r"[]:*?/\'" else c for c in name).strip() or "table"
    found, k = base[:31], 1
    while found.lower() in used:
        k += 1
        found = f"{base[: 30 - len(str(k))]} {k}"
    used.add(found.lower())
    return found


def _require(module: str) -> Any:
    """A module of the extra `report`, or how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.replace("_", "-")
        raise DataError(f'this table needs {package}: pip install "cfair[report]".') from error
