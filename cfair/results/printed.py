"""What every result has in common: it prints its summary, in a script and in a notebook."""

from __future__ import annotations

from html import escape
from typing import ClassVar

from cfair.results.tabulated import Tabulated

_STYLE = "font-family: monospace; white-space: pre; overflow-x: auto; line-height: 1.3"


class Printed(Tabulated):
    """A result that is shown by its `summary`."""

    #: The call that made the result, as text; empty where it was not recorded.
    call: ClassVar[str] = ""

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        raise TypeError(f"{type(self).__name__} is printed by its subclasses")

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return f'<div style="{_STYLE}">{escape(self.summary())}</div>'
