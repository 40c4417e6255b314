"""Colours, markers and text that read the same in every figure, in print and for every eye."""

from __future__ import annotations

from functools import lru_cache
from unicodedata import bidirectional

from matplotlib import font_manager, rcParams
from matplotlib.axes import Axes
from matplotlib.text import Text

from cfair.tables import CROSSED, shorten, turned

#: Okabe and Ito's colours, in an order whose first four also differ in lightness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
#: Marker shapes, so that series are told apart without colour.
MARKERS = ("o", "s", "^", "D")
#: Text and marks that stand back.
GREY = "#595959"
#: Bars and reference marks.
LIGHT_GREY = "#BFBFBF"

_LEFT_TO_RIGHT = "\u200e"

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
    r"""Text as it stands: no mathematics, and from left to right whatever letters are in it.

    Dollar signs are escaped. A name that is written from right to left would take the numbers and
    the levels beside it along.

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
    escaped = text.replace("$", r"\$")
    return _in_order(escaped) if turned(text) and _LEFT_TO_RIGHT in _own_signs() else escaped


def _in_order(text: str) -> str:
    """Mark the ends of what is written from right to left, so that all else keeps its place."""
    signs: list[str] = []
    end = 0  # of the last letters from right to left
    for sign in text.replace(CROSSED, f"{_LEFT_TO_RIGHT}{CROSSED}"):
        kind = bidirectional(sign)
        if turned(sign) or (kind == "NSM" and end == len(signs)):
            end = len(signs) + 1
        elif kind in ("L", "EN", "AN"):
            if end and sign != _LEFT_TO_RIGHT:
                signs.insert(end, _LEFT_TO_RIGHT)
            end = 0
        signs.append(sign)
    return _LEFT_TO_RIGHT + "".join(signs)


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
    return literal(shorten(printable(text), width))


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
