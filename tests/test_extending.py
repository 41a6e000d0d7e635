"""The package of docs/extending.md, installed where only these tests see it, and then used."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import strop
import warm_processes
from doc_pages import pieces, text_of
from packages import install

PAGE = "docs/extending.md"


def blocks(section: str, kind: str) -> list[str]:
    """The fenced blocks of a section of the page."""
    _, _, rest = text_of(PAGE).partition(f"\n## {section}\n")
    assert rest, f"{PAGE} has no section {section!r}"
    return [one.text for one in pieces(PAGE, rest.partition("\n## ")[0]) if one.kind == kind]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page shows, as pip would leave it."""
    [text] = blocks("A package", "toml")
    project = tomllib.loads(text)["project"]
    source = "\n".join(blocks(section, "python")[0] for section in ("A metric", "A study"))
    place = tmp_path_factory.mktemp("site")
    return install(place, project["name"], source, project["entry-points"])


def command(package: Path | None, *words: object) -> tuple[str, str]:
    ours = str(Path(strop.__file__).resolve().parent.parent)
    path = os.pathsep.join([ours] if package is None else [ours, str(package)])
    ended = warm_processes.run(
        [sys.executable, "-m", "strop", *map(str, words)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


def answer(package: Path | None, *words: object) -> Any:
    return json.loads(command(package, *words, "--json")[0])


def test_nobody_else_sees_the_package(package: Path) -> None:
    assert answer(None, "doctor")["plugins"] == []
    found = answer(package, "doctor")
    assert found["plugin_problems"] == []
    assert {(one["kind"], one["name"]) for one in found["plugins"]} == {
        ("metric", "questions"),
        ("study", "nuclei"),
    }
    assert {(one["package"], one["version"]) for one in found["plugins"]} == {
        ("strop-questions", "1")
    }


def test_its_metric_and_its_study_work_like_any_other(
    package: Path, checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "nuclei"
    words = ("study", "nuclei", checkpoint, "--evaluator", "embedded:tales-ar")
    words += ("--steps", 2, "-n", 8, "-o", out)
    found = answer(package, *words)
    assert [(row["steps"], row["top_p"]) for row in found["rows"]] == [(2, 1.0), (2, 0.9)]
    assert found["asked"]["version"] == "1"
    scored = answer(package, "score", out / "run", "--evaluator", "none")
    assert all(cell["questions"]["value"] == 0 for cell in scored["cells"])
    assert "questions" not in answer(None, "score", out / "run", "--evaluator", "none")["cells"][0]
    page = tmp_path / "page.html"
    command(package, "report", out, "-o", page)
    html = page.read_text("utf-8")
    assert "What a nucleus does" in html
    assert "question marks" in html
    # Without the package the same directory has the same tables, by the study's name.
    command(None, "report", out, "-o", page)
    html = page.read_text("utf-8")
    assert "Two nuclei" in html
    assert "question marks" not in html
