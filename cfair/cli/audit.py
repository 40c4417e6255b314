"""``cfair audit``: the audit of a table in a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfair.cli.flags import Parser, add_inference, add_out, add_page, add_plots
from cfair.cli.run import Asked, run
from cfair.cli.settings import check_target, written
from cfair.cli.table import ask_about_na, column_names, read_table, value_written

if TYPE_CHECKING:
    import pandas as pd

HELP = "audit a table of your own (.csv, .tsv, .parquet)"
USAGE = "cfair audit FILE --outcome COLUMN --score COLUMN --groups COLUMN [...]"
DESCRIPTION = """\
Audit a risk score, or a 0/1 call, in a table with a row per patient. It prints
observed rates by group and, with --propensity, those had nobody been treated.
"""
EPILOG = """\
examples:
  cfair audit patients.csv --outcome died --outcome-event yes --score risk \\
      --cutoff 0.2 --groups sex race --missing drop --html report.html
  cfair audit patients.csv --settings audit.yaml --seed 7

audit.yaml:
  outcome: died
  outcome-event: yes
  score: risk
  cutoff: 0.2
  groups: [sex, race]
"""

_COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "outcome": ("the event under study, 0/1", {"required": True, "metavar": "COLUMN"}),
    "outcome-event": (
        "the value that is the event, such as yes; may be repeated",
        {"action": "append", "metavar": "VALUE"},
    ),
    "groups": (
        "protected attributes, crossed; with blanks or commas between",
        {"required": True, "nargs": "+", "metavar": "COLUMN"},
    ),
    "score": ("the risk score under audit, in [0, 1]: a percentage / 100", {"metavar": "COLUMN"}),
    "cutoff": ("flagged is score >= cutoff (default: 0.5)", {"type": float, "metavar": "NUMBER"}),
    "prediction": ("a 0/1 call in place of a score", {"metavar": "COLUMN"}),
    "cluster": ("hospital, say: rows with the same value are dependent", {"metavar": "COLUMN"}),
    "weights": ("sampling weights, not negative, on any scale", {"metavar": "COLUMN"}),
    "missing": (
        "rows with missing values: refuse them, drop and count them, or make missing a level of "
        "a group attribute (default: raise)",
        {"choices": ("raise", "drop", "level"), "default": "raise"},
    ),
    "na": (
        "text that means missing, beside an empty field, such as NA; may be repeated",
        {"action": "append", "default": [], "metavar": "TEXT"},
    ),
    "min-group-size": ("warn of groups with fewer rows", {"type": int, "metavar": "N"}),
    "suppress-below": (
        "disclosure control: mask counts of fewer rows, such as 11, in all that is printed and "
        "written",
        {"type": int, "metavar": "N"},
    ),
    "round-counts-to": (
        "disclosure control: round counts to multiples, such as 5, and compute all from these; "
        "neither score quality nor --propensity, which need the rows",
        {"type": int, "metavar": "N"},
    ),
}
_COUNTERFACTUAL: dict[str, tuple[str, dict[str, Any]]] = {
    "propensity": (
        'who is treated: "treated ~ sex * race + risk + age"',
        {"metavar": "FORMULA"},
    ),
    "treatment-event": (
        "the value that is treatment, such as surgery; may be repeated",
        {"action": "append", "metavar": "VALUE"},
    ),
    "outcome-model": (
        'who has the event: "died ~ sex * race + risk + age"; rates are then doubly robust',
        {"metavar": "FORMULA"},
    ),
    "folds": ("fit models out of fold, in so many folds", {"type": int, "metavar": "N"}),
}
_COMPARISONS: dict[str, tuple[str, dict[str, Any]]] = {
    "reference": (
        'compare every group with this one, such as "M & White", or with overall',
        {"metavar": "GROUP"},
    ),
    "equivalence": (
        "test whether groups are equivalent in these: tpr, fpr, ppv, selection_rate, auc, cfpr, "
        "cfnr, ...",
        {"nargs": "+", "metavar": "METRIC"},
    ),
    "margin": (
        "how far apart counts as equivalent, LOW and HIGH, or one number for a difference "
        "(default: 0.8 1.25; a difference has no default)",
        {"type": float, "nargs": "+", "metavar": "LIMIT"},
    ),
    "contrast": (
        "what the margin is of, group to reference (default: ratio)",
        {"choices": ("ratio", "odds_ratio", "difference")},
    ),
}


def add_flags(parser: Parser) -> None:
    """Declare the flags."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a row is a patient")
    parser.add_argument(
        "--settings", type=Path, metavar="FILE",
        help="options in a .yaml or .toml file, named as here, without the dashes; those on the "
        "command line win",
    )  # fmt: skip
    parser.add_argument(
        "--write-settings", type=Path, metavar="FILE",
        help="write the options of this call to a .yaml or .toml file, which --settings reads",
    )  # fmt: skip
    _add(parser.add_argument_group("the table"), _COLUMNS)
    _add(parser.add_argument_group("rates had nobody been treated"), _COUNTERFACTUAL)
    _add(parser.add_argument_group("comparisons"), _COMPARISONS)
    add_inference(parser, n_boot=0, n_perm=0, seed=0)
    output = parser.add_argument_group("output, beside what is printed")
    add_out(output, "all tables (csv) and plots (png)")
    add_plots(output)
    add_page(output)
    output.add_argument("--title", metavar="TEXT", help="title of the report")
    output.add_argument("--question", metavar="TEXT", help="what the report is to answer")
    parser.set_defaults(flags=parser.flags)


