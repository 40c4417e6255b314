"""The command line: ``cfair example`` and ``cfair audit``."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfair._version import __version__
from cfair.errors import CfairError, CfairWarning, DataError

if TYPE_CHECKING:
    import pandas as pd

    from cfair.results.rates import RatesResult

_EXAMPLE_PROPENSITY = "treated ~ sex * race + risk + age + sbp"

_DESCRIPTION = """\
Audit a clinical risk score for fairness across intersectional groups: observed error rates, and
the error rates had nobody been treated.

  cfair example                            the whole of it on a simulated cohort that ships along
  cfair audit FILE --outcome .. --groups ..  the same on your own table
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
            arguments.run(arguments)
    except (CfairError, ValueError, OSError) as error:
        print(f"cfair: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    return 0


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
    _add_inference(example, n_boot=500, n_perm=500, seed=2026)
    example.set_defaults(run=_example)

    audit = commands.add_parser("audit", help="audit a table of your own (.csv, .tsv, .parquet)")
    audit.add_argument("file", type=Path, metavar="FILE", help="a row is a patient")
    _add_roles(audit)
    audit.add_argument("--out", type=Path, metavar="DIR", help="folder for tables and plots")
    _add_inference(audit, n_boot=0, n_perm=0, seed=0)
    audit.set_defaults(run=_audit)
    return parser


def _add_roles(parser: argparse.ArgumentParser) -> None:
    roles = parser.add_argument_group("columns")
    roles.add_argument("--outcome", required=True, metavar="COLUMN", help="the event, 0/1")
    roles.add_argument("--outcome-event", metavar="VALUE", help="the value that is the event")
    roles.add_argument(
        "--groups", required=True, nargs="+", metavar="COLUMN", help="protected attributes"
    )
    roles.add_argument("--score", metavar="COLUMN", help="the risk score under audit, in [0, 1]")
    roles.add_argument(
        "--cutoff", type=float, metavar="NUMBER", help="flagged is score >= cutoff (default: 0.5)"
    )
    roles.add_argument("--prediction", metavar="COLUMN", help="a 0/1 call in place of a score")
    roles.add_argument(
        "--propensity", metavar="FORMULA",
        help='"treated ~ sex * race + risk + age": without it only observed rates are given',
    )  # fmt: skip
    roles.add_argument("--treatment-event", metavar="VALUE", help="the value that is treatment")
    roles.add_argument("--cluster", metavar="COLUMN", help="rows with one value are dependent")
    roles.add_argument(
        "--missing", choices=("raise", "drop", "level"), default="raise",
        help="rows with missing values: refuse, drop and count, or a level of a group attribute "
        "(default: %(default)s)",
    )  # fmt: skip
    roles.add_argument(
        "--na", action="append", default=[], metavar="TEXT",
        help="text that means missing, beside an empty field; may be repeated",
    )  # fmt: skip


def _add_inference(parser: argparse.ArgumentParser, *, n_boot: int, n_perm: int, seed: int) -> None:
    group = parser.add_argument_group("inference")
    group.add_argument("--level", type=float, default=0.95, help="confidence (default: 0.95)")
    group.add_argument("--n-boot", type=int, default=n_boot, metavar="N",
                       help="bootstrap replicates (default: %(default)s)")  # fmt: skip
    group.add_argument("--n-perm", type=int, default=n_perm, metavar="N",
                       help="permutations for the null (default: %(default)s)")  # fmt: skip
    group.add_argument("--seed", type=int, default=seed, help="of the replicates (%(default)s)")
    group.add_argument("--n-jobs", type=int, default=1, metavar="N", help="workers (%(default)s)")


def _example(arguments: argparse.Namespace) -> None:
    from cfair.datasets import load_cohort

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
    table = read_table(arguments.file, arguments.na)
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
        missing=arguments.missing,
    )


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


def read_table(path: Path, missing: Sequence[str] = ()) -> pd.DataFrame:
    """Read a table; only an empty field, or a text named here, is a missing value.

    Parameters
    ----------
    path : Path
        Ending in .csv, .tsv, .csv.gz or .parquet.
    missing : sequence of str, optional
        Texts that mean missing.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    DataError
        If the file is not there, or not of these kinds.
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
        separator = "," if ".csv" in name else "\t"
        try:
            return pd.read_csv(
                path, sep=separator, keep_default_na=False, na_values=["", *missing],
                low_memory=False,
            )  # fmt: skip
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise DataError(f"{str(path)!r} cannot be read as a table: {error}") from error
    raise DataError(f"{str(path)!r} must end in .csv, .csv.gz, .tsv or .parquet.")


def _run(table: Any, arguments: argparse.Namespace, *, propensity: Any, **roles: Any) -> None:
    """Print both analyses, and write tables and plots if a folder is given."""
    from cfair.audit import Audit

    audit = Audit(table, **roles)
    observed = audit.observed(level=arguments.level)
    counterfactual = None
    if propensity is not None:
        counterfactual = audit.counterfactual(
            propensity,
            level=arguments.level,
            n_boot=arguments.n_boot,
            n_perm=arguments.n_perm,
            seed=arguments.seed,
            n_jobs=arguments.n_jobs,
            progress=True,
        )
    print(observed)
    print()
    if counterfactual is None:
        print('For counterfactual rates give --propensity "treatment ~ covariates".')
    else:
        print(counterfactual)
    if arguments.out is not None:
        written = _write(arguments.out, observed, counterfactual)
        print(f"\n{len(written)} files in {arguments.out}/:")
        print("  " + "\n  ".join(written))


def _write(folder: Path, observed: RatesResult, counterfactual: Any) -> list[str]:
    """Write every table and plot; returns the names."""
    folder.mkdir(parents=True, exist_ok=True)
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
            table(f"{name}_contrasts", result.contrasts())
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
