"""NoveltyBench's files: read as answers to prompts, written from a judge's verdicts.

NoveltyBench (Zhang et al. 2025, arXiv 2504.05228) keeps one JSON object a prompt: `generations`
are its answers in order, `partition` numbers their classes by first appearance, and
`generation_scores` gives the first answer of every class its quality and every other 0.

    distinct_k = classes among k answers
    utility_k  = mean of the generation scores, weighted by patience ** place

Here classes are a judge's modes and the quality is the judge's, 0 to 10; there a classifier makes
classes and a reward model grades 1 to 10. So values of the two are not compared. An invalid answer
is in no mode: it has quality 0, and in the file a class of its own with all other invalid ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.disk import write
from strop.errors import UserError
from strop.groupeval.scores import mode_counts, quality
from strop.groupeval.verdict import GroupVerdict

if TYPE_CHECKING:
    from strop.groupeval.series import Series

PATIENCE = 0.8
"""How likely a reader is to go on to the next answer."""
INVALID = "an invalid answer"


def distinct_k(verdict: GroupVerdict) -> int:
    """Modes among the valid answers."""
    return len(mode_counts(verdict.outputs))


def utility_k(verdict: GroupVerdict, patience: float = PATIENCE) -> float:
    """What a reader gains who stops after each answer with some chance: nothing from repeats."""
    _, scores = _classes(verdict)
    return float(np.average(scores, weights=patience ** np.arange(len(scores))))


def _classes(verdict: GroupVerdict) -> tuple[list[int], list[float]]:
    """The number of each answer's class, and the quality of each that is the first of its."""
    numbers: dict[str, int] = {}
    partition, scores = [], []
    for one in sorted(verdict.outputs, key=lambda output: output.index):
        name = one.mode if one.valid and one.mode is not None else INVALID
        new = name not in numbers
        partition.append(numbers.setdefault(name, len(numbers)))
        scores.append(quality(one) if new else 0.0)
    return partition, scores


def write_novelty(folder: Path, series: Series) -> list[Path]:
    """`generations.jsonl`, `partitions.jsonl` and `scores.jsonl` of every generator of a series."""
    if series.profile.kind != "answers":
        raise UserError(
            "NoveltyBench's files hold answers to prompts.",
            where="`novelty`",
            got=f"a plan under {series.profile.name}",
            expected="one under answers-v1",
        )
    files = []
    for cell in series.plan.cells:
        texts = series.texts(cell)
        mine = [one for one in series.verdicts() if one.cell == cell]
        rows = [_row(number, one, texts) for number, one in enumerate(mine)]
        keys = ("id", "prompt", "generations"), ("partition", "distinct")
        scored = ("generation_scores", "partition_scores", "utility")
        for name, have in (
            ("generations", keys[0]),
            ("partitions", (*keys[0], *keys[1])),
            ("scores", (*keys[0], *keys[1], *scored)),
        ):
            lines = [json.dumps({k: row[k] for k in have}, ensure_ascii=False) for row in rows]
            files.append(folder / _plain(cell) / f"{name}.jsonl")
            files[-1].parent.mkdir(parents=True, exist_ok=True)
            write(files[-1], "".join(line + "\n" for line in lines).encode())
    return files


def _row(number: int, verdict: GroupVerdict, texts: list[str]) -> dict[str, Any]:
    partition, scores = _classes(verdict)
    first = [partition.index(k) for k in range(max(partition) + 1)]
    ordered = sorted(one.index for one in verdict.outputs)
    return {
        "id": f"{verdict.cell}-{number}",
        "prompt": verdict.prompt,
        "generations": [texts[index] for index in ordered],
        "partition": partition,
        "distinct": distinct_k(verdict),
        "generation_scores": scores,
        "partition_scores": [scores[place] for place in first],
        "utility": utility_k(verdict),
    }


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "cell"
