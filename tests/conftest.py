"""Fixtures that several test files share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from cfair.analyses import counterfactual as analysis

# A deadline in milliseconds tells how busy the machine is, not whether a property holds.
settings.register_profile("cfair", deadline=None)
settings.load_profile("cfair")


@pytest.fixture
def cells_made(monkeypatch):
    """The cells behind replicates, in the order in which analyses made them: results keep rates."""
    made = []

    def keeping(function):
        def call(*args, **options):
            made.append(function(*args, **options))
            return made[-1]

        return call

    for name in ("permutation_null", "bootstrap_draws"):
        monkeypatch.setattr(analysis, name, keeping(getattr(analysis, name)))
    return made
