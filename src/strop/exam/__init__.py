"""Checkpoints at a task: drawn, graded, counted.

`run_task` draws the responses and grades them, `score_task` grades what is there, and `results`
reads it all: per checkpoint and setting the responses, the answers in them, the verdicts, and the
statistics. Reading needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.lazy import loader

if TYPE_CHECKING:
    from strop.exam.folder import Candidate, Exam
    from strop.exam.run import TEMPERATURES, run_task, score_task
    from strop.exam.sittings import Answered, Results, Setting, Sitting, paired, results

__all__ = [
    "TEMPERATURES",
    "Answered",
    "Candidate",
    "Exam",
    "Results",
    "Setting",
    "Sitting",
    "paired",
    "results",
    "run_task",
    "score_task",
]

__getattr__ = loader(
    __name__,
    {
        "TEMPERATURES": "strop.exam.run",
        "Answered": "strop.exam.sittings",
        "Candidate": "strop.exam.folder",
        "Exam": "strop.exam.folder",
        "Results": "strop.exam.sittings",
        "Setting": "strop.exam.sittings",
        "Sitting": "strop.exam.sittings",
        "paired": "strop.exam.sittings",
        "results": "strop.exam.sittings",
        "run_task": "strop.exam.run",
        "score_task": "strop.exam.run",
    },
)
