"""Killed at any moment, the same command completes the run, and the result is the same."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import warm_processes
from strop.cli.main import run as run_command
from strop.errors import UserError
from strop.store import Run
from tiny_models import environment, wait_for, write_checkpoint

# A session flushes every few milliseconds, so that kills land in writes and merges too, not only
# in the arithmetic between them.
# A test run in the background may have inherited that Ctrl-C is ignored; at a terminal it is not.
OFTEN = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import strop.engine.sink
strop.engine.sink.FLUSH_SECONDS = 0.01
from strop.cli.main import main
main(sys.argv[1:])
"""

# Few sequences at a time: outputs are finished one after the other, not all at the end.
KINDS = {
    "fast": ["--precision", "float64,float32", "--batch-size", "3"],
    "dense": ["--implementation", "dense", "--batch-size", "2", "--temperature", "1.0,0.8"],
}
CELLS, N, KILLS = 2, 24, 5
PART = CELLS * N // (KILLS - 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that a run lasts a few hundred network calls."""
    directory = tmp_path_factory.mktemp("model") / "tiny"
    return write_checkpoint(directory, length=24, hidden_dim=64, n_heads=4, n_blocks=2)


def arguments(model: Path, kind: str, path: Path) -> list[str]:
    line = ["sample", model, "--steps", 24, *KINDS[kind], "-n", N, "--seed", 5, "-o", path]
    return list(map(str, line))


def start(line: list[str]) -> subprocess.Popen[bytes]:
    return warm_processes.Popen(
        [sys.executable, "-c", OFTEN, *line],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def recorded(path: Path) -> int:
    """Outputs that the sessions say they have made durable: cheap to ask, and never less."""
    documents = [json.loads(cost.read_text()) for cost in path.glob("cells/*/cost.json")]
    return sum(session["outputs"] for one in documents for session in one["sessions"])


def on_disk(path: Path) -> list[int]:
    """Outputs of every cell, read from the tables themselves."""
    if not (path / "strop.json").exists():
        return [0] * CELLS
    try:
        return [len(cell.indices()) for cell in Run.open(path).cells()]
    except UserError as error:
        if "spec.json" in str(error):  # killed before every cell had its folder
            return [0] * CELLS
        raise


def outcome(path: Path) -> list[Any]:
    pools = [cell.pool(N) for cell in Run.open(path).cells()]
    return [
        (
            pool.spec.id,
            pool.ids.tolist(),
            pool.texts,
            pool.nfe.tolist(),
            pool.leftover_masks.tolist(),
        )
        for pool in pools
    ]


@pytest.mark.parametrize("kind", ["fast", pytest.param("dense", marks=pytest.mark.slow)])
def test_killed_and_rerun_equals_uninterrupted(model: Path, tmp_path: Path, kind: str) -> None:
    whole, path = tmp_path / "whole", tmp_path / "killed"
    assert run_command(arguments(model, kind, whole)) == 0
    moments = random.Random(kind)
    line = arguments(model, kind, path)
    seen = []
    for kill in range(KILLS):
        process = start(line)
        if kill == 0:  # while the run directory is being made
            wait_for(process, path.exists)
        else:  # somewhere in its own part of the run, so that every cell is hit
            goal = (kill - 1) * PART + moments.randrange(1, PART - 5)
            wait_for(process, lambda goal=goal: recorded(path) >= goal)
        time.sleep(moments.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it was over before it was killed"
        seen.append(on_disk(path))
    for cell in range(CELLS):
        counts = [one[cell] for one in seen]
        assert any(0 < count < N for count in counts), f"no kill landed inside cell {cell}: {seen}"
        assert counts == sorted(counts), f"outputs were lost: {seen}"
    assert run_command(line) == 0
    assert outcome(path) == outcome(whole)
    for cell in Run.open(path).cells():
        assert not list(cell.path.rglob(".tmp-*"))
        # A kill may fall between the outputs and their session's record, never the other way.
        assert sum(session["outputs"] for session in cell.sessions()) <= N


@pytest.mark.parametrize(
    ("json_flag", "how"), [([], signal.SIGINT), (["--json"], signal.SIGTERM)], ids=["INT", "TERM"]
)
def test_an_interrupt_keeps_what_is_finished(
    model: Path, tmp_path: Path, json_flag: list[str], how: signal.Signals
) -> None:
    path = tmp_path / "run"
    line = [*arguments(model, "fast", path), *json_flag]
    process = warm_processes.Popen(
        [sys.executable, "-c", OFTEN, *line],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert wait_for(process, lambda: recorded(path) >= 2)
    process.send_signal(how)
    out, told = process.communicate(timeout=300)
    assert process.returncode == 2, told
    assert told.count("Interrupted.") == 1
    assert "run the same command again" in told
    assert "Traceback" not in told
    if json_flag:
        assert json.loads(out)["error"]["kind"] == "Incomplete"
    else:
        assert out == ""
    kept = sum(on_disk(path))
    assert 0 < kept < CELLS * N
    cells = Run.open(path).cells()
    assert recorded(path) == kept, "what was finished is kept, and counted"
    assert run_command(line) == 0
    totals = [sum(session["outputs"] for session in cell.sessions()) for cell in cells]
    assert totals == [N] * CELLS, "nothing was drawn twice"


LOADING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import builtins
from strop.cli.entry import main
load = builtins.__import__

def interrupted(name, *rest, **more):
    if name == {!r}:
        builtins.__import__ = load
        os.kill(os.getpid(), signal.SIGINT)
    return load(name, *rest, **more)

builtins.__import__ = interrupted
main(sys.argv[1:])
"""


@pytest.mark.parametrize("module", ["ctypes", "typer", "strop.errors", "strop.cli.output"])
@pytest.mark.parametrize("json_flag", [[], ["--json"]], ids=["plain", "json"])
def test_an_interrupt_while_the_command_loads(module: str, json_flag: list[str]) -> None:
    """The first tenth of a second is spent on importing, before any verb runs."""
    end = subprocess.run(
        [sys.executable, "-c", LOADING.format(module), "doctor", *json_flag],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert end.returncode == 2, end.stderr
    assert "strop: Interrupted." in end.stderr
    assert "Traceback" not in end.stderr
    if json_flag:
        assert json.loads(end.stdout)["error"]["what"] == "Interrupted."
