"""Fixtures that several test files share."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

from cfair.analyses import counterfactual as analysis
from cfair.report import pictures

# A deadline in milliseconds tells how busy the machine is, not whether a property holds.
settings.register_profile("cfair", deadline=None)
settings.load_profile("cfair")


def pytest_collection_finish():
    """Leave what was imported so far out of garbage collection.

    Each full collection would look at a million objects of the imported libraries.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a file with one worker until another is idle: they share results."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


@pytest.fixture
def unsaved_pictures(monkeypatch):
    """Draw the pictures of a page without writing them out, which takes as long as all its text."""
    for name in ("_vector", "_pixels"):
        monkeypatch.setattr(pictures, name, lambda figure: b"<svg/>")


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