def _add(group: Any, flags: dict[str, tuple[str, dict[str, Any]]]) -> None:
    for name, (text, settings) in flags.items():
        group.add_argument(f"--{name}", help=text, **settings)


def command(arguments: argparse.Namespace) -> None:
    """Audit a file."""
    _check(arguments)
    given, target = dict(vars(arguments)), arguments.write_settings
    check_target(target)
    table = read_table(arguments.file, arguments.na, text=column_names(arguments.groups))
    arguments.groups = column_names(arguments.groups, list(table.columns))
    _refuse_bare_na(table, arguments)
    cutoff = arguments.cutoff
    if cutoff is None and arguments.score is not None and arguments.prediction is None:
        cutoff = 0.5
    run(
        table,
        Asked.of(arguments),
        outcome=arguments.outcome,
        outcome_event=value_written(table, arguments.outcome, arguments.outcome_event),
        score=arguments.score,
        cutoff=cutoff,
        prediction=arguments.prediction,
        groups=arguments.groups,
        treatment_event=_treatment_event(table, arguments),
        cluster=arguments.cluster,
        weights=arguments.weights,
        missing=arguments.missing,
        min_group_size=arguments.min_group_size,
        suppress_below=arguments.suppress_below,
        round_counts_to=arguments.round_counts_to,
    )
    if target is not None:
        target.write_text(written(target, given, arguments.flags), encoding="utf-8")
        print(f"\nThe options of this call: {target}")


def _check(arguments: argparse.Namespace) -> None:
    """Refuse flags that would have no effect, before the file is read."""
    needs: list[tuple[str, str, tuple[str, ...], str]] = [
        ("propensity", "are for counterfactual rates", ("n_boot", "n_perm"), ""),
        ("propensity", "are for counterfactual rates", ("outcome_model", "folds"), ""),
        ("propensity", "is for counterfactual rates", ("treatment_event",), ""),
        ("equivalence", "are for tests of equivalence", ("margin", "contrast"), " METRIC"),
        ("html", "are for the report", ("guideline", "title", "question"), " FILE"),
    ]
    for wanted, why, names, value in needs:
        if getattr(arguments, wanted) is None and any(getattr(arguments, n) for n in names):
            flags = [f"--{name.replace('_', '-')}" for name in names]
            said = " and ".join([", ".join(flags[:-1]), flags[-1]] if len(flags) > 1 else flags)
            it = "it needs" if len(flags) == 1 else "they need"
            raise ValueError(f"{said} {why}; {it} --{wanted}{value}.")
    if arguments.round_counts_to is not None and arguments.propensity is not None:
        raise ValueError(
            "--propensity needs the rows, and with --round-counts-to there are only rounded "
            "counts. Take --suppress-below in its place."
        )


def _refuse_bare_na(table: pd.DataFrame, arguments: argparse.Namespace) -> None:
    """Ask what NA means: R writes it for a missing value, but it may be a label."""
    roles = [arguments.outcome, arguments.score, arguments.prediction, arguments.cluster]
    roles += [arguments.weights, *arguments.groups]
    formula = f"{arguments.propensity or ''} {arguments.outcome_model or ''}"
    in_formula = [name for name in table.columns if str(name) in formula]
    ask_about_na(table, [*roles, *in_formula], arguments.na)


def _treatment_event(table: pd.DataFrame, arguments: argparse.Namespace) -> Any:
    if arguments.treatment_event is None:
        return None
    treatment = arguments.propensity.split("~", 1)[0].strip().strip("`")
    return value_written(table, treatment, arguments.treatment_event)
