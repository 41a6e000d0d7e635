"""A task run as a part of the page: its tables and its figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from strop.errors import UserError
from strop.page.data import StudyPart
from strop.tasks.outcome import results
from strop.tasks.tables import checkpoint_table, draw, notes, setting_table
from strop.verbs.study import Ask, Result, Sources, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def exam_part(path: Path) -> StudyPart:
    """What a task run found, as far as it is graded."""
    found = results(path)
    if not found.settings:
        raise UserError(
            "The task run has no graded responses.", where=path, fix=f"strop task score {path}"
        )
    between = checkpoint_table(found)
    more = {} if between is None else {"between": between}
    asked = {"checkpoints": [one.source for one in found.exam.candidates]}
    asked |= {"task": found.task.name, "fingerprint": found.task.fingerprint}
    result = Result(asked, setting_table(found), more, notes=tuple(notes(found)))
    return StudyPart(f"task-{found.task.name}", path, result, RECORD)


def _drawn(result: Result) -> Figure:
    return draw(result.table)


def _no_run(ask: Ask) -> Result:
    raise UserError("A task is run by `strop task run`.", where=ask.out)


RECORD = Study(
    name="task",
    title="Accuracy against temperature",
    about="",
    sources=Sources((), ""),
    parameters=(),
    run=_no_run,
    draw=_drawn,
)
