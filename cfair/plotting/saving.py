"""Saves plots in a batch, under names that every file system takes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def file_name(text: object) -> str:
    """A name for a file: letters and digits, all else an underscore.

    Parameters
    ----------
    text : object

    Returns
    -------
    str

    Examples
    --------
    >>> file_name("rates by race/ethnicity"), file_name("../Größe %")
    ('rates_by_race_ethnicity', 'Größe')
    """
    plain = unicodedata.normalize("NFC", str(text))
    return re.sub(r"[\W_]+", "_", plain).strip("_")[:100] or "plot"


def save_all(
    plots: Mapping[str, Callable[[], Any]], directory: Any, *, suffix: str = "png", dpi: float = 150
) -> list[Path]:
    """Draw plots one after the other into files, and close their figures.

    Parameters
    ----------
    plots : mapping of str to function
        What draws and returns its Axes or Figure, by the name from which the file gets its own.
    directory : path
        Made if it is not there.
    suffix : str, default "png"
    dpi : float, default 150

    Returns
    -------
    list of pathlib.Path
        Two names that are alike in a file system get a number.
    """
    from matplotlib import pyplot as plt

    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    taken: set[str] = set()
    for name, draw in plots.items():
        base = stem = file_name(name)
        k = 1
        while stem.casefold() in taken:
            k += 1
            stem = f"{base}_{k}"
        taken.add(stem.casefold())
        drawn = draw()
        figure = getattr(drawn, "figure", drawn)
        path = folder / f"{stem}.{suffix.lstrip('.')}"
        figure.savefig(path, dpi=dpi)
        plt.close(figure)
        written.append(path)
    return written
