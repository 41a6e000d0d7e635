"""Planned runs for the tests, and judges that answer by a rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strop.groupeval.plan import Sheet, Source, make_plan
from strop.groupeval.profile import Profile
from strop.groupeval.series import Series, write_plan
from strop.spec import JudgeSpec

HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"

Rule = Callable[[str, int], dict[str, Any]]
"""From a text and its display position to what the judge says of it."""


def planned(
    path: Path, cells: dict[str, list[str]], *, profile: str = "webtext-v1", controls: int = 0
) -> Path:
    prompts = (
        None
        if profile == "webtext-v1"
        else tuple(f"task {i}" for i in range(len(next(iter(cells.values())))))
    )
    sources = [Source(name, tuple(texts), prompts, name) for name, texts in cells.items()]
    loaded = Profile.load(profile)
    plan, texts = make_plan(sources, loaded, controls=controls)
    write_plan(path, plan, loaded, texts)
    return path


def pools(outputs: int = 16) -> dict[str, list[str]]:
    """Two generators; the second writes longer texts."""
    return {
        "short-writer": [f"{i} a brief note on tea and rain {HOSTILE}" for i in range(outputs)],
        "long-writer": [
            f"{i} a tale of a ship and its crew " * (1 + i % 4) for i in range(outputs)
        ],
    }


def grades(readability: int, *rest: int, mode: str = "A", hybrid: bool = False) -> dict[str, Any]:
    names = ("readability", "coherence", "substance", "nondegeneration")
    scores = dict(zip(names, (readability, *rest), strict=True))
    return {"valid": True, **scores, "mode": mode, "hybrid": hybrid}


INVALID = {
    **dict.fromkeys(("readability", "coherence", "substance", "nondegeneration"), 0),
    "valid": False,
    "mode": None,
    "hybrid": False,
}


def judged(run: Path, rule: Rule, *, name: str = "rule", repeat: int = 0, skip: int = 0) -> Series:
    """The plan as a judge with this rule leaves it; the first `skip` sheets stay unanswered."""
    series = Series.create(run, JudgeSpec(kind="test", name=name))
    with series.writing():
        for sheet in series.plan.sheets[skip:]:
            series.append(
                {
                    "sheet": sheet.id,
                    "outcome": "verdict",
                    "repeat": repeat,
                    "reply": json.dumps(answer(series, sheet, rule)),
                }
            )
    return Series.open(run, series.id)


def answer(series: Series, sheet: Sheet, rule: Rule) -> dict[str, Any]:
    texts, _ = series.sheet_texts(sheet)
    rows = zip(sheet.labels, texts, strict=True)
    outputs = [{"id": label, **rule(text, i)} for i, (label, text) in enumerate(rows)]
    return {"outputs": outputs, "confidence": "high"}
