"""What lies in a directory: outputs, an audit, a study, a task, a training run, GroupEval.

Each of them is known by one file. What lies inside belongs to it and is not listed for itself.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from strop.disk import LOCK
from strop.errors import UserError
from strop.store.layout import AUDIT, EXAM, FRESH, PLAN, RESULT, STUDY, TRAINING

__all__ = ["Entry", "entry_of", "find"]


@dataclass(frozen=True)
class Entry:
    """One line of `strop ls`."""

    run: str
    """Where it lies."""
    kind: str
    """`outputs`, `audit`, `training`, `study NAME`, `task NAME`, `GroupEval`."""
    checkpoint: str | None
    cells: int
    state: str

    @property
    def look(self) -> str:
        """The command that shows it."""
        place = shlex.quote(self.run)
        if self.kind == "GroupEval":
            return f"strop groupeval show {place}"
        if self.kind.startswith("task"):
            return f"strop task score {place}"
        if self.kind.startswith("study"):
            return f"strop report {place} -o report.html"
        return f"strop show {place}"

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def find(root: Path) -> Iterator[Entry]:
    """Everything at or below `root`, in order of the paths; no look inside what was found."""
    for folder, below, names in os.walk(root):
        entry = entry_of(Path(folder), names)
        below[:] = [] if entry is not None else sorted(below)
        if entry is not None:
            yield entry


def entry_of(path: Path, names: list[str] | None = None) -> Entry | None:
    """What a directory is, if it is one of ours."""
    names = [p.name for p in path.iterdir()] if names is None else names
    if STUDY in names:
        return _outputs(path)
    if EXAM in names:
        return _exam(path)
    if TRAINING in names:
        state = "finished" if RESULT in names else "not finished"
        return Entry(str(path), "training", None, 0, state)
    if PLAN in names:
        judges = sum(1 for _ in path.glob("series/*/judge.json"))
        told = "not judged" if not judges else f"{judges} judge{'s' if judges > 1 else ''}"
        return Entry(str(path), "GroupEval", None, 0, told)
    if RESULT in names:
        return _study(path)
    if LOCK in names and next(path.glob(f"*/{STUDY}"), None) is not None:
        return Entry(str(path), "study", None, 0, "not finished")
    return None


def _outputs(path: Path) -> Entry:
    from strop.store import Run

    run = Run(path)
    kind = "audit" if (path / AUDIT).exists() or (path / FRESH / STUDY).exists() else "outputs"
    try:
        asked, cells = run.asked, run.cells()
        done = sum(len(cell.indices()) for cell in cells)
        state = f"{done} of {sum(run.wanted().values())} outputs"
    except UserError as error:  # one damaged run must not hide the others
        return Entry(str(path), kind, None, 0, error.what)
    return Entry(str(path), kind, asked.get("checkpoint"), len(cells), state)


def _exam(path: Path) -> Entry:
    """A task run: what its checkpoints' runs hold together."""
    from strop.store.documents import read_json

    try:
        document = read_json(path / EXAM, "checkpoints", list)
        runs = [_outputs(p.parent) for p in sorted(path.glob(f"*/{STUDY}"))]
    except UserError as error:
        return Entry(str(path), "task", None, 0, error.what)
    named = ", ".join(one["label"] for one in document["checkpoints"])
    state = "; ".join(one.state for one in runs) or "nothing drawn"
    return Entry(
        str(path), f"task {document['task']}", named, sum(one.cells for one in runs), state
    )


def _study(path: Path) -> Entry | None:
    """A directory whose result.json says which study it is; others have files of that name too."""
    try:
        name = json.loads((path / RESULT).read_bytes()).get("study")
    except (OSError, ValueError, AttributeError):
        return None
    return Entry(str(path), f"study {name}", None, 0, "finished") if isinstance(name, str) else None
