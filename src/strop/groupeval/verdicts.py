"""Where judgments come from: a series of a run directory, or a portable file.

Both become the same value, with what is known about profile, judge and plan. A name for either is
`PATH`, `RUN@SERIES` where a run has several series, and `...:CELL` where one cell is meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strop.errors import unknown_name
from strop.groupeval import portable
from strop.groupeval.cells import Cell, by_cell
from strop.groupeval.judgment import Failure, Judgment

__all__ = ["Planned", "Verdicts", "load"]


@dataclass(frozen=True)
class Planned:
    """What was asked about one cell."""

    outputs: int
    groups: int
    partitions: int


@dataclass(frozen=True)
class Verdicts:
    """Judgments with what they depend on."""

    source: str
    """The name under which the user knows them."""
    judgments: list[Judgment]
    failures: list[Failure]
    planned: dict[str, Planned]
    """By cell. From the plan, or from the file itself: each of its outputs once per partition."""
    from_plan: bool
    """Whether `planned` is the plan. A file cannot know of outputs that were never judged."""
    modes: bool
    """Whether the profile asks for modes; without them there is no GED."""
    profile: str | None = None
    """The profile's hash; None for a file, which does not carry it."""
    judge: dict[str, Any] | None = None
    """What was asked to judge; None for a file."""
    texts: Callable[[str], list[str]] | None = None
    """The outputs of a cell, where they are at hand."""

    @property
    def cells(self) -> dict[str, Cell]:
        """The cells with at least one accepted judgment, as arrays."""
        return by_cell(self.judgments)

    def only(self, cell: str) -> Verdicts:
        """The same for one cell."""
        if cell not in self.planned:
            raise unknown_name("cell", cell, self.planned, where=self.source)
        return replace(
            self,
            judgments=[one for one in self.judgments if one.cell == cell],
            failures=[one for one in self.failures if one.cell == cell],
            planned={cell: self.planned[cell]},
        )


def load(name: str) -> Verdicts:
    """The judgments that a command-line argument names."""
    path, cell = _split(name)
    where, at, series = path.rpartition("@")
    if Path(path).exists() or not at:
        where, series = path, ""
    found = _series(where, series or None) if Path(where).is_dir() else _file(path)
    return found if cell is None else found.only(cell)


def _split(name: str) -> tuple[str, str | None]:
    """A path may hold a colon: a whole name that exists is a path."""
    if Path(name).exists():
        return name, None
    path, colon, cell = name.partition(":")
    while colon:
        if Path(path).exists() or Path(path.rpartition("@")[0] or path).exists():
            return path, cell
        more, colon, cell = cell.partition(":")
        path = f"{path}:{more}"
    return name, None


def _file(path: str) -> Verdicts:
    judgments = portable.read(path)
    planned = {
        name: Planned(
            len(cell.outputs),
            -(-len(cell.outputs) // cell.size) * len(cell.partitions),
            len(cell.partitions),
        )
        for name, cell in by_cell(judgments).items()
    }
    return Verdicts(path, judgments, [], planned, False, portable.has_modes(judgments))


def _series(run: str, name: str | None) -> Verdicts:
    from strop.groupeval.series import Series

    series = Series.open(run, name)
    plan = series.plan
    groups: dict[str, list[tuple[int, int]]] = {cell: [] for cell in plan.cells}
    for one in plan.groups:
        groups[one.cell].append((one.partition, one.group))
    return Verdicts(
        source=run if name is None else f"{run}@{name}",
        judgments=series.judgments(),
        failures=series.failures(),
        planned={
            cell: Planned(plan.cells[cell], len(mine), len({partition for partition, _ in mine}))
            for cell, mine in groups.items()
        },
        from_plan=True,
        modes=bool(series.profile.modes),
        profile=series.profile.hash,
        judge=series.judge,
        texts=series.texts,
    )


def same_judge(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two series were judged by the same thing with the same settings."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
