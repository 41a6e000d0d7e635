"""Answers of a study's outputs to a task: who grades them, and what is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strop.table import Column
from strop.verbs.verb import Ask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from strop.denoisers.base import Denoiser
    from strop.tasks.cell_grades import Grader

RIGHT, RIGHT_BY_SEED = "right", "right_by_seed"
GRADED = (
    Column("accuracy", percent=True, digits=3),
    Column(
        "gain",
        "minus no cache",
        percent=True,
        signed=True,
        digits=3,
        help="Accuracy minus that without a cache, over the same problems.",
    ),
)
TASK_NOTE = (
    "Accuracy by the task's first filter; its difference from no cache is over the same problems, "
    "with a 95% interval over problems."
)


def grader_of(ask: Ask, model: Denoiser) -> Grader | None:
    """Who says which outputs are right; None without a task."""
    if ask["task"] is None:
        return None
    from strop.tasks import TASKS, ready
    from strop.tasks.cell_grades import Grader
    from strop.tasks.running import decided, entrant_of

    task, entrant = TASKS[ask["task"]], entrant_of(model, ask.sources[0], None, None)
    ask.note(decided(entrant))
    return Grader(task, entrant, ready(task))


def right_answers(grader: Grader, model: Denoiser, ids: NDArray) -> NDArray[np.float64]:
    """Which outputs answer their problems rightly."""
    import numpy as np

    from strop.measure.metric import PASSED

    codec: Any = model.codec
    texts = [codec.decode(row.tolist(), mask_id=model.mask_id) for row in ids]
    found = grader.columns(np.arange(len(ids)), texts, ids)
    right = np.zeros(len(ids))  # a verdict that was lost is none for the answer
    right[found["index"]] = found[f"{PASSED}{grader.task.filters[0].name}"]
    return right


def accuracies(
    mine: NDArray[np.float64], plain: NDArray[np.float64], *, same: bool = False
) -> dict[str, Any]:
    """Accuracy with its interval, and its paired difference from no cache."""
    from strop.stats.resample import intervals, mean

    wanted = {"accuracy": mean(mine)} | ({} if same else {"gain": mean(mine - plain)})
    return {"gain": None, **intervals(wanted)}
