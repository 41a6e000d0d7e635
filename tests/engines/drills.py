"""One plan of work, run in every way, and what must be the same of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import strop
import warm_processes
from strop.cli.main import run as run_command
from strop.errors import UserError
from strop.store import Run
from tiny_models import environment

N, SIZE = 14, 3
PLAN = ["--steps", "12", "--precision", "float64,float32", "-n", str(N), "--seed", "5"]
PLAN += ["--batch-size", str(SIZE)]
"""Two cells of five units each."""
DENSE = ["--steps", "6", "--implementation", "dense", *PLAN[4:]]

SLOW = """
import sys
import strop.engine.sink
strop.engine.sink.FLUSH_SECONDS = 0.01
from strop.cli.main import main
main(sys.argv[1:])
"""
"""The command, writing often, so that kills land between and in writes."""
WARM = "import warm_processes; warm_processes.from_now_on()\n"
"""Before a command: its workers have loaded torch."""


def arguments(model: Path, out: Path, *more: object, plan: list[str] = PLAN) -> list[str]:
    return ["sample", str(model), *plan, "-o", str(out), *map(str, more)]


def sampled(model: Path, out: Path, *more: object, plan: list[str] = PLAN) -> int:
    """Run in this process."""
    return run_command(arguments(model, out, *more, plan=plan))


def started(
    model: Path, out: Path, *more: object, plan: list[str] = PLAN, before: str = ""
) -> subprocess.Popen[str]:
    """Run in a process of its own."""
    return warm_processes.Popen(
        [sys.executable, "-c", before + SLOW, *arguments(model, out, *more, plan=plan)],
        env=environment(PYTHONPATH=source()),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def source() -> str:
    """Where strop and the helpers lie, whatever directory a process starts in."""
    here = [str(Path(strop.__file__).resolve().parents[1]), str(Path(__file__).parents[1])]
    return os.pathsep.join([*here, *filter(None, [os.environ.get("PYTHONPATH")])])


def outcome(path: Path) -> list[Any]:
    """Everything of a run that must not depend on who made it: all but time."""
    cells = Run.open(path).cells()
    tables = [cell.table().drop_columns(["seconds"]) for cell in cells]
    return [(cell.id, table.to_pylist()) for cell, table in zip(cells, tables, strict=True)]


SEARCH = ["--space", "temperature=0.7:1.1", "--steps", "4", "--budget", "24", "--first", "4"]
SEARCH += ["-n", "8", "--fresh-n", "8", "--no-guard", "--evaluator", "embedded:tales-ar"]


def searched(out: Path) -> tuple[dict[str, Any], list[list[Any]]]:
    """What a search says and every run that it drew; which engine it had is in neither."""
    runs = [out, *(one for one in (out / "fresh").iterdir() if one.is_dir())]
    return json.loads((out / "result.json").read_text()), [outcome(one) for one in runs]


def indices(path: Path) -> list[int]:
    """Outputs on disk, by cell."""
    return [len(cell.indices()) for cell in Run.open(path).cells()]


def drawn(path: Path) -> list[int]:
    """Outputs drawn, as the sessions tell it, by cell."""
    return [sum(one["outputs"] for one in cell.sessions()) for cell in Run.open(path).cells()]


def on_disk(path: Path) -> int:
    """Outputs that sessions say they have made durable: cheap to ask."""
    documents = [json.loads(one.read_text()) for one in path.glob("cells/*/cost.json")]
    return sum(session["outputs"] for one in documents for session in one["sessions"])


def clean(path: Path) -> bool:
    """Nothing but what a finished run has."""
    return not [*path.rglob(".tmp-*"), *path.rglob(".claim-*"), *path.rglob("parts/*")]


# Ends of processes

LONG = ["--steps", "24", "--precision", "float64,float32", "-n", "48", "--seed", "5"]
LONG += ["--batch-size", "3"]
"""Enough units that a kill lands between the first and the last."""
TOTAL = 96


def descendants(pid: int) -> list[int]:
    """Processes below a process, by Linux's own list, and warm ones."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    found = [int(word) for word in text.split()] + warm_processes.started_by(pid)
    return found + [below for one in found for below in descendants(one)]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not asked for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def titled(pid: int, title: bytes) -> list[int]:
    """Those below a process whose command line has a word."""
    found = []
    for one in descendants(pid):
        try:
            line = Path(f"/proc/{one}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if title in line:
            found.append(one)
    return found


class Dying:
    """A job that kills whoever takes it up."""

    needs = None

    def check(self) -> None:
        """Nothing is needed."""

    def open(self, loaded: Any) -> Any:
        assert loaded is None, "nothing was loaded"

    def load(self, device: str) -> Any:
        assert device
        os.kill(os.getpid(), signal.SIGKILL)


class Failing(Dying):
    """A job that cannot be taken up."""

    def load(self, device: str) -> Any:
        raise UserError("There is no such thing.", where=device)
