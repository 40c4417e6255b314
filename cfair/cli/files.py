"""What goes into the folder of --out: every table and plot, a file each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfair.cli.flags import as_options
from cfair.errors import CfairError, DataError

if TYPE_CHECKING:
    import pandas as pd

    from cfair.audit import Audit
    from cfair.cli.run import Asked
    from cfair.results.equivalence import EquivalenceResult
    from cfair.results.observed import ObservedResult
    from cfair.results.performance import PerformanceResult
    from cfair.results.representation import RepresentationResult


def check_folder(folder: Path | None) -> None:
    """Refuse a folder that cannot be made, before any work.

    Raises
    ------
    DataError
    """
    if folder is None:
        return
    there = next(path for path in (folder, *folder.parents, Path()) if path.exists())
    if not there.is_dir():
        raise DataError(f"--out {str(folder)!r}: {str(there)!r} is a file, not a folder.")


class Folder:
    """A folder that is written to, and the names of what was written; and why something was not."""

    def __init__(self, path: Path, plots: bool = True) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.plots = plots
        self.written: list[str] = []
        self.without: list[str] = []

    def text(self, name: str, text: object) -> None:
        """Write a text; the name has its suffix."""
        (self.path / name).write_text(f"{text}\n", encoding="utf-8")
        self.written.append(name)

    def not_written(self, error: CfairError) -> None:
        """Keep why something was not written, once for all that has the same reason."""
        if str(error) not in self.without:
            self.without.append(str(error))

    def table(self, name: str, frame: pd.DataFrame) -> None:
        """Write a table as csv."""
        frame.to_csv(self.path / f"{name}.csv", index=False)
        self.written.append(f"{name}.csv")

    def plot(self, name: str, draw: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Draw a plot and write it as png, if plots are wanted and it may be drawn."""
        if not self.plots:
            return
        from matplotlib import pyplot

        try:
            figure = draw(*args, **kwargs).figure
        except CfairError as error:  # counts that it would show are masked, or it is too large
            self.not_written(error)
            return
        figure.savefig(self.path / f"{name}.png", dpi=150)
        pyplot.close(figure)
        self.written.append(f"{name}.png")


def print_written(path: Path, written: Sequence[str], without: Sequence[str] = ()) -> None:
    """Say what was written where, and what was not, with the reason."""
    print(f"\n{len(written)} files in {path}/:")
    print("  " + "\n  ".join(written))
    for said in without:
        print(f"Not written: {as_options(said)}")


def left_over(folder: Path, written: Sequence[str]) -> list[str]:
    """Files of an earlier run that this one did not write again."""
    ours = "observed|counterfactual|overlap|null|performance|representation|equivalence|table_one"
    pattern = re.compile(rf"({ours})[a-z_]*\.(csv|png|txt|md|json)")
    names = sorted(path.name for path in folder.iterdir() if pattern.fullmatch(path.name))
    return [name for name in names if name not in written]


def write_audit(
    path: Path,
    audit: Audit,
    observed: ObservedResult,
    counterfactual: Any,
    performance: PerformanceResult | None,
    tests: Mapping[str, EquivalenceResult],
    asked: Asked,
) -> tuple[list[str], list[str]]:
    """Write all tables and plots of an audit.

    Parameters
    ----------
    path : Path
        The folder.
    audit : Audit
    observed, counterfactual, performance, tests
        Its results, the tests of equivalence by what they are of; a missing one is None.
    asked : Asked
        Of which level, reference and plots are used.

    Returns
    -------
    (list of str, list of str)
        Names of the files, and what could not be written, with the reason.
    """
    folder = Folder(path, asked.plots)
    several = int((observed.cohort.groups.sizes > 0).sum()) > 1
    for name, result in (("observed", observed), ("counterfactual", counterfactual)):
        if result is not None:
            _write_rates(folder, name, result, several, asked.reference)
            folder.plot(f"{name}_forest", result.plot_forest)
    if counterfactual is not None:
        overlap = counterfactual.overlap
        folder.table("overlap_propensities", overlap.propensities)
        folder.table("overlap_effective_size", overlap.effective)
        folder.table("overlap_balance", overlap.balance)
        folder.plot("overlap", counterfactual.plot_overlap)
        folder.plot("overlap_by_group", counterfactual.plot_overlap, by_group=True)
        if counterfactual.null is not None:
            for metric in ("cfpr", "cfnr"):
                folder.plot(f"null_{metric}", counterfactual.plot_null, metric)
    if performance is not None:
        _write_rates(folder, "performance", performance, several, asked.reference)
        try:
            folder.table("performance_net_benefit", performance.net_benefit())
        except CfairError as error:  # disclosure control shows no curves
            folder.not_written(error)
        folder.plot("performance_roc", performance.plot_roc)
        folder.plot("performance_calibration", performance.plot_calibration)
        folder.plot("performance_net_benefit", performance.plot_net_benefit)
    for name, test in tests.items():
        folder.text(f"equivalence_{name}.txt", test)
        folder.table(f"equivalence_{name}_pairs", test.pairs)
        folder.table(f"equivalence_{name}_overall", test.overall)
        folder.plot(f"equivalence_{name}", test.plot)
    write_representation(folder, audit.representation(level=asked.level))
    try:
        patients = audit.table_one()
        folder.table("table_one", patients.cells)
        folder.text("table_one.md", patients.to_markdown())
    except CfairError as error:
        folder.not_written(error)
    return folder.written, folder.without


def _write_rates(
    folder: Folder, name: str, result: Any, several: bool, reference: str | None
) -> None:
    """Print, tables and plots of one result with a rate per group."""
    folder.text(f"{name}.txt", result)
    folder.table(f"{name}_rates", result.rates)
    folder.table(f"{name}_marginals", result.marginals)
    folder.plot(f"{name}_rates", result.plot_rates)
    if several:
        folder.table(f"{name}_contrasts", result.contrasts(reference))
        folder.table(f"{name}_disparities", result.disparities)
        folder.table(f"{name}_gaps", result.gaps())
        folder.table(f"{name}_equality", result.test_equal())
        folder.plot(f"{name}_disparities", result.plot_disparities)
        folder.plot(f"{name}_gaps", result.plot_gaps)


def write_representation(folder: Folder, result: RepresentationResult) -> None:
    """Write who is in a table.

    Parameters
    ----------
    folder : Folder
    result : RepresentationResult
    """
    folder.text("representation.txt", result)
    folder.text("representation.json", result.to_json())
    for name in ("cells", "levels", "attributes", "associations"):
        folder.table(f"representation_{name}", getattr(result, name))
    folder.plot("representation", result.plot)
