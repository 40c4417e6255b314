"""Settings files: flags of a command, as YAML or TOML, read and written."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from cfair import options
from cfair.cli.flags import Parser, near
from cfair.errors import DataError

#: Flags that a file cannot give: they are about a file itself.
_NOT_IN_A_FILE = ("help", "settings", "write-settings")
#: What stands between a name and its value, by the suffix of the file.
_BETWEEN = {".yaml": ":", ".yml": ":", ".toml": " ="}


def with_settings(arguments: Sequence[str], parser: Parser) -> list[str]:
    """Add what a settings file says to the arguments of a command.

    Parameters
    ----------
    arguments : sequence of str
        Of the command. What they give, the file does not.
    parser : Parser
        Of the command.

    Returns
    -------
    list of str

    Raises
    ------
    DataError
        If the file cannot be read, or has a key that is no flag.
    """
    before = Parser(add_help=False)
    before.add_argument("--settings", type=Path)
    path = before.parse_known_args(arguments)[0].settings
    if path is None or {"-h", "--help"} & set(arguments):
        return list(arguments)
    given = {text.split("=")[0].lstrip("-") for text in arguments if text.startswith("--")}
    return [*arguments, *_as_arguments(path, _read(path), parser, given)]


def check_target(path: Path | None) -> None:
    """Refuse a name that no settings file can have, before any work.

    Parameters
    ----------
    path : Path or None

    Raises
    ------
    DataError
    """
    if path is None:
        return
    options.check_path(path, "--write-settings")
    if path.suffix.lower() not in _BETWEEN:
        raise DataError(f"--write-settings {str(path)!r} must end in .yaml, .yml or .toml.")
    options.check_target(path, "--write-settings")


def written(path: Path, arguments: Mapping[str, Any], flags: Mapping[str, argparse.Action]) -> str:
    """The settings of a call, as `with_settings` reads them from a file of this name.

    Parameters
    ----------
    path : Path
    arguments : mapping of str to object
        What was given, by destination. Defaults are left out.
    flags : mapping of str to argparse.Action
        Of the command, by name.

    Returns
    -------
    str
        A line for each flag. Strings stand in quotes as in JSON, which both languages read.
    """
    lines = []
    for name, flag in flags.items():
        value = arguments.get(flag.dest)
        if name in _NOT_IN_A_FILE or value == flag.default:
            continue
        value = True if flag.nargs == 0 else value
        if isinstance(flag, argparse._AppendAction) and isinstance(value, list) and len(value) == 1:
            value = value[0]
        lines.append(f"{name}{_BETWEEN[path.suffix.lower()]} {_as_text(value)}\n")
    return "".join(lines)


def _as_text(value: Any) -> str:
    """A value in JSON; text as it is typed, so that "yes" and "007" stay what they are."""
    if isinstance(value, Path):
        value = str(value)
    return "".join(
        c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"
        for c in json.dumps(value, ensure_ascii=False)
    )


def _as_arguments(
    path: Path, settings: Mapping[Any, Any], parser: Parser, given: set[str]
) -> list[str]:
    """The settings as they are written on the command line."""
    flags = {name: f for name, f in parser.flags.items() if name not in _NOT_IN_A_FILE}
    found: list[str] = []
    seen: set[str] = set()
    for key, value in settings.items():
        name = str(key).replace("_", "-")
        if name not in flags:
            hint = near(name, flags) or f"See {parser.prog} --help."
            raise DataError(f"{str(path)!r} has the key {str(key)!r}, which is no option. {hint}")
        if name in seen:
            raise DataError(f"{str(path)!r} has {name!r} twice, once with - and once with _.")
        seen.add(name)
        if name not in given:
            found += _flag(path, name, value, flags[name])
    return found


def _flag(path: Path, name: str, value: Any, flag: argparse.Action) -> list[str]:
    """One flag with its values; an empty value counts as not given, but for --na."""
    if flag.nargs == 0:
        if str(value).lower() not in ("true", "false"):
            raise DataError(f"{str(path)!r}: {name!r} is true or false, not {value!r}.")
        return [f"--{name}"] * (str(value).lower() == "true")
    repeated = isinstance(flag, argparse._AppendAction)
    if value is None or (value == "" and name != "na"):
        return []
    if isinstance(value, Mapping):
        raise DataError(f"{str(path)!r}: {name!r} must be a value or a list, not a table.")
    values = [str(v) for v in value] if isinstance(value, list) else [str(value)]
    if repeated:
        return [f"--{name}={v}" for v in values]
    if flag.nargs is not None:
        return [f"--{name}", *values]
    if isinstance(value, list):
        raise DataError(f"{str(path)!r}: {name!r} takes one value, not a list.")
    return [f"--{name}={values[0]}"]


def _read(path: Path) -> Mapping[Any, Any]:
    """The content of a file of settings."""
    readers = {".yaml": _yaml, ".yml": _yaml, ".toml": _toml}
    if path.suffix.lower() not in readers:
        raise DataError(f"--settings {str(path)!r} must end in .yaml, .yml or .toml.")
    if not path.is_file():
        raise DataError(f"--settings: there is no file {str(path)!r}.")
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = readers[path.suffix.lower()](text)
    except (DataError, ImportError):
        raise
    except Exception as error:  # each reader has errors of its own
        raise DataError(f"--settings {str(path)!r} cannot be read: {error}") from error
    if found is None or found == "":
        return {}
    if not isinstance(found, Mapping):
        raise DataError(f"--settings {str(path)!r} must have lines such as 'outcome: died'.")
    return found


def _yaml(text: str) -> Any:
    try:
        yaml = import_module("yaml")
    except ImportError as error:
        raise ImportError(
            "settings in YAML need PyYAML: pip install pyyaml. Or write them as .toml."
        ) from error
    # All values stay text: `outcome-event: yes` is the text yes, and not True.
    return yaml.load(text, Loader=yaml.BaseLoader)


def _toml(text: str) -> Any:
    try:
        tomllib = import_module("tomllib")
    except ImportError as error:
        raise ImportError(
            "settings in TOML need Python 3.11 or newer. Write them as .yaml."
        ) from error
    return tomllib.loads(text)
