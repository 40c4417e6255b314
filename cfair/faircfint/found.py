"""What an analysis found, before it is put into R's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Found:
    """What an analysis found.

    Attributes
    ----------
    cohort : Cohort
    n_read : int
        Rows of the table.
    dropped : mapping of str to int
        Missing values by column.
    rates : mapping of str to (1, T) array
        ``fpr, fnr, cfpr, cfnr``, perhaps ``cfpr_small, cfnr_small``, of groups, margins, all.
    null, boot : mapping of str to (R, T) array, or None
        The same in every replicate, and perhaps ``alpha``.
    alpha : float or None
        Share of the external model; None without one.
    rows : mapping of str to Series or DataFrame
        Probabilities of the rows, by name.
    models : list of (name, text)
    notes : tuple of str
    results : mapping of str to result
        Results of cfair's own analyses, where these were used.
    """

    cohort: Cohort
    n_read: int
    dropped: Mapping[str, int]
    rates: Mapping[str, Array]
    null: Mapping[str, Array] | None
    boot: Mapping[str, Array] | None
    alpha: float | None
    rows: Mapping[str, Any]
    models: list[tuple[str, str]]
    notes: tuple[str, ...]
    results: Mapping[str, Any] = field(default_factory=dict)
