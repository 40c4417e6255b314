"""``cfair example``: a complete audit of the cohort that ships along."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from cfair.cli.flags import Parser, add_inference, add_out, add_page, add_plots
from cfair.cli.run import Asked, run

HELP = "a complete audit of the cohort that ships along"
DESCRIPTION = """\
Audit the simulated cohort of 5,000 patients that ships with cfair: print rates
by group, observed and had nobody been treated, and write all tables and plots,
and a report, to a folder.
"""
USAGE = "cfair example [OPTION ...]"
EPILOG = """\
example:
  cfair example --out my-example
"""
_PROPENSITY = "treated ~ sex * race + risk + age + sbp"


def add_flags(parser: Parser) -> None:
    """Declare the flags."""
    add_out(parser, "tables and plots", Path("cfair-example"))
    add_plots(parser)
    add_page(parser, "(default: report.html in the folder, if jinja2 is installed)")
    add_inference(parser, n_boot=500, n_perm=500, seed=2026)


def command(arguments: argparse.Namespace) -> None:
    """Run the example."""
    from cfair.datasets import load_cohort

    if arguments.html is None and find_spec("jinja2") is not None:
        arguments.html = arguments.out / "report.html"
    print("The simulated cohort of 5,000 patients that ships with cfair, as cfair.load_cohort().\n")
    run(
        load_cohort(),
        Asked.of(arguments, propensity=_PROPENSITY),
        outcome="readmitted",
        score="risk",
        cutoff=0.5,
        groups=["sex", "race"],
    )
