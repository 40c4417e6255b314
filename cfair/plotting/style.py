"""Colours, markers and text that read the same in every figure, in print and for every eye."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from matplotlib import font_manager, rcParams
from matplotlib.axes import Axes
from matplotlib.text import Text

#: Okabe and Ito's colours, in an order whose first four also differ in lightness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
#: Marker shapes, so that series are told apart without colour.
MARKERS = ("o", "s", "^", "D")
#: Text and marks that stand back.
GREY = "#595959"
#: Bars and reference marks.
LIGHT_GREY = "#BFBFBF"

#: Fonts that are looked for when a label has signs that the figure's own font lacks.
_FALLBACK_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans CJK KR",
    "Source Han Sans",
    "Hiragino Sans",
    "PingFang SC",
    "Yu Gothic",
    "MS Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "IPAGothic",
    "Arial Unicode MS",
    "Noto Sans",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Segoe UI",
    "Segoe UI Symbol",
    "DejaVu Sans",
)


def base_size() -> float:
    """Size in points of ordinary text; follows the user's ``font.size``."""
    return 0.9 * font_manager.FontProperties(size=rcParams["font.size"]).get_size_in_points()


def cut(text: str, width: int) -> str:
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
    >>> cut("Native Hawaiian or Pacific Islander", 17)
    'Native H…Islander'
    """
    if len(text) <= width:
        return text
    kept = max(width - 1, 2)
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


def cut_all(texts: Sequence[str], width: int, longest: int = 80) -> list[str]:
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
        short = [cut(t, size) for t in texts]
        if len(set(short)) == different:
            return short
    return [cut(t, longest) for t in texts]


def printable(text: object) -> str:
    r"""One line of signs that some installed font can draw; others as their code, ``\u6f22``.

    Parameters
    ----------
    text : object

    Returns
    -------
    str
    """
    line = " ".join(str(text).split())
    drawable = _drawable(line)
    return "".join(c if c in drawable else _code(c) for c in line)


def literal(text: str) -> str:
    r"""Escape dollar signs, which matplotlib would take for mathematics.

    Parameters
    ----------
    text : str

    Returns
    -------
    str

    Examples
    --------
    >>> print(literal("$x_y$"))
    \$x_y\$
    """
    return text.replace("$", r"\$")


def plain(text: object, width: int = 120) -> str:
    """Text that comes out as it was given: printable, not too long, no mathematics.

    Parameters
    ----------
    text : object
    width : int, default 120

    Returns
    -------
    str
    """
    return literal(cut(printable(text), width))


def settle_fonts(ax: Axes) -> None:
    """Give texts whose signs the figure's font lacks a second font that has them.

    Parameters
    ----------
    ax : matplotlib Axes
    """
    for artist in ax.findobj(Text):
        assert isinstance(artist, Text)
        missing = set(artist.get_text()) - _own_signs() - {"\n"}
        if not missing:
            continue
        more = [name for name in _fallbacks() if missing & _signs_of(_path(name))]
        artist.set_fontfamily([*artist.get_fontfamily(), *more])


def _code(sign: str) -> str:
    number = ord(sign)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _drawable(text: str) -> set[str]:
    signs = set(text)
    found = signs & _own_signs()
    if found == signs:  # the usual case: no other font is opened
        return found
    for name in _fallbacks():
        found |= signs & _signs_of(_path(name))
    return found


def _own_signs() -> frozenset[str]:
    """Signs of the font that matplotlib takes by itself, with the second ones the user gave it."""
    return frozenset().union(*(_signs_of(_path(name)) for name in rcParams["font.family"]))


def _fallbacks() -> list[str]:
    """Fonts for other signs: the user's first, then usual ones, those that are installed."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    wanted = dict.fromkeys([*rcParams["font.sans-serif"], *_FALLBACK_FONTS])
    return [name for name in wanted if name in installed]


def _path(name: str) -> str:
    return str(font_manager.findfont(font_manager.FontProperties(family=[name])))


@lru_cache(maxsize=64)
def _signs_of(path: str) -> frozenset[str]:
    return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
