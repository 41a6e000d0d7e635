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
from typing import TYPE_CHECKING, Any

from strop.errors import UserError, unknown_name
from strop.groupeval.scores import JudgedCell, PlannedGroups, by_cell
from strop.groupeval.verdict import CONFIDENCES, Failure, Grade, GroupVerdict, no_repeats
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
    verdicts = read_portable(path)
    planned = {name: _judged_once(cell) for name, cell in by_cell(verdicts).items()}
    return Judgments(path, verdicts, [], planned, False, has_modes(verdicts))


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


def check_alike(a: Judgments, b: Judgments, *, judges: bool = True) -> None:
    """Refuse numbers of different kinds; `judges` off where judges are what is compared."""
    if a.profile and b.profile and a.profile != b.profile:
        raise _unlike("profiles", a.profile[:16], b.profile[:16], a, b)
    if judges and a.judge and b.judge and a.judge != b.judge:
        raise _unlike("judges", a.judge.title, b.judge.title, a, b)
    if a.verdicts and b.verdicts and a.by_prompt != b.by_prompt:
        one, other = ("answers to prompts" if v.by_prompt else "no prompts" for v in (a, b))
        raise _unlike("profiles", one, other, a, b)
    if a.modes != b.modes:
        one, other = ("with modes" if v.modes else "without modes" for v in (a, b))
        raise _unlike("profiles", one, other, a, b)


def unchecked(a: Judgments, b: Judgments) -> list[str]:
    """What could not be compared because a file does not carry it."""
    if a.source == b.source:
        return []
    facts = {"profile": (a.profile, b.profile), "judge": (a.judge, b.judge)}
    return [name for name, pair in facts.items() if None in pair]


