"""offline-v1 under a task's rubric: grades of two responses from what can be counted in them.

It cannot check an answer. `success` is 1, "it cannot be told", for every valid response; the other
grades see noise, loops, and whether a response speaks of what the task speaks of. A wrong answer in
good form has the grades of a right one, and using a number that does not matter earns one more: so
against labels it is near chance, or below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strop.groupeval.payload import preprocess
from strop.groupeval.profile import Profile

FEATURES = "counts"
LONG = 5
"""Letters from which a word says what is spoken of."""
GRAM = 4
"""Pieces per repeated sequence."""


@dataclass(frozen=True)
class ResponseFeatures:
    """One response in numbers; shares are from 0 to 1."""

    plain: float
    """Share of the visible characters that are letters or digits; code and sums have symbols."""
    odd: float
    """Share of those that cannot be printed, or stand for what could not be decoded."""
    repetition: float
    """Share of sequences of four words, numbers or signs that stood before."""
    shared: float
    """Share of its numbers and longer words that the task has too."""
    used: float
    """Share of the task's numbers that it has; 1 where the task has none."""


def response_features(text: str, task: str) -> ResponseFeatures:
    """Those of one response to a task."""
    visible = re.sub(r"\s", "", text)
    pieces = re.findall(r"[^\W\d_]+|\d+|[^\w\s]", text.lower())
    grams = [tuple(pieces[i : i + GRAM]) for i in range(len(pieces) - GRAM + 1)]
    own, asked = _subjects(text), _subjects(task)
    numbers = {one for one in asked if one.isdigit()}
    return ResponseFeatures(
        plain=_share(sum(c.isalnum() for c in visible), len(visible)),
        odd=_share(sum(not c.isprintable() or c == "\ufffd" for c in visible), len(visible)),
        repetition=_share(len(grams) - len(set(grams)), len(grams)),
        shared=_share(len(own & asked), len(own)),
        used=_share(len(own & numbers), len(numbers)) if numbers else 1.0,
    )


def _subjects(text: str) -> set[str]:
    found = re.findall(r"[^\W\d_]+|\d+", text.lower())
    return {piece for piece in found if piece.isdigit() or len(piece) >= LONG}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def is_valid(s: ResponseFeatures) -> bool:
    """Whether it says anything; a number alone does."""
    return s.plain >= 0.2 and s.odd <= 0.3 and s.repetition < 0.9


def _grade(two: bool, one: bool) -> int:
    return 2 if two else 1 if one else 0


GRADES: dict[str, Callable[[ResponseFeatures], int]] = {
    "readability": lambda s: _grade(
        s.plain >= 0.4 and s.odd == 0, s.plain >= 0.25 and s.odd <= 0.05
    ),
    "reasoning": lambda s: _grade(s.shared >= 0.3 and s.used >= 0.9, s.shared >= 0.1),
    "success": lambda _: 1,
    # Programs and written-out steps repeat themselves more than prose.
    "nondegeneration": lambda s: _grade(s.repetition <= 0.3, s.repetition <= 0.6),
}


def reply(texts: Sequence[str], labels: Sequence[str], profile: Profile, task: str | None) -> str:
    """The answer to one sheet, as JSON of the frozen schema; always unsure."""
    outputs = []
    for name, text in zip(labels, texts, strict=True):
        one = response_features(preprocess(text, profile), task or "")
        valid = is_valid(one)
        grades = {key: GRADES[key](one) if valid else 0 for key in profile.dimensions}
        outputs.append({"id": name, "valid": valid, **grades})
    return json.dumps({"outputs": outputs, "confidence": "low"})
