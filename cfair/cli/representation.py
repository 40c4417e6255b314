"""``cfair representation``: who is in a table, before there is a score."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cfair.cli.files import Folder, print_written, write_representation
from cfair.cli.flags import Parser, add_out
from cfair.cli.table import ask_about_na, column_names, read_table, value_written

HELP = "who is in a table, and which groups are too small"
USAGE = "cfair representation FILE --cross COLUMN ... [OPTION ...]"
DESCRIPTION = """\
Count the groups of a table and their intersections: which are rare, too small
to judge, or missing. Neither a score nor an outcome is needed.
"""
EPILOG = """\
example:
  cfair representation patients.csv --cross sex,race --missing level
"""


def add_flags(parser: Parser) -> None:
    """Declare the flags."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a row is a patient")
    parser.add_argument(
        "--cross", nargs="+", required=True, metavar="COLUMN",
        help="attributes to be crossed, with blanks or commas between",
    )  # fmt: skip
    parser.add_argument("--outcome", metavar="COLUMN", help="count its events too, 0/1")
    parser.add_argument(
        "--outcome-event", action="append", metavar="VALUE",
        help="the value that is the event, such as yes; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--missing", choices=("drop", "level", "raise"), default="drop",
        help="rows that miss an attribute: in no cell but counted, a level, or refused "
        "(default: drop)",
    )  # fmt: skip
    parser.add_argument(
        "--na", action="append", default=[], metavar="TEXT",
        help="text that means missing, beside an empty field, such as NA; may be repeated",
    )  # fmt: skip
    numbers: dict[str, tuple[Any, str, str]] = {
        "floor": (0.01, "SHARE", "share of the rows below which a cell is named"),
        "min-count": (100, "N", "rows below which rates are not to be relied on"),
        "rate": (0.2, "RATE", "the rate whose interval shows what a cell can say"),
        "level": (0.95, "L", "confidence level of the intervals"),
    }
    for name, (default, letter, text) in numbers.items():
        parser.add_argument(
            f"--{name}", type=type(default), default=default, metavar=letter,
            help=f"{text} (default: {default})",
        )  # fmt: skip
    parser.add_argument(
        "--disclosure", type=int, nargs="+", default=[20, 11], metavar="N",
        help="name cells with fewer rows, which may disclose who somebody is (default: 20 11)",
    )  # fmt: skip
    parser.add_argument(
        "--suppress-below", type=int, metavar="N",
        help="disclosure control: mask counts of fewer rows, such as 11",
    )  # fmt: skip
    parser.add_argument(
        "--round-counts-to", type=int, metavar="N",
        help="disclosure control: round counts to multiples, such as 5",
    )  # fmt: skip
    parser.add_argument(
        "--denominator", choices=("known", "all"), default="known",
        help="shares of the rows that have all attributes, or of all rows (default: known)",
    )  # fmt: skip
    add_out(parser, "tables, json and plot")


def command(arguments: argparse.Namespace) -> None:
    """Print who is in a table, and write tables, json and plot if a folder is given."""
    from cfair.analyses.representation import representation_of

    if arguments.outcome is None and arguments.outcome_event is not None:
        raise ValueError("--outcome-event is a value of --outcome, which is not given.")
    table = read_table(arguments.file, arguments.na, text=column_names(arguments.cross))
    cross = column_names(arguments.cross, list(table.columns))
    ask_about_na(table, [*cross, arguments.outcome], arguments.na)
    result = representation_of(
        table,
        cross,
        outcome=arguments.outcome,
        outcome_event=value_written(table, arguments.outcome, arguments.outcome_event),
        missing=arguments.missing,
        floor=arguments.floor,
        min_count=arguments.min_count,
        disclosure=arguments.disclosure,
        rate=arguments.rate,
        level=arguments.level,
        denominator=arguments.denominator,
        suppress_below=arguments.suppress_below,
        round_counts_to=arguments.round_counts_to,
    )
    print(result)
    if arguments.out is not None:
        folder = Folder(arguments.out)
        write_representation(folder, result)
        print_written(arguments.out, folder.written, folder.without)
