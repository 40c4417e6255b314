"""Colours of the page by daylight and by night, and which of them meet as text and ground."""

from __future__ import annotations

LIGHT: dict[str, str] = {
    "ground": "#ffffff",
    "panel": "#f4f6f8",
    "text": "#1b1f24",
    "soft": "#4d5761",
    "line": "#c6ccd2",
    "link": "#0b57a4",
    "accent": "#0b57a4",
    "warn-ground": "#fdf3e1",
    "warn-text": "#5c3a00",
    "warn-line": "#b26a00",
    "code-ground": "#eef1f4",
}
DARK: dict[str, str] = {
    "ground": "#14171a",
    "panel": "#1d2226",
    "text": "#e7eaed",
    "soft": "#aab3bc",
    "line": "#434b53",
    "link": "#8cc2f5",
    "accent": "#8cc2f5",
    "warn-ground": "#33270f",
    "warn-text": "#f6dcab",
    "warn-line": "#d99a2b",
    "code-ground": "#22282d",
}
#: Text and the ground under it, wherever the style sheet puts one on the other.
TEXT_ON: tuple[tuple[str, str], ...] = (
    ("text", "ground"),
    ("text", "panel"),
    ("text", "code-ground"),
    ("soft", "ground"),
    ("soft", "panel"),
    ("link", "ground"),
    ("link", "panel"),
    ("accent", "ground"),
    ("warn-text", "warn-ground"),
)


def variables(colours: dict[str, str]) -> str:
    """Colours as custom properties of a style sheet.

    Examples
    --------
    >>> variables({"text": "#000000"})
    '--text:#000000'
    """
    return ";".join(f"--{name}:{value}" for name, value in colours.items())
