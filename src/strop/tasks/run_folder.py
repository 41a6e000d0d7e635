"""The directory of a task run: its mark, and one run directory per checkpoint.

RUN/strop.json       which task, how long responses are, and who answers it how
RUN/<label>/         an ordinary run: a cell per setting and seed; output i answers problem i
RUN/result.json      every number of the tables; RUN/table.csv has the first of them
RUN/accuracy.png     the figure, also as SVG
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from strop.disk import disk, locked
from strop.errors import UserError
from strop.spec import CheckpointSpec
from strop.store import KINDS, Cell, Folder, Run, read_mark
from strop.store.documents import MARK, RESULT, TABLE, Damaged, damaged, told_apart
from strop.store.folder import remove
from strop.tasks import TASKS, Task

FIGURE = "accuracy"
OWNER = "task run"
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
"""What `label_of` makes."""


@dataclass(frozen=True)
class Entrant:
    """A checkpoint, and how the problems are put to it."""

    label: str
    """Its folder in the run, and its name in tables."""
    source: str
    """As the user named it, with the commit of a hub id."""
    checkpoint: CheckpointSpec
    chat: bool
    """Whether problems are messages in its chat template."""
    bos: str
    """What opens a text that is no message; see `strop.prompts.Template`."""
    ends: tuple[str, ...]
    """Tokens that end a response: what comes after the first of them does not count."""
    end_ids: tuple[int, ...]
    """Their ids."""

    def cut(self, text: str) -> str:
        """A response up to where the model ended it."""
        places = [text.find(end) for end in self.ends if end in text]
        return text[: min(places)] if places else text

    def document(self) -> dict[str, Any]:
        """For the mark."""
        return {**asdict(self), "checkpoint": self.checkpoint.model_dump(mode="json")}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Entrant:
        """What `document` wrote."""
        lists = {name: tuple(document[name]) for name in ("ends", "end_ids")}
        label = document["label"]
        if not isinstance(label, str) or not LABEL.fullmatch(label):  # it names a folder
            raise ValueError(f"its label is {label!r}")
        if not isinstance(document["source"], str):
            raise ValueError(f"its source is {document['source']!r}")
        return cls(**{**document, **lists, "checkpoint": CheckpointSpec(**document["checkpoint"])})


@dataclass(frozen=True)
class TaskRun:
    """A task run on disk."""

    path: Path
    task: Task
    length: int
    """Tokens of a response."""
    entrants: tuple[Entrant, ...] = ()

    @classmethod
    def make(cls, path: str | os.PathLike[str], task: Task, length: int, *, force: bool) -> TaskRun:
        """A new directory, or one that was made for the same task and length."""
        task_run = cls(Path(path), task, length)
        folder = Folder(path, "task", OWNER)
        with folder.held(force=force) as mark:
            if mark is not None and not force:
                return cls.open(path)._same(task_run)
            if force:
                task_run._clear(folder)
            task_run._write()
        return task_run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> TaskRun:
        """A task run that exists."""
        mark = read_mark(path)
        if mark is None or mark.kind != "task":
            raise UserError(
                "This directory is no task run.",
                where=path,
                got=None if mark is None else f"a {KINDS[mark.kind].words}",
                expected=f"a directory whose {MARK} says that it is one",
                fix="strop task run TASK CHECKPOINT -o RUN",
            )
        place = Path(path) / MARK
        try:
            entrants = tuple(map(Entrant.read, mark.asked["checkpoints"]))
            made, length = str(mark.asked["fingerprint"]), int(mark.asked["length"])
            named = str(mark.asked["task"])
        except (KeyError, TypeError, ValueError, UserError) as error:
            raise damaged(place, error, "start the task run anew with `force`") from None
        task = TASKS.find(named, where=str(place))
        if made != task.fingerprint:
            raise UserError(
                f"The task {task.name!r} has changed since this run was made.",
                where=place,
                got=f"fingerprint {made} there, {task.fingerprint} now",
                expected="the same problems, filters and rules",
                fix="choose another `out`, or start this one anew with `force`",
            )
        return cls(Path(path), task, length, entrants)

    def run_of(self, label: str) -> Run:
        """The run directory of a checkpoint."""
        return Run(self.path / label)

    def cells(self, label: str) -> list[Cell]:
        """The cells of a checkpoint that hold responses of this task."""
        return self.run_of(label).cells()

    def enter(self, new: Entrant) -> tuple[TaskRun, Entrant]:
        """Take a checkpoint in, under a label of its own; one that is in keeps its label."""
        with locked(self.path):
            task_run = TaskRun.open(self.path)
            for one in task_run.entrants:
                if one.checkpoint == new.checkpoint:
                    if replace(new, label=one.label, source=one.source) != one:
                        raise _put_otherwise(self.path, one, new)
                    return task_run, one
            new = replace(new, label=_unique(new.label, [one.label for one in task_run.entrants]))
            task_run = replace(task_run, entrants=(*task_run.entrants, new))
            task_run._write()
        return task_run, new

    def _same(self, asked: TaskRun) -> TaskRun:
        """This one, if it is what is asked for."""
        was, now = (f"{one.task.name}, {one.length} tokens" for one in (self, asked))
        if was != now:
            raise UserError(
                "This directory holds another task run.",
                where=self.path,
                got=f"{was} there, {now} now",
                expected="the same task and `length`; temperatures, seeds, checkpoints, samplers "
                "and problems may be added",
                fix="choose another `out`, or start this one anew with `force`",
            )
        return self

    def _write(self) -> None:
        asked = {
            "task": self.task.name,
            "fingerprint": self.task.fingerprint,
            "length": self.length,
            "checkpoints": [one.document() for one in self.entrants],
        }
        Folder(self.path, "task", OWNER).write(asked)

    def _clear(self, folder: Folder) -> None:
        """Remove what strop made here: the runs of the checkpoints, and what was made of them."""
        with disk(self.path):
            for place in sorted(one for one in self.path.iterdir() if one.is_dir()):
                if _is_ours(place):
                    with locked(place):  # nobody's file is half gone
                        remove(place)
            for name in (RESULT, TABLE, f"{FIGURE}.png", f"{FIGURE}.svg"):
                (self.path / name).unlink(missing_ok=True)
        folder.clear()


def _is_ours(place: Path) -> bool:
    """Whether a folder is the run of a checkpoint, whatever became of its mark."""
    try:
        mark = read_mark(place)
    except Damaged:
        mark = None
    return Folder(place, "run", OWNER).holds_cells() if mark is None else mark.owner == OWNER


def label_of(source: str) -> str:
    """A folder's name for a checkpoint: the last part of what it is called."""
    name = source.rstrip("/").rpartition("@")[0] if "@" in source else source.rstrip("/")
    name = re.split(r"[/:#\\]", name)[-1]  # of a served model what stands behind the #
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "checkpoint"


def _unique(label: str, taken: list[str]) -> str:
    names = (label, *(f"{label}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _put_otherwise(path: Path, was: Entrant, now: Entrant) -> UserError:
    asked = [{k: getattr(one, k) for k in ("chat", "bos", "ends", "end_ids")} for one in (was, now)]
    return UserError(
        f"The problems were put to {was.label} in another way.",
        where=path,
        got="; ".join(told_apart(*asked)),
        fix="choose another `out`, or start this one anew with `force`",
    )
