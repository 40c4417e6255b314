"""How to repeat a report: calls, versions, seeds, and a fingerprint of the data."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

from cfair._version import __version__
from cfair.cohort import Cohort
from cfair.report.blocks import Block, Bullets, Code, Paragraph, Rows, Table
from cfair.report.methods import learner_in
from cfair.report.wording import name_of
from cfair.results.fitted_model import FitAndAuditResult

#: Packages whose version can move a number.
PACKAGES: tuple[str, ...] = ("numpy", "pandas", "scipy", "statsmodels", "patsy")


def versions(*, learners: bool = False) -> list[tuple[str, str]]:
    """Names and versions of what computed the results.

    Parameters
    ----------
    learners : bool, default False
        Whether scikit-learn took part.

    Returns
    -------
    list of (str, str)
    """
    found = [("cfair", __version__), ("Python", platform.python_version())]
    for name in (*PACKAGES, *(["scikit-learn"] if learners else [])):
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            found.append((name, "not installed"))
    return found


def fingerprint(cohort: Cohort) -> str:
    """SHA-256 of the rows and columns that an analysis used.

    Of the names and values, in the order of the rows used, of outcome, call, treatment, score,
    attributes, columns of formulas, clusters and weights. Numbers enter as little-endian 64-bit
    floats; attributes and text as their distinct values and the position of each row's among them.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    sha = hashlib.sha256()
    columns: dict[str, Any] = {
        f"outcome {cohort.outcome_name}={cohort.outcome_event!r}": cohort.y,
        f"call {cohort.rule}": cohort.s,
        f"treatment {cohort.treatment_name}={cohort.treatment_event!r}": cohort.d,
        f"score {cohort.score_name}": cohort.score,
        f"cluster {cohort.cluster_name}": cohort.cluster,
        f"weights {cohort.weights_name}": cohort.weights,
        "rows counted": cohort.repeats,
        "group names": np.array(cohort.groups.names, dtype=object),
        "group": cohort.groups.codes,
    }
    columns |= {f"column {name}": cohort.data[name] for name in sorted(map(str, cohort.data))}
    for name, values in columns.items():
        if values is not None:
            _add(sha, name.encode("utf-8", "surrogatepass"))
            _add(sha, _bytes(values))
    return sha.hexdigest()


def _add(sha: Any, content: bytes) -> None:
    """Content after its length, so that no two sequences of contents are alike."""
    sha.update(len(content).to_bytes(8, "little"))
    sha.update(content)


def _bytes(values: Any) -> bytes:
    if isinstance(values, pd.Series):
        values = values.array
    if isinstance(values, pd.Categorical):
        levels = "\x1f".join(map(str, values.categories)).encode("utf-8", "surrogatepass")
        return levels + b"\x1e" + np.asarray(values.codes).astype("<i8").tobytes()
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array.astype("<f8").tobytes()
    return "\x1f".join(map(str, array)).encode("utf-8", "surrogatepass")


def repeat_blocks(
    declaration: str, results: Sequence[Any], fitted: Sequence[FitAndAuditResult] = ()
) -> list[Block]:
    """Calls, versions, seeds and a fingerprint of the data.

    Parameters
    ----------
    declaration : str
    results : sequence of results
    fitted : sequence of FitAndAuditResult
        Whose split of the rows was drawn.

    Returns
    -------
    list of blocks
    """
    calls = [
        getattr(r, "call", "") or f"# {name_of(r)}: the call was not recorded" for r in results
    ]
    made = [f"# cfair.fit_and_audit: {'; '.join(f'{k} {v}' for k, v in r.facts if v)}"
            for r in fitted]  # fmt: skip
    declared = next((f"{r.call}.audit" for r in fitted if r.call), declaration)
    text = "\n".join([*made, f"audit = {declared}", *dict.fromkeys(calls)])
    learners = bool(fitted) or "cfair.Learner" in text
    rows = tuple((name, value) for name, value in versions(learners=learners))
    seeds = [f"{name_of(r)}: {said}" for r in results if (said := _seeded(r))]
    seeds += [f"Fitted model: {said}" for r in fitted for _, said in r.facts if "seed" in said]
    blocks: list[Block] = [
        Code(text, "The calls that made this report"),
        Paragraph(
            "Arguments that were not given have their defaults. Those that change no number "
            "(n_jobs, progress) are left out; data given beside the table stand in angle brackets."
        ),
        Table("Versions", ("Software", "Version"), (Rows("", rows),), text_columns=(1,)),
        Bullets(tuple(seeds)) if seeds else Paragraph("Nothing random: no seed was used."),
    ]
    if any(r.cohort.controlled for r in results if hasattr(r, "cohort")):
        said = "A fingerprint of the data is left out: with it, guesses of counts could be "
        blocks.append(Paragraph(f"{said}checked."))
        return blocks
    prints: dict[str, list[str]] = {}
    for r in results:
        if hasattr(r, "cohort"):
            prints.setdefault(fingerprint(r.cohort), []).append(name_of(r))
    rows = tuple((name, key) for key, names in prints.items() for name in dict.fromkeys(names))
    blocks.append(
        Table(
            "SHA-256 of the data used",
            ("Result", "SHA-256"),
            (Rows("", rows),),
            text_columns=(1,),
            note="Of names and values of all columns that an analysis used, of the rows used, in "
            "their order. Analyses that use other columns have another one.",
        )
    )
    return blocks


def _seeded(result: Any) -> str:
    """The seed of a result and what was drawn with it; empty where nothing was random."""
    seed = getattr(result, "seed", None)
    if seed is None:
        return ""
    folds, boot, null = (getattr(result, name, None) for name in ("folds", "boot", "null"))
    models = [getattr(result, name, None) for name in ("propensity", "outcome_model")]
    drawn = [f"{folds.n_folds} folds"] if folds is not None and folds.drawn else []
    drawn += ["fits of a learner"] * any(learner_in(m) for m in models)
    for draws, what in ((boot, "bootstrap replicates"), (null, "permutations")):
        drawn += [f"{draws.n_replicates:,} {what}"] if draws is not None else []
    return f"seed {seed}, {', '.join(drawn)}" if drawn else ""
