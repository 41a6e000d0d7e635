"""The sums as a task: test problems of the generator, whose answer is the last result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strop.tasks.sandbox import Box
from strop.tasks.sums import END, RESPONSE, answer_of, problems
from strop.tasks.task import Filter, Item, Task, Verdict

COUNT = 256
"""As many as of GSM8K: a standard error of three points at 60%."""


def items() -> Sequence[Item]:
    """The first test problems; their steps, and the first two of them, are not in training."""
    return [
        Item(f"sums/{number}", one.prompt, one.response + END, case={"answer": str(one.answer)})
        for number, one in enumerate(problems("test", COUNT))
    ]


def last(item: Item, response: str) -> str | None:  # noqa: ARG001 (every filter is given both)
    """The last result."""
    found = answer_of(response)
    return None if found is None else str(found)


def check(item: Item, answer: str, box: Box | None) -> Verdict:  # noqa: ARG001
    """Compare as whole numbers."""
    expected = item.case["answer"]
    right = int(answer) == int(expected)
    return Verdict("passed") if right else Verdict("wrong", f"{answer} is not {expected}")


def wrong(item: Item, other: Item) -> Mapping[str, str]:
    """Another problem's solution, one without results, and the answer behind the end."""
    answer = item.case["answer"]
    swapped = other.reference.removesuffix(END)
    if other.case["answer"] == answer:
        swapped += "0"  # by chance the same number: then ten times as much
    return {"swapped": swapped, "emptied": "=", "forged": f"passed{END}={answer}"}


SUMS = Task(
    name="sums",
    summary="256 small word problems of two or three steps, which are written out",
    source="strop's own generator",
    items=items,
    filters=(Filter("last", last),),
    check=check,
    wrong=wrong,
    stop=(END,),
    length=RESPONSE,
    version="1",
)
