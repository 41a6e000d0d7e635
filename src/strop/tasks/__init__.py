"""Tasks: prompts with answers that can be checked, and the sandbox that programs run in. No torch.

`TASKS` lists the records, `grade` judges a response, and `check_task` sends the reference answers
and wrong ones through the whole pipeline.
"""

from strop.tasks.check import Report, check_task
from strop.tasks.grade import Graded, grade, grade_all, ready
from strop.tasks.sandbox import Box, Limits, find_box
from strop.tasks.task import TASKS, Filter, Item, Task, Verdict

__all__ = [
    "TASKS",
    "Box",
    "Filter",
    "Graded",
    "Item",
    "Limits",
    "Report",
    "Task",
    "Verdict",
    "check_task",
    "find_box",
    "grade",
    "grade_all",
    "ready",
]
