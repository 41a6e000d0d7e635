"""What the tests of studies share: a command with --json, and small checkpoints of every family."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from called import Called

from rendered_once import rendered_once
from strop.cli.main import run
from strop.verbs.families import small_checkpoints


@pytest.fixture(scope="module", autouse=True)
def figures_of_studies() -> Iterator[None]:
    with rendered_once():
        yield


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Called:
    """A command with --json: its exit code, its document, and what it said on stderr."""

    def called(*words: object) -> tuple[int, Any, str]:
        capsys.readouterr()
        code = run([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out), err

    return called


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The smallest embedded model in the layouts of SEDD, DUO and DiDi-Instruct."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strop.verbs.families.CHECKPOINT", "embedded:tales-tiny")
        return small_checkpoints(Path(tmp_path_factory.mktemp("dressed")))
