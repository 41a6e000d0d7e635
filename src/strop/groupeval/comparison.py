"""Two generators against each other.

A difference with an interval for GEQ, without one for GED. It means something only if profile,
judge and group size are the same on both sides. That its interval excludes zero is said only where
both sides have a few outputs above zero (`FLOOR`).
"""

from __future__ import annotations

import contextlib
from typing import Any

from strop.errors import UserError
from strop.groupeval.bootstrap import FLOOR, geq_of, mind
from strop.groupeval.by_prompt import compare_by_prompt
from strop.groupeval.judgments import Judgments
from strop.groupeval.scores import JudgedCell, factors, ged


def compare(a: Judgments, b: Judgments) -> dict[str, Any]:
    """B minus A, for the one cell of each, or for every cell that both have by name."""
    check_alike(a, b)
    cells = a.cells, b.cells
    rows = [
        _row(a, b, _cell(a, cells[0], left), _cell(b, cells[1], right))
        for left, right in _pairs(a, b)
    ]
    return {
        "a": a.source,
        "b": b.source,
        "difference": "b minus a",
        "unchecked": unchecked(a, b),
        "pairs": rows,
    }


def against_first(judgments: Judgments) -> list[dict[str, Any]]:
    """Every other cell minus the first one that has verdicts; what cannot be compared is absent."""
    rows: list[dict[str, Any]] = []
    known = judgments.cells
    cells = [known[name] for name in judgments.planned if name in known]
    for other in cells[1:]:
        with contextlib.suppress(UserError):  # another group size, or no prompt in common
            rows.append(_row(judgments, judgments, cells[0], other))
    return rows


def _row(a: Judgments, b: Judgments, left: JudgedCell, right: JudgedCell) -> dict[str, Any]:
    return {
        "cell_a": left.name,
        "cell_b": right.name,
        **(compare_by_prompt(left, right) if a.by_prompt else _apart(left, right, a.modes)),
        "n_outputs_a": len(left.outputs),
        "n_outputs_b": len(right.outputs),
        "n_outputs_above_0_a": left.nonzero,
        "n_outputs_above_0_b": right.nonzero,
        "n_groups_a": len(left.verdicts),
        "n_groups_asked_a": a.planned[left.name].groups,
        "n_groups_b": len(right.verdicts),
        "n_groups_asked_b": b.planned[right.name].groups,
    }


def _apart(left: JudgedCell, right: JudgedCell, modes: bool) -> dict[str, Any]:
    """B minus A: their outputs are not paired, and no group holds both."""
    _check_sizes(left, right)
    between = (geq_of(right) - geq_of(left)).interval()
    enough = min(left.nonzero, right.nonzero) >= FLOOR
    return {
        "geq_a": left.geq(),
        "geq_b": right.geq(),
        "geq_difference": between,
        "geq_interval_excludes_zero": enough and between.excludes(0),
        "geq_interval_mind": mind(left, right),
        "ged_a": ged(left) if modes else None,
        "ged_b": ged(right) if modes else None,
        "ged_difference": ged(right) - ged(left) if modes else None,
        **{
            f"{name}_{side}": value
            for side, cell in (("a", left), ("b", right))
            for name, value in factors(cell.verdicts, modes=modes).items()
        },
    }


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


def _pairs(a: Judgments, b: Judgments) -> list[tuple[str, str]]:
    if len(a.planned) == len(b.planned) == 1:
        pairs = [(next(iter(a.planned)), next(iter(b.planned)))]
    else:
        pairs = [(name, name) for name in a.planned if name in b.planned]
    if a.source == b.source and any(one == other for one, other in pairs):
        raise UserError(
            "Both sides are the same.",
            where=a.source,
            got=", ".join(one for one, _ in pairs[:3]),
            fix="name two cells: " + " ".join(f"{a.source}:{name}" for name in list(a.planned)[:2]),
        )
    if not pairs:
        raise UserError(
            "The two have no cell in common.",
            got=f"{_listed(a)} in {a.source}; {_listed(b)} in {b.source}",
            expected="cells of the same names, or one cell on each side",
            fix="name the cells, such as RUN:CELL",
        )
    return pairs


def _cell(judgments: Judgments, cells: dict[str, JudgedCell], name: str) -> JudgedCell:
    if name not in cells:
        raise UserError(
            "A cell has no accepted judgment.",
            where=f"{judgments.source}:{name}",
            got=f"0 of {judgments.planned[name].groups} groups",
            fix="judge it first; strop groupeval show says what failed",
        )
    return cells[name]


def _check_sizes(a: JudgedCell, b: JudgedCell) -> None:
    if a.size != b.size:
        raise UserError(
            "The group sizes differ.",
            got=f"{a.size} outputs per group in {a.name!r}, {b.size} in {b.name!r}",
            expected="one size: GED depends on it, and a judge grades a text among its neighbours",
        )


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


def _listed(judgments: Judgments) -> str:
    return ", ".join(list(judgments.planned)[:5])
