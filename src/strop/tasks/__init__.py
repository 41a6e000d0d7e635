"""Tasks: prompts with answers that can be checked, runs over them, and the sandbox for programs.

`TASKS` lists the records, `grade` judges a response, and `check_task` sends the reference answers
and wrong ones through the whole pipeline. `run_task` draws the responses of checkpoints and grades
them, `score_task` grades what is there, and `results` reads it all: per checkpoint and setting the
responses, the answers in them, the verdicts, and the statistics. Only drawing needs torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.lazy import loader
from strop.tasks.check import TaskCheck, check_task
from strop.tasks.grade import Graded, grade, grade_all, ready
from strop.tasks.sandbox import Box, Limits, find_box
from strop.tasks.task import TASKS, Filter, Item, Task, Verdict

if TYPE_CHECKING:
    from strop.tasks.outcome import Answered, Results, Setting, Sitting, paired, results
    from strop.tasks.run_folder import Candidate, Exam
    from strop.tasks.running import TEMPERATURES, run_task, score_task

__all__ = [
    "TASKS",
    "TEMPERATURES",
    "Answered",
    "Box",
    "Candidate",
    "Exam",
    "Filter",
    "Graded",
    "Item",
    "Limits",
    "Results",
    "Setting",
    "Sitting",
    "Task",
    "TaskCheck",
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

__getattr__ = loader(
    __name__,
    {
        "TEMPERATURES": "strop.tasks.running",
        "Answered": "strop.tasks.outcome",
        "Candidate": "strop.tasks.run_folder",
        "Exam": "strop.tasks.run_folder",
        "Results": "strop.tasks.outcome",
        "Setting": "strop.tasks.outcome",
        "Sitting": "strop.tasks.outcome",
        "paired": "strop.tasks.outcome",
        "results": "strop.tasks.outcome",
        "run_task": "strop.tasks.running",
        "score_task": "strop.tasks.running",
    },
)
