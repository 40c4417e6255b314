"""What commands share of their flags, and how an error names them: in one line."""

from __future__ import annotations

import argparse
import ast
import difflib
import re
import shlex
from pathlib import Path
from typing import Any, NoReturn

_OPTIONS = (
    "outcome_event", "treatment_event", "outcome", "score", "cutoff", "prediction", "groups",
    "propensity", "outcome_model", "estimator", "folds", "cluster", "weights", "missing",
    "min_group_size", "level", "n_boot", "n_perm", "bootstrap", "seed", "n_jobs",
    "suppress_below", "round_counts_to", "margin", "contrast", "reference",
)  # fmt: skip


class _Help(argparse.RawDescriptionHelpFormatter):
    """Texts as they are written, and room for the names of flags."""

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, max_help_position=27, **settings)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which takes no shortened flags."""

    def __init__(self, **settings: Any) -> None:
        # A shortened flag would mean another one as soon as a flag is added.
        super().__init__(allow_abbrev=False, formatter_class=_Help, **settings)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line, and stop with 2."""
        if "required: FILE" in message:
            message += " (FILE comes first: a flag with several values takes all that follow it)"
        self.exit(2, f"cfair: error: {message}. See {self.prog} --help.\n")

    @property
    def flags(self) -> dict[str, argparse.Action]:
        """Long flags by their names, without the dashes."""
        return {
            text[2:]: action
            for action in self._actions
            for text in action.option_strings
            if text.startswith("--")
        }


def near(name: str, names: Any) -> str:
    """What may have been meant.

    Examples
    --------
    >>> near("scor", ["score", "seed"])
    'Did you mean score?'
    """
    found = difflib.get_close_matches(name, list(names), n=3)
    return f"Did you mean {' or '.join(found)}?" if found else ""


def as_options(message: str) -> str:
    """Name options as they are written on the command line.

    Examples
    --------
    >>> as_options('Say which is the event: outcome_event="yes". Or missing="drop".')
    'Say which is the event: --outcome-event yes. Or --missing drop.'
    >>> as_options("Name all: outcome_event=['yes', 'Yes'].")
    'Name all: --outcome-event yes --outcome-event Yes.'
    >>> as_options("Give one, such as margin=(-0.05, 0.05).")
    'Give one, such as --margin -0.05 0.05.'
    >>> as_options("suppress_below must be a whole number.")
    '--suppress-below must be a whole number.'
    """

    def option(found: re.Match[str]) -> str:
        name, pair, quote, value = found.group(1, 2, 3, 4)
        text = f"--{name.replace('_', '-')}"
        if pair:
            return f"{text} {' '.join(pair.split(', '))}"
        if quote:
            return f"{text} {shlex.quote(value)}"
        return text + " " * bool(re.match(r"[\w(\[]|[-+.]\d", message[found.end() :]))

    def options(found: re.Match[str]) -> str:
        try:
            values = ast.literal_eval(found[2])
        except (SyntaxError, ValueError):  # a bracket in a value
            return found[0]
        return " ".join(f"--{found[1].replace('_', '-')} {shlex.quote(str(v))}" for v in values)

    message = re.sub(r"\b(outcome_event|treatment_event)=(\[.*?\])", options, message)
    names = "|".join(_OPTIONS)
    pattern = rf"\b({names})=(?:\(([-.\d]+, [-.\d]+)\)|([\"'])(.*?)\3)?"
    message = re.sub(pattern, option, message)
    # names with an underscore are of options wherever they stand
    pattern = rf"\b({'|'.join(name for name in _OPTIONS if '_' in name)})\b"
    return re.sub(pattern, lambda found: f"--{found[0].replace('_', '-')}", message)


def add_out(parser: Any, what: str, default: Path | None = None) -> None:
    """The flag of the folder that files go to."""
    parser.add_argument(
        "--out", type=Path, default=default, metavar="DIR",
        help=f"folder for {what}" + " (default: %(default)s)" * (default is not None),
    )  # fmt: skip


def add_plots(parser: Any) -> None:
    """The flag of tables without plots."""
    parser.add_argument(
        "--no-plots", dest="plots", action="store_false", help="only tables in the folder of --out"
    )


def add_page(parser: Any, default: str = "") -> None:
    """The flags of the page of HTML."""
    parser.add_argument(
        "--html", type=Path, metavar="FILE",
        help="report: one page with everything, to be read in a browser; needs jinja2 (pip install "
        f'"cfair[report]") {default}'.strip(),
    )  # fmt: skip
    parser.add_argument(
        "--guideline", choices=("tripod+ai",), help="add the guideline's items to the report"
    )


def add_inference(parser: Parser, *, n_boot: int, n_perm: int, seed: int) -> None:
    """The flags of intervals, bootstrap and permutations."""
    group = parser.add_argument_group("intervals and replicates")
    numbers: dict[str, tuple[float, str, str]] = {
        "level": (0.95, "L", "confidence level of the intervals"),
        "n-boot": (n_boot, "N", "bootstrap replicates"),
        "n-perm": (n_perm, "N", "permutations of the group labels, for the null"),
        "seed": (seed, "N", "of bootstrap and permutations"),
        "n-jobs": (1, "N", "workers for the replicates; the numbers stay the same"),
    }
    for name, (default, letter, text) in numbers.items():
        group.add_argument(
            f"--{name}", type=type(default), default=default, metavar=letter,
            help=f"{text} (default: {default})",
        )  # fmt: skip
    group.add_argument(
        "--bootstrap",
        choices=("auto", "group", "rows", "cluster", "faircfint"),
        default="auto",
        help="how rows are drawn (default: auto, by cluster if there are clusters, else within "
        "groups)",
    )
