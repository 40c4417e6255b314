"""The command line: ``cfair example``, ``audit``, ``representation`` and ``power``."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfair._version import __version__
from cfair.errors import CfairError, CfairWarning, DataError

if TYPE_CHECKING:
    import pandas as pd

    from cfair.results.rates import RatesResult
    from cfair.results.representation import RepresentationResult

_OPTIONS = (
    "outcome_event", "treatment_event", "outcome", "score", "cutoff", "prediction", "groups",
    "propensity", "outcome_model", "estimator", "folds", "cluster", "weights", "missing",
    "min_group_size", "level", "n_boot", "n_perm", "bootstrap", "seed", "n_jobs",
)  # fmt: skip
_EXAMPLE_PROPENSITY = "treated ~ sex * race + risk + age + sbp"

_DESCRIPTION = """\
Audit a clinical risk score for fairness across intersectional groups: observed error rates, and
the error rates had nobody been treated.

  cfair example                            the whole of it on a simulated cohort that ships along
  cfair audit FILE --outcome .. --groups ..  the same on your own table
  cfair representation FILE --cross sex,race who is in a table, and which groups are too small
  cfair power --share .. --prevalence ..     plan a study that is to show equal rates: no data yet
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        0, or 2 when the input cannot be used.
    """
    arguments = _parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            # What is warned of also stands in the notes of the printed result.
            warnings.simplefilter("ignore", CfairWarning)
            _check_folder(getattr(arguments, "out", None))
            arguments.run(arguments)
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("cfair: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, `head` say, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (CfairError, ValueError, OSError, ImportError) as error:
        print(f"cfair: error: {_as_options(' '.join(str(error).split()))}", file=sys.stderr)
        return 2
    return 0


def _as_options(message: str) -> str:
    """Name options as they are written on the command line.

    Examples
    --------
    >>> _as_options('Say which is the event: outcome_event="yes". Or missing="drop".')
    'Say which is the event: --outcome-event yes. Or --missing drop.'
    """

    def option(found: re.Match[str]) -> str:
        quote, value = found.group(2), found.group(3)
        text = f"--{found.group(1).replace('_', '-')}"
        if quote:
            return f"{text} {shlex.quote(value)}"
        return text + " " * bool(re.match(r"[\w(\[]|[-+.]\d", message[found.end() :]))

    names = "|".join(_OPTIONS)
    return re.sub(rf"\b({names})=(?:([\"'])(.*?)\2)?", option, message)


def _check_folder(folder: Path | None) -> None:
    """Refuse a folder that cannot be made, before any work."""
    if folder is None:
        return
    there = next(path for path in (folder, *folder.parents, Path()) if path.exists())
    if not there.is_dir():
        raise DataError(f"--out {str(folder)!r}: {str(there)!r} is a file, not a folder.")


def _names(given: Sequence[str], columns: Sequence[Any] | None = None) -> list[str]:
    """Column names with commas between taken apart, unless that is the name of a column.

    Without columns the names as they are given come first, and then their parts.
    """
    names: list[str] = []
    for text in given:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if columns is None:
            names += [text, *parts]
        else:
            names += [text] if text in columns else parts
    return names if columns is not None else list(dict.fromkeys(names))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cfair", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"cfair {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    example = commands.add_parser("example", help="a complete audit of the cohort that ships along")
    example.add_argument(
        "--out", type=Path, default=Path("cfair-example"), metavar="DIR",
        help="folder for tables and plots (default: %(default)s)",
    )  # fmt: skip
    _add_html(example, "(default: report.html in the folder, if jinja2 is installed)")
    _add_inference(example, n_boot=500, n_perm=500, seed=2026)
    example.set_defaults(run=_example)

    audit = commands.add_parser("audit", help="audit a table of your own (.csv, .tsv, .parquet)")
    audit.add_argument("file", type=Path, metavar="FILE", help="a row is a patient")
    _add_roles(audit)
    audit.add_argument("--out", type=Path, metavar="DIR", help="folder for tables and plots")
    _add_html(audit)
    audit.add_argument("--title", metavar="TEXT", help="of the report")
    audit.add_argument("--question", metavar="TEXT", help="what the report is to answer")
    _add_inference(audit, n_boot=0, n_perm=0, seed=0)
    audit.set_defaults(run=_audit)

    who = commands.add_parser(
        "representation", help="who is in a table: counts and shares of groups, no outcome needed"
    )
    who.add_argument("file", type=Path, metavar="FILE", help="a row is a patient")
    _add_representation(who)
    who.set_defaults(run=_representation)

    power = commands.add_parser(
        "power", help="plan a study that is to show equal rates: power, sample size and margin"
    )
    _add_power(power)
    power.set_defaults(run=_power)
    return parser


def _add_html(parser: argparse.ArgumentParser, default: str = "") -> None:
    parser.add_argument(
        "--html", type=Path, metavar="FILE",
        help=f"one page with everything, to be read in a browser; needs jinja2 {default}".strip(),
    )  # fmt: skip
    parser.add_argument(
        "--guideline", choices=("tripod+ai",), help="adds its items to the page of --html"
    )


_PLAN: dict[str, str] = {
    "share": "share of the group, as a rule the disadvantaged one; the reference is the rest",
    "prevalence": "share of patients with the event, in (0, 1)",
    "sensitivity": "that the model is expected to have, in (0, 1)",
    "specificity": "the same",
    "reference-prevalence": "of the reference, if another than the group's",
    "reference-sensitivity": "the same",
    "reference-specificity": "the same",
}


def _add_power(parser: argparse.ArgumentParser) -> None:
    for name, text in _PLAN.items():
        needed = not name.startswith("reference")
        parser.add_argument(f"--{name}", type=float, required=needed, metavar="NUMBER", help=text)
    parser.add_argument(
        "--n", type=int, metavar="N", help="patients there are, in both groups together"
    )
    parser.add_argument(
        "--margin", type=float, nargs=2, metavar=("LOW", "HIGH"),
        help="how far apart still counts as equal (default: 0.8 1.25, the four-fifths rule; a "
        "difference has no default)",
    )  # fmt: skip
    parser.add_argument(
        "--contrast", choices=("ratio", "odds_ratio", "difference"), default="ratio",
        help="what the margin is of, group to reference (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--alpha", type=float, default=0.05, metavar="NUMBER",
        help="level of each of the two tests (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--power", type=float, default=0.8, metavar="NUMBER", help="wanted (default: %(default)s)"
    )
    parser.add_argument(
        "--method", choices=("wald", "score"), default="wald",
        help="test that is planned for: the published formula, or the score test, which stays "
        "right with smaller cells (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for tables and plots")


def _power(arguments: argparse.Namespace) -> None:
    """Print a plan of equivalence tests, and write tables and plots if a folder is given."""
    from cfair.analyses.planning import equivalence_plan

    if arguments.margin is None and arguments.contrast == "difference":
        raise ValueError("a difference has no default margin: give --margin, such as -0.05 0.05.")
    plan = equivalence_plan(
        arguments.n,
        **{name.replace("-", "_"): getattr(arguments, name.replace("-", "_")) for name in _PLAN},
        margin=arguments.margin,
        contrast=arguments.contrast,
        alpha=arguments.alpha,
        power=arguments.power,
        method=arguments.method,
    )
    print(plan)
    if arguments.out is None:
        return
    from cfair.plotting import save_all

    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "power.txt").write_text(f"{plan}\n", encoding="utf-8")
    plan.frame.to_csv(arguments.out / "power.csv", index=False)
    plan.prevalence_alone.to_csv(arguments.out / "power_prevalence.csv", index=False)
    plots: dict[str, Any] = {"power_by_n": plan.plot_power}
    if arguments.n is not None:
        plots["power_by_margin"] = plan.plot_margin
    written = ["power.txt", "power.csv", "power_prevalence.csv"]
    written += [path.name for path in save_all(plots, arguments.out)]
    print(f"\n{len(written)} files in {arguments.out}/:")
    print("  " + "\n  ".join(written))


def _add_representation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cross", nargs="+", required=True, metavar="COLUMN",
        help="attributes to be crossed, one or more, with blanks or commas between",
    )  # fmt: skip
    for name in ("outcome", "outcome-event", "na"):
        text, settings = _ROLES[name]
        parser.add_argument(f"--{name}", help=text, **{**settings, "required": False})
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for tables, json and plot")
    numbers: dict[str, tuple[Any, str]] = {
        "floor": (0.01, "share below which a cell is named"),
        "min-count": (100, "rows below which rates are not to be relied on"),
        "rate": (0.2, "the rate whose interval shows what a cell can say"),
        "level": (0.95, "confidence level of the intervals"),
    }
    for name, (default, text) in numbers.items():
        parser.add_argument(
            f"--{name}", type=type(default), default=default, metavar="NUMBER",
            help=f"{text} (default: {default})",
        )  # fmt: skip
    parser.add_argument(
        "--disclosure", type=int, nargs="+", default=[20, 11], metavar="ROWS",
        help="rows below which a cell may disclose who somebody is (default: 20 11)",
    )  # fmt: skip
    parser.add_argument(
        "--denominator", choices=("known", "all"), default="known",
        help="shares of the rows that have all attributes, or of all rows (default: known)",
    )  # fmt: skip
    parser.add_argument(
        "--missing", choices=("drop", "level", "raise"), default="drop",
        help="rows that miss an attribute: in no cell but counted, a level, or refused "
        "(default: drop)",
    )  # fmt: skip


def _representation(arguments: argparse.Namespace) -> None:
    """Print who is in a table, and write tables, json and plot if a folder is given."""
    from cfair.analyses.representation import representation_of

    table = read_table(arguments.file, arguments.na, text=_names(arguments.cross))
    cross = _names(arguments.cross, list(table.columns))
    _ask_about_na(table, [*cross, arguments.outcome], arguments.na)
    result = representation_of(
        table,
        cross,
        outcome=arguments.outcome,
        outcome_event=_value(table, arguments.outcome, arguments.outcome_event),
        missing=arguments.missing,
        floor=arguments.floor,
        min_count=arguments.min_count,
        disclosure=arguments.disclosure,
        rate=arguments.rate,
        level=arguments.level,
        denominator=arguments.denominator,
    )
    print(result)
    if arguments.out is None:
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    written = _write_representation(arguments.out, result)
    print(f"\n{len(written)} files in {arguments.out}/:")
    print("  " + "\n  ".join(written))


def _write_representation(folder: Path, result: RepresentationResult) -> list[str]:
    from matplotlib import pyplot

    (folder / "representation.txt").write_text(f"{result}\n", encoding="utf-8")
    (folder / "representation.json").write_text(f"{result.to_json()}\n", encoding="utf-8")
    tables = ("cells", "levels", "attributes", "associations")
    for name in tables:
        frame = getattr(result, name)
        frame.to_csv(folder / f"representation_{name}.csv", index=False)
    ax = result.plot()
    ax.figure.savefig(folder / "representation.png", dpi=150, bbox_inches="tight")
    pyplot.close(ax.figure)
    names = [f"representation_{name}.csv" for name in tables]
    return ["representation.txt", "representation.json", *names, "representation.png"]


_ROLES: dict[str, tuple[str, dict[str, Any]]] = {
    "outcome": ("the event under study, 0/1", {"required": True, "metavar": "COLUMN"}),
    "outcome-event": ("the value that is the event, such as yes", {"metavar": "VALUE"}),
    "groups": (
        "protected attributes, with blanks or commas between",
        {"required": True, "nargs": "+", "metavar": "COLUMN"},
    ),
    "score": ("the risk score under audit, in [0, 1]", {"metavar": "COLUMN"}),
    "cutoff": ("flagged is score >= cutoff (default: 0.5)", {"type": float, "metavar": "NUMBER"}),
    "prediction": ("a 0/1 call in place of a score", {"metavar": "COLUMN"}),
    "propensity": (
        '"treated ~ sex * race + risk + age"; without it only observed rates are given',
        {"metavar": "FORMULA"},
    ),
    "outcome-model": (
        '"died ~ sex * race + risk + age"; with it rates are doubly robust',
        {"metavar": "FORMULA"},
    ),
    "folds": ("fit models out of fold, in this many folds", {"type": int, "metavar": "N"}),
    "treatment-event": ("the value that is treatment, such as surgery", {"metavar": "VALUE"}),
    "cluster": ("hospital, say: rows with the same value are dependent", {"metavar": "COLUMN"}),
    "weights": ("sampling weights, not negative, on any scale", {"metavar": "COLUMN"}),
    "reference": ('compare all groups with this one, "M & White"', {"metavar": "GROUP"}),
    "min-group-size": ("warn of groups with fewer rows", {"type": int, "metavar": "N"}),
    "missing": (
        "rows with missing values: refuse, drop and count, or make them a level of a group "
        "attribute (default: raise)",
        {"choices": ("raise", "drop", "level"), "default": "raise"},
    ),
    "na": (
        "text that means missing, beside an empty field, such as NA; may be repeated",
        {"action": "append", "default": [], "metavar": "TEXT"},
    ),
}


def _add_roles(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("columns")
    for name, (text, settings) in _ROLES.items():
        group.add_argument(f"--{name}", help=text, **settings)


def _add_inference(parser: argparse.ArgumentParser, *, n_boot: int, n_perm: int, seed: int) -> None:
    group = parser.add_argument_group("inference")
    numbers = {
        "level": (0.95, "confidence level of the intervals"),
        "n-boot": (n_boot, "bootstrap replicates"),
        "n-perm": (n_perm, "permutations for the null"),
        "seed": (seed, "of bootstrap and permutations"),
        "n-jobs": (1, "workers for the replicates"),
    }
    for name, (default, text) in numbers.items():
        group.add_argument(
            f"--{name}",
            type=type(default),
            default=default,
            metavar="NUMBER",
            help=f"{text} (default: {default})",
        )
    group.add_argument(
        "--bootstrap",
        choices=("auto", "group", "rows", "cluster", "faircfint"),
        default="auto",
        help="how rows are drawn (default: clusters if there are any, else rows within group)",
    )


def _example(arguments: argparse.Namespace) -> None:
    from cfair.datasets import load_cohort

    if arguments.html is None and find_spec("jinja2") is not None:
        arguments.html = arguments.out / "report.html"
    print("The simulated cohort of 5,000 patients that ships with cfair, as cfair.load_cohort().\n")
    _run(
        load_cohort(),
        arguments,
        propensity=_EXAMPLE_PROPENSITY,
        outcome="readmitted",
        score="risk",
        cutoff=0.5,
        groups=["sex", "race"],
    )


def _audit(arguments: argparse.Namespace) -> None:
    table = read_table(arguments.file, arguments.na, text=_names(arguments.groups))
    arguments.groups = _names(arguments.groups, list(table.columns))
    _refuse_bare_na(table, arguments)
    if arguments.propensity is None and (arguments.n_boot or arguments.n_perm):
        raise ValueError(
            "--n-boot and --n-perm are for counterfactual rates; they need --propensity."
        )
    if arguments.propensity is None and (arguments.outcome_model or arguments.folds):
        raise ValueError(
            "--outcome-model and --folds are for counterfactual rates; they need --propensity."
        )
    cutoff = arguments.cutoff
    if cutoff is None and arguments.score is not None and arguments.prediction is None:
        cutoff = 0.5
    _run(
        table,
        arguments,
        propensity=arguments.propensity,
        outcome=arguments.outcome,
        outcome_event=_value(table, arguments.outcome, arguments.outcome_event),
        score=arguments.score,
        cutoff=cutoff,
        prediction=arguments.prediction,
        groups=arguments.groups,
        treatment_event=_treatment_event(table, arguments),
        cluster=arguments.cluster,
        weights=arguments.weights,
        missing=arguments.missing,
        min_group_size=arguments.min_group_size,
    )


def _refuse_bare_na(table: pd.DataFrame, arguments: argparse.Namespace) -> None:
    """Ask what NA means: R writes it for a missing value, but it may be a label."""
    roles = [arguments.outcome, arguments.score, arguments.prediction, arguments.cluster]
    roles += [arguments.weights, *arguments.groups]
    formula = f"{arguments.propensity or ''} {arguments.outcome_model or ''}"
    in_formula = [name for name in table.columns if str(name) in formula]
    _ask_about_na(table, [*roles, *in_formula], arguments.na)


def _ask_about_na(table: pd.DataFrame, used: Sequence[Any], missing: Sequence[str]) -> None:
    """Refuse the text NA in a column that is used, unless it was said what is missing."""
    for name in table.columns:
        if name not in used or missing or _is_numeric(table[name]):
            continue
        n = int((table[name] == "NA").sum())
        if n:
            raise DataError(
                f"column {name!r} has the text NA in {n} rows. If that means missing, as in files "
                "that R writes, add --na NA; if it is a label, add --na '' so that only empty "
                "fields are missing."
            )


def _is_numeric(column: pd.Series) -> bool:
    """Whether a column was read as numbers."""
    from pandas.api.types import is_numeric_dtype

    return bool(is_numeric_dtype(column))


def _treatment_event(table: pd.DataFrame, arguments: argparse.Namespace) -> Any:
    if arguments.treatment_event is None or arguments.propensity is None:
        return None
    treatment = arguments.propensity.split("~", 1)[0].strip().strip("`")
    return _value(table, treatment, arguments.treatment_event)


def _value(table: pd.DataFrame, column: str, text: str | None) -> Any:
    """The value of a column that is written like this."""
    if text is None or column not in table.columns:
        return text
    for value in table[column].dropna().unique():
        if str(value) == text:
            return value
    return text


def read_table(path: Path, missing: Sequence[str] = (), text: Sequence[str] = ()) -> pd.DataFrame:
    """Read a table; only an empty field, or a text named here, is a missing value.

    Parameters
    ----------
    path : Path
        Ending in .csv, .tsv, .csv.gz or .parquet.
    missing : sequence of str, optional
        Texts that mean missing.
    text : sequence of str, optional
        Columns whose values stay as they are written, so that 01 and 1 are two labels; plain whole
        numbers become numbers.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    DataError
        If the file is not there, not of these kinds, or no table.
    """
    import pandas as pd

    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}.")
    name = path.name.lower()
    if name.endswith(".parquet"):
        try:
            return pd.read_parquet(path)
        except ImportError as error:
            raise DataError(
                'reading parquet needs pyarrow: pip install "cfair[frames]".'
            ) from error
    if name.endswith((".csv", ".csv.gz", ".tsv", ".txt")):
        return _read_text(path, "," if ".csv" in name else "\t", missing, text)
    raise DataError(f"{str(path)!r} must end in .csv, .csv.gz, .tsv or .parquet.")


def _read_text(
    path: Path, separator: str, missing: Sequence[str], text: Sequence[str]
) -> pd.DataFrame:
    import pandas as pd

    try:
        header = pd.read_csv(
            path, sep=separator, nrows=1, header=None, dtype=str, keep_default_na=False,
            encoding="utf-8-sig",
        ).iloc[0].tolist()  # fmt: skip
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise DataError(f"{str(path)!r} has two columns called {twice[0]!r}. Rename one.")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                path, sep=separator, keep_default_na=False, na_values=["", *missing],
                low_memory=False, encoding="utf-8-sig", index_col=False,
                dtype=dict.fromkeys(text, str),
            )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"{str(path)!r} cannot be read as a table: {error}") from error
    except pd.errors.ParserWarning as error:
        raise DataError(
            f"{str(path)!r} has rows with more fields than its header has names ({len(header)}): a "
            "separator too many at the end, or a name too few."
        ) from error
    other = next((s for s in ";\t,|" if s != separator and s in header[0]), None)
    if len(header) == 1 and other:
        raise DataError(
            f"{str(path)!r} was read as a single column, {header[0][:60]!r}: the separator seems "
            f"to be {other!r}, not {separator!r}. Write it with commas as .csv, or with tabs as "
            ".tsv."
        )
    for column in text:
        if column in table and table[column].dropna().str.fullmatch(r"0|-?[1-9][0-9]{0,14}").all():
            table[column] = pd.to_numeric(table[column]).astype("Int64")
    return table


def _run(table: Any, arguments: argparse.Namespace, *, propensity: Any, **roles: Any) -> None:
    """Print both analyses, and write tables and plots if a folder is given."""
    from cfair.audit import Audit
    from cfair.results.contrasts import compared_groups

    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)  # found out before the long work
    if arguments.html is not None:
        from cfair.report import check_report

        check_report(arguments.html)
    elif arguments.guideline:
        raise ValueError("--guideline is for the page of --html, which is not given.")
    audit = Audit(table, **roles)
    observed = audit.observed(level=arguments.level)
    reference = getattr(arguments, "reference", None)
    if reference is not None:
        compared_groups(observed.cohort.groups, None, reference)  # the same
    counterfactual = None
    if propensity is not None:
        counterfactual = audit.counterfactual(
            propensity,
            outcome_model=getattr(arguments, "outcome_model", None),
            folds=getattr(arguments, "folds", None),
            level=arguments.level,
            n_boot=arguments.n_boot,
            n_perm=arguments.n_perm,
            seed=arguments.seed,
            n_jobs=arguments.n_jobs,
            bootstrap=arguments.bootstrap,
            progress=True,
        )
    print(observed)
    print()
    if counterfactual is None:
        print('For counterfactual rates give --propensity "treatment ~ covariates".')
    else:
        print(counterfactual)
    page = None
    if arguments.html is not None:
        page = audit.report(
            arguments.html,
            *(result for result in (observed, counterfactual) if result is not None),
            title=getattr(arguments, "title", None),
            question=getattr(arguments, "question", None),
            guideline=arguments.guideline,
        )
    if arguments.out is not None:
        written = _write(arguments.out, observed, counterfactual, reference)
        if page is not None and page.parent == arguments.out:
            written.append(page.name)
        older = _left_over(arguments.out, written)
        print(f"\n{len(written)} files in {arguments.out}/:")
        print("  " + "\n  ".join(written))
        if older:
            print(f"Left from an earlier run in this folder: {', '.join(older)}.")
    if page is not None:
        print(f"\nEverything on one page: {page}")


def _left_over(folder: Path, written: Sequence[str]) -> list[str]:
    """Files of an earlier run that this one did not write again."""
    pattern = re.compile(r"(observed|counterfactual|overlap|null)[a-z_]*\.(csv|png|txt)")
    names = sorted(path.name for path in folder.iterdir() if pattern.fullmatch(path.name))
    return [name for name in names if name not in written]


def _write(
    folder: Path, observed: RatesResult, counterfactual: Any, reference: str | None = None
) -> list[str]:
    """Write every table and plot; returns the names."""
    written: list[str] = []

    def table(name: str, frame: pd.DataFrame) -> None:
        frame.to_csv(folder / f"{name}.csv", index=False)
        written.append(f"{name}.csv")

    def plot(name: str, ax: Any) -> None:
        from matplotlib import pyplot

        ax.figure.savefig(folder / f"{name}.png", dpi=150, bbox_inches="tight")
        pyplot.close(ax.figure)
        written.append(f"{name}.png")

    results = {"observed": observed}
    if counterfactual is not None:
        results["counterfactual"] = counterfactual
    for name, result in results.items():
        (folder / f"{name}.txt").write_text(f"{result}\n", encoding="utf-8")
        written.append(f"{name}.txt")
        table(f"{name}_rates", result.rates)
        table(f"{name}_marginals", result.marginals)
        plot(f"{name}_rates", result.plot_rates())
        if sum(result.cohort.groups.sizes > 0) > 1:
            table(f"{name}_contrasts", result.contrasts(reference))
            table(f"{name}_disparities", result.disparities)
            table(f"{name}_equality", result.test_equal())
            plot(f"{name}_disparities", result.plot_disparities())
    if counterfactual is not None:
        table("overlap_propensities", counterfactual.overlap.propensities)
        table("overlap_effective_size", counterfactual.overlap.effective)
        table("overlap_balance", counterfactual.overlap.balance)
        plot("overlap", counterfactual.plot_overlap())
        plot("overlap_by_group", counterfactual.plot_overlap(by_group=True))
        if counterfactual.null is not None:
            for metric in ("cfpr", "cfnr"):
                plot(f"null_{metric}", counterfactual.plot_null(metric))
    return written


if __name__ == "__main__":
    raise SystemExit(main())
