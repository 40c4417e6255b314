"""Options of the replicates: checked before any work, and how long they will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import CfairWarning, DataError, warn
from cfair.inference.bootstrap import KINDS
from cfair.inference.resampling import seed_entropy
from cfair.options import check_count, check_option

Integers = NDArray[np.integer]

#: Seconds beyond which it is said beforehand how long replicates take.
LONG = 60.0


@dataclass(frozen=True)
class Replicates:
    """Options of the replicates, checked before any work.

    Attributes
    ----------
    n_boot, n_perm : int
    bootstrap : str or None
    resamples, permutations : arrays or None
    seed : int
    n_jobs : int or None
    exact, progress : bool
    of_rows : {"group", "rows"}
        How rows are drawn by default.
    """

    n_boot: int
    n_perm: int
    bootstrap: str | None
    resamples: Sequence[Integers] | Integers | None
    permutations: Integers | None
    seed: int
    n_jobs: int | None
    exact: bool
    progress: bool
    of_rows: str = "group"

    @property
    def permutes(self) -> bool:
        """Whether a permutation null is wanted."""
        return self.n_perm > 0 or self.permutations is not None

    @property
    def bootstraps(self) -> bool:
        """Whether a bootstrap is wanted."""
        wanted = self.n_boot > 0 or self.resamples is not None
        return self.bootstrap is not None and wanted

    @property
    def n_wanted(self) -> int:
        """Replicates of the bootstrap and the null together."""
        boots = self.n_boot if self.resamples is None else len(self.resamples)
        perms = self.n_perm if self.permutations is None else len(self.permutations)
        return boots * self.bootstraps + perms * self.permutes

    def warn_if_long(self, seconds: float) -> None:
        """Say how long replicates that fit every model anew may take, before they are begun.

        Parameters
        ----------
        seconds : float
            That all models took once, with their folds.
        """
        from joblib import effective_n_jobs

        workers, n = int(effective_n_jobs(self.n_jobs)), self.n_wanted
        total = seconds * n / workers
        if total <= LONG:
            return
        warn(
            f"{n:,} replicates of models that took {_length(seconds)} on these rows may take up to "
            f"{_length(total)} on {workers:,} worker{'s' * (workers > 1)}. n_jobs=-1 takes all "
            "processors, progress=True shows how far they are, and smaller n_boot= and n_perm= are "
            "done sooner.",
            CfairWarning,
        )

    def check_rows(self, cohort: Cohort) -> None:
        """Check rows that the user gave for the replicates, before any work.

        Parameters
        ----------
        cohort : Cohort

        Raises
        ------
        DataError
        """
        n = cohort.n_used
        if self.permutations is not None:
            given = np.asarray(self.permutations)
            if given.ndim != 2 or given.shape[1] != n or given.dtype.kind not in "iu":
                raise DataError(
                    f"permutations must be whole numbers of shape (replicates, {n}), a row number "
                    f"for each row used, not {given.dtype} of shape {given.shape}."
                )
            if len(given) == 0:
                raise DataError("permutations holds no replicate.")
            if given.min() < 0 or given.max() >= n:
                raise DataError(f"permutations must hold row numbers from 0 to {n - 1}.")
            if (np.sort(given, axis=1) != np.arange(n)).any():
                raise DataError("each row of permutations must hold every row number exactly once.")
        if self.resamples is not None:
            if len(self.resamples) == 0:
                raise DataError("resamples holds no replicate.")
            for b, rows in enumerate(self.resamples):
                given = np.asarray(rows)
                wrong = given.ndim != 1 or len(given) == 0 or given.dtype.kind not in "iu"
                if wrong or given.min() < 0 or given.max() >= n:
                    raise DataError(
                        f"resamples: replicate {b} must be row numbers from 0 to {n - 1}, counted "
                        f"among the {n} rows used."
                    )

    def require_kind(self, cohort: Cohort) -> str:
        """The bootstrap, if the cohort has what it needs.

        Parameters
        ----------
        cohort : Cohort

        Returns
        -------
        str

        Raises
        ------
        DataError
            If clusters are to be drawn and there are none.
        """
        kind = self.kind(cohort) or self.of_rows
        if kind == "cluster" and cohort.cluster is None:
            raise DataError(
                'bootstrap="cluster" needs the column of the clusters: cluster="site", say.'
            )
        return kind

    def kind(self, cohort: Cohort) -> str | None:
        """The bootstrap: ``"given"``, or by default of clusters if there are any, else of rows."""
        if self.resamples is not None:
            return "given"
        if self.bootstrap != "auto":
            return self.bootstrap
        return self.of_rows if cohort.cluster is None else "cluster"


def _length(seconds: float) -> str:
    """A time as people say it.

    Examples
    --------
    >>> [_length(t) for t in (0.25, 6.0, 90.0, 230.0, 10_000.0)]
    ['0.25 s', '6 s', '90 s', '4 minutes', '2.8 hours']
    """
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:,.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"


def check_replicates(
    *,
    n_boot: Any,
    n_perm: Any,
    bootstrap: Any,
    resamples: Any,
    permutations: Any,
    seed: Any,
    n_jobs: Any,
    exact: Any,
    progress: Any,
) -> Replicates:
    """Check the options of the replicates.

    Parameters
    ----------
    n_boot, n_perm, bootstrap, resamples, permutations, seed, n_jobs, exact, progress
        As the user gave them.

    Returns
    -------
    Replicates

    Raises
    ------
    ValueError
        For a value that is not allowed.
    """
    check_option("bootstrap", bootstrap, ["auto", *KINDS, None])
    if n_jobs is not None and (
        isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0
    ):
        raise ValueError(f"n_jobs must be a whole number other than 0, or None, not {n_jobs!r}.")
    boots = check_count(n_boot, "n_boot")
    if bootstrap is None:
        if resamples is not None:
            raise ValueError("resamples= needs a bootstrap kind; bootstrap=None asks for none.")
        boots = 0
    if hasattr(resamples, "iloc"):
        resamples = np.asarray(resamples)  # a frame with a row per replicate
    if resamples is not None and (isinstance(resamples, str) or not hasattr(resamples, "__len__")):
        raise ValueError(
            "resamples must be a list of arrays of row numbers, one per replicate, not "
            f"{type(resamples).__name__}."
        )
    perms = check_count(n_perm, "n_perm")
    if permutations is not None and np.ndim(permutations) and perms not in (0, len(permutations)):
        raise ValueError(
            f"n_perm={perms} and permutations of {len(permutations)} replicates contradict each "
            "other. Leave n_perm= out."
        )
    return Replicates(
        n_boot=boots,
        n_perm=perms,
        bootstrap=bootstrap,
        resamples=resamples,
        permutations=permutations,
        seed=seed_entropy(seed),
        n_jobs=None if n_jobs is None else int(n_jobs),
        exact=bool(exact),
        progress=bool(progress),
    )
