"""The call that made a result, as text: what a reader needs to make it again."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from cfair.roles import Roles

#: Arguments that change no number.
_SILENT = frozenset(("n_jobs", "progress", "self"))
#: Longest list that is written out; longer ones are data.
_LONGEST = 24
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def shown(value: Any) -> str:
    """A value as it would be typed, or in angle brackets what it was if it was data.

    Parameters
    ----------
    value : object

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> shown(["sex", "race"]), shown(np.zeros(5000))
    ("['sex', 'race']", '<5,000 values>')
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return repr(value)
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, Mapping) and len(value) <= _LONGEST:
        return f"{{{', '.join(f'{shown(k)}: {shown(v)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)) and len(value) <= _LONGEST:
        inner = ", ".join(map(shown, value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner}{',' * (len(value) == 1)})"
    if type(value).__name__ == "Learner":  # by name: formulas are not loaded for observed rates
        return f"<cfair.Learner: {_ADDRESS.sub('', ' '.join(repr(value).split()))[:300]}>"
    return f"<{_size(value)}>"


def _size(value: Any) -> str:
    """What a value is, without anything that is in it."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and all(isinstance(n, int) for n in shape):
        return " x ".join(f"{n:,}" for n in shape) + (" values" if len(shape) == 1 else " table")
    if isinstance(value, (Sequence, Mapping)):
        return f"{len(value):,} values"
    return type(value).__name__


def call_text(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """A call with the arguments that were given and are not the default.

    Parameters
    ----------
    name : str
        As it was called, such as ``audit.observed``.
    function : callable
        With the defaults.
    given : mapping of str to object

    Returns
    -------
    str

    Examples
    --------
    >>> def verb(metrics=None, *, alpha=0.05, n_jobs=1): ...
    >>> call_text("audit.verb", verb, {"metrics": "fpr", "alpha": 0.1, "n_jobs": 2})
    "audit.verb(metrics='fpr', alpha=0.1)"
    """
    parameters = inspect.signature(function).parameters
    written = [
        f"{key}={shown(value)}"
        for key, value in given.items()
        if key not in _SILENT and not _is_default(parameters, key, value)
    ]
    return f"{name}({', '.join(written)})"


def _is_default(parameters: Mapping[str, inspect.Parameter], key: str, value: Any) -> bool:
    if key not in parameters:
        return False
    default = parameters[key].default
    plain = (str, bool, int, float, tuple, type(None))
    return isinstance(value, plain) and type(value) is type(default) and value == default


def declaration_text(roles: Roles, **more: Any) -> str:
    """The declaration of an audit as it would be typed.

    Parameters
    ----------
    roles : Roles
    **more
        Further arguments; those that are empty are not written.

    Returns
    -------
    str

    Examples
    --------
    >>> declaration_text(Roles(outcome="died", groups="sex", score="risk", cutoff=0.5))
    "cfair.Audit(data, outcome='died', groups='sex', score='risk', cutoff=0.5)"
    """
    written = [
        f"{f.name}={shown(getattr(roles, f.name))}"
        for f in fields(roles)
        if f.name == "groups" or not _same(getattr(roles, f.name), f.default)
    ]
    written += [f"{name}={shown(value)}" for name, value in more.items() if value]
    return f"cfair.Audit(data, {', '.join(written)})"


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and isinstance(value, (str, bool, type(None))) and (
        value == default
    )  # fmt: skip


def record_call(
    result: Any,
    name: str,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    named: Mapping[str, Any],
) -> None:
    """Keep with a result the call that made it.

    Parameters
    ----------
    result : Printed
        Frozen; the text is put beside its fields.
    name : str
    function : callable
        A method; `arguments` begin with its object.
    arguments : sequence
    named : mapping of str to object
    """
    bound = inspect.signature(function).bind(*arguments, **named)
    object.__setattr__(result, "call", call_text(name, function, bound.arguments))
