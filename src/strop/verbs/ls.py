"""strop ls: the runs, audits, studies, task runs, training runs and GroupEval below a directory.

Each of them says in its mark what it is. What lies inside belongs to it and is not listed for
itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from strop.errors import UserError
from strop.store.folder import KINDS, MARK, RESULT, Mark, read_mark
from strop.verbs.verb import Ask, Parameter, Result, Verb, grid

FIRST = "strop sample -n 4 -o runs/first"


@dataclass(frozen=True)
class Listed:
    """One line of `strop ls`."""

    run: str
    """Where it lies."""
    kind: str
    """One of `KINDS`; of a study and a task with its name; `unknown` where the mark is damaged."""
    checkpoint: str | None
    cells: int
    state: str

    @property
    def look(self) -> str:
        """The command that shows it."""
        kind = self.kind.partition(" ")[0]
        return KINDS[kind if kind in KINDS else "run"].shown_by(self.run)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def find(root: Path) -> Iterator[Listed]:
    """Everything at or below `root`, in order of the paths; no look inside what was found."""
    for folder, below, names in os.walk(root):
        entry = entry_of(Path(folder)) if MARK in names else None
        below[:] = [] if entry is not None else sorted(below)
        if entry is not None:
            yield entry


def entry_of(path: Path) -> Listed | None:
    """What a directory is, if it is one of ours."""
    try:
        mark = read_mark(path)
    except UserError as error:  # one damaged directory must not hide the others
        return Listed(str(path), "unknown", None, 0, error.what)
    if mark is None:
        return None
    if mark.holds_cells:
        return _outputs(path, mark)
    if mark.kind == "task":
        return _task(path, mark)
    if mark.kind == "groupeval":
        judges = sum(1 for _ in path.glob("series/*/judge.json"))
        state = "not judged" if not judges else f"{judges} judge{'s' if judges > 1 else ''}"
    else:
        state = "finished" if (path / RESULT).is_file() else "not finished"
    kind = f"study {mark.owner}" if mark.kind == "study" else mark.kind
    return Listed(str(path), kind, None, 0, state)


def _outputs(path: Path, mark: Mark) -> Listed:
    from strop.store import Run

    try:
        cells = Run(path).cells()
        done = sum(len(cell.indices()) for cell in cells)
    except UserError as error:
        return Listed(str(path), mark.kind, None, 0, error.what)
    state = f"{done} of {sum(mark.wanted().values())} outputs"
    return Listed(str(path), mark.kind, mark.asked.get("checkpoint"), len(cells), state)


def _task(path: Path, mark: Mark) -> Listed:
    """A task run: what its checkpoints' runs hold together."""
    inside = sorted(mark_file.parent for mark_file in path.glob(f"*/{MARK}"))
    runs = [entry for folder in inside if (entry := entry_of(folder)) is not None]
    try:
        named = ", ".join(checkpoint["label"] for checkpoint in mark.asked["checkpoints"])
        kind = f"task {mark.asked['task']}"
    except (KeyError, TypeError):
        return Listed(str(path), "task", None, 0, "A file of the run is damaged.")
    state = "; ".join(entry.state for entry in runs) or "nothing drawn"
    return Listed(str(path), kind, named, sum(entry.cells for entry in runs), state)


def _run(ask: Ask) -> Result:
    root = Path(ask["root"])
    if not root.is_dir():
        raise UserError("There is no such directory.", where=root, fix=FIRST)
    entries = list(find(root))
    rows = [
        [entry.run, entry.kind, entry.checkpoint or "", str(entry.cells or ""), entry.state]
        for entry in entries
    ]
    return Result(
        parts=(grid(["run", "kind", "checkpoint", "cells", "state"], rows),) if rows else (),
        json={"root": str(root), "runs": [entry.as_dict() for entry in entries]},
        remarks=() if entries else (f"no runs below {root}",),
        next=entries[0].look if entries else FIRST,
        value=entries,
    )


VERB = Verb(
    name="ls",
    help="List what lies below a directory: runs, audits, studies, training runs, GroupEval.",
    parameters=(Parameter("root", "Where to look.", "runs", argument="ROOT"),),
    run=_run,
    examples=("strop ls", "strop ls elsewhere --json"),
)
