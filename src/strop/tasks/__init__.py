"""Tasks: prompts with answers that can be checked, runs over them, and the sandbox for programs.

`TASKS` lists the records, `grade` judges a response, and `check_task` sends the reference answers
and wrong ones through the whole pipeline. `run_task` draws the responses of checkpoints and grades
them, `score_task` grades what is there, and `results` reads it all: per checkpoint and setting the
responses, the answers in them, the verdicts, and the statistics. Only drawing needs torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader
from strop.tasks.grade import Graded, TaskCheck, check_task, grade, grade_all, ready
from strop.tasks.sandbox import Box, Limits, find_box
from strop.tasks.task import TASKS, Filter, Item, Task, Verdict

if TYPE_CHECKING:
    from strop.tasks.outcome import (
        Answered,
        Entrant,
        Results,
        SeedGrades,
        TaskRun,
        TaskSetting,
        paired,
        results,
    )
    from strop.tasks.running import TEMPERATURES, run_task, score_task

__all__ = [
    "TASKS",
    "TEMPERATURES",
    "Answered",
    "Box",
    "Entrant",
    "Filter",
    "Graded",
    "Item",
    "Limits",
    "Results",
    "SeedGrades",
    "Task",
    "TaskCheck",
    "TaskRun",
    "TaskSetting",
    "Verdict",
    "check_task",
    "find_box",
    "grade",
    "grade_all",
    "paired",
    "ready",
    "results",
    "run_task",
    "score_task",
]

__getattr__ = loader(__name__)
