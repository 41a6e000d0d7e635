"""A finished run, called again, answers without loading a network; a changed one does not."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import warm_processes
from strop import assets
from strop.checkpoints import hub
from strop.groupeval.judges import JUDGES
from strop.measure.metric import METRICS, Metric
from strop.store import remembered
from strop.store.remembered import FileMemory, contents, files_at
from strop.tasks import TASKS
from strop.verbs import entrants, tune
from strop.verbs.entrants import fingerprints
from strop.verbs.study import Ask
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


@pytest.mark.slow
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


def test_a_file_counts_by_its_path_from_there(copy: Path) -> None:
    (copy / "below").mkdir()
    (copy / "below" / "config.json").write_bytes((copy / "config.json").read_bytes())
    known = {name: digest for name, digest in contents(copy)}  # noqa: C416
    assert known["below/config.json"] == known["config.json"]
    assert len(known) == 1 + len([one for one in copy.iterdir() if one.is_file()])


def test_what_an_answer_depends_on(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def now(*places: str | None, task: str | None = None, n: int = 8) -> dict[str, Any]:
        return fingerprints({"n": n}, places=places, task=task)

    assert now(n=8) != now(n=9)
    monkeypatch.setattr(entrants, "__version__", "0.0")
    assert now()["strop"] == "0.0"
    # Of hub repositories the commit that a name stands for now.
    commits = {None: "a" * 40, "main": "b" * 40}
    asked: list[str] = []

    def config_of(repo: str, revision: str | None) -> Path:
        asked.append(repo)
        return copy.parent / commits[revision] / "config.json"

    monkeypatch.setattr(hub, "config_of", config_of)
    places = (str(copy), None, "owner/name@main", "owner/name")
    assert now(*places)["files"] == [contents(copy), "b" * 40, "a" * 40]
    assert asked == ["owner/name"] * 2
    commits["main"] = "d" * 40
    assert now(*places)["files"] == [contents(copy), "d" * 40, "a" * 40]
    # Files and embedded models by what they hold.
    monkeypatch.setenv("HOME", str(copy.parent))
    assert now("~/model") == now(str(copy))
    assert now(assets.EVALUATOR) == now(str(copy))
    assert [name for name, _ in now(str(copy / "config.json"))["files"][0]] == ["."]


def test_versions_of_plugins_and_a_tasks_rules_count() -> None:
    def now(task: str | None = None) -> dict[str, Any]:
        return fingerprints({}, places=[], task=task)

    first = now("sums")["task"]
    assert (first, now("gsm8k")["task"]) == (TASKS["sums"].fingerprint, TASKS["gsm8k"].fingerprint)
    other = replace(TASKS["sums"], name="made-up", version="1")
    judge = replace(JUDGES["offline"], name="made-up", version="1")
    try:
        for version in ("1", "2"):
            METRICS.add(Metric("made-up", (), version=version), replace=version == "2")
            JUDGES.add(replace(judge, version=version), replace=version == "2")
            TASKS.add(replace(other, version=version), replace=version == "2")
            found = now("made-up")
            for kind in ("metric", "judge", "task"):
                assert [kind, "made-up", version] in found["plugins"]
            assert found["task"] == replace(other, version=version).fingerprint
    finally:
        for registry in (METRICS, JUDGES, TASKS):
            registry.forget("made-up")


def test_judges_and_tasks_count_also_where_nobody_has_asked_for_them() -> None:
    """In a process of its own: here they are loaded already."""
    program = (
        "from strop.verbs.entrants import fingerprints\n"
        "fingerprints({}, places=[])\n"
        "from strop.registry import _REGISTRIES\n"
        "print(*(one.kind for one in _REGISTRIES))\n"
    )
    words = [sys.executable, "-c", program]
    told = subprocess.run(words, capture_output=True, text=True, check=True, env=environment())
    assert {"judge", "metric", "task", "sampler"} <= set(told.stdout.split())


@pytest.mark.parametrize("name", ["evaluator", "held_out", "prompts", "sources"])
def test_every_file_of_a_search_is_part_of_its_command(copy: Path, name: str) -> None:
    def now() -> dict[str, Any]:
        values: dict[str, Any] = dict.fromkeys(("evaluator", "held_out", "prompts", "task"))
        sources = (str(copy),) if name == "sources" else ("nowhere",)
        values |= {} if name == "sources" else {name: str(copy)}
        return tune._command(Ask(tune.STUDY, Path("nowhere"), sources, values))

    before = now()
    assert now() == before
    changed_in_place(copy / "config.json")
    assert now() != before


@pytest.mark.parametrize("time_of_content", [None, (1_000_000_000, 1_000_000_000)])
def test_nothing_is_kept_of_files_that_may_still_change(
    copy: Path, time_of_content: tuple[int, int] | None
) -> None:
    """Whatever a file says of its content: it has just been changed itself."""
    os.utime(copy / "config.json", time_of_content)
    memory(copy).keep({"a": 1})
    assert memory(copy).recall() is None


def test_a_file_looks_different_in_four_ways(copy: Path) -> None:
    stat = (copy / "config.json").stat()
    found = remembered.looks(copy / "config.json")
    assert found == (stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)


def test_the_latest_entries_are_kept(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST", 2)
    for number, kind in enumerate("abc"):
        kept = memory(copy, kind=kind)
        kept.keep({"number": number})
        os.utime(kept._path, (number, number))
    kept.keep({"number": 2})  # the times of the first two are set now
    assert [memory(copy, kind=kind).recall() is None for kind in "abc"] == [True, False, False]


def test_a_damaged_memory_is_no_memory(copy: Path, tmp_path: Path) -> None:
    from strop.measure.known import Late, known_evaluator

    known_evaluator(str(copy))
    assert isinstance(known_evaluator(str(copy)), Late)
    [kept] = (tmp_path / "cache").rglob("*.json")
    for content in (b"{", b"[]", b'{"spec": {"name": 3}}'):
        kept.write_bytes(content)
        assert not isinstance(known_evaluator(str(copy)), Late)
