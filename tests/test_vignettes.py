"""Vignettes can be built, and their pages are those of the scripts; running them is `--check`."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "vignettes"
if not FOLDER.exists():
    pytest.skip("an installed package comes without vignettes", allow_module_level=True)

spec = importlib.util.spec_from_file_location("vignettes_build", FOLDER / "build.py")
assert spec is not None
assert spec.loader is not None
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)

NAMES = build.names()


def script(name: str) -> str:
    return (FOLDER / f"{name}.py").read_text(encoding="utf-8")


def page(name: str) -> str:
    path = FOLDER / f"{name}.html"
    assert path.exists(), f"python vignettes/build.py {name}"
    return path.read_text(encoding="utf-8")


def cited(name: str) -> set[str]:
    prose = "\n".join(line for line in script(name).splitlines() if line.startswith("#"))
    return {key for group in re.findall(r"\[[^\]]*@[^\]]*\]", prose) for key in keys(group)}


def keys(group: str) -> list[str]:
    return re.findall(r"@([a-z][\w:-]*\w)", group)


def test_there_are_vignettes():
    assert {"first_audit", "treatment_and_score", "from_faircfint", "validation"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_parses_and_has_its_parts(name):
    ast.parse(script(name))
    title, summary = build.opening(name)
    assert title
    assert 40 < len(summary) < 800
    assert "\n# ## How to report it\n" in script(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_that_of_its_script(name):
    carried = re.search(r'<meta name="source" content="(\S+) sha256:(\w+)">', page(name))
    assert carried is not None
    assert carried[1] == f"{name}.py"
    assert carried[2] == build.source_hash(name), f"stale: python vignettes/build.py {name}"


@pytest.mark.parametrize("name", [*NAMES, "index"])
def test_a_page_needs_no_network_and_shows_no_machine(name):
    text = page(name)
    loaded = re.findall(r'<(?:script|iframe|link|img|source)\b[^>]*?(?:src|href)="([^"]*)"', text)
    assert all(where.startswith("data:") for where in loaded)
    assert "<script" not in text
    assert not [leak for leak in build.LEAKS if re.search(leak, build.pictureless(text))]


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_described(name):
    for picture in re.findall(r"<img\b[^>]*>", page(name)):
        described = re.search(r'(?:alt|aria-label)="([^"]*)"', picture)
        assert described is not None
        assert len(described[1]) > 30


@pytest.mark.parametrize("name", NAMES)
def test_what_is_cited_is_in_the_bibliography(name):
    known = {
        key
        for path in FOLDER.glob("refs*.bib")
        for key in re.findall(r"^@\w+\{([^,]+),", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert cited(name) <= known
    assert cited(name)


def test_the_index_leads_to_every_page():
    assert set(re.findall(r'href="(\w+)\.html"', page("index"))) == set(NAMES)


def test_comparison_leaves_pictures_out_and_sees_all_else(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "HERE", tmp_path / "old")
    (tmp_path / "old").mkdir()
    fresh = tmp_path / "page.html"
    committed = tmp_path / "old" / "page.html"

    def page_with(rate: str, bytes_of_picture: str, alt: str) -> str:
        return f'<p>{rate}</p><img src="data:{bytes_of_picture}" alt="{alt}" />'

    fresh.write_text(page_with("0.1", "AAAA", "a plot"))
    assert build.changes(fresh)  # no page yet
    for rate, picture, alt, old in (
        ("0.1", "BBBB", "a plot", False),
        ("0.2", "AAAA", "a plot", True),
        ("0.1", "AAAA", "another plot", True),
    ):
        committed.write_text(page_with(rate, picture, alt))
        assert bool(build.changes(fresh)) is old
