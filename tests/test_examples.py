"""The notebooks of examples/ run from their first cell to their last."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
BOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", BOOKS, ids=[one.stem for one in BOOKS])
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    where = {"metadata": {"path": str(tmp_path)}}
    done = NotebookClient(book, timeout=600, resources=where).execute()
    cells = [cell for cell in done.cells if cell.cell_type == "code"]
    assert len(cells) >= 3
    assert all(cell.execution_count for cell in cells)
    assert all(cell.outputs for cell in cells)


def test_there_are_notebooks() -> None:
    assert [one.stem for one in BOOKS] == ["audit", "language", "texts", "verbs"]
