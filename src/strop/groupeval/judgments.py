"""Where judgments come from: a series of a run directory, or a portable file.

Both become the same value, with what is known about profile, judge and plan. A name for either is
`PATH`, `RUN@SERIES` where a run has several series, and `...:CELL` where one cell is meant.

A portable file is for exchange and for scoring again, one JSON object a line:

    {"cell": "name", "partition": 0, "group": 3, "confidence": "high", "outputs": [
        {"index": 17, "valid": true, "scores": [2, 1, 1, 2], "mode": "a", "hybrid": false}, ...]}

The rules that no schema can say are checked here as well, so that a number never rests on a line
that contradicts itself. Every complaint names the line and the field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Len
from pydantic import BaseModel, Field, NonNegativeInt, model_validator

from strop.errors import UserError, unknown_name
from strop.groupeval.profile import EXACT, JsonLine, formed, parse_lines, read_lines
from strop.groupeval.scores import JudgedCell, PlannedGroups, by_cell
from strop.groupeval.verdict import Confidence, Failure, Grade, GroupVerdict
from strop.spec.value import JudgeSpec

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
        return any(verdict.prompt is not None for verdict in self.verdicts)

    def only(self, cell: str) -> Judgments:
        """The same for one cell."""
        if cell not in self.planned:
            raise unknown_name("cell", cell, self.planned, where=self.source)
        return replace(
            self,
            verdicts=[verdict for verdict in self.verdicts if verdict.cell == cell],
            failures=[failure for failure in self.failures if failure.cell == cell],
            planned={cell: self.planned[cell]},
        )


def load_judgments(name: str) -> Judgments:
    """The judgments that a name means: a run, one of its series, a file, one cell of either."""
    path, cell = _split(name)
    where = path.rpartition("@")[0] or path
    is_run = Path(path).is_dir() or (Path(where).is_dir() and not Path(path).exists())
    judgments = _series(path) if is_run else _file(path)
    return judgments if cell is None else judgments.only(cell)


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
    verdicts = read_portable(path)
    planned = {name: _judged_once(cell) for name, cell in by_cell(verdicts).items()}
    return Judgments(path, verdicts, [], planned, False, has_modes(verdicts))


def _judged_once(cell: JudgedCell) -> PlannedGroups:
    """What was asked, as far as a file tells: each of its outputs once in each partition."""
    outputs, partitions = len(cell.outputs), len(cell.partitions)
    prompted = cell.verdicts[0].prompt is not None
    groups = len(cell.verdicts) if prompted else -(-outputs // cell.size) * partitions
    return PlannedGroups(outputs, groups, partitions)


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
    partitions: dict[str, list[int]] = {cell: [] for cell in plan.cells}
    for group in plan.groups:
        partitions[group.cell].append(group.partition)
    return Judgments(
        source=run,
        verdicts=series.verdicts(),
        failures=series.failures(),
        planned={
            cell: PlannedGroups(plan.cells[cell], len(of_groups), len(set(of_groups)))
            for cell, of_groups in partitions.items()
        },
        from_plan=True,
        modes=bool(series.profile.modes),
        profile=series.profile.hash,
        judge=series.judge,
        dimensions=series.profile.dimensions,
    )


def check_alike(a: Judgments, b: Judgments, *, judges: bool = True) -> None:
    """Refuse numbers of different kinds; `judges` off where judges are what is compared."""
    if a.profile and b.profile and a.profile != b.profile:
        raise _mismatch("profiles", a.profile[:16], b.profile[:16], a, b)
    if judges and a.judge and b.judge and a.judge != b.judge:
        raise _mismatch("judges", a.judge.title, b.judge.title, a, b)
    if a.verdicts and b.verdicts and a.by_prompt != b.by_prompt:
        left, right = ("answers to prompts" if v.by_prompt else "no prompts" for v in (a, b))
        raise _mismatch("profiles", left, right, a, b)
    if a.modes != b.modes:
        left, right = ("with modes" if v.modes else "without modes" for v in (a, b))
        raise _mismatch("profiles", left, right, a, b)


def unchecked(a: Judgments, b: Judgments) -> list[str]:
    """What could not be compared because a file does not carry it."""
    if a.source == b.source:
        return []
    return [name for name in ("profile", "judge") if None in (getattr(a, name), getattr(b, name))]


def _mismatch(what: str, left: str, right: str, a: Judgments, b: Judgments) -> UserError:
    return UserError(
        f"The {what} differ, so the numbers are different quantities.",
        where=f"{a.source} and {b.source}",
        got=f"{left} and {right}",
        expected=f"one of the {what} on both sides",
        fix="judge both sides in one plan with one judge"
        if what == "profiles"
        else "strop groupeval agree says how far two judges agree",
    )


# ---------------------------------------------------------------- portable files

DIMENSIONS = 4
"""How many dimensions every profile has."""

BEST = 2
"""The best grade of a dimension."""


class _Output(BaseModel):
    model_config = EXACT
    index: NonNegativeInt
    valid: bool
    scores: Annotated[list[Annotated[int, Field(ge=0, le=BEST)]], Len(DIMENSIONS, DIMENSIONS)]
    mode: Annotated[str, Len(1)] | None
    hybrid: bool = False

    @model_validator(mode="after")
    def _agrees(self) -> _Output:
        if not self.valid and any(self.scores):
            raise ValueError("an invalid output has scores")
        if not self.valid and self.mode is not None:
            raise ValueError("an invalid output has a mode")
        if self.hybrid and self.mode is None:
            raise ValueError("an output without a mode is called hybrid")
        return self


class _Line(BaseModel):
    model_config = EXACT
    cell: Annotated[str, Len(1)]
    partition: NonNegativeInt
    group: NonNegativeInt
    outputs: Annotated[list[_Output], Len(1)]
    confidence: Confidence
    prompt: str | None = None

    def verdict(self) -> GroupVerdict:
        grades = (
            Grade(**{**vars(output), "scores": tuple(output.scores)}) for output in self.outputs
        )
        return GroupVerdict(**{**vars(self), "outputs": tuple(grades)})


EXPECTED = (
    '{"cell": ..., "partition": ..., "group": ..., "outputs": [{"index": ..., "valid": ..., '
    '"scores": [...], "mode": ...}, ...], "confidence": ...} on every line'
)


def read_portable(path: str | Path) -> list[GroupVerdict]:
    """All verdicts of a file, in its order."""
    return _verdicts(read_lines(path, EXPECTED), path)


def parse_portable(content: str, source: str) -> list[GroupVerdict]:
    """All verdicts of a text; `source` is what the complaints call it."""
    return _verdicts(parse_lines(content.encode(), source, EXPECTED), source)


def _verdicts(rows: list[JsonLine], source: str | Path) -> list[GroupVerdict]:
    what = "A judgment cannot be used"
    verdicts = [formed(_Line, row, where, what, EXPECTED).verdict() for row, where in rows]
    if not verdicts:
        raise UserError("The file holds no judgment.", where=source, expected=EXPECTED)
    check_set(verdicts, [where for _, where in rows])
    return verdicts


def portable_text(verdicts: Iterable[GroupVerdict]) -> str:
    """The same verdicts as the file that `read_portable` reads."""
    lines = [
        json.dumps(verdict.portable(), ensure_ascii=False, allow_nan=False) for verdict in verdicts
    ]
    return "".join(line + "\n" for line in lines)


def has_modes(verdicts: Iterable[GroupVerdict]) -> bool:
    """Whether these verdicts are of a profile with modes.

    They are not if there are valid outputs and none of them has a mode. Where no output is valid
    nothing tells, and the size of the groups decides: an output alone has no mode.
    """
    verdicts = list(verdicts)
    valid = [output for verdict in verdicts for output in verdict.outputs if output.valid]
    if valid:
        return any(output.mode is not None for output in valid)
    return all(len(verdict.outputs) > 1 for verdict in verdicts)


def check_set(verdicts: list[GroupVerdict], lines: list[str]) -> None:
    """What must hold between verdicts; `places` says where each of them stands."""
    modes = has_modes(verdicts)
    _check_prompts(verdicts, lines)
    sizes: dict[str, tuple[int, str]] = {}
    groups: dict[tuple[str, int, int], str] = {}
    outputs: dict[tuple[str, int, int], str] = {}
    for verdict, line in zip(verdicts, lines, strict=True):
        key = (verdict.cell, verdict.partition, verdict.group)
        if key in groups:
            raise UserError(
                "A group is judged twice.",
                where=f"{line}, group",
                got=f"cell {key[0]!r}, partition {key[1]}, group {key[2]}, also in {groups[key]}",
                expected="one judgment for each cell, partition and group",
                fix="keep one of the two lines; repeated judgments belong to files of their own",
            )
        groups[key] = line
        size, first = sizes.setdefault(verdict.cell, (len(verdict.outputs), line))
        if size != len(verdict.outputs) and verdict.prompt is None:
            raise UserError(
                "The groups of one cell have different sizes.",
                where=f"{line}, outputs",
                got=f"{len(verdict.outputs)} outputs; {size} in {first}",
                expected="one group size: GED depends on it",
            )
        if modes and len(verdict.outputs) < 2:
            raise UserError(
                "A group of one output cannot have modes.",
                where=f"{line}, outputs",
                got="one output",
                expected="two outputs or more, or null for all modes",
            )
        for position, output in enumerate(verdict.outputs):
            field = f"outputs[{position}]"
            place_of_output = (verdict.cell, verdict.partition, output.index)
            if place_of_output in outputs:
                raise UserError(
                    "An output appears twice in one partition.",
                    where=f"{line}, {field}.index",
                    got=f"index {output.index}, also in {outputs[place_of_output]}",
                    expected="each output at most once in a partition",
                )
            outputs[place_of_output] = line
            if output.valid and modes and output.mode is None:
                raise UserError(
                    "A valid output has no mode.",
                    where=f"{line}, {field}.mode",
                    got="null",
                    expected="the name of its mode, as other outputs of this file have one",
                )


def _check_prompts(verdicts: list[GroupVerdict], lines: list[str]) -> None:
    """All groups are answers to prompts, each prompt once a cell; or none is."""
    seen: dict[tuple[str, str | None], str] = {}
    for verdict, line in zip(verdicts, lines, strict=True):
        if (verdict.prompt is None) != (verdicts[0].prompt is None):
            raise UserError(
                "Some groups have a prompt and some have none.", where=f"{line}, prompt"
            )
        key = (verdict.cell, verdict.prompt)
        if verdict.prompt is not None and key in seen:
            raise UserError(
                "A prompt has two groups of one cell.",
                where=f"{line}, prompt",
                got=f"{verdict.prompt[:60]!r}, also in {seen[key]}",
            )
        seen[key] = line
