"""A finished run, called again, answers without loading a network; a changed one does not."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import warm_processes
from strop import assets
from strop.checkpoints import hub
from strop.measure.metric import METRICS, Metric
from strop.store import remembered
from strop.store.remembered import FileMemory, contents, files_at
from strop.verbs.same import fingerprints
from tiny_models import environment

CALL = """
import sys
from strop.cli.main import run
code = run(sys.argv[1:])
print("loaded:", code, *(n for n in ("torch", "transformers") if n in sys.modules), file=sys.stderr)
"""


def called(cache: Path, *words: object, start: Any = subprocess.run) -> tuple[str, str]:
    """What a command printed, and what it had loaded when it was done."""
    command = [sys.executable, "-c", CALL, *map(str, words)]
    env = environment(STROP_CACHE=str(cache))
    answer = start(command, capture_output=True, text=True, check=True, env=env)
    return answer.stdout, answer.stderr.strip().splitlines()[-1]


def test_a_finished_audit_and_its_scores_load_no_network(tmp_path: Path) -> None:
    out, cache = tmp_path / "run", tmp_path / "cache"
    axes = ("--axis", "temperature=1,0.9", "--axis", "precision=float64")
    sizes = ("--steps", 2, "-n", 2, "--length", 16)
    audit = ("audit", "embedded:tales-tiny", *sizes, *axes, "-o", out)
    first, _ = called(cache, *audit, start=warm_processes.run)  # which has loaded everything
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
    monkeypatch.setattr(remembered, "SETTLED", 0.1)
    time.sleep(0.15)
    return place


def memory(place: Path, **settings: str) -> FileMemory:
    return FileMemory(files_at(place), settings)


def test_an_identity_is_forgotten_when_a_file_changes(copy: Path) -> None:
    memory(copy, kind="x").keep({"a": 1})
    assert memory(copy, kind="x").recall() == {"a": 1}
    assert memory(copy, kind="y").recall() is None
    os.utime(copy / "config.json", (1_000_000_001, 1_000_000_001))
    assert memory(copy, kind="x").recall() is None


def changed_in_place(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    with open(file, "r+b") as there:
        there.write(content)


def replaced(file: Path) -> None:
    other = file.with_name("other")
    shutil.copy(file, other)
    changed_in_place(other)
    other.rename(file)


@pytest.mark.parametrize("change", [changed_in_place, replaced])
def test_a_change_that_keeps_size_and_time_is_seen(copy: Path, change) -> None:
    weights = copy / "model.safetensors"
    memory(copy).keep({"a": 1})
    before, looked = contents(copy), weights.stat()
    assert memory(copy).recall() == {"a": 1}
    change(weights)
    os.utime(weights, ns=(looked.st_atime_ns, looked.st_mtime_ns))
    now = weights.stat()
    assert (now.st_size, now.st_mtime_ns) == (looked.st_size, looked.st_mtime_ns)
    assert memory(copy).recall() is None
    assert [a for a, b in zip(before, contents(copy), strict=True) if a != b] == [
        [weights.name, hashlib.sha256(assets_weights().read_bytes()).hexdigest()]
    ]


def assets_weights() -> Path:
    return assets.embedded_path(assets.EVALUATOR) / "model.safetensors"


def test_a_file_is_hashed_once_and_what_it_holds_counts_wherever_it_lies(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = contents(copy)
    assert {name for name, _ in known} == {file.name for file in copy.iterdir()}
    shutil.copytree(copy, tmp_path / "elsewhere")
    assert contents(tmp_path / "elsewhere") == known
    monkeypatch.setattr(hashlib, "file_digest", None)  # nothing may be read again
    assert contents(copy) == known


def test_what_an_answer_depends_on(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def now(**more: str) -> dict[str, Any]:
        return fingerprints({"n": 8}, places=[str(copy), None, "owner/name@main"], **more)

    folder = copy.parent / "hub" / ("c" * 40)
    monkeypatch.setattr(hub, "config_of", lambda *_: folder / "config.json")
    first = now(task="sums")
    assert now(task="sums") == first
    assert now(task="gsm8k")["task"] != first["task"]
    assert first["files"][1] == "c" * 40
    folder = copy.parent / "hub" / ("d" * 40)
    assert now(task="sums")["files"][1] == "d" * 40
    try:
        for version in ("1", "2"):
            METRICS.add(Metric("made-up", (), version=version), replace=version == "2")
            assert ["metric", "made-up", version] in now()["plugins"]
    finally:
        METRICS.forget("made-up")


def test_nothing_is_kept_of_files_that_may_still_change(copy: Path) -> None:
    (copy / "config.json").touch()
    memory(copy).keep({"a": 1})
    assert memory(copy).recall() is None


def test_a_damaged_memory_is_no_memory(copy: Path, tmp_path: Path) -> None:
    from strop.measure.known import Late, known_evaluator

    known_evaluator(str(copy))
    assert isinstance(known_evaluator(str(copy)), Late)
    [kept] = (tmp_path / "cache").rglob("*.json")
    for content in (b"{", b"[]", b'{"spec": {"name": 3}}'):
        kept.write_bytes(content)
        assert not isinstance(known_evaluator(str(copy)), Late)
