"""``cfair power``: plan a study that is to show equal rates, before there are data."""

from __future__ import annotations

import argparse
from typing import Any

from cfair.cli.files import Folder, print_written
from cfair.cli.flags import Parser, add_out

HELP = "plan a study that is to show equal rates"
USAGE = (
    "cfair power --share P --prevalence P --sensitivity P --specificity P\n"
    "                   [OPTION ...]"
)
DESCRIPTION = """\
How many patients it takes to show that two groups have equal rates, and with
what power --n patients do. The reference group is all who are not in the group.
"""
EPILOG = """\
example, with a group of a quarter of the patients:
  cfair power --share 0.25 --prevalence 0.2 --sensitivity 0.6 \\
      --specificity 0.75 --n 5000
"""
_PLAN: dict[str, str] = {
    "share": "share of patients who are in the group, as a rule the disadvantaged one",
    "prevalence": "share of the group with the event",
    "sensitivity": "of the model in the group",
    "specificity": "of the model in the group",
    "reference-prevalence": "of the reference group, if another",
    "reference-sensitivity": "of the reference group, if another",
    "reference-specificity": "of the reference group, if another",
}


def add_flags(parser: Parser) -> None:
    """Declare the flags."""
    expected = parser.add_argument_group("what is expected, all in (0, 1)")
    for name, text in _PLAN.items():
        needed = not name.startswith("reference")
        expected.add_argument(f"--{name}", type=float, required=needed, metavar="P", help=text)
    parser.add_argument(
        "--n", type=int, metavar="N", help="patients there are, in both groups together"
    )
    parser.add_argument(
        "--margin", type=float, nargs="+", metavar="LIMIT",
        help="how far apart counts as equal, LOW and HIGH, or one number for a difference "
        "(default: 0.8 1.25, the four-fifths rule; a difference has no default)",
    )  # fmt: skip
    parser.add_argument(
        "--contrast", choices=("ratio", "odds_ratio", "difference"), default="ratio",
        help="what the margin is of, group to reference (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--alpha", type=float, default=0.05, metavar="P",
        help="level of each of the two tests (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--power", type=float, default=0.8, metavar="P",
        help="wanted (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--method", choices=("wald", "score"), default="wald",
        help="test that is planned for: the published formula, or the score test, which stays "
        "right with smaller cells (default: %(default)s)",
    )  # fmt: skip
    add_out(parser, "tables and plots")


def margin_of(limits: list[float] | None) -> Any:
    """The limits of a margin as Python takes them: a pair, or one number.

    Parameters
    ----------
    limits : list of float or None

    Returns
    -------
    list of float, float, or None
    """
    return limits[0] if limits is not None and len(limits) == 1 else limits


def command(arguments: argparse.Namespace) -> None:
    """Print a plan of equivalence tests, and write tables and plots if a folder is given."""
    from cfair.analyses.planning import equivalence_plan

    if arguments.margin is None and arguments.contrast == "difference":
        raise ValueError("a difference has no default margin: give --margin, such as -0.05 0.05.")
    expected = [name.replace("-", "_") for name in _PLAN]
    plan = equivalence_plan(
        arguments.n,
        **{name: getattr(arguments, name) for name in expected},
        margin=margin_of(arguments.margin),
        contrast=arguments.contrast,
        alpha=arguments.alpha,
        power=arguments.power,
        method=arguments.method,
    )
    print(plan)
    if arguments.out is None:
        return
    folder = Folder(arguments.out)
    folder.text("power.txt", plan)
    folder.table("power", plan.frame)
    folder.table("power_prevalence", plan.prevalence_alone)
    folder.plot("power_by_n", plan.plot_power)
    if arguments.n is not None:
        folder.plot("power_by_margin", plan.plot_margin)
    print_written(arguments.out, folder.written)
