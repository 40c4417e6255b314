"""Runs the vignettes and writes each as one HTML page that needs no network.

    python vignettes/build.py                     # all pages and the index
    python vignettes/build.py first_audit         # one page and the index
    python vignettes/build.py --check             # are the committed pages those of these sources?

A page is made in a temporary folder by jupytext (script to notebook), nbclient (runs it) and pandoc
(notebook to HTML), and is written only when all of it went well.

``--check`` builds all pages anew and compares them with the committed ones: all text, tables, code
and alternative texts, and the hash of the script, which a page carries. Pictures are left out, as
their bytes change with the version of matplotlib; whatever draws them is in the script, so in the
hash, and their numbers are in the text.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import hashlib
import html
import itertools
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Reading order of the index; other scripts follow by name.
ORDER = ("first_audit", "treatment_and_score", "intersection", "small_subgroups")
ORDER += ("group_intervention", "planning", "from_faircfint", "validation")
NOT_VIGNETTES = {"build"}

#: Runs before each script, unseen: pictures as SVG and PNG, both without a date; warnings without
#: the path of the file that gave them.
SETUP = """
import warnings
from matplotlib import pyplot
from matplotlib_inline.backend_inline import set_matplotlib_formats
set_matplotlib_formats("svg", "retina", metadata={"Date": None})
pyplot.rcParams.update({"svg.hashsalt": "cfair", "figure.dpi": 100})
warnings.formatwarning = lambda message, kind, *_: f"{kind.__name__}: {message}\\n"
"""
#: Kernels of their own profile and with one thread, for the same digits everywhere.
KERNEL = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
KERNEL |= {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
#: What must not be in a page: a file of this machine, an address in memory, an error.
LEAKS = (r"/(?:home|root|tmp|usr|work|Users|var)/\w", r"\bat 0x[0-9a-f]{6,}", r"Traceback \(most")


def names() -> list[str]:
    """List the vignettes there are, in reading order."""
    found = {path.stem for path in HERE.glob("*.py")} - NOT_VIGNETTES
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER))


def source_hash(name: str) -> str:
    """Hash of a script, whatever its line ends; its page carries it."""
    text = (HERE / f"{name}.py").read_text(encoding="utf-8")
    return hashlib.sha256(text.encode()).hexdigest()


def opening(name: str) -> tuple[str, str]:
    """Title and first paragraph of a vignette."""
    text = (HERE / f"{name}.py").read_text(encoding="utf-8")
    found = re.search(r"^# %% \[markdown\]\n# # (.+)\n#\n((?:# .+\n)+)", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{name}.py: no '# # Title' and first paragraph in a markdown cell.")
    return found[1].strip(), re.sub(r"^# ", "", found[2], flags=re.MULTILINE).strip()


def run(name: str):
    """Execute a script as a notebook; its outputs hold nothing that changes by itself."""
    import jupytext
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = jupytext.read(HERE / f"{name}.py")
    notebook.cells.insert(0, nbformat.v4.new_code_cell(SETUP))
    client = NotebookClient(
        notebook,
        timeout=600,
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(HERE)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        words = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # without its colours
        raise SystemExit(f"{name}.py stopped.\n{words}") from None
    del notebook.cells[0]
    for position, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{position:03d}"  # by themselves they are random
        if "outputs" in cell:
            cell.outputs = ordered(cell.outputs)
        for output in cell.get("outputs", []):
            tidy(output, cell, name)
    first = notebook.cells[0]
    first.source = re.sub(r"\A# .+\n", "", first.source)  # the title, which the frame has
    return notebook


def ordered(outputs: list) -> list:
    """Put warnings before the text printed around them, each stream whole.

    The two streams reach the notebook by turns that differ from run to run; what is shown between
    them (a table, a figure) waits for both, so its place is kept.
    """
    tidied: list = []
    for shown, run in itertools.groupby(outputs, lambda output: output.output_type != "stream"):
        if shown:
            tidied += run
            continue
        streams: dict = {}
        for output in run:
            if output.name in streams:
                streams[output.name].text += output.text
            else:
                streams[output.name] = output
        tidied += [streams[stream] for stream in sorted(streams)]  # stderr, stdout
    return tidied


def tidy(output: dict, cell: dict, name: str) -> None:
    """Keep one form of an output: the smaller picture, text as it prints, tables as HTML."""
    data = output.get("data", {})
    if "image/png" in data and "image/svg+xml" in data:
        if not cell.metadata.get("alt"):
            raise SystemExit(f'{name}.py: a figure has no alt="..." in the header of its cell.')
        png = len(data["image/png"])
        svg = len(base64.b64encode(data["image/svg+xml"].encode()))
        del data["image/svg+xml" if png < svg else "image/png"]
    elif "text/html" in data and "<table" not in data["text/html"]:
        del data["text/html"]
    elif "text/html" in data:
        style = re.compile(r"<style scoped>.*?</style>\n?", re.DOTALL)
        data["text/html"] = style.sub("", data["text/html"])


def pandoc(text: str, reader: str, title: str, to: Path, *more: str) -> None:
    """Turn a notebook or markdown into a page."""
    import pypandoc

    command = [pypandoc.get_pandoc_path(), "--from", reader, "--to", "html5", "--standalone"]
    command += ["--embed-resources", "--mathml", "--template", "page.html", "--css", "style.css"]
    command += ["--syntax-highlighting", "pygments", "--metadata", f"title={title}"]
    done = subprocess.run(
        [*command, *more, "--output", str(to)],
        input=text,
        capture_output=True,
        encoding="utf-8",
        cwd=HERE,
        check=False,
    )
    if done.returncode or done.stderr.strip():
        raise SystemExit(f"{to.stem}: pandoc says\n{done.stderr}")


def build(name: str, folder: Path) -> Path:
    """Run a vignette and write its page into a folder."""
    import nbformat

    title, summary = opening(name)
    page = folder / f"{name}.html"
    bibliographies = [f"--bibliography={path.name}" for path in sorted(HERE.glob("refs*.bib"))]
    pandoc(
        nbformat.writes(run(name)),
        "ipynb+citations+fenced_divs",
        title,
        page,
        *("--toc", "--toc-depth=2", "--citeproc", *bibliographies),
        *("--lua-filter", "cells.lua", "--metadata", "reference-section-title=References"),
        *("--variable", f"source={name}.py", "--variable", f"hash={source_hash(name)}"),
        *("--variable", f"summary={html.escape(plain(summary))}", "--variable", "home=index.html"),
    )
    text = page.read_text(encoding="utf-8")
    for leak in LEAKS:
        if found := re.search(leak, pictureless(text)):
            raise SystemExit(f"{name}: the page holds {text_around(text, found[0])!r}.")
    if found := re.search(r'(?:src|href)="https?://(?!doi\.org|arxiv\.org)[^"]+"', text):
        raise SystemExit(f"{name}: the page points to the network, {found[0]}.")
    return page


def build_index(folder: Path) -> Path:
    """Write the list of vignettes, a paragraph each."""
    parts = ["How cfair answers the questions of a clinical study, from data to report.\n"]
    for name in names():
        title, summary = opening(name)
        parts.append(f"## [{title}]({name}.html)\n\n{summary}\n")
    page = folder / "index.html"
    pandoc("\n".join(parts), "markdown-citations", "cfair: vignettes", page)
    return page


def plain(markdown: str) -> str:
    """Markdown without its marks, on one line."""
    return " ".join(re.sub(r"[*`]|\s*\[@[^\]]*\]", "", markdown).split())


def pictureless(page: str) -> str:
    """Leave of the pictures of a page their alternative texts alone."""
    return re.sub(r'<img\b[^>]*?(?:alt|aria-label)="([^"]*)"[^>]*>', r"<img: \1>", page)


def text_around(text: str, part: str) -> str:
    """Find the line of a text in which a part stands, cut."""
    return next(line.strip()[:160] for line in text.splitlines() if part in line)


def changes(fresh: Path) -> list[str]:
    """Lines by which the committed page differs from the fresh one."""
    committed = HERE / fresh.name
    if not committed.exists():
        return ["there is no such page"]
    old, new = (
        pictureless(path.read_text(encoding="utf-8")).splitlines() for path in (committed, fresh)
    )
    return list(difflib.unified_diff(old, new, "committed", "fresh", n=0, lineterm=""))


def main() -> int:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"vignettes to build, default all: {names()}")
    parser.add_argument("--check", action="store_true", help="compare with the committed pages")
    parser.add_argument("--jobs", type=int, default=2, help="pages at a time, default 2")
    given = parser.parse_args()
    wanted = [Path(name).stem for name in given.names] or names()
    if unknown := sorted(set(wanted) - set(names())):
        parser.error(f"no such vignette: {', '.join(unknown)}; there are {', '.join(names())}")

    with tempfile.TemporaryDirectory() as temporary:
        os.environ.update(KERNEL, IPYTHONDIR=temporary)
        folder = Path(temporary)
        with ProcessPoolExecutor(given.jobs) as workers:
            pages = list(workers.map(build, wanted, [folder] * len(wanted)))
        pages.append(build_index(folder))
        if given.check:
            stale = {page.name: lines for page in pages if (lines := changes(page))}
            for page, lines in stale.items():
                print(f"stale: {page}", *(line[:200] for line in lines[:20]), sep="\n  ")
            if not stale:
                print(f"{len(pages)} pages are fresh")
            return 1 if stale else 0
        for page in pages:
            (HERE / page.name).write_bytes(page.read_bytes())
            print(f"{page.name}: {page.stat().st_size / 1024:.0f} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
