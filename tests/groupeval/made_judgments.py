"""Judgments for the tests, from patterns: one letter an output, `x` for an invalid one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from strop.groupeval.judgments import portable_text
from strop.groupeval.verdict import Confidence, Grade, GroupVerdict

ZERO = (0, 0, 0, 0)


def grade(index: int, letter: str, scores: tuple[int, ...] = (2, 1, 1, 2)) -> Grade:
    if letter == "x":
        return Grade(index, False, ZERO, None)
    return Grade(index, True, scores, letter)


def group(
    pattern: str,
    *,
    cell: str = "cell",
    partition: int = 0,
    number: int = 0,
    first: int = 0,
    confidence: Confidence = "high",
) -> GroupVerdict:
    outputs = tuple(grade(first + i, letter) for i, letter in enumerate(pattern))
    return GroupVerdict(cell, partition, number, outputs, confidence)


def random_verdicts(
    seed: int,
    *,
    cell: str = "cell",
    outputs: int = 24,
    size: int = 4,
    partitions: int = 2,
    best: float = 0.5,
    modes: int = 5,
) -> list[GroupVerdict]:
    """Every output once per partition; `best` is the chance of a good grade."""
    rng = np.random.default_rng(seed)
    verdicts = []
    for partition in range(partitions):
        order = rng.permutation(outputs).reshape(-1, size)
        for number, members in enumerate(order):
            grades = []
            for index in members:
                valid = bool(rng.random() > 0.15)
                scores = tuple(int(s) for s in rng.binomial(2, best, 4)) if valid else ZERO
                mode = "abcdefgh"[rng.integers(modes)] if valid else None
                hybrid = valid and bool(rng.random() < 0.2)
                grades.append(Grade(int(index), valid, scores, mode, hybrid))
            verdicts.append(GroupVerdict(cell, partition, number, tuple(grades), "high"))
    return verdicts


def write(path: Path, verdicts: list[GroupVerdict]) -> Path:
    path.write_text(portable_text(verdicts))
    return path


def line(**changes: Any) -> dict[str, Any]:
    """A good line of two outputs as a document, to be broken."""
    document: dict[str, Any] = {
        "cell": "c",
        "partition": 0,
        "group": 0,
        "outputs": [
            {"index": 0, "valid": True, "scores": [2, 1, 1, 2], "mode": "a", "hybrid": False},
            {"index": 1, "valid": False, "scores": [0, 0, 0, 0], "mode": None, "hybrid": False},
        ],
        "confidence": "high",
    }
    return {**document, **changes}


def changed(position: int, **changes: Any) -> str:
    """The good line with one output changed, as text."""
    document = line()
    document["outputs"][position] |= changes
    return json.dumps(document)
