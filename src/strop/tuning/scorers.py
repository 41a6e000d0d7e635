"""Scores that a search can ask for beside the metrics of `strop score`: a task's, a judge's.

    task    whether a response is right; outputs answer the task's problems in their order
    geq     the quality that a judge of this process sees, groups of eight of one setting at a time

Both are kept beside the outputs like any other score, so that nothing is graded or judged twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from strop.errors import UserError
from strop.measure.metric import GEQ
from strop.verbs.points import GROUP, PROFILE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from strop.denoisers import Model
    from strop.engine.plan import Progress
    from strop.measure.cells import Scorer
    from strop.measure.score import Outputs
    from strop.prompts.canvas import Canvases
    from strop.spec.value import MetricSpec
    from strop.store import Cell


@dataclass(frozen=True)
class TaskSide:
    """A task before one model."""

    canvases: Canvases
    scorer: Scorer
    problems: int


def task_side(
    model: Model, name: str, length: int | None, progress: Progress | None = None
) -> TaskSide:
    """The problems as the model reads them, and who grades its responses."""
    from strop.tasks import TASKS, ready
    from strop.tasks.running import canvases_of_task, entrant_of, grade_cell, task_metric

    task = TASKS.find(name, where="`task`")
    entrant = entrant_of(model, model.source, None, None)
    box = ready(task)
    canvases = canvases_of_task(model, entrant, task, task.length if length is None else length)

    def score(cell: Cell) -> MetricSpec:
        grade_cell(cell, task, entrant, box, progress)
        return task_metric(task, entrant, box)

    return TaskSide(canvases, score, len(task.all_items()))


def check_judge(name: str) -> None:
    """Refuse a judge that does not answer in this process: a search waits for every answer."""
    from strop.groupeval.judges import JUDGES

    record = JUDGES.find(name, where="`judge`")
    if record.served or record.client is None:
        raise UserError(
            f"The judge {name!r} does not answer in this process.",
            where="`judge`",
            expected=", ".join(o.name for o in JUDGES.values() if o.client and not o.served),
        )


def judge_scorer(folder: Path, judge: str, seed: int) -> Scorer:
    """A judge of this process; plans and verdicts lie in `folder`, a directory per group."""
    from strop.groupeval import Profile
    from strop.groupeval.judges import judge_spec
    from strop.measure.score import score_outputs
    from strop.spec.value import MetricSpec

    check_judge(judge)
    profile = Profile.load(PROFILE)
    spec = judge_spec(judge, profile)
    metric = MetricSpec(name=GEQ.name, settings={"profile": profile.hash, "judge": spec.id})

    def score(cell: Cell) -> MetricSpec:
        def measure(outputs: Outputs) -> dict[str, NDArray]:
            group_folder = folder / f"{cell.id}-{outputs.index[0]}"
            return {"geq": _qualities(group_folder, list(outputs.texts), judge, seed)}

        score_outputs(cell, metric, measure, batch=GROUP, what=f"{judge} judge")
        return metric

    return score


def _qualities(folder: Path, texts: list[str], judge: str, seed: int) -> NDArray[np.float64]:
    """The quality of every text of one group."""
    from strop.groupeval import Profile, Source, judge_run, make_plan
    from strop.groupeval.scores import by_cell
    from strop.groupeval.series import write_plan

    if len(texts) % GROUP:
        raise UserError(
            "The judge reads groups of eight.",
            where="`first`",
            got=f"{len(texts)} outputs left over",
            expected="numbers of outputs that are multiples of 8",
        )
    profile = Profile.load(PROFILE)
    folder.parent.mkdir(parents=True, exist_ok=True)
    plan, frozen = make_plan([Source("one", tuple(texts), None, "one")], profile, seed=seed)
    write_plan(folder, plan, profile, frozen)
    [cell] = by_cell(judge_run(folder, judge).verdicts()).values()
    quality = np.zeros(len(texts))
    quality[list(cell.outputs)] = cell.per_output
    return quality
