"""A finished run, called again, answers without loading a network; a changed one does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from strop import assets
from strop.remembered import Memory
from tiny_models import environment

CALL = """
import sys
from strop.cli.main import run
code = run(sys.argv[1:])
print("loaded:", code, *(n for n in ("torch", "transformers") if n in sys.modules), file=sys.stderr)
"""


def called(cache: Path, *words: object) -> tuple[str, str]:
    """What a command printed, and what it had loaded when it was done."""
    command = [sys.executable, "-c", CALL, *map(str, words)]
    env = environment(STROP_CACHE=str(cache))
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return answer.stdout, answer.stderr.strip().splitlines()[-1]


def test_a_finished_audit_and_its_scores_load_no_network(tmp_path: Path) -> None:
    out, cache = tmp_path / "run", tmp_path / "cache"
    axes = ("--axis", "temperature=1,0.9", "--axis", "precision=float64")
    sizes = ("--steps", 2, "-n", 2, "--length", 16)
    audit = ("audit", "embedded:tales-tiny", *sizes, *axes, "-o", out)
    first, loaded = called(cache, *audit)
    assert loaded == "loaded: 0 torch transformers"
    again, loaded = called(cache, *audit)
    assert (again, loaded) == (first, "loaded: 0")
    score = ("score", out, "--vendi", "off")
    scored, loaded = called(cache, *score)
    assert loaded == "loaded: 0"
    assert "perplexity" in scored
    # A cell that has lost its outputs needs the network; their scores are still there.
    [lost, *_] = sorted(out.glob("cells/*/outputs.parquet"))
    lost.unlink()
    assert called(cache, *audit) == (first, "loaded: 0 torch")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STROP_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "model"
    shutil.copytree(assets.embedded_path(assets.EVALUATOR), place)
    for file in place.iterdir():
        os.utime(file, (1_000_000_000, 1_000_000_000))
    return place


def test_an_identity_is_forgotten_when_a_file_changes(copy: Path) -> None:
    Memory(copy, {"kind": "x"}).keep({"a": 1})
    assert Memory(copy, {"kind": "x"}).recall() == {"a": 1}
    assert Memory(copy, {"kind": "y"}).recall() is None
    os.utime(copy / "config.json", (1_000_000_001, 1_000_000_001))
    assert Memory(copy, {"kind": "x"}).recall() is None


def test_nothing_is_kept_of_files_that_may_still_change(copy: Path) -> None:
    (copy / "config.json").touch()
    Memory(copy, {}).keep({"a": 1})
    assert Memory(copy, {}).recall() is None


def test_a_damaged_memory_is_no_memory(copy: Path, tmp_path: Path) -> None:
    from strop.metrics.known import Late, known_evaluator

    known_evaluator(str(copy))
    assert isinstance(known_evaluator(str(copy)), Late)
    [kept] = (tmp_path / "cache").rglob("*.json")
    for content in (b"{", b"[]", b'{"spec": {"name": 3}}'):
        kept.write_bytes(content)
        assert not isinstance(known_evaluator(str(copy)), Late)
