"""The command line: ``cfair example``, ``audit``, ``representation`` and ``power``."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence

from cfair._version import __version__
from cfair.cli import audit, example, power, representation
from cfair.cli.files import check_folder
from cfair.cli.flags import Parser, as_options, near
from cfair.cli.settings import with_settings
from cfair.cli.table import read_table
from cfair.errors import CfairError, CfairWarning

__all__ = ["main", "read_table"]

_DESCRIPTION = """\
Is a clinical risk score fair to every group? Error rates by intersectional
group, in the data as they are and had nobody been treated.
"""
_EPILOG = """\
Start with `cfair example`. `cfair audit --help` says how to audit your own.
"""
_EXIT_CODES = """
exit codes: 0 done; 2 the options or the table cannot be used, and one line on
stderr says why; 130 stopped by Ctrl-C.
"""
_COMMANDS = {
    "example": example,
    "audit": audit,
    "representation": representation,
    "power": power,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        0; 2 when the input cannot be used; 130 when stopped by the user.

    Examples
    --------
    >>> main(["representation", "no.csv", "--cross", "sex"])
    2
    """
    try:
        arguments = _parse(list(sys.argv[1:] if argv is None else argv))
        with warnings.catch_warnings():
            # What is warned of also stands in the notes of the printed result.
            warnings.simplefilter("ignore", CfairWarning)
            check_folder(arguments.out)
            arguments.command(arguments)
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("cfair: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, `head` say, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (CfairError, ValueError, OSError, ImportError) as error:
        print(f"cfair: error: {as_options(' '.join(str(error).split()))}", file=sys.stderr)
        return 2
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    """Read the arguments, those of a settings file among them."""
    parser, commands = _parser()
    if argv and argv[0] == "audit":
        argv = ["audit", *with_settings(argv[1:], commands["audit"])]
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        own = commands[arguments.name]
        flags = [f"--{name}" for name in own.flags]
        hint = near(unknown[0].split("=")[0], flags)
        own.error(f"there is no option {unknown[0]}{'. ' * bool(hint)}{hint.rstrip('?')}")
    return arguments


def _parser() -> tuple[Parser, dict[str, Parser]]:
    parser = Parser(
        prog="cfair",
        usage="cfair COMMAND [OPTION ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG + _EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"cfair {__version__}")
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", dest="name", parser_class=Parser
    )
    found: dict[str, Parser] = {}
    for name, module in _COMMANDS.items():
        own = commands.add_parser(
            name,
            prog=f"cfair {name}",
            help=module.HELP,
            description=module.DESCRIPTION,
            usage=module.USAGE,
            epilog=module.EPILOG + _EXIT_CODES,
        )
        module.add_flags(own)
        own.set_defaults(command=module.command)
        found[name] = own
    return parser, found
