"""Two generators against each other, and against success that was checked elsewhere.

`compare`: a difference with an interval for GEQ, without one for GED. A difference means something
only if profile, judge and group size are the same on both sides. That its interval excludes zero is
said only where both sides have a few outputs above zero (`FLOOR`).

`conditional`: does the judge see what works? Two generators answer the same prompts; every response
has a quality and a label, passed or not.

- AUROC: the chance that a response that passed has the higher quality, ties counting half.
- Discordant pairs: prompts where exactly one response passed, and how much higher that one scores.
- Intervals: bootstrap over prompts (10,000 draws with replacement), because the two responses to
  one prompt belong together. They hold given one verdict on each pair.

"Apparent success" is a dimension of the rubric, so this checks a criterion; it is no proof that
people would prefer the same responses.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.groupeval.bootstrap import (
    FLOOR,
    REPLICATES,
    interval,
    mind,
    partition_weights,
    replicate,
)
from strop.groupeval.judgments import Judgments
from strop.groupeval.scores import Cell, ged
from strop.rng import derive_seed

__all__ = ["Labelled", "check_alike", "compare", "conditional", "label", "read_labels", "unchecked"]


def compare(
    a: Judgments, b: Judgments, *, replicates: int = REPLICATES, seed: int = 0
) -> dict[str, Any]:
    """B minus A, for the one cell of each, or for every cell that both have by name."""
    check_alike(a, b)
    pairs = _pairs(a, b)
    cells = a.cells, b.cells
    everywhere = [p for side in cells for cell in side.values() for p in cell.partitions]
    shared = partition_weights(everywhere, replicates, seed)
    rows = []
    for names in pairs:
        left, right = _cell(a, cells[0], names[0]), _cell(b, cells[1], names[1])
        _check_sizes(left, right)
        drawn = [
            # The side belongs to the name of the stream: outputs of A and B are not paired.
            replicate(cell, shared, seed=seed, modes=False, setting=f"{side}:{cell.name}").geq
            for side, cell in (("a", left), ("b", right))
        ]
        between = interval(drawn[1] - drawn[0])
        enough = min(left.nonzero, right.nonzero) >= FLOOR
        rows.append(
            {
                "cell_a": names[0],
                "cell_b": names[1],
                "geq_a": left.geq(),
                "geq_b": right.geq(),
                "geq_difference": right.geq() - left.geq(),
                "geq_interval": between,
                "geq_interval_excludes_zero": enough and (between[0] > 0 or between[1] < 0),
                "geq_interval_mind": mind(left, right),
                "ged_a": ged(left) if a.modes else None,
                "ged_b": ged(right) if a.modes else None,
                "ged_difference": ged(right) - ged(left) if a.modes else None,
                "n_outputs_a": len(left.outputs),
                "n_outputs_b": len(right.outputs),
                "n_outputs_above_0_a": left.nonzero,
                "n_outputs_above_0_b": right.nonzero,
                "n_groups_a": len(left.verdicts),
                "n_groups_asked_a": a.planned[names[0]].groups,
                "n_groups_b": len(right.verdicts),
                "n_groups_asked_b": b.planned[names[1]].groups,
            }
        )
    return {
        "a": a.source,
        "b": b.source,
        "difference": "b minus a",
        "unchecked": unchecked(a, b),
        "replicates": replicates,
        "seed": seed,
        "pairs": rows,
    }


def check_alike(a: Judgments, b: Judgments, *, judges: bool = True) -> None:
    """Refuse numbers of different kinds; `judges` off where judges are what is compared."""
    if a.profile and b.profile and a.profile != b.profile:
        raise _unlike("profiles", a.profile[:16], b.profile[:16], a, b)
    if judges and a.judge and b.judge and a.judge != b.judge:
        raise _unlike("judges", a.judge.title, b.judge.title, a, b)
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


def _cell(judgments: Judgments, cells: dict[str, Cell], name: str) -> Cell:
    if name not in cells:
        raise UserError(
            "A cell has no accepted judgment.",
            where=f"{judgments.source}:{name}",
            got=f"0 of {judgments.planned[name].groups} groups",
            fix="judge it first; strop groupeval show says what failed",
        )
    return cells[name]


def _check_sizes(a: Cell, b: Cell) -> None:
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


Floats = NDArray[np.float64]
CHUNK = 1000
"""Replicates at a time."""


@dataclass(frozen=True)
class Labelled:
    """Prompts that both generators answered, with quality and success of each response."""

    names: tuple[str, str]
    quality: Floats
    """`[prompts, 2]`"""
    passed: NDArray[np.bool_]
    """`[prompts, 2]`"""


def read_labels(path: str | Path) -> dict[tuple[str, int], bool]:
    """Success by cell and index, from lines `{"cell": ..., "index": ..., "success": true}`."""
    expected = '{"cell": "name", "index": 0, "success": true}'
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("The labels cannot be read.", where=path, got=error) from None
    labels: dict[tuple[str, int], bool] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
            cell, index, success = (document[key] for key in ("cell", "index", "success"))
        except (ValueError, KeyError, TypeError, RecursionError):
            cell = index = success = None
        if type(cell) is not str or type(index) is not int or type(success) is not bool:
            raise UserError(
                "A label cannot be read.",
                where=f"{path}, line {number}",
                got=line[:120],
                expected=expected,
            )
        if labels.setdefault((cell, index), success) != success:
            raise UserError(
                "A response has two labels.", where=f"{path}, line {number}", got=line[:120]
            )
    if not labels:
        raise UserError("The file holds no label.", where=path, expected=expected)
    return labels


def label(judgments: Judgments, labels: dict[tuple[str, int], bool]) -> Labelled:
    """Put labels to the judged responses; every judged prompt needs both."""
    cells = judgments.cells
    if len(cells) != 2:
        raise UserError(
            "Conditional scores need the responses of two generators.",
            where=judgments.source,
            got=f"{len(cells)} cells",
            expected="two cells whose indices are the prompts",
        )
    one, other = cells.values()
    prompts = [index for index in one.outputs if index in other.row]
    for name, index in ((cell.name, index) for cell in (one, other) for index in prompts):
        if (name, index) not in labels:
            raise UserError(
                "A judged response has no label.",
                where=judgments.source,
                got=f"cell {name!r}, index {index}",
                expected="a label for every response",
            )
    rows = [[cell.per_output[cell.row[i]] for cell in (one, other)] for i in prompts]
    passed = [[labels[cell.name, i] for cell in (one, other)] for i in prompts]
    return Labelled((one.name, other.name), np.array(rows, float), np.array(passed, bool))


def conditional(data: Labelled, *, replicates: int = REPLICATES, seed: int = 0) -> dict[str, Any]:
    """Success, conditional GEQ, their difference, AUROC and discordant pairs, with intervals."""
    rng = np.random.default_rng(derive_seed(seed, "groupeval-conditions"))
    plain = np.ones((1, len(data.quality)))
    point = {name: _first(values) for name, values in _statistics(data, plain).items()}
    drawn: dict[str, list[Floats]] = {name: [] for name in point}
    flat = np.full(len(data.quality), 1 / len(data.quality))
    for start in range(0, replicates, CHUNK):
        weights = rng.multinomial(len(flat), flat, min(CHUNK, replicates - start)).astype(float)
        for name, values in _statistics(data, weights).items():
            drawn[name].append(values)
    ranges = {name: _range(np.concatenate(parts)) for name, parts in drawn.items()}
    return {
        "generators": list(data.names),
        "n_prompts": len(data.quality),
        "success": [float(rate) for rate in data.passed.mean(axis=0)],
        "cgeq": [float(mean) for mean in data.quality.mean(axis=0)],
        "difference": "second minus first",
        "cgeq_difference": point["difference"],
        "cgeq_difference_interval": ranges["difference"],
        "auroc": point["auroc"],
        "auroc_interval": ranges["auroc"],
        "auroc_by_generator": [_first(_auroc(data, plain, [side])) for side in (0, 1)],
        "discordant": point["discordant"],
        "discordant_interval": ranges["discordant"],
        "n_discordant": int((data.passed[:, 0] != data.passed[:, 1]).sum()),
    }


def _statistics(data: Labelled, weights: Floats) -> dict[str, Floats]:
    """Each statistic under each row of prompt weights; NaN where a draw leaves it undefined."""
    gap = data.quality[:, 1] - data.quality[:, 0]
    side = data.passed[:, 1].astype(float) - data.passed[:, 0]  # +1, -1, or 0 if concordant
    with np.errstate(invalid="ignore"):
        discordant = weights @ (gap * side) / (weights @ np.abs(side))
    return {
        "difference": weights @ gap / weights.sum(axis=1),
        "auroc": _auroc(data, weights, [0, 1]),
        "discordant": discordant,
    }


def _auroc(data: Labelled, weights: Floats, sides: list[int]) -> Floats:
    """Quality takes few values: count passes and failures at each, then compare the counts."""
    levels, at = np.unique(data.quality, return_inverse=True)
    passes = np.zeros((len(data.quality), len(levels)))
    failures = np.zeros_like(passes)
    rows = np.arange(len(passes))
    for side in sides:
        passed = data.passed[:, side]
        level = at.reshape(data.quality.shape)[:, side]
        np.add.at(passes, (rows, level), passed)
        np.add.at(failures, (rows, level), ~passed)
    won, lost = weights @ passes, weights @ failures
    below = np.cumsum(lost, axis=1) - lost / 2  # ties count half
    with np.errstate(invalid="ignore"):
        return (won * below).sum(axis=1) / (won.sum(axis=1) * lost.sum(axis=1))


def _first(values: Floats) -> float | None:
    return None if np.isnan(values[0]) else float(values[0])


def _range(values: Floats) -> list[float] | None:
    known = values[~np.isnan(values)]
    return interval(known) if len(known) else None
