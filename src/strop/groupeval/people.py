"""Groups of texts that people rated: those that ship, and a user's own.

One group is one JSON object a line; `texts` and one of `score`, `label`, `modes`, `grades` are
needed, and every other field that holds a number is a column that can be compared with people too:

    {"texts": ["...", "..."], "context": "...", "task": "story", "score": 3.2, "label": "high",
     "modes": ["a", "b"], "grades": [7.5, 5]}

What ships is conTest and decTest of Tevet and Berant (assets/human-groups/README.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Len
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from strop.assets import ROOT
from strop.errors import UserError
from strop.groupeval.lines import EXACT, formed, read_lines

SHIPPED = ROOT / "human-groups" / "groups.parquet"
SIZES = (2, 16)
"""Texts of a group under answers-v1."""
TOLD = ("score", "label", "modes", "grades")
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
    from strop.store.folder import parquet_file

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


def _quality(grade: Any) -> Any:
    """GEQ's scale for four grades of 0, 1 or 2."""
    four = isinstance(grade, list) and len(grade) == 4 and all(one in (0, 1, 2) for one in grade)
    return 10 * sum(grade) / 8 if four else grade


# A number names a context or a task as well.
Name = Annotated[
    str | None, BeforeValidator(lambda one: str(one) if type(one) in (int, float) else one)
]
Label = Annotated[
    Literal["low", "high"] | None,
    BeforeValidator(lambda one: one.lower() if isinstance(one, str) else one),
]
Quality = Annotated[float, Field(ge=0, le=10), BeforeValidator(_quality)]
Mode = Annotated[str | None, BeforeValidator(lambda one: str(one) if type(one) is int else one)]


class _Rated(BaseModel):
    """A line of a user's file."""

    model_config = EXACT
    texts: Annotated[list[str], Len(*SIZES)]
    context: Name = None
    task: Name = None
    score: float | None = None
    label: Label = None
    modes: list[Mode] | None = None
    grades: list[Quality] | None = None

    @model_validator(mode="after")
    def _whole(self) -> _Rated:
        if all(getattr(self, name) is None for name in TOLD):
            raise ValueError("nobody rated it: there is no score, label, modes or grades")
        for name in ("modes", "grades"):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.texts):
                raise ValueError(f"`{name}` has not one for each text")
        return self


def read_groups(path: str | Path, limit: int | None = None) -> list[RatedGroup]:
    """A user's groups; one message says what is wrong with the file."""
    groups = [_group(row, where) for row, where in read_lines(path, EXPECTED)]
    if not groups:
        raise UserError(
            "The file holds no rated group.", where=path, got="an empty file", expected=EXPECTED
        )
    return _limited(groups, limit)


def _group(row: dict[str, Any], where: str) -> RatedGroup:
    one = formed(_Rated, row, where, "A rated group cannot be used", EXPECTED)
    numbers = {k: v for k, v in row.items() if k not in TOLD and type(v) in (int, float)}
    return RatedGroup(
        tuple(one.texts),
        one.context,
        one.task or ALL,
        one.score,
        None if one.label is None else one.label == "high",
        None if one.modes is None else tuple(one.modes),
        None if one.grades is None else tuple(one.grades),
        {name: float(value) for name, value in numbers.items() if math.isfinite(value)},
    )


def tasks_of(groups: Sequence[RatedGroup]) -> dict[str, list[int]]:
    """The places of each task's groups, in the order in which tasks first come."""
    found: dict[str, list[int]] = {}
    for place, one in enumerate(groups):
        found.setdefault(one.task, []).append(place)
    return found
