"""Verbs that draw and score many times: the same on every engine, by workers that end with it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drills import SEARCH, alive, outcome, searched

import strop
from strop import verbs
from strop.cli.main import run as run_command
from strop.engine import Engine
from strop.engine.devices import Processes
from strop.engine.plan import Silent
from strop.engine.workers import keep_workers
from strop.instruments import posterior
from strop.spec import CellSpec

TWO = ("--devices", "cpu:2")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, warm_workers: None) -> Iterator[list[int]]:
    """The worker processes that are started; none is left at the end."""
    pids: list[int] = []
    start = Processes._start

    def count(workers: Processes, worker: int) -> None:
        start(workers, worker)
        pids.append(workers._running[worker].pid)

    monkeypatch.setattr(Processes, "_start", count)
    yield pids
    assert not [one for one in pids if alive(one)]


@pytest.fixture(scope="module")
def found(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search in one process."""
    pytest.importorskip("optuna")
    path = tmp_path_factory.mktemp("search") / "run"
    assert run_command(["tune", str(model), *SEARCH, "-o", str(path)]) == 0
    return path


def test_a_search_finds_the_same_with_the_same_workers(
    model: Path, found: Path, tmp_path: Path, started: list[int]
) -> None:
    path = tmp_path / "run"
    line = ["tune", str(model), *SEARCH, "-o", str(path)]
    assert run_command([*line, *TWO]) == 0
    assert searched(path) == searched(found)
    assert len(searched(found)[1][0]) > 2, "several rounds"
    assert len(started) == 2, "two workers for all rounds"
    assert run_command(line) == 0, "any engine continues it"
    assert len(started) == 2


class Interrupted(Silent):
    """Ctrl-C when the third call is about to begin."""

    calls = 0

    def start(self, cell: CellSpec | None, total: int, done: int, what: str = "") -> None:
        super().start(cell, total, done, what)
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt


def test_an_interrupted_search_leaves_no_process(
    model: Path, tmp_path: Path, started: list[int]
) -> None:
    pytest.importorskip("optuna")
    with pytest.raises(KeyboardInterrupt):
        verbs.run(
            "tune",
            out=tmp_path / "run",
            sources=[str(model)],
            progress=Interrupted(),
            devices="cpu:2",
            steps=(4,),
            first=4,
            n=8,
            budget=16,
            evaluator="embedded:tales-ar",
            guard=False,
        )
    assert len(started) == 2


def test_workers_go_on_after_a_death_and_end_after_an_error(
    model: Path, started: list[int]
) -> None:
    def drawn(seed: int, engine: Engine) -> list[Any]:
        spec = strop.SamplerSpec(steps=4)
        pool = strop.draw.sample(str(model), spec, n=6, seed=seed, batch_size=2, engine=engine)
        return pool.ids.tolist()

    here, two = Engine(), Engine.of(devices="cpu:2")

    def fails() -> None:
        with keep_workers():
            assert drawn(0, two) == drawn(0, here)
            os.kill(started[0], signal.SIGKILL)
            assert drawn(1, two) == drawn(1, here)
            assert len(started) == 3, "one was replaced"
            assert alive(started[1])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert not any(map(alive, started))


def written(out: Path) -> Any:
    """A study's result without seconds, their ratios and sessions."""
    timely = ("seconds", "time", "session")

    def timeless(one: Any) -> Any:
        if isinstance(one, dict):
            return {k: timeless(v) for k, v in one.items() if k not in timely}
        if isinstance(one, list):
            return [timeless(x) for x in one if not (isinstance(x, str) and "seconds" in x)]
        return one

    return timeless(json.loads((out / "result.json").read_text()))


@pytest.mark.slow
def test_a_comparison_is_the_same_with_the_same_workers(
    model: Path, tmp_path: Path, started: list[int]
) -> None:
    pytest.importorskip("optuna")
    line = ["compare", str(model), str(model), "--a", "temperature=0.85", "--steps", "4", "-n", "8"]
    line += ["--temperature", "0.8,1,1.2", "--budget", "16", "--vendi", "off"]
    line += ["--evaluator", "embedded:tales-ar", "-o"]
    for name, more in (("one", ()), ("two", TWO)):
        assert run_command([*line, str(tmp_path / name), *more]) == 0
    assert written(tmp_path / "one") == written(tmp_path / "two")
    runs = [sorted((tmp_path / name / "runs").glob("*/")) for name in ("one", "two")]
    assert runs[0]
    assert [outcome(one) for one in runs[0]] == [outcome(one) for one in runs[1]]
    assert len(started) == 2


@pytest.mark.parametrize(
    "verb", [["tune"], ["compare", "a", "b"], ["study", "tuned-against-tuned"]]
)
def test_who_decides_by_what_it_saw_refuses_shards(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([*verb, "--shard", "0/2", "-o", str(tmp_path / "run")]) == 1
    told = capsys.readouterr().err
    assert "shards see a part" in told
    assert "--engine devices" in told
    assert not (tmp_path / "run").exists()


@pytest.fixture
def losses(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, Path]]:
    """The posterior study in several blocks."""
    monkeypatch.setattr(posterior, "BLOCK_TOKENS", 96)  # blocks of four sequences
    rows = tmp_path / "rows.jsonl"
    ids = np.random.default_rng(0).integers(0, 11, (10, 24)).tolist()
    rows.write_text("".join(json.dumps({"ids": row}) + "\n" for row in ids))

    def measured(name: str, *more: str) -> tuple[int, Path]:
        line = ["study", "posterior", str(model), "--held-out", str(rows), "--steps", "2,8"]
        line += ["--levels", "3", "--profile-n", "6", "-o", str(tmp_path / name)]
        return run_command([*line, *more]), tmp_path / name

    return measured


@pytest.mark.slow
def test_posterior_losses_are_the_same_everywhere(
    losses: Callable[..., tuple[int, Path]],
    started: list[int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, here = losses("one")
    assert code == 0
    code, there = losses("two", *TWO)
    assert code == 0
    assert written(here) == written(there)
    assert len(started) == 2
    capsys.readouterr()
    code, _ = losses("parts", "--shard", "0/2")
    assert code == 2
    # Three blocks, three and two: the first shard has those at 0 and 8, then at 4, then at 0.
    told = capsys.readouterr().err
    assert "3 of 3 cells lack losses" in told
    assert ": 4-7;" in told
    code, parts = losses("parts", "--shard", "1/2")
    assert code == 0
    assert written(parts) == written(here)
    assert not list((parts / "parts").iterdir())


@pytest.mark.slow
def test_caches_are_compared_alike_everywhere(tmp_path: Path, started: list[int]) -> None:
    line = ["study", "cache", "--smoke", "--length", "16", "--axis", "block_length=8"]
    line += ["--temperature", "1", "--batch-size", "2", "-o"]
    assert run_command([*line, str(tmp_path / "one")]) == 0
    assert run_command([*line, str(tmp_path / "two"), *TWO]) == 0
    assert len(started) == 2
    codes = [run_command([*line, str(tmp_path / "parts"), "--shard", f"{i}/2"]) for i in range(2)]
    assert codes == [2, 0]
    for name in ("two", "parts"):
        assert written(tmp_path / name) == written(tmp_path / "one")
