"""The implementations of the original, as far as they are there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from validation.live_original.original import PLAIN, WATCH, Original

ABSENT = (
    "the R package faircfint is not installed: in R, "
    "remotes::install_github('swastvedt/faircfint@c85c934'); the recorded figures of version "
    "0.0.0.9000 in validation/recorded stand in for it"
)


IMPLEMENTATIONS = ["plain R", "plain R, stopping early", "faircfint"]


@pytest.fixture(scope="session")
def plain(r) -> Original:
    """Our rendering with R's usual limits; its functions stay in an environment of their own."""
    r.run(WATCH)
    r.run(f"plain <- local({{\n{PLAIN}\nenvironment()\n}})")
    return Original(r, "R, plain, stopping early", "plain$analysis_estimation")


@pytest.fixture(params=IMPLEMENTATIONS)
def original(request, r, plain) -> Original:
    """Our rendering with fits to the maximum, the same as R stops, and the package."""
    if request.param == "plain R":
        return replace(plain, name="R, plain", exact=True)
    if request.param == "faircfint":
        if not r("(requireNamespace('faircfint', quietly = TRUE))")[0]:
            pytest.skip(ABSENT)
        return replace(plain, name="R package faircfint", code="faircfint::analysis_estimation")
    return plain
