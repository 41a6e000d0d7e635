"""Groups of texts that people rated: those that ship, and a user's own.

One group is one JSON object a line; `texts` and one of `score`, `label`, `modes`, `grades` are
needed, and every other field that holds a number is a column that can be compared with people too:

    {"texts": ["...", "..."], "context": "...", "task": "story", "score": 3.2, "label": "high",
     "modes": ["a", "b"], "grades": [7.5, 5]}

What ships is conTest and decTest of Tevet and Berant (assets/human-groups/README.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strop.assets import ROOT
from strop.errors import UserError
from strop.groupeval.verdict import no_repeats

SHIPPED = ROOT / "human-groups" / "groups.parquet"
SIZES = (2, 16)
"""Texts of a group under answers-v1."""
TOLD = ("score", "label", "modes", "grades")
LABELS = ("low", "high")
EXPECTED = (
    'one JSON object a line, {"texts": ["...", "..."], "score": 3.2}: 2 to 16 texts and one of '
    "score, label, modes, grades; context and task if there are any"
)
ALL = "all"
"""The task of groups that name none."""


@dataclass(frozen=True)
class RatedGroup:
    """Some texts, and what people said of them."""

    texts: tuple[str, ...]
    context: str | None = None
    """What the texts answer or go on from."""
    task: str = ALL
    score: float | None = None
    """How diverse people found the group, on any scale."""
    label: bool | None = None
    """Whether it was made to be diverse."""
    modes: tuple[str | None, ...] | None = None
    """People's sorting; None for a text that they left out."""
    grades: tuple[float, ...] | None = None
    """People's quality of each text, 0 to 10 as GEQ."""
    columns: Mapping[str, float] = field(default_factory=dict)
    """Other numbers of the row, by name."""
    collection: str = "mean"
    """Over the tasks of which collection its task is averaged."""

    def unit(self, place: int) -> str:
        """What is resampled as one: groups of one context belong together."""
        return f"group {place}" if self.context is None else self.context


def shipped_groups(limit: int | None = None) -> list[RatedGroup]:
    """conTest and decTest; `limit` takes so many groups, equally many of every task."""
    from strop.store.tables import parquet_file

    found: dict[str, list[RatedGroup]] = {}
    for row in parquet_file(SHIPPED).read(use_threads=False).to_pylist():
        collection = row.pop("set")
        task = f"{collection} {row.pop('task')}"
        own = {name: row.pop(name) for name in ("texts", "context", "score", "label", "id")}
        label = None if own["label"] is None else own["label"] == "high"
        found.setdefault(task, []).append(
            RatedGroup(
                tuple(own["texts"]),
                own["context"],
                task,
                own["score"],
                label,
                columns={name: value for name, value in row.items() if value is not None},
                collection=collection,
            )
        )
    return _limited([one for mine in found.values() for one in mine], limit)


def _limited(groups: list[RatedGroup], limit: int | None) -> list[RatedGroup]:
    """The first groups of every task, as equally many as the limit allows."""
    if limit is None:
        return groups
    mine = tasks_of(groups)
    order = sorted((k, t, i) for t, rows in enumerate(mine.values()) for k, i in enumerate(rows))
    return [groups[i] for i in sorted(i for *_, i in order[:limit])]


def read_groups(path: str | Path, limit: int | None = None) -> list[RatedGroup]:
    """A user's groups; one message says what is wrong with the file."""
    try:
        content = Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(
            "The rated groups cannot be read.", where=path, got=what, expected=EXPECTED
        ) from None
    groups = list(_rows(content, str(path)))
    if not groups:
        raise UserError(
            "The file holds no rated group.", where=path, got="an empty file", expected=EXPECTED
        )
    return _limited(groups, limit)


def _rows(content: str, source: str) -> Iterator[RatedGroup]:
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        try:
            row = json.loads(line, object_pairs_hook=no_repeats, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise UserError(
                "A line of the rated groups is not JSON.",
                where=where,
                got=str(error)[:100],
                expected=EXPECTED,
            ) from None
        if not isinstance(row, dict):
            raise _wrong(where, "a line is no object", row)
        yield _group(row, where)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _wrong(where: str, what: str, got: Any) -> UserError:
    return UserError(
        f"A rated group cannot be used: {what}.",
        where=where,
        got=json.dumps(got)[:80] if got is not None else "nothing",
        expected=EXPECTED,
    )


def _group(row: dict[str, Any], where: str) -> RatedGroup:
    texts = row.get("texts")
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise _wrong(where, "`texts` is no list of texts", texts)
    if not SIZES[0] <= len(texts) <= SIZES[1]:
        raise _wrong(where, f"`texts` has {len(texts)} texts", len(texts))
    if all(row.get(name) is None for name in TOLD):
        raise _wrong(where, "nobody rated it: there is no score, label, modes or grades", row)
    for name in ("context", "task"):  # a number names one as well
        if _is_number(row.get(name)):
            row[name] = str(row[name])
        if not isinstance(row.get(name), str | None):
            raise _wrong(where, f"`{name}` is no text", row[name])
    score, label = row.get("score"), row.get("label")
    label = label.lower() if isinstance(label, str) else label
    if score is not None and not _is_number(score):
        raise _wrong(where, "`score` is no number", score)
    if label is not None and label not in LABELS:
        raise _wrong(where, "`label` is neither high nor low", label)
    columns = {k: float(v) for k, v in row.items() if k not in TOLD and _is_number(v)}
    return RatedGroup(
        tuple(texts),
        row.get("context"),
        row.get("task") or ALL,
        None if score is None else float(score),
        None if label is None else label == "high",
        _modes(row.get("modes"), len(texts), where),
        _grades(row.get("grades"), len(texts), where),
        columns,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _modes(modes: Any, n: int, where: str) -> tuple[str | None, ...] | None:
    if modes is None:
        return None
    fine = isinstance(modes, list) and all(isinstance(one, str | int | None) for one in modes)
    if not fine or len(modes) != n:
        raise _wrong(where, "`modes` has not one name or null for each text", modes)
    return tuple(None if one is None else str(one) for one in modes)


def _grades(grades: Any, n: int, where: str) -> tuple[float, ...] | None:
    """One number a text, 0 to 10 as GEQ, or the four grades of 0 to 2 that add up to it."""
    if grades is None:
        return None
    if not isinstance(grades, list) or len(grades) != n:
        raise _wrong(where, "`grades` has not one grade for each text", grades)
    found = [_quality(one) for one in grades]
    if any(one is None for one in found):
        expected = "a grade is neither a number from 0 to 10 nor four grades of 0, 1 or 2"
        raise _wrong(where, expected, grades)
    return tuple(one for one in found if one is not None)


def _quality(grade: Any) -> float | None:
    if isinstance(grade, list):
        fine = len(grade) == 4 and all(one in (0, 1, 2) for one in grade)
        return 10.0 * math.fsum(grade) / 8 if fine else None
    return float(grade) if _is_number(grade) and 0 <= grade <= 10 else None


def tasks_of(groups: Sequence[RatedGroup]) -> dict[str, list[int]]:
    """The places of each task's groups, in the order in which tasks first come."""
    found: dict[str, list[int]] = {}
    for place, one in enumerate(groups):
        found.setdefault(one.task, []).append(place)
    return found
