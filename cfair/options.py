"""Checks of option values, all with one form of message: what is allowed, and what came."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cfair.errors import DataError


def check_option(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Check an option against the values that are allowed.

    Parameters
    ----------
    name : str
    value : object
    allowed : iterable

    Raises
    ------
    ValueError
        If it is not among them.

    Examples
    --------
    >>> check_option("kind", "difference", ("difference", "ratio"))
    """
    choices = list(allowed)
    if not isinstance(value, (str, type(None))) or value not in choices:
        near = []
        if isinstance(value, str):
            asked = value.strip().lower().replace(" ", "_")
            near = difflib.get_close_matches(asked, [c for c in choices if isinstance(c, str)], n=1)
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}."
            + "".join(f" Did you mean {one!r}?" for one in near)
        )


def check_level(level: Any) -> float:
    """Check a confidence level.

    Parameters
    ----------
    level : float

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If it is not between 0 and 1.
    """
    number = is_number(level)
    if not number or not 0 < level < 1:
        raise ValueError(
            f"level must be a confidence level between 0 and 1, such as 0.95, not {level!r}."
        )
    return float(level)


def check_count(value: Any, name: str) -> int:
    """Check a number of replicates.

    Parameters
    ----------
    value : int or None
        None and 0 mean none.
    name : str

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If it is not a whole number of at least 1.
    """
    if value is None:
        return 0
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 0:
        raise ValueError(f"{name} must be a whole number >= 1 (or None for none), not {value!r}.")
    return int(value)


def is_number(value: Any) -> bool:
    """Whether a value is a real number; True and False are none."""
    real = isinstance(value, (int, float, np.number)) and not isinstance(value, np.complexfloating)
    return real and not isinstance(value, bool)


def check_target(target: Path, name: str, *, make: bool = False) -> None:
    """Refuse a file that cannot be written, before any work.

    Parameters
    ----------
    target : Path
    name : str
        Of the argument.
    make : bool, default False
        Whether its folder is made if it is not there.

    Raises
    ------
    DataError
        With the path and the reason.
    """
    with writing(name, target):
        if target.is_dir():
            raise DataError(f"{name} {str(target)!r} is a folder. Give the name of a file in it.")
        if target.exists():
            if not os.access(target, os.W_OK):
                raise PermissionError("no permission to write to it")
            return
        there = next((p for p in target.absolute().parents if p.exists()), target.parent)
        if not there.is_dir():
            raise DataError(f"{name} {str(target)!r}: {str(there)!r} is a file, not a folder.")
        if not make and not target.parent.is_dir():
            raise DataError(f"{name} {str(target)!r}: there is no folder {str(target.parent)!r}.")
        with tempfile.TemporaryFile(
            dir=there
        ):  # permissions do not tell: some folders take no file
            pass


@contextmanager
def writing(name: str, target: Path) -> Iterator[None]:
    """Turn what an operating system says of a path into an error that names it.

    Parameters
    ----------
    name : str
        Of the argument.
    target : Path

    Raises
    ------
    DataError
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise DataError(f"{name} {str(target)!r} cannot be written: {why}.") from error


def check_path(path: Any, name: str) -> Path:
    """A path of a name that a file can have.

    Parameters
    ----------
    path : path
    name : str
        Of the argument.

    Returns
    -------
    Path

    Raises
    ------
    DataError
    """
    target = Path(path)
    if "\0" in str(target):
        raise DataError(f"{name} {str(target)!r} holds a null character, as no file name may.")
    if any(len(os.fsencode(part)) > 255 for part in target.parts):
        raise DataError(f"{name} {str(target)!r} has a name of more than 255 bytes.")
    return target
