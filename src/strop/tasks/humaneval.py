"""HumanEval: 164 functions to be written, each checked by its tests in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strop.errors import UserError
from strop.tasks.data import rows
from strop.tasks.forged import BODIES
from strop.tasks.sandbox import Box
from strop.tasks.sanitize import sanitize
from strop.tasks.task import Filter, Item, Task, Verdict
from strop.tasks.trial import trial

FENCE = "```"
OPENING = FENCE + "python"


def items() -> Sequence[Item]:
    """The problems in their order."""
    return [
        Item(
            row["task_id"],
            row["prompt"],
            row["canonical_solution"],
            case={name: row[name] for name in ("prompt", "entry_point", "test")},
        )
        for row in rows("humaneval/problems")
    ]


def program(item: Item, response: str) -> str | None:
    """The complete program of a response: what is fenced, or what stands before a fence."""
    _, opened, rest = response.partition(OPENING)
    code = (rest if opened else response).partition(FENCE)[0]
    return sanitize(item.question + "\n" + code, item.question, item.case["entry_point"])


def check(item: Item, answer: str, box: Box | None) -> Verdict:
    """Run a program against the problem's tests."""
    if box is None:
        raise UserError("Programs of a model run in a sandbox only.", expected="a `Box`")
    return trial(box, answer, item.case)


def wrong(item: Item, other: Item) -> Mapping[str, str]:
    """Another problem's solution, one that does nothing, and one that forges its verdict."""
    forged = BODIES[int(item.id.rpartition("/")[2]) % len(BODIES)]
    return {"swapped": other.reference, "emptied": "    return None\n", "forged": forged}


HUMANEVAL = Task(
    name="humaneval",
    summary="164 Python functions from their descriptions, run against tests in a sandbox",
    source="openai/human-eval, MIT",
    items=items,
    filters=(Filter("program", program),),
    check=check,
    wrong=wrong,
    sandboxed=True,
    version="1",
)
