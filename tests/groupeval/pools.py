"""Pools of texts, plans made of them, and the reply of a judge that always agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from strop.groupeval.plan import Sheet, Source, make_plan
from strop.groupeval.profile import Profile
from strop.groupeval.series import write_plan

SUBJECTS = ("bridge", "oven", "camera", "harbour", "violin", "orchard", "glacier", "ledger")


def texts(n: int) -> tuple[str, ...]:
    """Short different texts."""
    return tuple(
        f"<|endoftext|>The {SUBJECTS[i % 8]} was number {i} and nobody in the town had seen it."
        for i in range(n)
    )


def source(name: str, n: int) -> Source:
    return Source(name, texts(n), None, f"{name}.jsonl")


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def planned(path: Path, cells: dict[str, int], **options: Any) -> Path:
    """A run directory with a plan."""
    profile = Profile.load("webtext-v1")
    plan, frozen = make_plan([source(k, n) for k, n in cells.items()], profile, **options)
    write_plan(path, plan, profile, frozen)
    return path


def verdict(labels: tuple[str, ...] | list[str], **changes: Any) -> dict[str, Any]:
    """A reply in the frozen form; `changes` go to its first output."""
    outputs = [
        {
            "id": label,
            "valid": True,
            "readability": 1,
            "coherence": 2,
            "substance": 1,
            "nondegeneration": 2,
            "mode": "ABCDEFGH"[i % 3],
            "hybrid": False,
        }
        for i, label in enumerate(labels)
    ]
    outputs[0].update(changes)
    return {"outputs": outputs, "confidence": "medium"}


def reply(sheet: Sheet, **changes: Any) -> str:
    return json.dumps(verdict(sheet.labels, **changes))