def _unlike(what: str, one: str, other: str, a: Judgments, b: Judgments) -> UserError:
    return UserError(
        f"The {what} differ, so the numbers are different quantities.",
        where=f"{a.source} and {b.source}",
        got=f"{one} and {other}",
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


class _Wrong(Exception):
    """A rule that a line breaks: the field, what it says, what it should say."""

    def __init__(self, field: str, what: str, got: Any = None, expected: str | None = None) -> None:
        super().__init__(what)
        self.field, self.what, self.got, self.expected = field, what, got, expected

    def told(self, where: str) -> UserError:
        got = None if self.got is None else _short(self.got)
        return UserError(self.what, where=f"{where}, {self.field}", got=got, expected=self.expected)


def read_portable(path: str | Path) -> list[GroupVerdict]:
    """All verdicts of a file, in its order."""
    path = Path(path)
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(
            "There is no such file.",
            where=path,
            expected="a run directory, or a .jsonl file of portable judgments",
        ) from None
    except IsADirectoryError:
        raise UserError("This is a directory, not a file of judgments.", where=path) from None
    except UnicodeDecodeError as error:
        raise UserError(
            "The file is not UTF-8 text.", where=path, got=f"byte {error.start} cannot be read"
        ) from None
    except OSError as error:
        raise UserError("The file cannot be read.", where=path, got=error.strerror) from None
    return parse_portable(content, str(path))


def parse_portable(content: str, source: str) -> list[GroupVerdict]:
    """All verdicts of a text; `source` is what the complaints call it."""
    verdicts: list[GroupVerdict] = []
    places: list[str] = []
    # Not splitlines: a text line ends at a line feed, and JSON may hold any other separator.
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            places.append(f"{source}, line {number}")
            try:
                verdicts.append(_verdict(_document(line)))
            except _Wrong as wrong:
                raise wrong.told(places[-1]) from None
    if not verdicts:
        raise UserError(
            "The file holds no judgment.",
            where=source,
            got="an empty file",
            expected='one JSON object a line, {"cell": ..., "partition": ..., "group": ..., '
            '"outputs": [...], "confidence": ...}',
        )
    check_set(verdicts, places)
    return verdicts


def portable_text(verdicts: Iterable[GroupVerdict]) -> str:
    """The same verdicts as the file that `read_portable` reads."""
    lines = [json.dumps(one.portable(), ensure_ascii=False, allow_nan=False) for one in verdicts]
    return "".join(line + "\n" for line in lines)


def has_modes(verdicts: Iterable[GroupVerdict]) -> bool:
    """Whether these verdicts are of a profile with modes.

    They are not if there are valid outputs and none of them has a mode. Where no output is valid
    nothing tells, and the size of the groups decides: an output alone has no mode.
    """
    verdicts = list(verdicts)
    valid = [one for verdict in verdicts for one in verdict.outputs if one.valid]
    if valid:
        return any(one.mode is not None for one in valid)
    return all(len(verdict.outputs) > 1 for verdict in verdicts)


def check_set(verdicts: list[GroupVerdict], places: list[str]) -> None:
    """What must hold between verdicts; `places` says where each of them stands."""
    modes = has_modes(verdicts)
    _check_prompts(verdicts, places)
    sizes: dict[str, tuple[int, str]] = {}
    groups: dict[tuple[str, int, int], str] = {}
    outputs: dict[tuple[str, int, int], str] = {}
    for verdict, place in zip(verdicts, places, strict=True):
        key = (verdict.cell, verdict.partition, verdict.group)
        if key in groups:
            raise UserError(
                "A group is judged twice.",
                where=f"{place}, group",
                got=f"cell {_short(key[0])}, partition {key[1]}, group {key[2]}, also in "
                f"{groups[key]}",
                expected="one judgment for each cell, partition and group",
                fix="keep one of the two lines; repeated judgments belong to files of their own",
            )
        groups[key] = place
        size, first = sizes.setdefault(verdict.cell, (len(verdict.outputs), place))
        if size != len(verdict.outputs) and verdict.prompt is None:
            raise UserError(
                "The groups of one cell have different sizes.",
                where=f"{place}, outputs",
                got=f"{len(verdict.outputs)} outputs; {size} in {first}",
                expected="one group size: GED depends on it",
            )
        if modes and len(verdict.outputs) < 2:
            raise UserError(
                "A group of one output cannot have modes.",
                where=f"{place}, outputs",
                got="one output",
                expected="two outputs or more, or null for all modes",
            )
        for position, one in enumerate(verdict.outputs):
            field = f"outputs[{position}]"
            place_of_output = (verdict.cell, verdict.partition, one.index)
            if place_of_output in outputs:
                raise UserError(
                    "An output stands in two groups of one partition.",
                    where=f"{place}, {field}.index",
                    got=f"index {one.index}, also in {outputs[place_of_output]}",
                    expected="each output at most once in a partition",
                )
            outputs[place_of_output] = place
            if one.valid and modes and one.mode is None:
                raise UserError(
                    "A valid output has no mode.",
                    where=f"{place}, {field}.mode",
                    got="null",
                    expected="the name of its mode, as other outputs of this file have one",
                )


def _check_prompts(verdicts: list[GroupVerdict], places: list[str]) -> None:
    """All groups are answers to prompts, each prompt once a cell; or none is."""
    seen: dict[tuple[str, str | None], str] = {}
    for verdict, place in zip(verdicts, places, strict=True):
        if (verdict.prompt is None) != (verdicts[0].prompt is None):
            raise UserError(
                "Some groups have a prompt and some have none.", where=f"{place}, prompt"
            )
        key = (verdict.cell, verdict.prompt)
        if verdict.prompt is not None and key in seen:
            raise UserError(
                "A prompt has two groups of one cell.",
                where=f"{place}, prompt",
                got=f"{_short(verdict.prompt)}, also in {seen[key]}",
            )
        seen[key] = place


def _document(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line, parse_constant=_constant, object_pairs_hook=no_repeats)
    except (ValueError, RecursionError) as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise _Wrong("the line", "The line is not JSON.", got=f"{line[:60]!r}: {reason}") from None
    if not isinstance(document, dict):
        raise _Wrong("the line", "The line is not a JSON object.", got=document)
    return document


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON value")


def _verdict(document: dict[str, Any]) -> GroupVerdict:
    cell = _get(document, "cell")
    if not isinstance(cell, str) or not cell:
        raise _Wrong("cell", "A cell has no name.", got=cell, expected="a text")
    outputs = _get(document, "outputs")
    if not isinstance(outputs, list) or not outputs:
        raise _Wrong("outputs", "A group is no list of outputs.", outputs, "a list of outputs")
    confidence = _get(document, "confidence")
    if confidence not in CONFIDENCES:
        raise _Wrong(
            "confidence",
            "The confidence is unknown.",
            confidence,
            "one of " + ", ".join(CONFIDENCES),
        )
    grades = tuple(_grade(one, f"outputs[{i}]") for i, one in enumerate(outputs))
    seen: set[int] = set()
    for position, grade in enumerate(grades):
        if grade.index in seen:
            field = f"outputs[{position}].index"
            raise _Wrong(field, "An output stands in its group twice.", grade.index)
        seen.add(grade.index)
    partition, group = _count(document, "partition"), _count(document, "group")
    prompt = document.get("prompt")
    if prompt is not None and not isinstance(prompt, str):
        raise _Wrong("prompt", "The prompt is no text.", prompt, "a text, or nothing")
    return GroupVerdict(cell, partition, group, grades, confidence, prompt)


def _grade(document: Any, field: str) -> Grade:
    if not isinstance(document, dict):
        raise _Wrong(field, "An output is no JSON object.", document)
    index, valid = _count(document, "index", field), _truth(document, "valid", field)
    scores = _get(document, "scores", field)
    if not isinstance(scores, list) or len(scores) != DIMENSIONS or not all(map(_is_grade, scores)):
        expected = f"{DIMENSIONS} whole numbers, each 0, 1 or {BEST}"
        raise _Wrong(f"{field}.scores", "The scores are not grades.", scores, expected)
    mode = _get(document, "mode", field)
    if mode is not None and (not isinstance(mode, str) or not mode):
        raise _Wrong(f"{field}.mode", "The mode is no name.", mode, "a text, or null")
    hybrid = _truth(document, "hybrid", field) if "hybrid" in document else False
    if not valid and any(scores):
        raise _Wrong(f"{field}.scores", "An invalid output has scores.", scores, "all zero")
    if not valid and mode is not None:
        raise _Wrong(f"{field}.mode", "An invalid output has a mode.", mode, "null")
    if hybrid and mode is None:
        raise _Wrong(f"{field}.hybrid", "An output without a mode is called hybrid.", True, "false")
    return Grade(index, valid, tuple(scores), mode, hybrid)


def _is_grade(value: Any) -> bool:
    return type(value) is int and 0 <= value <= BEST  # a bool is an int in Python


def _get(document: dict[str, Any], name: str, owner: str | None = None) -> Any:
    if name not in document:
        keys = ", ".join(sorted(map(str, document))) or "no key"
        field = f"{owner}.{name}" if owner else name
        raise _Wrong(field, f"The field {name!r} is missing.", got=f"only {keys}")
    return document[name]


def _count(document: dict[str, Any], name: str, owner: str | None = None) -> int:
    value = _get(document, name, owner)
    if type(value) is not int or value < 0:
        field = f"{owner}.{name}" if owner else name
        raise _Wrong(field, f"The {name} is no count.", value, "a whole number of at least 0")
    return value


def _truth(document: dict[str, Any], name: str, owner: str) -> bool:
    value = _get(document, name, owner)
    if type(value) is not bool:
        raise _Wrong(f"{owner}.{name}", f"{name!r} is neither true nor false.", value)
    return value


def _short(value: Any) -> str:
    shown = value if isinstance(value, str) and value.startswith("only ") else json.dumps(value)
    return shown if len(shown) <= 160 else shown[:157] + "..."
