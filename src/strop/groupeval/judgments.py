"""Where judgments come from: a series of a run directory, or a portable file.

Both become the same value, with what is known about profile, judge and plan. A name for either is
`PATH`, `RUN@SERIES` where a run has several series, and `...:CELL` where one cell is meant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from strop.errors import unknown_name
from strop.groupeval import portable
from strop.groupeval.scores import JudgedCell, PlannedGroups, by_cell
from strop.groupeval.verdict import Failure, GroupVerdict
from strop.spec import JudgeSpec

if TYPE_CHECKING:
    from strop.groupeval.series import Series


@dataclass(frozen=True)
class Judgments:
    """What a judge said of every group, verdicts and failures, with what they depend on."""

    source: str
    """The name under which the user knows them."""
    verdicts: list[GroupVerdict]
    failures: list[Failure]
    planned: dict[str, PlannedGroups]
    """By cell. From the plan, or from the file itself: each of its outputs once per partition."""
    from_plan: bool
    """Whether `planned` is the plan. A file cannot know of outputs that were never judged."""
    modes: bool
    """Whether the profile asks for modes; without them there is no GED."""
    profile: str | None = None
    """The profile's hash; None for a file, which does not carry it."""
    judge: JudgeSpec | None = None
    """Who was asked to judge; None for a file."""
    dimensions: tuple[str, ...] = ("dimension 1", "dimension 2", "dimension 3", "dimension 4")
    """What the four grades are called; a file does not say."""

    @cached_property
    def cells(self) -> dict[str, JudgedCell]:
        """The cells with at least one verdict, as arrays."""
        return by_cell(self.verdicts)

    @property
    def by_prompt(self) -> bool:
        """Whether groups are the answers to prompts, so that prompts are what is independent."""
        return any(one.prompt is not None for one in self.verdicts)

    def only(self, cell: str) -> Judgments:
        """The same for one cell."""
        if cell not in self.planned:
            raise unknown_name("cell", cell, self.planned, where=self.source)
        return replace(
            self,
            verdicts=[one for one in self.verdicts if one.cell == cell],
            failures=[one for one in self.failures if one.cell == cell],
            planned={cell: self.planned[cell]},
        )


def load_judgments(name: str) -> Judgments:
    """The judgments that a name means: a run, one of its series, a file, one cell of either."""
    path, cell = _split(name)
    where = path.rpartition("@")[0] or path
    is_run = Path(path).is_dir() or (Path(where).is_dir() and not Path(path).exists())
    found = _series(path) if is_run else _file(path)
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


def _file(path: str) -> Judgments:
    verdicts = portable.read(path)
    planned = {name: _judged_once(cell) for name, cell in by_cell(verdicts).items()}
    return Judgments(path, verdicts, [], planned, False, portable.has_modes(verdicts))


def _judged_once(cell: JudgedCell) -> PlannedGroups:
    """What was asked, as far as a file tells: each of its outputs once in each partition."""
    partitions = len(cell.partitions)
    if cell.verdicts[0].prompt is not None:
        return PlannedGroups(len(cell.outputs), len(cell.verdicts), partitions)
    return PlannedGroups(
        len(cell.outputs), -(-len(cell.outputs) // cell.size) * partitions, partitions
    )


def open_series(run: str, name: str | None = None) -> Series:
    """A series of a run; `RUN@SERIES` names it as well as `name` does."""
    from strop.groupeval.series import Series

    where = where_is(run)
    return Series.open(where, name or run[len(where) + 1 :] or None)


def where_is(source: str) -> str:
    """The run directory or the file that `Judgments.source` lies in."""
    where = source.rpartition("@")[0]
    return source if Path(source).exists() or not where else where


def _series(run: str) -> Judgments:
    series = open_series(run)
    plan = series.plan
    groups: dict[str, list[tuple[int, int]]] = {cell: [] for cell in plan.cells}
    for one in plan.groups:
        groups[one.cell].append((one.partition, one.group))
    return Judgments(
        source=run,
        verdicts=series.verdicts(),
        failures=series.failures(),
        planned={
            cell: PlannedGroups(
                plan.cells[cell], len(mine), len({partition for partition, _ in mine})
            )
            for cell, mine in groups.items()
        },
        from_plan=True,
        modes=bool(series.profile.modes),
        profile=series.profile.hash,
        judge=series.judge,
        dimensions=series.profile.dimensions,
    )
