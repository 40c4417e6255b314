"""What ``example`` and ``audit`` do alike: compute, print, write files and a report."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfair.cli.files import left_over, print_written, write_audit
from cfair.cli.power import margin_of
from cfair.options import check_option

if TYPE_CHECKING:
    from cfair.audit import Audit
    from cfair.results.equivalence import EquivalenceResult
    from cfair.results.rates import RatesResult

#: Rates that only the counterfactual result has.
_COUNTERFACTUAL = ("cfpr", "cfnr")


@dataclass(frozen=True)
class Asked:
    """What was asked for beside the declaration of the table.

    Attributes
    ----------
    Named as the flags.
    """

    level: float
    n_boot: int
    n_perm: int
    seed: int
    n_jobs: int
    bootstrap: str
    propensity: str | None = None
    outcome_model: str | None = None
    folds: int | None = None
    reference: str | None = None
    equivalence: list[str] | None = None
    margin: list[float] | None = None
    contrast: str | None = None
    out: Path | None = None
    plots: bool = True
    html: Path | None = None
    guideline: str | None = None
    title: str | None = None
    question: str | None = None

    @classmethod
    def of(cls, arguments: argparse.Namespace, **more: Any) -> Asked:
        """Read the arguments of a command.

        Parameters
        ----------
        arguments : argparse.Namespace
        **more
            What the command has no flag for.

        Returns
        -------
        Asked
        """
        names = [field.name for field in fields(cls)]
        given = {name: value for name, value in vars(arguments).items() if name in names}
        return cls(**{**given, **more})


def run(table: Any, asked: Asked, **roles: Any) -> None:
    """Print the analyses, and write tables, plots and a report if that is asked for.

    Parameters
    ----------
    table : data frame
    asked : Asked
    **roles
        Of `cfair.Audit`.
    """
    from cfair.audit import Audit
    from cfair.results.contrasts import compared_groups

    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)  # found out before the long work
    if asked.html is not None:
        from cfair.report import check_report

        check_report(asked.html)
    if roles.get("suppress_below") is not None and asked.propensity is not None:
        roles |= _same_rows(table, asked)
    audit = Audit(table, **roles)
    observed = audit.observed(level=asked.level)
    if asked.reference is not None:
        compared_groups(observed.cohort.groups, None, asked.reference)
    scored = roles.get("score") is not None and roles.get("prediction") is None
    scored = scored and roles.get("round_counts_to") is None  # of counts there is no score
    performance = None
    if scored and (asked.out or asked.html or asked.equivalence):
        performance = audit.performance(level=asked.level)
    sources = {"observed": observed, "performance": performance}
    wanted = _by_source(asked, sources)
    tests = {k: _equivalence(sources[k], wanted[k], asked) for k in sources if wanted[k]}
    counterfactual = _counterfactual(audit, asked)
    if wanted["counterfactual"]:
        tests["counterfactual"] = _equivalence(counterfactual, wanted["counterfactual"], asked)

    rates = [result for result in (observed, counterfactual) if result is not None]
    for result in rates:
        print(f"{result}\n")
        if asked.reference is not None:
            print("\n".join(_compared(result, asked.reference)) + "\n")
    for test in tests.values():
        print("\n".join(_verdicts(test)) + "\n")
        print(f"{test}\n")
    if counterfactual is None:
        print('For counterfactual rates give --propensity "treatment ~ covariates".')
    page = None
    if asked.html is not None:
        page = audit.report(
            asked.html,
            *rates,
            *([performance] if performance is not None else []),
            *tests.values(),
            title=asked.title,
            question=asked.question,
            guideline=asked.guideline,
        )
    if asked.out is not None:
        written, without = write_audit(
            asked.out, audit, observed, counterfactual, performance, tests, asked
        )
        if page is not None and page.parent == asked.out:
            written.append(page.name)
        print_written(asked.out, written, without)
        older = left_over(asked.out, written)
        if older:
            print(f"Left from an earlier run in this folder: {', '.join(older)}.")
    if page is not None:
        print(f"\nEverything on one page: {page}")


def _same_rows(table: Any, asked: Asked) -> dict[str, Any]:
    """Roles with which all results are of the rows of the formulas: others could be subtracted."""
    from cfair.formula import parse_formula

    names = [str(name) for name in table.columns]
    models = {"propensity": asked.propensity, "outcome model": asked.outcome_model}
    read = {w: parse_formula(f, names, what=w) for w, f in models.items() if f is not None}
    columns = dict.fromkeys(name for formula in read.values() for name in formula.columns)
    return {"treatment": read["propensity"].left, "complete": list(columns)}


def _counterfactual(audit: Audit, asked: Asked) -> Any:
    """Rates had nobody been treated, if there is a formula; with a bar on a terminal."""
    if asked.propensity is None:
        return None
    return audit.counterfactual(
        asked.propensity,
        outcome_model=asked.outcome_model,
        folds=asked.folds,
        level=asked.level,
        n_boot=asked.n_boot,
        n_perm=asked.n_perm,
        seed=asked.seed,
        n_jobs=asked.n_jobs,
        bootstrap=asked.bootstrap,
        progress=sys.stderr.isatty(),
    )


def _by_source(asked: Asked, sources: dict[str, Any]) -> dict[str, list[str]]:
    """Metrics to be tested for equivalence, by the result that has them; checked at once."""
    from cfair.results.equivalence_question import read_question

    known = {name: result.metrics for name, result in sources.items() if result is not None}
    if asked.propensity is not None:
        known["counterfactual"] = _COUNTERFACTUAL
    found: dict[str, list[str]] = {name: [] for name in (*sources, "counterfactual")}
    names = {"sensitivity": "tpr", "specificity": "tnr"}
    for text in asked.equivalence or ():
        for part in filter(None, text.replace(",", " ").split()):
            metric = names.get(part, part)
            if metric in _COUNTERFACTUAL and asked.propensity is None:
                raise ValueError(f"--equivalence {metric} is of counterfactual rates; it needs "
                                 "--propensity.")  # fmt: skip
            every = list(dict.fromkeys(m for metrics in known.values() for m in metrics))
            check_option("--equivalence", metric, every)
            where = next(name for name, metrics in known.items() if metric in metrics)
            if metric not in found[where]:
                found[where].append(metric)
    if found["counterfactual"]:  # the others are checked when they are tested, before long work
        read_question(
            found["counterfactual"], _COUNTERFACTUAL, _COUNTERFACTUAL,
            margin=margin_of(asked.margin),
            contrast=asked.contrast or "ratio", alpha=0.05, method="auto", adjust=None,
        )  # fmt: skip
    return found


def _equivalence(result: Any, metrics: list[str], asked: Asked) -> EquivalenceResult:
    found: EquivalenceResult = result.equivalence(
        metrics,
        margin=margin_of(asked.margin),
        contrast=asked.contrast or "ratio",
        reference=asked.reference,
    )
    return found


def _verdicts(test: EquivalenceResult) -> list[str]:
    """A sentence per metric, which is read before the table of pairs."""
    from cfair.disclosure import MASKED
    from cfair.results import text

    lines = []
    for row in test.overall.to_dict("records"):
        low, high = test.question.margins[row["metric"]]
        pairs = test.pairs[test.pairs["metric"] == row["metric"]]
        masked = int(pairs["note"].str.startswith(MASKED).sum())
        undecided = {
            "not enough data": row["not_enough_data"],
            "no power": row["no_power"],
            "masked": masked,
            "undefined": row["undefined"] - masked,
        }
        why = ", ".join(f"{n:,} {name}" for name, n in undecided.items() if n)
        groups = "pair of groups" if len(pairs) == 1 else "pairs of groups"
        lines += text.facts(
            [
                (
                    f"{test.labels[row['metric']]}: ",
                    f"of {len(pairs):,} {groups}, {row['equivalent']:,} equivalent "
                    f"({test.question.contrast.replace('_', ' ')} within {low:.4g} to {high:.4g}), "
                    f"{row['different']:,} different, {sum(undecided.values()):,} undecided"
                    f"{f' ({why})' * bool(why)}.",
                )
            ]
        )
    return lines


def _compared(result: RatesResult, reference: str) -> list[str]:
    """The differences of every group to the reference, as lines."""
    from cfair.results import text

    frame = result.contrasts(reference)
    labels = {e.metric: r.label for e, r in zip(result.estimates, result.rows, strict=True)}
    rows, last = [], ""
    for row in frame.to_dict("records"):
        difference = text.estimate(row["estimate"], row["ci_low"], row["ci_high"])
        p = text.p_value(row["p_adjusted"]).removeprefix("p ").removeprefix("= ")
        label = labels[row["metric"]]
        note = text.one_line(str(row["note"]), 50)
        rows.append([label if label != last else "", str(row["group"]), difference, p, note])
        last = label
    if not any(row[-1] for row in rows):
        rows = [row[:-1] for row in rows]
    header = ["difference", f"to {text.one_line(reference, 40)}", "", "p (adjusted)", "note"]
    lines = text.table(header[: len(rows[0])], rows, left=2)
    return [*lines, *text.facts([(" ", f"adjusted: {frame['family'].iloc[0]}")])]
