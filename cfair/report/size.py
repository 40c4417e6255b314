"""Keeps a page small: what is left out of one that is too large, and a word in its place."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from cfair.report.blocks import Block, Bullets, Figure, Paragraph, Rows, Section, Table

#: Largest page in bytes that mail and viewers take without trouble.
MOST_PAGE = 1_000_000
#: Pixel pictures wider than this are halved where the page is too large.
_WIDE = 700
#: Rows that a table keeps where the page is too large.
_KEPT = 20
#: Bytes of the markup around a cell, and of a sentence in place of a block.
_MARKUP, _SENTENCE = 10, 300
_WHERE = "The results themselves have it all, and so has the folder of --out on the command line."


def within(sections: Sequence[Section], over: int) -> list[Section]:
    """Sections with fewer bytes: pictures coarser, then left out, then tables cut, then left out.

    Of each kind the largest go first, and none more than is needed.

    Parameters
    ----------
    sections : sequence of Section
    over : int
        Bytes to spare.

    Returns
    -------
    list of Section
        With a word where something was.
    """
    found = [list(s.blocks) for s in sections]
    changes: tuple[tuple[type, Callable[..., Block]], ...] = (
        (Figure, _coarser),
        (Figure, _omitted),
        (Table, _shortened),
        (Bullets, _fewer),
        (Table, _omitted),
        (Bullets, _omitted),
    )
    for kind, change in changes:
        places = [(i, j) for i, s in enumerate(found) for j, b in enumerate(s)
                  if isinstance(b, kind)]  # fmt: skip
        for i, j in sorted(places, key=lambda at: -_bytes(found[at[0]][at[1]])):
            if over <= 0:
                break
            whole = change is _omitted  # which is told of as it was
            changed = change(sections[i].blocks[j] if whole else found[i][j])
            spared = _bytes(found[i][j]) - _bytes(changed)
            if spared > 0:
                found[i][j] = changed
                over -= spared
    return [replace(s, blocks=tuple(b)) for s, b in zip(sections, found, strict=True)]


def _bytes(block: Block) -> int:
    """About how many bytes a block takes on the page."""
    return sum(len(text.encode()) + _MARKUP for text in _texts(block))


def _texts(block: Block) -> Iterator[str]:
    """What is written of a block."""
    if isinstance(block, Figure):
        yield from (block.source, block.alt, block.caption)
    elif isinstance(block, Table):
        yield from (block.caption, block.note, *block.head)
        yield from (cell for part in block.parts for row in part.rows for cell in row)
    elif isinstance(block, Bullets):
        for item in block.items:
            yield from ((item,) if isinstance(item, str) else item)
    else:
        yield getattr(block, "text", "")


def _coarser(figure: Figure) -> Figure:
    """A picture of pixels at half its width; others as they are."""
    from PIL import Image

    kind, _, content = figure.source.partition(";base64,")
    if not kind.endswith("png") or not content:
        return figure
    file = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
        if image.width <= _WIDE:
            return figure
        half = image.convert("RGB").resize((image.width // 2, image.height // 2))
        half.quantize(64).save(file, format="png", optimize=True)
    smaller = base64.b64encode(file.getvalue()).decode("ascii")
    if len(smaller) >= len(content):
        return figure
    said = f"{figure.caption} (coarser, so that the page stays small)"
    return replace(figure, source=f"{kind};base64,{smaller}", caption=said)


def _omitted(block: Figure | Table | Bullets) -> Paragraph:
    """A sentence in place of a block."""
    if isinstance(block, Figure):
        what, where = block.caption, "Its figures are in the tables."
    elif isinstance(block, Table):
        what = f"the table “{_short(block.caption)}” ({_rows_in(block):,} rows)"
        where = _WHERE
    else:
        what, where = f"a list of {len(block.items):,} remarks", _WHERE
    return Paragraph(
        f"Left out, so that the page stays below {MOST_PAGE / 1e6:g} MB: {what}. {where}"
    )


def _shortened(table: Table) -> Table:
    """The first rows of each part of a table, and a sentence on the others."""
    parts = tuple(Rows(p.heading, p.rows[:_KEPT]) for p in table.parts)
    hidden = _rows_in(table) - sum(len(p.rows) for p in parts)
    if not hidden:
        return table
    said = (
        f"{hidden:,} of {_rows_in(table):,} rows are left out, so that the page stays below "
        f"{MOST_PAGE / 1e6:g} MB. {_WHERE}"
    )
    return replace(table, parts=parts, note=f"{said} {_short(table.note)}".strip())


def _fewer(list_: Bullets) -> Bullets:
    """The first items of a list, each as long as a paragraph, and a sentence on the others."""
    items = tuple(
        _short(item) if isinstance(item, str) else (_short(item[0]), _short(item[1]))
        for item in list_.items[:_KEPT]
    )
    hidden = len(list_.items) - len(items)
    more = (f"{hidden:,} more are left out, so that the page stays small. {_WHERE}",)
    return replace(list_, items=(*items, *(more if hidden else ())))


def _short(text: str) -> str:
    """A text cut to the length of a paragraph."""
    return text if len(text) <= 1000 else f"{text[:1000]} ..."


def _rows_in(table: Table) -> int:
    return sum(len(part.rows) for part in table.parts)
